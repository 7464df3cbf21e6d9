"""A run that follows: round after round the tables are those of one run over the same records."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from rota.errors import InputError
from rota.pipeline import follow, incremental, store
from rota.pipeline.cluster import LiveCluster, LiveJournal
from rota.pipeline.follow import FollowState, MicroBatchResult, MicroBatchRunner
from rota.pipeline.stages import BeforeEnd, EvidenceSources, RunOptions
from rota.pipeline.store import OutputFolder, bucket_of_group, repartition_by_bucket
from rota.pipeline.tables import JOURNAL, REBALANCES
from tests.support.examples import NIGHTLY
from tests.system.spark.follow_run import (
    RecordedProgress,
    journal_batch,
    serve_journal,
    split_offsets,
)
from tests.system.spark.pipeline_run import (
    ENDS,
    LOG,
    PipelineRun,
    read_all_tables,
    run_evidence,
    write_recorded_segments,
)


@pytest.fixture(scope="module")
def live_journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveJournal]:
    """The recorded journal, over the wire."""
    with serve_journal(write_recorded_segments(tmp_path_factory.mktemp("served"))) as found:
        yield found


def resume_rounds(
    spark: SparkSession,
    output_folder: OutputFolder,
    live: LiveJournal,
    evidence: EvidenceSources,
    progress: RecordedProgress,
) -> MicroBatchRunner:
    """Rounds from where the folder is."""
    new = FollowState(follow="x", cluster=live.cluster_id, groups=[], since=None)
    mark = FollowState.read(output_folder.published) or new
    return MicroBatchRunner(spark, output_folder, (evidence, RunOptions(), live), mark, progress)


#: How much of the journal is there at the end of each round.
SHARES = [0.4, 0.5, 0.55, 0.7, 1.0]
PIECES = SHARES if NIGHTLY else [0.4, 0.55, 1.0]
#: A round is killed when it writes the first file, the third, ...; each kill costs a round.
WRITES = (1, 3, 10, 30, 60) if NIGHTLY else (1, 30)


@pytest.fixture(scope="module")
def first_round(
    spark: SparkSession, live_journal: LiveJournal, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, MicroBatchResult]:
    """A folder after its first round, and what that told."""
    out, progress = tmp_path_factory.mktemp("begun"), RecordedProgress()
    evidence = EvidenceSources(
        cluster=live_journal.cluster, server_logs=(str(LOG),), ends=(str(ENDS),)
    )
    nothing, first = split_offsets(live_journal, SHARES[:1])
    with store.lock_output(str(out)) as output_folder:
        resume_rounds(spark, output_folder, live_journal, evidence, progress).process_batch(
            journal_batch(spark, live_journal, nothing, first), 0
        )
    return out, progress.rounds[0]


@pytest.fixture
def out(first_round: tuple[Path, MicroBatchResult], tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(first_round[0], tmp_path / "out", symlinks=True))


def test_in_pieces_as_in_one_run(
    spark: SparkSession,
    live_journal: LiveJournal,
    logged_run: PipelineRun,
    first_round: tuple[Path, MicroBatchResult],
    out: Path,
) -> None:
    evidence, progress = EvidenceSources(cluster=live_journal.cluster), RecordedProgress()
    places = list(pairwise(split_offsets(live_journal, PIECES)))
    with store.lock_output(str(out)) as output_folder:
        for batch, (begin, end) in enumerate(places[1:], 1):
            # every time a new process; a batch may come again
            for _ in range(2):
                taking = resume_rounds(spark, output_folder, live_journal, evidence, progress)
                taking.process_batch(journal_batch(spark, live_journal, begin, end), batch)
    found, wanted = read_all_tables(out), read_all_tables(logged_run.out)
    for name, rows in wanted.items():
        assert found[name] == rows, name
    rounds = [first_round[1], *progress.rounds]
    assert len(rounds) == len(places)
    assert sum(each.records for each in rounds) == len(wanted[JOURNAL.name])
    assert sum(each.rebalances for each in rounds) == len(wanted[REBALANCES.name])
    assert all(len(each.happened) == each.rebalances for each in progress.rounds)


def test_a_large_round_among_small_ones(
    spark: SparkSession,
    live_journal: LiveJournal,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evidence = EvidenceSources(
        cluster=live_journal.cluster, server_logs=(str(LOG),), ends=(str(ENDS),)
    )
    # a small round takes over the health of a group for up to a minute
    monkeypatch.setattr(incremental, "HEALTH_INTERVAL", 0)
    other = Path(shutil.copytree(out, tmp_path / "other", symlinks=True))
    places = list(enumerate(pairwise(split_offsets(live_journal, [*SHARES[:3], 0.6]))))
    for folder, large in ((out, set[int]()), (other, {2})):
        with store.lock_output(str(folder)) as output_folder:
            taking = resume_rounds(spark, output_folder, live_journal, evidence, RecordedProgress())
            for batch, (begin, end) in places[1:]:
                monkeypatch.setattr(follow, "MAX_SMALL_RECORDS", 0 if batch in large else 10**9)
                taking.process_batch(journal_batch(spark, live_journal, begin, end), batch)
    assert read_all_tables(other) == read_all_tables(out)


class Killed(BaseException):
    """Nobody catches it."""


def test_a_round_is_killed_when_it_writes_a_file(
    spark: SparkSession,
    live_journal: LiveJournal,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    evidence = EvidenceSources(cluster=live_journal.cluster)
    _, (begin, end) = pairwise(split_offsets(live_journal, [SHARES[0], 0.42]))
    write, left = parquet.write_table, 0

    def dying(*words: object, **more: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        write(*words, **more)

    def take(folder: Path) -> None:
        with store.lock_output(str(folder)) as output_folder:
            taking = resume_rounds(spark, output_folder, live_journal, evidence, RecordedProgress())
            taking.process_batch(journal_batch(spark, live_journal, begin, end), 1)

    whole = Path(shutil.copytree(out, tmp_path / "whole", symlinks=True))
    take(whole)
    old, new = read_all_tables(out), read_all_tables(whole)
    assert new != old
    monkeypatch.setattr(parquet, "write_table", dying)
    kills = 0
    for left in (*WRITES, 10**9):  # noqa: B007 (those who write count it down)
        try:
            take(out)
        except Killed:
            kills += 1
            assert read_all_tables(out) == old
    assert kills >= min(len(WRITES), 4)  # a round may write fewer than 60 files
    assert read_all_tables(out) == new


@pytest.mark.nightly
def test_some_groups_in_pieces(
    spark: SparkSession, live_journal: LiveJournal, segments: Path, tmp_path: Path
) -> None:
    chosen = RunOptions(groups=("a-c*",))
    at_once = run_evidence(
        spark, EvidenceSources(segments=(str(segments),)), tmp_path / "once", chosen
    )
    mark = FollowState(follow="x", cluster=live_journal.cluster_id, groups=["a-c*"], since=None)
    out = tmp_path / "out"
    with store.lock_output(str(out)) as output_folder:
        arguments = (EvidenceSources(cluster=live_journal.cluster), chosen, live_journal)
        taking = MicroBatchRunner(spark, output_folder, arguments, mark, RecordedProgress())
        for batch, (begin, end) in enumerate(
            pairwise(split_offsets(live_journal, [0.3, 0.6, 1.0]))
        ):
            taking.process_batch(journal_batch(spark, live_journal, begin, end), batch)
    assert read_all_tables(out) == read_all_tables(at_once.out)


def test_sparks_buckets_are_ours(spark: SparkSession) -> None:
    names = ["", "a", "Grüppchen", "🦊", "x" * 1000]
    frame = spark.createDataFrame([(name,) for name in names], "`group` string")
    found = (
        repartition_by_bucket(frame).selectExpr("`group`", "spark_partition_id() number").collect()
    )
    assert {row.group: row.number for row in found} == {
        name: bucket_of_group(name) for name in names
    }


@pytest.mark.parametrize(
    ("evidence", "options", "problem"),
    [
        (EvidenceSources(segments=("x",)), RunOptions(), "needs --bootstrap-servers"),
        (EvidenceSources(), RunOptions(until=5), "needs --bootstrap-servers"),
    ],
)
def test_what_cannot_be_followed(
    evidence: EvidenceSources, options: RunOptions, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        follow.check_followable(evidence, options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (RunOptions(until=5), "--until"),
        (RunOptions(since=BeforeEnd(5)), "a point in time after --since"),
        (RunOptions(master="sc://host"), "Spark Connect"),
    ],
)
def test_what_does_not_go_with_following(options: RunOptions, problem: str) -> None:
    evidence = EvidenceSources(cluster=LiveCluster(settings={"bootstrap.servers": "x:1"}))
    with pytest.raises(InputError, match=problem):
        follow.check_followable(evidence, options)
