"""Fetched records on their way to the application.

::

    FetchBuffer      responses and errors, in the order in which they came
    CompletedFetch   one partition's response: decoded portion by portion
    RecordFactory    makes ConsumerRecord objects from the columns of a portion
    PolledRecords    what a poll has taken and the application has not seen yet

A response is decoded when its turn comes, and handed out to its end before the next one. So at most
one response is decoded at a time, plus one that was set aside midway. Responses of a partition that
is paused, withheld or being validated are set aside; those of a partition that was revoked or
sought in are dropped.

Records count as handed out when they leave ``PolledRecords``: a loop takes one at a time, a poll
all at once. So a commit covers what the application has seen, a loop that is left and entered again
goes on where it stopped, and records that an exception stops on the way (Ctrl-C, an interceptor)
are there for the next call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, islice, repeat
from operator import length_hint
from typing import Any, NamedTuple, TypeAlias

from rota.client.fetch import (
    NO_HEADERS,
    PORTION_BYTES,
    Batch,
    FetchedPartition,
    Headers,
    read_batches,
)
from rota.consumer.positions import FetchPosition, Positions, missing_offset_error
from rota.consumer.records import ConsumerRecord, Records
from rota.engine.model.config import FetchConfig
from rota.engine.model.topic import NO_LEADER_EPOCH, OffsetAndMetadata, TopicPartition
from rota.errors import RecordError


@dataclass(slots=True)
class PendingError:
    """An error that is raised when its turn comes."""

    #: None: no offset is committed for the partitions, and there is no policy.
    error: Exception | None
    #: Whom it concerns; nobody: the consumer as a whole.
    buffer_versions: dict[TopicPartition, int]
    #: It is raised again and again, until the application seeks elsewhere.
    is_lasting: bool = False

    @property
    def key(self) -> Hashable:
        """Key used to drop duplicate errors."""
        return type(self.error), str(self.error), frozenset(self.buffer_versions.items())


def keep_nothing(_: object) -> None:
    """Ignores what it is given."""


class FetchBuffer:
    """Answers and errors, first come, first served."""

    def __init__(
        self,
        positions: Positions,
        config: FetchConfig,
        *,
        drained: Callable[[], None],
        key: Deserializer | None = None,
        value: Deserializer | None = None,
    ) -> None:
        """An empty one.

        :param drained: called when partitions have room for more, before the next is decoded
        """
        self._positions = positions
        self._config = config
        self._drained = drained
        self._key, self._value = key, value
        self._queue: deque[CompletedFetch | PendingError] = deque()
        #: The keys of those in the queue.
        self._error_keys: set[Hashable] = set()
        self._aside: dict[TopicPartition, list[CompletedFetch]] = {}
        #: The one of those that was decoded, and not handed out to its end.
        self._decoded_aside: CompletedFetch | None = None
        #: As it was when this was last tidied.
        self._changes = positions.changes
        #: Something has, and nobody was told yet.
        self._has_drained = False

    def __bool__(self) -> bool:
        """There is something to hand out or to raise."""
        self.drop_outdated()
        return bool(self._queue)

    def add_response(self, fetched: FetchedPartition) -> None:
        """Adds a response with records."""
        stamp = self._positions[fetched.partition].buffer_version
        self._queue.append(CompletedFetch(fetched, stamp))

    def add_error(
        self, error: Exception | None, *concerned: TopicPartition, lasting: bool = False
    ) -> None:
        """Adds an error, raised after the records before it; the same error is kept once."""
        stamps = {each: self._positions[each].buffer_version for each in concerned}
        trouble = PendingError(error, stamps, lasting)
        if trouble.key not in self._error_keys:
            self._error_keys.add(trouble.key)
            self._queue.append(trouble)

    def take_error_of(self, partitions: frozenset[TopicPartition]) -> Exception | None:
        """Returns the first error that concerns one of these partitions, or the whole consumer.

        It is removed, unless it is lasting.
        """
        self.drop_outdated()
        for each in list(self._queue):
            if not isinstance(each, PendingError):
                continue
            if not each.buffer_versions or not partitions.isdisjoint(each.buffer_versions):
                if not each.is_lasting:
                    self._queue.remove(each)
                    self._error_keys.discard(each.key)
                return self._error(each)
        return None

    def drop_outdated(self) -> None:
        """Drops outdated responses, and brings back those that may be handed out again."""
        if self._changes == self._positions.changes:
            return
        self._changes = self._positions.changes
        back = [tp for tp in self._aside if (e := self._positions.get(tp)) is None or e.hands_out]
        for partition in back:
            self._queue.extendleft(reversed(self._aside.pop(partition)))
        self._queue = deque([each for each in self._queue if self._is_current(each)])
        self._error_keys = {each.key for each in self._queue if isinstance(each, PendingError)}
        for partition, items in list(self._aside.items()):
            self._aside[partition] = [each for each in items if self._is_current(each)]
        begun = self._decoded_aside
        if begun is not None and begun not in self._aside.get(begun.partition, ()):
            self._decoded_aside = None

    # Handing out

    def prepare_records(self, most: int) -> None:
        """Makes up to ``most`` records, if they are fetched. Deserializers run in here."""
        made = 0
        for item in list(self._queue):
            if isinstance(item, PendingError):
                break
            entry = self._positions.get(item.partition)
            if entry is None or entry.buffer_version != item.buffer_version or not entry.hands_out:
                continue
            rows = (
                most - made if made else MAX_RECORDS_PER_STEP
            )  # behind others not more than are asked for
            item.make_records(self._config, self._key, self._value, rows)
            made += item.ready_count
            if item.is_finished and item is self._queue[0]:
                self._finish(item)
                self._notify_drained()
            if made >= most or item.error is not None:
                break

    def take_records(self, most: int, keep: Callable[[Records], None] = keep_nothing) -> Records:
        """Returns up to ``most`` prepared records.

        :param keep: called with them before the positions move: if something interrupts this in
            between, records come twice rather than never
        :raises Exception: an error whose turn has come; there are no records before it
        """
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        left = most
        try:
            while (
                left > 0
                and (waiting := self._next_fetch(bool(found))) is not None
                and waiting.ready_count
            ):
                records, position = waiting.peek_records(left)
                known = found.setdefault(waiting.partition, records)
                if known is not records:
                    known += records
                keep(Records(found))
                self._advance_position(waiting, position)
                waiting.mark_taken(len(records))
                left -= len(records)
        finally:
            self._notify_drained()
        return Records(found)

    def take_batches(
        self, keep: Callable[[list[Batch]], None] = keep_nothing, most: int = PORTION_BYTES
    ) -> list[Batch]:
        """Returns responses as columns until they have ``most`` bytes; at least one.

        :param keep: as in :meth:`take_records`
        :raises Exception: an error whose turn has come; there are no records before it
        """
        found: list[Batch] = []
        left = most
        try:
            while left > 0 and (waiting := self._next_fetch(bool(found))) is not None:
                rows = waiting.remaining_rows()
                found.append(rows)
                keep(found)
                self._advance_position(waiting, position_after(rows))
                waiting.mark_taken(len(rows))
                left -= waiting.size
        finally:
            self._notify_drained()
        return found

    def _next_fetch(self, some: bool) -> CompletedFetch | None:
        """Returns the response whose turn it is, decoded; None if there is none.

        Also None if the next item is an error and records before it are still to be returned.
        """
        while (waiting := self._next_item(some)) is not None:
            if not waiting.is_next_known:
                self._notify_drained()
            waiting.decode_next(self._config)
            if waiting.empty_batch is not None:
                self._advance_position(waiting, position_after(waiting.empty_batch))
                waiting.empty_batch = None
            if waiting.error is not None:
                if some:
                    return None
                self._defer_failed(waiting)
                raise waiting.take_error()
            if not waiting.is_empty:
                return waiting
            self._finish(waiting)
        return None

    def _next_item(self, some: bool) -> CompletedFetch | None:
        """Whose turn it is; None: nobody's, or that of an error that must wait."""
        while self._queue:
            item = self._queue[0]
            if isinstance(item, PendingError):
                stands = self._is_current(item)
                if stands and some:
                    return None
                self._queue.popleft()
                if stands and item.is_lasting:
                    self._queue.append(item)
                else:
                    self._error_keys.discard(item.key)
                if not stands:
                    continue
                raise self._error(item)
            entry = self._positions.get(item.partition)
            if entry is not None and entry.buffer_version == item.buffer_version:
                if entry.hands_out and item.partition not in self._aside:
                    return item
                self._set_aside(item)
            self._queue.popleft()
        return None

    def _set_aside(self, item: CompletedFetch) -> None:
        """Until its partition gives again, which may be soon, or never: the last one stays decoded,
        the others are bytes as they came.
        """
        self._aside.setdefault(item.partition, []).append(item)
        large: CompletedFetch | None = item
        if item.has_decoded:
            large, self._decoded_aside = self._decoded_aside, item
        if large is not None:
            large.release_decoded()

    def _advance_position(self, waiting: CompletedFetch, position: FetchPosition) -> None:
        self._positions.advance_consumed(waiting.partition, waiting.buffer_version, position)

    def _finish(self, waiting: CompletedFetch) -> None:
        self._queue.popleft()
        self._positions.remove_buffered(waiting.partition, waiting.buffer_version, waiting.size)
        self._has_drained = True

    def _notify_drained(self) -> None:
        if self._has_drained:
            self._has_drained = False
            self._drained()

    def _defer_failed(self, waiting: CompletedFetch) -> None:
        """Moves a partition behind the others: it waits for the application."""
        partition = waiting.partition
        self._positions.mark_bad_record(partition)
        own = [each for each in self._queue if getattr(each, "partition", None) == partition]
        others = [each for each in self._queue if getattr(each, "partition", None) != partition]
        self._queue = deque(others + own)

    def _is_current(self, item: CompletedFetch | PendingError) -> bool:
        if isinstance(item, CompletedFetch):
            return self._has_version(item.partition, item.buffer_version)
        return not item.buffer_versions or any(
            self._has_version(*each) for each in item.buffer_versions.items()
        )

    def _has_version(self, partition: TopicPartition, stamp: int) -> bool:
        entry = self._positions.get(partition)
        return entry is not None and entry.buffer_version == stamp

    def _error(self, trouble: PendingError) -> Exception:
        if trouble.error is not None:
            return trouble.error
        return missing_offset_error(
            [
                each
                for each, stamp in trouble.buffer_versions.items()
                if self._has_version(each, stamp)
            ]
        )


