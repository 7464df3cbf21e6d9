"""Looks up, on the driver, which partitions a query reads and where they begin and end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from rota.client.admin import Admin
from rota.client.cluster import ClusterClient
from rota.client.offsets import EARLIEST, LATEST, ListedOffset, list_offsets
from rota.engine.model.text import suggest_names
from rota.engine.model.topic import TopicPartition
from rota.errors import AuthorizationFailed, Code, InputError, UnknownTopic, Unreachable
from rota.spark import query
from rota.spark.query import LOGGER, OffsetRangeLimit, SourceOptions

Offsets = dict[TopicPartition, int]
ListedOffsets = dict[TopicPartition, ListedOffset | None]
T = TypeVar("T")
#: Seconds for which known topics count as existing.
METADATA_MAX_AGE = 1.0


class OffsetLookup:
    """Blocks until the cluster responds. Connections stay open until :meth:`close`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._client: ClusterClient | None = None
        #: When the topics were looked up, by the loop's clock.
        self._metadata_time = -METADATA_MAX_AGE

    def partitions(self) -> list[TopicPartition]:
        """Returns the query's partitions. Raises UnknownTopic or AuthorizationFailed for one."""
        return self._run_with_retries(self._find_partitions)

    def earliest_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Returns where the partitions begin; partitions that do not exist are left out."""
        return self._list_known_offsets(dict.fromkeys(partitions, EARLIEST))

    def latest_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The ends (``read_committed``: first open transactions) of partitions that exist."""
        return self._list_known_offsets(dict.fromkeys(partitions, LATEST))

    def resolve_offsets(
        self, where: OffsetRangeLimit, partitions: Iterable[TopicPartition], *, ending: bool = False
    ) -> Offsets:
        """Returns the offsets of an option for all of these partitions; InputError if it does not
        fit. At the ``ending`` a timestamp later than all records means the end.
        """
        every = list(partitions)
        match where:
            case query.EarliestOffsets():
                return self.earliest_offsets(every)
            case query.LatestOffsets():
                return self.latest_offsets(every)
            case query.CommittedOffsets(group):
                return self._committed_offsets(group, every)
            case query.SpecificOffsets(name, given):
                _check_all_partitions(name, given, every)
                # -1 and -2 stand for the ends of a partition
                ends = {each: offset for each, offset in given.items() if offset < 0}
                return dict(given) | self._list_known_offsets(ends)
            case query.GlobalTimestamp(name, moment):
                return self._offsets_by_time(name, dict.fromkeys(every, moment), ending=ending)
            case query.SpecificTimestamps(name, times):
                _check_all_partitions(name, times, every)
                return self._offsets_by_time(name, times, ending=ending)

    def close(self) -> None:
        if self._client is not None:
            self._loop.run_until_complete(self._client.close())
            self._client = None
        if not self._loop.is_closed():
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    def __enter__(self) -> OffsetLookup:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _committed_offsets(self, group: str, partitions: list[TopicPartition]) -> Offsets:
        committed = self._run_with_retries(
            lambda client, timeout: Admin(client, timeout).fetch_committed(group)
        )
        offsets = {each: committed[each].offset for each in partitions if each in committed}
        new = [each for each in partitions if each not in offsets]
        if new:
            text = "group %r has committed nothing for %s: reading starts at the beginning"
            LOGGER.warning(text, group, query.format_partitions(new))
        return offsets | self.earliest_offsets(new)

    def _offsets_by_time(
        self, name: str, times: Mapping[TopicPartition, int], *, ending: bool
    ) -> Offsets:
        listed_offsets = self._list_offsets(times)
        late = [each for each, listed in listed_offsets.items() if listed is None]
        if late and not ending and not self._options.missing_timestamp_is_latest:
            raise InputError(
                f"{name}: {query.format_partitions(late)} has no record at this time or later; set "
                "startingOffsetsByTimestampStrategy=latest to start at the end"
            )
        found = {each: at.offset for each, at in listed_offsets.items() if at is not None}
        return found | self.latest_offsets(late)

    def _list_known_offsets(self, targets: Mapping[TopicPartition, int]) -> Offsets:
        listed_offsets = self._list_offsets(targets)
        return {each: at.offset for each, at in listed_offsets.items() if at is not None}

    def _list_offsets(self, targets: Mapping[TopicPartition, int]) -> ListedOffsets:
        """The offsets of partitions that exist; None: no record is at this time or later."""
        if not targets:
            return {}
        isolation = self._options.read_config.isolation

        async def look_up(client: ClusterClient, timeout: float) -> ListedOffsets:
            deadline = client.deadline_after(timeout)
            topics, metadata = {each.topic for each in targets}, client.metadata
            # fresh enough to know which topics exist: offsets of deleted topics take long
            is_fresh = self._loop.time() - self._metadata_time < METADATA_MAX_AGE
            if not is_fresh or not topics <= metadata.topics.keys():
                metadata = await client.refresh(topics, deadline=deadline)
            existing = {tp: at for tp, at in targets.items() if metadata.partition(tp) is not None}
            return await list_offsets(client, existing, isolation=isolation, deadline=deadline)

        return self._run_with_retries(look_up)

    async def _find_partitions(self, client: ClusterClient, timeout: float) -> list[TopicPartition]:
        deadline = client.deadline_after(timeout)
        self._metadata_time = self._loop.time()
        match self._options.subscription:
            case query.AssignPartitions(partitions):
                wanted = {each.topic for each in partitions}
                counts = await _partition_counts(client, wanted, deadline)
                missing = [each for each in partitions if each.partition >= counts[each.topic]]
                if missing:
                    name, names = missing[0].topic, query.format_partitions(missing)
                    text = f"assign: there is no partition {names}: {name} has {counts[name]}"
                    raise UnknownTopic(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
                return sorted(partitions)
            case query.SubscribeTopics(names):
                counts = await _partition_counts(client, set(names), deadline)
            case query.SubscribePattern(text, internal):
                pattern = query.compile_java_pattern("subscribePattern", text)
                metadata = await client.refresh(None, deadline=deadline)
                counts = {
                    name: len(each.partitions)
                    for name, each in metadata.topics.items()
                    if pattern.search(name) and (internal or not each.internal) and not each.error
                }
        sizes = sorted(counts.items())
        return [TopicPartition(name, number) for name, count in sizes for number in range(count)]

    def _run_with_retries(
        self, look_up: Callable[[ClusterClient, float], Coroutine[Any, Any, T]]
    ) -> T:
        """Makes as many attempts as the options allow, each of ``default.api.timeout.ms``."""
        options = self._options
        timeout = options.client_config.api_timeout / 1000
        if self._client is None:
            self._client = ClusterClient(options.client_config)
        for attempt in range(1, options.lookup_attempts + 1):
            try:
                return self._loop.run_until_complete(look_up(self._client, timeout))
            except (Unreachable, UnknownTopic):
                if attempt == options.lookup_attempts:
                    raise
                time.sleep(options.lookup_retry_interval / 1000)
        raise AssertionError("lookup_attempts is at least 1")


async def _partition_counts(
    client: ClusterClient, names: set[str], deadline: float
) -> dict[str, int]:
    if not names:
        return {}
    metadata = await client.refresh(names, deadline=deadline)
    counts = {}
    for name in sorted(names):
        topic = metadata.topics.get(name)
        code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            every = await client.refresh(None, deadline=deadline)
            near = suggest_names(name, sorted(every.topics.keys() - {name}))
            raise UnknownTopic(Code(code), f"there is no topic {name!r}{near}")
        if code == Code.TOPIC_AUTHORIZATION_FAILED:
            raise AuthorizationFailed(Code(code), f"no permission for topic {name!r}")
        if code == Code.INVALID_TOPIC_EXCEPTION:
            raise InputError(f"subscribe: no topic can have the name {name!r}")
        if code != Code.NONE:
            raise Unreachable(f"topic {name!r} cannot be described now: error {code}")
        counts[name] = 0 if topic is None else len(topic.partitions)
    return counts


def _check_all_partitions(
    name: str, named: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition]
) -> None:
    """Checks that an option names all partitions and no others."""
    existing, named_partitions = set(partitions), set(named)
    problems = []
    if missing := existing - named_partitions:
        problems.append(f"{query.format_partitions(missing)} missing")
    if unknown := named_partitions - existing:
        names = query.format_partitions(unknown)
        problems.append(f"{names} not subscribed to, or missing in Kafka")
    if problems:
        if name.endswith("Offsets"):
            problems.append("use -2 for the earliest and -1 for the latest")
        text = "; ".join(problems)
        raise InputError(f"{name}: must name all partitions and no others: {text}")
