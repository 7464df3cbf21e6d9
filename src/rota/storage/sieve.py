"""What compaction keeps of a batch.

Of each key the last record is kept, and after a while not even that if it is a tombstone, one
without a value. Offsets, timestamps and the codec stay as they were. What else is kept:

- of each producer the last batch, be it without records: it has the sequence that comes before the
  next one, and the epoch;
- the last batch that was looked at, for its offset;
- a transaction's marker, until nothing is left of the transaction, and then as long as tombstones.
  What an aborted one has written goes at once, so a compacted segment needs no index of those.

How long that is, the batch says itself once it is known: compaction writes the time from which on
its tombstones, or its marker, may go ("delete horizon", KIP-534).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heapify, heappop
from typing import NamedTuple

from rota.formats.batch import Codec, Header, Marker, Record, encode, records
from rota.formats.batch.record import encode_anew, varint
from rota.formats.buffer import Bytes
from rota.storage.portion import Portion
from rota.storage.producer import Producers
from rota.storage.transaction import Aborted

LONG_KEY = 16
"""From so many bytes on a key is known by a digest of as many."""
NO_OFFSET = -1


def identity(key: bytes) -> bytes:
    """What a key is known by in memory; that of two keys is never the same but by a miracle."""
    return key if len(key) < LONG_KEY else blake2b(key, digest_size=LONG_KEY).digest()


@dataclass(slots=True)
class Newest:
    """The last offset of each key, in the part of the log that was looked at for that."""

    offsets: dict[bytes, int] = field(default_factory=dict)
    upto: int = NO_OFFSET
    """The last offset that was looked at."""


class Transactions:
    """Follows the log, and knows what has become of the transactions in it."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._ahead = [(each.first_offset, each.producer_id) for each in aborted]
        heapify(self._ahead)
        self._aborted: dict[int, bool] = {}
        """The producers of those that have begun; was a batch of them seen?"""
        self._committed: set[int] = set()
        """Producers of which a batch was seen that will be, or is, committed."""

    def drops(self, head: Header) -> bool:
        """Is a batch of data one of an aborted transaction?"""
        self._go_to(head.last_offset)
        if not head.transactional:
            return False
        producer = head.producer_id
        if producer in self._aborted:
            self._aborted[producer] = True
            return True
        self._committed.add(producer)
        return False

    def ends(self, head: Header, kind: int) -> bool:
        """May a marker go, for there was nothing left of its transaction?

        :param kind: the marker's type; -1: the batch is empty
        """
        self._go_to(head.last_offset)
        producer = head.producer_id
        if kind == Marker.ABORT:
            return not self._aborted.pop(producer, False)
        if kind == Marker.COMMIT:
            left = producer in self._committed
            self._committed.discard(producer)
            return not left
        return head.count == 0

    def _go_to(self, offset: int) -> None:
        while self._ahead and self._ahead[0][0] <= offset:
            _, producer = heappop(self._ahead)
            self._aborted.setdefault(producer, False)


class Kept(NamedTuple):
    """What is left of a batch."""

    data: Bytes
    last_offset: int
    newest: int
    """Its newest timestamp."""


