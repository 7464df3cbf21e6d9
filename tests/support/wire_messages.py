"""Random messages of any API and version, made from their schemas."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from rota.protocol import messages
from rota.protocol.messages import Api
from rota.protocol.schemas import ZERO_UUID, FieldSpec, Message

ENDS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
ALPHABETS = ("abcdefgh._-09", "äöüßéñ", "漢字かな", "😀🚀𝒳ﬀ\uffee", "\x00\x7f ")


def message_classes(api: Api) -> tuple[type[Message], type[Message]]:
    """The classes of an API's request and response."""
    name = "".join(word.capitalize() for word in api.name.split("_"))
    return getattr(messages, f"{name}Request"), getattr(messages, f"{name}Response")


def versions(api: Api) -> range:
    """Those that have a schema."""
    found = message_classes(api)[0].SCHEMA.versions
    return range(found.low, found.high + 1)


def all_versions() -> list[tuple[Api, int]]:
    return [(api, version) for api in Api for version in versions(api)]


def random_message(made: type[Message], version: int, rng: random.Random) -> Any:
    """Every field of the version has some value, the others their default."""
    return _record(made, made, version, rng)


def full_message(made: type[Message], version: int, rng: random.Random) -> Any:
    """One whose arrays all have elements, and none is null."""
    message = random_message(made, version, rng)
    _fill(made, message, version, rng)
    return message


def _fill(top: type[Message], message: Any, version: int, rng: random.Random) -> None:
    for field in message.STRUCT.fields:
        if version not in field.versions:
            continue
        found = getattr(message, field.name)
        if field.is_array and not found:
            found = [_one(top, field, version, rng) for _ in range(2)]
            setattr(message, field.name, found)
        for each in found if isinstance(found, list) else [found]:
            if isinstance(each, Message):
                _fill(top, each, version, rng)


def _record(top: type[Message], made: type[Message], version: int, rng: random.Random) -> Any:
    found = made()
    for field in made.STRUCT.fields:
        if version in field.versions:
            setattr(found, field.name, _value(top, field, version, rng))
    return found


def _value(top: type[Message], field: FieldSpec, version: int, rng: random.Random) -> Any:
    if field.is_tagged(version) and rng.random() < 0.5:
        return field.default
    if version in field.nullable and rng.random() < 0.2:
        return None
    if field.is_array:
        many = 130 if rng.random() < 0.01 else rng.choice((0, 1, 1, 2, 3))
        return [_one(top, field, version, rng) for _ in range(many)]
    found = _one(top, field, version, rng)
    if field.is_tagged(version) and isinstance(found, Message) and found == type(found)():
        return None  # nothing but defaults is not written
    return found


def _one(top: type[Message], field: FieldSpec, version: int, rng: random.Random) -> Any:
    if field.struct is not None:
        return _record(top, getattr(top, field.struct.name), version, rng)
    if field.kind in ENDS:
        end = 1 << ENDS[field.kind]
        return rng.choice((0, 1, -1, end - 1, -end, rng.randrange(-end, end)))
    return VALUES[field.kind](rng)


def _text(rng: random.Random) -> str:
    size = rng.choice((0, 1, 5, 12, 31, 32, 126, 127, 128, 200))
    alphabet = rng.choice(ALPHABETS) + ALPHABETS[0]
    return "".join(rng.choices(alphabet, k=size))


VALUES: dict[str, Callable[[random.Random], Any]] = {
    "bool": lambda rng: rng.random() < 0.5,
    "uint16": lambda rng: rng.choice((0, 1, 9092, 2**16 - 1)),
    "float64": lambda rng: rng.choice((0.0, -1.5, 1e300)),
    "uuid": lambda rng: rng.choice((ZERO_UUID, rng.randbytes(16))),
    "string": _text,
    "bytes": lambda rng: rng.randbytes(rng.choice((0, 1, 2, 60, 126, 127, 128, 300))),
    "records": lambda rng: rng.randbytes(rng.choice((0, 1, 61, 126, 127, 128, 300))),
}
