"""Cases of records: what a client wrote, it and another one read; and how it is stored."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.support.clients.case import ClientCase, plain_record, unique_name
from tests.support.clients.driver_process import DriverAt

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HEAD = struct.Struct(">qiibIhiqqqhii")  # of a batch, up to the number of records
START = 1_700_000_000_000


def sample_records(count: int) -> list[dict[str, Any]]:
    """Records with and without keys, values and headers, at times of their own.

    Each has a long key or a long value, and so gets smaller by itself: clients send a batch as it
    is if compression does not help, and any record may be alone in one.
    """
    return [
        {
            "key": None if number % 3 == 0 else f"key {number} " * 20,
            "value": None if number % 9 == 1 else f"value {number} " * 20,
            "headers": [["number", str(number)], ["empty", ""], ["number", "twice"]]
            if number % 2
            else [],
            "partition": number % 2,
            "timestamp": START + number,
        }
        for number in range(count)
    ]


def expected_records(
    records: list[dict[str, Any]], places: list[list[int]]
) -> list[dict[str, Any]]:
    """What a reader must find of records that were stored at these places."""
    found = [
        {**record, "partition": partition, "offset": offset}
        for record, (partition, offset) in zip(records, places, strict=True)
    ]
    return sorted(found, key=offset_of)


def offset_of(record: dict[str, Any]) -> tuple[int, int]:
    return record["partition"], record["offset"]


def read_topic(reader: DriverAt, topic: str, partitions: int, count: int) -> list[dict[str, Any]]:
    """All that a client reads of a topic."""
    found = reader.ask("read", topic=topic, partitions=partitions, count=count)
    return sorted(found, key=offset_of)


def batch_headers(client_case: ClientCase, topic: str) -> Iterator[tuple[Any, ...]]:
    """The heads of the batches of a topic, out of its files."""
    for log in sorted(client_case.stage.cluster.logs.glob(f"{topic}-*/*.log")):
        data = log.read_bytes()
        position = 0
        while position + HEAD.size <= len(data):
            head = HEAD.unpack_from(data, position)
            if head[1] == 0:  # a file may be made larger than what is in it
                break
            yield head
            position += 12 + head[1]


def every_codec(codec: str, client_case: ClientCase) -> None:
    topic = client_case.topic(2)
    records = sample_records(60)
    places = client_case.own.ask("produce", topic=topic, records=records, codec=codec)
    expected = expected_records(records, places)
    assert sorted(map(tuple, places)) == [(p, o) for p in range(2) for o in range(30)]
    assert read_topic(client_case.own, topic, 2, 60) == expected
    assert read_topic(client_case.other, topic, 2, 60) == expected
    assert {CODECS[head[5] & 7] for head in batch_headers(client_case, topic)} == {codec}


def header_without_value(client_case: ClientCase) -> None:
    topic = client_case.topic(1)
    records = [{**plain_record(1, 0), "headers": [["nothing", None]]}]
    client_case.own.ask("produce", topic=topic, records=records)
    for reader in (client_case.own, client_case.other):
        (found,) = read_topic(reader, topic, 1, 1)
        assert found["headers"] == [["nothing", None]]


def idempotent(client_case: ClientCase) -> None:
    topic = client_case.topic(1)
    records = [plain_record(number, 0) for number in range(20)]
    fields = {} if "Java" in client_case.client.name else {"idempotent": True}
    client_case.own.ask("produce", topic=topic, records=records, **fields)
    stored = list(batch_headers(client_case, topic))
    assert {head[9] >= 0 for head in stored} == {True}  # a producer id
    counts = [head[12] for head in stored]
    assert [head[11] for head in stored] == [sum(counts[:n]) for n in range(len(counts))]
    assert [each["value"] for each in read_topic(client_case.other, topic, 1, 20)] == [
        str(number) for number in range(20)
    ]


def created_by_use(client_case: ClientCase) -> None:
    topic = unique_name("unheard-of")
    client_case.own.ask("produce", topic=topic, records=[plain_record(1)], create=True)
    assert [each["value"] for each in read_topic(client_case.other, topic, 1, 1)] == ["1"]


CASES: dict[str, Callable[[ClientCase], None]] = {
    **{f"produce and read, {codec}": partial(every_codec, codec) for codec in CODECS},
    "a header without a value": header_without_value,
    "idempotent producer": idempotent,
    "a topic created by its first record": created_by_use,
}
