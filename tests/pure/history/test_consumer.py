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
    changes,
    computed,
    epoch,
    has,
    joined,
    left,
    numbers,
    target,
    times,
    told,
    written,
)

FIRST = (joined("A"), epoch(2), target("A", 0, 1), computed(2), has("A", 2, 0, 1))


def test_what_a_member_must_give_up_it_has_until_it_said_so() -> None:
    found = written(
        FIRST,
        (joined("B"), epoch(3), target("A", 0), target("B", 1), computed(3), has("B", 3)),
        (has("A", 2, 0, revoking=[1]),),
        (has("A", 3, 0),),
        (has("B", 3, 1),),
    )

    assert numbers(found) == [(0, 2, 0), (2, 3, 0)]
    assert times(found) == [
        (0, "A", 0, None),
        (1, "A", 0, 30_000),
        (1, "B", 40_000, None),
    ]
    assert [row.to_generation for row in found.ownership] == [3, 2, 3]


def test_an_epoch_that_was_overtaken_is_not_seen() -> None:
    found = written(
        FIRST,
        (joined("B"), epoch(3), has("B", 2)),
        (*left("B"), epoch(4)),
        (target("A", 0, 1), computed(4), has("A", 4, 0, 1)),
    )

    assert numbers(found) == [(0, 2, 0), (2, 4, 1)]


def test_when_a_consumer_group_came_into_its_epoch_is_known() -> None:
    found = written(FIRST, (joined("B"), epoch(3)), (target("B"), computed(3)))

    assert [(one.state_at, one.at) for one in found.generations] == [(0, 0), (10_000, 20_000)]


def test_the_last_member_of_a_consumer_group_leaves() -> None:
    found = written(FIRST, (*left("A"), epoch(3)), (joined("B"), epoch(4)), left("B"))

    assert changes(found) == [GenerationChange.REBALANCED, GenerationChange.EMPTIED]
    assert times(found) == [(0, "A", 0, 10_000), (1, "A", 0, 10_000)]


def test_a_static_member_of_a_consumer_group_comes_back() -> None:
    found = written(
        (joined("a-1", "a"), epoch(2), target("a-1", 0), computed(2), has("a-1", 2, 0)),
        (has("a-1", -2, 0),),
        (*left("a-1"), joined("a-2", "a"), target("a-2", 0), has("a-2", 0, 0)),
        (has("a-2", 2, 0),),
    )

    assert changes(found) == [GenerationChange.REBALANCED, GenerationChange.REPLACED]
    assert numbers(found) == [(0, 2, 0)]
    assert times(found) == [(0, "a-1", 0, 10_000), (0, "a-2", 20_000, None)]
    assert [row.from_generation for row in found.ownership] == [2, 2]


def test_a_static_member_that_stayed_away_too_long_is_a_new_one() -> None:
    found = written(
        (joined("a-1", "a"), epoch(2), target("a-1", 0), computed(2), has("a-1", 2, 0)),
        (*left("a-1"), epoch(3)),
        (joined("a-2", "a"), epoch(4), target("a-2", 0), computed(4), has("a-2", 4, 0)),
    )

    assert changes(found) == [
        GenerationChange.REBALANCED,
        GenerationChange.EMPTIED,
        GenerationChange.REBALANCED,
    ]


def test_a_consumer_group_is_deleted() -> None:
    end = (TargetAssignmentMetadataTombstone(group="g"), ConsumerGroupMetadataTombstone(group="g"))
    found = written(FIRST, (*left("A"), epoch(3)), end, FIRST)

    assert changes(found) == [
        GenerationChange.REBALANCED,
        GenerationChange.EMPTIED,
        GenerationChange.DELETED,
        GenerationChange.REBALANCED,
    ]
    assert [one.incarnation for one in found.generations] == [0, 0, 0, 1]
    assert numbers(found) == [(0, 2, 0), (2, 3, 0), (0, 2, 0)]


def test_topics_without_a_name_go_by_their_id() -> None:
    unknown = bytes(15) + b"\xff"
    named = PartitionMetadataEntry(
        group="g",
        topics=(PartitionMetadataTopic(topic_id=ORDERS, topic="renamed", partition_count=2),),
    )
    found = written((joined("A"), named, epoch(1), target("A", 0, topic=unknown), computed(1)))

    (one,) = found.generations[0].members
    assert one.assigned == {"AAAAAAAAAAAAAAAAAAAA_w": (0,)}
    assert found.window is not None
    assert found.window.is_whole


def test_most_members_decide_on_the_servers_strategy() -> None:
    def asked(*assignors: str | None) -> str | None:
        names = [f"m{n}" for n in range(len(assignors))]
        asking = [joined(name, None, one) for name, one in zip(names, assignors, strict=True)]
        targets = [target(name, n) for n, name in enumerate(names)]
        return written((*asking, epoch(9), *targets, computed(9))).generations[0].strategy

    assert asked(None, None) == "uniform"
    assert asked("range", None, None) == "range"
    assert asked("range", "uniform", "uniform") == "uniform"


def test_a_consumer_group_whose_beginning_was_compacted_away() -> None:
    """What is left of it is its state: nothing is said about how it came about."""
    found = written(
        (joined("A"), joined("B")),
        (target("A", 0),),
        (epoch(8), target("B", 1), computed(8), has("B", 8, 1)),
        (has("A", 8, 0),),
        (*left("B"), epoch(9)),
        (target("A", 0, 1), computed(9), has("A", 9, 0, 1)),
    )

    first, second = find_rebalances(found.generations)
    assert (first.known_before, first.after.generation) == (False, 8)
    assert [one.assigned for one in first.after.members] == [{"orders": (0,)}, {"orders": (1,)}]
    assert (second.known_before, second.from_generation) == (True, 8)
    assert second.before is first.after
    assert found.window is not None
    assert (found.window.is_whole, found.window.at) == (False, 40_000)


def test_a_member_whose_subscription_is_missing_is_still_there() -> None:
    found = written((epoch(8), target("A", 0), computed(8), has("A", 8, 0)))

    (one,) = found.generations[0].members
    assert one.assigned == {"orders": (0,)}
    assert one.problem == "its subscription is not in the evidence"
    assert found.generations[0].kind is GroupType.CONSUMER


def test_a_group_without_members_has_no_window() -> None:
    assert read_history("g", [], {}) == GroupHistory(generations=[], ownership=[], window=None)
    assert told(GONE, GONE).generations == []
