"""What tests see of a running broker and do to it: topics, records, groups, faults, connections.

:class:`BrokerControl` is the base class of ``rota.Broker``; its methods may be called from any
thread. They check their arguments, then act on the node in the broker's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from rota.broker.faults import InjectedFault, find_api, find_error_code
from rota.broker.node import BrokerNode
from rota.broker.topics import Topic, find_topic
from rota.engine.formats import consumer_protocol, record_batch, record_batch_columns
from rota.engine.formats.hashing import choose_partition
from rota.engine.model.config import format_config_value
from rota.engine.model.request import CONSUMER_PROTOCOL_TYPE
from rota.engine.model.response import DescribedMember
from rota.engine.model.topic import TopicPartition
from rota.errors import Code, FormatError, InputError, Refused, TimedOut

T = TypeVar("T")

RecordData: TypeAlias = bytes | str | None  # key, value or a header's value; text becomes UTF-8
RecordHeaders: TypeAlias = Mapping[str, RecordData] | Iterable[tuple[str, RecordData]]
EncodedHeaders: TypeAlias = tuple[tuple[bytes, bytes | None], ...]
DEFAULT_TIMEOUT = 10.0  # seconds that the ``wait_for_...`` methods wait by default
POLL_INTERVAL = 0.005
READ_BYTES = 1 << 20
RECORD_OVERHEAD_BYTES = 40  # upper bound of a record without key and value, or a bare header


class Record(NamedTuple):
    """A record that a broker has stored."""

    topic: str
    partition: int
    offset: int
    timestamp: int  # milliseconds since 1970
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
    topics: tuple[str, ...]  # subscribed topics; known while the group is stable
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group, as the coordinator sees it."""

    name: str
    #: ``Empty``, ``PreparingRebalance``, ``CompletingRebalance``, ``Stable``, or ``Dead``
    state: str
    strategy: str  # the strategy that the members agreed on; empty unless the group is stable
    generation: int  # 0 before the first rebalance
    leader: str | None  # member id of the leader
    members: tuple[GroupMember, ...]


