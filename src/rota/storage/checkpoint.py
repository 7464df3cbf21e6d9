"""Checkpoint files in Kafka's format: an offset for each partition.

::

    0                   the version
    2                   how many lines follow
    orders 0 1200       topic, partition, offset
    orders 1 800

That format has no checksum, and a wrong digit would hide records or bring deleted ones back. So a
second file beside it, ``.crc32c``, has that of the content before and of the new one: it is written
first, and what matches neither is damaged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from rota.errors import DiskError, FormatError
from rota.formats.batch.checksum import checksum
from rota.storage.disk import Disk

Offsets: TypeAlias = dict[tuple[str, int], int]
"""By topic and partition."""

VERSION = 0
LINE = re.compile(r"(\S+) (0|[1-9]\d{0,9}) (0|[1-9]\d{0,18})")
SUMS = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{8}) ([0-9a-f]{8})\n")


def write(disk: Disk, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Gives the file this content, if it has another."""
    data = pack(offsets)
    size = disk.size(path)
    # the first content has none before it that may be found: a file that is gone is missed then
    before = data if size is None else disk.read(path, 0, size)
    if data == before and size is not None:
        return
    sums = b"%08x %08x" % (checksum(before), checksum(data))
    disk.replace(_sums_of(path), b"%s %08x\n" % (sums, checksum(sums)))
    disk.replace(path, data)


def read(disk: Disk, path: str, report: Callable[[str], None]) -> Offsets:
    """The offsets; none where there is no such file, or it is damaged, which is said."""
    size = disk.size(path)
    if size is None:
        if disk.size(_sums_of(path)) is not None:
            report(f"{path}: missing, but {_sums_of(path)} is there; so nothing is known of it")
        return {}
    try:
        data = disk.read(path, 0, size)
        _check(disk, path, data, report)
        return unpack(data)
    except (FormatError, DiskError) as error:
        report(f"{path}: {str(error).removeprefix(f'{path}: ')}; it is taken for missing")
        return {}


def trust(disk: Disk, *paths: str) -> None:
    """Another broker has written these files, and knows nothing of their checksums."""
    for path in paths:
        disk.remove(_sums_of(path))


def pack(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """The file's content."""
    lines = [f"{topic} {partition} {at}\n" for (topic, partition), at in sorted(offsets.items())]
    return f"{VERSION}\n{len(lines)}\n{''.join(lines)}".encode()


def unpack(data: bytes) -> Offsets:
    """What a file says; an empty one, which Kafka makes before it has something to say, nothing.

    :raises FormatError: it does not follow the format
    """
    if not data:
        return {}
    try:
        version, count, *lines = data.decode().splitlines()
    except ValueError:
        raise FormatError("it is not a checkpoint file") from None
    if version != str(VERSION):
        raise FormatError(f"line 1: version {version!r}, known is {VERSION}")
    found: Offsets = {}
    for number, line in enumerate(lines, start=3):
        fields = LINE.fullmatch(line)
        if fields is None:
            raise FormatError(f"line {number}: {line!r} is no topic, partition and offset")
        found[fields[1], int(fields[2])] = int(fields[3])
    if count != str(len(lines)) or len(found) != len(lines):
        raise FormatError(f"line 2 says {count!r}, there are {len(found)} partitions")
    return found


def _check(disk: Disk, path: str, data: bytes, report: Callable[[str], None]) -> None:
    where = _sums_of(path)
    size = disk.size(where)
    if size is None:  # as a Kafka leaves it
        return
    said = SUMS.fullmatch(disk.read(where, 0, size))
    if said is None or int(said[3], 16) != checksum(b"%s %s" % (said[1], said[2])):
        report(f"{where}: it is damaged; {path} is believed without")
        return
    made = checksum(data)
    if made not in {int(said[1], 16), int(said[2], 16)}:
        raise FormatError(f"its checksum is {made:08x}, {where} says {said[2].decode()}")


def _sums_of(path: str) -> str:
    return f"{path}.crc32c"
