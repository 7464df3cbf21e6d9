"""What each request and each timer does in each state of a classic group.

A test drives the coordinator into every cell, and docs/architecture.md shows the table.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from rota.engine.coordinator.state import GroupState
from rota.errors import Code

_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState


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


def _make_outcomes() -> dict[tuple[GroupState, GroupTrigger], GroupOutcome]:
    on, cell = GroupTrigger, GroupOutcome
    ok = cell(Code.NONE)
    ignored = cell(None)
    unknown = cell(Code.UNKNOWN_MEMBER_ID)
    no_group = cell(Code.GROUP_ID_NOT_FOUND)
    new_id = cell(Code.MEMBER_ID_REQUIRED, effect="gets a member id")
    first_id = cell(Code.MEMBER_ID_REQUIRED, _EMPTY, "creates the group and gets a member id")
    waits = cell(None, effect="waits for the end of the join phase")
    starts = cell(None, _PREPARING, "starts a rebalance and waits")
    again = cell(Code.NONE, effect="gets the current generation again")
    takes_over = cell(Code.NONE, effect="gets the old assignment, if the strategy stays")
    mismatch = cell(Code.INCONSISTENT_GROUP_PROTOCOL)
    full = cell(Code.GROUP_MAX_SIZE_REACHED)
    rebalancing = cell(Code.REBALANCE_IN_PROGRESS)
    stores = cell(Code.NONE, _STABLE, "stores the assignment; waiting SyncGroups get theirs")
    waits_sync = cell(None, effect="waits for the leader's assignment")
    assigned = cell(Code.NONE, effect="gets its assignment")
    illegal = cell(Code.ILLEGAL_GENERATION)
    fenced = cell(Code.FENCED_INSTANCE_ID)
    leaves = cell(Code.NONE, effect="ends the join phase if all others have joined")
    left = cell(Code.NONE, _PREPARING, "starts a rebalance")
    emptied = cell(Code.NONE, _EMPTY)
    emptied_later = cell(Code.NONE, _EMPTY, "through PreparingRebalance")
    created = cell(Code.NONE, _EMPTY, "creates the group")
    subscribed = cell(Code.GROUP_SUBSCRIBED_TO_TOPIC)
    deleted = cell(Code.NONE, _DEAD, "deletes the offsets too")
    not_empty = cell(Code.NON_EMPTY_GROUP)
    failed = cell(Code.COORDINATOR_NOT_AVAILABLE)
    failed_sync = cell(Code.COORDINATOR_NOT_AVAILABLE, _PREPARING, "for all waiting SyncGroups")
    removed = cell(None, _PREPARING, "removes the member and starts a rebalance")
    removed_early = cell(
        None, effect="removes the member, unless it joined before and its JoinGroup waits"
    )
    removed_unless_waiting = cell(
        None, _PREPARING, "removes the member, unless its SyncGroup waits, and starts a rebalance"
    )
    forgets = cell(None, effect="forgets the id")
    forgets_last = cell(None, _COMPLETING, "forgets the id; all others have joined")
    extends = cell(None, effect="extends the delay, at most to the rebalance timeout")
    ends_join = cell(None, _COMPLETING, "removes dynamic members that did not join")
    ends_empty = cell(None, _EMPTY, "removes all members")
    extends_static = cell(None, effect="removes no member, and the join phase continues")
    ends_sync = cell(None, _PREPARING, "removes members that did not send SyncGroup")
    expires = cell(None, _DEAD, "deletes the offsets, then the group, which has none left")
    expires_some = cell(None, effect="deletes offsets of topics that no member subscribes to")
    moved = cell(None, _DEAD)
    moved_waiting = cell(Code.NOT_COORDINATOR, _DEAD, "for all waiting requests")
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


GROUP_OUTCOMES = _make_outcomes()
