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
    from rota.assignors.interface import Assignor, PartitionAssignor
    from rota.broker.embedded import Broker
    from rota.client.setting import load_properties
    from rota.consumer.blocking import BlockingConsumer
    from rota.consumer.consumer import Consumer
    from rota.consumer.listener import ConsumerInterceptor, RebalanceListener
    from rota.consumer.record import ConsumerRecord, Records
    from rota.model.membership import (
        Assignment,
        GroupAssignment,
        GroupSubscription,
        Member,
        RebalanceProtocol,
        Subscription,
    )
    from rota.model.offset import OffsetAndMetadata
    from rota.model.topic import Cluster, Partitions, TopicPartition
    from rota.plan import Move, Plan, assign
    from rota.sim.result import Simulation
    from rota.sim.simulate import simulate

_HOMES = {
    "Assignment": "rota.model.membership",
    "Assignor": "rota.assignors.interface",
    "BlockingConsumer": "rota.consumer.blocking",
    "Broker": "rota.broker.embedded",
    "Cluster": "rota.model.topic",
    "Consumer": "rota.consumer.consumer",
    "ConsumerInterceptor": "rota.consumer.listener",
    "ConsumerRecord": "rota.consumer.record",
    "GroupAssignment": "rota.model.membership",
    "GroupSubscription": "rota.model.membership",
    "Member": "rota.model.membership",
    "Move": "rota.plan",
    "OffsetAndMetadata": "rota.model.offset",
    "PartitionAssignor": "rota.assignors.interface",
    "Partitions": "rota.model.topic",
    "Plan": "rota.plan",
    "RebalanceListener": "rota.consumer.listener",
    "RebalanceProtocol": "rota.model.membership",
    "Records": "rota.consumer.record",
    "Simulation": "rota.sim.result",
    "Subscription": "rota.model.membership",
    "TopicPartition": "rota.model.topic",
    "assign": "rota.plan",
    "load_properties": "rota.client.setting",
    "simulate": "rota.sim.simulate",
}

_NEEDY = {"Broker": "rota.broker", "BlockingConsumer": "rota.client", "Consumer": "rota.client"}
"""What needs more than Rota alone, and who knows what."""

__all__ = [
    "Assignment",
    "Assignor",
    "BlockingConsumer",
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
