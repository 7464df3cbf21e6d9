"""``rota simulate`` as a person or a CI job runs it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from rota.cli.main import main
from tests.support.paths import ROOT

CRASH = str(ROOT / "examples" / "crash.toml")

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


def test_the_installed_command_survives_a_closed_pipe() -> None:
    command = f"{sys.executable} -m rota simulate {CRASH} | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=True
    )
    assert (done.stderr, done.stdout.count("\n")) == ("", 1)
