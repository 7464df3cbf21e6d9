"""A pytest plugin that holds every test to what its folder allows.

Python reports each socket, process, file and thread to its audit hooks (PEP 578). While a test of
``tests/pure`` or ``tests/local`` runs, a hook refuses what the folder does not allow, and the test
fails even if the code under test swallows that refusal.

============  =====================================================================================
folder        what its tests may use
============  =====================================================================================
tests/pure    memory, and files to read
tests/local   also sockets of this machine, threads, and files below the temporary folder to write
tests/system  everything: processes, Java, Kafka, Spark, a browser
============  =====================================================================================

A test of ``tests/pure`` or ``tests/local`` also ends the threads that it starts. What a broker or a
client does in the background would reach into the tests after it.

Python does not report everything: not the files that a library writes from C or C++, as PyArrow
does, not ``os.mkfifo()``, not the folder of ``os.open(..., dir_fd=...)``, and not that
``socket.connect()`` looks up a name (it reports the connection afterwards). Unix sockets are not
looked at. In a checkout below the temporary folder ``tests/local`` may write anywhere.
"""

from __future__ import annotations

import fcntl
import ipaddress
import multiprocessing.process
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Generator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

PROCESS = (
    "subprocess.Popen",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.system",
    "pty.spawn",
)
THREAD = ("_thread.start_new_thread", "_thread.start_joinable_thread")
#: Events whose second argument is an address.
ADDRESS = ("socket.bind", "socket.connect", "socket.sendmsg", "socket.sendto")
#: Events of a look-up of an address's name: the address, or a tuple that begins with it.
REVERSE = ("socket.gethostbyaddr", "socket.getnameinfo")
#: Events whose first argument is a host.
LOOKUP = ("socket.getaddrinfo", "socket.gethostbyname", *REVERSE)
#: Events that change the path in their first argument, with the position of its folder's
#: descriptor among the arguments.
CHANGE = {
    "os.chmod": 2,
    "os.chown": 3,
    "os.mkdir": 2,
    "os.remove": 1,
    "os.removexattr": None,
    "os.rmdir": 1,
    "os.setxattr": None,
    "os.truncate": None,
    "os.utime": 3,
}
#: The same for events that make a second path; only a rename changes the first, too.
CHANGE_TWO = {"os.link": (None, 3), "os.rename": (2, 3), "os.symlink": (None, 2)}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Documentation addresses (RFC 5737): binding one always fails.
TEST_NET = ipaddress.ip_network("192.0.2.0/24")
#: No host's name ends with this (RFC 6761).
NO_HOST = ".invalid"
#: Seconds that a thread has to end after its test.
JOIN_TIMEOUT = 10.0
#: Threads that look up a host name: the system call cannot be interrupted.
UNSTOPPABLE = ("rota-resolve-",)
#: Folders that Python, pytest and Hypothesis keep for themselves.
OWN_FOLDERS = frozenset({"__pycache__", ".hypothesis", ".pytest_cache"})
#: Devices that keep nothing of what is written to them.
DEVICES = (os.devnull, "/dev/full")

#: The reason against an audit event with these arguments; None if it is allowed.
Rule = Callable[[str, tuple[Any, ...]], str | None]


class NotAllowedHere(RuntimeError):
    """A test used something that its folder does not allow."""


class FolderRules:
    """Watches the test that runs now.

    :param temporary: folders below which ``tests/local`` may write
    """

    def __init__(self, *temporary: Path) -> None:
        self._rules = {"pure": rules_of_pure(), "local": rules_of_local(temporary)}
        self._now: Mapping[str, Rule] = {}
        self._broken: list[str] = []
        self._threads: set[threading.Thread] = set()
        self._shared: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Refuse what the running test's folder does not allow; Python calls this very often."""
        rule = self._now.get(event)
        if rule is None:
            return
        reason = rule(event, arguments)
        if reason is not None:
            self._broken.append(reason)
            raise NotAllowedHere(reason)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Watch the import of a test file."""
        self._now = self._rules.get(folder_of(collector.path) or "", {})
        try:
            return (yield)
        finally:
            self._now = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        """Watch the fixtures of a test, and remember which threads run before them."""
        self._threads = set(threading.enumerate())
        yield from self._watch(item)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Watch a test."""
        yield from self._watch(item)

    def _watch(self, item: pytest.Item) -> Generator[None]:
        self._now, self._broken = self._rules.get(folder_of(item.path) or "", {}), []
        try:
            yield
        except Exception as error:
            if self._broken:  # the cause of the error: it is the one to tell
                self._fail(error)
            raise
        finally:
            self._now = {}
        if self._broken:
            self._fail()

    def _fail(self, error: Exception | None = None) -> None:
        raise pytest.fail.Exception("; ".join(dict.fromkeys(self._broken))) from error

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


