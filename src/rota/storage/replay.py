"""What batches that are in the log say of producers, and which transactions they aborted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rota.errors import FormatError
from rota.formats.batch.header import CONTROL_BIT, TRANSACTIONAL_BIT
from rota.storage import lookup, transaction
from rota.storage.producer import Producers, marker_of
from rota.storage.scan import Batch, Damage, Head, read_head
from rota.storage.segment import Segment, path
from rota.storage.transaction import Aborted


def take(producers: Producers, batch: Batch, report: Callable[[str], None]) -> Aborted | None:
    """Tells the producers of a batch; the transaction that it has aborted, if it did."""
    head = batch.head
    producers.end = head.last_offset + 1
    if head.producer_id < 0:
        return None
    ended = None
    if head.attributes & CONTROL_BIT:
        try:
            ended = marker_of(batch.data)
        except FormatError as error:
            report(f"offset {head.base_offset}: {error}; passed over")
    return producers.take(head.full, ended)


def aborted(segments: Sequence[Segment], row: int) -> list[Aborted]:
    """The transactions that were aborted in a segment: its index, if the log confirms it."""
    segment = segments[row]
    if segment.aborted is None:
        name = path(segment.folder, segment.base_offset, "txnindex")
        size = segment.disk.size(name)
        if not size:
            segment.aborted = []
            return []
        try:
            found = transaction.read(segment.disk.read(name, 0, size), segment.base_offset)
        except FormatError as error:
            found, wrong = [], str(error)
        else:
            sound = all(_confirmed(segments, row, each) for each in found)
            wrong = "" if sound else "an entry is not what the log has"
        if wrong:
            segment.report(f"{name}: {wrong}; made anew")
            found = _read_aborted(segments, row)
            segment.disk.replace(name, b"".join(each.pack() for each in found))
        segment.aborted = found
    return segment.aborted


def _confirmed(segments: Sequence[Segment], row: int, entry: Aborted) -> bool:
    """Is the marker where the entry says, and does the transaction begin there?"""
    end = _head(segments[row], entry.last_offset)
    if end is None or not end.attributes & CONTROL_BIT or end.producer_id != entry.producer_id:
        return False
    for segment in segments[: row + 1]:
        if segment.base_offset <= entry.first_offset < segment.end:
            begin = _head(segment, entry.first_offset)
            return (
                begin is not None
                and begin.base_offset == entry.first_offset
                and begin.producer_id == entry.producer_id
                and bool(begin.attributes & TRANSACTIONAL_BIT)
            )
    return entry.first_offset < segments[0].base_offset  # deleted


def _head(segment: Segment, offset: int) -> Head | None:
    try:
        place = lookup.find(segment, offset)
    except Damage as damage:
        segment.tell(damage)
        return None
    return None if place is None else read_head(segment.disk, segment.log, place.position)


def _read_aborted(segments: Sequence[Segment], row: int) -> list[Aborted]:
    """The same from the log itself, read from its start."""
    producers = Producers()
    found: list[Aborted] = []
    for segment in segments[: row + 1]:
        found = []
        try:
            for batch in segment.scan():
                ended = take(producers, batch, segment.report)
                if ended is not None:
                    found.append(ended)
        except Damage as damage:
            segment.tell(damage)
    return found
