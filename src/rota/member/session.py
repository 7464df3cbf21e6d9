"""A member's standing with its coordinator: who it is there, where to find it, heartbeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from rota.errors import Code, CommitFailed, Fenced, RebalanceInProgress
from rota.member.event import FindCoordinator, Note, Timer
from rota.member.loss import Loss, Presence, explain
from rota.member.outbox import Outbox
from rota.member.refusal import NO_COORDINATOR, code_name, refused_for_good
from rota.member.state import IN_GENERATION, MOVES, OVER, State
from rota.model.config import MemberConfig
from rota.model.membership import NO_GENERATION
from rota.model.request import NO_MEMBER, Heartbeat, Leave, Leaver, Request


class Identity(NamedTuple):
    """Who the member is to its coordinator, and for which generation."""

    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER
    protocol: str | None = None

    @property
    def is_lost(self) -> bool:
        """No generation knows this member: what it owned may be another's by now."""
        return self.generation == NO_GENERATION or self.member_id == NO_MEMBER


NOBODY = Identity()


@dataclass(frozen=True, slots=True)
class Open:
    """A request under way, and who its sender was when it left."""

    request: Request
    sender: Identity


class Session:
    """Holds the state and the identity, and changes each in one place."""

    def __init__(
        self,
        config: MemberConfig,
        outbox: Outbox,
        report: Callable[[Exception], None],
        spread: Callable[[int], int] = int,
    ) -> None:
        self.config = config
        self.spread = spread
        """Gives a pause its jitter."""
        self.report = report
        """Tells the application, from its poll."""
        self.outbox = outbox
        self.state = State.UNJOINED
        self.identity = NOBODY
        self.coordinator_known = False
        self.open: dict[int, Open] = {}
        """Requests under way; an answer to any other is ignored."""
        self.given_up: list[tuple[int, Open]] = []
        """Requests that were under way when the coordinator went; their senders are told."""
        self.rebalance_request: int | None = None
        """The join or sync under way that counts."""
        self.rejoin_reason: str | None = "the member is new"
        """Why a join is due; None if none is."""
        self.prepared = False
        """What has to be done once before a join is done."""
        self.fenced: Fenced | None = None
        self.trouble = ""
        """What is known of a coordinator that is not to be reached."""
        self.refusal: Exception | None = None
        """What the application has to hear of before the coordinator is looked for again."""
        self.presence = Presence()
        self.loss: Loss | None = None
        """How the last generation was lost."""
        self._finding = False
        self._failures = 0
        self._heartbeat_failures = 0
        self._heartbeat_due = False

    # State and identity

    def move(self, target: State) -> None:
        """The one place where the state changes."""
        if target is self.state:
            return
        assert (self.state, target) in MOVES, f"no move from {self.state} to {target}"
        beat = self.state in IN_GENERATION
        self.state = target
        if beat and target not in IN_GENERATION:
            self._stop_heartbeats()
        elif target in IN_GENERATION and not beat:
            self._start_heartbeats()

    def request_rejoin(self, reason: str) -> None:
        """The next poll joins again."""
        self.rejoin_reason = reason

    def enter(self, identity: Identity) -> None:
        """The coordinator has taken the member into a generation."""
        self.identity = identity
        self.loss = None
        self.presence.renew(self.outbox.now)
        self.move(State.SYNCING)

    def reset(
        self,
        reason: str,
        *,
        keep_id: bool = False,
        left: bool = False,
        target: State = State.UNJOINED,
    ) -> None:
        """The coordinator does not know the member any more, or must not: start anew.

        A wrong generation keeps the member id, which may still be good: otherwise the group would
        wait for it until it is timed out.
        """
        self.rebalance_request = None
        if not self.identity.is_lost:
            silence = self.outbox.now - self.presence.heard
            self.loss = Loss(reason, self.identity.generation, silence, left)
            if not left:
                self.outbox.put(Note(f"generation {self.identity.generation} given up: {reason}"))
        self.move(target)
        self.identity = NOBODY._replace(member_id=self.identity.member_id) if keep_id else NOBODY
        self.request_rejoin(reason)
        self.prepared = False

    def fence(self, what: str) -> None:
        """Another process goes by the member's static id: nothing more is sent."""
        self.fenced = Fenced(
            f"group {self.config.group!r}: {what}, for another process has joined with "
            f"group.instance.id = {self.config.static_id!r}, which must be one process's alone",
            Code.FENCED_INSTANCE_ID,
        )
        self.rebalance_request = None
        self.move(State.FENCED)
        self.identity = NOBODY
        for timer in (Timer.RETRY, Timer.POLL, Timer.COMMIT):
            self.outbox.stop(timer)

    def leave(
        self, reason: str, *, even_static: bool = False, target: State = State.UNJOINED
    ) -> int | None:
        """Tells the coordinator, if there is one to tell, and is nobody from then on.

        A static member does not tell: it may be back before its session ends. The request's number
        is given, if one was sent.
        """
        number = None
        told = self.config.static_id is None or even_static
        joined = self.state in IN_GENERATION or self.state is State.JOINING
        if told and joined and self.coordinator_known and self.identity.member_id:
            leaver = Leaver(
                member_id=self.identity.member_id, static_id=self.config.static_id, reason=reason
            )
            number = self.send(Leave(group=self.config.group, members=(leaver,)))
        if not self.identity.is_lost:
            self.outbox.put(Note(self._farewell(reason, told, number)))
        if self.state not in OVER or target is State.LEFT:
            self.reset(reason, left=True, target=target)
        return number

    def _farewell(self, reason: str, told: bool, number: int | None) -> str:
        was = f"generation {self.identity.generation}"
        if not told:
            return f"gone from {was} for now, as {self.config.static_id!r} may be back: {reason}"
        if number is None:
            return f"left {was}, but could not tell the coordinator: {reason}"
        return f"left {was}: {reason}"

    def refuse_commit(self, subscribed: bool) -> Exception | None:
        """Why a commit cannot be sent now, if so."""
        if self.refusal is not None:
            return self.refusal
        if self.fenced is not None:
            return Fenced(str(self.fenced), Code.FENCED_INSTANCE_ID)
        if not subscribed or self.state is State.STABLE:
            return None
        if self.state in {State.JOINING, State.SYNCING}:
            return RebalanceInProgress(
                "the group rebalances: poll until it is over, then commit again",
                Code.REBALANCE_IN_PROGRESS,
            )
        return CommitFailed(
            f"group {self.config.group!r}: {self.explain_loss()}", Code.UNKNOWN_MEMBER_ID
        )

    def explain_loss(self) -> str:
        """Why the member is of no generation, and what to do about it."""
        return explain(self.loss, self.presence, self.config, self.outbox.now)

    # Requests

    def send(self, request: Request) -> int:
        """Sends to the coordinator, which must be known."""
        assert self.coordinator_known
        number = self.outbox.send(request)
        self.open[number] = Open(request, self.identity)
        return number

    def back_off(self) -> None:
        """Nothing is tried again before the retry timer fires."""
        if self.backs_off:
            return
        delay = self.delay(self._failures)
        self._failures += 1
        self.outbox.start(Timer.RETRY, self.outbox.now + delay)

    def delay(self, failures: int) -> int:
        """How long to wait after so many failures."""
        longest = self.config.retry_backoff_max
        planned = min(self.config.retry_backoff * 2 ** min(failures, 30), longest)
        return min(self.spread(planned), longest)

    @property
    def backs_off(self) -> bool:
        """Something failed, and it is not time to try again."""
        return Timer.RETRY in self.outbox.timers

    def succeeded(self) -> None:
        """The coordinator does its work: the next failure is a first one."""
        self._failures = 0

    # The coordinator

    def find(self) -> None:
        """Looks for the coordinator, unless it is known or being looked for."""
        waits = self.backs_off or self.refusal is not None
        if not (self.coordinator_known or self._finding or waits):
            self._finding = True
            self.outbox.put(FindCoordinator())

    def found(self) -> None:
        """The coordinator is there: a heartbeat that could not be sent is sent at once."""
        if not self._finding:
            return
        self._finding = False
        self.coordinator_known = True
        self.trouble = ""
        if self.state in IN_GENERATION:
            self._expect_answer()
            if self._heartbeat_due:
                self.beat(self.outbox.now)

    def missed(self) -> bool:
        """The coordinator could not be found; False if nobody had looked for it."""
        was_finding = self._finding
        if was_finding:
            self._finding = False
            self.back_off()
        return was_finding

    def refuse(self, error: Exception) -> None:
        """The coordinator, or the way to it, is refused; the application is told once a poll."""
        if self.refusal is None:
            self.refusal = error
            self.report(error)

    def lose_coordinator(self, why: str) -> None:
        """The coordinator is not there, or is one no more.

        What is under way is given up, as if the connection had been cut: an answer of one who is
        no coordinator any more counts for nothing.
        """
        if self.coordinator_known:
            self.coordinator_known = False
            self.outbox.put(Note(f"coordinator lost: {why}"))
            self.given_up += self.open.items()
            self.open.clear()

    # Heartbeats

    def beat(self, due: int) -> None:
        """Sends a heartbeat; the next one is due an interval after this one was."""
        self._heartbeat_due = not self.coordinator_known
        if not self.coordinator_known:
            return
        generation, member_id, _ = self.identity
        self.send(
            Heartbeat(
                group=self.config.group,
                generation=generation,
                member_id=member_id,
                static_id=self.config.static_id,
            )
        )
        now, interval = self.outbox.now, self.config.heartbeat_interval
        # counted from when it was due, or a driver that is late each time would drift; but after
        # a long standstill not all that were missed are made up for
        next_due = due + interval if due + interval > now else now + interval
        self.outbox.start(Timer.HEARTBEAT, next_due)

    def heartbeat_answered(self, code: int, sender: Identity) -> None:
        """The coordinator's word on the member's standing."""
        same = sender == self.identity and self.state not in OVER
        match code:
            case Code.NONE:
                self._heard()
            case Code.REBALANCE_IN_PROGRESS:
                # the member stays, and goes on with heartbeats until the next poll joins
                self._heard()
                if same and self.state is State.STABLE:
                    self.request_rejoin("the group rebalances")
            case Code.FENCED_INSTANCE_ID if same:
                self.fence("heartbeat refused")
            case Code.ILLEGAL_GENERATION | Code.UNKNOWN_MEMBER_ID if same:
                # while joining, the answer to the join will say how things stand
                if self.state in IN_GENERATION:
                    keep = code == Code.ILLEGAL_GENERATION
                    self.reset(f"heartbeat refused with {code_name(code)}", keep_id=keep)
            case Code.ILLEGAL_GENERATION | Code.UNKNOWN_MEMBER_ID | Code.FENCED_INSTANCE_ID:
                pass  # meant for who the member was
            case _:
                why = f"heartbeat refused with {code_name(code)}"
                if code in NO_COORDINATOR:
                    self.lose_coordinator(why)
                elif code == Code.GROUP_AUTHORIZATION_FAILED:
                    self.refuse(refused_for_good(self.config, "heartbeat", code))
                else:
                    self.outbox.put(Note(f"{why}; tried again"))
                self.heartbeat_failed()

    def heartbeat_failed(self) -> None:
        """Tries again sooner than the interval says."""
        if self.state in IN_GENERATION and not self._heartbeat_due:
            delay = self.delay(self._heartbeat_failures)
            self._heartbeat_failures += 1
            self.outbox.start(Timer.HEARTBEAT, self.outbox.now + delay)

    def session_ended(self) -> None:
        """No heartbeat was answered for a whole session."""
        self.lose_coordinator("no heartbeat was answered for a session")

    def _heard(self) -> None:
        self._heartbeat_failures = 0
        self.presence.heard = self.outbox.now
        self.succeeded()
        if self.state in IN_GENERATION:
            self._expect_answer()

    def _expect_answer(self) -> None:
        self.outbox.start(Timer.SESSION, self.outbox.now + self.config.session_timeout)

    def _start_heartbeats(self) -> None:
        self._heartbeat_due = False
        self._heartbeat_failures = 0
        self.outbox.start(Timer.HEARTBEAT, self.outbox.now + self.config.heartbeat_interval)
        self._expect_answer()

    def _stop_heartbeats(self) -> None:
        self._heartbeat_due = False
        self.outbox.stop(Timer.HEARTBEAT)
        self.outbox.stop(Timer.SESSION)

    def check_invariants(self) -> None:
        """What must be true of every session after every event."""
        timers, state = self.outbox.timers, self.state
        beats = Timer.HEARTBEAT in timers or self._heartbeat_due
        assert beats == (state in IN_GENERATION), "heartbeats do not fit the state"
        assert Timer.SESSION not in timers or state in IN_GENERATION
        assert state not in IN_GENERATION or not self.identity.is_lost, "a generation needs an id"
        assert state not in IN_GENERATION or self.identity.protocol is not None
        assert not self._heartbeat_due or not self.coordinator_known
        assert self.rebalance_request is None or self.rebalance_request in self.open
        waits = {State.JOINING, State.SYNCING}
        assert self.rebalance_request is None or state in waits, "a join or sync of the past counts"
        assert not (self.coordinator_known and self._finding)
        assert self.coordinator_known or not self.open, "requests are under way to nobody"
        assert not self.given_up, "requests were given up, and their senders not told"
