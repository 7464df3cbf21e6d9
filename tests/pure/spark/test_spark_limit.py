"""How much a trigger reads: the numbers are those of Spark's own source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.model.topic import TopicPartition
from rota.spark import plan

PLACES = st.integers(0, 30).map(lambda number: TopicPartition("t", number))
SPANS = st.dictionaries(
    PLACES, st.tuples(st.integers(0, 2**62), st.integers(0, 10_000)), min_size=1
)


def starting_offsets(*offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", number): offset for number, offset in enumerate(offsets)}


@pytest.mark.parametrize(
    ("most", "steps"),
    [
        (
            20,
            [(18, 1, 1), (36, 2, 1), (53, 4, 1), (70, 6, 1), (87, 8, 1), (100, 10, 1)],
        ),
        (50, [(45, 4, 1), (90, 8, 1), (100, 10, 1)]),
    ],
)
def test_triggers_end_where_those_of_sparks_own_do(
    most: int, steps: list[tuple[int, int, int]]
) -> None:
    """Measured with Spark's own source, 4.2."""
    start, end = starting_offsets(0, 0, 0), starting_offsets(100, 10, 1)
    for step in steps:
        start = plan.limit_offsets(most, start, end)
        assert start == starting_offsets(*step)


@given(SPANS, st.integers(1, 50_000))
def test_a_trigger_is_within_the_end_and_nobody_starves(
    spans: dict[TopicPartition, tuple[int, int]], most: int
) -> None:
    start = {each: begin for each, (begin, _) in spans.items()}
    end = {each: begin + size for each, (begin, size) in spans.items()}
    found = plan.limit_offsets(most, start, end)
    assert found.keys() == end.keys()
    taken = {each: found[each] - start[each] for each in found}
    assert all(0 <= taken[each] <= spans[each][1] for each in taken)
    assert all(taken[each] for each in taken if spans[each][1]), "each goes on"
    small = sum(1 for each in taken if spans[each][1])
    assert sum(taken.values()) <= most + small, "each may have one more than its share"


def test_what_went_back_is_left_to_who_judges_it() -> None:
    assert plan.limit_offsets(
        5, starting_offsets(30, 0), starting_offsets(10, 100)
    ) == starting_offsets(10, 5)


def test_the_first_trigger_does_not_wait() -> None:
    delay = plan.TriggerDelay(100, 60_000)
    assert not delay.should_wait(starting_offsets(0), starting_offsets(1), now=1_700_000_000_000)
    assert delay.should_wait(starting_offsets(1), starting_offsets(2), now=1_700_000_000_001)


def test_a_trigger_waits_for_enough_or_long_enough() -> None:
    delay = plan.TriggerDelay(100, 60_000, last_trigger=1_000)
    assert delay.should_wait(starting_offsets(0, 0), starting_offsets(50, 49), now=2_000)
    assert not delay.should_wait(starting_offsets(0, 0), starting_offsets(50, 50), now=3_000)
    assert delay.should_wait(starting_offsets(50, 50), starting_offsets(51, 51), now=62_999)
    assert not delay.should_wait(starting_offsets(50, 50), starting_offsets(51, 51), now=63_000)


def test_records_of_new_partitions_count() -> None:
    delay = plan.TriggerDelay(10, 60_000, last_trigger=1_000)
    assert not delay.should_wait(starting_offsets(5), starting_offsets(5, 10), now=1_001)
