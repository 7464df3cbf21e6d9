"""Queries for both sources, and what Spark's own source was seen to make of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.system.spark.comparison.source_pair import Options
from tests.system.spark.comparison.topics import START

EARLIEST = {"startingOffsets": "earliest"}
COMMITTED = {"kafka.isolation.level": "read_committed"}
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}
LOSE = {"failOnDataLoss": "false"}
#: How long Spark's own looks for a record that is not there yet; two minutes by default.
SOON = {"kafkaConsumer.pollTimeoutMs": "2000"}


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """A batch query that gives rows."""

    name: str
    options: Options
    rows: int


def time_after(seconds: float) -> int:
    """A time, so long after the first record's."""
    return START + int(seconds * 1_000)


def per_partition(topic: str, *places: Any) -> dict[str, dict[str, Any]]:
    """An offset or a time for each partition, from the first."""
    return {topic: {str(partition): place for partition, place in enumerate(places)}}


def offset_range(topic: str, start: tuple[Any, ...], end: tuple[Any, ...]) -> dict[str, Any]:
    """From offsets to offsets."""
    return {
        "subscribe": topic,
        "startingOffsets": per_partition(topic, *start),
        "endingOffsets": per_partition(topic, *end),
    }


def time_range(start: float | None = None, end: float | None = None, **more: Any) -> dict[str, Any]:
    """All partitions of the topic with known times, from a time, to a time."""
    options: dict[str, Any] = {"subscribe": "timed", **more}
    if start is not None:
        options["startingTimestamp"] = time_after(start)
    if end is not None:
        options["endingTimestamp"] = time_after(end)
    return options


TOPICS = (
    BatchQuery("a topic", {"subscribe": "orders"}, 14),
    BatchQuery("topics", {"subscribe": "orders,returns"}, 17),
    BatchQuery("topics with spaces and an empty one", {"subscribe": " orders , returns ,"}, 17),
    BatchQuery("a topic twice", {"subscribe": "returns,returns"}, 3),
    BatchQuery("a pattern", {"subscribePattern": "^(orders|returns)$"}, 17),
    BatchQuery("a pattern found anywhere in a name", {"subscribePattern": "etur"}, 3),
    BatchQuery("a pattern that fits an internal topic", {"subscribePattern": "offsets|returns"}, 3),
    BatchQuery("a pattern that fits none", {"subscribePattern": "nothing"}, 0),
    BatchQuery("partitions", {"assign": {"orders": [0, 2], "returns": [0]}}, 13),
    BatchQuery("a partition twice", {"assign": {"orders": [1, 1]}}, 4),
    BatchQuery("no partitions of a topic", {"assign": {"orders": []}}, 0),
    BatchQuery("no partitions", {"assign": "{}"}, 0),
    BatchQuery(
        "options in other letters", {"SUBSCRIBE": "returns", "STARTINGOFFSETS": "earliest"}, 3
    ),
    BatchQuery(
        "options of streams",
        {
            "subscribe": "returns",
            "maxOffsetsPerTrigger": "1",
            "minOffsetsPerTrigger": "1",
            "maxTriggerDelay": "1s",
        },
        3,
    ),
    BatchQuery("a group", {"subscribe": "returns", "kafka.group.id": "named"}, 3),
    BatchQuery("a prefix of groups", {"subscribe": "returns", "groupIdPrefix": "named"}, 3),
)

RECORDS = (
    BatchQuery("no records", {"subscribe": "empty"}, 0),
    BatchQuery("every codec", {"subscribe": "codecs"}, 150),
    BatchQuery("every kind of record", {"subscribe": "kinds"}, 13),
    BatchQuery("headers", {"subscribe": "kinds", "includeHeaders": "true"}, 13),
    BatchQuery(
        "headers where there are none", {"subscribe": "returns", "includeHeaders": "TRUE"}, 3
    ),
    BatchQuery("headers of an empty topic", {"subscribe": "empty", "includeHeaders": "true"}, 0),
    BatchQuery("times of the broker", {"subscribe": "appended"}, 5),
    BatchQuery("all of transactions", {"subscribe": "ledger"}, 12),
    BatchQuery("committed transactions", {"subscribe": "ledger", **COMMITTED}, 6),
    BatchQuery("before an open transaction", {"subscribe": "pending", **COMMITTED}, 2),
    BatchQuery("an open transaction", {"subscribe": "pending"}, 7),
    BatchQuery("only what was aborted", {**offset_range("ledger", (3,), (8,)), **COMMITTED}, 0),
    BatchQuery("only a marker", offset_range("ledger", (15,), (16,)), 0),
    BatchQuery("a marker at the end", offset_range("ledger", (13,), (16,)), 2),
    BatchQuery("what compaction left", {"subscribe": "compacted"}, 9),
    BatchQuery("from a gap into a gap", offset_range("compacted", (2,), (8,)), 1),
    BatchQuery("only a gap", offset_range("compacted", (6,), (9,)), 0),
    BatchQuery("many tasks over gaps", {"subscribe": "compacted", "minPartitions": "8"}, 9),
    BatchQuery("many tasks", {"subscribe": "skewed", "minPartitions": "10"}, 111),
    BatchQuery("small tasks", {"subscribe": "skewed", "maxRecordsPerPartition": "7"}, 111),
)

