"""Streams: the same batches from Rota's source as from Spark's own, and the same offsets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.driver_process import ClientError, Driver
from tests.support.spark_limit import TOO_SLOW
from tests.system.spark.comparison.queries import (
    COMMITTED,
    EARLIEST,
    LATEST,
    LOSE,
    per_partition,
    time_after,
    time_range,
)
from tests.system.spark.comparison.source_pair import REPEATS, ROTAS, Options, SourcePair
from tests.system.spark.comparison.topics import KafkaTopics


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """A stream over what is there."""

    name: str
    options: Options
    #: Of each batch.
    rows: list[int]
    #: Of each batch, as the checkpoint has them.
    offsets: list[Any]


def skewed_offsets(*offsets: int) -> dict[str, Any]:
    return per_partition("skewed", *offsets)


ORDERS = per_partition("orders", 10, 4, 0)
RETURNS = per_partition("returns", 3)
TIMED = per_partition("timed", 10, 5)
SKEWED = skewed_offsets(100, 10, 1)

STREAMS = (
    StreamQuery("topics", {"subscribe": "orders,returns"}, [17], [ORDERS | RETURNS]),
    StreamQuery("a pattern", {"subscribePattern": "^ret"}, [3], [RETURNS]),
    StreamQuery("partitions", {"assign": {"orders": [1]}}, [4], [{"orders": {"1": 4}}]),
    StreamQuery("no records", {"subscribe": "empty"}, [0], [per_partition("empty", 0, 0)]),
    StreamQuery(
        "headers",
        {"subscribe": "kinds", "includeHeaders": "true"},
        [13],
        [per_partition("kinds", 13)],
    ),
    StreamQuery("by default", {"subscribe": "orders", "startingOffsets": None}, [0], [ORDERS]),
    StreamQuery("latest", {"subscribe": "orders", "startingOffsets": "Latest"}, [0], [ORDERS]),
    StreamQuery(
        "from offsets",
        {"subscribe": "orders", "startingOffsets": per_partition("orders", 3, -1, -2)},
        [7],
        [ORDERS],
    ),
    StreamQuery("from a time", time_range(4.5), [7], [TIMED]),
    StreamQuery(
        "from a time for each",
        time_range(startingOffsetsByTimestamp=per_partition("timed", time_after(3), time_after(6))),
        [9],
        [TIMED],
    ),
    StreamQuery(
        "a time for all rather than for each",
        time_range(
            4.5, startingOffsetsByTimestamp=per_partition("timed", time_after(3), time_after(6))
        ),
        [7],
        [TIMED],
    ),
    StreamQuery("a time that means latest", time_range(startingTimestamp="-1"), [0], [TIMED]),
    StreamQuery(
        "at most so many",
        {"subscribe": "skewed", "maxOffsetsPerTrigger": "20"},
        [20, 19, 19, 19, 19, 15],
        [
            *(skewed_offsets(18, 1, 1), skewed_offsets(36, 2, 1), skewed_offsets(53, 4, 1)),
            *(skewed_offsets(70, 6, 1), skewed_offsets(87, 8, 1), SKEWED),
        ],
    ),
    StreamQuery(
        "at most more than there are",
        {"subscribe": "skewed", "maxOffsetsPerTrigger": "1000"},
        [111],
        [SKEWED],
    ),
    StreamQuery(
        "at most so many of topics",
        {"subscribe": "returns,timed", "maxOffsetsPerTrigger": "9"},
        [8, 7, 3],
        [
            per_partition("returns", 1) | per_partition("timed", 5, 2),
            per_partition("returns", 2) | per_partition("timed", 9, 4),
            RETURNS | TIMED,
        ],
    ),
    StreamQuery(
        "at least more than there are",
        {"subscribe": "skewed", "minOffsetsPerTrigger": "1000"},
        [111],
        [SKEWED],
    ),
    StreamQuery(
        "at least and at most",
        {"subscribe": "skewed", "minOffsetsPerTrigger": "50", "maxOffsetsPerTrigger": "60"},
        [60, 51],
        [skewed_offsets(54, 5, 1), SKEWED],
    ),
    StreamQuery(
        "at least more than are left",
        {"subscribe": "skewed", "minOffsetsPerTrigger": "60", "maxOffsetsPerTrigger": "60"},
        [60],
        [skewed_offsets(54, 5, 1)],
    ),
    StreamQuery(
        "but no longer than so long",
        {
            "subscribe": "skewed",
            "minOffsetsPerTrigger": "60",
            "maxOffsetsPerTrigger": "60",
            "maxTriggerDelay": "1ms",
        },
        [60, 51],
        [skewed_offsets(54, 5, 1), SKEWED],
    ),
    StreamQuery(
        "committed transactions",
        {"subscribe": "ledger", **COMMITTED},
        [6],
        [per_partition("ledger", 16)],
    ),
    StreamQuery(
        "before an open transaction",
        {"subscribe": "pending", **COMMITTED},
        [2],
        [per_partition("pending", 2)],
    ),
    StreamQuery(
        "markers and aborted ones alone in a batch",
        {"subscribe": "ledger", **COMMITTED, "maxOffsetsPerTrigger": "4"},
        [3, 0, 3, 0],
        [
            per_partition("ledger", 4),
            per_partition("ledger", 8),
            per_partition("ledger", 12),
            per_partition("ledger", 16),
        ],
    ),
    StreamQuery(
        "gaps",
        {"subscribe": "compacted", "maxOffsetsPerTrigger": "4"},
        [1, 1, 3, 4],
        [
            per_partition("compacted", 4),
            per_partition("compacted", 8),
            per_partition("compacted", 12),
            per_partition("compacted", 16),
        ],
    ),
    StreamQuery("after retention", {"subscribe": "aged"}, [14], [per_partition("aged", 10, 10)]),
    StreamQuery(
        "from before retention",
        {"subscribe": "aged", "startingOffsets": per_partition("aged", 2, 0), **LOSE},
        [14],
        [per_partition("aged", 10, 10)],
    ),
    StreamQuery(
        "from past the end",
        {"subscribe": "orders", "startingOffsets": per_partition("orders", 30, 0, 0), **LOSE},
        [4],
        [ORDERS],
    ),
    StreamQuery("many tasks", {"subscribe": "skewed", "minPartitions": "10"}, [111], [SKEWED]),
    StreamQuery(
        "small tasks", {"subscribe": "skewed", "maxRecordsPerPartition": "30"}, [111], [SKEWED]
    ),
)


NIGHTLY = {
    # batch queries of the same names read the same offsets by the same tasks
    *("a pattern", "partitions", "headers", "after retention", "many tasks"),
    # which of two times holds is decided where options are read, as for batch queries
    *("from a time for each", "a time for all rather than for each"),
    "latest",  # means the same as no startingOffsets
    # "at most so many" and "at least and at most" limit batches by the same rule
    *("at most more than there are", "at least more than there are"),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.nightly if case.name in NIGHTLY else ())
        for case in STREAMS
    ],
    ids=lambda case: case.name,
)
def test_same_batches(case: StreamQuery, source_pair: SourcePair) -> None:
    seen = source_pair.stream({**EARLIEST, **case.options})
    assert list(map(len, seen.rows)) == case.rows
    assert [seen.offsets[batch] for batch in sorted(seen.offsets)] == case.offsets


def test_times_that_may_mean_the_end_have_a_batch_of_their_own(source_pair: SourcePair) -> None:
    """Spark's own keeps what they mean in a file that a source in Python cannot reach."""
    own, rota = source_pair.stream_pair({**time_range(8.5), **LATEST}).run_both()
    assert own.places == [("timed", 0, 9)]
    assert own.offsets == {0: TIMED}
    assert rota.rows == [[], *own.rows]
    assert rota.offsets == {0: per_partition("timed", 9, 5), 1: TIMED}


