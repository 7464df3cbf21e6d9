"""The member does in every state what MEMBER_OUTCOMES says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from docs.state_outcomes import MEMBER_OUTCOMES, MemberTrigger

from rota.engine.member.events import (
    AssignmentComputed,
    CloseRequested,
    ComputeAssignment,
    FindCoordinator,
    FinishSyncCommit,
    MemberCommand,
    MemberTimer,
    MemberTimerFired,
    RejoinRequested,
    Unsubscribed,
)
from rota.engine.member.state import (
    MEMBER_TRANSITIONS,
    MemberState,
)
from rota.engine.model.request import (
    GroupRequest,
    Heartbeat,
    JoinGroup,
    OffsetCommit,
    SyncGroup,
)
from rota.engine.model.response import (
    GroupResponse,
    HeartbeatResult,
    JoinGroupResult,
    OffsetCommitResult,
    SyncGroupResult,
)
from rota.errors import Code, StrategyFailed
from tests.support.member_driver import (
    ME,
    Driver,
    commands_of_type,
    encode_assignment,
    encode_subscription,
    offsets,
    raised_errors,
    sent_requests,
    tp,
)

UNJOINED, JOINING, SYNCING, STABLE, FENCED, LEFT = MemberState


def enter(member: Driver, state: MemberState, *, leads: bool = False) -> Driver:
    """Takes a member from unjoined into a state, between two polls."""
    if state is UNJOINED:
        return member
    if state is LEFT:
        member.give(CloseRequested())
        return member
    commands = member.poll()
    if FindCoordinator() in commands:
        member.found()
    if state is FENCED:
        member.refuse_join(Code.FENCED_INSTANCE_ID)
    elif state is not JOINING:
        generation = max(member.machine.generation, 0) + 1
        if leads:
            member.makes_assignments = False
            member.answer_join(generation, leader=ME, members={ME: encode_subscription()})
        else:
            member.answer_join(generation)
        if state is STABLE:
            member.answer_sync("t0-0")
    member.end_poll()
    return member


def make_member(state: MemberState) -> Driver:
    """A member that was stable once, so that it has an id while it joins."""
    member = enter(Driver(), STABLE)
    if state is JOINING:
        member.beat(Code.REBALANCE_IN_PROGRESS)
        member.poll()
        member.end_poll()
    elif state is not STABLE:
        poll_late(member)
        enter(member, state)
    return member


def make_member_that_waits(state: MemberState, request: type[GroupRequest]) -> Driver:
    """A member with a request in flight: of this state, or else of an earlier one."""
    sent_in = {JoinGroup: JOINING, SyncGroup: SYNCING}.get(request, STABLE)
    if request is Heartbeat and state is SYNCING:
        sent_in = SYNCING
    member = make_member(sent_in)
    if request is Heartbeat:
        member.pass_time(member.timers[MemberTimer.HEARTBEAT] - member.now)
    elif request is OffsetCommit:
        member.commit(1, offsets(t0_0=1))
    if state is sent_in:
        return member
    if sent_in is STABLE and state in {JOINING, SYNCING}:
        # with the same identity: the rejoin is due, and the old request is not answered
        member.give(RejoinRequested("test"))
        member.poll()
        if state is SYNCING:
            member.answer_join(2)
        member.end_poll()
        return member
    poll_late(member)
    return enter(member, state)


def poll_late(member: Driver) -> list[MemberCommand]:
    member.timers.pop(MemberTimer.POLL, None)
    return member.give(MemberTimerFired(MemberTimer.POLL))


def respond(
    request: type[GroupRequest], response: GroupResponse
) -> Callable[[MemberState], tuple[Driver, list[MemberCommand]]]:
    def run(state: MemberState) -> tuple[Driver, list[MemberCommand]]:
        member = make_member_that_waits(state, request)
        number = member.in_flight(request)[0][0]
        later = {one: member.open.pop(one) for one in list(member.open) if one != number}
        commands = member.answer(request, response)
        member.open.update(later)
        return member, commands

    return run


def refuse_join(code: Code) -> Callable[[MemberState], tuple[Driver, list[MemberCommand]]]:
    return respond(JoinGroup, JoinGroupResult(code=code, member_id=ME))


def refuse_sync(code: Code) -> Callable[[MemberState], tuple[Driver, list[MemberCommand]]]:
    return respond(SyncGroup, SyncGroupResult(code=code))


def answer_heartbeat(code: Code) -> Callable[[MemberState], tuple[Driver, list[MemberCommand]]]:
    return respond(Heartbeat, HeartbeatResult(code=code))


def refuse_commit(code: Code) -> Callable[[MemberState], tuple[Driver, list[MemberCommand]]]:
    return respond(OffsetCommit, OffsetCommitResult(codes=dict.fromkeys(tp("t0-0"), code)))


def fire_timer(timer: MemberTimer) -> Callable[[MemberState], tuple[Driver, list[MemberCommand]]]:
    def run(state: MemberState) -> tuple[Driver, list[MemberCommand]]:
        member = make_member(state)
        member.timers.pop(timer, None)
        return member, member.give(MemberTimerFired(timer))

    return run


def call(
    act: Callable[[Driver], list[MemberCommand]],
) -> Callable[[MemberState], tuple[Driver, list[MemberCommand]]]:
    def run(state: MemberState) -> tuple[Driver, list[MemberCommand]]:
        member = make_member(state)
        return member, act(member)

    return run


def poll_to_rejoin(state: MemberState) -> tuple[Driver, list[MemberCommand]]:
    member = make_member(state)
    if state is JOINING:
        member.refuse_join(Code.REBALANCE_IN_PROGRESS)
    elif state is SYNCING:
        member.answer(SyncGroup, SyncGroupResult(code=Code.REBALANCE_IN_PROGRESS))
    elif state is STABLE:
        member.beat(Code.REBALANCE_IN_PROGRESS)
    return member, member.poll()


def lose_connection(state: MemberState) -> tuple[Driver, list[MemberCommand]]:
    request = {SYNCING: SyncGroup, STABLE: Heartbeat}.get(state, JoinGroup)
    member = make_member_that_waits(state, request)
    return member, member.fail(request)


def lead_group(state: MemberState) -> tuple[Driver, int]:
    """A member whose strategy runs: in this state, or since an earlier one."""
    member = Driver()
    enter(member, SYNCING, leads=True)
    number = commands_of_type(ComputeAssignment, member.log)[-1].assignment_id
    if state is not SYNCING:
        poll_late(member)
        enter(member, state)
    return member, number


def fail_strategy(state: MemberState) -> tuple[Driver, list[MemberCommand]]:
    member, number = lead_group(state)
    return member, member.give(AssignmentComputed(number, error=StrategyFailed("test")))


def time_out_strategy(state: MemberState) -> tuple[Driver, list[MemberCommand]]:
    member, _ = lead_group(state)
    member.timers.pop(MemberTimer.ASSIGN, None)
    return member, member.give(MemberTimerFired(MemberTimer.ASSIGN))


def join_result(leader: str) -> JoinGroupResult:
    return JoinGroupResult(
        member_id=ME,
        generation=9,
        protocol_type="consumer",
        protocol="range",
        leader=leader,
    )


SCENARIOS: dict[MemberTrigger, Callable[[MemberState], tuple[Driver, list[MemberCommand]]]] = {
    MemberTrigger.POLL: call(lambda m: m.poll()),
    MemberTrigger.POLL_REJOIN: poll_to_rejoin,
    MemberTrigger.COMMIT: call(lambda m: m.commit(1, offsets(t0_0=1), wait=1_000)),
    MemberTrigger.ENFORCE_REBALANCE: call(lambda m: m.give(RejoinRequested("test"))),
    MemberTrigger.UNSUBSCRIBE: call(lambda m: m.give(Unsubscribed())),
    MemberTrigger.CLOSE: call(lambda m: m.give(CloseRequested())),
    MemberTrigger.JOIN_FOLLOWER: respond(JoinGroup, join_result("other")),
    MemberTrigger.JOIN_LEADER: respond(JoinGroup, join_result(ME)),
    MemberTrigger.JOIN_ID: refuse_join(Code.MEMBER_ID_REQUIRED),
    MemberTrigger.JOIN_UNKNOWN: refuse_join(Code.UNKNOWN_MEMBER_ID),
    MemberTrigger.JOIN_REBALANCING: refuse_join(Code.REBALANCE_IN_PROGRESS),
    MemberTrigger.JOIN_UNAVAILABLE: refuse_join(Code.NOT_COORDINATOR),
    MemberTrigger.JOIN_INCONSISTENT: refuse_join(Code.INCONSISTENT_GROUP_PROTOCOL),
    MemberTrigger.JOIN_FENCED: refuse_join(Code.FENCED_INSTANCE_ID),
    MemberTrigger.JOIN_FATAL: refuse_join(Code.INVALID_SESSION_TIMEOUT),
    MemberTrigger.SYNC_ASSIGNED: respond(
        SyncGroup, SyncGroupResult(assignment=encode_assignment("t0-0"))
    ),
    MemberTrigger.SYNC_UNKNOWN: refuse_sync(Code.UNKNOWN_MEMBER_ID),
    MemberTrigger.SYNC_ILLEGAL: refuse_sync(Code.ILLEGAL_GENERATION),
    MemberTrigger.SYNC_REBALANCING: refuse_sync(Code.REBALANCE_IN_PROGRESS),
    MemberTrigger.SYNC_UNAVAILABLE: refuse_sync(Code.NOT_COORDINATOR),
    MemberTrigger.SYNC_FENCED: refuse_sync(Code.FENCED_INSTANCE_ID),
    MemberTrigger.SYNC_FATAL: refuse_sync(Code.GROUP_AUTHORIZATION_FAILED),
    MemberTrigger.HEARTBEAT_OK: answer_heartbeat(Code.NONE),
    MemberTrigger.HEARTBEAT_REBALANCING: answer_heartbeat(Code.REBALANCE_IN_PROGRESS),
    MemberTrigger.HEARTBEAT_UNKNOWN: answer_heartbeat(Code.UNKNOWN_MEMBER_ID),
    MemberTrigger.HEARTBEAT_ILLEGAL: answer_heartbeat(Code.ILLEGAL_GENERATION),
    MemberTrigger.HEARTBEAT_FENCED: answer_heartbeat(Code.FENCED_INSTANCE_ID),
    MemberTrigger.COMMIT_REBALANCING: refuse_commit(Code.REBALANCE_IN_PROGRESS),
    MemberTrigger.COMMIT_UNKNOWN: refuse_commit(Code.UNKNOWN_MEMBER_ID),
    MemberTrigger.COMMIT_ILLEGAL: refuse_commit(Code.ILLEGAL_GENERATION),
    MemberTrigger.COMMIT_FENCED: refuse_commit(Code.FENCED_INSTANCE_ID),
    MemberTrigger.NO_RESPONSE: lose_connection,
    MemberTrigger.STRATEGY_FAILED: fail_strategy,
    MemberTrigger.STRATEGY_TIMEOUT: time_out_strategy,
    MemberTrigger.HEARTBEAT_TIMER: fire_timer(MemberTimer.HEARTBEAT),
    MemberTrigger.SESSION_TIMER: fire_timer(MemberTimer.SESSION),
    MemberTrigger.POLL_TIMER: fire_timer(MemberTimer.POLL),
}


def test_no_cell_is_missing() -> None:
    cells = {(state, trigger) for state in MemberState for trigger in MemberTrigger}
    assert set(MEMBER_OUTCOMES) == cells
    assert set(SCENARIOS) == set(MemberTrigger)


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("trigger", MemberTrigger)
def test_the_member_does_what_the_table_says(state: MemberState, trigger: MemberTrigger) -> None:
    outcome = MEMBER_OUTCOMES[state, trigger]
    member, commands = SCENARIOS[trigger](state)
    assert member.state is (outcome.next_state or state)
    assert [type(one) for one in sent_requests(commands)] == [outcome.request] * bool(
        outcome.request
    )
    errors = raised_errors(commands)
    errors += [
        one.error for one in commands_of_type(FinishSyncCommit, commands) if one.error is not None
    ]
    assert [type(error) for error in errors] == [outcome.error] * bool(outcome.error)
    if outcome.rejoins:
        again = member.pass_time(1_000) + member.poll()  # the backoff is over
        if FindCoordinator() in again:
            again += member.found()
        assert JoinGroup in [type(one) for one in sent_requests(again)]


def test_the_table_has_every_legal_transition() -> None:
    moves = {
        (state, outcome.next_state)
        for (state, _), outcome in MEMBER_OUTCOMES.items()
        if outcome.next_state is not None
    }
    assert moves == set(MEMBER_TRANSITIONS)
