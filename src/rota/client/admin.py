"""What an operator asks a cluster about its groups, and has it do to them."""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

from rota.client import overview
from rota.client.age import Found, ages
from rota.client.cluster import Client
from rota.client.group import MOST, code_of, from_wire, to_wire
from rota.client.metadata import Metadata, Node
from rota.client.offset import list_offsets
from rota.client.overview import CLASSIC, DEAD, Overview, Standing
from rota.client.race import run_all
from rota.client.reason import check, refused
from rota.errors import (
    Code,
    InputError,
    Refused,
    UnknownTopic,
    Unreachable,
)
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import (
    CommitReply,
    DeleteGroupsReply,
    DeleteOffsetsReply,
    DescribeGroupsReply,
    FetchOffsetsReply,
    ListedGroup,
    ListGroupsReply,
    Reply,
)
from rota.model.request import (
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    DescribeGroups,
    FetchOffsets,
    ListGroups,
    Request,
)
from rota.model.topic import TopicPartition
from rota.wire.api import Api
from rota.wire.message import ConsumerGroupDescribeRequest

AT_ONCE = 50
"""Requests under way."""
TOGETHER = 200
"""Groups in one request."""
MOST_AGES = 1_000
"""Partitions whose lag is looked up in time too, unless more are asked for."""
MODERN: Final = "consumer"
"""The type of groups that the broker assigns (KIP-848)."""
MOVED = frozenset(
    {Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR}
)
EARLIEST, LATEST = -2, -1
"""How ListOffsets is asked for the ends of a log."""

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The groups of a cluster, each where it was found."""

    groups: Mapping[str, tuple[ListedGroup, Node]]
    silent: tuple[str, ...] = ()
    """Why brokers that did not answer did not; their groups are missing."""


class Admin:
    """Looks at the groups of a cluster, and changes their offsets."""

    def __init__(self, client: Client, timeout: float) -> None:
        """:param timeout: seconds for each request"""
        self._client = client
        self._timeout = timeout
        self._room = asyncio.Semaphore(AT_ONCE)

    @property
    def _deadline(self) -> float:
        return self._client.deadline(self._timeout)

    # Groups

    async def listing(self) -> Listing:
        """The groups of all brokers: each has those that it coordinates.

        :raises Unreachable: no broker has answered
        """
        metadata = await self._client.refresh((), deadline=self._deadline)
        nodes = sorted(metadata.brokers.values())
        answers = await asyncio.gather(*map(self._listed_by, nodes), return_exceptions=True)
        groups: dict[str, tuple[ListedGroup, Node]] = {}
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
        return Listing(groups=dict(sorted(groups.items())), silent=tuple(silent))

    async def _listed_by(self, node: Node) -> tuple[ListedGroup, ...]:
        reply = cast(ListGroupsReply, await self._ask_node(node, ListGroups()))
        if reply.code:
            raise refused(reply.code, f"broker {node.id} does not list its groups")
        return reply.groups

    async def overviews(self, listing: Listing) -> list[Overview]:
        """All of them, by name."""
        lots: dict[tuple[Node, str], list[str]] = {}
        for listed, node in listing.groups.values():
            lots.setdefault((node, listed.kind or CLASSIC), []).append(listed.group)
        found = await self._all(
            lambda lot: self._described_by(*lot),
            [
                (node, kind, names[start : start + TOGETHER])
                for (node, kind), names in lots.items()
                for start in range(0, len(names), TOGETHER)
            ],
        )
        by_name = {each.group: each for lot in found for each in lot}
        return [
            by_name.get(name) or overview.listed(listed, node)
            for name, (listed, node) in listing.groups.items()
        ]

    async def _described_by(self, node: Node, kind: str, names: Sequence[str]) -> list[Overview]:
        where = f"{node.id} ({node.address})"
        if kind == CLASSIC:
            request = DescribeGroups(groups=tuple(names))
            reply = cast(DescribeGroupsReply, await self._ask_node(node, request))
            return [
                overview.classic(each, where)
                if each.code not in MOVED
                else await self.overview(each.group)
                for each in reply.groups
                if not each.code or each.code in MOVED
            ]
        if kind == MODERN:
            message = ConsumerGroupDescribeRequest(group_ids=list(names))
            sent = self._client.send(
                Api.CONSUMER_GROUP_DESCRIBE, message, node=node.id, deadline=self._deadline
            )
            try:
                response = await sent
            except Refused:
                return []
            return [overview.modern(each, where) for each in response.groups if not each.error_code]
        return []

    async def overview(self, group: str, *, otherwise: str = "") -> Overview:
        """One group, by name, from its coordinator.

        :param otherwise: what the error adds for a user who did not mean an existing group
        :raises InputError: there is none of this name; near ones are named
        :raises AuthorizationFailed: it must not be looked at
        """
        found = await self.look(group)
        if found is not None:
            return found
        groups = (await self.listing()).groups
        near = difflib.get_close_matches(group, groups, 3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        if not groups:
            hint = "; there are no groups at all, or none that may be seen"
        if otherwise:
            hint += f"{' ' if near else '; '}{otherwise}"
        raise InputError(f"there is no group {group!r}{hint}")

    async def look(self, group: str) -> Overview | None:
        """The same; None if there is no such group."""
        coordinator = await self._client.coordinator(group, self._deadline)
        where = f"{coordinator.node.id} ({coordinator.node.address})"
        reply = cast(DescribeGroupsReply, await self._ask(group, DescribeGroups(groups=(group,))))
        found = reply.groups[0]
        if not found.code and found.state != DEAD:
            return overview.classic(found, where)
        if found.code not in {Code.NONE, Code.GROUP_ID_NOT_FOUND}:
            raise refused(found.code, f"group {group!r} cannot be described")
        if (modern := await self._modern(group, where)) is not None:
            return modern
        listed = (await self.listing()).groups.get(group)
        return None if listed is None else overview.listed(*listed)

    async def _modern(self, group: str, where: str) -> Overview | None:
        message = ConsumerGroupDescribeRequest(group_ids=[group])
        try:
            response = await self._client.ask_coordinator(
                group, Api.CONSUMER_GROUP_DESCRIBE, message, self._deadline
            )
        except Refused:  # a broker without KIP-848 has none of its groups
            return None
        found = response.groups[0]
        if found.error_code in {Code.GROUP_ID_NOT_FOUND, Code.UNSUPPORTED_VERSION}:
            return None
        if found.error_code:
            raise refused(code_of(found.error_code), f"group {group!r} cannot be described")
        return overview.modern(found, where)

    # Offsets

    async def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """All that the group has committed."""
        reply = cast(FetchOffsetsReply, await self._ask(group, FetchOffsets(group=group)))
        if reply.code:
            raise refused(reply.code, f"the offsets of group {group!r} cannot be read")
        return {place: each for place, each in reply.offsets.items() if each is not None}

    async def standings(self, groups: Iterable[Overview]) -> dict[str, list[Standing]]:
        """How far groups are, in every partition that they have committed or that members have."""
        listed = list(groups)
        names = [each.group for each in listed]
        committed = dict(zip(names, await self._all(self.committed, names), strict=True))
        owned = {each.group: overview.owners(each.members or ()) for each in listed}
        places: set[TopicPartition] = set()
        places.update(*committed.values(), *owned.values())
        starts, ends = await self.bounds(places)
        return {
            each.group: overview.standings(committed[each.group], owned[each.group], starts, ends)
            for each in listed
        }

    async def bounds(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The first offset of each partition and the end, where it exists and has a leader."""
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

    async def at_time(
        self, partitions: Iterable[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int | None]:
        """The first offset of each partition whose record is of this time or later."""
        found = await self._listed_offsets(dict.fromkeys(partitions, time_ms))
        return {place: None if each is None else each[0] for place, each in found.items()}

    async def _listed_offsets(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Found]:
        if not times:
            return {}
        found = await list_offsets(self._client, times, deadline=self._deadline)
        return {
            place: None if each is None or each.offset < 0 else (each.offset, each.timestamp)
            for place, each in found.items()
        }

    async def aged(
        self, standings: Mapping[str, Sequence[Standing]], most: int = MOST_AGES
    ) -> dict[str, list[Standing]]:
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
        aged = await self._all(lambda group: self._ages(standings[group], lots[group]), lots)
        found = dict(zip(lots, aged, strict=True))
        return {
            group: [replace(each, age=found.get(group, {}).get(each.partition)) for each in listed]
            for group, listed in standings.items()
        }

    async def _ages(
        self, standings: Iterable[Standing], wanted: set[TopicPartition]
    ) -> dict[TopicPartition, int]:
        behind = {each.partition: each for each in standings if each.partition in wanted}
        offsets = {p: each.committed.offset for p, each in behind.items() if each.committed}
        ends = {p: each.end for p, each in behind.items() if each.end is not None}
        now = time.time_ns() // 1_000_000
        try:
            return await ages(offsets, ends, now, self._listed_offsets)
        except (Unreachable, Refused):  # the lag in records is known, and is worth to be told
            return {}

    async def older(
        self, standings: Mapping[str, Sequence[Standing]], age: int
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
        first = await self.at_time({place for _, place, _ in behind}, since)
        found: dict[str, list[TopicPartition]] = {}
        for group, place, offset in behind:
            newer = first[place]
            if newer is None or newer > offset:
                found.setdefault(group, []).append(place)
        return found

    # Topics

    async def topics(self, names: Iterable[str]) -> Metadata:
        """What is known of topics.

        :raises UnknownTopic: one does not exist; near ones are named
        :raises AuthorizationFailed: one must not be looked at
        """
        wanted = sorted(set(names))
        metadata = await self.known(wanted)
        for name in wanted:
            topic = metadata.topics.get(name)
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else code_of(topic.error)
            if code in {Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_TOPIC_EXCEPTION}:
                every = await self._client.refresh(None, deadline=self._deadline)
                near = difflib.get_close_matches(name, set(every.topics) - {name}, 3)
                hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
                raise UnknownTopic(code, f"there is no topic {name!r}{hint}")
            if code:
                raise refused(code, f"topic {name!r} cannot be looked at")
        return metadata

    async def known(self, names: Iterable[str]) -> Metadata:
        """What is known of topics, as far as there are such."""
        return await self._client.refresh(sorted(set(names)), deadline=self._deadline)

    # Changes

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets a group's offsets from outside; the group must have no members.

        :raises GroupError: not all were stored; the message names them and why
        """
        given = {place: OffsetAndMetadata(offset) for place, offset in offsets.items()}
        reply = cast(CommitReply, await self._ask(group, CommitOffsets(group=group, offsets=given)))
        check(reply.codes, f"group {group!r}: not stored")

    async def delete(self, groups: Iterable[str]) -> None:
        """Deletes groups and their offsets; they must have no members.

        :raises GroupError: not all were deleted; the message names them and why
        """
        replies = await self._all(
            lambda name: self._ask(name, DeleteGroups(groups=(name,))), list(groups)
        )
        codes: dict[str, Code] = {}
        for reply in replies:
            codes.update(cast(DeleteGroupsReply, reply).codes)
        check(codes, "not deleted")

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes what a group has committed for partitions; no member may subscribe to them.

        :raises GroupError: not all were deleted; the message names them and why
        """
        request = DeleteOffsets(group=group, partitions=tuple(partitions))
        reply = cast(DeleteOffsetsReply, await self._ask(group, request))
        if reply.code:
            raise refused(reply.code, f"offsets of group {group!r} cannot be deleted")
        check(reply.codes, f"group {group!r}: not deleted")

    # Requests

    async def _ask(self, group: str, request: Request) -> Reply:
        api, message = to_wire(request)
        response = await self._client.ask_coordinator(
            group, api, message, self._deadline, most=MOST.get(api)
        )
        return from_wire(request, response)

    async def _ask_node(self, node: Node, request: Request) -> Reply:
        api, message = to_wire(request)
        response = await self._client.send(api, message, node=node.id, deadline=self._deadline)
        return from_wire(request, response)

    async def _all(self, ask: Callable[[S], Awaitable[T]], about: Iterable[S]) -> list[T]:
        """Some at a time: a cluster may have thousands of groups."""

        async def in_turn(one: S) -> T:
            async with self._room:
                return await ask(one)

        return await run_all(in_turn(one) for one in about)
