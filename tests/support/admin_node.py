"""A node with the handlers that know topics, on a disk in memory; asked in real frames.

Requests are written and answers read by kafka-python, so both are checked by schemas that are not
read by the code under test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.parser import KafkaProtocol

from rota.broker.dispatch import Handler
from rota.broker.event import Close, ConnectionId, Log, Opened, Received, Send
from rota.broker.fault import Order
from rota.broker.groups import Groups
from rota.broker.handlers import cluster, config, metadata, topic, versions
from rota.broker.node import Node
from rota.broker.part import Parts
from rota.errors import Code
from rota.model.config import GroupConfig
from tests.support.topic_store import NOW, Store

HANDLERS: Mapping[int, Handler] = {
    each.api: each
    for module in (cluster, config, metadata, topic, versions)
    for each in module.HANDLERS
}
ME = ConnectionId(1)


class AdminNode:
    """A running node; :meth:`restart` has the next one on the same disk."""

    def __init__(self, store: Store | None = None, **given: Any) -> None:
        self.store = Store(**given) if store is None else store
        self.topics = self.store.topics
        self.said = self.store.said
        parts = Parts(
            config=self.store.config,
            topics=self.topics,
            groups=Groups(
                GroupConfig(),
                self.topics,
                self.store.alarms,
                lambda: self.store.ids().hex(),
                lambda level, text: self.said.append(text),
            ),
            alarms=self.store.alarms,
            log=lambda level, text: None,
            address=("127.0.0.1", 9092),
            versions={key: (each.lowest, each.highest) for key, each in HANDLERS.items()},
        )
        self.node = Node(parts, HANDLERS)
        self.node.handle(Opened(ME, "127.0.0.1"), NOW)
        # kafka-python's own classes carry no types
        self._protocol: Any = KafkaProtocol(client_id="test")  # type: ignore[no-untyped-call]

    def ask(self, request: Any) -> Any:
        """The answer to a request, both as kafka-python has them."""
        self._protocol.send_request(request)
        frame = self._protocol.send_bytes()
        for command in self.node.handle(Received(ME, frame[4:]), self.store.now):
            match command:
                case Send(_, data):
                    ((_, answer),) = self._protocol.receive_bytes(bytes(data))
                    return answer
                case Close(_, reason):
                    raise ConnectionError(reason)
                case Log(_, text):
                    self.said.append(text)
        raise AssertionError("no answer")

    def refuse_all(self, code: Code) -> None:
        """Every request is answered with this error."""
        for handler in HANDLERS.values():
            self.node.faults.order(Order(api=handler.api, left=None, client_id=None, code=code))

    def restart(self) -> AdminNode:
        """The next node on what this one has written."""
        return AdminNode(self.store.restart())

    def stop(self) -> AdminNode:
        """Stops in good order, and starts again."""
        return AdminNode(self.store.stop())
