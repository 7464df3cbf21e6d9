"""What tests see of a running broker and do to it: topics, records, groups, faults, connections.

:class:`BrokerControl` is the base class of ``rota.Broker``; its methods may be called from any
thread. The functions below it do the work on the node and must run in the broker's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

from rota.broker.dispatch import HandlerContext
from rota.broker.faults import InjectedFault, find_api, find_error_code
from rota.broker.node import BrokerNode
from rota.broker.timers import Clock
from rota.broker.topics import Topic
from rota.engine.formats import consumer_protocol, record_batch, record_batch_columns
from rota.engine.formats.hashing import choose_partition
from rota.engine.model.config import format_config_value
from rota.engine.model.request import (
    CONSUMER_PROTOCOL_TYPE,
    DescribeGroups,
    ListGroups,
    OffsetFetch,
)
from rota.engine.model.response import (
    DescribedGroup,
    DescribedMember,
    DescribeGroupsResult,
    GroupResponse,
    ListGroupsResult,
    OffsetFetchResult,
)
from rota.engine.model.topic import TopicPartition
from rota.errors import Code, FormatError, InputError, Refused


def check_times(given: int | None) -> int | None:
    """Returns the number of times a fault is injected, checked."""
    if given is not None and (type(given) is not int or given < 1):
        raise InputError(f"times: {given!r} is not a number from 1 up, nor None")
    return given


def to_milliseconds(seconds: float) -> int:
    """Converts seconds to milliseconds, checked."""
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not number or not 0 <= seconds < 1e10:
        raise InputError(f"seconds: {seconds!r} is not a number of seconds")
    return round(seconds * 1_000)


T = TypeVar("T")

#: Seconds that what is waited for has to happen.
DEFAULT_TIMEOUT = 10.0

POLL_INTERVAL = 0.005


class BrokerControl:
    """Test control of a broker: its topics, records and groups, and injected faults."""

    _clock: Clock

    def _run(self, act: Callable[[BrokerNode], T]) -> T:
        """Returns the result of ``act``, called in the broker's thread."""
        raise NotImplementedError

    # Topics and records

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Creates a topic.

        :param partitions: by default num.partitions, which is 1 by default
        :param config: the topic's own settings, under Kafka's names
        :raises Refused: the topic exists, or cannot be created with these arguments
        """
        self._run(
            lambda node: _create_topic(
                node.context, name, partitions, config or {}, self._clock.now()
            )
        )

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records.

        :raises Refused: there is no topic of this name
        """
        self._run(lambda node: node.context.topics.delete(name, self._clock.now()))

    def create_partitions(self, name: str, partitions: int) -> None:
        """Adds partitions to a topic until it has ``partitions`` of them.

        :raises Refused: there is no topic of this name, or it already has as many
        """
        self._run(
            lambda node: _create_partitions(node.context, name, partitions, self._clock.now())
        )

    @property
    def topics(self) -> dict[str, int]:
        """Number of partitions by topic, without the broker's internal topics."""
        return self._run(lambda node: _count_partitions(node.context))

    def produce(
        self,
        topic: str,
        *values: RecordData,
        key: RecordData = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> list[Record]:
        """Appends records, all to one partition: the one that a producer would choose for the
        key, else the shortest. A missing topic is created, unless auto.create.topics.enable
        is false.
        """
        return self._run(
            lambda node: _produce_records(
                node.context,
                topic,
                values,
                key=key,
                headers=headers,
                partition=partition,
                timestamp=timestamp,
                now=self._clock.now(),
            )
        )

    def read(
        self,
        topic: str,
        *,
        partition: int | None = None,
        offset: int | None = None,
        count: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> list[Record]:
        """Returns the records of a topic, by partition and offset.

        :param offset: first offset in each partition; by default the first that exists
        :param count: wait until there are this many records, and return no more
        :param timeout: seconds to wait for them
        :raises TimeoutError: there were fewer when the time was up
        """
        look = partial(_read_records, topic=topic, partition=partition, start=offset, most=count)
        if count is None:
            return self._run(lambda node: look(node.context))

        found: list[Record] = []

        def enough() -> list[Record] | None:
            nonlocal found
            if topic in self.topics:
                found = self._run(lambda node: look(node.context))
            return found if len(found) >= count else None

        return self._wait(
            enough, timeout, lambda: f"{topic} has {len(found)} of {count} records awaited"
        )

    # Groups

    @property
    def groups(self) -> dict[str, str]:
        """State by group."""
        return self._run(lambda node: _list_group_states(node.context, self._clock.now()))

    def group(
        self, name: str, *, members: int | None = None, timeout: float = DEFAULT_TIMEOUT
    ) -> Group:
        """Returns a group with its members, as the coordinator sees it.

        :param members: wait until the group is stable with this many members (0: until it is
            empty)
        :param timeout: seconds to wait for that
        :raises TimeoutError: it did not happen in time
        """

        def look() -> Group:
            return self._run(lambda node: _describe_group(node.context, name, self._clock.now()))

        seen = look()
        if members is None:
            return seen

        def settled() -> Group | None:
            nonlocal seen
            seen = look()
            stable = seen.state == ("Stable" if members else "Empty")
            return seen if stable and len(seen.members) == members else None

        return self._wait(
            settled,
            timeout,
            lambda: (
                f"group {name} is {seen.state} with {len(seen.members)} members, "
                f"{members} were awaited"
            ),
        )

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Returns a group's committed offsets by partition."""
        return self._run(lambda node: _fetch_committed(node.context, group, self._clock.now()))

    def expire(self, member: str, *, group: str | None = None) -> None:
        """Ends a member's session now, as if the member had been silent for too long.

        :param member: its member id or static id, or a client id that no other member has
        """
        self._run(lambda node: _expire_member(node.context, member, group, self._clock.now()))

    def move_coordinator(self, group: str) -> None:
        """Takes a group away from its coordinator, as when a broker of a cluster stops.

        Members get NOT_COORDINATOR until they look for the coordinator again; then the group is
        loaded from the journal, without a rebalance.
        """
        self._run(lambda node: _move_coordinator(node.context, group, self._clock.now()))

    # Faults

    def fail(
        self,
        api: str | int,
        error: str | int,
        *,
        times: int | None = 1,
        client_id: str | None = None,
    ) -> None:
        """Answers the next requests with an error, without handling them.

        :param api: Kafka's name (``"Produce"``, ``"JoinGroup"``) or key of the API
        :param error: Kafka's name (``"NOT_COORDINATOR"``) or code of the error
        :param times: number of requests; None: all, until :meth:`clear_faults`
        :param client_id: only requests of this client
        """
        self._order(api, times, client_id, code=find_error_code(error))

    def delay(
        self,
        api: str | int,
        seconds: float,
        *,
        times: int | None = 1,
        client_id: str | None = None,
    ) -> None:
        """Handles the next requests later, by the broker's clock. Otherwise as :meth:`fail`."""
        wait = to_milliseconds(seconds)
        if wait:
            self._order(api, times, client_id, delay=wait)

    def drop_response(
        self, api: str | int, *, times: int | None = 1, client_id: str | None = None
    ) -> None:
        """Handles the next requests, and closes the connection instead of responding: the
        client does not learn the outcome. Otherwise as :meth:`fail`.
        """
        self._order(api, times, client_id, lost=True)

    def clear_faults(self, api: str | int | None = None) -> int:
        """Removes the injected faults of an API, or all; returns the number of faults that
        never triggered.
        """
        which = None if api is None else find_api(api)
        return self._run(lambda node: node.faults.clear(which))

    def disconnect(self, client_id: str | None = None) -> int:
        """Closes the connections of a client, or all; returns how many there were.

        :raises InputError: no such client is connected
        """
        return self._run(lambda node: _disconnect_clients(node, client_id))

    # Within

    def _order(  # noqa: PLR0913, what an order has
        self,
        api: str | int,
        times: int | None,
        client_id: str | None,
        *,
        delay: int = 0,
        code: Code | None = None,
        lost: bool = False,
    ) -> None:
        order = InjectedFault(
            api=find_api(api),
            remaining=check_times(times),
            client_id=client_id,
            delay=delay,
            code=code,
            drop_response=lost,
        )
        self._run(lambda node: node.faults.inject(order))

    def _wait(self, look: Callable[[], T | None], timeout: float, problem: Callable[[], str]) -> T:
        __tracebackhide__ = True
        end = time.monotonic() + timeout
        while (found := look()) is None:
            if time.monotonic() >= end:
                raise TimeoutError(f"{problem()} after {timeout:g} s")
            time.sleep(POLL_INTERVAL)
        return found


# What a test sees of a broker and does to it from inside, without a client.
#
# Each function works on the node's parts, and must be called where the node is: in its thread.

#: What a record carries; a text goes as UTF-8.
RecordData: TypeAlias = bytes | str | None

RecordHeaders: TypeAlias = Mapping[str, RecordData] | Iterable[tuple[str, RecordData]]

READ_BYTES = 1 << 20

#: Bytes of a batch before its records.
BATCH_HEADER_BYTES = 61

#: Bytes of a record beside its key and value, or of a header beside its name and value, at most.
RECORD_OVERHEAD_BYTES = 40

ReplyT = TypeVar("ReplyT", bound=GroupResponse)

SortableT = TypeVar("SortableT", str, TopicPartition)


class Record(NamedTuple):
    """A record of a topic."""

    topic: str
    partition: int
    offset: int
    #: Milliseconds since 1970.
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group, as the coordinator sees it."""

    id: str
    group_instance_id: str | None
    client_id: str
    host: str
    #: It has subscribed to; known while the group is stable.
    topics: tuple[str, ...]
    #: It was given.
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group, as the coordinator sees it."""

    name: str
    #: ``Empty``, ``PreparingRebalance``, ``CompletingRebalance``, ``Stable``; ``Dead``: there is no
    #: such group.
    state: str
    strategy: str
    members: tuple[GroupMember, ...]


def _create_topic(
    parts: HandlerContext, name: str, partitions: int | None, config: Mapping[str, object], now: int
) -> None:
    """Creates a topic; ``partitions=None`` takes the broker's default."""
    count = (
        parts.config.default_partitions
        if partitions is None
        else _check_partition_count(partitions)
    )
    overrides = {key: _config_to_text(key, value) for key, value in config.items()}
    parts.topics.create(name, count, overrides, now)


def _create_partitions(parts: HandlerContext, name: str, partitions: int, now: int) -> None:
    """Adds partitions to a topic, up to ``partitions``."""
    parts.topics.create_partitions(name, _check_partition_count(partitions), now)


def _check_partition_count(partitions: int) -> int:
    if type(partitions) is not int:
        raise InputError(f"partitions: {partitions!r} is not a whole number")
    return partitions


def _config_to_text(key: str, value: object) -> str:
    if not isinstance(value, bool | int | float | str):
        raise InputError(f"{key}: {value!r} is neither a text nor a number nor a boolean")
    return format_config_value(value)


def _count_partitions(parts: HandlerContext) -> dict[str, int]:
    """Returns the number of partitions by topic, without internal topics."""
    return {topic.name: topic.partition_count for topic in parts.topics if not topic.is_internal}


def _produce_records(  # noqa: PLR0913, what a record has
    parts: HandlerContext,
    topic: str,
    values: Sequence[RecordData],
    *,
    key: RecordData,
    headers: RecordHeaders,
    partition: int | None,
    timestamp: int | None,
    now: int,
) -> list[Record]:
    """Appends records and returns them as they are stored."""
    found = parts.topics.get(topic)
    if found is None:
        if not parts.config.auto_create_topics:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        found = parts.topics.create(topic, parts.config.default_partitions, {}, now)
    packed_key, packed_headers = _encode_data("key", key), _encode_headers(headers)
    at = now if timestamp is None else timestamp
    chosen = _choose_partition(found, packed_key, partition)
    if not values:
        return []
    stored: list[Record] = []
    for part in _split_into_batches(
        values, packed_key, packed_headers, found.config.max_message_bytes
    ):
        records = [
            record_batch.BatchRecord(number, at, packed_key, value, packed_headers)
            for number, value in enumerate(part)
        ]
        appended = parts.topics.append(topic, chosen, record_batch.encode_batch(records), now)
        time = at if appended.append_time == -1 else appended.append_time
        stored += [
            _make_record(topic, chosen, each, appended.base_offset + number, time)
            for number, each in enumerate(records)
        ]
    return stored


def _split_into_batches(
    values: Sequence[RecordData],
    key: bytes | None,
    headers: tuple[tuple[bytes, bytes | None], ...],
    most: int,
) -> Iterator[list[bytes | None]]:
    """Yields values in batches, each as large as a producer could send."""
    each = RECORD_OVERHEAD_BYTES + len(key or b"")
    each += sum(RECORD_OVERHEAD_BYTES + len(name) + len(value or b"") for name, value in headers)
    part: list[bytes | None] = []
    left = most - BATCH_HEADER_BYTES
    for value in values:
        packed = _encode_data("value", value)
        size = each + len(packed or b"")
        if part and size > left:
            yield part
            part, left = [], most - BATCH_HEADER_BYTES
        part.append(packed)
        left -= size
    if part:
        yield part


def _read_records(
    parts: HandlerContext, topic: str, *, partition: int | None, start: int | None, most: int | None
) -> list[Record]:
    """Returns the records of a topic, by partition and offset; ``start=None`` begins at the
    log start.
    """
    found = parts.topics.get(topic)
    if found is None:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
    numbers = (
        range(found.partition_count) if partition is None else [_check_partition(found, partition)]
    )
    records: list[Record] = []
    for number in numbers:
        log = found.logs[number]
        at = log.log_start_offset if start is None else max(start, log.log_start_offset)
        while at < log.log_end_offset and (most is None or len(records) < most):
            columns = record_batch_columns.decode_batches(log.read(at, READ_BYTES))
            records.extend(
                _make_record(topic, number, each, each.offset, each.timestamp)
                for each in record_batch_columns.iterate_records(columns)
                if each.offset >= at
            )
            at = int(columns.batches.last_offset[-1]) + 1
    return records if most is None else records[:most]


def _make_record(
    topic: str, partition: int, record: record_batch.BatchRecord, offset: int, at: int
) -> Record:
    headers = tuple((name.decode(errors="replace"), value) for name, value in record.headers)
    return Record(topic, partition, offset, at, record.key, record.value, headers)


def _choose_partition(topic: Topic, key: bytes | None, partition: int | None) -> int:
    if partition is not None:
        return _check_partition(topic, partition)
    if key is not None:
        return choose_partition(key, topic.partition_count)
    return min(range(topic.partition_count), key=lambda number: topic.logs[number].log_end_offset)


def _check_partition(topic: Topic, partition: int) -> int:
    if not 0 <= partition < topic.partition_count:
        raise InputError(
            f"partition {partition}: topic {topic.name!r} has {topic.partition_count}, "
            "numbered from 0"
        )
    return partition


def _encode_data(what: str, value: RecordData) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise InputError(f"{what} {value!r} is neither bytes nor text nor None")


def _encode_headers(headers: RecordHeaders) -> tuple[tuple[bytes, bytes | None], ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name.encode(), _encode_data(f"header {name!r}", value)) for name, value in pairs)


def _list_group_states(parts: HandlerContext, now: int) -> dict[str, str]:
    """Returns the state by group."""
    reply = _ask_coordinator(parts, ListGroups(), ListGroupsResult, now)
    return {each.group: each.state for each in reply.groups}


def _describe_group(parts: HandlerContext, name: str, now: int) -> Group:
    """Returns a group; one that does not exist is ``Dead``, as in Kafka."""
    asked = DescribeGroups(groups=(name,), supports_group_id_not_found=False)
    (found,) = _ask_coordinator(parts, asked, DescribeGroupsResult, now).groups
    return Group(
        name=name,
        state=found.state,
        strategy=found.protocol,
        members=tuple(_make_member(found, each) for each in found.members),
    )


def _fetch_committed(parts: HandlerContext, name: str, now: int) -> dict[TopicPartition, int]:
    """Returns the committed offsets of a group."""
    reply = _ask_coordinator(parts, OffsetFetch(group=name), OffsetFetchResult, now)
    if reply.code:  # its part of the journal is damaged
        raise Refused(reply.code, f"the offsets of group {name!r}: {reply.code.name}")
    found = {where: each.offset for where, each in reply.offsets.items() if each is not None}
    return dict(sorted(found.items()))


def _expire_member(parts: HandlerContext, member: str, name: str | None, now: int) -> None:
    """Ends the session of a member, found by member id, static id, or a client id that no
    other member has.
    """
    names = list(_list_group_states(parts, now)) if name is None else [name]
    members = [(each, one) for each in names for one in _describe_group(parts, each, now).members]
    found = [pair for pair in members if member in {pair[1].id, pair[1].group_instance_id}]
    found = found or [pair for pair in members if member == pair[1].client_id]
    if len(found) != 1:
        there = (
            ", ".join(f"{one.group_instance_id or one.id} of {each}" for each, one in members)
            or "none"
        )
        problem = "there is no such member" if not found else "more than one is called so"
        raise InputError(f"member {member!r}: {problem}; members are: {there}")
    where, one = found[0]
    parts.groups.expire_member(where, one.id, now)


def _move_coordinator(parts: HandlerContext, name: str, now: int) -> None:
    """Takes a group away from its coordinator."""
    known = _list_group_states(parts, now)
    if name not in known:
        raise InputError(f"there is no group {name!r}; groups are: {', '.join(known) or 'none'}")
    parts.groups.move_coordinator(name, now)


def _ask_coordinator(
    parts: HandlerContext,
    request: DescribeGroups | OffsetFetch | ListGroups,
    kind: type[ReplyT],
    now: int,
) -> ReplyT:
    reply = parts.groups.ask_read_only(request, now)
    assert isinstance(reply, kind)
    return reply


def _make_member(found: DescribedGroup, member: DescribedMember) -> GroupMember:
    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    if found.protocol_type == CONSUMER_PROTOCOL_TYPE:
        topics = _decode_sorted(
            lambda: consumer_protocol.decode_subscription(member.metadata).topics, member.metadata
        )
        partitions = _decode_sorted(
            lambda: tuple(consumer_protocol.decode_assignment(member.assignment).partitions),
            member.assignment,
        )
    return GroupMember(
        id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        topics=topics,
        partitions=partitions,
    )


def _decode_sorted(decode: Callable[[], Iterable[SortableT]], data: bytes) -> tuple[SortableT, ...]:
    """Decodes and sorts; returns nothing if the client uses a format of its own."""
    try:
        return tuple(sorted(decode())) if data else ()
    except FormatError:
        return ()


def _disconnect_clients(node: BrokerNode, client_id: str | None) -> int:
    """Closes the connections of a client, or all; returns how many there were."""
    found = [each for each in node.clients if client_id in {None, each.client_id}]
    if client_id is not None and not found:
        there = ", ".join(sorted({each.client_id for each in node.clients})) or "none"
        raise InputError(f"client {client_id!r} is not connected; clients are: {there}")
    for each in found:
        node.close_connection(each.connection, "cut on order")
    return len(found)
