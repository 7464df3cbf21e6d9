"""Plans: what a strategy would give a group, what would move, and what had to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from rota.assignors import exact
from rota.assignors.claims import held_by_another, previous_owners
from rota.assignors.interface import Assignor
from rota.assignors.move import Fewest
from rota.assignors.problem import BoolArray, Problem
from rota.assignors.registry import StrategyList, common_protocol, resolve_all
from rota.assignors.rules import Checked, assign_checked
from rota.assignors.sticky import Expired, Sticky, StickyFamily, unlimited
from rota.errors import InputError
from rota.model.membership import (
    NO_GENERATION,
    UNASSIGNED,
    GroupAssignment,
    GroupSubscription,
    Member,
    Placement,
    RebalanceProtocol,
)
from rota.model.topic import NO_PARTITIONS, Cluster, IntArray, Partitions, first_few

DEFAULT_BUDGET_MS = 5_000
"""``assign.budget.ms``: how long the exact solver may look for fewer moves."""

ReplicaRacks: TypeAlias = Mapping[str, Sequence[Iterable[str]]]


@dataclass(frozen=True, slots=True)
class Budget:
    """A time budget: each call starts it afresh and gives the question whether it is used up."""

    milliseconds: int

    def __post_init__(self) -> None:
        if not isinstance(self.milliseconds, int) or self.milliseconds < 0:
            raise InputError(f"budget_ms: {self.milliseconds!r} is not a number of milliseconds")

    def __call__(self) -> Expired:
        """Starts the clock."""
        deadline = time.monotonic() + self.milliseconds / 1000
        return lambda: time.monotonic() > deadline


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that its owner loses though it still wants it.

    ``to`` is None where a custom cooperative strategy withholds it: who gets it is then decided in
    the next rebalance.
    """

    topic: str
    partition: int
    source: str
    to: str | None


