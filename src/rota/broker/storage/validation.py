"""Checks a batch before the log appends it (Kafka's ``LogValidator``).

The checks use the header, and the checksum covers the rest. Records are decoded only if a compacted
topic needs their keys, or a timestamp is out of bounds: a batch is stored as the producer made it.
"""

from __future__ import annotations

from rota.broker.storage.file_records import DecodeBudget, describe_mismatch
from rota.engine.formats import record_batch
from rota.engine.formats.buffer import Bytes
from rota.engine.model.config import TopicConfig
from rota.errors import Code, Refused

KNOWN_CODECS = frozenset(record_batch.CompressionType)
#: Records that an error response lists one by one.
MAX_RECORD_ERRORS = 1_000


def validate_batch(
    batch: Bytes, config: TopicConfig, now: int, budget: DecodeBudget
) -> record_batch.BatchHeader:
    """Returns the header of a producer's batch; raises Refused if the topic does not accept it."""
    if len(batch) < record_batch.HEADER.size:
        raise Refused(
            Code.CORRUPT_MESSAGE,
            f"{len(batch)} bytes are too few, a batch has {record_batch.HEADER.size}",
        )
    header = record_batch.BatchHeader._make(record_batch.HEADER.unpack_from(batch))
    if header.magic != record_batch.MAGIC:
        raise Refused(Code.INVALID_RECORD, record_batch.describe_magic(header.magic))
    _check_size(header, len(batch), config)
    computed = record_batch.load_crc32c()(memoryview(batch)[record_batch.ATTRIBUTES_OFFSET :])
    if computed != header.checksum:
        raise Refused(Code.CORRUPT_MESSAGE, describe_mismatch(header, computed))
    _check_header(header, len(batch))
    _check_timestamps(batch, header, config, now, budget)
    if config.is_compacted:
        _check_keys(batch, header, budget)
    return header


def assign_offset(
    batch: Bytes, header: record_batch.BatchHeader, offset: int, epoch: int, append_time: int | None
) -> tuple[bytearray, record_batch.BatchHeader]:
    """Returns the batch as it is stored: with offset and epoch; with LogAppendTime the time."""
    header = header._replace(base_offset=offset, leader_epoch=epoch)
    stored = bytearray(batch)
    if append_time is None:
        record_batch.HEADER.pack_into(stored, 0, *header)
        return stored, header
    attributes = header.attributes | record_batch.TIMESTAMP_TYPE_MASK
    header = header._replace(attributes=attributes, max_timestamp=append_time)
    record_batch.HEADER.pack_into(stored, 0, *header)
    header = header._replace(
        checksum=record_batch.load_crc32c()(memoryview(stored)[record_batch.ATTRIBUTES_OFFSET :])
    )
    record_batch.CRC_FIELD.pack_into(stored, record_batch.CRC_OFFSET, header.checksum)
    return stored, header


def _check_size(header: record_batch.BatchHeader, size: int, config: TopicConfig) -> None:
    if header.size > size:
        raise Refused(Code.CORRUPT_MESSAGE, f"the batch is cut: {size} bytes of {header.size}")
    if header.size < size:
        raise Refused(Code.INVALID_RECORD, f"the batch has {header.size} bytes of {size} sent")
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


def _check_header(header: record_batch.BatchHeader, size: int) -> None:
    codec = header.attributes & record_batch.COMPRESSION_CODEC_MASK
    problem = None
    if codec not in KNOWN_CODECS:
        raise Refused(Code.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} is unknown")
    if header.base_offset:
        problem = f"base offset {header.base_offset}, but a producer sends 0"
    elif header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        problem = f"{header.record_count} records, but offsets 0 to {header.last_offset_delta}"
    elif (
        codec == record_batch.CompressionType.NONE
        and header.record_count * record_batch.SMALLEST_RECORD > size - record_batch.HEADER.size
    ):
        problem = f"{header.record_count} records in {size - record_batch.HEADER.size} bytes"
    elif header.attributes & record_batch.CONTROL_FLAG_MASK:
        problem = "a client may not write control records"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        problem = f"producer {header.producer_id} without a sequence"
    if problem is not None:
        raise Refused(Code.INVALID_RECORD, problem)


def _check_timestamps(
    batch: Bytes,
    header: record_batch.BatchHeader,
    config: TopicConfig,
    now: int,
    budget: DecodeBudget,
) -> None:
    if header.attributes & record_batch.TIMESTAMP_TYPE_MASK:
        raise Refused(Code.INVALID_TIMESTAMP, "a producer may not set LogAppendTime")
    if config.timestamp_type == "LogAppendTime":
        return
    earliest, latest = now - config.timestamp_before_max, now + config.timestamp_after_max
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != -1 and not earliest <= timestamp <= latest:
            timestamps = budget.decode_batch(batch, header).timestamp
            outside = (timestamps < earliest) | (timestamps > latest)
            rows = ((timestamps != -1) & outside).nonzero()[0]
            problem = f"is not between {earliest} and {latest}"
            raise Refused(
                Code.INVALID_TIMESTAMP,
                f"timestamp {timestamp} {problem}",
                records=tuple(
                    (row, f"timestamp {timestamps[row]} {problem}")
                    for row in rows[:MAX_RECORD_ERRORS].tolist()
                ),
            )


def _check_keys(batch: Bytes, header: record_batch.BatchHeader, budget: DecodeBudget) -> None:
    columns = budget.decode_batch(batch, header)
    if columns.problems:
        raise Refused(Code.CORRUPT_MESSAGE, columns.problems[0].text)
    rows = (columns.key_size < 0).nonzero()[0][:MAX_RECORD_ERRORS].tolist()
    if rows:
        raise Refused(
            Code.INVALID_RECORD,
            f"record {rows[0]} has no key, but a compacted topic needs one",
            records=tuple((row, "no key") for row in rows),
        )
