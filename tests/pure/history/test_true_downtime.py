"""The true gaps of the recorded runs are what their clients' callbacks say."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from tests.support import first_recording
from tests.support.captured_downtime import (
    GapEnd,
    GapType,
    PauseType,
    TrueGap,
    find_true_downtime,
    find_true_gaps,
    find_true_pauses,
    group_names,
    read_callbacks,
)

#: The first run's times are counted from here.
RUN = 1_794_716_000_000


def _gaps_of(group: str, topic: str, partition: int) -> list[TrueGap]:
    gaps = find_true_gaps(group)
    return [gap for gap in gaps if (gap.topic, gap.partition) == (topic, partition)]


def test_every_gap_of_both_runs_is_there() -> None:
    gaps = [gap for group in group_names() for gap in find_true_gaps(group)]
    assert len(gaps) == 1434
    assert Counter(gap.kind for gap in gaps) == {
        GapType.REVOKED: 1020,
        GapType.LEFT: 259,
        GapType.CRASHED: 76,
        GapType.SLOW_POLL: 43,
        GapType.RESTARTED: 36,
    }


@pytest.mark.parametrize("group", group_names())
def test_gaps_of_a_partition_do_not_overlap(group: str) -> None:
    for topic, partition in {(gap.topic, gap.partition) for gap in find_true_gaps(group)}:
        gaps = _gaps_of(group, topic, partition)
        for gap, following in itertools.pairwise(gaps):
            assert gap.until is not None
            assert gap.since <= gap.until < following.since


@pytest.mark.parametrize("group", [name for name in group_names() if name.startswith("a-")])
def test_every_assigned_partition_ends_its_gap(group: str) -> None:
    ends = {
        (gap.topic, gap.partition, gap.until)
        for gap in find_true_gaps(group)
        if gap.end is GapEnd.ASSIGNED
    }
    given = {
        (*_split(name), event["t"])
        for event in first_recording.read_expected()
        if event["group"] == group and event["event"] == "assigned"
        for name in event["partitions"]
    }
    assert ends <= given


def _split(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition(":")
    return topic, int(number)


def test_a_leave_and_the_rebalance_after_it() -> None:
    first, second = _gaps_of("a-flap", "payments", 5)[:2]
    assert first.kind is GapType.REVOKED
    assert second.kind is GapType.LEFT
    assert (second.last_client, second.next_client) == ("flap-2", "flap-1")


def test_a_killed_member_s_gap_starts_with_the_kill() -> None:
    gap = next(gap for gap in _gaps_of("a-crash", "orders", 8) if gap.kind is GapType.CRASHED)
    assert gap.last_client == "crash-jvm"
    assert (gap.since - RUN, gap.until) == (107_208, RUN + 113_114)


def test_the_callbacks_of_a_crashed_client_do_not_count() -> None:
    last = _gaps_of("a-crash", "orders", 0)[-1]
    assert (last.since - RUN, last.until, last.end) == (237_976, None, None)
    assert last.kind is GapType.CRASHED


def test_a_static_member_s_gap_starts_when_it_stops_to_consume() -> None:
    gap = next(gap for gap in _gaps_of("a-static", "orders", 4) if gap.kind is GapType.RESTARTED)
    assert (gap.since - RUN, gap.until) == (82_001, RUN + 84_254)


def test_a_twin_takes_over_without_a_gap() -> None:
    gaps = [gap for gap in _gaps_of("a-static", "orders", 4) if gap.since > RUN + 200_000]
    assert [(gap.last_client, gap.kind) for gap in gaps] == [("st-1-twin", GapType.REVOKED)]


def test_a_slow_member_s_gap_starts_when_it_leaves() -> None:
    gap = next(gap for gap in _gaps_of("a-slow", "payments", 3) if gap.kind is GapType.SLOW_POLL)
    assert (gap.since - RUN, gap.until) == (85_674, RUN + 86_280)
    pause = next(one for one in find_true_pauses("a-slow") if one.partition == 3)
    assert (pause.since - RUN, pause.until) == (77_674, gap.since)
    assert pause.kind is PauseType.SLOW_POLL
    assert pause.since in {one.since for one in find_true_downtime("a-slow")}


def test_a_deleted_group_has_no_gaps() -> None:
    first, second = _gaps_of("a-deleted", "audit", 0)
    assert (first.end, first.until) == (GapEnd.GROUP_DELETED, RUN + 74_807)
    assert second.since > RUN + 165_485


def test_a_topic_without_subscribers_has_no_gap() -> None:
    unsubscribed = RUN + 207_322
    assert not [gap for gap in _gaps_of("a-subs", "audit", 0) if gap.since > unsubscribed]
    assert [gap for gap in _gaps_of("a-subs", "payments", 3) if gap.since > unsubscribed]
    assert not _gaps_of("a-deloff", "audit", 0)


def test_a_partition_without_a_first_owner_has_no_gap() -> None:
    for group, topic, partition in (("a-grow", "grow", 4), ("a-pattern", "evt.gamma", 0)):
        assert not _gaps_of(group, topic, partition)


def test_a_client_without_callbacks_stops_when_it_is_closed() -> None:
    closed = next(
        at for at, client, what, _ in read_callbacks() if (client, what) == ("aio-2", "closed")
    )
    gaps = [gap for gap in find_true_gaps("b-aio") if gap.last_client == "aio-2"]
    assert {gap.since for gap in gaps if gap.kind is GapType.LEFT} == {closed}
