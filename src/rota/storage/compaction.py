"""Compaction of one log: of every key only the last record is kept.

The part of a log that was not compacted before is dirty. It is looked through for the last offset
of each key; then all segments up to its end are written anew without what is superseded, small ones
together as one. The last segment, to which is written, is never touched, nor is what the topic's
settings or an open transaction still protect. See :mod:`rota.storage.sieve` for what is kept, and
:mod:`rota.storage.swap` for how the new files take the place of the old.

All is done in slices, between which the log may be appended to and read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from rota.errors import DiskError, FormatError
from rota.model.config import INT, LONG
from rota.storage import lookup, replay, swap
from rota.storage.index import Indexer
from rota.storage.log import Log
from rota.storage.portion import Portion, portions
from rota.storage.scan import Damage, read_head
from rota.storage.segment import KINDS, Segment, path
from rota.storage.sieve import Kept, Newest, Sieve, Transactions, identity
from rota.storage.transaction import Aborted

MOST_KEYS = 500_000
"""So many keys are known at a time, in some 80 MB; what is behind them waits for the next pass."""

Work: TypeAlias = Generator[None, None, int | None]
"""Gives way after each slice; in the end the offset up to which the log is compacted now, or None:
segments were deleted meanwhile, and it should be begun anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirt:
    """How dirty a log is."""

    first: int
    """The first offset that is dirty."""
    limit: int
    """The first that may not be compacted yet, where a segment begins."""
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Something is dirty for longer than ``max.compaction.lag.ms``."""

    @property
    def ratio(self) -> float:
        """How much of what may be compacted is dirty."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    def worth(self, least: float) -> bool:
        """Is it time? With ``min.cleanable.dirty.ratio``."""
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > least)


def look(log: Log, point: int | None, now: int) -> Dirt:
    """How dirty a log is.

    :param point: up to where it was compacted, by the checkpoint
    :raises FormatError: the log is damaged
    """
    first = log.start if point is None or not log.start <= point <= log.end else point
    bases = [each.base_offset for each in log.segments]
    closed = log.segments[:-1]
    dirty = closed[max(bisect_right(bases, first) - 1, 0) :]
    allowed = min(log.stable, bases[-1])
    lag = log.config.min_compaction_lag
    try:
        if lag:
            young = [each for each in dirty if lookup.newest(each)[0] > now - lag]
            allowed = min([allowed, *(each.base_offset for each in young)])
        overdue = log.config.max_compaction_lag < LONG and any(
            0 < _first_timestamp(each) < now - log.config.max_compaction_lag for each in dirty
        )
    except Damage as damage:
        raise FormatError(str(damage)) from None
    limit = bases[max(bisect_right(bases, max(first, allowed)) - 1, 0)]
    return Dirt(
        first=first,
        limit=limit,
        clean_bytes=sum(each.size for each in closed if each.base_offset < first),
        dirty_bytes=sum(each.size for each in dirty if each.base_offset < limit),
        overdue=overdue,
    )


def _first_timestamp(segment: Segment) -> int:
    head = read_head(segment.disk, segment.log, 0)
    return -1 if head is None else head.max_timestamp


def compact(log: Log, dirt: Dirt, now: int, *, most_keys: int = MOST_KEYS) -> Work:
    """Compacts a log, in slices.

    Closing the generator ends it at once; what is done is done.

    :raises FormatError: the log is damaged; nothing behind that is touched
    :raises DiskError: the machine refused; the log is as it was, or is ``failed``
    """
    work = _compact(log, dirt, now, most_keys)
    try:
        while True:
            try:
                next(work)
            except StopIteration as done:
                return int(done.value)
            first = log.segments[0]
            yield
            if log.segments[0] is not first:
                return None
    except Damage as damage:
        raise FormatError(str(damage)) from None
    finally:
        work.close()


def _compact(log: Log, dirt: Dirt, now: int, most_keys: int) -> Generator[None, None, int]:
    aborted = _aborted(log)
    newest = Newest()
    yield from _find_newest(log, dirt, Transactions(aborted), newest, most_keys)
    end = newest.upto + 1
    if end <= dirt.first:
        return dirt.first
    sieve = Sieve(
        newest,
        Transactions(aborted),
        limit=dirt.limit,
        now=now,
        delete_retention=log.config.delete_retention,
    )
    wanted = [each for each in log.segments[:-1] if each.base_offset < end]
    for group in _groups(log, wanted):
        yield from _clean(log, group, sieve)
    return end


def _aborted(log: Log) -> list[Aborted]:
    rows = range(len(log.segments))
    return [each for row in rows for each in replay.aborted(log.segments, row)]


