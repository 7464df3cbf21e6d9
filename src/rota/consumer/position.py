"""Where each partition is read on. Pure: it is told what happened, and asked what to do.

A partition's way to its records::

    COMMITTED ──committed offset──> READING <──────────────┐
        │ none                       ^ │ ^ leader's epoch  │ log is whole up to there
        v                            │ │ └──changed──> VALIDATION
      RESET ───offset by policy──────┘ │                   │ truncated: where logs part
        ^                              │                   │
        └─────out of range─────────────┴───────────────────┘
    FAILED: without a policy (``auto.offset.reset=none``); only a seek leads on

There are two positions: what was *handed* out, and how far was fetched *ahead* of it. Answers carry
the ticket of their question: one that comes after a seek, a revocation or a change of leaders finds
another ticket, and is dropped. Records that wait carry the *stamp* of their partition: a seek or a
reset changes it. Times are seconds of one clock that only runs forward.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from rota.client.fetch import Fetched
from rota.client.offset import EARLIEST, LATEST, EpochEnd, ListedOffset, Look
from rota.consumer.entry import (
    MOVES,
    NO_TICKET,
    Entry,
    Leader,
    Position,
    Reach,
    Stage,
    Ticket,
    Want,
)
from rota.consumer.schedule import Schedule
from rota.consumer.verdict import (
    Verdict,
    fetch_error,
    lost,
    missing,
    out_of_range,
    truncated,
    verdict,
)
from rota.errors import Code, RotaError
from rota.model.offset import NO_EPOCH, NO_OFFSET, OffsetAndMetadata
from rota.model.topic import TopicPartition


def ignore(_: str) -> None:
    """Nobody wants to know."""


class Positions:
    """The partitions that are assigned."""

    def __init__(
        self,
        *,
        reset: int | Callable[[], int] | None,
        backoff: Callable[[int], float],
        lease: float,
        warn: Callable[[str], None] = ignore,
    ) -> None:
        """How positions are found.

        :param reset: what to look for where nothing is committed: ``EARLIEST``, ``LATEST``, a
            function that gives a timestamp (``by_duration``), None if that is an error
        :param backoff: the pause after so many failures in a row
        :param lease: how long to read from a replica that the leader has named
        :param warn: told why records come again, or never
        """
        self._reset = reset
        self._backoff = backoff
        self._lease = lease
        self._warn = warn
        self._entries: dict[TopicPartition, Entry] = {}
        self._schedule = Schedule()
        self._leaderless: dict[TopicPartition, Entry] = {}
        self._brokers: int | None = None
        """Counted when somebody asks, and kept."""
        self._tickets = NO_TICKET
        self.buffered = 0
        """Bytes that wait, of all partitions."""
        self.resting = 0
        """Those of partitions that do not give now, or whose next record cannot be read."""
        self.changes = 0
        """Goes up when something that waits may be of the past now, or be handed out again."""

    # The application's side

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """From now on these and no others; those that stay go on where they are."""
        old = self._entries
        self._entries = {each: old.get(each) or self._new(each) for each in partitions}
        for name, entry in old.items():
            if name not in self._entries:
                self._schedule.drop(entry)
                self._leaderless.pop(name, None)
                self._weigh(entry, 0)
        for entry in self._entries.values():
            if entry.withheld:
                entry.withheld = False
                self._weigh(entry, entry.buffered)
                self._schedule.touch(entry)
        self._brokers = None
        self.changes += 1

    def withhold(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these; the next assignment ends it."""
        for each in partitions:
            if (entry := self._entries.get(each)) is not None:
                entry.withheld = True
                self._weigh(entry, entry.buffered)

    def pause(self, partition: TopicPartition, paused: bool) -> None:
        """Fetch no more of it and keep what there is, or go on."""
        entry = self._entries[partition]
        entry.paused = paused
        self._weigh(entry, entry.buffered)
        if not paused:
            self._schedule.touch(entry)
            self.changes += 1

    def stumble(self, partition: TopicPartition) -> None:
        """Its next record cannot be read; it waits for the application."""
        entry = self._entries[partition]
        entry.stumbled = True
        self._weigh(entry, entry.buffered)

    def make_room(self, most: int) -> None:
        """Lets go of what rests until it is not more than that, or of one partition alone. It is
        fetched again when its turn has come.
        """
        resting = [e for e in self._entries.values() if e.resting and e.stage is Stage.READING]
        for entry in resting[:-1]:
            if self.resting <= most:
                break
            self._drop_buffer(entry)
            self._move(entry, Stage.READING)

    def seek(self, partition: TopicPartition, position: Position) -> None:
        """Read on there; with an epoch, after a look whether it still is the same log."""
        self._start(self._entries[partition], position)

    def seek_to(self, partition: TopicPartition, target: int) -> None:
        """Read on at the first, the last or a time's offset, once it is known."""
        self._look_for(self._entries[partition], target)

    def __contains__(self, partition: object) -> bool:
        return partition in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def __getitem__(self, partition: TopicPartition) -> Entry:
        return self._entries[partition]

    def get(self, partition: TopicPartition) -> Entry | None:
        """What is known of a partition; None if it is not assigned."""
        return self._entries.get(partition)

    def consumed(self, *only: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where what was handed out ends, of all or of these. May be asked for from another
        thread.
        """
        known = self._entries
        entries = [known[each] for each in only if each in known] if only else list(known.values())
        return {
            entry.partition: OffsetAndMetadata(handed.offset, "", handed.epoch)
            for entry in entries
            if (handed := entry.handed) is not None
        }

    # What is to be done

    def lead(self, leader_of: Callable[[TopicPartition], Leader | None]) -> None:
        """There are new metadata."""
        for entry in self._entries.values():
            leader = leader_of(entry.partition)
            if leader is None or leader == entry.leader:
                continue
            entry.leader, entry.replica, self._brokers = leader, None, None
            self._leaderless.pop(entry.partition, None)
            self._schedule.touch(entry)
            if entry.stage is not Stage.COMMITTED:  # that is asked of the coordinator
                entry.ticket, entry.failures, entry.retry_at = NO_TICKET, 0, 0.0
            if entry.stage is Stage.READING and entry.checkable:
                self._move(entry, Stage.VALIDATION)

    def uncommitted(self, now: float) -> tuple[Ticket, ...]:
        """Those whose committed offset is to be asked for."""
        return tuple([self._ask(entry) for entry in self._schedule.take(Stage.COMMITTED, now)])

    def unset(self, now: float) -> dict[int, dict[Ticket, Look]]:
        """By leader, those whose offset is to be looked for, by a timestamp."""
        found: dict[int, dict[Ticket, Look]] = {}
        for entry in self._schedule.take(Stage.RESET, now):
            if entry.leader is not None:
                look = Look(LATEST if entry.asks_end else entry.target, entry.leader.epoch)
                found.setdefault(entry.leader.node, {})[self._ask(entry)] = look
        return found

    def unchecked(self, now: float) -> dict[int, dict[Ticket, Look]]:
        """By leader, those to be validated: the epoch that was read last, and the leader's."""
        found: dict[int, dict[Ticket, Look]] = {}
        for entry in self._schedule.take(Stage.VALIDATION, now):
            leader, ahead = entry.leader, entry.ahead
            if leader is not None and ahead is not None and ahead.epoch is not None:
                check = Look(ahead.epoch, leader.epoch)
                found.setdefault(leader.node, {})[self._ask(entry)] = check
        return found

    def unread(self, now: float, busy: Collection[int], limit: int) -> dict[int, list[Want]]:
        """By broker, those to be fetched, whoever got least lately first.

        :param busy: brokers that are not to be asked now
        :param limit: of whom more bytes wait than this, no more is fetched
        """
        found: dict[int, list[Want]] = {}
        for node in self._schedule.brokers(now):
            if node in busy:
                continue
            ready = [e for e in self._schedule.take(node, now) if e.has_room(limit)]
            if ready:
                ready.sort(key=_turn)
                found[node] = [self._want(entry) for entry in ready]
        return found

    def holds(self, ticket: Ticket) -> bool:
        """Its question still stands."""
        entry = self._entries.get(ticket.partition)
        return entry is not None and entry.ticket == ticket.number

    @property
    def leaderless(self) -> Collection[TopicPartition]:
        """Those that wait for new metadata."""
        return self._leaderless.keys()

    @property
    def brokers(self) -> int:
        """How many lead what is assigned."""
        if self._brokers is None:
            leaders = [entry.leader for entry in self._entries.values()]
            self._brokers = len({each.node for each in leaders if each is not None})
        return self._brokers

    def next_try(self, now: float) -> float | None:
        """When a pause after a failure ends."""
        return self._schedule.next_try(now)

    # Answers

    def failed(self, tickets: Iterable[Ticket], now: float) -> None:
        """There is no answer, or none that helps: ask again after a pause."""
        for ticket in tickets:
            if (entry := self._answered(ticket)) is not None:
                self._pause(entry, now)
                entry.replica = None

    def found_committed(
        self, ticket: Ticket, committed: OffsetAndMetadata | None
    ) -> RotaError | None:
        """What the group has committed; the error if there is nothing, and no policy."""
        entry = self._answered(ticket)
        if entry is None:
            return None
        if committed is not None:
            self._start(entry, Position(committed.offset, committed.leader_epoch))
            return None
        if self._reset is None:
            return self._fail(entry, missing([entry.partition]))
        self._look_by_policy(entry, self._reset)
        return None

    def found_offset(self, ticket: Ticket, listed: ListedOffset | None, now: float) -> None:
        """The offset of what was looked for; None: no record is as young as that.

        Then it is the log's end, but as it was *before* the last look for the time: what is
        written between two questions must not be passed over.
        """
        entry = self._answered(ticket)
        if entry is None:
            return
        if entry.asks_end:
            entry.asks_end = False
            entry.end = None if listed is None else listed.offset
        elif listed is not None:
            self._start(entry, Position(listed.offset))
        elif entry.end is not None:
            self._start(entry, Position(entry.end))
        elif entry.target in {EARLIEST, LATEST}:
            self._pause(entry, now)
        else:
            entry.asks_end = True

    def found_end(self, ticket: Ticket, found: EpochEnd) -> RotaError | None:
        """Where the leader's log leaves the epoch of the last record that was read (KIP-320)."""
        entry = self._answered(ticket)
        if entry is None or entry.ahead is None or entry.handed is None:
            return None
        ahead, handed = entry.ahead, entry.handed
        if found.end == NO_OFFSET or found.epoch == NO_EPOCH:
            return self._by_policy(entry, truncated(entry.partition, handed, None))
        if found.end >= ahead.offset:
            self._move(entry, Stage.READING)
            return None
        self._drop_buffer(entry)
        if found.end >= handed.offset:
            # only what waited is gone; what was handed out may be of an older epoch, so look again
            again = handed.epoch is not None and handed.epoch != ahead.epoch
            self._move(entry, Stage.VALIDATION if again else Stage.READING)
            return None
        problem = truncated(entry.partition, handed, found)
        if self._reset is None:
            return self._fail(entry, lost(problem))
        self._warn(f"{problem}; it is read on there")
        entry.handed = entry.ahead = Position(found.end, found.epoch)
        self._move(entry, Stage.READING)
        return None

    def fetched(
        self, ticket: Ticket, answer: Fetched, reach: Reach | None, now: float
    ) -> tuple[Verdict, RotaError | None]:
        """A partition's answer to a Fetch; what to do with it, and what to raise.

        :param reach: how far its whole batches go; None: it has none
        """
        entry = self._answered(ticket)
        if entry is None or entry.ahead is None:
            return Verdict.NOTHING, None
        if answer.code != Code.NONE:
            return self._refused(entry, answer, now)
        entry.failures, entry.drains_first = 0, False
        self._note(entry, answer, now)
        if reach is None:
            return Verdict.NOTHING, None
        entry.ahead = reach.position
        self._weigh(entry, entry.buffered + len(answer.records))
        entry.drains_first = not reach.sound
        entry.turn = self._next()
        return Verdict.KEEP, None

    def hand(self, partition: TopicPartition, stamp: int, position: Position) -> None:
        """Everything before this was handed out."""
        entry = self._entries.get(partition)
        if entry is not None and entry.stamp == stamp:
            entry.handed = position

    def drained(self, partition: TopicPartition, stamp: int, size: int) -> None:
        """So many bytes wait no longer."""
        entry = self._entries.get(partition)
        if entry is not None and entry.stamp == stamp:
            self._weigh(entry, entry.buffered - size)
            self._schedule.touch(entry)

    # Within

    def _new(self, partition: TopicPartition) -> Entry:
        entry = Entry(partition, stamp=self._next(), turn=self._next())
        self._leaderless[partition] = entry
        self._schedule.touch(entry)
        return entry

    def _next(self) -> int:
        self._tickets += 1
        return self._tickets

    def _move(self, entry: Entry, stage: Stage) -> None:
        if stage is not entry.stage and stage not in MOVES[entry.stage]:
            raise AssertionError(f"{entry.partition}: no way from {entry.stage} to {stage}")
        entry.stage = stage
        self._weigh(entry, entry.buffered)
        entry.ticket, entry.failures, entry.retry_at = NO_TICKET, 0, 0.0
        self._schedule.touch(entry)
        self.changes += 1

    def _start(self, entry: Entry, position: Position) -> None:
        """Reads on there, validated or not."""
        entry.handed = entry.ahead = position
        self._drop_buffer(entry)
        self._move(entry, Stage.VALIDATION if entry.checkable else Stage.READING)

    def _look_for(self, entry: Entry, target: int) -> None:
        entry.handed = entry.ahead = None
        self._drop_buffer(entry)
        entry.target, entry.end, entry.asks_end = target, None, False
        self._move(entry, Stage.RESET)

    def _by_policy(self, entry: Entry, problem: str) -> RotaError | None:
        """There is nothing to read on at: but perhaps there is a policy."""
        if self._reset is None:
            return self._fail(entry, lost(problem))
        self._warn(f"{problem}; it is read on as auto.offset.reset says")
        self._look_by_policy(entry, self._reset)
        return None

    def _look_by_policy(self, entry: Entry, reset: int | Callable[[], int]) -> None:
        self._look_for(entry, reset if isinstance(reset, int) else reset())

    def _fail(self, entry: Entry, error: RotaError) -> RotaError:
        self._drop_buffer(entry)
        self._move(entry, Stage.FAILED)
        return error

    def _drop_buffer(self, entry: Entry) -> None:
        entry.stumbled = False
        self._weigh(entry, 0)
        self.changes += 1
        entry.stamp = self._next()
        entry.ahead = entry.handed
        entry.drains_first = False

    def _weigh(self, entry: Entry, buffered: int) -> None:
        """So many bytes of it wait now; all of them rest, or none."""
        resting = 0 if entry.gives and not entry.stumbled else buffered
        self.buffered += buffered - entry.buffered
        self.resting += resting - entry.resting
        entry.buffered, entry.resting = buffered, resting

    def _ask(self, entry: Entry) -> Ticket:
        entry.ticket = self._next()
        return Ticket(entry.partition, entry.ticket)

    def _answered(self, ticket: Ticket) -> Entry | None:
        """Whom an answer concerns; None: it is of the past."""
        entry = self._entries.get(ticket.partition)
        if entry is None or entry.ticket != ticket.number:
            return None
        entry.ticket = NO_TICKET
        self._schedule.touch(entry)
        return entry

    def _want(self, entry: Entry) -> Want:
        if entry.ahead is None or entry.leader is None:
            raise AssertionError(f"{entry.partition} is read, but nobody knows from where")
        return Want(self._ask(entry), entry.ahead.offset, entry.leader.epoch)

    def _pause(self, entry: Entry, now: float) -> None:
        entry.failures += 1
        entry.retry_at = now + self._backoff(entry.failures)
        self._schedule.pause(entry)

    def _note(self, entry: Entry, answer: Fetched, now: float) -> None:
        """What an answer says beside its records."""
        if answer.high_watermark >= 0:
            entry.high_watermark = answer.high_watermark
        if answer.last_stable >= 0:
            entry.last_stable = answer.last_stable
        if answer.log_start >= 0:
            entry.log_start = answer.log_start
        if answer.preferred_replica >= 0 and answer.preferred_replica != entry.replica:
            entry.replica, entry.lease = answer.preferred_replica, now + self._lease

    def _refused(
        self, entry: Entry, answer: Fetched, now: float
    ) -> tuple[Verdict, RotaError | None]:
        found = verdict(answer.code)
        if found in {Verdict.AGAIN, Verdict.REFRESH}:
            self._pause(entry, now)
            entry.replica = None
            return found, None
        if entry.replica is not None and found is Verdict.RANGE:
            entry.replica = None  # a follower may be behind; the leader knows
            return Verdict.AGAIN, None
        if entry.buffered:
            entry.drains_first = True
            return Verdict.NOTHING, None
        if found is Verdict.RANGE:
            start = answer.log_start if answer.log_start >= 0 else entry.log_start
            problem = out_of_range(answer, start, entry.high_watermark)
            return found, self._by_policy(entry, problem)
        self._pause(entry, now)
        return found, fetch_error(answer.code, entry.partition, answer.fetch_offset)


def _turn(entry: Entry) -> int:
    return entry.turn
