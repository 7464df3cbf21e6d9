"""A million partitions, equal subscriptions: fresh, one leaves, one joins."""

from __future__ import annotations

from collections.abc import Iterator

from bench import case
from bench.limit import format_seconds
from bench.peer import FRANZ_GO, JAVA
from bench.run import Row, Run, step_rows
from rota.engine.assignors.sticky import StickyAssignor


def run(bench: Run) -> Iterator[Row]:
    """Sticky, solver exact."""
    work = case.equal()
    theirs = bench.measure_peers(work, "sticky", (JAVA, FRANZ_GO))
    yield from step_rows(
        "500 topics x 2,000 x 2,000 members, equal",
        "equal",
        bench.measure_rota(work, StickyAssignor()),
        theirs,
    )
    counted = bench.measure_peers(case.dealt_equal(), "sticky-counts", (JAVA,))
    figures = [
        f"{step} {format_seconds(taken.seconds)}"
        for step, peers in counted.items()
        for taken in peers.values()
        if taken.seconds is not None
    ]
    if figures:
        bench.notes.append(
            "Equal, Java from partition counts, so that it makes the objects of partitions within "
            f"the call: {', '.join(figures)}."
        )
