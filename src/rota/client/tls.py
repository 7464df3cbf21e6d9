"""TLS of a client: what it trusts, who it is, and why a handshake has failed."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rota.errors import InputError, NotKafka, Unreachable, Untrusted
from rota.model.client import Tls

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CERTIFICATE = "-BEGIN CERTIFICATE-"
"""Where one begins in PEM."""
_PLAIN = (
    "no TLS is spoken there: it may be a port without it (security.protocol PLAINTEXT or "
    "SASL_PLAINTEXT), or no Kafka at all"
)
_EXPIRED, _NOT_YET, _SELF_SIGNED, _SELF_SIGNED_CHAIN, _NO_ISSUER, _NO_FIRST = 10, 9, 18, 19, 20, 21
_NAME, _IP = 62, 64
"""Numbers of OpenSSL for what is wrong with a certificate."""
_UNKNOWN = (
    "its certificate is signed by nobody that is trusted here ({said}): set "
    "ssl.truststore.location or ssl.truststore.certificates to who has signed it, in PEM"
)
_CERTIFICATES = {
    _EXPIRED: "its certificate has expired",
    _NOT_YET: "its certificate is not valid yet: is the clock of this machine right?",
    **dict.fromkeys((_SELF_SIGNED, _SELF_SIGNED_CHAIN, _NO_ISSUER, _NO_FIRST), _UNKNOWN),
    **dict.fromkeys(
        (_NAME, _IP),
        "its certificate is not for this name ({said}); an empty "
        "ssl.endpoint.identification.algorithm would take it, and so anybody who has one "
        "of the same signer",
    ),
}
_REASONS = {
    "WRONG_VERSION_NUMBER": _PLAIN,
    "RECORD_LAYER_FAILURE": _PLAIN,
    "UNSUPPORTED_PROTOCOL": "its version of TLS is too old: 1.2 is the oldest that is spoken here",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it does not take TLS 1.2 or 1.3",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker breaks off: it may want a client's certificate "
    "(ssl.keystore.location), or there is no cipher in common",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker wants a client's certificate: set "
    "ssl.keystore.location, or ssl.keystore.certificate.chain and ssl.keystore.key",
    **dict.fromkeys(
        (
            "TLSV1_ALERT_UNKNOWN_CA",
            "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
            "SSLV3_ALERT_BAD_CERTIFICATE",
            "TLSV1_ALERT_DECRYPT_ERROR",
        ),
        "the broker does not accept this client's certificate",
    ),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the broker finds this client's certificate expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the broker finds this client's certificate revoked",
}


def context(tls: Tls) -> ssl.SSLContext:
    """How to speak TLS.

    :raises Unreachable: a file cannot be read
    :raises InputError: it has not what is needed
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    spoken = [_VERSIONS[each] for each in tls.versions]
    made.minimum_version, made.maximum_version = min(spoken), max(spoken)
    made.check_hostname = tls.checks_name
    _trust(made, tls)
    if tls.identity_file is not None:
        _read(tls.identity_file, "ssl.keystore.location")
        source = f"ssl.keystore.location: {tls.identity_file}"
        _identify(made, tls.identity_file, tls.password, source)
    elif tls.chain is not None or tls.key is not None:
        if tls.chain is None or tls.key is None:
            raise InputError("ssl.keystore.certificate.chain and ssl.keystore.key go together")
        with _file(f"{tls.key}\n{tls.chain}") as path:
            _identify(made, path, tls.password, "ssl.keystore.certificate.chain, ssl.keystore.key")
    return made


def failure(error: OSError, name: str) -> Unreachable:
    """What to say of a handshake that has failed.

    :param name: of the broker, for the message
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        text = _CERTIFICATES.get(error.verify_code, "its certificate is not accepted: {said}")
        return Untrusted(f"{name}: {text.format(said=said)}")
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        text = _REASONS.get(error.reason, "")
        if text is _PLAIN:
            return NotKafka(f"{name}: {text}")
        said = error.reason.replace("_", " ").lower()
        return Untrusted(f"{name}: {text or f'TLS has failed: {said}'}")
    return NotKafka(
        f"{name}: the connection is closed in the middle of TLS's handshake: it may be a port "
        "without TLS (security.protocol PLAINTEXT or SASL_PLAINTEXT)",
        certain=False,
    )


def _trust(made: ssl.SSLContext, tls: Tls) -> None:
    if tls.authorities is not None:
        source, text = "ssl.truststore.certificates", tls.authorities
    elif tls.authorities_file is not None:
        source = f"ssl.truststore.location: {tls.authorities_file}"
        text = _read(tls.authorities_file, "ssl.truststore.location")
    else:
        made.load_default_certs()
        return
    if _CERTIFICATE not in text:
        raise InputError(f"{source}: there is no certificate in PEM in it")
    try:
        made.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise InputError(f"{source}: a certificate in it cannot be read: {error}") from error


def _identify(made: ssl.SSLContext, path: str, password: str | None, source: str) -> None:
    try:
        # without the function OpenSSL would ask on the terminal
        made.load_cert_chain(path, password=partial(_given, password))
    except _Locked as error:
        raise InputError(f"{source}: the key is locked; ssl.key.password opens it") from error
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None)
        text = "a certificate and its key in PEM were expected"
        if reason == "KEY_VALUES_MISMATCH":
            text = "the key does not belong to the certificate"
        elif password is not None:
            text += ", and ssl.key.password must open the key"
        raise InputError(f"{source}: {text}") from error


class _Locked(Exception):
    pass


def _given(password: str | None) -> str:
    if password is None:
        raise _Locked
    return password


def _read(path: str, setting: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Unreachable(f"{setting}: {path}: {error.strerror}") from error


@contextmanager
def _file(text: str) -> Iterator[str]:
    """A file with this text that nobody else can read: OpenSSL takes a key from files alone."""
    handle, path = tempfile.mkstemp(prefix="rota-", suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        yield path
    finally:
        Path(path).unlink()
