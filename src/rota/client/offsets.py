"""ListOffsets and OffsetForLeaderEpoch: offsets by time and the end offsets of leader epochs,
asked of each leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, Generic, NamedTuple, TypeVar

from rota.client.cluster import ClusterClient
from rota.client.retry import RETRIABLE_CODES, partition_error
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from rota.errors import Code, RotaError, TimedOut, UnknownTopic, Unreachable
from rota.protocol.messages import (
    Api,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
)

#: The timestamp of a log's end: for ``read_committed``, where the first open transaction begins.
LATEST: Final = -1

#: The timestamp of a log's beginning.
EARLIEST: Final = -2

#: The replica id of one that is no replica.
CONSUMER_REPLICA_ID = -1

READ_COMMITTED = "read_committed"

#: The version of OffsetForLeaderEpoch from which on those may ask who read topics; before, it was
#: for brokers only.
MIN_CONSUMER_VERSION = 3

T = TypeVar("T")

Q = TypeVar("Q")


class ListedOffset(NamedTuple):
    """An offset, with the time of its record; -1 for a log's beginning and end."""

    offset: int
    timestamp: int = -1
    leader_epoch: int | None = None


class EpochEndOffset(NamedTuple):
    """The end offset of the last epoch not above the requested one; -1: the leader has none."""

    leader_epoch: int
    end_offset: int

    @classmethod
    def without_end(cls, epoch: int) -> EpochEndOffset:
        """An epoch without an end: who cannot tell is believed to have all of it."""
        return cls(epoch, 2**63 - 1)


class OffsetQuery(NamedTuple):
    """A query for one partition, with the leader epoch that the client knows."""

    #: A timestamp, or an epoch.
    target: int
    leader_epoch: int = NO_LEADER_EPOCH


@dataclass(slots=True)
class LeaderResponse(Generic[T]):
    """The results of one request to one leader."""

    found: dict[TopicPartition, T] = field(default_factory=dict)
    #: To be asked again after a look who leads now, with the error code.
    retriable: dict[TopicPartition, int] = field(default_factory=dict)
    errors: dict[TopicPartition, RotaError] = field(default_factory=dict)

    def add_error(self, partition: TopicPartition, code: int, doing: str) -> None:
        """Notes an error code."""
        if code in RETRIABLE_CODES:
            self.retriable[partition] = code
        else:
            self.errors[partition] = partition_error(code, partition, doing)


