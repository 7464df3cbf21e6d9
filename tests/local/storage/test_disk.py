"""The real disk: what it does to files, and what it says when the machine refuses."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

import pytest

from rota.broker.storage.disk import RealDisk
from rota.errors import DiskError
from tests.support.partition_log import NOW, batch_of_size, create_log, read_values, reopen_log


def test_reading_or_cutting_a_missing_file_makes_none(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    for refused in (
        lambda: disk.read("a", 0, 10),
        lambda: disk.truncate("a", 0),
        lambda: disk.sync("a"),
        lambda: disk.rename("a", "b"),
    ):
        with pytest.raises(DiskError, match="^a: No such file or directory$"):
            refused()
    assert not list(tmp_path.iterdir())
    assert disk.size("a") is None
    assert disk.list_names("nowhere") == []
    disk.remove("a")


def test_a_file_is_written_read_cut_and_replaced(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.make_folder("deep/folder")
    disk.append("deep/folder/a", b"hello ")
    disk.append("deep/folder/a", memoryview(b"world"))
    assert disk.read("deep/folder/a", 6, 100) == b"world"
    disk.truncate("deep/folder/a", 5)
    disk.append("deep/folder/a", b"!")
    assert (tmp_path / "deep/folder/a").read_bytes() == b"hello!"
    disk.replace("deep/folder/a", b"new")
    assert disk.read("deep/folder/a", 0, 9) == b"new"
    disk.append("deep/folder/a", b"er")
    assert disk.size("deep/folder/a") == 5
    assert disk.list_names("deep/folder") == ["a"]
    disk.sync("deep/folder/a")
    disk.sync("deep/folder")
    disk.sync("")
    disk.close()


def test_when_a_file_was_written_is_known(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.make_folder("t-0")
    disk.append("t-0/a", b"old")
    os.utime(tmp_path / "t-0/a", ns=(0, NOW * 1_000_000 + 999_999))
    assert disk.modified_at("t-0/a") == NOW
    disk.append("t-0/a", b"new")
    later = disk.modified_at("t-0/a")
    assert later is not None
    assert later > NOW
    assert (
        disk.modified_at("t-0") is disk.modified_at("t-0/b") is disk.modified_at("t-0/a/b") is None
    )
    disk.close()


def test_a_file_of_another_name_is_another_file(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.make_folder("t-0")
    disk.append("t-0/a", b"old")
    disk.rename("t-0", "t-0.deleted")
    disk.make_folder("t-0")
    disk.append("t-0/a", b"new")
    assert disk.read("t-0.deleted/a", 0, 9) == b"old"
    disk.remove("t-0.deleted")
    assert disk.read("t-0/a", 0, 9) == b"new"
    disk.append("t-0/b", b"b")
    disk.rename("t-0/b", "t-0/a")
    assert disk.read("t-0/a", 0, 9) == b"b"
    disk.remove("t-0")
    assert disk.list_names("") == []


def open_descriptors() -> list[int]:
    """The file descriptors that this process has open."""
    return [int(path.name) for path in Path("/dev/fd").iterdir()]


def count_open_files(folder: Path) -> int:
    """How many files of a folder this process has open."""
    here = [each.stat() for each in folder.iterdir()]
    found = 0
    for descriptor in open_descriptors():
        with contextlib.suppress(OSError):  # closed since
            found += any(os.path.samestat(os.fstat(descriptor), each) for each in here)
    return found


def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path, open_files=3)
    for _ in range(2):
        for row in range(10):
            disk.append(f"{row}", b"x")
    assert count_open_files(tmp_path) == 3
    assert [disk.size(f"{row}") for row in range(10)] == [2] * 10
    disk.close()
    assert count_open_files(tmp_path) == 0


def test_files_are_closed_where_the_process_may_not_open_more(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    disk = RealDisk(tmp_path)
    used = max(open_descriptors()) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 5, hard))
    try:
        for row in range(40):
            disk.append(f"{row}", b"x")
        assert disk.read("0", 0, 5) == b"x"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        disk.close()


def test_many_files_are_synced_together(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path, open_files=10)
    paths = [f"t-{number}" for number in range(60)]
    for path in paths:
        disk.make_folder(path)
        disk.append(f"{path}/a", b"x")
    assert disk.sync_all([*paths, *(f"{path}/a" for path in paths), ""]) == {}
    assert disk.sync_all([]) == {}
    ((path, problem),) = disk.sync_all([*paths, "absent"]).items()
    assert (path, str(problem)) == ("absent", "absent: No such file or directory")
    disk.close()


def test_files_are_synced_where_the_process_may_not_open_more(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    paths = [str(number) for number in range(30)]
    for path in paths:
        disk.append(path, b"x")
    for path in paths[20:]:
        disk.replace(path, b"y")  # these are not open
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()), hard))
    try:
        assert disk.sync_all(paths) == {}
        disk.sync(paths[-1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    disk.close()


def test_a_replacement_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    disk.append("a", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, hard))
    try:
        with pytest.raises(DiskError, match="^a: File too large$"):
            disk.replace("a", b"larger than two bytes")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert disk.list_names("") == ["a"]
    assert disk.read("a", 0, 9) == b"old"
    disk.close()


def test_a_log_whose_write_the_machine_refuses_takes_it_back(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    log = create_log(disk)
    log.append(batch_of_size(100), NOW)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.size + 50, hard))
    try:
        with pytest.raises(DiskError, match="File too large"):
            log.append(batch_of_size(100), NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert disk.size("t-0/00000000000000000000.log") == log.size
    log.append(batch_of_size(100), NOW)
    assert len(read_values(log)) == 2
    disk.close()
    assert len(read_values(reopen_log(RealDisk(tmp_path)))) == 2


def test_the_space_that_is_missing_is_told_apart(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this machine has no /dev/full")
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(DiskError) as error:
        RealDisk(tmp_path).append("full", b"x")
    assert error.value.full
    assert str(error.value) == "full: No space left on device"


def test_much_that_is_written_is_all_there(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    for row in range(20):
        disk.append("a", bytes([row]) * (1 << 20))
    assert disk.size("a") == 20 << 20
    assert [disk.read("a", (row << 20) + 5, 1)[0] for row in range(20)] == list(range(20))
    disk.close()
