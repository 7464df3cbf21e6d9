"""A broker on a folder in which something is wrong: it never serves what was not promised.

Each file of a folder is damaged in turn, after a stop in good order and after a kill, and a broker
is started on it. It starts, or says in one line why not. What it serves is what was acknowledged,
to the bit; if something is missing, the log names the file.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from rota.engine.formats.record_batch import HEADER, BatchRecord, encode_batch
from rota.errors import Code
from tests.support.acknowledged_folder import (
    CONFIG,
    AcknowledgedFolder,
    folder_after_kill,
    folder_after_stop,
    read_all,
    read_batches,
)
from tests.support.faulty_disk import FaultyDisk
from tests.support.node import InMemoryNode
from tests.support.requests import START, read_records

ENDS = {"stopped": folder_after_stop, "killed": folder_after_kill}
every_end = pytest.mark.parametrize("end", ENDS)
#: ``make check`` tries FEW bits and cuts of each file; ``make nightly`` MANY times as many bits.
FEW, MANY = 2, 120

#: Where a flipped bit may go unsaid: nothing that is served depends on it.
UNNOTICED = {
    ".index": "an entry that no look-up needed, or that the recovery made anew; what an entry says "
    "is believed only if the log confirms it",
    ".timeindex": "the same",
    ".snapshot": "not read, for a newer one is there; what is read has a checksum",
    "leader-epoch-checkpoint": "the first offset of the only epoch: all batches are in it, "
    "whatever it says",
    "partition.metadata": "the last character of an id in base64 has four bits that mean nothing",
    ".kafka_cleanshutdown": "another broker epoch, which nobody asks for",
}


def file_type(path: str) -> str:
    name = path.rpartition("/")[2]
    return f".{name.rpartition('.')[2]}" if name[0].isdigit() else name


def choose_bits(size: int, most: int, rng: random.Random) -> list[int]:
    return list(range(size * 8)) if size * 8 <= most else rng.sample(range(size * 8), most)


def flip_everywhere(folder: AcknowledgedFolder, most: int, seed: int) -> None:
    rng = random.Random(seed)
    for path in folder.disk.paths():
        for bit in choose_bits(folder.disk.size(path) or 0, most, rng):
            disk = folder.disk.kill()
            disk.flip(path, bit)
            try:
                served = folder.judge(disk, path)
            except AssertionError as error:
                raise AssertionError(f"{path}: bit {bit} flipped: {error}") from error
            if served is not None and file_type(path) not in UNNOTICED:
                told = [line for line in served.lines if line.startswith(path)]
                assert told, f"{path}: bit {bit}: not a word"
                assert file_type(path) != ".log" or ": byte " in told[0], told


@every_end
@pytest.mark.parametrize("most", [1, pytest.param(FEW, marks=pytest.mark.check)])
def test_a_flipped_bit_in_any_file(end: str, most: int) -> None:
    flip_everywhere(ENDS[end](), most, seed=1)


@pytest.mark.nightly
@every_end
@pytest.mark.parametrize("seed", range(8))
def test_flipped_bits_everywhere(end: str, seed: int) -> None:
    flip_everywhere(ENDS[end](), MANY * FEW, seed)


@every_end
def test_all_that_may_go_unsaid_does(end: str) -> None:
    """The list above has nothing in it that is not needed."""
    folder = ENDS[end]()
    there = {file_type(path) for path in folder.disk.paths()}
    for name, path, bit in (
        ("leader-epoch-checkpoint", "log-0/leader-epoch-checkpoint", 8 * 6),
        ("partition.metadata", "log-0/partition.metadata", 8 * 42),
        (".timeindex", "log-0/00000000000000000009.timeindex", 8 * 12),
        (".snapshot", "log-0/00000000000000000009.snapshot", 8 * 9),
        (".index", "log-0/00000000000000000009.index", 8 * 7),
    ):
        assert name in there
        disk = folder.disk.kill()
        disk.flip(path, bit)
        served = folder.judge(disk, path)
        assert served is not None
        assert not served.lacks(folder.promised)


# files that are gone, short, or another's


def truncations(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """The file is missing, empty, cut anywhere, or ends in zeros."""
    yield "missing", None
    size = len(data)
    for end in range(size):
        yield f"cut at {end}", data[:end]
    for more in (1, 61, 200):
        yield f"{more} zeros behind", data + bytes(more)
    for last in (1, 70, size):
        if 0 < last <= size:
            yield f"zeros in the last {last}", data[: size - last] + bytes(last)


def break_everywhere(end: str, most: int, seed: int) -> None:
    folder, rng = ENDS[end](), random.Random(seed)
    for path in folder.disk.paths():
        content = folder.disk.content(path)
        damages = [each for each in truncations(content) if each[1] != content]
        for what, data in damages if len(damages) <= most else rng.sample(damages, most):
            disk = folder.disk.kill()
            if data is None:
                disk.remove(path)
            else:
                disk.put(path, data)
            quiet = end == "killed" and data is not None and is_loss_of_power(folder, path, data)
            try:
                folder.judge(disk, path, unsaid=quiet)
            except AssertionError as error:
                raise AssertionError(f"{path}: {what}: {error}") from error


def is_loss_of_power(folder: AcknowledgedFolder, path: str, data: bytes) -> bool:
    """Whole batches are gone that were not synced, from the end: nobody can tell after a kill."""
    if file_type(path) != ".log":
        return False
    above = path.rpartition("/")[0]
    logs = [
        each for each in folder.disk.paths() if each.startswith(above) and file_type(each) == ".log"
    ]
    while len(data) >= HEADER.size:
        size = 12 + HEADER.unpack_from(data)[1]
        if size < HEADER.size or len(data) < size:
            break
        data = data[size:]
    return path == logs[-1] and not data


@every_end
@pytest.mark.parametrize("most", [1, pytest.param(FEW, marks=pytest.mark.check)])
def test_a_file_that_is_missing_or_cut_or_ends_in_zeros(end: str, most: int) -> None:
    break_everywhere(end, most, seed=1)


@pytest.mark.nightly
@every_end
def test_files_cut_at_every_byte(end: str) -> None:
    break_everywhere(end, 1_000, seed=2)


@pytest.mark.check
@every_end
def test_a_file_of_another_partition(end: str) -> None:
    """Nothing in Kafka's format says whose a batch is: it may be served, if it is where it was.

    Nothing else comes of it: no end of the broker, and no record that nobody ever wrote.
    """
    folder = ENDS[end]()
    for path in folder.disk.paths():
        if not path.startswith("log-0/"):
            continue
        for other in ("log-1", "cut-0", "compact-0"):
            for source in folder.disk.paths():
                if source.startswith(f"{other}/") and file_type(source) == file_type(path):
                    disk = folder.disk.kill()
                    disk.put(path, folder.disk.content(source))
                    folder.judge(disk, path, foreign=True, unsaid=True)


# while it runs


@every_end
@pytest.mark.parametrize("warm", [False, True], ids=["unread", "read before"])
@pytest.mark.parametrize("most", [1, pytest.param(2 * FEW, marks=pytest.mark.check)])
def test_a_bit_that_flips_while_the_broker_runs(end: str, warm: bool, most: int) -> None:
    """In a sealed segment and in the one that is written, whether it was read before or not."""
    folder, rng = ENDS[end](), random.Random(3)
    logs = [each for each in folder.disk.paths() if file_type(each) == ".log"]
    for path in logs:
        for bit in choose_bits(folder.disk.size(path) or 0, most, rng):
            node = start_node(folder.disk.kill())
            before = read_all(node) if warm else None
            node.disk.flip(path, bit)
            served = read_all(node)
            if path.startswith("__"):
                assert served.committed == folder.promised.committed
                continue
            assert before is None or not before.lacks(folder.promised)
            folder.check(served, path)
            assert served.lacks(folder.promised)
            assert any(line.startswith(f"{path}: byte ") for line in served.lines), served.lines


@pytest.mark.parametrize("ending", [".index", ".timeindex"])
def test_an_index_that_changes_while_the_broker_runs(ending: str) -> None:
    folder, rng = folder_after_stop(), random.Random(4)
    for path in folder.disk.paths():
        if file_type(path) == ending and not path.startswith("__"):
            for bit in choose_bits(folder.disk.size(path) or 0, FEW, rng):
                node = start_node(folder.disk.kill())
                if bit % 2:
                    read_all(node)
                node.disk.flip(path, bit)
                served = read_all(node)
                folder.check(served, path)
                assert not served.lacks(folder.promised)


def test_compaction_does_not_carry_damage_on() -> None:
    """What it cannot read it leaves as it is, and says so."""
    folder, rng = folder_after_stop(), random.Random(5)
    known = {each for batch in folder.taken["compact", 0].values() for each in read_records(batch)}
    for path in folder.disk.paths():
        if file_type(path) != ".log" or not path.startswith("compact-0/"):
            continue
        for bit in choose_bits(folder.disk.size(path) or 0, 3 * FEW, rng):
            node = start_node(folder.disk.kill())
            peer = node.connect()
            node.disk.flip(path, bit)
            for number in range(16):
                record = BatchRecord(0, START + 80_000, b"k0", b"more %d" % number)
                answer = peer.produce_batch("compact", 0, encode_batch([record]))
                known.add((answer.base_offset, b"k0", b"more %d" % number))
            node.topics.log_manager.run_all(node.now + 100_000)
            found = [
                each
                for _, batch in read_batches(peer, "compact", 0, 0)
                for each in read_records(batch)
            ]
            assert set(found) <= known
            assert (39, b"k0", b"more 15") in found
            assert any(line.startswith(f"{path}: byte ") for line in node.log_lines), node.log_lines
            assert not node.error_lines


def start_node(disk: FaultyDisk) -> InMemoryNode:
    return InMemoryNode(disk, config=CONFIG, now=START + 100_000)


# what these have found


@every_end
@pytest.mark.parametrize("digit", [b"1", b"2", b"4", b"8"])
def test_a_wrong_epoch_in_the_checkpoint_does_not_cost_the_log(end: str, digit: bytes) -> None:
    folder = ENDS[end]()
    path = "log-0/leader-epoch-checkpoint"
    disk = folder.disk.kill()
    disk.put(path, b"0\n1\n" + digit + b" 0\n")
    served = folder.judge(disk, path)
    assert served is not None
    assert not served.lacks(folder.promised)
    assert disk.content(path) == b"0\n1\n0 0\n"
    assert any(line.startswith(path) for line in served.lines)


@every_end
def test_a_wrong_character_of_a_topic_id_does_not_keep_a_broker_from_starting(end: str) -> None:
    folder = ENDS[end]()
    path = "log-1/partition.metadata"
    disk = folder.disk.kill()
    disk.flip(path, 8 * 25)
    served = folder.judge(disk, path)
    assert served is not None
    assert not served.lacks(folder.promised)
    assert disk.content(path) == folder.disk.content(path)


@every_end
def test_a_lost_list_of_log_starts_is_made_up_for(end: str) -> None:
    """Records that were deleted stay so: there is a copy of the list."""
    folder = ENDS[end]()
    path = "log-start-offset-checkpoint"
    for content in (None, b""):
        disk = folder.disk.kill()
        disk.remove(path)
        if content is not None:
            disk.put(path, content)
        served = folder.judge(disk, path)
        assert served is not None
        assert served.bounds == folder.promised.bounds
        assert any(line.startswith(path) for line in served.lines)


def test_damage_in_the_journal_is_not_taken_for_another_offset() -> None:
    """A group that waits is better than one whose offsets go back unseen."""
    folder = folder_after_stop()
    found = set()
    for path in folder.disk.paths():
        if file_type(path) == ".log" and path.startswith("__consumer_offsets"):
            for at in range(0, folder.disk.size(path) or 0, 90):
                disk = folder.disk.kill()
                disk.flip(path, 8 * at)
                served = folder.judge(disk, path)
                assert served is not None
                found |= {each for each in served.committed.values() if isinstance(each, Code)}
    assert Code.NOT_COORDINATOR in found
