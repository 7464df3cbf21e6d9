"""Writes the records of ``rota produce`` with confluent-kafka, and waits until the cluster has
stored them.

:func:`librdkafka_settings` translates Kafka's names of producer settings into librdkafka's.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from rota.cli.consume import ProducerRecord, parse_json_line
from rota.cli.flags import CONNECT_TIMEOUT, notice_when_slow
from rota.cli.render import count_noun, print_notice
from rota.client import config, security_config
from rota.client.config import check_supported
from rota.client.config_keys import KEYS, ConfigKey, KeySupport, KeyType
from rota.engine.model.config import MAX_INT, TLS_VERSIONS, SaslConfig, TlsConfig
from rota.engine.model.text import find_topic_name_problem, quote_shortened, suggest_names
from rota.errors import AuthenticationFailed, Code, InputError, Unreachable

ESCAPES = {"\\t": "\t"}

STATE_SUFFIX = re.compile(r" \(after \d+ms in state [A-Z_0-9]+.*\)$")

CONNECTION_PREFIX = re.compile(r"^\S+/(bootstrap|\d+): ")

#: How many failures are named.
SHOWN_FAILURES = 3


def write_records(args: argparse.Namespace, given: dict[str, object]) -> bool:
    """Writes a record for every line, then waits until all are stored.

    :raises Unreachable: some records could not be written; names the first of them
    :raises InputError: a line is malformed; the lines before it are written
    """
    if args.topic is not None and (problem := find_topic_name_problem(args.topic)):
        raise InputError(f"--topic: {problem}")
    config, warnings = librdkafka_settings(given)
    for warning in warnings:
        print_notice(warning)
    writer = RecordWriter(config)
    writer.connect()
    try:
        for place, line in _read_lines(args.files):
            writer.produce(place, _parse_line(args, place, line))
    except BaseException:
        # what was accepted is written out, whatever stopped the reading
        writer.flush()
        if not args.quiet:
            writer.print_totals()
        raise
    writer.flush()
    if not args.quiet:
        writer.print_totals()
    writer.raise_failures()
    return False


def _read_lines(files: list[str]) -> Iterator[tuple[LineLocation, bytes]]:
    """Every line with where it is, without its end."""
    for name in files or ["stdin"]:
        with Path(name).open("rb") if files else nullcontext(sys.stdin.buffer) as lines:
            for number, line in enumerate(lines, 1):
                yield LineLocation(name, number), line.removesuffix(b"\n").removesuffix(b"\r")


class LineLocation(NamedTuple):
    """Where a line is."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def _parse_line(args: argparse.Namespace, place: LineLocation, line: bytes) -> ProducerRecord:
    """The record that a line stands for."""
    if args.json:
        try:
            found = parse_json_line(line)
        except InputError as error:
            raise InputError(f"{place}: {error}") from error
    elif args.key_separator is None:
        found = ProducerRecord(topic=None, value=line)
    else:
        separator = ESCAPES.get(args.key_separator, args.key_separator)
        key, sign, value = line.partition(separator.encode())
        if not sign:
            raise InputError(f"{place}: has no {separator!r} between key and value")
        found = ProducerRecord(topic=None, key=key, value=value)
    topic = args.topic or found.topic
    if not topic:
        raise InputError(f"{place}: says no topic: give --topic")
    headers = tuple((name, value.encode()) for name, _, value in _split_headers(args.header))
    partition = found.partition if args.keep_partitions else args.partition
    return replace(found, topic=topic, partition=partition, headers=found.headers + headers)


def _split_headers(texts: list[str]) -> Iterator[tuple[str, str, str]]:
    return (text.partition("=") for text in texts)


