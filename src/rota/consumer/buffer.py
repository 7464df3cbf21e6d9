"""Fetched records on their way to the application.

::

    FetchBuffer      responses and errors, in the order in which they came
    CompletedFetch   one partition's response: decoded portion by portion
    RecordFactory    makes ConsumerRecord objects from the columns of a portion
    PolledRecords    records that a poll has taken and the application has not received yet

A response is decoded when it is the first in the queue, and handed out to its end before the next
one. So at most one response is decoded at a time, plus one that was set aside midway. Responses of
a partition that is paused, pending revocation or being validated are set aside; those of one that
was revoked or sought are dropped.

Records count as handed out when they leave ``PolledRecords``: a loop takes one at a time, a poll
all at once. So a commit covers the records that the application has received, and records that an
exception stops on the way (Ctrl-C, an interceptor) remain for the next call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, islice, repeat
from operator import length_hint
from typing import Any, NamedTuple

from rota.client.config import Deserializer
from rota.client.fetch import (
    NO_HEADERS,
    PORTION_BYTES,
    Batch,
    FetchedPartition,
    FetchPosition,
    Headers,
    read_batches,
)
from rota.consumer.positions import Positions, missing_offset_error
from rota.consumer.records import ConsumerRecord, Records
from rota.engine.model.config import FetchConfig
from rota.engine.model.topic import NO_LEADER_EPOCH, OffsetAndMetadata, TopicPartition
from rota.errors import RecordError


@dataclass(slots=True)
class PendingError:
    """An error that is raised after the records before it."""

    error: Exception | None  # None: the partitions have no committed offset and no reset policy
    buffer_versions: dict[TopicPartition, int]  # the partitions with the error; empty: all
    is_lasting: bool = False  # raised again and again, until the application seeks

    @property
    def key(self) -> Hashable:
        return type(self.error), str(self.error), frozenset(self.buffer_versions.items())


def store_nothing(_: object) -> None:
    """Ignores the records."""


class FetchBuffer:
    def __init__(
        self,
        positions: Positions,
        config: FetchConfig,
        *,
        drained: Callable[[], None],
        key: Deserializer | None = None,
        value: Deserializer | None = None,
    ) -> None:
        """:param drained: called when partitions may be fetched again, before the next decoding"""
        self._positions, self._config, self._drained = positions, config, drained
        self._key, self._value = key, value
        self._queue: deque[CompletedFetch | PendingError] = deque()
        self._error_keys: set[Hashable] = set()  # the keys of errors in the queue
        self._aside: dict[TopicPartition, list[CompletedFetch]] = {}
        #: The only response set aside that stays decoded.
        self._decoded_aside: CompletedFetch | None = None
        #: ``positions.changes`` when outdated responses were dropped.
        self._changes = positions.changes
        #: A response was handed out to its end, and ``drained`` was not called yet.
        self._has_drained = False

    def __bool__(self) -> bool:
        self.drop_outdated()
        return bool(self._queue)

    def add_response(self, fetched: FetchedPartition) -> None:
        version = self._positions[fetched.partition].buffer_version
        self._queue.append(CompletedFetch(fetched, version))

    def add_error(
        self, error: Exception | None, *partitions: TopicPartition, lasting: bool = False
    ) -> None:
        """Adds an error, raised after the records before it; the same error is kept once."""
        versions = {each: self._positions[each].buffer_version for each in partitions}
        pending = PendingError(error, versions, lasting)
        if pending.key not in self._error_keys:
            self._error_keys.add(pending.key)
            self._queue.append(pending)

    def take_error_of(self, partitions: frozenset[TopicPartition]) -> Exception | None:
        """Removes the first error of these partitions or of all; a lasting error stays."""
        self.drop_outdated()
        for each in [item for item in self._queue if isinstance(item, PendingError)]:
            if not each.buffer_versions or not partitions.isdisjoint(each.buffer_versions):
                if not each.is_lasting:
                    self._queue.remove(each)
                    self._error_keys.discard(each.key)
                return self._error(each)
        return None

    def drop_outdated(self) -> None:
        """Drops outdated responses, and moves responses back that may be handed out again."""
        if self._changes == self._positions.changes:
            return
        self._changes = self._positions.changes
        back = [tp for tp in self._aside if (e := self._positions.get(tp)) is None or e.hands_out]
        for partition in back:
            self._queue.extendleft(reversed(self._aside.pop(partition)))
        self._queue = deque([each for each in self._queue if self._is_current(each)])
        self._error_keys = {each.key for each in self._queue if isinstance(each, PendingError)}
        for partition, fetches in list(self._aside.items()):
            self._aside[partition] = [each for each in fetches if self._is_current(each)]
        decoded = self._decoded_aside
        if decoded is not None and decoded not in self._aside.get(decoded.partition, ()):
            self._decoded_aside = None

    def prepare_records(self, max_records: int) -> None:
        """Makes up to ``max_records`` fetched records; runs the deserializers."""
        made = 0
        for item in list(self._queue):
            if isinstance(item, PendingError):
                break
            if not self._is_current(item) or not self._positions[item.partition].hands_out:
                continue
            # behind other records only as many as are missing
            rows = max_records - made if made else MAX_RECORDS_PER_STEP
            item.make_records(self._config, self._key, self._value, rows)
            made += item.ready_count
            if item.is_finished and item is self._queue[0]:
                self._finish(item)
                self._notify_drained()
            if made >= max_records or item.error is not None:
                break

    def take_records(
        self, max_records: int, store_records: Callable[[Records], None] = store_nothing
    ) -> Records:
        """Returns up to ``max_records`` prepared records.

        :param store_records: called with them before the positions move: if this method is
            interrupted in between, records come twice rather than never
        :raises Exception: the next item is an error; no records are before it
        """
        taken: dict[TopicPartition, list[ConsumerRecord]] = {}
        left = max_records
        try:
            while left > 0 and (fetch := self._next_fetch(bool(taken))) and fetch.ready_count:
                records, position = fetch.peek_records(left)
                known = taken.setdefault(fetch.partition, records)
                if known is not records:
                    known += records
                store_records(Records(taken))
                self._advance_position(fetch, position)
                fetch.mark_taken(len(records))
                left -= len(records)
        finally:
            self._notify_drained()
        return Records(taken)

    def take_batches(
        self,
        store_records: Callable[[list[Batch]], None] = store_nothing,
        max_bytes: int = PORTION_BYTES,
    ) -> list[Batch]:
        """Returns responses as columns until they have ``max_bytes``; at least one.

        :param store_records: as in :meth:`take_records`
        :raises Exception: the next item is an error; no records are before it
        """
        batches: list[Batch] = []
        left = max_bytes
        try:
            while left > 0 and (fetch := self._next_fetch(bool(batches))):
                rows = fetch.remaining_rows()
                batches.append(rows)
                store_records(batches)
                self._advance_position(fetch, position_after(rows))
                fetch.mark_taken(len(rows))
                left -= fetch.size
        finally:
            self._notify_drained()
        return batches

    def _next_fetch(self, has_found: bool) -> CompletedFetch | None:
        """The first response, decoded; None: there is none, or records come before an error."""
        while (fetch := self._next_item(has_found)) is not None:
            if not fetch.is_next_known:
                self._notify_drained()
            fetch.decode_next(self._config)
            if fetch.empty_batch is not None:
                self._advance_position(fetch, position_after(fetch.empty_batch))
                fetch.empty_batch = None
            if fetch.error is not None:
                if has_found:
                    return None
                self._move_back(fetch.partition)
                raise fetch.take_error()
            if not fetch.is_empty:
                return fetch
            self._finish(fetch)
        return None

    def _next_item(self, has_found: bool) -> CompletedFetch | None:
        """As :meth:`_next_fetch`, but not decoded."""
        while self._queue:
            item = self._queue[0]
            is_current = self._is_current(item)
            if isinstance(item, CompletedFetch):
                if is_current:
                    is_next = self._positions[item.partition].hands_out
                    if is_next and item.partition not in self._aside:
                        return item
                    self._set_aside(item)
                self._queue.popleft()
                continue
            if is_current and has_found:
                return None
            self._queue.popleft()
            if is_current and item.is_lasting:
                self._queue.append(item)
            else:
                self._error_keys.discard(item.key)
            if is_current:
                raise self._error(item)
        return None

    def _set_aside(self, item: CompletedFetch) -> None:
        """Keeps a response for later: the last one decoded, of the others only the bytes."""
        self._aside.setdefault(item.partition, []).append(item)
        large: CompletedFetch | None = item
        if item.has_decoded:
            large, self._decoded_aside = self._decoded_aside, item
        if large is not None:
            large.release_decoded()

    def _advance_position(self, fetch: CompletedFetch, position: FetchPosition) -> None:
        self._positions.advance_consumed(fetch.partition, fetch.buffer_version, position)

    def _finish(self, fetch: CompletedFetch) -> None:
        self._queue.popleft()
        self._positions.remove_buffered(fetch.partition, fetch.buffer_version, fetch.size)
        self._has_drained = True

    def _notify_drained(self) -> None:
        if self._has_drained:
            self._has_drained = False
            self._drained()

    def _move_back(self, partition: TopicPartition) -> None:
        """Moves a partition with a bad record behind the others: it waits for the application."""
        self._positions.mark_bad_record(partition)
        queue = sorted(self._queue, key=lambda each: getattr(each, "partition", None) == partition)
        self._queue = deque(queue)

    def _is_current(self, item: CompletedFetch | PendingError) -> bool:
        if isinstance(item, CompletedFetch):
            return self._has_version(item.partition, item.buffer_version)
        versions = item.buffer_versions.items()
        return not versions or any(self._has_version(*each) for each in versions)

    def _has_version(self, partition: TopicPartition, version: int) -> bool:
        entry = self._positions.get(partition)
        return entry is not None and entry.buffer_version == version

    def _error(self, pending: PendingError) -> Exception:
        if pending.error is not None:
            return pending.error
        versions = pending.buffer_versions.items()
        return missing_offset_error([tp for tp, each in versions if self._has_version(tp, each)])


#: Records that are made at once. Python's garbage collector runs once 700 new objects are alive
#: (``gc.get_threshold()``); with fewer it has nothing to do, which halves the time per record.
MAX_RECORDS_PER_STEP = 500
ROWS_PER_FACTORY = 16 * MAX_RECORDS_PER_STEP  # rows of a factory, of a hundred bytes each


def position_after(rows: Batch) -> FetchPosition:
    epoch = None if rows.next_epoch == NO_LEADER_EPOCH else rows.next_epoch
    return FetchPosition(rows.next_offset, epoch)


class CompletedFetch:
    """A partition's response that is decoded, and made into records, portion by portion."""

    def __init__(self, fetched: FetchedPartition, version: int) -> None:
        self.partition = fetched.partition
        self.buffer_version = version
        self.size = len(fetched.records)
        self.error: RecordError | None = None  # the error of the next record
        self.is_empty = False  # no portion is left
        #: A portion whose records were all left out or compacted away; its end is progress.
        self.empty_batch: Batch | None = None
        self._fetched = fetched
        self._batches: Iterator[Batch] | None = None
        #: The portion that is being handed out, and its first row that was not.
        self._rows: Batch | None = None
        self._row = 0
        #: Makes records of some rows, and the first of these rows.
        self._factory: tuple[RecordFactory, int] | None = None
        #: The records made, and the first of them that was not handed out.
        self._made: list[ConsumerRecord] = []
        self._at = 0
        self._next_error: RecordError | None = None  # the error of the record after those made

    @property
    def ready_count(self) -> int:
        return len(self._made) - self._at

    @property
    def has_decoded(self) -> bool:
        return self._batches is not None

    @property
    def is_next_known(self) -> bool:
        """The next rows, or their error, are known without decoding."""
        return self._rows is not None or self.error is not None or self.is_empty

    @property
    def is_finished(self) -> bool:
        return self.is_empty and self.error is None and self.empty_batch is None

    def decode_next(self, config: FetchConfig) -> None:
        """Decodes the next portion unless one is being handed out; keeps its error, if any."""
        while self._rows is None and self.error is None and not self.is_empty:
            if self._batches is None:
                check, committed = config.check_crcs, config.committed_only
                self._batches = read_batches(self._fetched, check=check, committed_only=committed)
            try:
                rows = next(self._batches, None)
            except RecordError as error:
                self.error = error
                return
            except BaseException:
                # Ctrl-C has ended the generator: a new one continues at the same offset
                self._batches = None
                raise
            if rows is None:
                self.is_empty = True
                return
            self._fetched = self._fetched._replace(fetch_offset=rows.next_offset)
            if len(rows):
                self._rows, self._row, self._factory = rows, 0, None
            else:
                self.empty_batch = rows

    def make_records(
        self,
        config: FetchConfig,
        key: Deserializer | None,
        value: Deserializer | None,
        max_records: int,
    ) -> None:
        """Makes the next records unless some wait; a deserializer's error waits behind them."""
        if self.ready_count:
            return
        self.decode_next(config)
        rows = self._rows
        if rows is None:
            return
        factory, first = self._factory or (None, 0)
        if factory is None or self._row >= first + len(factory):
            first = self._row
            factory = RecordFactory(rows[first : first + ROWS_PER_FACTORY], key, value)
            self._factory = factory, first
        row = self._row - first
        records, error = factory.make_records(row, row + min(max_records, MAX_RECORDS_PER_STEP))
        if records:
            self._made, self._at, self._next_error = records, 0, error
        else:
            self.error = error

    def peek_records(self, max_records: int) -> tuple[list[ConsumerRecord], FetchPosition]:
        """Returns records that are made, at least one, and the position after them."""
        assert self._rows is not None
        records = self._made[self._at : self._at + max_records]
        if self._row + len(records) == len(self._rows):
            return records, position_after(self._rows)
        last = records[-1]
        return records, FetchPosition(last.offset + 1, last.leader_epoch)

    def mark_taken(self, count: int) -> None:
        assert self._rows is not None
        self._row += count
        self._at += count
        if self._at >= len(self._made):
            self._made, self._at = [], 0
            self.error, self._next_error = self._next_error, None
        if self._row >= len(self._rows):
            self._rows = None

    def remaining_rows(self) -> Batch:
        """Returns the rows of the portion that were not handed out; forgets their records."""
        assert self._rows is not None
        self._made, self._at, self._next_error = [], 0, None
        return self._rows[self._row :]

    def take_error(self) -> RecordError:
        """Returns the error to raise, and keeps a copy without its frames and their records."""
        assert self.error is not None
        error, self.error = self.error, copy(self.error)
        self._rows = self._factory = self._batches = None
        return error

    def release_decoded(self) -> None:
        """Keeps only a copy of this partition's bytes, from the first row not handed out on."""
        own = memoryview(bytes(self._fetched.records))
        at = self._fetched.fetch_offset if self._rows is None else self._rows.offsets[self._row]
        self._fetched = self._fetched._replace(records=own, fetch_offset=int(at))
        self._rows = self._factory = self._batches = self._next_error = None
        self._made, self._at = [], 0


