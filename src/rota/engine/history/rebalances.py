"""The rebalances of a group, the differences between their generations, and their costs.

The cost of a rebalance:

- ``moved``: partitions that have another owner, or none yet, although the old owner is still a
  member and subscribes to their topic. A partition that a cooperative round revoked counts even if
  the journal ends before it is assigned. Static members are matched by static id.
- ``moves_needed``: the smallest number of moves of any assignment with the best balance
- ``orphaned``: partitions whose owner left
- ``revoked``: partitions that remaining members gave up: all partitions under the eager protocol,
  otherwise those that they did not keep. The rounds of a cooperative rebalance add up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from rota.engine.assignors.problem import count_moves
from rota.engine.history.facts import (
    COOPERATIVE_STICKY,
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    PartitionsByTopic,
    Rebalance,
    RebalanceCost,
    member_identity,
)
from rota.engine.history.generations import generation_distance
from rota.engine.history.journal_window import FIRST_EPOCH
from rota.engine.history.snapshot import (
    HistoryIndex,
    ProblemCache,
    SnapshotMember,
    SnapshotPlacement,
    assigned_counts,
    drop_topics,
    largest_counts,
    make_owner_array,
    update_counts,
)
from rota.engine.model.member import UNASSIGNED
from rota.engine.model.request import CONSUMER_PROTOCOL_TYPE
from rota.engine.model.topic import IntArray

#: Strategies whose members give everything up before they join.
EAGER_STRATEGIES = frozenset({"range", "roundrobin", "sticky"})
FIRST_GENERATION = 1  # the number of a new classic group's first generation


def find_rebalances(generations: Iterable[Generation]) -> list[Rebalance]:
    """Returns the rebalances of one group, in journal order: also the last member's leave and each
    new target of a consumer group, but no empty entry, static return, conversion, deletion, first
    sample.
    """
    finder = _RebalanceFinder()
    for generation in generations:
        finder.read_generation(generation)
    finder.close_rebalance()
    return finder.found


class _RebalanceFinder:
    def __init__(self) -> None:
        self.found: list[Rebalance] = []
        #: The rounds of the current rebalance; another round may follow.
        self._rounds: list[Generation] = []
        self._begin(None, 0)

    def _begin(self, incarnation: int | None, number: int | None, *, known: bool = False) -> None:
        """Starts with an empty group. ``known``: the journal has the start of this incarnation."""
        self._incarnation = incarnation
        self._before: Generation | None = None
        self._number = number
        self._known = known

    def read_generation(self, generation: Generation) -> None:
        if generation.incarnation != self._incarnation:
            self.close_rebalance()
            self._begin(generation.incarnation, 0)
        match generation.change:
            case GenerationChange.CREATED:
                self._begin(generation.incarnation, generation.generation, known=True)
            case GenerationChange.REBALANCED:
                if not (self._rounds and is_same_rebalance(self._rounds[-1], generation)):
                    self.close_rebalance(generation)
                self._add_round(generation)
            case GenerationChange.EMPTIED:
                self.close_rebalance()
                self._add_round(generation)
            case GenerationChange.REPLACED | GenerationChange.FIRST_SAMPLE:
                self._set_before(generation)
            case GenerationChange.CONVERTED:
                # the previous generation still has members that left during the conversion; without
                # it, the previous members are unknown
                if not self._known and self._before is None:
                    self._begin(generation.incarnation, None, known=True)
            case GenerationChange.DELETED:
                self.close_rebalance()
            case _:
                assert_never(generation.change)

    def _set_before(self, generation: Generation) -> None:
        self._before = generation if generation.members else None
        self._number = generation.generation
        self._known = True

    def _add_round(self, generation: Generation) -> None:
        if not self._rounds:
            if not self._known and not is_first_generation(generation):
                self._number = None
            self._from = self._before, self._number
        self._rounds.append(generation)
        self._set_before(generation)

    def close_rebalance(self, following: Generation | None = None) -> None:
        if not self._rounds:
            return
        before, number = self._from
        rounds, self._rounds = tuple(self._rounds), []
        self.found.append(
            Rebalance(
                before=before,
                rounds=rounds,
                unseen=sum(_skipped_numbers(number, rounds)),
                known_before=number is not None,
                from_generation=number,
                absent=_find_absent_topics(rounds[-1], following),
            )
        )


def _find_absent_topics(generation: Generation, following: Generation | None) -> frozenset[str]:
    """Returns topics that both generations subscribe to and neither assigns or owns."""
    if following is None:
        return frozenset()
    listed = [*generation.members, *following.members]
    present = {topic for member in listed for topic, numbers in member.assigned.items() if numbers}
    present |= {topic for member in following.members for topic in member.owned}
    return (_requested_topics(generation) & _requested_topics(following)) - present


def _skipped_numbers(number: int | None, rounds: Iterable[Generation]) -> Iterator[int]:
    for one in rounds:
        if number is not None and not (number == 0 and is_first_generation(one)):
            yield max(generation_distance(one.generation, number) - 1, 0)
        number = one.generation


def is_first_generation(generation: Generation) -> bool:
    """Returns whether this is the group's first generation: members owned nothing before."""
    is_classic = generation.kind is GroupType.CLASSIC
    if not 0 <= generation.generation <= (FIRST_GENERATION if is_classic else FIRST_EPOCH):
        return False
    if not is_classic:
        return not any(member.owned for member in generation.members)
    return all(member.owned_generation is None for member in generation.members)


