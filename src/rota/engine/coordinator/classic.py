"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of a classic group, in the order of a rebalance.

A member joins, or a static member (KIP-345) replaces its former process; the join phase ends and a
generation begins; the leader's assignment is stored and sent to the members; heartbeats keep
sessions alive until members leave or time out. :mod:`.state` lists what each request does in each
state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rota.engine.coordinator import notes
from rota.engine.coordinator.events import EventContext, GroupTimerKind, translate_append_error
from rota.engine.coordinator.state import ClassicGroup, ClassicGroupMember, GroupState
from rota.engine.model.config import GroupConfig
from rota.engine.model.request import (
    NO_MEMBER_ID,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from rota.engine.model.response import (
    HeartbeatResult,
    JoinedMember,
    JoinGroupResult,
    LeaveGroupResult,
    LeavingMemberResult,
    SyncGroupResult,
    make_error_response,
)
from rota.errors import Code


def handle_join(
    context: EventContext,
    group: ClassicGroup,
    token: int,
    request: JoinGroup,
    new_id: Callable[[], str],
) -> None:
    if not _has_room(context.config, group, request.member_id):
        _refuse_full_group(context, group, token, request)
    elif not group.accepts(request.protocol_type, request.protocols):
        mismatch = notes.ProtocolMismatch(
            member=request.member_id or request.client_id,
            protocol_type=request.protocol_type,
            protocols=tuple(name for name, _ in request.protocols),
            group_protocol_type=group.protocol_type,
            group_protocols=tuple(group.common_strategies),
        )
        context.add_note(group, mismatch)
        context.respond(token, make_error_response(request, Code.INCONSISTENT_GROUP_PROTOCOL))
    elif request.member_id == NO_MEMBER_ID:
        _join_without_id(context, group, token, request, new_id)
    elif request.member_id in group.pending_join_members:
        if request.group_instance_id is None:
            _add_member(context, group, token, request, request.member_id)
        else:  # an id that was assigned to a dynamic member: no correct client does this
            context.respond(token, JoinGroupResult(code=Code.UNKNOWN))
    else:
        code = group.check_member(request.member_id, request.group_instance_id)
        if code:
            context.respond(token, make_error_response(request, code))
        else:
            _rejoin_member(context, group, token, request, group.members[request.member_id])


def _has_room(config: GroupConfig, group: ClassicGroup, member_id: str) -> bool:
    member = group.members.get(member_id)
    match group.state:
        case GroupState.PREPARING:
            # if group.max.size was lowered, the members that join last are refused
            awaited = member is not None and member.join_token is not None
            return awaited or group.waiting_join_count < config.max_size
        case GroupState.COMPLETING | GroupState.STABLE:
            return member is not None or len(group.members) < config.max_size
        case _:
            return True


def _refuse_full_group(
    context: EventContext, group: ClassicGroup, token: int, request: JoinGroup
) -> None:
    member = group.members.get(request.member_id)
    if member is not None:
        context.remove_member(group, member)
    elif group.remove_pending_join_member(request.member_id):
        context.stop_timer(GroupTimerKind.SESSION, group, request.member_id)
    context.add_note(group, notes.GroupFull(context.config.max_size))
    context.respond(token, JoinGroupResult(code=Code.GROUP_MAX_SIZE_REACHED))
    complete_join_phase_if_all_joined(context, group)


def _join_without_id(
    context: EventContext,
    group: ClassicGroup,
    token: int,
    request: JoinGroup,
    new_id: Callable[[], str],
) -> None:
    static = request.group_instance_id
    member_id = f"{request.client_id if static is None else static}-{new_id()}"
    if static in group.group_instance_ids:
        replace_static_member(context, group, token, request, member_id)
    elif static is None and request.supports_member_id_required:
        # an id first (KIP-394): a client that gives up and tries again leaves no dead members
        group.pending_join_members[member_id] = None
        context.start_timer(GroupTimerKind.SESSION, group, request.session_timeout, member_id)
        context.add_note(group, notes.MemberIdAssigned(member_id))
        context.respond(token, JoinGroupResult(code=Code.MEMBER_ID_REQUIRED, member_id=member_id))
    else:
        _add_member(context, group, token, request, member_id)


def _add_member(
    context: EventContext, group: ClassicGroup, token: int, request: JoinGroup, member_id: str
) -> None:
    if group.is_initial_rebalance:
        group.new_member_added = True
    member = ClassicGroupMember.from_request(member_id, request)
    group.add_member(member, request.protocol_type, token)
    # it sends no heartbeats before its join gets a response, but must not stay here forever
    context.start_timer(GroupTimerKind.SESSION, group, context.config.new_member_timeout, member_id)
    had_id = request.member_id != NO_MEMBER_ID
    added = notes.MemberAdded(member_id, request.group_instance_id, had_id, request.reason)
    context.add_note(group, added)
    start_or_complete_rebalance(context, group, added)


def _rejoin_member(
    context: EventContext,
    group: ClassicGroup,
    token: int,
    request: JoinGroup,
    member: ClassicGroupMember,
) -> None:
    metadata_changed = member.protocols != request.protocols
    is_leader = group.leader == member.member_id
    # a leader joins again when something changed outside the group, such as new partitions
    rebalances = metadata_changed or (is_leader and group.state is GroupState.STABLE)
    if group.state is not GroupState.PREPARING and not rebalances:
        # the member did not receive the response to its last JoinGroup
        context.respond(token, make_join_result(group, member))
        return
    end_earlier_join(context, group, member)
    group.update_member(member, request)
    group.set_waiting_join(member, token)
    rejoined = notes.MemberRejoined(member.member_id, is_leader, metadata_changed, request.reason)
    start_or_complete_rebalance(context, group, rejoined)


def end_earlier_join(
    context: EventContext, group: ClassicGroup, member: ClassicGroupMember
) -> None:
    """Ends the member's earlier JoinGroup: a member waits for one response only."""
    code = Code.REBALANCE_IN_PROGRESS
    context.respond_to_join(group, member, JoinGroupResult(code=code, member_id=member.member_id))


def replace_static_member(
    context: EventContext, group: ClassicGroup, token: int, request: JoinGroup, new_id: str
) -> None:
    """Handles JoinGroup under a static id that a member has, without a member id: in a stable group
    with the same strategy the new process gets the old assignment, else a rebalance starts.
    """
    static = request.group_instance_id or ""
    old = group.members[group.group_instance_ids[static]]
    # as in Kafka, the journal keeps the client id and host of the first process
    new = dataclasses.replace(old, member_id=new_id, is_new=False, join_token=None, sync_token=None)
    new.update(request)
    members = [new if member is old else member for member in group.members.values()]
    stable = group.state is GroupState.STABLE
    keeps = stable and group.select_strategy(members) == group.protocol
    replaced = notes.StaticMemberReplaced(static, old.member_id, new_id, keeps, request.reason)
    if keeps:

        def stored(append_context: EventContext, code: Code) -> None:
            if code:
                append_context.add_note(group, notes.GroupNotStored(code))
                code = translate_append_error(code)
                append_context.respond(
                    token, JoinGroupResult(code=code, generation=group.generation)
                )
            else:
                _swap_static_member(append_context, group, old, new)
                append_context.add_note(group, replaced)
                append_context.respond(token, _make_replacement_result(group, old, new, request))

        entry = dataclasses.replace(
            group.to_entry(),
            leader=new_id if group.leader == old.member_id else group.leader,
            members=tuple(m.to_entry_member(group.protocol, m.assignment) for m in members),
        )
        context.append_entries((entry,), stored)
        return
    _swap_static_member(context, group, old, new)
    context.add_note(group, replaced)
    group.set_waiting_join(new, token)
    # while completing, the leader may already assign to the old id, so the round starts again
    start_or_complete_rebalance(context, group, replaced)


def _make_replacement_result(
    group: ClassicGroup, old: ClassicGroupMember, new: ClassicGroupMember, request: JoinGroup
) -> JoinGroupResult:
    response = make_join_result(group, new)
    if group.leader != new.member_id:
        return response
    if request.supports_skip_assignment:  # it learns that it leads, but need not assign (KIP-814)
        return dataclasses.replace(response, skip_assignment=True)
    # an older client learns that the old id leads, so it computes no assignment that is not used
    return dataclasses.replace(response, leader=old.member_id, members=())


def _swap_static_member(
    context: EventContext, group: ClassicGroup, old: ClassicGroupMember, new: ClassicGroupMember
) -> None:
    fenced = Code.FENCED_INSTANCE_ID
    context.respond_to_join(group, old, JoinGroupResult(code=fenced, member_id=old.member_id))
    context.respond_to_sync(old, SyncGroupResult(code=fenced))
    context.stop_timer(GroupTimerKind.SESSION, group, old.member_id)
    group.replace_static_member(old, new)
    context.restart_session_timer(group, new)


MIN_STATIC_MEMBER_WAIT = 1_000  # shortest wait for static members with rebalance timeout 0


def start_or_complete_rebalance(
    context: EventContext, group: ClassicGroup, reason: notes.RebalanceReason
) -> None:
    """Starts a rebalance, or completes the join phase of the current one if all have joined."""
    if group.state is GroupState.PREPARING:
        complete_join_phase_if_all_joined(context, group)
    else:
        start_rebalance(context, group, reason)


def start_rebalance(
    context: EventContext, group: ClassicGroup, reason: notes.RebalanceReason
) -> None:
    if group.state is GroupState.COMPLETING:
        discard_assignment(context, group, Code.REBALANCE_IN_PROGRESS)
    group.pending_sync_members.clear()
    context.stop_timer(GroupTimerKind.SYNC, group)
    group.transition_to(GroupState.PREPARING, context.now)
    context.add_note(group, notes.RebalanceStarted(reason, group.previous_state))
    if group.is_initial_rebalance:
        # more members are likely to join soon: the delay saves a rebalance for each of them
        delay = context.config.initial_rebalance_delay
        group.new_member_added = False
        group.initial_delay_remaining = max(group.rebalance_timeout - delay, 0)
        context.start_timer(GroupTimerKind.JOIN, group, delay)
    elif group.has_all_members_joined:
        complete_join_phase(context, group)
    else:
        context.start_timer(GroupTimerKind.JOIN, group, group.rebalance_timeout)


def complete_join_phase_if_all_joined(context: EventContext, group: ClassicGroup) -> None:
    """Ends the join phase early if all have joined. The initial delay is never cut short."""
    may_end = group.state is GroupState.PREPARING and not group.is_initial_rebalance
    if may_end and group.has_all_members_joined:
        complete_join_phase(context, group)


def handle_join_timeout(context: EventContext, group: ClassicGroup) -> None:
    """Ends the join phase, or extends the initial delay if new members came meanwhile."""
    if group.state is not GroupState.PREPARING:
        return
    if group.is_initial_rebalance and group.new_member_added and group.initial_delay_remaining > 0:
        delay = min(context.config.initial_rebalance_delay, group.initial_delay_remaining)
        group.new_member_added = False
        group.initial_delay_remaining -= delay
        context.start_timer(GroupTimerKind.JOIN, group, delay)
    else:
        complete_join_phase(context, group)


def complete_join_phase(context: EventContext, group: ClassicGroup) -> None:
    """Removes the dynamic members that have not joined, and begins a generation."""
    context.stop_timer(GroupTimerKind.JOIN, group)
    members = group.members.values()
    absent = [m for m in members if m.join_token is None and m.group_instance_id is None]
    for member in absent:
        context.remove_member(group, member)
    if absent:
        context.add_note(group, notes.JoinTimedOut(tuple(member.member_id for member in absent)))
    if group.members and not group.elect_joined_leader():
        # only static members are left, and they may come back within their sessions
        delay = max(group.rebalance_timeout, MIN_STATIC_MEMBER_WAIT)
        context.start_timer(GroupTimerKind.JOIN, group, delay)
        return
    group.start_next_generation(context.now)
    if group.members:
        context.add_note(group, notes.GenerationStarted(len(group.members), group.protocol or ""))
        for member in group.members.values():
            context.respond_to_join(group, member, make_join_result(group, member))
            context.restart_session_timer(group, member)
            member.is_new = False
        context.start_timer(GroupTimerKind.SYNC, group, group.rebalance_timeout)
    else:

        def stored(append_context: EventContext, code: Code) -> None:
            # a restart would restore the last generation, until the sessions of its members end
            if code:
                append_context.add_note(group, notes.GroupNotStored(code))

        context.add_note(group, notes.GroupEmptied())
        context.append_entries((group.to_entry(),), stored)


def make_join_result(group: ClassicGroup, member: ClassicGroupMember) -> JoinGroupResult:
    listed = group.members.values() if group.leader == member.member_id else ()
    return JoinGroupResult(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        members=tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata_for(group.protocol))
            for m in listed
        ),
    )


