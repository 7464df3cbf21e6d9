"""What a test sees of a broker and does to it from inside, without a client.

Each function works on the node's parts, and must be called where the node is: in its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from rota.broker.node import Node
from rota.broker.part import Parts
from rota.broker.topic import Topic
from rota.errors import Code, FormatError, InputError, Refused
from rota.formats import assignment, batch, subscription
from rota.formats.murmur import partition_of
from rota.model.reply import (
    DescribedGroup,
    DescribedMember,
    DescribeGroupsReply,
    FetchOffsetsReply,
    ListGroupsReply,
    Reply,
)
from rota.model.request import CONSUMER, DescribeGroups, FetchOffsets, ListGroups
from rota.model.setting import written
from rota.model.topic import TopicPartition

Text: TypeAlias = bytes | str | None
"""What a record carries; a text goes as UTF-8."""
Headers: TypeAlias = Mapping[str, Text] | Iterable[tuple[str, Text]]
READ = 1 << 20
HEADER = 61
"""Bytes of a batch before its records."""
OVERHEAD = 40
"""Bytes of a record beside its key and value, or of a header beside its name and value, at most."""
R = TypeVar("R", bound=Reply)
T = TypeVar("T", str, TopicPartition)


class Record(NamedTuple):
    """A record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group, as the coordinator sees it."""

    id: str
    static_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    """It has subscribed to; known while the group is stable."""
    partitions: tuple[TopicPartition, ...]
    """It was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group, as the coordinator sees it."""

    name: str
    state: str
    """``Empty``, ``PreparingRebalance``, ``CompletingRebalance``, ``Stable``; ``Dead``: there is no
    such group."""
    strategy: str
    members: tuple[GroupMember, ...]


# Topics and records


def create_topic(
    parts: Parts, name: str, partitions: int | None, config: Mapping[str, object], now: int
) -> None:
    """Makes a topic, with the broker's number of partitions unless told."""
    count = parts.config.default_partitions if partitions is None else _whole(partitions)
    overrides = {key: _setting(key, value) for key, value in config.items()}
    parts.topics.create(name, count, overrides, now)


def grow_topic(parts: Parts, name: str, partitions: int, now: int) -> None:
    """Gives a topic more partitions."""
    parts.topics.grow(name, _whole(partitions), now)


def _whole(partitions: int) -> int:
    if type(partitions) is not int:
        raise InputError(f"partitions: {partitions!r} is not a whole number")
    return partitions


def _setting(key: str, value: object) -> str:
    if not isinstance(value, bool | int | float | str):
        raise InputError(f"{key}: {value!r} is neither a text nor a number nor a boolean")
    return written(value)


def topics(parts: Parts) -> dict[str, int]:
    """How many partitions each topic has, but for the broker's own."""
    return {topic.name: topic.partitions for topic in parts.topics if not topic.internal}


def produce(  # noqa: PLR0913, what a record has
    parts: Parts,
    topic: str,
    values: Sequence[Text],
    *,
    key: Text,
    headers: Headers,
    partition: int | None,
    timestamp: int | None,
    now: int,
) -> list[Record]:
    """Appends records, and gives them as they are stored."""
    found = parts.topics.get(topic)
    if found is None:
        if not parts.config.auto_create_topics:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        found = parts.topics.create(topic, parts.config.default_partitions, {}, now)
    packed_key, packed_headers = _packed("key", key), _packed_headers(headers)
    at = now if timestamp is None else timestamp
    chosen = _partition(found, packed_key, partition)
    if not values:
        return []
    stored: list[Record] = []
    for part in _batches(values, packed_key, packed_headers, found.config.max_message_bytes):
        records = [
            batch.Record(number, at, packed_key, value, packed_headers)
            for number, value in enumerate(part)
        ]
        appended = parts.topics.append(topic, chosen, batch.encode(records), now)
        time = at if appended.append_time == -1 else appended.append_time
        stored += [
            _record(topic, chosen, each, appended.base_offset + number, time)
            for number, each in enumerate(records)
        ]
    return stored


def _batches(
    values: Sequence[Text],
    key: bytes | None,
    headers: tuple[tuple[bytes, bytes | None], ...],
    most: int,
) -> Iterator[list[bytes | None]]:
    """As many in a batch as a producer could send in one."""
    each = OVERHEAD + len(key or b"")
    each += sum(OVERHEAD + len(name) + len(value or b"") for name, value in headers)
    part: list[bytes | None] = []
    left = most - HEADER
    for value in values:
        packed = _packed("value", value)
        size = each + len(packed or b"")
        if part and size > left:
            yield part
            part, left = [], most - HEADER
        part.append(packed)
        left -= size
    if part:
        yield part


def read(
    parts: Parts, topic: str, *, partition: int | None, start: int | None, most: int | None
) -> list[Record]:
    """The records of a topic, by partition and offset; from its first offset unless told."""
    found = parts.topics.get(topic)
    if found is None:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
    numbers = range(found.partitions) if partition is None else [_known(found, partition)]
    records: list[Record] = []
    for number in numbers:
        log = found.logs[number]
        at = log.start if start is None else max(start, log.start)
        while at < log.end and (most is None or len(records) < most):
            columns = batch.decode(log.read(at, READ))
            records.extend(
                _record(topic, number, each, each.offset, each.timestamp)
                for each in batch.records(columns)
                if each.offset >= at
            )
            at = int(columns.batches.last_offset[-1]) + 1
    return records if most is None else records[:most]