class RecordWriter:
    """Wraps librdkafka's producer, and counts written and failed records."""

    def __init__(self, config: dict[str, object]) -> None:
        self.servers = config["bootstrap.servers"]
        self.written = 0
        self.topics: set[str] = set()
        self.failures: list[str] = []
        self._connection_error: KafkaError | None = None
        logger = logging.getLogger("rota.produce")  # librdkafka's own lines would go to stderr
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        try:
            self._producer = Producer({**config, "error_cb": self._on_error}, logger=logger)
        except (KafkaException, ValueError) as error:
            raise InputError(
                f"librdkafka does not take these settings: {_error_text(error)}"
            ) from error

    def connect(self) -> None:
        """Asks once for metadata, so that a connection problem is reported soon.

        :raises Unreachable: no broker answers
        :raises AuthenticationFailed: the credentials are rejected
        """
        try:
            with notice_when_slow(CONNECT_TIMEOUT):
                self._producer.list_topics(timeout=CONNECT_TIMEOUT)
        except KafkaException as error:
            self._producer.poll(0)  # brings what the connections complain of
            reason = (
                _error_text(error)
                if self._connection_error is None
                else _strip_librdkafka_details(self._connection_error)
            )
            code = None if self._connection_error is None else self._connection_error.code()
            message = f"{self.servers}: {reason}"
            if code == KafkaError._AUTHENTICATION:
                raise AuthenticationFailed(Code.SASL_AUTHENTICATION_FAILED, message) from error
            raise Unreachable(message) from error

    def produce(self, place: LineLocation, message: ProducerRecord) -> None:
        """Gives a record to librdkafka; waits while its queue is full.

        :raises InputError: the record is not valid for that topic
        """
        assert message.topic is not None
        if message.topic not in self.topics and (problem := find_topic_name_problem(message.topic)):
            raise InputError(f"{place}: {problem}")
        if message.timestamp == 0:
            raise InputError(f"{place}: timestamp: librdkafka takes 0 for now")
        while True:
            try:
                self._producer.produce(
                    message.topic,
                    value=message.value,
                    key=message.key,
                    partition=-1 if message.partition is None else message.partition,
                    timestamp=message.timestamp or 0,
                    headers=list(message.headers),
                    on_delivery=partial(self._on_delivery, place),
                )
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise InputError(f"{place}: {_produce_error_text(error, message)}") from error
            else:
                self.topics.add(message.topic)
                self._producer.poll(0)
                return

    def flush(self) -> None:
        """Waits until the cluster has all, or ``delivery.timeout.ms`` is over."""
        while self._producer.flush(1.0):
            pass

    def raise_failures(self) -> None:
        """Raises Unreachable if records could not be written."""
        if self.failures:
            named = "; ".join(self.failures[:SHOWN_FAILURES])
            more = (
                f"; and {len(self.failures) - SHOWN_FAILURES} more"
                if self.failures[SHOWN_FAILURES:]
                else ""
            )
            total = self.written + len(self.failures)
            raise Unreachable(
                f"{len(self.failures)} of {count_noun(total, 'record')} could not be written: "
                f"{named}{more}"
            )

    def print_totals(self) -> None:
        """How much it was."""
        where = f" to {', '.join(sorted(self.topics))}" if self.topics else ""
        print_notice(f"{count_noun(self.written, 'record')} written{where}")

    def _on_delivery(
        self, place: LineLocation, error: KafkaError | None, _message: Delivered
    ) -> None:
        if error is None:
            self.written += 1
        else:
            self.failures.append(f"{place}: {_strip_librdkafka_details(error)}")

    def _on_error(self, error: KafkaError) -> None:
        # what all brokers together complain of says less than what one of them does
        if (
            self._connection_error is None
            or self._connection_error.code() == KafkaError._ALL_BROKERS_DOWN
        ):
            self._connection_error = error


def _error_text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return _strip_librdkafka_details(first) if isinstance(first, KafkaError) else str(error)


def _produce_error_text(error: KafkaException, message: ProducerRecord) -> str:
    if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
        return f"topic {message.topic!r} has no partition {message.partition}"
    return _error_text(error)


def _strip_librdkafka_details(error: KafkaError) -> str:
    """Removes librdkafka's connection name and connection state from an error text."""
    return STATE_SUFFIX.sub("", CONNECTION_PREFIX.sub("", error.str()))


JAVA_PACKAGE = "org.apache.kafka.common.serialization."

PLAIN_SERIALIZERS = frozenset({"StringSerializer", "ByteArraySerializer", "BytesSerializer"})

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

#: Kafka's, in librdkafka's names.
DEFAULT_PRODUCER_SETTINGS: Mapping[str, object] = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # as Java's; librdkafka's own sends keys elsewhere
    "linger.ms": 5,
    "delivery.timeout.ms": 120_000,
    "message.max.bytes": 1 << 20,
}


def _integer_key(name: str, *, least: int = 0, most: int = MAX_INT) -> ConfigKey:
    return ConfigKey(name=name, kind=KeyType.INT, minimum=least, maximum=most, description="")


def _string_key(name: str, *choices: str) -> ConfigKey:
    return ConfigKey(name=name, kind=KeyType.STRING, choices=choices, description="")


#: Of producers alone: with their names in librdkafka.
PRODUCER_KEYS: Mapping[str, tuple[ConfigKey, str]] = {
    key.name: (key, name or key.name)
    for key, name in (
        (_string_key("acks", "all", "-1", "0", "1"), ""),
        (_integer_key("batch.size", least=1), ""),
        (_string_key("compression.type", *CODECS), ""),
        (_integer_key("delivery.timeout.ms"), ""),
        (ConfigKey(name="enable.idempotence", kind=KeyType.BOOLEAN, description=""), ""),
        (_integer_key("linger.ms"), ""),
        (_integer_key("max.in.flight.requests.per.connection", least=1), ""),
        (_integer_key("max.request.size"), "message.max.bytes"),
        (_integer_key("retries"), ""),
    )
}

