"""The broker under test: Rota's, or a real Kafka to see whether a case itself is right."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

import rota
from tests.support.kafka import KafkaBroker, free_ports

USER, PASSWORD = "alice", "sesame"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS = {
    "group.min.session.timeout.ms": "1000",  # else a member that was killed is missed for long
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",  # records of these tests are of old times
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the broker listens, and where the first of the listeners keeps its logs.

    A topic is looked for where it was made: the listeners may be those of several brokers.
    """

    plain: str
    tls: str
    sasl: str
    sasl_tls: str
    #: The certificate that the broker's own is signed with.
    ca: Path
    logs: Path


def certificates(folder: Path) -> tuple[Path, Path]:
    """The authority's certificate, and a file with the broker's key (PKCS#8) and certificates."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    ca, own = folder / "ca.pem", folder / "broker.pem"
    authority.cert_pem.write_to_path(str(ca))
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    own.write_bytes(text + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return ca, own


@contextlib.contextmanager
def rota_broker(folder: Path) -> Iterator[Cluster]:
    """Rota's broker; it has one listener, so there are four of them."""
    ca, own = certificates(folder)
    users = {USER: PASSWORD}
    wanted: tuple[dict[str, Any], ...] = ({}, {"tls": own}, {"users": users})
    with contextlib.ExitStack() as stack:
        plain, tls, sasl, sasl_tls = (
            stack.enter_context(rota.Broker(folder / str(number), config=SETTINGS, **each))
            for number, each in enumerate([*wanted, {"tls": own, "users": users}])
        )
        yield Cluster(
            plain=plain.bootstrap_servers,
            tls=tls.bootstrap_servers,
            sasl=sasl.bootstrap_servers,
            sasl_tls=sasl_tls.bootstrap_servers,
            ca=ca,
            logs=folder / "0",
        )


@contextlib.contextmanager
def real_kafka(folder: Path) -> Iterator[Cluster]:
    """A Kafka 4.3.1 with four listeners."""
    ca, own = certificates(folder)
    names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    *ports, controller = free_ports(5)
    places = {name: f"127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
    shown = ",".join(f"{name}://{place}" for name, place in places.items())
    # it is never killed, and a busy machine must not shut it out
    patient = {"broker.session.timeout.ms": "30000"}
    listening = _listeners(shown, controller)
    broker = KafkaBroker(folder, {**SETTINGS, **patient, **listening, **security(own)})
    try:
        add_scram(places["PLAINTEXT"])
        yield Cluster(
            plain=places["PLAINTEXT"],
            tls=places["SSL"],
            sasl=places["SASL_PLAINTEXT"],
            sasl_tls=places["SASL_SSL"],
            ca=ca,
            logs=folder / "data",
        )
    finally:
        broker.stop()


def _listeners(shown: str, controller: int) -> Mapping[str, str]:
    protocols = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    known = ",".join(f"{name}:{name}" for name in protocols)
    return {
        "listeners": f"{shown},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": shown,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": f"{known},CONTROLLER:PLAINTEXT",
    }


def security(own: Path) -> Mapping[str, str]:
    """What a Kafka with TLS and SASL is told."""
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    }
    modules = "org.apache.kafka.common.security"
    for listener in ("sasl_plaintext", "sasl_ssl"):
        prefix = f"listener.name.{listener}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = (
            f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        )
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = (
                f"{modules}.scram.ScramLoginModule required;"
            )
    return settings


def add_scram(servers: str) -> None:
    """Tell a Kafka the user's password."""
    admin = AdminClient({"bootstrap.servers": servers})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(
                USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
        ]
        for done in admin.alter_user_scram_credentials(wanted).values():
            done.result(30)
