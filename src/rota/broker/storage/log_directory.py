"""The log directory: its lock, its owner, how its last use ended, and adopting Kafka's folders.

Beside the partitions' folders it has, all but the catalog as Kafka has them: ``.lock``,
``meta.properties``, the catalog of topics, offset checkpoints, and ``.kafka_cleanshutdown`` while
no process has the directory open and the last one shut down cleanly.

``--adopt`` takes over the topics of a directory without a valid catalog. There are three kinds:
the log directory of a Kafka, a mere copy of partitions' folders, and one of Rota's own that has
lost its catalog. Finding the topics writes nothing, and adopting them must lose nothing:

- a topic's settings are not in its folders, so nothing of it is deleted or compacted;
- a Kafka that gets its directory back must find nothing that it would refuse. It knows each topic's
  id, and where each partition is: a new folder would be a second one of a partition.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
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
    uuid_to_text,
)
from rota.broker.storage.disk import Disk
from rota.engine.formats.record_batch import MAGIC
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC, list_first_names
from rota.errors import DiskError, FormatError, InputError, Unreachable

LOCK_FILE = ".lock"

META_PROPERTIES_FILE = "meta.properties"

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"

CLEAN_SHUTDOWN_VERSION = 0

#: Rota's has no epoch: -1.
KAFKA_CLEAN_SHUTDOWN = re.compile(rb'\{"version":0,"brokerEpoch":[0-9]+\}')

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"

LOG_START_CHECKPOINT = "log-start-offset-checkpoint"

CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"

#: What a Kafka has beside its partitions' folders.
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

#: What a new folder may have: a disk's root, or one whose first start was cut short.
NEW_DIRECTORY_FILES = frozenset(
    {LOCK_FILE, "lost+found", f"{CATALOG_FILE}.tmp", f"{CATALOG_COPY_FILE}.tmp"}
)

MAX_NAMES_SHOWN = 3

#: ``struct flock`` of Linux.
FLOCK_STRUCT = struct.Struct("hhqqi4x")

#: Linux's number, for Pythons built without it: python-build-standalone, which uv installs.
F_OFD_SETLK = 37

Report = Callable[[str], None]


class DirectoryLock:
    """Locks a log directory for this process, until it is released or the process ends."""

    def __init__(self, root: Path, check: Callable[[], object] = lambda: None) -> None:
        """Makes the folder if there is none.

        :param check: raises if the folder may not be used; nothing is written in it before
        :raises DiskError: it cannot be written
        :raises Unreachable: another process has it, or it is a file
        """
        self._file = -1
        self._open_lock_file(root, os.O_RDWR)
        try:
            check()
            if self._file < 0:
                self._make_root(root)
                self._open_lock_file(root, os.O_RDWR | os.O_CREAT)
        except BaseException:
            if self._file >= 0:
                os.close(self._file)
            raise
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def _open_lock_file(self, root: Path, flags: int) -> None:
        """Takes the lock, if there is one, or if the flags ask for one to be made."""
        try:
            self._file = os.open(root / LOCK_FILE, flags | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            return
        except NotADirectoryError:
            file = next(each for each in (root, *root.parents) if each.exists())
            raise Unreachable(f"{file} is a file, not a folder") from None
        except OSError as error:
            raise _not_writable_error(root, error) from error
        try:
            _lock_file(self._file)
        except OSError:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            self._file = -1
            whose = f"process {holder}" if holder.isdigit() else "another process"
            raise Unreachable(f"the folder {root} is in use by {whose}") from None

    @staticmethod
    def _make_root(root: Path) -> None:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _not_writable_error(root, error) from error

    def fileno(self) -> int:
        """The descriptor that holds it; a process that inherits it holds the folder too."""
        return self._file

    def release(self) -> None:
        """Lets others have it."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = -1


def _not_writable_error(root: Path, error: OSError) -> DiskError:
    return DiskError(f"the folder {root} cannot be written: {error.strerror or error}")


