"""Burrow's rules: its own table, single rules, and the captured run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from rota.engine.history.facts import (
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    LagVerdict,
)
from rota.engine.history.lag import EndOffsets
from rota.engine.history.verdicts import (
    DELETED_OFFSET,
    BurrowSettings,
    CommitWindow,
    GroupCommits,
    LagStatus,
    SubscriptionHistory,
    compute_statuses,
    judge_windows,
)
from tests.support.captured_lag import (
    end_offsets,
    group_commits,
    group_history,
    partitions,
    time_of_second,
)

OK, WARN, STALL, STOP, REWIND, ERR = (
    LagVerdict.OK,
    LagVerdict.WARN,
    LagVerdict.STALL,
    LagVerdict.STOP,
    LagVerdict.REWIND,
    LagVerdict.ERR,
)
ORDER = (OK, WARN, STALL, STOP, REWIND)


class Case(NamedTuple):
    """A row of the table in Burrow's caching_test.go: (offset, time, lag), and what is expected."""

    commits: list[tuple[int, int, int | None]]
    ends: list[int]
    lag: int
    now: int
    verdict: LagVerdict


def commits_at(step: int, offsets: list[int], lags: list[int]) -> list[tuple[int, int, int | None]]:
    return [(o, step * n, lag) for n, (o, lag) in enumerate(zip(offsets, lags, strict=True), 1)]


RISING = [1000, 2000, 3000, 4000, 5000]
STILL = [1000] * 5
LATE = [0, 50, 100, 150, 200]
TIMES = [
    618356, 619362, 620366, 621367, 622370, 623373, 624378, 625379, 626383, 627383, 628383,
    629388, 630391, 631394, 632397,
]  # fmt: skip
CAUGHT_UP = [(792748079 + n, 1512224000000 + time, 0) for n, time in enumerate(TIMES)]
BURROW = {
    "0 no lag at the start": Case(commits_at(100_000, RISING, LATE), [5200], 200, 600, OK),
    "1 silent as long as the window": Case(commits_at(100_000, RISING, LATE), [5200], 200, 900, OK),
    "2 silent for longer": Case(commits_at(100_000, RISING, LATE), [5200], 200, 1000, STOP),
    "3 with lag throughout": Case(
        commits_at(100_000, RISING, [50, 100, 150, 200, 250]), [5250], 250, 1000, STOP
    ),
    "4 still, no lag at the start": Case(commits_at(100_000, STILL, LATE), [1200], 200, 600, OK),
    "5 still, with lag": Case(
        commits_at(100_000, STILL, [100, 150, 200, 250, 300]), [1300], 300, 600, STALL
    ),
    "6 still, lag still too": Case(commits_at(100_000, STILL, [100] * 5), [1100], 100, 600, STALL),
    # REWIND in Burrow's table of 2020; since then it forgives a fall that was made good.
    "7 back and beyond": Case(
        commits_at(100_000, [1000, 2000, 3000, 2000, 4000], [100, 150, 200, 1250, 300]),
        [4300], 300, 600, OK,
    ),
    "8 nothing to read": Case(
        commits_at(100_000, RISING, [50, 100, 150, 200, 250]), [5250], 0, 1000, OK
    ),
    "9 silent, much new": Case(
        [*CAUGHT_UP], [792749024, 792749000, 792748800, 792748600, 792748500],
        931, 1512224650, STOP,
    ),
    "10 silent, at the end lately": Case(
        [*CAUGHT_UP], [792748094, 792748093, 792748093, 792748093], 1, 1512224650, OK
    ),
    "11 lags not known in between": Case(
        [
            (1000, 100_000, 0), (1500, 150_000, None), (2000, 200_000, 50), (2500, 250_000, None),
            (3000, 300_000, 100), (3500, 350_000, None), (4000, 400_000, 150),
            (4500, 450_000, None), (5000, 500_000, 200), (5500, 550_000, None),
        ],
        [5700], 200, 600, OK,
    ),
}  # fmt: skip


def judge_case(case: Case, rule: BurrowSettings | None = None) -> LagVerdict:
    offset, at, lag = zip(*case.commits, strict=True)
    width = (rule or BurrowSettings()).intervals if rule else len(offset)
    short = width - len(offset)
    window = CommitWindow(
        np.array([[False] * short + [True] * len(offset)]),
        np.array([(0,) * short + at]),
        np.array([(0,) * short + offset]),
        np.array([(None,) * short + lag], dtype=float),
    )
    now, left, recent = (np.array([n]) for n in (case.now * 1000, case.lag, min(case.ends)))
    return ORDER[judge_windows(window, now, left, recent, rule or BurrowSettings())[0]]


