"""Logging in: the client's side of SASL PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677).

An exchange says what to send first, then takes what the broker answers and says what comes next.
Under SCRAM the password does not leave this machine, and the broker must prove that it knows it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable
from typing import Protocol

from rota.errors import AuthenticationFailed, Code, FormatError, Refused
from rota.model.client import Login
from rota.wire.api import Api
from rota.wire.message import Message, SaslAuthenticateRequest, SaslHandshakeRequest
from rota.wire.sasl import FEWEST_ITERATIONS, SCRAM, Mechanism

MOST_ITERATIONS = 10_000_000
"""More would keep the client busy for seconds; Kafka allows 16,384."""
_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/]+={0,2}),i=(?P<count>[0-9]{1,9})"
    r"(?:,.*)?"
)
_FINAL = re.compile(r"(?:v=(?P<proof>[A-Za-z0-9+/]+={0,2})|e=(?P<error>[^,]*))(?:,.*)?")


class Exchange(Protocol):
    """A login under way, at the client."""

    def first(self) -> bytes:
        """What to send first."""

    def step(self, data: bytes) -> bytes | None:
        """What to send next; None: the login is done.

        :raises FormatError: this is not how the broker should answer
        """


class Plain:
    """The name and the password as they are."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def first(self) -> bytes:
        """All there is to say."""
        return f"\0{self._login.username}\0{self._login.password}".encode()

    def step(self, data: bytes) -> bytes | None:
        """The broker has taken it."""
        return None


class Scram:
    """The answer to a challenge that only who knows the password has."""

    def __init__(self, login: Login, nonce: str) -> None:
        self._hash = SCRAM[Mechanism(login.mechanism)]
        self._password = login.password.encode()
        name = login.username.replace("=", "=3D").replace(",", "=2C")
        self._nonce = nonce
        self._bare = f"n={name},r={nonce}"
        self._signature: bytes | None = None
        """What proves that the broker knows the password."""

    def first(self) -> bytes:
        """Without channel binding, as Kafka wants it."""
        return f"n,,{self._bare}".encode()

    def step(self, data: bytes) -> bytes | None:
        """Answers the challenge, then checks the broker's own proof."""
        text = data.decode("utf-8", "replace")
        if self._signature is None:
            return self._answer(text)
        found = _FINAL.fullmatch(text)
        if found is None:
            raise FormatError("the broker's last message is not SCRAM's")
        if found["error"] is not None:
            raise FormatError(f"the broker says {found['error']!r}")
        if not hmac.compare_digest(_decoded(found["proof"]), self._signature):
            raise FormatError(
                "the broker cannot prove that it knows the password: it is not whom it seems to be"
            )
        return None

    def _answer(self, challenge: str) -> bytes:
        found = _FIRST.fullmatch(challenge)
        if found is None:
            raise FormatError("the broker's challenge is not SCRAM's")
        if not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise FormatError("the broker's challenge belongs to another login")
        count = int(found["count"])
        if not FEWEST_ITERATIONS <= count <= MOST_ITERATIONS:
            raise FormatError(
                f"the broker asks for {count} iterations, "
                f"not for {FEWEST_ITERATIONS} to {MOST_ITERATIONS}"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, _decoded(found["salt"]), count)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored = hashlib.new(self._hash, client_key).digest()
        final = f"c=biws,r={found['nonce']}"
        said = f"{self._bare},{challenge},{final}".encode()
        signature = hmac.digest(stored, said, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        self._signature = hmac.digest(server_key, said, self._hash)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()


def begin(login: Login, nonce: str) -> Exchange:
    """A login.

    :param nonce: printable text without a comma that nobody can guess
    """
    return Plain(login) if login.mechanism == Mechanism.PLAIN else Scram(login, nonce)


class Asked(Protocol):
    """A connection."""

    name: str

    def send(self, api: Api, request: Message, *, deadline: float) -> Awaitable[Message]:
        """The answer."""


async def log_in(connection: Asked, login: Login, deadline: float) -> int:
    """Logs in over a connection that knows the broker's versions.

    :return: milliseconds after which the broker wants it again; 0: never
    :raises AuthenticationFailed: the broker refuses, or is not whom it should be
    """
    name = connection.name
    await _choose(connection, login, deadline)
    exchange = begin(login, secrets.token_urlsafe(24))
    said: bytes | None = exchange.first()
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
            said = exchange.step(bytes(response.auth_bytes))
        except FormatError as error:
            raise AuthenticationFailed(
                Code.SASL_AUTHENTICATION_FAILED, f"{name}: {login.mechanism}: {error}"
            ) from error
        if said is None:
            return int(response.session_lifetime_ms)


async def _choose(connection: Asked, login: Login, deadline: float) -> None:
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


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise FormatError("the broker's message has broken base64") from None
