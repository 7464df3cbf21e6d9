"""In place of a world's coordinator: a whole broker, storage included, that is spoken to by frames.

It lives on a disk that tears and refuses, and dies as often as its world wants. What it writes is
read back, for the checks that know the journal.
"""

from __future__ import annotations

import functools
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any
from unittest import mock

from rota.broker import groups, topics
from rota.broker.dispatch import HandlerContext
from rota.broker.events import (
    CloseConnection,
    ConnectionClosed,
    ConnectionId,
    ConnectionOpened,
    FrameReceived,
    NodeEvent,
    Wakeup,
    WriteLogLine,
    WriteResponse,
)
from rota.broker.node import BrokerNode
from rota.broker.storage.log import KeyValue, LogAppendInfo
from rota.broker.timers import Timers
from rota.engine.coordinator import events
from rota.engine.coordinator.events import CoordinatorCommand, GroupTimerKey
from rota.engine.formats import journal
from rota.engine.model.config import BrokerConfig, GroupConfig
from rota.engine.model.journal_entry import ClassicEntry, OffsetCommitEntry
from rota.engine.model.request import GroupRequest, JoinGroup
from rota.engine.model.response import JoinGroupResult
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator import broker, process, world
from rota.engine.simulator.broker import CrashPoint, ResponseReceiver, SimulatedConnection
from rota.engine.simulator.process import ProcessConfig, SimulatedProcess
from rota.engine.simulator.scheduler import ScheduledAction, WorldState
from rota.engine.simulator.seeded_random import SeededRandom
from rota.engine.simulator.trace import TraceEventType
from tests.support.coordinator import wire
from tests.support.faulty_disk import FaultyDisk, Stopped
from tests.support.node import build_node, decode_response, is_fault, open_storage, request_frame
from tests.support.simulation.coordinator_checker import CheckedCoordinator, CoordinatorChecker
from tests.support.simulation.ownership_checker import CheckedMember, OwnershipChecker
from tests.support.simulation.plan import Plan
from tests.support.simulation.response_checker import ResponseChecker
from tests.support.simulation.rule import must
from tests.support.simulation.worlds import CheckedWorld

#: One coordinator, and segments that are soon full, so that they are compacted.
CONFIG = BrokerConfig(offsets_partitions=1, offsets_segment_bytes=8_192)
PROBED = {"probe": 1}
NEVER = 1 << 60


