"""Who would have owned what under the advised policy."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rota.engine.history.advice import AdviceEvidence, PolicyEvaluation, advise_group
from rota.engine.history.downtime import sum_downtime
from rota.engine.history.facts import (
    CHANGE,
    KEEP,
    Advice,
    AdvisedOwnership,
    GroupType,
    PartitionOwnership,
)
from rota.engine.history.policies import MembershipType
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.whatif import (
    evaluate_policies,
    list_advised_ownership,
    reproduce_rebalances,
)
from tests.support import first_recording
from tests.support.example_history import (
    NOT_MEASURED,
    START,
    HistoryBuilder,
    measure_downtime,
)
from tests.support.policies import policy_of

TOPIC_IDS = {name: topic_id for topic_id, name in first_recording.topic_names().items()}


def advice(policy: str, verdict: str = CHANGE) -> Advice:
    """To use this policy."""
    return Advice(
        group="g",
        verdict=verdict,
        policy=policy,
        policies_used=("range",),
        rebalances=0,
        rebalances_after=0,
        libraries=(),
        happened="",
        to_do="",
        recommendation="",
    )


Shown = tuple[str, str, int, int | None]


def replay_under(history_builder: HistoryBuilder, policy: str, partition: int) -> list[Shown]:
    """Owners of a partition: member, its client, since and until in seconds."""
    return [
        (
            row.member_id,
            row.client_id,
            (row.since - START) // 1_000,
            None if row.until is None else (row.until - START) // 1_000,
        )
        for row in list_advised_ownership(
            history_builder.generations,
            history_builder.rebalances,
            PolicyEvaluation(alternatives={policy: policy_of(policy)}).advised_policy(
                advice(policy)
            ),
            NOT_MEASURED,
        )
        if row.partition == partition
    ]


def owners_at(
    rows: Sequence[AdvisedOwnership] | Sequence[PartitionOwnership], at: int
) -> dict[tuple[str, int], str]:
    found = [
        ((row.topic, row.partition), row.member_id)
        for row in rows
        if row.since <= at and (row.until is None or at < row.until)
    ]
    assert len(dict(found)) == len(found), "a partition has one owner at a time"
    return dict(found)


def test_a_restart_within_the_session_changes_nobodys_partitions() -> None:
    history_builder = HistoryBuilder().at(0, "a", "b").at(10, "b").at(30, "a#2", "b")
    assert replay_under(history_builder, "range, static 45s", 0) == [("a", "a", 0, None)]
    assert replay_under(history_builder, "range, static 45s", 11) == [("b", "b", 0, None)]
    assert replay_under(history_builder, "range", 0) == [
        ("a", "a", 0, 10),
        ("b", "b", 10, 30),
        ("a#2", "a", 30, None),
    ]


def test_others_get_partitions_when_they_have_joined_after_the_end_of_a_session() -> None:
    history_builder = HistoryBuilder().at(0, "a", "b").at(10, "b").at(60, "a#2", "b")
    assert replay_under(history_builder, "range, static 45s", 0) == [
        ("a", "a", 0, 57),
        ("b", "b", 57, 60),
        ("a", "a", 60, None),
    ]


def test_a_new_member_waits_for_one_that_is_away_until_its_session_ends() -> None:
    history_builder = (
        HistoryBuilder().at(0, "a", "b").at(10, "b").at(20, "b", "c").at(100, "b", "c")
    )
    assert replay_under(history_builder, "sticky, static 45s", 0) == [
        ("a", "a", 0, 55),
        ("c", "c", 55, None),
    ]


def test_member_ids_may_begin_with_any_word() -> None:
    history_builder = HistoryBuilder().at(0, "person a", "b").at(10, "b")
    assert replay_under(history_builder, "range", 0)[-1][0] == "b"
    assert replay_under(history_builder, "range, static 45s", 11) == [
        ("person a", "person a", 0, 57),
        ("b", "b", 57, None),
    ]


def test_a_static_member_has_the_member_id_that_it_had_first() -> None:
    history_builder = HistoryBuilder().at(0, "i!a", "j!b").at(100, "i!a").at(200, "i!a", "j!b2")
    assert replay_under(history_builder, "cooperative-sticky, static 45s", 0)[0][:2] == ("i!a", "a")
    owners = replay_under(history_builder, "cooperative-sticky, static 45s", 11)
    assert [(name, client) for name, client, _, _ in owners] == [
        ("j!b", "b"),
        ("i!a", "a"),
        ("j!b", "b"),
    ]


def test_an_empty_group_owns_nothing() -> None:
    history_builder = HistoryBuilder().at(0, "a").at(10).at(100, "a")
    assert replay_under(history_builder, "roundrobin", 3) == [
        ("a", "a", 0, 10),
        ("a", "a", 100, None),
    ]


def test_nothing_is_told_of_a_group_that_should_keep_what_it_has() -> None:
    history_builder = HistoryBuilder().at(0, "a", "b").at(10, "b")
    assert (
        list_advised_ownership(
            history_builder.generations,
            history_builder.rebalances,
            PolicyEvaluation().advised_policy(advice("sticky", KEEP)),
            NOT_MEASURED,
        )
        == []
    )


def _replayed() -> list[str]:
    """Recorded classic groups with dynamic members and one strategy that Rota knows."""
    found = []
    for group, timeline in first_recording.read_histories().items():
        history = find_rebalances(timeline.generations)
        if not history or any(one.kind is not GroupType.CLASSIC for one in timeline.generations):
            continue
        used = reproduce_rebalances(history, TOPIC_IDS).used
        if len(used) == 1 and used[0].known and used[0].membership is MembershipType.DYNAMIC:
            found.append(group)
    return sorted(found)


@pytest.mark.parametrize("group", _replayed())
def test_under_the_policy_in_use_owners_are_those_that_java_had(group: str) -> None:
    timeline = first_recording.read_histories()[group]
    history = find_rebalances(timeline.generations)
    (used,) = reproduce_rebalances(history, TOPIC_IDS).used
    rows = list_advised_ownership(timeline.generations, history, used, NOT_MEASURED, TOPIC_IDS)
    times = [step.after.at for step in history]
    assert [owners_at(rows, at) for at in times] == [
        owners_at(timeline.ownership, at) for at in times
    ]


def test_owners_change_only_when_the_policy_rebalances() -> None:
    changed = 0
    for timeline in first_recording.read_histories().values():
        told = timeline.generations
        history = find_rebalances(told)
        if not history:
            continue
        downtime = measure_downtime(told, ownership=timeline.ownership)
        evaluation = evaluate_policies(told, history, downtime, topic_ids=TOPIC_IDS)
        total = sum_downtime(downtime.found)
        given = AdviceEvidence(evaluation=evaluation, total=total, has_consumer_protocol=True)
        found = advise_group(told, history, given)
        policy = evaluation.advised_policy(found)
        rows = list_advised_ownership(told, history, policy, downtime, TOPIC_IDS)
        times = {
            row.happens_at for row in evaluation.rows if row.policy == found.policy and row.happens
        }
        assert {row.since for row in rows} <= times
        assert {row.until for row in rows} <= {*times, None}
        assert bool(rows) == (found.verdict == CHANGE)
        changed += found.verdict == CHANGE
    assert changed > 3
