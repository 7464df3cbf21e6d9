"""A folder of tables that rounds follow each other in."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from rota.errors import Unreachable
from rota.pipeline import store
from rota.pipeline.tables import ADVICE, TABLES


def publish(output_folder: store.OutputFolder) -> None:
    with output_folder.begin_run(layered=True) as tables:
        tables.write_empty(*TABLES)
        tables.publish()


def run_names(out: Path) -> list[str]:
    return sorted(run.name for run in (out / store.RUNS_FOLDER).iterdir())


def test_who_has_opened_a_round_reads_on_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with store.lock_output(str(tmp_path)) as output_folder:
        for _ in range(3):
            publish(output_folder)
            now += 0.6 * store.REPLACED_RUN_SECONDS
            output_folder.remove_replaced()
        assert run_names(tmp_path) == ["2", "3"]
        now += store.REPLACED_RUN_SECONDS
        output_folder.remove_replaced()
        assert run_names(tmp_path) == ["3"]
        assert (tmp_path / ADVICE.name).is_dir()


def test_a_round_that_is_not_published_leaves_nothing(tmp_path: Path) -> None:
    with store.lock_output(str(tmp_path)) as output_folder:
        publish(output_folder)
        with output_folder.begin_run(layered=True) as tables:
            tables.write_empty(*TABLES)
        assert run_names(tmp_path) == ["1"]
        (tmp_path / store.RUNS_FOLDER / "2").mkdir()  # somebody was killed
    with store.lock_output(str(tmp_path)) as output_folder:
        assert run_names(tmp_path) == ["1"]
        publish(output_folder)
    assert run_names(tmp_path) == ["1", "3"]


def test_nobody_else_writes_to_it(tmp_path: Path) -> None:
    with (
        store.lock_output(str(tmp_path)),
        pytest.raises(Unreachable, match="another run"),
        store.begin_run(str(tmp_path)),
    ):
        pass
    assert not run_names(tmp_path)
