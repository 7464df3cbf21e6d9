"""The consumer protocol: subscriptions, assignments, and the user data of the sticky assignors.

The layouts, with the versions that have a field::

    subscription            version int16
                            topics: array of strings
                            user data: nullable bytes
                            owned partitions: partition list    from 1 on
                            generation int32                    from 2 on
                            rack nullable string                from 3 on

    assignment              version int16
                            partitions: partition list
                            user data: nullable bytes

    partition list          array of: topic string, partitions array of int32

    sticky user data        partitions: partition list, generation int32 (optional)
    cooperative user data   generation int32

Both have versions 0 to 3. A newer version only appends fields, so it is read as version 3 and the
rest is ignored, as in Kafka. kafka-python puts a 16-bit version in front of sticky user data; Java
cannot read that and ignores the owned partitions of such members.

A leader may get a million topic entries, a few hundred from each of thousands of members.
`read_partition_lists` reads the k-th entries of all members together, as arrays; a malformed list
is left to `read_partitions`, which raises the error. `encode_assignments` writes the assignments of
all members into one buffer, field by field.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from rota.engine.formats.buffer import BoolArray, ByteBuffer, Int64Array, find_distinct_names
from rota.engine.formats.hashing import compute_if_absent_order, java_sort_key, sort_like_java
from rota.engine.formats.primitive import PrimitiveReader, PrimitiveWriter, encode_string
from rota.engine.model.member import (
    NO_GENERATION,
    Assignment,
    OwnedPartitions,
    Placement,
    Subscription,
)
from rota.engine.model.topic import NO_PARTITIONS, IntArray, Partitions
from rota.errors import FormatError

HIGHEST_VERSION = 3


def read_protocol_version(reader: PrimitiveReader) -> int:
    version = reader.int16("version")
    if version < 0:
        raise reader.error("version", f"{version} is negative", at=reader.offset - 2)
    return min(version, HIGHEST_VERSION)


def limit_version(version: int, subject: str) -> int:
    """Returns the version to encode with: like Java, the highest known for a newer one."""
    if version < 0:
        raise FormatError(f"{subject}: version {version} is negative")
    return min(version, HIGHEST_VERSION)


SMALLEST_TOPIC_ENTRY = 6  # a topic with an empty name and no partitions: two lengths


def read_partitions(reader: PrimitiveReader, field: str) -> Partitions:
    """Reads partitions in the listed order; a topic may come twice."""
    index: dict[str, int] = {}
    topics: list[int] = []
    packed: list[bytes] = []
    topic_field, numbers_field = f"topic of {field}", f"partitions of {field}"
    for _ in range(reader.count(field, SMALLEST_TOPIC_ENTRY)):
        topics.append(index.setdefault(reader.string(topic_field), len(index)))
        packed.append(reader.packed_int32s(numbers_field))
    if not packed:
        return NO_PARTITIONS
    topic = np.repeat(np.array(topics, dtype=np.int32), [len(piece) // 4 for piece in packed])
    numbers = np.frombuffer(b"".join(packed), dtype=">i4").astype(np.int32)
    for column in (topic, numbers):
        column.setflags(write=False)
    return Partitions(tuple(index), topic, numbers)


def write_partitions(
    writer: PrimitiveWriter, entries: Iterable[tuple[str, tuple[int, ...]]]
) -> None:
    """Writes one entry per topic, in the given order."""
    listed = list(entries)
    writer.count(len(listed))
    for topic, numbers in listed:
        writer.string(topic)
        writer.int32s(numbers)


def sort_by_topic(partitions: Partitions) -> list[tuple[str, tuple[int, ...]]]:
    """Returns topics in Java's order, the numbers of each ascending."""
    found = partitions.by_topic()
    return [(name, tuple(sorted(found[name]))) for name in sorted(found, key=java_sort_key)]


FEW_MEMBERS = 16  # with fewer members left, a step costs more than reading them singly


