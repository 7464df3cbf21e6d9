"""Generations, rebalances and owners of classic groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.engine.formats import consumer_protocol
from rota.engine.history.facts import GenerationChange, JournalRecord, PartitionOwnership
from rota.engine.history.generations import GroupHistory, read_history
from rota.engine.history.rebalances import find_rebalances
from rota.engine.model.journal_entry import JournalEntry
from rota.engine.model.topic import Partitions
from tests.pure.history.example_journal import (
    GONE,
    NEW,
    Partitioned,
    changes_of,
    generation_numbers,
    group_metadata_entry,
    member,
    ownership_times,
    read_entries,
)
from tests.support.examples import examples
from tests.support.journal_entries import entries


def test_a_group_is_made_works_and_is_deleted_and_made_again() -> None:
    found = read_entries(
        NEW,
        group_metadata_entry(1, member("A", {"t": [0]})),
        group_metadata_entry(2),
        GONE,
        NEW,
        group_metadata_entry(1, member("B")),
    )

    assert changes_of(found) == [
        GenerationChange.CREATED,
        GenerationChange.REBALANCED,
        GenerationChange.EMPTIED,
        GenerationChange.DELETED,
        GenerationChange.CREATED,
        GenerationChange.REBALANCED,
    ]
    assert [one.incarnation for one in found.generations] == [0, 0, 0, 0, 1, 1]
    assert generation_numbers(found) == [(0, 1, 0), (1, 2, 0), (0, 1, 0)]
    assert ownership_times(found) == [(0, "A", 1_000, 2_000)]


def test_nobody_owns_anything_once_a_group_is_deleted() -> None:
    found = read_entries(NEW, group_metadata_entry(1, member("A", {"t": [0]})), GONE)

    assert ownership_times(found) == [(0, "A", 1_000, 2_000)]


def test_before_kafka_4_a_group_begins_with_its_first_generation() -> None:
    found = find_rebalances(read_entries(group_metadata_entry(1, member("A"))).generations)

    assert [(step.known_before, step.from_generation) for step in found] == [(True, 0)]


def test_a_journal_may_begin_anywhere() -> None:
    found = find_rebalances(
        read_entries(
            group_metadata_entry(57, member("A")), group_metadata_entry(60, member("A"))
        ).generations
    )

    assert [(step.known_before, step.from_generation, step.unseen) for step in found] == [
        (False, None, 0),
        (True, 57, 2),
    ]
    assert found[0].before is None


def test_members_that_were_in_an_earlier_generation_are_not_new() -> None:
    (step,) = find_rebalances(
        read_entries(group_metadata_entry(1, member("A", generation=8))).generations
    )

    assert not step.known_before


def test_a_member_may_have_owned_something_in_generation_0() -> None:
    found = read_entries(
        group_metadata_entry(1, member("A", generation=0)),
        group_metadata_entry(2, member("A", generation=-1)),
    )

    assert [one.members[0].owned_generation for one in found.generations] == [0, None]


def test_a_topic_that_nobody_is_given_is_absent_unless_a_member_says_it_has_it() -> None:
    def absent(owned: Partitioned) -> frozenset[str]:
        first, second = (
            group_metadata_entry(number, member("A", {"t": [0]}, topics=("t", "u"), owned=had))
            for number, had in ((1, {}), (2, owned))
        )
        return find_rebalances(read_entries(first, second).generations)[0].absent

    assert absent({}) == {"u"}
    assert absent({"u": [0]}) == frozenset()


def test_skipped_numbers_are_attempts_not_seen() -> None:
    found = read_entries(
        NEW,
        group_metadata_entry(3, member("A")),
        group_metadata_entry(4, member("A")),
        group_metadata_entry(9),
    )

    assert generation_numbers(found) == [(0, 3, 2), (3, 4, 0), (4, 9, 4)]


def test_after_it_was_empty_a_group_goes_on_counting() -> None:
    found = read_entries(
        NEW,
        group_metadata_entry(1, member("A")),
        group_metadata_entry(2),
        group_metadata_entry(3, member("B")),
    )

    assert generation_numbers(found) == [(0, 1, 0), (1, 2, 0), (2, 3, 0)]
    assert find_rebalances(found.generations)[-1].before is None


def test_a_static_member_that_comes_back_is_no_rebalance() -> None:
    found = read_entries(
        NEW,
        group_metadata_entry(
            1, member("a-1", {"t": [0]}, group_instance_id="a"), member("B", {"t": [1]})
        ),
        group_metadata_entry(
            1, member("a-2", {"t": [0]}, group_instance_id="a"), member("B", {"t": [1]})
        ),
        group_metadata_entry(2, member("a-2", {"t": [0, 1]}, group_instance_id="a")),
    )

    assert changes_of(found)[2] is GenerationChange.REPLACED
    assert generation_numbers(found) == [(0, 1, 0), (1, 2, 0)]
    before = find_rebalances(found.generations)[-1].before
    assert before is not None
    assert [one.member_id for one in before.members] == ["B", "a-2"]
    assert ownership_times(found) == [
        (0, "a-1", 1_000, 2_000),
        (0, "a-2", 2_000, None),
        (1, "B", 1_000, 3_000),
        (1, "a-2", 3_000, None),
    ]


def test_a_number_that_comes_again_with_others_is_not_the_same_generation() -> None:
    found = read_entries(
        NEW, group_metadata_entry(1, member("A")), group_metadata_entry(1, member("B"))
    )

    assert [(one.incarnation, one.change) for one in found.generations][1:] == [
        (0, GenerationChange.REBALANCED),
        (1, GenerationChange.REBALANCED),
    ]


def test_numbers_that_fall_are_another_life() -> None:
    found = read_entries(
        group_metadata_entry(7, member("A", {"t": [0]})),
        group_metadata_entry(2, member("A", {"t": [0]})),
    )

    assert [one.incarnation for one in found.generations] == [0, 1]
    assert [step.known_before for step in find_rebalances(found.generations)] == [False, False]


def test_after_the_highest_number_comes_the_lowest() -> None:
    found = read_entries(
        group_metadata_entry(2**31 - 1, member("A")), group_metadata_entry(-(2**31), member("A"))
    )

    assert [one.incarnation for one in found.generations] == [0, 0]
    assert generation_numbers(found)[1] == (2**31 - 1, -(2**31), 0)


def test_time_may_run_backwards_the_order_is_the_journals() -> None:
    records = [
        JournalRecord(1, 5_000, group_metadata_entry(1, member("A", {"t": [0]}))),
        JournalRecord(2, 3_000, group_metadata_entry(2, member("B", {"t": [0]}))),
        JournalRecord(3, 9_000, group_metadata_entry(3, member("A", {"t": [0]}))),
    ]

    found = read_history("g", records, {})

    assert [one.at for one in found.generations] == [5_000, 3_000, 9_000]
    assert ownership_times(found) == [(0, "B", 5_000, 9_000), (0, "A", 9_000, None)]


def test_owners_keep_their_generations() -> None:
    found = read_entries(
        group_metadata_entry(1, member("A", {"t": [0, 1]})),
        group_metadata_entry(2, member("A", {"t": [0]}), member("B", {"t": [1]})),
        group_metadata_entry(5, member("A", {"t": [0]}), member("B", {"t": [1]})),
        group_metadata_entry(6, member("B", {"t": [0, 1]})),
    )

    assert [
        (row.partition, row.member_id, row.from_generation, row.to_generation)
        for row in found.ownership
    ] == [(0, "A", 1, 5), (0, "B", 6, 6), (1, "A", 1, 1), (1, "B", 2, 6)]


def test_an_owner_has_a_name_and_a_place() -> None:
    (row,) = read_entries(
        group_metadata_entry(1, member("A", {"t": [4]}, group_instance_id="a"))
    ).ownership

    assert row == PartitionOwnership(
        group="g",
        topic="t",
        partition=4,
        member_id="A",
        client_id="client of A",
        client_host="/10.0.0.1",
        group_instance_id="a",
        since=0,
        until=None,
        from_generation=1,
        to_generation=1,
    )


# cooperative rounds


def _handed_over(*, strategy: str, last: Partitioned) -> GroupHistory:
    """B joins and shall get partition 1 of A."""
    return read_entries(
        NEW,
        group_metadata_entry(1, member("A", {"t": [0, 1]}), strategy=strategy),
        group_metadata_entry(
            2,
            member("A", {"t": [0]}, owned={"t": [0, 1]}, generation=1),
            member("B", {}),
            strategy=strategy,
        ),
        group_metadata_entry(
            3,
            member("A", {"t": [0]}, owned={"t": [0]}, generation=2),
            member("B", last, generation=2),
            strategy=strategy,
        ),
    )


def test_a_round_that_only_takes_belongs_to_the_one_that_gives() -> None:
    found = _handed_over(strategy="cooperative-sticky", last={"t": [1]})

    assert [len(step.rounds) for step in find_rebalances(found.generations)] == [1, 2]
    assert generation_numbers(found) == [(0, 1, 0), (1, 3, 0)]
    assert ownership_times(found) == [
        (0, "A", 1_000, None),
        (1, "A", 1_000, 2_000),
        (1, "B", 3_000, None),
    ]


def test_a_custom_strategy_may_be_cooperative_too() -> None:
    found = _handed_over(strategy="my-own", last={"t": [1]})

    assert [len(step.rounds) for step in find_rebalances(found.generations)] == [1, 2]


def test_an_eager_strategy_has_no_rounds() -> None:
    found = _handed_over(strategy="range", last={"t": [1]})

    assert [len(step.rounds) for step in find_rebalances(found.generations)] == [1, 1, 1]


def test_what_nobody_gets_later_was_not_taken_to_be_given() -> None:
    """Its topic has fewer partitions now, or is gone."""
    found = _handed_over(strategy="cooperative-sticky", last={})

    assert [len(step.rounds) for step in find_rebalances(found.generations)] == [1, 1, 1]


def test_rounds_end_where_those_that_had_to_give_up_are_gone() -> None:
    strategy = "cooperative-sticky"
    found = read_entries(
        NEW,
        group_metadata_entry(1, member("A", {"t": [0, 1]}), strategy=strategy),
        group_metadata_entry(
            2,
            member("A", {"t": [0]}, owned={"t": [0, 1]}, generation=1),
            member("B", {}),
            strategy=strategy,
        ),
        group_metadata_entry(3, member("B", {"t": [0, 1]}, generation=2), strategy=strategy),
    )

    assert generation_numbers(found) == [(0, 1, 0), (1, 2, 0), (2, 3, 0)]


# bytes


def test_bytes_that_are_no_subscription_are_a_problem_of_that_member_alone() -> None:
    found = read_entries(
        group_metadata_entry(1, member("A", told=b"\x00\x03\x00"), member("B", {"t": [0]}))
    )

    bad, good = found.generations[0].members
    assert bad.problem is not None
    assert bad.problem.startswith("subscription")
    assert (bad.topics, bad.assigned) == ((), {})
    assert (good.problem, good.assigned) == (None, {"t": (0,)})


def test_bytes_that_are_no_assignment_are_a_problem() -> None:
    found = read_entries(group_metadata_entry(1, member("A", b"\x00\x00\xff")))

    (one,) = found.generations[0].members
    assert one.problem is not None
    assert one.problem.startswith("assignment")
    assert one.topics == ("t",)


def test_a_member_that_was_left_out_has_nothing_and_no_problem() -> None:
    (one,) = read_entries(group_metadata_entry(1, member("A"))).generations[0].members

    assert (one.assigned, one.problem) == ({}, None)


def test_sticky_members_say_what_they_own_in_java_and_in_kafka_python() -> None:
    owned = consumer_protocol.encode_sticky_user_data(Partitions.of({"t": [2, 1]}), 4)
    found = read_entries(
        group_metadata_entry(
            5,
            member("java", user_data=owned),
            member("python", user_data=b"\x00\x01" + owned),
            member("rubbish", user_data=b"\xff\xff\xff\xff\xff"),
            strategy="sticky",
        )
    )

    java, python, rubbish = found.generations[0].members
    assert (java.owned, java.owned_generation) == ({"t": (1, 2)}, 4)
    assert (python.owned, python.owned_generation) == ({"t": (1, 2)}, 4)
    assert python.library == "kafka-python"
    assert rubbish.owned == {}
    assert rubbish.problem is not None


def test_other_kinds_of_groups_are_kept_without_reading_their_bytes() -> None:
    worker = member("worker", b"\x01\x02", told=b"\x00\x01garbage")
    found = read_entries(group_metadata_entry(1, worker, strategy="v1", protocol_type="sr"))

    (one,) = found.generations
    assert (one.protocol_type, one.strategy) == ("sr", "v1")
    assert one.members[0].problem is None
    assert one.members[0].session_timeout == 45_000
    assert found.ownership == []
    assert len(find_rebalances(found.generations)) == 1


@given(
    told_bytes=st.binary(max_size=60),
    given_bytes=st.binary(max_size=60),
    user_data=st.binary(max_size=40),
    strategy=st.sampled_from(["range", "sticky", "cooperative-sticky", "stream", "x"]),
)
def test_no_bytes_stop_the_reading(
    told_bytes: bytes, given_bytes: bytes, user_data: bytes, strategy: str
) -> None:
    found = read_entries(
        group_metadata_entry(
            1, member("A", told=told_bytes), member("B", given_bytes), strategy=strategy
        ),
        group_metadata_entry(2, member("A", user_data=user_data), strategy=strategy),
    )

    assert [len(one.members) for one in found.generations] == [2, 1]


@examples(quick=25)
@given(
    entries=st.lists(entries, max_size=12),
    apart=st.sampled_from([1, 2]),
)
def test_no_entries_stop_the_reading(entries: list[JournalEntry], apart: int) -> None:
    found = read_entries(*entries, apart=apart)

    lives = [one.incarnation for one in found.generations]
    ends = [
        (step.after.incarnation, step.after.generation)
        for step in find_rebalances(found.generations)
    ]
    assert lives == sorted(lives)
    assert len(ends) == len(set(ends))
    assert all(row.until is None or row.since < row.until for row in found.ownership)
