"""Secures a new connection: TLS context and handshake errors, then the SASL login.

SASL is the client's side of PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677). A SASL client returns
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
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from rota.engine.model.config import SaslConfig, TlsConfig
from rota.errors import (
    AuthenticationFailed,
    Code,
    FormatError,
    InputError,
    NotKafka,
    Refused,
    Unreachable,
    Untrusted,
)
from rota.protocol.messages import (
    Api,
    Request,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from rota.protocol.sasl import MIN_ITERATIONS, SCRAM_HASHES, Mechanism
from rota.protocol.schemas import ResponseT

_SSL_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

#: Where one begins in PEM.
_CERTIFICATE_START = "-BEGIN CERTIFICATE-"

_NO_TLS = (
    "no TLS is spoken there: it may be a port without it (security.protocol PLAINTEXT or "
    "SASL_PLAINTEXT), or no Kafka at all"
)

_EXPIRED, _NOT_YET, _SELF_SIGNED, _SELF_SIGNED_CHAIN, _NO_ISSUER, _NO_FIRST = 10, 9, 18, 19, 20, 21

#: Numbers of OpenSSL for what is wrong with a certificate.
_NAME, _IP = 62, 64

_UNKNOWN_ISSUER = (
    "its certificate is signed by nobody that is trusted here ({said}): set "
    "ssl.truststore.location or ssl.truststore.certificates to who has signed it, in PEM"
)

_CERTIFICATE_PROBLEMS = {
    _EXPIRED: "its certificate has expired",
    _NOT_YET: "its certificate is not valid yet: is the clock of this machine right?",
    **dict.fromkeys((_SELF_SIGNED, _SELF_SIGNED_CHAIN, _NO_ISSUER, _NO_FIRST), _UNKNOWN_ISSUER),
    **dict.fromkeys(
        (_NAME, _IP),
        "its certificate is not for this name ({said}); an empty "
        "ssl.endpoint.identification.algorithm would take it, and so anybody who has one "
        "of the same signer",
    ),
}

_HANDSHAKE_PROBLEMS = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
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


def make_tls_context(tls: TlsConfig) -> ssl.SSLContext:
    """How to speak TLS.

    :raises Unreachable: a file cannot be read
    :raises InputError: it has not what is needed
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    spoken = [_SSL_VERSIONS[each] for each in tls.enabled_protocols]
    made.minimum_version, made.maximum_version = min(spoken), max(spoken)
    made.check_hostname = tls.verifies_host_name
    _load_trusted(made, tls)
    if tls.keystore_location is not None:
        _read_pem(tls.keystore_location, "ssl.keystore.location")
        source = f"ssl.keystore.location: {tls.keystore_location}"
        _load_identity(made, tls.keystore_location, tls.key_password, source)
    elif tls.keystore_certificate_chain is not None or tls.keystore_key is not None:
        if tls.keystore_certificate_chain is None or tls.keystore_key is None:
            raise InputError("ssl.keystore.certificate.chain and ssl.keystore.key go together")
        with _temporary_file(f"{tls.keystore_key}\n{tls.keystore_certificate_chain}") as path:
            _load_identity(
                made, path, tls.key_password, "ssl.keystore.certificate.chain, ssl.keystore.key"
            )
    return made