class BrokerControl:
    """Test control of a broker: its topics, records and groups, and injected faults."""

    def _call(self, function: Callable[[BrokerNode, int], T]) -> T:
        """Returns the result of ``function(node, now)``, called in the broker's thread."""
        raise NotImplementedError

    def _poll(self, check: Callable[[BrokerNode, int], tuple[T, str]], timeout: float) -> T:
        """Calls ``check`` until it reports no problem; raises TimedOut with the last problem."""
        end = time.monotonic() + timeout
        while True:
            result, problem = self._call(check)
            if not problem:
                return result
            if time.monotonic() >= end:
                raise TimedOut(problem)
            time.sleep(POLL_INTERVAL)

    # Topics and records

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        """Creates a topic.

        :param partitions: the number of partitions; by default the broker's ``num.partitions``
        :param config: the topic's own settings, under Kafka's names
        :raises Refused: the topic exists, or cannot be created with these arguments
        """
        if partitions is not None:
            _check_partition_count(partitions)
        overrides = {key: _config_to_text(key, value) for key, value in (config or {}).items()}

        def create(node: BrokerNode, now: int) -> None:
            count = node.context.config.default_partitions if partitions is None else partitions
            node.context.topics.create(name, count, overrides, now)

        self._call(create)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records; raises Refused if it does not exist."""
        self._call(lambda node, now: node.context.topics.delete(name, now))

    def create_partitions(self, name: str, partitions: int) -> None:
        """Adds partitions to a topic until it has ``partitions`` of them.

        :raises Refused: the topic does not exist, or already has this many partitions
        """
        _check_partition_count(partitions)
        self._call(lambda node, now: node.context.topics.create_partitions(name, partitions, now))

    @property
    def topics(self) -> dict[str, int]:
        """Number of partitions by topic, without the broker's internal topics."""
        return self._call(
            lambda node, _: {
                topic.name: topic.partition_count
                for topic in node.context.topics
                if not topic.is_internal
            }
        )

    def produce(
        self,
        topic: str,
        *values: RecordData,
        key: RecordData = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> list[Record]:
        """Appends records to one partition of a topic and returns them as they are stored.

        A missing topic is created, unless ``auto.create.topics.enable`` is false.

        :param partition: by default the partition that a producer chooses for the key; without a
            key the shortest partition
        :param timestamp: milliseconds since 1970; by default the broker's time
        :raises Refused: the topic does not exist, or a record is too large
        """
        encoded_key = _encode_data("key", key)
        encoded_values = [_encode_data("value", value) for value in values]
        encoded_headers = _encode_headers(headers)

        def append(node: BrokerNode, now: int) -> list[Record]:
            config, topics = node.context.config, node.context.topics
            if topics.get(topic) is None and config.auto_create_topics:
                topics.create(topic, config.default_partitions, {}, now)
            found = find_topic(topics, topic)
            _check_partition(found, partition)
            chosen = _choose_partition(found, encoded_key) if partition is None else partition
            time_ = now if timestamp is None else timestamp
            stored: list[Record] = []
            for batch in _split_into_batches(
                encoded_values, encoded_key, encoded_headers, found.config.max_message_bytes
            ):
                records = [
                    record_batch.BatchRecord(number, time_, encoded_key, value, encoded_headers)
                    for number, value in enumerate(batch)
                ]
                appended = topics.append(topic, chosen, record_batch.encode_batch(records), now)
                stored_time = time_ if appended.append_time == -1 else appended.append_time
                stored += [
                    _make_record(topic, chosen, each, appended.base_offset + number, stored_time)
                    for number, each in enumerate(records)
                ]
            return stored

        return self._call(append)

    def read(
        self, topic: str, *, partition: int | None = None, offset: int | None = None
    ) -> list[Record]:
        """Returns the records of a topic, by partition and offset.

        :param partition: by default all partitions
        :param offset: the first offset to return from each partition; by default its first record
        :raises Refused: the topic does not exist
        """
        return self._call(
            lambda node, _: _read_records(find_topic(node.context.topics, topic), partition, offset)
        )

    def wait_for_records(
        self,
        topic: str,
        count: int,
        *,
        partition: int | None = None,
        offset: int | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> list[Record]:
        """Waits until a topic has this many records and returns the first ``count`` of them.

        :param partition: as in :meth:`read`, like ``offset``
        :param timeout: in seconds
        :raises TimedOut: the topic has fewer records when the time is over
        """

        def check(node: BrokerNode, _: int) -> tuple[list[Record], str]:
            found = node.context.topics.get(topic)
            records = [] if found is None else _read_records(found, partition, offset, count)
            problem = f"topic {topic!r} has {len(records)} records after {timeout:g} s, "
            return records, "" if len(records) >= count else f"{problem}{count} were expected"

        return self._poll(check, timeout)

    # Groups

    @property
    def groups(self) -> dict[str, str]:
        """State by group."""
        return self._call(_group_states)

    def group(self, name: str) -> Group:
        """Returns a group as its coordinator sees it; ``Dead`` if it does not exist."""
        return self._call(lambda node, now: _describe_group(node, name, now))

    def wait_for_group(self, name: str, members: int, *, timeout: float = DEFAULT_TIMEOUT) -> Group:
        """Waits until a group is stable with this many members and returns the group.

        :param members: 0 waits until the group is empty
        :param timeout: in seconds
        :raises TimedOut: the group has another state when the time is over
        """
        target = ("Stable" if members else "Empty", members)

        def check(node: BrokerNode, now: int) -> tuple[Group, str]:
            group = _describe_group(node, name, now)
            state, count = group.state, len(group.members)
            problem = f"group {name!r} is {state} with {count} members after {timeout:g} s, "
            if state == "Dead":
                problem = f"there is no group {name!r} after {timeout:g} s, "
            return group, "" if (state, count) == target else f"{problem}{members} members expected"

        return self._poll(check, timeout)

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Returns a group's committed offsets; raises Refused if its journal is damaged."""
        result = self._call(lambda node, now: node.context.groups.fetch_offsets(group, now))
        if result.code:
            raise Refused(result.code, f"the offsets of group {group!r}: {result.code.name}")
        return {at: each.offset for at, each in sorted(result.offsets.items()) if each is not None}

    def expire(self, member: str, *, group: str | None = None) -> None:
        """Ends a member's session now, as if the member had been silent for too long.

        :param member: a member id, a group instance id, or a client id that only one member has
        :param group: by default all groups are searched
        :raises InputError: no member has this id, or several have it
        """

        def expire(node: BrokerNode, now: int) -> None:
            names = _group_states(node, now) if group is None else [group]
            members = [
                (name, each) for name in names for each in _describe_group(node, name, now).members
            ]
            named = [pair for pair in members if member in {pair[1].id, pair[1].group_instance_id}]
            named = named or [pair for pair in members if member == pair[1].client_id]
            if len(named) != 1:
                problem = "several members have it" if named else "no member has it"
                names = [f"{each.group_instance_id or each.id} of {name}" for name, each in members]
                text = f"{problem}; members are: {', '.join(names) or 'none'}"
                raise InputError(f"member {member!r}: {text}")
            [(name, each)] = named
            node.context.groups.expire_member(name, each.id, now)

        self._call(expire)

    def move_coordinator(self, group: str) -> None:
        """Takes a group away from its coordinator, as when a broker of a cluster stops.

        Members get NOT_COORDINATOR until they look for the coordinator again; then the group is
        loaded from the journal, without a rebalance.

        :raises InputError: the group does not exist
        """

        def move(node: BrokerNode, now: int) -> None:
            states = _group_states(node, now)
            if group not in states:
                names = ", ".join(states) or "none"
                raise InputError(f"there is no group {group!r}; groups are: {names}")
            node.context.groups.move_coordinator(group, now)

        self._call(move)

    # Faults

    def fail(
        self,
        api: str | int,
        error: str | int,
        *,
        times: int | None = 1,
        client_id: str | None = None,
    ) -> None:
        """Responds to the next requests with an error, without handling them.

        :param api: Kafka's name (``"Produce"``, ``"JoinGroup"``) or key of the API
        :param error: Kafka's name (``"NOT_COORDINATOR"``) or code of the error
        :param times: number of requests; None: all requests until :meth:`clear_faults`
        :param client_id: only requests of this client
        :raises InputError: the API, the error or ``times`` is wrong
        """
        self._inject(api, times, client_id, code=find_error_code(error))

    def delay(
        self,
        api: str | int,
        seconds: float,
        *,
        times: int | None = 1,
        client_id: str | None = None,
    ) -> None:
        """Handles the next requests later, by the broker's clock. Otherwise as :meth:`fail`."""
        if milliseconds := to_milliseconds(seconds):
            self._inject(api, times, client_id, delay=milliseconds)

    def drop_response(
        self, api: str | int, *, times: int | None = 1, client_id: str | None = None
    ) -> None:
        """Handles the next requests, but closes the connection in place of the response, so that
        the client does not learn the outcome. Otherwise as :meth:`fail`.
        """
        self._inject(api, times, client_id, drop_response=True)

    def clear_faults(self, api: str | int | None = None) -> int:
        """Removes the faults of an API, or all; returns how many never triggered."""
        which = None if api is None else find_api(api)
        return self._call(lambda node, _: node.faults.clear(which))

    def disconnect(self, client_id: str | None = None) -> int:
        """Closes the connections of a client, or all; returns the number of closed connections.
        Raises InputError if no such client is connected.
        """

        def close(node: BrokerNode, _: int) -> int:
            clients = [each for each in node.clients if client_id in {None, each.client_id}]
            if client_id is not None and not clients:
                names = ", ".join(sorted({each.client_id for each in node.clients})) or "none"
                raise InputError(f"client {client_id!r} is not connected; clients are: {names}")
            for each in clients:
                node.close_connection(each.connection, "closed by disconnect()")
            return len(clients)

        return self._call(close)

    def _inject(  # noqa: PLR0913 the fields of a fault
        self,
        api: str | int,
        times: int | None,
        client_id: str | None,
        *,
        delay: int = 0,
        code: Code | None = None,
        drop_response: bool = False,
    ) -> None:
        if times is not None and (type(times) is not int or times < 1):
            raise InputError(f"times: {times!r} is neither a number from 1 up nor None")
        fault = InjectedFault(find_api(api), times, client_id, delay, code, drop_response)
        self._call(lambda node, _: node.faults.inject(fault))


def to_milliseconds(seconds: float) -> int:
    """Converts seconds to milliseconds; raises InputError if the argument is not a number."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds < 1e10:
        raise InputError(f"seconds: {seconds!r} is not a number of seconds")
    return round(seconds * 1_000)


def _check_partition_count(partitions: int) -> None:
    if type(partitions) is not int:
        raise InputError(f"partitions: {partitions!r} is not a whole number")


def _config_to_text(key: str, value: object) -> str:
    if not isinstance(value, bool | int | float | str):
        raise InputError(f"{key}: {value!r} is not text, a number or a boolean")
    return format_config_value(value)


def _encode_data(field: str, value: RecordData) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise InputError(f"{field} {value!r} is neither bytes nor text nor None")


def _encode_headers(headers: RecordHeaders) -> EncodedHeaders:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name.encode(), _encode_data(f"header {name!r}", value)) for name, value in pairs)


def _choose_partition(topic: Topic, key: bytes | None) -> int:
    if key is not None:
        return choose_partition(key, topic.partition_count)
    return min(range(topic.partition_count), key=lambda number: topic.logs[number].log_end_offset)


def _check_partition(topic: Topic, partition: int | None) -> None:
    if partition is not None and not 0 <= partition < topic.partition_count:
        text = f"topic {topic.name!r} has {topic.partition_count}, numbered from 0"
        raise InputError(f"partition {partition}: {text}")


def _split_into_batches(
    values: list[bytes | None], key: bytes | None, headers: EncodedHeaders, max_bytes: int
) -> Iterator[list[bytes | None]]:
    """Yields values in batches, each as large as a producer could send."""
    overhead = RECORD_OVERHEAD_BYTES + len(key or b"")
    overhead += sum(RECORD_OVERHEAD_BYTES + len(name) + len(data or b"") for name, data in headers)
    batch: list[bytes | None] = []
    remaining = max_bytes - record_batch.HEADER.size
    for value in values:
        size = overhead + len(value or b"")
        if batch and size > remaining:
            yield batch
            batch, remaining = [], max_bytes - record_batch.HEADER.size
        batch.append(value)
        remaining -= size
    if batch:
        yield batch


def _read_records(
    topic: Topic, partition: int | None, offset: int | None, max_records: int | None = None
) -> list[Record]:
    _check_partition(topic, partition)
    records: list[Record] = []
    for number in range(topic.partition_count) if partition is None else [partition]:
        log = topic.logs[number]
        at = max(offset or 0, log.log_start_offset)
        while at < log.log_end_offset and (max_records is None or len(records) < max_records):
            columns = record_batch_columns.decode_batches(log.read(at, READ_BYTES))
            records.extend(
                _make_record(topic.name, number, each, each.offset, each.timestamp)
                for each in record_batch_columns.iterate_records(columns)
                if each.offset >= at
            )
            at = int(columns.batches.last_offset[-1]) + 1
    return records[:max_records]


def _make_record(
    topic: str, partition: int, record: record_batch.BatchRecord, offset: int, timestamp: int
) -> Record:
    headers = tuple((name.decode(errors="replace"), value) for name, value in record.headers)
    return Record(topic, partition, offset, timestamp, record.key, record.value, headers)


def _group_states(node: BrokerNode, now: int) -> dict[str, str]:
    return {each.group: each.state for each in node.context.groups.list_groups(now).groups}


def _describe_group(node: BrokerNode, name: str, now: int) -> Group:
    described = node.context.groups.describe_group(name, now)
    return Group(
        name=name,
        state=described.state,
        strategy=described.protocol,
        generation=described.generation,
        leader=described.leader,
        members=tuple(_make_member(described.protocol_type, each) for each in described.members),
    )


def _make_member(protocol_type: str, member: DescribedMember) -> GroupMember:
    topics: list[str] = []
    partitions: list[TopicPartition] = []
    if protocol_type == CONSUMER_PROTOCOL_TYPE:
        with suppress(FormatError):  # empty, or a format that only the client knows
            topics = sorted(consumer_protocol.decode_subscription(member.metadata).topics)
        with suppress(FormatError):
            partitions = sorted(consumer_protocol.decode_assignment(member.assignment).partitions)
    return GroupMember(
        id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        topics=tuple(topics),
        partitions=tuple(partitions),
    )
