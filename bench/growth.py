"""How the cost of each strategy grows with partitions, members and distinct subscriptions.

    python -m bench.growth

prints Markdown tables for docs/benchmarks.md: CPU of ``solve`` on a new group / after one left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator

from bench import case, ours
from bench.case import Case, Step
from bench.limit import format_seconds
from bench.measure import Measurement
from rota.engine.assignors.interface import ColumnarAssignor
from rota.engine.assignors.range import RangeAssignor
from rota.engine.assignors.roundrobin import RoundRobinAssignor
from rota.engine.assignors.sticky import StickyAssignor

#: CPU seconds; a strategy that passes them is left out of the larger sizes.
LIMIT = 20.0
TOPICS = 100


def strategy_columns() -> dict[str, ColumnarAssignor]:
    """By the name of their column."""
    return {
        "sticky, exact": StickyAssignor(),
        "sticky, kafka": StickyAssignor(solver="kafka"),
        "range": RangeAssignor(),
        "roundrobin": RoundRobinAssignor(),
    }


def make_case(*, partitions: int, members: int, subscriptions: int) -> Case:
    """Members take the subscriptions in turn; one subscription is all topics, several are half of
    them each, drawn at random.
    """
    everything = tuple(range(TOPICS))
    half = TOPICS // 2
    classes = (
        case.draw_subscriptions(TOPICS, subscriptions, half, half)
        if subscriptions > 1
        else (everything,)
    )
    group = case.members(position % subscriptions for position in range(members))
    return Case(
        name="grown",
        topics=case.topics(TOPICS, partitions // TOPICS),
        classes=classes,
        steps=(
            Step(name="fresh", members=group),
            Step(name="leave", members=case.remove_middle_member(group), after="fresh"),
        ),
    )


def _cell(taken: dict[str, Measurement]) -> str:
    texts = []
    for step in taken.values():
        if step.seconds is None:
            texts.append(step.trouble or "-")
        else:
            texts.append(("> " if step.over else "") + format_seconds(step.seconds))
    return " / ".join(texts)


def growth_table(title: str, sizes: Iterable[int], made: Callable[[int], Case]) -> Iterator[str]:
    """A table: a line for each size, a column for each strategy."""
    players = strategy_columns()
    yield f"| {' | '.join([title, *players])} |"
    yield f"|{'---|' * (len(players) + 1)}"
    slow: set[str] = set()
    for size in sizes:
        cells = [f"{size:,}"]
        for name, strategy in players.items():
            if name in slow:
                cells.append("-")
                continue
            print(f"{title} {size:,}: {name}", file=sys.stderr, flush=True)
            taken = ours.measure_steps(made(size), strategy, limit=LIMIT, budget=0.5)
            slow |= {name for step in taken.values() if step.over}
            cells.append(_cell(taken))
        yield f"| {' | '.join(cells)} |"
    yield ""


def main() -> None:
    """Three studies; what does not grow stays in the middle."""
    for lines in (
        growth_table(
            "partitions (200 members, equal subscriptions)",
            (1_000, 10_000, 100_000, 1_000_000),
            lambda size: make_case(partitions=size, members=200, subscriptions=1),
        ),
        growth_table(
            "partitions (200 members, 20 subscriptions)",
            (1_000, 10_000, 100_000, 1_000_000),
            lambda size: make_case(partitions=size, members=200, subscriptions=20),
        ),
        growth_table(
            "members (100,000 partitions, equal subscriptions)",
            (10, 100, 1_000, 5_000),
            lambda size: make_case(partitions=100_000, members=size, subscriptions=1),
        ),
        growth_table(
            "distinct subscriptions (20,000 partitions, 1,000 members)",
            (1, 10, 100, 1_000),
            lambda size: make_case(partitions=20_000, members=1_000, subscriptions=size),
        ),
    ):
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
