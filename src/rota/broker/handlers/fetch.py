"""Fetch: whole batches from an offset on, at once or as soon as there are enough bytes.

There are no fetch sessions (KIP-227): the answer to a client that wants one has the id 0, which
says so; it goes on with full requests, as it does with a Kafka that has no room for its session.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.handlers.partition import (
    NO_EPOCH,
    check_epoch,
    log_of,
    reason,
    topic_of,
    topic_with_id,
)
from rota.broker.longpoll import LongPoll, Partition
from rota.broker.part import Parts
from rota.broker.topic import Topic
from rota.errors import Code, DiskError, Refused
from rota.formats.batch import read_header
from rota.formats.buffer import Bytes
from rota.storage.log import Log
from rota.wire.api import Api
from rota.wire.message import FetchResponse, Message

SESSIONS_FROM = 7
STORAGE_ERROR_FROM = 6
TOPIC_IDS_FROM = 13
FULL = frozenset({0, -1})
"""Session epochs of requests that name all their partitions."""
READ_COMMITTED = 1


def handle(parts: Parts, call: Call) -> None:
    """Answers with what there is, or lets the call wait for more."""
    request = call.request
    if call.version >= SESSIONS_FROM and request.session_epoch not in FULL:
        return call.answer(_response(Code.FETCH_SESSION_ID_NOT_FOUND, []))
    fetch = Fetch(parts, call)
    poll = LongPoll(
        parts,
        call,
        until=call.now + request.max_wait_ms,
        look=fetch.look,
        partitions=fetch.partitions,
        refuse=refuse,
    )
    return poll.start()


def refuse(call: Call, code: Code) -> Message:
    """The error for the whole request, and below version 13 for each partition too."""
    topics = [
        FetchResponse.FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[_failed(each.partition, code) for each in topic.partitions],
        )
        for topic in call.request.topics
        if call.version < TOPIC_IDS_FROM
    ]
    return _response(code, topics)


@dataclass(slots=True)
class Reading:
    """How far one look through the partitions of a request has come."""

    left: int
    """Bytes that the response may still take."""
    size: int = 0
    urgent: bool = False
    """Something is to be told at once."""
    logs: list[tuple[Topic, int, Log]] = field(default_factory=list)
    """Those that were read, or were at their end."""


class Fetch:
    """A request for records; it is looked at once, and again when something was appended."""

    def __init__(self, parts: Parts, call: Call) -> None:
        request = call.request
        self._parts = parts
        self._call = call
        self._committed = request.isolation_level == READ_COMMITTED
        self._max_bytes = max(min(request.max_bytes, parts.config.max_fetch_bytes), 0)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._last: Reading | None = None
        self._length = 0
        """Of all logs together, at the last look."""

    def partitions(self) -> Iterator[Partition]:
        """Those that were found at the last look."""
        if self._last is not None:
            for topic, partition, _ in self._last.logs:
                yield topic.name, partition

    def look(self, time_is_up: bool) -> Message | None:
        """The response; None: there is too little to read yet."""
        if not time_is_up and self._last is not None:
            time_is_up = self._gone(self._last)
            if not time_is_up and self._hopeless(self._last):
                return None
        reading = Reading(self._max_bytes)
        answers = [self._topic(topic, reading) for topic in self._call.request.topics]
        enough = reading.size >= self._min_bytes
        if time_is_up or reading.urgent or enough or not reading.logs:
            return _response(Code.NONE, answers)
        self._last = reading
        self._length = _length(reading)
        return None

    def _gone(self, last: Reading) -> bool:
        """A topic was deleted, perhaps made anew: the client must know."""
        topics = self._parts.topics
        return any(topics.get(topic.name) is not topic for topic, _, _ in last.logs)

    def _hopeless(self, last: Reading) -> bool:
        """So little was appended that reading everything anew is in vain."""
        missing: int = self._min_bytes - last.size
        return 0 <= _length(last) - self._length < missing

    def _topic(self, asked: Message, reading: Reading) -> Message:
        topics = self._parts.topics
        try:
            topic = (
                topic_with_id(topics, asked.topic_id)
                if self._call.version >= TOPIC_IDS_FROM
                else topic_of(topics, asked.topic)
            )
            answers = [self._partition(topic, each, reading) for each in asked.partitions]
        except Refused as unknown:
            answers = [_failed(each.partition, unknown.code) for each in asked.partitions]
        return FetchResponse.FetchableTopicResponse(
            topic=asked.topic, topic_id=asked.topic_id, partitions=answers
        )

    def _partition(self, topic: Topic, asked: Message, reading: Reading) -> Message:
        number = asked.partition
        try:
            log = log_of(topic, number)
        except Refused as unknown:
            return _failed(number, unknown.code)
        try:
            answer = self._read(log, asked, reading)
        except (Refused, DiskError) as error:
            reading.urgent = True
            code, _ = reason(self._parts, error, f"{topic.name}-{number}")
            if code == Code.KAFKA_STORAGE_ERROR and self._call.version < STORAGE_ERROR_FROM:
                code = Code.NOT_LEADER_OR_FOLLOWER
            answer = _failed(number, code)
            answer.aborted_transactions = None
            return answer
        reading.logs.append((topic, number, log))
        return answer

    def _read(self, log: Log, asked: Message, reading: Reading) -> Message:
        """What a partition has from an offset on.

        :raises Refused: the log does not have this offset, or the client has another epoch
        :raises DiskError: it cannot be read
        """
        # below 0 is none, here alone in Kafka
        check_epoch(log, max(asked.current_leader_epoch, NO_EPOCH))
        answer = FetchResponse.PartitionData(
            partition_index=asked.partition,
            error_code=0,
            high_watermark=log.end,
            last_stable_offset=log.stable,
            log_start_offset=log.start,
            aborted_transactions=[] if self._committed else None,
            preferred_read_replica=-1,
            records=b"",
        )
        offset = asked.fetch_offset
        if asked.last_fetched_epoch > NO_EPOCH and _diverges(log, asked, answer):
            reading.urgent = True
            return answer
        if not log.start <= offset <= log.end:
            raise Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {log.start} and {log.end}",
            )
        to = log.stable if self._committed else log.end
        if offset >= to:
            return answer
        limit = max(min(asked.partition_max_bytes, reading.left), 0)
        # KIP-74: the first batch of the first partition that has one comes whole, whatever the
        # limits; else a client could wait for ever behind a batch larger than what it asks for
        first = reading.size == 0
        if limit or first:
            answer.records = log.read(offset, limit, at_least_one=first, to=to)
            size = len(answer.records)
            reading.size += size
            reading.left = max(reading.left - size, 0)
            if self._committed and size:
                answer.aborted_transactions = _aborted(log, offset, answer.records)
        return answer


def _diverges(log: Log, asked: Message, answer: Message) -> bool:
    """Does the log not have what the client read last (KIP-595)? Then it is told where they part.

    :raises Refused: nothing is known of the client's epoch, or the offset is gone
    """
    found = log.end_of_epoch(asked.last_fetched_epoch)
    if found is None or asked.fetch_offset < log.start:
        raise Refused(
            Code.OFFSET_OUT_OF_RANGE,
            f"offset {asked.fetch_offset} behind epoch {asked.last_fetched_epoch} is not there",
        )
    epoch, end = found
    if epoch >= asked.last_fetched_epoch and end >= asked.fetch_offset:
        return False
    answer.diverging_epoch = FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)
    return True


def _aborted(log: Log, first: int, records: Bytes) -> list[Message]:
    """The aborted transactions that reach into these batches."""
    known = log.aborted(first, log.stable)
    if not known:
        return []
    last = _last_offset(records)
    return [
        FetchResponse.AbortedTransaction(producer_id=producer, first_offset=began)
        for producer, began in known
        if began <= last
    ]


def _last_offset(records: Bytes) -> int:
    view, position, last = memoryview(records), 0, -1
    while position < len(view):
        head = read_header(view, position)
        position += head.size
        last = head.last_offset
    return last


def _length(reading: Reading) -> int:
    return sum(log.size for _, _, log in reading.logs)


def _failed(partition: int, code: Code) -> Message:
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


def _response(code: Code, topics: list[Message]) -> Message:
    return FetchResponse(throttle_time_ms=0, error_code=code, session_id=0, responses=topics)


HANDLERS = (Handler(api=Api.FETCH, lowest=4, highest=18, handle=handle, refuse=refuse),)
