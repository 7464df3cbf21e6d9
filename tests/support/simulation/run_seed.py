"""Plays the world of a seed, from its first step to the calm at its end."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeAlias
from unittest import mock

from rota.engine.coordinator.state import ClassicGroup, GroupState
from rota.engine.model.journal_entry import GroupMetadataEntry, OffsetCommitEntry
from rota.engine.model.request import JoinGroup, OffsetCommit, SyncGroup
from rota.engine.model.response import JoinGroupResult, OffsetCommitResult
from rota.engine.simulator.trace import TraceRecord
from tests.support.simulation.action_runner import ActionRunner
from tests.support.simulation.liveness import (
    CALM,
    check_no_removals,
    check_settled,
    max_generations,
    resubscribe_if_needed,
    settling_time,
)
from tests.support.simulation.plan import Plan, draw_plan
from tests.support.simulation.rule import RuleViolation, must
from tests.support.simulation.worlds import CheckedWorld, create_checked_world

Watched: TypeAlias = Callable[[Plan, Counter[str], ExitStack], CheckedWorld]
WIDTH = 170
#: How many of the last things that happened a failure tells.
TOLD = 60


class Failure(AssertionError):
    """A seed that breaks a rule; says how to see it again."""

    def __init__(self, plan: Plan, rule: str, error: BaseException, trace: list[str]) -> None:
        last = "\n".join(trace)
        super().__init__(
            f"seed {plan.seed} (trouble with {plan.kind.value}) breaks the rule: {error}\n"
            f"{last}\n"
            f"run it again: ROTA_SEED={plan.seed} python -m pytest tests/pure/simulation -k seed"
        )
        self.rule = rule


def run_seed(seed: int, watched: Watched = create_checked_world) -> Counter[str]:
    """Plays a seed; counts what happened in it.

    :param watched: makes the world
    :raises Failure: a rule was broken
    """
    plan = draw_plan(seed)
    tally: Counter[str] = Counter()
    with ExitStack() as stack:
        count_moves(tally, stack)
        checked_world = watched(plan, tally, stack)
        try:
            _play(checked_world)
        except Exception as error:
            rule = error.rule if isinstance(error, RuleViolation) else type(error).__name__
            trace = format_last_records(checked_world.trace)
            raise Failure(plan, rule, error, trace) from error
    return tally


def fingerprint(seed: int) -> str:
    """Of everything that happens in a world, in its order."""
    digest = hashlib.sha256()
    with ExitStack() as stack:
        checked_world = create_checked_world(draw_plan(seed), Counter(), stack)
        _play(checked_world)
        for record in checked_world.trace:
            digest.update(f"{record}\n".encode())
    return digest.hexdigest()


def _play(checked_world: CheckedWorld) -> None:
    check_no_removals(checked_world)
    ActionRunner(checked_world).plan_actions()
    run_world_until(checked_world, checked_world.plan.horizon)
    settle_world(checked_world)
    check_settled(checked_world)
    if resubscribe_if_needed(checked_world):
        checked_world.tally["static member came back"] += 1
        settle_world(checked_world)
        must(
            not checked_world.driver.returned, "members get stable", *checked_world.driver.returned
        )
        check_settled(checked_world)
    settled = dict(checked_world.driver.generations)
    run_world_until(checked_world, checked_world.now + CALM)
    check_settled(checked_world)
    must(
        settled == dict(checked_world.driver.generations), "no rebalance without a reason", settled
    )
    total = checked_world.driver.generations.total()
    most = max_generations(checked_world)
    must(total <= most, "generations are bounded by events", total, "of at most", most)
    checked_world.tally["generations"] += total


def settle_world(checked_world: CheckedWorld) -> None:
    """As long as it may take; an application that has enough even now begins it anew."""
    until = checked_world.now + settling_time(checked_world)
    while checked_world.now < until:
        run_world_until(checked_world, until)
        checked_world.update_from_trace()
        until = max(until, checked_world.last_exit + settling_time(checked_world))


def run_world_until(checked_world: CheckedWorld, until: int) -> None:
    """Step by step; the checks run inside the machines that each step wakes."""
    checked_world.schedule(until, lambda: None)
    while checked_world.now < until:
        checked_world.step()
        checked_world.tally["steps"] += 1


def count_moves(tally: Counter[str], stack: ExitStack) -> None:
    """Every move of a group is counted."""
    move = ClassicGroup.transition_to

    def counted(group: ClassicGroup, state: GroupState, now: int) -> None:
        tally[f"move {group.state.value} -> {state.value}"] += 1
        move(group, state, now)

    stack.enter_context(mock.patch.object(ClassicGroup, "transition_to", counted))


def format_last_records(trace: list[TraceRecord]) -> list[str]:
    """The last things that happened, without commits that went well, each in one line."""
    lines: list[str] = []
    for record in reversed(trace):
        if not isinstance(record.detail, OffsetCommit | OffsetCommitResult | OffsetCommitEntry):
            lines.append(_line(record))
        if len(lines) == TOLD:
            break
    return lines[::-1]


def _line(record: TraceRecord) -> str:
    detail = record.detail
    match detail:
        case JoinGroup():
            told = f"{detail.member_id} {[name for name, _ in detail.protocols]} {detail.reason}"
        case SyncGroup():
            told = f"{detail.member_id} {detail.generation}, {len(detail.assignments)} parts"
        case JoinGroupResult():
            told = f"{detail.code.name} {detail.member_id} {detail.generation} of {detail.leader}"
        case GroupMetadataEntry():
            told = f"{detail.generation}: {[member.member_id for member in detail.members]}"
        case _:
            told = "" if detail is None else str(detail)
    kind = "" if isinstance(detail, str | tuple | None) else type(detail).__name__
    return f"{record.at:>9} {record.type:<11} {record.subject:<6} {kind} {told}"[:WIDTH]