def handshake_error(error: OSError, name: str) -> Unreachable:
    """What to say of a handshake that has failed.

    :param name: of the broker, for the message
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        text = _CERTIFICATE_PROBLEMS.get(
            error.verify_code, "its certificate is not accepted: {said}"
        )
        return Untrusted(f"{name}: {text.format(said=said)}")
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        text = _HANDSHAKE_PROBLEMS.get(error.reason, "")
        if text is _NO_TLS:
            return NotKafka(f"{name}: {text}")
        said = error.reason.replace("_", " ").lower()
        return Untrusted(f"{name}: {text or f'TLS has failed: {said}'}")
    return NotKafka(
        f"{name}: the connection is closed in the middle of TLS's handshake: it may be a port "
        "without TLS (security.protocol PLAINTEXT or SASL_PLAINTEXT)",
        certain=False,
    )


def _load_trusted(made: ssl.SSLContext, tls: TlsConfig) -> None:
    if tls.truststore_certificates is not None:
        source, text = "ssl.truststore.certificates", tls.truststore_certificates
    elif tls.truststore_location is not None:
        source = f"ssl.truststore.location: {tls.truststore_location}"
        text = _read_pem(tls.truststore_location, "ssl.truststore.location")
    else:
        made.load_default_certs()
        return
    if _CERTIFICATE_START not in text:
        raise InputError(f"{source}: there is no certificate in PEM in it")
    try:
        made.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise InputError(f"{source}: a certificate in it cannot be read: {error}") from error


def _load_identity(made: ssl.SSLContext, path: str, password: str | None, source: str) -> None:
    try:
        # without the function OpenSSL would ask on the terminal
        made.load_cert_chain(path, password=partial(_give_password, password))
    except _KeyIsLocked as error:
        raise InputError(f"{source}: the key is locked; ssl.key.password opens it") from error
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None)
        text = "a certificate and its key in PEM were expected"
        if reason == "KEY_VALUES_MISMATCH":
            text = "the key does not belong to the certificate"
        elif password is not None:
            text += ", and ssl.key.password must open the key"
        raise InputError(f"{source}: {text}") from error


class _KeyIsLocked(Exception):
    pass


def _give_password(password: str | None) -> str:
    if password is None:
        raise _KeyIsLocked
    return password


def _read_pem(path: str, setting: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise Unreachable(f"{setting}: {path}: {error.strerror}") from error


@contextmanager
def _temporary_file(text: str) -> Iterator[str]:
    """A file with this text that nobody else can read: OpenSSL takes a key from files alone."""
    handle, path = tempfile.mkstemp(prefix="rota-", suffix=".pem")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        yield path
    finally:
        Path(path).unlink()


#: More would keep the client busy for seconds; Kafka allows 16,384.
MAX_ITERATIONS = 10_000_000

_SERVER_FIRST_MESSAGE = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/]+={0,2}),i=(?P<count>[0-9]{1,9})"
    r"(?:,.*)?"
)

_SERVER_FINAL_MESSAGE = re.compile(
    r"(?:v=(?P<proof>[A-Za-z0-9+/]+={0,2})|e=(?P<error>[^,]*))(?:,.*)?"
)


class SaslClient(Protocol):
    """A login under way, at the client."""

    def first_message(self) -> bytes:
        """What to send first."""

    def next_message(self, data: bytes) -> bytes | None:
        """What to send next; None: the login is done.

        :raises FormatError: this is not how the broker should answer
        """


class PlainSaslClient:
    """The name and the password as they are."""

    def __init__(self, login: SaslConfig) -> None:
        self._login = login

    def first_message(self) -> bytes:
        """All there is to say."""
        return f"\0{self._login.username}\0{self._login.password}".encode()

    def next_message(self, data: bytes) -> bytes | None:
        """The broker has taken it."""
        return None


class ScramSaslClient:
    """The answer to a challenge that only who knows the password has."""

    def __init__(self, login: SaslConfig, nonce: str) -> None:
        self._hash = SCRAM_HASHES[Mechanism(login.mechanism)]
        self._password = login.password.encode()
        name = login.username.replace("=", "=3D").replace(",", "=2C")
        self._nonce = nonce
        self._client_first_bare = f"n={name},r={nonce}"
        #: What proves that the broker knows the password.
        self._server_signature: bytes | None = None

    def first_message(self) -> bytes:
        """Without channel binding, as Kafka wants it."""
        return f"n,,{self._client_first_bare}".encode()

    def next_message(self, data: bytes) -> bytes | None:
        """Answers the challenge, then checks the broker's own proof."""
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
                "the broker cannot prove that it knows the password: it is not whom it seems to be"
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
            raise FormatError(
                f"the broker asks for {count} iterations, "
                f"not for {MIN_ITERATIONS} to {MAX_ITERATIONS}"
            )
        salted = hashlib.pbkdf2_hmac(
            self._hash, self._password, _decode_base64(found["salt"]), count
        )
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored = hashlib.new(self._hash, client_key).digest()
        final = f"c=biws,r={found['nonce']}"
        said = f"{self._client_first_bare},{challenge},{final}".encode()
        signature = hmac.digest(stored, said, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._server_signature = hmac.digest(server_key, said, self._hash)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()


def make_sasl_client(login: SaslConfig, nonce: str) -> SaslClient:
    """A login.

    :param nonce: printable text without a comma that nobody can guess
    """
    return (
        PlainSaslClient(login)
        if login.mechanism == Mechanism.PLAIN
        else ScramSaslClient(login, nonce)
    )


class SaslConnection(Protocol):
    """A connection."""

    name: str

    def send(
        self, api: Api, request: Request[ResponseT], *, deadline: float
    ) -> Awaitable[ResponseT]:
        """The answer."""


async def log_in(connection: SaslConnection, login: SaslConfig, deadline: float) -> int:
    """Logs in over a connection that knows the broker's versions.

    :return: milliseconds after which the broker wants it again; 0: never
    :raises AuthenticationFailed: the broker refuses, or is not whom it should be
    """
    name = connection.name
    await _choose_mechanism(connection, login, deadline)
    exchange = make_sasl_client(login, secrets.token_urlsafe(24))
    said = exchange.first_message()
    while True:
        response = await connection.send(
            Api.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=said), deadline=deadline
        )
        if response.error_code:
            reason = response.error_message or f"error {response.error_code}"
            raise AuthenticationFailed(
                Code.SASL_AUTHENTICATION_FAILED,
                f"{name}: user {login.username!r} is refused by {login.mechanism}: {reason}",
            )
        try:
            reply = exchange.next_message(response.auth_bytes)
        except FormatError as error:
            raise AuthenticationFailed(
                Code.SASL_AUTHENTICATION_FAILED, f"{name}: {login.mechanism}: {error}"
            ) from error
        if reply is None:
            return response.session_lifetime_ms
        said = reply


async def _choose_mechanism(connection: SaslConnection, login: SaslConfig, deadline: float) -> None:
    name = connection.name
    idle = f"{name}: nobody logs in there: security.protocol must be PLAINTEXT or SSL"
    try:
        request = SaslHandshakeRequest(mechanism=login.mechanism)
        # answers of version 0 would be followed by bytes without frames
        response = await connection.send(Api.SASL_HANDSHAKE, request, deadline=deadline)
    except Refused as error:
        raise AuthenticationFailed(Code.ILLEGAL_SASL_STATE, idle) from error
    if response.error_code == Code.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(Code.ILLEGAL_SASL_STATE, idle)
    if response.error_code:
        known = ", ".join(response.mechanisms) or "none"
        raise AuthenticationFailed(
            Code.UNSUPPORTED_SASL_MECHANISM,
            f"{name}: sasl.mechanism {login.mechanism} is not one of those it has: {known}",
        )


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise FormatError("the broker's message has broken base64") from None
