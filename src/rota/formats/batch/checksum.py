"""CRC-32C, the checksum of batches."""

from __future__ import annotations

import functools
from collections.abc import Callable

from rota.formats.batch.extra import load
from rota.formats.buffer import Bytes


@functools.cache
def function() -> Callable[[Bytes], int]:
    """The function itself, for those who call it for every batch."""
    found: Callable[[Bytes], int] = load("crc32c", "the checksum of record batches").crc32c
    return found


def checksum(data: Bytes) -> int:
    """The checksum of some bytes."""
    return function()(data)
