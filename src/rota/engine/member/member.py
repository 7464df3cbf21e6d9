"""The member's state machine: :meth:`MemberStateMachine.handle` turns events into commands."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.registry import check_unique_names, common_protocol
from rota.engine.member import events
from rota.engine.member.classic import AssignmentManager, Joiner, Procedure, WaitCondition
from rota.engine.member.commits import CommitManager
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
    """A member of a group: events in, commands out. ``consumed`` returns the positions to commit by
    default; ``spread`` adds jitter to retry delays, the only randomness here.
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
                where = "rota.engine.assignors.registry"
                raise InputError(f"{assignor!r} is not a rota.Assignor: see {where}")
        check_unique_names(assignors)
        self._commands = events.CommandBuffer()
        self._session = MemberSession(config, self._commands, self._report_error, spread)
        self._subscription = SubscriptionTracker(
            self._commands, config.rack, matches_internal=not config.exclude_internal
        )
        self._commits = CommitManager(self._session, self._subscription, consumed)
        self._joiner = Joiner(self._session, self._subscription, assignors)
        self._response_router = ResponseRouter(self._session, self._joiner, self._commits)
        protocol = common_protocol(assignors)
        self._assignment_manager = AssignmentManager(
            self._session, self._subscription, self._commits, protocol, self._may_call_listener
        )
        self._in_poll = False
        self._unsubscribing = False
        self._closing: events.CloseRequested | None = None
        self._is_finished = False
        self._procedure: Procedure | None = None  # the procedure that runs
        self._waits_for: WaitCondition = self._may_call_listener
        self._errors: deque[Exception] = deque()  # errors to raise, one in each poll
        self._has_raised = False

    @property
    def state(self) -> MemberState:
        return self._session.state

    @property
    def member_id(self) -> str:
        return self._session.identity.member_id

    @property
    def generation(self) -> int:
        return self._session.identity.generation

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return self._assignment_manager.owned

    @property
    def topics(self) -> tuple[str, ...]:
        return self._subscription.topics

    @property
    def is_unsubscribing(self) -> bool:
        return self._unsubscribing

    @property
    def is_idle(self) -> bool:
        """Whether a poll now would change nothing but the deadline of the next poll."""
        commits, subscription = self._commits, self._subscription
        if self._procedure is not None or self._unsubscribing or self._closing is not None:
            return False
        if commits.is_auto_commit_due or commits.has_callbacks or self._errors:
            return False
        return not subscription.is_subscribed or (
            self.state is MemberState.STABLE
            and self._joiner.received_assignment is None
            and self._session.rejoin_reason is None
            and subscription.rejoin_reason is None
        )

    def handle(self, event: events.MemberEvent, now_ms: int) -> list[events.MemberCommand]:
        self._commands.now = now_ms
        if not self._is_finished:
            self._handle_event(event)
            self._run_pending_work()
        return self._commands.take_commands()

    def _handle_event(self, event: events.MemberEvent) -> None:  # noqa: C901, PLR0912 (one line for each event)
        match event:
            case events.ResponseReceived(request_id, response):
                self._response_router.route_response(request_id, response)
            case events.MemberTimerFired(timer):
                self._handle_timer(timer)
            case events.RequestFailed(request_id, error, why):
                self._session.coordinator_problem = why or self._session.coordinator_problem
                self._response_router.route_failure(request_id, error)
            case events.PollBegan():
                self._begin_poll()
            case events.PollEnded():
                self._end_poll()
            case events.ListenerReturned(call_id, error):
                self._listener_returned(call_id, error)
            case events.AssignmentComputed():
                self._joiner.handle_assignment_computed(event)
            case events.CoordinatorFound():
                self._session.set_coordinator_found()
                self._commits.send_unsent_commits()
            case events.CoordinatorNotFound(error, why):
                self._session.coordinator_problem = why or self._session.coordinator_problem
                if self._session.set_coordinator_not_found():
                    self._commits.fail_unsent_commits(error)
                    if error is not None and self._subscription.is_subscribed:
                        self._session.set_fatal_error(error)
            case events.MetadataUpdated(cluster):
                self._subscription.update_metadata(cluster)
                self._joiner.request_assignment_if_ready()
            case events.Subscribed():
                self._subscribe(event)
            case events.Unsubscribed():
                self._unsubscribe()
            case events.CommitRequested():
                self._commits.start_requested_commit(event)
            case events.RejoinRequested(reason):
                if self.state is MemberState.STABLE:
                    self._session.request_rejoin(reason)
            case events.CloseRequested():
                self._close(event)
            case _:
                raise InputError(f"not an event of a member: {event!r}")

    def _handle_timer(self, timer: events.MemberTimer) -> None:
        due = self._commands.timers.pop(timer, None)
        if due is None:  # it was stopped
            return
        match timer:
            case events.MemberTimer.HEARTBEAT:
                self._session.send_heartbeat(due)
            case events.MemberTimer.SESSION:
                self._session.handle_session_timeout()
            case events.MemberTimer.POLL:
                self._handle_poll_timeout()
            case events.MemberTimer.COMMIT:
                self._commits.is_auto_commit_due = True
            case events.MemberTimer.SYNC_COMMIT:
                self._commits.handle_sync_commit_timer()
            case events.MemberTimer.DEADLINE:
                self._assignment_manager.deadline_passed = True
            case events.MemberTimer.ASSIGN:
                self._joiner.handle_strategy_timeout()
            case events.MemberTimer.RETRY:
                pass  # the procedure that waits for it checks the condition below
            case _:
                assert_never(timer)

    def _begin_poll(self) -> None:
        self._in_poll = True
        self._has_raised = False
        self._session.liveness.enter_poll(self._commands.now)
        if not self._assignment_manager.is_calling:
            self._commands.stop_timer(events.MemberTimer.POLL)
        self._commits.run_callbacks()

    def _end_poll(self) -> None:
        self._in_poll = False
        self._session.liveness.poll_ended_at = self._commands.now
        self._start_poll_timer()
        self._joiner.is_halted = False
        if not self._errors:  # the poll has raised it
            self._session.fatal_error = None

    def _start_poll_timer(self) -> None:
        if self._subscription.is_subscribed and self.state not in INACTIVE_STATES:
            at = self._commands.now + self._session.config.max_poll_interval
            self._commands.start_timer(events.MemberTimer.POLL, at)

    def _handle_poll_timeout(self) -> None:
        """A dynamic member leaves; the session of a static member expires by itself."""
        if self.state in GENERATION_STATES or self.state is MemberState.JOINING:
            self._session.liveness.polled_late = True
            self._session.leave_group("consumer poll timeout has expired.")
            note = events.PollTimeoutNote(self._session.explain_loss(), is_warning=True)
            self._commands.add(note)

    def _listener_returned(self, call_id: int, error: Exception | None) -> None:
        if self._assignment_manager.handle_listener_returned(call_id, error):
            self._commands.stop_timer(events.MemberTimer.POLL)
            if self._in_poll:
                self._session.liveness.enter_poll(self._commands.now)
            else:
                self._start_poll_timer()

    def _subscribe(self, event: events.Subscribed) -> None:
        if not event.topics and event.pattern is None:
            self._unsubscribe()
        elif self.state not in INACTIVE_STATES and self._closing is None:
            self._subscription.subscribe(event.topics, event.pattern)
            self._unsubscribing = False

    def _unsubscribe(self) -> None:
        if self._subscription.is_subscribed and self._closing is None:
            self._unsubscribing = True
            self._cancel_procedure()

    def _close(self, event: events.CloseRequested) -> None:
        if self._closing is None:
            self._closing = event
            self._commits.run_callbacks()
            self._cancel_procedure()

    def _may_call_listener(self) -> bool:
        return self._in_poll or self._unsubscribing or self._closing is not None

    def _start_procedure(self, steps: Procedure) -> bool:
        self._procedure = steps
        self._resume_procedure()
        return True

    def _resume_procedure(self) -> None:
        assert self._procedure is not None
        try:
            self._waits_for = next(self._procedure)
        except StopIteration:
            self._procedure = None
            error = self._assignment_manager.take_error()
            if error is not None:
                self._report_error(error)

    def _cancel_procedure(self) -> None:
        """Cancels the procedure, unless it has called the listener."""
        if self._procedure is not None and not self._assignment_manager.is_calling:
            self._procedure.close()
            self._procedure = None
            self._commands.stop_timer(events.MemberTimer.DEADLINE)

    def _run_pending_work(self) -> None:
        while True:
            self._joiner.drop_outdated_work()
            self._response_router.fail_abandoned_requests()
            self._commits.finish_sync_commits()
            if self._in_poll:
                self._commits.run_callbacks()
            if self._procedure is not None:
                if not self._waits_for():
                    break
                self._resume_procedure()
            elif not self._start_due_procedure():
                break
        if not self._session.coordinator_known and self._wants_coordinator():
            self._session.find_coordinator()
        if self._in_poll and self._procedure is None and not self._has_raised:
            self._raise_next_error()

    def _wants_coordinator(self) -> bool:
        if self._commits.wants_coordinator or self.state in GENERATION_STATES:
            return True
        polls = self._in_poll and self._subscription.is_subscribed
        return polls and self.state not in INACTIVE_STATES and self._closing is None

    def _start_due_procedure(self) -> bool:
        if self._is_finished:
            return False
        if self._closing is not None:
            return self._start_procedure(self._close_procedure(self._closing.deadline))
        if self._unsubscribing:
            return self._start_procedure(self._unsubscribe_procedure())
        if not self._in_poll:
            return False
        if self.state is MemberState.FENCED:
            assignments = self._assignment_manager
            return bool(assignments.owned) and self._start_procedure(assignments.lose_partitions())
        return self._subscription.is_subscribed and self._start_due_procedure_in_poll()

    def _start_due_procedure_in_poll(self) -> bool:
        if self._joiner.received_assignment is not None:
            return self._start_procedure(self._assignment_manager.complete_join(self._joiner))
        reason = self._session.rejoin_reason
        if reason is None:
            reason = self._subscription.rejoin_reason
        if reason is not None:
            return self._join(reason)
        if self._commits.is_auto_commit_due and self.state is MemberState.STABLE:
            self._commits.commit_automatically()
        return False

    def _join(self, reason: str) -> bool:
        session, joiner = self._session, self._joiner
        if joiner.is_pending or joiner.is_halted or session.is_backing_off:
            return False
        if not (session.coordinator_known and self._subscription.is_ready_to_join()):
            return False
        if session.is_join_prepared and not self._assignment_manager.unsubscribed_partitions:
            joiner.send_join(self._assignment_manager.owned, reason)
            return True
        # before it runs: if a listener raises an error, the procedure is not repeated
        session.is_join_prepared = True
        return self._start_procedure(self._assignment_manager.prepare_join())

    def _unsubscribe_procedure(self) -> Procedure:
        yield from self._assignment_manager.prepare_leave(None)
        self._session.leave_group("the consumer unsubscribed from all topics")
        if self._unsubscribing:  # the application may have subscribed again meanwhile
            self._subscription.unsubscribe()
        self._unsubscribing = False
        self._commands.stop_timer(events.MemberTimer.POLL)
        self._commands.stop_timer(events.MemberTimer.COMMIT)
        self._raise_procedure_error()

    def _close_procedure(self, until: int | None) -> Procedure:
        session, assignments = self._session, self._assignment_manager
        if until is not None and self._commits.wants_coordinator:
            # before the member leaves: the coordinator refuses commits of a member that left
            assignments.deadline_passed = False
            self._commands.start_timer(events.MemberTimer.DEADLINE, until)
            yield lambda: assignments.deadline_passed or not self._commits.wants_coordinator
        yield from assignments.prepare_leave(until)
        if until is not None and until <= self._commands.now:
            # their error names the coordinator, not the leave
            self._commits.time_out_unsent_commits()
        number = session.leave_group("the consumer is being closed", target=MemberState.LEFT)
        if until is None:
            self._commits.fail_unsent_commits()
        else:
            self._commands.start_timer(events.MemberTimer.DEADLINE, until)
        self._commits.send_unsent_commits()
        yield (
            lambda: (
                assignments.deadline_passed
                or (number not in session.in_flight and self._commits.is_idle)
            )
        )
        self._commits.finish_all_commits()
        for timer in list(self._commands.timers):
            self._commands.stop_timer(timer)
        self._raise_procedure_error()
        for error in self._errors:
            self._commands.add(events.MemberNote(f"not raised before the close: {error}"))
        self._commands.add(events.FinishClose())
        self._is_finished = True

    def _report_error(self, error: Exception) -> None:
        self._errors.append(error)

    def _raise_next_error(self) -> None:
        """Raises one error in a poll. A fenced member raises Fenced in every poll."""
        if self.state is MemberState.FENCED and not self._errors:
            self._report_error(Fenced(str(self._session.fenced), Code.FENCED_INSTANCE_ID))
        if self._errors:
            self._has_raised = True
            self._commands.add(events.RaiseError(self._errors.popleft()))

    def _raise_procedure_error(self) -> None:
        """Raises from close or unsubscribe, which wait for the procedure."""
        error = self._assignment_manager.take_error()
        if error is not None:
            self._commands.add(events.RaiseError(error))

    def check_invariants(self) -> None:
        assignments, timers = self._assignment_manager, self._commands.timers
        self._session.check_invariants()
        self._joiner.check_invariants()
        self._commits.check_invariants()
        polls = self._in_poll and not assignments.is_calling
        assert not polls or events.MemberTimer.POLL not in timers, "the poll timer runs in a poll"
        assert not assignments.is_calling or self._procedure is not None
        assert events.MemberTimer.DEADLINE not in timers or self._procedure is not None
        assert (self.state is MemberState.FENCED) <= (self._session.fenced is not None)
        assert self._is_finished <= (self.state is MemberState.LEFT and not timers)
        assert len(set(assignments.owned)) == len(assignments.owned)
        if self.state in GENERATION_STATES or self.state is MemberState.JOINING:
            joined = set(self._subscription.joined_topics or ())
            stray = [one for one in assignments.owned if one.topic not in joined]
            assert not stray, f"owned, but not subscribed to: {stray}"


