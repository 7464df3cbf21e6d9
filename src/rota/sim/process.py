"""A member's process: its machine, and the application around it.

The application polls, works on what it got, and polls again. With ``processing`` 0 it sits inside
``poll`` all the time, which is how most consumers spend their days.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from rota.assignors.interface import Assignor
from rota.member.event import (
    Answered,
    AssignmentMade,
    Call,
    CallInterceptors,
    CallListener,
    CloseAsked,
    Command,
    CommitAsked,
    CoordinatorFound,
    CoordinatorMissing,
    Event,
    FindCoordinator,
    FinishCommit,
    Finished,
    ListenerReturned,
    MakeAssignment,
    MetadataUpdated,
    Note,
    PollBegan,
    PollEnded,
    Raise,
    RequestFailed,
    RequestMetadata,
    RunCallback,
    Send,
    SetAssignment,
    StartTimer,
    StopTimer,
    Subscribed,
    Timer,
    TimerFired,
    Withhold,
)
from rota.member.leader import make
from rota.member.machine import Machine
from rota.model.config import MemberConfig
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import JoinReply, Reply
from rota.model.request import CommitOffsets, Heartbeat, Join, Request
from rota.model.topic import Cluster, TopicPartition
from rota.sim.agenda import Entry
from rota.sim.link import Link
from rota.sim.node import Node
from rota.sim.stage import Stage
from rota.sim.trace import What
from rota.sim.traffic import EVENLY, Reader, Traffic

BEATING = frozenset({Timer.HEARTBEAT, Timer.SESSION, Timer.POLL, Timer.COMMIT})
"""Timers that run on while nothing happens."""
CLOSE_TIMEOUT = 30_000
"""How long an application waits for its consumer to close: Kafka's default."""

Listener = Callable[[Call, tuple[TopicPartition, ...]], Exception | None]


def _content(_call: Call, _partitions: tuple[TopicPartition, ...]) -> Exception | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a process runs. Times are in milliseconds."""

    name: str
    config: MemberConfig
    assignors: Callable[[], Sequence[Assignor]]
    """Makes the strategies; each process has its own, because they remember."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    processing: int = 0
    """How long it works on what a poll gave it."""
    listener_time: int = 0
    """How long a call of its rebalance listener takes."""
    listener: Listener = _content
    """Decides whether a call raises."""
    host: str = ""
    """Its address, as the broker sees it."""
    traffic: Traffic = EVENLY
    """What is written to the topics it reads."""
    capacity: int | None = None
    """How many records a second it can handle; None: all there are."""


