"""A large journal as a broker leaves it: 1,000 groups with 20 generations each, and commits.

Batches of commits have all the same layout, so they are stamped: one is encoded, and where group,
partition, offset and time are in it, many copies get their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rota.engine.formats import consumer_protocol, journal, record_batch
from rota.engine.formats.record_batch import (
    ATTRIBUTES_OFFSET,
    HEADER_DTYPE,
    BatchRecord,
    compute_crc32c,
)
from rota.engine.model.journal_entry import (
    GroupMetadataEntry,
    GroupMetadataMember,
    OffsetCommitEntry,
)
from rota.engine.model.member import Assignment, Subscription
from rota.engine.model.topic import Partitions

GROUPS = 1_000
#: Of each group.
GENERATIONS = 20
JOURNAL_PARTITIONS = 50
#: That each group reads.
PARTITIONS = 50
#: Offsets that are committed at once.
TOGETHER = 10
START = 1_790_000_000_000
#: Between two generations of a group.
STEP = 60_000
SEGMENT = 100 << 20
TOPIC_ID = bytes(range(16))
OFFSET, TIME = 0x1122334455667788, START + 7

Bytes2 = npt.NDArray[np.uint8]


def write_journal(folder: Path, records: int) -> int:
    """Writes about this number of records, and returns the exact number."""
    #: Batches of a group between two of its generations.
    a_stage = records // (GROUPS * GENERATIONS * TOGETHER)
    written = 0
    for partition in range(JOURNAL_PARTITIONS):
        groups = range(partition, GROUPS, JOURNAL_PARTITIONS)
        written += _write_partition(folder / f"__consumer_offsets-{partition}", groups, a_stage)
    return written


def _write_partition(folder: Path, groups: range, a_stage: int) -> int:
    folder.mkdir(parents=True)
    stamps = [_BatchTemplate(first) for first in range(0, PARTITIONS, TOGETHER)]
    offset, segment = 0, bytearray()
    first = 0
    for number, group in itertools.product(range(GENERATIONS), groups):
        at = START + number * STEP
        made = record_batch.encode_batch([_generation(f"group-{group:04}", number, at, offset)])
        segment += made
        offset += 1
        if a_stage:
            segment += _commits(stamps, group, offset, at + 1_000, a_stage)
            offset += a_stage * TOGETHER
        if len(segment) > SEGMENT:
            (folder / f"{first:020}.log").write_bytes(segment)
            first, segment = offset, bytearray()
    if segment:
        (folder / f"{first:020}.log").write_bytes(segment)
    return offset


def _commits(stamps: list[_BatchTemplate], group: int, offset: int, at: int, batches: int) -> bytes:
    """Batches of commits, each of some of the partitions, evenly over the time of a generation."""
    order = np.arange(batches)
    found = np.empty((batches, stamps[0].size), np.uint8)
    for number, stamp in enumerate(stamps):
        mine = order[number :: len(stamps)]
        if len(mine):
            times = at + mine * (STEP - 2_000) // batches
            found[mine] = stamp.many(group, offset + mine * TOGETHER, times)
    return found.tobytes()


class _BatchTemplate:
    """A batch of commits of some partitions, to be copied."""

    def __init__(self, first: int) -> None:
        entries = (
            OffsetCommitEntry(
                group="group-9999",
                topic="topic-of-events",
                partition=partition,
                offset=OFFSET,
                leader_epoch=3,
                commit_timestamp=TIME,
                topic_id=TOPIC_ID,
            )
            for partition in range(first, first + TOGETHER)
        )
        made = record_batch.encode_batch(
            [
                BatchRecord(number, START, *journal.encode_entry(entry))
                for number, entry in enumerate(entries)
            ]
        )
        self.size = len(made)
        self._bytes = np.frombuffer(made, np.uint8)
        self._group = _find_all(made, b"9999", 4)
        self._offset = _find_all(made, OFFSET.to_bytes(8, "big"), 8)
        self._time = _find_all(made, TIME.to_bytes(8, "big"), 8)

    def many(
        self, group: int, offsets: npt.NDArray[np.int64], times: npt.NDArray[np.int64]
    ) -> Bytes2:
        made = np.tile(self._bytes, (len(offsets), 1))
        made[:, self._group] = np.frombuffer(f"{group:04}".encode(), np.uint8)[None, None]
        made[:, self._offset] = _big_endian(offsets)[:, None]
        made[:, self._time] = _big_endian(times)[:, None]
        head: npt.NDArray[Any] = made[:, : HEADER_DTYPE.itemsize].copy().view(HEADER_DTYPE)[:, 0]
        head["base_offset"], head["base_timestamp"], head["max_timestamp"] = offsets, times, times
        made[:, : HEADER_DTYPE.itemsize] = head[:, None].view(np.uint8)
        rows = (memoryview(row)[ATTRIBUTES_OFFSET:] for row in made)
        head["checksum"] = [compute_crc32c(row) for row in rows]
        made[:, : HEADER_DTYPE.itemsize] = head[:, None].view(np.uint8)
        return made


def _find_all(made: bytes, pattern: bytes, width: int) -> npt.NDArray[np.int64]:
    found: list[int] = []
    at = made.find(pattern)
    while at >= 0:
        found.append(at)
        at = made.find(pattern, at + width)
    assert len(found) == TOGETHER, (pattern, found)
    return np.array(found)[:, None] + np.arange(width)


def _big_endian(values: npt.NDArray[np.int64]) -> Bytes2:
    return np.ascontiguousarray(values, ">i8").view(np.uint8).reshape(len(values), 8)


def _generation(group: str, number: int, at: int, offset: int) -> BatchRecord:
    """Members come and go in turn: ten, nine, ten, ...; every third one new."""
    members = [f"{group}-{slot}-{number // 3 if slot == number % 10 else 0}" for slot in range(10)]
    members = members[: 10 - number % 2]
    subscription = consumer_protocol.encode_subscription(Subscription(topics=("topic-of-events",)))
    saved = GroupMetadataEntry(
        group=group,
        protocol_type="consumer",
        generation=number + 1,
        protocol="range",
        leader=members[0],
        state_timestamp=at,
        members=tuple(_members(members, subscription)),
    )
    return BatchRecord(offset, at, *journal.encode_entry(saved))


def _members(ids: list[str], subscription: bytes) -> Iterator[GroupMetadataMember]:
    bounds = np.linspace(0, PARTITIONS, len(ids) + 1).astype(int).tolist()
    for member_id, (begin, end) in zip(ids, itertools.pairwise(bounds), strict=True):
        given = Assignment(Partitions.of({"topic-of-events": range(begin, end)}))
        yield GroupMetadataMember(
            member_id=member_id,
            group_instance_id=None,
            client_id="billing",
            client_host="/10.0.0.7",
            rebalance_timeout=300_000,
            session_timeout=45_000,
            subscription=subscription,
            assignment=consumer_protocol.encode_assignment(given),
        )
