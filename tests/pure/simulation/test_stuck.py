"""Whoever goes, goes silent or does nonsense in the middle of a rebalance: the others go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import pytest

from rota.engine.assignors.interface import PartitionAssignor
from rota.engine.coordinator.notes import (
    AssignmentReceived,
    GroupChange,
    GroupNote,
    SessionExpired,
    SyncTimedOut,
)
from rota.engine.model.member import Subscription
from rota.engine.model.request import SyncGroup
from rota.engine.model.response import JoinGroupResult
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.trace import TraceEventType, TraceRecord
from rota.errors import Code
from tests.support.simulation import story
from tests.support.simulation.play import run
from tests.support.simulation.worlds import Arena

SECOND = 1_000


def run_until(arena: Arena, seen: Callable[[TraceRecord], bool]) -> None:
    """Step by step until something has happened."""
    start = len(arena.trace)
    while not any(seen(record) for record in arena.trace[start:]):
        assert arena.step()


def told(name: str, code: Code) -> Callable[[TraceRecord], bool]:
    """The coordinator has answered this process's join with this code."""

    def seen(record: TraceRecord) -> bool:
        reply = record.detail
        return record.subject == name and isinstance(reply, JoinGroupResult) and reply.code is code

    return seen


def came(name: str) -> Callable[[TraceRecord], bool]:
    """A process's sync has reached the coordinator."""
    return lambda record: record.subject == name and isinstance(record.detail, SyncGroup)


def noted(arena: Arena, change: type[GroupChange], client: str = "") -> list[int]:
    """When the coordinator noted this change, of a member of this client."""
    return [
        record.at
        for record in arena.trace
        if isinstance(record.detail, GroupNote)
        and isinstance(record.detail.change, change)
        and client in str(record.detail.change)
    ]


def owners(arena: Arena) -> dict[str, int]:
    return {name: len(one.owned) for name, one in sorted(arena.processes.items())}


@pytest.fixture
def arena() -> Iterable[Arena]:
    """Two members, a and b, in a stable group; no member takes longer than it may."""
    with story.state() as arena:
        arena.start(story.program("a"))
        arena.start(story.program("b"))
        run(arena, 10 * SECOND)
        assert owners(arena) == {"a": 3, "b": 2}
        yield arena


def test_who_was_given_an_id_and_never_comes_holds_nobody_up_for_longer_than_its_session(
    arena: Arena,
) -> None:
    arena.start(story.program("c", session=3 * SECOND))
    run_until(arena, told("c", Code.MEMBER_ID_REQUIRED))
    arena["c"].crash()
    crashed = arena.now
    arena.start(story.program("d"))
    run_until(arena, told("d", Code.NONE))
    assert arena.now <= crashed + 3 * SECOND + 100
    story.settle(arena)
    assert owners(arena) == {"a": 2, "b": 2, "d": 1}


def test_who_joins_and_never_syncs_is_removed(arena: Arena) -> None:
    arena.start(story.program("c"))
    run_until(arena, told("c", Code.NONE))
    joined = arena.now
    arena["c"].crash()
    story.settle(arena)
    (removed,) = noted(arena, SessionExpired, "'c-")
    assert removed == joined + 6 * SECOND
    assert owners(arena) == {"a": 3, "b": 2}


def test_who_beats_and_never_syncs_is_removed_when_the_phase_is_over(arena: Arena) -> None:
    """Its heartbeats come through, its sync does not. It takes nothing, so no round follows."""
    one = story.program("c", session=30 * SECOND)
    arena.start(dataclasses.replace(one, topics=("none of these",)))
    run_until(arena, told("c", Code.NONE))
    joined = arena.now
    arena.weather.loses = lambda sender, request: sender == "c" and isinstance(request, SyncGroup)
    run(arena, arena.now + 20 * SECOND)
    (removed,) = noted(arena, SyncTimedOut, "('c-")
    assert removed == joined + 10 * SECOND
    arena.weather.loses = lambda sender, request: False
    story.settle(arena)
    assert owners(arena) == {"a": 3, "b": 2, "c": 0}


