"""Whatever a log looks like and however it is split into tasks, its rows are those of a plain
reading of it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.engine.formats.record_batch import CompressionType, ControlRecordType
from rota.engine.model.topic import TopicPartition
from rota.spark.plan import OffsetRange, plan_tasks
from rota.spark.query import SourceOptions
from rota.spark.task import read_ranges
from tests.support.examples import examples
from tests.support.spark_topic import (
    broker_with_topic,
    close_client_pool,
    encode_records,
    encode_transaction_end,
    source_options,
)

PRODUCERS = 2


@dataclass(frozen=True)
class PartitionLog:
    """A partition: its batches, and which records a reader sees."""

    batches: list[bytes]
    end: int
    #: Where the first open transaction begins.
    stable: int
    #: Offsets of all records but markers.
    every: list[int]
    aborted: frozenset[int]
    markers: frozenset[int]

    def visible_offsets(self, kind: str) -> list[tuple[int, bool]]:
        """Offsets, and whether they are markers."""
        match kind:
            case "read_committed":
                found = [at for at in self.every if at < self.stable and at not in self.aborted]
                return [(at, False) for at in found]
            case "read_uncommitted":
                return [(at, False) for at in self.every]
            case _:
                return sorted(
                    [(at, False) for at in self.every] + [(at, True) for at in self.markers]
                )


@st.composite
def draw_log(draw: st.DrawFn) -> PartitionLog:
    """Batches of every codec, of transactions or not, with gaps, and some without records."""
    at, every, markers, aborted = 0, [], [], set()
    batches: list[bytes] = []
    running: dict[int, list[int]] = {}
    for _ in range(draw(st.integers(0, 12))):
        kind = draw(st.sampled_from(["plain", "plain", "part", "part", "end", "empty"]))
        producer = draw(st.integers(0, PRODUCERS - 1))
        count = draw(st.sampled_from([1, 2, 5, 40]))
        hole = draw(st.sampled_from([0, 0, 0, 3]))
        offsets = list(range(at, at + count))
        common: dict[str, Any] = {
            "codec": draw(st.sampled_from(CompressionType)),
            "last": at + count - 1 + hole,
        }
        match kind:
            case "plain":
                batches.append(encode_records(at, count, **common))
                every += offsets
                at += count + hole
            case "part":
                fields = {"producer_epoch": 0, "base_sequence": at, "transactional": True}
                batches.append(encode_records(at, count, producer_id=producer, **common, **fields))
                running.setdefault(producer, []).extend(offsets)
                every += offsets
                at += count + hole
            case "end" if producer in running:
                how = draw(st.sampled_from(ControlRecordType))
                batches.append(encode_transaction_end(how, producer, at))
                part = running.pop(producer)
                aborted |= set(part) if how is ControlRecordType.ABORT else set()
                markers.append(at)
                at += 1
            case "empty":
                batches.append(encode_records(at, 0, last=at + hole))
                at += 1 + hole
    stable = min((each[0] for each in running.values()), default=at)
    return PartitionLog(batches, at, stable, every, frozenset(aborted), frozenset(markers))


def read_offsets(
    task: tuple[OffsetRange, ...], options: SourceOptions
) -> list[tuple[int, int, bool]]:
    rows = [row for batch in read_ranges(task, options) for row in batch.to_pylist()]
    for row in rows:
        assert row.get("control") or row["value"] == b"%d" % row["offset"]
    return [(row["partition"], row["offset"], row.get("control", False)) for row in rows]


@examples(10)
@settings(max_examples=90, deadline=None)
@given(st.data())
def test_the_rows_of_all_tasks_are_those_of_the_log(draws: st.DataObject) -> None:
    every = draws.draw(st.lists(draw_log(), min_size=1, max_size=3))
    kind = draws.draw(st.sampled_from(["read_committed", "read_uncommitted", "batch info"]))
    asked: dict[str, object] = {
        "kafka.max.partition.fetch.bytes": draws.draw(st.sampled_from([1, 300, 1 << 20]))
    }
    if kind == "batch info":
        asked["includeBatchInfo"] = "true"
    else:
        asked["kafka.isolation.level"] = kind
    ranges, expected = [], []
    for number, log in enumerate(every):
        last = log.stable if kind == "read_committed" else log.end
        start, until = sorted((draws.draw(st.integers(0, last)), draws.draw(st.integers(0, last))))
        ranges.append(OffsetRange(TopicPartition("t", number), start, until))
        seen = [(at, mark) for at, mark in log.visible_offsets(kind) if start <= at < until]
        expected += [(number, at, mark) for at, mark in seen]
    split = plan_tasks(
        ranges,
        slots=draws.draw(st.integers(1, 3)),
        least=draws.draw(st.none() | st.integers(1, 9)),
        most_records=draws.draw(st.none() | st.integers(5, 50)),
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        broker_with_topic(Path(folder), *(log.batches for log in every)) as broker,
    ):
        options = source_options(broker.bootstrap_servers, asked)
        try:
            rows = [row for task in split for row in read_offsets(task, options)]
        finally:
            close_client_pool()
    assert sorted(rows) == sorted(expected)
