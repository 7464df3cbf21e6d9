"""Consumer groups (KIP-848), share groups (KIP-932) and streams groups (KIP-1071) in
``__consumer_offsets``: record types 3 to 23, each as a table of its fields.

All values have version 0, which is flexible; keys are not. Type 4 is read, and written as before
Kafka 4.1; newer brokers only write its tombstone. Types 9 and 18 are the same for the other groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, TypeAlias

from rota.engine.formats.journal_classic import RECORD_NAMES, read_value_version
from rota.engine.formats.primitive import UUID_SIZE, PrimitiveReader, PrimitiveWriter
from rota.engine.model import consumer_group_entry as consumer
from rota.engine.model import share_streams_entry as others
from rota.engine.model.request import JoinGroupProtocol

#: An entry of a group whose assignment the broker computes.
ModernGroupEntry: TypeAlias = (
    consumer.ConsumerGroupEntry | others.ShareRecord | others.StreamsRecord
)


class FieldType(NamedTuple):
    """How values of a type are read and written, and the smallest size of one."""

    read: Callable[[PrimitiveReader, str], Any]
    write: Callable[[PrimitiveWriter, Any], None]
    smallest_size: int


class TaggedField(NamedTuple):
    """A tagged field. It is not written if it has its default."""

    field: str
    kind: FieldType
    default: object


INT8 = FieldType(PrimitiveReader.int8, PrimitiveWriter.int8, 1)
INT16 = FieldType(PrimitiveReader.int16, PrimitiveWriter.int16, 2)
INT32 = FieldType(PrimitiveReader.int32, PrimitiveWriter.int32, 4)
INT64 = FieldType(PrimitiveReader.int64, PrimitiveWriter.int64, 8)
UUID = FieldType(PrimitiveReader.uuid, PrimitiveWriter.uuid, UUID_SIZE)
TEXT = FieldType(PrimitiveReader.string, PrimitiveWriter.string, 1)
NULLABLE_TEXT = FieldType(PrimitiveReader.nullable_string, PrimitiveWriter.string, 1)
UINT16 = FieldType(
    lambda reader, field: reader.int16(field) & 0xFFFF,
    lambda writer, value: writer.int16(value - ((value & 0x8000) << 1)),
    2,
)
BYTES = FieldType(PrimitiveReader.bytes_not_null, PrimitiveWriter.nullable_bytes, 1)


@dataclass(frozen=True, slots=True)
class Structure:
    """Fields in order, then tagged fields."""

    fields: Mapping[str, FieldType]
    tags: Mapping[int, TaggedField] = field(default_factory=dict)

    def read(self, reader: PrimitiveReader) -> dict[str, Any]:
        found = {name: kind.read(reader, field_label(name)) for name, kind in self.fields.items()}
        found |= {tag.field: tag.default for tag in self.tags.values()}
        for number, end in reader.tags():
            tag = self.tags.get(number)
            if tag is None:
                reader.offset = end
            else:
                found[tag.field] = tag.kind.read(reader, field_label(tag.field))
        return found

    def write(self, writer: PrimitiveWriter, value: object) -> None:
        """Writes all fields, but no tagged field that has its default."""
        for name, kind in self.fields.items():
            kind.write(writer, getattr(value, name))
        tagged = [
            (number, tag.kind, getattr(value, tag.field))
            for number, tag in self.tags.items()
            if getattr(value, tag.field) != tag.default
        ]
        writer.unsigned_varint(len(tagged))
        for number, kind, content in tagged:
            inner = PrimitiveWriter(writer.subject, flexible=True)
            kind.write(inner, content)
            writer.tag(number, inner.to_bytes())

    def as_field_type(self, made: Callable[..., Any]) -> FieldType:
        """Returns the field type of the structure as a class."""
        smallest = 1 + sum(kind.smallest_size for kind in self.fields.values())
        return FieldType(lambda reader, _: made(**self.read(reader)), self.write, smallest)


def nullable_struct(kind: FieldType) -> FieldType:
    """A tagged structure that may be null, as its first byte tells."""

    def read(reader: PrimitiveReader, field: str) -> object:
        return kind.read(reader, field) if reader.unsigned_varint(field) else None

    def write(writer: PrimitiveWriter, value: object) -> None:
        writer.unsigned_varint(0 if value is None else 1)
        if value is not None:
            kind.write(writer, value)

    return FieldType(read, write, 1)


def nullable_inner_struct(kind: FieldType) -> FieldType:
    """A structure that may be null and is not a tagged field: null is a negative byte."""

    def read(reader: PrimitiveReader, field: str) -> object:
        return kind.read(reader, field) if reader.int8(field) >= 0 else None

    def write(writer: PrimitiveWriter, value: object) -> None:
        writer.int8(-1 if value is None else 1)
        if value is not None:
            kind.write(writer, value)

    return FieldType(read, write, 1)


def compact_array(kind: FieldType) -> FieldType:
    """A compact array, as a tuple."""
    nullable = nullable_compact_array(kind)

    def read(reader: PrimitiveReader, field: str) -> tuple[Any, ...]:
        count = reader.count(field, kind.smallest_size)
        return tuple([kind.read(reader, field) for _ in range(count)])

    return FieldType(read, nullable.write, 1)


def nullable_compact_array(kind: FieldType) -> FieldType:
    def read(reader: PrimitiveReader, field: str) -> tuple[Any, ...] | None:
        count = reader.nullable_count(field, kind.smallest_size)
        return None if count is None else tuple([kind.read(reader, field) for _ in range(count)])

    def write(writer: PrimitiveWriter, values: tuple[Any, ...] | None) -> None:
        writer.count(-1 if values is None else len(values))
        for value in values or ():
            kind.write(writer, value)

    return FieldType(read, write, 1)


INT32S = FieldType(PrimitiveReader.int32s, PrimitiveWriter.int32s, 1)
NULLABLE_INT32S = FieldType(PrimitiveReader.nullable_int32s, PrimitiveWriter.int32s, 1)


def field_label(field: str) -> str:
    return field.replace("_", " ")


VALUE_VERSION = 0

PARTITION_RACKS = Structure({"partition": INT32, "racks": compact_array(TEXT)}).as_field_type(
    consumer.PartitionRacks
)

TOPIC = Structure(
    {
        "topic_id": UUID,
        "topic": TEXT,
        "partition_count": INT32,
        "racks": compact_array(PARTITION_RACKS),
    }
).as_field_type(consumer.PartitionMetadataTopic)

PROTOCOL = Structure({"name": TEXT, "metadata": BYTES}).as_field_type(JoinGroupProtocol)

CLASSIC = Structure({"session_timeout": INT32, "protocols": compact_array(PROTOCOL)}).as_field_type(
    consumer.ClassicMemberMetadata
)

#: The value of a missing tagged field; Kafka writes null as null.
NO_CLASSIC = consumer.ClassicMemberMetadata(session_timeout=0, protocols=())

TARGET_TOPIC = Structure({"topic_id": UUID, "partitions": INT32S}).as_field_type(
    consumer.TargetAssignmentTopic
)

CURRENT_TOPIC = Structure(
    {"topic_id": UUID, "partitions": INT32S}, {0: TaggedField("epochs", NULLABLE_INT32S, ())}
).as_field_type(consumer.CurrentAssignmentTopic)

SHARE_STATE_TOPIC = Structure(
    {"topic_id": UUID, "topic": TEXT, "partitions": INT32S}
).as_field_type(others.ShareStateTopic)

SHARE_STATE_DELETED_TOPIC = Structure({"topic_id": UUID, "topic": TEXT}).as_field_type(
    others.ShareStateDeletedTopic
)

KEY_VALUE = Structure({"key": TEXT, "value": TEXT}).as_field_type(others.KeyValue)

ENDPOINT = Structure({"host": TEXT, "port": UINT16}).as_field_type(others.StreamsEndpoint)

TASKS = compact_array(
    Structure({"subtopology": TEXT, "partitions": INT32S}).as_field_type(others.StreamsTasks)
)

CURRENT_TASKS = compact_array(
    Structure(
        {"subtopology": TEXT, "partitions": INT32S},
        {0: TaggedField("epochs", NULLABLE_INT32S, ())},
    ).as_field_type(others.StreamsCurrentTasks)
)

INTERNAL_TOPICS = compact_array(
    Structure(
        {
            "topic": TEXT,
            "partition_count": INT32,
            "replication_factor": INT16,
            "configs": compact_array(KEY_VALUE),
        }
    ).as_field_type(others.StreamsInternalTopic)
)

COPARTITION_GROUP = Structure(
    {
        "source_topic_places": compact_array(INT16),
        "source_regex_places": compact_array(INT16),
        "repartition_source_places": compact_array(INT16),
    }
).as_field_type(others.CopartitionGroup)

SUBTOPOLOGY = Structure(
    {
        "subtopology": TEXT,
        "source_topics": compact_array(TEXT),
        "source_regexes": compact_array(TEXT),
        "changelogs": INTERNAL_TOPICS,
        "repartition_sinks": compact_array(TEXT),
        "repartition_sources": INTERNAL_TOPICS,
        "copartition_groups": compact_array(COPARTITION_GROUP),
    }
).as_field_type(others.Subtopology)

PARTITION_METADATA = Structure({"topics": compact_array(TOPIC)})
TARGET_METADATA = Structure({"epoch": INT32}, {0: TaggedField("timestamp", INT64, 0)})
TARGET_TOPICS = Structure({"topics": compact_array(TARGET_TOPIC)})


@dataclass(frozen=True, slots=True)
class RecordType:
    """A record type, with the entries for a value and for a tombstone."""

    number: int
    saved: type[ModernGroupEntry]
    forgotten: type[ModernGroupEntry]  # its fields are those of the key, all strings
    value: Structure

    @property
    def name(self) -> str:
        return RECORD_NAMES[self.number]

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(each.name for each in fields(self.forgotten))


RECORD_TYPES = (
    RecordType(
        3,
        consumer.ConsumerGroupMetadataEntry,
        consumer.ConsumerGroupMetadataTombstone,
        Structure({"epoch": INT32}, {0: TaggedField("metadata_hash", INT64, 0)}),
    ),
    RecordType(
        4, consumer.PartitionMetadataEntry, consumer.PartitionMetadataTombstone, PARTITION_METADATA
    ),
    RecordType(
        5,
        consumer.MemberMetadataEntry,
        consumer.MemberMetadataTombstone,
        Structure(
            {
                "group_instance_id": NULLABLE_TEXT,
                "rack": NULLABLE_TEXT,
                "client_id": TEXT,
                "client_host": TEXT,
                "topics": compact_array(TEXT),
                "regex": NULLABLE_TEXT,
                "rebalance_timeout": INT32,
                "assignor": NULLABLE_TEXT,
            },
            {0: TaggedField("classic", nullable_struct(CLASSIC), NO_CLASSIC)},
        ),
    ),
    RecordType(
        6,
        consumer.TargetAssignmentMetadataEntry,
        consumer.TargetAssignmentMetadataTombstone,
        TARGET_METADATA,
    ),
    RecordType(
        7,
        consumer.TargetAssignmentMemberEntry,
        consumer.TargetAssignmentMemberTombstone,
        TARGET_TOPICS,
    ),
    RecordType(
        8,
        consumer.CurrentMemberAssignmentEntry,
        consumer.CurrentMemberAssignmentTombstone,
        Structure(
            {
                "epoch": INT32,
                "previous_epoch": INT32,
                "state": INT8,
                "assigned": compact_array(CURRENT_TOPIC),
                "revoking": compact_array(CURRENT_TOPIC),
            }
        ),
    ),
    RecordType(
        9,
        others.SharePartitionMetadataEntry,
        others.SharePartitionMetadataTombstone,
        PARTITION_METADATA,
    ),
    RecordType(
        10,
        others.ShareMemberMetadataEntry,
        others.ShareMemberMetadataTombstone,
        Structure(
            {
                "rack": NULLABLE_TEXT,
                "client_id": TEXT,
                "client_host": TEXT,
                "topics": compact_array(TEXT),
            }
        ),
    ),
    RecordType(
        11,
        others.ShareGroupMetadataEntry,
        others.ShareGroupMetadataTombstone,
        Structure({"epoch": INT32, "metadata_hash": INT64}),
    ),
    RecordType(
        12,
        others.ShareTargetAssignmentMetadataEntry,
        others.ShareTargetAssignmentMetadataTombstone,
        TARGET_METADATA,
    ),
    RecordType(
        13,
        others.ShareTargetAssignmentMemberEntry,
        others.ShareTargetAssignmentMemberTombstone,
        TARGET_TOPICS,
    ),
    RecordType(
        14,
        others.ShareCurrentMemberAssignmentEntry,
        others.ShareCurrentMemberAssignmentTombstone,
        Structure(
            {
                "epoch": INT32,
                "previous_epoch": INT32,
                "state": INT8,
                "assigned": compact_array(TARGET_TOPIC),
            }
        ),
    ),
    RecordType(
        15,
        others.ShareStatePartitionMetadataEntry,
        others.ShareStatePartitionMetadataTombstone,
        Structure(
            {
                "initializing": compact_array(SHARE_STATE_TOPIC),
                "initialized": compact_array(SHARE_STATE_TOPIC),
                "deleting": compact_array(SHARE_STATE_DELETED_TOPIC),
            }
        ),
    ),
    RecordType(
        16,
        consumer.RegularExpressionEntry,
        consumer.RegularExpressionTombstone,
        Structure({"topics": compact_array(TEXT), "version": INT64, "timestamp": INT64}),
    ),
    RecordType(
        17,
        others.StreamsGroupMetadataEntry,
        others.StreamsGroupMetadataTombstone,
        Structure(
            {"epoch": INT32, "metadata_hash": INT64},
            {
                0: TaggedField("validated_topology_epoch", INT32, -1),
                1: TaggedField("configs", nullable_compact_array(KEY_VALUE), ()),
            },
        ),
    ),
    RecordType(
        18,
        others.StreamsPartitionMetadataEntry,
        others.StreamsPartitionMetadataTombstone,
        PARTITION_METADATA,
    ),
    RecordType(
        19,
        others.StreamsMemberMetadataEntry,
        others.StreamsMemberMetadataTombstone,
        Structure(
            {
                "group_instance_id": NULLABLE_TEXT,
                "rack": NULLABLE_TEXT,
                "client_id": TEXT,
                "client_host": TEXT,
                "rebalance_timeout": INT32,
                "topology_epoch": INT32,
                "process_id": TEXT,
                "endpoint": nullable_inner_struct(ENDPOINT),
                "client_tags": compact_array(KEY_VALUE),
            }
        ),
    ),
    RecordType(
        20,
        others.StreamsTargetAssignmentMetadataEntry,
        others.StreamsTargetAssignmentMetadataTombstone,
        TARGET_METADATA,
    ),
    RecordType(
        21,
        others.StreamsTargetAssignmentMemberEntry,
        others.StreamsTargetAssignmentMemberTombstone,
        Structure({"active": TASKS, "standby": TASKS, "warmup": TASKS}),
    ),
    RecordType(
        22,
        others.StreamsCurrentMemberAssignmentEntry,
        others.StreamsCurrentMemberAssignmentTombstone,
        Structure(
            {
                "epoch": INT32,
                "previous_epoch": INT32,
                "state": INT8,
                "active": CURRENT_TASKS,
                "standby": CURRENT_TASKS,
                "warmup": CURRENT_TASKS,
                "active_revoking": CURRENT_TASKS,
                "standby_revoking": CURRENT_TASKS,
                "warmup_revoking": CURRENT_TASKS,
            }
        ),
    ),
    RecordType(
        23,
        others.StreamsTopologyEntry,
        others.StreamsTopologyTombstone,
        Structure({"epoch": INT32, "subtopologies": compact_array(SUBTOPOLOGY)}),
    ),
)

RECORD_TYPE_BY_NUMBER = {record.number: record for record in RECORD_TYPES}

_RECORD_TYPE_BY_ENTRY = {
    made: record for record in RECORD_TYPES for made in (record.saved, record.forgotten)
}


def decode_modern_record(number: int, key: bytes, value: bytes | None) -> ModernGroupEntry:
    record = RECORD_TYPE_BY_NUMBER[number]
    reader = PrimitiveReader(key, f"{record.name} key")
    reader.int16("type")
    fields: dict[str, Any] = {field: reader.string(field_label(field)) for field in record.key}
    reader.expect_end()
    if value is None:
        return record.forgotten(**fields)
    reader = PrimitiveReader(value, f"{record.name} value")
    read_value_version(reader, VALUE_VERSION)
    reader.flexible = True
    fields |= record.value.read(reader)
    reader.expect_end()
    return record.saved(**fields)


def encode_modern_entry(entry: ModernGroupEntry) -> tuple[bytes, bytes | None]:
    record = _RECORD_TYPE_BY_ENTRY[type(entry)]
    writer = PrimitiveWriter(f"{record.name} key")
    writer.int16(record.number)
    for name in record.key:
        writer.string(getattr(entry, name))
    key = writer.to_bytes()
    if type(entry) is record.forgotten:
        return key, None
    writer = PrimitiveWriter(f"{record.name} value", flexible=True)
    writer.int16(VALUE_VERSION)
    record.value.write(writer, entry)
    return key, writer.to_bytes()
