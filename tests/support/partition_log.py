"""A partition's log for tests: batches as producers send them, and what is in a log, read as by a
consumer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rota.broker.storage.disk import Disk
from rota.broker.storage.log import Log
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import (
    BatchRecord,
    CompressionType,
    encode_batch,
    read_batch_header,
)
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.engine.formats.record_batch_scan import find_batches
from rota.engine.model.config import TopicConfig

NOW = 1_700_000_000_000
FOLDER = "t-0"
ID = bytes(range(16))


def producer_batch(*values: bytes, at: int = NOW, **fields: Any) -> bytes:
    """A batch as a producer sends it: a record for each value, a millisecond apart."""
    return encode_batch(
        [BatchRecord(row, at + row, b"k", value) for row, value in enumerate(values)], **fields
    )


def batch_of_size(size: int, at: int = NOW, codec: CompressionType = CompressionType.NONE) -> bytes:
    """Returns a batch of one record whose value has ``size`` bytes."""
    return producer_batch(bytes(size), at=at, codec=codec)


class ReportedEvents(list[str]):
    """What the log reports."""

    def __call__(self, text: str) -> None:
        self.append(text)


def create_log(disk: Disk, told: ReportedEvents | None = None, **options: Any) -> Log:
    config = options.pop("config", TopicConfig())
    return Log.create(
        disk,
        FOLDER,
        ID,
        config,
        now=NOW,
        report=told if told is not None else ReportedEvents(),
        **options,
    )


def reopen_log(
    disk: Disk,
    told: ReportedEvents | None = None,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    **options: Any,
) -> Log:
    config = options.pop("config", TopicConfig())
    return Log.open(
        disk,
        FOLDER,
        config,
        clean=clean,
        recovery_point=recovery_point,
        report=told if told is not None else ReportedEvents(),
        now=options.pop("now", NOW),
        **options,
    )


def read_batches(log: Log, at: int | None = None, budget: int = 1 << 20) -> list[bytes]:
    """All batches from an offset on, as a consumer gets them that goes on behind the last."""
    found: list[bytes] = []
    offset = log.log_start_offset if at is None else at
    while data := log.read(offset, budget):
        found += split_batches(data)
        offset = read_batch_header(found[-1]).last_offset + 1
    return found


def split_batches(data: Bytes) -> list[bytes]:
    walked = find_batches(data)
    assert not walked.problems
    return [bytes(data[position : position + size]) for position, size in walked]


def read_values(log: Log, at: int | None = None) -> list[tuple[int, bytes | None]]:
    """Offsets and values of all records."""
    found = iterate_records(decode_batches(b"".join(read_batches(log, at))))
    return [(record.offset, record.value) for record in found]


def base_offsets(data: Bytes) -> list[int]:
    """The base offsets of the batches of an answer."""
    return [read_batch_header(each).base_offset for each in split_batches(data)]


def log_files(disk: Any) -> Sequence[str]:
    """Of a faulty disk: the segments' logs, in order."""
    return [path for path in disk.paths() if path.endswith(".log")]
