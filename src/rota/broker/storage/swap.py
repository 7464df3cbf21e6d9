"""Replaces segments by a compacted one, so that a crash leaves the old ones or the new one.

As Kafka does it: a new segment is written as ``.log.cleaned`` and so on, and is synced. Then its
files are renamed to ``.swap``, the log last: from then on the new segment counts. The old segments
are removed, and the new files get their final names, the log last again. A start that finds
``.swap`` finishes that; files that are still ``.cleaned`` are removed. A note in the folder names
the replaced segments. Kafka concludes them from the new segment's offsets; so does Rota if there
is no note.

What a start does with the files that a crash left in a partition's folder::

    .deleted    was to be removed: removed
    .tmp        was to replace another: removed
    .cleaned    written by a compaction that did not finish: removed
    .swap       written by one that did: takes the place of the segments it was made of
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress

from rota.broker.storage import producer_state
from rota.broker.storage.disk import Disk
from rota.broker.storage.file_records import BatchFile, CorruptBatchError, scan_batches
from rota.broker.storage.log_segment import SEGMENT_FILE_KINDS, segment_path
from rota.engine.formats.record_batch import compute_crc32c
from rota.errors import DiskError

CLEANED, SWAP = ".cleaned", ".swap"

LOG_KIND, *INDEX_KINDS = SEGMENT_FILE_KINDS

SWAP_NOTE_FILE = "rota.swap"

OFFSET_DIGITS = 20


def base_offset_of_name(name: str) -> int | None:
    """The offset in a file's name; None: it has none."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == OFFSET_DIGITS and digits.isdecimal() else None


def swap_segments(disk: Disk, folder: str, bases: list[int]) -> None:
    """Puts the cleaned files of the first of these segments in place of them all.

    They are all there, be it empty, and synced; nothing else is ``.cleaned``.
    """
    base = bases[0]
    body = json.dumps({"base": base, "replaced": bases}).encode()
    disk.replace(f"{folder}/{SWAP_NOTE_FILE}", b"%08x %s" % (compute_crc32c(body), body))
    for kind in (*INDEX_KINDS, LOG_KIND):
        if disk.size(segment_path(folder, base, kind, CLEANED)) is not None:
            disk.rename(
                segment_path(folder, base, kind, CLEANED), segment_path(folder, base, kind, SWAP)
            )
    disk.sync(folder)
    _finish_swap(disk, folder, base, bases)


def is_swap_begun(disk: Disk, folder: str, base: int) -> bool:
    """Whether the new files of a segment count already, though not all have their final names."""
    return disk.size(segment_path(folder, base, LOG_KIND, SWAP)) is not None


def remove_cleaned_files(disk: Disk, folder: str, base: int) -> None:
    """Removes the new files of a segment, unless they count already."""
    if not is_swap_begun(disk, folder, base):
        # those that are left alone would be taken for good, so they go first
        for kind in INDEX_KINDS:
            disk.remove(segment_path(folder, base, kind, SWAP))
        for kind in SEGMENT_FILE_KINDS:
            disk.remove(segment_path(folder, base, kind, CLEANED))


def finish_swaps(disk: Disk, folder: str, report: Callable[[str], None]) -> None:
    """Finishes swaps that a crash interrupted: with the old segments, or with the new one."""
    bases = {name: base_offset_of_name(name) for name in disk.list_names(folder)}
    found = {name: base for name, base in bases.items() if base is not None}
    cleaned = {name: base for name, base in found.items() if name.endswith(CLEANED)}
    swaps = {name: base for name, base in found.items() if name.endswith(SWAP)}
    if cleaned:  # not all were renamed: the old ones count
        first = min(cleaned.values())
        for name in [*(name for name, base in swaps.items() if base >= first), *cleaned]:
            disk.remove(f"{folder}/{name}")
        swaps = {name: base for name, base in swaps.items() if base < first}
    for name, base in swaps.items():
        if name == f"{base:020}.{LOG_KIND}{SWAP}":
            report(f"{folder}/{name}: found; the compaction that a stop cut short is ended")
            _finish_swap(disk, folder, base, _list_replaced(disk, folder, base, report))
    for name in swaps:  # a Kafka renames the log first
        if disk.size(f"{folder}/{name}") is not None:
            disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")
    if SWAP_NOTE_FILE in bases:
        disk.remove(f"{folder}/{SWAP_NOTE_FILE}")


