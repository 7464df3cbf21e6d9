"""A producer's settings: Kafka's names become librdkafka's."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from confluent_kafka import Producer

from rota.cli.producer import DEFAULTS, configuration
from rota.errors import InputError

WHERE = {"bootstrap.servers": "a:1, b:2"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_defaults_are_kafkas() -> None:
    found, warnings = configuration(WHERE)
    assert warnings == []
    assert found == {
        **DEFAULTS,
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
    found, warnings = configuration(WHERE | {key: value})
    assert found[theirs] == becomes
    assert warnings == []


def test_log_in_and_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    identity = authority.issue_cert("me")
    identity.private_key_and_cert_chain_pem.write_to_path(tmp_path / "me.pem")
    found, warnings = configuration(
        WHERE
        | {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN} required username="ann" password="s;cret";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(tmp_path / "me.pem"),
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert warnings == []
    assert {name: value for name, value in found.items() if name.startswith("s")} == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "s;cret",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "me.pem"),
        "ssl.key.location": str(tmp_path / "me.pem"),
        "ssl.endpoint.identification.algorithm": "none",
    }
    Producer(found)  # librdkafka takes them, and finds certificate and key in the one file


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("acks", "2", "acks: '2' is not one of"),
        ("linger.ms", "soon", "linger.ms: 'soon' is not a whole number"),
        ("transactional.id", "x", "without transactions"),
        ("partitioner.class", "x.Y", "by their keys"),
        ("value.serializer", "x.AvroSerializer", "as the bytes they are"),
        ("message.max.bytes", "1", "librdkafka's name; Kafka's is max.request.size"),
        ("socket.timeout.ms", "1", "Kafka's is request.timeout.ms"),
        ("compression.typ", "gzip", "did you mean compression.type"),
        ("interceptor.classes", "x", "interceptor.classes"),
        ("bootstrap.servers", "a", "'a' has no port"),
    ],
)
def test_what_cannot_be_is_refused(key: str, value: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        configuration(WHERE | {key: value})


def test_what_means_nothing_to_a_producer_is_warned_of() -> None:
    settings = {"group.id": "g", "buffer.memory": "5", "enable.metrics.push": "true"}
    found, warnings = configuration(WHERE | settings)
    assert not found.keys() & settings.keys()
    assert [each.partition(":")[0] for each in warnings] == [
        "buffer.memory",
        "enable.metrics.push",
        "group.id",
    ]


def test_plain_serializers_are_let_pass() -> None:
    name = "org.apache.kafka.common.serialization.StringSerializer"
    assert configuration(WHERE | {"key.serializer": name})[1] == []


@pytest.mark.parametrize(("key", "value"), [("acks", "0"), ("acks", "1"), ("retries", "0")])
def test_what_rules_idempotence_out_switches_it_off_unless_it_was_asked_for(
    key: str, value: str
) -> None:
    found, _ = configuration({**WHERE, key: value})
    assert found["enable.idempotence"] is False
    both = {**WHERE, key: value, "enable.idempotence": "true"}
    with pytest.raises(InputError, match=f"{key}: {value} does not go with enable.idempotence"):
        configuration(both)


def test_many_in_flight_need_idempotence_switched_off() -> None:
    many = {**WHERE, "max.in.flight.requests.per.connection": "6"}
    with pytest.raises(InputError, match="6 is more than 5, .*enable.idempotence"):
        configuration(many)
    found, _ = configuration({**many, "enable.idempotence": "false"})
    assert found["max.in.flight.requests.per.connection"] == 6
