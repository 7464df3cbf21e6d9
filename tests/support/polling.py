"""Polling by a script: something happens after each round, and Ctrl-C after the last."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from rota.engine.formats import journal
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.engine.history.facts import JournalRecord, PartitionOwnership
from rota.pipeline.poll import PollGap, PollResult, PollSettings, poll_groups
from rota.pipeline.redaction import Redaction
from tests.support.client import client, run

Act = Callable[[], object]


class Script:
    """Acts when a round is done; after the last one Ctrl-C is pressed."""

    def __init__(self, *acts: Act, lost: Act | None = None) -> None:
        self._acts = list(acts)
        self._lost = lost
        self.told: list[str] = []
        #: Of the rounds.
        self.times: list[int] = []

    def round(self, polled: PollResult) -> None:
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

    def back(self, gap: PollGap) -> None:
        self.told.append("back")


def poll(
    servers: str,
    poll: PollSettings,
    folder: Path,
    script: Script,
    redaction: Redaction | None = None,
) -> PollResult:
    """Samples the groups of a cluster into a folder."""

    async def ask() -> PollResult:
        async with client(servers) as asking:
            return await poll_groups(asking, poll, folder, script, redaction)

    return run(ask())


def read_journal_records(
    folder: Path, group: str, partition: str = "__consumer_offsets-*"
) -> Iterator[JournalRecord]:
    """What a broker's folder has of a group, in journal order."""
    for file in sorted(folder.glob(f"{partition}/*.log")):
        for record in iterate_records(decode_batches(file.read_bytes())):
            entry = journal.decode_record(record.key or b"", record.value)
            if getattr(entry, "group", None) == group:
                yield JournalRecord(record.offset, record.timestamp, entry)


def owners_at(owned: list[PartitionOwnership], time: int) -> dict[tuple[str, int], str]:
    """Who had what at a time."""
    return {
        (one.topic, one.partition): one.member_id
        for one in owned
        if one.since <= time and (one.until is None or time < one.until)
    }
