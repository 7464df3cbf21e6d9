"""The simulated broker: a coordinator, its journal, its crashes, and the connections to it.

As in Kafka, the requests of a connection are handled in order, one at a time: a request sent while
a JoinGroup waits is read after its response.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol, assert_never

from rota.engine.coordinator import events
from rota.engine.coordinator.coordinator import Coordinator
from rota.engine.coordinator.events import GroupTimerKey, GroupTimerKind
from rota.engine.coordinator.notes import GroupNote
from rota.engine.model.config import GroupConfig
from rota.engine.model.journal_entry import ClassicEntry, OffsetCommitEntry
from rota.engine.model.request import GroupRequest, Heartbeat, JoinGroup, OffsetCommit
from rota.engine.model.response import GroupResponse, HeartbeatResult, OffsetCommitResult
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.engine.simulator.scheduler import ScheduledAction, WorldState
from rota.engine.simulator.seeded_random import make_uuid
from rota.engine.simulator.trace import TraceEventType, TraceRecord
from rota.errors import Code


class CrashPoint(enum.Enum):
    """The points around an append at which the broker's process can crash."""

    BEFORE_APPEND = "before the entries are written"
    BEFORE_REPLAY = "after the entries are written, before they are replayed"
    BEFORE_RESPONSE = "after the entries are replayed, before responses are sent"


class ResponseReceiver(Protocol):
    def receive_response(self, response: GroupResponse) -> None: ...


