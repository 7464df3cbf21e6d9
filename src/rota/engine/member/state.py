"""The states of a member, the legal transitions, and the member's session with its coordinator.

A member is **unjoined** until the application polls. Inside a poll it commits, gives up the
partitions that the rebalance protocol asks for, and sends JoinGroup: it is **joining**. With the
response it is **syncing**, and sends SyncGroup; a leader waits for its strategy first. The response
carries the member's assignment: it is **stable**. Heartbeats run in **syncing** and **stable**,
whatever the application and the strategy do.

When a heartbeat reports a rebalance, or the member itself finds a reason to rejoin, the next poll
takes it from **stable** to **joining**. A JoinGroup or SyncGroup that fails temporarily is retried;
meanwhile the member stays **joining** or **syncing**.

When the coordinator no longer knows the member or its generation, or the application has not polled
for too long, the member is **unjoined** again: its partitions are lost, its listener is called in
the next poll, and the next join starts without a generation.

**fenced** (another process uses its group.instance.id) and **left** (the application has closed)
have no way back. A fenced member can only be closed.

``MEMBER_TRANSITIONS`` lists all legal transitions; :meth:`MemberSession.transition_to` is the only
place that changes the state. What each call, response and timer does in each state is a table of
``docs/state_outcomes.py``. A test drives a member into every cell, and docs/architecture.md shows
both tables.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rota.engine.member import events
from rota.engine.model.config import MemberConfig
from rota.engine.model.member import NO_GENERATION
from rota.engine.model.request import (
    NO_MEMBER_ID,
    GroupRequest,
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    truncate_reason,
)
from rota.engine.model.text import format_seconds
from rota.errors import (
    AuthorizationFailed,
    Code,
    CommitFailed,
    Fenced,
    GroupError,
    RebalanceInProgress,
    RotaError,
)


class MemberState(enum.Enum):
    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    FENCED = "fenced"
    LEFT = "left"


_UNJOINED, _JOINING, _SYNCING, _STABLE, _FENCED, _LEFT = MemberState

MEMBER_TRANSITIONS: Mapping[tuple[MemberState, MemberState], str] = {
    (_UNJOINED, _JOINING): "JoinGroup is sent",
    (_UNJOINED, _LEFT): "the application closes",
    (_JOINING, _SYNCING): "JoinGroup succeeds",
    (_JOINING, _UNJOINED): "the member is unknown, polls too late or unsubscribes",
    (_JOINING, _FENCED): "another process uses the static id",
    (_JOINING, _LEFT): "the application closes",
    (_SYNCING, _STABLE): "SyncGroup succeeds",
    (_SYNCING, _JOINING): "another rebalance began, or SyncGroup failed: JoinGroup is sent",
    (_SYNCING, _UNJOINED): (
        "the member or its generation is unknown, its strategy failed or is late, it polls too "
        "late or unsubscribes"
    ),
    (_SYNCING, _FENCED): "another process uses the static id",
    (_SYNCING, _LEFT): "the application closes",
    (_STABLE, _JOINING): "a rebalance began: JoinGroup is sent",
    (_STABLE, _UNJOINED): (
        "the member or its generation is unknown, its assignment cannot be read, it polls too late "
        "or unsubscribes"
    ),
    (_STABLE, _FENCED): "another process uses the static id",
    (_STABLE, _LEFT): "the application closes",
    (_FENCED, _LEFT): "the application closes",
}


#: The states in which the member belongs to a generation and sends heartbeats.
GENERATION_STATES = frozenset({MemberState.SYNCING, MemberState.STABLE})
#: The states in which the member sends nothing more to the group.
INACTIVE_STATES = frozenset({MemberState.FENCED, MemberState.LEFT})
CODE_NAMES = {int(code): code.name for code in Code}
#: The broker is not the coordinator, or no longer: find it again.
NO_COORDINATOR_CODES = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})


def format_code(code: int) -> str:
    """Formats a code as ``25 UNKNOWN_MEMBER_ID``; an unknown code as its number alone."""
    return f"{int(code)} {CODE_NAMES[code]}" if code in CODE_NAMES else str(int(code))


JOIN_AFTER_LEAVE = "consumer pro-actively leaving the group"  # Java's, after any LeaveGroup
#: Prefix of the reason with which Java joins again after a failed JoinGroup or SyncGroup.
REBALANCE_FAILED = "rebalance failed due to "
#: For any other code of a JoinGroup or SyncGroup response Java raises a plain KafkaException.
_JAVA_EXCEPTION_CODES = NO_COORDINATOR_CODES | {
    Code.FENCED_INSTANCE_ID,
    Code.GROUP_AUTHORIZATION_FAILED,
    Code.REBALANCE_IN_PROGRESS,
    Code.UNKNOWN_MEMBER_ID,
}
_JAVA_SYNC_EXCEPTION_CODES = _JAVA_EXCEPTION_CODES | {Code.ILLEGAL_GENERATION}
_JAVA_JOIN_EXCEPTION_CODES = _JAVA_EXCEPTION_CODES | {
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.GROUP_MAX_SIZE_REACHED,
    Code.INCONSISTENT_GROUP_PROTOCOL,
    Code.INVALID_GROUP_ID,
    Code.INVALID_SESSION_TIMEOUT,
    Code.UNSUPPORTED_VERSION,
}


def describe_failure(code: int, *, is_sync: bool) -> str:
    """Java's reason for a rejoin: in ``joinGroupIfNeeded`` the exception replaces the handler's."""
    known = _JAVA_SYNC_EXCEPTION_CODES if is_sync else _JAVA_JOIN_EXCEPTION_CODES
    words = CODE_NAMES[code].removesuffix("_FAILED") if code in known else "KAFKA"
    return f"{REBALANCE_FAILED}{''.join(map(str.capitalize, words.split('_')))}Exception"


def describe_refusal(api: str, code: int) -> str:
    """Returns Java's reason for a rejoin after an error code for another request."""
    return f"encountered {CODE_NAMES.get(code, str(code))} from {api} response"


