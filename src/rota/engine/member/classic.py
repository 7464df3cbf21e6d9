"""JoinGroup and SyncGroup of a member, the leader's assignment, and changes of its partitions.

:class:`Joiner` sends the requests and handles their responses. If the member leads,
:func:`compute_assignment` turns the subscriptions of all members into assignments.
:class:`AssignmentManager` runs commits, listener calls and changes of the assignment in Kafka's
order. Its procedures are generators: where one must wait (for a commit, the listener, a poll), it
yields a condition, and continues when an event has made it true. Only one runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rota.engine.assignors.interface import Assignor, assign_checked
from rota.engine.formats import consumer_protocol
from rota.engine.member import events
from rota.engine.member.commits import CommitKind, CommitManager, PendingCommit
from rota.engine.member.state import (
    NO_COORDINATOR_CODES,
    REBALANCE_FAILED,
    MemberIdentity,
    MemberSession,
    MemberState,
    describe_failure,
    format_code,
    make_fatal_error,
)
from rota.engine.member.subscription import SubscriptionTracker
from rota.engine.model.member import (
    NO_GENERATION,
    Assignment,
    GroupAssignment,
    GroupSubscription,
    RebalanceProtocol,
    Subscription,
)
from rota.engine.model.request import (
    CONSUMER_PROTOCOL_TYPE,
    DescribeGroups,
    JoinGroup,
    JoinGroupProtocol,
    SyncGroup,
    truncate_reason,
)
from rota.engine.model.response import (
    DescribedGroup,
    DescribeGroupsResult,
    JoinedMember,
    JoinGroupResult,
    SyncGroupResult,
)
from rota.engine.model.text import count_noun, format_seconds, list_first_names
from rota.engine.model.topic import Partitions, TopicPartition
from rota.errors import (
    Code,
    FormatError,
    InconsistentProtocol,
    InputError,
    RetriableCommitFailed,
    RotaError,
    StrategyFailed,
)


@dataclass(slots=True)
class LeaderAssignment:
    """The leader's assignment: it waits for metadata of the group's topics, or is computed."""

    assignor: Assignor
    group: GroupSubscription
    notes: tuple[str, ...]
    skips: bool
    since: int  # when the group began to wait for the assignment
    assignment_id: int | None = None  # None while the leader waits for metadata


class Joiner:
    def __init__(
        self,
        session: MemberSession,
        subscription: SubscriptionTracker,
        assignors: Sequence[Assignor],
    ) -> None:
        self.session = session
        self.subscription = subscription
        self.assignors = {assignor.name: assignor for assignor in assignors}
        #: The assignment that a poll will put into effect.
        self.received_assignment: bytes | None = None
        self.is_halted = False  # a fatal error: no retry before a poll has raised it
        self._leader_assignment: LeaderAssignment | None = None
        #: The request for the group's strategy, if this member does not support it.
        self._describe_request_id: int | None = None

    @property
    def is_pending(self) -> bool:
        """Whether JoinGroup or SyncGroup is in flight, or about to be sent."""
        requests = (self._describe_request_id, self.session.rebalance_request_id)
        return self._leader_assignment is not None or requests != (None, None)

    def send_join(self, owned: Sequence[TopicPartition], reason: str) -> None:
        session, config = self.session, self.session.config
        try:
            protocols = self._protocols(owned)
        except StrategyFailed as error:
            self._stop_with_error(error)
            return
        self.subscription.record_join()
        self.subscription.stop_leading()
        session.transition_to(MemberState.JOINING)
        session.request_rejoin(reason)
        session.rebalance_request_id = session.send(
            JoinGroup(
                group=config.group,
                member_id=session.identity.member_id,
                group_instance_id=config.group_instance_id,
                protocols=protocols,
                session_timeout=config.session_timeout,
                rebalance_timeout=config.max_poll_interval,
                client_id=config.client_id,
                client_host="",
                reason=truncate_reason(reason),
            )
        )

    def _protocols(self, owned: Sequence[TopicPartition]) -> tuple[JoinGroupProtocol, ...]:
        topics, generation = self.subscription.topics, self.session.identity.generation
        partitions = Partitions.of(owned)
        protocols = []
        for name, assignor in self.assignors.items():
            try:
                subscription = Subscription(
                    topics=topics,
                    user_data=assignor.subscription_user_data(topics),
                    owned=partitions,
                    generation=None if generation == NO_GENERATION else generation,
                    rack=self.session.config.rack,
                )
                metadata = consumer_protocol.encode_subscription(subscription)
                protocols.append(JoinGroupProtocol(name, metadata))
            except Exception as error:
                raise StrategyFailed(f"strategy {name!r} gave no user data: {error!r}") from error
        return tuple(protocols)

    def handle_join_response(self, response: JoinGroupResult) -> None:
        session, code = self.session, response.code
        session.rebalance_request_id = None
        match code:
            case Code.NONE:
                self._enter_generation(response)
            case Code.MEMBER_ID_REQUIRED if response.member_id:
                # KIP-394: the id comes first, so that a lost response leaves no dead member
                session.identity = MemberIdentity(member_id=response.member_id)
                reason = f"need to re-join with the given member-id: {response.member_id}"
                session.request_rejoin(reason)
            case Code.INCONSISTENT_GROUP_PROTOCOL:
                self._request_description()
            case _:
                self._handle_refusal("join", code)

    def _enter_generation(self, response: JoinGroupResult) -> None:
        if not self._check_protocol_type(response):
            return
        if response.generation < 0 or not response.member_id:
            error = self._make_error("join without an id or generation", Code.UNKNOWN)
            self._stop_with_error(error)
            return
        session = self.session
        session.reset_backoff()
        protocol = response.protocol or ""
        session.enter_generation(MemberIdentity(response.generation, response.member_id, protocol))
        leads = response.leader == response.member_id
        text = (
            f"joined generation {response.generation} under {response.protocol!r} as "
            f"{response.member_id}"
        )
        text += f", leading {count_noun(len(response.members), 'member')}" if leads else ""
        text += f" ({session.rejoin_reason})" if session.rejoin_reason else ""
        session.commands.add(events.MemberNote(text))
        assignor = self.assignors.get(protocol)
        if assignor is None:
            error = self._make_protocol_error(f"it elected {response.protocol!r}")
            self.leave_with_error(error, "an unknown strategy was elected")
        elif leads:
            self._start_leading(assignor, response)
        else:
            self._send_sync(())

    def _start_leading(self, assignor: Assignor, response: JoinGroupResult) -> None:
        try:
            group, notes = decode_subscriptions(response.members)
        except RotaError as error:
            self.leave_with_error(error, "the group could not be read")
            return
        self.subscription.start_leading(topic for each in group.values() for topic in each.topics)
        now = self.session.commands.now
        skips = response.skip_assignment
        self._leader_assignment = LeaderAssignment(assignor, group, tuple(notes), skips, now)
        self.request_assignment_if_ready()

    def request_assignment_if_ready(self) -> None:
        """Starts the strategy for the whole group, once the metadata of its topics is known."""
        task, commands = self._leader_assignment, self.session.commands
        if (
            task is None
            or task.assignment_id is not None
            or not self.subscription.is_metadata_fresh
        ):
            return
        # metadata that changes while the strategy runs causes the next rebalance
        self.subscription.record_assignment()
        if task.skips:
            # KIP-814: a static leader returned; the assignment stays, but it watches the metadata
            self._leader_assignment = None
            self._send_sync(())
            return
        number = task.assignment_id = commands.next_id()
        due = task.since + self.session.config.max_poll_interval
        commands.start_timer(events.MemberTimer.ASSIGN, due)
        cluster = self.subscription.cluster
        commands.add(
            events.ComputeAssignment(number, task.assignor, cluster, task.group, task.notes)
        )

    def handle_assignment_computed(self, event: events.AssignmentComputed) -> None:
        """Sends SyncGroup. An assignment for a generation that is over is dropped."""
        task = self._leader_assignment
        if task is None or task.assignment_id != event.assignment_id:
            return
        self._stop_assignment()
        if event.error is not None:
            self.leave_with_error(event.error, "the leader's strategy failed")
            return
        self.session.commands.add(*map(events.MemberNote, event.notes))
        self._send_sync(tuple(sorted(event.assignments.items())))

    def handle_strategy_timeout(self) -> None:
        """Leaves the group, because the coordinator removes a leader that takes longer."""
        task = self._leader_assignment
        if task is None:
            return
        self._stop_assignment()
        config = self.session.config
        error = StrategyFailed(
            f"group {config.group!r}: strategy {task.assignor.name!r} has made no assignment for "
            f"{format_seconds(self.session.commands.now - task.since)}, and the group waits no "
            f"longer than max.poll.interval.ms = {config.max_poll_interval}. The strategy must be "
            "faster, or max.poll.interval.ms higher"
        )
        self.leave_with_error(error, "the leader's strategy takes too long")

    def _stop_assignment(self) -> None:
        self._leader_assignment = None
        self.session.commands.stop_timer(events.MemberTimer.ASSIGN)

    def leave_with_error(self, error: Exception, reason: str) -> None:
        """Leaves the group, so that others need not wait, and reports the error."""
        self.session.leave_group(reason, even_static=True)
        self.drop_outdated_work()
        self._stop_with_error(error)

    def drop_outdated_work(self) -> None:
        if self.session.state is not MemberState.SYNCING:
            self._abandon_assignment()
        if self.session.state is not MemberState.JOINING:
            self._describe_request_id = None
        if self.session.state is not MemberState.STABLE:
            self.received_assignment = None

    def _abandon_assignment(self) -> None:
        task, session = self._leader_assignment, self.session
        self._stop_assignment()
        if task is None or task.assignment_id is None:
            return
        time = format_seconds(session.commands.now - task.since)
        text = f"strategy {task.assignor.name!r} ran for {time}, and its result was not used"
        loss = session.loss
        why = session.rejoin_reason if loss is None else loss.reason
        against_will = loss is not None and not loss.left
        session.commands.add(events.MemberNote(f"{text}: {why}", is_warning=against_will))

    def _send_sync(self, assignments: tuple[tuple[str, bytes], ...]) -> None:
        session = self.session
        if not session.coordinator_known:
            self._try_later(Code.COORDINATOR_NOT_AVAILABLE)
            return
        generation, member_id, protocol = session.identity
        session.rebalance_request_id = session.send(
            SyncGroup(
                group=session.config.group,
                generation=generation,
                member_id=member_id,
                group_instance_id=session.config.group_instance_id,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocol=protocol,
                assignments=assignments,
            )
        )

    def handle_sync_response(self, response: SyncGroupResult) -> None:
        session = self.session
        session.rebalance_request_id = None
        if response.code:
            self._handle_refusal("sync", response.code)
        elif not self._check_protocol_type(response):
            return
        elif response.protocol not in {None, session.identity.protocol}:
            self._stop_with_error(self._make_protocol_error(f"it elected {response.protocol!r}"))
        else:
            session.reset_backoff()
            session.rejoin_reason = None
            self.received_assignment = response.assignment
            session.transition_to(MemberState.STABLE)

    def _request_description(self) -> None:
        """Asks for the group's strategy, which the error should name."""
        self.session.request_rejoin(self._describe_failure(Code.INCONSISTENT_GROUP_PROTOCOL))
        request = DescribeGroups(groups=(self.session.config.group,))
        self._describe_request_id = self.session.send(request)

    def handle_describe_response(self, number: int, response: DescribeGroupsResult | None) -> None:
        if number != self._describe_request_id:
            return
        self._describe_request_id = None
        found = response.groups[0] if response is not None and response.groups else None
        why = "no strategy is common to this member and the group"
        self._stop_with_error(self._make_protocol_error(why, _describe_group_strategy(found)))

    def _handle_refusal(self, request: str, code: int) -> None:
        """Handles an error code of a JoinGroup ("join") or SyncGroup ("sync") response."""
        session = self.session
        match code:
            case Code.REBALANCE_IN_PROGRESS:
                session.request_rejoin(self._describe_failure(code))
            case Code.UNKNOWN_MEMBER_ID:
                session.reset_generation(self._describe_failure(code))
            case Code.ILLEGAL_GENERATION if request == "sync":
                session.reset_generation(self._describe_failure(code), keep_id=True)
            case _ if code in {Code.COORDINATOR_LOAD_IN_PROGRESS, *NO_COORDINATOR_CODES}:
                self._try_later(code)
            case Code.FENCED_INSTANCE_ID:
                session.fence(f"{request} refused")
            case _:
                self._stop_with_error(self._make_error(request, code))

    def handle_request_refused(self, error: Exception) -> None:
        """JoinGroup or SyncGroup cannot be sent, now or later."""
        self.session.rebalance_request_id = None
        self._stop_with_error(error)

    def handle_no_response(self) -> None:
        """JoinGroup or SyncGroup gets no response, and is retried."""
        self.session.rebalance_request_id = None
        self.session.request_rejoin(f"{REBALANCE_FAILED}DisconnectException")
        self.session.back_off()

    def _describe_failure(self, code: int) -> str:
        return describe_failure(code, is_sync=self.session.state is MemberState.SYNCING)

    def _try_later(self, code: int) -> None:
        session, why = self.session, self._describe_failure(code)
        if code in NO_COORDINATOR_CODES:
            session.lose_coordinator(why)
        session.request_rejoin(why)
        session.back_off()

    def _stop_with_error(self, error: Exception) -> None:
        """The next poll raises the error; the poll after it joins again."""
        self.is_halted = True
        code = getattr(error, "code", None)
        name = f"{REBALANCE_FAILED}{type(error).__name__}"
        self.session.request_rejoin(name if code is None else self._describe_failure(code))
        self.session.report_error(error)

    def _check_protocol_type(self, response: JoinGroupResult | SyncGroupResult) -> bool:
        fits = response.protocol_type in {None, CONSUMER_PROTOCOL_TYPE}
        if not fits:
            why = f"its protocol type is {response.protocol_type!r}"
            self._stop_with_error(self._make_protocol_error(why))
        return fits

    def _make_error(self, what: str, code: int) -> RotaError:
        if code == Code.INCONSISTENT_GROUP_PROTOCOL:
            return self._make_protocol_error(f"{what} refused with {format_code(code)}")
        return make_fatal_error(self.session.config, what, code)

    def _make_protocol_error(self, why: str, others: str = "") -> InconsistentProtocol:
        return InconsistentProtocol(
            f"group {self.session.config.group!r}: {why}; this member's strategies "
            f"(partition.assignment.strategy) are {', '.join(self.assignors)}{others}",
            Code.INCONSISTENT_GROUP_PROTOCOL,
        )

    def check_invariants(self) -> None:
        session, task = self.session, self._leader_assignment
        state, description = session.state, self._describe_request_id
        assert task is None or state is MemberState.SYNCING
        assert self.received_assignment is None or state is MemberState.STABLE
        assert task is None or session.rebalance_request_id is None
        runs = task is not None and task.assignment_id is not None
        limited = events.MemberTimer.ASSIGN in session.commands.timers
        assert runs == limited, "a strategy has a limit"
        assert description is None or description in session.in_flight
        done = state not in {MemberState.JOINING, MemberState.SYNCING} or self.is_pending
        assert done or session.rejoin_reason is not None, "neither under way nor due"


