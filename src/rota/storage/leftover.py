"""Files that a crash has left in a partition's folder, and what becomes of them.

::

    .deleted    was to be removed: removed
    .tmp        was to replace another: removed
    .cleaned    written by a compaction that did not end: removed
    .swap       written by one that did: takes the place of the segments it was made of

As in Kafka, a ``.swap`` beside a ``.cleaned`` of the same or a lower offset is of a compaction into
several segments that did not end: removed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from rota.storage.disk import Disk
from rota.storage.scan import Damage, Frame, scan
from rota.storage.segment import KINDS, path

DELETED, CLEANED, SWAP, TEMPORARY = ".deleted", ".cleaned", ".swap", ".tmp"
DIGITS = 20


def base_of(name: str) -> int | None:
    """The offset in a file's name; None: it has none."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == DIGITS and digits.isdecimal() else None


def bases(disk: Disk, folder: str) -> list[int]:
    """The base offsets of all segments, ascending."""
    found = [base_of(name) for name in disk.names(folder) if name.endswith(".log")]
    return sorted(base for base in found if base is not None)


def clear(disk: Disk, folder: str, report: Callable[[str], None]) -> None:
    """Leaves nothing but whole segments, as they were before or after what was interrupted."""
    names = disk.names(folder)
    for name in names:
        if name.endswith((DELETED, TEMPORARY)):
            disk.remove(f"{folder}/{name}")
    _swap(disk, folder, [name for name in names if name.endswith((CLEANED, SWAP))], report)
    there = set(bases(disk, folder))
    for name in disk.names(folder):
        base = base_of(name)
        if name.endswith(tuple(f".{kind}" for kind in KINDS[1:])) and base not in there:
            report(f"{folder}/{name}: its log is not there; removed")
            disk.remove(f"{folder}/{name}")


def _swap(disk: Disk, folder: str, names: list[str], report: Callable[[str], None]) -> None:
    """Ends the compaction that had come so far, undoes the one that had not."""
    cleaned = [name for name in names if name.endswith(CLEANED)]
    least = min((base for name in cleaned if (base := base_of(name)) is not None), default=None)
    swaps = [name for name in names if name.endswith(SWAP)]
    for name in list(swaps):
        base = base_of(name)
        if base is None or (least is not None and base >= least):
            swaps.remove(name)
            disk.remove(f"{folder}/{name}")
    for name in cleaned:
        disk.remove(f"{folder}/{name}")
    whole = [
        base
        for name in swaps
        if name.endswith(f".log{SWAP}") and (base := base_of(name)) is not None
    ]
    if not whole:
        for name in swaps:  # an index whose log has its place already
            _rename(disk, folder, name)
        return
    begin, end = min(whole), max(_end(disk, folder, base) for base in whole)
    for name in disk.names(folder):
        base = base_of(name)
        kind = name.partition(".")[2]
        if base is not None and begin <= base < end and kind in KINDS:
            disk.remove(f"{folder}/{name}")
    report(f"{folder}: a compaction of offsets {begin} to {end - 1} was interrupted; ended now")
    for name in sorted(swaps, key=lambda each: (each.endswith(f".log{SWAP}"), each)):
        _rename(disk, folder, name)  # the log last: with it the segment is there
    disk.sync(folder)


def _rename(disk: Disk, folder: str, name: str) -> None:
    disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")


def _end(disk: Disk, folder: str, base: int) -> int:
    """The offset behind the last batch of a file that is to be swapped in."""
    name = path(folder, base, "log", SWAP)
    frame = Frame(disk, name, disk.size(name) or 0, None, None)
    frame.gaps = True
    end = base
    with suppress(Damage):
        for batch in scan(frame, 0, base):
            end = batch.head.last_offset + 1
    return end
