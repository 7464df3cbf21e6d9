"""Reads the input into the bronze tables: journal, lines of broker logs, samples of log ends.

The journal comes from a live cluster, or from the segment files of ``__consumer_offsets``: they are
cut into pieces of whole batches by their headers only. Tasks then read the records of the pieces.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import json
import mmap
import re
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from rota.engine.formats import journal
from rota.engine.formats.journal import Slices
from rota.engine.formats.record_batch import HEADER, HEADER_DTYPE, BatchProblem
from rota.engine.formats.record_batch_columns import RecordColumns, decode_batches
from rota.engine.formats.record_batch_scan import BatchPositions, find_batches
from rota.engine.history import server_log
from rota.engine.history.facts import LogLine
from rota.errors import FormatError, InputError, Unreachable
from rota.pipeline import arrow
from rota.pipeline.redaction import Redaction
from rota.pipeline.tables import ENDS, JOURNAL, SERVERLOG, Column, Table

if TYPE_CHECKING:
    from rota.pipeline.cluster import LiveJournal

PIECE_BYTES = 8 << 20
CLOCK_TOLERANCE = 86_400_000  # milliseconds by which clocks may differ
FOLDER_DEPTH = 2  # depth of the search for partition folders: finds the folders of several brokers
_PARTITION_FOLDER = re.compile(r"__consumer_offsets-(\d+)")
_SEGMENT_FILE = re.compile(r"\d{20}\.log")  # not .log.deleted, .log.cleaned, .log.swap
_SURROGATE = re.compile("[\ud800-\udfff]")  # cannot be encoded


class SegmentPiece(NamedTuple):
    path: str
    partition: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedBytes:
    path: str
    problem: BatchProblem


@dataclass(slots=True, kw_only=True)
class Segments:
    """The segment files of the journal, cut into pieces."""

    pieces: list[SegmentPiece] = field(default_factory=list)
    overlapping: set[int] = field(default_factory=set)  # in several files: replicas or copies
    damaged: list[DamagedBytes] = field(default_factory=list)
    files: int
    size: int = 0
    partitions: int
    last_timestamp: int = 0
    #: By partition, the position from which on no record is missing: compaction leaves gaps.
    complete: dict[int, JournalPosition] = field(default_factory=dict)


class JournalPosition(NamedTuple):
    offset: int
    at: int


class _OffsetSpan(NamedTuple):
    first: int
    last: int
    edge: JournalPosition


def find_segments(folders: Sequence[str], *, piece: int = PIECE_BYTES) -> Segments:
    """Finds segment files and cuts them into pieces; raises InputError or Unreachable."""
    files = {
        file.resolve(): partition
        for folder in folders
        for partition, file in _segment_files(folder)
    }
    segments = Segments(files=len(files), partitions=len(set(files.values())))
    spans = defaultdict(list)
    for file, partition in sorted(files.items()):
        span = _cut_file(file, partition, segments, piece)
        if span is not None:
            spans[partition].append((file.parent, span))
    for partition, listed in spans.items():
        segments.complete[partition] = _complete_from(listed)
        ordered = pairwise(sorted(span for _, span in listed))
        if any(before.last >= span.first for before, span in ordered):
            segments.overlapping.add(partition)
    return segments


def _segment_files(folder: str) -> list[tuple[int, Path]]:
    top = Path(folder)
    if not top.is_dir():
        raise Unreachable(f"--segments {folder}: the folder does not exist")
    partitions = list(_partition_folders(top, FOLDER_DEPTH))
    if not partitions:
        raise InputError(
            f"--segments {folder}: no folder __consumer_offsets-N; give a broker's log.dirs, "
            "or a copy of those folders"
        )
    return [
        (number, file)
        for number, partition in partitions
        for file in sorted(partition.iterdir())
        if _SEGMENT_FILE.fullmatch(file.name)
    ]


def _partition_folders(folder: Path, depth: int) -> Iterator[tuple[int, Path]]:
    named = _PARTITION_FOLDER.fullmatch(folder.resolve().name)
    if named:
        yield int(named[1]), folder
    elif depth:
        for child in sorted(folder.iterdir()):
            if child.is_dir() and (
                depth == FOLDER_DEPTH or _PARTITION_FOLDER.fullmatch(child.name)
            ):
                yield from _partition_folders(child, depth - 1)


def _cut_file(file: Path, partition: int, segments: Segments, size: int) -> _OffsetSpan | None:
    """Adds a file to the segments; returns the offsets in it, or None if it has no batch."""
    span = None
    with file.open("rb") as opened:
        length = opened.seek(0, 2)
        if not length:
            return None
        segments.size += length
        with (
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            batches = find_batches(data)
            if len(batches):
                headers = _read_headers(data, batches)
                span = _offset_span(headers)
                # ignore timestamps in the future
                now = int(time.time() * 1000)
                latest = min(int(headers["max_timestamp"].max()), now + CLOCK_TOLERANCE)
                segments.last_timestamp = max(segments.last_timestamp, latest)
    path = str(file)
    segments.damaged += [DamagedBytes(path=path, problem=problem) for problem in batches.problems]
    segments.pieces += [
        SegmentPiece(path, partition, begin, end) for begin, end in _piece_bounds(batches, size)
    ]
    return span


def _read_headers(data: memoryview, batches: BatchPositions) -> npt.NDArray[np.void]:
    rows = len(data) - HEADER.size + 1
    every: npt.NDArray[np.void] = np.ndarray((rows,), HEADER_DTYPE, data, strides=(1,))
    return every[batches.positions]


def _offset_span(headers: npt.NDArray[np.void]) -> _OffsetSpan:
    """Finds the last gap: Kafka numbers records without gaps, compaction removes records."""
    base = headers["base_offset"].astype(np.int64)
    last = base + headers["last_offset_delta"]
    thinned = headers["record_count"] != headers["last_offset_delta"] + 1
    gaps = np.flatnonzero(thinned | np.append(base[1:] != last[:-1] + 1, [False]))
    row = int(gaps[-1]) + 1 if len(gaps) else 0
    if row < len(base):
        edge = JournalPosition(int(base[row]), int(headers["base_timestamp"][row]))
    else:
        edge = JournalPosition(int(last[-1]) + 1, int(headers["max_timestamp"][-1]))
    return _OffsetSpan(int(base[0]), int(last[-1]), edge)


def _complete_from(spans: Sequence[tuple[Path, _OffsetSpan]]) -> JournalPosition:
    """Returns the earliest complete position among the replicas that have the last record."""
    by_folder = defaultdict(list)
    for folder, span in sorted(spans):
        by_folder[folder].append(span)
    end = max(span.last for _, span in spans)
    replicas = by_folder.values()
    return min(_last_gap_end(each) for each in replicas if max(s.last for s in each) == end)


def _last_gap_end(spans: Sequence[_OffsetSpan]) -> JournalPosition:
    edge = spans[0].edge
    for before, span in pairwise(spans):
        if span.first != before.last + 1 or span.edge.offset != span.first:
            edge = span.edge
    return edge


def _piece_bounds(batches: BatchPositions, size: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of adjacent batches of about ``size`` bytes."""
    if not len(batches):
        return
    ends = batches.positions + batches.sizes
    block = batches.positions // size
    cuts = np.flatnonzero(
        (np.diff(block) > 0) | (batches.positions[1:] != ends[:-1])  # or behind damaged bytes
    )
    begins = batches.positions[np.concatenate([[0], cuts + 1])]
    yield from zip(begins.tolist(), ends[np.append(cuts, len(ends) - 1)].tolist(), strict=True)


