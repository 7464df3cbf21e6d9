"""What was fetched and waits to be handed out, in the order in which it came.

An answer is decoded when its turn comes, and handed out to its end before the next: there are never
two of which much is decoded, but for one that was laid aside midway. That is where what belongs to
a partition goes that is paused, withheld or validated; what belongs to one that was revoked or
sought in is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from rota.client.answer import PORTION
from rota.client.batch import Batch
from rota.client.fetch import Fetched
from rota.consumer.entry import Position
from rota.consumer.making import Deserializer
from rota.consumer.position import Positions
from rota.consumer.record import ConsumerRecord, Records
from rota.consumer.verdict import missing
from rota.consumer.waiting import ROWS, Waiting, behind
from rota.model.client import ReadConfig
from rota.model.topic import TopicPartition


@dataclass(slots=True)
class Trouble:
    """An error that is raised when its turn comes."""

    error: Exception | None
    """None: no offset is committed for the partitions, and there is no policy."""
    stamps: dict[TopicPartition, int]
    """Whom it concerns; nobody: the consumer as a whole."""
    lasting: bool = False
    """It is raised again and again, until the application seeks elsewhere."""

    @property
    def key(self) -> Hashable:
        """What is the same in two that tell the same."""
        return type(self.error), str(self.error), frozenset(self.stamps.items())


def forget(_: object) -> None:
    """Keeps nothing."""


class Buffer:
    """Answers and errors, first come, first served."""

    def __init__(
        self,
        positions: Positions,
        config: ReadConfig,
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
        self._queue: deque[Waiting | Trouble] = deque()
        self._troubles: set[Hashable] = set()
        """The keys of those in the queue."""
        self._aside: dict[TopicPartition, list[Waiting]] = {}
        self._begun: Waiting | None = None
        """The one of those that was decoded, and not handed out to its end."""
        self._changes = positions.changes
        """As it was when this was last tidied."""
        self._has_drained = False
        """Something has, and nobody was told yet."""

    def __bool__(self) -> bool:
        """There is something to be handed out, or raised."""
        self.tidy()
        return bool(self._queue)

    def add(self, fetched: Fetched) -> None:
        """An answer with records."""
        stamp = self._positions[fetched.partition].stamp
        self._queue.append(Waiting(fetched, stamp))

    def add_trouble(
        self, error: Exception | None, *concerned: TopicPartition, lasting: bool = False
    ) -> None:
        """An error, to be raised behind what is there; the same one waits only once."""
        stamps = {each: self._positions[each].stamp for each in concerned}
        trouble = Trouble(error, stamps, lasting)
        if trouble.key not in self._troubles:
            self._troubles.add(trouble.key)
            self._queue.append(trouble)

    def trouble_of(self, partitions: frozenset[TopicPartition]) -> Exception | None:
        """The first error that concerns one of these, or all; it is not raised again by others,
        unless it lasts.
        """
        self.tidy()
        for each in list(self._queue):
            if not isinstance(each, Trouble):
                continue
            if not each.stamps or not partitions.isdisjoint(each.stamps):
                if not each.lasting:
                    self._queue.remove(each)
                    self._troubles.discard(each.key)
                return self._error(each)
        return None

    def tidy(self) -> None:
        """Drops what is of the past, and brings back what may be handed out again."""
        if self._changes == self._positions.changes:
            return
        self._changes = self._positions.changes
        back = [tp for tp in self._aside if (e := self._positions.get(tp)) is None or e.gives]
        for partition in back:
            self._queue.extendleft(reversed(self._aside.pop(partition)))
        self._queue = deque([each for each in self._queue if self._stands(each)])
        self._troubles = {each.key for each in self._queue if isinstance(each, Trouble)}
        for partition, items in list(self._aside.items()):
            self._aside[partition] = [each for each in items if self._stands(each)]
        begun = self._begun
        if begun is not None and begun not in self._aside.get(begun.partition, ()):
            self._begun = None

    # Handing out

    def prepare(self, most: int) -> None:
        """Decodes and makes so many records, if they are there. Deserializers run in here."""
        made = 0
        for item in list(self._queue):
            if isinstance(item, Trouble):
                break
            entry = self._positions.get(item.partition)
            if entry is None or entry.stamp != item.stamp or not entry.gives:
                continue
            rows = most - made if made else ROWS  # behind others not more than are asked for
            item.prepare(self._config, self._key, self._value, rows)
            made += item.ready
            if item.is_through and item is self._queue[0]:
                self._finish(item)
                self._tell()
            if made >= most or item.error is not None:
                break

    def take(self, most: int, keep: Callable[[Records], None] = forget) -> Records:
        """Up to so many of the records that are prepared.

        :param keep: is given them before the positions move: if something stops this in between,
            they come twice rather than never
        :raises Exception: an error whose turn has come; there are no records before it
        """
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        left = most
        try:
            while left > 0 and (waiting := self._next(bool(found))) is not None and waiting.ready:
                records, position = waiting.take(left)
                known = found.setdefault(waiting.partition, records)
                if known is not records:
                    known += records
                keep(Records(found))
                self._hand(waiting, position)
                waiting.took(len(records))
                left -= len(records)
        finally:
            self._tell()
        return Records(found)

    def take_batches(
        self, keep: Callable[[list[Batch]], None] = forget, most: int = PORTION
    ) -> list[Batch]:
        """Answers as columns, until they have so many bytes; one at least.

        :param keep: as in :meth:`take`
        :raises Exception: an error whose turn has come; there are no records before it
        """
        found: list[Batch] = []
        left = most
        try:
            while left > 0 and (waiting := self._next(bool(found))) is not None:
                rows = waiting.take_rows()
                found.append(rows)
                keep(found)
                self._hand(waiting, behind(rows))
                waiting.took(len(rows))
                left -= waiting.size
        finally:
            self._tell()
        return found

    def _next(self, some: bool) -> Waiting | None:
        """The answer whose turn it is, opened; None: nobody's, or that of an error that must wait
        because there are some records before it.
        """
        while (waiting := self._first(some)) is not None:
            if not waiting.is_open:
                self._tell()
            waiting.open(self._config)
            if waiting.passed is not None:
                self._hand(waiting, behind(waiting.passed))
                waiting.passed = None
            if waiting.error is not None:
                if some:
                    return None
                self._stumble(waiting)
                raise waiting.stumble()
            if not waiting.is_empty:
                return waiting
            self._finish(waiting)
        return None

    def _first(self, some: bool) -> Waiting | None:
        """Whose turn it is; None: nobody's, or that of an error that must wait."""
        while self._queue:
            item = self._queue[0]
            if isinstance(item, Trouble):
                stands = self._stands(item)
                if stands and some:
                    return None
                self._queue.popleft()
                if stands and item.lasting:
                    self._queue.append(item)
                else:
                    self._troubles.discard(item.key)
                if not stands:
                    continue
                raise self._error(item)
            entry = self._positions.get(item.partition)
            if entry is not None and entry.stamp == item.stamp:
                if entry.gives and item.partition not in self._aside:
                    return item
                self._lay_aside(item)
            self._queue.popleft()
        return None

    def _lay_aside(self, item: Waiting) -> None:
        """Until its partition gives again, which may be soon, or never: the last one stays decoded,
        the others are bytes as they came.
        """
        self._aside.setdefault(item.partition, []).append(item)
        large: Waiting | None = item
        if item.is_begun:
            large, self._begun = self._begun, item
        if large is not None:
            large.shrink()

    def _hand(self, waiting: Waiting, position: Position) -> None:
        self._positions.hand(waiting.partition, waiting.stamp, position)

    def _finish(self, waiting: Waiting) -> None:
        self._queue.popleft()
        self._positions.drained(waiting.partition, waiting.stamp, waiting.size)
        self._has_drained = True

    def _tell(self) -> None:
        if self._has_drained:
            self._has_drained = False
            self._drained()

    def _stumble(self, waiting: Waiting) -> None:
        """Lets the others go on, for this one waits for the application."""
        partition = waiting.partition
        self._positions.stumble(partition)
        own = [each for each in self._queue if getattr(each, "partition", None) == partition]
        others = [each for each in self._queue if getattr(each, "partition", None) != partition]
        self._queue = deque(others + own)

    def _stands(self, item: Waiting | Trouble) -> bool:
        if isinstance(item, Waiting):
            return self._stamped(item.partition, item.stamp)
        return not item.stamps or any(self._stamped(*each) for each in item.stamps.items())

    def _stamped(self, partition: TopicPartition, stamp: int) -> bool:
        entry = self._positions.get(partition)
        return entry is not None and entry.stamp == stamp

    def _error(self, trouble: Trouble) -> Exception:
        if trouble.error is not None:
            return trouble.error
        return missing(
            [each for each, stamp in trouble.stamps.items() if self._stamped(each, stamp)]
        )
