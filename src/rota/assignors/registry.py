"""Finds strategies by wire name, ``package.module:Class``, entry point or Java class name."""

from __future__ import annotations

import difflib
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from rota.assignors import server
from rota.assignors.cooperative import CooperativeSticky
from rota.assignors.interface import Assignor
from rota.assignors.range import Range
from rota.assignors.roundrobin import RoundRobin
from rota.assignors.sticky import Expired, Sticky, StickyFamily, check_solver, unlimited
from rota.errors import InputError, RotaError, UnknownStrategy
from rota.model.membership import RebalanceProtocol

ENTRY_POINTS = "rota.assignors"
KNOWN_PROTOCOLS = frozenset(RebalanceProtocol)

BUILT_IN: Mapping[str, type[Assignor]] = {
    strategy.name: strategy for strategy in (Range, RoundRobin, Sticky, CooperativeSticky)
}

JAVA_CLASSES: Mapping[str, type[Assignor]] = {
    f"org.apache.kafka.clients.consumer.{name}": strategy
    for name, strategy in (
        ("RangeAssignor", Range),
        ("RoundRobinAssignor", RoundRobin),
        ("StickyAssignor", Sticky),
        ("CooperativeStickyAssignor", CooperativeSticky),
    )
}

SOLVING = (Sticky.__init__, CooperativeSticky.__init__)
"""Constructors that take a solver and a budget."""

DEFAULT_LIST = ("range", "cooperative-sticky")
"""Kafka's default ``partition.assignment.strategy``; runs eager until range is dropped from it."""

StrategySpec: TypeAlias = str | type[Assignor] | Assignor
StrategyList: TypeAlias = "StrategySpec | Sequence[StrategyList]"
"""As in ``partition.assignment.strategy``: one, several, or several in one string."""


def resolve(
    strategy: StrategySpec,
    *,
    solver: str = "exact",
    budget: Callable[[], Expired] = unlimited,
) -> Assignor:
    """The strategy that is meant.

    ``solver`` and ``budget`` go to strategies of the sticky family; an instance is taken as it is.

    :raises UnknownStrategy: there is none, or it cannot be loaded
    """
    check_solver(solver)
    if isinstance(strategy, Assignor):
        return _named(strategy)
    found = _load(strategy) if isinstance(strategy, str) else strategy
    if not (isinstance(found, type) and issubclass(found, Assignor)):
        raise UnknownStrategy(f"strategy {strategy!r} is not a subclass of rota.Assignor")
    try:
        if issubclass(found, StickyFamily) and found.__init__ in SOLVING:
            return _named(found(solver=solver, budget=budget))
        return _named(found())
    except RotaError:
        raise
    except (Exception, SystemExit) as error:
        raise UnknownStrategy(f"strategy {strategy!r} cannot be created: {error!r}") from error


def resolve_all(
    strategies: StrategyList,
    *,
    solver: str = "exact",
    budget: Callable[[], Expired] = unlimited,
) -> tuple[Assignor, ...]:
    """A whole list in order of preference."""
    names_and_classes = listed(strategies)
    if not names_and_classes:
        raise InputError("the list of strategies is empty")
    found = tuple(resolve(one, solver=solver, budget=budget) for one in names_and_classes)
    check_names(found)
    return found


def check_names(assignors: Sequence[Assignor]) -> None:
    """Members elect a strategy by its name, so no two of a list may have the same."""
    names = [assignor.name for assignor in assignors]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two strategies in the list have the name {name!r}")


def listed(strategies: StrategyList) -> list[StrategySpec]:
    """One by one: strings are split at commas, as in ``partition.assignment.strategy``."""
    if isinstance(strategies, str):
        return [name.strip() for name in strategies.split(",")]
    if isinstance(strategies, Sequence):
        return [one for strategy in strategies for one in listed(strategy)]
    return [strategies]


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The highest protocol that every strategy of the list supports.

    So ``[range, cooperative-sticky]`` runs eager until range is dropped from it.
    """
    common = set(RebalanceProtocol).intersection(*(assignor.protocols for assignor in assignors))
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise InputError(f"no rebalance protocol is common to all of: {names}")
    return max(common)


def known() -> tuple[str, ...]:
    """Every name that :func:`resolve` finds without a module path."""
    plugins = {point.name for point in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    return (*BUILT_IN, *sorted(plugins.difference(BUILT_IN)))


def _load(strategy: str) -> object:
    found = BUILT_IN.get(strategy) or JAVA_CLASSES.get(strategy)
    if found is not None:
        return found
    if ":" in strategy:
        point = importlib.metadata.EntryPoint("", strategy, ENTRY_POINTS)
        return _loaded(strategy, point.load)
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=strategy):
        return _loaded(strategy, point.load)
    if strategy.startswith(server.JAVA_PACKAGE) or strategy in server.KNOWN:
        raise UnknownStrategy(
            f"strategy {strategy!r} is the broker's own (KIP-848), chosen by its "
            "group.consumer.assignors or a consumer's group.remote.assignor: no member can run it; "
            f"a member's strategies are {', '.join(known())}"
        )
    names = {name.rpartition(".")[2].lower(): name for name in (*JAVA_CLASSES, *known())}
    near = difflib.get_close_matches(strategy.rpartition(".")[2].lower(), names, n=1)
    raise UnknownStrategy(
        f"unknown strategy {strategy!r}: {f'did you mean {names[near[0]]!r}? ' if near else ''}"
        f"known are {', '.join(known())}, Java's class names, "
        "or a class of yours as package.module:Class"
    )


def _loaded(strategy: str, load: Callable[[], object]) -> object:
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise UnknownStrategy(
            f"strategy {strategy!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def _named(assignor: Assignor) -> Assignor:
    name = getattr(assignor, "name", None)
    if not isinstance(name, str) or not name:
        raise UnknownStrategy(f"strategy {type(assignor).__qualname__} has no name")
    protocols: object = assignor.protocols
    if not isinstance(protocols, tuple) or not protocols or not set(protocols) <= KNOWN_PROTOCOLS:
        raise UnknownStrategy(
            f"strategy {name!r}: protocols must be a tuple of rota.RebalanceProtocol, "
            f"not {protocols!r}"
        )
    return assignor
