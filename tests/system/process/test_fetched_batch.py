"""A partition's answer to a Fetch: which of its records a consumer gets, and where it reads on."""

from __future__ import annotations

import pytest

from rota.client.fetch import Batch, FetchedPartition, read_batches
from rota.engine.model.topic import TopicPartition
from tests.support.process import run_python

SOURCE = TopicPartition("orders", 3)


def fetched_partition(
    data: bytes, offset: int = 0, aborts: tuple[tuple[int, int], ...] = ()
) -> FetchedPartition:
    return FetchedPartition(SOURCE, 0, offset, memoryview(data), 100, 100, 0, aborts)


def read_one_batch(data: bytes) -> Batch:
    (found,) = read_batches(fetched_partition(data))
    return found


# Arrow

ARROW = """
import sys
from rota.client.fetch import FetchedPartition
from rota.client.fetch import read_batches
from rota.engine.formats import record_batch
from rota.engine.model.topic import TopicPartition

headers = ((b"h", b"1"),)
made = [record_batch.BatchRecord(each, each - 1, None, b"v", headers) for each in range(100)]
data = memoryview(record_batch.encode_batch(made))
[found] = read_batches(FetchedPartition(TopicPartition("t", 0), 0, 0, data, 100, 100, 0, ()))
table = found.to_arrow()
assert table.column("value").to_pylist() == [b"v"] * 100
assert table.column("timestamp").null_count == 1
assert "pyarrow" in sys.modules
print("pandas" in sys.modules)
"""


def test_a_table_is_made_without_pandas() -> None:
    """Which pyarrow would load where there is one; that takes half a second."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("pandas")
    assert run_python(ARROW).checked().out.split() == ["False"]
