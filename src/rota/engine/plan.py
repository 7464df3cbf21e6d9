"""Plans: which partitions a strategy would assign to each member, which would move, and how many
moves were necessary.

``rota.assign`` calls `plan_rebalance` with a time budget on the machine's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rota.engine.assignors import registry
from rota.engine.assignors.certificate import Certificate, certify
from rota.engine.assignors.exact import solver
from rota.engine.assignors.exact.solver import FewestMoves
from rota.engine.assignors.interface import (
    Assignor,
    CheckedAssignment,
    ColumnarAssignor,
    MemberAssignors,
    assign_checked,
)
from rota.engine.assignors.problem import Problem, find_owned_by_another, find_previous_owners
from rota.engine.assignors.sticky import (
    AbstractStickyAssignor,
    Expired,
    StickyAssignor,
    unlimited_budget,
)
from rota.engine.formats.buffer import BoolArray
from rota.engine.model.member import (
    NO_GENERATION,
    UNASSIGNED,
    Assignment,
    GroupAssignment,
    GroupSubscription,
    Member,
    Placement,
    RebalanceProtocol,
)
from rota.engine.model.text import list_first_names
from rota.engine.model.topic import NO_PARTITIONS, Cluster, IntArray, Partitions
from rota.errors import InputError

HEARTBEAT_SHARES = 8  # times since the last rebalance over which downtime is averaged

if TYPE_CHECKING:
    from rota.engine.history.timing import GroupTiming

ReplicaRacks: TypeAlias = Mapping[str, Sequence[Iterable[str]]]


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that moves away from a member that still subscribes to it. ``to`` is None where a
    custom cooperative strategy withholds it until the next rebalance.
    """

    topic: str
    partition: int
    source: str
    to: str | None


