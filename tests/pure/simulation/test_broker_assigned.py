"""A consumer group and a share group are simulated as a real broker writes them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import groupby, pairwise
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.formats import journal
from rota.engine.history.causes import explain_rebalance
from rota.engine.history.facts import EvidenceType, JournalRecord, RebalanceCause
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.server_log import parse_message
from rota.engine.model.journal_entry import JournalEntry, OffsetCommitEntry
from rota.engine.model.share_streams_entry import (
    ShareCurrentMemberAssignmentEntry,
    ShareCurrentMemberAssignmentTombstone,
)
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.broker_assigned import (
    ConsumerGroupSimulation,
    ShareGroupSimulation,
    assign_simple,
)
from rota.engine.simulator.scenario import read_scenario
from rota.errors import InputError
from tests.support.captured_lag import journal_records, read_lines
from tests.support.expected_history import commit_times

SCENARIO = {
    "group": "g",
    "duration": "2h",
    "topics": {"orders": 12, "payments": 6},
    "members": [{"name": "m", "count": 3, "apart": "700ms"}],
    "events": [
        {"at": "20m", "join": "m-3"},
        {"at": "40m", "crash": "m-1"},
        {"at": "50m", "deploy": "m", "down": "8s", "between": "30s"},
        {"at": "80m", "leave": "m-2"},
    ],
}


def consumer_group(seed: int = 0, **changed: object) -> ConsumerGroupSimulation:
    simulation = ConsumerGroupSimulation(read_scenario({**SCENARIO, **changed}), seed=seed, start=0)
    simulation.run()
    return simulation


def share_group(**changed: object) -> ShareGroupSimulation:
    simulation = ShareGroupSimulation(
        read_scenario({**SCENARIO, "topics": {"orders": 3}, **changed}), seed=0, start=0
    )
    simulation.run()
    return simulation


def read_back(group: ConsumerGroupSimulation) -> tuple[list[JournalRecord], GroupHistory]:
    """Returns records and history as read from the journal's bytes."""
    records = [
        JournalRecord(offset, at, journal.decode_record(*journal.encode_entry(entry)))
        for offset, (at, entry) in enumerate(group.journal)
    ]
    return records, read_history("g", records, {})


@cache
def consumer_history() -> tuple[list[JournalRecord], GroupHistory]:
    return read_back(consumer_group())


def find_causes(group: ConsumerGroupSimulation) -> list[tuple[RebalanceCause, EvidenceType]]:
    records, history = read_back(group)
    lines = [parse_message(line.at, line.text) for line in group.log]
    assert all(lines)
    found = [
        explain_rebalance(rebalance, commit_times(records), [line for line in lines if line])
        for rebalance in find_rebalances(history.generations)
    ]
    return [(each.likely or each.cause, each.evidence) for each in found]


def batch_types(entries: Iterable[tuple[int, JournalEntry]]) -> list[tuple[str, ...]]:
    """Returns the types of entries that were written together, without commits. Several entries of
    a type in a row count as one.
    """
    pairs = [(at, type(entry).__name__) for at, entry in entries]
    kept = [(at, name) for at, name in pairs if not name.startswith("OffsetCommit")]
    batches = groupby(kept, key=itemgetter(0))
    return [tuple(name for name, _ in groupby(name for _, name in rows)) for _, rows in batches]


def recorded_batch_types(group: str) -> list[tuple[str, ...]]:
    return batch_types((record.at, record.entry) for record in journal_records()[group])


def test_a_consumer_group_s_entries_are_in_the_order_of_a_real_broker() -> None:
    real = {
        types
        for group in ("a-next", "a-next-range", "a-next-static")
        for types in recorded_batch_types(group)
    }
    simulated = set(batch_types(consumer_group().journal))
    assert len(simulated) == 5
    assert simulated <= real


def test_a_share_group_s_entries_are_in_the_order_of_a_real_broker() -> None:
    one = share_group(members=[{"name": "m"}], events=[{"at": "1h", "leave": "m"}])
    assert batch_types(one.journal) == recorded_batch_types("a-share")


def log_without_names(lines: Iterable[str]) -> list[str]:
    """Returns the lines without ids, hashes, epochs and times."""
    return [
        re.sub(r"\[GroupId [^]]*\]|[\w-]{22}|-?\d+(ms)?|\[[\w, -]*\]", "*", line) for line in lines
    ]


def test_a_share_group_s_log_is_that_of_a_real_broker() -> None:
    one = share_group(
        members=[{"name": "m"}], events=[{"at": "1h", "leave": "m"}], topics={"orders": 2}
    )
    recorded = [json.loads(line)["m"] for line in read_lines("coordinator.jsonl.gz")]
    real = [line for line in recorded if "[GroupId a-share]" in line]
    assert log_without_names(line.text for line in one.log) == log_without_names(real)


