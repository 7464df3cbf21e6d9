"""Whatever comes, in whatever order: a member keeps its invariants, and ends when asked to."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.engine.assignors.registry import resolve_strategies
from rota.engine.formats import consumer_protocol
from rota.engine.member.classic import compute_assignment
from rota.engine.member.events import (
    CallListener,
    CloseRequested,
    CommitRequested,
    ComputeAssignment,
    CoordinatorFound,
    CoordinatorNotFound,
    FindCoordinator,
    FinishClose,
    FinishSyncCommit,
    ListenerMethod,
    ListenerReturned,
    MemberCommand,
    MemberEvent,
    MemberTimer,
    MemberTimerFired,
    MetadataUpdated,
    PollBegan,
    PollEnded,
    RequestFailed,
    RequestMetadata,
    ResponseReceived,
    RunCommitCallback,
    SendRequest,
    SetAssignment,
    StartMemberTimer,
    StopMemberTimer,
    Subscribed,
    Unsubscribed,
)
from rota.engine.member.member import MemberStateMachine
from rota.engine.member.state import MEMBER_TRANSITIONS, MemberState
from rota.engine.model.config import MemberConfig
from rota.engine.model.member import Assignment, Subscription
from rota.engine.model.request import (
    DescribeGroups,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    SyncGroup,
)
from rota.engine.model.response import (
    DescribedGroup,
    DescribeGroupsResult,
    GroupResponse,
    HeartbeatResult,
    JoinedMember,
    JoinGroupResult,
    LeaveGroupResult,
    OffsetCommitResult,
    SyncGroupResult,
)
from rota.engine.model.topic import Cluster, OffsetAndMetadata, Partitions, TopicPartition
from rota.errors import Code, Refused
from tests.support.examples import examples

STRATEGIES = ("range", "cooperative-sticky", "range,cooperative-sticky", "sticky")
#: How often a request is answered without a code.
GOOD = 0.6


class Chaos:
    """A network, a clock and an application that do anything that they are allowed to."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        choose = self.random.choice
        self.config = MemberConfig(
            group="g",
            group_instance_id=choose((None, "static")),
            auto_commit=choose((True, False)),
            max_poll_interval=choose((5_000, 300_000)),
        )
        assignors = resolve_strategies(choose(STRATEGIES))
        self.consumed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.machine = MemberStateMachine(self.config, assignors, lambda: self.consumed)
        self.now = 0
        self.timers: dict[MemberTimer, int] = {}
        self.requests: dict[int, GroupRequest] = {}
        self.answered: list[MemberEvent] = []
        self.finding = False
        self.asked_metadata = False
        self.in_poll = False
        self.calls: list[CallListener] = []
        self.tasks: list[ComputeAssignment] = []
        #: Those under way, and whether they wait.
        self.commits: dict[int, bool] = {}
        self.last_commit = 0
        self.closing = self.finished = False
        self.owned: tuple[TopicPartition, ...] = ()
        self.generation = 0

    # What may happen next

    def step(self) -> None:
        """One event that may happen now."""
        happenings = [
            *[self.answer] * 6 * bool(self.requests),
            *[self.fail] * bool(self.requests),
            *[self.repeat] * bool(self.answered),
            *[self.find] * 4 * self.finding,
            *[self.wait] * 4,
            *[self.return_call] * 4 * bool(self.calls),
            *[self.make] * 3 * bool(self.tasks),
            *[self.poll] * 3 * (not self.calls),
            *[self.metadata] * (1 + 3 * self.asked_metadata),
            *[self.subscribe] * 2,
            *[self.unsubscribe],
            *[self.commit] * 2 * (not self.closing),
            *[self.close] * (self.random.random() < 0.02 and not self.closing),
        ]
        self.random.choice(happenings)()

    def give(self, event: MemberEvent) -> None:
        before = self.machine.state
        commands = self.machine.handle(event, self.now)
        self.machine.check_invariants()
        after = self.machine.state
        assert before is after or (before, after) in MEMBER_TRANSITIONS
        assert not (self.finished and commands), "nothing is wanted of a member that has finished"
        for command in commands:
            self.obey(command)

    def obey(self, command: MemberCommand) -> None:  # noqa: C901
        match command:
            case FindCoordinator():
                assert not self.finding
                self.finding = True
            case SendRequest(number, request):
                assert number not in self.requests
                assert self.machine.state is not MemberState.FENCED
                self.requests[number] = request
                self.check_request(request)
            case StartMemberTimer(timer, at):
                self.timers[timer] = at
            case StopMemberTimer(timer):
                del self.timers[timer]
            case CallListener(_, call, partitions):
                assert not self.calls, "one call at a time"
                assert self.in_poll or self.closing or call is not ListenerMethod.ASSIGNED
                owned = set(self.owned)
                assert (set(partitions) <= owned) or call is ListenerMethod.ASSIGNED
                self.calls.append(command)
            case SetAssignment(partitions):
                self.owned = partitions
                self.consumed = {one: OffsetAndMetadata(self.now) for one in partitions}
            case ComputeAssignment():
                assert self.machine.state is MemberState.SYNCING
                self.tasks.append(command)
            case FinishSyncCommit(commit_id):
                assert self.commits.pop(commit_id)
            case RunCommitCallback(commit_id):
                assert not self.commits.pop(commit_id)
            case RequestMetadata():
                self.asked_metadata = True
            case FinishClose():
                assert self.closing
                assert not any(self.commits.values()), "a commit waits for ever"
                self.finished = True
            case _:
                pass

    def check_request(self, request: GroupRequest) -> None:
        """At most one join or sync at a time counts, and each is of the member as it is now."""
        machine = self.machine
        match request:
            case JoinGroup(member_id=member_id):
                assert self.in_poll
                assert (machine.state, machine.member_id) == (MemberState.JOINING, member_id)
            case SyncGroup(member_id=member_id, generation=generation):
                assert machine.state is MemberState.SYNCING
                assert (machine.member_id, machine.generation) == (member_id, generation)
            case Heartbeat(member_id=member_id, generation=generation):
                # a heartbeat that was due goes out before the join of the same moment
                assert machine.state in {
                    MemberState.SYNCING,
                    MemberState.STABLE,
                    MemberState.JOINING,
                }
                assert (machine.member_id, machine.generation) == (member_id, generation)
            case _:
                pass

    # The network

    def answer(self) -> None:
        number = self.random.choice(sorted(self.requests))
        request = self.requests.pop(number)
        event = ResponseReceived(number, self.reply(request))
        self.answered.append(event)
        self.give(event)

    def fail(self) -> None:
        number = self.random.choice(sorted(self.requests))
        del self.requests[number]
        self.give(RequestFailed(number, self.refusal()))

    def refusal(self) -> Exception | None:
        """Now and then, what fails would fail again."""
        text = "no permission" if self.random.random() < 0.3 else None
        return None if text is None else Refused(Code.GROUP_AUTHORIZATION_FAILED, text)

    def repeat(self) -> None:
        """An answer that came before comes again."""
        machine = self.machine
        before = (machine.state, machine.member_id, machine.generation, machine.assignment)
        self.give(self.random.choice(self.answered))
        after = (machine.state, machine.member_id, machine.generation, machine.assignment)
        assert before == after

    def code(self) -> Code:
        return Code.NONE if self.random.random() < GOOD else self.random.choice(list(Code))

    def reply(self, request: GroupRequest) -> GroupResponse:
        code = self.code()
        match request:
            case JoinGroup():
                return self.join_reply(request, code)
            case SyncGroup():
                return SyncGroupResult(code=code, assignment=self.some_assignment())
            case Heartbeat():
                return HeartbeatResult(code=code)
            case OffsetCommit(offsets=offsets):
                return OffsetCommitResult(codes={one: self.code() for one in offsets})
            case DescribeGroups():
                return DescribeGroupsResult(groups=(DescribedGroup(group="g", code=code),))
            case _:
                return LeaveGroupResult(code=code)

    def join_reply(self, request: JoinGroup, code: Code) -> JoinGroupResult:
        self.generation += 1
        me = request.member_id or f"me-{self.generation}"
        leads = self.random.random() < 0.5
        told = consumer_protocol.encode_subscription(Subscription(topics=("t0", "t1")))
        listed = {me: request.protocols[0].metadata, "other": told}
        return JoinGroupResult(
            code=code,
            member_id=me,
            generation=self.generation,
            protocol_type=self.random.choice((None, "consumer", "consumer", "connect")),
            protocol=self.random.choice([one.name for one in request.protocols] * 4 + ["odd"]),
            leader=me if leads else "other",
            skip_assignment=self.random.random() < 0.2,
            members=tuple(
                JoinedMember(member_id=one, group_instance_id=None, metadata=data)
                for one, data in listed.items()
            )
            if leads
            else (),
        )

    def some_assignment(self) -> bytes:
        if self.random.random() < 0.1:
            return self.random.randbytes(self.random.randrange(8))
        names = [TopicPartition(topic, n) for topic in ("t0", "t1", "t9") for n in range(3)]
        weights = [1] * 6 + [0.02] * 3
        pairs = zip(names, weights, strict=True)
        chosen = [one for one, weight in pairs if self.random.random() < weight / 2]
        return consumer_protocol.encode_assignment(Assignment(Partitions.of(chosen)))

    def find(self) -> None:
        self.finding = False
        missing = CoordinatorNotFound(self.refusal())
        self.give(self.random.choice((CoordinatorFound(), CoordinatorFound(), missing)))

    def metadata(self) -> None:
        self.asked_metadata = False
        count = self.random.choice((3, 3, 3, 4))
        self.give(MetadataUpdated(Cluster({"t0": count, "t1": 3})))

    # The application

    def wait(self) -> None:
        if not self.timers:
            return
        timer = min(self.timers, key=lambda one: (self.timers[one], one.value))
        self.now = max(self.now, self.timers.pop(timer))
        self.give(MemberTimerFired(timer))

    def return_call(self) -> None:
        call = self.calls.pop()
        error = RuntimeError("listener") if self.random.random() < 0.2 else None
        self.give(ListenerReturned(call.call_id, error))

    def make(self) -> None:
        """The strategy is done, be it in time or not."""
        index = self.random.randrange(len(self.tasks))
        self.give(compute_assignment(self.tasks.pop(index)))

    def poll(self) -> None:
        self.in_poll = not self.in_poll
        self.give(PollBegan() if self.in_poll else PollEnded())

    def subscribe(self) -> None:
        options = (Subscribed(("t0",)), Subscribed(("t0", "t1")), Subscribed(pattern="t[01]"))
        self.give(self.random.choice(options))

    def unsubscribe(self) -> None:
        if self.random.random() < 0.3:
            self.give(Unsubscribed())

    def commit(self) -> None:
        self.last_commit += 1
        waits = self.random.choice((None, self.now + 500, self.now + 60_000))
        self.commits[self.last_commit] = waits is not None
        given = {TopicPartition("t0", 0): OffsetAndMetadata(self.now)}
        self.give(CommitRequested(self.last_commit, self.random.choice((None, {}, given)), waits))

    def close(self) -> None:
        self.closing = True
        self.give(CloseRequested(self.random.choice((None, self.now + 30_000))))

    def recover(self) -> None:
        """Faults stop, and the application polls on: the member ends up in its group."""
        self.give(Subscribed(("t0", "t1")))
        for _ in range(300):
            if self.is_settled():
                return
            if self.calls:
                self.give(ListenerReturned(self.calls.pop().call_id))
            elif self.tasks:
                self.make()
            elif self.requests:
                self.answer_well()
            elif self.finding:
                self.finding = False
                self.give(CoordinatorFound())
            elif self.asked_metadata:
                self.asked_metadata = False
                self.give(MetadataUpdated(Cluster({"t0": 3, "t1": 3})))
            elif MemberTimer.RETRY in self.timers:
                self.wait()
            else:
                self.poll()
        raise AssertionError("the member does not get into its group")

    def answer_well(self) -> None:
        number = min(self.requests)
        request = self.requests.pop(number)
        reply: GroupResponse = HeartbeatResult()
        match request:
            case JoinGroup():
                self.generation += 1
                reply = JoinGroupResult(
                    member_id=request.member_id or f"me-{self.generation}",
                    generation=self.generation,
                    protocol=request.protocols[0].name,
                    leader="other",
                )
            case SyncGroup():
                mine = Partitions.of({"t0": (0, 1)})
                reply = SyncGroupResult(
                    assignment=consumer_protocol.encode_assignment(Assignment(mine))
                )
            case OffsetCommit(offsets=offsets):
                reply = OffsetCommitResult(codes=dict.fromkeys(offsets, Code.NONE))
            case LeaveGroup():
                reply = LeaveGroupResult()
            case DescribeGroups():
                reply = DescribeGroupsResult(groups=())
            case _:
                pass
        self.give(ResponseReceived(number, reply))

    def is_settled(self) -> bool:
        busy = self.calls or self.requests or self.finding or not self.in_poll
        return self.machine.state is MemberState.STABLE and not busy

    def calm(self) -> None:
        """Everything under way ends, and the application closes."""
        if not self.closing:
            self.close()
        for _ in range(500):
            if self.finished:
                return
            if self.calls:
                self.return_call()
            elif self.requests:
                self.fail()
            elif self.finding:
                self.finding = False
                self.give(CoordinatorNotFound())
            else:
                self.wait()
        raise AssertionError("the member does not finish")


