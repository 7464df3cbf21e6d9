"""Causes in simulated histories, against what the simulated coordinator knew."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rota.engine.history.causes import CommitTimes, explain_rebalance
from rota.engine.history.facts import EvidenceType, RebalanceCause
from rota.engine.history.rebalances import diff_generations
from tests.pure.history.simulated import History, simulate_history
from tests.support.examples import first

#: What is in a reason to ask again; the one that the member had before is lost then.
RETRIES = ("encountered ", "did not answer")


def check(seed: int) -> None:
    """Stated: exact. Inferred: exact or unknown, with all commits, with some, with none."""
    found = simulate_history(seed)
    for step, cause in zip(found.steps, found.causes, strict=True):
        told = explain_rebalance(step, found.commits, found.lines)
        assert told.evidence is EvidenceType.STATED
        allowed = {cause}
        if cause is None:  # a second round that stands for itself
            allowed = {RebalanceCause.LEADER, RebalanceCause.UNKNOWN}
        elif any(words in told.reason for words in RETRIES):
            allowed |= {RebalanceCause.LEADER, RebalanceCause.UNKNOWN}
        assert told.cause in allowed, (seed, step.after.generation, told)
    for commits in (
        found.commits,
        drop_commits(found.commits, seed),
        commits_of_slow_members(found),
        {},
    ):
        check_inferred(found, commits)


def check_inferred(found: History, commits: CommitTimes) -> None:
    for step, cause, restarted in zip(found.steps, found.causes, found.restarted, strict=True):
        if restarted:
            continue
        told = explain_rebalance(step, commits)
        assert told.evidence is EvidenceType.INFERRED
        assert told.cause in (cause, RebalanceCause.UNKNOWN), (
            found.seed,
            step.after.generation,
            told,
        )


def drop_commits(commits: CommitTimes, seed: int) -> CommitTimes:
    """Members that commit only what is new, and so not for stretches of a minute at times."""
    rng = random.Random(seed)
    quiet = {minute for minute in range(21) if rng.random() < 0.5}
    return {
        key: times[[time // 60_000 not in quiet for time in times.tolist()]]
        for key, times in commits.items()
    }


def commits_of_slow_members(found: History) -> CommitTimes:
    """Members that commit every second even while they are too slow to poll."""
    more = dict(found.commits)
    for step, cause in zip(found.steps, found.causes, strict=True):
        began = explain_rebalance(step, {}, found.lines).started_at
        if cause is not RebalanceCause.SLOW_POLL or step.before is None or began is None:
            continue
        beats = np.arange(began - found.seed % 1_000, step.before.at, -1_000, dtype=np.int64)
        for member in diff_generations(step.before, step.after).left:
            for topic, numbers in member.assigned.items():
                for key in ((topic, number) for number in numbers):
                    times = more.get(key, beats)
                    others = times[(times <= step.before.at) | (times > began)]
                    more[key] = np.union1d(others, beats)
    return more


@pytest.mark.parametrize("seed", first(3, range(8)))
def test_a_cause_is_exact_or_unknown(seed: int) -> None:
    check(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1_000, 1_250))
def test_a_cause_is_exact_or_unknown_in_many_histories(seed: int) -> None:
    check(seed)


def test_much_is_known_without_a_log() -> None:
    """Not to be wrong is easy for who never says anything."""
    known = total = 0
    for seed in range(4):
        found = simulate_history(seed)
        told = [explain_rebalance(step, found.commits).cause for step in found.steps]
        known += sum(cause is not RebalanceCause.UNKNOWN for cause in told)
        total += len(told)
    assert known > total // 3


def test_commits_out_of_the_generation_s_time_do_not_mislead() -> None:
    found = simulate_history(0)
    early = {key: np.sort(times - 3_600_000) for key, times in found.commits.items()}
    check_inferred(found, early)
