"""The topics of a broker: the catalogue, an open log for each partition, and the watchers that wait
for new records.

A topic exists if it is in the catalogue. A partition gets its folder with its first record. Only
the last partition has a folder from the start, so that the folders still show the topics if the
catalogue is lost. A crash during a creation leaves an empty folder, which the next start removes.

Deleting a topic renames its folders to deleted names that contain the topic's id, then removes it
from the catalogue. A start that finds such a folder for a topic in the catalogue finishes the
deletion. The files are removed one at a time in the background.

One request may change thousands of topics, and saving the catalogue takes several syncs during
which no other client is served. So all changes are prepared first, and the catalogue is saved once.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from rota.broker.log_manager import LogManager, StorageContext
from rota.broker.storage.catalog import TopicEntry
from rota.broker.storage.checkpoint import create_partition_folder
from rota.broker.storage.disk import Disk
from rota.broker.storage.file_records import DecodeBudget
from rota.broker.storage.log import KeyValue, Log, LogAppendInfo
from rota.engine.formats.buffer import Bytes
from rota.engine.model.config import MAX_LONG, TopicConfig, parse_topic_config
from rota.engine.model.text import (
    CLUSTER_METADATA_TOPIC,
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    find_topic_name_problem,
    list_first_names,
    unify_collision_characters,
)
from rota.engine.model.topic import NO_LEADER_EPOCH
from rota.errors import Code, DiskError, InputError, Refused

PARTITION_FILE = re.compile(
    r"\d{20}\.(log|index|timeindex|snapshot|txnindex)"
    r"|(partition\.metadata|leader-epoch-checkpoint)(\.tmp)?"
)

#: Limit of partitions of a topic, and of partitions that one request creates; each is a folder.
MAX_TOPIC_PARTITIONS = 10_000
MAX_TOPICS_PER_REQUEST = 2_000  # most topics that a request creates: others wait meanwhile


@dataclass(slots=True, kw_only=True, eq=False)
class Topic:
    name: str
    id: bytes
    overrides: Mapping[str, str]  # its own configs: Kafka's keys, and unparsed values
    config: TopicConfig  # with the broker's defaults
    logs: list[Log]

    @property
    def partition_count(self) -> int:
        return len(self.logs)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class NewTopic(NamedTuple):
    name: str
    partition_count: int
    overrides: Mapping[str, str]


def check_partition_count(partitions: int) -> None:
    """Raises Refused if a topic cannot have this number of partitions."""
    if partitions < 1:
        raise Refused(Code.INVALID_PARTITIONS, f"a topic cannot have {partitions} partitions")
    if partitions > MAX_TOPIC_PARTITIONS:
        text = f"a topic has {MAX_TOPIC_PARTITIONS} partitions at most here, not {partitions}"
        raise Refused(Code.INVALID_PARTITIONS, text)


def check_partition_increase(topic: Topic, count: int) -> None:
    """Raises Refused if partitions cannot be added up to this number."""
    if topic.name == CONSUMER_OFFSETS_TOPIC:
        text = (
            f"{topic.name} keeps its {topic.partition_count} partitions: groups are hashed to them"
        )
        raise Refused(Code.INVALID_PARTITIONS, text)
    if count <= topic.partition_count:
        text = f"{topic.name!r} has {topic.partition_count} partitions, and cannot be given {count}"
        raise Refused(Code.INVALID_PARTITIONS, text)
    check_partition_count(count)


def make_empty_log(
    context: StorageContext, folder: str, topic_id: bytes, config: TopicConfig, now: int
) -> Log:
    return Log.create(
        context.disk,
        folder,
        topic_id,
        config,
        now=now,
        report=context.report,
        expiration=context.config.producer_expiration,
        make_files=False,
    )


def deleted_folder_name(name: str, partition: int, topic_id: bytes) -> str:
    end = f"-{partition}.{topic_id.hex()}-delete"
    return name[: 255 - len(end)] + end


def is_empty_partition(disk: Disk, folder: str) -> bool:
    """Returns whether this is a partition's folder with files, but without a record."""
    names = disk.list_names(folder)
    if not names or any(PARTITION_FILE.fullmatch(name) is None for name in names):
        return False
    return not any(disk.size(f"{folder}/{name}") for name in names if name.endswith(".log"))


