"""Starts a broker from its data folder: opens the folder, recovers its topics, loads its groups,
builds the node.

:func:`open_broker` is the entry. The second half finishes what a crash left half done: deletions,
creations, damaged ``partition.metadata`` files.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_bytes, token_urlsafe
from types import MappingProxyType

from rota.broker.config import ServerProperties
from rota.broker.dispatch import INFO, WARNING, AnyHandler, HandlerContext
from rota.broker.faults import FaultInjector
from rota.broker.groups import GroupCoordinatorService
from rota.broker.handlers import (
    committed_offsets,
    configs,
    consumer_groups,
    fetch,
    log_offsets,
    metadata,
    produce,
    sasl,
    topic_admin,
)
from rota.broker.log_manager import StorageContext
from rota.broker.node import BrokerNode
from rota.broker.storage import checkpoint
from rota.broker.storage.catalog import TopicEntry, uuid_to_text
from rota.broker.storage.disk import Disk, RealDisk
from rota.broker.storage.log import EMPTY_PARTITION_FILES, Log
from rota.broker.storage.log_directory import (
    METADATA_LOGS,
    PARTITION_FOLDER,
    DirectoryLock,
    inspect_log_directory,
    open_log_directory,
)
from rota.broker.timers import Timers
from rota.broker.topics import (
    Topic,
    Topics,
    deleted_folder_name,
    is_empty_partition,
    make_empty_log,
)
from rota.engine.formats.buffer import Bytes
from rota.engine.model.config import TopicConfig, parse_topic_config
from rota.engine.model.text import list_first_names
from rota.errors import DiskError, InputError
from rota.protocol.sasl import Mechanism, Users

HANDLER_MODULES = (
    metadata,
    sasl,
    topic_admin,
    configs,
    produce,
    fetch,
    log_offsets,
    consumer_groups,
    committed_offsets,
)


@dataclass(slots=True, kw_only=True)
class BrokerInstance:
    """A broker on this machine, without its sockets."""

    node: BrokerNode
    disk: RealDisk
    lock: DirectoryLock
    #: Its folder will be used again.
    persistent: bool

    def close(self, now: int) -> None:
        """Stops in good order, so that the next start need not scan the logs.

        :raises DiskError: that failed; the next start recovers
        """
        try:
            if self.persistent:
                self.node.context.topics.close(now)
        finally:
            self.disk.close()
            self.lock.release()


def all_handlers() -> dict[int, AnyHandler]:
    """Returns every handler by API key."""
    return {each.api: each for module in HANDLER_MODULES for each in module.HANDLERS}


def open_broker(  # noqa: PLR0913, what a broker is told
    root: Path,
    configuration: ServerProperties,
    *,
    address: tuple[str, int],
    log: Callable[[int, str], None],
    now: int,
    passwords: Mapping[str, str] | None = None,
    mechanisms: tuple[Mechanism, ...] = tuple(Mechanism),
    adopt: bool = False,
    lasting: bool = True,
) -> BrokerInstance:
    """Opens a data folder, or makes it, and puts a broker on it.

    :param address: what clients are told to connect to
    :param log: takes a level of :mod:`logging` and a text
    :param passwords: by user; without any, nobody has to log in
    :param adopt: take over a folder without a catalogue: a Kafka's, or a copy of partitions
    :raises Unreachable: another process has the folder, or it cannot be read or written
    :raises InputError: it is not Rota's
    """
    disk = RealDisk(root) if lasting else TemporaryDisk(root)
    called = f"the folder {root}"
    node_id = configuration.broker.node_id
    check = partial(
        inspect_log_directory,
        disk,
        node_id=node_id,
        new_id=_new_uuid_bytes,
        adopt=adopt,
        called=called,
    )
    try:
        lock = DirectoryLock(root, check)
    except BaseException:
        disk.close()
        raise
    try:
        node = _build_node(
            disk,
            configuration,
            address=address,
            log=log,
            now=now,
            users=Users(passwords, partial(token_bytes, 16)) if passwords else None,
            mechanisms=mechanisms,
            adopt=adopt,
            called=called,
        )
    except BaseException:
        disk.close()
        lock.release()
        raise
    return BrokerInstance(node=node, disk=disk, lock=lock, persistent=lasting)


def _build_node(  # noqa: PLR0913, as above
    disk: RealDisk,
    configuration: ServerProperties,
    *,
    address: tuple[str, int],
    log: Callable[[int, str], None],
    now: int,
    users: Users | None,
    mechanisms: tuple[Mechanism, ...],
    adopt: bool,
    called: str,
) -> BrokerNode:
    broker = configuration.broker
    folder = open_log_directory(
        disk,
        node_id=broker.node_id,
        new_id=_new_uuid_bytes,
        report=partial(log, WARNING),
        adopt=adopt,
        called=called,
    )
    alarms = Timers()
    topics = open_topics(
        StorageContext(
            disk=disk,
            folder=folder,
            config=broker,
            defaults=configuration.topic,
            timers=alarms,
            new_id=_new_uuid_bytes,
            report=partial(log, WARNING),
        ),
        now,
    )
    groups = GroupCoordinatorService(
        configuration.group, topics, alarms, _new_uuid_text, log, node_id=broker.node_id
    )
    groups.load(now)
    offered = all_handlers()
    parts = HandlerContext(
        config=broker,
        topics=topics,
        groups=groups,
        timers=alarms,
        log=log,
        address=address,
        advertised_versions=_advertised_versions(offered.values()),
        users=users,
        mechanisms=mechanisms,
        new_nonce=partial(token_urlsafe, 24),
    )
    if len(topics) and not folder.clean_shutdown:
        log(WARNING, f"{called} was not closed in good order: its logs were looked through")
    log(INFO, f"cluster {folder.cluster_id}: {len(topics)} topics in {called}")
    return BrokerNode(parts, offered, faults=FaultInjector(alarms), login_needed=users is not None)


def _advertised_versions(offered: Iterable[AnyHandler]) -> dict[int, tuple[int, int]]:
    """What clients are told of each API: the lowest and the highest version."""
    return {
        each.api: (
            each.min_version if each.advertised_from is None else each.advertised_from,
            each.max_version,
        )
        for each in offered
    }


def _new_uuid_bytes() -> bytes:
    return uuid.uuid4().bytes


def _new_uuid_text() -> str:
    return str(uuid.uuid4())


class TemporaryDisk(RealDisk):
    """A disk for a folder that will not be used again: nothing has to survive a power loss."""

    def replace(self, path: str, data: Bytes) -> None:
        """Gives a file new content."""
        self.remove(path)
        self.append(path, data)

    def sync(self, path: str) -> None:
        """There is no need."""

    def sync_all(self, paths: Sequence[str]) -> dict[str, DiskError]:
        """There is no need."""
        return {}


_DELETED_FOLDER = re.compile(r".*\.[0-9a-f]{32}-delete")


def open_topics(means: StorageContext, now: int) -> Topics:
    """Opens the logs of every topic in the catalogue.

    :raises DiskError: a log cannot be read
    """
    names = frozenset(means.disk.list_names(""))
    doomed = _finish_deletions(means, names)
    names -= frozenset(doomed)
    entries = means.folder.catalog.topics.values()
    topics = Topics(means, [_open_topic(means, entry, names, now) for entry in entries])
    _remove_unfinished_creations(means, names)
    for topic in topics:
        for log in topic.logs:
            for producer_id, _ in log.producers:
                means.folder.catalog.skip_producer_ids_through(producer_id)
    # A log that was cut or made anew ends before its old recovery point: what is written there next
    # would count as safe on the disk, and be trusted after a crash.
    topics.log_manager.save_checkpoints()
    topics.log_manager.start(now)
    if doomed:
        topics.log_manager.schedule_removal(doomed, now)
    return topics


def _finish_deletions(means: StorageContext, names: frozenset[str]) -> list[str]:
    """Finishes deletions that a crash interrupted; returns the folders to be removed."""
    doomed = sorted(name for name in names if _DELETED_FOLDER.fullmatch(name))
    for entry in tuple(means.folder.catalog.topics.values()):
        folders = {
            f"{entry.name}-{number}": deleted_folder_name(entry.name, number, entry.id)
            for number in range(entry.partitions)
        }
        if names.isdisjoint(folders.values()):
            continue
        means.report(f"topic {entry.name!r}: its deletion, which a stop cut short, is carried on")
        for name, deleted in folders.items():
            if name in names:
                means.disk.rename(name, deleted)
                doomed.append(deleted)
        means.folder.catalog.remove(entry.name)
    if doomed:
        means.report(f"folders of deleted topics are removed: {list_first_names(doomed)}")
    return doomed


def _open_topic(means: StorageContext, entry: TopicEntry, names: frozenset[str], now: int) -> Topic:
    config = _load_topic_config(entry, means.defaults, means.report)
    folders = [f"{entry.name}-{number}" for number in range(entry.partitions)]
    unmade = frozenset(
        each for each in folders if each not in names or _is_unused_folder(means, each)
    )
    known = means.folder.recovery_points
    lost = [
        folder
        for number, folder in enumerate(folders)
        if folder in unmade and (entry.name, number) in known
    ]
    if lost:
        means.report(
            f"folders are missing, and made anew without records: {list_first_names(lost)}"
        )
    return Topic(
        name=entry.name,
        id=entry.id,
        overrides=MappingProxyType(dict(entry.overrides)),
        config=config,
        logs=[
            make_empty_log(means, folder, entry.id, config, now)
            if folder in unmade
            else _open_log(means, entry, number, config, now)
            for number, folder in enumerate(folders)
        ],
    )


def _is_unused_folder(means: StorageContext, folder: str) -> bool:
    """True if a partition's folder is as it was before the first record."""
    return EMPTY_PARTITION_FILES.issuperset(means.disk.list_names(folder))


