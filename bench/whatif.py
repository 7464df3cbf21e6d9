"""What-if: 2,000 pairs of a rebalance and a policy, for groups of 20 members and 200 partitions.

Once where members come and go for good, so that every pair is a rebalance and no two scenes are
alike; and once where they are restarted, so that static members would have spared most of them.
All is counted: replaying the policy in use, costs, pairing, and every other policy. The downtime of
the same groups, which the replay begins with, is measured apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import rota
from bench.limit import LIMITS
from bench.measure import Measurement, best_run
from bench.run import BUDGET, OURS, Row, Run
from rota.engine.history.causes import explain_rebalance
from rota.engine.history.downtime import GroupDowntime, find_downtime
from rota.engine.history.facts import (
    Generation,
    GenerationChange,
    GenerationMember,
    GroupType,
    Rebalance,
)
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.whatif import evaluate_policies

PARTITIONS = {"orders": 120, "payments": 60, "refunds": 20}
MEMBERS = 20
REBALANCES = 60
PAIRS = 2_000
PIECES = 100_000
START = 1_790_000_000_000


def random_uuid(dice: random.Random) -> str:
    """What a coordinator ends member ids with."""
    digits = f"{dice.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def replace_one_member(dice: random.Random, names: list[str], number: int) -> list[str]:
    """One goes for good, or a stranger comes."""
    if number % 2:
        return [name for name in names if name != dice.choice(names)]
    return [*names, f"app-{number}-{random_uuid(dice)}"]


def restart_one_member(dice: random.Random, names: list[str], number: int) -> list[str]:
    """One goes, and comes back as another process of the same client."""
    there = {name[:6] for name in names}
    missing = [f"pod-{one:02}" for one in range(MEMBERS) if f"pod-{one:02}" not in there]
    if missing:
        return [*names, f"{missing[0]}-{random_uuid(dice)}"]
    gone = names[number % MEMBERS]
    return [name for name in names if name != gone]


def make_history(
    change: Callable[[random.Random, list[str], int], list[str]], apart: int, seed: int
) -> list[Generation]:
    """Returns a group's generations under range, ``apart`` seconds from each other."""
    dice = random.Random(seed)
    names = [f"pod-{number:02}-{random_uuid(dice)}" for number in range(MEMBERS)]
    generations = []
    for number in range(1, REBALANCES + 1):
        generations.append(_generation(number, START + 1_000 * apart * number, names))
        names = change(dice, names, number)
    return generations


def _generation(number: int, at: int, names: list[str]) -> Generation:
    topics = tuple(PARTITIONS)
    members = [rota.Member(id=name, topics=topics) for name in names]
    plan = rota.assign("range", partitions=PARTITIONS, members=members)
    return Generation(
        group="billing",
        kind=GroupType.CLASSIC,
        incarnation=0,
        generation=number,
        change=GenerationChange.REBALANCED,
        at=at,
        offset=number,
        protocol_type="consumer",
        strategy="range",
        members=tuple(
            GenerationMember(
                member_id=name,
                client_id=name[:6],
                client_host="/10.0.0.7",
                session_timeout=45_000,
                topics=topics,
                assigned=plan[name],
            )
            for name in names
        ),
    )


def _measure_downtime(group: list[Generation]) -> tuple[list[Rebalance], GroupDowntime]:
    rebalances = find_rebalances(group)
    explained = [explain_rebalance(one, {}) for one in rebalances]
    return rebalances, find_downtime(group, rebalances, explained, commits={}, until=group[-1].at)


def measure_pieces(
    change: Callable[[random.Random, list[str], int], list[str]], apart: int
) -> Measurement:
    """Returns the CPU seconds for this number of pieces of downtime."""
    histories = [make_history(change, apart, seed) for seed in range(5)]

    def play(groups: list[list[Generation]]) -> int:
        return sum(len(_measure_downtime(group)[1].found) for group in groups)

    seconds, pieces = best_run(lambda: histories, play, limit=OURS, budget=BUDGET)
    return Measurement(seconds=seconds * PIECES / pieces)


def measure_pairs(
    change: Callable[[random.Random, list[str], int], list[str]], apart: int
) -> Measurement:
    """Returns the CPU seconds for this number of pairs."""
    groups = [make_history(change, apart, seed) for seed in range(5)]
    histories = [(group, *_measure_downtime(group)) for group in groups]

    def play(listed: list[tuple[list[Generation], list[Rebalance], GroupDowntime]]) -> int:
        return sum(len(evaluate_policies(*one).rows) for one in listed)

    seconds, pairs = best_run(lambda: histories, play, limit=OURS, budget=BUDGET)
    return Measurement(seconds=seconds * PAIRS / pairs)


def run(bench: Run) -> Iterator[Row]:
    """Both kinds of history."""
    kinds = (
        ("members come and go", replace_one_member, 600),
        ("members restart", restart_one_member, 20),
    )
    for name, change, apart in kinds:
        work = f"what-if: {PAIRS:,} pairs of rebalance and policy, {name}"
        bench.print_progress(f"   {work}")
        yield Row(work=work, ours=measure_pairs(change, apart), theirs={}, limit=LIMITS["whatif"])
    work = f"downtime: {PIECES:,} pieces, members come and go"
    bench.print_progress(f"   {work}")
    ours = measure_pieces(replace_one_member, 600)
    yield Row(work=work, ours=ours, theirs={}, limit=LIMITS["downtime"])