def _lock_file(file: int) -> None:
    """A lock as Java's, which a Kafka heeds and takes, but of the open file and not the process.

    So a second broker in this process is kept out too. Other machines than Linux have none such.
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
        #: The last use has ended in good order.
        self.clean_shutdown = clean
        #: What is before these offsets was synced.
        self.recovery_points = checkpoint.read_offsets(disk, RECOVERY_POINT_CHECKPOINT, report)
        #: What is before these offsets was deleted.
        self.log_start_offsets = checkpoint.read_offsets(disk, LOG_START_CHECKPOINT, report)
        #: What is before these offsets was compacted.
        self.cleaner_points = checkpoint.read_offsets(disk, CLEANER_CHECKPOINT, report)
        self._disk = disk

    def save_checkpoints(
        self, points: Mapping[tuple[str, int], int], starts: Mapping[tuple[str, int], int]
    ) -> None:
        """Saves up to where the logs are synced, and where they begin."""
        checkpoint.write_offsets(self._disk, RECOVERY_POINT_CHECKPOINT, points)
        checkpoint.write_offsets(self._disk, LOG_START_CHECKPOINT, starts)
        self.recovery_points, self.log_start_offsets = dict(points), dict(starts)

    def save_cleaner_points(self, points: Mapping[tuple[str, int], int]) -> None:
        """Saves up to where the logs are compacted."""
        checkpoint.write_offsets(self._disk, CLEANER_CHECKPOINT, points)
        self.cleaner_points = dict(points)

    def mark_clean_shutdown(self) -> None:
        """All that the next start must know is on the disk."""
        content = {"version": CLEAN_SHUTDOWN_VERSION, "brokerEpoch": -1}
        self._disk.replace(CLEAN_SHUTDOWN_FILE, json.dumps(content, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryState:
    """What is in a directory before it is opened."""

    #: Of its catalogue.
    copies: CatalogCopies
    #: As the catalogue or ``meta.properties`` have it.
    identity: MetaProperties | None = None
    adoption: AdoptedTopics | None = None


def open_log_directory(  # noqa: PLR0913, what a start is told
    disk: Disk,
    *,
    node_id: int,
    new_id: Callable[[], bytes],
    report: Report,
    adopt: bool = False,
    called: str = "the folder",
) -> LogDirectory:
    """Opens a log directory of Rota, or an empty one; with ``adopt`` also one of a Kafka.

    :param new_id: returns 16 bytes, different at each call
    :param called: the name of the directory in error messages
    :raises InputError: the directory belongs to another program or another node
    :raises Unreachable: its catalog is lost
    """
    found = inspect_log_directory(disk, node_id=node_id, new_id=new_id, adopt=adopt, called=called)
    if found.copies.content is not None and found.adoption is None:
        catalog = Catalog.open(disk, found.copies, report)
    else:
        for path, problem in found.copies.problems.items():
            report(f"{path}: {problem}")
        identity = found.identity or _new_meta_properties(node_id, new_id)
        if found.adoption is None:
            catalog = Catalog.create(disk, identity)
        else:
            next_id = find_next_producer_id(disk)
            topics = found.adoption.topics
            catalog = Catalog.adopt(disk, identity, topics, next_id, found.copies.content)
            checkpoint.remove_copies(
                disk, RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, CLEANER_CHECKPOINT
            )
            for note in found.adoption.notes:
                report(note)
    _repair_meta_properties(disk, catalog.identity, report)
    clean = _was_clean_shutdown(disk, report)
    disk.remove(CLEAN_SHUTDOWN_FILE)
    disk.sync("")  # before anything is written: it must not come back with a loss of power
    return LogDirectory(disk, catalog, clean=clean, report=report)


def inspect_log_directory(
    disk: Disk, *, node_id: int, new_id: Callable[[], bytes], adopt: bool, called: str
) -> DirectoryState:
    """Inspects a directory, and refuses it if it may not be used like this; reads only."""
    copies = read_catalog_copies(disk)
    since = _was_stopped_by_kafka(disk)
    if copies.content is not None and not since:
        _check_node_id(copies.content.identity, node_id, called)
        return DirectoryState(copies=copies)
    if copies.problems and not adopt:
        told = "; ".join(f"{path}: {problem}" for path, problem in copies.problems.items())
        raise Unreachable(
            f"the catalogue of topics is damaged in both copies ({told}): start with --adopt "
            "to make a new one from the partitions' folders; topics' settings are lost then"
        )
    names = disk.list_names("")
    # only Rota keeps copies of checkpoints, and only a Kafka a log of its metadata
    ours = any(name.endswith(".copy") for name in names) and "__cluster_metadata-0" not in names
    lost = ours or bool(copies.problems)
    kafkas = META_PROPERTIES_FILE in names and (since or not lost)
    partitions = list_partition_folders(disk)
    if not adopt:
        _refuse_foreign(names, called, kafkas=kafkas, partitions=bool(partitions))
        return DirectoryState(copies=copies)
    identity = _read_meta_properties(disk, new_id)
    if kafkas:
        _check_kafka_stopped(names, identity, called)
    elif not lost:
        _check_only_partitions(names, partitions, called)
    if identity is not None:
        _check_node_id(identity, node_id, called)
    known = {} if copies.content is None else copies.content.topics
    found = find_adoptable_topics(disk, new_id, kafkas=kafkas, called=called, known=known)
    return DirectoryState(copies=copies, identity=identity, adoption=found)


def _check_node_id(identity: MetaProperties, node_id: int, called: str) -> None:
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
    if names := [name for name in names if name not in NEW_DIRECTORY_FILES]:
        raise InputError(
            f"{called} is not Rota's, it has {_quote_names(names)}: choose an empty one"
        )


def _check_kafka_stopped(names: list[str], identity: MetaProperties | None, called: str) -> None:
    """Nothing of a folder may change that a Kafka still writes to, or could not use any more."""
    if identity is None:
        raise InputError(
            f"{called}: its {META_PROPERTIES_FILE} is none of a Kafka with KRaft; it is left alone"
        )
    if CLEAN_SHUTDOWN_FILE not in names:
        raise InputError(
            f"{called} is of a Kafka that runs, or was not stopped in good order: stop it (start "
            "it first, if it was killed), or copy the partitions' folders into a new folder, "
            f"without {META_PROPERTIES_FILE}, and adopt that"
        )


def _check_only_partitions(names: list[str], partitions: list[str], called: str) -> None:
    """Nothing but partitions' folders, and what a Kafka keeps beside them."""
    known = NEW_DIRECTORY_FILES | KAFKA_FILES | set(partitions)
    rest = [name for name in names if name not in known and not STRAY_FOLDER.fullmatch(name)]
    if rest:
        raise InputError(
            f"{called} is not Rota's, it has {_quote_names(rest)}: adopt a folder that has "
            "nothing but "
            "partitions' folders"
        )
    if not partitions:
        raise InputError(f"{called} has no partition's folder to adopt: start without --adopt")


