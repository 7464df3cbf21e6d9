"""The topics of a broker: the catalogue, an open log for each partition, and who waits for them.

The catalogue says which topics there are; a folder alone is not one. So a topic is made by its
folders first and the catalogue last, and a crash in between leaves empty folders that the next
start clears away. It is deleted by giving its folders the name of something deleted, the topic's id
in it, then by the catalogue: a start that finds such a folder of a topic still in the catalogue
carries the deletion on. The files themselves are removed bit by bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from rota.broker.housekeeping import Housekeeping
from rota.broker.means import Means
from rota.errors import Code, DiskError, InputError, Refused
from rota.formats.buffer import Bytes
from rota.model.config import LONG, TopicConfig
from rota.model.naming import FORBIDDEN, INTERNAL, JOURNAL, misname, unified
from rota.model.setting import topic_config
from rota.model.topic import first_few
from rota.storage.allowance import Allowance
from rota.storage.catalog import Entry
from rota.storage.disk import Disk
from rota.storage.log import Appended, Log, Pair

Watcher: TypeAlias = Callable[[], None]
"""Is told that a partition has something new: records, another start, or its end."""
FILES = re.compile(
    r"\d{20}\.(log|index|timeindex|snapshot|txnindex)"
    r"|(partition\.metadata|leader-epoch-checkpoint)(\.tmp)?"
)
"""What a partition's folder has."""
MOST_PARTITIONS = 10_000
"""A topic has no more; each is a folder of files."""


@dataclass(slots=True, kw_only=True, eq=False)
class Topic:
    """A topic and the logs of its partitions, by their numbers."""

    name: str
    id: bytes
    overrides: Mapping[str, str]
    """Its own settings: Kafka's keys, and values as they were given."""
    config: TopicConfig
    """What holds for it."""
    logs: list[Log]

    @property
    def partitions(self) -> int:
        """How many it has."""
        return len(self.logs)

    @property
    def internal(self) -> bool:
        """It is the broker's own."""
        return self.name in INTERNAL


