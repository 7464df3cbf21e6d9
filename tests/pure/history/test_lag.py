"""Lag at commits: what the samples of the ends allow to be said."""

from __future__ import annotations

import numpy as np
import pytest

from rota.engine.history.lag import (
    MAX_SAMPLE_AGE,
    CommitLags,
    EndOffsets,
    Int64Array,
    OwnerIntervals,
    compute_lags,
)
from rota.engine.history.verdicts import DELETED_OFFSET
from tests.support.captured_lag import (
    ConsumerGroupsRow,
    end_offsets,
    group_commits,
    group_history,
    partitions,
    read_consumer_groups_output,
)

FOREVER = np.iinfo(np.int64).max


def int64_array(*numbers: int) -> Int64Array:
    return np.array(numbers, dtype=np.int64)


def end_offsets_from_samples(*samples: tuple[int, int]) -> EndOffsets:
    """Samples of one partition: (time, end)."""
    at, end = np.array(samples, dtype=np.int64).reshape(-1, 2).T
    return EndOffsets.from_samples(np.zeros(len(at), dtype=np.int64), at, end)


def lag_of(at: int, offset: int, ends: EndOffsets) -> tuple[int, int, float | None] | None:
    """End, lag and seconds at a commit."""
    found = compute_lags(int64_array(0), int64_array(at), int64_array(offset), ends)
    if not len(found.row):
        return None
    seconds = float(found.seconds[0])
    return int(found.end[0]), int(found.lag[0]), None if np.isnan(seconds) else round(seconds, 6)


RISING = end_offsets_from_samples((10_000, 100), (20_000, 200), (30_000, 200), (40_000, 210))


def test_the_end_rises_evenly_between_samples() -> None:
    assert lag_of(15_000, 120, RISING) == (150, 30, 2.9)
    assert lag_of(15_099, 120, RISING) == (150, 30, 2.999)
    assert lag_of(15_100, 120, RISING) == (151, 31, 3.0)


def test_no_lag_is_no_second_old() -> None:
    assert lag_of(25_000, 200, RISING) == (200, 0, 0.0)


def test_a_commit_shows_the_log_to_be_as_long_as_itself() -> None:
    assert lag_of(15_000, 180, RISING) == (180, 0, 0.0)
    assert lag_of(41_000, 250, RISING) == (250, 0, 0.0)


def test_a_commit_past_the_next_sample_is_beyond_the_end() -> None:
    assert lag_of(15_000, 900, RISING) == (150, 0, 0.0)


def test_nothing_is_said_before_the_first_sample_nor_long_after_the_last() -> None:
    assert lag_of(9_999, 50, RISING) is None
    assert lag_of(40_000 + MAX_SAMPLE_AGE, 205, RISING) == (210, 5, 64.0)
    assert lag_of(40_001 + MAX_SAMPLE_AGE, 205, RISING) is None
    assert lag_of(15_000, 50, end_offsets_from_samples()) is None


def test_the_age_of_a_record_from_before_the_first_sample_is_not_known() -> None:
    assert lag_of(12_000, 99, RISING) == (120, 21, None)
    assert lag_of(12_000, 100, RISING) == (120, 20, 1.9)


def test_a_topic_made_anew_is_another_log() -> None:
    anew = end_offsets_from_samples((10_000, 100), (20_000, 200), (30_000, 5), (40_000, 15))
    assert lag_of(20_000, 150, anew) == (200, 50, 4.9)
    assert lag_of(25_000, 150, anew) is None
    assert lag_of(35_000, 7, anew) == (10, 3, 2.0)
    assert lag_of(35_000, 2, anew) == (10, 8, None)


def test_what_retention_took_is_not_the_next_record() -> None:
    at, end, beginning = (
        int64_array(0, 10_000, 20_000),
        int64_array(0, 100, 200),
        int64_array(0, 0, 150),
    )
    kept = EndOffsets.from_samples(int64_array(0, 0, 0), at, end, beginning)
    assert lag_of(20_000, 50, kept) == (200, 150, 4.9)


def test_samples_come_in_any_order_and_twice() -> None:
    shuffled = end_offsets_from_samples(
        (40_000, 210), (20_000, 200), (10_000, 100), (30_000, 200), (20_000, 190)
    )
    for at, offset in ((15_000, 120), (20_000, 190), (35_000, 201)):
        assert lag_of(at, offset, shuffled) == lag_of(at, offset, RISING)


def test_absurd_numbers_do_not_overflow() -> None:
    vast = end_offsets_from_samples((0, 0), (1 << 40, 1 << 60))
    found = lag_of(1 << 39, 5, vast)
    assert found is not None
    assert found[0] == pytest.approx(1 << 59)


def test_partitions_are_told_apart() -> None:
    ends = EndOffsets.from_samples(
        int64_array(3, 1, 3, 1), int64_array(0, 0, 1000, 1000), int64_array(0, 500, 10, 600)
    )
    found = compute_lags(
        int64_array(1, 2, 3), int64_array(500, 500, 500), int64_array(540, 7, 2), ends
    )
    assert found.row.tolist() == [0, 2]
    assert found.lag.tolist() == [10, 3]


