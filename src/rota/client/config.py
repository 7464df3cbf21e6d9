"""Reads a consumer's configuration under Kafka's names.

``read_settings`` takes a mapping such as ``{"bootstrap.servers": "host:9092"}`` and returns
checked, typed values and the warnings about keys that have no effect. The keys are in
:mod:`rota.client.config_keys`, TLS and SASL in :mod:`rota.client.security_config`.
"""

from __future__ import annotations

import functools
import ipaddress
import itertools
import json
import os
import re
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from rota.client import config_keys, security_config
from rota.client.config_keys import CONSUMER_KEYS
from rota.engine.assignors import registry
from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS, TimeBudget
from rota.engine.model.config import (
    BY_DURATION,
    EARLIEST,
    LATEST,
    NO_RESET,
    Address,
    ClientConfig,
    FetchConfig,
    KeySupport,
    MemberConfig,
    show_value,
)
from rota.engine.model.duration import parse_iso_duration
from rota.engine.model.text import (
    find_string_problem,
    find_topic_name_problem,
    quote_shortened,
    suggest_names,
)
from rota.errors import InputError, Unreachable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Config = TypeVar("Config", bound=DataclassInstance)
    P = ParamSpec("P")

#: Numbers for clients without an id; Kafka counts in each process, too.
_client_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    client: ClientConfig
    fetch: FetchConfig
    member: MemberConfig | None  # None: without a group (``group.id``)
    strategies: tuple[Assignor, ...]
    interceptors: tuple[Any, ...]
    key_deserializer: Deserializer | None  # None: the bytes unchanged
    value_deserializer: Deserializer | None
    warnings: tuple[str, ...]  # about settings that have no effect or are unwise


def load_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the settings of a ``client.properties`` file, as Kafka's own tools read it.

    ::

        settings = rota.load_properties("client.properties") | {"group.id": "billing"}
        with rota.Consumer(settings) as consumer:
            ...

    :raises Unreachable: the file cannot be read
    :raises InputError: the file is malformed
    """
    try:
        text = Path(path).read_text("latin-1")  # as Java's Properties are by definition
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreachable(f"{os.fspath(path)} cannot be read: {reason}") from error
    return parse_properties(text, os.fspath(path))


def require_one_mapping(create: Callable[P, None]) -> Callable[P, None]:
    """Decorates the constructor of a consumer: raises InputError unless it gets one mapping."""

    @functools.wraps(create)
    def check_and_create(*args: P.args, **keywords: P.kwargs) -> None:
        if (len(args), *keywords) not in {(2,), (1, "config")}:
            example = f'rota.{type(args[0]).__name__}({{"bootstrap.servers": ...}})'
            raise InputError(f"pass one mapping of settings with Kafka's names: {example}")
        create(*args, **keywords)

    return check_and_create


def require_mapping(given: object) -> Mapping[str, object]:
    """Returns the settings if they are a mapping; the InputError shows how to pass them."""
    if not isinstance(given, Mapping):
        raise InputError(
            'settings are a mapping with Kafka\'s names, like {"bootstrap.servers": "host:9092"}, '
            f"not {quote_shortened(repr(given))[1:-1]}; rota.load_properties(path) reads a file"
        )
    return given


def read_settings(given: Mapping[str, object]) -> Settings:
    """Parses and checks settings; a value of None counts as not given."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise InputError(f"{show_value(name)}: the name of a setting must be text")
        if name not in CONSUMER_KEYS:
            raise InputError(config_keys.explain_unknown_key(name))
        if value is not None:
            plain = os.fspath(value) if isinstance(value, os.PathLike) else value
            values[name] = CONSUMER_KEYS[name].parse(plain)
    tls, login, warnings = security_config.read_security(values)
    warnings += check_supported(values)
    _fill_defaults(values)
    servers = parse_addresses(values.get("bootstrap.servers", ()))
    client = _build_config(ClientConfig, values, bootstrap_servers=servers, tls=tls, sasl=login)
    reading = _build_config(FetchConfig, values, **_reset_policy(values))
    member = _build_config(MemberConfig, values) if "group.id" in values else None
    return Settings(
        client=client,
        fetch=reading,
        member=member,
        strategies=_resolve_strategies(values),
        interceptors=tuple(map(_make_interceptor, values.get("interceptor.classes", ()))),
        key_deserializer=_read_deserializer("key.deserializer", values),
        value_deserializer=_read_deserializer("value.deserializer", values),
        warnings=(*warnings, *_unwise_warnings(values, client, reading, member)),
    )


