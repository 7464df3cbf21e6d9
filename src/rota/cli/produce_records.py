"""Writes the records of ``rota produce`` with confluent-kafka, and waits until they are stored."""

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
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from rota.cli.consume_records import ESCAPES, ProducerRecord, parse_json_line
from rota.cli.flags import CONNECT_TIMEOUT, notice_when_slow
from rota.cli.render import print_notice
from rota.client.config import JAVA_PACKAGE, check_supported, parse_addresses, read_security
from rota.client.config_keys import CONSUMER_KEYS
from rota.engine.model.config import (
    TLS_VERSIONS,
    ConfigKey,
    ConfigType,
    KeySupport,
    SaslConfig,
    TlsConfig,
    unknown_key_message,
)
from rota.engine.model.text import count_noun, find_topic_name_problem, quote_shortened
from rota.errors import AuthenticationFailed, Code, InputError, Unreachable

STATE_SUFFIX = re.compile(r" \(after \d+ms in state [A-Z_0-9]+.*\)$")
CONNECTION_PREFIX = re.compile(r"^\S+/(bootstrap|\d+): ")
SHOWN_FAILURES = 3


def write_records(args: argparse.Namespace, settings: dict[str, object]) -> bool:
    """Writes a record for every line, then waits until all are stored, or raises an error."""
    if args.topic is not None and (problem := find_topic_name_problem(args.topic)):
        raise InputError(f"--topic: {problem}")
    config, warnings = librdkafka_settings(settings)
    for warning in warnings:
        print_notice(warning)
    writer = RecordWriter(config)
    writer.connect()
    try:
        for source, line in _read_lines(args.files):
            try:
                writer.produce(source, _parse_line(args, line))
            except InputError as error:
                raise InputError(f"{source}: {error}") from error
    finally:  # accepted records are written, whatever ends the reading
        writer.flush()
        if not args.quiet:
            topics = f" to {', '.join(sorted(writer.topics))}" if writer.topics else ""
            print_notice(f"{count_noun(writer.written, 'record')} written{topics}")
    writer.raise_failures()
    return False


def _read_lines(files: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yields file and number of every line, and the line without its line end."""
    for name in files or ["stdin"]:
        with Path(name).open("rb") if files else nullcontext(sys.stdin.buffer) as lines:
            for number, line in enumerate(lines, 1):
                yield f"{name}, line {number}", line.removesuffix(b"\n").removesuffix(b"\r")


def _parse_line(args: argparse.Namespace, line: bytes) -> ProducerRecord:
    if args.json:
        record = parse_json_line(line)
    elif args.key_separator is None:
        record = ProducerRecord(topic=None, value=line)
    else:
        separator = ESCAPES.get(args.key_separator, args.key_separator)
        key, sign, value = line.partition(separator.encode())
        if not sign:
            raise InputError(f"has no {separator!r} between key and value")
        record = ProducerRecord(topic=None, key=key, value=value)
    topic = args.topic or record.topic
    if not topic:
        raise InputError("has no topic: give --topic")
    headers = tuple((name, value.encode()) for name, value in args.header)
    partition = record.partition if args.keep_partitions else args.partition
    return replace(record, topic=topic, partition=partition, headers=record.headers + headers)


class RecordWriter:
    """Wraps librdkafka's producer, and counts written and failed records."""

    def __init__(self, config: dict[str, object]) -> None:
        self.servers = config["bootstrap.servers"]
        self.written = 0
        self.topics: set[str] = set()
        self.failures: list[str] = []
        self._connection_error: KafkaError | None = None
        logger = logging.getLogger("rota.produce")  # librdkafka would write to stderr itself
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        try:
            self._producer = Producer({**config, "error_cb": self._on_error}, logger=logger)
        except (KafkaException, ValueError) as error:
            raise InputError(f"librdkafka refuses these settings: {_error_text(error)}") from error

    def connect(self) -> None:
        """Asks once for metadata, so that a connection problem is reported soon."""
        try:
            with notice_when_slow(CONNECT_TIMEOUT):
                self._producer.list_topics(timeout=CONNECT_TIMEOUT)
        except KafkaException as error:
            self._producer.poll(0)  # calls _on_error with the connections' problems
            problem = self._connection_error
            reason = _error_text(error) if problem is None else _strip_details(problem)
            message = f"{self.servers}: {reason}"
            if problem is not None and problem.code() == KafkaError._AUTHENTICATION:
                raise AuthenticationFailed(Code.SASL_AUTHENTICATION_FAILED, message) from error
            raise Unreachable(message) from error

    def produce(self, source: str, record: ProducerRecord) -> None:
        """Gives a record to librdkafka; waits while its queue is full. ``source`` is for errors."""
        assert record.topic is not None
        if record.topic not in self.topics and (problem := find_topic_name_problem(record.topic)):
            raise InputError(problem)
        if record.timestamp == 0:
            raise InputError("timestamp: librdkafka replaces 0 with the current time")
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    partition=-1 if record.partition is None else record.partition,
                    timestamp=record.timestamp or 0,
                    headers=list(record.headers),
                    on_delivery=partial(self._on_delivery, source),
                )
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                text = _error_text(error)
                if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                    text = f"topic {record.topic!r} has no partition {record.partition}"
                raise InputError(text) from error
            else:
                self.topics.add(record.topic)
                self._producer.poll(0)
                return

    def flush(self) -> None:
        """Waits until the cluster has stored all records, at most ``delivery.timeout.ms``."""
        while self._producer.flush(1.0):
            pass

    def raise_failures(self) -> None:
        if self.failures:
            named = "; ".join(self.failures[:SHOWN_FAILURES])
            more = len(self.failures) - SHOWN_FAILURES
            total = self.written + len(self.failures)
            raise Unreachable(
                f"{len(self.failures)} of {count_noun(total, 'record')} could not be written: "
                f"{named}{f'; and {more} more' if more > 0 else ''}"
            )

    def _on_delivery(self, source: str, error: KafkaError | None, _message: Delivered) -> None:
        if error is None:
            self.written += 1
        else:
            self.failures.append(f"{source}: {_strip_details(error)}")

    def _on_error(self, error: KafkaError) -> None:
        # the error of one broker says more than the error of all brokers together
        known = self._connection_error
        if known is None or known.code() == KafkaError._ALL_BROKERS_DOWN:
            self._connection_error = error


