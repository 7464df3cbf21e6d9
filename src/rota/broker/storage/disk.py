"""All file access: everything in a log directory is read and written through a :class:`Disk`.

Paths are relative to the disk's root, with ``/`` between folder and file. An error of the operating
system (no space, no permission, an I/O error) becomes a :class:`~rota.errors.DiskError` that names
the file.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Protocol, TypeAlias

from rota.engine.formats.buffer import Bytes
from rota.errors import DiskError

Report: TypeAlias = Callable[[str], None]  # receives a line for each damaged file, and its repair
MAX_OPEN_FILES = 256
SYNC_THREADS = 16  # threads that sync together: the file system writes its journal once
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

#: After this many appended bytes, writeback is started without waiting for it. A sync of a whole
#: segment then takes some milliseconds, not 0.6 s.
WRITEBACK_BYTES = 16 << 20


class Disk(Protocol):
    """File access as storage needs it. Tests have one that tears, loses and flips bytes."""

    def list_names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty if it does not exist, or is a file."""

    def size(self, path: str) -> int | None:
        """Size of a file in bytes; None if it does not exist."""

    def modified_at(self, path: str) -> int | None:
        """When a file was last modified, in milliseconds since 1970; None if unknown."""

    def read(self, path: str, position: int, size: int) -> bytes:
        """Reads ``size`` bytes from a position on, or fewer if the file ends before."""

    def append(self, path: str, data: Bytes) -> None:
        """Appends to a file or creates it; a failed append may leave bytes: :meth:`truncate` it."""

    def truncate(self, path: str, size: int) -> None: ...

    def replace(self, path: str, data: Bytes) -> None:
        """Replaces a file's content durably: after a crash it is the old or the new one."""

    def rename(self, path: str, to: str) -> None:
        """Renames a file or a folder, and replaces a file of the new name."""

    def make_folder(self, folder: str) -> None:
        """Makes a folder and its parents, unless it exists."""

    def remove(self, path: str) -> None:
        """Removes a file, or a folder with its content, if it exists."""

    def sync(self, path: str) -> None:
        """Syncs a file's content, or a folder's names, to the disk."""

    def sync_all(self, paths: Sequence[str]) -> dict[str, DiskError]:
        """Syncs many paths, faster than one by one; returns the errors by path."""


