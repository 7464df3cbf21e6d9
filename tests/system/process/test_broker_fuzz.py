"""Fuzzing of a whole broker that is guided by what the requests cover."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.process import run_command


@pytest.mark.nightly
def test_an_hour_of_atheris(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed: no guided fuzzing tonight")
    command = (sys.executable, "-m", "tests.support.fuzz_broker", "-max_total_time=3600")
    run_command(*command, f"-artifact_prefix={tmp_path}/", seconds=5_000).checked()
