"""What holds for every strategy and every group."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rota
from rota.engine.model.topic import Partitions
from tests.support.examples import examples
from tests.support.random_groups import change_group, groups, replica_racks

STRATEGIES = [
    ("range", "exact"),
    ("roundrobin", "exact"),
    ("sticky", "exact"),
    ("sticky", "kafka"),
    ("cooperative-sticky", "exact"),
    ("cooperative-sticky", "kafka"),
]


@examples(quick=25)
@pytest.mark.parametrize(("strategy", "solver"), STRATEGIES)
@given(group=groups())
def test_every_result_keeps_the_rules(
    strategy: str, solver: str, group: tuple[dict[str, int], list[rota.Member]]
) -> None:
    counts, members = group
    plan = rota.assign(strategy, counts, members, solver=solver)  # raises on a broken rule
    wanted = {t for m in members for t in m.topics}
    total = sum(count for topic, count in counts.items() if topic in wanted)
    assert sum(plan.target_loads.values()) == total
    assert sum(plan.loads.values()) + plan.withheld == total


@examples(quick=25)
@pytest.mark.parametrize(("strategy", "solver"), STRATEGIES)
@given(group=groups(), seed=st.integers(0, 2**32))
def test_the_order_of_the_input_does_not_matter(
    strategy: str, solver: str, group: tuple[dict[str, int], list[rota.Member]], seed: int
) -> None:
    counts, members = group
    dice = random.Random(seed)

    def shuffled(member: rota.Member) -> rota.Member:
        topics, owned = list(member.topics), list(member.owned)
        dice.shuffle(topics)
        dice.shuffle(owned)
        return replace(member, topics=tuple(topics), owned=Partitions.of(owned))

    items = list(counts.items())
    dice.shuffle(items)
    again = [shuffled(member) for member in members]
    dice.shuffle(again)
    first = rota.assign(strategy, counts, members, solver=solver)
    second = rota.assign(strategy, dict(items), again, solver=solver)
    assert first.to_dict() == second.to_dict()
    assert (first.moved, first.moves_needed, first.notes) == (
        second.moved,
        second.moves_needed,
        second.notes,
    )


@examples(quick=25)
@pytest.mark.parametrize(("solver", "rounds"), [("exact", 2), ("kafka", 4)])
@given(data=st.data())
def test_a_cooperative_change_is_complete_after_two_rounds(
    solver: str, rounds: int, data: st.DataObject
) -> None:
    """Kafka's own heuristic now and then moves more in the second round, and needs a third; with
    replica racks it may never settle (docs/java-faults.md), so they are left out for it.
    """
    counts, members = data.draw(groups())
    for change in range(3):
        racks = data.draw(replica_racks(counts)) if solver == "exact" else None
        for _ in range(rounds):
            plan = rota.assign("cooperative-sticky", counts, members, solver=solver, racks=racks)
            members = plan.apply(members, generation=4)
        assert plan.withheld == 0, "everything is given out"
        assert plan.moved == 0, "and nothing taken away"
        counts, members = data.draw(change_group(counts, members, change))
