"""Entries of the journal ``__consumer_offsets`` as values: classic groups, and all groups' offsets.

An entry is one record: the new state of a group or an offset, or a tombstone that deletes it.
:mod:`rota.engine.formats.journal` has the encoder and the decoder. The entries of consumer groups
(KIP-848) are in :mod:`.consumer_group_entry`, those of share and streams groups in
:mod:`.share_streams_entry`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rota.engine.model.topic import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from rota.engine.model.consumer_group_entry import ConsumerGroupEntry
    from rota.engine.model.share_streams_entry import ShareRecord, StreamsRecord

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitEntry:
    """A committed offset of a group in one partition (Kafka's OffsetCommit record)."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP  # only if the client set a retention (OffsetCommit v2-4)
    topic_id: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitTombstone:
    """The tombstone of an offset that expired, was deleted, or whose topic was deleted."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataMember:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataEntry:
    """A generation of a classic group (Kafka's GroupMetadata record)."""

    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int = NO_TIMESTAMP  # when the group came into the state it was saved in
    members: tuple[GroupMetadataMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadataTombstone:
    group: str


#: What the coordinator writes and replays.
ClassicEntry: TypeAlias = (
    OffsetCommitEntry | OffsetCommitTombstone | GroupMetadataEntry | GroupMetadataTombstone
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnparsedEntry:
    """A record of a type that Rota does not know, as bytes."""

    type: int
    key: bytes
    value: bytes | None


JournalEntry: TypeAlias = (
    "ClassicEntry | ConsumerGroupEntry | ShareRecord | StreamsRecord | UnparsedEntry"
)
