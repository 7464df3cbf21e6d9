"""Fetch: whole batches from an offset on, at once or as soon as there are enough bytes.

There are no fetch sessions (KIP-227): a client that asks for one gets the session id 0, and goes on
with full requests, as it does with a Kafka that has no room for its session.

:class:`LongPoll` holds a Fetch back until enough was appended or its time is up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from rota.broker.dispatch import ERROR, Handler, HandlerContext, ServerRequest, explain_error
from rota.broker.storage.log import Log
from rota.broker.topics import (
    NO_LEADER_EPOCH,
    Topic,
    check_leader_epoch,
    find_log,
    find_topic,
    find_topic_by_id,
)
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import read_batch_header
from rota.errors import Code, DiskError, Refused
from rota.protocol.messages import Api, FetchResponse, Message

SESSION_VERSION = 7

STORAGE_ERROR_VERSION = 6

TOPIC_ID_VERSION = 13

#: Session epochs of requests that name all their partitions.
FULL_FETCH_EPOCHS = frozenset({0, -1})

READ_COMMITTED = 1


def handle_fetch(parts: HandlerContext, call: ServerRequest) -> None:
    """Answers with what there is, or lets the call wait for more."""
    request = call.request
    if call.version >= SESSION_VERSION and request.session_epoch not in FULL_FETCH_EPOCHS:
        return call.answer(_fetch_response(Code.FETCH_SESSION_ID_NOT_FOUND, []))
    fetch = PendingFetch(parts, call)
    poll = LongPoll(
        parts,
        call,
        until=call.now + request.max_wait_ms,
        look=fetch.try_answer,
        partitions=fetch.partitions,
        refuse=refuse_fetch,
    )
    return poll.start()


def refuse_fetch(call: ServerRequest, code: Code) -> Message:
    """The error for the whole request, and below version 13 for each partition too."""
    topics = [
        FetchResponse.FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[_fetch_error(each.partition, code) for each in topic.partitions],
        )
        for topic in call.request.topics
        if call.version < TOPIC_ID_VERSION
    ]
    return _fetch_response(code, topics)


@dataclass(slots=True)
class FetchPass:
    """The progress of one pass over the partitions of a Fetch."""

    #: Bytes that the response may still take.
    bytes_left: int
    size: int = 0
    #: Something is to be told at once.
    answer_now: bool = False
    #: Those that were read, or were at their end.
    logs: list[tuple[Topic, int, Log]] = field(default_factory=list)


class PendingFetch:
    """A Fetch that is tried once, and again when something was appended."""

    def __init__(self, parts: HandlerContext, call: ServerRequest) -> None:
        request = call.request
        self._parts = parts
        self._call = call
        self._committed = request.isolation_level == READ_COMMITTED
        self._max_bytes = max(min(request.max_bytes, parts.config.max_fetch_bytes), 0)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._last: FetchPass | None = None
        #: Of all logs together, at the last look.
        self._length = 0

    def partitions(self) -> Iterator[PartitionKey]:
        """Those that were found at the last look."""
        if self._last is not None:
            for topic, partition, _ in self._last.logs:
                yield topic.name, partition

    def try_answer(self, time_is_up: bool) -> Message | None:
        """The response; None: there is too little to read yet."""
        if not time_is_up and self._last is not None:
            time_is_up = self._topic_was_replaced(self._last)
            if not time_is_up and self._still_too_little(self._last):
                return None
        reading = FetchPass(self._max_bytes)
        answers = [self._read_topic(topic, reading) for topic in self._call.request.topics]
        enough = reading.size >= self._min_bytes
        if time_is_up or reading.answer_now or enough or not reading.logs:
            return _fetch_response(Code.NONE, answers)
        self._last = reading
        self._length = _total_log_size(reading)
        return None

    def _topic_was_replaced(self, last: FetchPass) -> bool:
        """A topic was deleted, perhaps made anew: the client must know."""
        topics = self._parts.topics
        return any(topics.get(topic.name) is not topic for topic, _, _ in last.logs)

    def _still_too_little(self, last: FetchPass) -> bool:
        """So little was appended that reading everything anew is in vain."""
        missing: int = self._min_bytes - last.size
        return 0 <= _total_log_size(last) - self._length < missing

    def _read_topic(self, asked: Message, reading: FetchPass) -> Message:
        topics = self._parts.topics
        try:
            topic = (
                find_topic_by_id(topics, asked.topic_id)
                if self._call.version >= TOPIC_ID_VERSION
                else find_topic(topics, asked.topic)
            )
            answers = [self._read_partition(topic, each, reading) for each in asked.partitions]
        except Refused as unknown:
            answers = [_fetch_error(each.partition, unknown.code) for each in asked.partitions]
        return FetchResponse.FetchableTopicResponse(
            topic=asked.topic, topic_id=asked.topic_id, partitions=answers
        )

    def _read_partition(self, topic: Topic, asked: Message, reading: FetchPass) -> Message:
        number = asked.partition
        try:
            log = find_log(topic, number)
        except Refused as unknown:
            return _fetch_error(number, unknown.code)
        try:
            answer = self._read_log(log, asked, reading)
        except (Refused, DiskError) as error:
            reading.answer_now = True
            code, _ = explain_error(self._parts, error, f"{topic.name}-{number}")
            if code == Code.KAFKA_STORAGE_ERROR and self._call.version < STORAGE_ERROR_VERSION:
                code = Code.NOT_LEADER_OR_FOLLOWER
            answer = _fetch_error(number, code)
            answer.aborted_transactions = None
            return answer
        reading.logs.append((topic, number, log))
        return answer

    def _read_log(self, log: Log, asked: Message, reading: FetchPass) -> Message:
        """What a partition has from an offset on.

        :raises Refused: the log does not have this offset, or the client has another epoch
        :raises DiskError: it cannot be read
        """
        # below 0 is none, here alone in Kafka
        check_leader_epoch(log, max(asked.current_leader_epoch, NO_LEADER_EPOCH))
        answer = FetchResponse.PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=log.log_end_offset,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._committed else None,
            preferred_read_replica=-1,
            records=b"",
        )
        offset = asked.fetch_offset
        if asked.last_fetched_epoch > NO_LEADER_EPOCH and _set_diverging_epoch(log, asked, answer):
            reading.answer_now = True
            return answer
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {log.log_start_offset} and {log.log_end_offset}",
            )
        to = log.last_stable_offset if self._committed else log.log_end_offset
        if offset >= to:
            return answer
        limit = max(min(asked.partition_max_bytes, reading.bytes_left), 0)
        # KIP-74: the first batch of the first partition that has one comes whole, whatever the
        # limits; else a client could wait for ever behind a batch larger than what it asks for
        first = reading.size == 0
        if limit or first:
            answer.records = log.read(offset, limit, at_least_one=first, to=to)
            size = len(answer.records)
            reading.size += size
            reading.bytes_left = max(reading.bytes_left - size, 0)
            if self._committed and size:
                answer.aborted_transactions = _find_aborted(log, offset, answer.records)
        return answer


def _set_diverging_epoch(log: Log, asked: Message, answer: Message) -> bool:
    """Does the log not have what the client read last (KIP-595)? Then it is told where they part.

    :raises Refused: nothing is known of the client's epoch, or the offset is gone
    """
    found = log.end_offset_for_epoch(asked.last_fetched_epoch)
    if found is None or asked.fetch_offset < log.log_start_offset:
        raise Refused(
            Code.OFFSET_OUT_OF_RANGE,
            f"offset {asked.fetch_offset} behind epoch {asked.last_fetched_epoch} is not there",
        )
    epoch, end = found
    if epoch >= asked.last_fetched_epoch and end >= asked.fetch_offset:
        return False
    answer.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
    return True


def _find_aborted(log: Log, first: int, records: Bytes) -> list[Message]:
    """The aborted transactions that reach into these batches."""
    known = log.aborted_transactions(first, log.last_stable_offset)
    if not known:
        return []
    last = _find_last_offset(records)
    return [
        FetchResponse.AbortedTransaction(producer_id=producer, first_offset=began)
        for producer, began in known
        if began <= last
    ]


def _find_last_offset(records: Bytes) -> int:
    view, position, last = memoryview(records), 0, -1
    while position < len(view):
        head = read_batch_header(view, position)
        position += head.size
        last = head.last_offset
    return last


def _total_log_size(reading: FetchPass) -> int:
    return sum(log.size for _, _, log in reading.logs)


def _fetch_error(partition: int, code: Code) -> Message:
    return FetchResponse.PartitionData(
        partition_index=partition,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[],
        preferred_read_replica=-1,
        records=b"",
    )


def _fetch_response(code: Code, topics: list[Message]) -> Message:
    return FetchResponse(throttle_time_ms=0, error_code=code, session_id=0, responses=topics)


HANDLERS = (
    Handler(
        api=Api.FETCH,
        min_version=4,
        max_version=18,
        handle=handle_fetch,
        error_response=refuse_fetch,
    ),
)

#: A topic's name and a partition's number.
PartitionKey: TypeAlias = tuple[str, int]

#: The response, or None: not yet. It is told whether the time is up; then it must not be None.
TryAnswer: TypeAlias = Callable[[bool], Message | None]


class LongPoll:
    """Tries to answer, and tries again after every append, but once for all appends of one request.

    An append only queues the request. So an error here does not reach the producer whose append
    woke it, that producer's response leaves first, and of many woken requests each waits until
    there is room.
    """

    def __init__(  # noqa: PLR0913, what to look for, how long, and how to answer
        self,
        parts: HandlerContext,
        call: ServerRequest,
        *,
        until: int,
        look: TryAnswer,
        partitions: Callable[[], Iterable[PartitionKey]],
        refuse: Callable[[ServerRequest, Code], Message],
    ) -> None:
        """:param until: when the time is up
        :param partitions: gives those to wait for, after the first look
        """
        self._parts = parts
        self._call = call
        self._until = until
        self._try_answer = look
        self._partitions = partitions
        self._refuse = refuse
        self._time_is_up = until <= call.now
        self._watched: tuple[PartitionKey, ...] | None = None

    def start(self) -> None:
        """Asks for its first turn."""
        self._call.client.on_disconnect = self._stop
        self._request_turn()

    def _request_turn(self) -> None:
        self._parts.ready_queue.add(self, self._run_turn)

    def _time_out(self, _: int) -> None:
        self._time_is_up = True
        self._request_turn()

    def _run_turn(self) -> None:
        try:
            response = self._try_answer(self._time_is_up)
        except Exception as error:  # noqa: BLE001 a fault of one request must not end the broker
            call = self._call
            text = f"{call.api.name} v{call.version}: {type(error).__name__}: {error}"
            self._parts.log(ERROR, text)
            response = self._refuse(call, Code.UNKNOWN)
        if response is not None:
            self._stop()
            self._call.answer(response)
        elif self._watched is None:
            self._wait()

    def _wait(self) -> None:
        self._watched = tuple(dict.fromkeys(self._partitions()))
        for name, partition in self._watched:
            self._parts.topics.watch(name, partition, self._request_turn)
        self._parts.timers.start(self, self._until, self._time_out)

    def _stop(self) -> None:
        self._call.client.on_disconnect = None
        self._parts.ready_queue.remove(self)
        if self._watched is not None:
            self._parts.timers.stop(self)
            for name, partition in self._watched:
                self._parts.topics.unwatch(name, partition, self._request_turn)
