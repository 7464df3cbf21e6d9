"""Which strategy a generation uses."""

from __future__ import annotations

from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.scripted_member import ScriptedMember, supports
from tests.support.coordinator.state import stable
from tests.support.coordinator.story.company import alone, members


def majority_elects(stage: CaseRun) -> None:
    a, b, c = members(stage, "a", "b", "c")
    for one in (b, c):
        one.protocols = supports("roundrobin", "range")
    alone(stage, a)
    b.enter()
    c.enter()
    a.join()


def only_common_strategies_count(stage: CaseRun) -> None:
    a, b = members(stage, "a", "b")
    a.protocols = supports("sticky", "roundrobin", "range")
    b.protocols = supports("range", "cooperative-sticky")
    alone(stage, a)
    b.enter()
    a.join()


def strategy_is_dropped_by_all(stage: CaseRun) -> None:
    group = stable(stage)
    group.a.join(protocols=supports("roundrobin"))
    group.b.join(protocols=supports("range"))
    group.b.join(protocols=supports("range", "roundrobin"))


def only_member_changes_all_strategies(stage: CaseRun) -> None:
    (a,) = members(stage, "a")
    alone(stage, a)
    a.join(protocols=supports("sticky"))


def newcomer_has_no_common_strategy(stage: CaseRun) -> None:
    group = stable(stage)
    c = ScriptedMember(stage, "c", protocols=supports("sticky"))
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
