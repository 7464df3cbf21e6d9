"""A broker's node with its data APIs, without sockets: real frames in and out, virtual time.

Requests are written and answers read by kafka-python's own classes, so an answer that does not
follow its schema does not get through.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Mapping
from typing import Any, TypeAlias
from uuid import UUID

from kafka.protocol import admin, consumer, producer

from rota.broker import turn
from rota.broker.alarm import Alarms
from rota.broker.event import (
    Close,
    Closed,
    Command,
    ConnectionId,
    Done,
    Log,
    Opened,
    Received,
    Send,
    Woken,
)
from rota.broker.groups import Groups
from rota.broker.handlers import (
    delete_records,
    fetch,
    leader_epoch,
    list_offsets,
    produce,
    producer_id,
)
from rota.broker.means import Means
from rota.broker.node import Node
from rota.broker.opening import open_topics
from rota.broker.part import Parts
from rota.broker.topic import Topic
from rota.errors import Code
from rota.formats.batch import Codec, Record, encode
from rota.model.config import BrokerConfig, TopicConfig
from rota.storage.folder import open_folder
from tests.support.faulty_disk import FaultyDisk

START = 1_750_000_000_000
MODULES = (produce, fetch, list_offsets, producer_id, leader_epoch, delete_records)
HANDLERS = {each.api: each for module in MODULES for each in module.HANDLERS}
FLEXIBLE_HEAD = b"\0"
COUNT = itertools.count(1)
Partition: TypeAlias = tuple[str, int]


def batch(*values: bytes | None, key: bytes | None = b"k", **fields: Any) -> bytes:
    """What a producer sends: offsets from 0 on."""
    timestamp = fields.pop("timestamp", START)
    return encode(
        [Record(offset, timestamp, key, value) for offset, value in enumerate(values)], **fields
    )


def numbered(count: int, *, size: int = 20, codec: Codec = Codec.NONE) -> bytes:
    return batch(*(b"%0*d" % (size, each) for each in range(count)), codec=codec)


def new_id() -> bytes:
    return bytes([7]) * 12 + struct.pack(">i", next(COUNT))


class DataNode:
    """A node on a disk in memory; what it logs is in ``.lines``."""

    def __init__(self, disk: FaultyDisk | None = None, config: BrokerConfig | None = None) -> None:
        self.now = START
        self.room = turn.BYTES
        self.disk = FaultyDisk(0) if disk is None else disk
        self.lines: list[str] = []
        self.peers: dict[ConnectionId, Peer] = {}
        config = BrokerConfig() if config is None else config
        alarms = Alarms()
        means = Means(
            disk=self.disk,
            folder=open_folder(
                self.disk, node_id=config.node_id, new_id=new_id, report=self.lines.append
            ),
            config=config,
            defaults=TopicConfig(),
            alarms=alarms,
            new_id=new_id,
            report=self.lines.append,
        )
        self.topics = open_topics(means, self.now)
        parts = Parts(
            config=config,
            topics=self.topics,
            groups=Groups.__new__(Groups),
            alarms=alarms,
            log=lambda level, text: None,
            address=("127.0.0.1", 9092),
        )
        self.node = Node(parts, HANDLERS)

    def topic(self, name: str = "t", partitions: int = 1, **overrides: str) -> Topic:
        keys = {key.replace("_", "."): value for key, value in overrides.items()}
        return self.topics.create(name, partitions, keys, self.now)

    def connect(self) -> Peer:
        peer = Peer(self, ConnectionId(len(self.peers)))
        self.peers[peer.connection] = peer
        self.happen(Opened(peer.connection, "127.0.0.1"))
        return peer

    def happen(self, event: Opened | Received | Closed | Woken) -> None:
        for command in self.node.handle(event, self.now, self.room):
            self._do(command)

    def advance(self, milliseconds: int) -> None:
        """Lets time pass, with a stop at each alarm."""
        end = self.now + milliseconds
        while (at := self.node.next_alarm()) is not None and at <= end:
            self.now = max(at, self.now)
            self.happen(Woken())
        while self.node.behind and self.room:
            self.happen(Woken())
        self.now = end

    def _do(self, command: Command) -> None:
        match command:
            case Send(connection, data):
                self.peers[connection].answers.append(bytes(data))
            case Done(connection):
                self.peers[connection].answers.append(None)
            case Close(connection, reason):
                self.peers[connection].closed = reason
            case Log(_, text):
                self.lines.append(text)


class Peer:
    """A client's end of a connection."""

    def __init__(self, node: DataNode, connection: ConnectionId) -> None:
        self.node = node
        self.connection = connection
        self.answers: list[bytes | None] = []
        self.closed: str | None = None
        self._asked: deque[tuple[Any, int, int]] = deque()
        self._correlation = 0

    def send(self, request: Any, version: int) -> None:
        self._correlation += 1
        self._asked.append((request, version, self._correlation))
        self.node.happen(Received(self.connection, frame(request, version, self._correlation)))

    def hang_up(self) -> None:
        self.node.happen(Closed(self.connection))

    @property
    def waits(self) -> bool:
        return not self.answers and self.closed is None

    def answer(self) -> Any:
        """The oldest answer that was not taken yet; None where there is none by design."""
        assert self.answers, f"no answer; closed: {self.closed}"
        data = self.answers.pop(0)
        request, version, correlation = self._asked.popleft()
        if data is None:
            return None
        name = type(request).__name__.replace("Request", "Response")
        kind = next(getattr(m, name) for m in (producer, consumer, admin) if hasattr(m, name))
        head = 9 if kind.flexible_version_q(version) else 8
        size, answered = struct.unpack_from(">ii", data)
        assert size == len(data) - 4
        assert answered == correlation
        response = kind.decode(data[head:], version=version)
        response._header = None  # kafka-python forgets to set it, and then asks for it
        assert len(response.encode(version=version)) == len(data) - head, "bytes are left over"
        return response

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.answer()

    # The APIs, for those who want but the partitions' parts of an answer

    def produce(
        self,
        batches: Mapping[Partition, bytes | None],
        *,
        version: int = 11,
        acks: int = -1,
        ids: Mapping[str, bytes] | None = None,
    ) -> dict[Partition, Any]:
        self.send(produce_request(self.node, batches, acks=acks, ids=ids), version)
        response = self.answer()
        if response is None:
            return {}
        names = self._names(ids)
        return {
            (topic.name or names[topic.topic_id.bytes], each.index): each
            for topic in response.responses
            for each in topic.partition_responses
        }

    def store(self, *batches: bytes, topic: str = "t", partition: int = 0) -> list[int]:
        """Produces batches one by one, and gives their offsets."""
        offsets = []
        for each in batches:
            answer = self.produce({(topic, partition): each})[topic, partition]
            assert answer.error_code == 0, (Code(answer.error_code), answer.error_message)
            offsets.append(answer.base_offset)
        return offsets

    def fetch(self, offsets: Mapping[Partition, int], version: int = 16, **f: Any) -> Any:
        return self.ask(fetch_request(self.node, offsets, **f), version)

    def read(self, offsets: Mapping[Partition, int], version: int = 16, **f: Any) -> Any:
        return self.partitions(self.fetch(offsets, version, **f), f.get("ids"))

    def partitions(self, response: Any, ids: Mapping[str, bytes] | None = None) -> Any:
        names = self._names(ids)
        return {
            (topic.topic or names[topic.topic_id.bytes], each.partition_index): each
            for topic in response.responses
            for each in topic.partitions
        }

    def _names(self, ids: Mapping[str, bytes] | None) -> dict[bytes, str]:
        return {each: name for name, each in (ids or topic_ids(self.node)).items()}