class Topics:
    """All topics. Use :func:`rota.broker.opening.open_topics` to get them from a data folder."""

    def __init__(self, means: Means, topics: Iterable[Topic]) -> None:
        self.defaults = means.defaults
        """What holds for topics without settings of their own."""
        self._means = means
        self._disk = means.disk
        self._folder = means.folder
        self._catalog = means.folder.catalog
        self._config = means.config
        self.new_id = means.new_id
        """Gives an id for a topic that is to be made."""
        self._report = means.report
        self._topics = {topic.name: topic for topic in sorted(topics, key=lambda each: each.name)}
        self._by_id = {topic.id: topic for topic in self._topics.values()}
        self._unified = {unified(name): name for name in self._topics}
        self._watchers: dict[tuple[str, int], list[Watcher]] = {}
        self._deletion_watchers: list[Callable[[Topic, int], None]] = []
        self.housekeeping = Housekeeping(means, self._logs)

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

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of this id, if there is one."""
        return self._by_id.get(topic_id)

    def log(self, name: str, partition: int) -> Log | None:
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
        allowance: Allowance | None = None,
    ) -> Appended:
        """Stores a batch as a producer sent it, and tells those who wait for one.

        :param allowance: for looking at its records; by default that of the batch alone
        :raises Refused: the batch is wrong, or there is no such partition
        :raises DiskError: it could not be written; nothing of it remains
        """
        log = self._known(name, partition)
        appended = log.append(batch, now, allowance)
        self._grown(name, partition, log, now)
        return appended

    def append_records(
        self, name: str, partition: int, pairs: Iterable[Pair], now: int
    ) -> Appended:
        """Stores records of the broker's own as one batch; otherwise as :meth:`append`."""
        log = self._known(name, partition)
        appended = log.append_records(pairs, now)
        self._grown(name, partition, log, now)
        return appended

    def delete_before(self, name: str, partition: int, offset: int, now: int) -> None:
        """The partition begins at this offset from now on; this outlives a crash."""
        log = self._known(name, partition)
        log.delete_before(offset)
        with _stored():
            self.housekeeping.save_points()
        self._tell(name, partition)

    def watch(self, name: str, partition: int, watcher: Watcher) -> None:
        """It is called when the partition gets records, another start, or is deleted."""
        self._watchers.setdefault((name, partition), []).append(watcher)

    def unwatch(self, name: str, partition: int, watcher: Watcher) -> None:
        """It is not called any more; nothing happens if it was not."""
        watchers = self._watchers.get((name, partition), [])
        if watcher in watchers:
            watchers.remove(watcher)
        if not watchers:
            self._watchers.pop((name, partition), None)

    def on_deleted(self, watcher: Callable[[Topic, int], None]) -> None:
        """It is called with every topic that was deleted, and the time."""
        self._deletion_watchers.append(watcher)

    def _known(self, name: str, partition: int) -> Log:
        log = self.log(name, partition)
        if log is None:
            raise Refused(
                Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{partition}"
            )
        return log

    def _grown(self, name: str, partition: int, log: Log, now: int) -> None:
        if log.config.flush_interval != LONG:
            self.housekeeping.flush_later(name, partition, log, now)
        if (name, partition) in self._watchers:
            self._tell(name, partition)

    def _tell(self, name: str, partition: int) -> None:
        for watcher in tuple(self._watchers.get((name, partition), ())):
            watcher()

    # Changing them

    def check_name(self, name: str) -> None:
        """Raises Refused if a topic of this name cannot be made."""
        if (problem := misname(name)) is not None:
            raise Refused(Code.INVALID_TOPIC_EXCEPTION, problem)
        if name == FORBIDDEN:
            raise Refused(Code.INVALID_REQUEST, f"a topic may not be called {name}")
        if name in self._topics:
            raise Refused(Code.TOPIC_ALREADY_EXISTS, f"there is a topic {name!r}")
        if (other := self._unified.get(unified(name))) is not None:
            raise Refused(
                Code.INVALID_TOPIC_EXCEPTION,
                f"{name!r} collides with the topic {other!r}: '.' and '_' count as the same",
            )

    def check_settings(self, overrides: Mapping[str, str]) -> TopicConfig:
        """What would hold for a topic with these settings; raises Refused if it cannot have one."""
        try:
            return topic_config(overrides, self.defaults)
        except InputError as error:
            raise Refused(Code.INVALID_CONFIG, str(error)) from error

    def create(self, name: str, partitions: int, overrides: Mapping[str, str], now: int) -> Topic:
        """Makes a topic.

        :raises Refused: it cannot be called so, exists, has wrong settings, or the disk refuses
        """
        self.check_name(name)
        config = self.check_settings(overrides)
        check_count(partitions)
        topic_id = self.new_id()
        topic = Topic(
            name=name,
            id=topic_id,
            overrides=MappingProxyType(dict(overrides)),
            config=config,
            logs=[],
        )
        self._extend(topic, partitions, now)
        self._topics = dict(sorted({**self._topics, name: topic}.items()))
        self._by_id[topic_id] = topic
        self._unified[unified(name)] = name
        return topic

    def grow(self, name: str, count: int, now: int) -> Topic:
        """Gives a topic more partitions, so that it has ``count``.

        :raises Refused: there is no such topic, it has as many or more, or the disk refuses
        """
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        check_growth(topic, count)
        self._extend(topic, count, now)
        return topic

    def configure(self, name: str, overrides: Mapping[str, str], now: int) -> Topic:
        """Gives a topic these settings in place of those it had of its own.

        :raises Refused: there is no such topic, a setting is wrong, or the disk refuses
        """
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        config = self.check_settings(overrides)
        with _stored():
            self._catalog.put(
                Entry(name=name, id=topic.id, partitions=topic.partitions, overrides=overrides)
            )
        topic.overrides = MappingProxyType(dict(overrides))
        topic.config = config
        for log in topic.logs:
            log.config = config
        return topic

    def delete(self, name: str, now: int) -> None:
        """Deletes a topic with all its records.

        :raises Refused: there is no such topic, or the disk refuses
        """
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        folders = {
            f"{name}-{number}": deleted_name(name, number, topic.id)
            for number in range(topic.partitions)
        }
        self.housekeeping.stop_cleaning(name)
        with _stored():
            self._take_out(name, folders)
        del self._topics[name], self._by_id[topic.id]
        self._unified.pop(unified(name), None)
        self.housekeeping.forget(name, topic.logs)
        self.housekeeping.remove_later(folders.values(), now)
        for deleted in self._deletion_watchers:
            deleted(topic, now)
        for number in range(topic.partitions):
            self._tell(name, number)

    def journal(self, now: int) -> Topic:
        """The topic in which groups are kept; it is made on first need.

        :raises Refused: the disk refuses
        """
        if (topic := self._topics.get(JOURNAL)) is not None:
            return topic
        size = self._config.offsets_segment_bytes
        key = "segment.bytes" if size >= 1 << 20 else "internal.segment.bytes"
        overrides = {"cleanup.policy": "compact", "compression.type": "producer", key: str(size)}
        return self.create(JOURNAL, self._config.offsets_partitions, overrides, now)

    def new_producer_id(self) -> int:
        """One that no producer ever had.

        :raises Refused: the disk refuses
        """
        with _stored():
            return self._catalog.new_producer_id()

    def _extend(self, topic: Topic, count: int, now: int) -> None:
        """Makes the folders, then saves the catalogue; if that fails, nothing is left of it."""
        made: list[Log] = []
        with _stored():
            try:
                if not topic.logs:
                    self.housekeeping.forget_points(topic.name)
                made.extend(self._make(topic, each, now) for each in range(topic.partitions, count))
                self._catalog.put(
                    Entry(
                        name=topic.name,
                        id=topic.id,
                        partitions=count,
                        overrides=topic.overrides,
                    )
                )
            except (DiskError, Refused):
                for number in range(topic.partitions, topic.partitions + len(made) + 1):
                    self._remove_empty(f"{topic.name}-{number}")
                raise
        topic.logs.extend(made)

    def _make(self, topic: Topic, number: int, now: int) -> Log:
        folder = f"{topic.name}-{number}"
        self._remove_empty(folder)
        if self._disk.names(folder):
            raise Refused(
                Code.KAFKA_STORAGE_ERROR,
                f"the folder {folder} is in the way: it is not of a topic in the catalogue",
            )
        return make_log(self._means, folder, topic.id, topic.config, now)

    def _remove_empty(self, folder: str) -> None:
        if is_empty(self._disk, folder):
            try:
                self._disk.remove(folder)
            except DiskError as error:
                self._report(f"{folder}: could not be removed: {error}")

    def _take_out(self, name: str, folders: Mapping[str, str]) -> None:
        """Renames a topic's folders, then saves the catalogue; if that fails, all is as before."""
        done: list[str] = []
        try:
            for folder, deleted in folders.items():
                self._disk.rename(folder, deleted)
                done.append(folder)
            self._catalog.remove(name)
        except DiskError:
            for folder in done:
                self._disk.rename(folders[folder], folder)
            raise

    # The end

    def housekeep(self, now: int) -> None:
        """Does all that is done from time to time: retention, flushes, checkpoints, removals."""
        self.housekeeping.run(now)

    def close(self, now: int) -> None:
        """Stops clean: all is on the disk, and the next start need not look through the logs.

        :raises DiskError: it is not; the next start recovers
        """
        self.housekeeping.close()
        problem: DiskError | None = None
        for _, _, log in self._logs():
            try:
                log.close()
            except DiskError as error:  # the others are closed all the same
                problem = problem or error
        self.housekeeping.save_points()
        if problem is not None:
            raise problem
        failed = [log.folder for _, _, log in self._logs() if log.failed is not None]
        if failed:  # what such a log has on the disk is not known
            self._report(
                f"the next start reads the logs, for some have failed: {first_few(failed)}"
            )
        else:
            self._folder.mark_clean()