def rules_of_pure() -> dict[str, Rule]:
    """The rules of ``tests/pure``, by audit event."""

    def no_process(event: str, _: tuple[Any, ...]) -> str:
        return f"tests/pure starts no process: move this test to tests/system ({event})"

    def no_thread(event: str, _: tuple[Any, ...]) -> str:
        return f"tests/pure starts no thread: move this test to tests/local ({event})"

    def no_network(event: str, _: tuple[Any, ...]) -> str:
        return f"tests/pure uses no network: move this test to tests/local ({event})"

    def no_change(event: str, arguments: tuple[Any, ...]) -> str | None:
        for path in changed_paths(event, arguments):
            if not is_own_file(path):
                return f"tests/pure writes no file: move this test to tests/local ({event} {path})"
        return None

    return {
        **dict.fromkeys(PROCESS, no_process),
        **dict.fromkeys(THREAD, no_thread),
        **dict.fromkeys((*ADDRESS, *LOOKUP), no_network),
        **dict.fromkeys(("open", *CHANGE, *CHANGE_TWO), no_change),
    }


def rules_of_local(temporary: tuple[Path, ...]) -> dict[str, Rule]:
    """The rules of ``tests/local``, by audit event.

    :param temporary: folders below which a test may write
    """

    def no_process(event: str, _: tuple[Any, ...]) -> str:
        return f"tests/local starts no process: move this test to tests/system ({event})"

    def this_machine(event: str, arguments: tuple[Any, ...]) -> str | None:
        address = arguments[1]
        if not isinstance(address, tuple):  # a Unix socket, or the peer of a connected one
            return None
        host = str(address[0])
        if is_loopback(host) or (event == "socket.bind" and is_test_net(host)):
            return None
        return f"tests/local talks to this machine alone, not to {host} ({event})"

    def this_machines_name(event: str, arguments: tuple[Any, ...]) -> str | None:
        given = arguments[0][0] if isinstance(arguments[0], tuple) else arguments[0]
        host = "localhost" if given is None else os.fsdecode(given)
        if is_loopback(host) or (event not in REVERSE and needs_no_server(host)):
            return None
        return f"tests/local looks up this machine alone, not {host} ({event})"

    def temporary_change(event: str, arguments: tuple[Any, ...]) -> str | None:
        for path in changed_paths(event, arguments):
            if not any(map(path.is_relative_to, temporary)) and not is_own_file(path):
                return f"tests/local writes below the temporary folder alone ({event} {path})"
        return None

    return {
        **dict.fromkeys(PROCESS, no_process),
        **dict.fromkeys(ADDRESS, this_machine),
        **dict.fromkeys(LOOKUP, this_machines_name),
        **dict.fromkeys(("open", *CHANGE, *CHANGE_TWO), temporary_change),
    }


def changed_paths(event: str, arguments: tuple[Any, ...]) -> list[Path]:
    """The paths that an audit event writes, makes, renames or removes, absolute and without links.

    A file descriptor in place of a path was judged when os.open() made it. Hypothesis opens its
    cache of constants by one, and pytest truncates its file of captured output by one.
    """
    if event == "open":
        path, _, flags = arguments
        if not isinstance(flags, int) or not flags & WRITING or isinstance(path, int):
            return []
        return [Path(os.fsdecode(path)).resolve()]
    if event in CHANGE_TWO:
        old, new = CHANGE_TWO[event]
        paths = [_changed(arguments[1], arguments[new])]
        if old is not None:
            paths.append(_changed(arguments[0], arguments[old]))
        return paths
    if isinstance(arguments[0], int):
        return []
    above = CHANGE[event]
    return [_changed(arguments[0], -1 if above is None else arguments[above])]


def _changed(path: str | bytes | os.PathLike[str], above: int) -> Path:
    """A path in its folder; that path may be a link, as the link itself is changed.

    :param above: the descriptor of the folder that a relative path begins in; -1: this process's
    """
    name = Path(os.fsdecode(path))
    if above >= 0 and not name.is_absolute():
        name = _path_of(above) / name
    return name.parent.resolve() / name.name


def _path_of(descriptor: int) -> Path:
    """The path of an open folder."""
    if sys.platform == "darwin":
        found = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024))
        return Path(os.fsdecode(found.rstrip(b"\0")))
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def is_own_file(path: Path) -> bool:
    """Whether a file belongs to Python, pytest or Hypothesis, or is a device."""
    return str(path) in DEVICES or not OWN_FOLDERS.isdisjoint(path.parts)


@cache
def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by a loopback address or the name of one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


@cache
def is_test_net(host: str) -> bool:
    """Whether a host is an address of the documentation."""
    try:
        return ipaddress.ip_address(host) in TEST_NET
    except ValueError:
        return False


@cache
def needs_no_server(host: str) -> bool:
    """Whether a host is an address, or a name that no name server knows."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "" or host.endswith(NO_HOST)
    return True


def pytest_configure(config: pytest.Config) -> None:
    """Start to watch; Python keeps an audit hook until it ends."""
    temporary = [Path(tempfile.gettempdir())]
    if config.option.basetemp:
        temporary.append(Path(config.option.basetemp))
    rules = FolderRules(*(folder.resolve() for folder in temporary))
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
