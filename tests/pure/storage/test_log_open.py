"""Opening a log: trusted after a clean stop, else read, cut where it is not sound, and said."""

from __future__ import annotations

import pytest

from rota.broker.storage.log import Log
from rota.engine.formats.record_batch import read_batch_header
from rota.engine.model.config import TopicConfig
from rota.errors import Refused
from tests.support.faulty_disk import FaultyDisk
from tests.support.partition_log import (
    NOW,
    ReportedEvents,
    create_log,
    log_files,
    producer_batch,
    read_batches,
    read_values,
    reopen_log,
)

CONFIG = TopicConfig(index_interval=150)


def create_filled_log(disk: FaultyDisk, count: int = 12, segment_bytes: int = 400) -> Log:
    log = create_log(disk, config=CONFIG, segment_bytes=segment_bytes)
    for row in range(count):
        log.append(producer_batch(b"%02d" % row, bytes(30), at=NOW + row), NOW)
    return log


SIZE = len(producer_batch(b"00", bytes(30)))


def log_state(log: Log) -> tuple[int, int, int, list[bytes], int]:
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.size,
        read_batches(log),
        log.producers.end_offset,
    )


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_is_opened_as_it_was_left(clean: bool) -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_filled_log(disk)
    before = log_state(log)
    log.close()
    files = {path: disk.content(path) for path in disk.paths()}
    again = reopen_log(disk, told, clean=clean, recovery_point=log.recovery_point, config=CONFIG)
    assert log_state(again) == before
    assert again.recovery_point == log.log_end_offset
    assert not told
    again.close()
    assert {path: disk.content(path) for path in disk.paths()} == files
    again.append(producer_batch(b"more"), NOW)
    assert read_values(again)[-1] == (24, b"more")


def test_after_a_clean_stop_even_a_loss_of_power_costs_nothing() -> None:
    for seed in range(40):
        disk = FaultyDisk(seed)
        log = create_filled_log(disk)
        before = log_state(log)
        log.close()
        again = reopen_log(disk.crash(), clean=True, recovery_point=24, config=CONFIG)
        assert log_state(again) == before
        assert again.find_newest_record() == log.find_newest_record()


def test_a_killed_process_leaves_all_it_has_acknowledged() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_filled_log(disk)
    before = log_state(log)
    again = reopen_log(disk.kill(), told, recovery_point=log.recovery_point, config=CONFIG)
    assert log_state(again) == before
    assert not told


def test_what_a_killed_process_did_not_flush_is_flushed_by_the_next() -> None:
    """The records are in the page cache, and a loss of power would still cost them."""
    disk = FaultyDisk()
    log = create_filled_log(disk, segment_bytes=10_000)
    before = read_batches(log)
    assert log.recovery_point == 0
    again = reopen_log(disk, config=CONFIG)
    assert (again.log_end_offset, again.recovery_point) == (24, 0)
    assert reopen_log(disk.crash(least=True), config=CONFIG).log_end_offset == 0
    again.flush()
    assert again.recovery_point == 24
    assert (
        read_batches(reopen_log(disk.crash(least=True), recovery_point=24, config=CONFIG)) == before
    )


def test_after_a_clean_stop_only_the_ends_are_read() -> None:
    disk = FaultyDisk()
    log = create_filled_log(disk, count=500, segment_bytes=10_000)
    log.close()
    reads: list[tuple[str, int]] = []
    read = disk.read

    def counted(path: str, position: int, size: int) -> bytes:
        found = read(path, position, size)
        if path.endswith(".log"):
            reads.append((path, len(found)))
        return found

    disk.read = counted  # type: ignore[method-assign]
    again = reopen_log(disk, clean=True, recovery_point=log.log_end_offset, config=CONFIG)
    assert again.log_end_offset == 1_000
    assert {path for path, _ in reads} == set(log_files(disk)), "the ends, for gaps"
    assert sum(size for _, size in reads) < log.size / 10


