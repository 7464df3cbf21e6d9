"""The data folder: whose it is, how its last use ended, its catalogue and its checkpoints."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from rota.broker.storage.catalog import CATALOG_COPY_FILE, CATALOG_FILE, TopicEntry
from rota.broker.storage.disk import RealDisk
from rota.broker.storage.log_directory import (
    LOCK_FILE,
    META_PROPERTIES_FILE,
    DirectoryLock,
    open_log_directory,
)
from rota.errors import DiskError, InputError, Unreachable

ORDERS = TopicEntry(
    name="orders", id=bytes(range(16)), partitions=3, overrides={"retention.ms": "5"}
)


def make_ids() -> Callable[[], bytes]:
    numbers = count(1)
    return lambda: next(numbers).to_bytes(16)


def test_a_folder_has_one_user_at_a_time_on_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    lock = DirectoryLock(tmp_path)
    with pytest.raises(Unreachable, match="is in use by process"):
        DirectoryLock(tmp_path)
    lock.release()
    DirectoryLock(tmp_path).release()


@pytest.mark.skipif(sys.platform != "linux", reason="other machines have no such lock")
def test_a_folder_has_one_user_at_a_time_where_python_lacks_the_locks_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(fcntl, "F_OFD_SETLK", raising=False)
    lock = DirectoryLock(tmp_path)
    with pytest.raises(Unreachable, match="is in use by process"):
        DirectoryLock(tmp_path)
    lock.release()
    DirectoryLock(tmp_path).release()


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(Unreachable, match=r"/file is a file, not a folder$"):
            DirectoryLock(path)


@pytest.mark.parametrize("there", [False, True])
def test_nothing_is_written_in_a_folder_that_is_refused(tmp_path: Path, there: bool) -> None:
    def refuse() -> None:
        raise InputError("no")

    data = tmp_path / "data"
    if there:
        data.mkdir()
        (data / LOCK_FILE).write_bytes(b"")
        (data / "notes.txt").write_bytes(b"")
        os.utime(data / LOCK_FILE, (1, 1))
    with pytest.raises(InputError):
        DirectoryLock(data, refuse)
    assert data.exists() == there
    if there:
        assert {path.name for path in data.iterdir()} == {LOCK_FILE, "notes.txt"}
        assert (data / LOCK_FILE).stat().st_mtime == 1
        DirectoryLock(data).release()


def test_an_unwritable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    tmp_path.chmod(0o500)
    was = os.geteuid()
    if was == 0:  # who may write anywhere
        os.seteuid(65_534)
    try:
        with pytest.raises(DiskError, match=r"the folder .* cannot be written: Permission denied"):
            DirectoryLock(tmp_path / "data")
    finally:
        os.seteuid(was)


def test_a_real_folder_keeps_its_topics(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    folder = open_log_directory(
        RealDisk(tmp_path), node_id=1, new_id=make_ids(), report=pytest.fail
    )
    folder.catalog.change_topics(put=[ORDERS])
    folder.mark_clean_shutdown()
    lock.release()
    again = open_log_directory(RealDisk(tmp_path), node_id=1, new_id=make_ids(), report=pytest.fail)
    assert again.clean_shutdown
    assert again.catalog.topics == {"orders": ORDERS}
    assert {path.name for path in tmp_path.iterdir()} == {
        LOCK_FILE,
        META_PROPERTIES_FILE,
        CATALOG_FILE,
        CATALOG_COPY_FILE,
    }
