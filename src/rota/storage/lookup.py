"""Finds offsets and times in a segment by its indexes, which the log must confirm.

An entry of offsets is believed if the batch at its position ends with its offset, one of times if
the batch at its offset has its timestamp. One that is wrong costs a scan of the segment, from which
both indexes are made anew; that is said.
"""

from __future__ import annotations

from rota.formats.batch.header import APPEND_TIME_BIT
from rota.storage.allowance import Allowance
from rota.storage.index import Indexer
from rota.storage.scan import Batch, Damage, Head, read_head, scan
from rota.storage.scan import newest as newest_head
from rota.storage.segment import Place, Segment

LOOK = 1 << 16
"""The window of a look-up: a few entries' distance."""


def find(segment: Segment, offset: int) -> Place | None:
    """The batch that has an offset, or the next one behind it; None: all are before.

    :raises Damage: a batch on the way to it is not sound
    """
    position = segment.places.get(offset)
    if position is not None:
        return Place(position, offset) if position < segment.size else None
    check(segment)
    row = segment.offsets.at_or_below(offset - segment.base_offset)
    nearest = row
    place = _entry(segment, row)
    while place is None:  # the index is wrong here, or the batch: from farther back it will show
        row = max(row // 2 - 1, -1) if row else -1
        place = _entry(segment, row)
    position, floor = place
    for batch in scan(segment.frame(), position, floor, LOOK):
        if batch.head.last_offset >= offset:
            if row != nearest:
                rebuild(segment, "an entry is not what the log has")
            return Place(batch.position, floor)
        floor = batch.head.last_offset + 1
    return None


def _entry(segment: Segment, row: int) -> Place | None:
    """Where an entry says that a batch is, if one is there; before the first: where all begin."""
    if row < 0:
        return Place(0, segment.base_offset)
    relative, position = segment.offsets[row]
    head = read_head(segment.disk, segment.log, position) if position >= 0 else None
    if head is None or head.last_offset != segment.base_offset + relative:
        return None
    return Place(position, None)


def first_since(
    segment: Segment, timestamp: int, start: int, allowance: Allowance
) -> tuple[int, int] | None:
    """The offset and timestamp of the first record, from an offset on, that is not older.

    :raises Damage: a batch on the way to it is not sound
    :raises Refused: it is too much work to look into one
    """
    if newest(segment)[0] < timestamp:
        return None
    place = _place_before(segment, timestamp)
    for batch in scan(segment.frame(), *place, LOOK):
        head = batch.head
        if head.max_timestamp >= timestamp and head.last_offset >= start:
            found = _record_since(batch, timestamp, start, allowance)
            if found is not None:
                return found
    return None


def _place_before(segment: Segment, timestamp: int) -> Place:
    """A batch such that all before it are older."""
    row = segment.times.at_or_below(timestamp - 1)
    if row < 0:
        return Place(0, segment.base_offset)
    when, relative = segment.times[row]
    place = find(segment, segment.base_offset + relative)
    if place is not None and _confirmed(segment, place, when, segment.base_offset + relative):
        return place
    rebuild(segment, "an entry of times is not what the log has")
    row = segment.times.at_or_below(timestamp - 1)
    if row < 0:
        return Place(0, segment.base_offset)
    return find(segment, segment.base_offset + segment.times[row][1]) or Place(
        0, segment.base_offset
    )


def _confirmed(segment: Segment, place: Place, when: int, last_offset: int) -> bool:
    head = read_head(segment.disk, segment.log, place.position)
    return head is not None and (head.max_timestamp, head.last_offset) == (when, last_offset)


def _record_since(
    batch: Batch, timestamp: int, start: int, allowance: Allowance
) -> tuple[int, int] | None:
    head = batch.head
    if head.attributes & APPEND_TIME_BIT and head.records == head.last_offset_delta + 1:
        return max(head.base_offset, start), head.max_timestamp
    columns = allowance.decode(batch.data, head)
    rows = (columns.timestamp >= timestamp) & (columns.offset >= start)
    if not rows.any():
        return None
    row = int(rows.argmax())
    return int(columns.offset[row]), int(columns.timestamp[row])


def newest(segment: Segment) -> tuple[int, int]:
    """The newest timestamp, and the last offset of its batch; -1: none has one.

    :raises Damage: a batch that must be looked at is not sound
    """
    check(segment)
    indexer = segment.indexer
    if indexer is not None:
        claim = indexer.newest, indexer.newest_at
        if segment.times_checked:
            return claim
    elif segment.newest is not None:
        return segment.newest
    else:
        when, relative = segment.times[-1] if len(segment.times) else (-1, 0)
        claim = when, segment.base_offset + relative
    if not _is_newest(segment, *claim):
        made = rebuild(segment, "its last entry of times is not of the newest batch")
        claim = made.newest, made.newest_at
    segment.newest = claim if indexer is None else None
    segment.times_checked = True
    return claim


def _is_newest(segment: Segment, when: int, at: int) -> bool:
    """Has the batch with this offset this timestamp, and none behind it a newer one?"""
    place: Place | None = Place(0, segment.base_offset)
    if when >= 0:
        place = find(segment, at)
    if place is None or (when >= 0 and not _confirmed(segment, place, when, at)):
        return False
    return newest_head(segment.frame(), place.position) == when


def newest_record(segment: Segment, allowance: Allowance) -> tuple[int, int] | None:
    """The offset and timestamp of the first record with the newest timestamp.

    :raises Damage: its batch is not sound
    :raises Refused: it is too much work to look into it
    """
    when, last_offset = newest(segment)
    if when < 0:
        return None
    place = find(segment, last_offset)
    if place is None:
        return None
    batch = next(scan(segment.frame(), *place, LOOK))
    return _record_since(batch, when, batch.head.base_offset, allowance)


def check(segment: Segment) -> None:
    """Looks at the index files before they are first used."""
    if segment.checked:
        return
    hold = segment.indexer is not None
    problem = segment.offsets.load(hold=hold, limit=segment.size - 1)
    what = "index"
    if problem is None:
        what = "timeindex"
        farthest = max(segment.end - segment.base_offset - 1, 0)
        problem = segment.times.load(hold=hold, limit=farthest)
        if problem is None and segment.size and not len(segment.times) and len(segment.offsets):
            first: Head | None = read_head(segment.disk, segment.log, 0)
            problem = "empty" if first is not None and first.max_timestamp >= 0 else None
    if problem is not None:
        rebuild(segment, f"{what}: {problem}")
    segment.checked = True


def rebuild(segment: Segment, reason: str) -> Indexer:
    """Makes both indexes from the log; they stop at damage, if there is any."""
    segment.report(f"{segment.offsets.path}: {reason}; indexes made anew")
    indexer = Indexer(segment.base_offset, segment.interval)
    segment.offsets.clear()
    segment.times.clear()
    try:
        for batch in segment.scan():
            head = batch.head
            of_offset, of_time = indexer.add(
                batch.position, head.size, head.last_offset, head.max_timestamp
            )
            segment.offsets.add(of_offset)
            segment.times.add(of_time)
    except Damage as damage:
        segment.tell(damage)
    if segment.indexer is not None:
        segment.indexer = indexer
    else:
        segment.times.add(indexer.last_time())
        segment.newest = indexer.newest, indexer.newest_at
    segment.offsets.save()
    segment.times.save()
    if segment.indexer is None:
        segment.offsets.release()
        segment.times.release()
    segment.checked = segment.times_checked = True
    return indexer
