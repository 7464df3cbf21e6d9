"""Offsets through a group's life."""

from __future__ import annotations

from rota.engine.model.request import JoinGroupProtocol, OffsetDelete, OffsetFetch
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from tests.support.coordinator.case_run import CaseRun
from tests.support.coordinator.scripted_member import (
    DELAY,
    OTHER,
    T0,
    ScriptedMember,
    join_protocols,
)
from tests.support.coordinator.state import awaited, first_generation, stable
from tests.support.coordinator.story.group_setup import create_members, form_group_alone

OFFSET = OffsetAndMetadata(7)


def commits_through_a_rebalance(stage: CaseRun) -> None:
    group = awaited(stage)
    group.a.commit(11)
    group.b.commit(12)
    group.a.join()
    group.b.join()
    group.a.commit(13)
    stage.send("admin", OffsetFetch(group=stage.group))


def simple_group_gets_members(stage: CaseRun) -> None:
    outsider = ScriptedMember(stage, "o")
    outsider.commit(5)
    (a,) = create_members(stage, "a")
    a.enter()
    outsider.commit(6)
    stage.wait(DELAY)
    outsider.commit(6)
    a.sync(a)
    outsider.commit(6)
    a.commit(7)
    a.leave()
    outsider.commit(8)


def offsets_of_other_topics_are_deleted(stage: CaseRun) -> None:
    group = stable(stage)
    group.a.commit(offsets={T0: OFFSET, OTHER: OFFSET})
    stage.send("admin", OffsetDelete(group=stage.group, partitions=(T0, OTHER)))
    stage.send("admin", OffsetFetch(group=stage.group))
    group.a.join(protocols=join_protocols("range", topics=("other",)))
    group.b.join(protocols=join_protocols("range", topics=("other",)))
    stage.send("admin", OffsetDelete(group=stage.group, partitions=(T0, OTHER)))


def topic_is_deleted(stage: CaseRun) -> None:
    doomed = TopicPartition("doomed", 0)
    stage.create_topic(doomed.topic)
    group = stable(stage)
    group.a.commit(offsets={T0: OFFSET, doomed: OFFSET})
    stage.delete_topic(doomed.topic)
    stage.look(OffsetFetch(group=stage.group))


def unreadable_subscriptions_are_taken_for_all(stage: CaseRun) -> None:
    (a,) = create_members(stage, "a", protocols=(JoinGroupProtocol("range", b"?"),))
    form_group_alone(stage, a)
    a.commit()
    stage.send("admin", OffsetDelete(group=stage.group, partitions=(T0, OTHER)))


def offsets_outlive_members(stage: CaseRun) -> None:
    group = first_generation(stage, static=False)
    group.a.leave()
    stage.send("admin", OffsetFetch(group=stage.group))
    stage.send("admin", OffsetDelete(group=stage.group, partitions=(T0,)))
    stage.send("admin", OffsetFetch(group=stage.group))


STORIES = (
    commits_through_a_rebalance,
    simple_group_gets_members,
    offsets_of_other_topics_are_deleted,
    topic_is_deleted,
    unreadable_subscriptions_are_taken_for_all,
    offsets_outlive_members,
)
