"""Random worlds: nothing that was promised is broken, whatever goes wrong.

A failing seed prints itself and the last events before the failure. To repeat exactly the same run:
``ROTA_SEED=123 python -m pytest tests/pure/simulation -k seed``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from typing import get_args

import pytest

from rota.engine.coordinator.notes import GroupChange
from rota.engine.coordinator.state import GROUP_TRANSITIONS
from rota.engine.member.events import ListenerMethod
from tests.support.examples import first
from tests.support.simulation.mutations import MUTATIONS
from tests.support.simulation.plan import KINDS, Action, FaultKind, draw_plan
from tests.support.simulation.run_seed import Failure, run_seed
from tests.support.simulation.unreliable_network import FAILURES

AGAIN = os.environ.get("ROTA_SEED")
SEEDS = range(200) if AGAIN is None else (int(AGAIN),)
BATCH = 100
NIGHTLY = range(200, 10_000, BATCH)

played: dict[int, Counter[str]] = {}


@pytest.mark.parametrize("seed", first(20, SEEDS))
def test_seed(seed: int) -> None:
    played[seed] = run_seed(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("first", NIGHTLY)
def test_many_seeds(first: int) -> None:
    failures = []
    for seed in range(first, first + BATCH):
        try:
            run_seed(seed)
        except Failure as failure:
            failures.append(failure)
    assert not failures, "\n\n".join(map(str, failures))


@pytest.fixture(scope="module")
def tally() -> Counter[str]:
    """What happened in all worlds together."""
    if AGAIN is not None:
        pytest.skip("only one seed is played")
    total: Counter[str] = Counter()
    for seed in SEEDS:
        if seed not in played:
            played[seed] = run_seed(seed)
        total += played[seed]
    print(f"\n{len(SEEDS)} worlds:")
    for name, count in sorted(total.items()):
        print(f"  {count:>9,} {name}")
    return total


def _missing(tally: Counter[str], names: list[str]) -> list[str]:
    return [name for name in names if not tally[name]]


@pytest.mark.check
def test_everything_that_can_happen_did(tally: Counter[str]) -> None:
    assert not _missing(tally, [f"act {act.name}" for act in Action])
    faults = ["message slow", "request lost", "request repeated", "connection cut"]
    assert not _missing(tally, faults + [f"append failed: {code.name}" for code in FAILURES])
    assert {draw_plan(seed).kind for seed in SEEDS} == set(FaultKind) == set(KINDS)


@pytest.mark.check
def test_every_move_of_a_group_was_taken(tally: Counter[str]) -> None:
    moves = [f"move {old.value} -> {new.value}" for old, new in GROUP_TRANSITIONS]
    assert not _missing(tally, moves)
    assert not _missing(tally, [f"note {change.__name__}" for change in get_args(GroupChange)])


@pytest.mark.check
def test_members_met_every_turn_of_fate(tally: Counter[str]) -> None:
    assert not _missing(tally, [call.value for call in ListenerMethod])
    raised = ["Fenced", "GroupError", "InconsistentProtocol", "ListenerError"]
    assert not _missing(tally, [f"raised {name}" for name in raised])
    ends = ["done", "CommitFailed", "RebalanceInProgress", "RetriableCommitFailed"]
    assert not _missing(tally, [f"commit {end}" for end in ends])
    # zombies: one that has not heard, and one that has taken its place
    assert tally["one owner is behind"]
    assert tally["static member came back"]
    assert tally["commit inside a listener"]


@pytest.mark.check
@pytest.mark.parametrize(
    ("request_", "codes"),
    [
        (
            "JoinGroup",
            "NONE MEMBER_ID_REQUIRED UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID GROUP_MAX_SIZE_REACHED "
            "INCONSISTENT_GROUP_PROTOCOL REBALANCE_IN_PROGRESS NOT_COORDINATOR "
            "COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS",
        ),
        (
            "SyncGroup",
            "NONE UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION REBALANCE_IN_PROGRESS "
            "NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE",
        ),
        (
            "Heartbeat",
            "NONE UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION REBALANCE_IN_PROGRESS",
        ),
        (
            "OffsetCommit",
            "NONE UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION NOT_COORDINATOR "
            "COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS",
        ),
        ("LeaveGroup", "NONE UNKNOWN_MEMBER_ID"),
        ("DeleteGroups", "NONE NON_EMPTY_GROUP GROUP_ID_NOT_FOUND"),
        ("OffsetDelete", "NONE GROUP_SUBSCRIBED_TO_TOPIC GROUP_ID_NOT_FOUND"),
    ],
)
def test_every_code_was_met(tally: Counter[str], request_: str, codes: str) -> None:
    assert not _missing(tally, [f"{request_} {code}" for code in codes.split()])


def first_failure(seeds: Iterable[int]) -> tuple[int, str]:
    for seed in seeds:
        try:
            run_seed(seed)
        except Failure as failure:
            return seed, str(failure)
    raise AssertionError("no seed fails")


def test_a_failure_tells_how_to_see_it_again() -> None:
    with ExitStack() as stack:
        MUTATIONS["a_generation_keeps_its_number"].apply(stack)
        seed, text = first_failure(range(20))
    assert f"seed {seed} (trouble with " in text
    assert "breaks the rule: generations rise by one" in text
    assert "RebalanceStarted" in text, "the last things that happened"
    assert f"ROTA_SEED={seed} python -m pytest tests/pure/simulation -k seed" in text
