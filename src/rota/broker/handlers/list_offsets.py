"""ListOffsets: the first and last offset of a partition, or the first at or after a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rota.broker.call import Call
from rota.broker.dispatch import Handler
from rota.broker.handlers.partition import check_epoch, log_of, reason, topic_of
from rota.broker.part import ERROR, WARNING, Parts
from rota.errors import Code, DiskError, Refused
from rota.storage.allowance import Allowance
from rota.storage.log import Log
from rota.wire.api import Api
from rota.wire.message import ListOffsetsResponse, Message

FIRST_VERSIONS = {
    -1: 1,  # the end
    -2: 1,  # the start
    -3: 7,  # the newest record (KIP-734)
    -4: 8,  # the start of what is on this broker's disks (KIP-405)
    -5: 9,  # the end of what is kept elsewhere (KIP-1005)
    -6: 11,  # the start of what is to be copied there (KIP-1023)
}
"""What may be asked for in place of a time, and since which version."""
NEVER = 1 << 15
CONSUMER = -1
READ_COMMITTED = 1
ENDS = frozenset({-1, -2, -4, -5, -6})
"""What is known without a look into the log."""
SLICE = 16 << 20
"""Bytes that are unpacked before others get their turn; one partition may take more."""
LOOK = 1 << 16
"""To find a place in a log counts as unpacking so many."""
UNKNOWN = (-1, -1, -1)
"""The offset, time and epoch where there is none."""


def handle(parts: Parts, call: Call) -> None:
    """Looks each partition up."""
    _Search(parts, call).go_on()


def refuse(call: Call, code: Code) -> Message:
    """The error for each partition."""
    topics = [
        ListOffsetsResponse.ListOffsetsTopicResponse(
            name=topic.name, partitions=[_failed(each, code) for each in topic.partitions]
        )
        for topic in call.request.topics
    ]
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


class _Search:
    """Goes through the partitions, and gives way to other requests after some work."""

    def __init__(self, parts: Parts, call: Call) -> None:
        self._parts = parts
        self._call = call
        self._topics = [
            ListOffsetsResponse.ListOffsetsTopicResponse(name=each.name, partitions=[])
            for each in call.request.topics
        ]
        self._steps = self._run()

    def go_on(self) -> None:
        """Does a part of the work; answers when all is done."""
        left = SLICE
        for work in self._steps:
            left -= work
            if left <= 0:
                self._call.client.gone = self._stop
                return self._parts.turns.add(self, self._take, long=True)
        return self._end(ListOffsetsResponse(throttle_time_ms=0, topics=self._topics))

    def _run(self) -> Iterator[int]:
        """After each partition how much work it was."""
        asked = Counter(
            (topic.name, partition.partition_index)
            for topic in self._call.request.topics
            for partition in topic.partitions
        )
        for topic, answer in zip(self._call.request.topics, self._topics, strict=True):
            for each in topic.partitions:
                if asked[topic.name, each.partition_index] > 1:
                    answer.partitions.append(_failed(each, Code.INVALID_REQUEST))
                    continue
                found, work = _partition(self._parts, self._call, topic.name, each)
                answer.partitions.append(found)
                yield work

    def _take(self) -> None:
        try:
            self.go_on()
        except Exception as error:  # noqa: BLE001 a fault of one request must not end the broker
            text = f"ListOffsets v{self._call.version}: {type(error).__name__}: {error}"
            self._parts.log(ERROR, text)
            self._end(refuse(self._call, Code.UNKNOWN))

    def _end(self, response: Message) -> None:
        self._call.client.gone = None
        self._call.answer(response)

    def _stop(self) -> None:
        self._parts.turns.drop(self)


def _partition(parts: Parts, call: Call, name: str, asked: Message) -> tuple[Message, int]:
    """The answer, and how much work it was."""
    where = f"{name}-{asked.partition_index}"
    work = 0
    try:
        log = _log(parts, call, name, asked)
        allowance = log.allowance()
        try:
            offset, timestamp, epoch = _before(log, _end(call, log), asked.timestamp, allowance)
        finally:
            work = allowance.spent + (LOOK if asked.timestamp not in ENDS else 0)
    except (Refused, DiskError) as error:
        code, text = reason(parts, error, where)
        if code is Code.MESSAGE_TOO_LARGE:
            parts.log(WARNING, f"{where}: no offset was found by time: {text}")
        return _failed(asked, code), work
    return ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=0,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    ), work


def _log(parts: Parts, call: Call, name: str, asked: Message) -> Log:
    """The log that is asked for.

    :raises Refused: the request is wrong
    """
    if asked.timestamp < 0 and call.version < FIRST_VERSIONS.get(asked.timestamp, NEVER):
        raise Refused(
            Code.UNSUPPORTED_VERSION,
            f"version {call.version} has no meaning for the time {asked.timestamp}",
        )
    log = log_of(topic_of(parts.topics, name), asked.partition_index)
    check_epoch(log, asked.current_leader_epoch)
    return log


def _end(call: Call, log: Log) -> int:
    """Where the log ends for this client."""
    request = call.request
    committed = request.replica_id == CONSUMER and request.isolation_level == READ_COMMITTED
    return log.stable if committed else log.end


def _before(log: Log, end: int, time: int, allowance: Allowance) -> tuple[int, int, int]:
    """The offset, its time and its leader's epoch, of what is before an end.

    :raises Refused: what must be read for that is damaged, or is too much work
    :raises DiskError: the log cannot be read
    """
    match time:
        case -1:
            return end, -1, log.epochs.latest
        case -2 | -4:
            return log.start, -1, log.epochs.at(log.start)
        case -5 | -6:  # nothing is kept elsewhere
            return UNKNOWN
        case -3:
            found = log.newest(allowance)
        case _:
            found = log.offset_for_time(time, allowance)
    if found is None or found[0] >= end:
        return UNKNOWN
    offset, timestamp = found
    return offset, timestamp, log.epochs.at(offset)


def _failed(asked: Message, code: Code) -> Message:
    return ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=code,
        timestamp=-1,
        offset=-1,
        leader_epoch=-1,
    )


HANDLERS = (Handler(api=Api.LIST_OFFSETS, lowest=1, highest=11, handle=handle, refuse=refuse),)
