"""A simulated day: 24 hours of 50 groups with 20 members each, heartbeats every 3 s, and a rolling
deploy of each group, through the real coordinator and member machines.

    python -m bench.day

prints Markdown tables for docs/benchmarks.md: how cost grows with members and with groups, and what
it costs to play every heartbeat.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from bench.limit import LIMITS, format_seconds
from bench.measure import Measurement
from bench.run import Row, Run
from rota.engine.simulator.scenario import Scenario, read_scenario
from rota.engine.simulator.simulation import Simulation, simulate

GROUPS = 50
MEMBERS = 20
HOURS = 24
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")


def day_scenario(members: int, strategy: str, hours: float = HOURS) -> Scenario:
    """One group's day: its pods are replaced in turn, beginning a third into it."""
    return read_scenario(
        {
            "group": "billing",
            "strategy": strategy,
            "duration": f"{int(hours * 3600)}s",
            "topics": {"orders": 2 * members, "payments": members},
            "members": [{"name": "pod", "count": members, "heartbeat": "3s"}],
            "events": [
                {
                    "at": f"{int(hours * 1200)}s",
                    "deploy": "pod",
                    "down": "10s",
                    "between": "60s",
                }
            ],
        }
    )


def simulate_day(groups: int, members: int, hours: float = HOURS, *, skip: bool = True) -> float:
    """Returns the CPU seconds of a day of these groups, which use the strategies in turn."""
    start = time.process_time()
    for number in range(groups):
        scenario = day_scenario(members, STRATEGIES[number % len(STRATEGIES)], hours)
        result = simulate(scenario, seed=number, skip=skip)
        assert isinstance(result, Simulation)
        # each pod leaves and comes back
        assert len(result.rebalances) >= 2 * members, len(result.rebalances)
    return time.process_time() - start


def run(bench: Run) -> Iterator[Row]:
    """Once: it is long enough to be sure of."""
    work = f"a day: {GROUPS} groups x {MEMBERS} members, a deploy of each"
    bench.print_progress(f"   {work}")
    yield Row(
        work=work,
        ours=Measurement(seconds=simulate_day(GROUPS, MEMBERS)),
        theirs={},
        limit=LIMITS["day"],
    )


def _table(head: str, rows: Iterable[tuple[object, float]]) -> None:
    print(f"| {head} | CPU |\n|---|---|", flush=True)
    for size, seconds in rows:
        print(f"| {size} | {format_seconds(seconds)} |", flush=True)
    print()


def main() -> None:
    """The tables."""
    _table(
        "members, in 4 groups",
        ((members, simulate_day(4, members)) for members in (5, 10, 20, 40, 80)),
    )
    _table(
        "groups of 20 members", ((groups, simulate_day(groups, 20)) for groups in (4, 8, 16, 32))
    )
    _table(
        "hours of 4 groups of 20", ((hours, simulate_day(4, 20, hours)) for hours in (2, 24, 240))
    )
    full = ((f"{skip}", simulate_day(4, 20, 2, skip=skip)) for skip in (True, False))
    _table("skipping in 2 hours of 4 groups of 20", full)


if __name__ == "__main__":
    main()
