"""Bronze into silver: what the journal's records say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from rota.errors import FormatError
from rota.formats import journal as format_
from rota.formats.journal import column as journal_column
from rota.formats.journal.column import Entries, Slices
from rota.model.entry import NO_TIMESTAMP, Foreign, OffsetCommitted, OffsetForgotten
from rota.model.offset import NO_EPOCH
from rota.pipeline import column, generation, schema, unread
from rota.pipeline.bygroup import by_key, spread
from rota.pipeline.ingest import GROUP, OFFSET
from rota.pipeline.unread import Unread
from rota.replay import timeline
from rota.replay.fact import Generation, Ownership, Written
from rota.tables import COMMITS, GENERATIONS, OWNERSHIP

PIECE = 10_000
"""So many members of generations, or owners, are written at once."""
COMMITTED = 1
"""The type of a marker that ends a transaction well, in its key behind the version."""
ENTRY = f"(key is null or not {OFFSET})"
"""The record is a group's own, as SQL."""
_MARKER = "cast(conv(hex(substring(key, 3, 2)), 16, 10) as int)"


def counting(journal: DataFrame) -> DataFrame:
    """The records that count: no markers, nothing of a transaction that was aborted or is open.

    A transaction ends with the next marker of its producer; the marker's epoch is none to go by,
    it may be the next one's already.
    """
    ended = _outcomes(journal).where(fn.col("outcome") == COMMITTED).drop("outcome")
    return journal.where("not transactional and not control").unionByName(ended)


def pending(journal: DataFrame) -> DataFrame:
    """The records of transactions that are open."""
    return _outcomes(journal).where("outcome is null").drop("outcome")


