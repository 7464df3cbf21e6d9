"""A broker's node with its group APIs, without sockets: real frames in and out, virtual time.

Requests are written and answers read by kafka-python's own classes, so an answer that does not
follow its schema does not get through.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

import kafka.protocol.sasl
from kafka.protocol import admin, consumer, metadata

from rota.broker.alarm import Alarms
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
from rota.broker.groups import Groups
from rota.broker.handlers import group, offset, sasl
from rota.broker.means import Means
from rota.broker.node import Node
from rota.broker.opening import open_topics
from rota.broker.part import Parts
from rota.broker.topics import Topics
from rota.errors import Code
from rota.model.config import BrokerConfig, GroupConfig, TopicConfig
from rota.storage.folder import open_folder
from rota.wire.sasl import Users
from tests.support.faulty_disk import FaultyDisk

START = 1_750_000_000_000
BROKER = BrokerConfig(offsets_partitions=3)
PROMPT = GroupConfig(initial_rebalance_delay=0)
HANDLERS = {each.api: each for module in (group, offset, sasl) for each in module.HANDLERS}
MODULES = (consumer, admin, metadata, kafka.protocol.sasl)
NO_TAGS = b"\0"


class GroupNode:
    """A node on a disk in memory; what it logs is in ``.lines``."""

    def __init__(
        self,
        disk: FaultyDisk | None = None,
        *,
        now: int = START,
        config: BrokerConfig = BROKER,
        groups: GroupConfig = PROMPT,
        ids: Iterable[int] | None = None,
        passwords: Mapping[str, str] | None = None,
    ) -> None:
        self.now = now
        self.disk = FaultyDisk(0) if disk is None else disk
        self.lines: list[str] = []
        self.peers: dict[ConnectionId, Peer] = {}
        self._ids = itertools.count(1) if ids is None else iter(ids)
        alarms = Alarms()
        folder = open_folder(
            self.disk, node_id=config.node_id, new_id=self._new_bytes, report=self.lines.append
        )
        means = Means(
            disk=self.disk,
            folder=folder,
            config=config,
            defaults=TopicConfig(),
            alarms=alarms,
            new_id=self._new_bytes,
            report=self.lines.append,
        )
        self.topics: Topics = open_topics(means, self.now)
        self.groups = Groups(groups, self.topics, alarms, self._new_text, self._say)
        parts = Parts(
            config=config,
            topics=self.topics,
            groups=self.groups,
            alarms=alarms,
            log=self._say,
            address=("127.0.0.1", 9092),
            users=None if passwords is None else Users(passwords, lambda: bytes(16)),
            new_nonce=self._new_text,
        )
        self.groups.load(now)
        self.node = Node(parts, HANDLERS, login_needed=passwords is not None)

    def _say(self, level: int, text: str) -> None:
        self.lines.append(text)

    def _new_bytes(self) -> bytes:
        return struct.pack(">qq", 7, next(self._ids))

    def _new_text(self) -> str:
        return str(UUID(int=next(self._ids)))

    def topic(self, name: str = "t", partitions: int = 4) -> None:
        self.topics.create(name, partitions, {}, self.now)

    def restarted(self, **settings: Any) -> GroupNode:
        """A new process over what the old one has left: it was killed."""
        return GroupNode(self.disk.kill(), now=self.now, ids=self._ids, **settings)

    def said(self, text: str) -> list[str]:
        """The lines of the log that have this in them."""
        return [line for line in self.lines if text in line]

    # events and commands

    def connect(self, host: str = "127.0.0.1") -> Peer:
        peer = Peer(self, ConnectionId(len(self.peers)))
        self.peers[peer.connection] = peer
        self.happen(Opened(peer.connection, host))
        return peer

    def happen(self, event: Event) -> None:
        """What is due at once because of it happens too, as the shell would see to."""
        for command in self.node.handle(event, self.now):
            self._do(command)
        if (at := self.node.next_alarm()) is not None and at <= self.now:
            self.happen(Woken())

    def advance(self, milliseconds: int) -> None:
        """Lets time pass, with a stop at each alarm, and what is left to say be said."""
        end = self.now + milliseconds
        self.happen(Woken())
        while (at := self.node.next_alarm()) is not None and at <= end:
            self.now = max(at, self.now)
            self.happen(Woken())
        self.now = end

    def _do(self, command: Command) -> None:
        match command:
            case Send(connection, data):
                self.peers[connection].answers.append(bytes(data))
            case Done():
                raise AssertionError("every one of these requests is answered")
            case Close(connection, reason):
                self.peers[connection].closed = reason
            case Log(_, text):
                assert not is_fault(text), text
                self.lines.append(text)


class Peer:
    """A client's end of a connection."""

    def __init__(self, node: GroupNode, connection: ConnectionId) -> None:
        self.node = node
        self.connection = connection
        self.answers: deque[bytes] = deque()
        self.closed: str | None = None
        self.client = b"tester"
        self._asked: deque[tuple[Any, int, int]] = deque()
        self._correlation = 0

    def send(self, request: Any, version: int) -> None:
        self._correlation += 1
        self._asked.append((request, version, self._correlation))
        self.node.happen(
            Received(self.connection, frame(request, version, self._correlation, self.client))
        )

    def send_bytes(self, data: bytes) -> None:
        self.node.happen(Received(self.connection, data))

    def hang_up(self) -> None:
        self.node.happen(Closed(self.connection))

    @property
    def waits(self) -> bool:
        return not self.answers and self.closed is None

    def answer(self) -> Any:
        """The oldest answer that was not taken yet."""
        assert self.answers, f"no answer; closed: {self.closed}; {self.node.lines[-3:]}"
        return decoded(self.answers.popleft(), *self._asked.popleft())

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.answer()


def frame(request: Any, version: int, correlation: int, client: bytes = b"tester") -> bytes:
    """A request as it is on the wire, without its length."""
    flexible = type(request).flexible_version_q(version)
    head = struct.pack(">hhih", request.API_KEY, version, correlation, len(client)) + client
    return head + (NO_TAGS if flexible else b"") + bytes(request.encode(version=version))


def decoded(data: bytes, request: Any, version: int, correlation: int) -> Any:
    """A response, if its frame is right to the last byte."""
    name = type(request).__name__.replace("Request", "Response")
    kind = next(getattr(module, name) for module in MODULES if hasattr(module, name))
    size, answered = struct.unpack_from(">ii", data)
    assert size == len(data) - 4
    assert answered == correlation
    response = kind.decode(data, version=version, header=True, framed=True)
    again = bytes(response.encode(header=True, framed=True))
    assert again == data, "not all of it was read"
    return response


def is_fault(line: str) -> bool:
    """Does a node say that a handler, or an alarm, has raised?"""
    return re.match(r"(?:an alarm|[A-Z_]+ v\d+): \w+: ", line) is not None


def code(answer: Any) -> Code:
    return Code(answer.error_code)
