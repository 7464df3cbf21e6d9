"""The server's side of SASL PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677).

A :class:`SaslServer` takes a client's message and returns the reply. It has no clock and no source
of randomness. It accepts what Kafka accepts: no channel binding, user names in ASCII under SCRAM,
no acting for another user. An unknown user and a wrong password have the same steps and error.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from rota.errors import Code, InputError, Refused

MIN_ITERATIONS = 4096  # Kafka refuses credentials with fewer iterations


class Mechanism(enum.StrEnum):
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


SCRAM_HASHES = {Mechanism.SCRAM_SHA_256: "sha256", Mechanism.SCRAM_SHA_512: "sha512"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """Stored instead of a SCRAM password, which cannot be derived from it."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def __post_init__(self) -> None:
        if self.iterations < MIN_ITERATIONS:
            raise InputError(
                f"a SCRAM credential of {self.iterations} iterations: "
                f"Kafka takes {MIN_ITERATIONS} or more"
            )

    @classmethod
    def from_password(
        cls, mechanism: Mechanism, password: str, salt: bytes, iterations: int = MIN_ITERATIONS
    ) -> ScramCredential:
        """Derives the credential from a password. This is slow on purpose."""
        name = SCRAM_HASHES[mechanism]
        salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        return cls(
            salt=salt,
            stored_key=hashlib.new(name, client_key).digest(),
            server_key=hmac.digest(salted, b"Server Key", name),
            iterations=iterations,
        )

    @classmethod
    def parse(cls, mechanism: Mechanism, text: str) -> ScramCredential:
        """Parses Kafka's ``salt=...,stored_key=...,server_key=...,iterations=...``."""
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
        try:
            salt, stored, server = (
                base64.b64decode(fields.pop(name), validate=True)
                for name in ("salt", "stored_key", "server_key")
            )
            iterations = int(fields.pop("iterations"))
        except KeyError as missing:
            raise InputError(f"a SCRAM credential without {missing.args[0]}") from None
        except ValueError as error:
            raise InputError(f"a SCRAM credential that cannot be read: {error}") from None
        if fields or len(stored) != size or len(server) != size:
            raise InputError(f"a credential that is not one of {mechanism}")
        return cls(salt=salt, stored_key=stored, server_key=server, iterations=iterations)


class Users:
    def __init__(
        self,
        passwords: Mapping[str, str],
        new_salt: Callable[[], bytes],
        *,
        stored: Mapping[Mechanism, Mapping[str, ScramCredential]] | None = None,
        iterations: int = MIN_ITERATIONS,
    ) -> None:
        """:param passwords: valid for every mechanism; stored credentials for their own
        :param new_salt: returns at least 16 random bytes
        :raises InputError: a user without a name or a password
        """
        self._secret = new_salt()
        self._iterations = iterations
        for user, password in passwords.items():
            if not user or not password or "\0" in user + password:
                raise InputError(f"user {user!r}: a name and a password are needed, without NUL")
        self._plain = {user: self._digest(password) for user, password in passwords.items()}
        self._nobody = self._digest("\0")
        self._scram = {
            mechanism: {
                **{
                    user: ScramCredential.from_password(mechanism, password, new_salt(), iterations)
                    for user, password in passwords.items()
                },
                **(stored or {}).get(mechanism, {}),
            }
            for mechanism in SCRAM_HASHES
        }

    def _digest(self, password: str) -> bytes:
        """Compared instead of passwords, so that the time reveals neither prefix nor length."""
        return hmac.digest(self._secret, password.encode(), "sha256")

    def check_password(self, user: str, password: str) -> bool:
        expected = self._plain.get(user, self._nobody)
        return hmac.compare_digest(self._digest(password), expected) and user in self._plain

    def credential(self, mechanism: Mechanism, user: str) -> tuple[ScramCredential, bool]:
        """Returns a user's credential, and whether the user exists. An unknown user gets an
        invented one, the same each time, so that nobody learns which users exist.
        """
        made_up = hmac.digest(self._secret, f"{mechanism} {user}".encode(), "sha512")
        key = hashlib.new(SCRAM_HASHES[mechanism], made_up).digest()
        salt = made_up[: len(self._secret)]
        nobody = ScramCredential(
            salt=salt, stored_key=key, server_key=key, iterations=self._iterations
        )
        credential = self._scram[mechanism].get(user, nobody)
        return credential, credential is not nobody


@dataclass(frozen=True, slots=True)
class SaslReply:
    data: bytes
    user: str | None = None  # the user who has logged in; None: another message must follow

    @property
    def done(self) -> bool:
        return self.user is not None


