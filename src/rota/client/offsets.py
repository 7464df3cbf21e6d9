"""ListOffsets and OffsetForLeaderEpoch: offsets by time, and the end offsets of leader epochs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from rota.client.cluster import ClusterClient
from rota.client.retry import RETRIABLE_CODES, partition_error
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import NO_LEADER_EPOCH, NO_OFFSET, TopicPartition, values_by_topic
from rota.errors import Code, RotaError, TimedOut, UnknownTopic, Unreachable
from rota.protocol.messages import Api, ListOffsetsRequest, OffsetForLeaderEpochRequest

LATEST: Final = -1  # timestamp of a log's end; read_committed: of the first open transaction
EARLIEST: Final = -2
CONSUMER_REPLICA_ID = -1
READ_COMMITTED = "read_committed"
MIN_CONSUMER_VERSION = 3  # first version of OffsetForLeaderEpoch that clients may send
T = TypeVar("T")


class ListedOffset(NamedTuple):
    """An offset, with the time of its record; -1 for a log's beginning and end."""

    offset: int
    timestamp: int = -1
    leader_epoch: int | None = None


class EpochEndOffset(NamedTuple):
    """The end offset of the last epoch not above the requested one; -1: the leader has none."""

    leader_epoch: int
    end_offset: int


class OffsetQuery(NamedTuple):
    """A query for one partition, with the leader epoch that the client knows."""

    target: int
    leader_epoch: int = NO_LEADER_EPOCH


@dataclass(slots=True)
class LeaderResponse(Generic[T]):
    found: dict[TopicPartition, T] = field(default_factory=dict)
    #: Error codes of partitions to be requested again with new metadata.
    retriable: dict[TopicPartition, int] = field(default_factory=dict)
    errors: dict[TopicPartition, RotaError] = field(default_factory=dict)

    def add_error(self, partition: TopicPartition, code: int, doing: str) -> None:
        if code in RETRIABLE_CODES:
            self.retriable[partition] = code
        else:
            self.errors[partition] = partition_error(code, partition, doing)


async def send_list_offsets(
    client: ClusterClient,
    node: int,
    queries: Mapping[TopicPartition, OffsetQuery],
    isolation: str,
    deadline: float,
) -> LeaderResponse[ListedOffset | None]:
    """Sends one ListOffsets request; None: no record is as young as the timestamp."""
    make, make_topic = ListOffsetsRequest.ListOffsetsPartition, ListOffsetsRequest.ListOffsetsTopic
    topics = {
        name: [
            make(partition_index=number, current_leader_epoch=epoch, timestamp=timestamp)
            for number, (timestamp, epoch) in partitions
        ]
        for name, partitions in values_by_topic(dict(sorted(queries.items()))).items()
    }
    request = ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=int(isolation == READ_COMMITTED),
        topics=[make_topic(name=name, partitions=each) for name, each in topics.items()],
        timeout_ms=client.config.request_timeout,
    )
    response = await client.send(Api.LIST_OFFSETS, request, node=node, deadline=deadline)
    result: LeaderResponse[ListedOffset | None] = LeaderResponse()
    for topic in response.topics:
        for data in topic.partitions:
            partition = TopicPartition(topic.name, data.partition_index)
            if data.error_code not in {Code.NONE, Code.UNSUPPORTED_FOR_MESSAGE_FORMAT}:
                result.add_error(partition, data.error_code, "to list offsets of")
            elif data.error_code or data.offset == NO_OFFSET:
                result.found[partition] = None
            else:
                epoch = None if data.leader_epoch == NO_LEADER_EPOCH else data.leader_epoch
                result.found[partition] = ListedOffset(data.offset, data.timestamp, epoch)
    return result


async def send_offset_for_leader_epoch(
    client: ClusterClient, node: int, queries: Mapping[TopicPartition, OffsetQuery], deadline: float
) -> LeaderResponse[EpochEndOffset | None]:
    """Sends one OffsetForLeaderEpoch request; None: the broker is too old for it."""
    make_topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    make = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    topics = {
        name: [
            make(partition=number, current_leader_epoch=current, leader_epoch=epoch)
            for number, (epoch, current) in partitions
        ]
        for name, partitions in values_by_topic(dict(sorted(queries.items()))).items()
    }
    request = OffsetForLeaderEpochRequest(
        replica_id=CONSUMER_REPLICA_ID,
        topics=[make_topic(topic=name, partitions=each) for name, each in topics.items()],
    )
    connection = await client.connect(node, deadline=deadline)
    api = Api.OFFSET_FOR_LEADER_EPOCH
    offered = connection.versions.get(api)
    if offered is None or offered.high < MIN_CONSUMER_VERSION:
        return LeaderResponse(found=dict.fromkeys(queries))
    response = await client.send(api, request, node=node, deadline=deadline)
    result: LeaderResponse[EpochEndOffset | None] = LeaderResponse()
    for topic in response.topics:
        for data in topic.partitions:
            partition = TopicPartition(topic.topic, data.partition)
            if data.error_code == Code.NONE:
                result.found[partition] = EpochEndOffset(data.leader_epoch, data.end_offset)
            else:
                result.add_error(partition, data.error_code, "to validate the position in")
    return result


