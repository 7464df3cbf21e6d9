"""Reads a consumer's configuration under Kafka's names.

``read_settings`` takes a mapping such as ``{"bootstrap.servers": "host:9092"}`` and returns
checked, typed values and the warnings about keys that have no effect. The keys are in
:mod:`rota.client.config_keys`.

The second half reads TLS and SASL. User and password come from a JAAS line, as in Kafka's
``sasl.jaas.config``::

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="...";

No error message shows a value of that line, because it may be the password.
"""

from __future__ import annotations

import functools
import ipaddress
import itertools
import json
import os
import re
import struct
import textwrap
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from rota.client import config_keys
from rota.client.config_keys import CONSUMER_KEYS
from rota.engine.assignors import registry
from rota.engine.assignors.interface import Assignor
from rota.engine.assignors.sticky import DEFAULT_BUDGET_MS, TimeBudget
from rota.engine.model.config import (
    BY_DURATION,
    EARLIEST,
    LATEST,
    NO_RESET,
    TLS_VERSIONS,
    Address,
    ClientConfig,
    FetchConfig,
    KeySupport,
    MemberConfig,
    SaslConfig,
    TlsConfig,
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


_client_numbers = itertools.count(1)  # numbers of clients without an id; per process, as Kafka


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
    tls, login, warnings = read_security(values)
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


#: First bytes of Java's stores; a PKCS12 file starts with a DER sequence.
_STORE_MAGIC = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS", b"\x30": "PKCS12"}
_BOTH_GIVEN = "are both given: leave one of them out"
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


def read_security(values: dict[str, Any]) -> tuple[TlsConfig | None, SaslConfig | None, list[str]]:
    """Reads the TLS and SASL settings of ``security.protocol``; returns both, and warnings."""
    protocol = values.get("security.protocol", "PLAINTEXT")
    has_tls, has_login = protocol.endswith("SSL"), protocol.startswith("SASL")
    warnings = []
    for prefix, is_used in (("ssl.", has_tls), ("sasl.", has_login)):
        unused = [] if is_used else [name for name in values if name.startswith(prefix)]
        if unused:
            names = ", ".join(unused)
            warnings.append(f"{names}: without effect while security.protocol is {protocol}")
        for name in unused:
            del values[name]
    tls = _read_tls(values) if has_tls else None
    if not has_login:
        return tls, None, warnings
    login, more = _read_login(values)
    warnings += more
    if tls is None and login.mechanism == "PLAIN":
        warnings.append(
            "security.protocol: SASL_PLAINTEXT with sasl.mechanism PLAIN sends the password as it "
            "is; SASL_SSL or SCRAM would not"
        )
    return tls, login, warnings


def _read_tls(values: Mapping[str, Any]) -> TlsConfig:
    versions = values.get("ssl.enabled.protocols", TLS_VERSIONS)
    unknown = [name for name in versions if name not in TLS_VERSIONS]
    if unknown or not versions:
        shown = quote_shortened(str(unknown[0])) if unknown else "an empty list"
        problem = f"{shown} is not {' or '.join(TLS_VERSIONS)} (older versions of TLS are not safe)"
        raise InputError(f"ssl.enabled.protocols: {problem}")
    trusted, identity = _store_file("truststore", values), _store_file("keystore", values)
    chain_name, key_name = "ssl.keystore.certificate.chain", "ssl.keystore.key"
    trust_name = "ssl.truststore.certificates"
    chain, key = _pem_text(chain_name, values), _pem_text(key_name, values)
    authorities = _pem_text(trust_name, values)
    if (chain is None) != (key is None):
        given, missing = (chain_name, key_name) if key is None else (key_name, chain_name)
        raise InputError(f"{given}: needs {missing} too")
    if identity and key:
        raise InputError(f"ssl.keystore.location and {key_name} {_BOTH_GIVEN}")
    if trusted and authorities:
        raise InputError(f"ssl.truststore.location and {trust_name} {_BOTH_GIVEN}")
    return TlsConfig(
        truststore_certificates=authorities,
        truststore_location=trusted,
        keystore_certificate_chain=chain,
        keystore_key=key,
        keystore_location=identity,
        key_password=values.get("ssl.key.password"),
        verifies_host_name=values.get("ssl.endpoint.identification.algorithm", "https") != "",
        enabled_protocols=versions,
    )


def _read_login(values: Mapping[str, Any]) -> tuple[SaslConfig, tuple[str, ...]]:
    mechanism = values.get("sasl.mechanism", "GSSAPI")
    if mechanism not in LOGIN_MODULES:
        default = "" if "sasl.mechanism" in values else ", which is Kafka's default,"
        what = {"GSSAPI": " (Kerberos)", "OAUTHBEARER": " (OAuth)"}.get(mechanism, "")
        raise InputError(
            "sasl.mechanism: Rota does not log in by "
            f"{quote_shortened(mechanism)}{what}{default} but by {', '.join(LOGIN_MODULES)}: set "
            "one that the brokers have in sasl.enabled.mechanisms"
        )
    line = values.get(JAAS_CONFIG)
    if not line:
        raise InputError(
            f"{JAAS_CONFIG}: is missing; it has name and password: "
            f'{LOGIN_MODULES[mechanism]} required username="..." password="...";'
        )
    return parse_login(line, mechanism)


def _pem_text(key: str, values: Mapping[str, Any]) -> str | None:
    """Returns PEM in lines, as OpenSSL needs it. Kafka also takes PEM in one line with blanks."""
    if key not in values:
        return None
    blocks = [
        f"-----BEGIN {block[1]}-----\n{_pem_lines(block[2])}\n-----END {block[1]}-----\n"
        for block in _PEM_BLOCK.finditer(values[key])
    ]
    if not blocks:
        raise InputError(f"{key}: is not PEM: it has no -----BEGIN ...----- and -----END ...-----")
    return "".join(blocks)


def _pem_lines(body: str) -> str:
    if ":" in body:  # headers of an encrypted key in the old form, whose lines count
        return body.strip()
    return textwrap.fill("".join(body.split()), 64)


def _store_file(store: str, values: Mapping[str, Any]) -> str | None:
    declared = values.get(f"ssl.{store}.type", "JKS")
    for name in ("certificates", "key", "certificate.chain"):
        text_key = f"ssl.{store}.{name}"
        if text_key in values and declared != "PEM":
            raise InputError(f"{text_key}: is PEM: set ssl.{store}.type=PEM too")
    key = f"ssl.{store}.location"
    location: str | None = values.get(key)
    if location is None:
        return None
    shown = quote_shortened(location)
    actual = _store_type(key, location)
    if actual == declared == "PEM":
        return location
    if actual == "PEM":
        raise InputError(f"{key}: {shown} is in PEM: set ssl.{store}.type=PEM too")
    if actual is None and declared == "PEM":
        raise InputError(f"{key}: {shown} is not in PEM: it has no -----BEGIN ...-----")
    actual = actual or declared
    spare = f", and leave out ssl.{store}.password" if f"ssl.{store}.password" in values else ""
    raise InputError(
        f"{key}: {shown} is a store of the type {actual}, which Rota cannot read. Convert it to "
        f"PEM: {_conversion_commands(store, location, actual)}; name the new file, with "
        f"ssl.{store}.type=PEM{spare}"
    )


def _store_type(key: str, location: str) -> str | None:
    """Returns the type of a store by its first bytes, or None if it is unknown."""
    try:
        with Path(location).open("rb") as file:
            start = file.read(1 << 20)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreachable(f"{key}: {quote_shortened(location)} cannot be read: {reason}") from error
    if b"-----BEGIN " in start:
        return "PEM"
    return next((name for magic, name in _STORE_MAGIC.items() if start.startswith(magic)), None)


def _conversion_commands(store: str, location: str, store_type: str) -> str:
    name = os.fspath(Path(location).with_suffix(""))
    no_keys = "-nokeys " if store == "truststore" else ""
    if store_type == "PKCS12":
        return f"openssl pkcs12 -in {location} {no_keys}-out {name}.pem"
    return (
        f"keytool -importkeystore -srckeystore {location} -destkeystore {name}.p12 "
        f"-deststoretype PKCS12 && openssl pkcs12 -in {name}.p12 {no_keys}-out {name}.pem"
    )


JAAS_CONFIG = "sasl.jaas.config"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

LOGIN_MODULES = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
}

_CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")
_USED_OPTIONS = ("username", "password")
_TEXT_TOKENS = ("word", "quoted")

_TOKEN = re.compile(
    r"""
    (?P<blank>   [\x00-\x20]+ | //[^\r\n]* | /\*.*?\*/ )
  | (?P<quoted>  "(?:\\[^\r\n]|[^"\\\r\n])*" | '(?:\\[^\r\n]|[^'\\\r\n])*' )
  | (?P<open>    ["'] )
  | (?P<word>    [A-Za-z_$\u00a0-\U0010ffff][\w$.\-\u00a0-\U0010ffff]* )
  | (?P<sign>    [=;] )
  | (?P<other>   [^\x00-\x20"'=;]+ )
    """,
    re.VERBOSE | re.DOTALL,
)

_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROL_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse_login(text: str, mechanism: str) -> tuple[SaslConfig, tuple[str, ...]]:
    """Parses a JAAS line for a mechanism of :data:`LOGIN_MODULES`; returns it and warnings."""
    entries = parse_jaas(text)
    if len(entries) != 1:
        raise InputError(f"{JAAS_CONFIG}: has {len(entries)} login modules, one is needed")
    module, options = entries[0]
    wanted = LOGIN_MODULES[mechanism]
    # Some platforms ship Kafka's classes under a prefix of their own.
    if module != wanted and not module.endswith(f".{wanted}"):
        fitting = [name for name, known in LOGIN_MODULES.items() if module.endswith(known)]
        use = f"is for sasl.mechanism {' or '.join(fitting)}" if fitting else "Rota does not have"
        text = f"{JAAS_CONFIG}: the login module is {module}, which {use}"
        raise InputError(f"{text}; sasl.mechanism {mechanism} needs {wanted}")
    for name in _USED_OPTIONS:
        if name not in options:
            raise InputError(f"{JAAS_CONFIG}: the option {name} is missing")
    if options.get("tokenauth", "").lower() == "true":
        raise InputError(
            f"{JAAS_CONFIG}: tokenauth: Rota does not log in by delegation tokens; "
            "give the name and the password of a user"
        )
    warnings = tuple(
        f"{JAAS_CONFIG}: the option {name} is without effect"
        for name in options
        if name not in (*_USED_OPTIONS, "tokenauth")
    )
    username, password = options["username"], options["password"]
    return SaslConfig(mechanism=mechanism, username=username, password=password), warnings


