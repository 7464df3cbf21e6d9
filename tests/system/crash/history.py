"""What clients saw of a broker, and whether a broker that keeps its promises can be seen so.

Each operation has the time it was begun and the time its result was known; one that never had a
result may have happened or not. The log as it is read in the end is the truth that all of them
are held against.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

NEVER = float("inf")
#: Offsets and values of each partition, as they were read in the end.
Final: TypeAlias = Mapping[int, Sequence[tuple[int, str]]]


@dataclass(frozen=True, slots=True)
class SentValue:
    """A value was sent, and perhaps acknowledged with its offset."""

    writer: int
    #: Of the writer's values, ascending in the order they were sent.
    number: int
    value: str
    partition: int
    began: float
    ended: float = NEVER
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class ReadValue:
    """A value came at an offset."""

    reader: int
    partition: int
    offset: int
    value: str
    at: float


@dataclass(frozen=True, slots=True)
class CommitAttempt:
    """The group's offset was written, and perhaps acknowledged."""

    reader: int
    partition: int
    offset: int
    began: float
    ended: float = NEVER


@dataclass(frozen=True, slots=True)
class OffsetLookup:
    """A request for the group's offset or for the end of a partition, with its answer."""

    #: ``committed`` or ``end``.
    what: str
    partition: int
    offset: int
    began: float
    ended: float


@dataclass(slots=True)
class History:
    """All that happened; each client appends to a list of its own kind."""

    written: list[SentValue] = field(default_factory=list)
    read: list[ReadValue] = field(default_factory=list)
    committed: list[CommitAttempt] = field(default_factory=list)
    asked: list[OffsetLookup] = field(default_factory=list)

    def problems(self, final: Final) -> list[str]:
        """Every promise that was broken; empty if none was."""
        return [
            *offset_gaps(final),
            *lost_values(self.written, final),
            *repeated_values(final),
            *disordered_values(self.written, final),
            *overtaken_values(self.written),
            *changed_values(self.read, final),
            *commits_ahead(self.committed, self.read),
            *short_ends(self.written, self.asked),
            *forgotten_commits(self.committed, self.asked),
        ]


def offset_gaps(final: Final) -> Iterator[str]:
    """Offsets are dense, from 0 on."""
    for partition, entries in final.items():
        for expected, (offset, _) in enumerate(entries):
            if offset != expected:
                yield f"partition {partition}: offset {offset} follows {expected - 1}"
                break


def lost_values(written: Iterable[SentValue], final: Final) -> Iterator[str]:
    """What was acknowledged is at its offset."""
    known = {(partition, *entry) for partition, entries in final.items() for entry in entries}
    for each in written:
        if each.offset is not None and (each.partition, each.offset, each.value) not in known:
            yield f"{each.value} was acknowledged at {each.partition}@{each.offset}, and is lost"


def repeated_values(final: Final) -> Iterator[str]:
    """No value is there twice, acknowledged or not."""
    times = Counter(value for entries in final.values() for _, value in entries)
    for value, count in times.items():
        if count > 1:
            yield f"{value} is there {count} times"


def disordered_values(written: Iterable[SentValue], final: Final) -> Iterator[str]:
    """The values of one writer are in the order it sent them."""
    number = {each.value: (each.writer, each.number) for each in written}
    for partition, entries in final.items():
        newest: dict[int, int] = {}
        for offset, value in entries:
            if value not in number:
                yield f"partition {partition}: {value} at {offset} was never sent"
                continue
            writer, sent = number[value]
            if sent <= newest.get(writer, -1):
                yield f"partition {partition}: {value} at {offset} is behind a later one"
            newest[writer] = sent


def overtaken_values(written: Iterable[SentValue]) -> Iterator[str]:
    """What was sent after another was acknowledged is behind it, whoever sent it."""
    for partition, own in _acknowledged(written).items():
        known = Highest((each.ended, offset) for each, offset in own)
        for each, offset in own:
            if offset <= (highest := known.before(each.began)):
                yield (
                    f"partition {partition}: {each.value} at {offset} was sent after "
                    f"{highest} was acknowledged"
                )


def changed_values(read: Iterable[ReadValue], final: Final) -> Iterator[str]:
    """What was read is there still, and each reader reads each partition forward."""
    known = {
        (partition, offset): value
        for partition, entries in final.items()
        for offset, value in entries
    }
    for each in read:
        there = known.get((each.partition, each.offset))
        if there != each.value:
            where = f"{each.partition}@{each.offset}"
            yield f"{each.value} was read at {where}, where {there} is now"


def commits_ahead(committed: Iterable[CommitAttempt], read: Iterable[ReadValue]) -> Iterator[str]:
    """No reader commits what none of them had read by then."""
    seen: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for each in read:
        seen[each.partition].append((each.at, each.offset + 1))
    ends = {partition: Highest(own) for partition, own in seen.items()}
    for commit in committed:
        known = ends.get(commit.partition)
        if known is None or commit.offset > known.before(commit.began):
            yield f"partition {commit.partition}: {commit.offset} was committed before it was read"


def short_ends(written: Iterable[SentValue], asked: Iterable[OffsetLookup]) -> Iterator[str]:
    """The end of a partition is behind all that was acknowledged before it was asked for."""
    known = {
        partition: Highest((each.ended, offset + 1) for each, offset in own)
        for partition, own in _acknowledged(written).items()
    }
    for each in asked:
        if each.what == "end" and each.partition in known:
            least = known[each.partition].before(each.began)
            if each.offset < least:
                yield f"partition {each.partition}: its end was {each.offset}, not {least}"


def forgotten_commits(
    committed: Sequence[CommitAttempt], asked: Iterable[OffsetLookup]
) -> Iterator[str]:
    """An offset of the group is one that was committed, and none older than the last that was
    acknowledged before, unless its commit had no answer: it may have arrived at any time.
    """
    by_partition: dict[int, list[CommitAttempt]] = defaultdict(list)
    for commit in committed:
        by_partition[commit.partition].append(commit)
    known = {
        partition: Highest((each.ended, each.offset) for each in own)
        for partition, own in by_partition.items()
    }
    open_ones = {(each.partition, each.offset) for each in committed if each.ended == NEVER}
    tried = {(each.partition, each.offset) for each in committed}
    for each in asked:
        if each.what != "committed":
            continue
        where = (each.partition, each.offset)
        last = known[each.partition].before(each.began) if each.partition in known else -1
        if each.offset < last and where not in open_ones:
            yield (
                f"partition {each.partition}: the group's offset was {each.offset}, "
                f"after {last} had been acknowledged"
            )
        elif each.offset >= 0 and where not in tried:
            yield f"partition {each.partition}: {each.offset} was never committed"


class Highest:
    """The highest number known before a time."""

    def __init__(self, known: Iterable[tuple[float, int]]) -> None:
        ordered = sorted(known)
        self._times = [at for at, _ in ordered]
        self._highest = list(accumulate((number for _, number in ordered), max))

    def before(self, time: float) -> int:
        """-1 if there was none."""
        row = bisect_left(self._times, time)
        return self._highest[row - 1] if row else -1


def _acknowledged(written: Iterable[SentValue]) -> dict[int, list[tuple[SentValue, int]]]:
    by_partition: dict[int, list[tuple[SentValue, int]]] = defaultdict(list)
    for each in written:
        if each.offset is not None:
            by_partition[each.partition].append((each, each.offset))
    return by_partition
