"""``rota.simulate``: what came of a scenario, in numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rota
from rota.errors import InputError
from rota.model.topic import TopicPartition
from rota.sim.lane import Change, Doing, lanes
from rota.sim.policy import Policy, compared
from rota.sim.scenario import read_scenario


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


def crash(strategy: str, **member: Any) -> rota.Simulation:
    return rota.simulate(scenario(strategy, [{"at": "5m", "crash": "m-1"}], **member))


def test_a_group_that_is_left_alone_has_one_rebalance() -> None:
    quiet = rota.simulate(scenario("range", []))
    (first,) = quiet.rebalances
    assert (first.generations, first.members, first.moved, first.moved_min) == ((1,), 4, 0, 0)
    assert first.finished
    assert (first.start, first.end) == (6, 6_010)  # the initial delay, twice three seconds
    assert (quiet.stopped, quiet.worst, quiet.idle, quiet.stops) == (0, None, 0, ())


def test_after_a_crash_its_partitions_stand_still_for_the_session() -> None:
    found = crash("sticky")
    _, rebalance = found.rebalances
    assert rebalance.reason == "member m-1 is silent (group was Stable)"
    assert (rebalance.members, rebalance.orphaned, rebalance.moved) == (3, 3, 0)
    orphans = [stop for stop in found.stops if stop.since == 300_000]
    assert len(orphans) == 3
    # the last heartbeat came up to three seconds before, and the others hear of it by theirs
    assert all(42_000 < stop.time <= 48_100 for stop in orphans)
    assert found.worst in orphans


def test_eager_stops_all_partitions_and_cooperative_those_that_are_concerned() -> None:
    eager, cooperative = crash("sticky"), crash("cooperative-sticky")
    assert len({stop.partition for stop in eager.stops}) == 12
    assert len({stop.partition for stop in cooperative.stops}) == 3
    assert cooperative.stopped < eager.stopped


def test_the_two_rounds_of_a_cooperative_rebalance_are_one() -> None:
    found = rota.simulate(scenario("cooperative-sticky", [{"at": "5m", "join": "m-4"}]))
    _, rebalance = found.rebalances
    assert (rebalance.generations, rebalance.rounds, rebalance.attempts) == ((2, 3), 2, 2)
    assert (rebalance.moved, rebalance.moved_min) == (2, 2)
    assert len(found.stops) == 2
    # what moves stands still until the others hear, by their next heartbeats, of the second round
    assert {stop.time for stop in found.stops} == {3_004}


@pytest.mark.parametrize(("strategy", "moved"), [("range", 3), ("roundrobin", 8), ("sticky", 2)])
def test_moves_against_the_fewest(strategy: str, moved: int) -> None:
    # static members come in the order of their names
    found = rota.simulate(scenario(strategy, [{"at": "5m", "join": "m-4"}]), static=True)
    assert found.rebalances[1].moved_min == 2
    assert found.rebalances[1].moved == moved


def test_a_static_restart_is_no_rebalance_but_its_partitions_wait() -> None:
    events = [{"at": "5m", "restart": "m-1", "down": "20s"}]
    found = rota.simulate(scenario("range", events), static=True)
    assert len(found.rebalances) == 1
    assert [(stop.since, stop.time) for stop in found.stops] == [(300_000, 20_007)] * 3
    dynamic = rota.simulate(scenario("range", events), static=False)
    assert len(dynamic.rebalances) == 3


def test_a_restart_that_takes_too_long() -> None:
    events = [{"at": "5m", "restart": "m-1", "down": "90s"}]
    found = rota.simulate(scenario("cooperative-sticky", events, static=True))
    assert [rebalance.reason.split(" (")[0] for rebalance in found.rebalances[1:]] == [
        "member m-1 is silent",
        "member m-1 joins; its reason: the member is new",
    ]


def test_a_rolling_deploy_touches_every_pod_once() -> None:
    deploy = {"at": "5m", "deploy": "m", "down": "5s", "between": "1m"}
    found = rota.simulate(scenario("range", [deploy]))
    reasons = [rebalance.reason.split(" (")[0] for rebalance in found.rebalances[1:]]
    assert reasons[::2] == [f"members leave: m-{n}" for n in range(4)]
    assert all(reason.startswith(f"member m-{n} joins") for n, reason in enumerate(reasons[1::2]))
    started = [record for record in found.trace if record.what == "started" and record.at]
    assert [record.at for record in started] == [305_002, 370_004, 435_006, 500_008]


def test_a_deploy_with_surge_starts_the_new_one_first() -> None:
    deploy = {"at": "5m", "deploy": "m", "between": "1m", "surge": True}
    found = rota.simulate(scenario("cooperative-sticky", [deploy]))
    assert {name for name in lanes(found.trace) if "." in name} == {f"m-{n}.2" for n in range(4)}
    assert max(rebalance.members for rebalance in found.rebalances) == 5
    assert found.rebalances[-1].members == 4
    again = rota.simulate(
        scenario("range", [deploy, {"at": "15m", "deploy": "m-0", "surge": True}])
    )
    assert "m-0.3" in lanes(again.trace)


def test_surge_under_static_ids_fences_the_old_ones() -> None:
    deploy = {"at": "5m", "deploy": "m", "between": "1m", "surge": True}
    found = rota.simulate(scenario("range", [deploy], static=True))
    assert len(found.rebalances) == 1
    assert len(found.notes) == 4
    assert "m-0 raised Fenced" in found.notes[0]


def test_a_stuck_application_is_replaced_after_the_poll_interval() -> None:
    events = [{"at": "5m", "stall": "m-1", "for": "8m"}]
    found = rota.simulate(scenario("sticky", events, processing="1s"))
    stuck = [stop for stop in found.stops if stop.since == 300_000]
    assert len(stuck) == 3
    assert all(300_000 < stop.time < 304_100 for stop in stuck)
    assert found.rebalances[1].reason.startswith("members leave: m-1")


def test_idle_members_are_counted() -> None:
    crowd = rota.simulate({**scenario("range", []), "topics": {"t": 3}})
    assert crowd.idle == 1
    assert len(crowd.rebalances[0].idle) == 1


def test_partitions_are_added() -> None:
    grown = [{"at": "5m", "partitions": {"t": 16}}]
    found = rota.simulate(scenario("sticky", grown))
    _, rebalance = found.rebalances
    assert rebalance.start == 600_001  # the leader looks every five minutes
    assert "the topics' metadata changed" in rebalance.reason
    assert (rebalance.moved, rebalance.moved_min) == (0, 0)


def test_a_subscription_changes() -> None:
    changed = {**scenario("range", [{"at": "5m", "subscribe": "m-1", "topics": ["u"]}])}
    changed["topics"] = {"t": 12, "u": 1}
    changed["members"][0]["topics"] = ["t"]
    found = rota.simulate(changed)
    _, rebalance = found.rebalances
    assert "the subscription changed" in rebalance.reason


def test_the_coordinator_may_be_away() -> None:
    found = rota.simulate(scenario("range", [{"at": "5m", "coordinator_down": "30s"}]))
    assert len(found.rebalances) == 1
    assert found.stopped == 0


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
    class Broken(rota.PartitionAssignor):
        name = "broken"

        def assign_partitions(self, partitions: Any, subscriptions: Any) -> Any:
            raise KeyError("by design")

    found = rota.simulate(scenario("range", []), Broken)
    assert found.strategy == "broken"
    assert any("raised StrategyFailed: strategy 'broken' raised KeyError" in n for n in found.notes)
    assert found.generations == 0


def test_the_result_is_plain_values() -> None:
    found = crash("cooperative-sticky").to_dict()
    assert json.loads(json.dumps(found)) == found
    documented = {"policy", "strategy", "rebalances", "generations", "moved", "moved_min"}
    assert documented | {"stopped_ms", "worst_ms", "idle", "timeline", "partitions"} <= set(found)
    (stopped,) = {entry["stops"] for entry in found["partitions"].values()}  # type: ignore[attr-defined]
    assert stopped == 1


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
    with pytest.raises(InputError, match="^scenario: the text of a scenario.* read first"):
        rota.simulate(given)


def test_policies_have_names() -> None:
    assert Policy().label == "as in the scenario"
    assert Policy(strategy="range", static=True).label == "range + static"
    both = Policy(strategy=["org.apache.kafka.clients.consumer.StickyAssignor"], solver="kafka")
    assert both.label == "sticky + solver kafka"
    assert len(compared()) == 8
    with pytest.raises(InputError, match="unknown strategy"):
        Policy(strategy="rng")


def test_lanes_say_what_each_process_did() -> None:
    found = rota.simulate(
        scenario(
            "range", [{"at": "5m", "pause": "m-1", "for": "10s"}, {"at": "6m", "crash": "m-1"}]
        )
    )
    lane = lanes(found.trace)["m-1"]
    assert [(change.doing, change.load) for change in lane] == [
        (Doing.JOINING, 0),
        (Doing.READING, 3),
        (Doing.ASLEEP, 3),
        (Doing.READING, 3),
        (Doing.GONE, 3),
    ]
    assert lane[2] == Change(300_000, Doing.ASLEEP, 3)


def test_a_frozen_owner_does_not_read() -> None:
    found = rota.simulate(scenario("range", [{"at": "5m", "pause": "m-1", "for": "10s"}]))
    assert {(stop.since, stop.until) for stop in found.stops} == {(300_000, 310_000)}
    assert all(isinstance(stop.partition, TopicPartition) for stop in found.stops)