async def send_list_offsets(
    client: ClusterClient,
    node: int,
    looks: Mapping[TopicPartition, OffsetQuery],
    isolation: str,
    deadline: float,
) -> LeaderResponse[ListedOffset | None]:
    """Sends one ListOffsets request; None: no record is as young as the timestamp."""
    make, made = ListOffsetsRequest.ListOffsetsPartition, ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=int(isolation == READ_COMMITTED),
        topics=[
            made(
                name=topic,
                partitions=[
                    make(
                        partition_index=each.partition,
                        current_leader_epoch=looks[each].leader_epoch,
                        timestamp=looks[each].target,
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in _group_by_topic(looks)
        ],
        timeout_ms=client.config.request_timeout,
    )
    response = await client.send(Api.LIST_OFFSETS, request, node=node, deadline=deadline)
    result: LeaderResponse[ListedOffset | None] = LeaderResponse()
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code in {Code.NONE, Code.UNSUPPORTED_FOR_MESSAGE_FORMAT}:
                result.found[partition] = _read_offset(answer)
            else:
                result.add_error(partition, answer.error_code, "to list offsets of")
    return result


async def send_offset_for_leader_epoch(
    client: ClusterClient, node: int, looks: Mapping[TopicPartition, OffsetQuery], deadline: float
) -> LeaderResponse[EpochEndOffset | None]:
    """Sends one OffsetForLeaderEpoch request; None: the broker is too old for it."""
    make = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=[
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    make(
                        partition=each.partition,
                        current_leader_epoch=looks[each].leader_epoch,
                        leader_epoch=looks[each].target,
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in _group_by_topic(looks)
        ],
    )
    connection = await client.connect(node, deadline=deadline)
    offered = connection.versions.get(Api.OFFSET_FOR_LEADER_EPOCH)
    if offered is None or offered.high < MIN_CONSUMER_VERSION:
        return LeaderResponse(found=dict.fromkeys(looks))
    api = Api.OFFSET_FOR_LEADER_EPOCH
    response = await client.send(api, request, node=node, deadline=deadline)
    result: LeaderResponse[EpochEndOffset | None] = LeaderResponse()
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.topic, answer.partition)
            if answer.error_code == Code.NONE:
                result.found[partition] = EpochEndOffset(answer.leader_epoch, answer.end_offset)
            else:
                result.add_error(partition, answer.error_code, "to validate the position in")
    return result


async def list_offsets(
    client: ClusterClient,
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

    async def ask(
        node: int, looks: Mapping[TopicPartition, OffsetQuery]
    ) -> LeaderResponse[ListedOffset | None]:
        return await send_list_offsets(client, node, looks, isolation, deadline)

    return await _ask_leaders(client, targets, ask, deadline)


async def find_epoch_ends(
    client: ClusterClient, epochs: Mapping[TopicPartition, int], *, deadline: float
) -> dict[TopicPartition, EpochEndOffset | None]:
    """Where the leaders' logs leave these epochs (KIP-320); None: the leader is too old to tell.

    :raises AuthorizationFailed: a topic may not be read
    :raises UnknownTopic: a partition does not exist, or did not until the deadline
    :raises TimedOut: some leader has not answered in time
    """

    async def ask(
        node: int, looks: Mapping[TopicPartition, OffsetQuery]
    ) -> LeaderResponse[EpochEndOffset | None]:
        return await send_offset_for_leader_epoch(client, node, looks, deadline)

    return await _ask_leaders(client, epochs, ask, deadline)


async def _ask_leaders(
    client: ClusterClient,
    whats: Mapping[TopicPartition, int],
    ask: Callable[[int, Mapping[TopicPartition, OffsetQuery]], Awaitable[LeaderResponse[T]]],
    deadline: float,
) -> dict[TopicPartition, T]:
    """Asks all leaders at a time, and again those partitions that are led elsewhere by now."""
    found: dict[TopicPartition, T] = {}
    trouble: dict[TopicPartition, object] = {}
    left = dict(whats)
    failures = 0
    while left:
        await _refresh_metadata(client, left, failures, trouble, deadline)
        before = trouble
        groups, trouble = _group_by_leader(client, left)
        rounds = await asyncio.gather(
            *(ask(node, looks) for node, looks in groups.items()), return_exceptions=True
        )
        for looks, result in zip(groups.values(), rounds, strict=True):
            trouble |= _merge_response(looks, result, found, before)
        left = {each: whats[each] for each in trouble}
        failures += 1
    return {each: found[each] for each in whats}


async def _refresh_metadata(
    client: ClusterClient,
    partitions: Iterable[TopicPartition],
    failures: int,
    trouble: Mapping[TopicPartition, object],
    deadline: float,
) -> None:
    """Gets the metadata, if they are missing or were wrong: then after a pause."""
    if failures:
        pause = client.backoff.pause_after(failures)
        if asyncio.get_running_loop().time() + pause >= deadline:
            raise _timeout_error(trouble)
        await asyncio.sleep(pause)
    topics = {each.topic for each in partitions}
    if failures or not topics <= client.metadata.topics.keys():
        try:
            await client.refresh(topics, deadline=deadline)
        except TimedOut as error:
            if trouble:
                raise _timeout_error(trouble) from error
            raise


def _merge_response(
    looks: Mapping[TopicPartition, OffsetQuery],
    result: LeaderResponse[T] | BaseException,
    found: dict[TopicPartition, T],
    before: Mapping[TopicPartition, object],
) -> dict[TopicPartition, object]:
    """Keeps what a leader has answered; gives those that are to be asked again, and why."""
    if isinstance(result, Unreachable):
        # what was answered before says more than that the time is up
        return {each: before.get(each) or result for each in looks}
    if isinstance(result, BaseException):
        raise result
    for error in result.errors.values():
        raise error
    found |= result.found
    return {each: result.retriable.get(each) for each in looks if each not in result.found}


def _group_by_leader(
    client: ClusterClient, whats: Mapping[TopicPartition, int]
) -> tuple[dict[int, dict[TopicPartition, OffsetQuery]], dict[TopicPartition, object]]:
    """The questions by leader, and those partitions that have none."""
    metadata = client.metadata
    groups: dict[int, dict[TopicPartition, OffsetQuery]] = {}
    without: dict[TopicPartition, object] = {}
    for each, what in whats.items():
        partition, leader = metadata.partition(each), metadata.leader(each)
        if partition is None or leader is None:
            topic = metadata.topics.get(each.topic)
            if topic is not None and topic.error not in RETRIABLE_CODES | {Code.NONE}:
                raise partition_error(topic.error, each, "to look up")
            unknown = partition is None
            without[each] = Code.UNKNOWN_TOPIC_OR_PARTITION if unknown else "it has no leader"
        else:
            groups.setdefault(leader, {})[each] = OffsetQuery(what, partition.leader_epoch)
    return groups, without


def _timeout_error(trouble: Mapping[TopicPartition, object]) -> RotaError:
    """Returns the error after the deadline, with the last known reason."""
    unknown = [each for each, why in trouble.items() if why == Code.UNKNOWN_TOPIC_OR_PARTITION]
    if unknown:
        names = list_first_names([str(each) for each in unknown])
        return UnknownTopic(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {names}")
    names = list_first_names([str(each) for each in trouble])
    why = next(iter(trouble.values()))
    last = f"error {why}" if isinstance(why, int) else str(why)
    return TimedOut(f"no offset of {names} in the time given; the last answer: {last}")


def _group_by_topic(
    partitions: Iterable[TopicPartition],
) -> list[tuple[str, list[TopicPartition]]]:
    ordered = sorted(partitions)
    return [(topic, list(each)) for topic, each in groupby(ordered, key=itemgetter(0))]


def _read_offset(
    answer: ListOffsetsResponse.ListOffsetsPartitionResponse,
) -> ListedOffset | None:
    if answer.error_code or answer.offset == NO_OFFSET:
        return None
    epoch = None if answer.leader_epoch == NO_LEADER_EPOCH else answer.leader_epoch
    return ListedOffset(answer.offset, answer.timestamp, epoch)
