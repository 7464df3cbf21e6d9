"""Runs ``rota`` in a test: in this process or as one of its own.

``rota_command``, a fixture, runs ``rota ...`` in this process with captured output; ``run_rota``
runs it as a process until it ends. Each returns a ``CommandResult``: exit code, output and errors.
Other processes are in :mod:`tests.support.process`.
"""

from __future__ import annotations

import io
import logging
import signal
import sys
from collections.abc import Generator, Mapping

import pytest

from rota.cli.main import main
from tests.support.process import PATIENCE, CommandResult, run_command, text_of

ROTA = (sys.executable, "-m", "rota")
#: Loggers that commands direct to their own output, for as long as the process runs.
LOGGERS = ("rota", "rota.client", "rota.consumer")


class RotaCommand:
    """Runs ``rota`` with arguments in this process, and captures what it prints."""

    def __init__(
        self, capture: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._capture, self._monkeypatch = capture, monkeypatch

    def __call__(self, *arguments: object, stdin: bytes = b"") -> CommandResult:
        """Run a command on the bytes of its standard input."""
        self._capture.readouterr()  # what the test itself has printed
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
            try:
                code = int(main([str(each) for each in arguments]))
            except SystemExit as ended:
                code = int(ended.code or 0)
        out, err = self._capture.readouterr()
        return CommandResult(code, text_of(out), text_of(err))


@pytest.fixture
def rota_command(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> RotaCommand:
    """Runs ``rota`` in this process: ``rota_command("plan", "--members", "3")``."""
    return RotaCommand(capsysbinary, monkeypatch)


def run_rota(
    *arguments: object,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    seconds: float = PATIENCE,
) -> CommandResult:
    """Run ``rota`` with arguments until it ends."""
    return run_command(*ROTA, *arguments, stdin=stdin, env=env, seconds=seconds)


def pytest_configure() -> None:
    """Let Ctrl-C end this process and those it starts.

    A shell starts ``pytest &`` with SIGINT ignored, and every process that pytest starts inherits
    that, so tests of Ctrl-C would wait in vain.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Restore the loggers that a command in this process has changed."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(list(each.handlers), each.propagate, each.level) for each in loggers]
    result = yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)
    return result