def check_supported(values: Mapping[str, object]) -> list[str]:
    """Returns warnings about settings without effect; raises InputError for unsupported ones."""
    warnings = []
    for name, value in values.items():
        key = CONSUMER_KEYS[name]
        if key.support is KeySupport.REFUSED and value not in (key.default, "", ()):
            raise InputError(f"{name}: {key.description}")
        if key.support is KeySupport.NO_EFFECT and value not in key.no_op_values:
            warnings.append(f"{name}: without effect: {key.description}")
    return warnings


def _fill_defaults(values: dict[str, Any]) -> None:
    """Adds the values that Kafka derives from other settings."""
    group = values.get("group.id")
    if group == "":
        raise InputError("group.id: may be absent, but not empty")
    if group is None and values.setdefault("enable.auto.commit", False):
        raise InputError("enable.auto.commit: needs group.id: without a group nothing is committed")
    static = values.get("group.instance.id")
    if group and static is not None and (problem := find_topic_name_problem(static)):
        raise InputError(f"group.instance.id: follows the rules of topic names: {problem}")
    if not values.get("client.id"):
        name = "null" if group is None else group  # as Kafka writes it
        number = next(_client_numbers) if static is None else static
        values["client.id"] = f"consumer-{name}-{number}"
    if values.get("client.rack") == "":
        del values["client.rack"]
    if "reconnect.backoff.ms" in values:
        values.setdefault("reconnect.backoff.max.ms", values["reconnect.backoff.ms"])


def _build_config(config: type[Config], values: Mapping[str, object], **more: object) -> Config:
    keys = {each.name: each.metadata["key"].name for each in fields(config) if each.metadata}
    found = {name: values[key] for name, key in keys.items() if key in values}
    return config(**(found | more))


_RESET_ALIASES: Mapping[str, str] = {
    "smallest": EARLIEST,
    "beginning": EARLIEST,
    "largest": LATEST,
    "end": LATEST,
    "error": NO_RESET,
}


def _reset_policy(values: Mapping[str, object]) -> dict[str, object]:
    """Parses ``auto.offset.reset``, which may have a duration (KIP-1106)."""
    text = str(values.get("auto.offset.reset", LATEST))
    if text in {EARLIEST, LATEST, NO_RESET}:
        return {"auto_offset_reset": text}
    name, colon, length = text.partition(":")
    if name == BY_DURATION and colon:
        duration = parse_iso_duration(length, "auto.offset.reset")
        return {"auto_offset_reset": name, "reset_duration": duration}
    meant = _RESET_ALIASES.get(text, text)
    raise InputError(
        f"auto.offset.reset: {quote_shortened(text)} must be earliest, latest, none or "
        "by_duration:PnDTnHnMn.nS (by_duration:PT1H is an hour ago)"
        f"{suggest_names(meant, (EARLIEST, LATEST, NO_RESET, BY_DURATION))}"
    )


def _resolve_strategies(values: Mapping[str, Any]) -> tuple[Assignor, ...]:
    name = "partition.assignment.strategy"
    given = list(values[name]) if name in values else registry.DEFAULT_STRATEGIES
    try:
        budget_ms = values.get("assign.budget.ms", DEFAULT_BUDGET_MS)
        budget = TimeBudget(budget_ms, time.monotonic)
        return registry.resolve_strategies(given, budget=budget)
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error


def _make_interceptor(given: object) -> object:
    key = "interceptor.classes"
    if isinstance(given, str):
        if ":" not in given:
            raise InputError(
                f"{key}: {quote_shortened(given)}: name your own class as package.module:Class; "
                "Rota cannot run a Java class"
            )
        given = registry.import_object(given, f"{key}: ")
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