def _describe_group_strategy(group: DescribedGroup | None) -> str:
    """Names the elected strategy; a coordinator returns it only while the group is stable."""
    if group is None:
        return "; the broker did not say what the group's are"
    if group.protocol_type not in {"", CONSUMER_PROTOCOL_TYPE}:
        return f"; the group is not one of consumers, but of type {group.protocol_type!r}"
    if not group.protocol:
        state = format_code(group.code) if group.code else f"it is {group.state}"
        return f"; the broker does not say what the group's are ({state})"
    clients = sorted({member.client_id for member in group.members})
    named = ", ".join(clients[:3]) + (", ..." if len(clients) > 3 else "")
    count = count_noun(len(group.members), "member")
    return f"; the group's is {group.protocol}, of {count} ({named})"


def compute_assignment(command: events.ComputeAssignment) -> events.AssignmentComputed:
    """Runs the strategy, and checks and encodes its result. The event has its error, if any."""
    try:
        checked = assign_checked(command.assignor, command.cluster, command.group)
        assignments = encode_assignments(checked.result)
    except RotaError as error:
        return events.AssignmentComputed(command.assignment_id, error=error)
    notes = (*command.notes, *checked.notes)
    return events.AssignmentComputed(command.assignment_id, assignments, notes)


def decode_subscriptions(members: Iterable[JoinedMember]) -> tuple[GroupSubscription, list[str]]:
    """A member that cannot be decoded gets no subscription, and a note: its topics are unknown."""
    listed = list(members)
    decoded = consumer_protocol.decode_subscriptions(
        [(member.metadata, member.group_instance_id) for member in listed]
    )
    group: dict[str, Subscription] = {}
    notes: list[str] = []
    for member, read in zip(listed, decoded, strict=True):
        name = member.member_id
        if name in group:
            raise InputError(f"member {name!r} is listed twice")
        if isinstance(read, FormatError):
            notes.append(f"member {name!r}: unreadable, so subscribed to nothing: {read}")
            group[name] = Subscription(topics=(), group_instance_id=member.group_instance_id)
        else:
            group[name] = read
    return GroupSubscription(group), sorted(notes)


