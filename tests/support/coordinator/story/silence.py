"""Sessions: whose silence counts, and what keeps them alive."""

from __future__ import annotations

from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.state import awaited
from tests.support.coordinator.story.group_setup import (
    BEYOND,
    SHORT,
    WITHIN,
    create_members,
    form_group,
    form_group_alone,
)


def silent_member_is_removed(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b")
    b.session_timeout = SHORT
    form_group(stage, a, b)
    stage.wait(BEYOND)
    a.heartbeat()
    b.heartbeat()
    a.join()
    a.sync(a)
    b.commit()


def last_member_falls_silent(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a", session_timeout=SHORT)
    form_group_alone(stage, a)
    a.commit()
    stage.wait(BEYOND)
    a.heartbeat()


def heartbeats_keep_a_session(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a", session_timeout=SHORT)
    form_group_alone(stage, a)
    for _ in range(3):
        stage.wait(WITHIN)
        a.heartbeat()


def commits_keep_a_session(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a", session_timeout=SHORT)
    form_group_alone(stage, a)
    for offset in range(3):
        stage.wait(WITHIN)
        a.commit(offset)


def refused_heartbeats_keep_no_session(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a", session_timeout=SHORT)
    form_group_alone(stage, a)
    for _ in range(3):
        stage.wait(WITHIN)
        a.heartbeat(generation=7)


def silent_before_its_sync(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b")
    b.session_timeout = SHORT
    form_group_alone(stage, a)
    b.enter()
    a.join()
    stage.wait(BEYOND)
    a.heartbeat()


def parked_join_outlives_the_session(stage: CaseRun) -> None:
    group = awaited(stage)
    group.a.session_timeout = SHORT
    group.a.join()
    stage.wait(BEYOND)
    group.b.join()


def parked_sync_outlives_the_session(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b")
    b.session_timeout = SHORT
    form_group_alone(stage, a)
    b.enter()
    a.join()
    b.sync()
    stage.wait(BEYOND)
    a.sync(a, b)


def static_member_falls_silent(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b")
    b.group_instance_id = "i2"
    b.session_timeout = SHORT
    form_group(stage, a, b)
    stage.wait(BEYOND)
    a.join()
    b.heartbeat()


def awaited_member_falls_silent(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b")
    a.session_timeout = SHORT
    form_group_alone(stage, a)
    b.enter()
    stage.wait(BEYOND)
    a.join()


def heartbeats_keep_an_awaited_member(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b")
    a.session_timeout = SHORT
    form_group_alone(stage, a)
    b.enter()
    for _ in range(3):
        stage.wait(WITHIN)
        a.heartbeat()
    a.join()


def commits_keep_an_awaited_member(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b")
    a.session_timeout = SHORT
    form_group_alone(stage, a)
    b.enter()
    for offset in range(3):
        stage.wait(WITHIN)
        a.commit(offset)
    a.join()


STORIES = (
    silent_member_is_removed,
    last_member_falls_silent,
    heartbeats_keep_a_session,
    commits_keep_a_session,
    refused_heartbeats_keep_no_session,
    silent_before_its_sync,
    parked_join_outlives_the_session,
    parked_sync_outlives_the_session,
    static_member_falls_silent,
    awaited_member_falls_silent,
    heartbeats_keep_an_awaited_member,
    commits_keep_an_awaited_member,
)
