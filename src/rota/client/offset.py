"""Offsets of partitions by time, and where epochs end in their logs: asked of each leader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

from rota.client.cluster import Client
from rota.client.refusal import AGAIN, refusal
from rota.errors import Code, RotaError, TimedOut, UnknownTopic, Unreachable
from rota.model.offset import NO_EPOCH, NO_OFFSET
from rota.model.topic import TopicPartition, first_few
from rota.wire.api import Api
from rota.wire.message import ListOffsetsRequest, Message, OffsetForLeaderEpochRequest

LATEST: Final = -1
"""The timestamp of a log's end: for ``read_committed``, where the first open transaction begins."""
EARLIEST: Final = -2
"""The timestamp of a log's beginning."""
CONSUMER = -1
"""The replica id of one that is no replica."""
READ_COMMITTED = "read_committed"
READABLE_FROM = 3
"""The version of OffsetForLeaderEpoch from which on those may ask who read topics; before, it was
for brokers only.
"""

T = TypeVar("T")
Q = TypeVar("Q")


class ListedOffset(NamedTuple):
    """An offset, with the time of its record; -1 for a log's beginning and end."""

    offset: int
    timestamp: int = -1
    leader_epoch: int | None = None


class EpochEnd(NamedTuple):
    """Where the last epoch that is not above the one asked for ends; -1: the leader has none."""

    epoch: int
    end: int

    @classmethod
    def whole(cls, epoch: int) -> EpochEnd:
        """An epoch without an end: who cannot tell is believed to have all of it."""
        return cls(epoch, 2**63 - 1)


class Look(NamedTuple):
    """What to look for in a partition, by a client who knows this epoch of its leader."""

    what: int
    """A timestamp, or an epoch."""
    leader_epoch: int = NO_EPOCH


@dataclass(slots=True)
class Round(Generic[T]):
    """What became of one question to one leader."""

    found: dict[TopicPartition, T] = field(default_factory=dict)
    again: dict[TopicPartition, int] = field(default_factory=dict)
    """To be asked again after a look who leads now, with the error code."""
    refused: dict[TopicPartition, RotaError] = field(default_factory=dict)

    def refuse(self, partition: TopicPartition, code: int, doing: str) -> None:
        """Notes an error code."""
        if code in AGAIN:
            self.again[partition] = code
        else:
            self.refused[partition] = refusal(code, partition, doing)


