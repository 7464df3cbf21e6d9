"""User data of the sticky family: what a member owned, as bytes."""

from __future__ import annotations

from rota.model.membership import Ownership
from rota.model.topic import Partitions


def encode_sticky(owned: Partitions, generation: int) -> bytes:
    """Sticky user data, version 1."""
    raise NotImplementedError


def decode_sticky(data: bytes) -> Ownership:
    """Sticky user data, version 0 or 1; garbage is no claim, with a note."""
    raise NotImplementedError


def encode_cooperative(generation: int) -> bytes:
    """Cooperative user data, version 0: the generation alone."""
    raise NotImplementedError


def decode_cooperative(data: bytes) -> tuple[int, str | None]:
    """The generation, and a note if it could not be read."""
    raise NotImplementedError
