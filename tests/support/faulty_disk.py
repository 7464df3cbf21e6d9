"""A disk in memory that may tear, lose, reorder and flip, and refuse to work; the same for a seed.

What a file holds, and which names a folder has, is kept twice: as a process sees it, and as it
outlives a loss of power. ``sync`` brings the second up to the first.

::

    disk = FaultyDisk(seed)
    disk.kill()             the process was killed: all that was written is there, but a later
                            crash() may still lose what was not synced
    disk.crash()            the power was cut: of what was not synced any part is there, in any
                            order, torn at any byte, with zeros where bytes are missing
    disk.stop_at(n)         the n-th change from now on is done in part, or not at all, and raises
                            Stopped; so does all that follows. Then take kill() or crash()
    disk.room(n)            the disk is full after n more bytes
    disk.refuse("read", "*.index")      an I/O error for the next read of such a file
    disk.refuse("append", "*", partly=7)    a short write: seven bytes, then an I/O error
    disk.flip(path, bit)
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

from rota.engine.formats.buffer import Bytes
from rota.errors import DiskError


class Stopped(BaseException):
    """The process or the power is gone: nothing can handle this."""


@dataclass
class File:
    """Content, what of it is durable, and what was done since: a write at, or a cut behind."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    since: list[tuple[int, bytes | None]] = field(default_factory=list)
    #: When, if the disk has a clock.
    written: int | None = None

    def sync(self) -> None:
        self.durable = bytes(self.content)
        self.since.clear()

    def write(self, data: bytes) -> None:
        self.since.append((len(self.content), data))
        self.content += data

    def cut(self, size: int) -> None:
        self.since.append((size, None))
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))

    def after_crash(self, chance: random.Random) -> File:
        """What a restart finds."""
        found = bytearray(self.durable)
        for position, data in self.since:
            if chance.random() < 0.3:
                continue
            if data is None:
                del found[position:]
                continue
            begin, end = 0, len(data)
            match chance.randrange(4):
                case 0:
                    end = chance.randint(0, end)
                case 1:
                    begin = chance.randint(0, end)
                case 2:
                    begin = end  # the length is there, the bytes are not
            found.extend(bytes(max(position + end - len(found), 0)))
            found[position + begin : position + end] = data[begin:end]
        return File(found, bytes(found), [], self.written)


@dataclass
class Folder:
    """Names, which of them are durable, and how they changed since."""

    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    since: list[dict[str, Node | None]] = field(default_factory=list)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.since.clear()

    def change(self, **names: Node | None) -> None:
        """Gives names to others, or to nothing, at once."""
        self.since.append(names)
        _apply(self.names, names)

    def after_crash(self, chance: random.Random, least: bool) -> Folder:
        names = dict(self.durable)
        for change in self.since[: 0 if least else chance.randint(0, len(self.since))]:
            _apply(names, change)
        found: dict[str, Node] = {}
        for name, node in names.items():
            if isinstance(node, Folder):
                found[name] = node.after_crash(chance, least)
            else:
                lost = File(bytearray(node.durable), node.durable, [], node.written)
                found[name] = lost if least else node.after_crash(chance)
        return Folder(found, dict(found))


Node: TypeAlias = File | Folder


@dataclass
class DiskFault:
    """What the disk will not do."""

    operation: str
    path: str
    times: int
    skip: int
    partly: int
    code: int