def _open_log(
    means: StorageContext, entry: TopicEntry, number: int, config: TopicConfig, now: int
) -> Log:
    where = (entry.name, number)
    name = f"{entry.name}-{number}"
    problem = _check_topic_id(means, name, entry.id)
    if problem is not None:
        means.report(f"the partition {name} is offline: {problem}")
        log = make_empty_log(means, name, entry.id, config, now)
        log.offline = problem
        return log
    return Log.open(
        means.disk,
        name,
        config,
        recovery_point=means.folder.recovery_points.get(where, 0),
        log_start=means.folder.log_start_offsets.get(where, 0),
        clean=means.folder.clean_shutdown,
        report=means.report,
        now=now,
        expiration=means.config.producer_expiration,
    )


def _check_topic_id(means: StorageContext, folder: str, topic_id: bytes) -> str | None:
    """Checks that a folder's ``partition.metadata`` names the topic, and repairs it; returns
    the problem if it names another topic.
    """
    said = checkpoint.read_topic_id(means.disk, folder)
    if said == topic_id:
        return None
    if said is not None and not checkpoint.is_topic_id_damaged(means.disk, folder, topic_id):
        return (
            f"the folder {folder} is of another topic, its id is {uuid_to_text(said)}, and not "
            f"{uuid_to_text(topic_id)} as in the catalogue: put back the right one, and start again"
        )
    path = f"{folder}/{checkpoint.PARTITION_METADATA_FILE}"
    means.report(f"{path}: it does not say the topic's id; it is written anew")
    means.disk.replace(path, checkpoint.pack_partition_metadata(topic_id))
    return None


