"""Groups in a broker: what outlives a restart, what becomes of waiting members, what is logged."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

import pytest

from rota.engine.coordinator.coordinator import journal_partition
from rota.engine.formats.journal import decode_record, encode_entry
from rota.engine.formats.record_batch import ControlRecordType
from rota.engine.formats.record_batch_columns import decode_batches, iterate_records
from rota.engine.history.server_log import SkippedLine, parse_line
from rota.engine.model.config import DAY, BrokerConfig, GroupConfig
from rota.engine.model.consumer_group_entry import ConsumerGroupMetadataEntry
from rota.engine.model.journal_entry import JournalEntry, OffsetCommitEntry, OffsetCommitTombstone
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC
from rota.errors import Code, InputError, Refused
from tests.support.node import BROKER, ClientConnection, InMemoryNode
from tests.support.recorded_segment import journal_segments
from tests.support.requests import (
    GROUP,
    SESSION,
    Member,
    commit_request,
    delete_groups_request,
    describe_groups_request,
    find_coordinator_request,
    join_request,
    list_groups_request,
    offset_fetch_request,
)


@pytest.fixture
def node() -> InMemoryNode:
    made = InMemoryNode()
    made.create_topic(partitions=4)
    return made


@pytest.fixture
def peer(node: InMemoryNode) -> ClientConnection:
    return node.connect()


def pair(node: InMemoryNode) -> tuple[Member, Member]:
    """Two members, the first of which leads."""
    first, second = Member(node.connect()), Member(node.connect())
    first.enter()
    second.join()
    first.join()
    first.joined()
    second.joined()
    second.sync()
    first.sync()
    assert first.synced() == f"part of {first.id}".encode()
    assert second.synced() == f"part of {second.id}".encode()
    return first, second


def state(peer: ClientConnection, group: str = GROUP) -> tuple[str, int]:
    (told,) = peer.ask(describe_groups_request(group), 5).groups
    return told.group_state, len(told.members)


# a journal


def test_the_journal_is_made_when_somebody_looks_for_a_coordinator(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    assert node.topics.get(CONSUMER_OFFSETS_TOPIC) is None
    assert peer.ask(list_groups_request(), 4).groups == []
    assert node.topics.get(CONSUMER_OFFSETS_TOPIC) is None
    peer.ask(find_coordinator_request(), 2)
    made = node.topics.get(CONSUMER_OFFSETS_TOPIC)
    assert made is not None
    assert made.partition_count == BROKER.offsets_partitions
    assert made.config.is_compacted


def test_a_group_is_written_to_its_own_partition(node: InMemoryNode) -> None:
    Member(node.connect()).enter()
    ends = [
        node.topics.get_log(CONSUMER_OFFSETS_TOPIC, each).log_end_offset  # type: ignore[union-attr]
        for each in range(BROKER.offsets_partitions)
    ]
    mine = journal_partition(GROUP, BROKER.offsets_partitions)
    assert ends[mine] == 2
    assert sum(ends) == 2


def test_no_coordinator_while_the_journal_cannot_be_made(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    node.disk.room(0)
    assert peer.ask(find_coordinator_request(), 2).error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert peer.ask(join_request(), 5).error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert node.logged("cannot be made")
    node.disk.room(None)
    assert peer.ask(find_coordinator_request(), 2).error_code == Code.NONE


def test_without_its_journal_a_broker_forgets_its_groups(node: InMemoryNode) -> None:
    first, _ = pair(node)
    late = Member(node.connect())
    late.join()
    with pytest.raises(Refused, match="keeps its 3 partitions"):
        node.topics.create_partitions(CONSUMER_OFFSETS_TOPIC, 4, node.now)
    node.topics.delete(CONSUMER_OFFSETS_TOPIC, node.now)
    node.advance(0)
    assert late.connection.receive().error_code == Code.NOT_COORDINATOR
    assert first.connection.ask(list_groups_request(), 4).groups == []
    assert first.beat() is Code.UNKNOWN_MEMBER_ID
    first.id = ""
    first.enter()
    assert state(first.connection) == ("Stable", 1)


# restarts


def test_a_stable_group_outlives_a_restart_without_a_rebalance(node: InMemoryNode) -> None:
    first, second = pair(node)
    assert first.commit(17) is Code.NONE
    again = node.restart()
    for member in (first, second):
        member.connection = again.connect()
        assert member.beat() is Code.NONE
    assert second.commit(18, partition=1) is Code.NONE
    (topic,) = first.connection.ask(offset_fetch_request(None), 7).topics
    assert {each.partition_index: each.committed_offset for each in topic.partitions} == {
        0: 17,
        1: 18,
    }
    assert state(first.connection) == ("Stable", 2)
    second.sync()
    assert second.synced() == f"part of {second.id}".encode()


def test_sessions_begin_anew_with_a_restart(node: InMemoryNode) -> None:
    pair(node)
    node.advance(SESSION - 1)
    again = node.restart()
    again.advance(SESSION - 1)
    assert state(again.connect()) == ("Stable", 2)
    again.advance(1)
    assert state(again.connect()) == ("Empty", 0)


def test_a_rebalance_is_forgotten_by_a_restart(node: InMemoryNode) -> None:
    first = Member(node.connect())
    first.enter()
    Member(node.connect()).join()
    assert state(first.connection) == ("PreparingRebalance", 2)
    again = node.restart()
    first.connection = again.connect()
    assert state(first.connection) == ("Stable", 1)
    assert first.beat() is Code.NONE


def test_a_group_that_is_too_large_after_a_restart_rebalances(node: InMemoryNode) -> None:
    pair(node)
    again = node.restart(group_config=GroupConfig(initial_rebalance_delay=0, max_size=1))
    assert state(again.connect())[0] == "PreparingRebalance"


def test_deleted_groups_stay_deleted(node: InMemoryNode, peer: ClientConnection) -> None:
    peer.ask(commit_request({("t", 0): 1}), 8)
    assert peer.ask(delete_groups_request(), 2).results[0].error_code == Code.NONE
    again = node.restart().connect()
    assert again.ask(list_groups_request(), 4).groups == []


def test_generations_go_on_after_a_restart(node: InMemoryNode) -> None:
    first, _ = pair(node)
    again = node.restart()
    first.connection = again.connect()
    late = Member(again.connect())
    late.join()
    first.join()
    again.advance(SESSION)
    assert late.joined().generation_id == 3


def test_other_records_of_a_journal_are_passed_over_and_said(node: InMemoryNode) -> None:
    first = Member(node.connect())
    first.enter()
    mine = journal_partition(GROUP, BROKER.offsets_partitions)
    strange = [
        encode_entry(ConsumerGroupMetadataEntry(group="new", epoch=2)),
        encode_entry(ConsumerGroupMetadataEntry(group="new", epoch=3)),
    ]
    node.topics.append_records(CONSUMER_OFFSETS_TOPIC, mine, [*strange, (b"\0\1", b"?")], node.now)
    again = node.restart()
    (passed,) = again.logged("Skipped records")
    assert "2 ConsumerGroupMetadata" in passed
    (unread,) = again.logged("cannot be decoded")
    assert "1 records cannot be decoded; the first: offset 4: " in unread
    first.connection = again.connect()
    assert first.beat() is Code.NONE


def test_a_journal_that_kafka_wrote_is_taken_over() -> None:
    config = BrokerConfig(offsets_partitions=50)
    node = InMemoryNode(config=config)
    node.connect().ask(find_coordinator_request(), 2)
    for partition, data in journal_segments().items():
        node.disk.put(f"{CONSUMER_OFFSETS_TOPIC}-{partition}/{0:020}.log", data)
    again = node.restart(config=config)
    assert not again.logged("cannot be decoded")
    assert again.logged("Skipped records")
    peer = again.connect()
    found = {each.group_id for each in peer.ask(list_groups_request(), 4).groups}
    for name, offsets in recorded_offsets().items():
        answer = peer.ask(offset_fetch_request(None, name), 7)
        told = {
            (topic.name, each.partition_index): each.committed_offset
            for topic in answer.topics
            for each in topic.partitions
        }
        assert told == offsets
        assert name in found or not offsets


def recorded_offsets() -> dict[str, dict[tuple[str, int], int]]:
    """What the recorded journal says of each group's offsets, read record by record."""
    found: dict[str, dict[tuple[str, int], int]] = {}
    for data in journal_segments().values():
        held: dict[int, list[JournalEntry]] = {}
        columns = decode_batches(data)
        batches = columns.batches
        by_batch = groupby(
            zip(columns.batch.tolist(), iterate_records(columns), strict=True), itemgetter(0)
        )
        for number, rows in by_batch:
            producer = int(batches.producer_id[number])
            if batches.control[number]:
                entries = held.pop(producer, [])
                if batches.marker[number] != ControlRecordType.COMMIT:
                    continue
            else:
                entries = [decode_record(record.key or b"", record.value) for _, record in rows]
                if batches.transactional[number]:
                    held.setdefault(producer, []).extend(entries)
                    continue
            for entry in entries:
                if isinstance(entry, OffsetCommitEntry):
                    offsets = found.setdefault(entry.group, {})
                    offsets[entry.topic, entry.partition] = entry.offset
                elif isinstance(entry, OffsetCommitTombstone):
                    found.setdefault(entry.group, {}).pop((entry.topic, entry.partition), None)
    return found


