"""Fetch: whole batches from an offset on, at once or as soon as there are enough bytes.

The broker keeps no fetch sessions (KIP-227): a client that asks for one gets the session id 0, and
goes on with full requests, as it does with a Kafka that has no room for its session.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.broker.dispatch import Handler, ServerRequest
from rota.broker.storage.log import Log
from rota.broker.topics import Topic, check_leader_epoch, find_log, find_topic
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import read_batch_header
from rota.engine.model.topic import NO_LEADER_EPOCH
from rota.errors import Code, DiskError, Refused
from rota.protocol.messages import FetchRequest, FetchResponse

SESSION_VERSION = 7
STORAGE_ERROR_VERSION = 6
TOPIC_ID_VERSION = 13
FULL_FETCH_EPOCHS = frozenset({0, -1})  # session epochs of requests that name all their partitions
READ_COMMITTED = 1


def _handle_fetch(request: ServerRequest[FetchRequest]) -> None:
    if request.version >= SESSION_VERSION and request.body.session_epoch not in FULL_FETCH_EPOCHS:
        request.respond(FetchResponse(error_code=Code.FETCH_SESSION_ID_NOT_FOUND))
    else:
        PendingFetch(request).start()


def _refuse_fetch(request: ServerRequest[FetchRequest], code: Code) -> FetchResponse:
    """Returns the error for the whole request, and below version 13 for each partition too."""
    topics = [
        FetchResponse.FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[_fetch_error(each.partition, code) for each in topic.partitions],
        )
        for topic in request.body.topics
        if request.version < TOPIC_ID_VERSION
    ]
    return FetchResponse(error_code=code, responses=topics)


@dataclass(slots=True)
class FetchPass:
    bytes_left: int
    size: int = 0
    respond_now: bool = False  # an error or a diverging epoch: it must not wait
    logs: list[tuple[Topic, int, Log]] = field(default_factory=list)  # read to the end

    def total_log_size(self) -> int:
        return sum(log.size for _, _, log in self.logs)


class PendingFetch:
    """A Fetch that is tried at once, and again after appends until its time is up. An append only
    queues the request. So an error here does not reach the producer whose append woke the request,
    the producer's response leaves first, and each woken request waits until there is room for its
    response. Several appends before the next try cause one try.
    """

    def __init__(self, request: ServerRequest[FetchRequest]) -> None:
        body = request.body
        self._context = request.context
        self._request = request
        self._committed = body.isolation_level == READ_COMMITTED
        self._max_bytes = max(min(body.max_bytes, request.context.config.max_fetch_bytes), 0)
        self._min_bytes = min(body.min_bytes, self._max_bytes)
        self._deadline = request.now + body.max_wait_ms
        self._time_is_up = self._deadline <= request.now
        self._last_pass: FetchPass | None = None
        self._last_size = 0
        self._watched: tuple[tuple[str, int], ...] | None = None

    def start(self) -> None:
        self._request.client.on_disconnect = self._stop
        self._queue()

    def _queue(self) -> None:
        self._request.resume_later(self._try_respond)

    def _time_out(self, _: int) -> None:
        self._time_is_up = True
        self._queue()

    def _try_respond(self) -> None:
        response = self._read()
        if response is not None:
            self._stop()
            self._request.respond(response)
        elif self._watched is None:
            assert self._last_pass is not None
            logs = self._last_pass.logs
            self._watched = tuple(dict.fromkeys((topic.name, number) for topic, number, _ in logs))
            for name, partition in self._watched:
                self._context.topics.watch(name, partition, self._queue)
            self._context.timers.start(self, self._deadline, self._time_out)

    def _stop(self) -> None:
        self._request.stop_waiting()
        if self._watched is not None:
            self._context.timers.stop(self)
            for name, partition in self._watched:
                self._context.topics.unwatch(name, partition, self._queue)

    def _read(self) -> FetchResponse | None:
        """Returns the response; None if there are too few bytes yet."""
        time_is_up = self._time_is_up
        last = self._last_pass
        if not time_is_up and last is not None:
            # a topic was deleted, perhaps created again: the client must know
            topics = self._context.topics
            time_is_up = any(topics.get(topic.name) is not topic for topic, _, _ in last.logs)
            appended = last.total_log_size() - self._last_size
            if not time_is_up and 0 <= appended < self._min_bytes - last.size:
                return None
        reading = FetchPass(self._max_bytes)
        topics_read = [self._read_topic(topic, reading) for topic in self._request.body.topics]
        enough = reading.size >= self._min_bytes
        if time_is_up or reading.respond_now or enough or not reading.logs:
            return FetchResponse(responses=topics_read)
        self._last_pass = reading
        self._last_size = reading.total_log_size()
        return None

    def _read_topic(
        self, requested: FetchRequest.FetchTopic, reading: FetchPass
    ) -> FetchResponse.FetchableTopicResponse:
        topic_id = requested.topic_id if self._request.version >= TOPIC_ID_VERSION else None
        try:
            topic = find_topic(self._context.topics, requested.topic, topic_id)
            results = [self._read_partition(topic, each, reading) for each in requested.partitions]
        except Refused as unknown:
            results = [_fetch_error(each.partition, unknown.code) for each in requested.partitions]
        return FetchResponse.FetchableTopicResponse(
            topic=requested.topic, topic_id=requested.topic_id, partitions=results
        )

    def _read_partition(
        self, topic: Topic, requested: FetchRequest.FetchPartition, reading: FetchPass
    ) -> FetchResponse.PartitionData:
        number = requested.partition
        try:
            log = find_log(topic, number)
        except Refused as unknown:
            return _fetch_error(number, unknown.code)
        try:
            data = self._read_log(log, requested, reading)
        except (Refused, DiskError) as error:
            reading.respond_now = True
            code, _ = self._request.explain_error(error, f"{topic.name}-{number}")
            if code == Code.KAFKA_STORAGE_ERROR and self._request.version < STORAGE_ERROR_VERSION:
                code = Code.NOT_LEADER_OR_FOLLOWER
            data = _fetch_error(number, code)
            data.aborted_transactions = None
            return data
        reading.logs.append((topic, number, log))
        return data

    def _read_log(
        self, log: Log, requested: FetchRequest.FetchPartition, reading: FetchPass
    ) -> FetchResponse.PartitionData:
        # only in Fetch, Kafka takes any negative epoch for none
        check_leader_epoch(log, max(requested.current_leader_epoch, NO_LEADER_EPOCH))
        data = FetchResponse.PartitionData(
            partition_index=requested.partition,
            high_watermark=log.log_end_offset,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._committed else None,
            records=b"",
        )
        offset = requested.fetch_offset
        if requested.last_fetched_epoch > NO_LEADER_EPOCH:
            data.diverging_epoch = _find_diverging_epoch(log, requested)
            if data.diverging_epoch is not None:
                reading.respond_now = True
                return data
        if not log.log_start_offset <= offset <= log.log_end_offset:
            text = f"offset {offset} is not within {log.log_start_offset} and {log.log_end_offset}"
            raise Refused(Code.OFFSET_OUT_OF_RANGE, text)
        to = log.last_stable_offset if self._committed else log.log_end_offset
        if offset >= to:
            return data
        limit = max(min(requested.partition_max_bytes, reading.bytes_left), 0)
        # KIP-74: the first batch of the response comes whole, whatever the limits; otherwise a
        # client could wait for ever for a batch that is larger than its limits
        first = reading.size == 0
        if limit or first:
            records = data.records = log.read(offset, limit, at_least_one=first, to=to)
            size = len(records)
            reading.size += size
            reading.bytes_left = max(reading.bytes_left - size, 0)
            if self._committed and size:
                data.aborted_transactions = _find_aborted(log, offset, records)
        return data


def _find_diverging_epoch(
    log: Log, requested: FetchRequest.FetchPartition
) -> FetchResponse.EpochEndOffset | None:
    """Returns where the log and the client's records diverge (KIP-595); None if they do not."""
    offset, last_epoch = requested.fetch_offset, requested.last_fetched_epoch
    epoch_end = log.end_offset_for_epoch(last_epoch)
    if epoch_end is None or offset < log.log_start_offset:
        text = f"the log has no offset {offset} after epoch {last_epoch}"
        raise Refused(Code.OFFSET_OUT_OF_RANGE, text)
    epoch, end = epoch_end
    if epoch >= last_epoch and end >= offset:
        return None
    return FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end)


def _find_aborted(log: Log, first: int, records: Bytes) -> list[FetchResponse.AbortedTransaction]:
    aborted = log.aborted_transactions(first, log.last_stable_offset)
    if not aborted:
        return []
    view, position, last_offset = memoryview(records), 0, -1
    while position < len(view):
        header = read_batch_header(view, position)
        position += header.size
        last_offset = header.last_offset
    return [
        FetchResponse.AbortedTransaction(producer_id=producer, first_offset=start)
        for producer, start in aborted
        if start <= last_offset
    ]


def _fetch_error(partition: int, code: Code) -> FetchResponse.PartitionData:
    return FetchResponse.PartitionData(
        partition_index=partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=[],
        records=b"",
    )


HANDLERS = (Handler(FetchRequest, 4, 18, _handle_fetch, _refuse_fetch),)
