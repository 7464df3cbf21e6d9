"""Who went and came back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rota.engine.history.facts import RebalanceCause
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.restarts import MemberRestart, find_restarts, list_membership_events
from tests.support.example_history import HistoryBuilder


def found(history_builder: HistoryBuilder) -> list[MemberRestart]:
    return find_restarts(
        list_membership_events(history_builder.generations, history_builder.rebalances)
    )


def restart_pairs(history_builder: HistoryBuilder) -> list[tuple[str, str, int]]:
    return [(one.old_member_id, one.new_member_id, one.downtime) for one in found(history_builder)]


def test_by_client_id_and_host() -> None:
    history_builder = HistoryBuilder().at(0, "a", "b").at(10, "b").at(30, "a#2", "b")
    assert restart_pairs(history_builder) == [("a", "a#2", 20_000)]


def test_within_one_rebalance() -> None:
    assert restart_pairs(HistoryBuilder().at(0, "a", "b").at(10, "a#2", "b")) == [("a", "a#2", 0)]


def test_a_name_that_others_have_too_says_nothing() -> None:
    history_builder = HistoryBuilder().at(0, "a", "a#2", "a#3").at(10, "a#3").at(30, "a#3", "a#4")
    assert restart_pairs(history_builder) == []


def test_a_static_id_counts_even_where_the_client_id_changed() -> None:
    history_builder = HistoryBuilder().at(0, "s!a", "b").at(60, "b").at(70, "b", "s!z")
    # it was silent for its session timeout before it was missed
    assert restart_pairs(history_builder) == [("s!a", "s!z", 55_000)]


def test_a_silent_member_was_gone_a_session_timeout_earlier() -> None:
    history_builder = HistoryBuilder().at(0, "a", "b").at(60, "b").at(70, "a#2", "b")
    history_builder.causes = {2: RebalanceCause.SESSION_TIMEOUT}
    events = list_membership_events(
        history_builder.generations, history_builder.rebalances, history_builder.downtime.events
    )
    # called to join 1.5 s before the record, and it stopped 1.5 s after its last heartbeat; the
    # rebalance of its return began 1.5 s before its record
    assert [one.downtime for one in find_restarts(events)] == [55_000 - 1_500]


def test_half_an_hour_is_too_long() -> None:
    assert restart_pairs(HistoryBuilder().at(0, "a", "b").at(10, "b").at(1_900, "a#2", "b")) == []


def test_strangers_one_after_the_other_are_a_rolling_deploy() -> None:
    history_builder = (
        HistoryBuilder()
        .at(0, "a", "b", "c")
        .at(10, "b", "c")
        .at(15, "b", "c", "x")
        .at(60, "c", "x")
    )
    history_builder.at(65, "c", "x", "y")
    assert restart_pairs(history_builder) == [("a", "x", 5_000), ("b", "y", 5_000)]
    assert not any(one.is_matched_by_name for one in found(history_builder))


@pytest.mark.parametrize("begin", ["app", "job"])
def test_members_of_another_application_replace_nobody(begin: str) -> None:
    first, second = f"{begin}-4", f"{begin}-5"
    history_builder = (
        HistoryBuilder()
        .at(0, "app-1", "app-2", "app-3")
        .at(10, "app-2", "app-3")
        .at(15, "app-2", "app-3", first)
        .at(60, "app-3", first)
        .at(65, "app-3", first, second)
    )
    pairs = [("app-1", first, 5_000), ("app-2", second, 5_000)]
    # the first of them may be one of a kind, but one restart is no rolling deploy
    assert restart_pairs(history_builder) == (pairs if begin == "app" else [])


def test_one_that_goes_and_another_that_comes_are_no_deploy() -> None:
    assert (
        restart_pairs(HistoryBuilder().at(0, "a", "b", "c").at(10, "b", "c").at(15, "b", "c", "x"))
        == []
    )


def test_lives_do_not_mix() -> None:
    first = HistoryBuilder().at(0, "a", "b").at(10, "b")
    second = replace(HistoryBuilder().at(20, "a#2").generations[0], incarnation=1, offset=9)
    told = [*first.generations, second]
    assert find_restarts(list_membership_events(told, find_rebalances(told))) == []
