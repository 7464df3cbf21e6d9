"""The simulated broker: a coordinator, its journal, the ways it can stop, and the connections to
it.

As in Kafka, the requests of one connection are handled one at a time and in order: a request that
is sent while a JoinGroup waits for its response is read after that response.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Protocol, assert_never

from rota.engine.coordinator.coordinator import Coordinator
from rota.engine.coordinator.events import (
    AppendEntries,
    AppendFailed,
    AppendSucceeded,
    CoordinatorCommand,
    GroupTimerFired,
    GroupTimerKey,
    GroupTimerKind,
    JournalLoaded,
    JournalLoadStarted,
    JournalUnloaded,
    RequestReceived,
    SendResponse,
    StartGroupTimer,
    StopGroupTimer,
    TopicsDeleted,
)
from rota.engine.coordinator.notes import GroupNote
from rota.engine.model.config import GroupConfig
from rota.engine.model.journal_entry import ClassicEntry, OffsetCommitEntry
from rota.engine.model.request import GroupRequest, Heartbeat, JoinGroup, OffsetCommit
from rota.engine.model.response import GroupResponse, HeartbeatResult, OffsetCommitResult
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.scheduler import ScheduledAction, WorldState
from rota.engine.simulator.seeded_random import make_uuid
from rota.engine.simulator.trace import TraceEventType
from rota.errors import Code


class CrashPoint(enum.Enum):
    """The points around an append at which the broker's process can crash."""

    BEFORE_APPEND = "before the entries are written"
    BEFORE_REPLAY = "after the entries are written, before they count"
    BEFORE_REPLY = "after the entries count, before anybody is answered"


class ReplyReceiver(Protocol):
    """Receives the reply to a request."""

    def receive_reply(self, reply: GroupResponse) -> None:
        """The coordinator has answered."""
        ...


