"""Kafka's primitive types: a reader that never reads past the end, and a writer."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from rota.errors import FormatError

LONGEST_STRING = 2**15 - 1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class Reader:
    """Reads big-endian values one after the other; every error names the field and its offset."""

    __slots__ = ("data", "offset", "subject")

    def __init__(self, data: bytes, subject: str, offset: int = 0) -> None:
        self.data = data
        self.subject = subject
        self.offset = offset

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return len(self.data) - self.offset

    def error(self, field: str, problem: str, at: int | None = None) -> FormatError:
        """An error about a field, at an offset or where the reader stands."""
        return FormatError(
            f"{self.subject}: {field} at byte {self.offset if at is None else at}: {problem}"
        )

    def _step(self, size: int, field: str) -> int:
        start = self.offset
        if size > len(self.data) - start:
            raise self.error(field, f"{size} bytes needed, {self.remaining} left")
        self.offset = start + size
        return start

    def int16(self, field: str) -> int:
        """A signed 16-bit integer."""
        value: int = _INT16.unpack_from(self.data, self._step(2, field))[0]
        return value

    def int32(self, field: str) -> int:
        """A signed 32-bit integer."""
        value: int = _INT32.unpack_from(self.data, self._step(4, field))[0]
        return value

    def count(self, field: str, smallest: int) -> int:
        """The length of an array whose elements take at least ``smallest`` bytes each.

        A count that the remaining bytes cannot hold is refused here, before anything is allocated.
        """
        at = self.offset
        count = self.int32(field)
        if not 0 <= count <= self.remaining // smallest:
            raise self.error(field, f"impossible count {count}, {self.remaining} bytes left", at)
        return count

    def nullable_string(self, field: str) -> str | None:
        """Text with a 16-bit length; a negative length is null."""
        at = self.offset
        size = self.int16(field)
        if size < 0:
            return None
        start = self._step(size, field)
        try:
            return self.data[start : start + size].decode()
        except UnicodeDecodeError as error:
            raise self.error(field, f"not UTF-8 ({error.reason})", at) from None

    def string(self, field: str) -> str:
        """Text that may not be null."""
        at = self.offset
        text = self.nullable_string(field)
        if text is None:
            raise self.error(field, "null where text is needed", at)
        return text

    def nullable_bytes(self, field: str) -> bytes | None:
        """Bytes with a 32-bit length; a negative length is null."""
        size = self.int32(field)
        if size < 0:
            return None
        start = self._step(size, field)
        return self.data[start : start + size]

    def packed_int32s(self, field: str) -> bytes:
        """An array of signed 32-bit integers, as the bytes of its elements."""
        size = 4 * self.count(field, 4)
        start = self._step(size, field)
        return self.data[start : start + size]


class Writer:
    """Writes big-endian values one after the other."""

    __slots__ = ("_out", "subject")

    def __init__(self, subject: str) -> None:
        self._out = bytearray()
        self.subject = subject

    def done(self) -> bytes:
        """Everything that was written."""
        return bytes(self._out)

    def int16(self, value: int) -> None:
        """A signed 16-bit integer."""
        self._out += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """A signed 32-bit integer."""
        try:
            self._out += _INT32.pack(value)
        except struct.error:
            raise FormatError(f"{self.subject}: {value!r} does not fit 32 bits") from None

    def string(self, text: str | None) -> None:
        """Text with a 16-bit length; None as null."""
        self._out += _INT16.pack(-1) if text is None else encoded_string(text, self.subject)

    def nullable_bytes(self, data: bytes | None) -> None:
        """Bytes with a 32-bit length; None as null."""
        self.int32(-1 if data is None else len(data))
        self._out += data or b""

    def int32s(self, values: Sequence[int]) -> None:
        """An array of signed 32-bit integers."""
        self.int32(len(values))
        self._out += struct.pack(f">{len(values)}i", *values)


def encoded_string(text: str, subject: str) -> bytes:
    """Text as UTF-8 behind its 16-bit length."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"{subject}: {text!r} has no UTF-8 form ({error.reason})") from None
    if len(data) > LONGEST_STRING:
        raise FormatError(
            f"{subject}: {text[:20]!r}... takes {len(data)} bytes, at most {LONGEST_STRING} fit"
        )
    return _INT16.pack(len(data)) + data