OFFSETS = (
    BatchQuery("earliest", {"subscribe": "orders", **EARLIEST}, 14),
    BatchQuery(
        "earliest in capitals", {"subscribe": "orders", "startingOffsets": " EARLIEST "}, 14
    ),
    BatchQuery("latest at the end", {"subscribe": "orders", "endingOffsets": "Latest"}, 14),
    BatchQuery(
        "from offsets",
        {"subscribe": "orders", "startingOffsets": per_partition("orders", 3, -2, -2)},
        11,
    ),
    BatchQuery(
        "to offsets", {"subscribe": "orders", "endingOffsets": per_partition("orders", 3, -1, 0)}, 7
    ),
    BatchQuery("from offsets to offsets", offset_range("orders", (3, 1, -2), (5, 3, -1)), 4),
    BatchQuery("nothing between offsets", offset_range("orders", (5, 0, 0), (5, 0, 0)), 0),
    BatchQuery(
        "offsets of topics",
        {
            "subscribe": "orders,returns",
            "startingOffsets": {**per_partition("orders", 8, 4, 0), **per_partition("returns", 2)},
        },
        3,
    ),
    BatchQuery(
        "offsets of partitions",
        {"assign": {"orders": [1]}, "startingOffsets": {"orders": {"1": 3}}},
        1,
    ),
)

TIMES = (
    BatchQuery("from before the first", time_range(-1), 15),
    BatchQuery("from between two", time_range(4.5), 7),
    BatchQuery("from one", time_range(5), 7),
    BatchQuery("from after the last of one", {**time_range(8.5), **LATEST}, 1),
    BatchQuery(
        "from after the last", time_range(90, startingOffsetsByTimestampStrategy="LATEST"), 0
    ),
    BatchQuery("to between two", time_range(end=4.5), 8),
    BatchQuery("to before the first", time_range(end=-1), 0),
    BatchQuery("to after the last", time_range(end=90), 15),
    BatchQuery("from a time to a time", time_range(2.5, 4.5), 3),
    BatchQuery("to a time of an empty topic", {"subscribe": "empty", "endingTimestamp": START}, 0),
    BatchQuery("a time that means latest", {"subscribe": "timed", "startingTimestamp": "-1"}, 0),
    BatchQuery(
        "a time that means earliest", {"subscribe": "timed", "startingTimestamp": " -2 "}, 15
    ),
    BatchQuery(
        "from a time for each",
        {
            "subscribe": "timed",
            "startingOffsetsByTimestamp": per_partition("timed", time_after(3), time_after(6)),
        },
        9,
    ),
    BatchQuery(
        "from a time for each, one after the last",
        {
            "subscribe": "timed",
            "startingOffsetsByTimestamp": per_partition("timed", time_after(3), time_after(60)),
            **LATEST,
        },
        7,
    ),
    BatchQuery(
        "to a time for each",
        {
            "subscribe": "timed",
            "endingOffsetsByTimestamp": per_partition("timed", time_after(3), time_after(60)),
        },
        8,
    ),
    BatchQuery(
        "from a time for each to a time for each",
        {
            "subscribe": "timed",
            "startingOffsetsByTimestamp": per_partition("timed", time_after(3), time_after(3)),
            "endingOffsetsByTimestamp": per_partition("timed", time_after(5), time_after(5)),
        },
        3,
    ),
    BatchQuery(
        "a time for each rather than an offset",
        {
            "subscribe": "timed",
            "startingOffsetsByTimestamp": per_partition("timed", time_after(3), time_after(6)),
            "startingOffsets": "latest",
        },
        9,
    ),
    BatchQuery(
        "a time for all rather than any",
        time_range(
            1,
            startingOffsetsByTimestamp=per_partition("timed", time_after(3), time_after(6)),
            startingOffsets=per_partition("timed", 0, 0),
        ),
        13,
    ),
    BatchQuery(
        "an ending time for all rather than any",
        time_range(
            end=1,
            endingOffsetsByTimestamp=per_partition("timed", time_after(3), time_after(6)),
            endingOffsets=per_partition("timed", 9, 3),
        ),
        2,
    ),
    BatchQuery(
        "from a time to an offset", time_range(2.5, endingOffsets=per_partition("timed", 6, -1)), 6
    ),
)

LOST = (
    BatchQuery("after retention", {"subscribe": "aged"}, 14),
    BatchQuery(
        "from before retention",
        {"subscribe": "aged", "startingOffsets": per_partition("aged", 2, 0), **LOSE},
        14,
    ),
    BatchQuery("wholly before retention", {**offset_range("aged", (2, 9), (4, 10)), **LOSE}, 1),
    BatchQuery(
        "past the end", {**offset_range("orders", (0, 0, 0), (50, 0, 0)), **LOSE, **SOON}, 10
    ),
    BatchQuery(
        "wholly past the end", {**offset_range("orders", (20, 0, 0), (50, 2, 0)), **LOSE, **SOON}, 2
    ),
)
