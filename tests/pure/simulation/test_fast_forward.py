"""Heartbeats that cannot change anything are left out, and nothing changes; no run differs from
another of the same seed.
"""

from __future__ import annotations

from bisect import bisect_left

import pytest

from rota.engine.coordinator.notes import GroupNote, SessionExpired
from rota.engine.model.journal_entry import OffsetCommitEntry
from rota.engine.model.request import OffsetCommit
from rota.engine.model.response import OffsetCommitResult
from rota.engine.simulator.scenario import read_scenario
from rota.engine.simulator.simulation import ScenarioRunner
from rota.engine.simulator.trace import TraceEventType, TraceRecord
from rota.engine.simulator.world import World
from tests.support.examples import first
from tests.support.simulation.random_scenario import random_scenario

SHORT = 30
#: Requests of one connection wait for each other, so a skipped commit may be earlier, in ms.
LATE_COMMIT = 50
LONG = 1_500


def run_scenario(text: str, seed: int, *, skip: bool, skip_commits: bool = False) -> World:
    scenario = read_scenario(text)
    world = ScenarioRunner(scenario, seed=seed, skip=skip, skip_commits=skip_commits).run()
    world.check_invariants()
    return world


def compare_fast_forward(seed: int) -> None:
    text = random_scenario(seed)
    full, skipped = (run_scenario(text, seed, skip=skip) for skip in (False, True))
    for one, other in zip(full.trace, skipped.trace, strict=False):
        assert one == other, f"seed {seed}:\n{text}"
    assert len(full.trace) == len(skipped.trace), f"seed {seed}:\n{text}"
    assert full.broker.journal == skipped.broker.journal


@pytest.mark.parametrize("seed", first(4, range(SHORT)))
def test_a_day_is_the_same_without_its_quiet_hours(seed: int) -> None:
    compare_fast_forward(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(SHORT, LONG))
def test_many_days_are_the_same_without_their_quiet_hours(seed: int) -> None:
    compare_fast_forward(seed)


def without_commits(world: World) -> list[TraceRecord]:
    commits = (OffsetCommit, OffsetCommitResult, OffsetCommitEntry)
    return [record for record in world.trace if not isinstance(record.detail, commits)]


def commit_times(world: World) -> dict[tuple[str, int], list[int]]:
    times: dict[tuple[str, int], list[int]] = {}
    for record in world.trace:
        if isinstance(entry := record.detail, OffsetCommitEntry):
            times.setdefault((entry.topic, entry.partition), []).append(record.at)
    return times


def compare_skipped_commits(seed: int) -> None:
    text = random_scenario(seed).replace("auto_commit = false", "auto_commit = true")
    full, skipped = (run_scenario(text, seed, skip=True, skip_commits=one) for one in (False, True))
    assert without_commits(full) == without_commits(skipped), f"seed {seed}:\n{text}"
    at = [record.at for record in skipped.trace]
    assert at == sorted(at)
    all_times, kept = commit_times(full), commit_times(skipped)
    assert all_times.keys() == kept.keys()
    for partition, times in kept.items():
        known = all_times[partition]
        for time in times:
            position = bisect_left(known, time)
            nearest = min(
                known[max(position - 1, 0) : position + 1], key=lambda one: abs(one - time)
            )
            assert abs(nearest - time) <= LATE_COMMIT, f"seed {seed}: {partition} at {time}"


@pytest.mark.parametrize("seed", first(4, range(SHORT)))
def test_skipped_commits_change_nothing_else(seed: int) -> None:
    compare_skipped_commits(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(SHORT, LONG))
def test_skipped_commits_change_nothing_else_in_many_days(seed: int) -> None:
    compare_skipped_commits(seed)


QUIET = """
duration = "24h"
strategy = "cooperative-sticky"
[topics]
t = 12
[[members]]
name = "m"
count = 5
processing = "700ms"
[[events]]
at = "23h"
crash = "m-3"
"""


def test_a_quiet_day_is_skipped_and_the_crash_at_its_end_is_seen() -> None:
    world = run_scenario(QUIET, 3, skip=True, skip_commits=True)
    silent = [
        record.at
        for record in world.trace
        if isinstance(record.detail, GroupNote) and isinstance(record.detail.change, SessionExpired)
    ]
    crash = 23 * 3_600_000
    assert len(silent) == 1
    assert crash + 41_000 < silent[0] <= crash + 45_003
    # five members, a heartbeat in three seconds and a poll in each: over half a million in full
    assert world.steps < 10_000


SLOW = """
duration = "24h"
strategy = "cooperative-sticky"
[topics]
t = 12
[[members]]
name = "m"
count = 8
processing = "200ms"
[[events]]
at = "22h"
slow = "m-3"
processing = "6m"
"""


def test_a_day_is_skipped_though_one_member_keeps_falling_out_of_the_group() -> None:
    world = run_scenario(SLOW, 3, skip=True, skip_commits=True)
    joined = [
        record.at
        for record in world.trace
        if record.type is TraceEventType.IDENTITY and record.subject == "m-3"
    ]
    assert len(joined) > 10
    # three and a half million polls in full
    assert world.steps < 60_000


def test_nothing_is_lost_by_skipping_while_one_member_is_too_slow() -> None:
    text = SLOW.replace("24h", "90m").replace("22h", "20m").replace("200ms", "2s")
    text = text.replace("count = 8", "count = 8\nauto_commit = false")
    full, skipped = (run_scenario(text, 3, skip=skip) for skip in (False, True))
    assert full.trace == skipped.trace
    assert skipped.steps < full.steps / 3


def test_telling_progress_costs_nothing() -> None:
    told: list[float] = []
    scenario = read_scenario(QUIET)
    world = ScenarioRunner(scenario, seed=3, skip_commits=True).run(told.append)
    silent = run_scenario(QUIET, 3, skip=True, skip_commits=True)
    assert told[-1] == 1
    assert world.trace == silent.trace
    assert world.steps == silent.steps


def test_another_seed_gives_another_trace() -> None:
    text = random_scenario(1)
    assert run_scenario(text, 1, skip=True).trace != run_scenario(text, 2, skip=True).trace
