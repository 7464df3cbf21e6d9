"""The disk of the storage tests does what the real one does, and loses what it says it loses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rota.broker.storage.disk import Disk, RealDisk
from rota.errors import DiskError
from tests.support.faulty_disk import FaultyDisk, Stopped


@pytest.fixture(params=["real", "faulty"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path) if request.param == "real" else FaultyDisk()


def test_both_disks_do_the_same(disk: Disk) -> None:
    disk.make_folder("a/b")
    disk.append("a/b/log", b"one")
    disk.append("a/b/log", b"two")
    disk.truncate("a/b/log", 4)
    disk.replace("a/b/note", b"old")
    disk.replace("a/b/note", b"new")
    disk.sync("a/b/log")
    disk.sync("a/b")
    assert disk.list_names("a/b") == ["log", "note"]
    assert disk.read("a/b/log", 1, 100) == b"net"
    assert disk.read("a/b/note", 0, 100) == b"new"
    assert disk.size("a/b/log") == 4
    assert disk.size("a/b/none") is None
    disk.rename("a/b/log", "a/b/note")
    disk.rename("a/b", "a/c")
    assert disk.list_names("a") == ["c"]
    assert disk.read("a/c/note", 0, 100) == b"onet"
    disk.remove("a/c")
    disk.remove("a/c")
    assert disk.list_names("a") == disk.list_names("none") == []


@pytest.mark.parametrize(
    "act",
    [
        lambda disk: disk.append("none/log", b""),
        lambda disk: disk.rename("none", "some"),
        lambda disk: disk.replace("none/log", b""),
    ],
)
def test_both_name_the_path_that_is_not_there(disk: Disk, act: Callable[[Disk], None]) -> None:
    with pytest.raises(DiskError, match="^none.*: No such file"):
        act(disk)


#: A file, a folder, and what is in neither.
ODD = ["file", "folder", "file/x", "folder/x", "none", "none/x"]
ACTS: dict[str, Callable[[Disk, str], object]] = {
    "list_names": lambda disk, path: disk.list_names(path),
    "size": lambda disk, path: disk.size(path),
    "read": lambda disk, path: disk.read(path, 1, 2),
    "append": lambda disk, path: disk.append(path, b"more"),
    "truncate": lambda disk, path: disk.truncate(path, 1),
    "replace": lambda disk, path: disk.replace(path, b"new"),
    "rename from": lambda disk, path: disk.rename(path, "other"),
    "rename a file to": lambda disk, path: disk.rename("loose", path),
    "rename a folder to": lambda disk, path: disk.rename("empty", path),
    "make_folder": lambda disk, path: disk.make_folder(path),
    "remove": lambda disk, path: disk.remove(path),
    "sync": lambda disk, path: disk.sync(path),
}


def run_operation(
    disk: Disk, act: Callable[[Disk, str], object], path: str
) -> tuple[object, object]:
    """What comes of it, and what is there then."""
    disk.make_folder("folder")
    disk.make_folder("empty")
    disk.append("folder/inside", b"12345")
    disk.append("file", b"12345")
    disk.append("loose", b"1")
    try:
        given = act(disk, path)
    except DiskError as error:
        given = str(error)
    left = {name: (disk.list_names(name), disk.size(name)) for name in disk.list_names("")}
    return given, left


@pytest.mark.parametrize("path", ODD)
@pytest.mark.parametrize("act", ACTS)
def test_both_disks_meet_files_folders_and_nothing_alike(
    act: str, path: str, tmp_path: Path
) -> None:
    real = run_operation(RealDisk(tmp_path), ACTS[act], path)
    assert run_operation(FaultyDisk(), ACTS[act], path) == real


def test_killed_keeps_all_and_a_power_cut_what_was_synced() -> None:
    disk = FaultyDisk()
    disk.make_folder("p")
    disk.append("p/log", b"synced")
    disk.sync("p/log")
    disk.append("p/log", b" not")
    assert disk.crash(least=True).paths() == []  # its name was not synced
    disk.sync("")
    disk.sync("p")
    assert disk.kill().content("p/log") == b"synced not"
    assert disk.crash(least=True).content("p/log") == b"synced"


def test_a_power_cut_after_a_kill_loses_what_neither_process_synced() -> None:
    disk = FaultyDisk()
    disk.make_folder("p")
    disk.sync("")
    disk.append("p/old", b"synced")
    disk.sync("p/old")
    disk.sync("p")
    disk.append("p/old", b" not")
    disk.rename("p/old", "p/new")
    killed = disk.kill()
    assert killed.content("p/new") == b"synced not"
    lost = killed.crash(least=True)
    assert (lost.paths(), lost.content("p/old")) == (["p/old"], b"synced")
    killed.sync("p/new")  # the next process does
    killed.sync("p")
    assert killed.crash(least=True).content("p/new") == b"synced not"
    assert disk.crash(least=True).paths() == ["p/old"]  # the first disk is as it was


def test_a_power_cut_leaves_any_part_but_never_less_than_was_synced() -> None:
    seen = set()
    for seed in range(300):
        disk = FaultyDisk(seed)
        disk.append("log", b"1234")
        disk.sync("log")
        disk.sync("")
        disk.append("log", b"56")
        disk.append("log", b"78")
        found = disk.crash().content("log")
        assert found.startswith(b"1234")
        seen.add(found)
    assert {b"1234", b"123456", b"12345", b"12345678", b"1234\0\x0078", b"1234\0\0"} <= seen


def test_replaced_is_old_or_new_at_any_stop() -> None:
    seen = set()
    for seed in range(40):
        disk = FaultyDisk(seed)
        disk.replace("note", b"old")
        disk.stop_at(0)
        with pytest.raises(Stopped):
            disk.replace("note", b"new")
        with pytest.raises(Stopped):
            disk.size("note")
        seen.add(disk.crash().content("note"))
    assert seen == {b"old", b"new"}


def test_a_full_disk_takes_a_part() -> None:
    disk = FaultyDisk()
    disk.room(5)
    with pytest.raises(DiskError, match="log: No space left") as refused:
        disk.append("log", b"1234567")
    assert refused.value.full
    assert disk.content("log") == b"12345"
    disk.truncate("log", 0)
    disk.append("log", b"12345")


def test_refuses_what_was_chosen() -> None:
    disk = FaultyDisk()
    disk.append("a.log", b"x")
    disk.refuse("read", "*.log", skip=1)
    disk.refuse("append", "a.*", partly=2)
    assert disk.read("a.log", 0, 1) == b"x"
    with pytest.raises(DiskError, match="a.log: Input/output error"):
        disk.read("a.log", 0, 1)
    assert disk.read("a.log", 0, 1) == b"x"
    with pytest.raises(DiskError):
        disk.append("a.log", b"yyyy")
    assert disk.content("a.log") == b"xyy"
    disk.flip("a.log", 8)
    assert disk.content("a.log") == b"xxy"
