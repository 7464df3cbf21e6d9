"""``solver="kafka"`` against the StickyAssignor and CooperativeStickyAssignor of kafka-clients.

Every case is compared partition by partition, on both of Kafka's paths: that covers loads, their
order and the number of moves. A difference is accepted only where Kafka breaks a rule of a valid
assignment, for a reason that is in the input: these are :data:`FAULTS`, described with examples
in docs/java-faults.md.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest

from rota.assignors.claims import held_by_another
from rota.assignors.cooperative import CooperativeSticky
from rota.assignors.interface import Solution
from rota.assignors.kafka.hashing import walk
from rota.assignors.problem import Problem
from rota.assignors.sticky import Sticky, StickyFamily
from rota.model.membership import UNASSIGNED
from rota.model.topic import IntArray
from tests.java import launcher
from tests.kafka.sticky_cases import Case, case

BEYOND = "claim beyond a topic's end"
EMPTY = "first member subscribes to nothing"
EARLIER = "earlier owner that does not subscribe"
HANDED_OVER = "handed over in one round"
WITHHELD = "withheld from its only holder"
FAULTS = {
    "sticky": {BEYOND, EMPTY, EARLIER},
    "cooperative-sticky": {BEYOND, EMPTY, EARLIER, HANDED_OVER, WITHHELD},
}

STRATEGIES: dict[str, StickyFamily] = {
    "sticky": Sticky(solver="kafka"),
    "cooperative-sticky": CooperativeSticky(solver="kafka"),
}


class JavaFailed(Exception):
    """Kafka raised, or gave what cannot be written as one owner for each partition."""


def ask(cases: list[Case]) -> list[str]:
    """Kafka's answers, from one process."""
    try:
        command = launcher.command("StickyOracle")
    except launcher.Unavailable as reason:
        pytest.skip(str(reason))
    lines = "".join(f"{one.line}\n" for one in cases)
    done = subprocess.run(
        command, input=lines, capture_output=True, check=False, encoding="utf-8", timeout=1200
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(cases), done.stderr[-2000:]
    return answers


def owners_in(answer: str, case: Case, problem: Problem) -> IntArray:
    """Kafka's answer as a column of owners."""
    status, *given = answer.split("\t")
    if status == "error":
        raise JavaFailed(given[0])
    names, layout = list(case.counts), problem.layout
    owners = np.full(layout.size, UNASSIGNED, dtype=np.int32)
    for member, listed in zip(case.members, given, strict=True):
        for claim in listed.split("+") if listed else ():
            topic, number = names[int(claim.split(".")[0])], int(claim.split(".")[1])
            if topic not in member.topics:
                raise JavaFailed("given to a member that does not subscribe")
            if number >= layout.counts[layout.index[topic]]:
                raise JavaFailed("phantom partition")
            spot = layout.starts[layout.index[topic]] + number
            if owners[spot] != UNASSIGNED:
                raise JavaFailed("two owners")
            owners[spot] = problem.members.index(member.id)
    return owners


def causes(case: Case, problem: Problem) -> list[str]:
    """What in the input leads Kafka astray."""
    found = []
    counts = {topic: problem.layout.counts[index] for topic, index in problem.layout.index.items()}
    if any(number >= counts.get(topic, 2**31) for m in case.members for topic, number in m.owned):
        found.append(BEYOND)
    topics = {member.id: set(member.topics) for member in case.members}
    walked = [topics[problem.members[position]] for position in walk(problem.members)]
    named = [asked for asked in walked if asked]
    if walked and not walked[0] and walked[len(walked) - len(named) :] == [named[0]] * len(named):
        found.append(EMPTY)
    behind = problem.claims.generation < problem.claims.generation.max()
    if (~problem.claims.subscribed & behind[problem.claims.member]).any():
        found.append(EARLIER)
    return found


def check_valid(problem: Problem, solution: Solution) -> None:
    """Rota's own result keeps the rules, whatever Kafka's does."""
    target = solution.owners if solution.target is None else solution.target
    assert ((target >= 0) & (target < len(problem.members))).all()
    assert problem.subscribes[problem.class_of[target], problem.layout.topic_of].all()
    if solution.target is not None:
        withheld = held_by_another(problem, target)
        assert (solution.owners == np.where(withheld, UNASSIGNED, target)).all()


def judge(case: Case, answer: str) -> Iterable[tuple[str, str]]:
    """The faults in Kafka's answer, as (fault, effect); any other difference fails."""
    problem = case.problem
    solution = STRATEGIES[case.strategy].solve(problem)
    check_valid(problem, solution)
    try:
        java = owners_in(answer, case, problem)
    except JavaFailed as failure:
        return [(_blamed(causes(case, problem), str(failure)), str(failure))]
    differs = java != solution.owners
    found = []
    if case.strategy == "cooperative-sticky":
        handed = (java != UNASSIGNED) & held_by_another(problem, java)
        withheld = (java == UNASSIGNED) & (solution.owners != UNASSIGNED)
        found += [(HANDED_OVER, "two owners at once")] * bool((differs & handed).any())
        if problem.equal:
            found += [(WITHHELD, "no owner for a round")] * bool((differs & withheld).any())
            differs &= ~withheld
        differs &= ~handed
    if differs.any():
        reasons = [reason for reason in causes(case, problem) if reason != EARLIER]
        blamed = _blamed(reasons, f"differs: {java.tolist()} {solution.owners.tolist()}")
        found.append((blamed, "another valid assignment"))
    return found


def _blamed(reasons: list[str], effect: str) -> str:
    assert reasons, f"{effect}, without a known cause"
    return reasons[0]


def compare(strategy: str, *, equal: bool, seeds: range) -> Counter[tuple[str, str]]:
    """All cases of these seeds; the faults met, counted."""
    counted: Counter[tuple[str, str]] = Counter()
    for start in range(seeds.start, seeds.stop, 5000):
        stop = min(start + 5000, seeds.stop)
        cases = [case(seed, strategy, equal=equal) for seed in range(start, stop)]
        for one, answer in zip(cases, ask(cases), strict=True):
            try:
                counted.update(judge(one, answer))
            except AssertionError:
                print(f"case({one.seed}, {strategy!r}, equal={equal})\n{one.line}\n{answer}")
                raise
    return counted


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_ten_thousand_groups_as_kafka_assigns_them(strategy: str) -> None:
    counted = compare(strategy, equal=True, seeds=range(5000))
    counted += compare(strategy, equal=False, seeds=range(5000))
    print(strategy, dict(counted))
    assert {fault for fault, _ in counted} == FAULTS[strategy]
    assert counted.total() < 1000


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_hundred_thousand_groups_as_kafka_assigns_them(strategy: str) -> None:
    counted = compare(strategy, equal=True, seeds=range(10_000, 60_000))
    counted += compare(strategy, equal=False, seeds=range(10_000, 60_000))
    print(strategy, dict(counted))
    assert {fault for fault, _ in counted} == FAULTS[strategy]
