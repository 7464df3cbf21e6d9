"""What a member tells the leader, as bytes: ConsumerProtocolSubscription, versions 0 to 3.

Version 1 added owned partitions, 2 their generation, 3 the rack. A newer version only appends
fields, so it is read as version 3 and its tail is ignored, as in Kafka.
"""

from __future__ import annotations

from rota.formats.javahash import java_sorted
from rota.formats.partitions import read_partitions, sorted_by_topic, write_partitions
from rota.formats.primitive import Reader, Writer
from rota.formats.version import HIGHEST_VERSION, read_version, written_version
from rota.model.membership import NO_GENERATION, Subscription
from rota.model.topic import NO_PARTITIONS

SUBJECT = "subscription"
OWNED, GENERATION, RACK = 1, 2, 3
"""The version that brought each field."""


def decode(data: bytes, static_id: str | None = None) -> Subscription:
    """A subscription out of its bytes; the static id travels beside them, in the join."""
    reader = Reader(data, SUBJECT)
    version = read_version(reader)
    topics = tuple(reader.string("topic") for _ in range(reader.count("topics", 2)))
    user_data = reader.nullable_bytes("user data")
    owned = read_partitions(reader, "owned partitions") if version >= OWNED else NO_PARTITIONS
    generation = reader.int32("generation") if version >= GENERATION else NO_GENERATION
    rack = reader.nullable_string("rack") if version >= RACK else None
    return Subscription(
        topics=topics,
        user_data=user_data,
        owned=owned,
        generation=generation if generation >= 0 else None,
        rack=rack or None,
        static_id=static_id,
    )


def encode(subscription: Subscription, version: int = HIGHEST_VERSION) -> bytes:
    """The bytes Java writes: topics and owned partitions sorted; what the version has no field
    for is left out.
    """
    version = written_version(version, SUBJECT)
    writer = Writer(SUBJECT)
    writer.int16(version)
    writer.int32(len(subscription.topics))
    for topic in java_sorted(subscription.topics):
        writer.string(topic)
    writer.nullable_bytes(subscription.user_data)
    if version >= OWNED:
        write_partitions(writer, sorted_by_topic(subscription.owned))
    if version >= GENERATION:
        generation = subscription.generation
        writer.int32(NO_GENERATION if generation is None else max(generation, NO_GENERATION))
    if version >= RACK:
        writer.string(subscription.rack)
    return writer.done()
