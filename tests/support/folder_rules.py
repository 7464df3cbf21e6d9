"""A pytest plugin that holds every test to what its folder allows.

Python reports each socket, process, file and thread to its audit hooks (PEP 578). While a test of
``tests/pure`` or ``tests/local`` runs, a hook refuses what the folder does not allow, and the test
fails even if the code under test swallows that refusal.

============  =====================================================================================
folder        what its tests may use
============  =====================================================================================
tests/pure    memory, and files of the checkout to read
tests/local   also sockets of this machine, threads, and files in temporary folders
tests/system  everything: processes, Java, Kafka, Spark, a browser
============  =====================================================================================

A test of ``tests/pure`` or ``tests/local`` also ends the threads that it starts. What a broker or a
client does in the background would reach into the tests after it.
"""

from __future__ import annotations

import multiprocessing.process
import os
import sys
import threading
import weakref
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

PROCESS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system")
NETWORK = ("socket.bind", "socket.connect", "socket.getaddrinfo", "socket.sendto", "socket.sendmsg")
THREAD = ("_thread.start_new_thread", "_thread.start_joinable_thread")
CHANGE = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LOOPBACK = ("127.", "::1", "localhost", "::ffff:127.")
#: Documentation addresses (RFC 5737): binding one always fails.
TEST_NET = "192.0.2."
#: Seconds that a thread has to end after its test.
JOIN_TIMEOUT = 10.0
#: Threads that look up a host name: the system call cannot be interrupted.
UNSTOPPABLE = ("rota-resolve-",)
#: Files that Python, pytest and Hypothesis keep for themselves.
OWN_FILES = (os.devnull, ".pyc", ".hypothesis", ".pytest_cache")


class NotAllowedHere(RuntimeError):
    """A test used something that its folder does not allow."""


class FolderRules:
    """Watches the test that runs now."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._broken: list[str] = []
        self._threads: set[threading.Thread] = set()
        self._shared: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Refuse what the running test's folder does not allow."""
        if self._folder is None:
            return
        reason = refusal(self._folder, event, arguments)
        if reason is not None:
            self._broken.append(reason)
            raise NotAllowedHere(reason)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        """Watch the fixtures of a test, and remember which threads run before them."""
        self._threads = set(threading.enumerate())
        yield from self._watch(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Watch a test."""
        yield from self._watch(item)

    def _watch(self, item: pytest.Item) -> Generator[None]:
        self._folder, self._broken = folder_of(item.path), []
        try:
            yield
        finally:
            self._folder = None
        if self._broken:
            pytest.fail("; ".join(dict.fromkeys(self._broken)))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Remember the threads of a fixture that other tests share."""
        before = set(threading.enumerate())
        result = yield
        if fixturedef.scope != "function":
            self._shared.update(set(threading.enumerate()) - before)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None]:
        """Watch what closes the fixtures, then fail a test whose threads go on."""
        if nextitem is None:  # the last test also closes what other folders share
            yield
        else:
            yield from self._watch(item)
        if folder_of(item.path) is not None:
            left = set(threading.enumerate()) - self._threads - set(self._shared)
            for thread in left:
                if not thread.name.startswith(UNSTOPPABLE):
                    thread.join(JOIN_TIMEOUT)
            names = sorted(
                each.name
                for each in left
                if each.is_alive() and not each.name.startswith(UNSTOPPABLE)
            )
            if names:
                pytest.fail(f"threads of this test go on after it: {', '.join(names)}")


def folder_of(path: Path) -> str | None:
    """The folder under ``tests`` whose rules hold for a test file; None without rules."""
    below = [folder for above, folder in pairwise(path.parts) if above == "tests"]
    return below[-1] if below and below[-1] in ("pure", "local") else None


def refusal(folder: str, event: str, arguments: tuple[Any, ...]) -> str | None:
    """Why a folder does not allow an audit event; None if it does."""
    if event.startswith(PROCESS):
        return f"tests/{folder} starts no process: move this test to tests/system ({event})"
    if folder == "local":
        address = arguments[1] if event in ("socket.bind", "socket.connect") else None
        own = (*LOOPBACK, TEST_NET) if event == "socket.bind" else LOOPBACK
        if isinstance(address, tuple) and not str(address[0]).startswith(own):
            return f"tests/local talks to this machine alone, not to {address[0]} ({event})"
        return None
    if event in NETWORK or event in THREAD:
        return f"tests/pure does no IO: move this test to tests/local ({event})"
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
    # A file descriptor in place of a path was judged when os.open() made it. Hypothesis opens its
    # cache of constants by one, and pytest truncates its file of captured output by one.
    if (event in CHANGE or writes) and not isinstance(arguments[0], int):
        path = str(arguments[0])
        if not any(own in path for own in OWN_FILES):
            return f"tests/pure writes no file: move this test to tests/local ({event} {path})"
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Start to watch; Python keeps an audit hook until it ends."""
    rules = FolderRules()
    config.pluginmanager.register(rules)
    sys.addaudithook(rules.audit)
    _report_start(multiprocessing.process.BaseProcess, "os.fork")  # nothing else reports it
    if sys.version_info < (3, 12):  # Python reports the start of a thread from 3.12 on
        _report_start(threading.Thread, "_thread.start_new_thread")


def _report_start(kind: Any, event: str) -> None:
    """Let the start of a thread or process raise an audit event."""
    start = kind.start

    def reported(self: Any) -> None:
        sys.audit(event)
        start(self)

    kind.start = reported
