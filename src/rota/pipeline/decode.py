"""Decodes the journal into the silver tables: commits, generations and ownership.

Records that cannot be decoded are counted by type, with examples (:class:`Unread`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from rota.engine.formats import journal
from rota.engine.formats.journal import EntryColumns, Slices
from rota.engine.history.facts import Generation, JournalRecord, PartitionOwnership
from rota.engine.history.generations import HistoryReader
from rota.engine.history.groups import GroupOverview, OverviewBuilder
from rota.engine.model import journal_entry
from rota.engine.model.topic import NO_LEADER_EPOCH
from rota.errors import FormatError
from rota.pipeline import arrow
from rota.pipeline.group_by import repartition_by_key, split_by_key
from rota.pipeline.ingest import GROUP_SQL, IS_OFFSET_SQL
from rota.pipeline.tables import COMMITS, GENERATIONS, GROUPS, OWNERSHIP, Table

MAX_EXAMPLES = 20  # maximum number of examples of each type
UNREAD_OFFSETS = "offset records"
UNREAD_GROUPS = "group records"
DAMAGED_BATCHES = "damaged batches"
DAMAGED_OR_UNREDACTED = f"{DAMAGED_BATCHES}, and records that could not be redacted"
UNREAD_LOG_LINES = "unknown log lines about a group"
UNREAD_END_SAMPLES = "invalid lines in files of log end samples"

#: Types that a later micro-batch of ``--follow`` does not read again.
COUNTED_ONCE = frozenset(
    {DAMAGED_BATCHES, DAMAGED_OR_UNREDACTED, UNREAD_LOG_LINES, UNREAD_END_SAMPLES}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A type of input that could not be decoded, with its count and examples."""

    what: str
    count: int
    examples: tuple[str, ...] = ()


def unread_foreign(counts: Mapping[int, int]) -> list[Unread]:
    """Counts the records that Rota does not decode, by record type."""
    what = "records of a type that Rota does not decode (type {})"
    return [Unread(what=what.format(kind), count=n) for kind, n in sorted(counts.items())]


def format_example(partition: int, offset: int, problem: str) -> str:
    return f"partition {partition} offset {offset}: {problem}"


def unread_aggregates(where: str) -> dict[str, Column]:
    """Counts rows with a problem, with two examples; ``where``: SQL of a row's position."""
    text = fn.when(fn.col("problem").isNotNull(), fn.concat_ws(" ", fn.expr(where), "problem"))
    return {"bad": fn.count("problem"), "least": fn.min(text), "most": fn.max(text)}


def unread_from_aggregates(what: str, counts: Mapping[str, Any]) -> list[Unread]:
    """Reads the result of :func:`unread_aggregates`."""
    if not counts["bad"]:
        return []
    examples = tuple(dict.fromkeys((counts["least"], counts["most"])))
    return [Unread(what=what, count=counts["bad"], examples=examples)]


def unread_batches(counts: Mapping[str, Any], *, redacted: bool) -> list[Unread]:
    """Reads the result of :func:`unread_aggregates` over the rows of a journal."""
    kind = DAMAGED_OR_UNREDACTED if redacted else DAMAGED_BATCHES
    return unread_from_aggregates(kind, counts)


def merge_unread(*several: Iterable[Unread]) -> list[Unread]:
    """Adds up the counts of each type."""
    by_kind: dict[str, Unread] = {}
    for unread in (unread for each in several for unread in each):
        before = by_kind.get(unread.what, Unread(what=unread.what, count=0))
        examples = tuple(dict.fromkeys((*before.examples, *unread.examples)))
        by_kind[unread.what] = Unread(
            what=unread.what, count=before.count + unread.count, examples=examples[:MAX_EXAMPLES]
        )
    return [unread for unread in by_kind.values() if unread.count]


