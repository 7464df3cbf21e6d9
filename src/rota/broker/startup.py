"""Starts a broker from its data folder: opens the folder, recovers its topics, loads its groups,
builds the node. :func:`open_topics` finishes deletions and creations that a crash interrupted, and
repairs ``partition.metadata`` files.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from logging import INFO, WARNING
from pathlib import Path
from secrets import token_bytes, token_urlsafe
from types import MappingProxyType

from rota.broker.config import ServerProperties
from rota.broker.dispatch import AnyHandler, HandlerContext
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
from rota.broker.storage import checkpoint, log_directory
from rota.broker.storage.catalog import TopicEntry
from rota.broker.storage.disk import RealDisk
from rota.broker.storage.log import EMPTY_PARTITION_FILES, Log
from rota.broker.timers import Timers
from rota.broker.topics import (
    Topic,
    Topics,
    deleted_folder_name,
    is_empty_partition,
    make_empty_log,
)
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.primitive import uuid_to_text
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
    node: BrokerNode
    disk: RealDisk
    lock: log_directory.DirectoryLock
    persistent: bool

    def close(self, now: int) -> None:
        """Shuts down cleanly, so that the next start need not scan the logs."""
        try:
            if self.persistent:
                self.node.context.topics.close(now)
        finally:
            self.disk.close()
            self.lock.release()


def all_handlers() -> dict[int, AnyHandler]:
    return {each.api: each for module in HANDLER_MODULES for each in module.HANDLERS}


def open_broker(  # noqa: PLR0913, arguments of a broker
    root: Path,
    configuration: ServerProperties,
    *,
    address: tuple[str, int],
    log: Callable[[int, str], None],
    now: int,
    passwords: Mapping[str, str] | None = None,
    mechanisms: tuple[Mechanism, ...] = tuple(Mechanism),
    adopt: bool = False,
    persistent: bool = True,
) -> BrokerInstance:
    """Opens or makes a data folder, and builds a broker on it.

    :param address: the advertised host and port
    :param log: receives a level of :mod:`logging` and a text
    :param passwords: by user; without any, clients do not log in
    :param adopt: also open a folder without a catalogue: Kafka's, or a copy of partitions
    :raises Unreachable: another process has the folder, or it cannot be read or written
    :raises InputError: the folder does not belong to Rota
    """
    config, report = configuration.broker, partial(log, WARNING)
    disk = RealDisk(root) if persistent else TemporaryDisk(root)
    described = f"the folder {root}"
    inspect = partial(
        log_directory.inspect_log_directory,
        disk,
        node_id=config.node_id,
        new_id=_new_uuid_bytes,
        adopt=adopt,
        called=described,
    )
    with ExitStack() as on_error:
        on_error.callback(disk.close)
        lock = log_directory.DirectoryLock(root, inspect)
        on_error.callback(lock.release)
        folder = log_directory.open_log_directory(
            disk,
            node_id=config.node_id,
            new_id=_new_uuid_bytes,
            report=report,
            adopt=adopt,
            called=described,
        )
        timers = Timers()
        storage = StorageContext(
            disk=disk,
            folder=folder,
            config=config,
            defaults=configuration.topic,
            timers=timers,
            new_id=_new_uuid_bytes,
            report=report,
        )
        topics = open_topics(storage, now)
        groups = GroupCoordinatorService(
            configuration.group, topics, timers, _new_member_id, log, node_id=config.node_id
        )
        groups.load(now)
        handlers = all_handlers()
        context = HandlerContext(
            config=config,
            topics=topics,
            groups=groups,
            timers=timers,
            log=log,
            address=address,
            advertised_versions={
                each.api: (
                    each.min_version if each.advertised_from is None else each.advertised_from,
                    each.max_version,
                )
                for each in handlers.values()
            },
            users=Users(passwords, partial(token_bytes, 16)) if passwords else None,
            mechanisms=mechanisms,
            new_nonce=partial(token_urlsafe, 24),
        )
        if len(topics) and not folder.clean_shutdown:
            log(WARNING, f"{described} was not closed cleanly: its logs were recovered")
        log(INFO, f"cluster {folder.cluster_id}: {len(topics)} topics in {described}")
        node = BrokerNode(context, handlers)
        on_error.pop_all()
    return BrokerInstance(node=node, disk=disk, lock=lock, persistent=persistent)


def _new_uuid_bytes() -> bytes:
    return uuid.uuid4().bytes


def _new_member_id() -> str:
    return str(uuid.uuid4())


class TemporaryDisk(RealDisk):
    """A disk for a folder that will not be used again: nothing has to survive a power loss."""

    def replace(self, path: str, data: Bytes) -> None:
        self.remove(path)
        self.append(path, data)

    def sync(self, path: str) -> None:
        """Does nothing."""

    def sync_all(self, paths: Sequence[str]) -> dict[str, DiskError]:
        return {}


_DELETED_FOLDER = re.compile(r".*\.[0-9a-f]{32}-delete")


def open_topics(context: StorageContext, now: int) -> Topics:
    names = frozenset(context.disk.list_names(""))
    deleted = _finish_deletions(context, names)
    names -= frozenset(deleted)
    entries = context.folder.catalog.topics.values()
    topics = Topics(context, [_open_topic(context, entry, names, now) for entry in entries])
    _remove_unfinished_creations(context, names)
    for topic in topics:
        for log in topic.logs:
            for producer_id, _ in log.producers:
                context.folder.catalog.skip_producer_ids_through(producer_id)
    # a log that was cut or made anew ends before its old recovery point: after a crash, the next
    # records there would seem to be synced.
    topics.log_manager.save_checkpoints()
    topics.log_manager.start(now)
    if deleted:
        topics.log_manager.schedule_removal(deleted, now)
    return topics


def _finish_deletions(context: StorageContext, names: frozenset[str]) -> list[str]:
    """Finishes deletions that a crash interrupted; returns the folders to be removed."""
    to_remove = sorted(name for name in names if _DELETED_FOLDER.fullmatch(name))
    for entry in tuple(context.folder.catalog.topics.values()):
        folders = {
            f"{entry.name}-{number}": deleted_folder_name(entry.name, number, entry.id)
            for number in range(entry.partitions)
        }
        if names.isdisjoint(folders.values()):
            continue
        context.report(f"topic {entry.name!r}: its interrupted deletion is finished")
        for name, deleted in folders.items():
            if name in names:
                context.disk.rename(name, deleted)
                to_remove.append(deleted)
        context.folder.catalog.change_topics(remove=[entry.name])
    if to_remove:
        context.report(f"folders of deleted topics are removed: {list_first_names(to_remove)}")
    return to_remove


def _open_topic(
    context: StorageContext, entry: TopicEntry, names: frozenset[str], now: int
) -> Topic:
    config = _load_topic_config(context, entry)
    folders = [f"{entry.name}-{number}" for number in range(entry.partitions)]
    unmade = frozenset(
        each
        for each in folders
        if each not in names or EMPTY_PARTITION_FILES.issuperset(context.disk.list_names(each))
    )
    known = context.folder.recovery_points
    lost = [
        folder
        for number, folder in enumerate(folders)
        if folder in unmade and (entry.name, number) in known
    ]
    if lost:
        context.report(f"these folders were lost and have no records now: {list_first_names(lost)}")
    return Topic(
        name=entry.name,
        id=entry.id,
        overrides=MappingProxyType(dict(entry.overrides)),
        config=config,
        logs=[
            make_empty_log(context, folder, entry.id, config, now)
            if folder in unmade
            else _open_log(context, entry, number, config, now)
            for number, folder in enumerate(folders)
        ],
    )


def _open_log(
    context: StorageContext, entry: TopicEntry, number: int, config: TopicConfig, now: int
) -> Log:
    name = f"{entry.name}-{number}"
    problem = _check_topic_id(context, name, entry.id)
    if problem is not None:
        context.report(f"the partition {name} is offline: {problem}")
        log = make_empty_log(context, name, entry.id, config, now)
        log.offline = problem
        return log
    return Log.open(
        context.disk,
        name,
        config,
        recovery_point=context.folder.recovery_points.get((entry.name, number), 0),
        log_start=context.folder.log_start_offsets.get((entry.name, number), 0),
        clean=context.folder.clean_shutdown,
        report=context.report,
        now=now,
        expiration=context.config.producer_expiration,
    )


def _check_topic_id(context: StorageContext, folder: str, topic_id: bytes) -> str | None:
    """Repairs ``partition.metadata``; returns the problem of another topic's folder."""
    stored = checkpoint.read_topic_id(context.disk, folder)
    if stored == topic_id:
        return None
    if stored is not None and not checkpoint.is_topic_id_damaged(context.disk, folder, topic_id):
        return (
            f"the folder {folder} belongs to another topic: its id is {uuid_to_text(stored)}, in "
            f"the catalogue it is {uuid_to_text(topic_id)}; put the right folder back and restart"
        )
    path = f"{folder}/{checkpoint.PARTITION_METADATA_FILE}"
    context.report(f"{path}: it does not have the topic's id; rewritten")
    context.disk.replace(path, checkpoint.pack_partition_metadata(topic_id))
    return None