def test_a_consumer_group_s_log_is_that_of_a_real_broker() -> None:
    recorded = [json.loads(line)["m"] for line in read_lines("coordinator.jsonl.gz")]
    real = {line for line in recorded if "[GroupId a-next]" in line}
    simulated = set(log_without_names(line.text for line in consumer_group().log))
    assert simulated == set(log_without_names(real))


def test_a_partition_never_has_two_owners_and_all_have_one_at_the_end() -> None:
    _, history = consumer_history()
    by_partition = defaultdict(list)
    for row in history.ownership:
        by_partition[row.topic, row.partition].append(row)
    assert len(by_partition) == 18
    for rows in by_partition.values():
        for row, following in pairwise(rows):
            assert row.until is not None
            assert row.until <= following.since
        assert rows[-1].until is None


def test_members_reach_their_target() -> None:
    _, history = consumer_history()
    last = history.generations[-1]
    assert len(last.members) == 3
    assert {len(sum(member.assigned.values(), ())) for member in last.members} == {6}
    owned = {row.member_id for row in history.ownership if row.until is None}
    assert owned == {member.member_id for member in last.members}


def test_the_log_states_every_cause() -> None:
    assert set(find_causes(consumer_group())) == {
        (cause, EvidenceType.STATED)
        for cause in (RebalanceCause.JOINED, RebalanceCause.LEFT, RebalanceCause.SESSION_TIMEOUT)
    }


def test_a_new_member_of_a_share_group_joins_although_it_states_its_topics() -> None:
    group = share_group(events=[{"at": "20m", "join": "m-3"}, {"at": "40m", "leave": "m-0"}])
    causes, evidence = zip(*find_causes(group), strict=True)
    assert causes == (
        *(RebalanceCause.JOINED, RebalanceCause.JOINED),
        RebalanceCause.PARTITIONS,  # were initialized
        *(RebalanceCause.JOINED, RebalanceCause.LEFT),
    )
    assert set(evidence) == {EvidenceType.STATED}


def test_a_crashed_member_keeps_its_partitions_until_its_session_expires() -> None:
    (line,) = (line for line in consumer_group().log if "session expired" in line.text)
    crash = 40 * 60_000
    assert crash + 40_000 < line.at <= crash + 45_000
    _, history = consumer_history()
    assert any(row.until == line.at for row in history.ownership)


def test_commits_go_up_and_no_new_owner_reads_ahead_of_them() -> None:
    offsets: dict[TopicPartition, int] = {}
    for _, entry in consumer_group().journal:
        if isinstance(entry, OffsetCommitEntry):
            partition = TopicPartition(entry.topic, entry.partition)
            assert offsets.get(partition, 0) <= entry.offset
            offsets[partition] = entry.offset
    assert len(offsets) == 18
    assert min(offsets.values()) > 3_600  # one record per second for two hours


def test_the_same_seed_gives_the_same_journal() -> None:
    one, same, other = (consumer_group(seed).journal for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_events_of_other_groups_are_refused() -> None:
    with pytest.raises(InputError, match="StallEvent is not simulated in a consumer group"):
        consumer_group(events=[{"at": "20m", "stall": "m-0", "for": "5m"}])


def test_members_of_a_share_group_share_partitions() -> None:
    readers: dict[str, int] = {}
    most = 0
    for _, entry in share_group().journal:
        if isinstance(entry, ShareCurrentMemberAssignmentEntry):
            readers[entry.member_id] = sum(len(topic.partitions) for topic in entry.assigned)
        elif isinstance(entry, ShareCurrentMemberAssignmentTombstone):
            del readers[entry.member_id]
        most = max(most, sum(readers.values()))
    assert sorted(readers.values()) == [1, 1, 1]
    assert most == 6  # four members read three partitions


@given(
    st.lists(st.text(min_size=1), min_size=1, max_size=12, unique=True),
    st.lists(st.text(min_size=1), min_size=1, max_size=12, unique=True),
    st.integers(0, 12),
)
def test_the_simple_assignor_shares_evenly(before: list[str], after: list[str], count: int) -> None:
    partitions = [TopicPartition("t", number) for number in range(count)]
    first = assign_simple(dict.fromkeys(before, frozenset()), partitions)
    known = {member: first.get(member, frozenset()) for member in after}
    found = assign_simple(known, partitions)
    assert assign_simple(found, partitions) == found
    sizes = [len(assigned) for assigned in found.values()]
    assert max(sizes) - min(sizes) <= 1
    readers = [sum(one in assigned for assigned in found.values()) for one in partitions]
    assert not readers or max(readers) <= -(-len(after) // count)
