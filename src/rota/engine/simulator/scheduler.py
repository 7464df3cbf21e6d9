"""The virtual clock with its queue of scheduled actions, and the state that a world's parts share.

Actions that are due at the same time run in the order in which they were scheduled. A timer is an
action that can be rescheduled. Heartbeats reschedule timers all the time, nearly always to a later
time, so a rescheduled action keeps its place in the heap and is moved when its old time comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rota.engine.simulator.network import NetworkModel
from rota.engine.simulator.trace import TraceEventType, TraceRecord

Action: TypeAlias = Callable[[Any], object]
NEVER = -1


@dataclass(slots=True, eq=False)
class ScheduledAction:
    """An action at a time. Fast forward uses ``owner``, a process or timer, and ``is_periodic``."""

    action: Action
    argument: object
    owner: object
    is_periodic: bool = field(kw_only=True)
    at: int = NEVER
    set_at: int = NEVER
    number: int = NEVER
    heap_number: int = NEVER  # the number of this entry's item in the heap

    @property
    def pending(self) -> bool:
        return self.at != NEVER


class Scheduler:
    __slots__ = ("_count", "_heap", "last_activity_at", "now", "steps")

    def __init__(self) -> None:
        self.now = 0
        self.steps = 0
        self.last_activity_at = 0  # time of the last action that was not part of a recurring cycle
        self._count = 0
        self._heap: list[tuple[int, int, int, ScheduledAction]] = []

    def add(
        self,
        at: int,
        action: Action,
        argument: object = None,
        *,
        owner: object = None,
        is_periodic: bool = False,
    ) -> ScheduledAction:
        entry = ScheduledAction(action, argument, owner, is_periodic=is_periodic)
        self.reschedule(entry, at)
        return entry

    def reschedule(self, entry: ScheduledAction, at: int) -> None:
        """Reschedules an action; a time in the past means now."""
        now = self.now
        earlier = entry.heap_number == NEVER or at < entry.at or entry.at == NEVER
        entry.at = at = max(at, now)
        entry.set_at = now
        self._count = entry.number = self._count + 1
        if earlier:
            entry.heap_number = entry.number
            heapq.heappush(self._heap, (at, now, entry.number, entry))

    @staticmethod
    def cancel(entry: ScheduledAction) -> None:
        entry.at = NEVER

    def next_at(self) -> int | None:
        heap = self._heap
        while heap:
            at, _, number, entry = heap[0]
            if entry.heap_number != number or entry.at == NEVER:
                heapq.heappop(heap)
                if entry.heap_number == number:
                    entry.heap_number = NEVER
            elif entry.number != number:
                entry.heap_number = entry.number
                heapq.heapreplace(heap, (entry.at, entry.set_at, entry.number, entry))
            else:
                return at
        return None

    def step(self) -> bool:
        """Moves the clock to the next action and runs it; returns False if there is none."""
        if self.next_at() is None:
            return False
        self.run_next()
        return True

    def run_next(self) -> None:
        """Runs the action whose time :meth:`next_at` has just returned."""
        at, _, _, entry = heapq.heappop(self._heap)
        entry.heap_number = entry.at = NEVER
        self.now = at
        self.steps += 1
        if not entry.is_periodic:
            self.last_activity_at = at
        entry.action(entry.argument)

    def pending(self) -> list[ScheduledAction]:
        """Returns all pending actions, in no particular order."""
        return [
            entry
            for _, _, number, entry in self._heap
            if entry.heap_number == number and entry.at != NEVER
        ]

    def shift(self, shifts: Iterable[tuple[ScheduledAction, int]]) -> None:
        """Moves actions, and the times at which they were scheduled, by the same time."""
        for entry, by in shifts:
            entry.at += by
            entry.set_at += by
        pending = self.pending()
        for entry in pending:
            entry.heap_number = entry.number
        self._heap = [(entry.at, entry.set_at, entry.number, entry) for entry in pending]
        heapq.heapify(self._heap)


class WorldState:
    __slots__ = ("longest_period", "network", "scheduler", "skips_commits", "trace")

    def __init__(self, network: NetworkModel, *, skips_commits: bool = False) -> None:
        self.scheduler = Scheduler()
        self.network = network
        self.skips_commits = skips_commits  # fast forward skips automatic commits, too
        self.trace: list[TraceRecord] = []
        #: The longest heartbeat interval or processing time of any process so far.
        self.longest_period = 0

    @property
    def now(self) -> int:
        return self.scheduler.now

    @property
    def quiet_window(self) -> int:
        """Time in which each live process polls, sends a heartbeat and gets its response."""
        return self.longest_period + 2 * self.network.max_latency + 1

    def add_record(
        self, what: TraceEventType, who: str, detail: object = None, *, is_activity: bool = True
    ) -> None:
        """Adds a trace record; ``is_activity`` is False for recurring events."""
        if is_activity:
            self.scheduler.last_activity_at = self.scheduler.now
        self.trace.append(TraceRecord(self.scheduler.now, what, who, detail))

    def mark_activity(self) -> None:
        """Records the time of an action that does not recur and needs no trace record."""
        self.scheduler.last_activity_at = self.scheduler.now

    def add_period(self, period: int) -> None:
        self.longest_period = max(self.longest_period, period)
