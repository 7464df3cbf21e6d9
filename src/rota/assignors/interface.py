"""What a strategy is: the contract for built-in and custom ones alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from rota.assignors.problem import Problem, stated
from rota.errors import BrokenRule
from rota.model.membership import (
    Assignment,
    GroupAssignment,
    Ownership,
    Placement,
    RebalanceProtocol,
    Subscription,
)
from rota.model.topic import Cluster, IntArray, Partitions, TopicPartition


class Assignor(ABC):
    """A strategy: decides, on the group's leader, who gets which partition.

    Write a subclass with a ``name`` (it travels in the join request, and all members of a group
    must know it) and :meth:`assign`. Where partition counts and topic lists are all you need, see
    :class:`PartitionAssignor`.
    """

    name: ClassVar[str]
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)
    allow_shared: ClassVar[bool] = False
    """A partition may have several owners (broadcast)."""
    allow_unassigned: ClassVar[bool] = False
    """A partition may stay without an owner."""

    @abstractmethod
    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
        """Every member of the group, each with what it is given."""

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """What this member wants the leader to know; travels with its subscription."""
        return None

    def on_assignment(self, assignment: Assignment, generation: int) -> None:  # noqa: B027 (optional)
        """Called on every member with what it was given."""


class PartitionAssignor(Assignor):
    """A strategy for which one method is written.

    The base class collects the subscribed topics, looks up their partition counts, leaves out
    topics without metadata (and names them in the result's notes), and wraps the result.
    """

    @abstractmethod
    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        """``{member: [TopicPartition, ...]}`` for every member in ``subscriptions``.

        ``partitions`` has the count of each subscribed topic, topics sorted by name; members are
        sorted by id.
        """

    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
        """Calls :meth:`assign_partitions`; not meant to be overridden."""
        topics = sorted({topic for subscription in group.values() for topic in subscription.topics})
        known = {t: cluster.partitions[t] for t in topics if cluster.partitions.get(t, 0) > 0}
        members = {member: group[member] for member in sorted(group)}
        placed = self.assign_partitions(known, members)
        if not isinstance(placed, Mapping):
            raise BrokenRule(
                self.name,
                "a-result",
                f"assign_partitions returned {type(placed).__name__}, not a mapping of "
                "member ids to partitions",
            )
        return GroupAssignment(
            {member: Assignment(Partitions.of(partitions)) for member, partitions in placed.items()}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What a built-in strategy decides: an owner for each partition of the problem's layout.

    ``target`` is given where a cooperative round withholds partitions: the owners it is heading
    for. ``notes`` tell what a person should know of the result.
    """

    owners: IntArray
    target: IntArray | None = None
    notes: tuple[str, ...] = ()


class ColumnarAssignor(Assignor):
    """Base of the built-in strategies: arrays in, one array of owners out."""

    def ownership(self, subscription: Subscription) -> Ownership:
        """What a member owns, out of its subscription."""
        return stated(subscription)

    @abstractmethod
    def solve(self, problem: Problem) -> Solution:
        """The owner of each partition."""

    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
        """Poses the problem and solves it."""
        return self.place_all(self.pose(cluster, group))

    def pose(self, cluster: Cluster, group: Mapping[str, Subscription]) -> Problem:
        """The group as columns."""
        return Problem.of(cluster, group, self.ownership)

    def place_all(self, problem: Problem) -> GroupAssignment:
        """Solves the problem, and wraps the owners without making objects of them."""
        solution = self.solve(problem)

        def placed(owners: IntArray) -> Placement:
            return Placement(problem.layout, problem.members, owners)

        return GroupAssignment(
            placed(solution.owners),
            target=None if solution.target is None else placed(solution.target),
            notes=problem.notes + solution.notes,
        )
