"""The script's part on records: every version of Produce, Fetch and ListOffsets, good and bad."""

from __future__ import annotations

import time
from functools import partial
from uuid import UUID

from rota.formats.batch import Codec, Record, encode
from tests.kafka.differential.admin import UNKNOWN, id_of, make, topic
from tests.kafka.differential.side import Message, Plain, Side

LATEST, EARLIEST, NEWEST, LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6
START = 1_750_000_000_000


def batch(*values: bytes, key: bytes | None = b"k", at: int = START, **head: Plain) -> bytes:
    """What a producer sends."""
    entries = [Record(offset, at, key, value) for offset, value in enumerate(values)]
    return encode(entries, **head)


def damaged(data: bytes, at: int, value: int) -> bytes:
    """The same with another byte."""
    changed = bytearray(data)
    changed[at] = value
    return bytes(changed)


def produce(
    side: Side,
    version: int,
    case: str,
    name: str | UUID,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> Message:
    by_id = isinstance(name, UUID)
    return side.ask(
        "Produce",
        version,
        case,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            {
                ("topic_id" if by_id else "name"): name,
                "partition_data": [{"index": partition, "records": records}],
            }
        ],
    )


def ready(side: Side, *topics: Plain) -> None:
    """Makes topics, and waits until each partition takes records."""
    make(side, *topics)
    for each in topics:
        for partition in range(each["num_partitions"]):
            side.eventually(partial(_is_led, side, each["name"], partition), "a leader")


def _is_led(side: Side, name: str, partition: int) -> bool:
    wanted = [{"partition_index": partition, "timestamp": LATEST}]
    answer = side.quiet(
        "ListOffsets", 1, replica_id=-1, topics=[{"name": name, "partitions": wanted}]
    )
    code: int = answer.topics[0].partitions[0].error_code
    return code == 0


def store(side: Side, name: str, records: bytes) -> None:
    """Records that later steps need."""
    part = {"index": 0, "records": records}
    answer = side.quiet(
        "Produce",
        9,
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[{"name": name, "partition_data": [part]}],
    )
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def production(side: Side) -> None:
    """Each version, and all that a batch can have wrong."""
    ready(
        side,
        topic("data-p", 2),
        topic("data-compact", configs={"cleanup.policy": "compact"}),
        topic("data-time", configs={"message.timestamp.type": "LogAppendTime"}),
        topic("data-odd"),
        topic("data-small", configs={"max.message.bytes": "500"}),
    )
    for version in range(3, 14):
        name: str | UUID = id_of(side, "data-p") if version >= 13 else "data-p"
        produce(side, version, "a batch", name, batch(b"a", b"b"))
        produce(side, version, "no such partition", name, batch(b"a"), partition=7)
        produce(side, version, "two batches", name, batch(b"a") + batch(b"b"))
        zstd = batch(b"a" * 99, codec=Codec.ZSTD)
        produce(side, version, "zstd", name, zstd)
        nowhere = UNKNOWN if version >= 13 else "data-nowhere"
        produce(side, version, "no such topic", nowhere, batch(b"a"))
    good = batch(b"a", b"b")
    for case, records in {
        "empty": b"",
        "magic 0": damaged(good, 16, 0),
        "magic 1": damaged(good, 16, 1),
        "magic 3": damaged(good, 16, 3),
        "another byte": damaged(good, -1, 9),
        "a wrong checksum": damaged(good, 17, good[17] ^ 1),
        "cut": good[:-1],
        "cut in its head": good[:30],
        "ten bytes": good[:10],
        "from offset 5 on": batch(b"a", base_offset=0, last_offset=0)[:7] + b"\5" + good[8:],
        "another count": batch_with(good, count=3),
        "no records": batch_with(good, count=0),
        "another last offset": batch_with(good, last=5),
        "control": batch(b"a", control=True, producer_id=4, producer_epoch=0),
        "from the future": batch(b"a", at=int(time.time() * 1_000) + 7_200_000),
        "without a time": batch(b"a", at=-1),
        "marked as the broker's time": batch(b"a", append_time=START),
        "a producer without a sequence": batch(b"a", producer_id=4, producer_epoch=0),
    }.items():
        produce(side, 9, case, "data-p", records, partition=1)
    for codec in Codec:
        produce(side, 9, codec.name, "data-p", batch(b"z" * 300, codec=codec), partition=1)
    produce(side, 9, "no key", "data-compact", batch(b"a", b"b", key=None))
    produce(side, 9, "a key", "data-compact", batch(b"a"))
    produce(side, 9, "the broker's time", "data-time", batch(b"a"))
    produce(side, 9, "too large", "data-small", batch(b"a" * 600))
    produce(side, 9, "a transaction", "data-p", batch(b"a", transactional=True, producer_id=4,
            producer_epoch=0, base_sequence=0))  # fmt: skip
    for acks in (1, 2, -2):
        produce(side, 9, f"acks {acks}", "data-p", good, acks=acks)
    # Kafka appends it, and then says that something went wrong
    produce(side, 9, "a codec that is not", "data-odd", batch_with(good, attributes=7))
    produce(side, 9, "the groups' own", "__consumer_offsets", good)


