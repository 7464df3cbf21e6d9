"""Ends of partitions from a live cluster: as they are now, and as they were, by ListOffsets.

A broker does not remember where a partition ended at some time, but finds the first record that is
not older than it: at that time the partition ended there. So a look-up for the millisecond after T
gives the end at T; where no record is that young, the end at T is the end now. It is as true as the
records' timestamps are. With ``message.timestamp.type=LogAppendTime`` they are the broker's own;
with ``CreateTime``, the default, producers set them a little before the record is there, and with a
clock of their own. What retention has deleted can no longer be looked up: a time before the first
record that is left says nothing.

The record that is found brings its own time, which is worth two samples more: until then the
partition ended before it, from then on behind it.

The times that are looked up are those of commits, evenly chosen among them: with as many look-ups
as commits, every lag is as good as the timestamps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from rota.client.cluster import Client
from rota.client.offset import EARLIEST, LATEST, ListedOffset, list_offsets
from rota.client.race import run_all
from rota.errors import Code, Refused, RotaError
from rota.model.topic import TopicPartition
from rota.pipeline.cluster import Cluster, asked

FIRST = 0
"""A time before that of any record."""
ALWAYS = 3
"""Look-ups that every partition gets: beginning, end, and its first record."""
MOST = 500
"""Look-ups of the past in one partition: more would be closer together than it matters."""
TOGETHER = 2_000
"""Partitions in one question."""
AT_ONCE = 8
"""Questions under way."""


class Sample(NamedTuple):
    """A row of bronze/ends; the time is in milliseconds."""

    topic: str
    partition: int
    at: int
    beginning: int | None
    end: int


class Known(NamedTuple):
    """A partition as it is."""

    begin: int
    end: int
    now: int
    """When it was so."""
    first: ListedOffset | None
    """The first record that is there."""


@dataclass(slots=True)
class Looked:
    """What came of the look-ups."""

    made: int = 0
    partitions: int = 0
    """Those with commits that have been asked for."""
    samples: list[Sample] = field(default_factory=list)
    left_out: list[TopicPartition] = field(default_factory=list)
    """Not asked for: there were too many."""
    skipped: dict[str, list[str]] = field(default_factory=dict)
    """Why topics or partitions could not be asked for, and which."""
    lost: int = 0
    """Look-ups that found nothing left of that time."""

    def skip(self, why: str, name: str) -> None:
        """Notes one that cannot be asked for."""
        self.skipped.setdefault(why, []).append(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to look up."""

    times: Mapping[TopicPartition, Sequence[int]]
    """Of each partition, ascending, besides what every one gets."""
    left_out: tuple[TopicPartition, ...] = ()


def plan(commits: DataFrame, lookups: int, since: int | None = None) -> Plan:
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
    number = min(len(every), lookups // ALWAYS)
    chosen, left_out = every[:number], tuple(every[number:])
    each = min(MOST, lookups // number - ALWAYS) if number else 0
    times: dict[TopicPartition, list[int]] = {place: [] for place in chosen}
    if each:
        for row in _moments(commits, each, since).collect():
            place = TopicPartition(row.topic, row.partition)
            if place in times:
                times[place] = sorted(row.times)
    return Plan(times=times, left_out=left_out)


def _moments(commits: DataFrame, each: int, since: int | None) -> DataFrame:
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


def samples(spark: SparkSession, looked: Looked) -> DataFrame:
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


def look_up(cluster: Cluster, wanted: Plan) -> Looked:
    """Asks the cluster.

    :raises Unreachable: it cannot be reached at all
    """

    async def ask(client: Client) -> Looked:
        return await _Lookup(client, cluster.timeout).all(wanted)

    if not wanted.times:
        return Looked(left_out=list(wanted.left_out))
    return asked(cluster, ask)


class _Lookup:
    def __init__(self, client: Client, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._room = asyncio.Semaphore(AT_ONCE)
        self._looked = Looked()

    async def all(self, wanted: Plan) -> Looked:
        """Now, then the past."""
        looked = self._looked
        looked.left_out += wanted.left_out
        known = await self._known(await self._there(wanted.times))
        looked.partitions = len(known)
        past = await self._find(_rounds({place: wanted.times[place] for place in known}))
        for place, partition in known.items():
            found = dict(zip(wanted.times[place], past.get(place, ()), strict=False))
            told = past_samples(place, partition, found)
            looked.lost += len(found.keys() - {sample.at for sample in told})
            now = Sample(*place, partition.now, partition.begin, partition.end)
            looked.samples += [*told, now]
        return looked

    async def _known(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Known]:
        """Those that have told their bounds."""
        questions: list[dict[TopicPartition, int]] = [
            dict.fromkeys(places, what) for what in (EARLIEST, LATEST, FIRST)
        ]
        found = await self._find(questions)
        now = time.time_ns() // 1_000_000
        return {
            place: Known(begin.offset, end.offset, now, first)
            for place, (begin, end, first) in found.items()
            if begin is not None and end is not None
        }

    async def _there(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that exist and may be looked at."""
        wanted = sorted(places)
        deadline = self._client.deadline(self._timeout)
        metadata = await self._client.refresh({each.topic for each in wanted}, deadline=deadline)
        there, bad = [], set[str]()
        for place in wanted:
            topic = metadata.topics.get(place.topic)
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if code:
                if place.topic not in bad:
                    self._looked.skip(_reason(code), place.topic)
                bad.add(place.topic)
            elif metadata.leader(place) is None:
                gone = metadata.partition(place) is None
                self._looked.skip(
                    _reason(Code.UNKNOWN_TOPIC_OR_PARTITION) if gone else "without a leader",
                    str(place),
                )
            else:
                there.append(place)
        return there

    async def _find(
        self, rounds: Sequence[Mapping[TopicPartition, int]]
    ) -> dict[TopicPartition, list[ListedOffset | None]]:
        """What is found of each partition, in the order of the rounds that ask for it."""
        lots = [
            dict(items[begin : begin + TOGETHER])
            for items in (list(each.items()) for each in rounds)
            for begin in range(0, len(items), TOGETHER)
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
        async with self._room:
            deadline = self._client.deadline(self._timeout)
            self._looked.made += len(targets)
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


def _reason(code: int) -> str:
    match code:
        case Code.UNKNOWN_TOPIC_OR_PARTITION:
            return "that do not exist any more"
        case Code.TOPIC_AUTHORIZATION_FAILED:
            return "without permission to describe them"
        case _:
            return f"of which the cluster only says error {code}"


def _rounds(
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
    place: TopicPartition, known: Known, found: Mapping[int, ListedOffset | None]
) -> list[Sample]:
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
        ends = _step(first)
    for at, record in sorted(found.items()):
        if record is None or record.offset >= end:
            ends[at] = end
        elif record.offset > begin or not begin:
            for moment, offset in _step(record).items():
                ends.setdefault(moment, offset)
            ends[at] = record.offset
    return [
        Sample(*place, at, None, offset)
        for at, offset in sorted(ends.items())
        if 0 <= at < now and offset <= end
    ]


def _step(record: ListedOffset) -> dict[int, int]:
    """A record's own time: the end before it, and behind it."""
    return {record.timestamp - 1: record.offset, record.timestamp: record.offset + 1}
