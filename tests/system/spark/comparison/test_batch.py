"""Batch queries: the same rows from Rota's source as from Spark's own."""

from __future__ import annotations

import pytest

from tests.system.spark.comparison.queries import LOST, OFFSETS, RECORDS, TIMES, TOPICS, BatchQuery
from tests.system.spark.comparison.source_pair import ROTAS, SPARKS, SourcePair


@pytest.mark.parametrize(
    "case", [*TOPICS, *RECORDS, *OFFSETS, *TIMES, *LOST], ids=lambda case: case.name
)
def test_same_rows(case: BatchQuery, source_pair: SourcePair) -> None:
    assert source_pair.read(case.options).count == case.rows


def test_at_least_so_many_tasks(source_pair: SourcePair) -> None:
    options = {"subscribe": "skewed", "minPartitions": "10"}
    own, rota = (source_pair.ask("tasks", source, options) for source in (SPARKS, ROTAS))
    assert sum(rota) == sum(own) == 111
    assert len(rota) >= len(own) == 10


def test_no_task_with_more_records(source_pair: SourcePair) -> None:
    """Spark's own keeps to it in streams alone."""
    rota = source_pair.ask("tasks", ROTAS, {"subscribe": "skewed", "maxRecordsPerPartition": "30"})
    assert sum(rota) == 111
    assert max(rota) <= 30
