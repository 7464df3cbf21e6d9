"""Administration of groups: lists and describes them, computes their lag, changes their offsets.

The second half finds the age of a partition's first unread record with ListOffsets alone, which
returns the first offset at or after a given time: bisection takes a few rounds, each with one
request to each leader. Fetching the records would take one large response for each partition.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar

from rota.client import group_description, group_requests
from rota.client.cluster import COORDINATOR_CODES, ClusterClient
from rota.client.group_description import CLASSIC, DEAD, GroupDescription, PartitionLag
from rota.client.group_requests import check_codes, group_request_error, parse_error_code
from rota.client.metadata import BrokerMetadata, ClusterMetadata
from rota.client.offsets import EARLIEST, LATEST, list_offsets
from rota.client.retry import run_all, run_limited
from rota.engine.model import request as requests
from rota.engine.model import response as results
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code, InputError, Refused, UnknownTopic, Unreachable
from rota.protocol.messages import Api, ConsumerGroupDescribeRequest

MAX_IN_FLIGHT = 50
GROUPS_PER_REQUEST = 200
MAX_AGE_LOOKUPS = 1_000  # limit of partitions whose lag is looked up in time
CONSUMER_GROUP_TYPE: Final = "consumer"

ResultT = TypeVar("ResultT", bound=results.GroupResponse)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    groups: Mapping[str, tuple[results.ListedGroup, BrokerMetadata]]
    unanswered: tuple[str, ...] = ()  # errors of brokers that do not respond


class Admin:
    def __init__(self, client: ClusterClient, timeout: float) -> None:
        """:param timeout: seconds for each request"""
        self._client = client
        self._timeout = timeout
        #: A cluster may have thousands of groups.
        self._limit = asyncio.Semaphore(MAX_IN_FLIGHT)

    @property
    def _deadline(self) -> float:
        return self._client.deadline_after(self._timeout)

    async def list_groups(self) -> GroupList:
        """Lists the groups of all brokers. Raises Unreachable if no broker answers."""
        metadata = await self._client.refresh((), deadline=self._deadline)
        nodes = sorted(metadata.brokers.values())
        listings = await asyncio.gather(*map(self._listed_by, nodes), return_exceptions=True)
        groups: dict[str, tuple[results.ListedGroup, BrokerMetadata]] = {}
        unreachable: list[str] = []
        for node, listed in zip(nodes, listings, strict=True):
            if isinstance(listed, Unreachable):
                unreachable.append(str(listed))
            elif isinstance(listed, BaseException):
                raise listed
            else:
                groups.update({each.group: (each, node) for each in listed})
        if len(unreachable) == len(nodes):
            raise Unreachable("; ".join(unreachable) or "the cluster names no brokers")
        return GroupList(groups=dict(sorted(groups.items())), unanswered=tuple(unreachable))

    async def _listed_by(self, node: BrokerMetadata) -> tuple[results.ListedGroup, ...]:
        result = await self._send(node, requests.ListGroups(), results.ListGroupsResult)
        if result.code:
            raise group_request_error(result.code, f"broker {node.id} does not list its groups")
        return result.groups

    async def describe_groups(self, listing: GroupList) -> list[GroupDescription]:
        by_node: dict[tuple[BrokerMetadata, str], list[str]] = {}
        for listed, node in listing.groups.values():
            by_node.setdefault((node, listed.group_type or CLASSIC), []).append(listed.group)
        chunks = [
            (node, group_type, names[start : start + GROUPS_PER_REQUEST])
            for (node, group_type), names in by_node.items()
            for start in range(0, len(names), GROUPS_PER_REQUEST)
        ]
        described = await run_limited(self._limit, lambda chunk: self._described_by(*chunk), chunks)
        by_name = {each.group: each for chunk in described for each in chunk}
        return [
            by_name.get(name) or group_description.describe_listed_group(listed, node)
            for name, (listed, node) in listing.groups.items()
        ]

    async def _described_by(
        self, node: BrokerMetadata, group_type: str, names: Sequence[str]
    ) -> list[GroupDescription]:
        where = f"{node.id} ({node.address})"
        if group_type == CLASSIC:
            request = requests.DescribeGroups(groups=tuple(names))
            result = await self._send(node, request, results.DescribeGroupsResult)
            return [
                group_description.describe_classic_group(each, where)
                if each.code not in COORDINATOR_CODES
                else await self.describe_group(each.group)
                for each in result.groups
                if not each.code or each.code in COORDINATOR_CODES
            ]
        if group_type == CONSUMER_GROUP_TYPE:
            message = ConsumerGroupDescribeRequest(group_ids=list(names))
            api, deadline = Api.CONSUMER_GROUP_DESCRIBE, self._deadline
            try:
                response = await self._client.send(api, message, node=node.id, deadline=deadline)
            except Refused:
                return []
            return [
                group_description.describe_consumer_group(each, where)
                for each in response.groups
                if not each.error_code
            ]
        return []

    async def describe_group(self, group: str, *, otherwise: str = "") -> GroupDescription:
        """Describes one group. Raises InputError if it does not exist: the message names similar
        groups, and ends with the hint ``otherwise``.
        """
        description = await self.find_group(group)
        if description is not None:
            return description
        groups = (await self.list_groups()).groups
        near = _suggest(group, groups)
        hint = near if groups else "; there are no groups at all, or none that may be seen"
        if otherwise:
            hint += f"{' ' if near else '; '}{otherwise}"
        raise InputError(f"there is no group {group!r}{hint}")

    async def find_group(self, group: str) -> GroupDescription | None:
        """Describes one group, from its coordinator; None if it does not exist."""
        coordinator = await self._client.find_coordinator(group, self._deadline)
        where = f"{coordinator.node.id} ({coordinator.node.address})"
        request = requests.DescribeGroups(groups=(group,))
        described = (await self._send(group, request, results.DescribeGroupsResult)).groups[0]
        if not described.code and described.state != DEAD:
            return group_description.describe_classic_group(described, where)
        if described.code not in {Code.NONE, Code.GROUP_ID_NOT_FOUND}:
            raise group_request_error(described.code, f"group {group!r} cannot be described")
        if (modern := await self._describe_consumer_group(group, where)) is not None:
            return modern
        listed = (await self.list_groups()).groups.get(group)
        return None if listed is None else group_description.describe_listed_group(*listed)

    async def _describe_consumer_group(self, group: str, where: str) -> GroupDescription | None:
        api, message = Api.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(group_ids=[group])
        send, deadline = self._client.send_to_coordinator, self._deadline
        try:
            response = await send(group, api, message, deadline)
        except Refused:  # a broker without KIP-848 has none of its groups
            return None
        found = response.groups[0]
        if found.error_code in {Code.GROUP_ID_NOT_FOUND, Code.UNSUPPORTED_VERSION}:
            return None
        if code := parse_error_code(found.error_code):
            raise group_request_error(code, f"group {group!r} cannot be described")
        return group_description.describe_consumer_group(found, where)

    async def fetch_committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        request = requests.OffsetFetch(group=group)
        result = await self._send(group, request, results.OffsetFetchResult)
        if result.code:
            raise group_request_error(result.code, f"the offsets of group {group!r} cannot be read")
        return {tp: each for tp, each in result.offsets.items() if each is not None}

    async def fetch_lags(self, groups: Iterable[GroupDescription]) -> dict[str, list[PartitionLag]]:
        """Returns the lag of every partition that a group has committed or is assigned."""
        listed = list(groups)
        offsets = await run_limited(
            self._limit, self.fetch_committed, [each.group for each in listed]
        )
        owners = [group_description.owner_by_partition(each.members or ()) for each in listed]
        starts, ends = await self.fetch_bounds(set().union(*offsets, *owners))
        return {
            each.group: group_description.compute_lags(committed, owned, starts, ends)
            for each, committed, owned in zip(listed, offsets, owners, strict=True)
        }

    async def fetch_bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Returns log start and end offsets, of partitions that exist and have a leader."""
        wanted = sorted(partitions)
        if not wanted:
            return {}, {}
        metadata = await self.fetch_metadata(each.topic for each in wanted)
        existing = [each for each in wanted if metadata.leader(each) is not None]
        starts, ends = await run_all(
            self.offsets_for_time(existing, which) for which in (EARLIEST, LATEST)
        )
        return (
            {tp: offset for tp, offset in starts.items() if offset is not None},
            {tp: offset for tp, offset in ends.items() if offset is not None},
        )

    async def offsets_for_time(
        self, partitions: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int | None]:
        """The first offset of each partition whose record is not older than a time."""
        found = await self._list_offsets(dict.fromkeys(partitions, time_ms))
        return {tp: None if each is None else each[0] for tp, each in found.items()}

    async def _list_offsets(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        if not times:
            return {}
        found = await list_offsets(self._client, times, deadline=self._deadline)
        return {
            tp: None if each is None or each.offset < 0 else (each.offset, each.timestamp)
            for tp, each in found.items()
        }

    async def add_ages(
        self, lags: Mapping[str, Sequence[PartitionLag]]
    ) -> dict[str, list[PartitionLag]]:
        """Adds the age of the first unread record, for the partitions with the largest lag."""
        behind = [
            (lag, group, each.partition, each)
            for group, listed in lags.items()
            for each in listed
            if (lag := each.lag) and lag > 0
        ]
        by_group: dict[str, list[PartitionLag]] = {}
        behind.sort(key=itemgetter(0, 1, 2), reverse=True)
        for _, group, _, each in behind[:MAX_AGE_LOOKUPS]:
            by_group.setdefault(group, []).append(each)
        ages = await run_limited(self._limit, self._find_ages, by_group.values())
        found = dict(zip(by_group, ages, strict=True))
        return {
            group: [replace(each, age_ms=known.get(each.partition)) for each in listed]
            for group, listed in lags.items()
            for known in (found.get(group, {}),)
        }

    async def _find_ages(self, lags: Sequence[PartitionLag]) -> dict[TopicPartition, int]:
        offsets = {each.partition: each.committed.offset for each in lags if each.committed}
        ends = {each.partition: each.log_end for each in lags if each.log_end is not None}
        now = time.time_ns() // 1_000_000
        try:
            return await find_ages(offsets, ends, now, self._list_offsets)
        except (Unreachable, Refused):  # the lag in records is still useful without ages
            return {}

    async def find_older(
        self, lags: Mapping[str, Sequence[PartitionLag]], age: int
    ) -> dict[str, list[TopicPartition]]:
        """Returns each group's partitions whose first unread record is older than ``age``
        milliseconds: the first of the partition where the group has committed nothing.
        """
        behind = [
            (group, each.partition, offset)
            for group, listed in lags.items()
            for each in listed
            if (offset := each.first_unread) is not None
        ]
        since = time.time_ns() // 1_000_000 - age
        first = await self.offsets_for_time({tp for _, tp, _ in behind}, since)
        found: dict[str, list[TopicPartition]] = {}
        for group, tp, offset in behind:
            newer = first[tp]
            if newer is None or newer > offset:
                found.setdefault(group, []).append(tp)
        return found

    async def describe_topics(self, names: Iterable[str]) -> ClusterMetadata:
        """Returns the metadata of topics; UnknownTopic names topics similar to the missing one."""
        wanted = sorted(set(names))
        metadata = await self.fetch_metadata(wanted)
        for name in wanted:
            topic = metadata.topics.get(name)
            number = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            code = parse_error_code(number)
            if code in {Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION}:
                every = await self._client.refresh(None, deadline=self._deadline)
                hint = _suggest(name, every.topics.keys() - {name})
                raise UnknownTopic(code, f"there is no topic {name!r}{hint}")
            if code:
                raise group_request_error(code, f"topic {name!r} cannot be looked at")
        return metadata

    async def fetch_metadata(self, names: Iterable[str]) -> ClusterMetadata:
        """Returns the metadata of topics; missing ones are left out or have an error code."""
        return await self._client.refresh(sorted(set(names)), deadline=self._deadline)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets a group's offsets from outside. GroupError names those that were not stored."""
        committed = {tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}
        request = requests.OffsetCommit(group=group, offsets=committed)
        result = await self._send(group, request, results.OffsetCommitResult)
        check_codes(result.codes, f"group {group!r}: not stored")

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Deletes groups without members. GroupError names those that were not deleted."""

        def delete(name: str) -> Awaitable[results.DeleteGroupsResult]:
            request = requests.DeleteGroups(groups=(name,))
            return self._send(name, request, results.DeleteGroupsResult)

        deleted = await run_limited(self._limit, delete, groups)
        codes = {name: code for each in deleted for name, code in each.codes.items()}
        check_codes(codes, "not deleted")

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes a group's offsets of partitions; no member may subscribe to their topics."""
        request = requests.OffsetDelete(group=group, partitions=tuple(partitions))
        result = await self._send(group, request, results.OffsetDeleteResult)
        if result.code:
            raise group_request_error(result.code, f"offsets of group {group!r} cannot be deleted")
        check_codes(result.codes, f"group {group!r}: not deleted")

    async def _send(
        self, to: str | BrokerMetadata, request: requests.GroupRequest, result_class: type[ResultT]
    ) -> ResultT:
        """Sends a request to the coordinator of a group, or to a broker."""
        api, message = group_requests.encode_group_request(request)
        deadline, most = self._deadline, group_requests.MAX_VERSIONS.get(api)
        if isinstance(to, str):
            response = await self._client.send_to_coordinator(to, api, message, deadline, most=most)
        else:
            response = await self._client.send(api, message, node=to.id, deadline=deadline)
        result = group_requests.decode_group_response(request, response)
        assert isinstance(result, result_class)
        return result


def _suggest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 3)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


