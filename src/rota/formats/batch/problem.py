"""What is wrong with a stretch of bytes among batches: told, so that a reader can go on."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Flaw(enum.StrEnum):
    """The kinds of it."""

    CUT = "cut"
    """The last batch is not whole: usual where a file is still written to."""
    ZEROS = "zeros"
    """Nothing but zeros to the end: room that was set aside, or a power cut."""
    OLD = "old format"
    """Messages of magic 0 or 1."""
    FRAME = "frame"
    """No batch begins here."""
    CHECKSUM = "checksum"
    CODEC = "codec"
    """An unknown one, or bytes that it does not understand."""
    SIZE = "size"
    """Decompressed, it is larger than allowed."""
    RECORDS = "records"
    """Its records do not follow the format."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Bytes that gave no records."""

    position: int
    size: int
    flaw: Flaw
    text: str
    """In words, without the position."""

    def __str__(self) -> str:
        return f"at byte {self.position}, {self.size} bytes: {self.text}"
