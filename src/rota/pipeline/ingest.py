"""Evidence into bronze: segments of the journal, lines of brokers' logs, samples of ends."""

from __future__ import annotations

import fnmatch
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from rota.errors import Unreachable
from rota.formats.batch import Columns, decode
from rota.formats.journal.column import Slices
from rota.pipeline import column, schema
from rota.pipeline.segment import PIECE, Piece, Segments
from rota.replay import serverlog
from rota.replay.fact import LogLine
from rota.tables import ENDS, JOURNAL, SERVERLOG

ROWS = 20_000
"""Lines that go to Spark together."""

# the keys of all records begin so: type and length of two bytes each, then the group's name
KEY_TYPE = "cast(conv(hex(substring(key, 1, 2)), 16, 10) as int)"
GROUP = "substring(key, 5, cast(conv(hex(substring(key, 3, 2)), 16, 10) as int))"
"""The bytes of the group's name, as SQL."""


def journal(spark: SparkSession, segments: Segments) -> DataFrame:
    """The records of segments: bronze/journal, and ``file`` and ``problem`` for batches that are
    damaged, whose other columns are null.
    """
    read = _spread(spark, segments.pieces).mapInArrow(
        _records, f"{schema.ddl(JOURNAL)}, file string, problem string"
    )
    if not segments.overlapping:
        return read
    twice = read["journal_partition"].isin(sorted(segments.overlapping))
    return read.where(~twice | read["problem"].isNotNull()).unionByName(
        _once(read.where(twice & read["problem"].isNull()))
    )


def _once(rows: DataFrame) -> DataFrame:
    """A record of several files once; the same one whatever the files' order."""
    rest = [name for name in rows.columns if name not in JOURNAL.key]
    kept = rows.groupBy(*JOURNAL.key).agg(fn.min(fn.struct(*rest)).alias("kept"))
    return kept.select(*JOURNAL.key, "kept.*")


def wanted(
    rows: DataFrame, *, since: int | None, until: int | None, groups: Sequence[str]
) -> DataFrame:
    """The records of bronze/journal within what the user asked for.

    What groups were before ``since`` is kept: what follows is built on it. So are transactions'
    markers: they name no group.
    """
    keep: Column = fn.lit(True)
    if until is not None:
        keep &= fn.unix_millis("at") <= until
    if since is not None:
        keep &= rows["control"] | ~fn.expr(KEY_TYPE).isin(0, 1) | (fn.unix_millis("at") >= since)
    if groups:
        name = fn.expr(GROUP).cast("string")
        matching = [name.rlike(_pattern(glob)) for glob in groups]
        keep &= rows["control"] | _any(matching)
    return rows.where(fn.coalesce(keep, fn.lit(True)))


def _any(conditions: Sequence[Column]) -> Column:
    first, *rest = conditions
    for each in rest:
        first |= each
    return first


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


def _records(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            yield from _piece(row["path"], row["partition"], row["begin"], row["end"])


def _piece(path: str, partition: int, begin: int, end: int) -> Iterator[pa.RecordBatch]:
    with Path(path).open("rb") as file:
        file.seek(begin)
        data = file.read(end - begin)
    columns = decode(data, at=begin)
    if len(columns):
        yield _journal_batch(columns, partition)
    if columns.problems:
        rows: list[dict[str, Any]] = [
            dict.fromkeys(schema.arrow(JOURNAL).names)
            | {"journal_partition": partition, "file": path, "problem": str(problem)}
            for problem in columns.problems
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_with_problem())


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


def server_log(spark: SparkSession, files: Sequence[str], zone: int = 0) -> DataFrame:
    """Lines about groups: bronze/serverlog; and for each file a row that only has ``file``,
    ``lines``, ``strange`` (how many were not understood) and ``example``.
    """
    named = _named(files, "--server-log")
    wide = f"{schema.ddl(SERVERLOG)}, lines bigint, strange bigint, example string"

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _lines(row["path"], row["name"], zone)

    return _file_rows(spark, named).mapInArrow(parse, wide)


def once_each(lines: DataFrame) -> DataFrame:
    """A line that was given in several copies of a log, once."""
    rest = [each.name for each in SERVERLOG.columns if each.name not in {"at", "text"}]
    kept = lines.groupBy("at", "text").agg(fn.min(fn.struct(*rest)).alias("kept"))
    return kept.select("at", "text", "kept.*")


def _lines(path: str, name: str, zone: int) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    number, strange, example = 0, 0, None
    for number, line in enumerate(_text(path), 1):
        found = serverlog.parse(line, zone)
        if isinstance(found, LogLine):
            said = {each.name: getattr(found, each.name) for each in SERVERLOG.columns[2:]}
            rows.append({"file": name, "line": number} | said)
        elif found is serverlog.Passed.STRANGE:
            strange += 1
            example = example or line.strip()
        if len(rows) == ROWS:
            yield _log_batch(rows)
            rows = []
    empty: dict[str, Any] = dict.fromkeys(schema.arrow(SERVERLOG).names)
    counts = {"lines": number, "strange": strange, "example": example}
    yield _log_batch([*rows, empty | {"file": name} | counts])


def _log_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    known = schema.batch(SERVERLOG, rows)
    extra = [
        pa.array([row.get(name) for row in rows], kind)
        for name, kind in (("lines", pa.int64()), ("strange", pa.int64()), ("example", pa.string()))
    ]
    names = [*known.schema.names, "lines", "strange", "example"]
    return pa.record_batch([*known.columns, *extra], names=names)


def ends(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """Samples of ends from JSON lines: bronze/ends; and for each file with bad lines a row that
    only has ``topic`` (the file), ``bad`` (how many) and ``example``.
    """
    wide = f"{schema.ddl(ENDS)}, bad bigint, example string"
    return _file_rows(spark, _named(files, "--ends")).mapInArrow(_samples, wide)


def _samples(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            rows, bad, example = [], 0, None
            for line in _text(row["path"]):
                if not line.strip():
                    continue
                sample = _sample(line)
                if sample is None:
                    bad += 1
                    example = example or line.strip()
                else:
                    rows.append(sample)
            if bad:
                empty: dict[str, Any] = dict.fromkeys(schema.arrow(ENDS).names)
                rows.append(empty | {"topic": row["name"], "bad": bad, "example": example})
            yield _ends_batch(rows)


def _ends_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    known = schema.batch(ENDS, rows)
    bad = pa.array([row.get("bad") for row in rows], pa.int64())
    example = pa.array([row.get("example") for row in rows], pa.string())
    names = [*known.schema.names, "bad", "example"]
    return pa.record_batch([*known.columns, bad, example], names=names)


def _sample(line: str) -> dict[str, Any] | None:
    """A sample; its time is the middle of the time that the asking took."""
    try:
        told = json.loads(line)
        begun = int(told["t"])
        beginning = told.get("beginning")
        return {
            "topic": str(told["topic"]),
            "partition": int(told["partition"]),
            "at": (begun + int(told.get("t2", begun))) // 2,
            "beginning": None if beginning is None else int(beginning),
            "end": int(told["end"]),
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


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
