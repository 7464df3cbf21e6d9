"""A call that waits until enough has been appended to some partitions, or its time is up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from rota.broker.call import Call
from rota.broker.part import ERROR, Parts
from rota.errors import Code
from rota.wire.message import Message

Partition: TypeAlias = tuple[str, int]
"""A topic's name and a partition's number."""
Look: TypeAlias = Callable[[bool], Message | None]
"""The response, or None: not yet. It is told whether the time is up; then it must not be None."""


class LongPoll:
    """Looks in its turn, and again after every append, but once for all appends of one request.

    An append only asks for a turn. So what goes wrong here is no fault of the producer that woke
    it, whose answer leaves first, and of many that it wakes each waits until there is room.
    """

    def __init__(  # noqa: PLR0913, what to look for, how long, and how to answer
        self,
        parts: Parts,
        call: Call,
        *,
        until: int,
        look: Look,
        partitions: Callable[[], Iterable[Partition]],
        refuse: Callable[[Call, Code], Message],
    ) -> None:
        """:param until: when the time is up
        :param partitions: gives those to wait for, after the first look
        """
        self._parts = parts
        self._call = call
        self._until = until
        self._look = look
        self._partitions = partitions
        self._refuse = refuse
        self._time_is_up = until <= call.now
        self._watched: tuple[Partition, ...] | None = None

    def start(self) -> None:
        """Asks for its first turn."""
        self._call.client.gone = self._stop
        self._wake()

    def _wake(self) -> None:
        self._parts.turns.add(self, self._take)

    def _ring(self, _: int) -> None:
        self._time_is_up = True
        self._wake()

    def _take(self) -> None:
        try:
            response = self._look(self._time_is_up)
        except Exception as error:  # noqa: BLE001 a fault of one request must not end the broker
            call = self._call
            text = f"{call.api.name} v{call.version}: {type(error).__name__}: {error}"
            self._parts.log(ERROR, text)
            response = self._refuse(call, Code.UNKNOWN)
        if response is not None:
            self._stop()
            self._call.answer(response)
        elif self._watched is None:
            self._wait()

    def _wait(self) -> None:
        self._watched = tuple(dict.fromkeys(self._partitions()))
        for name, partition in self._watched:
            self._parts.topics.watch(name, partition, self._wake)
        self._parts.alarms.start(self, self._until, self._ring)

    def _stop(self) -> None:
        self._call.client.gone = None
        self._parts.turns.drop(self)
        if self._watched is not None:
            self._parts.alarms.stop(self)
            for name, partition in self._watched:
                self._parts.topics.unwatch(name, partition, self._wake)
