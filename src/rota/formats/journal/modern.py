"""Consumer groups (KIP-848): record types 3 to 8 and 16, a table for each.

All values have version 0, which is flexible; keys are not. Type 4 is read, and written as before
Kafka 4.1; newer brokers only write its tombstone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rota.formats.journal.name import CONSUMER
from rota.formats.journal.structure import (
    BYTES,
    INT8,
    INT32,
    INT32S,
    INT64,
    NULLABLE_INT32S,
    NULLABLE_TEXT,
    TEXT,
    UUID,
    Structure,
    Tag,
    array,
    nullable,
    read_version,
    shown,
)
from rota.formats.primitive import Reader, Writer
from rota.model.modern import (
    ClassicMembership,
    CurrentForgotten,
    CurrentSaved,
    CurrentTopic,
    EpochForgotten,
    EpochSaved,
    MembershipForgotten,
    MembershipSaved,
    ModernEntry,
    PartitionRacks,
    RegexForgotten,
    RegexSaved,
    SavedTopic,
    TargetEpochForgotten,
    TargetEpochSaved,
    TargetForgotten,
    TargetSaved,
    TargetTopic,
    TopicsForgotten,
    TopicsSaved,
)
from rota.model.request import Protocol

VERSION = 0
GROUP = ("group",)
MEMBER = ("group", "member_id")
REGEX = ("group", "regex")

PARTITION_RACKS = Structure({"partition": INT32, "racks": array(TEXT)}).of(PartitionRacks)
TOPIC = Structure(
    {
        "topic_id": UUID,
        "topic": TEXT,
        "partition_count": INT32,
        "racks": array(PARTITION_RACKS),
    }
).of(SavedTopic)
PROTOCOL = Structure({"name": TEXT, "metadata": BYTES}).of(Protocol)
CLASSIC = Structure({"session_timeout": INT32, "protocols": array(PROTOCOL)}).of(ClassicMembership)
NO_CLASSIC = ClassicMembership(session_timeout=0, protocols=())
"""What a missing tag means. Null is not that, and Kafka writes it."""
TARGET_TOPIC = Structure({"topic_id": UUID, "partitions": INT32S}).of(TargetTopic)
CURRENT_TOPIC = Structure(
    {"topic_id": UUID, "partitions": INT32S}, {0: Tag("epochs", NULLABLE_INT32S, ())}
).of(CurrentTopic)


@dataclass(frozen=True, slots=True)
class Record:
    """A record type: Kafka's number, and what it is with and without a value."""

    number: int
    saved: type[ModernEntry]
    forgotten: type[ModernEntry]
    key: tuple[str, ...]
    """The fields of its key, all of them text."""
    value: Structure

    @property
    def name(self) -> str:
        """Kafka's."""
        return CONSUMER[self.number]


RECORDS = (
    Record(
        3,
        EpochSaved,
        EpochForgotten,
        GROUP,
        Structure({"epoch": INT32}, {0: Tag("metadata_hash", INT64, 0)}),
    ),
    Record(
        4,
        TopicsSaved,
        TopicsForgotten,
        GROUP,
        Structure({"topics": array(TOPIC)}),
    ),
    Record(
        5,
        MembershipSaved,
        MembershipForgotten,
        MEMBER,
        Structure(
            {
                "static_id": NULLABLE_TEXT,
                "rack": NULLABLE_TEXT,
                "client_id": TEXT,
                "client_host": TEXT,
                "topics": array(TEXT),
                "regex": NULLABLE_TEXT,
                "rebalance_timeout": INT32,
                "assignor": NULLABLE_TEXT,
            },
            {
                0: Tag(
                    "classic", nullable(CLASSIC), ClassicMembership(session_timeout=0, protocols=())
                )
            },
        ),
    ),
    Record(
        6,
        TargetEpochSaved,
        TargetEpochForgotten,
        GROUP,
        Structure({"epoch": INT32}, {0: Tag("timestamp", INT64, 0)}),
    ),
    Record(
        7,
        TargetSaved,
        TargetForgotten,
        MEMBER,
        Structure({"topics": array(TARGET_TOPIC)}),
    ),
    Record(
        8,
        CurrentSaved,
        CurrentForgotten,
        MEMBER,
        Structure(
            {
                "epoch": INT32,
                "previous_epoch": INT32,
                "state": INT8,
                "assigned": array(CURRENT_TOPIC),
                "revoking": array(CURRENT_TOPIC),
            }
        ),
    ),
    Record(
        16,
        RegexSaved,
        RegexForgotten,
        REGEX,
        Structure({"topics": array(TEXT), "version": INT64, "timestamp": INT64}),
    ),
)
BY_TYPE = {record.number: record for record in RECORDS}
_BY_ENTRY = {made: record for record in RECORDS for made in (record.saved, record.forgotten)}


def decode(number: int, key: bytes, value: bytes | None) -> ModernEntry:
    """A record of a consumer group, of this type."""
    record = BY_TYPE[number]
    reader = Reader(key, f"{record.name} key")
    reader.int16("type")
    fields: dict[str, Any] = {field: reader.string(shown(field)) for field in record.key}
    reader.end()
    if value is None:
        return record.forgotten(**fields)
    reader = Reader(value, f"{record.name} value")
    read_version(reader, VERSION)
    fields |= record.value.read(reader)
    reader.end()
    return record.saved(**fields)


def encode(entry: ModernEntry) -> tuple[bytes, bytes | None]:
    """The bytes Kafka writes."""
    record = _BY_ENTRY[type(entry)]
    writer = Writer(f"{record.name} key")
    writer.int16(record.number)
    for field in record.key:
        writer.string(getattr(entry, field))
    key = writer.done()
    if type(entry) is record.forgotten:
        return key, None
    writer = Writer(f"{record.name} value")
    writer.int16(VERSION)
    record.value.write(writer, entry)
    return key, writer.done()
