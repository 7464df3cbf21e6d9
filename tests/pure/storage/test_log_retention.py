"""Old segments go: by age, by size, and before the start."""

from __future__ import annotations

import pytest

from rota.broker.storage.log import Log
from rota.engine.model.config import TopicConfig
from rota.errors import DiskError
from tests.support.faulty_disk import FaultyDisk
from tests.support.partition_log import (
    NOW,
    ReportedEvents,
    create_log,
    log_files,
    producer_batch,
    read_values,
    reopen_log,
)

MINUTE = 60_000
HOUR = 3_600_000


def create_hourly_log(disk: FaultyDisk, config: TopicConfig, count: int = 6) -> Log:
    """A segment for each hour, with one batch."""
    log = create_log(disk, config=config)
    for row in range(count):
        log.roll(NOW)
        log.append(producer_batch(b"%d" % row, at=NOW + row * HOUR), NOW + row * HOUR)
    return log


def base_offsets(log: Log) -> list[int]:
    return [each.base_offset for each in log.segments]


def test_segments_go_when_their_newest_record_is_too_old() -> None:
    disk = FaultyDisk()
    log = create_hourly_log(disk, TopicConfig(retention=2 * HOUR))
    assert log.delete_old_segments(NOW + 2 * HOUR) == 0
    assert log.delete_old_segments(NOW + 4 * HOUR + 1) == 3
    assert base_offsets(log) == [3, 4, 5]
    assert (log.log_start_offset, log.log_end_offset) == (3, 6)
    assert [int(path[-24:-4]) for path in log_files(disk)] == [3, 4, 5]
    assert read_values(log)[0] == (3, b"3")
    assert not [path for path in disk.paths() if ".deleted" in path]


def test_the_last_segment_goes_too_and_the_log_goes_on_behind_it() -> None:
    disk = FaultyDisk()
    log = create_hourly_log(disk, TopicConfig(retention=HOUR))
    assert log.delete_old_segments(NOW + 100 * HOUR) == 6
    assert (log.log_start_offset, log.log_end_offset, log.size, base_offsets(log)) == (6, 6, 0, [6])
    assert log.delete_old_segments(NOW + 100 * HOUR) == 0
    assert log.append(producer_batch(b"x", at=NOW + 100 * HOUR), NOW + 100 * HOUR).base_offset == 6
    assert read_values(reopen_log(disk.kill())) == [(6, b"x")]


def test_a_record_of_the_future_keeps_its_segment_and_those_behind_it() -> None:
    log = create_hourly_log(FaultyDisk(), TopicConfig(retention=HOUR, timestamp_after_max=1 << 50))
    log.append(producer_batch(b"late", at=NOW + 160 * HOUR), NOW)
    log.roll(NOW)
    assert log.delete_old_segments(NOW + 100 * HOUR) == 5
    assert read_values(log) == [(5, b"5"), (6, b"late")]


def test_without_times_segments_age_from_when_they_were_written() -> None:
    log = create_log(FaultyDisk(), config=TopicConfig(retention=HOUR))
    log.append(producer_batch(b"a", at=-1), NOW + HOUR)
    log.roll(NOW)
    assert log.delete_old_segments(NOW + 2 * HOUR) == 0
    assert log.delete_old_segments(NOW + 2 * HOUR + 1) == 1


@pytest.mark.parametrize("crash", [False, True], ids=["killed", "power cut"])
def test_without_times_segments_age_across_restarts(crash: bool) -> None:
    disk, config = FaultyDisk(), TopicConfig(retention=HOUR)
    disk.now = NOW
    log = create_log(disk, config=config)
    log.append(producer_batch(b"a", at=-1), NOW)
    log.roll(NOW)
    log.flush()
    for minutes in (20, 40, 60):
        disk = disk.crash(least=True) if crash else disk.kill()
        log = reopen_log(disk, config=config, now=NOW + minutes * MINUTE)
        assert log.delete_old_segments(NOW + minutes * MINUTE) == 0
    assert log.delete_old_segments(NOW + HOUR + 1) == 1


