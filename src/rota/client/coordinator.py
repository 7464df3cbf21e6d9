"""Groups' coordinators: found once, asked over connections of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.client.connection import Connection
from rota.client.metadata import Node
from rota.client.peer import Peer
from rota.client.retry import hopeless
from rota.errors import AuthorizationFailed, Code, GroupError, TimedOut, Unreachable
from rota.wire.api import Api
from rota.wire.message import FindCoordinatorRequest, Message

if TYPE_CHECKING:
    from rota.client.cluster import Client

GROUP = 0
"""The kind of a key that is a group's name."""
_SOON = (Code.COORDINATOR_LOAD_IN_PROGRESS,)
_MOVED = (Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The broker that has a group, and a connection to it that nothing else uses."""

    group: str
    node: Node
    client: Client
    peer: Peer

    async def connect(self, deadline: float) -> Connection:
        """The connection, opened if need be."""
        return await self.peer.connect(deadline)

    async def send(
        self,
        api: Api,
        request: Message,
        *,
        deadline: float,
        most: int | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Asks it once, as :meth:`Client.send` asks a broker."""
        connection = await self.peer.connect(deadline)
        return await self.client.ask(connection, api, request, deadline, most=most, timeout=timeout)


class Coordinators:
    """Those that are known, by group."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, Coordinator] = {}

    def forget(self, group: str) -> None:
        """It is looked for anew."""
        self._known.pop(group, None)

    async def find(self, group: str, deadline: float) -> Coordinator:
        """A group's coordinator.

        :raises TimedOut: there is none in time
        :raises GroupError: the broker refuses the group's name
        :raises AuthorizationFailed: no permission for the group
        """
        failures, code = 0, 0
        request = FindCoordinatorRequest(key=group, key_type=GROUP, coordinator_keys=[group])
        while group not in self._known:
            try:
                response = await self._client.send(Api.FIND_COORDINATOR, request, deadline=deadline)
            except TimedOut as error:
                if code:  # the answers before tell more than that there was no time for another
                    raise _absent(group, code) from error
                raise
            found = response.coordinators[0] if response.coordinators else response
            if found.error_code == Code.NONE:
                node = Node(found.node_id, found.host, found.port)
                peer = self._client.peer(node, "coordinator")
                self._known[group] = Coordinator(group, node, self._client, peer)
                break
            failures, code = failures + 1, found.error_code
            await self._pause(group, code, failures, deadline)
        return self._known[group]

    async def ask(
        self, group: str, api: Api, request: Message, deadline: float, *, most: int | None = None
    ) -> Message:
        """Asks it, until it is the right one and answers."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            failures += 1
            pause = self._client.backoff.after(failures)
            found = await self.find(group, deadline)
            try:
                response = await found.send(api, request, deadline=deadline, most=most)
            except Unreachable as error:
                self.forget(group)
                if hopeless(error) or loop.time() + pause >= deadline:
                    raise
                await asyncio.sleep(pause)
                continue
            codes = codes_of(response)
            if not codes & {*_SOON, *_MOVED}:
                return response
            if codes & {*_MOVED}:
                self.forget(group)
            if loop.time() + pause >= deadline:
                return response
            await asyncio.sleep(pause)

    async def _pause(self, group: str, code: int, failures: int, deadline: float) -> None:
        if code == Code.GROUP_AUTHORIZATION_FAILED:
            raise AuthorizationFailed(
                Code.GROUP_AUTHORIZATION_FAILED, f"no permission for group {group!r}"
            )
        if code not in (*_SOON, *_MOVED):
            raise GroupError(
                f"the coordinator of group {group!r} cannot be found: error {name_of(code)}", code
            )
        pause = self._client.backoff.after(failures)
        if asyncio.get_running_loop().time() + pause >= deadline:
            raise _absent(group, code)
        await asyncio.sleep(pause)


def _absent(group: str, code: int) -> TimedOut:
    about = f"the coordinator of group {group!r}"
    return TimedOut(f"{about} is not there in the time given: {name_of(code)}")


def codes_of(response: Message) -> set[int]:
    """The error codes of an answer, wherever in it they stand."""
    found: set[int] = set()
    _collect(response, found)
    return found


def _collect(part: Message, found: set[int]) -> None:
    code = getattr(part, "error_code", None)
    if code is not None:
        found.add(code)
    for field in part.STRUCT.fields:
        if field.struct is not None and field.array:
            for each in getattr(part, field.name) or ():
                _collect(each, found)


def name_of(code: int) -> str:
    """An error's name in Kafka, or its number."""
    try:
        return Code(code).name
    except ValueError:
        return str(code)