def _quote_names(names: list[str]) -> str:
    more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    return ", ".join(repr(name) for name in names[:MAX_NAMES_SHOWN]) + more


def _new_meta_properties(node_id: int, new_id: Callable[[], bytes]) -> MetaProperties:
    cluster = uuid_to_text(new_id())
    while cluster.startswith("-"):  # a tool would take it for an option
        cluster = uuid_to_text(new_id())
    return MetaProperties(cluster_id=cluster, node_id=node_id, directory_id=uuid_to_text(new_id()))


def _pack_meta_properties(identity: MetaProperties) -> bytes:
    lines = {
        "cluster.id": identity.cluster_id,
        "directory.id": identity.directory_id,
        "node.id": identity.node_id,
        "version": 1,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items()).encode()


def _read_meta_properties(
    disk: Disk, new_id: Callable[[], bytes] | None = None
) -> MetaProperties | None:
    """What the file says; a Kafka before 3.7 gave a folder no id, and gets a new one here."""
    size = disk.size(META_PROPERTIES_FILE)
    if size is None:
        return None
    text = disk.read(META_PROPERTIES_FILE, 0, size).decode("latin-1")
    lines = [line.partition("=") for line in text.split("\n") if not line.startswith("#")]
    said = {key.strip(" \t"): value.strip(" \t\r") for key, _, value in lines}
    directory = said.get("directory.id") or (uuid_to_text(new_id()) if new_id else "")
    try:
        if said["version"] != "1":
            return None
        return MetaProperties(
            cluster_id=said["cluster.id"],
            node_id=int(said["node.id"]),
            directory_id=directory,
        )
    except (KeyError, ValueError):
        return None


