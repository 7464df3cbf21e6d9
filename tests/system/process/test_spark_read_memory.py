"""What a task takes of memory does not depend on what it reads."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rota.engine.formats.record_batch import BatchRecord, CompressionType, encode_batch
from tests.support.process import run_python
from tests.support.spark_topic import NOW, broker_with_topic

STATUS = Path("/proc/self/status")
#: MiB of a worker.
MOST = 500
READER = """
import sys
import pyspark.sql
from rota.engine.model.topic import TopicPartition
from rota.spark import option
from rota.spark.plan import OffsetRange
from rota.spark.task import read_ranges

servers, *ends = sys.argv[1:]
given = {"kafka.bootstrap.servers": servers, "subscribe": "t", "includeHeaders": "true"}
task = [OffsetRange(TopicPartition("t", number), 0, int(end)) for number, end in enumerate(ends)]
options = option.parse_options(given, streaming=False)
count = sum(each.num_rows for each in read_ranges(tuple(task), options))
(peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(count, int(peak.split()[1]) // 1024)
"""


def repeat_batches(records: list[BatchRecord], times: int) -> list[bytes]:
    """Batches that pack well; only where they begin is another, which no checksum is about."""
    one = encode_batch(records, codec=CompressionType.ZSTD)
    return [struct.pack(">q", number * len(records)) + one[8:] for number in range(times)]


@pytest.mark.skipif(not STATUS.exists(), reason="this system does not tell")
def test_large_batches_and_many_small_records(tmp_path: Path) -> None:
    """64 MiB in a batch of 2 KiB, records of 1 MiB, and a million of 7 bytes."""
    large = [BatchRecord(at, NOW, None, bytes(1 << 20)) for at in range(64)]
    small = [BatchRecord(at, NOW, None, b"") for at in range(100_000)]
    with broker_with_topic(tmp_path, repeat_batches(large, 3), repeat_batches(small, 10)) as broker:
        done = run_python(READER, broker.bootstrap_servers, "192", "1000000").checked()
    count, peak = map(int, done.out.split())
    assert count == 1_000_192
    assert peak < MOST
