"""``rota plan`` as a person or a CI job runs it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.command import run_rota
from tests.support.paths import ROOT
from tests.support.process import environment, run_command

EXAMPLE = str(ROOT / "examples" / "orders.json")


def test_names_that_the_terminal_cannot_show_are_escaped() -> None:
    words = ("plan", "--partitions", "t=1", "--member", "été")
    done = run_rota(*words, env=environment(PYTHONIOENCODING="ascii"))
    assert r"\xe9t\xe9" in done.checked().out


def test_the_installed_command_reads_standard_input_and_survives_a_closed_pipe() -> None:
    command = (sys.executable, "-m", "rota.cli.main", "plan", "-", "--strategy", "range")
    done = run_command(*command, stdin=Path(EXAMPLE).read_text())
    assert "finance-0" in done.checked().out
    piped = run_command("bash", "-c", f"set -o pipefail; {' '.join(command)} < {EXAMPLE} | head -1")
    assert piped.checked().err == ""
