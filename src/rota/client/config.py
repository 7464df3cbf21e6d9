"""Reads a consumer's configuration under Kafka's names.

``read_settings`` takes a mapping such as ``{"bootstrap.servers": "host:9092"}`` and returns
checked, typed values and the warnings about keys that have no effect. The keys themselves are in
:mod:`rota.client.config_keys`, TLS and SASL in
:mod:`rota.client.security_config`. The rest of this module parses single values: addresses,
    deserializers and Java's ``.properties`` files.
"""

from __future__ import annotations

import codecs
import importlib.metadata
import ipaddress
import itertools
import json
import os
import re
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from rota.client import config_keys, security_config
from rota.client.config_keys import KEYS, KeySupport
from rota.engine.assignors import registry
from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS
from rota.engine.model import duration
from rota.engine.model.config import (
    BY_DURATION,
    EARLIEST,
    LATEST,
    NO_RESET,
    Address,
    ClientConfig,
    FetchConfig,
    MemberConfig,
)
from rota.engine.model.text import (
    find_string_problem,
    find_topic_name_problem,
    quote_shortened,
    suggest_names,
)
from rota.engine.plan import TimeBudget
from rota.errors import InputError, Unreachable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Config = TypeVar("Config", bound=DataclassInstance)

#: For the ids of clients that have none; Kafka counts in each process, too.
_client_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A consumer's configuration, parsed and checked."""

    client: ClientConfig
    read: FetchConfig
    #: None: without a group (``group.id``).
    member: MemberConfig | None
    strategies: tuple[Assignor, ...]
    #: Instances.
    interceptors: tuple[Any, ...]
    #: None: bytes as they are.
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    #: What is without effect, or unwise.
    warnings: tuple[str, ...]


def load_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """The settings of a ``client.properties``, a file as Kafka's own tools take it.

    ::

        settings = rota.load_properties("client.properties") | {"group.id": "billing"}
        with rota.Consumer(settings) as consumer:
            ...

    :raises Unreachable: the file cannot be read
    :raises InputError: it is malformed
    """
    try:
        text = Path(path).read_text("latin-1")  # as Java's Properties are by definition
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreachable(f"{os.fspath(path)} cannot be read: {reason}") from error
    return parse_properties(text, os.fspath(path))


def require_mapping(given: object) -> Mapping[str, object]:
    """Returns the settings that a consumer was given, if they are a mapping.

    :raises InputError: they are not a mapping; the message shows how to pass settings
    """
    if not isinstance(given, Mapping):
        raise InputError(
            'settings are a mapping with Kafka\'s names, like {"bootstrap.servers": "host:9092"}, '
            f"not {quote_shortened(repr(given))[1:-1]}; rota.load_properties(path) has those "
            "of a file"
        )
    return given


def read_settings(given: Mapping[str, object]) -> Settings:
    """Parses and checks settings; a value of None counts as not given.

    :raises InputError: a key is unknown, malformed, refused, or does not fit the others
    :raises Unreachable: a file that a setting names cannot be read
    """
    values = _parse_values(given)
    tls, login, warnings = security_config.read_security(values)
    warnings += check_supported(values)
    _fill_defaults(values)
    bootstrap = parse_addresses(_list_value(values, "bootstrap.servers"))
    client = _build_config(ClientConfig, values, bootstrap_servers=bootstrap, tls=tls, sasl=login)
    reading = _build_config(FetchConfig, values, **_reset_policy(values))
    member = _member_config(values)
    return Settings(
        client=client,
        read=reading,
        member=member,
        strategies=_resolve_strategies(values),
        interceptors=tuple(map(_make_interceptor, _list_value(values, "interceptor.classes"))),
        key_deserializer=_read_deserializer("key", values),
        value_deserializer=_read_deserializer("value", values),
        warnings=(*warnings, *_unwise_warnings(values, client, reading, member)),
    )


