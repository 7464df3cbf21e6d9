"""A client of a whole cluster: sends requests to any broker, a partition's leader or a group's
coordinator.

``ClusterClient`` holds the metadata and one ``BrokerEndpoint`` for each broker address and purpose,
which opens its connection when it is needed. Coordinators have connections of their own.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from rota import errors
from rota.client import retry
from rota.client.connection import BrokerConnection, ConnectionContext
from rota.client.metadata import BrokerMetadata, ClusterMetadata, MetadataRefresher
from rota.client.retry import Backoff, is_permanent, wait_for_shared
from rota.engine.model.config import Address, ClientConfig
from rota.engine.model.topic import TopicPartition
from rota.errors import Code, RotaError, TimedOut, Unreachable
from rota.protocol.messages import Api, FindCoordinatorRequest, Message, Request
from rota.protocol.schemas import ResponseT, api_name

#: Added to errors of a broker whose address comes from the metadata.
ADVERTISED_HINT = (
    ". This address is not in bootstrap.servers: it is the broker's advertised.listeners, which "
    "must be an address that this client can reach (from outside of a container, the container's "
    "own name cannot be reached)"
)


class ClusterClient:
    """A client for the event loop in which it is first used. Deadlines are times of its clock."""

    def __init__(self, config: ClientConfig, *, quiet: bool = False) -> None:
        """:param quiet: failures to connect are logged at debug level only"""
        self.config = config
        self._context = ConnectionContext(config, quiet=quiet)
        #: by address and purpose: a long poll must not delay a heartbeat
        self._endpoints: dict[tuple[Address, str], BrokerEndpoint] = {}
        send = partial(self.send, Api.METADATA)
        problems, reset = self._connection_problems, self._reset_connections
        self._refresher = MetadataRefresher(send, config, problems, reset)
        #: Callbacks that the loop runs with every new snapshot.
        self.metadata_listeners = self._refresher.listeners
        self._coordinators: dict[str, CoordinatorNode] = {}
        self.backoff = Backoff.from_milliseconds(config.retry_backoff, config.retry_backoff_max)
        self._closed = False

    @property
    def metadata(self) -> ClusterMetadata:
        return self._refresher.metadata

    async def refresh(
        self, topics: Iterable[str] | None, *, deadline: float, create: bool = False
    ) -> ClusterMetadata:
        """Returns a new snapshot; concurrent callers share the request.

        :param topics: requested now and in every later refresh; None: all topics, this time
        :param create: the broker may create missing topics, if ``allow.auto.create.topics`` is set
        :raises Unreachable: no broker has responded in time
        """
        wanted = None if topics is None else frozenset(topics)
        return await self._refresher.refresh(wanted, deadline, create=create)

    def request_refresh(self) -> None:
        """Refreshes the snapshot soon, not more often than ``retry.backoff.ms`` allows."""
        self._refresher.request_refresh()

    def watch_topics(self, topics: Iterable[str] | None) -> None:
        """Sets the topics that every refresh requests; None: all topics."""
        self._refresher.watch_topics(topics if topics is None else frozenset(topics))

    def deadline_after(self, timeout: float | None = None) -> float:
        """Returns the time this many seconds from now; None: ``default.api.timeout.ms``."""
        seconds = self.config.api_timeout / 1000 if timeout is None else timeout
        return asyncio.get_running_loop().time() + seconds

    def request_deadline(self) -> float:
        return self.deadline_after(self.config.request_timeout / 1000)

    async def send(
        self,
        api: Api,
        request: Request[ResponseT],
        *,
        node: int | None = None,
        deadline: float,
        most: int | None = None,
    ) -> ResponseT:
        """Sends a request and returns the response. Without one, ``request.timeout.ms`` closes the
        connection; an earlier deadline ends the wait only.

        :param node: the broker; one attempt to connect, after the backoff of the last failure, so
            that the caller can look up who leads now. None: any broker, with attempts until the
            deadline
        :param most: the highest version to be used
        :raises Unreachable: the broker cannot be reached, or the connection was lost
        :raises TimedOut: no response in time
        :raises Refused: the broker does not serve the API, or not in a version that Rota speaks
        """
        if node is not None:
            connection = await self.connect(node, deadline=deadline)
            return await self.send_over(connection, api, request, deadline, most=most)
        failures, problem = 0, None
        while True:
            try:
                connection = await self.connect(deadline=deadline)
            except TimedOut:
                if problem is None:
                    raise
                raise TimedOut(str(problem)) from problem  # the reason of the last attempt
            try:
                return await self.send_over(connection, api, request, deadline, most=most)
            except Unreachable as error:
                failures, problem = failures + 1, error
                if not await self.pause(failures, deadline):
                    raise

    async def pause(self, failures: int, deadline: float) -> bool:
        """Waits after a number of failures in a row; False, at once, if the deadline is earlier."""
        seconds = self.backoff.pause_after(failures)
        if asyncio.get_running_loop().time() + seconds >= deadline:
            return False
        await asyncio.sleep(seconds)
        return True

    async def send_over(
        self,
        connection: BrokerConnection,
        api: Api,
        request: Request[ResponseT],
        deadline: float,
        *,
        most: int | None = None,
    ) -> ResponseT:
        """Sends a request over a connection, as :meth:`send` does."""
        close_at = self.request_deadline()
        response = connection.send(api, request, deadline=close_at, most=most)
        try:
            async with asyncio.timeout_at(None if close_at <= deadline else deadline):
                return await response
        except TimeoutError:
            text = f"{connection.name}: no answer to {api_name(api)} before the timeout"
            raise TimedOut(text) from None

    async def find_leader(self, tp: TopicPartition, deadline: float) -> int:
        """Waits for the leader of a partition; raises TimedOut if it has none in time."""
        failures = 0
        while (leader := self.metadata.leader(tp)) is None:
            problem = f"{tp} has no leader{self._topic_problem(tp)}"
            if failures and not await self.pause(failures, deadline):
                raise TimedOut(f"{problem}, before the timeout")
            failures += 1
            try:
                await self.refresh((tp.topic,), deadline=deadline)
            except TimedOut as error:
                raise TimedOut(f"{problem}: {error}") from error
        return leader

    def _topic_problem(self, tp: TopicPartition) -> str:
        """Returns why a partition may have no leader; raises what another request cannot change."""
        if (error := self.metadata.topic_error(tp)) is not None:
            raise error
        topic = self.metadata.topics.get(tp.topic)
        if topic is None or topic.error == Code.NONE:
            return ""
        if topic.error == Code.UNKNOWN_TOPIC_OR_PARTITION:
            return f": there is no topic {tp.topic!r}"
        return f": {error_name(topic.error)}"

    def forget_coordinator(self, group: str) -> None:
        self._coordinators.pop(group, None)

    async def find_coordinator(self, group: str, deadline: float) -> CoordinatorNode:
        """Returns a group's coordinator, from the cache or from a broker; raises TimedOut."""
        failures, code = 0, 0
        kind, keys = GROUP_KEY_TYPE, [group]
        request = FindCoordinatorRequest(key=group, key_type=kind, coordinator_keys=keys)
        while group not in self._coordinators:
            try:
                response = await self.send(Api.FIND_COORDINATOR, request, deadline=deadline)
            except TimedOut as error:
                if code:  # the last error code explains more than the timeout
                    raise _coordinator_timeout(group, code) from error
                raise
            coordinator = response.coordinators[0] if response.coordinators else response
            if coordinator.error_code == Code.NONE:
                node = BrokerMetadata(coordinator.node_id, coordinator.host, coordinator.port)
                endpoint = self.endpoint(node, "coordinator")
                self._coordinators[group] = CoordinatorNode(node, endpoint)
                break
            failures, code = failures + 1, coordinator.error_code
            if code == Code.GROUP_AUTHORIZATION_FAILED:
                text = f"no permission for group {group!r}"
                raise errors.AuthorizationFailed(Code.GROUP_AUTHORIZATION_FAILED, text)
            if code not in COORDINATOR_CODES:
                text = f"the coordinator of group {group!r} cannot be found"
                raise errors.GroupError(f"{text}: error {error_name(code)}", code)
            if not await self.pause(failures, deadline):
                raise _coordinator_timeout(group, code)
        return self._coordinators[group]

    async def send_to_coordinator(
        self,
        group: str,
        api: Api,
        request: Request[ResponseT],
        deadline: float,
        *,
        most: int | None = None,
    ) -> ResponseT:
        """Sends a repeatable request to a group's coordinator; finds it again if it has moved."""
        failures = 0
        while True:
            failures += 1
            coordinator = await self.find_coordinator(group, deadline)
            try:
                connection = await coordinator.endpoint.connect(deadline)
                response = await self.send_over(connection, api, request, deadline, most=most)
            except Unreachable as error:
                self.forget_coordinator(group)
                if is_permanent(error) or not await self.pause(failures, deadline):
                    raise
                continue
            codes = collect_error_codes(response)
            if codes & MOVED_CODES:
                self.forget_coordinator(group)
            if not codes & COORDINATOR_CODES or not await self.pause(failures, deadline):
                return response

    async def connect(
        self, node: int | None = None, *, use: str = "", deadline: float
    ) -> BrokerConnection:
        """Returns an open connection to a broker; None: to any broker. Each purpose (``use``) has
        its own. Raises Unreachable with every attempt if there is no connection in time.
        """
        self._check_open()
        if node is None:
            return await self._connect_anywhere(deadline)
        known = self.metadata.brokers.get(node)
        if known is None:
            self.request_refresh()
            raise Unreachable(f"broker {node} is not known: {self._describe_brokers()}")
        try:
            return await self.endpoint(known, use).connect(deadline)
        except Unreachable:
            self.request_refresh()
            raise

    def open_connection(self, node: int, use: str = "") -> BrokerConnection | None:
        known = self.metadata.brokers.get(node)
        return None if known is None else self.endpoint(known, use).connection

    def endpoint(self, node: BrokerMetadata, use: str = "") -> BrokerEndpoint:
        hint = "" if node.address in self.config.bootstrap_servers else ADVERTISED_HINT
        return self._endpoint(node.address, use, f"broker {node.id} at {node.address}", hint)

    def _endpoint(self, address: Address, use: str, name: str, hint: str = "") -> BrokerEndpoint:
        if (address, use) not in self._endpoints:
            endpoint = BrokerEndpoint(address, self._context, name, hint)
            self._endpoints[address, use] = endpoint
        return self._endpoints[address, use]

    async def _connect_anywhere(self, deadline: float) -> BrokerConnection:
        if connections := self._shared_connections():
            return min(connections, key=lambda each: each.in_flight)
        while True:
            attempts = [partial(each.connect, deadline) for each in self._candidates()]
            found, failed = await retry.first_success(attempts)
            if found is not None:
                return found
            self._check_open()
            for error in failed:
                if isinstance(error, errors.Refused | errors.InputError):
                    raise error  # every broker would refuse
            if all(map(is_permanent, failed)) or asyncio.get_running_loop().time() >= deadline:
                raise _combine_errors(failed)

    def _candidates(self) -> list[BrokerEndpoint]:
        """Known brokers, then ``bootstrap.servers`` (KIP-899); the last to fail come last."""
        endpoints = [self.endpoint(node) for node in self.metadata.brokers.values()]
        random.shuffle(endpoints)  # clients that start together use different brokers
        bootstrap: list[BrokerEndpoint] = []
        if not endpoints or self.config.metadata_recovery_strategy == "rebootstrap":
            bootstrap = [
                self._endpoint(each, "", f"{each} of bootstrap.servers")
                for each in self.config.bootstrap_servers
            ]
            random.shuffle(bootstrap)
        return sorted(dict.fromkeys(endpoints + bootstrap), key=lambda each: each.next_attempt_at)

    def _shared_connections(self) -> list[BrokerConnection]:
        """Returns the open connections without a special purpose."""
        shared = [each.connection for (_, use), each in self._endpoints.items() if not use]
        return [each for each in shared if each is not None]

    def _reset_connections(self) -> None:
        for each in self._shared_connections():
            each.close_when_idle()

    def _connection_problems(self) -> str:
        shared = [each for (_, use), each in self._endpoints.items() if not use]
        problems = dict.fromkeys(each.problem_text for each in shared)
        return f": {'; '.join(problems)}" if problems else ""

    def _describe_brokers(self) -> str:
        brokers = [f"{each.id} at {each.address}" for each in self.metadata.brokers.values()]
        return f"those known are {', '.join(brokers)}" if brokers else "none is known yet"

    def _check_open(self) -> None:
        if self._closed:
            raise Unreachable("this client is closed")

    async def close(self) -> None:
        """Closes all connections, even if the caller is cancelled; requests in flight fail."""
        self._closed = True
        self._refresher.begin_close()
        for each in self._endpoints.values():
            each.begin_close()
        await self._refresher.close()
        await asyncio.gather(*(each.close() for each in self._endpoints.values()))


