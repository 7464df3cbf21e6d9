"""What a rebalance cost, counted on cases that a person can check."""

from __future__ import annotations

import pytest

from rota.engine.history.facts import GroupType, RebalanceCost
from rota.engine.history.rebalances import (
    compute_cost,
    find_rebalances,
    gave_up_everything,
    rebalance_protocol,
)
from tests.support.example_history import generation, make_rebalance, member


def range_of(low: int, high: int) -> dict[str, tuple[int, ...]]:
    return {"t": tuple(range(low, high))}


def test_a_member_joins_a_range_group() -> None:
    before = generation(1, [member("a", range_of(0, 6)), member("b", range_of(6, 12))])
    after = generation(
        2,
        [member("a", range_of(0, 4)), member("b", range_of(4, 8)), member("c", range_of(8, 12))],
    )
    # b gives four to c and takes two of a: six moved, four had to
    assert compute_cost(make_rebalance(before, after)) == RebalanceCost(
        moved=6, moves_needed=4, orphaned=0, revoked=12, idle_members=0, most=4, least=4
    )
    assert rebalance_protocol(make_rebalance(before, after)) == "eager"


def test_what_a_gone_member_had_is_orphaned_and_neither_moved_nor_revoked() -> None:
    before = generation(1, [member("a", range_of(0, 6)), member("b", range_of(6, 12))])
    after = generation(2, [member("a", range_of(0, 12))])
    assert compute_cost(make_rebalance(before, after)) == RebalanceCost(
        moved=0, moves_needed=0, orphaned=6, revoked=6, idle_members=0, most=12, least=12
    )


def test_the_first_generation_costs_nothing() -> None:
    found = compute_cost(
        make_rebalance(None, generation(1, [member("a", range_of(0, 2)), member("b")]))
    )
    assert found == RebalanceCost(
        moved=0, moves_needed=0, orphaned=0, revoked=0, idle_members=1, most=2, least=0
    )


def test_an_empty_group_has_nobody_idle() -> None:
    found = compute_cost(
        make_rebalance(generation(1, [member("a", range_of(0, 2))]), generation(2, []))
    )
    assert found == RebalanceCost(
        moved=0, moves_needed=0, orphaned=2, revoked=0, idle_members=0, most=0, least=0
    )


def test_a_static_member_is_known_by_its_static_id() -> None:
    before = generation(1, [member("s!old", range_of(0, 6)), member("b", range_of(6, 12))])
    after = generation(2, [member("s!new", range_of(0, 6)), member("b", range_of(6, 12))])
    assert compute_cost(make_rebalance(before, after)).orphaned == 0
    assert compute_cost(make_rebalance(before, after)).moved == 0


def test_what_a_member_no_longer_wants_does_not_move_but_is_given_up() -> None:
    topics = ("t", "u")
    before = generation(
        1,
        [member("a", {"t": (0,)}, topics=topics), member("b", {"u": (0,)}, topics=topics)],
        strategy="cooperative-sticky",
    )
    after = generation(
        2,
        [
            member("a", {"u": (0,)}, topics=("u",)),
            member("b", {"t": (0,)}, topics=topics, owned={"u": (0,)}, owned_generation=1),
        ],
        strategy="cooperative-sticky",
    )
    found = compute_cost(make_rebalance(before, after))
    # t-0 of a, which has left the topic, and u-0 of b
    assert (found.moved, found.revoked) == (1, 2)


def test_both_rounds_of_a_cooperative_rebalance_are_counted_once() -> None:
    name = "cooperative-sticky"
    before = generation(1, [member("a", range_of(0, 4))], name)
    first = generation(
        2,
        [member("a", range_of(0, 2), owned=range_of(0, 4), owned_generation=1), member("b")],
        name,
    )
    second = generation(
        3,
        [
            member("a", range_of(0, 2), owned=range_of(0, 2), owned_generation=2),
            member("b", range_of(2, 4), owned_generation=2),
        ],
        name,
    )
    taken = make_rebalance(before, first, second)
    assert compute_cost(taken) == RebalanceCost(
        moved=2, moves_needed=2, orphaned=0, revoked=2, idle_members=0, most=2, least=2
    )
    assert rebalance_protocol(taken) == "cooperative"