def encode_assignments(assigned: GroupAssignment) -> dict[str, bytes]:
    if assigned.placement is not None:
        return consumer_protocol.encode_assignments(assigned.placement)
    encode = consumer_protocol.encode_assignment
    return {member: encode(assignment) for member, assignment in assigned.items()}


WaitCondition = Callable[[], bool]

Procedure = Generator[WaitCondition, None, None]


class AssignmentManager:
    def __init__(
        self,
        session: MemberSession,
        subscription: SubscriptionTracker,
        commits: CommitManager,
        protocol: RebalanceProtocol,
        may_call: WaitCondition,
    ) -> None:
        self.session = session
        self.commands = session.commands
        self.subscription = subscription
        self.commits = commits
        self.protocol = protocol
        #: Listeners run only while the application polls, unsubscribes or closes.
        self.may_call_listener = may_call
        self.owned: tuple[TopicPartition, ...] = ()
        self.deadline_passed = False  # the deadline of the current wait has passed
        self._listener_call_id: int | None = None
        self._error: Exception | None = None  # the first error of a procedure, raised at its end

    @property
    def unsubscribed_partitions(self) -> tuple[TopicPartition, ...]:
        """Owned partitions of topics that are no longer subscribed."""
        topics = set(self.subscription.topics)
        return tuple(one for one in self.owned if one.topic not in topics)

    def prepare_join(self) -> Procedure:
        """Commits, then revokes what the rebalance protocol does not allow to keep."""
        eager = self.protocol is RebalanceProtocol.EAGER
        going = self.owned if eager else ()
        yield from self._commit_before_revocation(going, self._commit_deadline())
        yield self.may_call_listener
        if self.session.identity.is_lost:
            if self.owned:
                yield from self._release_partitions(events.ListenerMethod.LOST, self.owned)
        elif eager:
            # also without partitions to revoke: Kafka calls listeners in every rebalance
            yield from self._release_partitions(events.ListenerMethod.REVOKED, self.owned)
        elif gone := self.unsubscribed_partitions:
            yield from self._release_partitions(events.ListenerMethod.REVOKED, gone)

    def complete_join(self, joiner: Joiner) -> Procedure:
        """Revokes removed partitions, then takes the new assignment and calls the listener."""
        data, joiner.received_assignment = joiner.received_assignment, None
        assert data is not None
        self.session.is_join_prepared = False
        try:
            given = consumer_protocol.decode_assignment(data)
        except FormatError as error:
            joiner.leave_with_error(error, "the assignment could not be read")
            return
        new = tuple(sorted(given.partitions))
        if not self.subscription.allows_assignment(new):
            reason = "received assignment does not match the current subscription"
            self.session.request_rejoin(reason)
            return
        me = self.session.identity
        held = set(self.owned)
        added = tuple(one for one in new if one not in held)
        if self.protocol is RebalanceProtocol.COOPERATIVE:
            yield from self._revoke_removed_partitions(new)
            if self.session.identity != me or not self.subscription.allows_assignment(new):
                return  # lost or unsubscribed meanwhile: the next join corrects the assignment
        self.subscription.add_assigned_topics(new)
        self._call_on_assignment(joiner.assignors, given, me)
        self.commits.restart_auto_commit()
        text = f"assigned {_format_partitions(new)}"
        if len(added) < len(new):  # the member kept others
            names = list_first_names(list(map(str, added)))
            text += f" (new: {names})" if added else " (none of them new)"
        self.commands.add(events.MemberNote(text))
        self._set_assignment(new)
        yield from self._call_listener(events.ListenerMethod.ASSIGNED, added)

    def _revoke_removed_partitions(self, new: Iterable[TopicPartition]) -> Procedure:
        kept = set(new)
        taken = tuple(one for one in self.owned if one not in kept)
        if not taken:
            return
        self.session.request_rejoin("need to revoke partitions and re-join")
        me = self.session.identity
        yield from self._commit_before_revocation(taken, self._commit_deadline())
        yield self.may_call_listener
        if self.session.identity == me:
            yield from self._release_partitions(events.ListenerMethod.REVOKED, taken)

    def lose_partitions(self) -> Procedure:
        yield self.may_call_listener
        yield from self._release_partitions(events.ListenerMethod.LOST, self.owned)

    def prepare_leave(self, until: int | None) -> Procedure:
        """Commits and revokes all partitions, before the member leaves."""
        self.deadline_passed = False
        yield from self._commit_before_revocation(self.owned, until)
        if self.owned:
            rebalancing = self.session.state in {MemberState.JOINING, MemberState.SYNCING}
            lost = self.session.identity.is_lost or rebalancing
            method = events.ListenerMethod.LOST if lost else events.ListenerMethod.REVOKED
            yield from self._release_partitions(method, self.owned)

    def _commit_before_revocation(
        self, going: tuple[TopicPartition, ...], until: int | None
    ) -> Procedure:
        """The automatic commit before a revocation: tried until a deadline, if there is one."""
        session = self.session
        offsets = self.commits.get_consumed_offsets() if session.config.auto_commit else {}
        if not offsets or session.state is not MemberState.STABLE:
            return
        if not session.coordinator_known and until is None:
            why = session.coordinator_problem or "the coordinator is not known just now"
            text = f"no commit before the revocation: {why}"
            self.commands.add(events.MemberNote(text, is_warning=True))
            return
        if going:
            self.commands.add(events.MarkPendingRevocation(going))
        self.deadline_passed = False
        if until is not None:
            self.commands.start_timer(events.MemberTimer.DEADLINE, until)
        while True:
            commit = self.commits.start_commit(CommitKind.REVOCATION, offsets)
            yield partial(self._is_over, commit)
            may_pass = isinstance(commit.error, RetriableCommitFailed)
            if not may_pass or until is None or self.deadline_passed:
                break
            session.back_off()
            yield lambda: not session.is_backing_off or self.deadline_passed
        self.commits.time_out_commits(commit)  # else the revocation would make it fail
        self.commands.stop_timer(events.MemberTimer.DEADLINE)

    def _is_over(self, commit: PendingCommit) -> bool:
        return commit.is_done or self.deadline_passed

    def _commit_deadline(self) -> int:
        """The coordinator removes a member that has not joined again by then."""
        return self.commands.now + self.session.config.max_poll_interval

    def _release_partitions(
        self, call: events.ListenerMethod, partitions: tuple[TopicPartition, ...]
    ) -> Procedure:
        """Calls the listener while the member still owns the partitions."""
        yield from self._call_listener(call, partitions)
        gone = set(partitions)
        if gone:
            text = f"{call.name.lower()} {_format_partitions(partitions)}"
            self.commands.add(events.MemberNote(text))
            self._set_assignment(tuple(one for one in self.owned if one not in gone))

    def _call_listener(
        self, call: events.ListenerMethod, partitions: tuple[TopicPartition, ...]
    ) -> Procedure:
        self._listener_call_id = self.commands.next_id()
        self.commands.add(events.CallListener(self._listener_call_id, call, partitions))
        # a listener may run for max.poll.interval.ms
        due = self.commands.now + self.session.config.max_poll_interval
        self.commands.start_timer(events.MemberTimer.POLL, due)
        self.session.liveness.poll_ended_at = self.commands.now
        yield lambda: self._listener_call_id is None

    def _set_assignment(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.owned = partitions
        self.commands.add(events.SetAssignment(partitions, self.session.identity.generation))

    def _call_on_assignment(
        self, assignors: Mapping[str, Assignor], given: Assignment, me: MemberIdentity
    ) -> None:
        assignor = assignors[me.protocol or ""]
        try:
            assignor.on_assignment(given, me.generation)
        except Exception as error:  # noqa: BLE001 (a custom strategy may raise anything)
            failed = StrategyFailed(f"strategy {assignor.name!r}: on_assignment raised {error!r}")
            failed.__cause__ = error
            self._error = self._error or failed

    @property
    def is_calling(self) -> bool:
        return self._listener_call_id is not None

    def handle_listener_returned(self, call_id: int, error: Exception | None) -> bool:
        if call_id != self._listener_call_id:
            return False
        self._listener_call_id = None
        self._error = self._error or error
        return True

    def take_error(self) -> Exception | None:
        error, self._error = self._error, None
        return error


def _format_partitions(partitions: Sequence[TopicPartition]) -> str:
    if not partitions:
        return "no partitions"
    names = list_first_names(list(map(str, partitions)))
    return f"{count_noun(len(partitions), 'partition')}: {names}"