def batch_with(
    data: bytes, *, attributes: int = 0, last: int | None = None, count: int | None = None
) -> bytes:
    """The same with other numbers in its head, and the checksum for them."""
    from rota.formats.batch.checksum import checksum

    changed = bytearray(data)
    changed[22] |= attributes
    if last is not None:
        changed[23:27] = last.to_bytes(4, "big")
    if count is not None:
        changed[57:61] = count.to_bytes(4, "big")
    changed[17:21] = checksum(memoryview(changed)[21:]).to_bytes(4, "big")
    return bytes(changed)


def silence(side: Side) -> None:
    """Without acknowledgements."""
    ready(side, topic("data-silent"))
    produce(side, 9, "a batch", "data-silent", batch(b"a"), acks=0)
    ends(side, 7, "behind it", "data-silent", LATEST)
    produce(side, 9, "no such topic", "data-nowhere", batch(b"a"), acks=0)
    side.note("what follows an error", "closed" if is_closed(side) else "open")


def is_closed(side: Side) -> bool:
    """Has the broker ended the connection?"""
    return side.quiet("ApiVersions", 0) is None


def sequences(side: Side) -> None:
    """Idempotence."""
    ready(side, topic("data-idem", 3))

    def send(
        case: str, sequence: int, *, count: int = 2, epoch: int = 0, who: int = 4_000, to: int = 0
    ) -> None:
        sent = batch(
            *(b"v" for _ in range(count)),
            producer_id=who,
            producer_epoch=epoch,
            base_sequence=sequence,
        )
        produce(side, 9, case, "data-idem", sent, partition=to)

    send("the first", 0)
    send("the first again", 0)
    send("the next", 2)
    send("the one before again", 0)
    send("a gap", 6)
    send("half of it again", 1)
    send("shorter", 2, count=1)
    for each in range(4, 14, 2):
        send(f"from {each}", each)
    send("too old to be known", 0)
    send("a new epoch from 3", 3, epoch=1)
    send("a new epoch", 0, epoch=1)
    send("the old epoch", 14)
    send("a stranger in the middle", 50, who=4_001)
    send("the same further on", 52, who=4_001)
    send("the last numbers", 2**31 - 2, who=4_002, to=1)
    send("round to 0", 0, who=4_002, to=1)
    ends(side, 7, "of it", "data-idem", LATEST)


def fetch(
    side: Side, version: int, case: str, name: str | UUID, offset: int, **more: Plain
) -> Message:
    by_id = isinstance(name, UUID)
    wanted = {
        "partition": more.pop("partition", 0),
        "fetch_offset": offset,
        "partition_max_bytes": more.pop("partition_max", 1 << 20),
        "current_leader_epoch": more.pop("epoch", -1),
        "last_fetched_epoch": more.pop("last_epoch", -1),
        "log_start_offset": -1,
    }
    session, turn = more.pop("session", (0, -1))
    return side.ask(
        "Fetch",
        version,
        case,
        replica_id=-1,
        max_wait_ms=more.pop("max_wait", 0),
        min_bytes=more.pop("min_bytes", 1),
        max_bytes=more.pop("max_bytes", 50 << 20),
        isolation_level=more.pop("isolation", 0),
        session_id=session,
        session_epoch=turn,
        topics=[{("topic_id" if by_id else "topic"): name, "partitions": [wanted]}],
        forgotten_topics_data=[],
        rack_id="",
    )


def fetching(side: Side) -> None:
    """Each version, the limits, and what cannot be read."""
    ready(side, topic("data-f", 2))
    for values in ((b"a", b"b", b"c"), (b"d", b"e"), (b"f" * 500,), (b"g", b"h")):
        store(side, "data-f", batch(*values))
    for version in range(4, 19):
        name: str | UUID = id_of(side, "data-f") if version >= 13 else "data-f"
        for offset in (0, 4, 8, 9, -1):
            fetch(side, version, f"from {offset}", name, offset)
        fetch(side, version, "committed", name, 0, isolation=1)
        fetch(side, version, "no such partition", name, 0, partition=7)
        nowhere = UNKNOWN if version >= 13 else "data-nowhere"
        fetch(side, version, "no such topic", nowhere, 0)
    first = len(batch(b"a", b"b", b"c"))
    for limit in (0, 1, first - 1, first, first + 1, 10 * first):
        fetch(side, 12, f"{limit} bytes of a partition", "data-f", 0, partition_max=limit)
        fetch(side, 12, f"{limit} bytes in all", "data-f", 0, max_bytes=limit)
    for epoch in (0, 1):
        fetch(side, 12, f"epoch {epoch}", "data-f", 0, epoch=epoch)
        fetch(side, 12, f"after epoch {epoch}", "data-f", 8, last_epoch=epoch)
    fetch(side, 12, "behind the end of its epoch", "data-f", 9, last_epoch=0)
    for session in ((0, 1), (77, 1), (77, 0), (77, -1)):
        fetch(side, 12, f"session {session}", "data-f", 0, session=session)
    fetch(side, 12, "nothing new", "data-f", 8, max_wait=100)
    fetch(side, 12, "too little", "data-f", 0, max_wait=100, min_bytes=100_000)


