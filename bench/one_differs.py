"""A million partitions, equal subscriptions but for one member with one topic."""

from __future__ import annotations

from collections.abc import Iterator

from bench import case
from bench.peer import FRANZ_GO, JAVA
from bench.run import Row, Run, step_rows
from rota.engine.assignors.sticky import StickyAssignor


def run(bench: Run) -> Iterator[Row]:
    """Sticky, solver exact."""
    work = case.one_differs()
    theirs = bench.measure_peers(work, "sticky", (JAVA, FRANZ_GO))
    yield from step_rows(
        "the same + one member with one topic",
        "one-differs",
        bench.measure_rota(work, StickyAssignor()),
        theirs,
    )
