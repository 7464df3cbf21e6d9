"""Patterns: in two recorded runs of Kafka, in simulated groups, and in the demo's day."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from rota.engine.history.causes import CommitTimes, explain_rebalance
from rota.engine.history.facts import (
    Generation,
    GroupHealth,
    GroupHealthStatus,
    JournalRecord,
    LogLine,
    Pattern,
    PatternType,
    Rebalance,
)
from rota.engine.history.generations import read_history
from rota.engine.history.patterns import MIN_OSCILLATIONS, find_patterns
from rota.engine.history.rebalances import find_rebalances
from rota.engine.history.restarts import find_rollouts
from rota.engine.history.server_log import parse_coordinator_message
from rota.engine.model.journal_entry import ClassicEntry, OffsetCommitEntry
from rota.engine.simulator.day import GROUP_PLANS, simulate_day
from rota.engine.simulator.scenario import JoinEvent, MemberSpec, read_scenario
from rota.engine.simulator.simulation import ScenarioRunner
from rota.engine.simulator.trace import SimulatedLogLine, TraceEventType, list_log_lines
from tests.pure.history.simulated import simulate_history
from tests.support import first_recording, second_recording
from tests.support.expected_history import commit_times

MINUTE = 60_000


@dataclass(frozen=True)
class GroupEvidence:
    generations: Sequence[Generation]
    commits: CommitTimes
    lines: Sequence[LogLine]

    @property
    def rebalances(self) -> list[Rebalance]:
        return find_rebalances(self.generations)

    def patterns(self, *, with_log: bool = True, with_rollouts: bool = True) -> list[Pattern]:
        found = self.rebalances
        lines = self.lines if with_log else ()
        told = [explain_rebalance(one, self.commits, lines) for one in found]
        rollouts = find_rollouts(found, told) if with_rollouts else ()
        return find_patterns(
            found, told, rollouts, generations=self.generations, commits=self.commits
        )

    def texts(self, *, with_log: bool = True) -> list[str]:
        return [one.text for one in self.patterns(with_log=with_log)]


# the recorded runs


@cache
def recorded() -> Mapping[str, GroupEvidence]:
    """Every group with members of both runs."""
    found = {
        group: GroupEvidence(
            history.generations,
            first_recording.read_commit_times(group),
            first_recording.read_log_lines(group),
        )
        for group, history in first_recording.read_histories().items()
        if history.generations
    }
    for group in second_recording.read_rebalances():
        found[group] = GroupEvidence(
            read_history(group, second_recording.read_journal()[group], {}).generations,
            second_recording.read_commit_times(group),
            second_recording.read_log_lines(group),
        )
    return found


#: With the broker's log, and without it. All other groups are quiet.
RECORDED_PATTERNS = {
    "a-flap": ("flap-2 joined and left 6 times (about every 12 s)",) * 2,
    "a-slow": (
        "slow-1 and slow-2 exceeded max.poll.interval.ms 3 times",
        "slow-1 and slow-2 seem to have exceeded max.poll.interval.ms 3 times",
    ),
    "b-slow": (
        "slow-2 and slow-3 exceeded max.poll.interval.ms 2 times",
        "slow-2 and slow-3 seem to have exceeded max.poll.interval.ms 2 times",
    ),
    "a-heldback": ("held-1 and held-3 joined late 2 times, and the group waited up to 9 s", None),
    "a-crash": (
        "crash-jvm, crash-2 and crash-1 crashed or hung 3 times",
        # both that crashed at the end left in the same rebalance
        "crash-jvm, crash-2 and 2 more seem to have crashed or hung 3 times",
    ),
    # one was killed, the other was closed: a static member does not tell
    "b-static": (
        "st-2 and st-3 stopped sending heartbeats 2 times",
        "st-2 and st-3 seem to have stopped sending heartbeats 2 times",
    ),
    "a-roll-dyn": (
        "a rolling deploy replaced 4 members in 21 s",
        "a rolling deploy replaced 4 members in 20 s",
    ),
    "a-roll-static": ("a rolling deploy replaced 4 members in 12 s",) * 2,
    "b-deploy": (
        "a rolling deploy replaced 4 members in 59 s",
        "a rolling deploy replaced 4 members in 57 s",
    ),
    "a-upgrade": ("2 rolling deploys replaced 3 members each",) * 2,
    "a-migrate": ("2 rolling deploys replaced 2 members each",) * 2,
}


def test_the_recorded_groups_are_there() -> None:
    assert len(recorded()) == 34 + 16
    assert RECORDED_PATTERNS.keys() <= recorded().keys()


@pytest.mark.parametrize("with_log", [True, False])
def test_patterns_of_the_recorded_groups(with_log: bool) -> None:
    for group, history in recorded().items():
        expected = RECORDED_PATTERNS.get(group, (None, None))[0 if with_log else 1]

        assert history.texts(with_log=with_log) == ([] if expected is None else [expected]), group


def test_the_times_of_a_pattern() -> None:
    (found,) = recorded()["a-flap"].patterns()
    joined = [one.after.at for one in recorded()["a-flap"].rebalances if len(one.after.members) > 1]

    assert found.pattern is PatternType.REJOINING
    assert (found.member, found.times) == ("flap-2", 6)
    assert found.since == joined[0]
    assert found.until > joined[-1]
    assert found.every_ms is not None
    assert abs(found.every_ms - 12_000) < 200
    assert found.fix is not None


def test_a_member_that_joined_late_is_not_named_without_its_commits() -> None:
    history = replace(recorded()["a-heldback"], commits={})

    assert history.texts() == ["a member joined late 2 times, and the group waited up to 9 s"]


# simulated groups: four pods whose names and hosts differ at each start


def simulate(
    *events: dict[str, Any],
    client_id: str = "{name}-{start}",
    strategy: str = "range",
    **fields: Any,
) -> GroupEvidence:
    end = max([30, *(int(event["at"][:-1]) // 60 for event in events)]) + 20
    scenario = read_scenario(
        {
            "duration": f"{end}m",
            "strategy": strategy,
            "topics": {"t": 12},
            "members": [{"name": "m", "count": 4, "auto_commit": True, **fields}],
            "events": list(events),
        }
    )

    def changed(members: MemberSpec) -> MemberSpec:
        return replace(members, client_id=client_id, commit_interval=MINUTE)

    changed_events = tuple(
        replace(event, specs={name: changed(one) for name, one in event.specs.items()})
        if isinstance(event, JoinEvent)
        else event
        for event in scenario.events
    )
    members = tuple(map(changed, scenario.members))
    trace = ScenarioRunner(replace(scenario, members=members, events=changed_events)).run().trace
    written = ((one.at, one.detail) for one in trace if one.type is TraceEventType.JOURNAL)
    return collect_evidence("group", written, list_log_lines(trace))


def collect_evidence(group: str, written: Any, log: Sequence[SimulatedLogLine]) -> GroupEvidence:
    entries: list[tuple[int, ClassicEntry]] = list(written)
    records = [JournalRecord(offset, at, entry) for offset, (at, entry) in enumerate(entries)]
    members = [one for one in records if not isinstance(one.entry, OffsetCommitEntry)]
    lines = [parse_coordinator_message(line.at, line.text) for line in log]
    return GroupEvidence(
        read_history(group, members, {}).generations,
        commit_times(records),
        [line for line in lines if isinstance(line, LogLine)],
    )


def at(minutes: float, **event: Any) -> dict[str, Any]:
    return {"at": f"{round(minutes * 60)}s", **event}


def scale(
    *names: str, rises: Sequence[float], stay: float = 11, end: str = "leave"
) -> list[dict[str, Any]]:
    """These members join at each of these minutes, and leave again."""
    return [
        event
        for rise in rises
        for event in (at(rise, join=list(names)), at(rise + stay, **{end: list(names)}))
    ]


EVERY_25 = [10 + 25 * number for number in range(8)]


@pytest.mark.parametrize("client_id", ["{name}-{start}", "consumer-group-1"])
def test_an_autoscaler(client_id: str) -> None:
    (found,) = simulate(*scale("m-4", rises=EVERY_25), client_id=client_id).patterns()

    assert found.pattern is PatternType.AUTOSCALER
    assert found.text == (
        "an autoscaler seems to have added and removed a member 8 times "
        "(4 to 5 members, about every 25 min)"
    )
    assert (found.member, found.times) == (None, 8)
    assert found.every_ms is not None
    assert abs(found.every_ms - 25 * MINUTE) < 5_000
    assert found.fix is not None


def test_an_autoscaler_of_several_members_at_a_time() -> None:
    at_once = scale("m-4", "m-5", rises=EVERY_25)
    one_by_one = [
        *scale("m-4", rises=EVERY_25, stay=14),
        *scale("m-5", rises=[one + 1 for one in EVERY_25]),
    ]

    for events in (at_once, one_by_one):
        (text,) = simulate(*events).texts()
        assert text.startswith(
            "an autoscaler seems to have added and removed 2 members 8 times (4 to 6 members"
        )


def test_other_events_do_not_hide_an_autoscaler() -> None:
    history = simulate(
        *scale("m-4", rises=EVERY_25),
        at(50, crash="m-0"),
        at(54, join="m-0"),
        at(123, deploy="m", between="20s"),
    )
    texts = history.texts()

    assert texts[0].startswith("an autoscaler seems to have added and removed a member 8 times")
    assert texts[1].startswith("a rolling deploy replaced 4 members")


def test_without_a_rhythm_it_is_less_sure() -> None:
    dice = random.Random(5)
    rises = [10.0]
    while len(rises) < 9:
        rises.append(rises[-1] + 20 + dice.expovariate(1 / 40))
    (found,) = simulate(*scale("m-4", rises=rises)).patterns()

    assert found.text == (
        "perhaps an autoscaler added and removed a member 9 times "
        "(4 to 5 members; at irregular times)"
    )


def test_a_few_times_show_no_rhythm() -> None:
    few = EVERY_25[:MIN_OSCILLATIONS]

    (text,) = simulate(*scale("m-4", rises=few)).texts()
    assert text.endswith(" 4 times (4 to 5 members; too few times to be regular)")
    assert simulate(*scale("m-4", rises=few[1:])).texts() == []


def test_a_pod_with_a_name_of_its_own_may_be_an_autoscaler_s() -> None:
    (found,) = simulate(*scale("m-4", rises=EVERY_25), client_id="{name}").patterns()

    assert found.member == "m-4"
    assert found.text.startswith("perhaps an autoscaler added and removed a member")
    assert found.text.endswith("; m-4 each time, on another host)")


def test_the_same_process_is_no_autoscaler() -> None:
    """Hosts do not change here."""
    history = simulate(*scale("m-4", rises=EVERY_25), client_id="{name}")
    generations = [
        replace(one, members=tuple(replace(each, client_host="/10.0.0.1") for each in one.members))
        for one in history.generations
    ]

    assert replace(history, generations=generations).texts() == [
        "m-4 joined and left 8 times (about every 25 min)"
    ]


def test_who_cannot_be_told_from_others_is_not_named() -> None:
    history = simulate(*scale("m-4", rises=EVERY_25), client_id="consumer-group-1")
    generations = [
        replace(one, members=tuple(replace(each, client_host="/10.0.0.1") for each in one.members))
        for one in history.generations
    ]
    (text,) = replace(history, generations=generations).texts()

    assert text.startswith("perhaps an autoscaler added and removed a member")
    assert text.endswith("; client ids and hosts do not distinguish the members)")


def test_a_group_that_is_started_again_and_again() -> None:
    events = at(5, leave="m"), *scale("m-0", rises=EVERY_25)
    (text,) = simulate(*events, count=1).texts()

    assert text.startswith(
        "an autoscaler or a scheduled job seems to have added and removed a member "
    )


def test_members_that_crash_are_no_autoscaler() -> None:
    (found,) = simulate(*scale("m-4", rises=EVERY_25, end="crash")).patterns()

    assert found.pattern is PatternType.CRASHES


def test_a_member_that_ends_and_is_replaced_may_be_another_reason() -> None:
    restarts = [at(minute, restart="m-2", down="20s") for minute in EVERY_25]
    (found,) = simulate(*restarts).patterns()

    assert found.text.startswith("an autoscaler, or a process that ends and is replaced, added")


def test_replaced_members_are_no_autoscaler() -> None:
    in_turn = [at(10 + 25 * n, restart=f"m-{n % 4}", down="20s") for n in range(8)]
    surge = simulate(at(10, deploy="m", surge=True))

    assert simulate(*in_turn).texts() == []
    assert surge.patterns(with_rollouts=False) == []


def test_scaling_once_a_day_is_no_pattern() -> None:
    day = 24 * 60
    events = scale("m-4", "m-5", rises=[60 + day * number for number in range(6)], stay=600)

    assert simulate(*events, auto_commit=False, heartbeat="15s").texts() == []


def test_a_crash_loop() -> None:
    loop = [at(10 + 5 * n, crash="m-2") for n in range(6)]
    joins = [at(12 + 5 * n, join="m-2") for n in range(6)]
    (found,) = simulate(*loop, *joins, client_id="{name}").patterns()

    assert (found.pattern, found.member, found.times) == (PatternType.CRASHES, "m-2", 6)
    assert found.text == "m-2 crashed or hung 6 times (about every 5 min)"


def test_two_crashes_that_are_far_apart_are_not_in_a_row() -> None:
    events = [at(minute, restart="m-2", down="5s") for minute in (5, 8)]
    crashes = [
        event for n in (0, 50) for event in (at(10 + n, crash="m-2"), at(15 + n, join="m-2"))
    ]

    assert simulate(*events, *crashes).texts() == []


def test_slow_polls_of_one_member() -> None:
    slow = at(10, slow="m-1", processing="80s", **{"for": "12m"})
    (found,) = simulate(slow, max_poll="60s", client_id="{name}").patterns()

    assert (found.pattern, found.member) == (PatternType.SLOW_POLLS, "m-1")
    assert found.text.startswith(f"m-1 exceeded max.poll.interval.ms {found.times} times")
    assert found.fix is not None


def test_one_slow_poll_is_no_pattern() -> None:
    assert simulate(at(10, stall="m-1", **{"for": "80s"}), max_poll="60s").texts() == []


ORDINARY = [event for n in (20, 30) for event in (at(n, leave="x-0"), at(n + 5, join="x-0"))]


@pytest.mark.parametrize(
    ("strategy", "auto_commit", "name"),
    [
        ("range", True, "m-1"),
        ("range", False, "a member"),
        # members go on committing while others join
        ("cooperative-sticky", True, "a member"),
    ],
)
def test_a_member_that_joins_late(strategy: str, auto_commit: bool, name: str) -> None:
    late = at(10, stall="m-1", **{"for": "20s"}), at(10 + 2 / 60, join="x-0", like="m")
    history = simulate(
        *late, *ORDINARY, strategy=strategy, auto_commit=auto_commit, client_id="{name}"
    )

    assert history.texts() == [f"{name} joined late, and the group waited 18 s"]
    assert history.texts(with_log=False) == []  # the journal does not have the start


def test_the_only_member_that_can_have_been_late() -> None:
    late = at(10, stall="m-1", **{"for": "20s"}), at(10 + 2 / 60, leave="m-0")
    history = simulate(*late, count=2, auto_commit=False, client_id="{name}")

    assert history.texts() == ["m-1 joined late, and the group waited 18 s"]


def test_a_dead_member_holds_the_others_back() -> None:
    events = at(10, crash="m-1"), at(10 + 2 / 60, join="x-0", like="m")
    (found,) = simulate(*events, *ORDINARY, client_id="{name}").patterns()

    assert found.pattern is PatternType.LATE_JOIN
    assert found.text.startswith("a member joined late, and the group waited ")


def test_usual_joins_are_not_late() -> None:
    many = [
        at(5 * n, **event) for n in range(2, 14, 2) for event in ({"join": "x-0", "like": "m"},)
    ]
    leaves = [at(5 * n, leave="x-0") for n in range(3, 14, 2)]
    kinds = [
        one.pattern
        for one in simulate(*many, *leaves, heartbeat="12s").patterns()
        if one.pattern is PatternType.LATE_JOIN
    ]

    assert kinds == []


def test_two_joins_of_members_with_few_heartbeats_are_not_late() -> None:
    events = at(10, join="x-0", like="m"), at(40, leave="x-0")
    found = simulate(*events, heartbeat="10s", session="30s").patterns()

    assert [one for one in found if one.pattern is PatternType.LATE_JOIN] == []


def test_the_initial_delay_is_no_late_join() -> None:
    assert simulate(apart="2s").texts() == []


def test_a_process_that_comes_again_and_again() -> None:
    """Not for its deploys."""
    restarts = [at(minute, restart="m-1", down="10s") for minute in (10, 17, 40)]
    deploys = [at(minute, deploy="m", down="5s") for minute in (10, 40, 70)]

    assert simulate(*restarts, client_id="{name}").texts() == ["m-1 joined and left 3 times"]
    assert simulate(*restarts[1:], client_id="{name}").texts() == []
    assert simulate(*deploys, client_id="{name}").texts() == [
        "3 rolling deploys replaced 4 members each"
    ]


def test_many_members_that_come_again_and_again_are_one_pattern() -> None:
    everyone = [f"m-{number}" for number in range(4)]
    restarts = [at(minute, restart=everyone, down="10s") for minute in (10, 27, 40)]
    (found,) = simulate(*restarts, client_id="{name}").patterns()

    assert (found.member, found.text) == (None, "4 members joined and left up to 3 times each")


def test_a_static_deploy_and_a_restart() -> None:
    history = simulate(at(10, deploy="m", down="5s"), static=True)
    (found,) = history.patterns()

    assert len(history.rebalances) == 1
    assert found.text == "a rolling deploy replaced 4 members in 105 s"
    assert found.fix is None  # static members cost nothing
    assert simulate(at(10, restart="m-1", down="5s"), static=True).texts() == []


def test_a_static_deploy_of_which_some_members_are_late() -> None:
    late = [at(10 + n, restart=f"m-{n}", down="5s" if n < 3 else "70s") for n in range(6)]
    texts = simulate(*late, count=6, static=True).texts()

    assert texts == [
        # until the sessions of the fifth and the sixth ended
        "a member joined late 2 times, and the group waited up to 35 s",
        "a rolling deploy replaced 6 members in 6 min",
    ]


def test_nothing_happens() -> None:
    assert simulate().texts() == []
    assert find_patterns([], []) == []


@pytest.mark.parametrize("seed", range(12))
def test_random_histories(seed: int) -> None:
    """Members come and go by chance here."""
    history = simulate_history(seed)
    told = [explain_rebalance(one, history.commits, history.lines) for one in history.steps]
    times = [one.after.at for one in history.steps]
    for found in find_patterns(history.steps, told, find_rollouts(history.steps, told)):
        assert times[0] <= found.since <= found.until <= times[-1]
        assert 0 < found.times <= len(times)
        assert "an autoscaler seems" not in found.text


# stuck partitions and growing lag

HOUR = 60 * MINUTE
HEALTHY = GroupHealthStatus(
    group="g",
    health=GroupHealth.OK,
    since=None,
    topic=None,
    partition=None,
    lag=12,
    reason="",
    worst=GroupHealth.OK,
    worst_since=None,
    worst_until=None,
    worst_topic=None,
    worst_partition=None,
    worst_reason="",
)


def patterns_of_health(**fields: Any) -> list[Pattern]:
    status = replace(HEALTHY, topic="t", partition=3, worst_topic="t", worst_partition=5, **fields)
    return find_patterns([], [], health=status, end=10 * HOUR)


@pytest.mark.parametrize("health", [GroupHealth.OK, GroupHealth.FAILING, GroupHealth.UNKNOWN])
def test_no_pattern_of_another_health(health: GroupHealth) -> None:
    assert patterns_of_health(health=health, worst=health) == []


def test_a_stuck_partition() -> None:
    stuck = GroupHealth.STUCK
    (found,) = patterns_of_health(health=stuck, since=9 * HOUR, worst=stuck)

    assert found.pattern is PatternType.STUCK_PARTITION
    assert (found.topic, found.partition) == ("t", 3)
    assert (found.since, found.until) == (9 * HOUR, 10 * HOUR)
    assert found.text == "t-3 has been stuck for 1 h (the group is 12 records behind)"


def test_a_lag_that_grew_and_one_that_grows() -> None:
    growing = GroupHealth.FALLING_BEHIND
    period = {"worst_since": 2 * HOUR, "worst_until": 5 * HOUR}
    (now,) = patterns_of_health(health=growing, since=8 * HOUR, worst=growing, **period)
    (past,) = patterns_of_health(worst=growing, **period)

    assert now.text == "the lag of t-3 has grown for 2 h (the group is 12 records behind)"
    assert past.text == "the lag of t-5 grew for 3 h"
    assert (past.since, past.until) == (2 * HOUR, 5 * HOUR)


def test_what_was_worse_comes_first() -> None:
    found = patterns_of_health(
        health=GroupHealth.FALLING_BEHIND, worst=GroupHealth.STUCK, worst_since=0, worst_until=HOUR
    )

    assert [one.pattern for one in found] == [PatternType.STUCK_PARTITION, PatternType.GROWING_LAG]


def test_health_comes_before_rebalances() -> None:
    history = recorded()["a-roll-dyn"]
    told = [explain_rebalance(one, {}, history.lines) for one in history.rebalances]
    rollouts = find_rollouts(history.rebalances, told)
    status = replace(HEALTHY, health=GroupHealth.STUCK, worst=GroupHealth.STUCK)
    found = find_patterns(history.rebalances, told, rollouts, health=status)

    assert [one.pattern for one in found] == [
        PatternType.STUCK_PARTITION,
        PatternType.ROLLING_DEPLOY,
    ]
    assert found[0].text == "a partition has been stuck (the group is 12 records behind)"


@pytest.mark.parametrize(("share", "is_caused"), [(0.6, True), (0.4, False)])
def test_lag_that_grew_mostly_while_members_polled_too_slowly_is_their_consequence(
    share: float, is_caused: bool
) -> None:
    history = recorded()["a-slow"]
    told = [explain_rebalance(one, {}, history.lines) for one in history.rebalances]
    (slow,) = find_patterns(history.rebalances, told)
    until = slow.since + round((slow.until - slow.since) / share)
    status = replace(
        HEALTHY,
        worst=GroupHealth.FALLING_BEHIND,
        worst_since=slow.since,
        worst_until=until,
        worst_topic="t",
    )
    found = find_patterns(history.rebalances, told, health=status, end=until)

    order = [PatternType.SLOW_POLLS, PatternType.GROWING_LAG]
    assert [one.pattern for one in found] == (order if is_caused else order[::-1])
    (lag,) = (one for one in found if one.pattern is PatternType.GROWING_LAG)
    assert (lag.fix is None) == is_caused


# the demo's day

#: Beginnings of the texts, as in the day's script.
DAY_PATTERNS = {
    "search-indexer": "an autoscaler seems to have added and removed a member 27 times "
    "(4 to 5 members, about every 25 min)",
    "cart-reminders": "an autoscaler seems to have added and removed a member 10 times "
    "(2 to 3 members, about every 48 min)",
    "image-resizer": None,
    "loyalty-points": "loyalty-points-2-",
    "pricing-engine": "consumer-pricing-engine-1 (10.",
    "fraud-scoring": "fraud-scoring-2-",
    "orders-billing": "a rolling deploy replaced 12 members in 10 min",
    "geo-enrichment": "2 rolling deploys replaced 6 members each",
    "payments-ledger": "a rolling deploy replaced 6 members in 7 min",
    "label-printer": "label-printer-2-",
    "stock-report": "an autoscaler or a scheduled job seems to have added and removed a member 12 ",
    "customer-cache": None,
    "chat-moderation": None,
}


@pytest.mark.parametrize("group", DAY_PATTERNS)
def test_the_demo_s_groups(group: str) -> None:
    (plan,) = (one for one in GROUP_PLANS if one.group == group)
    (day,) = simulate_day(seed=0, start=1_767_571_200_000, plans=[plan])
    texts = collect_evidence(group, day.journal, day.log).texts()
    expected = DAY_PATTERNS[group]

    assert len(texts) == (0 if expected is None else 1)
    assert all(text.startswith(expected or "") for text in texts)