def test_a_file_of_the_future_is_of_now() -> None:
    disk, config = FaultyDisk(), TopicConfig(retention=HOUR)
    disk.now = NOW + 100 * HOUR
    create_log(disk, config=config).append(producer_batch(b"a", at=-1), NOW)
    log = reopen_log(disk.kill(), config=config)
    assert log.delete_old_segments(NOW + HOUR) == 0
    assert log.delete_old_segments(NOW + HOUR + 1) == 1


def test_segments_go_while_there_is_more_than_wanted() -> None:
    size = len(producer_batch(b"0"))
    log = create_hourly_log(FaultyDisk(), TopicConfig(retention_bytes=3 * size, retention=-1))
    assert log.delete_old_segments(NOW) == 3
    assert log.size == 3 * size
    log = create_hourly_log(FaultyDisk(), TopicConfig(retention_bytes=3 * size - 1, retention=-1))
    assert log.delete_old_segments(NOW) == 3


def test_without_a_limit_nothing_goes() -> None:
    log = create_hourly_log(FaultyDisk(), TopicConfig(retention=-1))
    assert log.delete_old_segments(NOW + 10_000 * HOUR) == 0


def test_a_compacted_topic_keeps_all_but_what_is_before_its_start() -> None:
    config = TopicConfig(cleanup_policy="compact", retention=HOUR, retention_bytes=0)
    log = create_hourly_log(FaultyDisk(), config)
    assert log.delete_old_segments(NOW + 100 * HOUR) == 0
    log.advance_log_start(3)
    assert log.delete_old_segments(NOW) == 3
    assert base_offsets(log) == [3, 4, 5]


def test_segments_before_the_start_go_but_not_the_one_it_is_in() -> None:
    log = create_log(FaultyDisk(), config=TopicConfig(retention=-1))
    for _ in range(3):
        log.append(producer_batch(b"a", b"b", b"c"), NOW)
        log.roll(NOW)
    log.advance_log_start(4)
    assert log.delete_old_segments(NOW) == 1
    assert (base_offsets(log), log.log_start_offset) == ([3, 6, 9], 4)
    log.advance_log_start(9)
    assert log.delete_old_segments(NOW) == 2
    assert read_values(log) == []
    assert log.log_end_offset == 9


def test_a_damaged_segment_does_not_go_by_age() -> None:
    disk, told = FaultyDisk(), ReportedEvents()
    create_hourly_log(disk, TopicConfig()).close()
    disk.flip(log_files(disk)[0], 8 * 30)
    log = reopen_log(disk, told, clean=True, recovery_point=6, config=TopicConfig(retention=HOUR))
    assert log.delete_old_segments(NOW + 100 * HOUR) == 0
    assert log_files(disk)[0] in told[0]


def test_settings_may_change() -> None:
    log = create_hourly_log(FaultyDisk(), TopicConfig(retention=-1))
    log.config = TopicConfig(retention=HOUR)
    assert log.delete_old_segments(NOW + 3 * HOUR) == 2


def test_snapshots_go_with_their_segments() -> None:
    disk = FaultyDisk()
    log = create_hourly_log(disk, TopicConfig(retention=2 * HOUR))
    log.delete_old_segments(NOW + 4 * HOUR + 1)
    found = [int(path[-29:-9]) for path in disk.paths() if path.endswith(".snapshot")]
    assert found == [3, 4, 5]


def test_files_that_cannot_be_removed_are_not_served_any_more() -> None:
    disk = FaultyDisk()
    log = create_hourly_log(disk, TopicConfig(retention=2 * HOUR))
    disk.refuse("rename", "*.index")
    with pytest.raises(DiskError, match="index"):
        log.delete_old_segments(NOW + 4 * HOUR + 1)
    assert read_values(log)[0] == (1, b"1")
    assert log.delete_old_segments(NOW + 4 * HOUR + 1) == 2
    assert read_values(log)[0] == (3, b"3")
    again = reopen_log(disk.kill(), log_start=log.log_start_offset)
    assert read_values(again) == read_values(log)
    assert base_offsets(again) == [3, 4, 5]
