"""``rota.assign``: what a plan says of a rebalance."""

from __future__ import annotations

import pickle
import random

import pytest

import rota
from rota.engine.history import timing
from rota.engine.history.heartbeats import HEARTBEAT_SLACK, Heartbeats
from rota.engine.plan import plan_rebalance
from rota.errors import InputError


def member(name: str, topics: str, **owned: tuple[int, ...]) -> rota.Member:
    return rota.Member(id=name, topics=topics.split(), owned=owned, generation=3)


PAIR = [member("C0", "t0 t1", t0=(0, 1), t1=(0, 1, 2)), member("C1", "t0 t1", t0=(2,))]


def test_the_public_view_of_a_plan() -> None:
    plan = rota.assign("sticky", partitions={"t0": 3, "t1": 3}, members=PAIR)
    assert plan.members == ("C0", "C1")
    assert plan.loads == {"C0": 3, "C1": 3}
    assert (plan.moved, plan.moves_needed, plan.needless) == (2, 2, 0)
    assert plan["C1"]["t0"][-1] == 2
    assert plan.to_dict()["C0"] == {t: list(p) for t, p in plan["C0"].items()}
    assert [plan.members[owner] for owner in plan.owners("t0")][2] == "C1"
    assert {move.source for move in plan.moves} == {"C0"}
    assert {move.to for move in plan.moves} == {"C1"}
    assert plan.revoked == 6
    assert plan.skipped_topics == ()
    assert dict(plan) == {m: plan[m] for m in plan.members}


def test_a_cooperative_plan_takes_away_first() -> None:
    plan = rota.assign("cooperative-sticky", {"t0": 3, "t1": 3}, PAIR)
    assert plan.protocol is rota.RebalanceProtocol.COOPERATIVE
    assert plan.loads == {"C0": 3, "C1": 1}
    assert plan.target_loads == {"C0": 3, "C1": 3}
    assert (plan.moved, plan.withheld, plan.revoked) == (2, 2, 2)
    assert {move.to for move in plan.moves} == {"C1"}


def test_a_list_that_runs_eager_forgets_what_members_owned() -> None:
    alone = rota.assign(
        "cooperative-sticky", {"t": 4}, [member("a", "t", t=(2, 3)), member("b", "t", t=(0, 1))]
    )
    listed = rota.assign(
        ["cooperative-sticky", "range"],
        {"t": 4},
        [member("a", "t", t=(2, 3)), member("b", "t", t=(0, 1))],
    )
    assert (alone.protocol, alone.moved) == (rota.RebalanceProtocol.COOPERATIVE, 0)
    assert (listed.protocol, listed.revoked) == (rota.RebalanceProtocol.EAGER, 4)
    assert listed.moved > 0
    assert listed.moves_needed == 0


def test_topics_without_metadata_are_skipped_and_named() -> None:
    plan = rota.assign("range", {"t": 1, "empty": 0}, [member("a", "t gone empty")])
    assert plan.skipped_topics == ("empty", "gone")
    assert plan.to_dict() == {"a": {"t": [0]}}
    assert any("gone" in note for note in plan.notes)


