"""Kafka's consumer groups in Python.

Plan a rebalance before it happens:

    members = [rota.Member(id=name, topics=["orders"]) for name in "abc"]
    plan = rota.assign("cooperative-sticky", {"orders": 8}, members)

Read topics as a member of a group, with any strategy (``rota.AsyncConsumer`` for asyncio):

    with rota.Consumer({"bootstrap.servers": "host:9092", "group.id": "g"}) as consumer:
        consumer.subscribe("orders")
        for record in consumer:
            ...

Test against a broker in the same process (or use the pytest fixture ``kafka``):

    with rota.Broker() as broker:
        broker.produce("orders", "a cup")

Simulate a group with crashes, deploys and slow members: ``rota.simulate``. Write your own strategy:
``rota.PartitionAssignor``. All errors are in ``rota.errors``. Each name is loaded on first use, so
``import rota`` is fast.
"""

from __future__ import annotations

import gc
import importlib
import time
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType

    from rota import errors
    from rota.broker.control import Group, GroupMember, Record
    from rota.broker.embedded import Broker, BrokerClock
    from rota.client.config import load_properties
    from rota.client.fetch import Batch, BytesColumn
    from rota.client.offsets import ListedOffset
    from rota.consumer.async_consumer import AsyncConsumer
    from rota.consumer.consumer import Consumer
    from rota.consumer.records import (
        ConsumerInterceptor,
        ConsumerRecord,
        GroupMetadata,
        RebalanceListener,
        Records,
    )
    from rota.engine.assignors.certificate import Certificate
    from rota.engine.assignors.interface import Assignor, PartitionAssignor
    from rota.engine.assignors.registry import StrategyList
    from rota.engine.history.downtime import DowntimeTotal
    from rota.engine.history.facts import Downtime
    from rota.engine.model.member import (
        Assignment,
        GroupAssignment,
        GroupSubscription,
        Member,
        RebalanceProtocol,
        Subscription,
    )
    from rota.engine.model.topic import Cluster, OffsetAndMetadata, Partitions, TopicPartition
    from rota.engine.plan import Move, Plan, ReplicaRacks
    from rota.engine.simulator.rebalances import SimulatedRebalance
    from rota.engine.simulator.scenario import Scenario
    from rota.engine.simulator.simulation import Simulation, simulate

__all__ = [
    "Assignment",
    "Assignor",
    "AsyncConsumer",
    "Batch",
    "Broker",
    "BrokerClock",
    "BytesColumn",
    "Certificate",
    "Cluster",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "Downtime",
    "DowntimeTotal",
    "Group",
    "GroupAssignment",
    "GroupMember",
    "GroupMetadata",
    "GroupSubscription",
    "ListedOffset",
    "Member",
    "Move",
    "OffsetAndMetadata",
    "PartitionAssignor",
    "Partitions",
    "Plan",
    "RebalanceListener",
    "RebalanceProtocol",
    "Record",
    "Records",
    "Scenario",
    "SimulatedRebalance",
    "Simulation",
    "Subscription",
    "TopicPartition",
    "assign",
    "errors",
    "load_properties",
    "simulate",
]

_MODULES = {
    name: module
    for module, names in {
        "rota.broker.control": "Group GroupMember Record",
        "rota.broker.embedded": "Broker BrokerClock",
        "rota.client.config": "load_properties",
        "rota.client.fetch": "Batch BytesColumn",
        "rota.client.offsets": "ListedOffset",
        "rota.consumer.async_consumer": "AsyncConsumer",
        "rota.consumer.consumer": "Consumer",
        "rota.consumer.records": "ConsumerInterceptor ConsumerRecord GroupMetadata "
        "RebalanceListener Records",
        "rota.engine.assignors.certificate": "Certificate",
        "rota.engine.assignors.interface": "Assignor PartitionAssignor",
        "rota.engine.model.member": "Assignment GroupAssignment GroupSubscription Member "
        "RebalanceProtocol Subscription",
        "rota.engine.model.topic": "Cluster OffsetAndMetadata Partitions TopicPartition",
        "rota.engine.plan": "Move Plan",
        "rota.engine.simulator.rebalances": "SimulatedRebalance",
        "rota.engine.simulator.scenario": "Scenario",
        "rota.engine.simulator.simulation": "Simulation simulate",
        "rota.engine.history.downtime": "DowntimeTotal",
        "rota.engine.history.facts": "Downtime",
    }.items()
    for name in names.split()
}

#: names that need an extra, and the package whose ``explain_missing_packages()`` helps
_EXTRAS = dict.fromkeys(("Broker", "BrokerClock", "Group", "GroupMember", "Record"), "rota.broker")
_EXTRAS |= dict.fromkeys(
    ("AsyncConsumer", "Batch", "BytesColumn", "Consumer", "ListedOffset"), "rota.client"
)


def _import(module: str) -> ModuleType:
    """Imports a module with the garbage collector off: it would examine hundreds of new classes
    again and again, which takes a tenth of the time to import a broker.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        if was_enabled:
            gc.enable()


def assign(  # noqa: PLR0913 (all but two are options)
    strategy: StrategyList,
    partitions: Mapping[str, int],
    members: Iterable[Member],
    *,
    solver: str = "exact",
    racks: ReplicaRacks | None = None,
    left: Iterable[Member] = (),
    budget_ms: int | None = 5_000,
) -> Plan:
    """Plans a rebalance: which member gets which partition under a strategy.

    :param strategy: a wire name, a Java class name, ``package.module:Class``, a class or an
        instance; or a list of them, as every member would be configured. The first one is used,
        and the rebalance protocol is the highest that the whole list supports.
    :param partitions: partition counts by topic
    :param members: the group's members, with the partitions that they own now
    :param solver: ``exact`` (provably best) or ``kafka`` (as Kafka 4.3); only for sticky strategies
    :param racks: replica racks by topic and partition: ``{"t0": [("r1", "r2"), ...]}``
    :param left: members that have just left, for :attr:`Plan.orphaned`
    :param budget_ms: time limit of the exact solver's search for fewer moves; None: no limit
    """
    _import("rota.engine.plan")
    from rota.engine.assignors.sticky import TimeBudget, unlimited_budget  # noqa: PLC0415 (slow)
    from rota.engine.plan import plan_rebalance  # noqa: PLC0415 (slow)

    # the engine has no clock of its own.
    budget = unlimited_budget if budget_ms is None else TimeBudget(budget_ms, time.monotonic)
    return plan_rebalance(
        strategy, partitions, members, solver=solver, racks=racks, left=left, budget=budget
    )


if not TYPE_CHECKING:  # so that a type checker accepts only the names above

    def __getattr__(name: str) -> object:
        if name == "errors":
            return importlib.import_module("rota.errors")
        if name == "Producer":
            raise AttributeError("rota has no Producer: use kafka-python's or confluent-kafka's")
        if name not in _MODULES:
            raise AttributeError(f"module 'rota' has no attribute {name!r}")
        package = _EXTRAS.get(name)
        if package is not None and (
            problem := importlib.import_module(package).explain_missing_packages()
        ):
            raise importlib.import_module("rota.errors").MissingExtra(problem)
        value = globals()[name] = getattr(_import(_MODULES[name]), name)
        return value


def __dir__() -> list[str]:
    # Names whose extra is not installed are left out, because help(rota) would fail on them.
    problems = {
        each: importlib.import_module(each).explain_missing_packages()
        for each in set(_EXTRAS.values())
    }
    return sorted(name for name in __all__ if not problems.get(_EXTRAS.get(name, "")))
