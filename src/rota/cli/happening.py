"""What happens in a scenario, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from rota.assignors.registry import resolve_all
from rota.sim.duration import written
from rota.sim.happening import (
    CoordinatorStops,
    Crashes,
    Deploys,
    Grows,
    Happening,
    Joins,
    Leaves,
    Pauses,
    Restarts,
    Slows,
    Stalls,
    Subscribes,
)

SHOWN_NAMES = 3


def told(event: Happening) -> str:  # noqa: C901, PLR0911 (one case for each kind)
    """``deploy billing-0, billing-1, billing-2 and 9 more, each down for 10s``."""
    match event:
        case Joins():
            return f"join {listed(event.names)}"
        case Leaves():
            return f"leave {listed(event.names)}"
        case Crashes():
            return f"crash {listed(event.names)}"
        case Stalls():
            return f"stall {listed(event.names)} for {written(event.time)}"
        case Pauses():
            return f"pause {listed(event.names)} for {written(event.time)}"
        case Slows():
            until = "" if event.time is None else f" for {written(event.time)}"
            work = written(event.processing)
            return f"slow {listed(event.names)}{until}: {work} between polls"
        case Restarts():
            return f"restart {listed(event.names)}, down for {written(event.down)}"
        case Deploys():
            how = "with surge" if event.surge else f"each down for {written(event.down)}"
            said = f"deploy {listed(event.names)}, {how}, {written(event.between)} between"
            return said + _settings(event)
        case Subscribes():
            return f"subscribe {listed(event.names)} to {listed(event.topics)}"
        case Grows():
            counts = [f"{topic} = {count}" for topic, count in event.partitions.items()]
            return f"partitions {listed(counts)}"
        case CoordinatorStops():
            return f"coordinator_down for {written(event.down)}"
        case _:
            assert_never(event)


def _settings(event: Deploys) -> str:
    """What the new processes are told to do otherwise."""
    said = ""
    if event.strategy is not None:
        names = ", ".join(assignor.name for assignor in resolve_all(event.strategy))
        said += f", strategy {names}"
    if event.static is not None:
        said += ", static ids" if event.static else ", no static ids"
    return said


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:SHOWN_NAMES])
    more = len(names) - SHOWN_NAMES
    return f"{shown} and {more:,} more" if more > 0 else shown
