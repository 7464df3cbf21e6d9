"""A record as a line: how ``rota consume`` writes it, and ``rota produce`` reads it.

In JSON, bytes are text where they are UTF-8; where they are not, a name with ``_base64`` takes
their place. What is written so is read back to the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.errors import InputError

if TYPE_CHECKING:
    from rota.consumer.record import ConsumerRecord

BASE64 = "_base64"
TIMES = ("CreateTime", "LogAppendTime")
_TAB = "\t"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a line shows besides the value."""

    key: bool = False
    headers: bool = False
    time: bool = False
    place: bool = False
    separator: str = _TAB

    def line(self, record: ConsumerRecord) -> bytes:
        """In the order of Kafka's own tool: time, place, headers, key, value."""
        parts = []
        if self.time:
            kind = TIMES[record.timestamp_type] if record.timestamp >= 0 else "NoTimestamp"
            parts.append(f"{kind}:{record.timestamp}".encode())
        if self.place:
            parts.append(f"{record.topic}-{record.partition}@{record.offset}".encode())
        if self.headers:
            named = (name.encode() + b":" + _plain(value) for name, value in record.headers)
            parts.append(b",".join(named) or b"NO_HEADERS")
        if self.key:
            parts.append(_plain(record.key))
        parts.append(_plain(record.value))
        return self.separator.encode().join(parts) + b"\n"


def _plain(value: object) -> bytes:
    match value:
        case bytes():
            return value
        case None:
            return b"null"
        case str():
            return value.encode(errors="backslashreplace")
        case _:
            return _json(value).encode()


def as_json(record: ConsumerRecord) -> bytes:
    """The whole record in one line."""
    found: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": TIMES[record.timestamp_type],
        **_named("key", record.key),
        **_named("value", record.value),
        "headers": [{"name": name, **_named("value", value)} for name, value in record.headers],
    }
    return _json(found).encode() + b"\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _named(name: str, value: object) -> dict[str, object]:
    if isinstance(value, bytes):
        try:
            return {name: value.decode()}
        except UnicodeDecodeError:
            return {name + BASE64: base64.b64encode(value).decode()}
    return {name: value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is to be written."""

    topic: str | None
    """None: where the command says."""
    partition: int | None = None
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def from_json(line: bytes) -> Message:
    """A line that :func:`as_json` wrote, or one like it with fewer names.

    :raises InputError: it is none
    """
    try:
        found = json.loads(line)
    except ValueError as error:
        raise InputError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError("not a JSON object")
    known = {"topic", "partition", "offset", "timestamp", "timestamp_type", "headers"}
    for name in found:
        if name not in known and name.removesuffix(BASE64) not in {"key", "value"}:
            raise InputError(f"{name!r} is not a name of a record's JSON")
    topic = found.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise InputError(f"topic: {topic!r} is not text")
    timestamp = _number(found, "timestamp", least=-1)
    return Message(
        topic=topic,
        partition=_number(found, "partition", least=0),
        timestamp=None if timestamp == -1 else timestamp,
        key=_bytes(found, "key"),
        value=_bytes(found, "value"),
        headers=tuple(_headers(found.get("headers"))),
    )


def _number(found: Mapping[str, object], name: str, *, least: int) -> int | None:
    value = found.get(name)
    if value is None or (type(value) is int and least <= value < 2**63):
        return value
    raise InputError(f"{name}: {value!r} is not a number from {least} on")


def _bytes(found: Mapping[str, object], name: str) -> bytes | None:
    """What was written as ``name``, or as ``name_base64``."""
    encoded = found.get(name + BASE64)
    if encoded is None:
        value = found.get(name)
        if value is None:
            return None
        try:
            return (value if isinstance(value, str) else _json(value)).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{name}: has no UTF-8 form ({error.reason})") from error
    if name in found:
        raise InputError(f"{name} and {name + BASE64} are both given")
    try:
        return base64.b64decode(str(encoded), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{name + BASE64}: not base64: {error}") from error


def _headers(given: object) -> Iterable[tuple[str, bytes | None]]:
    if given is None:
        return
    if not isinstance(given, list):
        raise InputError("headers: not a list")
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise InputError('headers: an item is not {"name": ..., "value": ...}')
        yield each["name"], _bytes(each, "value")