class RecordFactory:
    """Makes records from a batch, some rows at a time; per-batch values are computed once."""

    def __init__(
        self, batch: Batch, key: Deserializer | None = None, value: Deserializer | None = None
    ) -> None:
        self._batch = batch
        self._key, self._value = key, value
        self._keys, self._values = batch.key_column, batch.value_column
        self._offsets: list[int] = batch.offsets.tolist()
        self._timestamps: list[int] = batch.timestamps.tolist()
        self._has_headers = batch.has_headers
        spans = batch.spans()
        self._spans = [(n, int(kind), None if epoch < 0 else epoch) for n, kind, epoch in spans]

    def __len__(self) -> int:
        return len(self._offsets)

    def make_records(
        self, first: int, stop: int
    ) -> tuple[list[ConsumerRecord], RecordError | None]:
        """Makes records of these rows; stops at one that a deserializer rejects, with its error."""
        stop = min(stop, len(self))
        keys: list[Any] = self._keys.slice_rows(first, stop)
        values: list[Any] = self._values.slice_rows(first, stop)
        error = None
        if self._key is not None:
            keys, error = self._deserialize(first, self._key, keys, "key")
        if self._value is not None:
            values, found = self._deserialize(first, self._value, values[: len(keys)], "value")
            error = found or error
        headers: Iterable[Headers] = repeat(NO_HEADERS)
        if self._has_headers:
            headers = self._batch[first:stop].headers()
        timestamp_types, epochs = self._span_columns(first)
        columns = zip(
            repeat(self._batch.topic, min(len(keys), len(values))),
            repeat(self._batch.partition),
            self._offsets[first:stop],
            self._timestamps[first:stop],
            timestamp_types,
            keys,
            values,
            headers,
            epochs,
            strict=False,
        )
        # ConsumerRecord._make would call Python for each record, as slow as all the rest
        new: Callable[[type[ConsumerRecord], Iterable[Any]], ConsumerRecord] = tuple.__new__
        return list(map(new, repeat(ConsumerRecord), columns)), error

    def _span_columns(self, first: int) -> tuple[Iterable[int], Iterable[int | None]]:
        """Returns the timestamp types and the leader epochs from a row on."""
        if len(self._spans) == 1:
            _, timestamp_type, epoch = self._spans[0]
            return repeat(timestamp_type), repeat(epoch)
        types = chain.from_iterable(repeat(each, count) for count, each, _ in self._spans)
        epochs = chain.from_iterable(repeat(epoch, count) for count, _, epoch in self._spans)
        return islice(types, first, None), islice(epochs, first, None)

    def _deserialize(
        self, first: int, deserializer: Deserializer, given: list[Any], name: str
    ) -> tuple[list[Any], RecordError | None]:
        made: list[Any] = []
        add = made.append
        error = None
        try:
            for each in given:
                add(None if each is None else deserializer(each))
        except Exception as cause:  # noqa: BLE001 (the application's own code)
            offset = self._offsets[first + len(made)]
            problem = f"its {name} cannot be deserialized: {cause!r}"
            error = RecordError(*self._batch.source, offset, problem, next_offset=offset + 1)
            error.__cause__ = cause
        return made, error


