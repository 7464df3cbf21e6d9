"""Streams: the same batches from Rota's source as from Spark's own, and the same offsets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.driver_process import ClientError, Driver
from tests.support.spark_limit import TOO_SLOW
from tests.system.spark.beside.case import COMMITTED, EARLIEST, LATEST, LOSE, after, at, timed
from tests.system.spark.beside.shop import Shop
from tests.system.spark.beside.stage import REPEATS, ROTAS, Beside, Options


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream over what is there."""

    name: str
    options: Options
    #: Of each batch.
    rows: list[int]
    #: Of each batch, as the checkpoint has them.
    offsets: list[Any]


def skewed(*offsets: int) -> dict[str, Any]:
    return at("skewed", *offsets)


ORDERS = at("orders", 10, 4, 0)
RETURNS = at("returns", 3)
TIMED = at("timed", 10, 5)
SKEWED = skewed(100, 10, 1)

STREAMS = (
    Stream("topics", {"subscribe": "orders,returns"}, [17], [ORDERS | RETURNS]),
    Stream("a pattern", {"subscribePattern": "^ret"}, [3], [RETURNS]),
    Stream("partitions", {"assign": {"orders": [1]}}, [4], [{"orders": {"1": 4}}]),
    Stream("no records", {"subscribe": "empty"}, [0], [at("empty", 0, 0)]),
    Stream("headers", {"subscribe": "kinds", "includeHeaders": "true"}, [13], [at("kinds", 13)]),
    Stream("by default", {"subscribe": "orders", "startingOffsets": None}, [0], [ORDERS]),
    Stream("latest", {"subscribe": "orders", "startingOffsets": "Latest"}, [0], [ORDERS]),
    Stream(
        "from offsets",
        {"subscribe": "orders", "startingOffsets": at("orders", 3, -1, -2)},
        [7],
        [ORDERS],
    ),
    Stream("from a time", timed(4.5), [7], [TIMED]),
    Stream(
        "from a time for each",
        timed(startingOffsetsByTimestamp=at("timed", after(3), after(6))),
        [9],
        [TIMED],
    ),
    Stream(
        "a time for all rather than for each",
        timed(4.5, startingOffsetsByTimestamp=at("timed", after(3), after(6))),
        [7],
        [TIMED],
    ),
    Stream("a time that means latest", timed(startingTimestamp="-1"), [0], [TIMED]),
    Stream(
        "at most so many",
        {"subscribe": "skewed", "maxOffsetsPerTrigger": "20"},
        [20, 19, 19, 19, 19, 15],
        [
            *(skewed(18, 1, 1), skewed(36, 2, 1), skewed(53, 4, 1)),
            *(skewed(70, 6, 1), skewed(87, 8, 1), SKEWED),
        ],
    ),
    Stream(
        "at most more than there are",
        {"subscribe": "skewed", "maxOffsetsPerTrigger": "1000"},
        [111],
        [SKEWED],
    ),
    Stream(
        "at most so many of topics",
        {"subscribe": "returns,timed", "maxOffsetsPerTrigger": "9"},
        [8, 7, 3],
        [
            at("returns", 1) | at("timed", 5, 2),
            at("returns", 2) | at("timed", 9, 4),
            RETURNS | TIMED,
        ],
    ),
    Stream(
        "at least more than there are",
        {"subscribe": "skewed", "minOffsetsPerTrigger": "1000"},
        [111],
        [SKEWED],
    ),
    Stream(
        "at least and at most",
        {"subscribe": "skewed", "minOffsetsPerTrigger": "50", "maxOffsetsPerTrigger": "60"},
        [60, 51],
        [skewed(54, 5, 1), SKEWED],
    ),
    Stream(
        "at least more than are left",
        {"subscribe": "skewed", "minOffsetsPerTrigger": "60", "maxOffsetsPerTrigger": "60"},
        [60],
        [skewed(54, 5, 1)],
    ),
    Stream(
        "but no longer than so long",
        {
            "subscribe": "skewed",
            "minOffsetsPerTrigger": "60",
            "maxOffsetsPerTrigger": "60",
            "maxTriggerDelay": "1ms",
        },
        [60, 51],
        [skewed(54, 5, 1), SKEWED],
    ),
    Stream("committed transactions", {"subscribe": "ledger", **COMMITTED}, [6], [at("ledger", 16)]),
    Stream(
        "before an open transaction", {"subscribe": "pending", **COMMITTED}, [2], [at("pending", 2)]
    ),
    Stream(
        "markers and aborted ones alone in a batch",
        {"subscribe": "ledger", **COMMITTED, "maxOffsetsPerTrigger": "4"},
        [3, 0, 3, 0],
        [at("ledger", 4), at("ledger", 8), at("ledger", 12), at("ledger", 16)],
    ),
    Stream(
        "gaps",
        {"subscribe": "compacted", "maxOffsetsPerTrigger": "4"},
        [1, 1, 3, 4],
        [at("compacted", 4), at("compacted", 8), at("compacted", 12), at("compacted", 16)],
    ),
    Stream("after retention", {"subscribe": "aged"}, [14], [at("aged", 10, 10)]),
    Stream(
        "from before retention",
        {"subscribe": "aged", "startingOffsets": at("aged", 2, 0), **LOSE},
        [14],
        [at("aged", 10, 10)],
    ),
    Stream(
        "from past the end",
        {"subscribe": "orders", "startingOffsets": at("orders", 30, 0, 0), **LOSE},
        [4],
        [ORDERS],
    ),
    Stream("many tasks", {"subscribe": "skewed", "minPartitions": "10"}, [111], [SKEWED]),
    Stream("small tasks", {"subscribe": "skewed", "maxRecordsPerPartition": "30"}, [111], [SKEWED]),
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
def test_same_batches(case: Stream, beside: Beside) -> None:
    seen = beside.stream({**EARLIEST, **case.options})
    assert list(map(len, seen.rows)) == case.rows
    assert [seen.offsets[batch] for batch in sorted(seen.offsets)] == case.offsets


def test_times_that_may_mean_the_end_have_a_batch_of_their_own(beside: Beside) -> None:
    """Spark's own keeps what they mean in a file that a source in Python cannot reach."""
    own, rota = beside.twins({**timed(8.5), **LATEST}).both()
    assert own.places == [("timed", 0, 9)]
    assert own.offsets == {0: TIMED}
    assert rota.rows == [[], *own.rows]
    assert rota.offsets == {0: at("timed", 9, 5), 1: TIMED}


def test_no_topic_yet(shop: Shop, beside: Beside) -> None:
    twins = beside.twins({"subscribePattern": "^later$"})
    own, rota = twins.both()
    assert own.refused is None
    assert (own.rows, own.offsets) == ([], {})
    assert (rota.rows, rota.offsets) == ([[]], {0: {}})  # Spark's own can say that there is nothing
    shop.fill(shop.create("later"), 3)
    own, rota = twins.both()
    assert rota.places == own.places == [("later", 0, offset) for offset in range(3)]
    assert rota.last == own.last == at("later", 3)


def test_all_at_once(beside: Beside) -> None:
    options = {"subscribe": "skewed", "startingOffsets": skewed(50, 5, -1)}
    twins = beside.twins({**options, "maxOffsetsPerTrigger": "5"})
    seen = twins.run("once")
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
    asked = Beside(LateDriver(2), "127.0.0.1:1", tmp_path)
    assert asked.ask("stream", ROTAS, {}) == "stream"
    said = f"[STREAM_FAILED] terminated with exception: {TOO_SLOW}."
    assert asked.repeated == [f"stream by rota: {said}"] * 2
    for times, op in ((REPEATS + 1, "stream"), (1, "drain")):
        with pytest.raises(ClientError, match=TOO_SLOW):
            Beside(LateDriver(times), "127.0.0.1:1", tmp_path).ask(op, ROTAS, {})
