"""``rota run --poll``: samples groups at intervals, where the journal may not be read.

Each round takes a snapshot of all groups: members, committed offsets, log ends. What differs from
the round before is written to Parquet files (:class:`PollLog`). A round that fails is a gap, and
the next one is tried when it is due. Memory holds the last snapshot and a few rows that are not
written yet, however long it takes.

Groups are asked for in batches, at the brokers that list them, with a few requests in flight. If a
group, broker or topic does not answer, the snapshot names it and has the answers of all others.

At the end the files become the tables that the journal makes otherwise (:class:`PollTables`). A
group that is in the journal is taken from the journal alone, which knows more.
"""

from __future__ import annotations

import asyncio
import fnmatch
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGINT
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from rota.client import group_description
from rota.client.admin import CONSUMER_GROUP_TYPE, Admin, GroupList
from rota.client.cluster import ClusterClient, error_name
from rota.client.group_description import CLASSIC
from rota.client.group_requests import MAX_VERSIONS, decode_group_response, encode_group_request
from rota.client.metadata import BrokerMetadata
from rota.client.retry import is_permanent, run_all
from rota.engine.history.client_settings import LibrarySigns, detect_library
from rota.engine.history.facts import Generation, GenerationMember, GroupType
from rota.engine.history.generations import group_by_topic
from rota.engine.history.samples import (
    DEAD_STATE,
    GroupPoll,
    GroupSample,
    SampleChanges,
    SampledCommit,
    SampleReader,
    SampleTracker,
    sample_classic_group,
)
from rota.engine.model.request import DescribeGroups, OffsetFetch
from rota.engine.model.response import DescribedGroup, DescribeGroupsResult, OffsetFetchResult
from rota.engine.model.topic import NO_LEADER_EPOCH, OffsetAndMetadata, TopicPartition
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
    DescribeClusterRequest,
    Message,
)

#: Requests under way.
MAX_REQUESTS_IN_FLIGHT = 8

#: Groups in one request.
GROUPS_PER_REQUEST = 100

#: The version of OffsetFetch from which on one request may name several groups.
MULTI_GROUP_VERSION = 8

#: The permission to describe, among those that a broker tells of.
DESCRIBE_OPERATION = 1 << 8

#: What a user of a secured cluster must be allowed.
POLL_ACLS = (
    "Describe on the cluster (or on each group that is meant)",
    "Describe on the topics that groups have committed",
)

