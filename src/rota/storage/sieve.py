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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from heapq import heapify, heappop

from rota.errors import FormatError
from rota.formats.batch import Codec, Columns, Header, Marker, Record, decode, encode, records
from rota.formats.buffer import Bytes
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


@dataclass(slots=True)
class Kept:
    """What is left of a batch."""

    data: Bytes
    """Nothing, if the batch is gone."""
    newest: int = -1
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
        self.last: Mapping[int, tuple[int | None, int]] = {}
        """Of each producer the last offset of its data, and its epoch."""

    def know(self, producers: Producers) -> None:
        """Who writes, and what they wrote last, as of now."""
        self.last = {
            key: (each.batches[-1].last_offset if each.batches else None, each.epoch)
            for key, each in producers
        }

    def keep(self, head: Header, data: Bytes) -> Kept:
        """What is left of a batch.

        :raises FormatError: it cannot be read
        """
        if head.control:
            return self._keep_marker(head, data)
        if self._transactions.drops(head):
            return self._emptied(head)
        columns = _decoded(head, data)
        rows = self._wanted(head, columns)
        if not rows:
            return self._emptied(head)
        tombstones = bool((columns.value_size[rows] < 0).any())
        horizon = head.delete_horizon
        if tombstones and horizon is None:
            horizon = self._now + self._delete_retention
        if len(rows) == len(columns) and horizon == head.delete_horizon:
            return Kept(data, head.max_timestamp)
        every = list(records(columns))
        return _rewritten(head, [every[row] for row in rows], horizon)

    def _wanted(self, head: Header, columns: Columns) -> list[int]:
        """The rows of the records that stay."""
        upto, offsets = self._newest.upto, self._newest.offsets
        horizon = head.delete_horizon
        expired = horizon is not None and horizon <= self._now
        data = columns.buffer.data
        lists = (columns.offset, columns.key_start, columns.key_size, columns.value_size)
        found = []
        rows = zip(*[each.tolist() for each in lists], strict=True)
        for row, (offset, start, size, value_size) in enumerate(rows):
            if offset <= upto:
                if size < 0 or (expired and value_size < 0):
                    continue
                if offset < offsets.get(identity(data[start : start + size]), NO_OFFSET):
                    continue
            found.append(row)
        return found

    def _keep_marker(self, head: Header, data: Bytes) -> Kept:
        columns = _decoded(head, data)
        kind = int(columns.batches.marker[0])
        useless = self._transactions.ends(head, kind)
        horizon = head.delete_horizon
        if not head.count or (useless and horizon is not None and horizon <= self._now):
            return self._emptied(head)
        if useless and horizon is None:
            horizon = self._now + self._delete_retention
            return _rewritten(head, list(records(columns)), horizon)
        return Kept(data, head.max_timestamp)

    def _emptied(self, head: Header) -> Kept:
        """A batch of which no record stays."""
        if not (head.last_offset + 1 == self._limit or self._is_last(head)):
            return Kept(b"")
        return _rewritten(head, [], None)

    def _is_last(self, head: Header) -> bool:
        if head.producer_id not in self.last:
            return False
        offset, epoch = self.last[head.producer_id]
        if offset is None:
            return head.control and head.producer_epoch == epoch
        return head.last_offset == offset


def _decoded(head: Header, data: Bytes) -> Columns:
    columns = decode(data, check=False)  # whoever read it has checked it
    if columns.problems:
        raise FormatError(f"batch at offset {head.base_offset}: {columns.problems[0].text}")
    return columns


def _rewritten(head: Header, kept: list[Record], horizon: int | None) -> Kept:
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
    return Kept(data, head.max_timestamp if head.append_time else newest)