def read_partition_lists(
    pieces: Sequence[bytes], offsets: Sequence[int]
) -> list[tuple[Partitions | None, int]]:
    """Reads the partition list of each piece (None: not read here), and the offset after it."""
    if len(pieces) < FEW_MEMBERS:
        return [(None, offset) for offset in offsets]
    source = ByteBuffer(pieces)
    limits = np.cumsum(np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces)))
    starts = np.append(0, limits[:-1])
    was_read, ends, (name_at, count, member) = _find_entries(
        source, starts + np.array(offsets), limits
    )
    name_size = source.int16[name_at].astype(np.int64) + 2
    names, topic = find_distinct_names(source, name_at, name_size)
    was_read[member[topic < 0]] = False
    first = np.cumsum(count) - count
    at = np.repeat(name_at + name_size + 4 - 4 * first, count)
    at += np.arange(0, 4 * len(at), 4)
    numbers = source.int32[at].astype(np.int32)
    topic = np.repeat(topic, count)
    for column in (topic, numbers):
        column.setflags(write=False)
    entry = np.searchsorted(member, np.arange(len(pieces) + 1))
    bounds = np.append(first, len(at))[entry].tolist()
    found: list[tuple[Partitions | None, int]] = []
    for first_row, end_row, whole, end in zip(
        bounds, bounds[1:], was_read.tolist(), (ends - starts).tolist(), strict=False
    ):
        rows = slice(first_row, end_row)
        found.append((Partitions(names, topic[rows], numbers[rows]) if whole else None, end))
    return found


def _find_entries(
    source: ByteBuffer, starts: Int64Array, limits: Int64Array
) -> tuple[BoolArray, Int64Array, tuple[Int64Array, Int64Array, Int64Array]]:
    """Finds which lists are read, where they end, and each entry's topic, count and member."""
    counts = source.int32[starts].astype(np.int64)
    room = limits - starts - 4
    read: BoolArray = (room >= 0) & (counts >= 0) & (counts * SMALLEST_TOPIC_ENTRY <= room)
    sizes: Int64Array = np.where(read, counts, 0)
    ends: Int64Array = starts + 4
    name_at, entry_count = np.empty((2, int(sizes.sum())), dtype=np.int64)
    live = np.flatnonzero(sizes)
    row_end = np.cumsum(sizes)[live]
    row = row_end - sizes[live]
    at, limit = ends[live], limits[live]
    while len(live) >= FEW_MEMBERS:
        size = source.int16[at]
        count_at = at + 2 + size
        bad = (size < 0) | (count_at + 4 > limit)
        count = source.int32[np.where(bad, 0, count_at)].astype(np.int64)
        after = count_at + 4 + 4 * count
        bad |= (count < 0) | (after > limit)
        name_at[row], entry_count[row] = at, count
        row += 1
        at = after
        gone = bad | (row == row_end)
        if gone.any():
            ends[live] = at
            read[live[bad]] = False
            stay = ~gone
            live, row, row_end = live[stay], row[stay], row_end[stay]
            at, limit = at[stay], limit[stay]
    read[live] = False
    member = np.repeat(np.arange(len(sizes)), sizes)
    kept: BoolArray | slice = slice(None) if read.all() else read[member]
    return read, ends, (name_at[kept], entry_count[kept], member[kept])


SUBSCRIPTION = "subscription"

#: The version that brought each field.
OWNED_PARTITIONS_VERSION, GENERATION_VERSION, RACK_VERSION = 1, 2, 3

MAX_SHARED_TOPIC_LISTS = 8  # lists of topics remembered while a group is read


def decode_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """Decodes a subscription; the group instance id is not part of its bytes but of JoinGroup."""
    return _PartialSubscription(data, group_instance_id, {}).complete()


def decode_subscribed_topics(data: bytes) -> tuple[str, ...]:
    """Decodes the topics only and ignores the rest: all that a coordinator reads, as in Kafka."""
    return _PartialSubscription(data, None, {}).topics