class RealDisk:
    """A folder of this machine. Paths are strings: a ``Path`` costs more than a system call."""

    def __init__(self, root: Path, *, open_files: int = MAX_OPEN_FILES) -> None:
        self.root = root
        self._root = str(root)
        self._max_open = open_files
        self._open: OrderedDict[str, int] = OrderedDict()
        #: Appended bytes by path whose writeback was not started.
        self._unwritten_bytes: dict[str, int] = {}

    def list_names(self, folder: str) -> list[str]:
        with _disk_errors(folder), suppress(FileNotFoundError, NotADirectoryError):
            return sorted(os.listdir(self._full_path(folder)))  # noqa: PTH208
        return []

    def size(self, path: str) -> int | None:
        status = self._stat_file(path)
        return None if status is None else status.st_size

    def modified_at(self, path: str) -> int | None:
        status = self._stat_file(path)
        return None if status is None else status.st_mtime_ns // 1_000_000

    def read(self, path: str, position: int, size: int) -> bytes:
        try:
            return os.pread(self._descriptor(path), size, position)
        except OSError as error:
            raise _disk_error(path, error) from error

    def append(self, path: str, data: Bytes) -> None:
        try:
            descriptor = self._descriptor(path, os.O_CREAT)
            written = os.write(descriptor, data)
            while written < len(data):
                written += os.write(descriptor, memoryview(data)[written:])
            unwritten = self._unwritten_bytes.get(path, 0) + written
            if unwritten >= WRITEBACK_BYTES:
                _start_writeback(descriptor, unwritten)
                unwritten = 0
            self._unwritten_bytes[path] = unwritten
        except OSError as error:
            raise _disk_error(path, error) from error

    def truncate(self, path: str, size: int) -> None:
        with _disk_errors(path):
            os.ftruncate(self._descriptor(path), size)

    def replace(self, path: str, data: Bytes) -> None:
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
        with _disk_errors(path):
            self._close_descriptors(path, inside=os.path.isdir(self._full_path(path)))  # noqa: PTH112
            self._close_descriptors(to)
            os.replace(self._full_path(path), self._full_path(to))  # noqa: PTH105

    def make_folder(self, folder: str) -> None:
        with _disk_errors(folder):
            os.makedirs(self._full_path(folder), exist_ok=True)  # noqa: PTH103

    def remove(self, path: str) -> None:
        full_path = self._full_path(path)
        with _disk_errors(path), suppress(FileNotFoundError, NotADirectoryError):
            if os.path.isdir(full_path) and not os.path.islink(full_path):  # noqa: PTH112, PTH114
                self._close_descriptors(path, inside=True)
                shutil.rmtree(full_path)
            else:
                self._close_descriptors(path)
                os.unlink(full_path)  # noqa: PTH108

    def sync(self, path: str) -> None:
        for error in self.sync_all([path]).values():
            raise error

    def sync_all(self, paths: Sequence[str]) -> dict[str, DiskError]:
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

        threads: list[Thread] = []
        with suppress(RuntimeError):  # an interpreter that is about to end starts no threads
            for _ in range(min(SYNC_THREADS, len(paths)) - 1):
                thread = Thread(target=work, daemon=True)
                thread.start()
                threads.append(thread)
        work()
        for each in threads:
            each.join()
        retried: dict[str, DiskError] = {}
        not_opened = [path for path, error in failures.items() if error.errno in OUT_OF_DESCRIPTORS]
        if not_opened and self._open:
            os.close(self._open.popitem(last=False)[1])
            retried = self.sync_all(not_opened)
            for path in not_opened:
                del failures[path]
        return retried | {path: _disk_error(path, error) for path, error in failures.items()}

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def _stat_file(self, path: str) -> os.stat_result | None:
        try:
            status = os.stat(self._full_path(path))  # noqa: PTH116, see the class
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _disk_error(path, error) from error
        return None if stat.S_ISDIR(status.st_mode) else status

    def _descriptor(self, path: str, create: int = 0) -> int:
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
                # the process may have fewer descriptors left than MAX_OPEN_FILES
                if error.errno not in OUT_OF_DESCRIPTORS or not self._open:
                    raise
                os.close(self._open.popitem(last=False)[1])
            else:
                self._open[path] = descriptor
                return descriptor

    def _full_path(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _close_descriptors(self, path: str, *, inside: bool = False) -> None:
        names = [path]
        if inside:
            names += [name for name in self._open if name.startswith(f"{path}/")]
        for name in names:
            self._unwritten_bytes.pop(name, None)
            descriptor = self._open.pop(name, None)
            if descriptor is not None:
                os.close(descriptor)


def _sync_file(where: str, descriptor: int | None) -> None:
    # a descriptor that was open during the writes reports their failures too
    opened = os.open(where, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor
    try:
        os.fsync(opened)
    finally:
        if descriptor is None:
            os.close(opened)


def _start_writeback(descriptor: int, size: int) -> None:
    """Starts the writeback of the last ``size`` bytes of a file, where the system offers that."""
    if hasattr(os, "posix_fadvise"):
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        # dirty pages stay in the page cache for readers
        os.posix_fadvise(descriptor, end - size, size, os.POSIX_FADV_DONTNEED)


@contextmanager
def _disk_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _disk_error(path, error) from error


def _disk_error(path: str, error: OSError) -> DiskError:
    reason = error.strerror or str(error)
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return DiskError(f"{path or 'the data folder'}: {reason}", full=full)
