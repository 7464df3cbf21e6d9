"""Lag from commit to commit, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rota.pipeline.tables import ENDS, LAG, OWNERSHIP
from rota.report.lag_intervals import LAG_INTERVALS, CommitCoverage, find_lag_intervals
from tests.support.lag_tables import LagHistory, Where, build_table

T: Where = ("t", 0)
S = 1_000
#: A record is written every second: that at offset n is there at second n + 1.
EVEN = [(T, second * S, second, None) for second in range(0, 101, 10)]


def commit_rows(*made: tuple[float, int | None]) -> list[tuple[str, Where, int, int | None]]:
    return [("g", T, int(second * S), offset) for second, offset in made]


def ownership_rows(until: int | None = None) -> list[tuple[str, Where, int, int | None]]:
    return [("g", T, 0, None if until is None else until * S)]


def shorten_rows(rows: list[dict[str, Any]]) -> list[tuple[float, float, float | None, int]]:
    """From when to when, seconds, records."""
    return [
        (row["since"] / S, row["until"] / S, row["lag_seconds"], row["lag"])
        for row in rows
        if not row["at_least"]
    ]


def test_a_partition_that_stands_still_is_behind_until_the_next_commit() -> None:
    """At both commits nothing is to be read; in between the record at 10 waited, from second 11."""
    case = LagHistory(commits=commit_rows((10, 10), (80, 80)), samples=EVEN)
    assert [row["lag_seconds"] for row in case.lag().to_pylist()] == [0, 0]
    assert shorten_rows(case.intervals()) == [(10, 80, 69, 70), (80, 80, 0, 0)]


def test_what_was_unread_at_a_commit_waits_on() -> None:
    """At second 20 the record at 10 is nine seconds old; at 50, 39."""
    case = LagHistory(commits=commit_rows((20, 10), (50, 50)), samples=EVEN)
    assert shorten_rows(case.intervals()) == [(20, 50, 39, 40), (50, 50, 0, 0)]


def test_a_record_that_comes_after_the_commit_waits_from_then_on() -> None:
    """The end stands at 5 until second 60, and is at 15 at second 70: the sixth is there at 61."""
    samples = [(T, 0, 5, None), (T, 60 * S, 5, None), (T, 70 * S, 15, None)]
    case = LagHistory(commits=commit_rows((10, 5), (70, 15)), samples=samples)
    assert shorten_rows(case.intervals()) == [(10, 70, 9, 10), (70, 70, 0, 0)]


def test_nothing_came_so_nothing_waited() -> None:
    samples = [(T, 0, 5, None), (T, 90 * S, 5, None)]
    case = LagHistory(
        commits=commit_rows((10, 5), (70, 5)), samples=samples, owned=ownership_rows()
    )
    assert shorten_rows(case.intervals()) == [(10, 70, 0, 0), (70, 90, 0, 0)]


def test_what_comes_only_after_the_next_commit_was_not_waiting() -> None:
    samples = [(T, 0, 5, None), (T, 60 * S, 5, None), (T, 70 * S, 15, None)]
    case = LagHistory(commits=commit_rows((10, 5), (61, 5)), samples=samples)
    assert shorten_rows(case.intervals())[0] == (10, 61, 0, 1)


def test_after_the_last_commit_lag_grows_to_the_last_sample_while_somebody_owns_it() -> None:
    case = LagHistory(commits=commit_rows((10, 10)), samples=EVEN, owned=ownership_rows())
    assert shorten_rows(case.intervals()) == [(10, 100, 89, 90)]


def test_after_the_last_owner_nothing_is_told() -> None:
    case = LagHistory(commits=commit_rows((10, 10)), samples=EVEN, owned=ownership_rows(40))
    assert shorten_rows(case.intervals()) == [(10, 40, 29, 30)]


def test_a_partition_that_nobody_ever_owned_has_the_lag_of_its_commit() -> None:
    case = LagHistory(commits=commit_rows((20, 10)), samples=EVEN)
    assert shorten_rows(case.intervals()) == [(20, 20, 9, 10)]


def test_owners_of_other_groups_and_topics_do_not_count() -> None:
    others = [("other", T, 0, None), ("g", ("u", 0), 0, None), ("g", ("t", 1), 0, None)]
    case = LagHistory(commits=commit_rows((20, 10)), samples=EVEN, owned=others)
    assert shorten_rows(case.intervals()) == [(20, 20, 9, 10)]


def test_while_nobody_owned_it_the_record_still_waited() -> None:
    spans = [("g", T, 0, 20 * S), ("g", T, 70 * S, None)]
    case = LagHistory(commits=commit_rows((10, 10), (80, 80)), samples=EVEN, owned=spans)
    assert shorten_rows(case.intervals())[0] == (10, 80, 69, 70)


def test_the_last_owner_is_the_one_that_stayed_longest_not_the_one_told_last() -> None:
    spans = [("g", T, 30 * S, None), ("g", T, 0, 30 * S)]
    case = LagHistory(commits=commit_rows((10, 10)), samples=EVEN, owned=spans)
    assert shorten_rows(case.intervals()) == [(10, 100, 89, 90)]


def test_nothing_is_told_beyond_the_journal() -> None:
    """Ends were sampled for longer than commits are there."""
    case = LagHistory(
        commits=commit_rows((10, 10)),
        samples=EVEN,
        owned=ownership_rows(),
        seen=CommitCoverage(complete_until=60 * S),
    )
    assert shorten_rows(case.intervals()) == [(10, 60, 49, 50)]


def test_an_offset_that_is_deleted_has_nobody_waiting() -> None:
    """The group left at 30, was deleted at 40, and came back at 80 to begin anew."""
    spans = [("g", T, 0, 30 * S), ("g", T, 79 * S, None)]
    made = commit_rows((10, 10), (40, None), (80, 75))
    case = LagHistory(commits=made, samples=EVEN, owned=spans)
    assert shorten_rows(case.intervals()) == [(10, 30, 19, 20), (80, 100, 24, 25)]


def test_a_deletion_under_an_owner_ends_the_wait() -> None:
    case = LagHistory(
        commits=commit_rows((10, 10), (40, None)), samples=EVEN, owned=ownership_rows()
    )
    assert shorten_rows(case.intervals()) == [(10, 40, 29, 30)]


def test_a_topic_that_is_made_anew_ends_the_wait_with_the_last_sample_before() -> None:
    samples = [(T, 0, 0, None), (T, 50 * S, 50, None), (T, 60 * S, 3, None), (T, 90 * S, 33, None)]
    case = LagHistory(
        commits=commit_rows((20, 10), (80, 23)), samples=samples, owned=ownership_rows()
    )
    assert shorten_rows(case.intervals()) == [(20, 50, 39, 40), (80, 90, 9, 10)]


def test_a_topic_that_is_made_anew_after_the_last_commit() -> None:
    samples = [(T, 0, 0, None), (T, 50 * S, 50, None), (T, 60 * S, 3, None), (T, 90 * S, 33, None)]
    case = LagHistory(commits=commit_rows((20, 10)), samples=samples, owned=ownership_rows())
    assert shorten_rows(case.intervals()) == [(20, 50, 39, 40)]


def test_what_retention_took_does_not_wait() -> None:
    """At second 60 the first that is there is 40. At the commit the record at 10 was 9 s old."""
    samples = [(T, 0, 0, 0), (T, 60 * S, 60, 40), (T, 100 * S, 100, None)]
    case = LagHistory(commits=commit_rows((20, 10), (90, 90)), samples=samples)
    assert shorten_rows(case.intervals()) == [(20, 20, 9, 10), (20, 90, 49, 80), (90, 90, 0, 0)]


def test_what_retention_took_leaves_a_younger_record_waiting() -> None:
    """At second 50 the record at 10 is 39 s old. At 60 the first that is there is 40: since 41."""
    samples = [(T, 0, 0, 0), (T, 60 * S, 60, 40), (T, 100 * S, 100, None)]
    case = LagHistory(commits=commit_rows((50, 10), (70, 70)), samples=samples)
    assert shorten_rows(case.intervals()) == [(50, 50, 39, 40), (50, 70, 29, 60), (70, 70, 0, 0)]


def test_retention_took_all() -> None:
    samples = [(T, 0, 0, 0), (T, 60 * S, 60, 0), (T, 70 * S, 60, 60), (T, 99 * S, 60, 60)]
    case = LagHistory(commits=commit_rows((20, 10), (90, 60)), samples=samples)
    assert shorten_rows(case.intervals()) == [(20, 60, 49, 50), (60, 90, 0, 50), (90, 90, 0, 0)]


#: A record a second, of which retention took the first 95, between the seconds 90 and 95.
RETAINED = [(T, at * S, at, 95 if at >= 95 else 0) for at in range(0, 101, 5)]


def test_what_retention_took_waited_up_to_the_last_sample_that_had_it() -> None:
    """The record at 10 is there from second 11 to 90 at least; then that at 95 waits, from 96."""
    case = LagHistory(commits=commit_rows((10, 10), (100, 100)), samples=RETAINED)
    assert shorten_rows(case.intervals()) == [(10, 90, 79, 80), (90, 100, 4, 90), (100, 100, 0, 0)]


def test_a_partition_that_never_went_on_and_of_which_all_was_deleted() -> None:
    samples = [*RETAINED[:-2], (T, 95 * S, 95, 95), (T, 100 * S, 95, 95)]
    case = LagHistory(commits=commit_rows((10, 10)), samples=samples, owned=ownership_rows())
    assert shorten_rows(case.intervals()) == [(10, 90, 79, 80), (90, 100, 0, 85)]


def test_retention_that_takes_again_and_again_leaves_what_it_leaves() -> None:
    """Every ten seconds all but the last 30 are taken: nothing waits longer than 40 s."""
    samples = [(T, at * S, at, max(at - 30, 0)) for at in range(0, 101, 10)]
    case = LagHistory(commits=commit_rows((5, 5)), samples=samples, owned=ownership_rows())
    assert shorten_rows(case.intervals()) == [
        (5, 30, 24, 25),
        *((at - 10, at, 29, at - 5) for at in range(40, 101, 10)),
    ]


def test_what_the_next_sample_misses_is_not_sure_to_have_been_there_at_the_commit() -> None:
    """Taken at some time from 90 to 95: up to 90 is certain, not up to the commit at 94."""
    case = LagHistory(commits=commit_rows((10, 10), (94, 94)), samples=RETAINED)
    assert shorten_rows(case.intervals())[:2] == [(10, 90, 79, 80), (90, 94, 0, 84)]


def test_of_owners_at_once_the_one_that_stayed_longest_counts() -> None:
    spans = [("g", T, 0, None), ("g", T, 20 * S, 30 * S)]
    case = LagHistory(commits=commit_rows((10, 10)), samples=EVEN, owned=spans)
    assert shorten_rows(case.intervals()) == [(10, 100, 89, 90)]


def test_nothing_is_told_beyond_the_journal_before_a_deletion() -> None:
    made = commit_rows((10, 10), (80, None))
    case = LagHistory(
        commits=made,
        samples=EVEN,
        owned=ownership_rows(),
        seen=CommitCoverage(complete_until=60 * S),
    )
    assert shorten_rows(case.intervals()) == [(10, 60, 49, 50)]


def test_a_record_from_before_the_first_sample_is_at_least_so_old() -> None:
    """It was there at second 0; how long before, nobody knows."""
    samples = [(T, 0, 500, None), (T, 100 * S, 600, None)]
    case = LagHistory(commits=commit_rows((20, 10), (50, 505)), samples=samples)
    first, second = case.intervals()
    assert (first["lag_seconds"], first["lag"], first["at_least"]) == (50, 540, True)
    assert (second["lag_seconds"], second["at_least"]) == (44, False)


def test_an_age_of_which_nothing_is_known_is_null() -> None:
    case = LagHistory(commits=commit_rows((0, 10)), samples=[(T, 0, 500, None)])
    (only,) = case.intervals()
    assert (only["lag"], only["lag_seconds"], only["at_least"]) == (490, None, False)


def test_a_commit_of_a_group_that_is_polled_may_have_been_made_since_the_sample_before() -> None:
    made = commit_rows((10, 10), (80, 80))
    case = LagHistory(commits=made, samples=EVEN, seen=CommitCoverage(polled_groups=["g", "other"]))
    assert shorten_rows(case.intervals()) == [(10, 70, 59, 60), (80, 80, 0, 0)]


def test_samples_of_another_topics_partition_of_the_same_number_are_not_taken() -> None:
    """t-0 has its last sample at second 50; u-0, which nobody commits, has the later ones, and so
    has t-1.
    """
    mine = [(T, 0, 0, None), (T, 50 * S, 50, None)]
    foreign = [
        (where, at * S, 10_000 + at, 5_000)
        for where in (("a", 0), ("u", 0), ("t", 1))
        for at in range(0, 101, 5)
    ]
    case = LagHistory(commits=commit_rows((20, 10)), samples=mine, owned=ownership_rows())
    alone = case.intervals()
    assert shorten_rows(alone) == [(20, 50, 39, 40)]
    beside = LagHistory(commits=case.commits, samples=[*foreign, *mine], owned=ownership_rows())
    assert beside.intervals() == alone


def test_two_topics_with_the_same_partition_number_are_told_apart() -> None:
    other: Where = ("u", 0)
    samples = [*EVEN, *((other, at, 2 * end, None) for _, at, end, _ in EVEN)]
    made = [("g", T, 10 * S, 10), ("g", other, 20 * S, 40), ("g", T, 30 * S, 30)]
    made += [("g", other, 60 * S, 120), ("h", T, 70 * S, 0)]
    told = LagHistory(commits=made, samples=samples).intervals()
    assert [
        (row["group"], row["topic"], *row_)
        for row, row_ in zip(told, shorten_rows(told), strict=True)
    ] == [
        ("g", "t", 10, 30, 19, 20),
        ("g", "t", 30, 30, 0, 0),
        ("g", "u", 20, 60, 39.5, 80),
        ("g", "u", 60, 60, 0, 0),
        ("h", "t", 70, 70, 69, 70),
    ]


def test_commits_of_the_same_millisecond_come_in_the_journals_order() -> None:
    """The second one is at 30; taken for the first, the record at 10 would wait until 50."""
    case = LagHistory(commits=commit_rows((30, 10), (30, 30), (50, 50)), samples=EVEN)
    assert shorten_rows(case.intervals()) == [(30, 30, 19, 20), (30, 50, 19, 20), (50, 50, 0, 0)]


def test_a_clock_that_is_put_back_makes_no_lag() -> None:
    case = LagHistory(commits=commit_rows((50, 40), (30, 28), (51, 51)), samples=EVEN)
    assert [(row["since"] / S, row["until"] / S) for row in case.intervals()] == [
        (30, 51),
        (50, 50),
        (51, 51),
    ]


def interval_rows(case: LagHistory) -> list[tuple[float, float, float | None, int, bool]]:
    rows = case.intervals()
    return [
        (row["since"] / S, row["until"] / S, row["lag_seconds"], row["lag"], row["at_least"])
        for row in rows
    ]


HOUR = [(T, second * S, 100 + second, 0) for second in range(10, 3601, 10)]


def test_a_partition_that_stood_still_before_the_first_sample_is_at_least_so_far_behind() -> None:
    case = LagHistory(commits=commit_rows((5, 50)), samples=HOUR, owned=ownership_rows())
    assert case.lag().num_rows == 0
    assert interval_rows(case) == [(10, 3600, 3590, 3650, True)]


def test_a_commit_from_before_the_first_sample_waits_until_the_next() -> None:
    case = LagHistory(commits=commit_rows((3, 20), (5, 50), (100, 200)), samples=HOUR)
    assert interval_rows(case) == [(10, 100, 90, 150, True), (100, 100, 0, 0, False)]


def test_at_the_first_sample_nothing_waited_yet() -> None:
    """The end is at the committed offset: the next record comes at second 11."""
    case = LagHistory(commits=commit_rows((5, 110)), samples=HOUR, owned=ownership_rows())
    assert interval_rows(case) == [(10, 3600, 3589, 3590, False)]


def test_a_partition_that_stood_still_before_what_was_asked_for() -> None:
    """Asked for from 3,000 s on; the record at 150 is there since 51."""
    case = LagHistory(
        commits=commit_rows((30, 130), (40, 150)),
        samples=HOUR,
        owned=ownership_rows(),
        seen=CommitCoverage(since=3000 * S),
    )
    assert case.lag().num_rows == 0
    assert interval_rows(case) == [(3000, 3600, 3549, 3550, False)]


def test_what_was_over_before_is_not_told() -> None:
    seen = CommitCoverage(since=3000 * S)
    gone = LagHistory(
        commits=commit_rows((40, 140)), samples=HOUR, owned=ownership_rows(2000), seen=seen
    )
    assert gone.intervals() == []
    deleted = LagHistory(
        commits=commit_rows((40, 140), (50, None)), samples=HOUR, owned=ownership_rows(), seen=seen
    )
    assert deleted.intervals() == []


def test_of_a_topic_that_was_made_anew_in_between_nothing_is_told() -> None:
    case = LagHistory(commits=commit_rows((5, 5_000)), samples=HOUR, owned=ownership_rows())
    assert case.intervals() == []
    fallen = [*HOUR[:100], *((T, at, end - 800, low) for _, at, end, low in HOUR[100:])]
    seen = CommitCoverage(since=3000 * S)
    assert (
        LagHistory(
            commits=commit_rows((40, 140)), samples=fallen, owned=ownership_rows(), seen=seen
        ).intervals()
        == []
    )


def test_no_commits_no_stretches() -> None:
    nothing = [build_table(kind, []) for kind in (LAG, ENDS, OWNERSHIP)]
    assert find_lag_intervals(*nothing).equals(LAG_INTERVALS.empty_table())
    assert LagHistory(commits=[], samples=EVEN, owned=ownership_rows()).intervals() == []


def test_without_samples_ages_are_those_of_the_table() -> None:
    rows = [
        {"group": "g", "topic": "t", "partition": 0, "at": at, "journal_offset": at}
        | {"offset": offset, "lag": lag, "lag_seconds": seconds}
        for at, offset, lag, seconds in ((1_000, 5, 3, 2.5), (9_000, 8, 0, 0.0))
    ]
    found = find_lag_intervals(
        build_table(LAG, rows), build_table(ENDS, []), build_table(OWNERSHIP, [])
    )
    assert shorten_rows(found.to_pylist()) == [(1, 9, 10.5, 3), (9, 9, 0, 0)]


@pytest.mark.check
def test_two_million_commits() -> None:
    """Of a thousand groups with ten partitions each."""
    many, each = 10_000, 200
    where = np.repeat(np.arange(many), each)
    at = np.tile(np.arange(each) * 5_000, many) + where % 5_000
    names = [f"group-{number}" for number in range(1_000)]
    topics = [f"topic-{number}" for number in range(1_000)]
    lag = pa.table(
        {
            "group": pa.array(names).take(pa.array(where // 10)),
            "topic": pa.array(topics).take(pa.array(where // 10)),
            "partition": pa.array(where % 10, pa.int32()),
            "at": pa.array(at).cast(pa.timestamp("ms", tz="UTC")),
            "journal_offset": pa.array(np.tile(np.arange(each), many)),
            "offset": pa.array(at // 10),
            "lag": pa.array(np.zeros(len(at), dtype=np.int64)),
            "lag_seconds": pa.array(np.zeros(len(at))),
        }
    )
    sampled = np.repeat(np.arange(many), 35)
    times = np.tile(np.arange(35) * 30_000, many)
    ends = pa.table(
        {
            "topic": pa.array(topics).take(pa.array(sampled // 10)),
            "partition": pa.array(sampled % 10, pa.int32()),
            "at": pa.array(times).cast(pa.timestamp("ms", tz="UTC")),
            "beginning": pa.nulls(len(times), pa.int64()),
            "end": pa.array(times // 10),
        }
    )
    found = find_lag_intervals(lag, ends, build_table(OWNERSHIP, []))
    assert found.num_rows == many * each
    assert pa.compute.max(found["lag_seconds"]).as_py() == pytest.approx(4.999)
