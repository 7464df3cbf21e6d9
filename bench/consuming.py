"""One consumer's run, in a process of its own; prints what it took as JSON.

python -m bench.consuming read|first|idle CLIENT ADDRESS TOPIC PARTITIONS COUNT

``read`` takes COUNT records from the beginning on, from PARTITIONS partitions that are assigned;
``first`` joins a new group and waits for one record; ``idle`` joins one, reads to the end, and then
has nothing to do. The clock starts when all is imported, before the client is made.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

#: Records that are asked for at a time, where that is asked: ``max.poll.records`` of all.
BATCH = 500
#: Seconds of idling that are measured.
IDLE = 10.0
#: Seconds before that, so that what starts late does not count.
SETTLED = 3.0


#: What is there before the clock starts, by the first word of a client's name.
IMPORTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "rota": ("rota.consumer.consumer", "rota.client.arrow", "pyarrow.compute"),
        "python": ("kafka",),
        "aiokafka": ("aiokafka",),
        "confluent": ("confluent_kafka",),
    }
)


def load_client(name: str) -> Any:  # noqa: ANN401 the clients have no types
    """A client, and nobody else's: each process loads but one."""
    return importlib.import_module(name)


class ReadTask(NamedTuple):
    """What to do."""

    address: str
    topic: str
    partitions: int
    records: int

    @property
    def places(self) -> list[tuple[str, int]]:
        """All partitions."""
        return [(self.topic, number) for number in range(self.partitions)]


class ClientSession(NamedTuple):
    """A member of a group, in whatever client."""

    #: Polls once, with a timeout in seconds, and returns the number of records.
    poll: Callable[[float], int]
    close: Callable[[], object]


def _rota_settings(task: ReadTask, **more: object) -> dict[str, object]:
    settings = {"bootstrap.servers": task.address, "auto.offset.reset": "earliest"}
    return {**settings, **{name.replace("_", "."): value for name, value in more.items()}}


# Reading: each gives how many bytes the values had; lists may bring more records than asked for


def rota_records(task: ReadTask) -> int:
    """``for record in consumer``."""
    rota = load_client("rota")
    size, left = 0, task.records
    with rota.Consumer(_rota_settings(task)) as consumer:
        consumer.assign(task.places)
        for record in consumer:
            size += len(record.value)
            left -= 1
            if not left:
                break
    return size


def rota_async(task: ReadTask) -> int:
    """``async for record in consumer``."""
    rota = load_client("rota")

    async def read() -> int:
        size, left = 0, task.records
        async with rota.AsyncConsumer(_rota_settings(task)) as consumer:
            consumer.assign(task.places)
            async for record in consumer:
                size += len(record.value)
                left -= 1
                if not left:
                    break
        return size

    return asyncio.run(read())


def rota_poll(task: ReadTask) -> int:
    """``for record in consumer.poll()``."""
    rota = load_client("rota")
    size, left = 0, task.records
    with rota.Consumer(_rota_settings(task)) as consumer:
        consumer.assign(task.places)
        while left > 0:
            for record in consumer.poll():
                size += len(record.value)
                left -= 1
    return size


def rota_batches(task: ReadTask) -> int:
    """Columns."""
    rota = load_client("rota")
    size, left = 0, task.records
    with rota.Consumer(_rota_settings(task)) as consumer:
        consumer.assign(task.places)
        while left > 0:
            for batch in consumer.poll_batches():
                size += int(batch.columns.value_size[batch.rows].sum())
                left -= len(batch)
    return size


def rota_arrow(task: ReadTask) -> int:
    """Columns as Arrow's, with the columns of Spark's Kafka source."""
    compute = load_client("pyarrow.compute")
    rota = load_client("rota")
    size, left = 0, task.records
    with rota.Consumer(_rota_settings(task)) as consumer:
        consumer.assign(task.places)
        while left > 0:
            for batch in consumer.poll_batches():
                table = batch.to_arrow()
                size += compute.sum(compute.binary_length(table["value"])).as_py()
                left -= table.num_rows
    return size


