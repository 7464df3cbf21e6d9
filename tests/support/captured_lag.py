"""The captured run as columns: what was committed, and how long the partitions were."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np

from rota.engine.formats import journal
from rota.engine.history.facts import JournalRecord
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.lag import EndOffsets
from rota.engine.history.verdicts import DELETED_OFFSET, GroupCommits
from rota.engine.model.journal_entry import OffsetCommitEntry, OffsetCommitTombstone, UnparsedEntry
from tests.support.paths import FIXTURES

CAPTURE = FIXTURES / "kafka-4.3.1"
#: Just before the run, to name times in it as seconds.
START = 1_794_716_010_000


def time_of_second(number: float) -> int:
    return START + int(number * 1000)


class ConsumerGroupsRow(NamedTuple):
    """A line of kafka-consumer-groups."""

    group: str
    topic: str
    partition: int
    offset: int
    end: int
    lag: int
    #: ``-`` where nobody has the partition.
    member: str


def read_lines(name: str) -> list[str]:
    with gzip.open(CAPTURE / name, "rt") as file:
        return file.read().splitlines()


def read_consumer_groups_output(name: str) -> tuple[int, list[ConsumerGroupsRow]]:
    """When the tool was started, and the lines with an offset."""
    text = read_lines(name)
    rows = [line.split() for line in text[1:]]
    found = [
        ConsumerGroupsRow(
            row[0], row[1], int(row[2]), int(row[3]), int(row[4]), int(row[5]), row[6]
        )
        for row in rows
        if len(row) == 9 and row[2].isdigit() and row[3].isdigit()
    ]
    return int(text[0].rsplit(" ", 1)[1]), found


@cache
def partitions() -> tuple[tuple[str, int], ...]:
    samples = (json.loads(line) for line in read_lines("logends.jsonl.gz"))
    return tuple(sorted({(sample["topic"], sample["partition"]) for sample in samples}))


@cache
def end_offsets() -> EndOffsets:
    samples = [json.loads(line) for line in read_lines("logends.jsonl.gz")]
    number = {partition: n for n, partition in enumerate(partitions())}
    rows = [
        (number[s["topic"], s["partition"]], (s["t"] + s["t2"]) // 2, s["end"], s["beginning"])
        for s in samples
    ]
    return EndOffsets.from_samples(*np.array(rows, dtype=np.int64).T)


@cache
def journal_records() -> dict[str, list[JournalRecord]]:
    """Every group's records, as written: those of aborted transactions too."""
    found: dict[str, list[JournalRecord]] = {}
    for line in read_lines("offsets.jsonl.gz"):
        record = json.loads(line)
        value = None if record["v"] is None else b64decode(record["v"])
        entry = journal.decode_record(b64decode(record["k"]), value)
        if not isinstance(entry, UnparsedEntry):
            found.setdefault(entry.group, []).append(
                JournalRecord(record["o"], record["ts"], entry)
            )
    return found


@cache
def group_history(group: str) -> GroupHistory:
    ids = json.loads((CAPTURE / "topics.json").read_text())
    names = {urlsafe_b64decode(f"{text}=="): name for name, text in ids.items()}
    return read_history(group, journal_records()[group], names)


@cache
def group_commits() -> dict[str, GroupCommits]:
    """Of every group."""
    number = {partition: n for n, partition in enumerate(partitions())}
    return {
        group: GroupCommits(*np.array(rows, dtype=np.int64).T)
        for group, records in journal_records().items()
        if (rows := list(_rows(records, number)))
    }


def _rows(
    records: list[JournalRecord], number: dict[tuple[str, int], int]
) -> Iterator[tuple[int, int, int]]:
    for _, at, entry in records:
        match entry:
            case OffsetCommitEntry(topic=topic, partition=partition, offset=offset):
                yield number[topic, partition], at, offset
            case OffsetCommitTombstone(topic=topic, partition=partition):
                yield number[topic, partition], at, DELETED_OFFSET
