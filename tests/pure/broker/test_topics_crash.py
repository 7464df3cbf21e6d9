"""A crash or a full disk at every step of making, growing, changing and deleting a topic.

After it each topic is as it was before or as it should have become, no other topic has changed, and
nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.broker.topics import Topics
from rota.errors import DiskError, Refused
from tests.support.faulty_disk import FaultyDisk, Stopped
from tests.support.topic_store import NOW, Store

Act = Callable[[Topics], object]


def _replace(topics: Topics) -> None:
    topics.delete("orders", NOW)
    topics.create("orders", 1, {}, NOW)


ACTS: dict[str, Act] = {
    "create": lambda topics: topics.create("new", 3, {"retention.ms": "5"}, NOW),
    "grow": lambda topics: topics.grow("orders", 4, NOW),
    "configure": lambda topics: topics.configure("orders", {"retention.ms": "5"}, NOW),
    "delete": lambda topics: topics.delete("orders", NOW),
    "delete and create": _replace,
}
EACH = pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())


def begun(seed: int = 0) -> Store:
    """Two topics with records that are on the disk."""
    store = Store(FaultyDisk(seed))
    for name in ("kept", "orders"):
        store.topics.create(name, 2, {}, NOW)
        for partition in range(2):
            store.write(name, partition, b"a", b"b")
            store.topics.log(name, partition).flush()  # type: ignore[union-attr]
    store.topics.housekeep(NOW)
    return store


def seen(store: Store) -> dict[str, tuple[list[int], dict[str, str]]]:
    """Each topic: where its partitions end, and its settings."""
    ends = store.ends()
    return {topic.name: (ends[topic.name], dict(topic.overrides)) for topic in store.topics}


def outcomes(act: Act) -> list[object]:
    """What there may be after a stop: as before, as after each step, as after all."""
    store = begun()
    found: list[object] = [seen(store)]
    act(store.topics)
    found.append(seen(store))
    if act is ACTS["delete and create"]:
        found.append({"kept": ([2, 2], {})})
    return found


def check(store: Store, act: Act) -> None:
    assert seen(store) in outcomes(act)
    store.wait(60_000)
    wanted = {f"{topic.name}-{n}" for topic in store.topics for n in range(topic.partitions)}
    assert {name for name in store.folders() if store.disk.names(name)} <= wanted
    for name in ("orders", "new"):
        if store.topics.get(name) is None:
            store.topics.create(name, 2, {}, NOW)
        store.write(name, 0, b"c")


def refused(store: Store, act: Act) -> str | None:
    try:
        act(store.topics)
    except Refused as error:
        return str(error)
    return None


def steps(act: Act) -> int:
    store = begun()
    assert isinstance(store.disk, FaultyDisk)
    before = store.disk.changes
    act(store.topics)
    return store.disk.changes - before


@EACH
@pytest.mark.parametrize("cut", ["kill", "crash", "least"])
def test_a_stop_at_every_step(act: Act, cut: str) -> None:
    for step in range(steps(act)):
        for seed in range(3):
            store = begun(seed)
            disk = store.disk
            assert isinstance(disk, FaultyDisk)
            disk.stop_at(step)
            with pytest.raises(Stopped):
                act(store.topics)
            left = disk.kill() if cut == "kill" else disk.crash(least=cut == "least")
            again = store.restart(left)
            check(again, act)


@EACH
def test_a_stop_while_the_start_mends(act: Act) -> None:
    """The start after a stop is stopped too, at every step."""
    for step in range(steps(act)):
        first = begun(step)
        disk = first.disk
        assert isinstance(disk, FaultyDisk)
        disk.stop_at(step)
        with pytest.raises(Stopped):
            act(first.topics)
        for later in range(100):
            left = disk.kill()
            left.stop_at(later)
            try:
                first.restart(left)
            except Stopped:
                check(first.restart(left.kill()), act)
                check(first.restart(left.crash()), act)
            else:
                break
        else:
            pytest.fail("a start takes more than 100 changes")


@EACH
def test_a_disk_that_refuses_any_step_leaves_all_as_it_was(act: Act) -> None:
    for operation in ("append", "make", "rename", "replace", "sync"):
        for step in range(30):
            store = begun()
            disk = store.disk
            assert isinstance(disk, FaultyDisk)
            before = seen(store)
            disk.refuse(operation, skip=step)
            if refused(store, act) is None:
                break
            if act is not ACTS["delete and create"]:
                assert seen(store) == before
                assert seen(store.restart()) == before
            disk.allow()
            check(store, act)
        else:
            pytest.fail(f"more than 30 times {operation}")


@EACH
def test_a_full_disk_leaves_all_as_it_was(act: Act) -> None:
    for room in range(0, 3_000, 60):
        store = begun()
        disk = store.disk
        assert isinstance(disk, FaultyDisk)
        before = seen(store)
        disk.room(room)
        problem = refused(store, act)
        assert problem is None or "No space left" in problem
        if problem and act is not ACTS["delete and create"]:
            assert seen(store) == before
        disk.room(None)
        if problem and act is not ACTS["delete and create"]:
            assert seen(store.restart()) == before
        check(store.restart(), act)


def test_a_log_that_has_failed_keeps_the_folder_from_being_marked_clean() -> None:
    disk = FaultyDisk(0)
    store = Store(disk)
    store.topics.create("orders", 2, {"flush.messages": "1"}, NOW)
    store.write("orders", 0, b"a")
    disk.refuse("sync", "orders-0/*.log")
    with pytest.raises(DiskError):
        store.write("orders", 0, b"b")
    again = store.stop()
    assert "the next start reads the logs, for some have failed: orders-0" in store.said
    assert not again.folder.clean
    assert again.ends() == {"orders": [1, 0]}
    assert again.stop().folder.clean


def test_a_log_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    disk = FaultyDisk(0)
    store = Store(disk)
    store.topics.create("orders", 2, {}, NOW)
    store.write("orders", 0, b"a")
    store.write("orders", 1, b"a")
    disk.refuse("sync", "orders-0/*.log")
    with pytest.raises(DiskError):
        store.topics.close(NOW)
    assert store.folder.recovery_points == {("orders", 0): 0, ("orders", 1): 1}
    assert not store.restart().folder.clean
