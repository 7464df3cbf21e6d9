"""Logging in, and TLS: against Rota's own broker, and by the steps of the exchange."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

import rota
from rota.client.login import make_sasl_client, make_tls_context
from rota.engine.model.config import SaslConfig, TlsConfig
from rota.errors import (
    AuthenticationFailed,
    FormatError,
    InputError,
    TimedOut,
    Unreachable,
    Untrusted,
)
from rota.protocol.sasl import MIN_ITERATIONS, Mechanism, Users
from rota.protocol.sasl import create_sasl_server as served
from tests.support.client import client, new_deadline, run

ALICE = {"alice": "wonder,=land"}
MECHANISMS = pytest.mark.parametrize("mechanism", list(Mechanism))


def sasl_config(mechanism: str, user: str = "alice", password: str = "wonder,=land") -> SaslConfig:
    return SaslConfig(mechanism=str(mechanism), username=user, password=password)


async def count_brokers(server: str, **fields: Any) -> int:
    """Returns the number of brokers that a client knows after its first request."""
    async with client(server, **fields) as one:
        return len((await one.refresh([], deadline=new_deadline())).brokers)


def connect_error(server: str, kind: type[Exception], **fields: Any) -> str:
    async def main() -> str:
        with pytest.raises(kind) as caught:
            await count_brokers(server, **fields)
        return str(caught.value)

    return run(main())


# SASL


@MECHANISMS
def test_a_user_logs_in(mechanism: str) -> None:
    with rota.Broker(users=ALICE) as broker:
        assert run(count_brokers(broker.bootstrap_servers, sasl=sasl_config(mechanism))) == 1


@MECHANISMS
def test_a_wrong_password_is_refused_once_and_for_all(mechanism: str) -> None:
    config = {"connection.failed.authentication.delay.ms": 1}
    with rota.Broker(users=ALICE, config=config) as broker:
        wrong = sasl_config(mechanism, password="wrong")
        message = connect_error(broker.bootstrap_servers, AuthenticationFailed, sasl=wrong)
        assert f"user 'alice' is refused by {mechanism}: " in message
        assert "wrong user or password" in message
        assert broker.bootstrap_servers in message
        assert "wrong'" not in message


def test_a_mechanism_that_the_broker_has_not_is_named_with_those_it_has() -> None:
    with rota.Broker(users=ALICE, mechanisms=["PLAIN", "SCRAM-SHA-512"]) as broker:
        wrong = sasl_config("SCRAM-SHA-256")
        message = connect_error(broker.bootstrap_servers, AuthenticationFailed, sasl=wrong)
        assert "SCRAM-SHA-256 is not enabled there; enabled: PLAIN, SCRAM-SHA-512" in message


def test_a_login_where_nobody_logs_in() -> None:
    with rota.Broker() as broker:
        message = connect_error(
            broker.bootstrap_servers, AuthenticationFailed, sasl=sasl_config("PLAIN")
        )
        assert "the port has no login: security.protocol must be PLAINTEXT or SSL" in message


def test_no_login_where_one_is_needed() -> None:
    with rota.Broker(users=ALICE) as broker:

        async def main() -> None:
            async with client(broker.bootstrap_servers) as one:
                await one.connect(deadline=new_deadline())
                broker.delay("ApiVersions", 60)  # for whoever connects again
                with pytest.raises(TimedOut, match="after ApiVersions: it may require a login"):
                    await one.refresh([], deadline=new_deadline(0.5))

        run(main())


names = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=20)
passwords = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=20)


@given(mechanism=st.sampled_from(list(Mechanism)), user=names, password=passwords)
def test_both_sides_of_an_exchange_agree(mechanism: Mechanism, user: str, password: str) -> None:
    users = Users({user: password}, lambda: b"salt" * 4)
    ours = make_sasl_client(sasl_config(mechanism, user, password), "ours")
    theirs = served(mechanism, users, lambda: "theirs")
    said: bytes | None = ours.first_message()
    while said is not None:
        step = theirs.step(said)
        said = ours.next_message(step.data)
    assert step.user == user


@pytest.mark.parametrize(
    ("challenge", "message"),
    [
        (b"", "challenge is not SCRAM's"),
        (b"r=other,s=c2FsdA==,i=4096", "belongs to another login"),
        (b"r=ours,s=c2FsdA==,i=4096", "belongs to another login"),
        (b"r=ours+1,s=c2FsdA==,i=4095", "asks for 4095 iterations"),
        (b"r=ours+1,s=c2FsdA==,i=99999999", "asks for 99999999 iterations"),
        (b"r=ours+1,s=c,i=4096", "broken base64"),
    ],
)
def test_a_challenge_that_is_none(challenge: bytes, message: str) -> None:
    exchange = make_sasl_client(sasl_config("SCRAM-SHA-256"), "ours")
    exchange.first_message()
    with pytest.raises(FormatError, match=message):
        exchange.next_message(challenge)


@pytest.mark.parametrize(
    ("last", "message"),
    [
        (b"v=" + b"A" * 44, "cannot prove that it knows the password"),
        (b"e=other-error", "says 'other-error'"),
        (b"welcome", "last message is not SCRAM's"),
    ],
)
def test_a_broker_that_does_not_know_the_password(last: bytes, message: str) -> None:
    exchange = make_sasl_client(sasl_config("SCRAM-SHA-256"), "ours")
    exchange.next_message(f"r=ours+1,s=c2FsdA==,i={MIN_ITERATIONS}".encode())
    with pytest.raises(FormatError, match=message):
        exchange.next_message(last)


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def ca_certificate(authority: trustme.CA) -> str:
    return authority.cert_pem.bytes().decode()


def broker_tls(authority: trustme.CA, *names: str, **options: Any) -> ssl.SSLContext:
    """A broker's TLS, with a certificate for these names."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*(names or ("127.0.0.1", "localhost")), **options).configure_cert(context)
    return context


