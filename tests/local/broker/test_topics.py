"""Topics are made, deleted, grown and changed; a restart finds them, and mends what it must."""

from __future__ import annotations

from pathlib import Path

from rota.storage.disk import RealDisk
from tests.support.topic_store import Store


def test_strangers_files_are_left_alone(tmp_path: Path) -> None:
    store = Store(RealDisk(tmp_path))
    (tmp_path / "backup-2024").mkdir()
    (tmp_path / "backup-2024" / "notes.txt").write_text("mine")
    (tmp_path / "notes-1").write_text("mine")
    again = store.restart()
    assert (tmp_path / "backup-2024" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "notes-1").read_text() == "mine"
    assert (again.ends(), again.said) == ({}, [])
