"""A client of a few lines: one connection, one request at a time, no retries."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self

from rota.protocol.codec import RequestHeader, read_response, write_request
from rota.protocol.messages import Api, Message, Request, classes_by_api
from rota.protocol.schemas import ResponseT
from tests.support.echo_server import is_closed, read_frame
from tests.support.waiting import PATIENCE


class RawClient:
    """A connection that sends the requests of a test and returns the responses."""

    def __init__(self, bootstrap_servers: str, client_id: str = "raw") -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), PATIENCE)
        self.client_id = client_id
        self._count = 0

    def send(self, api: Api, version: int, request: Message) -> None:
        self._count += 1
        head = RequestHeader(api, version, self._count, self.client_id, 0)
        self.socket.sendall(write_request(head, request))

    def receive(self, api: Api, version: int) -> Any:
        response_class = classes_by_api[api][1]
        correlation, response = read_response(response_class, version, read_frame(self.socket))
        assert correlation <= self._count
        return response

    def ask(self, api: Api, version: int, request: Request[ResponseT]) -> ResponseT:
        self.send(api, version, request)
        response: ResponseT = self.receive(api, version)
        return response

    @property
    def closed(self) -> bool:
        return is_closed(self.socket)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
