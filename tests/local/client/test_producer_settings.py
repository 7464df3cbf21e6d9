"""A producer's settings: Kafka's names become librdkafka's."""

from __future__ import annotations

from pathlib import Path

import trustme
from confluent_kafka import Producer

from rota.cli.produce_records import librdkafka_settings

WHERE = {"bootstrap.servers": "a:1, b:2"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_log_in_and_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    identity = authority.issue_cert("me")
    identity.private_key_and_cert_chain_pem.write_to_path(tmp_path / "me.pem")
    found, warnings = librdkafka_settings(
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
