"""Share groups, streams groups and Connect groups: members, work, causes, and their overview."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rota.engine.history.causes import explain_rebalance
from rota.engine.history.facts import (
    Generation,
    GenerationChange,
    GroupType,
    JournalRecord,
    RebalanceCause,
)
from rota.engine.history.generations import HistoryReader
from rota.engine.history.groups import (
    CommitSummary,
    GroupOverview,
    OverviewBuilder,
    add_commits,
    describe_group,
)
from rota.engine.history.health import compute_health
from rota.engine.history.lag import EndOffsets
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.verdicts import GroupCommits
from rota.engine.model.consumer_group_entry import TargetAssignmentTopic
from rota.engine.model.journal_entry import JournalEntry, UnparsedEntry
from rota.engine.model.share_streams_entry import (
    ShareCurrentMemberAssignmentTombstone,
    ShareGroupMetadataEntry,
    ShareGroupMetadataTombstone,
    ShareMemberMetadataEntry,
    ShareMemberMetadataTombstone,
    ShareStatePartitionMetadataEntry,
    ShareStateTopic,
    ShareTargetAssignmentMemberEntry,
    ShareTargetAssignmentMemberTombstone,
    ShareTargetAssignmentMetadataEntry,
    StreamsCurrentMemberAssignmentEntry,
    StreamsCurrentTasks,
    StreamsGroupMetadataEntry,
    StreamsInternalTopic,
    StreamsMemberMetadataEntry,
    StreamsTargetAssignmentMemberEntry,
    StreamsTargetAssignmentMetadataEntry,
    StreamsTasks,
    StreamsTopologyEntry,
    Subtopology,
)
from tests.pure.formats.test_connect_protocol import CURRENT, EAGER, REVOKING, STATE
from tests.pure.history.example_journal import ORDERS, group_metadata_entry, member
from tests.support import first_recording, second_recording


def share_member(name: str) -> tuple[JournalEntry, ...]:
    return (
        ShareMemberMetadataEntry(
            group="g",
            member_id=name,
            rack=None,
            client_id=f"client of {name}",
            client_host="/10.0.0.1",
            topics=("orders",),
        ),
    )


def share_gone(name: str) -> tuple[JournalEntry, ...]:
    return (
        ShareCurrentMemberAssignmentTombstone(group="g", member_id=name),
        ShareTargetAssignmentMemberTombstone(group="g", member_id=name),
        ShareMemberMetadataTombstone(group="g", member_id=name),
    )


def share_epoch(number: int) -> ShareGroupMetadataEntry:
    return ShareGroupMetadataEntry(group="g", epoch=number, metadata_hash=1)


def share_target(number: int, **assigned: tuple[int, ...]) -> tuple[JournalEntry, ...]:
    targets = (
        ShareTargetAssignmentMemberEntry(
            group="g",
            member_id=name,
            topics=(TargetAssignmentTopic(topic_id=ORDERS, partitions=partitions),),
        )
        for name, partitions in assigned.items()
    )
    return (*targets, ShareTargetAssignmentMetadataEntry(group="g", epoch=number))


INITIALIZED = ShareStatePartitionMetadataEntry(
    group="g",
    initializing=(),
    initialized=(ShareStateTopic(topic_id=ORDERS, topic="orders", partitions=(0, 1)),),
    deleting=(),
)
SHARE = (
    (*share_member("A"), share_epoch(2), *share_target(2, A=())),
    (INITIALIZED,),
    (share_epoch(3), *share_target(3, A=(0, 1))),
    (*share_member("B"), share_epoch(4), *share_target(4, B=(0, 1))),
    (*share_gone("A"), share_epoch(5)),
    share_target(5),
    (*share_gone("B"), share_epoch(6)),
)


def read_changes(*changes: tuple[JournalEntry, ...]) -> tuple[HistoryReader, list[Generation]]:
    """Each change is a batch of its own, ten seconds after the one before it."""
    records = [
        JournalRecord(100 * batch + place, 10_000 * batch, entry)
        for batch, entries in enumerate(changes)
        for place, entry in enumerate(entries)
    ]
    reader = HistoryReader("g", {})
    return reader, list(reader.generations(records))


def overview_of(*changes: tuple[JournalEntry, ...]) -> GroupOverview:
    reader, generations = read_changes(*changes)
    builder = OverviewBuilder("g")
    assert list(builder.watch(generations)) == generations
    assert reader.first is not None
    assert reader.last is not None
    found = builder.overview(*reader.kind_and_state, reader.first.at, reader.last.at)
    return replace(found, text=describe_group(found))


def work_of(generation: Generation) -> dict[str, tuple[str, ...]]:
    return {member.member_id: member.work for member in generation.members}


BOTH = ("orders-0", "orders-1")


def test_members_of_a_share_group_share_partitions() -> None:
    reader, found = read_changes(*SHARE)
    assert [(one.generation, work_of(one)) for one in found] == [
        (2, {"A": ()}),
        (3, {"A": BOTH}),
        (4, {"A": BOTH, "B": BOTH}),
        (5, {"B": BOTH}),
        (6, {}),
    ]
    assert {one.kind for one in found} == {GroupType.SHARE}
    assert found[-1].change is GenerationChange.EMPTIED
    assert all(not each.assigned for one in found for each in one.members), "they own nothing alone"
    assert reader.take_remaining() == []
    assert reader.window is not None
    assert reader.window.is_whole


def test_causes_of_a_share_groups_rebalances() -> None:
    _, found = read_changes(*SHARE)
    causes = [explain_rebalance(one, {}) for one in find_rebalances(found)]
    assert [why.cause for why in causes] == [
        RebalanceCause.JOINED,
        RebalanceCause.PARTITIONS,
        RebalanceCause.JOINED,
        RebalanceCause.UNKNOWN,
        RebalanceCause.UNKNOWN,
    ]
    assert causes[1].reason == "more partitions: orders"
    assert causes[3].reason == "client of A gone: it left or was removed"


def test_a_share_group_that_is_deleted_and_created_again() -> None:
    gone = (ShareGroupMetadataTombstone(group="g"),)
    reader, found = read_changes(*SHARE, gone, SHARE[0])
    assert [one.incarnation for one in found] == [0] * 6 + [1]
    assert found[5].change is GenerationChange.DELETED
    assert reader.kind_and_state == (GroupType.SHARE, "Stable")
    assert overview_of(*SHARE, gone).state == "Dead"


def test_compacted_records_of_a_share_group_give_one_generation() -> None:
    whole, every = read_changes(*SHARE[:4])
    member_a, member_b = SHARE[0][:1], SHARE[3][:1]
    last = (*share_target(4, A=(0, 1), B=(0, 1))[:2], *SHARE[3][-1:])
    reader, found = read_changes((INITIALIZED, *member_a, *member_b, share_epoch(4), *last))
    assert [work_of(one) for one in found] == [work_of(every[-1])]
    assert reader.window is not None
    assert not reader.window.is_whole
    assert reader.kind_and_state == whole.kind_and_state


def test_the_health_of_a_share_group_is_unknown() -> None:
    _, found = read_changes(*SHARE)
    nothing = np.zeros(0, dtype=np.int64)
    ends = EndOffsets.from_samples(nothing, nothing, nothing)
    commits = GroupCommits(nothing, nothing, nothing)
    health = compute_health("g", [], commits, ends, found, 100_000)
    assert (health.health, health.worst) == ("unknown", "unknown")
    assert health.reason == "a share group commits no offsets to the journal"


def streams_member(name: str) -> StreamsMemberMetadataEntry:
    return StreamsMemberMetadataEntry(
        group="g",
        member_id=name,
        group_instance_id=None,
        rack=None,
        client_id=f"client of {name}",
        client_host="/10.0.0.1",
        rebalance_timeout=300_000,
        topology_epoch=0,
        process_id="p",
        endpoint=None,
        client_tags=(),
    )


def subtopology(name: str, *topics: str, regex: str | None = None) -> Subtopology:
    repartition = StreamsInternalTopic(
        topic=f"app-{name}-repartition", partition_count=0, replication_factor=0, configs=()
    )
    return Subtopology(
        subtopology=name,
        source_topics=topics,
        source_regexes=() if regex is None else (regex,),
        changelogs=(),
        repartition_sinks=(),
        repartition_sources=() if topics else (repartition,),
        copartition_groups=(),
    )


def topology(*parts: Subtopology) -> StreamsTopologyEntry:
    return StreamsTopologyEntry(group="g", epoch=0, subtopologies=parts)


def streams_epoch(number: int) -> StreamsGroupMetadataEntry:
    return StreamsGroupMetadataEntry(group="g", epoch=number, metadata_hash=1)


def streams_target(
    name: str, active: dict[str, tuple[int, ...]], standby: dict[str, tuple[int, ...]]
) -> StreamsTargetAssignmentMemberEntry:
    active_tasks, standby_tasks = (
        tuple(StreamsTasks(subtopology=part, partitions=numbers) for part, numbers in one.items())
        for one in (active, standby)
    )
    return StreamsTargetAssignmentMemberEntry(
        group="g", member_id=name, active=active_tasks, standby=standby_tasks, warmup=()
    )


def streams_current(name: str, epoch: int, state: int = 0) -> StreamsCurrentMemberAssignmentEntry:
    tasks = (StreamsCurrentTasks(subtopology="0", partitions=(0,)),)
    none = dict.fromkeys(
        ("standby", "warmup", "active_revoking", "standby_revoking", "warmup_revoking"), ()
    )
    return StreamsCurrentMemberAssignmentEntry(
        group="g", member_id=name, epoch=epoch, previous_epoch=0, state=state, active=tasks, **none
    )


STREAMS = (
    (
        streams_member("A"),
        topology(subtopology("0", "orders", "items"), subtopology("1")),
        streams_epoch(2),
        streams_target("A", {"1": (0,), "0": (1, 0)}, {}),
        StreamsTargetAssignmentMetadataEntry(group="g", epoch=2),
        streams_current("A", 2),
    ),
    (
        streams_member("B"),
        streams_epoch(3),
        streams_target("A", {"0": (0, 1)}, {"1": (0,)}),
        streams_target("B", {"1": (0,)}, {"0": (1,)}),
        StreamsTargetAssignmentMetadataEntry(group="g", epoch=3),
        streams_current("A", 2, state=1),
    ),
)


def test_members_of_a_streams_group_run_tasks() -> None:
    reader, found = read_changes(*STREAMS)
    assert [(one.generation, work_of(one)) for one in found] == [
        (2, {"A": ("task 0_0 active", "task 0_1 active", "task 1_0 active")}),
        (
            3,
            {
                "A": ("task 0_0 active", "task 0_1 active", "task 1_0 standby"),
                "B": ("task 1_0 active", "task 0_1 standby"),
            },
        ),
    ]
    assert found[0].members[0].topics == ("app-1-repartition", "items", "orders")
    causes = [explain_rebalance(one, {}).cause for one in find_rebalances(found)]
    assert causes == [RebalanceCause.JOINED, RebalanceCause.JOINED]
    assert reader.window is not None
    assert reader.window.is_whole


def test_the_state_of_a_streams_group() -> None:
    assert overview_of(STREAMS[0]).state == "Stable"
    assert overview_of(*STREAMS).state == "Reconciling"
    done = (streams_current("A", 3), streams_current("B", 3))
    assert overview_of(*STREAMS, done).state == "Stable"
    assert overview_of(*STREAMS, done, (streams_epoch(4),)).state == "Assigning"


def test_topics_of_a_pattern_are_unknown() -> None:
    first, change = STREAMS[0], topology(subtopology("0", "orders"), subtopology("1", regex="x.*"))
    _, found = read_changes((first[0], change, *first[2:]))
    assert found[0].members[0].topics == ()


def connect_worker(name: str, told: str, given: str) -> object:
    return replace(member(name), subscription=bytes.fromhex(told), assignment=bytes.fromhex(given))


def test_workers_of_connect_run_connectors_and_tasks() -> None:
    incremental = f"0002 {STATE} 0000003f {CURRENT}"
    changes = (
        (group_metadata_entry(0, protocol_type=""),),
        *(
            (group_metadata_entry(number, worker, strategy=name, protocol_type="connect"),)  # type: ignore[arg-type]
            for number, name, worker in (
                (1, "default", connect_worker("w", f"0000 {STATE}", EAGER)),
                (2, "sessioned", connect_worker("w", incremental, REVOKING)),
                (3, "sessioned", connect_worker("w", incremental, "0000 00")),
            )
        ),
    )
    _, found = read_changes(*changes)
    assert [work_of(one) for one in found[1:3]] == [
        {"w": ("connector sink", "task 0 of sink", "task 1 of source")},
        {"w": ("connector sink",)},
    ]
    assert found[3].members[0].problem == (
        "Connect assignment: error at byte 2: 2 bytes needed, 1 left"
    )
    second = explain_rebalance(find_rebalances(found)[1], {})
    assert (second.cause, second.reason) == (
        "unknown",
        "the same workers; other connectors or tasks",
    )
    shown = overview_of(*changes[:2])
    assert (shown.kind, shown.protocol_type, shown.partitions) == ("connect", "connect", None)
    assert shown.text == (
        "Workers of Kafka Connect: 1 worker runs 1 connector and 2 tasks. A sink connector commits "
        "its offsets in a group of its own, connect-NAME."
    )


def test_overviews_of_share_and_streams_groups() -> None:
    share = overview_of(*SHARE[:4])
    assert (share.kind, share.state, share.epoch, share.epochs) == ("share", "Stable", 4, 3)
    assert (share.members, share.topics, share.partitions) == (2, ("orders",), 2)
    assert (share.first, share.last) == (0, 30_000)
    assert [one["assigned"] for one in share.last_members] == [list(BOTH)] * 2
    assert share.text == (
        "Share group: 2 members share the records of 2 partitions of orders. Several members may "
        "read the same partition; a rebalance stops none of them, so there is no downtime."
    )
    empty = overview_of(*SHARE)
    assert (empty.state, empty.members, len(empty.last_members)) == ("Empty", 0, 1)
    assert empty.text.startswith("Share group, without members: its last member shared the records")
    assert overview_of(*STREAMS).text == (
        "Kafka Streams group with the KIP-1071 protocol: 2 members run 3 active tasks and 2 "
        "standby or warm-up tasks of app-1-repartition, items, orders."
    )


def test_overviews_of_classic_groups() -> None:
    readers = (member("a", {"t": (0, 1)}), member("b", {"t": (2,)}))
    found = overview_of((group_metadata_entry(1, *readers),))
    assert found.text == (
        "Consumer group with the classic protocol: 2 members read 3 partitions of t with range."
    )
    assert found.last_members[0]["assigned"] == ["t-0", "t-1"]
    empty = overview_of((group_metadata_entry(1, readers[0]),), (group_metadata_entry(2),))
    assert (empty.state, empty.strategy, empty.text) == (
        "Empty",
        "range",
        "Consumer group with the classic protocol, without members: its last member read 2 "
        "partitions of t with range.",
    )
    other = overview_of((group_metadata_entry(1, *readers, protocol_type="sr"),))
    assert (other.kind, other.text) == (
        "other",
        "Group with the protocol type sr: 2 members. The journal does not show what they share.",
    )


def test_commits_complete_an_overview() -> None:
    commits = CommitSummary(-5, 70_000, {("t", 0), ("u", 1)})
    alone = add_commits("g", None, commits)
    assert alone is not None
    assert (alone.kind, alone.state, alone.topics, alone.partitions) == (
        "commits only",
        None,
        ("t", "u"),
        2,
    )
    assert alone.text.startswith("Committed offsets only: 2 partitions of t, u.")
    known = add_commits(
        "g", overview_of((group_metadata_entry(1, member("a", {"t": (0,)})),)), commits
    )
    assert known is not None
    assert (known.topics, known.partitions, known.first, known.last) == (("t",), 1, -5, 70_000)
    assert add_commits("g", known, commits) == known, "the same commits again change nothing"
    assert add_commits("g", None, None) is None


def test_every_recorded_group_is_of_the_kind_that_was_made() -> None:
    kinds = {}
    for group, records in first_recording.read_journal().items():
        reader = HistoryReader(group, first_recording.topic_names())
        list(reader.generations(records))
        kinds[group] = reader.kind_and_state
    assert kinds["a-share"] == (GroupType.SHARE, "Empty")
    assert kinds["a-deleted"] == (GroupType.CLASSIC, "Dead")
    assert {group for group, (kind, _) in kinds.items() if kind is GroupType.CONSUMER} == {
        "a-next",
        "a-next-range",
        "a-next-regex",
        "a-next-static",
    }
    every = (record.entry for kept in second_recording.read_journal().values() for record in kept)
    assert not any(isinstance(entry, UnparsedEntry) for entry in every)
