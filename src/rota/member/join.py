"""Joining and syncing: what is sent, and what the answers mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rota.assignors.interface import Assignor
from rota.errors import Code, InconsistentProtocol, RotaError, StrategyFailed
from rota.formats import subscription
from rota.member.event import AssignmentMade, MakeAssignment, Note, Timer
from rota.member.leader import MemberMetadata, read_group
from rota.member.loss import seconds
from rota.member.refusal import NO_COORDINATOR, code_name, refused_for_good
from rota.member.session import Identity, Session
from rota.member.state import State
from rota.member.watch import Watch
from rota.model.membership import NO_GENERATION, GroupSubscription, Subscription
from rota.model.reply import DescribedGroup, DescribeGroupsReply, JoinReply, SyncReply
from rota.model.request import CONSUMER, DescribeGroups, Join, Protocol, Sync
from rota.model.topic import Partitions, TopicPartition

Report = Callable[[Exception], None]
"""Tells the application, from its poll."""


@dataclass(frozen=True, slots=True)
class Election:
    """The member leads; it assigns as soon as it knows the group's topics."""

    assignor: Assignor
    group: GroupSubscription
    notes: tuple[str, ...]
    skips: bool
    since: int


@dataclass(frozen=True, slots=True)
class Making:
    """The strategy is at work."""

    number: int
    strategy: str
    since: int
    """When the group began to wait for it."""


