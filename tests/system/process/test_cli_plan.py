"""``rota plan`` as a person or a CI job runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rota.cli.main import main
from tests.support.paths import ROOT

EXAMPLE = str(ROOT / "examples" / "orders.json")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rota(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        printed = capsys.readouterr()
        return int(code), printed.out, printed.err

    return run


def test_names_that_the_terminal_cannot_show_are_escaped() -> None:
    command = [sys.executable, "-m", "rota", "plan", "--partitions", "t=1", "--member", "été"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert "\\xe9t\\xe9" in done.stdout


def test_the_installed_command_reads_standard_input_and_survives_a_closed_pipe() -> None:
    command = [sys.executable, "-m", "rota.cli.main", "plan", "-", "--strategy", "range"]
    text = Path(EXAMPLE).read_text()
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    assert "finance-0" in done.stdout
    piped = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {' '.join(command)} < {EXAMPLE} | head -1"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert piped.stderr == ""