def parse_jaas(text: str) -> list[tuple[str, dict[str, str]]]:
    """Returns the login modules of a line with their options; errors do not show values."""
    tokens = _tokenize(text)
    entries = []
    for group, module in tokens:
        if group not in _TEXT_TOKENS:
            raise InputError(f"{JAAS_CONFIG}: must start with the class name of a login module")
        _, flag = next(tokens, ("", ""))
        if flag.lower() not in _CONTROL_FLAGS:
            flags = f"{', '.join(_CONTROL_FLAGS[:-1])} or {_CONTROL_FLAGS[-1]}"
            raise InputError(f"{JAAS_CONFIG}: after the login module comes {flags}")
        entries.append((module, _parse_options(tokens)))
    if not entries:
        raise InputError(f"{JAAS_CONFIG}: is empty")
    return entries


def _parse_options(tokens: Iterator[tuple[str, str]]) -> dict[str, str]:
    """Parses ``name=value`` pairs up to the ``;``."""
    options: dict[str, str] = {}
    for group, name in tokens:
        if (group, name) == ("sign", ";"):
            return options
        place = f"the option {list(options)[-1]}" if options else "the flag"
        if group not in _TEXT_TOKENS:
            raise InputError(
                f"{JAAS_CONFIG}: {place} is followed by characters that need quotes: a value "
                "without quotes has only letters, digits and _$.-"
            )
        if next(tokens, None) != ("sign", "="):
            raise InputError(
                f"{JAAS_CONFIG}: {place} is followed by something that is neither an option with = "
                "and a value nor the ';' that ends the entry"
            )
        value_type, value = next(tokens, ("", ""))
        if value_type not in _TEXT_TOKENS:
            raise InputError(
                f"{JAAS_CONFIG}: the value of the option {name} is missing, or needs quotes: "
                "without them it has only letters, digits and _$.-, and starts with a letter"
            )
        options[name] = value
    raise InputError(f"{JAAS_CONFIG}: the ';' at the end is missing")


def _tokenize(text: str) -> Iterator[tuple[str, str]]:
    """Yields tokens as Java's StreamTokenizer does."""
    for token in _TOKEN.finditer(text):
        group = token.lastgroup or ""
        if group == "open":
            raise InputError(f"{JAAS_CONFIG}: a quote is not closed on its line")
        if group == "quoted":
            yield group, _JAAS_ESCAPE.sub(_unescape_jaas, token[0][1:-1])
        elif group != "blank":
            yield group, token[0]


def _unescape_jaas(escape: re.Match[str]) -> str:
    code = escape[1]
    if code.isdecimal() and code[0] < "8":
        return chr(int(code, 8))
    return _CONTROL_CHARACTERS.get(code, code)
