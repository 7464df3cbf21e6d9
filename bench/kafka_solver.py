"""Solver kafka beside Kafka."""

from __future__ import annotations

from collections.abc import Iterator

from bench import case
from bench.peer import FRANZ_GO, JAVA
from bench.run import Row, Run, step_rows
from rota.engine.assignors.sticky import StickyAssignor


def run(bench: Run) -> Iterator[Row]:
    """Sticky, solver kafka, on equal and on mixed subscriptions."""
    for title, key, work in (
        ("500 topics x 2,000 x 2,000 members, equal", "kafka-equal", case.equal()),
        ("40,000 x 800, one joins with another", "kafka-newcomer", case.newcomer()),
    ):
        theirs = bench.measure_peers(work, "sticky", (JAVA, FRANZ_GO))
        taken = bench.measure_rota(work, StickyAssignor(solver="kafka"))
        yield from step_rows(f"solver kafka, {title}", key, taken, theirs)
