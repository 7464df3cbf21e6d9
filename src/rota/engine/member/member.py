"""The member's state machine: :meth:`MemberStateMachine.handle` takes an event and returns
commands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.registry import check_unique_names, common_protocol
from rota.engine.member.classic import AssignmentManager, Joiner, Procedure, WaitCondition
from rota.engine.member.commits import CommitManager
from rota.engine.member.events import (
    AssignmentComputed,
    CloseRequested,
    CommandBuffer,
    CommitRequested,
    CoordinatorFound,
    CoordinatorNotFound,
    FinishClose,
    ListenerReturned,
    MemberCommand,
    MemberEvent,
    MemberNote,
    MemberTimer,
    MemberTimerFired,
    MetadataUpdated,
    PollBegan,
    PollEnded,
    RaiseError,
    RejoinRequested,
    RequestFailed,
    ResponseReceived,
    Subscribed,
    Unsubscribed,
)
from rota.engine.member.state import (
    GENERATION_STATES,
    INACTIVE_STATES,
    MemberSession,
    MemberState,
    SentRequest,
    format_code,
)
from rota.engine.member.subscription import SubscriptionTracker
from rota.engine.model.config import MemberConfig
from rota.engine.model.request import (
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    SyncGroup,
)
from rota.engine.model.response import (
    DescribeGroupsResult,
    GroupResponse,
    HeartbeatResult,
    JoinGroupResult,
    LeaveGroupResult,
    OffsetCommitResult,
    SyncGroupResult,
)
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code, Fenced, InputError


class MemberStateMachine:
    """A member of a group, as a state machine: events in, commands out.

    ``consumed`` returns the positions after the records that the application got; a commit without
    offsets stores them. ``spread`` adds jitter to retry delays, so that the members of a group do
    not retry all at once; the default adds none, and nothing else here is random.
    """

    def __init__(
        self,
        config: MemberConfig,
        assignors: Sequence[Assignor],
        consumed: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
        *,
        spread: Callable[[int], int] = int,
    ) -> None:
        if not assignors:
            raise InputError("partition.assignment.strategy: a member needs at least one")
        for assignor in assignors:
            if not isinstance(assignor, Assignor):
                raise InputError(
                    f"{assignor!r} is no rota.Assignor: see rota.engine.assignors.registry"
                )
        check_unique_names(assignors)
        self._outbox = CommandBuffer()
        self._session = MemberSession(config, self._outbox, self._report, spread)
        self._watch = SubscriptionTracker(
            self._outbox, config.rack, matches_internal=not config.exclude_internal
        )
        self._commits = CommitManager(self._session, self._watch, consumed)
        self._joiner = Joiner(self._session, self._watch, assignors, self._report)
        self._inbox = ResponseRouter(self._session, self._joiner, self._commits)
        self._handover = AssignmentManager(
            self._session, self._watch, self._commits, common_protocol(assignors), self._may_call
        )
        self._in_poll = False
        self._unsubscribing = False
        self._closing: CloseRequested | None = None
        self._is_finished = False
        #: The procedure that runs, and what it waits for.
        self._steps: Procedure | None = None
        self._waits_for: WaitCondition = self._may_call
        #: What the application has to be told, by one poll each.
        self._errors: deque[Exception] = deque()
        self._has_raised = False

    @property
    def state(self) -> MemberState:
        """Where the member stands."""
        return self._session.state

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave, or an empty one."""
        return self._session.identity.member_id

    @property
    def generation(self) -> int:
        """The generation that the member belongs to, or -1."""
        return self._session.identity.generation

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """What the member has been told to read."""
        return self._handover.owned

    @property
    def topics(self) -> tuple[str, ...]:
        """What the member subscribes to; those that its pattern matches."""
        return self._watch.topics

    @property
    def is_unsubscribing(self) -> bool:
        """The application has unsubscribed, and not all that follows from it is done."""
        return self._unsubscribing

    @property
    def is_calm(self) -> bool:
        """Whether a poll that begins or ends now would change nothing but the deadline of the
        next poll.
        """
        session, joiner, commits = self._session, self._joiner, self._commits
        if self._steps is not None or self._unsubscribing or self._closing is not None:
            return False
        if commits.automatic_due or commits.has_callbacks or self._errors:
            return False
        if not self._watch.subscribed:
            return True
        settled = session.state is MemberState.STABLE and joiner.received is None
        return settled and session.rejoin_reason is None and self._watch.reason is None

    def handle(self, event: MemberEvent, now_ms: int) -> list[MemberCommand]:
        """What is to be done about an event."""
        self._outbox.open(now_ms)
        if not self._is_finished:
            self._react(event)
            self._advance()
        return self._outbox.close()

    # Events

    def _react(self, event: MemberEvent) -> None:  # noqa: C901, PLR0912 (one line for each event)
        match event:
            case ResponseReceived(request_id, reply):
                self._inbox.answered(request_id, reply)
            case MemberTimerFired(timer):
                self._fired(timer)
            case RequestFailed(request_id, error, why):
                self._session.trouble = why or self._session.trouble
                self._inbox.failed(request_id, error)
            case PollBegan():
                self._begin_poll()
            case PollEnded():
                self._end_poll()
            case ListenerReturned(call_id, error):
                self._listener_returned(call_id, error)
            case AssignmentComputed():
                self._joiner.made(event)
            case CoordinatorFound():
                self._session.found()
                self._commits.send_waiting()
            case CoordinatorNotFound(error, why):
                self._session.trouble = why or self._session.trouble
                self._miss_coordinator(error)
            case MetadataUpdated(cluster):
                self._watch.update(cluster)
                self._joiner.lead()
            case Subscribed():
                self._subscribe(event)
            case Unsubscribed():
                self._unsubscribe()
            case CommitRequested():
                self._commits.ask(event)
            case RejoinRequested(reason):
                if self.state is MemberState.STABLE:
                    self._session.request_rejoin(reason)
            case CloseRequested():
                self._close(event)
            case _:
                raise InputError(f"not an event of a member: {event!r}")

    def _fired(self, timer: MemberTimer) -> None:
        due = self._outbox.fired(timer)
        if due is None:
            return
        match timer:
            case MemberTimer.HEARTBEAT:
                self._session.beat(due)
            case MemberTimer.SESSION:
                self._session.session_ended()
            case MemberTimer.POLL:
                self._poll_is_late()
            case MemberTimer.COMMIT:
                self._commits.automatic_due = True
            case MemberTimer.SYNC_COMMIT:
                self._commits.timer_fired()
            case MemberTimer.DEADLINE:
                self._handover.is_late = True
            case MemberTimer.ASSIGN:
                self._joiner.strategy_is_late()
            case MemberTimer.RETRY:
                pass  # what waited for it goes on by itself
            case _:
                assert_never(timer)

    def _begin_poll(self) -> None:
        self._in_poll = True
        self._has_raised = False
        self._session.presence.enter_poll(self._outbox.now)
        if not self._handover.is_calling:
            self._outbox.stop(MemberTimer.POLL)
        self._commits.run_callbacks()

    def _end_poll(self) -> None:
        self._in_poll = False
        self._session.presence.leave_poll(self._outbox.now)
        self._expect_poll()
        self._joiner.halted = False
        if not self._errors:  # it has been told
            self._session.refusal = None

    def _expect_poll(self) -> None:
        if self._watch.subscribed and self.state not in INACTIVE_STATES:
            at = self._outbox.now + self._session.config.max_poll_interval
            self._outbox.start(MemberTimer.POLL, at)

    def _poll_is_late(self) -> None:
        """A dynamic member leaves, a static one falls silent: its session will end by itself."""
        if self.state in GENERATION_STATES or self.state is MemberState.JOINING:
            self._session.presence.polled_late = True
            self._session.leave("the application has not polled in time")
            self._outbox.put(MemberNote(self._session.explain_loss(), warns=True))

    def _listener_returned(self, call_id: int, error: Exception | None) -> None:
        if self._handover.returned(call_id, error):
            self._outbox.stop(MemberTimer.POLL)
            if self._in_poll:
                self._session.presence.enter_poll(self._outbox.now)
            else:
                self._expect_poll()

    def _miss_coordinator(self, error: Exception | None) -> None:
        if not self._session.missed():
            return
        self._commits.fail_waiting(error)
        if error is not None and self._watch.subscribed:
            self._session.refuse(error)

    def _subscribe(self, event: Subscribed) -> None:
        if not event.topics and event.pattern is None:
            self._unsubscribe()
        elif self.state not in INACTIVE_STATES and self._closing is None:
            self._watch.subscribe(event.topics, event.pattern)
            self._unsubscribing = False

    def _unsubscribe(self) -> None:
        if self._watch.subscribed and self._closing is None:
            self._unsubscribing = True
            self._drop_steps()

    def _close(self, event: CloseRequested) -> None:
        if self._closing is None:
            self._closing = event
            self._commits.run_callbacks()
            self._drop_steps()

    # Procedures

    def _may_call(self) -> bool:
        return self._in_poll or self._unsubscribing or self._closing is not None

    def _run(self, steps: Procedure) -> bool:
        self._steps = steps
        self._resume()
        return True

    def _resume(self) -> None:
        assert self._steps is not None
        try:
            self._waits_for = next(self._steps)
        except StopIteration:
            self._steps = None
            error = self._handover.take_error()
            if error is not None:
                self._report(error)

    def _drop_steps(self) -> None:
        """What waits is given up; what has called the listener runs to its end."""
        if self._steps is not None and not self._handover.is_calling:
            self._steps.close()
            self._steps = None
            self._outbox.stop(MemberTimer.DEADLINE)

    def _advance(self) -> None:
        """Does all that can be done now."""
        while True:
            self._joiner.forget()
            self._inbox.tell_given_up()
            self._commits.settle()
            if self._in_poll:
                self._commits.run_callbacks()
            if self._steps is not None:
                if not self._waits_for():
                    break
                self._resume()
            elif not self._begin():
                break
        if not self._session.coordinator_known and self._wants_coordinator():
            self._session.find()
        if self._in_poll and self._steps is None and not self._has_raised:
            self._raise_one()

    def _wants_coordinator(self) -> bool:
        if self._commits.wants_coordinator or self.state in GENERATION_STATES:
            return True
        polls = self._in_poll and self._watch.subscribed
        return polls and self.state not in INACTIVE_STATES and self._closing is None

    def _begin(self) -> bool:
        """Begins what is due, if anything."""
        if self._is_finished:
            return False
        if self._closing is not None:
            return self._run(self._say_goodbye(self._closing.waits_until))
        if self._unsubscribing:
            return self._run(self._drop_subscription())
        if self.state is MemberState.FENCED:
            owned = bool(self._handover.owned)
            return owned and self._in_poll and self._run(self._handover.lose())
        return self._in_poll and self._watch.subscribed and self._begin_in_poll()

    def _begin_in_poll(self) -> bool:
        if self._joiner.received is not None:
            return self._run(self._handover.complete(self._joiner))
        reason = self._session.rejoin_reason or self._watch.reason
        if reason is not None:
            return self._join(reason)
        if self._commits.automatic_due and self.state is MemberState.STABLE:
            self._commits.commit_automatically()
        return False

    def _join(self, reason: str) -> bool:
        session, joiner = self._session, self._joiner
        if joiner.is_pending or joiner.halted or session.backs_off:
            return False
        if not (session.coordinator_known and self._watch.is_ready()):
            return False
        if session.prepared and not self._handover.unwanted:
            joiner.send_join(self._handover.owned, reason)
            return True
        # at once, for what a listener raised in it is not to be asked for again
        session.prepared = True
        return self._run(self._handover.prepare())

    def _drop_subscription(self) -> Procedure:
        yield from self._handover.depart(None)
        self._session.leave("the application unsubscribed")
        if self._unsubscribing:  # it may have subscribed to something else meanwhile
            self._watch.unsubscribe()
        self._unsubscribing = False
        self._outbox.stop(MemberTimer.POLL)
        self._outbox.stop(MemberTimer.COMMIT)
        self._raise_all()

    def _say_goodbye(self, until: int | None) -> Procedure:
        session, handover = self._session, self._handover
        if until is not None and self._commits.wants_coordinator:
            # as a member still: what one who left commits is refused
            handover.is_late = False
            self._outbox.start(MemberTimer.DEADLINE, until)
            yield lambda: handover.is_late or not self._commits.wants_coordinator
        yield from handover.depart(until)
        if until is not None and until <= self._outbox.now:
            self._commits.give_up_waiting()  # not refused because it leaves: nobody was reached
        number = session.leave("the application closes", target=MemberState.LEFT)
        if until is None:
            self._commits.fail_waiting()
        else:
            self._outbox.start(MemberTimer.DEADLINE, until)
        self._commits.send_waiting()
        yield lambda: handover.is_late or (number not in session.open and self._commits.is_idle)
        self._commits.end()
        for timer in list(self._outbox.timers):
            self._outbox.stop(timer)
        self._raise_all()
        self._outbox.put(
            *(MemberNote(f"not told before the close: {error}") for error in self._errors)
        )
        self._outbox.put(FinishClose())
        self._is_finished = True

    # Errors

    def _report(self, error: Exception) -> None:
        self._errors.append(error)

    def _raise_one(self) -> None:
        """What a poll raises; one that is fenced raises it in every poll."""
        if self.state is MemberState.FENCED and not self._errors:
            self._report(Fenced(str(self._session.fenced), Code.FENCED_INSTANCE_ID))
        if self._errors:
            self._has_raised = True
            self._outbox.put(RaiseError(self._errors.popleft()))

    def _raise_all(self) -> None:
        """The application waits for the end of this procedure, not for a poll."""
        error = self._handover.take_error()
        if error is not None:
            self._outbox.put(RaiseError(error))

    def check_invariants(self) -> None:
        """What must be true after every event.

        :raises AssertionError: something is not
        """
        session, handover, timers = self._session, self._handover, self._outbox.timers
        session.check_invariants()
        self._joiner.check_invariants()
        self._commits.check_invariants()
        calm = self._in_poll and not handover.is_calling
        assert not (calm and MemberTimer.POLL in timers), "the poll deadline runs inside a poll"
        assert not handover.is_calling or self._steps is not None
        assert MemberTimer.DEADLINE not in timers or self._steps is not None
        assert (self.state is MemberState.FENCED) <= (session.fenced is not None)
        assert self._is_finished <= (self.state is MemberState.LEFT and not timers)
        assert len(set(handover.owned)) == len(handover.owned)
        if self.state in GENERATION_STATES or self.state is MemberState.JOINING:
            joined = set(self._watch.joined or ())
            stray = [one for one in handover.owned if one.topic not in joined]
            assert not stray, f"owned, but not subscribed to: {stray}"


