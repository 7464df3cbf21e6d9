"""A crash or a full disk at every step of making, growing, changing and deleting a topic.

After it each topic is as it was before or as it should have become, no other topic has changed, and
nothing is left behind.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rota.broker.topics import Topics, single_outcome
from rota.errors import DiskError, Refused
from tests.support.faulty_disk import FaultyDisk, Stopped
from tests.support.node import InMemoryNode
from tests.support.requests import START

Act = Callable[[Topics], object]


def _replace(topics: Topics) -> None:
    topics.delete("orders", START)
    topics.create("orders", 1, {}, START)


ACTS: dict[str, Act] = {
    "create": lambda topics: topics.create("new", 3, {"retention.ms": "5"}, START),
    "grow": lambda topics: topics.create_partitions("orders", 4, START),
    "configure": lambda topics: single_outcome(
        topics.configure_all({"orders": {"retention.ms": "5"}})
    ),
    "delete": lambda topics: topics.delete("orders", START),
    "delete and create": _replace,
}
EACH = pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())


def start_node(seed: int = 0) -> InMemoryNode:
    """Two topics with records that are on the disk."""
    node = InMemoryNode(FaultyDisk(seed))
    for name in ("kept", "orders"):
        node.topics.create(name, 2, {}, START)
        for partition in range(2):
            node.append(name, partition, b"a", b"b")
            node.topics.get_log(name, partition).flush()  # type: ignore[union-attr]
    node.topics.log_manager.run_all(START)
    return node


def read_topics(node: InMemoryNode) -> dict[str, tuple[list[int], dict[str, str]]]:
    """Each topic: where its partitions end, and its settings."""
    ends = node.end_offsets()
    return {topic.name: (ends[topic.name], dict(topic.overrides)) for topic in node.topics}


def outcomes(act: Act) -> list[object]:
    """What there may be after a stop: as before, as after each step, as after all."""
    node = start_node()
    found: list[object] = [read_topics(node)]
    act(node.topics)
    found.append(read_topics(node))
    if act is ACTS["delete and create"]:
        found.append({"kept": ([2, 2], {})})
    return found


def check(node: InMemoryNode, act: Act) -> None:
    assert read_topics(node) in outcomes(act)
    node.advance(60_000)
    wanted = {f"{topic.name}-{n}" for topic in node.topics for n in range(topic.partition_count)}
    assert {name for name in node.folders() if node.disk.list_names(name)} <= wanted
    for name in ("orders", "new"):
        if node.topics.get(name) is None:
            node.topics.create(name, 2, {}, START)
        node.append(name, 0, b"c")


def refusal_of(node: InMemoryNode, act: Act) -> str | None:
    try:
        act(node.topics)
    except Refused as error:
        return str(error)
    return None


def count_steps(act: Act) -> int:
    node = start_node()
    before = node.disk.changes
    act(node.topics)
    return node.disk.changes - before


@EACH
@pytest.mark.parametrize("cut", ["kill", "crash", "least"])
def test_a_stop_at_every_step(act: Act, cut: str) -> None:
    for step in range(count_steps(act)):
        for seed in range(3):
            node = start_node(seed)
            disk = node.disk
            disk.stop_at(step)
            with pytest.raises(Stopped):
                act(node.topics)
            left = disk.kill() if cut == "kill" else disk.crash(least=cut == "least")
            again = node.restart(left)
            check(again, act)


@EACH
def test_a_stop_while_the_start_mends(act: Act) -> None:
    """The start after a stop is stopped too, at every step."""
    for step in range(count_steps(act)):
        first = start_node(step)
        disk = first.disk
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
    for operation in ("append", "make_folder", "rename", "replace", "sync"):
        for step in range(30):
            node = start_node()
            disk = node.disk
            before = read_topics(node)
            disk.refuse(operation, skip=step)
            if refusal_of(node, act) is None:
                break
            if act is not ACTS["delete and create"]:
                assert read_topics(node) == before
                assert read_topics(node.restart(node.disk)) == before
            disk.allow()
            check(node, act)
        else:
            pytest.fail(f"more than 30 times {operation}")


@EACH
def test_a_full_disk_leaves_all_as_it_was(act: Act) -> None:
    for room in range(0, 3_000, 60):
        node = start_node()
        disk = node.disk
        before = read_topics(node)
        disk.room(room)
        problem = refusal_of(node, act)
        assert problem is None or "No space left" in problem
        if problem and act is not ACTS["delete and create"]:
            assert read_topics(node) == before
        disk.room(None)
        if problem and act is not ACTS["delete and create"]:
            assert read_topics(node.restart(node.disk)) == before
        check(node.restart(node.disk), act)


def test_a_log_that_has_failed_keeps_the_folder_from_being_marked_clean() -> None:
    disk = FaultyDisk(0)
    node = InMemoryNode(disk)
    node.topics.create("orders", 2, {"flush.messages": "1"}, START)
    node.append("orders", 0, b"a")
    disk.refuse("sync", "orders-0/*.log")
    with pytest.raises(DiskError):
        node.append("orders", 0, b"b")
    again = node.restart(node.disk, clean=True)
    assert "the next start recovers all logs, because these have failed: orders-0" in node.log_lines
    assert not again.folder.clean_shutdown
    assert again.end_offsets() == {"orders": [1, 0]}
    assert again.restart(again.disk, clean=True).folder.clean_shutdown


def test_a_log_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    disk = FaultyDisk(0)
    node = InMemoryNode(disk)
    node.topics.create("orders", 2, {}, START)
    node.append("orders", 0, b"a")
    node.append("orders", 1, b"a")
    disk.refuse("sync", "orders-0/*.log")
    with pytest.raises(DiskError):
        node.topics.close(START)
    assert node.folder.recovery_points == {("orders", 0): 0, ("orders", 1): 1}
    assert not node.restart(node.disk).folder.clean_shutdown