def _unwise_warnings(
    given: Mapping[str, object],
    client: ClientConfig,
    reading: FetchConfig,
    member: MemberConfig | None,
) -> Iterator[str]:
    """Yields warnings about values that are allowed, but have a surprising effect."""
    if member is not None:
        yield from member.warnings
    elif "group.instance.id" in given:
        yield "group.instance.id: without effect without group.id"
    first, longest = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
    if given.get(first, 0) == given.get(longest):
        yield f"{first}: the pause does not grow, as {longest} is not greater"
    connect = "socket.connection.setup.timeout"
    for name, least, most in (
        ("retry.backoff", client.retry_backoff, client.retry_backoff_max),
        (connect, client.connect_timeout, client.connect_timeout_max),
    ):
        if least > most:
            text = f"{name}.ms {least} is more than {name}.max.ms {most}"
            yield f"{text}: the backoff stays at {most} ms"
    timeout, wait = f"request.timeout.ms {client.request_timeout}", reading.fetch_max_wait
    if wait >= client.request_timeout:
        text = f"fetch.max.wait.ms {wait} is not less than {timeout}"
        yield f"{text}: fetches without new records will time out"
    # fetch.max.bytes may be less: a broker does not wait for more bytes than it may send
    least, most = reading.fetch_min_bytes, reading.max_partition_bytes
    if least > most:
        text = f"fetch.min.bytes {least} is more than max.partition.fetch.bytes {most}"
        yield f"{text}: a fetch of one partition waits for fetch.max.wait.ms"
    if client.api_timeout < client.request_timeout:
        text = f"default.api.timeout.ms {client.api_timeout} is less than {timeout}"
        yield f"{text}: a call can time out before its first request"


_ADDRESS = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9_+.-]*)://)?"
    r"(?:\[(?P<ipv6>[^\]]*)\]|(?P<host>[^:]*))(?P<port>.*)",
    re.DOTALL,
)

_HOST = re.compile(r"[^\s/\\@?#\[\]:,]+")


def parse_addresses(items: Iterable[object]) -> tuple[Address, ...]:
    """Parses ``host:port`` items; IPv6 addresses are in brackets. InputError names a wrong one."""
    found = []
    for item in items:
        try:
            found.append(_parse_address(item))
        except ValueError as error:
            raise InputError(f"bootstrap.servers: {show_value(item)}: {error}") from None
    if not found:
        raise InputError("bootstrap.servers: at least one host:port is needed")
    return tuple(found)


def _parse_address(item: object) -> Address:
    if not isinstance(item, str):
        raise ValueError("must be text of the form host:port")  # noqa: TRY004 (one error)
    found = _ADDRESS.fullmatch(item)
    assert found is not None, "the pattern matches every text"
    if (found["scheme"] or "").lower() in {"http", "https"}:
        raise ValueError("is the address of a web server, not host:port")
    # Kafka, too, takes PLAINTEXT://host:port, as listeners are written
    host, port = found["host"], found["port"]
    if host is None:
        host = found["ipv6"]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f"{quote_shortened(host)} is not an IPv6 address") from None
    elif host.startswith("["):
        raise ValueError("has a '[' without its ']'")
    elif port.count(":") > 1 and re.fullmatch("[0-9A-Fa-f:.]+", host + port):
        raise ValueError("write an IPv6 address as [address]:port")
    elif not host:
        raise ValueError("the host is missing")
    elif _HOST.fullmatch(host) is None or find_string_problem(host):
        raise ValueError(f"{quote_shortened(host)} is not a host name")
    return Address(host, _parse_port(port))


def _parse_port(text: str) -> int:
    digits = text[1:]
    if not digits:
        raise ValueError("the port is missing (Kafka's is usually 9092)")
    if not text.startswith(":") or not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"{quote_shortened(digits)} is not a port")
    if len(digits) > 5 or not 1 <= int(digits) <= 65_535:
        raise ValueError("a port is a number from 1 to 65535")
    return int(digits)


# A deserializer gets bytes, never None. Its error makes the record undecodable, also text that
# ``StringDeserializer`` cannot decode (Java replaces it with U+FFFD).

Deserializer: TypeAlias = Callable[[bytes], Any]
JAVA_PACKAGE = "org.apache.kafka.common.serialization."


def _number_deserializer(form: str, name: str) -> Deserializer:
    packed = struct.Struct(form)

    def read(data: bytes) -> object:
        if len(data) != packed.size:
            raise ValueError(f"{name} has {packed.size} bytes, not {len(data)}")
        value: object = packed.unpack(data)[0]
        return value

    return read