def _parse_values(given: Mapping[str, object]) -> dict[str, object]:
    """Each value as its key's type has it."""
    values = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise InputError(f"{quote_shortened(repr(name))[1:-1]}: the name of a setting is text")
        key = KEYS.get(name)
        if key is None:
            raise InputError(config_keys.explain_unknown_key(name))
        if value is not None:
            values[name] = key.parse(os.fspath(value) if isinstance(value, os.PathLike) else value)
    return values


def check_supported(values: Mapping[str, object]) -> list[str]:
    """Returns warnings about settings that have no effect.

    :raises InputError: a setting asks for something that Rota cannot do
    """
    warnings = []
    for name, value in values.items():
        key = KEYS[name]
        if key.support is KeySupport.REFUSED and value not in (key.default, "", ()):
            raise InputError(f"{name}: {key.description}")
        if key.support is KeySupport.NO_EFFECT and value not in key.no_op_values:
            warnings.append(f"{name}: without effect: {key.description}")
    return warnings


def _fill_defaults(values: dict[str, object]) -> None:
    """What Kafka sets where the application did not, out of other settings."""
    group = values.get("group.id")
    if group == "":
        raise InputError("group.id: may be absent, but not empty")
    if group is None and values.setdefault("enable.auto.commit", False):
        raise InputError("enable.auto.commit: needs group.id: without a group nothing is committed")
    if not values.get("client.id"):
        static = values.get("group.instance.id")
        name = "null" if group is None else group  # as Kafka writes it
        values["client.id"] = (
            f"consumer-{name}-{next(_client_numbers) if static is None else static}"
        )
    if values.get("client.rack") == "":
        del values["client.rack"]
    if "reconnect.backoff.ms" in values:
        values.setdefault("reconnect.backoff.max.ms", values["reconnect.backoff.ms"])


def _list_value(values: Mapping[str, object], name: str) -> tuple[object, ...]:
    value = values.get(name, ())
    assert isinstance(value, tuple), "it is parsed"
    return value


def _build_config(config: type[Config], values: Mapping[str, object], **more: object) -> Config:
    """One of the configurations, each field from its key."""
    found = {
        each.name: values[each.metadata["key"]]
        for each in fields(config)
        if each.metadata.get("key") in values
    }
    return config(**(found | more))


def _member_config(values: Mapping[str, object]) -> MemberConfig | None:
    if "group.id" not in values:
        return None
    static = values.get("group.instance.id")
    if static is not None and (problem := find_topic_name_problem(str(static))):
        raise InputError(f"group.instance.id: follows the rules of topics: {problem}")
    return _build_config(MemberConfig, values)


def _reset_policy(values: Mapping[str, object]) -> dict[str, object]:
    """``auto.offset.reset``, which may have a duration (KIP-1106)."""
    text = str(values.get("auto.offset.reset", LATEST))
    if text in {EARLIEST, LATEST, NO_RESET}:
        return {"auto_offset_reset": text}
    name, colon, length = text.partition(":")
    if name == BY_DURATION and colon:
        return {
            "auto_offset_reset": name,
            "reset_duration": duration.parse_iso_duration(length, "auto.offset.reset"),
        }
    known = (EARLIEST, LATEST, NO_RESET, BY_DURATION)
    meant = config_keys.RESET_ALIASES.get(text)
    hint = suggest_names(text, known) if meant is None else f"; did you mean {meant}?"
    raise InputError(
        f"auto.offset.reset: {quote_shortened(text)} is none of earliest, latest, none and "
        f"by_duration:PnDTnHnMn.nS (by_duration:PT1H is an hour ago){hint}"
    )


def _resolve_strategies(values: Mapping[str, object]) -> tuple[Assignor, ...]:
    name = "partition.assignment.strategy"
    try:
        given: Any = (
            list(_list_value(values, name)) if name in values else registry.DEFAULT_STRATEGIES
        )
        budget = TimeBudget(cast("int", values.get("assign.budget.ms", DEFAULT_BUDGET_MS)))
        return registry.resolve_strategies(given, budget=budget)
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error