def is_same_rebalance(generation: Generation, following: Generation) -> bool:
    """Returns whether the following generation is another round of the same rebalance (KIP-429): it
    assigns what a remaining member revoked. If all who had to revoke left, it is a new rebalance.
    """
    if not _may_be_cooperative(generation):
        return False
    requested = _requested_topics(generation)
    staying = {member_identity(member) for member in following.members}
    owned = _pairs(one.owned for one in generation.members if member_identity(one) in staying)
    revoked = {pair for pair in owned if pair[0] in requested} - _assigned_pairs(generation)
    return not revoked.isdisjoint(_assigned_pairs(following))


def _may_be_cooperative(generation: Generation) -> bool:
    return generation.kind is GroupType.CLASSIC and generation.strategy not in EAGER_STRATEGIES


def _requested_topics(generation: Generation) -> frozenset[str]:
    return frozenset().union(*{member.topics for member in generation.members})


STATELESS_STRATEGIES = frozenset(("range", "roundrobin"))  # strategies that ignore owned partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDiff:
    """The difference between two generations. Static members are matched by static id."""

    joined: tuple[GenerationMember, ...]
    left: tuple[GenerationMember, ...]
    returned_static: tuple[GenerationMember, ...]
    resubscribed: tuple[GenerationMember, ...]
    new_topics: tuple[str, ...]  # topics that no member subscribed to or owned before
    #: Topics, subscribed before and after, with partitions that were not assigned before; in a
    #: streams group subtopologies with new active tasks.
    grown: tuple[str, ...]
    shrunk: tuple[str, ...]
    was_owned_before: bool  # a newly assigned partition had an owner: it may not be new
    #: Members of both generations that had lost the generation before or their partitions in it, so
    #: they joined for their own reason. Not all clients report them.
    lost_members: tuple[GenerationMember, ...]
    is_round_due: bool  # revoked partitions were not assigned: another round had to follow
    strategy_changed: bool
    work_changed: bool  # connect: the workers run other connectors or tasks
    readable: bool

    @property
    def same_members(self) -> bool:
        return not (self.joined or self.left or self.returned_static)

    @property
    def same_work(self) -> bool:
        return not (self.resubscribed or self.grown or self.shrunk)


