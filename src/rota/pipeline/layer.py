"""The files of a table that grows, by bucket of groups and in layers.

::

    silver/commits/07-2-000000311-1.parquet    groups of bucket 7, put together in round 311
    silver/commits/xx-0-000000340-1.parquet    groups of any bucket: what round 340 added

A group's bucket is a hash of its name, so that a group's rows are found without a look at those of
all others. A round adds one small file to a table that grows; now and then the small ones are put
together, first into one of each bucket, then those into larger ones. A file is never changed:
a round's folder has the last one's files as links, and its own beside them.
"""

from __future__ import annotations

import os
import re
import shutil
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

BUCKETS = 16
FRESH, BUCKETED = 0, 1
"""Layers: what rounds add, and what is by bucket; above are larger ones."""
SMALL = 16
"""So many files that rounds added are put together."""
FEW = 8
"""So many files of a layer are."""
LARGE = 16 << 20
"""Files of so many bytes are left as they are."""
NONE = "none.parquet"
"""A file without rows: a folder without files is no table."""
_NAME = re.compile(r"(\d\d|xx)-(\d)-(\d+)-(\d+)\.parquet")
_SPARKS = re.compile(r"part-(\d+)-.*\.parquet")


def bucket(group: str) -> int:
    """The bucket of a group."""
    return zlib.crc32(group.encode()) % BUCKETS


def by_bucket(frame: DataFrame) -> DataFrame:
    """Rows in as many tasks as there are buckets, each with the groups of its own."""
    number = fn.crc32(fn.col("group").cast("binary")) % BUCKETS
    return frame.repartitionById(BUCKETS, number.cast("int"))


@dataclass(frozen=True, slots=True, order=True)
class _File:
    layer: int
    number: int
    """The round that made it."""
    path: Path
    bucket: int | None
    """None: of any group."""


def _named(path: Path) -> _File | None:
    found = _NAME.fullmatch(path.name)
    if found is None:
        return None
    which = None if found[1] == "xx" else int(found[1])
    return _File(int(found[2]), int(found[3]), path, which)


class Layers:
    """A table in the folder of a round."""

    def __init__(self, folder: Path, schema: pa.Schema, number: int) -> None:
        """:param number: the round's"""
        self._folder = folder
        self._schema = schema
        self._number = number
        self._made = 0

    def adopt(self, *, bucketed: bool) -> None:
        """Takes the files that Spark has written, by :func:`by_bucket` or in any way."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._folder.iterdir()):
            found = _SPARKS.fullmatch(path.name)
            if found is None:
                path.unlink()
            else:
                path.rename(self._new(int(found[1]) if bucketed else None, BUCKETED))
        parquet.write_table(self._schema.empty_table(), self._folder / NONE)

    def link(self, old: Path) -> None:
        """Begins with the files of an earlier round."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in old.iterdir():
            _link(path, self._folder / path.name)

    def read(
        self, groups: Collection[str] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of groups, or all."""
        if groups is None:
            return self._rows([path for path in self._folder.iterdir() if _named(path)], columns)
        wanted = {bucket(group) for group in groups}
        files = [
            file.path for file in self._files() if file.bucket is None or file.bucket in wanted
        ]
        return self._rows(files, columns, groups)

    def append(self, rows: pa.Table) -> None:
        """Adds rows."""
        if rows.num_rows:
            self._write(rows, None, FRESH)

    def replace(self, groups: Collection[str], rows: pa.Table) -> None:
        """Puts rows of groups in the place of all rows that they have."""
        listed = pa.array(sorted(groups), pa.string())
        by_number: dict[int, list[pa.Table]] = {number: [part] for number, part in _split(rows)}
        touched = {bucket(group) for group in groups}
        for file in self._files():
            if file.bucket is not None and file.bucket not in touched:
                continue
            every = self._rows([file.path])
            kept = every.filter(pc.invert(pc.is_in(every.column("group"), listed)))
            if file.bucket is not None:
                by_number.setdefault(file.bucket, []).append(kept)
            elif kept.num_rows < every.num_rows:
                self.append(kept)
            else:
                continue
            file.path.unlink()
        for number, parts in sorted(by_number.items()):
            whole = pa.concat_tables(parts)
            if whole.num_rows:
                self._write(whole, number, BUCKETED)

    def put(self, name: str, rows: pa.Table) -> None:
        """A file of its own, in the place of the one of that name."""
        path = self._folder / f"{name}.parquet"
        path.unlink(missing_ok=True)  # it may be a link: others read what it leads to
        parquet.write_table(rows.cast(self._schema), path, compression="zstd")

    def count(self) -> int:
        """How many rows there are."""
        return sum(parquet.read_metadata(path).num_rows for path in self._folder.iterdir())

    def has(self, name: str) -> bool:
        """Whether there is a file of its own of that name."""
        return (self._folder / f"{name}.parquet").exists()

    def clear(self) -> None:
        """Removes all rows."""
        for path in self._folder.iterdir():
            if path.name != NONE:
                path.unlink()

    def settle(self, *, bucketed: bool) -> None:
        """Puts small files together where there are many."""
        kinds: dict[tuple[int, int | None], list[_File]] = defaultdict(list)
        for file in self._files():
            kinds[file.layer, file.bucket].append(file)
        for (layer, which), files in sorted(kinds.items(), key=lambda kind: kind[0][0]):
            if len(files) < (SMALL if layer == FRESH else FEW):
                continue
            if sum(file.path.stat().st_size for file in files) > LARGE:
                continue
            rows = self._rows([file.path for file in sorted(files)])
            if layer == FRESH and bucketed:
                for number, part in _split(rows):
                    self._write(part, number, BUCKETED)
            else:
                self._write(rows, which, layer + 1)
            for file in files:
                file.path.unlink()

    def _files(self) -> list[_File]:
        found = (_named(path) for path in self._folder.iterdir())
        return [file for file in found if file is not None]

    def _rows(
        self,
        paths: Iterable[Path],
        columns: Sequence[str] | None = None,
        groups: Collection[str] | None = None,
    ) -> pa.Table:
        names = self._schema.names if columns is None else list(columns)
        schema = pa.schema([self._schema.field(name) for name in names])
        wanted = None
        if groups is not None:
            wanted = pc.field("group").isin(pa.array(sorted(groups), pa.string()))
        parts = [
            parquet.read_table(path, columns=names, filters=wanted, partitioning=None).cast(schema)
            for path in paths
        ]
        return pa.concat_tables([schema.empty_table(), *parts])

    def _write(self, rows: pa.Table, which: int | None, layer: int) -> None:
        parquet.write_table(rows.cast(self._schema), self._new(which, layer), compression="zstd")

    def _new(self, which: int | None, layer: int) -> Path:
        self._made += 1
        told = "xx" if which is None else f"{which:02}"
        return self._folder / f"{told}-{layer}-{self._number:09}-{self._made}.parquet"


def _split(rows: pa.Table) -> Iterable[tuple[int, pa.Table]]:
    """The rows of each bucket."""
    coded = rows.column("group").combine_chunks().dictionary_encode()
    numbers = np.array([bucket(group) for group in coded.dictionary.to_pylist()], dtype=np.int64)
    if not len(coded):
        return
    place = numbers[coded.indices.to_numpy()]
    for number in np.unique(place).tolist():
        yield number, rows.filter(pa.array(place == number))


def _link(path: Path, to: Path) -> None:
    try:
        os.link(path, to)
    except OSError:  # there are file systems without links
        shutil.copy2(path, to)
