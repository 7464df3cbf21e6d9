"""Secures a new connection: TLS context and handshake errors, then the SASL login.

This is the client's side of PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677). A SASL client returns
the first message to send, then takes each response of the broker and returns the next message. With
SCRAM the password does not leave this machine, and the broker must prove that it knows it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rota import errors
from rota.engine.model.config import SaslConfig, TlsConfig
from rota.errors import AuthenticationFailed, Code, FormatError, InputError, NotKafka, Unreachable
from rota.protocol.messages import Api, SaslAuthenticateRequest, SaslHandshakeRequest
from rota.protocol.sasl import MIN_ITERATIONS, SCRAM_HASHES, Mechanism

if TYPE_CHECKING:
    from rota.client.connection import BrokerConnection

_SSL_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_NO_TLS = (
    "the port does not use TLS: it may be a port for security.protocol PLAINTEXT or "
    "SASL_PLAINTEXT, or not a Kafka broker at all"
)

#: By OpenSSL's X509_V_ERR numbers.
_CERTIFICATE_PROBLEMS = {
    10: "its certificate has expired",
    9: "its certificate is not valid yet: is the clock of this machine right?",
    **dict.fromkeys(
        (18, 19, 20, 21),  # a self-signed certificate, or an unknown issuer
        "its certificate is signed by an issuer that is not trusted here ({reason}): set "
        "ssl.truststore.location or ssl.truststore.certificates to the issuer's certificate, in "
        "PEM",
    ),
    **dict.fromkeys(
        (62, 64),  # another host name, or another IP address
        "its certificate is not for this name ({reason}); an empty "
        "ssl.endpoint.identification.algorithm would accept it, and with it every certificate of "
        "the same issuer",
    ),
}

_HANDSHAKE_PROBLEMS = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": "its version of TLS is too old: Rota needs 1.2 or newer",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the broker does not accept TLS 1.2 or 1.3",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker ended the handshake: it may want a client's "
    "certificate (ssl.keystore.location), or have no cipher in common",
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
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the broker rejects this client's certificate as expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the broker rejects this client's certificate as revoked",
}


def make_tls_context(tls: TlsConfig) -> ssl.SSLContext:
    """Returns the TLS context for connections; raises InputError for a bad certificate or key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = [_SSL_VERSIONS[each] for each in tls.enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.check_hostname = tls.verifies_host_name
    _load_trusted(context, tls)
    if tls.keystore_location is not None:
        _read_pem(tls.keystore_location, "ssl.keystore.location")
        source = f"ssl.keystore.location: {tls.keystore_location}"
        _load_identity(context, tls.keystore_location, tls.key_password, source)
    elif tls.keystore_certificate_chain is not None or tls.keystore_key is not None:
        source = "ssl.keystore.certificate.chain, ssl.keystore.key"
        if tls.keystore_certificate_chain is None or tls.keystore_key is None:
            raise InputError(f"{source}: give both")
        with _temporary_file(f"{tls.keystore_key}\n{tls.keystore_certificate_chain}") as path:
            _load_identity(context, path, tls.key_password, source)
    return context


def handshake_error(error: OSError, name: str) -> Unreachable:
    """Returns the error to raise for a failed handshake with the broker ``name``."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message.rstrip(".")
        otherwise = "its certificate is not accepted: {reason}"
        text = _CERTIFICATE_PROBLEMS.get(error.verify_code, otherwise)
        return errors.Untrusted(f"{name}: {text.format(reason=reason)}")
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        text = _HANDSHAKE_PROBLEMS.get(error.reason, "")
        if text is _NO_TLS:
            return NotKafka(f"{name}: {text}")
        reason = error.reason.replace("_", " ").lower()
        return errors.Untrusted(f"{name}: {text or f'TLS has failed: {reason}'}")
    return NotKafka(
        f"{name}: the connection was closed during the TLS handshake: it may be a port "
        "without TLS (security.protocol PLAINTEXT or SASL_PLAINTEXT)",
        certain=False,
    )


def _load_trusted(context: ssl.SSLContext, tls: TlsConfig) -> None:
    if tls.truststore_certificates is not None:
        source, text = "ssl.truststore.certificates", tls.truststore_certificates
    elif tls.truststore_location is not None:
        source = f"ssl.truststore.location: {tls.truststore_location}"
        text = _read_pem(tls.truststore_location, "ssl.truststore.location")
    else:
        context.load_default_certs()
        return
    if "-BEGIN CERTIFICATE-" not in text:
        raise InputError(f"{source}: has no certificate in PEM")
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise InputError(f"{source}: a certificate cannot be read: {error}") from error


def _load_identity(context: ssl.SSLContext, path: str, password: str | None, source: str) -> None:
    def give_password() -> str:
        if password is None:
            raise _KeyIsLocked
        return password

    try:
        # without a function OpenSSL would ask on the terminal
        context.load_cert_chain(path, password=give_password)
    except _KeyIsLocked as error:
        raise InputError(f"{source}: the key is encrypted; set ssl.key.password") from error
    except (ssl.SSLError, ValueError) as error:
        text = "a certificate and its key in PEM were expected"
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            text = "the key does not belong to the certificate"
        elif password is not None:
            text += ", and ssl.key.password must open the key"
        raise InputError(f"{source}: {text}") from error


class _KeyIsLocked(Exception):
    pass


def _read_pem(path: str, setting: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Unreachable(f"{setting}: {path}: {error.strerror}") from error


@contextmanager
def _temporary_file(text: str) -> Iterator[str]:
    """Yields a private file with this text: OpenSSL reads a key only from a file."""
    handle, path = tempfile.mkstemp(prefix="rota-", suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        yield path
    finally:
        Path(path).unlink()


MAX_ITERATIONS = 10_000_000  # more would keep the client busy for seconds; Kafka allows 16,384

_SERVER_FIRST_MESSAGE = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/]+={0,2}),i=(?P<count>[0-9]{1,9})"
    r"(?:,.*)?"
)

_SERVER_FINAL_MESSAGE = re.compile(
    r"(?:v=(?P<proof>[A-Za-z0-9+/]+={0,2})|e=(?P<error>[^,]*))(?:,.*)?"
)


class PlainSaslClient:
    def __init__(self, login: SaslConfig) -> None:
        self._login = login

    def first_message(self) -> bytes:
        return f"\0{self._login.username}\0{self._login.password}".encode()

    def next_message(self, data: bytes) -> bytes | None:
        """Returns the next message; None: the login is done."""


class ScramSaslClient:
    def __init__(self, login: SaslConfig, nonce: str) -> None:
        self._login = login
        self._hash = SCRAM_HASHES[Mechanism(login.mechanism)]
        name = login.username.replace("=", "=3D").replace(",", "=2C")
        self._nonce = nonce
        self._client_first_bare = f"n={name},r={nonce}"
        self._server_signature: bytes | None = None

    def first_message(self) -> bytes:
        """Returns the client-first-message, without channel binding as in Kafka."""
        return f"n,,{self._client_first_bare}".encode()

    def next_message(self, data: bytes) -> bytes | None:
        """Answers the challenge, then checks the broker's proof. Raises FormatError."""
        text = data.decode("utf-8", "replace")
        if self._server_signature is None:
            return self._answer_challenge(text)
        found = _SERVER_FINAL_MESSAGE.fullmatch(text)
        if found is None:
            raise FormatError("the broker's last message is not SCRAM's")
        if found["error"] is not None:
            raise FormatError(f"the broker says {found['error']!r}")
        if not hmac.compare_digest(_decode_base64(found["proof"]), self._server_signature):
            raise FormatError(
                "the broker cannot prove that it knows the password: it may be another server"
            )
        return None

    def _answer_challenge(self, challenge: str) -> bytes:
        found = _SERVER_FIRST_MESSAGE.fullmatch(challenge)
        if found is None:
            raise FormatError("the broker's challenge is not SCRAM's")
        if not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise FormatError("the broker's challenge belongs to another login")
        count = int(found["count"])
        if not MIN_ITERATIONS <= count <= MAX_ITERATIONS:
            limits = f"{MIN_ITERATIONS} to {MAX_ITERATIONS}"
            raise FormatError(f"the broker asks for {count} iterations, not for {limits}")
        password, salt = self._login.password.encode(), _decode_base64(found["salt"])
        salted = hashlib.pbkdf2_hmac(self._hash, password, salt, count)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored = hashlib.new(self._hash, client_key).digest()
        final = f"c=biws,r={found['nonce']}"
        auth_message = f"{self._client_first_bare},{challenge},{final}".encode()
        signature = hmac.digest(stored, auth_message, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._server_signature = hmac.digest(server_key, auth_message, self._hash)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()


def make_sasl_client(login: SaslConfig, nonce: str) -> PlainSaslClient | ScramSaslClient:
    """Returns the client for a mechanism; ``nonce`` is random printable text without a comma."""
    is_plain = login.mechanism == Mechanism.PLAIN
    return PlainSaslClient(login) if is_plain else ScramSaslClient(login, nonce)


async def log_in(connection: BrokerConnection, login: SaslConfig, deadline: float) -> int:
    """Logs in; returns the milliseconds after which the broker wants a new login (0: never). Raises
    AuthenticationFailed if it rejects the login, or cannot prove its identity.
    """
    name, mechanism, code = connection.name, login.mechanism, Code.SASL_AUTHENTICATION_FAILED
    await _choose_mechanism(connection, login, deadline)
    exchange = make_sasl_client(login, secrets.token_urlsafe(24))
    message: bytes | None = exchange.first_message()
    lifetime = 0
    while message is not None:
        request = SaslAuthenticateRequest(auth_bytes=message)
        response = await connection.send(Api.SASL_AUTHENTICATE, request, deadline=deadline)
        if response.error_code:
            reason = response.error_message or f"error {response.error_code}"
            text = f"{name}: user {login.username!r} is refused by {mechanism}: {reason}"
            raise AuthenticationFailed(code, text)
        try:
            message = exchange.next_message(response.auth_bytes)
        except FormatError as error:
            raise AuthenticationFailed(code, f"{name}: {mechanism}: {error}") from error
        lifetime = response.session_lifetime_ms
    return lifetime


async def _choose_mechanism(
    connection: BrokerConnection, login: SaslConfig, deadline: float
) -> None:
    name, mechanism = connection.name, login.mechanism
    text = f"{name}: the port has no login: security.protocol must be PLAINTEXT or SSL"
    no_login = AuthenticationFailed(Code.ILLEGAL_SASL_STATE, text)
    request = SaslHandshakeRequest(mechanism=mechanism)
    try:
        # after a response of version 0 the exchange would continue without frames
        response = await connection.send(Api.SASL_HANDSHAKE, request, deadline=deadline)
    except errors.Refused as error:
        raise no_login from error
    if response.error_code == Code.ILLEGAL_SASL_STATE:
        raise no_login
    if response.error_code:
        known = ", ".join(response.mechanisms) or "none"
        text = f"{name}: sasl.mechanism {mechanism} is not enabled there; enabled: {known}"
        raise AuthenticationFailed(Code.UNSUPPORTED_SASL_MECHANISM, text)


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise FormatError("the broker's message has broken base64") from None
