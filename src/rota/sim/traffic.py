"""What is written to topics and read from them: arithmetic of time alone.

Nothing is played for it. A partition's end at any moment follows from the clock, and a member's
position from when it last looked, how fast it reads, and that end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition
from rota.sim.chance import mixed, text_number

SECOND = 1_000
HOUR = 3_600 * SECOND
HOURS = 24
EVEN = 100
"""Per cent: as many as on average."""
USUAL = 3_600
"""Records an hour, where nothing else is said: one a second."""
SKEW = 35
"""Partitions of a topic differ by so many per cent at most, up or down: keys are not even."""
RETENTION = 7 * HOURS * HOUR


class Traffic:
    """How many records each partition gets."""

    def __init__(
        self,
        rates: Mapping[str, int] | None = None,
        *,
        hours: tuple[int, ...] = (EVEN,) * HOURS,
        since: int = 0,
        born: Mapping[TopicPartition, int] | None = None,
        seed: int | None = None,
    ) -> None:
        """Tells what is written.

        :param rates: records an hour and partition by topic, in an average hour
        :param hours: for each hour of the day how much of that it is, in per cent
        :param since: when the first records were written; the world begins at 0, a midnight
        :param born: partitions that came later, and when
        :param seed: decides how uneven a topic's partitions are; None: not at all
        """
        self._rates = dict(rates or {})
        self._hours = hours
        self._before = [sum(hours[:hour]) for hour in range(HOURS + 1)]
        self._since = since
        self._born = dict(born or {})
        self._seed = seed
        self._known: dict[TopicPartition, tuple[int, int]] = {}
        """For each partition its rate, and the work of the day up to its first record."""

    def end(self, partition: TopicPartition, now: int) -> int:
        """The offset of the next record to be written."""
        known = self._known.get(partition)
        if known is None:
            known = self._known[partition] = self._look_up(partition)
        rate, before = known
        return max(self._work(now) - before, 0) * rate // (HOUR * EVEN * EVEN)

    def beginning(self, partition: TopicPartition, now: int) -> int:
        """The offset of the oldest record that is kept."""
        return self.end(partition, now - RETENTION)

    def _look_up(self, partition: TopicPartition) -> tuple[int, int]:
        share = EVEN
        if self._seed is not None:
            bits = mixed(self._seed, text_number(partition.topic), partition.partition)
            share += bits % (2 * SKEW + 1) - SKEW
        rate = self._rates.get(partition.topic, USUAL) * share
        return rate, self._work(self._born.get(partition, self._since))

    def _work(self, now: int) -> int:
        """Per cent of an average hour, added up over all milliseconds."""
        day, rest = divmod(now, HOURS * HOUR)
        hour, rest = divmod(rest, HOUR)
        before = day * self._before[HOURS] + self._before[hour]
        return before * HOUR + self._hours[hour] * rest


EVENLY = Traffic()
"""A record a second in every partition."""


class Reader:
    """What a process has read of its partitions."""

    def __init__(
        self,
        traffic: Traffic,
        capacity: int | None,
        committed: Callable[[TopicPartition], int | None],
    ) -> None:
        """Reads nothing yet.

        :param capacity: records a second over all its partitions; None: as fast as they come
        :param committed: where the group has got to
        """
        self._traffic = traffic
        self._capacity = capacity
        self._committed = committed
        self._positions: dict[TopicPartition, int] = {}
        self._as_of = 0

    def take(self, partitions: Iterable[TopicPartition], now: int) -> None:
        """These are its partitions now. New ones are read from where the group has got to; from
        their end where it has committed nothing (``auto.offset.reset``).
        """
        positions = self._positions
        self._positions = {
            one: positions[one] if one in positions else self._start(one, now) for one in partitions
        }

    def _start(self, partition: TopicPartition, now: int) -> int:
        committed = self._committed(partition)
        return self._traffic.end(partition, now) if committed is None else committed

    def read(self, now: int) -> None:
        """It has read on since it last did this."""
        positions, end = self._positions, self._traffic.end
        if self._capacity is None:
            for partition in positions:
                positions[partition] = end(partition, now)
        elif positions:
            most = self._capacity * (now - self._as_of) // (SECOND * len(positions))
            for partition, position in positions.items():
                positions[partition] = max(position, min(position + most, end(partition, now)))
        self._as_of = now

    def rest(self, now: int) -> None:
        """It has not read since then."""
        self._as_of = now

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where it is in each partition."""
        return {one: OffsetAndMetadata(offset) for one, offset in self._positions.items()}
