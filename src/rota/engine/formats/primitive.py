"""Kafka's primitive types: a reader that never reads past the end, and a writer.

*Compact* forms are those of flexible versions (KIP-482): a length is an unsigned varint of the
length plus one, and 0 is null. Tagged fields follow each structure; a reader skips those whose tag
it does not know.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence

from rota.engine.model.text import MAX_STRING_BYTES
from rota.errors import FormatError

LONGEST_VARINT = 5
UUID_SIZE = 16
#: Kafka's value for "no UUID".
ZERO_UUID = bytes(UUID_SIZE)
_INT8, _INT16 = struct.Struct(">b"), struct.Struct(">h")
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")


class PrimitiveReader:
    """Reads big-endian values one after the other; every error names the field and its offset."""

    __slots__ = ("data", "offset", "subject")

    def __init__(self, data: bytes, subject: str, offset: int = 0) -> None:
        self.data = data
        self.subject = subject
        self.offset = offset

    @property
    def remaining(self) -> int:
        return len(self.data) - self.offset

    def error(self, field: str, problem: str, at: int | None = None) -> FormatError:
        """Returns an error about a field, at an offset or at the current position."""
        return FormatError(
            f"{self.subject}: {field} at byte {self.offset if at is None else at}: {problem}"
        )

    def _advance(self, size: int, field: str) -> int:
        start = self.offset
        if size > len(self.data) - start:
            raise self._too_short(size, field)
        self.offset = start + size
        return start

    def _too_short(self, size: int, field: str) -> FormatError:
        return self.error(field, f"{size} bytes needed, {self.remaining} left")

    def _number(self, form: struct.Struct, field: str) -> int:
        value: int
        try:
            (value,) = form.unpack_from(self.data, self.offset)
        except struct.error:
            raise self._too_short(form.size, field) from None
        self.offset += form.size
        return value

    def expect_end(self) -> None:
        """Raises FormatError if bytes are left."""
        if self.remaining:
            raise self.error("end", f"{self.remaining} bytes too many")

    def int8(self, field: str) -> int:
        return self._number(_INT8, field)

    def int16(self, field: str) -> int:
        return self._number(_INT16, field)

    def int32(self, field: str) -> int:
        return self._number(_INT32, field)

    def int64(self, field: str) -> int:
        return self._number(_INT64, field)

    def unsigned_varint(self, field: str) -> int:
        """Seven bits to the byte, the lowest first; at most 32 bits."""
        at = self.offset
        value = 0
        for shift in range(0, 7 * LONGEST_VARINT, 7):
            byte = self.data[self._advance(1, field)]
            value |= (byte & 127) << shift
            if byte < 128:
                if value >= 2**32:
                    break
                return value
        raise self.error(field, "a varint past 32 bits", at)

    def uuid(self, field: str) -> bytes:
        start = self._advance(UUID_SIZE, field)
        return self.data[start : start + UUID_SIZE]

    def count(self, field: str, smallest: int) -> int:
        """The length of an array whose elements take at least ``smallest`` bytes each.

        A count that the remaining bytes cannot hold is refused here, before anything is allocated.
        """
        at = self.offset
        return self._check_count(self.int32(field), field, smallest, at)

    def nullable_compact_count(self, field: str, smallest: int) -> int | None:
        """Reads the length of a compact array, checked in the same way; None for null."""
        at = self.offset
        count = self.unsigned_varint(field) - 1
        return None if count < 0 else self._check_count(count, field, smallest, at)

    def compact_count(self, field: str, smallest: int) -> int:
        at = self.offset
        count = self.nullable_compact_count(field, smallest)
        if count is None:
            raise self.error(field, "null where an array is needed", at)
        return count

    def _check_count(self, count: int, field: str, smallest: int, at: int) -> int:
        if not 0 <= count <= self.remaining // smallest:
            raise self.error(field, f"impossible count {count}, {self.remaining} bytes left", at)
        return count

    def nullable_string(self, field: str) -> str | None:
        """Reads text with a 16-bit length; a negative length is null."""
        at = self.offset
        size = self.int16(field)
        return None if size < 0 else self._text(size, field, at)

    def string(self, field: str) -> str:
        at = self.offset
        size = self.int16(field)
        if size < 0:
            raise self.error(field, "null where text is needed", at)
        return self._text(size, field, at)

    def nullable_compact_string(self, field: str) -> str | None:
        at = self.offset
        size = self.unsigned_varint(field) - 1
        if size > MAX_STRING_BYTES:
            raise self.error(field, f"text of {size} bytes, at most {MAX_STRING_BYTES} fit", at)
        return None if size < 0 else self._text(size, field, at)

    def compact_string(self, field: str) -> str:
        at = self.offset
        text = self.nullable_compact_string(field)
        if text is None:
            raise self.error(field, "null where text is needed", at)
        return text

    def _text(self, size: int, field: str, at: int) -> str:
        start = self._advance(size, field)
        try:
            return self.data[start : start + size].decode()
        except UnicodeDecodeError as error:
            raise self.error(field, f"not UTF-8 ({error.reason})", at) from None

    def nullable_bytes(self, field: str) -> bytes | None:
        """Reads bytes with a 32-bit length; a negative length is null."""
        size = self.int32(field)
        if size < 0:
            return None
        start = self._advance(size, field)
        return self.data[start : start + size]

    def bytes_not_null(self, field: str) -> bytes:
        at = self.offset
        data = self.nullable_bytes(field)
        if data is None:
            raise self.error(field, "null where bytes are needed", at)
        return data

    def compact_bytes(self, field: str) -> bytes:
        at = self.offset
        size = self.unsigned_varint(field) - 1
        if size < 0:
            raise self.error(field, "null where bytes are needed", at)
        start = self._advance(size, field)
        return self.data[start : start + size]

    def int32s(self, count: int, field: str) -> tuple[int, ...]:
        return struct.unpack_from(f">{count}i", self.data, self._advance(4 * count, field))

    def packed_int32s(self, field: str) -> bytes:
        """Reads an array of signed 32-bit integers as bytes."""
        size = 4 * self.count(field, 4)
        start = self._advance(size, field)
        return self.data[start : start + size]

    def tags(self) -> Iterator[tuple[int, int]]:
        """The tagged fields: the tag of each, and where the field ends.

        The reader stands at the field. Whoever asks reads it whole, or moves on to its end.
        """
        at = self.offset
        count = self.unsigned_varint("tagged fields")
        for _ in range(self._check_count(count, "tagged fields", 2, at)):
            tag = self.unsigned_varint("tag")
            field = f"tag {tag}"
            size = self.unsigned_varint(field)
            start = self._advance(size, field)
            self.offset = start
            yield tag, start + size
            if self.offset != start + size:
                raise self.error(field, f"{self.offset - start} bytes read of {size}", start)

    def skip_tags(self) -> None:
        for _, end in self.tags():
            self.offset = end


class PrimitiveWriter:
    """Writes big-endian values one after the other."""

    __slots__ = ("_out", "subject")

    def __init__(self, subject: str) -> None:
        self._out = bytearray()
        self.subject = subject

    def to_bytes(self) -> bytes:
        return bytes(self._out)

    def int8(self, value: int) -> None:
        try:
            self._out += _INT8.pack(value)
        except struct.error:
            raise self._out_of_range(value, 8) from None

    def int16(self, value: int) -> None:
        self._out += _INT16.pack(value)

    def int32(self, value: int) -> None:
        try:
            self._out += _INT32.pack(value)
        except struct.error:
            raise self._out_of_range(value, 32) from None

    def int64(self, value: int) -> None:
        try:
            self._out += _INT64.pack(value)
        except struct.error:
            raise self._out_of_range(value, 64) from None

    def _out_of_range(self, value: object, bits: int) -> FormatError:
        return FormatError(f"{self.subject}: {value!r} does not fit {bits} bits")

    def unsigned_varint(self, value: int) -> None:
        self._out += encode_unsigned_varint(value)

    def uuid(self, value: bytes) -> None:
        if len(value) != UUID_SIZE:
            raise FormatError(f"{self.subject}: a UUID has {UUID_SIZE} bytes, not {len(value)}")
        self._out += value

    def string(self, text: str | None) -> None:
        self._out += _INT16.pack(-1) if text is None else encode_string(text, self.subject)

    def nullable_bytes(self, data: bytes | None) -> None:
        self.int32(-1 if data is None else len(data))
        self._out += data or b""

    def int32s(self, values: Sequence[int]) -> None:
        self.int32(len(values))
        self._out += struct.pack(f">{len(values)}i", *values)

    def compact_string(self, text: str) -> None:
        self.compact_bytes(encode_utf8(text, self.subject))

    def nullable_compact_string(self, text: str | None) -> None:
        if text is None:
            self._out.append(0)
        else:
            self.compact_string(text)

    def compact_bytes(self, data: bytes) -> None:
        self.unsigned_varint(len(data) + 1)
        self._out += data

    def compact_int32s(self, values: Sequence[int]) -> None:
        self.unsigned_varint(len(values) + 1)
        try:
            self._out += struct.pack(f">{len(values)}i", *values)
        except struct.error:
            raise self._out_of_range(values, 32) from None

    def tag(self, number: int, field: bytes) -> None:
        """Writes a tagged field from its encoded bytes, after the number of fields."""
        self.unsigned_varint(number)
        self.unsigned_varint(len(field))
        self._out += field


def uuid_to_text(value: bytes) -> str:
    """Returns a UUID as Kafka shows it: in base64."""
    return urlsafe_b64encode(value).decode().rstrip("=")


def uuid_from_text(text: str) -> bytes:
    """:raises FormatError: the text is not a UUID in base64"""
    try:
        found = urlsafe_b64decode(text + "==")
    except ValueError:
        found = b""
    if len(found) != UUID_SIZE:
        raise FormatError(f"{text!r} is not a UUID")
    return found


def encode_unsigned_varint(value: int) -> bytes:
    """Encodes seven bits to the byte, the lowest first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_string(text: str, subject: str) -> bytes:
    data = encode_utf8(text, subject)
    return _INT16.pack(len(data)) + data


def encode_utf8(text: str, subject: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"{subject}: {text!r} has no UTF-8 form ({error.reason})") from None
    if len(data) > MAX_STRING_BYTES:
        raise FormatError(
            f"{subject}: {text[:20]!r}... takes {len(data)} bytes, at most {MAX_STRING_BYTES} fit"
        )
    return data
