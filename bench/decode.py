"""A journal's segment, from raw bytes to columns of offsets, on one core.

Checksums, batches, records, keys and values: everything between the file and the table. Beside it
``kafka-dump-log --offsets-decoder`` on the same segment, less what it takes for one record: that is
Java's start. It prints what it finds, so the two do not do the same, but it is the tool that people
have for this work today.
"""

from __future__ import annotations

import itertools
import resource
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tests.support import kafka as broker
from tests.support.missing_tool import Unavailable

from bench.limit import LIMITS
from bench.measure import Measurement, best_run, peak_memory
from bench.peer import JAVA
from bench.run import BUDGET, OURS, Row, Run
from rota.engine.formats import journal, record_batch, record_batch_columns
from rota.engine.formats.record_batch import BatchRecord, CompressionType
from rota.engine.model.journal_entry import OffsetCommitEntry

#: So that the limit of a second is a rate of 300,000 records a second.
RECORDS = 300_000
GROUPS = 2_000
TOPICS = 300
#: Offsets that a member commits one after the other.
COMMITS = 50
NOW = 1_790_000_000_000
TOPIC_ID = bytes(range(16))
TOOL = "org.apache.kafka.tools.DumpLogSegments"
CASES = (
    ("batches of 1", 1, CompressionType.NONE),
    ("batches of 5", 5, CompressionType.NONE),
    ("batches of 500", 500, CompressionType.NONE),
    ("batches of 50,000", 50_000, CompressionType.NONE),
    ("batches of 500, zstd", 500, CompressionType.ZSTD),
)
#: Of the recorded broker's journal, batches have 4.7 records on average.
BESIDE_JAVA = 5


@cache
def make_records() -> Sequence[BatchRecord]:
    """Offsets of many groups and topics."""
    made = (
        OffsetCommitEntry(
            group=f"group-{number // COMMITS % GROUPS:05}",
            topic=f"topic-{number // 7 % TOPICS}",
            partition=number % 32,
            offset=1_000_000 + number,
            leader_epoch=3,
            commit_timestamp=NOW + number,
            topic_id=TOPIC_ID,
        )
        for number in range(RECORDS)
    )
    return [
        BatchRecord(offset, NOW + offset, *journal.encode_entry(entry))
        for offset, entry in enumerate(made)
    ]


def make_segment(size: int, codec: CompressionType) -> bytes:
    """All records, in batches of `size` records."""
    each = iter(make_records())
    pieces = iter(lambda: list(itertools.islice(each, size)), [])
    return b"".join(record_batch.encode_batch(piece, codec=codec) for piece in pieces)


def decode_entries(data: bytes) -> journal.EntryColumns:
    """The work."""
    return journal.decode_batch_entries(record_batch_columns.decode_batches(data))


def measure_rota(data: bytes) -> Measurement:
    """Rota's time and memory."""
    seconds, found = best_run(lambda: data, decode_entries, limit=OURS, budget=BUDGET)
    assert len(found.commits) == RECORDS
    assert len(found.undecoded_rows) == 0
    return Measurement(seconds=seconds, peak=peak_memory(lambda: data, decode_entries))


def measure_kafka(bench: Run, data: bytes) -> dict[str, Measurement]:
    """Kafka's tool, if it can run here."""
    try:
        broker.install_kafka()
    except Unavailable as error:
        bench.notes.append(f"decode: kafka-dump-log did not run: {error}")
        bench.print_progress(f"!! kafka-dump-log is LEFT OUT: {error}")
        return {}
    bench.print_progress("   kafka-dump-log")
    one = record_batch.encode_batch(make_records()[:1])
    return {
        JAVA: Measurement(
            seconds=measure_dump(bench.folder, data) - measure_dump(bench.folder, one)
        )
    }


def measure_dump(folder: Path, data: bytes) -> float:
    """CPU seconds of the tool, all its threads."""
    file = folder / f"{0:020d}.log"
    file.write_bytes(data)
    command = broker.kafka_command(TOOL, "--offsets-decoder", "--files", str(file))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(bench: Run) -> Iterator[Row]:
    """Small batches, as a coordinator writes them, and large ones."""
    for title, size, codec in CASES:
        bench.print_progress(f"   {RECORDS:,} records, {title}")
        data = make_segment(size, codec)
        yield Row(
            work=f"decode: {RECORDS:,} offsets of a journal, {title}",
            ours=measure_rota(data),
            theirs=measure_kafka(bench, data) if size == BESIDE_JAVA else {},
            limit=LIMITS["decode"],
        )
