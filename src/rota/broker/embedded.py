"""``rota.Broker``: a broker inside a Python process, in a thread of its own.

:class:`Broker` checks its arguments, binds the sockets and starts a :class:`BrokerThread`. The
thread opens the data folder (:mod:`rota.broker.startup`) and runs a
:class:`~rota.broker.server.Server` in its own event loop. Every call on a running broker is
executed in that thread.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shutil
import socket
import ssl
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self, TypeAlias, TypeVar

from rota.broker import explain_missing_packages, server
from rota.broker.config import parse_config
from rota.broker.connection import make_server_context
from rota.broker.control import BrokerControl, to_milliseconds
from rota.broker.events import Wakeup
from rota.broker.node import BrokerNode
from rota.broker.server import LOGGER, Server
from rota.broker.startup import BrokerInstance, open_broker
from rota.broker.timers import Clock
from rota.engine.model.config import BrokerConfig
from rota.errors import InputError, RotaError, TimedOut, Unreachable
from rota.protocol.sasl import Mechanism

T = TypeVar("T")
TlsArgument: TypeAlias = ssl.SSLContext | tuple[str | Path, ...] | list[str | Path] | str | Path
STOP_TIMEOUT = 60.0  # seconds to stop: with thousands of partitions a broker writes long


class Broker(BrokerControl):
    """A Kafka-compatible broker of one node, for this process and for others on the machine.

    ::

        with rota.Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Use it as a context manager, or call :meth:`start` and :meth:`stop`. A broker that was not
    stopped is stopped when the interpreter exits.
    """

    def __init__(  # noqa: PLR0913 (the settings of a broker)
        self,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        advertise: str | None = None,
        config: Mapping[str, object] | None = None,
        users: Mapping[str, str] | None = None,
        mechanisms: Iterable[str] | None = None,
        tls: TlsArgument | None = None,
        allow_anonymous: bool = False,
        adopt: bool = False,
    ) -> None:
        """Checks the arguments; opens nothing yet.

        :param data_dir: folder for the topics; None: a temporary one, removed when the broker stops
        :param port: 0 chooses a free port
        :param advertise: the ``host:port`` that clients connect to, if it differs
        :param config: settings under Kafka's names, as in ``server.properties``
        :param users: passwords by user; if given, clients must log in (SASL)
        :param mechanisms: ``PLAIN``, ``SCRAM-SHA-256``, ``SCRAM-SHA-512``; all by default
        :param tls: PEM files, a certificate and its key, or one file with both: clients must use
            TLS
        :param allow_anonymous: allow other machines to connect although there are no ``users``
        :param adopt: open a folder that Kafka has written, or a copy of partition folders
        :raises InputError: an argument is wrong
        """
        if (problem := explain_missing_packages()) is not None:
            raise Unreachable(problem)
        self._config = parse_config(config or {})
        if self._config.ignored_keys:
            names = ", ".join(self._config.ignored_keys)
            LOGGER.warning("these settings of Kafka have no effect in Rota: %s", names)
        advertised = advertise or self._config.advertised_listener
        self._advertised = None if advertised is None else server.parse_address(advertised)
        self._users = _check_users(users)
        self._mechanisms = _check_mechanisms(mechanisms, self._users)
        self._tls_context = _make_tls_context(tls)
        server.check_exposure(host, guarded=bool(self._users), allow_anonymous=allow_anonymous)
        if data_dir is not None and not str(data_dir):
            raise InputError("data_dir is empty; use None for a temporary folder")
        if type(port) is not int or not 0 <= port <= 65_535:
            raise InputError(f"port {port!r}: a port is a number from 0 to 65535")
        self._folder = None if data_dir is None else Path(data_dir)
        self._temporary_folder: Path | None = None
        self._host, self._port, self._adopt = host, port, adopt
        self._system_clock = Clock()
        #: Moves the broker's time, for tests.
        self.clock = BrokerClock(self)
        self._thread: BrokerThread | None = None

    def start(self) -> Self:
        """Starts the broker; when this returns, clients can connect.

        :raises Unreachable: the port is taken, or the folder cannot be used
        :raises InputError: the folder was not written by Rota
        """
        if self._thread is not None:
            raise RotaError("the broker is running already")
        sockets = server.bind_sockets(self._host, self._port)
        folder = self.data_dir
        if folder is None:
            folder = self._temporary_folder = Path(tempfile.mkdtemp(prefix="rota-"))
        port = sockets[0].getsockname()[1]
        self._address = self._advertised or server.advertised_address(self._host, port)
        thread = BrokerThread(
            open_broker=partial(
                open_broker,
                folder,
                self._config,
                address=self._address,
                log=LOGGER.log,
                passwords=self._users,
                mechanisms=self._mechanisms,
                adopt=self._adopt,
                persistent=self._folder is not None,
            ),
            sockets=sockets,
            clock=self._system_clock,
            config=self._config.broker,
            tls_context=self._tls_context,
            temporary_folder=self._temporary_folder,
        )
        try:
            thread.start()
        except BaseException:
            self._temporary_folder = None
            raise
        self._thread = thread
        self._listening = server.format_address(self._host, port)
        self._port = port  # the same port after a restart
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Shuts the broker down cleanly; does nothing if it is not running.

        A temporary folder is removed. The broker can be started again and keeps its port.

        :raises TimedOut: the broker is still busy after a minute; call stop() again
        """
        self._stop(keep=False)

    def restart(self) -> None:
        """Restarts the broker with the same port and stored data; raises as :meth:`stop` does."""
        if self._thread is None:
            raise _not_running_error()
        self._stop(keep=True)
        self.start()

    def _stop(self, *, keep: bool) -> None:
        thread = self._thread
        if thread is None:
            return
        try:
            thread.stop(keep=keep)
        finally:
            if not thread.is_alive:
                self._thread = None
                atexit.unregister(self.stop)
                if not keep:
                    self._temporary_folder = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The ``host:port`` that clients connect to."""
        self._call_in_thread(lambda _: None)
        return server.format_address(*self._address)

    @property
    def listening(self) -> str:
        """The ``host:port`` that the broker listens on; the advertised address may differ."""
        self._call_in_thread(lambda _: None)
        return self._listening

    @property
    def data_dir(self) -> Path | None:
        """The folder of the topics; a temporary folder exists only while the broker runs."""
        return self._folder or self._temporary_folder

    @property
    def running(self) -> bool:
        """True if the broker was started and has neither stopped nor failed."""
        return self._thread is not None and self._thread.is_alive

    def __repr__(self) -> str:
        if self._thread is None:
            return f"<rota.Broker, not running, data_dir={str(self._folder or '')!r}>"
        address = server.format_address(*self._address)
        return f"<rota.Broker at {address}, data_dir={str(self.data_dir)!r}>"

    def _call(self, function: Callable[[BrokerNode, int], T]) -> T:
        __tracebackhide__ = True
        return self._call_in_thread(lambda thread: function(thread.node, thread.server.now()))

    def _call_in_thread(self, function: Callable[[BrokerThread], T]) -> T:
        """Returns ``function``'s result from the broker's thread. Raises a RotaError without the
        thread's traceback, so that a failing test shows the test's own line.
        """
        __tracebackhide__ = True
        thread = self._thread
        if thread is None:
            raise _not_running_error()
        try:
            return thread.call(lambda: function(thread))
        except RotaError as error:
            raise error.with_traceback(None) from error.__cause__


class BrokerClock:
    """The broker's clock, for tests. Group timers, delays and long polls run by it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = weakref.ref(broker)

    def now(self) -> int:
        """Returns the broker's time, in milliseconds since 1970."""
        return self._call(lambda server: server.now())

    def advance(self, seconds: float) -> None:
        """Moves the clock forward. Timers that are due until then fire in order, each at its own
        time. Members whose session ends are removed, as if they had been silent all along.
        """
        milliseconds = to_milliseconds(seconds)
        self._call(lambda server: server.advance(milliseconds))

    def freeze(self) -> None:
        """Stops the clock: nothing expires and no long poll ends, except by :meth:`advance`."""
        self._call(lambda server: server.freeze())

    def resume(self) -> None:
        """Lets the clock run again from its current time."""
        self._call(lambda server: server.resume())

    def _call(self, function: Callable[[Server], T]) -> T:
        __tracebackhide__ = True
        broker = self._broker()
        if broker is None:
            raise _not_running_error()
        return broker._call_in_thread(lambda thread: function(thread.server))