def kafka_python(task: ReadTask) -> int:
    """Its plain loop."""
    kafka = load_client("kafka")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=task.address, group_id=None, auto_offset_reset="earliest"
    )
    consumer.assign([kafka.TopicPartition(*each) for each in task.places])
    size, left = 0, task.records
    for record in consumer:
        size += len(record.value)
        left -= 1
        if not left:
            break
    consumer.close()
    return size


def kafka_python_poll(task: ReadTask) -> int:
    """Its ``poll``, with its records in lists."""
    kafka = load_client("kafka")
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=task.address, group_id=None, auto_offset_reset="earliest"
    )
    consumer.assign([kafka.TopicPartition(*each) for each in task.places])
    size, left = 0, task.records
    while left > 0:
        for records in consumer.poll(timeout_ms=1_000).values():
            size += sum(len(record.value) for record in records)
            left -= len(records)
    consumer.close()
    return size


def aiokafka(task: ReadTask) -> int:
    """Its plain loop."""
    return asyncio.run(_aiokafka(task, _aiokafka_loop))


def aiokafka_many(task: ReadTask) -> int:
    """Its ``getmany``, with its records in lists."""
    return asyncio.run(_aiokafka(task, _aiokafka_getmany))


async def _aiokafka(task: ReadTask, read: Callable[[Any, int], Awaitable[int]]) -> int:
    library = load_client("aiokafka")
    consumer = library.AIOKafkaConsumer(
        bootstrap_servers=task.address, group_id=None, auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([library.TopicPartition(*each) for each in task.places])
    try:
        return await read(consumer, task.records)
    finally:
        await consumer.stop()


async def _aiokafka_loop(consumer: Any, left: int) -> int:  # noqa: ANN401
    size = 0
    async for record in consumer:
        size += len(record.value)
        left -= 1
        if not left:
            break
    return size


async def _aiokafka_getmany(consumer: Any, left: int) -> int:  # noqa: ANN401
    size = 0
    while left > 0:
        found = await consumer.getmany(timeout_ms=1_000)
        for records in found.values():
            size += sum(len(record.value) for record in records)
            left -= len(records)
    return size


def _confluent_settings(task: ReadTask) -> dict[str, object]:
    """Without librdkafka's rest of a second when its queue is full: at its best."""
    settings = {"group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 0}
    return {"bootstrap.servers": task.address, **settings}


def confluent(task: ReadTask) -> int:
    """``consume``."""
    library = load_client("confluent_kafka")
    consumer = library.Consumer(_confluent_settings(task))
    consumer.assign([library.TopicPartition(*each, 0) for each in task.places])
    size, left = 0, task.records
    while left > 0:
        for record in consumer.consume(BATCH, 1):
            size += len(record.value())
            left -= 1
    consumer.close()
    return size


def confluent_async(task: ReadTask) -> int:
    """``await consume``."""
    library, aio = load_client("confluent_kafka"), load_client("confluent_kafka.aio")

    async def read() -> int:
        consumer = aio.AIOConsumer(_confluent_settings(task))
        await consumer.assign([library.TopicPartition(*each, 0) for each in task.places])
        size, left = 0, task.records
        while left > 0:
            for record in await consumer.consume(BATCH, 1):
                size += len(record.value())
                left -= 1
        await consumer.close()
        return size

    return asyncio.run(read())


READ: Mapping[str, Callable[[ReadTask], int]] = MappingProxyType(
    {
        "rota": rota_records,
        "rota-async": rota_async,
        "rota-poll": rota_poll,
        "rota-batches": rota_batches,
        "rota-arrow": rota_arrow,
        "kafka-python": kafka_python,
        "kafka-python-poll": kafka_python_poll,
        "aiokafka": aiokafka,
        "aiokafka-many": aiokafka_many,
        "confluent-kafka": confluent,
        "confluent-kafka-async": confluent_async,
    }
)


# In a group


def rota_session(task: ReadTask, group: str) -> ClientSession:
    rota = load_client("rota")
    consumer = rota.Consumer(_rota_settings(task, group_id=group))
    consumer.subscribe([task.topic])
    return ClientSession(lambda timeout: len(consumer.poll(timeout)), consumer.close)


def kafka_python_session(task: ReadTask, group: str) -> ClientSession:
    kafka = load_client("kafka")
    consumer = kafka.KafkaConsumer(
        task.topic, bootstrap_servers=task.address, group_id=group, auto_offset_reset="earliest"
    )

    def poll(timeout: float) -> int:
        return sum(map(len, consumer.poll(timeout_ms=int(timeout * 1_000)).values()))

    return ClientSession(poll, consumer.close)


def aiokafka_session(task: ReadTask, group: str) -> ClientSession:
    library = load_client("aiokafka")
    loop = asyncio.new_event_loop()

    async def start() -> Any:  # noqa: ANN401 as all clients are here
        made = library.AIOKafkaConsumer(
            task.topic, bootstrap_servers=task.address, group_id=group, auto_offset_reset="earliest"
        )
        await made.start()
        return made

    consumer = loop.run_until_complete(start())

    def poll(timeout: float) -> int:
        found = loop.run_until_complete(consumer.getmany(timeout_ms=int(timeout * 1_000)))
        return sum(map(len, found.values()))

    def close() -> None:
        loop.run_until_complete(consumer.stop())
        loop.close()

    return ClientSession(poll, close)


def confluent_session(task: ReadTask, group: str) -> ClientSession:
    library = load_client("confluent_kafka")
    settings = {"group.id": group, "auto.offset.reset": "earliest"}
    consumer = library.Consumer({"bootstrap.servers": task.address, **settings})
    consumer.subscribe([task.topic])
    # consume() would wait until it has all that it is asked for
    return ClientSession(lambda timeout: int(consumer.poll(timeout) is not None), consumer.close)


SESSIONS: Mapping[str, Callable[[ReadTask, str], ClientSession]] = MappingProxyType(
    {
        "rota": rota_session,
        "kafka-python": kafka_python_session,
        "aiokafka": aiokafka_session,
        "confluent-kafka": confluent_session,
    }
)


# What is measured


def measure_read(client: str, task: ReadTask) -> dict[str, float]:
    """Seconds for all records, and the memory that the process has needed beyond its imports."""
    before = _peak_memory()
    start, cpu = time.monotonic(), time.process_time()
    size = READ[client](task)
    took = {"seconds": time.monotonic() - start, "cpu": time.process_time() - cpu}
    return {**took, "bytes": size, "peak": _peak_memory() - before}


def measure_first_record(client: str, task: ReadTask) -> dict[str, float]:
    """Seconds from nothing to the first record, in a new group."""
    start = time.monotonic()
    session = SESSIONS[client](task, f"bench-{uuid.uuid4()}")
    while not session.poll(1.0):
        pass
    took = time.monotonic() - start
    session.close()
    return {"seconds": took}


def measure_idle(client: str, task: ReadTask) -> dict[str, float]:
    """The part of a core that a member needs that has nothing to do."""
    session = SESSIONS[client](task, f"bench-{uuid.uuid4()}")
    left = task.records
    while left > 0:
        left -= session.poll(1.0)
    for _ in _repeat_for(SETTLED):
        session.poll(1.0)
    start, cpu = time.monotonic(), time.process_time()
    for _ in _repeat_for(IDLE):
        session.poll(1.0)
    share = (time.process_time() - cpu) / (time.monotonic() - start)
    session.close()
    return {"seconds": share}


def _repeat_for(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield


def _peak_memory() -> int:
    """The most bytes that this process has had in memory; ``ru_maxrss`` has its parent's, too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"^VmHWM:\s+(\d+)", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1_024


WORKS: Mapping[str, Callable[[str, ReadTask], dict[str, float]]] = MappingProxyType(
    {"read": measure_read, "first": measure_first_record, "idle": measure_idle}
)


def main(arguments: list[str]) -> None:
    """One run."""
    work, client, address, topic, partitions, count = arguments
    for name in IMPORTS[client.removeprefix("kafka-").split("-")[0]]:
        load_client(name)
    print(json.dumps(WORKS[work](client, ReadTask(address, topic, int(partitions), int(count)))))


if __name__ == "__main__":
    main(sys.argv[1:])
