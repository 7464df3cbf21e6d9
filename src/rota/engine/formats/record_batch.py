"""Record batches (magic 2), one at a time: header, checksum, compression, encoding and decoding.

The header has 61 bytes and is never compressed::

    base offset        int64   of the first record; compaction may have removed that record
    length             int32   of everything after this field
    leader epoch       int32   the only field after the length that the checksum does not cover
    magic              int8    2
    checksum           uint32  CRC-32C, from the attributes to the end
    attributes         int16   bits 0-2 compression type, 3 timestamps are log append times,
                               4 transactional, 5 control, 6 base timestamp is the delete horizon
    last offset delta  int32   kept by compaction, so that no offset looks missing
    base timestamp     int64
    max timestamp      int64   with log append time: the timestamp of every record
    producer id        int64   -1: none
    producer epoch     int16
    base sequence      int32
    count              int32   of the records present; 0 where compaction left none

Compressed records are written as Kafka's own producer does: gzip, snappy in the framing of
snappy-java ("xerial"), lz4 and zstd frames. Snappy without a frame, as librdkafka writes it, is
read too. Decompression has an upper limit of its output. Checksums need ``crc32c``; snappy, lz4 and
zstd need ``cramjam``; both come with ``rota[spark]``.

Many batches at once: record_batch_scan.py finds them, record_batch_columns.py decodes them.
"""

from __future__ import annotations

import enum
import functools
import importlib
import importlib.util
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from types import ModuleType
from typing import NamedTuple

import numpy as np

from rota.engine.formats.buffer import Bytes
from rota.engine.formats.primitive import encode_unsigned_varint
from rota.errors import FormatError, InputError

MAGIC = 2
HEADER = struct.Struct(">qiibIhiqqqhii")
LENGTH_FIELD = struct.Struct(">i")
CRC_FIELD = struct.Struct(">I")
LENGTH_OFFSET, MAGIC_OFFSET, CRC_OFFSET, ATTRIBUTES_OFFSET = 8, 16, 17, 21

LOG_OVERHEAD = 12  # bytes that the length does not count
SHORTEST_BATCH_LENGTH = HEADER.size - LOG_OVERHEAD  # that of an empty batch
SHORTEST_MESSAGE_LENGTH = 14  # the least length of a message of magic 0
COMPRESSION_CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_FLAG_MASK = 0x10
CONTROL_FLAG_MASK = 0x20
DELETE_HORIZON_FLAG_MASK = 0x40


class CompressionType(enum.IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class ControlRecordType(enum.IntEnum):
    ABORT = 0
    COMMIT = 1


class BatchHeader(NamedTuple):
    """The 13 fields as they are stored, in the order of :data:`HEADER`."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LOG_OVERHEAD + self.length

    @property
    def last_offset(self) -> int:
        """The batch's last offset, even if its record was compacted away."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """A :class:`CompressionType`, or an unknown number."""
        return self.attributes & COMPRESSION_CODEC_MASK

    @property
    def append_time(self) -> bool:
        """The max timestamp is the timestamp of all records."""
        return bool(self.attributes & TIMESTAMP_TYPE_MASK)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG_MASK)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG_MASK)

    @property
    def delete_horizon(self) -> int | None:
        """When compaction may remove the tombstones, if it has set that."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG_MASK else None


#: The same for many batches at once.
HEADER_DTYPE = np.dtype(
    [(name, f">{kind}") for name, kind in zip(BatchHeader._fields, HEADER.format[1:], strict=True)]
)


def read_batch_header(data: Bytes, position: int = 0) -> BatchHeader:
    """Reads a header; raises FormatError if it is cut or not of magic 2."""
    if not 0 <= position <= len(data) - HEADER.size:
        left = max(len(data) - position, 0)
        raise FormatError(f"batch at byte {position}: {HEADER.size} bytes needed, {left} left")
    header = BatchHeader._make(HEADER.unpack_from(data, position))
    if header.magic != MAGIC:
        raise FormatError(f"batch at byte {position}: {describe_magic(header.magic)}")
    return header


def describe_magic(magic: int) -> str:
    if magic in {0, 1}:
        return f"message format {magic}, as before Kafka 0.11; only format 2 is read"
    return f"magic {magic} is unknown"


class BatchProblemKind(enum.StrEnum):
    CUT = "cut"  # the last batch is incomplete, as in a file that is still written
    ZEROS = "zeros"  # zeros to the end of the file: it was preallocated, or there was a power cut
    OLD = "old format"  # messages of magic 0 or 1
    FRAME = "frame"  # no batch begins here
    CHECKSUM = "checksum"
    CODEC = "codec"  # the codec is unknown, or cannot decompress the bytes
    SIZE = "size"  # the decompressed bytes exceed the limit
    RECORDS = "records"  # the records do not follow the format


@dataclass(frozen=True, slots=True)
class BatchProblem:
    """A range of bytes without readable records."""

    position: int
    size: int
    kind: BatchProblemKind
    text: str  # the problem in words, without the position

    def __str__(self) -> str:
        return f"at byte {self.position}, {self.size} bytes: {self.text}"


def load_optional_library(name: str, purpose: str, extra: str = "spark") -> ModuleType:
    """Imports an optional library; raises InputError that names the extra of Rota to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise InputError(f"{purpose} needs {name}: pip install 'rota[{extra}]'") from error