def _not_running_error() -> RotaError:
    return RotaError("the broker does not run: use it in a with block, or call start()")


@dataclass(eq=False, repr=False, kw_only=True)
class BrokerThread:
    open_broker: Callable[..., BrokerInstance]
    sockets: list[socket.socket]
    clock: Clock
    config: BrokerConfig
    tls_context: ssl.SSLContext | None
    temporary_folder: Path | None
    node: BrokerNode = field(init=False)
    server: Server = field(init=False)

    def __post_init__(self) -> None:
        self._process = os.getpid()
        self._should_run = True
        self._ready: Future[None] = Future()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="rota-broker", daemon=True)

    def start(self) -> None:
        """Starts the thread; returns when clients can connect, or raises the error."""
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self._stop_thread()
            raise
        _running_threads.add(self)

    def stop(self, *, keep: bool = False) -> None:
        """Ends the thread; raises TimedOut if it goes on, or the error of its shutdown."""
        if self._process != os.getpid():
            return  # a fork inherits the object, but not the thread
        if keep:
            self.temporary_folder, self._instance.persistent = None, True
        self._stop_thread()
        if self._thread.is_alive():
            text = f"the broker has not stopped in {STOP_TIMEOUT:g} s"
            raise TimedOut(f"{text}: it is busy and keeps its folder")
        _running_threads.discard(self)
        if self._error is not None:
            raise self._error

    def call(self, function: Callable[[], T]) -> T:
        """Calls ``function`` in the broker's thread, then carries out the node's commands."""
        if self._process != os.getpid():
            raise RotaError("the broker runs in the process that started it, not in this fork")
        if threading.current_thread() is self._thread:
            return self._act(function)
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(self._act(function))
            except BaseException as error:  # noqa: BLE001 (the caller gets it)
                future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(run)
        except RuntimeError:
            raise RotaError("the broker has stopped") from self._error
        while not future.done() and self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                return future.result(1)
        if not future.done():
            raise RotaError("the broker has stopped") from self._error
        return future.result()

    def _act(self, function: Callable[[], T]) -> T:
        try:
            return function()
        finally:
            self.server.handle_event(Wakeup())

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def release_descriptors(self) -> None:
        """Releases, in a forked child, the descriptors that would outlive the parent's broker."""
        devnull = os.open(os.devnull, os.O_RDWR)
        sockets = [each.fileno() for each in self.sockets]
        for each in [self._instance.lock.fileno(), *sockets, *self.server.descriptors()]:
            # dup2 instead of close: the objects that own a descriptor may close it once more
            if each >= 0:
                os.dup2(devnull, each)
        os.close(devnull)

    def _stop_thread(self) -> None:
        self._should_run = False
        with contextlib.suppress(RuntimeError, AttributeError):  # it has ended or not begun
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_TIMEOUT)

    def _main(self) -> None:
        try:
            # not the application's choice of a loop (such as uvloop)
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 (stop() raises it)
            self._error = error
        finally:
            # in this thread, which no longer uses the sockets and the folder
            for each in self.sockets:
                each.close()
            if self.temporary_folder is not None:
                shutil.rmtree(self.temporary_folder, ignore_errors=True)
            if self._error is not None and not self._ready.done():
                self._ready.set_exception(self._error)

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._instance = self.open_broker(now=self.clock.now())
        self.node = self._instance.node
        try:
            self.server = Server(self.node, self.clock, self.config, context=self.tls_context)
            await self.server.start(self.sockets)
            self._ready.set_result(None)
            if self._should_run:
                await self._stopping.wait()
            await self.server.stop()
        finally:
            self._instance.close(self.clock.now())


