"""The state of every assigned partition: where it is read, and which request it needs next.

Pure: no clock and no IO. The path of a partition to its records::

    INITIALIZING ──committed offset──> FETCHING <─────────────┐
        │ none                         ^ │ ^ leader's epoch   │ log unchanged, or truncated:
        v                              │ │ └──changed──> AWAIT_VALIDATION  where it diverges
    AWAIT_RESET ──offset by policy─────┘ │                    │ the leader has no such epoch
        ^                                │                    │
        └─────out of range───────────────┴────────────────────┘
    FAILED: without a policy (``auto.offset.reset=none``); only a seek leads on

A committed offset or a seek with a leader epoch goes to AWAIT_VALIDATION first.

A partition has two positions: the end of the records that were handed out, and the end of those
that were fetched. A response carries the token of its request: after a seek, a revocation or a
change of leaders the partition has another token, and the response is dropped. Buffered records
carry the buffer version of their partition, which a seek or a reset changes. Times are seconds of
one monotonic clock.

``ReadyPartitions`` finds the partitions that need a request without looking at all of them: with
thousands of partitions few change at a time. A partition that changes is *touched*. Only touched
partitions are sorted into the queue of the request that they need, if they need one. A partition
may change after that, so its queue is checked once more when it is taken.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from rota.client import fetch
from rota.client.fetch import FetchedPartition, FetchOutcome, FetchPosition, FetchSource
from rota.client.offsets import EARLIEST, LATEST, EpochEndOffset, ListedOffset, OffsetQuery
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import NO_LEADER_EPOCH, NO_OFFSET, OffsetAndMetadata, TopicPartition
from rota.errors import Code, NoOffset, RotaError

NO_TOKEN = 0


class FetchState(enum.Enum):
    """The state of a partition on the way to its records."""

    INITIALIZING = "initializing"  # needs the group's committed offset
    AWAIT_RESET = "await_reset"  # its leader is asked for the first, last or timed offset
    #: Needs to know whether the leader's log was truncated below the position (KIP-320).
    AWAIT_VALIDATION = "await_validation"
    FETCHING = "fetching"
    FAILED = "failed"  # no position, and no policy to find one


#: A seek leads from every state to all but INITIALIZING and FAILED.
AFTER_SEEK = frozenset(FetchState) - {FetchState.INITIALIZING, FetchState.FAILED}
TRANSITIONS: Mapping[FetchState, frozenset[FetchState]] = {
    FetchState.INITIALIZING: AFTER_SEEK | {FetchState.FAILED},
    FetchState.AWAIT_RESET: AFTER_SEEK,
    FetchState.AWAIT_VALIDATION: AFTER_SEEK | {FetchState.FAILED},
    FetchState.FETCHING: AFTER_SEEK | {FetchState.FAILED},
    FetchState.FAILED: AFTER_SEEK,
}


class LeaderAndEpoch(NamedTuple):
    node: int
    epoch: int = NO_LEADER_EPOCH


class RequestToken(NamedTuple):
    """Identifies a request of a partition; a response is only valid with the current token."""

    partition: TopicPartition
    number: int


class FetchablePartition(NamedTuple):
    token: RequestToken
    offset: int
    leader_epoch: int


@dataclass(slots=True)
class PartitionState:
    partition: TopicPartition
    buffer_version: int  # version of the buffered records: those with another one are outdated
    fetch_order: int  # the order of requests; a partition that gets records moves to the end
    state: FetchState = FetchState.INITIALIZING
    consumed_position: FetchPosition | None = None
    fetch_position: FetchPosition | None = None
    reset_target: int = LATEST  # in AWAIT_RESET: the timestamp of the ListOffsets request
    asks_log_end: bool = False  # AWAIT_RESET by time without such a record: request the log end
    log_end: int | None = None  # that log end: the position if no record is found again
    token: int = NO_TOKEN  # the token of the request in flight
    leader: LeaderAndEpoch | None = None
    source: FetchSource = field(default_factory=FetchSource)
    preferred_replica_expires_at: float = 0.0  # when the preferred read replica expires
    paused: bool = False
    pending_revocation: bool = False
    has_bad_record: bool = False  # unreadable next record: it waits for the application
    buffered_bytes: int = 0  # bytes that wait to be handed out
    inactive_bytes: int = 0  # bytes among them that must not be handed out now
    drain_before_fetch: bool = False  # an error comes after the records before it
    high_watermark: int | None = None
    last_stable: int | None = None
    log_start: int | None = None

    @property
    def hands_out(self) -> bool:
        """Whether records of the partition may be handed out."""
        return self.state is FetchState.FETCHING and not self.paused and not self.pending_revocation

    def has_room(self, limit: int) -> bool:
        """Whether the partition may be fetched: at most ``limit`` bytes are buffered."""
        return self.buffered_bytes <= (0 if self.drain_before_fetch else limit)

    @property
    def can_validate(self) -> bool:
        """Whether both epochs that a validation needs are known."""
        leader, position = self.leader, self.fetch_position
        has_epoch = position is not None and position.epoch is not None
        return has_epoch and leader is not None and leader.epoch != NO_LEADER_EPOCH


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Positions:
    """The assigned partitions, and what to request for them."""

    #: ListOffsets timestamp for partitions without a committed offset, or a function that returns
    #: it (``by_duration``); None if that is an error.
    reset: int | Callable[[], int] | None
    backoff: Callable[[int], float]  # returns the pause after a number of failures in a row
    preferred_replica_expiry: float  # seconds to read from a replica that the leader has named
    warn: Callable[[str], None] = lambda _: None  # gets why records come again, or never
    _entries: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    _schedule: ReadyPartitions = field(default_factory=lambda: ReadyPartitions())  # noqa: PLW0108
    _leaderless: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    _brokers: int | None = None  # number of leaders; None: not counted since the last change
    _last_number: int = NO_TOKEN
    buffered_bytes: int = 0  # of all partitions
    inactive_bytes: int = 0  # of all partitions
    changes: int = 0  # rises when buffered records may be outdated, or may be handed out again

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Sets the assigned partitions; partitions that stay keep their position."""
        old = self._entries
        self._entries = {each: old.get(each) or self._new(each) for each in partitions}
        for name, entry in old.items():
            if name not in self._entries:
                self._schedule.drop(entry)
                self._leaderless.pop(name, None)
                self._set_buffered(entry, 0)
        for entry in self._entries.values():
            if entry.pending_revocation:
                entry.pending_revocation = False
                self._set_buffered(entry)
                self._schedule.touch(entry)
        self._brokers = None
        self.changes += 1

    def mark_pending_revocation(self, partitions: Iterable[TopicPartition]) -> None:
        """Hands out no records of these partitions until the next assignment."""
        for each in partitions:
            if (entry := self._entries.get(each)) is not None:
                entry.pending_revocation = True
                self._set_buffered(entry)

    def pause(self, partition: TopicPartition, paused: bool) -> None:
        entry = self._entries[partition]
        entry.paused = paused
        self._set_buffered(entry)
        if not paused:
            self._schedule.touch(entry)
            self.changes += 1

    def mark_bad_record(self, partition: TopicPartition) -> None:
        entry = self._entries[partition]
        entry.has_bad_record = True
        self._set_buffered(entry)

    def release_inactive(self, limit: int) -> None:
        """Drops inactive bytes until ``limit`` or one partition is left; they are fetched again."""
        fetching = [e for e in self._entries.values() if e.state is FetchState.FETCHING]
        inactive = [entry for entry in fetching if entry.inactive_bytes]
        for entry in inactive[:-1]:
            if self.inactive_bytes <= limit:
                break
            self._drop_buffer(entry)
            self._transition(entry, FetchState.FETCHING)

    def seek(self, partition: TopicPartition, position: FetchPosition) -> None:
        """Continues at a position; one with an epoch is validated first."""
        self._start_at(self._entries[partition], position)

    def seek_to(self, partition: TopicPartition, timestamp: int) -> None:
        """Continues at the offset of a ListOffsets timestamp, once it is known."""
        self._await_reset(self._entries[partition], timestamp)

    def __contains__(self, partition: object) -> bool:
        return partition in self._entries

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(list(self._entries.values()))

    def __getitem__(self, partition: TopicPartition) -> PartitionState:
        return self._entries[partition]

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._entries.get(partition)

    def consumed_positions(self, *only: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions after what was handed out; may be called from any thread."""
        known = self._entries
        entries = [known[each] for each in only if each in known] if only else list(known.values())
        return {
            entry.partition: OffsetAndMetadata(consumed.offset, "", consumed.epoch)
            for entry in entries
            if (consumed := entry.consumed_position) is not None
        }

    def update_leaders(self, leader_of: Callable[[TopicPartition], LeaderAndEpoch | None]) -> None:
        for entry in self._entries.values():
            leader = leader_of(entry.partition)
            if leader is None or leader == entry.leader:
                continue
            entry.leader, entry.source.replica, self._brokers = leader, None, None
            self._leaderless.pop(entry.partition, None)
            self._schedule.touch(entry)
            if entry.state is not FetchState.INITIALIZING:  # its request goes to the coordinator
                self._reset_request(entry)
            if entry.state is FetchState.FETCHING and entry.can_validate:
                self._transition(entry, FetchState.AWAIT_VALIDATION)

    def requests_for_committed(self, now: float) -> tuple[RequestToken, ...]:
        """Returns tokens for partitions whose committed offset is needed."""
        entries = self._schedule.take_partitions(FetchState.INITIALIZING, now)
        return tuple([self._new_token(entry) for entry in entries])

    def requests_for_reset(self, now: float) -> dict[int, dict[RequestToken, OffsetQuery]]:
        """Returns ListOffsets queries for partitions to be reset, by leader."""
        entries = self._schedule.take_partitions(FetchState.AWAIT_RESET, now)
        return self._queries_by_leader(
            (entry, LATEST if entry.asks_log_end else entry.reset_target) for entry in entries
        )

    def requests_for_validation(self, now: float) -> dict[int, dict[RequestToken, OffsetQuery]]:
        """Returns OffsetForLeaderEpoch queries for partitions to be validated, by leader."""
        entries = self._schedule.take_partitions(FetchState.AWAIT_VALIDATION, now)
        positions = [(entry, entry.fetch_position) for entry in entries]
        return self._queries_by_leader((each, ahead and ahead.epoch) for each, ahead in positions)

    def _queries_by_leader(
        self, targets: Iterable[tuple[PartitionState, int | None]]
    ) -> dict[int, dict[RequestToken, OffsetQuery]]:
        queries: dict[int, dict[RequestToken, OffsetQuery]] = {}
        for entry, target in targets:
            if entry.leader is not None and target is not None:
                query = OffsetQuery(target, entry.leader.epoch)
                queries.setdefault(entry.leader.node, {})[self._new_token(entry)] = query
        return queries

    def requests_for_fetch(
        self, now: float, busy: Collection[int], limit: int
    ) -> dict[int, list[FetchablePartition]]:
        """Returns the partitions to fetch by broker that is not ``busy``, the longest without
        records first; those with more than ``limit`` buffered bytes are left out.
        """
        found: dict[int, list[FetchablePartition]] = {}
        for node in self._schedule.brokers(now):
            if node in busy:
                continue
            ready = [e for e in self._schedule.take_partitions(node, now) if e.has_room(limit)]
            if ready:
                ready.sort(key=attrgetter("fetch_order"))
                found[node] = [self._fetchable(entry) for entry in ready]
        return found

    def is_current(self, token: RequestToken) -> bool:
        entry = self._entries.get(token.partition)
        return entry is not None and entry.token == token.number

    @property
    def leaderless(self) -> Collection[TopicPartition]:
        return self._leaderless.keys()

    @property
    def brokers(self) -> int:
        if self._brokers is None:
            leaders = [entry.leader for entry in self._entries.values()]
            self._brokers = len({each.node for each in leaders if each is not None})
        return self._brokers

    def next_retry_at(self, now: float) -> float | None:
        return self._schedule.next_retry_at(now)

    def handle_failure(self, tokens: Iterable[RequestToken], now: float) -> None:
        """Handles requests without a useful response: retries after a pause."""
        for token in tokens:
            if (entry := self._take_token(token)) is not None:
                self._pause(entry, now)
                entry.source.replica = None

    def postpone(self, tokens: Iterable[RequestToken], retry_at: float) -> None:
        """Handles requests that a quota delays: repeats them at this time."""
        for token in tokens:
            if (entry := self._take_token(token)) is not None:
                entry.source.retry_at = retry_at
                self._schedule.pause(entry)

    def handle_committed(
        self, token: RequestToken, committed: OffsetAndMetadata | None
    ) -> RotaError | None:
        """Returns the error if no offset is committed and there is no policy."""
        entry = self._take_token(token)
        if entry is None:
            return None
        if committed is not None:
            self._start_at(entry, FetchPosition(committed.offset, committed.leader_epoch))
            return None
        if self.reset is None:
            return self._fail(entry, missing_offset_error([entry.partition]))
        self._await_reset(entry, self.reset)
        return None

    def handle_listed_offset(
        self, token: RequestToken, listed: ListedOffset | None, now: float
    ) -> None:
        """Handles a ListOffsets response. None: no record is as young as the time; the position is
        then the log end *before* the last request, or records written in between would be skipped.
        """
        entry = self._take_token(token)
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

    def handle_epoch_end(self, token: RequestToken, found: EpochEndOffset) -> RotaError | None:
        """Handles the end offset of the epoch that was read last (KIP-320)."""
        entry = self._take_token(token)
        if entry is None or entry.fetch_position is None or entry.consumed_position is None:
            return None
        ahead, consumed = entry.fetch_position, entry.consumed_position
        offset, epoch = consumed
        truncated = f"{entry.partition} was truncated below offset {offset}, "
        truncated += f"which was read in epoch {epoch}: its leader"
        if found.end_offset == NO_OFFSET or found.leader_epoch == NO_LEADER_EPOCH:
            problem = f"{truncated} has no records of epoch {epoch}"
            return self._reset_or_fail(entry, problem)
        if found.end_offset >= ahead.offset:
            self._transition(entry, FetchState.FETCHING)
            return None
        self._drop_buffer(entry)
        if found.end_offset >= consumed.offset:
            # only buffered records are gone; those handed out may be of an older epoch
            again = epoch is not None and epoch != ahead.epoch
            self._transition(entry, FetchState.AWAIT_VALIDATION if again else FetchState.FETCHING)
            return None
        diverges_in, end = found
        problem = f"{truncated}'s log diverges at offset {end} of epoch {diverges_in}"
        if self.reset is None:
            return self._fail(entry, lost_position_error(problem))
        self.warn(f"{problem}; reading continues there")
        entry.consumed_position = entry.fetch_position = FetchPosition(end, diverges_in)
        self._transition(entry, FetchState.FETCHING)
        return None

    def handle_fetched(
        self,
        token: RequestToken,
        fetched: FetchedPartition,
        end: fetch.ResponseEnd | None,
        now: float,
    ) -> tuple[FetchOutcome, RotaError | None]:
        """Returns what to do with a Fetch response whose batches end at ``end``, and its error."""
        entry = self._take_token(token)
        if entry is None or entry.fetch_position is None:
            return FetchOutcome.NO_RECORDS, None
        if fetched.error_code != Code.NONE:
            return self._handle_error_code(entry, fetched, now)
        source = entry.source
        source.failures, entry.drain_before_fetch = 0, False
        if fetched.high_watermark >= 0:
            entry.high_watermark = fetched.high_watermark
        if fetched.last_stable_offset >= 0:
            entry.last_stable = fetched.last_stable_offset
        if fetched.log_start_offset >= 0:
            entry.log_start = fetched.log_start_offset
        if source.redirect(fetched):
            entry.preferred_replica_expires_at = now + self.preferred_replica_expiry
        if end is None:
            return FetchOutcome.NO_RECORDS, None
        entry.fetch_position = end.position
        self._set_buffered(entry, entry.buffered_bytes + len(fetched.records))
        entry.drain_before_fetch = not end.is_sound
        entry.fetch_order = self._next_number()
        return FetchOutcome.HAS_RECORDS, None

    def _handle_error_code(
        self, entry: PartitionState, fetched: FetchedPartition, now: float
    ) -> tuple[FetchOutcome, RotaError | None]:
        outcome = fetch.classify_error_code(fetched.error_code, entry.source)
        if outcome in {FetchOutcome.RETRY, FetchOutcome.REFRESH_METADATA}:
            if fetched.error_code != Code.OFFSET_OUT_OF_RANGE:  # of a follower: ask the leader now
                self._pause(entry, now)
            return outcome, None
        if entry.buffered_bytes:
            entry.drain_before_fetch = True
            return FetchOutcome.NO_RECORDS, None
        if outcome is FetchOutcome.RAISE:
            self._pause(entry, now)
            return outcome, fetch.fetch_error(fetched)
        start = fetched.log_start_offset if fetched.log_start_offset >= 0 else entry.log_start
        bounds = (("began at", start), ("ended before", entry.high_watermark))
        known = [f"{text} {offset}" for text, offset in bounds if offset is not None]
        problem = f"offset {fetched.fetch_offset} of {entry.partition} is out of range"
        if known:
            problem += f" (the log {' and '.join(known)} when it was last fetched)"
        return outcome, self._reset_or_fail(entry, problem)

    def advance_consumed(
        self, partition: TopicPartition, version: int, position: FetchPosition
    ) -> None:
        """Records that everything before this position was handed out."""
        entry = self._entries.get(partition)
        if entry is not None and entry.buffer_version == version:
            entry.consumed_position = position

    def remove_buffered(self, partition: TopicPartition, version: int, size: int) -> None:
        entry = self._entries.get(partition)
        if entry is not None and entry.buffer_version == version:
            self._set_buffered(entry, entry.buffered_bytes - size)
            self._schedule.touch(entry)

    def _new(self, partition: TopicPartition) -> PartitionState:
        entry = PartitionState(partition, self._next_number(), self._next_number())
        self._leaderless[partition] = entry
        self._schedule.touch(entry)
        return entry

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _reset_request(self, entry: PartitionState) -> None:
        entry.token, entry.source.failures, entry.source.retry_at = NO_TOKEN, 0, 0.0

    def _transition(self, entry: PartitionState, state: FetchState) -> None:
        if state is not entry.state and state not in TRANSITIONS[entry.state]:
            raise AssertionError(f"{entry.partition}: no transition from {entry.state} to {state}")
        entry.state = state
        self._set_buffered(entry)
        self._reset_request(entry)
        self._schedule.touch(entry)
        self.changes += 1

    def _start_at(self, entry: PartitionState, position: FetchPosition) -> None:
        entry.consumed_position = entry.fetch_position = position
        self._drop_buffer(entry)
        validates = entry.can_validate
        self._transition(entry, FetchState.AWAIT_VALIDATION if validates else FetchState.FETCHING)

    def _await_reset(self, entry: PartitionState, reset: int | Callable[[], int]) -> None:
        timestamp = reset if isinstance(reset, int) else reset()
        entry.consumed_position = entry.fetch_position = None
        self._drop_buffer(entry)
        entry.reset_target, entry.log_end, entry.asks_log_end = timestamp, None, False
        self._transition(entry, FetchState.AWAIT_RESET)

    def _reset_or_fail(self, entry: PartitionState, problem: str) -> RotaError | None:
        """Resets by ``auto.offset.reset``; without a policy, returns the error."""
        if self.reset is None:
            return self._fail(entry, lost_position_error(problem))
        self.warn(f"{problem}; reading continues where auto.offset.reset says")
        self._await_reset(entry, self.reset)
        return None

    def _fail(self, entry: PartitionState, error: RotaError) -> RotaError:
        self._drop_buffer(entry)
        self._transition(entry, FetchState.FAILED)
        return error

    def _drop_buffer(self, entry: PartitionState) -> None:
        entry.has_bad_record = False
        self._set_buffered(entry, 0)
        self.changes += 1
        entry.buffer_version = self._next_number()
        entry.fetch_position = entry.consumed_position
        entry.drain_before_fetch = False

    def _set_buffered(self, entry: PartitionState, buffered: int | None = None) -> None:
        """Updates the byte counts: all bytes of a partition are inactive, or none."""
        buffered = entry.buffered_bytes if buffered is None else buffered
        inactive = 0 if entry.hands_out and not entry.has_bad_record else buffered
        self.buffered_bytes += buffered - entry.buffered_bytes
        self.inactive_bytes += inactive - entry.inactive_bytes
        entry.buffered_bytes, entry.inactive_bytes = buffered, inactive

    def _new_token(self, entry: PartitionState) -> RequestToken:
        entry.token = self._next_number()
        return RequestToken(entry.partition, entry.token)

    def _take_token(self, token: RequestToken) -> PartitionState | None:
        """Ends the request; returns None if the token is outdated."""
        entry = self._entries.get(token.partition)
        if entry is None or entry.token != token.number:
            return None
        entry.token = NO_TOKEN
        self._schedule.touch(entry)
        return entry

    def _fetchable(self, entry: PartitionState) -> FetchablePartition:
        position, leader = entry.fetch_position, entry.leader
        assert position is not None, "a partition is fetched without a position"
        assert leader is not None, "a partition is fetched without a leader"
        return FetchablePartition(self._new_token(entry), position.offset, leader.epoch)

    def _pause(self, entry: PartitionState, now: float) -> None:
        entry.source.record_failure(now, self.backoff)
        self._schedule.pause(entry)


QueueKey: TypeAlias = FetchState | int  # a state that needs a request, or the broker to fetch from


class ReadyPartitions:
    """Partitions by the request that they need next."""

    def __init__(self) -> None:
        self._touched: dict[TopicPartition, PartitionState] = {}
        self._queues: dict[QueueKey, dict[TopicPartition, PartitionState]] = {}
        #: A heap of ends of pauses; a pause may have been cut short since.
        self._paused: list[tuple[float, int, PartitionState]] = []
        self._pauses = 0  # pauses so far; Python 3.14 cannot copy an itertools.count

    def touch(self, entry: PartitionState) -> None:
        """Marks a partition that may need a request now."""
        self._touched[entry.partition] = entry

    def pause(self, entry: PartitionState) -> None:
        """Marks a partition that may need a request after its pause."""
        self._pauses += 1
        heapq.heappush(self._paused, (entry.source.retry_at, self._pauses, entry))

    def drop(self, entry: PartitionState) -> None:
        entry.source.retry_at = 0.0
        self._touched.pop(entry.partition, None)
        for queue in self._queues.values():
            queue.pop(entry.partition, None)

    def brokers(self, now: float) -> list[int]:
        """Returns the brokers with partitions to fetch."""
        self._sort_touched(now)
        return [each for each, own in self._queues.items() if isinstance(each, int) and own]

    def take_partitions(self, key: QueueKey, now: float) -> list[PartitionState]:
        """Takes all partitions of a queue; they come back when they are touched."""
        self._sort_touched(now)
        found = self._queues.pop(key, None)
        return [] if found is None else [e for e in found.values() if _queue_key(e, now) == key]

    def next_retry_at(self, now: float) -> float | None:
        self._wake_paused(now)
        return self._paused[0][0] if self._paused else None

    def _sort_touched(self, now: float) -> None:
        self._wake_paused(now)
        if not self._touched:
            return
        for name, entry in self._touched.items():
            if entry.source.replica is not None and entry.preferred_replica_expires_at < now:
                entry.source.replica = None
            key = _queue_key(entry, now)
            if key is not None:
                self._queues.setdefault(key, {})[name] = entry
        self._touched.clear()

    def _wake_paused(self, now: float) -> None:
        """Touches partitions whose pause is over, and forgets pauses that were cut short."""
        later = self._paused
        while later and (later[0][0] <= now or later[0][2].source.retry_at != later[0][0]):
            at, _, entry = heapq.heappop(later)
            if entry.source.retry_at == at:
                self.touch(entry)


def _queue_key(entry: PartitionState, now: float) -> QueueKey | None:
    """Returns the queue of a partition; None: it needs no request."""
    if entry.token or entry.source.retry_at > now:
        return None
    state = entry.state
    if state is FetchState.INITIALIZING:
        return None if entry.pending_revocation else state
    if entry.leader is None or state is FetchState.FAILED:
        return None
    if state is not FetchState.FETCHING:
        return state
    if not entry.hands_out:
        return None
    return entry.leader.node if entry.source.replica is None else entry.source.replica


def missing_offset_error(partitions: Sequence[TopicPartition]) -> NoOffset:
    names = list_first_names([str(each) for each in partitions])
    text = f"no offset is committed for {names}, and auto.offset.reset is none"
    return NoOffset(Code.NONE, f"{text}: seek, or set a policy")


def lost_position_error(problem: str) -> NoOffset:
    text = f"{problem}; auto.offset.reset is none: seek, or set a policy"
    return NoOffset(Code.OFFSET_OUT_OF_RANGE, text)