class Broker(broker.SimulatedBroker):
    """A broker's process, and the disk that outlives it."""

    def __init__(self, state: WorldState, config: GroupConfig, seed: int) -> None:
        super().__init__(state, config, seed)
        self.answers = ResponseChecker()
        #: What a check has raised: the node would take it for a fault of one request.
        self.broken: Exception | None = None
        self.lines: list[str] = []
        self.alarms = Timers()
        self._chance = SeededRandom(seed, 4)
        self._disk = FaultyDisk(seed)
        self._topics: Mapping[str, int] = {}
        self._running: HandlerContext | None = None
        self._node: BrokerNode | None = None
        #: What may or may not be on the disk when the process dies over it.
        self._writing: list[ClassicEntry] = []
        #: It dies before anybody is answered.
        self._doomed = False
        self._alarm = ScheduledAction(self._woken, None, None, is_periodic=True)
        self._connections: dict[ConnectionId, tuple[ResponseReceiver, GroupRequest, Any]] = {}
        self._links: dict[SimulatedConnection, ConnectionId] = {}
        self._opened = 0

    # start and stop

    def start(self, load_time: int = 0) -> None:
        assert self.coordinator is None, "the broker runs already"
        if load_time:
            self._state.scheduler.add(self._state.now + load_time, self._restart, 0)
            return
        self._epoch += 1
        self._state.add_record(TraceEventType.COORDINATOR, "", "loading")
        self._make()
        self._state.add_record(TraceEventType.COORDINATOR, "", "loaded")
        self.set_topics(self._topics)

    def _make(self) -> None:
        storage = open_storage(
            self._disk,
            now=self._state.now,
            new_id=self._new_bytes,
            report=self.lines.append,
            config=CONFIG,
        )
        self.alarms = storage.alarms
        self._settle(storage.topics)
        self._node = build_node(
            storage,
            now=self._state.now,
            new_text=self._new_id,
            log=self._say,
            config=CONFIG,
            group_config=self._config,
        )
        self._running = self._node.context
        self._running.groups.find_coordinator("any", self._state.now)
        self._wait()

    def _settle(self, stored: topics.Topics) -> None:
        """What was being written when it died is there as a whole, or not at all."""
        log = stored.get_log(CONSUMER_OFFSETS_TOPIC, 0)
        end = 0 if log is None else log.log_end_offset
        if end != len(self.journal):
            whole = end == len(self.journal) + len(self._writing)
            must(whole, "all or nothing is written", end, len(self.journal), self._writing)
            self._keep(self._writing)
        self._writing = []

    def stop(self) -> None:
        if self.coordinator is None:
            return
        gone, self._disk = self._disk, self._disk.kill()
        gone.stop_at(NEVER)  # what the dead process held may be thrown away in peace
        self._node = self._running = None
        self._connections.clear()
        self._links.clear()
        self._state.scheduler.cancel(self._alarm)
        super().stop()

    def move_coordinator(self, load_time: int = 0) -> None:
        """It is asked to move away, and somebody looks for it later."""
        if self._running is None:
            return
        self._state.add_record(TraceEventType.COORDINATOR, "", "unloaded")
        self._do(functools.partial(self._running.groups.move_coordinator, "any"))
        self._state.scheduler.add(self._state.now + load_time, self._look, self._epoch)

    def _look(self, epoch: int) -> None:
        if epoch == self._epoch and self._running is not None:
            self._do(functools.partial(self._running.groups.find_coordinator, "any"))

    def set_topics(self, wanted: Mapping[str, int]) -> None:
        """The cluster's topics are these from now on."""
        self._topics = dict(wanted)
        if self._running is not None:
            self._do(self._change_topics)

    def _change_topics(self, now: int) -> None:
        assert self._running is not None
        stored, wanted = self._running.topics, {**self._topics, **PROBED}
        for topic in tuple(stored):
            if topic.name not in wanted and not topic.is_internal:
                stored.delete(topic.name, now)
        for name, count in wanted.items():
            known = stored.get(name)
            if known is None:
                stored.create(name, count, {}, now)
            elif known.partition_count < count:
                stored.create_partitions(name, count, now)

    def delete_topics(self, topics: tuple[str, ...]) -> None:
        """They are gone already."""

    def _say(self, level: int, text: str) -> None:
        self.lines.append(text)

    def _new_bytes(self) -> bytes:
        self._ids += 1
        return struct.pack(">qq", self._seed, self._ids)

    # what is written

    def append(
        self,
        write: Callable[..., LogAppendInfo],
        stored: topics.Topics,
        name: str,
        partition: int,
        pairs: Iterable[KeyValue],
        now: int,
    ) -> LogAppendInfo:
        """Stands before the real append, and lets the world interfere."""
        pairs = list(pairs)
        self._writing = [_classic(*pair) for pair in pairs]
        if self._dies(CrashPoint.BEFORE_APPEND):
            if self._chance.happens(0.5):
                raise Stopped
            self._disk.stop_at(self._chance.below(3))
        _, code = self._state.network.deliver_append(now)
        if code:
            self._disk.refuse(
                "append", f"{CONSUMER_OFFSETS_TOPIC}-0/*.log", partly=self._chance.below(100)
            )
        try:
            appended = write(stored, name, partition, pairs, now)
        finally:
            self._disk.allow()
        self._keep(self._writing)
        self._writing = []
        if self._dies(CrashPoint.BEFORE_REPLAY):
            raise Stopped
        self._doomed = self._doomed or self._dies(CrashPoint.BEFORE_RESPONSE)
        return appended

    def _dies(self, boundary: CrashPoint) -> bool:
        return self._crash is not None and self._crash[0] is boundary and not self._doomed

    def _keep(self, entries: list[ClassicEntry]) -> None:
        for entry in entries:
            is_activity = not isinstance(entry, OffsetCommitEntry)
            self._state.add_record(
                TraceEventType.JOURNAL, entry.group, entry, is_activity=is_activity
            )
            if isinstance(entry, OffsetCommitEntry):
                key = entry.group, TopicPartition(entry.topic, entry.partition)
                self.committed[key] = entry.offset
        self.journal += entries

    # what comes in and goes out

    def request(self, caller: ResponseReceiver, request: GroupRequest) -> None:
        """Sends it as a frame, over the connection of its link or over one of its own."""
        self._hang_up()
        connection = self._connection(caller, request)
        message = wire.encode(request)
        self._connections[connection] = caller, request, message
        client = request.client_id if isinstance(request, JoinGroup) else "c"
        data = request_frame(message, message.API_VERSION, 1, client)
        self._happen(FrameReceived(connection, data))

    def _connection(self, caller: ResponseReceiver, request: GroupRequest) -> ConnectionId:
        link = getattr(caller, "connection", None)
        if link in self._links:
            return self._links[link]
        self._opened += 1
        connection = ConnectionId(self._opened)
        self._happen(
            ConnectionOpened(
                connection, request.client_host if isinstance(request, JoinGroup) else "h"
            )
        )
        if link is not None:
            self._links[link] = connection
        return connection

    def _hang_up(self) -> None:
        """Connections that their clients have given up are closed, whatever waits on them."""
        for link, connection in list(self._links.items()):
            if not link.is_open:
                del self._links[link]
                self._connections.pop(connection, None)
                self._happen(ConnectionClosed(connection))

    def _woken(self, _: object) -> None:
        self._happen(Wakeup())

    def _do(self, act: Callable[[int], object]) -> None:
        """Something is done to the broker from outside, as its owner can."""
        self._guarded(lambda: act(self._state.now))
        self._happen(Wakeup())

    def _happen(self, event: NodeEvent) -> None:
        if self._node is None:
            return
        running = self._node
        epoch = self._epoch
        commands = self._guarded(lambda: running.handle(event, self._state.now))
        if self.broken is not None:
            raise self.broken
        for command in commands or ():
            if epoch != self._epoch:
                return
            match command:
                case WriteResponse(connection, data):
                    self._answer(connection, bytes(data))
                case CloseConnection(connection, reason):
                    raise AssertionError(f"connection {connection} was closed: {reason}")
                case WriteLogLine(_, text):
                    must(not is_fault(text), "nothing raises", text)
                    self.lines.append(text)
                case _:
                    raise AssertionError(f"no member asks for what leads to this: {command}")
        self._wait()

    def _guarded(self, act: Callable[[], Any]) -> Any:
        """What comes of it; nothing, if it died over it."""
        try:
            found = act()
        except Stopped:
            self._doomed = True
        if not self._doomed:
            return found
        self._doomed = False
        assert self._crash is not None
        boundary = self._crash[0]
        assert self._crashes_at(boundary)
        return None

    def _answer(self, connection: ConnectionId, data: bytes) -> None:
        caller, request, message = self._connections.pop(connection)
        answer = decode_response(data, message, message.API_VERSION, 1)
        reply = wire.decode(request, answer)
        if isinstance(reply, JoinGroupResult) and not reply.code:
            self._recognise(reply)
        caller.receive_response(reply)

    def _recognise(self, reply: JoinGroupResult) -> None:
        """The checks know it by the object that the coordinator gave, not by what came of it."""
        told = self.answers.told
        given = next(one for one in reversed(told.values()) if one.reply == reply)
        told[id(reply)] = given._replace(reply=reply)

    def _wait(self) -> None:
        if self._node is not None and (at := self._node.next_timer()) is not None:
            self._state.scheduler.reschedule(self._alarm, at)