def _load_topic_config(context: StorageContext, entry: TopicEntry) -> TopicConfig:
    """Returns a topic's config; invalid settings are left out and reported."""
    valid: dict[str, str] = {}
    for key, value in entry.overrides.items():
        try:
            parse_topic_config({**valid, key: value}, context.defaults)
            valid[key] = value
        except InputError as error:
            context.report(f"topic {entry.name!r}: a setting is ignored: {error}")
    return parse_topic_config(valid, context.defaults)


def _remove_unfinished_creations(context: StorageContext, names: frozenset[str]) -> None:
    """Removes empty folders of interrupted creations; reports other unknown folders."""
    topics = context.folder.catalog.topics
    for name in sorted(names):
        match = log_directory.PARTITION_FOLDER.fullmatch(name)
        if match is None or match["topic"] in log_directory.METADATA_LOGS:
            continue
        entry = topics.get(match["topic"])
        if entry is not None and int(match["number"]) < entry.partitions:
            continue
        if is_empty_partition(context.disk, name):
            context.disk.remove(name)
            context.report(f"{name}: removed; it is empty and belongs to no topic in the catalogue")
        elif any(file.endswith(".log") for file in context.disk.list_names(name)):
            text = "left alone; it has records but belongs to no topic in the catalogue"
            context.report(f"{name}: {text}")
