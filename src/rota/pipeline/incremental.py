"""Computes a small micro-batch of ``--follow`` in this process.

Spark needs seconds to start all the jobs of a run, however small they are. A small micro-batch
changes few groups. They are computed by the same functions as in a whole run, one group after the
other, with the group's rows from the files of the last micro-batch.

A group is computed again if it has new group records; if a commit gives another name or id to one
of its topics; if it has commits that the explanation of a rebalance may use: not later than the
group's last change, or of a partition that the group has never committed before; if new samples of
log ends show the records that arrived during its last downtime; with its health, if that changes or
is bad, if a partition has no consumer, or if it has static members: one that is away is found from
the commits that it does not make. Other groups keep their rows. So the time in which a group is
shut down ends with the evidence of the micro-batch that computed the group, and so does a session
that would still run under another policy.

The lag at a commit is final once its partition has a later sample: more samples do not change it,
unless the owners change. So a micro-batch computes the lag of new commits, and of commits that wait
for a sample, whose rows have their own file; and the lag of all commits of groups whose owners
changed, or that have a partition with its first sample. Every micro-batch computes the verdicts
from each partition's last commits. The health of a group needs its whole history, thinned, and is
computed when its owners change, and once a minute, or more often if it has static members.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rota.engine.history.downtime import SHUT_DOWN_AFTER
from rota.engine.history.facts import DowntimeReason, Generation, GroupHealth, GroupType
from rota.engine.history.generations import format_topic_id
from rota.engine.history.lag import MAX_SAMPLE_AGE
from rota.engine.history.verdicts import SubscriptionHistory
from rota.pipeline import arrow, decode, lag, rebalances
from rota.pipeline.decode import Unread
from rota.pipeline.group_by import split_by_key
from rota.pipeline.lag import (
    CommitHistory,
    EndSamples,
    OwnershipIndex,
    RecentCommits,
    SampledCommits,
)
from rota.pipeline.rebalances import GroupOptions
from rota.pipeline.store import BucketFiles, TableStore
from rota.pipeline.tables import (
    COMMITS,
    DOWNTIME,
    ENDS,
    GENERATIONS,
    GROUPS,
    HEALTH,
    JOURNAL,
    LAG,
    OWNERSHIP,
    REBALANCES,
    SERVERLOG,
    STATUS,
    Table,
)

#: Group records that are not part of an open or aborted transaction, with the group of their key.
GROUP_RECORDS_SCHEMA = pa.schema([("group", pa.string()), *arrow.arrow_schema(JOURNAL)])
STATE_FOLDER = "state"
_OFFSET_KEY_TYPES = pa.array([b"\x00\x00", b"\x00\x01"], pa.binary())
_JOURNAL_KEY = ("journal_partition", "journal_offset")
_GROUP_PARTITION = ("group", "topic", "partition")
_TIMELINE_TABLES = (GENERATIONS, OWNERSHIP, GROUPS)


def group_record_files(tables: TableStore) -> BucketFiles:
    """Returns the files with the group records of a micro-batch's folder."""
    return BucketFiles(tables.path / STATE_FOLDER / "entries", GROUP_RECORDS_SCHEMA, tables.number)


@dataclass(slots=True)
class KnownGroup:
    """Facts about a group that decide whether new commits change its tables."""

    last: int = -(1 << 62)  # the group's last change; explanations use commits up to it
    partitions: set[tuple[str, int]] = field(default_factory=set)  # those with commits
    topics: frozenset[str] = frozenset()  # topics in the group's generations
    #: Time changes its downtime: a partition has no consumer, though the group is not shut down; or
    #: the group closes on a schedule, and no longer does if it stays.
    is_down: bool = False
    #: Partitions whose last downtime ended after their last sample, and its end.
    unsampled: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(slots=True)