def _outcomes(journal: DataFrame) -> DataFrame:
    """The records of transactions, and how theirs ended; null: it has not."""
    later = (
        Window.partitionBy("journal_partition", "producer_id")
        .orderBy(fn.desc("journal_offset"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    marker = fn.when(fn.col("control"), fn.expr(_MARKER))
    return (
        journal.where("transactional or control")
        .withColumn("outcome", fn.last(marker, ignorenulls=True).over(later))
        .where(~fn.col("control"))
    )


def commits(journal: DataFrame) -> DataFrame:
    """Committed offsets out of records that count: silver/commits, and ``problem`` for records
    that could not be read, whose other columns but their place are null.
    """
    return journal.where(OFFSET).mapInArrow(read_commits, f"{schema.ddl(COMMITS)}, problem string")


def read_commits(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Records of offsets as :func:`commits` tells."""
    for batch in batches:
        if not batch.num_rows:
            continue
        buffer, (keys, values) = column.buffer_of(batch.column("key"), batch.column("value"))
        read = journal_column.decode(buffer, keys, values)
        yield _commit_batch(batch, read)
        if len(read.left):
            yield _left_batch(batch.take(pa.array(read.left)))


def _commit_batch(batch: pa.RecordBatch, read: Entries) -> pa.RecordBatch:
    found, buffer = read.commits, read.buffer
    rows = pa.array(found.row)
    gone = found.tombstone
    size = np.where(gone, -1, found.metadata_size)
    (metadata,) = column.strings(buffer.data, [Slices(found.metadata_start, size)], pa.string())
    return pa.record_batch(
        [
            batch.column("journal_partition").take(rows),
            batch.column("journal_offset").take(rows),
            batch.column("at").take(rows),
            column.names(found.group, read.groups),
            column.names(found.topic, read.topics),
            column.numbers(found.partition, pa.int32()),
            column.numbers(found.offset, pa.int64(), gone),
            column.numbers(found.leader_epoch, pa.int32(), gone | (found.leader_epoch == NO_EPOCH)),
            metadata,
            column.times(found.commit_timestamp, gone),
            column.times(found.expire_timestamp, gone | (found.expire_timestamp == NO_TIMESTAMP)),
            column.identifiers(buffer, found.topic_id_start),
            batch.column("transactional").take(rows),
            pa.nulls(len(found), schema.TIME),
            pa.nulls(len(found), pa.string()),
        ],
        schema=WITH_PROBLEM,
    )


WITH_PROBLEM = pa.schema([*schema.arrow(COMMITS), ("problem", pa.string())])


def _left_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records that do not look as they should, one by one."""
    rows = []
    for row in batch.set_column(2, "at", schema.milliseconds(batch.column("at"))).to_pylist():
        found: dict[str, Any] = dict.fromkeys(WITH_PROBLEM.names)
        found |= {name: row[name] for name in ("journal_partition", "journal_offset", "at")}
        try:
            found |= _offset_row(row) | {"transactional": row["transactional"]}
        except FormatError as error:
            found["problem"] = str(error)
        rows.append(found)
    known = schema.batch(COMMITS, rows)
    problem = pa.array([row["problem"] for row in rows], pa.string())
    return pa.record_batch([*known.columns, problem], schema=WITH_PROBLEM)


def _offset_row(row: Mapping[str, Any]) -> dict[str, Any]:
    entry = format_.decode(row["key"], row["value"])
    assert isinstance(entry, OffsetCommitted | OffsetForgotten), "chosen by the type of its key"
    found = {"group": entry.group, "topic": entry.topic, "partition": entry.partition}
    if isinstance(entry, OffsetForgotten):
        return found
    return found | {
        "offset": entry.offset,
        "leader_epoch": None if entry.leader_epoch == NO_EPOCH else entry.leader_epoch,
        "metadata": entry.metadata,
        "committed_at": entry.commit_timestamp,
        "expires_at": _maybe_time(entry.expire_timestamp),
        "topic_id": entry.topic_id,
    }


def _maybe_time(at: int) -> int | None:
    return None if at == NO_TIMESTAMP else at


def topic_names(commits: DataFrame) -> dict[bytes, str]:
    """Which topic has which id, as commits tell; of two names the one that sorts last."""
    named = commits.where("topic_id is not null").groupBy("topic_id").agg(fn.max("topic"))
    return {bytes(row[0]): row[1] for row in named.collect()}


_TIMELINES: Mapping[str, str] = {
    "generation": schema.struct(GENERATIONS),
    "owner": schema.struct(OWNERSHIP),
    "group": "string",
    "complete_from": "timestamp",
    "whole": "boolean",
    "journal_partition": "int",
    "journal_offset": "bigint",
    "problem": "string",
    "foreign": "string",
    "records": "bigint",
}
TIMELINES = ", ".join(f"`{name}` {kind}" for name, kind in _TIMELINES.items())
"""A row is one of: a generation; an ownership; a group, with the time from which on its records are
all there, and whether its first one is; a record that could not be read, with its place; a kind
that Rota names but does not read, with how many there are.
"""


def timelines(journal: DataFrame, names: Mapping[bytes, str]) -> DataFrame:
    """What became of every group, out of records that count: :data:`TIMELINES`."""
    entries = journal.where(ENTRY).withColumn("name", fn.expr(GROUP))

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, parts in by_key(batches, "name"):
            yield from read_timeline(parts, names)

    return spread(entries, "name", "journal_partition", "journal_offset").mapInArrow(
        read, TIMELINES
    )


def read_timeline(
    parts: Iterable[pa.RecordBatch], names: Mapping[bytes, str]
) -> Iterator[pa.RecordBatch]:
    """What became of one group, whose records come in the journal's order: :data:`TIMELINES`."""
    records = _Records(parts)
    written = iter(records)
    first = []  # up to one that names the group; "" is a name, too
    for one in written:
        first.append(one)
        if getattr(one.entry, "group", None) is not None:
            break
    if first and (group := getattr(first[-1].entry, "group", None)) is not None:
        yield from _read(timeline.Reading(group, names), group, chain(first, written))
    if records.foreign:
        counted = {
            "foreign": list(records.foreign),
            "records": list(records.foreign.values()),
        }
        yield _timeline_batch(len(records.foreign), counted)
    if records.problems:
        yield _timeline_batch(len(records.problems), _transposed(records.problems))


def not_read(parts: Iterable[pa.RecordBatch]) -> list[Unread]:
    """Which records of groups are not read."""
    records = _Records(parts)
    for _ in records:
        pass
    found = unread.foreign(records.foreign)
    if records.problems:
        examples = [unread.place(*problem.values()) for problem in records.problems[: unread.SHOWN]]
        found.append(
            Unread(what=unread.GROUPS, count=len(records.problems), examples=tuple(examples))
        )
    return found


class _Records:
    """A group's records, decoded one by one, and what there is to say of those that are not."""

    def __init__(self, parts: Iterable[pa.RecordBatch]) -> None:
        self._parts = parts
        self.foreign: Counter[str] = Counter()
        self.problems: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[Written]:
        for part in self._parts:
            # a record may be large: one at a time
            times = schema.milliseconds(part.column("at"))
            columns = ("journal_partition", "journal_offset", "key", "value")
            for row in zip(times, *map(part.column, columns), strict=True):
                at, partition, offset, key, value = (each.as_py() for each in row)
                try:
                    entry = format_.decode(key or b"", value)
                except FormatError as error:
                    place = {"journal_partition": partition, "journal_offset": offset}
                    self.problems.append(place | {"problem": str(error)})
                    continue
                if isinstance(entry, Foreign):
                    self.foreign[entry.name] += 1
                yield Written(offset, at, entry)


def _read(
    reading: timeline.Reading, group: str, records: Iterable[Written]
) -> Iterator[pa.RecordBatch]:
    """In pieces: all generations of a large group do not fit into memory."""
    made: list[Generation] = []
    members = 0
    for one in reading.generations(records):
        made.append(one)
        members += 1 + len(one.members)
        if members >= PIECE:
            yield generation_rows(made)
            made, members = [], 0
        if reading.owned() >= PIECE:
            yield owner_rows(reading.over())
    if made:
        yield generation_rows(made)
    if rest := reading.rest():
        yield owner_rows(rest)
    if reading.window is not None:
        time = column.times(np.array([reading.window.at]))
        window = {"group": [group], "complete_from": time, "whole": [reading.window.whole]}
        yield _timeline_batch(1, window)


def generation_rows(made: list[Generation]) -> pa.RecordBatch:
    """Generations as rows of :data:`TIMELINES`."""
    rows = generation.rows(made).to_struct_array()
    return _timeline_batch(len(rows), {"generation": rows})


def owner_rows(owners: list[Ownership]) -> pa.RecordBatch:
    """Owners as rows of :data:`TIMELINES`."""
    rows = schema.fact_batch(OWNERSHIP, owners).to_struct_array()
    return _timeline_batch(len(rows), {"owner": rows})


def _transposed(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _timeline_batch(rows: int, known: Mapping[str, Any]) -> pa.RecordBatch:
    """A batch whose other columns are null."""
    columns = {}
    for name, kind in _TIMELINES.items():
        wanted = schema.arrow_type(kind)
        given = known.get(name)
        if given is None:
            columns[name] = pa.nulls(rows, wanted)
        else:
            columns[name] = given if isinstance(given, pa.Array) else pa.array(given, wanted)
    return pa.record_batch(columns)
