"""How old the first unread record is, found by questions alone, against logs that are known."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from rota.client.admin import (
    AGE_TOLERANCE_DIVISOR,
    AGE_TOLERANCE_MS,
    MAX_ROUNDS,
    OffsetAndTimestamp,
    find_ages,
)
from rota.engine.model.topic import TopicPartition
from tests.support.examples import examples

NOW = 1_750_000_000_000
PLACE = TopicPartition("t", 0)

steps = st.integers(0, 10) | st.integers(0, 100_000) | st.integers(0, 10**9)
#: For each record from the last to the first: how far before the next it lies, and how much older
#: it is.
logs = st.lists(st.tuples(st.integers(1, 5), steps), min_size=1, max_size=60)


class Log:
    """The records of a partition, as ListOffsets tells of them."""

    def __init__(self, gaps: list[tuple[int, int]]) -> None:
        self.end = sum(gap for gap, _ in gaps)
        self.records: list[tuple[int, int]] = []
        offset, stamp = self.end, NOW
        for gap, step in gaps:
            offset, stamp = offset - gap, max(stamp - step, 1)
            self.records.insert(0, (offset, stamp))
        self.asked = 0

    def first(self, time: int) -> OffsetAndTimestamp:
        return next((each for each in self.records if each[1] >= time), None)

    async def ask(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        self.asked += 1
        return {partition: self.first(time) for partition, time in times.items()}

    def age_at(self, offset: int) -> int | None:
        ends = {PLACE: self.end}
        return asyncio.run(find_ages({PLACE: offset}, ends, NOW, self.ask)).get(PLACE)


def is_near(age: int, expected: int) -> bool:
    """Not less, and not much more."""
    return expected <= age <= expected + max(AGE_TOLERANCE_MS, age // AGE_TOLERANCE_DIVISOR)


@examples(quick=25)
@given(logs, st.data())
def test_the_age_of_a_record_is_found(gaps: list[tuple[int, int]], data: st.DataObject) -> None:
    log = Log(gaps)
    offset, stamp = data.draw(st.sampled_from(log.records))
    age = log.age_at(offset)
    assert age is not None
    assert is_near(age, NOW - stamp)
    assert log.asked <= MAX_ROUNDS + 1


@given(logs, st.data())
def test_in_a_gap_the_age_lies_between_its_neighbours(
    gaps: list[tuple[int, int]], data: st.DataObject
) -> None:
    log = Log(gaps)
    offset = data.draw(st.integers(0, log.end - 1))
    age = log.age_at(offset)
    before = [stamp for at, stamp in log.records if at <= offset]
    behind = next((stamp for at, stamp in log.records if at >= offset), None)
    assert age is not None
    assert behind is None or age >= NOW - behind
    if before:
        assert age <= NOW - before[-1] + max(AGE_TOLERANCE_MS, age // AGE_TOLERANCE_DIVISOR)


@given(logs, st.data())
def test_a_record_counts_as_new_as_the_newest_before_it(
    gaps: list[tuple[int, int]], data: st.DataObject
) -> None:
    log = Log(gaps)
    stamps = data.draw(st.permutations([stamp for _, stamp in log.records]))
    log.records = [(offset, stamp) for (offset, _), stamp in zip(log.records, stamps, strict=True)]
    place = data.draw(st.integers(0, len(log.records) - 1))
    age = log.age_at(log.records[place][0])
    assert age is not None
    if place == 0:
        assert age == NOW - stamps[0]
    else:
        assert is_near(age, NOW - max(stamps[: place + 1]))


def test_nothing_is_asked_where_all_is_read() -> None:
    log = Log([(1, 5)])
    assert log.age_at(log.end) is None


def test_records_of_the_future_are_new() -> None:
    log = Log([(1, 5), (1, 5)])
    log.records = [(0, NOW + 5), (1, NOW + 10)]
    assert (log.age_at(0), log.age_at(1)) == (0, 0)


def test_records_without_times_have_no_age() -> None:
    log = Log([(1, 5)])
    log.records = [(0, -1)]
    assert log.age_at(0) is None