class GroupMemory:
    """Facts that are kept between micro-batches; they can be rebuilt from the tables."""

    names: dict[bytes, str] = field(default_factory=dict)  # topic names by topic id
    #: Records of open transactions.
    pending: pa.Table = field(default_factory=arrow.arrow_schema(JOURNAL).empty_table)
    groups: dict[str, KnownGroup] = field(default_factory=dict)
    lines: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)  # by group
    has_consumer_groups: bool = False

    @classmethod
    def load(
        cls, tables: TableStore, names: Mapping[bytes, str], pending: pa.Table, lag: IncrementalLag
    ) -> GroupMemory:
        memory = cls(dict(names), pending)
        memory.lines = split_by_group(tables.bucket_files(SERVERLOG).read())
        for group, lines in memory.lines.items():
            memory._update_last_change(group, lines)
        for group, rows in split_by_group(tables.bucket_files(GENERATIONS).read()).items():
            memory._update_last_change(group, rows)
            memory._note_members(group, rows)
        memory.add_commits(tables.bucket_files(COMMITS).read(columns=_GROUP_PARTITION))
        for group, rows in split_by_group(tables.bucket_files(DOWNTIME).read()).items():
            memory.note_downtime(group, rows, lag)
        return memory

    def group(self, name: str) -> KnownGroup:
        return self.groups.setdefault(name, KnownGroup())

    def add_commits(self, rows: pa.Table) -> set[str]:
        """Adds commits; returns the groups that committed a partition for the first time."""
        pairs = rows.select(_GROUP_PARTITION).group_by(list(_GROUP_PARTITION)).aggregate([])
        changed = set()
        for group, topic, partition in _rows(pairs, *_GROUP_PARTITION):
            committed = self.group(group).partitions
            if (topic, partition) not in committed:
                committed.add((topic, partition))
                changed.add(group)
        return changed

    def replace_generations(self, group: str, generations: list[pa.RecordBatch]) -> None:
        facts = self.group(group)
        facts.last = KnownGroup().last
        self._update_last_change(group, [*generations, *self.lines.get(group, ())])
        self._note_members(group, generations)

    def _note_members(self, group: str, generations: list[pa.RecordBatch]) -> None:
        self.group(group).topics = _topics_in_generations(generations)
        self.has_consumer_groups |= _is_consumer_group(generations)

    def note_downtime(
        self, group: str, batches: Iterable[pa.RecordBatch], lag: IncrementalLag
    ) -> None:
        """Notes which downtime of a group is not final."""
        facts = self.group(group)
        facts.is_down, facts.unsampled = False, {}
        first = lag.first_last_sample
        for rows in batches:
            ended = rows.column("ended")
            is_shut_down = pc.equal(rows.column("reason"), DowntimeReason.SHUT_DOWN)
            since, until = (arrow.to_milliseconds(rows.column(name)) for name in ("since", "until"))
            is_short = pc.less_equal(pc.subtract(until, since), SHUT_DOWN_AFTER)
            is_scheduled = pc.and_(pc.and_(ended, is_shut_down), is_short)
            lasting = pc.invert(pc.or_(ended, is_shut_down))
            facts.is_down |= pc.any(pc.or_(lasting, is_scheduled)).as_py() or False
            late = pa.Table.from_batches([rows]).select(["topic", "partition"])
            late = late.append_column("until", until).filter(
                pc.and_(ended, pc.greater(until, first))
            )
            for topic, partition, at in _rows(late, "topic", "partition", "until"):
                last = lag.last_sample((topic, partition))
                if _BEFORE_ALL < last < at:
                    known = facts.unsampled.get((topic, partition), at)
                    facts.unsampled[topic, partition] = max(known, at)

    def _update_last_change(self, group: str, batches: Iterable[pa.RecordBatch]) -> None:
        facts = self.group(group)
        for rows in batches:
            for name in ("at", "state_at"):
                if name in rows.schema.names:
                    latest = pc.max(arrow.to_milliseconds(rows.column(name))).as_py()
                    facts.last = max(facts.last, facts.last if latest is None else latest)


def _is_consumer_group(generations: Iterable[pa.RecordBatch]) -> bool:
    return any(GroupType.CONSUMER in rows.column("kind").to_pylist() for rows in generations)


def _rows(table: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in columns), strict=True)


