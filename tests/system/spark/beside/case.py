"""Queries for both sources, and what Spark's own source was seen to make of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.system.spark.beside.shop import START
from tests.system.spark.beside.stage import Options

EARLIEST = {"startingOffsets": "earliest"}
COMMITTED = {"kafka.isolation.level": "read_committed"}
LATEST = {"startingOffsetsByTimestampStrategy": "latest"}
LOSE = {"failOnDataLoss": "false"}
#: How long Spark's own looks for a record that is not there yet; two minutes by default.
SOON = {"kafkaConsumer.pollTimeoutMs": "2000"}


@dataclass(frozen=True, slots=True)
class Read:
    """A batch query that gives rows."""

    name: str
    options: Options
    rows: int


def after(seconds: float) -> int:
    """A time, so long after the first record's."""
    return START + int(seconds * 1_000)


def at(topic: str, *places: Any) -> dict[str, dict[str, Any]]:
    """An offset or a time for each partition, from the first."""
    return {topic: {str(partition): place for partition, place in enumerate(places)}}


def between(topic: str, start: tuple[Any, ...], end: tuple[Any, ...]) -> dict[str, Any]:
    """From offsets to offsets."""
    return {
        "subscribe": topic,
        "startingOffsets": at(topic, *start),
        "endingOffsets": at(topic, *end),
    }


def timed(start: float | None = None, end: float | None = None, **more: Any) -> dict[str, Any]:
    """All partitions of the topic with known times, from a time, to a time."""
    options: dict[str, Any] = {"subscribe": "timed", **more}
    if start is not None:
        options["startingTimestamp"] = after(start)
    if end is not None:
        options["endingTimestamp"] = after(end)
    return options


TOPICS = (
    Read("a topic", {"subscribe": "orders"}, 14),
    Read("topics", {"subscribe": "orders,returns"}, 17),
    Read("topics with spaces and an empty one", {"subscribe": " orders , returns ,"}, 17),
    Read("a topic twice", {"subscribe": "returns,returns"}, 3),
    Read("a pattern", {"subscribePattern": "^(orders|returns)$"}, 17),
    Read("a pattern found anywhere in a name", {"subscribePattern": "etur"}, 3),
    Read("a pattern that fits an internal topic", {"subscribePattern": "offsets|returns"}, 3),
    Read("a pattern that fits none", {"subscribePattern": "nothing"}, 0),
    Read("partitions", {"assign": {"orders": [0, 2], "returns": [0]}}, 13),
    Read("a partition twice", {"assign": {"orders": [1, 1]}}, 4),
    Read("no partitions of a topic", {"assign": {"orders": []}}, 0),
    Read("no partitions", {"assign": "{}"}, 0),
    Read("options in other letters", {"SUBSCRIBE": "returns", "STARTINGOFFSETS": "earliest"}, 3),
    Read(
        "options of streams",
        {
            "subscribe": "returns",
            "maxOffsetsPerTrigger": "1",
            "minOffsetsPerTrigger": "1",
            "maxTriggerDelay": "1s",
        },
        3,
    ),
    Read("a group", {"subscribe": "returns", "kafka.group.id": "named"}, 3),
    Read("a prefix of groups", {"subscribe": "returns", "groupIdPrefix": "named"}, 3),
)

RECORDS = (
    Read("no records", {"subscribe": "empty"}, 0),
    Read("every codec", {"subscribe": "codecs"}, 150),
    Read("every kind of record", {"subscribe": "kinds"}, 13),
    Read("headers", {"subscribe": "kinds", "includeHeaders": "true"}, 13),
    Read("headers where there are none", {"subscribe": "returns", "includeHeaders": "TRUE"}, 3),
    Read("headers of an empty topic", {"subscribe": "empty", "includeHeaders": "true"}, 0),
    Read("times of the broker", {"subscribe": "appended"}, 5),
    Read("all of transactions", {"subscribe": "ledger"}, 12),
    Read("committed transactions", {"subscribe": "ledger", **COMMITTED}, 6),
    Read("before an open transaction", {"subscribe": "pending", **COMMITTED}, 2),
    Read("an open transaction", {"subscribe": "pending"}, 7),
    Read("only what was aborted", {**between("ledger", (3,), (8,)), **COMMITTED}, 0),
    Read("only a marker", between("ledger", (15,), (16,)), 0),
    Read("a marker at the end", between("ledger", (13,), (16,)), 2),
    Read("what compaction left", {"subscribe": "compacted"}, 9),
    Read("from a gap into a gap", between("compacted", (2,), (8,)), 1),
    Read("only a gap", between("compacted", (6,), (9,)), 0),
    Read("many tasks over gaps", {"subscribe": "compacted", "minPartitions": "8"}, 9),
    Read("many tasks", {"subscribe": "skewed", "minPartitions": "10"}, 111),
    Read("small tasks", {"subscribe": "skewed", "maxRecordsPerPartition": "7"}, 111),
)

