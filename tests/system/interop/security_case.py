"""Cases of TLS and SASL: who may come in, and what a client says when it may not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from tests.support.clients.link import Refused
from tests.support.clients.registry import CONFLUENT
from tests.support.clients.scene import Scene, fresh, plain_record
from tests.support.cluster import MECHANISMS, PASSWORD, USER

#: What a client's error must say for a user to know that it is the password.
CLEAR = re.compile("authenticat|SASL_AUTHENTICATION|invalid credentials", re.IGNORECASE)


def login(mechanism: str, password: str = PASSWORD) -> Mapping[str, str]:
    """Log in as the one user there is."""
    return {
        "protocol": "SASL_PLAINTEXT",
        "mechanism": mechanism,
        "username": USER,
        "password": password,
    }


def _works(scene: Scene, servers: str, security: Mapping[str, str]) -> None:
    topic = fresh("t")
    link = scene.secured(servers, security)
    link.ask("create_topic", topic=topic, partitions=1, configs={})
    records = [plain_record(number, 0) for number in range(3)]
    assert link.ask("produce", topic=topic, records=records) == [[0, 0], [0, 1], [0, 2]]
    found = link.ask("read", topic=topic, partitions=1, count=3)
    assert [record["value"] for record in found] == ["0", "1", "2"]


def tls(scene: Scene) -> None:
    cluster = scene.stage.cluster
    _works(scene, cluster.tls, {"protocol": "SSL", "ca": str(cluster.ca)})


def sasl(mechanism: str, scene: Scene) -> None:
    _works(scene, scene.stage.cluster.sasl, login(mechanism))


def sasl_over_tls(scene: Scene) -> None:
    cluster = scene.stage.cluster
    security = {**login("SCRAM-SHA-512"), "protocol": "SASL_SSL", "ca": str(cluster.ca)}
    _works(scene, cluster.sasl_tls, security)


def wrong_password(mechanism: str, scene: Scene) -> None:
    topic = fresh("t")
    servers = scene.stage.cluster.sasl
    witness = scene.stage.link(CONFLUENT, servers, login("PLAIN"))
    witness.ask("create_topic", topic=topic, partitions=1, configs={})
    link = scene.secured(servers, login(mechanism, "barley"))
    with pytest.raises(Refused, match=CLEAR):
        link.ask("produce", topic=topic, records=[plain_record(1, 0)], hurry=True)
    latest = witness.ask("log_offsets", topic=topic, partitions=1, at="latest")
    assert latest == [[0, 0]]


CASES: dict[str, Callable[[Scene], None]] = {
    "TLS": tls,
    **{f"SASL {mechanism}": partial(sasl, mechanism) for mechanism in MECHANISMS},
    "SASL SCRAM over TLS": sasl_over_tls,
    **{
        f"a wrong password, {mechanism}": partial(wrong_password, mechanism)
        for mechanism in MECHANISMS
    },
}
