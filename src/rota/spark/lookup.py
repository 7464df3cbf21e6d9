"""The driver's questions to a cluster: which partitions there are, where they begin and end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from rota.client.admin import Admin
from rota.client.cluster import Client
from rota.client.metadata import Metadata
from rota.client.offset import EARLIEST, LATEST, ListedOffset, list_offsets
from rota.errors import AuthorizationFailed, Code, InputError, UnknownTopic, Unreachable
from rota.model.offset import OffsetAndMetadata
from rota.model.text import nearest
from rota.model.topic import TopicPartition
from rota.spark import pattern, query, spec
from rota.spark.loss import LOGGER
from rota.spark.query import Options, Where

Offsets = dict[TopicPartition, int]
Listed = dict[TopicPartition, ListedOffset | None]
T = TypeVar("T")
NEW = 1.0
"""Seconds for which it is believed that topics that were there still are."""


class Lookup:
    """Asks, and waits for the answer. Connections stay open until :meth:`close`."""

    def __init__(self, options: Options) -> None:
        """Nothing is opened yet."""
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._client: Client | None = None
        self._looked = -NEW
        """When the topics were looked at, by the loop's clock."""

    def partitions(self) -> list[TopicPartition]:
        """What the query reads, as far as it exists now.

        :raises UnknownTopic: a topic or a partition that it names does not exist
        :raises AuthorizationFailed: one may not be read
        """
        return self._ask(self._partitions)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where they begin; those that there are not are left out."""
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where they end: with ``read_committed``, where the first open transaction begins. Those
        that there are not are left out.
        """
        return self._list(dict.fromkeys(partitions, LATEST))

    def offsets(
        self, where: Where, partitions: Iterable[TopicPartition], *, ending: bool = False
    ) -> Offsets:
        """The offsets that an option means, for all of these partitions.

        :param ending: a time that no record has reached is the end, whatever was asked for
        :raises InputError: the option does not fit to the partitions that there are
        """
        every = list(partitions)
        match where:
            case query.Earliest():
                return self.earliest(every)
            case query.Latest():
                return self.latest(every)
            case query.Committed(group):
                return self._committed(group, every)
            case query.Given(name, given):
                _check_same(name, given, every)
                return self._given(given)
            case query.At(name, moment):
                return self._by_time(name, dict.fromkeys(every, moment), ending=ending)
            case query.AtEach(name, times):
                _check_same(name, times, every)
                return self._by_time(name, times, ending=ending)

    def close(self) -> None:
        """Closes the connections."""
        if self._client is not None:
            self._loop.run_until_complete(self._client.close())
            self._client = None
        if not self._loop.is_closed():
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    def __enter__(self) -> Lookup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _given(self, given: Mapping[TopicPartition, int]) -> Offsets:
        """-1 and -2 stand for the ends of a partition."""
        open_ones = {each: offset for each, offset in given.items() if offset < 0}
        return dict(given) | self._list(open_ones)

    def _committed(self, group: str, partitions: list[TopicPartition]) -> Offsets:
        async def ask(client: Client, timeout: float) -> dict[TopicPartition, OffsetAndMetadata]:
            return await Admin(client, timeout).committed(group)

        found = self._ask(ask)
        known = {each: found[each].offset for each in partitions if each in found}
        fresh = [each for each in partitions if each not in known]
        if fresh:
            LOGGER.warning(
                "group %r has committed nothing for %s: read from the beginning",
                group,
                spec.named(fresh),
            )
        return known | self.earliest(fresh)

    def _by_time(self, name: str, times: Mapping[TopicPartition, int], *, ending: bool) -> Offsets:
        found = self._listed(times)
        late = [each for each, listed in found.items() if listed is None]
        if late and not ending and not self._options.late_is_latest:
            raise InputError(
                f"{name}: no record of {spec.named(late)} is as young as that; with "
                "startingOffsetsByTimestampStrategy=latest they are read from their ends"
            )
        known = {each: listed.offset for each, listed in found.items() if listed is not None}
        return known | self.latest(late)

    def _list(self, targets: Mapping[TopicPartition, int]) -> Offsets:
        found = self._listed(targets)
        return {each: listed.offset for each, listed in found.items() if listed is not None}

    def _listed(self, targets: Mapping[TopicPartition, int]) -> Listed:
        """None: no record is as young as that. Partitions that there are not are left out."""
        if not targets:
            return {}
        isolation = self._options.read.isolation

        async def ask(client: Client, timeout: float) -> Listed:
            deadline = client.deadline(timeout)
            metadata = await self._known(client, {each.topic for each in targets}, deadline)
            there = {
                each: what for each, what in targets.items() if metadata.partition(each) is not None
            }
            return await list_offsets(client, there, isolation=isolation, deadline=deadline)

        return self._ask(ask)

    async def _known(self, client: Client, topics: set[str], deadline: float) -> Metadata:
        """What is known of topics: who waits for the offsets of one that is gone waits long."""
        new = self._loop.time() - self._looked < NEW
        if new and topics <= client.metadata.topics.keys():
            return client.metadata
        return await client.refresh(topics, deadline=deadline)

    async def _partitions(self, client: Client, timeout: float) -> list[TopicPartition]:
        deadline = client.deadline(timeout)
        self._looked = self._loop.time()
        match self._options.subscription:
            case query.Partitions(partitions):
                wanted = {each.topic for each in partitions}
                counts = await _counts(client, wanted, deadline)
                gone = [each for each in partitions if each.partition >= counts[each.topic]]
                if gone:
                    there = ", ".join(f"{name} has {counts[name]}" for name, _ in gone[:1])
                    raise UnknownTopic(
                        Code.UNKNOWN_TOPIC_OR_PARTITION,
                        f"assign: there is no partition {spec.named(gone)}: {there}",
                    )
                return sorted(partitions)
            case query.Topics(names):
                counts = await _counts(client, set(names), deadline)
            case query.Pattern(text, internal):
                like = pattern.compiled("subscribePattern", text)
                metadata = await client.refresh(None, deadline=deadline)
                counts = {
                    name: len(each.partitions)
                    for name, each in metadata.topics.items()
                    if like.search(name) and (internal or not each.internal) and not each.error
                }
        return [
            TopicPartition(name, number)
            for name, count in sorted(counts.items())
            for number in range(count)
        ]

    def _ask(self, ask: Callable[[Client, float], Awaitable[T]]) -> T:
        """Several tries, as the options say; one has ``default.api.timeout.ms``."""
        options = self._options
        timeout = options.client.api_timeout / 1000
        for attempt in range(1, options.tries + 1):
            try:
                return self._loop.run_until_complete(self._with_client(ask, timeout))
            except (Unreachable, UnknownTopic):
                if attempt == options.tries:
                    raise
                time.sleep(options.pause / 1000)
        raise AssertionError("there is at least one try")

    async def _with_client(self, ask: Callable[[Client, float], Awaitable[T]], timeout: float) -> T:
        if self._client is None:
            self._client = Client(self._options.client)
        return await ask(self._client, timeout)


