"""The state of every assigned partition: where it is read, and which request it needs next.

Pure: no clock and no IO. It is told what happened, and asked what to send. A partition's way to its
records::

    INITIALIZING ──committed offset──> FETCHING <─────────────┐
        │ none                         ^ │ ^ leader's epoch   │ log is unchanged up to there
        v                              │ │ └──changed──> AWAIT_VALIDATION
    AWAIT_RESET ──offset by policy─────┘ │                    │ truncated: where the logs diverge
        ^                                │                    │
        └─────out of range───────────────┴────────────────────┘
    FAILED: without a policy (``auto.offset.reset=none``); only a seek leads on

A partition has two positions: up to where records were handed out, and up to where they were
fetched ahead. A response carries the token of its request: after a seek, a revocation or a change
of leaders the partition has another token, and the response is dropped. Buffered records carry the
buffer version of their partition, which a seek or a reset changes. Times are seconds of one
monotonic clock.

``ReadyPartitions`` finds the partitions that need a request without looking at all of them: with
thousands of partitions few change at a time. A partition that changes is *touched*, and the next
look sorts the touched ones alone: into the queue of the request they need, into the heap of those
whose pause has not ended, or nowhere until they are touched again. A partition may change between
two looks, so its queue is checked once more when it is taken.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rota.client.fetch import FetchedPartition
from rota.client.offsets import EARLIEST, LATEST, EpochEndOffset, ListedOffset, OffsetQuery
from rota.client.retry import STALE_METADATA_CODES, TRANSIENT_CODES, partition_error
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import NO_LEADER_EPOCH, NO_OFFSET, OffsetAndMetadata, TopicPartition
from rota.errors import Code, NoOffset, RecordError, RotaError

NO_TOKEN = 0


class FetchState(enum.Enum):
    """The state of a partition on the way to its records."""

    #: It asks for the group's committed offset.
    INITIALIZING = "committed"
    #: It asks its leader for the first, the last or a time's offset.
    AWAIT_RESET = "reset"
    #: It asks whether the leader's log still is what was read so far (KIP-320).
    AWAIT_VALIDATION = "validation"
    FETCHING = "reading"
    #: Nobody says where to read on.
    FAILED = "failed"


#: A seek leads from everywhere to all but COMMITTED and FAILED.
TRANSITIONS: Mapping[FetchState, frozenset[FetchState]] = {
    FetchState.INITIALIZING: frozenset(FetchState) - {FetchState.INITIALIZING},
    FetchState.AWAIT_RESET: frozenset(FetchState) - {FetchState.INITIALIZING, FetchState.FAILED},
    FetchState.AWAIT_VALIDATION: frozenset(FetchState) - {FetchState.INITIALIZING},
    FetchState.FETCHING: frozenset(FetchState) - {FetchState.INITIALIZING},
    FetchState.FAILED: frozenset(
        {FetchState.FETCHING, FetchState.AWAIT_VALIDATION, FetchState.AWAIT_RESET}
    ),
}


class FetchPosition(NamedTuple):
    """The next offset to read, and the leader epoch of the record before it, if known."""

    offset: int
    epoch: int | None = None


class LeaderAndEpoch(NamedTuple):
    """Who leads a partition."""

    node: int
    epoch: int = NO_LEADER_EPOCH


class RequestToken(NamedTuple):
    """Identifies a request of a partition; a response is only valid with the current token."""

    partition: TopicPartition
    number: int


class FetchablePartition(NamedTuple):
    """A partition to fetch."""

    token: RequestToken
    offset: int
    leader_epoch: int


class ResponseEnd(NamedTuple):
    """Where the whole batches of a response end."""

    position: FetchPosition
    #: Nothing behind them is damaged: it makes sense to fetch on from there.
    is_sound: bool = True


@dataclass(slots=True)
class PartitionState:
    """The state of one assigned partition."""

    partition: TopicPartition
    #: Of what waits: all that has another one is of the past.
    buffer_version: int
    #: They are asked for in this order: who got something goes to the end.
    fetch_order: int
    state: FetchState = FetchState.INITIALIZING
    consumed_position: FetchPosition | None = None
    fetch_position: FetchPosition | None = None
    #: In RESET, what to look for.
    reset_target: int = LATEST
    #: In RESET by time: no record is as young, so look for the log's end.
    asks_log_end: bool = False
    #: That end: to be read from if a second look for the time finds nothing either.
    log_end: int | None = None
    #: Of the question under way.
    token: int = NO_TOKEN
    leader: LeaderAndEpoch | None = None
    #: Where the leader wants this client to read instead (KIP-392).
    preferred_replica: int | None = None
    #: Until when.
    replica_until: float = 0.0
    paused: bool = False
    withheld: bool = False
    #: Its next record cannot be read; it waits for the application.
    has_bad_record: bool = False
    #: Bytes that wait to be handed out.
    buffered_bytes: int = 0
    #: Those of them that are not to be handed out now, as they were last counted.
    inactive_bytes: int = 0
    #: What comes next is trouble: the records before it are to be handed out first.
    drain_before_fetch: bool = False
    failures: int = 0
    retry_at: float = 0.0
    high_watermark: int | None = None
    last_stable: int | None = None
    log_start: int | None = None

    @property
    def hands_out(self) -> bool:
        """Its records may be handed out."""
        return self.state is FetchState.FETCHING and not self.paused and not self.withheld

    def has_room(self, limit: int) -> bool:
        """More may be fetched of it: not more bytes than that wait already."""
        return self.buffered_bytes <= limit and not (
            self.drain_before_fetch and self.buffered_bytes
        )

    @property
    def can_validate(self) -> bool:
        """Both epochs that a validation needs are known."""
        leader, position = self.leader, self.fetch_position
        if leader is None or position is None:
            return False
        return position.epoch is not None and leader.epoch != NO_LEADER_EPOCH


def ignore_warning(_: str) -> None:
    """Drops the warning."""


class Positions:
    """The assigned partitions, and what to request for them."""

    def __init__(
        self,
        *,
        reset: int | Callable[[], int] | None,
        backoff: Callable[[int], float],
        lease: float,
        warn: Callable[[str], None] = ignore_warning,
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
        self._entries: dict[TopicPartition, PartitionState] = {}
        self._schedule = ReadyPartitions()
        self._leaderless: dict[TopicPartition, PartitionState] = {}
        #: Counted when somebody asks, and kept.
        self._brokers: int | None = None
        self._tickets = NO_TOKEN
        #: Bytes that wait, of all partitions.
        self.buffered_bytes = 0
        #: Those of partitions that do not give now, or whose next record cannot be read.
        self.inactive_bytes = 0
        #: Goes up when something that waits may be of the past now, or be handed out again.
        self.changes = 0

    # The application's side

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """From now on these and no others; those that stay go on where they are."""
        old = self._entries
        self._entries = {each: old.get(each) or self._new(each) for each in partitions}
        for name, entry in old.items():
            if name not in self._entries:
                self._schedule.drop(entry)
                self._leaderless.pop(name, None)
                self._set_buffered(entry, 0)
        for entry in self._entries.values():
            if entry.withheld:
                entry.withheld = False
                self._set_buffered(entry, entry.buffered_bytes)
                self._schedule.touch(entry)
        self._brokers = None
        self.changes += 1

    def withhold(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these; the next assignment ends it."""
        for each in partitions:
            if (entry := self._entries.get(each)) is not None:
                entry.withheld = True
                self._set_buffered(entry, entry.buffered_bytes)

    def pause(self, partition: TopicPartition, paused: bool) -> None:
        """Fetch no more of it and keep what there is, or go on."""
        entry = self._entries[partition]
        entry.paused = paused
        self._set_buffered(entry, entry.buffered_bytes)
        if not paused:
            self._schedule.touch(entry)
            self.changes += 1

    def mark_bad_record(self, partition: TopicPartition) -> None:
        """Its next record cannot be read; it waits for the application."""
        entry = self._entries[partition]
        entry.has_bad_record = True
        self._set_buffered(entry, entry.buffered_bytes)

    def release_inactive(self, most: int) -> None:
        """Lets go of what rests until it is not more than that, or of one partition alone. It is
        fetched again when its turn has come.
        """
        resting = [
            e for e in self._entries.values() if e.inactive_bytes and e.state is FetchState.FETCHING
        ]
        for entry in resting[:-1]:
            if self.inactive_bytes <= most:
                break
            self._drop_buffer(entry)
            self._transition(entry, FetchState.FETCHING)

    def seek(self, partition: TopicPartition, position: FetchPosition) -> None:
        """Read on there; with an epoch, after a look whether it still is the same log."""
        self._start_at(self._entries[partition], position)

    def seek_to(self, partition: TopicPartition, target: int) -> None:
        """Read on at the first, the last or a time's offset, once it is known."""
        self._await_reset(self._entries[partition], target)

    def __contains__(self, partition: object) -> bool:
        return partition in self._entries

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(list(self._entries.values()))

    def __getitem__(self, partition: TopicPartition) -> PartitionState:
        return self._entries[partition]

    def get(self, partition: TopicPartition) -> PartitionState | None:
        """What is known of a partition; None if it is not assigned."""
        return self._entries.get(partition)

    def consumed_positions(self, *only: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where what was handed out ends, of all or of these. May be asked for from another
        thread.
        """
        known = self._entries
        entries = [known[each] for each in only if each in known] if only else list(known.values())
        return {
            entry.partition: OffsetAndMetadata(handed.offset, "", handed.epoch)
            for entry in entries
            if (handed := entry.consumed_position) is not None
        }

    # What is to be done

    def update_leaders(self, leader_of: Callable[[TopicPartition], LeaderAndEpoch | None]) -> None:
        """Applies new metadata: leaders and their epochs."""
        for entry in self._entries.values():
            leader = leader_of(entry.partition)
            if leader is None or leader == entry.leader:
                continue
            entry.leader, entry.preferred_replica, self._brokers = leader, None, None
            self._leaderless.pop(entry.partition, None)
            self._schedule.touch(entry)
            if entry.state is not FetchState.INITIALIZING:  # that is asked of the coordinator
                entry.token, entry.failures, entry.retry_at = NO_TOKEN, 0, 0.0
            if entry.state is FetchState.FETCHING and entry.can_validate:
                self._transition(entry, FetchState.AWAIT_VALIDATION)

    def requests_for_committed(self, now: float) -> tuple[RequestToken, ...]:
        """Returns tokens for partitions whose committed offset is needed."""
        return tuple(
            [
                self._new_token(entry)
                for entry in self._schedule.take_partitions(FetchState.INITIALIZING, now)
            ]
        )

    def requests_for_reset(self, now: float) -> dict[int, dict[RequestToken, OffsetQuery]]:
        """Returns ListOffsets queries for partitions to be reset, by leader."""
        found: dict[int, dict[RequestToken, OffsetQuery]] = {}
        for entry in self._schedule.take_partitions(FetchState.AWAIT_RESET, now):
            if entry.leader is not None:
                look = OffsetQuery(
                    LATEST if entry.asks_log_end else entry.reset_target, entry.leader.epoch
                )
                found.setdefault(entry.leader.node, {})[self._new_token(entry)] = look
        return found

    def requests_for_validation(self, now: float) -> dict[int, dict[RequestToken, OffsetQuery]]:
        """Returns OffsetForLeaderEpoch queries for partitions to be validated, by leader."""
        found: dict[int, dict[RequestToken, OffsetQuery]] = {}
        for entry in self._schedule.take_partitions(FetchState.AWAIT_VALIDATION, now):
            leader, ahead = entry.leader, entry.fetch_position
            if leader is not None and ahead is not None and ahead.epoch is not None:
                check = OffsetQuery(ahead.epoch, leader.epoch)
                found.setdefault(leader.node, {})[self._new_token(entry)] = check
        return found

    def requests_for_fetch(
        self, now: float, busy: Collection[int], limit: int
    ) -> dict[int, list[FetchablePartition]]:
        """Returns the partitions to fetch, by broker; those that got records longest ago come
        first.

        :param busy: brokers that cannot take a Fetch now
        :param limit: partitions with more buffered bytes than this are left out
        """
        found: dict[int, list[FetchablePartition]] = {}
        for node in self._schedule.brokers(now):
            if node in busy:
                continue
            ready = [e for e in self._schedule.take_partitions(node, now) if e.has_room(limit)]
            if ready:
                ready.sort(key=_fetch_order)
                found[node] = [self._fetchable(entry) for entry in ready]
        return found

    def is_current(self, ticket: RequestToken) -> bool:
        """Returns whether this is still the partition's current request."""
        entry = self._entries.get(ticket.partition)
        return entry is not None and entry.token == ticket.number

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

    def next_retry_at(self, now: float) -> float | None:
        """When a pause after a failure ends."""
        return self._schedule.next_retry_at(now)

    # Answers

    def handle_failure(self, tickets: Iterable[RequestToken], now: float) -> None:
        """Handles requests without a useful response: retries after a pause."""
        for ticket in tickets:
            if (entry := self._take_token(ticket)) is not None:
                self._pause(entry, now)
                entry.preferred_replica = None

    def handle_committed(
        self, ticket: RequestToken, committed: OffsetAndMetadata | None
    ) -> RotaError | None:
        """What the group has committed; the error if there is nothing, and no policy."""
        entry = self._take_token(ticket)
        if entry is None:
            return None
        if committed is not None:
            self._start_at(entry, FetchPosition(committed.offset, committed.leader_epoch))
            return None
        if self._reset is None:
            return self._fail(entry, missing_offset_error([entry.partition]))
        self._start_reset(entry, self._reset)
        return None

    def handle_listed_offset(
        self, ticket: RequestToken, listed: ListedOffset | None, now: float
    ) -> None:
        """The offset of what was looked for; None: no record is as young as that.

        Then it is the log's end, but as it was *before* the last look for the time: what is
        written between two questions must not be passed over.
        """
        entry = self._take_token(ticket)
        if entry is None:
            return
        if entry.asks_log_end:
            entry.asks_log_end = False
            entry.log_end = None if listed is None else listed.offset
        elif listed is not None:
            self._start_at(entry, FetchPosition(listed.offset))
        elif entry.log_end is not None:
            self._start_at(entry, FetchPosition(entry.log_end))
        elif entry.reset_target in {EARLIEST, LATEST}:
            self._pause(entry, now)
        else:
            entry.asks_log_end = True

    def handle_epoch_end(self, ticket: RequestToken, found: EpochEndOffset) -> RotaError | None:
        """Where the leader's log leaves the epoch of the last record that was read (KIP-320)."""
        entry = self._take_token(ticket)
        if entry is None or entry.fetch_position is None or entry.consumed_position is None:
            return None
        ahead, handed = entry.fetch_position, entry.consumed_position
        if found.end_offset == NO_OFFSET or found.leader_epoch == NO_LEADER_EPOCH:
            return self._reset_or_fail(entry, truncation_text(entry.partition, handed, None))
        if found.end_offset >= ahead.offset:
            self._transition(entry, FetchState.FETCHING)
            return None
        self._drop_buffer(entry)
        if found.end_offset >= handed.offset:
            # only what waited is gone; what was handed out may be of an older epoch, so look again
            again = handed.epoch is not None and handed.epoch != ahead.epoch
            self._transition(entry, FetchState.AWAIT_VALIDATION if again else FetchState.FETCHING)
            return None
        problem = truncation_text(entry.partition, handed, found)
        if self._reset is None:
            return self._fail(entry, lost_position_error(problem))
        self._warn(f"{problem}; it is read on there")
        entry.consumed_position = entry.fetch_position = FetchPosition(
            found.end_offset, found.leader_epoch
        )
        self._transition(entry, FetchState.FETCHING)
        return None

    def handle_fetched(
        self, ticket: RequestToken, answer: FetchedPartition, reach: ResponseEnd | None, now: float
    ) -> tuple[FetchOutcome, RotaError | None]:
        """Handles a partition's Fetch response; returns what to do with it, and an error to raise.

        :param reach: where its whole batches end; None: it has no records
        """
        entry = self._take_token(ticket)
        if entry is None or entry.fetch_position is None:
            return FetchOutcome.NO_RECORDS, None
        if answer.error_code != Code.NONE:
            return self._handle_error_code(entry, answer, now)
        entry.failures, entry.drain_before_fetch = 0, False
        self._update_from_response(entry, answer, now)
        if reach is None:
            return FetchOutcome.NO_RECORDS, None
        entry.fetch_position = reach.position
        self._set_buffered(entry, entry.buffered_bytes + len(answer.records))
        entry.drain_before_fetch = not reach.is_sound
        entry.fetch_order = self._next()
        return FetchOutcome.HAS_RECORDS, None

    def advance_consumed(
        self, partition: TopicPartition, stamp: int, position: FetchPosition
    ) -> None:
        """Records that everything before this position was handed out."""
        entry = self._entries.get(partition)
        if entry is not None and entry.buffer_version == stamp:
            entry.consumed_position = position

    def remove_buffered(self, partition: TopicPartition, stamp: int, size: int) -> None:
        """Subtracts bytes that are no longer buffered."""
        entry = self._entries.get(partition)
        if entry is not None and entry.buffer_version == stamp:
            self._set_buffered(entry, entry.buffered_bytes - size)
            self._schedule.touch(entry)

    # Within

    def _new(self, partition: TopicPartition) -> PartitionState:
        entry = PartitionState(partition, buffer_version=self._next(), fetch_order=self._next())
        self._leaderless[partition] = entry
        self._schedule.touch(entry)
        return entry

    def _next(self) -> int:
        self._tickets += 1
        return self._tickets

    def _transition(self, entry: PartitionState, stage: FetchState) -> None:
        if stage is not entry.state and stage not in TRANSITIONS[entry.state]:
            raise AssertionError(f"{entry.partition}: no way from {entry.state} to {stage}")
        entry.state = stage
        self._set_buffered(entry, entry.buffered_bytes)
        entry.token, entry.failures, entry.retry_at = NO_TOKEN, 0, 0.0
        self._schedule.touch(entry)
        self.changes += 1

    def _start_at(self, entry: PartitionState, position: FetchPosition) -> None:
        """Reads on there, validated or not."""
        entry.consumed_position = entry.fetch_position = position
        self._drop_buffer(entry)
        self._transition(
            entry, FetchState.AWAIT_VALIDATION if entry.can_validate else FetchState.FETCHING
        )

    def _await_reset(self, entry: PartitionState, target: int) -> None:
        entry.consumed_position = entry.fetch_position = None
        self._drop_buffer(entry)
        entry.reset_target, entry.log_end, entry.asks_log_end = target, None, False
        self._transition(entry, FetchState.AWAIT_RESET)

    def _reset_or_fail(self, entry: PartitionState, problem: str) -> RotaError | None:
        """Resets by ``auto.offset.reset``; without a policy, returns the error."""
        if self._reset is None:
            return self._fail(entry, lost_position_error(problem))
        self._warn(f"{problem}; it is read on as auto.offset.reset says")
        self._start_reset(entry, self._reset)
        return None

    def _start_reset(self, entry: PartitionState, reset: int | Callable[[], int]) -> None:
        self._await_reset(entry, reset if isinstance(reset, int) else reset())

    def _fail(self, entry: PartitionState, error: RotaError) -> RotaError:
        self._drop_buffer(entry)
        self._transition(entry, FetchState.FAILED)
        return error

    def _drop_buffer(self, entry: PartitionState) -> None:
        entry.has_bad_record = False
        self._set_buffered(entry, 0)
        self.changes += 1
        entry.buffer_version = self._next()
        entry.fetch_position = entry.consumed_position
        entry.drain_before_fetch = False

    def _set_buffered(self, entry: PartitionState, buffered: int) -> None:
        """So many bytes of it wait now; all of them rest, or none."""
        resting = 0 if entry.hands_out and not entry.has_bad_record else buffered
        self.buffered_bytes += buffered - entry.buffered_bytes
        self.inactive_bytes += resting - entry.inactive_bytes
        entry.buffered_bytes, entry.inactive_bytes = buffered, resting

    def _new_token(self, entry: PartitionState) -> RequestToken:
        entry.token = self._next()
        return RequestToken(entry.partition, entry.token)

    def _take_token(self, ticket: RequestToken) -> PartitionState | None:
        """Whom an answer concerns; None: it is of the past."""
        entry = self._entries.get(ticket.partition)
        if entry is None or entry.token != ticket.number:
            return None
        entry.token = NO_TOKEN
        self._schedule.touch(entry)
        return entry

    def _fetchable(self, entry: PartitionState) -> FetchablePartition:
        if entry.fetch_position is None or entry.leader is None:
            raise AssertionError(f"{entry.partition} is read, but nobody knows from where")
        return FetchablePartition(
            self._new_token(entry), entry.fetch_position.offset, entry.leader.epoch
        )

    def _pause(self, entry: PartitionState, now: float) -> None:
        entry.failures += 1
        entry.retry_at = now + self._backoff(entry.failures)
        self._schedule.pause(entry)

    def _update_from_response(
        self, entry: PartitionState, answer: FetchedPartition, now: float
    ) -> None:
        """What an answer says beside its records."""
        if answer.high_watermark >= 0:
            entry.high_watermark = answer.high_watermark
        if answer.last_stable_offset >= 0:
            entry.last_stable = answer.last_stable_offset
        if answer.log_start_offset >= 0:
            entry.log_start = answer.log_start_offset
        if (
            answer.preferred_read_replica >= 0
            and answer.preferred_read_replica != entry.preferred_replica
        ):
            entry.preferred_replica, entry.replica_until = (
                answer.preferred_read_replica,
                now + self._lease,
            )

    def _handle_error_code(
        self, entry: PartitionState, answer: FetchedPartition, now: float
    ) -> tuple[FetchOutcome, RotaError | None]:
        found = classify_error_code(answer.error_code)
        if found in {FetchOutcome.RETRY, FetchOutcome.REFRESH_METADATA}:
            self._pause(entry, now)
            entry.preferred_replica = None
            return found, None
        if entry.preferred_replica is not None and found is FetchOutcome.OUT_OF_RANGE:
            entry.preferred_replica = None  # a follower may be behind; the leader knows
            return FetchOutcome.RETRY, None
        if entry.buffered_bytes:
            entry.drain_before_fetch = True
            return FetchOutcome.NO_RECORDS, None
        if found is FetchOutcome.OUT_OF_RANGE:
            start = answer.log_start_offset if answer.log_start_offset >= 0 else entry.log_start
            problem = out_of_range_text(answer, start, entry.high_watermark)
            return found, self._reset_or_fail(entry, problem)
        self._pause(entry, now)
        return found, fetch_error(answer.error_code, entry.partition, answer.fetch_offset)


def _fetch_order(entry: PartitionState) -> int:
    return entry.fetch_order


#: A stage whose question is to be asked, or the broker to fetch from.
QueueKey: TypeAlias = FetchState | int


class ReadyPartitions:
    """Partitions by the request that they need next."""

    __slots__ = ("_paused", "_pauses", "_queues", "_touched")

    def __init__(self) -> None:
        self._touched: dict[TopicPartition, PartitionState] = {}
        self._queues: dict[QueueKey, dict[TopicPartition, PartitionState]] = {}
        #: A heap: when a pause ends, and whose. It may have been cut short meanwhile.
        self._paused: list[tuple[float, int, PartitionState]] = []
        self._pauses = 0  # pauses so far; Python 3.14 cannot copy an itertools.count

    def touch(self, entry: PartitionState) -> None:
        """Marks a partition that may need a request now."""
        self._touched[entry.partition] = entry

    def pause(self, entry: PartitionState) -> None:
        """It has something to ask when its pause is over."""
        self._pauses += 1
        heapq.heappush(self._paused, (entry.retry_at, self._pauses, entry))

    def drop(self, entry: PartitionState) -> None:
        """It asks nothing more."""
        entry.retry_at = 0.0
        self._touched.pop(entry.partition, None)
        for place in self._queues.values():
            place.pop(entry.partition, None)

    def brokers(self, now: float) -> list[int]:
        """Whom there is something to fetch from."""
        self._sort_touched(now)
        return [each for each, own in self._queues.items() if isinstance(each, int) and own]

    def take_partitions(self, place: QueueKey, now: float) -> list[PartitionState]:
        """Takes all partitions of a queue; they come back when they are touched."""
        self._sort_touched(now)
        found = self._queues.pop(place, None)
        return [] if found is None else [e for e in found.values() if _queue_key(e, now) == place]

    def next_retry_at(self, now: float) -> float | None:
        """When the next pause ends that has not ended yet."""
        self._wake_paused(now)
        return self._paused[0][0] if self._paused else None

    def _sort_touched(self, now: float) -> None:
        self._wake_paused(now)
        if not self._touched:
            return
        for name, entry in self._touched.items():
            if entry.preferred_replica is not None and entry.replica_until < now:
                entry.preferred_replica = None
            place = _queue_key(entry, now)
            if place is not None:
                self._queues.setdefault(place, {})[name] = entry
        self._touched.clear()

    def _wake_paused(self, now: float) -> None:
        """Touches those whose pause is over, and forgets pauses that were cut short."""
        later = self._paused
        while later and (later[0][0] <= now or later[0][2].retry_at != later[0][0]):
            at, _, entry = heapq.heappop(later)
            if entry.retry_at == at:
                self.touch(entry)


def _queue_key(entry: PartitionState, now: float) -> QueueKey | None:
    """Where it belongs; None: it has nothing to ask."""
    if entry.token or entry.retry_at > now:
        return None
    stage = entry.state
    if stage is FetchState.INITIALIZING:
        return None if entry.withheld else stage
    if entry.leader is None or stage is FetchState.FAILED:
        return None
    if stage is not FetchState.FETCHING:
        return stage
    if not entry.hands_out:
        return None
    return entry.leader.node if entry.preferred_replica is None else entry.preferred_replica


class FetchOutcome(enum.Enum):
    """What to do with a partition after its Fetch response."""

    #: There are records: they wait for their turn.
    HAS_RECORDS = "keep"
    #: There is nothing new, or the answer is of the past.
    NO_RECORDS = "nothing"
    #: It will pass: ask again after a pause.
    RETRY = "again"
    #: The metadata are old: ask again, after a pause, with new ones.
    REFRESH_METADATA = "refresh"
    #: There is no such offset.
    OUT_OF_RANGE = "range"
    #: The application must know.
    RAISE = "raise"


def classify_error_code(code: int) -> FetchOutcome:
    """Classifies a partition's error code; unknown codes are raised, with their number."""
    if code == Code.NONE:
        return FetchOutcome.HAS_RECORDS
    if code in TRANSIENT_CODES:
        return FetchOutcome.RETRY
    if code in STALE_METADATA_CODES:
        return FetchOutcome.REFRESH_METADATA
    if code == Code.OFFSET_OUT_OF_RANGE:
        return FetchOutcome.OUT_OF_RANGE
    return FetchOutcome.RAISE


def fetch_error(code: int, partition: TopicPartition, offset: int) -> RotaError:
    """The error for a Fetch that was refused at an offset."""
    if code == Code.CORRUPT_MESSAGE:
        problem = "the broker finds that the records here are damaged (CORRUPT_MESSAGE)"
        return RecordError(*partition, offset, problem, next_offset=offset + 1)
    return partition_error(code, partition, f"to fetch from offset {offset} of")


def missing_offset_error(partitions: Sequence[TopicPartition]) -> NoOffset:
    """Returns the error for partitions without a committed offset."""
    names = list_first_names([str(each) for each in partitions])
    return NoOffset(
        Code.NONE,
        f"no offset is committed for {names}, and auto.offset.reset is none: seek, or set a policy",
    )


def out_of_range_text(answer: FetchedPartition, start: int | None, end: int | None) -> str:
    """Describes an offset that is out of range."""
    seen = [
        *([] if start is None else [f"to begin at {start}"]),
        *([] if end is None else [f"to end before {end}"]),
    ]
    known = f" (the log was last seen {' and '.join(seen)})" if seen else ""
    return f"offset {answer.fetch_offset} of {answer.partition} is out of range{known}"


def truncation_text(
    partition: TopicPartition, handed: FetchPosition, found: EpochEndOffset | None
) -> str:
    """Describes a log that was truncated below what was read."""
    part = (
        f"its leader knows nothing of epoch {handed.epoch}"
        if found is None
        else f"its leader's log parts from what was read at offset {found.end_offset} of epoch "
        f"{found.leader_epoch}"
    )
    return (
        f"{partition} was truncated below offset {handed.offset}, which was read in epoch "
        f"{handed.epoch}: {part}"
    )


def lost_position_error(problem: str) -> NoOffset:
    """Returns the error for a lost position without a reset policy."""
    text = f"{problem}; auto.offset.reset is none: seek, or set a policy"
    return NoOffset(Code.OFFSET_OUT_OF_RANGE, text)