@pytest.mark.parametrize("size", range(SIZE))
def test_a_write_torn_at_any_byte_is_cut_off(size: int) -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    create_filled_log(disk)
    path = log_files(disk)[-1]
    content = disk.content(path)
    for tail in (b"", bytes(SIZE - size), b"\xff" * (SIZE - size)):
        left = content[: len(content) - SIZE + size] + tail
        if left == content:
            continue
        copy = disk.kill()
        copy.put(path, left)
        told.clear()
        again = reopen_log(copy, told, config=CONFIG)
        assert [offset for offset, _ in read_values(again)] == list(range(22))
        assert again.append(producer_batch(b"x"), NOW).base_offset == 22
        assert read_values(again)[-1] == (22, b"x")
        assert again.size == sum(len(copy.content(each)) for each in log_files(copy))
        if len(left) > len(content) - SIZE:
            (line,) = told
            assert f"{path}: byte {len(content) - SIZE}: " in line
            assert f"{len(left) - len(content) + SIZE} bytes removed" in line
        else:
            assert not told


@pytest.mark.parametrize("row", [0, 5, 11])
def test_a_flipped_bit_anywhere_in_a_batch_ends_the_log_before_it(row: int) -> None:
    whole = FaultyDisk()
    log = create_filled_log(whole, segment_bytes=10_000)
    good = read_batches(log)
    log.close()
    path = log_files(whole)[0]
    for bit in range(8 * SIZE * row, 8 * SIZE * (row + 1), 3):
        disk, told = whole.kill(), ReportedEvents()
        disk.flip(path, bit)
        again = reopen_log(disk, told, clean=False, recovery_point=0, config=CONFIG)
        assert read_batches(again) == good[:row], bit
        assert f"{path}: byte {row * SIZE}: " in told[0], bit
        assert again.append(producer_batch(b"x"), NOW).base_offset == again.log_end_offset - 1


@pytest.mark.parametrize("row", [0, 5, 11])
def test_damage_after_a_clean_stop_costs_no_offset(row: int) -> None:
    whole = FaultyDisk()
    log = create_filled_log(whole, segment_bytes=10_000)
    good = read_batches(log)
    log.close()
    path = log_files(whole)[0]
    for bit in range(8 * SIZE * row, 8 * SIZE * (row + 1), 3):
        disk, told = whole.kill(), ReportedEvents()
        disk.flip(path, bit)
        again = reopen_log(disk, told, clean=True, recovery_point=24, config=CONFIG)
        assert again.append(producer_batch(b"x"), NOW).base_offset == 24, bit
        assert read_values(again, 24) == [(24, b"x")]
        with pytest.raises(Refused, match=f"byte {row * SIZE}"):
            again.read(2 * row, 10_000)
        assert any(f"{path}: byte {row * SIZE}: " in line for line in told), bit
        if row:
            assert bytes(again.read(0, SIZE * row)) == b"".join(good[:row])


