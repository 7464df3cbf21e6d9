"""A producer's settings: Kafka's names, and what they are in librdkafka."""

from __future__ import annotations

from collections.abc import Mapping

from rota.client import address, security
from rota.client.key import Fate, Key, Kind
from rota.client.setting import judged
from rota.client.table import KEYS
from rota.errors import InputError
from rota.model.client import TLS_VERSIONS, Login, Tls
from rota.model.config import INT
from rota.model.text import nearest, shortened

JAVA_PACKAGE = "org.apache.kafka.common.serialization."
PLAIN_SERIALIZERS = frozenset({"StringSerializer", "ByteArraySerializer", "BytesSerializer"})
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

DEFAULTS: Mapping[str, object] = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # as Java's; librdkafka's own sends keys elsewhere
    "linger.ms": 5,
    "delivery.timeout.ms": 120_000,
    "message.max.bytes": 1 << 20,
}
"""Kafka's, in librdkafka's names."""


def _number(name: str, *, least: int = 0, most: int = INT) -> Key:
    return Key(name=name, kind=Kind.INT, least=least, most=most, about="")


def _text(name: str, *choices: str) -> Key:
    return Key(name=name, kind=Kind.STRING, choices=choices, about="")


PRODUCER: Mapping[str, tuple[Key, str]] = {
    key.name: (key, name or key.name)
    for key, name in (
        (_text("acks", "all", "-1", "0", "1"), ""),
        (_number("batch.size", least=1), ""),
        (_text("compression.type", *CODECS), ""),
        (_number("delivery.timeout.ms"), ""),
        (Key(name="enable.idempotence", kind=Kind.BOOLEAN, about=""), ""),
        (_number("linger.ms"), ""),
        (_number("max.in.flight.requests.per.connection", least=1), ""),
        (_number("max.request.size"), "message.max.bytes"),
        (_number("retries"), ""),
    )
}
"""Of producers alone: with their names in librdkafka."""

SHARED: Mapping[str, str] = {
    "client.dns.lookup": "client.dns.lookup",
    "client.id": "client.id",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
}
"""Of consumers and producers: with their names in librdkafka."""

MOST_IN_FLIGHT = 5
"""A broker remembers so many batches of an idempotent producer."""
IDLE = frozenset({"buffer.memory", "max.block.ms", "partitioner.adaptive.partitioning.enable"})
REFUSED: Mapping[str, str] = {
    "interceptor.classes": "rota produce has no interceptors",
    "transactional.id": "rota produce writes without transactions",
    "transaction.timeout.ms": "rota produce writes without transactions",
    "partitioner.class": "a class of Java's cannot be run: records go by their keys, as in Java, "
    "or to --partition",
    "partitioner.ignore.keys": "records go by their keys, as in Java, or to --partition",
}


def configuration(given: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """What librdkafka is to be given, and warnings.

    :raises InputError: a setting is unknown, malformed or refused
    :raises Unreachable: a file that one of them names cannot be read
    """
    values: dict[str, object] = {}
    found: dict[str, object] = dict(DEFAULTS)
    warnings = []
    for name, value in given.items():
        if name in REFUSED:
            raise InputError(f"{name}: {REFUSED[name]}")
        if name in KEYS:
            values[name] = KEYS[name].parse(value)
        elif name in PRODUCER:
            key, theirs = PRODUCER[name]
            found[theirs] = key.parse(value)
        elif name in {"key.serializer", "value.serializer"}:
            _check_serializer(name, value)
        elif name in IDLE:
            warnings.append(f"{name}: without effect in rota produce")
        else:
            raise InputError(_unknown(name))
    found["enable.idempotence"] = _is_idempotent(found, asked="enable.idempotence" in given)
    bootstrap = values.pop("bootstrap.servers", ())
    assert isinstance(bootstrap, tuple), "it is parsed"
    found["bootstrap.servers"] = ",".join(map(str, address.addresses(bootstrap)))
    tls, login, more = security.access(values)
    found.update(_secured(tls, login, more))
    foreign = [name for name in values if not _is_common(name)]
    warnings += more + judged({k: v for k, v in values.items() if k not in foreign})
    found |= {SHARED[name]: value for name, value in values.items() if name in SHARED}
    warnings += [f"{name}: without effect: it is for consumers" for name in foreign]
    return found, warnings


def _is_idempotent(found: Mapping[str, object], *, asked: bool) -> bool:
    """Kafka's default gives way to settings that rule it out; who asked for it is told."""
    if not found["enable.idempotence"]:
        return False
    in_flight = found.get("max.in.flight.requests.per.connection", 1)
    assert isinstance(in_flight, int), "it is parsed"
    if in_flight > MOST_IN_FLIGHT:
        raise InputError(
            f"max.in.flight.requests.per.connection: {in_flight} is more than {MOST_IN_FLIGHT}, "
            "the most with enable.idempotence, which is Kafka's default: set it to false"
        )
    for name, rules_out in (
        ("acks", found["acks"] not in {"all", "-1"}),
        ("retries", found.get("retries") == 0),
    ):
        if rules_out and asked:
            raise InputError(f"{name}: {found[name]} does not go with enable.idempotence=true")
        if rules_out:
            return False
    return True


def _is_common(name: str) -> bool:
    """Not a setting of consumers alone."""
    if name in SHARED or KEYS[name].fate is Fate.IDLE:
        return True
    return name.startswith(("ssl.", "sasl.", "security.", "config."))


def _secured(tls: Tls | None, login: Login | None, warnings: list[str]) -> dict[str, object]:
    """TLS and log-in in librdkafka's names."""
    found: dict[str, object] = {
        "security.protocol": ("SASL_" if login else "") + ("SSL" if tls else "PLAINTEXT")
    }
    if login is not None:
        found["sasl.mechanism"] = login.mechanism
        found["sasl.username"] = login.username
        found["sasl.password"] = login.password
    if tls is not None:
        given = {
            "ssl.ca.location": tls.authorities_file,
            "ssl.ca.pem": tls.authorities,
            "ssl.certificate.location": tls.identity_file,
            "ssl.key.location": tls.identity_file,
            "ssl.certificate.pem": tls.chain,
            "ssl.key.pem": tls.key,
            "ssl.key.password": tls.password,
        }
        found |= {name: value for name, value in given.items() if value is not None}
        found["ssl.endpoint.identification.algorithm"] = "https" if tls.checks_name else "none"
        if tls.versions != TLS_VERSIONS:
            warnings.append("ssl.enabled.protocols: without effect in rota produce")
    return found


def _check_serializer(name: str, value: object) -> None:
    if str(value).strip().removeprefix(JAVA_PACKAGE) not in PLAIN_SERIALIZERS:
        raise InputError(
            f"{name}: {shortened(str(value))}: rota produce writes lines as the bytes they are"
        )


def _unknown(name: str) -> str:
    names = {*PRODUCER, *SHARED, *KEYS}
    by_theirs = {theirs: key.name for key, theirs in PRODUCER.values()} | {
        theirs: ours for ours, theirs in SHARED.items()
    }
    if name in by_theirs:
        return f"{name}: is librdkafka's name; Kafka's is {by_theirs[name]}"
    return f"{shortened(name)} is not a setting of Kafka's producers{nearest(name, names)}"