class Plan(Mapping[str, dict[str, tuple[int, ...]]]):
    """Who would get which partition: ``plan["C0"]`` is ``{"t0": (0, 1)}``.

    Everything is kept as columns; names and tuples are made when they are asked for.
    """

    def __init__(
        self,
        assignors: tuple[Assignor, ...],
        checked: Checked,
        before: Problem,
        left: Sequence[Member],
        budget: Callable[[], Expired],
    ) -> None:
        first = assignors[0]
        self._checked = checked
        self._before = before
        self._left = left
        self._budget = budget
        self._leaves_out = first.allow_unassigned
        self.strategy = first.name
        self.solver = first.solver if isinstance(first, StickyFamily) else None
        self.protocol = common_protocol(assignors)
        self.members = before.members
        self.skipped_topics = before.skipped_topics

    def partitions(self, member: str) -> Partitions:
        """What a member is given, as columns."""
        return self._checked.result[member].partitions

    def __getitem__(self, member: str) -> dict[str, tuple[int, ...]]:
        given = self.partitions(member).by_topic()
        return {topic: tuple(sorted(given[topic])) for topic in sorted(given)}

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"<Plan {self.strategy}: {self.to_dict()}>"

    def to_dict(self) -> dict[str, dict[str, list[int]]]:
        """``{"C0": {"t0": [0, 1]}}``."""
        return _written(self._checked.result)

    def target_dict(self) -> dict[str, dict[str, list[int]]]:
        """The same once everything that a cooperative round withholds has been handed over."""
        target = self._checked.target
        if target is None:
            return self.to_dict()
        return _written(GroupAssignment(Placement(self._before.layout, self.members, target)))

    def owners(self, topic: str) -> IntArray:
        """For each partition of a topic the position of its owner in ``members``, -1 for none.

        Where a strategy shares partitions, the last of the owners.
        """
        position = self._before.layout.index.get(topic)
        if position is None:
            raise InputError(f"topic {topic!r} is not part of this plan")
        starts = self._before.layout.starts
        return self._owners[starts[position] : starts[position + 1]]

    @cached_property
    def _owners(self) -> IntArray:
        owners = np.full(self._before.layout.size, UNASSIGNED, dtype=np.int32)
        owners[self._checked.partition] = self._checked.member
        owners.setflags(write=False)
        return owners

    @cached_property
    def loads(self) -> dict[str, int]:
        """How many partitions each member is given."""
        counted = np.bincount(self._checked.member, minlength=len(self.members))
        return dict(zip(self.members, counted.tolist(), strict=True))

    @cached_property
    def target_loads(self) -> dict[str, int]:
        """Loads once everything that a cooperative round withholds has been handed over."""
        target = self._checked.target
        if target is None:
            return self.loads
        counted = np.bincount(target[target != UNASSIGNED], minlength=len(self.members))
        return dict(zip(self.members, counted.tolist(), strict=True))

    @property
    def idle(self) -> tuple[str, ...]:
        """Members that end with nothing to do."""
        return tuple(member for member, load in self.target_loads.items() if load == 0)

    @cached_property
    def _previous(self) -> IntArray:
        return previous_owners(self._before)

    @cached_property
    def _heading(self) -> IntArray:
        """The owners in the end, as far as they are told."""
        return self._owners if self._checked.target is None else self._checked.target

    @cached_property
    def _kept(self) -> BoolArray:
        """For each partition: its previous owner has it in this round too."""
        kept = np.zeros(self._before.layout.size, dtype=np.bool_)
        partition, member = self._checked.partition, self._checked.member
        kept[partition[self._previous[partition] == member]] = True
        return kept

    @cached_property
    def _lost(self) -> IntArray:
        """Numbers of partitions whose previous owner, still subscribed, ends without them."""
        kept = self._kept | (self._heading == self._previous)
        lost = (self._previous != UNASSIGNED) & ~kept
        if self._leaves_out:
            lost &= self._owners != UNASSIGNED
        return np.flatnonzero(lost).astype(np.int32)

    @property
    def moved(self) -> int:
        """Partitions that get another owner though their previous one still wants them.

        One that a cooperative round takes away counts: it is given out in the next.
        """
        return len(self._lost)

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """Every moved partition: from whom, to whom."""
        return self.first_moves(self.moved)

    def first_moves(self, limit: int) -> tuple[Move, ...]:
        """The first of them."""
        numbers = self._lost[:limit]
        rows = zip(
            self._before.layout.pick(numbers),
            self._previous[numbers].tolist(),
            self._heading[numbers].tolist(),
            strict=True,
        )
        return tuple(
            Move(
                *partition,
                source=self.members[source],
                to=None if to == UNASSIGNED else self.members[to],
            )
            for partition, source, to in rows
        )

    @cached_property
    def withheld(self) -> int:
        """Partitions that a cooperative round takes away and gives out in the next."""
        if not self._cooperative:
            return 0
        held = held_by_another(self._checked.problem, self._owners)
        return int((held & (self._owners == UNASSIGNED)).sum())

    @property
    def _cooperative(self) -> bool:
        return self.protocol is RebalanceProtocol.COOPERATIVE

    @property
    def stopped(self) -> int:
        """Partitions that are revoked: under the eager protocol everything that is owned, under
        the cooperative one only what is taken away.
        """
        owned = self._previous != UNASSIGNED
        return int((owned & ~self._kept if self._cooperative else owned).sum())

    @cached_property
    def orphaned(self) -> int:
        """Partitions whose previous owner has left the group."""
        layout, claims = self._before.layout, self._before.claims
        newest = np.full(layout.size, np.iinfo(np.int32).min, dtype=np.int64)
        np.maximum.at(newest, claims.partition, claims.generation[claims.member])
        orphans = np.zeros(layout.size, dtype=np.bool_)
        for member in self._left:
            numbers = layout.numbers(member.owned)
            generation = NO_GENERATION if member.generation is None else member.generation
            orphans[numbers[newest[numbers] < generation]] = True
        return int(orphans.sum())

    @cached_property
    def _fewest(self) -> tuple[int, tuple[str, ...]]:
        moves, in_time = Fewest(self._before).moves(self._previous, self._budget())
        return moves, () if in_time else (exact.OUT_OF_TIME,)

    @property
    def moved_min(self) -> int:
        """The fewest that any assignment with the best balance must move."""
        return self._fewest[0]

    @property
    def needless(self) -> int:
        """Moves beyond the fewest; below zero where a strategy moves less by balancing worse."""
        return self.moved - self.moved_min

    @cached_property
    def local(self) -> int | None:
        """Partitions that end with a member in a rack that holds a replica; None without racks."""
        racks = self._before.racks
        if racks is None:
            return None
        owners = self._heading
        rack = np.where(owners == UNASSIGNED, -1, racks.member[owners])
        return int((racks.local[racks.set_of, rack] & (rack >= 0)).sum())

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a person should know: claims dropped, topics skipped, limits met."""
        said = [*self._before.notes, *self._checked.notes]
        claims = self._before.claims
        disputed = claims.subscribed & (self._previous[claims.partition] == UNASSIGNED)
        if disputed.any():
            numbers = np.unique(claims.partition[disputed])
            names = first_few([str(partition) for partition in self._before.layout.pick(numbers)])
            said.append(f"owned by several in one generation, so nobody's claim counts: {names}")
        if not self.members:
            said.append("the group has no members")
        said += [f"the fewest moves: {note}" for note in self._fewest[1]]
        return tuple(dict.fromkeys(said))


def assign(  # noqa: PLR0913 (all but two are options)
    strategy: StrategyList,
    partitions: Mapping[str, int],
    members: Iterable[Member],
    *,
    solver: str = "exact",
    racks: ReplicaRacks | None = None,
    left: Iterable[Member] = (),
    budget_ms: int | None = DEFAULT_BUDGET_MS,
) -> Plan:
    """Plans a rebalance: who gets which partition under a strategy.

    :param strategy: a wire name, a Java class name, ``package.module:Class``, a class or an
        instance; or a list of them, as every member would be configured. The first is used, and
        the rebalance protocol is the highest that the whole list supports.
    :param partitions: partition counts by topic
    :param members: the group's members, with what they own now
    :param solver: ``exact`` (provably best) or ``kafka`` (what Kafka 4.3 gives); sticky family only
    :param racks: replica racks by topic and partition: ``{"t0": [("r1", "r2"), ...]}``
    :param left: members that have just left, for :attr:`Plan.orphaned`
    :param budget_ms: how long the exact solver may look for fewer moves; None for ever
    """
    budget = unlimited if budget_ms is None else Budget(budget_ms)
    assignors = resolve_all(strategy, solver=solver, budget=budget)
    first = assignors[0]
    cluster = Cluster(partitions, racks or {})
    group = GroupSubscription.of(members)
    before = asked = Problem.of(cluster, group)
    if common_protocol(assignors) is RebalanceProtocol.EAGER and not isinstance(first, Sticky):
        # An eager member gives everything up before it joins, so the leader never sees it.
        # Sticky alone remembers, in its user data: so does [cooperative-sticky, range] not.
        group = GroupSubscription(
            {member: replace(group[member], owned=NO_PARTITIONS) for member in group}
        )
        asked = before.without_claims()
    checked = assign_checked(first, cluster, group, asked)
    return Plan(assignors, checked, before, tuple(left), budget)


def _written(assignment: GroupAssignment) -> dict[str, dict[str, list[int]]]:
    given = {member: assignment[member].partitions.by_topic() for member in sorted(assignment)}
    return {m: {topic: sorted(given[m][topic]) for topic in sorted(given[m])} for m in given}


def carried_out(plan: Plan, members: Iterable[Member], generation: int) -> list[Member]:
    """The same members once the plan has been carried out, as of this generation."""
    return [
        replace(member, owned=plan.partitions(member.id), generation=generation)
        for member in members
    ]
