"""TLS and log-in out of Kafka's settings: JAAS lines, PEM stores, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from rota.client.config import read_settings
from rota.engine.model.config import TlsConfig
from rota.errors import InputError

WHERE = {"bootstrap.servers": "localhost:9092"}
SECRET = "hunter2"
BLOCK = "-----BEGIN K-----\nx\n-----END K-----"


def settings_error(settings: Mapping[str, object]) -> str:
    with pytest.raises(InputError) as caught:
        read_settings(settings)
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def test_pem_stores(authority: trustme.CA, tmp_path: Path) -> None:
    trusted, identity = tmp_path / "ca.pem", tmp_path / "me.pem"
    authority.cert_pem.write_to_path(trusted)
    authority.issue_cert("me").private_key_and_cert_chain_pem.write_to_path(identity)
    found = read_settings(
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
    assert found.client.tls == TlsConfig(
        truststore_location=str(trusted),
        keystore_location=str(identity),
        key_password=SECRET,
        verifies_host_name=False,
        enabled_protocols=("TLSv1.3",),
    )
    assert SECRET not in repr(found)


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
    message = settings_error(
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
        ({"ssl.truststore.location": "PEM-FILE"}, "set ssl.truststore.type=PEM too"),
        ({"ssl.truststore.certificates": "x"}, "set ssl.truststore.type=PEM too"),
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
    assert says in settings_error(WHERE | {"security.protocol": "SSL"} | placed)
