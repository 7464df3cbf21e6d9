"""A world: one coordinator, the processes of its groups, and a virtual clock.

The same seed and the same scenario give the same trace, to the byte. Tests can inspect the world
between any two steps.

Fast forward skips heartbeats and polls that cannot change anything. The state machines of members
and coordinator have no clock: they only use timers, and timers are scheduled actions. While nothing
happens, a process repeats a cycle: it sends a heartbeat, receives error code 0, and three timers
are rescheduled (its own two and its session timer at the coordinator); an application that
processes records between polls ends one poll and begins the next. Such a cycle leaves the world
unchanged, one period later. So a whole number of cycles is skipped by moving all actions of the
cycle by that number of periods.

This is done only if

- nothing but such cycles has happened for longer than the longest period, so every process has
  completed one cycle of each kind and nothing waits for its next poll or heartbeat;
- the action belongs to a process that is in such a cycle: the session timer of a crashed process,
  or the poll deadline of one that is stuck, frozen or too slow, is not moved;
- delivery of messages does not depend on how many messages were sent before (``is_memoryless`` of
  the network).

Automatic commits recur too, but they write journal entries, so each of them is executed. Nothing
waits for a commit, so only the time of one request and its response around it is not skipped.

Fast forward ends one period before the next action that is not part of a cycle. That period is
executed in full, so that the last heartbeats are in flight or in timers as without fast forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from rota.engine.coordinator.coordinator import Coordinator
from rota.engine.coordinator.events import GroupTimerKey, GroupTimerKind
from rota.engine.member.events import MemberTimer
from rota.engine.model.config import GroupConfig
from rota.engine.model.journal_entry import ClassicEntry
from rota.engine.model.topic import Cluster
from rota.engine.simulator.broker import CrashPoint, SimulatedBroker
from rota.engine.simulator.network import NetworkModel, ReliableNetwork
from rota.engine.simulator.process import ProcessConfig, SimulatedProcess
from rota.engine.simulator.scheduler import ScheduledAction, WorldState
from rota.engine.simulator.trace import TraceEventType, TraceRecord
from rota.errors import InputError


@dataclass(slots=True, eq=False)
class _RecurringCycle:
    """Actions that recur together, every ``period``."""

    first: ScheduledAction
    period: int
    entries: list[ScheduledAction]


def fast_forward(
    state: WorldState, processes: Iterable[SimulatedProcess], limit: int
) -> tuple[bool, int]:
    """Moves all cycles towards the next action that does not recur, or the limit. Returns whether
    it moved any, and the time from which it may be called again.
    """
    scheduler = state.scheduler
    pending = scheduler.pending()
    due = min(entry.at for entry in pending)
    round_trip = 2 * state.network.max_latency + 1
    if any(entry.is_periodic and entry.owner is None for entry in pending):  # a commit is under way
        return False, due + round_trip
    awake = [process for process in processes if process.frozen_until <= due]
    cycles, blocking, interrupting = _sort_pending(pending, awake, due - state.quiet_window)
    target = min((entry.at for entry in blocking), default=limit + 1)
    target = min(target, limit + 1) - state.quiet_window
    intervals = (_executed_interval(entry, round_trip) for entry in interrupting)
    executed_from, next_attempt = min(intervals, default=(target, 0))
    interrupted = executed_from < target  # these timers need no full period before them
    if interrupted:
        target = executed_from
    else:
        next_attempt = max(target, due) + state.quiet_window
    shifts = []
    for cycle in cycles:
        periods = (target - cycle.first.at + interrupted * (cycle.period - 1)) // cycle.period
        if periods > 0:
            shifts += [(entry, periods * cycle.period) for entry in cycle.entries]
    scheduler.shift(shifts)
    return bool(shifts), next_attempt


def _executed_interval(entry: ScheduledAction, round_trip: int) -> tuple[int, int]:
    """Returns the interval that is executed in full because of an action."""
    commits = entry.argument is MemberTimer.COMMIT
    return (entry.at - round_trip, entry.at + round_trip) if commits else (entry.at, entry.at + 1)


def _sort_pending(
    pending: list[ScheduledAction], processes: Iterable[SimulatedProcess], recent: int
) -> tuple[list[_RecurringCycle], list[ScheduledAction], list[ScheduledAction]]:
    """Returns cycles, actions that end fast forward, and commit and retention timers."""
    heartbeats: dict[object, _RecurringCycle] = {}
    loops: dict[object, _RecurringCycle] = {}
    for process in processes:
        heartbeat = process.timers.get(MemberTimer.HEARTBEAT)
        if heartbeat is not None and heartbeat.pending and heartbeat.set_at >= recent:
            beating = _RecurringCycle(
                heartbeat, process.program.config.heartbeat_interval, [heartbeat]
            )
            heartbeats[process] = heartbeats[process.machine.member_id] = beating
        loop = process.processing_timer
        if loop is not None and loop.is_periodic and loop.at - loop.set_at == process.processing:
            loops[process] = _RecurringCycle(loop, process.processing, [loop])
    blocking: list[ScheduledAction] = []
    interrupting: list[ScheduledAction] = []
    for entry in pending:
        cycle = _find_cycle(entry, heartbeats, loops) if entry.set_at >= recent else None
        if _is_retention_timer(entry) or entry.argument is MemberTimer.COMMIT:
            interrupting.append(entry)
        elif cycle is None or not entry.is_periodic:
            blocking.append(entry)
        elif entry is not cycle.first:
            cycle.entries.append(entry)
    distinct = {id(cycle): cycle for cycle in (*heartbeats.values(), *loops.values())}
    return list(distinct.values()), blocking, interrupting


def _is_retention_timer(entry: ScheduledAction) -> bool:
    return isinstance(entry.owner, GroupTimerKey) and entry.owner.kind is GroupTimerKind.RETENTION


def _find_cycle(
    entry: ScheduledAction,
    heartbeats: dict[object, _RecurringCycle],
    loops: dict[object, _RecurringCycle],
) -> _RecurringCycle | None:
    owner = entry.owner
    if isinstance(owner, GroupTimerKey):
        return heartbeats.get(owner.member_id) if owner.kind is GroupTimerKind.SESSION else None
    if entry.argument is MemberTimer.POLL or (
        isinstance(owner, SimulatedProcess) and entry is owner.processing_timer
    ):
        return loops.get(owner)
    return heartbeats.get(owner)


class World:
    """A simulated cluster. Processes are known by name; one that has ended may start again."""

    def __init__(  # noqa: PLR0913 (all are options)
        self,
        topics: Mapping[str, int],
        *,
        seed: int = 0,
        config: GroupConfig | None = None,
        network: NetworkModel | None = None,
        metadata_age: int = 0,
        skip: bool = False,
        now: int = 0,
    ) -> None:
        """Starts the coordinator, and nothing else.

        :param topics: partition counts
        :param metadata_age: the interval at which a process refreshes its metadata, in
            milliseconds; 0: at once when topics change
        :param skip: skip heartbeats that cannot change anything
        :param now: the time at which the world begins
        """
        self._state = WorldState(network or ReliableNetwork(seed=seed))
        self._state.scheduler.now = now
        self._broker = SimulatedBroker(self._state, config or GroupConfig(), seed)
        self._broker.on_stop = self._break_connections
        self._topics = dict(topics)
        self._cluster = Cluster(self._topics)
        self._metadata_age = metadata_age
        self._skip = skip and self._state.network.is_memoryless
        self._skip_from = 0
        #: The running processes, by name.
        self.processes: dict[str, SimulatedProcess] = {}
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self._broker.start()

    @property
    def now(self) -> int:
        return self._state.now

    @property
    def steps(self) -> int:
        """The number of actions so far, heartbeats included."""
        return self._state.scheduler.steps

    @property
    def trace(self) -> list[TraceRecord]:
        return self._state.trace

    @property
    def journal(self) -> list[ClassicEntry]:
        return self._broker.journal

    @property
    def coordinator(self) -> Coordinator | None:
        """None while it is down."""
        return self._broker.coordinator

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    # time

    def schedule(self, time: int, action: Callable[[], object]) -> None:
        self._state.scheduler.add(time, lambda _: action())

    def step(self) -> bool:
        """Runs the next action; returns False if there is none."""
        return self._state.scheduler.step()

    def next_at(self) -> int | None:
        """Returns the time of the next action; None if there is none."""
        return self._state.scheduler.next_at()

    def run_until(self, time: int, horizon: int = 0) -> None:
        """Runs all actions up to and including this time. A caller that will continue to a later
        ``horizon`` passes it, so that fast forward need not stop before ``time``.
        """
        horizon = max(time, horizon)
        scheduler = self._state.scheduler
        while (due := scheduler.next_at()) is not None and due <= time:
            if not (self._skip and due >= self._skip_from and self._fast_forward(due, horizon)):
                scheduler.run_next()
        scheduler.now = max(scheduler.now, time)

    def _fast_forward(self, due: int, limit: int) -> bool:
        state = self._state
        quiet_from = state.scheduler.last_activity_at + state.quiet_window
        if due < quiet_from:
            self._skip_from = quiet_from
            return False
        moved, self._skip_from = fast_forward(state, self.processes.values(), limit)
        return moved

    def run_until_quiet(self, limit: int) -> bool:
        """Runs until only heartbeats and polls are pending; returns false at the limit."""
        while not self._is_quiet():
            due = self.next_at()
            if due is None or due > limit:
                return False
            self.step()
        return True

    def _is_quiet(self) -> bool:
        """Whether only heartbeats and polls are pending."""
        scheduler, window = self._state.scheduler, self._state.quiet_window
        due = scheduler.next_at()
        if due is None or due <= scheduler.last_activity_at + 2 * window:
            return due is None
        return all(
            _is_retention_timer(entry) or (entry.is_periodic and entry.set_at >= due - window)
            for entry in scheduler.pending()
        )

    # processes

    def start(self, program: ProcessConfig) -> SimulatedProcess:
        if program.name in self.processes:
            raise InputError(f"process {program.name!r} runs already")
        process = SimulatedProcess(
            self._state, self._broker, program, lambda: self._cluster, self._ended
        )
        self.processes[program.name] = process
        process.start()
        return process

    def on_process_end(self, name: str, action: Callable[[], object]) -> None:
        """Runs an action when a running process has ended, for any reason."""
        self._waiting.setdefault(name, []).append(action)

    def _ended(self, process: SimulatedProcess) -> None:
        del self.processes[process.name]
        for action in self._waiting.pop(process.name, ()):
            self.schedule(self.now, action)

    def __getitem__(self, name: str) -> SimulatedProcess:
        return self.processes[name]

    # the cluster

    def set_partitions(self, counts: Mapping[str, int]) -> None:
        self._topics.update(counts)
        self._change_topics()

    def delete_topic(self, topic: str) -> None:
        del self._topics[topic]
        self._change_topics()
        self._broker.delete_topics((topic,))

    def _change_topics(self) -> None:
        self._cluster = Cluster(self._topics)
        self._state.add_record(TraceEventType.TOPICS, "", tuple(sorted(self._topics.items())))
        for process in self.processes.values():
            process.refresh_metadata(self._metadata_age)

    # the coordinator

    def stop_coordinator(self) -> None:
        """Stops the broker's process at once; all connections break."""
        self._broker.stop()

    def start_coordinator(self, load_time: int = 0) -> None:
        """Starts the broker, which loads its journal."""
        self._broker.start(load_time)

    def move_coordinator(self, load_time: int = 0) -> None:
        """Moves the coordinator to another broker in an orderly way."""
        self._broker.move_coordinator(load_time)

    def crash_coordinator_at(self, boundary: CrashPoint, downtime: int, load_time: int = 0) -> None:
        """Crashes the broker at the next append, and restarts it after the downtime."""
        self._broker.crash_at(boundary, downtime, load_time)

    def _break_connections(self) -> None:
        due = self._state.now + self._state.network.max_latency
        for process in self.processes.values():
            if process.connection is not None:
                self._state.scheduler.add(due, process.connection.disconnect)

    def check_invariants(self) -> None:
        if self.coordinator is not None:
            self.coordinator.check_invariants()
        for process in self.processes.values():
            process.machine.check_invariants()
