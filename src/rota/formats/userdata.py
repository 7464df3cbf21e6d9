"""User data of the sticky family: what a member owned, as bytes.

The bytes carry no version in Java's form: version 1 is version 0 with a generation behind it, a
newer one may have more behind that, and a reader takes what it knows. kafka-python puts a 16-bit
version in front; Java cannot read that and forgets what such members own.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.errors import FormatError
from rota.formats.javahash import computed_map_order
from rota.formats.lockstep import read_listings
from rota.formats.partitions import read_partitions, write_partitions
from rota.formats.primitive import Reader, Writer
from rota.model.membership import NO_GENERATION, Ownership
from rota.model.topic import NO_PARTITIONS, Partitions

SUBJECT = "sticky user data"
COOPERATIVE = "cooperative user data"


def encode_sticky(owned: Partitions, generation: int) -> bytes:
    """Sticky user data, version 1, topics in the order of Java's hash map."""
    found = owned.by_topic()
    names = list(found)
    # Java groups one partition at a time: does one of a topic already seen come last?
    last = found[names[-1]] if names else ()
    looked_up_after = len(owned) > 0 and (
        len(last) > 1 or owned.names[owned.topic[-1]] != names[-1]
    )
    writer = Writer(SUBJECT)
    order = computed_map_order(names, looked_up_after=looked_up_after)
    write_partitions(writer, ((names[position], found[names[position]]) for position in order))
    writer.int32(generation)
    return writer.done()


def decode_sticky(data: bytes) -> Ownership:
    """Sticky user data of Java or kafka-python; garbage is no claim, with a note.

    A form that uses up the bytes comes first, which tells the two apart. Where none does, they are
    read as Java reads them: a tail is a newer version's, and ignored.
    """
    reader = Reader(data, SUBJECT)
    try:
        read = _read_java(reader)
    except FormatError as error:
        read = Ownership(partitions=NO_PARTITIONS, note=f"unreadable, so no claim: {error}")
    else:
        if not reader.remaining:
            return read
    try:
        return _read_kafka_python(data)
    except FormatError:
        return read


def decode_sticky_all(data: Sequence[bytes]) -> list[Ownership]:
    """The user data of a whole group, read together: the same as :func:`decode_sticky` of each."""
    found: list[Ownership] = []
    for piece, (partitions, end) in zip(data, read_listings(data, [0] * len(data)), strict=True):
        left = len(piece) - end
        if partitions is None or left not in {0, 4}:
            found.append(decode_sticky(piece))
        else:
            generation = int.from_bytes(piece[end:], "big", signed=True) if left else NO_GENERATION
            found.append(Ownership(partitions=partitions, generation=generation))
    return found


def _read_java(reader: Reader) -> Ownership:
    """Version 1 where there are bytes enough for a generation, else version 0."""
    partitions = read_partitions(reader, "previous assignment")
    generation = reader.int32("generation") if reader.remaining >= 4 else NO_GENERATION
    return Ownership(partitions=partitions, generation=generation)


def _read_kafka_python(data: bytes) -> Ownership:
    """Version 0 or 1 behind its number, to the last byte."""
    reader = Reader(data, SUBJECT)
    version = reader.int16("version")
    if version not in {0, 1}:
        raise reader.error("version", f"unknown {version}", at=0)
    partitions = read_partitions(reader, "previous assignment")
    generation = reader.int32("generation") if version else NO_GENERATION
    if reader.remaining:
        raise reader.error("end", f"{reader.remaining} bytes too many")
    return Ownership(partitions=partitions, generation=generation)


def encode_cooperative(generation: int) -> bytes:
    """Cooperative user data, version 0: the generation alone."""
    writer = Writer(COOPERATIVE)
    writer.int32(generation)
    return writer.done()


def decode_cooperative(data: bytes) -> tuple[int, str | None]:
    """The generation, and a note if it could not be read; a newer version's tail is ignored."""
    try:
        return Reader(data, COOPERATIVE).int32("generation"), None
    except FormatError as error:
        return NO_GENERATION, f"unreadable, so no generation: {error}"
