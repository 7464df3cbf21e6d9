"""Files that a crash has left in a partition's folder, and what becomes of them.

::

    .deleted    was to be removed: removed
    .tmp        was to replace another: removed
    .cleaned    written by a compaction that did not end: removed
    .swap       written by one that did: takes the place of the segments it was made of
"""

from __future__ import annotations

from collections.abc import Callable

from rota.storage.disk import Disk
from rota.storage.segment import KINDS
from rota.storage.swap import base_of, finish_swap

DELETED, TEMPORARY = ".deleted", ".tmp"


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
    finish_swap(disk, folder, report)
    there = set(bases(disk, folder))
    for name in disk.names(folder):
        base = base_of(name)
        if name.endswith(tuple(f".{kind}" for kind in KINDS[1:])) and base not in there:
            report(f"{folder}/{name}: its log is not there; removed")
            disk.remove(f"{folder}/{name}")
