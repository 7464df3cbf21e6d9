"""Record batches by example: heads, walking, damage, codecs, compaction, transactions."""

from __future__ import annotations

import struct
import sys
import zlib
from typing import Any

import pytest

from rota.engine.formats import record_batch, record_batch_columns, record_batch_scan
from rota.engine.formats.record_batch import (
    BatchProblemKind,
    BatchRecord,
    CompressionType,
    ControlRecordType,
    decompress,
)
from rota.engine.formats.record_batch_scan import _BatchSearch
from rota.errors import FormatError, InputError
from tests.support.transactions import encode_end_transaction_marker

NOW = 1_790_000_000_000
ONE = BatchRecord(7, NOW, b"key", b"value")
TWO = BatchRecord(8, NOW + 5, None, b"more", ((b"trace", b"1"), (b"empty", None)))
THREE = BatchRecord(9, NOW + 3, b"gone", None)
BATCH = record_batch.encode_batch([ONE, TWO, THREE])


def find_records(data: bytes) -> list[BatchRecord]:
    columns = record_batch_columns.decode_batches(data)
    assert columns.problems == ()
    return list(record_batch_columns.iterate_records(columns))


def find_problems(data: bytes, **options: Any) -> list[tuple[int, int, BatchProblemKind]]:
    problems = record_batch_columns.decode_batches(data, **options).problems
    return [(each.position, each.size, each.kind) for each in problems]


