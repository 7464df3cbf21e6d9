"""Index files that are gone, wrong or another's: made anew, said, and never believed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from rota.broker.storage.log import Log
from rota.broker.storage.log_segment import FULL_CHECK_BYTES
from rota.engine.formats.record_batch import read_batch_header
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.engine.model.config import TopicConfig
from tests.support.examples import first
from tests.support.faulty_disk import FaultyDisk
from tests.support.partition_log import (
    NOW,
    ReportedEvents,
    create_log,
    log_files,
    producer_batch,
    read_batches,
    reopen_log,
)

CONFIG = TopicConfig(index_interval=150)
TIMES = [0, 30, 10, 20, 50, 40, 90, 60, 70, 80, 100, 130, 110, 120, 125, 126, 127, 128, 131, 129]


def create_filled_log(
    disk: FaultyDisk, told: ReportedEvents | None = None, times: Sequence[int] = TIMES
) -> Log:
    """Three segments; times go up and down."""
    log = create_log(disk, told, config=CONFIG, segment_bytes=1_000)
    for row, at in enumerate(times):
        log.append(producer_batch(b"%02d" % row, bytes(20 + row), at=NOW + at), NOW)
    assert len(log.segments) == 3
    return log


def look_up(log: Log, step: int = 1) -> None:
    """Every offset and every time is where a reader of all records finds it."""
    whole = list(iterate_records(decode_batches(b"".join(read_batches(log)))))
    assert [each.offset for each in whole] == list(range(40))
    for offset in range(40):
        found = read_batch_header(log.read(offset, 1))
        assert found.base_offset <= offset <= found.last_offset
    for at in range(NOW - 2, NOW + 135, step):
        expected = next(((r.offset, r.timestamp) for r in whole if r.timestamp >= at), None)
        assert log.find_timestamp(at) == expected, at - NOW
    newest = max(whole, key=lambda each: (each.timestamp, -each.offset))
    assert log.find_newest_record() == (newest.offset, newest.timestamp)


def swap_entries(data: bytes, size: int) -> bytes:
    return data[size : 2 * size] + data[:size] + data[2 * size :]


DAMAGES: dict[str, Callable[[bytes, int], bytes | None]] = {
    "missing": lambda data, size: None,
    "empty": lambda data, size: b"",
    "cut": lambda data, size: data[:-3],
    "without its last entry": lambda data, size: data[:-size],
    "too long": lambda data, size: data + data[-size:],
    "far too long": lambda data, size: data + b"\x7f" * size * 3,
    "with zeros behind": lambda data, size: data + bytes(size * 20),
    "all zeros": lambda data, size: bytes(len(data)),
    "unsorted": swap_entries,
    "backwards": lambda data, size: b"".join(
        data[at : at + size] for at in range(len(data) - size, -1, -size)
    ),
    "bytes of another file": lambda data, size: b"rota" * (len(data) // 4),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("row", first(1, [0, 1, 2]))
@pytest.mark.parametrize("clean", [True, False])
def test_look_ups_are_right_whatever_is_in_an_index(
    damage: str, kind: str, row: int, clean: bool
) -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    create_filled_log(disk).close()
    path = log_files(disk)[row].replace(".log", f".{kind}")
    good = disk.content(path)
    bad = DAMAGES[damage](good, 8 if kind == "index" else 12)
    disk.remove(path)
    if bad is not None:
        disk.put(path, bad)
    log = reopen_log(disk, told, clean=clean, recovery_point=40 if clean else 0, config=CONFIG)
    look_up(log)
    log.close()
    shorter = kind == "index" and damage in {"empty", "without its last entry"}
    harmless = shorter or bad == good
    if clean and not harmless:
        assert any(path.rpartition(".")[0] in line for line in told), told
        assert disk.content(path) == good
    if not clean:
        assert disk.content(path) == good


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_an_index_of_another_segment_is_not_believed(kind: str) -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    create_filled_log(disk).close()
    first, second, *_ = (path.replace(".log", f".{kind}") for path in log_files(disk))
    mine, other = disk.content(first), disk.content(second)
    disk.put(first, other)
    disk.put(second, mine)
    look_up(reopen_log(disk, told, clean=True, recovery_point=40, config=CONFIG))
    assert any("rebuilt" in line for line in told)
    assert (disk.content(first), disk.content(second)) == (mine, other)


@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("row", [0, 2])
@pytest.mark.parametrize(("times", "near"), [(TIMES, FULL_CHECK_BYTES), (TIMES[::-1], 100)])
@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.check)])
def test_no_flipped_bit_of_an_index_misleads(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    row: int,
    times: Sequence[int],
    near: int,
    every: int,
) -> None:
    monkeypatch.setattr("rota.broker.storage.log_segment.FULL_CHECK_BYTES", near)
    whole = FaultyDisk()
    create_filled_log(whole, times=times).close()
    path = log_files(whole)[row].replace(".log", f".{kind}")
    for bit in range(0, 8 * len(whole.content(path)), every):
        disk = whole.kill()
        disk.flip(path, bit)
        look_up(reopen_log(disk, clean=True, recovery_point=40, config=CONFIG), step=17)


def test_look_ups_are_right_while_the_log_is_written() -> None:
    look_up(create_filled_log(FaultyDisk()))


def test_a_wrong_index_is_replaced_while_the_log_is_written() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_filled_log(disk, told)
    path = log_files(disk)[0].replace(".log", ".index")
    good = disk.content(path)
    disk.flip(path, 8 * 11)
    look_up(log)
    assert told == [f"{path}: an entry does not match the log; the indexes are rebuilt"]
    assert disk.content(path) == good


RISING = range(0, 120, 6)
SHAPES: dict[str, list[int]] = {
    "constant": [50] * 20,
    "falling": [*RISING][::-1],
    "newer at the end": [50] * 19 + [90],
    "older at the end": [50] * 19 + [10],
    "newer in the middle": [50] * 9 + [90] + [50] * 10,
    "in steps": [10] * 7 + [40] * 2 + [20] * 5 + [40] * 3 + [60] * 3,
    "up and down": [each ^ 37 for each in RISING],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("near", [FULL_CHECK_BYTES, 100])
def test_look_ups_are_right_however_times_run(
    monkeypatch: pytest.MonkeyPatch, shape: str, near: int
) -> None:
    monkeypatch.setattr("rota.broker.storage.log_segment.FULL_CHECK_BYTES", near)
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_filled_log(disk, told, SHAPES[shape])
    look_up(log)
    log.close()
    look_up(reopen_log(disk, told, clean=True, recovery_point=40, config=CONFIG))
    assert told == []


class Counted(FaultyDisk):
    """Counts what is read of logs."""

    taken = 0

    def read(self, path: str, position: int, size: int) -> bytes:
        data = super().read(path, position, size)
        self.taken += len(data) if path.endswith(".log") else 0
        return data


@pytest.mark.parametrize("shape", SHAPES)
def test_a_look_up_by_time_reads_little_however_times_run(shape: str) -> None:
    disk, told = Counted(), ReportedEvents()
    log = create_log(disk, config=TopicConfig(), segment_bytes=6 << 20)
    value = bytes(8_000)
    for at in SHAPES[shape]:
        for _ in range(100):  # 16 MB in all
            log.append(producer_batch(value, at=NOW + at), NOW)
    assert len(log.segments) == 3
    log.close()
    for at in (9, 45, 70, 200):
        log = reopen_log(
            disk, told, clean=True, recovery_point=log.log_end_offset, config=TopicConfig()
        )
        disk.taken = 0
        log.find_timestamp(NOW + at)
        log.find_newest_record()
        log.delete_old_segments(NOW)
        assert disk.taken < 2_500_000
    assert told == []
