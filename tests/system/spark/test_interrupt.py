"""Ctrl-C while ``rota run`` starts Spark, and later: no Java process and no folder remains."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rota.pipeline import session
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


TraceFunction = Callable[[FrameType, str, object], Any]


class BeforeSpark(Exception):
    """Ends an attempt that no Ctrl-C has interrupted."""


def interrupt_at_line(number: int) -> bool:
    """Opens a session and raises KeyboardInterrupt at a line of Rota's or Python's code for paths;
    returns False if fewer lines run before Rota starts Spark in the folder."""
    lines = 0

    def trace(frame: FrameType, event: str, _argument: object) -> TraceFunction:
        nonlocal lines
        code = frame.f_code
        if code.co_name == "_start_spark":
            raise BeforeSpark
        if code.co_filename in {session.__file__, pathlib.__file__} and event in {"line", "return"}:
            lines += 1
            if lines == number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with session.open_session():
            pytest.fail("a session was opened")
    except KeyboardInterrupt:
        return True
    except BeforeSpark:
        return False
    finally:
        sys.settrace(before)


# an interrupt between opening a folder and the ``with`` that closes it, in Python's own modules
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_no_folder_remains_whatever_line_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that arrives while the kernel makes the folder interrupts the next line."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert not interrupt_at_line(sys.maxsize)  # and fills caches, so that the lines stay the same
    line = 1
    while interrupt_at_line(line):
        assert not list(tmp_path.iterdir()), line
        line += 1
    assert line > 50