def make_fatal_error(config: MemberConfig, what: str, code: int) -> RotaError:
    """Returns the error for a code that a retry would not change."""
    text = f"group {config.group!r}: {what} refused with {format_code(code)}"
    match code:
        case Code.GROUP_AUTHORIZATION_FAILED:
            text += ": this user has no permission to read as this group"
            return AuthorizationFailed(Code.GROUP_AUTHORIZATION_FAILED, text)
        case Code.INVALID_SESSION_TIMEOUT:
            text += (
                f": session.timeout.ms = {config.session_timeout} is not between the broker's "
                "group.min.session.timeout.ms and group.max.session.timeout.ms"
            )
        case Code.GROUP_MAX_SIZE_REACHED:
            text += ": it has as many members as the broker's group.max.size allows"
        case Code.UNSUPPORTED_VERSION if config.group_instance_id is not None:
            text += ": the broker is too old for group.instance.id"
        case _:
            pass
    return GroupError(text, code)


@dataclass(slots=True)
class Liveness:
    """When the application last polled, and when the coordinator last responded."""

    poll_ended_at: int | None = None  # None: the application is in a poll, or never polled
    last_response_at: int = 0
    polled_late: bool = False  # the application did not poll in time; reset by the next generation
    late_poll_gap: int = 0  # the time between two polls, if the second one was late

    def enter_poll(self, now: int) -> None:
        if self.poll_ended_at is not None and self.polled_late and not self.late_poll_gap:
            self.late_poll_gap = now - self.poll_ended_at
        self.poll_ended_at = None

    def time_since_poll(self, now: int) -> int:
        """Returns the time since the last poll; after a late poll, the time before that poll."""
        return self.late_poll_gap or (0 if self.poll_ended_at is None else now - self.poll_ended_at)


@dataclass(frozen=True, slots=True)
class GenerationLoss:
    reason: str
    generation: int
    silent_for: int  # the time since the last response to a heartbeat
    left: bool  # the member left; otherwise the coordinator removed it


class MemberIdentity(NamedTuple):
    """The generation, member id and strategy under which the coordinator knows the member."""

    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    protocol: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the member belongs to no generation: its partitions may belong to others now."""
        return self.generation == NO_GENERATION or self.member_id == NO_MEMBER_ID


NO_IDENTITY = MemberIdentity()


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request in flight, and the identity of the member when it was sent."""

    request: GroupRequest
    sender: MemberIdentity


