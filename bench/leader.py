"""The leader's whole duty: every member's subscription bytes in, every member's assignment bytes
out. Java deserialises, assigns and serialises; franz-go likewise.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import case, ours
from bench.case import Case
from bench.measure import Measurement, best_run, peak_memory
from bench.peer import FRANZ_GO, JAVA
from bench.run import BUDGET, OURS, Row, Run, step_rows
from rota.engine.assignors.problem import Problem
from rota.engine.assignors.sticky import CooperativeStickyAssignor
from rota.engine.formats import consumer_protocol
from rota.engine.member.classic import compute_assignment, decode_subscriptions
from rota.engine.member.events import AssignmentComputed, ComputeAssignment
from rota.engine.model.response import JoinedMember

Members = list[JoinedMember]


def measure_leader(work: Case) -> dict[str, Measurement]:
    """What Rota takes for each step. Cooperative, so that ownership is in the subscription."""
    strategy = CooperativeStickyAssignor()
    topics = ours.make_cluster(work)

    def led(members: Members) -> AssignmentComputed:
        group, _ = decode_subscriptions(members)
        return compute_assignment(ComputeAssignment(1, strategy, topics, group))

    owned: dict[str | None, ours.Owned] = {None: {}}
    taken: dict[str, Measurement] = {}
    for step in work.steps:
        group = ours.make_group(work, step, owned[step.after])
        members = [
            JoinedMember(member, None, consumer_protocol.encode_subscription(told))
            for member, told in group.items()
        ]

        def joined(members: Members = members) -> Members:
            return members

        seconds, outcome = best_run(joined, led, limit=OURS, budget=BUDGET)
        assert set(outcome.assignments) == set(group)
        taken[step.name] = Measurement(seconds=seconds, peak=peak_memory(joined, led))
        if step.after is None:
            problem = Problem.from_group(topics, group, strategy.read_ownership)
            owned[step.name] = ours.owned_after(problem, strategy.solve(problem).owners)
    return taken


def run(bench: Run) -> Iterator[Row]:
    """CooperativeSticky, solver exact."""
    for title, work in (
        ("equal, a million partitions", case.equal()),
        ("the same + one member with one topic", case.one_differs()),
    ):
        theirs = bench.measure_peers(work, "leader", (JAVA, FRANZ_GO))
        bench.print_progress(f"   {work.name}: Rota leader")
        yield from step_rows(f"leader's duty, {title}", "leader", measure_leader(work), theirs)
