"""The contract of a strategy: the base classes, one instance for each member, and the rules.

Custom strategies subclass `Assignor` or `PartitionAssignor`. The built-in ones subclass
`ColumnarAssignor`: they get a `Problem` (arrays) and return a `Solution` (one array of owners).

`assign_checked` runs a strategy and checks its result by the rules in ``docs/differences.md``.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np

from rota.engine.assignors.problem import (
    Problem,
    find_owned_by_another,
    sort_members_static_first,
    stated_ownership,
)
from rota.engine.formats.hashing import sort_like_java
from rota.engine.model.member import (
    UNASSIGNED,
    Assignment,
    GroupAssignment,
    OwnedPartitions,
    Placement,
    RebalanceProtocol,
    Subscription,
)
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import Cluster, IntArray, Partitions, TopicPartition
from rota.errors import BrokenRule, RotaError, StrategyFailed


class Assignor(ABC):
    """A strategy: runs on the group's leader and decides which member gets which partition. Write a
    subclass with a ``name`` (it is sent in JoinGroup, and all members of a group must know it) and
    :meth:`assign`. If partition counts and topic lists are all you need, see
    :class:`PartitionAssignor`.
    """

    name: ClassVar[str]
    protocols: ClassVar[tuple[RebalanceProtocol, ...]] = (RebalanceProtocol.EAGER,)
    allow_shared: ClassVar[bool] = False  # a partition may have several owners (broadcast)
    allow_unassigned: ClassVar[bool] = False  # a partition may stay without an owner

    @abstractmethod
    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
        """Returns an assignment for every member of the group."""

    def subscription_user_data(self, topics: Iterable[str]) -> bytes | None:
        """Called before a member joins: returns the user data of its subscription, or None."""
        return None

    def on_assignment(self, assignment: Assignment, generation: int) -> None:  # noqa: B027 (optional)
        """Called on every member with its assignment, after each rebalance. Each member has its own
        instance, so `subscription_user_data` can use an attribute that is set here.
        """


class PartitionAssignor(Assignor):
    """A strategy with one method to write. The base class looks up the partition counts of the
    subscribed topics, leaves out topics without metadata (and names them in the result's notes),
    and wraps the result. It has the helpers of Kafka's ``AbstractPartitionAssignor``.
    """

    @staticmethod
    def member_order(subscriptions: Mapping[str, Subscription]) -> list[str]:
        """Returns static members by static id, then the others by member id, as range does."""
        members = sort_like_java(subscriptions)
        order = sort_members_static_first([subscriptions[one].group_instance_id for one in members])
        return [members[position] for position in order]

    @classmethod
    def consumers_per_topic(cls, subscriptions: Mapping[str, Subscription]) -> dict[str, list[str]]:
        """Returns the subscribers of each topic, in member order."""
        found: dict[str, list[str]] = {}
        for member in cls.member_order(subscriptions):
            for topic in dict.fromkeys(subscriptions[member].topics):
                found.setdefault(topic, []).append(member)
        return found

    @staticmethod
    def all_partitions_sorted(partitions: Mapping[str, int]) -> list[TopicPartition]:
        """Returns every partition of these topics, by topic name and number."""
        return [
            TopicPartition(topic, number)
            for topic in sort_like_java(partitions)
            for number in range(partitions[topic])
        ]

    @abstractmethod
    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        """Returns ``{member: [TopicPartition, ...]}`` with every member in ``subscriptions``.
        ``partitions`` has the count of each subscribed topic, topics sorted by name; members are
        sorted by id.
        """

    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
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
    """A built-in strategy's result: the owner of each partition of the problem's layout. ``target``
    has the owners after the next rebalance, if a cooperative strategy withholds partitions.
    """

    owners: IntArray
    target: IntArray | None = None
    notes: tuple[str, ...] = ()


class ColumnarAssignor(Assignor):
    def read_ownership(self, subscription: Subscription) -> OwnedPartitions:
        return stated_ownership(subscription)

    @abstractmethod
    def solve(self, problem: Problem) -> Solution: ...

    def assign(self, cluster: Cluster, group: Mapping[str, Subscription]) -> GroupAssignment:
        return self.solve_to_assignment(self.build_problem(cluster, group))

    def build_problem(self, cluster: Cluster, group: Mapping[str, Subscription]) -> Problem:
        return Problem.from_group(cluster, group, self.read_ownership)

    def solve_to_assignment(self, problem: Problem) -> GroupAssignment:
        """Solves the problem and wraps the array of owners, without an object per partition."""
        solution = self.solve(problem)

        def placed(owners: IntArray) -> Placement:
            return Placement(problem.layout, problem.members, owners)

        return GroupAssignment(
            placed(solution.owners),
            target=None if solution.target is None else placed(solution.target),
            notes=problem.notes + solution.notes,
        )


@contextmanager
def strategy_errors(assignor: Assignor, method: str) -> Iterator[None]:
    """Raises StrategyFailed, with file and line, if the strategy's method raises an exception."""
    try:
        yield
    except (RotaError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raised = traceback.format_exception_only(error)[-1].strip()
        frames = traceback.extract_tb(error.__traceback__)
        raise StrategyFailed(
            f"strategy {assignor.name!r}: {method} raised {raised} "
            f"({frames[-1].filename}:{frames[-1].lineno})"
        ) from error


class MemberAssignors:
    def __init__(self, create: Callable[[], Assignor]) -> None:
        self._create = create
        self._instances: dict[str, Assignor] = {}

    def on_assignment(self, member: str, assignment: Assignment, generation: int) -> None:
        assignor = self._instance(member)
        with strategy_errors(assignor, "on_assignment"):
            assignor.on_assignment(assignment, generation)

    def subscription_user_data(self, member: str, topics: tuple[str, ...]) -> bytes | None:
        assignor = self._instance(member)
        with strategy_errors(assignor, "subscription_user_data"):
            data: object = assignor.subscription_user_data(topics)
        if not isinstance(data, bytes | None):
            raise StrategyFailed(
                f"strategy {assignor.name!r}: subscription_user_data returned "
                f"{type(data).__name__}, not bytes or None"
            )
        return data

    def _instance(self, member: str) -> Assignor:
        if member not in self._instances:
            self._instances[member] = self._create()
        return self._instances[member]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedAssignment:
    """A result that passed all rules: member ``member[i]`` gets partition ``partition[i]``;
    ``target`` has the owners after the next cooperative rebalance.
    """

    problem: Problem
    result: GroupAssignment
    partition: IntArray
    member: IntArray
    target: IntArray | None

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.problem.notes + self.result.notes))