def ends(side: Side, version: int, case: str, name: str, when: int, **more: Plain) -> Message:
    wanted = {"partition_index": more.pop("partition", 0), "timestamp": when}
    if version >= 4:
        wanted["current_leader_epoch"] = more.pop("epoch", -1)
    fields: Plain = {"isolation_level": more.pop("isolation", 0)} if version >= 2 else {}
    return side.ask(
        "ListOffsets",
        version,
        case,
        replica_id=-1,
        topics=[{"name": name, "partitions": [wanted] * more.pop("times", 1)}],
        **fields,
    )


def looking_up(side: Side) -> None:
    """Offsets by time, and where epochs end."""
    ready(side, topic("data-l"), topic("data-empty"))
    for at, values in ((0, (b"a", b"b")), (10, (b"c",)), (30, (b"d", b"e")), (20, (b"f",))):
        store(side, "data-l", batch(*values, at=START + at))
    for version in range(1, 12):
        for when in (LATEST, EARLIEST, NEWEST, LOCAL, TIERED, PENDING, -7, 0, START + 11):
            ends(side, version, f"time {when}", "data-l", when)
        ends(side, version, "committed", "data-l", LATEST, isolation=1)
    for when in (LATEST, EARLIEST, NEWEST, START):
        ends(side, 9, f"of nothing, time {when}", "data-empty", when)
    for when in range(-1, 34, 5):
        ends(side, 9, f"{when} ms on", "data-l", START + when)
    ends(side, 9, "no such topic", "data-nowhere", LATEST)
    ends(side, 9, "no such partition", "data-l", LATEST, partition=3)
    ends(side, 9, "twice", "data-l", LATEST, times=2)
    ends(side, 9, "another epoch", "data-l", LATEST, epoch=4)
    for version in (2, 3, 4):
        for epoch, current in ((0, -1), (0, 0), (0, 4), (1, -1), (-1, -1)):
            side.ask(
                "OffsetForLeaderEpoch",
                version,
                f"epoch {epoch} of {current}",
                replica_id=-1,
                topics=[
                    {
                        "topic": name,
                        "partitions": [
                            {
                                "partition": 0,
                                "current_leader_epoch": current,
                                "leader_epoch": epoch,
                            }
                        ],
                    }
                    for name in ("data-l", "data-empty", "data-nowhere")
                ],
            )


def deletion(side: Side) -> None:
    """DeleteRecords."""
    ready(side, topic("data-d"), topic("data-dc", configs={"cleanup.policy": "compact"}))
    for name in ("data-d", "data-dc"):
        store(side, name, batch(b"a", b"b", b"c", b"d"))

    def delete(version: int, name: str, offset: int, partition: int = 0) -> None:
        side.ask(
            "DeleteRecords",
            version,
            f"{name} {partition} up to {offset}",
            topics=[
                {"name": name, "partitions": [{"partition_index": partition, "offset": offset}]}
            ],
            timeout_ms=10_000,
        )

    for version in range(3):
        delete(version, "data-d", version)
        delete(version, "data-d", 5)
        delete(version, "data-d", -2)
        delete(version, "data-dc", 1)
        delete(version, "data-nowhere", 1)
        delete(version, "data-d", 1, partition=4)
    fetch(side, 12, "what is gone", "data-d", 1)
    fetch(side, 12, "what is left", "data-d", 2)
    ends(side, 9, "the start", "data-d", EARLIEST)
    delete(2, "data-d", 0)
    delete(2, "data-d", -1)
    ends(side, 9, "the start behind all", "data-d", EARLIEST)
    fetch(side, 12, "nothing is left", "data-d", 4)


def producers(side: Side) -> None:
    """InitProducerId."""
    new: Plain = {"transactional_id": None, "transaction_timeout_ms": 1_000}
    side.eventually(
        lambda: side.quiet("InitProducerId", 4, **new).error_code == 0, "a first block of ids"
    )
    for version in range(6):
        side.ask(
            "InitProducerId", version, "new", transactional_id=None, transaction_timeout_ms=1_000
        )
        side.ask(
            "InitProducerId", version, "no name", transactional_id="", transaction_timeout_ms=1_000
        )
    for who, epoch in ((5, 0), (5, -1), (-1, 0)):
        side.ask(
            "InitProducerId",
            4,
            f"{who} in epoch {epoch} again",
            transactional_id=None,
            transaction_timeout_ms=1_000,
            producer_id=who,
            producer_epoch=epoch,
        )


SECTIONS = (production, silence, sequences, fetching, looking_up, deletion, producers)
