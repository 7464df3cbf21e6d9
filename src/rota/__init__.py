"""Kafka's consumer groups in Python: assign partitions, run groups, replay what happened to them.

``import rota`` is light: a name is loaded on first use.
"""

from __future__ import annotations

import gc
import importlib
import types
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rota import errors
    from rota.broker.embedded import Broker
    from rota.client.config import load_properties
    from rota.consumer.async_consumer import AsyncConsumer
    from rota.consumer.consumer import Consumer
    from rota.consumer.records import (
        ConsumerInterceptor,
        ConsumerRecord,
        RebalanceListener,
        Records,
    )
    from rota.engine.assignors.interface import Assignor, PartitionAssignor
    from rota.engine.model.member import (
        Assignment,
        GroupAssignment,
        GroupSubscription,
        Member,
        RebalanceProtocol,
        Subscription,
    )
    from rota.engine.model.topic import Cluster, OffsetAndMetadata, Partitions, TopicPartition
    from rota.engine.plan import Move, Plan, assign
    from rota.engine.simulator.simulation import Simulation, simulate

_HOMES = {
    "Assignment": "rota.engine.model.member",
    "Assignor": "rota.engine.assignors.interface",
    "Consumer": "rota.consumer.consumer",
    "Broker": "rota.broker.embedded",
    "Cluster": "rota.engine.model.topic",
    "AsyncConsumer": "rota.consumer.async_consumer",
    "ConsumerInterceptor": "rota.consumer.records",
    "ConsumerRecord": "rota.consumer.records",
    "GroupAssignment": "rota.engine.model.member",
    "GroupSubscription": "rota.engine.model.member",
    "Member": "rota.engine.model.member",
    "Move": "rota.engine.plan",
    "OffsetAndMetadata": "rota.engine.model.topic",
    "PartitionAssignor": "rota.engine.assignors.interface",
    "Partitions": "rota.engine.model.topic",
    "Plan": "rota.engine.plan",
    "RebalanceListener": "rota.consumer.records",
    "RebalanceProtocol": "rota.engine.model.member",
    "Records": "rota.consumer.records",
    "Simulation": "rota.engine.simulator.simulation",
    "Subscription": "rota.engine.model.member",
    "TopicPartition": "rota.engine.model.topic",
    "assign": "rota.engine.plan",
    "load_properties": "rota.client.config",
    "simulate": "rota.engine.simulator.simulation",
}

#: What needs more than Rota alone, and who knows what.
_NEEDY = {"Broker": "rota.broker", "Consumer": "rota.client", "AsyncConsumer": "rota.client"}

__all__ = [
    "Assignment",
    "Assignor",
    "AsyncConsumer",
    "Broker",
    "Cluster",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "GroupAssignment",
    "GroupSubscription",
    "Member",
    "Move",
    "OffsetAndMetadata",
    "PartitionAssignor",
    "Partitions",
    "Plan",
    "RebalanceListener",
    "RebalanceProtocol",
    "Records",
    "Simulation",
    "Subscription",
    "TopicPartition",
    "assign",
    "errors",
    "load_properties",
    "simulate",
]


if not TYPE_CHECKING:  # a type checker knows the names above, and no others

    def __getattr__(name: str) -> object:
        if name == "errors":
            return importlib.import_module("rota.errors")
        if name not in _HOMES:
            raise AttributeError(f"module 'rota' has no attribute {name!r}")
        part = _NEEDY.get(name)
        if part is not None and (problem := importlib.import_module(part).missing()):
            raise importlib.import_module("rota.errors").MissingExtra(problem)
        value = globals()[name] = getattr(_loaded(_HOMES[name]), name)
        return value

    def _loaded(module: str) -> types.ModuleType:
        """Without the collector, which would look through hundreds of new classes again and again,
        for a tenth of the time that a broker takes to be there.
        """
        if not gc.isenabled():
            return importlib.import_module(module)
        gc.disable()
        try:
            return importlib.import_module(module)
        finally:
            gc.enable()


def __dir__() -> list[str]:
    """Without what cannot be loaded here: ``help(rota)`` would fail by it."""
    parts = {part: importlib.import_module(part).missing() for part in set(_NEEDY.values())}
    return sorted(name for name in __all__ if not parts.get(_NEEDY.get(name, "")))
