"""A broker as a process of its own, that can be killed, paused and started again."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from tests.support.command import ROTA
from tests.support.process import RunningCommand
from tests.support.waiting import wait_until


class BrokerProcess:
    """``rota broker`` on a folder and a port; what it says goes to ``broker.log`` beside it."""

    def __init__(self, folder: Path, port: int, *options: str) -> None:
        self.port = port
        self._log = folder / "broker.log"
        self._command = [
            *(*ROTA, "broker"),
            *("--data-dir", str(folder / "data"), "--port", str(port)),
            *options,
        ]
        self._running: RunningCommand | None = None

    @property
    def _started(self) -> RunningCommand:
        assert self._running is not None, "start() comes first"
        return self._running

    def start(self) -> None:
        """Starts it; it may not listen yet."""
        self._running = RunningCommand(*self._command, log=self._log)

    def wait_until_ready(self, seconds: float = 30) -> None:
        """Waits until it listens."""
        wait_until("it listens", self._listens, self.log_tail, seconds=seconds)

    def _listens(self) -> bool:
        assert self._started.is_running, f"it has ended: {self.log_tail()}"
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """As a crash: nothing is finished."""
        self._started.kill()

    def pause(self) -> None:
        """It stands still, with all its connections open."""
        self._started.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._started.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """Asks it to end, and gives its exit code."""
        return self._started.end().code

    def end(self) -> None:
        """Whatever its state."""
        if self._running is not None:
            self._running.kill()

    def log_tail(self) -> str:
        """The last of its words."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
