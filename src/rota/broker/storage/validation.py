"""What a batch must be before a log appends it (Kafka's ``LogValidator``).

All of it is in the header, and the checksum says that the rest is as it was sent. Records are
decoded only where a compacted topic needs their keys, or a timestamp is out of bounds: a batch is
stored as the producer made it.
"""

from __future__ import annotations

from rota.broker.storage.file_records import DecodeBudget
from rota.engine.formats.buffer import Bytes
from rota.engine.formats.record_batch import (
    ATTRIBUTES_OFFSET,
    COMPRESSION_CODEC_MASK,
    CONTROL_FLAG_MASK,
    CRC_FIELD,
    CRC_OFFSET,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    CompressionType,
    describe_magic,
    load_crc32c,
)
from rota.engine.model.config import TopicConfig
from rota.errors import Code, Refused

#: Bytes of a record without key and value: a length and six fields.
MIN_RECORD_BYTES = 7

KNOWN_CODECS = frozenset(CompressionType)

#: Records that are named one by one when a batch is refused.
MAX_RECORD_ERRORS = 1_000


def validate_batch(
    batch: Bytes, config: TopicConfig, now: int, allowance: DecodeBudget
) -> BatchHeader:
    """The head of a batch as a producer sent it.

    :param allowance: for looking at its records, where that must be
    :raises Refused: the topic does not take it
    """
    if len(batch) < HEADER.size:
        raise Refused(
            Code.CORRUPT_MESSAGE, f"a batch has {HEADER.size} bytes at least, this has {len(batch)}"
        )
    head = BatchHeader._make(HEADER.unpack_from(batch))
    if head.magic != MAGIC:
        raise Refused(Code.INVALID_RECORD, describe_magic(head.magic))
    _check_size(head, len(batch), config)
    made = load_crc32c()(memoryview(batch)[ATTRIBUTES_OFFSET:])
    if made != head.checksum:
        raise Refused(
            Code.CORRUPT_MESSAGE, f"checksum {made:08x}, the batch says {head.checksum:08x}"
        )
    _check_header(head, len(batch))
    _check_timestamps(batch, head, config, now, allowance)
    if config.is_compacted:
        _check_keys(batch, head, allowance)
    return head


def assign_offset(
    batch: Bytes, head: BatchHeader, offset: int, epoch: int, append_time: int | None
) -> tuple[bytearray, BatchHeader]:
    """A batch as it is stored: with its offset and epoch, and the time if the broker's counts."""
    head = head._replace(base_offset=offset, leader_epoch=epoch)
    stored = bytearray(batch)
    if append_time is None:
        HEADER.pack_into(stored, 0, *head)
        return stored, head
    attributes = head.attributes | TIMESTAMP_TYPE_MASK
    head = head._replace(attributes=attributes, max_timestamp=append_time)
    HEADER.pack_into(stored, 0, *head)
    head = head._replace(checksum=load_crc32c()(memoryview(stored)[ATTRIBUTES_OFFSET:]))
    CRC_FIELD.pack_into(stored, CRC_OFFSET, head.checksum)
    return stored, head


def _check_size(head: BatchHeader, size: int, config: TopicConfig) -> None:
    if head.length != size - LOG_OVERHEAD:
        if head.length > size - LOG_OVERHEAD:
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


def _check_header(head: BatchHeader, size: int) -> None:
    codec = head.attributes & COMPRESSION_CODEC_MASK
    problem = None
    if codec not in KNOWN_CODECS:
        raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} is not known")
    if head.base_offset:
        problem = f"base offset {head.base_offset}, a producer sends 0"
    elif head.record_count <= 0 or head.record_count != head.last_offset_delta + 1:
        problem = f"{head.record_count} records, but offsets 0 to {head.last_offset_delta}"
    elif (
        codec == CompressionType.NONE and head.record_count * MIN_RECORD_BYTES > size - HEADER.size
    ):
        problem = f"{head.record_count} records in {size - HEADER.size} bytes"
    elif head.attributes & CONTROL_FLAG_MASK:
        problem = "a client may not write control records"
    elif head.producer_id >= 0 and head.base_sequence < 0:
        problem = f"producer {head.producer_id} without a sequence"
    if problem is not None:
        raise Refused(Code.INVALID_RECORD, problem)


def _check_timestamps(
    batch: Bytes, head: BatchHeader, config: TopicConfig, now: int, allowance: DecodeBudget
) -> None:
    if head.attributes & TIMESTAMP_TYPE_MASK:
        raise Refused(Code.INVALID_TIMESTAMP, "a producer may not set the time of the append")
    if config.timestamp_type == "LogAppendTime":
        return
    earliest, latest = now - config.timestamp_before_max, now + config.timestamp_after_max
    for timestamp in (head.base_timestamp, head.max_timestamp):
        if timestamp != -1 and not earliest <= timestamp <= latest:
            found = allowance.decode_batch(batch, head).timestamp
            rows = ((found != -1) & ((found < earliest) | (found > latest))).nonzero()[0]
            problem = f"is not within {earliest} and {latest}"
            raise Refused(
                Code.INVALID_TIMESTAMP,
                f"timestamp {timestamp} {problem}",
                records=tuple(
                    (row, f"timestamp {found[row]} {problem}")
                    for row in rows[:MAX_RECORD_ERRORS].tolist()
                ),
            )


def _check_keys(batch: Bytes, head: BatchHeader, allowance: DecodeBudget) -> None:
    columns = allowance.decode_batch(batch, head)
    if columns.problems:
        raise Refused(Code.CORRUPT_MESSAGE, columns.problems[0].text)
    rows = (columns.key_size < 0).nonzero()[0][:MAX_RECORD_ERRORS].tolist()
    if rows:
        raise Refused(
            Code.INVALID_RECORD,
            f"record {rows[0]} has no key, which a compacted topic needs",
            records=tuple((row, "no key") for row in rows),
        )
