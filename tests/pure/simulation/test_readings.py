"""The plain trace of who really read which partition when, and the true downtime."""

from __future__ import annotations

from itertools import pairwise

import pytest

import rota
from rota.engine.model.topic import TopicPartition
from tests.support.examples import first
from tests.support.simulated_downtime import (
    GapKind,
    first_rebalance_end,
    list_partition_readings,
    true_downtime,
)
from tests.support.simulation.random_scenario import random_scenario

STALL = """
duration = "15m"
strategy = "cooperative-sticky"
[topics]
t = 2
[[members]]
name = "m"
count = 2
max_poll = "1m"
[[events]]
at = "5m"
stall = "m-0"
for = "2m"
"""
MINUTE = 60_000


@pytest.mark.parametrize("seed", first(10, range(100)))
def test_gaps_are_the_times_between_readings(seed: int) -> None:
    simulation = rota.simulate(random_scenario(seed), seed=seed)
    end = simulation.scenario.duration
    readings = list_partition_readings(simulation.trace, end)
    assert all(one.since < one.until <= end for one in readings)
    by_process = sorted(readings, key=lambda one: (one.partition, one.process, one.since))
    for one, following in pairwise(by_process):
        same = (one.partition, one.process) == (following.partition, following.process)
        assert not same or one.until < following.since
    start = first_rebalance_end(simulation.trace)
    for gap in true_downtime(simulation, simulation.scenario.topics, end):
        assert start is not None
        assert start <= gap.since < gap.until <= end
        assert not any(
            one.partition == gap.partition and one.since < gap.until and gap.since < one.until
            for one in readings
        )


def test_a_stalled_member_keeps_its_partition_until_its_poll_interval_ends() -> None:
    simulation = rota.simulate(STALL, seed=1)
    gaps = true_downtime(simulation, {"t": 2}, 15 * MINUTE)
    partition = next(gap.partition for gap in gaps if gap.kind is GapKind.NOT_POLLED)
    stalled, taken = [gap for gap in gaps if gap.partition == partition][:2]
    assert (stalled.since, stalled.last_process) == (5 * MINUTE, "m-0")
    assert stalled.until - 6 * MINUTE in range(100)  # max_poll from the end of the last poll on
    assert taken.kind is GapKind.NOT_OWNED
    assert taken.since == stalled.until
    assert taken.ended
    # the other member joins again at its next heartbeat
    assert 0 < taken.time <= 3_100
    (whole, *_) = true_downtime(simulation, {"t": 2}, 15 * MINUTE, joined=True)
    assert (whole.since, whole.until, whole.kind) == (stalled.since, taken.until, stalled.kind)


def test_the_first_start_does_not_count() -> None:
    text = STALL[: STALL.index("[[events]]")]
    simulation = rota.simulate(text, seed=1)
    assert true_downtime(simulation, {"t": 2}, 15 * MINUTE) == []
    (one, other) = list_partition_readings(simulation.trace, 15 * MINUTE)
    assert (one.partition, other.partition) == (TopicPartition("t", 0), TopicPartition("t", 1))
    # the second member joins within the initial rebalance delay, which makes it wait once more
    assert 6_000 < one.since < 6_100
    assert one.until == 15 * MINUTE
