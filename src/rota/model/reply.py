"""What a group's coordinator answers; each value belongs to one of :mod:`rota.model.request`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from rota.errors import Code
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """A member as the leader is told of it."""

    member_id: str
    static_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """The generation that came of it; for the leader, with all members."""

    code: Code = Code.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """The member's assignment."""

    code: Code = Code.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """0, or why the member must act."""

    code: Code = Code.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaverReply:
    """What became of one who was to leave."""

    member_id: str
    static_id: str | None
    code: Code = Code.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveReply:
    """What became of each who was to leave."""

    code: Code = Code.NONE
    members: tuple[LeaverReply, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReply:
    """A code for each partition; where the whole commit is refused, the same for all."""

    codes: Mapping[TopicPartition, Code]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOffsetsReply:
    """The offsets; None where nothing was committed."""

    code: Code = Code.NONE
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    codes: Mapping[TopicPartition, Code] = field(default_factory=dict)
    """The partitions that are refused, though the others are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsReply:
    """A code for the request, and one for each partition."""

    code: Code = Code.NONE
    codes: Mapping[TopicPartition, Code] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsReply:
    """A code for each group."""

    codes: Mapping[str, Code]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member as admins see it; metadata only while the group is stable."""

    member_id: str
    static_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group as admins see it."""

    group: str
    code: Code = Code.NONE
    state: str = "Dead"
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsReply:
    """The groups, in the order they were asked for."""

    groups: tuple[DescribedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    """A group in the list."""

    group: str
    protocol_type: str
    state: str
    """Empty where the broker is too old to tell."""
    kind: str = "classic"
    """Or ``consumer`` (KIP-848), ``share``, ``streams``; empty where the broker does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsReply:
    """The groups, by name."""

    code: Code = Code.NONE
    groups: tuple[ListedGroup, ...] = ()


Reply: TypeAlias = (
    JoinReply
    | SyncReply
    | HeartbeatReply
    | LeaveReply
    | CommitReply
    | FetchOffsetsReply
    | DeleteOffsetsReply
    | DeleteGroupsReply
    | DescribeGroupsReply
    | ListGroupsReply
)