def test_a_broker_is_reached_by_tls(authority: trustme.CA, tmp_path: Path) -> None:
    file = tmp_path / "trusted.pem"
    file.write_text(ca_certificate(authority))
    with rota.Broker(tls=broker_tls(authority)) as broker:
        server = broker.bootstrap_servers
        assert (
            run(
                count_brokers(
                    server, tls=TlsConfig(truststore_certificates=ca_certificate(authority))
                )
            )
            == 1
        )
        assert run(count_brokers(server, tls=TlsConfig(truststore_location=str(file)))) == 1
        by_name = server.replace("127.0.0.1", "localhost")
        assert (
            run(
                count_brokers(
                    by_name, tls=TlsConfig(truststore_certificates=ca_certificate(authority))
                )
            )
            == 1
        )


@MECHANISMS
def test_a_user_logs_in_by_tls(authority: trustme.CA, mechanism: str) -> None:
    with rota.Broker(users=ALICE, tls=broker_tls(authority)) as broker:
        security = TlsConfig(truststore_certificates=ca_certificate(authority))
        assert (
            run(count_brokers(broker.bootstrap_servers, tls=security, sasl=sasl_config(mechanism)))
            == 1
        )


def test_a_certificate_for_another_name(authority: trustme.CA) -> None:
    with rota.Broker(tls=broker_tls(authority, "kafka.example")) as broker:
        server = broker.bootstrap_servers
        message = connect_error(
            server, Untrusted, tls=TlsConfig(truststore_certificates=ca_certificate(authority))
        )
        assert server in message
        assert "its certificate is not for this name" in message
        assert "ssl.endpoint.identification.algorithm" in message
        careless = TlsConfig(
            truststore_certificates=ca_certificate(authority), verifies_host_name=False
        )
        assert run(count_brokers(server, tls=careless)) == 1


def test_a_certificate_of_a_stranger(authority: trustme.CA) -> None:
    with rota.Broker(tls=broker_tls(authority)) as broker:
        for security in (
            TlsConfig(),
            TlsConfig(truststore_certificates=ca_certificate(trustme.CA())),
        ):
            message = connect_error(broker.bootstrap_servers, Untrusted, tls=security)
            assert "signed by an issuer that is not trusted here" in message
            assert "ssl.truststore.location" in message


def test_a_certificate_that_has_expired(authority: trustme.CA) -> None:
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    with rota.Broker(tls=broker_tls(authority, not_after=past)) as broker:
        security = TlsConfig(truststore_certificates=ca_certificate(authority))
        message = connect_error(broker.bootstrap_servers, Untrusted, tls=security)
        assert "its certificate has expired" in message


