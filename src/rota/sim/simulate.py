"""``rota.simulate``: a scenario in, what comes of it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rota.assignors.registry import StrategyList, common_protocol
from rota.errors import Fenced, InputError
from rota.sim.duration import clock
from rota.sim.policy import Policy
from rota.sim.rebalance import rebalances
from rota.sim.result import Simulation
from rota.sim.scenario import Scenario, read_scenario
from rota.sim.script import Script
from rota.sim.standstill import Standstill, standstill
from rota.sim.trace import Record, What

SHOWN_PARTITIONS = 5


def simulate(  # noqa: PLR0913 (all but one are options)
    scenario: Scenario | str | Mapping[str, object],
    strategy: StrategyList | None = None,
    *,
    solver: str = "exact",
    static: bool | None = None,
    seed: int = 0,
    skip: bool = True,
) -> Simulation:
    """Plays a scenario through the real coordinator and members, under a virtual clock.

    :param scenario: the text of a scenario file, the same as a mapping, or what
        :func:`rota.sim.scenario.read_scenario` gives
    :param strategy: for all members, as in :func:`rota.assign`; None: as the scenario says
    :param solver: ``exact`` or ``kafka``, for the sticky family
    :param static: all members have static ids, or none; None: as the scenario says
    :param seed: decides member ids and the jitter of the network; the same seed gives the same
        result, to the byte
    :param skip: leave out heartbeats that cannot change anything; the result is the same
    :raises InputError: the scenario is wrong; line and key are named
    """
    if not isinstance(scenario, Scenario):
        scenario = read_scenario(scenario)
    if not isinstance(seed, int):
        raise InputError(f"seed: {seed!r} is not a whole number")
    policy = Policy(strategy=strategy, solver=solver, static=static)
    return play(scenario, policy, seed, skip=skip)


def play(
    scenario: Scenario,
    policy: Policy,
    seed: int = 0,
    *,
    skip: bool = True,
    progress: Callable[[float], None] | None = None,
) -> Simulation:
    """Plays a scenario under a policy; ``progress`` is told what share of it is over."""
    script = Script(scenario, policy, seed, skip=skip)
    world = script.run(progress)
    used = [policy.assignors(members.strategy or scenario.strategy) for members in scenario.members]
    names = (", ".join(one.name for one in assignors) for assignors in used)
    protocols = (common_protocol(assignors).name.lower() for assignors in used)
    found = rebalances(world.trace, scenario.topics, scenario.duration)
    opened = next((one.end for one in found if one.generations and one.finished), None)
    still = standstill(world.trace, scenario.topics, opened, scenario.duration)
    return Simulation(
        scenario=scenario,
        policy=policy,
        seed=seed,
        strategy=" or ".join(dict.fromkeys(names)),
        protocol=" or ".join(dict.fromkeys(protocols)),
        rebalances=found,
        stops=still.stops,
        unread=still.unread,
        failed=_failed(world.trace),
        trace=tuple(world.trace),
        journal=tuple(world.journal),
        notes=(*script.notes, *_raised(world.trace), *_unread(still)),
    )


def _failed(trace: Iterable[Record]) -> tuple[str, ...]:
    """Who died of an error; one that was fenced has a successor under its static id."""
    died = (record.who for record in trace if _died(record))
    return tuple(dict.fromkeys(died))


def _died(record: Record) -> bool:
    return record.what is What.RAISED and not str(record.detail).startswith(Fenced.__name__)


def _unread(still: Standstill) -> list[str]:
    said = [f"nobody reads {topic}: no member subscribes to it" for topic in still.unwanted]
    unread = [one for one in still.unread if one.topic not in still.unwanted]
    if unread:
        first = ", ".join(map(str, unread[:SHOWN_PARTITIONS]))
        more = len(unread) - SHOWN_PARTITIONS
        said.append(f"never read: {first}{f' and {more:,} more' if more > 0 else ''}")
    return said


def _raised(trace: Iterable[Record]) -> list[str]:
    """What applications would have seen as errors."""
    return [
        f"at {clock(record.at)}: {record.who} raised {record.detail}"
        for record in trace
        if record.what is What.RAISED
    ]