def create_sasl_server(mechanism: str, users: Users, new_nonce: Callable[[], str]) -> SaslServer:
    """Starts a login (``new_nonce``: printable, no comma); Refused for an unknown mechanism."""
    if mechanism == Mechanism.PLAIN:
        return PlainSaslServer(users)
    if mechanism in SCRAM_HASHES:
        return ScramSaslServer(Mechanism(mechanism), users, new_nonce())
    offered = ", ".join(Mechanism)
    raise Refused(
        Code.UNSUPPORTED_SASL_MECHANISM, f"no SASL mechanism {mechanism!r}; there are {offered}"
    )


class PlainSaslServer:
    def __init__(self, users: Users) -> None:
        self._users = users
        self._over = False

    def step(self, data: bytes) -> SaslReply:
        """Takes ``authzid NUL user NUL password``; raises Refused with a text for the client."""
        if self._over:
            raise _login_over()
        self._over = True
        tokens = data.decode("utf-8", "replace").split("\0")
        if len(tokens) != 3:
            raise _login_failed(f"a PLAIN message has 3 parts, not {len(tokens)}")
        acting, user, password = tokens
        if not user or not password:
            raise _login_failed(f"no {'password' if user else 'user'} given")
        if not self._users.check_password(user, password):
            raise _login_failed("wrong user or password")
        if acting not in ("", user):
            raise _login_failed("a user cannot act for another")
        return SaslReply(b"", user)


_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_EXTENSIONS = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"

_CLIENT_FIRST_MESSAGE = re.compile(
    rf"(?P<head>n,(?:a=(?P<acting>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)

_CLIENT_FINAL_MESSAGE = re.compile(
    rf"(?P<bare>c=(?P<head>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


class ScramSaslServer:
    """A challenge that only a client with the password can answer."""

    def __init__(self, mechanism: Mechanism, users: Users, nonce: str) -> None:
        assert re.fullmatch(_PRINTABLE, nonce)
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._users = users
        self._next: Callable[[str], SaslReply] | None = self._handle_first_message
        self._user = ""
        self._known = False
        self._credential: ScramCredential | None = None
        self._head = ""
        self._nonce = nonce
        self._auth_message = ""  # the messages that the client's proof signs

    def step(self, data: bytes) -> SaslReply:
        """Takes the client's first or final message; raises Refused with a text for the client."""
        handle, self._next = self._next, None
        if handle is None:
            raise _login_over()
        return handle(data.decode("utf-8", "replace"))

    def _handle_first_message(self, message: str) -> SaslReply:
        if re.match("y,|p=", message):
            raise _login_failed("channel binding is not offered: the message must begin with 'n,'")
        found = _CLIENT_FIRST_MESSAGE.fullmatch(message)
        if found is None:
            raise _login_failed(f"not a valid first message of {self._mechanism}")
        self._user = _unescape_name(found["user"])
        if _unescape_name(found["acting"] or found["user"]) != self._user:
            raise _login_failed("a user cannot act for another")
        if ",tokenauth=true" in found["extensions"].lower():
            raise _login_failed("there are no delegation tokens")
        credential, self._known = self._users.credential(self._mechanism, self._user)
        self._credential = credential
        self._head = found["head"]
        self._nonce = found["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        reply = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._auth_message = f"{found['bare']},{reply}"
        self._next = self._handle_final_message
        return SaslReply(reply.encode())

    def _handle_final_message(self, message: str) -> SaslReply:
        found = _CLIENT_FINAL_MESSAGE.fullmatch(message)
        if found is None:
            raise _login_failed(f"not a valid final message of {self._mechanism}")
        if not hmac.compare_digest(found["nonce"], self._nonce):
            raise _login_failed("the final message belongs to another exchange")
        if _decode_base64(found["head"]) != self._head.encode():
            raise _login_failed("the final message has another header than the first")
        credential = self._credential
        assert credential is not None
        auth_message = f"{self._auth_message},{found['bare']}".encode()
        is_valid = self._check_proof(credential, auth_message, _decode_base64(found["proof"]))
        if not (is_valid and self._known):
            raise _login_failed("wrong user or password")
        signature = hmac.digest(credential.server_key, auth_message, self._hash)
        return SaslReply(b"v=" + base64.b64encode(signature), self._user)

    def _check_proof(self, credential: ScramCredential, auth_message: bytes, proof: bytes) -> bool:
        signature = hmac.digest(credential.stored_key, auth_message, self._hash)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
        stored = hashlib.new(self._hash, client_key).digest()
        return hmac.compare_digest(stored, credential.stored_key)


SaslServer: TypeAlias = PlainSaslServer | ScramSaslServer  # the server's side of one login


def _unescape_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise _login_failed("the final message has broken base64") from None


def _login_failed(reason: str) -> Refused:
    return Refused(Code.SASL_AUTHENTICATION_FAILED, f"login failed: {reason}")


def _login_over() -> Refused:
    return Refused(Code.ILLEGAL_SASL_STATE, "this login is over")
