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
NEAR = 1 << 20
"""So much of a segment is looked through, if need be; of more only samples are taken."""
SAMPLES = 64


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
    place = _by_times(segment, timestamp)
    if place is None:
        rebuild(segment, "an entry of times is not what the log has")
        place = _by_times(segment, timestamp)
    return Place(0, segment.base_offset) if place is None else place


def _by_times(segment: Segment, timestamp: int) -> Place | None:
    """The same by what the index says; None: that is not what the log has.

    With every entry of offsets goes one of times, if there was something newer. So of the batches
    between two entries of times, those up to the last entry of offsets are no newer than the first:
    where times do not rise for long, they need not be read.
    """
    row = segment.times.at_or_below(timestamp - 1)
    place: Place | None = Place(0, segment.base_offset)
    if row >= 0:
        place = _batch_of(segment, *segment.times[row])
    if row + 1 < len(segment.times):
        when, relative = segment.times[row + 1]
        if _batch_of(segment, when, relative) is None:
            return None
    else:
        relative = newest(segment)[1] - segment.base_offset
    later = _entry(segment, segment.offsets.at_or_below(relative - 1))
    if place is None or later is None:
        return None
    return max(place, later, key=lambda each: each.position)


def _batch_of(segment: Segment, when: int, relative: int) -> Place | None:
    """The batch with this last offset, if it has this timestamp."""
    last_offset = segment.base_offset + relative
    place = find(segment, last_offset)
    if place is None:
        return None
    head = read_head(segment.disk, segment.log, place.position)
    if head is None or (head.max_timestamp, head.last_offset) != (when, last_offset):
        return None
    return place


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
    """Has the batch with this offset this timestamp, and none behind it a newer one?

    The last entry says so; it is missing only if somebody has cut the file. Where times rise, that
    shows at once. Where they do not, much may be behind it: some of that is looked at, and the end.
    """
    place: Place | None = Place(0, segment.base_offset)
    if when >= 0:
        place = _batch_of(segment, when, at - segment.base_offset)
    if place is not None and segment.size - place.position > NEAR:
        place = _last_sample(segment, place, when, at)
        if place is not None and segment.size - place.position > NEAR:
            return True  # a batch or two, or entries are far apart
    if place is None:
        return False
    found = newest_head(segment.frame(), place.position)
    return found is not None and found <= when


def _last_sample(segment: Segment, place: Place, when: int, at: int) -> Place | None:
    """Of some batches behind one, that have entries, the last; None: one of them is newer."""
    first = segment.offsets.at_or_below(at - segment.base_offset) + 1
    rows = range(first, len(segment.offsets))
    for row in (*rows[:: len(rows) // SAMPLES + 1], *rows[-1:]):
        sample = _entry(segment, row)
        if sample is None:
            return None
        place = sample
        head = read_head(segment.disk, segment.log, place.position)
        if head is None or head.max_timestamp > when:
            return None
    return place


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