#: Of consumers and producers: with their names in librdkafka.
SHARED_KEYS: Mapping[str, str] = {
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

#: A broker remembers so many batches of an idempotent producer.
MAX_IN_FLIGHT = 5

IGNORED_KEYS = frozenset(
    {"buffer.memory", "max.block.ms", "partitioner.adaptive.partitioning.enable"}
)

REFUSED_KEYS: Mapping[str, str] = {
    "interceptor.classes": "rota produce has no interceptors",
    "transactional.id": "rota produce writes without transactions",
    "transaction.timeout.ms": "rota produce writes without transactions",
    "partitioner.class": "a class of Java's cannot be run: records go by their keys, as in Java, "
    "or to --partition",
    "partitioner.ignore.keys": "records go by their keys, as in Java, or to --partition",
}


def librdkafka_settings(given: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Returns the settings for librdkafka, and warnings.

    :raises InputError: a setting is unknown, malformed or refused
    :raises Unreachable: a file that a setting names cannot be read
    """
    values: dict[str, object] = {}
    found: dict[str, object] = dict(DEFAULT_PRODUCER_SETTINGS)
    warnings = []
    for name, value in given.items():
        if name in REFUSED_KEYS:
            raise InputError(f"{name}: {REFUSED_KEYS[name]}")
        if name in KEYS:
            values[name] = KEYS[name].parse(value)
        elif name in PRODUCER_KEYS:
            key, theirs = PRODUCER_KEYS[name]
            found[theirs] = key.parse(value)
        elif name in {"key.serializer", "value.serializer"}:
            _check_serializer(name, value)
        elif name in IGNORED_KEYS:
            warnings.append(f"{name}: without effect in rota produce")
        else:
            raise InputError(_unknown_setting_message(name))
    found["enable.idempotence"] = _is_idempotent(found, asked="enable.idempotence" in given)
    bootstrap = values.pop("bootstrap.servers", ())
    assert isinstance(bootstrap, tuple), "it is parsed"
    found["bootstrap.servers"] = ",".join(map(str, config.parse_addresses(bootstrap)))
    tls, login, more = security_config.read_security(values)
    found.update(_security_settings(tls, login, more))
    foreign = [name for name in values if not _is_producer_setting(name)]
    warnings += more + check_supported({k: v for k, v in values.items() if k not in foreign})
    found |= {SHARED_KEYS[name]: value for name, value in values.items() if name in SHARED_KEYS}
    warnings += [f"{name}: without effect: it is for consumers" for name in foreign]
    return found, warnings


def _is_idempotent(found: Mapping[str, object], *, asked: bool) -> bool:
    """Returns whether the producer is idempotent. Kafka's default gives way to settings that
    rule it out; raises InputError if the user asked for it explicitly.
    """
    if not found["enable.idempotence"]:
        return False
    in_flight = found.get("max.in.flight.requests.per.connection", 1)
    assert isinstance(in_flight, int), "it is parsed"
    if in_flight > MAX_IN_FLIGHT:
        raise InputError(
            f"max.in.flight.requests.per.connection: {in_flight} is more than {MAX_IN_FLIGHT}, "
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


def _is_producer_setting(name: str) -> bool:
    """Not a setting of consumers alone."""
    if name in SHARED_KEYS or KEYS[name].support is KeySupport.NO_EFFECT:
        return True
    return name.startswith(("ssl.", "sasl.", "security.", "config."))


def _security_settings(
    tls: TlsConfig | None, login: SaslConfig | None, warnings: list[str]
) -> dict[str, object]:
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
            "ssl.ca.location": tls.truststore_location,
            "ssl.ca.pem": tls.truststore_certificates,
            "ssl.certificate.location": tls.keystore_location,
            "ssl.key.location": tls.keystore_location,
            "ssl.certificate.pem": tls.keystore_certificate_chain,
            "ssl.key.pem": tls.keystore_key,
            "ssl.key.password": tls.key_password,
        }
        found |= {name: value for name, value in given.items() if value is not None}
        found["ssl.endpoint.identification.algorithm"] = (
            "https" if tls.verifies_host_name else "none"
        )
        if tls.enabled_protocols != TLS_VERSIONS:
            warnings.append("ssl.enabled.protocols: without effect in rota produce")
    return found


def _check_serializer(name: str, value: object) -> None:
    if str(value).strip().removeprefix(JAVA_PACKAGE) not in PLAIN_SERIALIZERS:
        raise InputError(
            f"{name}: {quote_shortened(str(value))}: rota produce writes lines as the bytes "
            "they are"
        )


def _unknown_setting_message(name: str) -> str:
    names = {*PRODUCER_KEYS, *SHARED_KEYS, *KEYS}
    by_theirs = {theirs: key.name for key, theirs in PRODUCER_KEYS.values()} | {
        theirs: ours for ours, theirs in SHARED_KEYS.items()
    }
    if name in by_theirs:
        return f"{name}: is librdkafka's name; Kafka's is {by_theirs[name]}"
    return (
        f"{quote_shortened(name)} is not a setting of Kafka's producers{suggest_names(name, names)}"
    )
