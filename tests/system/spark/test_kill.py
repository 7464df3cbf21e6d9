"""A run that ends in the middle, at any stage: readers see the tables before it, or its own."""

from __future__ import annotations

import shutil
import signal
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rota.pipeline import store
from rota.pipeline.stages import EvidenceSources, PipelineStage, RunOptions, run_pipeline
from rota.pipeline.tables import REBALANCES
from tests.support.examples import NIGHTLY
from tests.support.process import run_python
from tests.support.recorded_segment import journal_segments
from tests.system.spark.pipeline_run import (
    Row,
    SilentProgress,
    read_all_tables,
    run_evidence,
    write_segment,
)


class Killed(BaseException):
    """Nobody catches it."""


@pytest.fixture(scope="module")
def larger_journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few")
    for partition in sorted(journal_segments())[:2]:
        write_segment(folder, partition, journal_segments()[partition])
    return folder


@pytest.fixture(scope="module")
def smaller_journal(larger_journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fewer")
    partition = min(journal_segments())
    write_segment(folder, partition, journal_segments()[partition])
    return folder


@pytest.fixture(scope="module")
def first_run(
    spark: SparkSession, smaller_journal: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder after a run over the smaller journal."""
    return run_evidence(
        spark, EvidenceSources(segments=(str(smaller_journal),)), tmp_path_factory.mktemp("begun")
    ).out


@pytest.fixture
def out(first_run: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(first_run, tmp_path / "out", symlinks=True))


@pytest.fixture(scope="module")
def expected_tables(
    spark: SparkSession, larger_journal: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Row]]:
    """The tables of a run over the larger journal that was never killed."""
    done = run_evidence(
        spark, EvidenceSources(segments=(str(larger_journal),)), tmp_path_factory.mktemp("fresh")
    )
    return read_all_tables(done.out)


#: ``make nightly`` kills a run at all of them; each costs most of a run. ``make check``: before
#: anything is written, when some tables are written, and when all are but none is shown.
STAGES = (
    list(PipelineStage)
    if NIGHTLY
    else [PipelineStage.START, PipelineStage.GROUPS, PipelineStage.PUBLISH]
)


def test_the_old_tables_stay_after_a_kill(
    spark: SparkSession, larger_journal: Path, out: Path
) -> None:
    old = read_all_tables(out)
    for stage in STAGES:

        def kill(at: PipelineStage, *, when: PipelineStage = stage) -> None:
            if at is when:
                raise Killed

        with pytest.raises(Killed):
            run_pipeline(
                EvidenceSources(segments=(str(larger_journal),)),
                str(out),
                RunOptions(),
                SilentProgress(kill),
                spark,
            )
        assert read_all_tables(out) == old, stage
    run_evidence(spark, EvidenceSources(segments=(str(larger_journal),)), out)
    assert read_all_tables(out) != old
    shown = (out / store.CURRENT_LINK).readlink().name
    assert {run.name for run in (out / store.RUNS_FOLDER).iterdir()} <= {
        shown,
        str(int(shown) - 1),
        "1",
    }


SCRIPT = """
    import os, signal, sys, threading, time
    from pathlib import Path
    from rota.pipeline.stages import EvidenceSources
    from rota.pipeline.stages import RunOptions
    from rota.pipeline.stages import run_pipeline

    segments, out, stage, middle = sys.argv[1:]

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    def in_the_middle():
        while not list(Path(out).glob(".runs/*/*/*/_temporary")):
            time.sleep(0.001)
        kill()

    class Progress:
        def began(self, at):
            if at == stage:
                threading.Thread(target=in_the_middle).start() if middle == "yes" else kill()

        def ended(self, at, note):
            pass

    options = RunOptions(master="local[2]")
    run_pipeline(EvidenceSources(segments=(segments,)), out, options, Progress())
"""


def run_until_killed(segments: Path, out: Path, stage: PipelineStage, *, middle: bool) -> None:
    words = (segments, out, stage, "yes" if middle else "no")
    done = run_python(textwrap.dedent(SCRIPT), *words, seconds=600)
    assert done.code == -signal.SIGKILL, done.err


def assert_next_run_heals(
    spark: SparkSession,
    larger_journal: Path,
    out: Path,
    expected_tables: dict[str, list[Row]],
    stage: PipelineStage,
    *,
    middle: bool,
) -> None:
    old = read_all_tables(out)
    run_until_killed(larger_journal, out, stage, middle=middle)
    assert read_all_tables(out) == old
    run_evidence(spark, EvidenceSources(segments=(str(larger_journal),)), out)
    new = read_all_tables(out)
    assert new == expected_tables
    assert new[REBALANCES.name]


def test_a_process_killed_while_it_writes(
    spark: SparkSession, larger_journal: Path, out: Path, expected_tables: dict[str, list[Row]]
) -> None:
    assert_next_run_heals(
        spark, larger_journal, out, expected_tables, PipelineStage.COMMITS, middle=True
    )


@pytest.mark.nightly
@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize(
    "stage",
    [each for each in PipelineStage if each not in {PipelineStage.FIND, PipelineStage.START}],
)
def test_a_process_killed_at_any_stage(
    spark: SparkSession,
    larger_journal: Path,
    out: Path,
    expected_tables: dict[str, list[Row]],
    stage: PipelineStage,
    middle: bool,
) -> None:
    if middle and stage in {PipelineStage.EVIDENCE, PipelineStage.LAG, PipelineStage.PUBLISH}:
        pytest.skip("writes nothing with Spark here")
    assert_next_run_heals(spark, larger_journal, out, expected_tables, stage, middle=middle)
