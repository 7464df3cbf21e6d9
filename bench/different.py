"""All subscriptions different; every result is checked by its certificate."""

from __future__ import annotations

from collections.abc import Iterator

from bench import case
from bench.peer import FRANZ_GO, JAVA
from bench.run import Row, Run, step_rows
from rota.engine.assignors.certificate import certify
from rota.engine.assignors.sticky import StickyAssignor


def run(bench: Run) -> Iterator[Row]:
    """Sticky, solver exact. Java, which takes minutes here, runs only with the slow peers."""
    peers = (JAVA, FRANZ_GO) if bench.slow_peers else (FRANZ_GO,)
    for title, work in (
        ("200 topics x 200, 500 members, all subscriptions different", case.different()),
        ("5,000 topics x 20, 5,000 members with 5-50 topics each", case.different_large()),
    ):
        theirs = bench.measure_peers(work, "sticky", peers)
        yield from step_rows(
            title,
            work.name,
            bench.measure_rota(work, StickyAssignor(), lambda *result: certify(*result).flaw),
            theirs,
        )
