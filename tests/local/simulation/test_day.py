"""The demo's day: some groups of it, since all of them take their time."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from rota.engine.coordinator.coordinator import journal_partition
from rota.engine.formats import journal
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.engine.history.causes import explain_rebalance
from rota.engine.history.facts import EvidenceType, JournalRecord, LogLine, RebalanceCause
from rota.engine.history.generations import read_history
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.server_log import SkippedLine, parse_line
from rota.engine.model.journal_entry import GroupMetadataEntry, OffsetCommitEntry
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.day import (
    DAY,
    GROUP_PLANS,
    make_shop_traffic,
    sample_offsets,
    simulate_day,
)
from rota.pipeline.demo import START_MS, write_day
from tests.support.expected_history import commit_times

CAUSES = {
    "orders-billing": {RebalanceCause.JOINED, RebalanceCause.LEFT},
    "payments-ledger": {RebalanceCause.JOINED, RebalanceCause.SESSION_TIMEOUT},
    "fraud-scoring": {
        RebalanceCause.JOINED,
        RebalanceCause.SESSION_TIMEOUT,
        RebalanceCause.SLOW_POLL,
    },
    "clickstream": {RebalanceCause.JOINED, RebalanceCause.PARTITIONS},
    "cdc-warehouse": {RebalanceCause.JOINED, RebalanceCause.SUBSCRIPTION},
}
SOME = tuple(plan for plan in GROUP_PLANS if plan.group in CAUSES)


def test_the_cast() -> None:
    assert len(GROUP_PLANS) == len({plan.group for plan in GROUP_PLANS}) == 42
    used = {name for plan in GROUP_PLANS for name in plan.strategy}
    assert used == {"range", "roundrobin", "sticky", "cooperative-sticky"}


def test_commits_go_up_and_never_beyond_what_was_written() -> None:
    traffic = make_shop_traffic(3, START_MS)
    (group,) = simulate_day(
        seed=3, start=START_MS, plans=[one for one in SOME if one.group == "clickstream"]
    )
    last: dict[TopicPartition, int] = defaultdict(int)
    for at, entry in group.journal:
        if isinstance(entry, OffsetCommitEntry):
            partition = TopicPartition(entry.topic, entry.partition)
            assert last[partition] <= entry.offset <= traffic.end_offset(partition, at)
            last[partition] = entry.offset
    assert len(last) == 24  # with the partitions that were added


def test_a_group_behind_its_peak_catches_up_at_night() -> None:
    (plan,) = (one for one in GROUP_PLANS if one.group == "session-replay")
    (group,) = simulate_day(seed=0, start=START_MS, plans=[plan])
    traffic = make_shop_traffic(0, START_MS)
    lag: dict[int, int] = defaultdict(int)
    for at, entry in group.journal:
        if isinstance(entry, OffsetCommitEntry):
            end = traffic.end_offset(TopicPartition(entry.topic, entry.partition), at)
            hour = (at - START_MS) * 24 // DAY
            lag[hour] = max(lag[hour], end - entry.offset)
    assert lag[6] < 100
    assert lag[20] > 100_000
    assert lag[23] < lag[20]


def test_one_partition_is_stuck_at_a_record_and_its_member_works_on() -> None:
    (plan,) = (one for one in GROUP_PLANS if one.group == "support-tickets")
    (group,) = simulate_day(seed=0, start=START_MS, plans=[plan])
    traffic = make_shop_traffic(0, START_MS)
    from_nine = START_MS + 21 * DAY // 24
    offsets: dict[TopicPartition, list[int]] = defaultdict(list)
    lag: dict[TopicPartition, int] = {}
    for at, entry in group.journal:
        if isinstance(entry, OffsetCommitEntry) and at >= from_nine:
            partition = TopicPartition(entry.topic, entry.partition)
            offsets[partition].append(entry.offset)
            lag[partition] = traffic.end_offset(partition, at) - entry.offset
    stuck = TopicPartition("chat", 2)
    assert len(set(offsets.pop(stuck))) == 1
    assert lag.pop(stuck) > 10_000
    assert len(offsets) == 9
    assert all(len(set(found)) > 50 for found in offsets.values())
    assert max(lag.values()) < 1_000


def test_samples_of_ends_cover_the_day() -> None:
    found = list(sample_offsets(seed=0, start=START_MS))
    assert {found[0].at, found[-1].at} == {START_MS, START_MS + DAY}
    assert all(0 <= one.beginning <= one.end for one in found)
    clicks = {one.partition for one in found if one.topic == "clicks" and one.at == START_MS}
    assert len(clicks) == 16


def test_the_same_seed_is_the_same_day(tmp_path: Path) -> None:
    plans = [
        plan
        for plan in GROUP_PLANS
        if plan.group in ("catalog-export", "order-search", "pdf-invoices")
    ]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_day(tmp_path / name, seed=seed, plans=plans)
    one, same, other = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in sorted((tmp_path / name).rglob("*"))
            if path.is_file()
        }
        for name in "abc"
    )
    assert one == same
    assert one != other


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("day")
    progress: list[float] = []
    found = write_day(target, plans=SOME, progress=progress.append)
    assert progress == sorted(progress)
    assert progress[-1] == 1
    assert found.groups == len(SOME)
    assert sum(count_records(path) for path in found.segments.glob("*/*.log")) == found.records
    return target


def count_records(path: Path) -> int:
    return sum(1 for _ in iterate_records(decode_batches(path.read_bytes())))


@pytest.mark.parametrize("name", CAUSES)
def test_its_log_states_every_cause(folder: Path, name: str) -> None:
    kept: list[JournalRecord] = []
    partition = folder / "kafka-logs" / f"__consumer_offsets-{journal_partition(name)}"
    for path in sorted(partition.glob("*.log")):
        for record in iterate_records(decode_batches(path.read_bytes())):
            entry = journal.decode_record(record.key or b"", record.value)
            if isinstance(entry, OffsetCommitEntry | GroupMetadataEntry) and entry.group == name:
                kept.append(JournalRecord(record.offset, record.timestamp, entry))
    causes = []
    for line in (folder / "server.log").read_text().splitlines():
        parsed = parse_line(line)
        assert parsed is not SkippedLine.UNKNOWN, line
        if isinstance(parsed, LogLine) and parsed.group == name:
            causes.append(parsed)
    commits = commit_times(kept)
    found = [
        explain_rebalance(step, commits, causes)
        for step in find_rebalances(read_history(name, kept, {}).generations)
    ]
    assert all(one.evidence is EvidenceType.STATED for one in found)
    assert {one.cause for one in found} == CAUSES[name]