#: Records that are made at once. Each is an object that the garbage collector looks at once 700 new
#: ones are alive (``gc.get_threshold()``); with fewer, which are dropped before the next are made,
#: it has nothing to do. That halves the time a record takes.
MAX_RECORDS_PER_STEP = 500

#: Records whose making is begun at once: what is known of each of them takes a hundred bytes.
ROWS_PER_FACTORY = 16 * MAX_RECORDS_PER_STEP


def position_after(rows: Batch) -> FetchPosition:
    """Returns the position after these rows."""
    return FetchPosition(
        rows.next_offset, None if rows.next_epoch == NO_LEADER_EPOCH else rows.next_epoch
    )


class CompletedFetch:
    """A partition's response that is waiting to be handed out.

    It is decoded portion by portion (:meth:`decode_next`), and records are made of a portion's rows
    (:meth:`make_records`).
    """

    __slots__ = (
        "_at",
        "_batches",
        "_factory",
        "_fetched",
        "_made",
        "_next_error",
        "_row",
        "_rows",
        "buffer_version",
        "empty_batch",
        "error",
        "is_empty",
        "partition",
        "size",
    )

    def __init__(self, fetched: FetchedPartition, stamp: int) -> None:
        self.partition = fetched.partition
        self.buffer_version = stamp
        self.size = len(fetched.records)
        #: What comes next cannot be read.
        self.error: RecordError | None = None
        #: That was all.
        self.is_empty = False
        #: Without records, but to be read on behind: all of it was left out, or compacted away.
        self.empty_batch: Batch | None = None
        self._fetched = fetched
        self._batches: Iterator[Batch] | None = None
        #: The portion that is being handed out.
        self._rows: Batch | None = None
        #: Its first row that was not.
        self._row = 0
        #: A stretch of it that records are made of, and its first row.
        self._factory: tuple[RecordFactory, int] | None = None
        self._made: list[ConsumerRecord] = []
        #: The first of those made that was not handed out.
        self._at = 0
        #: What is wrong with the record behind those made.
        self._next_error: RecordError | None = None

    @property
    def ready_count(self) -> int:
        """How many records are made, and were not handed out."""
        return len(self._made) - self._at

    @property
    def has_decoded(self) -> bool:
        """Some of it was decoded, and perhaps handed out."""
        return self._batches is not None

    @property
    def is_next_known(self) -> bool:
        """Nothing is to be decoded before the next rows, or their error, are known."""
        return self._rows is not None or self.error is not None or self.is_empty

    @property
    def is_finished(self) -> bool:
        """All of it was handed out."""
        return self.is_empty and self.error is None and self.empty_batch is None

    def decode_next(self, config: FetchConfig) -> None:
        """Decodes the next portion unless one is being handed out; keeps its error, if any."""
        while self._rows is None and self.error is None and not self.is_empty:
            if self._batches is None:
                check, committed_only = config.check_crcs, config.committed_only
                self._batches = read_batches(
                    self._fetched, check=check, committed_only=committed_only
                )
            try:
                rows = next(self._batches, None)
            except RecordError as error:
                self.error = error
                return
            except BaseException:
                # Ctrl-C has ended the generator: the next one reads on where this one was
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
        self, config: FetchConfig, key: Deserializer | None, value: Deserializer | None, most: int
    ) -> None:
        """Makes the next records, unless some are made, but not more than so many. An error of a
        deserializer waits until those before it are handed out.
        """
        if self.ready_count:
            return
        self.decode_next(config)
        if self._rows is None:
            return
        records, flaw = self._make(self._rows, key, value, min(most, MAX_RECORDS_PER_STEP))
        if records:
            self._made, self._at, self._next_error = records, 0, flaw
        else:
            self.error = flaw

    def _make(
        self, rows: Batch, key: Deserializer | None, value: Deserializer | None, most: int
    ) -> MadeRecords:
        making, begin = self._factory or (None, 0)
        if making is None or self._row >= begin + len(making):
            making, begin = (
                RecordFactory(rows[self._row : self._row + ROWS_PER_FACTORY], key, value),
                self._row,
            )
            self._factory = making, begin
        return making.make_records(self._row - begin, self._row - begin + most)

    def peek_records(self, most: int) -> tuple[list[ConsumerRecord], FetchPosition]:
        """Returns records that are made, at least one, and the position after them."""
        assert self._rows is not None
        records = self._made[self._at : self._at + most]
        if self._row + len(records) == len(self._rows):
            return records, position_after(self._rows)
        last = records[-1]
        return records, FetchPosition(last.offset + 1, last.leader_epoch)

    def mark_taken(self, count: int) -> None:
        """Marks this many rows as handed out."""
        assert self._rows is not None
        self._row += count
        self._at += count
        if self._at >= len(self._made):
            self._made, self._at = [], 0
            self.error, self._next_error = self._next_error, None
        if self._row >= len(self._rows):
            self._rows = None

    def remaining_rows(self) -> Batch:
        """All rows of the portion that were not handed out; what was made of them is forgotten."""
        assert self._rows is not None
        self._made, self._at, self._next_error = [], 0, None
        return self._rows[self._row :]

    def take_error(self) -> RecordError:
        """The error whose turn has come. The next time it is another: an exception keeps all frames
        alive that it came through, and so what was decoded, and what the application had there.
        """
        assert self.error is not None
        error, self.error = self.error, copy(self.error)
        self._rows = self._factory = self._batches = None
        return error

    def release_decoded(self) -> None:
        """Keeps only this partition's bytes, not decoded.

        It may stay here for long, and the whole response has other partitions too. It goes on with
        the first row that was not handed out.
        """
        own = memoryview(bytes(self._fetched.records))
        at = self._fetched.fetch_offset if self._rows is None else self._rows.offsets[self._row]
        self._fetched = self._fetched._replace(records=own, fetch_offset=int(at))
        self._rows = self._factory = self._batches = self._next_error = None
        self._made, self._at = [], 0