def _classic(key: bytes | None, value: bytes | None) -> ClassicEntry:
    entry = journal.decode_record(key or b"", value)
    assert isinstance(entry, ClassicEntry)
    return entry


class RaisingCoordinator(CheckedCoordinator):
    """What is wrong with it is not kept quiet by the broker around it."""

    def __init__(self, broker: Broker, *given: Any) -> None:
        super().__init__(*given)
        self._broker = broker

    def handle(self, event: events.CoordinatorEvent, now: int) -> list[CoordinatorCommand]:
        try:
            return super().handle(event, now)
        except Exception as error:
            self._broker.broken = self._broker.broken or error
            raise


class CheckedBrokerWorld(CheckedWorld):
    """A random world around a whole broker."""

    def __init__(self, plan: Plan, driver: CoordinatorChecker, checker: OwnershipChecker) -> None:
        self._deleted = False
        super().__init__(plan, driver, checker)
        self.whole_broker.set_topics(self._topics)

    @property
    def whole_broker(self) -> Broker:
        assert isinstance(self.broker, Broker)
        return self.broker

    @property
    def timers(self) -> Iterable[GroupTimerKey]:
        """The coordinator's timers, as far as an alarm is set for them."""
        names = self.whole_broker.alarms.names
        return [name[1] for name in names if isinstance(name, tuple) and name[0] == 0]

    def start(self, program: ProcessConfig) -> SimulatedProcess:
        if self._deleted:
            self.disturbed.add(program.name)
        return super().start(program)

    def delete_topic(self, topic: str) -> None:
        """As in Kafka, whoever commits offsets of a topic that is gone tries so again and again
        before it joins, and may be too late.
        """
        self._deleted = True
        self.disturbed.update(self.processes)
        super().delete_topic(topic)

    def _change_topics(self) -> None:
        super()._change_topics()
        self.whole_broker.set_topics(self._topics)


def create_checked_world(plan: Plan, tally: Counter[str], stack: ExitStack) -> CheckedBrokerWorld:
    """A world of this plan; until the stack is closed, all machines are watched."""
    driver = CoordinatorChecker(tally)
    checker = OwnershipChecker(driver)
    made: list[Broker] = []

    def broker(state: WorldState, config: GroupConfig, seed: int) -> Broker:
        made.append(Broker(state, config, seed))
        made[0].answers = driver.answers
        return made[0]

    def coordinator(config: GroupConfig, new_id: Callable[[], str]) -> CheckedCoordinator:
        driver.journal = made[0].journal
        made[0].coordinator = found = RaisingCoordinator(made[0], driver, config, new_id)
        return found

    write = topics.Topics.append_records

    def append(stored: topics.Topics, *given: Any) -> LogAppendInfo:
        return made[0].append(write, stored, *given)

    for module, name, in_place in (
        (world, "SimulatedBroker", broker),
        (groups, "Coordinator", coordinator),
        (process, "MemberStateMachine", functools.partial(CheckedMember, checker)),
        (topics.Topics, "append_records", append),
    ):
        stack.enter_context(mock.patch.object(module, name, in_place))
    return CheckedBrokerWorld(plan, driver, checker)
