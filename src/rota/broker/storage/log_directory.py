"""The log directory: its lock, its owner, its last shutdown, and the adoption of Kafka's folders.

Beside the partitions' folders it has the catalog of topics and, as in Kafka, ``.lock``,
``meta.properties``, offset checkpoints, and ``.kafka_cleanshutdown`` while no process has the
directory open and the last one shut down cleanly.

``--adopt`` takes over the topics of a directory without a valid catalog: Kafka's log directory, a
mere copy of partitions' folders, or Rota's directory whose catalog is lost. Finding the topics
writes nothing, and adopting them must lose nothing:

- a topic's settings are not in its folders, so no record is deleted or compacted;
- a Kafka that gets its directory back must not find anything that it would refuse. It knows each
  topic's id, and the place of each partition: a new folder would be a second one of a partition.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from rota.broker.storage import checkpoint, producer_state
from rota.broker.storage.catalog import (
    CATALOG_COPY_FILE,
    CATALOG_FILE,
    Catalog,
    CatalogCopies,
    MetaProperties,
    TopicEntry,
    read_catalog_copies,
)
from rota.broker.storage.checkpoint import PartitionOffsets, read_file
from rota.broker.storage.disk import Disk, Report
from rota.engine.formats.primitive import uuid_to_text
from rota.engine.formats.record_batch import MAGIC, MAGIC_OFFSET
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC, list_first_names
from rota.errors import DiskError, FormatError, InputError, Unreachable

LOCK_FILE = ".lock"
META_PROPERTIES_FILE = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_VERSION = 0
KAFKA_CLEAN_SHUTDOWN = re.compile(rb'\{"version":0,"brokerEpoch":[0-9]+\}')  # Rota writes -1
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"

#: Kafka's files beside the partitions' folders.
KAFKA_FILES = frozenset(
    {
        CLEAN_SHUTDOWN_FILE,
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_CHECKPOINT,
        CLEANER_CHECKPOINT,
        "replication-offset-checkpoint",
        "bootstrap.checkpoint",
        "__cluster_metadata-0",
    }
)

#: Files that a new directory may have: in a disk's root, or after an interrupted first start.
NEW_DIRECTORY_FILES = frozenset(
    {LOCK_FILE, "lost+found", f"{CATALOG_FILE}.tmp", f"{CATALOG_COPY_FILE}.tmp"}
)

FLOCK_STRUCT = struct.Struct("hhqqi4x")
F_OFD_SETLK = 37  # Linux's number, for Pythons built without it, such as uv's


class DirectoryLock:
    """Locks a log directory for this process, until it is released or the process ends."""

    def __init__(self, root: Path, check: Callable[[], object] = lambda: None) -> None:
        """:param check: raises if the directory may not be used; called before any write"""
        self._file = -1
        self._open_lock_file(root, os.O_RDWR)
        try:
            check()
            if self._file < 0:
                with _not_writable_errors(root):
                    root.mkdir(parents=True, exist_ok=True)
                self._open_lock_file(root, os.O_RDWR | os.O_CREAT)
        except BaseException:
            if self._file >= 0:
                os.close(self._file)
            raise
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def _open_lock_file(self, root: Path, flags: int) -> None:
        with _not_writable_errors(root):
            try:
                self._file = os.open(root / LOCK_FILE, flags | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                return
            except NotADirectoryError:
                file = next(each for each in (root, *root.parents) if each.exists())
                raise Unreachable(f"{file} is a file, not a folder") from None
        try:
            _lock_file(self._file)
        except OSError:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            self._file = -1
            whose = f"process {holder}" if holder.isdigit() else "another process"
            raise Unreachable(f"the folder {root} is in use by {whose}") from None

    def fileno(self) -> int:
        """The descriptor of the lock; a process that inherits it keeps the lock too."""
        return self._file

    def release(self) -> None:
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


@contextmanager
def _not_writable_errors(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        text = f"the folder {root} cannot be written: {error.strerror or error}"
        raise DiskError(text) from error


def _lock_file(file: int) -> None:
    """Locks like Java, so that Kafka respects the lock, but for the open file and not the process:
    so a second broker in this process is refused too. Only Linux has such locks.
    """
    if sys.platform == "linux":
        command = getattr(fcntl, "F_OFD_SETLK", F_OFD_SETLK)
        fcntl.fcntl(file, command, FLOCK_STRUCT.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class LogDirectory:
    """An open log directory. Use :func:`open_log_directory` to get one."""

    def __init__(self, disk: Disk, catalog: Catalog, *, clean: bool, report: Report) -> None:
        self.catalog = catalog
        self.cluster_id = catalog.identity.cluster_id
        self.clean_shutdown = clean
        #: Records before these offsets are synced, were deleted, or were compacted.
        self.recovery_points = checkpoint.read_offsets(disk, RECOVERY_POINT_CHECKPOINT, report)
        self.log_start_offsets = checkpoint.read_offsets(disk, LOG_START_CHECKPOINT, report)
        self.cleaner_points = checkpoint.read_offsets(disk, CLEANER_CHECKPOINT, report)
        self._disk = disk

    def save_checkpoints(self, points: PartitionOffsets, starts: PartitionOffsets) -> None:
        checkpoint.write_offsets(self._disk, RECOVERY_POINT_CHECKPOINT, points)
        checkpoint.write_offsets(self._disk, LOG_START_CHECKPOINT, starts)
        self.recovery_points, self.log_start_offsets = dict(points), dict(starts)

    def save_cleaner_points(self, points: PartitionOffsets) -> None:
        checkpoint.write_offsets(self._disk, CLEANER_CHECKPOINT, points)
        self.cleaner_points = dict(points)

    def mark_clean_shutdown(self) -> None:
        content = {"version": CLEAN_SHUTDOWN_VERSION, "brokerEpoch": -1}
        self._disk.replace(CLEAN_SHUTDOWN_FILE, json.dumps(content, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryState:
    copies: CatalogCopies
    identity: MetaProperties | None = None  # from ``meta.properties``
    #: The topics that were found in partitions' folders; None: nothing is adopted.
    adopted: Mapping[str, TopicEntry] | None = None
    notes: tuple[str, ...] = ()


def open_log_directory(  # noqa: PLR0913, arguments of a start
    disk: Disk,
    *,
    node_id: int,
    new_id: Callable[[], bytes],
    report: Report,
    adopt: bool = False,
    called: str = "the folder",
) -> LogDirectory:
    """Opens a log directory of Rota, or an empty one; with ``adopt`` also Kafka's.

    :param new_id: returns 16 bytes, different at each call
    :param called: the name of the directory in error messages
    :raises InputError: the directory belongs to another program or another node
    :raises Unreachable: its catalog is lost
    """
    state = inspect_log_directory(disk, node_id=node_id, new_id=new_id, adopt=adopt, called=called)
    if state.copies.content is not None and state.adopted is None:
        catalog = Catalog.open(disk, state.copies, report)
    else:
        for path, problem in state.copies.problems.items():
            report(f"{path}: {problem}")
        identity = state.identity or _new_meta_properties(node_id, new_id)
        if state.adopted is None:
            catalog = Catalog.create(disk, identity)
        else:
            next_id = find_next_producer_id(disk)
            before = state.copies.content
            catalog = Catalog.create(disk, identity, state.adopted, next_id, before)
            for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_CHECKPOINT):
                disk.remove(f"{name}.copy")  # Kafka has written the checkpoints since
            for note in state.notes:
                report(note)
    _repair_meta_properties(disk, catalog.identity, report)
    clean = _was_clean_shutdown(disk, report)
    disk.remove(CLEAN_SHUTDOWN_FILE)
    disk.sync("")  # before any write: a loss of power must not bring the file back
    return LogDirectory(disk, catalog, clean=clean, report=report)


def inspect_log_directory(
    disk: Disk, *, node_id: int, new_id: Callable[[], bytes], adopt: bool, called: str
) -> DirectoryState:
    """Inspects a directory without writing. Raises errors like :func:`open_log_directory`."""
    copies = read_catalog_copies(disk)
    # a Kafka that used the directory last may have other topics than the catalog
    kafka_was_last = bool(
        KAFKA_CLEAN_SHUTDOWN.fullmatch(read_file(disk, CLEAN_SHUTDOWN_FILE) or b"")
    )
    if copies.content is not None and not kafka_was_last:
        _check_node_id(copies.content.identity, node_id, called)
        return DirectoryState(copies=copies)
    if copies.problems and not adopt:
        problems = "; ".join(f"{path}: {problem}" for path, problem in copies.problems.items())
        raise Unreachable(
            f"both copies of the catalogue of topics are damaged ({problems}): start with --adopt "
            "to make a new one from the partitions' folders; the topics' settings are lost then"
        )
    names = disk.list_names("")
    # only Rota keeps copies of checkpoints, and only Kafka a log of its metadata
    rotas = any(name.endswith(".copy") for name in names) and "__cluster_metadata-0" not in names
    catalog_lost = rotas or bool(copies.problems)
    kafkas = META_PROPERTIES_FILE in names and (kafka_was_last or not catalog_lost)
    partitions = list_partition_folders(disk)
    if not adopt:
        _refuse_foreign(names, called, kafkas=kafkas, partitions=bool(partitions))
        return DirectoryState(copies=copies)
    identity = _read_meta_properties(disk, new_id)
    if kafkas:
        _check_kafka_stopped(names, identity, called)
    elif not catalog_lost:
        _check_only_partitions(names, partitions, called)
    if identity is not None:
        _check_node_id(identity, node_id, called)
    known = {} if copies.content is None else copies.content.topics
    topics, notes = find_adoptable_topics(disk, new_id, known, kafkas=kafkas, called=called)
    return DirectoryState(copies=copies, identity=identity, adopted=topics, notes=tuple(notes))


def _check_node_id(identity: MetaProperties, node_id: int, called: str) -> None:
    if identity.node_id != node_id:
        raise InputError(f"node.id: {called} belongs to node {identity.node_id}, not {node_id}")


def _refuse_foreign(names: list[str], called: str, *, kafkas: bool, partitions: bool) -> None:
    if kafkas:
        raise InputError(
            f"{called} was last used by Kafka: stop that Kafka, then start with --adopt to take "
            "the folder over"
        )
    if partitions:
        raise InputError(
            f"{called} has partitions' folders, but no catalogue of Rota: start with --adopt to "
            "take them over"
        )
    if others := [repr(name) for name in names if name not in NEW_DIRECTORY_FILES]:
        listed = list_first_names(others)
        raise InputError(f"{called} does not belong to Rota, it has {listed}: choose an empty one")


def _check_kafka_stopped(names: list[str], identity: MetaProperties | None, called: str) -> None:
    """A directory that Kafka still writes, or could no longer use, must not change."""
    if identity is None:
        raise InputError(f"{called}: its {META_PROPERTIES_FILE} is not from a Kafka with KRaft")
    if CLEAN_SHUTDOWN_FILE not in names:
        raise InputError(
            f"{called} belongs to a Kafka that runs or was not stopped cleanly: stop it (start it "
            f"first, if it was killed), or {COPY_HINT}"
        )


def _check_only_partitions(names: list[str], partitions: list[str], called: str) -> None:
    known = NEW_DIRECTORY_FILES | KAFKA_FILES | set(partitions)
    others = [name for name in names if name not in known and not STRAY_FOLDER.fullmatch(name)]
    if others:
        raise InputError(
            f"{called} does not belong to Rota, it has {list_first_names([*map(repr, others)])}: "
            "adopt a folder that has only partitions' folders"
        )
    if not partitions:
        raise InputError(f"{called} has no partition's folder to adopt: start without --adopt")


def _new_meta_properties(node_id: int, new_id: Callable[[], bytes]) -> MetaProperties:
    cluster = uuid_to_text(new_id())
    while cluster.startswith("-"):  # tools would parse it as an option
        cluster = uuid_to_text(new_id())
    return MetaProperties(cluster_id=cluster, node_id=node_id, directory_id=uuid_to_text(new_id()))


def _read_meta_properties(
    disk: Disk, new_id: Callable[[], bytes] | None = None
) -> MetaProperties | None:
    """Returns None if the file is malformed. Before Kafka 3.7 it has no directory id."""
    data = read_file(disk, META_PROPERTIES_FILE)
    if data is None:
        return None
    lines = [
        line.partition("=")
        for line in data.decode("latin-1").split("\n")
        if not line.startswith("#")
    ]
    fields = {key.strip(" \t"): value.strip(" \t\r") for key, _, value in lines}
    directory = fields.get("directory.id") or (uuid_to_text(new_id()) if new_id else "")
    try:
        if fields["version"] != "1":
            return None
        return MetaProperties(
            cluster_id=fields["cluster.id"], node_id=int(fields["node.id"]), directory_id=directory
        )
    except (KeyError, ValueError):
        return None


def _repair_meta_properties(disk: Disk, identity: MetaProperties, report: Report) -> None:
    """Rewrites the file if it differs from the catalog, which has a checksum."""
    if _read_meta_properties(disk) != identity:
        if disk.size(META_PROPERTIES_FILE) is not None:
            report(f"{META_PROPERTIES_FILE}: it does not match the catalogue; rewritten")
        text = f"cluster.id={identity.cluster_id}\ndirectory.id={identity.directory_id}\n"
        text += f"node.id={identity.node_id}\nversion=1\n"
        disk.replace(META_PROPERTIES_FILE, text.encode())


def _was_clean_shutdown(disk: Disk, report: Report) -> bool:
    with suppress(ValueError, KeyError, TypeError, DiskError):
        data = read_file(disk, CLEAN_SHUTDOWN_FILE)
        if data is None:
            return False
        fields = json.loads(data)
        if fields["version"] == CLEAN_SHUTDOWN_VERSION and isinstance(fields["brokerEpoch"], int):
            return True
    report(f"{CLEAN_SHUTDOWN_FILE}: damaged; the logs are recovered as after a crash")
    return False


PARTITION_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<number>0|[1-9][0-9]{0,8})")
SEGMENT_FILE = re.compile(r"[0-9]{20}\.log")
METADATA_LOGS = frozenset({"__cluster_metadata"})  # Kafka's own metadata, beside the topics
#: Folders of deleted partitions, and of partitions that Kafka moves.
STRAY_FOLDER = re.compile(r".*-[0-9]+\.[0-9a-f]{32}-(delete|future|stray)")
MAX_PARTITIONS = 10_000  # highest adopted partition number: missing lower ones are made
PRODUCER_ID_GAP = 1 << 32  # distance from another broker's ids: its logs may not show all
KEEP_ALL_CONFIG = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
KEEP_ALL_NOTE = (
    "their settings are unknown, so no record is deleted or compacted (retention.ms=-1, "
    "retention.bytes=-1), except in __consumer_offsets, until you set them"
)
COMPACT_CONFIG = {"cleanup.policy": "compact"}

COPY_HINT = (
    "copy the partitions' folders into a new folder, without meta.properties, and adopt that"
)


@dataclass(slots=True)
class _TopicFolders:
    partitions: set[int] = field(default_factory=set)
    topic_ids: dict[bytes, str] = field(default_factory=dict)  # with its first folder

    @property
    def partition_count(self) -> int:
        return max(self.partitions) + 1

    @property
    def missing(self) -> list[int]:
        return [number for number in range(self.partition_count) if number not in self.partitions]


def list_partition_folders(disk: Disk) -> list[str]:
    found = []
    for name in disk.list_names(""):
        match = PARTITION_FOLDER.fullmatch(name)
        if match is not None and match["topic"] not in METADATA_LOGS:
            files = disk.list_names(name)
            if checkpoint.PARTITION_METADATA_FILE in files or any(
                SEGMENT_FILE.fullmatch(each) for each in files
            ):
                found.append(name)
    return found


def find_adoptable_topics(
    disk: Disk,
    new_id: Callable[[], bytes],
    known: Mapping[str, TopicEntry],
    *,
    kafkas: bool,
    called: str,
) -> tuple[dict[str, TopicEntry], list[str]]:
    """Finds the topics of a directory by its partitions' folders; returns also lines for the user.

    :param known: topics of an old catalog, which keep their settings
    :param kafkas: Kafka may get the directory back, so no folder or id may be made in it
    :param called: the name of the directory in error messages
    :raises InputError: the directory cannot be adopted
    """
    folders_by_topic: dict[str, _TopicFolders] = {}
    for name in list_partition_folders(disk):
        _check_message_format(disk, name)
        topic, _, number = name.rpartition("-")
        folders = folders_by_topic.setdefault(topic, _TopicFolders())
        folders.partitions.add(int(number))
        topic_id = checkpoint.read_topic_id(disk, name)
        if topic_id is not None:
            folders.topic_ids.setdefault(topic_id, name)
    topics, notes = dict[str, TopicEntry](), list[str]()
    for topic, folders in sorted(folders_by_topic.items()):
        _check_topic_folders(topic, folders, kafkas=kafkas, called=called)
        if folders.missing:
            missing = f"{len(folders.missing)} of {folders.partition_count} partitions"
            notes.append(f"topic {topic!r}: {missing} have no folder and are made without records")
        if not folders.topic_ids:
            notes.append(f"topic {topic!r}: its folders have no topic id; it gets a new one")
        topic_id = next(iter(folders.topic_ids), None) or new_id()
        old = known.get(topic)
        overrides = COMPACT_CONFIG if topic == CONSUMER_OFFSETS_TOPIC else KEEP_ALL_CONFIG
        if old is not None and old.id == topic_id:
            overrides = dict(old.overrides)
        topics[topic] = TopicEntry(
            name=topic, id=topic_id, partitions=folders.partition_count, overrides=overrides
        )
    notes.append(f"{len(topics)} topics were adopted; {KEEP_ALL_NOTE}")
    return topics, notes


def find_next_producer_id(disk: Disk) -> int:
    """Returns a producer id well above all ids in the partitions' snapshots."""
    highest = -1
    for folder in list_partition_folders(disk):
        for offset in producer_state.list_snapshot_offsets(disk, folder):
            path = producer_state.snapshot_path(folder, offset)
            with suppress(FormatError, DiskError):
                known = producer_state.unpack_snapshot(read_file(disk, path) or b"")
                highest = max([highest, *(producer_id for producer_id, _ in known)])
    return 0 if highest < 0 else (highest // PRODUCER_ID_GAP + 1) * PRODUCER_ID_GAP


def _check_message_format(disk: Disk, folder: str) -> None:
    """Recovery would treat batches of Kafka before 0.11 as damage, and remove them."""
    for name in disk.list_names(folder):
        if SEGMENT_FILE.fullmatch(name):
            magic = disk.read(f"{folder}/{name}", MAGIC_OFFSET, 1)
            if magic and magic[0] < MAGIC:
                raise InputError(
                    f"{folder}/{name}: Rota does not read message format {magic[0]} of Kafka "
                    "before 0.11; nothing was adopted"
                )


def _check_topic_folders(topic: str, folders: _TopicFolders, *, kafkas: bool, called: str) -> None:
    if folders.partition_count > MAX_PARTITIONS:
        raise InputError(
            f"{called}: {topic}-{folders.partition_count - 1} looks like a partition, but a topic "
            f"may have {MAX_PARTITIONS} at most: move that folder away"
        )
    if len(folders.topic_ids) > 1:
        (first_id, first), (second_id, second), *_ = folders.topic_ids.items()
        raise InputError(
            f"{called}: {first} and {second} belong to two topics, with the ids "
            f"{uuid_to_text(first_id)} and {uuid_to_text(second_id)}: move one folder away"
        )
    if not kafkas:
        return
    if folders.missing:
        raise InputError(
            f"{called}: partitions {list_first_names([*map(str, folders.missing)])} of topic "
            f"{topic!r} are in another folder or node of that Kafka: {COPY_HINT}"
        )
    if not folders.topic_ids:
        raise InputError(f"{called}: no folder of topic {topic!r} has the topic's id: {COPY_HINT}")