def handle_sync_timeout(context: EventContext, group: ClassicGroup) -> None:
    """Removes the members that have not sent SyncGroup in time, and starts a rebalance."""
    syncs = group.state in (GroupState.COMPLETING, GroupState.STABLE)
    if not (syncs and group.pending_sync_members):
        return
    absent = [group.members[member_id] for member_id in group.pending_sync_members]
    for member in absent:
        context.remove_member(group, member)
    timed_out = notes.SyncTimedOut(tuple(member.member_id for member in absent))
    context.add_note(group, timed_out)
    start_rebalance(context, group, timed_out)


def discard_assignment(context: EventContext, group: ClassicGroup, code: Code) -> None:
    """Discards an assignment that was not stored. Waiting SyncGroups get the code."""
    for member in group.members.values():
        member.assignment = b""
        if context.respond_to_sync(member, SyncGroupResult(code=code)):
            context.restart_session_timer(group, member)


def handle_sync(
    context: EventContext, group: ClassicGroup | None, token: int, request: SyncGroup
) -> None:
    """Responds with the assignment, or lets the request wait for the leader's SyncGroup."""
    if group is None or group.state is GroupState.EMPTY:
        context.respond(token, SyncGroupResult(code=Code.UNKNOWN_MEMBER_ID))
        return
    code = _check_sync_request(group, request)
    if code:
        context.respond(token, SyncGroupResult(code=code))
        return
    member = group.members[request.member_id]
    group.pending_sync_members.pop(member.member_id, None)
    if not group.pending_sync_members:
        context.stop_timer(GroupTimerKind.SYNC, group)
    if group.state is GroupState.STABLE:
        context.respond(token, _make_sync_result(group, member))
        return
    # a member waits for one response only
    context.respond_to_sync(member, SyncGroupResult(code=Code.REBALANCE_IN_PROGRESS))
    member.sync_token = token
    if group.leader == member.member_id:
        _store_assignment(context, group, request)