class Process:
    """A running process. What it is told by machine, network and script happens at once."""

    def __init__(
        self,
        stage: Stage,
        node: Node,
        program: Program,
        cluster: Callable[[], Cluster],
        on_end: Callable[[Process], None],
    ) -> None:
        self.name = program.name
        self.program = program
        self.machine = Machine(program.config, program.assignors(), self._consumed)
        self.alive = True
        self.frozen_until = 0
        self.stalled_until = 0
        self.processing = program.processing
        self.link: Link | None = None
        self.member_id = ""
        self.owned: tuple[TopicPartition, ...] = ()
        self.timers: dict[Timer, Entry] = {}
        self.loop: Entry | None = None
        """The end of the work outside of poll; None while inside."""
        self._stage = stage
        self._node = node
        self._cluster = cluster
        self._on_end = on_end
        self._started_at = stage.now
        self._calls = 0
        """Listener calls that have not returned."""
        self._closing = False
        self._stalled = False
        self._paused = False
        self._commits = 0
        self._made: AssignmentMade | None = None
        self._reader = Reader(program.traffic, program.capacity, self._committed)
        stage.expect_period(program.config.heartbeat_interval)
        self._expect_loop()

    # what the script does to it

    def start(self) -> None:
        """The application subscribes and polls."""
        self._stage.tell(What.STARTED, self.name, (self.program.topics, self.program.pattern))
        self.handle(Subscribed(self.program.topics, self.program.pattern))
        self.handle(PollBegan())

    def crash(self) -> None:
        """It is gone without a word."""
        self._stage.tell(What.CRASHED, self.name)
        self._end()

    def leave(self) -> None:
        """The application closes its consumer, once it is done with what it has in hand."""
        if self._closing or not self._ready(lambda _: self.leave()):
            return
        self._closing = True
        self._stage.tell(What.LEAVING, self.name)
        if self.loop is None:
            self._close()

    def pause(self, time: int) -> None:
        """The whole process is frozen: a long garbage collection, SIGSTOP, a suspended machine."""
        if self.frozen_until <= self._stage.now:
            self._stage.tell(What.PAUSED, self.name)
            self._stage.agenda.add(self._stage.now + time, self._resume)
            self._read()
            self._paused = True
        self.frozen_until = max(self.frozen_until, self._stage.now + time)

    def _resume(self, _: object) -> None:
        if self._ready(self._resume):
            self._stage.tell(What.RESUMED, self.name)
            self._read()
            self._paused = False

    def stall(self, time: int) -> None:
        """The application stays outside of poll; heartbeats go on."""
        if not self._ready(lambda _: self.stall(time)):
            return
        self._set_stalled()
        self.stalled_until = max(self.stalled_until, self._stage.now + time)
        self._leave_poll_if_due()

    def slow_down(self, processing: int) -> None:
        """From its next poll on, the application works so long on what it got."""
        if not self._ready(lambda _: self.slow_down(processing)):
            return
        self._stage.tell(What.SLOWED, self.name, processing)
        self.processing = processing
        self._expect_loop()
        self._leave_poll_if_due()

    def subscribe(self, topics: tuple[str, ...], pattern: str | None = None) -> None:
        """The application subscribes to something else."""
        if not self._ready(lambda _: self.subscribe(topics, pattern)):
            return
        self._stage.tell(What.SUBSCRIBED, self.name, (topics, pattern))
        self.handle(Subscribed(topics, pattern))

    def commit(self, *, wait: int | None = None) -> None:
        """The application commits its positions, and waits so long for it, or not at all."""
        if not self._ready(lambda _: self.commit(wait=wait)):
            return
        self._commits += 1
        until = None if wait is None else self._stage.now + wait
        self.handle(CommitAsked(self._commits, None, until))

    def refresh_metadata(self, after: int) -> None:
        """It looks at the cluster's topics at its next round, one every so many milliseconds."""
        due = self._stage.now
        if after:
            due += after - (due - self._started_at) % after
        self._stage.agenda.add(due, self._see_cluster)

    # what machine and network tell it

    def handle(self, event: Event) -> None:
        """Gives an event to the machine, and does what it says; strategies take no time here."""
        following: Event | None = event
        while following is not None:
            for command in self.machine.handle(following, self._stage.now):
                self._carry_out(command)
            following, self._made = self._made, None
        self._leave_poll_if_due()

    def replied(self, request_id: int, reply: Reply) -> None:
        """A reply has come."""
        self.handle(Answered(request_id, reply))
        if type(reply) is JoinReply and self.machine.member_id != self.member_id:
            self.member_id = self.machine.member_id
            self._stage.tell(What.IDENTITY, self.name, self.member_id)

    def broken(self, link: Link, request_ids: list[int]) -> None:
        """The link is broken, and no reply to these will come."""
        if self.link is link:
            self.link = None
        for request_id in request_ids:
            self._stage.tell(What.FAILED, self.name)
            self.handle(RequestFailed(request_id))

    def _carry_out(self, command: Command) -> None:  # noqa: C901, PLR0912 (one case a command)
        stage = self._stage
        match command:
            case StartTimer():
                self._start_timer(command)
            case Send():
                if self.link is None or not self.link.is_open:
                    self.link = Link(stage, self._node, self)
                if not self._recurs(command.request):
                    stage.mark_news()
                request = command.request
                if type(request) is Join:
                    request = replace(request, client_host=self.program.host)
                self.link.send(command.request_id, request)
            case MakeAssignment():
                self._made = make(command)  # told when all else is done that came with it
            case StopTimer():
                entry = self.timers.get(command.timer)
                if entry is not None:
                    stage.agenda.cancel(entry)
            case SetAssignment():
                self._read()
                self.owned = command.partitions
                self._reader.take(self.owned, stage.now)
                stage.tell(What.ASSIGNMENT, self.name, (command.generation, command.partitions))
            case CallListener():
                self._call_listener(command)
            case Withhold():
                stage.tell(What.WITHHELD, self.name, command.partitions)
            case FindCoordinator():
                self._look_for_coordinator()
            case RequestMetadata():
                fate = stage.nature.request(self.name, None, stage.now)
                stage.agenda.add(stage.now + fate.delay + fate.reply_delay, self._see_cluster)
            case FinishCommit() | RunCallback():
                error = None if command.error is None else type(command.error).__name__
                stage.tell(What.COMMIT, self.name, error)
            case CallInterceptors():
                pass
            case Raise():
                stage.tell(
                    What.RAISED, self.name, f"{type(command.error).__name__}: {command.error}"
                )
                stage.agenda.add(stage.now, self._give_up)
            case Note():
                stage.tell(What.SAID, self.name, command.text)
            case Finished():
                stage.tell(What.GONE, self.name)
                self._end()
            case _:
                assert_never(command)

    def _recurs(self, request: Request) -> bool:
        # who works between polls may do more at the next one, once its commit is through
        idle = not self.processing
        return type(request) is Heartbeat or (type(request) is CommitOffsets and idle)

    def _start_timer(self, command: StartTimer) -> None:
        # an entry is kept when its timer fires, for it will be started again
        entry = self.timers.get(command.timer)
        if entry is None:
            beat = command.timer in BEATING
            entry = Entry(self._fire, command.timer, self, beat=beat)
            self.timers[command.timer] = entry
        self._stage.agenda.move(entry, command.at)

    def _fire(self, timer: Timer) -> None:
        if self.frozen_until > self._stage.now:
            self._stage.agenda.move(self.timers[timer], self.frozen_until)
            return
        commits = timer is Timer.COMMIT and self.loop is None  # else it does at the next poll
        if timer is not Timer.HEARTBEAT and not commits:
            self._stage.mark_news()  # the others are there to be moved, not to fire
        self.handle(TimerFired(timer))

    def _look_for_coordinator(self) -> None:
        stage = self._stage
        stage.mark_news()
        if self.link is not None:  # what was sent through it has been given up
            self.link.close()
            self.link = None
        fate = stage.nature.request(self.name, None, stage.now)
        stage.agenda.add(stage.now + fate.delay + fate.reply_delay, self._found, not fate.lost)

    def _found(self, asked: bool) -> None:
        if self._ready(self._found, asked):
            there = asked and self._node.coordinator is not None
            self.handle(CoordinatorFound() if there else CoordinatorMissing())

    def _see_cluster(self, _: object) -> None:
        if self._ready(self._see_cluster):
            self.handle(MetadataUpdated(self._cluster()))

    def _call_listener(self, command: CallListener) -> None:
        inside = self.loop is None or self._closing
        assert inside, f"{self.name}: its listener is called outside of poll"
        stage = self._stage
        stage.tell(What.LISTENER, self.name, (command.call.value, command.partitions))
        self._calls += 1
        error = self.program.listener(command.call, command.partitions)
        due = stage.now + self.program.listener_time
        stage.agenda.add(due, self._listener_returned, (command.call_id, error))

    def _listener_returned(self, given: tuple[int, Exception | None]) -> None:
        if self._ready(self._listener_returned, given):
            self._calls -= 1
            self.handle(ListenerReturned(*given))

    def _give_up(self, _: object) -> None:
        """What an application does with an error out of poll: it closes its consumer."""
        if self._ready(self._give_up):
            self.leave()

    def _ready(self, action: Callable[..., None], given: object = None) -> bool:
        """False if the process is gone, or frozen: then it acts when it goes on."""
        if not self.alive:
            return False
        if self.frozen_until > self._stage.now:
            self._stage.agenda.add(self.frozen_until, action, given)
            return False
        return True

    # its own loop

    def _leave_poll_if_due(self) -> None:
        """A poll returns as soon as there are records: that is, partitions."""
        if self.loop is not None or self._calls or self._closing or not self.alive:
            return
        now = self._stage.now
        stalled = self.stalled_until > now
        if stalled or (self.processing and self.owned):
            due = self.stalled_until if stalled else now + self.processing
            agenda = self._stage.agenda
            beat = not stalled and not self._too_slow
            self.loop = agenda.add(due, self._poll_again, holder=self, beat=beat)
            if self._too_slow:  # what it works on will not be its own
                self._set_stalled()
            self.handle(PollEnded())

    def _set_stalled(self) -> None:
        if not self._stalled:
            self._read()
            self._stalled = True
            self._stage.tell(What.STALLED, self.name)

    @property
    def _too_slow(self) -> bool:
        """Its work takes longer than the group waits for the next poll."""
        return self.processing > self.program.config.max_poll_interval

    def _expect_loop(self) -> None:
        if not self._too_slow:  # otherwise each turn of its loop is news, and no cycle
            self._stage.expect_period(self.processing)

    def _poll_again(self, _: object) -> None:
        assert self.loop is not None
        now = self._stage.now
        later = max(self.frozen_until, self.stalled_until)
        if later > now:
            self.loop.beat = False
            self._stage.agenda.move(self.loop, later)
            return
        if self._stalled:
            self._read()
            self._stalled = False
            self._stage.tell(What.WOKEN, self.name)
        self.loop = None
        if self._closing:
            self._close()
        else:
            self.handle(PollBegan())

    def _close(self) -> None:
        self.handle(CloseAsked(self._stage.now + CLOSE_TIMEOUT))

    # what it reads

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        self._read()
        return self._reader.positions()

    def _read(self) -> None:
        """Before it falls asleep, wakes, commits, or gets other partitions."""
        if self._stalled or self._paused:
            self._reader.rest(self._stage.now)
        else:
            self._reader.read(self._stage.now)

    def _committed(self, partition: TopicPartition) -> int | None:
        return self._node.committed.get((self.program.config.group, partition))

    def _end(self) -> None:
        agenda = self._stage.agenda
        self.alive = False
        self.owned = ()
        for entry in self.timers.values():
            agenda.cancel(entry)
        self.timers.clear()
        if self.loop is not None:
            agenda.cancel(self.loop)
        if self.link is not None:
            self.link.close()
        self._on_end(self)
