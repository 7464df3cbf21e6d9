"""Cluster metadata: brokers, topics and leaders, and how the snapshot is kept fresh.

A snapshot never changes; ``MetadataRefresher`` replaces it. It sends one Metadata request at a
time, shared by all callers that wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from rota.client.retry import (
    RETRIABLE_CODES,
    Backoff,
    is_permanent,
    partition_error,
    wait_for_shared,
)
from rota.engine.model.config import Address, ClientConfig
from rota.engine.model.topic import Cluster, TopicPartition
from rota.errors import Code, Refused, RotaError, TimedOut, Unreachable
from rota.protocol.messages import ZERO_UUID, MetadataRequest, MetadataResponse

#: The leader of a partition that has none, and the epoch of one who does not say.
NOT_KNOWN: Final = -1


class BrokerMetadata(NamedTuple):
    """A broker, where it says it is (``advertised.listeners``)."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        """Where it says it is."""
        return Address(self.host, self.port)


class PartitionMetadata(NamedTuple):
    """Who has a partition. Its number is its place in the topic."""

    leader: int
    leader_epoch: int = NOT_KNOWN
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    error: int = Code.NONE


class TopicMetadata(NamedTuple):
    """A topic as a broker has told of it."""

    name: str
    id: bytes = ZERO_UUID
    internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()
    error: int = Code.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """A snapshot of the cluster."""

    cluster_id: str | None = None
    controller: int = NOT_KNOWN
    brokers: Mapping[int, BrokerMetadata] = field(default_factory=lambda: MappingProxyType({}))
    #: Those that were asked for, with the error of each that cannot be told of.
    topics: Mapping[str, TopicMetadata] = field(default_factory=lambda: MappingProxyType({}))

    def partition(self, tp: TopicPartition) -> PartitionMetadata | None:
        """What is known of a partition; None if that is nothing."""
        topic = self.topics.get(tp.topic)
        known = topic is not None and 0 <= tp.partition < len(topic.partitions)
        return topic.partitions[tp.partition] if topic is not None and known else None

    def leader(self, tp: TopicPartition) -> int | None:
        """The broker that leads a partition, if one is known that is there."""
        found = self.partition(tp)
        return found.leader if found is not None and found.leader in self.brokers else None

    def topic_error(self, tp: TopicPartition) -> Refused | None:
        """Returns the error of a topic that a newer snapshot will not change, if there is one."""
        topic = self.topics.get(tp.topic)
        if topic is None or topic.error == Code.NONE or topic.error in RETRIABLE_CODES:
            return None
        return partition_error(topic.error, tp, "to look up")

    def cluster(self) -> Cluster:
        """What assignors need: how many partitions each topic has, and their replicas' racks."""
        good = {name: each for name, each in self.topics.items() if not each.error}
        racks = {node.id: node.rack for node in self.brokers.values() if node.rack}
        placed: dict[str, list[list[str]]] = {}
        for topic in good.values() if racks else ():
            replicas = [each.replicas for each in topic.partitions]
            placed[topic.name] = [[racks[at] for at in each if at in racks] for each in replicas]
        return Cluster({name: len(each.partitions) for name, each in good.items()}, placed)


def merge_response(
    old: ClusterMetadata, response: MetadataResponse, *, whole: bool
) -> ClusterMetadata:
    """Returns the metadata after a response.

    :param whole: the response has all topics, so topics that it lacks do not exist any more
    """
    topics = {} if whole else dict(old.topics)
    for told in response.topics:
        if told.name is not None:
            topics[told.name] = _merge_topic(told.name, told, old.topics.get(told.name))
    brokers = {
        each.node_id: BrokerMetadata(each.node_id, each.host, each.port, each.rack)
        for each in response.brokers
    }
    return ClusterMetadata(
        cluster_id=response.cluster_id or old.cluster_id,
        controller=response.controller_id,
        # a broker that has just started may not know any yet: those known are better than none
        brokers=MappingProxyType(brokers) if brokers else old.brokers,
        topics=MappingProxyType(topics),
    )


