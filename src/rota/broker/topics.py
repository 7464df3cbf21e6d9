"""The topics of a broker: the catalogue, an open log for each partition, and the watchers that wait
for new records.

The catalogue says which topics exist; a folder alone is not a topic. Creating a topic means writing
it to the catalogue. A partition gets its folder with its first record. Only the last partition has
a folder from the start, so that the folders still show the topics if the catalogue is lost. A crash
in between leaves an empty folder, which the next start removes.

Deleting a topic renames its folders to deleted names that contain the topic's id, then removes it
from the catalogue. A start that finds such a folder for a topic that is still in the catalogue
finishes the deletion. The files are removed bit by bit.

One request may change thousands of topics, and saving the catalogue takes several syncs during
which nobody else is served. So each change is prepared by itself, and the catalogue is saved once
for all of them.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from rota.broker.log_manager import LogManager, StorageContext
from rota.broker.storage.catalog import Catalog, TopicEntry
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
from rota.errors import Code, DiskError, InputError, Refused

#: What a partition's folder has.
PARTITION_FILE = re.compile(
    r"\d{20}\.(log|index|timeindex|snapshot|txnindex)"
    r"|(partition\.metadata|leader-epoch-checkpoint)(\.tmp)?"
)

#: A topic has no more, and one request makes no more; each is a folder of files.
MAX_TOPIC_PARTITIONS = 10_000

#: One request makes no more topics: nobody else is served meanwhile.
MAX_TOPICS_PER_REQUEST = 2_000


@dataclass(slots=True, kw_only=True, eq=False)
class Topic:
    """A topic and the logs of its partitions, by partition number."""

    name: str
    id: bytes
    #: Its own settings: Kafka's keys, and values as they were given.
    overrides: Mapping[str, str]
    #: What holds for it.
    config: TopicConfig
    logs: list[Log]

    @property
    def partition_count(self) -> int:
        """How many it has."""
        return len(self.logs)

    @property
    def is_internal(self) -> bool:
        """It is the broker's own."""
        return self.name in INTERNAL_TOPICS


class NewTopic(NamedTuple):
    """A topic to be created."""

    name: str
    partition_count: int
    overrides: Mapping[str, str]


def check_partition_count(partitions: int) -> None:
    """Raises Refused if a topic cannot have so many partitions."""
    if partitions < 1:
        raise Refused(Code.INVALID_PARTITIONS, f"a topic cannot have {partitions} partitions")
    if partitions > MAX_TOPIC_PARTITIONS:
        raise Refused(
            Code.INVALID_PARTITIONS,
            f"a topic has {MAX_TOPIC_PARTITIONS} partitions at most here, not {partitions}",
        )


def check_partition_increase(topic: Topic, count: int) -> None:
    """Raises Refused if a topic cannot be given more partitions up to this many."""
    if topic.name == CONSUMER_OFFSETS_TOPIC:
        text = (
            f"{CONSUMER_OFFSETS_TOPIC} keeps its {topic.partition_count} partitions: they say "
            "where a group is"
        )
        raise Refused(Code.INVALID_PARTITIONS, text)
    if count <= topic.partition_count:
        raise Refused(
            Code.INVALID_PARTITIONS,
            f"{topic.name!r} has {topic.partition_count} partitions, and cannot be given {count}",
        )
    check_partition_count(count)


def make_empty_log(
    means: StorageContext, folder: str, topic_id: bytes, config: TopicConfig, now: int
) -> Log:
    """A partition's log without records."""
    return Log.create_without_files(
        means.disk,
        folder,
        topic_id,
        config,
        now=now,
        report=means.report,
        expiration=means.config.producer_expiration,
    )


def deleted_folder_name(name: str, partition: int, topic_id: bytes) -> str:
    """What a partition's folder is called once its topic is deleted, as in Kafka."""
    end = f"-{partition}.{topic_id.hex()}-delete"
    return name[: 255 - len(end)] + end


def is_empty_partition(disk: Disk, folder: str) -> bool:
    """Is it a partition's folder, with files, but without a record?"""
    names = disk.list_names(folder)
    if not names or any(PARTITION_FILE.fullmatch(name) is None for name in names):
        return False
    return not any(disk.size(f"{folder}/{name}") for name in names if name.endswith(".log"))


#: Is told that a partition has something new: records, another start, or its end.
PartitionWatcher: TypeAlias = Callable[[], None]