def test_the_owner_is_who_had_the_partition_then() -> None:
    owners = OwnerIntervals.from_intervals(
        int64_array(1, 0, 0), int64_array(50, 20, 10), int64_array(60, FOREVER, 20)
    )
    at = int64_array(9, 10, 19, 20, 10**15, 55, 60)
    assert owners.find_owner(int64_array(0, 0, 0, 0, 0, 1, 1), at).tolist() == [
        -1,
        2,
        2,
        1,
        1,
        0,
        -1,
    ]
    none = OwnerIntervals.from_intervals(int64_array(), int64_array(), int64_array())
    assert none.find_owner(int64_array(0), int64_array(5)).tolist() == [-1]


def captured_lags(group: str) -> tuple[Int64Array, CommitLags]:
    found = group_commits()[group]
    kept = found.offset != DELETED_OFFSET
    partition, at, offset = (column[kept] for column in found)
    return partition, compute_lags(partition, at, offset, end_offsets())


@pytest.mark.parametrize("group", sorted(group_commits()))
def test_every_commit_of_the_captured_run_has_its_lag(group: str) -> None:
    partition, found = captured_lags(group)
    assert len(found.row) == len(partition)
    assert not np.isnan(found.seconds).any(), "sampling began with empty topics"
    assert (found.lag >= 0).all()
    assert ((found.seconds == 0) == (found.lag == 0)).mean() > 0.99


def test_a_paused_partition_falls_behind_second_by_second() -> None:
    """Orders:3 of a-stall stood still for 110.9 s."""
    partition, found = captured_lags("a-stall")
    paused = found.row[partition == partitions().index(("orders", 3))]
    assert 105 < found.seconds[paused].max() < 110.9
    assert found.seconds[np.setdiff1d(found.row, paused)].max() < 2.5


def reading(start: int, rows: list[ConsumerGroupsRow]) -> tuple[int, int]:
    """When the tool read a group's offsets: while those that it printed were the committed ones."""
    since, until = start, start + 20_000
    for row in rows:
        found = group_commits()[row.group]
        mine = found.partition == partitions().index((row.topic, row.partition))
        next_at = np.append(found.at[mine][1:], FOREVER)
        shown = (found.offset[mine] == row.offset) & (next_at > start)
        since = max(since, int(found.at[mine][shown][0]))
        until = min(until, int(next_at[shown][-1]))
    assert since < until, f"there is such a moment for {rows[0].group}"
    return since, until


def moments(name: str) -> tuple[Int64Array, list[ConsumerGroupsRow]]:
    """What the tool printed, and when it read that."""
    start, rows = read_consumer_groups_output(name)
    rows = [row for row in rows if row.group != "a-eos"]  # aborted commits among its records
    spans = {
        group: reading(start, [row for row in rows if row.group == group])
        for group in {row.group for row in rows}
    }
    latest = max(since for since, _ in spans.values())
    assert latest - min(until for _, until in spans.values()) < 500, "it reads them at once"
    return int64_array(*(min(latest, spans[row.group][1] - 1) for row in rows)), rows


@pytest.mark.parametrize("name", ["lag-mid.txt.gz", "lag-late.txt.gz"])
def test_lag_is_what_kafka_printed(name: str) -> None:
    """Off by no more than was produced between the samples around it; mostly by a record or two."""
    at, rows = moments(name)
    number = int64_array(*(partitions().index((row.topic, row.partition)) for row in rows))
    lag = compute_lags(number, at, int64_array(*(row.offset for row in rows)), end_offsets()).lag
    before = end_offsets().end[end_offsets().at_times(number, at).sample]
    after = (
        end_offsets().at_times(number, at + 1000).ceiling
    )  # the tool asks for the ends after the offsets
    end = int64_array(*(row.end for row in rows))
    assert ((before <= end) & (end <= after)).all()
    off = np.abs(lag - int64_array(*(row.lag for row in rows)))
    assert (off <= after - before).all()
    assert len(off) > 300
    assert np.percentile(off, 90) <= 3


@pytest.mark.parametrize("name", ["lag-mid.txt.gz", "lag-late.txt.gz"])
def test_owners_are_those_that_kafka_printed(name: str) -> None:
    """But for a group in the middle of a rebalance: the tool reads owners before offsets."""
    times, rows = moments(name)
    compared = 0
    for at, row in zip(times.tolist(), rows, strict=True):
        if any(at - 2000 < span.since <= at for span in group_history(row.group).ownership):
            continue
        spans = [
            span
            for span in group_history(row.group).ownership
            if (span.topic, span.partition) == (row.topic, row.partition)
        ]
        since = int64_array(*(span.since for span in spans))
        until = int64_array(*(FOREVER if span.until is None else span.until for span in spans))
        (found,) = OwnerIntervals.from_intervals(np.zeros_like(since), since, until).find_owner(
            int64_array(0), int64_array(at)
        )
        assert (spans[found].member_id if found >= 0 else "-") == row.member, row
        compared += 1
    assert compared > 250