class Sieve:
    """Decides of one batch after the other, in the order of the log."""

    def __init__(
        self,
        newest: Newest,
        transactions: Transactions,
        *,
        limit: int,
        now: int,
        delete_retention: int,
    ) -> None:
        """:param limit: the offset behind the last batch that will be looked at
        :param delete_retention: ``delete.retention.ms``
        """
        self._newest = newest
        self._transactions = transactions
        self._limit = limit
        self._now = now
        self._delete_retention = delete_retention
        self._last: Mapping[int, tuple[int | None, int]] = {}
        """Of each producer the last offset of its data, and its epoch."""

    def know(self, producers: Producers) -> None:
        """Who writes, and what they wrote last, as of now."""
        self._last = {
            key: (each.batches[-1].last_offset if each.batches else None, each.epoch)
            for key, each in producers
        }

    def sift(self, portion: Portion) -> Iterator[Kept]:
        """What is left of some batches: of those of which nothing is left, nothing."""
        for number, head, first, behind in portion:
            data = portion.batches[number].data
            if head.control:
                kept = self._marker(portion, number, data)
            elif self._transactions.drops(head):
                kept = self._emptied(head)
            else:
                rows = self._wanted(portion, head, first, behind)
                kept = self._records(portion, head, rows, data) if rows else self._emptied(head)
            if kept is not None:
                yield kept

    def _wanted(self, portion: Portion, head: Header, first: int, behind: int) -> list[int]:
        """The rows of the records that stay."""
        upto, last_of, data = self._newest.upto, self._newest.offsets.get, portion.data
        expired = head.delete_horizon is not None and head.delete_horizon <= self._now
        if head.base_offset > upto:
            return list(range(first, behind))
        found = []
        rows = zip(
            range(first, behind),
            portion.offset[first:behind],
            portion.key_start[first:behind],
            portion.key_size[first:behind],
            portion.value_size[first:behind],
            strict=True,
        )
        for row, offset, start, size, value_size in rows:
            if offset <= upto:
                if size < 0 or (expired and value_size < 0):
                    continue
                key = data[start : start + size]
                if offset < last_of(key if size < LONG_KEY else identity(key), NO_OFFSET):
                    continue
            found.append(row)
        return found

    def _records(self, portion: Portion, head: Header, rows: list[int], data: Bytes) -> Kept:
        horizon = head.delete_horizon
        if horizon is None and any(portion.value_size[row] < 0 for row in rows):
            kept = _chosen(portion, rows)
            return _encoded(head, kept, self._now + self._delete_retention)
        if len(rows) == head.count:
            return Kept(data, head.last_offset, head.max_timestamp)
        newest = int(portion.columns.timestamp[rows].max())
        body = _body(portion, rows)
        anew = encode_anew(head, body, count=len(rows), newest=newest)
        return Kept(anew, head.last_offset, head.max_timestamp if head.append_time else newest)

    def _marker(self, portion: Portion, number: int, data: Bytes) -> Kept | None:
        head = portion.heads[number]
        useless = self._transactions.ends(head, portion.marker[number])
        horizon = head.delete_horizon
        if not head.count or (useless and horizon is not None and horizon <= self._now):
            return self._emptied(head)
        if useless and horizon is None:
            rows = list(range(portion.first[number], portion.first[number + 1]))
            return _encoded(head, _chosen(portion, rows), self._now + self._delete_retention)
        return Kept(data, head.last_offset, head.max_timestamp)

    def _emptied(self, head: Header) -> Kept | None:
        """A batch of which no record stays."""
        if head.last_offset + 1 == self._limit or self._is_last(head):
            return _encoded(head, [], None)
        return None

    def _is_last(self, head: Header) -> bool:
        if head.producer_id not in self._last:
            return False
        offset, epoch = self._last[head.producer_id]
        if offset is None:
            return head.control and head.producer_epoch == epoch
        return head.last_offset == offset


def _body(portion: Portion, rows: list[int]) -> bytes:
    """Some records of a batch, encoded as they were: neighbours are copied together."""
    columns, data = portion.columns, portion.data
    starts, ends = columns.start[rows].tolist(), columns.end[rows].tolist()
    pieces: list[bytes] = []
    run = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or rows[place] != rows[place - 1] + 1:
            pieces.append(varint(ends[run] - starts[run]))
            pieces.append(data[starts[run] : ends[place - 1]])
            run = place
    return b"".join(pieces)


def _chosen(portion: Portion, rows: list[int]) -> list[Record]:
    """Some records of a batch as values."""
    first, wanted = rows[0], set(rows)
    every = records(portion.columns, first, rows[-1] + 1)
    return [record for row, record in enumerate(every, start=first) if row in wanted]


def _encoded(head: Header, kept: list[Record], horizon: int | None) -> Kept:
    data = encode(
        kept,
        base_offset=head.base_offset,
        last_offset=head.last_offset,
        codec=Codec(head.codec),
        append_time=head.max_timestamp if head.append_time else None,
        leader_epoch=head.leader_epoch,
        producer_id=head.producer_id,
        producer_epoch=head.producer_epoch,
        base_sequence=head.base_sequence,
        transactional=head.transactional,
        control=head.control,
        delete_horizon=horizon,
        newest=None if kept else head.max_timestamp,
    )
    newest = max((each.timestamp for each in kept), default=head.max_timestamp)
    return Kept(data, head.last_offset, head.max_timestamp if head.append_time else newest)
