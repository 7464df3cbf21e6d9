"""Processes that tests start.

==================  ===============================================================================
``run_command``     runs a command as a process until it ends
``run_python``      runs a Python program as a process until it ends
``RunningCommand``  a command that serves until it is stopped: ``rota broker``, ``rota consume``
``wait_for_child``  waits for a process that a test has forked
==================  ===============================================================================

Benchmarks use this module: it imports neither pytest nor Rota.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.paths import ROOT

#: Seconds that a process may take, also on a machine with much else to do.
PATIENCE = 120.0


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


# As a process until it ends


def environment(**changes: str) -> dict[str, str]:
    """The environment of a process that imports ``rota`` and ``tests`` of this checkout."""
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    own = {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "PYTEST_ADDOPTS": ""}
    return {**os.environ, **own, **changes}


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
    return CommandResult(done.returncode, text_of(done.stdout), text_of(done.stderr))


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

    What it prints goes to `log`, or is read here: by ``read_line``, and by ``end`` at last. With
    `own_group` it is killed with all processes that it has started.
    """

    def __init__(
        self,
        *command: object,
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        own_group: bool = False,
    ) -> None:
        self._own_group = own_group
        with (log or Path(os.devnull)).open("ab") as file:
            to = file if log else subprocess.PIPE
            self._process = subprocess.Popen(
                [str(each) for each in command],
                bufsize=0,  # wait() reads the pipe itself, and would miss what a buffer holds
                stdin=subprocess.PIPE,
                stdout=to,
                stderr=to,
                env=environment() if env is None else env,
                process_group=0 if own_group else None,
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

    def write(self, text: str) -> None:
        """Write to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def read_line(self, seconds: float = PATIENCE) -> str:
        """The next line of its output; empty at its end.

        :raises AssertionError: no line came in time, and it was killed
        """
        assert self._process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self._process.kill()

        alarm = threading.Timer(seconds, give_up)
        alarm.start()
        try:
            line = text_of(self._process.stdout.readline())
        finally:
            alarm.cancel()
            alarm.join()
        assert not late.is_set(), f"no line within {seconds} s, then {line!r}"
        return line

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
        return CommandResult(self._process.returncode, text_of(out or b""), text_of(err or b""))

    def end(self, how: int = signal.SIGTERM) -> CommandResult:
        """Send it a signal, and wait until it ends."""
        self.send_signal(how)
        return self.wait()

    def kill(self) -> None:
        """End it as a crash would; it may have ended before."""
        if self._own_group:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def text_of(printed: bytes) -> str:
    """What was printed; bytes that are not UTF-8 are surrogates."""
    return printed.decode("utf-8", "surrogateescape")


# A process that a test has forked


def wait_for_child(process_id: int, seconds: float = PATIENCE) -> int:
    """The exit code of a forked process; it is killed if it does not end in time."""
    end = time.monotonic() + seconds
    while (found := os.waitpid(process_id, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(process_id, signal.SIGKILL)
            found = os.waitpid(process_id, 0)
            break
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(found[1])