class MemberSession:
    """A member's state and identity, its coordinator lookup and its heartbeats."""

    def __init__(
        self,
        config: MemberConfig,
        commands: events.CommandBuffer,
        report: Callable[[Exception], None],
        spread: Callable[[int], int] = int,
    ) -> None:
        self.config = config
        self.add_jitter = spread  # adds jitter to a retry delay
        self.report_error = report  # makes a poll of the application raise the error
        self.commands = commands
        self.state = MemberState.UNJOINED
        self.identity = NO_IDENTITY
        self.coordinator_known = False
        #: Requests in flight; a late or repeated response to any other request is ignored.
        self.in_flight: dict[int, SentRequest] = {}
        #: Requests that were in flight when the coordinator was lost.
        self.abandoned_requests: list[tuple[int, SentRequest]] = []
        #: The JoinGroup or SyncGroup whose response counts.
        self.rebalance_request_id: int | None = None
        #: Why a join is due; None if none is due, empty for a new member. JoinGroup and LeaveGroup
        #: carry the reasons that Java's consumer sends (KIP-800).
        self.rejoin_reason: str | None = ""
        #: The procedure that comes before the next JoinGroup has started.
        self.is_join_prepared = False
        self.fenced: Fenced | None = None
        #: Why the coordinator cannot be reached, as far as it is known.
        self.coordinator_problem = ""
        #: An error that a poll must raise before the next coordinator lookup.
        self.fatal_error: Exception | None = None
        self.liveness = Liveness()
        self.loss: GenerationLoss | None = None  # how the last generation was lost
        self._finding = False
        self._failures = 0
        self._heartbeat_failures = 0
        self._heartbeat_due = False

    def transition_to(self, target: MemberState) -> None:
        if target is self.state:
            return
        assert (self.state, target) in MEMBER_TRANSITIONS, f"no move from {self.state} to {target}"
        beat, beats = (state in GENERATION_STATES for state in (self.state, target))
        self.state = target
        if beat and not beats:
            self._heartbeat_due = False
            self.commands.stop_timer(events.MemberTimer.HEARTBEAT)
            self.commands.stop_timer(events.MemberTimer.SESSION)
        elif beats and not beat:
            now = self.commands.now
            self._heartbeat_failures = 0
            self.commands.start_timer(
                events.MemberTimer.HEARTBEAT, now + self.config.heartbeat_interval
            )
            self._restart_session_timer()

    def request_rejoin(self, reason: str) -> None:
        self.rejoin_reason = reason

    def enter_generation(self, identity: MemberIdentity) -> None:
        self.identity = identity
        self.loss = None
        # a deadline that was missed in an earlier generation no longer counts
        self.liveness = Liveness(self.liveness.poll_ended_at, self.commands.now)
        self.transition_to(MemberState.SYNCING)

    def reset_generation(
        self,
        reason: str,
        *,
        keep_id: bool = False,
        left: bool = False,
        target: MemberState = MemberState.UNJOINED,
    ) -> None:
        """Gives up the generation, so that the next join starts without one. ``keep_id`` keeps the
        member id: without it the group would wait for that id until its session times out.
        """
        self.rebalance_request_id = None
        if not self.identity.is_lost:
            generation = self.identity.generation
            silence = self.commands.now - self.liveness.last_response_at
            self.loss = GenerationLoss(reason, generation, silence, left)
            if not left:
                self.commands.add(events.MemberNote(f"generation {generation} given up: {reason}"))
        self.transition_to(target)
        member_id = self.identity.member_id if keep_id else NO_MEMBER_ID
        self.identity = MemberIdentity(member_id=member_id)
        self.request_rejoin(JOIN_AFTER_LEAVE if left else reason)
        self.is_join_prepared = False

    def fence(self, what: str) -> None:
        """Stops all requests: another process uses the member's static id."""
        text = (
            f"group {self.config.group!r}: {what}, for another process has joined with "
            f"group.instance.id = {self.config.group_instance_id!r}, "
            "which must be unique for each process"
        )
        self.fenced = Fenced(text, Code.FENCED_INSTANCE_ID)
        self.rebalance_request_id = None
        self.transition_to(MemberState.FENCED)
        self.identity = NO_IDENTITY
        for timer in (events.MemberTimer.RETRY, events.MemberTimer.POLL, events.MemberTimer.COMMIT):
            self.commands.stop_timer(timer)

    def leave_group(
        self, reason: str, *, even_static: bool = False, target: MemberState = MemberState.UNJOINED
    ) -> int | None:
        """Leaves the group. Returns LeaveGroup's number, or None if it is not sent: the coordinator
        is unknown, or the member is static and may come back (unless ``even_static``).
        """
        number = None
        sends = self.config.group_instance_id is None or even_static
        joined = self.state in GENERATION_STATES or self.state is MemberState.JOINING
        if sends and joined and self.coordinator_known and self.identity.member_id:
            leaver = LeavingMember(
                member_id=self.identity.member_id,
                group_instance_id=self.config.group_instance_id,
                reason=truncate_reason(reason),
            )
            number = self.send(LeaveGroup(group=self.config.group, members=(leaver,)))
        if not self.identity.is_lost:
            was, static = f"generation {self.identity.generation}", self.config.group_instance_id
            if not sends:
                text = f"gone from {was} for now, as {static!r} may be back"
            else:
                text = f"left {was}{', but could not tell the coordinator' * (number is None)}"
            self.commands.add(events.MemberNote(f"{text}: {reason}"))
        if self.state not in INACTIVE_STATES or target is MemberState.LEFT:
            self.reset_generation(reason, left=True, target=target)
        return number

    def find_commit_problem(self, subscribed: bool) -> Exception | None:
        """Returns the error for a commit that cannot be sent now, or None if it can."""
        if self.fatal_error is not None:
            return self.fatal_error
        if self.fenced is not None:
            return Fenced(str(self.fenced), Code.FENCED_INSTANCE_ID)
        if not subscribed or self.state is MemberState.STABLE:
            return None
        if self.state in {MemberState.JOINING, MemberState.SYNCING}:
            text = "the group rebalances: poll until it is over, then commit again"
            return RebalanceInProgress(text, Code.REBALANCE_IN_PROGRESS)
        text = f"group {self.config.group!r}: {self.explain_loss()}"
        return CommitFailed(text, Code.UNKNOWN_MEMBER_ID)

    def explain_loss(self) -> str:
        """Explains which deadline the member missed, and which setting helps."""
        loss, config = self.loss, self.config
        if loss is None:
            return "this member has not joined the group: poll first"
        if self.liveness.polled_late:
            allowed = config.max_poll_interval
            absence = self.liveness.time_since_poll(self.commands.now)
            return (
                f"the application has not polled for {format_seconds(absence)}, "
                f"{format_seconds(max(absence - allowed, 0))} longer than max.poll.interval.ms = "
                f"{allowed} allows, so the member left the group. Set max.poll.interval.ms "
                "higher, or max.poll.records lower for less work between two polls"
            )
        if loss.left:
            return f"this member has left the group: {loss.reason}"
        was = f"generation {loss.generation} of this member is over ({loss.reason})"
        silence = format_seconds(loss.silent_for)
        # the broker counts from when it received the heartbeat, a bit before the response arrived
        if loss.silent_for + config.heartbeat_interval >= config.session_timeout:
            return (
                f"{was}: no heartbeat was answered for {silence}, and after session.timeout.ms = "
                f"{config.session_timeout} the coordinator gives a member up. Did the process or "
                "the network stand still for so long? Then set session.timeout.ms higher"
            )
        return (
            f"{was}, though a heartbeat was answered {silence} before: neither session.timeout.ms "
            "nor max.poll.interval.ms was missed. The member was removed by an administrator, or "
            "the coordinator has lost its group"
        )

    def send(self, request: GroupRequest) -> int:
        """Sends to the coordinator, which must be known."""
        assert self.coordinator_known
        number = self.commands.next_id()
        self.commands.add(events.SendRequest(number, request))
        self.in_flight[number] = SentRequest(request, self.identity)
        return number

    def back_off(self) -> None:
        """No retry is sent before the retry timer fires."""
        if self.is_backing_off:
            return
        delay = self.retry_delay(self._failures)
        self._failures += 1
        self.commands.start_timer(events.MemberTimer.RETRY, self.commands.now + delay)

    def retry_delay(self, failures: int) -> int:
        longest = self.config.retry_backoff_max
        planned = min(self.config.retry_backoff * 2 ** min(failures, 30), longest)
        return min(self.add_jitter(planned), longest)

    @property
    def is_backing_off(self) -> bool:
        return events.MemberTimer.RETRY in self.commands.timers

    def reset_backoff(self) -> None:
        self._failures = 0

    def find_coordinator(self) -> None:
        """Starts a coordinator lookup, unless one runs or the coordinator is known."""
        waits = self.is_backing_off or self.fatal_error is not None
        if not (self.coordinator_known or self._finding or waits):
            self._finding = True
            self.commands.add(events.FindCoordinator())

    def set_coordinator_found(self) -> None:
        """Sends a heartbeat at once if one could not be sent."""
        if not self._finding:
            return
        self._finding = False
        self.coordinator_known = True
        self.coordinator_problem = ""
        if self.state in GENERATION_STATES:
            self._restart_session_timer()
            if self._heartbeat_due:
                self.send_heartbeat(self.commands.now)

    def set_coordinator_not_found(self) -> bool:
        """Backs off. Returns False if no lookup was in progress."""
        was_finding = self._finding
        if was_finding:
            self._finding = False
            self.back_off()
        return was_finding

    def set_fatal_error(self, error: Exception) -> None:
        """Reports an error of the coordinator lookup, once in each poll."""
        if self.fatal_error is None:
            self.fatal_error = error
            self.report_error(error)

    def lose_coordinator(self, why: str) -> None:
        """Marks the coordinator as unknown, and abandons its requests: responses are ignored."""
        if self.coordinator_known:
            self.coordinator_known = False
            self.commands.add(events.MemberNote(f"coordinator lost: {why}"))
            self.abandoned_requests += self.in_flight.items()
            self.in_flight.clear()

    def send_heartbeat(self, due: int) -> None:
        """Sends a heartbeat; the next one is due an interval after this one was due."""
        self._heartbeat_due = not self.coordinator_known
        if not self.coordinator_known:
            return
        generation, member_id, _ = self.identity
        self.send(
            Heartbeat(
                group=self.config.group,
                generation=generation,
                member_id=member_id,
                group_instance_id=self.config.group_instance_id,
            )
        )
        now, interval = self.commands.now, self.config.heartbeat_interval
        # counted from the due time; after a long standstill missed heartbeats are not sent
        next_due = due + interval if due + interval > now else now + interval
        self.commands.start_timer(events.MemberTimer.HEARTBEAT, next_due)

    def handle_heartbeat_response(self, code: int, sender: MemberIdentity) -> None:
        same = sender == self.identity and self.state not in INACTIVE_STATES
        match code:
            case Code.NONE:
                self._record_heartbeat_response()
            case Code.REBALANCE_IN_PROGRESS:
                # the member stays, and sends heartbeats until the next poll joins
                self._record_heartbeat_response()
                if same and self.state is MemberState.STABLE:
                    self.request_rejoin("group is already rebalancing")
            case Code.FENCED_INSTANCE_ID if same:
                self.fence("heartbeat refused")
            case Code.ILLEGAL_GENERATION | Code.UNKNOWN_MEMBER_ID if same:
                # while joining, the JoinGroup response decides
                if self.state in GENERATION_STATES:
                    keep = code == Code.ILLEGAL_GENERATION
                    self.reset_generation(describe_refusal("HEARTBEAT", code), keep_id=keep)
            case Code.ILLEGAL_GENERATION | Code.UNKNOWN_MEMBER_ID | Code.FENCED_INSTANCE_ID:
                pass  # the response belongs to an earlier identity of the member
            case _:
                why = f"heartbeat refused with {format_code(code)}"
                if code in NO_COORDINATOR_CODES:
                    self.lose_coordinator(why)
                elif code == Code.GROUP_AUTHORIZATION_FAILED:
                    self.set_fatal_error(make_fatal_error(self.config, "heartbeat", code))
                else:
                    self.commands.add(events.MemberNote(f"{why}; tried again"))
                self.retry_heartbeat()

    def retry_heartbeat(self) -> None:
        """Sends the next heartbeat sooner than the interval."""
        if self.state in GENERATION_STATES and not self._heartbeat_due:
            delay = self.retry_delay(self._heartbeat_failures)
            self._heartbeat_failures += 1
            self.commands.start_timer(events.MemberTimer.HEARTBEAT, self.commands.now + delay)

    def handle_session_timeout(self) -> None:
        self.lose_coordinator("no heartbeat was answered for a session")

    def _record_heartbeat_response(self) -> None:
        self._heartbeat_failures = 0
        self.liveness.last_response_at = self.commands.now
        self.reset_backoff()
        if self.state in GENERATION_STATES:
            self._restart_session_timer()

    def _restart_session_timer(self) -> None:
        now = self.commands.now
        self.commands.start_timer(events.MemberTimer.SESSION, now + self.config.session_timeout)

    def check_invariants(self) -> None:
        timers, state, request = self.commands.timers, self.state, self.rebalance_request_id
        in_generation = state in GENERATION_STATES
        beats = events.MemberTimer.HEARTBEAT in timers or self._heartbeat_due
        assert beats == in_generation, "heartbeats do not fit the state"
        assert events.MemberTimer.SESSION not in timers or in_generation
        assert not in_generation or not self.identity.is_lost, "a generation needs an id"
        assert not in_generation or self.identity.protocol is not None
        assert not self._heartbeat_due or not self.coordinator_known
        assert request is None or request in self.in_flight
        waits = {MemberState.JOINING, MemberState.SYNCING}
        assert request is None or state in waits, "an old JoinGroup or SyncGroup counts"
        assert not (self.coordinator_known and self._finding)
        assert self.coordinator_known or not self.in_flight, "requests without a coordinator"
        assert not self.abandoned_requests, "abandoned requests were not failed"
