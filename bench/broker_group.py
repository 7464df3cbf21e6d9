"""A group comes together: one member up to its first record, and a hundred up to stable.

The one is confluent-kafka with its defaults. The hundred are connections that speak the protocol as
a consumer does (FindCoordinator, JoinGroup, SyncGroup), so that the broker is measured and not a
hundred client libraries on two cores.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from confluent_kafka import Consumer, Producer
from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from bench.broker_process import ROTA, RunningBroker, start_both
from bench.limit import LIMITS
from bench.measure import Measurement
from bench.run import Row, Run

MEMBERS = 100
ROUNDS = 5
#: Seconds; a consumer's default, 3, would hide the broker.
HEARTBEAT = 0.1
MEMBER_ID_REQUIRED = 79
_names = itertools.count()

#: kafka-python's messages have no types.
Message: TypeAlias = Any


def measure_first_record(broker: RunningBroker, topic: str) -> float:
    """Seconds from making a consumer to its first record."""
    start = time.monotonic()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": f"one-{next(_names)}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    while not (found := consumer.poll(0.01)) or found.error():
        assert time.monotonic() < start + 60
    took = time.monotonic() - start
    consumer.close()
    return took


class Member:
    """A member that joins as a consumer does, and heartbeats so often that it loses no time."""

    def __init__(self, broker: RunningBroker, group: str, number: int) -> None:
        self._port = broker.port
        self._group = group
        self._name = f"member-{number}"
        self._id = ""
        self._correlation = 0

    async def live(self, stable: asyncio.Event, ready: asyncio.Queue[int]) -> None:
        """Joins, and joins again when told to, until the group is stable."""
        self._read, self._write = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await self._find()
            while not stable.is_set():
                generation = await self._round()
                if generation is None:
                    continue
                ready.put_nowait(generation)
                while not stable.is_set() and await self._alive(generation):
                    await asyncio.sleep(HEARTBEAT)
        finally:
            self._write.close()

    async def _find(self) -> None:
        request = FindCoordinatorRequest(key=self._group, key_type=0)
        while (await self._ask(request, FindCoordinatorResponse, 2)).error_code:
            await asyncio.sleep(HEARTBEAT)

    async def _round(self) -> int | None:
        """A join and a sync: the generation; None if there must be another."""
        joined = await self._join()
        if joined.error_code == MEMBER_ID_REQUIRED:
            self._id = joined.member_id
            joined = await self._join()
        if joined.error_code:
            await asyncio.sleep(HEARTBEAT)
            return None
        self._id = joined.member_id
        synced = await self._sync(joined)
        return None if synced.error_code else int(joined.generation_id)

    async def _join(self) -> Message:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0" * 32)
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self._id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[protocol],
        )
        return await self._ask(request, JoinGroupResponse, 5)

    async def _sync(self, joined: Message) -> Message:
        given = [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=each.member_id, assignment=b"\0" * 32
            )
            for each in joined.members
        ]
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=joined.generation_id,
            member_id=self._id,
            group_instance_id=None,
            assignments=given,
        )
        return await self._ask(request, SyncGroupResponse, 3)

    async def _alive(self, generation: int) -> bool:
        request = HeartbeatRequest(
            group_id=self._group,
            generation_id=generation,
            member_id=self._id,
            group_instance_id=None,
        )
        return not (await self._ask(request, HeartbeatResponse, 3)).error_code

    async def _ask(self, request: Message, response: Message, version: int) -> Message:
        self._correlation += 1
        request.API_VERSION = version
        request.with_header(correlation_id=self._correlation, client_id=self._name)
        self._write.write(request.encode(header=True, framed=True))
        (size,) = struct.unpack(">i", await self._read.readexactly(4))
        return response.decode(await self._read.readexactly(size), version=version, header=True)


async def measure_group_start(broker: RunningBroker) -> float:
    """Seconds until all members are in one generation and have their assignment."""
    group, stable, ready = f"hundred-{next(_names)}", asyncio.Event(), asyncio.Queue[int]()
    start = time.monotonic()
    members = [Member(broker, group, number).live(stable, ready) for number in range(MEMBERS)]
    async with asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(member)
        there: Counter[int] = Counter()
        while there[max(there, default=0)] < MEMBERS:
            there[await ready.get()] += 1
        took = time.monotonic() - start
        stable.set()
    return took


def run(bench: Run) -> Iterator[Row]:
    """The brokers take turns, the best round counts."""
    with start_both(bench) as brokers:
        for broker in brokers:
            broker.create("first")
            producer = Producer({"bootstrap.servers": broker.address})
            producer.produce("first", b"value")
            assert producer.flush(60) == 0
        bench.print_progress("   one member")
        one = _best(brokers, lambda broker: measure_first_record(broker, "first"))
        yield _row("a group of 1: to its first record", one, "broker-join")
        bench.print_progress(f"   {MEMBERS} members")
        many = _best(brokers, lambda broker: asyncio.run(measure_group_start(broker)))
        work = f"a group of {MEMBERS}: to stable, heartbeats every {HEARTBEAT * 1000:g} ms"
        yield _row(work, many, "broker-group")


def _best(brokers: list[RunningBroker], take: Callable[[RunningBroker], float]) -> dict[str, float]:
    rounds = [{broker.name: take(broker) for broker in brokers} for _ in range(ROUNDS)]
    return {name: min(each[name] for each in rounds) for name in rounds[0]}


def _row(work: str, took: dict[str, float], limit: str) -> Row:
    return Row(
        work=work,
        ours=Measurement(seconds=took.pop(ROTA)),
        theirs={name: Measurement(seconds=seconds) for name, seconds in took.items()},
        limit=LIMITS[limit],
    )
