"""What each process was doing when: the rows of a timeline."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple

from rota.member.event import Call
from rota.sim.standstill import AWAKE
from rota.sim.trace import Record, What


class Doing(enum.Enum):
    """What a process does; the later in this list, the more a person wants to see it."""

    READING = "reading"
    """It has partitions."""
    IDLE = "idle"
    """It is part of a generation, and has nothing."""
    JOINING = "joining"
    """It waits for its part."""
    ASLEEP = "asleep"
    """It is frozen, or stuck outside of poll."""
    GONE = "gone"


class Change(NamedTuple):
    """From this moment on a process does this."""

    at: int
    doing: Doing
    load: int


class _Lane:
    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.running = False
        self.settled = False
        self.load = 0
        self.asleep: set[What] = set()

    def doing(self) -> Doing:
        if not self.running:
            return Doing.GONE
        if self.asleep:
            return Doing.ASLEEP
        if self.load:
            return Doing.READING
        return Doing.IDLE if self.settled else Doing.JOINING

    def see(self, record: Record) -> None:
        if not self._changed_by(record):
            return
        change = Change(record.at, self.doing(), self.load)
        if self.changes and self.changes[-1][1:] == change[1:]:
            return
        if self.changes and self.changes[-1].at == record.at:
            self.changes.pop()
        self.changes.append(change)

    def _changed_by(self, record: Record) -> bool:
        match record.what:
            case What.STARTED:
                self.running, self.settled, self.load = True, False, 0
            case What.CRASHED | What.GONE:
                self.running = False
                self.asleep.clear()
            case What.PAUSED | What.STALLED:
                self.asleep.add(record.what)
            case What.RESUMED | What.WOKEN:
                self.asleep.discard(AWAKE[record.what])
            case What.ASSIGNMENT:
                assert isinstance(record.detail, tuple)
                self.load = len(record.detail[1])
            case What.LISTENER:
                self._listen(record)
            case _:
                return False
        return True

    def _listen(self, record: Record) -> None:
        assert isinstance(record.detail, tuple)
        call, partitions = record.detail
        if call == Call.ASSIGNED.value:
            self.settled = True
        elif len(partitions) >= self.load:  # everything is given up
            self.settled = False


def lanes(trace: Iterable[Record]) -> dict[str, tuple[Change, ...]]:
    """For each process, in the order of their first start, what it did from when on.

    Before its first change a process is not there.
    """
    found: dict[str, _Lane] = {}
    for record in trace:
        if record.what is What.STARTED:
            found.setdefault(record.who, _Lane())
        lane = found.get(record.who)
        if lane is not None:
            lane.see(record)
    return {name: tuple(lane.changes) for name, lane in found.items()}
