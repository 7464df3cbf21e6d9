"""What came of a simulated scenario: rebalances, moves, standstill, idle members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

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

    def stopped_in(self, rebalance: Rebalance) -> tuple[Stop, ...]:
        """What stood still until this rebalance gave it to somebody."""
        return tuple(stop for stop in self.stops if rebalance.start <= stop.until <= rebalance.end)

    def to_dict(self) -> dict[str, object]:
        """As plain values, for JSON."""
        return {
            **self.summary(),
            "seed": self.seed,
            "duration_ms": self.scenario.duration,
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
            "stopped_partitions": len({stop.partition for stop in stops}),
            "stopped_ms": sum(stop.time for stop in stops),
        }
