"""The hash by which producers choose a partition for a key."""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits, as Java's producer has it; not negative."""
    length = len(data)
    whole = length & ~3
    result = _SEED ^ length
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = word * _M & _WORD
        mixed = (mixed ^ mixed >> 24) * _M & _WORD
        result = (result * _M & _WORD) ^ mixed
    if tail := data[whole:]:
        result = (result ^ int.from_bytes(tail, "little")) * _M & _WORD
    result = (result ^ result >> 13) * _M & _WORD
    return result ^ result >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Where Java's producer puts a record with this key, as do most others."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
