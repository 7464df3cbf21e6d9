"""Writes folders of ``__consumer_offsets`` as a broker would, and as none would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from rota.engine.formats import consumer_protocol, journal, record_batch
from rota.engine.model.journal_entry import (
    GroupMetadataEntry,
    GroupMetadataMember,
    JournalEntry,
    OffsetCommitEntry,
)
from rota.engine.model.member import Assignment, Subscription
from rota.engine.model.topic import Partitions

START = 1_800_000_000_000
#: A record's key and value.
Raw: TypeAlias = tuple[bytes | None, bytes | None]


def write_segment(
    folder: Path, partition: int, *batches: bytes, name: str = "0" * 20 + ".log"
) -> Path:
    """A segment file of one partition of the journal."""
    file = folder / f"__consumer_offsets-{partition}" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(batches))
    return file


def encode_journal_batch(
    *records: JournalEntry | Raw, offset: int = 0, at: int | Sequence[int] = START
) -> bytes:
    """A batch; its records' times are given, or one for all."""
    times = [at] * len(records) if isinstance(at, int) else at
    raw = (
        record if isinstance(record, tuple) else journal.encode_entry(record) for record in records
    )
    return record_batch.encode_batch(
        record_batch.BatchRecord(offset + n, time, key, value)
        for n, ((key, value), time) in enumerate(zip(raw, times, strict=True))
    )


def offset_commit_entry(
    group: str, offset: int = 1, *, topic: str = "t", partition: int = 0
) -> OffsetCommitEntry:
    return OffsetCommitEntry(
        group=group, topic=topic, partition=partition, offset=offset, commit_timestamp=START
    )


def group_member(
    name: str, *partitions: int, topic: str = "t", asked: bytes | None = None
) -> GroupMetadataMember:
    """A member that subscribes to one topic and got partitions of it."""
    return GroupMetadataMember(
        member_id=f"{name}-id",
        group_instance_id=None,
        client_id=name,
        client_host="/10.0.0.1",
        rebalance_timeout=60_000,
        session_timeout=10_000,
        subscription=consumer_protocol.encode_subscription(Subscription(topics=(topic,)))
        if asked is None
        else asked,
        assignment=consumer_protocol.encode_assignment(
            Assignment(Partitions.of({topic: partitions}))
        ),
    )


def group_metadata_entry(
    group: str, generation: int, *members: GroupMetadataMember
) -> GroupMetadataEntry:
    """A generation of a classic group."""
    return GroupMetadataEntry(
        group=group,
        protocol_type="consumer",
        generation=generation,
        protocol="range" if members else None,
        leader=members[0].member_id if members else None,
        state_timestamp=START,
        members=members,
    )