def test_what_is_taken_and_not_yet_given_has_moved() -> None:
    """Whoever gets it: the evidence ends between the two rounds."""
    before = generation(1, [member("a", range_of(0, 4))], "cooperative-sticky")
    first = generation(
        2,
        [member("a", range_of(0, 2), owned=range_of(0, 4), owned_generation=1), member("b")],
        "cooperative-sticky",
    )
    found = compute_cost(make_rebalance(before, first))
    assert (found.moved, found.moves_needed, found.revoked) == (2, 2, 2)


def test_a_deleted_topic_has_not_moved() -> None:
    """The next generation, to which its owner comes without it, does not give it out either."""
    topics = ("t", "u")
    had, kept = {"t": (0,), "u": (0,)}, {"t": (0,)}
    other = member("b", {"t": (1,)}, topics=topics, owned={"t": (1,)}, owned_generation=1)
    told = [
        generation(number, [member("a", given, topics=topics, owned=owned), other], name)
        for name in ["cooperative-sticky"]
        for number, owned, given in [(1, had, had), (2, had, kept), (3, kept, kept)]
    ]
    first, second, third = map(compute_cost, find_rebalances(told))
    assert (first.moved, second.moved, third.moved) == (0, 0, 0)
    assert (second.moves_needed, second.revoked) == (0, 1)
    # as long as nothing has followed, it may be on its way
    assert compute_cost(find_rebalances(told[:2])[-1]).moved == 1


@pytest.mark.parametrize(("strategy", "moved"), [("sticky", 2), ("cooperative-sticky", 3)])
def test_what_an_eager_rebalance_gives_nobody_has_not_moved(strategy: str, moved: int) -> None:
    """The assignment of b cannot be read, so that nobody is seen to own t-3. Only a cooperative
    round takes a partition from its owner before another member gets it.
    """
    before = generation(1, [member("a", range_of(0, 6))], strategy)
    after = generation(
        2,
        [
            member("a", range_of(0, 3), owned=range_of(0, 6), owned_generation=1),
            member("b", problem="assignment: 2 bytes needed, 0 left"),
            member("c", range_of(4, 6)),
        ],
        strategy,
    )
    assert compute_cost(make_rebalance(before, after)).moved == moved


@pytest.mark.parametrize(("told", "revoked"), [(1, 4), (None, 2)])
def test_a_cooperative_strategy_beside_an_eager_one_revokes_everything(
    told: int | None, revoked: int
) -> None:
    """A member that says it owns nothing in the generation in which it did has given it up; a
    static one that is down says nothing at all.
    """
    before = generation(1, [member("s!a", range_of(0, 4))], "cooperative-sticky")
    after = generation(
        2,
        [member("s!a", range_of(0, 2), owned_generation=told), member("b", range_of(2, 4))],
        "cooperative-sticky",
    )
    assert compute_cost(make_rebalance(before, after)).revoked == revoked
    assert rebalance_protocol(make_rebalance(before, after)) == ("eager" if told else "cooperative")


def test_a_consumer_group_revokes_only_what_changes_hands() -> None:
    fields = {"kind": GroupType.CONSUMER}
    before = generation(2, [member("a", range_of(0, 4))], "uniform", **fields)
    after = generation(
        3, [member("a", range_of(0, 2)), member("b", range_of(2, 4))], "uniform", **fields
    )
    assert compute_cost(make_rebalance(before, after)).revoked == 2
    assert rebalance_protocol(make_rebalance(before, after)) == "consumer"


def test_the_fewest_moves_heed_subscriptions() -> None:
    before = generation(
        1,
        [
            member("a", {"t": (0, 1), "u": (0, 1)}, topics=("t", "u")),
            member("b", {"t": (2, 3)}, topics=("t",)),
        ],
        "sticky",
    )
    after = generation(
        2,
        [
            member("a", {"u": (0, 1)}, topics=("t", "u")),
            member("b", {"t": (0, 1)}, topics=("t",)),
            member("c", {"t": (2, 3)}, topics=("t",)),
        ],
        "sticky",
    )
    found = compute_cost(make_rebalance(before, after))
    assert (found.moved, found.moves_needed) == (4, 2)


@pytest.mark.parametrize(("said_in", "eagerly"), [(4, False), (5, True)])
def test_a_static_member_that_is_down_gave_nothing_up(said_in: int, eagerly: bool) -> None:
    """What it said before the last generation is not about that one."""
    static = member("s!pod", owned_generation=said_in)
    before, after = (
        generation(number, [static], strategy="cooperative-sticky") for number in (5, 6)
    )
    assert gave_up_everything(before, after, static) is eagerly
