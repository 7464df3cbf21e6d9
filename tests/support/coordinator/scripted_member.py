"""Members of a case's group, and what they send."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rota.engine.formats import consumer_protocol
from rota.engine.model.config import GroupConfig
from rota.engine.model.member import Subscription
from rota.engine.model.request import (
    CONSUMER_PROTOCOL_TYPE,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    JoinGroupProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    SyncGroup,
)
from rota.engine.model.response import GroupResponse, JoinGroupResult
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code
from tests.support.coordinator.case_run import CaseRun

#: The broker's settings, and the coordinator's.
CONFIG = GroupConfig(
    min_session_timeout=1_000, max_session_timeout=60_000, initial_rebalance_delay=700, max_size=3
)
DELAY = CONFIG.initial_rebalance_delay
HOST = "/127.0.0.1"
TOPICS = {"t": 2, "other": 1}
T0, T1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)
#: A member id that no coordinator gave out.
STRANGER = "stranger"


def encode_subscription(*topics: str) -> bytes:
    """What a member tells the leader: the topics it reads."""
    return consumer_protocol.encode_subscription(Subscription(topics=topics))


def join_protocols(
    *strategies: str, topics: tuple[str, ...] = ("t",)
) -> tuple[JoinGroupProtocol, ...]:
    """A member's list of strategies."""
    return tuple(JoinGroupProtocol(name, encode_subscription(*topics)) for name in strategies)


@dataclass(slots=True)
class ScriptedMember:
    """A member, or one who would be; it learns its id and generation from what it is answered."""

    stage: CaseRun
    name: str
    group_instance_id: str | None = None
    protocols: tuple[JoinGroupProtocol, ...] = join_protocols("range", "roundrobin")
    protocol_type: str = CONSUMER_PROTOCOL_TYPE
    session_timeout: int = 30_000
    rebalance_timeout: int = 20_000
    member_id: str = ""
    generation: int = -1
    #: What it was told of the last generation it joined.
    joined: JoinGroupResult | None = None

    def __post_init__(self) -> None:
        self.stage.listeners[self.name] = self.learn

    def learn(self, reply: GroupResponse) -> None:
        if isinstance(reply, JoinGroupResult) and reply.code in {
            Code.NONE,
            Code.MEMBER_ID_REQUIRED,
        }:
            self.member_id = reply.member_id
            if reply.code == Code.NONE:
                self.generation = reply.generation
                self.joined = reply

    def send(self, request: GroupRequest, changes: dict[str, Any]) -> GroupResponse | None:
        return self.stage.send(self.name, replace(request, **changes))

    def join(self, **changes: Any) -> GroupResponse | None:
        """Join under the id it has, if any."""
        request = JoinGroup(
            group=self.stage.group,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=self.protocol_type,
            protocols=self.protocols,
            session_timeout=self.session_timeout,
            rebalance_timeout=self.rebalance_timeout,
            client_id=self.name,
            client_host=HOST,
        )
        return self.send(request, changes)

    def enter(self) -> GroupResponse | None:
        """Join as one without id: ask for one, if dynamic, then come with it."""
        self.member_id = ""
        reply = self.join()
        return self.join() if self.group_instance_id is None else reply

    def sync(self, *others: ScriptedMember, **changes: Any) -> GroupResponse | None:
        """Sync; a leader names those whom it gives an assignment, itself included."""
        assignments = tuple((each.member_id, f"for {each.name}".encode()) for each in others)
        request = SyncGroup(
            group=self.stage.group,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            protocol_type=self.protocol_type,
            protocol="range",
            assignments=assignments,
        )
        return self.send(request, changes)

    def heartbeat(self, **changes: Any) -> GroupResponse | None:
        request = Heartbeat(
            group=self.stage.group,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
        )
        return self.send(request, changes)

    def leave(self, *leavers: LeavingMember) -> GroupResponse | None:
        """Leave; or make others leave."""
        own = LeavingMember(member_id=self.member_id, group_instance_id=self.group_instance_id)
        return self.send(LeaveGroup(group=self.stage.group, members=leavers or (own,)), {})

    def commit(self, offset: int = 7, metadata: str = "", **changes: Any) -> GroupResponse | None:
        request = OffsetCommit(
            group=self.stage.group,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            offsets={T0: OffsetAndMetadata(offset, metadata)},
        )
        return self.send(request, changes)