@pytest.mark.parametrize("case", BURROW.values(), ids=BURROW.keys())
def test_burrows_own_table(case: Case) -> None:
    assert judge_case(case) == case.verdict


def test_lag_that_never_falls_is_a_warning() -> None:
    slow = Case(commits_at(100_000, RISING, [50, 50, 80, 80, 90]), [5090], 90, 600, WARN)
    assert judge_case(slow) == WARN
    assert (
        judge_case(slow._replace(commits=commits_at(100_000, RISING, [50, 50, 80, 79, 90]))) == OK
    )


def test_a_fall_is_a_rewind_until_it_is_made_good() -> None:
    back = [1000, 2000, 3000, 2500, 2999]
    fallen = Case(commits_at(100_000, back, [0, 0, 0, 900, 800]), [3800], 800, 600, REWIND)
    assert judge_case(fallen) == REWIND
    assert (
        judge_case(fallen._replace(commits=commits_at(100_000, [*back[:4], 3000], [0] * 5))) == OK
    )


def test_every_fall_must_be_made_good() -> None:
    twice = commits_at(100_000, [10, 5, 12, 8], [5, 5, 5, 5])
    assert judge_case(Case(twice, [20], 12, 450, REWIND)) == REWIND


def test_allowed_lag_counts_as_none() -> None:
    still = BURROW["5 still, with lag"]
    assert judge_case(still, BurrowSettings(intervals=5, allowed_lag=300)) == OK
    assert judge_case(still, BurrowSettings(intervals=5, allowed_lag=100)) == OK
    assert judge_case(still, BurrowSettings(intervals=5, allowed_lag=99)) == STALL


def test_a_short_window_is_ok_below_what_is_asked_for() -> None:
    still = BURROW["5 still, with lag"]
    assert judge_case(still, BurrowSettings(intervals=10, minimum_complete=0.5)) == STALL
    assert judge_case(still, BurrowSettings(intervals=10, minimum_complete=0.51)) == OK


def commits_from_rows(*rows: tuple[int, int, int]) -> GroupCommits:
    """Commits: (partition, second, offset)."""
    partition, at, offset = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return GroupCommits(partition, at * 1000, offset)


def samples_at_rate(partition: int, a_second: int, until: int = 1000) -> list[tuple[int, int, int]]:
    """Samples of a partition that grows evenly, every 10 seconds: (partition, second, end)."""
    return [(partition, second, a_second * second) for second in range(0, until + 1, 10)]


def end_offsets_from_samples(*samples: list[tuple[int, int, int]]) -> EndOffsets:
    rows = [row for of_partition in samples for row in of_partition]
    partition, at, end = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return EndOffsets.from_samples(partition, at * 1000, end)


TOPICS = [("orders", 0), ("orders", 1), ("old", 0)]
STOPPED = commits_from_rows(*((0, s, 10 * s - 3 - s % 3) for s in range(5, 300, 5)))
STALLED = commits_from_rows(*((1, s, 100) for s in range(50, 1000, 5)))


def concatenate_commits(first: GroupCommits, second: GroupCommits) -> GroupCommits:
    return GroupCommits(*(np.concatenate(pair) for pair in zip(first, second, strict=True)))