# members that wait


def test_a_client_that_hangs_up_while_it_waits_does_no_harm(node: InMemoryNode) -> None:
    first = Member(node.connect())
    first.enter()
    second = Member(node.connect())
    second.join()
    second.connection.disconnect()
    assert first.beat() is Code.REBALANCE_IN_PROGRESS
    first.join()
    assert len(first.joined().members) == 2
    first.sync()
    first.synced()
    assert state(first.connection) == ("Stable", 2)
    for _ in range(3):
        node.advance(SESSION // 2)
        code = first.beat()
    assert code is Code.REBALANCE_IN_PROGRESS
    assert state(first.connection) == ("PreparingRebalance", 1)


def test_the_members_of_a_group_wait_for_each_other(node: InMemoryNode) -> None:
    first = Member(node.connect())
    first.enter()
    second = Member(node.connect())
    second.join()
    assert second.connection.waits
    first.join()
    assert not second.connection.waits
    second.joined()
    second.sync()
    assert second.connection.waits
    first.joined()
    first.sync()
    assert second.synced() == f"part of {second.id}".encode()


def test_the_first_members_may_be_waited_for() -> None:
    node = InMemoryNode(group_config=GroupConfig())
    first = Member(node.connect())
    first.join()
    assert first.connection.waits
    node.advance(3_000)
    assert first.joined().generation_id == 1


# moving and expiring


def test_a_group_is_moved(node: InMemoryNode) -> None:
    first, second = pair(node)
    late = Member(node.connect())
    late.join()
    node.groups.move_coordinator(GROUP, node.now)
    node.advance(0)
    assert late.connection.receive().error_code == Code.NOT_COORDINATOR
    assert first.beat() is Code.NOT_COORDINATOR
    assert second.commit(1) is Code.NOT_COORDINATOR
    assert first.connection.ask(find_coordinator_request(), 2).error_code == Code.NONE
    assert first.beat() is Code.NONE
    assert second.commit(1) is Code.NONE


def test_the_owner_sees_a_moved_group_without_bringing_it_back(node: InMemoryNode) -> None:
    first, second = pair(node)
    first.commit(3)
    node.groups.move_coordinator(GROUP, node.now)
    described = [node.groups.describe_group(name, node.now) for name in (GROUP, "none")]
    assert [(each.state, len(each.members)) for each in described] == [
        ("Stable", 2),
        ("Dead", 0),
    ]
    listed = node.groups.list_groups(node.now)
    assert [each.group for each in listed.groups] == [GROUP]
    fetched = node.groups.fetch_offsets(GROUP, node.now)
    assert [each.offset for each in fetched.offsets.values() if each] == [3]
    assert first.beat() is Code.NOT_COORDINATOR
    node.groups.expire_member(GROUP, second.id, node.now)
    assert first.beat() is Code.REBALANCE_IN_PROGRESS


def test_to_look_makes_no_journal(node: InMemoryNode) -> None:
    node.groups.describe_group("g", node.now)
    node.groups.fetch_offsets("g", node.now)
    node.groups.list_groups(node.now)
    assert node.topics.get(CONSUMER_OFFSETS_TOPIC) is None


def test_a_moved_group_comes_back_by_itself(node: InMemoryNode) -> None:
    first, _ = pair(node)
    node.groups.move_coordinator(GROUP, node.now)
    node.advance(9_999)
    assert first.beat() is Code.NOT_COORDINATOR
    node.advance(1)
    assert first.beat() is Code.NONE


def test_a_member_is_expired(node: InMemoryNode) -> None:
    first, second = pair(node)
    node.groups.expire_member(GROUP, second.id, node.now)
    assert state(first.connection) == ("PreparingRebalance", 1)
    assert second.beat() is Code.UNKNOWN_MEMBER_ID
    with pytest.raises(InputError, match=f"no member '{second.id}'; its members: {first.id}"):
        node.groups.expire_member(GROUP, second.id, node.now)


# a disk that fails


def test_nothing_is_promised_that_is_not_stored(node: InMemoryNode) -> None:
    first, second = pair(node)
    node.disk.refuse("append", f"{CONSUMER_OFFSETS_TOPIC}-*/*.log", partly=20)
    assert first.commit(5) is Code.NOT_COORDINATOR
    assert len(node.logged("cannot be written; members wait")) == 1
    assert first.commit(6) is Code.NONE
    assert node.logged("can be written again")
    again = node.restart()
    (topic,) = again.connect().ask(offset_fetch_request(None), 7).topics
    assert [each.committed_offset for each in topic.partitions] == [6]
    assert state(again.connect()) == ("Stable", 2)
    assert second.beat() is Code.NONE


def test_an_assignment_that_is_not_stored_is_not_handed_out(node: InMemoryNode) -> None:
    first = Member(node.connect())
    first.join()
    first.joined()
    node.disk.refuse("append", f"{CONSUMER_OFFSETS_TOPIC}-*/*.log")
    first.sync()
    assert first.connection.receive().error_code == Code.NOT_COORDINATOR
    assert state(first.connection) == ("PreparingRebalance", 1)
    assert state(node.restart().connect()) == ("Empty", 0)
    first.join()
    first.joined()
    first.sync()
    first.synced()
    assert state(first.connection) == ("Stable", 1)


def test_a_full_disk_is_said_once(node: InMemoryNode) -> None:
    first = Member(node.connect())
    first.enter()
    node.disk.room(0)
    for offset in range(5):
        assert first.commit(offset) is Code.NOT_COORDINATOR
    assert len(node.logged("cannot be written; members wait")) == 1
    node.disk.room(None)
    assert first.commit(9) is Code.NONE


def test_a_damaged_journal_partition_is_not_served(node: InMemoryNode) -> None:
    Member(node.connect()).enter()
    partition = journal_partition(GROUP, BROKER.offsets_partitions)
    other = next(
        name
        for name in map(str, range(100))
        if journal_partition(name, BROKER.offsets_partitions) != partition
    )
    Member(node.connect(), other).enter()
    again = node.restart()  # it has looked through all of the log; then a bit flips
    again.disk.flip(f"{CONSUMER_OFFSETS_TOPIC}-{partition}/{0:020}.log", 8 * 100)
    again.groups.move_coordinator(GROUP, again.now)
    peer = again.connect()
    peer.ask(find_coordinator_request(), 2)
    (told,) = peer.ask(describe_groups_request(), 5).groups
    assert told.error_code == Code.NOT_COORDINATOR
    (line,) = again.logged("not available")
    assert f"{CONSUMER_OFFSETS_TOPIC}-{partition}" in line
    assert state(peer, other) == ("Stable", 1)
    assert [each.group_id for each in peer.ask(list_groups_request(), 4).groups] == [other]


# the log


def test_the_log_reads_as_a_broker_s(node: InMemoryNode) -> None:
    first, second = pair(node)
    node.groups.expire_member(GROUP, second.id, node.now)
    node.advance(SESSION)
    told = node.logged("[GroupCoordinator id=1 topic=__consumer_offsets partition=")
    assert told == node.log_lines
    understood = [parse_line(f"[2026-11-15 14:00:08,172] INFO {line} (logger)") for line in told]
    assert not [
        line for line, found in zip(told, understood, strict=True) if found is SkippedLine.OTHER
    ]
    assert node.logged(f"Stabilized group {GROUP} generation 2 with 2 members.")
    assert node.logged(f"Member {second.id} in group {GROUP} has failed")
    assert node.logged(f"Assignment received from leader {first.id} for group {GROUP}")
    again = node.restart()
    assert again.logged(f"Loaded classic group {GROUP} with ")


def test_a_member_without_a_common_strategy_is_told_of(node: InMemoryNode) -> None:
    Member(node.connect()).enter()
    answer = node.connect().ask(join_request(protocol_type="connect"), 5)
    assert answer.error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    (line,) = node.logged("is refused")
    assert "'connect'" in line


# time


def test_a_jump_of_the_clock_is_not_made_up_for(node: InMemoryNode) -> None:
    first, _ = pair(node)
    assert first.commit(4) is Code.NONE
    node.jump(500 * DAY)
    assert state(first.connection) == ("Empty", 0)
    assert (node.node.next_timer() or 0) > node.now


# what is too long


def test_a_name_too_long_for_a_member_id_is_refused(node: InMemoryNode) -> None:
    first = Member(node.connect())
    first.enter()
    peer = node.connect()
    assert (
        peer.ask(join_request(group_instance_id="s" * 32_760), 6).error_code == Code.INVALID_REQUEST
    )
    peer.client_id = "x" * 32_760
    assert peer.ask(join_request(), 6).error_code == Code.INVALID_REQUEST
    assert first.beat() is Code.NONE
