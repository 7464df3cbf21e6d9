"""Advice: what it says of a group, and when it says to change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rota.engine.history import client_settings
from rota.engine.history.advice import AdviceEvidence, PolicyEvaluation, advise_group, sum_by_policy
from rota.engine.history.downtime import DowntimeTotal, find_downtime, sum_downtime
from rota.engine.history.facts import (
    CANNOT_TELL,
    CHANGE,
    FIX_FIRST,
    KEEP,
    ActionKind,
    ActionStep,
    Advice,
    Generation,
    GroupHealth,
    GroupHealthStatus,
    GroupType,
    Pattern,
    PatternType,
    RebalanceCause,
    WhatIf,
)
from rota.engine.history.policies import MembershipType, label_used_policies
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.whatif import evaluate_policies
from tests.support import first_recording
from tests.support.downtime_comparison import read_evidence
from tests.support.example_history import (
    START,
    HistoryBuilder,
    generation,
    measure_downtime,
    member,
)
from tests.support.policies import policy_of


def evaluate(generations: Sequence[Generation]) -> PolicyEvaluation:
    rebalances = find_rebalances(generations)
    return evaluate_policies(generations, rebalances, measure_downtime(generations))


def advice_for(
    generations: Sequence[Generation],
    causes: Mapping[int, RebalanceCause] | None = None,
    **evidence: Any,
) -> Advice:
    """:param causes: by generation"""
    rebalances = find_rebalances(generations)
    downtime = measure_downtime(generations, causes)
    given = {
        "evaluation": evaluate_policies(generations, rebalances, downtime),
        "total": sum_downtime(downtime.found),
        "causes": {(0, number): cause for number, cause in (causes or {}).items()},
    }
    return advise_group(generations, rebalances, AdviceEvidence(**{**given, **evidence}))


def list_steps(advice: Advice) -> list[ActionStep]:
    return [step for action in advice.actions for step in action.steps]


def step_texts(advice: Advice) -> list[str]:
    return [step.text for step in list_steps(advice)]


def settings(step: ActionStep) -> list[str]:
    return [*filter(None, [step.setting]), *step.settings.values()]


def rolling_deploy(away: int, *libraries: str | None) -> list[Generation]:
    """Twelve members with 24 partitions, replaced one after the other.

    :param away: for how many seconds the group is without each of them
    :param libraries: of the members, in turn
    """
    history = HistoryBuilder({"t": 24})
    names = [f"pod-{number:02}" for number in range(12)]
    history.at(0, *names)
    for number in range(12):
        history.at(100 * number + 10, *(name for name in names if name != names[number]))
        names[number] += "#2"
        history.at(100 * number + 10 + away, *names)
    listed = libraries or (client_settings.JAVA,)
    return with_libraries(history.generations, lambda name: listed[int(name[4:6]) % len(listed)])


def with_libraries(generations: Iterable[Generation], library: Any) -> list[Generation]:
    """:param library: returns the library of a member id"""
    return [
        replace(
            one,
            members=tuple(replace(each, library=library(each.member_id)) for each in one.members),
        )
        for one in generations
    ]


# What the same history costs under other policies


def test_short_restarts_are_cheaper_for_static_members() -> None:
    found = advice_for(rolling_deploy(2))
    assert (found.verdict, found.policy) == (CHANGE, "range, static 45s")
    assert (found.rebalances, found.rebalances_after) == (25, 1)
    # two partitions of each of the twelve members, from the leave until the call to join
    assert found.downtime_after_ms == 12 * 2 * 2_750
    assert (found.moved_after, found.revoked_after) == (0, 0)
    assert found.happened.endswith("; 2 min 15 s of downtime.")
    assert found.to_do == (
        "Switch to static membership to save ≈ 1 min 23 s of ≈ 2 min 29 s downtime."
    )
    assert (found.recommendation, found.saving_ms) == ("static membership", 83_389)
    assert found.downtime_current_ms == 83_389 + found.downtime_after_ms
    assert [one.title for one in found.actions] == [
        "Switch to static membership",
        "Costs and uncertainty",
    ]
    assert step_texts(found)[-1] == "The saving is uncertain by 18 s."


def test_long_restarts_are_not() -> None:
    generations = rolling_deploy(50)
    found = advice_for(generations)
    assert (found.verdict, found.policy) == (CHANGE, "cooperative-sticky")
    totals = sum_by_policy(evaluate(generations).rows)
    assert totals["range, static 60s"].downtime == 12 * 2 * 50_000
    assert totals["range, static 60s"].downtime > totals["range"].downtime
    assert found.downtime_ms == totals["range"].downtime
    assert found.downtime_after_ms == totals["cooperative-sticky"].downtime
    assert (found.moved_after, found.moves_needed) == (24, 24)


def test_every_library_is_told_its_own_settings() -> None:
    found = advice_for(rolling_deploy(2, client_settings.JAVA, client_settings.SARAMA))
    assert (found.policy, found.libraries) == ("range, static 45s", ("java", "sarama"))
    assert found.setting_libraries[:3] == ("Java", "sarama", "Spring Boot")
    (ids,) = (step for step in list_steps(found) if step.text.startswith("Give every process"))
    assert ids.settings.keys() == set(found.setting_libraries)
    assert ids.settings["Java"] == "group.instance.id=ID"
    assert ids.settings["sarama"] == "config.Consumer.Group.InstanceId = ID"


def test_the_libraries_of_the_last_members_count() -> None:
    def upgraded(before: str | None, after: str | None) -> list[Generation]:
        return with_libraries(
            rolling_deploy(2), lambda name: after if name.endswith("#2") else before
        )

    old, new = client_settings.KAFKAJS, client_settings.JAVA
    assert advice_for(upgraded(old, new)).actions == advice_for(rolling_deploy(2)).actions
    assert advice_for(upgraded(new, old)).policy != "range, static 45s"
    left = [*upgraded(old, new), generation(26, [], at=START + 2_000_000)]
    assert advice_for(left).libraries == ("java",)


def test_members_of_unknown_libraries_are_named() -> None:
    found = advice_for(rolling_deploy(2, client_settings.LIBRDKAFKA, None))
    assert found.libraries == ("librdkafka", "unknown")
    assert step_texts(found)[0] == "Find out which client library the other members use."
    assert found.setting_libraries[:3] == ("librdkafka", "Java", "Spring Boot")
    alone = advice_for(rolling_deploy(2, None))
    assert step_texts(alone)[0] == "Find out which client library the members use."
    assert alone.setting_libraries[:2] == ("Java", "Spring Boot")
    known = advice_for(rolling_deploy(2, client_settings.LIBRDKAFKA))
    assert not any("client library" in text for text in step_texts(known))


def test_unknown_members_beside_ones_that_refuse_a_mixed_list_stop_too() -> None:
    def stops(*libraries: str | None) -> set[str]:
        found = advice_for(rolling_deploy(50, *libraries))
        assert found.policy == "cooperative-sticky"
        steps = [step for step in list_steps(found) if step.text.startswith("Stop all members")]
        names = [step.libraries or found.setting_libraries for step in steps]
        return {name for listed in names for name in listed}

    assert stops(client_settings.JAVA) == {"librdkafka", "kafka-python"}
    assert stops(None) == {"librdkafka", "kafka-python"}
    assert {"Java", "franz-go"} <= stops(client_settings.LIBRDKAFKA, None)
    assert "Java" in stops(client_settings.LIBRDKAFKA, client_settings.JAVA)
    assert "franz-go" not in stops(client_settings.LIBRDKAFKA, client_settings.JAVA)


def test_a_policy_that_a_library_does_not_have_is_not_advised() -> None:
    found = advice_for(rolling_deploy(50, client_settings.KAFKAJS))
    assert (found.verdict, found.policy, found.actions) == (KEEP, "range", ())
    assert (
        found.to_do
        == "Keep range: no other policy saves more than the uncertainty of the replay, 36 s."
    )
    assert (found.recommendation, found.saving_ms) == ("Keep range", None)
    static = advice_for(rolling_deploy(2, client_settings.AIOKAFKA))
    assert static.policy == "range, static 45s"
    assert any("group_instance_id" in one for step in list_steps(static) for one in settings(step))


def test_two_rebalances_are_too_few() -> None:
    history = HistoryBuilder({"t": 400}).at(0, "a", "b").at(10, "a", "b", "c")
    found = advice_for(history.generations)
    assert (found.verdict, found.policy) == (KEEP, "range")
    assert found.to_do == "Keep range: 2 rebalances are too few to compare policies."


def test_a_change_that_was_made_already_is_not_advised_again() -> None:
    found = advice_for(first_recording.read_histories()["a-upgrade"].generations)
    assert found.policies_used[-1] == "cooperative-sticky"
    assert not any(
        "partition.assignment.strategy" in one
        for step in list_steps(found)
        for one in settings(step)
    )
    assert "Switch to cooperative-sticky" not in found.to_do


# Which of several policies, and whether to change at all


def history_of(strategy: str = "range", library: str | None = client_settings.JAVA) -> Any:
    """Four rebalances, whose costs the rows of :func:`evaluation_of` replace."""
    held = {"t": (0, 1)}
    return [
        generation(number, [member("a", held, library=library)], strategy) for number in range(1, 5)
    ]


def row(
    policy: str, downtime: int, moved: int = 0, delayed: int | None = None, *, actual: bool = False
) -> WhatIf:
    return WhatIf(
        group="g",
        incarnation=0,
        to_generation=4,
        at=START,
        policy=policy,
        actual=actual,
        happens=True,
        happens_at=START,
        downtime_ms=downtime,
        delayed_records=delayed,
        moved=moved,
        moves_needed=0,
        revoked=0,
        idle_members=0,
        spread=0,
    )


def evaluation_of(
    used: int,
    modelled: int | None = None,
    spreads: Mapping[str, int] | None = None,
    **downtime: int | tuple[int, ...],
) -> PolicyEvaluation:
    """:param downtime: of each other policy, or its downtime, its moves and its delayed records"""
    labels = {name: name.replace("_", "-").replace("STATIC", ", static 45s") for name in downtime}
    pairs = {
        name: each if isinstance(each, tuple) else (each, 0) for name, each in downtime.items()
    }
    rows = [row(labels[name], *each) for name, each in pairs.items()]
    return PolicyEvaluation(
        rows=[row("range", used, 10, actual=True), *rows],
        used=(policy_of("range"),),
        alternatives={label: policy_of(label) for label in labels.values()},
        modelled_ms=modelled,
        spreads=spreads or {},
    )


def decide(evaluation: PolicyEvaluation, **evidence: Any) -> Advice:
    total = DowntimeTotal(downtime_ms=evaluation.rows[0].downtime_ms)
    return advice_for(history_of(), **{"evaluation": evaluation, "total": total, **evidence})


@pytest.mark.parametrize(
    ("used", "modelled", "other", "verdict", "uncertainty"),
    [
        # a tenth of the downtime
        (200_000, None, 181_000, KEEP, 20_000),
        (200_000, None, 179_000, CHANGE, 20_000),
        # at least five partition-seconds
        (30_000, None, 25_001, KEEP, 5_000),
        (30_000, None, 24_999, CHANGE, 5_000),
        # the difference between the replay and the measure; both have to show a saving of 5 %
        (200_000, 150_000, 143_000, KEEP, 25_000),
        (200_000, 150_000, 142_000, CHANGE, 25_000),
        (200_000, 250_000, 191_000, KEEP, 25_000),
        (200_000, 250_000, 190_000, CHANGE, 25_000),
    ],
)
def test_a_change_saves_more_than_the_uncertainty(
    used: int, modelled: int | None, other: int, verdict: str, uncertainty: int
) -> None:
    found = decide(evaluation_of(used, modelled, sticky=other))
    assert (found.verdict, found.uncertainty_ms) == (verdict, uncertainty)
    assert found.policy == ("sticky" if verdict == CHANGE else "range")
    assert found.downtime_ms == used
    assert found.downtime_after_ms == (other if verdict == CHANGE else found.downtime_current_ms)


@pytest.mark.parametrize(
    ("spread", "idle", "verdict"), [(1, 0, CHANGE), (2, 0, KEEP), (1, 1, KEEP)]
)
def test_a_policy_that_balances_worse_is_not_advised(spread: int, idle: int, verdict: str) -> None:
    evaluation = evaluation_of(200_000, sticky=50_000)
    used, other = evaluation.rows
    other = replace(other, spread=spread, idle_members=idle)
    assert decide(replace(evaluation, rows=[used, other])).verdict == verdict


def test_downtime_ranks_first() -> None:
    found = decide(evaluation_of(200_000, sticky=(90_000, 50), roundrobin=(120_000, 0)))
    assert (found.policy, found.moved_after) == ("sticky", 50)
    assert "50 partitions moved instead of 10." in step_texts(found)


def test_among_equals_the_smallest_change_wins_and_then_the_fewest_moves() -> None:
    evaluation = evaluation_of(200_000, sticky=100_000, stickySTATIC=99_000)
    assert decide(evaluation).policy == "sticky"
    evaluation = evaluation_of(200_000, sticky=(100_000, 7), roundrobin=(100_000, 3))
    assert decide(evaluation).policy == "roundrobin"


def test_among_equals_records_that_differ_a_little_do_not_decide() -> None:
    evaluation = evaluation_of(200_000, sticky=(50_000, 7, 250), roundrobin=(50_000, 3, 256))
    assert decide(evaluation).policy == "roundrobin"


def test_a_group_of_the_broker_s_protocol_is_not_advised_to_leave_it() -> None:
    """The crash costs its session under every policy."""
    for group in ("a-next", "b-next"):
        known = read_evidence(group, with_log=True)
        generations, rebalances = known.history.generations, known.rebalances
        downtime = find_downtime(
            generations,
            rebalances,
            known.explanations,
            commits=known.commits,
            until=known.until,
            lines=known.lines,
            ownership=known.history.ownership,
        )
        evaluation = evaluate_policies(generations, rebalances, downtime)
        totals = sum_by_policy(evaluation.rows)
        measured = sum_downtime(downtime.found).downtime_ms
        assert totals["range"].downtime > measured / 2
        found = advise_group(generations, rebalances, AdviceEvidence(evaluation=evaluation))
        assert (found.verdict, found.policy) == (KEEP, "KIP-848 uniform")
        cheap = [replace(row, downtime_ms=0) if not row.actual else row for row in evaluation.rows]
        evaluation = replace(evaluation, rows=cheap, modelled_ms=measured, spreads={})
        found = advise_group(generations, rebalances, AdviceEvidence(evaluation=evaluation))
        assert found.policy.startswith("KIP-848")


def test_after_a_repair_rota_runs_again_before_the_policy_changes() -> None:
    found = decide(evaluation_of(200_000, sticky=50_000), patterns=[CRASHES])
    assert [one.kind for one in found.actions[:2]] == [ActionKind.REPAIR, ActionKind.POLICY]
    assert step_texts(found)[:2] == [
        "Look for crashes.",
        "Run Rota again after the repair: the saving may come from rebalances that no longer "
        "happen.",
    ]
    alone = decide(evaluation_of(200_000, sticky=50_000))
    assert not any("Run Rota again" in text for text in step_texts(alone))


def test_a_group_without_members_is_started_first() -> None:
    told = [*history_of(), generation(9, [])]
    found = advice_for(told, evaluation=evaluation_of(50_000), health=status(GroupHealth.FAILING))
    assert found.to_do == (
        "Start the members again, or find out who stopped them; then keep range."
    )
    assert found.recommendation == found.actions[0].title == "Start consumers"


def test_a_policy_that_saves_downtime_but_no_moves_names_no_other_gain() -> None:
    found = decide(evaluation_of(200_000, sticky=(100_000, 10)))
    assert found.to_do == "Switch to sticky to save ≈ 1 min 40 s of 3 min 20 s downtime."
    assert step_texts(found)[-1] == "The saving is uncertain by 20 s."


def test_the_policy_with_fewer_delayed_records_comes_before_the_one_with_fewer_moves() -> None:
    evaluation = evaluation_of(200_000, sticky=(50_000, 7, 250), roundrobin=(50_000, 3, 900))
    total = DowntimeTotal(downtime_ms=200_000, delayed_records=1_000, added_lag_ms=9_000)
    found = decide(evaluation, total=total)
    assert found.policy == "sticky"
    assert (found.delayed_records, found.delayed_records_after) == (1_000, 250)
    assert found.added_lag_ms == 9_000
    unknown = decide(evaluation_of(200_000, sticky=50_000))
    assert unknown.delayed_records is unknown.delayed_records_after is None


def test_a_replay_that_misses_half_of_the_downtime_may_miss_half_of_the_other_policys() -> None:
    def verdict(other: int) -> str:
        evaluation = evaluation_of(200_000, 100_000, spreads={"sticky": 0}, sticky=other)
        return decide(evaluation).verdict

    # 200 s - 2 x 70 s exceeds the uncertainty, 50 s
    assert (verdict(70_000), verdict(80_000)) == (CHANGE, KEEP)


def test_a_replay_with_much_more_downtime_than_was_measured_shows_no_saving() -> None:
    def verdict(used: int, modelled: int) -> str:
        evaluation = evaluation_of(used, modelled, spreads={"sticky": 0}, sticky=46_000)
        return decide(evaluation).verdict

    # 171 s were measured, and the uncertainty is 549 s
    assert (verdict(171_000, 1_269_000), verdict(171_000, 200_000)) == (KEEP, CHANGE)
    evaluation = evaluation_of(171_000, 1_269_000, spreads={"sticky": 0}, sticky=46_000)
    assert decide(evaluation).to_do == (
        "Keep range: sticky may save ≈ 11 min, or nothing: the replayed downtime differs too much "
        "from the measured one."
    )


def test_after_a_change_of_policy_a_new_one_has_to_save_some_of_the_measured_downtime() -> None:
    def verdict(measured: int) -> str:
        both = (policy_of("range"), policy_of("range, static 45s"))
        label = label_used_policies(both)
        rows = [
            row(label, measured, 10, actual=True),
            row("range, static 45s", 1_300_000),
            row("sticky, static 45s", 208_000),
        ]
        alternatives = {each.policy: policy_of(each.policy) for each in rows[1:]}
        return decide(PolicyEvaluation(rows=rows, used=both, alternatives=alternatives)).verdict

    # the replay has 1,300 s with the last policy
    assert (verdict(214_000), verdict(900_000)) == (KEEP, CHANGE)


def test_replays_that_differ_are_uncertain() -> None:
    near = decide(evaluation_of(200_000, spreads={"sticky": 100_000}, sticky=100_000))
    assert (near.verdict, near.uncertainty_ms) == (CHANGE, 50_000)
    far = decide(evaluation_of(200_000, spreads={"sticky": 220_000}, sticky=100_000))
    assert (far.verdict, far.uncertainty_ms) == (KEEP, 110_000)


@pytest.mark.parametrize(
    ("used", "other", "verdict"),
    [
        ((), (220_000,), CHANGE),  # a tenth more counts as equal
        ((), (221_000,), KEEP),
        ((300_000,), (320_000,), CHANGE),  # the policy in use is worse, too
        ((300_000,), (321_000,), KEEP),
        ((), (100_000, 220_000), CHANGE),
        ((), (100_000, 221_000), KEEP),
    ],
)
def test_a_change_costs_no_more_in_any_reading_of_the_evidence(
    used: tuple[int, ...], other: tuple[int, ...], verdict: str
) -> None:
    readings = {"sticky": other, "range": used}
    evaluation = replace(evaluation_of(200_000, sticky=100_000), other_readings=readings)
    found = decide(evaluation)
    assert found.verdict == verdict
    is_said = "sticky may save ≈ 1 min 40 s, or cost more" in found.to_do
    assert is_said == (verdict == KEEP)


# The protocol of the broker (KIP-848)


def test_the_broker_s_protocol_is_the_destination_if_brokers_and_libraries_have_it() -> None:
    evaluation = evaluation_of(50_000)
    assert decide(evaluation).destination is None
    assert not any("KIP-848" in text for text in step_texts(decide(evaluation)))
    found = decide(evaluation, has_consumer_protocol=True)
    assert found.destination == "group.protocol=consumer"
    action = found.actions[-1]
    assert (action.kind, action.title) == (ActionKind.PROTOCOL, "Plan for KIP-848")
    (step,) = action.steps
    assert "deprecated in Kafka 5.0" in step.text
    assert "Kafka 6.0 removes it from the Java consumer" in step.text
    assert step.settings["Java"] == "group.protocol=consumer"
    for library in (client_settings.KAFKAJS, None):
        told = history_of(library=library)
        found = advice_for(told, evaluation=evaluation, has_consumer_protocol=True)
        assert found.destination is None, library


def test_a_group_that_uses_the_broker_s_protocol_has_no_other_destination() -> None:
    kind = GroupType.CONSUMER
    held = {"t": (0, 1)}
    told = [
        generation(number, [member("a", held, library=client_settings.JAVA)], "uniform", kind=kind)
        for number in (2, 3, 4)
    ]
    assert advice_for(told, has_consumer_protocol=True).destination is None


@pytest.mark.parametrize(
    ("downtime", "best"),
    [(40_000, "sticky"), (31_000, "sticky"), (28_000, "KIP-848 uniform")],
)
def test_the_broker_s_protocol_is_only_advised_if_it_is_clearly_better(
    downtime: int, best: str
) -> None:
    """By a tenth of the downtime in use, because it needs new brokers and clients."""
    evaluation = evaluation_of(200_000, sticky=50_000)
    name = "KIP-848 uniform"
    evaluation = replace(
        evaluation,
        rows=[*evaluation.rows, row(name, downtime)],
        alternatives={**evaluation.alternatives, name: policy_of(name)},
    )
    assert decide(evaluation, has_consumer_protocol=True).policy == best


def test_the_broker_s_protocol_is_only_advised_where_the_brokers_are_known_to_have_it() -> None:
    row_of = "KIP-848 uniform"
    evaluation = evaluation_of(200_000)
    evaluation = replace(
        evaluation,
        rows=[*evaluation.rows, row(row_of, 20_000)],
        alternatives={row_of: policy_of(row_of)},
    )
    assert decide(evaluation).verdict == KEEP
    found = decide(evaluation, has_consumer_protocol=True)
    assert (found.verdict, found.policy) == (CHANGE, row_of)
    assert found.to_do.startswith("Switch to the broker's protocol (KIP-848) with uniform to save")
    assert found.recommendation == "KIP-848 uniform"


# What no policy prevents


DEPLOY = Pattern(
    pattern=PatternType.ROLLING_DEPLOY, since=0, until=1, times=1, text="a rolling deploy of 12"
)
CRASHES = Pattern(
    pattern=PatternType.CRASHES,
    since=0,
    until=1,
    times=3,
    text="pod-1 crashed or hung 3 times",
    fix="Look for crashes.",
)


def test_patterns_come_first_and_their_repair_before_the_change() -> None:
    found = decide(evaluation_of(200_000, sticky=50_000), patterns=[CRASHES, DEPLOY])
    assert found.patterns == (CRASHES, DEPLOY)
    text = found.happened
    places = [text.index(each) for each in (CRASHES.text, DEPLOY.text, "3 min 20 s of downtime")]
    assert places == sorted(places)
    assert text.startswith("pod-1 crashed or hung 3 times at 1970-01-01 00:00Z; a rolling deploy")
    assert [one.title for one in found.actions[:2]] == ["Fix crashes", "Switch to sticky"]


def status(health: GroupHealth) -> GroupHealthStatus:
    return GroupHealthStatus(
        group="g",
        health=health,
        since=START,
        topic="t",
        partition=1,
        lag=500,
        reason="t-1 does not move.",
        worst=health,
        worst_since=START,
        worst_until=START,
        worst_topic="t",
        worst_partition=1,
        worst_reason="t-1 does not move.",
    )


@pytest.mark.parametrize("health", GroupHealth)
def test_a_stuck_or_failing_group_never_shows_a_plain_keep(health: GroupHealth) -> None:
    is_sick = health in {GroupHealth.STUCK, GroupHealth.FAILING}
    found = decide(evaluation_of(50_000, sticky=49_000), health=status(health))
    assert found.verdict == (FIX_FIRST if is_sick else KEEP)
    is_bad = is_sick or health is GroupHealth.FALLING_BEHIND
    assert found.happened.startswith("t-1 does not move; ") == is_bad
    assert found.to_do.endswith("; then keep range.") == is_sick
    assert found.recommendation.startswith("Keep") == (not is_bad)


def test_a_group_without_rebalances() -> None:
    told = [generation(1, [member("a", {"t": (0,)})])]
    found = advise_group(told, [], AdviceEvidence(evaluation=PolicyEvaluation()))
    assert (found.verdict, found.downtime_ms) == (KEEP, 0)
    assert found.happened == "No rebalances; no downtime."
    assert found.to_do == "Keep none: 0 rebalances are too few to compare policies."
    sick = AdviceEvidence(evaluation=PolicyEvaluation(), health=status(GroupHealth.STUCK))
    assert advise_group(told, [], sick).verdict == FIX_FIRST


def test_advice_against_slow_polls() -> None:
    told = first_recording.read_histories()["a-slow"].generations
    found = advice_for(told, dict.fromkeys((2, 4, 6), RebalanceCause.SLOW_POLL))
    repair = found.actions[0]
    assert (repair.kind, repair.title) == (ActionKind.REPAIR, "Fix slow polls")
    records, interval = (step.settings["Java"] for step in repair.steps[:2])
    assert records == "max.poll.records=100"
    members = next(one.members for one in reversed(told) if one.members)
    longest = max(one.rebalance_timeout or 0 for one in members)
    assert interval == f"max.poll.interval.ms={2 * longest}"
    assert found.recommendation == "Fix slow polls"


def test_advice_against_slow_polls_of_several_libraries() -> None:
    told = rolling_deploy(
        50, client_settings.AIOKAFKA, client_settings.LIBRDKAFKA, client_settings.SARAMA
    )
    found = advice_for(told, {2: RebalanceCause.SLOW_POLL})
    repair = found.actions[0]
    told_settings = {
        name: [step.settings[name] for step in repair.steps if name in step.settings]
        for name in found.setting_libraries
    }
    assert told_settings["aiokafka"] == ["max_poll_records=100", "max_poll_interval_ms=600000"]
    assert told_settings["librdkafka"] == ["max.poll.interval.ms=600000"]
    assert "sarama" not in told_settings  # it has no limit


def test_sessions_that_timed_out_are_to_be_prevented() -> None:
    found = advice_for(rolling_deploy(50), {2: RebalanceCause.SESSION_TIMEOUT})
    assert (found.actions[0].kind, found.actions[0].title) == (
        ActionKind.REPAIR,
        "Prevent session timeouts",
    )


# What cannot be told


def test_an_unknown_strategy_cannot_be_compared() -> None:
    told = [
        generation(1, [member("a", {"t": (0, 1)})], "com.example.Mine"),
        generation(2, [member("a", {"t": (0,)}), member("b", {"t": (1,)})], "com.example.Mine"),
    ]
    found = advice_for(told)
    assert found.verdict == CANNOT_TELL
    assert (found.policy,) == found.policies_used == ("com.example.Mine",)
    assert found.to_do == (
        "No advice on the policy: Rota does not know the strategy com.example.Mine."
    )
    assert found.recommendation == "No advice"


def test_members_that_cannot_be_decoded() -> None:
    found = advice_for([generation(1, [member("a", problem="garbage")])])
    assert (found.verdict, found.downtime_ms, found.moved) == (CANNOT_TELL, None, None)
    assert "could not be decoded" in found.to_do


def test_members_that_are_not_consumers() -> None:
    told = [
        replace(generation(number, [member("a"), member("b")]), protocol_type="connect")
        for number in (1, 2)
    ]
    found = advice_for(told)
    assert (found.verdict, found.rebalances) == (CANNOT_TELL, 2)
    assert found.moved is found.revoked is found.downtime_ms is None
    assert "Connect's workers assign connectors and tasks" in found.to_do
    assert found.happened == "The group rebalanced twice."


def test_the_saving_over_another_library_s_strategy_is_an_estimate() -> None:
    held = {"t": tuple(range(40))}
    uneven = [member("a", {"t": held["t"][:30]}), member("b", {"t": held["t"][30:]})]
    told = [
        generation(
            number,
            [member("a", held)] if number % 2 else uneven,
            at=START + 100_000 * number,
            state_at=START + 100_000 * number - 3_000,
        )
        for number in range(1, 9)
    ]
    found = advice_for(told)
    assert found.policies_used == ("range (other)",)
    assert evaluate(told).used[0].membership is MembershipType.DYNAMIC
    assert found.verdict == CHANGE
    assert any("the saving is an estimate" in text for text in step_texts(found))