MAX_ROUNDS = 22  # limit of lookups: enough for records of ten years, however they are distributed
AGE_TOLERANCE_MS = 1_000
AGE_TOLERANCE_DIVISOR = 50  # an age is precise within a second, or a fiftieth of itself
#: An offset and the timestamp of its record; None: there is no such record.
OffsetAndTimestamp: TypeAlias = tuple[int, int] | None

#: Finds the first record of each partition that is not older than a time.
AskOffsetsForTimes: TypeAlias = Callable[
    [Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, OffsetAndTimestamp]]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeSearch:
    """Bounds of the time of the newest record up to an offset, whatever the order of records."""

    offset: int
    now: int
    record_before: tuple[int, int]
    record_after: tuple[int, int]  # a record after the offset, with its timestamp: a hint
    latest_time: int  # upper bound of the timestamp
    rounds: int = 0

    @property
    def is_settled(self) -> bool:
        earliest = self.record_before[1]
        near = max(AGE_TOLERANCE_MS, (self.now - earliest) // AGE_TOLERANCE_DIVISOR)
        return self.latest_time - earliest <= near or self.rounds >= MAX_ROUNDS

    @property
    def age(self) -> int:
        return max(self.now - self.record_before[1], 0)

    @property
    def next_time(self) -> int:
        """The next time to look up: interpolated, or (every second time) a geometric mean."""
        (low, earliest), (high, later) = self.record_before, self.record_after
        youngest = max(self.now - self.latest_time, AGE_TOLERANCE_MS)
        guess = self.now - isqrt(youngest * (self.now - earliest))
        if self.rounds % 2 == 0 and high > low:
            guess = earliest + (later - earliest) * (self.offset - low) // (high - low)
        return min(max(guess, earliest + 1), self.latest_time)

    def with_result(self, time: int, found: OffsetAndTimestamp) -> AgeSearch:
        search = replace(self, rounds=self.rounds + 1)
        if found is None:
            return replace(search, latest_time=time - 1)
        offset, timestamp = found
        if offset > self.offset:
            return replace(search, latest_time=time - 1, record_after=found)
        if offset == self.offset:  # all records before it are older than the time
            return replace(search, record_before=found, latest_time=timestamp)
        return replace(search, record_before=found, latest_time=max(self.latest_time, timestamp))


async def find_ages(
    offsets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    now: int,
    ask: AskOffsetsForTimes,
) -> dict[TopicPartition, int]:
    """Ages in milliseconds of the first records at or after offsets, where they are known."""
    found: dict[TopicPartition, int] = {}
    searches: dict[TopicPartition, AgeSearch] = {}
    first = await ask({each: 0 for each in offsets if offsets[each] < ends[each]})
    for partition, oldest in first.items():
        offset = offsets[partition]
        if oldest is not None and oldest[0] >= offset:
            found[partition] = max(now - oldest[1], 0)
        elif oldest is not None:
            searches[partition] = AgeSearch(
                offset=offset,
                now=now,
                record_before=oldest,
                record_after=(ends[partition], now),
                latest_time=now,
            )
    while searches:
        unsettled = {tp: search for tp, search in searches.items() if not search.is_settled}
        found.update({tp: searches[tp].age for tp in searches.keys() - unsettled.keys()})
        times = {tp: search.next_time for tp, search in unsettled.items()}
        results = await ask(times) if times else {}
        searches = {
            tp: unsettled[tp].with_result(times[tp], results[tp])
            for tp in unsettled.keys() & results.keys()
        }
    return found
