"""The group coordinator's responses, as values: one for each of :mod:`rota.engine.model.request`.

The names end in ``Result``; the messages of the protocol, as they are sent, end in ``Response``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

from rota.engine.model.request import (
    DeleteGroups,
    DescribeGroups,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
)
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code


@dataclass(frozen=True, slots=True)
class JoinedMember:
    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResult:
    """The new generation. The leader also gets the list of all members."""

    code: Code = Code.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResult:
    code: Code = Code.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    code: Code = Code.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMemberResult:
    member_id: str
    group_instance_id: str | None
    code: Code = Code.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResult:
    code: Code = Code.NONE
    members: tuple[LeavingMemberResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResult:
    """A code for each partition; where the whole commit is refused, the same for all."""

    codes: Mapping[TopicPartition, Code]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResult:
    code: Code = Code.NONE
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    #: The partitions that are refused, though the others are not.
    codes: Mapping[TopicPartition, Code] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResult:
    code: Code = Code.NONE
    codes: Mapping[TopicPartition, Code] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResult:
    codes: Mapping[str, Code]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member in DescribeGroups. It has metadata only while the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    group: str
    code: Code = Code.NONE
    state: str = "Dead"
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()
    # Not part of Kafka's response; only a broker's own coordinator knows them.
    generation: int = field(default=0, compare=False)
    leader: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsResult:
    groups: tuple[DescribedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    group: str
    protocol_type: str
    state: str  # empty if the broker is too old
    group_type: str = "classic"  # or ``consumer``, ``share``, ``streams``; empty: an old broker


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsResult:
    code: Code = Code.NONE
    groups: tuple[ListedGroup, ...] = ()


GroupResponse: TypeAlias = (
    JoinGroupResult
    | SyncGroupResult
    | HeartbeatResult
    | LeaveGroupResult
    | OffsetCommitResult
    | OffsetFetchResult
    | OffsetDeleteResult
    | DeleteGroupsResult
    | DescribeGroupsResult
    | ListGroupsResult
)


def make_error_response(request: GroupRequest, code: Code) -> GroupResponse:  # noqa: C901, PLR0911 (one for each request)
    """Returns the response to a request that consists of this error code only."""
    match request:
        case JoinGroup():
            return JoinGroupResult(code=code, member_id=request.member_id)
        case SyncGroup():
            return SyncGroupResult(code=code)
        case Heartbeat():
            return HeartbeatResult(code=code)
        case LeaveGroup():
            return LeaveGroupResult(code=code)
        case OffsetCommit():
            return OffsetCommitResult(codes=dict.fromkeys(request.offsets, code))
        case OffsetFetch():
            return OffsetFetchResult(code=code)
        case OffsetDelete():
            return OffsetDeleteResult(code=code)
        case DeleteGroups():
            return DeleteGroupsResult(codes=dict.fromkeys(request.groups, code))
        case DescribeGroups():
            groups = (DescribedGroup(group=name, code=code) for name in request.groups)
            return DescribeGroupsResult(groups=tuple(groups))
        case ListGroups():
            return ListGroupsResult(code=code)
        case _:
            assert_never(request)
