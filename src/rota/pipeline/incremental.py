"""A small micro-batch of ``--follow``: what new records change, computed in this process.

Spark is made for much data at once: it takes seconds to start all the jobs of a run, however little
they have to do. A small micro-batch concerns few groups. They are computed by the same functions as
in a whole run, called one group after the other, with the group's rows from the files of the last
micro-batch.

Which groups? Those with group records of their own; those for whose topics a commit gives another
name or id; and those with commits that the explanation of a rebalance may use: not later than the
group's last change, or of a partition that the group has never committed before.

The lag at a commit is final once its partition has been sampled later than the commit: later
samples do not change it, unless the owners change. So a micro-batch computes the lag of new
commits, and of those that wait for a sample, whose rows are in a file of their own; and that of all
commits of groups whose owners have changed, or of which a partition was never sampled before. The
verdicts are as of now: every micro-batch computes them from each partition's last commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rota.engine.history.generations import format_topic_id
from rota.engine.history.lag import MAX_SAMPLE_AGE
from rota.engine.history.verdicts import SubscriptionHistory
from rota.pipeline import arrow, decode, lag, rebalances
from rota.pipeline.decode import Unread
from rota.pipeline.group_by import TablePart, split_by_key
from rota.pipeline.lag import EndSamples, OwnershipIndex, RecentCommits, SampledCommits
from rota.pipeline.store import BucketFiles, TableStore
from rota.pipeline.tables import (
    COMMITS,
    ENDS,
    GENERATIONS,
    JOURNAL,
    LAG,
    OWNERSHIP,
    REBALANCES,
    SERVERLOG,
    STATUS,
    Table,
)

#: The records of groups that count, by the name in their key.
GROUP_RECORDS_SCHEMA = pa.schema([("group", pa.string()), *arrow.arrow_schema(JOURNAL)])

STATE_FOLDER = "state"

_OFFSET_KEY_TYPES = pa.array([b"\x00\x00", b"\x00\x01"], pa.binary())

_JOURNAL_KEY = ("journal_partition", "journal_offset")

_GROUP_PARTITION = ("group", "topic", "partition")

_WHATIF_INPUT = ("group", "life", "to_generation", "cause", "rollout")

_COMPUTED_TABLES = (GENERATIONS, OWNERSHIP, REBALANCES, *rebalances.WHATIF_TABLES.values())


def group_record_files(tables: TableStore) -> BucketFiles:
    """The records of groups, in a round's folder."""
    return BucketFiles(tables.path / STATE_FOLDER / "entries", GROUP_RECORDS_SCHEMA, tables.number)


@dataclass(slots=True)
class KnownGroup:
    """What a round must know of a group to tell whether commits matter to it."""

    #: The last moment up to which an explanation asks for commits.
    last: int = -(1 << 62)
    #: Those that it has committed.
    partitions: set[tuple[str, int]] = field(default_factory=set)
    #: Those that its generations name.
    topics: frozenset[str] = frozenset()


