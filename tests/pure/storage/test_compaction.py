"""What compaction leaves of a log."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from rota.broker.log_manager import LogCleaner
from rota.broker.storage.compaction import compact_log, inspect_log
from rota.broker.storage.log import Log
from rota.broker.storage.log_directory import LogDirectory, open_log_directory
from rota.engine.formats.record_batch import (
    CompressionType,
    ControlRecordType,
    read_batch_header,
)
from rota.engine.model.config import DAY, TopicConfig
from rota.errors import DiskError, FormatError
from tests.support.compacted_log import (
    COMPACTED,
    FOLDER,
    NOW,
    batch,
    open_log,
    read_columns,
    read_record_texts,
    read_records,
    run_compaction,
    run_steps,
    write_log,
)
from tests.support.examples import NIGHTLY
from tests.support.faulty_disk import FaultyDisk, Stopped
from tests.support.transactions import encode_end_transaction_marker

ANN, BOB = 7, 9


def encode_values(offset: int, *keys: str, producer: int = ANN, sequence: int = 0) -> bytes:
    """A batch of an open transaction."""
    pairs = [(key, f"v{offset}") for key in keys]
    return batch(
        offset,
        pairs,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def end_transaction_marker(offset: int, kind: ControlRecordType, producer: int = ANN) -> bytes:
    return encode_end_transaction_marker(
        kind, offset=offset, timestamp=NOW, producer_id=producer, producer_epoch=0
    )


def test_the_last_record_of_each_key_stays_where_it_was() -> None:
    log = write_log(
        [
            [batch(0, [("a", "1"), ("b", "1")]), batch(2, [("a", "2")])],
            [batch(3, [("c", "1"), ("b", "2")]), batch(5, [("a", "3"), ("d", "1")])],
        ]
    )
    before = {each.offset: each for each in read_records(log)}
    assert run_compaction(log) == 7
    assert read_record_texts(log) == [(3, "c", "1"), (4, "b", "2"), (5, "a", "3"), (6, "d", "1")]
    assert all(before[each.offset] == each for each in read_records(log))
    assert log.log_end_offset == 7
    assert read_record_texts(open_log(log.disk)) == read_record_texts(log)  # type: ignore[arg-type]


def test_what_is_written_to_is_never_touched() -> None:
    log = write_log([[batch(0, [("a", "1")])], [batch(1, [("a", "2")])]])
    log.append(batch(0, [("a", "3"), ("a", "4")]), NOW)
    run_compaction(log)
    assert read_record_texts(log) == [(1, "a", "2"), (2, "a", "3"), (3, "a", "4")]


def test_small_segments_become_one() -> None:
    log = write_log([[batch(each, [(f"k{each}", "v")])] for each in range(12)])
    assert len(log.segments) == 13
    run_compaction(log)
    assert [each.base_offset for each in log.segments] == [0, 5, 10, 12]
    assert all(each.size <= COMPACTED.segment_bytes for each in log.segments)
    assert len(read_record_texts(log)) == 12
    left = {name.partition(".")[0] for name in log.disk.list_names(FOLDER) if name[0] == "0"}
    assert left == {f"{base:020}" for base in (0, 5, 10, 12)}


def test_records_without_a_key_are_dropped() -> None:
    log = write_log([[batch(0, [(None, "x"), ("a", "1"), (None, "y")])]])
    run_compaction(log)
    assert read_record_texts(log) == [(1, "a", "1")]


def test_an_empty_key_is_a_key() -> None:
    log = write_log([[batch(0, [("", "1"), ("", "2"), ("long" * 9, "1"), ("long" * 9, "2")])]])
    run_compaction(log)
    assert [each[0] for each in read_record_texts(log)] == [1, 3]


@pytest.mark.parametrize("codec", list(CompressionType))
def test_codec_timestamps_and_offsets_stay(codec: CompressionType) -> None:
    log = write_log([[batch(0, [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1")], codec=codec)]])
    run_compaction(log)
    read = read_columns(log)
    assert read.batches.codec.tolist() == [codec]
    assert (read.batches.base_offset.tolist(), read.batches.last_offset.tolist()) == ([0], [3])
    assert read.offset.tolist() == [1, 2, 3]
    assert read.timestamp.tolist() == [NOW + 1, NOW + 2, NOW + 3]


def test_the_brokers_timestamps_stay() -> None:
    log = write_log([[batch(0, [("a", "1"), ("a", "2")], append_time=NOW + 77)]])
    run_compaction(log)
    read = read_columns(log)
    assert read.timestamp.tolist() == [NOW + 77]
    assert read.batches.append_time.tolist() == [True]


def test_a_tombstone_goes_when_it_was_there_for_long_enough() -> None:
    log = write_log([[batch(0, [("a", "1"), ("b", "1")])], [batch(2, [("a", None)])]])
    run_compaction(log)
    assert read_record_texts(log) == [(1, "b", "1"), (2, "a", None)]
    head = read_batch_header(log.read(2, 1 << 20))
    assert head.delete_horizon == NOW + COMPACTED.delete_retention
    assert read_columns(log).timestamp.tolist() == [NOW + 1, NOW]
    run_compaction(log, NOW + COMPACTED.delete_retention - 1, point=0)
    assert read_record_texts(log) == [(1, "b", "1"), (2, "a", None)]
    run_compaction(log, NOW + COMPACTED.delete_retention, point=0)
    assert read_record_texts(log) == [(1, "b", "1")]
    assert log.log_end_offset == 3
    assert open_log(log.disk).log_end_offset == 3  # type: ignore[arg-type]


def test_a_tombstone_that_is_superseded_goes_at_once() -> None:
    log = write_log([[batch(0, [("a", None), ("a", "1")])]])
    run_compaction(log)
    assert read_record_texts(log) == [(1, "a", "1")]
    assert read_batch_header(log.read(0, 1 << 20)).delete_horizon is None


def test_a_producers_last_batch_stays_without_its_records() -> None:
    sent = batch(0, [("a", "1"), ("b", "1")], producer_id=ANN, producer_epoch=3, base_sequence=40)
    log = write_log([[sent, batch(2, [("a", "2"), ("b", "2")])], [batch(4, [("c", "1")])]])
    run_compaction(log)
    assert [each[0] for each in read_record_texts(log)] == [2, 3, 4]
    kept = read_batch_header(log.read(0, 1 << 20))
    assert (kept.base_offset, kept.last_offset, kept.record_count) == (0, 1, 0)
    assert (kept.producer_id, kept.producer_epoch, kept.base_sequence) == (ANN, 3, 40)
    assert kept.max_timestamp == NOW + 1
    known = open_log(log.disk).producers.get(ANN)  # type: ignore[arg-type]
    assert known is not None
    assert known.batches[-1].last_sequence == 41


def test_the_last_batch_that_was_looked_at_stays_for_its_offset() -> None:
    log = write_log([[batch(0, [("a", "1")])], [batch(1, [(None, "x")])]])
    run_compaction(log)
    assert read_record_texts(log) == [(0, "a", "1")]
    assert read_batch_header(log.read(1, 1 << 20)).last_offset == 1


def test_what_was_aborted_goes_at_once_and_its_marker_later() -> None:
    log = write_log(
        [
            [
                batch(0, [("a", "old")]),
                encode_values(1, "a", "b"),
                encode_values(3, "c", producer=BOB),
            ],
            [
                end_transaction_marker(4, ControlRecordType.ABORT),
                end_transaction_marker(5, ControlRecordType.COMMIT, BOB),
                batch(6, [("z", "1")]),
            ],
        ]
    )
    assert log.aborted_transactions(0, 7) == [(ANN, 1)]
    run_compaction(log)
    assert read_record_texts(log) == [(0, "a", "old"), (3, "c", "v3"), (6, "z", "1")]
    assert read_columns(log).batches.marker.tolist() == [
        -1,
        -1,
        -1,
        ControlRecordType.ABORT,
        ControlRecordType.COMMIT,
        -1,
    ]
    assert log.aborted_transactions(0, 7) == []
    later = NOW + 2 * DAY
    log.producers.remove_expired(later)
    run_compaction(log, later, point=0)  # its transaction is gone: now the marker gets its time
    assert read_columns(log).batches.marker.tolist() == [
        -1,
        -1,
        ControlRecordType.ABORT,
        ControlRecordType.COMMIT,
        -1,
    ]
    run_compaction(log, later + COMPACTED.delete_retention, point=0)
    assert read_columns(log).batches.marker.tolist() == [-1, -1, ControlRecordType.COMMIT, -1]
    assert read_record_texts(log) == [(0, "a", "old"), (3, "c", "v3"), (6, "z", "1")]


def test_nothing_from_an_open_transaction_on_is_touched() -> None:
    log = write_log(
        [
            [batch(0, [("a", "1"), ("a", "2")])],
            [batch(2, [("a", "3")]), encode_values(3, "b")],
            [batch(4, [("a", "4"), ("b", "1")])],
        ]
    )
    assert inspect_log(log, None, NOW).first_uncleanable_offset == 2
    run_compaction(log)
    assert [each[0] for each in read_record_texts(log)] == [1, 2, 3, 4, 5]


def test_with_no_room_for_all_keys_it_goes_on_where_it_stopped() -> None:
    log = write_log([[batch(3 * each, [(key, str(each)) for key in "abc"]) for each in range(9)]])
    point: int | None = None
    passes = 0
    while point != 27:
        point = run_compaction(log, point=point, max_keys=2)
        passes += 1
        assert passes < 20
    assert read_record_texts(log) == [(24, "a", "8"), (25, "b", "8"), (26, "c", "8")]


def test_how_dirty_a_log_is() -> None:
    log = write_log([[batch(each, [("a", str(each))])] for each in range(4)])
    size = log.segments[0].size
    dirt = inspect_log(log, None, NOW)
    assert (dirt.first_dirty_offset, dirt.first_uncleanable_offset, dirt.cleanable_ratio) == (
        0,
        4,
        1.0,
    )
    dirt = inspect_log(log, 3, NOW)
    assert (dirt.clean_bytes, dirt.dirty_bytes) == (3 * size, size)
    assert (dirt.needs_cleaning(0.5), dirt.needs_cleaning(0.2)) == (False, True)
    assert not inspect_log(log, 4, NOW).needs_cleaning(0.0)
    assert inspect_log(log, 99, NOW).first_dirty_offset == 0  # of a log that was longer once


def test_young_records_wait_and_old_ones_do_not() -> None:
    config = replace(COMPACTED, min_compaction_lag=100, max_compaction_lag=500)
    log = write_log(
        [[batch(each, [("a", str(each))], time=NOW + 100 * each)] for each in range(4)], config
    )
    assert inspect_log(log, None, NOW + 300).first_uncleanable_offset == 3
    assert inspect_log(log, None, NOW + 299).first_uncleanable_offset == 2
    assert not inspect_log(log, 3, NOW + 800).overdue
    assert inspect_log(log, 3, NOW + 801).overdue
    assert inspect_log(log, 3, NOW + 801).needs_cleaning(0.9)


def test_it_may_be_written_and_read_between_slices() -> None:
    pairs = [(f"k{row % 50}", "x" * 200) for row in range(100)]
    log = write_log([[batch(each * 100, pairs)] for each in range(60)])
    before = {each.key: each.value for each in read_records(log)}
    steps = 0
    for steps, _ in enumerate(compact_log(log, inspect_log(log, None, NOW), NOW)):
        log.append(batch(0, [("new", str(steps))]), NOW)
        if steps % 10 == 0:
            found = {each.key: each.value for each in read_records(log)}
            assert found == {**before, b"new": str(steps).encode()}
    assert steps > 10
    found = {each.key: each.value for each in read_records(log)}
    assert found == {**before, b"new": str(steps).encode()}
    assert len(read_records(log)) == 50 + steps + 1


def test_it_is_given_up_where_segments_were_deleted_meanwhile() -> None:
    config = replace(COMPACTED, cleanup_policy="compact,delete", segment_bytes=100)
    log = write_log([[batch(each, [("a", str(each))])] for each in range(4)], config)
    work = compact_log(log, inspect_log(log, None, NOW), NOW)
    next(work)
    log.advance_log_start(2)
    log.delete_old_segments(NOW)
    assert run_steps(work) is None
    assert read_record_texts(log) == [(2, "a", "2"), (3, "a", "3")]
    assert not [name for name in log.disk.list_names(FOLDER) if name.endswith(".cleaned")]
    run_compaction(log)
    assert read_record_texts(log) == [(3, "a", "3")]


def test_closed_in_the_middle_it_leaves_the_log_as_it_was() -> None:
    log = write_log([[batch(each, [("a", str(each))])] for each in range(4)])
    names, before = log.disk.list_names(FOLDER), read_record_texts(log)
    work = compact_log(log, inspect_log(log, None, NOW), NOW)
    for _ in range(5):
        next(work)
    assert log.disk.list_names(FOLDER) != names
    work.close()
    assert (log.disk.list_names(FOLDER), read_record_texts(log)) == (names, before)


def test_a_damaged_log_is_left_alone() -> None:
    disk = FaultyDisk()
    log = write_log([[batch(each, [("a", str(each))])] for each in range(4)], disk=disk)
    disk.flip(f"{FOLDER}/{2:020}.log", 8 * 65)
    with pytest.raises(FormatError, match=r"00002.log: byte 0: checksum"):
        run_compaction(log)
    assert [each.base_offset for each in log.segments] == [0, 1, 2, 3, 4]
    assert not [name for name in disk.list_names(FOLDER) if name.endswith(".cleaned")]


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk = FaultyDisk()
    log = write_log([[batch(each, [(f"k{each}", "1")])] for each in range(4)], disk=disk)
    for room in range(0, 700, 50):
        disk.room(room)
        with suppress(DiskError):
            run_compaction(log)
            break
        disk.room(None)
        assert len(log.segments) == 5
        assert len(read_record_texts(log)) == 4
        assert log.failed is None
    assert len(log.segments) == 2
    assert len(read_record_texts(log)) == 4


@pytest.mark.parametrize("operation", ["append", "sync", "rename", "remove", "replace"])
def test_any_refusal_of_the_disk_leaves_old_or_new(operation: str) -> None:
    pieces = [[batch(each, [("ab"[each % 2], str(each))])] for each in range(6)]
    for skip in range(40):
        disk = FaultyDisk()
        log = write_log(pieces, disk=disk)
        disk.refuse(operation, skip=skip)
        with suppress(DiskError):
            run_compaction(log)
        if disk.waits_to_refuse:  # a compaction has fewer of these operations
            break
        for found in (log, open_log(disk.kill())):
            if found.failed is None:
                last = {each.key: each.value for each in read_records(found)}
                assert last == {b"a": b"4", b"b": b"5"}
                assert found.log_end_offset == 6
    assert skip > 1


def count_steps(log: Log, disk: FaultyDisk) -> int:
    before = disk.changes
    run_compaction(log)
    return disk.changes - before


PIECES = [
    [batch(0, [("a", "0"), ("b", "0")]), encode_values(2, "a")],
    [end_transaction_marker(3, ControlRecordType.ABORT), batch(4, [("b", "4")])],
    [
        batch(5, [("a", "5")], producer_id=BOB, producer_epoch=0, base_sequence=0),
        batch(6, [("c", None)]),
    ],
    [batch(7, [("a", "7")]), batch(8, [("d", "8")])],
    [batch(9, [("e", "9"), ("a", "10")])],
]


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seeds", [1, pytest.param(4, marks=pytest.mark.check)])
def test_a_crash_at_any_step_leaves_old_or_new(power: bool, seeds: int) -> None:
    log = write_log(PIECES, disk=FaultyDisk())
    old = read_record_texts(log)
    count = count_steps(log, log.disk)  # type: ignore[arg-type]
    new = read_record_texts(log)
    assert len(old) == 10
    assert [each[0] for each in new] == [4, 6, 8, 9, 10]
    seen = set()
    for step in range(count):
        for seed in range(seeds):
            disk = FaultyDisk(seed)
            log = write_log(PIECES, disk=disk)
            disk.stop_at(step)
            with pytest.raises(Stopped):
                run_compaction(log)
            after = disk.crash() if power else disk.kill()
            found = open_log(after)
            kept = [each[0] for each in read_record_texts(found)]
            assert kept == sorted(set(kept))
            assert set(read_record_texts(found)) <= set(old)
            assert set(new) <= set(read_record_texts(found))
            if 2 in kept:  # an aborted record, while it is there, is known as such
                assert found.aborted_transactions(0, 11) == [(ANN, 2)]
            assert found.log_end_offset == 11
            known = found.producers.get(BOB)
            assert known is not None
            assert known.batches[-1].last_offset == 5
            assert not [
                name for name in after.list_names(FOLDER) if name.endswith((".cleaned", "swap"))
            ]
            seen.add(tuple(kept))
            run_compaction(found)
            assert read_record_texts(found) == new
    assert {tuple(each[0] for each in old), tuple(each[0] for each in new)} <= seen


@pytest.mark.parametrize("every", [7, pytest.param(1 if NIGHTLY else 2, marks=pytest.mark.check)])
def test_a_second_crash_while_the_first_is_put_right_does_no_harm(every: int) -> None:
    log = write_log(PIECES, disk=FaultyDisk())
    count = count_steps(log, log.disk)  # type: ignore[arg-type]
    new = read_record_texts(log)
    for step in range(0, count, every):
        disk = FaultyDisk(step)
        log = write_log(PIECES, disk=disk)
        disk.stop_at(step)
        with pytest.raises(Stopped):
            run_compaction(log)
        for again in range(30):
            second = disk.crash()
            second.stop_at(again)
            try:
                open_log(second)
            except Stopped:
                found = open_log(second.crash())
            else:
                break
            assert set(new) <= set(read_record_texts(found))
            assert found.log_end_offset == 11
            if 2 in [each[0] for each in read_record_texts(found)]:
                assert found.aborted_transactions(0, 11) == [(ANN, 2)]


def test_a_swap_that_a_kafka_left_is_ended() -> None:
    done = write_log(PIECES, disk=FaultyDisk())
    run_compaction(done, max_keys=1_000)
    new = read_record_texts(done)
    disk = FaultyDisk()
    log = write_log(PIECES, replace(COMPACTED, segment_bytes=1 << 20), disk=disk)
    before = disk.kill()
    run_compaction(log)
    assert len(log.segments) == 2
    for kind in ("log", "index", "timeindex"):
        before.put(f"{FOLDER}/{0:020}.{kind}.swap", disk.content(f"{FOLDER}/{0:020}.{kind}"))
    said: list[str] = []
    found = open_log(before, said=said)
    assert read_record_texts(found) == new
    assert "an interrupted compaction is finished" in said[0]
    assert [each.base_offset for each in found.segments] == [0, 11]


def with_folder(config: TopicConfig = COMPACTED) -> tuple[FaultyDisk, LogDirectory, Log, list[str]]:
    disk, said = FaultyDisk(), list[str]()
    folder = open_log_directory(
        disk, node_id=1, new_id=lambda: bytes(15) + b"1", report=said.append
    )
    pieces = [[batch(each, [("ab"[each % 2], str(each))])] for each in range(6)]
    return disk, folder, write_log(pieces, config, disk=disk), said


def test_the_cleaner_works_until_nothing_is_dirty_and_remembers_how_far() -> None:
    disk, folder, log, said = with_folder()
    cleaner = LogCleaner(lambda: [("t", 0, log)], folder, said.append)
    while cleaner.run_step(NOW):
        pass
    assert [each[0] for each in read_record_texts(log)] == [4, 5]
    assert folder.cleaner_points == {("t", 0): 6}
    assert disk.content("cleaner-offset-checkpoint") == b"0\n1\nt 0 6\n"
    assert said == []
    cleaner.remove_topics("t")
    assert disk.content("cleaner-offset-checkpoint") == b"0\n0\n"


def test_the_cleaner_leaves_topics_alone_that_are_not_compacted() -> None:
    _, folder, log, said = with_folder(replace(COMPACTED, cleanup_policy="delete"))
    assert not LogCleaner(lambda: [("t", 0, log)], folder, said.append).run_step(NOW)


def test_the_cleaner_says_once_that_a_log_is_damaged() -> None:
    disk, folder, log, said = with_folder()
    disk.flip(f"{FOLDER}/{2:020}.log", 8 * 65)
    cleaner = LogCleaner(lambda: [("t", 0, log)], folder, said.append)
    for _ in range(20):
        cleaner.run_step(NOW)
    assert len(said) == 1
    assert said[0].startswith("t-0 is damaged and no longer compacted: t-0/")


def test_the_cleaner_tries_again_after_a_refusal_of_the_disk() -> None:
    disk, folder, log, said = with_folder()
    disk.refuse("append", "*.cleaned")
    cleaner = LogCleaner(lambda: [("t", 0, log)], folder, said.append)
    while cleaner.run_step(NOW):
        pass
    assert len(said) == 1
    assert said[0].startswith("compaction of t-0 failed: t-0/")
    while cleaner.run_step(NOW):
        pass
    assert [each[0] for each in read_record_texts(log)] == [4, 5]
