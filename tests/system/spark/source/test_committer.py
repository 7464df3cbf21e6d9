"""A group sees what a streaming query has finished: never more, and in the end all of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import rota
import rota.spark
from rota.cli.main import main
from rota.engine.model.topic import TopicPartition
from tests.support.paths import ROOT
from tests.support.waiting import wait_until
from tests.system.spark.source.test_source_fault import wait_for

Offsets = dict[TopicPartition, int]
Batch = Callable[[DataFrame, int], None]

CLIENT = "committer"
#: Of each partition.
ROWS = 9


@pytest.fixture(scope="module")
def broker() -> Iterator[rota.Broker]:
    with rota.Broker() as running:
        for topic in ("orders", "returns"):
            running.create_topic(topic, partitions=2)
            fill(running, topic)
        yield running


def fill(broker: rota.Broker, topic: str, rows: int = ROWS) -> None:
    for number in range(rows):
        for partition in range(2):
            broker.produce(topic, b"%d" % number, partition=partition)


def reader_options(broker: rota.Broker, topic: str, **more: str) -> dict[str, str]:
    """A reader's options: three rows of a partition in each batch."""
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "6",
        **more,
    }


def read_stream(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    rota.spark.register(spark)
    return spark.readStream.format("rota").options(**options).load()


def stream_writer(frame: DataFrame, folder: Path, name: str) -> DataStreamWriter:
    writer = frame.writeStream.queryName(name).option("checkpointLocation", str(folder))
    return writer.format("noop").trigger(availableNow=True)


def finished_offsets(folder: Path, batch: int | None = None) -> Offsets:
    """Where the last batch ends that the checkpoint says is finished, or this one."""
    finished = [int(each.name) for each in (folder / "commits").glob("[0-9]*")]
    if batch is None and not finished:
        return {}
    file = folder / "offsets" / str(max(finished) if batch is None else batch)
    _, _, *lines = file.read_text().splitlines()
    return {
        TopicPartition(topic, int(number)): offset
        for line in lines
        for topic, partitions in json.loads(line).items()
        for number, offset in partitions.items()
    }


class RaisingListener(StreamingQueryListener):
    """Somebody's listener that never works."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        raise RuntimeError("never")

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        raise RuntimeError("never")

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        raise RuntimeError("never")


@pytest.fixture(scope="module")
def two_source_query(
    spark: SparkSession, broker: rota.Broker, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, StreamingQuery, list[tuple[Offsets, Offsets]]]:
    """A query of two sources that the group ``both`` has seen, beside a listener that raises; with
    what the group and the checkpoint had during each batch.
    """
    folder = tmp_path_factory.mktemp("both")
    seen: list[tuple[Offsets, Offsets]] = []

    def look(frame: DataFrame, batch: int) -> None:
        frame.write.format("noop").mode("overwrite").save()
        if batch == 3:
            wait_until(
                "it moves with the query",
                lambda: broker.committed("both") == finished_offsets(folder),
            )
        committed = broker.committed("both")  # first: the checkpoint only goes on
        seen.append((committed, finished_offsets(folder)))

    frame = read_stream(spark, reader_options(broker, "orders")).union(
        read_stream(spark, reader_options(broker, "returns", maxOffsetsPerTrigger="4"))
    )
    raising = RaisingListener()
    spark.streams.addListener(raising)
    try:
        with rota.spark.commit_to_group(
            spark, group_id="both", kafka=reader_options(broker, "orders"), query="both"
        ):
            started = stream_writer(frame, folder, "both").foreachBatch(look).start()
            started.awaitTermination()
    finally:
        spark.streams.removeListener(raising)
    return folder, started, seen


Both = tuple[Path, StreamingQuery, list[tuple[Offsets, Offsets]]]


def test_in_the_end_the_group_is_where_the_checkpoint_is(
    broker: rota.Broker, two_source_query: Both
) -> None:
    folder, _, _ = two_source_query
    places = [TopicPartition(topic, each) for topic in ("orders", "returns") for each in (0, 1)]
    assert broker.committed("both") == finished_offsets(folder) == dict.fromkeys(places, ROWS)


def test_it_is_never_ahead_and_moves_while_the_query_runs(two_source_query: Both) -> None:
    _, _, seen = two_source_query
    assert len(seen) >= 5
    for committed, checkpoint in seen:
        assert all(checkpoint.get(place, 0) >= offset for place, offset in committed.items())
    committed, checkpoint = seen[3]
    assert committed == checkpoint != seen[0][1]


@pytest.mark.parametrize("by", ["query", "file:", "path"])
def test_a_new_group_catches_up_with_a_query_that_has_ended(
    spark: SparkSession, broker: rota.Broker, two_source_query: Both, by: str
) -> None:
    folder, ended, _ = two_source_query
    ways: dict[str, dict[str, Any]] = {
        "query": {"query": ended},
        "file:": {"checkpoint": folder.as_uri()},
        "path": {"checkpoint": str(folder)},
    }
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    with rota.spark.commit_to_group(spark, group_id=by, kafka=kafka, **ways[by]) as committer:
        assert committer.flush(60)
        assert broker.committed(by) == finished_offsets(folder)


def test_a_checkpoint_of_another_query_is_refused(
    spark: SparkSession,
    broker: rota.Broker,
    two_source_query: Both,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, ended, _ = two_source_query
    (tmp_path / "metadata").write_text('{"id":"6b2d7867-b625-40d0-b0ab-1997c36c7c19"}')
    with rota.spark.commit_to_group(
        spark,
        group_id="another",
        kafka={"bootstrap.servers": broker.bootstrap_servers},
        query=ended,
        checkpoint=tmp_path.as_uri(),
    ):
        pass
    assert "belongs to query 6b2d7867" in caplog.text


def test_a_restart_catches_up_and_a_new_checkpoint_sets_the_group_back(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path
) -> None:
    options = reader_options(broker, "orders")
    old, new = tmp_path / "old", tmp_path / "new"
    stream_writer(read_stream(spark, options), old, "again").start().awaitTermination()
    with rota.spark.commit_to_group(
        spark, group_id="again", kafka=options, query="again"
    ) as committer:
        stream_writer(read_stream(spark, options), old, "again").start().awaitTermination()
        assert committer.flush(60)
        assert broker.committed("again") == finished_offsets(old)

        def wait(frame: DataFrame, batch: int) -> None:
            frame.write.format("noop").mode("overwrite").save()
            if batch:
                before = finished_offsets(new, batch - 1)
                wait_until(
                    "the batch before was committed", lambda: broker.committed("again") == before
                )

        begun = stream_writer(read_stream(spark, options), new, "again").foreachBatch(wait).start()
        begun.awaitTermination()
        assert max(finished_offsets(new, 0).values()) < min(finished_offsets(old).values())
    assert broker.committed("again") == finished_offsets(new)


def test_brokers_that_refuse_are_not_the_querys_concern(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = reader_options(broker, "orders")
    broker.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", times=None, client_id=CLIENT)
    with rota.spark.commit_to_group(
        spark, group_id="refused", kafka=options | {"kafka.client.id": CLIENT}, query="refused"
    ) as committer:
        started = stream_writer(read_stream(spark, options), tmp_path, "refused").start()
        started.awaitTermination()
        assert started.exception() is None
        wait_until(
            "the last batch was heard of", lambda: committer.pending == finished_offsets(tmp_path)
        )
        assert not committer.flush(0.1)
        broker.clear_faults("OffsetCommit")
        assert committer.flush(60)
    assert broker.committed("refused") == finished_offsets(tmp_path)
    assert caplog.text.count("no permission") == 1


def test_of_two_queries_of_a_topic_the_first_is_committed(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = reader_options(broker, "orders", maxOffsetsPerTrigger="2")
    slow = stream_writer(read_stream(spark, options), tmp_path / "slow", "slow").trigger(
        processingTime="1 hour"
    )
    with rota.spark.commit_to_group(spark, group_id="two", kafka=options) as committer:
        first = slow.start()
        try:
            what = "the first batch was committed"
            wait_for(first, lambda: bool(broker.committed("two")), what)
            second = stream_writer(
                read_stream(spark, options), tmp_path / "second", "second"
            ).start()
            second.awaitTermination()
            assert committer.flush(60)
            assert (
                broker.committed("two")
                == finished_offsets(tmp_path / "slow")
                != finished_offsets(tmp_path / "second")
            )
        finally:
            first.stop()
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [f"topic 'orders' of query {second.id}" in each.message for each in warned] == [True]
    assert first.id in warned[0].message


def test_a_query_that_writes_its_logs_late_is_not_overtaken(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path
) -> None:
    broker.create_topic("late", partitions=2)
    options = reader_options(broker, "late")
    late = (
        stream_writer(read_stream(spark, options), tmp_path, "late")
        .option("asyncProgressTrackingEnabled", "true")
        .option("asyncProgressTrackingCheckpointIntervalMs", "3600000")
        .trigger(processingTime="0 seconds")
    )
    with rota.spark.commit_to_group(
        spark, group_id="late", kafka=options, query="late"
    ) as committer:
        started = late.start()
        try:
            for total in (2, 4, 6):
                fill(broker, "late", 2)
                wait_for(started, partial(has_read, started, total))
            what = "the group follows"
            wait_for(
                started, lambda: broker.committed("late") == finished_offsets(tmp_path) != {}, what
            )
            assert committer.flush(60)
            assert broker.committed("late") == finished_offsets(tmp_path)
            assert max(broker.committed("late").values()) < 6
        finally:
            started.stop()
    assert broker.committed("late") == finished_offsets(tmp_path)


def has_read(started: StreamingQuery, total: int) -> bool:
    last = started.lastProgress
    end = None if last is None else last.sources[0].endOffset
    return end is not None and set(json.loads(end)["late"].values()) == {total}


def test_the_page_shows_what_works(
    spark: SparkSession, broker: rota.Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "how-to" / "spark-group.md").read_text()
    begin = page.index("    import rota.spark")
    block = page[begin : page.index("    $ rota groups lag")]
    folder = tmp_path / "checkpoint"
    out = str(tmp_path / "out")
    given = {"spark": spark, "checkpoint": str(folder), "out": out}
    exec(dedent(block).replace("kafka:9092", broker.bootstrap_servers), given)
    assert spark.read.parquet(out).count() == 2 * ROWS
    assert broker.committed("bills") == finished_offsets(folder)
    main(["groups", "lag", "--no-time", "--bootstrap-servers", broker.bootstrap_servers])
    line = next(each for each in capsys.readouterr().out.splitlines() if each.startswith("bills"))
    assert line.split()[:4] == ["bills", "Empty", "0", "0"]
