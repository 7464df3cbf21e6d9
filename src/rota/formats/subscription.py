"""What a member tells the leader, as bytes: ConsumerProtocolSubscription, versions 0 to 3.

Version 1 added owned partitions, 2 their generation, 3 the rack. A newer version only appends
fields, so it is read as version 3 and its tail is ignored, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable

from rota.errors import FormatError
from rota.formats.javahash import java_sorted
from rota.formats.lockstep import read_listings
from rota.formats.partitions import read_partitions, sorted_by_topic, write_partitions
from rota.formats.primitive import Reader, Writer
from rota.formats.version import HIGHEST_VERSION, read_version, written_version
from rota.model.membership import NO_GENERATION, Subscription
from rota.model.topic import NO_PARTITIONS, Partitions

SUBJECT = "subscription"
OWNED, GENERATION, RACK = 1, 2, 3
"""The version that brought each field."""
SHARED_LISTINGS = 8
"""How many different lists of topics are remembered while a group is read."""


def decode(data: bytes, static_id: str | None = None) -> Subscription:
    """A subscription out of its bytes; the static id travels beside them, in the join."""
    return _Draft(data, static_id, {}).complete()


def topics_of(data: bytes) -> tuple[str, ...]:
    """The topics alone, whatever follows: all that a coordinator reads of it, as in Kafka."""
    return _Draft(data, None, {}).topics


def decode_all(members: Iterable[tuple[bytes, str | None]]) -> list[Subscription | FormatError]:
    """The subscriptions of a whole group, each from its bytes and static id, read together.

    The same as :func:`decode` of each one, at a fraction of the cost for a large group. Where the
    bytes do not follow the format, the error stands in the subscription's place.
    """
    known: dict[bytes, tuple[str, ...]] = {}
    drafts: list[_Draft | FormatError] = []
    for data, static_id in members:
        try:
            drafts.append(_Draft(data, static_id, known))
        except FormatError as error:
            drafts.append(error)
    owning = [draft for draft in drafts if isinstance(draft, _Draft) and draft.version >= OWNED]
    listings = read_listings(
        [draft.reader.data for draft in owning], [draft.reader.offset for draft in owning]
    )
    for draft, (owned, end) in zip(owning, listings, strict=True):
        if owned is not None:
            draft.owned, draft.reader.offset = owned, end
    return [_completed(draft) for draft in drafts]


class _Draft:
    """A subscription read up to its owned partitions."""

    __slots__ = ("owned", "reader", "static_id", "topics", "user_data", "version")

    def __init__(
        self, data: bytes, static_id: str | None, known: dict[bytes, tuple[str, ...]]
    ) -> None:
        self.reader = Reader(data, SUBJECT)
        self.static_id = static_id
        self.version = read_version(self.reader)
        self.topics = _topics(self.reader, known)
        self.user_data = self.reader.nullable_bytes("user data")
        self.owned: Partitions | None = None if self.version >= OWNED else NO_PARTITIONS

    def complete(self) -> Subscription:
        """Reads the rest."""
        owned, generation, rack = self.owned, NO_GENERATION, None
        if owned is None:
            owned = read_partitions(self.reader, "owned partitions")
        if self.version >= GENERATION:
            generation = self.reader.int32("generation")
        if self.version >= RACK:
            rack = self.reader.nullable_string("rack")
        return Subscription(
            topics=self.topics,
            user_data=self.user_data,
            owned=owned,
            generation=generation if generation >= 0 else None,
            rack=rack or None,
            static_id=self.static_id,
        )


def _completed(draft: _Draft | FormatError) -> Subscription | FormatError:
    if isinstance(draft, FormatError):
        return draft
    try:
        return draft.complete()
    except FormatError as error:
        return error


def _topics(reader: Reader, known: dict[bytes, tuple[str, ...]]) -> tuple[str, ...]:
    """Most members of a group send the same topics: equal bytes are read once, and shared."""
    start = reader.offset
    for listing, topics in known.items():
        if reader.data.startswith(listing, start):
            reader.offset += len(listing)
            return topics
    topics = tuple(reader.string("topic") for _ in range(reader.count("topics", 2)))
    if len(known) < SHARED_LISTINGS:
        known[reader.data[start : reader.offset]] = topics
    return topics


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