def _load_topic_config(
    entry: TopicEntry, defaults: TopicConfig, report: Callable[[str], None]
) -> TopicConfig:
    """Returns a topic's config; settings that Rota does not know are left out and reported."""
    good: dict[str, str] = {}
    for key, value in entry.overrides.items():
        try:
            parse_topic_config({**good, key: value}, defaults)
            good[key] = value
        except InputError as error:
            report(f"topic {entry.name!r}: a setting is ignored: {error}")
    return parse_topic_config(good, defaults)


def _remove_unfinished_creations(means: StorageContext, names: frozenset[str]) -> None:
    """Removes empty folders that an interrupted creation left; reports folders with records
    that belong to no topic.
    """
    topics = means.folder.catalog.topics
    for name in sorted(names):
        found = PARTITION_FOLDER.fullmatch(name)
        if found is None or found["topic"] in METADATA_LOGS:
            continue
        entry = topics.get(found["topic"])
        if entry is not None and int(found["number"]) < entry.partitions:
            continue
        if is_empty_partition(means.disk, name):
            means.disk.remove(name)
            means.report(f"{name}: removed; it is empty, and of no topic in the catalogue")
        elif _has_records(means.disk, name):
            means.report(f"{name}: left alone; it has records, but is of no topic in the catalogue")


def _has_records(disk: Disk, folder: str) -> bool:
    return any(name.endswith(".log") for name in disk.list_names(folder))
