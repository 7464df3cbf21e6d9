"""A topic, and what a partition's folder is called and has in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rota.broker.means import Means
from rota.errors import Code, Refused
from rota.model.config import TopicConfig
from rota.model.naming import INTERNAL, JOURNAL
from rota.storage.disk import Disk
from rota.storage.log import Log

FILES = re.compile(
    r"\d{20}\.(log|index|timeindex|snapshot|txnindex)"
    r"|(partition\.metadata|leader-epoch-checkpoint)(\.tmp)?"
)
"""What a partition's folder has."""
MOST_PARTITIONS = 10_000
"""A topic has no more, and one request makes no more; each is a folder of files."""
MOST_TOPICS = 2_000
"""One request makes no more topics: nobody else is served meanwhile."""


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


class Wanted(NamedTuple):
    """A topic that is to be made."""

    name: str
    partitions: int
    overrides: Mapping[str, str]


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
    check_count(count)


def empty_log(means: Means, folder: str, topic_id: bytes, config: TopicConfig, now: int) -> Log:
    """A partition's log without records."""
    return Log.empty(
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
