"""The first recorded run of a real Kafka 4.3.1: journal, broker's log and true events."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rota.engine.formats import journal
from rota.engine.history.causes import CommitTimes
from rota.engine.history.facts import JournalRecord, LogLine
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.server_log import parse_line
from rota.engine.model.journal_entry import OffsetCommitEntry, OffsetCommitTombstone, UnparsedEntry
from tests.support.expected_history import commit_times
from tests.support.paths import FIXTURES

RECORDED = FIXTURES / "kafka-4.3.1"


def raw_lines(name: str) -> list[str]:
    with gzip.open(RECORDED / name, "rt") as lines:
        return list(lines)


@cache
def topic_names() -> Mapping[bytes, str]:
    named = json.loads((RECORDED / "topics.json").read_text())
    return {base64.urlsafe_b64decode(text + "=="): name for name, text in named.items()}


@cache
def read_records() -> Mapping[str, Sequence[JournalRecord]]:
    """The records of each group, in the journal's order."""
    found: dict[str, list[JournalRecord]] = {}
    for line in map(json.loads, raw_lines("offsets.jsonl.gz")):
        value = None if line["v"] is None else base64.b64decode(line["v"])
        entry = journal.decode_record(base64.b64decode(line["k"]), value)
        if not isinstance(entry, UnparsedEntry):
            found.setdefault(entry.group, []).append(JournalRecord(line["o"], line["ts"], entry))
    return found


@cache
def read_journal() -> Mapping[str, Sequence[JournalRecord]]:
    """The records about each group's members, in the journal's order."""
    found = {
        group: [
            record
            for record in records
            if not isinstance(record.entry, OffsetCommitEntry | OffsetCommitTombstone)
        ]
        for group, records in read_records().items()
    }
    return {group: records for group, records in found.items() if records}


@cache
def read_histories() -> Mapping[str, GroupHistory]:
    return {
        group: read_history(group, records, topic_names())
        for group, records in read_journal().items()
    }


@cache
def read_commit_times(group: str) -> CommitTimes:
    return commit_times(read_records().get(group, ()))


@cache
def read_expected() -> Sequence[Mapping[str, Any]]:
    return [json.loads(line) for line in raw_lines("truth.jsonl.gz")]


@cache
def broker_log() -> Sequence[str]:
    """The broker's own lines about groups, in order."""
    return [json.loads(line)["m"] for line in raw_lines("coordinator.jsonl.gz")]


@cache
def read_log_lines(group: str) -> Sequence[LogLine]:
    found = map(parse_line, raw_lines("coordinator.jsonl.gz"))
    return [line for line in found if isinstance(line, LogLine) and line.group == group]
