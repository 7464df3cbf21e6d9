"""``rota.simulate``: runs a scenario; finds the rebalances and the downtime in what a real group
would leave: its journal, its commits and the broker's log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import assert_never

from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.registry import StrategyList, common_protocol, resolve_strategies
from rota.engine.assignors.sticky import AbstractStickyAssignor, check_solver
from rota.engine.history.downtime import DowntimeTotal, sum_downtime
from rota.engine.history.facts import UNCOUNTED_REASONS, Downtime
from rota.engine.history.policies import GroupPolicy, MembershipType, PolicyProtocol
from rota.engine.model.config import GroupConfig, MemberConfig
from rota.engine.model.duration import format_clock
from rota.engine.model.journal_entry import ClassicEntry
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.network import ReliableNetwork
from rota.engine.simulator.process import ProcessConfig, SimulatedProcess
from rota.engine.simulator.rebalances import (
    SimulatedRebalance,
    find_simulated_rebalances,
    read_simulated_history,
)
from rota.engine.simulator.scenario import (
    AddPartitionsEvent,
    CoordinatorDownEvent,
    CrashEvent,
    DeployEvent,
    JoinEvent,
    LeaveEvent,
    MemberSpec,
    PauseEvent,
    RestartEvent,
    Scenario,
    ScenarioEvent,
    SlowDownEvent,
    StallEvent,
    SubscribeEvent,
    read_scenario,
)
from rota.engine.simulator.seeded_random import hash_text, mix_numbers
from rota.engine.simulator.timeline import list_unread_partitions, list_unsubscribed_topics
from rota.engine.simulator.trace import TraceEventType, TraceRecord
from rota.engine.simulator.world import World
from rota.errors import Fenced, InputError

DEFAULT_SOLVER = "kafka"
PROGRESS_STEPS = 50  # the number of times that ``progress`` is called
COORDINATOR_LOAD_TIME = 1_000  # milliseconds in which a restarted coordinator loads
POD_SUFFIX_LENGTH = 5


class ScenarioRunner:
    """Runs a scenario from time ``start`` on; the other parameters are as in :func:`simulate`."""

    def __init__(  # noqa: PLR0913 (all but one are options)
        self,
        scenario: Scenario,
        strategy: StrategyList | None = None,
        *,
        solver: str = DEFAULT_SOLVER,
        static: bool | None = None,
        seed: int = 0,
        skip: bool = True,
        skip_commits: bool = False,
        start: int = 0,
    ) -> None:
        self.notes: list[str] = []
        self.world = World(
            scenario.topics,
            seed=seed,
            config=GroupConfig(initial_rebalance_delay=scenario.initial_delay),
            network=ReliableNetwork(
                latency=scenario.latency, jitter=scenario.jitter, append=scenario.append, seed=seed
            ),
            metadata_age=scenario.metadata_age,
            skip=skip,
            skip_commits=skip_commits,
            now=start,
        )
        self._start_at = start
        self._scenario = scenario
        self._strategy = strategy
        self._solver = solver
        self._static = static
        self._seed = seed
        self._members: dict[str, MemberSpec] = {}
        #: The process of each member: a deploy with surge starts one with another name.
        self._process: dict[str, str] = {}
        self._left: set[str] = set()  # members that a leave event has closed
        for members in scenario.members:
            for number, name in enumerate(members.names):
                self._members[name] = members
                at = start + members.joins + number * members.join_interval
                self.world.schedule(at, partial(self._start, name))
        for event in scenario.events:
            self.world.schedule(start + event.at, partial(self._handle_event, event))

    def run(self, progress: Callable[[float], None] | None = None) -> World:
        """Runs to the end; calls ``progress`` with the completed share."""
        start, time = self._start_at, self._scenario.duration
        slices = PROGRESS_STEPS if progress is not None else 1
        for number in range(1, slices + 1):
            self.world.run_until(start + time * number // slices, start + time)
            if progress is not None:
                progress(number / slices)
        return self.world

    def _start(self, name: str, process: str | None = None) -> None:
        self._process[name] = process or name
        self._left.discard(name)
        if self._process[name] in self.world.processes:
            self._add_note(f"{name} runs already, so it is not started")
        else:
            self.world.start(self._program(name))

    def _program(self, name: str) -> ProcessConfig:
        members, scenario = self._members[name], self._scenario
        # real timers drift: else heartbeats that a rebalance starts together would stay together
        bits = mix_numbers(self._seed, hash_text(name), self.world.now)
        drift = bits % (scenario.heartbeat_drift + 1)
        is_static = members.static if self._static is None else self._static
        config = MemberConfig(
            group=scenario.group,
            client_id=members.client_id.format(
                group=scenario.group, name=name, start=make_pod_suffix(bits)
            ),
            group_instance_id=name if is_static else None,
            session_timeout=members.session,
            heartbeat_interval=min(members.heartbeat + drift, members.session - 1),
            max_poll_interval=members.max_poll,
            auto_commit=members.auto_commit,
            auto_commit_interval=members.commit_interval,
        )
        strategy = self._strategy or members.strategy or scenario.strategy
        return ProcessConfig(
            name=self._process[name],
            config=config,
            assignors=lambda: resolve_strategies(strategy, solver=self._solver),
            topics=members.topics,
            pattern=members.pattern,
            processing=members.processing,
            listener_time=members.listener,
            host=make_host(bits),
            traffic=scenario.traffic,
            capacity=members.capacity,
        )

    def _handle_event(self, event: ScenarioEvent) -> None:  # noqa: C901, PLR0912 (one case for each kind)
        match event:
            case JoinEvent():
                self._members.update(event.specs)
                for name in event.names:
                    self._start(name)
            case LeaveEvent():
                self._left.update(event.names)
                self._for_each(event.names, "leave", SimulatedProcess.leave)
            case CrashEvent():
                self._for_each(event.names, "crash", SimulatedProcess.crash)
            case StallEvent():
                self._for_each(event.names, "stall", lambda process: process.stall(event.time))
            case PauseEvent():
                self._for_each(event.names, "pause", lambda process: process.pause(event.time))
            case SlowDownEvent():
                self._for_each(event.names, "slow down", lambda process: self._slow(process, event))
            case RestartEvent():
                for name in event.names:
                    self._restart(name, event.downtime, lambda: None)
            case DeployEvent():
                self._deploy(event)
            case SubscribeEvent():
                self._for_each(event.names, "subscribe", lambda p: p.subscribe(event.topics))
            case AddPartitionsEvent():
                self.world.set_partitions(event.partitions)
            case CoordinatorDownEvent():
                self._stop_coordinator(event.downtime)
            case _:
                assert_never(event)

    def _stop_coordinator(self, down: int) -> None:
        if self.world.broker.coordinator is None:
            self._add_note("the coordinator is down already")
        else:
            self.world.broker.stop()
            self._later(down, partial(self.world.broker.start, COORDINATOR_LOAD_TIME))

    def _for_each(
        self, names: tuple[str, ...], what: str, act: Callable[[SimulatedProcess], None]
    ) -> None:
        for name in names:
            process = self._running(name)
            if process is None:
                self._add_note(f"{name} does not run, so it cannot {what}")
            else:
                act(process)

    def _running(self, name: str) -> SimulatedProcess | None:
        return self.world.processes.get(self._process.get(name, name))

    def _add_note(self, text: str) -> None:
        self.notes.append(f"at {format_clock(self.world.now - self._start_at)}: {text}")

    def _later(self, time: int, action: Callable[[], None]) -> None:
        self.world.schedule(self.world.now + time, action)

    def _slow(self, process: SimulatedProcess, event: SlowDownEvent) -> None:
        process.slow_down(event.processing)
        if event.time is not None:
            usual = process.program.processing

            def recover() -> None:
                if process.alive:
                    process.slow_down(usual)

            self._later(event.time, recover)

    def _restart(self, name: str, down: int, then: Callable[[], None]) -> None:
        """Closes a member, waits until it has ended, and starts it again after the downtime."""
        process = self._running(name)
        if process is None:
            self._add_note(f"{name} does not run, so it cannot restart")
            then()
            return
        again = partial(self._start_later, name, down, then, process.name)
        self.world.on_process_end(process.name, again)
        process.leave()

    def _start_later(
        self, name: str, down: int, then: Callable[[], None], process: str | None = None
    ) -> None:
        def start() -> None:
            self._start(name, process or self._process[name])
            then()

        self._later(down, start)

    def _deploy(self, event: DeployEvent) -> None:
        """Deploys the first member, then schedules the rest."""
        if not event.names:
            return
        name, rest = event.names[0], replace(event, names=event.names[1:])
        self._reconfigure(name, event)

        def deploy_rest() -> None:
            self._later(event.interval, lambda: self._deploy(rest))

        if name in self._process.keys() - self._left and self._running(name) is None:
            # the member ended without a leave event: a rollout also starts its new pod
            self._start_later(name, 0 if event.surge else event.downtime, deploy_rest)
        elif event.surge and self._running(name) is not None:
            self._replace(name, event, lambda: self._deploy(rest))
        else:
            self._restart(name, event.downtime, deploy_rest if rest.names else lambda: None)

    def _reconfigure(self, name: str, event: DeployEvent) -> None:
        """Gives the member's next process the deploy's settings."""
        before = self._members[name]
        self._members[name] = replace(
            before,
            strategy=before.strategy if event.strategy is None else event.strategy,
            static=before.static if event.static is None else event.static,
        )

    def _replace(self, name: str, event: DeployEvent, then: Callable[[], None]) -> None:
        """Starts the new process, then closes the old one."""
        old = self._running(name)
        assert old is not None
        base, _, number = old.name.rpartition(".")
        counted = base.startswith(name) and number.isdecimal()
        self._start(name, f"{name}.{int(number) + 1 if counted else 2}")

        def retire() -> None:
            if old.alive:
                self.world.on_process_end(old.name, then)
                old.leave()
            else:  # fenced by its successor under a static id
                then()

        self._later(event.interval, retire)


def make_pod_suffix(bits: int) -> str:
    """Returns the random suffix of a pod's name; Kubernetes omits vowels, so it forms no words."""
    alphabet = "bcdfghjklmnpqrstvwxz2456789"
    base = len(alphabet)
    return "".join(alphabet[bits // base**place % base] for place in range(POD_SUFFIX_LENGTH))


def make_host(bits: int) -> str:
    return f"/10.{bits >> 48 & 31}.{bits >> 40 & 255}.{bits >> 32 & 255}"


@dataclass(frozen=True)
class Simulation:
    """The result of a simulation. Times are in milliseconds."""

    scenario: Scenario
    policy: str  # the policy's label, as in the tables of ``rota run``
    static: bool | None  # whether all members were static or dynamic; None if the scenario decided
    seed: int
    strategy: str  # the strategies as the members list them; " or " separates lists that differ
    protocol: str
    solver: str | None  # the solver, if it is not the default and a strategy of the members uses it
    rebalances: tuple[SimulatedRebalance, ...]
    #: Each time in which no member consumed a partition, in milliseconds from the start.
    downtime: tuple[Downtime, ...] = field(repr=False)
    processes: Mapping[str, str] = field(repr=False)  # the process of each member id
    unread: tuple[TopicPartition, ...]  # subscribed by a member and never read
    failed: tuple[str, ...]  # processes that ended with an error
    trace: Sequence[TraceRecord] = field(repr=False)
    journal: Sequence[ClassicEntry] = field(repr=False)
    notes: tuple[str, ...]

    @property
    def generations(self) -> int:
        """Number of generations of all rebalances."""
        return sum(len(rebalance.generations) for rebalance in self.rebalances)

    @property
    def moved(self) -> int:
        """Partitions that changed owner although the old owner still subscribed to them."""
        return sum(rebalance.cost.moved for rebalance in self.rebalances)

    @property
    def moves_needed(self) -> int:
        """The smallest number of moves to the best balance, over all rebalances."""
        return sum(rebalance.cost.moves_needed for rebalance in self.rebalances)

    @property
    def revoked(self) -> int:
        """Partitions that remaining members gave up, over all rebalances."""
        return sum(rebalance.cost.revoked for rebalance in self.rebalances)

    @property
    def orphaned(self) -> int:
        """Partitions whose owner had left, over all rebalances."""
        return sum(rebalance.cost.orphaned for rebalance in self.rebalances)

    @cached_property
    def total(self) -> DowntimeTotal:
        """The sums of all downtime."""
        return sum_downtime(self.downtime)

    @cached_property
    def counted_downtime(self) -> tuple[Downtime, ...]:
        """The downtime that the sum counts: *not polled* and *shut down* are apart."""
        return tuple(one for one in self.downtime if one.reason not in UNCOUNTED_REASONS)

    @property
    def worst(self) -> Downtime | None:
        """The longest counted downtime of one partition."""
        times = self.counted_downtime
        return max(times, key=lambda one: (one.milliseconds, -one.since), default=None)

    @cached_property
    def downtime_by_partition(self) -> Mapping[TopicPartition, Sequence[Downtime]]:
        """The counted downtime of each partition."""
        found = defaultdict(list)
        for one in self.counted_downtime:
            found[TopicPartition(one.topic, one.partition)].append(one)
        return dict(sorted(found.items()))

    @property
    def idle(self) -> int:
        """The largest number of members without a partition after a rebalance."""
        return max((len(rebalance.idle) for rebalance in self.rebalances), default=0)

    @property
    def is_sound(self) -> bool:
        """Whether no member ended with an error and every partition was read."""
        return not self.failed and not self.unread

    @property
    def loads(self) -> Mapping[str, int]:
        """The number of partitions of each member after the last rebalance that assigned any."""
        return next((one.loads for one in reversed(self.rebalances) if one.generations), {})

    def downtime_in(self, rebalance: SimulatedRebalance) -> Sequence[Downtime]:
        """Returns the downtime that this rebalance ended."""
        step = rebalance.step
        return () if step is None else self._downtime_by_end.get(step.after.generation, ())

    @property
    def downtime_outside(self) -> Sequence[Downtime]:
        """Downtime that no rebalance ended: the owner came back, or nobody did."""
        return self._downtime_by_end.get(None, ())

    @cached_property
    def _downtime_by_end(self) -> Mapping[int | None, Sequence[Downtime]]:
        found = defaultdict(list)
        for one in self.downtime:
            found[one.to_generation].append(one)
        return found

    def to_dict(self) -> dict[str, object]:
        """Returns plain values for JSON."""
        return {
            **self.summary(),
            "seed": self.seed,
            "duration_ms": self.scenario.duration,
            "outside": {
                **_downtime_to_dict(sum_downtime(self.downtime_outside)),
                "by_process": self.sum_by_process(self.downtime_outside),
            },
            "timeline": [self._rebalance_to_dict(rebalance) for rebalance in self.rebalances],
            "partitions": {
                str(partition): {
                    "downtime_ms": sum(one.milliseconds for one in found),
                    "worst_ms": max(one.milliseconds for one in found),
                    "times": len(found),
                }
                for partition, found in self.downtime_by_partition.items()
            },
            "notes": list(self.notes),
        }

    def summary(self) -> dict[str, object]:
        """Returns the totals for JSON."""
        worst = self.worst
        return {
            "policy": self.policy,
            "strategy": self.strategy,
            "protocol": self.protocol,
            "static": self.static,
            "rebalances": len(self.rebalances),
            "generations": self.generations,
            "moved": self.moved,
            "moves_needed": self.moves_needed,
            "orphaned": self.orphaned,
            "revoked": self.revoked,
            **_downtime_to_dict(self.total),
            "worst_ms": 0 if worst is None else worst.milliseconds,
            "worst_partition": None if worst is None else f"{worst.topic}-{worst.partition}",
            "idle": self.idle,
            "loads": dict(self.loads),
            "unread": [str(partition) for partition in self.unread],
            "failed": list(self.failed),
        }

    def _rebalance_to_dict(self, rebalance: SimulatedRebalance) -> dict[str, object]:
        found = self.downtime_in(rebalance)
        return {
            "start_ms": rebalance.start,
            "end_ms": rebalance.end,
            "finished": rebalance.finished,
            "reason": rebalance.reason,
            "generations": list(rebalance.generations),
            "rounds": len(rebalance.generations),
            "attempts": rebalance.attempts,
            "members": rebalance.members,
            "moved": rebalance.cost.moved,
            "moves_needed": rebalance.cost.moves_needed,
            "orphaned": rebalance.cost.orphaned,
            "idle": list(rebalance.idle),
            "loads": dict(rebalance.loads),
            "waits": [
                {"members": list(wait.members), "time_ms": wait.time, "why": wait.why}
                for wait in rebalance.waits
            ],
            "revoked": rebalance.cost.revoked,
            **_downtime_to_dict(sum_downtime(found)),
        }

    def sum_by_process(self, found: Iterable[Downtime]) -> dict[str, int]:
        """Returns the counted downtime by the process that had the partitions, longest first."""
        times: Counter[str] = Counter()
        for one in found:
            if one.reason not in UNCOUNTED_REASONS:
                member = one.member_id or ""
                times[self.processes.get(member, member)] += one.milliseconds
        return dict(sorted(times.items(), key=lambda pair: (-pair[1], pair[0])))


def _downtime_to_dict(total: DowntimeTotal) -> dict[str, object]:
    return {
        "downtime_ms": total.downtime_ms,
        "downtime_at_least_ms": total.downtime_at_least_ms,
        "downtime_at_most_ms": total.downtime_at_most_ms,
        "downtime_by_reason": dict(total.by_reason),
        "not_polled_ms": total.not_polled_ms,
        "delayed_records": total.delayed_records or 0,
        "added_lag_ms": total.added_lag_ms or 0,
    }


MAX_SHOWN_PARTITIONS = 5


def simulate(  # noqa: PLR0913 (all but one are options)
    scenario: Scenario | str | Mapping[str, object],
    strategy: StrategyList | None = None,
    *,
    solver: str = DEFAULT_SOLVER,
    static: bool | None = None,
    seed: int = 0,
    skip: bool = True,
    skip_commits: bool = True,
    progress: Callable[[float], None] | None = None,
) -> Simulation:
    """Runs a scenario through the real coordinator and members, under a virtual clock.

    :param scenario: the text of a scenario file, a mapping with the same keys, or the result of
        :func:`rota.engine.simulator.scenario.read_scenario`
    :param strategy: for all members, as in :func:`rota.assign`; None keeps the scenario's
    :param solver: ``exact`` or ``kafka``, for the sticky strategies
    :param static: True gives every member a static id, False none; None keeps the scenario's
    :param seed: decides member ids and the jitter of the network; the same seed gives the same
        result, to the byte
    :param skip: skips heartbeats that cannot change anything; the result is the same
    :param skip_commits: with ``skip``, skips automatic commits that later ones replace; the journal
        has the last ones before each event, and the downtime is the same
    :param progress: called with the completed share, from 0 to 1
    :raises InputError: the scenario is wrong; the message names line and key
    """
    if not isinstance(scenario, Scenario):
        scenario = read_scenario(scenario)
    if not isinstance(seed, int):
        raise InputError(f"seed: {seed!r} is not a whole number")
    check_solver(solver)
    listed = dict.fromkeys(members.strategy or scenario.strategy for members in scenario.members)
    lists = listed if strategy is None else (strategy,)
    used = [resolve_strategies(names, solver=solver) for names in lists]
    runner = ScenarioRunner(
        scenario,
        strategy,
        solver=solver,
        static=static,
        seed=seed,
        skip=skip,
        skip_commits=skip_commits,
    )
    world = runner.run(progress)
    history = read_simulated_history(scenario.group, world.trace)
    unread = list_unread_partitions(world.trace, scenario.topics)
    unsubscribed = list_unsubscribed_topics(world.trace, scenario.topics)
    return Simulation(
        scenario=scenario,
        policy=policy_label(strategy, solver, static),
        static=static,
        seed=seed,
        strategy=" or ".join(dict.fromkeys(_join_names(assignors) for assignors in used)),
        protocol=" or ".join(dict.fromkeys(common_protocol(one).name.lower() for one in used)),
        solver=solver if solver != DEFAULT_SOLVER and any(map(_is_sticky, used)) else None,
        rebalances=find_simulated_rebalances(history, world.trace, scenario.duration),
        downtime=history.find_downtime(scenario.traffic, scenario.duration),
        processes={
            str(record.detail): record.subject
            for record in world.trace
            if record.type is TraceEventType.IDENTITY
        },
        unread=unread,
        failed=_failed_processes(world.trace),
        trace=tuple(world.trace),
        journal=tuple(world.broker.journal),
        notes=(*runner.notes, *_error_notes(world.trace), *_unread_notes(unread, unsubscribed)),
    )


def policy_label(strategy: StrategyList | None, solver: str, static: bool | None) -> str:
    """Returns the label of a policy as :class:`GroupPolicy` writes it; Java's solver has none."""
    if strategy is None:
        membership = {None: "", True: ", static", False: ", dynamic"}[static]
        return f"as in the scenario{membership}"
    assignors = resolve_strategies(strategy, solver=solver)
    return GroupPolicy(
        strategy=_join_names(assignors),
        protocol=PolicyProtocol(common_protocol(assignors).name.lower()),
        membership=MembershipType.STATIC if static else MembershipType.DYNAMIC,
        solver=solver if _is_sticky(assignors) else DEFAULT_SOLVER,
    ).format_label(default_solver=DEFAULT_SOLVER)


def _join_names(assignors: Iterable[Assignor]) -> str:
    return ", ".join(assignor.name for assignor in assignors)


def _is_sticky(assignors: Iterable[Assignor]) -> bool:
    return any(isinstance(assignor, AbstractStickyAssignor) for assignor in assignors)


def _failed_processes(trace: Iterable[TraceRecord]) -> tuple[str, ...]:
    """Returns processes that ended with an error, without fenced ones: they have a successor."""
    raised = (record for record in trace if record.type is TraceEventType.RAISED)
    failed = (one.subject for one in raised if not str(one.detail).startswith(Fenced.__name__))
    return tuple(dict.fromkeys(failed))


def _unread_notes(partitions: Iterable[TopicPartition], unsubscribed: Iterable[str]) -> list[str]:
    notes = [f"nobody reads {topic}: no member subscribes to it" for topic in unsubscribed]
    unread = [one for one in partitions if one.topic not in unsubscribed]
    if unread:
        first = ", ".join(map(str, unread[:MAX_SHOWN_PARTITIONS]))
        more = len(unread) - MAX_SHOWN_PARTITIONS
        notes.append(f"never read: {first}{f' and {more:,} more' if more > 0 else ''}")
    return notes


def _error_notes(trace: Iterable[TraceRecord]) -> list[str]:
    """Returns a note for each error that an application would have seen."""
    return [
        f"at {format_clock(record.at)}: {record.subject} raised {record.detail}"
        for record in trace
        if record.type is TraceEventType.RAISED
    ]
