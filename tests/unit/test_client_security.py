"""TLS and log-in out of Kafka's settings: JAAS lines, PEM stores, and what is refused."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from rota.client.setting import Settings, read
from rota.errors import InputError, Unreachable
from rota.model.client import Login, Tls

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
WHERE = {"bootstrap.servers": "localhost:9092"}
SASL = WHERE | {"security.protocol": "SASL_SSL"}
SECRET = "hunter2"
BLOCK = "-----BEGIN K-----\nx\n-----END K-----"


def logged_in(line: str, mechanism: str = "PLAIN") -> Settings:
    return read(SASL | {"sasl.mechanism": mechanism, "sasl.jaas.config": line})


def refused(settings: Mapping[str, object]) -> str:
    with pytest.raises(InputError) as caught:
        read(settings)
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
    found = logged_in(line, mechanism)
    assert found.client.login == Login(mechanism=mechanism, username=username, password=password)
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
    assert says in refused(SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": line})


def test_options_that_do_nothing_are_warned_of_and_tokens_refused() -> None:
    line = f'{SCRAM} required username="a" password="b" user_b="{SECRET}";'
    warnings = logged_in(line, "SCRAM-SHA-256").warnings
    assert warnings == ("sasl.jaas.config: the option user_b is without effect",)
    token = f'{SCRAM} required username="a" password="{SECRET}" tokenauth="true";'
    given = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": token}
    assert "delegation tokens" in refused(SASL | given)


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
    assert says in refused(SASL | {"sasl.mechanism": mechanism})


@pytest.mark.parametrize(
    "key", ["sasl.login.class", "sasl.client.callback.handler.class", "ssl.engine.factory.class"]
)
def test_classes_of_java_are_refused(key: str) -> None:
    line = f'{PLAIN} required username="a" password="{SECRET}";'
    given = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": line, key: "org.example.Mine"}
    assert refused(SASL | given).startswith(f"{key}: ")


def test_a_password_in_clear_text_is_warned_of() -> None:
    line = f'{PLAIN} required username="a" password="{SECRET}";'
    given = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": line}
    found = read(WHERE | given | {"security.protocol": "sasl_plaintext"})
    assert (found.client.tls, len(found.warnings)) == (None, 1)
    assert "sends the password as it is" in found.warnings[0]


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def test_pem_stores(authority: trustme.CA, tmp_path: Path) -> None:
    trusted, identity = tmp_path / "ca.pem", tmp_path / "me.pem"
    authority.cert_pem.write_to_path(trusted)
    authority.issue_cert("me").private_key_and_cert_chain_pem.write_to_path(identity)
    found = read(
        WHERE
        | {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": trusted,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(identity),
            "ssl.key.password": SECRET,
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": "TLSv1.3",
        }
    )
    assert found.client.tls == Tls(
        authorities_file=str(trusted),
        identity_file=str(identity),
        password=SECRET,
        checks_name=False,
        versions=("TLSv1.3",),
    )
    assert SECRET not in repr(found)


def test_pem_texts_may_be_in_one_line(authority: trustme.CA) -> None:
    text = authority.cert_pem.bytes().decode()
    for given in (text, text.replace("\n", " "), text.replace("\n", "")):
        tls = read(
            WHERE
            | {
                "security.protocol": "SSL",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": given,
            }
        ).client.tls
        assert tls is not None
        assert tls.authorities == text
        ssl.create_default_context(cadata=tls.authorities)


@pytest.mark.parametrize("store", ["truststore", "keystore"])
@pytest.mark.parametrize(
    ("start", "kind", "command"),
    [
        (b"\xfe\xed\xfe\xed\0\0\0\2", "JKS", "keytool -importkeystore -srckeystore"),
        (b"\x30\x82\x0a\x34", "PKCS12", "openssl pkcs12 -in"),
    ],
)
@pytest.mark.parametrize("said", [None, "JKS", "PEM"])
def test_a_store_of_javas_is_recognised_and_how_to_convert_it_said(
    store: str, start: bytes, kind: str, command: str, said: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "store.jks"
    file.write_bytes(start + bytes(100))
    message = refused(
        WHERE
        | {
            "security.protocol": "SSL",
            f"ssl.{store}.type": said,
            f"ssl.{store}.location": str(file),
            f"ssl.{store}.password": SECRET,
        }
    )
    assert message.startswith(f"ssl.{store}.location: ")
    assert f"type {kind}" in message
    assert command in message
    assert ("-nokeys" in message) == (store == "truststore")
    assert f"leave out ssl.{store}.password" in message


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ssl.truststore.location": "PEM-FILE"}, "set ssl.truststore.type=PEM beside it"),
        ({"ssl.truststore.certificates": "x"}, "set ssl.truststore.type=PEM beside it"),
        (
            {"ssl.truststore.certificates": SECRET, "ssl.truststore.type": "PEM"},
            "ssl.truststore.certificates: is not PEM",
        ),
        ({"ssl.truststore.location": "OTHER", "ssl.truststore.type": "PEM"}, "is not in PEM"),
        (
            {
                "ssl.keystore.key": "-----BEGIN K-----\nx\n-----END K-----",
                "ssl.keystore.type": "PEM",
            },
            "ssl.keystore.key: needs ssl.keystore.certificate.chain too",
        ),
        (
            {"ssl.truststore.location": "PEM-FILE", "ssl.truststore.type": "PEM"}
            | {"ssl.truststore.certificates": BLOCK},
            "are both given",
        ),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "'TLSv1.1' is not TLSv1.2 or TLSv1.3"),
        ({"ssl.enabled.protocols": ""}, "an empty list"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "ssl.cipher.suites: "),
        ({"ssl.truststore.password": SECRET}, "ssl.truststore.password: "),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "'https', ''"),
    ],
)
def test_what_does_not_fit_is_named(
    settings: dict[str, str], says: str, authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(tmp_path / "PEM-FILE")
    (tmp_path / "OTHER").write_text("neither")
    placed = {
        key: str(tmp_path / value) if key.endswith("location") else value
        for key, value in settings.items()
    }
    assert says in refused(WHERE | {"security.protocol": "SSL"} | placed)


def test_a_file_that_is_not_there_is_named() -> None:
    given = {"security.protocol": "SSL", "ssl.truststore.location": "none.pem"}
    with pytest.raises(Unreachable, match="ssl.truststore.location: 'none.pem' cannot be read: No"):
        read(WHERE | given | {"ssl.truststore.type": "PEM"})
