"""Frames for a broker: such as clients send, and those changed until they are not.

A request is made from its schema, and most of its fields get values that mean something to the
broker as it is: names of topics and groups that are there, members that have joined, batches.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rota.engine.formats.record_batch import BatchRecord, CompressionType, encode_batch
from rota.engine.model.config import TOPIC_KEYS
from rota.protocol.codec import RequestHeader, write_request
from rota.protocol.messages import Api
from rota.protocol.schemas import ZERO_UUID, FieldSpec, Message
from tests.support.node import VERSIONS
from tests.support.requests import START
from tests.support.wire_messages import message_classes, random_message

#: Lengths and counts that break careless readers.
EXTREMES = (
    *(number.to_bytes(4, "big", signed=True) for number in (-1, 0, 1, -2, 2**16, 2**31 - 1)),
    *(number.to_bytes(8, "big", signed=True) for number in (-1, 2**63 - 1, -(2**63))),
    *(b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x08", b"\xff\xff\xff\xff\xff\xff", b"\x80" * 12),
    *(b"\xff\xff", b"\x7f\xff", b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"),
)
TOPICS = ("t0", "t1", "t2", "t-new", "t.dot", "t_dot", "__consumer_offsets", "no such!", "", ".")
GROUPS = ("g0", "g1", "g2", "g-new", "")
CLIENTS = ("app", "", None, "ä" * 300, "\x00\n", "x" * 32_000)
KEYS = (*TOPIC_KEYS, "no.such.setting", "")
VALUES = ("0", "1", "-1", "1048588", "compact", "delete", "lz4", "true", "x", "", str(2**63), None)

Draw: TypeAlias = Callable[[random.Random], Any]


@dataclass
class KnownNames:
    """What is there to be named."""

    topic_ids: Sequence[bytes] = ()
    members: list[str] = field(default_factory=list)
    generations: list[int] = field(default_factory=list)
    producers: list[int] = field(default_factory=list)


def _of(*choices: Any) -> Draw:
    return lambda rng: rng.choice(choices)


def random_batch(rng: random.Random, known: KnownNames) -> bytes:
    """What a producer sends, in any codec, idempotent or not."""
    count = rng.choice((1, 1, 2, 5))
    times = START + rng.randrange(1000)
    records = [
        BatchRecord(at, times + at, rng.choice((b"k", b"", None)), rng.randbytes(rng.randrange(30)))
        for at in range(count)
    ]
    codec = rng.choice(list(CompressionType))
    if not known.producers or rng.random() < 0.5:
        return encode_batch(records, codec=codec)
    return encode_batch(
        records,
        codec=codec,
        producer_id=rng.choice(known.producers),
        producer_epoch=rng.choice((0, 0, 1)),
        base_sequence=rng.choice((0, 1, 2, 5)),
    )


def _records(rng: random.Random, known: KnownNames) -> bytes | None:
    batch = b"".join(random_batch(rng, known) for _ in range(rng.choice((1, 1, 1, 2))))
    return mutate_bytes(batch, rng) if rng.random() < 0.2 else batch


PARTITION = _of(0, 0, 1, 2, 3, -1)
OFFSET = _of(0, 1, 3, 7, 100, -1, -2)
WAIT = _of(0, 100, 5_000)
TOPIC = _of(*TOPICS)
GROUP = _of(*GROUPS)
#: What a field is about, by its name, in whatever request.
BY_NAME: Mapping[str, Draw] = {
    "topic": TOPIC,
    "topic_name": TOPIC,
    "topic_names": TOPIC,
    "resource_name": _of(*TOPICS, "1", "2"),
    "resource_type": _of(2, 2, 4, 8, 3),
    "config_operation": _of(0, 1, 2, 3, 4),
    "configuration_keys": _of(*KEYS),
    "value": _of(*VALUES),
    "group_id": GROUP,
    "groups": GROUP,
    "groups_names": GROUP,
    "key": _of(*GROUPS),
    "coordinator_keys": GROUP,
    "key_type": _of(0, 0, 0, 1, 2),
    "group_instance_id": _of(None, None, "s0", "s1", ""),
    "protocol_type": _of("consumer", "consumer", "connect", ""),
    "protocol_name": _of("range", "sticky", None),
    "states_filter": _of("Stable", "Empty", "Dead", "nothing"),
    "session_timeout_ms": _of(6_000, 45_000, 5, 2**31 - 1),
    "rebalance_timeout_ms": _of(1_000, 60_000, -1, 2**31 - 1),
    "partition": PARTITION,
    "partition_index": PARTITION,
    "partition_indexes": PARTITION,
    "partitions": PARTITION,
    "index": PARTITION,
    "fetch_offset": OFFSET,
    "offset": OFFSET,
    "committed_offset": OFFSET,
    "timestamp": _of(-1, -2, -3, -4, START, START + 500, 0),
    "max_wait_ms": WAIT,
    "min_bytes": _of(0, 1, 100),
    "max_bytes": _of(0, 100, 1 << 20, 2**31 - 1),
    "partition_max_bytes": _of(0, 100, 1 << 20, 2**31 - 1),
    "timeout_ms": WAIT,
    "acks": _of(-1, 1, 0, 0, 2),
    "current_leader_epoch": _of(-1, 0, 1),
    "leader_epoch": _of(-1, 0, 1),
    "num_partitions": _of(-1, 1, 2, 0),
    "count": _of(1, 2, 3, 0),
    "replication_factor": _of(-1, 1, 1, 3),
    "transactional_id": _of(None, None, "tx"),
    "mechanism": _of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"),
    "auth_bytes": _of(b"\0user\0password", b"\0user\0wrong", b"n,,n=user,r=abc", b"", b"\xff"),
    "response_partition_limit": _of(2000, 1, 0, -1),
    "validate_only": _of(False, True),
    "allow_auto_topic_creation": _of(True, False),
}


def random_valid_message(api: Api, version: int, rng: random.Random, known: KnownNames) -> Any:
    """A request that a client may send to this broker."""
    message = random_message(message_classes(api)[0], version, rng)
    _fill(message, version, rng, known, api)
    return message


def _fill(message: Any, version: int, rng: random.Random, known: KnownNames, api: Api) -> None:
    for each in message.STRUCT.fields:
        if version not in each.versions:
            continue
        found = getattr(message, each.name)
        if each.struct is not None:
            for inner in found if isinstance(found, list) else [found]:
                if isinstance(inner, Message):
                    _fill(inner, version, rng, known, api)
        elif rng.random() < 0.9:
            _set(message, each, found, version, rng, known, api)


def _set(
    message: Any,
    each: FieldSpec,
    found: Any,
    version: int,
    rng: random.Random,
    known: KnownNames,
    api: Api,
) -> None:
    draw = _draw(each, known, api, type(message).__name__)
    if draw is None:
        return
    value = [draw(rng) for _ in found] if isinstance(found, list) else draw(rng)
    if value is None and version not in each.nullable:
        return
    setattr(message, each.name, value)


def _draw(each: FieldSpec, known: KnownNames, api: Api, struct: str) -> Draw | None:
    if each.kind == "records":
        return lambda rng: _records(rng, known)
    if each.name == "topic_id":
        return _of(ZERO_UUID, *known.topic_ids)
    if each.name == "member_id":
        return _of("", "nobody", *known.members)
    if each.name.startswith("generation_id"):
        return _of(-1, 0, 1, *known.generations)
    if each.name == "name":
        return _name(api, struct)
    return BY_NAME.get(each.name)


def _name(api: Api, struct: str) -> Draw:
    if api is Api.JOIN_GROUP:
        return _of("range", "sticky")
    if "Config" in struct:
        return _of(*KEYS)
    return TOPIC


def encode_frame(api: Api, version: int, message: Any, rng: random.Random) -> bytes:
    """With an odd client id or correlation now and then."""
    client = rng.choice(CLIENTS) if rng.random() < 0.1 else "app"
    correlation = rng.choice((0, -1, 2**31 - 1, -(2**31), rng.randrange(1000)))
    return bytes(write_request(RequestHeader(api, version, correlation, client, 0), message))[4:]


def random_request(rng: random.Random, known: KnownNames, api: Api | None = None) -> bytes:
    """Of any API and version that is offered."""
    api = rng.choice(list(VERSIONS)) if api is None else api
    version = rng.choice(VERSIONS[api])
    return encode_frame(api, version, random_valid_message(api, version, rng, known), rng)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bits flipped, bytes replaced by extremes, pieces gone, doubled or moved, the end cut."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randint(0, len(found))
        extreme = rng.choice(EXTREMES)
        match rng.randrange(6):
            case 0 if at < len(found):
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                del found[at : at + rng.randrange(1, 9)]
            case 2:
                found[at:at] = found[at : at + rng.randrange(1, 30)]
            case 3 if rng.random() < 0.3:
                del found[at:]
            case _:
                found[at : at + rng.choice((0, 1, len(extreme)))] = extreme
    return bytes(found)


def random_bytes(rng: random.Random) -> bytes:
    """A head of something that is offered, or none, and bytes without any sense behind it."""
    head = b""
    if rng.random() < 0.8:
        api = rng.choice(list(VERSIONS))
        version = rng.choice((*VERSIONS[api], -1, 99))
        head = int(api).to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
        head += rng.randbytes(4) + b"\xff\xff"
    pieces = (
        rng.choice((rng.randbytes(rng.randrange(9)), rng.choice(EXTREMES)))
        for _ in range(rng.randrange(20))
    )
    return head + b"".join(pieces)


def replace_with_extreme(frame: bytes, body: int, rng: random.Random) -> bytes:
    """An impossible length, count or number in place of some bytes of the body."""
    at, extreme = rng.randrange(body, len(frame) + 1), rng.choice(EXTREMES)
    return frame[:at] + extreme + frame[at + len(extreme) :]
