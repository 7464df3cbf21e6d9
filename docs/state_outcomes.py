"""What each request, call, response and timer does in each state of a group and of a member.

Tests drive the coordinator and a member into every cell; ``generate_states.py`` draws the tables
into architecture.md. The legal transitions are in the modules of the states, which obey them.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from rota.engine.coordinator.state import GroupState
from rota.engine.member.state import MemberState
from rota.engine.model.request import (
    DescribeGroups,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    SyncGroup,
)
from rota.errors import Code, CommitFailed, Fenced, RebalanceInProgress, RotaError


class GroupTrigger(enum.Enum):
    """A request or timer, as a row of ``GROUP_OUTCOMES``."""

    JOIN_NEW = "JoinGroup without a member id"
    JOIN_ASSIGNED_ID = "JoinGroup with the id of a MEMBER_ID_REQUIRED"
    JOIN_STATIC = "JoinGroup of a new static member"
    JOIN_STATIC_BACK = "JoinGroup of a static member that comes back without its member id"
    JOIN_FOLLOWER = "JoinGroup of a follower, nothing changed"
    JOIN_LEADER = "JoinGroup of the leader, nothing changed"
    JOIN_CHANGED = "JoinGroup of a member with other topics or strategies"
    JOIN_MISMATCH = "JoinGroup without a strategy that all members support"
    JOIN_FULL = "JoinGroup of a new member, group.max.size members"
    SYNC_LEADER = "SyncGroup of the leader"
    SYNC_FOLLOWER = "SyncGroup of a follower"
    SYNC_OLD = "SyncGroup of another generation"
    HEARTBEAT = "Heartbeat"
    HEARTBEAT_OLD = "Heartbeat of another generation"
    HEARTBEAT_FENCED = "Heartbeat of a static member that was replaced"
    LEAVE = "LeaveGroup, other members remain"
    LEAVE_LAST = "LeaveGroup of the last member"
    COMMIT = "OffsetCommit of a member"
    COMMIT_SIMPLE = "OffsetCommit without a generation"
    OFFSET_FETCH = "OffsetFetch"
    OFFSET_DELETE = "OffsetDelete of a subscribed topic"
    DESCRIBE = "DescribeGroups"
    DELETE = "DeleteGroups"
    APPEND_FAILED = "the append of a request's entry fails with NOT_ENOUGH_REPLICAS"
    SESSION_TIMEOUT = "the session of a member expires"
    SESSION_TIMEOUT_ID = "the session of an id expires that no member joined with"
    INITIAL_DELAY = "the initial delay ends, and new members joined during it"
    JOIN_TIMEOUT = "the rebalance timeout ends the join phase"
    JOIN_TIMEOUT_NOBODY = "the rebalance timeout is over, no member joined, and all are dynamic"
    JOIN_TIMEOUT_STATIC = "the rebalance timeout is over, no member joined, and all are static"
    SYNC_TIMEOUT = "the rebalance timeout ends the sync phase"
    RETENTION = "the offsets expire"
    UNLOADED = "the journal moves to another coordinator"


class GroupOutcome(NamedTuple):
    #: The error code of the response; None if no response is sent now.
    code: Code | None
    #: None if the state stays.
    next_state: GroupState | None = None
    effect: str = ""


def _make_group_outcomes() -> dict[tuple[GroupState, GroupTrigger], GroupOutcome]:
    on, cell = GroupTrigger, GroupOutcome
    to_empty, to_preparing, to_completing, to_stable, to_dead = GroupState
    ok = cell(Code.NONE)
    ignored = cell(None)
    unknown = cell(Code.UNKNOWN_MEMBER_ID)
    no_group = cell(Code.GROUP_ID_NOT_FOUND)
    new_id = cell(Code.MEMBER_ID_REQUIRED, effect="gets a member id")
    first_id = cell(Code.MEMBER_ID_REQUIRED, to_empty, "creates the group and gets a member id")
    waits = cell(None, effect="waits for the end of the join phase")
    starts = cell(None, to_preparing, "starts a rebalance and waits")
    again = cell(Code.NONE, effect="gets the current generation again")
    takes_over = cell(Code.NONE, effect="gets the old assignment, if the strategy stays")
    mismatch = cell(Code.INCONSISTENT_GROUP_PROTOCOL)
    full = cell(Code.GROUP_MAX_SIZE_REACHED)
    rebalancing = cell(Code.REBALANCE_IN_PROGRESS)
    stores = cell(Code.NONE, to_stable, "stores the assignment; waiting SyncGroups get theirs")
    waits_sync = cell(None, effect="waits for the leader's assignment")
    assigned = cell(Code.NONE, effect="gets its assignment")
    illegal = cell(Code.ILLEGAL_GENERATION)
    fenced = cell(Code.FENCED_INSTANCE_ID)
    leaves = cell(Code.NONE, effect="ends the join phase if all others have joined")
    left = cell(Code.NONE, to_preparing, "starts a rebalance")
    emptied = cell(Code.NONE, to_empty)
    emptied_later = cell(Code.NONE, to_empty, "through PreparingRebalance")
    created = cell(Code.NONE, to_empty, "creates the group")
    subscribed = cell(Code.GROUP_SUBSCRIBED_TO_TOPIC)
    deleted = cell(Code.NONE, to_dead, "deletes the offsets too")
    not_empty = cell(Code.NON_EMPTY_GROUP)
    failed = cell(Code.COORDINATOR_NOT_AVAILABLE)
    failed_sync = cell(Code.COORDINATOR_NOT_AVAILABLE, to_preparing, "for all waiting SyncGroups")
    removed = cell(None, to_preparing, "removes the member and starts a rebalance")
    removed_early = cell(
        None, effect="removes the member, unless it joined before and its JoinGroup waits"
    )
    removed_unless_waiting = cell(
        None,
        to_preparing,
        "removes the member, unless its SyncGroup waits, and starts a rebalance",
    )
    forgets = cell(None, effect="forgets the id")
    forgets_last = cell(None, to_completing, "forgets the id; all others have joined")
    extends = cell(None, effect="extends the delay, at most to the rebalance timeout")
    ends_join = cell(None, to_completing, "removes dynamic members that did not join")
    ends_empty = cell(None, to_empty, "removes all members")
    extends_static = cell(None, effect="removes no member, and the join phase continues")
    ends_sync = cell(None, to_preparing, "removes members that did not send SyncGroup")
    expires = cell(None, to_dead, "deletes the offsets, then the group, which has none left")
    expires_some = cell(None, effect="deletes offsets of topics that no member subscribes to")
    moved = cell(None, to_dead)
    moved_waiting = cell(Code.NOT_COORDINATOR, to_dead, "for all waiting requests")
    rows = {
        on.JOIN_NEW: (new_id, new_id, new_id, new_id, first_id),
        on.JOIN_ASSIGNED_ID: (starts, waits, starts, starts, unknown),
        on.JOIN_STATIC: (starts, waits, starts, starts, starts),
        on.JOIN_STATIC_BACK: (starts, waits, starts, takes_over, starts),
        on.JOIN_FOLLOWER: (unknown, waits, again, again, unknown),
        on.JOIN_LEADER: (unknown, waits, again, starts, unknown),
        on.JOIN_CHANGED: (unknown, waits, starts, starts, unknown),
        on.JOIN_MISMATCH: (new_id, mismatch, mismatch, mismatch, first_id),
        on.JOIN_FULL: (new_id, full, full, full, first_id),
        on.SYNC_LEADER: (unknown, rebalancing, stores, assigned, unknown),
        on.SYNC_FOLLOWER: (unknown, rebalancing, waits_sync, assigned, unknown),
        on.SYNC_OLD: (unknown, illegal, illegal, illegal, unknown),
        on.HEARTBEAT: (unknown, rebalancing, ok, ok, unknown),
        on.HEARTBEAT_OLD: (unknown, illegal, illegal, illegal, unknown),
        on.HEARTBEAT_FENCED: (unknown, fenced, fenced, fenced, unknown),
        on.LEAVE: (unknown, leaves, left, left, unknown),
        on.LEAVE_LAST: (unknown, emptied, emptied_later, emptied_later, unknown),
        on.COMMIT: (unknown, ok, rebalancing, ok, no_group),
        on.COMMIT_SIMPLE: (ok, unknown, unknown, unknown, created),
        on.OFFSET_FETCH: (ok, ok, ok, ok, ok),
        on.OFFSET_DELETE: (ok, subscribed, subscribed, subscribed, no_group),
        on.DESCRIBE: (ok, ok, ok, ok, no_group),
        on.DELETE: (deleted, not_empty, not_empty, not_empty, no_group),
        on.APPEND_FAILED: (failed, failed, failed_sync, failed, failed),
        on.SESSION_TIMEOUT: (ignored, removed_early, removed_unless_waiting, removed, ignored),
        on.SESSION_TIMEOUT_ID: (forgets, forgets_last, forgets, forgets, ignored),
        on.INITIAL_DELAY: (ignored, extends, ignored, ignored, ignored),
        on.JOIN_TIMEOUT: (ignored, ends_join, ignored, ignored, ignored),
        on.JOIN_TIMEOUT_NOBODY: (ignored, ends_empty, ignored, ignored, ignored),
        on.JOIN_TIMEOUT_STATIC: (ignored, extends_static, ignored, ignored, ignored),
        on.SYNC_TIMEOUT: (ignored, ignored, ends_sync, ends_sync, ignored),
        on.RETENTION: (expires, ignored, ignored, expires_some, ignored),
        on.UNLOADED: (moved, moved_waiting, moved_waiting, moved, ignored),
    }
    return {
        (state, trigger): outcome
        for trigger, row in rows.items()
        for state, outcome in zip(GroupState, row, strict=True)
    }


GROUP_OUTCOMES = _make_group_outcomes()


class MemberTrigger(enum.Enum):
    """A call, response or timer, as a row of ``MEMBER_OUTCOMES``."""

    POLL = "the application polls"
    POLL_REJOIN = "the application polls, and a rejoin is due"
    COMMIT = "the application commits and waits"
    ENFORCE_REBALANCE = "the application calls enforce_rebalance"
    UNSUBSCRIBE = "the application unsubscribes"
    CLOSE = "the application closes the consumer"
    JOIN_FOLLOWER = "JoinGroup response, the member follows"
    JOIN_LEADER = "JoinGroup response, the member leads"
    JOIN_ID = "JoinGroup response MEMBER_ID_REQUIRED"
    JOIN_UNKNOWN = "JoinGroup response UNKNOWN_MEMBER_ID"
    JOIN_REBALANCING = "JoinGroup response REBALANCE_IN_PROGRESS"
    JOIN_UNAVAILABLE = "JoinGroup response NOT_COORDINATOR"
    JOIN_INCONSISTENT = "JoinGroup response INCONSISTENT_GROUP_PROTOCOL"
    JOIN_FENCED = "JoinGroup response FENCED_INSTANCE_ID"
    JOIN_FATAL = "JoinGroup response with any other code"
    SYNC_ASSIGNED = "SyncGroup response with an assignment"
    SYNC_UNKNOWN = "SyncGroup response UNKNOWN_MEMBER_ID"
    SYNC_ILLEGAL = "SyncGroup response ILLEGAL_GENERATION"
    SYNC_REBALANCING = "SyncGroup response REBALANCE_IN_PROGRESS"
    SYNC_UNAVAILABLE = "SyncGroup response NOT_COORDINATOR"
    SYNC_FENCED = "SyncGroup response FENCED_INSTANCE_ID"
    SYNC_FATAL = "SyncGroup response with any other code"
    HEARTBEAT_OK = "Heartbeat response"
    HEARTBEAT_REBALANCING = "Heartbeat response REBALANCE_IN_PROGRESS"
    HEARTBEAT_UNKNOWN = "Heartbeat response UNKNOWN_MEMBER_ID"
    HEARTBEAT_ILLEGAL = "Heartbeat response ILLEGAL_GENERATION"
    HEARTBEAT_FENCED = "Heartbeat response FENCED_INSTANCE_ID"
    COMMIT_REBALANCING = "OffsetCommit response REBALANCE_IN_PROGRESS"
    COMMIT_UNKNOWN = "OffsetCommit response UNKNOWN_MEMBER_ID"
    COMMIT_ILLEGAL = "OffsetCommit response ILLEGAL_GENERATION"
    COMMIT_FENCED = "OffsetCommit response FENCED_INSTANCE_ID"
    NO_RESPONSE = "the connection to the coordinator breaks"
    STRATEGY_FAILED = "the leader's strategy raises an error"
    STRATEGY_TIMEOUT = "the leader's strategy takes longer than max.poll.interval.ms"
    HEARTBEAT_TIMER = "heartbeat.interval.ms is over"
    SESSION_TIMER = "no heartbeat was answered for session.timeout.ms"
    POLL_TIMER = "the application has not polled for max.poll.interval.ms"


class MemberOutcome(NamedTuple):
    #: None if the state stays.
    next_state: MemberState | None = None
    #: The request that is sent.
    request: type[GroupRequest] | None = None
    #: The error that the application gets from its call.
    error: type[RotaError] | None = None
    effect: str = ""
    #: The next poll sends JoinGroup.
    rejoins: bool = False


def _make_member_outcomes() -> dict[tuple[MemberState, MemberTrigger], MemberOutcome]:
    on, cell = MemberTrigger, MemberOutcome
    to_unjoined, to_joining, to_syncing, to_stable, to_fenced, to_left = MemberState
    no = cell()
    join = cell(to_joining, JoinGroup)
    lead = cell(to_syncing, SyncGroup, effect="runs the strategy first")
    rejoin = cell(rejoins=True)
    retry = cell(effect="backs off", rejoins=True)
    find = cell(effect="finds the coordinator again")
    lost = cell(to_unjoined, effect="its partitions are lost", rejoins=True)
    fence = cell(to_fenced)
    raises = cell(effect="the next poll raises the error")
    raises_fenced = cell(error=Fenced)
    rebalancing = cell(error=RebalanceInProgress)
    leaves = cell(to_unjoined, LeaveGroup, effect="a static member sends nothing")
    leaves_late = cell(
        to_unjoined, LeaveGroup, effect="a static member sends nothing", rejoins=True
    )
    fails = cell(to_unjoined, LeaveGroup, effect="the next poll raises the error")
    closes = cell(to_left, LeaveGroup, effect="a static member sends nothing")
    ends = cell(to_left)
    beat = cell(request=Heartbeat)
    alive = cell(effect="restarts the session timer")
    not_joined = cell(error=CommitFailed)
    commit = cell(request=OffsetCommit)
    follow = cell(to_syncing, SyncGroup)
    assigned = cell(to_stable, effect="the next poll assigns the partitions")
    rows = {
        on.POLL: (join, no, no, no, raises_fenced, no),
        on.POLL_REJOIN: (join, cell(request=JoinGroup), join, join, raises_fenced, no),
        on.COMMIT: (not_joined, rebalancing, rebalancing, commit, raises_fenced, no),
        on.ENFORCE_REBALANCE: (no, no, no, rejoin, no, no),
        on.UNSUBSCRIBE: (no, leaves, leaves, leaves, no, no),
        on.CLOSE: (ends, closes, closes, closes, ends, no),
        on.JOIN_FOLLOWER: (no, follow, no, no, no, no),
        on.JOIN_LEADER: (no, lead, no, no, no, no),
        on.JOIN_ID: (no, rejoin, no, no, no, no),
        on.JOIN_UNKNOWN: (no, lost, no, no, no, no),
        on.JOIN_REBALANCING: (no, rejoin, no, no, no, no),
        on.JOIN_UNAVAILABLE: (no, retry, no, no, no, no),
        on.JOIN_INCONSISTENT: (no, cell(request=DescribeGroups), no, no, no, no),
        on.JOIN_FENCED: (no, fence, no, no, no, no),
        on.JOIN_FATAL: (no, raises, no, no, no, no),
        on.SYNC_ASSIGNED: (no, no, assigned, no, no, no),
        on.SYNC_UNKNOWN: (no, no, lost, no, no, no),
        on.SYNC_ILLEGAL: (no, no, lost, no, no, no),
        on.SYNC_REBALANCING: (no, no, rejoin, no, no, no),
        on.SYNC_UNAVAILABLE: (no, no, retry, no, no, no),
        on.SYNC_FENCED: (no, no, fence, no, no, no),
        on.SYNC_FATAL: (no, no, raises, no, no, no),
        on.HEARTBEAT_OK: (no, no, alive, alive, no, no),
        on.HEARTBEAT_REBALANCING: (no, no, alive, rejoin, no, no),
        on.HEARTBEAT_UNKNOWN: (no, no, lost, lost, no, no),
        on.HEARTBEAT_ILLEGAL: (no, no, lost, lost, no, no),
        on.HEARTBEAT_FENCED: (no, fence, fence, fence, no, no),
        on.COMMIT_REBALANCING: (no, no, no, rejoin, no, no),
        on.COMMIT_UNKNOWN: (no, no, no, lost, no, no),
        on.COMMIT_ILLEGAL: (no, no, no, lost, no, no),
        on.COMMIT_FENCED: (no, fence, no, fence, no, no),
        on.NO_RESPONSE: (no, retry, retry, find, no, no),
        on.STRATEGY_FAILED: (no, no, fails, no, no, no),
        on.STRATEGY_TIMEOUT: (no, no, fails, no, no, no),
        on.HEARTBEAT_TIMER: (no, no, beat, beat, no, no),
        on.SESSION_TIMER: (no, no, find, find, no, no),
        on.POLL_TIMER: (no, leaves_late, leaves_late, leaves_late, no, no),
    }
    return {
        (state, trigger): outcome
        for trigger, row in rows.items()
        for state, outcome in zip(MemberState, row, strict=True)
    }


MEMBER_OUTCOMES = _make_member_outcomes()
