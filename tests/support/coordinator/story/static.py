"""Static members that come back (KIP-345), and the processes they replace."""

from __future__ import annotations

from rota.engine.model.request import LeavingMember
from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.scripted_member import DELAY, ScriptedMember, join_protocols
from tests.support.coordinator.state import awaited, completing_synced, stable
from tests.support.coordinator.story.group_setup import create_members, form_group_alone


def replaced_process_is_fenced(stage: CaseRun) -> None:
    group = stable(stage, static=True)
    again = ScriptedMember(stage, "again", "i2")
    again.enter()
    group.b.heartbeat()
    group.b.sync()
    group.b.commit()
    group.b.join()
    group.b.leave()
    again.sync()
    again.heartbeat()
    again.commit()


def leader_comes_back(stage: CaseRun) -> None:
    group = stable(stage, static=True)
    again = ScriptedMember(stage, "again", "i1")
    again.enter()
    again.sync()
    again.heartbeat()
    group.b.heartbeat()
    again.join()


def leader_comes_back_with_version_8(stage: CaseRun) -> None:
    group = stable(stage, static=True)
    again = ScriptedMember(stage, "again", "i1")
    again.join(supports_skip_assignment=False)
    again.sync()
    group.b.heartbeat()


def comes_back_with_other_metadata(stage: CaseRun) -> None:
    """The strategy stays the same, so nobody rebalances, and the leader is not told."""
    group = stable(stage, static=True)
    again = ScriptedMember(
        stage, "again", "i2", protocols=join_protocols("range", topics=("other",))
    )
    again.enter()
    again.sync()
    group.a.join()


def comes_back_and_changes_the_vote(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a", group_instance_id="i1")
    form_group_alone(stage, a)
    again = ScriptedMember(stage, "again", "i1", protocols=join_protocols("roundrobin", "range"))
    again.enter()
    again.sync(again, protocol="roundrobin")


def comes_back_while_awaited(stage: CaseRun) -> None:
    group = awaited(stage, static=True)
    again = ScriptedMember(stage, "again", "i2")
    again.enter()
    group.a.join()


def comes_back_while_its_join_is_parked(stage: CaseRun) -> None:
    group = awaited(stage, static=True)
    group.b.join()
    again = ScriptedMember(stage, "again", "i2")
    again.enter()
    group.a.join()


def comes_back_while_completing(stage: CaseRun) -> None:
    group = completing_synced(stage, static=True)
    again = ScriptedMember(stage, "again", "i2")
    again.enter()
    group.a.join()
    group.a.sync(group.a, again)
    again.sync()


def leader_comes_back_while_completing(stage: CaseRun) -> None:
    group = completing_synced(stage, static=True)
    again = ScriptedMember(stage, "again", "i1")
    again.enter()
    group.b.join()
    again.sync(again, group.b)


def comes_back_during_the_delay(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a", group_instance_id="i1")
    a.enter()
    again = ScriptedMember(stage, "again", "i1")
    again.enter()
    stage.wait(DELAY)
    again.sync(again)


def two_processes_share_a_static_id(stage: CaseRun) -> None:
    one, other = create_members(stage, "one", "other", group_instance_id="i1")
    form_group_alone(stage, one)
    for _ in range(2):
        other.enter()
        one.heartbeat()
        one.enter()
        other.heartbeat()


def admin_removes_static_members(stage: CaseRun) -> None:
    group = stable(stage, static=True)
    group.newcomer.leave(
        LeavingMember(group_instance_id="i1"), LeavingMember(group_instance_id="i7")
    )
    group.a.heartbeat()
    group.b.join()


def static_leaver_comes_back(stage: CaseRun) -> None:
    group = stable(stage, static=True)
    group.b.leave()
    group.b.enter()
    group.a.join()


STORIES = (
    replaced_process_is_fenced,
    leader_comes_back,
    leader_comes_back_with_version_8,
    comes_back_with_other_metadata,
    comes_back_and_changes_the_vote,
    comes_back_while_awaited,
    comes_back_while_its_join_is_parked,
    comes_back_while_completing,
    leader_comes_back_while_completing,
    comes_back_during_the_delay,
    two_processes_share_a_static_id,
    admin_removes_static_members,
    static_leaver_comes_back,
)
