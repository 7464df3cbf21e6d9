"""Simulated groups whose partitions have downtime: random scenarios, and the evidence they leave.

:func:`downtime_scenario` returns a scenario for each seed: deploys, crashes, members that join and
leave again and again, slow polls, scaling, often several of them. :func:`simulated_evidence`
returns what a recorded history of the same group would have.

The times are no multiples of the intervals of heartbeats and commits. Otherwise a few milliseconds
would decide most scenarios, and the commit of a member that closes would look like a regular one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

import rota
from rota.engine.history.causes import CommitTimes, explain_rebalance
from rota.engine.history.downtime import GroupDowntime, find_downtime
from rota.engine.history.facts import Explanation, Generation, JournalRecord, LogLine, Rebalance
from rota.engine.history.generations import read_history
from rota.engine.history.lag import EndOffsets
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.server_log import SkippedLine, parse_coordinator_message
from rota.engine.model.journal_entry import GroupMetadataEntry, OffsetCommitEntry
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.scenario import Scenario
from rota.engine.simulator.simulation import Simulation
from rota.engine.simulator.trace import TraceEventType, TraceRecord, list_log_lines
from tests.support.simulated_downtime import (
    TrueGap,
    has_running_process,
    total_time,
    true_downtime,
)

Int64Array: TypeAlias = npt.NDArray[np.int64]

#: The seeds that tests use.
SEEDS = range(500)
STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")
#: Strategy and static membership of each policy.
POLICIES = tuple((strategy, static) for strategy in STRATEGIES for static in (False, True))
SECOND = 1_000
#: The smallest and largest number of members, the longest duration in minutes, and the share of
#: the scenarios: commits of many members take long to simulate.
SMALL = 6
SIZES = ((1, SMALL, 40), (SMALL + 1, 12, 25), (13, 60, 12), (61, 200, 10))
SIZE_SHARES = (45, 35, 15, 5)
#: The time between two samples of the end offsets.
SAMPLE_INTERVAL = 30 * SECOND
#: The events of a scenario begin after the group's first rebalance.
FIRST_EVENT = 40
#: Seconds at the end of a scenario without new events.
LAST_EVENT = 60
#: A group as in the demo: a rolling deploy in which each pod is away for 8 seconds.
ORDERS_BILLING = """
group = "orders-billing"
strategy = "range"
duration = "20m"
[topics]
orders = 36
[[members]]
name = "billing"
count = 12
client_id = "{name}"
[[events]]
at = "5m"
deploy = "billing"
down = "8s"
between = "30s"
"""


def downtime_scenario(seed: int) -> dict[str, Any]:
    """Returns a scenario as a mapping, for :func:`rota.simulate`."""
    return _ScenarioMaker(random.Random(seed)).make()


@dataclass
class _ScenarioMaker:
    rng: random.Random
    events: list[dict[str, Any]] = field(default_factory=list)
    #: Members that run.
    names: list[str] = field(default_factory=list)
    #: Seconds from the start.
    at: float = FIRST_EVENT
    new_members: int = 0

    def make(self) -> dict[str, Any]:
        rng = self.rng
        least, most, longest = rng.choices(SIZES, SIZE_SHARES)[0]
        count = self.count = rng.randint(least, most)
        self.session = rng.choice((10, 15, 30, 45, 45, 60))
        self.max_poll = rng.choice((30, 60, 120, 300, 300, 300))
        self.duration = 60 * rng.randint(10, longest)
        self.names = [f"m-{number}" for number in range(count)]
        heartbeat = rng.choices((3, self.session / 3, 1), (7, 2, 1))[0]
        member: dict[str, Any] = {
            "name": "m",
            "count": count,
            "client_id": "{name}",
            "static": rng.random() < 0.35,
            "session": f"{self.session}s",
            "heartbeat": _time(heartbeat),
            "max_poll": f"{self.max_poll}s",
            "auto_commit": True,
            "apart": rng.choices(("0s", "700ms"), (9, 1))[0] if count < 10 else "0s",
        }
        if rng.random() < 0.1:
            member["listener"] = rng.choice(("10ms", "50ms"))
        self._add_events()
        return {
            "duration": f"{self.duration}s",
            "strategy": rng.choice(STRATEGIES),
            "heartbeat_drift": rng.choices(("20ms", "0s"), (9, 1))[0],
            "topics": self._topics(),
            "members": [member],
            "events": self.events,
        }

    def _topics(self) -> dict[str, int]:
        partitions = max(1, round(self.count * self.rng.uniform(1, 3)))
        topics = min(self.rng.choice((1, 1, 2, 3)), partitions)
        return {
            name: partitions // topics + (number < partitions % topics)
            for number, name in enumerate(("t", "u", "v")[:topics])
        }

    def _add_events(self) -> None:
        rng = self.rng
        kinds: tuple[Callable[[], None], ...] = (
            self._deploy,
            self._deploy,
            self._crash,
            self._rejoin,
            self._autoscale,
            self._stall,
            self._slow,
            self._scale,
            self._restart,
            self._leave_and_return,
        )
        usual = rng.sample(kinds, rng.randint(1, 4))
        while self.at < self.duration - LAST_EVENT:
            rng.choice(usual)()
            # most rebalances are separate, some begin while another one runs
            close = rng.random() < 0.15
            self.at += rng.uniform(0.1, 6) if close else rng.uniform(25, 150)

    def _add(self, event: dict[str, Any], after: float = 0) -> bool:
        """Adds an event some seconds from now, unless the scenario is over by then."""
        at = self.at + after
        if at > self.duration - LAST_EVENT / 3:
            return False
        self.events.append({"at": _time(at), **event})
        return True

    def _new_names(self, count: int) -> list[str]:
        self.new_members += count
        return [f"x-{self.new_members - number}" for number in range(count)]

    def _deploy(self) -> None:
        down = self.rng.choice((0.53, 2.1, 5.2, 15.4, self.session * 0.71, self.session * 1.31))
        between = self.rng.choice((0, 1.1, 4.3, 10.7, 31.3))
        each = between + down + 1
        left = self.duration - LAST_EVENT - self.at
        names = list(self.names)
        if each * len(names) > left:
            names = names[: max(1, int(left / each))]
        if not names:
            return
        event = {"deploy": names, "down": _time(down), "between": _time(between)}
        self._add(event)
        self.at += each * len(names)

    def _crash(self) -> None:
        if not self.names:
            return
        crashed = self.rng.sample(self.names, min(len(self.names), self.rng.choice((1, 1, 1, 2))))
        self._add({"crash": crashed})
        back = self.rng.choice((2.1, 8.2, self.session * 0.81, self.session + 8.2, None))
        if back is None and len(self.names) > len(crashed):
            self._remove(crashed)
        else:
            self._add({"join": crashed}, back or 2)
        self.at += max(back or 0, self.session)

    def _remove(self, names: Sequence[str]) -> None:
        self.names = [name for name in self.names if name not in names]

    def _rejoin(self) -> None:
        """One member joins and leaves again and again."""
        (name,) = self._new_names(1)
        stays = self.rng.choice((3.4, 11.3, 32.2))
        away = self.rng.choice((5.7, 21.1, 61.6))
        for _ in range(self.rng.randint(2, 6)):
            if not self._add({"join": name, "like": "m"}):
                return
            self._add({self.rng.choice(("leave", "leave", "leave", "crash")): name}, stays)
            self.at += stays + away

    def _autoscale(self) -> None:
        """The number of members goes up and down between the same two numbers."""
        added = self._new_names(self.rng.choice((1, 1, 2)))
        for _ in range(self.rng.randint(2, 5)):
            if not self._add({"join": added, "like": "m"}):
                return
            stays = self.rng.uniform(30, 120)
            self._add({"leave": added}, stays)
            self.at += stays + self.rng.uniform(30, 120)

    def _stall(self) -> None:
        if self.names:
            share = self.rng.choice((0.3, 1.2, 2))
            who = self.rng.choice(self.names)
            self._add({"stall": who, "for": _time(self.max_poll * share)})
            self.at += self.max_poll * share

    def _slow(self) -> None:
        if self.names:
            share = self.rng.choice((0.1, 1.1, 1.5))
            spell = self.max_poll * self.rng.choice((2, 4))
            who = self.rng.choice(self.names)
            processing = _time(self.max_poll * share)
            self._add({"slow": who, "processing": processing, "for": _time(spell)})
            self.at += spell

    def _scale(self) -> None:
        count = max(1, round(len(self.names) * self.rng.choice((0.2, 0.5, 1))))
        if self.rng.random() < 0.5 and len(self.names) > count:
            gone = self.rng.sample(self.names, count)
            if self._add({"leave": gone}):
                self._remove(gone)
        else:
            added = self._new_names(min(count, 20))
            if self._add({"join": added, "like": "m"}):
                self.names += added

    def _restart(self) -> None:
        if self.names:
            down = self.rng.choice((0.31, 1.1, 5.2, 20.6, self.session * 0.91, self.session * 1.21))
            self._add({"restart": self.rng.choice(self.names), "down": _time(down)})
            self.at += down

    def _leave_and_return(self) -> None:
        if self.names:
            name = self.rng.choice(self.names)
            away = min(self.rng.uniform(1, 150), self.duration - LAST_EVENT / 2 - self.at)
            self._add({"leave": name})
            self._add({"join": name}, away)
            self.at += away


def _time(seconds: float) -> str:
    return f"{round(seconds * SECOND)}ms"


def simulate_policy(
    scenario: Scenario | dict[str, Any],
    strategy: str | None = None,
    static: bool | None = None,
    seed: int = 0,
    *,
    skip_commits: bool = False,
) -> Simulation:
    """Runs a scenario under a policy; None keeps the scenario's. Members are Java consumers."""
    return rota.simulate(
        scenario, strategy, solver="kafka", static=static, seed=seed, skip_commits=skip_commits
    )


