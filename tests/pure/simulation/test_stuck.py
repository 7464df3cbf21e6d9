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
from tests.support.simulation.run_seed import run_world_until
from tests.support.simulation.worlds import CheckedWorld

SECOND = 1_000


def run_until_record(world: CheckedWorld, seen: Callable[[TraceRecord], bool]) -> None:
    """Step by step until something has happened."""
    start = len(world.trace)
    while not any(seen(record) for record in world.trace[start:]):
        assert world.step()


def join_was_answered(name: str, code: Code) -> Callable[[TraceRecord], bool]:
    """The coordinator has answered this process's join with this code."""

    def seen(record: TraceRecord) -> bool:
        reply = record.detail
        return record.subject == name and isinstance(reply, JoinGroupResult) and reply.code is code

    return seen


def sync_has_arrived(name: str) -> Callable[[TraceRecord], bool]:
    """A process's sync has reached the coordinator."""
    return lambda record: record.subject == name and isinstance(record.detail, SyncGroup)


def times_of_change(world: CheckedWorld, change: type[GroupChange], client: str = "") -> list[int]:
    """When the coordinator noted this change, of a member of this client."""
    return [
        record.at
        for record in world.trace
        if isinstance(record.detail, GroupNote)
        and isinstance(record.detail.change, change)
        and client in str(record.detail.change)
    ]


def count_owned(world: CheckedWorld) -> dict[str, int]:
    return {name: len(one.owned) for name, one in sorted(world.processes.items())}


@pytest.fixture
def world() -> Iterable[CheckedWorld]:
    """Two members, a and b, in a stable group; no member takes longer than it may."""
    with story.open_world() as world:
        world.start(story.process_config("a"))
        world.start(story.process_config("b"))
        run_world_until(world, 10 * SECOND)
        assert count_owned(world) == {"a": 3, "b": 2}
        yield world


def test_who_was_given_an_id_and_never_comes_holds_nobody_up_for_longer_than_its_session(
    world: CheckedWorld,
) -> None:
    world.start(story.process_config("c", session=3 * SECOND))
    run_until_record(world, join_was_answered("c", Code.MEMBER_ID_REQUIRED))
    world["c"].crash()
    crashed = world.now
    world.start(story.process_config("d"))
    run_until_record(world, join_was_answered("d", Code.NONE))
    assert world.now <= crashed + 3 * SECOND + 100
    story.settle_and_check(world)
    assert count_owned(world) == {"a": 2, "b": 2, "d": 1}


def test_who_joins_and_never_syncs_is_removed(world: CheckedWorld) -> None:
    world.start(story.process_config("c"))
    run_until_record(world, join_was_answered("c", Code.NONE))
    joined = world.now
    world["c"].crash()
    story.settle_and_check(world)
    (removed,) = times_of_change(world, SessionExpired, "'c-")
    assert removed == joined + 6 * SECOND
    assert count_owned(world) == {"a": 3, "b": 2}


def test_who_beats_and_never_syncs_is_removed_when_the_phase_is_over(world: CheckedWorld) -> None:
    """Its heartbeats come through, its sync does not. It takes nothing, so no round follows."""
    one = story.process_config("c", session=30 * SECOND)
    world.start(dataclasses.replace(one, topics=("none of these",)))
    run_until_record(world, join_was_answered("c", Code.NONE))
    joined = world.now
    world.unreliable_network.loses = lambda sender, request: (
        sender == "c" and isinstance(request, SyncGroup)
    )
    run_world_until(world, world.now + 20 * SECOND)
    (removed,) = times_of_change(world, SyncTimedOut, "('c-")
    assert removed == joined + 10 * SECOND
    world.unreliable_network.loses = lambda sender, request: False
    story.settle_and_check(world)
    assert count_owned(world) == {"a": 3, "b": 2, "c": 0}


