"""What is in a folder of tables, between runs and in the middle of one."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from rota.pipeline import store
from rota.tables import TABLES


def publish(out: Path) -> None:
    with store.begin(str(out)) as tables:
        tables.write_nothing(*TABLES)
        tables.publish()


def test_a_killed_run_holds_no_lock(tmp_path: Path) -> None:
    script = """
        import os, signal, sys
        from rota.pipeline import store
        with store.begin(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    publish(tmp_path)
    assert len(list((tmp_path / store.RUNS).iterdir())) == 1
