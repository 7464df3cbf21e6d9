"""Evidence into bronze: the journal, of segments or of a live cluster; lines of brokers' logs;
samples of ends.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from rota.errors import FormatError, Unreachable
from rota.formats import journal as journal_format
from rota.formats.batch import Columns, decode
from rota.formats.journal import column as journal_column
from rota.formats.journal.column import Slices
from rota.pipeline import column, schema
from rota.pipeline.redact import Redaction
from rota.pipeline.segment import PIECE, Edge, Piece, Segments
from rota.replay import serverlog
from rota.replay.fact import LogLine
from rota.tables import ENDS, JOURNAL, SERVERLOG, Table

if TYPE_CHECKING:
    from rota.pipeline.cluster import Live

ROWS = 20_000
"""Lines that go to Spark together."""

# the keys of all records begin so: type and length of two bytes each, then the group's name
OFFSET = "substring(key, 1, 2) in (X'0000', X'0001')"
"""The record is a committed offset, as SQL."""
GROUP = "substring(key, 5, cast(conv(hex(substring(key, 3, 2)), 16, 10) as int))"
"""The bytes of the group's name, as SQL."""


def journal(
    spark: SparkSession, segments: Segments, redaction: Redaction | None = None
) -> DataFrame:
    """The records of segments: bronze/journal, and ``file`` and ``problem`` for batches that are
    damaged, and for records that cannot be redacted; their other columns are null.
    """

    def read_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _piece(redaction, **row)

    wide = f"{schema.ddl(JOURNAL)}, file string, problem string"
    apart: dict[bool, list[Piece]] = {False: [], True: []}
    for piece in segments.pieces:
        apart[piece.partition in segments.overlapping].append(piece)
    once, twice = (
        _spread(spark, apart[several]).mapInArrow(read_pieces, wide) for several in (False, True)
    )
    return once.unionByName(_once(twice)) if apart[True] else once


def live_journal(spark: SparkSession, live: Live, redaction: Redaction | None = None) -> DataFrame:
    """The records of a live cluster's journal, with the same columns as :func:`journal`."""
    wide = f"{schema.ddl(JOURNAL)}, file string, problem string"
    if not live.records:
        return spark.createDataFrame([], wide)
    from rota.spark import register  # noqa: PLC0415 (tasks that read files do without a client)

    register(spark)
    read: DataFrame = spark.read.format("rota").options(**live.options()).load()
    return from_source(read, live, redaction)


