"""A thousand members with 1 to 20 of a thousand topics each: all loads can be equal."""

from __future__ import annotations

from collections.abc import Iterator

from bench import case
from bench.peer import FRANZ_GO, JAVA
from bench.run import Row, Run, step_rows
from rota.engine.assignors.sticky import StickyAssignor


def run(bench: Run) -> Iterator[Row]:
    """Sticky, solver exact."""
    work = case.scattered()
    theirs = bench.measure_peers(work, "sticky", (JAVA, FRANZ_GO))
    title = "1,000 topics x 10, 1,000 members with 1-20 topics each"
    yield from step_rows(title, "scattered", bench.measure_rota(work, StickyAssignor()), theirs)