#: Makes something of a key or a value; it does not get those that are null.
Deserializer: TypeAlias = Callable[[bytes], object]


class MadeRecords(NamedTuple):
    """The records of a batch, up to the first that cannot be made."""

    records: list[ConsumerRecord]
    #: What is wrong with the next; its cause is what the deserializer raised.
    error: RecordError | None = None


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
        self._spans = [
            (count, int(by_broker), None if epoch < 0 else epoch)
            for count, by_broker, epoch in batch.spans()
        ]

    def __len__(self) -> int:
        return len(self._offsets)

    def make_records(self, first: int, behind: int) -> MadeRecords:
        """Makes the records of the rows ``first`` to ``behind``, which may be past the last row."""
        behind = min(behind, len(self))
        keys: list[Any] = self._keys.slice_rows(first, behind)
        values: list[Any] = self._values.slice_rows(first, behind)
        error = None
        if self._key is not None:
            keys, error = self._deserialize(first, self._key, keys, "key")
        if self._value is not None:
            values, found = self._deserialize(first, self._value, values[: len(keys)], "value")
            error = found or error
        headers: Iterable[Headers] = repeat(NO_HEADERS)
        if self._has_headers:
            headers = self._batch[first:behind].headers()
        kinds, epochs = self._span_columns(first)
        columns = zip(
            repeat(self._batch.topic, min(len(keys), len(values))),
            repeat(self._batch.partition),
            self._offsets[first:behind],
            self._timestamps[first:behind],
            kinds,
            keys,
            values,
            headers,
            epochs,
            strict=False,
        )
        # as ConsumerRecord._make, but without a call of Python's for each: it would take as long as
        # all the rest
        new: Callable[[type[ConsumerRecord], Iterable[Any]], ConsumerRecord] = tuple.__new__
        return MadeRecords(list(map(new, repeat(ConsumerRecord), columns)), error)

    def _span_columns(self, first: int) -> tuple[Iterable[int], Iterable[int | None]]:
        """Of each record from a row on its timestamp's type and its epoch."""
        if len(self._spans) == 1:
            _, kind, epoch = self._spans[0]
            return repeat(kind), repeat(epoch)
        kinds = chain.from_iterable(repeat(kind, count) for count, kind, _ in self._spans)
        epochs = chain.from_iterable(repeat(epoch, count) for count, _, epoch in self._spans)
        return islice(kinds, first, None), islice(epochs, first, None)

    def _deserialize(
        self, first: int, deserializer: Deserializer, given: list[Any], name: str
    ) -> tuple[list[Any], RecordError | None]:
        """What it makes of them, up to the first on which it fails."""
        made: list[Any] = []
        add = made.append
        try:
            for each in given:
                add(None if each is None else deserializer(each))
        except Exception as cause:  # noqa: BLE001 an application's own code
            offset = self._offsets[first + len(made)]
            problem = f"its {name} is not understood: {cause!r}"
            error = RecordError(*self._batch.source, offset, problem, next_offset=offset + 1)
            error.__cause__ = cause
            return made, error
        return made, None


