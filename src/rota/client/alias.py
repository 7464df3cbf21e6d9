"""What other clients call a setting, so that an error can give Kafka's name for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rota.client.table import KEYS
from rota.model.text import nearest, shortened

_PEM_TRUST = "ssl.truststore.location, with ssl.truststore.type=PEM"
_PEM_IDENTITY = "ssl.keystore.location, a file with certificate and key, with ssl.keystore.type=PEM"
_JAAS = "sasl.jaas.config, a line with username and password"

LIBRDKAFKA: Mapping[str, str] = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.username": _JAAS,
    "sasl.password": _JAAS,
    "ssl.ca.location": _PEM_TRUST,
    "ssl.ca.pem": "ssl.truststore.certificates, with ssl.truststore.type=PEM",
    "ssl.certificate.location": _PEM_IDENTITY,
    "ssl.key.location": _PEM_IDENTITY,
    "ssl.certificate.pem": "ssl.keystore.certificate.chain, with ssl.keystore.type=PEM",
    "ssl.key.pem": "ssl.keystore.key, with ssl.keystore.type=PEM",
    "enable.ssl.certificate.verification": "ssl.truststore.*: certificates are always verified",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "receive.message.max.bytes": "fetch.max.bytes",
    "queued.max.messages.kbytes": "fetch.max.bytes, which bounds what is kept for later polls",
    "queued.min.messages": "fetch.max.bytes, which bounds what is kept for later polls",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "enable.partition.eof": "nothing: compare position(...) with end_offsets(...)",
    "enable.auto.offset.store": "enable.auto.commit=false, and commit_sync or commit_async",
    "auto.commit.enable": "enable.auto.commit",
    "statistics.interval.ms": "nothing: there are no statistics",
    "debug": "Python's logging of 'rota.consumer'",
    "log_level": "Python's logging of 'rota.consumer'",
    "error_cb": "nothing: errors are raised by the calls they concern",
    "on_commit": "an interceptor in interceptor.classes, or commit_async(callback=...)",
    "broker.address.family": "nothing: every address of a name is tried",
    "allow.auto.create.topic": "allow.auto.create.topics",
}
"""Where librdkafka, and so confluent-kafka, differs."""

KAFKA_PYTHON: Mapping[str, str] = {
    "sasl_plain_username": _JAAS,
    "sasl_plain_password": _JAAS,
    "ssl_cafile": _PEM_TRUST,
    "ssl_certfile": _PEM_IDENTITY,
    "ssl_keyfile": _PEM_IDENTITY,
    "ssl_password": "ssl.key.password",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm, empty for no check",
    "api_version": "nothing: versions are found out from the broker",
    "consumer_timeout_ms": "poll(timeout=...)",
    "partition_assignment_strategy": "partition.assignment.strategy",
    "exclude_internal_topics": "exclude.internal.topics",
    "request_timeout_ms": "request.timeout.ms",
    "rebalance_timeout_ms": "max.poll.interval.ms",
}
"""Where kafka-python and aiokafka differ by more than the dots."""

PRODUCER = frozenset(
    {
        *("acks", "batch.size", "buffer.memory", "compression.type", "delivery.timeout.ms"),
        *("enable.idempotence", "key.serializer", "linger.ms", "max.block.ms", "max.request.size"),
        *("max.in.flight.requests.per.connection", "partitioner.class", "retries"),
        *("transaction.timeout.ms", "transactional.id", "value.serializer"),
    }
)
"""Kafka's own, but not of consumers."""

RESETS: Mapping[str, str] = {
    "smallest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "end": "latest",
    "error": "none",
}
"""How librdkafka may write ``auto.offset.reset``."""


def keywords(names: Iterable[str]) -> str:
    """What to say to who gives settings as arguments."""
    dotted = {name: name.replace("_", ".").lower() for name in names}
    for name, key in dotted.items():
        if key not in KEYS:
            return f"settings are one mapping, not arguments; and {unknown(name)}"
    meant = ", ".join(f'"{key}": ...' for key in dotted.values())
    return (
        f"{', '.join(dotted)}: settings are one mapping, not arguments, and have Kafka's names: "
        f"{{{meant}}}; topics are given to subscribe()"
    )


def unknown(key: str) -> str:
    """Why a key is not accepted, and which was meant."""
    dotted = key.replace("_", ".").lower()
    others = (("librdkafka", LIBRDKAFKA), ("kafka-python", KAFKA_PYTHON))
    for client, names in others:
        if key in names:
            return (
                f"{key}: is {client}'s name; Kafka's is {names[key]}"
                if not names[key].startswith("nothing")
                else f"{key}: is {client}'s; in its place there is {names[key]}"
            )
    if dotted in KEYS:
        return f"{key}: settings have Kafka's names: {dotted}"
    if key in PRODUCER:
        return f"{key}: is a setting of producers, not of consumers"
    if key.startswith("config.providers."):
        return f"{key}: {KEYS['config.providers'].about}"
    return f"{shortened(key)} is not a setting of Kafka's consumers{nearest(dotted, KEYS)}"
