"""Splits the bytes of a connection into frames: four bytes of length, then that many bytes.

A peer may announce any length. So a frame's buffer grows with the bytes that have arrived, not with
the announced length, and a length above the limit is refused as soon as its four bytes are there.
"""

from __future__ import annotations

import struct

from rota.engine.formats.buffer import Bytes, allocate_padded
from rota.errors import FormatError

RECEIVE_BUFFER_BYTES = 256 * 1024
GROWTH_FACTOR = 4  # limit of a frame's buffer, as a multiple of the bytes that have arrived
LENGTH_SIZE = 4
_LENGTH = struct.Struct(">i")
_TLS_HANDSHAKE = b"\x16\x03"

_HTTP_METHODS = frozenset(
    (b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI ")
)

_OTHER_PROTOCOLS = {b"SSH-": "SSH", b"PROX": "the PROXY protocol"}


class FrameReader:
    """Splits bytes into frames: from :meth:`feed`, or uncopied from :meth:`get_buffer`."""

    __slots__ = (
        *("_at", "_at_once", "_body", "_cause", "_done", "_have", "_rest", "_scratch", "_size"),
        "limit",
    )

    def __init__(
        self,
        limit: int,
        scratch: bytearray | None = None,
        cause: str = "socket.request.max.bytes",
        at_once: int = 0,
    ) -> None:
        """:param limit: bytes of a frame; may be changed for the next frames
        :param cause: the setting that the limit comes from, for the error message
        :param at_once: bytes that are allocated as soon as a trusted peer announces them
        :param scratch: a buffer that connections in one thread share: an idle one needs none
        """
        self.limit = limit
        self._cause = cause
        self._at_once = at_once
        self._scratch = memoryview(bytearray(4096) if scratch is None else scratch)
        self._done: Bytes | None = None  # a whole frame, which is returned first
        #: The frame that arrives now: ``_have`` of ``_size`` bytes are there.
        self._body: bytearray | memoryview | None = None
        self._size = 0
        self._have = 0
        self._rest = b""  # bytes of later frames, from ``_at`` on; empty while a frame arrives
        self._at = 0

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes, a different one for each call."""
        if self._body is None:
            return self._scratch
        self._grow(1)
        return memoryview(self._body)[self._have :]

    def buffer_updated(self, count: int) -> None:
        if self._body is None:
            self.feed(self._scratch[:count])
        else:
            self._advance_frame(count)

    def feed(self, data: Bytes) -> None:
        """Takes bytes that arrived. They are copied, so the caller may reuse its buffer."""
        if self._body is not None:
            count = min(len(data), self._size - self._have)
            self._grow(count)
            self._body[self._have : self._have + count] = data[:count]
            self._advance_frame(count)
            data = data[count:]
        waiting = self._done is not None or self._at < len(self._rest)
        if data and (waiting or not self._begin_frame(data)):
            self._rest = self._rest[self._at :] + data
            self._at = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes that have arrived and were not returned as frames yet."""
        done = 0 if self._done is None else _LENGTH.size + len(self._done)
        under_way = 0 if self._body is None else _LENGTH.size + self._have
        return done + under_way + len(self._rest) - self._at

    @property
    def allocated_bytes(self) -> int:
        """Bytes of memory for the buffered bytes."""
        done = 0 if self._done is None else len(self._done)
        under_way = 0 if self._body is None else _LENGTH.size + len(self._body)
        return done + under_way + len(self._rest)

    @property
    def missing_bytes(self) -> int:
        """Bytes that are still to arrive of a frame that has begun."""
        return 0 if self._body is None else self._size - self._have

    def next_frame(self) -> Bytes | None:
        """Returns the next whole frame, or None; raises FormatError if it is malformed or long."""
        if self._done is not None:
            frame, self._done = self._done, None
            return frame
        start = self._at + _LENGTH.size
        if self._body is not None or start > len(self._rest):
            return None
        end = start + self._check_length(self._rest[self._at : start])
        if end > len(self._rest):
            rest, self._rest = memoryview(self._rest)[self._at :], b""
            self._at = 0
            self._begin_frame(rest)
            return None
        whole = self._rest[start:end]
        self._at = end
        if end == len(self._rest):
            self._rest, self._at = b"", 0
        return whole

    def _begin_frame(self, data: Bytes) -> bool:
        """Starts a frame if these bytes are its beginning or the whole of it, and nothing more."""
        have = len(data) - _LENGTH.size
        if have < 0:
            return False
        (size,) = _LENGTH.unpack_from(data)
        if (
            not have <= size <= self.limit
            or detect_other_protocol(bytes(data[: _LENGTH.size])) is not None
        ):
            return False
        body = memoryview(data)[_LENGTH.size :]
        if have == size:
            self._done = bytes(body)
        else:
            self._size, self._have = size, have
            self._body = body if self._at_once else bytearray(body)
            if self._at_once:
                self._grow(1)
        return True

    def _advance_frame(self, count: int) -> None:
        self._have += count
        if self._have == self._size:
            self._done, self._body = self._body, None

    def _grow(self, count: int) -> None:
        """Makes room for more bytes. It never resizes a buffer, which may have views."""
        assert self._body is not None
        if self._have + count > len(self._body):
            least = max(GROWTH_FACTOR * self._have, self._have + count, self._at_once)
            size = min(self._size, least)
            # a bytearray is filled with zeros first, which takes half the time of a large response
            grown = allocate_padded(size) if self._at_once else bytearray(size)
            grown[: self._have] = memoryview(self._body)[: self._have]
            self._body = grown

    def _check_length(self, head: bytes) -> int:
        (size,) = _LENGTH.unpack(head)
        speaker = detect_other_protocol(head)
        if speaker is not None:
            raise FormatError(f"this is {speaker}, not Kafka's protocol: it begins with {head!r}")
        if size < 0:
            raise FormatError(f"a frame of {size} bytes is announced, by {head!r}")
        if size > self.limit:
            raise FormatError(
                f"a frame of {size} bytes is announced, the limit is {self.limit} ({self._cause})"
            )
        return int(size)


def detect_other_protocol(head: bytes) -> str | None:
    """Names a protocol that is a common mistake by its first four bytes, no length of a request."""
    if head.startswith(_TLS_HANDSHAKE):
        return "TLS on a port without it"
    if head in _HTTP_METHODS:
        return "HTTP"
    return _OTHER_PROTOCOLS.get(head)
