"""A driver's process, and what is asked of it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeAlias

from tests.support.paths import ROOT

#: Hears what happens to members, as it happens.
News: TypeAlias = Callable[[dict[str, Any]], None]
#: A driver logs resources that are left open, and no deprecation in a client library.
WARNINGS = "ignore,always::ResourceWarning"
#: Longer than a driver's own, so that the driver's words are heard.
PATIENCE = 90


class ClientError(Exception):
    """What the client library said."""


class Driver:
    """A client library in a process of its own."""

    def __init__(
        self,
        command: Sequence[str],
        path: str = str(ROOT),
        news: News | None = None,
        *,
        patience: float = PATIENCE,
        closes: bool = False,
    ) -> None:
        """Starts the process.

        :param closes: :meth:`kill` fails if the process has logged a ResourceWarning
        """
        self._closes = closes
        self._news = news
        self._patience = patience
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in kill
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": WARNINGS},
            text=True,
        )
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # it was killed in the middle of a word
            answer = json.loads(line)
            if "id" not in answer:
                assert self._news is not None
                self._news(answer)
                continue
            waiting = self._waiting.pop(answer["id"])
            if answer.get("error"):
                waiting.set_exception(ClientError(answer["error"]))
            else:
                waiting.set_result(answer["ok"])
        for each in list(self._waiting.values()):
            each.set_exception(ClientError("the driver has ended"))

    def ask(self, op: str, **fields: Any) -> Any:
        """Have something done, and wait for it."""
        done: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = done
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": number, "op": op, **fields}) + "\n")
            self._process.stdin.flush()
        try:
            return done.result(self._patience)
        except TimeoutError as error:
            status = self._process.poll()
            error.add_note(f"{op} had no answer; exit code {status}; {self.log_tail()}")
            raise

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def log_tail(self) -> str:
        """The end of what the library has logged."""
        self._log.seek(0)
        return self._log.read()[-8_000:]

    def end(self) -> int:
        """Close its input, and wait until it ends; its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(self._patience)

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        said = self.log_tail() if self._closes else ""
        self._log.close()
        assert "ResourceWarning" not in said, said


@dataclass(frozen=True, slots=True)
class DriverAt:
    """A driver that talks to one address of the broker."""

    driver: Driver
    servers: str
    security: Mapping[str, str] | None = None

    def ask(self, op: str, **fields: Any) -> Any:
        """Have something done at this address."""
        if self.security is not None:
            fields["security"] = dict(self.security)
        return self.driver.ask(op, servers=self.servers, **fields)
