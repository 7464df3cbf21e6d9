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
from rota.engine.simulator.network import FaultRates
from rota.engine.simulator.process import ProcessConfig, SimulatedProcess
from rota.errors import Code
from tests.support.simulation.liveness import CALM, check_settled, nudge
from tests.support.simulation.plan import SECOND, GroupPlan, Kind, Plan
from tests.support.simulation.play import Watched, run
from tests.support.simulation.play import settle as settle_down
from tests.support.simulation.rule import must
from tests.support.simulation.worlds import Arena, watched

GROUP = "g"
END = 100 * SECOND

PLAN = Plan(
    seed=1,
    kind=Kind.BROKER,
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


def program(name: str, *, static: bool = False, **settings: int) -> ProcessConfig:
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
def state(plan: Plan = PLAN, watched: Watched = watched) -> Iterator[Arena]:
    """A watched world with nobody in it."""
    with ExitStack() as stack:
        yield watched(plan, Counter(), stack)


def _do(arena: Arena, name: str, act: Callable[[SimulatedProcess], object]) -> Callable[[], None]:
    """Something is done to a process, if it still runs."""

    def done() -> None:
        if name in arena.processes:
            act(arena[name])

    return done


def _commit(wait: int | None) -> Callable[[SimulatedProcess], None]:
    return lambda one: one.commit(wait=wait)


def tell(arena: Arena) -> None:
    """Three come, commit, see a topic grow, lose one, and go; then the group is deleted."""
    for name in ("a", "b"):
        arena.schedule(0, functools.partial(arena.start, program(name)))
    static = program("s", static=True)
    arena.schedule(100, functools.partial(arena.start, static))
    arena.schedule(8 * SECOND, _do(arena, "a", _commit(3 * SECOND)))
    arena.schedule(9 * SECOND, _do(arena, "b", _commit(None)))
    arena.schedule(12 * SECOND, lambda: arena.set_partitions({"t1": 5}))
    arena.schedule(30 * SECOND, _do(arena, "s", SimulatedProcess.crash))
    arena.schedule(31 * SECOND, functools.partial(_start, arena, static))
    arena.schedule(35 * SECOND, _do(arena, "s", _commit(3 * SECOND)))
    arena.schedule(40 * SECOND, _do(arena, "b", SimulatedProcess.leave))
    arena.schedule(55 * SECOND, functools.partial(arena.delete_topic, "t0"))
    arena.schedule(70 * SECOND, _do(arena, "a", SimulatedProcess.leave))
    arena.schedule(72 * SECOND, _do(arena, "s", SimulatedProcess.crash))
    offsets = OffsetDelete(group=GROUP, partitions=(TopicPartition("t1", 0),))
    arena.schedule(90 * SECOND, lambda: arena.ask(offsets))
    arena.schedule(92 * SECOND, lambda: arena.ask(DeleteGroups(groups=(GROUP,))))
    arena.schedule(94 * SECOND, functools.partial(arena.start, program("c")))


def _start(arena: Arena, one: ProcessConfig) -> None:
    if one.name not in arena.processes:
        arena.start(one)


def play_out(arena: Arena) -> None:
    """To the end of the story, and on until everything is well."""
    run(arena, END)
    if arena.coordinator is None:
        arena.start_coordinator()
    settle(arena)


def settle(arena: Arena) -> None:
    """Everything is well in time, and stays so."""
    settle_down(arena)
    check_settled(arena)
    if nudge(arena):
        settle_down(arena)
        check_settled(arena)
    generations = dict(arena.desk.generations)
    run(arena, arena.now + CALM)
    check_settled(arena)
    must(generations == dict(arena.desk.generations), "no rebalance without a reason")


def told_later(arena: Arena) -> int:
    """How many requests were told to try again, here or elsewhere."""
    later = (Code.COORDINATOR_NOT_AVAILABLE.name, Code.NOT_COORDINATOR.name)
    return sum(count for name, count in arena.tally.items() if name.endswith(later))
