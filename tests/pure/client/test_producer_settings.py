"""A producer's settings: Kafka's names become librdkafka's."""

from __future__ import annotations

import pytest

from rota.cli.produce_records import DEFAULT_PRODUCER_SETTINGS, librdkafka_settings
from rota.errors import InputError

WHERE = {"bootstrap.servers": "a:1, b:2"}


def test_defaults_are_kafkas() -> None:
    found, warnings = librdkafka_settings(WHERE)
    assert warnings == []
    assert found == {
        **DEFAULT_PRODUCER_SETTINGS,
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "PLAINTEXT",
    }
    assert found["acks"] == "all"
    assert found["enable.idempotence"] is True


@pytest.mark.parametrize(
    ("key", "value", "theirs", "becomes"),
    [
        ("acks", "1", "acks", "1"),
        ("linger.ms", " 7 ", "linger.ms", 7),
        ("max.request.size", "2000", "message.max.bytes", 2000),
        ("request.timeout.ms", "5000", "socket.timeout.ms", 5000),
        ("receive.buffer.bytes", "4096", "socket.receive.buffer.bytes", 4096),
        ("compression.type", "zstd", "compression.type", "zstd"),
        ("enable.idempotence", "false", "enable.idempotence", False),
        ("client.id", "me", "client.id", "me"),
    ],
)
def test_a_setting_has_librdkafkas_name(key: str, value: str, theirs: str, becomes: object) -> None:
    found, warnings = librdkafka_settings(WHERE | {key: value})
    assert found[theirs] == becomes
    assert warnings == []


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("acks", "2", "acks: '2' is not one of"),
        ("linger.ms", "soon", "linger.ms: 'soon' is not a whole number"),
        ("transactional.id", "x", "without transactions"),
        ("partitioner.class", "x.Y", "by their keys"),
        ("value.serializer", "x.AvroSerializer", "writes the bytes of each line"),
        ("message.max.bytes", "1", "librdkafka's name; Kafka's is max.request.size"),
        ("socket.timeout.ms", "1", "Kafka's is request.timeout.ms"),
        ("compression.typ", "gzip", "did you mean compression.type"),
        ("interceptor.classes", "x", "interceptor.classes"),
        ("bootstrap.servers", "a", "'a': the port is missing"),
    ],
)
def test_what_cannot_be_is_refused(key: str, value: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        librdkafka_settings(WHERE | {key: value})


def test_what_means_nothing_to_a_producer_is_warned_of() -> None:
    settings = {"group.id": "g", "buffer.memory": "5", "enable.metrics.push": "true"}
    found, warnings = librdkafka_settings(WHERE | settings)
    assert not found.keys() & settings.keys()
    assert [each.partition(":")[0] for each in warnings] == [
        "buffer.memory",
        "enable.metrics.push",
        "group.id",
    ]


def test_plain_serializers_are_let_pass() -> None:
    name = "org.apache.kafka.common.serialization.StringSerializer"
    assert librdkafka_settings(WHERE | {"key.serializer": name})[1] == []


@pytest.mark.parametrize(("key", "value"), [("acks", "0"), ("acks", "1"), ("retries", "0")])
def test_what_rules_idempotence_out_switches_it_off_unless_it_was_asked_for(
    key: str, value: str
) -> None:
    found, _ = librdkafka_settings({**WHERE, key: value})
    assert found["enable.idempotence"] is False
    both = {**WHERE, key: value, "enable.idempotence": "true"}
    with pytest.raises(
        InputError, match=f"{key}: {value} cannot be combined with enable.idempotence"
    ):
        librdkafka_settings(both)


def test_many_in_flight_need_idempotence_switched_off() -> None:
    many = {**WHERE, "max.in.flight.requests.per.connection": "6"}
    with pytest.raises(InputError, match="6 is more than 5, .*enable.idempotence"):
        librdkafka_settings(many)
    found, _ = librdkafka_settings({**many, "enable.idempotence": "false"})
    assert found["max.in.flight.requests.per.connection"] == 6
