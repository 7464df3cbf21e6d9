"""What a member is given, as bytes: ConsumerProtocolAssignment, versions 0 to 3, all alike."""

from __future__ import annotations

from rota.formats.partitions import read_partitions, write_partitions
from rota.formats.primitive import Reader, Writer
from rota.formats.version import HIGHEST_VERSION, read_version, written_version
from rota.model.membership import Assignment

SUBJECT = "assignment"


def decode(data: bytes) -> Assignment:
    """An assignment out of its bytes; a newer version's tail is ignored."""
    reader = Reader(data, SUBJECT)
    read_version(reader)
    partitions = read_partitions(reader, "assigned partitions")
    return Assignment(partitions, reader.nullable_bytes("user data"))


def encode(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """The bytes Java writes: topics in order of appearance, numbers as they stand."""
    writer = Writer(SUBJECT)
    writer.int16(written_version(version, SUBJECT))
    write_partitions(writer, assignment.partitions.by_topic().items())
    writer.nullable_bytes(assignment.user_data)
    return writer.done()
