"""The sentences of an advice: what happened, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from rota.engine.history.actions import MAX_TITLE
from rota.engine.history.advice import (
    SENTENCE_LENGTH,
    AdviceEvidence,
    PolicyEvaluation,
    advise_group,
    advise_uncompared,
)
from rota.engine.history.downtime import DowntimeTotal, find_downtime, sum_downtime
from rota.engine.history.facts import (
    CANNOT_TELL,
    CHANGE,
    FIX_FIRST,
    Action,
    ActionKind,
    Advice,
    Generation,
    GroupHealth,
    GroupHealthStatus,
    Pattern,
    PatternType,
    RebalanceCause,
    WhatIf,
)
from rota.engine.history.patterns import find_patterns
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.restarts import find_rollouts
from rota.engine.history.whatif import evaluate_policies
from rota.engine.model.duration import format_rounded_duration
from tests.support.downtime_comparison import read_evidence
from tests.support.example_history import (
    START,
    HistoryBuilder,
    generation,
    measure_downtime,
    member,
)
from tests.support.policies import policy_of

MINUTE = 60_000
#: A time in a sentence; the report leaves out the date.
TIME = re.compile(r"\d{4}-\d\d-\d\d (\d\d:\d\d)Z")


def shown(sentence: str) -> str:
    return TIME.sub(r"\1", sentence)


@cache
def recorded_advice(group: str) -> Advice:
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
    patterns = find_patterns(
        rebalances,
        known.explanations,
        find_rollouts(rebalances, known.explanations),
        generations=generations,
        commits=known.commits,
        end=known.until,
    )
    ends = ((one.after.incarnation, one.after.generation) for one in rebalances)
    return advise_group(
        generations,
        rebalances,
        AdviceEvidence(
            evaluation=evaluate_policies(generations, rebalances, downtime),
            total=sum_downtime(downtime.found),
            patterns=patterns,
            causes=dict(zip(ends, (why.cause for why in known.explanations), strict=True)),
        ),
    )


RECORDED = ("a-flap", "a-slow", "a-heldback", "a-crash", "a-roll-dyn", "a-upgrade", "b-slow")


@pytest.mark.parametrize("group", [*RECORDED, "b-static", "b-deploy", "a-next"])
def test_the_numbers_of_a_sentence_are_those_of_the_row(group: str) -> None:
    check_sentences(recorded_advice(group))


def check_sentences(advice: Advice) -> None:
    for sentence in (advice.happened, advice.to_do):
        assert sentence.endswith(".")
        assert sentence.count(". ") == 0
        assert len(shown(sentence)) <= SENTENCE_LENGTH
        assert not re.search(r"None|\d ?ms\b|\d (st|in|sa|re)\b", sentence)
    assert 0 < len(advice.recommendation) <= MAX_TITLE
    downtime = advice.downtime_ms or 0
    cost = f"{format_rounded_duration(downtime)} of downtime" if downtime >= 50 else "no downtime"
    assert cost in advice.happened
    assert (advice.saving_ms is not None) == (advice.verdict == CHANGE)
    policies = [one for one in advice.actions if one.kind is ActionKind.POLICY]
    assert [one.saving_ms for one in policies] == (
        [] if advice.saving_ms is None else [advice.saving_ms]
    )
    if advice.saving_ms is not None:
        assert advice.downtime_current_ms is not None
        assert advice.downtime_after_ms == advice.downtime_current_ms - advice.saving_ms
        assert f"≈ {format_rounded_duration(advice.saving_ms)}" in advice.to_do
    for one in advice.actions:
        assert one.steps
        if one.kind is ActionKind.REPAIR:
            assert len(one.title) <= MAX_TITLE
            assert one.saving_is_bound == (one.saving_ms is not None)
            assert (one.saving_ms or 0) <= downtime
        check_settings(one, advice.setting_libraries)
    bounds = {
        format_rounded_duration(one.saving_ms)
        for one in advice.actions
        if one.saving_ms is not None
    }
    assert set(re.findall(r"up to (.+?) of ", advice.to_do)) <= bounds


def check_settings(action: Action, libraries: Sequence[str]) -> None:
    for step in action.steps:
        assert set(step.libraries) <= set(libraries)
        assert step.settings.keys() <= set(step.libraries or libraries)
        for setting in step.settings.values():
            lines = setting.splitlines()
            assert lines
            assert all(line.strip() and " and " not in line for line in lines)


@pytest.mark.parametrize(
    ("group", "happened", "title"),
    [
        (
            "a-flap",
            r"flap-2 joined and left 6 times \(about every 12 s\) between .* and .*; .*",
            "Find out why members leave",
        ),
        (
            "a-slow",
            r"slow-1 and slow-2 exceeded max\.poll\.interval\.ms 3 times between .*",
            "Fix slow polls",
        ),
        (
            "a-heldback",
            r"held-1 and held-3 joined late 2 times, and the group waited up to 9 s between .*",
            "Make members join sooner",
        ),
        (
            "a-crash",
            r"crash-jvm, crash-2 and crash-1 crashed or hung 3 times between .*",
            "Fix crashes",
        ),
        ("a-roll-dyn", r"A rolling deploy replaced 4 members in 21 s at .*", None),
        ("a-upgrade", r"2 rolling deploys replaced 3 members each between .*", None),
    ],
)
def test_each_pattern_begins_the_sentence_and_has_its_repair(
    group: str, happened: str, title: str | None
) -> None:
    found = recorded_advice(group)
    assert re.fullmatch(happened, found.happened)
    repairs = [one.title for one in found.actions if one.kind is ActionKind.REPAIR]
    assert repairs[:1] == ([] if title is None else [title])
    if title is not None:
        assert found.to_do.startswith(title)
        assert found.recommendation == title


def test_a_repair_saves_at_most_the_rebalances_that_it_prevents() -> None:
    """A member crashes, and comes back; another one joins much later."""
    silent, joined = RebalanceCause.SESSION_TIMEOUT, RebalanceCause.JOINED
    causes = {1: joined, 2: silent, 3: joined, 4: silent, 5: joined, 6: joined}
    history = (
        HistoryBuilder({"t": 8}).at(0, "a", "b").at(100, "a").at(110, "a", "b#2").at(200, "b#2")
    )
    history = history.at(220, "a#2", "b#2").at(900, "a#2", "b#2", "c")
    found = advise(history.generations, causes)
    totals = {
        row.to_generation: row.downtime_ms
        for row in evaluate(history.generations, causes).rows
        if row.actual
    }
    (repair,) = (one for one in found.actions if one.title == "Prevent session timeouts")
    assert repair.saving_ms == sum(totals[number] for number in (2, 3, 4, 5))
    assert totals[6] > 0
    assert found.downtime_ms == sum(totals.values())
    check_sentences(found)


def evaluate(
    generations: Sequence[Generation], causes: dict[int, RebalanceCause]
) -> PolicyEvaluation:
    downtime = measure_downtime(generations, causes)
    return evaluate_policies(generations, find_rebalances(generations), downtime)


def advise(
    generations: Sequence[Generation], causes: dict[int, RebalanceCause], **evidence: Any
) -> Advice:
    downtime = measure_downtime(generations, causes)
    given = {
        "evaluation": evaluate(generations, causes),
        "total": sum_downtime(downtime.found),
        "causes": {(0, number): cause for number, cause in causes.items()},
    }
    rebalances = find_rebalances(generations)
    return advise_group(generations, rebalances, AdviceEvidence(**{**given, **evidence}))


def test_without_patterns_the_causes_are_counted() -> None:
    left, joined, unknown = RebalanceCause.LEFT, RebalanceCause.JOINED, RebalanceCause.UNKNOWN
    history = HistoryBuilder({"t": 8}).at(0, "a").at(60, "a", "b")
    once = advise(history.generations[:1], {1: joined})
    assert shown(once.happened) == (
        "The group rebalanced once at 14:13, because members joined; no downtime."
    )
    assert once.to_do == "Keep range: 1 rebalance is not enough to compare policies."
    twice = advise(history.generations, {1: joined, 2: joined})
    assert shown(twice.happened).startswith(
        "The group rebalanced twice between 14:13 and 14:14, each time because members joined; "
    )
    history = history.at(120, "b").at(180, "b", "c")
    found = advise(history.generations, {1: joined, 2: joined, 3: left, 4: unknown})
    assert shown(found.happened).startswith(
        "The group rebalanced 4 times between 14:13 and 14:16: 2 because members joined, "
        "1 because members left, 1 for an unknown reason; "
    )
    check_sentences(found)


# by hand: what the evidence of other groups would show

HELD = {"t": (0, 1)}


def told(number: int = 4) -> list[Generation]:
    return [generation(each, [member("a", HELD)]) for each in range(1, number + 1)]


def row(policy: str, downtime: int, revoked: int = 0, *, actual: bool = False) -> WhatIf:
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
        moved=0,
        moves_needed=0,
        revoked=revoked,
        idle_members=0,
        spread=0,
    )


def decide(used: int, other: int | None = None, **evidence: Any) -> Advice:
    """:param other: the downtime of cooperative-sticky"""
    label = "cooperative-sticky"
    rows = [row("range", used, 16, actual=True)]
    evaluation = PolicyEvaluation(
        rows=rows if other is None else [*rows, row(label, other)],
        used=(policy_of("range"),),
        alternatives={} if other is None else {label: policy_of(label)},
    )
    total = DowntimeTotal(downtime_ms=used, by_reason={"revoked": used})
    given = {"evaluation": evaluation, "total": total}
    generations = told()
    rebalances = find_rebalances(generations)
    return advise_group(generations, rebalances, AdviceEvidence(**{**given, **evidence}))


AUTOSCALER = Pattern(
    pattern=PatternType.AUTOSCALER,
    since=START,
    until=START + 11 * 60 * MINUTE,
    times=27,
    every_ms=25 * MINUTE + 400,
    text="an autoscaler seems to have added and removed a member 27 times (4 to 5 members, about "
    "every 25 min)",
    fix="Let the autoscaler wait longer before it removes a member.",
)
SLOW = Pattern(
    pattern=PatternType.SLOW_POLLS,
    member="m-1",
    since=START,
    until=START + MINUTE,
    times=8,
    text="m-1 exceeded max.poll.interval.ms 8 times",
    fix="Take fewer records.",
)


def test_an_autoscaler_under_an_eager_strategy() -> None:
    causes = {(0, 4): RebalanceCause.LEFT}
    found = decide(1_000_000, 470_000, patterns=[AUTOSCALER], causes=causes)
    assert shown(found.happened) == (
        "An autoscaler seems to have added and removed a member 27 times (4 to 5 members, about "
        "every 25 min) between 14:13 and 01:13; 17 min of downtime, mostly because range revoked "
        "up to 16 partitions each time."
    )
    assert found.to_do == (
        "Switch to cooperative-sticky to save ≈ 8 min 50 s of 17 min downtime, and slow down "
        "scaling."
    )
    policy, costs, scaling = found.actions
    assert (policy.kind, costs.kind) == (ActionKind.POLICY, ActionKind.NOTE)
    (step,) = scaling.steps
    # half an hour is longer than 25 min
    assert str(step.setting).endswith("stabilizationWindowSeconds: 1800")
    assert (scaling.saving_ms, scaling.saving_is_bound) == (1_000_000, True)
    keep = decide(1_000_000, patterns=[AUTOSCALER], causes=causes)
    assert keep.recommendation == "Slow down scaling"
    rare = replace(AUTOSCALER, every_ms=100 * MINUTE)
    (action,) = decide(1_000_000, patterns=[rare]).actions
    assert action.steps[0].setting is None  # Kubernetes allows an hour


def test_a_repair_comes_first_and_the_change_alone_saves_what_was_replayed() -> None:
    total = DowntimeTotal(downtime_ms=300_000, not_polled_ms=9_600_000)
    found = decide(300_000, 185_000, patterns=[SLOW], total=total)
    assert shown(found.happened) == (
        "m-1 exceeded max.poll.interval.ms 8 times between 14:13 and 14:14; 5 min of downtime, "
        "plus 2 h 40 min without polls."
    )
    causes = {(0, 4): RebalanceCause.SLOW_POLL}
    found = decide(300_000, 185_000, patterns=[replace(SLOW, until=START + 9_000)], causes=causes)
    assert found.to_do.endswith("; switching to cooperative-sticky alone saves ≈ 1 min 55 s.")
    assert found.recommendation == "Fix slow polls"
    assert found.saving_ms == 115_000


def test_a_long_sentence_says_less() -> None:
    names = " and ".join(f"a-consumer-with-a-long-name-{number}" for number in (1, 2, 3))
    long = replace(SLOW, text=f"{names} exceeded max.poll.interval.ms 8 times (about every 41 s)")
    found = decide(300_000, patterns=[long, AUTOSCALER])
    assert found.happened.startswith(names)
    assert "autoscaler" not in found.happened
    assert found.happened.endswith("; 5 min of downtime.")


@pytest.mark.parametrize("verb", ["keep", "change"])
def test_long_names_keep_the_recommendation_short(verb: str) -> None:
    topic = "t" * 249
    stuck = status(GroupHealth.STUCK, topic=topic, reason=f"{topic}-1: it does not move")
    found = decide(300_000, None if verb == "keep" else 100_000, health=stuck)
    assert found.recommendation == "Inspect the stuck partition"
    assert topic not in found.happened
    assert topic in str(found.actions[0].steps[0].setting)


def status(health: GroupHealth, **fields: Any) -> GroupHealthStatus:
    given: dict[str, Any] = {
        "group": "g",
        "health": health,
        "since": START,
        "topic": "chat",
        "partition": 2,
        "offset": 3_311_922 if health is GroupHealth.STUCK else None,
        "lag": 500,
        "reason": "chat-2: committed offset 3,311,922 has not moved since 2026-01-05 20:39Z",
        "worst": health,
        "worst_since": START,
        "worst_until": START,
        "worst_topic": "chat",
        "worst_partition": 2,
        "worst_reason": "",
    }
    return GroupHealthStatus(**{**given, **fields})


def test_a_stuck_partition() -> None:
    found = decide(4_000, health=status(GroupHealth.STUCK), patterns=[SLOW])
    assert shown(found.happened) == (
        "chat-2: committed offset 3,311,922 has not moved since 20:39; m-1 exceeded "
        "max.poll.interval.ms 8 times between 14:13 and 14:14; 4.0 s of downtime."
    )
    assert found.verdict == FIX_FIRST
    assert found.recommendation == "Inspect chat-2"
    assert found.to_do.startswith("Look at the record at the committed offset of chat-2: ")
    assert found.to_do.endswith("; then keep range.")
    assert found.actions[0].steps[0].setting == (
        "kafka-console-consumer --bootstrap-server HOST:9092 --topic chat --partition 2 --offset "
        "3311922 --max-messages 1"
    )


def test_a_topic_name_cannot_add_a_command() -> None:
    evil = status(GroupHealth.STUCK, topic="x; rm -rf /", reason="x; rm -rf /-2: stuck")
    command = str(decide(4_000, health=evil).actions[0].steps[0].setting)
    assert "--topic 'x; rm -rf /' --partition 2" in command


def test_a_group_that_falls_behind() -> None:
    behind = status(GroupHealth.FALLING_BEHIND, reason="chat-2: the lag grew")
    found = decide(4_000, health=behind)
    assert found.to_do == (
        "Add members, at most one per partition (now 1 for 2 partitions); keep range."
    )
    assert found.recommendation == "Add consumers"
    lag = Pattern(
        pattern=PatternType.GROWING_LAG,
        topic="chat",
        partition=2,
        since=START,
        until=START,
        times=1,
        text="the lag of chat-2 has grown",
        fix="Add members.",
    )
    assert "the lag of chat-2" not in decide(4_000, health=behind, patterns=[lag]).happened
    # lag that grew because members fail has no repair of its own
    caused = decide(4_000, health=behind, patterns=[SLOW, replace(lag, fix=None)])
    assert [one.title for one in caused.actions] == ["Fix slow polls"]


def test_more_members_than_partitions_do_not_help() -> None:
    behind = status(GroupHealth.FALLING_BEHIND, reason="chat-2: the lag grew")
    members = [member("a", {"t": (0,)}), member("b", {"t": (1,)}), member("c")]
    generations = [generation(number, members) for number in (1, 2, 3)]
    found = advise(generations, {}, health=behind)
    assert found.recommendation == "Process records faster"
    assert found.to_do.startswith(
        "More members do not help: every partition already has its own member"
    )


def test_a_failing_group_with_members_and_one_without() -> None:
    failing = status(GroupHealth.FAILING, topic=None, partition=None, reason="no generation lasted")
    found = decide(4_000, health=failing)
    assert (found.recommendation, found.verdict) == ("Find out why members leave", FIX_FIRST)
    crashing = decide(4_000, health=failing, patterns=[SLOW])
    assert [one.title for one in crashing.actions] == ["Fix slow polls"]
    gone = [*told(), generation(9, [])]
    empty = advise(gone, {}, health=failing)
    assert empty.recommendation == "Start consumers"


@pytest.mark.parametrize("health", GroupHealth)
def test_a_group_whose_policies_cannot_be_compared(health: GroupHealth) -> None:
    is_bad = health not in {GroupHealth.OK, GroupHealth.UNKNOWN}
    found = advise_uncompared(
        "g",
        told(),
        find_rebalances(told()),
        "it is a share group",
        health=status(health),
        happened="The share group has 3 members.",
        to_do="Nothing to do.",
    )
    is_sick = health in {GroupHealth.STUCK, GroupHealth.FAILING}
    assert found.verdict == (FIX_FIRST if is_sick else CANNOT_TELL)
    assert found.happened.endswith("he share group has 3 members.")
    assert found.happened.startswith("chat-2: ") == is_bad
    assert (found.to_do == "Nothing to do.") == (not is_bad)
    assert (found.recommendation == "No advice") == (not is_bad)
    assert found.downtime_ms is found.saving_ms is None
    plain = advise_uncompared("g", (), (), "it is a share group")
    assert plain.happened == "No rebalances."
    assert plain.to_do == "No advice on the policy: it is a share group."


def test_a_policy_change_in_a_few_words() -> None:
    def recommend(used: str, wanted: str) -> tuple[str, str]:
        evaluation = PolicyEvaluation(
            rows=[row(used, 500_000, actual=True), row(wanted, 10_000)],
            used=(policy_of(used),),
            alternatives={wanted: policy_of(wanted)},
        )
        found = advise(told(), {}, evaluation=evaluation, has_consumer_protocol=True)
        assert found.verdict == CHANGE
        return found.recommendation, found.actions[0].title

    assert recommend("range", "cooperative-sticky, static 45s") == (
        "cooperative-sticky, static",
        "Switch to cooperative-sticky and static membership",
    )
    assert recommend("range, static 2min", "cooperative-sticky") == (
        "cooperative-sticky, dynamic",
        "Switch to cooperative-sticky and dynamic membership",
    )
    assert recommend("range", "KIP-848 uniform, static 45s")[0] == "KIP-848 uniform, static"
    assert recommend("range, static 45s", "range, static 2min") == (
        "longer session timeout",
        "Set a session timeout of 2 min",
    )