_running_threads: weakref.WeakSet[BrokerThread] = weakref.WeakSet()


def _release_after_fork() -> None:
    for each in list(_running_threads):
        each.release_descriptors()
    _running_threads.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_after_fork)


def _check_users(users: Mapping[str, str] | None) -> dict[str, str]:
    if users is None:
        return {}
    if not isinstance(users, Mapping):
        raise InputError(f"users: {users!r} is not a dict of passwords by user")
    if not users:
        raise InputError("users is empty, so nobody could log in; leave it out")
    for name, password in users.items():
        if not (isinstance(name, str) and isinstance(password, str) and name and password):
            raise InputError(f"users: {name!r} and its password must be texts that are not empty")
    return dict(users)


def _check_mechanisms(
    names: Iterable[str] | None, users: Mapping[str, str]
) -> tuple[Mechanism, ...]:
    if names is None:
        return tuple(Mechanism)
    if not users:
        raise InputError("mechanisms need users: without users nobody has to log in")
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InputError(f"mechanisms: {names!r} is not a list of names")
    known = {str(each): each for each in Mechanism}
    chosen = []
    for name in names:
        if name not in known:
            raise InputError(f"there is no SASL mechanism {name!r}; known are {', '.join(known)}")
        chosen.append(known[name])
    if not chosen:
        raise InputError("mechanisms is empty, so nobody could log in")
    return tuple(chosen)


def _make_tls_context(tls: TlsArgument | None) -> ssl.SSLContext | None:
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    files = list(tls) if isinstance(tls, tuple | list) else [tls]
    if len(files) not in {1, 2} or not all(isinstance(each, str | Path) for each in files):
        text = "neither a file with a certificate and its key, nor a pair of files"
        raise InputError(f"tls: {tls!r} is {text}")
    return make_server_context(files[0], files[1] if len(files) > 1 else None)