class Topics:
    """All topics. :func:`rota.broker.startup.open_topics` opens them from a data folder."""

    def __init__(self, means: StorageContext, topics: Iterable[Topic]) -> None:
        #: What holds for topics without settings of their own.
        self.defaults = means.defaults
        self._context = means
        self._disk = means.disk
        self._folder = means.folder
        self._catalog = means.folder.catalog
        self._config = means.config
        #: Gives an id for a topic that is to be made.
        self.new_id = means.new_id
        self._report = means.report
        self._topics = {topic.name: topic for topic in sorted(topics, key=lambda each: each.name)}
        self._by_id = {topic.id: topic for topic in self._topics.values()}
        self._unified = {unify_collision_characters(name): name for name in self._topics}
        self._watchers: dict[tuple[str, int], list[PartitionWatcher]] = {}
        self._deletion_watchers: list[Callable[[Topic, int], None]] = []
        self.log_manager = LogManager(means, self._logs)

    # What there is

    @property
    def cluster_id(self) -> str:
        """What clients know this broker's cluster by."""
        return self._folder.cluster_id

    def __iter__(self) -> Iterator[Topic]:
        """By name, in order."""
        return iter(self._topics.values())

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, name: str) -> Topic | None:
        """The topic of this name, if there is one."""
        return self._topics.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of this id, if there is one."""
        return self._by_id.get(topic_id)

    def get_log(self, name: str, partition: int) -> Log | None:
        """A partition's log, if there is such a partition."""
        topic = self._topics.get(name)
        if topic is None or not 0 <= partition < len(topic.logs):
            return None
        return topic.logs[partition]

    def _logs(self) -> Iterator[tuple[str, int, Log]]:
        for topic in self._topics.values():
            for partition, log in enumerate(topic.logs):
                yield topic.name, partition, log

    # Their records

    def append(
        self,
        name: str,
        partition: int,
        batch: Bytes,
        now: int,
        allowance: DecodeBudget | None = None,
    ) -> LogAppendInfo:
        """Stores a batch as a producer sent it, and tells those who wait for one.

        :param allowance: for looking at its records; by default that of the batch alone
        :raises Refused: the batch is wrong, or there is no such partition
        :raises DiskError: it could not be written; nothing of it remains
        """
        log = self._existing_log(name, partition)
        appended = log.append(batch, now, allowance)
        self._appended(name, partition, log, now)
        return appended

    def append_records(
        self, name: str, partition: int, pairs: Iterable[KeyValue], now: int
    ) -> LogAppendInfo:
        """Stores records of the broker's own as one batch; otherwise as :meth:`append`."""
        log = self._existing_log(name, partition)
        appended = log.append_records(pairs, now)
        self._appended(name, partition, log, now)
        return appended

    def delete_records_before(self, name: str, partition: int, offset: int, now: int) -> None:
        """Deletes the records before an offset; this survives a crash."""
        self.delete_records_before_all({(name, partition): offset})

    def delete_records_before_all(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """The same for many partitions, by topic and number."""
        for (name, partition), offset in offsets.items():
            self._existing_log(name, partition).advance_log_start(offset)
        with refuse_disk_errors():
            self.log_manager.save_checkpoints()
        for name, partition in offsets:
            self._notify_watchers(name, partition)

    def watch(self, name: str, partition: int, watcher: PartitionWatcher) -> None:
        """It is called when the partition gets records, another start, or is deleted."""
        self._watchers.setdefault((name, partition), []).append(watcher)

    def unwatch(self, name: str, partition: int, watcher: PartitionWatcher) -> None:
        """It is not called any more; nothing happens if it was not."""
        watchers = self._watchers.get((name, partition), [])
        if watcher in watchers:
            watchers.remove(watcher)
        if not watchers:
            self._watchers.pop((name, partition), None)

    def on_deleted(self, watcher: Callable[[Topic, int], None]) -> None:
        """It is called with every topic that was deleted, and the time."""
        self._deletion_watchers.append(watcher)

    def _existing_log(self, name: str, partition: int) -> Log:
        log = self.get_log(name, partition)
        if log is None:
            raise Refused(
                Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{partition}"
            )
        return log

    def _appended(self, name: str, partition: int, log: Log, now: int) -> None:
        if log.config.flush_interval != MAX_LONG:
            self.log_manager.schedule_flush(name, partition, log, now)
        if (name, partition) in self._watchers:
            self._notify_watchers(name, partition)

    def _notify_watchers(self, name: str, partition: int) -> None:
        for watcher in tuple(self._watchers.get((name, partition), ())):
            watcher()

    # Changing them

    def check_name(self, name: str) -> None:
        """Raises Refused if a topic of this name cannot be made."""
        if (problem := find_topic_name_problem(name)) is not None:
            raise Refused(Code.INVALID_TOPIC_EXCEPTION, problem)
        if name == CLUSTER_METADATA_TOPIC:
            raise Refused(Code.INVALID_REQUEST, f"a topic may not be called {name}")
        if name in self._topics:
            raise Refused(Code.TOPIC_ALREADY_EXISTS, f"there is a topic {name!r}")
        if (other := self._unified.get(unify_collision_characters(name))) is not None:
            raise Refused(
                Code.INVALID_TOPIC_EXCEPTION,
                f"{name!r} collides with the topic {other!r}: '.' and '_' count as the same",
            )

    def check_settings(self, overrides: Mapping[str, str]) -> TopicConfig:
        """What would hold for a topic with these settings; raises Refused if it cannot have one."""
        try:
            return parse_topic_config(overrides, self.defaults)
        except InputError as error:
            raise Refused(Code.INVALID_CONFIG, str(error)) from error

    def create(self, name: str, partitions: int, overrides: Mapping[str, str], now: int) -> Topic:
        """Makes a topic.

        :raises Refused: it cannot be called so, exists, has wrong settings, or the disk refuses
        """
        return _single_outcome(self.create_all([NewTopic(name, partitions, overrides)], now))

    def create_all(self, wanted: Iterable[NewTopic], now: int) -> list[Topic | Refused]:
        """Makes topics; gives each, or why it was not made."""
        there = self._folder_names()
        plans = [partial(self._prepare_creation, each, there, now) for each in wanted]
        outcomes = apply_changes(self._catalog, plans, self.log_manager.forget_checkpoints)
        self._topics = dict(sorted(self._topics.items()))
        return outcomes

    def _prepare_creation(
        self, wanted: NewTopic, there: frozenset[str], now: int
    ) -> TopicChange[Topic]:
        name = wanted.name
        self.check_name(name)
        config = self.check_settings(wanted.overrides)
        check_partition_count(wanted.partition_count)
        overrides = MappingProxyType(dict(wanted.overrides))
        topic = Topic(name=name, id=self.new_id(), overrides=overrides, config=config, logs=[])
        growth = self._prepare_increase(topic, wanted.partition_count, there, now)
        self._unified[unify_collision_characters(name)] = (
            name  # for the next one of the request, too
        )

        def undo() -> None:
            del self._unified[unify_collision_characters(name)]
            growth.undo()

        def done() -> None:
            growth.done()
            self._topics[name] = self._by_id[topic.id] = topic

        return replace(growth, undo=undo, done=done)

    def create_partitions(self, name: str, count: int, now: int) -> Topic:
        """Gives a topic more partitions, so that it has ``count``.

        :raises Refused: there is no such topic, it has as many or more, or the disk refuses
        """
        return _single_outcome(self.create_partitions_all({name: count}, now))

    def create_partitions_all(self, counts: Mapping[str, int], now: int) -> list[Topic | Refused]:
        """Gives topics more partitions; gives each topic, or why it has no more than before."""
        there = self._folder_names()

        def growth(name: str, count: int) -> TopicChange[Topic]:
            topic = self._existing_topic(name)
            check_partition_increase(topic, count)
            return self._prepare_increase(topic, count, there, now)

        plans = [partial(growth, name, count) for name, count in counts.items()]
        return apply_changes(self._catalog, plans, _save_nothing_else)

    def _prepare_increase(
        self, topic: Topic, count: int, there: frozenset[str], now: int
    ) -> TopicChange[Topic]:
        """Partitions up to this many; only the last one has a folder, to say how many there are."""
        numbers = range(topic.partition_count, count)
        logs = [
            make_empty_log(self._context, f"{topic.name}-{number}", topic.id, topic.config, now)
            for number in numbers
        ]
        last = logs[-1].folder
        for log in logs:
            if log.folder in there:
                self._remove_leftover_folder(log.folder)
        try:
            create_partition_folder(self._disk, last, topic.id)
        except DiskError:
            self._remove_empty(last)
            raise
        return TopicChange(
            topic=topic,
            name=topic.name,
            entry=TopicEntry(
                name=topic.name, id=topic.id, partitions=count, overrides=topic.overrides
            ),
            undo=lambda: self._remove_empty(last),
            done=lambda: topic.logs.extend(logs),
        )

    def configure(self, name: str, overrides: Mapping[str, str], now: int) -> Topic:
        """Gives a topic these settings in place of those it had of its own.

        :raises Refused: there is no such topic, a setting is wrong, or the disk refuses
        """
        return _single_outcome(self.configure_all({name: overrides}, now))

    def configure_all(
        self, settings: Mapping[str, Mapping[str, str]], now: int
    ) -> list[Topic | Refused]:
        """Gives topics other settings; gives each topic, or why it keeps its own."""
        plans = [partial(self._prepare_config, *each) for each in settings.items()]
        return apply_changes(self._catalog, plans, _save_nothing_else)

    def _prepare_config(self, name: str, overrides: Mapping[str, str]) -> TopicChange[Topic]:
        topic = self._existing_topic(name)
        config = self.check_settings(overrides)

        def done() -> None:
            topic.overrides = MappingProxyType(dict(overrides))
            topic.config = config
            for log in topic.logs:
                log.config = config

        entry = TopicEntry(
            name=name, id=topic.id, partitions=topic.partition_count, overrides=overrides
        )
        return TopicChange(topic=topic, name=name, entry=entry, undo=lambda: None, done=done)

    def delete(self, name: str, now: int) -> None:
        """Deletes a topic with all its records.

        :raises Refused: there is no such topic, or the disk refuses
        """
        _single_outcome(self.delete_all([name], now))

    def delete_all(self, names: Iterable[str], now: int) -> list[Topic | Refused]:
        """Deletes topics with all their records; gives each, or why it is still there."""
        asked, there = tuple(names), self._folder_names()
        self.log_manager.stop_compaction(frozenset(asked))
        plans = [partial(self._prepare_deletion, name, there, now) for name in asked]
        return apply_changes(self._catalog, plans, _save_nothing_else)

    def _prepare_deletion(self, name: str, there: frozenset[str], now: int) -> TopicChange[Topic]:
        topic = self._existing_topic(name)
        folders = {
            log.folder: deleted_folder_name(name, number, topic.id)
            for number, log in enumerate(topic.logs)
            if log.offline is None and (log.has_files or log.folder in there)
        }
        self._rename(folders)

        def done() -> None:
            del self._topics[name], self._by_id[topic.id]
            self._unified.pop(unify_collision_characters(name), None)
            self.log_manager.forget_topic(name, topic.logs)
            self.log_manager.schedule_removal(folders.values(), now)
            for deleted in self._deletion_watchers:
                deleted(topic, now)
            for number in range(topic.partition_count):
                self._notify_watchers(name, number)

        back = {deleted: folder for folder, deleted in folders.items()}
        return TopicChange(
            topic=topic, name=name, entry=None, undo=lambda: self._rename(back), done=done
        )

    def get_or_create_journal(self, now: int) -> Topic:
        """Returns the topic ``__consumer_offsets``; creates it on first use.

        :raises Refused: the disk refuses
        """
        if (topic := self._topics.get(CONSUMER_OFFSETS_TOPIC)) is not None:
            return topic
        size = self._config.offsets_segment_bytes
        key = "segment.bytes" if size >= 1 << 20 else "internal.segment.bytes"
        overrides = {"cleanup.policy": "compact", "compression.type": "producer", key: str(size)}
        return self.create(CONSUMER_OFFSETS_TOPIC, self._config.offsets_partitions, overrides, now)

    def new_producer_id(self) -> int:
        """One that no producer ever had.

        :raises Refused: the disk refuses
        """
        with refuse_disk_errors():
            return self._catalog.new_producer_id()

    def _existing_topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def _folder_names(self) -> frozenset[str]:
        """The names in the data folder."""
        with refuse_disk_errors():
            return frozenset(self._disk.list_names(""))

    def _remove_leftover_folder(self, folder: str) -> None:
        """Removes an empty partition's folder that is of no topic."""
        self._remove_empty(folder)
        if self._disk.list_names(folder):
            raise Refused(
                Code.KAFKA_STORAGE_ERROR,
                f"the folder {folder} is in the way: it is not of a topic in the catalogue",
            )

    def _remove_empty(self, folder: str) -> None:
        if is_empty_partition(self._disk, folder):
            try:
                self._disk.remove(folder)
            except DiskError as error:
                self._report(f"{folder}: could not be removed: {error}")

    def _rename(self, folders: Mapping[str, str]) -> None:
        """Gives folders other names, or none of them."""
        done: list[str] = []
        try:
            for folder, new in folders.items():
                self._disk.rename(folder, new)
                done.append(folder)
        except DiskError:
            for folder in done:
                self._disk.rename(folders[folder], folder)
            raise

    # The end

    def run_maintenance(self, now: int) -> None:
        """Does all that is done from time to time: retention, flushes, checkpoints, removals."""
        self.log_manager.run_all(now)

    def close(self, now: int) -> None:
        """Stops clean: everything is on the disk, and the next start need not scan the logs.

        :raises DiskError: that failed; the next start recovers
        """
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
            except DiskError as error:  # the others are closed all the same
                problem = problem or error
        self.log_manager.save_checkpoints()
        if problem is not None:
            raise problem
        failed = [log.folder for _, _, log in self._logs() if log.failed is not None]
        if failed:  # what such a log has on the disk is not known
            self._report(
                f"the next start reads the logs, for some have failed: {list_first_names(failed)}"
            )
        else:
            self._folder.mark_clean_shutdown()


def _single_outcome(outcomes: list[Topic | Refused]) -> Topic:
    (outcome,) = outcomes
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


def _save_nothing_else(_: frozenset[str]) -> None:
    """Nothing else is saved before the catalogue."""


TopicT = TypeVar("TopicT")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange(Generic[TopicT]):
    """A prepared change of a topic that the catalogue does not contain yet."""

    topic: TopicT
    name: str
    #: What the catalogue has from now on; None: it has no such topic any more.
    entry: TopicEntry | None
    undo: Callable[[], None]
    done: Callable[[], None]


#: Prepares a change; raises Refused or DiskError, and then has left nothing behind.
PrepareChange: TypeAlias = Callable[[], TopicChange[TopicT]]


def apply_changes(
    catalog: Catalog,
    plans: Iterable[PrepareChange[TopicT]],
    first: Callable[[frozenset[str]], None],
) -> list[TopicT | Refused]:
    """Prepares every change, saves the catalogue once, and returns for each the topic or why it was
    refused.

    :param first: saves what must be saved before the catalogue, for topics of these names
    """
    found = [_prepare_change(plan) for plan in plans]
    changes = [each for each in found if isinstance(each, TopicChange)]
    refusal = _save_changes(catalog, changes, first) if changes else None
    if refusal is None:
        for change in changes:
            change.done()
    return [each if isinstance(each, Refused) else refusal or each.topic for each in found]


def _prepare_change(plan: PrepareChange[TopicT]) -> TopicChange[TopicT] | Refused:
    try:
        with refuse_disk_errors():
            return plan()
    except Refused as error:
        return error


def _save_changes(
    catalog: Catalog, changes: list[TopicChange[TopicT]], first: Callable[[frozenset[str]], None]
) -> Refused | None:
    try:
        with refuse_disk_errors():
            try:
                first(frozenset(change.name for change in changes))
                catalog.change_topics(
                    put=[change.entry for change in changes if change.entry is not None],
                    remove=[change.name for change in changes if change.entry is None],
                )
            except DiskError:
                for change in reversed(changes):
                    change.undo()
                raise
    except Refused as error:
        return error
    return None


@contextmanager
def refuse_disk_errors() -> Iterator[None]:
    """Turns a DiskError into a Refused for the client."""
    try:
        yield
    except DiskError as error:
        raise Refused(Code.KAFKA_STORAGE_ERROR, str(error)) from error


#: A client that knows no epoch, or does not want it checked.
NO_LEADER_EPOCH = -1


def find_topic(topics: Topics, name: str) -> Topic:
    """The topic of a name.

    :raises Refused: there is none
    """
    found = topics.get(name)
    if found is None:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return found


def find_topic_by_id(topics: Topics, topic_id: bytes) -> Topic:
    """The topic of an id (KIP-516).

    :raises Refused: there is none
    """
    found = topics.get_by_id(topic_id)
    if found is None:
        shown = urlsafe_b64encode(topic_id).decode().rstrip("=")
        raise Refused(Code.UNKNOWN_TOPIC_ID, f"there is no topic with the id {shown}")
    return found


def find_log(topic: Topic, partition: int) -> Log:
    """The log of a topic's partition.

    :raises Refused: it has no such partition, or that is offline
    """
    if not 0 <= partition < len(topic.logs):
        raise Refused(
            Code.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic.name!r} has {len(topic.logs)} partitions, there is no {partition}",
        )
    log = topic.logs[partition]
    log.check_online()
    return log


def check_leader_epoch(log: Log, epoch: int) -> None:
    """Checks that the client and the broker have the same leader epoch (KIP-320).

    :raises Refused: they differ
    """
    current = log.epochs.latest
    if epoch in {NO_LEADER_EPOCH, current}:
        return
    if epoch < current:
        raise Refused(Code.FENCED_LEADER_EPOCH, f"the leader's epoch is {current}, not {epoch}")
    raise Refused(Code.UNKNOWN_LEADER_EPOCH, f"the leader's epoch is {current}, not {epoch} yet")