async def list_offsets(
    client: ClusterClient,
    timestamps: Mapping[TopicPartition, int],
    isolation: str = "read_uncommitted",
    *,
    deadline: float,
) -> dict[TopicPartition, ListedOffset | None]:
    """Returns the first offset whose record is not older than a timestamp, for each partition.

    Sends requests to all leaders at a time, and again for partitions that have another leader now.

    :param timestamps: milliseconds since 1970, :data:`EARLIEST` or :data:`LATEST`
    :raises AuthorizationFailed: a topic may not be read
    :raises UnknownTopic: a partition does not exist, or did not until the deadline
    :raises TimedOut: a leader has not responded in time
    """
    found: dict[TopicPartition, ListedOffset | None] = {}
    problems: dict[TopicPartition, object] = {}
    left, failures = timestamps, 0
    while left:
        await _refresh_metadata(client, left, failures, problems, deadline)
        before = problems
        by_leader, problems = _group_by_leader(client, left)
        requests = [
            send_list_offsets(client, node, queries, isolation, deadline)
            for node, queries in by_leader.items()
        ]
        results = await asyncio.gather(*requests, return_exceptions=True)
        for queries, result in zip(by_leader.values(), results, strict=True):
            if isinstance(result, Unreachable):
                # an error code of an earlier response says more than a timeout
                problems |= {each: before.get(each) or result for each in queries}
                continue
            if isinstance(result, BaseException):
                raise result
            for error in result.errors.values():
                raise error
            found |= result.found
            missing = queries.keys() - result.found.keys()
            problems |= {each: result.retriable.get(each) for each in sorted(missing)}
        left = {each: timestamps[each] for each in problems}
        failures += 1
    return {each: found[each] for each in timestamps}


async def _refresh_metadata(
    client: ClusterClient,
    partitions: Iterable[TopicPartition],
    failures: int,
    problems: Mapping[TopicPartition, object],
    deadline: float,
) -> None:
    """Refreshes metadata that is missing, or after a pause metadata that was wrong."""
    if failures:
        pause = client.backoff.pause_after(failures)
        if asyncio.get_running_loop().time() + pause >= deadline:
            raise _timeout_error(problems)
        await asyncio.sleep(pause)
    topics = {each.topic for each in partitions}
    if failures or not topics <= client.metadata.topics.keys():
        try:
            await client.refresh(topics, deadline=deadline)
        except TimedOut as error:
            if problems:
                raise _timeout_error(problems) from error
            raise


def _group_by_leader(
    client: ClusterClient, timestamps: Mapping[TopicPartition, int]
) -> tuple[dict[int, dict[TopicPartition, OffsetQuery]], dict[TopicPartition, object]]:
    """Returns the queries by leader, and the partitions without a leader with the reason."""
    metadata = client.metadata
    by_leader: dict[int, dict[TopicPartition, OffsetQuery]] = {}
    leaderless: dict[TopicPartition, object] = {}
    for each, timestamp in timestamps.items():
        partition, leader = metadata.partition(each), metadata.leader(each)
        if partition is not None and leader is not None:
            query = OffsetQuery(timestamp, partition.leader_epoch)
            by_leader.setdefault(leader, {})[each] = query
            continue
        if (error := metadata.topic_error(each)) is not None:
            raise error
        has_partition = partition is not None
        leaderless[each] = "it has no leader" if has_partition else Code.UNKNOWN_TOPIC_OR_PARTITION
    return by_leader, leaderless


def _timeout_error(problems: Mapping[TopicPartition, object]) -> RotaError:
    code = Code.UNKNOWN_TOPIC_OR_PARTITION
    if unknown := [str(each) for each, why in problems.items() if why == code]:
        return UnknownTopic(code, f"there is no partition {list_first_names(unknown)}")
    names = list_first_names(list(map(str, problems)))
    why = next(iter(problems.values()))
    last = f"error {why}" if isinstance(why, int) else str(why)
    return TimedOut(f"no offset of {names} before the timeout; the last answer: {last}")
