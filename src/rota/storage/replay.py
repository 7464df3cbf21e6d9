"""What batches that are in the log say of producers, and which transactions they aborted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rota.errors import FormatError
from rota.formats.batch.header import CONTROL_BIT
from rota.storage import snapshot
from rota.storage.producer import Producers, marker_of
from rota.storage.scan import Batch, Damage
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
    """The transactions that were aborted in a segment.

    Its index has no checksum, and a wrong entry would pass off aborted records as good ones. So
    the log is read for them once, if there is an index; the index is set right if it is wrong.
    """
    segment = segments[row]
    if segment.aborted is None:
        name = path(segment.folder, segment.base_offset, "txnindex")
        size = segment.disk.size(name)
        segment.aborted = _read_aborted(segments, row) if size else []
        if size:
            content = b"".join(each.pack() for each in segment.aborted)
            if content != segment.disk.read(name, 0, size):
                segment.report(f"{name}: not what the log has; made anew")
                segment.disk.replace(name, content)
    return segment.aborted


def _read_aborted(segments: Sequence[Segment], row: int) -> list[Aborted]:
    """From the snapshot at the segment's first offset on, or else from the log's start."""
    first = row
    producers = _snapshot_at(segments[row])
    if producers is None:
        first, producers = 0, Producers()
    found: list[Aborted] = []
    for segment in segments[first : row + 1]:
        found.clear()
        try:
            for batch in segment.scan():
                ended = take(producers, batch, segment.report)
                if ended is not None:
                    found.append(ended)
        except Damage as damage:
            segment.tell(damage)
    return found


def _snapshot_at(segment: Segment) -> Producers | None:
    """Producers as they were where the segment begins, if that was saved."""
    name = snapshot.path_of(segment.folder, segment.base_offset)
    size = segment.disk.size(name)
    try:
        return snapshot.unpack(segment.disk.read(name, 0, size)) if size else None
    except FormatError:
        return None
