"""Which strategy a generation uses."""

from __future__ import annotations

from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.scripted_member import ScriptedMember, join_protocols
from tests.support.coordinator.state import stable
from tests.support.coordinator.story.group_setup import create_members, form_group_alone


def majority_elects(stage: CaseRun) -> None:
    a, b, c = create_members(stage, "a", "b", "c")
    for one in (b, c):
        one.protocols = join_protocols("roundrobin", "range")
    form_group_alone(stage, a)
    b.enter()
    c.enter()
    a.join()


def only_common_strategies_count(stage: CaseRun) -> None:
    a, b = create_members(stage, "a", "b")
    a.protocols = join_protocols("sticky", "roundrobin", "range")
    b.protocols = join_protocols("range", "cooperative-sticky")
    form_group_alone(stage, a)
    b.enter()
    a.join()


def strategy_is_dropped_by_all(stage: CaseRun) -> None:
    group = stable(stage)
    group.a.join(protocols=join_protocols("roundrobin"))
    group.b.join(protocols=join_protocols("range"))
    group.b.join(protocols=join_protocols("range", "roundrobin"))


def only_member_changes_all_strategies(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a")
    form_group_alone(stage, a)
    a.join(protocols=join_protocols("sticky"))


def newcomer_has_no_common_strategy(stage: CaseRun) -> None:
    group = stable(stage)
    c = ScriptedMember(stage, "c", protocols=join_protocols("sticky"))
    c.join()
    c.join(member_id=group.b.member_id)
    group.a.heartbeat()


STORIES = (
    majority_elects,
    only_common_strategies_count,
    strategy_is_dropped_by_all,
    only_member_changes_all_strategies,
    newcomer_has_no_common_strategy,
)