def test_no_topic_yet(kafka_topics: KafkaTopics, source_pair: SourcePair) -> None:
    streams = source_pair.stream_pair({"subscribePattern": "^later$"})
    own, rota = streams.run_both()
    assert own.refused is None
    assert (own.rows, own.offsets) == ([], {})
    assert (rota.rows, rota.offsets) == ([[]], {0: {}})  # Spark's own can say that there is nothing
    kafka_topics.fill(kafka_topics.create("later"), 3)
    own, rota = streams.run_both()
    assert rota.places == own.places == [("later", 0, offset) for offset in range(3)]
    assert rota.last == own.last == per_partition("later", 3)


def test_all_at_once(source_pair: SourcePair) -> None:
    options = {"subscribe": "skewed", "startingOffsets": skewed_offsets(50, 5, -1)}
    streams = source_pair.stream_pair({**options, "maxOffsetsPerTrigger": "5"})
    seen = streams.run("once")
    assert (seen.count, seen.offsets) == (55, {0: SKEWED})


class LateDriver(Driver):
    """Says what Spark says while its Python starts too slowly."""

    def __init__(self, times: int) -> None:
        self.left = times

    def ask(self, op: str, **fields: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise ClientError(f"[STREAM_FAILED] terminated with exception: {TOO_SLOW}.")
        return op


def test_a_python_that_starts_too_late_is_asked_again_and_told(tmp_path: Path) -> None:
    asked = SourcePair(LateDriver(2), "127.0.0.1:1", tmp_path)
    assert asked.ask("stream", ROTAS, {}) == "stream"
    message = f"[STREAM_FAILED] terminated with exception: {TOO_SLOW}."
    assert asked.repeated == [f"stream by rota: {message}"] * 2
    for times, op in ((REPEATS + 1, "stream"), (1, "drain")):
        with pytest.raises(ClientError, match=TOO_SLOW):
            SourcePair(LateDriver(times), "127.0.0.1:1", tmp_path).ask(op, ROTAS, {})
