"""A partition's folder while it is written: segments one after another, and what is known of it."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from rota.formats.batch import Record, encode
from rota.storage.index import INTERVAL
from rota.storage.segment import Segment

SEGMENT_BYTES = 100 * 1024 * 1024
"""``offsets.topic.segment.bytes``."""

Pair: TypeAlias = tuple[bytes | None, bytes | None]
"""A record's key and value."""


class Log:
    """Appends batches to a partition, and rolls to a new segment where one is full."""

    def __init__(
        self,
        folder: Path,
        topic_id: bytes,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        interval: int = INTERVAL,
    ) -> None:
        """Makes a new folder, and in it an empty first segment.

        :param folder: its name is the topic's, a minus and the partition's number
        """
        self.end = 0
        """The offset of the next record."""
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._interval = interval
        folder.mkdir(parents=True)
        shown = urlsafe_b64encode(topic_id).decode().rstrip("=")
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {shown}")
        # its version, how many epochs, and for each of them the epoch and its first offset
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        self._segment = Segment(folder, 0, interval=interval)

    def append(self, pairs: Iterable[Pair], timestamp: int) -> None:
        """Writes records as one batch, as a coordinator does."""
        records = [
            Record(offset, timestamp, key, value)
            for offset, (key, value) in enumerate(pairs, start=self.end)
        ]
        batch = encode(records)
        if self._segment.size and self._segment.size + len(batch) > self._segment_bytes:
            self._segment.close()
            self._segment = Segment(self._folder, self.end, interval=self._interval)
        self._segment.append(batch)
        self.end += len(records)

    def close(self) -> None:
        """The last segment is as full as it gets."""
        self._segment.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()
