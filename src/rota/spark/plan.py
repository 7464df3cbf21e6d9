"""Which offsets a query reads, how many of them in a trigger, and which task reads which.

The driver looks up partitions and offsets (:class:`OffsetLookup`). A trigger is limited to the same
offsets that Spark's own Kafka source would choose. The offsets are then split into ranges and
packed into tasks of about the same size.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from rota.client.admin import Admin
from rota.client.cluster import ClusterClient
from rota.client.offsets import EARLIEST, LATEST, ListedOffset, list_offsets
from rota.engine.model.text import suggest_names
from rota.engine.model.topic import TopicPartition
from rota.errors import AuthorizationFailed, Code, InputError, UnknownTopic, Unreachable
from rota.spark import query
from rota.spark.query import LOGGER, MAX_OFFSET, OffsetRangeLimit, SourceOptions

Offsets = dict[TopicPartition, int]
ListedOffsets = dict[TopicPartition, ListedOffset | None]
T = TypeVar("T")
METADATA_MAX_AGE = 1.0  # seconds for which known topics count as existing


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


class OffsetRange(NamedTuple):
    """A range of offsets of one partition; ``until`` is exclusive."""

    partition: TopicPartition
    start: int
    until: int

    @property
    def size(self) -> int:
        """Number of offsets, which may be more than the number of records."""
        return self.until - self.start


TaskRanges = tuple[OffsetRange, ...]


def plan_tasks(
    ranges: Iterable[OffsetRange],
    *,
    slots: int,
    least: int | None = None,
    most_records: int | None = None,
) -> list[TaskRanges]:
    """Divides ranges into about ``slots`` equal tasks; large partitions are split for the ``least``
    number (``minPartitions``). ``most_records`` is ``maxRecordsPerPartition``.
    """
    pieces = [each for each in ranges if each.size > 0]
    if most_records is not None:
        counts = [(each, -(-each.size // most_records)) for each in pieces]
        pieces = [piece for each, count in counts for piece in _split_range(each, count)]
    if least is not None:
        pieces = _split_to_count(pieces, least)
    packed = _pack_ranges(pieces, max(slots, least or 0), most_records)
    return [_join_neighbours(task) for task in packed]


def _split_to_count(ranges: Sequence[OffsetRange], count: int) -> list[OffsetRange]:
    """Splits always the largest part until there are this many, if there are enough offsets."""
    counts = dict.fromkeys(ranges, 1)
    largest = [(-each.size, each) for each in ranges]
    heapq.heapify(largest)
    for _ in range(count - len(ranges)):
        if not largest or largest[0][0] >= -1:
            break
        _, each = largest[0]
        counts[each] += 1
        largest_part = -(-each.size // counts[each])
        heapq.heapreplace(largest, (-largest_part, each))
    return [piece for each, number in counts.items() for piece in _split_range(each, number)]


def _split_range(whole: OffsetRange, count: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [OffsetRange(whole.partition, start, until) for start, until in pairwise(bounds)]


def _pack_ranges(
    ranges: Sequence[OffsetRange], count: int, most: int | None
) -> list[list[OffsetRange]]:
    """Packs the largest range first, each range into the task with the fewest offsets."""
    packed: list[list[OffsetRange]] = [[] for _ in range(min(count, len(ranges)))]
    loads = [(0, number) for number in range(len(packed))]
    for each in sorted(ranges, key=lambda piece: (-piece.size, piece)):
        load, number = loads[0]
        if most is not None and load + each.size > most and load:
            packed.append([each])  # all other tasks have at least as many offsets
            heapq.heappush(loads, (each.size, len(packed) - 1))
            continue
        packed[number].append(each)
        heapq.heapreplace(loads, (load + each.size, number))
    return packed


def _join_neighbours(task: Iterable[OffsetRange]) -> TaskRanges:
    joined: list[OffsetRange] = []
    for each in sorted(task):
        if joined and (joined[-1].partition, joined[-1].until) == (each.partition, each.start):
            joined[-1] = joined[-1]._replace(until=each.until)
        else:
            joined.append(each)
    return tuple(joined)


def limit_offsets(most: int, start: Mapping[TopicPartition, int], end: Offsets) -> Offsets:
    """Returns ends for at most ``most`` offsets, in proportion to each partition's size."""
    sizes = {each: end[each] - start[each] for each in end if end[each] > start[each]}
    total = float(sum(sizes.values()))
    ends = dict(end)
    for each, size in sizes.items():
        share = most * (size / total)
        # small partitions must not starve
        whole = math.ceil(share) if share < 1 else math.floor(share)
        ends[each] = min(end[each], start[each] + min(whole, MAX_OFFSET - start[each]))
    return ends


@dataclass(slots=True)
class TriggerDelay:
    """Waits for ``minOffsetsPerTrigger``, but not longer than ``maxTriggerDelay``."""

    min_offsets: int
    max_delay: int
    last_trigger: int = 0  # in milliseconds: the first trigger of a process does not wait

    def should_wait(self, start: Offsets, end: Offsets, now: int) -> bool:
        """Returns whether to wait longer; if not, the delay starts again."""
        # a new partition counts from offset 0, as in Spark's own source
        new = sum(max(until - start.get(each, 0), 0) for each, until in end.items())
        if now - self.last_trigger >= self.max_delay or new >= self.min_offsets:
            self.last_trigger = now
            return False
        return True