class ResponseRouter:
    """Passes responses and failures to the part that sent the request; others are dropped.

    A network may delay, repeat and reorder responses. The number of a request is used once, and is
    forgotten with its first response, with the coordinator, or with the generation that it was sent
    for.
    """

    def __init__(self, session: MemberSession, joiner: Joiner, commits: CommitManager) -> None:
        self.session = session
        self.joiner = joiner
        self.commits = commits

    def answered(self, number: int, reply: GroupResponse) -> None:
        """A reply has come."""
        found = self.session.open.pop(number, None)
        if found is None:
            return
        counts = number == self.session.rebalance_request
        match found.request, reply:
            case Heartbeat(), HeartbeatResult(code=code):
                self.session.heartbeat_answered(code, found.sender)
            case OffsetCommit(), OffsetCommitResult():
                self.commits.answered(number, reply, found.sender)
            case JoinGroup(), JoinGroupResult():
                if counts:
                    self.joiner.joined(reply)
            case SyncGroup(), SyncGroupResult():
                if counts:
                    self.joiner.synced(reply)
            case LeaveGroup(), LeaveGroupResult():
                self._left(reply)
            case DescribeGroups(), DescribeGroupsResult():
                self.joiner.described(number, reply)
            case _:
                self._lose(number, found, "an answer does not fit its request")

    def failed(self, number: int, error: Exception | None) -> None:
        """No reply will come; with an error, to none like it."""
        found = self.session.open.pop(number, None)
        if found is None:
            return
        if error is None:
            self._lose(number, found, "a request failed")
        else:
            self._refuse(number, found, error)

    def tell_given_up(self) -> None:
        """The coordinator was lost: what was under way to it has failed."""
        while self.session.given_up:
            self._give_up(*self.session.given_up.pop(0))

    def _lose(self, number: int, found: SentRequest, why: str) -> None:
        self.session.lose_coordinator(why)
        self._give_up(number, found)

    def _give_up(self, number: int, found: SentRequest) -> None:
        match found.request:
            case JoinGroup() | SyncGroup():
                if number == self.session.rebalance_request:
                    self.joiner.failed()
            case Heartbeat():
                self.session.heartbeat_failed()
            case OffsetCommit():
                self.commits.failed(number)
            case DescribeGroups():
                self.joiner.described(number, None)
            case _:
                self.session.outbox.put(MemberNote("leave not answered"))

    def _refuse(self, number: int, found: SentRequest, error: Exception) -> None:
        match found.request:
            case JoinGroup() | SyncGroup() if number == self.session.rebalance_request:
                self.joiner.refused(error)
            case OffsetCommit():
                self.commits.refused(number, error)
            case _:
                self.session.outbox.put(MemberNote(str(error), warns=True))
                self._give_up(number, found)

    def _left(self, reply: LeaveGroupResult) -> None:
        codes = {reply.code, *(member.code for member in reply.members)} - {Code.NONE}
        for code in sorted(codes):
            self.session.outbox.put(MemberNote(f"leave refused with {format_code(code)}"))