def without_topics(metadata: ClusterMetadata, topics: frozenset[str]) -> ClusterMetadata:
    """The same without some topics."""
    left = {name: each for name, each in metadata.topics.items() if name not in topics}
    return replace(metadata, topics=MappingProxyType(left))


def _merge_topic(
    name: str, told: MetadataResponse.MetadataResponseTopic, old: TopicMetadata | None
) -> TopicMetadata:
    # a topic that was deleted and made anew begins with its epochs at 0 again
    same = old is not None and old.id == told.topic_id
    known = old.partitions if old is not None and same else ()
    found = [PartitionMetadata(NOT_KNOWN, error=Code.LEADER_NOT_AVAILABLE)] * len(told.partitions)
    for each in told.partitions:
        number = each.partition_index
        if not 0 <= number < len(found):
            continue  # they are numbered without gaps: no Kafka says this
        found[number] = PartitionMetadata(
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            each.error_code,
        )
        if number < len(known) and NOT_KNOWN < each.leader_epoch < known[number].leader_epoch:
            # a broker that lags behind: its leader was followed by the one known (KIP-320)
            found[number] = known[number]
    return TopicMetadata(name, told.topic_id, told.is_internal, tuple(found), told.error_code)


LOGGER = logging.getLogger("rota.client")

#: Kafka's code.
REBOOTSTRAP_REQUIRED = 129


class AskAnyBroker(Protocol):
    """Asks any broker."""

    def __call__(
        self, request: MetadataRequest, /, *, deadline: float
    ) -> Awaitable[MetadataResponse]:
        """The answer."""


@dataclass(slots=True)
class _RefreshRequest:
    """One request, and what it asks for."""

    topics: frozenset[str] | None
    create: bool
    deadline: float
    task: asyncio.Task[None] | None = None

    def covers(self, topics: frozenset[str] | None, *, create: bool) -> bool:
        """Does its answer serve who wants this?"""
        enough = self.topics is None or (topics is not None and topics <= self.topics)
        return enough and (self.create or not create)


