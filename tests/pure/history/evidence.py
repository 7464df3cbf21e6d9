"""The recorded run's other evidence: when offsets were committed, and what the broker logged."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from rota.engine.formats import journal
from rota.engine.history.causes import CommitTimes
from rota.engine.history.facts import LogLine
from rota.engine.history.server_log import parse_line
from rota.engine.model.journal_entry import OffsetCommitEntry
from tests.pure.history.capture import RECORDED


def raw_lines(name: str) -> list[str]:
    with gzip.open(RECORDED / name, "rt") as lines:
        return list(lines)


@cache
def read_commit_times() -> Mapping[str, CommitTimes]:
    """The times of each group's commits."""
    found: dict[str, dict[tuple[str, int], list[int]]] = {}
    for at, entry in _commit_entries():
        times = found.setdefault(entry.group, {})
        times.setdefault((entry.topic, entry.partition), []).append(at)
    return {
        group: {key: np.array(sorted(times)) for key, times in mine.items()}
        for group, mine in found.items()
    }


def _commit_entries() -> Iterator[tuple[int, OffsetCommitEntry]]:
    for text in raw_lines("offsets.jsonl.gz"):
        line: dict[str, Any] = json.loads(text)
        value = None if line["v"] is None else base64.b64decode(line["v"])
        entry = journal.decode_record(base64.b64decode(line["k"]), value)
        if isinstance(entry, OffsetCommitEntry):
            yield line["ts"], entry


@cache
def read_log_lines() -> Mapping[str, Sequence[LogLine]]:
    """What the broker logged about each group."""
    found: dict[str, list[LogLine]] = {}
    for text in raw_lines("coordinator.jsonl.gz"):
        line = parse_line(text)
        if isinstance(line, LogLine):
            found.setdefault(line.group, []).append(line)
    return found
