"""A broker as a process of its own, that can be killed, paused and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


class BrokerProcess:
    """``rota broker`` on a folder and a port; what it says goes to ``broker.log`` beside it."""

    def __init__(self, folder: Path, port: int, *options: str) -> None:
        self.port = port
        self._log = folder / "broker.log"
        self._command = [
            *(sys.executable, "-m", "rota", "broker"),
            *("--data-dir", str(folder / "data"), "--port", str(port)),
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; it may not listen yet."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait_until_ready(self, seconds: float = 30) -> None:
        """Waits until it listens."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self._process is not None
            assert self._process.poll() is None, f"it has ended: {self.said()}"
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.005)
            else:
                return
        raise AssertionError(f"no answer within {seconds} seconds: {self.said()}")

    def kill(self) -> None:
        """As a crash: nothing is finished."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """It stands still, with all its connections open."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Asks it to end, and gives its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(30)

    def end(self) -> None:
        """Whatever its state."""
        if self._process is not None and self._process.poll() is None:
            self.go_on()
            self.kill()

    def said(self) -> str:
        """The last of its words."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