S = TypeVar("S")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The state of all groups of a cluster at one time."""

    look: GroupPoll
    #: The first offset and the end of partitions.
    ends: Mapping[TopicPartition, tuple[int | None, int]]
    topic_ids: Mapping[str, bytes]
    #: Groups that may not be looked at, and what the broker says.
    denied: Mapping[str, str]
    denied_topics: frozenset[str]
    #: Why something else is missing, this time.
    failures: tuple[str, ...]
    #: Groups of kinds that do not share partitions: share groups, streams groups.
    unsupported_groups: frozenset[str]


@dataclass(slots=True)
class _SnapshotParts:
    """What answers have told so far."""

    groups: dict[str, GroupSample] = field(default_factory=dict)
    offsets: dict[str, Mapping[TopicPartition, OffsetAndMetadata]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    denied: dict[str, str] = field(default_factory=dict)
    denied_topics: set[str] = field(default_factory=set)
    troubles: list[str] = field(default_factory=list)


class SnapshotReader:
    """Takes snapshots again and again, over connections that are kept."""

    def __init__(self, client: ClusterClient, globs: Sequence[str], timeout: float) -> None:
        """:param globs: only groups whose names are like one of these; none: all"""
        self._client = client
        self._admin = Admin(client, timeout)
        self._globs = globs
        self._timeout = timeout
        self._room = asyncio.Semaphore(MAX_REQUESTS_IN_FLIGHT)
        #: What was last read of classic groups: most are the same the next time.
        self._read: dict[str, tuple[DescribedGroup, GroupSample]] = {}

    async def take_snapshot(self) -> ClusterSnapshot:
        """Asks for everything once.

        :raises Unreachable: no broker has answered
        """
        begun = _now_ms()
        try:
            listing = await self._admin.list_groups()
        except AuthorizationFailed as error:
            raise Unreachable(f"{error}. A user needs {'; '.join(POLL_ACLS)}") from error
        except GroupError as error:  # a broker that has just come up
            raise Unreachable(str(error)) from error
        told = _SnapshotParts(troubles=list(listing.unanswered))
        lots, others = self._plan_requests(listing)
        await self._all(lambda lot: self._describe(told, *lot), lots)
        asked = [(node, [name for name in names if name in told.groups]) for node, _, names in lots]
        await self._all(lambda lot: self._fetch(told, *lot), [lot for lot in asked if lot[1]])
        ends, ids = await self._ends(told)
        self._read = {name: each for name, each in self._read.items() if name in told.groups}
        return ClusterSnapshot(
            look=GroupPoll(
                started_at=begun,
                at=_now_ms(),
                groups=told.groups,
                offsets=told.offsets,
                unanswered=told.silent | told.denied.keys(),
                complete=not listing.unanswered,
            ),
            ends=ends,
            topic_ids=ids,
            denied=told.denied,
            denied_topics=frozenset(told.denied_topics),
            failures=tuple(dict.fromkeys(told.troubles)),
            unsupported_groups=frozenset(others),
        )

    async def check_permissions(self, survey: ClusterSnapshot) -> None:
        """Whether there is any sense in asking again.

        :raises Unreachable: nothing may be looked at; the message names what would be needed
        """
        if survey.look.groups or survey.look.unanswered - survey.denied.keys():
            return
        needed = f"To ask for groups a user needs {'; '.join(POLL_ACLS)}"
        denied = dict(survey.denied)
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
            raise Unreachable(f"group {name!r} may not be looked at: {why}. {needed}")
        if not await self._may_describe():
            raise Unreachable(f"no group may be looked at. {needed}")

    async def _may_describe(self) -> bool:
        """Whether all groups are listed; who may not describe the cluster sees those alone that
        it may describe. A broker that does not tell is believed to list all.
        """
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        deadline = self._client.deadline_after(self._timeout)
        try:
            answer = await self._client.send(Api.DESCRIBE_CLUSTER, request, deadline=deadline)
        except RotaError:
            return True
        told: int = answer.cluster_authorized_operations
        return told < 0 or bool(told & DESCRIBE_OPERATION)

    def _plan_requests(
        self, listing: GroupList
    ) -> tuple[list[tuple[BrokerMetadata, str, tuple[str, ...]]], list[str]]:
        """What to ask which broker for, and groups that are not asked for."""
        lots: dict[tuple[BrokerMetadata, str], list[str]] = {}
        others = []
        for name, (listed, node) in listing.groups.items():
            if self._globs and not any(fnmatch.fnmatchcase(name, glob) for glob in self._globs):
                continue
            kind = listed.group_type or CLASSIC
            if kind in {CLASSIC, CONSUMER_GROUP_TYPE}:
                lots.setdefault((node, kind), []).append(name)
            else:
                others.append(name)
        found = [
            (node, kind, names)
            for (node, kind), all_names in lots.items()
            for names in (
                tuple(all_names[start : start + GROUPS_PER_REQUEST])
                for start in range(0, len(all_names), GROUPS_PER_REQUEST)
            )
        ]
        return found, others

    async def _describe(
        self, told: _SnapshotParts, node: BrokerMetadata, kind: str, names: Sequence[str]
    ) -> None:
        told.silent.update(names)
        try:
            if kind == CLASSIC:
                await self._classic(told, node, names)
            else:
                await self._modern(told, node, names)
        except (Unreachable, Refused) as error:
            told.troubles.append(str(error))
        told.silent -= told.groups.keys() | told.denied.keys()

    async def _classic(
        self, told: _SnapshotParts, node: BrokerMetadata, names: Sequence[str]
    ) -> None:
        request = DescribeGroups(groups=tuple(names))
        api, message = encode_group_request(request)
        reply = cast(
            DescribeGroupsResult,
            decode_group_response(request, await self._ask(node, api, message)),
        )
        for found in reply.groups:
            if found.code:
                _record_group_error(told, found.group, found.code)
            elif found.state != DEAD_STATE:  # else it is of the other kind by now, or gone
                known = self._read.get(found.group)
                if known is None or known[0] != found:
                    known = self._read[found.group] = found, sample_classic_group(found)
                told.groups[found.group] = known[1]

    async def _modern(
        self, told: _SnapshotParts, node: BrokerMetadata, names: Sequence[str]
    ) -> None:
        message = ConsumerGroupDescribeRequest(group_ids=list(names))
        answer = await self._ask(node, Api.CONSUMER_GROUP_DESCRIBE, message)
        for found in answer.groups:
            if found.error_code:
                _record_group_error(told, found.group_id, found.error_code)
            else:
                told.groups[found.group_id] = sample_consumer_group(found)

    async def _fetch(
        self, told: _SnapshotParts, node: BrokerMetadata, names: Sequence[str]
    ) -> None:
        """What groups have committed."""
        deadline = self._client.deadline_after(self._timeout)
        try:
            connection = await self._client.connect(node.id, deadline=deadline)
            offered = connection.versions.get(Api.OFFSET_FETCH)
            many = offered is not None and offered.high >= MULTI_GROUP_VERSION
            for lot in [names] if many else [[name] for name in names]:
                await self._fetch_together(told, node, lot)
        except (Unreachable, Refused) as error:
            told.troubles.append(str(error))

    async def _fetch_together(
        self, told: _SnapshotParts, node: BrokerMetadata, names: Sequence[str]
    ) -> None:
        requests = [OffsetFetch(group=name) for name in names]
        api, message = encode_group_request(requests[0])
        message.groups = [encode_group_request(each)[1].groups[0] for each in requests]
        answer = await self._ask(node, api, message)
        for request in requests:
            reply = cast(OffsetFetchResult, decode_group_response(request, answer))
            if reply.code:
                _record_group_error(told, request.group, reply.code)
            elif not reply.codes:  # else it is not known which offsets are there
                told.offsets[request.group] = {
                    place: each for place, each in reply.offsets.items() if each is not None
                }

    async def _ends(
        self, told: _SnapshotParts
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
            starts, ends = await self._admin.fetch_bounds(places)
        except (Unreachable, Refused) as error:
            told.troubles.append(str(error))
            return {}, {}
        known = self._client.metadata.topics
        for topic in sorted({place.topic for place in places}):
            code = known[topic].error if topic in known else Code.NONE
            if code == Code.TOPIC_AUTHORIZATION_FAILED:
                told.denied_topics.add(topic)
        ids = {name: each.id for name, each in known.items() if each.id != ZERO_UUID}
        return {place: (starts.get(place), end) for place, end in ends.items()}, ids

    async def _ask(self, node: BrokerMetadata, api: Api, message: Message) -> Message:
        deadline = self._client.deadline_after(self._timeout)
        return await self._client.send(
            api, message, node=node.id, deadline=deadline, most=MAX_VERSIONS.get(api)
        )

    async def _all(self, ask: Callable[[S], Awaitable[None]], about: Iterable[S]) -> None:
        async def in_turn(one: S) -> None:
            async with self._room:
                await ask(one)

        await run_all(in_turn(one) for one in about)


def _record_group_error(told: _SnapshotParts, group: str, code: int) -> None:
    if code == Code.GROUP_AUTHORIZATION_FAILED:
        told.denied[group] = error_name(code)
    elif code != Code.GROUP_ID_NOT_FOUND:
        told.troubles.append(f"group {group!r}: {error_name(code)}")


def sample_consumer_group(found: Message) -> GroupSample:
    """A consumer group out of ConsumerGroupDescribe (KIP-848); its times are to be told.

    The topics of one who subscribes by a pattern are those that the group has been given: the
    broker tells the pattern alone.
    """
    seen = group_description.describe_consumer_group(found, "")
    hosts = {each.member_id: each.client_host for each in found.members}
    members = seen.members or ()
    matched = {topic for each in members for topic in (each.target or each.assigned).names}
    return GroupSample(
        group=seen.group,
        at=0,
        kind=GroupType.CONSUMER,
        state=seen.state,
        protocol_type=seen.protocol_type,
        strategy=seen.strategy or None,
        epoch=seen.epoch,
        members=tuple(
            GenerationMember(
                member_id=each.id,
                group_instance_id=each.group_instance_id,
                client_id=each.client_id,
                client_host=hosts[each.id],
                rack=each.rack,
                topics=tuple(sorted({*each.topics, *(matched if each.pattern else ())})),
                owned=group_by_topic(each.assigned),
                owned_generation=each.generation,
                assigned=group_by_topic(each.assigned if each.target is None else each.target),
                library=detect_library(
                    LibrarySigns(
                        group=seen.group,
                        client_id=each.client_id,
                        group_instance_id=each.group_instance_id,
                    )
                ),
            )
            for each in sorted(members, key=lambda each: each.id)
        ),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


#: In the place of a partition of the journal.
NO_JOURNAL_PARTITION = -1

POLL_TABLES = (SAMPLES, COMMITS, ENDS)

#: Rows that are written together.
ROWS_PER_WRITE = 20_000


class PollLog:
    """A file for each of the tables."""

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

    def __enter__(self) -> PollLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for table, writer in self._writers.items():
            self._flush(table)
            writer.close()

    def add_round(self, survey: ClusterSnapshot, seen: SampleChanges) -> None:
        """Writes a round down."""
        self._buffer_rows(SAMPLES, samples_to_batch(list(map(self._sample, seen.samples))))
        commits = [self._commit(each, survey.topic_ids) for each in seen.commits]
        self._buffer_rows(COMMITS, arrow.rows_to_batch(COMMITS, commits))
        self._buffer_rows(ENDS, arrow.rows_to_batch(ENDS, _end_rows(survey)))

    def _sample(self, sample: GroupSample) -> GroupSample:
        return sample if self._redaction is None else self._redaction.sample(sample)

    def _commit(self, seen: SampledCommit, ids: Mapping[str, bytes]) -> dict[str, Any]:
        self._commits += 1
        found: dict[str, Any] = dict.fromkeys(column.name for column in COMMITS.columns)
        found |= {
            "journal_partition": NO_JOURNAL_PARTITION,
            "journal_offset": self._commits,
            "at": seen.at,
            "group": seen.group,
            "topic": seen.partition.topic,
            "partition": seen.partition.partition,
            "topic_id": ids.get(seen.partition.topic),
            "not_before": seen.not_before,
        }
        if seen.committed is None:
            return found
        metadata, epoch = seen.committed.metadata, seen.committed.leader_epoch
        if self._redaction is not None:
            metadata = self._redaction.metadata(metadata)
        return found | {
            "offset": seen.committed.offset,
            "leader_epoch": None if epoch == NO_LEADER_EPOCH else epoch,
            "metadata": metadata,
        }

    def _buffer_rows(self, table: Table, rows: pa.RecordBatch) -> None:
        pile = self._buffered[table]
        if rows.num_rows:
            pile.append(rows)
        if sum(each.num_rows for each in pile) >= ROWS_PER_WRITE:
            self._flush(table)

    def _flush(self, table: Table) -> None:
        if self._buffered[table]:
            self._writers[table].write_table(pa.Table.from_batches(self._buffered[table]))
        self._buffered[table] = []


def poll_log_path(folder: Path, table: Table) -> str:
    """Where the rows of a table are."""
    return str(folder / f"{table.name.replace('/', '-')}.parquet")


def samples_to_batch(samples: list[GroupSample]) -> pa.RecordBatch:
    """Samples as rows of bronze/samples."""
    columns = [
        arrow.members_array([each.members for each in samples])
        if column.name == "members"
        else arrow.column_array(column, [getattr(each, column.name) for each in samples])
        for column in SAMPLES.columns
    ]
    return pa.record_batch(columns, schema=arrow.arrow_schema(SAMPLES))


def _end_rows(survey: ClusterSnapshot) -> Iterable[dict[str, Any]]:
    for place, (beginning, end) in sorted(survey.ends.items()):
        yield {
            "topic": place.topic,
            "partition": place.partition,
            "at": survey.look.at,
            "beginning": beginning,
            "end": end,
        }


POLL_REQUEST_TIMEOUT = 30.0

#: So many different troubles are remembered.
MAX_FAILURES = 20

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class PollSettings:
    """How to sample."""

    #: Seconds from one round to the next.
    every: float = 5.0
    #: Seconds until the last.
    length: float = 600.0
    #: No later than this, in milliseconds since 1970.
    until: int | None = None
    #: Only groups whose names are like one of these; none: all.
    groups: tuple[str, ...] = ()
    #: Seconds for each question.
    timeout: float = POLL_REQUEST_TIMEOUT


@dataclass(frozen=True, slots=True)
class PollGap:
    """A time in which no round succeeded."""

    begin: int
    #: None: to the end.
    end: int | None
    why: str


@dataclass(slots=True, kw_only=True)
class PollResult:
    """The result of polling: when, which groups, how many changes, what was missing."""

    folder: str
    every: float
    rounds: int = 0
    #: When the answers of the first round were there, and of the last.
    first: int | None = None
    last: int | None = None
    groups: set[str] = field(default_factory=set)
    #: Groups that were another than the round before.
    changes: int = 0
    #: Offsets that were another than the round before.
    commits: int = 0
    gaps: list[PollGap] = field(default_factory=list)
    #: Groups and topics that may not be looked at, and what the broker says.
    denied: dict[str, str] = field(default_factory=dict)
    #: Why something was missing in a round, and in how many.
    failures: dict[str, int] = field(default_factory=dict)
    #: Groups of kinds that do not share partitions.
    unsupported_groups: set[str] = field(default_factory=set)

    def add_round(self, survey: ClusterSnapshot, changes: int, commits: int) -> None:
        """A round."""
        self.rounds += 1
        self.first = survey.look.at if self.first is None else self.first
        self.last = survey.look.at
        self.groups |= survey.look.groups.keys()
        self.changes += changes
        self.commits += commits
        self.denied |= {f"group {name}": why for name, why in survey.denied.items()}
        self.denied |= {f"topic {name}": "no permission" for name in survey.denied_topics}
        self.unsupported_groups |= survey.unsupported_groups
        for trouble in survey.failures:
            if trouble in self.failures or len(self.failures) < MAX_FAILURES:
                self.failures[trouble] = self.failures.get(trouble, 0) + 1

    def missing(self) -> Iterator[tuple[str, int, Sequence[str]]]:
        """What was not seen: what it is, how many, which."""
        if self.denied:
            shown = [f"{name}: {why}" for name, why in sorted(self.denied.items())]
            yield "groups and topics without permission", len(shown), shown
        if self.unsupported_groups:
            yield (
                "groups that share no partitions (share, streams)",
                len(self.unsupported_groups),
                sorted(self.unsupported_groups),
            )
        if self.failures:
            shown = [f"{number:,} times: {why}" for why, number in self.failures.items()]
            yield "answers while sampling", sum(self.failures.values()), shown


class PollListener(Protocol):
    """Who is told how far it is."""

    def round(self, polled: PollResult) -> None:
        """A round is done."""

    def lost(self, why: str) -> None:
        """No broker answers."""

    def back(self, gap: PollGap) -> None:
        """One does again."""


async def poll_groups(
    client: ClusterClient,
    poll: PollSettings,
    folder: Path,
    listener: PollListener,
    redaction: Redaction | None = None,
) -> PollResult:
    """Samples until the time is over, or Ctrl-C; a second Ctrl-C is an interrupt as ever.

    :param folder: where what is seen is written to; it is made
    :raises Unreachable: the first round fails, or nothing may be looked at
    :raises KeyboardInterrupt: it was ended before the first round
    """
    folder.mkdir(parents=True, exist_ok=True)
    polled = PollResult(folder=str(folder), every=poll.every)
    with PollLog(folder, redaction) as spool, _stop_on_sigint() as stop:
        await _PollLoop(client, poll, spool, listener, polled, stop).run()
    if not polled.rounds:
        raise KeyboardInterrupt
    return polled


@dataclass(slots=True)
class _PollLoop:
    client: ClusterClient
    poll: PollSettings
    spool: PollLog
    listener: PollListener
    polled: PollResult
    stop: asyncio.Event
    watch: SampleTracker = field(default_factory=SampleTracker)
    #: Since when no round came about, and why.
    lost: tuple[int, str] | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        surveyor = SnapshotReader(self.client, self.poll.groups, self.poll.timeout)
        end = loop.time() + self._length()
        while not self.stop.is_set():
            begun = loop.time()
            await self._round(surveyor)
            following = max(begun + self.poll.every, loop.time())
            if following > end:
                break
            await self._run_until_stopped(asyncio.sleep(following - loop.time()))
        if self.lost is not None:
            self.polled.gaps.append(PollGap(self.lost[0], None, self.lost[1]))

    def _length(self) -> float:
        if self.poll.until is None:
            return self.poll.length
        return min(self.poll.length, self.poll.until / 1000 - time.time())

    async def _round(self, surveyor: SnapshotReader) -> None:
        begun = time.time_ns() // 1_000_000
        try:
            survey = await self._run_until_stopped(surveyor.take_snapshot())
            if survey is not None and not self.polled.rounds:
                await self._run_until_stopped(surveyor.check_permissions(survey))
        except Unreachable as error:
            if not self.polled.rounds or is_permanent(error):
                raise
            self._lose(begun, str(error))
            return
        if survey is None:
            return
        if self.lost is not None:
            gap = PollGap(self.lost[0], survey.look.started_at, self.lost[1])
            self.polled.gaps.append(gap)
            self.listener.back(gap)
            self.lost = None
        seen = self.watch.compare(survey.look)
        self.spool.add_round(survey, seen)
        self.polled.add_round(survey, len(seen.samples), len(seen.commits))
        self.listener.round(self.polled)

    def _lose(self, begun: int, why: str) -> None:
        if self.lost is None:
            self.lost = self.polled.last or begun, why
            self.listener.lost(why)

    async def _run_until_stopped(self, work: Awaitable[R]) -> R | None:
        """What comes of it; None: it was ended before."""
        doing = asyncio.ensure_future(work)
        ended = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({doing, ended}, return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else None
        finally:
            for task in (doing, ended):
                if not task.done():
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task


@contextmanager
def _stop_on_sigint() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C sets; the second one interrupts."""
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
    """The tables that polling has written, for one run."""

    spark: SparkSession
    polled: PollResult
    #: Nothing later, in milliseconds since 1970.
    until: int | None

    def samples(self) -> DataFrame:
        """bronze/samples."""
        return self._rows(SAMPLES)

    def ends(self) -> DataFrame:
        """bronze/ends; as lines of files, some of which have a problem."""
        none = fn.lit(None)
        return self._rows(ENDS).withColumns(
            {"problem": none.cast("string"), "times": none.cast("bigint")}
        )

    def commits(self, journal: DataFrame | None) -> DataFrame:
        """silver/commits, without those of groups that the journal has."""
        return _without_journal_groups(self._rows(COMMITS), journal)

    def _rows(self, table: Table) -> DataFrame:
        path = poll_log_path(Path(self.polled.folder).absolute(), table)
        rows = self.spark.read.schema(arrow.spark_ddl(table)).parquet(path)
        return rows if self.until is None else rows.where(fn.unix_millis("at") <= self.until)