def _repair_meta_properties(disk: Disk, identity: MetaProperties, report: Report) -> None:
    """The catalogue has a checksum, so it is right where they differ."""
    if _read_meta_properties(disk) != identity:
        if disk.size(META_PROPERTIES_FILE) is not None:
            report(
                f"{META_PROPERTIES_FILE}: it does not say what the catalogue says; it is "
                "written anew"
            )
        disk.replace(META_PROPERTIES_FILE, _pack_meta_properties(identity))


def _was_stopped_by_kafka(disk: Disk) -> bool:
    """Was it a Kafka that has stopped last? Then it may have other topics than the catalogue."""
    size = disk.size(CLEAN_SHUTDOWN_FILE)
    return (
        size is not None
        and KAFKA_CLEAN_SHUTDOWN.fullmatch(disk.read(CLEAN_SHUTDOWN_FILE, 0, size)) is not None
    )


def _was_clean_shutdown(disk: Disk, report: Report) -> bool:
    size = disk.size(CLEAN_SHUTDOWN_FILE)
    if size is None:
        return False
    try:
        said = json.loads(disk.read(CLEAN_SHUTDOWN_FILE, 0, size))
        if said["version"] == CLEAN_SHUTDOWN_VERSION and isinstance(said["brokerEpoch"], int):
            return True
    except (ValueError, KeyError, TypeError, DiskError):
        pass
    report(f"{CLEAN_SHUTDOWN_FILE}: it is damaged; the logs are looked through as after a crash")
    return False


PARTITION_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<number>0|[1-9][0-9]{0,8})")

SEGMENT_FILE = re.compile(r"[0-9]{20}\.log")

#: Kafka's own log of its metadata, beside the topics.
METADATA_LOGS = frozenset({"__cluster_metadata"})

#: Partitions' folders that are none any more, or not yet.
STRAY_FOLDER = re.compile(r".*-[0-9]+\.[0-9a-f]{32}-(delete|future|stray)")

#: Of a topic: a folder's number is believed up to here, as those before it would be made.
MAX_PARTITIONS = 10_000

#: The same in every format.
MAGIC_AT = 16

#: How far above those of another broker the ids begin: it may have given more than is seen.
PRODUCER_ID_GAP = 1 << 32

#: Nothing is deleted, for neither time nor size asks for it.
KEEP_ALL_CONFIG = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}

KEEP_ALL_NOTE = (
    "their settings are not known, so nothing is deleted or compacted (retention.ms=-1, "
    "retention.bytes=-1), but for the groups' journal, until you set what shall hold"
)

