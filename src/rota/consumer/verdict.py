"""What the error codes of a Fetch's answer mean to who reads."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from rota.client.fetch import Fetched
from rota.client.offset import EpochEnd
from rota.client.refusal import PASSING, STALE, refusal
from rota.consumer.entry import Position
from rota.errors import Code, NoOffset, RecordError, RotaError
from rota.model.topic import TopicPartition, first_few


class Verdict(enum.Enum):
    """What to do with a partition after its answer."""

    KEEP = "keep"
    """There are records: they wait for their turn."""
    NOTHING = "nothing"
    """There is nothing new, or the answer is of the past."""
    AGAIN = "again"
    """It will pass: ask again after a pause."""
    REFRESH = "refresh"
    """The metadata are old: ask again, after a pause, with new ones."""
    RANGE = "range"
    """There is no such offset."""
    RAISE = "raise"
    """The application must know."""


def verdict(code: int) -> Verdict:
    """What a partition's error code means; codes that nobody knows are raised, by their number."""
    if code == Code.NONE:
        return Verdict.KEEP
    if code in PASSING:
        return Verdict.AGAIN
    if code in STALE:
        return Verdict.REFRESH
    if code == Code.OFFSET_OUT_OF_RANGE:
        return Verdict.RANGE
    return Verdict.RAISE


def fetch_error(code: int, partition: TopicPartition, offset: int) -> RotaError:
    """The error for a Fetch that was refused at an offset."""
    if code == Code.CORRUPT_MESSAGE:
        problem = "the broker finds that the records here are damaged (CORRUPT_MESSAGE)"
        return RecordError(*partition, offset, problem, next_offset=offset + 1)
    return refusal(code, partition, f"to fetch from offset {offset} of")


def missing(partitions: Sequence[TopicPartition]) -> NoOffset:
    """Nothing is committed for these."""
    names = first_few([str(each) for each in partitions])
    return NoOffset(
        Code.NONE,
        f"no offset is committed for {names}, and auto.offset.reset is none: seek, or set a policy",
    )


def out_of_range(answer: Fetched, start: int | None, end: int | None) -> str:
    """There is no such offset."""
    seen = [
        *([] if start is None else [f"to begin at {start}"]),
        *([] if end is None else [f"to end before {end}"]),
    ]
    known = f" (the log was last seen {' and '.join(seen)})" if seen else ""
    return f"offset {answer.fetch_offset} of {answer.partition} is out of range{known}"


def truncated(partition: TopicPartition, handed: Position, found: EpochEnd | None) -> str:
    """What was read is no longer in the leader's log."""
    part = (
        f"its leader knows nothing of epoch {handed.epoch}"
        if found is None
        else f"its leader's log parts from what was read at offset {found.end} of epoch "
        f"{found.epoch}"
    )
    return (
        f"{partition} was truncated below offset {handed.offset}, which was read in epoch "
        f"{handed.epoch}: {part}"
    )


def lost(problem: str) -> NoOffset:
    """Nobody says where to read on after this."""
    text = f"{problem}; auto.offset.reset is none: seek, or set a policy"
    return NoOffset(Code.OFFSET_OUT_OF_RANGE, text)
