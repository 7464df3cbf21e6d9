"""Kafka's small text files: offset checkpoints, leader epochs, and ``partition.metadata``.

An offset checkpoint has the version 0, the number of the following lines, and for each partition a
line with its topic, number and offset.

This format has no checksum, and a wrong digit would hide records or bring deleted ones back. So
Rota keeps a second file beside it, ``.copy``: a line with its own checksum and the checksum of the
previous content, then the same content. The copy is written first. If the checkpoint has neither
the previous content nor the new one, it is damaged, and the copy is used.

``leader-epoch-checkpoint`` in a partition's folder has the version 0, the number of epochs, and for
each epoch a line with the epoch and its first offset. A broker of one node has only epoch 0, but a
folder that Kafka wrote may have more. No checksum covers the epoch of a batch, so this file is also
the check for it. ``partition.metadata`` has the id of the partition's topic.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from rota.broker.storage.disk import Disk, Report
from rota.engine.formats.primitive import uuid_from_text, uuid_to_text
from rota.engine.formats.record_batch import compute_crc32c
from rota.errors import DiskError, FormatError

PartitionOffsets: TypeAlias = dict[tuple[str, int], int]
OFFSET_CHECKPOINT_VERSION = 0
OFFSET_LINE = re.compile(r"(\S+) (0|[1-9]\d{0,9}) (0|[1-9]\d{0,18})")
COPY_HEADER = re.compile(rb"rota checkpoint 1, checksum ([0-9a-f]{8}), before ([0-9a-f]{8})\n")


class CheckpointCopy(NamedTuple):
    """The content of the second file, and the checksum of the content before."""

    previous_checksum: int
    content: bytes

    def accepts(self, data: bytes) -> bool:
        """Whether the first file may have this content."""
        return data == self.content or compute_crc32c(data) == self.previous_checksum


def write_offsets(disk: Disk, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Writes both files, unless they have this content already."""
    data = pack_offsets(offsets)
    current = read_file(disk, path)
    copy = _read_copy(disk, path)
    if current == data and copy is not None and copy.content == data:
        return
    # after a crash in between, the checksum of a damaged file must not make it valid
    before = current if current is not None and (copy is None or copy.accepts(current)) else data
    disk.replace(f"{path}.copy", _pack_copy(before, data))
    if current != data:
        disk.replace(path, data)


def read_offsets(disk: Disk, path: str, report: Report) -> PartitionOffsets:
    """Reads the offsets, and repairs one damaged file; none if both are missing or damaged."""
    copy = _read_copy(disk, path)
    try:
        data = read_file(disk, path)
        if data is None and copy is None:
            return {}
        found = unpack_offsets(_check_against_copy(data, copy))
    except (FormatError, DiskError) as error:
        problem = f"{path}: {str(error).removeprefix(f'{path}: ')}"
        if copy is None:
            report(f"{problem}; the file is ignored")
            return {}
        report(f"{problem}; it is rewritten from its copy")
        disk.replace(path, copy.content)
        return unpack_offsets(copy.content)
    if copy is None and data and disk.size(f"{path}.copy") is not None:
        report(f"{path}.copy: the file is damaged; it is rewritten from {path}")
        disk.replace(f"{path}.copy", _pack_copy(data, data))
    return found


def pack_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    lines = [f"{topic} {partition} {at}\n" for (topic, partition), at in sorted(offsets.items())]
    return f"{OFFSET_CHECKPOINT_VERSION}\n{len(lines)}\n{''.join(lines)}".encode()


def unpack_offsets(data: bytes) -> PartitionOffsets:
    """Raises FormatError if the content is damaged. Kafka first creates an empty file."""
    if not data:
        return {}
    try:
        version, count, *lines = data.decode().splitlines()
    except ValueError:
        raise FormatError("this is not a checkpoint file") from None
    if version != str(OFFSET_CHECKPOINT_VERSION):
        raise FormatError(f"line 1: version {version!r}, expected {OFFSET_CHECKPOINT_VERSION}")
    found: PartitionOffsets = {}
    for number, line in enumerate(lines, start=3):
        fields = OFFSET_LINE.fullmatch(line)
        if fields is None:
            raise FormatError(f"line {number}: {line!r} is not a topic, partition and offset")
        found[fields[1], int(fields[2])] = int(fields[3])
    if count != str(len(lines)) or len(found) != len(lines):
        raise FormatError(f"line 2: {count!r}, but {len(found)} partitions follow")
    return found


def _check_against_copy(data: bytes | None, copy: CheckpointCopy | None) -> bytes:
    if data is None:
        raise FormatError("the file is missing")
    if copy is not None and not copy.accepts(data):
        raise FormatError("the content is not the one that was written")
    return data


def _pack_copy(before: bytes, data: bytes) -> bytes:
    previous = b"%08x" % compute_crc32c(before)
    checksum = compute_crc32c(previous + data)
    return b"rota checkpoint 1, checksum %08x, before %s\n%s" % (checksum, previous, data)