def _check_sync_request(group: ClassicGroup, request: SyncGroup) -> Code:
    code = group.check_member(request.member_id, request.group_instance_id)
    if code:
        return code
    if request.generation != group.generation:
        return Code.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    # before its first generation a group has no strategy
    if group.protocol is not None and request.protocol not in (None, group.protocol):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING:
        return Code.REBALANCE_IN_PROGRESS
    return Code.NONE


def _make_sync_result(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResult:
    return SyncGroupResult(
        protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment
    )


def _store_assignment(context: EventContext, group: ClassicGroup, request: SyncGroup) -> None:
    assignments = dict(request.assignments)
    unassigned = tuple(member_id for member_id in group.members if member_id not in assignments)
    counts = len(group.members), len(group.group_instance_ids)
    context.add_note(group, notes.AssignmentReceived(request.member_id, *counts, unassigned))
    context.append_entries(
        (group.to_entry(assignments),),
        lambda append_context, code: _complete_sync(
            append_context, group, request.member_id, assignments, code
        ),
    )


def _complete_sync(
    context: EventContext,
    group: ClassicGroup,
    leader: str,
    assignments: dict[str, bytes],
    code: Code,
) -> None:
    if code:
        context.add_note(group, notes.GroupNotStored(code))
        discard_assignment(context, group, translate_append_error(code))
        start_rebalance(context, group, notes.AssignmentNotStored(leader))
        return
    group.transition_to(GroupState.STABLE, context.now)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if context.respond_to_sync(member, _make_sync_result(group, member)):
            context.restart_session_timer(group, member)
    context.add_note(group, notes.GroupStabilized(len(group.members)))


_HEARTBEAT_SUCCEEDED = HeartbeatResult()
_HEARTBEAT_REBALANCING = HeartbeatResult(code=Code.REBALANCE_IN_PROGRESS)


def handle_heartbeat(
    context: EventContext, group: ClassicGroup | None, token: int, request: Heartbeat
) -> None:
    """In CompletingRebalance it succeeds, so that the member sends SyncGroup before it rejoins."""
    if group is None:
        context.respond(token, HeartbeatResult(code=Code.UNKNOWN_MEMBER_ID))
        return
    code = group.check_member(request.member_id, request.group_instance_id)
    if not code and request.generation != group.generation:
        code = Code.ILLEGAL_GENERATION
    if code:
        context.respond(token, HeartbeatResult(code=code))
        return
    context.restart_session_timer(group, group.members[request.member_id])
    rebalancing = group.state is GroupState.PREPARING
    context.respond(token, _HEARTBEAT_REBALANCING if rebalancing else _HEARTBEAT_SUCCEEDED)


def handle_session_timeout(context: EventContext, group: ClassicGroup, member_id: str) -> None:
    """Removes a member whose session expired, or a member id that no member joined with."""
    if not group.remove_pending_join_member(member_id):
        member = group.members.get(member_id)
        if member is None or member.is_waiting_for_response:
            return
        context.remove_member(group, member)
        expired = notes.SessionExpired(member_id, member.session_timeout)
        context.add_note(group, expired)
        if group.state is not GroupState.PREPARING:
            start_rebalance(context, group, expired)
            return
    if group.state is GroupState.PREPARING and group.has_all_members_joined:
        complete_join_phase(context, group)


def handle_leave(
    context: EventContext, group: ClassicGroup | None, token: int, request: LeaveGroup
) -> None:
    """Handles LeaveGroup, from the members themselves or from an admin."""
    results = []
    for leaver in request.members:
        code = Code.UNKNOWN_MEMBER_ID
        if group is not None:
            code = _remove_leaving_member(context, group, leaver)
        results.append(_make_leaving_member_result(leaver, code))
    response = LeaveGroupResult(members=tuple(results))
    gone = tuple(m.member_id or m.group_instance_id or "" for m in results if not m.code)
    if gone and group is not None:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING):
            start_rebalance(context, group, notes.MembersLeft(gone))
        else:
            complete_join_phase_if_all_joined(context, group)
    context.respond_after_append(
        token,
        lambda code: LeaveGroupResult(code=translate_append_error(code)) if code else response,
    )


def _make_leaving_member_result(leaver: LeavingMember, code: Code) -> LeavingMemberResult:
    return LeavingMemberResult(
        member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, code=code
    )


def _remove_leaving_member(
    context: EventContext, group: ClassicGroup, leaver: LeavingMember
) -> Code:
    member_id = leaver.member_id
    if member_id == NO_MEMBER_ID and leaver.group_instance_id is not None:
        member_id = group.group_instance_ids.get(leaver.group_instance_id, NO_MEMBER_ID)
    elif group.remove_pending_join_member(member_id):
        context.stop_timer(GroupTimerKind.SESSION, group, member_id)
        return Code.NONE
    code = group.check_member(member_id, leaver.group_instance_id)
    if not code:
        context.remove_member(group, group.members[member_id])
        context.add_note(group, notes.MemberLeft(member_id, leaver.reason))
    return code
