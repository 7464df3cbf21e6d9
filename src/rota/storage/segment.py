"""A segment: a ``.log`` of batches, and its two indexes.

Entries of the indexes are kept in memory while the segment is written, and saved when it is full,
flushed or closed: after a crash they are made from the log anyway, and an append is one write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rota.formats.batch.header import HEAD
from rota.formats.buffer import Bytes
from rota.storage.disk import Disk
from rota.storage.epoch import Epochs
from rota.storage.index import INTERVAL, OFFSET_ENTRY, TIME_ENTRY, Entries, Indexer
from rota.storage.scan import WINDOW, Batch, Damage, Frame, Head, read_head, scan
from rota.storage.transaction import Aborted

KINDS = ("log", "index", "timeindex", "txnindex")
FARTHEST = (1 << 31) - 1
"""The highest offset in a segment, less its base: indexes have 32 bits for it."""
PLACES = 32
"""So many readers may follow a segment, each going on where it stopped, without a look-up."""


def path(folder: str, base_offset: int, kind: str, suffix: str = "") -> str:
    """Where a file of a segment is."""
    return f"{folder}/{base_offset:020}.{kind}{suffix}"


class Place(NamedTuple):
    """Where a batch begins, and the offset behind the one before it.

    Without such an offset the index says that the batch is in place.
    """

    position: int
    floor: int | None


class Stretch(NamedTuple):
    """Whole batches as they are in the file."""

    data: Bytes
    next_offset: int
    damage: Damage | None
    """What ended it."""


class Segment:
    """Files that begin at an offset, and are named by it."""

    def __init__(  # noqa: PLR0913, where it is and what it must know
        self,
        disk: Disk,
        folder: str,
        base_offset: int,
        *,
        epochs: Epochs | None = None,
        interval: int = INTERVAL,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """:param epochs: the partition's leader epochs, if they are known
        :param interval: bytes between two entries of an index, ``index.interval.bytes``
        :param report: is told of damage that was found
        """
        self.base_offset = base_offset
        self.size = 0
        self.end = base_offset
        """The next offset: while it is written, behind its last; else the next segment's first."""
        self.interval = interval
        self.epochs = epochs
        self.report = report
        self.disk = disk
        self.folder = folder
        self.log = path(folder, base_offset, "log")
        self.offsets = Entries(disk, path(folder, base_offset, "index"), OFFSET_ENTRY)
        self.times = Entries(disk, path(folder, base_offset, "timeindex"), TIME_ENTRY)
        self.indexer: Indexer | None = None
        """There while it is written."""
        self.checked = False
        """The indexes were looked at."""
        self.times_checked = True
        """Nothing newer is behind the last entry of times."""
        self.newest: tuple[int, int] | None = None
        """The newest timestamp and the last offset of its batch, once looked for."""
        self.first_timestamp: int | None = None
        """Of its first batch; that is what it ages from."""
        self.made = self.written = 0
        """When it was made and last written to, as far as is known: for records without times."""
        self.aborted: list[Aborted] | None = None
        """The transactions that were aborted in it, once looked for."""
        self.places: dict[int, int] = {}
        """Positions by the offset behind the batch before: where readers go on."""
        self._told: set[int] = set()
        """Positions of damage that was told of."""

    def create(self, now: int = 0) -> None:
        """Makes its files; those that are there are replaced."""
        self.disk.remove(self.log)
        self.disk.append(self.log, b"")
        self.offsets.create()
        self.times.create()
        self.begin(now)

    def begin(self, now: int = 0) -> None:
        """It is new, and has nothing; its files may be made later."""
        self.indexer = Indexer(self.base_offset, self.interval)
        self.checked = True
        self.made = self.written = now

    def append(self, batch: bytes | bytearray, head: Head, now: int = 0) -> None:
        """Writes a batch whose offsets are set."""
        self.disk.append(self.log, batch)
        self.take(head, now)

    def take(self, head: Head, now: int) -> None:
        """A batch was written behind the last one."""
        indexer = self.indexer
        assert indexer is not None, f"{self.log} is full"
        size, last_offset = head.size, head.last_offset
        of_offset, of_time = indexer.add(self.size, size, last_offset, head.max_timestamp)
        if of_offset:
            self.offsets.add(of_offset)
            self.times.add(of_time)
        if not self.size:
            self.first_timestamp = head.max_timestamp
        self.size += size
        self.end = last_offset + 1
        self.written = now

    def aged(self, timestamp: int, now: int) -> int:
        """How much older than its first batch one with this timestamp is."""
        if not self.size:
            return 0
        if self.first_timestamp is None:
            head = read_head(self.disk, self.log, 0)
            self.first_timestamp = -1 if head is None else head.max_timestamp
        return timestamp - self.first_timestamp if self.first_timestamp >= 0 else now - self.made

    def has_room(self, size: int, last_offset: int, most: int, index_bytes: int) -> bool:
        """May a batch of this size be appended?

        :param most: bytes of the log
        :param index_bytes: of either index
        """
        return (
            self.size + size <= most
            and last_offset - self.base_offset <= FARTHEST
            and self.offsets.has_room(index_bytes)
            and self.times.has_room(index_bytes)
        )

    def save(self) -> None:
        """Writes the indexes as they are, with a last entry of times: it may be closed."""
        if self.indexer is not None:
            self.times.add(self.indexer.last_time())
            self.offsets.save()
            self.times.save()

    def sync(self) -> None:
        """All of it outlives a loss of power."""
        self.save()
        for name in (self.log, self.offsets.path, self.times.path):
            self.disk.sync(name)

    def seal(self) -> None:
        """Nothing more is written to it; its indexes were saved."""
        if self.indexer is not None:
            self.newest = self.indexer.newest, self.indexer.newest_at
        self.indexer = None
        self.offsets.release()
        self.times.release()

    def remove(self) -> None:
        """Takes its files away; a crash on the way leaves none that look like a segment's."""
        there = [
            name
            for kind in KINDS
            if self.disk.size(name := path(self.folder, self.base_offset, kind)) is not None
        ]
        for name in there:
            self.disk.rename(name, f"{name}.deleted")
        for name in there:
            self.disk.remove(f"{name}.deleted")

    def frame(self) -> Frame:
        """What must hold for its batches."""
        return Frame(self.disk, self.log, self.size, self.epochs, self.end)

    def scan(self, begin: int = 0, window: int = WINDOW) -> Iterator[Batch]:
        """Every batch from the first on, or from a position at which one is known to begin.

        :raises Damage: at the first that is not sound
        """
        return scan(self.frame(), begin, None if begin else self.base_offset, window)

    def read(self, place: Place, budget: int, until: int, *, at_least_one: bool) -> Stretch:
        """Whole batches from a place on, no more than so many bytes, and none from ``until`` on.

        :param at_least_one: the first may be larger than the budget
        """
        position, floor = place
        frame = self.frame()
        wanted = min(max(budget, HEAD.size), self.size - position)
        data = self.disk.read(self.log, position, wanted)
        view = memoryview(data)
        at = 0
        damage: Damage | None = None
        try:
            while at < len(view):
                head = frame.check(view, at, position, floor)
                if head is None:
                    if at or not at_least_one:
                        break
                    data = self._first(frame, view, position)
                    view = memoryview(data)
                    continue
                if head.base_offset >= until or (
                    at + head.size > budget and (at or not at_least_one)
                ):
                    break
                at += head.size
                floor = head.last_offset + 1
        except Damage as found:
            damage = found
            self.tell(found)
        if at:
            self._remember(floor, position + at)
        return Stretch(
            data if at == len(data) else view[:at],
            self.base_offset if floor is None else floor,
            damage,
        )

    def _first(self, frame: Frame, view: memoryview, position: int) -> bytes:
        """A first batch that is larger than what was asked for."""
        head = Head._make(HEAD.unpack_from(view))
        if head.size > WINDOW:  # a wrong length must not cost memory
            frame.check_large(position, head)
        data = self.disk.read(self.log, position, head.size)
        if len(data) < head.size:
            raise Damage(self.log, position, f"the file ends {head.size - len(data)} bytes early")
        return data

    def _remember(self, offset: int | None, position: int) -> None:
        if offset is None:
            return
        if len(self.places) >= PLACES:
            del self.places[next(iter(self.places))]
        self.places[offset] = position

    def tell(self, damage: Damage) -> None:
        """Says what was found, once."""
        if damage.position not in self._told:
            self._told.add(damage.position)
            self.report(f"{damage}; nothing of it is served")
