"""Finds the segment files of ``__consumer_offsets`` and cuts them into pieces of whole batches.

Only the lengths of batches are read here; their records are read where the pieces are.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from rota.errors import InputError, Unreachable
from rota.formats.batch import Walk, walk
from rota.formats.batch.header import FIELDS, HEAD
from rota.formats.batch.problem import Problem

PIECE = 8 << 20
"""Bytes of a piece, about."""
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


@dataclass
class _Found:
    pieces: list[Piece] = field(default_factory=list)
    flaws: list[Flawed] = field(default_factory=list)
    spans: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    size: int = 0


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
            partition for partition, spans in found.spans.items() if _overlap(spans)
        ),
        flaws=tuple(found.flaws),
        files=len(files),
        size=found.size,
        partitions=len(set(files.values())),
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
                found.spans.setdefault(partition, []).append(_span(data, walked))
    found.flaws.extend(Flawed(path=str(file), problem=problem) for problem in walked.problems)
    found.pieces.extend(
        Piece(path=str(file), partition=partition, begin=begin, end=end)
        for begin, end in _stretches(walked, size)
    )


def _span(data: memoryview, walked: Walk) -> tuple[int, int]:
    """The first offset of a file, and the last."""
    first, last = (
        np.frombuffer(bytes(data[at : at + HEAD.size]), FIELDS, 1)[0]
        for at in (int(walked.positions[0]), int(walked.positions[-1]))
    )
    return int(first["base_offset"]), int(last["base_offset"]) + int(last["last_offset_delta"])


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


def _overlap(spans: Iterable[tuple[int, int]]) -> bool:
    ordered = sorted(spans)
    return any(a[1] >= b[0] for a, b in pairwise(ordered))
