"""A coordinator with virtual time and a journal that can fail: requests in, answers out."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import assert_never

from rota.engine.coordinator.coordinator import Coordinator
from rota.engine.coordinator.events import (
    AppendEntries,
    AppendFailed,
    AppendSucceeded,
    CoordinatorCommand,
    CoordinatorEvent,
    GroupTimerFired,
    GroupTimerKey,
    JournalLoaded,
    JournalLoadStarted,
    RequestReceived,
    SendResponse,
    StartGroupTimer,
    StopGroupTimer,
)
from rota.engine.coordinator.notes import GroupNote
from rota.engine.formats import consumer_protocol
from rota.engine.model.config import GroupConfig
from rota.engine.model.journal_entry import ClassicEntry
from rota.engine.model.member import Subscription
from rota.engine.model.request import (
    DescribeGroups,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    JoinGroupProtocol,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    SyncGroup,
)
from rota.engine.model.response import (
    DescribeGroupsResult,
    GroupResponse,
    HeartbeatResult,
    JoinGroupResult,
    LeaveGroupResult,
    SyncGroupResult,
)
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code

GROUP = "orders"


def subscription_metadata(*topics: str) -> bytes:
    return consumer_protocol.encode_subscription(Subscription(topics=topics or ("t",)))


def join_request(
    member_id: str = "",
    *,
    group: str = GROUP,
    group_instance_id: str | None = None,
    strategies: Iterable[str] = ("range",),
    topics: tuple[str, ...] = ("t",),
    session: int = 10_000,
    rebalance: int = 60_000,
    protocol_type: str = "consumer",
    client_id: str = "app",
    reason: str | None = None,
    supports_member_id_required: bool = True,
    supports_skip_assignment: bool = True,
) -> JoinGroup:
    return JoinGroup(
        group=group,
        member_id=member_id,
        group_instance_id=group_instance_id,
        protocol_type=protocol_type,
        protocols=tuple(
            JoinGroupProtocol(name, subscription_metadata(*topics)) for name in strategies
        ),
        session_timeout=session,
        rebalance_timeout=rebalance,
        client_id=client_id,
        client_host="/10.0.0.1",
        reason=reason,
        supports_member_id_required=supports_member_id_required,
        supports_skip_assignment=supports_skip_assignment,
    )


def commit_request(
    offset: int = 5,
    member_id: str = "",
    generation: int = -1,
    *,
    group: str = GROUP,
    topic: str = "t",
    text: str = "",
    group_instance_id: str | None = None,
    retention: int | None = None,
) -> OffsetCommit:
    return OffsetCommit(
        group=group,
        generation=generation,
        member_id=member_id,
        group_instance_id=group_instance_id,
        offsets={TopicPartition(topic, 0): OffsetAndMetadata(offset, text)},
        retention=retention,
    )


class CoordinatorDriver:
    """Runs a coordinator's commands in virtual time.

    Appends succeed at once, but for those that ``appends`` lists.
    """

    def __init__(
        self, config: GroupConfig | None = None, new_id: Callable[[], str] | None = None
    ) -> None:
        self.config = config or GroupConfig()
        self.now = 0
        self.journal: list[ClassicEntry] = []
        self.answers: dict[int, GroupResponse] = {}
        self.timers: dict[GroupTimerKey, int] = {}
        self.notes: list[GroupNote] = []
        #: What becomes of the next appends. None: it is held back; a code: it fails.
        self.appends: list[Code | None] = []
        self.held: list[AppendEntries] = []
        self._new_id = new_id or map("id{}".format, itertools.count(1)).__next__
        self._tokens = itertools.count(1)
        self._started = itertools.count(1)
        self._due: list[tuple[int, int, GroupTimerKey]] = []
        self.restart()

    def handle(self, event: CoordinatorEvent) -> None:
        """Handles an event, and the outcomes of the appends that it leads to."""
        events = deque([event])
        while events:
            commands = self.coordinator.handle(events.popleft(), self.now)
            self.coordinator.check_invariants()
            for command in commands:
                events.extend(self._run(command))

    def _run(self, command: CoordinatorCommand) -> list[CoordinatorEvent]:
        match command:
            case SendResponse(token, reply):
                assert token not in self.answers, "answered twice"
                self.answers[token] = reply
            case StartGroupTimer(key, at):
                self.timers[key] = at
                heapq.heappush(self._due, (at, next(self._started), key))
            case StopGroupTimer(key):
                self.timers.pop(key, None)
            case AppendEntries(ticket, entries):
                outcome = self.appends.pop(0) if self.appends else Code.NONE
                if outcome is None:
                    self.held.append(command)
                elif outcome:
                    return [AppendFailed(ticket, outcome)]
                else:
                    self.journal += entries
                    return [AppendSucceeded(ticket)]
            case GroupNote():
                self.notes.append(command)
            case _:
                assert_never(command)
        return []

    def store(self, command: AppendEntries) -> None:
        """Lets an append succeed that was held back."""
        self.journal += command.entries
        self.handle(AppendSucceeded(command.append_id))

    def send(self, request: GroupRequest) -> int:
        """Sends a request, and returns the token under which ``answers`` has its reply."""
        token = next(self._tokens)
        self.handle(RequestReceived(token, request))
        return token

    def wait(self, milliseconds: int) -> None:
        """Lets time pass; timers fire in the order of their times, then of their starts."""
        end = self.now + milliseconds
        while self._due and self._due[0][0] <= end:
            at, _, key = heapq.heappop(self._due)
            if self.timers.get(key) == at:
                del self.timers[key]
                self.now = max(self.now, at)
                self.handle(GroupTimerFired(key))
        self.now = end

    def restart(self) -> None:
        """Makes a new coordinator from the journal alone."""
        self.timers.clear()
        self._due.clear()
        self.coordinator = Coordinator(self.config, self._new_id)
        self.handle(JournalLoadStarted())
        for entry in self.journal:
            self.coordinator.replay(entry)
        self.handle(JournalLoaded())

    # what members do

    def ask(self, request: GroupRequest) -> GroupResponse:
        return self.answers[self.send(request)]

    def joined(self, token: int) -> JoinGroupResult:
        reply = self.answers[token]
        assert isinstance(reply, JoinGroupResult)
        return reply

    def synced(self, token: int) -> SyncGroupResult:
        reply = self.answers[token]
        assert isinstance(reply, SyncGroupResult)
        return reply

    def enter(self, request: JoinGroup | None = None) -> tuple[str, int]:
        """A new member joins, with the id it is given; returns the id and the token that waits."""
        request = request or join_request()
        token = self.send(request)
        if request.group_instance_id is not None or not request.supports_member_id_required:
            return next(reversed(self.members())), token
        member_id = self.joined(token).member_id
        fields = {name: getattr(request, name) for name in JoinGroup.__slots__}
        return member_id, self.send(JoinGroup(**{**fields, "member_id": member_id}))

    def sync(self, member_id: str, generation: int, **parts: bytes) -> int:
        return self.send(
            SyncGroup(
                group=GROUP,
                generation=generation,
                member_id=member_id,
                assignments=tuple(parts.items()),
            )
        )

    def send_sync(self, member_id: str, generation: int, group_instance_id: str) -> int:
        return self.send(
            SyncGroup(
                group=GROUP,
                generation=generation,
                member_id=member_id,
                group_instance_id=group_instance_id,
            )
        )

    def send_leave(self, member_id: str) -> int:
        return self.send(LeaveGroup(group=GROUP, members=(LeavingMember(member_id=member_id),)))

    def beat(self, member_id: str, generation: int, group_instance_id: str | None = None) -> Code:
        reply = self.ask(
            Heartbeat(
                group=GROUP,
                generation=generation,
                member_id=member_id,
                group_instance_id=group_instance_id,
            )
        )
        assert isinstance(reply, HeartbeatResult)
        return reply.code

    def leave(self, *leavers: LeavingMember) -> list[Code]:
        reply = self.ask(LeaveGroup(group=GROUP, members=leavers))
        assert isinstance(reply, LeaveGroupResult)
        return [reply.code] if reply.code else [member.code for member in reply.members]

    def stable(self, *requests: JoinGroup) -> list[str]:
        """A stable group of these members, in this order; each gets its own id as assignment."""
        entered = [self.enter(request) for request in requests]
        self.wait(6_000)
        return self.settle([token for _, token in entered])

    def settle(self, tokens: list[int]) -> list[str]:
        """Brings those whose joins were answered through the sync phase."""
        replies = [self.joined(token) for token in tokens]
        ids = [reply.member_id for reply in replies]
        parts = tuple((member_id, member_id.encode()) for member_id in ids)
        for reply in sorted(replies, key=lambda reply: reply.member_id != reply.leader):
            token = self.send(
                SyncGroup(
                    group=GROUP,
                    generation=reply.generation,
                    member_id=reply.member_id,
                    assignments=parts if reply.member_id == reply.leader else (),
                )
            )
            assert self.synced(token).assignment == reply.member_id.encode()
        assert self.state() == "Stable"
        return ids

    # what admins see

    def state(self, group: str = GROUP) -> str:
        reply = self.ask(DescribeGroups(groups=(group,)))
        assert isinstance(reply, DescribeGroupsResult)
        return reply.groups[0].state

    def members(self) -> list[str]:
        reply = self.ask(DescribeGroups(groups=(GROUP,)))
        assert isinstance(reply, DescribeGroupsResult)
        return [member.member_id for member in reply.groups[0].members]