class MetadataRefresher:
    """Holds the current snapshot, and decides when it is refreshed."""

    def __init__(
        self,
        ask: AskAnyBroker,
        config: ClientConfig,
        problems: Callable[[], str],
        begin_again: Callable[[], None],
    ) -> None:
        """Knows nothing yet.

        :param problems: what has come of the last tries to reach brokers
        :param begin_again: forgets the connections to those known
        """
        self._reset_connections = begin_again
        self.metadata = ClusterMetadata()
        self.listeners: list[Callable[[ClusterMetadata], None]] = []
        self._ask = ask
        self._config = config
        self._problems = problems
        self._watched: frozenset[str] | None = frozenset()
        self._current_request: _RefreshRequest | None = None
        self._pauses = Backoff.from_milliseconds(config.retry_backoff, config.retry_backoff_max)
        self._failures = 0
        #: When the last request was answered or given up.
        self._last_attempt = 0.0
        #: When the last was answered.
        self._last_success = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._background: asyncio.Task[None] | None = None
        self._closed = False

    def watch_topics(self, topics: frozenset[str] | None) -> None:
        """Watches these and no others."""
        self._watched = topics
        if topics is not None:
            gone = frozenset(self.metadata.topics) - topics
            if gone:
                self.metadata = without_topics(self.metadata, gone)

    async def refresh(
        self, topics: frozenset[str] | None, deadline: float, *, create: bool
    ) -> ClusterMetadata:
        """A snapshot that is newer than the call, with these topics."""
        if topics is not None and self._watched is not None:
            self._watched |= topics
        create = create and self._config.create_topics
        loop = self._loop = asyncio.get_running_loop()
        while True:
            under_way = self._current_request
            if under_way is None:
                wanted = self._watched if topics is not None else None
                under_way = self._current_request = _RefreshRequest(wanted, create, deadline)
                under_way.task = asyncio.ensure_future(self._run(under_way))
                under_way.task.add_done_callback(_retrieve_error)
            task = under_way.task
            assert task is not None
            try:
                # one that ends by then says why; the others are given up here
                shared = under_way.deadline > deadline
                async with asyncio.timeout_at(deadline if shared else None):
                    await wait_for_shared(task)
            except TimeoutError:
                why = self._problems()
                raise TimedOut(f"no broker tells of the cluster in the time given{why}") from None
            except RotaError:
                if under_way.deadline >= deadline or loop.time() >= deadline:
                    raise
                continue  # it was given up by who had less time
            except asyncio.CancelledError:
                if self._closed and task.cancelled():
                    raise Unreachable("this client is closed") from None
                raise
            if under_way.covers(topics, create=create):
                return self.metadata

    async def _run(self, under_way: _RefreshRequest) -> None:
        topics = under_way.topics
        request = MetadataRequest(
            topics=None
            if topics is None
            else [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)],
            allow_auto_topic_creation=under_way.create,
        )
        loop = asyncio.get_running_loop()
        try:
            response = await self._ask(request, deadline=under_way.deadline)
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
            self._last_success = 0.0
            self._rebootstrap_if_due(self._last_attempt)

    def _rebootstrap_if_due(self, now: float) -> None:
        """Starts again from ``bootstrap.servers`` (KIP-1102).

        If no metadata was received for ``metadata.recovery.rebootstrap.trigger.ms``, or a broker
        asks for it.
        """
        late = self._last_success + self._config.rebootstrap_trigger / 1000 <= now
        if (
            late
            and self._config.metadata_recovery_strategy == "rebootstrap"
            and self.metadata.brokers
        ):
            LOGGER.warning("the cluster is looked for anew, by bootstrap.servers")
            self.metadata = replace(self.metadata, brokers=MappingProxyType({}))
            self._reset_connections()

    def _set_metadata(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self._set_timer()
        for callback in list(self.listeners):
            try:
                callback(metadata)
            except Exception:
                LOGGER.exception("a listener of metadata has failed")

    def _set_timer(self) -> None:
        """Renews what is known when it is old."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._closed:
            age = self._config.metadata_max_age / 1000
            self._timer = asyncio.get_running_loop().call_later(age, self.request_refresh)

    def request_refresh(self) -> None:
        """Renews the snapshot soon; nothing happens if that is under way."""
        if self._background is None and not self._closed:
            loop = self._loop or asyncio.get_running_loop()  # it may be at rest
            self._background = loop.create_task(self._refresh_in_background())

    async def _refresh_in_background(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._closed:
                pause = (
                    self._last_attempt + self._pauses.pause_after(self._failures + 1) - loop.time()
                )
                await asyncio.sleep(pause)
                patience = self._config.request_timeout / 1000
                try:
                    watched = self._watched
                    await self.refresh(watched, loop.time() + patience, create=False)
                except RotaError as error:
                    self._failures += 1
                    LOGGER.warning("the cluster's metadata is not renewed: %s", error)
                    if is_permanent(error):
                        self._set_timer()  # who needs it before meets the error itself
                        return
                else:
                    return
        finally:
            self._background = None

    def begin_close(self) -> None:
        """Cancels what is under way."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._under_way():
            task.cancel()

    async def close(self) -> None:
        """Ends what is under way, and waits for that."""
        self.begin_close()
        if left := self._under_way():
            await asyncio.wait(left)

    def _under_way(self) -> list[asyncio.Task[None]]:
        tasks = [
            self._background,
            None if self._current_request is None else self._current_request.task,
        ]
        return [each for each in tasks if each is not None]


def _retrieve_error(task: asyncio.Task[None]) -> None:
    """Those who waited may be gone: then nobody needs to hear of its error."""
    if not task.cancelled():
        task.exception()
