"""Puts new files in place of some segments, so that a crash leaves the old ones or the new one.

As Kafka does it: a new segment is written as ``.log.cleaned`` and so on, and is synced. Then its
files are renamed to ``.swap``, the log last: from then on the new one counts. The old ones are
removed, and the new ones get their names, the log last again. A start that finds ``.swap`` finishes
that; all that is still ``.cleaned`` is dropped. Which segments are replaced is noted beside them: a
Kafka concludes it from the new one's offsets, as is done here where there is no note.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from rota.errors import FormatError
from rota.formats.batch import read_header, walk
from rota.formats.batch.checksum import checksum
from rota.storage import snapshot
from rota.storage.disk import Disk

CLEANED, SWAP = ".cleaned", ".swap"
LOG = "log"
BESIDE = ("index", "timeindex", "txnindex")
"""The files beside the log, in the order in which they are renamed."""
NOTE = "rota.swap"


def path(folder: str, base: int, kind: str, suffix: str = "") -> str:
    """Where a file of a segment is."""
    return f"{folder}/{base:020}.{kind}{suffix}"


def swap(disk: Disk, folder: str, bases: list[int]) -> None:
    """Puts the cleaned files of the first of these segments in place of them all.

    They are all there, be it empty, and synced; nothing else is ``.cleaned``.
    """
    base = bases[0]
    body = json.dumps({"base": base, "replaced": bases}).encode()
    disk.replace(f"{folder}/{NOTE}", b"%08x %s" % (checksum(body), body))
    for kind in (*BESIDE, LOG):
        if disk.size(path(folder, base, kind, CLEANED)) is not None:
            disk.rename(path(folder, base, kind, CLEANED), path(folder, base, kind, SWAP))
    disk.sync(folder)
    _finish(disk, folder, base, bases)


def begun(disk: Disk, folder: str, base: int) -> bool:
    """Do the new files of a segment count already, though not all of them have their names?"""
    return disk.size(path(folder, base, LOG, SWAP)) is not None


def drop(disk: Disk, folder: str, base: int) -> None:
    """Gives up the cleaned files of a segment."""
    for kind in (LOG, *BESIDE):
        disk.remove(path(folder, base, kind, CLEANED))


def finish_swap(disk: Disk, folder: str, report: Callable[[str], None]) -> None:
    """Ends what a crash has cut short: in favour of the old segments, or of the new one."""
    names = disk.names(folder)
    cleaned = {name: _base(name) for name in names if name.endswith(CLEANED)}
    swaps = {name: _base(name) for name in names if name.endswith(SWAP) and name != NOTE}
    if cleaned:  # not all were renamed: the old ones count
        first = min(cleaned.values())
        for name in [*cleaned, *(name for name, base in swaps.items() if base >= first)]:
            disk.remove(f"{folder}/{name}")
            swaps.pop(name, None)
    for name, base in swaps.items():
        if name == f"{base:020}.{LOG}{SWAP}":
            report(f"{folder}/{name}: found; the compaction that a stop cut short is ended")
            _finish(disk, folder, base, _replaced(disk, folder, base, report))
    for name in swaps:  # a Kafka renames the log first
        if disk.size(f"{folder}/{name}") is not None:
            disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")
    disk.remove(f"{folder}/{NOTE}")


def _finish(disk: Disk, folder: str, base: int, replaced: Iterable[int]) -> None:
    for old in replaced:
        if old != base:
            for kind in (LOG, *BESIDE):
                disk.remove(path(folder, old, kind))
            snapshot.remove(disk, folder, [old])
    waiting = [kind for kind in BESIDE if disk.size(path(folder, base, kind, SWAP)) is not None]
    if waiting and "txnindex" not in waiting:  # a Kafka makes none where it would be empty
        disk.remove(path(folder, base, "txnindex"))
    for kind in waiting:
        disk.rename(path(folder, base, kind, SWAP), path(folder, base, kind))
    disk.sync(folder)
    disk.rename(path(folder, base, LOG, SWAP), path(folder, base, LOG))
    disk.sync(folder)
    if disk.size(path(folder, base, "txnindex")) == 0:
        disk.remove(path(folder, base, "txnindex"))
    disk.remove(f"{folder}/{NOTE}")


def _replaced(disk: Disk, folder: str, base: int, report: Callable[[str], None]) -> list[int]:
    where = f"{folder}/{NOTE}"
    size = disk.size(where)
    if size is not None:
        stored, _, body = disk.read(where, 0, size).partition(b" ")
        if stored == b"%08x" % checksum(body):
            said = json.loads(body)
            if said["base"] == base:
                return list(said["replaced"])
        report(f"{where}: it is damaged; what was replaced is concluded from the offsets")
    end = _end(disk, path(folder, base, LOG, SWAP), base)
    logs = [name for name in disk.names(folder) if name.endswith(f".{LOG}")]
    return [old for old in map(_base, logs) if base <= old < end]


def _end(disk: Disk, log: str, base: int) -> int:
    """The offset behind the last sound batch."""
    data = disk.read(log, 0, disk.size(log) or 0)
    end = base
    for position, size in walk(data):
        head = read_header(data, position)
        sound = checksum(memoryview(data)[position + 21 : position + size]) == head.checksum
        if not sound or head.base_offset < end:
            break
        end = head.last_offset + 1
    return end


def _base(name: str) -> int:
    stem = name.partition(".")[0]
    if not stem.isdigit():
        raise FormatError(f"{name}: not named by an offset")
    return int(stem)
