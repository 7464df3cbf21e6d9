"""The requests that members and admins send to a group coordinator, as values.

The broker makes these values from frames, a client makes frames from them, and the simulator passes
them on unchanged. Named fields stand for the request versions that change Kafka's behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rota.engine.model.topic import OffsetAndMetadata, TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"  # the protocol type of consumers
NO_MEMBER_ID = ""


def truncate_reason(reason: str) -> str:
    """Cuts the reason of a JoinGroup or LeaveGroup after 255 UTF-16 units, as Java does."""
    return reason.encode("utf-16-le", "surrogatepass")[: 2 * 255].decode("utf-16-le", "ignore")


class JoinGroupProtocol(NamedTuple):
    """A strategy, with the metadata that the leader gets if this strategy is selected."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroup:
    group: str
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    protocol_type: str = CONSUMER_PROTOCOL_TYPE
    protocols: tuple[JoinGroupProtocol, ...]
    session_timeout: int
    rebalance_timeout: int
    client_id: str
    client_host: str
    reason: str | None = None
    supports_member_id_required: bool = True  # v4 on: a new dynamic member gets its id first
    supports_skip_assignment: bool = True  # v9 on: a leader may skip the assignment (KIP-814)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """The leader sends the assignments of all members; each member gets its own."""

    group: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    group: str
    generation: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """A member to remove. An admin may name a static member by its static id alone."""

    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    group: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """Without a generation it comes from an admin, or from a consumer without a group."""

    group: str
    generation: int = -1
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    retention: int | None = None  # v2-4: in milliseconds, as the client wants it
    supports_group_id_not_found: bool = True  # v9 on: an unknown group is 69; before, 22


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetch:
    """``partitions`` is None for all partitions of the group."""

    group: str
    partitions: tuple[TopicPartition, ...] | None = None
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    #: v7 on: offsets that a transaction is about to commit are refused with 88 until it ends.
    require_stable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDelete:
    group: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroups:
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroups:
    groups: tuple[str, ...]
    supports_group_id_not_found: bool = True  # v6 on: 69; before: a Dead group, no error


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroups:
    states: tuple[str, ...] = ()


GroupRequest: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DeleteGroups
    | DescribeGroups
    | ListGroups
)
