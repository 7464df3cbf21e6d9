"""What the APIs about partitions have in common: finding one, and checking a leader's epoch."""

from __future__ import annotations

from base64 import urlsafe_b64encode

from rota.broker.part import ERROR, Parts
from rota.broker.topic import Topic
from rota.broker.topics import Topics
from rota.errors import Code, DiskError, Refused
from rota.storage.log import Log

NO_EPOCH = -1
"""A client that knows no epoch, or does not want it checked."""


def topic_of(topics: Topics, name: str) -> Topic:
    """The topic of a name.

    :raises Refused: there is none
    """
    found = topics.get(name)
    if found is None:
        raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return found


def topic_with_id(topics: Topics, topic_id: bytes) -> Topic:
    """The topic of an id (KIP-516).

    :raises Refused: there is none
    """
    found = topics.by_id(topic_id)
    if found is None:
        shown = urlsafe_b64encode(topic_id).decode().rstrip("=")
        raise Refused(Code.UNKNOWN_TOPIC_ID, f"there is no topic with the id {shown}")
    return found


def log_of(topic: Topic, partition: int) -> Log:
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


def check_epoch(log: Log, epoch: int) -> None:
    """The client and the broker must speak of the same leader (KIP-320).

    :raises Refused: they do not
    """
    current = log.epochs.latest
    if epoch in {NO_EPOCH, current}:
        return
    if epoch < current:
        raise Refused(Code.FENCED_LEADER_EPOCH, f"the leader's epoch is {current}, not {epoch}")
    raise Refused(Code.UNKNOWN_LEADER_EPOCH, f"the leader's epoch is {current}, not {epoch} yet")


def reason(parts: Parts, error: Refused | DiskError, what: str) -> tuple[Code, str]:
    """The code and text to answer with. What the machine has refused is said in the log too."""
    if isinstance(error, Refused):
        return error.code, str(error)
    parts.log(ERROR, f"{what}: {error}")
    return Code.KAFKA_STORAGE_ERROR, str(error)
