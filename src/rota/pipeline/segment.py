"""Finds the segment files of ``__consumer_offsets`` and cuts them into pieces of whole batches.

Only the lengths of batches are read here; their records are read where the pieces are.
"""

from __future__ import annotations

import mmap
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rota.errors import InputError, Unreachable
from rota.formats.batch import Walk, walk
from rota.formats.batch.header import FIELDS, HEAD
from rota.formats.batch.problem import Problem

PIECE = 8 << 20
"""Bytes of a piece, about."""
DAY = 86_400_000
"""Milliseconds by which clocks may differ."""
DEPTH = 2
"""How far below the folder that was given: brokers' folders side by side are found too."""
_FOLDER = re.compile(r"__consumer_offsets-(\d+)")
_FILE = re.compile(r"\d{20}\.log")  # not .log.deleted, .log.cleaned, .log.swap


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of whole batches of a file."""

    path: str
    partition: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flawed:
    """Bytes of a file that are no batch."""

    path: str
    problem: Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """What there is to read."""

    pieces: tuple[Piece, ...]
    overlapping: frozenset[int]
    """Partitions of which a record may be in two files: replicas or copies."""
    flaws: tuple[Flawed, ...]
    files: int
    size: int
    partitions: int
    last: int
    """The latest time in the files."""
    complete: Mapping[int, Edge]
    """By partition, from where on every record is there, commits too: compaction leaves gaps."""


class Edge(NamedTuple):
    """A place in a partition, and its time."""

    offset: int
    at: int


class _Span(NamedTuple):
    """What offsets a file has."""

    first: int
    last: int
    edge: Edge
    """Behind its last gap."""


@dataclass
class _Found:
    pieces: list[Piece] = field(default_factory=list)
    flaws: list[Flawed] = field(default_factory=list)
    spans: dict[int, list[tuple[Path, _Span]]] = field(default_factory=dict)
    size: int = 0
    last: int = 0


def find(folders: Sequence[str], *, piece: int = PIECE) -> Segments:
    """Every piece of every segment of the folders.

    :raises InputError: a folder holds no partition of the journal
    :raises Unreachable: a folder cannot be read
    """
    files = {file.resolve(): partition for folder in folders for partition, file in _files(folder)}
    found = _Found()
    for file in sorted(files):
        _cut(file, files[file], found, piece)
    return Segments(
        pieces=tuple(found.pieces),
        overlapping=frozenset(
            partition
            for partition, spans in found.spans.items()
            if _overlap(span for _, span in spans)
        ),
        flaws=tuple(found.flaws),
        files=len(files),
        size=found.size,
        partitions=len(set(files.values())),
        last=found.last,
        complete={partition: _complete(spans) for partition, spans in found.spans.items()},
    )


def _files(folder: str) -> list[tuple[int, Path]]:
    top = Path(folder)
    if not top.is_dir():
        raise Unreachable(f"--segments {folder}: there is no such folder")
    partitions = list(_partitions(top, DEPTH))
    if not partitions:
        raise InputError(
            f"--segments {folder}: no folder __consumer_offsets-N in it; give a broker's log.dirs, "
            "or a copy of those folders"
        )
    return [
        (number, file)
        for number, partition in partitions
        for file in sorted(partition.iterdir())
        if _FILE.fullmatch(file.name)
    ]


def _partitions(folder: Path, depth: int) -> Iterator[tuple[int, Path]]:
    named = _FOLDER.fullmatch(folder.resolve().name)
    if named:
        yield int(named[1]), folder
    elif depth:
        for child in sorted(folder.iterdir()):
            if child.is_dir() and (depth == DEPTH or _FOLDER.fullmatch(child.name)):
                yield from _partitions(child, depth - 1)


def _cut(file: Path, partition: int, found: _Found, size: int) -> None:
    with file.open("rb") as opened:
        length = opened.seek(0, 2)
        if not length:
            return
        found.size += length
        with (
            mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            walked = walk(data)
            if len(walked):
                heads = _heads(data, walked)
                found.spans.setdefault(partition, []).append((file.parent, _span(heads)))
                # a record from the future is not the end of the evidence
                latest = min(int(heads["max_timestamp"].max()), int(time.time() * 1000) + DAY)
                found.last = max(found.last, latest)
    found.flaws.extend(Flawed(path=str(file), problem=problem) for problem in walked.problems)
    found.pieces.extend(
        Piece(path=str(file), partition=partition, begin=begin, end=end)
        for begin, end in _stretches(walked, size)
    )


def _heads(data: memoryview, walked: Walk) -> npt.NDArray[np.void]:
    rows = len(data) - HEAD.size + 1
    every: npt.NDArray[np.void] = np.ndarray((rows,), FIELDS, data, strides=(1,))
    return every[walked.positions]


def _span(heads: npt.NDArray[np.void]) -> _Span:
    """Records are numbered without a gap: where a number is missing, compaction took it."""
    base = heads["base_offset"].astype(np.int64)
    last = base + heads["last_offset_delta"]
    thinned = heads["count"] != heads["last_offset_delta"] + 1
    gaps = np.flatnonzero(thinned | np.append(base[1:] != last[:-1] + 1, [False]))
    row = int(gaps[-1]) + 1 if len(gaps) else 0
    if row < len(base):
        edge = Edge(int(base[row]), int(heads["base_timestamp"][row]))
    else:
        edge = Edge(int(last[-1]) + 1, int(heads["max_timestamp"][-1]))
    return _Span(int(base[0]), int(last[-1]), edge)


def _complete(spans: Sequence[tuple[Path, _Span]]) -> Edge:
    """The best of those replicas that have the last record."""
    found: dict[Path, list[_Span]] = {}
    for folder, span in spans:
        found.setdefault(folder, []).append(span)
    end = max(span.last for _, span in spans)
    edges = [
        _edge(sorted(each)) for each in found.values() if max(span.last for span in each) == end
    ]
    return min(edges)


def _edge(spans: Sequence[_Span]) -> Edge:
    """Behind the last gap of files that follow each other."""
    edge = spans[0].edge
    for before, span in pairwise(spans):
        if span.first != before.last + 1 or span.edge.offset != span.first:
            edge = span.edge
    return edge


def _stretches(walked: Walk, size: int) -> Iterator[tuple[int, int]]:
    """Neighbouring batches, up to about so many bytes."""
    if not len(walked):
        return
    ends = walked.positions + walked.sizes
    block = walked.positions // size
    cuts = np.flatnonzero(
        (np.diff(block) > 0) | (walked.positions[1:] != ends[:-1])  # behind bytes that are none
    )
    begins = walked.positions[np.concatenate([[0], cuts + 1])]
    yield from zip(begins.tolist(), ends[np.append(cuts, len(ends) - 1)].tolist(), strict=True)


def _overlap(spans: Iterable[_Span]) -> bool:
    return any(one.last >= following.first for one, following in pairwise(sorted(spans)))