@dataclass(frozen=True, slots=True)
class ResponseRouter:
    """Passes responses and failures to the part that sent the request; drops repeated ones."""

    session: MemberSession
    joiner: Joiner
    commits: CommitManager

    def route_response(self, number: int, response: GroupResponse) -> None:
        sent = self.session.in_flight.pop(number, None)
        if sent is None:
            return
        counts = number == self.session.rebalance_request_id
        match sent.request, response:
            case Heartbeat(), HeartbeatResult(code=code):
                self.session.handle_heartbeat_response(code, sent.sender)
            case OffsetCommit(), OffsetCommitResult():
                self.commits.handle_response(number, response, sent.sender)
            case JoinGroup(), JoinGroupResult():
                if counts:
                    self.joiner.handle_join_response(response)
            case SyncGroup(), SyncGroupResult():
                if counts:
                    self.joiner.handle_sync_response(response)
            case LeaveGroup(), LeaveGroupResult():
                self._handle_leave_response(response)
            case DescribeGroups(), DescribeGroupsResult():
                self.joiner.handle_describe_response(number, response)
            case _:
                self._lose_coordinator(number, sent, "an answer does not fit its request")

    def route_failure(self, number: int, error: Exception | None) -> None:
        """No response will come. With an error, a retry would fail too."""
        sent = self.session.in_flight.pop(number, None)
        if sent is None:
            return
        if error is None:
            self._lose_coordinator(number, sent, "a request failed")
            return
        match sent.request:
            case JoinGroup() | SyncGroup() if number == self.session.rebalance_request_id:
                self.joiner.handle_request_refused(error)
            case OffsetCommit():
                self.commits.end_request(number, error)
            case _:
                self.session.commands.add(events.MemberNote(str(error), is_warning=True))
                self._fail_request(number, sent)

    def fail_abandoned_requests(self) -> None:
        """Fails the requests that were in flight to a lost coordinator."""
        while self.session.abandoned_requests:
            self._fail_request(*self.session.abandoned_requests.pop(0))

    def _lose_coordinator(self, number: int, sent: SentRequest, why: str) -> None:
        self.session.lose_coordinator(why)
        self._fail_request(number, sent)

    def _fail_request(self, number: int, sent: SentRequest) -> None:
        match sent.request:
            case JoinGroup() | SyncGroup():
                if number == self.session.rebalance_request_id:
                    self.joiner.handle_no_response()
            case Heartbeat():
                self.session.retry_heartbeat()
            case OffsetCommit():
                self.commits.handle_no_response(number)
            case DescribeGroups():
                self.joiner.handle_describe_response(number, None)
            case _:
                self.session.commands.add(events.MemberNote("leave not answered"))

    def _handle_leave_response(self, response: LeaveGroupResult) -> None:
        for code in sorted({response.code, *(member.code for member in response.members)}):
            if code:
                note = events.MemberNote(f"leave refused with {format_code(code)}")
                self.session.commands.add(note)
