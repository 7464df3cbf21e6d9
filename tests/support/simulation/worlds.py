"""A random world: a plan, played."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from rota.engine.assignors.registry import resolve_strategies
from rota.engine.coordinator.events import GroupTimerKey
from rota.engine.member.events import ListenerMethod
from rota.engine.model.config import MemberConfig
from rota.engine.model.request import GroupRequest, OffsetCommit
from rota.engine.model.response import GroupResponse
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.engine.simulator import broker, process
from rota.engine.simulator.process import ListenerBehavior, ProcessConfig, SimulatedProcess
from rota.engine.simulator.seeded_random import SeededRandom
from rota.engine.simulator.trace import TraceEventType
from rota.engine.simulator.world import World
from tests.support.simulation.coordinator_checker import CheckedCoordinator, CoordinatorChecker
from tests.support.simulation.ownership_checker import CheckedMember, OwnershipChecker
from tests.support.simulation.plan import SECOND, GroupPlan, Plan
from tests.support.simulation.unreliable_network import UnreliableNetwork

#: A group of nobody, whose offsets are written when something has to be.
PROBES = "probes"


@dataclass(frozen=True, slots=True)
class SubscriptionChoice:
    """What an application subscribes to."""

    topics: tuple[str, ...]
    pattern: str | None = None


class _Admin:
    """Whoever asks: the answer is looked at by the checks alone."""

    def receive_response(self, reply: GroupResponse) -> None:
        """Nothing follows."""


class CheckedWorld(World):
    """A world whose machines are watched, and that knows how to act."""

    def __init__(self, plan: Plan, driver: CoordinatorChecker, checker: OwnershipChecker) -> None:
        self.plan = plan
        self.driver = driver
        self.tally = driver.tally
        self.chance = SeededRandom(plan.seed, 2)
        self.unreliable_network = UnreliableNetwork(
            plan.odds,
            SeededRandom(plan.seed, 3),
            driver.tally,
            latency=plan.latency,
            append=plan.append,
        )
        #: What each process wants; None while it wants nothing.
        self.wishes: dict[str, SubscriptionChoice | None] = {}
        #: Processes that were frozen, stalled or slow: they may be thrown out.
        self.disturbed: set[str] = set()
        #: Processes that have unsubscribed at some time.
        self.quitters: set[str] = set()
        self.closing: set[str] = set()
        #: When an application last had enough.
        self.last_exit = 0
        self.armed = False
        #: For how long processes polled slowly, in all.
        self.slow_time = 0
        self.sessions: list[int] = []
        self.rebalances: list[int] = []
        self._names = 0
        self._read = 0
        super().__init__(
            plan.topics,
            seed=plan.seed,
            config=plan.config,
            network=self.unreliable_network,
            metadata_age=plan.metadata_age,
        )
        driver.journal = self.broker.journal
        checker.machines = lambda: [one.machine for one in self.processes.values()]

    # processes

    def new_program(self, group: GroupPlan, **changes: Any) -> ProcessConfig:
        chance = self.chance
        self._names += 1
        name = f"{group.name}{self._names}"
        names = chance.pick(group.lists)
        wish = self.choose_subscription()
        config, longest = self._new_config(group, name)
        program = ProcessConfig(
            name=name,
            config=config,
            assignors=functools.partial(resolve_strategies, names, solver=group.solver),
            topics=wish.topics,
            pattern=wish.pattern,
            processing=0 if chance.happens(0.6) else chance.between(50, longest),
            listener_time=0 if chance.happens(0.6) else chance.between(1, min(longest, SECOND)),
        )
        if chance.happens(0.2):
            program = replace(program, listener=self._committing(name))
        return replace(program, **changes)

    def _new_config(self, group: GroupPlan, name: str) -> tuple[MemberConfig, int]:
        """Also how long an application may be busy, so that it is not too late for a rebalance."""
        chance, hasty = self.chance, self.plan.hasty
        session = chance.between(10, 30) * 100 if hasty else chance.between(30, 120) * 100
        poll = chance.between(30, 60) * 100 if hasty else chance.between(60, 200) * 100
        config = MemberConfig(
            group=group.name,
            client_id=name,
            group_instance_id=f"static-{name}" if chance.happens(group.static) else None,
            session_timeout=session,
            heartbeat_interval=session // chance.between(4 if hasty else 3, 6),
            max_poll_interval=poll,
            auto_commit=chance.happens(0.6),
            auto_commit_interval=chance.between(10, 50) * 100,
        )
        return config, poll // (12 if hasty else 4)

    def _committing(self, name: str) -> ListenerBehavior:
        """A listener that commits when partitions are taken away, as applications do."""

        def commit() -> None:
            self.update_from_trace()
            if name in self.processes and name not in self.closing:
                self.tally["commit inside a listener"] += 1
                self[name].commit(wait=SECOND)

        def listener(call: ListenerMethod, partitions: tuple[TopicPartition, ...]) -> None:
            if call is ListenerMethod.REVOKED and partitions:
                self.schedule(self.now, commit)

        return listener

    def choose_subscription(self) -> SubscriptionChoice:
        names = sorted(self.cluster.partitions)
        if self.chance.happens(0.2):
            return SubscriptionChoice((), self.chance.pick((".*", "t[02468]", "t[1-3]")))
        if self.chance.happens(0.5):
            return SubscriptionChoice(tuple(names))
        return SubscriptionChoice(
            tuple(name for name in names if self.chance.happens(0.7)) or (names[0],)
        )

    def start(self, program: ProcessConfig) -> SimulatedProcess:
        self.wishes[program.name] = SubscriptionChoice(program.topics, program.pattern)
        self.update_from_trace()  # earlier events are those of the previous process
        self.closing.discard(program.name)
        self.sessions.append(program.config.session_timeout)
        self.rebalances.append(program.config.max_poll_interval)
        return super().start(program)

    def pick(
        self, fits: Callable[[SimulatedProcess], bool] = lambda _: True, *, frozen: bool = False
    ) -> SimulatedProcess | None:
        """A process that can do something."""
        self.update_from_trace()
        able = [
            one
            for name, one in sorted(self.processes.items())
            if name not in self.closing and (frozen or one.frozen_until <= self.now) and fits(one)
        ]
        return self.chance.pick(able) if able else None

    def update_from_trace(self) -> None:
        """Learns from the trace who closes."""
        for record in self.trace[self._read :]:
            if record.type in (TraceEventType.LEAVING, TraceEventType.RAISED):
                self.closing.add(record.subject)
                self.last_exit = record.at
            if record.type is TraceEventType.RAISED:
                self.tally[f"raised {str(record.detail).partition(':')[0]}"] += 1
        self._read = len(self.trace)

    # requests of its own

    @property
    def timers(self) -> Iterable[GroupTimerKey]:
        """The coordinator's timers that run."""
        return self.broker.timers

    def ask(self, request: GroupRequest) -> None:
        """An admin asks."""
        if self.broker.coordinator is not None:
            self.broker.request(_Admin(), request)

    def probe(self) -> None:
        """Something is written, whatever else happens."""
        at = OffsetAndMetadata(self.now)
        self.ask(OffsetCommit(group=PROBES, offsets={TopicPartition("probe", 0): at}))

    def reset_connections(self) -> None:
        """All connections break, and both sides know."""
        for one in list(self.processes.values()):
            if one.connection is not None:
                one.connection.disconnect(None)


def create_checked_world(plan: Plan, tally: Counter[str], stack: ExitStack) -> CheckedWorld:
    """A world of this plan; until the stack is closed, all machines are watched."""
    driver = CoordinatorChecker(tally)
    checker = OwnershipChecker(driver)
    for module, name, made in (
        (broker, "Coordinator", functools.partial(CheckedCoordinator, driver)),
        (process, "MemberStateMachine", functools.partial(CheckedMember, checker)),
    ):
        stack.enter_context(mock.patch.object(module, name, made))
    return CheckedWorld(plan, driver, checker)