def _make_interceptor(given: object) -> object:
    key = "interceptor.classes"
    if isinstance(given, str):
        if ":" not in given:
            raise InputError(
                f"{key}: {quote_shortened(given)}: name your own as package.module:Class; a "
                "class of "
                "Java's cannot be run"
            )
        given = load_object(key, given)
    shown = quote_shortened(repr(given))[1:-1]
    if isinstance(given, type):
        try:
            given = given()
        except Exception as error:
            raise InputError(f"{key}: {shown} cannot be created: {error!r}") from error
    for method in ("on_consume", "on_commit", "close"):
        if not callable(getattr(given, method, None)):
            raise InputError(f"{key}: {shown} has no {method}: see rota.ConsumerInterceptor")
    return given


def _read_deserializer(side: str, values: Mapping[str, object]) -> Deserializer | None:
    name = f"{side}.deserializer"
    encoding = values.get(f"{name}.encoding") or values.get("deserializer.encoding")
    return find_deserializer(
        name, values.get(name, "bytes"), None if encoding is None else str(encoding)
    )


def _unwise_warnings(
    given: Mapping[str, object],
    client: ClientConfig,
    reading: FetchConfig,
    member: MemberConfig | None,
) -> Iterator[str]:
    """What is allowed, but will not do what was meant."""
    if member is not None:
        yield from member.warnings
    elif "group.instance.id" in given:
        yield "group.instance.id: without effect without group.id"
    if given.get("reconnect.backoff.ms", 0) == given.get("reconnect.backoff.max.ms"):
        yield (
            "reconnect.backoff.ms: the pause does not grow, "
            "as reconnect.backoff.max.ms is not greater"
        )
    for first, least, last, most in (
        (
            "retry.backoff.ms",
            client.retry_backoff,
            "retry.backoff.max.ms",
            client.retry_backoff_max,
        ),
        (
            "socket.connection.setup.timeout.ms",
            client.connect_timeout,
            "socket.connection.setup.timeout.max.ms",
            client.connect_timeout_max,
        ),
    ):
        if least > most:
            yield f"{first} {least} is more than {last} {most}: {most} counts, and does not grow"
    if reading.fetch_max_wait >= client.request_timeout:
        yield (
            f"fetch.max.wait.ms {reading.fetch_max_wait} is not less than request.timeout.ms "
            f"{client.request_timeout}: fetches without new records will time out"
        )
    # fetch.max.bytes may well be less: a broker waits for no more than it may send
    if reading.fetch_min_bytes > reading.max_partition_bytes:
        yield (
            f"fetch.min.bytes {reading.fetch_min_bytes} is more than max.partition.fetch.bytes "
            f"{reading.max_partition_bytes}: a fetch of one partition waits for fetch.max.wait.ms"
        )
    if client.api_timeout < client.request_timeout:
        yield (
            f"default.api.timeout.ms {client.api_timeout} is less than request.timeout.ms "
            f"{client.request_timeout}: a call ends before its first request may"
        )


BOOTSTRAP_SERVERS = "bootstrap.servers"

_ADDRESS_FORM = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9_+.-]*)://)?(?P<rest>.*)", re.DOTALL)

_IPV6_FORM = re.compile(r"[0-9A-Fa-f:.]+")

_HOST_FORM = re.compile(r"[^\s/\\@?#\[\]:,]+")


def parse_addresses(items: Iterable[object]) -> tuple[Address, ...]:
    """Parses ``host:port`` items; IPv6 addresses are in brackets.

    :raises InputError: an item is not an address; names it and the problem
    """
    found = tuple(map(_parse_address, items))
    if not found:
        raise InputError(f"{BOOTSTRAP_SERVERS}: at least one host:port is needed")
    return found


