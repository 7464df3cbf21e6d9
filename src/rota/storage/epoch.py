"""A partition's leader epochs: Kafka's ``leader-epoch-checkpoint``.

A text: the version 0, how many epochs, and for each a line of the epoch and its first offset. A
broker of one node has epoch 0 and no other, but a folder that Kafka wrote may have more. As no
checksum covers a batch's epoch, this is also what tells that it is right.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from rota.errors import FormatError
from rota.storage.disk import Disk

NAME = "leader-epoch-checkpoint"
VERSION = "0"


class Epochs:
    """Which epoch an offset was written in."""

    def __init__(self, entries: Sequence[tuple[int, int]] = ((0, 0),)) -> None:
        """:param entries: epochs and their first offsets, both ascending; at least one."""
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self.only = self._epochs[0] if len(entries) == 1 else None
        """The one epoch, if there is but one."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        """Epochs and their first offsets."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int:
        """The epoch of what is written now."""
        return self._epochs[-1]

    def at(self, offset: int) -> int:
        """The epoch that an offset was written in."""
        return self._epochs[max(bisect_right(self._starts, offset) - 1, 0)]

    def end_of(self, epoch: int, end: int) -> tuple[int, int] | None:
        """The last epoch up to this one, and where it ends; None if there is none such."""
        if epoch > self.latest:
            return None
        row = bisect_right(self._epochs, epoch) - 1
        if row < 0:  # all of it was before the log's start
            return epoch, self._starts[0]
        return self._epochs[row], self._starts[row + 1] if row + 1 < len(self._starts) else end


def pack(entries: Sequence[tuple[int, int]] = ((0, 0),)) -> bytes:
    """The file's content."""
    lines = [VERSION, str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    return "".join(f"{line}\n" for line in lines).encode()


def unpack(data: bytes) -> Epochs | None:
    """The epochs of a file's content; None if it has none, as before the first record.

    :raises FormatError: it is damaged
    """
    try:
        version, count, *lines = data.decode("ascii").splitlines()
        if version != VERSION or int(count) != len(lines):
            raise FormatError(f"version {version} with {count} epochs in {len(lines)} lines")
        entries = [(int(epoch), int(start)) for epoch, start in map(str.split, lines)]
    except ValueError as error:
        raise FormatError(f"not a list of epochs: {error}") from None
    for (epoch, start), (later, after) in pairwise(entries):
        if later <= epoch or after < start:
            raise FormatError(f"epoch {later} from {after} on, after {epoch} from {start} on")
    if any(epoch < 0 or start < 0 for epoch, start in entries):
        raise FormatError("a number below zero")
    return Epochs(entries) if entries else None


def load(disk: Disk, folder: str, report: Callable[[str], None]) -> Epochs | None:
    """A partition's epochs; None if the file is gone or damaged, which is said."""
    path = f"{folder}/{NAME}"
    size = disk.size(path)
    if size is None:
        report(f"{path}: missing; made anew")
        return None
    try:
        return unpack(disk.read(path, 0, size)) or Epochs()
    except FormatError as error:
        report(f"{path}: {error}; made anew")
        return None
