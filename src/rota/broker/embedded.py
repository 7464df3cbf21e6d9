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
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

from rota.broker import control, missing
from rota.broker.config import parse_config
from rota.broker.connection import make_server_context
from rota.broker.control import BrokerControl
from rota.broker.events import Wakeup
from rota.broker.listener import (
    advertised_address,
    bind_sockets,
    check_exposure,
    format_address,
    parse_address,
)
from rota.broker.node import BrokerNode
from rota.broker.server import LOGGER, Server
from rota.broker.startup import BrokerInstance, open_broker
from rota.broker.timers import Clock
from rota.engine.model.config import BrokerConfig
from rota.errors import InputError, RotaError, Unreachable
from rota.protocol.sasl import Mechanism

T = TypeVar("T")


class Broker(BrokerControl):
    """A Kafka-compatible broker of one node, for this process and for others on the machine.

    ::

        with rota.Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Use it as a context manager, or call :meth:`start` and :meth:`stop`. A broker that was not
    stopped is stopped when the interpreter exits.
    """

    def __init__(  # noqa: PLR0913, what a user may set
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

        :param data_dir: folder for the topics; None: a temporary folder, removed when the broker
            stops
        :param port: 0 chooses a free port
        :param advertise: ``host:port`` that clients are told, if it differs from where they
            connect
        :param config: settings under Kafka's names, as in ``server.properties``
        :param users: passwords by user; if given, clients must log in (SASL)
        :param mechanisms: ``PLAIN``, ``SCRAM-SHA-256``, ``SCRAM-SHA-512``; all by default
        :param tls: PEM files: a certificate and its key, or one file with both; then every client
            must use TLS
        :param allow_anonymous: listen beyond this machine although nobody has to log in
        :param adopt: take over a folder without a catalogue: a Kafka's, or a copy of partitions
        :raises InputError: an argument is wrong
        """
        if (problem := missing()) is not None:
            raise Unreachable(problem)
        self._configuration = parse_config(config or {})
        if idle := self._configuration.ignored_keys:
            LOGGER.warning("settings of Kafka's without effect here: %s", ", ".join(idle))
        told = advertise or self._configuration.advertised_listener
        self._advertised = None if told is None else parse_address(told)
        self._users = check_users(users)
        self._mechanisms = check_mechanisms(mechanisms, self._users)
        self._context = make_tls_context(tls)
        check_exposure(host, guarded=bool(self._users), allow_anonymous=allow_anonymous)
        if data_dir is not None and not str(data_dir):
            raise InputError("data_dir: it is empty; a temporary folder is None")
        self._folder = None if data_dir is None else Path(data_dir)
        #: In its place, while it runs.
        self._temporary: Path | None = None
        self._host, self._port, self._adopt = host, port, adopt
        self._clock = Clock()
        self.clock = BrokerClock(self)
        self._broker_thread: BrokerThread | None = None

    # Life

    def start(self) -> Self:
        """Starts the broker; when this returns, clients are served.

        :raises Unreachable: the port is taken, or the folder cannot be used
        :raises InputError: the folder is not Rota's
        """
        if self._broker_thread is not None:
            raise RotaError("the broker is running already")
        sockets = bind_sockets(self._host, self._port)
        folder = self._folder or self._temporary
        if folder is None:
            folder = self._temporary = Path(tempfile.mkdtemp(prefix="rota-"))
        port = sockets[0].getsockname()[1]
        self._address = self._advertised or advertised_address(self._host, port)
        running = BrokerThread(
            partial(
                open_broker,
                folder,
                self._configuration,
                address=self._address,
                log=LOGGER.log,
                passwords=self._users,
                mechanisms=self._mechanisms,
                adopt=self._adopt,
                lasting=self._folder is not None,
            ),
            sockets,
            clock=self._clock,
            config=self._configuration.broker,
            context=self._context,
            temporary=self._temporary,
        )
        try:
            running.start()
        except BaseException:
            self._temporary = None
            raise
        self._broker_thread = running
        self._listening = format_address(self._host, port)
        self._port = port  # clients find it there when it starts again
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Stops the broker in good order; does nothing if it is not running.

        A temporary folder is removed. The broker can be started again, and then has the same port.

        :raises TimeoutError: it is still busy after a minute; stop() may be called again
        """
        self._stop(keep=False)

    def restart(self) -> None:
        """Stops the broker and starts it again, at the same port and with everything it has stored.

        :raises TimeoutError: as :meth:`stop`
        """
        if self._broker_thread is None:
            raise _not_running_error()
        self._stop(keep=True)
        self.start()

    def _stop(self, *, keep: bool) -> None:
        running = self._broker_thread
        if running is None:
            return
        try:
            running.stop(keep=keep)
        finally:
            if not running.alive:
                self._broker_thread = None
                atexit.unregister(self.stop)
                if not keep:
                    self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The ``host:port`` that clients connect to."""
        self._run(lambda _: None)
        return format_address(*self._address)

    @property
    def listening(self) -> str:
        """The ``host:port`` that the broker listens on; the advertised address may differ."""
        self._run(lambda _: None)
        return self._listening

    @property
    def data_dir(self) -> Path | None:
        """The folder of the topics; a temporary folder exists only while the broker runs."""
        return self._folder or self._temporary

    def __repr__(self) -> str:
        if self._broker_thread is None:
            return f"<rota.Broker, not running, data_dir={str(self._folder or '')!r}>"
        return f"<rota.Broker at {format_address(*self._address)}, data_dir={str(self.data_dir)!r}>"

    @property
    def running(self) -> bool:
        """True if the broker was started and has neither stopped nor failed."""
        return self._broker_thread is not None and self._broker_thread.alive

    # Within

    def _run(self, act: Callable[[BrokerNode], T]) -> T:
        __tracebackhide__ = True
        return _run_in_broker(self._broker_thread, lambda node, _: act(node))


class BrokerClock:
    """The broker's clock, for tests. Group timers, delays and long polls run by it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = weakref.ref(broker)

    def now(self) -> int:
        """The broker's time, in milliseconds since 1970."""
        return self._run(lambda _, server: server.now())

    def advance(self, seconds: float) -> None:
        """Moves the clock forward. Timers that are due until then fire in order, each at its
        own time: members whose session ends are removed, as if they had been silent all
        along.
        """
        by = control.to_milliseconds(seconds)
        self._run(lambda _, server: server.advance(by))

    def freeze(self) -> None:
        """Stops the clock: nothing expires and no long poll ends, except through
        :meth:`advance`.
        """
        self._run(lambda _, server: server.freeze())

    def resume(self) -> None:
        """Lets the clock run again from where it stands."""
        self._run(lambda _, server: server.resume())

    def _run(self, act: Callable[[BrokerNode, Server], T]) -> T:
        __tracebackhide__ = True
        broker = self._broker()
        return _run_in_broker(None if broker is None else broker._broker_thread, act)


def _run_in_broker(running: BrokerThread | None, act: Callable[[BrokerNode, Server], T]) -> T:
    """Returns the result of ``act`` in the broker's thread. A RotaError is raised here
    without the broker's traceback: a failing test then shows the line that asked for it.
    """
    __tracebackhide__ = True
    if running is None:
        raise _not_running_error()
    try:
        return running.call(act)
    except RotaError as error:
        raise error.with_traceback(None) from error.__cause__


def _not_running_error() -> RotaError:
    return RotaError("the broker does not run: use it in a with block, or call start()")


ResultT = TypeVar("ResultT")

#: Seconds that a broker has to stop: with thousands of partitions it writes for a while.
STOP_TIMEOUT = 60.0


class BrokerThread:
    """A broker that runs, in a thread of its own."""

    def __init__(  # noqa: PLR0913, what a thread is given
        self,
        install: Callable[..., BrokerInstance],
        sockets: list[socket.socket],
        *,
        clock: Clock,
        config: BrokerConfig,
        context: ssl.SSLContext | None,
        temporary: Path | None,
    ) -> None:
        self._open_broker, self._sockets, self._clock = install, sockets, clock
        self._config, self._context, self._temporary = config, context, temporary
        self._process = os.getpid()
        #: Nobody has said that it shall stop.
        self._should_run = True
        self._ready: Future[None] = Future()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="rota-broker", daemon=True)

    def start(self) -> None:
        """Starts the thread and waits until clients are served; raises the error that
        prevented it.
        """
        self._thread.start()
        try:
            self._ready.result()
        except BaseException:
            self._stop_thread()
            raise
        _running_threads.add(self)

    def stop(self, *, keep: bool = False) -> None:
        """Ends the thread; raises the error that kept the broker from stopping in good order.

        :param keep: the folder will be used again, although it is a temporary one
        :raises TimeoutError: the thread has not ended yet: it still serves, and may be stopped
            again
        """
        if self._process != os.getpid():
            return  # a child has inherited the object, but not the thread
        if keep:
            self._temporary, self._instance.persistent = None, True
        self._stop_thread()
        if self._thread.is_alive():
            raise TimeoutError(
                f"the broker has not stopped in {STOP_TIMEOUT:g} s: it is busy, and keeps its "
                "folder"
            )
        _running_threads.discard(self)
        if self._error is not None:
            raise self._error

    def call(self, act: Callable[[BrokerNode, Server], ResultT]) -> ResultT:
        """Returns the result of ``act``, called in the broker's thread; then the node's
        commands are carried out.
        """
        if self._process != os.getpid():
            raise RotaError("the broker runs in the process that has started it, not in a fork")
        if threading.current_thread() is self._thread:
            return self._call_in_thread(act)
        future: Future[ResultT] = Future()

        def do() -> None:
            try:
                future.set_result(self._call_in_thread(act))
            except BaseException as error:  # noqa: BLE001 (it is the caller's)
                future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(do)
        except RuntimeError:
            raise RotaError("the broker has stopped") from self._error
        while not future.done() and self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                return future.result(1)
        if not future.done():
            raise RotaError("the broker has stopped") from self._error
        return future.result()

    def release_descriptors(self) -> None:
        """After a fork, in the child: releases the descriptors that would outlive the
        parent's broker.
        """
        nothing = os.open(os.devnull, os.O_RDWR)
        sockets = [one.fileno() for one in self._sockets]
        for each in [self._instance.lock.fileno(), *sockets, *self._server.descriptors()]:
            # in place of closing: the objects that own it may close it once more
            if each >= 0:
                os.dup2(nothing, each)
        os.close(nothing)

    def _call_in_thread(self, act: Callable[[BrokerNode, Server], ResultT]) -> ResultT:
        try:
            return act(self._node, self._server)
        finally:
            self._server.handle_event(Wakeup())

    @property
    def alive(self) -> bool:
        """The thread has not ended by itself."""
        return self._thread.is_alive()

    def _stop_thread(self) -> None:
        self._should_run = False
        with contextlib.suppress(RuntimeError, AttributeError):  # ended by itself, or not begun
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(STOP_TIMEOUT)

    def _main(self) -> None:
        try:
            # not the loop that the application has chosen for its own (uvloop, say)
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 (it is raised by stop)
            self._error = error
        finally:
            self._clean_up()
            if self._error is not None and not self._ready.done():
                self._ready.set_exception(self._error)

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._instance = self._open_broker(now=self._clock.now())
        self._node = self._instance.node
        try:
            self._server = Server(self._node, self._clock, self._config, context=self._context)
            await self._server.start(self._sockets)
            self._ready.set_result(None)
            if self._should_run:
                await self._stopping.wait()
            await self._server.stop()
        finally:
            self._instance.close(self._clock.now())

    def _clean_up(self) -> None:
        """Called by the thread itself, so that nothing is removed while it still uses it."""
        for each in self._sockets:
            each.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)


