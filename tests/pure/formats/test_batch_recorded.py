"""Record batches as a broker wrote them: every record, and what Kafka's own tool said of them."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from collections import Counter, defaultdict

import pytest

from rota.engine.formats import journal, record_batch, record_batch_columns, record_batch_scan
from rota.engine.formats.record_batch import (
    BatchRecord,
    CompressionType,
    ControlRecordType,
    RecordReader,
)
from rota.engine.model.journal_entry import OffsetCommitEntry, OffsetCommitTombstone
from tests.support.journal_entries import read_commit_row
from tests.support.recorded_segment import RECORDED, journal_segments, read_dump, segments

#: Records that the broker wrote after the consumer of the recording was stopped.
LATER = 2


def read_consumed_records() -> dict[int, dict[int, BatchRecord]]:
    """Every record that a consumer read, by partition and offset."""
    found: dict[int, dict[int, BatchRecord]] = defaultdict(dict)
    with gzip.open(RECORDED / "offsets.jsonl.gz", "rt") as lines:
        for row in map(json.loads, lines):
            value = None if row["v"] is None else b64decode(row["v"])
            record = BatchRecord(row["o"], row["ts"], b64decode(row["k"]), value)
            found[row["p"]][record.offset] = record
    return found


def test_segments_hold_what_a_consumer_read() -> None:
    later = 0
    for partition, expected in read_consumed_records().items():
        columns = record_batch_columns.decode_batches(journal_segments()[partition])
        assert columns.problems == ()
        control = columns.batches.control[columns.batch].tolist()
        found = {
            record.offset: record
            for record, marks in zip(
                record_batch_columns.iterate_records(columns), control, strict=True
            )
            if not marks
        }
        later += len(found.keys() - expected.keys())
        assert {offset: found.get(offset) for offset in expected} == expected
    assert later == LATER


def batch_line(
    columns: record_batch_columns.RecordColumns, row: int, header: record_batch.BatchHeader
) -> str:
    """A batch as kafka-dump-log prints it."""
    batches = columns.batches
    base, delta = header.base_sequence, header.last_offset_delta
    words = {
        "baseOffset": batches.base_offset[row],
        "lastOffset": batches.last_offset[row],
        "count": batches.count[row],
        "baseSequence": batches.base_sequence[row],
        "lastSequence": base + delta if base >= 0 else -1,
        "producerId": batches.producer_id[row],
        "producerEpoch": batches.producer_epoch[row],
        "partitionLeaderEpoch": batches.leader_epoch[row],
        "isTransactional": str(batches.transactional[row]).lower(),
        "isControl": str(batches.control[row]).lower(),
        "deleteHorizonMs": "OptionalLong.empty" if header.delete_horizon is None else "there",
        "position": batches.position[row],
        "LogAppendTime" if batches.append_time[row] else "CreateTime": batches.max_timestamp[row],
        "size": batches.size[row],
        "magic": header.magic,
        "compresscodec": CompressionType(batches.codec[row]).name.lower(),
        "crc": header.checksum,
        "isvalid": "true",
    }
    return " ".join(f"{name}: {value}" for name, value in words.items())


def record_line(columns: record_batch_columns.RecordColumns, row: int) -> str:
    """The front of a record's line; what follows depends on the decoder."""
    base = int(columns.batches.base_sequence[columns.batch[row]])
    first = int(columns.batches.base_offset[columns.batch[row]])
    sequence = base + int(columns.offset[row]) - first if base >= 0 else -1
    return (
        f"| offset: {columns.offset[row]} CreateTime: {columns.timestamp[row]} "
        f"keySize: {columns.key_size[row]} valueSize: {columns.value_size[row]} "
        f"sequence: {sequence} headerKeys: []"
    )


@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("mix-0", "mix-0.txt.gz"),
        *((f"__consumer_offsets-{each}", f"dump-{each}.txt.gz") for each in (12, 23, 47, 49)),
    ],
)
def test_batches_and_records_are_what_kafkas_tool_printed(folder: str, file: str) -> None:
    data = segments()[folder]
    columns = record_batch_columns.decode_batches(data)
    lines = iter(read_dump(file))
    row = 0
    for number in range(len(columns.batches)):
        header = record_batch.read_batch_header(data, int(columns.batches.position[number]))
        assert next(lines) == batch_line(columns, number, header)
        for _ in range(int(columns.batches.count[number])):
            assert next(lines).startswith(record_line(columns, row))
            row += 1
    assert row == len(columns)
    assert list(lines) == []


