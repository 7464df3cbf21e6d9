"""Notes: what happened to a group, and why, as values.

The coordinator adds a note for each change. :mod:`.kafka_log` formats notes as Kafka's log lines;
the simulator and the CLI match on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from rota.engine.coordinator.state import GroupState
from rota.errors import Code


@dataclass(frozen=True, slots=True)
class MemberIdAssigned:
    """A new dynamic member got an id, and must join again with it (KIP-394)."""

    member_id: str


@dataclass(frozen=True, slots=True)
class MemberAdded:
    member_id: str
    group_instance_id: str | None
    had_id: bool  # the member joined with the id of an earlier :class:`MemberIdAssigned`
    client_reason: str | None


@dataclass(frozen=True, slots=True)
class MemberRejoined:
    """A member joined again and so started a rebalance."""

    member_id: str
    is_leader: bool
    metadata_changed: bool  # the member sent other topics or strategies than before
    client_reason: str | None


@dataclass(frozen=True, slots=True)
class StaticMemberReplaced:
    """A static member came back under a new member id."""

    group_instance_id: str
    old_member_id: str
    member_id: str
    keeps_assignment: bool  # the stable group stays so: the new process gets the old partitions
    client_reason: str | None


@dataclass(frozen=True, slots=True)
class MemberLeft:
    member_id: str
    client_reason: str | None


@dataclass(frozen=True, slots=True)
class MembersLeft:
    """One LeaveGroup removed these members: member ids, or static ids where no id was sent."""

    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """A member was removed: it sent no heartbeat for its session timeout, in milliseconds."""

    member_id: str
    session_timeout: int


@dataclass(frozen=True, slots=True)
class JoinTimedOut:
    """Dynamic members were removed: they did not join before the rebalance timeout."""

    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SyncTimedOut:
    """Members were removed: they did not send SyncGroup before the rebalance timeout."""

    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AssignmentNotStored:
    """The journal refused the assignment of this leader."""

    leader: str


@dataclass(frozen=True, slots=True)
class LoadedAboveMaxSize:
    """The journal holds more members than ``group.max.size`` allows."""

    max_size: int


RebalanceReason: TypeAlias = (
    MemberAdded
    | MemberRejoined
    | StaticMemberReplaced
    | MembersLeft
    | SessionExpired
    | SyncTimedOut
    | AssignmentNotStored
    | LoadedAboveMaxSize
)


@dataclass(frozen=True, slots=True)
class RebalanceStarted:
    reason: RebalanceReason
    previous_state: GroupState


@dataclass(frozen=True, slots=True)
class GenerationStarted:
    member_count: int
    protocol: str


@dataclass(frozen=True, slots=True)
class AssignmentReceived:
    leader: str
    member_count: int
    static_member_count: int
    unassigned: tuple[str, ...]  # members without an assignment from the leader


@dataclass(frozen=True, slots=True)
class GroupStabilized:
    """The assignment is in the journal, and was sent to the members."""

    member_count: int


@dataclass(frozen=True, slots=True)
class GroupEmptied:
    """The last member left or was removed."""


@dataclass(frozen=True, slots=True)
class GroupFull:
    """A JoinGroup was refused: the group has ``group.max.size`` members."""

    max_size: int


@dataclass(frozen=True, slots=True)
class ProtocolMismatch:
    """A JoinGroup was refused: the member has no protocol in common with the group."""

    member: str  # the member id, or the client id of a member without one
    protocol_type: str
    protocols: tuple[str, ...]
    group_protocol_type: str | None
    group_protocols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupNotStored:
    """The journal refused the group's entry."""

    code: Code


@dataclass(frozen=True, slots=True)
class GroupLoaded:
    """The group was restored from the journal."""

    member_count: int


GroupChange: TypeAlias = (
    MemberIdAssigned
    | MemberAdded
    | StaticMemberReplaced
    | MemberLeft
    | SessionExpired
    | JoinTimedOut
    | SyncTimedOut
    | RebalanceStarted
    | GenerationStarted
    | AssignmentReceived
    | GroupStabilized
    | GroupEmptied
    | GroupFull
    | ProtocolMismatch
    | GroupNotStored
    | GroupLoaded
)


@dataclass(frozen=True, slots=True)
class GroupNote:
    """A change of a group, with the generation and the state in which it happened."""

    group: str
    generation: int
    state: GroupState
    change: GroupChange


def describe_reason(reason: RebalanceReason) -> str:  # noqa: PLR0911 (a case for each)
    """Returns the reason in a few words, with the client's own reason if it says more."""
    match reason:
        case MemberAdded():
            # the reason of a member that had an id only says that it got this id
            why = None if reason.had_id else reason.client_reason
            text = f"member {reason.member_id} joins"
        case MemberRejoined(member, _, metadata_changed, why):
            changed = "changed its subscription or strategies"
            text = f"member {member} {changed if metadata_changed else 'leads and joins again'}"
        case StaticMemberReplaced(static, _, member, _, why):
            text = f"static member {static} is back as {member}"
        case MembersLeft((member,)):
            return f"member {member} leaves"
        case MembersLeft(members):
            return f"members leave: {', '.join(members)}"
        case SessionExpired():
            return f"the session of {reason.member_id} expired"
        case SyncTimedOut():
            return f"did not sync in time: {', '.join(reason.member_ids)}"
        case AssignmentNotStored():
            return f"the assignment of leader {reason.leader} was not stored"
        case LoadedAboveMaxSize():
            return f"loaded with more than {reason.max_size} members"
        case _:
            assert_never(reason)
    return f"{text}: {why}" if why else text
