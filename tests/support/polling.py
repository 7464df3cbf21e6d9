"""Polling by a script: something happens after each round, and Ctrl-C after the last."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from rota.formats import journal
from rota.formats.batch import decode, records
from rota.pipeline.poll import Gap, Poll, Polled, sample
from rota.pipeline.redact import Redaction
from rota.replay.fact import Ownership, Written
from tests.support.client import client, run

Act = Callable[[], object]


class Script:
    """Acts when a round is done; after the last one Ctrl-C is pressed."""

    def __init__(self, *acts: Act, lost: Act | None = None) -> None:
        self._acts = list(acts)
        self._lost = lost
        self.told: list[str] = []
        self.times: list[int] = []
        """Of the rounds."""

    def round(self, polled: Polled) -> None:
        assert polled.last is not None
        self.times.append(polled.last)
        if self._acts:
            self._acts.pop(0)()
        else:
            signal.raise_signal(signal.SIGINT)

    def lost(self, why: str) -> None:
        self.told.append(f"lost: {why}")
        if self._lost is not None:
            self._lost()

    def back(self, gap: Gap) -> None:
        self.told.append("back")


def poll(
    servers: str, poll: Poll, folder: Path, script: Script, redaction: Redaction | None = None
) -> Polled:
    """Samples the groups of a cluster into a folder."""

    async def ask() -> Polled:
        async with client(servers) as asking:
            return await sample(asking, poll, folder, script, redaction)

    return run(ask())


def entries(folder: Path, group: str, partition: str = "__consumer_offsets-*") -> Iterator[Written]:
    """What a broker's folder has of a group, in journal order."""
    for file in sorted(folder.glob(f"{partition}/*.log")):
        for record in records(decode(file.read_bytes())):
            entry = journal.decode(record.key or b"", record.value)
            if getattr(entry, "group", None) == group:
                yield Written(record.offset, record.timestamp, entry)


def owners(owned: list[Ownership], time: int) -> dict[tuple[str, int], str]:
    """Who had what at a time."""
    return {
        (one.topic, one.partition): one.member_id
        for one in owned
        if one.since <= time and (one.until is None or time < one.until)
    }