MEMBERS_PER_BATCH = 10_000  # number of members or owners in one Arrow batch
COMMIT_MARKER = 1  # type of a COMMIT marker, in the key of a control record
IS_GROUP_RECORD_SQL = f"(key is null or not {IS_OFFSET_SQL})"  # not a committed offset
_MARKER_TYPE_SQL = "cast(conv(hex(substring(key, 3, 2)), 16, 10) as int)"


def keep_committed_records(journal: DataFrame) -> DataFrame:
    """Returns the records outside of transactions and in committed transactions, without markers. A
    transaction ends with the next marker of its producer id. The marker's epoch is not used: it may
    already be the next epoch.
    """
    ended = _transaction_outcomes(journal).where(fn.col("outcome") == COMMIT_MARKER).drop("outcome")
    return journal.where("not transactional and not control").unionByName(ended)


def keep_pending_records(journal: DataFrame) -> DataFrame:
    """Returns the records of open transactions."""
    return _transaction_outcomes(journal).where("outcome is null").drop("outcome")


def _transaction_outcomes(journal: DataFrame) -> DataFrame:
    """Returns the records of transactions with the type of their marker; null: open."""
    later = (
        Window.partitionBy("journal_partition", "producer_id")
        .orderBy(fn.desc("journal_offset"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    marker = fn.when(fn.col("control"), fn.expr(_MARKER_TYPE_SQL))
    return (
        journal.where("transactional or control")
        .withColumn("outcome", fn.last(marker, ignorenulls=True).over(later))
        .where(~fn.col("control"))
    )


def decode_commits(journal: DataFrame) -> DataFrame:
    """Decodes committed offsets; a row with ``problem`` has no other value but its position."""
    ddl = arrow.spark_ddl(COMMITS_WITH_PROBLEM)
    return journal.where(IS_OFFSET_SQL).mapInArrow(decode_commit_batches, ddl)


def decode_commit_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decodes offset records; the columns are those of :func:`decode_commits`."""
    for batch in batches:
        if not batch.num_rows:
            continue
        buffer, (keys, values) = arrow.arrays_to_buffer(batch.column("key"), batch.column("value"))
        entries = journal.decode_entries(buffer, keys, values)
        yield _commit_batch(batch, entries)
        if len(entries.undecoded_rows):
            yield _decode_one_by_one(batch.take(pa.array(entries.undecoded_rows)))


def _commit_batch(batch: pa.RecordBatch, entries: EntryColumns) -> pa.RecordBatch:
    commits, buffer = entries.commits, entries.buffer
    rows = pa.array(commits.row)
    deleted = commits.tombstone
    no_epoch = deleted | (commits.leader_epoch == NO_LEADER_EPOCH)
    no_expiry = deleted | (commits.expire_timestamp == journal_entry.NO_TIMESTAMP)
    sizes = np.where(deleted, -1, commits.metadata_size)
    slices = Slices(commits.metadata_start, sizes)
    (metadata,) = arrow.slice_arrays(buffer.data, [slices], pa.string())
    return pa.record_batch(
        [
            batch.column("journal_partition").take(rows),
            batch.column("journal_offset").take(rows),
            batch.column("at").take(rows),
            arrow.name_array(commits.group, entries.groups),
            arrow.name_array(commits.topic, entries.topics),
            pa.array(commits.partition).cast(pa.int32()),
            pa.array(commits.offset, mask=deleted),
            pa.array(commits.leader_epoch, mask=no_epoch).cast(pa.int32()),
            metadata,
            arrow.time_array(commits.commit_timestamp, deleted),
            arrow.time_array(commits.expire_timestamp, no_expiry),
            arrow.uuid_array(buffer, commits.topic_id_start),
            batch.column("transactional").take(rows),
            pa.nulls(len(commits), arrow.TIME_TYPE),
            pa.nulls(len(commits), pa.string()),
        ],
        schema=arrow.arrow_schema(COMMITS_WITH_PROBLEM),
    )


COMMITS_WITH_PROBLEM = arrow.with_problem(COMMITS)


def _decode_one_by_one(batch: pa.RecordBatch) -> pa.RecordBatch:
    rows = []
    for row in batch.set_column(2, "at", arrow.to_milliseconds(batch.column("at"))).to_pylist():
        fields = {name: row[name] for name in ("journal_partition", "journal_offset", "at")}
        try:
            fields |= _commit_row(row) | {"transactional": row["transactional"]}
        except FormatError as error:
            fields["problem"] = str(error)
        rows.append(fields)
    return arrow.rows_to_batch(COMMITS_WITH_PROBLEM, rows)


def _commit_row(row: Mapping[str, Any]) -> dict[str, Any]:
    entry = journal.decode_record(row["key"], row["value"])
    assert isinstance(
        entry, journal_entry.OffsetCommitEntry | journal_entry.OffsetCommitTombstone
    ), "the key of an offset record"
    fields = {"group": entry.group, "topic": entry.topic, "partition": entry.partition}
    if isinstance(entry, journal_entry.OffsetCommitTombstone):
        return fields
    epoch, expires_at = entry.leader_epoch, entry.expire_timestamp
    return fields | {
        "offset": entry.offset,
        "leader_epoch": None if epoch == NO_LEADER_EPOCH else epoch,
        "metadata": entry.metadata,
        "committed_at": entry.commit_timestamp,
        "expires_at": None if expires_at == journal_entry.NO_TIMESTAMP else expires_at,
        "topic_id": entry.topic_id,
    }


def collect_topic_names(commits: DataFrame) -> dict[bytes, str]:
    """Returns topic names by topic id; of two names the one that sorts last."""
    named = commits.where("topic_id is not null").groupBy("topic_id").agg(fn.max("topic"))
    return {bytes(row[0]): row[1] for row in named.collect()}


_TIMELINE_COLUMNS: Mapping[str, str] = {
    "generation": arrow.struct_ddl(GENERATIONS),
    "owner": arrow.struct_ddl(OWNERSHIP),
    "overview": arrow.struct_ddl(GROUPS),
    "group": "string",
    "complete_from": "timestamp",
    "whole": "boolean",
    "journal_partition": "int",
    "journal_offset": "bigint",
    "problem": "string",
    "foreign": "int",
    "records": "bigint",
}

#: A row holds a generation; or an ownership; or a row of gold/groups that lacks the commits; or the
#: time from which a group's records are complete, and whether they include its first record; or the
#: position of a record that cannot be decoded; or the number of records of a type that Rota does
#: not decode.
TIMELINE_DDL = ", ".join(f"`{name}` {kind}" for name, kind in _TIMELINE_COLUMNS.items())


def decode_timelines(journal: DataFrame, names: Mapping[bytes, str]) -> DataFrame:
    """Decodes the history of every group, with the columns :data:`TIMELINE_DDL`."""
    entries = journal.where(IS_GROUP_RECORD_SQL).withColumn("name", fn.expr(GROUP_SQL))

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, batches_of_group in split_by_key(batches, "name"):
            yield from decode_group_timeline(batches_of_group, names)

    return repartition_by_key(entries, "name", "journal_partition", "journal_offset").mapInArrow(
        read, TIMELINE_DDL
    )


def decode_group_timeline(
    batches: Iterable[pa.RecordBatch], names: Mapping[bytes, str]
) -> Iterator[pa.RecordBatch]:
    """Decodes the history of one group from its records in the order of the journal."""
    records = _GroupRecords(batches)
    remaining = iter(records)
    first = []  # up to the first record with a group; "" is a valid group id
    for record in remaining:
        first.append(record)
        if getattr(record.entry, "group", None) is not None:
            break
    if first and (group := getattr(first[-1].entry, "group", None)) is not None:
        yield from _history_batches(HistoryReader(group, names), group, chain(first, remaining))
    if types := records.foreign:
        columns = {"foreign": list(types), "records": list(types.values())}
        yield arrow.null_filled_batch(_TIMELINE_COLUMNS, len(types), columns)
    if problems := records.problems:
        columns = {name: [row[name] for row in problems] for name in problems[0]}
        yield arrow.null_filled_batch(_TIMELINE_COLUMNS, len(problems), columns)


def count_unread_group_records(batches: Iterable[pa.RecordBatch]) -> list[Unread]:
    """Counts the group records that cannot be decoded."""
    records = _GroupRecords(batches)
    for _ in records:
        pass
    unread = unread_foreign(records.foreign)
    if problems := records.problems:
        examples = tuple(format_example(*row.values()) for row in problems[:MAX_EXAMPLES])
        unread.append(Unread(what=UNREAD_GROUPS, count=len(problems), examples=examples))
    return unread


class _GroupRecords:
    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.foreign: Counter[int] = Counter()
        self.problems: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[JournalRecord]:
        for batch in self._batches:
            # a record may be large: convert one at a time
            times = arrow.to_milliseconds(batch.column("at"))
            columns = ("journal_partition", "journal_offset", "key", "value")
            for row in zip(times, *map(batch.column, columns), strict=True):
                at, partition, offset, key, value = (each.as_py() for each in row)
                try:
                    entry = journal.decode_record(key or b"", value)
                except FormatError as error:
                    place = {"journal_partition": partition, "journal_offset": offset}
                    self.problems.append(place | {"problem": str(error)})
                    continue
                if isinstance(entry, journal_entry.UnparsedEntry):
                    self.foreign[entry.type] += 1
                yield JournalRecord(offset, at, entry)


def _history_batches(
    reader: HistoryReader, group: str, records: Iterable[JournalRecord]
) -> Iterator[pa.RecordBatch]:
    def take_many_ended() -> list[PartitionOwnership]:
        return reader.take_ended() if reader.count_ended() >= MEMBERS_PER_BATCH else []

    builder = OverviewBuilder(group)
    generations = builder.watch(reader.generations(records))
    yield from timeline_batches(generations, reader.take_remaining, take_many_ended)
    if reader.first is not None and reader.last is not None:
        kind, state = reader.kind_and_state
        yield overview_batch(builder.overview(kind, state, reader.first.at, reader.last.at))
    if reader.window is not None:
        time = arrow.time_array(np.array([reader.window.at]))
        window = {"group": [group], "complete_from": time, "whole": [reader.window.is_whole]}
        yield arrow.null_filled_batch(_TIMELINE_COLUMNS, 1, window)


def overview_batch(overview: GroupOverview) -> pa.RecordBatch:
    return _facts_as_timeline("overview", GROUPS, [overview])


def timeline_batches(
    generations: Iterable[Generation],
    take_remaining: Callable[[], list[PartitionOwnership]],
    take_ended: Callable[[], list[PartitionOwnership]] = list,
) -> Iterator[pa.RecordBatch]:
    """Yields generations and ownership in several batches: all may not fit into memory."""
    pending: list[Generation] = []
    members = 0
    for generation in generations:
        pending.append(generation)
        members += 1 + len(generation.members)
        if members >= MEMBERS_PER_BATCH:
            yield _facts_as_timeline("generation", GENERATIONS, pending)
            pending, members = [], 0
        if ended := take_ended():
            yield _facts_as_timeline("owner", OWNERSHIP, ended)
    if pending:
        yield _facts_as_timeline("generation", GENERATIONS, pending)
    if rest := take_remaining():
        yield _facts_as_timeline("owner", OWNERSHIP, rest)


def _facts_as_timeline(name: str, table: Table, facts: Sequence[object]) -> pa.RecordBatch:
    return arrow.as_struct_column(_TIMELINE_COLUMNS, name, arrow.facts_to_batch(table, facts))