async def _counts(client: Client, names: set[str], deadline: float) -> dict[str, int]:
    """How many partitions these topics have."""
    if not names:
        return {}
    metadata = await client.refresh(names, deadline=deadline)
    counts = {}
    for name in sorted(names):
        topic = metadata.topics.get(name)
        code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            every = await client.refresh(None, deadline=deadline)
            near = nearest(name, sorted(every.topics.keys() - {name}))
            raise UnknownTopic(Code(code), f"there is no topic {name!r}{near}")
        _check_topic(name, code)
        counts[name] = 0 if topic is None else len(topic.partitions)
    return counts


def _check_topic(name: str, error: int) -> None:
    match error:
        case Code.NONE:
            return
        case Code.TOPIC_AUTHORIZATION_FAILED:
            raise AuthorizationFailed(
                Code.TOPIC_AUTHORIZATION_FAILED, f"no permission for topic {name!r}"
            )
        case Code.INVALID_TOPIC_EXCEPTION:
            raise InputError(f"subscribe: {name!r} is no name that a topic can have")
        case _:
            raise Unreachable(f"topic {name!r} cannot be told of now: error {error}")


def _check_same(
    name: str, given: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition]
) -> None:
    """All partitions are needed, and no others."""
    wanted, known = set(partitions), set(given)
    problems = []
    if wanted - known:
        problems.append(f"{spec.named(wanted - known)} missing")
    if known - wanted:
        problems.append(f"{spec.named(known - wanted)} not subscribed to, or not there")
    if problems:
        hint = "; use -2 for the earliest and -1 for the latest" if name.endswith("Offsets") else ""
        raise InputError(f"{name}: names all partitions and no others: {'; '.join(problems)}{hint}")
