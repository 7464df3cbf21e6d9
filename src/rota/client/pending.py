"""A request of a connection that is not answered yet."""

from __future__ import annotations

import asyncio

from rota.wire.api import Api
from rota.wire.message import Message


class Pending:
    """A request under way."""

    __slots__ = ("api", "correlation", "deadline", "future", "raw", "sent", "version")

    def __init__(
        self,
        api: Api,
        version: int,
        correlation: int,
        deadline: float,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.api = api
        self.version = version
        self.correlation = correlation
        self.deadline = deadline
        self.sent = loop.time()
        self.raw = False
        """Its answer is given out as it came."""
        self.future: asyncio.Future[Message] = loop.create_future()
