"""A driver that is killed, or that ends without a word: the group is never ahead, and catches up.

Each is a process of its own, with a broker of this one.
"""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import rota
import rota.spark
from tests.support.process import CommandResult, run_python
from tests.system.spark.source.test_committer import (
    fill,
    finished_offsets,
    read_stream,
    reader_options,
    stream_writer,
)

CLASSIC = """
    import os, signal, sys, time
    from pyspark.sql.streaming.listener import StreamingQueryListener
    import rota.spark
    from rota.pipeline.session import open_session

    address, folder, when = sys.argv[1:]
    kafka = {"kafka.bootstrap.servers": address, "subscribe": "orders"}
    more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"}

    def die(at):
        if at == when:
            os.kill(os.getpid(), signal.SIGKILL)

    class Told(StreamingQueryListener):
        def onQueryStarted(self, event): pass
        def onQueryTerminated(self, event): pass
        def onQueryProgress(self, event):
            if event.progress.batchId == 1:
                die("told")

    def sink(frame, batch):
        if batch == 2 and when == "told":
            time.sleep(3600)  # listeners hear of a batch while the next one runs
        if batch == 1:
            die("begun")
        frame.write.format("noop").mode("overwrite").save()
        if batch == 1:
            die("written")

    opened = open_session("local[2]")
    spark = opened.__enter__()
    rota.spark.register(spark)
    rota.spark.commit_to_group(spark, group_id="billing", kafka=kafka | more, query="bills")
    spark.streams.addListener(Told())
    rows = spark.readStream.format("rota").options(**kafka, **more).load()
    writer = rows.writeStream.queryName("bills").option("checkpointLocation", folder)
    writer.trigger(availableNow=True).foreachBatch(sink).start().awaitTermination()
"""


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with rota.Broker() as running:
        running.create_topic("orders", partitions=2)
        fill(running, "orders")
        yield running


def run_driver(script: str, *words: str) -> CommandResult:
    return run_python(textwrap.dedent(script), *words, seconds=600)


@pytest.mark.parametrize(
    ("when", "finished"),
    [
        pytest.param("begun", 0, id="after the offset log", marks=pytest.mark.nightly),
        pytest.param("written", 0, id="after the sink", marks=pytest.mark.nightly),
        pytest.param("told", 1, id="before the commit"),
    ],
)
def test_a_killed_driver_leaves_the_group_behind_and_the_next_catches_up(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path, when: str, finished: int
) -> None:
    if when == "told":  # the batch is in the checkpoint, but cannot come to the group
        broker.delay("OffsetCommit", 3600, times=None)
    done = run_driver(CLASSIC, broker.bootstrap_servers, str(tmp_path), when)
    assert done.code == -signal.SIGKILL, done.err[-3000:]
    broker.clear_faults()
    broker.disconnect()
    checkpoint = finished_offsets(tmp_path)
    assert checkpoint == finished_offsets(tmp_path, finished)
    committed = broker.committed("billing")
    assert all(checkpoint[place] >= offset for place, offset in committed.items())

    options = reader_options(broker, "orders")
    with rota.spark.commit_to_group(
        spark, group_id="billing", kafka=options, checkpoint=str(tmp_path)
    ) as committer:
        assert committer.flush(60)
        assert broker.committed("billing") == checkpoint
        stream_writer(read_stream(spark, options), tmp_path, "bills").start().awaitTermination()
    assert broker.committed("billing") == finished_offsets(tmp_path) != checkpoint


def test_a_driver_that_ends_without_a_word_commits_the_last_batch(
    broker: rota.Broker, tmp_path: Path
) -> None:
    done = run_driver(CLASSIC, broker.bootstrap_servers, str(tmp_path), "never")
    assert done.code == 0, done.err[-3000:]
    assert set(finished_offsets(tmp_path).values()) == {9}
    assert broker.committed("billing") == finished_offsets(tmp_path)
