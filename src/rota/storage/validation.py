"""What a batch must be before a log takes it from a producer.

All of it is in the head, and the checksum says that the rest is as it was sent. Records are looked
at only where a compacted topic needs their keys: a batch is kept as the producer made it.
"""

from __future__ import annotations

from rota.errors import Code, Refused
from rota.formats.batch import Codec
from rota.formats.batch.checksum import function
from rota.formats.batch.header import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    CHECKSUM,
    CHECKSUM_AT,
    CODEC_BITS,
    CONTROL_BIT,
    HEAD,
    MAGIC,
    PREFIX,
    magic_problem,
)
from rota.formats.buffer import Bytes
from rota.model.config import TopicConfig
from rota.storage.allowance import Allowance
from rota.storage.scan import Head

SHORTEST_RECORD = 7
"""Bytes of a record without key and value: a length and six fields."""
CODECS = frozenset(Codec)
MOST_NAMED = 1_000
"""Records that are named one by one when a batch is refused."""


def check(batch: Bytes, config: TopicConfig, now: int, allowance: Allowance) -> Head:
    """The head of a batch as a producer sent it.

    :param allowance: for looking at its records, where that must be
    :raises Refused: the topic does not take it
    """
    if len(batch) < HEAD.size:
        raise Refused(
            Code.CORRUPT_MESSAGE, f"a batch has {HEAD.size} bytes at least, this has {len(batch)}"
        )
    head = Head._make(HEAD.unpack_from(batch))
    if head.magic != MAGIC:
        raise Refused(Code.INVALID_RECORD, magic_problem(head.magic))
    _check_size(head, len(batch), config)
    made = function()(memoryview(batch)[ATTRIBUTES_AT:])
    if made != head.checksum:
        raise Refused(
            Code.CORRUPT_MESSAGE, f"checksum {made:08x}, the batch says {head.checksum:08x}"
        )
    _check_head(head, len(batch))
    _check_times(batch, head, config, now, allowance)
    if config.compacted:
        _check_keys(batch, head, allowance)
    return head


def stamped(
    batch: Bytes, head: Head, offset: int, epoch: int, append_time: int | None
) -> tuple[bytearray, Head]:
    """A batch as it is stored: with its offset and epoch, and the time if the broker's counts."""
    head = head._replace(base_offset=offset, leader_epoch=epoch)
    stored = bytearray(batch)
    if append_time is None:
        HEAD.pack_into(stored, 0, *head)
        return stored, head
    attributes = head.attributes | APPEND_TIME_BIT
    head = head._replace(attributes=attributes, max_timestamp=append_time)
    HEAD.pack_into(stored, 0, *head)
    head = head._replace(checksum=function()(memoryview(stored)[ATTRIBUTES_AT:]))
    CHECKSUM.pack_into(stored, CHECKSUM_AT, head.checksum)
    return stored, head


def _check_size(head: Head, size: int, config: TopicConfig) -> None:
    if head.length != size - PREFIX:
        if head.length > size - PREFIX:
            code, text = Code.CORRUPT_MESSAGE, f"cut: {size} bytes of {head.size}"
        else:
            code, text = Code.INVALID_RECORD, f"one batch has {head.size} bytes of {size}"
        raise Refused(code, text)
    if size > config.max_message_bytes:
        raise Refused(
            Code.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise Refused(
            Code.RECORD_LIST_TOO_LARGE,
            f"a batch of {size} bytes, segment.bytes is {config.segment_bytes}",
        )


def _check_head(head: Head, size: int) -> None:
    codec = head.attributes & CODEC_BITS
    problem = None
    if codec not in CODECS:
        raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} is not known")
    if head.base_offset:
        problem = f"base offset {head.base_offset}, a producer sends 0"
    elif head.records <= 0 or head.records != head.last_offset_delta + 1:
        problem = f"{head.records} records, but offsets 0 to {head.last_offset_delta}"
    elif codec == Codec.NONE and head.records * SHORTEST_RECORD > size - HEAD.size:
        problem = f"{head.records} records in {size - HEAD.size} bytes"
    elif head.attributes & CONTROL_BIT:
        problem = "a client may not write control records"
    elif head.producer_id >= 0 and head.base_sequence < 0:
        problem = f"producer {head.producer_id} without a sequence"
    if problem is not None:
        raise Refused(Code.INVALID_RECORD, problem)


def _check_times(
    batch: Bytes, head: Head, config: TopicConfig, now: int, allowance: Allowance
) -> None:
    if head.attributes & APPEND_TIME_BIT:
        raise Refused(Code.INVALID_TIMESTAMP, "a producer may not set the time of the append")
    if config.timestamp_type == "LogAppendTime":
        return
    earliest, latest = now - config.timestamps_before, now + config.timestamps_after
    for timestamp in (head.base_timestamp, head.max_timestamp):
        if timestamp != -1 and not earliest <= timestamp <= latest:
            found = allowance.decode(batch, head).timestamp
            rows = ((found != -1) & ((found < earliest) | (found > latest))).nonzero()[0]
            problem = f"is not within {earliest} and {latest}"
            raise Refused(
                Code.INVALID_TIMESTAMP,
                f"timestamp {timestamp} {problem}",
                records=tuple(
                    (row, f"timestamp {found[row]} {problem}") for row in rows[:MOST_NAMED].tolist()
                ),
            )


def _check_keys(batch: Bytes, head: Head, allowance: Allowance) -> None:
    columns = allowance.decode(batch, head)
    if columns.problems:
        raise Refused(Code.CORRUPT_MESSAGE, columns.problems[0].text)
    rows = (columns.key_size < 0).nonzero()[0][:MOST_NAMED].tolist()
    if rows:
        raise Refused(
            Code.INVALID_RECORD,
            f"record {rows[0]} has no key, which a compacted topic needs",
            records=tuple((row, "no key") for row in rows),
        )
