"""What members may do: checked on every event that one handles.

Two members may both believe to own a partition only while one of them has not heard of the other's
generation: it is frozen, cut off, or its next heartbeat is still to come. Kafka allows this, and
guards by refusing the commits of the one that is behind. Two that know the same generation never
own the same partition, whatever phase they are in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.registry import common_protocol
from rota.engine.formats import consumer_protocol
from rota.engine.member.events import (
    CallListener,
    CommitRequested,
    FinishSyncCommit,
    ListenerMethod,
    ListenerReturned,
    MarkPendingRevocation,
    MemberCommand,
    MemberEvent,
    ResponseReceived,
    RunCommitCallback,
    SendRequest,
    SetAssignment,
)
from rota.engine.member.member import MemberStateMachine
from rota.engine.member.state import MemberState
from rota.engine.model.config import MemberConfig
from rota.engine.model.member import RebalanceProtocol
from rota.engine.model.request import JoinGroup
from rota.engine.model.response import JoinGroupResult
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code
from tests.support.simulation.coordinator_checker import CoordinatorChecker
from tests.support.simulation.response_checker import JoinedMember
from tests.support.simulation.rule import must

Consumed = Callable[[], Mapping[TopicPartition, OffsetAndMetadata]]


@dataclass(slots=True)
class MemberHistory:
    """What a member was seen to do."""

    name: str
    group: str
    group_instance_id: str | None
    protocol: RebalanceProtocol
    #: Assigned and not revoked, as its listener was told.
    held: set[TopicPartition] = field(default_factory=set)
    calling: bool = False
    #: Which generation it knows, and which of several of one number.
    incarnation: int = 0
    #: Which coordinator told it.
    life: int = 0
    #: Its application's commits that are not over.
    asked: set[int] = field(default_factory=set)

    @property
    def identity(self) -> str:
        """A static member stays who it is when it is replaced."""
        return self.group_instance_id or self.name


class OwnershipChecker:
    """Watches all members of a world."""

    def __init__(self, driver: CoordinatorChecker) -> None:
        self.driver = driver
        #: The members that live.
        self.machines: Callable[[], Iterable[MemberStateMachine]] = lambda: ()
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}

    def handled(
        self,
        machine: CheckedMember,
        before: MemberState,
        event: MemberEvent,
        commands: Sequence[MemberCommand],
    ) -> None:
        seen = machine.seen
        match event:
            case ResponseReceived(_, JoinGroupResult() as reply) if reply.code is Code.NONE:
                if machine.generation == reply.generation:
                    self._enter(seen, self.driver.answers.told[id(reply)])
            case ListenerReturned():
                seen.calling = False
            case CommitRequested():
                seen.asked.add(event.commit_id)
            case _:
                pass
        for command in commands:
            self._commanded(machine, before, command)
        owned = set(machine.assignment)
        must(seen.held <= owned, "what is revoked is given up", seen.name, seen.held - owned)
        if not seen.calling:
            rest = owned - seen.held
            must(not rest, "listeners are told first", seen.name, sorted(rest))

    def _enter(self, seen: MemberHistory, told: JoinedMember) -> None:
        """A member's generations rise, but for one that a restart has forgotten."""
        rises = told.incarnation >= seen.incarnation or told.life > seen.life
        must(rises, "generations rise for a member", seen.name, seen.incarnation, told)
        seen.incarnation, seen.life = told.incarnation, told.life

    def _commanded(
        self, machine: CheckedMember, before: MemberState, command: MemberCommand
    ) -> None:
        seen = machine.seen
        match command:
            case CallListener(_, call, partitions):
                must(not seen.calling, "one listener call at a time", seen.name, command)
                seen.calling = True
                self._called(machine, call, set(partitions))
            case SendRequest(_, request):
                must(before is not MemberState.FENCED, "the fenced are silent", seen.name, request)
                if isinstance(request, JoinGroup):
                    _check_claims(machine, request)
            case SetAssignment(partitions, _):
                self.driver.tally["assignment changed"] += 1
            case MarkPendingRevocation(partitions):
                rest = set(partitions) - set(machine.assignment)
                must(not rest, "only what is owned is withheld", seen.name, rest)
            case FinishSyncCommit(commit_id, error) | RunCommitCallback(commit_id, _, error):
                must(commit_id in seen.asked, "commits end once", seen.name, command)
                seen.asked.remove(commit_id)
                outcome = type(error).__name__ if error else "done"
                self.driver.tally[f"commit {outcome}"] += 1
            case _:
                pass

    def _called(
        self, machine: CheckedMember, call: ListenerMethod, told: set[TopicPartition]
    ) -> None:
        seen = machine.seen
        self.driver.tally[call.value] += 1
        if call is not ListenerMethod.ASSIGNED:
            rest = told - seen.held
            must(not rest, "only what is owned is revoked", seen.name, call, rest)
            seen.held -= told
            return
        again = told & seen.held
        must(not again, "assigned once", seen.name, sorted(again))
        if seen.protocol is RebalanceProtocol.EAGER:
            must(not seen.held, "eager revokes all", seen.name, sorted(seen.held))
        seen.held |= told
        must(seen.held == set(machine.assignment), "listeners are told all", seen.name)
        self._own(machine)
        self._check_others(machine, told)

    def _own(self, machine: CheckedMember) -> None:
        """From now on these are the member's in this generation, and nobody else's ever."""
        seen = machine.seen
        for tp in machine.assignment:
            owner = self._owners.setdefault((seen.group, seen.incarnation, tp), seen.identity)
            one = owner == seen.identity
            text = f"{tp} in generation {machine.generation}: {owner} and {seen.identity}"
            must(one, "one owner in a generation", text)

    def _check_others(self, machine: CheckedMember, added: set[TopicPartition]) -> None:
        """Nobody who knows this generation still has what was added."""
        seen = machine.seen
        for other in self.machines():
            assert isinstance(other, CheckedMember)
            theirs = other.seen
            if theirs.group != seen.group or theirs.identity == seen.identity:
                continue
            both = added.intersection(other.assignment)
            if not both:
                continue
            self.driver.tally["one owner is behind"] += 1
            knows = other.generation >= 0 and theirs.incarnation == seen.incarnation
            text = f"{sorted(both)}: {seen.name} and {theirs.name}, both of {machine.generation}"
            must(not knows, "nobody else owns it", text)


def _check_claims(machine: CheckedMember, request: JoinGroup) -> None:
    """An eager member joins with nothing; a cooperative one says truly what it owns."""
    owned = set(machine.assignment)
    if machine.seen.protocol is RebalanceProtocol.EAGER:
        must(not owned, "eager joins with nothing", machine.seen.name, sorted(owned))
    for _, metadata in request.protocols:
        told = set(consumer_protocol.decode_subscription(metadata).owned)
        must(told == owned, "claims are true", machine.seen.name, told ^ owned)


class CheckedMember(MemberStateMachine):
    """A member checked by an :class:`OwnershipChecker`. Its client id is its process's name."""

    def __init__(
        self,
        checker: OwnershipChecker,
        config: MemberConfig,
        assignors: Sequence[Assignor],
        consumed: Consumed,
    ) -> None:
        super().__init__(config, assignors, consumed)
        self.seen = MemberHistory(
            config.client_id, config.group, config.group_instance_id, common_protocol(assignors)
        )
        self._floor = checker

    def handle(self, event: MemberEvent, now_ms: int) -> list[MemberCommand]:
        before = self.state
        commands = super().handle(event, now_ms)
        self.check_invariants()
        self._floor.handled(self, before, event, commands)
        return commands