def diff_generations(
    before: Generation, joined: Generation, settled: Generation | None = None
) -> GenerationDiff:
    """Compares a generation with the next one, and with the last of a cooperative rebalance."""
    settled = settled or joined
    old = {member_identity(member): member for member in before.members}
    new = {member_identity(member): member for member in joined.members}
    stayed = [key for key in old if key in new]
    past, now = _assigned_pairs(before), _assigned_pairs(settled)
    topics = _known_topics(before) & _known_topics(settled)
    grown = topics & {topic for topic, _ in now - past}
    old_work, new_work = _all_work(before), _all_work(settled)
    if settled.kind in {GroupType.SHARE, GroupType.STREAMS}:
        grown = {re.sub(_WORK_NUMBER, "", word) for word in new_work - old_work}
    return GenerationDiff(
        joined=tuple(new[key] for key in new if key not in old),
        left=tuple(old[key] for key in old if key not in new),
        returned_static=tuple(
            new[key] for key in stayed if new[key].member_id != old[key].member_id
        ),
        resubscribed=tuple(
            new[key]
            for key in stayed
            if set(new[key].topics) != set(old[key].topics)
            or _has_unsubscribed_topics(old[key], before)
        ),
        new_topics=tuple(sorted(_known_topics(settled) - _known_topics(before))),
        grown=tuple(sorted(grown)),
        shrunk=tuple(sorted(topics & {topic for topic, _ in past - now - _owned_pairs(settled)})),
        was_owned_before=not _owned_pairs(before).isdisjoint(now - past),
        lost_members=tuple(
            new[key] for key in stayed if _has_lost_assignment(old[key], new[key], before, joined)
        ),
        is_round_due=is_round_due(before),
        strategy_changed=before.strategy != joined.strategy and before.kind is joined.kind,
        work_changed=old_work != new_work,
        readable=all(map(_is_readable_generation, (before, joined, settled))),
    )


#: The end of a member's work: the number of a partition, or of a task that processes records.
_WORK_NUMBER = r"(-\d+|_\d+ active)$"


def _all_work(generation: Generation) -> set[str]:
    """Returns the work of all members, without tasks that only keep copies of state."""
    copies = ("standby", "warm-up")
    return {one for each in generation.members for one in each.work if not one.endswith(copies)}


def _pairs(assignments: Iterable[PartitionsByTopic]) -> set[tuple[str, int]]:
    return {
        (topic, number)
        for assigned in assignments
        for topic, numbers in assigned.items()
        for number in numbers
    }


def _assigned_pairs(generation: Generation) -> set[tuple[str, int]]:
    return _pairs(member.assigned for member in generation.members)


def _owned_pairs(generation: Generation) -> set[tuple[str, int]]:
    return _pairs(member.owned for member in generation.members)


def is_round_due(generation: Generation) -> bool:
    if not _may_be_cooperative(generation):
        return False
    requested = _requested_topics(generation)
    revoked = _owned_pairs(generation) - _assigned_pairs(generation)
    return any(topic in requested for topic, _ in revoked)


def _has_lost_assignment(
    old: GenerationMember, new: GenerationMember, before: Generation, joined: Generation
) -> bool:
    """Whether a member missed a generation, or lost its assignment other than by a join."""
    if joined.kind is not GroupType.CLASSIC or new.owned_generation == before.generation:
        return False
    if new.owned_generation is not None:
        return True
    if joined.strategy in STATELESS_STRATEGIES or before.strategy != joined.strategy:
        return False  # a strategy does not know the assignments of another
    return _drop_empty_topics(old.assigned) != _drop_empty_topics(new.owned)


def _has_unsubscribed_topics(member: GenerationMember, generation: Generation) -> bool:
    """Returns whether the member was assigned a topic that it does not subscribe to."""
    if generation.kind is not GroupType.CLASSIC or member.problem is not None:
        return False
    return not set(_drop_empty_topics(member.assigned)).issubset(member.topics)


def _drop_empty_topics(partitions: PartitionsByTopic) -> PartitionsByTopic:
    return {topic: numbers for topic, numbers in partitions.items() if numbers}


def _known_topics(generation: Generation) -> set[str]:
    """Returns subscribed and assigned topics: a pattern that the broker matches lists none."""
    return {topic for member in generation.members for topic in (*member.topics, *member.assigned)}


def _is_readable_generation(generation: Generation) -> bool:
    if generation.kind is GroupType.CLASSIC and generation.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    return all(member.problem is None for member in generation.members)


EAGER_PROTOCOL, COOPERATIVE_PROTOCOL, CONSUMER_PROTOCOL = "eager", "cooperative", "consumer"


