"""The ways to run a command in a test.

==================  ===============================================================================
``rota_command``    a fixture: runs ``rota ...`` in this process, with captured output
``run_rota``        runs ``rota ...`` as a process until it ends
``run_python``      runs a Python program as a process until it ends
``run_command``     runs any other command as a process until it ends
``RunningCommand``  a command that serves until it is stopped: ``rota broker``, ``rota consume``
==================  ===============================================================================

Each returns a ``CommandResult``: exit code, output and errors.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from rota.cli.main import main
from tests.support.paths import ROOT

#: Seconds that a process may take, also on a machine with much else to do.
PATIENCE = 120.0
ROTA = (sys.executable, "-m", "rota")


class CommandResult(NamedTuple):
    """How a command ended and what it printed; bytes that are not UTF-8 are surrogates."""

    code: int
    out: str
    err: str

    @property
    def raw(self) -> bytes:
        """The output as bytes."""
        return self.out.encode("utf-8", "surrogateescape")

    @property
    def lines(self) -> list[str]:
        """The lines of the output."""
        return self.out.splitlines()

    def checked(self) -> Self:
        """Itself, if the exit code is 0."""
        assert self.code == 0, f"exit code {self.code}: {self.err}"
        return self


# In this process


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
        return CommandResult(code, _text(out), _text(err))


@pytest.fixture
def rota_command(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> RotaCommand:
    """Runs ``rota`` in this process: ``rota_command("plan", "--members", "3")``."""
    return RotaCommand(capsysbinary, monkeypatch)


# As a process until it ends


def environment(**changes: str) -> dict[str, str]:
    """The environment of a process that imports ``rota`` and ``tests`` of this checkout."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **changes}


def run_command(
    *command: object,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    folder: Path | None = None,
    seconds: float = PATIENCE,
) -> CommandResult:
    """Run a command until it ends; without `env` its environment is ``environment()``."""
    done = subprocess.run(
        [str(each) for each in command],
        input=stdin.encode(),
        capture_output=True,
        env=environment() if env is None else env,
        cwd=folder,
        timeout=seconds,
        check=False,
    )
    return CommandResult(done.returncode, _text(done.stdout), _text(done.stderr))


def run_rota(
    *arguments: object,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    seconds: float = PATIENCE,
) -> CommandResult:
    """Run ``rota`` with arguments until it ends."""
    return run_command(*ROTA, *arguments, stdin=stdin, env=env, seconds=seconds)


def run_python(
    program: str,
    *arguments: object,
    env: Mapping[str, str] | None = None,
    seconds: float = PATIENCE,
) -> CommandResult:
    """Run the text of a Python program until it ends."""
    return run_command(sys.executable, "-c", program, *arguments, env=env, seconds=seconds)


# As a process until it is stopped


class RunningCommand:
    """A command in the background; leaving its ``with`` block kills it.

    What it prints goes to `log`, or is read here: by ``read_line``, and by ``end`` at last.
    """

    def __init__(
        self, *command: object, env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> None:
        with (log or Path(os.devnull)).open("ab") as file:
            to = file if log else subprocess.PIPE
            self._process = subprocess.Popen(
                [str(each) for each in command],
                stdin=subprocess.PIPE,
                stdout=to,
                stderr=to,
                env=environment() if env is None else env,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def read_line(self, seconds: float = PATIENCE) -> str:
        """The next line of its output; empty at its end. It is killed if no line comes in time."""
        assert self._process.stdout is not None
        alarm = threading.Timer(seconds, self._process.kill)
        alarm.start()
        try:
            return _text(self._process.stdout.readline())
        finally:
            alarm.cancel()
            alarm.join()

    def close_output(self) -> None:
        """Read no more of its output, as ``head`` does."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> CommandResult:
        """How it ended, and the rest of what it printed; its standard input is closed."""
        out, err = self._process.communicate(timeout=seconds)
        return CommandResult(self._process.returncode, _text(out or b""), _text(err or b""))

    def end(self, how: int = signal.SIGTERM) -> CommandResult:
        """Send it a signal, and wait until it ends."""
        self.send_signal(how)
        return self.wait()

    def kill(self) -> None:
        """End it as a crash would; it may have ended before."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def _text(printed: bytes) -> str:
    return printed.decode("utf-8", "surrogateescape")


def pytest_configure() -> None:
    """Let Ctrl-C end this process and those it starts.

    A shell starts ``pytest &`` with SIGINT ignored, and every process that pytest starts inherits
    that, so tests of Ctrl-C would wait in vain.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
