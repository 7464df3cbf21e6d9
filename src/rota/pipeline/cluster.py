"""A live cluster as evidence: what its journal has, and where partitions end and ended.

Everything here only reads: no group is joined, no topic is created, nothing is written.

Log ends of the past come from ListOffsets. A broker does not remember where a partition ended at
some time, but finds the first record that is not older than a time: at that time the partition
ended there. So a lookup for the millisecond after T gives the end at T; where no record is that
young, the end at T is the end now. This is as true as the records' timestamps are. With
``message.timestamp.type=LogAppendTime`` they are the broker's own; with ``CreateTime``, the
default, producers set them a little before the record is written, by their own clocks. What
retention has deleted can no longer be looked up: a time before the first remaining record says
nothing.

The record that is found has a timestamp of its own, which gives two samples more: before that time
the partition ended before the record, from then on behind it. The times that are looked up are
those of commits, evenly chosen: with as many lookups as commits, every lag is as good as the
timestamps.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from rota.client import fetch, missing
from rota.client.cluster import ClusterClient
from rota.client.config import read_settings
from rota.client.metadata import TopicMetadata
from rota.client.offsets import EARLIEST, LATEST, ListedOffset, list_offsets
from rota.client.retry import partition_error, run_all
from rota.engine.model.config import FetchConfig
from rota.engine.model.topic import TopicPartition
from rota.errors import AuthorizationFailed, Code, Refused, RotaError, Unreachable
from rota.protocol.messages import Api, DescribeLogDirsRequest, Message

T = TypeVar("T")

JOURNAL_TOPIC = "__consumer_offsets"

REQUEST_TIMEOUT = 30.0

#: Seconds for the first answer: an address that is wrong should be said soon.
CONNECT_TIMEOUT = 10.0

#: Bytes of a record of the journal, about: most are commits.
RECORD_BYTES = 100

#: What a user of a secured cluster must be allowed: for the journal, and for lag.
JOURNAL_ACLS = (
    f"Describe and Read on topic {JOURNAL_TOPIC}",
    "Describe on the topics that groups have committed",
)

#: Where the user's settings say nothing else.
DEFAULT_SETTINGS: Mapping[str, object] = {
    "client.id": "rota",
    "socket.connection.setup.timeout.ms": 5_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """The address and settings of a cluster, and how much may be asked of it."""

    #: Under Kafka's names, ``bootstrap.servers`` among them; passwords, too.
    settings: Mapping[str, object] = field(repr=False)
    #: Seconds for each question.
    timeout: float = REQUEST_TIMEOUT
    #: How often it may be asked for an end; 0: never.
    lookups: int = 0

    @property
    def servers(self) -> str:
        """The addresses that were given."""
        return str(self.settings.get("bootstrap.servers", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJournal:
    """How much of the journal a live cluster has."""

    cluster: LiveCluster
    #: By partition of the journal, its first offset; none: the cluster has no journal yet.
    log_starts: Mapping[int, int]
    #: Where reading stops: what is written later is for the next run.
    log_ends: Mapping[int, int]
    #: Bytes on the leaders' disks, about; None: it may not be asked for.
    size: int | None
    #: When it was so, in milliseconds since 1970.
    at: int
    #: What the cluster calls itself: its id.
    cluster_id: str | None = None

    @property
    def records(self) -> int:
        """How many there are at most: compaction has taken some."""
        return sum(self.log_ends.values()) - sum(self.log_starts.values())

    @property
    def estimated_bytes(self) -> int:
        """About how many bytes reading it takes; where nobody tells, by the number of records."""
        return self.records * RECORD_BYTES if self.size is None else self.size

    def source_options(self) -> dict[str, str]:
        """The options with which ``format("rota")`` reads the whole journal."""
        # a file for consumers has settings of theirs; here nobody joins, commits or deserializes
        from rota.spark.option import REFUSED_SETTINGS  # noqa: PLC0415 (needs pyspark)

        patience = {"default.api.timeout.ms": int(self.cluster.timeout * 1000)}
        settings = {
            key: value
            for key, value in {**DEFAULT_SETTINGS, **patience, **self.cluster.settings}.items()
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
        place = f"{self.cluster.servers}: {JOURNAL_TOPIC}"
        if not self.log_ends:
            return f"{place} does not exist: no group has ever been here"
        size = "" if self.size is None else f", about {self.size / 1e6:,.1f} MB"
        return f"{place}, {len(self.log_ends)} partitions, at most {self.records:,} records{size}"


def ask_cluster(cluster: LiveCluster, ask: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """Connects to a cluster, calls a function with the client, closes all connections and returns
    the result.

    :raises Unreachable: the cluster cannot be reached, or a package that a client needs is not
        installed
    :raises InputError: a setting is wrong
    """
    if (problem := missing()) is not None:
        raise Unreachable(problem)
    # a failure that lasts is raised as an error; one that passes is not logged
    logging.getLogger("rota.client").addHandler(logging.NullHandler())
    config = read_settings({**DEFAULT_SETTINGS, **cluster.settings}).client

    async def run() -> T:
        client = ClusterClient(config, quiet=True)
        try:
            await client.refresh(
                (), deadline=client.deadline_after(min(cluster.timeout, CONNECT_TIMEOUT))
            )
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(run())


def find_journal(cluster: LiveCluster) -> LiveJournal:
    """What of the journal there is, and whether it may be read.

    :raises Unreachable: it cannot be reached, or the journal may not be read
    """

    async def ask(client: ClusterClient) -> LiveJournal:
        return await _find_journal(client, cluster)

    try:
        return ask_cluster(cluster, ask)
    except AuthorizationFailed as error:
        raise Unreachable(
            f"{cluster.servers}: {error}. To read the journal a user needs {JOURNAL_ACLS[0]}. "
            "Where that "
            "is not to be had, --poll asks for the groups as they are instead, which takes "
            "Describe on groups and topics"
        ) from error


async def _find_journal(client: ClusterClient, cluster: LiveCluster) -> LiveJournal:
    metadata = await client.refresh(
        (JOURNAL_TOPIC,), deadline=client.deadline_after(cluster.timeout)
    )
    topic = metadata.topics.get(JOURNAL_TOPIC)
    partitions = _journal_partitions(topic)
    begins, ends = await run_all(
        _list_journal_offsets(client, partitions, which, cluster.timeout)
        for which in (EARLIEST, LATEST)
    )
    at = time.time_ns() // 1_000_000
    size = None
    if topic is not None and partitions:
        await _check_read_permission(client, topic, ends, cluster.timeout)
        size = await _journal_size(client, topic, cluster.timeout)
    name = metadata.cluster_id
    return LiveJournal(
        cluster=cluster, log_starts=begins, log_ends=ends, size=size, at=at, cluster_id=name
    )


def _journal_partitions(topic: TopicMetadata | None) -> list[TopicPartition]:
    code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
    if topic is None or code == Code.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        raise partition_error(code, TopicPartition(JOURNAL_TOPIC, 0), "to look at")
    return [TopicPartition(JOURNAL_TOPIC, number) for number in range(len(topic.partitions))]


async def _list_journal_offsets(
    client: ClusterClient, partitions: list[TopicPartition], which: int, timeout: float
) -> dict[int, int]:
    if not partitions:
        return {}
    deadline = client.deadline_after(timeout)
    found = await list_offsets(client, dict.fromkeys(partitions, which), deadline=deadline)
    return {place.partition: each.offset for place, each in found.items() if each is not None}


async def _check_read_permission(
    client: ClusterClient, topic: TopicMetadata, ends: Mapping[int, int], timeout: float
) -> None:
    """Fetches nothing from the end of a partition, to fail now rather than in a task if
    reading is not permitted.
    """
    partition, end = min(ends.items())
    place = TopicPartition(JOURNAL_TOPIC, partition)
    deadline = client.deadline_after(timeout)
    leader = await client.find_leader(place, deadline)
    asking = fetch.build_fetch(
        [fetch.RequestedPartition(place, topic.id, end)], FetchConfig(), max_bytes=1, max_wait=0
    )
    answer = await client.send(
        Api.FETCH, asking.message, node=leader, deadline=deadline, most=asking.max_version
    )
    for found in asking.parse(answer):
        if found.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
            raise partition_error(found.error_code, place, "to fetch from")


async def _journal_size(client: ClusterClient, topic: TopicMetadata, timeout: float) -> int | None:
    """What the leaders' disks say; None where one of them does not tell."""
    led: dict[int, list[int]] = {}
    for number, partition in enumerate(topic.partitions):
        led.setdefault(partition.leader, []).append(number)
    made = DescribeLogDirsRequest.DescribableLogDirTopic

    async def of(node: int, numbers: list[int]) -> int:
        request = DescribeLogDirsRequest(topics=[made(topic=JOURNAL_TOPIC, partitions=numbers)])
        answer = await client.send(
            Api.DESCRIBE_LOG_DIRS, request, node=node, deadline=client.deadline_after(timeout)
        )
        return _sum_log_dirs(answer)

    try:
        sizes = await run_all(of(node, numbers) for node, numbers in led.items())
    except RotaError:  # it is good to know, and no more
        return None
    return sum(sizes)


