"""Decodes the journal into the silver tables: commits, generations and ownership.

Records that cannot be decoded are counted by type, with examples (:class:`Unread`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from rota.engine.formats import journal
from rota.engine.formats.journal import EntryColumns, Slices
from rota.engine.history import generations
from rota.engine.history.facts import Generation, JournalRecord, PartitionOwnership
from rota.engine.model.journal_entry import (
    NO_TIMESTAMP,
    OffsetCommitEntry,
    OffsetCommitTombstone,
    UnparsedEntry,
)
from rota.engine.model.topic import NO_LEADER_EPOCH
from rota.errors import FormatError
from rota.pipeline import arrow
from rota.pipeline.group_by import repartition_by_key, split_by_key
from rota.pipeline.ingest import GROUP_SQL, IS_OFFSET_SQL
from rota.pipeline.tables import COMMITS, GENERATIONS, OWNERSHIP

#: Maximum number of examples of each type.
MAX_EXAMPLES = 20
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


def unread_foreign(counts: Mapping[str, int]) -> list[Unread]:
    """Returns counts of record types that Rota knows but does not decode."""
    return [
        Unread(what=f"records of a type that Rota does not decode ({name})", count=count)
        for name, count in sorted(counts.items())
    ]


def format_example(partition: int, offset: int, problem: str) -> str:
    return f"partition {partition} offset {offset}: {problem}"


def unread_aggregates(where: str) -> dict[str, Column]:
    """Returns aggregates that count the rows with a problem while a table is written, with two
    examples.

    :param where: SQL expression for the position of a row
    """
    text = fn.when(fn.col("problem").isNotNull(), fn.concat_ws(" ", fn.expr(where), "problem"))
    return {"bad": fn.count("problem"), "least": fn.min(text), "most": fn.max(text)}


def unread_from_aggregates(what: str, counts: Mapping[str, Any]) -> list[Unread]:
    """Reads the result of :func:`unread_aggregates`."""
    if not counts["bad"]:
        return []
    examples = tuple(dict.fromkeys((counts["least"], counts["most"])))
    return [Unread(what=what, count=counts["bad"], examples=examples)]


def merge_unread(*several: Iterable[Unread]) -> list[Unread]:
    """Adds up the counts of each type."""
    found: dict[str, Unread] = {}
    for one in (one for each in several for one in each):
        before = found.get(one.what, Unread(what=one.what, count=0))
        examples = tuple(dict.fromkeys((*before.examples, *one.examples)))
        found[one.what] = Unread(
            what=one.what, count=before.count + one.count, examples=examples[:MAX_EXAMPLES]
        )
    return [one for one in found.values() if one.count]


#: Number of members or owners in one Arrow batch.
MEMBERS_PER_BATCH = 10_000
#: Type of a COMMIT marker, in the key of a control record.
COMMIT_MARKER = 1
#: SQL: the record is not a committed offset.
IS_GROUP_RECORD_SQL = f"(key is null or not {IS_OFFSET_SQL})"
_MARKER_TYPE_SQL = "cast(conv(hex(substring(key, 3, 2)), 16, 10) as int)"


def keep_committed_records(journal: DataFrame) -> DataFrame:
    """Returns the records outside of transactions and in committed transactions, without markers.

    A transaction ends with the next marker of its producer id. The marker's epoch is not used: it
    may already be the next epoch.
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
    """Decodes committed offsets, with the columns of silver/commits and ``problem``.

    A row with ``problem`` has only its position besides.
    """
    return journal.where(IS_OFFSET_SQL).mapInArrow(
        decode_commit_batches, f"{arrow.spark_ddl(COMMITS)}, problem string"
    )


