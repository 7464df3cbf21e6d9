"""From one generation to the next."""

from __future__ import annotations

from rota.engine.model.request import DeleteGroups, JoinGroupProtocol, LeavingMember
from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.scripted_member import DELAY, ScriptedMember, join_protocols
from tests.support.coordinator.state import awaited, completing, completing_synced, stable
from tests.support.coordinator.story.group_setup import create_members, form_group_alone


def leader_joins_again(stage: CaseRun) -> None:
    group = stable(stage)
    group.a.join()
    group.b.heartbeat()
    group.b.commit()
    group.b.sync()
    group.b.join()
    group.b.heartbeat()
    group.b.commit()
    group.a.sync(group.a, group.b)
    group.b.sync()
    group.b.commit()


def follower_joins_again_with_the_same(stage: CaseRun) -> None:
    group = stable(stage)
    group.b.join()
    group.b.sync()
    group.a.heartbeat()


def answer_to_a_join_is_lost(stage: CaseRun) -> None:
    group = completing(stage)
    group.a.join()
    group.b.join()
    group.a.sync(group.a, group.b)
    group.b.sync()


def parked_join_is_sent_again(stage: CaseRun) -> None:
    group = awaited(stage)
    group.a.join()
    group.a.join(protocols=join_protocols("roundrobin", "range"))
    group.b.join()


def parked_sync_is_sent_again(stage: CaseRun) -> None:
    group = completing_synced(stage)
    group.b.sync()
    group.a.sync(group.a, group.b)


def newcomer_ends_a_sync(stage: CaseRun) -> None:
    group = completing_synced(stage)
    c = ScriptedMember(stage, "c")
    c.enter()
    group.b.heartbeat()
    group.a.join()
    group.b.join()
    group.a.sync(group.a, group.b, c)


def changed_member_ends_a_sync(stage: CaseRun) -> None:
    group = completing_synced(stage)
    group.a.join(protocols=join_protocols("range", topics=("other",)))
    group.b.join()


def left_behind(stage: CaseRun) -> None:
    """What one that was left behind can still do: nothing."""
    group = stable(stage)
    generation = group.b.generation
    group.a.join()
    group.b.join()
    group.a.sync(group.a, group.b)
    group.b.sync(generation=generation)
    group.b.heartbeat(generation=generation)
    group.b.commit(generation=generation)


def generations_go_on_after_empty(stage: CaseRun) -> None:
    group = stable(stage)
    group.a.leave(*(LeavingMember(member_id=each.member_id) for each in (group.a, group.b)))
    form_group_alone(stage, group.b)
    group.a.heartbeat()


def generations_begin_anew_after_deletion(stage: CaseRun) -> None:
    group = stable(stage)
    group.b.leave()
    group.a.leave()
    stage.send("admin", DeleteGroups(groups=(stage.group,)))
    form_group_alone(stage, group.b)


def other_type_after_empty(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a")
    form_group_alone(stage, a)
    a.leave()
    w = ScriptedMember(
        stage, "w", protocol_type="connect", protocols=(JoinGroupProtocol("range", b"worker"),)
    )
    form_group_alone(stage, w)


def old_client_joins(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a")
    a.join(supports_member_id_required=False, supports_skip_assignment=False)
    stage.wait(DELAY)
    a.sync(a, protocol=None, protocol_type=None)
    a.join(supports_member_id_required=False, supports_skip_assignment=False)


def given_ids_take_no_room(stage: CaseRun) -> None:
    group = stable(stage)
    c, d = create_members(stage, "c", "d")
    c.join()
    d.join()
    c.join()
    group.a.heartbeat()


def full_while_completing(stage: CaseRun) -> None:
    group = completing(stage)
    c, d = create_members(stage, "c", "d")
    c.enter()
    group.a.join()
    group.b.join()
    d.join()
    d.join(group_instance_id="i9")


STORIES = (
    leader_joins_again,
    follower_joins_again_with_the_same,
    answer_to_a_join_is_lost,
    parked_join_is_sent_again,
    parked_sync_is_sent_again,
    newcomer_ends_a_sync,
    changed_member_ends_a_sync,
    left_behind,
    generations_go_on_after_empty,
    generations_begin_anew_after_deletion,
    other_type_after_empty,
    old_client_joins,
    given_ids_take_no_room,
    full_while_completing,
)
