"""What became of a group, out of its journal: generations, rebalances, owners.

The order is that of the journal; clocks may go back. Entries that the coordinator wrote at once
have offsets that follow each other, which is how a conversion from one kind of group to the other
(the tombstone of one, and at once the other) is told from a deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rota.model.entry import (
    EpochForgotten,
    Foreign,
    GroupForgotten,
    GroupSaved,
    MembershipSaved,
    OffsetCommitted,
    OffsetForgotten,
    TopicsSaved,
)
from rota.replay.classic import Classic, is_new
from rota.replay.course import Course
from rota.replay.fact import Generation, Kind, Ownership, Written
from rota.replay.modern import Modern, is_classic
from rota.replay.step import steps
from rota.replay.window import Window, at_once, edge, window

__all__ = ["Timeline", "generations", "read", "steps"]


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
    names = dict(topic_names)
    own: list[Written] = []
    for written in records:
        match written.entry:
            case OffsetCommitted(topic=topic, topic_id=topic_id):
                if topic_id is not None:
                    names.setdefault(topic_id, topic)
            case OffsetForgotten() | Foreign():
                pass
            case entry:
                own.append(written)
                if isinstance(entry, TopicsSaved):
                    names.update((one.topic_id, one.topic) for one in entry.topics)
    reader = _Reader(group, own, names)
    reader.run()
    return Timeline(
        generations=reader.course.generations,
        ownership=reader.course.ledger.rows(group),
        window=window(own),
    )


def generations(
    group: str, records: Iterable[Written], topic_names: Mapping[bytes, str]
) -> list[Generation]:
    """The generations alone: see :func:`read`."""
    return read(group, records, topic_names).generations


class _Reader:
    def __init__(self, group: str, records: Sequence[Written], names: Mapping[bytes, str]) -> None:
        self.course = Course(group)
        self._records = records
        self._classic = Classic(self.course)
        self._modern = Modern(self.course, names)
        self._converted = False
        """The group's entry that comes next stands in the place of a consumer group."""

    def run(self) -> None:
        """Reads all records."""
        certain, _ = edge(self._records)
        self._modern.quiet = certain > 0
        for written in reversed(self._records):
            if isinstance(written.entry, MembershipSaved):
                self._modern.lost[written.entry.member_id] = written.entry
        for position, written in enumerate(self._records):
            if position == certain and self._modern.quiet:
                self._modern.settle()
            self._see(position, written)
        if self._modern.quiet:
            self._modern.settle()

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
            self.course.forget(written, Kind.CLASSIC)
        elif is_classic(following):
            self._modern.converted = True
        else:  # it was empty: a consumer group takes its name, and counts anew
            self.course.begin_anew(written.at)

    def _leave_modern(self, position: int, written: Written) -> None:
        following = at_once(self._records, position)
        self._modern.end()
        if not isinstance(following, GroupSaved):
            self.course.forget(written, Kind.CONSUMER)
        elif is_new(following):
            self.course.begin_anew(written.at)
        else:
            self._converted = True
