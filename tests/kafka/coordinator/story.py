"""Sequences that a table of single requests does not show: what time does, and what follows."""

from __future__ import annotations

from collections.abc import Callable

from rota.model.offset import OffsetAndMetadata
from rota.model.request import (
    DeleteGroups,
    DeleteOffsets,
    FetchOffsets,
    Leaver,
    Protocol,
)
from rota.model.topic import TopicPartition
from tests.kafka.coordinator.actor import DELAY, OTHER, T0, Actor, supports
from tests.kafka.coordinator.stage import Stage
from tests.kafka.coordinator.state import (
    awaited,
    completing,
    completing_synced,
    first_generation,
    stable,
)

SHORT = 1_000
"""A session or rebalance timeout that a case waits for; the shortest that the broker allows."""
WITHIN = 500
BEYOND = 1_500
OFFSET = OffsetAndMetadata(7)


def members(stage: Stage, *names: str, **settings: object) -> list[Actor]:
    """New actors, alike."""
    return [Actor(stage, name, **settings) for name in names]  # type: ignore[arg-type]


def alone(stage: Stage, actor: Actor) -> None:
    """The actor makes the group's first generation alone."""
    actor.enter()
    stage.wait(DELAY)
    actor.sync(actor)


def formed(stage: Stage, leader: Actor, *others: Actor) -> None:
    """All are in one generation and have synced; each newcomer makes all others join again."""
    alone(stage, leader)
    present = [leader]
    for other in others:
        other.enter()
        for each in present:
            each.join()
        present.append(other)
    leader.sync(*present)
    for other in others:
        other.sync()


# the initial delay


def delay_is_extended(stage: Stage) -> None:
    a, b = members(stage, "a", "b")
    a.enter()
    b.enter()
    stage.wait(DELAY)
    stage.wait(DELAY)


def delay_ends_with_the_rebalance_timeout(stage: Stage) -> None:
    a, b = members(stage, "a", "b", rebalance_timeout=DELAY)
    a.enter()
    b.enter()
    stage.wait(DELAY)


def leaves_during_the_delay(stage: Stage) -> None:
    a, b = members(stage, "a", "b")
    a.enter()
    b.enter()
    a.leave()
    stage.wait(DELAY)
    stage.wait(DELAY)


def all_leave_during_the_delay(stage: Stage) -> None:
    (a,) = members(stage, "a")
    a.enter()
    a.leave()
    a.enter()
    stage.wait(DELAY)
    stage.wait(DELAY)


def nobody_is_left_after_the_delay(stage: Stage) -> None:
    (a,) = members(stage, "a")
    a.enter()
    a.leave()
    stage.wait(DELAY)
    alone(stage, a)


def given_id_expires_during_the_delay(stage: Stage) -> None:
    a, b, p = members(stage, "a", "b", "p")
    p.session_timeout = SHORT
    p.join()
    a.enter()
    b.enter()
    stage.wait(SHORT)


