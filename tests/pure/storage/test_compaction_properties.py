"""What holds of compaction for any log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.broker.storage.compaction import compact_log, inspect_log
from rota.broker.storage.log import Log
from rota.engine.formats.record_batch import BatchRecord, CompressionType
from rota.engine.formats.record_batch_columns import decode_batches
from rota.engine.model.config import TopicConfig
from tests.support.compacted_log import FOLDER, NOW, batch, open_log, read_records, run_compaction
from tests.support.examples import examples
from tests.support.faulty_disk import FaultyDisk, Stopped

CONFIG = TopicConfig(
    cleanup_policy="compact", delete_retention=50, segment_bytes=500, index_interval=100
)
keys = st.sampled_from(["", "a", "b", "c", "a key that is known by its digest"])
values = st.none() | st.sampled_from(["", "x", "yy" * 10])
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=6)
sends = st.tuples(pairs, st.sampled_from(CompressionType), st.sampled_from([-1, 7, 9]))
steps = st.lists(
    st.one_of(sends, sends, sends, st.just("roll"), st.just("compact"), st.integers(1, 60)),
    min_size=1,
    max_size=40,
)


class LogSequence:
    """A log, and all that was ever written to it."""

    def __init__(self, seed: int = 0) -> None:
        self.disk = FaultyDisk(seed)
        self.log = Log.create(self.disk, FOLDER, bytes(16), CONFIG, now=NOW)
        self.disk.sync("")
        self.now = NOW
        self.point: int | None = None
        self.written: list[BatchRecord] = []
        self.sequences: dict[int, int] = {}
        #: When tombstones may be gone at the earliest, by offset.
        self.gone_by: dict[int, int] = {}

    def play(self, step: Any) -> None:
        if step == "roll":
            self.log.roll(self.now)
        elif step == "compact":
            self.compact()
        elif isinstance(step, int):
            self.now += step
        else:
            self.send(*step)

    def send(
        self, sent: list[tuple[str, str | None]], codec: CompressionType, producer: int
    ) -> None:
        options: dict[str, Any] = {"codec": codec, "time": self.now}
        if producer >= 0:
            first = self.sequences.get(producer, 0)
            self.sequences[producer] = first + len(sent)
            options |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": first}
        end = self.log.log_end_offset
        self.log.append(batch(0, sent, **options), self.now)
        for row, (key, value) in enumerate(sent):
            stored = None if value is None else value.encode()
            self.written.append(BatchRecord(end + row, self.now + row, key.encode(), stored))

    def compact(self) -> None:
        limit = inspect_log(self.log, self.point, self.now).first_uncleanable_offset
        self.point = run_compaction(self.log, self.now, point=self.point)
        assert self.point is not None
        self.mark(limit)
        self.check()
        keys_there = [each.key for each in read_records(self.log) if each.offset < limit]
        assert len(keys_there) == len(set(keys_there))

    def mark(self, limit: int) -> None:
        for each in self.written:
            if each.offset < limit and each.value is None:
                self.gone_by.setdefault(each.offset, self.now + CONFIG.delete_retention)

    def check(self, log: Log | None = None) -> None:
        """Nothing is there that was not written, and nothing is missing that must be there."""
        log = log or self.log
        there = read_records(log)
        assert [each.offset for each in there] == sorted({each.offset for each in there})
        written = {each.offset: each for each in self.written}
        assert all(written[each.offset] == each for each in there)
        offsets = {each.offset for each in there}
        newest = {each.key: each for each in self.written}
        for each in newest.values():
            expired = self.now >= self.gone_by.get(each.offset, self.now + 1)
            assert each.offset in offsets or (each.value is None and expired)
        active = log.segments[-1].base_offset
        assert {each.offset for each in self.written if each.offset >= active} <= offsets
        assert log.log_end_offset == len(self.written)


def known_of(log: Log) -> dict[int, tuple[int, ...]]:
    """Of each producer what its next batch is checked against."""
    return {key: (each.epoch, *each.batches[-1][:4]) for key, each in log.producers}


@examples(quick=25)
@given(steps)
def test_the_newest_of_every_key_is_there_and_nothing_is_changed(script: list[Any]) -> None:
    story = LogSequence()
    for step in script:
        story.play(step)
    story.check()
    before = read_records(story.log)
    known = known_of(story.log)
    story.log.flush()
    again = open_log(story.disk.crash(least=True), CONFIG)
    assert read_records(again) == before
    assert known_of(again) == known
    data = again.read(again.log_start_offset, 1 << 20) if again.log_end_offset else b""
    assert decode_batches(data).problems == ()


@examples(quick=25)
@pytest.mark.parametrize("power", [False, True])
@settings(max_examples=60)
@given(script=steps, seed=st.integers(0, 2**32), at=st.integers(0, 80))
def test_a_crash_in_the_middle_loses_nothing(
    power: bool, script: list[Any], seed: int, at: int
) -> None:
    story = LogSequence(seed)
    for step in script:
        story.play(step)
    story.log.flush()
    limit = inspect_log(story.log, story.point, story.now).first_uncleanable_offset
    story.mark(limit)
    story.disk.stop_at(at)
    try:
        for _ in compact_log(story.log, inspect_log(story.log, story.point, story.now), story.now):
            pass
    except Stopped:
        pass
    after = story.disk.crash() if power else story.disk.kill()
    found = open_log(after, CONFIG)
    story.check(found)
    assert known_of(found) == known_of(story.log)
    assert not [name for name in after.list_names(FOLDER) if name.endswith((".cleaned", ".swap"))]
