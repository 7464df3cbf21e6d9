"""``rota run --poll``: samples groups at intervals, where the journal may not be read.

Each round takes a snapshot of all groups: members, committed offsets, log ends. What differs from
the round before is written to Parquet files (:class:`PollLog`). A round that fails is a gap, and
the next one is tried when it is due. Memory holds the last snapshot and a few unwritten rows only.

If a group, broker or topic does not answer, the snapshot names it and has all other answers.
At the end the files become the tables that are otherwise computed from the journal
(:class:`PollTables`), without samples of groups that are in the journal: it has more details.
"""

from __future__ import annotations

import asyncio
import fnmatch
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGINT
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from rota.client import group_description, group_requests
from rota.client.admin import CONSUMER_GROUP_TYPE, Admin, GroupList
from rota.client.cluster import ClusterClient, error_name
from rota.client.group_description import CLASSIC
from rota.client.metadata import BrokerMetadata
from rota.client.retry import is_permanent, run_limited
from rota.engine.history.client_settings import LibrarySigns, detect_library
from rota.engine.history.facts import GenerationMember, GroupType
from rota.engine.history.generations import DEAD_STATE, group_by_topic
from rota.engine.history.groups import OverviewBuilder
from rota.engine.history.samples import (
    GroupPoll,
    GroupSample,
    SampleChanges,
    SampledCommit,
    SampleReader,
    SampleTracker,
    sample_classic_group,
)
from rota.engine.model.request import DescribeGroups, OffsetFetch
from rota.engine.model.response import DescribedGroup, DescribeGroupsResult
from rota.engine.model.topic import NO_LEADER_EPOCH, TopicPartition
from rota.errors import AuthorizationFailed, Code, GroupError, Refused, RotaError, Unreachable
from rota.pipeline import arrow, decode
from rota.pipeline.group_by import repartition_by_key, split_by_key
from rota.pipeline.ingest import GROUP_SQL
from rota.pipeline.redaction import Redaction
from rota.pipeline.tables import COMMITS, ENDS, SAMPLES, Table
from rota.protocol.messages import (
    ZERO_UUID,
    Api,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribeClusterRequest,
    Request,
)
from rota.protocol.schemas import ResponseT

MAX_REQUESTS_IN_FLIGHT = 8
GROUPS_PER_REQUEST = 100
MULTI_GROUP_VERSION = 8  # first version of OffsetFetch in which one request names several groups
DESCRIBE_OPERATION = 1 << 8  # bit of the operation DESCRIBE in ``cluster_authorized_operations``

POLL_ACLS = (
    "Describe on the cluster (or on each group)",
    "Describe on the topics that groups have committed",
)


RequestBatch: TypeAlias = tuple[BrokerMetadata, str, list[str]]  # broker, group type, groups


@dataclass(slots=True, kw_only=True)
class ClusterSnapshot(GroupPoll):
    """The state of all groups of a cluster at one time, and what could not be read."""

    #: Log start offset and log end offset of partitions.
    ends: dict[TopicPartition, tuple[int | None, int]] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    #: Groups that the user may not describe, with the broker's error.
    denied: dict[str, str] = field(default_factory=dict)
    denied_topics: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    unsupported_groups: set[str] = field(default_factory=set)

    def add_error(self, group: str, code: int) -> None:
        if code == Code.GROUP_AUTHORIZATION_FAILED:
            self.denied[group] = error_name(code)
        elif code != Code.GROUP_ID_NOT_FOUND:
            self.failures.append(f"group {group!r}: {error_name(code)}")


