"""Kafka's primitive types: a reader that never reads past the end, and a writer.

In flexible versions (KIP-482) a length is an unsigned varint of the length plus one, and 0 is null.
Tagged fields follow each structure; a reader skips unknown tags.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence

from rota.engine.model.text import MAX_STRING_BYTES
from rota.errors import FormatError

LONGEST_VARINT = 5
UUID_SIZE = 16
ZERO_UUID = bytes(UUID_SIZE)  # Kafka's value for "no UUID"
_INT8, _INT16 = struct.Struct(">b"), struct.Struct(">h")
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")


def _number_reader(form: struct.Struct) -> Callable[[PrimitiveReader, str], int]:
    """Makes a method, which is faster than one method for all sizes."""

    def read(self: PrimitiveReader, field: str) -> int:
        value: int
        try:
            (value,) = form.unpack_from(self.data, self.offset)
        except struct.error:
            raise self.too_short(form.size, field) from None
        self.offset += form.size
        return value

    return read


class PrimitiveReader:
    """Reads big-endian values one after the other; every error names the field and its offset."""

    __slots__ = ("data", "flexible", "offset", "subject")

    def __init__(self, data: bytes, subject: str, offset: int = 0) -> None:
        self.data = data
        self.subject = subject
        self.offset = offset
        self.flexible = False  # the next fields are those of a flexible version

    @property
    def remaining(self) -> int:
        return len(self.data) - self.offset

    def error(self, field: str, problem: str, at: int | None = None) -> FormatError:
        return FormatError(
            f"{self.subject}: {field} at byte {self.offset if at is None else at}: {problem}"
        )

    def _advance(self, size: int, field: str) -> int:
        start = self.offset
        if size > len(self.data) - start:
            raise self.too_short(size, field)
        self.offset = start + size
        return start

    def _bytes(self, size: int, field: str) -> bytes:
        start = self._advance(size, field)
        return self.data[start : start + size]

    def too_short(self, size: int, field: str) -> FormatError:
        return self.error(field, f"{size} bytes needed, {self.remaining} left")

    def expect_end(self) -> None:
        if self.remaining:
            raise self.error("end", f"{self.remaining} bytes too many")

    int8, int16 = _number_reader(_INT8), _number_reader(_INT16)
    int32, int64 = _number_reader(_INT32), _number_reader(_INT64)

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
        return self._bytes(UUID_SIZE, field)

    def count(self, field: str, smallest: int) -> int:
        """Reads the length of an array; refuses one that the remaining bytes cannot hold."""
        at = self.offset
        count = self.nullable_count(field, smallest)
        if count is None:
            raise self.error(field, "null where an array is needed", at)
        return count

    def nullable_count(self, field: str, smallest: int) -> int | None:
        """Reads the length of an array in the same way; None for null in flexible versions."""
        at = self.offset
        count = self.unsigned_varint(field) - 1 if self.flexible else self.int32(field)
        return (
            None if count < 0 and self.flexible else self._check_count(count, field, smallest, at)
        )

    def _check_count(self, count: int, field: str, smallest: int, at: int) -> int:
        if not 0 <= count <= self.remaining // smallest:
            raise self.error(field, f"impossible count {count}, {self.remaining} bytes left", at)
        return count

    def nullable_string(self, field: str) -> str | None:
        at = self.offset
        size = self.unsigned_varint(field) - 1 if self.flexible else self.int16(field)
        if size < 0:
            return None
        if size > MAX_STRING_BYTES:
            raise self.error(field, f"text of {size} bytes, at most {MAX_STRING_BYTES} fit", at)
        data = self._bytes(size, field)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.error(field, f"not UTF-8 ({error.reason})", at) from None

    def string(self, field: str) -> str:
        at = self.offset
        text = self.nullable_string(field)
        if text is None:
            raise self.error(field, "null where text is needed", at)
        return text

    def nullable_bytes(self, field: str) -> bytes | None:
        size = self.unsigned_varint(field) - 1 if self.flexible else self.int32(field)
        return None if size < 0 else self._bytes(size, field)

    def bytes_not_null(self, field: str) -> bytes:
        at = self.offset
        data = self.nullable_bytes(field)
        if data is None:
            raise self.error(field, "null where bytes are needed", at)
        return data

    def int32s(self, field: str) -> tuple[int, ...]:
        return self._int32s(self.count(field, 4), field)

    def nullable_int32s(self, field: str) -> tuple[int, ...] | None:
        count = self.nullable_count(field, 4)
        return None if count is None else self._int32s(count, field)

    def _int32s(self, count: int, field: str) -> tuple[int, ...]:
        return struct.unpack_from(f">{count}i", self.data, self._advance(4 * count, field))

    def packed_int32s(self, field: str) -> bytes:
        return self._bytes(4 * self.count(field, 4), field)

    def tags(self) -> Iterator[tuple[int, int]]:
        """Yields each tagged field and its end, to which the caller moves; none if not flexible."""
        if not self.flexible:
            return
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


def _number_writer(form: struct.Struct) -> Callable[[PrimitiveWriter, int], None]:
    pack = form.pack

    def write(self: PrimitiveWriter, value: int) -> None:
        try:
            self.out += pack(value)
        except struct.error:
            raise self.out_of_range(value, 8 * form.size) from None

    return write


class PrimitiveWriter:
    __slots__ = ("flexible", "out", "subject")

    def __init__(self, subject: str, *, flexible: bool = False) -> None:
        self.out = bytearray()
        self.subject = subject
        self.flexible = flexible

    def to_bytes(self) -> bytes:
        return bytes(self.out)

    int8, int16 = _number_writer(_INT8), _number_writer(_INT16)
    int32, int64 = _number_writer(_INT32), _number_writer(_INT64)

    def out_of_range(self, value: object, bits: int) -> FormatError:
        return FormatError(f"{self.subject}: {value!r} does not fit {bits} bits")

    def count(self, number: int) -> None:
        """Writes the length of an array or of bytes; -1: null."""
        if self.flexible:
            self.unsigned_varint(number + 1)
        else:
            self.int32(number)

    def unsigned_varint(self, value: int) -> None:
        if value < 128:
            self.out.append(value)
        else:
            self.out += encode_unsigned_varint(value)

    def uuid(self, value: bytes) -> None:
        if len(value) != UUID_SIZE:
            raise FormatError(f"{self.subject}: a UUID has {UUID_SIZE} bytes, not {len(value)}")
        self.out += value

    def string(self, text: str | None) -> None:
        if not self.flexible:
            self.out += _INT16.pack(-1) if text is None else encode_string(text, self.subject)
        elif text is None:
            self.out.append(0)
        else:
            data = encode_utf8(text, self.subject)
            self.unsigned_varint(len(data) + 1)
            self.out += data

    def nullable_bytes(self, data: bytes | None) -> None:
        self.count(-1 if data is None else len(data))
        self.out += data or b""

    def int32s(self, values: Sequence[int] | None) -> None:
        self.count(-1 if values is None else len(values))
        values = values or ()
        try:
            self.out += struct.pack(f">{len(values)}i", *values)
        except struct.error:
            raise self.out_of_range(values, 32) from None

    def tag(self, number: int, field: bytes) -> None:
        """Writes a tagged field from its encoded bytes, after the number of fields."""
        self.unsigned_varint(number)
        self.unsigned_varint(len(field))
        self.out += field


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