def decode_commit_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decodes offset records; the columns are those of :func:`decode_commits`."""
    for batch in batches:
        if not batch.num_rows:
            continue
        buffer, (keys, values) = arrow.arrays_to_buffer(batch.column("key"), batch.column("value"))
        read = journal.decode_entries(buffer, keys, values)
        yield _commit_batch(batch, read)
        if len(read.undecoded_rows):
            yield _decode_one_by_one(batch.take(pa.array(read.undecoded_rows)))


def _commit_batch(batch: pa.RecordBatch, read: EntryColumns) -> pa.RecordBatch:
    found, buffer = read.commits, read.buffer
    rows = pa.array(found.row)
    deleted = found.tombstone
    size = np.where(deleted, -1, found.metadata_size)
    (metadata,) = arrow.slice_arrays(buffer.data, [Slices(found.metadata_start, size)], pa.string())
    return pa.record_batch(
        [
            batch.column("journal_partition").take(rows),
            batch.column("journal_offset").take(rows),
            batch.column("at").take(rows),
            arrow.name_array(found.group, read.groups),
            arrow.name_array(found.topic, read.topics),
            arrow.number_array(found.partition, pa.int32()),
            arrow.number_array(found.offset, pa.int64(), deleted),
            arrow.number_array(
                found.leader_epoch, pa.int32(), deleted | (found.leader_epoch == NO_LEADER_EPOCH)
            ),
            metadata,
            arrow.time_array(found.commit_timestamp, deleted),
            arrow.time_array(
                found.expire_timestamp, deleted | (found.expire_timestamp == NO_TIMESTAMP)
            ),
            arrow.uuid_array(buffer, found.topic_id_start),
            batch.column("transactional").take(rows),
            pa.nulls(len(found), arrow.TIME_TYPE),
            pa.nulls(len(found), pa.string()),
        ],
        schema=COMMITS_WITH_PROBLEM,
    )


COMMITS_WITH_PROBLEM = pa.schema([*arrow.arrow_schema(COMMITS), ("problem", pa.string())])


def _decode_one_by_one(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decodes the records that the columnar decoder leaves out."""
    rows = []
    for row in batch.set_column(2, "at", arrow.to_milliseconds(batch.column("at"))).to_pylist():
        found: dict[str, Any] = dict.fromkeys(COMMITS_WITH_PROBLEM.names)
        found |= {name: row[name] for name in ("journal_partition", "journal_offset", "at")}
        try:
            found |= _commit_row(row) | {"transactional": row["transactional"]}
        except FormatError as error:
            found["problem"] = str(error)
        rows.append(found)
    known = arrow.rows_to_batch(COMMITS, rows)
    problem = pa.array([row["problem"] for row in rows], pa.string())
    return pa.record_batch([*known.columns, problem], schema=COMMITS_WITH_PROBLEM)


def _commit_row(row: Mapping[str, Any]) -> dict[str, Any]:
    entry = journal.decode_record(row["key"], row["value"])
    assert isinstance(entry, OffsetCommitEntry | OffsetCommitTombstone), (
        "the key of an offset record"
    )
    found = {"group": entry.group, "topic": entry.topic, "partition": entry.partition}
    if isinstance(entry, OffsetCommitTombstone):
        return found
    return found | {
        "offset": entry.offset,
        "leader_epoch": None if entry.leader_epoch == NO_LEADER_EPOCH else entry.leader_epoch,
        "metadata": entry.metadata,
        "committed_at": entry.commit_timestamp,
        "expires_at": _time_or_none(entry.expire_timestamp),
        "topic_id": entry.topic_id,
    }


def _time_or_none(at: int) -> int | None:
    return None if at == NO_TIMESTAMP else at


def collect_topic_names(commits: DataFrame) -> dict[bytes, str]:
    """Returns topic names by topic id; of two names the one that sorts last."""
    named = commits.where("topic_id is not null").groupBy("topic_id").agg(fn.max("topic"))
    return {bytes(row[0]): row[1] for row in named.collect()}


_TIMELINE_COLUMNS: Mapping[str, str] = {
    "generation": arrow.struct_ddl(GENERATIONS),
    "owner": arrow.struct_ddl(OWNERSHIP),
    "group": "string",
    "complete_from": "timestamp",
    "whole": "boolean",
    "journal_partition": "int",
    "journal_offset": "bigint",
    "problem": "string",
    "foreign": "string",
    "records": "bigint",
}

#: A row is one of: a generation; an ownership; a group, with the time from which on its records are
#: complete, and whether its first record is there; a record that cannot be decoded, with its
#: position; a record type that Rota does not decode, with the number of its records.
TIMELINE_DDL = ", ".join(f"`{name}` {kind}" for name, kind in _TIMELINE_COLUMNS.items())


def decode_timelines(journal: DataFrame, names: Mapping[bytes, str]) -> DataFrame:
    """Decodes the history of every group, with the columns :data:`TIMELINE_DDL`."""
    entries = journal.where(IS_GROUP_RECORD_SQL).withColumn("name", fn.expr(GROUP_SQL))

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, parts in split_by_key(batches, "name"):
            yield from decode_group_timeline(parts, names)

    return repartition_by_key(entries, "name", "journal_partition", "journal_offset").mapInArrow(
        read, TIMELINE_DDL
    )