def _parse_address(item: object) -> Address:
    if not isinstance(item, str):
        raise InputError(
            f"{BOOTSTRAP_SERVERS}: {quote_shortened(repr(item))[1:-1]} is not text of the "
            "form host:port"
        )
    named = _ADDRESS_FORM.fullmatch(item)
    assert named is not None, "it matches everything"
    rest = named["rest"]
    if (scheme := named["scheme"]) is not None and scheme.lower() in {"http", "https"}:
        raise InputError(
            f"{BOOTSTRAP_SERVERS}: {quote_shortened(item)} is the address of a web server, "
            "not host:port"
        )
    # Kafka, too, takes PLAINTEXT://host:port, as listeners are written.
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket:
            raise InputError(
                f"{BOOTSTRAP_SERVERS}: {quote_shortened(item)} has a '[' without its ']'"
            )
        _check_ipv6(host, item)
    else:
        host, colon, tail = rest.partition(":")
        if ":" in tail and _IPV6_FORM.fullmatch(rest):
            raise InputError(
                f"{BOOTSTRAP_SERVERS}: {quote_shortened(item)}: an address of version 6 is "
                "written [address]:port"
            )
        tail = colon + tail
        if not host:
            raise InputError(f"{BOOTSTRAP_SERVERS}: {quote_shortened(item)} has no host")
        if _HOST_FORM.fullmatch(host) is None or find_string_problem(host):
            raise InputError(
                f"{BOOTSTRAP_SERVERS}: {quote_shortened(item)}: {quote_shortened(host)} is "
                "not a host's name"
            )
    return Address(host, _parse_port(tail, item))


def _check_ipv6(host: str, item: str) -> None:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        raise InputError(
            f"{BOOTSTRAP_SERVERS}: {quote_shortened(item)}: {quote_shortened(host)} is not an "
            "address of version 6"
        ) from None


def _parse_port(tail: str, item: str) -> int:
    if tail in {"", ":"}:
        raise InputError(
            f"{BOOTSTRAP_SERVERS}: {quote_shortened(item)} has no port: Kafka's is 9092 as a rule"
        )
    digits = tail[1:]
    if not tail.startswith(":") or not (digits.isascii() and digits.isdecimal()):
        raise InputError(
            f"{BOOTSTRAP_SERVERS}: {quote_shortened(item)}: {quote_shortened(digits)} is not a port"
        )
    if len(digits) > 5 or not 1 <= int(digits) <= 65_535:
        raise InputError(
            f"{BOOTSTRAP_SERVERS}: {quote_shortened(item)}: a port is a number from 1 to 65535"
        )
    return int(digits)


# What makes keys and values out of bytes, by the names that Kafka and people use.
#
# A deserializer is called with bytes, never with None: a record without a key or value has None
# there. What it raises makes the record undecodable. Java's ``StringDeserializer`` puts U+FFFD
# where bytes are no text; here such a record is undecodable.

Deserializer: TypeAlias = Callable[[bytes], Any]

JAVA_PACKAGE = "org.apache.kafka.common.serialization."


def _number_deserializer(form: str, name: str) -> Deserializer:
    packed = struct.Struct(form)

    def read(data: bytes) -> object:
        if len(data) != packed.size:
            raise ValueError(f"{name} has {packed.size} bytes, here are {len(data)}")
        value: object = packed.unpack(data)[0]
        return value

    return read


def deserialize_boolean(data: bytes) -> bool:
    """One byte, 0 or 1."""
    if data not in {b"\x00", b"\x01"}:
        raise ValueError("a boolean is one byte, 0 or 1")
    return data == b"\x01"


def deserialize_void(data: bytes) -> None:  # noqa: ARG001 (whatever it is)
    """For what must always be null."""
    raise ValueError("there are bytes where VoidDeserializer expects null")


def _deserialize_uuid(data: bytes) -> uuid.UUID:
    return uuid.UUID(data.decode())


def _deserialize_string(data: bytes) -> str:
    return str(data, "utf-8")


#: None: the bytes as they are.
DESERIALIZERS: Mapping[str, Deserializer | None] = {
    "bytes": None,
    "string": _deserialize_string,
    "json": json.loads,
    "short": _number_deserializer(">h", "a short"),
    "integer": _number_deserializer(">i", "an integer"),
    "long": _number_deserializer(">q", "a long"),
    "float": _number_deserializer(">f", "a float"),
    "double": _number_deserializer(">d", "a double"),
    "boolean": deserialize_boolean,
    "uuid": _deserialize_uuid,
    "void": deserialize_void,
}

