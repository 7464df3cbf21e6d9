"""Taking partitions and giving them up: commits, listener calls and assignments, in Kafka's order.

Each procedure is a generator that reads from top to bottom as it happens. Where it must wait (for a
commit, for the application's listener, for the application to poll) it yields the condition that it
waits for, and goes on when an event has made it true. Only one runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial

from rota.assignors.interface import Assignor
from rota.errors import FormatError, StrategyFailed
from rota.formats import assignment
from rota.member.commit import Commit, Commits
from rota.member.event import Call, CallListener, Note, SetAssignment, Timer, Withhold
from rota.member.join import Joiner
from rota.member.session import Identity, Session
from rota.member.state import State
from rota.member.watch import Watch
from rota.model.membership import Assignment, RebalanceProtocol
from rota.model.topic import TopicPartition, first_few

Condition = Callable[[], bool]
Steps = Generator[Condition, None, None]

GIVEN_UP: Mapping[Call, str] = {Call.REVOKED: "revoked", Call.LOST: "lost"}


class Handover:
    """Owns the assignment, and the procedures that change it."""

    def __init__(
        self,
        session: Session,
        watch: Watch,
        commits: Commits,
        protocol: RebalanceProtocol,
        may_call: Condition,
    ) -> None:
        self.session = session
        self.outbox = session.outbox
        self.watch = watch
        self.commits = commits
        self.protocol = protocol
        self.may_call = may_call
        """Listeners run only while the application is inside poll, or says good-bye."""
        self.owned: tuple[TopicPartition, ...] = ()
        self.is_late = False
        """The deadline of what is waited for has passed."""
        self._calling: int | None = None
        self._error: Exception | None = None

    @property
    def unwanted(self) -> tuple[TopicPartition, ...]:
        """Owned, but no longer subscribed to: it must not be joined with."""
        topics = set(self.watch.topics)
        return tuple(one for one in self.owned if one.topic not in topics)

    # Procedures

    def prepare(self) -> Steps:
        """Once before every join: what the protocol says must not be owned while joining."""
        eager = self.protocol is RebalanceProtocol.EAGER
        yield from self._commit(self.owned if eager else (), self._patience())
        yield self.may_call
        if self.session.identity.is_lost:
            if self.owned:
                yield from self._give_up(Call.LOST, self.owned)
        elif eager:
            # also with nothing to give up: Kafka's listeners hear of every rebalance
            yield from self._give_up(Call.REVOKED, self.owned)
        elif self.unwanted:
            yield from self._give_up(Call.REVOKED, self.unwanted)

    def complete(self, joiner: Joiner) -> Steps:
        """After every sync: what was taken goes, what was added comes."""
        data, joiner.received = joiner.received, None
        assert data is not None
        self.session.prepared = False
        try:
            given = assignment.decode(data)
        except FormatError as error:
            joiner.withdraw(error, "the assignment could not be read")
            return
        new = tuple(sorted(given.partitions))
        if not self.watch.allows(new):
            self.session.request_rejoin("the subscription changed while joining")
            return
        me = self.session.identity
        held = set(self.owned)
        added = tuple(one for one in new if one not in held)
        if self.protocol is RebalanceProtocol.COOPERATIVE:
            yield from self._give_up_taken(new)
            if self.session.identity != me or not self.watch.allows(new):
                return  # lost or unwanted meanwhile, which the next join sets right
        self.watch.accept(new)
        self._tell_assignor(joiner.assignors, given, me)
        self.commits.start_interval()
        self.outbox.put(Note(f"assigned {_counted(new)}{_of_them_new(new, added)}"))
        self._assign(new)
        yield from self._call(Call.ASSIGNED, added)

    def _give_up_taken(self, new: Iterable[TopicPartition]) -> Steps:
        kept = set(new)
        taken = tuple(one for one in self.owned if one not in kept)
        if not taken:
            return
        self.session.request_rejoin("partitions were taken away")
        me = self.session.identity
        yield from self._commit(taken, self._patience())
        yield self.may_call
        if self.session.identity == me:
            yield from self._give_up(Call.REVOKED, taken)

    def lose(self) -> Steps:
        """Everything is another's by now."""
        yield self.may_call
        yield from self._give_up(Call.LOST, self.owned)

    def depart(self, until: int | None) -> Steps:
        """Before the member leaves of its own will."""
        self.is_late = False
        yield from self._commit(self.owned, until)
        if self.owned:
            rebalancing = self.session.state in {State.JOINING, State.SYNCING}
            lost = self.session.identity.is_lost or rebalancing
            yield from self._give_up(Call.LOST if lost else Call.REVOKED, self.owned)

    # Steps

    def _commit(self, going: tuple[TopicPartition, ...], until: int | None) -> Steps:
        """The automatic commit before a revocation: tried until a deadline, if there is one."""
        session = self.session
        offsets = self.commits.consumed() if session.config.auto_commit else {}
        if not offsets or session.state is not State.STABLE:
            return
        if not session.coordinator_known and until is None:
            why = session.trouble or "the coordinator is not known just now"
            self.outbox.put(Note(f"no commit before the revocation: {why}", warns=True))
            return
        if going:
            self.outbox.put(Withhold(going))
        self.is_late = False
        if until is not None:
            self.outbox.start(Timer.DEADLINE, until)
        while True:
            commit = self.commits.commit_before_revocation(offsets)
            yield partial(self._is_over, commit)
            if not commit.may_pass or until is None or self.is_late:
                break
            session.back_off()
            yield self._may_retry
        self.commits.give_up(commit)  # else it would be refused for what comes next
        self.outbox.stop(Timer.DEADLINE)

    def _is_over(self, commit: Commit) -> bool:
        return commit.is_done or self.is_late

    def _may_retry(self) -> bool:
        return not self.session.backs_off or self.is_late

    def _patience(self) -> int:
        """A member that has not joined again within this time is dropped from the group."""
        return self.outbox.now + self.session.config.max_poll_interval

    def _give_up(self, call: Call, partitions: tuple[TopicPartition, ...]) -> Steps:
        """The listener hears of it while the partitions are still the member's."""
        yield from self._call(call, partitions)
        gone = set(partitions)
        if gone:
            self.outbox.put(Note(f"{GIVEN_UP[call]} {_counted(partitions)}"))
            self._assign(tuple(one for one in self.owned if one not in gone))

    def _call(self, call: Call, partitions: tuple[TopicPartition, ...]) -> Steps:
        self._calling = self.outbox.number()
        self.outbox.put(CallListener(self._calling, call, partitions))
        # a listener that takes longer than a poll may is as dead as an application that does
        self.outbox.start(Timer.POLL, self.outbox.now + self.session.config.max_poll_interval)
        self.session.presence.leave_poll(self.outbox.now)
        yield self._has_returned

    def _has_returned(self) -> bool:
        return self._calling is None

    def _assign(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.owned = partitions
        self.outbox.put(SetAssignment(partitions, self.session.identity.generation))

    def _tell_assignor(
        self, assignors: Mapping[str, Assignor], given: Assignment, me: Identity
    ) -> None:
        assignor = assignors[me.protocol or ""]
        try:
            assignor.on_assignment(given, me.generation)
        except Exception as error:  # noqa: BLE001 (a custom strategy may raise anything)
            failed = StrategyFailed(f"strategy {assignor.name!r}: on_assignment raised {error!r}")
            failed.__cause__ = error
            self._remember(failed)

    # The listener's answer

    @property
    def is_calling(self) -> bool:
        """The application's listener is at work."""
        return self._calling is not None

    def returned(self, call_id: int, error: Exception | None) -> bool:
        """The listener is done; False if it is not the call that is waited for."""
        if call_id != self._calling:
            return False
        self._calling = None
        if error is not None:
            self._remember(error)
        return True

    def _remember(self, error: Exception) -> None:
        """The first error of a procedure is told when it is complete."""
        self._error = self._error or error

    def take_error(self) -> Exception | None:
        """What went wrong in the procedure that is complete now."""
        error, self._error = self._error, None
        return error


def _counted(partitions: Sequence[TopicPartition]) -> str:
    """``2 partitions: t-0, t-1``."""
    if not partitions:
        return "no partitions"
    count = "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"
    return f"{count}: {first_few([str(one) for one in partitions])}"


def _of_them_new(given: Sequence[TopicPartition], added: Sequence[TopicPartition]) -> str:
    """Said where something was kept."""
    if len(added) == len(given):
        return ""
    return f" (new: {first_few([str(one) for one in added])})" if added else " (none of them new)"
