"""A restart: a journal of a million records is decoded and replayed.

In a process of its own, so that its memory is all that counts: the peak is the whole process's.
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

from bench.limit import LIMITS
from bench.measure import Measurement
from bench.run import Row, Run
from rota.engine.coordinator.coordinator import Coordinator
from rota.engine.coordinator.events import JournalLoaded, JournalLoadStarted
from rota.engine.formats import consumer_protocol, journal
from rota.engine.model.config import GroupConfig
from rota.engine.model.journal_entry import (
    ClassicEntry,
    GroupMetadataEntry,
    GroupMetadataMember,
    OffsetCommitEntry,
)
from rota.engine.model.member import Assignment, Subscription
from rota.engine.model.topic import Partitions

GROUPS = 10_000
#: For each group, every one in another partition: all of them are kept.
OFFSETS = 98
MEMBERS = 3
ENTRIES = GROUPS * (OFFSETS + 2)
NOW = 1_790_000_000_000
TOPIC_ID = bytes(range(16))

Record = tuple[bytes, bytes | None]


def group_entries(group: str) -> Iterator[ClassicEntry]:
    """A group that begins, becomes stable with three members, and commits."""
    yield GroupMetadataEntry(
        group=group, protocol_type="", generation=0, protocol=None, leader=None
    )
    subscription = consumer_protocol.encode_subscription(Subscription(topics=("orders",)))
    yield GroupMetadataEntry(
        group=group,
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=f"{group}-0",
        state_timestamp=NOW,
        members=tuple(
            GroupMetadataMember(
                member_id=f"{group}-{number}",
                group_instance_id=None,
                client_id="billing",
                client_host="/10.0.0.7",
                rebalance_timeout=300_000,
                session_timeout=45_000,
                subscription=subscription,
                assignment=consumer_protocol.encode_assignment(
                    Assignment(Partitions.of({"orders": range(number, OFFSETS, MEMBERS)}))
                ),
            )
            for number in range(MEMBERS)
        ),
    )
    for partition in range(OFFSETS):
        yield OffsetCommitEntry(
            group=group,
            topic="orders",
            partition=partition,
            offset=1_000_000 + partition,
            leader_epoch=3,
            commit_timestamp=NOW + partition,
            topic_id=TOPIC_ID,
        )


def journal_records() -> Iterator[Record]:
    """The journal's bytes, one record at a time, as they come from a segment."""
    for number in range(GROUPS):
        for entry in group_entries(f"group-{number:05}"):
            yield journal.encode_entry(entry)


def measure_replay() -> tuple[float, int, int]:
    """CPU seconds of decoding and replaying alone, the process's peak in bytes, timers started.

    The bytes are made in pieces outside the clock: a real journal is on a disk, not in memory.
    """
    coordinator = Coordinator(GroupConfig(), lambda: "")
    coordinator.handle(JournalLoadStarted(), NOW)
    made = journal_records()
    seconds = 0.0
    while piece := list(itertools.islice(made, 10_000)):
        start = time.process_time()
        for key, value in piece:
            coordinator.replay(journal.decode_record(key, value))
        seconds += time.process_time() - start
    start = time.process_time()
    commands = coordinator.handle(JournalLoaded(), NOW)
    seconds += time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return seconds, peak, len(commands)


def run(bench: Run) -> Iterator[Row]:
    """Once: it is long enough to be sure of."""
    bench.print_progress(f"   {ENTRIES:,} entries of {GROUPS:,} groups")
    done = subprocess.run(
        [sys.executable, "-m", "bench.journal"], capture_output=True, text=True, check=True
    )
    seconds, peak, commands = json.loads(done.stdout)
    assert commands == GROUPS * MEMBERS + 1  # a session for each member, and the look for expiry
    yield Row(
        work=f"restart: a journal of {ENTRIES:,} entries, {GROUPS:,} groups",
        ours=Measurement(seconds=seconds, peak=peak),
        theirs={},
        limit=LIMITS["replay"],
    )


if __name__ == "__main__":
    print(json.dumps(measure_replay()))
