"""83 members, one of seven topics each, one left: tens of seconds in kafka-python."""

from __future__ import annotations

from collections.abc import Iterator

from bench import case
from bench.peer import FRANZ_GO, JAVA, KAFKA_PYTHON
from bench.run import Row, Run, step_rows
from rota.engine.assignors.sticky import StickyAssignor


def run(bench: Run) -> Iterator[Row]:
    """Sticky, solver exact."""
    work = case.one_topic_each()
    theirs = bench.measure_peers(work, "sticky", (JAVA, FRANZ_GO, KAFKA_PYTHON))
    title = "83 members x 7 topics x 240, one topic each, one left"
    yield from step_rows(
        title, "one-topic-each", bench.measure_rota(work, StickyAssignor()), theirs
    )
