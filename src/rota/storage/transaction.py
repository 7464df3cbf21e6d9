"""The transaction index of a segment, ``.txnindex``: the aborted transactions that ended in it.

34 bytes an entry: version 0 in 16 bits, then in 64 bits each the producer's id, the transaction's
first offset, its last (that of the marker), and the last stable offset once it had ended. Entries
are in the order of their markers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from rota.errors import FormatError
from rota.formats.buffer import Bytes

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


@dataclass(frozen=True, slots=True)
class Aborted:
    """A transaction whose records do not count."""

    producer_id: int
    first_offset: int
    last_offset: int
    stable: int
    """The last stable offset after it."""

    def pack(self) -> bytes:
        """Its entry."""
        return ENTRY.pack(
            VERSION, self.producer_id, self.first_offset, self.last_offset, self.stable
        )


def read(data: Bytes, base_offset: int = 0) -> list[Aborted]:
    """All entries of the index of a segment.

    :raises FormatError: it is cut, of another version, or its offsets cannot be
    """
    if len(data) % ENTRY.size:
        raise FormatError(f"{len(data)} bytes are no whole entries of {ENTRY.size}")
    found: list[Aborted] = []
    before = base_offset - 1
    for number, (version, *fields) in enumerate(ENTRY.iter_unpack(data)):
        entry = Aborted(*fields)
        if version != VERSION:
            raise FormatError(f"entry {number} has version {version}, known is {VERSION}")
        if entry.last_offset <= before or not 0 <= entry.first_offset <= entry.last_offset:
            span = f"{entry.first_offset} to {entry.last_offset}"
            raise FormatError(f"entry {number}: offsets {span} after {before}")
        before = entry.last_offset
        found.append(entry)
    return found


def overlapping(entries: Iterable[Aborted], first: int, upto: int) -> list[Aborted]:
    """Those with an offset from the first to before the last one given."""
    return [entry for entry in entries if entry.last_offset >= first and entry.first_offset < upto]
