"""What each call, response and timer does in each state of a member.

A test drives a member into every cell, and docs/architecture.md shows the table.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

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
from rota.errors import CommitFailed, Fenced, RebalanceInProgress, RotaError

_UNJOINED, _JOINING, _SYNCING, _STABLE, _FENCED, _LEFT = MemberState


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


def _make_outcomes() -> dict[tuple[MemberState, MemberTrigger], MemberOutcome]:
    on, cell = MemberTrigger, MemberOutcome
    no = cell()
    join = cell(_JOINING, JoinGroup)
    lead = cell(_SYNCING, SyncGroup, effect="runs the strategy first")
    rejoin = cell(rejoins=True)
    retry = cell(effect="backs off", rejoins=True)
    find = cell(effect="finds the coordinator again")
    lost = cell(_UNJOINED, effect="its partitions are lost", rejoins=True)
    fence = cell(_FENCED)
    raises = cell(effect="the next poll raises the error")
    raises_fenced = cell(error=Fenced)
    rebalancing = cell(error=RebalanceInProgress)
    leaves = cell(_UNJOINED, LeaveGroup, effect="a static member sends nothing")
    leaves_late = cell(_UNJOINED, LeaveGroup, effect="a static member sends nothing", rejoins=True)
    fails = cell(_UNJOINED, LeaveGroup, effect="the next poll raises the error")
    closes = cell(_LEFT, LeaveGroup, effect="a static member sends nothing")
    ends = cell(_LEFT)
    beat = cell(request=Heartbeat)
    alive = cell(effect="restarts the session timer")
    not_joined = cell(error=CommitFailed)
    commit = cell(request=OffsetCommit)
    follow = cell(_SYNCING, SyncGroup)
    assigned = cell(_STABLE, effect="the next poll assigns the partitions")
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


MEMBER_OUTCOMES = _make_outcomes()
