"""Epochs, rebalances and owners of consumer groups (KIP-848)."""

from __future__ import annotations

from rota.engine.history.facts import GenerationChange, GroupType
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.rebalances import find_rebalances
from rota.engine.model.consumer_group_entry import (
    ConsumerGroupMetadataTombstone,
    PartitionMetadataEntry,
    PartitionMetadataTopic,
    TargetAssignmentMetadataTombstone,
)
from tests.pure.history.example_journal import (
    GONE,
    ORDERS,
    changes_of,
    current_assignment_entry,
    generation_numbers,
    group_epoch_entry,
    member_metadata_entry,
    member_tombstones,
    ownership_times,
    read_changes,
    read_entries,
    target_assignment_entry,
    target_epoch_entry,
)

FIRST = (
    member_metadata_entry("A"),
    group_epoch_entry(2),
    target_assignment_entry("A", 0, 1),
    target_epoch_entry(2),
    current_assignment_entry("A", 2, 0, 1),
)


def test_what_a_member_must_give_up_it_has_until_it_said_so() -> None:
    found = read_changes(
        FIRST,
        (
            member_metadata_entry("B"),
            group_epoch_entry(3),
            target_assignment_entry("A", 0),
            target_assignment_entry("B", 1),
            target_epoch_entry(3),
            current_assignment_entry("B", 3),
        ),
        (current_assignment_entry("A", 2, 0, revoking=[1]),),
        (current_assignment_entry("A", 3, 0),),
        (current_assignment_entry("B", 3, 1),),
    )

    assert generation_numbers(found) == [(0, 2, 0), (2, 3, 0)]
    assert ownership_times(found) == [
        (0, "A", 0, None),
        (1, "A", 0, 30_000),
        (1, "B", 40_000, None),
    ]
    assert [row.to_generation for row in found.ownership] == [3, 2, 3]


def test_an_epoch_that_was_overtaken_is_not_seen() -> None:
    found = read_changes(
        FIRST,
        (member_metadata_entry("B"), group_epoch_entry(3), current_assignment_entry("B", 2)),
        (*member_tombstones("B"), group_epoch_entry(4)),
        (
            target_assignment_entry("A", 0, 1),
            target_epoch_entry(4),
            current_assignment_entry("A", 4, 0, 1),
        ),
    )

    assert generation_numbers(found) == [(0, 2, 0), (2, 4, 1)]


def test_when_a_consumer_group_came_into_its_epoch_is_known() -> None:
    found = read_changes(
        FIRST,
        (member_metadata_entry("B"), group_epoch_entry(3)),
        (target_assignment_entry("B"), target_epoch_entry(3)),
    )

    assert [(one.state_at, one.at) for one in found.generations] == [(0, 0), (10_000, 20_000)]


def test_the_last_member_of_a_consumer_group_leaves() -> None:
    found = read_changes(
        FIRST,
        (*member_tombstones("A"), group_epoch_entry(3)),
        (member_metadata_entry("B"), group_epoch_entry(4)),
        member_tombstones("B"),
    )

    assert changes_of(found) == [GenerationChange.REBALANCED, GenerationChange.EMPTIED]
    assert ownership_times(found) == [(0, "A", 0, 10_000), (1, "A", 0, 10_000)]


def test_a_static_member_of_a_consumer_group_comes_back() -> None:
    found = read_changes(
        (
            member_metadata_entry("a-1", "a"),
            group_epoch_entry(2),
            target_assignment_entry("a-1", 0),
            target_epoch_entry(2),
            current_assignment_entry("a-1", 2, 0),
        ),
        (current_assignment_entry("a-1", -2, 0),),
        (
            *member_tombstones("a-1"),
            member_metadata_entry("a-2", "a"),
            target_assignment_entry("a-2", 0),
            current_assignment_entry("a-2", 0, 0),
        ),
        (current_assignment_entry("a-2", 2, 0),),
    )

    assert changes_of(found) == [GenerationChange.REBALANCED, GenerationChange.REPLACED]
    assert generation_numbers(found) == [(0, 2, 0)]
    assert ownership_times(found) == [(0, "a-1", 0, 10_000), (0, "a-2", 20_000, None)]
    assert [row.from_generation for row in found.ownership] == [2, 2]