def _combine_errors(failed: list[RotaError]) -> RotaError:
    if len(failed) == 1:
        return failed[0]
    text = f"no broker can be reached: {'; '.join(dict.fromkeys(map(str, failed)))}"
    first = type(failed[0])
    is_certain = first is TimedOut or is_permanent(failed[0])
    return first(text) if is_certain and set(map(type, failed)) == {first} else Unreachable(text)


LOGGER = logging.getLogger("rota.client")


class BrokerEndpoint:
    """A broker's address, its connection, and the outcome of the last attempts to connect."""

    def __init__(
        self, address: Address, context: ConnectionContext, name: str, hint: str = ""
    ) -> None:
        """:param name: how error messages call the broker; ``hint``: added if it is unreachable"""
        self.address = address
        self.name = name
        self._hint = hint
        self._context = context
        config = self._config = context.config
        self._connection: BrokerConnection | None = None
        self._opening: asyncio.Task[BrokerConnection] | None = None
        self._opening_connection: BrokerConnection | None = None
        backoff, first_timeout = Backoff.from_milliseconds, config.connect_timeout
        self._reconnect_backoff = backoff(config.reconnect_backoff, config.reconnect_backoff_max)
        self._connect_timeout = backoff(first_timeout, config.connect_timeout_max)
        self._silence_timeout = backoff(first_timeout // 2, config.request_timeout)
        self._failures = 0
        self._was_kafka = False
        self._closed = False
        #: No attempt before this time of the loop's clock.
        self.next_attempt_at = 0.0
        self.problem: RotaError | None = None

    @property
    def connection(self) -> BrokerConnection | None:
        found = self._connection
        return found if found is not None and found.is_usable else None

    async def connect(self, deadline: float) -> BrokerConnection:
        """Returns the connection, opened by one attempt for all callers; raises Unreachable."""
        if (found := self.connection) is not None:
            return found
        if self._closed:
            raise Unreachable(f"{self.name}: this client is closed")
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        try:
            async with asyncio.timeout_at(deadline):
                return await wait_for_shared(opening)
        except TimeoutError:
            raise TimedOut(self.problem_text) from self.problem
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling() > 0):
                raise  # the caller was cancelled, not the attempt
            raise Unreachable(f"{self.name}: this client is closed") from None

    @property
    def problem_text(self) -> str:
        """Returns why there is no connection, for a caller whose deadline is over."""
        if self.problem is not None:
            return str(self.problem)
        if self._opening_connection is None:
            return f"{self.name}: no answer before the timeout"
        return str(self._opening_connection.timeout_error("before the timeout"))

    async def _open(self) -> BrokerConnection:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.next_attempt_at - loop.time())
        connect_timeout = self._connect_timeout.pause_after(self._failures + 1)
        probe_after = self._silence_timeout.pause_after(self._failures + 1)
        longest = self._config.request_timeout / 1000
        if self._was_kafka:
            probe_after = longest  # a server that was Kafka before may be slow now
        deadline = loop.time() + max(connect_timeout, longest)
        made = self._opening_connection = BrokerConnection(self.address, self._context, self.name)
        try:
            await made.establish(
                deadline, connect_timeout=connect_timeout, probe_after=probe_after, hint=self._hint
            )
        except errors.NotKafka as error:
            if error.certain or not self._was_kafka:
                raise
            # a proxy before a dead broker accepts a connection, and closes it or is silent
            raise Unreachable(f"{self.name}: the broker does not answer any more") from error
        finally:
            self._opening_connection = None
        return made

    def _opened(self, task: asyncio.Task[BrokerConnection]) -> None:
        self._opening = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self._connection, self._failures, self.problem = task.result(), 0, None
            self._was_kafka = True
            if self._closed:  # it was opened just before close() was called
                self._connection.close()
            return
        self._failures += 1
        pause = self._reconnect_backoff.pause_after(self._failures)
        self.next_attempt_at = asyncio.get_running_loop().time() + pause
        if self.problem is None or str(self.problem) != str(error):
            LOGGER.log(self._context.log_level, "%s", error)  # once for many attempts
        self.problem = error if isinstance(error, RotaError) else Unreachable(str(error))

    def begin_close(self) -> None:
        if self._closed:
            return  # a second cancellation would interrupt the cleanup of the first
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        self.begin_close()
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if self._connection is not None:
            await self._connection.close_and_wait()


GROUP_KEY_TYPE = 0
MOVED_CODES = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})  # it moved
COORDINATOR_CODES = MOVED_CODES | {Code.COORDINATOR_LOAD_IN_PROGRESS}


class CoordinatorNode(NamedTuple):
    node: BrokerMetadata
    endpoint: BrokerEndpoint


def _coordinator_timeout(group: str, code: int) -> TimedOut:
    name = error_name(code)
    return TimedOut(f"the coordinator of group {group!r} is not there before the timeout: {name}")


def collect_error_codes(message: Message) -> set[int]:
    """Returns all error codes of a response, at any depth."""
    found = {message.error_code} if hasattr(message, "error_code") else set()
    for field in message.STRUCT.fields:
        if field.struct is not None and field.is_array:
            for each in getattr(message, field.name) or ():
                found |= collect_error_codes(each)
    return found


def error_name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return str(code)
