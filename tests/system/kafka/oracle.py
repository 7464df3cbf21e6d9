"""Asks a Java program of ``tests/support/java``, which runs Kafka's own classes."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.java import launcher
from tests.support.process import run_command

#: Seconds for all answers of one process, also on a slow machine.
PATIENCE = 600.0


def ask(program: str, lines: Sequence[str], seconds: float = PATIENCE) -> list[str]:
    """The program's answers: one line for each line that it is given."""
    stdin = "".join(f"{line}\n" for line in lines)
    command = launcher.java_command(program, flags=launcher.QUICK)
    done = run_command(*command, stdin=stdin, seconds=seconds).checked()
    assert len(done.lines) == len(lines), done.err[-2_000:]
    return done.lines
