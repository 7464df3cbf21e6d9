"""Causes on a journal that nobody tuned for: other groups, sizes, clients and timings."""

from __future__ import annotations

import pytest

from rota.engine.history.causes import explain_rebalance
from rota.engine.history.facts import EvidenceType, GroupType, LogLine, RebalanceCause
from rota.engine.history.restarts import find_rollouts
from rota.engine.history.server_log import SkippedLine
from tests.support import second_recording

GROUPS = sorted(second_recording.read_causes())
#: kafka-python does not say why it leaves, so its broker's log does not tell these from a close.
WITHOUT_REASON = {("b-python", RebalanceCause.SLOW_POLL), ("b-pycoop", RebalanceCause.SLOW_POLL)}


def test_every_group_is_there() -> None:
    assert set(second_recording.read_rebalances()) == set(GROUPS)
    assert len(GROUPS) == 16


def test_the_broker_s_lines_are_all_understood() -> None:
    assert SkippedLine.UNKNOWN not in second_recording.read_log()
    assert sum(isinstance(line, LogLine) for line in second_recording.read_log()) > 300


@pytest.mark.parametrize("group", GROUPS)
def test_every_rebalance_is_found_and_none_is_invented(group: str) -> None:
    found = second_recording.read_rebalances()[group]
    assert len(found) == len(second_recording.read_causes()[group])
    if found[0].after.kind is GroupType.CLASSIC:
        said = (
            line
            for line in second_recording.read_log_lines(group)
            if line.what in ("assigned", "emptied")
        )
        rounds = [one.generation for step in found for one in step.rounds]
        assert rounds == [line.generation for line in said]


@pytest.mark.parametrize("group", GROUPS)
def test_the_log_states_every_cause(group: str) -> None:
    found = [
        explain_rebalance(
            step, second_recording.read_commit_times(group), second_recording.read_log_lines(group)
        )
        for step in second_recording.read_rebalances()[group]
    ]
    real = second_recording.read_causes()[group]
    assert all(one.evidence is EvidenceType.STATED for one in found)
    told = [RebalanceCause.UNKNOWN if (group, cause) in WITHOUT_REASON else cause for cause in real]
    assert [one.cause for one in found] == told
    likely = [one.likely for one in found if one.cause is RebalanceCause.UNKNOWN]
    assert set(likely) <= {RebalanceCause.SLOW_POLL}


@pytest.mark.parametrize(
    ("group", "committed"),
    [(group, committed) for group in GROUPS for committed in (False, True)],
)
def test_without_the_log_a_cause_is_right_or_unknown(group: str, committed: bool) -> None:
    commits = second_recording.read_commit_times(group) if committed else {}
    real = second_recording.read_causes()[group]
    for step, cause in zip(second_recording.read_rebalances()[group], real, strict=True):
        found = explain_rebalance(step, commits)
        assert found.evidence is EvidenceType.INFERRED
        assert found.cause in (RebalanceCause.UNKNOWN, cause), (step.after.generation, found)


@pytest.mark.parametrize("with_log", [True, False])
def test_members_that_come_back_after_slow_polls_are_no_rollout(with_log: bool) -> None:
    """One of them commits all the while."""
    found = second_recording.read_rebalances()["b-slow"]
    commits = second_recording.read_commit_times("b-slow")
    lines = second_recording.read_log_lines("b-slow") if with_log else ()
    assert not any(find_rollouts(found, [explain_rebalance(one, commits, lines) for one in found]))


def test_much_is_known_without_the_log() -> None:
    found = [
        explain_rebalance(step, second_recording.read_commit_times(group)).cause
        for group in GROUPS
        for step in second_recording.read_rebalances()[group]
    ]
    known = sum(cause is not RebalanceCause.UNKNOWN for cause in found)
    assert known > len(found) // 2