class Topics:
    """All topics. :func:`rota.broker.startup.open_topics` opens them from a data folder."""

    def __init__(self, context: StorageContext, topics: Iterable[Topic]) -> None:
        self.defaults = context.defaults
        self._context = context
        self._disk = context.disk
        self._catalog = context.folder.catalog
        self.new_id = context.new_id
        self._report = context.report
        self._topics = {topic.name: topic for topic in sorted(topics, key=lambda each: each.name)}
        self._by_id = {topic.id: topic for topic in self._topics.values()}
        self._unified = {unify_collision_characters(name): name for name in self._topics}
        self._watchers: dict[tuple[str, int], list[Callable[[], None]]] = {}
        self._deletion_watchers: list[Callable[[Topic, int], None]] = []
        self.log_manager = LogManager(context, self._logs)

    @property
    def cluster_id(self) -> str:
        return self._context.folder.cluster_id

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def get_log(self, name: str, partition: int) -> Log | None:
        topic = self._topics.get(name)
        if topic is None or not 0 <= partition < len(topic.logs):
            return None
        return topic.logs[partition]

    def _logs(self) -> Iterator[tuple[str, int, Log]]:
        for topic in self._topics.values():
            for partition, log in enumerate(topic.logs):
                yield topic.name, partition, log

    def append(
        self, name: str, partition: int, batch: Bytes, now: int, budget: DecodeBudget | None = None
    ) -> LogAppendInfo:
        """Appends a producer's batch, and calls the watchers; raises Refused or DiskError."""
        log = self._existing_log(name, partition)
        appended = log.append(batch, now, budget)
        self._appended(name, partition, log, now)
        return appended

    def append_records(
        self, name: str, partition: int, pairs: Iterable[KeyValue], now: int
    ) -> LogAppendInfo:
        """Appends the broker's own records as one batch, as :meth:`append` does."""
        log = self._existing_log(name, partition)
        appended = log.append_records(pairs, now)
        self._appended(name, partition, log, now)
        return appended

    def delete_records_before(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Deletes the records before an offset of each partition; this survives a crash."""
        for (name, partition), offset in offsets.items():
            self._existing_log(name, partition).advance_log_start(offset)
        with refuse_disk_errors():
            self.log_manager.save_checkpoints()
        for name, partition in offsets:
            self._notify_watchers(name, partition)

    def watch(self, name: str, partition: int, watcher: Callable[[], None]) -> None:
        """Calls a function after each append, new log start, or deletion of the partition."""
        self._watchers.setdefault((name, partition), []).append(watcher)

    def unwatch(self, name: str, partition: int, watcher: Callable[[], None]) -> None:
        watchers = self._watchers.get((name, partition), [])
        if watcher in watchers:
            watchers.remove(watcher)
        if not watchers:
            self._watchers.pop((name, partition), None)

    def on_deleted(self, watcher: Callable[[Topic, int], None]) -> None:
        """Calls a function with each deleted topic and the time."""
        self._deletion_watchers.append(watcher)

    def _existing_log(self, name: str, partition: int) -> Log:
        log = self.get_log(name, partition)
        if log is None:
            text = f"there is no partition {name}-{partition}"
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
        return log

    def _appended(self, name: str, partition: int, log: Log, now: int) -> None:
        if log.config.flush_interval != MAX_LONG:
            self.log_manager.schedule_flush(name, partition, log, now)
        if (name, partition) in self._watchers:
            self._notify_watchers(name, partition)

    def _notify_watchers(self, name: str, partition: int) -> None:
        for watcher in tuple(self._watchers.get((name, partition), ())):
            watcher()

    def check_name(self, name: str) -> None:
        """Raises Refused if a topic of this name cannot be created."""
        if (problem := find_topic_name_problem(name)) is not None:
            raise Refused(Code.INVALID_TOPIC_EXCEPTION, problem)
        if name == CLUSTER_METADATA_TOPIC:
            raise Refused(Code.INVALID_REQUEST, f"a topic may not be called {name}")
        if name in self._topics:
            raise Refused(Code.TOPIC_ALREADY_EXISTS, f"there is a topic {name!r}")
        if (other := self._unified.get(unify_collision_characters(name))) is not None:
            text = f"{name!r} collides with the topic {other!r}: '.' and '_' count as the same"
            raise Refused(Code.INVALID_TOPIC_EXCEPTION, text)

    def check_settings(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Returns the config with these overrides; raises Refused if one is invalid."""
        try:
            return parse_topic_config(overrides, self.defaults)
        except InputError as error:
            raise Refused(Code.INVALID_CONFIG, str(error)) from error

    def create(self, name: str, partitions: int, overrides: Mapping[str, str], now: int) -> Topic:
        """Creates a topic; raises Refused for wrong arguments, or if the disk fails."""
        return single_outcome(self.create_all([NewTopic(name, partitions, overrides)], now))

    def create_all(self, topics: Iterable[NewTopic], now: int) -> list[Topic | Refused]:
        folders = self._folder_names()
        plans = [partial(self._prepare_creation, each, folders, now) for each in topics]
        outcomes = self._apply_changes(plans, self.log_manager.forget_checkpoints)
        self._topics = dict(sorted(self._topics.items()))
        return outcomes

    def _prepare_creation(self, new: NewTopic, folders: frozenset[str], now: int) -> TopicChange:
        name = new.name
        self.check_name(name)
        config = self.check_settings(new.overrides)
        check_partition_count(new.partition_count)
        overrides = MappingProxyType(dict(new.overrides))
        topic = Topic(name=name, id=self.new_id(), overrides=overrides, config=config, logs=[])
        increase = self._prepare_increase(topic, new.partition_count, folders, now)
        unified = unify_collision_characters(name)
        self._unified[unified] = name  # so that the next topic of the request cannot collide

        def undo() -> None:
            del self._unified[unified]
            increase.undo()

        def done() -> None:
            increase.done()
            self._topics[name] = self._by_id[topic.id] = topic

        return replace(increase, undo=undo, done=done)

    def create_partitions(self, name: str, count: int, now: int) -> Topic:
        """Adds partitions up to ``count``; raises Refused as :meth:`create` does."""
        return single_outcome(self.create_partitions_all({name: count}, now))

    def create_partitions_all(self, counts: Mapping[str, int], now: int) -> list[Topic | Refused]:
        folders = self._folder_names()

        def prepare(name: str, count: int) -> TopicChange:
            topic = find_topic(self, name)
            check_partition_increase(topic, count)
            return self._prepare_increase(topic, count, folders, now)

        return self._apply_changes([partial(prepare, *each) for each in counts.items()])

    def _prepare_increase(
        self, topic: Topic, count: int, folders: frozenset[str], now: int
    ) -> TopicChange:
        """Adds partitions up to ``count``; the folder of the last one shows their number."""
        logs = [
            make_empty_log(self._context, f"{topic.name}-{number}", topic.id, topic.config, now)
            for number in range(topic.partition_count, count)
        ]
        last = logs[-1].folder
        for log in logs:
            if log.folder in folders:
                self._remove_leftover_folder(log.folder)
        try:
            create_partition_folder(self._disk, last, topic.id)
        except DiskError:
            self._remove_empty(last)
            raise
        return TopicChange(
            topic=topic,
            entry=_catalog_entry(topic, count, topic.overrides),
            undo=lambda: self._remove_empty(last),
            done=lambda: topic.logs.extend(logs),
        )

    def configure_all(self, settings: Mapping[str, Mapping[str, str]]) -> list[Topic | Refused]:
        return self._apply_changes([partial(self._prepare_config, *e) for e in settings.items()])

    def _prepare_config(self, name: str, overrides: Mapping[str, str]) -> TopicChange:
        topic = find_topic(self, name)
        config = self.check_settings(overrides)

        def done() -> None:
            topic.overrides = MappingProxyType(dict(overrides))
            topic.config = config
            for log in topic.logs:
                log.config = config

        entry = _catalog_entry(topic, topic.partition_count, overrides)
        return TopicChange(topic=topic, entry=entry, undo=lambda: None, done=done)

    def delete(self, name: str, now: int) -> None:
        """Deletes a topic with its records; raises Refused if there is none, or the disk fails."""
        single_outcome(self.delete_all([name], now))

    def delete_all(self, names: Iterable[str], now: int) -> list[Topic | Refused]:
        deleted, folders = tuple(names), self._folder_names()
        self.log_manager.cleaner.remove_topics(frozenset(deleted))  # before folders are renamed
        plans = [partial(self._prepare_deletion, name, folders, now) for name in deleted]
        return self._apply_changes(plans)

    def _prepare_deletion(self, name: str, folders: frozenset[str], now: int) -> TopicChange:
        topic = find_topic(self, name)
        renamed = {
            log.folder: deleted_folder_name(name, number, topic.id)
            for number, log in enumerate(topic.logs)
            if log.offline is None and (log.has_files or log.folder in folders)
        }
        self._rename(renamed)

        def done() -> None:
            del self._topics[name], self._by_id[topic.id]
            self._unified.pop(unify_collision_characters(name), None)
            self.log_manager.forget_topic(name, topic.logs)
            self.log_manager.schedule_removal(renamed.values(), now)
            for watcher in self._deletion_watchers:
                watcher(topic, now)
            for number in range(topic.partition_count):
                self._notify_watchers(name, number)

        back = {deleted: folder for folder, deleted in renamed.items()}
        return TopicChange(topic=topic, entry=None, undo=lambda: self._rename(back), done=done)

    def _apply_changes(
        self,
        plans: Iterable[PrepareChange],
        save_first: Callable[[frozenset[str]], None] = lambda _: None,
    ) -> list[Topic | Refused]:
        """Prepares every change, calls ``save_first``, and saves the catalogue once."""
        prepared = [_try_change(plan) for plan in plans]
        changes = [each for each in prepared if isinstance(each, TopicChange)]

        def save() -> None:
            try:
                save_first(frozenset(change.topic.name for change in changes))
                self._catalog.change_topics(
                    put=[change.entry for change in changes if change.entry is not None],
                    remove=[change.topic.name for change in changes if change.entry is None],
                )
            except DiskError:
                for change in reversed(changes):
                    change.undo()
                raise

        refusal = _try_change(save) if changes else None
        if refusal is None:
            for change in changes:
                change.done()
        return [each if isinstance(each, Refused) else refusal or each.topic for each in prepared]

    def get_or_create_journal(self, now: int) -> Topic:
        if (topic := self._topics.get(CONSUMER_OFFSETS_TOPIC)) is not None:
            return topic
        config = self._context.config
        size = config.offsets_segment_bytes
        key = "segment.bytes" if size >= 1 << 20 else "internal.segment.bytes"
        overrides = {"cleanup.policy": "compact", "compression.type": "producer", key: str(size)}
        return self.create(CONSUMER_OFFSETS_TOPIC, config.offsets_partitions, overrides, now)

    def new_producer_id(self) -> int:
        """Returns an id that no other producer has; raises Refused if the disk fails."""
        with refuse_disk_errors():
            return self._catalog.new_producer_id()

    def _folder_names(self) -> frozenset[str]:
        with refuse_disk_errors():
            return frozenset(self._disk.list_names(""))

    def _remove_leftover_folder(self, folder: str) -> None:
        self._remove_empty(folder)
        if self._disk.list_names(folder):
            text = f"the folder {folder} is in the way and belongs to no topic: move it elsewhere"
            raise Refused(Code.KAFKA_STORAGE_ERROR, text)

    def _remove_empty(self, folder: str) -> None:
        if is_empty_partition(self._disk, folder):
            try:
                self._disk.remove(folder)
            except DiskError as error:
                self._report(f"{folder}: could not be removed: {error}")

    def _rename(self, folders: Mapping[str, str]) -> None:
        done: list[str] = []
        try:
            for folder, new in folders.items():
                self._disk.rename(folder, new)
                done.append(folder)
        except DiskError:
            for folder in done:
                self._disk.rename(folders[folder], folder)
            raise

    def close(self, now: int) -> None:
        """Syncs everything and marks a clean shutdown, so that the next start skips recovery."""
        self.log_manager.close()
        paths = {log.folder: log.paths_to_sync() for _, _, log in self._logs()}
        dirty = [path for unsynced in paths.values() for path in unsynced]
        bad = self._disk.sync_all([*dirty, ""]) if dirty else {}
        problem: DiskError | None = next(iter(bad.values()), None)
        for _, _, log in self._logs():
            problems = [bad[path] for path in (*paths[log.folder], "") if path in bad]
            try:
                if paths[log.folder]:
                    log.on_paths_synced(problems)
                log.close()
            except DiskError as error:  # close the other logs too
                problem = problem or error
        self.log_manager.save_checkpoints()
        if problem is not None:
            raise problem
        failed = [log.folder for _, _, log in self._logs() if log.failed is not None]
        if failed:  # the content of their files is unknown
            names = list_first_names(failed)
            self._report(f"the next start recovers all logs, because these have failed: {names}")
        else:
            self._context.folder.mark_clean_shutdown()


def single_outcome(outcomes: list[Topic | Refused]) -> Topic:
    (outcome,) = outcomes
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """A prepared change of a topic that is not in the catalogue yet."""

    topic: Topic
    entry: TopicEntry | None  # the new entry of the catalogue; None: the topic is removed from it
    undo: Callable[[], None]
    done: Callable[[], None]


#: Prepares a change. If it raises Refused or DiskError, it leaves nothing behind.
PrepareChange: TypeAlias = Callable[[], TopicChange]
T = TypeVar("T")


def _catalog_entry(topic: Topic, partitions: int, overrides: Mapping[str, str]) -> TopicEntry:
    return TopicEntry(name=topic.name, id=topic.id, partitions=partitions, overrides=overrides)


def _try_change(change: Callable[[], T]) -> T | Refused:
    try:
        with refuse_disk_errors():
            return change()
    except Refused as error:
        return error


@contextmanager
def refuse_disk_errors() -> Iterator[None]:
    try:
        yield
    except DiskError as error:
        raise Refused(Code.KAFKA_STORAGE_ERROR, str(error)) from error


def find_topic(topics: Topics, name: str, topic_id: bytes | None = None) -> Topic:
    """Returns a topic, by its id if that is given (KIP-516); raises Refused if there is none."""
    topic = topics.get(name) if topic_id is None else topics.get_by_id(topic_id)
    if topic is not None:
        return topic
    if topic_id is None:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    shown = urlsafe_b64encode(topic_id).decode().rstrip("=")
    raise Refused(Code.UNKNOWN_TOPIC_ID, f"there is no topic with the id {shown}")


def find_log(topic: Topic, partition: int) -> Log:
    """Returns the log of a partition; raises Refused if it does not exist or is offline."""
    if not 0 <= partition < len(topic.logs):
        text = f"topic {topic.name!r} has {len(topic.logs)} partitions, there is no {partition}"
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
    log = topic.logs[partition]
    log.check_online()
    return log


def check_leader_epoch(log: Log, epoch: int) -> None:
    """Raises Refused if the client has another leader epoch than the broker (KIP-320)."""
    current = log.epochs.latest
    if epoch in {NO_LEADER_EPOCH, current}:  # the client may want no check
        return
    if epoch < current:
        raise Refused(Code.FENCED_LEADER_EPOCH, f"the leader's epoch is {current}, not {epoch}")
    raise Refused(Code.UNKNOWN_LEADER_EPOCH, f"the leader's epoch is {current}, not {epoch} yet")
