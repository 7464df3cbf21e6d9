"""All file access: everything in a log directory is read and written through a :class:`Disk`.

Paths are relative to the disk's root, with ``/`` between folder and file. What the operating system
refuses (no space, no permission, an I/O error) is a :class:`~rota.errors.DiskError` that names the
file.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Protocol

from rota.engine.formats.buffer import Bytes
from rota.errors import DiskError

#: So many files are kept open for the next read or write.
MAX_OPEN_FILES = 256

#: So many threads sync files together: the machine then writes its journal once for several.
SYNC_THREADS = 16

OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

#: After so many bytes the machine is asked to write them out, without waiting for it.
#:
#: A sync of a whole segment took 0.6 s when it came to that; so it takes some ms.
WRITEBACK_BYTES = 16 << 20


class Disk(Protocol):
    """File access as storage needs it. Tests have one that tears, loses and flips bytes."""

    def list_names(self, folder: str) -> list[str]:
        """What is in a folder, sorted; empty if there is no such folder, or it is a file."""

    def size(self, path: str) -> int | None:
        """Of a file, in bytes; None if there is none."""

    def modified_at(self, path: str) -> int | None:
        """When a file was last modified, in milliseconds since 1970; None if unknown."""

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

    def make_folder(self, folder: str) -> None:
        """Makes a folder, and those above it, where there is none."""

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with all that is in it; nothing happens if it is gone."""

    def sync(self, path: str) -> None:
        """Syncs a file's content, or a folder's names, to the disk."""

    def sync_all(self, paths: Sequence[str]) -> dict[str, DiskError]:
        """Syncs many paths, faster than one by one; returns the errors by path."""


