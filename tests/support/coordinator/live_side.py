"""A live broker as one side of a comparison: a connection for each request under way."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Collection, Mapping

from rota.engine.model.request import GroupRequest
from rota.engine.model.response import GroupResponse
from tests.support.coordinator import connection, wire
from tests.support.coordinator.case_run import QUIET
from tests.support.coordinator.connection import AGAIN, Connection

#: How long to wait for what the other side has done by now.
#:
#: Costs nothing where both agree; less than any timer of a case, lest it hide that one runs longer.
PATIENCE = 0.4


class LiveSide:
    """A broker, for one case. What the other side answered is waited for; else only listened."""

    def __init__(self, port: int, restart: Callable[[], None] | None = None) -> None:
        self._port = port
        self._restart = restart
        self._admin = Connection(port)
        self._idle: dict[str, list[Connection]] = {}
        self._busy: dict[str, tuple[str, Connection, GroupRequest]] = {}

    def __enter__(self) -> LiveSide:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        idle = [each for connections in self._idle.values() for each in connections]
        for each in (self._admin, *idle, *(busy[1] for busy in self._busy.values())):
            each.close()
        self._idle.clear()
        self._busy.clear()

    def send(self, label: str, client_id: str, request: GroupRequest) -> None:
        idle = self._idle.get(client_id)
        taken = idle.pop() if idle else Connection(self._port, client_id)
        taken.send(wire.encode(request))
        self._busy[label] = client_id, taken, request

    def collect(
        self, milliseconds: int, expected: Collection[str] | None
    ) -> Mapping[str, GroupResponse]:
        time.sleep(milliseconds / 1000)
        if expected is None:
            return self._receive(set(self._busy), 10 * QUIET / 1000)
        answers = self._receive(set(expected), PATIENCE)
        if self._busy:
            answers |= self._receive(set(self._busy), QUIET / 1000)
        return answers

    def _receive(self, wanted: set[str], patience: float) -> dict[str, GroupResponse]:
        answers: dict[str, GroupResponse] = {}
        end = time.monotonic() + patience
        while not wanted <= answers.keys() and (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([each[1] for each in self._busy.values()], (), (), left)
            for label, (client_id, busy, request) in list(self._busy.items()):
                if busy in ready and (answer := busy.receive()) is not None:
                    answers[label] = wire.decode(request, answer)
                    del self._busy[label]
                    self._idle.setdefault(client_id, []).append(busy)
        return answers

    def ask(self, request: GroupRequest, wanted: Callable[[GroupResponse], bool]) -> GroupResponse:
        end = time.monotonic() + PATIENCE
        while True:
            reply = wire.decode(request, self._admin.ask(wire.encode(request)))
            if wanted(reply) or time.monotonic() > end:
                return reply
            time.sleep(AGAIN)

    def restart(self) -> None:
        assert self._restart is not None, "this broker is not to be restarted"
        self.close()
        self._restart()
        self._admin = Connection(self._port)

    def create_topic(self, topic: str) -> None:
        connection.create_topics(self._admin, {topic: 1})

    def delete_topic(self, topic: str) -> None:
        connection.delete_topic(self._admin, topic)

    def journal_end(self) -> int:
        """Where the journal ends by now."""
        return connection.journal_end(self._admin)
