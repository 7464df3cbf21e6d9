"""How long partitions stood still: from when nobody read them any more until somebody did again.

A member reads what it owns, unless its listener is being told to give it up, or it is crashed,
frozen, stuck outside of poll, or busy for longer than its poll interval allows.

What is not read yet stands still too, from the moment at which it exists and a member subscribes to
it; but a group has its first rebalance to begin. If nothing comes of that, it counts from the
start of the first subscriber.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from rota.member.event import Call
from rota.model.topic import TopicPartition
from rota.sim.trace import Record, What

ASLEEP = {What.PAUSED: What.RESUMED, What.STALLED: What.WOKEN}
"""What puts a member to sleep, and what wakes it."""
AWAKE = {woken: asleep for asleep, woken in ASLEEP.items()}
WISHES = frozenset({What.STARTED, What.SUBSCRIBED, What.TOPICS})
"""What changes what is to be read."""

Wish: TypeAlias = tuple[tuple[str, ...], str | None]
"""The topics, or the pattern, that a process subscribes to."""


class Stop(NamedTuple):
    """A partition stood still, in milliseconds from the start of the world."""

    partition: TopicPartition
    since: int
    until: int
    ended: bool
    """False where it still stood at the end."""
    owner: str = ""
    """The process that read it before; empty if none did."""

    @property
    def time(self) -> int:
        """How long."""
        return self.until - self.since


class Standstill(NamedTuple):
    """All that was not read."""

    stops: tuple[Stop, ...]
    """In the order in which they ended."""
    unread: tuple[TopicPartition, ...]
    """What nobody ever read, though somebody was to."""
    unwanted: tuple[str, ...]
    """Topics that no member subscribed to."""


class _Wanted:
    """The partitions that somebody is to read. A member that is gone is missed, not forgotten."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self.partitions: frozenset[TopicPartition] = frozenset()
        self._counts = dict(topics)
        self._wishes: dict[str, Wish] = {}
        self._wishers: dict[Wish, int] = {}
        """How many processes have each wish."""
        self._topics: dict[str, int] = {}
        self._ever: set[str] = set()

    def see(self, record: Record) -> bool:
        """Something happened; true if these are others now."""
        assert isinstance(record.detail, tuple)
        if record.what is What.TOPICS:
            self._counts = dict(record.detail)
        else:
            topics, pattern = record.detail
            if not self._wish(record.who, (topics, pattern)):
                return False
        wanted = {
            topic: count
            for topic, count in self._counts.items()
            if any(_fits(topic, wish) for wish in self._wishers)
        }
        self._ever.update(wanted)
        if wanted == self._topics:
            return False
        self._topics = wanted
        self.partitions = _partitions(wanted)
        return True

    def _wish(self, name: str, wish: Wish) -> bool:
        """A process subscribes; true if nobody did to the same, or nobody does any more."""
        before = self._wishes.get(name)
        self._wishes[name] = wish
        if before == wish:
            return False
        self._wishers[wish] = self._wishers.get(wish, 0) + 1
        if before is not None:
            self._wishers[before] -= 1
            if not self._wishers[before]:
                del self._wishers[before]
                return True
        return self._wishers[wish] == 1

    def unwanted(self) -> tuple[str, ...]:
        """Topics that nobody ever subscribed to."""
        return tuple(sorted(self._counts.keys() - self._ever))

    def everything(self) -> frozenset[TopicPartition]:
        """All partitions that there are."""
        return _partitions(self._counts)


def _fits(topic: str, wish: Wish) -> bool:
    topics, pattern = wish
    return topic in topics if pattern is None else re.fullmatch(pattern, topic) is not None


def _partitions(counts: Mapping[str, int]) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
    )


class _Readers:
    """Who reads what."""

    def __init__(self, topics: Mapping[str, int], opened: int | None) -> None:
        self.stops: list[Stop] = []
        self._wanted = _Wanted(topics)
        self._opened = opened
        """When the group had begun; None from the start on."""
        self._first_start: int | None = None
        self._owned: dict[str, frozenset[TopicPartition]] = {}
        self._asleep: dict[str, set[What]] = {}
        self._reading: dict[str, frozenset[TopicPartition]] = {}
        self._readers: dict[TopicPartition, int] = {}
        self._since: dict[TopicPartition, int] = {}
        self._last: dict[TopicPartition, str] = {}
        """Who read it, or does."""

    def see(self, record: Record) -> None:
        """Something happened."""
        if self._opened is not None and record.at > self._opened:
            self.open()
        if record.what in WISHES:
            if self._first_start is None and record.what is What.STARTED:
                self._first_start = record.at
            if self._wanted.see(record):
                self._want(record.at)
        elif self._changed_by(record):
            name = record.who
            owned = self._owned.get(name, frozenset())
            self._read(name, frozenset() if self._asleep.get(name) else owned, record.at)

    def _changed_by(self, record: Record) -> bool:
        """Whether a process may read others than before."""
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
                    return False
                self._owned[name] = self._owned.get(name, frozenset()).difference(partitions)
            case What.CRASHED | What.GONE:
                self._owned.pop(name, None)
                self._asleep.pop(name, None)
            case What.PAUSED | What.STALLED:
                self._asleep.setdefault(name, set()).add(record.what)
            case What.RESUMED | What.WOKEN:
                self._asleep.get(name, set()).discard(AWAKE[record.what])
            case _:
                return False
        return True

    def open(self) -> None:
        """The group has begun: what is not read by now stands still."""
        opened, self._opened = self._opened, None
        if opened is not None:
            self._want(opened)

    def _want(self, now: int) -> None:
        """Others are to be read than before."""
        wanted = self._wanted.partitions
        for partition in sorted(self._since.keys() - wanted):
            self._stop(partition, now)
        if self._opened is None:
            for partition in wanted:
                if not self._readers.get(partition):
                    self._since.setdefault(partition, now)

    def _stop(self, partition: TopicPartition, now: int, *, ended: bool = True) -> None:
        since = self._since.pop(partition, now)
        if since < now:
            owner = self._last.get(partition, "")
            self.stops.append(Stop(partition, since, now, ended, owner))

    def _read(self, name: str, reads: frozenset[TopicPartition], now: int) -> None:
        before = self._reading.get(name, frozenset())
        self._reading[name] = reads
        for partition in sorted(before - reads):
            self._readers[partition] -= 1
            if not self._readers[partition] and partition in self._wanted.partitions:
                self._since[partition] = now
        for partition in sorted(reads - before):
            self._readers[partition] = self._readers.get(partition, 0) + 1
            self._stop(partition, now)
            self._last[partition] = name

    def end(self, now: int) -> Standstill:
        """The world ends."""
        self.open()
        if not self._last and not self._wanted.partitions and self._first_start is not None:
            # a group that has nothing to read, as by a wrong pattern, is no success
            self._since = dict.fromkeys(self._wanted.everything(), self._first_start)
        unread = tuple(sorted(self._since.keys() - self._last.keys()))
        for partition in sorted(self._since):
            self._stop(partition, now, ended=False)
        return Standstill(tuple(self.stops), unread, self._wanted.unwanted())


def _pair(detail: object) -> tuple[object, tuple[TopicPartition, ...]]:
    assert isinstance(detail, tuple)
    first, partitions = detail
    return first, partitions


def standstill(
    trace: Iterable[Record], topics: Mapping[str, int], opened: int | None, end: int
) -> Standstill:
    """Every time that a partition stood still.

    :param topics: the partition counts at the start
    :param opened: when the group's first rebalance was over; None if none ever was
    """
    readers = _Readers(topics, opened)
    for record in trace:
        readers.see(record)
    return readers.end(end)
