"""From where on the evidence is complete.

The journal is compacted: up to some place only the last record of each key is left, after it all
are. The place itself is written nowhere, but what is left says where it can be at most.

A classic group has one key, so what is left of it are the last records it wrote, without a gap: all
is known after the first one, and that one tells the group's state. A consumer group's state is
spread over many keys, of which the epoch's is written last but one at every change: before the
second epoch that is left, records of other keys may be missing, so that only the state which they
make up together can be told, and from the second on all is there. Either way: the state at the
window's begin is known, and all that followed is complete. (But for one thing: where a consumer
group had just become a classic one, whose leaving brought that about is not known any more.)

Commits have a key for each partition: :func:`complete_from` tells from where on all of them are
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rota.model.entry import (
    Entry,
    GroupForgotten,
    GroupSaved,
)
from rota.model.modern import (
    CurrentForgotten,
    CurrentSaved,
    EpochForgotten,
    EpochSaved,
    MembershipForgotten,
    MembershipSaved,
    RegexForgotten,
    RegexSaved,
    TargetEpochForgotten,
    TargetEpochSaved,
    TargetForgotten,
    TopicsForgotten,
    TopicsSaved,
)
from rota.replay.classic import is_new
from rota.replay.fact import Written

FIRST_EPOCH = 2
"""Of a new group; 1 before Kafka 4.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of the journal in which a group's records are all there."""

    offset: int
    """Its state before this record is known, and from it on every change."""
    at: int
    """The record's time."""
    whole: bool
    """The group's first record is there: nothing is missing."""


def window(records: Sequence[Written]) -> Window | None:
    """From where on a group's records are all there; None if it has none.

    ``records`` are the group's own in journal order, without commits.
    """
    if not records:
        return None
    position, whole = edge(records)
    if position == len(records):
        last = records[-1]
        return Window(offset=last.offset + 1, at=last.at, whole=False)
    first = records[position]
    return Window(offset=first.offset, at=first.at, whole=whole)


def edge(records: Sequence[Written]) -> tuple[int, bool]:
    """The position up to which a group's records may be what compaction left of more, and whether
    the group's first record is there.
    """
    start = next((i for i, one in enumerate(records) if _is_state(one)), len(records))
    if start == len(records):
        return start, False
    entry = records[start].entry
    if isinstance(entry, GroupSaved):
        return start, start == 0 and is_new(entry)
    if _is_beginning(records, start):
        return start, start == 0
    return _second_change(records, start), False


def _second_change(records: Sequence[Written], start: int) -> int:
    """Where the first change begins that is surely whole, and comes upon a settled group.

    While the group is in a newer epoch than its target, members of that target may be gone: the
    generation that a rebalance began from can then not be told.
    """
    epoch = target = None
    for position in range(start, len(records)):
        match records[position].entry:
            case EpochSaved(epoch=number):
                if epoch is not None and epoch == target:
                    return _change(records, start, position)
                epoch = number
            case TargetEpochSaved(epoch=number):
                target = number
            case EpochForgotten():
                return _change(records, start, position)
            case _:
                pass
    return len(records)


def _is_state(written: Written) -> bool:
    """A tombstone that nothing came before says nothing."""
    return not isinstance(
        written.entry,
        GroupForgotten
        | EpochForgotten
        | MembershipForgotten
        | TargetEpochForgotten
        | TargetForgotten
        | CurrentForgotten
        | RegexForgotten
        | TopicsForgotten
        | TopicsSaved,
    )


def _is_beginning(records: Sequence[Written], start: int) -> bool:
    """The consumer group was made here.

    Its first epoch is there, and in front of it just the member that made it, or such as wait for
    their regular expression to be matched: they have nothing yet, which is saved at once.
    """
    waiting = 0
    for position in range(start, len(records)):
        entry = records[position].entry
        following = at_once(records, position)
        match entry:
            case MembershipSaved() if isinstance(following, CurrentSaved):
                if following.epoch >= FIRST_EPOCH or not entry.regex:
                    return False
                waiting += 1
            case MembershipSaved():
                made = isinstance(following, EpochSaved) and following.epoch <= FIRST_EPOCH
                return made and not waiting
            case EpochSaved():
                return waiting > 0 and entry.epoch <= FIRST_EPOCH
            case CurrentSaved() | RegexSaved() | TopicsSaved() if waiting:
                pass
            case _:
                return False
    return waiting > 0


def at_once(records: Sequence[Written], position: int) -> Entry | None:
    """The entry that was written in the same breath as the one at a position, behind it; the topics
    that Kafka before 4.1 wrote between a member and its epoch are passed over.
    """
    for following in range(position + 1, len(records)):
        if records[following].offset != records[following - 1].offset + 1:
            break
        if not isinstance(records[following].entry, TopicsSaved):
            return records[following].entry
    return None


def _change(records: Sequence[Written], start: int, position: int) -> int:
    """Where the change begins that ends in this epoch: its records were written at once."""
    while (
        position > start
        and records[position - 1].offset == records[position].offset - 1
        and not isinstance(
            records[position - 1].entry,
            EpochSaved | TargetEpochSaved | GroupSaved | GroupForgotten,
        )
    ):
        position -= 1
    return position


def complete_from(offsets: npt.NDArray[np.int64]) -> int:
    """The offset from which on a partition of the journal has all its records, commits too.

    ``offsets`` are those of all records of the partition, transaction markers included, ascending:
    records are numbered without a gap, so where a number is missing compaction took it.
    """
    if not len(offsets):
        return 0
    gaps = np.flatnonzero(np.diff(offsets) > 1)
    return int(offsets[gaps[-1] + 1] if len(gaps) else offsets[0])