def _sum_log_dirs(answer: Message) -> int:
    codes = [answer.error_code, *(each.error_code for each in answer.results)]
    if any(codes) or not answer.results:
        raise Refused(Code.CLUSTER_AUTHORIZATION_FAILED, "no permission to describe log dirs")
    return sum(
        int(partition.partition_size)
        for folder in answer.results
        for topic in folder.topics
        for partition in topic.partitions
        if not partition.is_future_key
    )


#: A time before that of any record.
BEFORE_ALL_RECORDS = 0

#: Look-ups that every partition gets: beginning, end, and its first record.
MIN_LOOKUPS = 3

#: Look-ups of the past in one partition: more would be closer together than it matters.
MAX_LOOKUPS = 500

#: Partitions in one question.
PARTITIONS_PER_REQUEST = 2_000

#: Questions under way.
MAX_REQUESTS_IN_FLIGHT = 8


class EndSample(NamedTuple):
    """A row of bronze/ends; the time is in milliseconds."""

    topic: str
    partition: int
    at: int
    beginning: int | None
    end: int


class PartitionBounds(NamedTuple):
    """A partition as it is."""

    begin: int
    end: int
    #: When it was so.
    now: int
    #: The first record that is there.
    first: ListedOffset | None


@dataclass(slots=True)
class LookupResult:
    """What came of the look-ups."""

    lookups: int = 0
    #: Those with commits that have been asked for.
    partitions: int = 0
    samples: list[EndSample] = field(default_factory=list)
    #: Not asked for: there were too many.
    left_out: list[TopicPartition] = field(default_factory=list)
    #: Why topics or partitions could not be asked for, and which.
    skipped: dict[str, list[str]] = field(default_factory=dict)
    #: Look-ups that found nothing left of that time.
    deleted: int = 0

    def skip(self, why: str, name: str) -> None:
        """Notes one that cannot be asked for."""
        self.skipped.setdefault(why, []).append(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupPlan:
    """What to look up."""

    #: Of each partition, ascending, besides what every one gets.
    times: Mapping[TopicPartition, Sequence[int]]
    left_out: tuple[TopicPartition, ...] = ()


def plan_lookups(commits: DataFrame, lookups: int, since: int | None = None) -> LookupPlan:
    """Which times to look up, for the partitions with commits; those committed last come first.

    :param commits: silver/commits
    :param lookups: how many there may be
    :param since: lag before this time is not wanted
    """
    rows = (
        commits.where("offset is not null")
        .groupBy("topic", "partition")
        .agg(fn.max(fn.unix_millis("at")).alias("last"))
        .collect()
    )
    newest = sorted(rows, key=lambda row: (-row.last, row.topic, row.partition))
    every = [TopicPartition(row.topic, row.partition) for row in newest]
    number = min(len(every), lookups // MIN_LOOKUPS)
    chosen, left_out = every[:number], tuple(every[number:])
    each = min(MAX_LOOKUPS, lookups // number - MIN_LOOKUPS) if number else 0
    times: dict[TopicPartition, list[int]] = {place: [] for place in chosen}
    if each:
        for row in _choose_commit_times(commits, each, since).collect():
            place = TopicPartition(row.topic, row.partition)
            if place in times:
                times[place] = sorted(row.times)
    return LookupPlan(times=times, left_out=left_out)


def _choose_commit_times(commits: DataFrame, each: int, since: int | None) -> DataFrame:
    """So many times of commits of each partition: the first, the last, and evenly between."""
    at = commits.where("offset is not null").select(
        "topic", "partition", fn.unix_millis("at").alias("at")
    )
    if since is not None:
        at = at.where(fn.col("at") >= since)
    own = Window.partitionBy("topic", "partition")
    ranked = at.distinct().select(
        "*",
        (fn.row_number().over(own.orderBy("at")) - 1).alias("place"),
        fn.count("at").over(own).alias("number"),
    )
    # the place of a chosen one is where the share of those chosen rises by one
    share = f"(place - {{}}) * {max(each - 1, 0)} div greatest(number - 1, 1)"
    rises = f"{share.format(0)} > {share.format(1)}"
    kept = ranked.where(f"place = 0 or number <= {each} or {rises}")
    return kept.groupBy("topic", "partition").agg(fn.collect_list("at").alias("times"))


def end_samples_frame(spark: SparkSession, looked: LookupResult) -> DataFrame:
    """What was found as rows of bronze/ends."""
    columns = "topic string, partition int, at bigint, beginning bigint, end bigint"
    rows = spark.createDataFrame([tuple(each) for each in looked.samples], columns)
    return rows.select(
        "topic",
        "partition",
        fn.timestamp_millis("at").alias("at"),
        "beginning",
        "end",
        fn.lit(None).cast("string").alias("problem"),
        fn.lit(None).cast("bigint").alias("times"),
    )


def look_up_ends(cluster: LiveCluster, wanted: LookupPlan) -> LookupResult:
    """Asks the cluster.

    :raises Unreachable: it cannot be reached at all
    """

    async def ask(client: ClusterClient) -> LookupResult:
        return await _EndLookup(client, cluster.timeout).look_up_all(wanted)

    if not wanted.times:
        return LookupResult(left_out=list(wanted.left_out))
    return ask_cluster(cluster, ask)


class _EndLookup:
    def __init__(self, client: ClusterClient, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._request_limit = asyncio.Semaphore(MAX_REQUESTS_IN_FLIGHT)
        self._looked = LookupResult()

    async def look_up_all(self, wanted: LookupPlan) -> LookupResult:
        """Now, then the past."""
        looked = self._looked
        looked.left_out += wanted.left_out
        known = await self._known(await self._existing_partitions(wanted.times))
        looked.partitions = len(known)
        past = await self._list_all(_lookup_rounds({place: wanted.times[place] for place in known}))
        for place, partition in known.items():
            found = dict(zip(wanted.times[place], past.get(place, ()), strict=False))
            told = past_samples(place, partition, found)
            looked.deleted += len(found.keys() - {sample.at for sample in told})
            now = EndSample(*place, partition.now, partition.begin, partition.end)
            looked.samples += [*told, now]
        return looked

    async def _known(
        self, places: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionBounds]:
        """Those that have told their bounds."""
        questions: list[dict[TopicPartition, int]] = [
            dict.fromkeys(places, what) for what in (EARLIEST, LATEST, BEFORE_ALL_RECORDS)
        ]
        found = await self._list_all(questions)
        now = time.time_ns() // 1_000_000
        return {
            place: PartitionBounds(begin.offset, end.offset, now, first)
            for place, (begin, end, first) in found.items()
            if begin is not None and end is not None
        }

    async def _existing_partitions(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that exist and may be looked at."""
        wanted = sorted(places)
        deadline = self._client.deadline_after(self._timeout)
        metadata = await self._client.refresh({each.topic for each in wanted}, deadline=deadline)
        there, bad = [], set[str]()
        for place in wanted:
            topic = metadata.topics.get(place.topic)
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if code:
                if place.topic not in bad:
                    self._looked.skip(_explain_error(code), place.topic)
                bad.add(place.topic)
            elif metadata.leader(place) is None:
                gone = metadata.partition(place) is None
                self._looked.skip(
                    _explain_error(Code.UNKNOWN_TOPIC_OR_PARTITION) if gone else "without a leader",
                    str(place),
                )
            else:
                there.append(place)
        return there

    async def _list_all(
        self, rounds: Sequence[Mapping[TopicPartition, int]]
    ) -> dict[TopicPartition, list[ListedOffset | None]]:
        """What is found of each partition, in the order of the rounds that ask for it."""
        lots = [
            dict(items[begin : begin + PARTITIONS_PER_REQUEST])
            for items in (list(each.items()) for each in rounds)
            for begin in range(0, len(items), PARTITIONS_PER_REQUEST)
        ]
        answers = await run_all(self._ask(lot) for lot in lots)
        found: dict[TopicPartition, list[ListedOffset | None]] = {}
        broken: set[TopicPartition] = set()
        for lot, answer in zip(lots, answers, strict=True):
            broken |= lot.keys() - answer.keys()
            for place, listed in answer.items():
                found.setdefault(place, []).append(listed)
        return {place: listed for place, listed in found.items() if place not in broken}

    async def _ask(
        self, targets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ListedOffset | None]:
        """One question; if it is refused, one for each topic, without those that are to blame."""
        async with self._request_limit:
            deadline = self._client.deadline_after(self._timeout)
            self._looked.lookups += len(targets)
            try:
                return await list_offsets(self._client, targets, deadline=deadline)
            except Refused as error:
                problem: RotaError = error
                apart = sorted({place.topic for place in targets})
            except RotaError as error:
                problem, apart = error, []
        if len(apart) <= 1:
            for name in sorted({place.topic for place in targets}):
                self._note(str(problem), name)
            return {}
        found: dict[TopicPartition, ListedOffset | None] = {}
        for topic in apart:
            own = {place: at for place, at in targets.items() if place.topic == topic}
            found |= await self._ask(own)
        return found

    def _note(self, why: str, name: str) -> None:
        if name not in self._looked.skipped.get(why, ()):
            self._looked.skip(why, name)


def _explain_error(code: int) -> str:
    match code:
        case Code.UNKNOWN_TOPIC_OR_PARTITION:
            return "that do not exist any more"
        case Code.TOPIC_AUTHORIZATION_FAILED:
            return "without permission to describe them"
        case _:
            return f"of which the cluster only says error {code}"


def _lookup_rounds(
    times: Mapping[TopicPartition, Sequence[int]],
) -> list[dict[TopicPartition, int]]:
    """Questions that have each partition once: Kafka takes no more."""
    longest = max((len(each) for each in times.values()), default=0)
    return [
        # the first record behind the whole millisecond: those of it are there by its end
        {place: each[number] + 1 for place, each in times.items() if number < len(each)}
        for number in range(longest)
    ]


def past_samples(
    place: TopicPartition, known: PartitionBounds, found: Mapping[int, ListedOffset | None]
) -> list[EndSample]:
    """The ends of a partition at times, as far as what was found proves them.

    :param found: by time, the first record that is younger
    """
    begin, end, now, first = known
    if begin == end and begin:
        return []  # all of it is deleted, and with it every trace of when it was written
    ends: dict[int, int] = {}
    if first is not None and begin:
        ends = {first.timestamp: first.offset + 1}  # of when it began nothing is left
    elif first is not None:
        ends = _ends_around(first)
    for at, record in sorted(found.items()):
        if record is None or record.offset >= end:
            ends[at] = end
        elif record.offset > begin or not begin:
            for moment, offset in _ends_around(record).items():
                ends.setdefault(moment, offset)
            ends[at] = record.offset
    return [
        EndSample(*place, at, None, offset)
        for at, offset in sorted(ends.items())
        if 0 <= at < now and offset <= end
    ]


def _ends_around(record: ListedOffset) -> dict[int, int]:
    """A record's own time: the end before it, and behind it."""
    return {record.timestamp - 1: record.offset, record.timestamp: record.offset + 1}
