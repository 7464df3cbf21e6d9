"""What was handed out of a flow, however it is taken and whatever happens to the rest."""

from __future__ import annotations

import sys
from itertools import islice
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from rota.consumer.buffer import PolledRecords
from rota.consumer.records import ConsumerRecord, Records
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from _typeshed import TraceFunction

A, B, C = (TopicPartition("orders", number) for number in range(3))


def records(*counts: tuple[TopicPartition, int]) -> Records:
    return Records(
        {
            at: [ConsumerRecord(*at, offset, 0, 0, None, b"", (), 7) for offset in range(count)]
            for at, count in counts
        }
    )


def polled_records(*counts: tuple[TopicPartition, int]) -> PolledRecords:
    flow = PolledRecords()
    flow.set_records(records(*counts))
    return flow


def consumed_offsets(flow: PolledRecords) -> dict[TopicPartition, int]:
    """What a commit would store, of partitions whose positions are at 10."""
    positions = {at: OffsetAndMetadata(10) for at in (A, B, C)}
    flow.rewind_positions(positions)
    return {at: each.offset for at, each in positions.items()}


def take_records(flow: PolledRecords, count: int) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in islice(flow.remaining, count)]


def test_a_commit_covers_what_a_loop_has_taken() -> None:
    flow = polled_records((A, 10), (B, 10))
    assert consumed_offsets(flow) == {A: 0, B: 0, C: 10}
    take_records(flow, 3)
    assert consumed_offsets(flow) == {A: 3, B: 0, C: 10}
    take_records(flow, 7)
    assert consumed_offsets(flow) == {A: 10, B: 0, C: 10}
    take_records(flow, 1)
    assert consumed_offsets(flow) == {A: 10, B: 1, C: 10}
    assert not flow.is_empty
    take_records(flow, 100)
    assert consumed_offsets(flow) == {A: 10, B: 10, C: 10}
    assert flow.is_empty


def test_a_poll_takes_the_rest_of_a_loop() -> None:
    flow = polled_records((A, 4), (B, 3))
    take_records(flow, 2)
    some = flow.take_records(3)
    assert [(each.partition, each.offset) for each in some] == [(0, 2), (0, 3), (1, 0)]
    assert consumed_offsets(flow) == {A: 10, B: 1, C: 10}
    assert len(flow.take_records(100)) == 2
    assert not flow.take_records(100)


def test_a_ctrl_c_in_a_poll_leaves_what_it_would_have_given() -> None:
    """Wherever it comes: what is handed out, is there; the rest comes again."""
    for turns in range(1, 60):
        flow = polled_records((A, 10), (B, 10))
        take_records(flow, 2)
        given = 0
        with interrupt_at(after=turns) as hit:
            given = len(flow.take_records(5))
        left = [(each.partition, each.offset) for each in flow.remaining]
        if given:
            assert left[0] == (0, 7)
        else:
            assert hit
            assert left[0] in {(0, 2), (0, 7)}
            if left[0] == (0, 7):
                return  # it came after the last step
    pytest.fail("it never came so late")


class interrupt_at:  # noqa: N801 a context, as contextlib's
    """A KeyboardInterrupt after so many lines."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.hit = False

    def __enter__(self) -> interrupt_at:
        sys.settrace(self.trace)
        return self

    def trace(self, _frame: FrameType, event: str, _: object) -> TraceFunction:
        self.left -= event == "line"
        if not self.left:
            self.hit = True
            sys.settrace(None)
            raise KeyboardInterrupt
        return self.trace

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        sys.settrace(None)
        return kind is KeyboardInterrupt

    def __bool__(self) -> bool:
        return self.hit


def test_a_loop_under_way_goes_on_with_what_takes_the_place_of_the_rest() -> None:
    flow = polled_records((A, 4))
    loop = flow.remaining
    next(loop)
    flow.set_records(records((B, 2)))
    assert list(loop) == []
    assert take_records(flow, 9) == [(1, 0), (1, 1)]


def test_a_flow_that_is_stopped_gives_no_more_and_covers_no_more() -> None:
    flow = polled_records((A, 4), (B, 2))
    loop = flow.remaining
    next(loop)
    flow.drop_remaining()
    assert list(loop) == []
    assert flow.is_empty
    assert consumed_offsets(flow) == {A: 1, B: 0, C: 10}


@pytest.mark.parametrize(
    ("before", "gone", "left", "commits"),
    [
        (0, [A], [(1, 0), (1, 1), (2, 0)], {A: 10, B: 0, C: 0}),
        (2, [A], [(1, 0), (1, 1), (2, 0)], {A: 10, B: 0, C: 0}),
        (2, [B], [(0, 2), (0, 3), (2, 0)], {A: 2, B: 10, C: 0}),
        (5, [B], [(2, 0)], {A: 10, B: 10, C: 0}),
        (5, [A], [(1, 1), (2, 0)], {A: 10, B: 1, C: 0}),
        (5, [A, B, C], [], {A: 10, B: 10, C: 10}),
        (7, [A], [], {A: 10, B: 10, C: 10}),
    ],
)
def test_what_is_dropped_is_not_handed_out_and_the_others_stay(
    before: int,
    gone: list[TopicPartition],
    left: list[tuple[int, int]],
    commits: dict[TopicPartition, int],
) -> None:
    flow = polled_records((A, 4), (B, 2), (C, 1))
    loop = flow.remaining
    take_records(flow, before)
    flow.drop_partitions(gone)
    assert list(loop) == []
    assert consumed_offsets(flow) == commits
    assert take_records(flow, 9) == left
    assert consumed_offsets(flow) == {A: 10, B: 10, C: 10}


def test_where_the_unread_begin() -> None:
    flow = polled_records((A, 4), (B, 2))
    take_records(flow, 3)
    assert {at: each.offset for at, each in flow.remaining_positions().items()} == {A: 3, B: 0}
    assert take_records(flow, 1) == [(0, 3)]
