"""Range and RoundRobin at half a million and a million partitions."""

from __future__ import annotations

from collections.abc import Iterator

from bench import case
from bench.peer import FRANZ_GO, JAVA
from bench.run import Row, Run, step_rows
from rota.engine.assignors.range import RangeAssignor
from rota.engine.assignors.roundrobin import RoundRobinAssignor


def run(bench: Run) -> Iterator[Row]:
    """Both strategies on both groups."""
    for title, work in (
        ("500 topics x 2,000 x 2,000 members", case.dealt_equal()),
        ("1,000 topics x 500 x 10,000 members", case.dealt_many()),
    ):
        for strategy in (RangeAssignor(), RoundRobinAssignor()):
            theirs = bench.measure_peers(work, strategy.name, (JAVA, FRANZ_GO))
            yield from step_rows(
                f"{strategy.name}, {title}", "dealt", bench.measure_rota(work, strategy), theirs
            )
