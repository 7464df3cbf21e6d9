"""Kafka's log lines about a group, made from the coordinator's notes.

The wording is that of Kafka 4.3, so that a program that reads a broker's log can read this too.
"""

from __future__ import annotations

from typing import assert_never

from rota.engine.coordinator import notes
from rota.engine.coordinator.state import GroupState


def format_note(note: notes.GroupNote) -> tuple[str, ...]:  # noqa: C901, PLR0911, PLR0912 (a case for each)
    name, state = note.group, note.state.value
    match note.change:
        case notes.MemberIdAssigned(member):
            return (
                f"Dynamic member with unknown member id joins group {name} in {state} state. "
                f"Created a new member id {member} and requesting the member to rejoin with this "
                "id.",
            )
        case notes.MemberAdded(member, None, had_id):
            if had_id:
                return (
                    f"Pending dynamic member with id {member} joins group {name} in {state} state. "
                    "Adding to the group now.",
                )
            return (
                f"Dynamic member with unknown member id joins group {name} in state {state}. "
                f"Created a new member id {member} and added the member to the group.",
            )
        case notes.MemberAdded(member, static):
            return (
                f"Static member with groupInstanceId={static} and unknown member id joins group "
                f"{name} in {state} state. Created a new member id {member} for this member and "
                "added to the group.",
            )
        case notes.StaticMemberReplaced(static, old, _, keeps_assignment):
            replaced = (
                f"Static member with groupInstanceId={static} and unknown member id joins group "
                f"{name} in {state} state. Replacing previously mapped member {old} with this "
                "groupInstanceId."
            )
            if not keeps_assignment:
                return (replaced,)
            return (
                replaced,
                "Static member which joins during Stable stage and doesn't affect the selected "
                "protocol will not trigger a rebalance.",
            )
        case notes.RebalanceStarted():
            return (
                f"Preparing to rebalance group {name} in state {state} with old generation "
                f"{note.generation} (reason: {_format_reason(note.change)}).",
            )
        case notes.GenerationStarted(count):
            return (f"Stabilized group {name} generation {note.generation} with {count} members.",)
        case notes.AssignmentReceived(leader, count, static_count):
            return (
                f"Assignment received from leader {leader} for group {name} for generation "
                f"{note.generation}. The group has {count} members, {static_count} of which are "
                "static.",
            )
        case notes.GroupEmptied():
            return (f"Group {name} with generation {note.generation} is now empty.",)
        case notes.MemberLeft(member, reason):
            return (
                f"[Group {name}] Member {member} has left group through explicit `LeaveGroup` "
                f"request; {_format_client_reason(reason)}",
            )
        case notes.SessionExpired(member):
            return (f"Member {member} in group {name} has failed, removing it from the group.",)
        case notes.JoinTimedOut(members):
            names = ", ".join(members)
            return (f"Group {name} removed dynamic members who haven't joined: [{names}]",)
        case notes.GroupLoaded(count):
            return (f"Loaded classic group {name} with {count} members.",)
        case (
            notes.GroupStabilized()
            | notes.GroupNotStored()
            | notes.SyncTimedOut()
            | notes.GroupFull()
            | notes.ProtocolMismatch()
        ):
            return ()
        case _:
            assert_never(note.change)


def _format_reason(started: notes.RebalanceStarted) -> str:
    state = started.previous_state
    stable = state is GroupState.STABLE
    match started.reason:
        case notes.MemberAdded(member, static, _, reason):
            instance = "null" if static is None else static
            text = f"Adding new member {member} with group instance id {instance}"
        case notes.MemberRejoined(member, is_leader, _, reason):
            text = f"Updating metadata for member {member} during {state.value}"
            if is_leader and stable:
                text = f"Leader {member} re-joining group during {state.value}"
        case notes.StaticMemberReplaced(static, _, member, _, reason):
            text = f"Updating metadata for static member {member} with instance id {static}"
            if stable:
                text = (
                    f"Group's selectedProtocol will change because static member {member} with "
                    f"instance id {static} joined with change of protocol"
                )
        case notes.SessionExpired(member):
            return f"removing member {member} on heartbeat expiration."
        case notes.MembersLeft(members):
            return f"explicit `LeaveGroup` request for ({', '.join(members)}) members."
        case notes.SyncTimedOut(members):
            return f"Removing [{', '.join(members)}] on pending sync request expiration"
        case notes.AssignmentNotStored() | notes.LoadedAboveMaxSize() as failure:
            return notes.describe_reason(failure)
        case _:
            assert_never(started.reason)
    return f"{text}; {_format_client_reason(reason)}"


def _format_client_reason(reason: str | None) -> str:
    return f"client reason: {reason or 'not provided'}"


def format_refusal(refusal: notes.GroupFull | notes.ProtocolMismatch) -> str:
    """Returns why a member was refused. Kafka's broker logs nothing about it."""
    if isinstance(refusal, notes.GroupFull):
        return f"full: group.max.size is {refusal.max_size}"
    return (
        f"{refusal.member} of type {refusal.protocol_type!r} supports "
        f"{', '.join(refusal.protocols) or 'none'}; the group, of type "
        f"{refusal.group_protocol_type!r}, has in common: "
        f"{', '.join(refusal.group_protocols) or 'none'}"
    )
