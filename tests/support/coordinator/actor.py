"""Members of a case's group, and what they send."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rota.errors import Code
from rota.formats import subscription
from rota.model.config import GroupConfig
from rota.model.membership import Subscription
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import JoinReply, Reply
from rota.model.request import (
    CONSUMER,
    CommitOffsets,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    Protocol,
    Request,
    Sync,
)
from rota.model.topic import TopicPartition
from tests.support.coordinator.stage import Stage

CONFIG = GroupConfig(
    min_session_timeout=1_000, max_session_timeout=60_000, initial_rebalance_delay=700, max_size=3
)
"""The broker's settings, and the coordinator's."""
DELAY = CONFIG.initial_rebalance_delay
HOST = "/127.0.0.1"
TOPICS = {"t": 2, "other": 1}
T0, T1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)
STRANGER = "stranger"
"""A member id that no coordinator gave out."""


def reads(*topics: str) -> bytes:
    """What a member tells the leader: the topics it reads."""
    return subscription.encode(Subscription(topics=topics))


def supports(*strategies: str, topics: tuple[str, ...] = ("t",)) -> tuple[Protocol, ...]:
    """A member's list of strategies."""
    return tuple(Protocol(name, reads(*topics)) for name in strategies)


@dataclass(slots=True)
class Actor:
    """A member, or one who would be; it learns its id and generation from what it is answered."""

    stage: Stage
    name: str
    static_id: str | None = None
    protocols: tuple[Protocol, ...] = supports("range", "roundrobin")
    protocol_type: str = CONSUMER
    session_timeout: int = 30_000
    rebalance_timeout: int = 20_000
    member_id: str = ""
    generation: int = -1
    joined: JoinReply | None = None
    """What it was told of the last generation it joined."""

    def __post_init__(self) -> None:
        self.stage.listeners[self.name] = self.learn

    def learn(self, reply: Reply) -> None:
        if isinstance(reply, JoinReply) and reply.code in {Code.NONE, Code.MEMBER_ID_REQUIRED}:
            self.member_id = reply.member_id
            if reply.code == Code.NONE:
                self.generation = reply.generation
                self.joined = reply

    def send(self, request: Request, changes: dict[str, Any]) -> Reply | None:
        return self.stage.send(self.name, replace(request, **changes))

    def join(self, **changes: Any) -> Reply | None:
        """Join under the id it has, if any."""
        request = Join(
            group=self.stage.group,
            member_id=self.member_id,
            static_id=self.static_id,
            protocol_type=self.protocol_type,
            protocols=self.protocols,
            session_timeout=self.session_timeout,
            rebalance_timeout=self.rebalance_timeout,
            client_id=self.name,
            client_host=HOST,
        )
        return self.send(request, changes)

    def enter(self) -> Reply | None:
        """Join as one without id: ask for one, if dynamic, then come with it."""
        self.member_id = ""
        reply = self.join()
        return self.join() if self.static_id is None else reply

    def sync(self, *others: Actor, **changes: Any) -> Reply | None:
        """Sync; a leader names those whom it gives an assignment, itself included."""
        assignments = tuple((each.member_id, f"for {each.name}".encode()) for each in others)
        request = Sync(
            group=self.stage.group,
            generation=self.generation,
            member_id=self.member_id,
            static_id=self.static_id,
            protocol_type=self.protocol_type,
            protocol="range",
            assignments=assignments,
        )
        return self.send(request, changes)

    def heartbeat(self, **changes: Any) -> Reply | None:
        request = Heartbeat(
            group=self.stage.group,
            generation=self.generation,
            member_id=self.member_id,
            static_id=self.static_id,
        )
        return self.send(request, changes)

    def leave(self, *leavers: Leaver) -> Reply | None:
        """Leave; or make others leave."""
        own = Leaver(member_id=self.member_id, static_id=self.static_id)
        return self.send(Leave(group=self.stage.group, members=leavers or (own,)), {})

    def commit(self, offset: int = 7, metadata: str = "", **changes: Any) -> Reply | None:
        request = CommitOffsets(
            group=self.stage.group,
            generation=self.generation,
            member_id=self.member_id,
            static_id=self.static_id,
            offsets={T0: OffsetAndMetadata(offset, metadata)},
        )
        return self.send(request, changes)
