"""Records of ``__consumer_offsets`` as entries, and back into Kafka's bytes.

A key starts with the record's type, a value with its version; no value is a tombstone. Read are
offsets and classic groups in all versions (:mod:`.classic`) and consumer groups (:mod:`.modern`).
Any other type becomes a :class:`~rota.model.entry.Foreign`, under Kafka's name or as "unknown":
like Kafka's own coordinator, a reader passes over types that it does not know, and can count them
by name. Bytes that do not follow their type's format, to the last one, are a
:class:`~rota.errors.FormatError`; so is a version newer than those known.

Tagged fields with unknown tags are skipped, and so not written back.
"""

from __future__ import annotations

import struct

from rota.errors import FormatError
from rota.formats.journal import classic
from rota.formats.journal.name import CONSUMER, NAMES
from rota.model.entry import (
    Entry,
    Foreign,
    GroupForgotten,
    GroupSaved,
    OffsetCommitted,
    OffsetForgotten,
)

__all__ = ["NAMES", "READ", "decode", "encode"]

READ = (classic.LEGACY_OFFSET, classic.OFFSET, classic.GROUP, *CONSUMER)
"""Those that are read; of the others only the name is known."""
UNKNOWN = "unknown"
_OFFSETS = frozenset((classic.LEGACY_OFFSET, classic.OFFSET))
_TYPE = struct.Struct(">h")


def decode(key: bytes, value: bytes | None) -> Entry:
    """The entry that a record holds.

    :raises FormatError: the bytes do not follow their type's format; field and byte are named
    """
    try:
        (number,) = _TYPE.unpack_from(key)
    except struct.error:
        raise FormatError(f"record key: type at byte 0: 2 bytes needed, {len(key)} left") from None
    if number in _OFFSETS:
        return classic.decode_offset(key, value)
    if number == classic.GROUP:
        return classic.decode_group(key, value)
    if number in CONSUMER:
        from rota.formats.journal import modern  # noqa: PLC0415 (a broker does without them)

        return modern.decode(number, key, value)
    return Foreign(type=number, name=NAMES.get(number, UNKNOWN), key=key, value=value)


def encode(entry: Entry) -> tuple[bytes, bytes | None]:
    """The key and the value that Kafka 4.3 writes for an entry."""
    match entry:
        case OffsetCommitted():
            return classic.offset_key(entry), classic.offset_value(entry)
        case GroupSaved():
            return classic.group_key(entry), classic.group_value(entry)
        case OffsetForgotten():
            return classic.offset_key(entry), None
        case GroupForgotten():
            return classic.group_key(entry), None
        case Foreign():
            return entry.key, entry.value
        case _:
            from rota.formats.journal import modern  # noqa: PLC0415

            return modern.encode(entry)