def emptied_group_delays_again(stage: Stage) -> None:
    group = stable(stage)
    group.b.leave()
    group.a.leave()
    group.a.enter()
    stage.wait(DELAY // 2)
    stage.wait(DELAY)
    group.a.sync(group.a)


# who is waited for


def silent_member_is_removed(stage: Stage) -> None:
    a, b = members(stage, "a", "b")
    b.session_timeout = SHORT
    formed(stage, a, b)
    stage.wait(BEYOND)
    a.heartbeat()
    b.heartbeat()
    a.join()
    a.sync(a)
    b.commit()


def last_member_falls_silent(stage: Stage) -> None:
    (a,) = members(stage, "a", session_timeout=SHORT)
    alone(stage, a)
    a.commit()
    stage.wait(BEYOND)
    a.heartbeat()


def heartbeats_keep_a_session(stage: Stage) -> None:
    (a,) = members(stage, "a", session_timeout=SHORT)
    alone(stage, a)
    for _ in range(3):
        stage.wait(WITHIN)
        a.heartbeat()


def commits_keep_a_session(stage: Stage) -> None:
    (a,) = members(stage, "a", session_timeout=SHORT)
    alone(stage, a)
    for offset in range(3):
        stage.wait(WITHIN)
        a.commit(offset)


def refused_heartbeats_keep_no_session(stage: Stage) -> None:
    (a,) = members(stage, "a", session_timeout=SHORT)
    alone(stage, a)
    for _ in range(3):
        stage.wait(WITHIN)
        a.heartbeat(generation=7)


def silent_before_its_sync(stage: Stage) -> None:
    a, b = members(stage, "a", "b")
    b.session_timeout = SHORT
    alone(stage, a)
    b.enter()
    a.join()
    stage.wait(BEYOND)
    a.heartbeat()


def parked_join_outlives_the_session(stage: Stage) -> None:
    group = awaited(stage)
    group.a.session_timeout = SHORT
    group.a.join()
    stage.wait(BEYOND)
    group.b.join()


def parked_sync_outlives_the_session(stage: Stage) -> None:
    a, b = members(stage, "a", "b")
    b.session_timeout = SHORT
    alone(stage, a)
    b.enter()
    a.join()
    b.sync()
    stage.wait(BEYOND)
    a.sync(a, b)


def absentee_is_dropped(stage: Stage) -> None:
    a, b = members(stage, "a", "b", rebalance_timeout=SHORT)
    alone(stage, a)
    b.enter()
    stage.wait(BEYOND)
    b.sync(b)
    a.heartbeat()


def longest_rebalance_timeout_counts(stage: Stage) -> None:
    a, b = members(stage, "a", "b", rebalance_timeout=SHORT)
    b.rebalance_timeout = 2 * SHORT
    alone(stage, a)
    b.enter()
    stage.wait(BEYOND)
    stage.wait(SHORT)


def static_absentee_stays(stage: Stage) -> None:
    a, b = members(stage, "a", "b", rebalance_timeout=SHORT)
    a.static_id = "i1"
    alone(stage, a)
    b.enter()
    stage.wait(BEYOND)
    b.sync(b, a)
    a.heartbeat()


def static_members_alone_are_awaited_again(stage: Stage) -> None:
    a, b = members(stage, "a", "b", rebalance_timeout=SHORT)
    a.static_id = "i1"
    formed(stage, a, b)
    b.leave()
    stage.wait(BEYOND)
    a.join()


def static_member_falls_silent(stage: Stage) -> None:
    a, b = members(stage, "a", "b")
    b.static_id = "i2"
    b.session_timeout = SHORT
    formed(stage, a, b)
    stage.wait(BEYOND)
    a.join()
    b.heartbeat()


def given_id_holds_up_a_join(stage: Stage) -> None:
    group = stable(stage)
    p = Actor(stage, "p", session_timeout=SHORT)
    p.join()
    group.a.join()
    group.b.join()
    stage.wait(BEYOND)


def given_id_that_leaves_holds_up_no_longer(stage: Stage) -> None:
    group = stable(stage)
    p = Actor(stage, "p")
    p.join()
    group.a.join()
    group.b.join()
    p.leave()


def given_id_expires(stage: Stage) -> None:
    group = stable(stage)
    p = Actor(stage, "p", session_timeout=SHORT)
    p.join()
    stage.wait(BEYOND)
    p.join()
    group.a.heartbeat()


def awaited_member_leaves(stage: Stage) -> None:
    group = awaited(stage)
    group.a.join()
    group.b.leave()


def follower_never_syncs(stage: Stage) -> None:
    a, b = members(stage, "a", "b", rebalance_timeout=SHORT)
    alone(stage, a)
    b.enter()
    a.join()
    a.sync(a, b)
    stage.wait(BEYOND)
    b.sync()
    a.heartbeat()
    a.join()


def leader_never_syncs(stage: Stage) -> None:
    a, b = members(stage, "a", "b", rebalance_timeout=SHORT)
    alone(stage, a)
    b.enter()
    a.join()
    b.sync()
    stage.wait(BEYOND)
    a.sync(a, b)
    b.join()


def nobody_syncs(stage: Stage) -> None:
    a, b = members(stage, "a", "b", rebalance_timeout=SHORT)
    alone(stage, a)
    b.enter()
    a.join()
    stage.wait(BEYOND)


# generations


def leader_joins_again(stage: Stage) -> None:
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


def follower_joins_again_with_the_same(stage: Stage) -> None:
    group = stable(stage)
    group.b.join()
    group.b.sync()
    group.a.heartbeat()


def answer_to_a_join_is_lost(stage: Stage) -> None:
    group = completing(stage)
    group.a.join()
    group.b.join()
    group.a.sync(group.a, group.b)
    group.b.sync()


def newcomer_ends_a_sync(stage: Stage) -> None:
    group = completing_synced(stage)
    c = Actor(stage, "c")
    c.enter()
    group.b.heartbeat()
    group.a.join()
    group.b.join()
    group.a.sync(group.a, group.b, c)


def changed_member_ends_a_sync(stage: Stage) -> None:
    group = completing_synced(stage)
    group.a.join(protocols=supports("range", topics=("other",)))
    group.b.join()


def left_behind(stage: Stage) -> None:
    """What one that was left behind can still do: nothing."""
    group = stable(stage)
    generation = group.b.generation
    group.a.join()
    group.b.join()
    group.a.sync(group.a, group.b)
    group.b.sync(generation=generation)
    group.b.heartbeat(generation=generation)
    group.b.commit(generation=generation)


def generations_go_on_after_empty(stage: Stage) -> None:
    group = stable(stage)
    group.a.leave(*(Leaver(member_id=each.member_id) for each in (group.a, group.b)))
    alone(stage, group.b)
    group.a.heartbeat()


def generations_begin_anew_after_deletion(stage: Stage) -> None:
    group = stable(stage)
    group.b.leave()
    group.a.leave()
    stage.send("admin", DeleteGroups(groups=(stage.group,)))
    alone(stage, group.b)


def other_type_after_empty(stage: Stage) -> None:
    (a,) = members(stage, "a")
    alone(stage, a)
    a.leave()
    w = Actor(stage, "w", protocol_type="connect", protocols=(Protocol("range", b"worker"),))
    alone(stage, w)


def old_client_joins(stage: Stage) -> None:
    (a,) = members(stage, "a")
    a.join(knows_id_first=False, knows_skip=False)
    stage.wait(DELAY)
    a.sync(a, protocol=None, protocol_type=None)
    a.join(knows_id_first=False, knows_skip=False)


# strategies


def majority_elects(stage: Stage) -> None:
    a, b, c = members(stage, "a", "b", "c")
    for one in (b, c):
        one.protocols = supports("roundrobin", "range")
    alone(stage, a)
    b.enter()
    c.enter()
    a.join()


def only_common_strategies_count(stage: Stage) -> None:
    a, b = members(stage, "a", "b")
    a.protocols = supports("sticky", "roundrobin", "range")
    b.protocols = supports("range", "cooperative-sticky")
    alone(stage, a)
    b.enter()
    a.join()


def strategy_is_dropped_by_all(stage: Stage) -> None:
    group = stable(stage)
    group.a.join(protocols=supports("roundrobin"))
    group.b.join(protocols=supports("range"))
    group.b.join(protocols=supports("range", "roundrobin"))


def only_member_changes_all_strategies(stage: Stage) -> None:
    (a,) = members(stage, "a")
    alone(stage, a)
    a.join(protocols=supports("sticky"))


def newcomer_has_no_common_strategy(stage: Stage) -> None:
    group = stable(stage)
    c = Actor(stage, "c", protocols=supports("sticky"))
    c.join()
    c.join(member_id=group.b.member_id)
    group.a.heartbeat()


# static members


def replaced_process_is_fenced(stage: Stage) -> None:
    group = stable(stage, static=True)
    again = Actor(stage, "again", "i2")
    again.enter()
    group.b.heartbeat()
    group.b.sync()
    group.b.commit()
    group.b.join()
    group.b.leave()
    again.sync()
    again.heartbeat()
    again.commit()


def leader_comes_back(stage: Stage) -> None:
    group = stable(stage, static=True)
    again = Actor(stage, "again", "i1")
    again.enter()
    again.sync()
    again.heartbeat()
    group.b.heartbeat()
    again.join()


def leader_comes_back_with_version_8(stage: Stage) -> None:
    group = stable(stage, static=True)
    again = Actor(stage, "again", "i1")
    again.join(knows_skip=False)
    again.sync()
    group.b.heartbeat()


def comes_back_with_other_metadata(stage: Stage) -> None:
    """The strategy stays the same, so nobody rebalances, and the leader is not told."""
    group = stable(stage, static=True)
    again = Actor(stage, "again", "i2", protocols=supports("range", topics=("other",)))
    again.enter()
    again.sync()
    group.a.join()


def comes_back_and_changes_the_vote(stage: Stage) -> None:
    (a,) = members(stage, "a", static_id="i1")
    alone(stage, a)
    again = Actor(stage, "again", "i1", protocols=supports("roundrobin", "range"))
    again.enter()
    again.sync(again, protocol="roundrobin")


def comes_back_while_awaited(stage: Stage) -> None:
    group = awaited(stage, static=True)
    again = Actor(stage, "again", "i2")
    again.enter()
    group.a.join()


def comes_back_while_its_join_is_parked(stage: Stage) -> None:
    group = awaited(stage, static=True)
    group.b.join()
    again = Actor(stage, "again", "i2")
    again.enter()
    group.a.join()


def comes_back_while_completing(stage: Stage) -> None:
    group = completing_synced(stage, static=True)
    again = Actor(stage, "again", "i2")
    again.enter()
    group.a.join()
    group.a.sync(group.a, again)
    again.sync()


def leader_comes_back_while_completing(stage: Stage) -> None:
    group = completing_synced(stage, static=True)
    again = Actor(stage, "again", "i1")
    again.enter()
    group.b.join()
    again.sync(again, group.b)


def comes_back_during_the_delay(stage: Stage) -> None:
    (a,) = members(stage, "a", static_id="i1")
    a.enter()
    again = Actor(stage, "again", "i1")
    again.enter()
    stage.wait(DELAY)
    again.sync(again)


def admin_removes_static_members(stage: Stage) -> None:
    group = stable(stage, static=True)
    group.newcomer.leave(Leaver(static_id="i1"), Leaver(static_id="i7"))
    group.a.heartbeat()
    group.b.join()


def static_leaver_comes_back(stage: Stage) -> None:
    group = stable(stage, static=True)
    group.b.leave()
    group.b.enter()
    group.a.join()


# a full group


def given_ids_take_no_room(stage: Stage) -> None:
    group = stable(stage)
    c, d = members(stage, "c", "d")
    c.join()
    d.join()
    c.join()
    group.a.heartbeat()


def full_while_completing(stage: Stage) -> None:
    group = completing(stage)
    c, d = members(stage, "c", "d")
    c.enter()
    group.a.join()
    group.b.join()
    d.join()
    d.join(static_id="i9")


# offsets


def commits_through_a_rebalance(stage: Stage) -> None:
    group = awaited(stage)
    group.a.commit(11)
    group.b.commit(12)
    group.a.join()
    group.b.join()
    group.a.commit(13)
    stage.send("admin", FetchOffsets(group=stage.group))


def simple_group_gets_members(stage: Stage) -> None:
    outsider = Actor(stage, "o")
    outsider.commit(5)
    (a,) = members(stage, "a")
    a.enter()
    outsider.commit(6)
    stage.wait(DELAY)
    outsider.commit(6)
    a.sync(a)
    outsider.commit(6)
    a.commit(7)
    a.leave()
    outsider.commit(8)


def offsets_of_other_topics_are_deleted(stage: Stage) -> None:
    group = stable(stage)
    group.a.commit(offsets={T0: OFFSET, OTHER: OFFSET})
    stage.send("admin", DeleteOffsets(group=stage.group, partitions=(T0, OTHER)))
    stage.send("admin", FetchOffsets(group=stage.group))
    group.a.join(protocols=supports("range", topics=("other",)))
    group.b.join(protocols=supports("range", topics=("other",)))
    stage.send("admin", DeleteOffsets(group=stage.group, partitions=(T0, OTHER)))


def topic_is_deleted(stage: Stage) -> None:
    doomed = TopicPartition("doomed", 0)
    stage.create_topic(doomed.topic)
    group = stable(stage)
    group.a.commit(offsets={T0: OFFSET, doomed: OFFSET})
    stage.delete_topic(doomed.topic)
    stage.look(FetchOffsets(group=stage.group))


def unreadable_subscriptions_are_taken_for_all(stage: Stage) -> None:
    (a,) = members(stage, "a", protocols=(Protocol("range", b"?"),))
    alone(stage, a)
    a.commit()
    stage.send("admin", DeleteOffsets(group=stage.group, partitions=(T0, OTHER)))


def offsets_outlive_members(stage: Stage) -> None:
    group = first_generation(stage, static=False)
    group.a.leave()
    stage.send("admin", FetchOffsets(group=stage.group))
    stage.send("admin", DeleteOffsets(group=stage.group, partitions=(T0,)))
    stage.send("admin", FetchOffsets(group=stage.group))


def awaited_member_falls_silent(stage: Stage) -> None:
    a, b = members(stage, "a", "b")
    a.session_timeout = SHORT
    alone(stage, a)
    b.enter()
    stage.wait(BEYOND)
    a.join()


def heartbeats_keep_an_awaited_member(stage: Stage) -> None:
    a, b = members(stage, "a", "b")
    a.session_timeout = SHORT
    alone(stage, a)
    b.enter()
    for _ in range(3):
        stage.wait(WITHIN)
        a.heartbeat()
    a.join()


def commits_keep_an_awaited_member(stage: Stage) -> None:
    a, b = members(stage, "a", "b")
    a.session_timeout = SHORT
    alone(stage, a)
    b.enter()
    for offset in range(3):
        stage.wait(WITHIN)
        a.commit(offset)
    a.join()


def no_time_to_join(stage: Stage) -> None:
    a, b = members(stage, "a", "b", rebalance_timeout=0)
    alone(stage, a)
    b.enter()
    stage.wait(WITHIN)


def negative_time_to_join(stage: Stage) -> None:
    a, b = members(stage, "a", "b", rebalance_timeout=-1)
    alone(stage, a)
    b.enter()
    stage.wait(WITHIN)


def leader_leaves_before_its_sync(stage: Stage) -> None:
    group = completing_synced(stage)
    group.a.leave()
    group.b.join()
    group.b.sync(group.b)


def parked_join_is_sent_again(stage: Stage) -> None:
    group = awaited(stage)
    group.a.join()
    group.a.join(protocols=supports("roundrobin", "range"))
    group.b.join()


def parked_sync_is_sent_again(stage: Stage) -> None:
    group = completing_synced(stage)
    group.b.sync()
    group.a.sync(group.a, group.b)


def two_processes_share_a_static_id(stage: Stage) -> None:
    one, other = members(stage, "one", "other", static_id="i1")
    alone(stage, one)
    for _ in range(2):
        other.enter()
        one.heartbeat()
        one.enter()
        other.heartbeat()


def id_is_asked_for_twice(stage: Stage) -> None:
    group = stable(stage)
    p = Actor(stage, "p", session_timeout=SHORT)
    p.join()
    p.enter()
    group.a.join()
    group.b.join()
    stage.wait(BEYOND)


STORIES: dict[str, Callable[[Stage], None]] = {
    story.__name__.replace("_", " "): story
    for story in (
        delay_is_extended,
        delay_ends_with_the_rebalance_timeout,
        leaves_during_the_delay,
        all_leave_during_the_delay,
        nobody_is_left_after_the_delay,
        given_id_expires_during_the_delay,
        emptied_group_delays_again,
        silent_member_is_removed,
        last_member_falls_silent,
        heartbeats_keep_a_session,
        commits_keep_a_session,
        refused_heartbeats_keep_no_session,
        silent_before_its_sync,
        parked_join_outlives_the_session,
        parked_sync_outlives_the_session,
        absentee_is_dropped,
        longest_rebalance_timeout_counts,
        static_absentee_stays,
        static_members_alone_are_awaited_again,
        static_member_falls_silent,
        given_id_holds_up_a_join,
        given_id_that_leaves_holds_up_no_longer,
        given_id_expires,
        awaited_member_leaves,
        follower_never_syncs,
        leader_never_syncs,
        nobody_syncs,
        leader_joins_again,
        follower_joins_again_with_the_same,
        answer_to_a_join_is_lost,
        newcomer_ends_a_sync,
        changed_member_ends_a_sync,
        left_behind,
        generations_go_on_after_empty,
        generations_begin_anew_after_deletion,
        other_type_after_empty,
        old_client_joins,
        majority_elects,
        only_common_strategies_count,
        strategy_is_dropped_by_all,
        only_member_changes_all_strategies,
        newcomer_has_no_common_strategy,
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
        admin_removes_static_members,
        static_leaver_comes_back,
        given_ids_take_no_room,
        full_while_completing,
        commits_through_a_rebalance,
        simple_group_gets_members,
        offsets_of_other_topics_are_deleted,
        topic_is_deleted,
        unreadable_subscriptions_are_taken_for_all,
        offsets_outlive_members,
        awaited_member_falls_silent,
        heartbeats_keep_an_awaited_member,
        commits_keep_an_awaited_member,
        no_time_to_join,
        negative_time_to_join,
        leader_leaves_before_its_sync,
        parked_join_is_sent_again,
        parked_sync_is_sent_again,
        two_processes_share_a_static_id,
        id_is_asked_for_twice,
    )
}
