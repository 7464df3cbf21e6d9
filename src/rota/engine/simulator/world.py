"""A world: one coordinator, the processes of its groups, and a virtual clock.

The same seed and the same scenario give the same trace, to the byte.

Fast forward skips heartbeats and polls that cannot change anything. While nothing happens, a
process repeats a cycle: a heartbeat gets error code 0, and timers are rescheduled; an application
ends one poll and begins the next. So a whole number of cycles is skipped by moving all actions of
the cycle by that number of periods, but only if

- nothing but such cycles has happened for longer than the longest period, so every process has
  completed one cycle of each kind and nothing waits for its next poll or heartbeat;
- the action belongs to a process that is in such a cycle: the session timer of a crashed process,
  or the poll deadline of one that is stuck, frozen or too slow, is not moved;
- delivery of messages does not depend on how many were sent before (``is_memoryless``).

Automatic commits recur too, but they write journal entries. By default each of them is executed,
and only the time of one request and its response around it is not skipped. With ``skip_commits`` of
the commits of a process in a skipped time only the last :data:`WRITTEN_COMMITS` are written to the
journal, without a request: later commits replace the others, and the last ones show the rhythm of
the commits before an event.

Fast forward ends one period before the next action that is not part of a cycle. That period is
executed in full, so that the last heartbeats are in flight or in timers as without fast forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from rota.engine.coordinator.events import GroupTimerKey, GroupTimerKind
from rota.engine.member.events import MemberTimer
from rota.engine.model.config import GroupConfig
from rota.engine.model.topic import Cluster
from rota.engine.simulator.broker import SimulatedBroker
from rota.engine.simulator.network import NetworkModel, ReliableNetwork
from rota.engine.simulator.process import ProcessConfig, SimulatedProcess
from rota.engine.simulator.scheduler import ScheduledAction, WorldState
from rota.engine.simulator.trace import TraceEventType, TraceRecord
from rota.errors import InputError

WRITTEN_COMMITS = 4  # the number of skipped commits of a process that are written to the journal


@dataclass(slots=True, eq=False)
class _RecurringCycle:
    """Actions that recur together, every ``period``."""

    first: ScheduledAction
    period: int
    entries: list[ScheduledAction]


class _CommitCycle:
    """The automatic commits of a process, at its polls."""

    def __init__(
        self, process: SimulatedProcess, timer: ScheduledAction, loop: _RecurringCycle | None
    ) -> None:
        self.process = process
        self._timer = timer
        self._loop = loop
        self._interval = self._period = process.program.config.auto_commit_interval
        self._first = timer.at
        self.is_due = not timer.pending  # its next poll commits, and each later one
        if loop is not None:  # it polls only between two times of processing
            early = 0 if self.is_due else loop.first.at - timer.at
            self._first = loop.first.at - early // loop.period * loop.period
            self._period = -(-self._interval // loop.period) * loop.period

    def skip(self, until: int) -> tuple[list[int], list[tuple[ScheduledAction, int]]]:
        """Returns the times of the last commits up to a time, and by how much actions move."""
        count = max((until - self._first) // self._period + 1, 0)
        written = range(max(count - WRITTEN_COMMITS, 0), count)
        times = [self._first + number * self._period for number in written]
        if not times:
            return [], []
        if self.is_due and self._loop is not None:
            return times, [(entry, count * self._period) for entry in self._loop.entries]
        return times, [(self._timer, times[-1] + self._interval - self._timer.at)]


def fast_forward(
    state: WorldState, processes: Iterable[SimulatedProcess], broker: SimulatedBroker, limit: int
) -> tuple[bool, int]:
    """Moves all cycles towards the next other action; whether it moved any, and when to go on."""
    scheduler = state.scheduler
    pending = scheduler.pending()
    due = min(entry.at for entry in pending)
    round_trip = 2 * state.network.max_latency + 1
    if any(entry.is_periodic and entry.owner is None for entry in pending):  # a commit is under way
        return False, due + round_trip
    awake = [process for process in processes if process.frozen_until <= due]
    waiting = [one.commit_due_at for one in awake if state.skips_commits]
    if first := min((at for at in waiting if at is not None), default=None):
        return False, first + 1
    heartbeats, loops = _find_cycles(awake, due - state.quiet_window)
    commits = _find_commits(awake, loops) if state.skips_commits else {}
    blocking, interrupting = _sort_pending(
        pending, heartbeats, loops, commits, due - state.quiet_window
    )
    for one in commits.values():
        if one.is_due:  # its polls move with its commits
            del loops[one.process]
    cycles = {id(cycle): cycle for cycle in (*heartbeats.values(), *loops.values())}.values()
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
    delay, _ = state.network.deliver_append(due)
    shifts += _skip_commits(state, broker, commits.values(), target - round_trip - delay)
    scheduler.shift(shifts)
    return bool(shifts), next_attempt


def _skip_commits(
    state: WorldState,
    broker: SimulatedBroker,
    commits: Iterable[_CommitCycle],
    until: int,
) -> list[tuple[ScheduledAction, int]]:
    """Writes the last commits up to a time; returns by how much actions move."""
    shifts: list[tuple[ScheduledAction, int]] = []
    skipped: list[tuple[int, SimulatedProcess]] = []
    for one in commits:
        times, moved = one.skip(until)
        shifts += moved
        skipped += [(at, one.process) for at in times]
    for at, process in sorted(skipped, key=lambda pair: pair[0]):
        sent = state.network.deliver_request(process.name, None, at)
        group = process.program.config.group
        broker.add_skipped_commits(group, at + sent.delay, process.read_until(at))
    return shifts


def _executed_interval(entry: ScheduledAction, round_trip: int) -> tuple[int, int]:
    """Returns the interval that is executed in full because of an action."""
    commits = entry.argument is MemberTimer.COMMIT
    return (entry.at - round_trip, entry.at + round_trip) if commits else (entry.at, entry.at + 1)


_Cycles: TypeAlias = dict[object, _RecurringCycle]


def _find_cycles(processes: Iterable[SimulatedProcess], recent: int) -> tuple[_Cycles, _Cycles]:
    heartbeats: _Cycles = {}
    loops: _Cycles = {}
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
    return heartbeats, loops


def _find_commits(
    processes: Iterable[SimulatedProcess], loops: _Cycles
) -> dict[object, _CommitCycle]:
    commits: dict[object, _CommitCycle] = {}
    for process in processes:
        timer = process.timers.get(MemberTimer.COMMIT)
        if timer is not None and process.may_commit:
            in_poll = process.processing_timer is None
            if process in loops or (in_poll and timer.pending):
                commits[process] = _CommitCycle(process, timer, loops.get(process))
    return commits


def _sort_pending(
    pending: list[ScheduledAction],
    heartbeats: _Cycles,
    loops: _Cycles,
    commits: Mapping[object, _CommitCycle],
    recent: int,
) -> tuple[list[ScheduledAction], list[ScheduledAction]]:
    """Adds actions to cycles; returns what ends fast forward, and timers to execute."""
    blocking: list[ScheduledAction] = []
    interrupting: list[ScheduledAction] = []
    for entry in pending:
        cycle = _find_cycle(entry, heartbeats, loops) if entry.set_at >= recent else None
        if entry.argument is MemberTimer.COMMIT and entry.owner in commits:
            continue
        if _is_retention_timer(entry) or entry.argument is MemberTimer.COMMIT:
            interrupting.append(entry)
        elif cycle is None or not entry.is_periodic:
            blocking.append(entry)
        elif entry is not cycle.first:
            cycle.entries.append(entry)
    return blocking, interrupting


def _is_retention_timer(entry: ScheduledAction) -> bool:
    return isinstance(entry.owner, GroupTimerKey) and entry.owner.kind is GroupTimerKind.RETENTION


def _find_cycle(
    entry: ScheduledAction, heartbeats: _Cycles, loops: _Cycles
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
        skip_commits: bool = False,
        now: int = 0,
    ) -> None:
        """Starts the coordinator, and nothing else.

        :param metadata_age: the interval at which a process refreshes its metadata, in
            milliseconds; 0: at once when topics change
        :param skip: skip heartbeats that cannot change anything
        :param skip_commits: with ``skip``: skip automatic commits, too
        :param now: the time at which the world begins
        """
        network = network or ReliableNetwork(seed=seed)
        self._skip = skip and network.is_memoryless
        self._state = WorldState(network, skips_commits=self._skip and skip_commits)
        self._state.scheduler.now = now
        self.broker = SimulatedBroker(self._state, config or GroupConfig(), seed)
        self.broker.on_stop = self._break_connections
        self._topics = dict(topics)
        self._cluster = Cluster(self._topics)
        self._metadata_age = metadata_age
        self._skip_from = 0
        self.processes: dict[str, SimulatedProcess] = {}  # the running processes, by name
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self.broker.start()

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
    def cluster(self) -> Cluster:
        return self._cluster

    def schedule(self, time: int, action: Callable[[], object]) -> None:
        self._state.scheduler.add(time, lambda _: action())

    def step(self) -> bool:
        return self._state.scheduler.step()

    def next_at(self) -> int | None:
        return self._state.scheduler.next_at()

    def run_until(self, time: int, horizon: int = 0) -> None:
        """Runs all actions until a time; fast forward may go on to a later ``horizon``."""
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
        moved, self._skip_from = fast_forward(state, self.processes.values(), self.broker, limit)
        return moved

    def start(self, program: ProcessConfig) -> SimulatedProcess:
        if program.name in self.processes:
            raise InputError(f"process {program.name!r} runs already")
        process = SimulatedProcess(
            self._state, self.broker, program, lambda: self._cluster, self._ended
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

    def set_partitions(self, counts: Mapping[str, int]) -> None:
        self._topics.update(counts)
        self._change_topics()

    def delete_topic(self, topic: str) -> None:
        del self._topics[topic]
        self._change_topics()
        self.broker.delete_topics((topic,))

    def _change_topics(self) -> None:
        self._cluster = Cluster(self._topics)
        self._state.add_record(TraceEventType.TOPICS, "", tuple(sorted(self._topics.items())))
        for process in self.processes.values():
            process.refresh_metadata(self._metadata_age)

    def _break_connections(self) -> None:
        due = self._state.now + self._state.network.max_latency
        for process in self.processes.values():
            if process.connection is not None:
                self._state.scheduler.add(due, process.connection.disconnect)

    def check_invariants(self) -> None:
        if self.broker.coordinator is not None:
            self.broker.coordinator.check_invariants()
        for process in self.processes.values():
            process.machine.check_invariants()