class SimulatedBroker:
    """A broker with one coordinator. ``coordinator`` is None while the broker is down."""

    def __init__(self, stage: WorldState, config: GroupConfig, seed: int) -> None:
        self.coordinator: Coordinator | None = None
        self.journal: list[ClassicEntry] = []
        #: Where each group has got to.
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.timers: dict[GroupTimerKey, ScheduledAction] = {}
        #: Called when the broker's process ends: its connections break.
        self.on_stop: Callable[[], None] = lambda: None
        self._stage = stage
        self._config = config
        self._seed = seed
        self._ids = 0
        self._tokens = 0
        self._callers: dict[int, ReplyReceiver] = {}
        #: Counts coordinators: what was under way for an earlier one is void.
        self._life = 0
        self._written_by = 0
        self._crash: tuple[CrashPoint, int, int] | None = None

    def _new_id(self) -> str:
        self._ids += 1
        return make_uuid(self._seed, self._ids)

    # life and death

    def start(self, load_time: int = 0) -> None:
        """A new coordinator takes over the journal; loading takes this long."""
        assert self.coordinator is None, "the coordinator runs already"
        self.coordinator = Coordinator(self._config, self._new_id)
        self._life += 1
        self._stage.add_record(TraceEventType.COORDINATOR, "", "loading")
        self._carry_out(self.coordinator.handle(JournalLoadStarted(), self._stage.now))
        if load_time:
            due = self._stage.now + load_time
            self._stage.scheduler.add(due, self._load, self._life)
        else:
            self._load(self._life)

    def _load(self, life: int) -> None:
        if life != self._life or self.coordinator is None:
            return
        now = self._stage.now
        for entry in self.journal:
            self.coordinator.replay(entry)
        self._stage.add_record(TraceEventType.COORDINATOR, "", "loaded")
        self._carry_out(self.coordinator.handle(JournalLoaded(), now))

    def stop(self) -> None:
        """Stops the process at once; unwritten entries are lost."""
        if self.coordinator is None:
            return
        self._forget()
        self._stage.add_record(TraceEventType.COORDINATOR, "", "stopped")
        self.on_stop()

    def move_coordinator(self, load_time: int = 0) -> None:
        """Moves the coordinator to another broker in an orderly way: no connection breaks."""
        if self.coordinator is None:
            return
        self._stage.add_record(TraceEventType.COORDINATOR, "", "unloaded")
        self._carry_out(self.coordinator.handle(JournalUnloaded(), self._stage.now))
        self._forget()
        self.start(load_time)

    def crash_at(self, boundary: CrashPoint, downtime: int, load_time: int = 0) -> None:
        """Crashes the process at the next append and restarts it after the downtime."""
        self._crash = (boundary, downtime, load_time)

    def _dies_at(self, boundary: CrashPoint) -> bool:
        if self._crash is None or self._crash[0] is not boundary:
            return False
        _, downtime, load_time = self._crash
        self._crash = None
        self.stop()
        self._stage.scheduler.add(self._stage.now + downtime, self._restart, load_time)
        return True

    def _restart(self, load_time: int) -> None:
        if self.coordinator is None:
            self.start(load_time)

    def _forget(self) -> None:
        self.coordinator = None
        self._life += 1
        for entry in self.timers.values():
            self._stage.scheduler.cancel(entry)
        self.timers.clear()
        self._callers.clear()

    # what comes in

    def request(self, caller: ReplyReceiver, request: GroupRequest) -> None:
        """Gives a request to the coordinator, which runs."""
        assert self.coordinator is not None
        self._tokens += 1
        self._callers[self._tokens] = caller
        event = RequestReceived(self._tokens, request)
        self._carry_out(self.coordinator.handle(event, self._stage.now))

    def delete_topics(self, topics: tuple[str, ...]) -> None:
        """Topics are gone from the cluster."""
        if self.coordinator is not None:
            event = TopicsDeleted(tuple((topic, None) for topic in topics))
            self._carry_out(self.coordinator.handle(event, self._stage.now))

    def _fire(self, key: GroupTimerKey) -> None:
        assert self.coordinator is not None
        del self.timers[key]
        self._carry_out(self.coordinator.handle(GroupTimerFired(key), self._stage.now))

    def _append_ended(self, given: tuple[int, AppendEntries, Code]) -> None:
        life, append, code = given
        if life != self._life or self.coordinator is None:
            return
        now = self._stage.now
        if code is not Code.NONE:
            self._carry_out(self.coordinator.handle(AppendFailed(append.append_id, code), now))
            return
        self.journal += append.entries
        news = not _is_commit_append(append)
        for entry in append.entries:
            self._stage.add_record(TraceEventType.JOURNAL, entry.group, entry, news=news)
            if isinstance(entry, OffsetCommitEntry):
                key = entry.group, TopicPartition(entry.topic, entry.partition)
                self.committed[key] = entry.offset
        if self._dies_at(CrashPoint.BEFORE_REPLAY):
            return
        commands = self.coordinator.handle(AppendSucceeded(append.append_id), now)
        if not self._dies_at(CrashPoint.BEFORE_REPLY):
            self._carry_out(commands)

    # what goes out

    def _carry_out(self, commands: list[CoordinatorCommand]) -> None:
        life = self._life
        for command in commands:
            if life != self._life:  # it died over one of them
                return
            match command:
                case StartGroupTimer():
                    self._start_timer(command)
                case SendResponse():
                    self._callers.pop(command.token).receive_reply(command.response)
                case StopGroupTimer():
                    entry = self.timers.pop(command.key, None)
                    if entry is not None:
                        self._stage.scheduler.cancel(entry)
                case AppendEntries():
                    self._append(command)
                case GroupNote():
                    self._stage.add_record(TraceEventType.NOTE, command.group, command)
                case _:
                    assert_never(command)

    def _start_timer(self, command: StartGroupTimer) -> None:
        entry = self.timers.get(command.key)
        if entry is None:
            beats = command.key.kind in {GroupTimerKind.SESSION, GroupTimerKind.RETENTION}
            entry = ScheduledAction(self._fire, command.key, command.key, beat=beats)
            self.timers[command.key] = entry
        self._stage.scheduler.reschedule(entry, command.due_at)

    def _append(self, append: AppendEntries) -> None:
        stage = self._stage
        beat = _is_commit_append(append)
        if not beat:
            stage.mark_activity()
        if self._dies_at(CrashPoint.BEFORE_APPEND):
            return
        delay, code = stage.network.deliver_append(stage.now)
        self._written_by = max(self._written_by, stage.now + delay)  # one after another
        given = (self._life, append, code)
        stage.scheduler.add(self._written_by, self._append_ended, given, beat=beat)


def _is_commit_append(append: AppendEntries) -> bool:
    """Whether an append is an offset commit; members commit repeatedly while nothing happens."""
    return isinstance(append.entries[0], OffsetCommitEntry)


#: ``request.timeout.ms``: then a client gives a connection up.
REQUEST_TIMEOUT = 30_000

#: A join may take the rebalance timeout and this much more, as in Kafka's consumer.
JOIN_TIMEOUT_MARGIN = 5_000


class ConnectionClient(Protocol):
    """The process that uses a connection."""

    @property
    def name(self) -> str:
        """The name of the process."""
        ...

    @property
    def frozen_until(self) -> int:
        """Until when it does not notice anything."""
        ...

    def receive_reply(self, request_id: int, reply: GroupResponse) -> None:
        """A reply has come."""
        ...

    def handle_disconnect(self, link: SimulatedConnection, request_ids: list[int]) -> None:
        """The link is broken, and no reply to these will come."""
        ...


class _InFlightRequest:
    """A request in flight; receives the coordinator's reply."""

    __slots__ = ("connection", "reply_delay", "request", "request_id")

    def __init__(
        self, link: SimulatedConnection, request_id: int, request: GroupRequest, reply_delay: int
    ) -> None:
        self.connection = link
        self.request_id = request_id
        self.request = request
        self.reply_delay = reply_delay

    def receive_reply(self, reply: GroupResponse) -> None:
        self.connection.send_reply(self, reply)


class _DiscardedReply:
    """Discards the reply to a duplicate request, which a proxy sent again."""

    __slots__ = ()

    def receive_reply(self, reply: GroupResponse) -> None:
        """Nothing follows."""


