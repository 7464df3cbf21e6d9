"""A broker on folders that it has not written: nothing of them is lost."""

from __future__ import annotations

import logging
import tarfile
import time
from functools import partial
from pathlib import Path

import pytest

import rota
from rota.broker.storage.catalog import CATALOG_COPY_FILE, CATALOG_FILE
from rota.broker.timers import Clock
from rota.errors import InputError
from tests.support.paths import FIXTURES

FIXTURE = FIXTURES / "kafka-4.3.1" / "segments.tar.gz"
MONTH = 30 * 86_400
#: When the folders were left, in seconds since 1970: a day later their producers are forgotten.
RECORDED = 1_794_720_000.0


@pytest.fixture
def kafka_folder(tmp_path: Path) -> Path:
    """The folders of some partitions, as a Kafka 4.3.1 has left them."""
    with tarfile.open(FIXTURE) as tar:
        tar.extractall(tmp_path / "copied", filter="data")
    return tmp_path / "copied"


def read_files(folder: Path, pattern: str = "**/*") -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.glob(pattern))
        if path.is_file()
    }


def test_a_copy_of_partitions_is_served_and_kept(
    kafka_folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()
    then = partial(Clock, wall=lambda: RECORDED + time.monotonic() - begun)
    monkeypatch.setattr("rota.broker.embedded.Clock", then)
    before = read_files(kafka_folder)
    with pytest.raises(InputError, match=r"partitions' folders, .*: start with --adopt"):
        rota.Broker(kafka_folder).start()
    assert read_files(kafka_folder) == before
    with (
        caplog.at_level(logging.WARNING),
        rota.Broker(kafka_folder, adopt=True) as broker,
    ):
        assert broker.topics == {"mix": 4}
        assert len(broker.read("mix")) == 5_112
        assert broker.groups["a-sticky"] == "Stable"
        broker.clock.advance(301)  # retention has been at work
        assert len(broker.read("mix")) == 5_112
    messages = [record.message for record in caplog.records]
    assert messages[0].endswith("24 of 50 partitions have no folder and are made without records")
    assert messages[1].startswith("2 topics were adopted; their settings are unknown")
    after = read_files(kafka_folder)
    assert {path: after[path] for path in before if path.startswith("mix")} == {
        path: data for path, data in before.items() if path.startswith("mix")
    }
    with rota.Broker(kafka_folder) as broker:
        assert len(broker.read("mix")) == 5_112


def flip_bit(folder: Path, name: str) -> None:
    data = bytearray((folder / name).read_bytes())
    data[100] ^= 1
    (folder / name).write_bytes(data)


@pytest.mark.parametrize("spoilt", ["damaged", "gone"])
def test_topics_without_a_catalogue_lose_nothing(tmp_path: Path, spoilt: str) -> None:
    with rota.Broker(tmp_path) as broker:
        broker.create_topic("kept", config={"retention.ms": -1})
        broker.create_topic("latest", 2, config={"cleanup.policy": "compact"})
        old = broker.clock.now() - MONTH * 1_000
        for row in range(5):
            broker.produce("kept", f"{row}", timestamp=old)
            broker.produce("latest", f"{row}", key="same", timestamp=old)
    for name in (CATALOG_FILE, CATALOG_COPY_FILE):
        if spoilt == "gone":
            (tmp_path / name).unlink()
        else:
            flip_bit(tmp_path, name)
    with rota.Broker(tmp_path, adopt=True) as broker:
        broker.clock.advance(301)
        assert broker.topics == {"kept": 1, "latest": 2}
        assert [len(broker.read(topic)) for topic in broker.topics] == [5, 5]
    with rota.Broker(tmp_path) as broker:
        assert [len(broker.read(topic)) for topic in broker.topics] == [5, 5]


def test_a_refused_folder_is_as_it_was(tmp_path: Path, kafka_folder: Path) -> None:
    (kafka_folder / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=7\n")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "notes.txt").write_text("mine")
    for folder, adopt in (
        (kafka_folder, False),
        (kafka_folder, True),
        (tmp_path / "notes", False),
        (tmp_path / "notes", True),
        (tmp_path / "none", True),
    ):
        before = read_files(folder)
        stamp = folder.stat().st_mtime_ns if folder.exists() else None
        with pytest.raises(InputError):
            rota.Broker(folder, adopt=adopt).start()
        assert read_files(folder) == before
        assert (folder.stat().st_mtime_ns if folder.exists() else None) == stamp
