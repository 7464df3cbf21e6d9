"""The recorded run of a real Kafka 4.3.1: journal, broker log, and what truly happened."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from rota.engine.formats import journal
from rota.engine.history.facts import JournalRecord
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.model.journal_entry import OffsetCommitEntry, OffsetCommitTombstone, UnparsedEntry
from tests.support.paths import FIXTURES

RECORDED = FIXTURES / "kafka-4.3.1"


def _lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(RECORDED / name, "rt") as lines:
        return [json.loads(line) for line in lines]


@cache
def topic_names() -> Mapping[bytes, str]:
    named = json.loads((RECORDED / "topics.json").read_text())
    return {base64.urlsafe_b64decode(text + "=="): name for name, text in named.items()}


@cache
def read_journal() -> Mapping[str, Sequence[JournalRecord]]:
    """The records about each group's members, in journal order."""
    found: dict[str, list[JournalRecord]] = {}
    for line in _lines("offsets.jsonl.gz"):
        value = None if line["v"] is None else base64.b64decode(line["v"])
        entry = journal.decode_record(base64.b64decode(line["k"]), value)
        if not isinstance(entry, OffsetCommitEntry | OffsetCommitTombstone | UnparsedEntry):
            found.setdefault(entry.group, []).append(JournalRecord(line["o"], line["ts"], entry))
    return found


@cache
def read_histories() -> Mapping[str, GroupHistory]:
    return {
        group: read_history(group, records, topic_names())
        for group, records in read_journal().items()
    }


@cache
def read_expected() -> Sequence[Mapping[str, Any]]:
    return _lines("truth.jsonl.gz")


@cache
def broker_log() -> Sequence[str]:
    """The broker's own lines about groups, in order."""
    return [line["m"] for line in _lines("coordinator.jsonl.gz")]
