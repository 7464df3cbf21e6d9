"""A whole broker without its sockets: every handler, on a disk in memory, in virtual time.

The same seed gives the same ids, so what it does depends on nothing but what it is sent.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rota.broker.alarm import Alarms
from rota.broker.build import handlers
from rota.broker.event import (
    Close,
    Closed,
    Command,
    ConnectionId,
    Done,
    Event,
    Log,
    Opened,
    Received,
    Send,
    Woken,
)
from rota.broker.fault import Faults
from rota.broker.groups import Groups
from rota.broker.means import Means
from rota.broker.node import Node
from rota.broker.opening import open_topics
from rota.broker.part import ERROR, WARNING, Parts
from rota.errors import Code
from rota.formats.batch import decode
from rota.model.config import BrokerConfig, GroupConfig, TopicConfig
from rota.storage.folder import open_folder
from rota.wire.api import Api
from rota.wire.message import (
    FetchRequest,
    Head,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    read_response,
    write_request,
)
from rota.wire.sasl import Users
from tests.support.faulty_disk import FaultyDisk

START = 1_750_000_000_000
BROKER = BrokerConfig(offsets_partitions=3)
OFFERED = handlers()
VERSIONS = {Api(each.api): range(each.lowest, each.highest + 1) for each in OFFERED.values()}


class WholeNode:
    """What it logs is in ``.lines``, errors alone in ``.errors``."""

    def __init__(
        self,
        disk: FaultyDisk | None = None,
        *,
        now: int = START,
        config: BrokerConfig = BROKER,
        passwords: Mapping[str, str] | None = None,
        ids: Iterator[int] | None = None,
    ) -> None:
        self.now = now
        self.disk = FaultyDisk(0) if disk is None else disk
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.peers: dict[ConnectionId, Peer] = {}
        self._config = config
        self._ids = itertools.count(1) if ids is None else ids
        alarms = Alarms()
        means = Means(
            disk=self.disk,
            folder=open_folder(
                self.disk, node_id=config.node_id, new_id=self._new_bytes, report=self._report
            ),
            config=config,
            defaults=TopicConfig(),
            alarms=alarms,
            new_id=self._new_bytes,
            report=self._report,
        )
        self.topics = open_topics(means, now)
        prompt = GroupConfig(initial_rebalance_delay=0)
        self.groups = Groups(prompt, self.topics, alarms, self._new_text, self._say)
        self.groups.load(now)
        parts = Parts(
            config=config,
            topics=self.topics,
            groups=self.groups,
            alarms=alarms,
            log=self._say,
            address=("127.0.0.1", 9092),
            versions={key: (each.lowest, each.highest) for key, each in OFFERED.items()},
            users=None if passwords is None else Users(passwords, lambda: bytes(16)),
            new_nonce=self._new_text,
        )
        login_needed = passwords is not None
        self.node = Node(parts, OFFERED, faults=Faults(alarms), login_needed=login_needed)

    def killed(self) -> WholeNode:
        """The next process on what this one has left: it was killed."""
        return WholeNode(self.disk.kill(), now=self.now, config=self._config, ids=self._ids)

    def stopped(self) -> WholeNode:
        """The next one, after a stop in good order."""
        self.topics.close(self.now)
        return self.killed()

    def _say(self, level: int, text: str) -> None:
        self.lines.append(text)
        if level >= ERROR:
            self.errors.append(text)

    def _report(self, text: str) -> None:
        self._say(WARNING, text)

    def _new_bytes(self) -> bytes:
        """No id is near another, so that no flipped bit makes one of the other."""
        return hashlib.sha256(b"%d" % next(self._ids)).digest()[:16]

    def _new_text(self) -> str:
        return self._new_bytes().hex()

    def connect(self) -> Peer:
        peer = Peer(self, ConnectionId(len(self.peers)))
        self.peers[peer.connection] = peer
        self.happen(Opened(peer.connection, "127.0.0.1"))
        return peer

    def happen(self, event: Event) -> None:
        for command in self.node.handle(event, self.now):
            self._do(command)

    def advance(self, milliseconds: int) -> None:
        """Lets time pass at once, as if the machine had slept."""
        self.now += milliseconds
        self.happen(Woken())

    def _do(self, command: Command) -> None:
        match command:
            case Send(connection, data):
                self.peers[connection].take(bytes(data))
            case Done(connection):
                self.peers[connection].take(None)
            case Close(connection, reason):
                self.peers[connection].end(reason)
            case Log(level, text):
                self._say(level, text)


@dataclass(eq=False)
class Peer:
    """A client's end of a connection. It gives the node a frame at a time, as the server does."""

    node: WholeNode
    connection: ConnectionId
    waits: bool = False
    closed: str | None = None
    answers: list[bytes | None] = field(default_factory=list)
    """Those that were not looked at; None: it was done, and there is none by design."""
    correlation: int = 0
    asked: bytes | None = None
    """The frame that is answered next, for those who look at bytes."""

    def give(self, frame: bytes) -> None:
        """Any bytes for a frame."""
        assert not self.waits
        assert self.closed is None
        self.waits = True
        self.node.happen(Received(self.connection, frame))

    def take(self, data: bytes | None) -> None:
        assert self.waits, f"an answer to nobody, or a second one: {data!r}"
        assert self.closed is None, "an answer behind the end"
        self.waits = False
        self.answers.append(data)

    def end(self, reason: str) -> None:
        assert self.closed is None, "closed twice"
        self.closed = reason
        self.waits = False

    def hang_up(self) -> None:
        self.end("by the client")
        self.node.happen(Closed(self.connection))

    # what well-behaved clients do

    def ask(self, request: Any, version: int) -> Any:
        """The answer, if the node has one at once."""
        api = Api(type(request).SCHEMA.key)
        self.correlation += 1
        frame = write_request(Head(api, version, self.correlation, "plain", 0), request)
        self.give(bytes(frame)[4:])
        assert self.answers, f"no answer to {request}; closed: {self.closed}"
        data = self.answers.pop()
        assert data is not None
        correlation, response = read_response(api, version, data[4:])
        assert correlation == self.correlation
        return response

    def produce(self, topic: str, partition: int, batch: bytes) -> Any:
        """The partition's part of the answer."""
        data = ProduceRequest.TopicProduceData(
            name=topic,
            partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=batch)],
        )
        request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data])
        return self.ask(request, 9).responses[0].partition_responses[0]

    def fetch(self, topic: str, partition: int, offset: int = 0) -> Any:
        """The partition's part of the answer."""
        wanted = FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
        )
        of = FetchRequest.FetchTopic(topic=topic, partitions=[wanted])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[of])
        return self.ask(request, 12).responses[0].partitions[0]

    def commit(self, group: str, topic: str, partition: int, offset: int, text: str) -> Code:
        """As one that is no member."""
        where = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=text
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[where])],
        )
        return Code(self.ask(request, 8).topics[0].partitions[0].error_code)

    def committed(self, group: str) -> dict[tuple[str, int], tuple[int, str]] | Code:
        """Offsets and their texts, or why there are none."""
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None)
        found = self.ask(OffsetFetchRequest(groups=[asked]), 8).groups[0]
        if found.error_code:
            return Code(found.error_code)
        return {
            (topic.name, each.partition_index): (each.committed_offset, each.metadata)
            for topic in found.topics
            for each in topic.partitions
        }


def values(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record of some batches."""
    columns = decode(data)
    assert not columns.problems, columns.problems
    held = columns.buffer.data

    def cut(start: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(held[start : start + size])

    fields = (columns.key_start, columns.key_size, columns.value_start, columns.value_size)
    return [
        (offset, cut(key, key_size), cut(value, value_size))
        for offset, key, key_size, value, value_size in zip(
            columns.offset.tolist(), *(each.tolist() for each in fields), strict=True
        )
    ]