def test_dropped_claims_are_said() -> None:
    stale = rota.Member(id="a", topics=["t"], owned={"t": [0, 7], "gone": [1]}, generation=1)
    foreign = rota.Member(id="b", topics=["t"], owned={"u": [0]}, generation=1)
    other = rota.Member(id="c", topics=["u"])
    plan = rota.assign("sticky", {"t": 2, "u": 1}, [stale, foreign, other])
    said = " / ".join(plan.notes)
    assert "'a': claims on partitions that do not exist dropped: gone-1, t-7" in said
    assert "'b': claims on topics it no longer subscribes to dropped: u" in said


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: rota.assign("range", {"t": -1}, []), r"partitions\['t'\]: -1 is negative"),
        (lambda: rota.assign("range", {"t": 1.5}, []), "1.5 is not a whole number"),  # type: ignore[dict-item]
        (lambda: rota.assign("range", {"t": 1}, [member("a", "t")] * 2), "'a' is listed twice"),
        (lambda: rota.Member(id="a", topics="t0"), "topics must be a list of names, not 't0'"),
        (
            lambda: rota.assign("range", {"t": 2}, [], racks={"t": [("r",)]}),
            r"racks\['t'\]: a list of 2 lists of racks is needed",
        ),
        (
            lambda: rota.assign("range", {"t": 1}, [], racks={"u": [("r",)]}),
            r"racks\['u'\]: no such topic",
        ),
        (
            lambda: rota.assign("range", {"t": 1}, [], racks={"t": ["r1"]}),
            "is not a list of rack names",
        ),
        (lambda: rota.assign("range", {"t": 1}, [member("a", "t")]).owners("u"), "'u' is not part"),
        (
            lambda: rota.assign(
                "range",
                {"t": 1},
                [
                    rota.Member(id="a", topics=["t"], group_instance_id="s"),
                    rota.Member(id="b", topics=["t"], group_instance_id="s"),
                ],
            ),
            "group_instance_id 's' is used by 'a' and 'b'",
        ),
        (
            lambda: rota.Member(id="a", topics=["t"], owned={"t": ["x"]}),  # type: ignore[arg-type]
            "member 'a': owned",
        ),
        (lambda: rota.Member(id=1, topics=["t"]), "id must be text, not 1"),  # type: ignore[arg-type]
        (lambda: rota.Member(id="a", topics=["t"], rack=1), "rack must be text"),  # type: ignore[arg-type]
        (lambda: rota.Member(id="a", topics=None), "topics must be a list"),  # type: ignore[arg-type]
        (lambda: rota.Member(id="a", topics=["t"], generation=2**31), "is not a 32-bit number"),
        (lambda: rota.Member(id="a", topics=["t"], owned={"t": [0.5]}), "owned must be"),  # type: ignore[arg-type]
        (lambda: rota.assign("range", ["t"], []), "partitions must be {topic: count}"),  # type: ignore[arg-type]
        (lambda: rota.assign("range", {"t": 1}, [{"id": "a"}]), "must be rota.Member"),  # type: ignore[list-item]
        (
            lambda: rota.Member(id="a", topics=["t"], owned={"t": [2**40]}),
            "member 'a': owned",
        ),
    ],
)
def test_bad_input_is_named(wrong: object, said: str) -> None:
    assert callable(wrong)
    with pytest.raises(InputError, match=said):
        wrong()


def test_a_partition_withheld_and_given_back_is_not_moved() -> None:
    """B no longer subscribes, but holds t-0 until it is told to give it up."""
    group = [
        rota.Member(id="A", topics=["t"], owned={"t": [0]}, generation=1),
        rota.Member(id="B", topics=["u"], owned={"t": [0]}, generation=2),
    ]
    plan = rota.assign("cooperative-sticky", {"t": 1, "u": 1}, group)
    assert plan.to_dict() == {"A": {}, "B": {"u": [0]}}
    assert plan.target_dict() == {"A": {"t": [0]}, "B": {"u": [0]}}
    assert (plan.moved, plan.moves, plan.needless) == (0, (), 0)
    assert (plan.withheld, plan.revoked) == (1, 1)


def test_a_newer_claim_of_a_live_member_is_no_orphan() -> None:
    group = [rota.Member(id="a", topics=["t"], owned={"t": [0]}, generation=5)]
    gone = [rota.Member(id="z", topics=["t"], owned={"t": [0, 1], "x": [0]}, generation=1)]
    assert rota.assign("sticky", {"t": 3}, group, left=gone).orphaned == 1


def test_claims_in_conflict_are_said() -> None:
    group = [member("a", "t", t=(0, 1)), member("b", "t", t=(1, 2))]
    plan = rota.assign("sticky", {"t": 3}, group)
    assert "claimed by several in one generation, so no claim counts: t-1" in plan.notes