def true_gaps(simulation: Simulation) -> list[TrueGap]:
    scenario = simulation.scenario
    return true_downtime(simulation, scenario.topics, scenario.duration)


def true_total(simulation: Simulation, *, not_polled: bool = True) -> int:
    """Returns the true downtime of all partitions, in partition-milliseconds.

    :param not_polled: also count the time in which a member had the partition and did not poll
    """
    unended = has_running_process(simulation.trace)
    return total_time(true_gaps(simulation), not_polled=not_polled, unended=unended)


class PartitionCommits(NamedTuple):
    """The commits of a partition, in order."""

    times: Int64Array
    offsets: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEvidence:
    """What a recorded history of a simulated group has. Times are milliseconds from the start."""

    group: str
    generations: list[Generation]
    rebalances: list[Rebalance]
    #: One for each rebalance.
    explanations: list[Explanation]
    commits: dict[tuple[str, int], PartitionCommits]
    #: The broker's log; empty if there is none.
    lines: list[LogLine]
    end: int

    @property
    def commit_times(self) -> CommitTimes:
        return {key: commits.times for key, commits in self.commits.items()}


def simulated_evidence(simulation: Simulation, *, with_log: bool = True) -> SimulatedEvidence:
    """Returns the evidence of a simulation.

    :param with_log: also the broker's log; without it the causes are inferred from the journal
    """
    scenario = simulation.scenario
    saved, commits = _read_journal(simulation.trace)
    generations = list(read_history(scenario.group, saved, {}).generations)
    rebalances = find_rebalances(generations)
    lines = list_group_lines(simulation.trace) if with_log else []
    times = {key: one.times for key, one in commits.items()}
    return SimulatedEvidence(
        group=scenario.group,
        generations=generations,
        rebalances=rebalances,
        explanations=[explain_rebalance(one, times, lines) for one in rebalances],
        commits=commits,
        lines=lines,
        end=scenario.duration,
    )


