"""Finds strategies by wire name, Java class name, ``package.module:Class`` or entry point."""

from __future__ import annotations

import copy
import difflib
import importlib.metadata
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from rota.engine.assignors import uniform
from rota.engine.assignors.interface import (
    Assignor,
    ColumnarAssignor,
    MemberAssignors,
    strategy_errors,
)
from rota.engine.assignors.range import RangeAssignor
from rota.engine.assignors.roundrobin import RoundRobinAssignor
from rota.engine.assignors.sticky import (
    AbstractStickyAssignor,
    CooperativeStickyAssignor,
    Expired,
    StickyAssignor,
    check_solver,
    unlimited_budget,
)
from rota.engine.model.member import RebalanceProtocol
from rota.engine.model.text import quote_shortened
from rota.errors import InputError, RotaError, UnknownStrategy

ENTRY_POINT_GROUP = "rota.assignors"
KNOWN_PROTOCOLS = frozenset(RebalanceProtocol)

BUILT_IN: Mapping[str, type[Assignor]] = {
    strategy.name: strategy
    for strategy in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}

JAVA_CLASSES: Mapping[str, type[Assignor]] = {
    f"org.apache.kafka.clients.consumer.{strategy.__name__}": strategy
    for strategy in BUILT_IN.values()
}

#: Kafka's default ``partition.assignment.strategy``; it is eager until range is removed from it.
DEFAULT_STRATEGIES = ("range", "cooperative-sticky")
StrategySpec: TypeAlias = str | type[Assignor] | Assignor
#: As in ``partition.assignment.strategy``: one, several, or several in one string.
StrategyList: TypeAlias = StrategySpec | Sequence["StrategyList"]


def resolve_strategy(
    strategy: StrategySpec,
    *,
    solver: str = "exact",
    budget: Callable[[], Expired] = unlimited_budget,
) -> Assignor:
    """Returns the strategy; ``solver`` and ``budget`` are for sticky ones.

    :raises UnknownStrategy: no such strategy, or it cannot be loaded
    """
    check_solver(solver)
    if isinstance(strategy, Assignor):
        return _check_assignor(strategy)
    found = _load_strategy(strategy) if isinstance(strategy, str) else strategy
    if not (isinstance(found, type) and issubclass(found, Assignor)):
        raise UnknownStrategy(f"strategy {strategy!r} is not a subclass of rota.Assignor")
    try:
        # a subclass with its own constructor chooses its solver itself
        base = AbstractStickyAssignor
        if issubclass(found, base) and found.__init__ is base.__init__:
            return _check_assignor(found(solver=solver, budget=budget))
        return _check_assignor(found())
    except RotaError:
        raise
    except (Exception, SystemExit) as error:
        raise UnknownStrategy(f"strategy {strategy!r} cannot be created: {error!r}") from error


#: Pairs of hooks whose user data repeats the fields of a subscription.
BUILT_IN_HOOKS = tuple(
    (strategy.subscription_user_data, strategy.on_assignment)
    for strategy in (StickyAssignor, CooperativeStickyAssignor)
)


def create_member_assignors(
    strategy: StrategySpec, assignor: Assignor, *, solver: str = "exact"
) -> MemberAssignors | None:
    """Returns an instance for each member; None if the strategy's hooks need no call."""
    hooks = type(assignor).subscription_user_data, type(assignor).on_assignment
    reads_fields = type(assignor).assign is ColumnarAssignor.assign and hooks in BUILT_IN_HOOKS
    if reads_fields or hooks == (Assignor.subscription_user_data, Assignor.on_assignment):
        return None
    if not isinstance(strategy, Assignor):
        return MemberAssignors(lambda: resolve_strategy(strategy, solver=solver))

    def create() -> Assignor:
        with strategy_errors(assignor, "__deepcopy__"):
            return copy.deepcopy(assignor)

    return MemberAssignors(create)


def resolve_strategies(
    strategies: StrategyList,
    *,
    solver: str = "exact",
    budget: Callable[[], Expired] = unlimited_budget,
) -> tuple[Assignor, ...]:
    names_and_classes = split_strategies(strategies)
    if not names_and_classes:
        raise InputError("the list of strategies is empty")
    found = tuple(resolve_strategy(one, solver=solver, budget=budget) for one in names_and_classes)
    check_unique_names(found)
    return found


