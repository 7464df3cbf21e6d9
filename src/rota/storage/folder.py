"""The data folder: one process at a time, known as Rota's own, and how its last use has ended.

Beside the partitions' folders there are, all but the catalogue as Kafka has them: ``.lock``,
``meta.properties``, the catalogue of topics, checkpoints of offsets, and ``.kafka_cleanshutdown``
while no process has it open and the last one had stopped in good order.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rota.errors import DiskError, InputError, Unreachable
from rota.storage import adoption, checkpoint
from rota.storage.adoption import SET_ASIDE, Adoption
from rota.storage.catalog import FIRST, SECOND, Catalog, Copies, Identity, id_text, look
from rota.storage.disk import Disk

LOCK = ".lock"
META = "meta.properties"
CLEAN = ".kafka_cleanshutdown"
CLEAN_VERSION = 0
KAFKAS_MARK = re.compile(rb'\{"version":0,"brokerEpoch":[0-9]+\}')
"""Rota's has no epoch: -1."""
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_POINTS = "cleaner-offset-checkpoint"
BESIDE = frozenset(
    {
        CLEAN,
        RECOVERY_POINTS,
        LOG_STARTS,
        CLEANER_POINTS,
        "replication-offset-checkpoint",
        "bootstrap.checkpoint",
        "__cluster_metadata-0",
    }
)
"""What a Kafka has beside its partitions' folders."""
NOT_FOREIGN = frozenset({LOCK, "lost+found", f"{FIRST}.tmp", f"{SECOND}.tmp"})
"""What a new folder may have: a disk's root, or one whose first start was cut short."""
FEW = 3
FLOCK = struct.Struct("hhqqi4x")
"""``struct flock`` of Linux."""
F_OFD_SETLK = 37
"""Linux's number, for Pythons built without it: python-build-standalone, which uv installs."""

Report = Callable[[str], None]


