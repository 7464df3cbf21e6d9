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
from contextlib import suppress

from rota.errors import DiskError
from rota.formats.batch.checksum import checksum
from rota.storage import snapshot
from rota.storage.disk import Disk
from rota.storage.scan import Damage, Frame, scan
from rota.storage.segment import KINDS, path

CLEANED, SWAP = ".cleaned", ".swap"
LOG, *BESIDE = KINDS
NOTE = "rota.swap"
DIGITS = 20


def base_of(name: str) -> int | None:
    """The offset in a file's name; None: it has none."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == DIGITS and digits.isdecimal() else None


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
    """Gives up the new files of a segment, if they do not count yet."""
    if not begun(disk, folder, base):
        # those that are left alone would be taken for good, so they go first
        for kind in BESIDE:
            disk.remove(path(folder, base, kind, SWAP))
        for kind in KINDS:
            disk.remove(path(folder, base, kind, CLEANED))


def finish_swap(disk: Disk, folder: str, report: Callable[[str], None]) -> None:
    """Ends what a crash has cut short: in favour of the old segments, or of the new one."""
    bases = {name: base_of(name) for name in disk.names(folder)}
    found = {name: base for name, base in bases.items() if base is not None}
    cleaned = {name: base for name, base in found.items() if name.endswith(CLEANED)}
    swaps = {name: base for name, base in found.items() if name.endswith(SWAP)}
    if cleaned:  # not all were renamed: the old ones count
        first = min(cleaned.values())
        for name in [*(name for name, base in swaps.items() if base >= first), *cleaned]:
            disk.remove(f"{folder}/{name}")
        swaps = {name: base for name, base in swaps.items() if base < first}
    for name, base in swaps.items():
        if name == f"{base:020}.{LOG}{SWAP}":
            report(f"{folder}/{name}: found; the compaction that a stop cut short is ended")
            _finish(disk, folder, base, _replaced(disk, folder, base, report))
    for name in swaps:  # a Kafka renames the log first
        if disk.size(f"{folder}/{name}") is not None:
            disk.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP)}")
    if NOTE in bases:
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
    with suppress(DiskError):  # it is done; what is left does no harm
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
    end = _end(disk, folder, base)
    logs = [name for name in disk.names(folder) if name.endswith(f".{LOG}")]
    return [old for name in logs if (old := base_of(name)) is not None and base <= old < end]


def _end(disk: Disk, folder: str, base: int) -> int:
    """The offset behind the last sound batch of the new segment."""
    name = path(folder, base, LOG, SWAP)
    frame = Frame(disk, name, disk.size(name) or 0, None, None)
    frame.gaps = True
    end = base
    with suppress(Damage):
        for batch in scan(frame, 0, base):
            end = batch.head.last_offset + 1
    return end