class RealDisk:
    """A folder of this machine.

    Most is done for every partition there is. So paths are plain texts: making a ``Path`` of one
    costs more than what the machine does with it.
    """

    def __init__(self, root: Path, *, open_files: int = MAX_OPEN_FILES) -> None:
        self.root = root
        self._root = str(root)
        self._max_open = open_files
        #: Descriptors by path, those used last at the end.
        self._open: OrderedDict[str, int] = OrderedDict()
        #: Bytes of files that nobody has asked the machine to write out.
        self._unwritten_bytes: dict[str, int] = {}

    def list_names(self, folder: str) -> list[str]:
        """What is in a folder, sorted; empty if there is no such folder."""
        try:
            return sorted(os.listdir(self._full_path(folder)))  # noqa: PTH208
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _disk_error(folder, error) from error

    def size(self, path: str) -> int | None:
        """Of a file, in bytes; None if there is none."""
        found = self._stat_file(path)
        return None if found is None else found.st_size

    def modified_at(self, path: str) -> int | None:
        """When a file was written to last, in milliseconds since 1970; None if there is none."""
        found = self._stat_file(path)
        return None if found is None else found.st_mtime_ns // 1_000_000

    def read(self, path: str, position: int, size: int) -> bytes:
        """So many bytes from a position on; fewer where the file ends."""
        try:
            return os.pread(self._descriptor(path), size, position)
        except OSError as error:
            raise _disk_error(path, error) from error

    def append(self, path: str, data: Bytes) -> None:
        """Writes behind the last byte; makes the file if there is none."""
        try:
            descriptor = self._descriptor(path, os.O_CREAT)
            written = os.write(descriptor, data)
            while written < len(data):
                written += os.write(descriptor, memoryview(data)[written:])
            waiting = self._unwritten_bytes.get(path, 0) + written
            if waiting >= WRITEBACK_BYTES:
                _start_writeback(descriptor, waiting)
                waiting = 0
            self._unwritten_bytes[path] = waiting
        except OSError as error:
            raise _disk_error(path, error) from error

    def truncate(self, path: str, size: int) -> None:
        """Cuts a file off behind so many bytes."""
        try:
            os.ftruncate(self._descriptor(path), size)
        except OSError as error:
            raise _disk_error(path, error) from error

    def replace(self, path: str, data: Bytes) -> None:
        """Gives a file new content that outlives a crash: after one it is the old or the new."""
        new = f"{path}.tmp"
        try:
            with open(self._full_path(new), "wb") as file:  # noqa: PTH123
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._close_descriptors(new)
            self._close_descriptors(path)
            os.replace(self._full_path(new), self._full_path(path))  # noqa: PTH105
        except OSError as error:
            with suppress(OSError):
                os.unlink(self._full_path(new))  # noqa: PTH108
            raise _disk_error(path, error) from error
        self.sync(path.rpartition("/")[0])

    def rename(self, path: str, to: str) -> None:
        """Gives a file or a folder another name, in place of what had it before."""
        try:
            self._close_descriptors(path, inside=os.path.isdir(self._full_path(path)))  # noqa: PTH112
            self._close_descriptors(to)
            os.replace(self._full_path(path), self._full_path(to))  # noqa: PTH105
        except OSError as error:
            raise _disk_error(path, error) from error

    def make_folder(self, folder: str) -> None:
        """Makes a folder, and those above it, where there is none."""
        try:
            os.makedirs(self._full_path(folder), exist_ok=True)  # noqa: PTH103
        except OSError as error:
            raise _disk_error(folder, error) from error

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with all that is in it; nothing happens if it is gone."""
        where = self._full_path(path)
        try:
            if os.path.isdir(where) and not os.path.islink(where):  # noqa: PTH112, PTH114
                self._close_descriptors(path, inside=True)
                shutil.rmtree(where)
            else:
                self._close_descriptors(path)
                os.unlink(where)  # noqa: PTH108
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise _disk_error(path, error) from error

    def sync(self, path: str) -> None:
        """What was written to a file, or which names a folder has, outlives a loss of power."""
        for error in self.sync_all([path]).values():
            raise error

    def sync_all(self, paths: Sequence[str]) -> dict[str, DiskError]:
        """The same for many, and quicker than one by one; gives those that cannot be synced."""
        left = deque(paths)
        failures: dict[str, OSError] = {}

        def work() -> None:
            with suppress(IndexError):
                while True:
                    path = left.popleft()
                    try:
                        _sync_file(self._full_path(path), self._open.get(path))
                    except OSError as error:
                        failures[path] = error

        helpers: list[Thread] = []
        with suppress(RuntimeError):  # an interpreter that is about to end starts no threads
            for _ in range(min(SYNC_THREADS, len(paths)) - 1):
                helper = Thread(target=work, daemon=True)
                helper.start()
                helpers.append(helper)
        work()
        for each in helpers:
            each.join()
        crowded = [path for path, error in failures.items() if error.errno in OUT_OF_DESCRIPTORS]
        if crowded and self._open:  # they were not synced, for they could not even be opened
            os.close(self._open.popitem(last=False)[1])
            again = self.sync_all(crowded)
            for path in crowded:
                del failures[path]
        else:
            again = {}
        return again | {path: _disk_error(path, error) for path, error in failures.items()}

    def close(self) -> None:
        """Lets go of all files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _stat_file(self, path: str) -> os.stat_result | None:
        """What the machine says of a file; None if there is none."""
        try:
            found = os.stat(self._full_path(path))  # noqa: PTH116, a Path costs more than the call
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _disk_error(path, error) from error
        return None if stat.S_ISDIR(found.st_mode) else found

    def _descriptor(self, path: str, create: int = 0) -> int:
        """A file that is open for both, at its end for writing; made only if asked to."""
        descriptor = self._open.get(path)
        if descriptor is not None:
            self._open.move_to_end(path)
            return descriptor
        if len(self._open) >= self._max_open:
            os.close(self._open.popitem(last=False)[1])
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | create
        while True:
            try:
                descriptor = os.open(self._full_path(path), flags, 0o644)
            except OSError as error:
                # the process may have fewer descriptors left than is thought here
                if error.errno not in OUT_OF_DESCRIPTORS or not self._open:
                    raise
                os.close(self._open.popitem(last=False)[1])
            else:
                self._open[path] = descriptor
                return descriptor

    def _full_path(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _close_descriptors(self, path: str, *, inside: bool = False) -> None:
        """Closes the descriptors of a path that is about to be replaced or removed.

        :param inside: the path is a folder: also those of the files in it
        """
        names = [path]
        if inside:
            names += [name for name in self._open if name.startswith(f"{path}/")]
        for name in names:
            self._unwritten_bytes.pop(name, None)
            descriptor = self._open.pop(name, None)
            if descriptor is not None:
                os.close(descriptor)


def _sync_file(where: str, descriptor: int | None) -> None:
    """:param descriptor: of the file, if it is open: it knows of every failure since."""
    opened = os.open(where, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor
    try:
        os.fsync(opened)
    finally:
        if descriptor is None:
            os.close(opened)


def _start_writeback(descriptor: int, size: int) -> None:
    """Asks for the last so many bytes of a file to be written, where a machine can be asked."""
    if hasattr(os, "posix_fadvise"):
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        # what is being written stays in memory: readers that follow do not lose it
        os.posix_fadvise(descriptor, end - size, size, os.POSIX_FADV_DONTNEED)


def _disk_error(path: str, error: OSError) -> DiskError:
    reason = error.strerror or str(error)
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return DiskError(f"{path or 'the data folder'}: {reason}", full=full)
