"""The group that most people have, every strategy, the whole call."""

from __future__ import annotations

from collections.abc import Iterator

from kafka.structs import TopicPartition

import bench.kafka_python as peer
from bench import case, ours
from bench.case import Case, Step
from bench.limit import LIMITS
from bench.measure import Measurement, best_mean
from bench.peer import KAFKA_PYTHON
from bench.run import Row, Run
from rota.engine.assignors.interface import ColumnarAssignor
from rota.engine.assignors.range import RangeAssignor
from rota.engine.assignors.roundrobin import RoundRobinAssignor
from rota.engine.assignors.sticky import (
    SOLVERS,
    AbstractStickyAssignor,
    CooperativeStickyAssignor,
    StickyAssignor,
)


def _measure_rota(
    work: Case, step: Step, strategy: ColumnarAssignor, owned: ours.Owned
) -> Measurement:
    cluster = ours.make_cluster(work)
    group = ours.make_group(work, step, owned)

    def assign() -> dict[str, dict[str, tuple[int, ...]]]:
        given = strategy.assign(cluster, group)
        return {member: given[member].partitions.by_topic() for member in given}

    try:
        loads = [sum(map(len, topics.values())) for topics in assign().values()]
    except NotImplementedError:
        return Measurement(seconds=None, trouble="not there yet")
    return Measurement(seconds=best_mean(assign), loads=(min(loads), max(loads)))


def _measure_kafka_python(work: Case, step: Step, name: str, owned: ours.Owned) -> Measurement:
    cluster = peer.Topics(work)
    held = {
        member: [TopicPartition(*partition) for partition in partitions]
        for member, partitions in owned.items()
    }
    members = peer.joined_members(work, step, name, held)
    return Measurement(
        seconds=best_mean(lambda: peer.create_assignor(name).assign(cluster, members))
    )


def run(bench: Run) -> Iterator[Row]:
    """From values to values that were read: ``assign``, then each member's partitions."""
    work = case.small()
    fresh, leave, _ = work.steps
    strategies: list[ColumnarAssignor] = [RangeAssignor(), RoundRobinAssignor()]
    for solver in SOLVERS:
        strategies += [StickyAssignor(solver=solver), CooperativeStickyAssignor(solver=solver)]
    for strategy in strategies:
        solver = (
            f", solver {strategy.solver}" if isinstance(strategy, AbstractStickyAssignor) else ""
        )
        label = f"{strategy.name}{solver}"
        bench.print_progress(f"   small: {label}")
        for step in (fresh, leave):
            owned = {} if step.after is None else ours.deal_topics(work, fresh)
            yield Row(
                work=f"3 members, 3 topics x 12, {label}: {step.name}",
                ours=_measure_rota(work, step, strategy, owned),
                theirs={KAFKA_PYTHON: _measure_kafka_python(work, step, strategy.name, owned)},
                limit=LIMITS["small"],
            )