def test_a_leader_that_dies_before_it_assigns_is_succeeded(world: CheckedWorld) -> None:
    world.start(story.process_config("c"))
    run_until_record(world, join_was_answered("c", Code.NONE))
    leader = world.driver.stored.groups[story.GROUP].saved.leader or ""
    name = leader.partition("-")[0]
    world[name].crash()
    assert not times_of_change(world, AssignmentReceived)[1:]
    story.settle_and_check(world)
    saved = world.driver.stored.groups[story.GROUP].saved
    assert saved.leader in {one.member_id for one in saved.members}
    assert saved.leader != leader
    assert sum(count_owned(world).values()) == 5


def test_a_leader_that_dies_with_its_assignment_under_way_is_succeeded(world: CheckedWorld) -> None:
    leader = (world.driver.stored.groups[story.GROUP].saved.leader or "").partition("-")[0]
    world.start(story.process_config("c"))
    run_until_record(world, sync_has_arrived(leader))
    world[leader].crash()
    story.settle_and_check(world)
    assert sum(count_owned(world).values()) == 5
    assert leader not in count_owned(world)


def all_partitions(partitions: Mapping[str, int]) -> list[TopicPartition]:
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
        return {**dict.fromkeys(subscriptions, ()), "nobody": all_partitions(partitions)}


class Forgetful(Odd):
    name: ClassVar[str] = "forgetful"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        return {}


@pytest.mark.parametrize("strategy", [Odd, Raising, Strange, Forgetful])
def test_leaders_with_a_bad_strategy_go_one_after_another(strategy: type[Odd]) -> None:
    """Each says why and leaves, so that the next may do better; here none does."""
    with story.open_world() as world:
        for name in ("a", "b", "c"):
            one = story.process_config(name)
            world.start(dataclasses.replace(one, assignors=lambda: (strategy(),)))
        run_world_until(world, 60 * SECOND)
        assert not world.processes
        raised = [str(one.detail) for one in world.trace if one.type is TraceEventType.RAISED]
        assert len(raised) == 3
        assert all(strategy.name in text for text in raised)
        assert world.driver.live[story.GROUP].state.value == "Empty"


def test_a_member_with_a_bad_strategy_is_outvoted_by_its_absence() -> None:
    """Only who leads assigns: once it has left, the others' own strategies do their work."""
    with story.open_world() as world:
        bad = dataclasses.replace(story.process_config("a"), assignors=lambda: (Raising(),))

        class Good(Raising):
            def assign_partitions(
                self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
            ) -> Mapping[str, Iterable[TopicPartition]]:
                first, *rest = sorted(subscriptions)
                return {first: all_partitions(partitions), **dict.fromkeys(rest, ())}

        good = dataclasses.replace(story.process_config("b"), assignors=lambda: (Good(),))
        world.start(bad)
        run_world_until(world, 100)
        world.start(good)
        story.settle_and_check(world)
        assert count_owned(world) == {"b": 5}


def test_a_coordinator_that_loads_for_long_is_waited_for(world: CheckedWorld) -> None:
    """Heartbeats are answered 0 meanwhile, sessions begin anew, and nothing is rebalanced."""
    before = count_owned(world)
    world.broker.stop()
    world.broker.start(load_time=20 * SECOND)
    run_world_until(world, world.now + 20 * SECOND + 100)
    loading = Code.COORDINATOR_LOAD_IN_PROGRESS.name
    assert not world.tally[f"Heartbeat {loading}"]
    story.settle_and_check(world)
    assert count_owned(world) == before
    assert world.driver.generations[story.GROUP] == 1


def test_a_group_that_waits_for_its_leader_does_not_outlive_a_restart(world: CheckedWorld) -> None:
    """A rebalance under way is soft: after a restart it starts again by itself."""
    world.start(story.process_config("c"))
    run_until_record(world, join_was_answered("c", Code.MEMBER_ID_REQUIRED))
    run_until_record(world, lambda record: record.type is TraceEventType.NOTE)
    assert world.driver.live[story.GROUP].state.value == "PreparingRebalance"
    world.broker.stop()
    world.broker.start()
    story.settle_and_check(world)
    assert count_owned(world) == {"a": 2, "b": 2, "c": 1}
