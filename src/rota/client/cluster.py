"""A client of a cluster: connections to its brokers, what it knows of them, and who leads what."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from functools import partial

from rota.client import race
from rota.client.connection import Connection, Means
from rota.client.coordinator import Coordinator, Coordinators, name_of
from rota.client.metadata import Metadata, Node
from rota.client.peer import Peer
from rota.client.refresh import Refresher
from rota.client.retry import Backoff, hopeless
from rota.client.version import api_name
from rota.errors import (
    AuthorizationFailed,
    Code,
    InputError,
    Refused,
    RotaError,
    TimedOut,
    UnknownTopic,
    Unreachable,
)
from rota.model.client import Address, ClientConfig
from rota.model.topic import TopicPartition
from rota.wire.api import Api
from rota.wire.message import Message

ADVERTISED = (
    ". This address is not of bootstrap.servers: it is what the cluster's metadata has, by the "
    "broker's advertised.listeners, which must name an address that can be reached from here "
    "(from outside of a container, for one, that is not the container's own name)"
)
"""What is said of a broker that others told of."""


class Client:
    """Asks a cluster's brokers. It belongs to the loop in which it is first used.

    Deadlines are by the loop's clock (``loop.time()``, which is ``time.monotonic()``), in seconds.
    """

    def __init__(self, config: ClientConfig, *, quiet: bool = False) -> None:
        """Nothing is opened yet.

        :param quiet: who uses it tells itself what cannot be reached: it is logged for debugging
        """
        self.config = config
        self._means = Means(config, quiet=quiet)
        self._peers: dict[tuple[Address, str], Peer] = {}
        """By the address and what it is for: a long poll must not hold up a heartbeat, and a
        broker serves one request of a connection at a time."""
        self._refresher = Refresher(
            partial(self.send, Api.METADATA), config, self._problems, self._begin_again
        )
        self._coordinators = Coordinators(self)
        self.backoff = Backoff.of(config.retry_backoff, config.retry_backoff_max)
        """Pauses between tries that a broker has answered with an error."""
        self._closed = False

    # What is known

    @property
    def metadata(self) -> Metadata:
        """The newest snapshot."""
        return self._refresher.metadata

    @property
    def on_metadata(self) -> list[Callable[[Metadata], None]]:
        """Called in the loop with every new snapshot."""
        return self._refresher.callbacks

    async def refresh(
        self, topics: Iterable[str] | None, *, deadline: float, create: bool = False
    ) -> Metadata:
        """Asks for the newest on topics; who asks for the same at the same time shares the answer.

        :param topics: they are watched from now on, that is, asked for whenever the snapshot is
            renewed; None: all that there are, this time
        :param create: topics that are missing may be made, if ``allow.auto.create.topics`` is set
            and the broker does so
        :raises Unreachable: no broker has answered in time
        """
        wanted = (
            None if topics is None else frozenset([topics] if isinstance(topics, str) else topics)
        )
        return await self._refresher.refresh(wanted, deadline, create=create)

    def request_refresh(self) -> None:
        """Renews the snapshot soon, not oftener than ``retry.backoff.ms`` allows."""
        self._refresher.request()

    def watch(self, topics: Iterable[str] | None) -> None:
        """Watches these topics and no others, from the next refresh on; None: all there are."""
        self._refresher.watch(topics if topics is None else frozenset(topics))

    def deadline(self, timeout: float | None = None) -> float:
        """So many seconds from now; ``default.api.timeout.ms`` if None."""
        patience = self.config.api_timeout / 1000 if timeout is None else timeout
        return asyncio.get_running_loop().time() + patience

    # Requests

    async def send(  # noqa: PLR0913, what a request may be given
        self,
        api: Api,
        request: Message,
        *,
        node: int | None = None,
        deadline: float,
        most: int | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Asks a broker, and waits for the answer.

        :param node: whom. There is one try to connect, after the pause that the last failure asks
            for; then it is the caller's turn to look who leads now. None: anyone, with new tries
            until the deadline
        :param most: the highest version to be used
        :param timeout: seconds after which the connection is given up; ``request.timeout.ms`` by
            default. A deadline that is nearer ends the waiting, not the connection
        :raises Unreachable: it cannot be reached, or the connection was lost
        :raises TimedOut: no answer in time
        :raises Refused: it does not know the API, or not in a version that Rota speaks
        """
        if node is not None:
            connection = await self.connect(node, deadline=deadline)
            return await self.ask(connection, api, request, deadline, most=most, timeout=timeout)
        failures, problem = 0, None
        while True:
            try:
                connection = await self.connect(deadline=deadline)
            except TimedOut:
                if problem is None:
                    raise
                raise TimedOut(str(problem)) from problem  # why there had to be another try
            try:
                return await self.ask(
                    connection, api, request, deadline, most=most, timeout=timeout
                )
            except Unreachable as error:
                failures, problem = failures + 1, error
                pause = self.backoff.after(failures)
                if asyncio.get_running_loop().time() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)

    async def ask(  # noqa: PLR0913, as send
        self,
        connection: Connection,
        api: Api,
        request: Message,
        deadline: float,
        *,
        most: int | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Asks over a connection, as :meth:`send` does."""
        patience = self.config.request_timeout / 1000 if timeout is None else timeout
        given_up = asyncio.get_running_loop().time() + patience
        answer = connection.send(api, request, deadline=given_up, most=most)
        if given_up <= deadline:
            return await answer
        try:
            async with asyncio.timeout_at(deadline):
                return await answer
        except TimeoutError:
            raise TimedOut(
                f"{connection.name}: no answer to {api_name(api)} in the time given"
            ) from None

    async def leader(self, tp: TopicPartition, deadline: float) -> int:
        """The broker that leads a partition, as soon as one is known.

        :raises AuthorizationFailed: no permission for the topic
        :raises UnknownTopic: a topic cannot have this name
        :raises TimedOut: there is none in the time given
        """
        failures = 0
        while (found := self.metadata.leader(tp)) is None:
            problem = f"{tp} has no leader{self._told(tp.topic)}"
            pause = self.backoff.after(failures)
            if failures and asyncio.get_running_loop().time() + pause >= deadline:
                raise TimedOut(f"{problem}, in the time given")
            await asyncio.sleep(pause)
            failures += 1
            try:
                await self.refresh((tp.topic,), deadline=deadline)
            except TimedOut as error:
                raise TimedOut(f"{problem}: {error}") from error
        return found

    def _told(self, name: str) -> str:
        """What is wrong with a topic, for who waits for it."""
        topic = self.metadata.topics.get(name)
        match Code.NONE if topic is None else topic.error:
            case Code.NONE:
                return ""
            case Code.TOPIC_AUTHORIZATION_FAILED as code:
                raise AuthorizationFailed(Code(code), f"no permission for topic {name!r}")
            case Code.INVALID_TOPIC_EXCEPTION as code:
                raise UnknownTopic(Code(code), f"{name!r} is no name that a topic can have")
            case Code.UNKNOWN_TOPIC_OR_PARTITION:
                return f": there is no topic {name!r}"
            case code:
                return f": {name_of(code)}"

    # Coordinators

    async def coordinator(self, group: str, deadline: float) -> Coordinator:
        """A group's coordinator, asked for if it is not known."""
        return await self._coordinators.find(group, deadline)

    async def ask_coordinator(
        self, group: str, api: Api, request: Message, deadline: float, *, most: int | None = None
    ) -> Message:
        """Asks a group's coordinator; finds it anew if it has moved or cannot be reached. A
        request may so be carried out twice: not for what must not be.
        """
        return await self._coordinators.ask(group, api, request, deadline, most=most)

    def forget_coordinator(self, group: str) -> None:
        """It is asked for anew when it is needed again."""
        self._coordinators.forget(group)

    # Connections

    async def connect(self, node: int | None = None, *, deadline: float) -> Connection:
        """An open connection to a broker; None: to anyone.

        :raises Unreachable: there is none in time; the message names what was tried
        """
        self._check_open()
        if node is None:
            return await self._connect_anywhere(deadline)
        known = self.metadata.brokers.get(node)
        if known is None:
            self.request_refresh()
            raise Unreachable(f"broker {node} is not known: {self._known()}")
        try:
            return await self.peer(known).connect(deadline)
        except Unreachable:
            self.request_refresh()
            raise

    def peer(self, node: Node, use: str = "") -> Peer:
        """A broker that others have told of."""
        hint = "" if node.address in self.config.bootstrap else ADVERTISED
        return self._peer(node.address, use, f"broker {node.id} at {node.address}", hint)

    def _peer(self, address: Address, use: str, name: str, hint: str = "") -> Peer:
        found = self._peers.get((address, use))
        if found is None:
            found = self._peers[address, use] = Peer(address, self._means, name, hint)
        return found

    async def _connect_anywhere(self, deadline: float) -> Connection:
        open_ones = [
            each.connection
            for (_, use), each in self._peers.items()
            if not use and each.connection is not None
        ]
        if open_ones:
            return min(open_ones, key=lambda each: each.in_flight)
        while True:
            found, failed = await race.first(
                [partial(each.connect, deadline) for each in self._candidates()]
            )
            if found is not None:
                return found
            self._check_open()
            for error in failed:
                if isinstance(error, Refused | InputError):  # all brokers would say the same
                    raise error
            if all(map(hopeless, failed)) or asyncio.get_running_loop().time() >= deadline:
                raise _together(failed)

    def _candidates(self) -> list[Peer]:
        """All that are known, then those of ``bootstrap.servers``, in case that all others are gone
        or have moved (KIP-899, KIP-1102). Those that failed last come last.
        """
        found = [self.peer(node) for node in self.metadata.brokers.values()]
        random.shuffle(found)  # clients that start together do not all ask the same
        first: list[Peer] = []
        if not found or self.config.recovery == "rebootstrap":
            for each in self.config.bootstrap:
                peer = self._peer(each, "", f"{each} of bootstrap.servers")
                first.append(peer)
            random.shuffle(first)
        return sorted(dict.fromkeys(found + first), key=lambda each: each.ready_at)

    def _begin_again(self) -> None:
        for (_, use), each in self._peers.items():
            if not use and each.connection is not None:
                each.connection.finish()

    def _problems(self) -> str:
        found = dict.fromkeys(each.trouble for (_, use), each in self._peers.items() if not use)
        return f": {'; '.join(found)}" if found else ""

    def _known(self) -> str:
        brokers = ", ".join(
            f"{each.id} at {each.address}" for each in self.metadata.brokers.values()
        )
        return f"those known are {brokers}" if brokers else "none is known yet"

    def _check_open(self) -> None:
        if self._closed:
            raise Unreachable("this client is closed")

    async def close(self) -> None:
        """Closes all connections; what is under way fails. They are closed, too, if who waits for
        it is cancelled.
        """
        self._closed = True
        self._refresher.stop()
        for each in self._peers.values():
            each.stop()
        await self._refresher.close()
        await asyncio.gather(*(each.close() for each in self._peers.values()))


def _together(failed: list[RotaError]) -> RotaError:
    """One error of many."""
    if len(failed) == 1:
        return failed[0]
    text = f"no broker can be reached: {'; '.join(dict.fromkeys(map(str, failed)))}"
    kind = type(failed[0])
    same = all(type(each) is kind for each in failed)
    return kind(text) if same and (kind is TimedOut or hopeless(failed[0])) else Unreachable(text)
