"""A coordinator with virtual time and a journal that can fail: requests in, answers out."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import assert_never

from rota.errors import Code
from rota.formats import subscription
from rota.group.coordinator import Coordinator
from rota.group.event import (
    Answer,
    Append,
    Appended,
    AppendFailed,
    Command,
    Event,
    Loaded,
    LoadStarted,
    Note,
    Requested,
    StartTimer,
    StopTimer,
    TimerFired,
    TimerKey,
)
from rota.model.config import GroupConfig
from rota.model.entry import ClassicEntry
from rota.model.membership import Subscription
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import (
    DescribeGroupsReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    Reply,
    SyncReply,
)
from rota.model.request import (
    CommitOffsets,
    DescribeGroups,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    Protocol,
    Request,
    Sync,
)
from rota.model.topic import TopicPartition

GROUP = "orders"


def metadata(*topics: str) -> bytes:
    return subscription.encode(Subscription(topics=topics or ("t",)))


def join(
    member_id: str = "",
    *,
    group: str = GROUP,
    static_id: str | None = None,
    strategies: Iterable[str] = ("range",),
    topics: tuple[str, ...] = ("t",),
    session: int = 10_000,
    rebalance: int = 60_000,
    protocol_type: str = "consumer",
    client_id: str = "app",
    knows_id_first: bool = True,
    knows_skip: bool = True,
) -> Join:
    return Join(
        group=group,
        member_id=member_id,
        static_id=static_id,
        protocol_type=protocol_type,
        protocols=tuple(Protocol(name, metadata(*topics)) for name in strategies),
        session_timeout=session,
        rebalance_timeout=rebalance,
        client_id=client_id,
        client_host="/10.0.0.1",
        knows_id_first=knows_id_first,
        knows_skip=knows_skip,
    )


def commit(
    offset: int = 5,
    member_id: str = "",
    generation: int = -1,
    *,
    group: str = GROUP,
    topic: str = "t",
    text: str = "",
    static_id: str | None = None,
    retention: int | None = None,
) -> CommitOffsets:
    return CommitOffsets(
        group=group,
        generation=generation,
        member_id=member_id,
        static_id=static_id,
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
        self.answers: dict[int, Reply] = {}
        self.timers: dict[TimerKey, int] = {}
        self.notes: list[Note] = []
        #: What becomes of the next appends. None: it is held back; a code: it fails.
        self.appends: list[Code | None] = []
        self.held: list[Append] = []
        self._new_id = new_id or map("id{}".format, itertools.count(1)).__next__
        self._tokens = itertools.count(1)
        self._started = itertools.count(1)
        self._due: list[tuple[int, int, TimerKey]] = []
        self.restart()

    def handle(self, event: Event) -> None:
        """Handles an event, and the outcomes of the appends that it leads to."""
        events = deque([event])
        while events:
            commands = self.coordinator.handle(events.popleft(), self.now)
            self.coordinator.check_invariants()
            for command in commands:
                events.extend(self._run(command))

    def _run(self, command: Command) -> list[Event]:
        match command:
            case Answer(token, reply):
                assert token not in self.answers, "answered twice"
                self.answers[token] = reply
            case StartTimer(key, at):
                self.timers[key] = at
                heapq.heappush(self._due, (at, next(self._started), key))
            case StopTimer(key):
                self.timers.pop(key, None)
            case Append(ticket, entries):
                outcome = self.appends.pop(0) if self.appends else Code.NONE
                if outcome is None:
                    self.held.append(command)
                elif outcome:
                    return [AppendFailed(ticket, outcome)]
                else:
                    self.journal += entries
                    return [Appended(ticket)]
            case Note():
                self.notes.append(command)
            case _:
                assert_never(command)
        return []

    def store(self, command: Append) -> None:
        """Lets an append succeed that was held back."""
        self.journal += command.entries
        self.handle(Appended(command.ticket))

    def send(self, request: Request) -> int:
        """Sends a request, and returns the token under which ``answers`` has its reply."""
        token = next(self._tokens)
        self.handle(Requested(token, request))
        return token

    def wait(self, milliseconds: int) -> None:
        """Lets time pass; timers fire in the order of their times, then of their starts."""
        end = self.now + milliseconds
        while self._due and self._due[0][0] <= end:
            at, _, key = heapq.heappop(self._due)
            if self.timers.get(key) == at:
                del self.timers[key]
                self.now = max(self.now, at)
                self.handle(TimerFired(key))
        self.now = end

    def restart(self) -> None:
        """Makes a new coordinator from the journal alone."""
        self.timers.clear()
        self._due.clear()
        self.coordinator = Coordinator(self.config, self._new_id)
        self.handle(LoadStarted())
        for entry in self.journal:
            self.coordinator.replay(entry)
        self.handle(Loaded())

    # what members do

    def ask(self, request: Request) -> Reply:
        return self.answers[self.send(request)]

    def joined(self, token: int) -> JoinReply:
        reply = self.answers[token]
        assert isinstance(reply, JoinReply)
        return reply

    def synced(self, token: int) -> SyncReply:
        reply = self.answers[token]
        assert isinstance(reply, SyncReply)
        return reply

    def enter(self, request: Join | None = None) -> tuple[str, int]:
        """A new member joins, with the id it is given; returns the id and the token that waits."""
        request = request or join()
        token = self.send(request)
        if request.static_id is not None or not request.knows_id_first:
            return next(reversed(self.members())), token
        member_id = self.joined(token).member_id
        fields = {name: getattr(request, name) for name in Join.__slots__}
        return member_id, self.send(Join(**{**fields, "member_id": member_id}))

    def sync(self, member_id: str, generation: int, **parts: bytes) -> int:
        return self.send(
            Sync(
                group=GROUP,
                generation=generation,
                member_id=member_id,
                assignments=tuple(parts.items()),
            )
        )

    def send_sync(self, member_id: str, generation: int, static_id: str) -> int:
        return self.send(
            Sync(group=GROUP, generation=generation, member_id=member_id, static_id=static_id)
        )

    def send_leave(self, member_id: str) -> int:
        return self.send(Leave(group=GROUP, members=(Leaver(member_id=member_id),)))

    def beat(self, member_id: str, generation: int, static_id: str | None = None) -> Code:
        reply = self.ask(
            Heartbeat(group=GROUP, generation=generation, member_id=member_id, static_id=static_id)
        )
        assert isinstance(reply, HeartbeatReply)
        return reply.code

    def leave(self, *leavers: Leaver) -> list[Code]:
        reply = self.ask(Leave(group=GROUP, members=leavers))
        assert isinstance(reply, LeaveReply)
        return [reply.code] if reply.code else [member.code for member in reply.members]

    def stable(self, *requests: Join) -> list[str]:
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
                Sync(
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
        assert isinstance(reply, DescribeGroupsReply)
        return reply.groups[0].state

    def members(self) -> list[str]:
        reply = self.ask(DescribeGroups(groups=(GROUP,)))
        assert isinstance(reply, DescribeGroupsReply)
        return [member.member_id for member in reply.groups[0].members]