def _finish_swap(disk: Disk, folder: str, base: int, replaced: Iterable[int]) -> None:
    for old in replaced:
        if old != base:
            for kind in (LOG_KIND, *INDEX_KINDS):
                disk.remove(segment_path(folder, old, kind))
            producer_state.remove_snapshots(disk, folder, [old])
    waiting = [
        kind
        for kind in INDEX_KINDS
        if disk.size(segment_path(folder, base, kind, SWAP)) is not None
    ]
    if waiting and "txnindex" not in waiting:  # a Kafka makes none where it would be empty
        disk.remove(segment_path(folder, base, "txnindex"))
    for kind in waiting:
        disk.rename(segment_path(folder, base, kind, SWAP), segment_path(folder, base, kind))
    disk.sync(folder)
    disk.rename(segment_path(folder, base, LOG_KIND, SWAP), segment_path(folder, base, LOG_KIND))
    with suppress(DiskError):  # it is done; what is left does no harm
        disk.sync(folder)
        if disk.size(segment_path(folder, base, "txnindex")) == 0:
            disk.remove(segment_path(folder, base, "txnindex"))
        disk.remove(f"{folder}/{SWAP_NOTE_FILE}")


def _list_replaced(disk: Disk, folder: str, base: int, report: Callable[[str], None]) -> list[int]:
    where = f"{folder}/{SWAP_NOTE_FILE}"
    size = disk.size(where)
    if size is not None:
        stored, _, body = disk.read(where, 0, size).partition(b" ")
        if stored == b"%08x" % compute_crc32c(body):
            said = json.loads(body)
            if said["base"] == base:
                return list(said["replaced"])
        report(f"{where}: it is damaged; what was replaced is concluded from the offsets")
    end = _end_of_new_segment(disk, folder, base)
    logs = [name for name in disk.list_names(folder) if name.endswith(f".{LOG_KIND}")]
    return [
        old for name in logs if (old := base_offset_of_name(name)) is not None and base <= old < end
    ]


def _end_of_new_segment(disk: Disk, folder: str, base: int) -> int:
    """The offset behind the last sound batch of the new segment."""
    name = segment_path(folder, base, LOG_KIND, SWAP)
    frame = BatchFile(disk, name, disk.size(name) or 0, None, None)
    frame.has_gaps = True
    end = base
    with suppress(CorruptBatchError):
        for batch in scan_batches(frame, 0, base):
            end = batch.header.last_offset + 1
    return end


DELETED, TEMPORARY = ".deleted", ".tmp"


def list_base_offsets(disk: Disk, folder: str) -> list[int]:
    """The base offsets of all segments, ascending."""
    found = [base_offset_of_name(name) for name in disk.list_names(folder) if name.endswith(".log")]
    return sorted(base for base in found if base is not None)


def remove_crash_files(disk: Disk, folder: str, report: Callable[[str], None]) -> None:
    """Removes the files that a crash left, so that only whole segments remain."""
    names = disk.list_names(folder)
    for name in names:
        if name.endswith((DELETED, TEMPORARY)):
            disk.remove(f"{folder}/{name}")
    finish_swaps(disk, folder, report)
    there = set(list_base_offsets(disk, folder))
    for name in disk.list_names(folder):
        base = base_offset_of_name(name)
        if (
            name.endswith(tuple(f".{kind}" for kind in SEGMENT_FILE_KINDS[1:]))
            and base not in there
        ):
            report(f"{folder}/{name}: its log is not there; removed")
            disk.remove(f"{folder}/{name}")
