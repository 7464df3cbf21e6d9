"""Checkpoint files in Kafka's format: an offset for each partition.

::

    0                   the version
    2                   how many lines follow
    orders 0 1200       topic, partition, offset
    orders 1 800

That format has no checksum, and a wrong digit would hide records or bring deleted ones back. So
there is a second file beside it, ``.copy``: a line with its own checksum and that of the content
before, then the same content. It is written first, and what is neither the content before nor the
new one is damaged: then the copy counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from rota.errors import DiskError, FormatError
from rota.formats.batch.checksum import checksum
from rota.storage.disk import Disk

Offsets: TypeAlias = dict[tuple[str, int], int]
"""By topic and partition."""

VERSION = 0
LINE = re.compile(r"(\S+) (0|[1-9]\d{0,9}) (0|[1-9]\d{0,18})")
FORM = re.compile(rb"rota checkpoint 1, checksum ([0-9a-f]{8}), before ([0-9a-f]{8})\n")


class Copy(NamedTuple):
    """What the second file has."""

    before: int
    """The checksum of the content before."""
    content: bytes

    def knows(self, data: bytes) -> bool:
        """May the first file have this content?"""
        return data == self.content or checksum(data) == self.before


def write(disk: Disk, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Gives both files this content, if they have another."""
    data = pack(offsets)
    now = _content(disk, path)
    copy = _read_copy(disk, path)
    if now == data and copy is not None and copy.content == data:
        return
    # if the file was damaged since, its checksum must not make it count after a crash in between
    before = now if now is not None and (copy is None or copy.knows(now)) else data
    disk.replace(_copy_of(path), _pack_copy(before, data))
    if now != data:
        disk.replace(path, data)


def read(disk: Disk, path: str, report: Callable[[str], None]) -> Offsets:
    """The offsets; none where there is no file, or both are damaged.

    What is damaged is said, and written anew if the other is good.
    """
    copy = _read_copy(disk, path)
    try:
        data = _content(disk, path)
        if data is None and copy is None:
            return {}
        found = unpack(_checked(data, copy))
    except (FormatError, DiskError) as error:
        what = f"{path}: {str(error).removeprefix(f'{path}: ')}"
        if copy is None:
            report(f"{what}; it is taken for missing")
            return {}
        report(f"{what}; it is written anew from its copy")
        disk.replace(path, copy.content)
        return unpack(copy.content)
    if copy is None and data and disk.size(_copy_of(path)) is not None:
        report(f"{_copy_of(path)}: it is damaged; it is written anew from {path}")
        disk.replace(_copy_of(path), _pack_copy(data, data))
    return found


def trust(disk: Disk, *paths: str) -> None:
    """Another broker has written these files, and knows nothing of their copies."""
    for path in paths:
        disk.remove(_copy_of(path))


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


def _checked(data: bytes | None, copy: Copy | None) -> bytes:
    if data is None:
        raise FormatError("it is missing")
    if copy is not None and not copy.knows(data):
        raise FormatError("it is not what was written")
    return data


def _pack_copy(before: bytes, data: bytes) -> bytes:
    sum_before = b"%08x" % checksum(before)
    made = checksum(sum_before + data)
    return b"rota checkpoint 1, checksum %08x, before %s\n%s" % (made, sum_before, data)


def _read_copy(disk: Disk, path: str) -> Copy | None:
    """None if there is none, or it is damaged."""
    try:
        data = _content(disk, _copy_of(path)) or b""
    except DiskError:
        return None
    head = FORM.match(data)
    if head is None:
        return None
    content = data[head.end() :]
    good = int(head[1], 16) == checksum(head[2] + content)
    return Copy(int(head[2], 16), content) if good else None


def _content(disk: Disk, path: str) -> bytes | None:
    size = disk.size(path)
    return None if size is None else disk.read(path, 0, size)


def _copy_of(path: str) -> str:
    return f"{path}.copy"