def _topics_in_generations(batches: Iterable[pa.RecordBatch]) -> frozenset[str]:
    topics: set[str] = set()
    for rows in batches:
        members = rows.column("members").flatten()
        names = dict(zip((each.name for each in members.type), members.flatten(), strict=True))
        topics |= set(pc.unique(names["topics"].flatten()).to_pylist())
        for name in ("owned", "assigned"):
            by_topic = names[name]
            begin, end = by_topic.offsets[0].as_py(), by_topic.offsets[-1].as_py()
            topics |= set(pc.unique(by_topic.keys.slice(begin, end - begin)).to_pylist())
    return frozenset(topics)


def split_by_group(rows: pa.Table, *order: str) -> dict[str, list[pa.RecordBatch]]:
    """Returns the rows of each group, sorted by the columns ``order``."""
    ordered = rows.sort_by([(name, "ascending") for name in ("group", *order)])
    groups = split_by_key(ordered.combine_chunks().to_batches(), "group")
    return {str(group): list(batches) for group, batches in groups}


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """New records, decoded."""

    commits: pa.Table  # rows of silver/commits
    entries: pa.Table  # group records, with :data:`GROUP_RECORDS_SCHEMA`
    pending: pa.Table  # records of open transactions
    named: pa.Table  # topic ids and names in commits of all groups
    unread: list[Unread]

    @property
    def groups(self) -> set[str]:
        """The groups that have new group records."""
        return set(pc.unique(self.entries.column("group")).to_pylist())


def decode_records(
    new: pa.Table, pending: pa.Table, others: pa.Table | None = None
) -> DecodedRecords:
    """Decodes new rows of bronze/journal; ``others`` has all groups if ``new`` has only some."""
    ready, pending = split_pending_records(new, pending)
    is_offset = _is_offset_record(ready)
    decoded = _decode_commit_table(ready.filter(is_offset))
    good = decoded.filter(pc.is_null(decoded.column("problem")))
    entries = _add_group_column(ready.filter(pc.invert(is_offset)))
    named = good
    if others is not None:
        named = _decode_commit_table(others.filter(_is_offset_record(others)))
    unread = decode.count_unread_group_records(entries.to_batches())
    return DecodedRecords(
        commits=good.drop_columns(["problem"]),
        entries=entries,
        pending=pending,
        named=named.select(["topic_id", "topic"]),
        unread=[*_unread_commits(decoded), *unread],
    )


def _unread_commits(commits: pa.Table) -> Iterator[Unread]:
    bad = commits.filter(pc.is_valid(commits.column("problem")))
    if bad.num_rows:
        first = bad.slice(0, decode.MAX_EXAMPLES).select([*_JOURNAL_KEY, "problem"]).to_pylist()
        examples = tuple(decode.format_example(*row.values()) for row in first)
        yield Unread(what=decode.UNREAD_OFFSETS, count=bad.num_rows, examples=examples)


def _is_offset_record(rows: pa.Table) -> pa.ChunkedArray:
    kind = pc.binary_slice(rows.column("key"), 0, 2)
    offset = pc.fill_null(pc.is_in(kind, _OFFSET_KEY_TYPES), fill_value=False)
    return pc.and_(offset, pc.invert(rows.column("control")))


def _decode_commit_table(rows: pa.Table) -> pa.Table:
    wide = decode.decode_commit_batches(rows.combine_chunks().to_batches())
    return pa.Table.from_batches(wide, schema=arrow.arrow_schema(decode.COMMITS_WITH_PROBLEM))


