"""TLS and log-in out of Kafka's settings: JAAS lines, PEM stores, and what is refused."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import pytest
import trustme

from rota.client.config import Settings, read_settings
from rota.engine.model.config import SaslConfig
from rota.errors import InputError, Unreachable

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
WHERE = {"bootstrap.servers": "localhost:9092"}
SASL = WHERE | {"security.protocol": "SASL_SSL"}
SECRET = "hunter2"


def read_login_settings(line: str, mechanism: str = "PLAIN") -> Settings:
    return read_settings(SASL | {"sasl.mechanism": mechanism, "sasl.jaas.config": line})


def refusal_of(settings: Mapping[str, object]) -> str:
    with pytest.raises(InputError) as caught:
        read_settings(settings)
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "mechanism", "username", "password"),
    [
        (f'{PLAIN} required username="alice" password="a b;=c";', "PLAIN", "alice", "a b;=c"),
        (f"{PLAIN} required username='al' password='b';", "PLAIN", "al", "b"),
        (f'{PLAIN} required\n  password="\\"q\\\\"\n  username=bob ;', "PLAIN", "bob", '"q\\'),
        (f'{SCRAM} required username="alice" password="ü€";', "SCRAM-SHA-256", "alice", "ü€"),
        (f'{SCRAM} Required username="a" password="b"; ', "SCRAM-SHA-512", "a", "b"),
        (f'kafkashaded.{PLAIN} required username="a" password="b";', "PLAIN", "a", "b"),
        (f'/* who */ {PLAIN} required username="a" // here\n password="b";', "PLAIN", "a", "b"),
    ],
)
def test_a_jaas_line_says_who_logs_in(
    line: str, mechanism: str, username: str, password: str
) -> None:
    found = read_login_settings(line, mechanism)
    assert found.client.sasl == SaslConfig(
        mechanism=mechanism, username=username, password=password
    )
    assert found.warnings == ()
    assert "password" not in repr(found)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "is missing"),
        ("  ", "is missing"),
        (f'{PLAIN} required username="a" password="{SECRET}"', "the ';' at the end is missing"),
        (f'{PLAIN} username="a" password="{SECRET}";', "required, requisite, sufficient"),
        (f'{PLAIN} required username="a";', "the option password is missing"),
        (f'{PLAIN} required password="{SECRET}";', "the option username is missing"),
        (f'{PLAIN} required username="a" password={SECRET}!;', "the option password"),
        (f'{PLAIN} required username="a" password=1{SECRET};', "value of the option password"),
        (f'{PLAIN} required username="a" password="{SECRET};', "a quote is not closed"),
        (f'{PLAIN} required username="a" "{SECRET}";', "the option username is followed by"),
        (f'{SCRAM} required username="a" password="{SECRET}";', f"PLAIN needs {PLAIN}"),
        (f'com.example.Login required username="a" password="{SECRET}";', "does not have"),
        (f'{PLAIN} required username="a" password="{SECRET}";' * 2, "has 2 login modules"),
    ],
)
def test_a_malformed_line_is_named_without_what_it_hides(line: str, says: str) -> None:
    assert says in refusal_of(SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": line})


def test_options_that_do_nothing_are_warned_of_and_tokens_refused() -> None:
    line = f'{SCRAM} required username="a" password="b" user_b="{SECRET}";'
    warnings = read_login_settings(line, "SCRAM-SHA-256").warnings
    assert warnings == ("sasl.jaas.config: the option user_b is without effect",)
    token = f'{SCRAM} required username="a" password="{SECRET}" tokenauth="true";'
    given = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": token}
    assert "delegation tokens" in refusal_of(SASL | given)


@pytest.mark.parametrize(
    ("mechanism", "says"),
    [
        (None, "'GSSAPI' (Kerberos), which is Kafka's default,"),
        ("GSSAPI", "'GSSAPI' (Kerberos) but by PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("OAUTHBEARER", "(OAuth)"),
        ("plain", "'plain'"),
    ],
)
def test_other_mechanisms_are_refused_by_name(mechanism: str | None, says: str) -> None:
    assert says in refusal_of(SASL | {"sasl.mechanism": mechanism})


@pytest.mark.parametrize(
    "key", ["sasl.login.class", "sasl.client.callback.handler.class", "ssl.engine.factory.class"]
)
def test_classes_of_java_are_refused(key: str) -> None:
    line = f'{PLAIN} required username="a" password="{SECRET}";'
    given = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": line, key: "org.example.Mine"}
    assert refusal_of(SASL | given).startswith(f"{key}: ")


def test_a_password_in_clear_text_is_warned_of() -> None:
    line = f'{PLAIN} required username="a" password="{SECRET}";'
    given = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": line}
    found = read_settings(WHERE | given | {"security.protocol": "sasl_plaintext"})
    assert (found.client.tls, len(found.warnings)) == (None, 1)
    assert "sends the password as it is" in found.warnings[0]


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def test_pem_texts_may_be_in_one_line(authority: trustme.CA) -> None:
    text = authority.cert_pem.bytes().decode()
    for given in (text, text.replace("\n", " "), text.replace("\n", "")):
        tls = read_settings(
            WHERE
            | {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": given,
            }
        ).client.tls
        assert tls is not None
        assert tls.truststore_certificates == text
        ssl.create_default_context(cadata=tls.truststore_certificates)


def test_a_file_that_is_not_there_is_named() -> None:
    given = {"security.protocol": "SSL", "ssl.truststore.location": "none.pem"}
    with pytest.raises(Unreachable, match="ssl.truststore.location: 'none.pem' cannot be read: No"):
        read_settings(WHERE | given | {"ssl.truststore.type": "PEM"})
