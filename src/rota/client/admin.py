"""Administration of groups: lists and describes them, computes their lag, changes and deletes their
offsets.

The second half finds the age of the first unread record of a partition with ListOffsets alone.
ListOffsets returns the first offset whose timestamp is at or after a given time, so the time of the
record at an offset is found by bisection. A few rounds are enough. Each is one request to each
leader, for all partitions together; fetching the records would take one large response for each
partition.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Final, TypeAlias, TypeVar, cast

from rota.client import group_description
from rota.client.cluster import ClusterClient
from rota.client.group_description import CLASSIC, DEAD, GroupDescription, PartitionLag
from rota.client.group_requests import (
    MAX_VERSIONS,
    check_codes,
    decode_group_response,
    encode_group_request,
    group_request_error,
    parse_error_code,
)
from rota.client.metadata import BrokerMetadata, ClusterMetadata
from rota.client.offsets import list_offsets
from rota.client.retry import run_all
from rota.engine.model.request import (
    DeleteGroups,
    DescribeGroups,
    GroupRequest,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
)
from rota.engine.model.response import (
    DeleteGroupsResult,
    DescribeGroupsResult,
    GroupResponse,
    ListedGroup,
    ListGroupsResult,
    OffsetCommitResult,
    OffsetDeleteResult,
    OffsetFetchResult,
)
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code, InputError, Refused, UnknownTopic, Unreachable
from rota.protocol.messages import Api, ConsumerGroupDescribeRequest

#: Requests under way.
MAX_IN_FLIGHT = 50

#: Groups in one request.
GROUPS_PER_REQUEST = 200

#: Partitions whose lag is looked up in time too, unless more are asked for.
MAX_AGE_LOOKUPS = 1_000

#: The type of groups that the broker assigns (KIP-848).
CONSUMER_GROUP_TYPE: Final = "consumer"

COORDINATOR_CODES = frozenset(
    {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR}
)

#: How ListOffsets is asked for the ends of a log.
EARLIEST, LATEST = -2, -1

S = TypeVar("S")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """The groups of a cluster, each where it was found."""

    groups: Mapping[str, tuple[ListedGroup, BrokerMetadata]]
    #: Why brokers that did not answer did not; their groups are missing.
    unanswered: tuple[str, ...] = ()


class Admin:
    """Describes the groups of a cluster, and changes their offsets."""

    def __init__(self, client: ClusterClient, timeout: float) -> None:
        """:param timeout: seconds for each request"""
        self._client = client
        self._timeout = timeout
        self._in_flight_limit = asyncio.Semaphore(MAX_IN_FLIGHT)

    @property
    def _deadline(self) -> float:
        return self._client.deadline_after(self._timeout)

    # Groups

    async def list_groups(self) -> GroupList:
        """Lists the groups of all brokers; each broker lists those that it coordinates.

        :raises Unreachable: no broker has answered
        """
        metadata = await self._client.refresh((), deadline=self._deadline)
        nodes = sorted(metadata.brokers.values())
        answers = await asyncio.gather(*map(self._listed_by, nodes), return_exceptions=True)
        groups: dict[str, tuple[ListedGroup, BrokerMetadata]] = {}
        silent: list[str] = []
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, Unreachable):
                silent.append(str(answer))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                groups.update({each.group: (each, node) for each in answer})
        if len(silent) == len(nodes):
            raise Unreachable("; ".join(silent) or "the cluster names no brokers")
        return GroupList(groups=dict(sorted(groups.items())), unanswered=tuple(silent))

    async def _listed_by(self, node: BrokerMetadata) -> tuple[ListedGroup, ...]:
        reply = cast(ListGroupsResult, await self._ask_node(node, ListGroups()))
        if reply.code:
            raise group_request_error(reply.code, f"broker {node.id} does not list its groups")
        return reply.groups

    async def describe_groups(self, listing: GroupList) -> list[GroupDescription]:
        """All of them, by name."""
        lots: dict[tuple[BrokerMetadata, str], list[str]] = {}
        for listed, node in listing.groups.values():
            lots.setdefault((node, listed.group_type or CLASSIC), []).append(listed.group)
        found = await self._run_limited(
            lambda lot: self._described_by(*lot),
            [
                (node, kind, names[start : start + GROUPS_PER_REQUEST])
                for (node, kind), names in lots.items()
                for start in range(0, len(names), GROUPS_PER_REQUEST)
            ],
        )
        by_name = {each.group: each for lot in found for each in lot}
        return [
            by_name.get(name) or group_description.describe_listed_group(listed, node)
            for name, (listed, node) in listing.groups.items()
        ]

    async def _described_by(
        self, node: BrokerMetadata, kind: str, names: Sequence[str]
    ) -> list[GroupDescription]:
        where = f"{node.id} ({node.address})"
        if kind == CLASSIC:
            request = DescribeGroups(groups=tuple(names))
            reply = cast(DescribeGroupsResult, await self._ask_node(node, request))
            return [
                group_description.describe_classic_group(each, where)
                if each.code not in COORDINATOR_CODES
                else await self.describe_group(each.group)
                for each in reply.groups
                if not each.code or each.code in COORDINATOR_CODES
            ]
        if kind == CONSUMER_GROUP_TYPE:
            message = ConsumerGroupDescribeRequest(group_ids=list(names))
            sent = self._client.send(
                Api.CONSUMER_GROUP_DESCRIBE, message, node=node.id, deadline=self._deadline
            )
            try:
                response = await sent
            except Refused:
                return []
            return [
                group_description.describe_consumer_group(each, where)
                for each in response.groups
                if not each.error_code
            ]
        return []

    async def describe_group(self, group: str, *, otherwise: str = "") -> GroupDescription:
        """One group, by name, from its coordinator.

        :param otherwise: what the error adds for a user who did not mean an existing group
        :raises InputError: there is none of this name; near ones are named
        :raises AuthorizationFailed: it must not be looked at
        """
        found = await self.find_group(group)
        if found is not None:
            return found
        groups = (await self.list_groups()).groups
        near = difflib.get_close_matches(group, groups, 3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        if not groups:
            hint = "; there are no groups at all, or none that may be seen"
        if otherwise:
            hint += f"{' ' if near else '; '}{otherwise}"
        raise InputError(f"there is no group {group!r}{hint}")

    async def find_group(self, group: str) -> GroupDescription | None:
        """Describes one group, from its coordinator; None if it does not exist."""
        coordinator = await self._client.find_coordinator(group, self._deadline)
        where = f"{coordinator.node.id} ({coordinator.node.address})"
        reply = cast(
            DescribeGroupsResult,
            await self._ask_coordinator(group, DescribeGroups(groups=(group,))),
        )
        found = reply.groups[0]
        if not found.code and found.state != DEAD:
            return group_description.describe_classic_group(found, where)
        if found.code not in {Code.NONE, Code.GROUP_ID_NOT_FOUND}:
            raise group_request_error(found.code, f"group {group!r} cannot be described")
        if (modern := await self._describe_consumer_group(group, where)) is not None:
            return modern
        listed = (await self.list_groups()).groups.get(group)
        return None if listed is None else group_description.describe_listed_group(*listed)

    async def _describe_consumer_group(self, group: str, where: str) -> GroupDescription | None:
        message = ConsumerGroupDescribeRequest(group_ids=[group])
        try:
            response = await self._client.send_to_coordinator(
                group, Api.CONSUMER_GROUP_DESCRIBE, message, self._deadline
            )
        except Refused:  # a broker without KIP-848 has none of its groups
            return None
        found = response.groups[0]
        if found.error_code in {Code.GROUP_ID_NOT_FOUND, Code.UNSUPPORTED_VERSION}:
            return None
        if found.error_code:
            raise group_request_error(
                parse_error_code(found.error_code), f"group {group!r} cannot be described"
            )
        return group_description.describe_consumer_group(found, where)

    # Offsets

    async def fetch_committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """All that the group has committed."""
        reply = cast(
            OffsetFetchResult, await self._ask_coordinator(group, OffsetFetch(group=group))
        )
        if reply.code:
            raise group_request_error(reply.code, f"the offsets of group {group!r} cannot be read")
        return {place: each for place, each in reply.offsets.items() if each is not None}

    async def fetch_lags(self, groups: Iterable[GroupDescription]) -> dict[str, list[PartitionLag]]:
        """Returns the lag of every partition that a group has committed or is assigned."""
        listed = list(groups)
        names = [each.group for each in listed]
        committed = dict(
            zip(names, await self._run_limited(self.fetch_committed, names), strict=True)
        )
        owned = {
            each.group: group_description.owner_by_partition(each.members or ()) for each in listed
        }
        places: set[TopicPartition] = set()
        places.update(*committed.values(), *owned.values())
        starts, ends = await self.fetch_bounds(places)
        return {
            each.group: group_description.compute_lags(
                committed[each.group], owned[each.group], starts, ends
            )
            for each in listed
        }

    async def fetch_bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Returns log start and end offsets, of partitions that exist and have a leader."""
        wanted = sorted(partitions)
        if not wanted:
            return {}, {}
        metadata = await self._client.refresh(
            sorted({each.topic for each in wanted}), deadline=self._deadline
        )
        there = [each for each in wanted if metadata.leader(each) is not None]
        starts, ends = await run_all(
            self._listed_offsets(dict.fromkeys(there, which)) for which in (EARLIEST, LATEST)
        )
        return (
            {place: found[0] for place, found in starts.items() if found is not None},
            {place: found[0] for place, found in ends.items() if found is not None},
        )

    async def offsets_for_time(
        self, partitions: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int | None]:
        """The first offset of each partition whose record is of this time or later."""
        found = await self._listed_offsets(dict.fromkeys(partitions, time_ms))
        return {place: None if each is None else each[0] for place, each in found.items()}

    async def _listed_offsets(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        if not times:
            return {}
        found = await list_offsets(self._client, times, deadline=self._deadline)
        return {
            place: None if each is None or each.offset < 0 else (each.offset, each.timestamp)
            for place, each in found.items()
        }

    async def add_ages(
        self, standings: Mapping[str, Sequence[PartitionLag]], most: int = MAX_AGE_LOOKUPS
    ) -> dict[str, list[PartitionLag]]:
        """The same with the age of the first unread record, for those with the largest lag."""
        lags = [
            (standing.lag, group, standing.partition)
            for group, listed in standings.items()
            for standing in listed
            if standing.lag and standing.lag > 0
        ]
        lots: dict[str, set[TopicPartition]] = {}
        for _, group, place in sorted(lags, reverse=True)[:most]:
            lots.setdefault(group, set()).add(place)
        aged = await self._run_limited(
            lambda group: self._ages(standings[group], lots[group]), lots
        )
        found = dict(zip(lots, aged, strict=True))
        return {
            group: [
                replace(each, age_ms=found.get(group, {}).get(each.partition)) for each in listed
            ]
            for group, listed in standings.items()
        }

    async def _ages(
        self, standings: Iterable[PartitionLag], wanted: set[TopicPartition]
    ) -> dict[TopicPartition, int]:
        behind = {each.partition: each for each in standings if each.partition in wanted}
        offsets = {p: each.committed.offset for p, each in behind.items() if each.committed}
        ends = {p: each.log_end for p, each in behind.items() if each.log_end is not None}
        now = time.time_ns() // 1_000_000
        try:
            return await find_ages(offsets, ends, now, self._listed_offsets)
        except (Unreachable, Refused):  # the lag in records is known, and is worth to be told
            return {}

    async def find_older(
        self, standings: Mapping[str, Sequence[PartitionLag]], age: int
    ) -> dict[str, list[TopicPartition]]:
        """The partitions of each group whose first unread record is older than ``age``.

        One lookup answers for all groups and partitions. Where a group has committed nothing, the
        first record of the partition counts as unread.

        :param age: milliseconds
        """
        behind = [
            (group, each.partition, offset)
            for group, listed in standings.items()
            for each in listed
            if (offset := each.first_unread) is not None
        ]
        since = time.time_ns() // 1_000_000 - age
        first = await self.offsets_for_time({place for _, place, _ in behind}, since)
        found: dict[str, list[TopicPartition]] = {}
        for group, place, offset in behind:
            newer = first[place]
            if newer is None or newer > offset:
                found.setdefault(group, []).append(place)
        return found

    # Topics

    async def describe_topics(self, names: Iterable[str]) -> ClusterMetadata:
        """What is known of topics.

        :raises UnknownTopic: one does not exist; near ones are named
        :raises AuthorizationFailed: one must not be looked at
        """
        wanted = sorted(set(names))
        metadata = await self.fetch_metadata(wanted)
        for name in wanted:
            topic = metadata.topics.get(name)
            code = (
                Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else parse_error_code(topic.error)
            )
            if code in {Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION}:
                every = await self._client.refresh(None, deadline=self._deadline)
                near = difflib.get_close_matches(name, set(every.topics) - {name}, 3)
                hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
                raise UnknownTopic(code, f"there is no topic {name!r}{hint}")
            if code:
                raise group_request_error(code, f"topic {name!r} cannot be looked at")
        return metadata

    async def fetch_metadata(self, names: Iterable[str]) -> ClusterMetadata:
        """Returns the metadata of topics; missing ones are left out or have an error code."""
        return await self._client.refresh(sorted(set(names)), deadline=self._deadline)

    # Changes

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets a group's offsets from outside; the group must have no members.

        :raises GroupError: not all were stored; the message names them and why
        """
        given = {place: OffsetAndMetadata(offset) for place, offset in offsets.items()}
        reply = cast(
            OffsetCommitResult,
            await self._ask_coordinator(group, OffsetCommit(group=group, offsets=given)),
        )
        check_codes(reply.codes, f"group {group!r}: not stored")

    async def delete_groups(self, groups: Iterable[str]) -> None:
        """Deletes groups and their offsets; they must have no members.

        :raises GroupError: not all were deleted; the message names them and why
        """
        replies = await self._run_limited(
            lambda name: self._ask_coordinator(name, DeleteGroups(groups=(name,))), list(groups)
        )
        codes: dict[str, Code] = {}
        for reply in replies:
            codes.update(cast(DeleteGroupsResult, reply).codes)
        check_codes(codes, "not deleted")

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes what a group has committed for partitions; no member may subscribe to them.

        :raises GroupError: not all were deleted; the message names them and why
        """
        request = OffsetDelete(group=group, partitions=tuple(partitions))
        reply = cast(OffsetDeleteResult, await self._ask_coordinator(group, request))
        if reply.code:
            raise group_request_error(reply.code, f"offsets of group {group!r} cannot be deleted")
        check_codes(reply.codes, f"group {group!r}: not deleted")

    # Requests

    async def _ask_coordinator(self, group: str, request: GroupRequest) -> GroupResponse:
        api, message = encode_group_request(request)
        response = await self._client.send_to_coordinator(
            group, api, message, self._deadline, most=MAX_VERSIONS.get(api)
        )
        return decode_group_response(request, response)

    async def _ask_node(self, node: BrokerMetadata, request: GroupRequest) -> GroupResponse:
        api, message = encode_group_request(request)
        response = await self._client.send(api, message, node=node.id, deadline=self._deadline)
        return decode_group_response(request, response)

    async def _run_limited(self, ask: Callable[[S], Awaitable[T]], about: Iterable[S]) -> list[T]:
        """Runs a limited number of requests at a time: a cluster may have thousands of groups."""

        async def in_turn(one: S) -> T:
            async with self._in_flight_limit:
                return await ask(one)

        return await run_all(in_turn(one) for one in about)


#: Of questions, at most: enough for records of ten years, however they lie.
MAX_ROUNDS = 22

AGE_TOLERANCE_MS = 1_000

#: An age is near enough within a second, or within a fiftieth of itself.
AGE_TOLERANCE_DIVISOR = 50

#: An offset and the time of its record; None: there is no such record.
OffsetAndTimestamp: TypeAlias = tuple[int, int] | None

#: The first record of each partition that is of this time or later.
AskOffsetsForTimes: TypeAlias = Callable[
    [Mapping[TopicPartition, int]], Awaitable[Mapping[TopicPartition, OffsetAndTimestamp]]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeSearch:
    """Between which times the newest record up to an offset is; out-of-order ones count as new as
    the newest before them.
    """

    offset: int
    now: int
    #: A record up to the offset, and its time.
    record_before: tuple[int, int]
    #: One behind the offset, and its time: a hint where to look, no more.
    record_after: tuple[int, int]
    #: It is not newer than that.
    latest_time: int
    rounds: int = 0

    @property
    def is_settled(self) -> bool:
        """Is it known well enough?"""
        earliest = self.record_before[1]
        near = max(AGE_TOLERANCE_MS, (self.now - earliest) // AGE_TOLERANCE_DIVISOR)
        return self.latest_time - earliest <= near or self.rounds >= MAX_ROUNDS

    @property
    def age(self) -> int:
        """How old the record is, or a little more."""
        return max(self.now - self.record_before[1], 0)

    @property
    def next_time(self) -> int:
        """The next time to ask for: by the rate of records, and every other time in the middle
        between the ages that it can have, which ends it whatever the rate is.
        """
        (low, earliest), (high, later) = self.record_before, self.record_after
        guess = self.now - isqrt(
            max(self.now - self.latest_time, AGE_TOLERANCE_MS) * (self.now - earliest)
        )
        if self.rounds % 2 == 0 and high > low:
            guess = earliest + (later - earliest) * (self.offset - low) // (high - low)
        return min(max(guess, earliest + 1), self.latest_time)

    def with_answer(self, time: int, found: OffsetAndTimestamp) -> AgeSearch:
        """What is known after an answer."""
        asked = replace(self, rounds=self.rounds + 1)
        if found is None:
            return replace(asked, latest_time=time - 1)
        offset, stamp = found
        if offset > self.offset:
            return replace(asked, latest_time=time - 1, record_after=found)
        if offset == self.offset:  # all before it are older than what was asked for
            return replace(asked, record_before=found, latest_time=stamp)
        return replace(asked, record_before=found, latest_time=max(self.latest_time, stamp))


async def find_ages(
    offsets: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    now: int,
    ask: AskOffsetsForTimes,
) -> dict[TopicPartition, int]:
    """Returns the age in milliseconds of the first record at or after an offset, by partition.

    Partitions without such a record, or whose records have no timestamps, are left out.
    """
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
        open_ones = {each: one for each, one in searches.items() if not one.is_settled}
        found.update({each: searches[each].age for each in searches.keys() - open_ones.keys()})
        asked = {partition: search.next_time for partition, search in open_ones.items()}
        answers = await ask(asked) if asked else {}
        searches = {
            partition: open_ones[partition].with_answer(asked[partition], answers[partition])
            for partition in open_ones.keys() & answers.keys()
        }
    return found