def compute_cost(rebalance: Rebalance, problems: ProblemCache | None = None) -> RebalanceCost:
    """Returns a rebalance's cost; its group's rebalances share the cache ``problems``."""
    after = rebalance.after
    index, counts = _index_partitions(rebalance, problems)
    members = (
        SnapshotMember(
            index.number(member_identity(one)), one.member_id, one.group_instance_id, one.topics
        )
        for one in after.members
    )
    snapshot = index.snapshot(members, counts)
    before = _index_owners(index, rebalance.before)
    placed = SnapshotPlacement.from_positions(
        snapshot, snapshot.position[_index_owners(index, after)[snapshot.partition_numbers]]
    )
    previous = movable = snapshot.previous_positions(before)
    if not _may_be_cooperative(after):  # a partition without an owner was deleted
        movable = np.where(placed.positions == UNASSIGNED, np.int32(UNASSIGNED), previous)
    return RebalanceCost(
        moved=count_moves(movable, placed.positions),
        moves_needed=snapshot.fewest_moves(previous),
        orphaned=int(np.count_nonzero(before != UNASSIGNED)) - snapshot.count_present(before),
        revoked=sum(_count_given_up(*pair) for pair in _pair_rounds(rebalance)),
        idle_members=placed.idle,
        most=placed.most,
        least=placed.least,
    )


def _index_partitions(
    rebalance: Rebalance, problems: ProblemCache | None
) -> tuple[HistoryIndex, Mapping[str, int]]:
    """Returns an index of all assigned partitions, and the partition counts after the rebalance."""
    generations = (
        rebalance.rounds if rebalance.before is None else (rebalance.before, *rebalance.rounds)
    )
    counts_of_rounds = [assigned_counts(generation) for generation in generations]
    known: dict[str, int] = {}
    for generation, counts in zip(generations, counts_of_rounds, strict=True):
        known = update_counts(generation, known, counts)
    return HistoryIndex(largest_counts(counts_of_rounds), problems), drop_topics(
        known, rebalance.absent
    )


def _index_owners(index: HistoryIndex, generation: Generation | None) -> IntArray:
    members = () if generation is None else generation.members
    assignments = ((index.number(member_identity(member)), member.assigned) for member in members)
    return make_owner_array(index.layout, assignments)


def _pair_rounds(rebalance: Rebalance) -> Iterator[tuple[Generation, Generation]]:
    before = rebalance.before
    for generation in rebalance.rounds:
        if before is not None:
            yield before, generation
        before = generation


def _count_given_up(before: Generation, after: Generation) -> int:
    """Counts the partitions that members of both generations revoked in between."""
    old_members = {member_identity(member): member for member in before.members}
    total = 0
    for member in after.members:
        old = old_members.get(member_identity(member))
        if old is None:
            continue
        total += sum(map(len, old.assigned.values()))
        if not gave_up_everything(before, after, member):
            for topic, numbers in old.assigned.items():
                kept = member.assigned.get(topic, ())
                total -= len(numbers) if kept == numbers else len({*numbers} & {*kept})
    return total


def gave_up_everything(before: Generation, after: Generation, new: GenerationMember) -> bool:
    """Returns whether a member revoked all its partitions before it joined: with cooperative-sticky
    while its strategies include an eager one. A static member that is down keeps its subscription.
    """
    if after.kind is GroupType.CONSUMER:
        return False
    if after.strategy in EAGER_STRATEGIES:
        return True
    if new.owned or after.strategy != COOPERATIVE_STICKY:
        return not new.owned
    reported = -1 if new.owned_generation is None else new.owned_generation
    return new.group_instance_id is None or reported >= before.generation


def rebalance_protocol(rebalance: Rebalance) -> str:
    """Returns ``eager``, ``cooperative`` or ``consumer``, by the members' behavior."""
    return observed_protocol(rebalance) or COOPERATIVE_PROTOCOL


def observed_protocol(rebalance: Rebalance) -> str | None:
    """Returns the protocol; None if the strategy allows both and no member owned anything."""
    after = rebalance.after
    if after.kind is GroupType.CONSUMER:
        return CONSUMER_PROTOCOL
    if after.strategy in EAGER_STRATEGIES:
        return EAGER_PROTOCOL
    revoked_all = set()
    for before, after_round in _pair_rounds(rebalance):
        assigned = {member_identity(member): member.assigned for member in before.members}
        revoked_all |= {
            gave_up_everything(before, after_round, member)
            for member in after_round.members
            if any(topic in member.topics for topic in assigned.get(member_identity(member), ()))
        }
    if not revoked_all:
        return None if after.strategy == COOPERATIVE_STICKY else EAGER_PROTOCOL
    return EAGER_PROTOCOL if revoked_all == {True} else COOPERATIVE_PROTOCOL
