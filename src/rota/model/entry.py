"""Entries of the journal ``__consumer_offsets``, as values.

An entry is one record: what a group or an offset has become, or, as a tombstone, that it is gone.
:mod:`rota.formats.journal` turns entries into Kafka's bytes and back.

Here are classic groups and the offsets of all groups; consumer groups are in
:mod:`rota.model.modern`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rota.model.offset import NO_EPOCH

if TYPE_CHECKING:  # a broker does without them
    from rota.model.modern import ModernEntry

NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted:
    """A group's offset in one partition."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP
    """Only where the client asked for a retention of its own (OffsetCommit v2-4)."""
    topic_id: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForgotten:
    """The tombstone of an offset: expired, deleted, or its topic is gone."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedMember:
    """A member of a saved generation."""

    member_id: str
    static_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSaved:
    """A generation of a classic group: its members, what they asked for and what they got."""

    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int = NO_TIMESTAMP
    """When the group came into the state it was saved in."""
    members: tuple[SavedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForgotten:
    """The tombstone of a classic group."""

    group: str


ClassicEntry: TypeAlias = OffsetCommitted | OffsetForgotten | GroupSaved | GroupForgotten
"""What the coordinator writes and replays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A record of a kind that Rota names but does not read: share and streams groups, newer kinds.

    It keeps its bytes. Without a value it is a tombstone.
    """

    type: int
    name: str
    """Kafka's name of the type, "unknown" for one that has none yet."""
    key: bytes
    value: bytes | None


Entry: TypeAlias = "ClassicEntry | ModernEntry | Foreign"
"""Any record of the journal."""
