"""Topics are made, deleted, grown and changed; a restart finds them, and mends what it must."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rota.broker.storage.disk import RealDisk
from rota.broker.topics import Topic
from tests.support.node import open_storage
from tests.support.requests import START


def test_strangers_files_are_left_alone(tmp_path: Path) -> None:
    reports: list[str] = []

    def topics() -> list[Topic]:
        disk = RealDisk(tmp_path)
        storage = open_storage(disk, now=START, new_id=partial(bytes, 16), report=reports.append)
        disk.close()
        return list(storage.topics)

    assert topics() == []
    (tmp_path / "backup-2024").mkdir()
    (tmp_path / "backup-2024" / "notes.txt").write_text("mine")
    (tmp_path / "notes-1").write_text("mine")
    assert topics() == []
    assert (tmp_path / "backup-2024" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "notes-1").read_text() == "mine"
    assert reports == []