class Lock:
    """Holds a folder for this process, until it is released or the process ends."""

    def __init__(self, root: Path, check: Callable[[], object] = lambda: None) -> None:
        """Makes the folder if there is none.

        :param check: raises if the folder may not be used; nothing is written in it before
        :raises DiskError: it cannot be written
        :raises Unreachable: another process has it, or it is a file
        """
        self._file = -1
        self._take(root, os.O_RDWR)
        try:
            check()
            if self._file < 0:
                self._make(root)
                self._take(root, os.O_RDWR | os.O_CREAT)
        except BaseException:
            if self._file >= 0:
                os.close(self._file)
            raise
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def _take(self, root: Path, flags: int) -> None:
        """Takes the lock, if there is one, or if the flags ask for one to be made."""
        try:
            self._file = os.open(root / LOCK, flags | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            file = next(each for each in (root, *root.parents) if each.exists())
            raise Unreachable(f"{file} is a file, not a folder") from None
        except OSError as error:
            raise _unwritable(root, error) from error
        try:
            _take(self._file)
        except OSError:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            self._file = -1
            whose = f"process {holder}" if holder.isdigit() else "another process"
            raise Unreachable(f"the folder {root} is in use by {whose}") from None

    @staticmethod
    def _make(root: Path) -> None:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(root, error) from error

    def fileno(self) -> int:
        """The descriptor that holds it; a process that inherits it holds the folder too."""
        return self._file

    def release(self) -> None:
        """Lets others have it."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


def _unwritable(root: Path, error: OSError) -> DiskError:
    return DiskError(f"the folder {root} cannot be written: {error.strerror or error}")


def _take(file: int) -> None:
    """A lock as Java's, which a Kafka heeds and takes, but of the open file and not the process.

    So a second broker in this process is kept out too. Other machines than Linux have none such.
    """
    if sys.platform == "linux":
        command = getattr(fcntl, "F_OFD_SETLK", F_OFD_SETLK)
        fcntl.fcntl(file, command, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a folder is."""

    copies: Copies
    """Of its catalogue."""
    identity: Identity | None = None
    """As the catalogue or ``meta.properties`` have it."""
    adoption: Adoption | None = None


def open_folder(  # noqa: PLR0913, what a start is told
    disk: Disk,
    *,
    node_id: int,
    new_id: Callable[[], bytes],
    report: Report,
    adopt: bool = False,
    called: str = "the folder",
) -> Folder:
    """Opens a folder that is Rota's own, or is empty; with ``adopt`` one with topics of a Kafka.

    :param new_id: gives 16 bytes, never the same
    :param called: what errors call it
    :raises InputError: it is another's, or another node's
    :raises Unreachable: its catalogue is lost
    """
    found = survey(disk, node_id=node_id, new_id=new_id, adopt=adopt, called=called)
    if found.copies.content is not None and found.adoption is None:
        catalog = Catalog.open(disk, found.copies, report)
    else:
        for path, problem in found.copies.bad.items():
            report(f"{path}: {problem}")
        identity = found.identity or _new_identity(node_id, new_id)
        if found.adoption is None:
            catalog = Catalog.create(disk, identity)
        else:
            next_id = adoption.next_producer_id(disk)
            topics = found.adoption.topics
            catalog = Catalog.adopt(disk, identity, topics, next_id, found.copies.content)
            checkpoint.trust(disk, RECOVERY_POINTS, LOG_STARTS, CLEANER_POINTS)
            for note in found.adoption.notes:
                report(note)
    _mend_meta(disk, catalog.identity, report)
    clean = _was_clean(disk, report)
    disk.remove(CLEAN)
    disk.sync("")  # before anything is written: it must not come back with a loss of power
    return Folder(disk, catalog, clean=clean, report=report)


def survey(
    disk: Disk, *, node_id: int, new_id: Callable[[], bytes], adopt: bool, called: str
) -> Found:
    """Finds what a folder is, and refuses it if it may not be used so; only reads."""
    copies = look(disk)
    since = _used_by_kafka(disk)
    if copies.content is not None and not since:
        _check_node(copies.content.identity, node_id, called)
        return Found(copies=copies)
    if copies.bad and not adopt:
        told = "; ".join(f"{path}: {problem}" for path, problem in copies.bad.items())
        raise Unreachable(
            f"the catalogue of topics is damaged in both copies ({told}): start with --adopt "
            "to make a new one from the partitions' folders; topics' settings are lost then"
        )
    names = disk.names("")
    # only Rota keeps copies of checkpoints, and only a Kafka a log of its metadata
    ours = any(name.endswith(".copy") for name in names) and "__cluster_metadata-0" not in names
    lost = ours or bool(copies.bad)
    kafkas = META in names and (since or not lost)
    partitions = adoption.partition_folders(disk)
    if not adopt:
        _refuse_foreign(names, called, kafkas=kafkas, partitions=bool(partitions))
        return Found(copies=copies)
    identity = _read_meta(disk, new_id)
    if kafkas:
        _check_kafkas(names, identity, called)
    elif not lost:
        _check_bare(names, partitions, called)
    if identity is not None:
        _check_node(identity, node_id, called)
    known = {} if copies.content is None else copies.content.topics
    found = adoption.survey(disk, new_id, kafkas=kafkas, called=called, known=known)
    return Found(copies=copies, identity=identity, adoption=found)


def _check_node(identity: Identity, node_id: int, called: str) -> None:
    if identity.node_id != node_id:
        raise InputError(f"node.id: {called} belongs to node {identity.node_id}, not {node_id}")


def _refuse_foreign(names: list[str], called: str, *, kafkas: bool, partitions: bool) -> None:
    if kafkas:
        raise InputError(
            f"{called} was last written by a Kafka: stop that, then start with --adopt to take it "
            "over"
        )
    if partitions:
        raise InputError(
            f"{called} has partitions' folders, but no catalogue of Rota's: start with --adopt to "
            "take them over"
        )
    if names := [name for name in names if name not in NOT_FOREIGN]:
        raise InputError(f"{called} is not Rota's, it has {_quoted(names)}: choose an empty one")


def _check_kafkas(names: list[str], identity: Identity | None, called: str) -> None:
    """Nothing of a folder may change that a Kafka still writes to, or could not use any more."""
    if identity is None:
        raise InputError(f"{called}: its {META} is none of a Kafka with KRaft; it is left alone")
    if CLEAN not in names:
        raise InputError(
            f"{called} is of a Kafka that runs, or was not stopped in good order: stop it (start "
            "it first, if it was killed), or copy the partitions' folders into a new folder, "
            f"without {META}, and adopt that"
        )


def _check_bare(names: list[str], partitions: list[str], called: str) -> None:
    """Nothing but partitions' folders, and what a Kafka keeps beside them."""
    known = NOT_FOREIGN | BESIDE | set(partitions)
    rest = [name for name in names if name not in known and not SET_ASIDE.fullmatch(name)]
    if rest:
        raise InputError(
            f"{called} is not Rota's, it has {_quoted(rest)}: adopt a folder that has nothing but "
            "partitions' folders"
        )
    if not partitions:
        raise InputError(f"{called} has no partition's folder to adopt: start without --adopt")


def _quoted(names: list[str]) -> str:
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return ", ".join(repr(name) for name in names[:FEW]) + more


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


def _read_meta(disk: Disk, new_id: Callable[[], bytes] | None = None) -> Identity | None:
    """What the file says; a Kafka before 3.7 gave a folder no id, and gets a new one here."""
    size = disk.size(META)
    if size is None:
        return None
    text = disk.read(META, 0, size).decode("latin-1")
    lines = [line.partition("=") for line in text.split("\n") if not line.startswith("#")]
    said = {key.strip(" \t"): value.strip(" \t\r") for key, _, value in lines}
    directory = said.get("directory.id") or (id_text(new_id()) if new_id else "")
    try:
        if said["version"] != "1":
            return None
        return Identity(
            cluster_id=said["cluster.id"],
            node_id=int(said["node.id"]),
            directory_id=directory,
        )
    except (KeyError, ValueError):
        return None


def _mend_meta(disk: Disk, identity: Identity, report: Report) -> None:
    """The catalogue has a checksum, so it is right where they differ."""
    if _read_meta(disk) != identity:
        if disk.size(META) is not None:
            report(f"{META}: it does not say what the catalogue says; it is written anew")
        disk.replace(META, _meta(identity))


def _used_by_kafka(disk: Disk) -> bool:
    """Was it a Kafka that has stopped last? Then it may have other topics than the catalogue."""
    size = disk.size(CLEAN)
    return size is not None and KAFKAS_MARK.fullmatch(disk.read(CLEAN, 0, size)) is not None


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
