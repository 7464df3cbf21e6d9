"""What a partition knows of the producers that write to it: epochs, sequences, transactions.

A producer that asked for an id numbers the records it sends to a partition. The log takes a batch
whose numbers follow those of the batch before, answers one that it has already with the offsets it
has there (a retry whose first answer was lost), and refuses all else: nothing is stored twice, and
nothing is left out. The five last batches are known, as many as a client may have under way.

All of it is replayed from the log; see :mod:`rota.storage.snapshot` for the shortcut.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rota.errors import Code, FormatError, Refused
from rota.formats.batch import Header, Marker, decode
from rota.formats.buffer import Bytes
from rota.model.config import DAY, INT
from rota.storage.transaction import Aborted

BATCHES = 5
"""``max.in.flight.requests.per.connection`` of an idempotent producer is no more."""
NO_EPOCH = NO_SEQUENCE = NO_TIMESTAMP = -1
COORDINATOR_EPOCH = struct.Struct(">hi")
"""A marker's value: its version and the epoch."""


class Taken(NamedTuple):
    """A batch that the log has."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class Ended(NamedTuple):
    """A marker, which ends a transaction."""

    kind: int
    """A :class:`~rota.formats.batch.Marker`."""
    coordinator_epoch: int
    timestamp: int


@dataclass(slots=True, kw_only=True)
class Producer:
    """One of them."""

    epoch: int = NO_EPOCH
    timestamp: int = NO_TIMESTAMP
    """Of the last batch or marker."""
    coordinator_epoch: int = -1
    transaction: int | None = None
    """The first offset of the one that is open."""
    batches: list[Taken] = field(default_factory=list)
    """The last of this epoch."""


class Producers:
    """Those of one partition, by their ids."""

    def __init__(self, expiration: int = DAY) -> None:
        """:param expiration: ``producer.id.expiration.ms``."""
        self.end = 0
        """All batches before this offset are known here."""
        self.expiration = expiration
        self._known: dict[int, Producer] = {}
        self._open: dict[int, int] = {}
        """Open transactions: their producers by their first offsets, which ascend."""

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[tuple[int, Producer]]:
        """In the order of their ids."""
        return iter(sorted(self._known.items()))

    def get(self, producer_id: int) -> Producer | None:
        """What is known of one."""
        return self._known.get(producer_id)

    def put(self, producer_id: int, producer: Producer) -> None:
        """What a snapshot knows of one."""
        self._known[producer_id] = producer
        if producer.transaction is not None:
            self._open[producer.transaction] = producer_id
            self._open = dict(sorted(self._open.items()))

    def check(self, header: Header) -> Taken | None:
        """May a batch that a producer with an id sent be appended? Else where it is already.

        :raises Refused: it may not, and is not there
        """
        producer = self._known.get(header.producer_id)
        if producer is None:
            # All it wrote was deleted or has expired, or it is new: any sequence may come first.
            if header.transactional:
                raise _no_transaction(header)
            return None
        epoch = header.producer_epoch
        if epoch == producer.epoch:
            first, last = header.base_sequence, _last_sequence(header)
            for taken in producer.batches:
                if taken.first_sequence == first and taken.last_sequence == last:
                    return taken
        elif epoch < producer.epoch:
            raise Refused(
                Code.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id}: epoch {epoch} is over, it is in {producer.epoch}",
            )
        if header.transactional and (producer.transaction is None or epoch != producer.epoch):
            raise _no_transaction(header)
        _check_sequence(header, producer)
        if producer.transaction is not None and not header.transactional:
            raise Refused(
                Code.INVALID_TXN_STATE,
                f"producer {header.producer_id}: a batch without a transaction, while the one "
                f"from offset {producer.transaction} on is open",
            )
        return None

    def take(self, header: Header, end: Ended | None = None) -> Aborted | None:
        """A batch with a producer's id is in the log now, or was found there; nothing is checked.

        :param end: the marker, of a control batch that has one
        :return: the transaction that this has aborted, for the segment's index
        """
        if header.control:
            return self._end(header, end) if end else None  # empty: all of it was compacted away
        producer_id, epoch = header.producer_id, header.producer_epoch
        producer = self._known.get(producer_id)
        if producer is None:
            producer = self._known[producer_id] = Producer(epoch=epoch)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
        elif len(producer.batches) == BATCHES:
            del producer.batches[0]
        first, last = header.base_offset, header.last_offset
        producer.timestamp = header.max_timestamp
        producer.batches.append(
            Taken(header.base_sequence, _last_sequence(header), first, last, header.max_timestamp)
        )
        if header.transactional and producer.transaction is None:
            producer.transaction = first
            self._open[first] = producer_id
        return None

    def _end(self, header: Header, end: Ended) -> Aborted | None:
        producer = self._known.setdefault(header.producer_id, Producer())
        first, last = producer.transaction, header.base_offset
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.coordinator_epoch = end.coordinator_epoch
        producer.timestamp = end.timestamp
        producer.transaction = None
        if first is None:  # a marker without data moves no stable offset
            return None
        self._open.pop(first, None)
        if end.kind != Marker.ABORT:
            return None
        return Aborted(header.producer_id, first, last, self.stable(last + 1))

    def stable(self, end: int) -> int:
        """The last stable offset of a log with this end: what is before it is decided."""
        return min(next(iter(self._open), end), end)

    def expire(self, now: int) -> None:
        """Forgets those that have not written for long; not in the middle of a transaction."""
        limit = now - self.expiration
        gone = [key for key, each in self._known.items() if each.timestamp <= limit]
        for key in gone:
            if self._known[key].transaction is None:
                del self._known[key]


def marker_of(batch: Bytes) -> Ended | None:
    """The marker in a control batch; None if compaction has emptied it, or it is of another kind.

    :raises FormatError: it cannot be read
    """
    columns = decode(batch, check=False)
    if columns.problems:
        raise FormatError(f"control batch: {columns.problems[0].text}")
    if not len(columns) or columns.batches.marker[0] not in set(Marker):
        return None
    value = columns.value(0) or b""
    if len(value) < COORDINATOR_EPOCH.size:
        raise FormatError(f"control batch: {len(value)} bytes are no marker's value")
    _, epoch = COORDINATOR_EPOCH.unpack_from(value)
    return Ended(int(columns.batches.marker[0]), epoch, int(columns.timestamp[0]))


def _check_sequence(header: Header, producer: Producer) -> None:
    first = header.base_sequence
    if producer.epoch != header.producer_epoch:
        if first and producer.epoch != NO_EPOCH:
            raise Refused(
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: sequence {first} first in epoch "
                f"{header.producer_epoch}, which begins with 0",
            )
        return
    last = producer.batches[-1].last_sequence if producer.batches else NO_SEQUENCE
    if first != last + 1 and not (first == 0 and last == INT):
        raise Refused(
            Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id}: sequence {first} after {last}",
        )


def _last_sequence(header: Header) -> int:
    """That of the last record; behind the highest number comes 0."""
    first = header.base_sequence
    return first if first == NO_SEQUENCE else (first + header.last_offset_delta) & INT


def _no_transaction(header: Header) -> Refused:
    return Refused(
        Code.INVALID_TXN_STATE,
        f"producer {header.producer_id}: a batch of a transaction that is not open here",
    )
