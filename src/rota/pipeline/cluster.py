"""A live cluster as input: its journal, and log end offsets now and in the past.

This module only reads: it joins no group, creates no topic and writes no result.

Past log end offsets come from ListOffsets, which finds the first record that is not older than a
time: at that time the partition ended there. So a lookup for the millisecond after T gives the end
at T; if no record is that young, the end at T is the end now. The result is as exact as the
records' timestamps: the broker sets them with ``message.timestamp.type=LogAppendTime``; with
``CreateTime``, the default, producers set them by their own clocks, a little before the write. A
time before the first remaining record gives no result.

The timestamp of the found record gives two more samples: before that time the partition ended
before the record, from then on behind it. The lookups use times of commits, evenly chosen: with as
many lookups as commits, every lag is as exact as the timestamps.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from rota.client import explain_missing_packages, fetch
from rota.client.admin import Admin
from rota.client.cluster import ClusterClient
from rota.client.config import read_settings
from rota.client.metadata import TopicMetadata
from rota.client.offsets import EARLIEST, LATEST, ListedOffset, list_offsets
from rota.client.retry import partition_error, run_all
from rota.engine.model.config import FetchConfig
from rota.engine.model.text import suggest_or_list_names
from rota.engine.model.topic import TopicPartition
from rota.errors import AuthorizationFailed, Code, InputError, Refused, RotaError, Unreachable
from rota.protocol.messages import Api, DescribeLogDirsRequest, DescribeLogDirsResponse

T = TypeVar("T")
JOURNAL_TOPIC = "__consumer_offsets"
REQUEST_TIMEOUT = 30.0
CONNECT_TIMEOUT = 10.0  # seconds for the first request: a wrong address shows soon
RECORD_BYTES = 100  # typical size of a record of the journal, which is a commit

JOURNAL_ACLS = (
    f"Describe and Read on topic {JOURNAL_TOPIC}",
    "Describe on the topics that groups have committed",
)

DEFAULT_SETTINGS: Mapping[str, object] = {
    "client.id": "rota",
    "socket.connection.setup.timeout.ms": 5_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    settings: Mapping[str, object] = field(repr=False)  # Kafka's names, also passwords
    timeout: float = REQUEST_TIMEOUT  # timeout of each request, in seconds
    lookups: int = 0  # maximum number of ListOffsets lookups; 0: no lookups

    @property
    def servers(self) -> str:
        return str(self.settings.get("bootstrap.servers", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJournal:
    cluster: LiveCluster
    log_starts: Mapping[int, int]  # by partition; empty: the cluster has no journal yet
    log_ends: Mapping[int, int]  # log end offsets by partition, at which reading stops
    size: int | None = None  # bytes on the leaders' disks; None: unknown
    at: int
    cluster_id: str | None = None

    @property
    def records(self) -> int:
        """Maximum number of records: compaction may have removed some."""
        return sum(self.log_ends.values()) - sum(self.log_starts.values())

    @property
    def estimated_bytes(self) -> int:
        """Bytes of the journal, estimated from the number of records if the size is unknown."""
        return self.records * RECORD_BYTES if self.size is None else self.size

    def source_options(self) -> dict[str, str]:
        """Returns the options with which ``format("rota")`` reads the whole journal."""
        # a properties file for consumers may have settings that the Spark source refuses
        from rota.spark.option import REFUSED_SETTINGS  # noqa: PLC0415 (needs pyspark)

        timeout = {"default.api.timeout.ms": int(self.cluster.timeout * 1000)}
        settings = {
            key: value
            for key, value in {**DEFAULT_SETTINGS, **timeout, **self.cluster.settings}.items()
            if key not in REFUSED_SETTINGS and key != "group.id"
        }
        ends = {str(partition): end for partition, end in sorted(self.log_ends.items())}
        return {f"kafka.{key}": str(value) for key, value in settings.items()} | {
            "kafka.isolation.level": "read_uncommitted",
            "subscribe": JOURNAL_TOPIC,
            "startingOffsets": "earliest",
            "endingOffsets": json.dumps({JOURNAL_TOPIC: ends}),
            "includeBatchInfo": "true",
            "fetchOffset.numRetries": "1",
        }

    def __str__(self) -> str:
        name = f"{self.cluster.servers}: {JOURNAL_TOPIC}"
        if not self.log_ends:
            return f"{name} does not exist: the cluster never had a group"
        size = "" if self.size is None else f", about {self.size / 1e6:,.1f} MB"
        return f"{name}, {len(self.log_ends)} partitions, at most {self.records:,} records{size}"


def run_with_client(cluster: LiveCluster, function: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """Calls a function with a client of the cluster; raises Unreachable or InputError."""
    if (problem := explain_missing_packages()) is not None:
        raise Unreachable(problem)
    # permanent failures are raised; temporary ones should not be logged
    logging.getLogger("rota.client").addHandler(logging.NullHandler())
    config = read_settings({**DEFAULT_SETTINGS, **cluster.settings}).client

    async def run() -> T:
        client = ClusterClient(config, quiet=True)
        try:
            deadline = client.deadline_after(min(cluster.timeout, CONNECT_TIMEOUT))
            await client.refresh((), deadline=deadline)
            return await function(client)
        finally:
            await client.close()

    return asyncio.run(run())


def find_journal(cluster: LiveCluster) -> LiveJournal:
    """Finds the bounds of the journal; raises Unreachable if the user may not read it."""
    try:
        return run_with_client(cluster, lambda client: _find_journal(client, cluster))
    except AuthorizationFailed as error:
        raise Unreachable(
            f"{cluster.servers}: {error}. To read the journal a user needs {JOURNAL_ACLS[0]}. "
            "Without it, use --poll, which describes the groups at intervals and needs "
            "Describe on groups and topics"
        ) from error


def check_groups_exist(cluster: LiveCluster, groups: Sequence[str]) -> None:
    """Raises InputError for an unknown name, which is no pattern: it may match deleted groups."""
    names = [name for name in groups if not set(name) & set("*?[")]
    if not names:
        return
    try:
        listing = run_with_client(
            cluster, lambda client: Admin(client, cluster.timeout).list_groups()
        )
    except RotaError:  # the journal can be read without permission to list groups
        return
    unknown = [name for name in names if name not in listing.groups]
    if unknown and listing.groups and not listing.unanswered:
        near = suggest_or_list_names(unknown, listing.groups)
        raise InputError(
            f"--group {' '.join(unknown)}: the cluster has no such group{near} (a deleted "
            f"group, of which the journal still has records: --group '{unknown[0]}*')"
        )


async def _find_journal(client: ClusterClient, cluster: LiveCluster) -> LiveJournal:
    deadline = client.deadline_after(cluster.timeout)
    metadata = await client.refresh((JOURNAL_TOPIC,), deadline=deadline)
    topic = metadata.topics.get(JOURNAL_TOPIC)
    partitions = _journal_partitions(topic)
    begins, ends = await run_all(
        _list_journal_offsets(client, partitions, which, cluster.timeout)
        for which in (EARLIEST, LATEST)
    )
    at = time.time_ns() // 1_000_000
    live = LiveJournal(
        cluster=cluster, log_starts=begins, log_ends=ends, at=at, cluster_id=metadata.cluster_id
    )
    if topic is None or not partitions:
        return live
    await _check_read_permission(client, topic, ends, cluster.timeout)
    return replace(live, size=await _journal_size(client, topic, cluster.timeout))


def _journal_partitions(topic: TopicMetadata | None) -> list[TopicPartition]:
    code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
    if topic is None or code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        raise partition_error(code, TopicPartition(JOURNAL_TOPIC, 0), "to describe")
    return [TopicPartition(JOURNAL_TOPIC, number) for number in range(len(topic.partitions))]


async def _list_journal_offsets(
    client: ClusterClient, partitions: list[TopicPartition], which: int, timeout: float
) -> dict[int, int]:
    if not partitions:
        return {}
    deadline = client.deadline_after(timeout)
    listed = await list_offsets(client, dict.fromkeys(partitions, which), deadline=deadline)
    return {tp.partition: found.offset for tp, found in listed.items() if found is not None}


async def _check_read_permission(
    client: ClusterClient, topic: TopicMetadata, ends: Mapping[int, int], timeout: float
) -> None:
    """Fetches from one log end, to fail here and not in a Spark task without permission."""
    partition, end = min(ends.items())
    tp = TopicPartition(JOURNAL_TOPIC, partition)
    deadline = client.deadline_after(timeout)
    leader = await client.find_leader(tp, deadline)
    request = fetch.build_fetch(
        [fetch.RequestedPartition(tp, topic.id, end)], FetchConfig(), max_bytes=1, max_wait=0
    )
    response = await client.send(
        Api.FETCH, request.message, node=leader, deadline=deadline, most=request.max_version
    )
    for fetched in request.parse(response):
        if fetched.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
            raise partition_error(fetched.error_code, tp, "to fetch from")


async def _journal_size(client: ClusterClient, topic: TopicMetadata, timeout: float) -> int | None:
    """Returns the size on the leaders' disks, or None if one of them does not return it."""
    led = defaultdict(list)
    for number, partition in enumerate(topic.partitions):
        led[partition.leader].append(number)

    async def size_on(node: int, numbers: list[int]) -> int:
        wanted = DescribeLogDirsRequest.DescribableLogDirTopic(
            topic=JOURNAL_TOPIC, partitions=numbers
        )
        request = DescribeLogDirsRequest(topics=[wanted])
        deadline = client.deadline_after(timeout)
        response = await client.send(Api.DESCRIBE_LOG_DIRS, request, node=node, deadline=deadline)
        return _sum_log_dirs(response)

    try:
        return sum(await run_all(size_on(node, numbers) for node, numbers in led.items()))
    except RotaError:  # the size is only informative
        return None


