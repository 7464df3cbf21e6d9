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
    """Looks again after every append, but once for all appends of one request.

    An append only sets an alarm for now. So what goes wrong here is no fault of the producer that
    woke it, and its answer leaves first.
    """

    def __init__(
        self,
        parts: Parts,
        call: Call,
        partitions: Iterable[Partition],
        look: Look,
        refuse: Callable[[Call, Code], Message],
    ) -> None:
        self._parts = parts
        self._call = call
        self._partitions = tuple(dict.fromkeys(partitions))
        self._look = look
        self._refuse = refuse
        self._until = 0
        self._woken = False

    def start(self, until: int) -> None:
        """Waits, at the longest until then."""
        self._until = until
        for name, partition in self._partitions:
            self._parts.topics.watch(name, partition, self._wake)
        self._parts.alarms.start(self, until, self._ring)
        self._call.client.gone = self._stop

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._parts.alarms.start(self, 0, self._ring)

    def _ring(self, _: int) -> None:
        woken, self._woken = self._woken, False
        try:
            response = self._look(not woken)
        except Exception as error:  # noqa: BLE001 a fault of one request must not end the broker
            call = self._call
            text = f"{call.api.name} v{call.version}: {type(error).__name__}: {error}"
            self._parts.log(ERROR, text)
            response = self._refuse(call, Code.UNKNOWN)
        if response is None:
            self._parts.alarms.start(self, self._until, self._ring)
        else:
            self._stop()
            self._call.answer(response)

    def _stop(self) -> None:
        self._call.client.gone = None
        self._parts.alarms.stop(self)
        for name, partition in self._partitions:
            self._parts.topics.unwatch(name, partition, self._wake)
