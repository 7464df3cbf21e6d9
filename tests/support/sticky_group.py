"""A group that rebalances with a sticky strategy, told in short words."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from rota.engine.assignors.interface import Solution
from rota.engine.assignors.problem import Problem
from rota.engine.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from rota.engine.formats.buffer import BoolArray
from rota.engine.model.member import UNASSIGNED, GroupSubscription, Member
from rota.engine.model.topic import Cluster, IntArray, PartitionNumbering

STRATEGIES = {"sticky": StickyAssignor, "cooperative-sticky": CooperativeStickyAssignor}
RACKS = ("a", "b", "c")
every_strategy = pytest.mark.parametrize("strategy", sorted(STRATEGIES))
every_rack_setting = pytest.mark.parametrize("setting", ["none", "members", "replicas", "both"])
#: What each member has, as ``{"C0": "t0-0 t1-2"}``.
Given = dict[str, str]


def parse_partitions(text: str) -> list[tuple[str, int]]:
    """``"t-0 t-2"`` as partitions."""
    return [(name.rpartition("-")[0], int(name.rpartition("-")[2])) for name in text.split()]


def format_assignment(
    layout: PartitionNumbering, members: tuple[str, ...], owners: IntArray
) -> Given:
    """What each member is given, in the order of topics and numbers."""
    return {
        member: _format_partitions(layout, owners == position)
        for position, member in enumerate(members)
    }


def _format_partitions(layout: PartitionNumbering, chosen: BoolArray) -> str:
    return " ".join(
        "{}-{}".format(*layout.partition_at(n)) for n in np.flatnonzero(chosen).tolist()
    )


@dataclass(frozen=True, kw_only=True)
class Group:
    """Topics and members, and what members own with which generation."""

    strategy: str
    topics: dict[str, int]
    members: dict[str, str]
    owned: Given = field(default_factory=dict)
    generations: dict[str, int | None] = field(default_factory=dict)
    racks: dict[str, str] = field(default_factory=dict)
    replicas: dict[str, list[str]] = field(default_factory=dict)
    solver: str = "kafka"

    @property
    def problem(self) -> Problem:
        members = [
            Member(
                id=member,
                topics=topics.split(),
                owned=parse_partitions(self.owned.get(member, "")),
                generation=self.generations.get(member, 1),
                rack=self.racks.get(member),
            )
            for member, topics in self.members.items()
        ]
        racks = {
            topic: [listed.split() for listed in each] for topic, each in self.replicas.items()
        }
        return Problem.from_group(Cluster(self.topics, racks), GroupSubscription.of(members))

    @property
    def solution(self) -> Solution:
        return STRATEGIES[self.strategy](solver=self.solver).solve(self.problem)

    def rebalance(self) -> tuple[Given, Given]:
        """What the round gives, and what it is heading for; both keep the rules."""
        problem, solution = self.problem, self.solution
        target = solution.owners if solution.target is None else solution.target
        assert ((target >= 0) & (target < len(problem.members))).all()
        assert problem.subscribes[problem.class_of[target], problem.layout.topic_of].all()
        given = format_assignment(problem.layout, problem.members, solution.owners)
        return given, format_assignment(problem.layout, problem.members, target)

    def then(self, **changes: object) -> Group:
        """The group once this rebalance is through, and after these changes."""
        after = self.settled()
        members = changes.get("members", self.members)
        assert isinstance(members, dict)
        owned = {member: after[member] for member in members if member in after}
        return replace(self, **{"owned": owned, "generations": {}, **changes})  # type: ignore[arg-type]

    def settled(self) -> Given:
        """What members have when a second round has given out what the first took away."""
        given, target = self.rebalance()
        if given != target:
            second = replace(self, owned=given, generations={})
            final, heading = second.rebalance()
            assert final == heading, "the second round completes it"
            return final
        return given

    def withheld(self) -> str:
        """What the round takes away without giving it to anybody yet."""
        problem, solution = self.problem, self.solution
        return _format_partitions(problem.layout, solution.owners == UNASSIGNED)

    def loads(self) -> list[int]:
        """How many partitions each member has once it is through, members sorted."""
        return [len(have.split()) for have in self.settled().values()]


def with_racks(group: Group, setting: str) -> Group:
    """The group with racks that say nothing about where to read."""
    members = {m: RACKS[i % 3] for i, m in enumerate(group.members)}
    replicas = {t: ["a b c"] * count for t, count in group.topics.items()}
    return replace(
        group,
        racks=members if setting in {"members", "both"} else {},
        replicas=replicas if setting in {"replicas", "both"} else {},
    )


def opposite_moves(before: Given, after: Given) -> set[tuple[str, str, str]]:
    """Topics of which partitions went both from one member to another and back."""
    was = {partition: member for member, have in before.items() for partition in have.split()}
    moves = {
        (partition.rpartition("-")[0], was[partition], member)
        for member, have in after.items()
        for partition in have.split()
        if was.get(partition, member) != member and was[partition] in after
    }
    return {
        (topic, giver, taker) for topic, giver, taker in moves if (topic, taker, giver) in moves
    }