LINES_PER_BATCH = 20_000
#: Gets the file's name, the line number and the line; returns a row, or a text with a line that is
#: not valid, or None to skip the line.
LineParser: TypeAlias = Callable[[str, int, str], dict[str, Any] | str | None]

# a key: record type (2 bytes), length of the group (2 bytes), group
IS_OFFSET_SQL = "substring(key, 1, 2) in (X'0000', X'0001')"
#: SQL: the bytes of the group's name.
GROUP_SQL = "substring(key, 5, cast(conv(hex(substring(key, 3, 2)), 16, 10) as int))"


_FILE_COLUMN = Column("file", "string", "path of the segment file")
_JOURNAL_WITH_PROBLEM = arrow.with_problem(JOURNAL, _FILE_COLUMN)
JOURNAL_WITH_PROBLEM_DDL = arrow.spark_ddl(_JOURNAL_WITH_PROBLEM)


def read_segment_journal(
    spark: SparkSession, segments: Segments, redaction: Redaction | None = None
) -> DataFrame:
    """Reads segments; a damaged batch or unredacted record has a row with ``problem``."""

    def read_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _read_piece(redaction, **row)

    apart: dict[bool, list[SegmentPiece]] = {False: [], True: []}
    for piece in segments.pieces:
        apart[piece.partition in segments.overlapping].append(piece)
    once, twice = (
        _pieces_frame(spark, apart[several]).mapInArrow(read_pieces, JOURNAL_WITH_PROBLEM_DDL)
        for several in (False, True)
    )
    return once.unionByName(drop_duplicate_records(twice)) if apart[True] else once