def status_rows(found: list[LagStatus]) -> list[tuple[str | None, int | None, int, LagVerdict]]:
    return [(s.topic, s.partition, s.at // 1000, s.verdict) for s in found]


def compute_status_rows(
    given: GroupCommits,
    ends: EndOffsets,
    *seconds: int,
    generations: tuple[Generation, ...] = (),
) -> list[tuple[str | None, int | None, int, LagVerdict]]:
    subscriptions = SubscriptionHistory(generations)
    times = [second * 1000 for second in seconds]
    return status_rows(compute_statuses("g", TOPICS, given, ends, subscriptions, times))


def test_a_group_is_as_bad_as_its_worst_partition() -> None:
    given = concatenate_commits(STOPPED, STALLED)
    assert compute_status_rows(
        given, end_offsets_from_samples(samples_at_rate(0, 10), samples_at_rate(1, 10)), 200, 1000
    ) == [
        ("orders", 0, 200, OK),
        ("orders", 1, 200, STALL),
        (None, None, 200, ERR),
        ("orders", 0, 1000, STOP),
        ("orders", 1, 1000, STALL),
        (None, None, 1000, ERR),
    ]


def test_a_warning_stays_a_warning() -> None:
    slow = commits_from_rows(*((0, s, 5 * s) for s in range(0, 300, 5)))
    assert compute_status_rows(slow, end_offsets_from_samples(samples_at_rate(0, 10)), 296)[-1] == (
        None,
        None,
        296,
        WARN,
    )


def test_a_group_has_the_lag_of_all_and_the_share_of_full_windows() -> None:
    given = concatenate_commits(commits_from_rows((0, 10, 90), (0, 20, 190)), STALLED)
    found = compute_statuses(
        "g",
        TOPICS,
        given,
        end_offsets_from_samples(samples_at_rate(0, 10), samples_at_rate(1, 10)),
        SubscriptionHistory(()),
        [100_000],
    )
    assert [(s.lag, s.complete) for s in found] == [(810, 0.2), (900, 1.0), (1710, 0.5)]


def test_a_stop_shows_at_the_end_of_the_evidence_not_of_the_group() -> None:
    ends = end_offsets_from_samples(samples_at_rate(0, 10))
    assert compute_status_rows(STOPPED, ends, 295)[-1][-1] == OK
    assert compute_status_rows(STOPPED, ends, 1000)[-1][-1] == ERR


def test_a_silence_is_forgiven_while_the_group_was_at_the_end_lately() -> None:
    caught_up = commits_from_rows(*((0, s, 10 * s) for s in range(0, 300, 5)))
    ends = end_offsets_from_samples(samples_at_rate(0, 10))
    assert compute_status_rows(caught_up, ends, 394)[0][-1] == OK
    assert compute_status_rows(caught_up, ends, 396)[0][-1] == STOP


def test_commits_in_one_second_count_as_one() -> None:
    """A client that commits after every record is not stopped after ten of them."""
    partition, at, offset = (np.repeat(column, 20) for column in STOPPED)
    at = at + np.tile(np.arange(20), len(at) // 20)
    assert (
        compute_status_rows(
            GroupCommits(partition, at, offset),
            end_offsets_from_samples(samples_at_rate(0, 10)),
            297,
        )[0][-1]
        == OK
    )


def test_deleted_offsets_are_left_out_and_their_window_begins_anew() -> None:
    ends = end_offsets_from_samples(samples_at_rate(0, 10))
    deleted = concatenate_commits(STOPPED, commits_from_rows((0, 300, DELETED_OFFSET)))
    assert compute_status_rows(deleted, ends, 299, 301) == [
        ("orders", 0, 299, OK),
        (None, None, 299, OK),
    ]
    anew = concatenate_commits(deleted, commits_from_rows((0, 400, 0), (0, 410, 50)))
    assert compute_status_rows(anew, ends, 411)[0] == ("orders", 0, 411, WARN)


def test_without_ends_nothing_is_said() -> None:
    assert not compute_status_rows(STOPPED, end_offsets_from_samples(), 500)
    assert not compute_status_rows(STOPPED, end_offsets_from_samples(samples_at_rate(1, 10)), 500)
    assert not compute_status_rows(
        STOPPED, end_offsets_from_samples(samples_at_rate(0, 10, until=500)), 600
    )
    assert not compute_status_rows(
        commits_from_rows(), end_offsets_from_samples(samples_at_rate(0, 10)), 500
    )


def test_one_sample_at_the_end_tells_a_stop_and_no_stall() -> None:
    last = end_offsets_from_samples([(0, 1000, 10_000), (1, 1000, 10_000)])
    found = compute_status_rows(concatenate_commits(STOPPED, STALLED), last, 1000)
    assert [row[-1] for row in found] == [STOP, OK, ERR]


def generation(
    second: int, change: GenerationChange, *topics: str, problem: str | None = None
) -> Generation:
    members = (GenerationMember(member_id="m", topics=topics, problem=problem),) if topics else ()
    return Generation(
        group="g",
        kind=GroupType.CLASSIC,
        incarnation=0,
        generation=1,
        change=change,
        at=second * 1000,
        offset=second,
        members=members,
    )


OLD = commits_from_rows(*((2, s, 5 * s) for s in range(0, 100, 5)))


def test_topics_no_longer_subscribed_are_left_out() -> None:
    ends = end_offsets_from_samples(samples_at_rate(0, 10), samples_at_rate(2, 10))
    history = (
        generation(0, GenerationChange.REBALANCED, "old", "orders"),
        generation(100, GenerationChange.REBALANCED, "orders"),
        generation(500, GenerationChange.EMPTIED),
    )
    given = concatenate_commits(STOPPED, OLD)
    assert [row[0] for row in compute_status_rows(given, ends, 99, generations=history)] == [
        "orders",
        "old",
        None,
    ]
    for moment in (100, 499, 1000):  # a group that emptied still has its lag
        assert [
            row[0] for row in compute_status_rows(given, ends, moment, generations=history)
        ] == [
            "orders",
            None,
        ]


def test_a_subscription_that_cannot_be_read_leaves_nothing_out() -> None:
    odd = (
        generation(0, GenerationChange.REBALANCED, "orders", problem="subscription: version 99"),
    )
    found = compute_status_rows(
        concatenate_commits(STOPPED, OLD),
        end_offsets_from_samples(samples_at_rate(0, 10), samples_at_rate(2, 10)),
        90,
        generations=odd,
    )
    assert [row[0] for row in found] == ["orders", "old", None]


def test_a_clock_that_went_back_breaks_no_order() -> None:
    at = STOPPED.at.copy()
    at[30:40] -= 400_000
    found = compute_status_rows(
        STOPPED._replace(at=at), end_offsets_from_samples(samples_at_rate(0, 10)), 296
    )
    assert found[-1] == (None, None, 296, OK)


def captured_verdict(group: str, topic: str, partition: int, at: float) -> LagVerdict:
    found = compute_statuses(
        group,
        partitions(),
        group_commits()[group],
        end_offsets(),
        SubscriptionHistory(()),
        [time_of_second(at)],
    )
    return next(s.verdict for s in found if (s.topic, s.partition) == (topic, partition))


def group_verdict(group: str, at: float) -> LagVerdict:
    found = compute_statuses(
        group,
        partitions(),
        group_commits()[group],
        end_offsets(),
        SubscriptionHistory(()),
        [time_of_second(at)],
    )
    return found[-1].verdict


def test_the_captured_paused_partition_stalls_and_no_other() -> None:
    """Paused from second 61.8 to 172.7; its window is 20 seconds long."""
    assert captured_verdict("a-stall", "orders", 3, 60) == OK
    for at in (90, 120, 170):
        assert captured_verdict("a-stall", "orders", 3, at) == STALL
        assert {captured_verdict("a-stall", "orders", p, at) for p in range(12) if p != 3} == {OK}
        assert group_verdict("a-stall", at) == ERR
    assert captured_verdict("a-stall", "orders", 3, 180) == OK


def test_the_captured_poisoned_partition_stops() -> None:
    """Never committed from second 92.0 to 201.7, while the others were."""
    assert captured_verdict("a-poison", "payments", 2, 91) == OK
    assert captured_verdict("a-poison", "payments", 2, 200) == STOP
    assert {captured_verdict("a-poison", "payments", p, 200) for p in range(6) if p != 2} == {OK}
    assert captured_verdict("a-poison", "payments", 2, 210) == OK


@pytest.mark.parametrize("at", [81.876, 152.266, 212.029])
def test_the_captured_rewinds_are_seen_where_they_happened(at: float) -> None:
    """Odd partitions were wound back, and caught up with the next commit."""
    seen = [captured_verdict("a-rewind", "inventory", p, at + 0.3) for p in range(8)]
    assert seen == [OK, REWIND] * 4
    assert group_verdict("a-rewind", at + 3) == OK


def test_the_captured_group_that_ended_early_is_stopped_at_the_end() -> None:
    assert group_verdict("a-early", 49) == OK
    assert group_verdict("a-early", 268) == ERR
    assert captured_verdict("a-early", "payments", 3, 268) == STOP


HEALTHY = ["a-range", "a-sticky", "a-coop", "a-next", "a-static", "a-roll-dyn", "a-migrate"]


@pytest.mark.parametrize("group", HEALTHY)
@pytest.mark.parametrize("at", [60, 120, 180, 240, 268])
def test_captured_healthy_groups_are_ok(group: str, at: int) -> None:
    assert group_verdict(group, at) == OK


def reported_partitions(group: str, at: float) -> set[tuple[str | None, int | None]]:
    found = compute_statuses(
        group,
        partitions(),
        group_commits()[group],
        end_offsets(),
        SubscriptionHistory(group_history(group).generations),
        [time_of_second(at)],
    )
    return {(status.topic, status.partition) for status in found if status.topic}


def test_captured_topics_no_longer_subscribed_are_left_out() -> None:
    """a-subs went from audit over both to payments; a-deloff left audit, then everything."""
    assert {topic for topic, _ in reported_partitions("a-subs", 30)} == {"audit"}
    assert {topic for topic, _ in reported_partitions("a-subs", 268)} == {"payments"}
    assert {topic for topic, _ in reported_partitions("a-deloff", 60)} == {"audit", "payments"}
    assert reported_partitions("a-deloff", 268) == {("payments", n) for n in (2, 3, 4, 5)}, (
        "0, 1: deleted"
    )


def test_captured_groups_that_were_deleted_have_no_verdict() -> None:
    assert reported_partitions("a-deleted", 40)
    assert not reported_partitions("a-deleted", 268)


@pytest.mark.parametrize("group", ["a-next", "a-next-regex", "a-migrate", "a-protoswitch"])
def test_captured_consumer_groups_keep_all_their_partitions(group: str) -> None:
    everything = {partitions()[n] for n in group_commits()[group].partition.tolist()}
    assert reported_partitions(group, 268) == everything
