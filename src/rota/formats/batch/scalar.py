"""The records of one batch, one after the other: for those who want to know what is wrong."""

from __future__ import annotations

from rota.errors import FormatError
from rota.formats.batch.record import Record
from rota.formats.buffer import Bytes

SMALLEST_RECORD = 7
Headers = tuple[tuple[bytes, bytes | None], ...]


class Body:
    """Reads the records of a batch; every error names the record, the field and its offset."""

    __slots__ = ("at", "data", "limit", "record")

    def __init__(self, data: Bytes, at: int = 0, limit: int | None = None) -> None:
        self.data = data
        self.at = at
        self.limit = len(data) if limit is None else limit
        self.record = 0

    def records(self, count: int, base_offset: int, base_timestamp: int) -> list[Record]:
        """All of them, and nothing behind them.

        :raises FormatError: they do not follow the format
        """
        end = self.limit
        if not 0 <= count <= (end - self.at) // SMALLEST_RECORD:
            raise FormatError(f"impossible count {count}, {end - self.at} bytes there")
        found = []
        for self.record in range(count):
            self.limit = end
            size = self._varint("length")
            if not 0 <= size <= end - self.at:
                raise self._error("length", f"{size} bytes, {end - self.at} left")
            self.limit = self.at + size
            found.append(self._read(base_offset, base_timestamp))
        if self.at != end:
            raise FormatError(f"{end - self.at} bytes behind the last record")
        return found

    def _read(self, base_offset: int, base_timestamp: int) -> Record:
        self._step(1, "attributes")
        timestamp = base_timestamp + self._varint("timestamp delta", 64)
        offset = base_offset + self._varint("offset delta")
        key = self._bytes("key")
        value = self._bytes("value")
        record = Record(_wrapped(offset), _wrapped(timestamp), key, value, self._headers())
        if self.at != self.limit:
            raise self._error("end", f"{self.limit - self.at} bytes too many")
        return record

    def _headers(self) -> Headers:
        count = self._varint("headers")
        if not 0 <= count <= self.limit - self.at:
            raise self._error("headers", f"impossible count {count}")
        return read_headers(self, count)

    def header(self) -> tuple[bytes, bytes | None]:
        """A header's name and value."""
        name = self._bytes("header name")
        if name is None:
            raise self._error("header name", "null")
        return name, self._bytes("header value")

    def header_place(self) -> tuple[int, int, int, int]:
        """Where a header's name and value start, and their sizes; -1: null."""
        return *self._place("header name"), *self._place("header value")

    def _error(self, field: str, problem: str) -> FormatError:
        return FormatError(f"record {self.record}: {field} at byte {self.at}: {problem}")

    def _step(self, size: int, field: str) -> int:
        start = self.at
        if size > self.limit - start:
            raise self._error(field, f"{size} bytes needed, {self.limit - start} left")
        self.at = start + size
        return start

    def _varint(self, field: str, bits: int = 32) -> int:
        start = self.at
        value = shift = 0
        while True:
            byte = self.data[self._step(1, field)]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128 and value < 1 << bits:
                return value >> 1 ^ -(value & 1)
            if byte < 128 or shift >= bits:
                self.at = start
                raise self._error(field, f"a varint past {bits} bits")

    def _bytes(self, field: str) -> bytes | None:
        start, size = self._place(field)
        return None if size < 0 else bytes(self.data[start : start + size])

    def _place(self, field: str) -> tuple[int, int]:
        size = self._varint(field)
        return (self.at, -1) if size < 0 else (self._step(size, field), size)


def read_headers(body: Body, count: int) -> Headers:
    """So many headers, from where the reader stands."""
    return tuple([body.header() for _ in range(count)])


def _wrapped(value: int) -> int:
    """As Java adds 64 bits: past the largest comes the smallest."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