def test_a_clean_log_that_lost_its_end_gives_no_offset_twice() -> None:
    for size in range(0, 12 * SIZE, SIZE // 3):
        disk, told = FaultyDisk(), ReportedEvents()
        log = create_filled_log(disk, segment_bytes=10_000)
        log.close()
        disk.truncate(log_files(disk)[0], size)
        again = reopen_log(disk, told, clean=True, recovery_point=24, config=CONFIG)
        assert again.append(producer_batch(b"x"), NOW).base_offset == 24
        assert told


def test_what_follows_damage_is_removed_and_said() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_filled_log(disk)
    files = log_files(disk)
    assert len(files) == 4
    disk.flip(files[1], 8 * (SIZE + 70))
    again = reopen_log(disk, told, config=CONFIG)
    assert again.log_end_offset == 8
    assert [offset for offset, _ in read_values(again)] == list(range(8))
    assert log_files(disk) == files[:2]
    assert [line.split(":")[0] for line in told] == [files[3], files[2], files[1], files[1]][:3]
    assert f"byte {SIZE}: checksum" in told[-1]
    assert log.log_end_offset == 24


def test_what_was_flushed_is_not_read_again_and_what_is_behind_it_is() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_filled_log(disk)
    files = log_files(disk)
    disk.flip(files[0], 8 * 100)
    again = reopen_log(disk, told, recovery_point=log.recovery_point, config=CONFIG)
    assert (again.log_end_offset, told) == (24, [])
    disk.flip(files[3], 8 * 100)
    again = reopen_log(disk, told, recovery_point=log.recovery_point, config=CONFIG)
    assert again.log_end_offset == 18
    assert files[3] in told[0]


def test_flushed_records_that_are_gone_are_told_of() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_filled_log(disk)
    log.flush()
    path = log_files(disk)[-1]
    disk.put(path, disk.content(path)[:-SIZE])
    reopen_log(disk, told, recovery_point=log.recovery_point, config=CONFIG)
    assert told == [f"{path}: ends at offset 22, but 24 was flushed"]


def test_a_segment_that_begins_too_early_is_removed() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    create_filled_log(disk)
    files = log_files(disk)
    early = files[1].replace("06.log", "05.log")
    disk.put(early, disk.content(files[1]))
    again = reopen_log(disk, told, config=CONFIG)
    assert [offset for offset, _ in read_values(again)] == list(range(24))
    (line,) = told
    assert early in line
    assert "removed, because the segment before it ends at offset 5" in line


def test_of_segments_that_overlap_the_later_one_is_read() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    create_filled_log(disk).close()
    first, second, *_ = log_files(disk)
    disk.put(first, disk.content(first) + disk.content(second))
    again = reopen_log(disk, told, clean=True, recovery_point=24, config=CONFIG)
    assert [offset for offset, _ in read_values(again)] == list(range(24))


def test_a_missing_segment_is_told_of() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    create_filled_log(disk)
    files = log_files(disk)
    disk.remove(files[1])
    again = reopen_log(disk, told, config=CONFIG)
    found = [offset for offset, _ in read_values(again)]
    assert found == [*range(6), *range(12, 24)]
    assert any("offsets 6 to 11 are missing" in line for line in told)
    assert any(files[1].replace(".log", ".index") in line for line in told)


def test_an_empty_folder_begins_where_it_should() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    disk.make_folder("t-0")
    log = reopen_log(disk, told, log_start=70)
    assert (log.log_start_offset, log.log_end_offset) == (70, 70)
    assert log.append(producer_batch(b"a"), NOW).base_offset == 70
    assert "no segment" in told[1]


def test_a_log_that_ends_before_its_start_begins_anew_there() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    create_filled_log(disk)
    log = reopen_log(disk, told, log_start=100, config=CONFIG)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert log_files(disk) == ["t-0/00000000000000000100.log"]
    assert "before its start 100" in told[0]
    log.append(producer_batch(b"a"), NOW)
    assert read_values(log) == [(100, b"a")]


def test_the_start_is_where_records_were_deleted() -> None:
    disk = FaultyDisk()
    create_filled_log(disk)
    log = reopen_log(disk, log_start=9, config=CONFIG)
    assert log.log_start_offset == 9


@pytest.mark.parametrize("left", [".deleted", ".tmp", ".cleaned"])
def test_what_was_to_go_goes(left: str) -> None:
    disk = FaultyDisk()
    log = create_filled_log(disk)
    files = disk.paths()
    disk.put(f"t-0/00000000000000000006.log{left}", b"x")
    disk.put(f"t-0/00000000000000000006.index{left}", b"x")
    assert reopen_log(disk, config=CONFIG).log_end_offset == log.log_end_offset
    assert set(disk.paths()) <= set(files)


@pytest.mark.parametrize("clean", [True, False])
def test_a_list_of_epochs_that_is_wrong_costs_no_record(clean: bool) -> None:
    path = "t-0/leader-epoch-checkpoint"
    disk = FaultyDisk()
    log = create_filled_log(disk)
    before = log_state(log)
    log.close()
    for bit in range(8 * len(disk.content(path))):
        again = disk.kill()
        again.flip(path, bit)
        told = ReportedEvents()
        opened = reopen_log(again, told, clean=clean, recovery_point=0, config=CONFIG)
        assert log_state(opened) == before
        assert opened.epochs.epoch_at(0) == opened.epochs.latest == 0


def test_one_batch_of_another_epoch_is_damage_not_an_epoch() -> None:
    path = "t-0/leader-epoch-checkpoint"
    for batch in range(3):
        disk, told = FaultyDisk(), ReportedEvents()
        log = create_filled_log(disk, segment_bytes=10_000)
        log.close()
        disk.flip("t-0/00000000000000000000.log", 8 * (batch * SIZE + 15) + 2)
        disk.remove(path)
        again = reopen_log(disk, told, clean=False, recovery_point=0, config=CONFIG)
        assert again.log_end_offset == 2 * batch
        assert any("leader epoch 4, it was 0" in line for line in told)


def test_the_leader_epochs_are_found_again() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_filled_log(disk)
    path = "t-0/leader-epoch-checkpoint"
    disk.put(path, b"0\n1\nx 0\n")
    again = reopen_log(disk, told, config=CONFIG)
    assert again.log_end_offset == log.log_end_offset
    assert disk.content(path) == b"0\n1\n0 0\n"
    assert path in told[0]
    disk.remove(path)
    assert reopen_log(disk, told, config=CONFIG).end_offset_for_epoch(0) == (0, 24)
    assert "missing" in told[1]


def test_producers_are_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for clean in (True, False):
        disk = FaultyDisk()
        log = create_log(disk, config=CONFIG, segment_bytes=400)
        for row in range(12):
            log.append(
                producer_batch(b"%d" % row, producer_id=7, producer_epoch=1, base_sequence=row), NOW
            )
        if clean:
            log.close()
        again = reopen_log(
            disk.kill(), clean=clean, recovery_point=12 if clean else 0, config=CONFIG
        )
        retried = producer_batch(b"11", producer_id=7, producer_epoch=1, base_sequence=11)
        assert again.append(retried, NOW).duplicate
        assert again.log_end_offset == 12
        assert read_batch_header(again.read(11, 1)).base_offset == 11


LARGE = TopicConfig(max_message_bytes=40 << 20)


@pytest.mark.parametrize("place", [8, 30, 100, 6 << 20, (9 << 20) + 50])
def test_a_batch_larger_than_any_window_is_checked_piece_by_piece(place: int) -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_log(disk, config=LARGE)
    log.append(producer_batch(b"a"), NOW)
    log.append(producer_batch(bytes(9 << 20)), NOW)
    log.append(producer_batch(b"b"), NOW)
    first = len(log.read(0, 1))
    assert [len(each) > 9 << 20 for each in read_batches(log)] == [False, True, False]
    assert read_batches(reopen_log(disk, told, config=LARGE)) == read_batches(log)
    assert not told
    disk.flip(log_files(disk)[0], 8 * (first + place))
    with pytest.raises(Refused, match=f"byte {first}: "):
        log.read(1, 1)
    again = reopen_log(disk, told, config=LARGE)
    assert len(read_batches(again)) == 1
    assert f"byte {first}: " in told[0]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_a_segment_that_is_gone_is_told_of(row: int, clean: bool) -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    log = create_filled_log(disk)
    log.close()
    gone = log_files(disk)[row]
    for kind in ("log", "index", "timeindex"):
        disk.remove(gone.replace(".log", f".{kind}"))
    again = reopen_log(disk, told, clean=clean, recovery_point=24, config=CONFIG)
    assert again.log_end_offset == 24
    expected = "begins at offset 6, but its start was 0" if row == 0 else "a gap follows"
    assert any(expected in line for line in told) == (clean or row > 0)
