"""A live broker as one side of a comparison: a connection for each request under way."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka.protocol.admin.topics import CreateTopicsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.parser import KafkaProtocol

from rota.errors import Code
from rota.model.reply import DescribeGroupsReply, Reply
from rota.model.request import DescribeGroups, Request
from tests.kafka.coordinator import wire
from tests.kafka.coordinator.stage import Step

PATIENCE = 5.0
"""How long to wait for an answer that the other side gave. Costs nothing where both agree."""
QUIET = 0.03
"""How long to listen for an answer that the other side did not give."""
AGAIN = 0.01
READ = 65_536
NOT_READY = {
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
}


class Connection:
    """One connection to a broker; it takes one request at a time."""

    def __init__(self, port: int, client_id: str) -> None:
        self._protocol = KafkaProtocol(client_id=client_id)
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: wire.Message) -> None:
        self._protocol.send_request(message)
        self._socket.sendall(self._protocol.send_bytes())

    def receive(self) -> wire.Message | None:
        """What has come, if it is a whole answer by now."""
        data = self._socket.recv(READ)
        if not data:
            raise ConnectionError("the broker closed the connection")
        for _, answer in self._protocol.receive_bytes(data):
            return answer
        return None

    def ask(self, message: wire.Message) -> wire.Message:
        """Send, and wait for the answer."""
        self.send(message)
        answer = None
        while answer is None:
            answer = self.receive()
        return answer

    def close(self) -> None:
        self._socket.close()


class Live:
    """A broker, for one case."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._admin = Connection(port, "admin")
        self._idle: dict[str, list[Connection]] = {}
        self._busy: dict[str, tuple[str, Connection, Request]] = {}

    def close(self) -> None:
        idle = [each for connections in self._idle.values() for each in connections]
        for each in (self._admin, *idle, *(busy[1] for busy in self._busy.values())):
            each.close()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, label: str, client_id: str, request: Request) -> None:
        idle = self._idle.get(client_id)
        connection = idle.pop() if idle else Connection(self._port, client_id)
        connection.send(wire.encode(request))
        self._busy[label] = client_id, connection, request

    def collect(self, milliseconds: int, expected: Step | None) -> Mapping[str, Reply]:
        time.sleep(milliseconds / 1000)
        wanted = set(self._busy) if expected is None else set(expected.answers)
        answers = self._receive(wanted, PATIENCE if expected is not None else 10 * QUIET)
        if self._busy:
            answers |= self._receive(set(self._busy), QUIET)
        return answers

    def _receive(self, wanted: set[str], patience: float) -> dict[str, Reply]:
        answers: dict[str, Reply] = {}
        end = time.monotonic() + patience
        while not wanted <= answers.keys() and (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([each[1] for each in self._busy.values()], (), (), left)
            for label, (client_id, connection, request) in list(self._busy.items()):
                if connection in ready and (answer := connection.receive()) is not None:
                    answers[label] = wire.decode(request, answer)
                    del self._busy[label]
                    self._idle.setdefault(client_id, []).append(connection)
        return answers

    def ask(self, request: Request, wanted: Callable[[Reply], bool]) -> Reply:
        end = time.monotonic() + PATIENCE
        while True:
            reply = wire.decode(request, self._admin.ask(wire.encode(request)))
            if wanted(reply) or time.monotonic() > end:
                return reply
            time.sleep(AGAIN)


def make_ready(port: int, topics: Mapping[str, int]) -> None:
    """Topics to commit offsets for, and a coordinator that has loaded its journal."""
    creatable = CreateTopicsRequest.CreatableTopic
    made = [
        creatable(
            name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
        )
        for name, count in topics.items()
    ]
    with contextlib.closing(Connection(port, "admin")) as admin:
        answer: Any = admin.ask(CreateTopicsRequest(version=5, topics=made, timeout_ms=30_000))
        assert all(each.error_code == Code.NONE for each in answer.topics), answer
        admin.ask(FindCoordinatorRequest(version=2, key="any", key_type=0))
        question = DescribeGroups(groups=("any",))
        end = time.monotonic() + 30
        while True:
            reply = wire.decode(question, admin.ask(wire.encode(question)))
            assert isinstance(reply, DescribeGroupsReply)
            if reply.groups[0].code not in NOT_READY:
                return
            assert time.monotonic() < end, reply
            time.sleep(AGAIN)
