"""Asks a cluster once about all of its groups: who is in them, what is committed, where logs end.

Groups are asked for in batches, at the brokers that list them, and only a few requests are under
way at a time: a survey is repeated for as long as somebody watches. If a group, broker or topic
does not answer, the survey names it and has the answers of all others.
"""

from __future__ import annotations

import asyncio
import fnmatch
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from rota.client import overview
from rota.client.admin import MODERN, Admin, Listing
from rota.client.cluster import Client
from rota.client.coordinator import name_of
from rota.client.group import MOST, from_wire, to_wire
from rota.client.metadata import Node
from rota.client.overview import CLASSIC
from rota.client.race import run_all
from rota.errors import AuthorizationFailed, Code, GroupError, Refused, RotaError, Unreachable
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import DescribedGroup, DescribeGroupsReply, FetchOffsetsReply
from rota.model.request import DescribeGroups, FetchOffsets
from rota.model.topic import TopicPartition
from rota.replay.classic import held
from rota.replay.fact import GenerationMember, Kind
from rota.replay.library import Signs, library
from rota.replay.sample import DEAD, Look, Sample, classic
from rota.wire.api import Api
from rota.wire.message import NO_ID, ConsumerGroupDescribeRequest, DescribeClusterRequest, Message

AT_ONCE = 8
"""Requests under way."""
TOGETHER = 100
"""Groups in one request."""
MANY_FROM = 8
"""The version of OffsetFetch from which on one request may name several groups."""
DESCRIBE = 1 << 8
"""The permission to describe, among those that a broker tells of."""
ACLS = (
    "Describe on the cluster (or on each group that is meant)",
    "Describe on the topics that groups have committed",
)
"""What a user of a secured cluster must be allowed."""

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All that was told."""

    look: Look
    ends: Mapping[TopicPartition, tuple[int | None, int]]
    """The first offset and the end of partitions."""
    topic_ids: Mapping[str, bytes]
    denied: Mapping[str, str]
    """Groups that may not be looked at, and what the broker says."""
    denied_topics: frozenset[str]
    troubles: tuple[str, ...]
    """Why something else is missing, this time."""
    others: frozenset[str]
    """Groups of kinds that do not share partitions: share groups, streams groups."""


@dataclass(slots=True)
class _Told:
    """What answers have told so far."""

    groups: dict[str, Sample] = field(default_factory=dict)
    offsets: dict[str, Mapping[TopicPartition, OffsetAndMetadata]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    denied: dict[str, str] = field(default_factory=dict)
    denied_topics: set[str] = field(default_factory=set)
    troubles: list[str] = field(default_factory=list)


class Surveyor:
    """Asks again and again, over connections that are kept."""

    def __init__(self, client: Client, globs: Sequence[str], timeout: float) -> None:
        """:param globs: only groups whose names are like one of these; none: all"""
        self._client = client
        self._admin = Admin(client, timeout)
        self._globs = globs
        self._timeout = timeout
        self._room = asyncio.Semaphore(AT_ONCE)
        self._read: dict[str, tuple[DescribedGroup, Sample]] = {}
        """What was last read of classic groups: most are the same the next time."""

    async def survey(self) -> Survey:
        """Asks for everything once.

        :raises Unreachable: no broker has answered
        """
        begun = _now()
        try:
            listing = await self._admin.listing()
        except AuthorizationFailed as error:
            raise Unreachable(f"{error}. A user needs {'; '.join(ACLS)}") from error
        except GroupError as error:  # a broker that has just come up
            raise Unreachable(str(error)) from error
        told = _Told(troubles=list(listing.silent))
        lots, others = self._lots(listing)
        await self._all(lambda lot: self._describe(told, *lot), lots)
        asked = [(node, [name for name in names if name in told.groups]) for node, _, names in lots]
        await self._all(lambda lot: self._fetch(told, *lot), [lot for lot in asked if lot[1]])
        ends, ids = await self._ends(told)
        self._read = {name: each for name, each in self._read.items() if name in told.groups}
        return Survey(
            look=Look(
                begun=begun,
                at=_now(),
                groups=told.groups,
                offsets=told.offsets,
                silent=told.silent | told.denied.keys(),
                complete=not listing.silent,
            ),
            ends=ends,
            topic_ids=ids,
            denied=told.denied,
            denied_topics=frozenset(told.denied_topics),
            troubles=tuple(dict.fromkeys(told.troubles)),
            others=frozenset(others),
        )

    async def check(self, survey: Survey) -> None:
        """Whether there is any sense in asking again.

        :raises Unreachable: nothing may be looked at; the message names what would be needed
        """
        if survey.look.groups or survey.look.silent - survey.denied.keys():
            return
        needed = f"To ask for groups a user needs {'; '.join(ACLS)}"
        denied = dict(survey.denied)
        for name in self._globs:
            if not set(name) & set("*?["):
                try:
                    await self._admin.look(name)
                except AuthorizationFailed as error:
                    denied[name] = str(error)
                except RotaError:
                    continue
        if denied:
            name, why = min(denied.items())
            raise Unreachable(f"group {name!r} may not be looked at: {why}. {needed}")
        if not await self._may_describe():
            raise Unreachable(f"no group may be looked at. {needed}")

    async def _may_describe(self) -> bool:
        """Whether all groups are listed; who may not describe the cluster sees those alone that
        it may describe. A broker that does not tell is believed to list all.
        """
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        deadline = self._client.deadline(self._timeout)
        try:
            answer = await self._client.send(Api.DESCRIBE_CLUSTER, request, deadline=deadline)
        except RotaError:
            return True
        told: int = answer.cluster_authorized_operations
        return told < 0 or bool(told & DESCRIBE)

    def _lots(self, listing: Listing) -> tuple[list[tuple[Node, str, tuple[str, ...]]], list[str]]:
        """What to ask which broker for, and groups that are not asked for."""
        lots: dict[tuple[Node, str], list[str]] = {}
        others = []
        for name, (listed, node) in listing.groups.items():
            if self._globs and not any(fnmatch.fnmatchcase(name, glob) for glob in self._globs):
                continue
            kind = listed.kind or CLASSIC
            if kind in {CLASSIC, MODERN}:
                lots.setdefault((node, kind), []).append(name)
            else:
                others.append(name)
        found = [
            (node, kind, names)
            for (node, kind), all_names in lots.items()
            for names in (
                tuple(all_names[start : start + TOGETHER])
                for start in range(0, len(all_names), TOGETHER)
            )
        ]
        return found, others

    async def _describe(self, told: _Told, node: Node, kind: str, names: Sequence[str]) -> None:
        told.silent.update(names)
        try:
            if kind == CLASSIC:
                await self._classic(told, node, names)
            else:
                await self._modern(told, node, names)
        except (Unreachable, Refused) as error:
            told.troubles.append(str(error))
        told.silent -= told.groups.keys() | told.denied.keys()

    async def _classic(self, told: _Told, node: Node, names: Sequence[str]) -> None:
        request = DescribeGroups(groups=tuple(names))
        api, message = to_wire(request)
        reply = cast(DescribeGroupsReply, from_wire(request, await self._ask(node, api, message)))
        for found in reply.groups:
            if found.code:
                _refuse(told, found.group, found.code)
            elif found.state != DEAD:  # else it is of the other kind by now, or gone
                known = self._read.get(found.group)
                if known is None or known[0] != found:
                    known = self._read[found.group] = found, classic(found)
                told.groups[found.group] = known[1]

    async def _modern(self, told: _Told, node: Node, names: Sequence[str]) -> None:
        message = ConsumerGroupDescribeRequest(group_ids=list(names))
        answer = await self._ask(node, Api.CONSUMER_GROUP_DESCRIBE, message)
        for found in answer.groups:
            if found.error_code:
                _refuse(told, found.group_id, found.error_code)
            else:
                told.groups[found.group_id] = modern(found)

    async def _fetch(self, told: _Told, node: Node, names: Sequence[str]) -> None:
        """What groups have committed."""
        deadline = self._client.deadline(self._timeout)
        try:
            connection = await self._client.connect(node.id, deadline=deadline)
            offered = connection.versions.get(Api.OFFSET_FETCH)
            many = offered is not None and offered.high >= MANY_FROM
            for lot in [names] if many else [[name] for name in names]:
                await self._fetch_together(told, node, lot)
        except (Unreachable, Refused) as error:
            told.troubles.append(str(error))

    async def _fetch_together(self, told: _Told, node: Node, names: Sequence[str]) -> None:
        requests = [FetchOffsets(group=name) for name in names]
        api, message = to_wire(requests[0])
        message.groups = [to_wire(each)[1].groups[0] for each in requests]
        answer = await self._ask(node, api, message)
        for request in requests:
            reply = cast(FetchOffsetsReply, from_wire(request, answer))
            if reply.code:
                _refuse(told, request.group, reply.code)
            elif not reply.codes:  # else it is not known which offsets are there
                told.offsets[request.group] = {
                    place: each for place, each in reply.offsets.items() if each is not None
                }

    async def _ends(
        self, told: _Told
    ) -> tuple[dict[TopicPartition, tuple[int | None, int]], dict[str, bytes]]:
        """Where the partitions begin and end that anybody has committed or has."""
        places: set[TopicPartition] = set()
        places.update(*told.offsets.values())
        for sample in told.groups.values():
            for member in sample.members:
                for topic, numbers in (*member.assigned.items(), *member.owned.items()):
                    places.update(TopicPartition(topic, number) for number in numbers)
        if not places:
            return {}, {}
        try:
            starts, ends = await self._admin.bounds(places)
        except (Unreachable, Refused) as error:
            told.troubles.append(str(error))
            return {}, {}
        known = self._client.metadata.topics
        for topic in sorted({place.topic for place in places}):
            code = known[topic].error if topic in known else Code.NONE
            if code == Code.TOPIC_AUTHORIZATION_FAILED:
                told.denied_topics.add(topic)
        ids = {name: each.id for name, each in known.items() if each.id != NO_ID}
        return {place: (starts.get(place), end) for place, end in ends.items()}, ids

    async def _ask(self, node: Node, api: Api, message: Message) -> Message:
        deadline = self._client.deadline(self._timeout)
        return await self._client.send(
            api, message, node=node.id, deadline=deadline, most=MOST.get(api)
        )

    async def _all(self, ask: Callable[[S], Awaitable[None]], about: Iterable[S]) -> None:
        async def in_turn(one: S) -> None:
            async with self._room:
                await ask(one)

        await run_all(in_turn(one) for one in about)


def _refuse(told: _Told, group: str, code: int) -> None:
    if code == Code.GROUP_AUTHORIZATION_FAILED:
        told.denied[group] = name_of(code)
    elif code != Code.GROUP_ID_NOT_FOUND:
        told.troubles.append(f"group {group!r}: {name_of(code)}")


def modern(found: Message) -> Sample:
    """A consumer group out of ConsumerGroupDescribe (KIP-848); its times are to be told.

    The topics of one who subscribes by a pattern are those that the group has been given: the
    broker tells the pattern alone.
    """
    seen = overview.modern(found, "")
    hosts = {each.member_id: each.client_host for each in found.members}
    members = seen.members or ()
    matched = {topic for each in members for topic in (each.target or each.assigned).names}
    return Sample(
        group=seen.group,
        at=0,
        kind=Kind.CONSUMER,
        state=seen.state,
        protocol_type=seen.protocol_type,
        strategy=seen.strategy or None,
        epoch=seen.epoch,
        members=tuple(
            GenerationMember(
                member_id=each.id,
                static_id=each.static_id,
                client_id=each.client_id,
                client_host=hosts[each.id],
                rack=each.rack,
                topics=tuple(sorted({*each.topics, *(matched if each.pattern else ())})),
                owned=held(each.assigned),
                owned_generation=each.generation,
                assigned=held(each.assigned if each.target is None else each.target),
                library=library(
                    Signs(group=seen.group, client_id=each.client_id, static_id=each.static_id)
                ),
            )
            for each in sorted(members, key=lambda each: each.id)
        ),
    )


def _now() -> int:
    return time.time_ns() // 1_000_000