async def ask_offsets(
    client: Client,
    node: int,
    looks: Mapping[TopicPartition, Look],
    isolation: str,
    deadline: float,
) -> Round[ListedOffset | None]:
    """Asks one leader for offsets by time, once; None: no record is as young as that."""
    make, made = ListOffsetsRequest.ListOffsetsPartition, ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        replica_id=CONSUMER,
        isolation_level=int(isolation == READ_COMMITTED),
        topics=[
            made(
                name=topic,
                partitions=[
                    make(
                        partition_index=each.partition,
                        current_leader_epoch=looks[each].leader_epoch,
                        timestamp=looks[each].what,
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in _by_topic(looks)
        ],
        timeout_ms=client.config.request_timeout,
    )
    response = await client.send(Api.LIST_OFFSETS, request, node=node, deadline=deadline)
    result: Round[ListedOffset | None] = Round()
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code in {Code.NONE, Code.UNSUPPORTED_FOR_MESSAGE_FORMAT}:
                result.found[partition] = _listed(answer)
            else:
                result.refuse(partition, answer.error_code, "to list offsets of")
    return result


async def ask_ends(
    client: Client, node: int, looks: Mapping[TopicPartition, Look], deadline: float
) -> Round[EpochEnd | None]:
    """Asks one leader where epochs end, once; None: it is too old to be asked."""
    make = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER,
        topics=[
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    make(
                        partition=each.partition,
                        current_leader_epoch=looks[each].leader_epoch,
                        leader_epoch=looks[each].what,
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in _by_topic(looks)
        ],
    )
    connection = await client.connect(node, deadline=deadline)
    offered = connection.versions.get(Api.OFFSET_FOR_LEADER_EPOCH)
    if offered is None or offered.high < READABLE_FROM:
        return Round(found=dict.fromkeys(looks))
    api = Api.OFFSET_FOR_LEADER_EPOCH
    response = await client.send(api, request, node=node, deadline=deadline)
    result: Round[EpochEnd | None] = Round()
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.topic, answer.partition)
            if answer.error_code == Code.NONE:
                result.found[partition] = EpochEnd(answer.leader_epoch, answer.end_offset)
            else:
                result.refuse(partition, answer.error_code, "to validate the position in")
    return result


async def list_offsets(
    client: Client,
    targets: Mapping[TopicPartition, int],
    isolation: str = "read_uncommitted",
    *,
    deadline: float,
) -> dict[TopicPartition, ListedOffset | None]:
    """The first offset whose record is not older than a timestamp, of each partition.

    :param targets: milliseconds since 1970, :data:`EARLIEST` or :data:`LATEST`
    :raises AuthorizationFailed: a topic may not be read
    :raises UnknownTopic: a partition does not exist, or did not until the deadline
    :raises TimedOut: some leader has not answered in time
    """

    async def ask(node: int, looks: Mapping[TopicPartition, Look]) -> Round[ListedOffset | None]:
        return await ask_offsets(client, node, looks, isolation, deadline)

    return await _of_leaders(client, targets, ask, deadline)


async def epoch_ends(
    client: Client, epochs: Mapping[TopicPartition, int], *, deadline: float
) -> dict[TopicPartition, EpochEnd | None]:
    """Where the leaders' logs leave these epochs (KIP-320); None: the leader is too old to tell.

    :raises AuthorizationFailed: a topic may not be read
    :raises UnknownTopic: a partition does not exist, or did not until the deadline
    :raises TimedOut: some leader has not answered in time
    """

    async def ask(node: int, looks: Mapping[TopicPartition, Look]) -> Round[EpochEnd | None]:
        return await ask_ends(client, node, looks, deadline)

    return await _of_leaders(client, epochs, ask, deadline)


async def _of_leaders(
    client: Client,
    whats: Mapping[TopicPartition, int],
    ask: Callable[[int, Mapping[TopicPartition, Look]], Awaitable[Round[T]]],
    deadline: float,
) -> dict[TopicPartition, T]:
    """Asks all leaders at a time, and again those partitions that are led elsewhere by now."""
    found: dict[TopicPartition, T] = {}
    trouble: dict[TopicPartition, object] = {}
    left = dict(whats)
    failures = 0
    while left:
        await _know(client, left, failures, trouble, deadline)
        before = trouble
        groups, trouble = _by_leader(client, left)
        rounds = await asyncio.gather(
            *(ask(node, looks) for node, looks in groups.items()), return_exceptions=True
        )
        for looks, result in zip(groups.values(), rounds, strict=True):
            trouble |= _taken(looks, result, found, before)
        left = {each: whats[each] for each in trouble}
        failures += 1
    return {each: found[each] for each in whats}


async def _know(
    client: Client,
    partitions: Iterable[TopicPartition],
    failures: int,
    trouble: Mapping[TopicPartition, object],
    deadline: float,
) -> None:
    """Gets the metadata, if they are missing or were wrong: then after a pause."""
    if failures:
        pause = client.backoff.after(failures)
        if asyncio.get_running_loop().time() + pause >= deadline:
            raise _given_up(trouble)
        await asyncio.sleep(pause)
    topics = {each.topic for each in partitions}
    if failures or not topics <= client.metadata.topics.keys():
        try:
            await client.refresh(topics, deadline=deadline)
        except TimedOut as error:
            if trouble:
                raise _given_up(trouble) from error
            raise


def _taken(
    looks: Mapping[TopicPartition, Look],
    result: Round[T] | BaseException,
    found: dict[TopicPartition, T],
    before: Mapping[TopicPartition, object],
) -> dict[TopicPartition, object]:
    """Keeps what a leader has answered; gives those that are to be asked again, and why."""
    if isinstance(result, Unreachable):
        # what was answered before says more than that the time is up
        return {each: before.get(each) or result for each in looks}
    if isinstance(result, BaseException):
        raise result
    for error in result.refused.values():
        raise error
    found |= result.found
    return {each: result.again.get(each) for each in looks if each not in result.found}


def _by_leader(
    client: Client, whats: Mapping[TopicPartition, int]
) -> tuple[dict[int, dict[TopicPartition, Look]], dict[TopicPartition, object]]:
    """The questions by leader, and those partitions that have none."""
    metadata = client.metadata
    groups: dict[int, dict[TopicPartition, Look]] = {}
    without: dict[TopicPartition, object] = {}
    for each, what in whats.items():
        partition, leader = metadata.partition(each), metadata.leader(each)
        if partition is None or leader is None:
            topic = metadata.topics.get(each.topic)
            if topic is not None and topic.error not in AGAIN | {Code.NONE}:
                raise refusal(topic.error, each, "to look up")
            unknown = partition is None
            without[each] = Code.UNKNOWN_TOPIC_OR_PARTITION if unknown else "it has no leader"
        else:
            groups.setdefault(leader, {})[each] = Look(what, partition.leader_epoch)
    return groups, without


def _given_up(trouble: Mapping[TopicPartition, object]) -> RotaError:
    """The time is up; what is known of the reason."""
    unknown = [each for each, why in trouble.items() if why == Code.UNKNOWN_TOPIC_OR_PARTITION]
    if unknown:
        names = first_few([str(each) for each in unknown])
        return UnknownTopic(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {names}")
    names = first_few([str(each) for each in trouble])
    why = next(iter(trouble.values()))
    last = f"error {why}" if isinstance(why, int) else str(why)
    return TimedOut(f"no offset of {names} in the time given; the last answer: {last}")


def _by_topic(
    partitions: Iterable[TopicPartition],
) -> list[tuple[str, list[TopicPartition]]]:
    ordered = sorted(partitions)
    return [(topic, list(each)) for topic, each in groupby(ordered, key=itemgetter(0))]


def _listed(answer: Message) -> ListedOffset | None:
    if answer.error_code or answer.offset == NO_OFFSET:
        return None
    epoch = None if answer.leader_epoch == NO_EPOCH else answer.leader_epoch
    return ListedOffset(answer.offset, answer.timestamp, epoch)
