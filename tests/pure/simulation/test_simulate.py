"""``rota.simulate``: what came of a scenario, in numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.cli.simulate_scenario import rebalance_reason
from rota.engine.coordinator.notes import GroupNote, MembersLeft, RebalanceStarted
from rota.engine.coordinator.state import GroupState
from rota.engine.history.facts import DowntimeReason
from rota.engine.simulator.rebalances import find_simulated_rebalances, read_simulated_history
from rota.engine.simulator.scenario import read_scenario
from rota.engine.simulator.seeded_random import make_uuid
from rota.engine.simulator.simulation import policy_label
from rota.engine.simulator.timeline import ProcessState, ProcessStateChange, build_process_timelines
from rota.engine.simulator.trace import TraceEventType, TraceRecord
from rota.errors import InputError


def scenario(strategy: str, events: list[dict[str, Any]], **member: Any) -> dict[str, Any]:
    """Four members, twelve partitions, twenty minutes; no jitter, heartbeats to the millisecond."""
    return {
        "duration": "20m",
        "strategy": strategy,
        "heartbeat_drift": "0s",
        "network": {"latency": "1ms", "jitter": "0s", "append": "1ms"},
        "topics": {"t": 12},
        "members": [{"name": "m", "count": 4, **member}],
        "events": events,
    }


def simulate_crash(strategy: str, **member: Any) -> rota.Simulation:
    return rota.simulate(scenario(strategy, [{"at": "5m", "crash": "m-1"}], **member))


def test_a_group_that_is_left_alone_has_one_rebalance() -> None:
    quiet = rota.simulate(scenario("range", []))
    (first,) = quiet.rebalances
    assert (first.generations, first.members, first.cost.moved, first.cost.moves_needed) == (
        (1,),
        4,
        0,
        0,
    )
    assert first.finished
    assert (first.start, first.end) == (6, 6_010)  # the initial delay, twice three seconds
    assert (quiet.total.downtime_ms, quiet.worst, quiet.idle, quiet.downtime) == (0, None, 0, ())


def test_after_a_crash_its_partitions_are_down_for_the_session() -> None:
    found = simulate_crash("sticky")
    _, rebalance = found.rebalances
    assert rebalance.reason == "the session of m-1 expired"
    assert (rebalance.members, rebalance.cost.orphaned, rebalance.cost.moved) == (3, 3, 0)
    orphans = [one for one in found.downtime if one.reason is DowntimeReason.SILENT]
    assert len(orphans) == 3
    # the last heartbeat came up to three seconds before, and the others hear of it by theirs
    assert all(42_000 < one.milliseconds <= 48_100 for one in orphans)
    assert all(abs(one.since - 300_000) <= 3_000 for one in orphans)
    assert found.worst in orphans
    assert {found.processes[one.member_id or ""] for one in orphans} == {"m-1"}


def test_eager_takes_all_partitions_down_and_cooperative_those_that_are_concerned() -> None:
    eager, cooperative = simulate_crash("sticky"), simulate_crash("cooperative-sticky")
    assert len(eager.downtime_by_partition) == 12
    assert len(cooperative.downtime_by_partition) == 3
    assert cooperative.total.downtime_ms < eager.total.downtime_ms
    assert (cooperative.revoked, eager.revoked) == (0, 9)


def test_the_two_rounds_of_a_cooperative_rebalance_are_one() -> None:
    found = rota.simulate(scenario("cooperative-sticky", [{"at": "5m", "join": "m-4"}]))
    _, rebalance = found.rebalances
    assert (rebalance.generations, len(rebalance.generations), rebalance.attempts) == ((2, 3), 2, 2)
    assert (rebalance.cost.moved, rebalance.cost.moves_needed) == (2, 2)
    assert [one.reason for one in found.downtime] == [DowntimeReason.MOVED] * 2
    # what moves is down until the others hear, by their next heartbeats, of the second round
    assert all(3_000 <= one.milliseconds <= 3_010 for one in found.downtime)


def test_the_two_rounds_are_one_where_a_single_member_gives_something_up() -> None:
    given = scenario("cooperative-sticky", [{"at": "5m", "join": "m-5"}])
    given["topics"], given["members"][0]["count"] = {"t": 6}, 5
    _, rebalance = rota.simulate(given).rebalances
    assert (len(rebalance.generations), rebalance.cost.moved, rebalance.cost.moves_needed) == (
        2,
        1,
        1,
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_two_rounds_are_one_where_the_only_member_gives_half_of_all(seed: int) -> None:
    given = scenario("cooperative-sticky", [{"at": "5m", "join": "m-1"}])
    given["members"][0]["count"] = 1
    _, rebalance = rota.simulate(given, seed=seed).rebalances
    assert (len(rebalance.generations), rebalance.cost.moved, rebalance.cost.moves_needed) == (
        2,
        6,
        6,
    )


@pytest.mark.parametrize(("strategy", "moved"), [("range", 3), ("roundrobin", 8), ("sticky", 2)])
def test_moves_against_the_fewest(strategy: str, moved: int) -> None:
    # static members come in the order of their names
    found = rota.simulate(scenario(strategy, [{"at": "5m", "join": "m-4"}]), static=True)
    assert found.rebalances[1].cost.moves_needed == 2
    assert found.rebalances[1].cost.moved == moved


def test_a_static_restart_is_no_rebalance_but_its_partitions_wait() -> None:
    events = [{"at": "5m", "restart": "m-1", "down": "20s"}]
    found = rota.simulate(scenario("range", events), static=True)
    assert len(found.rebalances) == 1
    assert [one.reason for one in found.downtime] == [DowntimeReason.RESTARTED] * 3
    # it commits when it closes
    assert all(0 <= one.since - 300_000 < 10 for one in found.downtime)
    assert all(abs(one.milliseconds - 20_007) < 10 for one in found.downtime)
    dynamic = rota.simulate(scenario("range", events), static=False)
    assert len(dynamic.rebalances) == 3


def test_a_restart_that_takes_too_long() -> None:
    events = [{"at": "5m", "restart": "m-1", "down": "90s"}]
    found = rota.simulate(scenario("cooperative-sticky", events, static=True))
    assert [rebalance.reason for rebalance in found.rebalances[1:]] == [
        "the session of m-1 expired",
        "member m-1 joins",
    ]


def test_a_rolling_deploy_touches_every_pod_once() -> None:
    deploy = {"at": "5m", "deploy": "m", "down": "5s", "between": "1m"}
    found = rota.simulate(scenario("range", [deploy]))
    reasons = [rebalance.reason for rebalance in found.rebalances[1:]]
    assert reasons[::2] == [f"member m-{n} leaves" for n in range(4)]
    assert all(reason.startswith(f"member m-{n} joins") for n, reason in enumerate(reasons[1::2]))
    started = [record for record in found.trace if record.type == "started" and record.at]
    # each commits before it leaves: a commit takes four milliseconds
    assert [record.at for record in started] == [305_005, 370_010, 435_015, 500_020]


def test_a_deploy_with_surge_starts_the_new_one_first() -> None:
    deploy = {"at": "5m", "deploy": "m", "between": "1m", "surge": True}
    found = rota.simulate(scenario("cooperative-sticky", [deploy]))
    assert {name for name in build_process_timelines(found.trace) if "." in name} == {
        f"m-{n}.2" for n in range(4)
    }
    assert max(rebalance.members for rebalance in found.rebalances) == 5
    assert found.rebalances[-1].members == 4
    again = rota.simulate(
        scenario("range", [deploy, {"at": "15m", "deploy": "m-0", "surge": True}])
    )
    assert "m-0.3" in build_process_timelines(again.trace)


@pytest.mark.parametrize("surge", [False, True])
def test_a_deploy_starts_a_pod_that_has_crashed(surge: bool) -> None:
    events: list[dict[str, Any]] = [
        {"at": "5m", "crash": "m-1"},
        {"at": "6m", "leave": "m-2"},
        {"at": "8m", "deploy": "m", "between": "30s", "surge": surge},
    ]
    found = rota.simulate(scenario("range", events))
    assert found.rebalances[-1].members == 3  # one left, and stays away
    assert build_process_timelines(found.trace)["m-1"][-1].state is ProcessState.READING
    assert [note.partition(": ")[2] for note in found.notes] == [
        "m-2 does not run, so it cannot restart"
    ]


def test_surge_under_static_ids_fences_the_old_ones() -> None:
    deploy = {"at": "5m", "deploy": "m", "between": "1m", "surge": True}
    found = rota.simulate(scenario("range", [deploy], static=True))
    assert len(found.rebalances) == 1
    assert len(found.notes) == 4
    assert "m-0 raised Fenced" in found.notes[0]


def test_a_stuck_application_is_replaced_after_the_poll_interval() -> None:
    events = [{"at": "5m", "stall": "m-1", "for": "8m"}]
    found = rota.simulate(scenario("sticky", events, processing="1s"))
    not_polled = [one for one in found.downtime if one.reason is DowntimeReason.NOT_POLLED]
    assert [one.milliseconds for one in not_polled] == [300_000] * 3
    assert found.total.not_polled_ms == 900_000
    left = [one for one in found.downtime if one.reason is DowntimeReason.LEFT]
    assert {one.since for one in left} == {one.until for one in not_polled}
    assert all(one.milliseconds < 4_100 for one in left)
    assert found.total.downtime_ms < 36_000
    assert found.rebalances[1].reason == "member m-1 polled too late"


def test_work_that_takes_too_long_counts_as_being_stuck() -> None:
    slow = {"at": "5m", "slow": "m-1", "processing": "6m", "for": "1s"}
    found = rota.simulate(scenario("sticky", [slow], processing="1s"))
    # from the poll before which it went to work
    stuck = [one for one in found.downtime if one.reason is DowntimeReason.NOT_POLLED]
    assert len(stuck) == 3
    assert all(300_000 <= one.since <= 301_000 for one in stuck)
    asleep = [
        change
        for change in build_process_timelines(found.trace)["m-1"]
        if change.state is ProcessState.ASLEEP
    ]
    assert asleep[0].at in range(stuck[0].since - 10, stuck[0].since + 10)
    fast = {**slow, "processing": "4m"}
    assert rota.simulate(scenario("sticky", [fast], processing="1s")).downtime == ()


def test_idle_members_are_counted() -> None:
    crowd = rota.simulate({**scenario("range", []), "topics": {"t": 3}})
    assert crowd.idle == 1
    assert len(crowd.rebalances[0].idle) == 1


def test_partitions_are_added() -> None:
    grown = [{"at": "5m", "partitions": {"t": 16}}]
    found = rota.simulate(scenario("sticky", grown))
    _, rebalance = found.rebalances
    # the leader looks every five minutes, and commits before it joins
    assert rebalance.start == 600_004
    assert "cached metadata has changed" in rebalance.reason
    assert (rebalance.cost.moved, rebalance.cost.moves_needed) == (0, 0)


def test_a_subscription_changes() -> None:
    changed = {**scenario("range", [{"at": "5m", "subscribe": "m-1", "topics": ["u"]}])}
    changed["topics"] = {"t": 12, "u": 1}
    changed["members"][0]["topics"] = ["t"]
    found = rota.simulate(changed)
    _, rebalance = found.rebalances
    assert "subscription has changed" in rebalance.reason


def test_the_coordinator_may_be_away() -> None:
    found = rota.simulate(scenario("range", [{"at": "5m", "coordinator_down": "30s"}]))
    assert len(found.rebalances) == 1
    assert found.downtime == ()


def test_a_coordinator_that_is_away_cannot_go_away() -> None:
    events = [{"at": "5m", "coordinator_down": "60s"}, {"at": "330s", "coordinator_down": "60s"}]
    found = rota.simulate(scenario("range", events))
    assert found.notes == ("at 0:05:30: the coordinator is down already",)
    assert len(found.rebalances) == 1


def test_what_cannot_be_done_is_said() -> None:
    events = [
        {"at": "5m", "crash": "m-1"},
        {"at": "6m", "leave": "m-1"},
        {"at": "7m", "join": "m-0"},
        {"at": "8m", "restart": "m-1"},
    ]
    assert rota.simulate(scenario("range", events)).notes == (
        "at 0:06:00: m-1 does not run, so it cannot leave",
        "at 0:07:00: m-0 runs already, so it is not started",
        "at 0:08:00: m-1 does not run, so it cannot restart",
    )


def test_a_rebalance_under_way_at_the_end_is_told_apart() -> None:
    late = scenario("range", [{"at": "19m59s", "join": "m-4"}])
    late["members"][0]["processing"] = "50s"
    found = rota.simulate(late)
    assert not found.rebalances[-1].finished
    assert found.rebalances[-1].end == 1_200_000


def test_a_strategy_that_fails_is_reported() -> None:
    found = rota.simulate(scenario("range", []), Broken)
    assert found.strategy == "broken"
    assert any(
        "raised StrategyFailed: strategy 'broken': assign raised KeyError" in n for n in found.notes
    )
    assert found.generations == 0


def test_the_result_is_plain_values() -> None:
    found = simulate_crash("cooperative-sticky").to_dict()
    assert json.loads(json.dumps(found)) == found
    documented = {"policy", "strategy", "rebalances", "generations", "moved", "moves_needed"}
    documented |= {"downtime_ms", "downtime_by_reason", "not_polled_ms", "delayed_records"}
    documented |= {"added_lag_ms", "worst_ms", "revoked", "idle", "timeline", "partitions"}
    assert documented <= set(found)
    (times,) = {entry["times"] for entry in found["partitions"].values()}  # type: ignore[attr-defined]
    assert times == 1


def test_the_same_seed_gives_the_same_result() -> None:
    text = scenario("range", [{"at": "5m", "crash": "m-1"}])
    assert rota.simulate(text, seed=4).to_dict() == rota.simulate(text, seed=4).to_dict()
    assert rota.simulate(text, seed=4).trace != rota.simulate(text, seed=5).trace


def test_text_mapping_and_scenario_are_taken() -> None:
    text = 'duration = "1m"\n[topics]\nt = 2\n[[members]]\nname = "a"\n'
    expected = rota.simulate(text).to_dict()
    mapping = {"duration": "1m", "topics": {"t": 2}, "members": [{"name": "a"}]}
    assert rota.simulate(mapping).to_dict() == expected
    assert rota.simulate(read_scenario(text)).to_dict() == expected


@pytest.mark.parametrize(
    "given", ["examples/crash.toml", Path("examples/crash.toml"), b"duration"], ids=type
)
def test_a_path_is_no_scenario(given: Any) -> None:
    with pytest.raises(InputError, match="^scenario: pass the text of a scenario.* read first"):
        rota.simulate(given)


def test_policies_have_labels() -> None:
    assert policy_label(None, "exact", None) == "as in the scenario"
    assert policy_label(None, "kafka", False) == "as in the scenario, dynamic"
    assert policy_label("range", "exact", True) == "range, static"
    java = ["org.apache.kafka.clients.consumer.StickyAssignor"]
    assert policy_label(java, "kafka", None) == "sticky"
    assert policy_label(java, "exact", None) == "sticky (exact)"
    assert policy_label("cooperative-sticky, range", "kafka", None) == "cooperative-sticky, range"
    with pytest.raises(InputError, match="unknown strategy"):
        policy_label("rng", "exact", None)


def test_a_wrong_strategy_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="unknown strategy"):
        rota.simulate(scenario("range", []), "rng")


def test_lanes_say_what_each_process_did() -> None:
    found = rota.simulate(
        scenario(
            "range", [{"at": "5m", "pause": "m-1", "for": "10s"}, {"at": "6m", "crash": "m-1"}]
        )
    )
    lane = build_process_timelines(found.trace)["m-1"]
    assert [(change.state, change.load) for change in lane] == [
        (ProcessState.JOINING, 0),
        (ProcessState.READING, 3),
        (ProcessState.ASLEEP, 3),
        (ProcessState.READING, 3),
        (ProcessState.GONE, 3),
    ]
    assert lane[2] == ProcessStateChange(300_000, ProcessState.ASLEEP, 3)


def test_an_owner_that_is_frozen_within_its_session_leaves_no_trace() -> None:
    found = rota.simulate(scenario("range", [{"at": "5m", "pause": "m-1", "for": "10s"}]))
    assert found.downtime == ()
    longer = rota.simulate(scenario("range", [{"at": "5m", "pause": "m-1", "for": "90s"}]))
    silent = [one for one in longer.downtime if one.reason is DowntimeReason.SILENT]
    assert len(silent) == 3
    assert all(abs(one.since - 300_000) <= 3_000 for one in silent)


def test_a_reason_names_processes_by_their_ids_whatever_others_were_called() -> None:
    ids = {f"m-{n}": f"a client-{make_uuid(n)}" for n in range(3)}
    left = MembersLeft((ids["m-1"], ids["m-2"], make_uuid(9)))
    started = RebalanceStarted(left, GroupState.STABLE)
    note = GroupNote("group", 0, GroupState.PREPARING, started)
    trace = [
        TraceRecord(0, TraceEventType.IDENTITY, name, member_id) for name, member_id in ids.items()
    ]
    trace += [
        TraceRecord(
            0, TraceEventType.IDENTITY, "m-3", ""
        ),  # it has been told that its id is unknown
        TraceRecord(1, TraceEventType.NOTE, "group", note),
    ]
    history = read_simulated_history("group", trace)
    (found,) = find_simulated_rebalances(history, trace, end=2)
    assert found.reason == f"members leave: m-1, m-2, {make_uuid(9)}"


class Broken(rota.PartitionAssignor):
    """Raises as soon as it is asked."""

    name = "broken"

    def assign_partitions(self, partitions: Any, subscriptions: Any) -> Any:
        raise KeyError("by design")


def test_reasons_stay_readable_where_a_member_has_lost_its_id() -> None:
    found = rota.simulate(scenario("range", [{"at": "5m", "join": "m-0"}]), Broken)
    assert found.rebalances
    assert all(rebalance.reason.count("m-") <= 1 for rebalance in found.rebalances)


def test_what_a_failing_strategy_leaves_unread_is_no_downtime() -> None:
    found = rota.simulate(scenario("range", []), Broken)
    assert found.failed == ("m-0", "m-1", "m-2", "m-3")
    assert len(found.unread) == 12
    assert found.downtime == ()  # no member ever had a partition
    assert not found.is_sound


@pytest.mark.parametrize("network", [{"append": "1h"}, {"latency": "10m"}])
def test_a_group_that_never_has_a_generation_reads_nothing(network: dict[str, str]) -> None:
    found = rota.simulate({**scenario("range", []), "network": network})
    assert found.generations == 0
    assert len(found.unread) == 12
    assert not found.is_sound


def test_a_pattern_that_matches_nothing_is_no_success() -> None:
    wrong = scenario("range", [], pattern="x.*")
    found = rota.simulate(wrong)
    assert found.notes == ("nobody reads t: no member subscribes to it",)
    assert len(found.unread) == 12
    assert not found.is_sound


def test_a_topic_that_nobody_subscribes_to_is_noted_and_does_not_count() -> None:
    given = scenario("range", [], topics=["t"])
    given["topics"] = {"t": 12, "audit": 2}
    found = rota.simulate(given)
    assert found.notes == ("nobody reads audit: no member subscribes to it",)
    assert (found.downtime, found.unread, found.is_sound) == ((), (), True)


def test_added_partitions_are_not_down_before_they_have_an_owner() -> None:
    found = rota.simulate(scenario("cooperative-sticky", [{"at": "5m1s", "partitions": {"t": 16}}]))
    assert found.rebalances[-1].start > 600_000
    assert found.downtime == ()
    assert found.is_sound


def test_what_is_added_too_late_to_be_seen_is_unread() -> None:
    found = rota.simulate(scenario("range", [{"at": "19m", "partitions": {"t": 13}}]))
    assert [str(partition) for partition in found.unread] == ["t-12"]
    assert found.notes == ("never read: t-12",)
    assert not found.is_sound


def test_what_nobody_wants_any_more_is_not_down() -> None:
    given = scenario("range", [{"at": "5m", "subscribe": "m", "topics": ["u"]}], topics=["t"])
    given["topics"] = {"t": 12, "u": 4}
    found = rota.simulate(given)
    assert {one.topic for one in found.downtime} <= {"u"}
    assert found.is_sound


def test_a_result_is_short_to_look_at() -> None:
    assert len(repr(simulate_crash("range"))) < 5_000


def wait_rows(found: rota.Simulation) -> list[tuple[tuple[str, ...], int, str]]:
    return [
        (wait.members, round(wait.time / 1000), wait.why)
        for rebalance in found.rebalances
        for wait in rebalance.waits
    ]


def test_a_rebalance_says_whom_it_waited_for() -> None:
    events = [{"at": "5m", "crash": "m-1"}, {"at": "5m2s", "join": "m-4"}]
    assert wait_rows(rota.simulate(scenario("range", events))) == [(("m-1",), 40, "was silent")]


def test_a_rebalance_waits_for_one_that_works_for_long() -> None:
    events = [{"at": "5m", "stall": "m-1", "for": "1m"}, {"at": "5m10s", "join": "m-4"}]
    assert wait_rows(rota.simulate(scenario("range", events))) == [(("m-1",), 50, "joined late")]


def test_a_rebalance_gives_up_one_that_never_polls() -> None:
    events = [{"at": "5m", "stall": "m-1", "for": "10m"}, {"at": "6m", "join": "m-4"}]
    found = rota.simulate(scenario("range", events, max_poll="2m"))
    assert wait_rows(found) == [(("m-1",), 60, "polled too late")]


def test_a_rebalance_waits_for_a_listener() -> None:
    found = rota.simulate(scenario("range", [{"at": "5m", "join": "m-4"}], listener="20s"))
    (wait,) = wait_rows(found)
    assert wait[1:] == (20, "joined late")


def test_nobody_is_waited_for_where_all_goes_well() -> None:
    assert wait_rows(simulate_crash("cooperative-sticky")) == []


def test_one_that_polls_too_late_is_told_from_one_that_closes() -> None:
    events = [{"at": "5m", "stall": "m-1", "for": "8m"}, {"at": "15m", "leave": "m-2"}]
    found = rota.simulate(scenario("range", events))
    assert [rebalance_reason(rebalance) for rebalance in found.rebalances[1:]] == [
        "member m-1 polled too late",
        "member m-1 joins",
        "member m-2 leaves",
    ]


def test_a_static_member_that_polls_too_late_is_told_from_one_that_has_crashed() -> None:
    events = [{"at": "5m", "stall": "m-1", "for": "8m"}, {"at": "15m", "crash": "m-2"}]
    found = rota.simulate(scenario("range", events), static=True)
    assert [rebalance_reason(rebalance) for rebalance in found.rebalances[1:]] == [
        "the session of m-1 expired: it has not polled in time",
        "member m-1 joins: consumer pro-actively leaving the group",
        "the session of m-2 expired",
    ]


def test_each_downtime_belongs_to_one_rebalance_or_to_none() -> None:
    deploy = {"at": "5m", "deploy": "m", "down": "5s", "between": "1s"}
    for static in (False, True):
        found = rota.simulate(scenario("range", [deploy]), static=static)
        inside = [one for each in found.rebalances for one in found.downtime_in(each)]
        assert len(inside) + len(found.downtime_outside) == len(found.downtime) > 0
        assert {*inside, *found.downtime_outside} == {*found.downtime}
        assert bool(found.downtime_outside) == static


def test_the_strategies_are_those_that_members_have() -> None:
    own = scenario("range", [])
    own["members"][0]["strategy"] = "cooperative-sticky"
    found = rota.simulate(own)
    assert (found.strategy, found.protocol) == ("cooperative-sticky", "cooperative")
    own["members"].append({"name": "other", "strategy": ["cooperative-sticky", "range"]})
    mixed = rota.simulate(own)
    assert mixed.strategy == "cooperative-sticky or cooperative-sticky, range"
    assert mixed.protocol == "cooperative or eager"
    assert rota.simulate(own, "sticky").strategy == "sticky"
