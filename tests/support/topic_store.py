"""Topics on a disk in memory, for tests that need no node."""

from __future__ import annotations

import itertools

from rota.broker.alarm import Alarms
from rota.broker.means import Means
from rota.broker.opening import open_topics
from rota.broker.topics import Topics
from rota.formats.batch import Record, encode
from rota.model.config import BrokerConfig, TopicConfig
from rota.storage.disk import Disk
from rota.storage.folder import open_folder
from tests.support.faulty_disk import FaultyDisk

NOW = 1_700_000_000_000


class Ids:
    """Ids that are never the same, and the same in every run."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def __call__(self) -> bytes:
        return next(self._count).to_bytes(16, "big")


class Store:
    """A data folder that is open; :meth:`restart` opens it anew."""

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        config: BrokerConfig | None = None,
        defaults: TopicConfig | None = None,
        ids: Ids | None = None,
        now: int = NOW,
    ) -> None:
        self.disk: Disk = FaultyDisk() if disk is None else disk
        self.config = BrokerConfig() if config is None else config
        self.defaults = TopicConfig() if defaults is None else defaults
        self.ids = Ids() if ids is None else ids
        self.now = now
        self.said: list[str] = []
        self.alarms = Alarms()
        self.folder = open_folder(
            self.disk, node_id=self.config.node_id, new_id=self.ids, report=self.said.append
        )
        means = Means(
            disk=self.disk,
            folder=self.folder,
            config=self.config,
            defaults=self.defaults,
            alarms=self.alarms,
            new_id=self.ids,
            report=self.said.append,
        )
        self.topics: Topics = open_topics(means, now)

    def restart(self, disk: Disk | None = None) -> Store:
        """As after a kill, or on another disk."""
        return Store(
            self.disk if disk is None else disk,
            config=self.config,
            defaults=self.defaults,
            ids=self.ids,
            now=self.now,
        )

    def stop(self) -> Store:
        """Stopped in good order, and started again."""
        self.topics.close(self.now)
        return self.restart()

    def wait(self, time: int) -> None:
        """So many milliseconds pass."""
        end = self.now + time
        while (at := self.alarms.next()) is not None and at <= end:
            self.now = at
            self.alarms.ring(at)
        self.now = end

    def write(self, name: str, partition: int, *values: bytes) -> None:
        """Appends records as one batch."""
        records = [Record(at, self.now, b"key", value) for at, value in enumerate(values)]
        self.topics.append(name, partition, encode(records), self.now)

    def folders(self) -> set[str]:
        """The partitions' folders, and those of deleted topics."""
        return {name for name in self.disk.names("") if self.disk.size(name) is None}

    def ends(self) -> dict[str, list[int]]:
        """Where each partition of each topic ends."""
        return {topic.name: [log.end for log in topic.logs] for topic in self.topics}
