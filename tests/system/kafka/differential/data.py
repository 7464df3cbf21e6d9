"""The script's part on records: produce, fetch, offsets, deletion of records, producer ids."""

from __future__ import annotations

import struct
import time
from uuid import UUID

from rota.engine.formats.record_batch import (
    BatchRecord,
    CompressionType,
    compute_crc32c,
    encode_batch,
)
from tests.support.differential_side import Message, Plain, Side
from tests.system.kafka.differential.admin import (
    NOBODY,
    UNKNOWN,
    create_topics,
    find_topic_id,
    topic_request,
)

#: The same on both sides, and not too old for retention.
NOW = int(time.time()) * 1_000
HOUR = 3_600_000
LATEST, EARLIEST, NEWEST, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6


def make_batch(
    *values: bytes | None, at: int = NOW, key: bytes | None = b"k", **fields: Plain
) -> bytes:
    return encode_batch(
        [BatchRecord(number, at + number, key, value) for number, value in enumerate(values)],
        **fields,
    )


def flip_bit(data: bytes, at: int) -> bytes:
    """With another bit, and so a checksum that does not hold."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def produce(
    side: Side, version: int, case: str, records: bytes | None, name: str = "p", **more: Plain
) -> Message:
    topics = more.pop("topics", None)
    if topics is None:
        partition = {"index": more.pop("partition", 0), "records": records}
        topics = [{**topic_fields(side, version, 13, name), "partition_data": [partition]}]
    return side.ask(
        "Produce",
        version,
        case,
        transactional_id=more.pop("transactional_id", None),
        acks=more.pop("acks", -1),
        timeout_ms=5_000,
        topic_data=topics,
    )


def topic_fields(side: Side, version: int, ids_from: int, name: str, key: str = "name") -> Plain:
    if version < ids_from:
        return {key: name}
    return {"topic_id": UNKNOWN if name == "absent" else find_topic_id(side, name)}


def producing(side: Side) -> None:
    create_topics(
        side,
        topic_request("p", 2),
        topic_request("compacted", configs={"cleanup.policy": "compact"}),
        topic_request("clocked", configs={"message.timestamp.type": "LogAppendTime"}),
        topic_request("small", configs={"max.message.bytes": "500"}),
        topic_request("strict", configs={"message.timestamp.before.max.ms": "1000"}),
    )
    for version in range(3, 14):
        produce(side, version, "one", make_batch(b"v"))
        produce(side, version, "acks 1", make_batch(b"v", b"w"), acks=1)
        produce(side, version, "acks 2", make_batch(b"v"), acks=2)
        produce(side, version, "acks -2", make_batch(b"v"), acks=-2)
        produce(side, version, "absent", make_batch(b"v"), "absent")
        produce(side, version, "no such partition", make_batch(b"v"), partition=7)
        produce(side, version, "partition -1", make_batch(b"v"), partition=-1)
        produce(side, version, "empty", b"")
        produce(side, version, "not a batch", b"\0" * 100)
        produce(side, version, "cut", make_batch(b"v")[:-3])
        produce(side, version, "flipped", flip_bit(make_batch(b"value"), 66))
        produce(side, version, "bad checksum", flip_bit(make_batch(b"value"), 18))
        produce(side, version, "two batches", make_batch(b"v") + make_batch(b"w"))
        produce(side, version, "old magic", set_magic(make_batch(b"v"), 1))
        produce(side, version, "new magic", set_magic(make_batch(b"v"), 3))
        produce(side, version, "too large", make_batch(b"v" * 600), "small")
        produce(side, version, "no key", make_batch(b"v", key=None), "compacted")
        produce(side, version, "tombstone", make_batch(None), "compacted")
        produce(side, version, "from the future", make_batch(b"v", at=NOW + 2 * HOUR))
        produce(side, version, "too old", make_batch(b"v", at=NOW - HOUR), "strict")
        produce(side, version, "by the broker's clock", make_batch(b"v", at=5), "clocked")
        produce(
            side,
            version,
            "transactional",
            make_batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        )
        produce(side, version, "control", make_batch(b"v", control=True))
        for codec in CompressionType:
            produce(side, version, codec.name, make_batch(b"v" * 50, b"w" * 50, codec=codec))
        produce(side, version, "nothing", None, topics=[])
        both = [{"index": at, "records": make_batch(b"v")} for at in range(2)]
        produce(
            side,
            version,
            "both partitions",
            None,
            topics=[{**topic_fields(side, version, 13, "p"), "partition_data": both}],
        )
    produce(side, 9, "acks 0", make_batch(b"v"), acks=0)
    produce(side, 9, "after acks 0", make_batch(b"v"))
    for case, name, records in (
        ("absent", "absent", make_batch(b"v")),
        ("flipped", "p", flip_bit(make_batch(b"value"), 66)),
        ("empty", "p", b""),
    ):
        produce(side, 9, f"acks 0, {case}", records, name, acks=0)
        side.ask("Metadata", 9, f"after acks 0, {case}", topics=[])
    create_topics(side, topic_request("twice", 4))
    for at, version in enumerate((9, 13)):
        name = topic_fields(side, version, 13, "twice")
        first, second = ([{"index": 2 * at + n, "records": make_batch(b"v")}] for n in range(2))
        same = {**name, "partition_data": first}
        produce(side, version, "a topic twice", None, topics=[same, same])
        both = [{**name, "partition_data": second * 2}]
        produce(side, version, "a partition twice", None, topics=both)
    produce(
        side,
        13,
        "no id",
        None,
        topics=[
            {"topic_id": NOBODY, "partition_data": [{"index": 0, "records": make_batch(b"v")}]}
        ],
    )
    create_topics(side, topic_request("__transaction_state"))
    produce(side, 9, "internal", make_batch(b"v"), "__transaction_state")


def set_magic(data: bytes, magic: int) -> bytes:
    return data[:16] + bytes([magic]) + data[17:]


def headers(side: Side) -> None:
    """What a head says that its records do not bear out."""
    create_topics(side, topic_request("h", 40))
    good = make_batch(b"one", b"two")
    places = iter(range(40))  # one each: what one broker takes must not show in later offsets
    for case, at, form, value in (
        ("base offset", 0, ">q", 77),
        ("leader epoch", 12, ">i", 9),
        ("length", 8, ">i", 20),
        ("longer than it is", 8, ">i", len(good)),
        ("negative length", 8, ">i", -1),
        ("last delta", 23, ">i", 7),
        ("first timestamp", 27, ">q", NOW + 5),
        ("newest timestamp", 35, ">q", NOW + 500),
        ("producer id", 43, ">q", 5),
        ("epoch", 51, ">h", 3),
        ("sequence", 53, ">i", 3),
        ("count", 57, ">i", 9),
        ("no count", 57, ">i", 0),
        ("negative count", 57, ">i", -1),
        ("codec 5", 21, ">h", 5),
        ("codec 7", 21, ">h", 7),
        ("append time", 21, ">h", 8),
        ("delete horizon", 21, ">h", 64),
        ("unknown bit", 21, ">h", 128),
    ):
        data = bytearray(good)
        struct.pack_into(form, data, at, value)
        produce(side, 9, case, fix_checksum(bytes(data)), "h", partition=next(places))
    for case, record in {
        "length too long": b"\x14\0\0\0\2a\2b\0",
        "length too short": b"\x02\0\0\0\2a\2b\0",
        "key too long": b"\x10\0\0\0\x40a\2b\0",
        "headers": b"\x10\0\0\0\2a\2b\x08",
        "delta 5": b"\x10\0\0\x0a\2a\2b\0",
        "attributes": b"\x10\1\0\0\2a\2b\0",
    }.items():
        head = bytearray(make_batch(b"x")[:61])
        struct.pack_into(">i", head, 8, 49 + len(record))
        whole = fix_checksum(bytes(head) + record)
        produce(side, 9, f"a record: {case}", whole, "h", partition=next(places))
    longer = fix_checksum(append_bytes(make_batch(b"one"), b"more"))
    produce(side, 9, "a record: more behind", longer, "h", partition=next(places))


def append_bytes(data: bytes, more: bytes) -> bytes:
    size = struct.pack(">i", len(data) + len(more) - 12)
    return data[:8] + size + data[12:] + more


def fix_checksum(data: bytes) -> bytes:
    """With the checksum that its bytes have."""
    return data[:17] + struct.pack(">I", compute_crc32c(data[21:])) + data[21:]


def sequences(side: Side) -> None:
    """An idempotent producer: what is new, sent again, missing or of another epoch."""
    create_topics(side, topic_request("seq", 2))

    def given() -> int:
        fields: Plain = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        return int(side.quiet("InitProducerId", 4, **fields).producer_id)

    side.eventually(lambda: given() >= 0, "producer ids to be given")
    for version in range(6):
        side.ask("InitProducerId", version, transactional_id=None, transaction_timeout_ms=60_000)
    for version in (3, 4, 5):
        for producer, epoch in ((5, 0), (5, -1), (-1, 0), (-1, -1)):
            side.ask(
                "InitProducerId",
                version,
                f"again as {producer} {epoch}",
                transactional_id=None,
                transaction_timeout_ms=60_000,
                producer_id=producer,
                producer_epoch=epoch,
            )
    side.ask("InitProducerId", 4, "no timeout", transactional_id=None, transaction_timeout_ms=-1)
    side.ask("InitProducerId", 4, "empty id", transactional_id="", transaction_timeout_ms=60_000)
    producer_id = given()
    for case, epoch, sequence, values in (
        ("first", 0, 0, (b"a", b"b")),
        ("again", 0, 0, (b"a", b"b")),
        ("next", 0, 2, (b"c",)),
        ("an older one again", 0, 0, (b"a", b"b")),
        ("other length, same start", 0, 2, (b"c", b"d")),
        ("gap", 0, 9, (b"d",)),
        ("back", 0, 1, (b"d",)),
        ("without a sequence", 0, -1, (b"d",)),
        ("next epoch, not from 0", 1, 5, (b"d",)),
        ("next epoch", 1, 0, (b"d",)),
        ("old epoch", 0, 3, (b"e",)),
        ("negative epoch", -1, 1, (b"e",)),
        ("epoch after next", 3, 0, (b"e",)),
    ):
        data = make_batch(
            *values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        produce(side, 9, case, data, "seq")
    for number in range(1, 8):
        data = make_batch(b"x", producer_id=producer_id, producer_epoch=3, base_sequence=number)
        produce(side, 9, f"number {number}", data, "seq")
    for number in (1, 2, 3, 7):
        data = make_batch(b"x", producer_id=producer_id, producer_epoch=3, base_sequence=number)
        produce(side, 9, f"number {number} once more", data, "seq")
    unknown = make_batch(b"x", producer_id=99_999_999, producer_epoch=4, base_sequence=17)
    produce(side, 9, "unknown producer", unknown, "seq", partition=1)
    gap = make_batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=5)
    produce(side, 9, "gap at the start", gap, "seq", partition=1)
    last = 2**31 - 1
    wrapped = make_batch(b"x", b"y", producer_id=producer_id, producer_epoch=5, base_sequence=last)
    produce(side, 9, "wraps", wrapped, "seq", partition=1)


def fetch(side: Side, version: int, case: str, name: str = "f", **more: Plain) -> Message:
    partition = {
        "partition": more.pop("partition", 0),
        "current_leader_epoch": more.pop("epoch", -1),
        "fetch_offset": more.pop("offset", 0),
        "last_fetched_epoch": more.pop("fetched_epoch", -1),
        "log_start_offset": -1,
        "partition_max_bytes": more.pop("partition_bytes", 1 << 20),
    }
    topics = more.pop("topics", None)
    if topics is None:
        topics = [{**topic_fields(side, version, 13, name, "topic"), "partitions": [partition]}]
    fields: Plain = {
        "max_wait_ms": more.pop("wait", 50),
        "min_bytes": more.pop("least", 1),
        "max_bytes": more.pop("most", 1 << 24),
        "isolation_level": more.pop("isolation", 0),
        "topics": topics,
    }
    if version <= 14:
        fields["replica_id"] = more.pop("replica", -1)
    if version >= 7:
        fields["session_id"] = more.pop("session", 0)
        fields["session_epoch"] = more.pop("session_epoch", -1)
        fields["forgotten_topics_data"] = []
    return side.ask("Fetch", version, case, **fields)


def fetching(side: Side) -> None:
    create_topics(side, topic_request("f", 2), topic_request("g"))
    for at in range(5):
        codec = list(CompressionType)[at]
        records = make_batch(b"%d" % at * 20, b"second", codec=codec, at=NOW + 10 * at)
        produce_quietly(side, "f", 0, records)
    produce_quietly(side, "f", 1, make_batch(b"only"))
    produce_quietly(side, "g", 0, make_batch(b"other"))
    for version in range(4, 19):
        for offset in (0, 1, 5, 9, 10):
            fetch(side, version, f"from {offset}", offset=offset)
        for offset in (11, -1, -2, 2**62):
            fetch(side, version, f"from {offset}", offset=offset)
        fetch(side, version, "committed only", isolation=1)
        fetch(side, version, "isolation 2", isolation=2)
        fetch(side, version, "absent", "absent")
        fetch(side, version, "no such partition", partition=7)
        fetch(side, version, "partition -1", partition=-1)
        fetch(side, version, "one byte", partition_bytes=1)
        fetch(side, version, "no byte", partition_bytes=0)
        fetch(side, version, "a batch and a half", partition_bytes=150)
        fetch(side, version, "one byte in all", most=1)
        fetch(side, version, "more than there is", least=100_000)
        fetch(side, version, "nothing", topics=[])
        if version >= 9:
            for epoch in (0, 1, -2):
                fetch(side, version, f"epoch {epoch}", epoch=epoch)
        if version >= 12:
            for epoch in (0, 1, 5):
                fetch(side, version, f"fetched epoch {epoch}", fetched_epoch=epoch, offset=3)
        several = [
            {
                **topic_fields(side, version, 13, name, "topic"),
                "partitions": [
                    {
                        "partition": at,
                        "fetch_offset": 0,
                        "log_start_offset": -1,
                        "partition_max_bytes": size,
                    }
                    for at in range(count)
                ],
            }
            for name, count, size in (("f", 2, 1 << 20), ("g", 1, 1))
        ]
        fetch(side, version, "three", topics=several)
        fetch(side, version, "three, few bytes", topics=several, most=200)
    for version in (7, 12, 16):
        fetch(side, version, "a session", session_epoch=0)
        fetch(side, version, "unknown session", session=12_345, session_epoch=3)
        fetch(side, version, "session without an id", session_epoch=3)
    fetch(
        side,
        13,
        "no id",
        topics=[
            {
                "topic_id": NOBODY,
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}],
            }
        ],
    )
    fetch(side, 12, "a replica", replica=7)


def produce_quietly(side: Side, name: str, partition: int, records: bytes) -> None:
    data = [{"name": name, "partition_data": [{"index": partition, "records": records}]}]
    answer = side.quiet(
        "Produce", 9, transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=data
    )
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def offsets(side: Side) -> None:
    create_topics(
        side,
        topic_request("o", 2),
        topic_request("o-clocked", configs={"message.timestamp.type": "LogAppendTime"}),
    )
    for at in (0, 100, 50, 200, 200, 10):
        produce_quietly(side, "o", 0, make_batch(b"a", b"b", at=NOW + at))

    def ask(version: int, case: str, timestamp: int, **more: Plain) -> None:
        partition = {"partition_index": more.get("partition", 0), "timestamp": timestamp}
        if version >= 4:
            partition["current_leader_epoch"] = more.get("epoch", -1)
        fields: Plain = {"isolation_level": more.get("isolation", 0)} if version >= 2 else {}
        listed = [partition] * more.get("times", 1)
        topics = [{"name": more.get("name", "o"), "partitions": listed}]
        side.ask(
            "ListOffsets",
            version,
            case,
            replica_id=more.get("replica", -1),
            topics=topics,
            **fields,
        )

    for version in range(1, 12):
        for special in (LATEST, EARLIEST, NEWEST, LOCAL, TIERED, PENDING, -7):
            ask(version, f"special {special}", special)
            ask(version, f"special {special}, empty", special, partition=1)
        for at in (0, 1, 2, 50, 99, 100, 101, 102, 200, 201, 202, 10_000):
            ask(version, f"at {at}", NOW + at)
        ask(version, "long ago", 0)
        ask(version, "absent", LATEST, name="absent")
        ask(version, "no such partition", LATEST, partition=7)
        ask(version, "twice", LATEST, times=2)
        ask(version, "replica", LATEST, replica=7)
        ask(version, "debugger", LATEST, replica=-2)
        if version >= 2:
            ask(version, "committed", LATEST, isolation=1)
            ask(version, "committed at", NOW, isolation=1)
        if version >= 4:
            for epoch in (0, 1, -2):
                ask(version, f"epoch {epoch}", LATEST, epoch=epoch)
                ask(version, f"at, epoch {epoch}", NOW, epoch=epoch)
        side.ask("ListOffsets", version, "nothing", replica_id=-1, topics=[])


def epochs(side: Side) -> None:
    create_topics(side, topic_request("e"), topic_request("e-empty"))
    produce_quietly(side, "e", 0, make_batch(b"a", b"b"))
    for version in range(2, 5):
        for name in ("e", "e-empty", "absent"):
            for current, asked in ((-1, 0), (0, 0), (-1, 1), (-1, -1), (1, 0), (0, 5), (-2, 0)):
                partition = {
                    "partition": 0,
                    "current_leader_epoch": current,
                    "leader_epoch": asked,
                }
                side.ask(
                    "OffsetForLeaderEpoch",
                    version,
                    f"{name} {current} {asked}",
                    topics=[{"topic": name, "partitions": [partition]}],
                    **({"replica_id": -1} if version >= 3 else {}),
                )


def record_deletion(side: Side) -> None:
    create_topics(
        side,
        topic_request("d", 2),
        topic_request("d-compacted", configs={"cleanup.policy": "compact"}),
    )

    def delete(version: int, case: str, offset: int, name: str = "d", **more: Plain) -> None:
        partition = {"partition_index": more.get("partition", 0), "offset": offset}
        topics = [{"name": name, "partitions": [partition]}]
        side.ask("DeleteRecords", version, case, topics=topics, timeout_ms=5_000)

    produce_quietly(side, "d-compacted", 0, make_batch(b"a"))
    for version in range(3):
        produce_quietly(side, "d", 0, make_batch(*[b"v"] * 10))
        base = 10 * version
        delete(version, "some", base + 3)
        fetch(side, 12, f"deleted {version}", "d", offset=0)
        fetch(side, 12, f"not deleted {version}", "d", offset=base + 3)
        delete(version, "before the start", base + 1)
        delete(version, "beyond the end", base + 11)
        delete(version, "negative", -5)
        delete(version, "absent", 1, "absent")
        delete(version, "no such partition", 1, partition=7)
        delete(version, "compacted", 1, "d-compacted")
        delete(version, "empty", 0, partition=1)
        delete(version, "empty, all", -1, partition=1)
        delete(version, "all", -1)
        side.ask(
            "ListOffsets",
            1,
            f"after {version}",
            replica_id=-1,
            topics=[
                {
                    "name": "d",
                    "partitions": [{"partition_index": 0, "timestamp": t} for t in (EARLIEST,)],
                }
            ],
        )
    delete(2, "internal", 0, "__consumer_offsets")
    assert isinstance(find_topic_id(side, "d"), UUID)


SECTIONS = {
    "producing": producing,
    "headers": headers,
    "sequences": sequences,
    "fetching": fetching,
    "offsets": offsets,
    "epochs": epochs,
    "record deletion": record_deletion,
}
