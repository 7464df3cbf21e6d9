"""The one module that reads and writes tables: Parquet in a folder, one run at a time.

::

    OUT/bronze  -> .current/bronze      what readers open, and silver and gold
    OUT/.current -> .runs/3             the published run
    OUT/.runs/3/gold/rebalances/*.parquet
    OUT/.runs/4/...                     a run in progress
    OUT/.lock                           held by it

A run writes all of its tables into its own folder. When they are complete, one rename points
``.current`` to it: a reader finds all tables of the old or of the new run. The files of a killed
run are not visible, and the next run removes them.

``--follow`` makes such a folder for every micro-batch; most of its files are links to the files of
the micro-batch before. A replaced folder is kept for a while for its readers. The files of a
growing table are laid out by bucket of groups, and in levels::

    silver/commits/07-2-000000311-1.parquet    groups of bucket 7, merged in micro-batch 311
    silver/commits/xx-0-000000340-1.parquet    groups of any bucket, added by micro-batch 340

A group's bucket is a hash of its name: to read a group, only the files of its bucket are read. A
micro-batch adds one small file to a growing table. Small files are merged from time to time, first
into one file for each bucket, later into larger files. A file is never changed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from rota import errors
from rota.errors import InputError, RotaError, Unreachable
from rota.pipeline import arrow
from rota.pipeline.tables import (
    ADVICE,
    ADVISED,
    COMMITS,
    DOWNTIME,
    GENERATIONS,
    GROUPS,
    LAG,
    OWNERSHIP,
    REBALANCES,
    WHATIF,
    Table,
)

BUCKETS = 16

#: Levels: files that micro-batches added, files by bucket; higher levels have larger files.
LEVEL_ADDED, LEVEL_BUCKETED = 0, 1

MERGE_ADDED_FILES = 16  # number of added files that are merged
MERGE_LEVEL_FILES = 8  # number of files of a higher level that are merged
MAX_MERGE_BYTES = 16 << 20  # total size above which files are not merged
EMPTY_FILE = "none.parquet"  # no rows: Spark does not read a folder without files
_BUCKET_FILE_NAME = re.compile(r"(\d\d|xx)-(\d)-(\d+)-(\d+)\.parquet")
_SPARK_FILE_NAME = re.compile(r"part-(\d+)-.*\.parquet")


def bucket_of_group(group: str) -> int:
    return zlib.crc32(group.encode()) % BUCKETS


def repartition_by_bucket(frame: DataFrame) -> DataFrame:
    number = fn.crc32(fn.col("group").cast("binary")) % BUCKETS
    return frame.repartitionById(BUCKETS, number.cast("int"))


class _BucketFile(NamedTuple):
    level: int
    number: int
    path: Path
    bucket: int | None


class BucketFiles:
    """The Parquet files of one table in the folder of a micro-batch, by bucket and level."""

    def __init__(self, folder: Path, schema: pa.Schema, number: int) -> None:
        """:param number: number of the micro-batch"""
        self._folder = folder
        self._schema = schema
        self._number = number
        self._files_made = 0

    def rename_spark_files(self, *, bucketed: bool) -> None:
        """Renames the files that Spark wrote; ``bucketed``: after :func:`repartition_by_bucket`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._folder.iterdir()):
            found = _SPARK_FILE_NAME.fullmatch(path.name)
            if found is None:
                path.unlink()
            else:
                path.rename(self._new(int(found[1]) if bucketed else None, LEVEL_BUCKETED))
        parquet.write_table(self._schema.empty_table(), self._folder / EMPTY_FILE)

    def link_files(self, old: Path) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in old.iterdir():
            try:
                os.link(path, self._folder / path.name)
            except OSError:  # some file systems have no links
                shutil.copy2(path, self._folder / path.name)

    def read(
        self, groups: Collection[str] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        return self._rows([file.path for file in self._files(groups)], columns, groups)

    def read_all(self) -> pa.Table:
        """Returns all rows, also those of files with a fixed name."""
        return self._rows(sorted(self._folder.iterdir()))

    def append(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._write(rows, None, LEVEL_ADDED)

    def replace(self, groups: Collection[str], rows: pa.Table) -> None:
        listed = pa.array(sorted(groups), pa.string())
        by_bucket = defaultdict(list)
        for bucket, part in _split_by_bucket(rows):
            by_bucket[bucket].append(part)
        for file in self._files(groups):
            every = self._rows([file.path])
            kept = every.filter(pc.invert(pc.is_in(every.column("group"), listed)))
            if file.bucket is not None:
                by_bucket[file.bucket].append(kept)
            elif kept.num_rows < every.num_rows:
                self.append(kept)
            else:
                continue
            file.path.unlink()
        for bucket, parts in sorted(by_bucket.items()):
            whole = pa.concat_tables(parts)
            if whole.num_rows:
                self._write(whole, bucket, LEVEL_BUCKETED)

    def write_named_file(self, name: str, rows: pa.Table) -> None:
        path = self._folder / f"{name}.parquet"
        path.unlink(missing_ok=True)  # readers of an earlier micro-batch may use the same file
        parquet.write_table(rows.cast(self._schema), path, compression="zstd")

    def count(self) -> int:
        return sum(parquet.read_metadata(path).num_rows for path in self._folder.iterdir())

    def has_named_file(self, name: str) -> bool:
        return (self._folder / f"{name}.parquet").exists()

    def clear(self) -> None:
        for path in self._folder.iterdir():
            if path.name != EMPTY_FILE:
                path.unlink()

    def merge_small_files(self, *, bucketed: bool) -> None:
        kinds: defaultdict[tuple[int, int | None], list[_BucketFile]] = defaultdict(list)
        for file in self._files():
            kinds[file.level, file.bucket].append(file)
        for (level, bucket), files in sorted(kinds.items(), key=lambda kind: kind[0][0]):
            if len(files) < (MERGE_ADDED_FILES if level == LEVEL_ADDED else MERGE_LEVEL_FILES):
                continue
            if sum(file.path.stat().st_size for file in files) > MAX_MERGE_BYTES:
                continue
            rows = self._rows([file.path for file in sorted(files)])
            if level == LEVEL_ADDED and bucketed:
                for number, part in _split_by_bucket(rows):
                    self._write(part, number, LEVEL_BUCKETED)
            else:
                self._write(rows, bucket, level + 1)
            for file in files:
                file.path.unlink()

    def _files(self, groups: Collection[str] | None = None) -> Iterator[_BucketFile]:
        """Yields the files that may have rows of these groups; without them, all files."""
        buckets = None if groups is None else {bucket_of_group(group) for group in groups}
        for path in list(self._folder.iterdir()):
            if found := _BUCKET_FILE_NAME.fullmatch(path.name):
                bucket = None if found[1] == "xx" else int(found[1])
                if buckets is None or bucket is None or bucket in buckets:
                    yield _BucketFile(int(found[2]), int(found[3]), path, bucket)

    def _rows(
        self,
        paths: Iterable[Path],
        columns: Sequence[str] | None = None,
        groups: Collection[str] | None = None,
    ) -> pa.Table:
        names = self._schema.names if columns is None else list(columns)
        schema = pa.schema([self._schema.field(name) for name in names])
        listed = None if groups is None else pa.array(sorted(groups), pa.string())
        wanted = None if listed is None else pc.field("group").isin(listed)
        parts = [
            parquet.read_table(path, columns=names, filters=wanted, partitioning=None).cast(schema)
            for path in paths
        ]
        return pa.concat_tables([schema.empty_table(), *parts])

    def _write(self, rows: pa.Table, bucket: int | None, level: int) -> None:
        parquet.write_table(rows.cast(self._schema), self._new(bucket, level), compression="zstd")

    def _new(self, bucket: int | None, level: int) -> Path:
        self._files_made += 1
        prefix = "xx" if bucket is None else f"{bucket:02}"
        return self._folder / f"{prefix}-{level}-{self._number:09}-{self._files_made}.parquet"


def _split_by_bucket(rows: pa.Table) -> Iterable[tuple[int, pa.Table]]:
    coded = rows.column("group").combine_chunks().dictionary_encode()
    buckets = np.array(list(map(bucket_of_group, coded.dictionary.to_pylist())), dtype=np.int64)
    bucket_of_row = buckets[coded.indices.to_numpy()]
    for bucket in np.unique(bucket_of_row).tolist():
        yield bucket, rows.filter(pa.array(bucket_of_row == bucket))


TABLE_FOLDERS = ("bronze", "silver", "gold")

RUNS_FOLDER, CURRENT_LINK, LOCK_FILE, WORK_FOLDER = ".runs", ".current", ".lock", "work"

PROBLEM_COLUMN = "problem"
_ROW_FILE = "row"
REPLACED_RUN_SECONDS = 120.0  # seconds for which a replaced run stays readable

#: Tables that ``--follow`` writes by bucket.
BUCKETED_TABLES = frozenset(
    {COMMITS, GENERATIONS, OWNERSHIP, GROUPS, REBALANCES, DOWNTIME, LAG, WHATIF, ADVICE, ADVISED}
)

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/")

_DISK_ERRORS = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "Permission denied": errno.EACCES,
    "Read-only file system": errno.EROFS,
}

_SQL_STATE = "SQLSTATE: "  # last line of Spark's errors
_PYTHON_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Warning)?: ")


