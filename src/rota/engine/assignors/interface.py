"""The base classes of all strategies, built-in and custom.

Custom strategies subclass `Assignor` or `PartitionAssignor`. The built-in ones subclass
`ColumnarAssignor`: they get a `Problem` (arrays) and return a `Solution` (one array of owners).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from rota.engine.assignors.problem import Problem, stated_ownership
from rota.engine.model.member import (
    Assignment,
    GroupAssignment,
    OwnedPartitions,
    Placement,
    RebalanceProtocol,
    Subscription,
)
from rota.engine.model.topic import Cluster, IntArray, Partitions, TopicPartition
from rota.errors import BrokenRule


class Assignor(ABC):
    """A strategy: runs on the group's leader and decides which member gets which partition.

    Write a subclass with a ``name`` (it is sent in JoinGroup, and all members of a group must know
    it) and :meth:`assign`. If partition counts and topic lists are all you need, see
    :class:`PartitionAssignor`.
    """

    name: ClassVar[str]
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)
    #: A partition may have several owners (broadcast).
    allow_shared: ClassVar[bool] = False
    #: A partition may stay without an owner.
    allow_unassigned: ClassVar[bool] = False

    @abstractmethod
    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
        """Returns an assignment for every member of the group."""

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Returns the user data that this member sends to the leader in its subscription, or
        None.
        """
        return None

    def on_assignment(self, assignment: Assignment, generation: int) -> None:  # noqa: B027 (optional)
        """Called on every member with the assignment it received."""


class PartitionAssignor(Assignor):
    """A strategy with one method to write.

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
    """The result of a built-in strategy: an owner for each partition of the problem's layout.

    ``target`` is set where a cooperative rebalance withholds partitions: the owners after the next
    rebalance. ``notes`` are messages for the user.
    """

    owners: IntArray
    target: IntArray | None = None
    notes: tuple[str, ...] = ()


class ColumnarAssignor(Assignor):
    """Base of the built-in strategies: takes arrays and returns one array of owners."""

    def read_ownership(self, subscription: Subscription) -> OwnedPartitions:
        """Reads what a member owns from its subscription."""
        return stated_ownership(subscription)

    @abstractmethod
    def solve(self, problem: Problem) -> Solution:
        """Returns the owner of each partition."""

    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
        """Builds the problem and solves it."""
        return self.solve_to_assignment(self.build_problem(cluster, group))

    def build_problem(self, cluster: Cluster, group: Mapping[str, Subscription]) -> Problem:
        """Returns the group as arrays."""
        return Problem.from_group(cluster, group, self.read_ownership)

    def solve_to_assignment(self, problem: Problem) -> GroupAssignment:
        """Solves the problem and wraps the array of owners without creating an object per
        partition.
        """
        solution = self.solve(problem)

        def placed(owners: IntArray) -> Placement:
            return Placement(problem.layout, problem.members, owners)

        return GroupAssignment(
            placed(solution.owners),
            target=None if solution.target is None else placed(solution.target),
            notes=problem.notes + solution.notes,
        )
