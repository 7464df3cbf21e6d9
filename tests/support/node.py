"""A whole broker without sockets: every handler, a disk in memory, virtual time.

::

    node = InMemoryNode()
    node.create_topic("t")
    connection = node.connect()
    connection.produce({("t", 0): batch(b"value")})
    node.advance(5_000)
    again = node.restart()             after a kill -9; clean=True: after a clean shutdown

The same events give the same ids, bytes and log lines: nothing depends on a clock or on chance.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from logging import ERROR, WARNING
from typing import Any
from uuid import UUID

import kafka.protocol.sasl
from kafka.protocol import admin, consumer, metadata, producer

from rota.broker import dispatch
from rota.broker.dispatch import HandlerContext
from rota.broker.events import (
    CloseConnection,
    ConnectionClosed,
    ConnectionId,
    ConnectionOpened,
    FrameReceived,
    NodeCommand,
    NodeEvent,
    NoResponse,
    Wakeup,
    WriteLogLine,
    WriteResponse,
)
from rota.broker.groups import GroupCoordinatorService
from rota.broker.log_manager import StorageContext
from rota.broker.node import BrokerNode
from rota.broker.startup import all_handlers, open_topics
from rota.broker.storage.disk import Disk
from rota.broker.storage.log_directory import LogDirectory, open_log_directory
from rota.broker.timers import Timers
from rota.broker.topics import Topic, Topics
from rota.engine.formats.record_batch import BatchRecord, encode_batch
from rota.engine.model.config import BrokerConfig, GroupConfig, TopicConfig
from rota.errors import Code
from rota.protocol import codec, messages
from rota.protocol.messages import Api, classes_by_api
from rota.protocol.sasl import Users
from tests.support.faulty_disk import FaultyDisk
from tests.support.requests import START, Partition, fetch_request, produce_request

BROKER = BrokerConfig(offsets_partitions=3)
#: No delay before the first rebalance, so that a join is answered at once.
PROMPT = GroupConfig(initial_rebalance_delay=0)
HANDLERS = all_handlers()
#: Every API and the versions that are handled.
VERSIONS = {
    Api(each.api): range(each.min_version, each.max_version + 1) for each in HANDLERS.values()
}
CLIENT_ID = "tester"
NO_TAGS = b"\0"
SCHEMAS = (producer, consumer, admin, metadata, kafka.protocol.sasl)


# How a broker is put together


@dataclass(frozen=True, slots=True)
class Storage:
    """An open data folder."""

    folder: LogDirectory
    topics: Topics
    alarms: Timers


def open_storage(
    disk: Disk,
    *,
    now: int,
    new_id: Callable[[], bytes],
    report: Callable[[str], None],
    config: BrokerConfig = BROKER,
    topic_config: TopicConfig | None = None,
) -> Storage:
    """Opens a data folder and recovers its logs."""
    alarms = Timers()
    folder = open_log_directory(disk, node_id=config.node_id, new_id=new_id, report=report)
    means = StorageContext(
        disk=disk,
        folder=folder,
        config=config,
        defaults=TopicConfig() if topic_config is None else topic_config,
        timers=alarms,
        new_id=new_id,
        report=report,
    )
    return Storage(folder, open_topics(means, now), alarms)


def build_node(
    storage: Storage,
    *,
    now: int,
    new_text: Callable[[], str],
    log: Callable[[int, str], None],
    config: BrokerConfig = BROKER,
    group_config: GroupConfig = PROMPT,
    passwords: Mapping[str, str] | None = None,
) -> BrokerNode:
    """Loads the groups, and puts every handler in front of them and of the topics."""
    groups = GroupCoordinatorService(group_config, storage.topics, storage.alarms, new_text, log)
    groups.load(now)
    parts = HandlerContext(
        config=config,
        topics=storage.topics,
        groups=groups,
        timers=storage.alarms,
        log=log,
        address=("127.0.0.1", 9092),
        advertised_versions={
            key: (each.min_version, each.max_version) for key, each in HANDLERS.items()
        },
        users=None if passwords is None else Users(passwords, lambda: bytes(16)),
        new_nonce=new_text,
    )
    return BrokerNode(parts, HANDLERS)


class InMemoryNode:
    """A running broker. An exception in a handler or in an alarm fails the test."""

    def __init__(
        self,
        disk: FaultyDisk | None = None,
        *,
        now: int = START,
        config: BrokerConfig = BROKER,
        topic_config: TopicConfig | None = None,
        group_config: GroupConfig = PROMPT,
        passwords: Mapping[str, str] | None = None,
        ids: Iterator[int] | None = None,
    ) -> None:
        self.now = now
        self.disk = FaultyDisk(0) if disk is None else disk
        #: Bytes of responses that clients can take; see :meth:`rota.broker.node.BrokerNode.handle`.
        self.room = dispatch.MAX_RESPONSE_BYTES_PER_EVENT
        self.log_lines: list[str] = []
        #: The lines of level ERROR.
        self.error_lines: list[str] = []
        self.connections: dict[ConnectionId, ClientConnection] = {}
        self._ids = itertools.count(1) if ids is None else ids
        self._settings: dict[str, Any] = {
            "config": config,
            "topic_config": topic_config,
            "group_config": group_config,
            "passwords": passwords,
        }
        storage = open_storage(
            self.disk,
            now=now,
            new_id=self._new_bytes,
            report=self._report,
            config=config,
            topic_config=topic_config,
        )
        self.folder, self.topics = storage.folder, storage.topics
        self.node = build_node(
            storage,
            now=now,
            new_text=self._new_text,
            log=self._log,
            config=config,
            group_config=group_config,
            passwords=passwords,
        )
        self.groups = self.node.context.groups

    def restart(
        self, disk: FaultyDisk | None = None, *, clean: bool = False, **changes: Any
    ) -> InMemoryNode:
        """Returns the next process on the data folder, with the same settings but for changes.

        :param disk: default: a copy of this one's, as a kill -9 leaves it
        :param clean: this process shuts down first
        """
        if clean:
            self.topics.close(self.now)
        settings = {**self._settings, "now": self.now, "ids": self._ids, **changes}
        return InMemoryNode(self.disk.kill() if disk is None else disk, **settings)

    def _log(self, level: int, text: str) -> None:
        assert not is_fault(text), text
        self.log_lines.append(text)
        if level >= ERROR:
            self.error_lines.append(text)

    def _report(self, text: str) -> None:
        self._log(WARNING, text)

    def _new_bytes(self) -> bytes:
        """Returns an id that no flipped bit turns into another."""
        return hashlib.sha256(b"%d" % next(self._ids)).digest()[:16]

    def _new_text(self) -> str:
        return str(UUID(bytes=self._new_bytes()))

    def logged(self, text: str) -> list[str]:
        """Returns the log lines that contain this text."""
        return [line for line in self.log_lines if text in line]

    # Events, commands and time

    def connect(self, host: str = "127.0.0.1") -> ClientConnection:
        """Opens a connection from this host."""
        connection = ClientConnection(self, ConnectionId(len(self.connections)))
        self.connections[connection.id] = connection
        self.handle(ConnectionOpened(connection.id, host))
        return connection

    def handle(self, event: NodeEvent) -> None:
        """Handles an event, then every alarm that is due, as the server does."""
        self._run(self.node.handle(event, self.now, self.room))
        while (at := self.node.next_timer()) is not None and at <= self.now:
            self._run(self.node.handle(Wakeup(), self.now, self.room))

    def advance(self, milliseconds: int) -> None:
        """Lets time pass, with a stop at each alarm; then calls that waited get their turns."""
        end = self.now + milliseconds
        self.handle(Wakeup())
        while (at := self.node.next_timer()) is not None and at <= end:
            self.now = max(at, self.now)
            self.handle(Wakeup())
        while self.node.has_resumable_requests and self.room:
            self.handle(Wakeup())
        self.now = end

    def jump(self, milliseconds: int) -> None:
        """Lets time pass in one step, as if the machine had been suspended."""
        self.now += milliseconds
        self.handle(Wakeup())

    def _run(self, commands: list[NodeCommand]) -> None:
        for command in commands:
            match command:
                case WriteResponse(connection, data):
                    self.connections[connection].take_response(bytes(data))
                case NoResponse(connection):
                    self.connections[connection].take_response(None)
                case CloseConnection(connection, reason):
                    self.connections[connection].end(reason)
                case WriteLogLine(level, text):
                    self._log(level, text)

    # Topics and their logs, without a request

    def create_topic(self, name: str = "t", partitions: int = 1, **overrides: str) -> Topic:
        """Creates a topic; ``retention_ms="5"`` sets ``retention.ms``."""
        keys = {key.replace("_", "."): value for key, value in overrides.items()}
        return self.topics.create(name, partitions, keys, self.now)

    def topic_ids(self) -> dict[str, bytes]:
        """Returns the id of each topic by its name."""
        return {topic.name: topic.id for topic in self.topics}

    def append(self, topic: str, partition: int, *values: bytes) -> None:
        """Appends records as one batch."""
        records = [BatchRecord(at, self.now, b"key", value) for at, value in enumerate(values)]
        self.topics.append(topic, partition, encode_batch(records), self.now)

    def end_offsets(self) -> dict[str, list[int]]:
        """Returns the log end offset of each partition of each topic."""
        return {topic.name: [log.log_end_offset for log in topic.logs] for topic in self.topics}

    def folders(self) -> set[str]:
        """Returns the folders of partitions, and of those of deleted topics."""
        return {name for name in self.disk.list_names("") if self.disk.size(name) is None}


class ClientConnection:
    """A client's end of a connection, with one request in flight at a time.

    Requests are of kafka-python's schemas or of :mod:`rota.protocol.messages`; the response is
    of the same. kafka-python's are a check of the response by a reader that is not the code under
    test.
    """

    def __init__(self, node: InMemoryNode, connection: ConnectionId) -> None:
        self.node = node
        self.id = connection
        self.client_id = CLIENT_ID
        #: Whether a request is in flight.
        self.waits = False
        #: Why the connection was closed; None while it is open.
        self.closed: str | None = None
        #: Frames that were not received yet; None for a request that gets no response by design.
        self.responses: deque[bytes | None] = deque()
        self._requests: deque[tuple[Any, int, int]] = deque()
        self._correlation = 0

    def send(self, request: Any, version: int | None = None) -> None:
        """Sends a request; without a version in the one that kafka-python made it for."""
        version = request.API_VERSION if version is None else version
        assert version is not None
        self._correlation += 1
        self._requests.append((request, version, self._correlation))
        self.send_frame(request_frame(request, version, self._correlation, self.client_id))

    def send_frame(self, frame: bytes) -> None:
        """Sends any bytes as a frame; the response is left in ``responses``."""
        assert not self.waits, "the response to the last request is not there yet"
        assert self.closed is None, self.closed
        self.waits = True
        self.node.handle(FrameReceived(self.id, frame))

    def receive(self) -> Any:
        """Returns the oldest response, or None if its request gets none by design."""
        assert self.responses, f"no response; closed: {self.closed}; {self.node.log_lines[-3:]}"
        data = self.responses.popleft()
        request, version, correlation = self._requests.popleft()
        if data is None:
            assert request.acks == 0, f"no response to {request}"
            return None
        return decode_response(data, request, version, correlation)

    def ask(self, request: Any, version: int | None = None) -> Any:
        """Sends a request, and returns the response that the node has at once."""
        self.send(request, version)
        return self.receive()

    def disconnect(self) -> None:
        """Closes the connection from the client's side."""
        self.end("by the client")
        self.node.handle(ConnectionClosed(self.id))

    # For the node

    def take_response(self, data: bytes | None) -> None:
        """Keeps a response for :meth:`receive`."""
        assert self.waits, f"a response without a request, or a second one: {data!r}"
        assert self.closed is None, "a response after the connection was closed"
        self.waits = False
        self.responses.append(data)

    def end(self, reason: str) -> None:
        """Marks the connection as closed."""
        assert self.closed is None, "closed twice"
        self.closed = reason
        self.waits = False

    # Short forms, by kafka-python's schemas

    def produce(
        self,
        batches: Mapping[Partition, bytes | None],
        *,
        version: int = 11,
        acks: int = -1,
        ids: Mapping[str, bytes] | None = None,
    ) -> dict[Partition, Any]:
        """Produces batches; returns each partition's part of the response, none for acks=0."""
        known = self.node.topic_ids() if ids is None else ids
        response = self.ask(produce_request(known, batches, acks=acks), version)
        if response is None:
            return {}
        names = {each: name for name, each in known.items()}
        return {
            (topic.name or names[topic.topic_id.bytes], each.index): each
            for topic in response.responses
            for each in topic.partition_responses
        }

    def store(self, *batches: bytes, topic: str = "t", partition: int = 0) -> list[int]:
        """Produces batches one by one, and returns their offsets."""
        offsets = []
        for each in batches:
            found = self.produce({(topic, partition): each})[topic, partition]
            assert found.error_code == 0, (Code(found.error_code), found.error_message)
            offsets.append(found.base_offset)
        return offsets

    def fetch(
        self,
        offsets: Mapping[Partition, int],
        version: int = 16,
        *,
        ids: Mapping[str, bytes] | None = None,
        **fields: Any,
    ) -> dict[Partition, Any]:
        """Fetches from these offsets; returns each partition's part of the response."""
        known = self.node.topic_ids() if ids is None else ids
        return self.fetched(self.ask(fetch_request(known, offsets, **fields), version), known)

    def fetched(
        self, response: Any, ids: Mapping[str, bytes] | None = None
    ) -> dict[Partition, Any]:
        """Returns each partition's part of a Fetch response."""
        known = self.node.topic_ids() if ids is None else ids
        names = {each: name for name, each in known.items()}
        return {
            (topic.topic or names[topic.topic_id.bytes], each.partition_index): each
            for topic in response.responses
            for each in topic.partitions
        }

    # Short forms for one partition, by Rota's own schemas: less than half as expensive, for tests
    # that read whole data folders thousands of times

    def produce_batch(self, topic: str, partition: int, batch: bytes) -> Any:
        """Returns the partition's part of the response."""
        data = messages.ProduceRequest.TopicProduceData(
            name=topic,
            partition_data=[
                messages.ProduceRequest.PartitionProduceData(index=partition, records=batch)
            ],
        )
        request = messages.ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data])
        return self.ask(request, 9).responses[0].partition_responses[0]

    def fetch_partition(self, topic: str, partition: int, offset: int = 0) -> Any:
        """Returns the partition's part of the response."""
        wanted = messages.FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        of = messages.FetchRequest.FetchTopic(topic=topic, partitions=[wanted])
        request = messages.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[of])
        return self.ask(request, 12).responses[0].partitions[0]

    def commit(self, group: str, topic: str, partition: int, offset: int, text: str) -> Code:
        """Commits an offset without being a member."""
        kind = messages.OffsetCommitRequest
        where = kind.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=text
        )
        request = kind(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[kind.OffsetCommitRequestTopic(name=topic, partitions=[where])],
        )
        return Code(self.ask(request, 8).topics[0].partitions[0].error_code)

    def committed(self, group: str) -> dict[Partition, tuple[int, str]] | Code:
        """Returns committed offsets and their metadata, or the group's error."""
        asked = messages.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        found = self.ask(messages.OffsetFetchRequest(groups=[asked]), 8).groups[0]
        if found.error_code:
            return Code(found.error_code)
        return {
            (topic.name, each.partition_index): (each.committed_offset, each.metadata)
            for topic in found.topics
            for each in topic.partitions
        }


