"""``rota simulate`` as a person or a CI job runs it."""

from __future__ import annotations

import sys

from tests.support.paths import ROOT
from tests.support.process import run_command

CRASH = str(ROOT / "examples" / "crash.toml")


def test_the_installed_command_survives_a_closed_pipe() -> None:
    command = f"{sys.executable} -m rota simulate {CRASH} | head -1"
    done = run_command("bash", "-c", f"set -o pipefail; {command}").checked()
    assert (done.err, done.out.count("\n")) == ("", 1)