def check_unique_names(assignors: Sequence[Assignor]) -> None:
    """Raises InputError if two strategies have one name: members elect a strategy by name."""
    names = [assignor.name for assignor in assignors]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two strategies in the list have the name {name!r}")


def split_strategies(strategies: StrategyList) -> list[StrategySpec]:
    """Returns a flat list; strings are split at commas, as ``partition.assignment.strategy``."""
    if isinstance(strategies, str):
        return [name.strip() for name in strategies.split(",")]
    if isinstance(strategies, Sequence):
        return [one for strategy in strategies for one in split_strategies(strategy)]
    return [strategies]


def common_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """The highest protocol of the whole list: ``[range, cooperative-sticky]`` runs eager."""
    common = set(RebalanceProtocol).intersection(*(assignor.protocols for assignor in assignors))
    if not common:
        names = ", ".join(assignor.name for assignor in assignors)
        raise InputError(f"no rebalance protocol is common to all of: {names}")
    return max(common)


def known_strategies() -> tuple[str, ...]:
    """Returns every name that :func:`resolve_strategy` finds without a module path."""
    plugins = {point.name for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}
    return (*BUILT_IN, *sorted(plugins.difference(BUILT_IN)))


def _load_strategy(strategy: str) -> object:
    found = BUILT_IN.get(strategy) or JAVA_CLASSES.get(strategy)
    if found is not None:
        return found
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=strategy)
    path = next((point.value for point in points), strategy)
    if ":" in path:
        return import_object(path, "strategy ", UnknownStrategy)
    if strategy.startswith(uniform.SERVER_JAVA_PACKAGE) or strategy in uniform.SERVER_ASSIGNORS:
        raise UnknownStrategy(
            f"strategy {strategy!r} runs on the broker (KIP-848; group.consumer.assignors, "
            "group.remote.assignor): no member can run it; strategies of members are "
            f"{', '.join(known_strategies())}"
        )
    names = {name.rpartition(".")[2].lower(): name for name in (*JAVA_CLASSES, *known_strategies())}
    module, _, name = strategy.rpartition(".")
    near = [names[one] for one in difflib.get_close_matches(name.lower(), names, n=1)]
    if module and not strategy.startswith("org.apache.kafka."):
        near = [f"{module}:{name}"]
    raise UnknownStrategy(
        f"unknown strategy {strategy!r}: {f'did you mean {near[0]!r}? ' if near else ''}"
        f"known are {', '.join(known_strategies())}, Kafka's Java class names, "
        "or your own class as package.module:Class"
    )


def import_object(path: str, prefix: str, error_type: type[InputError] = InputError) -> object:
    """Imports ``package.module:name``; an error begins with the prefix and says what to write."""
    prefix += quote_shortened(path)
    module, _, name = path.rpartition(":")
    if not re.fullmatch(r"\w[\w.]*(?<!\.py):\w[\w.]*", path):
        module = re.split(r"[/\\]", module)[-1].removesuffix(".py") or "mine"
        place = f"for the class {name or 'MyClass'} in {module}.py in this folder"
        hint = f"{place}, write {module}:{name or 'MyClass'}"
        raise error_type(f"{prefix} is not module:Class: {hint}")
    try:
        return importlib.metadata.EntryPoint("", path, "").load()
    except (Exception, SystemExit) as error:
        problem = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            problem = f"no module {module} in the current folder or the installed packages"
        elif isinstance(error, AttributeError) and module in sys.modules:
            near = difflib.get_close_matches(name, vars(sys.modules[module]), n=1)
            problem += f": did you mean {module}:{near[0]}?" if near else ""
        raise error_type(f"{prefix} cannot be loaded: {problem}") from error


def _check_assignor(assignor: Assignor) -> Assignor:
    name = getattr(assignor, "name", None)
    if not isinstance(name, str) or not name:
        raise UnknownStrategy(f'class {type(assignor).__qualname__} needs a line name = "..."')
    protocols: object = assignor.protocols
    if not isinstance(protocols, tuple) or not protocols or not set(protocols) <= KNOWN_PROTOCOLS:
        raise UnknownStrategy(
            f"strategy {name!r}: protocols must be a tuple of rota.RebalanceProtocol, "
            f"not {protocols!r}"
        )
    return assignor
