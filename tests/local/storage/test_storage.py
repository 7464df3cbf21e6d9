"""Log folders: what is written has the indexes that Kafka's own broker gave the same batches."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from rota.broker.storage.disk import RealDisk
from rota.broker.storage.log import Log
from rota.broker.storage.log_segment import LogSegment
from rota.engine.formats.record_batch import HEADER, BatchHeader
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.engine.formats.record_batch_scan import find_batches
from rota.engine.model.config import TopicConfig
from tests.support.paths import FIXTURES

CAPTURE = FIXTURES / "kafka-4.3.1" / "segments.tar.gz"


def recorded_files() -> dict[str, bytes]:
    """Every file of the recorded folders, by folder and name."""
    with tarfile.open(CAPTURE) as archive:
        return {
            each.name.removeprefix("./"): file.read()
            for each in archive.getmembers()
            if (file := archive.extractfile(each)) is not None
        }


def test_indexes_are_those_of_the_broker_that_wrote_the_batches(tmp_path: Path) -> None:
    files = recorded_files()
    logs = {name: data for name, data in files.items() if name.endswith(".log") and data}
    assert len(logs) > 20
    for name, data in logs.items():
        stem = name.removesuffix(".log")
        segment = LogSegment(RealDisk(tmp_path), ".", int(Path(stem).name))
        segment.create()
        for position, size in find_batches(data):
            head = BatchHeader._make(HEADER.unpack_from(data, position))
            segment.disk.append(segment.log_path, data[position : position + size])
            segment.on_batch_appended(head, 0)
        segment.save_indexes()
        for kind in ("log", "index", "timeindex"):
            written = (tmp_path / f"{Path(stem).name}.{kind}").read_bytes()
            assert written == files[f"{stem}.{kind}"], f"{stem}.{kind}"


@pytest.mark.parametrize("segment_bytes", [1, 300, 100_000])
def test_records_come_back_from_however_many_segments(tmp_path: Path, segment_bytes: int) -> None:
    batches = [[(b"k%d" % n, None if n % 3 else b"v" * n)] * (n % 4 + 1) for n in range(20)]
    folder = tmp_path / "t-0"
    disk = RealDisk(tmp_path)
    with Log.create(disk, "t-0", bytes(16), TopicConfig(), segment_bytes=segment_bytes) as log:
        for n, batch in enumerate(batches):
            log.append_records(batch, 1_000 + n)
    found = []
    for path in sorted(folder.glob("*.log")):
        inside = list(iterate_records(decode_batches(path.read_bytes())))
        assert inside[0].offset == int(path.stem)
        found += inside
    assert [record.offset for record in found] == list(range(log.log_end_offset))
    expected = [(1_000 + n, *pair) for n, batch in enumerate(batches) for pair in batch]
    assert [(record.timestamp, record.key, record.value) for record in found] == expected


def test_a_partition_that_nobody_wrote_to_is_there_and_empty(tmp_path: Path) -> None:
    with Log.create(RealDisk(tmp_path), "t-0", bytes(range(16)), TopicConfig()):
        pass
    found = {path.name: path.read_bytes() for path in (tmp_path / "t-0").iterdir()}
    assert found == {
        "00000000000000000000.log": b"",
        "00000000000000000000.index": b"",
        "00000000000000000000.timeindex": b"",
        "partition.metadata": b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        "leader-epoch-checkpoint": b"0\n1\n0 0\n",
    }