def _deserialize_boolean(data: bytes) -> bool:
    if data not in {b"\x00", b"\x01"}:
        raise ValueError("a boolean is one byte, 0 or 1")
    return data == b"\x01"


def _deserialize_void(data: bytes) -> None:
    raise ValueError(f"VoidDeserializer expects null, not {len(data)} bytes")


#: None: the bytes unchanged.
DESERIALIZERS: Mapping[str, Deserializer | None] = {
    "bytes": None,
    "string": bytes.decode,
    "json": json.loads,
    "short": _number_deserializer(">h", "a short"),
    "integer": _number_deserializer(">i", "an integer"),
    "long": _number_deserializer(">q", "a long"),
    "float": _number_deserializer(">f", "a float"),
    "double": _number_deserializer(">d", "a double"),
    "boolean": _deserialize_boolean,
    "uuid": lambda data: uuid.UUID(data.decode()),
    "void": _deserialize_void,
}

_JAVA_TYPES = ("String", "Short", "Integer", "Long", "Float", "Double", "Boolean", "UUID", "Void")
JAVA_DESERIALIZERS: Mapping[str, str] = {
    **{f"{kind}Deserializer": "bytes" for kind in ("ByteArray", "ByteBuffer", "Bytes")},
    **{f"{kind}Deserializer": kind.lower() for kind in _JAVA_TYPES},
}


def _read_deserializer(key: str, values: Mapping[str, Any]) -> Deserializer | None:
    """Returns the deserializer that a key names, if it is callable; None: the bytes unchanged."""
    given = values.get(key, "bytes")
    if isinstance(given, str) and ":" in given:
        given = registry.import_object(given, f"{key}: ")
    if given is bytes or given is str:
        given = "bytes" if given is bytes else "string"
    if isinstance(given, str):
        short = given.removeprefix(JAVA_PACKAGE)
        known = JAVA_DESERIALIZERS.get(short, short)
        encoding = values.get(f"{key}.encoding") or values.get("deserializer.encoding")
        if known == "string" and encoding is not None:
            return _string_decoder(key, encoding)
        if known in DESERIALIZERS:
            return DESERIALIZERS[known]
        raise InputError(
            f"{key}: {quote_shortened(given)} is none of {', '.join(DESERIALIZERS)}, the Java "
            "classes for these, or your own as package.module:name"
            f"{suggest_names(short, (*DESERIALIZERS, *JAVA_DESERIALIZERS))}"
        )
    if not callable(given):
        raise InputError(f"{key}: {show_value(given)} cannot be called with bytes")
    found: Deserializer = given
    return found


def _string_decoder(key: str, encoding: str) -> Deserializer:
    try:
        "".encode(encoding)  # some codecs are not for text
    except LookupError:
        text = f"{key}.encoding: {quote_shortened(encoding)} is not an encoding of text"
        raise InputError(text) from None
    return lambda data: str(data, encoding)


_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_PROPERTY = re.compile(
    r"(?P<key>(?:\\.|[^\\=: \t\f])*+)[ \t\f]*+[=:]?+[ \t\f]*+(?P<value>.*)", re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def parse_properties(text: str, place: str = "the settings") -> dict[str, str]:
    r"""Parses the ``.properties`` file ``place`` as Java does; the last line of a key wins."""
    properties = {}
    for number, line in _logical_lines(text):
        parts = _PROPERTY.fullmatch(line)
        assert parts is not None, "the pattern matches every line"
        where = f"{place}, line {number}"
        properties[_unescape(parts["key"], where)] = _unescape(parts["value"], where)
    return properties


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields logical lines (no comments, continuations joined) with their first line numbers."""
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

    def unescape_match(escape: re.Match[str]) -> str:
        code, char = escape.groups()
        if code is not None:
            return chr(int(code, 16))
        if char == "u":
            raise InputError(f"{where}: \\u without four hexadecimal digits after it")
        return _ESCAPES.get(char, char or "")

    # Java writes a character beyond 16 bits as a surrogate pair.
    return _SURROGATE_PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"),
        _ESCAPE.sub(unescape_match, text),
    )