def check_count(partitions: int) -> None:
    """Raises Refused if a topic cannot have so many partitions."""
    if partitions < 1:
        raise Refused(Code.INVALID_PARTITIONS, f"a topic cannot have {partitions} partitions")
    if partitions > MOST_PARTITIONS:
        raise Refused(
            Code.INVALID_PARTITIONS,
            f"a topic has {MOST_PARTITIONS} partitions at most here, not {partitions}",
        )


def check_growth(topic: Topic, count: int) -> None:
    """Raises Refused if a topic cannot be given more partitions up to this many."""
    if topic.name == JOURNAL:
        text = f"{JOURNAL} keeps its {topic.partitions} partitions: they say where a group is"
        raise Refused(Code.INVALID_PARTITIONS, text)
    if count <= topic.partitions:
        raise Refused(
            Code.INVALID_PARTITIONS,
            f"{topic.name!r} has {topic.partitions} partitions, and cannot be given {count}",
        )
    if topic.name == JOURNAL:  # a group's partition is its hash by their number
        raise Refused(
            Code.INVALID_PARTITIONS,
            f"{topic.name!r} keeps its {topic.partitions} partitions: with more of them, groups "
            "would lose their offsets",
        )
    check_count(count)


def make_log(means: Means, folder: str, topic_id: bytes, config: TopicConfig, now: int) -> Log:
    """A partition's folder, and its log without records."""
    return Log.create(
        means.disk,
        folder,
        topic_id,
        config,
        now=now,
        report=means.report,
        expiration=means.config.producer_expiration,
    )


def deleted_name(name: str, partition: int, topic_id: bytes) -> str:
    """What a partition's folder is called once its topic is deleted, as in Kafka."""
    end = f"-{partition}.{topic_id.hex()}-delete"
    return name[: 255 - len(end)] + end


def is_empty(disk: Disk, folder: str) -> bool:
    """Is it a partition's folder, with files, but without a record?"""
    names = disk.names(folder)
    if not names or any(FILES.fullmatch(name) is None for name in names):
        return False
    return not any(disk.size(f"{folder}/{name}") for name in names if name.endswith(".log"))


@contextmanager
def _stored() -> Iterator[None]:
    """What the disk refuses is refused to the client."""
    try:
        yield
    except DiskError as error:
        raise Refused(Code.KAFKA_STORAGE_ERROR, str(error)) from error