def _find_newest(
    log: Log, dirt: Dirt, transactions: Transactions, newest: Newest, most_keys: int
) -> Generator[None]:
    """Looks through the dirty part, or as much of it as there is room for keys."""
    bases = [each.base_offset for each in log.segments]
    begin = max(bisect_right(bases, dirt.first) - 1, 0)
    for segment in log.segments[begin:-1]:
        if segment.base_offset >= dirt.limit:
            return
        for portion in portions(segment):
            for number, head, first, behind in portion:
                if head.control:
                    transactions.ends(head, portion.marker[number])
                elif not transactions.drops(head) and head.last_offset >= dirt.first:
                    found = _keys(portion, first, behind, dirt.first)
                    if newest.offsets and len(newest.offsets) + len(found) > most_keys:
                        return
                    newest.offsets.update(found)
                newest.upto = max(newest.upto, head.last_offset)
            yield
        newest.upto = segment.end - 1  # offsets that are missing at its end count too


def _keys(portion: Portion, first: int, behind: int, least: int) -> dict[bytes, int]:
    """The keys of a batch, with the last offset of each."""
    data = portion.data
    rows = zip(
        portion.offset[first:behind],
        portion.key_start[first:behind],
        portion.key_size[first:behind],
        strict=True,
    )
    return {
        identity(data[start : start + size]): offset
        for offset, start, size in rows
        if size >= 0 and offset >= least
    }


def _groups(log: Log, segments: Sequence[Segment]) -> list[list[Segment]]:
    """Neighbours that are no larger together than a segment may be."""
    groups: list[list[Segment]] = []
    size = index = times = 0
    for segment in segments:
        of_index, of_times = _index_sizes(log, segment)
        size, index, times = size + segment.size, index + of_index, times + of_times
        fits = (
            bool(groups)
            and size <= log.config.segment_bytes
            and max(index, times) <= log.config.segment_index_bytes
            and segment.end - 1 - groups[-1][0].base_offset <= INT
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size, index, times = segment.size, of_index, of_times
    return groups


def _index_sizes(log: Log, segment: Segment) -> tuple[int, int]:
    of_index, of_times = (
        log.disk.size(path(log.folder, segment.base_offset, kind)) or 0
        for kind in ("index", "timeindex")
    )
    return of_index, of_times


class _Cleaned:
    """The files of the new segment while they are written."""

    def __init__(self, log: Log, base: int) -> None:
        self.size = 0
        self._disk = log.disk
        self._files = {kind: path(log.folder, base, kind, swap.CLEANED) for kind in KINDS}
        self._indexer = Indexer(base, log.config.index_interval)
        self._waiting: dict[str, bytearray] = {kind: bytearray() for kind in self._files}
        for name in self._files.values():
            self._disk.append(name, b"")

    def add(self, kept: Kept) -> None:
        """A batch."""
        size = len(kept.data)
        of_offset, of_time = self._indexer.add(self.size, size, kept.last_offset, kept.newest)
        self._waiting["log"] += kept.data
        self._waiting["index"] += of_offset
        self._waiting["timeindex"] += of_time
        self.size += size

    def write(self) -> None:
        """Writes what has come."""
        for kind, waiting in self._waiting.items():
            if waiting:
                self._disk.append(self._files[kind], waiting)
                self._waiting[kind] = bytearray()

    def close(self) -> Generator[None]:
        """All of it outlives a loss of power."""
        self._waiting["timeindex"] += self._indexer.last_time()
        self.write()
        for name in self._files.values():
            yield
            self._disk.sync(name)
        yield


def _clean(log: Log, group: Sequence[Segment], sieve: Sieve) -> Generator[None]:
    """Writes some segments anew as one."""
    bases = [each.base_offset for each in group]
    swap.drop(log.disk, log.folder, bases[0])
    try:
        cleaned = _Cleaned(log, bases[0])
        sieve.know(log.producers)
        for segment in group:
            for portion in portions(segment):
                for kept in sieve.sift(portion):
                    cleaned.add(kept)
                cleaned.write()
                yield
        yield from cleaned.close()
        _swap(log, bases)
    except BaseException:
        with suppress(DiskError):
            swap.drop(log.disk, log.folder, bases[0])
        raise
    log.swapped(bases)


def _swap(log: Log, bases: list[int]) -> None:
    try:
        swap.swap(log.disk, log.folder, bases)
    except DiskError as error:
        if swap.begun(log.disk, log.folder, bases[0]):
            log.fail(f"compaction was stopped in the middle: {error}")
        raise
