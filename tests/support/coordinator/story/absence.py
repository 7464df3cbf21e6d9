"""Who is waited for, how long, and what becomes of those who do not come."""

from __future__ import annotations

from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.scripted_member import ScriptedMember
from tests.support.coordinator.state import awaited, completing_synced, stable
from tests.support.coordinator.story.group_setup import (
    BEYOND,
    SHORT,
    WITHIN,
    create_members,
    form_group,
    form_group_alone,
)


def absentee_is_dropped(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b", rebalance_timeout=SHORT)
    form_group_alone(stage, a)
    b.enter()
    stage.wait(BEYOND)
    b.sync(b)
    a.heartbeat()


def longest_rebalance_timeout_counts(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b", rebalance_timeout=SHORT)
    b.rebalance_timeout = 2 * SHORT
    form_group_alone(stage, a)
    b.enter()
    stage.wait(BEYOND)
    stage.wait(SHORT)


def no_time_to_join(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b", rebalance_timeout=0)
    form_group_alone(stage, a)
    b.enter()
    stage.wait(WITHIN)


def negative_time_to_join(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b", rebalance_timeout=-1)
    form_group_alone(stage, a)
    b.enter()
    stage.wait(WITHIN)


def static_absentee_stays(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b", rebalance_timeout=SHORT)
    a.group_instance_id = "i1"
    form_group_alone(stage, a)
    b.enter()
    stage.wait(BEYOND)
    b.sync(b, a)
    a.heartbeat()


def static_members_alone_are_awaited_again(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b", rebalance_timeout=SHORT)
    a.group_instance_id = "i1"
    form_group(stage, a, b)
    b.leave()
    stage.wait(BEYOND)
    a.join()


def given_id_holds_up_a_join(stage: CaseRun) -> None:
    group = stable(stage)
    p = ScriptedMember(stage, "p", session_timeout=SHORT)
    p.join()
    group.a.join()
    group.b.join()
    stage.wait(BEYOND)


def given_id_that_leaves_holds_up_no_longer(stage: CaseRun) -> None:
    group = stable(stage)
    p = ScriptedMember(stage, "p")
    p.join()
    group.a.join()
    group.b.join()
    p.leave()


def given_id_expires(stage: CaseRun) -> None:
    group = stable(stage)
    p = ScriptedMember(stage, "p", session_timeout=SHORT)
    p.join()
    stage.wait(BEYOND)
    p.join()
    group.a.heartbeat()


def id_is_asked_for_twice(stage: CaseRun) -> None:
    group = stable(stage)
    p = ScriptedMember(stage, "p", session_timeout=SHORT)
    p.join()
    p.enter()
    group.a.join()
    group.b.join()
    stage.wait(BEYOND)


def awaited_member_leaves(stage: CaseRun) -> None:
    group = awaited(stage)
    group.a.join()
    group.b.leave()


def follower_never_syncs(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b", rebalance_timeout=SHORT)
    form_group_alone(stage, a)
    b.enter()
    a.join()
    a.sync(a, b)
    stage.wait(BEYOND)
    b.sync()
    a.heartbeat()
    a.join()


def leader_never_syncs(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b", rebalance_timeout=SHORT)
    form_group_alone(stage, a)
    b.enter()
    a.join()
    b.sync()
    stage.wait(BEYOND)
    a.sync(a, b)
    b.join()


def nobody_syncs(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b", rebalance_timeout=SHORT)
    form_group_alone(stage, a)
    b.enter()
    a.join()
    stage.wait(BEYOND)


def leader_leaves_before_its_sync(stage: CaseRun) -> None:
    group = completing_synced(stage)
    group.a.leave()
    group.b.join()
    group.b.sync(group.b)


STORIES = (
    absentee_is_dropped,
    longest_rebalance_timeout_counts,
    no_time_to_join,
    negative_time_to_join,
    static_absentee_stays,
    static_members_alone_are_awaited_again,
    given_id_holds_up_a_join,
    given_id_that_leaves_holds_up_no_longer,
    given_id_expires,
    id_is_asked_for_twice,
    awaited_member_leaves,
    follower_never_syncs,
    leader_never_syncs,
    nobody_syncs,
    leader_leaves_before_its_sync,
)
