"""The protocol of Kafka Connect's workers: what they send in JoinGroup and SyncGroup requests, and
what a GroupMetadata record of the protocol type ``connect`` holds.

The layouts, with the versions that have a field (0: eager, 1: incremental cooperative, 2: the same
with signed internal requests)::

    subscription    version int16, worker url string, config offset int64
                    current assignment nullable bytes: an assignment  1, 2

    assignment      version int16, error int16
                    leader, leader url: strings
                    config offset int64
                    assigned: array of connector string, tasks array of int32
                    revoked: the same                                 1, 2
                    delay int32                                       1, 2

Task -1 is the connector itself. Arrays of the versions 1 and 2 may be null, and missing fields have
their defaults. In version 0 an assignment is complete; otherwise a worker starts what is assigned,
and keeps what it reported, except what is revoked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from rota.engine.formats.primitive import PrimitiveReader

SUBSCRIPTION, ASSIGNMENT = "Connect subscription", "Connect assignment"
INCREMENTAL_VERSION = 1
CONNECTOR_TASK = -1  # the task number of a connector itself
SMALLEST_CONNECTOR = 6

TasksByConnector: TypeAlias = Mapping[str, tuple[int, ...]]  # task numbers by connector


@dataclass(frozen=True, slots=True)
class ConnectAssignment:
    version: int
    error: int  # 1: the workers have read different configurations, and join again
    leader: str
    leader_url: str
    config_offset: int  # offset of the configuration that the assignment is for, in Connect's topic
    assigned: TasksByConnector = field(default_factory=dict)
    revoked: TasksByConnector = field(default_factory=dict)
    delay: int = 0  # milliseconds until the workers join again, to assign what a lost worker ran


@dataclass(frozen=True, slots=True)
class ConnectSubscription:
    version: int
    url: str  # the worker's address for REST requests
    config_offset: int
    current: ConnectAssignment | None = None  # when it joined; None: nothing, or unknown (v0)


def decode_connect_subscription(data: bytes) -> ConnectSubscription:
    """Decodes a subscription; raises FormatError. Bytes after the known fields are ignored."""
    reader = PrimitiveReader(data, SUBSCRIPTION)
    version = _read_version(reader)
    url, offset = reader.string("url"), reader.int64("config offset")
    data_or_null = None
    if version >= INCREMENTAL_VERSION and reader.remaining:
        data_or_null = reader.nullable_bytes("current assignment")
    current = None if data_or_null is None else decode_connect_assignment(data_or_null)
    return ConnectSubscription(version, url, offset, current)


def decode_connect_assignment(data: bytes) -> ConnectAssignment:
    """Decodes an assignment; raises FormatError. Bytes after the known fields are ignored."""
    reader = PrimitiveReader(data, ASSIGNMENT)
    version = _read_version(reader)
    error = reader.int16("error")
    leader, leader_url = reader.string("leader"), reader.string("leader url")
    offset = reader.int64("config offset")
    assigned = _read_connectors(reader, "assigned connectors", version)
    revoked: TasksByConnector = {}
    delay = 0
    if version >= INCREMENTAL_VERSION:
        revoked = _read_connectors(reader, "revoked connectors", version)
        delay = reader.int32("delay") if reader.remaining else 0
    return ConnectAssignment(version, error, leader, leader_url, offset, assigned, revoked, delay)


def _read_version(reader: PrimitiveReader) -> int:
    version = reader.int16("version")
    if version < 0:
        raise reader.error("version", f"unknown {version}", at=0)
    return version


def _read_connectors(reader: PrimitiveReader, name: str, version: int) -> TasksByConnector:
    if version >= INCREMENTAL_VERSION:
        if not reader.remaining:
            return {}
        if reader.data.startswith(b"\xff\xff\xff\xff", reader.offset):  # null
            reader.offset += 4
            return {}
    tasks: dict[str, tuple[int, ...]] = {}
    for _ in range(reader.count(name, SMALLEST_CONNECTOR)):
        connector = reader.string("connector")
        tasks[connector] = (*tasks.get(connector, ()), *reader.int32s("tasks"))
    return tasks


def list_connect_work(
    subscription: ConnectSubscription | None, assignment: ConnectAssignment | None
) -> tuple[str, ...]:
    """Returns what a worker runs after a rebalance, in words, sorted."""
    running: set[tuple[str, int]] = set()
    if assignment is not None:
        current = None if subscription is None else subscription.current
        if current is not None and assignment.version >= INCREMENTAL_VERSION:
            running = _to_pairs(current.assigned) - _to_pairs(assignment.revoked)
        running |= _to_pairs(assignment.assigned)
    return tuple(
        f"connector {connector}" if task == CONNECTOR_TASK else f"task {task} of {connector}"
        for connector, task in sorted(running)
    )


def _to_pairs(tasks: TasksByConnector) -> set[tuple[str, int]]:
    return {(connector, task) for connector, numbers in tasks.items() for task in numbers}
