"""Which task reads what: every offset once, within bounds, in tasks of about the same size."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from rota.engine.model.topic import TopicPartition
from rota.spark import plan
from rota.spark.plan import OffsetRange, TaskRanges


def ranges_of(sizes: list[int]) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition("t", number), 7 * number, 7 * number + size)
        for number, size in enumerate(sizes)
    ]


def offsets_of(ranges: list[OffsetRange] | TaskRanges) -> list[tuple[TopicPartition, int]]:
    return [(each.partition, offset) for each in ranges for offset in range(each.start, each.until)]


def size_of(task: TaskRanges) -> int:
    return sum(each.size for each in task)


RANGES = st.lists(st.integers(-3, 60), max_size=12).map(ranges_of)
COUNTS = st.integers(1, 20)


@given(RANGES, COUNTS, st.none() | COUNTS, st.none() | COUNTS)
def test_every_offset_is_in_one_task(
    ranges: list[OffsetRange], slots: int, least: int | None, most: int | None
) -> None:
    tasks = plan.plan_tasks(ranges, slots=slots, least=least, most_records=most)
    planned = [each for task in tasks for each in offsets_of(task)]
    assert sorted(planned) == sorted(offsets_of(ranges))


@given(RANGES, COUNTS, st.none() | COUNTS, st.none() | COUNTS)
@example(ranges_of([3]), 1, 3, None)  # split in two, the larger part can be split again
def test_tasks_are_within_the_bounds(
    ranges: list[OffsetRange], slots: int, least: int | None, most: int | None
) -> None:
    tasks = plan.plan_tasks(ranges, slots=slots, least=least, most_records=most)
    total = sum(max(each.size, 0) for each in ranges)
    assert all(map(size_of, tasks)), "no task is empty"
    assert len(tasks) >= min(least or 0, total)
    if most is None:
        assert len(tasks) <= max(slots, least or 0)
    else:
        assert all(size_of(task) <= most for task in tasks)


@given(RANGES, COUNTS)
def test_no_task_could_give_a_range_to_another(ranges: list[OffsetRange], slots: int) -> None:
    tasks = plan.plan_tasks(ranges, slots=slots)
    if len(tasks) > 1:
        emptiest = min(map(size_of, tasks))
        for task in tasks:
            assert size_of(task) - min(each.size for each in task) <= emptiest


@given(RANGES, COUNTS, COUNTS)
def test_what_is_split_is_split_evenly(ranges: list[OffsetRange], slots: int, least: int) -> None:
    wholes = [each for each in ranges if each.size > 0]
    tasks = plan.plan_tasks(ranges, slots=slots, least=least)
    parts = [each for task in tasks for each in task]
    if 0 < len(wholes) < least:
        largest = max(each.size for each in parts)
        for whole in wholes:
            mine = [each for each in parts if each.partition == whole.partition]
            # who could have been split further is not far below the largest
            assert len(mine) == 1 or max(each.size for each in mine) * 2 >= largest - 1


@given(RANGES, COUNTS, st.none() | COUNTS)
def test_a_task_reads_each_partition_in_order(
    ranges: list[OffsetRange], slots: int, least: int | None
) -> None:
    for task in plan.plan_tasks(ranges, slots=slots, least=least):
        assert list(task) == sorted(task)
        for one, other in pairwise(task):
            touching = one.partition == other.partition and one.until >= other.start
            assert not touching, "neighbours are one range"


def test_small_partitions_share_a_task_and_a_large_one_has_its_own() -> None:
    tasks = plan.plan_tasks(ranges_of([100, 10, 10, 10, 0]), slots=2)
    assert [[each.partition.partition for each in task] for task in tasks] == [[0], [1, 2, 3]]


def test_a_large_partition_is_split_where_more_tasks_are_asked_for() -> None:
    tasks = plan.plan_tasks(ranges_of([100, 10]), slots=1, least=4)
    assert sorted(map(size_of, tasks)) == [10, 33, 33, 34]


def test_ten_thousand_partitions_are_planned() -> None:
    ranges = ranges_of([1 + number % 97 for number in range(10_000)])
    tasks = plan.plan_tasks(ranges, slots=200)
    sizes = list(map(size_of, tasks))
    assert len(tasks) == 200
    assert max(sizes) - min(sizes) <= 97