def decode_subscriptions(
    members: Iterable[tuple[bytes, str | None]],
) -> list[Subscription | FormatError]:
    """Decodes the subscriptions of a whole group together, much faster than
    :func:`decode_subscription`; the error takes the place of a malformed one.
    """
    known: dict[bytes, tuple[str, ...]] = {}
    found: list[_PartialSubscription | FormatError] = []
    for data, group_instance_id in members:
        try:
            found.append(_PartialSubscription(data, group_instance_id, known))
        except FormatError as error:
            found.append(error)
    owning = [
        each
        for each in found
        if isinstance(each, _PartialSubscription) and each.version >= OWNED_PARTITIONS_VERSION
    ]
    lists = read_partition_lists(
        [each.reader.data for each in owning], [each.reader.offset for each in owning]
    )
    for each, (owned, end) in zip(owning, lists, strict=True):
        if owned is not None:
            each.owned, each.reader.offset = owned, end
    return [_complete_or_error(each) for each in found]


class _PartialSubscription:
    __slots__ = ("group_instance_id", "owned", "reader", "topics", "user_data", "version")

    def __init__(
        self, data: bytes, group_instance_id: str | None, known: dict[bytes, tuple[str, ...]]
    ) -> None:
        self.reader = PrimitiveReader(data, SUBSCRIPTION)
        self.group_instance_id = group_instance_id
        self.version = read_protocol_version(self.reader)
        self.topics = _read_topics(self.reader, known)
        self.user_data = self.reader.nullable_bytes("user data")
        self.owned: Partitions | None = (
            None if self.version >= OWNED_PARTITIONS_VERSION else NO_PARTITIONS
        )

    def complete(self) -> Subscription:
        owned, generation, rack = self.owned, NO_GENERATION, None
        if owned is None:
            owned = read_partitions(self.reader, "owned partitions")
        if self.version >= GENERATION_VERSION:
            generation = self.reader.int32("generation")
        if self.version >= RACK_VERSION:
            rack = self.reader.nullable_string("rack")
        return Subscription(
            topics=self.topics,
            user_data=self.user_data,
            owned=owned,
            generation=generation if generation >= 0 else None,
            rack=rack or None,
            group_instance_id=self.group_instance_id,
        )


def _complete_or_error(found: _PartialSubscription | FormatError) -> Subscription | FormatError:
    try:
        return found if isinstance(found, FormatError) else found.complete()
    except FormatError as error:
        return error


def _read_topics(reader: PrimitiveReader, known: dict[bytes, tuple[str, ...]]) -> tuple[str, ...]:
    """Reads topics; most members of a group send the same bytes, which are read once and shared."""
    start = reader.offset
    for listing, topics in known.items():
        if reader.data.startswith(listing, start):
            reader.offset += len(listing)
            return topics
    topics = tuple(reader.string("topic") for _ in range(reader.count("topics", 2)))
    if len(known) < MAX_SHARED_TOPIC_LISTS:
        known[reader.data[start : reader.offset]] = topics
    return topics


