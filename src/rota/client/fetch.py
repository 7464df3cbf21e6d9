"""Fetch requests, and what comes back of each partition, still as bytes.

Requests open no fetch session (KIP-227): each names all its partitions, so that it depends on none
before it and several may be on their way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rota.model.client import ReadConfig
from rota.model.offset import NO_EPOCH
from rota.model.topic import TopicPartition
from rota.wire.message import NO_ID, FetchRequest, Message

LOWEST = 4
"""The lowest version that is spoken: the first with record batches of today's format."""
NAMES_UPTO = 12
"""The highest version in which topics are named; from the next on they have ids (KIP-516)."""
NO_SESSION, FULL = 0, -1
NO_REPLICA = -1
NOTHING = memoryview(b"")


class Wanted(NamedTuple):
    """What to ask for of a partition."""

    partition: TopicPartition
    topic_id: bytes
    """``NO_ID`` where the broker's metadata have none."""
    offset: int
    leader_epoch: int = NO_EPOCH
    """The leader's, as the client knows it: an older or newer leader refuses (KIP-320)."""
    last_epoch: int = NO_EPOCH
    """That of the last record before the offset: the leader says where its log parts from it
    (KIP-595). Kafka's own consumers ask by OffsetForLeaderEpoch instead, and leave this out.
    """
    max_bytes: int | None = None
    """``max.partition.fetch.bytes``, if not the one that is set."""


class Fetched(NamedTuple):
    """What came back of a partition."""

    partition: TopicPartition
    code: int
    """An error's; 0 is none."""
    fetch_offset: int
    """What was asked for."""
    records: memoryview
    """Record batches: of the answer's frame, which stays in memory as long as this."""
    high_watermark: int
    last_stable: int
    """Up to here transactions are decided; -1: not told."""
    log_start: int
    """The first offset there is; -1: not told."""
    aborted: tuple[tuple[int, int], ...] = ()
    """Aborted transactions that reach into the records: producer id and first offset."""
    preferred_replica: int = NO_REPLICA
    """Where to fetch from instead (KIP-392); -1: here."""
    diverging: tuple[int, int] | None = None
    """Where the leader's log parts from what the client read: epoch, and the epoch's end."""
    leader: tuple[int, int] | None = None
    """With the codes 6 and 74: who leads now, and in which epoch (KIP-951), if it is told."""


class Fetch:
    """One request, and how to read its answer."""

    __slots__ = ("_wanted", "message", "most")

    def __init__(self, wanted: Mapping[tuple[object, int], Wanted], message: Message) -> None:
        self._wanted = wanted
        self.message = message
        """Good for every version from ``LOWEST`` to :attr:`most`."""
        self.most = None if _all_have_ids(wanted) else NAMES_UPTO
        """The highest version it may be sent in; None: any."""

    def parse(self, response: Message) -> list[Fetched]:
        """What came back, in the answer's order. What was not asked for is passed over."""
        if response.error_code:
            each_once = dict.fromkeys(self._wanted.values())
            return [_failed(each, response.error_code) for each in each_once]
        found = []
        for topic in response.responses:
            name = topic.topic_id if topic.topic_id != NO_ID else topic.topic
            for answer in topic.partitions:
                asked = self._wanted.get((name, answer.partition_index))
                if asked is not None:
                    found.append(_fetched(asked, answer))
        return found


def request(
    wanted: Iterable[Wanted],
    config: ReadConfig,
    *,
    max_bytes: int | None = None,
    max_wait: int | None = None,
) -> Fetch:
    """A request for partitions of one broker, in this order.

    :param max_bytes: what all of it may be, if not ``fetch.max.bytes``
    :param max_wait: milliseconds, if not ``fetch.max.wait.ms``
    """
    make = FetchRequest.FetchPartition
    most = config.max_partition_bytes
    topics: list[Message] = []
    known: dict[tuple[object, int], Wanted] = {}
    for each in wanted:
        (name, number), topic_id, offset, epoch, last_epoch, limit = each
        known[name, number] = each
        if topic_id != NO_ID:
            known[topic_id, number] = each
        if not topics or (topics[-1].topic, topics[-1].topic_id) != (name, topic_id):
            # a topic may come more than once: brokers read in this order until the answer is full
            topics.append(FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[]))
        topics[-1].partitions.append(
            make(
                partition=number,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                partition_max_bytes=most if limit is None else limit,
            )
        )
    message = FetchRequest(
        max_wait_ms=config.fetch_max_wait if max_wait is None else max_wait,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes if max_bytes is None else max_bytes,
        isolation_level=int(config.committed_only),
        session_id=NO_SESSION,
        session_epoch=FULL,
        topics=topics,
        rack_id=config.rack or "",
    )
    return Fetch(known, message)


def _all_have_ids(wanted: Mapping[tuple[object, int], Wanted]) -> bool:
    return all(each.topic_id != NO_ID for each in wanted.values())


def _fetched(asked: Wanted, answer: Message) -> Fetched:
    aborted = answer.aborted_transactions
    records = answer.records
    diverging, leader = answer.diverging_epoch, answer.current_leader
    if diverging is not None and diverging.epoch < 0:
        diverging = None
    return Fetched(
        asked.partition,
        answer.error_code,
        asked.offset,
        memoryview(records) if records else NOTHING,
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        tuple([(each.producer_id, each.first_offset) for each in aborted]) if aborted else (),
        answer.preferred_read_replica,
        None if diverging is None else (diverging.epoch, diverging.end_offset),
        None if leader is None else (leader.leader_id, leader.leader_epoch),
    )


def _failed(asked: Wanted, code: int) -> Fetched:
    return Fetched(asked.partition, code, asked.offset, NOTHING, -1, -1, -1)
