"""The initial delay of a group that was empty."""

from __future__ import annotations

from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.scripted_member import DELAY
from tests.support.coordinator.state import stable
from tests.support.coordinator.story.group_setup import SHORT, create_members, form_group_alone


def delay_is_extended(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b")
    a.enter()
    b.enter()
    stage.wait(DELAY)
    stage.wait(DELAY)


def delay_ends_with_the_rebalance_timeout(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b", rebalance_timeout=DELAY)
    a.enter()
    b.enter()
    stage.wait(DELAY)


def leaves_during_the_delay(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b")
    a.enter()
    b.enter()
    a.leave()
    stage.wait(DELAY)
    stage.wait(DELAY)


def all_leave_during_the_delay(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a")
    a.enter()
    a.leave()
    a.enter()
    stage.wait(DELAY)
    stage.wait(DELAY)


def nobody_is_left_after_the_delay(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a")
    a.enter()
    a.leave()
    stage.wait(DELAY)
    form_group_alone(stage, a)


def given_id_expires_during_the_delay(stage: CaseRun) -> None:
    a, b, p = create_members(stage, "a", "b", "p")
    p.session_timeout = SHORT
    p.join()
    a.enter()
    b.enter()
    stage.wait(SHORT)


def emptied_group_delays_again(stage: CaseRun) -> None:
    group = stable(stage)
    group.b.leave()
    group.a.leave()
    group.a.enter()
    stage.wait(DELAY // 2)
    stage.wait(DELAY)
    group.a.sync(group.a)


STORIES = (
    delay_is_extended,
    delay_ends_with_the_rebalance_timeout,
    leaves_during_the_delay,
    all_leave_during_the_delay,
    nobody_is_left_after_the_delay,
    given_id_expires_during_the_delay,
    emptied_group_delays_again,
)
