"""Logs for the tests of compaction: written batch by batch, read back as plain records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rota.broker.storage.compaction import MAX_KEYS, CompactionSteps, compact_log, inspect_log
from rota.broker.storage.log import Log
from rota.broker.storage.log_segment import segment_path
from rota.engine.formats.record_batch import BatchRecord, encode_batch
from rota.engine.formats.record_batch_columns import RecordColumns, decode_batches, iterate_records
from rota.engine.model.config import TopicConfig
from tests.support.faulty_disk import FaultyDisk

NOW = 1_790_000_000_000
FOLDER = "t-0"
COMPACTED = TopicConfig(
    cleanup_policy="compact", delete_retention=1_000, segment_bytes=400, index_interval=64
)

Pairs = Sequence[tuple[str | None, str | None]]


def batch(offset: int, pairs: Pairs, *, time: int = NOW, **options: Any) -> bytes:
    """One batch, a record for each key and value."""
    made = [
        BatchRecord(offset + row, time + row, _bytes(key), _bytes(value))
        for row, (key, value) in enumerate(pairs)
    ]
    return encode_batch(made, **options)


def write_log(
    segments: Iterable[Iterable[bytes]],
    config: TopicConfig = COMPACTED,
    disk: FaultyDisk | None = None,
) -> Log:
    """A log out of the batches of its segments; one more, empty, is written to."""
    disk = disk or FaultyDisk()
    disk.put(f"{FOLDER}/partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")
    disk.put(f"{FOLDER}/leader-epoch-checkpoint", b"0\n1\n0 0\n")
    base = 0
    for batches in segments:
        data = list(batches)
        disk.put(segment_path(FOLDER, base, "log"), b"".join(data))
        base = int(decode_batches(data[-1]).batches.last_offset[0]) + 1
    disk.put(segment_path(FOLDER, base, "log"), b"")
    log = open_log(disk, config)
    log.flush()
    return log


def open_log(
    disk: FaultyDisk, config: TopicConfig = COMPACTED, said: list[str] | None = None
) -> Log:
    """As after a crash, all of it looked through."""
    report = (lambda text: None) if said is None else said.append
    return Log.open(disk, FOLDER, config, recovery_point=0, clean=False, report=report, now=NOW)


def run_compaction(
    log: Log, now: int = NOW, *, point: int | None = None, max_keys: int = MAX_KEYS
) -> int | None:
    """Runs a whole pass; gives the offset up to which it went."""
    return run_steps(compact_log(log, inspect_log(log, point, now), now, max_keys=max_keys))


def run_steps(work: CompactionSteps) -> int | None:
    """What a pass gives in the end."""
    found: list[int | None] = []

    def whole() -> Iterator[None]:
        found.append((yield from work))

    for _ in whole():
        pass
    return found[0]


def read_columns(log: Log) -> RecordColumns:
    """All that a reader gets."""
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        found = log.read(offset, 1 << 20)
        if not found:
            break
        data += found
        offset = int(decode_batches(found).batches.last_offset[-1]) + 1
    read = decode_batches(data)
    assert read.problems == ()
    return read


def read_records(log: Log) -> list[BatchRecord]:
    """All records that a reader gets, without markers."""
    read = read_columns(log)
    kept = ~read.batches.control[read.batch]
    return [
        record for record, data in zip(iterate_records(read), kept.tolist(), strict=True) if data
    ]


def read_record_texts(log: Log) -> list[tuple[int, str | None, str | None]]:
    """The same, for the eye."""
    return [(each.offset, _text(each.key), _text(each.value)) for each in read_records(log)]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()