@dataclass(slots=True)
class GroupMemory:
    """What is kept in memory between micro-batches; all of it can be rebuilt from the tables."""

    #: Topics by id.
    names: dict[bytes, str] = field(default_factory=dict)
    #: Records of transactions that are open.
    pending: pa.Table = field(default_factory=arrow.arrow_schema(JOURNAL).empty_table)
    groups: dict[str, KnownGroup] = field(default_factory=dict)
    #: Of brokers' logs.
    lines: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)

    @classmethod
    def load(cls, tables: TableStore, names: Mapping[bytes, str], pending: pa.Table) -> GroupMemory:
        """Reads the tables of the last round."""
        known = cls(dict(names), pending)
        known.lines = split_by_group(tables.bucket_files(SERVERLOG).read())
        for group, lines in known.lines.items():
            known._update_last_change(group, lines)
        for group, rows in split_by_group(tables.bucket_files(GENERATIONS).read()).items():
            known._update_last_change(group, rows)
            known.group(group).topics = _topics_in_generations(rows)
        pairs = (
            tables.bucket_files(COMMITS)
            .read(columns=_GROUP_PARTITION)
            .group_by(list(_GROUP_PARTITION))
            .aggregate([])
        )
        known.add_commits(pairs)
        return known

    def group(self, name: str) -> KnownGroup:
        """The group of that name."""
        return self.groups.setdefault(name, KnownGroup())

    def add_commits(self, rows: pa.Table) -> set[str]:
        """Commits are there; the groups to which a partition of them is new."""
        pairs = rows.select(_GROUP_PARTITION).group_by(list(_GROUP_PARTITION)).aggregate([])
        found = set()
        for name, *pair in zip(
            *(pairs.column(each).to_pylist() for each in _GROUP_PARTITION), strict=True
        ):
            known = self.group(name).partitions
            if (one := (pair[0], pair[1])) not in known:
                known.add(one)
                found.add(name)
        return found

    def replace_generations(self, group: str, generations: list[pa.RecordBatch]) -> None:
        """A group's generations are others."""
        known = self.group(group)
        known.last = KnownGroup().last
        self._update_last_change(group, [*generations, *self.lines.get(group, ())])
        known.topics = _topics_in_generations(generations)

    def _update_last_change(self, group: str, batches: Iterable[pa.RecordBatch]) -> None:
        known = self.group(group)
        for rows in batches:
            for name in ("at", "state_at"):
                if name in rows.schema.names:
                    latest = pc.max(arrow.to_milliseconds(rows.column(name))).as_py()
                    known.last = max(known.last, known.last if latest is None else latest)


def _topics_in_generations(batches: Iterable[pa.RecordBatch]) -> frozenset[str]:
    """The topics that generations name."""
    found: set[str] = set()
    for rows in batches:
        members = rows.column("members").flatten()
        names = dict(zip((each.name for each in members.type), members.flatten(), strict=True))
        found |= set(pc.unique(names["topics"].flatten()).to_pylist())
        for kind in ("owned", "assigned"):
            held = names[kind]
            begin, end = held.offsets[0].as_py(), held.offsets[-1].as_py()
            found |= set(pc.unique(held.keys.slice(begin, end - begin)).to_pylist())
    return frozenset(found)


def split_by_group(rows: pa.Table, *order: str) -> dict[str, list[pa.RecordBatch]]:
    """The rows of each group, in an order."""
    ordered = rows.sort_by([(name, "ascending") for name in ("group", *order)])
    parts = split_by_key(ordered.combine_chunks().to_batches(), "group")
    return {str(group): list(pieces) for group, pieces in parts}


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """What new records say."""

    #: Rows of silver/commits.
    commits: pa.Table
    #: :data:`ENTRIES`.
    entries: pa.Table
    #: Records of transactions that are open now.
    pending: pa.Table
    #: Topics with their ids, as commits tell: of other groups, too.
    named: pa.Table
    #: Records that could not be read.
    unread: list[Unread]

    @property
    def groups(self) -> set[str]:
        """The groups that have entries."""
        return set(pc.unique(self.entries.column("group")).to_pylist())


