"""Ctrl-C while ``rota run`` starts Spark, and later: no Java process and no folder remains."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rota.pipeline.session import TEMP_FOLDER_PREFIX
from tests.support.command import ROTA
from tests.support.process import RunningCommand, environment
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("number", "seconds"),
    [(signal.SIGINT, each) for each in (0, 0.2, 0.6, 1, 1.5, 2, 3)]
    + [(signal.SIGTERM, each) for each in (1, 4)],
)
def test_no_java_remains(
    number: signal.Signals, seconds: float, segments: Path, tmp_path: Path
) -> None:
    """A terminal sends the signal to the process group. The seconds count from the first step of
    starting Spark; from about 0.5 to 2 seconds Java runs and has not yet written its port."""
    temp, out = tmp_path / "temp", tmp_path / "out"
    temp.mkdir()
    command = (*ROTA, "run", "--segments", segments, "--out", out)
    with RunningCommand(*command, env=environment(TMPDIR=str(temp)), own_group=True) as running:
        wait_until("Spark starts", lambda: list(temp.glob(f"{TEMP_FOLDER_PREFIX}*")))
        time.sleep(seconds)
        os.killpg(running.process_id, number)
        try:
            # Java inherits standard output, so this waits for the end of Java too
            ended = running.wait(60)
        except subprocess.TimeoutExpired:
            pytest.fail("rota, or a process that it started, still runs")
    assert ended.err.splitlines()[-1] == "rota: interrupted", ended.err
    assert "No such file" not in ended.err
    assert ended.code == 130
    assert not list(temp.glob(f"{TEMP_FOLDER_PREFIX}*"))
