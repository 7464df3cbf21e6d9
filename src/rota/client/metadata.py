"""Cluster metadata: brokers, topics and leaders, and how the snapshot is kept fresh.

A snapshot never changes; ``MetadataRefresher`` replaces it. It sends one Metadata request at a
time, shared by all callers that wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple

from rota.client import retry
from rota.engine.model.config import Address, ClientConfig
from rota.engine.model.topic import Cluster, TopicPartition
from rota.errors import Code, Refused, RotaError, TimedOut, Unreachable
from rota.protocol.messages import ZERO_UUID, MetadataRequest, MetadataResponse

NOT_KNOWN: Final = -1  # a leader that does not exist; an epoch that is not reported


class BrokerMetadata(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


class PartitionMetadata(NamedTuple):
    """The replicas of a partition, whose number is the index in its topic."""

    leader: int
    leader_epoch: int = NOT_KNOWN
    replicas: tuple[int, ...] = ()
    error: int = Code.NONE


class TopicMetadata(NamedTuple):
    name: str
    id: bytes = ZERO_UUID
    internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()
    error: int = Code.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    cluster_id: str | None = None
    brokers: Mapping[int, BrokerMetadata] = field(default_factory=lambda: MappingProxyType({}))
    #: The requested topics; one that the broker does not describe has an error.
    topics: Mapping[str, TopicMetadata] = field(default_factory=lambda: MappingProxyType({}))

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def leader(self, tp: TopicPartition) -> int | None:
        """Returns the leader's id; None if it is unknown or not among the brokers."""
        found = self.partition(tp)
        return found.leader if found is not None and found.leader in self.brokers else None

    def topic_error(self, tp: TopicPartition) -> Refused | None:
        """Returns the error of a topic that a newer snapshot will not change, if there is one."""
        topic = self.topics.get(tp.topic)
        if topic is None or topic.error == Code.NONE or topic.error in retry.RETRIABLE_CODES:
            return None
        return retry.partition_error(topic.error, tp, "to look up")

    def cluster(self) -> Cluster:
        """Returns what assignors need: partition counts, and the racks of replicas."""
        topics = [each for each in self.topics.values() if not each.error]
        racks = {node.id: node.rack for node in self.brokers.values() if node.rack}
        placed: dict[str, list[list[str]]] = {}
        for topic in topics if racks else ():
            replicas = [each.replicas for each in topic.partitions]
            placed[topic.name] = [[racks[at] for at in each if at in racks] for each in replicas]
        return Cluster({each.name: len(each.partitions) for each in topics}, placed)


def merge_response(
    old: ClusterMetadata, response: MetadataResponse, *, whole: bool
) -> ClusterMetadata:
    """Returns the metadata after a response; a ``whole`` response has all topics that exist."""
    topics = {} if whole else dict(old.topics)
    for topic in response.topics:
        if topic.name is not None:
            topics[topic.name] = _merge_topic(topic.name, topic, old.topics.get(topic.name))
    brokers = {
        each.node_id: BrokerMetadata(each.node_id, each.host, each.port, each.rack)
        for each in response.brokers
    }
    return ClusterMetadata(
        cluster_id=response.cluster_id or old.cluster_id,
        # a broker that has just started may not know any broker yet
        brokers=MappingProxyType(brokers) if brokers else old.brokers,
        topics=MappingProxyType(topics),
    )


def without_topics(metadata: ClusterMetadata, topics: frozenset[str]) -> ClusterMetadata:
    left = {name: each for name, each in metadata.topics.items() if name not in topics}
    return replace(metadata, topics=MappingProxyType(left))


def _merge_topic(
    name: str, topic: MetadataResponse.MetadataResponseTopic, old: TopicMetadata | None
) -> TopicMetadata:
    # the epochs of a topic that was deleted and created again begin at 0
    known = old.partitions if old is not None and old.id == topic.topic_id else ()
    found = [PartitionMetadata(NOT_KNOWN, error=Code.LEADER_NOT_AVAILABLE)] * len(topic.partitions)
    for each in topic.partitions:
        number = each.partition_index
        if not 0 <= number < len(found):
            continue  # partitions are numbered without gaps: Kafka never sends this
        if number < len(known) and NOT_KNOWN < each.leader_epoch < known[number].leader_epoch:
            found[number] = known[number]  # the broker is behind: its leader is outdated (KIP-320)
            continue
        found[number] = PartitionMetadata(
            each.leader_id, each.leader_epoch, tuple(each.replica_nodes), each.error_code
        )
    return TopicMetadata(name, topic.topic_id, topic.is_internal, tuple(found), topic.error_code)


LOGGER = logging.getLogger("rota.client")
REBOOTSTRAP_REQUIRED = 129


@dataclass(slots=True)
class _RefreshRequest:
    topics: frozenset[str] | None
    create: bool
    deadline: float
    task: asyncio.Task[None] | None = None

    def covers(self, topics: frozenset[str] | None, *, create: bool) -> bool:
        """Returns whether the response is enough for a caller."""
        has_topics = self.topics is None or (topics is not None and topics <= self.topics)
        return has_topics and (self.create or not create)