def measure_evidence(evidence: SimulatedEvidence) -> GroupDowntime:
    """Measures the downtime of a group from the evidence that its simulation left."""
    return find_downtime(
        evidence.generations,
        evidence.rebalances,
        evidence.explanations,
        commits=evidence.commit_times,
        until=evidence.end,
        lines=evidence.lines,
    )


def _read_journal(
    trace: Sequence[TraceRecord],
) -> tuple[list[JournalRecord], dict[tuple[str, int], PartitionCommits]]:
    saved: list[JournalRecord] = []
    found: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
    offset = -1
    for record in trace:
        if record.type is not TraceEventType.JOURNAL:
            continue
        offset += 1
        entry = record.detail
        if isinstance(entry, OffsetCommitEntry):
            times, offsets = found.setdefault((entry.topic, entry.partition), ([], []))
            times.append(record.at)
            offsets.append(entry.offset)
        elif isinstance(entry, GroupMetadataEntry):
            saved.append(JournalRecord(offset, record.at, entry))
    return saved, {
        key: PartitionCommits(np.array(times, dtype=np.int64), np.array(offsets, dtype=np.int64))
        for key, (times, offsets) in sorted(found.items())
    }


def list_group_lines(trace: Sequence[TraceRecord]) -> list[LogLine]:
    """Returns the log lines of a broker about the group."""
    lines: list[LogLine] = []
    for line in list_log_lines(trace):
        parsed = parse_coordinator_message(line.at, line.text)
        assert parsed is not SkippedLine.UNKNOWN, line
        if isinstance(parsed, LogLine):
            lines.append(parsed)
    return lines


def number_partitions(scenario: Scenario) -> dict[tuple[str, int], int]:
    topics = sorted(scenario.topics.items())
    partitions = [(topic, number) for topic, count in topics for number in range(count)]
    return {partition: number for number, partition in enumerate(partitions)}


def sample_end_offsets(scenario: Scenario, numbers: dict[tuple[str, int], int]) -> EndOffsets:
    """Samples the end offsets of all partitions, every :data:`SAMPLE_INTERVAL`."""
    times = range(0, scenario.duration + 1, SAMPLE_INTERVAL)
    ends = [
        scenario.traffic.end_offset(TopicPartition(*partition), at)
        for partition in numbers
        for at in times
    ]
    return EndOffsets.from_samples(
        np.repeat(np.array(list(numbers.values()), dtype=np.int64), len(times)),
        np.tile(np.array(times, dtype=np.int64), len(numbers)),
        np.array(ends, dtype=np.int64),
    )
