"""A partition's answer to a Fetch: which of its records a consumer gets, and where it reads on."""

from __future__ import annotations

import pytest

from rota.client.answer import read
from rota.client.batch import Batch
from rota.client.fetch import Fetched
from rota.model.topic import TopicPartition
from tests.support.process import run_python

SOURCE = TopicPartition("orders", 3)


def fetched(data: bytes, offset: int = 0, aborts: tuple[tuple[int, int], ...] = ()) -> Fetched:
    return Fetched(SOURCE, 0, offset, memoryview(data), 100, 100, 0, aborts)


def one(data: bytes) -> Batch:
    (found,) = read(fetched(data))
    return found


# Arrow

ARROW = """
import sys
from rota.client.answer import read
from rota.client.fetch import Fetched
from rota.formats import batch
from rota.model.topic import TopicPartition

made = [batch.Record(each, each - 1, None, b"v", ((b"h", b"1"),)) for each in range(100)]
data = memoryview(batch.encode(made))
[found] = read(Fetched(TopicPartition("t", 0), 0, 0, data, 100, 100, 0, ()))
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
