"""TLS for a connection whose bytes somebody else moves.

asyncio's own TLS keeps 256 KiB for each connection and does not say why a handshake failed.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

from rota.errors import FormatError, InputError, Unreachable
from rota.formats.buffer import Bytes

HANDSHAKE = 10.0
"""Seconds a client may take for its handshake, as Kafka's clients give a connection."""

CERTIFICATE, KEY = b"-BEGIN CERTIFICATE-", b" KEY-----"
"""Where these begin in PEM."""
_REASONS = {
    "HTTP_REQUEST": "an HTTP request came in where TLS is spoken",
    "HTTPS_PROXY_REQUEST": "an HTTP request came in where TLS is spoken",
    "WRONG_VERSION_NUMBER": "bytes without TLS came in where TLS is spoken "
    "(is the client's security.protocol SSL or SASL_SSL?)",
    "UNSUPPORTED_PROTOCOL": "the client's version of TLS is too old",
    "NO_SHARED_CIPHER": "the client and the broker have no cipher in common",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not trust the broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept the broker's certificate",
}


class Tls:
    """One connection's TLS: what comes in is put in, what must go out is taken out."""

    __slots__ = ("_incoming", "_object", "_outgoing", "ready")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.ready = False
        """The handshake is done."""

    def put(self, data: Bytes) -> None:
        """Takes what the client has sent.

        :raises FormatError: it is not TLS, or not as agreed; what :meth:`take` gives still goes out
        """
        self._incoming.write(data)
        if not self.ready:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return
            except ssl.SSLError as error:
                raise FormatError(_reason(error)) from error
            self.ready = True

    def read_into(self, room: bytearray) -> memoryview:
        """Decrypts into a buffer, as much as it holds; empty if more must come in first.

        :raises FormatError: it is damaged
        :raises EOFError: the client has said that it ends here, and all before that was read
        """
        view, count = memoryview(room), 0
        while self.ready and count < len(view):
            try:
                more = int(self._object.read(len(view) - count, view[count:]))
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError as error:
                raise FormatError(_reason(error)) from error
            if not more:
                if not count:
                    raise EOFError
                break
            count += more
        return view[:count]

    def encrypt(self, data: Bytes) -> bytes:
        """What must go out, so that the client reads this."""
        left = memoryview(data)
        while left:
            left = left[self._object.write(left) :]
        return self._outgoing.read()

    def end(self) -> bytes:
        """What must go out last, so that the client knows that nothing was cut off."""
        if self.ready:
            with suppress(ssl.SSLError):
                self._object.unwrap()
        return self._outgoing.read()

    def take(self) -> bytes:
        """What must go out by itself: the handshake."""
        return self._outgoing.read()


def server_context(certificate: str | Path, key: str | Path | None) -> ssl.SSLContext:
    """For a broker with this certificate (PEM, with those that sign it); the key may be in it.

    :raises Unreachable: a file cannot be read
    :raises InputError: it has no certificate or key, or they do not belong together
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (certificate, key):
        if path is not None:
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise Unreachable(f"{path}: {error.strerror}") from error
    try:
        # a key behind a password would be asked for on the terminal, by whoever runs the tests
        context.load_cert_chain(certificate, key, password=_no_password)
    except _Locked as error:
        raise InputError(f"{key or certificate}: the key is locked with a password") from error
    except ssl.SSLError as error:
        which = f"{certificate} and {key}" if key is not None else f"{certificate}"
        reason = "the key does not belong to the certificate"
        if error.reason != "KEY_VALUES_MISMATCH":
            reason = _lacking(certificate, key)
        raise InputError(f"{which}: {reason}") from error
    return context


def _lacking(certificate: str | Path, key: str | Path | None) -> str:
    """What is not where it was expected."""
    if CERTIFICATE not in Path(certificate).read_bytes():
        return "the first file has no certificate in PEM" if key else "it has no certificate in PEM"
    if KEY not in Path(key or certificate).read_bytes():
        return "the second file has no key in PEM" if key else "its key is missing: give its file"
    return "a certificate and its key in PEM were expected"


class _Locked(Exception):
    pass


def _no_password() -> str:
    raise _Locked


def _reason(error: ssl.SSLError) -> str:
    known = _REASONS.get(error.reason or "")
    return known or f"TLS failed: {(error.reason or str(error)).replace('_', ' ').lower()}"