# Frames


def request_frame(
    request: Any, version: int, correlation: int, client_id: str = CLIENT_ID
) -> bytes:
    """Returns a request as it is on the wire, without its length."""
    if hasattr(request, "SCHEMA"):
        head = codec.RequestHeader(request.API, version, correlation, client_id, 0)
        return bytes(codec.write_request(head, request))[4:]
    client = client_id.encode()
    flexible = type(request).flexible_version_q(version)
    start = struct.pack(">hhih", request.API_KEY, version, correlation, len(client)) + client
    return start + (NO_TAGS if flexible else b"") + bytes(request.encode(version=version))


def decode_response(data: bytes, request: Any, version: int, correlation: int) -> Any:
    """Returns the response in a frame, if the frame is right to the last byte."""
    size, answered = struct.unpack_from(">ii", data)
    assert size == len(data) - 4
    assert answered == correlation
    if hasattr(request, "SCHEMA"):
        return codec.read_response(classes_by_api[request.API][1], version, data[4:])[1]
    kind = _response_class(type(request).__name__.replace("Request", "Response"))
    tagged = kind.flexible_version_q(version) and kind is not metadata.ApiVersionsResponse
    head = data[8:9] if tagged else b""
    assert head == (NO_TAGS if tagged else b"")
    body = data[8 + len(head) :]
    response = kind.decode(body, version=version)
    response._header = None  # kafka-python does not set it here, and asks for it below
    assert bytes(response.encode(version=version)) == body, "bytes are left over"
    return response


@cache
def _response_class(name: str) -> Any:
    return next(getattr(module, name) for module in SCHEMAS if hasattr(module, name))


def is_fault(line: str) -> bool:
    """Whether a log line says that a handler, a waiting call or an alarm has raised."""
    pattern = r"(?:a timer failed|a waiting request failed|[A-Z_]+ v\d+): \w+: "
    return re.match(pattern, line) is not None
