"""What the error codes of a Fetch's answer mean to who reads."""

from __future__ import annotations

import enum

from rota.client.refusal import PASSING, STALE, refusal
from rota.errors import Code, RecordError, RotaError
from rota.model.topic import TopicPartition


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
