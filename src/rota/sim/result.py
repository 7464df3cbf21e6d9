"""What came of a simulated scenario: rebalances, moves, standstill, idle members."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rota.assignors.sticky import StickyFamily
from rota.model.entry import ClassicEntry
from rota.model.topic import TopicPartition
from rota.sim.policy import Policy
from rota.sim.rebalance import Rebalance
from rota.sim.scenario import Scenario
from rota.sim.standstill import Stop
from rota.sim.trace import Record


@dataclass(frozen=True)
class Simulation:
    """One scenario under one policy. Times are in milliseconds."""

    scenario: Scenario
    policy: Policy
    seed: int
    strategy: str
    """The strategies in the order that members list them."""
    protocol: str
    rebalances: tuple[Rebalance, ...]
    stops: tuple[Stop, ...] = field(repr=False)
    """Every time that a partition stood still."""
    unread: tuple[TopicPartition, ...]
    """What nobody ever read, though a member subscribed to it."""
    failed: tuple[str, ...]
    """Processes that died of an error."""
    trace: Sequence[Record] = field(repr=False)
    journal: Sequence[ClassicEntry] = field(repr=False)
    notes: tuple[str, ...]

    @property
    def solver_matters(self) -> bool:
        """Another solver than the usual one was asked for, and a strategy listens to it."""
        strategies = self.policy.assignors(self.scenario.strategy)
        listens = any(isinstance(one, StickyFamily) for one in strategies)
        return listens and self.policy.solver != "exact"

    @property
    def generations(self) -> int:
        """How many generations became stable."""
        return sum(rebalance.rounds for rebalance in self.rebalances)

    @property
    def moved(self) -> int:
        """Partitions that got another owner though theirs still wanted them, over all."""
        return sum(rebalance.moved for rebalance in self.rebalances)

    @property
    def moved_min(self) -> int:
        """The fewest that the best balance needed, at each rebalance from where it began."""
        return sum(rebalance.moved_min for rebalance in self.rebalances)

    @property
    def orphaned(self) -> int:
        """Partitions whose owner was gone, over all rebalances."""
        return sum(rebalance.orphaned for rebalance in self.rebalances)

    @cached_property
    def stopped(self) -> int:
        """How long partitions stood still, added up: two for a second are two seconds."""
        return sum(stop.time for stop in self.stops)

    @cached_property
    def worst(self) -> Stop | None:
        """The longest time that a partition stood still; None if nothing stood still."""
        return max(self.stops, key=lambda stop: (stop.time, -stop.since), default=None)

    @cached_property
    def stops_by_partition(self) -> Mapping[TopicPartition, tuple[Stop, ...]]:
        """When each partition stood still; those that never did are left out."""
        found: dict[TopicPartition, list[Stop]] = {}
        for stop in sorted(self.stops):
            found.setdefault(stop.partition, []).append(stop)
        return {partition: tuple(stops) for partition, stops in found.items()}

    @property
    def idle(self) -> int:
        """The most members that had nothing to do after a rebalance."""
        return max((len(rebalance.idle) for rebalance in self.rebalances), default=0)

    @property
    def is_sound(self) -> bool:
        """No member died of an error, and nothing was left unread to the end."""
        return not self.failed and not self.unread

    @property
    def loads(self) -> Mapping[str, int]:
        """How many partitions each member had after the last rebalance that gave any out."""
        return next((one.loads for one in reversed(self.rebalances) if one.generations), {})

    def stopped_in(self, rebalance: Rebalance) -> tuple[Stop, ...]:
        """What stood still until this rebalance gave it to somebody."""
        position = bisect_left(self._starts, rebalance.start)
        while self.rebalances[position] != rebalance:  # some begin at the same moment
            position += 1
        return self._stops_of.get(position, ())

    @property
    def stopped_outside(self) -> tuple[Stop, ...]:
        """What stood still and was not ended by a rebalance: its owner came back, or nobody did."""
        return self._stops_of.get(None, ())

    @cached_property
    def _starts(self) -> list[int]:
        return [rebalance.start for rebalance in self.rebalances]

    @cached_property
    def _stops_of(self) -> Mapping[int | None, tuple[Stop, ...]]:
        """The stops that each rebalance ended, by its position; None for those that none did."""
        found: dict[int | None, list[Stop]] = {}
        for stop in self.stops:
            # where one rebalance ends at the moment that the next begins, it was the former
            before = max(bisect_left(self._starts, stop.until) - 1, 0)
            near = enumerate(self.rebalances[before : before + 2], start=before)
            ended_by = (n for n, one in near if one.start <= stop.until <= one.end)
            found.setdefault(next(ended_by, None), []).append(stop)
        return {position: tuple(stops) for position, stops in found.items()}

    def to_dict(self) -> dict[str, object]:
        """As plain values, for JSON."""
        return {
            **self.summary(),
            "seed": self.seed,
            "duration_ms": self.scenario.duration,
            "outside_ms": sum(stop.time for stop in self.stopped_outside),
            "outside": by_owner(self.stopped_outside),
            "timeline": [self._rebalance(rebalance) for rebalance in self.rebalances],
            "partitions": {
                str(partition): {
                    "stopped_ms": sum(stop.time for stop in stops),
                    "worst_ms": max(stop.time for stop in stops),
                    "stops": len(stops),
                }
                for partition, stops in self.stops_by_partition.items()
            },
            "notes": list(self.notes),
        }

    def summary(self) -> dict[str, object]:
        """The totals."""
        worst = self.worst
        return {
            "policy": self.policy.label,
            "strategy": self.strategy,
            "protocol": self.protocol,
            "static": self.policy.static,
            "rebalances": len(self.rebalances),
            "generations": self.generations,
            "moved": self.moved,
            "moved_min": self.moved_min,
            "orphaned": self.orphaned,
            "stopped_ms": self.stopped,
            "worst_ms": 0 if worst is None else worst.time,
            "worst_partition": None if worst is None else str(worst.partition),
            "idle": self.idle,
            "loads": dict(self.loads),
            "unread": [str(partition) for partition in self.unread],
            "failed": list(self.failed),
        }

    def _rebalance(self, rebalance: Rebalance) -> dict[str, object]:
        stops = self.stopped_in(rebalance)
        return {
            "start_ms": rebalance.start,
            "end_ms": rebalance.end,
            "finished": rebalance.finished,
            "reason": rebalance.reason,
            "generations": list(rebalance.generations),
            "rounds": rebalance.rounds,
            "attempts": rebalance.attempts,
            "members": rebalance.members,
            "moved": rebalance.moved,
            "moved_min": rebalance.moved_min,
            "orphaned": rebalance.orphaned,
            "idle": list(rebalance.idle),
            "loads": dict(rebalance.loads),
            "waits": [
                {"members": list(wait.members), "time_ms": wait.time, "why": wait.why}
                for wait in rebalance.waits
            ],
            "stopped_partitions": len({stop.partition for stop in stops}),
            "stopped_ms": sum(stop.time for stop in stops),
        }


def by_owner(stops: Iterable[Stop]) -> dict[str, int]:
    """How long partitions stood still, by the process that read them before; the longest first."""
    found: dict[str, int] = {}
    for stop in stops:
        found[stop.owner] = found.get(stop.owner, 0) + stop.time
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))
