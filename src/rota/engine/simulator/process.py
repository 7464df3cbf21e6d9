"""A member's process: its state machine, the application around it, and the records it reads.

The application polls, processes the returned records, and polls again. Records are not simulated
one by one: end offsets come from the clock, positions from the read rate and the end offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from rota.engine.assignors.interface import Assignor
from rota.engine.member import events
from rota.engine.member.classic import compute_assignment
from rota.engine.member.events import ListenerMethod, MemberTimer
from rota.engine.member.member import MemberStateMachine
from rota.engine.member.state import MemberState
from rota.engine.model.config import MemberConfig
from rota.engine.model.request import GroupRequest, Heartbeat, JoinGroup, OffsetCommit
from rota.engine.model.response import GroupResponse, JoinGroupResult
from rota.engine.model.topic import Cluster, OffsetAndMetadata, TopicPartition
from rota.engine.simulator.broker import SimulatedBroker, SimulatedConnection
from rota.engine.simulator.scheduler import ScheduledAction, WorldState
from rota.engine.simulator.seeded_random import hash_text, mix_numbers
from rota.engine.simulator.trace import TraceEventType

SECOND = 1_000
HOUR = 3_600 * SECOND
HOURS_PER_DAY = 24
AVERAGE_PERCENT = 100  # the average traffic, in per cent
DEFAULT_HOURLY_RATE = 3_600  # records per hour in a partition by default: one per second
MAX_SKEW_PERCENT = 35  # largest difference from the topic's average rate: keys are uneven
RETENTION_TIME = 7 * HOURS_PER_DAY * HOUR


class Traffic:
    def __init__(  # noqa: PLR0913 (all are options)
        self,
        rates: Mapping[str, int] | None = None,
        *,
        hours: tuple[int, ...] = (AVERAGE_PERCENT,) * HOURS_PER_DAY,
        since: int = 0,
        created: Mapping[TopicPartition, int] | None = None,
        failing: Mapping[TopicPartition, int] | None = None,
        seed: int | None = None,
    ) -> None:
        """:param rates: records per hour in each partition of a topic, in an average hour
        :param hours: the traffic in each hour of the day, in per cent of the average hour
        :param since: the time of the first records; 0 is a midnight
        :param created: the creation times of partitions that were created later
        :param failing: the time of a record that no application can process, by partition
        :param seed: decides how uneven a topic's partitions are; None: all have the same rate
        """
        self._rates = dict(rates or {})
        self._hours = hours
        self._before = [sum(hours[:hour]) for hour in range(HOURS_PER_DAY + 1)]
        self._since = since
        self._created = dict(created or {})
        self._failing = dict(failing or {})
        self._seed = seed
        #: For each partition its rate, and :meth:`_work` at its first record.
        self._known: dict[TopicPartition, tuple[int, int]] = {}

    def end_offset(self, partition: TopicPartition, now: int) -> int:
        if partition not in self._known:
            self._known[partition] = self._look_up(partition)
        rate, before = self._known[partition]
        return max(self._work(now) - before, 0) * rate // (HOUR * AVERAGE_PERCENT * AVERAGE_PERCENT)

    def processable_offset(self, partition: TopicPartition, now: int) -> int:
        """Returns the offset that applications can process a partition up to."""
        return self.end_offset(partition, min(now, self._failing.get(partition, now)))

    def beginning_offset(self, partition: TopicPartition, now: int) -> int:
        return self.end_offset(partition, now - RETENTION_TIME)

    def _look_up(self, partition: TopicPartition) -> tuple[int, int]:
        share = AVERAGE_PERCENT
        if self._seed is not None:
            bits = mix_numbers(self._seed, hash_text(partition.topic), partition.partition)
            share += bits % (2 * MAX_SKEW_PERCENT + 1) - MAX_SKEW_PERCENT
        rate = self._rates.get(partition.topic, DEFAULT_HOURLY_RATE) * share
        return rate, self._work(self._created.get(partition, self._since))

    def _work(self, now: int) -> int:
        """Returns the sum of the hourly percentages over all milliseconds."""
        day, rest = divmod(now, HOURS_PER_DAY * HOUR)
        hour, rest = divmod(rest, HOUR)
        before = day * self._before[HOURS_PER_DAY] + self._before[hour]
        return before * HOUR + self._hours[hour] * rest


EVEN_TRAFFIC = Traffic()  # one record per second in every partition


class TrafficReader:
    def __init__(
        self,
        traffic: Traffic,
        capacity: int | None,
        committed: Callable[[TopicPartition], int | None],
    ) -> None:
        """``capacity`` is the records per second over all partitions, None for no limit."""
        self._traffic = traffic
        self._capacity = capacity
        self._committed = committed
        self._positions: dict[TopicPartition, int] = {}
        self._as_of = 0

    def set_partitions(self, partitions: Iterable[TopicPartition], now: int) -> None:
        """Sets the partitions; new ones start at the committed offset, or else at the end."""
        positions = self._positions
        self._positions = {
            one: positions[one] if one in positions else self._start(one, now) for one in partitions
        }

    def _start(self, partition: TopicPartition, now: int) -> int:
        committed = self._committed(partition)
        return self._traffic.end_offset(partition, now) if committed is None else committed

    def advance(self, now: int) -> None:
        """Advances the positions by the records that were read since the last call."""
        positions, end = self._positions, self._traffic.processable_offset
        if self._capacity is None:
            for partition in positions:
                positions[partition] = end(partition, now)
        elif positions:
            most = self._capacity * (now - self._as_of) // (SECOND * len(positions))
            for partition, position in positions.items():
                positions[partition] = max(position, min(position + most, end(partition, now)))
        self._as_of = now

    def skip_to(self, now: int) -> None:
        self._as_of = now

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {one: OffsetAndMetadata(offset) for one, offset in self._positions.items()}


#: Timers that run while nothing happens.
RECURRING_TIMERS = frozenset(
    {MemberTimer.HEARTBEAT, MemberTimer.SESSION, MemberTimer.POLL, MemberTimer.COMMIT}
)

CLOSE_TIMEOUT = 30_000  # how long an application waits for its consumer to close: Kafka's default

ListenerBehavior = Callable[[ListenerMethod, tuple[TopicPartition, ...]], Exception | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    name: str
    config: MemberConfig
    assignors: Callable[[], Sequence[Assignor]]  # new ones per process, because they remember
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    processing: int = 0  # time to process the records of one poll
    listener_time: int = 0  # duration of a call of the rebalance listener
    #: Returns the exception that a listener call raises, or None.
    listener: ListenerBehavior = lambda _method, _partitions: None
    host: str = ""  # the client host, as the broker saves it
    traffic: Traffic = EVEN_TRAFFIC
    capacity: int | None = None  # records per second that the process can handle; None: any


class SimulatedProcess:
    """A running process. Calls from the scenario, member and network take effect at once."""

    def __init__(
        self,
        state: WorldState,
        broker: SimulatedBroker,
        program: ProcessConfig,
        cluster: Callable[[], Cluster],
        on_end: Callable[[SimulatedProcess], None],
    ) -> None:
        self.name = program.name
        self.program = program
        self.machine = MemberStateMachine(program.config, program.assignors(), self._consumed)
        self.alive = True
        self.frozen_until = 0
        self.stalled_until = 0
        self.processing = program.processing
        self.connection: SimulatedConnection | None = None
        self.member_id = ""
        self.owned: tuple[TopicPartition, ...] = ()
        self.timers: dict[MemberTimer, ScheduledAction] = {}
        #: The end of the processing outside of poll; None inside of poll.
        self.processing_timer: ScheduledAction | None = None
        self._state = state
        self._broker = broker
        self._cluster = cluster
        self._on_end = on_end
        self._started_at = state.now
        self._calls = 0  # listener calls that have not returned
        self._closing = False
        self._stalled = False
        self._paused = False
        self._commits = 0
        self._computed_assignment: events.AssignmentComputed | None = None
        self._reader = TrafficReader(
            program.traffic,
            program.capacity,
            lambda partition: broker.committed.get((program.config.group, partition)),
        )
        state.add_period(program.config.heartbeat_interval)
        self._expect_loop()

    def start(self) -> None:
        subscription = self.program.topics, self.program.pattern
        self._state.add_record(TraceEventType.STARTED, self.name, subscription)
        self.handle_event(events.Subscribed(*subscription))
        self.handle_event(events.PollBegan())

    def crash(self) -> None:
        self._state.add_record(TraceEventType.CRASHED, self.name)
        self._end()

    def leave(self) -> None:
        """Closes the consumer, after the current processing is done."""
        if self._closing or not self._ready(lambda _: self.leave()):
            return
        self._closing = True
        self._state.add_record(TraceEventType.LEAVING, self.name)
        if self.processing_timer is None:
            self.handle_event(events.CloseRequested(self._state.now + CLOSE_TIMEOUT))

    def pause(self, time: int) -> None:
        """Freezes the whole process: a long garbage collection, SIGSTOP, a suspended machine."""
        if self.frozen_until <= self._state.now:
            self._state.add_record(TraceEventType.PAUSED, self.name)
            self._state.scheduler.add(self._state.now + time, self._resume)
            self._read()
            self._paused = True
        self.frozen_until = max(self.frozen_until, self._state.now + time)

    def _resume(self, _: object) -> None:
        if self._ready(self._resume):
            self._state.add_record(TraceEventType.RESUMED, self.name)
            self._read()
            self._paused = False

    def stall(self, time: int) -> None:
        """Keeps the application outside of poll; heartbeats continue."""
        if self._ready(lambda _: self.stall(time)):
            self._set_stalled()
            self.stalled_until = max(self.stalled_until, self._state.now + time)
            self._end_poll_if_due()

    def slow_down(self, processing: int) -> None:
        if self._ready(lambda _: self.slow_down(processing)):
            self._state.add_record(TraceEventType.SLOWED, self.name, processing)
            self.processing = processing
            self._expect_loop()
            self._end_poll_if_due()

    def subscribe(self, topics: tuple[str, ...], pattern: str | None = None) -> None:
        if self._ready(lambda _: self.subscribe(topics, pattern)):
            self._state.add_record(TraceEventType.SUBSCRIBED, self.name, (topics, pattern))
            self.handle_event(events.Subscribed(topics, pattern))

    def commit(self, *, wait: int | None = None) -> None:
        """Commits the positions, and waits up to ``wait`` milliseconds for the result."""
        if self._ready(lambda _: self.commit(wait=wait)):
            self._commits += 1
            until = None if wait is None else self._state.now + wait
            self.handle_event(events.CommitRequested(self._commits, None, until))

    def refresh_metadata(self, after: int) -> None:
        """Updates metadata at the next multiple of ``after`` ms since the start; 0 means now."""
        due = self._state.now
        if after:
            due += after - (due - self._started_at) % after
        self._state.scheduler.add(due, self._update_metadata)

    def handle_event(self, event: events.MemberEvent) -> None:
        """Passes an event to the state machine and executes its commands at the same time."""
        following: events.MemberEvent | None = event
        while following is not None:
            for command in self.machine.handle(following, self._state.now):
                self._execute(command)
            following, self._computed_assignment = self._computed_assignment, None
        self._end_poll_if_due()

    def receive_response(self, request_id: int, response: GroupResponse) -> None:
        self.handle_event(events.ResponseReceived(request_id, response))
        if type(response) is JoinGroupResult and self.machine.member_id != self.member_id:
            self.member_id = self.machine.member_id
            self._state.add_record(TraceEventType.IDENTITY, self.name, self.member_id)

    def handle_disconnect(self, connection: SimulatedConnection, request_ids: list[int]) -> None:
        if self.connection is connection:
            self.connection = None
        for request_id in request_ids:
            self._state.add_record(TraceEventType.FAILED, self.name)
            self.handle_event(events.RequestFailed(request_id))

    def _execute(self, command: events.MemberCommand) -> None:  # noqa: C901, PLR0912 (one case a command)
        state = self._state
        match command:
            case events.StartMemberTimer():
                self._start_timer(command)
            case events.SendRequest():
                if self.connection is None or not self.connection.is_open:
                    self.connection = SimulatedConnection(state, self._broker, self)
                if not self._recurs(command.request):
                    state.mark_activity()
                request = command.request
                if type(request) is JoinGroup:
                    request = replace(request, client_host=self.program.host)
                self.connection.send(command.request_id, request)
            case events.ComputeAssignment():
                # passed to the machine after the other commands
                self._computed_assignment = compute_assignment(command)
            case events.StopMemberTimer():
                entry = self.timers.get(command.timer)
                if entry is not None:
                    state.scheduler.cancel(entry)
            case events.SetAssignment():
                self._read()
                self.owned = command.partitions
                self._reader.set_partitions(self.owned, state.now)
                assignment = command.generation, command.partitions
                state.add_record(TraceEventType.ASSIGNMENT, self.name, assignment)
            case events.CallListener():
                self._call_listener(command)
            case events.MarkPendingRevocation():
                state.add_record(TraceEventType.WITHHELD, self.name, command.partitions)
            case events.FindCoordinator():
                self._find_coordinator()
            case events.RequestMetadata():
                self._add_round_trip(self._update_metadata)
            case events.FinishSyncCommit() | events.RunCommitCallback():
                error = None if command.error is None else type(command.error).__name__
                state.add_record(TraceEventType.COMMIT, self.name, error)
            case events.CallInterceptors():
                pass
            case events.RaiseError():
                raised = f"{type(command.error).__name__}: {command.error}"
                state.add_record(TraceEventType.RAISED, self.name, raised)
                state.scheduler.add(state.now, self._close_after_error)
            case events.MemberNote():
                state.add_record(TraceEventType.SAID, self.name, command)
            case events.FinishClose():
                state.add_record(TraceEventType.GONE, self.name)
                self._end()
            case _:
                assert_never(command)

    def _recurs(self, request: GroupRequest) -> bool:
        if type(request) is OffsetCommit:
            # between polls, fast forward that executes all commits would miss the one that is due
            return self._state.skips_commits or not self.processing
        return type(request) is Heartbeat

    def _start_timer(self, command: events.StartMemberTimer) -> None:
        # the entry is kept when its timer fires, because the timer is started again
        entry = self.timers.get(command.timer)
        if entry is None:
            is_periodic = command.timer in RECURRING_TIMERS
            entry = ScheduledAction(self._fire, command.timer, self, is_periodic=is_periodic)
            self.timers[command.timer] = entry
        self._state.scheduler.reschedule(entry, command.due_at)

    def _fire(self, timer: MemberTimer) -> None:
        if self.frozen_until > self._state.now:
            self._state.scheduler.reschedule(self.timers[timer], self.frozen_until)
            return
        # outside of poll the commit waits for the next poll
        in_poll = self._state.skips_commits or self.processing_timer is None
        commits = timer is MemberTimer.COMMIT and in_poll
        if timer is not MemberTimer.HEARTBEAT and not commits:
            self._state.mark_activity()  # other timers are rescheduled before they fire
        self.handle_event(events.MemberTimerFired(timer))

    def _find_coordinator(self) -> None:
        state = self._state
        state.mark_activity()
        if self.connection is not None:  # the member has given up the requests on it
            self.connection.close()
            self.connection = None
        self._add_round_trip(self._coordinator_response)

    def _add_round_trip(self, action: Callable[[bool], None]) -> None:
        """Calls the action when a request to any broker has its response, or is lost."""
        state = self._state
        delivery = state.network.deliver_request(self.name, None, state.now)
        due = state.now + delivery.delay + delivery.response_delay
        state.scheduler.add(due, action, not delivery.lost)

    def _coordinator_response(self, is_delivered: bool) -> None:
        if self._ready(self._coordinator_response, is_delivered):
            found = is_delivered and self._broker.coordinator is not None
            self.handle_event(events.CoordinatorFound() if found else events.CoordinatorNotFound())

    def _update_metadata(self, _: object) -> None:
        if self._ready(self._update_metadata):
            self.handle_event(events.MetadataUpdated(self._cluster()))

    def _call_listener(self, command: events.CallListener) -> None:
        inside = self.processing_timer is None or self._closing
        assert inside, f"{self.name}: its listener is called outside of poll"
        state = self._state
        call = command.method.value, command.partitions
        state.add_record(TraceEventType.LISTENER, self.name, call)
        self._calls += 1
        error = self.program.listener(command.method, command.partitions)
        due = state.now + self.program.listener_time
        state.scheduler.add(due, self._listener_returned, (command.call_id, error))

    def _listener_returned(self, argument: tuple[int, Exception | None]) -> None:
        if self._ready(self._listener_returned, argument):
            self._calls -= 1
            self.handle_event(events.ListenerReturned(*argument))

    def _close_after_error(self, _: object) -> None:
        """Closes the consumer, as an application does after an error from poll."""
        if self._ready(self._close_after_error):
            self.leave()

    def _ready(self, action: Callable[..., None], argument: object = None) -> bool:
        """Returns whether the process runs; if it is frozen, schedules the action for later."""
        if not self.alive:
            return False
        if self.frozen_until > self._state.now:
            self._state.scheduler.add(self.frozen_until, action, argument)
            return False
        return True

    def _end_poll_if_due(self) -> None:
        """Ends a poll as soon as the process has partitions, because they have records."""
        if self.processing_timer is not None or self._calls or self._closing or not self.alive:
            return
        now = self._state.now
        stalled = self.stalled_until > now
        if stalled or (self.processing and self.owned):
            due = self.stalled_until if stalled else now + self.processing
            is_periodic = not stalled and not self._too_slow
            self.processing_timer = self._state.scheduler.add(
                due, self._poll_again, owner=self, is_periodic=is_periodic
            )
            if self._too_slow:  # the member loses its partitions before it has processed them
                self._set_stalled()
            self.handle_event(events.PollEnded())

    def _set_stalled(self) -> None:
        if not self._stalled:
            self._read()
            self._stalled = True
            self._state.add_record(TraceEventType.STALLED, self.name)

    @property
    def _too_slow(self) -> bool:
        return self.processing > self.program.config.max_poll_interval

    def _expect_loop(self) -> None:
        if not self._too_slow:  # otherwise each turn of its loop is news, and no cycle
            self._state.add_period(self.processing)

    def _poll_again(self, _: object) -> None:
        assert self.processing_timer is not None
        now = self._state.now
        later = max(self.frozen_until, self.stalled_until)
        if later > now:
            self.processing_timer.is_periodic = False
            self._state.scheduler.reschedule(self.processing_timer, later)
            return
        if self._stalled:
            self._read()
            self._stalled = False
            self._state.add_record(TraceEventType.WOKEN, self.name)
        self.processing_timer = None
        if self._closing:
            self.handle_event(events.CloseRequested(self._state.now + CLOSE_TIMEOUT))
        else:
            self.handle_event(events.PollBegan())

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        self._read()
        return self._reader.positions()

    @property
    def may_commit(self) -> bool:
        return self.machine.state is MemberState.STABLE

    @property
    def commit_due_at(self) -> int | None:
        """When the next poll will commit, if it will but later ones will not all do so."""
        commit, loop = self.timers.get(MemberTimer.COMMIT), self.processing_timer
        if commit is None or commit.pending or loop is None or not self.may_commit:
            return None
        is_each = self.program.config.auto_commit_interval <= self.processing
        return None if is_each or not loop.is_periodic else loop.at

    def read_until(self, at: int) -> dict[TopicPartition, OffsetAndMetadata]:
        """Reads up to a later time that fast forward has skipped; returns the positions."""
        self._reader.advance(at)
        return self._reader.positions()

    def _read(self) -> None:
        """Updates the positions before the process sleeps, wakes, commits, or is reassigned."""
        if self._stalled or self._paused:
            self._reader.skip_to(self._state.now)
        else:
            self._reader.advance(self._state.now)

    def _end(self) -> None:
        scheduler = self._state.scheduler
        self.alive = False
        self.owned = ()
        for entry in self.timers.values():
            scheduler.cancel(entry)
        self.timers.clear()
        if self.processing_timer is not None:
            scheduler.cancel(self.processing_timer)
        if self.connection is not None:
            self.connection.close()
        self._on_end(self)
