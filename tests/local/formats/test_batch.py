"""Record batches by example: heads, walking, damage, codecs, compaction, transactions."""

from __future__ import annotations

import mmap
from pathlib import Path

from rota.engine.formats import record_batch, record_batch_columns, record_batch_scan
from rota.engine.formats.record_batch import BatchRecord

NOW = 1_790_000_000_000
ONE = BatchRecord(7, NOW, b"key", b"value")
TWO = BatchRecord(8, NOW + 5, None, b"more", ((b"trace", b"1"), (b"empty", None)))
THREE = BatchRecord(9, NOW + 3, b"gone", None)
BATCH = record_batch.encode_batch([ONE, TWO, THREE])


def test_a_mapped_file_can_be_walked_read_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(BATCH * 3 + BATCH[:40])
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        steps = record_batch_scan.find_batches(view)
        columns = record_batch_columns.decode_batches(view)
    assert (len(steps), steps.end, len(columns)) == (3, 3 * len(BATCH), 9)
    assert columns.problems == steps.problems