def encode_subscription(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """Encodes a subscription as Java does: topics and owned partitions are sorted."""
    version = limit_version(version, SUBSCRIPTION)
    writer = PrimitiveWriter(SUBSCRIPTION)
    writer.int16(version)
    writer.int32(len(subscription.topics))
    for topic in sort_like_java(subscription.topics):
        writer.string(topic)
    writer.nullable_bytes(subscription.user_data)
    if version >= OWNED_PARTITIONS_VERSION:
        write_partitions(writer, sort_by_topic(subscription.owned))
    if version >= GENERATION_VERSION:
        generation = subscription.generation
        writer.int32(NO_GENERATION if generation is None else max(generation, NO_GENERATION))
    if version >= RACK_VERSION:
        writer.string(subscription.rack)
    return writer.to_bytes()


ASSIGNMENT = "assignment"


def decode_assignment(data: bytes) -> Assignment:
    """Decodes an assignment; additional fields of a newer version are ignored."""
    reader = PrimitiveReader(data, ASSIGNMENT)
    read_protocol_version(reader)
    partitions = read_partitions(reader, "assigned partitions")
    return Assignment(partitions, reader.nullable_bytes("user data"))


def encode_assignment(assignment: Assignment, version: int = HIGHEST_VERSION) -> bytes:
    """Encodes an assignment as Java does: topics and partitions are not sorted."""
    writer = PrimitiveWriter(ASSIGNMENT)
    writer.int16(limit_version(version, ASSIGNMENT))
    write_partitions(writer, assignment.partitions.by_topic().items())
    writer.nullable_bytes(assignment.user_data)
    return writer.to_bytes()


#: Bytes of the version and the number of topics, and of user data that is null.
ASSIGNMENT_PREFIX_SIZE, ASSIGNMENT_SUFFIX_SIZE = 6, 4


def _put(
    buffer: npt.NDArray[np.uint8],
    kind: str,
    at: npt.NDArray[np.integer],
    values: npt.NDArray[np.generic] | int,
) -> None:
    """Writes values at any offsets of a buffer, aligned or not."""
    rows = max(len(buffer) - np.dtype(kind).itemsize + 1, 0)
    np.ndarray((rows,), kind, buffer, strides=(1,))[at] = values


def encode_assignments(placement: Placement) -> dict[str, bytes]:
    """Encodes assignments like :func:`encode_assignment` of each, by columns in one buffer."""
    order, bounds = placement.numbers_by_member
    rows, bounds = order[bounds[0] :], bounds - bounds[0]
    topic = placement.layout.topic_of[rows]
    first = _find_topic_entries(topic, bounds)
    count = np.diff(first, append=len(rows))
    entry_topic = topic[first]
    entry_bounds = np.searchsorted(first, bounds)
    entries = np.diff(entry_bounds)

    names = [encode_string(name, ASSIGNMENT) for name in placement.layout.topics]
    name_size = np.array([len(name) for name in names], dtype=np.int64)[entry_topic]
    ends = np.cumsum(np.append(0, name_size + 4 + 4 * count))
    member = np.arange(len(placement.members))
    fixed = ASSIGNMENT_PREFIX_SIZE + ASSIGNMENT_SUFFIX_SIZE
    name_at = ends[:-1] + ASSIGNMENT_PREFIX_SIZE + fixed * np.repeat(member, entries)
    count_at = name_at + name_size
    member_at = ends[entry_bounds] + fixed * np.arange(len(bounds))

    buffer = np.empty(int(member_at[-1]), dtype=np.uint8)
    _put(buffer, ">i2", member_at[:-1], HIGHEST_VERSION)
    _put(buffer, ">i4", member_at[:-1] + 2, entries)
    _put(buffer, ">i4", member_at[1:] - ASSIGNMENT_SUFFIX_SIZE, -1)
    _write_names(buffer, names, entry_topic, name_at, name_size)
    _put(buffer, ">i4", count_at, count)
    number_at = np.repeat(count_at + 4 - 4 * first, count) + 4 * np.arange(len(rows))
    _put(buffer, ">i4", number_at, rows - placement.layout.starts[topic])

    data = buffer.tobytes()
    cuts = member_at.tolist()
    return {
        member_id: data[begin:end]
        for member_id, begin, end in zip(placement.members, cuts[:-1], cuts[1:], strict=True)
    }


def _find_topic_entries(topic: IntArray, bounds: Int64Array) -> npt.NDArray[np.intp]:
    """Returns the first row of each entry: a run of partitions of one topic and one member."""
    starts = np.ones(len(topic) + 1, dtype=np.bool_)
    np.not_equal(topic[1:], topic[:-1], out=starts[1:-1])
    starts[bounds] = True
    return np.flatnonzero(starts[:-1])


def _write_names(
    buffer: npt.NDArray[np.uint8],
    names: list[bytes],
    entry_topic: IntArray,
    name_at: Int64Array,
    name_size: Int64Array,
) -> None:
    """Writes names of one length together, as values of that many bytes."""
    by_size = np.argsort(name_size.astype(np.uint16), kind="stable")
    per_size = np.bincount(name_size)
    sizes = np.array([len(name) for name in names])
    position = np.empty(len(names), dtype=np.intp)
    end = 0
    for size in np.flatnonzero(per_size).tolist():
        begin, end = end, end + int(per_size[size])
        chosen = by_size[begin:end]
        alike = np.flatnonzero(sizes == size)
        position[alike] = np.arange(len(alike))
        table = np.frombuffer(b"".join([names[topic] for topic in alike]), dtype=f"V{size}")
        _put(buffer, f"V{size}", name_at[chosen], table[position[entry_topic[chosen]]])


STICKY_USER_DATA = "sticky user data"
COOPERATIVE_USER_DATA = "cooperative user data"


def encode_sticky_user_data(owned: Partitions, generation: int) -> bytes:
    """Encodes version 1, with topics in the order of Java's hash map."""
    found = owned.by_topic()
    names = list(found)
    # Java groups one partition at a time: is the last partition of a topic that came before?
    last = found[names[-1]] if names else ()
    looked_up_after = len(owned) > 0 and (
        len(last) > 1 or owned.names[owned.topic[-1]] != names[-1]
    )
    writer = PrimitiveWriter(STICKY_USER_DATA)
    order = compute_if_absent_order(names, looked_up_after=looked_up_after)
    write_partitions(writer, ((names[position], found[names[position]]) for position in order))
    writer.int32(generation)
    return writer.to_bytes()


def decode_sticky_user_data(data: bytes) -> OwnedPartitions:
    """Decodes Java's or kafka-python's form, whichever uses all bytes, else Java's. Unreadable
    bytes give no owned partitions and a note.
    """
    reader = PrimitiveReader(data, STICKY_USER_DATA)
    try:
        partitions = read_partitions(reader, "previous assignment")
        # version 1 has a generation, version 0 has none
        generation = reader.int32("generation") if reader.remaining >= 4 else NO_GENERATION
        read = OwnedPartitions(partitions=partitions, generation=generation)
    except FormatError as error:
        read = OwnedPartitions(partitions=NO_PARTITIONS, note=f"unreadable, so no claim: {error}")
    else:
        if not reader.remaining:
            return read
    try:
        return _read_kafka_python_user_data(data)
    except FormatError:
        return read


def decode_all_sticky_user_data(data: Sequence[bytes]) -> list[OwnedPartitions]:
    found: list[OwnedPartitions] = []
    for piece, (partitions, end) in zip(
        data, read_partition_lists(data, [0] * len(data)), strict=True
    ):
        left = len(piece) - end
        if partitions is None or left not in {0, 4}:
            found.append(decode_sticky_user_data(piece))
        else:
            generation = int.from_bytes(piece[end:], "big", signed=True) if left else NO_GENERATION
            found.append(OwnedPartitions(partitions=partitions, generation=generation))
    return found


def _read_kafka_python_user_data(data: bytes) -> OwnedPartitions:
    """Reads a 16-bit version, 0 or 1, and the fields up to the last byte."""
    reader = PrimitiveReader(data, STICKY_USER_DATA)
    version = reader.int16("version")
    if version not in {0, 1}:
        raise reader.error("version", f"unknown {version}", at=0)
    partitions = read_partitions(reader, "previous assignment")
    generation = reader.int32("generation") if version else NO_GENERATION
    if reader.remaining:
        raise reader.error("end", f"{reader.remaining} bytes too many")
    return OwnedPartitions(partitions=partitions, generation=generation)


def encode_cooperative_user_data(generation: int) -> bytes:
    writer = PrimitiveWriter(COOPERATIVE_USER_DATA)
    writer.int32(generation)
    return writer.to_bytes()


def decode_cooperative_user_data(data: bytes) -> tuple[int, str | None]:
    """Returns the generation, and a note if it could not be read; further bytes are ignored."""
    try:
        return PrimitiveReader(data, COOPERATIVE_USER_DATA).int32("generation"), None
    except FormatError as error:
        return NO_GENERATION, f"unreadable, so no generation: {error}"
