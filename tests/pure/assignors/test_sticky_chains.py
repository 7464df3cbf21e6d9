"""The series of rebalances of Kafka's own tests of its sticky strategies, told again for Rota."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from tests.support.sticky_group import (
    Group,
    every_rack_setting,
    every_strategy,
    opposite_moves,
    parse_partitions,
    with_racks,
)


@every_strategy
@every_rack_setting
class TestChains:
    def test_a_member_joins_and_the_first_leaves(self, strategy: str, setting: str) -> None:
        alone = with_racks(Group(strategy=strategy, topics={"t": 3}, members={"c1": "t"}), setting)
        both = alone.then(members={"c1": "t", "c2": "t"})
        assert both.settled() == {"c1": "t-0 t-1", "c2": "t-2"}
        assert both.withheld() == ("t-2" if strategy == "cooperative-sticky" else "")
        last = both.then(members={"c2": "t"})
        assert last.settled() == {"c2": "t-0 t-1 t-2"}
        assert last.withheld() == ""

    def test_each_topic_stays_even_while_members_come_and_go(
        self, strategy: str, setting: str
    ) -> None:
        both = "t1 t2"
        group = Group(strategy=strategy, topics={"t1": 12, "t2": 12}, members={"c1": both})
        group = with_racks(group, setting)
        for members, share in (("c1 c2", 6), ("c1 c2 c3 c4", 3), ("c3 c4", 6)):
            group = group.then(members=dict.fromkeys(members.split(), both))
            for have in group.settled().values():
                topics = [topic for topic, _ in parse_partitions(have)]
                assert (topics.count("t1"), topics.count("t2")) == (share, share)

    def test_two_members_join_and_two_leave(self, strategy: str, setting: str) -> None:
        both = "t1 t2"
        two = Group(strategy=strategy, topics={"t1": 3, "t2": 4}, members={"c1": both, "c2": both})
        two = with_racks(two, setting)
        assert two.settled() == {"c1": "t1-0 t1-2 t2-1 t2-3", "c2": "t1-1 t2-0 t2-2"}
        four = two.then(members=dict.fromkeys(("c1", "c2", "c3", "c4"), both))
        assert four.rebalance()[1] == {
            "c1": "t1-0 t2-1",
            "c2": "t1-1 t2-0",
            "c3": "t1-2 t2-3",
            "c4": "t2-2",
        }
        taken = "t1-2 t2-2 t2-3" if strategy == "cooperative-sticky" else ""
        assert four.withheld() == taken
        left = four.then(members={"c3": both, "c4": both})
        assert left.settled() == {"c3": "t1-0 t1-2 t2-1 t2-3", "c4": "t1-1 t2-0 t2-2"}

    def test_where_round_robin_does_poorly(self, strategy: str, setting: str) -> None:
        wide, narrow = "t1 t2 t3 t4 t5", "t1 t3 t5"
        group = Group(
            strategy=strategy,
            topics={"t1": 2, "t2": 1, "t3": 2, "t4": 1, "t5": 2},
            members={"c1": wide, "c2": narrow, "c3": narrow, "c4": wide},
        )
        assert with_racks(group, setting).loads() == [2, 2, 2, 2]

    def test_a_topic_is_added_and_another_removed(self, strategy: str, setting: str) -> None:
        one = Group(strategy=strategy, topics={"t": 3}, members={"c1": "t", "c2": "t"})
        one = with_racks(one, setting)
        first = one.settled()
        assert sorted(one.loads()) == [1, 2]
        two = one.then(topics={"t": 3, "t2": 3}, members={"c1": "t t2", "c2": "t t2"}, replicas={})
        second = two.settled()
        assert two.loads() == [3, 3]
        assert all(set(first[m].split()) <= set(second[m].split()) for m in first)
        three = two.then(topics={"t2": 3}, members={"c1": "t2", "c2": "t2"})
        third = three.settled()
        assert sorted(three.loads()) == [1, 2]
        assert all(set(third[m].split()) <= set(second[m].split()) for m in third)

    def test_one_of_nineteen_growing_subscriptions_leaves(
        self, strategy: str, setting: str
    ) -> None:
        topics = {f"t{n:02}": n for n in range(1, 20)}
        members = {f"c{n:02}": " ".join(list(topics)[:n]) for n in range(1, 20)}
        group = with_racks(Group(strategy=strategy, topics=topics, members=members), setting)
        before = group.settled()
        members = {m: listed for m, listed in members.items() if m != "c10"}
        after = group.then(members=members)
        assert not opposite_moves(before, after.settled())

    def test_a_tenth_member_joins(self, strategy: str, setting: str) -> None:
        members = {f"c{n:02}": "t" for n in range(1, 10)}
        group = with_racks(Group(strategy=strategy, topics={"t": 20}, members=members), setting)
        assert sorted(group.loads()) == [2] * 7 + [3] * 2
        assert group.then(members={**members, "c10": "t"}).loads() == [2] * 10

    def test_one_of_eight_equal_members_leaves(self, strategy: str, setting: str) -> None:
        topics = {f"t{n:02}": n for n in range(1, 15)}
        members = {f"c{n}": " ".join(topics) for n in range(1, 9)}
        group = with_racks(Group(strategy=strategy, topics=topics, members=members), setting)
        before = group.settled()
        members = {m: listed for m, listed in members.items() if m != "c5"}
        left = group.then(members=members)
        assert left.withheld() == ""
        assert left.loads() == [15] * 7
        assert all(set(before[m].split()) <= set(left.settled()[m].split()) for m in members)

    def test_a_member_begins_to_subscribe(self, strategy: str, setting: str) -> None:
        topics = {f"t{n}": 1 for n in range(1, 5)}
        members = {"c0": "", "c1": "t1", "c2": "t2 t3 t4"}
        group = with_racks(Group(strategy=strategy, topics=topics, members=members), setting)
        assert group.loads() == [0, 1, 3]
        assert sum(group.then(members={**members, "c0": "t1"}).loads()) == 4

    def test_owned_partitions_move_where_that_evens_loads(
        self, strategy: str, setting: str
    ) -> None:
        group = Group(
            strategy=strategy,
            topics={f"t{n}": 1 for n in range(1, 7)},
            members={"c1": "t1 t2", "c2": "t1 t2 t3 t4", "c3": "t2 t3 t4 t5 t6"},
            owned={"c1": "t1-0", "c2": "t2-0 t3-0", "c3": "t4-0 t5-0 t6-0"},
        )
        assert with_racks(group, setting).loads() == [1, 2, 3]

    def test_the_others_keep_theirs_when_the_leader_leaves(
        self, strategy: str, setting: str
    ) -> None:
        members = {f"c{n}": "t" for n in range(1, 5)}
        group = with_racks(Group(strategy=strategy, topics={"t": 3}, members=members), setting)
        before = group.settled()
        members = {m: listed for m, listed in members.items() if m != "c1"}
        after = group.then(members=members)
        assert after.loads() == [1, 1, 1]
        assert all(before[m] in {"", after.settled()[m]} for m in members)

    def test_a_subscribed_topic_is_deleted(self, strategy: str, setting: str) -> None:
        group = Group(strategy=strategy, topics={"t1": 1, "t3": 100}, members={"c": "t1 t2 t3"})
        assert with_racks(group, setting).loads() == [101]

    def test_the_only_subscribed_topic_is_deleted(self, strategy: str, setting: str) -> None:
        group = with_racks(Group(strategy=strategy, topics={"t": 3}, members={"c": "t"}), setting)
        assert group.then(topics={}, replicas={}).settled() == {"c": ""}


@every_strategy
def test_random_subscriptions_change(strategy: str) -> None:
    for seed in range(25):
        random = Random(seed)
        topics = {f"t{n:02}": n + 1 for n in range(random.randint(10, 20))}
        ids = [f"c{n:02}" for n in range(random.randint(20, 40))]

        def subscribed(random: Random = random, topics: dict[str, int] = topics) -> str:
            return " ".join(sorted(random.sample(list(topics), random.randint(0, len(topics)))))

        group = Group(strategy=strategy, topics=topics, members={m: subscribed() for m in ids})
        named_by_all = {t for listed in group.members.values() for t in listed.split()}
        assert sum(group.loads()) == sum(topics[t] for t in named_by_all), f"seed {seed}"
        before = group.settled()
        after = group.then(members={m: subscribed() for m in ids})
        kept = {
            m: " ".join(p for p in have.split() if p.rpartition("-")[0] in after.members[m].split())
            for m, have in before.items()
        }
        assert not opposite_moves(kept, after.rebalance()[1]), f"seed {seed}"


@every_strategy
def test_fifty_of_two_hundred_leave(strategy: str) -> None:
    random = Random(7)
    topics = {f"t{n:02}": random.randint(1, 10) for n in range(40)}
    members = {
        f"c{n:03}": " ".join({random.choice(list(topics)) for _ in range(random.randint(0, 19))})
        for n in range(200)
    }
    group = Group(strategy=strategy, topics=topics, members=members)
    before = group.settled()
    stay = {m: members[m] for m in random.sample(sorted(members), 150)}
    assert not opposite_moves(before, group.then(members=stay).rebalance()[1])


@every_strategy
@pytest.mark.parametrize("generations", list(permutations((1, 2, 3))))
def test_one_partition_claimed_in_three_generations(
    strategy: str, generations: tuple[int, int, int]
) -> None:
    group = Group(
        strategy=strategy,
        topics={"t": 6, "t1": 1},
        members={"c1": "t", "c2": "t", "c3": "t", "c4": "t1"},
        owned={"c1": "t-0 t-2", "c2": "t-1 t-2 t-3", "c3": "t-2 t-4 t-5", "c4": "t1-0"},
        generations={**dict(zip(("c1", "c2", "c3"), generations, strict=True)), "c4": 2},
    )
    assert group.loads() == [2, 2, 2, 1]


@every_strategy
@pytest.mark.parametrize("equal", [True, False])
class TestGenerations:
    """A member comes back with what it owned two rebalances ago."""

    def test_one_returns(self, strategy: str, equal: bool) -> None:
        every, second = "t t2", "t t2" if equal else "t"
        members = {"c1": every, "c2": second, "c3": every}
        three = Group(strategy=strategy, topics={"t": 6, "t2": 6}, members=members)
        first = three.settled()
        assert three.loads() == [4, 4, 4]
        two = three.then(members={"c1": every, "c2": second})
        assert two.loads() == [6, 6]
        assert set(first["c2"].split()) <= set(two.settled()["c2"].split())
        back = two.then(
            members={"c2": second, "c3": every},
            owned={"c2": two.settled()["c2"], "c3": first["c3"]},
            generations={"c2": 2, "c3": 1},
        )
        assert back.loads() == [6, 6]

    def test_two_return(self, strategy: str, equal: bool) -> None:
        every = "t t2 t3"
        one, third = (every, every) if equal else ("t", "t t2")
        topics = {"t": 4, "t2": 4, "t3": 4}
        members = {"c1": one, "c2": every, "c3": third}
        three = Group(strategy=strategy, topics=topics, members=members)
        first = three.settled()
        alone = three.then(members={"c2": every})
        assert alone.loads() == [12]
        back = alone.then(
            members=members,
            owned={"c1": first["c1"], "c2": alone.settled()["c2"], "c3": first["c3"]},
            generations={"c1": 1, "c2": 2, "c3": 1},
        )
        assert back.loads() == [4, 4, 4]

    def test_claims_of_an_older_generation_conflict(self, strategy: str, equal: bool) -> None:
        every = "t t2 t3"
        one, second = (every, every) if equal else ("t", "t t2")
        owned = {
            "c1": "t-0 t-1 t-2 t2-2 t2-3 t3-0" if equal else "t-0 t-1 t-2 t-3",
            "c2": "t-0 t-1 t2-0 t2-1 t2-2 t2-3",
            "c3": "t-2 t-3 t3-0 t3-1 t3-2 t3-3",
        }
        group = Group(
            strategy=strategy,
            topics={"t": 4, "t2": 4, "t3": 4},
            members={"c1": one, "c2": second, "c3": every},
            owned=owned,
            generations={"c1": 1, "c2": 2, "c3": 2},
        )
        _, target = group.rebalance()
        assert group.loads() == [4, 4, 4]
        assert all(set(target[m].split()) <= set(owned[m].split()) for m in ("c2", "c3"))
