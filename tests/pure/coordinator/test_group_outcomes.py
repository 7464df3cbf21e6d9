"""The coordinator does in every state what GROUP_OUTCOMES says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from docs.state_outcomes import GROUP_OUTCOMES, GroupTrigger

from rota.engine.coordinator.events import (
    GroupTimerFired,
    GroupTimerKey,
    GroupTimerKind,
    JournalUnloaded,
)
from rota.engine.coordinator.state import GROUP_TRANSITIONS, GroupState
from rota.engine.model.config import GroupConfig
from rota.engine.model.request import (
    DeleteGroups,
    DescribeGroups,
    GroupRequest,
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
)
from rota.engine.model.response import (
    DeleteGroupsResult,
    DescribeGroupsResult,
    GroupResponse,
    LeaveGroupResult,
    ListGroupsResult,
    OffsetCommitResult,
    OffsetDeleteResult,
    OffsetFetchResult,
)
from rota.engine.model.topic import TopicPartition
from rota.errors import Code
from tests.support.coordinator_driver import GROUP, CoordinatorDriver, commit_request, join_request

CONFIG = GroupConfig(offsets_retention=1_000)
EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


@dataclass
class Case:
    """A group in a state, its members, and the generation that they know."""

    driver: CoordinatorDriver
    leader: str
    follower: str
    static: str
    generation: int = 1

    def send(self, request: GroupRequest) -> Code | None:
        token = self.driver.send(request)
        return _code(self.driver.answers[token]) if token in self.driver.answers else None

    def fire(self, kind: GroupTimerKind, member_id: str = "") -> None:
        group = "" if kind is GroupTimerKind.RETENTION else GROUP
        key = GroupTimerKey(kind, group, member_id)
        self.driver.timers.pop(key, None)
        self.driver.handle(GroupTimerFired(key))

    def sync(self, member_id: str, generation: int = 0) -> Code | None:
        number = generation or self.generation
        return self.send(SyncGroup(group=GROUP, generation=number, member_id=member_id))

    def beat(
        self, member_id: str, generation: int = 0, group_instance_id: str | None = None
    ) -> Code | None:
        return self.send(
            Heartbeat(
                group=GROUP,
                generation=generation or self.generation,
                member_id=member_id,
                group_instance_id=group_instance_id,
            )
        )

    def leave(self, *member_ids: str) -> Code | None:
        leavers = tuple(LeavingMember(member_id=one) for one in member_ids)
        return self.send(LeaveGroup(group=GROUP, members=leavers))


def _code(response: GroupResponse) -> Code:
    match response:
        case LeaveGroupResult():
            return response.code or response.members[0].code
        case OffsetCommitResult() | OffsetDeleteResult() | DeleteGroupsResult() if response.codes:
            return next(iter(response.codes.values()))
        case DescribeGroupsResult():
            return response.groups[0].code
        case OffsetFetchResult() | ListGroupsResult():
            return Code.NONE
        case DeleteGroupsResult() | OffsetCommitResult():
            raise AssertionError("no codes")
        case _:
            return response.code


def make_case(state: GroupState, config: GroupConfig = CONFIG) -> Case:
    """Four members, of which the last has left where the state is PREPARING."""
    driver = CoordinatorDriver(config)
    requests = [join_request(), join_request(), join_request(group_instance_id="s"), join_request()]
    if state is COMPLETING:
        leader, follower, static, _ = (driver.enter(request)[0] for request in requests)
        driver.wait(6_000)
        return Case(driver, leader, follower, static)
    leader, follower, static, last = driver.stable(*requests)
    case = Case(driver, leader, follower, static)
    case.send(commit_request(5, leader, 1))
    if state is PREPARING:
        case.leave(last)
    elif state is not STABLE:
        case.leave(leader, follower, static, last)
        if state is DEAD:
            case.send(DeleteGroups(groups=(GROUP,)))
    return case


def make_single_member_case(state: GroupState, group_instance_id: str | None = None) -> Case:
    """One member is left."""
    driver = CoordinatorDriver(CONFIG)
    first = join_request(group_instance_id=group_instance_id)
    if state is COMPLETING:
        leader, _ = driver.enter(first)
        driver.wait(6_000)
        return Case(driver, leader, leader, leader)
    if state is not PREPARING:
        (leader,) = driver.stable(first)
        case = Case(driver, leader, leader, leader)
        if state is not STABLE:
            case.leave(leader)
        if state is DEAD:
            case.send(DeleteGroups(groups=(GROUP,)))
        return case
    leader, last = driver.stable(first, join_request())
    case = Case(driver, leader, leader, leader)
    case.leave(last)
    return case


def make_full_case(state: GroupState) -> Case:
    """All four members have joined, also where the state is PREPARING: the initial delay runs."""
    config = GroupConfig(max_size=4)
    if state is not PREPARING:
        return make_case(state, config)
    driver = CoordinatorDriver(config)
    leader, follower, static, _ = (
        driver.enter(one)[0]
        for one in [
            join_request(),
            join_request(),
            join_request(group_instance_id="s"),
            join_request(),
        ]
    )
    return Case(driver, leader, follower, static, 0)


def join_with_assigned_id(case: Case) -> Code | None:
    if case.driver.state() == "Dead":
        return case.send(join_request("app-id99"))
    return case.send(join_request(case.driver.joined(case.driver.send(join_request())).member_id))


def delete_offsets(case: Case) -> Code | None:
    return case.send(OffsetDelete(group=GROUP, partitions=(TopicPartition("t", 0),)))


def fail_append(case: Case) -> Code | None:
    """A request that appends in this state."""
    case.driver.appends.append(Code.NOT_ENOUGH_REPLICAS)
    match GroupState(case.driver.state()):
        case GroupState.EMPTY:
            return case.send(DeleteGroups(groups=(GROUP,)))
        case GroupState.PREPARING:
            return case.send(commit_request(5, case.leader, case.generation))
        case GroupState.COMPLETING:
            return case.sync(case.leader)
        case GroupState.STABLE | GroupState.DEAD:
            return case.send(join_request(group_instance_id="s"))


def expire_assigned_id(case: Case) -> None:
    """All members that are there have joined, and only the id is waited for."""
    if case.driver.state() == "Dead":
        case.fire(GroupTimerKind.SESSION, "app-id99")
        return
    member_id = case.driver.joined(case.driver.send(join_request())).member_id
    if case.driver.state() == "PreparingRebalance":
        for request in (
            join_request(case.leader),
            join_request(case.follower),
            join_request(case.static, group_instance_id="s"),
        ):
            case.driver.send(request)
    case.fire(GroupTimerKind.SESSION, member_id)


def end_initial_delay(case: Case) -> None:
    case.fire(GroupTimerKind.JOIN)


def end_join_phase(case: Case) -> None:
    if case.driver.state() == "PreparingRebalance":
        case.driver.send(join_request(case.leader))
    case.fire(GroupTimerKind.JOIN)


def end_sync_phase(case: Case) -> None:
    if case.driver.state() == "CompletingRebalance":
        case.sync(case.follower)
    case.fire(GroupTimerKind.SYNC)


def make_unsynced_case(state: GroupState) -> Case:
    """A follower has not sent SyncGroup, also where the state is STABLE."""
    if state is not STABLE:
        return make_case(state)
    case = make_case(COMPLETING)
    case.sync(case.leader)
    return case


def expire_offsets(case: Case) -> None:
    case.driver.wait(2_000)
    case.fire(GroupTimerKind.RETENTION)


def unload_coordinator(case: Case) -> Code | None:
    """The code that a waiting JoinGroup or SyncGroup gets."""
    waiting = None
    if case.driver.state() == "PreparingRebalance":
        waiting = case.driver.send(join_request(case.leader))
    elif case.driver.state() == "CompletingRebalance":
        waiting = case.driver.sync(case.follower, case.generation)
    case.driver.handle(JournalUnloaded())
    return None if waiting is None else _code(case.driver.answers[waiting])


Scenario = tuple[Callable[[GroupState], Case], Callable[[Case], Code | None]]

SCENARIOS: dict[GroupTrigger, Scenario] = {
    GroupTrigger.JOIN_NEW: (make_single_member_case, lambda case: case.send(join_request())),
    GroupTrigger.JOIN_ASSIGNED_ID: (make_single_member_case, join_with_assigned_id),
    GroupTrigger.JOIN_STATIC: (
        make_single_member_case,
        lambda c: c.send(join_request(group_instance_id="new")),
    ),
    GroupTrigger.JOIN_STATIC_BACK: (
        make_case,
        lambda case: case.send(join_request(group_instance_id="s")),
    ),
    GroupTrigger.JOIN_FOLLOWER: (make_case, lambda case: case.send(join_request(case.follower))),
    GroupTrigger.JOIN_LEADER: (make_case, lambda case: case.send(join_request(case.leader))),
    GroupTrigger.JOIN_CHANGED: (
        make_case,
        lambda c: c.send(join_request(c.follower, topics=("u",))),
    ),
    GroupTrigger.JOIN_MISMATCH: (
        make_case,
        lambda case: case.send(join_request(strategies=("x",))),
    ),
    GroupTrigger.JOIN_FULL: (make_full_case, lambda case: case.send(join_request())),
    GroupTrigger.SYNC_LEADER: (make_case, lambda case: case.sync(case.leader)),
    GroupTrigger.SYNC_FOLLOWER: (make_case, lambda case: case.sync(case.follower)),
    GroupTrigger.SYNC_OLD: (make_case, lambda case: case.sync(case.leader, 7)),
    GroupTrigger.HEARTBEAT: (make_case, lambda case: case.beat(case.follower)),
    GroupTrigger.HEARTBEAT_OLD: (make_case, lambda case: case.beat(case.follower, 7)),
    GroupTrigger.HEARTBEAT_FENCED: (
        make_case,
        lambda case: case.beat("s-old", group_instance_id="s"),
    ),
    GroupTrigger.LEAVE: (make_case, lambda case: case.leave(case.follower)),
    GroupTrigger.LEAVE_LAST: (make_single_member_case, lambda case: case.leave(case.leader)),
    GroupTrigger.COMMIT: (make_case, lambda c: c.send(commit_request(5, c.leader, c.generation))),
    GroupTrigger.COMMIT_SIMPLE: (make_case, lambda case: case.send(commit_request())),
    GroupTrigger.OFFSET_FETCH: (make_case, lambda case: case.send(OffsetFetch(group=GROUP))),
    GroupTrigger.OFFSET_DELETE: (make_case, delete_offsets),
    GroupTrigger.DESCRIBE: (
        make_case,
        lambda c: c.send(DescribeGroups(groups=(GROUP,), supports_group_id_not_found=True)),
    ),
    GroupTrigger.DELETE: (make_case, lambda case: case.send(DeleteGroups(groups=(GROUP,)))),
    GroupTrigger.APPEND_FAILED: (make_case, fail_append),
    GroupTrigger.SESSION_TIMEOUT: (
        make_case,
        lambda case: case.fire(GroupTimerKind.SESSION, case.follower),
    ),
    GroupTrigger.SESSION_TIMEOUT_ID: (make_case, expire_assigned_id),
    GroupTrigger.INITIAL_DELAY: (make_full_case, end_initial_delay),
    GroupTrigger.JOIN_TIMEOUT: (make_case, end_join_phase),
    GroupTrigger.JOIN_TIMEOUT_NOBODY: (
        make_single_member_case,
        lambda case: case.fire(GroupTimerKind.JOIN),
    ),
    GroupTrigger.JOIN_TIMEOUT_STATIC: (
        lambda state: make_single_member_case(state, "s"),
        lambda case: case.fire(GroupTimerKind.JOIN),
    ),
    GroupTrigger.SYNC_TIMEOUT: (make_unsynced_case, end_sync_phase),
    GroupTrigger.RETENTION: (make_case, expire_offsets),
    GroupTrigger.UNLOADED: (make_case, unload_coordinator),
}


#: The members that remain after each effect that removes members.
REMAINING: dict[str, Callable[[Case], list[str]]] = {
    "removes all members": lambda case: [],
    "removes no member, and the join phase continues": lambda case: [case.static],
    "removes dynamic members that did not join": lambda case: [case.leader, case.static],
}


def test_no_cell_is_missing() -> None:
    cells = {(state, event) for state in GroupState for event in GroupTrigger}
    assert set(GROUP_OUTCOMES) == cells
    assert set(SCENARIOS) == set(GroupTrigger)
    assert set(REMAINING) <= {outcome.effect for outcome in GROUP_OUTCOMES.values()}


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("event", GroupTrigger)
def test_the_coordinator_does_what_the_table_says(state: GroupState, event: GroupTrigger) -> None:
    make, act = SCENARIOS[event]
    case = make(state)
    assert GroupState(case.driver.state()) is state
    outcome = GROUP_OUTCOMES[state, event]
    assert act(case) == outcome.code
    assert GroupState(case.driver.state()) is (outcome.next_state or state)
    if outcome.effect in REMAINING:
        assert case.driver.members() == REMAINING[outcome.effect](case)


def test_the_table_has_every_legal_transition() -> None:
    """A group that is founded is Empty first, and one that is emptied was preparing a rebalance."""
    through = {(STABLE, EMPTY), (COMPLETING, EMPTY), (DEAD, EMPTY), (DEAD, PREPARING)}
    moves = {(state, outcome.next_state) for (state, _), outcome in GROUP_OUTCOMES.items()}
    legal = set(GROUP_TRANSITIONS) | through
    assert moves == legal | {(state, None) for state in GroupState}