def split_pending_records(new: pa.Table, pending: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Returns committed and open records: see :func:`decode.keep_committed_records`."""
    special = pc.or_(new.column("transactional"), new.column("control"))
    plain = new.filter(pc.invert(special))
    if plain.num_rows == new.num_rows:
        return plain, pending
    rows = pa.concat_tables([pending, new.filter(special)])
    rows = rows.sort_by([(name, "ascending") for name in _JOURNAL_KEY])
    columns = ("journal_partition", "producer_id", "control", "key")
    opened: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    committed: list[int] = []
    for number, (partition, producer, control, key) in enumerate(_rows(rows, *columns)):
        if not control:
            opened[partition, producer].append(number)
        elif key is not None and len(key) > 2:
            ended = opened.pop((partition, producer), [])
            if int.from_bytes(key[2:4]) == decode.COMMIT_MARKER:
                committed += ended
    rest = sorted(number for numbers in opened.values() for number in numbers)
    whole = pa.concat_tables([plain, rows.take(pa.array(committed, pa.int64()))])
    return whole, rows.take(pa.array(rest, pa.int64()))


def _add_group_column(rows: pa.Table) -> pa.Table:
    keys = (key or b"" for key in rows.column("key").to_pylist())
    names = [key[4 : 4 + int.from_bytes(key[2:4])].decode(errors="replace") for key in keys]
    return rows.add_column(0, "group", pa.array(names, pa.string())).cast(GROUP_RECORDS_SCHEMA)


class GroupChanges(NamedTuple):
    groups: frozenset[str]  # groups whose tables have to be computed again
    #: For groups whose records were read again: the group, the time from which on its records are
    #: complete, and whether they include the group's first record.
    windows: list[tuple[str, int, bool]]


class IncrementalGroups:
    """Computes the tables of changed groups: generations and owners, later the rest."""

    def __init__(self, tables: TableStore, memory: GroupMemory, since: int | None) -> None:
        """:param tables: a new folder with links to the files of the last micro-batch"""
        self._tables = tables
        self._memory = memory
        self._since = since

    def add_records(self, new: DecodedRecords) -> GroupChanges:
        """Adds records and commits, and writes the generations and owners that they change."""
        memory = self._memory
        memory.pending = new.pending
        self._tables.bucket_files(COMMITS).append(new.commits)
        group_record_files(self._tables).append(new.entries)
        with_records = new.groups | self._groups_with_renamed_topics(new.named)
        groups = with_records | self._groups_with_relevant_commits(new.commits)
        computed: dict[Table, list[pa.Table]] = {table: [] for table in _TIMELINE_TABLES}
        windows: list[tuple[str, int, bool]] = []
        for group, timeline in self._timelines(with_records).items():
            generations, owners, overviews, found = timeline
            memory.replace_generations(group, generations)
            computed[GENERATIONS] += _to_tables(GENERATIONS, generations)
            computed[OWNERSHIP] += (
                filter_since(rows, "until", self._since) for rows in _to_tables(OWNERSHIP, owners)
            )
            computed[GROUPS] += _to_tables(GROUPS, overviews)
            windows += found
        self._replace_rows(with_records, computed)
        self._extend_overviews(new.commits, without=groups)
        return GroupChanges(frozenset(groups), windows)

    def _extend_overviews(self, commits: pa.Table, without: Collection[str]) -> None:
        """Sets the time of the last record of groups that are not computed again."""
        at = pc.coalesce(commits.column("committed_at"), commits.column("at"))
        newest = commits.select(["group"]).append_column("last", at).group_by("group")
        latest = dict(_rows(newest.aggregate([("last", "max")]), "group", "last_max"))
        groups = latest.keys() - set(without)
        if groups:
            files = self._tables.bucket_files(GROUPS)
            rows = files.read(groups)
            last = rows.column("last")
            new = pa.array([latest[group] for group in rows.column("group").to_pylist()], last.type)
            place = rows.schema.get_field_index("last")
            later = pc.if_else(pc.greater(new, last), new, last)
            files.replace(groups, rows.set_column(place, rows.schema.field(place), later))

    def compute_groups(
        self, groups: Collection[str], lag: IncrementalLag, options: GroupOptions
    ) -> tuple[tuple[str, str], ...]:
        """Computes all tables of the groups; returns group and cause of new rebalances."""
        memory, tables = self._memory, self._tables
        groups = {*groups, *lag.list_changed_groups(memory)}
        if not groups:
            return ()
        generations = split_by_group(tables.bucket_files(GENERATIONS).read(groups))
        owners = split_by_group(tables.bucket_files(OWNERSHIP).read(groups))
        if self._since is not None:  # gold/ownership has no earlier owners
            timelines = self._timelines(groups & generations.keys())
            owners = {group: timeline.owners for group, timeline in timelines.items()}
        overviews = split_by_group(tables.bucket_files(GROUPS).read(groups))
        columns = (*_GROUP_PARTITION, "committed_at", "at")
        commits = split_by_group(tables.bucket_files(COMMITS).read(groups, columns))
        computed: dict[Table, list[pa.Table]] = {
            table: [] for table in rebalances.GROUP_TABLES.values()
        }
        for group in sorted(groups):
            made = generations.get(group, [])
            group_tables = {
                "overviews": overviews.get(group, []),
                "generations": made,
                "lines": memory.lines.get(group, []),
                "ownership": owners.get(group, []) if _is_consumer_group(made) else [],
                "health": lag.health_of(group),
                "commits": commits.get(group, []),
            }
            parts = ((name, rows) for name, batches in group_tables.items() for rows in batches)
            memory.note_downtime(group, (), lag)
            for name, rows in rebalances.compute_group(parts, options, lag.samples):
                table = rebalances.GROUP_TABLES[name]
                computed[table] += _to_tables(table, [rows])
                if table is DOWNTIME:
                    memory.note_downtime(group, [rows], lag)
        new_rebalances = self._new_rebalances(groups, computed[REBALANCES])
        self._replace_rows(groups, computed)
        return tuple(new_rebalances)

    def _replace_rows(
        self, groups: Collection[str], computed: Mapping[Table, list[pa.Table]]
    ) -> None:
        if groups:
            for table, found in computed.items():
                rows = pa.concat_tables([arrow.arrow_schema(table).empty_table(), *found])
                self._tables.bucket_files(table).replace(groups, rows)

    def _groups_with_renamed_topics(self, named: pa.Table) -> set[str]:
        named = named.filter(pc.is_valid(named.column("topic_id")))
        by_id = named.group_by("topic_id").aggregate([("topic", "max")])
        names, changed = self._memory.names, set()
        for topic_id, topic in _rows(by_id, "topic_id", "topic_max"):
            old = names.get(topic_id)
            if old is None or topic > old:
                names[topic_id] = topic
                changed |= {topic, format_topic_id(topic_id) if old is None else old}
        groups = self._memory.groups
        return {name for name, group in groups.items() if not changed.isdisjoint(group.topics)}

    def _groups_with_relevant_commits(self, commits: pa.Table) -> set[str]:
        relevant = self._memory.add_commits(commits)
        timed = commits.filter(pc.is_valid(commits.column("committed_at")))
        first = timed.group_by("group").aggregate([("committed_at", "min")])
        times = arrow.to_milliseconds(first.column("committed_at_min")).to_pylist()
        for group, at in zip(first.column("group").to_pylist(), times, strict=True):
            if at <= self._memory.group(group).last:
                relevant.add(group)
        return relevant

    def _timelines(self, groups: Collection[str]) -> dict[str, _Timeline]:
        records = split_by_group(group_record_files(self._tables).read(groups), *_JOURNAL_KEY)
        return {group: self._timeline(records.get(group, [])) for group in sorted(groups)}

    def _timeline(self, records: list[pa.RecordBatch]) -> _Timeline:
        found = _Timeline([], [], [], [])
        for rows in decode.decode_group_timeline(records, self._memory.names):
            found.generations.extend(_struct_column_rows(rows, "generation"))
            found.owners.extend(_struct_column_rows(rows, "owner"))
            found.overviews.extend(_struct_column_rows(rows, "overview"))
            windows = rows.filter(rows.column("whole").is_valid())
            times = arrow.to_milliseconds(windows.column("complete_from"))
            columns = (windows.column("group"), times, windows.column("whole"))
            found.windows.extend(zip(*(column.to_pylist() for column in columns), strict=True))
        return found

    def _new_rebalances(
        self, groups: Collection[str], computed: Iterable[pa.Table]
    ) -> list[tuple[str, str]]:
        key = ("group", "incarnation", "to_generation")
        before = set(_rows(self._tables.bucket_files(REBALANCES).read(groups, key), *key))
        now = (row for table in computed for row in _rows(table, *key, "cause"))
        return [(group, cause) for group, *rest, cause in now if (group, *rest) not in before]


class _Timeline(NamedTuple):
    generations: list[pa.RecordBatch]
    owners: list[pa.RecordBatch]
    overviews: list[pa.RecordBatch]  # rows of gold/groups without the commits
    windows: list[tuple[str, int, bool]]


def _to_tables(table: Table, batches: list[pa.RecordBatch]) -> list[pa.Table]:
    return [pa.Table.from_batches([rows]).cast(arrow.arrow_schema(table)) for rows in batches]


def filter_since(rows: pa.Table, column: str, since: int | None) -> pa.Table:
    """Returns the rows whose time in ``column`` is null or not before ``since``."""
    if since is None:
        return rows
    late = pc.greater_equal(arrow.to_milliseconds(rows.column(column)), since)
    return rows.filter(pc.fill_null(late, fill_value=True))


def _struct_column_rows(rows: pa.RecordBatch, name: str) -> list[pa.RecordBatch]:
    structs = rows.column(name)
    structs = structs.filter(structs.is_valid())
    return [pa.RecordBatch.from_struct_array(structs)] if len(structs) else []


WAITING_FILE = "waiting"  # file of gold/lag with the rows that a later sample may change
VERDICTS_FILE = "verdicts"  # file of gold/status and of gold/health
HEALTH_INTERVAL = 60_000  # milliseconds of evidence before a health is computed again
#: The same for a group with static members. One that is away leaves no record until it is back or
#: its session ends; this is a third of the default session.
STATIC_HEALTH_INTERVAL = 15_000
_COMMIT_COLUMNS = ("group", "topic", "partition", "at", "offset", "journal_offset")
_COMMIT_SCHEMA = pa.schema([arrow.arrow_schema(COMMITS).field(name) for name in _COMMIT_COLUMNS])
_BEFORE_ALL, _AFTER_ALL = -(1 << 62), 1 << 62
#: Columns of gold/health that the advice on a group in good health depends on.
_ADVICE_COLUMNS = ("health", *(column.name for column in HEALTH.columns if "worst" in column.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class LagInput:
    """The input of one micro-batch."""

    commits: pa.Table
    changed: frozenset[str]  # groups whose generations and owners changed
    samples: pa.Table  # rows of bronze/ends, each later than the last one of its partition
    last: int  # time of the last record


@dataclass(slots=True, kw_only=True)
class _GroupLag:
    owners: list[pa.RecordBatch]
    generations: list[Generation]
    subscriptions: SubscriptionHistory
    history: CommitHistory = field(default_factory=CommitHistory)
    health: tuple[pa.RecordBatch, int] | None = None  # row of gold/health, and when it was computed
    tail: RecentCommits = field(default_factory=lambda: RecentCommits(_BEFORE_ALL))
    later: list[pa.RecordBatch] = field(default_factory=list)  # commits after the verdicts
    #: Commits whose lag a later sample may change.
    waiting: SampledCommits = field(
        default_factory=lambda: SampledCommits.of(_combine_batches([]), EndSamples())
    )

    @property
    def has_static_members(self) -> bool:
        """Whether a classic group has static members now."""
        last = self.generations[-1] if self.generations else None
        if last is None or last.kind is GroupType.CONSUMER:
            return False
        return any(member.group_instance_id is not None for member in last.members)


class IncrementalLag:
    """The last commits of groups and all samples of log ends, which the tables have too."""

    def __init__(self) -> None:
        self.samples = EndSamples()
        #: Time of the last sample, by partition number.
        self._last: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._groups: dict[str, _GroupLag] = {}
        #: Groups whose lag must be computed from all their commits.
        self._unsettled: set[str] = set()
        #: Time of the last sample.
        self.sampled = _BEFORE_ALL
        #: Groups whose health this micro-batch computed, and those whose advice it may change.
        self._checked: set[str] = set()
        self._health_changed: set[str] = set()

    @classmethod
    def load(cls, tables: TableStore, last: int) -> IncrementalLag:
        """:param last: time of the last record"""
        loaded = cls()
        loaded._add_samples(tables.bucket_files(ENDS).read())
        commits = split_by_group(tables.bucket_files(COMMITS).read(columns=_COMMIT_COLUMNS))
        named = pc.unique(tables.bucket_files(GENERATIONS).read(columns=("group",)).column("group"))
        loaded._load_groups(tables, commits.keys() | set(named.to_pylist()))
        for group, rows in commits.items():
            loaded._add_commits(group, rows, loaded.as_of(last))
        for group, rows in split_by_group(tables.bucket_files(HEALTH).read_all()).items():
            loaded._groups[group].health = rows[0], _BEFORE_ALL
        if not tables.bucket_files(LAG).has_named_file(WAITING_FILE):
            # Spark wrote gold/lag, without a file of its own for the waiting rows
            groups = loaded._groups.items()
            loaded._unsettled = {name for name, group in groups if len(group.waiting.at)}
        return loaded

    def as_of(self, last: int) -> int:
        """Returns the time of the verdicts, given the time of the last record."""
        if not self.samples.listed:
            return last
        return min(max(last, self.sampled), self.sampled + MAX_SAMPLE_AGE)

    def last_sample(self, partition: tuple[str, int]) -> int:
        """Returns the time of a partition's last sample."""
        number = self.samples.numbers.get(partition)
        return _BEFORE_ALL if number is None else int(self._last[number])

    @property
    def first_last_sample(self) -> int:
        """The time up to which all sampled partitions have samples."""
        return int(self._last.min()) if len(self._last) else _AFTER_ALL

    def health_of(self, group: str) -> list[pa.RecordBatch]:
        """Returns the group's row of gold/health."""
        known = self._groups.get(group)
        return [] if known is None or known.health is None else [known.health[0]]

    def list_changed_groups(self, memory: GroupMemory) -> set[str]:
        """Returns groups whose downtime or advice the last samples or their health change."""
        return self._health_changed | {
            name
            for name, group in memory.groups.items()
            if (name in self._checked and (group.is_down or self._groups[name].has_static_members))
            or (
                group.unsampled
                and all(self.last_sample(pair) >= at for pair, at in group.unsampled.items())
            )
        }

    def add_micro_batch(
        self, tables: TableStore, memory: GroupMemory, new: LagInput, since: int | None
    ) -> None:
        """Adds commits and samples to the tables, and computes what they change."""
        newly_sampled = self._add_samples(new.samples)
        tables.bucket_files(ENDS).append(new.samples)
        commits = split_by_group(new.commits.select(_COMMIT_COLUMNS))
        reset = set(new.changed) | self._unsettled | (commits.keys() - self._groups.keys())
        groups = memory.groups.items()
        reset |= {name for name, group in groups if not newly_sampled.isdisjoint(group.partitions)}
        self._unsettled = set()
        self._load_groups(tables, reset)
        commits |= {group: [] for group in reset}
        commits |= split_by_group(tables.bucket_files(COMMITS).read(reset, _COMMIT_COLUMNS))
        as_of = self.as_of(new.last)
        settled = {
            group: self._lag_rows(group, self._add_commits(group, commits.get(group, []), as_of))
            for group in sorted(self._groups)
        }
        replaced = [settled.pop(group) for group in sorted(reset)]
        waiting = [self._lag_rows(name, group.waiting) for name, group in self._groups.items()]
        files = tables.bucket_files(LAG)
        files.append(_concat_rows(LAG, settled.values(), since))
        if reset:
            files.replace(reset, _concat_rows(LAG, replaced, since))
        files.write_named_file(WAITING_FILE, _concat_rows(LAG, waiting, since))
        self._write_verdicts(tables, as_of)

    def _add_samples(self, samples: pa.Table) -> set[tuple[str, int]]:
        """Returns the partitions that had no sample before."""
        before = len(self.samples.listed)
        for rows in samples.combine_chunks().to_batches():
            self.samples.add_samples(rows)
        ends = self.samples.ends
        if len(ends.at):
            # samples are sorted by partition and time: take the last of each partition
            newest = np.flatnonzero(np.append(np.diff(ends.partition) != 0, [True]))
            self._last = ends.at[newest]
            self.sampled = int(self._last.max())
        return set(self.samples.listed[before:])

    def _load_groups(self, tables: TableStore, groups: Collection[str]) -> None:
        owners = split_by_group(tables.bucket_files(OWNERSHIP).read(groups))
        by_group = split_by_group(tables.bucket_files(GENERATIONS).read(groups), "offset")
        for group in groups:
            reader = arrow.GenerationReader()
            generations = [each for rows in by_group.get(group, ()) for each in reader.read(rows)]
            self._groups[group] = _GroupLag(
                owners=owners.get(group, []),
                generations=generations,
                subscriptions=SubscriptionHistory(generations),
            )

    def _add_commits(self, name: str, new: list[pa.RecordBatch], as_of: int) -> SampledCommits:
        """Adds a group's commits; returns the commits whose lag no later sample changes."""
        group = self._groups[name]
        group.tail.as_of = as_of
        for rows in new:
            group.history.add_commits(rows)
        commits = SampledCommits.of(_combine_batches([*group.later, *new]), self.samples)
        group.tail.add_commits(commits)
        group.later = [commits.rows.filter(pa.array(commits.at > as_of))]
        commits = SampledCommits.of(_combine_batches([group.waiting.rows, *new]), self.samples)
        settled = commits.at < self._last[commits.partition]
        group.waiting = commits.where(~settled)
        return commits.where(settled)

    def _lag_rows(self, name: str, committed: SampledCommits) -> list[pa.RecordBatch]:
        if not len(committed.at):
            return []
        owners = OwnershipIndex(self._groups[name].owners, self.samples)
        return list(lag.lag_rows(committed, owners, self.samples))

    def _write_verdicts(self, tables: TableStore, as_of: int) -> None:
        verdicts = (
            lag.status_rows(name, group.tail, self.samples, group.subscriptions)
            for name, group in sorted(self._groups.items())
        )
        self._checked, self._health_changed = set(), set()
        health = (self._health_row(name, as_of) for name in sorted(self._groups))
        for table, batches in ((STATUS, verdicts), (HEALTH, health)):
            rows = [[batch] for batch in batches if batch is not None]
            files = tables.bucket_files(table)
            files.clear()
            files.write_named_file(VERDICTS_FILE, _concat_rows(table, rows))

    def _health_row(self, name: str, as_of: int) -> pa.RecordBatch | None:
        group = self._groups[name]
        if not group.generations and not group.history.has_commits:
            return None
        interval = HEALTH_INTERVAL
        if group.has_static_members:
            interval = min(interval, STATIC_HEALTH_INTERVAL)
        if group.health is None or as_of - group.health[1] >= interval:
            row = lag.health_row(name, group.history, self.samples, group.generations, as_of)
            self._checked.add(name)
            if group.health is None or _changes_advice(group.health[0], row):
                self._health_changed.add(name)
            group.health = row, as_of
        return group.health[0]


def _changes_advice(old: pa.RecordBatch, new: pa.RecordBatch) -> bool:
    """Returns whether the advice on a group differs with another row of gold/health."""
    is_good = new.column("health")[0].as_py() in {GroupHealth.OK, GroupHealth.UNKNOWN}
    return not is_good or not old.select(_ADVICE_COLUMNS).equals(new.select(_ADVICE_COLUMNS))


def _concat_rows(
    table: Table, groups: Iterable[list[pa.RecordBatch]], since: int | None = None
) -> pa.Table:
    batches = [rows for group in groups for rows in group]
    rows = pa.Table.from_batches(batches, schema=arrow.arrow_schema(table))
    return filter_since(rows, "at", since)


def _combine_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    joined = pa.Table.from_batches(batches, schema=_COMMIT_SCHEMA).combine_chunks().to_batches()
    return joined[0] if joined else pa.RecordBatch.from_pylist([], schema=_COMMIT_SCHEMA)
