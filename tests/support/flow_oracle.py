"""Judges for the exact solver that share no code with it: a plain minimum-cost flow, brute force.

Both give the goal (sorted loads, local partitions, moved partitions) that the best assignment has.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from dataclasses import dataclass

from rota.engine.assignors.problem import Problem, find_previous_owners


@dataclass(frozen=True)
class AssignmentScore:
    """What an assignment is judged by, best first: the sorted loads from the heaviest down, local
    partitions, kept partitions.
    """

    loads: tuple[int, ...]
    local: int
    kept: int

    @property
    def key(self) -> tuple[tuple[int, ...], int, int]:
        return self.loads, -self.local, -self.kept


def subscribers(problem: Problem) -> list[list[int]]:
    """For each partition the members that may own it."""
    listed = [set(problem.classes[position].tolist()) for position in problem.class_of.tolist()]
    return [
        [member for member, topics in enumerate(listed) if topic in topics]
        for topic in problem.layout.topic_of.tolist()
    ]


def is_local(problem: Problem, partition: int, member: int) -> bool:
    if problem.racks is None:
        return False
    rack = int(problem.racks.rack_of_member[member])
    return rack in problem.racks.sets[int(problem.racks.set_of_partition[partition])]


def goal_of(problem: Problem, owners: list[int]) -> AssignmentScore:
    """What these owners reach."""
    loads = [0] * len(problem.members)
    for owner in owners:
        loads[owner] += 1
    previous = find_previous_owners(problem).tolist()
    return AssignmentScore(
        loads=tuple(sorted(loads, reverse=True)),
        local=sum(is_local(problem, *pair) for pair in enumerate(owners)),
        kept=sum(owner == before for owner, before in zip(owners, previous, strict=True)),
    )


def brute_force(problem: Problem) -> AssignmentScore:
    """The best over all assignments."""
    goals = (goal_of(problem, list(owners)) for owners in itertools.product(*subscribers(problem)))
    return min(goals, key=lambda goal: goal.key)


class MinimumCostFlow:
    """Successive shortest paths by queue, on arcs held as lists; costs may be negative, cycles of
    negative cost may not exist at the start.
    """

    def __init__(self, nodes: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(nodes)]
        self.head: list[int] = []
        self.room: list[int] = []
        self.cost: list[int] = []

    def arc(self, tail: int, head: int, room: int, cost: int) -> int:
        """Adds an arc, and beside it the one that undoes it."""
        for start, end, free, price in ((tail, head, room, cost), (head, tail, 0, -cost)):
            self.out[start].append(len(self.head))
            self.head.append(end)
            self.room.append(free)
            self.cost.append(price)
        return len(self.head) - 2

    def run(self, source: int, sink: int) -> None:
        """The greatest flow at the least cost."""
        while (path := self._cheapest(source, sink)) is not None:
            amount = min(self.room[arc] for arc in path)
            for arc in path:
                self.room[arc] -= amount
                self.room[arc ^ 1] += amount

    def _cheapest(self, source: int, sink: int) -> list[int] | None:
        cost: list[float] = [float("inf")] * len(self.out)
        by: list[int] = [-1] * len(self.out)
        cost[source] = 0
        queue = deque([source])
        queued = {source}
        while queue:
            node = queue.popleft()
            queued.discard(node)
            for arc in self.out[node]:
                through = cost[node] + self.cost[arc]
                if self.room[arc] and through < cost[self.head[arc]]:
                    cost[self.head[arc]] = through
                    by[self.head[arc]] = arc
                    if self.head[arc] not in queued:
                        queued.add(self.head[arc])
                        queue.append(self.head[arc])
        if by[sink] < 0:
            return None
        path = [by[sink]]
        while self.head[path[-1] ^ 1] != source:
            path.append(by[self.head[path[-1] ^ 1]])
        return path


def minimum_cost_flow(problem: Problem) -> AssignmentScore:
    """The best, as a flow over (topic, racks) and members.

    A member's k-th partition costs 2k - 1 in the first place: the sum of squares is least for the
    most even loads. A partition that is local saves in the second place, one that stays in the
    third.
    """
    racks = problem.racks
    topic_of = problem.layout.topic_of.tolist()
    kinds = [
        (topic, int(racks.set_of_partition[partition]) if racks else 0)
        for partition, topic in enumerate(topic_of)
    ]
    example = {kind: partition for partition, kind in enumerate(kinds)}
    owned = Counter(zip(kinds, find_previous_owners(problem).tolist(), strict=True))
    may = subscribers(problem)
    members = len(problem.members)
    source, sink = members + len(example), members + len(example) + 1
    kept_worth = 1
    local_worth = len(kinds) + 1
    even_worth = local_worth * local_worth
    network = MinimumCostFlow(sink + 1)
    kept_arcs, local_arcs = [], []
    load_arcs: list[list[int]] = [[] for _ in range(members)]
    for node, (kind, partition) in enumerate(example.items(), start=members):
        size = kinds.count(kind)
        network.arc(source, node, size, 0)
        for member in may[partition]:
            local = is_local(problem, partition, member)
            worth = local_worth if local else 0
            arcs = [network.arc(node, member, size, -worth)]
            if owned[kind, member]:
                arcs.append(network.arc(node, member, owned[kind, member], -worth - kept_worth))
                kept_arcs.append(arcs[-1])
            local_arcs += arcs if local else []
    for member in range(members):
        load_arcs[member] = [
            network.arc(member, sink, 1, (2 * place + 1) * even_worth)
            for place in range(len(kinds))
        ]
    network.run(source, sink)

    def flow(arcs: list[int]) -> int:
        return sum(network.room[arc ^ 1] for arc in arcs)

    loads = sorted((flow(arcs) for arcs in load_arcs), reverse=True)
    return AssignmentScore(loads=tuple(loads), local=flow(local_arcs), kept=flow(kept_arcs))
