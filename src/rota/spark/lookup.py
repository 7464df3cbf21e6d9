"""The driver's questions to a cluster: which partitions there are, where they begin and end."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import Any, TypeVar

from rota.client.admin import Admin
from rota.client.cluster import Client
from rota.client.offset import EARLIEST, LATEST, ListedOffset, list_offsets
from rota.errors import AuthorizationFailed, Code, InputError, UnknownTopic, Unreachable
from rota.model.topic import TopicPartition
from rota.spark import option, spec
from rota.spark.option import Options, Where

Offsets = dict[TopicPartition, int]
T = TypeVar("T")


class Lookup:
    """Asks, and waits for the answer. Connections stay open until :meth:`close`."""

    def __init__(self, options: Options) -> None:
        """Nothing is opened yet."""
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._client: Client | None = None

    def partitions(self) -> list[TopicPartition]:
        """What the query reads, as far as it exists now.

        :raises UnknownTopic: a topic that it names does not exist
        :raises AuthorizationFailed: one may not be read
        """
        return self._ask(self._partitions)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where they begin."""
        return self._list(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Where they end: with ``read_committed``, where the first open transaction begins."""
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
            case option.Earliest():
                return self.earliest(every)
            case option.Latest():
                return self.latest(every)
            case option.Committed():
                return self._committed(every)
            case option.Given(name, given):
                _check_same(name, given, every)
                return self._given(given)
            case option.At(name, moment):
                return self._by_time(name, dict.fromkeys(every, moment), ending=ending)
            case option.AtEach(name, times):
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

    def _committed(self, partitions: list[TopicPartition]) -> Offsets:
        group = self._options.group
        assert group is not None, "it is checked"

        async def ask(client: Client, timeout: float) -> dict[TopicPartition, Any]:
            return await Admin(client, timeout).committed(group)

        found = self._ask(ask)
        known = {each: found[each].offset for each in partitions if each in found}
        return known | self.earliest(each for each in partitions if each not in known)

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

    def _listed(
        self, targets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | None]:
        if not targets:
            return {}
        isolation = self._options.read.isolation

        async def ask(client: Client, timeout: float) -> dict[TopicPartition, ListedOffset | None]:
            return await list_offsets(
                client, targets, isolation=isolation, deadline=client.deadline(timeout)
            )

        return self._ask(ask)

    async def _partitions(self, client: Client, timeout: float) -> list[TopicPartition]:
        chosen: Container[TopicPartition] | None = None
        match self._options.subscription:
            case option.Partitions(partitions):
                chosen = set(partitions)
                wanted = {each.topic for each in partitions}
                metadata = await client.refresh(wanted, deadline=client.deadline(timeout))
            case option.Topics(names):
                wanted = set(names)
                metadata = await client.refresh(names, deadline=client.deadline(timeout))
            case option.Pattern(text):
                metadata = await client.refresh(None, deadline=client.deadline(timeout))
                pattern = re.compile(text)
                wanted = {
                    name
                    for name, each in metadata.topics.items()
                    if pattern.search(name) and not each.internal and not each.error
                }
        found: list[TopicPartition] = []
        for name in sorted(wanted):
            topic = metadata.topics.get(name)
            _check_topic(name, Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error)
            if topic is not None:
                found += [TopicPartition(name, number) for number in range(len(topic.partitions))]
        return found if chosen is None else [each for each in found if each in chosen]

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
            self._client = Client(self._options.client, quiet=True)
        return await ask(self._client, timeout)


def _check_topic(name: str, error: int) -> None:
    match error:
        case Code.NONE:
            return
        case Code.TOPIC_AUTHORIZATION_FAILED:
            raise AuthorizationFailed(
                Code.TOPIC_AUTHORIZATION_FAILED, f"no permission for topic {name!r}"
            )
        case Code.INVALID_TOPIC_EXCEPTION:
            raise UnknownTopic(
                Code.INVALID_TOPIC_EXCEPTION, f"{name!r} is no name that a topic can have"
            )
        case Code.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopic(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
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
        hint = "; use -2 for the earliest and -1 for the latest" if "Offsets" in name else ""
        raise InputError(f"{name}: names all partitions and no others: {'; '.join(problems)}{hint}")