def test_a_leader_that_dies_before_it_assigns_is_succeeded(arena: Arena) -> None:
    arena.start(story.program("c"))
    run_until(arena, told("c", Code.NONE))
    leader = arena.desk.stored.groups[story.GROUP].saved.leader or ""
    name = leader.partition("-")[0]
    arena[name].crash()
    assert not noted(arena, AssignmentReceived)[1:]
    story.settle(arena)
    saved = arena.desk.stored.groups[story.GROUP].saved
    assert saved.leader in {one.member_id for one in saved.members}
    assert saved.leader != leader
    assert sum(owners(arena).values()) == 5


def test_a_leader_that_dies_with_its_assignment_under_way_is_succeeded(arena: Arena) -> None:
    leader = (arena.desk.stored.groups[story.GROUP].saved.leader or "").partition("-")[0]
    arena.start(story.program("c"))
    run_until(arena, came(leader))
    arena[leader].crash()
    story.settle(arena)
    assert sum(owners(arena).values()) == 5
    assert leader not in owners(arena)


def every(partitions: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic, size in partitions.items() for n in range(size)]


class Odd(PartitionAssignor):
    """A strategy that does what it should not."""

    name: ClassVar[str] = "odd"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        return dict.fromkeys(subscriptions, ())


class Raising(Odd):
    name: ClassVar[str] = "raising"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        raise ZeroDivisionError


class Strange(Odd):
    name: ClassVar[str] = "strange"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        return {**dict.fromkeys(subscriptions, ()), "nobody": every(partitions)}


class Forgetful(Odd):
    name: ClassVar[str] = "forgetful"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        return {}


@pytest.mark.parametrize("strategy", [Odd, Raising, Strange, Forgetful])
def test_leaders_with_a_bad_strategy_go_one_after_another(strategy: type[Odd]) -> None:
    """Each says why and leaves, so that the next may do better; here none does."""
    with story.state() as arena:
        for name in ("a", "b", "c"):
            one = story.program(name)
            arena.start(dataclasses.replace(one, assignors=lambda: (strategy(),)))
        run(arena, 60 * SECOND)
        assert not arena.processes
        raised = [str(one.detail) for one in arena.trace if one.type is TraceEventType.RAISED]
        assert len(raised) == 3
        assert all(strategy.name in text for text in raised)
        assert arena.desk.live[story.GROUP].state.value == "Empty"


def test_a_member_with_a_bad_strategy_is_outvoted_by_its_absence() -> None:
    """Only who leads assigns: once it has left, the others' own strategies do their work."""
    with story.state() as arena:
        bad = dataclasses.replace(story.program("a"), assignors=lambda: (Raising(),))

        class Good(Raising):
            def assign_partitions(
                self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
            ) -> Mapping[str, Iterable[TopicPartition]]:
                first, *rest = sorted(subscriptions)
                return {first: every(partitions), **dict.fromkeys(rest, ())}

        good = dataclasses.replace(story.program("b"), assignors=lambda: (Good(),))
        arena.start(bad)
        run(arena, 100)
        arena.start(good)
        story.settle(arena)
        assert owners(arena) == {"b": 5}


def test_a_coordinator_that_loads_for_long_is_waited_for(arena: Arena) -> None:
    """Heartbeats are answered 0 meanwhile, sessions begin anew, and nothing is rebalanced."""
    before = owners(arena)
    arena.stop_coordinator()
    arena.start_coordinator(load_time=20 * SECOND)
    run(arena, arena.now + 20 * SECOND + 100)
    loading = Code.COORDINATOR_LOAD_IN_PROGRESS.name
    assert not arena.tally[f"Heartbeat {loading}"]
    story.settle(arena)
    assert owners(arena) == before
    assert arena.desk.generations[story.GROUP] == 1


def test_a_group_that_waits_for_its_leader_does_not_outlive_a_restart(arena: Arena) -> None:
    """A rebalance under way is soft: after a restart it starts again by itself."""
    arena.start(story.program("c"))
    run_until(arena, told("c", Code.MEMBER_ID_REQUIRED))
    run_until(arena, lambda record: record.type is TraceEventType.NOTE)
    assert arena.desk.live[story.GROUP].state.value == "PreparingRebalance"
    arena.stop_coordinator()
    arena.start_coordinator()
    story.settle(arena)
    assert owners(arena) == {"a": 2, "b": 2, "c": 1}