def decode_records(
    new: pa.Table, pending: pa.Table, others: pa.Table | None = None
) -> DecodedRecords:
    """Decodes new rows of bronze/journal.

    :param others: records of all groups, where those are only of some
    """
    ready, pending = split_pending_records(new, pending)
    is_offset = _is_offset_record(ready)
    told = _decode_commit_table(ready.filter(is_offset))
    good = told.filter(pc.is_null(told.column("problem")))
    entries = _add_group_column(ready.filter(pc.invert(is_offset)))
    named = (
        good if others is None else _decode_commit_table(others.filter(_is_offset_record(others)))
    )
    return DecodedRecords(
        commits=good.drop_columns(["problem"]),
        entries=entries,
        pending=pending,
        named=named.select(["topic_id", "topic"]),
        unread=[*_unread_commits(told), *decode.count_unread_group_records(entries.to_batches())],
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
    return pa.Table.from_batches(wide, schema=decode.COMMITS_WITH_PROBLEM)


def split_pending_records(new: pa.Table, pending: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The records that count now, and those of open transactions: see ``decode.counting``."""
    special = pc.or_(new.column("transactional"), new.column("control"))
    plain = new.filter(pc.invert(special))
    if plain.num_rows == new.num_rows:
        return plain, pending
    rows = pa.concat_tables([pending, new.filter(special)])
    rows = rows.sort_by([(name, "ascending") for name in _JOURNAL_KEY])
    columns = ("journal_partition", "producer_id", "control", "key")
    opened: dict[tuple[int, int], list[int]] = {}
    committed: list[int] = []
    each = zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
    for number, (partition, producer, control, key) in enumerate(each):
        if not control:
            opened.setdefault((partition, producer), []).append(number)
        elif key is not None and len(key) > 2:
            ended = opened.pop((partition, producer), [])
            if int.from_bytes(key[2:4]) == decode.COMMIT_MARKER:
                committed += ended
    rest = sorted(number for numbers in opened.values() for number in numbers)
    whole = pa.concat_tables([plain, rows.take(pa.array(committed, pa.int64()))])
    return whole, rows.take(pa.array(rest, pa.int64()))


def _add_group_column(rows: pa.Table) -> pa.Table:
    names = [_group_in_key(key or b"") for key in rows.column("key").to_pylist()]
    return rows.add_column(0, "group", pa.array(names, pa.string())).cast(GROUP_RECORDS_SCHEMA)


def _group_in_key(key: bytes) -> str:
    return key[4 : 4 + int.from_bytes(key[2:4])].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class GroupChanges:
    """What came of a round."""

    #: Those that were computed anew.
    groups: frozenset[str]
    #: The group and the cause of each new rebalance.
    new_rebalances: tuple[tuple[str, str], ...]
    #: Of groups whose journal was read again: from when on its records are all there, and whether
    #: its first one is.
    windows: list[tuple[str, int, bool]]


class IncrementalGroups:
    """Computes the tables of the groups that a micro-batch changes."""

    def __init__(self, tables: TableStore, known: GroupMemory, since: int | None) -> None:
        """:param tables: with the files of the last round"""
        self._tables = tables
        self._known = known
        self._since = since
        self._made: dict[Table, list[pa.Table]] = {table: [] for table in _COMPUTED_TABLES}
        self._windows: list[tuple[str, int, bool]] = []

    def add_records(self, new: DecodedRecords) -> GroupChanges:
        """Adds records; computes what they change."""
        known = self._known
        known.pending = new.pending
        self._tables.bucket_files(COMMITS).append(new.commits)
        group_record_files(self._tables).append(new.entries)
        journal = new.groups | self._renamed(new.named)
        asked = self._groups_with_relevant_commits(new.commits) - journal
        self._compute(journal, asked)
        groups = journal | asked
        fresh = self._new_rebalances(groups)
        for table, parts in self._made.items():
            if groups:
                rows = pa.concat_tables([arrow.arrow_schema(table).empty_table(), *parts])
                self._tables.bucket_files(table).replace(groups, rows)
        return GroupChanges(frozenset(groups), tuple(fresh), self._windows)

    def _renamed(self, named: pa.Table) -> set[str]:
        """Groups to which a topic has another name or id now."""
        named = named.filter(pc.is_valid(named.column("topic_id")))
        found = named.group_by("topic_id").aggregate([("topic", "max")])
        names, words = self._known.names, set()
        for topic_id, topic in zip(*(each.to_pylist() for each in found.columns), strict=True):
            old = names.get(topic_id)
            if old is None or topic > old:
                names[topic_id] = topic
                words |= {topic, format_topic_id(topic_id) if old is None else old}
        groups = self._known.groups
        return {name for name, group in groups.items() if not words.isdisjoint(group.topics)}

    def _groups_with_relevant_commits(self, commits: pa.Table) -> set[str]:
        """Groups with commits that an explanation may ask for."""
        found = self._known.add_commits(commits)
        timed = commits.filter(pc.is_valid(commits.column("committed_at")))
        first = timed.group_by("group").aggregate([("committed_at", "min")])
        times = arrow.to_milliseconds(first.column("committed_at_min")).to_pylist()
        for group, at in zip(first.column("group").to_pylist(), times, strict=True):
            if at <= self._known.group(group).last:
                found.add(group)
        return found

    def _compute(self, journal: set[str], asked: set[str]) -> None:
        """:param journal: groups whose journal is read again; of others it is the same"""
        groups = journal | asked
        if not groups:
            return
        written = split_by_group(group_record_files(self._tables).read(journal), *_JOURNAL_KEY)
        saved = split_by_group(self._tables.bucket_files(GENERATIONS).read(asked))
        owned = split_by_group(self._tables.bucket_files(OWNERSHIP).read(asked))
        columns = (*_GROUP_PARTITION, "committed_at")
        commits = self._tables.bucket_files(COMMITS).read(groups, columns)
        timed = split_by_group(commits.filter(pc.is_valid(commits.column("committed_at"))))
        ids = {topic: topic_id for topic_id, topic in sorted(self._known.names.items())}
        for group in sorted(groups):
            if group in journal:
                made, owners = self._timeline(written.get(group, []))
                self._known.replace_generations(group, made)
            else:
                made, owners = saved.get(group, []), owned.get(group, [])
            self._keep(GENERATIONS, made)
            self._keep(OWNERSHIP, owners, "until")
            parts = {"generations": made, "lines": self._known.lines.get(group, [])}
            found = list(
                rebalances.group_rebalances(
                    group, _table_parts(parts | {"commits": timed.get(group, [])})
                )
            )
            self._keep(REBALANCES, found, "at")
            told = [rows.select(_WHATIF_INPUT) for rows in found]
            parts = {"generations": made, "rebalances": told}
            for rows in rebalances.group_whatif(_table_parts(parts), ids, self._since):
                for name, table in rebalances.WHATIF_TABLES.items():
                    self._keep(table, _struct_column_rows(rows, name))

    def _timeline(
        self, written: list[pa.RecordBatch]
    ) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """A group's generations, and who owned what."""
        made: list[pa.RecordBatch] = []
        owners: list[pa.RecordBatch] = []
        for rows in decode.decode_group_timeline(written, self._known.names):
            made += _struct_column_rows(rows, "generation")
            owners += _struct_column_rows(rows, "owner")
            told = rows.filter(rows.column("whole").is_valid())
            times = arrow.to_milliseconds(told.column("complete_from"))
            columns = (told.column("group"), times, told.column("whole"))
            self._windows += zip(*(each.to_pylist() for each in columns), strict=True)
        return made, owners

    def _keep(
        self, table: Table, batches: Collection[pa.RecordBatch], over: str | None = None
    ) -> None:
        if not batches:
            return
        rows = pa.Table.from_batches(batches).cast(arrow.arrow_schema(table))
        self._made[table].append(rows if over is None else filter_since(rows, over, self._since))

    def _new_rebalances(self, groups: set[str]) -> list[tuple[str, str]]:
        """Group and cause of rebalances that were not there before."""
        key = ("group", "life", "to_generation")

        def rows(table: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
            return zip(*(table.column(name).to_pylist() for name in columns), strict=True)

        before = set(rows(self._tables.bucket_files(REBALANCES).read(groups, key), *key))
        made = (row for table in self._made[REBALANCES] for row in rows(table, *key, "cause"))
        return [(group, cause) for group, *rest, cause in made if (group, *rest) not in before]


def filter_since(rows: pa.Table, column: str, since: int | None) -> pa.Table:
    """Rows that are not over before a time."""
    if since is None:
        return rows
    late = pc.greater_equal(arrow.to_milliseconds(rows.column(column)), since)
    return rows.filter(pc.fill_null(late, fill_value=True))


def _table_parts(tables: Mapping[str, list[pa.RecordBatch]]) -> Iterator[TablePart]:
    for name, batches in tables.items():
        for rows in batches:
            yield name, rows


def _struct_column_rows(rows: pa.RecordBatch, name: str) -> list[pa.RecordBatch]:
    """The rows that a column holds, which is null where it is another's turn."""
    held = rows.column(name)
    held = held.filter(held.is_valid())
    return [pa.RecordBatch.from_struct_array(held)] if len(held) else []


#: The file of gold/lag whose rows are not settled.
WAITING_FILE = "waiting"

#: The file of gold/status.
VERDICTS_FILE = "verdicts"

_COMMIT_COLUMNS = ("group", "topic", "partition", "at", "offset", "journal_offset")

_COMMIT_SCHEMA = pa.schema([arrow.arrow_schema(COMMITS).field(name) for name in _COMMIT_COLUMNS])

_BEFORE_ALL = -(1 << 62)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagInput:
    """What a round adds."""

    commits: pa.Table
    #: Groups whose generations and owners are others now.
    changed: frozenset[str]
    #: Rows of bronze/ends, each later than the last of its partition.
    samples: pa.Table
    #: The time of the last record of all.
    last: int


def _no_commits() -> SampledCommits:
    return SampledCommits.of(_commit_batch([]), EndSamples())


@dataclass(slots=True, kw_only=True)
class _GroupLag:
    owners: list[pa.RecordBatch]
    subscriptions: SubscriptionHistory
    tail: RecentCommits = field(default_factory=lambda: RecentCommits(_BEFORE_ALL))
    #: Commits from the future: no verdict looks at them yet.
    later: list[pa.RecordBatch] = field(default_factory=list)
    #: Commits that are not settled.
    waiting: SampledCommits = field(default_factory=_no_commits)


class IncrementalLag:
    """The last commits of every group and all samples of log ends; all of it can be rebuilt
    from the tables.
    """

    def __init__(self) -> None:
        self.samples = EndSamples()
        #: The time of each partition's last sample.
        self._last: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._groups: dict[str, _GroupLag] = {}
        #: Groups whose lag must be computed from the beginning.
        self._unsettled: set[str] = set()
        #: The time of the last sample.
        self.sampled = _BEFORE_ALL

    @classmethod
    def load(cls, tables: TableStore, last: int) -> IncrementalLag:
        """Reads the tables of the last round.

        :param last: the time of the last record
        """
        found = cls()
        found._sample(tables.bucket_files(ENDS).read())
        if not found.samples.listed:
            return found
        commits = split_by_group(tables.bucket_files(COMMITS).read(columns=_COMMIT_COLUMNS))
        found._load_groups(tables, commits.keys())
        for group, rows in commits.items():
            found._take(group, rows, found.as_of(last))
        if not tables.bucket_files(LAG).has_named_file(WAITING_FILE):
            # Spark has written it: what is not settled stands among the other rows
            found._unsettled = {
                name for name, group in found._groups.items() if len(group.waiting.at)
            }
        return found

    def as_of(self, last: int) -> int:
        """The time of the verdicts, where the last record is of a time."""
        return min(max(last, self.sampled), self.sampled + MAX_SAMPLE_AGE)

    def last_sample(self, partition: tuple[str, int]) -> int:
        """The time of a partition's last sample."""
        number = self.samples.numbers.get(partition)
        return _BEFORE_ALL if number is None else int(self._last[number])

    def add_micro_batch(
        self, tables: TableStore, known: GroupMemory, new: LagInput, since: int | None
    ) -> None:
        """Adds commits and samples to the tables, and computes what they change."""
        fresh = self._sample(new.samples)
        tables.bucket_files(ENDS).append(new.samples)
        if not self.samples.listed:
            return
        commits = split_by_group(new.commits.select(_COMMIT_COLUMNS))
        anew = set(new.changed) | self._unsettled | (commits.keys() - self._groups.keys())
        groups = known.groups.items()
        anew |= {name for name, group in groups if not fresh.isdisjoint(group.partitions)}
        self._unsettled = set()
        self._load_groups(tables, anew)
        as_of = self.as_of(new.last)
        written = split_by_group(tables.bucket_files(COMMITS).read(anew, _COMMIT_COLUMNS))
        whole = [
            self._lags(group, self._take(group, written.get(group, []), as_of))
            for group in sorted(anew)
        ]
        added = [
            self._lags(group, self._take(group, commits.get(group, []), as_of))
            for group in sorted(self._groups.keys() - anew)
        ]
        waiting = [self._lags(name, group.waiting) for name, group in self._groups.items()]
        lags = tables.bucket_files(LAG)
        lags.append(_concat_rows(LAG, added, since))
        if anew:
            lags.replace(anew, _concat_rows(LAG, whole, since))
        lags.write_named_file(WAITING_FILE, _concat_rows(LAG, waiting, since))
        self._verdicts(tables)

    def _sample(self, samples: pa.Table) -> set[tuple[str, int]]:
        """Takes samples; the partitions that had none before."""
        before = len(self.samples.listed)
        for rows in samples.combine_chunks().to_batches():
            self.samples.add_samples(rows)
        ends = self.samples.ends
        if len(ends.at):
            # of each partition the last: they are by partition and time
            newest = np.flatnonzero(np.append(np.diff(ends.partition) != 0, [True]))
            self._last = ends.at[newest]
            self.sampled = int(self._last.max())
        return set(self.samples.listed[before:])

    def _load_groups(self, tables: TableStore, groups: Collection[str]) -> None:
        """Reads who owned what, and who subscribed to what; of commits nothing is known yet."""
        owners = split_by_group(tables.bucket_files(OWNERSHIP).read(groups))
        made = split_by_group(tables.bucket_files(GENERATIONS).read(groups), "offset")
        for group in groups:
            reader = arrow.GenerationReader()
            generations = [one for rows in made.get(group, ()) for one in reader.read(rows)]
            self._groups[group] = _GroupLag(
                owners=owners.get(group, []), subscriptions=SubscriptionHistory(generations)
            )

    def _take(self, name: str, new: list[pa.RecordBatch], as_of: int) -> SampledCommits:
        """Takes a group's commits; those that are settled now."""
        group = self._groups[name]
        group.tail.as_of = as_of
        found = SampledCommits.of(_commit_batch([*group.later, *new]), self.samples)
        group.tail.add_commits(found)
        group.later = [found.rows.filter(pa.array(found.at > as_of))]
        found = SampledCommits.of(_commit_batch([group.waiting.rows, *new]), self.samples)
        settled = found.at < self._last[found.partition]
        group.waiting = found.where(~settled)
        return found.where(settled)

    def _lags(self, name: str, committed: SampledCommits) -> list[pa.RecordBatch]:
        if not len(committed.at):
            return []
        owners = OwnershipIndex(self._groups[name].owners, self.samples)
        return list(lag.lag_rows(committed, owners, self.samples))

    def _verdicts(self, tables: TableStore) -> None:
        told = (
            lag.status_rows(name, group.tail, self.samples, group.subscriptions)
            for name, group in sorted(self._groups.items())
        )
        found = [[rows] for rows in told if rows is not None]
        verdicts = tables.bucket_files(STATUS)
        verdicts.clear()
        verdicts.write_named_file(VERDICTS_FILE, _concat_rows(STATUS, found))


def _concat_rows(
    table: Table, parts: Iterable[list[pa.RecordBatch]], since: int | None = None
) -> pa.Table:
    listed = [rows for part in parts for rows in part]
    return filter_since(
        pa.Table.from_batches(listed, schema=arrow.arrow_schema(table)), "at", since
    )


def _commit_batch(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    whole = pa.Table.from_batches(parts, schema=_COMMIT_SCHEMA).combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], schema=_COMMIT_SCHEMA)