class SimulatedBroker:
    """A broker with one coordinator. ``coordinator`` is None while the broker is down."""

    def __init__(self, state: WorldState, config: GroupConfig, seed: int) -> None:
        self.coordinator: Coordinator | None = None
        self.journal: list[ClassicEntry] = []
        #: The committed offset of each partition, by group.
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.timers: dict[GroupTimerKey, ScheduledAction] = {}
        #: Called when the broker's process ends: its connections break.
        self.on_stop: Callable[[], None] = lambda: None
        self._state = state
        self._config = config
        self._seed = seed
        self._ids = 0
        self._tokens = 0
        self._receivers: dict[int, ResponseReceiver] = {}
        #: Number of the current coordinator: actions scheduled for an earlier one are ignored.
        self._epoch = 0
        self._written_by = 0
        self._crash: tuple[CrashPoint, int, int] | None = None

    def _new_id(self) -> str:
        self._ids += 1
        return make_uuid(self._seed, self._ids)

    def start(self, load_time: int = 0) -> None:
        """Starts a coordinator that loads the journal, which takes ``load_time``."""
        assert self.coordinator is None, "the coordinator runs already"
        self.coordinator = Coordinator(self._config, self._new_id)
        self._epoch += 1
        self._state.add_record(TraceEventType.COORDINATOR, "", "loading")
        self._execute(self.coordinator.handle(events.JournalLoadStarted(), self._state.now))
        if load_time:
            self._state.scheduler.add(self._state.now + load_time, self._load, self._epoch)
        else:
            self._load(self._epoch)

    def _load(self, epoch: int) -> None:
        if epoch != self._epoch or self.coordinator is None:
            return
        for entry in self.journal:
            self.coordinator.replay(entry)
        self._state.add_record(TraceEventType.COORDINATOR, "", "loaded")
        self._execute(self.coordinator.handle(events.JournalLoaded(), self._state.now))

    def stop(self) -> None:
        """Stops the process at once; unwritten entries are lost."""
        if self.coordinator is None:
            return
        self._clear()
        self._state.add_record(TraceEventType.COORDINATOR, "", "stopped")
        self.on_stop()

    def move_coordinator(self, load_time: int = 0) -> None:
        """Moves the coordinator to another broker in an orderly way: no connection breaks."""
        if self.coordinator is None:
            return
        self._state.add_record(TraceEventType.COORDINATOR, "", "unloaded")
        self._execute(self.coordinator.handle(events.JournalUnloaded(), self._state.now))
        self._clear()
        self.start(load_time)

    def crash_at(self, boundary: CrashPoint, downtime: int, load_time: int = 0) -> None:
        """Crashes the process at the next append and restarts it after the downtime."""
        self._crash = (boundary, downtime, load_time)

    def _crashes_at(self, boundary: CrashPoint) -> bool:
        if self._crash is None or self._crash[0] is not boundary:
            return False
        _, downtime, load_time = self._crash
        self._crash = None
        self.stop()
        self._state.scheduler.add(self._state.now + downtime, self._restart, load_time)
        return True

    def _restart(self, load_time: int) -> None:
        if self.coordinator is None:
            self.start(load_time)

    def _clear(self) -> None:
        self.coordinator = None
        self._epoch += 1
        for entry in self.timers.values():
            self._state.scheduler.cancel(entry)
        self.timers.clear()
        self._receivers.clear()

    def request(self, receiver: ResponseReceiver, request: GroupRequest) -> None:
        assert self.coordinator is not None
        self._tokens += 1
        self._receivers[self._tokens] = receiver
        event = events.RequestReceived(self._tokens, request)
        self._execute(self.coordinator.handle(event, self._state.now))

    def delete_topics(self, topics: tuple[str, ...]) -> None:
        if self.coordinator is not None:
            event = events.TopicsDeleted(tuple((topic, None) for topic in topics))
            self._execute(self.coordinator.handle(event, self._state.now))

    def _fire(self, key: GroupTimerKey) -> None:
        assert self.coordinator is not None
        del self.timers[key]
        self._execute(self.coordinator.handle(events.GroupTimerFired(key), self._state.now))

    def _append_ended(self, argument: tuple[int, events.AppendEntries, Code]) -> None:
        epoch, append, code = argument
        if epoch != self._epoch or self.coordinator is None:
            return
        now = self._state.now
        if code is not Code.NONE:
            self._execute(self.coordinator.handle(events.AppendFailed(append.append_id, code), now))
            return
        self.journal += append.entries
        add_record = partial(self._state.add_record, is_activity=not _is_commit_append(append))
        for entry in append.entries:
            add_record(TraceEventType.JOURNAL, entry.group, entry)
            if isinstance(entry, OffsetCommitEntry):
                key = entry.group, TopicPartition(entry.topic, entry.partition)
                self.committed[key] = entry.offset
        if self._crashes_at(CrashPoint.BEFORE_REPLAY):
            return
        commands = self.coordinator.handle(events.AppendSucceeded(append.append_id), now)
        if not self._crashes_at(CrashPoint.BEFORE_RESPONSE):
            self._execute(commands)

    def add_skipped_commits(
        self, group: str, received: int, positions: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Writes an automatic commit of a time that fast forward has skipped."""
        delay, _ = self._state.network.deliver_append(received)
        self._written_by = max(self._written_by, received + delay)
        for partition, position in positions.items():
            entry = OffsetCommitEntry(
                group=group,
                topic=partition.topic,
                partition=partition.partition,
                offset=position.offset,
                commit_timestamp=received,
            )
            self.journal.append(entry)
            self._state.trace.append(
                TraceRecord(self._written_by, TraceEventType.JOURNAL, group, entry)
            )
            self.committed[group, partition] = position.offset

    def _execute(self, commands: list[events.CoordinatorCommand]) -> None:
        epoch = self._epoch
        for command in commands:
            if epoch != self._epoch:  # an append crashed the broker
                return
            match command:
                case events.StartGroupTimer():
                    self._start_timer(command)
                case events.SendResponse():
                    self._receivers.pop(command.token).receive_response(command.response)
                case events.StopGroupTimer():
                    entry = self.timers.pop(command.key, None)
                    if entry is not None:
                        self._state.scheduler.cancel(entry)
                case events.AppendEntries():
                    self._append(command)
                case GroupNote():
                    self._state.add_record(TraceEventType.NOTE, command.group, command)
                case _:
                    assert_never(command)

    def _start_timer(self, command: events.StartGroupTimer) -> None:
        entry = self.timers.get(command.key)
        if entry is None:
            is_periodic = command.key.kind in {GroupTimerKind.SESSION, GroupTimerKind.RETENTION}
            entry = ScheduledAction(self._fire, command.key, command.key, is_periodic=is_periodic)
            self.timers[command.key] = entry
        self._state.scheduler.reschedule(entry, command.due_at)

    def _append(self, append: events.AppendEntries) -> None:
        state = self._state
        is_periodic = _is_commit_append(append)
        if not is_periodic:
            state.mark_activity()
        if self._crashes_at(CrashPoint.BEFORE_APPEND):
            return
        delay, code = state.network.deliver_append(state.now)
        self._written_by = max(self._written_by, state.now + delay)  # one after another
        argument = (self._epoch, append, code)
        state.scheduler.add(self._written_by, self._append_ended, argument, is_periodic=is_periodic)


def _is_commit_append(append: events.AppendEntries) -> bool:
    return isinstance(append.entries[0], OffsetCommitEntry)


REQUEST_TIMEOUT = 30_000  # ``request.timeout.ms``: the client then closes the connection
JOIN_TIMEOUT_MARGIN = 5_000  # a join may take so much more, as in Kafka's consumer


class ConnectionClient(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def frozen_until(self) -> int: ...

    def receive_response(self, request_id: int, response: GroupResponse) -> None: ...

    def handle_disconnect(
        self, connection: SimulatedConnection, request_ids: list[int]
    ) -> None: ...


@dataclass(slots=True)
class _InFlightRequest:
    connection: SimulatedConnection
    request_id: int
    request: GroupRequest
    response_delay: int

    def receive_response(self, response: GroupResponse) -> None:
        self.connection.send_response(self, response)


class _DiscardedResponse:
    """Discards the response to a duplicate request, which a proxy sent again."""

    def receive_response(self, response: GroupResponse) -> None: ...


class SimulatedConnection:
    """A connection; after it is closed, the client receives no responses."""

    def __init__(self, state: WorldState, broker: SimulatedBroker, end: ConnectionClient) -> None:
        self.is_open = True
        self._state = state
        self._broker = broker
        self._end = end
        self._queue: deque[_InFlightRequest] = deque()
        self._busy = False
        self._last_request = 0
        self._last_response = 0
        #: The requests without a response, each with its request timeout.
        self._timeouts: dict[int, ScheduledAction | None] = {}

    def send(self, request_id: int, request: GroupRequest) -> None:
        state = self._state
        now = state.now
        delivery = state.network.deliver_request(self._end.name, request, now)
        heartbeat = type(request) is Heartbeat
        is_periodic = heartbeat or type(request) is OffsetCommit
        self._timeouts[request_id] = None
        if delivery.lost or not heartbeat:
            self._start_request_timeout(request_id, request)
        if not delivery.lost:
            self._last_request = max(self._last_request, now + delivery.delay)
            in_flight = _InFlightRequest(self, request_id, request, delivery.response_delay)
            owner = self._end if heartbeat else None
            state.scheduler.add(
                self._last_request, self._arrive, in_flight, owner=owner, is_periodic=is_periodic
            )
        for delay in delivery.duplicate_delays:
            state.scheduler.add(now + delay, self._arrive_again, request)
        if delivery.disconnect_after is not None:
            state.scheduler.add(now + delivery.disconnect_after, self.disconnect)

    def _start_request_timeout(self, request_id: int, request: GroupRequest) -> None:
        timeout = REQUEST_TIMEOUT
        if isinstance(request, JoinGroup):
            timeout = max(timeout, request.rebalance_timeout + JOIN_TIMEOUT_MARGIN)
        due = self._state.now + timeout
        self._timeouts[request_id] = self._state.scheduler.add(due, self.disconnect)

    def _arrive(self, in_flight: _InFlightRequest) -> None:
        if self._broker.coordinator is None:
            self._state.scheduler.add(self._state.now + in_flight.response_delay, self.disconnect)
        elif not self._busy:
            self._handle_request(in_flight)
        elif self.is_open:
            self._queue.append(in_flight)
            if self._timeouts.get(in_flight.request_id, self) is None:
                self._start_request_timeout(in_flight.request_id, in_flight.request)

    def _arrive_again(self, request: GroupRequest) -> None:
        if self._broker.coordinator is not None:
            self._broker.request(_DiscardedResponse(), request)

    def _handle_request(self, in_flight: _InFlightRequest) -> None:
        self._busy = True
        if type(in_flight.request) is not Heartbeat:
            is_activity = type(in_flight.request) is not OffsetCommit
            self._state.add_record(
                TraceEventType.ASKED, self._end.name, in_flight.request, is_activity=is_activity
            )
        self._broker.request(in_flight, in_flight.request)

    def send_response(self, in_flight: _InFlightRequest, response: GroupResponse) -> None:
        state = self._state
        self._busy = False
        heartbeat = type(response) is HeartbeatResult and response.code is Code.NONE
        commit = type(response) is OffsetCommitResult and not any(response.codes.values())
        is_periodic = heartbeat or commit
        if not heartbeat:
            state.add_record(
                TraceEventType.ANSWERED, self._end.name, response, is_activity=not is_periodic
            )
        self._last_response = max(self._last_response, state.now + in_flight.response_delay)
        argument = (in_flight.request_id, response)
        owner = self._end if heartbeat else None
        state.scheduler.add(
            self._last_response,
            self._deliver_response,
            argument,
            owner=owner,
            is_periodic=is_periodic,
        )
        if self._queue:
            state.scheduler.add(state.now, self._read_next_request)

    def _read_next_request(self, _: object) -> None:
        if not self._queue or self._busy:
            return
        in_flight = self._queue.popleft()
        if self._broker.coordinator is None:
            self.disconnect(None)
        elif self.is_open:
            self._handle_request(in_flight)

    def _deliver_response(self, argument: tuple[int, GroupResponse]) -> None:
        if not self.is_open:
            return
        if self._end.frozen_until > self._state.now:
            self._state.scheduler.add(self._end.frozen_until, self._deliver_response, argument)
            return
        request_id, response = argument
        timeout = self._timeouts.pop(request_id, None)
        if timeout is not None:
            self._state.scheduler.cancel(timeout)
        self._end.receive_response(request_id, response)

    def disconnect(self, _: object) -> None:
        if not self.is_open:
            return
        if self._end.frozen_until > self._state.now:
            self._state.scheduler.add(self._end.frozen_until, self.disconnect)
            return
        waiting = list(self._timeouts)
        self.close()
        self._end.handle_disconnect(self, waiting)

    def close(self) -> None:
        """Closes the connection: responses are dropped, but requests in flight may still arrive."""
        self.is_open = False
        for timeout in self._timeouts.values():
            if timeout is not None:
                self._state.scheduler.cancel(timeout)
        self._timeouts.clear()
        self._queue.clear()