def _error_text(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return _strip_details(first) if isinstance(first, KafkaError) else str(error)


def _strip_details(error: KafkaError) -> str:
    """Removes librdkafka's connection name and connection state from an error text."""
    return STATE_SUFFIX.sub("", CONNECTION_PREFIX.sub("", error.str()))


PLAIN_SERIALIZERS = frozenset({"StringSerializer", "ByteArraySerializer", "BytesSerializer"})

DEFAULT_PRODUCER_SETTINGS: Mapping[str, object] = {
    "acks": "all",
    "enable.idempotence": True,
    "partitioner": "murmur2_random",  # as Java's; librdkafka's own sends keys elsewhere
    "linger.ms": 5,
    "delivery.timeout.ms": 120_000,
    "message.max.bytes": 1 << 20,
}


def _producer_keys() -> Iterator[ConfigKey]:
    yield ConfigKey("acks", ConfigType.STRING, choices=("all", "-1", "0", "1"))
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    yield ConfigKey("compression.type", ConfigType.STRING, choices=codecs)
    yield ConfigKey("enable.idempotence", ConfigType.BOOLEAN)
    for name in ("delivery.timeout.ms", "linger.ms", "max.request.size", "retries"):
        yield ConfigKey(name, ConfigType.INT, minimum=0)
    for name in ("batch.size", "max.in.flight.requests.per.connection"):
        yield ConfigKey(name, ConfigType.INT, minimum=1)


PRODUCER_KEYS: Mapping[str, ConfigKey] = {key.name: key for key in _producer_keys()}

SHARED_KEYS = frozenset(
    {
        *("client.dns.lookup", "client.id", "connections.max.idle.ms", "metadata.max.age.ms"),
        *("receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms"),
        *("request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes"),
        "socket.connection.setup.timeout.ms",
    }
)

#: Where librdkafka's name of a setting is not Kafka's.
LIBRDKAFKA_NAMES: Mapping[str, str] = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}

MAX_IN_FLIGHT = 5  # a broker remembers this number of batches of an idempotent producer

IGNORED_KEYS = frozenset(
    {"buffer.memory", "max.block.ms", "partitioner.adaptive.partitioning.enable"}
)

REFUSED_KEYS: Mapping[str, str] = {
    "interceptor.classes": "rota produce has no interceptors",
    "transactional.id": "rota produce writes without transactions",
    "transaction.timeout.ms": "rota produce writes without transactions",
    "partitioner.class": "Rota cannot run a Java class: records go by their keys, as in Java, or "
    "to --partition",
    "partitioner.ignore.keys": "records go by their keys, as in Java, or to --partition",
}