class SnapshotReader:
    """Takes snapshots over connections that stay open."""

    def __init__(self, client: ClusterClient, globs: Sequence[str], timeout: float) -> None:
        """:param globs: reads only groups whose names match one of these; empty: all groups"""
        self._client = client
        self._admin = Admin(client, timeout)
        self._globs = globs
        self._timeout = timeout
        self._limit = asyncio.Semaphore(MAX_REQUESTS_IN_FLIGHT)
        #: The last description of each classic group, with its sample: most do not change.
        self._described: dict[str, tuple[DescribedGroup, GroupSample]] = {}

    async def take_snapshot(self) -> ClusterSnapshot:
        """:raises Unreachable: no broker responded"""
        begun = _now_ms()
        try:
            listing = await self._admin.list_groups()
        except AuthorizationFailed as error:
            raise Unreachable(f"{error}. A user needs {'; '.join(POLL_ACLS)}") from error
        except GroupError as error:  # the broker is starting
            raise Unreachable(str(error)) from error
        snapshot = ClusterSnapshot(
            started_at=begun, complete=not listing.unanswered, failures=[*listing.unanswered]
        )
        batches = self._plan_requests(snapshot, listing)
        await run_limited(self._limit, lambda batch: self._describe(snapshot, *batch), batches)
        await run_limited(self._limit, lambda batch: self._fetch_offsets(snapshot, *batch), batches)
        await self._fetch_ends(snapshot)
        self._described = {
            name: entry for name, entry in self._described.items() if name in snapshot.groups
        }
        snapshot.unanswered |= snapshot.denied.keys()
        snapshot.failures = list(dict.fromkeys(snapshot.failures))
        snapshot.at = _now_ms()
        return snapshot

    async def check_permissions(self, snapshot: ClusterSnapshot) -> None:
        """Raises Unreachable if a snapshot is empty because the user may see no group."""
        if snapshot.groups or snapshot.unanswered - snapshot.denied.keys():
            return
        needed = f"To describe groups a user needs {'; '.join(POLL_ACLS)}"
        denied = dict(snapshot.denied)
        for name in self._globs:
            if not set(name) & set("*?["):
                try:
                    await self._admin.find_group(name)
                except AuthorizationFailed as error:
                    denied[name] = str(error)
                except RotaError:
                    continue
        if denied:
            name, why = min(denied.items())
            raise Unreachable(f"no permission to describe group {name!r}: {why}. {needed}")
        if not await self._may_describe():
            raise Unreachable(f"no permission to describe any group. {needed}")

    async def _may_describe(self) -> bool:
        """Returns whether ListGroups lists all groups: that needs Describe on the cluster."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        deadline = self._client.deadline_after(self._timeout)
        try:
            response = await self._client.send(Api.DESCRIBE_CLUSTER, request, deadline=deadline)
        except RotaError:
            return True
        allowed: int = response.cluster_authorized_operations
        return allowed < 0 or bool(allowed & DESCRIBE_OPERATION)

    def _plan_requests(self, snapshot: ClusterSnapshot, listing: GroupList) -> list[RequestBatch]:
        by_node = defaultdict(list)
        for name, (listed, node) in listing.groups.items():
            if self._globs and not any(fnmatch.fnmatchcase(name, glob) for glob in self._globs):
                continue
            kind = listed.group_type or CLASSIC
            if kind in {CLASSIC, CONSUMER_GROUP_TYPE}:
                by_node[node, kind].append(name)
            else:
                snapshot.unsupported_groups.add(name)
        return [
            (node, kind, listed[start : start + GROUPS_PER_REQUEST])
            for (node, kind), listed in by_node.items()
            for start in range(0, len(listed), GROUPS_PER_REQUEST)
        ]

    async def _describe(
        self, snapshot: ClusterSnapshot, node: BrokerMetadata, kind: str, names: Sequence[str]
    ) -> None:
        snapshot.unanswered.update(names)
        try:
            if kind == CLASSIC:
                await self._describe_classic(snapshot, node, names)
            else:
                await self._describe_consumer(snapshot, node, names)
        except (Unreachable, Refused) as error:
            snapshot.failures.append(str(error))
        snapshot.unanswered -= snapshot.groups.keys() | snapshot.denied.keys()

    async def _describe_classic(
        self, snapshot: ClusterSnapshot, node: BrokerMetadata, names: Sequence[str]
    ) -> None:
        request = DescribeGroups(groups=tuple(names))
        response = await self._send(node, *group_requests.encode_group_request(request))
        result = cast(DescribeGroupsResult, group_requests.decode_group_response(request, response))
        for group in result.groups:
            if group.code:
                snapshot.add_error(group.group, group.code)
            elif group.state != DEAD_STATE:  # a dead group was deleted, or has the other type now
                described = self._described.get(group.group)
                if described is None or described[0] != group:
                    described = self._described[group.group] = group, sample_classic_group(group)
                snapshot.groups[group.group] = described[1]

    async def _describe_consumer(
        self, snapshot: ClusterSnapshot, node: BrokerMetadata, names: Sequence[str]
    ) -> None:
        message = ConsumerGroupDescribeRequest(group_ids=list(names))
        response = await self._send(node, Api.CONSUMER_GROUP_DESCRIBE, message)
        for group in response.groups:
            if group.error_code:
                snapshot.add_error(group.group_id, group.error_code)
            else:
                snapshot.groups[group.group_id] = sample_consumer_group(group)

    async def _fetch_offsets(
        self, snapshot: ClusterSnapshot, node: BrokerMetadata, _: str, listed: Sequence[str]
    ) -> None:
        names = [name for name in listed if name in snapshot.groups]
        if not names:
            return
        deadline = self._client.deadline_after(self._timeout)
        try:
            connection = await self._client.connect(node.id, deadline=deadline)
            offered = connection.versions.get(Api.OFFSET_FETCH)
            many = offered is not None and offered.high >= MULTI_GROUP_VERSION
            for batch in [names] if many else [[name] for name in names]:
                await self._fetch_offsets_in_one_request(snapshot, node, batch)
        except (Unreachable, Refused) as error:
            snapshot.failures.append(str(error))

    async def _fetch_offsets_in_one_request(
        self, snapshot: ClusterSnapshot, node: BrokerMetadata, names: Sequence[str]
    ) -> None:
        requests = [OffsetFetch(group=name) for name in names]
        response = await self._send(
            node, Api.OFFSET_FETCH, group_requests.encode_offset_fetch(*requests)
        )
        for request in requests:
            result = group_requests.decode_offset_fetch(response, request.group)
            if result.code:
                snapshot.add_error(request.group, result.code)
            elif not result.codes:  # with an error of a partition the offsets are incomplete
                snapshot.offsets[request.group] = {
                    tp: offset for tp, offset in result.offsets.items() if offset is not None
                }

    async def _fetch_ends(self, snapshot: ClusterSnapshot) -> None:
        partitions: set[TopicPartition] = set()
        partitions.update(*snapshot.offsets.values())
        for sample in snapshot.groups.values():
            for member in sample.members:
                for topic, numbers in (*member.assigned.items(), *member.owned.items()):
                    partitions.update(TopicPartition(topic, number) for number in numbers)
        if not partitions:
            return
        try:
            starts, ends = await self._admin.fetch_bounds(partitions)
        except (Unreachable, Refused) as error:
            snapshot.failures.append(str(error))
            return
        topics = self._client.metadata.topics
        for topic in sorted({tp.topic for tp in partitions}):
            code = topics[topic].error if topic in topics else Code.NONE
            if code == Code.TOPIC_AUTHORIZATION_FAILED:
                snapshot.denied_topics.add(topic)
        snapshot.topic_ids = {
            name: topic.id for name, topic in topics.items() if topic.id != ZERO_UUID
        }
        snapshot.ends = {tp: (starts.get(tp), end) for tp, end in ends.items()}

    async def _send(self, node: BrokerMetadata, api: Api, message: Request[ResponseT]) -> ResponseT:
        deadline = self._client.deadline_after(self._timeout)
        return await self._client.send(
            api, message, node=node.id, deadline=deadline, most=group_requests.MAX_VERSIONS.get(api)
        )


def sample_consumer_group(message: ConsumerGroupDescribeResponse.DescribedGroup) -> GroupSample:
    """Samples a group (KIP-848); a pattern's topics are the assigned ones."""
    group = group_description.describe_consumer_group(message, "")
    hosts = {member.member_id: member.client_host for member in message.members}
    members = group.members or ()
    matched = {topic for member in members for topic in (member.target or member.assigned).names}
    return GroupSample(
        group=group.group,
        at=0,
        kind=GroupType.CONSUMER,
        state=group.state,
        protocol_type=group.protocol_type,
        strategy=group.strategy or None,
        epoch=group.epoch,
        members=tuple(
            GenerationMember(
                member_id=member.id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=hosts[member.id],
                rack=member.rack,
                topics=tuple(sorted({*member.topics, *(matched if member.pattern else ())})),
                owned=group_by_topic(member.assigned),
                owned_generation=member.generation,
                assigned=group_by_topic(
                    member.assigned if member.target is None else member.target
                ),
                library=detect_library(
                    LibrarySigns(
                        group=group.group,
                        client_id=member.client_id,
                        group_instance_id=member.group_instance_id,
                    )
                ),
            )
            for member in sorted(members, key=lambda member: member.id)
        ),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


NO_JOURNAL_PARTITION = -1  # ``journal_partition`` of commits that were sampled
POLL_TABLES = (SAMPLES, COMMITS, ENDS)
ROWS_PER_WRITE = 20_000


class PollLog:
    def __init__(self, folder: Path, redaction: Redaction | None) -> None:
        self._redaction = redaction
        self._writers = {
            table: parquet.ParquetWriter(
                poll_log_path(folder, table), arrow.arrow_schema(table), compression="zstd"
            )
            for table in POLL_TABLES
        }
        self._buffered: dict[Table, list[pa.RecordBatch]] = {table: [] for table in POLL_TABLES}
        self._commits = 0

    def close(self) -> None:
        for table, writer in self._writers.items():
            self._flush(table)
            writer.close()

    def add_round(self, snapshot: ClusterSnapshot, changes: SampleChanges) -> None:
        samples = list(changes.samples)
        if self._redaction is not None:
            samples = list(map(self._redaction.sample, samples))
        self._buffer_rows(SAMPLES, arrow.facts_to_batch(SAMPLES, samples))
        commits = [self._commit_row(commit, snapshot.topic_ids) for commit in changes.commits]
        self._buffer_rows(COMMITS, arrow.rows_to_batch(COMMITS, commits))
        names = ("topic", "partition", "at", "beginning", "end")
        ends = (
            dict(zip(names, (*tp, snapshot.at, *bounds), strict=True))
            for tp, bounds in sorted(snapshot.ends.items())
        )
        self._buffer_rows(ENDS, arrow.rows_to_batch(ENDS, ends))

    def _commit_row(self, commit: SampledCommit, ids: Mapping[str, bytes]) -> dict[str, Any]:
        self._commits += 1
        row: dict[str, Any] = {
            "journal_partition": NO_JOURNAL_PARTITION,
            "journal_offset": self._commits,
            "at": commit.at,
            "group": commit.group,
            "topic": commit.partition.topic,
            "partition": commit.partition.partition,
            "topic_id": ids.get(commit.partition.topic),
            "not_before": commit.not_before,
        }
        if commit.committed is None:
            return row
        metadata, epoch = commit.committed.metadata, commit.committed.leader_epoch
        if self._redaction is not None:
            metadata = self._redaction.metadata(metadata)
        return row | {
            "offset": commit.committed.offset,
            "leader_epoch": None if epoch == NO_LEADER_EPOCH else epoch,
            "metadata": metadata,
        }

    def _buffer_rows(self, table: Table, rows: pa.RecordBatch) -> None:
        buffered = self._buffered[table]
        if rows.num_rows:
            buffered.append(rows)
        if sum(batch.num_rows for batch in buffered) >= ROWS_PER_WRITE:
            self._flush(table)

    def _flush(self, table: Table) -> None:
        if self._buffered[table]:
            self._writers[table].write_table(pa.Table.from_batches(self._buffered[table]))
        self._buffered[table] = []


def poll_log_path(folder: Path, table: Table) -> str:
    return str(folder / f"{table.name.replace('/', '-')}.parquet")


POLL_REQUEST_TIMEOUT = 30.0
MAX_FAILURES = 20  # number of different errors that are counted
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class PollSettings:
    every: float = 5.0  # seconds between two rounds
    length: float = 600.0  # seconds until the last round
    until: int | None = None  # time after which no round starts, in milliseconds since 1970
    groups: tuple[str, ...] = ()  # only groups that match one of these; empty: all groups
    timeout: float = POLL_REQUEST_TIMEOUT  # timeout of each request, in seconds


@dataclass(frozen=True, slots=True)
class PollGap:
    """A time in which no round succeeded."""

    begin: int
    end: int | None  # None: until the end of polling
    why: str


@dataclass(slots=True, kw_only=True)
class PollResult:
    folder: str
    every: float
    rounds: int = 0
    first: int | None = None
    last: int | None = None
    groups: set[str] = field(default_factory=set)
    changes: int = 0
    commits: int = 0  # number of committed offsets that differ from the round before
    gaps: list[PollGap] = field(default_factory=list)
    #: Groups and topics that the user may not describe, with the broker's error.
    denied: dict[str, str] = field(default_factory=dict)
    #: Other errors, with the number of rounds in which they occurred.
    failures: dict[str, int] = field(default_factory=dict)
    unsupported_groups: set[str] = field(default_factory=set)

    def add_round(self, snapshot: ClusterSnapshot, changes: SampleChanges) -> None:
        self.rounds += 1
        self.first = snapshot.at if self.first is None else self.first
        self.last = snapshot.at
        self.groups |= snapshot.groups.keys()
        self.changes += len(changes.samples)
        self.commits += len(changes.commits)
        self.denied |= {f"group {name}": why for name, why in snapshot.denied.items()}
        self.denied |= {f"topic {name}": "no permission" for name in snapshot.denied_topics}
        self.unsupported_groups |= snapshot.unsupported_groups
        for failure in snapshot.failures:
            if failure in self.failures or len(self.failures) < MAX_FAILURES:
                self.failures[failure] = self.failures.get(failure, 0) + 1

    def not_sampled(self) -> Iterator[tuple[str, int, Sequence[str]]]:
        """Yields what polling could not sample: a description, a number, and the names."""
        if denied := [f"{name}: {why}" for name, why in sorted(self.denied.items())]:
            yield "groups and topics without permission", len(denied), denied
        if groups := sorted(self.unsupported_groups):
            yield "share groups and streams groups", len(groups), groups
        if failures := [f"{number:,} times: {why}" for why, number in self.failures.items()]:
            yield "failed requests", sum(self.failures.values()), failures


class PollListener(Protocol):
    """Receives progress."""

    def round(self, polled: PollResult) -> None:
        """Called after each round."""

    def lost(self, why: str) -> None:
        """Called when no broker responds."""

    def back(self, gap: PollGap) -> None:
        """Called when a broker responds again."""


async def poll_groups(
    client: ClusterClient,
    poll: PollSettings,
    folder: Path,
    listener: PollListener,
    redaction: Redaction | None = None,
) -> PollResult:
    """Polls until the time is over or Ctrl-C; raises Unreachable if the first round fails."""
    folder.mkdir(parents=True, exist_ok=True)
    polled = PollResult(folder=str(folder), every=poll.every)
    with closing(PollLog(folder, redaction)) as log, _stop_on_sigint() as stop:
        await _PollLoop(client, poll, log, listener, polled, stop).run()
    if not polled.rounds:
        raise KeyboardInterrupt
    return polled


@dataclass(slots=True)
class _PollLoop:
    client: ClusterClient
    settings: PollSettings
    log: PollLog
    listener: PollListener
    polled: PollResult
    stop: asyncio.Event
    tracker: SampleTracker = field(default_factory=SampleTracker)
    lost: tuple[int, str] | None = None  # begin and reason of the gap that is not over yet

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        settings = self.settings
        reader = SnapshotReader(self.client, settings.groups, settings.timeout)
        length = settings.length
        if settings.until is not None:
            length = min(length, settings.until / 1000 - time.time())
        end = loop.time() + length
        while not self.stop.is_set():
            begun = loop.time()
            await self._round(reader)
            next_round = max(begun + settings.every, loop.time())
            if next_round > end:
                break
            await self._run_until_stopped(asyncio.sleep(next_round - loop.time()))
        if self.lost is not None:
            self.polled.gaps.append(PollGap(self.lost[0], None, self.lost[1]))

    async def _round(self, reader: SnapshotReader) -> None:
        begun = _now_ms()
        try:
            snapshot = await self._run_until_stopped(reader.take_snapshot())
            if snapshot is not None and not self.polled.rounds:
                await self._run_until_stopped(reader.check_permissions(snapshot))
        except Unreachable as error:
            if not self.polled.rounds or is_permanent(error):
                raise
            if self.lost is None:
                self.lost = self.polled.last or begun, str(error)
                self.listener.lost(str(error))
            return
        if snapshot is None:
            return
        if self.lost is not None:
            gap = PollGap(self.lost[0], snapshot.started_at, self.lost[1])
            self.polled.gaps.append(gap)
            self.listener.back(gap)
            self.lost = None
        changes = self.tracker.compare(snapshot)
        self.log.add_round(snapshot, changes)
        self.polled.add_round(snapshot, changes)
        self.listener.round(self.polled)

    async def _run_until_stopped(self, work: Awaitable[R]) -> R | None:
        """Returns the result, or None if the user stopped polling before it was there."""
        running = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return running.result() if running.done() else None
        finally:
            for task in (running, stopped):
                if not task.done():
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task


@contextmanager
def _stop_on_sigint() -> Iterator[asyncio.Event]:
    """Yields an event that Ctrl-C sets; a second Ctrl-C cancels the task."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def interrupt() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    loop.add_signal_handler(SIGINT, interrupt)
    try:
        yield stop
    except asyncio.CancelledError:
        if stop.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        loop.remove_signal_handler(SIGINT)


@dataclass(frozen=True, slots=True)
class PollTables:
    spark: SparkSession
    polled: PollResult
    until: int | None

    def commits(self, journal: DataFrame | None) -> DataFrame:
        """Returns silver/commits of the groups that are not in the journal."""
        return _without_journal_groups(self.rows(COMMITS), journal)

    def rows(self, table: Table) -> DataFrame:
        path = poll_log_path(Path(self.polled.folder).absolute(), table)
        rows = self.spark.read.schema(arrow.spark_ddl(table)).parquet(path)
        return rows if self.until is None else rows.where(fn.unix_millis("at") <= self.until)


def sampled_timelines(samples: DataFrame, journal: DataFrame | None) -> DataFrame:
    """Returns the timelines of sampled groups that are not in the journal."""
    rows = repartition_by_key(_without_journal_groups(samples, journal), "group", "at")
    return rows.mapInArrow(_decode_sampled_timelines, decode.TIMELINE_DDL)


def _without_journal_groups(rows: DataFrame, journal: DataFrame | None) -> DataFrame:
    if journal is None:
        return rows
    journal_groups = journal.select(fn.expr(GROUP_SQL).cast("string").alias("group")).distinct()
    return rows.join(journal_groups, "group", "left_anti").select(*rows.columns)


def _decode_sampled_timelines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for group, group_batches in split_by_key(batches, "group"):
        reader, builder = SampleReader(str(group)), OverviewBuilder(str(group))
        generations = builder.watch(reader.generations(read_samples(group_batches)))
        yield from decode.timeline_batches(generations, reader.take_ownership)
        if reader.first is not None and reader.last is not None:
            last = reader.last
            overview = builder.overview(last.kind, last.state, reader.first.at, last.at)
            yield decode.overview_batch(overview)


def read_samples(batches: Iterable[pa.RecordBatch]) -> Iterator[GroupSample]:
    reader = arrow.GenerationReader()
    for batch in batches:
        yield from reader.read_samples(batch)
