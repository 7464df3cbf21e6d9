"""Offsets as members commit and fetch them."""

from __future__ import annotations

from dataclasses import dataclass

from rota.errors import InputError

NO_OFFSET = -1
"""How the protocol says that nothing was committed."""
NO_EPOCH = -1
"""How the protocol says that the leader's epoch is not known."""


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """Where to go on reading, with a note of the application's own and the leader's epoch."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.offset, int) or self.offset < 0:
            raise InputError(f"offset {self.offset!r} is not a number from 0 up")


@dataclass(frozen=True, slots=True)
class GivenOffset(OffsetAndMetadata):
    """As a client's request has it: Kafka's broker stores any number."""

    def __post_init__(self) -> None:
        """Below 0 it says that there is no offset."""
