"""The one module that reads and writes tables: Parquet in a folder, one run at a time.

::

    OUT/bronze  -> .current/bronze      what readers open, and silver and gold
    OUT/.current -> .runs/3             the run that is shown
    OUT/.runs/3/gold/rebalances/*.parquet
    OUT/.runs/4/...                     a run in progress
    OUT/.lock                           held by it

A run writes all of its tables into a folder of its own. When they are there, one rename turns
``.current`` to it: a reader finds the tables of one run, the old or the new, never a part. What a
killed run leaves is not shown, and the next run removes it.

A run that follows a cluster makes such a folder every round, most of it links to the files of the
round before (:mod:`rota.pipeline.layer`). A round that is not shown any more is kept for a while:
who has just opened it reads on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyarrow import parquet
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as fn

from rota import errors
from rota.errors import InputError, RotaError, Unreachable
from rota.pipeline import layer, schema
from rota.pipeline.layer import Layers
from rota.tables import (
    ADVICE,
    ADVISED,
    COMMITS,
    GENERATIONS,
    LAG,
    OWNERSHIP,
    REBALANCES,
    WHATIF,
    Table,
)

LEVELS = ("bronze", "silver", "gold")
RUNS, CURRENT, LOCK, WORK = ".runs", ".current", ".lock", "work"
PROBLEM = "problem"
_ROW = "row"
KEPT = 120.0
"""Seconds that a round is kept after another has taken its place."""
BUCKETED = frozenset({COMMITS, GENERATIONS, OWNERSHIP, REBALANCES, LAG, WHATIF, ADVICE, ADVISED})
"""The tables whose files a run that follows has by bucket."""
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/")
_FAILURES = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "Permission denied": errno.EACCES,
    "Read-only file system": errno.EROFS,
}
"""What Java says, and which error it is."""


_STATE = "SQLSTATE: "
"""What Spark says last of errors that it has a number for."""
_PYTHON_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Warning)?: ")


class SparkFailed(Exception):
    """Spark failed for a reason that is none of the user's."""


class Store:
    """The tables of a run in progress. :func:`begin` makes one, and :class:`Shelf`.

    :param layered: it is a round of many: files are named and laid out for the next ones
    """

    def __init__(self, out: Path, folder: Path, *, layered: bool = False) -> None:
        self.out = out
        self._folder = folder
        self._layered = layered

    def write(self, table: Table, frame: DataFrame, **counts: Column) -> dict[str, Any]:
        """Writes a table, whole.

        :param frame: where it has a column ``problem``, rows with one are counted, not written
        :param counts: aggregates over all rows and columns of the frame
        :return: how many rows were written, as ``rows``, and the counts
        """
        columns = [fn.col(f"`{each.name}`").cast(each.type) for each in table.columns]
        wide, rows = Observation(), Observation()
        if counts:
            frame = frame.observe(wide, *(count.alias(name) for name, count in counts.items()))
        if PROBLEM in frame.columns:
            frame = frame.where(f"{PROBLEM} is null")
        frame = frame.select(*columns).observe(rows, fn.count(fn.lit(1)).alias("rows"))
        bucketed = self._layered and table in BUCKETED
        with failures(self.out):
            (layer.by_bucket(frame) if bucketed else frame).write.parquet(self.folder(table))
        if self._layered:
            self.layers(table).adopt(bucketed=bucketed)
        return dict(rows.get) | (dict(wide.get) if counts else {})

    def write_all(self, *pairs: tuple[Table, DataFrame]) -> list[int]:
        """Writes several tables at the same time; how many rows each has."""
        with ThreadPoolExecutor(len(pairs)) as pool:
            found = pool.map(lambda pair: self.write(*pair)["rows"], pairs)
            return [int(rows) for rows in found]

    def write_nothing(self, *tables: Table) -> None:
        """Writes tables without rows; Spark takes a second for each."""
        for table in tables:
            folder = Path(self.folder(table))
            folder.mkdir(parents=True)
            parquet.write_table(schema.arrow(table).empty_table(), folder / layer.NONE)

    def put(self, table: Table, row: schema.Row) -> None:
        """Writes the one row that a table has, in the place of the one before."""
        Path(self.folder(table)).mkdir(parents=True, exist_ok=True)
        self.layers(table).put(_ROW, pa.Table.from_batches([schema.batch(table, [row])]))

    def row(self, table: Table) -> dict[str, Any]:
        """The one row that a table has; times are milliseconds."""
        (found,) = schema.rows(parquet.read_table(Path(self.folder(table), f"{_ROW}.parquet")))
        return found

    def keep(self, spark: SparkSession, name: str, frame: DataFrame) -> DataFrame:
        """Computes a frame that several tables are made of, once; it is gone with the run."""
        path = str(self._folder / WORK / name)
        with failures(self.out):
            frame.write.parquet(path)
        return spark.read.schema(frame.schema).parquet(path)

    def read(self, spark: SparkSession, table: Table) -> DataFrame:
        """A table that this run has written."""
        return _read(spark, self._folder, table)

    def folder(self, table: Table) -> str:
        """Where a table is."""
        return str(self._folder / table.name)

    def layers(self, table: Table) -> Layers:
        """A table's files, where they are laid out for the next round."""
        return Layers(self._folder / table.name, schema.arrow(table), self.number)

    @property
    def number(self) -> int:
        """Of the run."""
        return int(self._folder.name)

    @property
    def path(self) -> Path:
        """Where the run's tables are, and what else belongs to it."""
        return self._folder

    def publish(self) -> None:
        """Shows this run's tables in place of those that were there."""
        _remove(self._folder / WORK)
        for level in LEVELS:  # the first time they lead nowhere yet
            _turn(self.out / level, Path(CURRENT, level))
        _turn(self.out / CURRENT, Path(RUNS, self._folder.name))