#: Java's classes that have a name here.
JAVA_DESERIALIZERS: Mapping[str, str] = {
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


def find_deserializer(key: str, given: object, encoding: str | None = None) -> Deserializer | None:
    """What is meant by the value of ``key``; None: the bytes are handed out as they are.

    ``encoding`` is for ``string``, as ``deserializer.encoding`` gives it.

    :raises InputError: it is not known, or cannot be called
    """
    if isinstance(given, str):
        return _deserializer_by_name(key, given, encoding)
    if given is bytes or given is str:
        return _deserializer_by_name(key, "bytes" if given is bytes else "string", encoding)
    if not callable(given):
        raise InputError(f"{key}: {quote_shortened(repr(given))[1:-1]} cannot be called with bytes")
    return given


def _deserializer_by_name(key: str, name: str, encoding: str | None) -> Deserializer | None:
    short = name.removeprefix(JAVA_PACKAGE)
    known = JAVA_DESERIALIZERS.get(short, short)
    if known == "string" and encoding is not None:
        return _string_decoder(key, encoding)
    if known in DESERIALIZERS:
        return DESERIALIZERS[known]
    if ":" in name:
        return find_deserializer(key, load_object(key, name))
    raise InputError(
        f"{key}: {quote_shortened(name)} is none of {', '.join(DESERIALIZERS)}, of Java's "
        "classes for these, "
        "or package.module:name of your "
        f"own{suggest_names(short, (*DESERIALIZERS, *JAVA_DESERIALIZERS))}"
    )


def _string_decoder(key: str, encoding: str) -> Deserializer:
    try:
        codecs.lookup(encoding)
        "".encode(encoding)  # some codecs are not for text
    except LookupError:
        raise InputError(
            f"{key}.encoding: {quote_shortened(encoding)} is not an encoding of text"
        ) from None

    def read(data: bytes) -> str:
        return str(data, encoding)

    return read


def load_object(key: str, name: str) -> object:
    """What is called ``package.module:name``.

    :raises InputError: there is none, or its module cannot be imported
    """
    point = importlib.metadata.EntryPoint("", name, "")
    try:
        return point.load()
    except Exception as error:
        raise InputError(
            f"{key}: {quote_shortened(name)} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


_BLANKS = " \t\f"

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

_LINE_END = re.compile(r"\r\n|\r|\n")

_PROPERTY_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*")

_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)

_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def parse_properties(text: str, place: str = "the settings") -> dict[str, str]:
    r"""The settings of a file; of a key that comes twice, the last. ``place`` is for errors.

    :raises InputError: a ``\u`` without its four digits; names the line
    """
    found = {}
    for number, line in _logical_lines(text):
        key = _PROPERTY_KEY.match(line)
        assert key is not None, "it matches the empty text"
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None, "it matches the empty text"
        where = f"{place}, line {number}"
        found[_unescape(key[0], where)] = _unescape(line[separator.end() :], where)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Logical lines, with the numbers of the lines they begin in.

    Comments and empty lines are out. A line with an odd number of backslashes at its end goes on in
    the next, whose blanks at the start do not count.
    """
    begun: str | None = None
    first = 0
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = raw.lstrip(_BLANKS)
        if begun is None:
            if not line or line[0] in "#!":
                continue
            begun, first = "", number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = begun + line[:-1] or None  # nothing yet: the next line may be a comment
        else:
            yield first, begun + line
            begun = None
    if begun is not None:
        yield first, begun


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text

    def meant(escape: re.Match[str]) -> str:
        code, char = escape.groups()
        if code is not None:
            return chr(int(code, 16))
        if char == "u":
            raise InputError(f"{where}: \\u without four hexadecimal digits behind it")
        return _ESCAPES.get(char, char or "")

    # Java writes what is beyond 16 bits as two halves.
    return _SURROGATE_PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"),
        _ESCAPE.sub(meant, text),
    )
