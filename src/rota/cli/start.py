"""Where in a partition to start: ``--offset`` of ``rota consume``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rota.errors import InputError

if TYPE_CHECKING:
    from rota.consumer.blocking import BlockingConsumer
    from rota.model.topic import TopicPartition

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """An end of the partition, a number (negative: from the end), or a time."""

    end: str | None = None
    number: int | None = None
    time: int | None = None
    """Milliseconds since 1970."""

    @classmethod
    def parse(cls, text: str) -> Start:
        """As on the command line; ValueError says what it may be."""
        if text in {EARLIEST, LATEST}:
            return cls(end=text)
        if text.startswith("@"):
            return cls(time=_milliseconds(text[1:]))
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and len(digits) < 20:
            return cls(number=int(text))
        raise ValueError(f"{text!r} is not earliest, latest, a number, or @ and a time")

    def offsets(
        self, consumer: BlockingConsumer, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where to start each partition, and its end as it is now.

        :raises InputError: a partition has no such offset
        """
        wanted = list(partitions)
        first, last = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
        if self.time is not None:
            found = consumer.offsets_for_times(dict.fromkeys(wanted, self.time))
            listed = {at: at_time.offset for at, at_time in found.items() if at_time is not None}
            return {at: listed.get(at, last[at]) for at in wanted}, last
        if self.number is None:
            return dict(first if self.end == EARLIEST else last), last
        if self.number < 0:
            return {at: max(first[at], last[at] + self.number) for at in wanted}, last
        for at in wanted:
            if not first[at] <= self.number <= last[at]:
                raise InputError(
                    f"--offset {self.number}: {at.topic}-{at.partition} has offsets from "
                    f"{first[at]} up to {last[at]}"
                )
        return dict.fromkeys(wanted, self.number), last


def _milliseconds(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 19:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a time such as 2026-11-15T06:00Z nor milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
