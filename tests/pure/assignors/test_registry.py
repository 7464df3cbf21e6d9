"""How a strategy is found, and how a list of them picks its protocol."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping

import pytest

import rota
from rota.engine.assignors.range import RangeAssignor
from rota.engine.assignors.registry import (
    DEFAULT_STRATEGIES,
    common_protocol,
    resolve_strategies,
    resolve_strategy,
)
from rota.engine.assignors.roundrobin import RoundRobinAssignor
from rota.engine.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from rota.errors import InputError, UnknownSolver, UnknownStrategy


class Everything(rota.PartitionAssignor):
    """Gives the first member everything."""

    name = "everything"

    def assign_partitions(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, rota.Subscription]
    ) -> dict[str, list[rota.TopicPartition]]:
        first, *_ = subscriptions
        all_of_them = [rota.TopicPartition(t, p) for t, n in partitions.items() for p in range(n)]
        return {member: all_of_them if member == first else [] for member in subscriptions}


class Cooperative(Everything):
    name = "cooperative-only"
    protocols = (rota.RebalanceProtocol.COOPERATIVE,)


class Nameless(rota.PartitionAssignor):
    def assign_partitions(
        self, partitions: object, subscriptions: object
    ) -> dict[str, list[rota.TopicPartition]]:
        return {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("range", RangeAssignor),
        ("roundrobin", RoundRobinAssignor),
        ("sticky", StickyAssignor),
        ("cooperative-sticky", CooperativeStickyAssignor),
        ("org.apache.kafka.clients.consumer.RangeAssignor", RangeAssignor),
        ("org.apache.kafka.clients.consumer.RoundRobinAssignor", RoundRobinAssignor),
        ("org.apache.kafka.clients.consumer.StickyAssignor", StickyAssignor),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", CooperativeStickyAssignor),
        ("tests.pure.assignors.test_registry:Everything", Everything),
    ],
)
def test_by_name(name: str, expected: type[rota.Assignor]) -> None:
    assert type(resolve_strategy(name)) is expected


def test_by_class_and_instance() -> None:
    mine = Everything()
    assert resolve_strategy(mine) is mine
    assert isinstance(resolve_strategy(Everything), Everything)


def test_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint(
        "plugged", "tests.pure.assignors.test_registry:Everything", "rota.assignors"
    )

    def entry_points(**wanted: str) -> list[importlib.metadata.EntryPoint]:
        return [point] if all(getattr(point, k) == v for k, v in wanted.items()) else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert isinstance(resolve_strategy("plugged"), Everything)
    with pytest.raises(UnknownStrategy, match="known are range, .*, plugged"):
        resolve_strategy("pluged")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "rnage",
            r"'rnage': did you mean 'range'\? known are range, roundrobin, sticky",
        ),
        ("", "unknown strategy ''"),
        ("StickyAssignor", r"did you mean 'org.apache.kafka.clients.consumer.StickyAssignor'\?"),
        ("cooperative_sticky", r"did you mean 'cooperative-sticky'\?"),
        ("mine.Sticky", r"unknown strategy 'mine.Sticky': did you mean 'mine:Sticky'\?"),
        ("my.module.StickyAssignor", r"did you mean 'my.module:StickyAssignor'\?"),
        ("org.apache.kafka.StickyAsignor", r"did you mean 'org.apache.kafka.*StickyAssignor'\?"),
        ("rnage", "known are .*, Kafka's Java class names, or your own class"),
        (
            "no.such.module:Class",
            "'no.such.module:Class' cannot be loaded: no module no.such.module in the current "
            "folder or the installed packages$",
        ),
        ("tests.pure.assignors.test_registry:Missing", "cannot be loaded: AttributeError"),
        (
            "tests.pure.assignors.test_registry:Everythin",
            r"did you mean tests.pure.assignors.test_registry:Everything\?$",
        ),
        (
            "./mine.py:Random",
            r"strategy './mine.py:Random' is not module:Class: for the class Random in mine.py "
            "in this folder, write mine:Random$",
        ),
        ("mine.py:Random", "'mine.py:Random' is not module:Class.*, write mine:Random$"),
        (":Random", "':Random' is not module:Class.*, write mine:Random$"),
        ("mine:", "'mine:' is not module:Class.*, write mine:MyClass$"),
        ("json:JSONDecoder", "is not a subclass of rota.Assignor"),
        ("tests.pure.assignors.test_registry:Nameless", 'class Nameless needs a line name = "..."'),
        ("rota:PartitionAssignor", "cannot be created"),
    ],
)
def test_what_cannot_be_found(spec: str, said: str) -> None:
    with pytest.raises(UnknownStrategy, match=said):
        resolve_strategy(spec)


class Demanding(Everything):
    name = "demanding"

    def __init__(self) -> None:
        raise ValueError("no config")


class OwnSticky(StickyAssignor):
    name = "own-sticky"

    def __init__(self) -> None:
        super().__init__(solver="kafka")


class Protocolless(Everything):
    name = "protocolless"
    protocols = ()


def test_a_constructor_that_raises() -> None:
    with pytest.raises(UnknownStrategy, match="cannot be created: ValueError"):
        resolve_strategy(Demanding)


def test_a_sticky_strategy_with_a_constructor_of_its_own() -> None:
    made = resolve_strategy(OwnSticky, solver="exact")
    assert isinstance(made, OwnSticky)
    assert made.solver == "kafka"


def test_protocols_that_are_none() -> None:
    with pytest.raises(UnknownStrategy, match="'protocolless': protocols must be a tuple of"):
        resolve_strategy(Protocolless)


def test_an_unknown_solver_is_refused_for_every_strategy() -> None:
    for strategy in ("sticky", "range"):
        with pytest.raises(UnknownSolver, match="unknown solver 'fast': known are exact, kafka"):
            resolve_strategy(strategy, solver="fast")


def test_the_default_list_runs_eager_until_range_is_dropped() -> None:
    assert common_protocol(resolve_strategies(DEFAULT_STRATEGIES)) is rota.RebalanceProtocol.EAGER
    assert (
        common_protocol(resolve_strategies("cooperative-sticky"))
        is rota.RebalanceProtocol.COOPERATIVE
    )


def test_the_protocol_is_the_highest_of_the_whole_list() -> None:
    both = resolve_strategies(["cooperative-sticky", Cooperative])
    assert common_protocol(both) is rota.RebalanceProtocol.COOPERATIVE
    with pytest.raises(InputError, match="common to all of: range, cooperative-only"):
        common_protocol(resolve_strategies(["range", Cooperative]))


def test_two_of_one_name_are_refused() -> None:
    java = "org.apache.kafka.clients.consumer.RangeAssignor"
    with pytest.raises(InputError, match="two strategies in the list have the name 'range'"):
        resolve_strategies(f"range, {java}")


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(InputError, match="the list of strategies is empty"):
        resolve_strategies([])


@pytest.mark.parametrize(
    "name", ["uniform", "org.apache.kafka.coordinator.group.assignor.UniformAssignor"]
)
def test_the_brokers_own_strategies_are_not_for_members(name: str) -> None:
    with pytest.raises(UnknownStrategy, match=r"runs on the broker \(KIP-848;"):
        resolve_strategy(name)