class MetadataRefresher:
    def __init__(
        self,
        send: Callable[..., Awaitable[MetadataResponse]],
        config: ClientConfig,
        problems: Callable[[], str],
        reset_connections: Callable[[], None],
    ) -> None:
        """:param send: sends a request to any broker until a deadline
        :param problems: returns the errors of the last attempts to reach brokers
        """
        self._send, self._config = send, config
        self._problems, self._reset_connections = problems, reset_connections
        self.metadata = ClusterMetadata()
        self.listeners: list[Callable[[ClusterMetadata], None]] = []
        self._watched: frozenset[str] | None = frozenset()
        self._current_request: _RefreshRequest | None = None
        backoff = retry.Backoff.from_milliseconds
        self._pauses = backoff(config.retry_backoff, config.retry_backoff_max)
        self._failures = 0
        self._last_attempt = 0.0
        self._last_success = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._background: asyncio.Task[None] | None = None
        self._closed = False

    def watch_topics(self, topics: frozenset[str] | None) -> None:
        self._watched = topics
        if topics is not None and (gone := frozenset(self.metadata.topics) - topics):
            self.metadata = without_topics(self.metadata, gone)

    async def refresh(
        self, topics: frozenset[str] | None, deadline: float, *, create: bool
    ) -> ClusterMetadata:
        """Returns a snapshot that is newer than the call, with these topics."""
        if topics is not None and self._watched is not None:
            self._watched |= topics
        create = create and self._config.create_topics
        loop = self._loop = asyncio.get_running_loop()
        while True:
            request = self._current_request
            if request is None:
                wanted = self._watched if topics is not None else None
                request = self._current_request = _RefreshRequest(wanted, create, deadline)
                request.task = asyncio.ensure_future(self._run(request))
                request.task.add_done_callback(_retrieve_error)
            task = request.task
            assert task is not None
            try:
                # a request that ends before this deadline names the reason itself
                ends_later = request.deadline > deadline
                async with asyncio.timeout_at(deadline if ends_later else None):
                    await retry.wait_for_shared(task)
            except TimeoutError:
                why = self._problems()
                raise TimedOut(f"no broker returns metadata before the timeout{why}") from None
            except RotaError:
                if request.deadline >= deadline or loop.time() >= deadline:
                    raise
                continue  # another caller had less time
            except asyncio.CancelledError:
                if self._closed and task.cancelled():
                    raise Unreachable("this client is closed") from None
                raise
            if request.covers(topics, create=create):
                return self.metadata

    async def _run(self, request: _RefreshRequest) -> None:
        make, names = MetadataRequest.MetadataRequestTopic, request.topics
        topics = None if names is None else [make(name=name) for name in sorted(names)]
        message = MetadataRequest(topics=topics, allow_auto_topic_creation=request.create)
        loop = asyncio.get_running_loop()
        try:
            response = await self._send(message, deadline=request.deadline)
        except RotaError:
            self._rebootstrap_if_due(loop.time())
            raise
        finally:
            self._current_request = None
            self._last_attempt = loop.time()
        self._failures = 0
        self._last_success = self._last_attempt
        self._set_metadata(merge_response(self.metadata, response, whole=topics is None))
        if response.error_code == REBOOTSTRAP_REQUIRED:
            self._last_success = -math.inf  # the loop's clock may start at zero
            self._rebootstrap_if_due(self._last_attempt)

    def _rebootstrap_if_due(self, now: float) -> None:
        """Starts again from ``bootstrap.servers`` after a long failure or on request (KIP-1102)."""
        is_late = self._last_success + self._config.rebootstrap_trigger / 1000 <= now
        is_allowed = self._config.metadata_recovery_strategy == "rebootstrap"
        if is_late and is_allowed and self.metadata.brokers:
            LOGGER.warning("no metadata for long: the client starts again from bootstrap.servers")
            self.metadata = replace(self.metadata, brokers=MappingProxyType({}))
            self._reset_connections()

    def _set_metadata(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self._set_timer()
        for callback in list(self.listeners):
            try:
                callback(metadata)
            except Exception:
                LOGGER.exception("a metadata listener has failed")

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed:
            age = self._config.metadata_max_age / 1000
            self._timer = asyncio.get_running_loop().call_later(age, self.request_refresh)

    def request_refresh(self) -> None:
        """Refreshes the snapshot soon, unless a refresh is running."""
        if self._background is None and not self._closed:
            loop = self._loop or asyncio.get_running_loop()  # the loop may not run
            self._background = loop.create_task(self._refresh_in_background())

    async def _refresh_in_background(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._closed:
                pause = self._pauses.pause_after(self._failures + 1)
                await asyncio.sleep(self._last_attempt + pause - loop.time())
                deadline = loop.time() + self._config.request_timeout / 1000
                try:
                    await self.refresh(self._watched, deadline, create=False)
                except RotaError as error:
                    self._failures += 1
                    LOGGER.warning("the metadata cannot be refreshed: %s", error)
                    if retry.is_permanent(error):
                        self._set_timer()  # a request that needs metadata raises the error itself
                        return
                else:
                    return
        finally:
            self._background = None

    def begin_close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._running_tasks():
            task.cancel()

    async def close(self) -> None:
        self.begin_close()
        if left := self._running_tasks():
            await asyncio.wait(left)

    def _running_tasks(self) -> list[asyncio.Task[None]]:
        request = self._current_request
        tasks = [self._background, None if request is None else request.task]
        return [each for each in tasks if each is not None]


def _retrieve_error(task: asyncio.Task[None]) -> None:
    """Prevents asyncio's warning: all callers may have stopped waiting."""
    if not task.cancelled():
        task.exception()
