"""A small round of a run that follows: what new records change, computed in this process.

Spark is made for much at once: it takes seconds to begin all the jobs of a run, whatever they are
about. A round is about a few groups. What is done for a group is done by the same functions; here
they are called one after the other, with the group's rows out of the last round's files.

Which groups? Those with records of their own; those of whose topics a commit tells another name or
id; and those with commits that an explanation may ask for: not later than the group's last change,
or of a partition that it has never committed before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rota.pipeline import decode, rebalance, schema, unread, whatif
from rota.pipeline.bygroup import Part, by_key
from rota.pipeline.layer import Layers
from rota.pipeline.store import Store
from rota.pipeline.unread import Unread
from rota.replay.modern import id_text
from rota.tables import (
    COMMITS,
    GENERATIONS,
    JOURNAL,
    OWNERSHIP,
    REBALANCES,
    SERVERLOG,
    Table,
)

ENTRIES = pa.schema([("group", pa.string()), *schema.arrow(JOURNAL)])
"""The records of groups that count, by the name in their key."""
STATE = "state"
_OFFSETS = pa.array([b"\x00\x00", b"\x00\x01"], pa.binary())
_PLACE = ("journal_partition", "journal_offset")
_PAIR = ("group", "topic", "partition")
_TOLD = ("group", "life", "to_generation", "cause", "rollout")
_MADE = (GENERATIONS, OWNERSHIP, REBALANCES, *whatif.COLUMNS.values())


def entries(tables: Store) -> Layers:
    """The records of groups, in a round's folder."""
    return Layers(tables.path / STATE / "entries", ENTRIES, tables.number)


@dataclass(slots=True)
class Group:
    """What a round must know of a group to tell whether commits matter to it."""

    last: int = -(1 << 62)
    """The last moment up to which an explanation asks for commits."""
    partitions: set[tuple[str, int]] = field(default_factory=set)
    """Those that it has committed."""
    topics: frozenset[str] = frozenset()
    """Those that its generations name."""


@dataclass(slots=True)
class Known:
    """What is kept in memory from round to round: it follows from the tables."""

    names: dict[bytes, str] = field(default_factory=dict)
    """Topics by id."""
    pending: pa.Table = field(default_factory=schema.arrow(JOURNAL).empty_table)
    """Records of transactions that are open."""
    groups: dict[str, Group] = field(default_factory=dict)
    lines: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    """Of brokers' logs."""

    @classmethod
    def load(cls, tables: Store, names: Mapping[bytes, str], pending: pa.Table) -> Known:
        """Reads the tables of the last round."""
        known = cls(dict(names), pending)
        known.lines = grouped(tables.layers(SERVERLOG).read())
        for group, lines in known.lines.items():
            known._see(group, lines)
        for group, rows in grouped(tables.layers(GENERATIONS).read()).items():
            known._see(group, rows)
            known.group(group).topics = _topics(rows)
        pairs = tables.layers(COMMITS).read(columns=_PAIR).group_by(list(_PAIR)).aggregate([])
        known.commit(pairs)
        return known

    def group(self, name: str) -> Group:
        """The group of that name."""
        return self.groups.setdefault(name, Group())

    def commit(self, rows: pa.Table) -> set[str]:
        """Commits are there; the groups to which a partition of them is new."""
        pairs = rows.select(_PAIR).group_by(list(_PAIR)).aggregate([])
        found = set()
        for name, *pair in zip(*(pairs.column(each).to_pylist() for each in _PAIR), strict=True):
            known = self.group(name).partitions
            if (one := (pair[0], pair[1])) not in known:
                known.add(one)
                found.add(name)
        return found

    def changed(self, group: str, generations: list[pa.RecordBatch]) -> None:
        """A group's generations are others."""
        known = self.group(group)
        known.last = Group().last
        self._see(group, [*generations, *self.lines.get(group, ())])
        known.topics = _topics(generations)

    def _see(self, group: str, batches: Iterable[pa.RecordBatch]) -> None:
        known = self.group(group)
        for rows in batches:
            for name in ("at", "state_at"):
                if name in rows.schema.names:
                    latest = pc.max(schema.milliseconds(rows.column(name))).as_py()
                    known.last = max(known.last, known.last if latest is None else latest)


def _topics(batches: Iterable[pa.RecordBatch]) -> frozenset[str]:
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


def grouped(rows: pa.Table, *order: str) -> dict[str, list[pa.RecordBatch]]:
    """The rows of each group, in an order."""
    ordered = rows.sort_by([(name, "ascending") for name in ("group", *order)])
    parts = by_key(ordered.combine_chunks().to_batches(), "group")
    return {str(group): list(pieces) for group, pieces in parts}