def test_a_static_member_that_stayed_away_too_long_is_a_new_one() -> None:
    found = read_changes(
        (
            member_metadata_entry("a-1", "a"),
            group_epoch_entry(2),
            target_assignment_entry("a-1", 0),
            target_epoch_entry(2),
            current_assignment_entry("a-1", 2, 0),
        ),
        (*member_tombstones("a-1"), group_epoch_entry(3)),
        (
            member_metadata_entry("a-2", "a"),
            group_epoch_entry(4),
            target_assignment_entry("a-2", 0),
            target_epoch_entry(4),
            current_assignment_entry("a-2", 4, 0),
        ),
    )

    assert changes_of(found) == [
        GenerationChange.REBALANCED,
        GenerationChange.EMPTIED,
        GenerationChange.REBALANCED,
    ]


def test_a_consumer_group_is_deleted() -> None:
    end = (TargetAssignmentMetadataTombstone(group="g"), ConsumerGroupMetadataTombstone(group="g"))
    found = read_changes(FIRST, (*member_tombstones("A"), group_epoch_entry(3)), end, FIRST)

    assert changes_of(found) == [
        GenerationChange.REBALANCED,
        GenerationChange.EMPTIED,
        GenerationChange.DELETED,
        GenerationChange.REBALANCED,
    ]
    assert [one.incarnation for one in found.generations] == [0, 0, 0, 1]
    assert generation_numbers(found) == [(0, 2, 0), (2, 3, 0), (0, 2, 0)]


def test_topics_without_a_name_go_by_their_id() -> None:
    unknown = bytes(15) + b"\xff"
    named = PartitionMetadataEntry(
        group="g",
        topics=(PartitionMetadataTopic(topic_id=ORDERS, topic="renamed", partition_count=2),),
    )
    found = read_changes(
        (
            member_metadata_entry("A"),
            named,
            group_epoch_entry(1),
            target_assignment_entry("A", 0, topic=unknown),
            target_epoch_entry(1),
        )
    )

    (one,) = found.generations[0].members
    assert one.assigned == {"AAAAAAAAAAAAAAAAAAAA_w": (0,)}
    assert found.window is not None
    assert found.window.is_whole


def test_most_members_decide_on_the_servers_strategy() -> None:
    def asked(*assignors: str | None) -> str | None:
        names = [f"m{n}" for n in range(len(assignors))]
        asking = [
            member_metadata_entry(name, None, one)
            for name, one in zip(names, assignors, strict=True)
        ]
        targets = [target_assignment_entry(name, n) for n, name in enumerate(names)]
        return (
            read_changes((*asking, group_epoch_entry(9), *targets, target_epoch_entry(9)))
            .generations[0]
            .strategy
        )

    assert asked(None, None) == "uniform"
    assert asked("range", None, None) == "range"
    assert asked("range", "uniform", "uniform") == "uniform"


def test_a_consumer_group_whose_beginning_was_compacted_away() -> None:
    """What is left of it is its state: nothing is said about how it came about."""
    found = read_changes(
        (member_metadata_entry("A"), member_metadata_entry("B")),
        (target_assignment_entry("A", 0),),
        (
            group_epoch_entry(8),
            target_assignment_entry("B", 1),
            target_epoch_entry(8),
            current_assignment_entry("B", 8, 1),
        ),
        (current_assignment_entry("A", 8, 0),),
        (*member_tombstones("B"), group_epoch_entry(9)),
        (
            target_assignment_entry("A", 0, 1),
            target_epoch_entry(9),
            current_assignment_entry("A", 9, 0, 1),
        ),
    )

    first, second = find_rebalances(found.generations)
    assert (first.known_before, first.after.generation) == (False, 8)
    assert [one.assigned for one in first.after.members] == [{"orders": (0,)}, {"orders": (1,)}]
    assert (second.known_before, second.from_generation) == (True, 8)
    assert second.before is first.after
    assert found.window is not None
    assert (found.window.is_whole, found.window.at) == (False, 40_000)


def test_a_member_whose_subscription_is_missing_is_still_there() -> None:
    found = read_changes(
        (
            group_epoch_entry(8),
            target_assignment_entry("A", 0),
            target_epoch_entry(8),
            current_assignment_entry("A", 8, 0),
        )
    )

    (one,) = found.generations[0].members
    assert one.assigned == {"orders": (0,)}
    assert one.problem == "its subscription is not in the evidence"
    assert found.generations[0].kind is GroupType.CONSUMER


def test_a_group_without_members_has_no_window() -> None:
    assert read_history("g", [], {}) == GroupHistory(generations=[], ownership=[], window=None)
    assert read_entries(GONE, GONE).generations == []
