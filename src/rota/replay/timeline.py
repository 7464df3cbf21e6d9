"""What became of a group, out of its journal: generations, rebalances, owners.

The order is that of the journal; clocks may go back. Entries that the coordinator wrote at once
have offsets that follow each other, which is how a conversion from one kind of group to the other
(the tombstone of one, and at once the other) is told from a deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rota.model.entry import (
    Foreign,
    GroupForgotten,
    GroupSaved,
    OffsetCommitted,
    OffsetForgotten,
)
from rota.model.modern import (
    EpochForgotten,
    MembershipSaved,
    TopicsSaved,
)
from rota.replay.classic import Classic, is_new
from rota.replay.course import Course
from rota.replay.fact import Generation, Kind, Ownership, Written
from rota.replay.modern import Modern, is_classic
from rota.replay.step import steps
from rota.replay.window import Window, at_once, edge, window

__all__ = ["Reading", "Timeline", "generations", "read", "steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All that a group's journal says of its members."""

    generations: list[Generation]
    ownership: list[Ownership]
    """Of a consumer group what members really had, not their targets."""
    window: Window | None
    """From where on all this is complete; None: the group never had members."""


def read(group: str, records: Iterable[Written], topic_names: Mapping[bytes, str]) -> Timeline:
    """A group's timeline, from its records in journal order.

    :param records: commits among them only help to name topics
    :param topic_names: by topic id; others are named by their id, as Kafka's tools print it
    """
    reading = Reading(group, topic_names)
    made = list(reading.generations(records))
    return Timeline(generations=made, ownership=reading.rest(), window=reading.window)


def generations(
    group: str, records: Iterable[Written], topic_names: Mapping[bytes, str]
) -> list[Generation]:
    """The generations alone: see :func:`read`."""
    return list(Reading(group, topic_names).generations(records))


class Reading:
    """A group's journal being read: the same as :func:`read`, for what does not fit into memory.

    A classic group's records are forgotten as they are read. A consumer group's are kept, from the
    first one on: who a member is, and what a topic is called, may stand further on.
    """

    def __init__(self, group: str, topic_names: Mapping[bytes, str]) -> None:
        self.window: Window | None = None
        """As in :class:`Timeline`, when all is read."""
        self._course = Course(group)
        self._names = dict(topic_names)
        self._classic = Classic(self._course)
        self._modern = Modern(self._course, self._names)
        self._records: list[Written] = []
        """The group's own that are not read yet."""
        self._converted = False
        """The group's entry that comes next stands in the place of a consumer group."""

    def generations(self, records: Iterable[Written]) -> Iterator[Generation]:
        """Reads all records, in journal order."""
        is_classic = True
        for written in records:
            match written.entry:
                case OffsetCommitted(topic=topic, topic_id=topic_id):
                    if topic_id is not None:
                        self._names.setdefault(topic_id, topic)
                    continue
                case OffsetForgotten() | Foreign():
                    continue
                case GroupSaved() | GroupForgotten():
                    pass
                case entry:
                    is_classic = False
                    if isinstance(entry, TopicsSaved):
                        self._names.update((one.topic_id, one.topic) for one in entry.topics)
            self._records.append(written)
            if is_classic:
                yield from self._forget()
        yield from self._finish()

    def owned(self) -> int:
        """How many rows :meth:`over` has."""
        return self._course.ledger.ended()

    def over(self) -> list[Ownership]:
        """What members had and gave up, since it was asked for last; by partition and time."""
        return self._course.ledger.take_ended(self._course.group)

    def rest(self) -> list[Ownership]:
        """What :meth:`over` has not told, when all is read; by partition and time."""
        return self._course.ledger.close(self._course.group)

    def _forget(self) -> Iterator[Generation]:
        """Reads all records but the last, whose successor may matter, where all are classic."""
        last = self._records[-1]
        if self.window is None:
            if not isinstance(last.entry, GroupSaved):
                return  # a tombstone of nothing that was seen
            whole = len(self._records) == 1 and is_new(last.entry)
            self.window = Window(offset=last.offset, at=last.at, whole=whole)
        for position in range(len(self._records) - 1):
            self._see(position, self._records[position])
        self._records = [last]
        yield from self._course.take()

    def _finish(self) -> Iterator[Generation]:
        """Reads the records that are left."""
        certain = 0
        if self.window is None:
            certain, _ = edge(self._records)
            self.window = window(self._records)
        self._modern.quiet = certain > 0
        for written in reversed(self._records):
            if isinstance(written.entry, MembershipSaved):
                self._modern.lost[written.entry.member_id] = written.entry
        for position, written in enumerate(self._records):
            if position == certain and self._modern.quiet:
                self._modern.settle()
            self._see(position, written)
            yield from self._course.take()
        if self._modern.quiet:
            self._modern.settle()
        yield from self._course.take()

    def _see(self, position: int, written: Written) -> None:
        match written.entry:
            case GroupSaved() as entry:
                self._classic.see(written, entry, converted=self._converted)
                self._converted = False
            case GroupForgotten():
                self._leave_classic(position, written)
            case EpochForgotten():
                self._leave_modern(position, written)
            case OffsetCommitted() | OffsetForgotten() | Foreign():
                pass
            case entry:
                self._modern.see(written, entry)

    def _leave_classic(self, position: int, written: Written) -> None:
        following = at_once(self._records, position)
        if not isinstance(following, MembershipSaved):
            self._course.forget(written, Kind.CLASSIC)
        elif is_classic(following):
            self._modern.converted = True
        else:  # it was empty: a consumer group takes its name, and counts anew
            self._course.begin_anew(written.at)

    def _leave_modern(self, position: int, written: Written) -> None:
        following = at_once(self._records, position)
        self._modern.end()
        if not isinstance(following, GroupSaved):
            self._course.forget(written, Kind.CONSUMER)
        elif is_new(following):
            self._course.begin_anew(written.at)
        else:
            self._converted = True