def _sum_log_dirs(response: DescribeLogDirsResponse) -> int:
    codes = [response.error_code, *(log_dir.error_code for log_dir in response.results)]
    if any(codes) or not response.results:
        raise Refused(Code.CLUSTER_AUTHORIZATION_FAILED, "no permission to describe log dirs")
    return sum(
        int(partition.partition_size)
        for log_dir in response.results
        for topic in log_dir.topics
        for partition in topic.partitions
        if not partition.is_future_key
    )


BEFORE_ALL_RECORDS = 0
MIN_LOOKUPS = 3  # lookups for every partition: log start, log end, and the first record
MAX_LOOKUPS = 500  # maximum number of lookups in the past for one partition
PARTITIONS_PER_REQUEST = 2_000
MAX_REQUESTS_IN_FLIGHT = 8


class EndSample(NamedTuple):
    """A row of bronze/ends; the time is in milliseconds."""

    topic: str
    partition: int
    at: int
    beginning: int | None
    end: int


class PartitionBounds(NamedTuple):
    begin: int
    end: int
    now: int
    first: ListedOffset | None


@dataclass(slots=True)
class LookupResult:
    lookups: int = 0
    partitions: int = 0
    samples: list[EndSample] = field(default_factory=list)
    left_out: list[TopicPartition] = field(default_factory=list)
    #: Topics and partitions that could not be looked up, by reason.
    skipped: dict[str, set[str]] = field(default_factory=dict)
    deleted: int = 0  # number of lookups of times before the log start

    def skip(self, why: str, name: str) -> None:
        self.skipped.setdefault(why, set()).add(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupPlan:
    times: Mapping[TopicPartition, Sequence[int]]
    left_out: tuple[TopicPartition, ...] = ()


def plan_lookups(commits: DataFrame, lookups: int, since: int | None = None) -> LookupPlan:
    """Chooses times of commits since ``since``; partitions committed last come first."""
    grouped = commits.where("offset is not null").groupBy("topic", "partition")
    rows = grouped.agg(fn.max(fn.unix_millis("at")).alias("last")).collect()
    newest = sorted(rows, key=lambda row: (-row.last, row.topic, row.partition))
    every = [TopicPartition(row.topic, row.partition) for row in newest]
    number = min(len(every), lookups // MIN_LOOKUPS)
    chosen, left_out = every[:number], tuple(every[number:])
    each = min(MAX_LOOKUPS, lookups // number - MIN_LOOKUPS) if number else 0
    times: dict[TopicPartition, list[int]] = {tp: [] for tp in chosen}
    if each:
        for row in _choose_commit_times(commits, each, since).collect():
            tp = TopicPartition(row.topic, row.partition)
            if tp in times:
                times[tp] = sorted(row.times)
    return LookupPlan(times=times, left_out=left_out)


def _choose_commit_times(commits: DataFrame, each: int, since: int | None) -> DataFrame:
    """Returns at most ``each`` commit times per partition, evenly spread from first to last."""
    at = commits.where("offset is not null").select(
        "topic", "partition", fn.unix_millis("at").alias("at")
    )
    if since is not None:
        at = at.where(fn.col("at") >= since)
    own = Window.partitionBy("topic", "partition")
    ranked = at.distinct().select(
        "*",
        (fn.row_number().over(own.orderBy("at")) - 1).alias("rank"),
        fn.count("at").over(own).alias("number"),
    )
    # a row is chosen where the rounded share of chosen rows increases
    share = f"(rank - {{}}) * {max(each - 1, 0)} div greatest(number - 1, 1)"
    rises = f"{share.format(0)} > {share.format(1)}"
    chosen = ranked.where(f"rank = 0 or number <= {each} or {rises}")
    return chosen.groupBy("topic", "partition").agg(fn.collect_list("at").alias("times"))


def end_samples_frame(spark: SparkSession, result: LookupResult) -> DataFrame:
    columns = "topic string, partition int, at bigint, beginning bigint, end bigint"
    rows = spark.createDataFrame([tuple(each) for each in result.samples], columns)
    return rows.withColumn("at", fn.timestamp_millis("at"))


def look_up_ends(cluster: LiveCluster, plan: LookupPlan) -> LookupResult:
    """Looks up log ends; raises Unreachable if no broker responds."""
    if not plan.times:
        return LookupResult(left_out=list(plan.left_out))
    return run_with_client(
        cluster, lambda client: _EndLookup(client, cluster.timeout).look_up_all(plan)
    )


class _EndLookup:
    def __init__(self, client: ClusterClient, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._request_limit = asyncio.Semaphore(MAX_REQUESTS_IN_FLIGHT)
        self._result = LookupResult()

    async def look_up_all(self, plan: LookupPlan) -> LookupResult:
        result = self._result
        result.left_out += plan.left_out
        bounds = await self._known(await self._existing_partitions(plan.times))
        result.partitions = len(bounds)
        past = await self._list_all(_lookup_rounds({tp: plan.times[tp] for tp in bounds}))
        for tp, partition in bounds.items():
            records = dict(zip(plan.times[tp], past.get(tp, ()), strict=False))
            samples = past_samples(tp, partition, records)
            result.deleted += len(records.keys() - {sample.at for sample in samples})
            now = EndSample(*tp, partition.now, partition.begin, partition.end)
            result.samples += [*samples, now]
        return result

    async def _known(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionBounds]:
        times = (EARLIEST, LATEST, BEFORE_ALL_RECORDS)
        found = await self._list_all([dict.fromkeys(partitions, at) for at in times])
        now = time.time_ns() // 1_000_000
        return {
            tp: PartitionBounds(begin.offset, end.offset, now, first)
            for tp, (begin, end, first) in found.items()
            if begin is not None and end is not None
        }

    async def _existing_partitions(
        self, partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition]:
        listed = sorted(partitions)
        deadline = self._client.deadline_after(self._timeout)
        metadata = await self._client.refresh({each.topic for each in listed}, deadline=deadline)
        existing = []
        for tp in listed:
            topic = metadata.topics.get(tp.topic)
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if code:
                self._result.skip(_explain_error(code), tp.topic)
            elif metadata.partition(tp) is None:
                self._result.skip(_explain_error(Code.UNKNOWN_TOPIC_OR_PARTITION), str(tp))
            elif metadata.leader(tp) is None:
                self._result.skip("without a leader", str(tp))
            else:
                existing.append(tp)
        return existing

    async def _list_all(
        self, rounds: Sequence[Mapping[TopicPartition, int]]
    ) -> dict[TopicPartition, list[ListedOffset | None]]:
        """Returns the results of each partition, in the order of the rounds."""
        batches = [
            dict(items[begin : begin + PARTITIONS_PER_REQUEST])
            for items in (list(each.items()) for each in rounds)
            for begin in range(0, len(items), PARTITIONS_PER_REQUEST)
        ]
        responses = await run_all(self._ask(batch) for batch in batches)
        results: dict[TopicPartition, list[ListedOffset | None]] = {}
        failed: set[TopicPartition] = set()
        for batch, response in zip(batches, responses, strict=True):
            failed |= batch.keys() - response.keys()
            for tp, listed in response.items():
                results.setdefault(tp, []).append(listed)
        return {tp: listed for tp, listed in results.items() if tp not in failed}

    async def _ask(
        self, targets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | None]:
        """Sends one request; if the cluster refuses it, sends one request for each topic."""
        async with self._request_limit:
            deadline = self._client.deadline_after(self._timeout)
            self._result.lookups += len(targets)
            try:
                return await list_offsets(self._client, targets, deadline=deadline)
            except RotaError as error:
                problem = error
        topics = sorted({tp.topic for tp in targets})
        if len(topics) <= 1 or not isinstance(problem, Refused):
            for topic in topics:
                self._result.skip(str(problem), topic)
            return {}
        found: dict[TopicPartition, ListedOffset | None] = {}
        for topic in topics:
            found |= await self._ask({tp: at for tp, at in targets.items() if tp.topic == topic})
        return found


def _explain_error(code: int) -> str:
    match code:
        case Code.UNKNOWN_TOPIC_OR_PARTITION:
            return "that no longer exist"
        case Code.TOPIC_AUTHORIZATION_FAILED:
            return "without permission to describe them"
        case _:
            return f"with error {code}"


def _lookup_rounds(
    times: Mapping[TopicPartition, Sequence[int]],
) -> list[dict[TopicPartition, int]]:
    """Returns requests that have each partition once, which is all that Kafka accepts."""
    longest = max((len(each) for each in times.values()), default=0)
    return [
        # records of the same millisecond belong to the end at that time
        {tp: each[number] + 1 for tp, each in times.items() if number < len(each)}
        for number in range(longest)
    ]


def past_samples(
    tp: TopicPartition, bounds: PartitionBounds, records: Mapping[int, ListedOffset | None]
) -> list[EndSample]:
    """Returns the log ends proved by ``records``: for each time the first record after it."""
    begin, end, now, first = bounds
    if begin == end and begin:
        return []  # all records were deleted, nothing shows when they were written
    ends = {} if first is None else _ends_around(first)
    if first is not None and begin:
        ends = {first.timestamp: first.offset + 1}  # earlier records were deleted
    for at, record in sorted(records.items()):
        if record is None or record.offset >= end:
            ends[at] = end
        elif record.offset > begin or not begin:
            for moment, offset in _ends_around(record).items():
                ends.setdefault(moment, offset)
            ends[at] = record.offset
    return [
        EndSample(*tp, at, None, offset)
        for at, offset in sorted(ends.items())
        if 0 <= at < now and offset <= end
    ]


def _ends_around(record: ListedOffset) -> dict[int, int]:
    return {record.timestamp - 1: record.offset, record.timestamp: record.offset + 1}
