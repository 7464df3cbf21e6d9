"""Cases of TLS and SASL: who may come in, and what a client says when it may not."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

import pytest

from tests.support.clients.case import ClientCase, plain_record, unique_name
from tests.support.clients.driver_process import ClientError
from tests.support.clients.registry import CONFLUENT
from tests.support.cluster import MECHANISMS, PASSWORD, USER

#: What a client's error must say for a user to know that it is the password.
CLEAR = re.compile("authenticat|SASL_AUTHENTICATION|invalid credentials", re.IGNORECASE)


def login_settings(mechanism: str, password: str = PASSWORD) -> Mapping[str, str]:
    """Log in as the one user there is."""
    return {
        "protocol": "SASL_PLAINTEXT",
        "mechanism": mechanism,
        "username": USER,
        "password": password,
    }


def assert_works(client_case: ClientCase, servers: str, security: Mapping[str, str]) -> None:
    topic = unique_name("t")
    link = client_case.secured(servers, security)
    link.ask("create_topic", topic=topic, partitions=1, configs={})
    records = [plain_record(number, 0) for number in range(3)]
    assert link.ask("produce", topic=topic, records=records) == [[0, 0], [0, 1], [0, 2]]
    found = link.ask("read", topic=topic, partitions=1, count=3)
    assert [record["value"] for record in found] == ["0", "1", "2"]


def tls(client_case: ClientCase) -> None:
    cluster = client_case.stage.cluster
    assert_works(client_case, cluster.tls, {"protocol": "SSL", "ca": str(cluster.ca)})


def sasl(mechanism: str, client_case: ClientCase) -> None:
    assert_works(client_case, client_case.stage.cluster.sasl, login_settings(mechanism))


def sasl_over_tls(client_case: ClientCase) -> None:
    cluster = client_case.stage.cluster
    security = {**login_settings("SCRAM-SHA-512"), "protocol": "SASL_SSL", "ca": str(cluster.ca)}
    assert_works(client_case, cluster.sasl_tls, security)


def wrong_password(mechanism: str, client_case: ClientCase) -> None:
    topic = unique_name("t")
    servers = client_case.stage.cluster.sasl
    witness = client_case.stage.link(CONFLUENT, servers, login_settings("PLAIN"))
    witness.ask("create_topic", topic=topic, partitions=1, configs={})
    link = client_case.secured(servers, login_settings(mechanism, "barley"))
    with pytest.raises(ClientError, match=CLEAR):
        link.ask("produce", topic=topic, records=[plain_record(1, 0)], hurry=True)
    latest = witness.ask("log_offsets", topic=topic, partitions=1, at="latest")
    assert latest == [[0, 0]]


CASES: dict[str, Callable[[ClientCase], None]] = {
    "TLS": tls,
    **{f"SASL {mechanism}": partial(sasl, mechanism) for mechanism in MECHANISMS},
    "SASL SCRAM over TLS": sasl_over_tls,
    **{
        f"a wrong password, {mechanism}": partial(wrong_password, mechanism)
        for mechanism in MECHANISMS
    },
}