def assign_checked(
    assignor: Assignor,
    cluster: Cluster,
    group: Mapping[str, Subscription],
    problem: Problem | None = None,
) -> CheckedAssignment:
    """Runs a strategy and checks its result.

    :raises StrategyFailed: the strategy raised an exception
    :raises BrokenRule: its result breaks a rule
    """
    result: object
    with strategy_errors(assignor, "assign"):
        if type(assignor).assign is ColumnarAssignor.assign:
            assert isinstance(assignor, ColumnarAssignor)
            problem = problem or assignor.build_problem(cluster, group)
            result = assignor.solve_to_assignment(problem)
        else:
            problem = problem or Problem.from_group(cluster, group)
            result = assignor.assign(cluster, group)
        return _ResultChecker(assignor, cluster, problem).check(result)


@dataclass(frozen=True, slots=True)
class _ResultChecker:
    assignor: Assignor
    cluster: Cluster
    problem: Problem

    def broken(self, rule: str, detail: str) -> BrokenRule:
        return BrokenRule(self.assignor.name, rule, detail)

    def check(self, result: object) -> CheckedAssignment:
        if not isinstance(result, GroupAssignment):
            given = type(result).__name__
            raise self.broken("a-result", f"assign returned {given}, not a GroupAssignment")
        partition, member = self._to_rows(result)
        self._check_rows(partition, member)
        # a custom strategy may set anything as its target
        target = result.target
        known = isinstance(target, Placement) and target.layout is self.problem.layout
        return CheckedAssignment(
            problem=self.problem,
            result=result,
            partition=partition,
            member=member,
            target=target.owners if target is not None and known else None,
        )

    def _to_rows(self, result: GroupAssignment) -> tuple[IntArray, IntArray]:
        """Returns rows (partition, member), after checking that it names this group's members."""
        members, placement = self.problem.members, result.placement
        if placement is not None and placement.layout is self.problem.layout:
            owners = placement.owners
            if len(owners) and not UNASSIGNED <= owners.min() <= owners.max() < len(members):
                raise self.broken("only-members", "an owner that is not in the group")
            partition = np.flatnonzero(owners != UNASSIGNED).astype(np.int32)
            return partition, owners[partition]
        missing = [member for member in members if member not in result]
        if missing:
            raise self.broken("all-members", f"no entry for {list_first_names(missing)}")
        strangers = sorted(str(member) for member in set(result).difference(members))
        if strangers:
            raise self.broken("only-members", f"not in the group: {list_first_names(strangers)}")
        numbers = [self._number_partitions(member, result[member]) for member in members]
        sizes = [len(each) for each in numbers]
        return (
            np.array(list(chain.from_iterable(numbers)), dtype=np.int32),
            np.repeat(np.arange(len(members), dtype=np.int32), sizes),
        )

    def _number_partitions(self, member: str, assignment: object) -> list[int]:
        partitions = assignment.partitions if isinstance(assignment, Assignment) else None
        if not isinstance(assignment, Assignment) or not isinstance(partitions, Partitions):
            raise self.broken("a-result", f"the entry for {member!r} is not an Assignment")
        if not isinstance(assignment.user_data, bytes | None):
            raise self.broken("a-result", f"the user data for {member!r} is not bytes")
        layout = self.problem.layout
        numbers = []
        for given in assignment.partitions:
            topic = layout.index.get(given.topic)
            if topic is None and 0 <= given.partition < self.cluster.partitions.get(given.topic, 0):
                detail = f"{member!r} was given {given}, nobody subscribes to that topic"
                raise self.broken("subscribed", detail)
            if topic is None or not 0 <= given.partition < layout.counts[topic]:
                raise self.broken("exists", f"{member!r} was given {given}, there is none")
            numbers.append(int(layout.starts[topic]) + given.partition)
        twice = [number for number, times in Counter(numbers).items() if times > 1]
        if twice:
            raise self.broken("one-owner", f"{member!r} was given twice: {self._names(twice)}")
        return numbers

    def _check_rows(self, partition: IntArray, member: IntArray) -> None:
        assignor, problem = self.assignor, self.problem
        allowed = problem.is_subscribed(member, partition)
        if not allowed.all():
            row = int(np.flatnonzero(~allowed)[0])
            raise self.broken(
                "subscribed",
                f"{problem.members[member[row]]!r} was given {self._names(partition[[row]])}, "
                "a topic it does not subscribe to",
            )
        owners_of = np.bincount(partition, minlength=problem.layout.size)
        shared = np.flatnonzero(owners_of > 1)
        if len(shared) and not assignor.allow_shared:
            raise self.broken("one-owner", f"given more than once: {self._names(shared)}")
        unowned = owners_of == 0
        if RebalanceProtocol.COOPERATIVE in assignor.protocols and not assignor.allow_shared:
            owners = np.full(problem.layout.size, UNASSIGNED, dtype=np.int32)
            owners[partition] = member
            held = find_owned_by_another(problem, owners)
            handed = np.flatnonzero(held & ~unowned)
            if len(handed):
                detail = f"given while another member still holds it: {self._names(handed)}"
                raise self.broken("no-hand-over", detail)
            unowned &= ~held
        if unowned.any() and not assignor.allow_unassigned:
            names = self._names(np.flatnonzero(unowned))
            raise self.broken("all-owned", f"without an owner: {names}")

    def _names(self, numbers: Iterable[int]) -> str:
        partition_at = self.problem.layout.partition_at
        return list_first_names([str(partition_at(number)) for number in numbers])
