"""Batch queries: the same rows from Rota's source as from Spark's own."""

from __future__ import annotations

import pytest

from tests.system.spark.beside.case import LOST, OFFSETS, RECORDS, TIMES, TOPICS, Read
from tests.system.spark.beside.stage import ROTAS, SPARKS, Beside


@pytest.mark.parametrize(
    "case", [*TOPICS, *RECORDS, *OFFSETS, *TIMES, *LOST], ids=lambda case: case.name
)
def test_same_rows(case: Read, beside: Beside) -> None:
    assert beside.read(case.options).count == case.rows


def test_at_least_so_many_tasks(beside: Beside) -> None:
    options = {"subscribe": "skewed", "minPartitions": "10"}
    own, rota = (beside.ask("tasks", source, options) for source in (SPARKS, ROTAS))
    assert sum(rota) == sum(own) == 111
    assert len(rota) >= len(own) == 10


def test_no_task_with_more_records(beside: Beside) -> None:
    """Spark's own keeps to it in streams alone."""
    rota = beside.ask("tasks", ROTAS, {"subscribe": "skewed", "maxRecordsPerPartition": "30"})
    assert sum(rota) == 111
    assert max(rota) <= 30