class SparkFailed(Exception):
    """Spark failed for a reason outside of the user's input."""


class TableStore:
    """The tables of one run; ``layered``: files by bucket and level, for ``--follow``."""

    def __init__(self, out: Path, folder: Path, *, layered: bool = False) -> None:
        self.out = out
        self.path = folder
        self._bucketed = layered

    def write(self, table: Table, frame: DataFrame, **counts: Column) -> dict[str, Any]:
        """Writes rows without a ``problem``; returns ``rows`` and the counts over all rows."""
        columns = [fn.col(f"`{each.name}`").cast(each.type) for each in table.columns]
        wide, rows = Observation(), Observation()
        if counts:
            frame = frame.observe(wide, *(count.alias(name) for name, count in counts.items()))
        if PROBLEM_COLUMN in frame.columns:
            frame = frame.where(f"{PROBLEM_COLUMN} is null")
        frame = frame.select(*columns).observe(rows, fn.count(fn.lit(1)).alias("rows"))
        bucketed = self._bucketed and table in BUCKETED_TABLES
        with translate_spark_errors(self.out):
            (repartition_by_bucket(frame) if bucketed else frame).write.parquet(self.folder(table))
        if self._bucketed:
            self.bucket_files(table).rename_spark_files(bucketed=bucketed)
        return dict(rows.get) | (dict(wide.get) if counts else {})

    def write_all(self, *pairs: tuple[Table, DataFrame]) -> list[int]:
        """Writes several tables at the same time; returns their numbers of rows."""
        with ThreadPoolExecutor(len(pairs)) as pool:
            found = pool.map(lambda pair: self.write(*pair)["rows"], pairs)
            return [int(rows) for rows in found]

    def write_empty(self, *tables: Table) -> None:
        """Writes tables without rows, without Spark, which takes a second for each."""
        for table in tables:
            folder = Path(self.folder(table))
            folder.mkdir(parents=True)
            parquet.write_table(arrow.arrow_schema(table).empty_table(), folder / EMPTY_FILE)

    def write_row(self, table: Table, row: arrow.TableRow) -> None:
        """Writes or replaces the only row of a table."""
        Path(self.folder(table)).mkdir(parents=True, exist_ok=True)
        self.bucket_files(table).write_named_file(
            _ROW_FILE, pa.Table.from_batches([arrow.rows_to_batch(table, [row])])
        )

    def read_row(self, table: Table) -> dict[str, Any]:
        (found,) = arrow.table_to_rows(
            parquet.read_table(Path(self.folder(table), f"{_ROW_FILE}.parquet"))
        )
        return found

    def materialize(self, spark: SparkSession, name: str, frame: DataFrame) -> DataFrame:
        """Computes a DataFrame once, for several tables, into a temporary file of the run."""
        path = str(self.path / WORK_FOLDER / name)
        with translate_spark_errors(self.out):
            frame.write.parquet(path)
        return spark.read.schema(frame.schema).parquet(path)

    def read(self, spark: SparkSession, table: Table) -> DataFrame:
        # with a schema Spark opens no file to plan
        return spark.read.schema(arrow.spark_ddl(table)).parquet(self.folder(table))

    def folder(self, table: Table) -> str:
        return str(self.path / table.name)

    def bucket_files(self, table: Table) -> BucketFiles:
        return BucketFiles(self.path / table.name, arrow.arrow_schema(table), self.number)

    @property
    def number(self) -> int:
        return int(self.path.name)

    def publish(self) -> None:
        """Makes this run's tables visible in place of the former ones."""
        _remove_folder(self.path / WORK_FOLDER)
        for level in TABLE_FOLDERS:  # in the first run the links have no target yet
            _point_link(self.out / level, Path(CURRENT_LINK, level))
        _point_link(self.out / CURRENT_LINK, Path(RUNS_FOLDER, self.path.name))


