"""What makes keys and values out of bytes, by the names that Kafka and people use.

A deserializer is called with bytes, never with None: a record without a key or value has None
there. What it raises makes the record undecodable. Java's ``StringDeserializer`` puts U+FFFD where
bytes are no text; here such a record is undecodable.
"""

from __future__ import annotations

import codecs
import importlib.metadata
import json
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from rota.errors import InputError
from rota.model.text import nearest, shortened

Deserializer: TypeAlias = Callable[[bytes], Any]

JAVA_PACKAGE = "org.apache.kafka.common.serialization."


def _packed(form: str, name: str) -> Deserializer:
    packed = struct.Struct(form)

    def read(data: bytes) -> object:
        if len(data) != packed.size:
            raise ValueError(f"{name} has {packed.size} bytes, here are {len(data)}")
        value: object = packed.unpack(data)[0]
        return value

    return read


def boolean(data: bytes) -> bool:
    """One byte, 0 or 1."""
    if data not in {b"\x00", b"\x01"}:
        raise ValueError("a boolean is one byte, 0 or 1")
    return data == b"\x01"


def nothing(data: bytes) -> None:  # noqa: ARG001 (whatever it is)
    """For what must always be null."""
    raise ValueError("there are bytes where VoidDeserializer expects null")


def _uuid(data: bytes) -> uuid.UUID:
    return uuid.UUID(data.decode())


def _string(data: bytes) -> str:
    return str(data, "utf-8")


NAMES: Mapping[str, Deserializer | None] = {
    "bytes": None,
    "string": _string,
    "json": json.loads,
    "short": _packed(">h", "a short"),
    "integer": _packed(">i", "an integer"),
    "long": _packed(">q", "a long"),
    "float": _packed(">f", "a float"),
    "double": _packed(">d", "a double"),
    "boolean": boolean,
    "uuid": _uuid,
    "void": nothing,
}
"""None: the bytes as they are."""

JAVA: Mapping[str, str] = {
    "ByteArrayDeserializer": "bytes",
    "ByteBufferDeserializer": "bytes",
    "BytesDeserializer": "bytes",
    "StringDeserializer": "string",
    "ShortDeserializer": "short",
    "IntegerDeserializer": "integer",
    "LongDeserializer": "long",
    "FloatDeserializer": "float",
    "DoubleDeserializer": "double",
    "BooleanDeserializer": "boolean",
    "UUIDDeserializer": "uuid",
    "VoidDeserializer": "void",
}
"""Java's classes that have a name here."""


def deserializer(key: str, given: object, encoding: str | None = None) -> Deserializer | None:
    """What is meant by the value of ``key``; None: the bytes are handed out as they are.

    ``encoding`` is for ``string``, as ``deserializer.encoding`` gives it.

    :raises InputError: it is not known, or cannot be called
    """
    if isinstance(given, str):
        return _named(key, given, encoding)
    if given is bytes or given is str:
        return _named(key, "bytes" if given is bytes else "string", encoding)
    if not callable(given):
        raise InputError(f"{key}: {shortened(repr(given))[1:-1]} cannot be called with bytes")
    return given


def _named(key: str, name: str, encoding: str | None) -> Deserializer | None:
    short = name.removeprefix(JAVA_PACKAGE)
    known = JAVA.get(short, short)
    if known == "string" and encoding is not None:
        return _decoder(key, encoding)
    if known in NAMES:
        return NAMES[known]
    if ":" in name:
        return deserializer(key, loaded(key, name))
    raise InputError(
        f"{key}: {shortened(name)} is none of {', '.join(NAMES)}, of Java's classes for these, "
        f"or package.module:name of your own{nearest(short, (*NAMES, *JAVA))}"
    )


def _decoder(key: str, encoding: str) -> Deserializer:
    try:
        codecs.lookup(encoding)
        "".encode(encoding)  # some codecs are not for text
    except LookupError:
        raise InputError(
            f"{key}.encoding: {shortened(encoding)} is not an encoding of text"
        ) from None

    def read(data: bytes) -> str:
        return str(data, encoding)

    return read


def loaded(key: str, name: str) -> object:
    """What is called ``package.module:name``.

    :raises InputError: there is none, or its module cannot be imported
    """
    point = importlib.metadata.EntryPoint("", name, "")
    try:
        return point.load()
    except Exception as error:
        raise InputError(
            f"{key}: {shortened(name)} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