def _read_copy(disk: Disk, path: str) -> CheckpointCopy | None:
    try:
        data = read_file(disk, f"{path}.copy") or b""
    except DiskError:
        return None
    header = COPY_HEADER.match(data)
    if header is None:
        return None
    content = data[header.end() :]
    valid = int(header[1], 16) == compute_crc32c(header[2] + content)
    return CheckpointCopy(int(header[2], 16), content) if valid else None


def read_file(disk: Disk, path: str) -> bytes | None:
    """Returns the content of a small file; None if it does not exist."""
    size = disk.size(path)
    return None if size is None else disk.read(path, 0, size)


LEADER_EPOCH_FILE, LEADER_EPOCH_VERSION = "leader-epoch-checkpoint", "0"


class LeaderEpochs:
    """The leader epoch in which each offset was written."""

    def __init__(self, entries: Sequence[tuple[int, int]] = ((0, 0),)) -> None:
        """:param entries: epochs and their first offsets, both ascending; at least one"""
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self.single_epoch = self._epochs[0] if len(entries) == 1 else None

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        return self._epochs[-1]

    def epoch_at(self, offset: int) -> int:
        return self._epochs[max(bisect_right(self._starts, offset) - 1, 0)]

    def end_offset_for(self, epoch: int, end: int) -> tuple[int, int] | None:
        """Returns the largest epoch up to this one and its end offset; None if too high."""
        if epoch > self.latest:
            return None
        row = bisect_right(self._epochs, epoch) - 1
        if row < 0:  # the epoch ended before the log's start
            return epoch, self._starts[0]
        return self._epochs[row], self._starts[row + 1] if row + 1 < len(self._starts) else end


def pack_leader_epochs(entries: Sequence[tuple[int, int]] = ((0, 0),)) -> bytes:
    lines = "".join(f"{epoch} {start}\n" for epoch, start in entries)
    return f"{LEADER_EPOCH_VERSION}\n{len(entries)}\n{lines}".encode()


def unpack_leader_epochs(data: bytes) -> LeaderEpochs | None:
    """Returns None if the file has no epochs yet; raises FormatError if it is damaged."""
    try:
        version, count, *lines = data.decode("ascii").splitlines()
        if version != LEADER_EPOCH_VERSION or int(count) != len(lines):
            raise FormatError(f"version {version} with {count} epochs in {len(lines)} lines")
        entries = [(int(epoch), int(start)) for epoch, start in map(str.split, lines)]
    except ValueError as error:
        raise FormatError(f"not a list of epochs: {error}") from None
    for (epoch, start), (later, after) in pairwise(entries):
        if later <= epoch or after < start:
            raise FormatError(f"epoch {later} from {after} on, after {epoch} from {start} on")
    if any(epoch < 0 or start < 0 for epoch, start in entries):
        raise FormatError("a number below zero")
    return LeaderEpochs(entries) if entries else None


def load_leader_epochs(disk: Disk, folder: str, report: Report) -> LeaderEpochs | None:
    """Reads a partition's leader epochs; reports a missing or damaged file and returns None."""
    path = f"{folder}/{LEADER_EPOCH_FILE}"
    data = read_file(disk, path)
    if data is None:
        report(f"{path}: missing; rewritten")
        return None
    try:
        return unpack_leader_epochs(data) or LeaderEpochs()
    except FormatError as error:
        report(f"{path}: {error}; rewritten")
        return None


PARTITION_METADATA_FILE = "partition.metadata"
PARTITION_METADATA_PATTERN = re.compile(rb"version: 0\ntopic_id: (?P<id>[A-Za-z0-9_-]{22})\n?")


def pack_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}".encode()


def create_partition_folder(disk: Disk, folder: str, topic_id: bytes) -> None:
    disk.make_folder(folder)
    disk.remove(f"{folder}/{PARTITION_METADATA_FILE}")
    disk.append(f"{folder}/{PARTITION_METADATA_FILE}", pack_partition_metadata(topic_id))


def read_topic_id(disk: Disk, folder: str) -> bytes | None:
    """Reads the topic id of a partition's folder; None if the file is missing or malformed."""
    data = read_file(disk, f"{folder}/{PARTITION_METADATA_FILE}") or b""
    match = PARTITION_METADATA_PATTERN.fullmatch(data)
    return None if match is None else uuid_from_text(match["id"].decode())


def is_topic_id_damaged(disk: Disk, folder: str, topic_id: bytes) -> bool:
    """Whether the file differs from this topic's in one character; random ids never do."""
    content = (read_file(disk, f"{folder}/{PARTITION_METADATA_FILE}") or b"").rstrip(b"\n")
    expected = pack_partition_metadata(topic_id)
    if len(content) != len(expected):
        return False
    return sum(a != b for a, b in zip(content, expected, strict=True)) == 1
