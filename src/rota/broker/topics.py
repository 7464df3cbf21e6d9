"""The topics of a broker: the catalogue, an open log for each partition, and who waits for them.

The catalogue says which topics there are; a folder alone is not one. A topic is made by the
catalogue, and a partition gets its folder with its first record; only the last one has it before,
so that the folders tell the topics if the catalogue is ever lost. A crash in between leaves an
empty folder that the next start clears away. A topic is deleted by giving its folders the name of
something deleted, the topic's id in it, then by the catalogue: a start that finds such a folder of
a topic still in the catalogue carries the deletion on. The files themselves are removed bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from rota.broker.change import Change, carry_out, stored
from rota.broker.housekeeping import Housekeeping
from rota.broker.means import Means
from rota.broker.topic import (
    Topic,
    Wanted,
    check_count,
    check_growth,
    deleted_name,
    empty_log,
    is_empty,
)
from rota.errors import Code, DiskError, InputError, Refused
from rota.formats.buffer import Bytes
from rota.model.config import LONG, TopicConfig
from rota.model.naming import FORBIDDEN, JOURNAL, misname, unified
from rota.model.setting import topic_config
from rota.model.topic import first_few
from rota.storage.allowance import Allowance
from rota.storage.catalog import Entry
from rota.storage.log import Appended, Log, Pair
from rota.storage.owner import name_folder

Watcher: TypeAlias = Callable[[], None]
"""Is told that a partition has something new: records, another start, or its end."""


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
        self.delete_before_all({(name, partition): offset})

    def delete_before_all(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """The same for many partitions, by topic and number."""
        for (name, partition), offset in offsets.items():
            self._known(name, partition).delete_before(offset)
        with stored():
            self.housekeeping.save_points()
        for name, partition in offsets:
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
        return _only(self.create_all([Wanted(name, partitions, overrides)], now))

    def create_all(self, wanted: Iterable[Wanted], now: int) -> list[Topic | Refused]:
        """Makes topics; gives each, or why it was not made."""
        there = self._there()
        plans = [partial(self._creation, each, there, now) for each in wanted]
        outcomes = carry_out(self._catalog, plans, self.housekeeping.forget_points)
        self._topics = dict(sorted(self._topics.items()))
        return outcomes

    def _creation(self, wanted: Wanted, there: frozenset[str], now: int) -> Change[Topic]:
        name = wanted.name
        self.check_name(name)
        config = self.check_settings(wanted.overrides)
        check_count(wanted.partitions)
        overrides = MappingProxyType(dict(wanted.overrides))
        topic = Topic(name=name, id=self.new_id(), overrides=overrides, config=config, logs=[])
        growth = self._growth(topic, wanted.partitions, there, now)
        self._unified[unified(name)] = name  # for the next one of the request, too

        def undo() -> None:
            del self._unified[unified(name)]
            growth.undo()

        def done() -> None:
            growth.done()
            self._topics[name] = self._by_id[topic.id] = topic

        return replace(growth, undo=undo, done=done)

    def grow(self, name: str, count: int, now: int) -> Topic:
        """Gives a topic more partitions, so that it has ``count``.

        :raises Refused: there is no such topic, it has as many or more, or the disk refuses
        """
        return _only(self.grow_all({name: count}, now))

    def grow_all(self, counts: Mapping[str, int], now: int) -> list[Topic | Refused]:
        """Gives topics more partitions; gives each topic, or why it has no more than before."""
        there = self._there()

        def growth(name: str, count: int) -> Change[Topic]:
            topic = self._of(name)
            check_growth(topic, count)
            return self._growth(topic, count, there, now)

        plans = [partial(growth, name, count) for name, count in counts.items()]
        return carry_out(self._catalog, plans, _nothing)

    def _growth(self, topic: Topic, count: int, there: frozenset[str], now: int) -> Change[Topic]:
        """Partitions up to this many; only the last one has a folder, to say how many there are."""
        numbers = range(topic.partitions, count)
        logs = [
            empty_log(self._means, f"{topic.name}-{number}", topic.id, topic.config, now)
            for number in numbers
        ]
        last = logs[-1].folder
        for log in logs:
            if log.folder in there:
                self._clear_way(log.folder)
        try:
            name_folder(self._disk, last, topic.id)
        except DiskError:
            self._remove_empty(last)
            raise
        return Change(
            topic=topic,
            name=topic.name,
            entry=Entry(name=topic.name, id=topic.id, partitions=count, overrides=topic.overrides),
            undo=lambda: self._remove_empty(last),
            done=lambda: topic.logs.extend(logs),
        )

    def configure(self, name: str, overrides: Mapping[str, str], now: int) -> Topic:
        """Gives a topic these settings in place of those it had of its own.

        :raises Refused: there is no such topic, a setting is wrong, or the disk refuses
        """
        return _only(self.configure_all({name: overrides}, now))

    def configure_all(
        self, settings: Mapping[str, Mapping[str, str]], now: int
    ) -> list[Topic | Refused]:
        """Gives topics other settings; gives each topic, or why it keeps its own."""
        plans = [partial(self._configuration, *each) for each in settings.items()]
        return carry_out(self._catalog, plans, _nothing)

    def _configuration(self, name: str, overrides: Mapping[str, str]) -> Change[Topic]:
        topic = self._of(name)
        config = self.check_settings(overrides)

        def done() -> None:
            topic.overrides = MappingProxyType(dict(overrides))
            topic.config = config
            for log in topic.logs:
                log.config = config

        entry = Entry(name=name, id=topic.id, partitions=topic.partitions, overrides=overrides)
        return Change(topic=topic, name=name, entry=entry, undo=lambda: None, done=done)

    def delete(self, name: str, now: int) -> None:
        """Deletes a topic with all its records.

        :raises Refused: there is no such topic, or the disk refuses
        """
        _only(self.delete_all([name], now))

    def delete_all(self, names: Iterable[str], now: int) -> list[Topic | Refused]:
        """Deletes topics with all their records; gives each, or why it is still there."""
        asked, there = tuple(names), self._there()
        self.housekeeping.stop_cleaning(frozenset(asked))
        plans = [partial(self._deletion, name, there, now) for name in asked]
        return carry_out(self._catalog, plans, _nothing)

    def _deletion(self, name: str, there: frozenset[str], now: int) -> Change[Topic]:
        topic = self._of(name)
        folders = {
            log.folder: deleted_name(name, number, topic.id)
            for number, log in enumerate(topic.logs)
            if log.offline is None and (log.made or log.folder in there)
        }
        self._rename(folders)

        def done() -> None:
            del self._topics[name], self._by_id[topic.id]
            self._unified.pop(unified(name), None)
            self.housekeeping.forget(name, topic.logs)
            self.housekeeping.remove_later(folders.values(), now)
            for deleted in self._deletion_watchers:
                deleted(topic, now)
            for number in range(topic.partitions):
                self._tell(name, number)

        back = {deleted: folder for folder, deleted in folders.items()}
        return Change(
            topic=topic, name=name, entry=None, undo=lambda: self._rename(back), done=done
        )

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
        with stored():
            return self._catalog.new_producer_id()

    def _of(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def _there(self) -> frozenset[str]:
        """The names in the data folder."""
        with stored():
            return frozenset(self._disk.names(""))

    def _clear_way(self, folder: str) -> None:
        """Removes an empty partition's folder that is of no topic."""
        self._remove_empty(folder)
        if self._disk.names(folder):
            raise Refused(
                Code.KAFKA_STORAGE_ERROR,
                f"the folder {folder} is in the way: it is not of a topic in the catalogue",
            )

    def _remove_empty(self, folder: str) -> None:
        if is_empty(self._disk, folder):
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

    def housekeep(self, now: int) -> None:
        """Does all that is done from time to time: retention, flushes, checkpoints, removals."""
        self.housekeeping.run(now)

    def close(self, now: int) -> None:
        """Stops clean: all is on the disk, and the next start need not look through the logs.

        :raises DiskError: it is not; the next start recovers
        """
        self.housekeeping.close()
        paths = {log.folder: log.unsynced() for _, _, log in self._logs()}
        dirty = [path for unsynced in paths.values() for path in unsynced]
        bad = self._disk.sync_all([*dirty, ""]) if dirty else {}
        problem: DiskError | None = next(iter(bad.values()), None)
        for _, _, log in self._logs():
            problems = [bad[path] for path in (*paths[log.folder], "") if path in bad]
            try:
                if paths[log.folder]:
                    log.flushed(problems)
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


def _only(outcomes: list[Topic | Refused]) -> Topic:
    (outcome,) = outcomes
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


def _nothing(_: frozenset[str]) -> None:
    """Nothing else is saved before the catalogue."""