#: Of the groups' journal, whatever a Kafka was set to: it is what the topic is made for.
COMPACT_CONFIG = {"cleanup.policy": "compact"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedTopics:
    """The topics that were found in partitions' folders."""

    topics: Mapping[str, TopicEntry]
    #: What the user is told.
    notes: tuple[str, ...]


@dataclass(slots=True)
class _TopicFolders:
    """The folders of a topic."""

    partitions: set[int] = field(default_factory=set)
    #: With the first folder that says it.
    topic_ids: dict[bytes, str] = field(default_factory=dict)

    @property
    def partition_count(self) -> int:
        return max(self.partitions) + 1

    @property
    def missing(self) -> list[int]:
        return [number for number in range(self.partition_count) if number not in self.partitions]


def list_partition_folders(disk: Disk) -> list[str]:
    """The folders of topics' partitions."""
    found = []
    for name in disk.list_names(""):
        parts = PARTITION_FOLDER.fullmatch(name)
        if parts is not None and parts["topic"] not in METADATA_LOGS:
            inside = disk.list_names(name)
            if checkpoint.PARTITION_METADATA_FILE in inside or any(
                SEGMENT_FILE.fullmatch(each) for each in inside
            ):
                found.append(name)
    return found


def find_adoptable_topics(
    disk: Disk,
    new_id: Callable[[], bytes],
    *,
    kafkas: bool,
    called: str,
    known: Mapping[str, TopicEntry] | None = None,
) -> AdoptedTopics:
    """The topics of a folder, by its partitions' folders.

    :param kafkas: a Kafka may get it back: it is refused if anything would have to be made in it
    :param called: what errors call the folder
    :param known: topics of an old catalogue: the same ones keep their settings
    :raises InputError: it cannot be adopted as it is
    """
    seen: dict[str, _TopicFolders] = {}
    for name in list_partition_folders(disk):
        _check_message_format(disk, name)
        topic, _, number = name.rpartition("-")
        found = seen.setdefault(topic, _TopicFolders())
        found.partitions.add(int(number))
        topic_id = checkpoint.read_topic_id(disk, name)
        if topic_id is not None:
            found.topic_ids.setdefault(topic_id, name)
    topics, notes = {}, list[str]()
    for topic, found in sorted(seen.items()):
        _check_topic_folders(topic, found, kafkas=kafkas, called=called)
        if found.missing:
            told = f"{len(found.missing)} of {found.partition_count} partitions have no folder"
            notes.append(f"topic {topic!r}: {told}, and are made without records")
        if not found.topic_ids:
            notes.append(f"topic {topic!r}: its folders do not say its id; it gets a new one")
        topic_id = next(iter(found.topic_ids), None) or new_id()
        old = (known or {}).get(topic)
        overrides = COMPACT_CONFIG if topic == CONSUMER_OFFSETS_TOPIC else KEEP_ALL_CONFIG
        if old is not None and old.id == topic_id:
            overrides = dict(old.overrides)
        topics[topic] = TopicEntry(
            name=topic, id=topic_id, partitions=found.partition_count, overrides=overrides
        )
    notes.append(f"{len(topics)} topics were adopted; {KEEP_ALL_NOTE}")
    return AdoptedTopics(topics=topics, notes=tuple(notes))


def find_next_producer_id(disk: Disk) -> int:
    """A producer id well above all ids in the partitions' snapshots."""
    highest = -1
    for folder in list_partition_folders(disk):
        for offset in producer_state.list_snapshot_offsets(disk, folder):
            path = producer_state.snapshot_path(folder, offset)
            with suppress(FormatError, DiskError):
                known = producer_state.unpack_snapshot(disk.read(path, 0, disk.size(path) or 0))
                highest = max([highest, *(producer_id for producer_id, _ in known)])
    return 0 if highest < 0 else (highest // PRODUCER_ID_GAP + 1) * PRODUCER_ID_GAP


def _check_message_format(disk: Disk, folder: str) -> None:
    """Recovery would take batches of Kafka before 0.11 for damage, and cut them off."""
    for name in disk.list_names(folder):
        if SEGMENT_FILE.fullmatch(name):
            magic = disk.read(f"{folder}/{name}", MAGIC_AT, 1)
            if magic and magic[0] < MAGIC:
                raise InputError(
                    f"{folder}/{name}: message format {magic[0]}, of Kafka before 0.11, is not "
                    "read by Rota; nothing was adopted"
                )


def _check_topic_folders(topic: str, found: _TopicFolders, *, kafkas: bool, called: str) -> None:
    if found.partition_count > MAX_PARTITIONS:
        raise InputError(
            f"{called}: {topic}-{found.partition_count - 1} is taken for a partition, and a "
            "topic has "
            f"{MAX_PARTITIONS} at most here: move it away"
        )
    if len(found.topic_ids) > 1:
        (one, here), (other, there), *_ = found.topic_ids.items()
        raise InputError(
            f"{called}: {here} and {there} are of two topics, their ids are "
            f"{uuid_to_text(one)} and "
            f"{uuid_to_text(other)}: move one away"
        )
    if not kafkas:
        return
    copy = "copy the partitions' folders into a new folder, without meta.properties, and adopt that"
    if found.missing:
        raise InputError(
            f"{called}: partitions {list_first_names([*map(str, found.missing)])} of topic "
            f"{topic!r} are "
            f"not in it, but in another folder or node of that Kafka: {copy}"
        )
    if not found.topic_ids:
        raise InputError(f"{called}: no folder of topic {topic!r} says the topic's id: {copy}")
