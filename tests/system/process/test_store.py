"""What is in a folder of tables, between runs and in the middle of one."""

from __future__ import annotations

import signal
import textwrap
from pathlib import Path

import pytest

from tests.support.process import run_python

pytest.importorskip("pyspark")

from rota.pipeline import store
from rota.pipeline.tables import TABLES


def publish(out: Path) -> None:
    with store.begin_run(str(out)) as tables:
        tables.write_empty(*TABLES)
        tables.publish()


def test_a_killed_run_holds_no_lock(tmp_path: Path) -> None:
    script = """
        import os, signal, sys
        from rota.pipeline import store
        with store.begin_run(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = run_python(textwrap.dedent(script), tmp_path)
    assert done.code == -signal.SIGKILL, done.err
    publish(tmp_path)
    assert len(list((tmp_path / store.RUNS_FOLDER).iterdir())) == 1
