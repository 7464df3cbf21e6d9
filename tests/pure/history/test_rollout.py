"""Which rebalances belong to one rolling deploy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import rota
from rota.engine.history.facts import (
    EvidenceType,
    Explanation,
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    JournalRecord,
    Rebalance,
    RebalanceCause,
)
from rota.engine.history.generations import read_history
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.restarts import MAX_ROLLOUT_GAP, find_rollouts
from rota.engine.model.journal_entry import GroupMetadataEntry
from rota.engine.simulator.trace import TraceEventType


def simulate_rebalances(*events: dict[str, Any], **fields: Any) -> list[Rebalance]:
    """Four members for an hour."""
    scenario = {
        "duration": "1h",
        "strategy": "range",
        "topics": {"t": 12},
        "members": [{"name": "m", "count": 4, **fields}],
        "events": list(events),
    }
    trace = rota.simulate(scenario).trace
    saved = [record for record in trace if record.type is TraceEventType.JOURNAL]
    written = [
        JournalRecord(offset, record.at, record.detail)
        for offset, record in enumerate(saved)
        if isinstance(record.detail, GroupMetadataEntry)
    ]
    return find_rebalances(read_history("group", written, {}).generations)


@pytest.mark.parametrize("surge", [False, True])
@pytest.mark.parametrize("between", ["5s", "1m", "4m"])
def test_a_rolling_deploy_is_one_rollout(between: str, surge: bool) -> None:
    found = simulate_rebalances(
        {"at": "5m", "deploy": "m", "down": "8s", "between": between, "surge": surge}
    )

    first, *others = find_rollouts(found)

    assert first is None
    assert len(others) >= 4
    assert set(others) == {f"generation 1-{found[-1].after.generation}"}


def test_the_next_deploy_is_another() -> None:
    deploy = {"deploy": "m", "down": "8s", "between": "20s"}
    found = find_rollouts(simulate_rebalances({"at": "5m", **deploy}, {"at": "9m", **deploy}))

    assert found[0] is None
    assert list(dict.fromkeys(found[1:])) == ["generation 1-9", "generation 9-17"]


def test_static_members_are_deployed_without_a_rebalance() -> None:
    deploy = {"at": "5m", "deploy": "m", "down": "8s", "between": "20s"}

    assert find_rollouts(simulate_rebalances(deploy, static=True)) == [None]


def test_a_member_that_comes_and_goes_is_no_rollout() -> None:
    restarts = [{"at": f"{minute}m", "restart": "m-1", "down": "10s"} for minute in range(5, 12)]

    assert set(find_rollouts(simulate_rebalances(*restarts))) == {None}


def test_growing_and_shrinking_is_no_rollout() -> None:
    joins = [{"at": f"{5 + n}m", "join": f"x-{n}", "like": "m"} for n in range(4)]
    leaves = [{"at": f"{15 + n}m", "leave": f"x-{n}"} for n in range(4)]

    assert set(find_rollouts(simulate_rebalances(*joins, *leaves))) == {None}


def test_all_at_once_is_no_rollout() -> None:
    restart = {"at": "5m", "restart": ["m-0", "m-1", "m-2", "m-3"], "down": "30s"}

    assert set(find_rollouts(simulate_rebalances(restart))) == {None}


def group(*clients: str, at: int, number: int, host: str = "") -> Generation:
    members = tuple(
        GenerationMember(member_id=client, client_id=client.split("/")[0], client_host=host)
        for client in clients
    )
    return Generation(
        group="g",
        kind=GroupType.CLASSIC,
        incarnation=0,
        generation=number,
        change=GenerationChange.REBALANCED if members else GenerationChange.EMPTIED,
        at=at,
        offset=number,
        members=members,
    )


def make_rebalances(*names: str, apart: int = 60_000) -> list[Rebalance]:
    """Steps between generations whose members are named like "a/1 b/1": client, process."""
    return find_rebalances(
        group(*text.split(), at=number * apart, number=number + 1)
        for number, text in enumerate(names)
    )


PAIR = ("a/1 b/1", "b/1", "a/2 b/1", "a/2", "a/2 b/2")


def test_two_that_came_back_are_no_rollout_unless_they_are_others() -> None:
    renamed = [text.replace("/2", "-v2/2") for text in PAIR]

    assert set(find_rollouts(make_rebalances(*PAIR))) == {None}
    assert find_rollouts(make_rebalances(*renamed)) == [None, *["generation 1-5"] * 4]


def explanations_with(found: Sequence[Rebalance], cause: RebalanceCause) -> list[Explanation]:
    return [Explanation(cause=cause, evidence=EvidenceType.STATED) for _ in found]


def test_who_polled_too_late_was_not_deployed() -> None:
    found = make_rebalances("a/1 b/1 c/1", "a/2 b/1 c/1", "a/2 b/2 c/1", "a/2 b/2 c/2")

    assert find_rollouts(found, explanations_with(found, RebalanceCause.LEFT)) == [
        None,
        *["generation 1-4"] * 3,
    ]
    assert set(find_rollouts(found, explanations_with(found, RebalanceCause.SLOW_POLL))) == {None}


def test_what_happens_long_after_each_other_is_no_rollout() -> None:
    names = "a/1 b/1 c/1", "a/2 b/1 c/1", "a/2 b/2 c/1", "a/2 b/2 c/2"

    assert set(find_rollouts(make_rebalances(*names, apart=MAX_ROLLOUT_GAP + 1))) == {None}


def test_a_few_of_many_are_no_rollout() -> None:
    rest = " ".join(f"m{number}/1" for number in range(17))
    found = make_rebalances(
        *(f"{text} {rest}" for text in ("a/1 b/1 c/1", "a/2 b/2 c/1", "a/2 b/2 c/2"))
    )

    assert set(find_rollouts(found)) == {None}


def test_a_later_life_is_told_in_the_name() -> None:
    names = "a/1 b/1 c/1", "a/2 b/1 c/1", "a/2 b/2 c/1", "a/2 b/2 c/2"
    found = [
        replace(one, rounds=tuple(replace(each, incarnation=1) for each in one.rounds))
        for one in make_rebalances(*names)
    ]

    assert set(find_rollouts(found)) == {None, "incarnation 1, generation 1-4"}
