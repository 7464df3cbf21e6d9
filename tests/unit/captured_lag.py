"""The captured run as columns: what was committed, and how long the partitions were."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rota.formats import journal
from rota.model.entry import OffsetCommitted, OffsetForgotten
from rota.replay.lag import Ends
from rota.replay.verdict import DELETED, Commits

CAPTURE = Path(__file__).parents[1] / "fixtures" / "kafka-4.3.1"
START = 1_794_716_010_000
"""Just before the run, to name times in it as seconds."""


def second(number: float) -> int:
    return START + int(number * 1000)


class Printed(NamedTuple):
    """A line of kafka-consumer-groups."""

    group: str
    topic: str
    partition: int
    offset: int
    end: int
    lag: int


def lines(name: str) -> list[str]:
    with gzip.open(CAPTURE / name, "rt") as file:
        return file.read().splitlines()


def printed(name: str) -> tuple[int, list[Printed]]:
    """When the tool was started, and the lines with an offset."""
    text = lines(name)
    rows = [line.split() for line in text[1:]]
    found = [
        Printed(row[0], row[1], *(int(field) for field in row[2:6]))
        for row in rows
        if len(row) == 9 and row[2].isdigit() and row[3].isdigit()
    ]
    return int(text[0].rsplit(" ", 1)[1]), found


@cache
def partitions() -> tuple[tuple[str, int], ...]:
    samples = (json.loads(line) for line in lines("logends.jsonl.gz"))
    return tuple(sorted({(sample["topic"], sample["partition"]) for sample in samples}))


@cache
def ends() -> Ends:
    samples = [json.loads(line) for line in lines("logends.jsonl.gz")]
    number = {partition: n for n, partition in enumerate(partitions())}
    rows = [
        (number[s["topic"], s["partition"]], s["t2"], s["end"], s["beginning"]) for s in samples
    ]
    return Ends.of(*np.array(rows, dtype=np.int64).T)


@cache
def commits() -> dict[str, Commits]:
    """Of every group, as written: those of aborted transactions too."""
    number = {partition: n for n, partition in enumerate(partitions())}
    rows: dict[str, list[tuple[int, int, int]]] = {}
    for line in lines("offsets.jsonl.gz"):
        record = json.loads(line)
        value = None if record["v"] is None else b64decode(record["v"])
        match journal.decode(b64decode(record["k"]), value):
            case OffsetCommitted(group=group, topic=topic, partition=p, offset=offset):
                rows.setdefault(group, []).append((number[topic, p], record["ts"], offset))
            case OffsetForgotten(group=group, topic=topic, partition=p):
                rows.setdefault(group, []).append((number[topic, p], record["ts"], DELETED))
    return {g: Commits(*np.array(found, dtype=np.int64).T) for g, found in rows.items()}
