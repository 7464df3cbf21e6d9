"""Names of policies, which are worth asking, and which was used."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.history.client_settings import format_duration
from rota.engine.history.facts import GroupType
from rota.engine.history.policies import (
    GroupPolicy,
    MembershipType,
    PolicyProtocol,
    find_used_policies,
    label_used_policies,
    list_alternatives,
    suggest_session_timeouts,
)
from rota.engine.history.restarts import find_restarts, list_membership_events
from tests.support.example_history import HistoryBuilder, generation, make_rebalance, member

NAMES = {
    "range": GroupPolicy(strategy="range"),
    "cooperative-sticky": GroupPolicy(
        strategy="cooperative-sticky", protocol=PolicyProtocol.COOPERATIVE
    ),
    "cooperative-sticky, eager": GroupPolicy(strategy="cooperative-sticky"),
    "cooperative-sticky, static 45s": GroupPolicy(
        strategy="cooperative-sticky",
        protocol=PolicyProtocol.COOPERATIVE,
        membership=MembershipType.STATIC,
        session_timeout=45_000,
    ),
    "sticky (exact), static 2min": GroupPolicy(
        strategy="sticky", solver="exact", membership=MembershipType.STATIC, session_timeout=120_000
    ),
    "range (other), partly static 6500ms": GroupPolicy(
        strategy="range", solver="other", membership=MembershipType.PARTLY, session_timeout=6_500
    ),
    "KIP-848 uniform": GroupPolicy(strategy="uniform", protocol=PolicyProtocol.CONSUMER),
    "KIP-848 range, static": GroupPolicy(
        strategy="range", protocol=PolicyProtocol.CONSUMER, membership=MembershipType.STATIC
    ),
    "com.example.Mine": GroupPolicy(strategy="com.example.Mine"),
}


@pytest.mark.parametrize("label", NAMES)
def test_a_policy_has_a_name(label: str) -> None:
    assert NAMES[label].label == label


POLICIES = st.builds(
    GroupPolicy,
    strategy=st.sampled_from(
        [
            "range",
            "sticky",
            "cooperative-sticky",
            "sticky (exact)",
            "range, static 45s",
            "KIP-848 x",
        ]
    ),
    membership=st.sampled_from([MembershipType.STATIC, MembershipType.PARTLY]),
    session_timeout=st.none() | st.integers(1, 1_800_000),
    solver=st.sampled_from(["kafka", "exact", "other"]),
)


@given(
    policy=POLICIES | POLICIES.map(lambda one: replace(one, session_timeout=45_000)), other=POLICIES
)
def test_two_policies_never_have_the_same_name(policy: GroupPolicy, other: GroupPolicy) -> None:
    dynamic = replace(other, membership=MembershipType.DYNAMIC, session_timeout=None)
    assert (policy.label == other.label) == (policy == other)
    assert policy.label != dynamic.label


@pytest.mark.parametrize("name", ["Mine (exact)", "Mine, static 45s", "KIP-848 mine"])
def test_a_strategy_that_is_named_like_a_policy_is_quoted(name: str) -> None:
    policy = GroupPolicy(strategy=name)
    assert policy.label == f'"{name}"'
    static = replace(policy, membership=MembershipType.STATIC, session_timeout=9_000)
    assert static.label == f'"{name}", static 9s'


def test_times_are_shown_as_people_say_them() -> None:
    shown = [format_duration(time) for time in (6_000, 60_000, 90_000, 120_000, 1_800_000)]
    assert shown == ["6s", "60s", "90s", "2min", "30min"]


def test_the_last_of_those_used_ends_the_name() -> None:
    held = {"t": (0, 1)}
    rounds = [
        generation(1, [member("a", held)]),
        generation(2, [member("a", held)], "roundrobin"),
        generation(3, [member("a", held)], "range"),
        generation(4, []),
    ]
    used = find_used_policies([make_rebalance(None, one) for one in rounds])
    assert label_used_policies(used) == "roundrobin, then range"
    assert used[-1] == GroupPolicy(strategy="range")


def test_the_kind_of_members_is_part_of_it() -> None:
    partly = generation(1, [member("s!a", session_timeout=9_000), member("b")])
    assert (
        label_used_policies(find_used_policies([make_rebalance(None, partly)]))
        == "range, partly static 9s"
    )
    modern = generation(
        2, [member("s!a", session_timeout=None)], "uniform", kind=GroupType.CONSUMER
    )
    assert (
        label_used_policies(find_used_policies([make_rebalance(None, modern)]))
        == "KIP-848 uniform, static"
    )


def test_a_group_that_nobody_came_back_to_has_no_use_for_static_members() -> None:
    history_builder = HistoryBuilder().at(0, "a").at(10, "a", "b")
    assert suggest_session_timeouts(history_builder.rebalances, []) == ()
    assert {
        choice.membership
        for choice in list_alternatives(find_used_policies(history_builder.rebalances), ())
    } == {MembershipType.DYNAMIC}


@pytest.mark.parametrize(
    ("away", "sessions"),
    [(20, (45_000,)), (45, (45_000,)), (50, (45_000, 60_000)), (400, (45_000, 600_000))],
)
def test_a_session_timeout_long_enough_for_the_restarts(
    away: int, sessions: tuple[int, ...]
) -> None:
    history_builder = HistoryBuilder().at(0, "a", "b").at(10, "b").at(10 + away, "a#2", "b")
    found = find_restarts(
        list_membership_events(history_builder.generations, history_builder.rebalances)
    )
    assert suggest_session_timeouts(history_builder.rebalances, found) == sessions


def test_every_strategy_is_worth_asking_but_the_one_in_use() -> None:
    used = (GroupPolicy(strategy="range"),)
    labels = [choice.label for choice in list_alternatives(used, (6_000,))]
    assert labels == [
        "roundrobin",
        "sticky",
        "cooperative-sticky",
        "KIP-848 uniform",
        "KIP-848 range",
        "range, static 6s",
        "roundrobin, static 6s",
        "sticky, static 6s",
        "cooperative-sticky, static 6s",
        # the broker takes none shorter
        "KIP-848 uniform, static 45s",
        "KIP-848 range, static 45s",
    ]


def test_a_group_that_rotas_solver_placed_would_be_so_under_other_policies() -> None:
    used = (GroupPolicy(strategy="sticky", solver="exact"),)
    labels = [choice.label for choice in list_alternatives(used, ())]
    assert "cooperative-sticky (exact)" in labels
    assert "sticky (exact)" not in labels