def sampled_timelines(samples: DataFrame, journal: DataFrame | None) -> DataFrame:
    """What became of groups, out of bronze/samples, as far as the journal does not have them:
    :data:`.decode.TIMELINES`.
    """
    rows = repartition_by_key(_without_journal_groups(samples, journal), "group", "at")
    return rows.mapInArrow(_decode_sampled_timelines, decode.TIMELINE_DDL)


def _without_journal_groups(rows: DataFrame, journal: DataFrame | None) -> DataFrame:
    if journal is None:
        return rows
    known = journal.select(fn.expr(GROUP_SQL).cast("string").alias("group")).distinct()
    return rows.join(known, "group", "left_anti").select(*rows.columns)


def _decode_sampled_timelines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for group, parts in split_by_key(batches, "group"):
        reading = SampleReader(str(group))
        made: list[Generation] = []
        members = 0
        for one in reading.generations(read_samples(parts)):
            made.append(one)
            members += 1 + len(one.members)
            if members >= decode.MEMBERS_PER_BATCH:
                yield decode.generations_as_timeline(made)
                made, members = [], 0
        if made:
            yield decode.generations_as_timeline(made)
        if rest := reading.take_ownership():
            yield decode.ownership_as_timeline(rest)


def read_samples(parts: Iterable[pa.RecordBatch]) -> Iterator[GroupSample]:
    """Samples out of rows of bronze/samples."""
    reader = arrow.GenerationReader()
    for part in parts:
        columns = {
            name: arrow.column_values(part.column(name))
            for name in part.schema.names
            if name != "members"
        }
        columns["kind"] = list(map(GroupType, columns["kind"]))
        columns["members"] = reader.members(part.column("members"))
        for row in zip(*columns.values(), strict=True):
            yield GroupSample(**dict(zip(columns, row, strict=True)))