CRC32C_LIBRARY = "crc32c"


@functools.cache
def load_crc32c() -> Callable[[Bytes], int]:
    """Returns the CRC-32C function, for callers that need it for every batch."""
    library = _load_c_extension() or load_optional_library(
        CRC32C_LIBRARY, "the checksum of record batches"
    )
    found: Callable[[Bytes], int] = library.crc32c
    return found


def compute_crc32c(data: Bytes) -> int:
    return load_crc32c()(data)


def _load_c_extension() -> ModuleType | None:
    """Loads the C extension alone, if there is one: the rest delays a broker's start by a tenth."""
    package = None if CRC32C_LIBRARY in sys.modules else importlib.util.find_spec(CRC32C_LIBRARY)
    places = None if package is None else package.submodule_search_locations
    spec = (
        None
        if places is None
        else PathFinder.find_spec(f"{CRC32C_LIBRARY}._{CRC32C_LIBRARY}", places)
    )
    if spec is None or spec.loader is None:
        return None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made if hasattr(made, CRC32C_LIBRARY) else None


MAX_DECOMPRESSED_SIZE = 1 << 27  # decompressed bytes of a batch: many times brokers' limit
GZIP_WINDOW_BITS = 31  # zlib's window bits for gzip with the largest window
GZIP_CHUNK_SIZE = 1 << 14  # bytes read at a time: zlib copies those after the end of a member
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest compatible version
XERIAL_BLOCK_SIZE = 32 * 1024
#: First guess of the ratio of uncompressed to compressed size; later attempts use a larger one.
ASSUMED_COMPRESSION_RATIO = 4
ZSTD_LEVEL = 3  # the default level of Kafka's producer
CRAMJAM_BUFFER_FULL = "failed to write whole buffer"  # cramjam's, if the output is too small
_BLOCK_SIZE_FIELD = struct.Struct(">i")


class DecompressedTooLarge(Exception):
    """The decompressed bytes would exceed the limit."""


def decompress(codec: int, data: Bytes, most: int = MAX_DECOMPRESSED_SIZE) -> bytes:
    """:raises FormatError: the codec is unknown, or cannot decompress the bytes
    :raises DecompressedTooLarge: the result has more than ``most`` bytes
    """
    if codec not in CODECS:
        names = ", ".join(f"{each.value} {each.name.lower()}" for each in CompressionType)
        raise FormatError(f"codec {codec} is not known ({names})")
    return CODECS[codec][1](data, most)


def compress(codec: int, data: bytes) -> bytes:
    return CODECS[codec][0](data)


def _load_cramjam(codec: str) -> ModuleType:
    return load_optional_library("cramjam", f"{codec} compression")


def _copy_uncompressed(data: Bytes, most: int) -> bytes:
    if len(data) > most:
        raise DecompressedTooLarge
    return bytes(data)


def _decompress_gzip(data: Bytes, most: int) -> bytes:
    found: list[bytes] = []
    view = memoryview(data)
    at = 0
    try:
        while at < len(view):
            member = zlib.decompressobj(GZIP_WINDOW_BITS)
            while not member.eof:
                piece = view[at : at + GZIP_CHUNK_SIZE]
                if not piece:
                    raise FormatError("gzip: incomplete")
                at += len(piece)
                found.append(member.decompress(piece, most + 1))
                most -= len(found[-1])
                if most < 0:
                    raise DecompressedTooLarge
            at -= len(member.unused_data)
    except zlib.error as error:
        raise FormatError(f"gzip: {error}") from None
    if not found:
        raise FormatError("gzip: incomplete")
    return b"".join(found)


