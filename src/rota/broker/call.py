"""A request while it is being answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rota.broker.event import ConnectionId
from rota.wire.api import Api
from rota.wire.message import Message


@dataclass(slots=True, kw_only=True)
class Client:
    """Who is at the other end of a connection."""

    connection: ConnectionId
    host: str
    client_id: str = ""
    """As its last request said."""
    software: str = ""
    """Name and version of its library, if it told (ApiVersions 3 on)."""
    user: str | None = None
    """Who has logged in."""
    login: object = None
    """A SASL exchange under way; :mod:`rota.broker.handlers.sasl` knows what it is."""
    raw: Callable[[bytes], bytes] | None = None
    """Takes its frames in place of requests, while it logs in as clients did before Kafka 1.0: by
    frames that are nothing but what SASL says. It gives the answer, or raises Refused.
    """
    gone: Callable[[], None] | None = None
    """What the one call that waits wants done when the connection is closed."""


@dataclass(slots=True, kw_only=True)
class Call:
    """A request and the way to answer it: at once, or later. It is answered once."""

    api: Api
    version: int
    client: Client
    request: Message
    now: int
    """When it came in."""
    size: int
    """Bytes of its frame."""
    reply: Callable[[Message | None], None] = field(repr=False)
    drop: Callable[[str], None] = field(repr=False)
    """Ends the connection instead of an answer, for a reason that is logged."""
    answered: bool = False

    def answer(self, response: Message | None) -> None:
        """Sends the response; None where the request gets none (acks=0)."""
        if not self.answered:
            self.answered = True
            self.reply(response)