NO_RECORDS: Mapping[TopicPartition, list[ConsumerRecord]] = {}


class _PolledState(NamedTuple):
    """The records of a poll, and how many of them were handed out."""

    by_partition: Mapping[TopicPartition, list[ConsumerRecord]]
    records: list[ConsumerRecord]  # never changed: the member's thread may look at them
    remaining: Iterator[ConsumerRecord]  # a list iterator over them, which knows how many are left

    @property
    def handed_count(self) -> int:
        return len(self.records) - length_hint(self.remaining)

    @property
    def last_handed(self) -> ConsumerRecord | None:
        at = self.handed_count
        return self.records[at - 1] if at else None


class PolledRecords:
    """Records that a poll took from the fetcher and that are not handed out yet. Taking a record
    from :attr:`remaining` hands it out, without Python code for each. Other threads ask what was
    handed out, so remaining records change under the driver's lock only.
    """

    def __init__(self) -> None:
        self._state = _PolledState(NO_RECORDS, [], iter(()))
        self.remaining = self._state.remaining
        self._batches: Sequence[Batch] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no records are left, not counting batches."""
        return not length_hint(self.remaining)

    @property
    def has_batches(self) -> bool:
        return bool(self._batches)

    @property
    def all_records(self) -> Records:
        return Records(self._state.by_partition)

    def set_records(self, records: Records) -> None:
        """Sets the next records; the previous ones are forgotten."""
        self._set(records.by_partition, list(records))
        self._batches = ()

    def _set(
        self,
        by_partition: Mapping[TopicPartition, list[ConsumerRecord]],
        records: list[ConsumerRecord],
        handed: int = 0,
    ) -> None:
        """Replaces the records, also for a loop that runs; ``handed`` of them are handed out."""
        before, remaining = self.remaining, iter(records)
        _skip_records(remaining, handed)
        self._state = _PolledState(by_partition, records, remaining)
        self.remaining = remaining
        _skip_records(before)

    def set_batches(self, batches: Sequence[Batch]) -> None:
        self.set_records(Records({}))
        self._batches = batches

    def take_records(self, max_records: int) -> Records:
        _, records, remaining = self._state
        at = self._state.handed_count
        if not at and len(records) <= max_records:
            whole = self.all_records
            self.set_records(Records({}))
            return whole
        taken = _group_by_partition(records[at : at + max_records])
        _skip_records(remaining, max_records)  # in one step: a Ctrl-C before it skips none
        return taken

    def take_batches(self) -> list[Batch]:
        taken, self._batches = list(self._batches), ()
        return taken

    def remaining_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions of the first remaining record of each partition."""
        left = _group_by_partition(self._state.records[self._state.handed_count :])
        positions = {name: _first_position(each) for name, each in left.by_partition.items()}
        return positions | self._batch_positions()

    def _batch_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions of the first remaining batch of each partition."""
        batches = reversed(self._batches)
        return {each.source: OffsetAndMetadata(int(each.offsets[0])) for each in batches}

    def drop_remaining(self) -> None:
        """Drops the remaining records, also for a loop that is running; positions stay."""
        at = self._state.handed_count
        self._set(self._state.by_partition, self._state.records[:at], at)

    def drop_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        dropped = frozenset(partitions)
        self._batches = [batch for batch in self._batches if batch.source not in dropped]
        by_partition, records, _ = self._state
        if dropped.isdisjoint(by_partition):
            return
        remaining = records[self._state.handed_count :]
        left = [each for each in remaining if _partition_of(each) not in dropped]
        handed, names = self._state.last_handed, list(by_partition)
        if handed is not None and (current := _partition_of(handed)) in dropped:
            names = names[names.index(current) + 1 :]  # the partitions before it are handed out
            handed = None
        kept = {name: by_partition[name] for name in names if name not in dropped}
        before = [] if handed is None else [handed]
        self._set(kept, before + left, len(before))

    def rewind_positions(self, positions: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Moves positions back to the records that were handed out."""
        state = self._state
        handed = state.last_handed
        current = None if handed is None else _partition_of(handed)
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        is_handed_out = current is not None
        for partition, records in state.by_partition.items():
            if handed is not None and partition == current:
                is_handed_out = False
                if handed is not records[-1]:
                    found[partition] = OffsetAndMetadata(handed.offset + 1, "", handed.leader_epoch)
            elif not is_handed_out and records:
                found[partition] = _first_position(records)
        found |= self._batch_positions()
        positions.update({each: found[each] for each in found if each in positions})


def _first_position(records: list[ConsumerRecord]) -> OffsetAndMetadata:
    return OffsetAndMetadata(records[0].offset, "", records[0].leader_epoch)


def _skip_records(records: Iterator[object], count: int | None = None) -> None:
    """Skips this many items, or all, in one step."""
    deque(islice(records, count), maxlen=0)


def _group_by_partition(records: Iterable[ConsumerRecord]) -> Records:
    found: dict[TopicPartition, list[ConsumerRecord]] = {}
    for record in records:
        found.setdefault(_partition_of(record), []).append(record)
    return Records(found)


def _partition_of(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
