"""Plays a member's network, timers and application, one event at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from rota.assignors.interface import Assignor
from rota.assignors.registry import resolve_all
from rota.errors import Code
from rota.formats import assignment, subscription
from rota.member.event import (
    Answered,
    Call,
    CallListener,
    Command,
    CommitAsked,
    CoordinatorFound,
    Event,
    FindCoordinator,
    ListenerReturned,
    MakeAssignment,
    MetadataUpdated,
    PollBegan,
    PollEnded,
    Raise,
    RequestFailed,
    RequestMetadata,
    Send,
    StartTimer,
    StopTimer,
    Subscribed,
    Timer,
    TimerFired,
)
from rota.member.leader import make
from rota.member.machine import Machine
from rota.member.state import MOVES, State
from rota.model.config import MemberConfig
from rota.model.membership import Assignment, Subscription
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import (
    CommitReply,
    HeartbeatReply,
    JoinedMember,
    JoinReply,
    Reply,
    SyncReply,
)
from rota.model.request import CommitOffsets, Heartbeat, Join, Request, Sync
from rota.model.topic import Cluster, Partitions, TopicPartition

ME = "me-1"
OTHER = "other-1"
T = TypeVar("T")
R = TypeVar("R", bound=Request)


def tp(*names: str) -> tuple[TopicPartition, ...]:
    """``tp("t0-1", "t1-0")``."""
    return tuple(
        TopicPartition(topic, int(number))
        for topic, _, number in (name.rpartition("-") for name in names)
    )


def at(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    """``at(t0_1=5)``."""
    return {
        TopicPartition(name.rpartition("_")[0], int(name.rpartition("_")[2])): OffsetAndMetadata(n)
        for name, n in offsets.items()
    }


def given(*names: str) -> bytes:
    return assignment.encode(Assignment(Partitions.of(tp(*names))))


def told(topics: Iterable[str] = ("t0",)) -> bytes:
    return subscription.encode(Subscription(topics=tuple(topics)))


class Driver:
    """A member and all that is around it."""

    def __init__(
        self,
        strategies: str | Sequence[Assignor] = "range",
        *,
        topics: Sequence[str] = ("t0",),
        pattern: str | None = None,
        partitions: Mapping[str, int] | None = None,
        **settings: object,
    ) -> None:
        assignors = resolve_all(strategies) if isinstance(strategies, str) else tuple(strategies)
        settings.setdefault("auto_commit", False)
        self.config = MemberConfig(group="g", **settings)  # type: ignore[arg-type]
        self.consumed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.machine = Machine(self.config, assignors, lambda: self.consumed)
        self.now = 0
        self.log: list[Command] = []
        self.open: dict[int, Request] = {}
        self.timers: dict[Timer, int] = {}
        self.calls: list[CallListener] = []
        self.moves: set[tuple[State, State]] = set()
        self.answers_listener = True
        self.makes_assignments = True
        self.metadata = partitions or {"t0": 4, "t1": 4}
        self.gives_metadata = True
        self.give(MetadataUpdated(Cluster(self.metadata)))
        if topics or pattern:
            self.give(Subscribed(() if pattern else tuple(topics), pattern))

    # Events in, commands out

    def give(self, event: Event) -> list[Command]:
        """One event, and by itself what a driver would do at once."""
        before = self.machine.state
        commands = self.machine.handle(event, self.now)
        self.machine.check_invariants()
        after = self.machine.state
        if before is not after:
            self.moves.add((before, after))
            assert (before, after) in MOVES
        self.log += commands
        follows = [event for command in commands for event in self._do(command)]
        return commands + [command for event in follows for command in self.give(event)]

    def _do(self, command: Command) -> list[Event]:
        match command:
            case Send(number, request):
                self.open[number] = request
            case StartTimer(timer, due):
                self.timers[timer] = due
            case StopTimer(timer):
                self.timers.pop(timer, None)
            case CallListener():
                self.calls.append(command)
                if self.answers_listener:
                    return [ListenerReturned(command.call_id)]
            case MakeAssignment() if self.makes_assignments:
                return [make(command)]
            case RequestMetadata() if self.gives_metadata:
                return [MetadataUpdated(Cluster(self.metadata))]
        return []

    def pass_time(self, duration: int, *, alive: bool = False) -> list[Command]:
        """Timers that become due fire, in order; if ``alive``, heartbeats are answered."""
        commands: list[Command] = []
        end = self.now + duration
        while self.timers and min(self.timers.values()) <= end:
            timer = min(self.timers, key=lambda one: (self.timers[one], one.value))
            self.now = max(self.now, self.timers.pop(timer))
            commands += self.give(TimerFired(timer))
            if alive and timer is Timer.HEARTBEAT:
                commands += self.beat_answered()
        self.now = end
        return commands

    def under_way(self, kind: type[R]) -> list[tuple[int, R]]:
        return [(n, request) for n, request in self.open.items() if isinstance(request, kind)]

    def sent(self, kind: type[R]) -> R:
        """The last request of this kind under way."""
        return self.under_way(kind)[-1][1]

    def answer(self, kind: type[Request], reply: Reply) -> list[Command]:
        """Answers the last request of this kind."""
        number, _ = self.under_way(kind)[-1]
        del self.open[number]
        return self.give(Answered(number, reply))

    def fail(self, kind: type[Request]) -> list[Command]:
        number, _ = self.under_way(kind)[-1]
        del self.open[number]
        return self.give(RequestFailed(number))

    def change(self, **partitions: int) -> list[Command]:
        """The topics' metadata changes."""
        self.metadata = partitions
        return self.give(MetadataUpdated(Cluster(partitions)))

    # The way into a group

    def poll(self) -> list[Command]:
        return self.give(PollBegan())

    def end_poll(self) -> list[Command]:
        return self.give(PollEnded())

    def found(self) -> list[Command]:
        return self.give(CoordinatorFound())

    def answer_join(
        self,
        generation: int = 1,
        *,
        member_id: str = ME,
        leader: str = OTHER,
        members: Mapping[str, bytes] | None = None,
        skip_assignment: bool = False,
    ) -> list[Command]:
        """The join succeeds; the strategy is the first of the list."""
        protocol = self.sent(Join).protocols[0].name
        listed = members if leader == member_id else {}
        return self.answer(
            Join,
            JoinReply(
                member_id=member_id,
                generation=generation,
                protocol_type="consumer",
                protocol=protocol,
                leader=leader,
                skip_assignment=skip_assignment,
                members=tuple(
                    JoinedMember(member_id=one, static_id=None, metadata=data)
                    for one, data in (listed or {}).items()
                ),
            ),
        )

    def refuse_join(self, code: Code) -> list[Command]:
        return self.answer(Join, JoinReply(code=code))

    def answer_sync(self, *names: str) -> list[Command]:
        return self.answer(Sync, SyncReply(assignment=given(*names)))

    def settle(self, *names: str, generation: int = 1) -> list[Command]:
        """From wherever it stands, through a poll, to stable with these partitions."""
        commands = self.poll()
        if FindCoordinator() in commands:
            commands += self.found()
        commands += self.answer_join(generation)
        commands += self.answer_sync(*names)
        return commands

    def beat(self, code: Code = Code.NONE) -> list[Command]:
        """The next heartbeat goes out, and is answered."""
        commands = self.pass_time(self.timers[Timer.HEARTBEAT] - self.now)
        return commands + self.beat_answered(code)

    def beat_at_once(self, code: Code) -> list[Command]:
        """As if a heartbeat had been due just now."""
        del self.timers[Timer.HEARTBEAT]
        return self.give(TimerFired(Timer.HEARTBEAT)) + self.beat_answered(code)

    def beat_answered(self, code: Code = Code.NONE) -> list[Command]:
        return self.answer(Heartbeat, HeartbeatReply(code=code))

    def commit(
        self,
        commit_id: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        *,
        wait: int | None = None,
    ) -> list[Command]:
        until = None if wait is None else self.now + wait
        return self.give(CommitAsked(commit_id, offsets, until))

    def answer_commit(self, code: Code = Code.NONE, number: int | None = None) -> list[Command]:
        found = dict(self.under_way(CommitOffsets))
        number = max(found) if number is None else number
        del self.open[number]
        codes = dict.fromkeys(found[number].offsets, code)
        return self.give(Answered(number, CommitReply(codes=codes)))

    # Looking at what came out

    @property
    def state(self) -> State:
        return self.machine.state

    def heard(self) -> list[tuple[Call, tuple[TopicPartition, ...]]]:
        """What the listener was called with, since it was last asked."""
        calls = [(call.call, call.partitions) for call in self.calls]
        self.calls.clear()
        return calls


def of(kind: type[T], commands: Iterable[Command]) -> list[T]:
    """Those of one kind."""
    return [command for command in commands if isinstance(command, kind)]


def raised(commands: Iterable[Command]) -> list[Exception]:
    return [command.error for command in of(Raise, commands)]


def requests(commands: Iterable[Command]) -> list[Request]:
    return [command.request for command in of(Send, commands)]