def _compress_gzip(data: bytes) -> bytes:
    member = zlib.compressobj(wbits=GZIP_WINDOW_BITS)
    return member.compress(data) + member.flush()


def _frame_decompressor(name: str) -> Callable[[Bytes, int], bytes]:
    """Returns a decompressor for frames that need not state their size."""

    def decompressed(data: Bytes, most: int) -> bytes:
        library = _load_cramjam(name)
        into = getattr(library, name).decompress_into
        room = min(max(ASSUMED_COMPRESSION_RATIO * len(data), 1 << 12), most)
        while True:
            out = bytearray(room)
            try:
                size = into(data, out)
            except library.DecompressionError as error:
                if CRAMJAM_BUFFER_FULL not in str(error):
                    raise FormatError(f"{name}: {error}") from None
                if room == most:
                    raise DecompressedTooLarge from None
                room = min(ASSUMED_COMPRESSION_RATIO * room, most)
            else:
                return bytes(memoryview(out)[:size])

    return decompressed


def _decompress_snappy(data: Bytes, most: int) -> bytes:
    library = _load_cramjam("snappy")
    try:
        if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
            return _decompress_snappy_block(library, data, most)
        return b"".join(_decompress_xerial_blocks(library, data, most))
    except library.DecompressionError as error:
        raise FormatError(str(error)) from None