def topic_ids(node: DataNode) -> dict[str, bytes]:
    return {topic.name: topic.id for topic in node.topics}


def frame(request: Any, version: int, correlation: int) -> bytes:
    """A request as it is on the wire, without its length."""
    client = b"tester"
    flexible = type(request).flexible_version_q(version)
    head = struct.pack(">hhih", request.API_KEY, version, correlation, len(client)) + client
    return head + (FLEXIBLE_HEAD if flexible else b"") + bytes(request.encode(version=version))


def produce_request(
    node: DataNode,
    batches: Mapping[Partition, bytes | None],
    *,
    acks: int = -1,
    ids: Mapping[str, bytes] | None = None,
    transactional_id: str | None = None,
) -> Any:
    known = topic_ids(node) if ids is None else ids
    kind = producer.ProduceRequest.TopicProduceData
    return producer.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            kind(
                name=name,
                topic_id=_uuid(known, name),
                partition_data=[
                    kind.PartitionProduceData(index=partition, records=data)
                    for (_, partition), data in group
                ],
            )
            for name, group in itertools.groupby(batches.items(), key=lambda item: item[0][0])
        ],
    )


def fetch_request(
    node: DataNode,
    offsets: Mapping[Partition, int],
    *,
    max_wait: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 2**31 - 1,
    partition_max: int = 1 << 20,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
    epoch: int = -1,
    last_epoch: int = -1,
    ids: Mapping[str, bytes] | None = None,
) -> Any:
    known = topic_ids(node) if ids is None else ids
    kind = consumer.FetchRequest.FetchTopic
    return consumer.FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            kind(
                topic=name,
                topic_id=_uuid(known, name),
                partitions=[
                    kind.FetchPartition(
                        partition=partition,
                        current_leader_epoch=epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=last_epoch,
                        log_start_offset=-1,
                        partition_max_bytes=partition_max,
                    )
                    for (_, partition), offset in group
                ],
            )
            for name, group in itertools.groupby(offsets.items(), key=lambda item: item[0][0])
        ],
        forgotten_topics_data=[],
        rack_id="",
    )


def _uuid(ids: Mapping[str, bytes], name: str) -> UUID:
    return UUID(bytes=ids.get(name, bytes(16)))