def _record(topic: str, partition: int, record: batch.Record, offset: int, at: int) -> Record:
    headers = tuple((name.decode(errors="replace"), value) for name, value in record.headers)
    return Record(topic, partition, offset, at, record.key, record.value, headers)


def _partition(topic: Topic, key: bytes | None, partition: int | None) -> int:
    if partition is not None:
        return _known(topic, partition)
    if key is not None:
        return partition_of(key, topic.partitions)
    return min(range(topic.partitions), key=lambda number: topic.logs[number].end)


def _known(topic: Topic, partition: int) -> int:
    if not 0 <= partition < topic.partitions:
        raise InputError(
            f"partition {partition}: topic {topic.name!r} has {topic.partitions}, numbered from 0"
        )
    return partition


def _packed(what: str, value: Text) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise InputError(f"{what} {value!r} is neither bytes nor text nor None")


def _packed_headers(headers: Headers) -> tuple[tuple[bytes, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name.encode(), _packed(f"header {name!r}", value)) for name, value in pairs)


# Groups


def groups(parts: Parts, now: int) -> dict[str, str]:
    """The state of each group."""
    reply = _ask(parts, ListGroups(), ListGroupsReply, now)
    return {each.group: each.state for each in reply.groups}


def group(parts: Parts, name: str, now: int) -> Group:
    """A group; one that there is not is ``Dead``, as Kafka has it."""
    asked = DescribeGroups(groups=(name,), knows_missing_group=False)
    (found,) = _ask(parts, asked, DescribeGroupsReply, now).groups
    return Group(
        name=name,
        state=found.state,
        strategy=found.protocol,
        members=tuple(_member(found, each) for each in found.members),
    )


def committed(parts: Parts, name: str, now: int) -> dict[TopicPartition, int]:
    """The offsets that a group has committed."""
    reply = _ask(parts, FetchOffsets(group=name), FetchOffsetsReply, now)
    if reply.code:  # its part of the journal is damaged
        raise Refused(reply.code, f"the offsets of group {name!r}: {reply.code.name}")
    found = {where: each.offset for where, each in reply.offsets.items() if each is not None}
    return dict(sorted(found.items()))


def expire(parts: Parts, member: str, name: str | None, now: int) -> None:
    """Ends a member's session; it is known by its member id or static id, or by a client id that
    no other member has.
    """
    names = list(groups(parts, now)) if name is None else [name]
    members = [(each, one) for each in names for one in group(parts, each, now).members]
    found = [pair for pair in members if member in {pair[1].id, pair[1].static_id}]
    found = found or [pair for pair in members if member == pair[1].client_id]
    if len(found) != 1:
        there = ", ".join(f"{one.static_id or one.id} of {each}" for each, one in members) or "none"
        problem = "there is no such member" if not found else "more than one is called so"
        raise InputError(f"member {member!r}: {problem}; members are: {there}")
    where, one = found[0]
    parts.groups.expire(where, one.id, now)


def move(parts: Parts, name: str, now: int) -> None:
    """Takes a group away from its coordinator."""
    known = groups(parts, now)
    if name not in known:
        raise InputError(f"there is no group {name!r}; groups are: {', '.join(known) or 'none'}")
    parts.groups.move(name, now)


def _ask(
    parts: Parts, request: DescribeGroups | FetchOffsets | ListGroups, kind: type[R], now: int
) -> R:
    reply = parts.groups.look(request, now)
    assert isinstance(reply, kind)
    return reply


def _member(found: DescribedGroup, member: DescribedMember) -> GroupMember:
    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    if found.protocol_type == CONSUMER:
        topics = _decoded(lambda: subscription.decode(member.metadata).topics, member.metadata)
        partitions = _decoded(
            lambda: tuple(assignment.decode(member.assignment).partitions), member.assignment
        )
    return GroupMember(
        id=member.member_id,
        static_id=member.static_id,
        client_id=member.client_id,
        host=member.client_host,
        topics=topics,
        partitions=partitions,
    )


def _decoded(decode: Callable[[], Iterable[T]], data: bytes) -> tuple[T, ...]:
    """Nothing, where a client has its own format."""
    try:
        return tuple(sorted(decode())) if data else ()
    except FormatError:
        return ()


# Connections


def disconnect(node: Node, client_id: str | None) -> int:
    """Cuts the connections of a client, or all; gives how many there were."""
    found = [each for each in node.clients if client_id in {None, each.client_id}]
    if client_id is not None and not found:
        there = ", ".join(sorted({each.client_id for each in node.clients})) or "none"
        raise InputError(f"client {client_id!r} is not connected; clients are: {there}")
    for each in found:
        node.close(each.connection, "cut on order")
    return len(found)