def decode_group_timeline(
    parts: Iterable[pa.RecordBatch], names: Mapping[bytes, str]
) -> Iterator[pa.RecordBatch]:
    """Decodes the history of one group from its records in the order of the journal."""
    records = _GroupRecords(parts)
    written = iter(records)
    first = []  # up to the first record with a group; "" is a valid group id
    for one in written:
        first.append(one)
        if getattr(one.entry, "group", None) is not None:
            break
    if first and (group := getattr(first[-1].entry, "group", None)) is not None:
        yield from _timeline_batches(
            generations.HistoryReader(group, names), group, chain(first, written)
        )
    if records.foreign:
        counted = {
            "foreign": list(records.foreign),
            "records": list(records.foreign.values()),
        }
        yield _timeline_batch(len(records.foreign), counted)
    if records.problems:
        yield _timeline_batch(len(records.problems), _transpose_rows(records.problems))


def count_unread_group_records(parts: Iterable[pa.RecordBatch]) -> list[Unread]:
    """Counts the group records that cannot be decoded."""
    records = _GroupRecords(parts)
    for _ in records:
        pass
    found = unread_foreign(records.foreign)
    if records.problems:
        examples = [
            format_example(*problem.values()) for problem in records.problems[:MAX_EXAMPLES]
        ]
        found.append(
            Unread(what=UNREAD_GROUPS, count=len(records.problems), examples=tuple(examples))
        )
    return found


class _GroupRecords:
    """Decodes a group's records one by one, and collects problems."""

    def __init__(self, parts: Iterable[pa.RecordBatch]) -> None:
        self._parts = parts
        self.foreign: Counter[str] = Counter()
        self.problems: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[JournalRecord]:
        for part in self._parts:
            # a record may be large: convert one at a time
            times = arrow.to_milliseconds(part.column("at"))
            columns = ("journal_partition", "journal_offset", "key", "value")
            for row in zip(times, *map(part.column, columns), strict=True):
                at, partition, offset, key, value = (each.as_py() for each in row)
                try:
                    entry = journal.decode_record(key or b"", value)
                except FormatError as error:
                    place = {"journal_partition": partition, "journal_offset": offset}
                    self.problems.append(place | {"problem": str(error)})
                    continue
                if isinstance(entry, UnparsedEntry):
                    self.foreign[entry.name] += 1
                yield JournalRecord(offset, at, entry)


def _timeline_batches(
    reader: generations.HistoryReader, group: str, records: Iterable[JournalRecord]
) -> Iterator[pa.RecordBatch]:
    """Yields batches, because all generations of a large group do not fit into memory."""
    made: list[Generation] = []
    members = 0
    for one in reader.generations(records):
        made.append(one)
        members += 1 + len(one.members)
        if members >= MEMBERS_PER_BATCH:
            yield generations_as_timeline(made)
            made, members = [], 0
        if reader.count_ended() >= MEMBERS_PER_BATCH:
            yield ownership_as_timeline(reader.take_ended())
    if made:
        yield generations_as_timeline(made)
    if rest := reader.take_remaining():
        yield ownership_as_timeline(rest)
    if reader.window is not None:
        time = arrow.time_array(np.array([reader.window.at]))
        window = {"group": [group], "complete_from": time, "whole": [reader.window.whole]}
        yield _timeline_batch(1, window)


def generations_as_timeline(made: list[Generation]) -> pa.RecordBatch:
    rows = arrow.generations_to_batch(made).to_struct_array()
    return _timeline_batch(len(rows), {"generation": rows})


def ownership_as_timeline(owners: list[PartitionOwnership]) -> pa.RecordBatch:
    rows = arrow.facts_to_batch(OWNERSHIP, owners).to_struct_array()
    return _timeline_batch(len(rows), {"owner": rows})


def _transpose_rows(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _timeline_batch(rows: int, known: Mapping[str, Any]) -> pa.RecordBatch:
    """Returns a batch in which all other columns are null."""
    columns = {}
    for name, kind in _TIMELINE_COLUMNS.items():
        wanted = arrow.arrow_type(kind)
        given = known.get(name)
        if given is None:
            columns[name] = pa.nulls(rows, wanted)
        else:
            columns[name] = given if isinstance(given, pa.Array) else pa.array(given, wanted)
    return pa.record_batch(columns)