@dataclass(frozen=True, slots=True)
class Read:
    """What new records say."""

    commits: pa.Table
    """Rows of silver/commits."""
    entries: pa.Table
    """:data:`ENTRIES`."""
    pending: pa.Table
    """Records of transactions that are open now."""
    named: pa.Table
    """Topics with their ids, as commits tell: of other groups, too."""
    unread: list[Unread]
    """Records that could not be read."""

    @property
    def groups(self) -> set[str]:
        """The groups that have entries."""
        return set(pc.unique(self.entries.column("group")).to_pylist())


def read(new: pa.Table, pending: pa.Table, others: pa.Table | None = None) -> Read:
    """Decodes new rows of bronze/journal.

    :param others: records of all groups, where those are only of some
    """
    ready, pending = counted(new, pending)
    is_offset = _is_offset(ready)
    told = _commits(ready.filter(is_offset))
    good = told.filter(pc.is_null(told.column("problem")))
    entries = _named(ready.filter(pc.invert(is_offset)))
    named = good if others is None else _commits(others.filter(_is_offset(others)))
    return Read(
        commits=good.drop_columns(["problem"]),
        entries=entries,
        pending=pending,
        named=named.select(["topic_id", "topic"]),
        unread=[*_bad(told), *decode.not_read(entries.to_batches())],
    )


def _bad(commits: pa.Table) -> Iterator[Unread]:
    bad = commits.filter(pc.is_valid(commits.column("problem")))
    if bad.num_rows:
        first = bad.slice(0, unread.SHOWN).select([*_PLACE, "problem"]).to_pylist()
        examples = tuple(unread.place(*row.values()) for row in first)
        yield Unread(what=unread.OFFSETS, count=bad.num_rows, examples=examples)


def _is_offset(rows: pa.Table) -> pa.ChunkedArray:
    kind = pc.binary_slice(rows.column("key"), 0, 2)
    offset = pc.fill_null(pc.is_in(kind, _OFFSETS), fill_value=False)
    return pc.and_(offset, pc.invert(rows.column("control")))


def _commits(rows: pa.Table) -> pa.Table:
    wide = decode.read_commits(rows.combine_chunks().to_batches())
    return pa.Table.from_batches(wide, schema=decode.WITH_PROBLEM)


