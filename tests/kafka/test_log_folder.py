"""Kafka's own tool reads a log folder that Rota has written: batches, both indexes, and entries."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from rota.formats import journal
from rota.model.config import TopicConfig
from rota.model.entry import GroupForgotten, OffsetCommitted
from rota.storage.disk import RealDisk
from rota.storage.log import Log
from tests.java import broker
from tests.java.launcher import Unavailable

COMMITS = 400


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("logs")
    name = "__consumer_offsets-7"
    with Log.create(
        RealDisk(data), name, bytes(range(16)), TopicConfig(), segment_bytes=20_000
    ) as log:
        for n in range(COMMITS):
            entries = [
                OffsetCommitted(
                    group="g", topic="t", partition=part, offset=n, commit_timestamp=1_000 + n
                )
                for part in range(n % 3 + 1)
            ]
            log.append_records([journal.encode(entry) for entry in entries], 1_000 + n)
        log.append_records([journal.encode(GroupForgotten(group="g"))], 9_000)
    return data / name


def dump(*args: str) -> str:
    try:
        broker.prepare()
    except Unavailable as reason:
        pytest.skip(str(reason))
    command = broker.java("org.apache.kafka.tools.DumpLogSegments", *args)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_kafka_reads_every_entry(folder: Path) -> None:
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 2
    printed = dump("--offsets-decoder", "--files", ",".join(map(str, logs)))
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", printed, re.MULTILINE)]
    assert offsets == list(range(len(offsets)))
    assert len(offsets) == sum(n % 3 + 1 for n in range(COMMITS)) + 1
    assert "isvalid: false" not in printed
    assert '"group":"g","topic":"t","partition":2' in printed


def test_kafka_finds_both_indexes_sound(folder: Path) -> None:
    indexes = sorted([*folder.glob("*.index"), *folder.glob("*.timeindex")])
    assert any(path.stat().st_size for path in indexes if path.suffix == ".index")
    files = ",".join(map(str, indexes))
    assert dump("--index-sanity-check", "--files", files).count("passed sanity check") == len(
        indexes
    )
    # without a flag the tool compares each entry with the log
    verified = dump("--verify-index-only", "--files", files)
    assert "mismatch" not in verified.lower(), verified
    assert "not found" not in verified.lower(), verified
