"""Replaces segments by a compacted one, so that a crash leaves the old ones or the new one.

As in Kafka, a new segment is written as ``.log.cleaned`` and so on, and is synced. Then its files
are renamed to ``.swap``, the log last: from then on the new segment is valid. The old segments are
removed, and the new files get their final names, the log last again. A file ``rota.swap`` in the
folder lists the replaced segments. Kafka concludes them from the new segment's offsets; so does
Rota without that file.

A start handles the files that a crash left in a partition's folder::

    .deleted    a file of a deleted segment                 removed
    .tmp        the new content of a file                   removed
    .cleaned    of a compaction that did not finish         removed
    .swap       of a compaction that did                    replaces the old segments
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from rota.broker.storage import producer_state
from rota.broker.storage.checkpoint import read_file
from rota.broker.storage.disk import Disk, Report
from rota.broker.storage.file_records import BatchFile, CorruptBatchError, scan_batches
from rota.broker.storage.log_segment import SEGMENT_FILE_KINDS, segment_path
from rota.engine.formats.record_batch import compute_crc32c
from rota.errors import DiskError

CLEANED, SWAP = ".cleaned", ".swap"
LOG_KIND, *INDEX_KINDS = SEGMENT_FILE_KINDS
SWAP_NOTE_FILE = "rota.swap"
OFFSET_DIGITS = 20


def base_offset_of_name(name: str) -> int | None:
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == OFFSET_DIGITS and digits.isdecimal() else None


def swap_segments(disk: Disk, folder: str, bases: list[int]) -> None:
    """Replaces these segments by the cleaned files of the first, which exist and are synced."""
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
    """Whether a new segment is valid already, though not all files have their final names."""
    return disk.size(segment_path(folder, base, LOG_KIND, SWAP)) is not None


def remove_cleaned_files(disk: Disk, folder: str, base: int) -> None:
    """Removes the new files of a segment, unless they are valid already."""
    if not is_swap_begun(disk, folder, base):
        # a start would use .swap files that have no .cleaned file beside them: remove them first
        for kind in INDEX_KINDS:
            disk.remove(segment_path(folder, base, kind, SWAP))
        for kind in SEGMENT_FILE_KINDS:
            disk.remove(segment_path(folder, base, kind, CLEANED))


def finish_swaps(disk: Disk, folder: str, report: Report) -> None:
    """Finishes swaps that a crash interrupted: with the old segments, or with the new one."""
    bases = {name: base_offset_of_name(name) for name in disk.list_names(folder)}
    found = {name: base for name, base in bases.items() if base is not None}
    cleaned = {name: base for name, base in found.items() if name.endswith(CLEANED)}
    swaps = {name: base for name, base in found.items() if name.endswith(SWAP)}
    if cleaned:  # not all files were renamed: the old segments are valid
        first = min(cleaned.values())
        for name in [*(name for name, base in swaps.items() if base >= first), *cleaned]:
            disk.remove(f"{folder}/{name}")
        swaps = {name: base for name, base in swaps.items() if base < first}
    for name, base in swaps.items():
        if name == f"{base:020}.{LOG_KIND}{SWAP}":
            report(f"{folder}/{name}: an interrupted compaction is finished")
            _finish_swap(disk, folder, base, _list_replaced(disk, folder, base, report))
    for name in swaps:  # Kafka renames the log first
        if disk.size(f"{folder}/{name}") is not None:
            disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")
    if SWAP_NOTE_FILE in bases:
        disk.remove(f"{folder}/{SWAP_NOTE_FILE}")


def _finish_swap(disk: Disk, folder: str, base: int, replaced: Iterable[int]) -> None:
    for old in replaced:
        if old != base:
            for kind in (LOG_KIND, *INDEX_KINDS):
                disk.remove(segment_path(folder, old, kind))
            disk.remove(producer_state.snapshot_path(folder, old))
    swaps = [
        kind
        for kind in INDEX_KINDS
        if disk.size(segment_path(folder, base, kind, SWAP)) is not None
    ]
    if swaps and "txnindex" not in swaps:  # Kafka makes no empty transaction index
        disk.remove(segment_path(folder, base, "txnindex"))
    for kind in swaps:
        disk.rename(segment_path(folder, base, kind, SWAP), segment_path(folder, base, kind))
    disk.sync(folder)
    disk.rename(segment_path(folder, base, LOG_KIND, SWAP), segment_path(folder, base, LOG_KIND))
    with suppress(DiskError):  # the swap is complete; the remaining files do no harm
        disk.sync(folder)
        if disk.size(segment_path(folder, base, "txnindex")) == 0:
            disk.remove(segment_path(folder, base, "txnindex"))
        disk.remove(f"{folder}/{SWAP_NOTE_FILE}")


def _list_replaced(disk: Disk, folder: str, base: int, report: Report) -> list[int]:
    path = f"{folder}/{SWAP_NOTE_FILE}"
    data = read_file(disk, path)
    if data is not None:
        stored, _, body = data.partition(b" ")
        if stored == b"%08x" % compute_crc32c(body):
            note = json.loads(body)
            if note["base"] == base:
                return list(note["replaced"])
        report(f"{path}: damaged; the replaced segments are concluded from the offsets")
    end = _end_of_new_segment(disk, folder, base)
    logs = [name for name in disk.list_names(folder) if name.endswith(f".{LOG_KIND}")]
    return [
        old for name in logs if (old := base_offset_of_name(name)) is not None and base <= old < end
    ]


def _end_of_new_segment(disk: Disk, folder: str, base: int) -> int:
    path = segment_path(folder, base, LOG_KIND, SWAP)
    file = BatchFile(disk, path, disk.size(path) or 0, None, None)
    file.has_gaps = True
    end = base
    with suppress(CorruptBatchError):
        for batch in scan_batches(file, 0, base):
            end = batch.header.last_offset + 1
    return end


def list_base_offsets(disk: Disk, folder: str) -> list[int]:
    """Returns the base offsets of all segments, ascending."""
    names = disk.list_names(folder)
    offsets = [base_offset_of_name(name) for name in names if name.endswith(".log")]
    return sorted(base for base in offsets if base is not None)


def remove_crash_files(disk: Disk, folder: str, report: Report) -> None:
    """Removes the files that a crash left, so that only whole segments remain."""
    for name in disk.list_names(folder):
        if name.endswith((".deleted", ".tmp")):
            disk.remove(f"{folder}/{name}")
    finish_swaps(disk, folder, report)
    bases = set(list_base_offsets(disk, folder))
    suffixes = tuple(f".{kind}" for kind in INDEX_KINDS)
    for name in disk.list_names(folder):
        if name.endswith(suffixes) and base_offset_of_name(name) not in bases:
            report(f"{folder}/{name}: its log is missing; removed")
            disk.remove(f"{folder}/{name}")
