"""How far a streaming query has come in Kafka, by what Spark tells of a finished batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from rota.model.topic import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

Offsets: TypeAlias = Mapping[TopicPartition, int]

COMMITTED: Final = "commitOffsets"
"""A time that only a batch has which was written to the commit log; a progress without it tells of
a trigger that had nothing to do."""
KAFKA: Final = ("KafkaV1[", "KafkaV2[")
"""How Spark's own source describes itself. Others with offsets of the same form are not Kafka's."""
PYTHON: Final = ".PythonMicroBatchStream"
"""What the description of any source in Python has in it: their names are not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A batch that is in the checkpoint's commit log, and where it ends in Kafka."""

    query: str
    """Its id, which stays the same as long as the checkpoint."""
    run: str
    """The id of this start of it; empty: of none that is known."""
    batch: int
    offsets: Offsets


def finished(progress: StreamingQueryProgress) -> Finished | None:
    """What a progress tells; None if it is of no finished batch, or of none with Kafka in it."""
    if COMMITTED not in progress.durationMs:
        return None
    ends = [each.endOffset for each in progress.sources if _may_be_kafka(each.description)]
    offsets = lowest(filter(None, map(offsets_of, ends)))
    if not offsets:
        return None
    return Finished(
        query=str(progress.id), run=str(progress.runId), batch=progress.batchId, offsets=offsets
    )


def _may_be_kafka(description: str) -> bool:
    return description.startswith(KAFKA) or PYTHON in description


def offsets_of(text: str | None) -> Offsets | None:
    """The offsets of ``{"topic": {"0": 5}}``; None if it is of another form, so of another source.

    Numbers below 0 stand for the ends of a log, and are no offsets.
    """
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in found.items():
        if not isinstance(partitions, dict):
            return None
        for number, offset in partitions.items():
            if not (number.isascii() and number.isdecimal()) or type(offset) is not int:
                return None
            if offset >= 0:
                offsets[TopicPartition(topic, int(number))] = offset
    return offsets


def lowest(several: Iterable[Offsets]) -> dict[TopicPartition, int]:
    """The offsets of all sources of a query: what two of them read is done when both have it."""
    merged: dict[TopicPartition, int] = {}
    for offsets in several:
        for place, offset in offsets.items():
            merged[place] = min(offset, merged.get(place, offset))
    return dict(sorted(merged.items()))