def read_live_journal(
    spark: SparkSession, live: LiveJournal, redaction: Redaction | None = None
) -> DataFrame:
    """Reads a live cluster's journal, with the columns of :func:`read_segment_journal`."""
    if not live.records:
        return spark.createDataFrame([], JOURNAL_WITH_PROBLEM_DDL)
    from rota.spark import register  # noqa: PLC0415 (tasks that read files need no client)

    register(spark)
    rows: DataFrame = spark.read.format("rota").options(**live.source_options()).load()
    return to_journal_columns(rows, live, redaction)


def to_journal_columns(
    records: DataFrame, live: LiveJournal, redaction: Redaction | None = None
) -> DataFrame:
    """Gives rows of ``format("rota")`` the columns of :func:`read_segment_journal`."""
    rows = records.selectExpr(
        "partition journal_partition",
        "offset journal_offset",
        "timestamp at",
        *("key", "value", "control", "transactional"),
        "producerId producer_id",
        "producerEpoch producer_epoch",
        "cast(null as string) problem",
        "cast(null as string) file",
    )
    if redaction is None:
        return rows
    servers = live.cluster.servers

    def redact(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _redact_batch(batch, redaction, servers)

    return rows.mapInArrow(redact, JOURNAL_WITH_PROBLEM_DDL)


def find_complete_positions(rows: DataFrame, ends: Mapping[int, int]) -> dict[int, JournalPosition]:
    """Returns where gaps end, by partition: Kafka leaves no gaps, compaction does."""
    order = Window.partitionBy("journal_partition").orderBy("journal_offset")
    before = fn.lag("journal_offset").over(order)
    place = fn.struct("journal_offset", fn.unix_millis("at").alias("at"))
    # a record that cannot be redacted may have two rows
    whole = fn.coalesce(before + 1 >= fn.col("journal_offset"), fn.lit(False))
    with_offset = rows.where("journal_offset is not null")
    placed = with_offset.select("journal_partition", place.alias("place"), whole.alias("whole"))
    last_gaps = placed.groupBy("journal_partition").agg(
        fn.max(fn.when(~fn.col("whole"), fn.col("place"))).alias("edge"),
        fn.max("place").alias("last"),
    )
    edges = {}
    for row in last_gaps.collect():
        edge, last = JournalPosition(*row.edge), JournalPosition(*row.last)
        end = ends.get(row.journal_partition, 0)
        end_is_missing = last.offset + 1 < end  # the last records are missing
        edges[row.journal_partition] = JournalPosition(end, last.at) if end_is_missing else edge
    return edges


def drop_duplicate_records(rows: DataFrame) -> DataFrame:
    """Keeps one of equal records and problems, independent of the order of files."""
    same = (*JOURNAL.key, "file", "problem")
    rest = [name for name in rows.columns if name not in same]
    distinct = rows.groupBy(*same).agg(fn.min(fn.struct(*rest)).alias("kept"))
    return distinct.select(*same, "kept.*").select(*rows.columns)


def is_wanted(rows: DataFrame, *, until: int | None, groups: Sequence[str]) -> SparkColumn:
    """Returns whether ``--until`` and ``--group`` select a record; markers name no group.
    ``--since`` does not apply here, because later events depend on earlier ones.
    """
    keep: SparkColumn = fn.lit(True)
    if until is not None:
        keep &= fn.unix_millis("at") <= until
    if groups:
        keep &= rows["control"] | matches_globs(fn.expr(GROUP_SQL).cast("string"), groups)
    return fn.coalesce(keep, fn.lit(True))


def matches_globs(name: SparkColumn, globs: Sequence[str]) -> SparkColumn:
    patterns = (fnmatch.translate(glob).removesuffix(r"\Z").removesuffix(r"\z") for glob in globs)
    return reduce(or_, (name.rlike(rf"^{pattern}\z") for pattern in patterns))


def _pieces_frame(spark: SparkSession, pieces: Sequence[SegmentPiece]) -> DataFrame:
    size = sum(piece.end - piece.begin for piece in pieces)
    tasks = min(max(size // PIECE_BYTES, 8), max(len(pieces), 1))
    frame = spark.createDataFrame(
        list(pieces), "path string, partition int, begin bigint, end bigint"
    )
    return frame.repartition(int(tasks))


def _read_piece(
    redaction: Redaction | None, path: str, partition: int, begin: int, end: int
) -> Iterator[pa.RecordBatch]:
    with Path(path).open("rb") as file:
        file.seek(begin)
        data = file.read(end - begin)
    columns = decode_batches(data, at=begin)
    if len(columns):
        batch = _journal_batch(columns, partition)
        yield batch if redaction is None else _redact_batch(batch, redaction, path)
    if columns.problems:
        place = {"journal_partition": partition, "file": path}
        rows = (place | {"problem": str(problem)} for problem in columns.problems)
        yield arrow.rows_to_batch(_JOURNAL_WITH_PROBLEM, rows)


def _redact_batch(batch: pa.RecordBatch, redaction: Redaction, path: str) -> pa.RecordBatch:
    """Redacts records; a record that cannot be decoded becomes a row with ``problem``."""
    buffer, (keys, values) = arrow.arrays_to_buffer(batch.column("key"), batch.column("value"))
    entries = journal.decode_entries(buffer, keys, values)
    plain = entries.commits.row[entries.commits.metadata_size <= 0]
    control = batch.column("control").to_numpy(zero_copy_only=False)
    keep = control.copy()
    keep[plain] = True
    rest = batch.filter(pa.array(~keep))
    rows: list[dict[str, Any]] = []
    for row in rest.set_column(2, "at", arrow.to_milliseconds(rest.column("at"))).to_pylist():
        try:
            entry = redaction.entry(journal.decode_record(row["key"] or b"", row["value"]))
            problem = f"unknown record type: offset {row['journal_offset']}"
        except FormatError as error:
            entry, problem = None, f"it cannot be decoded: {error}"
        if entry is None:
            # its position shows that the record was not removed by compaction
            position = {name: row[name] for name in ("journal_partition", "journal_offset", "at")}
            rows.append({**position, "file": path, "problem": f"left out, {problem}"})
        else:
            key, value = journal.encode_entry(entry)
            rows.append(row | {"key": key, "value": value})
    redacted = arrow.rows_to_batch(_JOURNAL_WITH_PROBLEM, rows)
    whole = pa.Table.from_batches([batch.filter(pa.array(keep)), redacted])
    return next(iter(whole.combine_chunks().to_batches()), redacted)


def _journal_batch(data: RecordColumns, partition: int) -> pa.RecordBatch:
    rows = len(data)
    keys, values = arrow.slice_arrays(
        data.buffer.data,
        [Slices(data.key_start, data.key_size), Slices(data.value_start, data.value_size)],
        pa.binary(),
    )
    of, batches = data.batch, data.batches
    none = pa.nulls(rows, pa.string())
    return pa.record_batch(
        [
            pa.repeat(pa.scalar(partition, pa.int32()), rows),
            pa.array(data.offset),
            arrow.time_array(data.timestamp),
            keys,
            values,
            pa.array(batches.control[of]),
            pa.array(batches.transactional[of]),
            pa.array(batches.producer_id[of]),
            pa.array(batches.producer_epoch[of].astype(np.int16)),
            none,
            none,
        ],
        schema=arrow.arrow_schema(_JOURNAL_WITH_PROBLEM),
    )


def read_server_logs(
    spark: SparkSession, files: Sequence[str], zone: int = 0, redaction: Redaction | None = None
) -> DataFrame:
    """Reads lines about groups, with the columns of bronze/serverlog, ``problem`` and ``times``."""

    def parse(name: str, number: int, line: str) -> dict[str, Any] | str | None:
        parsed = server_log.parse_line(line, zone)
        if isinstance(parsed, LogLine) and _fits_table(parsed):
            parsed = parsed if redaction is None else redaction.line(parsed)
            values = {each.name: getattr(parsed, each.name) for each in SERVERLOG.columns[2:]}
            return {"file": name, "line": number} | values
        if parsed is server_log.SkippedLine.OTHER:
            return None
        shown = "" if redaction is not None else f": {line.strip()}"
        return f"{name} line {number}{shown}"

    return _parse_files(spark, _unique_files(files, "--server-log"), SERVERLOG, parse)


def drop_duplicate_lines(lines: DataFrame) -> DataFrame:
    """Keeps one of equal lines and problems, in case of several copies of a log."""
    rest = [name for name in lines.columns if name not in {"at", "text"}]
    distinct = lines.groupBy("at", "text", "problem").agg(fn.min(fn.struct(*rest)).alias("kept"))
    return distinct.select("at", "text", "kept.*")


def _fits_table(line: LogLine) -> bool:
    texts = (line.text, line.group, line.member_id, line.reason, line.client_reason)
    return (
        -(1 << 31) <= (line.generation or 0) < 1 << 31
        and arrow.EARLIEST_TIME <= line.at <= arrow.LATEST_TIME
        and not any(text is not None and _SURROGATE.search(text) for text in texts)
    )


def read_end_samples(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    """Reads JSON lines, with the columns of bronze/ends, ``problem`` and ``times``."""

    def parse(name: str, number: int, line: str) -> dict[str, Any] | str | None:
        bad = f"{name} line {number}: {line.strip()}" if line.strip() else None
        return _parse_end_sample(line) or bad

    return _parse_files(spark, _unique_files(files, "--ends"), ENDS, parse)


END_SAMPLE_EXAMPLE = (
    '{"t": 1794716014000, "topic": "orders", "partition": 3, "beginning": 0, "end": 182}'
)


def _parse_end_sample(line: str) -> dict[str, Any] | None:
    """Parses a sample; its time is the middle of the request."""
    try:
        fields = json.loads(line)
        begun = int(fields["t"])
        beginning = fields.get("beginning")
        sample: dict[str, Any] = {
            "topic": str(fields["topic"]),
            "partition": int(fields["partition"]),
            "at": (begun + int(fields.get("t2", begun))) // 2,
            "beginning": None if beginning is None else int(beginning),
            "end": int(fields["end"]),
        }
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    is_valid = (
        0 <= sample["partition"] < 1 << 31
        and 0 <= (sample["beginning"] or 0) < 1 << 63
        and 0 <= sample["end"] < 1 << 63
        and arrow.EARLIEST_TIME <= sample["at"] <= arrow.LATEST_TIME
        and not _SURROGATE.search(sample["topic"])
    )
    return sample if is_valid else None


def _parse_files(
    spark: SparkSession, files: Sequence[tuple[str, str]], table: Table, parse: LineParser
) -> DataFrame:
    """Parses lines; a file with bad lines adds the first (``problem``) and their number."""
    wide = arrow.with_problem(table, Column("times", "bigint", "number of bad lines"))

    def read(path: str, name: str) -> Iterator[pa.RecordBatch]:
        rows: list[dict[str, Any]] = []
        bad, first = 0, ""
        for number, line in enumerate(_read_text_lines(path), 1):
            row = parse(name, number, line)
            if isinstance(row, str):
                bad, first = bad + 1, first or row
            elif row is not None:
                rows.append(row)
            if len(rows) == LINES_PER_BATCH:
                yield arrow.rows_to_batch(wide, rows)
                rows = []
        if bad:
            rows.append({"problem": first, "times": bad})
        yield arrow.rows_to_batch(wide, rows)

    def read_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.to_pylist():
                yield from read(**file)

    frame = spark.createDataFrame(list(files), "path string, name string")
    return frame.repartition(max(len(files), 1)).mapInArrow(read_files, arrow.spark_ddl(wide))


def check_text_files(server_logs: Sequence[str], ends: Sequence[str]) -> None:
    """Checks the files before Spark starts; raises Unreachable or InputError."""
    _unique_files(server_logs, "--server-log")
    for path, _ in _unique_files(ends, "--ends"):
        try:
            has_sample = any(map(_parse_end_sample, _read_text_lines(path)))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"--ends {path}: not a valid gzip file: {error}") from error
        if not has_sample:
            text = "the file has no sample of a log end; write one per line, like"
            raise InputError(f"--ends {path}: {text} {END_SAMPLE_EXAMPLE}")


def _unique_files(files: Sequence[str], option: str) -> list[tuple[str, str]]:
    paths = sorted({Path(file).resolve() for file in files})
    for path in paths:
        if not path.is_file():
            raise Unreachable(f"{option} {path}: the file does not exist")
    names = [path.name for path in paths]
    return [(str(path), path.name if names.count(path.name) == 1 else str(path)) for path in paths]


def _read_text_lines(path: str) -> Iterator[str]:
    with Path(path).open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        opened = gzip.GzipFile(fileobj=file) if packed else file
        with io.TextIOWrapper(opened, encoding="utf-8", errors="replace", newline="\n") as lines:
            yield from lines