def run_random_steps(seed: int, steps: int) -> Chaos:
    chaos = Chaos(seed)
    chaos.subscribe()
    for _ in range(steps):
        if chaos.finished:
            break
        chaos.step()
    chaos.calm()
    return chaos


@examples(quick=25)
@given(seed=st.integers(0, 10**9))
def test_a_member_bears_anything_and_can_always_be_closed(seed: int) -> None:
    run_random_steps(seed, 150)


@examples(quick=25)
@given(seed=st.integers(0, 10**9))
def test_a_member_gets_into_its_group_when_faults_stop(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.subscribe()
    for _ in range(150):
        chaos.step()
    if not chaos.closing and chaos.machine.state is not MemberState.FENCED:
        chaos.recover()


@pytest.mark.nightly
@settings(max_examples=20_000)
@given(seed=st.integers(0, 10**9))
def test_a_member_bears_anything_for_long(seed: int) -> None:
    run_random_steps(seed, 400)


def test_the_seeds_reach_every_state() -> None:
    reached: Counter[MemberState] = Counter()
    for seed in range(60):
        chaos = Chaos(seed)
        chaos.subscribe()
        for _ in range(150):
            if not chaos.finished:
                chaos.step()
                reached[chaos.machine.state] += 1
    assert set(reached) == set(MemberState)
