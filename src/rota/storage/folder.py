"""The data folder: one process at a time, known as Rota's own, and how its last use has ended.

Beside the partitions' folders there are, all but the catalogue as Kafka has them: ``.lock``,
``meta.properties``, the catalogue of topics, checkpoints of offsets, and ``.kafka_cleanshutdown``
while no process has it open and the last one had stopped in good order.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

from rota.errors import DiskError, InputError, Unreachable
from rota.storage import checkpoint
from rota.storage.catalog import FIRST, SECOND, Catalog, Identity, id_text
from rota.storage.disk import Disk

LOCK = ".lock"
META = "meta.properties"
CLEAN = ".kafka_cleanshutdown"
CLEAN_VERSION = 0
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_POINTS = "cleaner-offset-checkpoint"
NOT_FOREIGN = frozenset({LOCK, "lost+found", f"{FIRST}.tmp", f"{SECOND}.tmp"})
"""What a new folder may have: a disk's root, or one whose first start was cut short."""
FEW = 3
FLOCK = struct.Struct("hhqqi4x")
"""``struct flock`` of Linux."""

Report = Callable[[str], None]


class Lock:
    """Holds a folder for this process, until it is released or the process ends."""

    def __init__(self, root: Path) -> None:
        """Makes the folder if there is none.

        :raises DiskError: it cannot be written
        :raises Unreachable: another process has it
        """
        try:
            root.mkdir(parents=True, exist_ok=True)
            self._file = os.open(root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            reason = error.strerror or str(error)
            raise DiskError(f"the folder {root} cannot be written: {reason}") from error
        try:
            _take(self._file)
        except OSError:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            whose = f"process {holder}" if holder.isdigit() else "another process"
            raise Unreachable(f"the folder {root} is in use by {whose}") from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def fileno(self) -> int:
        """The descriptor that holds it; a process that inherits it holds the folder too."""
        return self._file

    def release(self) -> None:
        """Lets others have it."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


def _take(file: int) -> None:
    """Both kinds of locks: Java's, so that no Kafka has the folder, know nothing of ``flock``."""
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


class Folder:
    """An open data folder. Use :func:`open_folder` to get it."""

    def __init__(self, disk: Disk, catalog: Catalog, *, clean: bool, report: Report) -> None:
        self.catalog = catalog
        self.cluster_id = catalog.identity.cluster_id
        self.clean = clean
        """The last use has ended in good order."""
        self.recovery_points = checkpoint.read(disk, RECOVERY_POINTS, report)
        """What is before these offsets was synced."""
        self.log_starts = checkpoint.read(disk, LOG_STARTS, report)
        """What is before these offsets was deleted."""
        self.cleaner_points = checkpoint.read(disk, CLEANER_POINTS, report)
        """What is before these offsets was compacted."""
        self._disk = disk

    def save_checkpoints(
        self, points: Mapping[tuple[str, int], int], starts: Mapping[tuple[str, int], int]
    ) -> None:
        """Saves up to where the logs are synced, and where they begin."""
        checkpoint.write(self._disk, RECOVERY_POINTS, points)
        checkpoint.write(self._disk, LOG_STARTS, starts)
        self.recovery_points, self.log_starts = dict(points), dict(starts)

    def save_cleaner_points(self, points: Mapping[tuple[str, int], int]) -> None:
        """Saves up to where the logs are compacted."""
        checkpoint.write(self._disk, CLEANER_POINTS, points)
        self.cleaner_points = dict(points)

    def mark_clean(self) -> None:
        """All that the next start must know is on the disk."""
        content = {"version": CLEAN_VERSION, "brokerEpoch": -1}
        self._disk.replace(CLEAN, json.dumps(content, separators=(",", ":")).encode())


def open_folder(  # noqa: PLR0913, what a start is told
    disk: Disk,
    *,
    node_id: int,
    new_id: Callable[[], bytes],
    report: Report,
    adopt: bool = False,
    called: str = "the folder",
) -> Folder:
    """Opens a folder that is Rota's own, or is empty; with ``adopt`` one that a Kafka has written.

    :param new_id: gives 16 bytes, never the same
    :param called: what errors call it
    :raises InputError: it is another's, or another node's
    :raises Unreachable: its catalogue is lost
    """
    if Catalog.exists(disk) and not adopt:
        catalog = Catalog.open(disk, report)
        _mend_meta(disk, catalog.identity, report)
    elif adopt and (Catalog.exists(disk) or disk.size(META) is not None):
        catalog = _adopt(disk, node_id, new_id, report)
    else:
        _refuse_foreign(disk, called)
        catalog = Catalog.create(disk, _new_identity(node_id, new_id))
        disk.replace(META, _meta(catalog.identity))
    owner = catalog.identity.node_id
    if owner != node_id:
        raise InputError(f"node.id: {called} belongs to node {owner}, not {node_id}")
    clean = _was_clean(disk, report)
    disk.remove(CLEAN)
    disk.sync("")  # before anything is written: it must not come back with a loss of power
    return Folder(disk, catalog, clean=clean, report=report)


def _refuse_foreign(disk: Disk, called: str) -> None:
    names = [name for name in disk.names("") if name not in NOT_FOREIGN]
    if META in names:
        raise InputError(
            f"{called} was written by a Kafka: stop that, then start with --adopt to take it over"
        )
    if names:
        shown = ", ".join(repr(name) for name in names[:FEW])
        more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
        raise InputError(f"{called} is not Rota's, it has {shown}{more}: choose an empty one")


def _adopt(disk: Disk, node_id: int, new_id: Callable[[], bytes], report: Report) -> Catalog:
    if Catalog.exists(disk):
        try:
            return Catalog.open(disk, report)
        except Unreachable as error:
            report(str(error).partition(": start with")[0])
    identity = _read_meta(disk) or _new_identity(node_id, new_id)
    catalog = Catalog.adopt(disk, identity, report, new_id)
    _mend_meta(disk, identity, report)
    return catalog


def _new_identity(node_id: int, new_id: Callable[[], bytes]) -> Identity:
    cluster = id_text(new_id())
    while cluster.startswith("-"):  # a tool would take it for an option
        cluster = id_text(new_id())
    return Identity(cluster_id=cluster, node_id=node_id, directory_id=id_text(new_id()))


def _meta(identity: Identity) -> bytes:
    lines = {
        "cluster.id": identity.cluster_id,
        "directory.id": identity.directory_id,
        "node.id": identity.node_id,
        "version": 1,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items()).encode()


def _read_meta(disk: Disk) -> Identity | None:
    size = disk.size(META)
    if size is None:
        return None
    text = disk.read(META, 0, size).decode("latin-1")
    lines = [line.partition("=") for line in text.split("\n") if not line.startswith("#")]
    said = {key.strip(" \t"): value.strip(" \t\r") for key, _, value in lines}
    try:
        if said["version"] != "1":
            return None
        return Identity(
            cluster_id=said["cluster.id"],
            node_id=int(said["node.id"]),
            directory_id=said["directory.id"],
        )
    except (KeyError, ValueError):
        return None


def _mend_meta(disk: Disk, identity: Identity, report: Report) -> None:
    """The catalogue has a checksum, so it is right where they differ."""
    if _read_meta(disk) != identity:
        if disk.size(META) is not None:
            report(f"{META}: it does not say what the catalogue says; it is written anew")
        disk.replace(META, _meta(identity))


def _was_clean(disk: Disk, report: Report) -> bool:
    size = disk.size(CLEAN)
    if size is None:
        return False
    try:
        said = json.loads(disk.read(CLEAN, 0, size))
        if said["version"] == CLEAN_VERSION and isinstance(said["brokerEpoch"], int):
            return True
    except (ValueError, KeyError, TypeError, DiskError):
        pass
    report(f"{CLEAN}: it is damaged; the logs are looked through as after a crash")
    return False
