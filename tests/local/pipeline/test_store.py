"""What is in a folder of tables, between runs and in the middle of one."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from rota.errors import InputError, Unreachable
from rota.pipeline import store
from rota.pipeline.store import TableStore
from rota.pipeline.tables import ADVICE, REBALANCES, TABLES


def publish(out: Path) -> None:
    with store.begin_run(str(out)) as tables:
        tables.write_empty(*TABLES)
        tables.publish()


def test_tables_are_shown_all_at_once(tmp_path: Path) -> None:
    with store.begin_run(str(tmp_path)) as tables:
        tables.write_empty(*TABLES)
        assert not (tmp_path / "gold").exists()
        tables.publish()
        for table in TABLES:
            assert (tmp_path / table.name).is_dir()


def test_a_run_that_fails_leaves_the_tables_before_it(tmp_path: Path) -> None:
    publish(tmp_path)
    shown = (tmp_path / store.CURRENT_LINK).readlink()
    with suppress(KeyError), store.begin_run(str(tmp_path)) as tables:
        tables.write_empty(ADVICE)
        raise KeyError
    assert (tmp_path / store.CURRENT_LINK).readlink() == shown
    assert len(list((tmp_path / store.RUNS_FOLDER).iterdir())) == 1


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    publish(tmp_path)
    left = tmp_path / store.RUNS_FOLDER / "77" / "gold"
    left.mkdir(parents=True)
    publish(tmp_path)
    assert not left.exists()


def test_a_reader_that_has_begun_can_go_on_after_the_next_run(tmp_path: Path) -> None:
    publish(tmp_path)
    opened = (tmp_path / REBALANCES.name).resolve()
    publish(tmp_path)
    assert list(opened.iterdir())
    assert opened != (tmp_path / REBALANCES.name).resolve()


@pytest.mark.parametrize("level", store.TABLE_FOLDERS)
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, level: str) -> None:
    (tmp_path / level).mkdir()
    with pytest.raises(InputError, match=f"Rota did not write {level} in it"):
        publish(tmp_path)


@pytest.mark.parametrize("out", ["s3://bucket/x", "hdfs://host:9000/x", "gs://b"])
def test_a_remote_address_is_refused(out: str) -> None:
    with pytest.raises(InputError, match="a folder of this machine"):
        store.check_output_folder(out)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InputError, match="not a folder"):
        publish(file)


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    with store.begin_run(str(tmp_path)), pytest.raises(Unreachable, match="another run"):
        publish(tmp_path)


def test_a_store_says_where_a_table_is(tmp_path: Path) -> None:
    assert TableStore(tmp_path, tmp_path / "run").folder(ADVICE) == str(
        tmp_path / "run/gold/advice"
    )


@pytest.mark.parametrize(
    ("message", "root"),
    [
        (
            "Traceback (most recent call last):\n  File 'x'\n    f()\nValueError: bad: thing\n\n"
            "\tat org.apache.spark.X(Y.scala:1)\n",
            "ValueError: bad: thing",
        ),
        (
            "Job aborted: Lost task 0.0 in stage 1\n\tat a.b(C.java:3)\n"
            "Caused by: java.io.IOException: gone\n\t... 3 more\n",
            "java.io.IOException: gone",
        ),
        ("[TABLE] no such table", "[TABLE] no such table"),
        ("", "no reason given"),
    ],
)
def test_the_root_of_a_long_error(message: str, root: str) -> None:
    assert store.root_cause_line(message) == root
