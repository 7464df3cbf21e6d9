"""Where a group shall go on reading: what the flags of ``rota groups reset`` mean.

The rules are those of Kafka's own tool: an offset out of range becomes the nearest in range, a time
behind the last record means the end, and so does the current offset where there is none.
"""

from __future__ import annotations

import csv
import datetime
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from rota.client import duration as iso
from rota.errors import InputError
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition, first_few
from rota.sim import duration

LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first record that there is."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Behind the last one."""


@dataclass(frozen=True, slots=True)
class Current:
    """Where it is; the end, where nothing was committed."""


@dataclass(frozen=True, slots=True)
class Offset:
    """One offset for all."""

    offset: int


@dataclass(frozen=True, slots=True)
class Shift:
    """So many records on, or back."""

    by: int


@dataclass(frozen=True, slots=True)
class Time:
    """The first record of this time or later, in milliseconds since 1970."""

    at: int


@dataclass(frozen=True, slots=True)
class Listed:
    """An offset for each partition."""

    offsets: Mapping[TopicPartition, int]


Target: TypeAlias = Earliest | Latest | Current | Offset | Shift | Time | Listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What there is of a partition."""

    start: int
    end: int
    at_time: int | None = None
    """The first offset of the time that is wanted, or later; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What becomes of one partition."""

    partition: TopicPartition
    old: int | None
    new: int
    note: str = ""

    @property
    def difference(self) -> int | None:
        """Below zero: records that are read again; above: records that are left out."""
        return None if self.old is None else self.new - self.old


def changes(
    target: Target,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    logs: Mapping[TopicPartition, Log],
) -> list[Change]:
    """The new offset of each partition of ``logs``, by topic and number.

    :raises InputError: a partition without a committed offset cannot be shifted
    """
    if isinstance(target, Shift):
        without = [str(each) for each in sorted(logs) if each not in committed]
        if without:
            raise InputError(
                f"--shift-by: nothing is committed for {first_few(without)}; "
                "another target, such as --to-earliest, gives an offset to start from"
            )
    found = []
    for partition in sorted(logs):
        before = committed.get(partition)
        old = None if before is None else before.offset
        new, note = _aimed(target, partition, old, logs[partition])
        found.append(Change(partition=partition, old=old, new=new, note=note))
    return found


def _aimed(target: Target, partition: TopicPartition, old: int | None, log: Log) -> tuple[int, str]:
    found: int
    note = ""
    match target:
        case Earliest():
            found = log.start
        case Latest():
            found = log.end
        case Current():
            found, note = (log.end, "nothing was committed: the end") if old is None else (old, "")
        case Offset(offset):
            found, note = _within(offset, log)
        case Shift(by):
            assert old is not None
            found, note = _within(old + by, log)
        case Time():
            late = "no record is as new as that: the end"
            found, note = (log.end, late) if log.at_time is None else (log.at_time, "")
        case Listed(offsets):
            found, note = _within(offsets[partition], log)
        case _:
            assert_never(target)
    return found, note


def _within(offset: int, log: Log) -> tuple[int, str]:
    if offset > log.end:
        return log.end, f"{offset} is behind the end, {log.end}"
    if offset < log.start:
        return log.start, f"{offset} is before the first record, {log.start}"
    return offset, ""


def parse_topics(given: Sequence[str]) -> dict[str, tuple[int, ...] | None]:
    """``orders`` or ``orders:0,1,5-8``; None means every partition."""
    found: dict[str, tuple[int, ...] | None] = {}
    for text in given:
        topic, colon, listed = text.partition(":")
        if not topic:
            raise InputError(f"--topic {text!r}: not TOPIC or TOPIC:0,1,2")
        if not colon:
            found[topic] = None
            continue
        before = found.get(topic, ())
        if before is not None:
            found[topic] = (*before, *_numbers(listed, text))
    return {
        topic: None if each is None else tuple(sorted({*each})) for topic, each in found.items()
    }


def _numbers(listed: str, text: str) -> list[int]:
    found: list[int] = []
    for part in listed.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part.strip(), re.ASCII)
        if match is None:
            raise InputError(f"--topic {text!r}: {part!r} is no partition; write TOPIC:0,1,5-8")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


def chosen(
    wanted: Mapping[str, tuple[int, ...] | None], counts: Mapping[str, int]
) -> list[TopicPartition]:
    """The partitions that are meant.

    :raises InputError: one of them does not exist
    """
    found: list[TopicPartition] = []
    for topic, numbers in wanted.items():
        count = counts[topic]
        for number in range(count) if numbers is None else numbers:
            if number >= count:
                raise InputError(
                    f"--topic {topic}: there is no partition {number}; it has {count}, from 0"
                )
            found.append(TopicPartition(topic, number))
    return found


def parse_datetime(text: str) -> int:
    """Milliseconds since 1970; without a zone it is UTC, as in Kafka's tool."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"--to-datetime {text!r}: not a time such as 2025-06-30T13:00:00.000 (UTC) or "
            "2025-06-30T15:00:00+02:00"
        ) from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime.fromtimestamp(0, datetime.UTC)
    if found < epoch:
        raise InputError(f"--to-datetime {text!r}: before 1970 there are no records")
    return (found - epoch) // datetime.timedelta(milliseconds=1)


def parse_duration(text: str) -> int:
    """Milliseconds, from ``PT1H30M`` as in Kafka's tool, or from ``1h30m``."""
    if text.upper().startswith("P"):
        return iso.milliseconds(text, "--by-duration")
    try:
        return duration.parse(text)
    except ValueError:
        raise InputError(
            f"--by-duration {text!r}: not a time such as PT1H30M, P7D, 90s or 1h30m"
        ) from None


def read_offsets(text: str, source: str, group: str) -> Listed:
    """Lines ``topic,partition,offset``, or ``group,topic,partition,offset`` of several groups:
    what Kafka's tool exports and takes.
    """
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row or row == [""]:
            continue
        if len(row) not in {3, 4}:
            raise InputError(
                f"{source}, line {number}: not topic,partition,offset or "
                f"group,topic,partition,offset: {','.join(row)}"
            )
        *named, partition, offset = (each.strip() for each in row)
        if len(named) == 2 and named[0] != group:
            continue
        for what, each in (("partition", partition), ("offset", offset)):
            if not (each.isascii() and each.isdecimal()) or int(each) > LARGEST:
                raise InputError(f"{source}, line {number}: {what} {each!r} is not a number from 0")
        place = TopicPartition(named[-1], int(partition))
        if place in found:
            raise InputError(f"{source}, line {number}: {place} stands there twice")
        found[place] = int(offset)
    if not found:
        raise InputError(f"{source}: there is no offset of group {group!r} in it")
    return Listed(found)


def exported(wanted: Iterable[Change]) -> str:
    """The new offsets as lines that ``--from-file`` takes, here and in Kafka's tool."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerows((*each.partition, each.new) for each in wanted)
    return out.getvalue()