class SimulatedConnection:
    """An open connection; after it is closed no reply comes back."""

    __slots__ = (
        "_busy",
        "_end",
        "_last_reply",
        "_last_request",
        "_line",
        "_node",
        "_patience",
        "_stage",
        "is_open",
    )

    def __init__(self, stage: WorldState, node: SimulatedBroker, end: ConnectionClient) -> None:
        self.is_open = True
        self._stage = stage
        self._node = node
        self._end = end
        self._line: deque[_InFlightRequest] = deque()
        self._busy = False
        self._last_request = 0
        self._last_reply = 0
        #: The requests that wait for a reply, each with the end of the client's patience.
        self._patience: dict[int, ScheduledAction | None] = {}

    def send(self, request_id: int, request: GroupRequest) -> None:
        """Sends a request on its way."""
        stage = self._stage
        now = stage.now
        fate = stage.network.deliver_request(self._end.name, request, now)
        heartbeat = type(request) is Heartbeat
        beat = heartbeat or type(request) is OffsetCommit
        self._patience[request_id] = None
        if fate.lost or not heartbeat:
            self._lose_patience_later(request_id, request)
        if not fate.lost:
            self._last_request = max(self._last_request, now + fate.delay)
            call = _InFlightRequest(self, request_id, request, fate.reply_delay)
            holder = self._end if heartbeat else None
            stage.scheduler.add(self._last_request, self._arrive, call, holder=holder, beat=beat)
        for delay in fate.duplicate_delays:
            stage.scheduler.add(now + delay, self._arrive_again, request)
        if fate.disconnect_after is not None:
            stage.scheduler.add(now + fate.disconnect_after, self.disconnect)

    def _lose_patience_later(self, request_id: int, request: GroupRequest) -> None:
        patience = REQUEST_TIMEOUT
        if isinstance(request, JoinGroup):
            patience = max(patience, request.rebalance_timeout + JOIN_TIMEOUT_MARGIN)
        due = self._stage.now + patience
        self._patience[request_id] = self._stage.scheduler.add(due, self.disconnect)

    # at the coordinator

    def _arrive(self, call: _InFlightRequest) -> None:
        if self._node.coordinator is None:
            self._stage.scheduler.add(self._stage.now + call.reply_delay, self.disconnect)
        elif not self._busy:
            self._hand_in(call)
        elif self.is_open:
            self._line.append(call)
            if self._patience.get(call.request_id, self) is None:
                self._lose_patience_later(call.request_id, call.request)

    def _arrive_again(self, request: GroupRequest) -> None:
        if self._node.coordinator is not None:
            self._node.request(_DiscardedReply(), request)

    def _hand_in(self, call: _InFlightRequest) -> None:
        self._busy = True
        if type(call.request) is not Heartbeat:
            news = type(call.request) is not OffsetCommit
            self._stage.add_record(TraceEventType.ASKED, self._end.name, call.request, news=news)
        self._node.request(call, call.request)

    def send_reply(self, call: _InFlightRequest, reply: GroupResponse) -> None:
        """Sends the coordinator's reply, and reads the next request."""
        stage = self._stage
        self._busy = False
        heartbeat = type(reply) is HeartbeatResult and reply.code is Code.NONE
        beat = heartbeat or (type(reply) is OffsetCommitResult and not any(reply.codes.values()))
        if not heartbeat:
            stage.add_record(TraceEventType.ANSWERED, self._end.name, reply, news=not beat)
        self._last_reply = max(self._last_reply, stage.now + call.reply_delay)
        given = (call.request_id, reply)
        holder = self._end if heartbeat else None
        stage.scheduler.add(self._last_reply, self._come_back, given, holder=holder, beat=beat)
        if self._line:
            stage.scheduler.add(stage.now, self._read_on)

    def _read_on(self, _: object) -> None:
        if not self._line or self._busy:
            return
        call = self._line.popleft()
        if self._node.coordinator is None:
            self.disconnect(None)
        elif self.is_open:
            self._hand_in(call)

    # at the process

    def _come_back(self, given: tuple[int, GroupResponse]) -> None:
        if not self.is_open:
            return
        if self._end.frozen_until > self._stage.now:
            self._stage.scheduler.add(self._end.frozen_until, self._come_back, given)
            return
        request_id, reply = given
        patience = self._patience.pop(request_id, None)
        if patience is not None:
            self._stage.scheduler.cancel(patience)
        self._end.receive_reply(request_id, reply)

    def disconnect(self, _: object) -> None:
        """Breaks the connection; the process notices."""
        if not self.is_open:
            return
        if self._end.frozen_until > self._stage.now:
            self._stage.scheduler.add(self._end.frozen_until, self.disconnect)
            return
        waiting = list(self._patience)
        self.close()
        self._end.handle_disconnect(self, waiting)

    def close(self) -> None:
        """Closes the connection: no reply comes back, but requests in flight may still arrive."""
        self.is_open = False
        for patience in self._patience.values():
            if patience is not None:
                self._stage.scheduler.cancel(patience)
        self._patience.clear()
        self._line.clear()
