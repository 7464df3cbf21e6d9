"""Producers as they were at an offset, in a file ``{offset:020}.snapshot``: Kafka's version 1.

::

    version     int16   1
    checksum    uint32  CRC-32C of all that follows
    count       int32   and for each producer, of its last batch:
        id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
        timestamp int64, coordinator epoch int32, first offset of the open transaction int64

Where something is not there, its number is -1 (the delta's 0). It only saves time: without one,
the log is read from its start.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from contextlib import suppress

from rota.errors import DiskError, FormatError
from rota.formats.batch.checksum import checksum
from rota.formats.buffer import Bytes
from rota.model.config import DAY, INT
from rota.storage.disk import Disk
from rota.storage.producer import NO_SEQUENCE, Producer, Producers, Taken

VERSION = 1
HEAD = struct.Struct(">hI")
COUNT = struct.Struct(">i")
ENTRY = struct.Struct(">qhiqiqiq")
SUFFIX = ".snapshot"


def pack(producers: Producers) -> bytes:
    """The file's content."""
    entries = [COUNT.pack(len(producers))]
    for producer_id, each in producers:
        sequence, offset, delta = NO_SEQUENCE, -1, 0
        if each.batches:
            last = each.batches[-1]
            sequence, offset = last.last_sequence, last.last_offset
            delta = offset - last.first_offset
        begun = -1 if each.transaction is None else each.transaction
        fields = (sequence, offset, delta, each.timestamp, each.coordinator_epoch, begun)
        entries.append(ENTRY.pack(producer_id, each.epoch, *fields))
    body = b"".join(entries)
    return HEAD.pack(VERSION, checksum(body)) + body


def unpack(data: Bytes, expiration: int = DAY) -> Producers:
    """The producers of a file's content.

    :raises FormatError: it is damaged, or of another version
    """
    if len(data) < HEAD.size + COUNT.size:
        raise FormatError(f"{len(data)} bytes are too few for a snapshot")
    version, stored = HEAD.unpack_from(data)
    if version != VERSION:
        raise FormatError(f"version {version}, known is {VERSION}")
    body = memoryview(data)[HEAD.size :]
    made = checksum(body)
    if made != stored:
        raise FormatError(f"checksum {made:08x}, its head says {stored:08x}")
    (count,) = COUNT.unpack_from(body)
    entries = body[COUNT.size :]
    if count < 0 or len(entries) != count * ENTRY.size:
        raise FormatError(f"{count} producers in {len(entries)} bytes")
    found = Producers(expiration)
    for producer_id, *fields in ENTRY.iter_unpack(entries):
        found.put(producer_id, _producer(*fields))
    return found


def _producer(  # noqa: PLR0913, PLR0917, the fields of an entry
    epoch: int,
    sequence: int,
    offset: int,
    delta: int,
    timestamp: int,
    coordinator_epoch: int,
    begun: int,
) -> Producer:
    producer = Producer(
        epoch=epoch,
        timestamp=timestamp,
        coordinator_epoch=coordinator_epoch,
        transaction=begun if begun >= 0 else None,
    )
    if offset >= 0:
        first = sequence if sequence == NO_SEQUENCE else (sequence - delta) & INT
        producer.batches.append(Taken(first, sequence, offset - delta, offset, timestamp))
    return producer


def save(disk: Disk, folder: str, producers: Producers, *, durable: bool = True) -> None:
    """Writes the snapshot of a partition's state as it is.

    :param durable: it outlives a loss of power
    """
    path = path_of(folder, producers.end)
    if durable:
        disk.replace(path, pack(producers))
        return
    disk.remove(f"{path}.tmp")
    disk.append(f"{path}.tmp", pack(producers))
    disk.rename(f"{path}.tmp", path)


def load(  # noqa: PLR0913, what bounds the search
    disk: Disk,
    folder: str,
    *,
    start: int,
    end: int,
    now: int,
    report: Callable[[str], None],
    expiration: int = DAY,
) -> Producers:
    """The newest state that a good snapshot has, or an empty one that begins at the log's start.

    Snapshots outside the log, or damaged, are removed; of the latter it is said. Batches from
    ``.end`` on are still to be taken.
    """
    for offset in sorted(offsets(disk, folder), reverse=True):
        path = path_of(folder, offset)
        if start < offset <= end:
            try:
                found = unpack(disk.read(path, 0, disk.size(path) or 0), expiration)
            except (FormatError, DiskError) as error:
                told = str(error).removeprefix(f"{path}: ")
                report(f"{path}: {told}; producers are read from the log instead")
            else:
                found.end = offset
                found.expire(now)
                return found
        disk.remove(path)
    empty = Producers(expiration)
    empty.end = start
    return empty


def offsets(disk: Disk, folder: str) -> list[int]:
    """The offsets that have a snapshot."""
    found = []
    for name in disk.names(folder):
        stem, dot, suffix = name.partition(".")
        if dot + suffix == SUFFIX:
            with suppress(ValueError):
                found.append(int(stem))
    return found


def remove(disk: Disk, folder: str, gone: Iterable[int]) -> None:
    """Takes away the snapshots at these offsets, as their segments are."""
    for offset in gone:
        disk.remove(path_of(folder, offset))


def path_of(folder: str, offset: int) -> str:
    """The snapshot of a partition at an offset."""
    return f"{folder}/{offset:020}{SUFFIX}"
