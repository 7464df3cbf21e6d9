"""What listens at an address when it is no Kafka, told from the first bytes it says."""

from __future__ import annotations

ENOUGH = 64
"""Bytes from which any of these is known."""

_TLS_ALERT, _TLS_HELLO = b"\x15\x03", b"\x16\x03"
_TALKERS = (
    (b"HTTP/", "an HTTP server"),
    (b"<!DOCTYPE HTML", "an HTTP server"),  # to one line they answer as in HTTP 0.9
    (b"<HTML", "an HTTP server"),
    (b"SSH-", "an SSH server"),
    (b"-ERR", "a Redis server"),
    (b"-DENIED", "a Redis server"),
    (b"* OK", "an IMAP server"),
    (b"+OK", "a POP3 server"),
    (b"220", "an FTP or mail server"),
    (b"421", "an FTP or mail server"),
    (b"554", "a mail server"),
    (b"AMQP", "an AMQP server such as RabbitMQ"),
    (b"RFB ", "a VNC server"),
    (b"<", "a server that speaks XML"),
)
LINE_END = b"\r\n\r\n"
"""What many wait for before they say anything."""
OTHER_PORT = (
    "is it a port for TLS (security.protocol SSL or SASL_SSL), or something else than a Kafka?"
)
LONGEST_GREETING = 1 << 20
"""No Kafka's first answer is longer. As a length, the first four bytes of a text are more."""


def look(head: bytes) -> str | None:
    """Who begins like this; None if it may be a Kafka.

    :param head: what has come first, after a request for the versions; four bytes at least
    """
    if head.startswith((_TLS_ALERT, _TLS_HELLO)):
        return (
            "TLS is spoken there, and this client came without it: "
            "set security.protocol to SSL, or to SASL_SSL if a login is needed"
        )
    for start, name in _TALKERS:
        if head[: len(start)].upper() == start.upper():
            return f"{name} answers there: it says {_shown(head)}"
    if head[4:5] == b"\x0a" and head[3:4] == b"\0":
        return f"a MySQL server answers there: it says {_shown(head)}"
    size = int.from_bytes(head[:4], "big", signed=True)
    if not 4 <= size <= LONGEST_GREETING:
        return f"what answers there does not speak Kafka's protocol: it says {_shown(head)}"
    return None


def silent(when: str) -> str:
    """What may be where nobody has said anything in that time."""
    return f"nothing is said {when}: {OTHER_PORT} Or is the broker stuck?"


def _shown(head: bytes) -> str:
    line = head[:ENOUGH].partition(b"\n")[0].rstrip(b"\r")
    return repr(line)[1:] if line.isascii() else repr(line)