def with_bytes(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def with_new_crc(data: bytes) -> bytes:
    """The same with the checksum that it should have."""
    return with_bytes(data, 17, struct.pack(">I", record_batch.compute_crc32c(data[21:])))


# Heads


def test_a_head_says_what_the_batch_is() -> None:
    raw = record_batch.encode_batch(
        [ONE, THREE],
        base_offset=5,
        last_offset=12,
        codec=CompressionType.GZIP,
        append_time=NOW + 60,
        leader_epoch=3,
        producer_id=11,
        producer_epoch=2,
        base_sequence=40,
        transactional=True,
    )
    header = record_batch.read_batch_header(b"junk" + raw, 4)
    assert (header.size, header.base_offset, header.last_offset) == (len(raw), 5, 12)
    assert (header.codec, header.append_time, header.max_timestamp) == (
        CompressionType.GZIP,
        True,
        NOW + 60,
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 2, 40)
    assert (header.transactional, header.control, header.delete_horizon) == (True, False, None)
    assert (header.leader_epoch, header.record_count) == (3, 2)


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    raw = record_batch.encode_batch([ONE])
    raw = with_new_crc(with_bytes(raw, 21, struct.pack(">h", 0x40)))
    assert record_batch.read_batch_header(raw).delete_horizon == NOW


@pytest.mark.parametrize(
    ("magic", "words"), [(0, "message format 0"), (1, "message format 1"), (9, "magic 9")]
)
def test_a_head_of_another_format_is_refused_by_name(magic: int, words: str) -> None:
    with pytest.raises(FormatError, match=f"at byte 0: {words}"):
        record_batch.read_batch_header(with_bytes(BATCH, 16, bytes([magic])))


def test_a_cut_head_is_refused() -> None:
    with pytest.raises(FormatError, match="61 bytes needed, 60 left"):
        record_batch.read_batch_header(BATCH[:60])


# Walking


def test_a_walk_gives_position_and_size_of_each_batch() -> None:
    sizes = [len(BATCH), 61, len(BATCH)]
    data = BATCH + record_batch.encode_batch([], base_offset=10) + BATCH
    steps = record_batch_scan.find_batches(memoryview(data))
    assert list(steps) == [(0, sizes[0]), (sizes[0], 61), (sizes[0] + 61, sizes[2])]
    assert (steps.end, steps.problems) == (len(data), ())
    assert list(record_batch_scan.find_batches(data, sizes[0])) == list(steps)[1:]


def test_a_batch_cut_anywhere_is_told_with_its_position() -> None:
    for size in range(1, len(BATCH)):
        steps = record_batch_scan.find_batches(BATCH + BATCH[:size])
        assert list(steps) == [(0, len(BATCH))]
        assert steps.end == len(BATCH)
        (problem,) = steps.problems
        assert (problem.position, problem.size) == (len(BATCH), size)
        assert problem.kind is (
            BatchProblemKind.CUT if any(BATCH[:size]) else BatchProblemKind.ZEROS
        )


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From where on the next batch was looked for."""
    places: list[int] = []
    following = _BatchSearch.find_next

    def noted(search: _BatchSearch, at: int) -> int:
        places.append(at)
        return following(search, at)

    monkeypatch.setattr(_BatchSearch, "find_next", noted)
    return places


def test_what_may_end_cut_is_not_searched_for_other_batches(searched: list[int]) -> None:
    for size in range(1, len(BATCH)):
        found = record_batch_scan.find_batches(BATCH + BATCH[:size], may_end_cut=True)
        assert (list(found), found.end) == ([(0, len(BATCH))], len(BATCH))
        (problem,) = found.problems
        assert (problem.position, problem.size) == (len(BATCH), size)
        assert problem.kind in (
            {BatchProblemKind.CUT}
            if any(BATCH[:size])
            else {BatchProblemKind.CUT, BatchProblemKind.ZEROS}
        )
    assert searched == []
    record_batch_scan.find_batches(BATCH + BATCH[:-1])
    assert searched == [len(BATCH) + 1]


def test_a_first_batch_that_is_damaged_is_searched_though_it_may_end_cut(
    searched: list[int],
) -> None:
    raw = with_bytes(BATCH, 8, struct.pack(">i", 10_000)) + BATCH  # its length goes beyond the end
    found = record_batch_scan.find_batches(raw, may_end_cut=True)
    assert list(found) == [(len(BATCH), len(BATCH))]
    ((position, size, flaw),) = [(each.position, each.size, each.kind) for each in found.problems]
    assert (position, size, flaw) == (0, len(BATCH), BatchProblemKind.FRAME)
    assert searched == [1]


def test_what_cannot_be_the_beginning_of_a_batch_is_searched_though_it_may_end_cut(
    searched: list[int],
) -> None:
    short = with_bytes(BATCH, 8, struct.pack(">i", 3))
    odd = with_bytes(BATCH, 16, b"\x05")
    for number, bad in enumerate((short, odd), 1):
        found = record_batch_scan.find_batches(BATCH + bad + BATCH, may_end_cut=True)
        assert [position for position, _ in found] == [0, 2 * len(BATCH)]
        (problem,) = found.problems
        assert (problem.position, problem.size) == (len(BATCH), len(BATCH))
        assert problem.kind is BatchProblemKind.FRAME
        assert len(searched) == number


@pytest.mark.parametrize(
    ("tail", "words"),
    [
        (with_bytes(with_bytes(BATCH, 8, struct.pack(">i", 10_000)), 16, b"\x05"), "magic 5"),
        (with_bytes(BATCH, 8, struct.pack(">i", 10))[:20], "impossible length 10"),
    ],
    ids=["another magic", "a short length"],
)
def test_an_end_that_no_batch_begins_with_is_no_cut_one(tail: bytes, words: str) -> None:
    (problem,) = record_batch_scan.find_batches(BATCH + tail, may_end_cut=True).problems
    assert (problem.position, problem.size) == (len(BATCH), len(tail))
    assert problem.kind is BatchProblemKind.FRAME
    assert words in problem.text


def test_zeros_to_the_end_are_no_batches() -> None:
    assert find_problems(BATCH + bytes(10_000)) == [(len(BATCH), 10_000, BatchProblemKind.ZEROS)]
    assert find_problems(bytes(5)) == [(0, 5, BatchProblemKind.ZEROS)]


def old_message(magic: int) -> bytes:
    body = struct.pack(">bb", magic, 0) + bytes(8 * magic) + struct.pack(">ii", -1, -1)
    return struct.pack(">qiI", 3, 4 + len(body), zlib.crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_named_and_passed_over(magic: int) -> None:
    old = old_message(magic)
    columns = record_batch_columns.decode_batches(BATCH + old * 3 + BATCH, at=1_000)
    (problem,) = columns.problems
    assert (problem.position, problem.size) == (1_000 + len(BATCH), 3 * len(old))
    assert problem.kind is BatchProblemKind.OLD
    assert f"message format {magic}, as before Kafka 0.11" in str(problem)
    assert len(columns) == 6


def test_a_bad_length_costs_one_batch_not_the_rest_of_the_file() -> None:
    other = record_batch.encode_batch([BatchRecord(10, NOW, b"k", b"v" * 9_000)])
    for length in (0, 5, -1, 2**31 - 1, len(other) - 11):
        broken = with_bytes(other, 8, struct.pack(">i", length))
        columns = record_batch_columns.decode_batches(BATCH + broken + BATCH)
        assert [problem.position for problem in columns.problems] == [len(BATCH)]
        assert columns.batches.position.tolist() == [0, len(BATCH) + len(other)]


def test_an_unknown_magic_is_told() -> None:
    assert find_problems(with_bytes(BATCH, 16, b"\3") + BATCH) == [
        (0, len(BATCH), BatchProblemKind.FRAME)
    ]
    assert (
        "magic 3"
        in record_batch_columns.decode_batches(with_bytes(BATCH, 16, b"\3")).problems[0].text
    )


# Records


def test_records_come_back() -> None:
    assert find_records(BATCH) == [ONE, TWO, THREE]


def test_nothing_holds_nothing() -> None:
    columns = record_batch_columns.decode_batches(b"")
    assert (len(columns), len(columns.batches), columns.problems) == (0, 0, ())


def test_a_gap_that_compaction_left_stays() -> None:
    raw = record_batch.encode_batch([THREE], base_offset=2, last_offset=20)
    columns = record_batch_columns.decode_batches(raw)
    assert list(record_batch_columns.iterate_records(columns)) == [THREE]
    batches = columns.batches
    assert (batches.base_offset[0], batches.last_offset[0], batches.count[0]) == (2, 20, 1)


def test_a_batch_that_compaction_emptied_is_there_without_records() -> None:
    raw = record_batch.encode_batch(
        [], base_offset=40, last_offset=44, producer_id=3, producer_epoch=1
    )
    columns = record_batch_columns.decode_batches(BATCH + raw + BATCH)
    assert columns.batches.last_offset.tolist() == [9, 44, 9]
    assert columns.batch.tolist() == [0, 0, 0, 2, 2, 2]
    assert columns.problems == ()


def test_the_brokers_time_counts_where_it_is_asked_for() -> None:
    data = record_batch.encode_batch([ONE, TWO], append_time=NOW + 99) + BATCH
    times = [record.timestamp for record in find_records(data)]
    assert times == [NOW + 99, NOW + 99, NOW, NOW + 5, NOW + 3]


def test_markers_end_transactions() -> None:
    ends = [
        encode_end_transaction_marker(
            kind, offset=number, timestamp=NOW, producer_id=5, producer_epoch=1, coordinator_epoch=9
        )
        for number, kind in enumerate((ControlRecordType.COMMIT, ControlRecordType.ABORT))
    ]
    data = record_batch.encode_batch([ONE], transactional=True, producer_id=5, producer_epoch=1)
    columns = record_batch_columns.decode_batches(data + b"".join(ends))
    batches = columns.batches
    assert batches.marker.tolist() == [-1, ControlRecordType.COMMIT, ControlRecordType.ABORT]
    assert batches.control.tolist() == [False, True, True]
    assert batches.transactional.all()
    assert columns.key(1) == bytes.fromhex("0000 0001")
    assert columns.value(1) == bytes.fromhex("0000 00000009")


def test_many_batches_of_every_length_are_read_together() -> None:
    sizes = [*range(200), *range(200), 5_000, 1, 0, 40_000]
    batches, expected, offset = [], [], 0
    for size in sizes:
        headers = ((b"name", b"x" * (size % 7)),) * (size % 3)
        made = [
            BatchRecord(offset + place, NOW - place * 1_000, b"k" * (place % 200), None, headers)
            for place in range(size)
        ]
        batches.append(record_batch.encode_batch(made, base_offset=offset))
        expected += made
        offset += size
    assert find_records(b"".join(batches)) == expected


def test_timestamps_may_be_as_far_apart_as_64_bits_allow() -> None:
    far = [BatchRecord(0, -(2**62), b"", b""), BatchRecord(1, 2**62 - 2, b"", b"")]
    assert find_records(record_batch.encode_batch(far)) == far


@pytest.mark.parametrize(
    ("records", "options"),
    [
        ([], {}),
        ([TWO, ONE], {}),
        ([ONE, ONE], {}),
        ([ONE], {"base_offset": 8}),
        ([ONE], {"last_offset": 6}),
        ([ONE], {"base_offset": 2**63 - 1}),
        ([ONE, BatchRecord(7 + 2**31, NOW, b"", b"")], {}),
        ([BatchRecord(2**63, NOW, b"", b"")], {}),
        ([ONE], {"producer_id": 2**63}),
        ([BatchRecord(0, -(2**63), b"", b""), BatchRecord(1, 2**63 - 1, b"", b"")], {}),
    ],
)
def test_what_no_batch_can_hold_is_refused(
    records: list[BatchRecord], options: dict[str, int]
) -> None:
    with pytest.raises(FormatError, match="batch"):
        record_batch.encode_batch(records, **options)  # type: ignore[arg-type]


# Damage


def test_a_wrong_checksum_is_told_and_the_others_are_read() -> None:
    broken = with_bytes(BATCH, len(BATCH) - 3, b"?")
    columns = record_batch_columns.decode_batches(BATCH + broken + BATCH, at=500)
    (problem,) = columns.problems
    assert (problem.position, problem.size) == (500 + len(BATCH), len(BATCH))
    assert problem.kind is BatchProblemKind.CHECKSUM
    assert columns.batches.position.tolist() == [500, 500 + 2 * len(BATCH)]
    assert len(columns) == 6


def test_checksums_may_be_left_alone() -> None:
    broken = with_bytes(BATCH, 17, bytes(4))
    assert find_problems(broken) == [(0, len(BATCH), BatchProblemKind.CHECKSUM)]
    assert find_problems(broken, check=False) == []


@pytest.mark.parametrize(
    ("at", "new", "words"),
    [
        (57, struct.pack(">i", 2), "bytes after the last record"),
        (57, struct.pack(">i", 4), "record 3: length"),
        (57, struct.pack(">i", -1), "impossible count -1"),
        (57, struct.pack(">i", 2**31 - 1), "impossible count 2147483647"),
        (61, b"\x01", "record 0: length at byte 1: -1 bytes"),
        (61, b"\x0c", "record 0: key at byte 5: 3 bytes needed, 2 left"),
        (61, b"\x80\x80\x80\x80\x80\x80", "record 0: length at byte 0: a varint past 32 bits"),
        (65, b"\x30", "record 0: key at byte 5: 24 bytes needed, 10 left"),
        (69, b"\x0c", "record 0: headers at byte 15: 1 bytes needed, 0 left"),
    ],
)
def test_records_that_do_not_follow_the_format_are_told(at: int, new: bytes, words: str) -> None:
    broken = with_new_crc(with_bytes(BATCH, at, new))
    columns = record_batch_columns.decode_batches(BATCH + broken + BATCH)
    (problem,) = columns.problems
    assert (problem.position, problem.kind) == (len(BATCH), BatchProblemKind.RECORDS)
    assert words.split(" at byte", maxsplit=1)[0] in problem.text
    assert columns.batches.position.tolist() == [0, 2 * len(BATCH)]
    assert columns.batch.tolist() == [0, 0, 0, 1, 1, 1]


def test_headers_that_no_record_can_have_are_told() -> None:
    """Where no other record has any."""
    raw = record_batch.encode_batch([ONE])
    columns = record_batch_columns.decode_batches(
        with_new_crc(with_bytes(raw, len(raw) - 1, b"\x04"))
    )
    assert [each.text for each in columns.problems] == [
        "record 0: headers at byte 15: impossible count 2"
    ]


# Codecs

COMPRESSED = [codec for codec in CompressionType if codec is not CompressionType.NONE]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_batches_are_read_beside_others(codec: CompressionType) -> None:
    many = [BatchRecord(number, NOW, b"%d" % number, b"v" * 500) for number in range(1_000)]
    raw = record_batch.encode_batch(many, codec=codec)
    assert len(raw) < 100_000
    columns = record_batch_columns.decode_batches(BATCH + raw + BATCH)
    assert list(record_batch_columns.iterate_records(columns)) == [
        ONE,
        TWO,
        THREE,
        *many,
        ONE,
        TWO,
        THREE,
    ]
    assert columns.batches.codec.tolist() == [0, codec, 0]


def test_snappy_without_a_frame_is_read() -> None:
    cramjam = pytest.importorskip("cramjam")
    body = BATCH[61:]
    assert decompress(CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(body))) == body


def test_snappy_streams_may_follow_each_other() -> None:
    raw = record_batch.encode_batch([ONE], codec=CompressionType.SNAPPY)[61:]
    assert decompress(CompressionType.SNAPPY, raw * 2) == record_batch.encode_batch([ONE])[61:] * 2


def test_gzip_members_may_follow_each_other() -> None:
    raw = record_batch.encode_batch([ONE], codec=CompressionType.GZIP)[61:]
    assert decompress(CompressionType.GZIP, raw * 2) == record_batch.encode_batch([ONE])[61:] * 2


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_told(codec: int) -> None:
    raw = with_new_crc(with_bytes(BATCH, 22, bytes([codec])))
    (problem,) = record_batch_columns.decode_batches(raw).problems
    assert problem.kind is BatchProblemKind.CODEC
    assert f"codec {codec} is not known" in problem.text
    assert "3 lz4" in problem.text


@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_bytes_that_are_cut_or_broken_are_told(codec: CompressionType) -> None:
    whole = record_batch.encode_batch(
        [BatchRecord(0, NOW, b"k", bytes(range(256)) * 40)], codec=codec
    )
    for size in (0, 1, 7, len(whole) // 2 - 61, len(whole) - 62):
        cut = with_new_crc(with_bytes(whole[: 61 + size], 8, struct.pack(">i", 49 + size)))
        assert find_problems(cut + BATCH) == [(0, 61 + size, BatchProblemKind.CODEC)]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_would_fill_the_memory_is_told(codec: CompressionType) -> None:
    bomb = record_batch.encode_batch([BatchRecord(0, NOW, b"k", bytes(3_000_000))], codec=codec)
    assert len(bomb) < 300_000
    assert find_problems(bomb + BATCH, max_batch_bytes=2_000_000) == [
        (0, len(bomb), BatchProblemKind.SIZE)
    ]
    assert find_problems(bomb + BATCH, max_batch_bytes=4_000_000) == []


@pytest.mark.parametrize(
    ("library", "codec"),
    [
        ("crc32c", CompressionType.NONE),
        ("cramjam", CompressionType.LZ4),
        ("cramjam", CompressionType.ZSTD),
    ],
)
def test_a_missing_library_is_named_with_how_to_get_it(
    library: str, codec: CompressionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = record_batch.encode_batch([ONE], codec=codec)
    record_batch.load_crc32c.cache_clear()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"{library}: pip install 'rota\[spark\]'"):
        record_batch_columns.decode_batches(raw)
    record_batch.load_crc32c.cache_clear()


def test_gzip_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = record_batch.encode_batch([ONE], codec=CompressionType.GZIP)
    monkeypatch.setitem(sys.modules, "cramjam", None)
    assert find_records(raw) == [ONE]
