"""Plays a scenario: builds its world and does to it what the scenario says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from rota.model.config import GroupConfig, MemberConfig
from rota.sim.chance import mixed, text_number
from rota.sim.duration import clock
from rota.sim.happening import (
    CoordinatorStops,
    Crashes,
    Deploys,
    Grows,
    Happening,
    Joins,
    Leaves,
    Members,
    Pauses,
    Restarts,
    Slows,
    Stalls,
    Subscribes,
)
from rota.sim.network import Steady
from rota.sim.policy import Policy
from rota.sim.process import Process, Program
from rota.sim.scenario import Scenario
from rota.sim.world import World

SLICES = 50
"""How often progress is told."""
LOAD_TIME = 1_000
"""How long a coordinator that comes back reads its journal."""


class Script:
    """A scenario under a policy, ready to run."""

    def __init__(
        self, scenario: Scenario, policy: Policy, seed: int, *, skip: bool, start: int = 0
    ) -> None:
        self.notes: list[str] = []
        self.world = World(
            scenario.topics,
            seed=seed,
            config=GroupConfig(initial_rebalance_delay=scenario.initial_delay),
            nature=Steady(
                latency=scenario.latency,
                jitter=scenario.jitter,
                append=scenario.append,
                seed=seed,
            ),
            metadata_age=scenario.metadata_age,
            skip=skip,
            now=start,
        )
        self._start_at = start
        self._scenario = scenario
        self._policy = policy
        self._seed = seed
        self._members: dict[str, Members] = {}
        """What each member is configured as."""
        self._process: dict[str, str] = {}
        """The process that is a member now: a deploy with surge gives it another name."""
        self._left: set[str] = set()
        """Members that were told to leave, for good."""
        for members in scenario.members:
            for number, name in enumerate(members.names):
                self._members[name] = members
                at = start + members.joins + number * members.apart
                self.world.at(at, self._starting(name))
        for event in scenario.events:
            self.world.at(start + event.at, self._doing(event))

    def run(self, progress: Callable[[float], None] | None = None) -> World:
        """Plays it to its end; ``progress`` is told what share of it is over."""
        start, time = self._start_at, self._scenario.duration
        slices = SLICES if progress is not None else 1
        for number in range(1, slices + 1):
            self.world.run_until(start + time * number // slices, start + time)
            if progress is not None:
                progress(number / slices)
        return self.world

    def _doing(self, event: Happening) -> Callable[[], None]:
        return lambda: self._do(event)

    def _starting(self, name: str) -> Callable[[], None]:
        return lambda: self._start(name)

    def _start(self, name: str, process: str | None = None) -> None:
        self._process[name] = process or name
        self._left.discard(name)
        if self._process[name] in self.world.processes:
            self._say(f"{name} runs already, so it is not started")
            return
        self.world.start(self._program(name))

    def _program(self, name: str) -> Program:
        members, scenario, policy = self._members[name], self._scenario, self._policy
        # no process is on time to the millisecond: without this all heartbeats of a group, which
        # a rebalance starts at the same moment, would stay together for ever
        bits = mixed(self._seed, text_number(name), self.world.now)
        drift = bits % (scenario.heartbeat_drift + 1)
        config = MemberConfig(
            group=scenario.group,
            client_id=members.client_id.format(
                group=scenario.group, name=name, start=_letters(bits, 5)
            ),
            static_id=name if policy.is_static(members.static) else None,
            session_timeout=members.session,
            heartbeat_interval=min(members.heartbeat + drift, members.session - 1),
            max_poll_interval=members.max_poll,
            auto_commit=members.auto_commit,
            auto_commit_interval=members.commit_interval,
        )
        strategy = members.strategy or scenario.strategy
        return Program(
            name=self._process[name],
            config=config,
            assignors=lambda: policy.assignors(strategy),
            topics=members.topics,
            pattern=members.pattern,
            processing=members.processing,
            listener_time=members.listener,
            host=f"/10.{bits >> 48 & 31}.{bits >> 40 & 255}.{bits >> 32 & 255}",
            traffic=scenario.traffic,
            capacity=members.capacity,
        )

    def _do(self, event: Happening) -> None:  # noqa: C901, PLR0912 (one case for each kind)
        match event:
            case Joins():
                self._members.update(event.like)
                for name in event.names:
                    self._start(name)
            case Leaves():
                self._left.update(event.names)
                self._each(event.names, "leave", Process.leave)
            case Crashes():
                self._each(event.names, "crash", Process.crash)
            case Stalls():
                self._each(event.names, "stall", lambda process: process.stall(event.time))
            case Pauses():
                self._each(event.names, "pause", lambda process: process.pause(event.time))
            case Slows():
                self._each(event.names, "slow down", lambda process: self._slow(process, event))
            case Restarts():
                for name in event.names:
                    self._restart(name, event.down, lambda: None)
            case Deploys():
                self._deploy(event)
            case Subscribes():
                self._each(event.names, "subscribe", lambda p: p.subscribe(event.topics))
            case Grows():
                self.world.set_partitions(event.partitions)
            case CoordinatorStops():
                self._stop_coordinator(event.down)
            case _:
                assert_never(event)

    def _stop_coordinator(self, down: int) -> None:
        if self.world.coordinator is None:
            self._say("the coordinator is down already")
            return
        self.world.stop_coordinator()
        self._later(down, lambda: self.world.start_coordinator(LOAD_TIME))

    def _each(self, names: tuple[str, ...], what: str, act: Callable[[Process], None]) -> None:
        for name in names:
            process = self._running(name)
            if process is None:
                self._say(f"{name} does not run, so it cannot {what}")
            else:
                act(process)

    def _running(self, name: str) -> Process | None:
        return self.world.processes.get(self._process.get(name, name))

    def _say(self, text: str) -> None:
        self.notes.append(f"at {clock(self.world.now - self._start_at)}: {text}")

    def _later(self, time: int, action: Callable[[], None]) -> None:
        self.world.at(self.world.now + time, action)

    def _slow(self, process: Process, event: Slows) -> None:
        process.slow_down(event.processing)
        if event.time is not None:
            usual = process.program.processing

            def recover() -> None:
                if process.alive:
                    process.slow_down(usual)

            self._later(event.time, recover)

    def _restart(self, name: str, down: int, then: Callable[[], None]) -> None:
        """Closes a member, waits until it is gone and for the downtime, and starts it again."""
        process = self._running(name)
        if process is None:
            self._say(f"{name} does not run, so it cannot restart")
            then()
            return

        def start() -> None:
            self._start(name, process.name)
            then()

        self.world.when_gone(process.name, lambda: self._later(down, start))
        process.leave()

    # deploys

    def _deploy(self, event: Deploys) -> None:
        """Does the first of the names, and goes on with the others."""
        if not event.names:
            return
        name, rest = event.names[0], replace(event, names=event.names[1:])
        self._reconfigure(name, event)

        def go_on() -> None:
            self._later(event.between, lambda: self._deploy(rest))

        if self._is_down(name):
            self._revive(name, 0 if event.surge else event.down, go_on)
        elif event.surge and self._running(name) is not None:
            self._replace(name, event, lambda: self._deploy(rest))
        else:
            self._restart(name, event.down, go_on if rest.names else lambda: None)

    def _reconfigure(self, name: str, event: Deploys) -> None:
        """The next process that is this member has the deploy's settings."""
        before = self._members[name]
        self._members[name] = replace(
            before,
            strategy=before.strategy if event.strategy is None else event.strategy,
            static=before.static if event.static is None else event.static,
        )

    def _is_down(self, name: str) -> bool:
        """It ran, and is gone, but not because it was told to leave."""
        known = name in self._process and name not in self._left
        return known and self._running(name) is None

    def _revive(self, name: str, down: int, then: Callable[[], None]) -> None:
        """A rollout starts the new pod whether the old one still runs or not."""

        def start() -> None:
            self._start(name, self._process[name])
            then()

        self._later(down, start)

    def _replace(self, name: str, event: Deploys, then: Callable[[], None]) -> None:
        """Starts the new one, then tells the old one to go."""
        old = self._running(name)
        assert old is not None
        base, _, number = old.name.rpartition(".")
        counted = base.startswith(name) and number.isdecimal()
        self._start(name, f"{name}.{int(number) + 1 if counted else 2}")

        def retire() -> None:
            if old.alive:
                self.world.when_gone(old.name, then)
                old.leave()
            else:  # fenced by its successor under a static id
                then()

        self._later(event.between, retire)


def _letters(bits: int, count: int) -> str:
    """As a pod's name ends in: no vowels, so that no words come of it."""
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    found = ""
    for _ in range(count):
        bits, letter = divmod(bits, len(alphabet))
        found += alphabet[letter]
    return found
