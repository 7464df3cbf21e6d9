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
from tests.system.spark.played import Quiet, Row, everything, ran, write_segment


class Killed(BaseException):
    """Nobody catches it."""


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few")
    for partition in sorted(journal_segments())[:2]:
        write_segment(folder, partition, journal_segments()[partition])
    return folder


@pytest.fixture(scope="module")
def fewer(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fewer")
    partition = min(journal_segments())
    write_segment(folder, partition, journal_segments()[partition])
    return folder


@pytest.fixture(scope="module")
def begun(spark: SparkSession, fewer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder after a run over the smaller journal."""
    return ran(spark, EvidenceSources(segments=(str(fewer),)), tmp_path_factory.mktemp("begun")).out


@pytest.fixture
def out(begun: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(begun, tmp_path / "out", symlinks=True))


@pytest.fixture(scope="module")
def fresh(
    spark: SparkSession, few: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Row]]:
    """The tables of a run over the larger journal that was never killed."""
    done = ran(spark, EvidenceSources(segments=(str(few),)), tmp_path_factory.mktemp("fresh"))
    return everything(done.out)


#: ``make nightly`` kills a run at all of them; each costs most of a run. ``make check``: before
#: anything is written, when some tables are written, and when all are but none is shown.
STAGES = (
    list(PipelineStage)
    if NIGHTLY
    else [PipelineStage.START, PipelineStage.GROUPS, PipelineStage.PUBLISH]
)


def test_the_old_tables_stay_after_a_kill(spark: SparkSession, few: Path, out: Path) -> None:
    old = everything(out)
    for stage in STAGES:

        def kill(at: PipelineStage, *, when: PipelineStage = stage) -> None:
            if at is when:
                raise Killed

        with pytest.raises(Killed):
            run_pipeline(
                EvidenceSources(segments=(str(few),)), str(out), RunOptions(), Quiet(kill), spark
            )
        assert everything(out) == old, stage
    ran(spark, EvidenceSources(segments=(str(few),)), out)
    assert everything(out) != old
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


def _killed(segments: Path, out: Path, stage: PipelineStage, *, middle: bool) -> None:
    words = (segments, out, stage, "yes" if middle else "no")
    done = run_python(textwrap.dedent(SCRIPT), *words, seconds=600)
    assert done.code == -signal.SIGKILL, done.err


def _assert_the_next_run_heals(
    spark: SparkSession,
    few: Path,
    out: Path,
    fresh: dict[str, list[Row]],
    stage: PipelineStage,
    *,
    middle: bool,
) -> None:
    old = everything(out)
    _killed(few, out, stage, middle=middle)
    assert everything(out) == old
    ran(spark, EvidenceSources(segments=(str(few),)), out)
    new = everything(out)
    assert new == fresh
    assert new[REBALANCES.name]


def test_a_process_killed_while_it_writes(
    spark: SparkSession, few: Path, out: Path, fresh: dict[str, list[Row]]
) -> None:
    _assert_the_next_run_heals(spark, few, out, fresh, PipelineStage.COMMITS, middle=True)


@pytest.mark.nightly
@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize(
    "stage",
    [each for each in PipelineStage if each not in {PipelineStage.FIND, PipelineStage.START}],
)
def test_a_process_killed_at_any_stage(
    spark: SparkSession,
    few: Path,
    out: Path,
    fresh: dict[str, list[Row]],
    stage: PipelineStage,
    middle: bool,
) -> None:
    if middle and stage in {PipelineStage.EVIDENCE, PipelineStage.LAG, PipelineStage.PUBLISH}:
        pytest.skip("writes nothing with Spark here")
    _assert_the_next_run_heals(spark, few, out, fresh, stage, middle=middle)
