"""What holds for the broker's strategies and every group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rota
from rota.engine.assignors import uniform
from rota.engine.assignors.interface import CheckedAssignment, assign_checked
from rota.engine.assignors.uniform import UniformAssignor
from tests.support.examples import examples
from tests.support.random_groups import TOPICS, change_group, groups

topic_ids = st.none() | st.lists(
    st.binary(min_size=16, max_size=16), min_size=len(TOPICS), max_size=len(TOPICS), unique=True
).map(lambda ids: dict(zip(TOPICS, ids, strict=True)))


def compute_assignment(
    assignor: rota.Assignor, counts: dict[str, int], members: list[rota.Member]
) -> CheckedAssignment:
    """The target; raises on a broken rule."""
    group = rota.GroupSubscription.of(members)
    return assign_checked(assignor, rota.Cluster(counts), group)


def members_after_assignment(
    checked: CheckedAssignment, members: list[rota.Member]
) -> list[rota.Member]:
    """The members with this target."""
    return [
        rota.Member(
            id=member.id,
            topics=member.topics,
            owned=checked.result[member.id].partitions,
            group_instance_id=member.group_instance_id,
        )
        for member in members
    ]


def partitions_per_member(checked: CheckedAssignment) -> list[int]:
    placement = checked.result.placement
    assert placement is not None
    return [int(load) for load in placement.loads]


@examples(quick=25)
@pytest.mark.parametrize("name", uniform.SERVER_ASSIGNORS)
@given(group=groups(), ids=topic_ids)
def test_every_target_keeps_the_rules(
    name: str, group: tuple[dict[str, int], list[rota.Member]], ids: dict[str, bytes] | None
) -> None:
    counts, members = group
    found = compute_assignment(
        uniform.resolve_server_assignor(name, topic_ids=ids), counts, members
    )
    wanted = {topic for member in members for topic in member.topics}
    assert sum(partitions_per_member(found)) == sum(
        n for topic, n in counts.items() if topic in wanted
    )


@examples(quick=25)
@given(data=st.data(), ids=topic_ids)
def test_uniform_changes_nothing_without_a_reason(
    data: st.DataObject, ids: dict[str, bytes] | None
) -> None:
    """And so a target computed again is the same, but where it had used up its rounds."""
    counts, members = data.draw(groups(conflicting=False))
    for change in range(3):
        found = compute_assignment(UniformAssignor(ids), counts, members)
        members = members_after_assignment(found, members)
        again = compute_assignment(UniformAssignor(ids), counts, members)
        assert [again.result[m.id] for m in members] == [found.result[m.id] for m in members]
        counts, members = data.draw(change_group(counts, members, change))


@examples(quick=25)
@given(data=st.data(), ids=topic_ids)
def test_uniform_is_even_and_moves_the_fewest_where_subscriptions_are_equal(
    data: st.DataObject, ids: dict[str, bytes] | None
) -> None:
    counts, members = data.draw(groups(conflicting=False))
    for change in range(3):
        members = [
            rota.Member(
                id=m.id, topics=TOPICS, owned=m.owned, group_instance_id=m.group_instance_id
            )
            for m in members
        ]
        found = compute_assignment(UniformAssignor(ids), counts, members)
        assert max(partitions_per_member(found)) - min(partitions_per_member(found)) <= 1
        assert count_moves(found) == rota.assign("sticky", counts, members).moves_needed
        counts, members = data.draw(
            change_group(counts, members_after_assignment(found, members), change)
        )


def count_moves(checked: CheckedAssignment) -> int:
    """Partitions that a living member gives to another."""
    claims, placement = checked.problem.claims, checked.result.placement
    assert placement is not None
    return int((placement.owners[claims.partition] != claims.member).sum())


@examples(quick=25)
@given(group=groups(conflicting=False))
def test_range_is_the_members_own_without_racks(
    group: tuple[dict[str, int], list[rota.Member]],
) -> None:
    counts, members = group
    found = compute_assignment(uniform.resolve_server_assignor("range"), counts, members).result
    plan = rota.assign("range", counts, members)
    assert {m: found[m].partitions.by_topic() for m in found} == dict(plan)
