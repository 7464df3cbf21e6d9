"""The segments of a partition as one: what readers ask goes to the one that has it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from rota.errors import Code, Refused
from rota.formats.buffer import Bytes
from rota.storage import lookup, replay, transaction
from rota.storage.allowance import Allowance
from rota.storage.scan import Damage
from rota.storage.segment import Segment, Stretch


class Chain:
    """At least one segment, in the order of their offsets.

    An offset belongs to the last segment that begins at or before it.
    """

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        self._bases = [each.base_offset for each in segments]

    def add(self, segment: Segment) -> None:
        """One more at the end."""
        self.segments.append(segment)
        self._bases.append(segment.base_offset)

    def drop_first(self) -> None:
        """The first is gone."""
        del self.segments[0], self._bases[0]

    def swap(self, bases: Sequence[int], new: Segment) -> None:
        """A new one, whose files are in place, stands for several that follow each other."""
        row = self._bases.index(bases[0])
        behind = row + len(bases)
        new.size = new.disk.size(new.log) or 0
        new.end = self._bases[behind]
        new.made, new.written = self.segments[row].made, self.segments[behind - 1].written
        self.segments[row:behind] = [new]
        self._bases[row:behind] = [new.base_offset]

    def read(self, offset: int, until: int, budget: int, *, at_least_one: bool) -> Bytes:
        """Whole batches from an offset on that is there, none that begins at ``until`` or behind.

        :raises Refused: the first is damaged
        """
        pieces: list[Bytes] = []
        row = bisect_right(self._bases, offset) - 1
        while offset < until and row < len(self.segments):
            segment = self.segments[row]
            stretch = _read(segment, offset, budget, until, at_least_one and not pieces)
            if stretch.data:
                pieces.append(stretch.data)
                budget -= len(stretch.data)
            if stretch.damage is not None and not pieces:
                raise _refused(segment, stretch.damage)
            offset = stretch.next_offset
            if stretch.damage is not None or offset < segment.end:
                break
            row += 1
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def first_since(
        self, timestamp: int, start: int, allowance: Allowance
    ) -> tuple[int, int] | None:
        """The offset and timestamp of the first record, from an offset on, that is not older.

        :raises Refused: what must be read for that is damaged, or is too much work
        """
        for segment in self.segments:
            try:
                found = lookup.first_since(segment, timestamp, start, allowance)
            except Damage as damage:
                raise _refused(segment, damage) from None
            if found is not None:
                return found
        return None

    def newest(self, allowance: Allowance) -> tuple[int, int] | None:
        """The offset and timestamp of the first record with the newest timestamp; None: no record.

        :raises Refused: what must be read for that is damaged, or is too much work
        """
        best, newest = self.segments[0], -1
        for segment in self.segments:
            try:
                found, _ = lookup.newest(segment)
                if found > newest:
                    best, newest = segment, found
            except Damage as damage:
                raise _refused(segment, damage) from None
        try:
            return lookup.newest_record(best, allowance)
        except Damage as damage:
            raise _refused(best, damage) from None

    def aborted(self, first: int, last: int) -> list[tuple[int, int]]:
        """Aborted transactions with records from one offset to before another."""
        found: list[tuple[int, int]] = []
        for row in range(max(bisect_right(self._bases, first) - 1, 0), len(self.segments)):
            entries = transaction.overlapping(replay.aborted(self.segments, row), first, last)
            found += [(each.producer_id, each.first_offset) for each in entries]
        return found


def _read(segment: Segment, offset: int, budget: int, until: int, at_least_one: bool) -> Stretch:
    try:
        place = lookup.find(segment, offset)
    except Damage as damage:
        return Stretch(b"", offset, damage)
    if place is None:  # compaction has left nothing behind it
        return Stretch(b"", segment.end, None)
    return segment.read(place, budget, min(until, segment.end), at_least_one=at_least_one)


def _refused(segment: Segment, damage: Damage) -> Refused:
    segment.tell(damage)
    return Refused(Code.CORRUPT_MESSAGE, str(damage))