class Plan(Mapping[str, dict[str, tuple[int, ...]]]):
    """Which partitions each member would get: ``plan["C0"]`` is ``{"t0": (0, 1)}``. Everything is
    kept as arrays; names and tuples are created on request.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (only `plan_rebalance` creates one)
        self,
        assignors: tuple[Assignor, ...],
        member_assignors: MemberAssignors | None,
        checked: CheckedAssignment,
        before: Problem,
        left: Sequence[Member],
        timing: GroupTiming | None,
        budget: Callable[[], Expired],
    ) -> None:
        first = assignors[0]
        self._member_assignors = member_assignors
        self._checked = checked
        self._problem = before
        self._left = left
        self._timing = timing
        self._budget = budget
        #: What the hooks returned in `apply`, by member and generation.
        self._user_data: dict[tuple[str, int], bytes | None] = {}
        self._allows_unassigned = first.allow_unassigned
        self.strategy = first.name
        self.solver = first.solver if isinstance(first, AbstractStickyAssignor) else None
        self.protocol = registry.common_protocol(assignors)
        self.members = before.members
        self.skipped_topics = before.skipped_topics

    def partitions(self, member: str) -> Partitions:
        """Returns a member's partitions, as columns."""
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
        return _partitions_by_member_and_topic(self._checked.result)

    def target_dict(self) -> dict[str, dict[str, list[int]]]:
        """`to_dict` after the next rebalance, which assigns the withheld partitions."""
        target = self._checked.target
        if target is None:
            return self.to_dict()
        return _partitions_by_member_and_topic(
            GroupAssignment(Placement(self._problem.layout, self.members, target))
        )

    def apply(self, members: Iterable[Member], generation: int) -> list[Member]:
        """Returns the members after a rebalance with this plan. Each member owns its partitions in
        this generation. A strategy with hooks of its own learns of the assignment (`on_assignment`)
        and makes the next user data; the hooks are called once for a member and generation.
        """
        return [
            replace(
                member,
                owned=self.partitions(member.id),
                generation=generation,
                user_data=self._next_user_data(member, generation),
            )
            for member in members
        ]

    def _next_user_data(self, member: Member, generation: int) -> bytes | None:
        assignors = self._member_assignors
        if assignors is None:
            return None
        key = member.id, generation
        if key not in self._user_data:
            assignors.on_assignment(member.id, self._checked.result[member.id], generation)
            self._user_data[key] = assignors.subscription_user_data(member.id, member.topics)
        return self._user_data[key]

    def owners(self, topic: str) -> IntArray:
        """For each partition of a topic the position of its (last) owner in ``members``, or -1."""
        position = self._problem.layout.index.get(topic)
        if position is None:
            raise InputError(f"topic {topic!r} is not part of this plan")
        starts = self._problem.layout.starts
        return self._owners[starts[position] : starts[position + 1]]

    @cached_property
    def _owners(self) -> IntArray:
        owners = np.full(self._problem.layout.size, UNASSIGNED, dtype=np.int32)
        owners[self._checked.partition] = self._checked.member
        owners.setflags(write=False)
        return owners

    @cached_property
    def loads(self) -> dict[str, int]:
        """Number of partitions of each member."""
        return self._count_loads(self._checked.member)

    @cached_property
    def target_loads(self) -> dict[str, int]:
        """Loads after the next rebalance has assigned what a cooperative one withholds."""
        target = self._checked.target
        if target is None:
            return self.loads
        return self._count_loads(target[target != UNASSIGNED])

    def _count_loads(self, owners: IntArray) -> dict[str, int]:
        counted = np.bincount(owners, minlength=len(self.members))
        return dict(zip(self.members, counted.tolist(), strict=True))

    @cached_property
    def balance_score(self) -> int:
        """Sum of the differences between the target loads of any two members: 0 is perfectly even.
        Kafka's sticky assignors call it `getBalanceScore`.
        """
        loads = sorted(self.target_loads.values())
        return sum(load * (2 * place - len(loads) + 1) for place, load in enumerate(loads))

    @cached_property
    def certificate(self) -> Certificate:
        """Proof that no assignment of this group is more even, then more local, then moves fewer
        partitions; or the reason why one is. It shares no code with the solver.
        """
        return certify(self._problem, self._final_owners)

    @property
    def idle(self) -> tuple[str, ...]:
        """Members without a partition after the last round."""
        return tuple(member for member, load in self.target_loads.items() if load == 0)

    @cached_property
    def _previous(self) -> IntArray:
        return find_previous_owners(self._problem)

    @cached_property
    def _final_owners(self) -> IntArray:
        """Owners after the last round, as far as the strategy states them."""
        return self._owners if self._checked.target is None else self._checked.target

    @cached_property
    def _kept(self) -> BoolArray:
        """A flag for each partition: its previous owner keeps it in this round."""
        kept = np.zeros(self._problem.layout.size, dtype=np.bool_)
        partition, member = self._checked.partition, self._checked.member
        kept[partition[self._previous[partition] == member]] = True
        return kept

    @cached_property
    def _moved_partitions(self) -> IntArray:
        """Numbers of the partitions that move away from a previous owner that still subscribes."""
        kept = self._kept | (self._final_owners == self._previous)
        lost = (self._previous != UNASSIGNED) & ~kept
        if self._allows_unassigned:
            lost &= self._owners != UNASSIGNED
        return np.flatnonzero(lost).astype(np.int32)

    @property
    def moved(self) -> int:
        """Number of partitions that leave a previous owner that still subscribes, also those that a
        cooperative rebalance revokes now and the next one assigns.
        """
        return len(self._moved_partitions)

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """Every moved partition with its previous and its new owner."""
        return self.first_moves(self.moved)

    def first_moves(self, limit: int) -> tuple[Move, ...]:
        """Returns the first ``limit`` moves."""
        numbers = self._moved_partitions[:limit]
        rows = zip(
            self._problem.layout.partitions_at(numbers),
            self._previous[numbers].tolist(),
            self._final_owners[numbers].tolist(),
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
        """Number of partitions that a cooperative rebalance revokes and the next one assigns."""
        if self.protocol is RebalanceProtocol.EAGER:
            return 0
        held = find_owned_by_another(self._checked.problem, self._owners)
        return int((held & (self._owners == UNASSIGNED)).sum())

    @property
    def revoked(self) -> int:
        """Number of partitions that members revoke during the rebalance: with the eager protocol
        all that they own, with the cooperative one those that move.
        """
        owned = self._previous != UNASSIGNED
        if self.protocol is RebalanceProtocol.COOPERATIVE:
            owned &= ~self._kept
        return int(owned.sum())

    @cached_property
    def _orphans(self) -> BoolArray:
        """A flag for each partition: its previous owner has left the group."""
        layout, claims = self._problem.layout, self._problem.claims
        newest = np.full(layout.size, np.iinfo(np.int32).min, dtype=np.int64)
        np.maximum.at(newest, claims.partition, claims.generation[claims.member])
        orphans = np.zeros(layout.size, dtype=np.bool_)
        for member in self._left:
            numbers = layout.numbers_of(member.owned)
            generation = NO_GENERATION if member.generation is None else member.generation
            orphans[numbers[newest[numbers] < generation]] = True
        return orphans

    @property
    def orphaned(self) -> int:
        """Partitions whose previous owner has left the group."""
        return int(self._orphans.sum())

    @cached_property
    def downtime_ms(self) -> int:
        """The expected downtime of the rebalance, in partition-milliseconds: two partitions without
        a consumer for one second are 2,000. A cooperative rebalance includes its second round.
        Heartbeats begin anew with each rebalance, and nobody knows the time since the last one to
        the second. So the result is an average over one heartbeat interval.
        """
        from rota.engine.history.timing import GroupTiming  # noqa: PLC0415 (slow)

        timing = GroupTiming() if self._timing is None else self._timing
        step = timing.heartbeats.interval // HEARTBEAT_SHARES
        times = [
            self._expect_downtime(timing, max(timing.stable_time + number * step, 0))
            for number in range(-HEARTBEAT_SHARES // 2, HEARTBEAT_SHARES // 2)
        ]
        return sum(times) // len(times)

    def _expect_downtime(self, timing: GroupTiming, since: int) -> int:
        """:param since: the time since the last rebalance"""
        from rota.engine.history.policies import PolicyProtocol  # noqa: PLC0415 (slow)

        staying = self._staying
        protocol = PolicyProtocol(self.protocol.name.lower())
        absent_time = timing.absent_time if self._left_static else 0
        callers = 0
        starts_at_once = staying < len(self.members) or len(self._left_static) < len(self._left)
        if not starts_at_once and absent_time:
            since += absent_time
        elif not starts_at_once:
            # One that stays starts the rebalance, such as the leader that finds new partitions.
            callers = min(staying, 1)
        called = staying - callers
        join_time = 0 if callers and not called else timing.join_time(called, since)
        if starts_at_once:  # and waits for a static member's session
            join_time, absent_time = max(join_time, absent_time), 0
        orphaned = int((self._orphans & (self._final_owners != UNASSIGNED)).sum())
        orphaned_time = absent_time + timing.orphaned_time(protocol, join_time)
        revoked_time = timing.revoked_time(protocol, called, join_time, since)
        if callers and protocol is PolicyProtocol.EAGER:  # the caller waits for all others
            revoked_time = (orphaned_time + called * revoked_time) // staying
        return orphaned * orphaned_time + self.revoked * revoked_time

    @property
    def _staying(self) -> int:
        """Number of members that were in the group before."""
        claims = self._problem.claims
        return len(np.union1d(claims.member, np.flatnonzero(claims.generation != NO_GENERATION)))

    @property
    def changes_members(self) -> bool:
        """Whether a member joins or leaves; otherwise one of the members starts the rebalance."""
        return bool(self._left) or self._staying < len(self.members)

    @property
    def _left_static(self) -> list[Member]:
        return [one for one in self._left if one.group_instance_id is not None]

    @property
    def restart_time_ms(self) -> int:
        """How long a static member may be away in a usual restart: half of its session at most."""
        from rota.engine.history.consumption_end import USUAL_RESTART_TIME  # noqa: PLC0415 (slow)
        from rota.engine.history.timing import GroupTiming  # noqa: PLC0415 (slow)

        timing = GroupTiming() if self._timing is None else self._timing
        return min(USUAL_RESTART_TIME, timing.session_timeout // 2)

    @property
    def restart_downtime_ms(self) -> int | None:
        """The downtime if the static members that leave restart in the usual time instead, which
        causes no rebalance; None if none of them is static.
        """
        static = self._left_static
        return sum(len(one.owned) for one in static) * self.restart_time_ms if static else None

    @cached_property
    def _fewest(self) -> tuple[int, tuple[str, ...]]:
        moves, in_time = FewestMoves(self._problem).count(self._previous, self._budget())
        return moves, () if in_time else (solver.OUT_OF_TIME,)

    @property
    def moves_needed(self) -> int:
        """Smallest number of moves of any assignment with the best balance."""
        return self._fewest[0]

    @property
    def needless(self) -> int:
        """Moves that were not necessary; negative if a worse balance saved moves."""
        return self.moved - self.moves_needed

    @cached_property
    def local(self) -> int | None:
        """Number of partitions with a member in a rack that holds a replica; None without racks."""
        racks = self._problem.racks
        if racks is None:
            return None
        owners = self._final_owners
        rack = np.where(owners == UNASSIGNED, -1, racks.rack_of_member[owners])
        return int((racks.set_has_rack[racks.set_of_partition, rack] & (rack >= 0)).sum())

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Messages for the user: ignored claims, skipped topics, limits reached."""
        notes = [*self._problem.notes, *self._checked.notes]
        claims = self._problem.claims
        disputed = claims.subscribed & (self._previous[claims.partition] == UNASSIGNED)
        if disputed.any():
            numbers = np.unique(claims.partition[disputed])
            partitions = self._problem.layout.partitions_at(numbers)
            names = list_first_names(list(map(str, partitions)))
            notes.append(f"claimed by several in one generation, so no claim counts: {names}")
        if not self.members:
            notes.append("the group has no members")
        notes += [f"the fewest moves: {note}" for note in self._fewest[1]]
        return tuple(dict.fromkeys(notes))


def plan_rebalance(  # noqa: PLR0913 (all but two are options)
    strategy: registry.StrategyList,
    partitions: Mapping[str, int],
    members: Iterable[Member],
    *,
    solver: str = "exact",
    racks: ReplicaRacks | None = None,
    left: Iterable[Member] = (),
    timing: GroupTiming | None = None,
    budget: Callable[[], Expired] = unlimited_budget,
) -> Plan:
    """Plans a rebalance; the parameters are those of ``rota.assign``.

    :param timing: the times of the group's protocol, for `Plan.downtime_ms`; None: Kafka's defaults
    :param budget: starts the exact solver's time budget, as for :class:`AbstractStickyAssignor`
    """
    specs = registry.split_strategies(strategy)
    assignors = registry.resolve_strategies(specs, solver=solver, budget=budget)
    first = assignors[0]
    cluster = Cluster(partitions, racks or {})
    group = GroupSubscription.of(members)
    before = Problem.from_group(cluster, group)
    member_assignors = registry.create_member_assignors(specs[0], first, solver=solver)
    if member_assignors is not None:
        group = _ask_for_user_data(group, member_assignors)
    problem: Problem | None = before
    if isinstance(first, ColumnarAssignor) and any(one.user_data for one in group.values()):
        problem = None  # the strategy reads claims from user data
        if isinstance(first, StickyAssignor) and not len(before.claims.partition):
            before = first.build_problem(cluster, group)
    stands_for_user_data = isinstance(first, StickyAssignor) and member_assignors is None
    if registry.common_protocol(assignors) is RebalanceProtocol.EAGER and not stands_for_user_data:
        # an eager member revokes everything before it joins (ConsumerCoordinator.onJoinPrepare in
        # Java), so the leader sees no owned partitions: only user data.
        revoked = {member: replace(group[member], owned=NO_PARTITIONS) for member in group}
        group = GroupSubscription(revoked)
        problem = problem and before.without_claims()
    checked = assign_checked(first, cluster, group, problem)
    return Plan(assignors, member_assignors, checked, before, tuple(left), timing, budget)


def _ask_for_user_data(group: GroupSubscription, assignors: MemberAssignors) -> GroupSubscription:
    """Tells each member's instance its assignment, then asks it for its next user data."""
    found = dict(group)
    for member, subscription in group.items():
        if subscription.user_data is None:
            generation, owned = subscription.generation, subscription.owned
            if generation is not None or len(owned):
                known = NO_GENERATION if generation is None else generation
                assignors.on_assignment(member, Assignment(owned), known)
            data = assignors.subscription_user_data(member, subscription.topics)
            found[member] = replace(subscription, user_data=data)
    return GroupSubscription(found)


def _partitions_by_member_and_topic(assignment: GroupAssignment) -> dict[str, dict[str, list[int]]]:
    given = {member: assignment[member].partitions.by_topic() for member in sorted(assignment)}
    return {m: {topic: sorted(given[m][topic]) for topic in sorted(given[m])} for m in given}