def counted(new: pa.Table, pending: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The records that count now, and those of open transactions: see ``decode.counting``."""
    special = pc.or_(new.column("transactional"), new.column("control"))
    plain = new.filter(pc.invert(special))
    if plain.num_rows == new.num_rows:
        return plain, pending
    rows = pa.concat_tables([pending, new.filter(special)])
    rows = rows.sort_by([(name, "ascending") for name in _PLACE])
    columns = ("journal_partition", "producer_id", "control", "key")
    opened: dict[tuple[int, int], list[int]] = {}
    committed: list[int] = []
    each = zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
    for number, (partition, producer, control, key) in enumerate(each):
        if not control:
            opened.setdefault((partition, producer), []).append(number)
        elif key is not None and len(key) > 2:
            ended = opened.pop((partition, producer), [])
            if int.from_bytes(key[2:4]) == decode.COMMITTED:
                committed += ended
    rest = sorted(number for numbers in opened.values() for number in numbers)
    whole = pa.concat_tables([plain, rows.take(pa.array(committed, pa.int64()))])
    return whole, rows.take(pa.array(rest, pa.int64()))


def _named(rows: pa.Table) -> pa.Table:
    names = [_name(key or b"") for key in rows.column("key").to_pylist()]
    return rows.add_column(0, "group", pa.array(names, pa.string())).cast(ENTRIES)


def _name(key: bytes) -> str:
    return key[4 : 4 + int.from_bytes(key[2:4])].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Told:
    """What came of a round."""

    groups: frozenset[str]
    """Those that were computed anew."""
    happened: tuple[tuple[str, str], ...]
    """The group and the cause of each new rebalance."""
    windows: list[tuple[str, int, bool]]
    """Of groups whose journal was read again: from when on its records are all there, and whether
    its first one is.
    """


class Touched:
    """The groups that a round is about."""

    def __init__(self, tables: Store, known: Known, since: int | None) -> None:
        """:param tables: with the files of the last round"""
        self._tables = tables
        self._known = known
        self._since = since
        self._made: dict[Table, list[pa.Table]] = {table: [] for table in _MADE}
        self._windows: list[tuple[str, int, bool]] = []

    def take(self, new: Read) -> Told:
        """Adds records; computes what they change."""
        known = self._known
        known.pending = new.pending
        self._tables.layers(COMMITS).append(new.commits)
        entries(self._tables).append(new.entries)
        journal = new.groups | self._renamed(new.named)
        asked = self._asked(new.commits) - journal
        self._compute(journal, asked)
        groups = journal | asked
        fresh = self._fresh(groups)
        for table, parts in self._made.items():
            if groups:
                rows = pa.concat_tables([schema.arrow(table).empty_table(), *parts])
                self._tables.layers(table).replace(groups, rows)
        return Told(frozenset(groups), tuple(fresh), self._windows)

    def _renamed(self, named: pa.Table) -> set[str]:
        """Groups to which a topic has another name or id now."""
        named = named.filter(pc.is_valid(named.column("topic_id")))
        found = named.group_by("topic_id").aggregate([("topic", "max")])
        names, words = self._known.names, set()
        for topic_id, topic in zip(*(each.to_pylist() for each in found.columns), strict=True):
            old = names.get(topic_id)
            if old is None or topic > old:
                names[topic_id] = topic
                words |= {topic, id_text(topic_id) if old is None else old}
        groups = self._known.groups
        return {name for name, group in groups.items() if not words.isdisjoint(group.topics)}

    def _asked(self, commits: pa.Table) -> set[str]:
        """Groups with commits that an explanation may ask for."""
        found = self._known.commit(commits)
        timed = commits.filter(pc.is_valid(commits.column("committed_at")))
        first = timed.group_by("group").aggregate([("committed_at", "min")])
        times = schema.milliseconds(first.column("committed_at_min")).to_pylist()
        for group, at in zip(first.column("group").to_pylist(), times, strict=True):
            if at <= self._known.group(group).last:
                found.add(group)
        return found

    def _compute(self, journal: set[str], asked: set[str]) -> None:
        """:param journal: groups whose journal is read again; of others it is the same"""
        groups = journal | asked
        if not groups:
            return
        written = grouped(entries(self._tables).read(journal), *_PLACE)
        saved = grouped(self._tables.layers(GENERATIONS).read(asked))
        owned = grouped(self._tables.layers(OWNERSHIP).read(asked))
        columns = (*_PAIR, "committed_at")
        commits = self._tables.layers(COMMITS).read(groups, columns)
        timed = grouped(commits.filter(pc.is_valid(commits.column("committed_at"))))
        ids = {topic: topic_id for topic_id, topic in sorted(self._known.names.items())}
        for group in sorted(groups):
            if group in journal:
                made, owners = self._timeline(written.get(group, []))
                self._known.changed(group, made)
            else:
                made, owners = saved.get(group, []), owned.get(group, [])
            self._keep(GENERATIONS, made)
            self._keep(OWNERSHIP, owners, "until")
            parts = {"generations": made, "lines": self._known.lines.get(group, [])}
            found = list(
                rebalance.of_group(group, _parts(parts | {"commits": timed.get(group, [])}))
            )
            self._keep(REBALANCES, found, "at")
            told = [rows.select(_TOLD) for rows in found]
            parts = {"generations": made, "rebalances": told}
            for rows in whatif.of_group(_parts(parts), ids, self._since):
                for name, table in whatif.COLUMNS.items():
                    self._keep(table, _only(rows, name))

    def _timeline(
        self, written: list[pa.RecordBatch]
    ) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """A group's generations, and who owned what."""
        made: list[pa.RecordBatch] = []
        owners: list[pa.RecordBatch] = []
        for rows in decode.read_timeline(written, self._known.names):
            made += _only(rows, "generation")
            owners += _only(rows, "owner")
            told = rows.filter(rows.column("whole").is_valid())
            times = schema.milliseconds(told.column("complete_from"))
            columns = (told.column("group"), times, told.column("whole"))
            self._windows += zip(*(each.to_pylist() for each in columns), strict=True)
        return made, owners

    def _keep(
        self, table: Table, batches: Collection[pa.RecordBatch], over: str | None = None
    ) -> None:
        if not batches:
            return
        rows = pa.Table.from_batches(batches).cast(schema.arrow(table))
        self._made[table].append(rows if over is None else shown(rows, over, self._since))

    def _fresh(self, groups: set[str]) -> list[tuple[str, str]]:
        """Group and cause of rebalances that were not there before."""
        key = ("group", "life", "to_generation")

        def rows(table: pa.Table, *columns: str) -> Iterator[tuple[Any, ...]]:
            return zip(*(table.column(name).to_pylist() for name in columns), strict=True)

        before = set(rows(self._tables.layers(REBALANCES).read(groups, key), *key))
        made = (row for table in self._made[REBALANCES] for row in rows(table, *key, "cause"))
        return [(group, cause) for group, *rest, cause in made if (group, *rest) not in before]


def shown(rows: pa.Table, column: str, since: int | None) -> pa.Table:
    """Rows that are not over before a time."""
    if since is None:
        return rows
    late = pc.greater_equal(schema.milliseconds(rows.column(column)), since)
    return rows.filter(pc.fill_null(late, fill_value=True))


def _parts(tables: Mapping[str, list[pa.RecordBatch]]) -> Iterator[Part]:
    for name, batches in tables.items():
        for rows in batches:
            yield name, rows


def _only(rows: pa.RecordBatch, name: str) -> list[pa.RecordBatch]:
    """The rows that a column holds, which is null where it is another's turn."""
    held = rows.column(name)
    held = held.filter(held.is_valid())
    return [pa.RecordBatch.from_struct_array(held)] if len(held) else []
