"""Segments that Rota wrote, as Kafka's own DumpLogSegments reads them."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from rota.engine.formats import journal, record_batch, record_batch_columns
from rota.engine.formats.record_batch import BatchRecord, CompressionType, ControlRecordType
from rota.engine.model.journal_entry import OffsetCommitEntry
from tests.support import kafka as broker
from tests.support.process import run_command
from tests.support.transactions import encode_end_transaction_marker
from tests.system.kafka.oracle import PATIENCE

NOW = 1_790_000_000_000
SEGMENT = f"{0:020d}.log"


def dump_segment(folder: Path, data: bytes, *options: str) -> list[str]:
    """What the tool prints of a segment, without the lines in front."""
    file = folder / SEGMENT
    file.write_bytes(data)
    broker.install_kafka()
    command = broker.kafka_command(
        "org.apache.kafka.tools.DumpLogSegments", "--files", str(file), *options
    )
    return run_command(*command, seconds=PATIENCE).checked().lines[2:]


def make_records(first: int, codec: CompressionType) -> list[BatchRecord]:
    """Small and large ones, gaps, nulls, headers, times that go back."""
    sizes = [0, 1, 63, 64, 8_191, 8_192, 70_000]
    return [
        BatchRecord(
            first + place + place // 3,
            NOW + 1_000 * (place % 4) - place,
            None if place == 2 else b"%s-%d" % (codec.name.encode(), place),
            None if place == 5 else b"v" * size,
            ((b"origin", b"rota"), (b"empty", None))[: place % 3],
        )
        for place, size in enumerate(sizes)
    ]


@cache
def make_batches() -> list[tuple[list[BatchRecord], bytes]]:
    """A batch for each codec, as a transaction and not, then the broker's time."""
    found: list[tuple[list[BatchRecord], bytes]] = []
    offset = 0
    for codec in CompressionType:
        for transactional in (False, True):
            made = make_records(offset, codec)
            raw = record_batch.encode_batch(
                made,
                base_offset=offset,
                last_offset=made[-1].offset + 2,
                codec=codec,
                leader_epoch=4,
                producer_id=17 if transactional else -1,
                producer_epoch=3 if transactional else -1,
                base_sequence=100 if transactional else -1,
                transactional=transactional,
            )
            found.append((made, raw))
            offset = made[-1].offset + 3
    made = make_records(offset, CompressionType.NONE)
    found.append((made, record_batch.encode_batch(made, append_time=NOW + 77)))
    return found


RECORD = re.compile(
    r"\| offset: (\d+) (\w+): (\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+) "
    r"headerKeys: \[([\w,]*)\](?: key: (.*?))?(?: payload: (.*))?"
)


def test_every_record_is_read_by_kafka(tmp_path: Path) -> None:
    lines = iter(
        dump_segment(tmp_path, b"".join(raw for _, raw in make_batches()), "--print-data-log")
    )
    for made, raw in make_batches():
        header = record_batch.read_batch_header(raw)
        printed = next(lines)
        assert printed.endswith("isvalid: true"), printed
        assert f"count: {len(made)} " in printed
        assert f"lastOffset: {header.last_offset} " in printed
        assert f"isTransactional: {str(header.transactional).lower()} " in printed
        assert f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch}" in printed
        assert f"compresscodec: {CompressionType(header.codec).name.lower()} " in printed
        for record in made:
            check_record(next(lines), record, header)
    assert list(lines) == []


def check_record(line: str, record: BatchRecord, header: record_batch.BatchHeader) -> None:
    found = RECORD.fullmatch(line)
    assert found, line
    base = header.base_sequence
    assert found.groups() == (
        str(record.offset),
        "LogAppendTime" if header.append_time else "CreateTime",
        str(header.max_timestamp if header.append_time else record.timestamp),
        str(-1 if record.key is None else len(record.key)),
        str(-1 if record.value is None else len(record.value)),
        str(-1 if base < 0 else base + record.offset - header.base_offset),
        ",".join(name.decode() for name, _ in record.headers),
        None if record.key is None else record.key.decode(),
        None if record.value is None else record.value.decode(),
    )


def test_markers_and_emptied_batches_are_read_by_kafka(tmp_path: Path) -> None:
    transaction = {"producer_id": 9, "producer_epoch": 2, "timestamp": NOW}
    data = b"".join(
        [
            record_batch.encode_batch(
                [], base_offset=0, last_offset=6, producer_id=9, producer_epoch=2
            ),
            encode_end_transaction_marker(
                ControlRecordType.COMMIT, offset=7, coordinator_epoch=5, **transaction
            ),
            encode_end_transaction_marker(ControlRecordType.ABORT, offset=8, **transaction),
        ]
    )
    empty, *lines = dump_segment(tmp_path, data, "--print-data-log")
    assert "baseOffset: 0 lastOffset: 6 count: 0 " in empty
    assert all("isControl: true" in line and "isvalid: true" in line for line in lines[::2])
    assert [line.partition("endTxnMarker: ")[2] for line in lines[1::2]] == [
        "COMMIT coordinatorEpoch: 5",
        "ABORT coordinatorEpoch: 0",
    ]


def test_a_journal_that_rota_wrote_is_read_by_kafka(tmp_path: Path) -> None:
    commits = [
        OffsetCommitEntry(
            group=f"group-{number % 3}",
            topic="orders",
            partition=number,
            offset=number * 10,
            commit_timestamp=NOW + number,
        )
        for number in range(20)
    ]
    made = [BatchRecord(at, NOW, *journal.encode_entry(entry)) for at, entry in enumerate(commits)]
    data = b"".join(record_batch.encode_batch(made[at : at + 3]) for at in range(0, len(made), 3))
    lines = [line for line in dump_segment(tmp_path, data, "--offsets-decoder") if line[0] == "|"]
    for entry, line in zip(commits, lines, strict=True):
        assert f'"group":"{entry.group}","topic":"orders","partition":{entry.partition}' in line
        assert f'"offset":{entry.offset},' in line


def test_what_kafka_finds_invalid_is_told(tmp_path: Path) -> None:
    good = record_batch.encode_batch([BatchRecord(0, NOW, b"key", b"value")])
    broken = good[:-2] + b"?" + good[-1:]
    assert "isvalid: false" in dump_segment(tmp_path, good + broken)[1]
    (problem,) = record_batch_columns.decode_batches(good + broken).problems
    assert (problem.position, problem.kind) == (len(good), record_batch.BatchProblemKind.CHECKSUM)
