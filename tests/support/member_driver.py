"""Plays a member's network, timers and application, one event at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.registry import resolve_strategies
from rota.engine.formats import consumer_protocol
from rota.engine.member.classic import compute_assignment
from rota.engine.member.events import (
    CallListener,
    CommitRequested,
    ComputeAssignment,
    CoordinatorFound,
    FindCoordinator,
    ListenerMethod,
    ListenerReturned,
    MemberCommand,
    MemberEvent,
    MemberTimer,
    MemberTimerFired,
    MetadataUpdated,
    PollBegan,
    PollEnded,
    RaiseError,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    SendRequest,
    StartMemberTimer,
    StopMemberTimer,
    Subscribed,
)
from rota.engine.member.member import MemberStateMachine
from rota.engine.member.state import MEMBER_TRANSITIONS, MemberState
from rota.engine.model.config import MemberConfig
from rota.engine.model.member import Assignment, Subscription
from rota.engine.model.request import GroupRequest, Heartbeat, JoinGroup, OffsetCommit, SyncGroup
from rota.engine.model.response import (
    GroupResponse,
    HeartbeatResult,
    JoinedMember,
    JoinGroupResult,
    OffsetCommitResult,
    SyncGroupResult,
)
from rota.engine.model.topic import Cluster, OffsetAndMetadata, Partitions, TopicPartition
from rota.errors import Code

ME = "me-1"
OTHER = "other-1"
T = TypeVar("T")
R = TypeVar("R", bound=GroupRequest)


def tp(*names: str) -> tuple[TopicPartition, ...]:
    """``tp("t0-1", "t1-0")``."""
    return tuple(
        TopicPartition(topic, int(number))
        for topic, _, number in (name.rpartition("-") for name in names)
    )


def offsets(**offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    """``offsets(t0_1=5)``."""
    return {
        TopicPartition(name.rpartition("_")[0], int(name.rpartition("_")[2])): OffsetAndMetadata(n)
        for name, n in offsets.items()
    }


def encode_assignment(*names: str) -> bytes:
    return consumer_protocol.encode_assignment(Assignment(Partitions.of(tp(*names))))


def encode_subscription(topics: Iterable[str] = ("t0",)) -> bytes:
    return consumer_protocol.encode_subscription(Subscription(topics=tuple(topics)))


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
        assignors = (
            resolve_strategies(strategies) if isinstance(strategies, str) else tuple(strategies)
        )
        settings.setdefault("auto_commit", False)
        self.config = MemberConfig(group="g", **settings)  # type: ignore[arg-type]
        self.consumed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.machine = MemberStateMachine(self.config, assignors, lambda: self.consumed)
        self.now = 0
        self.log: list[MemberCommand] = []
        self.open: dict[int, GroupRequest] = {}
        self.timers: dict[MemberTimer, int] = {}
        self.calls: list[CallListener] = []
        self.moves: set[tuple[MemberState, MemberState]] = set()
        self.answers_listener = True
        self.makes_assignments = True
        self.metadata = partitions or {"t0": 4, "t1": 4}
        self.gives_metadata = True
        self.give(MetadataUpdated(Cluster(self.metadata)))
        if topics or pattern:
            self.give(Subscribed(() if pattern else tuple(topics), pattern))

    # Events in, commands out

    def give(self, event: MemberEvent) -> list[MemberCommand]:
        """One event, and by itself what a driver would do at once."""
        before = self.machine.state
        commands = self.machine.handle(event, self.now)
        self.machine.check_invariants()
        after = self.machine.state
        if before is not after:
            self.moves.add((before, after))
            assert (before, after) in MEMBER_TRANSITIONS
        self.log += commands
        follows = [event for command in commands for event in self._do(command)]
        return commands + [command for event in follows for command in self.give(event)]

    def _do(self, command: MemberCommand) -> list[MemberEvent]:
        match command:
            case SendRequest(number, request):
                self.open[number] = request
            case StartMemberTimer(timer, due):
                self.timers[timer] = due
            case StopMemberTimer(timer):
                self.timers.pop(timer, None)
            case CallListener():
                self.calls.append(command)
                if self.answers_listener:
                    return [ListenerReturned(command.call_id)]
            case ComputeAssignment() if self.makes_assignments:
                return [compute_assignment(command)]
            case RequestMetadata() if self.gives_metadata:
                return [MetadataUpdated(Cluster(self.metadata))]
        return []

    def pass_time(self, duration: int, *, alive: bool = False) -> list[MemberCommand]:
        """Timers that become due fire, in order; if ``alive``, heartbeats are answered."""
        commands: list[MemberCommand] = []
        end = self.now + duration
        while self.timers and min(self.timers.values()) <= end:
            timer = min(self.timers, key=lambda one: (self.timers[one], one.value))
            self.now = max(self.now, self.timers.pop(timer))
            commands += self.give(MemberTimerFired(timer))
            if alive and timer is MemberTimer.HEARTBEAT:
                commands += self.beat_answered()
        self.now = end
        return commands

    def in_flight(self, kind: type[R]) -> list[tuple[int, R]]:
        return [(n, request) for n, request in self.open.items() if isinstance(request, kind)]

    def sent(self, kind: type[R]) -> R:
        """The last request of this kind under way."""
        return self.in_flight(kind)[-1][1]

    def answer(self, kind: type[GroupRequest], reply: GroupResponse) -> list[MemberCommand]:
        """Answers the last request of this kind."""
        number, _ = self.in_flight(kind)[-1]
        del self.open[number]
        return self.give(ResponseReceived(number, reply))

    def fail(self, kind: type[GroupRequest]) -> list[MemberCommand]:
        number, _ = self.in_flight(kind)[-1]
        del self.open[number]
        return self.give(RequestFailed(number))

    def change(self, **partitions: int) -> list[MemberCommand]:
        """The topics' metadata changes."""
        self.metadata = partitions
        return self.give(MetadataUpdated(Cluster(partitions)))

    # The way into a group

    def poll(self) -> list[MemberCommand]:
        return self.give(PollBegan())

    def end_poll(self) -> list[MemberCommand]:
        return self.give(PollEnded())

    def found(self) -> list[MemberCommand]:
        return self.give(CoordinatorFound())

    def answer_join(
        self,
        generation: int = 1,
        *,
        member_id: str = ME,
        leader: str = OTHER,
        members: Mapping[str, bytes] | None = None,
        skip_assignment: bool = False,
    ) -> list[MemberCommand]:
        """The join succeeds; the strategy is the first of the list."""
        protocol = self.sent(JoinGroup).protocols[0].name
        listed = members if leader == member_id else {}
        return self.answer(
            JoinGroup,
            JoinGroupResult(
                member_id=member_id,
                generation=generation,
                protocol_type="consumer",
                protocol=protocol,
                leader=leader,
                skip_assignment=skip_assignment,
                members=tuple(
                    JoinedMember(member_id=one, group_instance_id=None, metadata=data)
                    for one, data in (listed or {}).items()
                ),
            ),
        )

    def refuse_join(self, code: Code) -> list[MemberCommand]:
        return self.answer(JoinGroup, JoinGroupResult(code=code))

    def answer_sync(self, *names: str) -> list[MemberCommand]:
        return self.answer(SyncGroup, SyncGroupResult(assignment=encode_assignment(*names)))

    def settle(self, *names: str, generation: int = 1) -> list[MemberCommand]:
        """From wherever it stands, through a poll, to stable with these partitions."""
        commands = self.poll()
        if FindCoordinator() in commands:
            commands += self.found()
        commands += self.answer_join(generation)
        commands += self.answer_sync(*names)
        return commands

    def beat(self, code: Code = Code.NONE) -> list[MemberCommand]:
        """The next heartbeat goes out, and is answered."""
        commands = self.pass_time(self.timers[MemberTimer.HEARTBEAT] - self.now)
        return commands + self.beat_answered(code)

    def beat_at_once(self, code: Code) -> list[MemberCommand]:
        """As if a heartbeat had been due just now."""
        del self.timers[MemberTimer.HEARTBEAT]
        return self.give(MemberTimerFired(MemberTimer.HEARTBEAT)) + self.beat_answered(code)

    def beat_answered(self, code: Code = Code.NONE) -> list[MemberCommand]:
        return self.answer(Heartbeat, HeartbeatResult(code=code))

    def commit(
        self,
        commit_id: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        *,
        wait: int | None = None,
    ) -> list[MemberCommand]:
        until = None if wait is None else self.now + wait
        return self.give(CommitRequested(commit_id, offsets, until))

    def answer_commit(
        self, code: Code = Code.NONE, number: int | None = None
    ) -> list[MemberCommand]:
        found = dict(self.in_flight(OffsetCommit))
        number = max(found) if number is None else number
        del self.open[number]
        codes = dict.fromkeys(found[number].offsets, code)
        return self.give(ResponseReceived(number, OffsetCommitResult(codes=codes)))

    # Looking at what came out

    @property
    def state(self) -> MemberState:
        return self.machine.state

    def heard(self) -> list[tuple[ListenerMethod, tuple[TopicPartition, ...]]]:
        """What the listener was called with, since it was last asked."""
        calls = [(call.method, call.partitions) for call in self.calls]
        self.calls.clear()
        return calls


def commands_of_type(kind: type[T], commands: Iterable[MemberCommand]) -> list[T]:
    """Those of one kind."""
    return [command for command in commands if isinstance(command, kind)]


def raised_errors(commands: Iterable[MemberCommand]) -> list[Exception]:
    return [command.error for command in commands_of_type(RaiseError, commands)]


def sent_requests(commands: Iterable[MemberCommand]) -> list[GroupRequest]:
    return [command.request for command in commands_of_type(SendRequest, commands)]
