"""Rows of a key, out of batches that are ordered by it."""

from __future__ import annotations

import pyarrow as pa

from rota.pipeline.group_by import split_by_key


def _batch(keys: list[bytes | None], rows: list[int]) -> pa.RecordBatch:
    return pa.record_batch({"name": pa.array(keys, pa.binary()), "row": pa.array(rows)})


def test_rows_without_a_key_are_kept_apart() -> None:
    batches = [_batch([None, None, b"a", b"a"], [1, 2, 3, 4]), _batch([b"a", b"c"], [5, 6])]
    found = [
        (key, [row for part in parts for row in part.column("row").to_pylist()])
        for key, parts in split_by_key(batches, "name")
    ]
    assert found == [(None, [1, 2]), (b"a", [3, 4, 5]), (b"c", [6])]
