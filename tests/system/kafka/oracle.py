"""Asks a Java program of ``tests/support/java``, which runs Kafka's own classes."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.java import launcher
from tests.support.process import run_command

#: Seconds for all answers of one process, also on a slow machine.
PATIENCE = 600.0


def ask(program: str, lines: Sequence[str], seconds: float = PATIENCE) -> list[str]:
    """The program's answers: one line for each line that it is given."""
    return _run(launcher.java_command(program, flags=launcher.QUICK), lines, seconds)


def ask_connect(program: str, lines: Sequence[str]) -> list[str]:
    """The same of a program that uses Kafka Connect's classes."""
    return _run(launcher.connect_command(program), lines, PATIENCE)


def _run(command: Sequence[str], lines: Sequence[str], seconds: float) -> list[str]:
    stdin = "".join(f"{line}\n" for line in lines)
    done = run_command(*command, stdin=stdin, seconds=seconds).checked()
    assert len(done.lines) == len(lines), done.err[-2_000:]
    return done.lines