OFFSETS = (
    Read("earliest", {"subscribe": "orders", **EARLIEST}, 14),
    Read("earliest in capitals", {"subscribe": "orders", "startingOffsets": " EARLIEST "}, 14),
    Read("latest at the end", {"subscribe": "orders", "endingOffsets": "Latest"}, 14),
    Read("from offsets", {"subscribe": "orders", "startingOffsets": at("orders", 3, -2, -2)}, 11),
    Read("to offsets", {"subscribe": "orders", "endingOffsets": at("orders", 3, -1, 0)}, 7),
    Read("from offsets to offsets", between("orders", (3, 1, -2), (5, 3, -1)), 4),
    Read("nothing between offsets", between("orders", (5, 0, 0), (5, 0, 0)), 0),
    Read(
        "offsets of topics",
        {
            "subscribe": "orders,returns",
            "startingOffsets": {**at("orders", 8, 4, 0), **at("returns", 2)},
        },
        3,
    ),
    Read(
        "offsets of partitions",
        {"assign": {"orders": [1]}, "startingOffsets": {"orders": {"1": 3}}},
        1,
    ),
)

TIMES = (
    Read("from before the first", timed(-1), 15),
    Read("from between two", timed(4.5), 7),
    Read("from one", timed(5), 7),
    Read("from after the last of one", {**timed(8.5), **LATEST}, 1),
    Read("from after the last", timed(90, startingOffsetsByTimestampStrategy="LATEST"), 0),
    Read("to between two", timed(end=4.5), 8),
    Read("to before the first", timed(end=-1), 0),
    Read("to after the last", timed(end=90), 15),
    Read("from a time to a time", timed(2.5, 4.5), 3),
    Read("to a time of an empty topic", {"subscribe": "empty", "endingTimestamp": START}, 0),
    Read("a time that means latest", {"subscribe": "timed", "startingTimestamp": "-1"}, 0),
    Read("a time that means earliest", {"subscribe": "timed", "startingTimestamp": " -2 "}, 15),
    Read(
        "from a time for each",
        {"subscribe": "timed", "startingOffsetsByTimestamp": at("timed", after(3), after(6))},
        9,
    ),
    Read(
        "from a time for each, one after the last",
        {
            "subscribe": "timed",
            "startingOffsetsByTimestamp": at("timed", after(3), after(60)),
            **LATEST,
        },
        7,
    ),
    Read(
        "to a time for each",
        {"subscribe": "timed", "endingOffsetsByTimestamp": at("timed", after(3), after(60))},
        8,
    ),
    Read(
        "from a time for each to a time for each",
        {
            "subscribe": "timed",
            "startingOffsetsByTimestamp": at("timed", after(3), after(3)),
            "endingOffsetsByTimestamp": at("timed", after(5), after(5)),
        },
        3,
    ),
    Read(
        "a time for each rather than an offset",
        {
            "subscribe": "timed",
            "startingOffsetsByTimestamp": at("timed", after(3), after(6)),
            "startingOffsets": "latest",
        },
        9,
    ),
    Read(
        "a time for all rather than any",
        timed(
            1,
            startingOffsetsByTimestamp=at("timed", after(3), after(6)),
            startingOffsets=at("timed", 0, 0),
        ),
        13,
    ),
    Read(
        "an ending time for all rather than any",
        timed(
            end=1,
            endingOffsetsByTimestamp=at("timed", after(3), after(6)),
            endingOffsets=at("timed", 9, 3),
        ),
        2,
    ),
    Read("from a time to an offset", timed(2.5, endingOffsets=at("timed", 6, -1)), 6),
)

LOST = (
    Read("after retention", {"subscribe": "aged"}, 14),
    Read(
        "from before retention",
        {"subscribe": "aged", "startingOffsets": at("aged", 2, 0), **LOSE},
        14,
    ),
    Read("wholly before retention", {**between("aged", (2, 9), (4, 10)), **LOSE}, 1),
    Read("past the end", {**between("orders", (0, 0, 0), (50, 0, 0)), **LOSE, **SOON}, 10),
    Read("wholly past the end", {**between("orders", (20, 0, 0), (50, 2, 0)), **LOSE, **SOON}, 2),
)