class FaultyDisk:
    """Implements :class:`rota.broker.storage.disk.Disk`."""

    def __init__(self, seed: int = 0, root: Folder | None = None) -> None:
        self.chance = random.Random(seed)
        #: How many operations so far that change something; a sync is one.
        self.changes = 0
        #: What files are written at, if that is to be known.
        self.now: int | None = None
        self._root = root or Folder()
        self._stop: int | None = None
        self._capacity: int | None = None
        self._refusals: list[DiskFault] = []

    def kill(self) -> FaultyDisk:
        """The disk as the next process finds it after this one was killed.

        The operating system still has every write. What was not synced stays not synced.
        """
        return FaultyDisk(self.chance.getrandbits(64), _copy(self._root, {}))

    def crash(self, *, least: bool = False) -> FaultyDisk:
        """The disk as a restart finds it after a loss of power.

        :param least: nothing but what was synced is there
        """
        return FaultyDisk(self.chance.getrandbits(64), self._root.after_crash(self.chance, least))

    def stop_at(self, change: int) -> None:
        """Stops at the so-manieth change from now on, the first being 0."""
        self._stop = self.changes + change

    def room(self, size: int | None) -> None:
        """So many bytes more can be written; None: any number."""
        self._capacity = None if size is None else self._used() + size

    def refuse(
        self,
        operation: str,
        path: str = "*",
        *,
        times: int = 1,
        skip: int = 0,
        partly: int = 0,
        code: int = errno.EIO,
    ) -> None:
        """Let an operation on paths of this pattern fail, after `skip` that do not.

        :param operation: a method's name
        :param partly: bytes that an append writes before it fails
        """
        self._refusals.append(DiskFault(operation, path, times, skip, partly, code))

    @property
    def waits_to_refuse(self) -> bool:
        """Whether a refusal has not happened yet."""
        return any(each.times for each in self._refusals)

    def allow(self) -> None:
        """Takes back all refusals."""
        self._refusals.clear()

    def flip(self, path: str, bit: int) -> None:
        """Flips a bit of a file, bit 0 being the lowest of the first byte."""
        file = self._file(path)
        file.content[bit // 8] ^= 1 << bit % 8
        file.sync()

    def put(self, path: str, data: Bytes) -> None:
        """A file with this content, durable, whatever was there; folders are made as needed."""
        where, name = self._above(path, make=True)
        where.names[name] = File(bytearray(data), bytes(data))
        while path:
            path = path.rpartition("/")[0]
            above = self._find(path)
            assert above is not None
            above.sync()

    def content(self, path: str) -> bytes:
        """All of a file, without any fault."""
        return bytes(self._file(path).content)

    def paths(self) -> list[str]:
        """Every file there is, sorted."""
        return sorted(path for path, _ in _files(self._root, ""))

    # what a disk does

    def list_names(self, folder: str) -> list[str]:
        self._alive()
        self._check("list_names", folder)
        node = self._find(folder)
        return sorted(node.names) if isinstance(node, Folder) else []

    def size(self, path: str) -> int | None:
        self._alive()
        self._check("size", path)
        node = self._find(path)
        return len(node.content) if isinstance(node, File) else None

    def modified_at(self, path: str) -> int | None:
        self._alive()
        self._check("modified_at", path)
        node = self._find(path)
        return node.written if isinstance(node, File) else None

    def read(self, path: str, position: int, size: int) -> bytes:
        self._alive()
        self._check("read", path)
        return bytes(self._file(path).content[position : position + size])

    def append(self, path: str, data: Bytes) -> None:
        copied = bytes(data)
        stopped = self._changing()
        if stopped:
            copied = copied[: self.chance.randint(0, len(copied))]
        partly = self._refused("append", path)
        where, name = self._above(path)
        node = where.names.get(name)
        if isinstance(node, Folder):
            raise _error(path, errno.EISDIR)
        if node is None:
            node = File()
            where.change(**{name: node})
        node.written = self.now
        room = self._room()
        if partly is not None:
            node.write(copied[: partly[0]])
        else:
            node.write(copied[:room])
        if stopped:
            raise Stopped
        if partly is not None:
            raise _error(path, partly[1])
        if room is not None and len(copied) > room:
            raise _error(path, errno.ENOSPC)

    def truncate(self, path: str, size: int) -> None:
        stopped = self._changing()
        self._check("truncate", path)
        if not (stopped and self.chance.getrandbits(1)):
            self._file(path).cut(size)
            self._file(path).written = self.now
        if stopped:
            raise Stopped

    def replace(self, path: str, data: Bytes) -> None:
        stopped = self._changing()
        where, name = self._above(path)
        copied = bytes(data)
        if isinstance(where.names.get(name), Folder):
            raise _error(path, errno.EISDIR)
        temporary = File()
        refused = self._refused("replace", path)
        room = self._room()
        if refused is not None or (room is not None and len(copied) > room):
            temporary.write(copied[: room if refused is None else refused[0]])
            where.change(**{f"{name}.tmp": temporary})
            raise _error(path, errno.ENOSPC if refused is None else refused[1])
        if stopped and self.chance.getrandbits(1):
            temporary.write(copied[: self.chance.randint(0, len(copied))])
            where.change(**{f"{name}.tmp": temporary})
        else:
            where.names.pop(f"{name}.tmp", None)
            where.names[name] = File(bytearray(copied), copied, written=self.now)
            where.sync()
        if stopped:
            raise Stopped

    def rename(self, path: str, to: str) -> None:
        stopped = self._changing()
        self._check("rename", path)
        where, name = self._above(path)
        there, new = self._above(to, called=path)
        node = where.names.get(name)
        if node is None:
            raise _error(path, errno.ENOENT)
        old = there.names.get(new)
        if isinstance(old, File) and isinstance(node, Folder):
            raise _error(path, errno.ENOTDIR)
        if isinstance(old, Folder) and (isinstance(node, File) or old.names):
            raise _error(path, errno.EISDIR if isinstance(node, File) else errno.ENOTEMPTY)
        if not (stopped and self.chance.getrandbits(1)):
            if where is there:
                where.change(**{name: None, new: node})
            else:
                there.change(**{new: node})
                where.change(**{name: None})
        if stopped:
            raise Stopped

    def make_folder(self, folder: str) -> None:
        stopped = self._changing()
        self._check("make_folder", folder)
        if isinstance(self._find(folder), File):
            raise _error(folder, errno.EEXIST)
        if not (stopped and self.chance.getrandbits(1)):
            self._above(folder, make=True)
            self._above(f"{folder}/x", make=True)
        if stopped:
            raise Stopped

    def remove(self, path: str) -> None:
        stopped = self._changing()
        self._check("remove", path)
        node = self._find(path)
        if node is not None:
            where, name = self._above(path)
            if isinstance(node, Folder):
                for inside in sorted(node.names):
                    if stopped and self.chance.getrandbits(1):
                        raise Stopped
                    node.change(**{inside: None})
            if not (stopped and self.chance.getrandbits(1)):
                where.change(**{name: None})
        if stopped:
            raise Stopped

    def sync(self, path: str) -> None:
        stopped = self._changing()
        self._check("sync", path)
        node = self._find(path)
        if node is None:
            node = self._file(path)
        if not (stopped and self.chance.getrandbits(1)):
            node.sync()
        if stopped:
            raise Stopped

    def sync_all(self, paths: Sequence[str]) -> dict[str, DiskError]:
        failures = {}
        for path in paths:
            try:
                self.sync(path)
            except DiskError as error:
                failures[path] = error
        return failures

    # how it does that

    def _alive(self) -> None:
        if self._stop is not None and self.changes > self._stop:
            raise Stopped

    def _changing(self) -> bool:
        """Counts a change; is it the one to stop at?"""
        self._alive()
        self.changes += 1
        return self._stop is not None and self.changes > self._stop

    def _check(self, operation: str, path: str) -> None:
        refused = self._refused(operation, path)
        if refused is not None:
            raise _error(path, refused[1])

    def _refused(self, operation: str, path: str) -> tuple[int, int] | None:
        for each in self._refusals:
            if each.operation != operation or not fnmatchcase(path, each.path) or not each.times:
                continue
            if each.skip:
                each.skip -= 1
                continue
            each.times -= 1
            return each.partly, each.code
        return None

    def _used(self) -> int:
        return sum(len(file.content) for _, file in _files(self._root, ""))

    def _room(self) -> int | None:
        return None if self._capacity is None else max(self._capacity - self._used(), 0)

    def _find(self, path: str) -> Node | None:
        node: Node | None = self._root
        for name in path.split("/") if path else ():
            node = node.names.get(name) if isinstance(node, Folder) else None
        return node

    def _file(self, path: str) -> File:
        where, name = self._above(path)
        node = where.names.get(name)
        if not isinstance(node, File):
            raise _error(path, errno.ENOENT if node is None else errno.EISDIR)
        return node

    def _above(
        self, path: str, *, make: bool = False, called: str | None = None
    ) -> tuple[Folder, str]:
        *folders, name = path.split("/")
        where = self._root
        for each in folders:
            node = where.names.get(each)
            if node is None and make:
                node = Folder()
                where.change(**{each: node})
            if not isinstance(node, Folder):
                raise _error(called or path, errno.ENOENT if node is None else errno.ENOTDIR)
            where = node
        return where, name


def _apply(names: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _files(folder: Folder, above: str) -> Iterator[tuple[str, File]]:
    for name, node in folder.names.items():
        if isinstance(node, Folder):
            yield from _files(node, f"{above}{name}/")
        else:
            yield f"{above}{name}", node


def _copy(folder: Folder, copies: dict[int, Node]) -> Folder:
    """A folder with all below it; a node with two names, or an old and a new one, stays one node.

    :param copies: the copies made so far, by the id of their original
    """

    def copied(node: Node) -> Node:
        if id(node) not in copies:
            if isinstance(node, Folder):
                return _copy(node, copies)
            copies[id(node)] = File(
                bytearray(node.content), node.durable, list(node.since), node.written
            )
        return copies[id(node)]

    copy = copies[id(folder)] = Folder()
    copy.names = {name: copied(node) for name, node in folder.names.items()}
    copy.durable = {name: copied(node) for name, node in folder.durable.items()}
    copy.since = [
        {name: node and copied(node) for name, node in change.items()} for change in folder.since
    ]
    return copy


def _error(path: str, code: int) -> DiskError:
    full = code == errno.ENOSPC
    return DiskError(f"{path or 'the data folder'}: {os.strerror(code)}", full=full)
