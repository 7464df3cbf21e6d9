"""``rota.Broker``: a broker inside a Python process, in a thread of its own."""

from __future__ import annotations

import atexit
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from rota.broker import argument, missing
from rota.broker.address import advertised, bind, check_exposure, joined, parse
from rota.broker.build import install
from rota.broker.clock import Clock
from rota.broker.configuration import configuration
from rota.broker.hand import Hand
from rota.broker.node import Node
from rota.broker.running import Running
from rota.broker.server import LOGGER, Server
from rota.errors import InputError, RotaError, Unreachable

T = TypeVar("T")


class Broker(Hand):
    """A Kafka-compatible broker of one node, for this process and for others on the machine.

    ::

        with rota.Broker() as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    Use it as a context manager, or call :meth:`start` and :meth:`stop`. One that is forgotten is
    stopped when the interpreter ends.
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
        tls: argument.Tls | None = None,
        allow_anonymous: bool = False,
        adopt: bool = False,
    ) -> None:
        """What the broker shall be; nothing is opened yet.

        :param data_dir: where topics are kept; none: a temporary folder, removed at the end
        :param port: 0 is any that is free
        :param advertise: ``host:port`` that clients are told, if it is not where they connect
        :param config: settings under Kafka's names, as in ``server.properties``
        :param users: passwords by user; with any, clients must log in (SASL)
        :param mechanisms: ``PLAIN``, ``SCRAM-SHA-256``, ``SCRAM-SHA-512``; all by default
        :param tls: files in PEM, a certificate and its key, or one with both; then all speak TLS
        :param allow_anonymous: listen beyond this machine though nobody has to log in
        :param adopt: take over a folder without a catalogue: a Kafka's, or a copy of partitions
        :raises InputError: a setting is wrong
        """
        if (problem := missing()) is not None:
            raise Unreachable(problem)
        self._configuration = configuration(config or {})
        if idle := self._configuration.idle:
            LOGGER.warning("settings of Kafka's without effect here: %s", ", ".join(idle))
        told = advertise or self._configuration.advertised
        self._told = None if told is None else parse(told)
        self._users = argument.passwords(users)
        self._mechanisms = argument.mechanisms(mechanisms, self._users)
        self._context = argument.context(tls)
        check_exposure(host, guarded=bool(self._users), allow_anonymous=allow_anonymous)
        if data_dir is not None and not str(data_dir):
            raise InputError("data_dir: it is empty; a temporary folder is None")
        self._folder = None if data_dir is None else Path(data_dir)
        self._temporary: Path | None = None
        """In its place, while it runs."""
        self._host, self._port, self._adopt = host, port, adopt
        self._clock = Clock()
        self.clock = BrokerClock(self)
        self._running: Running | None = None

    # Life

    def start(self) -> Self:
        """Starts it; when this returns, clients are served.

        :raises Unreachable: the port is taken, or the folder cannot be used
        :raises InputError: the folder is not Rota's
        """
        if self._running is not None:
            raise RotaError("the broker is running already")
        sockets = bind(self._host, self._port)
        folder = self._folder or self._temporary
        if folder is None:
            folder = self._temporary = Path(tempfile.mkdtemp(prefix="rota-"))
        port = sockets[0].getsockname()[1]
        self._address = self._told or advertised(self._host, port)
        running = Running(
            partial(
                install,
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
        self._running = running
        self._listening = joined(self._host, port)
        self._port = port  # clients find it there when it starts again
        atexit.register(self.stop)
        return self

    def stop(self) -> None:
        """Stops it in good order; nothing happens if it does not run. What was in a temporary
        folder is gone. It may be started again, and has the same port then.

        :raises TimeoutError: it is still busy after a minute; it may be stopped once more
        """
        self._stop(keep=False)

    def restart(self) -> None:
        """Stops it and starts it again, at the same port and with all that it has stored.

        :raises TimeoutError: as :meth:`stop`
        """
        if self._running is None:
            raise _not_running()
        self._stop(keep=True)
        self.start()

    def _stop(self, *, keep: bool) -> None:
        running = self._running
        if running is None:
            return
        try:
            running.stop(keep=keep)
        finally:
            if not running.alive:
                self._running = None
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
        """What clients are given to connect: ``host:port``."""
        self._run(lambda _: None)
        return joined(*self._address)

    @property
    def listening(self) -> str:
        """Where it listens: ``host:port``; clients may be told another address."""
        self._run(lambda _: None)
        return self._listening

    @property
    def data_dir(self) -> Path | None:
        """Where topics are kept; a temporary folder is there only while the broker runs."""
        return self._folder or self._temporary

    def __repr__(self) -> str:
        if self._running is None:
            return f"<rota.Broker, not running, data_dir={str(self._folder or '')!r}>"
        return f"<rota.Broker at {joined(*self._address)}, data_dir={str(self.data_dir)!r}>"

    @property
    def running(self) -> bool:
        """It was started, and has not stopped, nor ended by an error."""
        return self._running is not None and self._running.alive

    # Within

    def _run(self, act: Callable[[Node], T]) -> T:
        __tracebackhide__ = True
        return _told(self._running, lambda node, _: act(node))


class BrokerClock:
    """The broker's clock, in a test's hands. Group timers, delays and long polls run by it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = weakref.ref(broker)

    def now(self) -> int:
        """The broker's time, in milliseconds since 1970."""
        return self._run(lambda _, server: server.now())

    def advance(self, seconds: float) -> None:
        """Puts the clock forward. What is due until then happens in order, each at its own time:
        members whose session ends are removed, as if they had been silent all along.
        """
        by = argument.milliseconds(seconds)
        self._run(lambda _, server: server.advance(by))

    def freeze(self) -> None:
        """Stops it: nothing expires, and no long poll ends, but by :meth:`advance`."""
        self._run(lambda _, server: server.freeze())

    def resume(self) -> None:
        """Lets it go on from where it stands."""
        self._run(lambda _, server: server.resume())

    def _run(self, act: Callable[[Node, Server], T]) -> T:
        __tracebackhide__ = True
        broker = self._broker()
        return _told(None if broker is None else broker._running, act)


def _told(running: Running | None, act: Callable[[Node, Server], T]) -> T:
    """What the broker says to this. What it refuses is raised here: a test that fails shows the
    line that asked for it, not the broker's thread.
    """
    __tracebackhide__ = True
    if running is None:
        raise _not_running()
    try:
        return running.run(act)
    except RotaError as error:
        raise error.with_traceback(None) from error.__cause__


def _not_running() -> RotaError:
    return RotaError("the broker does not run: use it in a with block, or call start()")
