"""Topics for the source: logs batch by batch as a Kafka leaves them, and the rows of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rota
from rota.engine.formats.record_batch import (
    BatchRecord,
    ControlRecordType,
    encode_batch,
)
from rota.engine.model.topic import TopicPartition
from rota.spark import option
from rota.spark.plan import OffsetRange
from rota.spark.query import SourceOptions
from rota.spark.task import CLIENT_POOL, read_ranges
from tests.support.transactions import encode_end_transaction_marker

NOW = 1_790_000_000_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
QUICK = {"kafka.retry.backoff.ms": "5", "kafka.reconnect.backoff.ms": "5"}
#: Partition and offset.
Row = tuple[int, int]


def encode_records(offset: int, count: int, *, last: int | None = None, **fields: Any) -> bytes:
    """Records that say where they are, in a batch; it may have none, and offsets up to the last."""
    made = [BatchRecord(at, NOW, b"k", b"%d" % at) for at in range(offset, offset + count)]
    return encode_batch(made, base_offset=offset, last_offset=last, **fields)


def encode_transaction_records(producer: int, offset: int, count: int) -> bytes:
    """Records of a transaction."""
    fields: dict[str, Any] = {"producer_epoch": 0, "base_sequence": offset, "transactional": True}
    return encode_records(offset, count, producer_id=producer, **fields)


def encode_transaction_end(kind: ControlRecordType, producer: int, offset: int) -> bytes:
    """A transaction's end."""
    return encode_end_transaction_marker(
        kind, offset=offset, timestamp=NOW, producer_id=producer, producer_epoch=0
    )


def write_topic(folder: Path, *partitions: Iterable[bytes], topic: str = "t") -> Path:
    """A folder with a topic, to be adopted by a broker."""
    for number, batches in enumerate(partitions):
        place = folder / f"{topic}-{number}"
        place.mkdir(parents=True)
        (place / f"{0:020}.log").write_bytes(b"".join(batches))
    return folder


@contextmanager
def broker_with_topic(folder: Path, *partitions: Iterable[bytes]) -> Iterator[rota.Broker]:
    """A broker with a topic of such partitions, which keeps all of it."""
    write_topic(folder, *partitions)
    with rota.Broker(folder, adopt=True, config={"log.retention.ms": -1}) as broker:
        yield broker


def source_options(servers: str, given: Mapping[str, object] | None = None) -> SourceOptions:
    """What a query asks for."""
    every = {"kafka.bootstrap.servers": servers, "subscribe": "t", **QUICK, **(given or {})}
    return option.parse_options(
        {name: str(value) for name, value in every.items()}, streaming=False
    )


def read_rows(
    servers: str,
    *ranges: tuple[TopicPartition, int, int],
    given: Mapping[str, object] | None = None,
) -> list[dict[str, Any]]:
    """What a task gives that reads these."""
    task = tuple(OffsetRange(*each) for each in ranges)
    batches = read_ranges(task, source_options(servers, given))
    return [row for batch in batches for row in batch.to_pylist()]


def read_offsets(
    servers: str,
    *ranges: tuple[TopicPartition, int, int],
    given: Mapping[str, object] | None = None,
) -> list[Row]:
    """Where its rows are, in their order."""
    return [(row["partition"], row["offset"]) for row in read_rows(servers, *ranges, given=given)]


def close_client_pool() -> None:
    """No link outlives its test."""
    CLIENT_POOL.close()