class Shelf:
    """A folder of tables that nobody else writes to. :func:`held` gives one."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._runs = out / RUNS
        self._runs.mkdir(exist_ok=True)
        numbers = (int(run.name) for run in self._runs.iterdir() if run.name.isdecimal())
        self._last = max(numbers, default=0)
        self._replaced: list[tuple[float, Path]] = []
        for run in self._runs.iterdir():
            if run != self.shown:
                _remove(run)

    @property
    def shown(self) -> Path | None:
        """The run that readers see."""
        name = _shown(self.out)
        return None if name is None else self._runs / name

    def open(self) -> Store | None:
        """The tables of the run that readers see."""
        return None if self.shown is None else Store(self.out, self.shown, layered=True)

    @contextmanager
    def begin(self, *, layered: bool = False) -> Iterator[Store]:
        """A new run, which is gone if nobody has published it."""
        self._last += 1
        mine = self._runs / str(self._last)
        mine.mkdir()
        before = self.shown
        try:
            yield Store(self.out, mine, layered=layered)
        finally:
            if self.shown != mine:
                _remove(mine)
            elif before is not None:
                self._replaced.append((time.monotonic(), before))

    def sweep(self) -> None:
        """Removes runs that readers have had enough time to leave."""
        late = time.monotonic() - KEPT
        while self._replaced and self._replaced[0][0] < late:
            _remove(self._replaced.pop(0)[1])


@contextmanager
def held(out: str) -> Iterator[Shelf]:
    """A folder for tables, for as long as the block lasts; what was left behind is removed.

    :raises InputError: the folder is no place for tables
    :raises Unreachable: another run is writing to it
    """
    folder = checked(out).absolute()  # Spark may run elsewhere
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        yield Shelf(folder)


@contextmanager
def begin(out: str) -> Iterator[Store]:
    """One run's store in the folder: see :func:`held`."""
    with held(out) as shelf, shelf.begin() as store:
        yield store


def read(spark: SparkSession, out: str, table: Table) -> DataFrame:
    """A table of the run that is shown, now and for as long as the frame is used.

    :raises Unreachable: there is none
    """
    shown = _shown(Path(out))
    if shown is None:
        raise Unreachable(f"{out}: no tables here; rota run --out {out} makes them")
    return _read(spark, Path(out, RUNS, shown), table)


def _read(spark: SparkSession, folder: Path, table: Table) -> DataFrame:
    # the schema is given, not asked for: Spark need not open a file to plan
    return spark.read.schema(schema.ddl(table)).parquet(str(folder / table.name))


def checked(out: str) -> Path:
    """The folder that was given for tables.

    :raises InputError: it is no place for them
    """
    if _ADDRESS.match(out):
        raise InputError(f"--out {out}: tables are written to a folder of this machine, or a mount")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {out}: this is a file, not a folder")
    for level in LEVELS:
        found = folder / level
        if os.path.lexists(found) and not _ours(found, level):
            raise InputError(
                f"--out {out}: {level} in it is not Rota's; give another folder, or move it away"
            )
    return folder


def _ours(link: Path, level: str) -> bool:
    return link.is_symlink() and link.readlink() == Path(CURRENT, level)


def _shown(folder: Path) -> str | None:
    with suppress(OSError):
        return (folder / CURRENT).readlink().name
    return None


def _turn(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    new = link.with_name(f"{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)


def _remove(folder: Path) -> None:
    # the Java of a run that was killed may still be writing for a moment
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keeps other runs out of a folder.

    :raises Unreachable: another run is writing to it
    """
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unreachable(f"{folder}: another run is writing to it; wait for it") from None
        yield


@contextmanager
def failures(where: Path) -> Iterator[None]:
    """Turns what Java says about a disk into the error that Python has for it, and what else went
    wrong in Spark into an error of one line: Java's stacks are as long as books.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        said = str(error)
        for words, number in _FAILURES.items():
            if words in said:
                raise OSError(number, os.strerror(number), str(where)) from error
        line = root(said)
        raise (_ours_again(line) or SparkFailed(line)) from error


def _ours_again(line: str) -> RotaError | None:
    """An error of Rota's that was raised in a task or by Spark's planner: there it becomes text."""
    kind, _, text = line.partition(": ")
    found = getattr(errors, kind.removeprefix("rota.errors."), None)
    if not kind.startswith("rota.errors.") or not isinstance(found, type):
        return None
    # what a broker refuses is then no fault of the command line: it was allowed a moment ago
    return InputError(text) if issubclass(found, InputError) else Unreachable(text)


def root(said: str) -> str:
    """The line that names the root of an error: Python's last one, or Java's last cause."""
    lines = [line.strip() for line in said.splitlines()]
    python = [
        line
        for before, line in pairwise(lines)
        if _PYTHON_ERROR.match(line)
        and not before.startswith("at ")
        and not line.startswith(_STATE)
    ]
    java = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return next(iter([*python[-1:], *java[-1:], *filter(None, lines)]), "no reason given")
