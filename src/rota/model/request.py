"""What members and admins ask of a group's coordinator.

These values stand between both machines and the wire: the broker makes them of frames, a client
makes frames of them, and the simulator carries them as they are. What depends on a request's
version is a field with a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition

CONSUMER = "consumer"
"""The protocol type of consumers."""
NO_MEMBER = ""
"""The member id of one who has none yet."""


class Protocol(NamedTuple):
    """A strategy that a member supports, with what it tells the leader under it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup: take me in, or keep me in, for the next generation."""

    group: str
    member_id: str = NO_MEMBER
    static_id: str | None = None
    protocol_type: str = CONSUMER
    protocols: tuple[Protocol, ...]
    session_timeout: int
    rebalance_timeout: int
    client_id: str
    client_host: str
    reason: str | None = None
    knows_id_first: bool = True
    """v4 on: a new dynamic member is sent its id first, and joins with it."""
    knows_skip: bool = True
    """v9 on: a leader can be told to skip the assignment (KIP-814)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup: give me my assignment; from the leader, with everybody's."""

    group: str
    generation: int
    member_id: str
    static_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Heartbeat: I am alive."""

    group: str
    generation: int
    member_id: str
    static_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaver:
    """One member to be removed; an admin may know a static one by its static id alone."""

    member_id: str = NO_MEMBER
    static_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """LeaveGroup."""

    group: str
    members: tuple[Leaver, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """OffsetCommit. Without generation and member: from an admin, or one that only assigns."""

    group: str
    generation: int = -1
    member_id: str = NO_MEMBER
    static_id: str | None = None
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    retention: int | None = None
    """v2-4: how long the client wants its offsets kept, in milliseconds."""
    knows_missing_group: bool = True
    """v9 on: an unknown group is 69; before, 22."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsets:
    """OffsetFetch of some partitions, or of all that the group has."""

    group: str
    partitions: tuple[TopicPartition, ...] | None = None
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    stable: bool = False
    """v7 on: offsets that a transaction is about to commit are refused with 88 until it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets:
    """OffsetDelete."""

    group: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroups:
    """DeleteGroups."""

    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroups:
    """DescribeGroups."""

    groups: tuple[str, ...]
    knows_missing_group: bool = True
    """v6 on: an unknown group is 69; before, a Dead one without error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    """ListGroups, of some states or of all."""

    states: tuple[str, ...] = ()


Request: TypeAlias = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | CommitOffsets
    | FetchOffsets
    | DeleteOffsets
    | DeleteGroups
    | DescribeGroups
    | ListGroups
)
