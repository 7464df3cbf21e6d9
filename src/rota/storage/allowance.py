"""How much work it may be to look into records.

A few bytes can unpack to very many, or hold millions of records, while everybody else has to wait.
So whoever must look into a batch has an allowance: it grows with what was sent, and is far more
than records need that somebody means to be read.
"""

from __future__ import annotations

from rota.errors import Code, Refused
from rota.formats.batch import MOST, Columns, Flaw, decode
from rota.formats.buffer import Bytes
from rota.storage.scan import Head

BASE = 64 << 20
"""Bytes that may be unpacked in any case: a fraction of a second."""
TIMES = 32
"""Beyond that, so many times what was sent."""
RECORD = 128
"""To read a record takes as long as to unpack so many bytes."""


class Allowance:
    """What is left of it. One is for all that is done for one request, or for one batch."""

    def __init__(self, size: int) -> None:
        """:param size: of what is looked into, in bytes."""
        self.left = self._begun = BASE + TIMES * size

    @property
    def spent(self) -> int:
        """How much work was done."""
        return self._begun - self.left

    def decode(self, batch: Bytes, head: Head) -> Columns:
        """The records of one batch, whose checksum was compared, or what is wrong with it.

        :raises Refused: it would be too much work
        """
        most = min(self.left, BASE + TIMES * head.size)
        room = min(most - RECORD * max(head.records, 0), MOST)
        if room < 0:
            raise Refused(
                Code.MESSAGE_TOO_LARGE,
                f"{head.records} records in {head.size} bytes are more than is looked at at once",
            )
        columns = decode(batch, check=False, most=room)
        flaw = columns.problems[0].flaw if columns.problems else None
        known = flaw not in {Flaw.SIZE, Flaw.CODEC}
        spent = columns.buffer.size - len(batch) if known else room
        self.left -= spent + RECORD * max(head.records, 0)
        if flaw is Flaw.SIZE:
            raise Refused(
                Code.MESSAGE_TOO_LARGE,
                f"a batch of {head.size} bytes unpacks to more than {room}, which is more than is "
                "looked at at once",
            )
        return columns