def _decompress_xerial_blocks(library: ModuleType, data: Bytes, most: int) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at < len(data):
        if bytes(data[at : at + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:  # of a further stream
            at += len(XERIAL_HEADER)
            continue
        if len(data) - at < _BLOCK_SIZE_FIELD.size:
            raise FormatError("snappy: a block's size is cut")
        (size,) = _BLOCK_SIZE_FIELD.unpack_from(data, at)
        at += _BLOCK_SIZE_FIELD.size
        if not 0 <= size <= len(data) - at:
            raise FormatError(f"snappy: a block of {size} bytes, {len(data) - at} left")
        found.append(_decompress_snappy_block(library, data[at : at + size], most))
        most -= len(found[-1])
        at += size
    if at > len(data):
        raise FormatError("snappy: the header is cut")
    return found


def _decompress_snappy_block(library: ModuleType, data: Bytes, most: int) -> bytes:
    snappy = library.snappy
    if not data:
        raise FormatError("snappy: empty")
    size = snappy.decompress_raw_len(data)
    if size > most:
        raise DecompressedTooLarge
    out = bytearray(size)
    if snappy.decompress_raw_into(data, out) != size:
        raise FormatError("snappy: shorter than declared")
    return bytes(out)


def _compress_snappy(data: bytes) -> bytes:
    snappy = _load_cramjam("snappy").snappy
    out = [XERIAL_HEADER]
    for begin in range(0, len(data), XERIAL_BLOCK_SIZE):
        block = bytes(snappy.compress_raw(data[begin : begin + XERIAL_BLOCK_SIZE]))
        out += [_BLOCK_SIZE_FIELD.pack(len(block)), block]
    return b"".join(out)


def _compress_lz4(data: bytes) -> bytes:
    """Compresses to independent blocks: Kafka reads no others."""
    frame = _load_cramjam("lz4").lz4.Compressor(content_checksum=False, block_linked=False)
    frame.compress(data)
    return bytes(frame.finish())


def _compress_zstd(data: bytes) -> bytes:
    return bytes(_load_cramjam("zstd").zstd.compress(data, level=ZSTD_LEVEL))


#: The functions that compress and decompress, by :class:`CompressionType`.
CODECS: Mapping[int, tuple[Callable[[bytes], bytes], Callable[[Bytes, int], bytes]]] = {
    CompressionType.NONE: (bytes, _copy_uncompressed),
    CompressionType.GZIP: (_compress_gzip, _decompress_gzip),
    CompressionType.SNAPPY: (_compress_snappy, _decompress_snappy),
    CompressionType.LZ4: (_compress_lz4, _frame_decompressor("lz4")),
    CompressionType.ZSTD: (_compress_zstd, _frame_decompressor("zstd")),
}

NO_TIMESTAMP = -1
MAX_INT64 = (1 << 63) - 1

#: A control record's key: version and type; and its value: version and coordinator epoch.
MARKER_KEY, MARKER_VALUE = struct.Struct(">hh"), struct.Struct(">hi")

_SHORT_VARINT_LIMIT = 1 << 13  # numbers from 0 to here are looked up: two bytes each at most


class BatchRecord(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()  # names: UTF-8, but Kafka does not check


def encode_batch(  # noqa: PLR0913, each is a field of the header
    records: Iterable[BatchRecord],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    codec: CompressionType = CompressionType.NONE,
    append_time: int | None = None,
    leader_epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    delete_horizon: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """Encodes records in the order of their offsets, with gaps as compaction leaves them.
    ``base_offset`` and ``last_offset`` count if the first or last record was removed;
    ``append_time`` is every record's timestamp. Without records ``max_timestamp`` is the header's.
    """
    kept = list(records)
    first, last = _check_offsets(kept, base_offset, last_offset)
    timestamps = [record.timestamp for record in kept]
    base_timestamp = timestamps[0] if timestamps else NO_TIMESTAMP
    if delete_horizon is not None:
        base_timestamp = delete_horizon
    last_time = max(timestamps, default=NO_TIMESTAMP if max_timestamp is None else max_timestamp)
    if last_time - min(timestamps, default=last_time) >= MAX_INT64:
        raise FormatError(f"batch at offset {first}: timestamps are too far apart")
    body = b"".join([_encode_record(record, first, base_timestamp) for record in kept])
    if not kept:  # Kafka too writes such batches without a codec
        codec = CompressionType.NONE
    body = compress(codec, body)
    attributes = (
        int(codec)
        | (TIMESTAMP_TYPE_MASK if append_time is not None else 0)
        | (TRANSACTIONAL_FLAG_MASK if transactional else 0)
        | (CONTROL_FLAG_MASK if control else 0)
        | (DELETE_HORIZON_FLAG_MASK if delete_horizon is not None else 0)
    )
    header = BatchHeader(
        base_offset=first,
        length=HEADER.size - LOG_OVERHEAD + len(body),
        leader_epoch=leader_epoch,
        magic=MAGIC,
        checksum=0,
        attributes=attributes,
        last_offset_delta=last - first,
        base_timestamp=base_timestamp,
        max_timestamp=last_time if append_time is None else append_time,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(kept),
    )
    return _add_checksum(header, body)


def reencode_batch(
    header: BatchHeader, body: bytes, *, record_count: int, max_timestamp: int
) -> bytes:
    """Encodes a batch again with some of its records, ``body``, which is not compressed."""
    body = compress(header.codec, body)
    header = header._replace(
        length=HEADER.size - LOG_OVERHEAD + len(body),
        max_timestamp=max_timestamp,
        record_count=record_count,
    )
    return _add_checksum(header, body)


def _add_checksum(header: BatchHeader, body: bytes) -> bytes:
    try:
        batch = bytearray(HEADER.pack(*header))
    except struct.error as error:
        raise FormatError(
            f"batch at offset {header.base_offset}: a field does not fit: {error}"
        ) from None
    batch += body
    CRC_FIELD.pack_into(batch, CRC_OFFSET, compute_crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]))
    return bytes(batch)


def _check_offsets(
    records: Sequence[BatchRecord], base_offset: int | None, last_offset: int | None
) -> tuple[int, int]:
    if base_offset is None:
        if not records:
            raise FormatError("batch: without records it needs a base offset")
        base_offset = records[0].offset
    if last_offset is None:
        last_offset = records[-1].offset if records else base_offset
    before = base_offset - 1
    for record in records:
        if record.offset <= before:
            raise FormatError(f"batch: offset {record.offset} after {before}")
        before = record.offset
    if last_offset < max(before, base_offset):
        raise FormatError(f"batch: last offset {last_offset} before {max(before, base_offset)}")
    if last_offset > MAX_INT64:
        raise FormatError(f"batch: offset {last_offset} does not fit 64 bits")
    return base_offset, last_offset


def _encode_record(record: BatchRecord, base_offset: int, base_timestamp: int) -> bytes:
    fields = [
        b"\0",  # attributes, none of which is in use
        encode_varint(record.timestamp - base_timestamp),
        encode_varint(record.offset - base_offset),
        *_encode_bytes(record.key),
        *_encode_bytes(record.value),
        encode_varint(len(record.headers)),
    ]
    for name, value in record.headers:
        fields += [*_encode_bytes(name), *_encode_bytes(value)]
    body = b"".join(fields)
    return encode_varint(len(body)) + body


def _encode_bytes(data: bytes | None) -> tuple[bytes, bytes]:
    return (_NULL_LENGTH, b"") if data is None else (encode_varint(len(data)), data)


def encode_varint(value: int) -> bytes:
    """Encodes a signed number: zigzag, then seven bits to the byte, the lowest first."""
    if 0 <= value < _SHORT_VARINT_LIMIT:
        return _SHORT_VARINTS[value]
    return encode_unsigned_varint(value << 1 if value >= 0 else ~(value << 1))


_SHORT_VARINTS = [
    *(bytes((value << 1,)) for value in range(1 << 6)),
    *(bytes((value << 1 & 127 | 128, value >> 6)) for value in range(1 << 6, _SHORT_VARINT_LIMIT)),
]

_NULL_LENGTH = encode_unsigned_varint(1)
SMALLEST_RECORD = 7

RecordHeaders = tuple[tuple[bytes, bytes | None], ...]


class RecordReader:
    """Reads the records of a batch; every error names the record, the field and its offset.

    A record; all numbers after the attributes are zigzag varints (the first one of 64 bits)::

        length             of everything after this field
        attributes         int8, unused
        timestamp delta    from the batch's base timestamp
        offset delta       from the batch's base offset
        key                length, bytes; -1: null
        value              length, bytes; -1: null
        headers            count; of each: name length, name, value length (-1: null), value
    """

    __slots__ = ("at", "data", "limit", "record")

    def __init__(self, data: Bytes, at: int = 0, limit: int | None = None) -> None:
        self.data = data
        self.at = at
        self.limit = len(data) if limit is None else limit
        self.record = 0

    def read_records(self, count: int, base_offset: int, base_timestamp: int) -> list[BatchRecord]:
        """Reads all records; raises FormatError if they are malformed, or if bytes follow them."""
        end = self.limit
        if not 0 <= count <= (end - self.at) // SMALLEST_RECORD:
            raise FormatError(f"impossible count {count}, {end - self.at} bytes left")
        found = []
        for self.record in range(count):
            self.limit = end
            size = self._varint("length")
            if not 0 <= size <= end - self.at:
                raise self._error("length", f"{size} bytes, {end - self.at} left")
            self.limit = self.at + size
            found.append(self._read(base_offset, base_timestamp))
        if self.at != end:
            raise FormatError(f"{end - self.at} bytes after the last record")
        return found

    def _read(self, base_offset: int, base_timestamp: int) -> BatchRecord:
        self._advance(1, "attributes")
        timestamp = base_timestamp + self._varint("timestamp delta", 64)
        offset = base_offset + self._varint("offset delta")
        key = self._bytes("key")
        value = self._bytes("value")
        record = BatchRecord(
            _wrap_int64(offset), _wrap_int64(timestamp), key, value, self._headers()
        )
        if self.at != self.limit:
            raise self._error("end", f"{self.limit - self.at} bytes too many")
        return record

    def _headers(self) -> RecordHeaders:
        count = self._varint("headers")
        if not 0 <= count <= self.limit - self.at:
            raise self._error("headers", f"impossible count {count}")
        return read_record_headers(self, count)

    def read_header(self) -> tuple[bytes, bytes | None]:
        name = self._bytes("header name")
        if name is None:
            raise self._error("header name", "null")
        return name, self._bytes("header value")

    def locate_header(self) -> tuple[int, int, int, int]:
        """Returns start and size of the name, then of the value; size -1 is null."""
        return *self._locate_bytes("header name"), *self._locate_bytes("header value")

    def _error(self, field: str, problem: str) -> FormatError:
        return FormatError(f"record {self.record}: {field} at byte {self.at}: {problem}")

    def _advance(self, size: int, field: str) -> int:
        start = self.at
        if size > self.limit - start:
            raise self._error(field, f"{size} bytes needed, {self.limit - start} left")
        self.at = start + size
        return start

    def _varint(self, field: str, bits: int = 32) -> int:
        start = self.at
        value = shift = 0
        while True:
            byte = self.data[self._advance(1, field)]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128 and value < 1 << bits:
                return value >> 1 ^ -(value & 1)
            if byte < 128 or shift >= bits:
                self.at = start
                raise self._error(field, f"a varint past {bits} bits")

    def _bytes(self, field: str) -> bytes | None:
        start, size = self._locate_bytes(field)
        return None if size < 0 else bytes(self.data[start : start + size])

    def _locate_bytes(self, field: str) -> tuple[int, int]:
        size = self._varint(field)
        return (self.at, -1) if size < 0 else (self._advance(size, field), size)


def read_record_headers(body: RecordReader, count: int) -> RecordHeaders:
    return tuple([body.read_header() for _ in range(count)])


def _wrap_int64(value: int) -> int:
    """Adds like Java: the largest 64-bit number is followed by the smallest."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