def test_tls_where_there_is_none() -> None:
    with rota.Broker() as broker:

        async def main() -> None:
            async with client(broker.bootstrap_servers, tls=TlsConfig()) as one:
                with pytest.raises(Unreachable, match="may be a port without TLS"):
                    await one.refresh([], deadline=new_deadline(1))

        run(main())


def client_tls(authority: trustme.CA, folder: Path) -> TlsConfig:
    """A client that a broker knows by its certificate."""
    own = authority.issue_cert("client@example.org")
    file = folder / "client.pem"
    own.private_key_and_cert_chain_pem.write_to_path(file)
    return TlsConfig(truststore_certificates=ca_certificate(authority), keystore_location=str(file))


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_broker_that_wants_a_clients_certificate(
    authority: trustme.CA, tmp_path: Path, newest: ssl.TLSVersion
) -> None:
    context = broker_tls(authority)
    context.maximum_version = newest
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    with rota.Broker(tls=context) as broker:
        server = broker.bootstrap_servers
        assert run(count_brokers(server, tls=client_tls(authority, tmp_path))) == 1
        anonymous = TlsConfig(truststore_certificates=ca_certificate(authority))
        assert "want" in connect_error(server, Untrusted, tls=anonymous)
        assert "client's certificate" in connect_error(server, Untrusted, tls=anonymous)
        stranger = trustme.CA().issue_cert("client@example.org")
        unknown = TlsConfig(
            truststore_certificates=ca_certificate(authority),
            keystore_certificate_chain=stranger.cert_chain_pems[0].bytes().decode(),
            keystore_key=stranger.private_key_pem.bytes().decode(),
        )
        assert "does not accept this client's" in connect_error(server, Untrusted, tls=unknown)


def test_who_a_client_is_may_be_a_text(authority: trustme.CA) -> None:
    own = authority.issue_cert("client@example.org")
    context = make_tls_context(
        TlsConfig(
            truststore_certificates=ca_certificate(authority),
            keystore_certificate_chain="".join(
                each.bytes().decode() for each in own.cert_chain_pems
            ),
            keystore_key=own.private_key_pem.bytes().decode(),
        )
    )
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_files_that_are_not_what_they_should_be(authority: trustme.CA, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    one, other = (authority.issue_cert("a@b.org") for _ in range(2))
    mixed = TlsConfig(
        keystore_certificate_chain=one.cert_chain_pems[0].bytes().decode(),
        keystore_key=other.private_key_pem.bytes().decode(),
    )
    trust, own = "ssl.truststore.location", "ssl.keystore.location"
    for given_, kind, message in (
        (
            TlsConfig(truststore_location="/no/such"),
            Unreachable,
            f"{trust}: /no/such: No such",
        ),
        (
            TlsConfig(truststore_location=str(empty)),
            InputError,
            "empty.pem: has no certificate in PEM",
        ),
        (
            TlsConfig(truststore_certificates=broken),
            InputError,
            "truststore.certificates: a certificate cannot be read",
        ),
        (TlsConfig(keystore_location="/no/such"), Unreachable, f"{own}: /no/such: No such"),
        (
            TlsConfig(keystore_location=str(empty)),
            InputError,
            "empty.pem: a certificate and its key in PEM",
        ),
        (
            TlsConfig(keystore_certificate_chain="x"),
            InputError,
            "ssl.keystore.certificate.chain, ssl.keystore.key: give both",
        ),
        (mixed, InputError, "the key does not belong to the certificate"),
    ):
        with pytest.raises(kind, match=message):
            make_tls_context(given_)


def test_a_key_behind_a_password(authority: trustme.CA) -> None:
    from cryptography.hazmat.primitives import serialization

    own = authority.issue_cert("client@example.org")
    key = serialization.load_pem_private_key(own.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"open sesame"),
    ).decode()
    chain = own.cert_chain_pems[0].bytes().decode()
    make_tls_context(
        TlsConfig(keystore_certificate_chain=chain, keystore_key=locked, key_password="open sesame")
    )
    with pytest.raises(InputError, match="the key is encrypted; set ssl.key.password"):
        make_tls_context(TlsConfig(keystore_certificate_chain=chain, keystore_key=locked))
    with pytest.raises(InputError, match="ssl.key.password must open the key"):
        make_tls_context(
            TlsConfig(keystore_certificate_chain=chain, keystore_key=locked, key_password="wrong")
        )


def test_no_secret_is_shown() -> None:
    assert "wonder" not in repr(sasl_config("PLAIN"))