NO_RECORDS: Mapping[TopicPartition, list[ConsumerRecord]] = {}


class _PolledState(NamedTuple):
    """What a flow was filled with, and how far it is."""

    #: By partition; positions are behind it.
    by_partition: Mapping[TopicPartition, list[ConsumerRecord]]
    #: In a row. Never changed: the member's thread may look at it.
    records: list[ConsumerRecord]
    #: Those that are left: an iterator of that list, so that it knows how many.
    remaining: Iterator[ConsumerRecord]

    @property
    def handed_count(self) -> int:
        """How many were handed out."""
        return len(self.records) - length_hint(self.remaining)

    @property
    def last_handed(self) -> ConsumerRecord | None:
        """The last that was."""
        at = self.handed_count
        return self.records[at - 1] if at else None


class PolledRecords:
    """Records that a poll took from the fetcher and that are not handed out yet.

    Whoever takes a record from :attr:`remaining` has it; that is counted without running Python
    code for each record. Another thread may ask at any moment what was handed out. So while records
    are left, they are changed under the driver's lock only.
    """

    __slots__ = ("_batches", "_state", "remaining")

    def __init__(self) -> None:
        self._state = _PolledState(NO_RECORDS, [], iter(()))
        #: Those that are not handed out yet.
        self.remaining = self._state.remaining
        self._batches: Sequence[Batch] = ()

    @property
    def is_empty(self) -> bool:
        """No records are left; batches do not count."""
        return not length_hint(self.remaining)

    @property
    def has_batches(self) -> bool:
        """Batches are left."""
        return bool(self._batches)

    @property
    def all_records(self) -> Records:
        """All records it was filled with."""
        return Records(self._state.by_partition)

    def set_records(self, records: Records) -> None:
        """Sets the next records; the previous ones are forgotten."""
        self._set(records.by_partition, list(records))
        self._batches = ()

    def _set(
        self,
        taken: Mapping[TopicPartition, list[ConsumerRecord]],
        records: list[ConsumerRecord],
        handed: int = 0,
    ) -> None:
        """Takes the place of what was there, for a loop that is under way, too.

        :param handed: how many of the records were handed out
        """
        before, rest = self.remaining, iter(records)
        _skip_records(rest, handed)
        self._state = _PolledState(taken, records, rest)
        self.remaining = rest
        _skip_records(before)

    def set_batches(self, batches: Sequence[Batch]) -> None:
        """The next records, as columns."""
        self.set_records(Records({}))
        self._batches = batches

    def take_records(self, most: int) -> Records:
        """Returns the remaining records, at most ``most``."""
        _, records, rest = self._state
        at = self._state.handed_count
        if not at and len(records) <= most:
            whole = self.all_records
            self.set_records(Records({}))
            return whole
        taken = _group_by_partition(records[at : at + most])
        _skip_records(rest, most)  # at once: a Ctrl-C before it leaves all of them
        return taken

    def take_batches(self) -> list[Batch]:
        """Hands out what is left, as columns."""
        taken, self._batches = list(self._batches), ()
        return taken

    def remaining_positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions of the first remaining record of each partition."""
        left = _group_by_partition(self._state.records[self._state.handed_count :])
        found = {name: _first_position(each) for name, each in left.by_partition.items()}
        for batch in reversed(self._batches):
            found[batch.source] = OffsetAndMetadata(int(batch.offsets[0]))
        return found

    def drop_remaining(self) -> None:
        """Drops the remaining records, also for a loop that is running; positions stay."""
        at = self._state.handed_count
        self._set(self._state.by_partition, self._state.records[:at], at)

    def drop_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Drops the remaining records of these partitions."""
        gone = frozenset(partitions)
        self._batches = [batch for batch in self._batches if batch.source not in gone]
        taken, records, _ = self._state
        if gone.isdisjoint(taken):
            return
        left = [
            each for each in records[self._state.handed_count :] if _partition_of(each) not in gone
        ]
        handed, names = self._state.last_handed, list(taken)
        if handed is not None and (current := _partition_of(handed)) in gone:
            names = names[names.index(current) + 1 :]  # those before it are through
            handed = None
        kept = {name: taken[name] for name in names if name not in gone}
        if handed is None:
            self._set(kept, left)
        else:
            self._set(kept, [handed, *left], 1)

    def rewind_positions(self, positions: dict[TopicPartition, OffsetAndMetadata]) -> None:
        """Moves positions back to the records that were handed out."""
        state = self._state
        handed = state.last_handed
        current = None if handed is None else _partition_of(handed)
        is_through = current is not None
        for partition, records in state.by_partition.items():
            if partition == current:
                is_through = False
                if handed is not None and handed is not records[-1]:
                    behind = OffsetAndMetadata(handed.offset + 1, "", handed.leader_epoch)
                    _set_position(positions, partition, behind)
            elif not is_through and records:
                _set_position(positions, partition, _first_position(records))
        for batch in reversed(self._batches):
            _set_position(positions, batch.source, OffsetAndMetadata(int(batch.offsets[0])))


def _set_position(
    positions: dict[TopicPartition, OffsetAndMetadata],
    partition: TopicPartition,
    offset: OffsetAndMetadata,
) -> None:
    if partition in positions:
        positions[partition] = offset


def _first_position(records: list[ConsumerRecord]) -> OffsetAndMetadata:
    return OffsetAndMetadata(records[0].offset, "", records[0].leader_epoch)


def _skip_records(rest: Iterator[object], most: int | None = None) -> None:
    """Skips this many items, or all, in one step."""
    deque(islice(rest, most), maxlen=0)


def _group_by_partition(records: Iterable[ConsumerRecord]) -> Records:
    found: dict[TopicPartition, list[ConsumerRecord]] = {}
    for record in records:
        found.setdefault(_partition_of(record), []).append(record)
    return Records(found)


def _partition_of(record: ConsumerRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
