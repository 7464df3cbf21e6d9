"""How long partitions stood still: from when nobody read them any more until somebody did again.

A member reads what it owns, unless its listener is being told to give it up, or it is crashed,
frozen or stuck outside of poll. What was never read yet does not stand still.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rota.member.event import Call
from rota.model.topic import TopicPartition
from rota.sim.trace import Record, What

ASLEEP = {What.PAUSED: What.RESUMED, What.STALLED: What.WOKEN}
"""What puts a member to sleep, and what wakes it."""
AWAKE = {woken: asleep for asleep, woken in ASLEEP.items()}


class Stop(NamedTuple):
    """A partition stood still, in milliseconds from the start of the world."""

    partition: TopicPartition
    since: int
    until: int
    ended: bool
    """False where it still stood at the end."""

    @property
    def time(self) -> int:
        """How long."""
        return self.until - self.since


class _Readers:
    """Who reads what."""

    def __init__(self) -> None:
        self.stops: list[Stop] = []
        self._owned: dict[str, frozenset[TopicPartition]] = {}
        self._asleep: dict[str, set[What]] = {}
        self._reading: dict[str, frozenset[TopicPartition]] = {}
        self._readers: dict[TopicPartition, int] = {}
        self._since: dict[TopicPartition, int] = {}

    def see(self, record: Record) -> None:
        """Something happened."""
        name = record.who
        match record.what:
            case What.ASSIGNMENT:
                _, partitions = _pair(record.detail)
                self._owned[name] = frozenset(partitions)
            case What.WITHHELD:
                assert isinstance(record.detail, tuple)
                self._owned[name] = self._owned.get(name, frozenset()).difference(record.detail)
            case What.LISTENER:
                call, partitions = _pair(record.detail)
                if call == Call.ASSIGNED.value:
                    return
                self._owned[name] = self._owned.get(name, frozenset()).difference(partitions)
            case What.CRASHED | What.GONE:
                self._owned.pop(name, None)
                self._asleep.pop(name, None)
            case What.PAUSED | What.STALLED:
                self._asleep.setdefault(name, set()).add(record.what)
            case What.RESUMED | What.WOKEN:
                self._asleep.get(name, set()).discard(AWAKE[record.what])
            case _:
                return
        owned = self._owned.get(name, frozenset())
        self._read(name, frozenset() if self._asleep.get(name) else owned, record.at)

    def _read(self, name: str, reads: frozenset[TopicPartition], now: int) -> None:
        before = self._reading.get(name, frozenset())
        self._reading[name] = reads
        for partition in sorted(before - reads):
            self._readers[partition] -= 1
            if not self._readers[partition]:
                self._since[partition] = now
        for partition in sorted(reads - before):
            self._readers[partition] = self._readers.get(partition, 0) + 1
            since = self._since.pop(partition, now)
            if since < now:
                self.stops.append(Stop(partition, since, now, ended=True))

    def end(self, now: int) -> None:
        """The world ends."""
        for partition in sorted(self._since):
            since = self._since[partition]
            if since < now:
                self.stops.append(Stop(partition, since, now, ended=False))


def _pair(detail: object) -> tuple[object, tuple[TopicPartition, ...]]:
    assert isinstance(detail, tuple)
    first, partitions = detail
    return first, partitions


def stops(trace: Iterable[Record], end: int) -> tuple[Stop, ...]:
    """Every time that a partition stood still, in the order in which it went on."""
    readers = _Readers()
    for record in trace:
        readers.see(record)
    readers.end(end)
    return tuple(readers.stops)