_running_threads: weakref.WeakSet[BrokerThread] = weakref.WeakSet()


def _release_after_fork() -> None:
    for each in list(_running_threads):
        each.release_descriptors()
    _running_threads.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_after_fork)

TlsArgument: TypeAlias = ssl.SSLContext | tuple[str | Path, ...] | list[str | Path] | str | Path


def check_users(users: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the passwords by user; empty if nobody has to log in."""
    if users is None:
        return {}
    if not isinstance(users, Mapping):
        raise InputError(f"users: {users!r} is not a dict of passwords by user")
    if not users:
        raise InputError("users: there are none in it, so that nobody could log in; leave it out")
    for name, password in users.items():
        if not (isinstance(name, str) and isinstance(password, str) and name and password):
            raise InputError(f"users: {name!r} and its password must be texts that are not empty")
    return dict(users)


def check_mechanisms(
    names: Iterable[str] | None, users: Mapping[str, str]
) -> tuple[Mechanism, ...]:
    """Returns the SASL mechanisms that clients are offered."""
    if names is None:
        return tuple(Mechanism)
    if not users:
        raise InputError("mechanisms need users: without them nobody has to log in")
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InputError(f"mechanisms: {names!r} is not a list of names")
    known = {str(each): each for each in Mechanism}
    found = []
    for name in names:
        if name not in known:
            raise InputError(f"there is no SASL mechanism {name!r}; known are {', '.join(known)}")
        found.append(known[name])
    if not found:
        raise InputError("mechanisms: there are none in it, so that nobody could log in")
    return tuple(found)


def make_tls_context(tls: TlsArgument | None) -> ssl.SSLContext | None:
    """Returns the TLS context; None without TLS."""
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    files = list(tls) if isinstance(tls, tuple | list) else [tls]
    if len(files) not in {1, 2} or not all(isinstance(each, str | Path) for each in files):
        raise InputError(
            f"tls: {tls!r} is neither a file with a certificate and its key, nor a pair of files"
        )
    return make_server_context(files[0], files[1] if len(files) > 1 else None)
