"""A log beside a list: whatever is done to it, and however it ends, both say the same."""

from __future__ import annotations

from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rota.broker.storage.log import Log
from rota.engine.formats.record_batch import BatchRecord, CompressionType, encode_batch
from rota.engine.model.config import TopicConfig
from tests.support.faulty_disk import FaultyDisk, Stopped
from tests.support.partition_log import (
    NOW,
    ReportedEvents,
    base_offsets,
    create_log,
    reopen_log,
    split_batches,
)


class Stored(NamedTuple):
    """A batch that was acknowledged."""

    base: int
    data: bytes
    times: tuple[int, ...]

    @property
    def last(self) -> int:
        return self.base + len(self.times) - 1


SIZES = st.integers(0, 60)
TIMES = st.lists(st.integers(-20, 200), min_size=1, max_size=4)
PART = st.floats(0, 1)


class LogMachine(RuleBasedStateMachine):
    """Rules are what a broker does with a log, and what happens to its machine."""

    @initialize(seed=st.integers(0, 1 << 30), segment=st.sampled_from([200, 500, 2_000]))
    def begin(self, seed: int, segment: int) -> None:
        self.disk = FaultyDisk(seed)
        self.told = ReportedEvents()
        self.model: list[Stored] = []
        self.start = 0
        self.segment = segment
        self.checkpoint = 0
        self.log = create_log(self.disk, self.told, config=self.config(), segment_bytes=segment)

    @staticmethod
    def config(retention_bytes: int = -1) -> TopicConfig:
        return TopicConfig(
            index_interval=100, timestamp_before_max=1 << 50, retention_bytes=retention_bytes
        )

    @property
    def end(self) -> int:
        return self.model[-1].last + 1 if self.model else self.log.log_end_offset

    # what a broker does

    @rule(times=TIMES, size=SIZES, codec=st.sampled_from(CompressionType))
    def append(self, times: list[int], size: int, codec: CompressionType) -> None:
        stamps = tuple(NOW + each for each in times)
        batch = encode_batch(
            [BatchRecord(row, at, b"k", bytes(size)) for row, at in enumerate(stamps)], codec=codec
        )
        base = self.log.append(batch, NOW).base_offset
        self.model.append(Stored(base, base.to_bytes(8) + batch[8:], stamps))

    @rule(count=st.integers(1, 3))
    def append_records(self, count: int) -> None:
        base = self.log.append_records([(b"k", b"v")] * count, NOW).base_offset
        data = bytes(self.log.read(base, 1))
        self.model.append(Stored(base, data, (NOW,) * count))

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.log.log_end_offset

    @rule()
    def save_checkpoint(self) -> None:
        self.checkpoint = self.log.recovery_point

    @rule(part=PART)
    def delete_before(self, part: float) -> None:
        self.log.advance_log_start(self.at(part))
        self.start = self.log.log_start_offset

    @rule(kept=st.integers(0, 3_000))
    def delete_old(self, kept: int) -> None:
        self.log.config = self.config(kept)
        before = self.log.size
        self.log.delete_old_segments(NOW)
        assert self.log.size <= max(kept + self.segment + 400, before)
        self.log.config = self.config()
        self.start = self.log.log_start_offset

    # what becomes of it

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.reopened(self.disk, clean=True)

    @rule()
    def kill(self) -> None:
        self.reopened(self.disk.kill(), clean=False)

    @rule()
    def lose_power(self) -> None:
        promised = self.log.recovery_point
        self.reopened(self.disk.crash(), clean=False, promised=promised)

    @precondition(lambda self: self.model)
    @rule(change=st.integers(0, 12), power=st.booleans())
    def stop_midway(self, change: int, power: bool) -> None:
        promised = self.log.recovery_point
        self.disk.stop_at(change)
        try:
            while True:
                self.append([1, 2], 40, CompressionType.NONE)
                self.log.roll(NOW)
                promised = self.log.recovery_point
        except Stopped:
            disk = self.disk.crash() if power else self.disk.kill()
        self.reopened(disk, clean=False, promised=promised if power else None)

    def reopened(self, disk: FaultyDisk, *, clean: bool, promised: int | None = None) -> None:
        end = self.log.log_end_offset
        point = self.log.log_end_offset if clean else min(self.checkpoint, end)
        self.disk = disk
        self.log = reopen_log(
            disk,
            self.told,
            clean=clean,
            recovery_point=point,
            log_start=self.start,
            config=self.config(),
            segment_bytes=self.segment,
        )
        least = end if promised is None else max(promised, self.start)
        assert self.log.log_end_offset >= least
        self.model = [
            each for each in self.model if each.last < self.log.log_end_offset and self.log.size
        ]
        if self.log.log_end_offset > self.end:  # what was being written has arrived
            (data,) = split_batches(self.log.read(self.end, 1))
            self.model.append(Stored(self.end, data, (NOW + 1, NOW + 2)))
        self.start = self.log.log_start_offset

    # what it must say

    def at(self, part: float) -> int:
        return self.start + round(part * (self.log.log_end_offset - self.start))

    @rule(part=PART, budget=st.integers(0, 2_000), to=PART, whole=st.booleans())
    def read(self, part: float, budget: int, to: float, whole: bool) -> None:
        offset, until = self.at(part), self.at(to)
        found = self.log.read(offset, budget, at_least_one=whole, to=until)
        expected: list[bytes] = []
        for each in self.model:
            if each.last < offset or offset >= until:
                continue
            fits = sum(map(len, expected)) + len(each.data) <= budget
            if each.base >= until or not (fits or (whole and not expected)):
                break
            expected.append(each.data)
        assert split_batches(found) == expected

    @rule(time=st.integers(-25, 205))
    def look_up_time(self, time: int) -> None:
        found = self.log.find_timestamp(NOW + time)
        assert found == next((each for each in self.records() if each[1] >= NOW + time), None)

    def records(self) -> list[tuple[int, int]]:
        return [
            (each.base + row, at)
            for each in self.model
            for row, at in enumerate(each.times)
            if each.base + row >= self.start
        ]

    @invariant()
    def has_all(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.log_start_offset == self.start <= log.log_end_offset == self.end
        kept = [each for each in self.model if each.last >= self.start]
        assert base_offsets(log.read(log.log_start_offset, 1 << 20)) == [each.base for each in kept]
        assert log.failed is None
        assert log.producers.end_offset == log.log_end_offset
        check_segments(log)


def check_segments(log: Log) -> None:
    """Segments follow each other, and their files are as large as is thought."""
    for one, next_one in zip(log.segments, log.segments[1:], strict=False):
        assert one.end_offset == next_one.base_offset
    assert sum(each.size for each in log.segments) == log.size
    assert all(log.disk.size(each.log_path) == each.size for each in log.segments)


LogMachine.TestCase.settings = settings(
    stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
)
TestLog = LogMachine.TestCase