class Joiner:
    """Sends joins and syncs, and does the leader's duty between them."""

    def __init__(
        self, session: Session, watch: Watch, assignors: Sequence[Assignor], report: Report
    ) -> None:
        self.session = session
        self.watch = watch
        self.assignors = {assignor.name: assignor for assignor in assignors}
        self.report = report
        self.received: bytes | None = None
        """The assignment that a poll will put into effect."""
        self.halted = False
        """Refused for good: not tried again before the application has heard of it."""
        self._election: Election | None = None
        self._making: Making | None = None
        self._question: int | None = None
        """Asks what strategy the group has, if not one of this member's."""

    @property
    def is_pending(self) -> bool:
        """A join or sync is under way, or about to be sent."""
        leads = self._election is not None or self._making is not None
        asks = self._question is not None
        return leads or asks or self.session.rebalance_request is not None

    # Joining

    def send_join(self, owned: Sequence[TopicPartition], reason: str) -> None:
        """Joins, or joins again, with what is owned now."""
        session, config = self.session, self.session.config
        try:
            protocols = self._protocols(owned)
        except StrategyFailed as error:
            self._refuse(error)
            return
        self.watch.note_join()
        self.watch.end_lead()
        session.move(State.JOINING)
        session.request_rejoin(reason)
        session.rebalance_request = session.send(
            Join(
                group=config.group,
                member_id=session.identity.member_id,
                static_id=config.static_id,
                protocols=protocols,
                session_timeout=config.session_timeout,
                rebalance_timeout=config.max_poll_interval,
                client_id=config.client_id,
                client_host="",
                reason=reason,
            )
        )

    def _protocols(self, owned: Sequence[TopicPartition]) -> tuple[Protocol, ...]:
        topics, generation = self.watch.topics, self.session.identity.generation
        partitions = Partitions.of(owned)
        found = []
        for name, assignor in self.assignors.items():
            try:
                told = Subscription(
                    topics=topics,
                    user_data=assignor.subscription_user_data(topics),
                    owned=partitions,
                    generation=None if generation == NO_GENERATION else generation,
                    rack=self.session.config.rack,
                )
                found.append(Protocol(name, subscription.encode(told)))
            except Exception as error:
                raise StrategyFailed(f"strategy {name!r} gave no user data: {error!r}") from error
        return tuple(found)

    def joined(self, reply: JoinReply) -> None:
        """The join that is waited for is answered."""
        session, code = self.session, reply.code
        session.rebalance_request = None
        match code:
            case Code.NONE:
                self._enter(reply)
            case Code.MEMBER_ID_REQUIRED if reply.member_id:
                # KIP-394: the id comes first, so that a lost reply does not leave a ghost behind
                session.identity = Identity(member_id=reply.member_id)
                session.request_rejoin("the member has been given its id")
            case Code.UNKNOWN_MEMBER_ID:
                session.reset(f"join refused with {code_name(code)}")
            case Code.REBALANCE_IN_PROGRESS:
                session.request_rejoin(f"join refused with {code_name(code)}")
            case (
                Code.COORDINATOR_LOAD_IN_PROGRESS
                | Code.COORDINATOR_NOT_AVAILABLE
                | Code.NOT_COORDINATOR
            ):
                self._try_later("join", code)
            case Code.FENCED_INSTANCE_ID:
                session.fence("join refused")
            case Code.INCONSISTENT_GROUP_PROTOCOL:
                self._ask_why()
            case _:
                self._refuse(self._refusal("join", code))

    def _enter(self, reply: JoinReply) -> None:
        if reply.protocol_type not in {None, CONSUMER}:
            self._refuse(self._mismatch(f"its protocol type is {reply.protocol_type!r}"))
            return
        if reply.generation < 0 or not reply.member_id:
            self._refuse(self._refusal("join without an id or generation", Code.UNKNOWN))
            return
        session = self.session
        session.succeeded()
        session.enter(Identity(reply.generation, reply.member_id, reply.protocol or ""))
        session.outbox.put(Note(f"{_entrance(reply)} ({session.rejoin_reason})"))
        assignor = self.assignors.get(reply.protocol or "")
        if assignor is None:
            error = self._mismatch(f"it elected {reply.protocol!r}")
            self.withdraw(error, "an unknown strategy was elected")
        elif reply.leader == reply.member_id:
            self._elect(assignor, reply)
        else:
            self._send_sync(())

    # Leading

    def _elect(self, assignor: Assignor, reply: JoinReply) -> None:
        listed = [MemberMetadata(m.member_id, m.static_id, m.metadata) for m in reply.members]
        try:
            group, notes = read_group(listed)
        except RotaError as error:
            self.withdraw(error, "the group could not be read")
            return
        self.watch.begin_lead(topic for member in group.values() for topic in member.topics)
        now = self.session.outbox.now
        self._election = Election(assignor, group, tuple(notes), reply.skip_assignment, now)
        self.lead()

    def lead(self) -> None:
        """Has the assignment made for the whole group, once its topics are known."""
        election = self._election
        if election is None or not self.watch.is_fresh:
            return
        self._election = None
        # of what is known now: what changes while the strategy is at work comes after it
        self.watch.note_assignment()
        if election.skips:
            # KIP-814: a static leader is back; the assignment stays, the watch goes on
            self._send_sync(())
            return
        assignor, outbox = election.assignor, self.session.outbox
        self._making = Making(outbox.number(), assignor.name, election.since)
        outbox.start(Timer.ASSIGN, election.since + self.session.config.max_poll_interval)
        outbox.put(
            MakeAssignment(
                self._making.number, assignor, self.watch.cluster, election.group, election.notes
            )
        )

    def made(self, event: AssignmentMade) -> None:
        """The strategy is done; what it made for a generation that is over is dropped."""
        making = self._making
        if making is None or making.number != event.number:
            return
        self._stop_making()
        if event.error is not None:
            self.withdraw(event.error, "the leader's strategy failed")
            return
        self.session.outbox.put(*map(Note, event.notes))
        self._send_sync(tuple(sorted(event.assignments.items())))

    def strategy_is_late(self) -> None:
        """The coordinator gives up a leader that takes longer than the rebalance may."""
        making = self._making
        if making is None:
            return
        self._stop_making()
        config = self.session.config
        error = StrategyFailed(
            f"group {config.group!r}: strategy {making.strategy!r} has made no assignment for "
            f"{seconds(self.session.outbox.now - making.since)}, and the group waits no longer "
            f"than max.poll.interval.ms = {config.max_poll_interval}. The strategy must be "
            "faster, or max.poll.interval.ms higher"
        )
        self.withdraw(error, "the leader's strategy takes too long")

    def _stop_making(self) -> None:
        self._making = None
        self.session.outbox.stop(Timer.ASSIGN)

    def withdraw(self, error: Exception, reason: str) -> None:
        """Leaves, and tells why: the others are not to wait for one who cannot go on.

        Java's leader only raises, and its group stands still until the rebalance times out.
        """
        self.session.leave(reason, even_static=True)
        self.forget()
        self._refuse(error)

    def forget(self) -> None:
        """What was under way is of no more use once the member is nobody."""
        if self.session.state is not State.SYNCING:
            self._election = None
            self._forget_making()
        if self.session.state is not State.JOINING:
            self._question = None
        if self.session.state is not State.STABLE:
            self.received = None

    def _forget_making(self) -> None:
        making, session = self._making, self.session
        if making is None:
            return
        self._stop_making()
        time = seconds(session.outbox.now - making.since)
        text = f"strategy {making.strategy!r} was at work for {time}, in vain"
        against_will = session.loss is not None and not session.loss.left
        session.outbox.put(Note(f"{text}: {session.rejoin_reason}", warns=against_will))

    # Syncing

    def _send_sync(self, assignments: tuple[tuple[str, bytes], ...]) -> None:
        session = self.session
        if not session.coordinator_known:
            self._try_later("sync", Code.COORDINATOR_NOT_AVAILABLE)
            return
        generation, member_id, protocol = session.identity
        session.rebalance_request = session.send(
            Sync(
                group=session.config.group,
                generation=generation,
                member_id=member_id,
                static_id=session.config.static_id,
                protocol_type=CONSUMER,
                protocol=protocol,
                assignments=assignments,
            )
        )

    def synced(self, reply: SyncReply) -> None:
        """The sync that is waited for is answered."""
        session, code = self.session, reply.code
        session.rebalance_request = None
        match code:
            case Code.NONE:
                self._settle(reply)
            case Code.REBALANCE_IN_PROGRESS:
                session.request_rejoin("another rebalance overtook the sync")
            case Code.UNKNOWN_MEMBER_ID | Code.ILLEGAL_GENERATION:
                keep = code == Code.ILLEGAL_GENERATION
                session.reset(f"sync refused with {code_name(code)}", keep_id=keep)
            case (
                Code.COORDINATOR_LOAD_IN_PROGRESS
                | Code.COORDINATOR_NOT_AVAILABLE
                | Code.NOT_COORDINATOR
            ):
                self._try_later("sync", code)
            case Code.FENCED_INSTANCE_ID:
                session.fence("sync refused")
            case _:
                self._refuse(self._refusal("sync", code))

    def _settle(self, reply: SyncReply) -> None:
        session = self.session
        if reply.protocol_type not in {None, CONSUMER}:
            self._refuse(self._mismatch(f"its protocol type is {reply.protocol_type!r}"))
        elif reply.protocol not in {None, session.identity.protocol}:
            self._refuse(self._mismatch(f"it elected {reply.protocol!r}"))
        else:
            session.succeeded()
            session.rejoin_reason = None
            self.received = reply.assignment
            session.move(State.STABLE)

    # Without a common strategy

    def _ask_why(self) -> None:
        """The error should name the group's strategy too, which another request tells."""
        self.session.request_rejoin("no strategy is common to all members")
        self._question = self.session.send(DescribeGroups(groups=(self.session.config.group,)))

    def described(self, number: int, reply: DescribeGroupsReply | None) -> None:
        """The group is as it says; None: there was no answer."""
        if number != self._question:
            return
        self._question = None
        found = reply.groups[0] if reply is not None and reply.groups else None
        why = "no strategy is common to this member and the group"
        self._refuse(self._mismatch(why, _strategy_of(found)))

    # Failing

    def refused(self, error: Exception) -> None:
        """The join or sync that is waited for cannot be sent, now or later."""
        self.session.rebalance_request = None
        self._refuse(error)

    def failed(self) -> None:
        """The join or sync that is waited for will not be answered."""
        self.session.rebalance_request = None
        self.session.request_rejoin("the coordinator did not answer")
        self.session.back_off()

    def _try_later(self, what: str, code: int) -> None:
        session = self.session
        if code in NO_COORDINATOR:
            session.lose_coordinator(f"{what} refused with {code_name(code)}")
        session.request_rejoin(f"{what} refused with {code_name(code)}")
        session.back_off()

    def _refuse(self, error: Exception) -> None:
        """The application must know; the next poll after that tries again."""
        self.halted = True
        self.session.request_rejoin(type(error).__name__)
        self.report(error)

    def _refusal(self, what: str, code: int) -> RotaError:
        if code == Code.INCONSISTENT_GROUP_PROTOCOL:
            return self._mismatch(f"{what} refused with {code_name(code)}")
        return refused_for_good(self.session.config, what, code)

    def _mismatch(self, why: str, others: str = "") -> InconsistentProtocol:
        return InconsistentProtocol(
            f"group {self.session.config.group!r}: {why}; this member's strategies "
            f"(partition.assignment.strategy) are {', '.join(self.assignors)}{others}",
            Code.INCONSISTENT_GROUP_PROTOCOL,
        )

    def check_invariants(self) -> None:
        """What must be true of every member after every event."""
        state = self.session.state
        assert self._election is None or state is State.SYNCING
        assert self.received is None or state is State.STABLE
        assert self._election is None or self.session.rebalance_request is None
        assert self._making is None or (self._election is None and state is State.SYNCING)
        assert self._making is None or self.session.rebalance_request is None
        limited = Timer.ASSIGN in self.session.outbox.timers
        assert limited == (self._making is not None), "a strategy at work has a limit"
        assert self._question is None or self._question in self.session.open
        done = state not in {State.JOINING, State.SYNCING} or self.is_pending
        assert done or self.session.rejoin_reason is not None, "neither under way nor due"


def _entrance(reply: JoinReply) -> str:
    text = f"joined generation {reply.generation} under {reply.protocol!r} as {reply.member_id}"
    if reply.leader != reply.member_id:
        return text
    return f"{text}, leading {len(reply.members)} member{'s' if len(reply.members) != 1 else ''}"


def _strategy_of(group: DescribedGroup | None) -> str:
    """What the others have. A coordinator tells the elected strategy alone, and only while the
    group is stable.
    """
    if group is None:
        return "; the broker did not say what the group's are"
    if group.protocol_type not in {"", CONSUMER}:
        return f"; the group is not one of consumers, but of type {group.protocol_type!r}"
    if not group.protocol:
        state = code_name(group.code) if group.code else f"it is {group.state}"
        return f"; the broker does not say what the group's are ({state})"
    clients = sorted({member.client_id for member in group.members})
    named = ", ".join(clients[:3]) + (", ..." if len(clients) > 3 else "")
    count = f"{len(group.members)} member{'s' if len(group.members) != 1 else ''}"
    return f"; the group's is {group.protocol}, of {count} ({named})"
