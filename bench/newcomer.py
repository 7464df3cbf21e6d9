"""A large group that one member with another subscription joins."""

from __future__ import annotations

from collections.abc import Iterator

from bench import case
from bench.peer import FRANZ_GO, JAVA
from bench.run import Row, Run, step_rows
from rota.engine.assignors.sticky import StickyAssignor


def run(bench: Run) -> Iterator[Row]:
    """Sticky, solver exact."""
    work = case.newcomer()
    theirs = bench.measure_peers(work, "sticky", (JAVA, FRANZ_GO))
    title = "40,000 partitions x 800 members, one joins with another subscription"
    yield from step_rows(title, "newcomer", bench.measure_rota(work, StickyAssignor()), theirs)
