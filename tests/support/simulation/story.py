"""One fixed story, in which a coordinator writes every kind of entry: for tests that break it at
every place in turn.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from rota.engine.assignors.registry import resolve_strategies
from rota.engine.model.config import GroupConfig, MemberConfig
from rota.engine.model.request import DeleteGroups, OffsetDelete
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.process import ProcessConfig, SimulatedProcess
from rota.errors import Code
from tests.support.simulation.liveness import CALM, check_settled, resubscribe_if_needed
from tests.support.simulation.plan import SECOND, FaultKind, GroupPlan, Plan
from tests.support.simulation.rule import must
from tests.support.simulation.run_seed import Watched, run_world_until
from tests.support.simulation.run_seed import settle_world as settle_down
from tests.support.simulation.unreliable_network import FaultRates
from tests.support.simulation.worlds import CheckedWorld, create_checked_world

GROUP = "g"
END = 100 * SECOND

PLAN = Plan(
    seed=1,
    kind=FaultKind.BROKER,
    features=(),
    groups=(GroupPlan(GROUP, (("cooperative-sticky",),), "exact", 3, 0.3),),
    topics={"t0": 3, "t1": 2},
    config=GroupConfig(min_session_timeout=SECOND, initial_rebalance_delay=500),
    odds=FaultRates(),
    latency=2,
    append=5,
    metadata_age=0,
    horizon=END,
    hasty=False,
    resets=True,
    script=(),
)


def process_config(name: str, *, static: bool = False, **settings: int) -> ProcessConfig:
    config = MemberConfig(
        group=GROUP,
        client_id=name,
        group_instance_id=f"static-{name}" if static else None,
        session_timeout=settings.get("session", 6 * SECOND),
        heartbeat_interval=settings.get("heartbeat", SECOND),
        max_poll_interval=settings.get("poll", 10 * SECOND),
        auto_commit=False,
    )
    return ProcessConfig(
        name=name,
        config=config,
        assignors=functools.partial(resolve_strategies, "cooperative-sticky"),
        topics=("t0", "t1"),
    )


@contextmanager
def open_world(
    plan: Plan = PLAN, watched: Watched = create_checked_world
) -> Iterator[CheckedWorld]:
    """A watched world with nobody in it."""
    with ExitStack() as stack:
        yield watched(plan, Counter(), stack)


def _do(
    checked_world: CheckedWorld, name: str, act: Callable[[SimulatedProcess], object]
) -> Callable[[], None]:
    """Something is done to a process, if it still runs."""

    def done() -> None:
        if name in checked_world.processes:
            act(checked_world[name])

    return done


def _commit(wait: int | None) -> Callable[[SimulatedProcess], None]:
    return lambda one: one.commit(wait=wait)


def schedule_events(checked_world: CheckedWorld) -> None:
    """Three come, commit, see a topic grow, lose one, and go; then the group is deleted."""
    for name in ("a", "b"):
        checked_world.schedule(0, functools.partial(checked_world.start, process_config(name)))
    static = process_config("s", static=True)
    checked_world.schedule(100, functools.partial(checked_world.start, static))
    checked_world.schedule(8 * SECOND, _do(checked_world, "a", _commit(3 * SECOND)))
    checked_world.schedule(9 * SECOND, _do(checked_world, "b", _commit(None)))
    checked_world.schedule(12 * SECOND, lambda: checked_world.set_partitions({"t1": 5}))
    checked_world.schedule(30 * SECOND, _do(checked_world, "s", SimulatedProcess.crash))
    checked_world.schedule(31 * SECOND, functools.partial(_start, checked_world, static))
    checked_world.schedule(35 * SECOND, _do(checked_world, "s", _commit(3 * SECOND)))
    checked_world.schedule(40 * SECOND, _do(checked_world, "b", SimulatedProcess.leave))
    checked_world.schedule(55 * SECOND, functools.partial(checked_world.delete_topic, "t0"))
    checked_world.schedule(70 * SECOND, _do(checked_world, "a", SimulatedProcess.leave))
    checked_world.schedule(72 * SECOND, _do(checked_world, "s", SimulatedProcess.crash))
    offsets = OffsetDelete(group=GROUP, partitions=(TopicPartition("t1", 0),))
    checked_world.schedule(90 * SECOND, lambda: checked_world.ask(offsets))
    checked_world.schedule(92 * SECOND, lambda: checked_world.ask(DeleteGroups(groups=(GROUP,))))
    checked_world.schedule(94 * SECOND, functools.partial(checked_world.start, process_config("c")))


def _start(checked_world: CheckedWorld, one: ProcessConfig) -> None:
    if one.name not in checked_world.processes:
        checked_world.start(one)


def run_to_end(checked_world: CheckedWorld) -> None:
    """To the end of the story, and on until everything is well."""
    run_world_until(checked_world, END)
    if checked_world.broker.coordinator is None:
        checked_world.broker.start()
    settle_and_check(checked_world)


def settle_and_check(checked_world: CheckedWorld) -> None:
    """Everything is well in time, and stays so."""
    settle_down(checked_world)
    check_settled(checked_world)
    if resubscribe_if_needed(checked_world):
        settle_down(checked_world)
        check_settled(checked_world)
    generations = dict(checked_world.driver.generations)
    run_world_until(checked_world, checked_world.now + CALM)
    check_settled(checked_world)
    must(generations == dict(checked_world.driver.generations), "no rebalance without a reason")


def count_retriable(checked_world: CheckedWorld) -> int:
    """How many requests were told to try again, here or elsewhere."""
    later = (Code.COORDINATOR_NOT_AVAILABLE.name, Code.NOT_COORDINATOR.name)
    return sum(count for name, count in checked_world.tally.items() if name.endswith(later))