def from_source(read: DataFrame, live: Live, redaction: Redaction | None = None) -> DataFrame:
    """Rows of ``format("rota")`` with ``includeBatchInfo``, with the columns of :func:`journal`."""
    wide = f"{schema.ddl(JOURNAL)}, file string, problem string"
    columns: list[Column | str] = [
        read["partition"].alias("journal_partition"),
        read["offset"].alias("journal_offset"),
        read["timestamp"].alias("at"),
        "key",
        "value",
        "control",
        "transactional",
        read["producerId"].alias("producer_id"),
        read["producerEpoch"].alias("producer_epoch"),
        fn.lit(None).cast("string").alias("file"),
        fn.lit(None).cast("string").alias("problem"),
    ]
    rows = read.select(*columns)
    if redaction is None:
        return rows
    servers = live.cluster.servers

    def redact(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _redacted(batch, redaction, servers)

    return rows.mapInArrow(redact, wide)


def together(one: DataFrame, other: DataFrame) -> DataFrame:
    """The records of both; a record that both have, once."""
    return _once(one.unionByName(other))


def complete(rows: DataFrame, ends: Mapping[int, int]) -> dict[int, Edge]:
    """By partition of the journal, from where on every record is there.

    Records are numbered without a gap: where a number is missing, compaction took it.

    :param rows: all records that there are
    :param ends: where the partitions end
    """
    order = Window.partitionBy("journal_partition").orderBy("journal_offset")
    before = fn.lag("journal_offset").over(order)
    place = fn.struct("journal_offset", fn.unix_millis("at").alias("at"))
    # a record that cannot be redacted may be there twice
    whole = fn.coalesce(before + 1 >= fn.col("journal_offset"), fn.lit(False))
    there = rows.where("journal_offset is not null")
    placed = there.select("journal_partition", place.alias("place"), whole.alias("whole"))
    found = placed.groupBy("journal_partition").agg(
        fn.max(fn.when(~fn.col("whole"), fn.col("place"))).alias("edge"),
        fn.max("place").alias("last"),
    )
    edges = {}
    for row in found.collect():
        edge, last = Edge(*row.edge), Edge(*row.last)
        end = ends.get(row.journal_partition, 0)
        gone = last.offset + 1 < end  # the last ones are not there
        edges[row.journal_partition] = Edge(end, last.at) if gone else edge
    return edges


def _once(rows: DataFrame) -> DataFrame:
    """A record of several files once; the same one whatever the files' order. So are problems."""
    same = (*JOURNAL.key, "file", "problem")
    rest = [name for name in rows.columns if name not in same]
    kept = rows.groupBy(*same).agg(fn.min(fn.struct(*rest)).alias("kept"))
    return kept.select(*same, "kept.*").select(*rows.columns)


def wanted(rows: DataFrame, *, until: int | None, groups: Sequence[str]) -> DataFrame:
    """The records of bronze/journal within what the user asked for."""
    return rows.where(is_wanted(rows, until=until, groups=groups))


def is_wanted(rows: DataFrame, *, until: int | None, groups: Sequence[str]) -> Column:
    """Whether a record of bronze/journal is within what the user asked for.

    Transactions' markers are kept: they name no group. There is no first time here: what happens
    after one follows from what was before it.
    """
    keep: Column = fn.lit(True)
    if until is not None:
        keep &= fn.unix_millis("at") <= until
    if groups:
        keep &= rows["control"] | named_like(fn.expr(GROUP).cast("string"), groups)
    return fn.coalesce(keep, fn.lit(True))


def named_like(name: Column, globs: Sequence[str]) -> Column:
    """Whether a name is like one of these."""
    return reduce(or_, (name.rlike(_pattern(glob)) for glob in globs))


def _pattern(glob: str) -> str:
    """A glob as Java's regular expression."""
    return "^" + fnmatch.translate(glob).removesuffix(r"\Z").removesuffix(r"\z") + r"\z"


def _spread(spark: SparkSession, pieces: Sequence[Piece]) -> DataFrame:
    """A row for each piece, over tasks of about the same size."""
    rows = [(piece.path, piece.partition, piece.begin, piece.end) for piece in pieces]
    size = sum(piece.end - piece.begin for piece in pieces)
    tasks = min(max(size // PIECE, 8), max(len(pieces), 1))
    frame = spark.createDataFrame(rows, "path string, partition int, begin bigint, end bigint")
    return frame.repartition(int(tasks))


def _piece(
    redaction: Redaction | None, path: str, partition: int, begin: int, end: int
) -> Iterator[pa.RecordBatch]:
    with Path(path).open("rb") as file:
        file.seek(begin)
        data = file.read(end - begin)
    columns = decode(data, at=begin)
    if len(columns):
        batch = _journal_batch(columns, partition)
        yield batch if redaction is None else _redacted(batch, redaction, path)
    if columns.problems:
        yield _problems(
            {"journal_partition": partition, "file": path, "problem": str(problem)}
            for problem in columns.problems
        )


def _problems(rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    empty: dict[str, Any] = dict.fromkeys(_with_problem().names)
    listed = [{**empty, **row} for row in rows]
    return pa.RecordBatch.from_pylist(listed, schema=_with_problem())


def _redacted(batch: pa.RecordBatch, redaction: Redaction, path: str) -> pa.RecordBatch:
    """The records without names; of those that cannot be read only that they are not."""
    buffer, (keys, values) = column.buffer_of(batch.column("key"), batch.column("value"))
    read = journal_column.decode(buffer, keys, values)
    plain = read.commits.row[read.commits.metadata_size <= 0]
    control = batch.column("control").to_numpy(zero_copy_only=False)
    keep = control.copy()
    keep[plain] = True
    kept = [batch.filter(pa.array(keep))]
    rest = batch.filter(pa.array(~keep))
    rows: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []

    def leave(row: Mapping[str, Any], why: str) -> None:
        # where it was tells that it was there: what is missing for another reason is compacted
        known = {name: row[name] for name in ("journal_partition", "journal_offset", "at")}
        left.append({**known, "file": path, "problem": f"left out, {why}"})

    for row in rest.set_column(2, "at", rest.column("at").cast(pa.int64())).to_pylist():
        try:
            entry = redaction.entry(journal_format.decode(row["key"] or b"", row["value"]))
        except FormatError as error:
            leave(row, f"not to be read: {error}")
            continue
        if entry is None:
            leave(row, f"of a kind that is not decoded: offset {row['journal_offset']}")
            continue
        key, value = journal_format.encode(entry)
        rows.append(row | {"key": key, "value": value})
    kept.append(pa.RecordBatch.from_pylist(rows, schema=_with_problem()))
    kept.append(_problems(left))
    whole = pa.Table.from_batches(kept).combine_chunks().to_batches()
    return whole[0] if whole else _problems(())


def _with_problem() -> pa.Schema:
    return pa.schema([*schema.arrow(JOURNAL), ("file", pa.string()), ("problem", pa.string())])


def _journal_batch(read: Columns, partition: int) -> pa.RecordBatch:
    rows = len(read)
    keys, values = column.strings(
        read.buffer.data,
        [Slices(read.key_start, read.key_size), Slices(read.value_start, read.value_size)],
        pa.binary(),
    )
    of, batches = read.batch, read.batches
    none = pa.nulls(rows, pa.string())
    return pa.record_batch(
        [
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
            pa.array(read.offset),
            column.times(read.timestamp),
            keys,
            values,
            pa.array(batches.control[of]),
            pa.array(batches.transactional[of]),
            pa.array(batches.producer_id[of]),
            pa.array(batches.producer_epoch[of].astype(np.int16)),
            none,
            none,
        ],
        schema=_with_problem(),
    )


def server_log(
    spark: SparkSession, files: Sequence[str], zone: int = 0, redaction: Redaction | None = None
) -> DataFrame:
    """Lines about groups: bronze/serverlog; and for each file with lines that were not understood a
    row that only has ``problem``, the first of them, and ``times``, how many.
    """

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _lines(row["path"], row["name"], zone, redaction)

    return _file_rows(spark, _named(files, "--server-log")).mapInArrow(parse, _wide(SERVERLOG))


def once_each(lines: DataFrame) -> DataFrame:
    """A line that was given in several copies of a log, once; so are problems."""
    rest = [name for name in lines.columns if name not in {"at", "text"}]
    kept = lines.groupBy("at", "text", "problem").agg(fn.min(fn.struct(*rest)).alias("kept"))
    return kept.select("at", "text", "kept.*")


def _lines(
    path: str, name: str, zone: int, redaction: Redaction | None
) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    strange, example = 0, ""
    for number, line in enumerate(_text(path), 1):
        found = serverlog.parse(line, zone)
        if isinstance(found, LogLine) and not _fits(found):
            found = serverlog.Passed.STRANGE
        if isinstance(found, LogLine):
            found = found if redaction is None else redaction.line(found)
            said = {each.name: getattr(found, each.name) for each in SERVERLOG.columns[2:]}
            rows.append({"file": name, "line": number} | said)
        elif found is serverlog.Passed.STRANGE:
            strange += 1
            shown = "" if redaction is not None else f": {line.strip()}"
            example = example or f"{name} line {number}{shown}"
        if len(rows) == ROWS:
            yield _wide_batch(SERVERLOG, rows)
            rows = []
    yield _wide_batch(SERVERLOG, rows, example, strange)


def _fits(line: LogLine) -> bool:
    """Whether the table can hold it: logs hold what anybody writes into them."""
    number = line.generation or 0
    return (
        -(1 << 31) <= number < 1 << 31
        and column.EARLIEST <= line.at <= column.LATEST
        and all(
            text is None or text.isascii() or _is_whole(text)
            for text in (line.text, line.group, line.member_id, line.reason, line.client_reason)
        )
    )


def _is_whole(text: str) -> bool:
    """Whether it has no half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def ends(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """Samples of ends from JSON lines: bronze/ends; and for each file with bad lines a row that
    only has ``problem``, the first of them, and ``times``, how many.
    """
    return _file_rows(spark, _named(files, "--ends")).mapInArrow(_samples, _wide(ENDS))


def _samples(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for file in batch.to_pylist():
            rows: list[dict[str, Any]] = []
            bad, example = 0, ""
            for number, line in enumerate(_text(file["path"]), 1):
                sample = _sample(line)
                if sample is not None:
                    rows.append(sample)
                elif line.strip():
                    bad += 1
                    example = example or f"{file['name']} line {number}: {line.strip()}"
            yield _wide_batch(ENDS, rows, example, bad)


def _sample(line: str) -> dict[str, Any] | None:
    """A sample; its time is the middle of the time that the asking took."""
    try:
        told = json.loads(line)
        begun = int(told["t"])
        beginning = told.get("beginning")
        sample: dict[str, Any] = {
            "topic": str(told["topic"]),
            "partition": int(told["partition"]),
            "at": (begun + int(told.get("t2", begun))) // 2,
            "beginning": None if beginning is None else int(beginning),
            "end": int(told["end"]),
        }
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    return sample if _is_possible(sample) and _is_whole(sample["topic"]) else None


def _is_possible(sample: Mapping[str, Any]) -> bool:
    beginning = sample["beginning"] or 0
    return (
        0 <= sample["partition"] < 1 << 31
        and 0 <= beginning < 1 << 63
        and 0 <= sample["end"] < 1 << 63
        and column.EARLIEST <= sample["at"] <= column.LATEST
    )


def _wide(table: Table) -> str:
    return f"{schema.ddl(table)}, problem string, times bigint"


def _wide_batch(
    table: Table, rows: list[dict[str, Any]], problem: str = "", times: int = 0
) -> pa.RecordBatch:
    """Rows of a table, and one for what was not understood."""
    if times:
        rows = [*rows, dict.fromkeys(schema.arrow(table).names)]
    known = schema.batch(table, rows)
    before = len(rows) - bool(times)
    problems = pa.array([None] * before + ([problem] if times else []), pa.string())
    counts = pa.array([None] * before + ([times] if times else []), pa.int64())
    return pa.record_batch(
        [*known.columns, problems, counts], names=[*known.schema.names, "problem", "times"]
    )


def check(server_logs: Sequence[str], ends: Sequence[str]) -> None:
    """Whether the files are there.

    :raises Unreachable: one is not
    """
    _named(server_logs, "--server-log")
    _named(ends, "--ends")


def _named(files: Sequence[str], option: str) -> list[tuple[str, str]]:
    """Each file once, with a name that tells it from the others."""
    paths = sorted({Path(file).resolve() for file in files})
    for path in paths:
        if not path.is_file():
            raise Unreachable(f"{option} {path}: there is no such file")
    names = [path.name for path in paths]
    return [(str(path), path.name if names.count(path.name) == 1 else str(path)) for path in paths]


def _file_rows(spark: SparkSession, named: Sequence[tuple[str, str]]) -> DataFrame:
    rows = spark.createDataFrame(list(named), "path string, name string")
    return rows.repartition(max(len(named), 1))


def _text(path: str) -> Iterator[str]:
    with Path(path).open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        opened = gzip.GzipFile(fileobj=file) if packed else file
        yield from io.TextIOWrapper(opened, encoding="utf-8", errors="replace", newline="\n")