class OutputFolder:
    """The output folder, which :func:`lock_output` locks against other runs."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._runs = out / RUNS_FOLDER
        self._runs.mkdir(exist_ok=True)
        numbers = (int(run.name) for run in self._runs.iterdir() if run.name.isdecimal())
        self._last = max(numbers, default=0)
        self._replaced: list[tuple[float, Path]] = []
        for run in self._runs.iterdir():
            if run != self.published:
                _remove_folder(run)

    @property
    def published(self) -> Path | None:
        with suppress(OSError):
            return self._runs / (self.out / CURRENT_LINK).readlink().name
        return None

    def open_published(self) -> TableStore | None:
        run = self.published
        return None if run is None else TableStore(self.out, run, layered=True)

    @contextmanager
    def begin_run(self, *, layered: bool = False) -> Iterator[TableStore]:
        """Begins a run; its folder is removed if the block does not publish it."""
        self._last += 1
        mine = self._runs / str(self._last)
        mine.mkdir()
        before = self.published
        try:
            yield TableStore(self.out, mine, layered=layered)
        finally:
            if self.published != mine:
                _remove_folder(mine)
            elif before is not None:
                self._replaced.append((time.monotonic(), before))

    def remove_replaced(self) -> None:
        late = time.monotonic() - REPLACED_RUN_SECONDS
        while self._replaced and self._replaced[0][0] < late:
            _remove_folder(self._replaced.pop(0)[1])


@contextmanager
def lock_output(out: str) -> Iterator[OutputFolder]:
    """Locks a folder and removes leftovers of killed runs; raises InputError or Unreachable."""
    folder = check_output_folder(out).absolute()  # Spark may run elsewhere
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        yield OutputFolder(folder)


@contextmanager
def begin_run(out: str) -> Iterator[TableStore]:
    with lock_output(out) as output, output.begin_run() as store:
        yield store


def check_output_folder(out: str) -> Path:
    """Returns the folder; raises InputError if tables cannot be written to it."""
    if _URL.match(out):
        raise InputError(f"--out {out}: give a folder of this machine, or a mounted one")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {out} is a file, not a folder")
    for level in TABLE_FOLDERS:
        found = folder / level
        ours = found.is_symlink() and found.readlink() == Path(CURRENT_LINK, level)
        if os.path.lexists(found) and not ours:
            raise InputError(
                f"--out {out}: Rota did not write {level} in it; give another folder, or move it"
            )
    return folder


def _point_link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    new = link.with_name(f"{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)


def _remove_folder(folder: Path) -> None:
    # the Java process of a killed run may still write for a moment
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Locks a folder; raises Unreachable if another run is writing to it."""
    with (folder / LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unreachable(
                f"{folder}: another run is writing to it; wait until it ends"
            ) from None
        yield


@contextmanager
def translate_spark_errors(where: Path) -> Iterator[None]:
    """Turns Java's disk errors into OSError, and other Spark errors into one line."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        for words, number in _DISK_ERRORS.items():
            if words in text:
                raise OSError(number, os.strerror(number), str(where)) from error
        line = root_cause_line(text)
        raise (_restore_rota_error(line) or SparkFailed(line)) from error


def _restore_rota_error(line: str) -> RotaError | None:
    """Restores an error of Rota that a task or Spark's planner raised, from its text."""
    kind, _, text = line.partition(": ")
    found = getattr(errors, kind.removeprefix("rota.errors."), None)
    if not kind.startswith("rota.errors.") or not isinstance(found, type):
        return None
    # a refusal by the broker is not an input error: the same request was accepted before
    return InputError(text) if issubclass(found, InputError) else Unreachable(text)


def root_cause_line(text: str) -> str:
    """Returns the line with the cause: the last Python error, or Java's last cause."""
    lines = [line.strip() for line in text.splitlines()]
    python = [
        line
        for before, line in pairwise(lines)
        if _PYTHON_ERROR.match(line)
        and not before.startswith("at ")
        and not line.startswith(_SQL_STATE)
    ]
    java = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return next(iter([*python[-1:], *java[-1:], *filter(None, lines)]), "no reason given")
