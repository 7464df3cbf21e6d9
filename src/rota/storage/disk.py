"""The one door to files: everything in a data folder is read and written through a :class:`Disk`.

Paths are relative to the disk's root, with ``/`` between folder and file. What the machine refuses
(no space, no permission, an I/O error) is a :class:`~rota.errors.DiskError` that names the file.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from rota.errors import DiskError
from rota.formats.buffer import Bytes

OPEN_FILES = 256
"""So many files are kept open for the next read or write."""
WRITE_OUT = 16 << 20
"""After so many bytes the machine is asked to write them out, without waiting for it.

A sync of a whole segment took 0.6 s when it came to that; so it takes some ms.
"""


class Disk(Protocol):
    """Files, as storage needs them; the tests have one that tears, loses and flips."""

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted; empty if there is no such folder, or it is a file."""

    def size(self, path: str) -> int | None:
        """Of a file, in bytes; None if there is none."""

    def written(self, path: str) -> int | None:
        """When a file was written to last, in milliseconds since 1970; None if nobody knows."""

    def read(self, path: str, position: int, size: int) -> bytes:
        """So many bytes from a position on; fewer where the file ends."""

    def append(self, path: str, data: Bytes) -> None:
        """Writes behind the last byte; makes the file if there is none.

        A failure may leave a part of it behind: cut it off with :meth:`truncate`.
        """

    def truncate(self, path: str, size: int) -> None:
        """Cuts a file off behind so many bytes."""

    def replace(self, path: str, data: Bytes) -> None:
        """Gives a file new content that outlives a crash: after one it is the old or the new."""

    def rename(self, path: str, to: str) -> None:
        """Gives a file or a folder another name, in place of what had it before."""

    def make(self, folder: str) -> None:
        """Makes a folder, and those above it, where there is none."""

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with all that is in it; nothing happens if it is gone."""

    def sync(self, path: str) -> None:
        """What was written to a file, or which names a folder has, outlives a loss of power."""


class RealDisk:
    """A folder of this machine."""

    def __init__(self, root: Path, *, open_files: int = OPEN_FILES) -> None:
        self.root = root
        self._root = str(root)
        self._most_open = open_files
        self._open: OrderedDict[str, int] = OrderedDict()
        """Descriptors by path, those used last at the end."""
        self._waiting: dict[str, int] = {}
        """Bytes of files that nobody has asked the machine to write out."""

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted; empty if there is no such folder."""
        try:
            # a start does this for every partition, and a Path costs more than the call itself
            return sorted(os.listdir(f"{self._root}/{folder}"))  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _told(folder, error) from error

    def size(self, path: str) -> int | None:
        """Of a file, in bytes; None if there is none."""
        found = self._look(path)
        return None if found is None else found.st_size

    def written(self, path: str) -> int | None:
        """When a file was written to last, in milliseconds since 1970; None if there is none."""
        found = self._look(path)
        return None if found is None else found.st_mtime_ns // 1_000_000

    def read(self, path: str, position: int, size: int) -> bytes:
        """So many bytes from a position on; fewer where the file ends."""
        try:
            return os.pread(self._descriptor(path), size, position)
        except OSError as error:
            raise _told(path, error) from error

    def append(self, path: str, data: Bytes) -> None:
        """Writes behind the last byte; makes the file if there is none."""
        try:
            descriptor = self._descriptor(path, os.O_CREAT)
            written = os.write(descriptor, data)
            while written < len(data):
                written += os.write(descriptor, memoryview(data)[written:])
            waiting = self._waiting.get(path, 0) + written
            if waiting >= WRITE_OUT:
                _write_out(descriptor, waiting)
                waiting = 0
            self._waiting[path] = waiting
        except OSError as error:
            raise _told(path, error) from error

    def truncate(self, path: str, size: int) -> None:
        """Cuts a file off behind so many bytes."""
        try:
            os.ftruncate(self._descriptor(path), size)
        except OSError as error:
            raise _told(path, error) from error

    def replace(self, path: str, data: Bytes) -> None:
        """Gives a file new content that outlives a crash: after one it is the old or the new."""
        new = f"{path}.tmp"
        try:
            with (self.root / new).open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._forget(new)
            self._forget(path)
            (self.root / new).replace(self.root / path)
        except OSError as error:
            with suppress(OSError):
                (self.root / new).unlink(missing_ok=True)
            raise _told(path, error) from error
        self.sync(path.rpartition("/")[0])

    def rename(self, path: str, to: str) -> None:
        """Gives a file or a folder another name, in place of what had it before."""
        try:
            self._forget(path)
            self._forget(to)
            (self.root / path).replace(self.root / to)
        except OSError as error:
            raise _told(path, error) from error

    def make(self, folder: str) -> None:
        """Makes a folder, and those above it, where there is none."""
        try:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _told(folder, error) from error

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with all that is in it; nothing happens if it is gone."""
        where = self.root / path
        try:
            self._forget(path)
            if where.is_dir() and not where.is_symlink():
                shutil.rmtree(where)
            else:
                where.unlink(missing_ok=True)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _told(path, error) from error

    def sync(self, path: str) -> None:
        """What was written to a file, or which names a folder has, outlives a loss of power."""
        try:
            if path in self._open or not (self.root / path).is_dir():
                os.fsync(self._descriptor(path))
                return
            folder = os.open(self.root / path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise _told(path, error) from error

    def close(self) -> None:
        """Lets go of all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _look(self, path: str) -> os.stat_result | None:
        """What the machine says of a file; None if there is none."""
        try:
            found = os.stat(f"{self._root}/{path}")  # noqa: PTH116, a Path costs more than the call
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _told(path, error) from error
        return None if stat.S_ISDIR(found.st_mode) else found

    def _descriptor(self, path: str, create: int = 0) -> int:
        """A file that is open for both, at its end for writing; made only if asked to."""
        descriptor = self._open.get(path)
        if descriptor is not None:
            self._open.move_to_end(path)
            return descriptor
        if len(self._open) >= self._most_open:
            os.close(self._open.popitem(last=False)[1])
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | create
        while True:
            try:
                descriptor = os.open(f"{self._root}/{path}", flags, 0o644)
            except OSError as error:
                # the process may have fewer descriptors left than is thought here
                if error.errno not in {errno.EMFILE, errno.ENFILE} or not self._open:
                    raise
                os.close(self._open.popitem(last=False)[1])
            else:
                self._open[path] = descriptor
                return descriptor

    def _forget(self, path: str) -> None:
        self._waiting.pop(path, None)
        inside = f"{path}/"
        for name in [name for name in self._open if name == path or name.startswith(inside)]:
            os.close(self._open.pop(name))
            self._waiting.pop(name, None)


def _write_out(descriptor: int, size: int) -> None:
    """Asks for the last so many bytes of a file to be written, where a machine can be asked."""
    if hasattr(os, "posix_fadvise"):
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        # what is being written stays in memory: readers that follow do not lose it
        os.posix_fadvise(descriptor, end - size, size, os.POSIX_FADV_DONTNEED)


def _told(path: str, error: OSError) -> DiskError:
    reason = error.strerror or str(error)
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return DiskError(f"{path or 'the data folder'}: {reason}", full=full)