def test_many_members_with_dropped_claims_make_few_notes() -> None:
    group = [member(f"m{n}", "t", u=tuple(range(9))) for n in range(9)]
    plan = rota.assign("sticky", {"t": 3, "u": 9}, [*group, member("x", "u")])
    assert len(plan.notes) == 4
    assert plan.notes[-1].startswith("6 more members: claims on topics")


def test_the_time_budget() -> None:
    dice = random.Random(5)
    topics = {f"t{n}": 9 for n in range(12)}
    group = [
        rota.Member(
            id=f"m{n}",
            topics=dice.sample(sorted(topics), 6),
            owned={topic: range(9) for topic in dice.sample(sorted(topics), 2)},
            generation=n,
        )
        for n in range(12)
    ]
    hurried = rota.assign("sticky", topics, group, budget_ms=0)
    patient = rota.assign("sticky", topics, group, budget_ms=None)
    assert sorted(hurried.loads.values()) == sorted(patient.loads.values())
    assert any("stopped at the time budget" in note for note in hurried.notes)
    assert not any("budget" in note for note in patient.notes)
    assert hurried.moved >= patient.moved == patient.moves_needed
    with pytest.raises(InputError, match="budget_ms: '5s' is not a number of milliseconds"):
        rota.assign("sticky", topics, group, budget_ms="5s")  # type: ignore[arg-type]


def settled_group(count: int, *, static: bool = False) -> list[rota.Member]:
    """Returns members that own the partitions of topic t, one each."""
    return [
        rota.Member(
            id=f"m{n}",
            topics=["t"],
            owned={"t": [n]},
            generation=1,
            group_instance_id=f"s{n}" if static else None,
        )
        for n in range(count)
    ]


#: From the end of the join phase until a member reads again.
ASSIGN = timing.DEFAULT_SYNC_TIME + timing.RESPONSE_TIME


def test_downtime_when_a_member_leaves_an_eager_group() -> None:
    """Of three heartbeats that are spread over 3 s, the last one is due after 2.25 s on average."""
    *rest, gone = settled_group(4)
    plan = rota.assign("sticky", {"t": 4}, rest, left=[gone])
    assert (plan.revoked, plan.orphaned) == (3, 1)
    assert plan.downtime_ms == 3 * (2_250 - 1_500 + ASSIGN) + 2_250 + ASSIGN
    assert rota.assign("cooperative-sticky", {"t": 4}, rest, left=[gone]).downtime_ms == 2_275


def test_nobody_waits_for_anybody_else_in_a_group_of_one() -> None:
    [last, gone] = settled_group(2)
    plan = rota.assign("range", {"t": 2}, [last], left=[gone])
    assert plan.downtime_ms == ASSIGN + (1_500 + ASSIGN)  # its heartbeat, on average
    assert rota.assign("range", {"t": 1}, [last]).downtime_ms == ASSIGN
    assert rota.assign("range", {"t": 2}, [], left=[last, gone]).downtime_ms == 0
    first = rota.Member(id="new", topics=["t"])
    assert rota.assign("range", {"t": 1}, [first]).downtime_ms == 0
    replaced = rota.assign("range", {"t": 1}, [first], left=[last])
    assert replaced.downtime_ms == timing.INITIAL_REBALANCE_DELAY + ASSIGN


def test_a_member_that_starts_a_rebalance_waits_for_all_others() -> None:
    group = settled_group(4)
    caller, called = 2_250 + ASSIGN, 750 + ASSIGN
    assert rota.assign("sticky", {"t": 5}, group).downtime_ms == caller + 3 * called
    assert rota.assign("cooperative-sticky", {"t": 5}, group).downtime_ms == 0
    assert not rota.assign("sticky", {"t": 5}, group).changes_members
    joined = [*group, rota.Member(id="new", topics=["t"])]
    assert rota.assign("sticky", {"t": 4}, joined).downtime_ms == 4 * (900 + ASSIGN)


