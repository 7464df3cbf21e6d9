"""A segment while it is written: a ``.log`` of batches, and its two indexes."""

from __future__ import annotations

from pathlib import Path

from rota.formats.batch import read_header
from rota.storage.index import INTERVAL, Indexer


class Segment:
    """Files that begin at an offset, and are named by it."""

    def __init__(self, folder: Path, base_offset: int, *, interval: int = INTERVAL) -> None:
        """Makes new files; those that are there are replaced.

        :param interval: bytes between two entries of an index, ``index.interval.bytes``
        """
        name = f"{base_offset:020}"
        self.base_offset = base_offset
        self.size = 0
        self._indexer = Indexer(base_offset, interval)
        self._log = (folder / f"{name}.log").open("wb")
        self._index = (folder / f"{name}.index").open("wb")
        self._times = (folder / f"{name}.timeindex").open("wb")

    def append(self, batch: bytes) -> None:
        """Writes a batch."""
        head = read_header(batch)
        of_offset, of_time = self._indexer.add(
            self.size, len(batch), head.last_offset, head.max_timestamp
        )
        self._log.write(batch)
        self._index.write(of_offset)
        self._times.write(of_time)
        self.size += len(batch)

    def close(self) -> None:
        """Nothing more is written to it."""
        self._times.write(self._indexer.last_time())
        for file in (self._log, self._index, self._times):
            file.close()