def test_keys_and_values_of_every_codec_are_what_kafkas_tool_printed() -> None:
    columns = record_batch_columns.decode_batches(segments()["mix-0"])
    printed = [line for line in read_dump("mix-0.txt.gz") if line.startswith("|")]
    for record, line in zip(record_batch_columns.iterate_records(columns), printed, strict=True):
        assert record.key is not None
        assert record.value is not None
        assert line.endswith(f" key: {record.key.decode()} payload: {record.value.decode()}")
    assert set(columns.batches.codec.tolist()) == set(CompressionType)


def test_transactions_end_as_kafkas_tool_printed() -> None:
    batches = record_batch_columns.decode_batches(segments()["__consumer_offsets-49"]).batches
    printed = re.findall(r"endTxnMarker: (\w+)", "\n".join(read_dump("dump-49.txt.gz")))
    assert [
        ControlRecordType(kind).name for kind in batches.marker[batches.control].tolist()
    ] == printed
    assert Counter(printed) == {"COMMIT": 58, "ABORT": 19}
    assert set(batches.marker[~batches.control].tolist()) == {-1}


def test_uncompressed_batches_are_written_as_the_broker_wrote_them() -> None:
    written = 0
    for data in segments().values():
        for position, size in record_batch_scan.find_batches(data):
            raw = data[position : position + size]
            header = record_batch.read_batch_header(raw)
            if header.codec == CompressionType.NONE:
                written += 1
                assert rewrite_header(raw, header) == raw
    assert written > 7_000


def rewrite_header(raw: bytes, header: record_batch.BatchHeader) -> bytes:
    return record_batch.encode_batch(
        record_batch_columns.iterate_records(record_batch_columns.decode_batches(raw)),
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.transactional,
        control=header.control,
    )


def test_columns_are_what_the_reader_of_single_batches_reads() -> None:
    for data in segments().values():
        found = record_batch_columns.iterate_records(record_batch_columns.decode_batches(data))
        for position, size in record_batch_scan.find_batches(data):
            header = record_batch.read_batch_header(data, position)
            if header.codec == CompressionType.NONE:
                body = RecordReader(data, position + 61, position + size)
                base = header.base_offset, header.base_timestamp
                for record in body.read_records(header.record_count, *base):
                    assert next(found) == record
            else:
                for _ in range(header.record_count):
                    next(found)
        assert list(found) == []


# The journal's records


def test_offsets_as_columns_are_what_the_decoder_of_single_records_reads() -> None:
    read = 0
    for data in journal_segments().values():
        columns = record_batch_columns.decode_batches(data)
        entries = journal.decode_batch_entries(columns)
        assert len(entries.undecoded_rows) == 0
        offsets = set()
        for number, row in enumerate(entries.commits.row.tolist()):
            offsets.add(row)
            entry = journal.decode_record(columns.key(row) or b"", columns.value(row))
            assert read_commit_row(entries, number) == entry
        read += len(offsets)
        for row in set(range(len(columns))) - offsets:
            check_other(columns, entries, row)
    assert read == 34_736 + 7 + LATER


def check_other(
    columns: record_batch_columns.RecordColumns, entries: journal.EntryColumns, row: int
) -> None:
    if columns.batches.control[columns.batch[row]]:
        assert (entries.type[row], entries.group[row]) == (journal.NO_TYPE, journal.NO_GROUP)
        return
    key = columns.key(row)
    assert key is not None
    entry = journal.decode_record(key, columns.value(row))
    assert not isinstance(entry, OffsetCommitEntry | OffsetCommitTombstone)
    assert entries.type[row] == int.from_bytes(key[:2])
    # the group is the first name of every key, of share groups too
    group = key[4 : 4 + int.from_bytes(key[2:4])].decode()
    assert entries.groups[entries.group[row]] == group == getattr(entry, "group", group)


def test_every_recorded_group_is_met() -> None:
    groups = set()
    for data in journal_segments().values():
        groups |= set(
            journal.decode_batch_entries(record_batch_columns.decode_batches(data)).groups
        )
    assert len(groups) == 35
    assert "a-share" in groups
