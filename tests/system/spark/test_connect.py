"""Over Spark Connect: the pipeline, the source and the committer."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import rota
from rota.pipeline.tables import EVIDENCE
from tests.support.clients.driver_process import Driver
from tests.support.spark_query import produce_records
from tests.system.spark.pipeline_run import (
    LOG,
    PipelineRun,
    read_all_tables,
    write_recorded_segments,
)
from tests.system.spark.source.test_committer import ROWS, finished_offsets

#: They need samples of the log ends, which only the other run has.
SAMPLED_COLUMNS = {"delayed_records", "delayed_records_after", "added_lag_ms"}


def test_a_connected_session_makes_the_same_tables(
    spark_connect: Driver, segments: Path, logged_run: PipelineRun, tmp_path: Path
) -> None:
    """Half of the journal out of folders, and half of it from a broker."""
    out, served = tmp_path / "out", write_recorded_segments(tmp_path / "served")
    copied = tmp_path / "copied"
    for number, folder in enumerate(sorted(segments.iterdir())):
        if number % 2:
            shutil.copytree(folder, copied / folder.name)
            shutil.rmtree(served / folder.name)
    with rota.Broker(served, adopt=True) as broker:
        broker.clock.freeze()
        address = broker.bootstrap_servers
        spark_connect.ask("run", segments=str(copied), servers=address, log=str(LOG), out=str(out))
    sampled = {"bronze/ends", "gold/lag", "gold/status", "gold/health"}
    ours, theirs = (
        {name: rows for name, rows in read_all_tables(each).items() if name not in sampled}
        for each in (out, logged_run.out)
    )
    for (row,) in (ours[EVIDENCE.name], theirs[EVIDENCE.name]):
        del row["samples"]
    for row in itertools.chain(*ours.values(), *theirs.values()):
        for name in SAMPLED_COLUMNS & row.keys():
            del row[name]
    # with log ends, delayed records decide between policies that have the same downtime
    ties = {
        mine["group"]
        for mine, other in zip(ours["gold/advice"], theirs["gold/advice"], strict=True)
        if mine["policy"] != other["policy"]
    }
    assert len(ties) < len(ours["gold/advice"]) / 4
    for tables, name in itertools.product((ours, theirs), ("gold/advice", "gold/advised")):
        tables[name] = [row for row in tables[name] if row["group"] not in ties]
    assert ours == theirs


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with rota.Broker() as running:
        yield running


def test_the_source_reads_a_table_and_a_stream(
    spark_connect: Driver, broker: rota.Broker, tmp_path: Path
) -> None:
    produce_records(broker, 2, 3)
    servers = broker.bootstrap_servers
    assert spark_connect.ask("read", servers=servers) == ["0-0", "0-1", "1-0", "1-1", "1-2"]
    assert spark_connect.ask("stream", servers=servers, checkpoint=str(tmp_path)) == [5, 4]


def test_a_group_sees_what_a_query_has_finished(
    spark_connect: Driver, broker: rota.Broker, tmp_path: Path
) -> None:
    produce_records(broker, ROWS, ROWS)
    folder = tmp_path / "checkpoint"
    assert spark_connect.ask("commit", servers=broker.bootstrap_servers, checkpoint=str(folder))
    assert set(finished_offsets(folder).values()) == {ROWS}
    assert broker.committed("told") == broker.committed("caught") == finished_offsets(folder)
