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

from rota.engine.formats import journal
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.engine.history.causes import CommitTimes
from rota.engine.history.facts import JournalRecord, LogLine, Rebalance, RebalanceCause
from rota.engine.history.generations import read_history
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.server_log import SkippedLine, parse_line
from tests.support.expected_history import commit_times
from tests.support.paths import FIXTURES

RECORDED = FIXTURES / "kafka-4.3.1-b"


@cache
def read_journal() -> Mapping[str, Sequence[JournalRecord]]:
    """Every group's records, in journal order."""
    found: dict[str, list[JournalRecord]] = defaultdict(list)
    with tarfile.open(RECORDED / "segments.tar.gz") as archive:
        for name in sorted(archive.getnames()):
            if not name.endswith(".log"):
                continue
            file = archive.extractfile(name)
            assert file is not None
            for record in iterate_records(decode_batches(file.read())):
                assert record.key is not None
                entry = journal.decode_record(record.key, record.value)
                group = getattr(entry, "group", "")
                found[group].append(JournalRecord(record.offset, record.timestamp, entry))
    return found


@cache
def read_rebalances() -> Mapping[str, Sequence[Rebalance]]:
    return {
        group: find_rebalances(read_history(group, kept, {}).generations)
        for group, kept in read_journal().items()
        if group.startswith("b-")
    }


@cache
def read_commit_times(group: str) -> CommitTimes:
    return commit_times(read_journal()[group])


@cache
def read_log() -> Sequence[LogLine | SkippedLine]:
    with gzip.open(RECORDED / "coordinator.log.gz", "rt") as lines:
        return [parse_line(line) for line in lines]


def read_log_lines(group: str) -> list[LogLine]:
    return [line for line in read_log() if isinstance(line, LogLine) and line.group == group]


@cache
def read_expected() -> Sequence[Mapping[str, Any]]:
    data = gzip.decompress((RECORDED / "truth.jsonl.gz").read_bytes())
    return [json.loads(line) for line in io.StringIO(data.decode())]


#: What came otherwise than what was done let expect, as clients and broker told.
OTHERWISE = {
    # its third member was slow to start, and came with the second one that was back
    "b-short": "joined, left, joined, silent, slow poll, joined, left",
    # its leader, of kafka-python, joined again twice of its own accord
    "b-python": "joined, joined, leader rejoined, leader rejoined, silent, left, slow poll, joined",
}


@cache
def read_causes() -> Mapping[str, Sequence[RebalanceCause]]:
    """Why each group rebalanced, in order: what was done to it says so."""
    found: dict[str, list[RebalanceCause]] = defaultdict(list)
    for deed in read_expected():
        if deed["group"] is not None:
            found[deed["group"]] += map(RebalanceCause, deed["causes"])
    for group, words in OTHERWISE.items():
        found[group] = [RebalanceCause(word) for word in words.split(", ")]
    return found