def librdkafka_settings(given: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Returns the settings for librdkafka, and warnings; raises InputError or Unreachable."""
    values: dict[str, Any] = {}
    config: dict[str, object] = dict(DEFAULT_PRODUCER_SETTINGS)
    warnings = []
    for name, value in given.items():
        if name in REFUSED_KEYS:
            raise InputError(f"{name}: {REFUSED_KEYS[name]}")
        if name in CONSUMER_KEYS:
            values[name] = CONSUMER_KEYS[name].parse(value)
        elif name in PRODUCER_KEYS:
            config[LIBRDKAFKA_NAMES.get(name, name)] = PRODUCER_KEYS[name].parse(value)
        elif name in {"key.serializer", "value.serializer"}:
            if str(value).strip().removeprefix(JAVA_PACKAGE) not in PLAIN_SERIALIZERS:
                text = quote_shortened(str(value))
                raise InputError(f"{name}: {text}: rota produce writes the bytes of each line")
        elif name in IGNORED_KEYS:
            warnings.append(f"{name}: without effect in rota produce")
        else:
            raise InputError(_unknown_setting_message(name))
    config["enable.idempotence"] = _is_idempotent(config, requested="enable.idempotence" in given)
    servers = parse_addresses(values.pop("bootstrap.servers", ()))
    config["bootstrap.servers"] = ",".join(map(str, servers))
    tls, login, more = read_security(values)
    config.update(_security_settings(tls, login, more))
    consumer_only = [name for name in values if not _is_producer_setting(name)]
    warnings += more + check_supported({k: v for k, v in values.items() if k not in consumer_only})
    config |= {LIBRDKAFKA_NAMES.get(k, k): v for k, v in values.items() if k in SHARED_KEYS}
    warnings += [f"{name}: without effect: it is for consumers" for name in consumer_only]
    return config, warnings


def _is_idempotent(config: Mapping[str, object], *, requested: bool) -> bool:
    """Returns true unless another setting excludes it; then raises InputError if requested."""
    if not config["enable.idempotence"]:
        return False
    in_flight = config.get("max.in.flight.requests.per.connection", 1)
    assert isinstance(in_flight, int), "ConfigKey.parse returned it"
    if in_flight > MAX_IN_FLIGHT:
        raise InputError(
            f"max.in.flight.requests.per.connection: {in_flight} is more than {MAX_IN_FLIGHT}, "
            "the maximum for an idempotent producer: lower it, or set enable.idempotence=false"
        )
    name = "acks" if config["acks"] not in {"all", "-1"} else "retries"
    is_excluded = name == "acks" or config.get("retries") == 0
    if is_excluded and requested:
        raise InputError(f"{name}: {config[name]} cannot be combined with enable.idempotence=true")
    return not is_excluded


def _is_producer_setting(name: str) -> bool:
    if name in SHARED_KEYS or CONSUMER_KEYS[name].support is KeySupport.NO_EFFECT:
        return True
    return name.startswith(("ssl.", "sasl.", "security.", "config."))


def _security_settings(
    tls: TlsConfig | None, login: SaslConfig | None, warnings: list[str]
) -> dict[str, object]:
    protocol = ("SASL_" if login else "") + ("SSL" if tls else "PLAINTEXT")
    config: dict[str, object] = {"security.protocol": protocol}
    if login is not None:
        config["sasl.mechanism"] = login.mechanism
        config["sasl.username"] = login.username
        config["sasl.password"] = login.password
    if tls is not None:
        tls_settings = {
            "ssl.ca.location": tls.truststore_location,
            "ssl.ca.pem": tls.truststore_certificates,
            "ssl.certificate.location": tls.keystore_location,
            "ssl.key.location": tls.keystore_location,
            "ssl.certificate.pem": tls.keystore_certificate_chain,
            "ssl.key.pem": tls.keystore_key,
            "ssl.key.password": tls.key_password,
        }
        config |= {name: value for name, value in tls_settings.items() if value is not None}
        algorithm = "https" if tls.verifies_host_name else "none"
        config["ssl.endpoint.identification.algorithm"] = algorithm
        if tls.enabled_protocols != TLS_VERSIONS:
            warnings.append("ssl.enabled.protocols: without effect in rota produce")
    return config


def _unknown_setting_message(name: str) -> str:
    for kafka_name, librdkafka_name in LIBRDKAFKA_NAMES.items():
        if name == librdkafka_name:
            return f"{name}: is librdkafka's name; Kafka's is {kafka_name}"
    return unknown_key_message(name, {*PRODUCER_KEYS, *CONSUMER_KEYS}, "a producer setting")