def test_downtime_of_moved_partitions() -> None:
    group = [rota.Member(id="a", topics=["t"], owned={"t": range(4)}, generation=1)]
    plan = rota.assign("cooperative-sticky", {"t": 4}, [*group, rota.Member(id="b", topics=["t"])])
    assert (plan.moved, plan.revoked) == (2, 2)
    assert plan.downtime_ms == 2 * (3_020 + ASSIGN)


def test_a_static_member_that_leaves_is_noticed_when_its_session_ends() -> None:
    *rest, gone = settled_group(4, static=True)
    short = timing.GroupTiming(Heartbeats(2_000), session_timeout=10_000)
    assert short.absent_time == 9_000
    plan = plan_rebalance("cooperative-sticky", {"t": 4}, rest, left=[gone], timing=short)
    assert plan.downtime_ms == 9_000 + 1_500 + ASSIGN
    assert plan.restart_downtime_ms == 5_000  # after ten seconds its session would have ended
    # a rebalance in between waits for it
    joined = [*rest, rota.Member(id="new", topics=["t"])]
    plan = plan_rebalance("range", {"t": 4}, joined, left=[gone], timing=short)
    waited = 9_000 - 2_000 - HEARTBEAT_SLACK
    assert plan.downtime_ms == 3 * (500 + waited + ASSIGN) + 9_000 + ASSIGN
    assert rota.assign("range", {"t": 4}, rest).restart_downtime_ms is None


def test_heartbeats_after_a_rebalance_are_nearly_simultaneous() -> None:
    *rest, gone = settled_group(12)
    waits = {}
    for seconds in (1, 58, 3_600):
        times = timing.GroupTiming(stable_time=seconds * 1_000)
        plan = plan_rebalance("sticky", {"t": 12}, rest, left=[gone], timing=times)
        waits[seconds] = plan.downtime_ms
    assert waits[1] < waits[58] < waits[3_600]
    assert 2_000 < timing.GroupTiming().join_time(11, 1_000) < 2_020
    assert timing.GroupTiming().join_time(11) == 2_750
    assert timing.GroupTiming().join_time(1, 7_200_000) == 1_500


def test_partitions_without_a_new_owner_have_no_expected_downtime() -> None:
    gone = rota.Member(id="z", topics=["u"], owned={"u": [0, 1]}, generation=1)
    assert rota.assign("range", {"t": 0, "u": 2}, settled_group(1), left=[gone]).downtime_ms == 0


def test_racks_may_come_from_anywhere() -> None:
    group = [
        rota.Member(id="a", topics=["t"], rack="x"),
        rota.Member(id="b", topics=["t"], rack="y"),
    ]
    plan = rota.assign("sticky", {"t": 2}, group, racks={"t": [iter(["y"]), iter(["x"])]})
    assert plan.to_dict() == {"a": {"t": [1]}, "b": {"t": [0]}}
    assert plan.local == 2


def test_a_plan_survives_a_process_boundary() -> None:
    plan = rota.assign("cooperative-sticky", {"t0": 3, "t1": 3}, PAIR)
    again = pickle.loads(pickle.dumps(plan))
    assert (again.to_dict(), again.moves, again.moves_needed) == (plan.to_dict(), plan.moves, 2)


def test_an_empty_group_has_an_empty_plan() -> None:
    plan = rota.assign("sticky", {"t": 3}, [])
    assert (dict(plan), plan.moved, plan.moves_needed, plan.idle) == ({}, 0, 0, ())


def test_every_public_name_is_there() -> None:
    assert {name for name in rota.__all__ if getattr(rota, name) is None} == set()
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = rota.nonsense  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="^rota has no Producer: use kafka-python's or conf"):
        _ = rota.Producer  # type: ignore[attr-defined]
