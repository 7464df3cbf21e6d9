"""The second recorded run of a real Kafka 4.3.1, which nothing was tuned for."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rota.formats import journal
from rota.formats.batch import decode, records
from rota.replay.cause import Commits
from rota.replay.fact import Cause, LogLine, Step, Written
from rota.replay.serverlog import Passed, parse
from rota.replay.step import steps
from rota.replay.timeline import read
from tests.support.paths import FIXTURES
from tests.support.truth import commits_of

RECORDED = FIXTURES / "kafka-4.3.1-b"


@cache
def written() -> Mapping[str, Sequence[Written]]:
    """Every group's records, in journal order."""
    found: dict[str, list[Written]] = defaultdict(list)
    with tarfile.open(RECORDED / "segments.tar.gz") as archive:
        for name in sorted(archive.getnames()):
            if not name.endswith(".log"):
                continue
            file = archive.extractfile(name)
            assert file is not None
            for record in records(decode(file.read())):
                assert record.key is not None
                entry = journal.decode(record.key, record.value)
                group = getattr(entry, "group", "")
                found[group].append(Written(record.offset, record.timestamp, entry))
    return found


@cache
def rebalances() -> Mapping[str, Sequence[Step]]:
    return {
        group: steps(read(group, kept, {}).generations)
        for group, kept in written().items()
        if group.startswith("b-")
    }


@cache
def commits(group: str) -> Commits:
    return commits_of(written()[group])


@cache
def log() -> Sequence[LogLine | Passed]:
    with gzip.open(RECORDED / "coordinator.log.gz", "rt") as lines:
        return [parse(line) for line in lines]


def lines(group: str) -> list[LogLine]:
    return [line for line in log() if isinstance(line, LogLine) and line.group == group]


@cache
def truth() -> Sequence[Mapping[str, Any]]:
    data = gzip.decompress((RECORDED / "truth.jsonl.gz").read_bytes())
    return [json.loads(line) for line in io.StringIO(data.decode())]


OTHERWISE = {
    # its third member was slow to start, and came with the second one that was back
    "b-short": "joined, left, joined, silent, slow poll, joined, left",
    # its leader, of kafka-python, joined again twice of its own accord
    "b-python": "joined, joined, leader rejoined, leader rejoined, silent, left, slow poll, joined",
}
"""What came otherwise than what was done let expect, as clients and broker told."""


@cache
def causes() -> Mapping[str, Sequence[Cause]]:
    """Why each group rebalanced, in order: what was done to it says so."""
    found: dict[str, list[Cause]] = defaultdict(list)
    for deed in truth():
        if deed["group"] is not None:
            found[deed["group"]] += map(Cause, deed["causes"])
    for group, words in OTHERWISE.items():
        found[group] = [Cause(word) for word in words.split(", ")]
    return found
