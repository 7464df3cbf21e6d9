"""The timeline of simulated groups against what the simulator knows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rota
from rota.engine.coordinator.notes import (
    GroupEmptied,
    GroupNote,
    GroupStabilized,
    MemberRejoined,
    RebalanceReason,
    RebalanceStarted,
)
from rota.engine.history.facts import GenerationChange, JournalRecord
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.rebalances import find_rebalances
from rota.engine.member.events import ListenerMethod
from rota.engine.simulator.simulation import Simulation
from rota.engine.simulator.trace import TraceEventType
from tests.support.simulation.random_scenario import random_scenario

#: How a member says that it joins for the next round of a cooperative rebalance.
FOLLOW_UP = "need to revoke partitions and re-join"
SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


def _simulate_history(seed: int) -> tuple[Simulation, GroupHistory]:
    simulation = rota.simulate(random_scenario(seed), seed=seed)
    saved = (record for record in simulation.trace if record.type is TraceEventType.JOURNAL)
    records = [JournalRecord(offset, one.at, one.detail) for offset, one in enumerate(saved)]  # type: ignore[arg-type]
    return simulation, read_history(simulation.scenario.group, records, {})


def _assigned_callbacks(simulation: Simulation) -> list[tuple[int, ...]]:
    """Generations by the call to join that they came of; a follow-up with what it follows."""
    found: list[tuple[int, ...]] = []
    first: RebalanceReason | None = None
    for record in simulation.trace:
        if not isinstance(record.detail, GroupNote):
            continue
        match record.detail.change:
            case RebalanceStarted(reason):
                first = first or reason
            case GroupStabilized() if (
                isinstance(first, MemberRejoined) and first.client_reason == FOLLOW_UP
            ):
                found[-1] += (record.detail.generation,)
                first = None
            case GroupStabilized() | GroupEmptied():
                found.append((record.detail.generation,))
                first = None
            case _:
                pass
    return found


def _is_refined(coarse: Iterable[tuple[int, ...]], fine: Iterable[tuple[int, ...]]) -> bool:
    """Both have the same numbers in the same order, and what is together in fine is in coarse."""
    coarse, fine = list(coarse), list(fine)
    place = {number: position for position, some in enumerate(coarse) for number in some}
    same = [one for some in coarse for one in some] == [one for some in fine for one in some]
    return same and all(len({place[number] for number in some}) <= 1 for some in fine)


def _check_steps(simulation: Simulation, timeline: GroupHistory) -> None:
    found = find_rebalances(timeline.generations)
    rounds = [tuple(one.generation for one in step.rounds) for step in found]
    settled = [
        tuple(one.generation for one in step.rounds if one.change is GenerationChange.REBALANCED)
        for step in found
    ]

    # the coordinator's calls cannot tell of members that had to join again but were not the first
    assert _is_refined(rounds, _assigned_callbacks(simulation))
    assert [one.generations for one in simulation.rebalances if one.step is not None] == settled
    assert all(one.end <= other.start for one, other in pairwise(simulation.rebalances))
    for step, timed in zip(found, simulation.rebalances, strict=False):
        assert timed.start <= step.rounds[0].at
        assert step.after.at <= timed.end or not step.after.members


def _check_owners(simulation: Simulation, timeline: GroupHistory) -> None:
    identity: dict[str, str] = {}
    for record in simulation.trace:
        if record.type is TraceEventType.IDENTITY:
            identity[record.subject] = str(record.detail)
        elif record.type is TraceEventType.LISTENER:
            assert isinstance(record.detail, tuple)
            call, partitions = record.detail
            for partition in partitions if call == ListenerMethod.ASSIGNED.value else ():
                owners = [
                    row.member_id
                    for row in timeline.ownership
                    if (row.topic, row.partition) == tuple(partition)
                    and row.since <= record.at
                    and (row.until is None or record.at < row.until)
                ]
                assert owners == [identity[record.subject]]


@settings(max_examples=12)
@given(seed=SEEDS)
def test_every_rebalance_is_found_none_invented_and_owners_are_right(seed: int) -> None:
    simulation, timeline = _simulate_history(seed)

    _check_steps(simulation, timeline)
    _check_owners(simulation, timeline)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1_000))
def test_many_days(seed: int) -> None:
    simulation, timeline = _simulate_history(seed)

    _check_steps(simulation, timeline)
    _check_owners(simulation, timeline)


QUIET = """
duration = "40m"
strategy = "{strategy}"

[topics]
a = 7
b = 5

[[members]]
name = "m"
count = 3

[[events]]
at = "5m"
join = "m-3"

[[events]]
at = "10m"
leave = "m-1"

[[events]]
at = "15m"
crash = "m-0"

[[events]]
at = "20m"
restart = "m-2"
down = "2s"

[[events]]
at = "30m"
leave = "m"
"""


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_where_nothing_overlaps_steps_are_the_rebalances(strategy: str) -> None:
    simulation = rota.simulate(QUIET.format(strategy=strategy))
    saved = [one for one in simulation.trace if one.type is TraceEventType.JOURNAL]
    records = [JournalRecord(offset, one.at, one.detail) for offset, one in enumerate(saved)]  # type: ignore[arg-type]
    found = find_rebalances(read_history(simulation.scenario.group, records, {}).generations)

    assert [len(step.after.members) for step in found] == [
        one.members for one in simulation.rebalances
    ]
    assert [tuple(one.generation for one in step.rounds if one.members) for step in found] == [
        one.generations for one in simulation.rebalances
    ]
    assert found[-1].after.change is GenerationChange.EMPTIED
