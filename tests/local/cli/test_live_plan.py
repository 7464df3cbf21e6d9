"""``rota plan --group``: a group that runs, and what would become of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rota
from rota.engine.model.topic import Partitions
from tests.support.command import RotaCommand
from tests.support.live_group import LiveMember, add_members, broker_with_topics, commit_offsets

PlanCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with broker_with_topics(orders=6, payments=2) as running:
        yield running


@pytest.fixture
def rota_plan(broker: rota.Broker, rota_command: RotaCommand) -> PlanCommand:
    def run(*arguments: str) -> tuple[int, str, str]:
        servers = ("--bootstrap-servers", broker.bootstrap_servers)
        return rota_command("plan", *arguments, *servers)

    return run


def read_json(run: PlanCommand, *arguments: str) -> dict[str, Any]:
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def add_unbalanced_group(broker: rota.Broker, strategy: str) -> list[str]:
    """A group that has settled badly: the second has two partitions, the first four."""
    return add_members(
        broker,
        "billing",
        [
            LiveMember(name="one", gets={"orders": [0, 1, 2, 3]}),
            LiveMember(name="two", gets={"orders": [4, 5]}, owned=Partitions.of({"orders": [5]})),
        ],
        strategy=strategy,
    )


def test_what_is_assigned_counts_as_owned(broker: rota.Broker, rota_plan: PlanCommand) -> None:
    one, other = add_unbalanced_group(broker, "cooperative-sticky")
    found = read_json(rota_plan, "--group", "billing")
    assert (found["group"], found["strategy"]) == ("billing", "cooperative-sticky")
    assert found["protocol"] == "cooperative"
    assert found["names"] == {one: one[:12], other: other[:12]}
    assert found["target_loads"] == {one: 3, other: 3}
    assert found["moved"] == found["moves_needed"] == 1
    assert [(each["from"], each["to"]) for each in found["moves"]] == [(one, other)]


def test_the_groups_own_strategy_is_the_default(
    broker: rota.Broker, rota_plan: PlanCommand
) -> None:
    add_unbalanced_group(broker, "roundrobin")
    assert read_json(rota_plan, "--group", "billing")["strategy"] == "roundrobin"
    assert (
        read_json(rota_plan, "--group", "billing", "--strategy", "sticky")["strategy"] == "sticky"
    )


@pytest.mark.parametrize(
    ("names", "solver", "reason"),
    [
        (("rota-1", "rota"), "exact", "all members run Rota"),
        (("rota-1", "app"), "kafka", "only 1 of 2 members are known to run Rota"),
        (("consumer-g-1", "app"), "kafka", "no member is known to run Rota"),
    ],
)
def test_the_solver_is_that_of_the_groups_clients(
    broker: rota.Broker,
    rota_plan: PlanCommand,
    names: tuple[str, ...],
    solver: str,
    reason: str,
) -> None:
    members = [LiveMember(name=each, gets={"orders": [n]}) for n, each in enumerate(names)]
    add_members(broker, "g", members, strategy="cooperative-sticky")
    found = read_json(rota_plan, "--group", "g")
    assert (found["solver"], found["solver_reason"]) == (solver, reason)
    consumers = "Rota" if solver == "exact" else "Java"
    assert (
        f"\nsolver {solver}, as {consumers} consumers: {reason}\n" in rota_plan("--group", "g")[1]
    )
    given = read_json(rota_plan, "--group", "g", "--solver", "kafka")
    assert (given["solver"], given["solver_reason"]) == ("kafka", "--solver")


def test_members_join_and_leave(broker: rota.Broker, rota_plan: PlanCommand) -> None:
    one, other = add_unbalanced_group(broker, "sticky")
    joined = read_json(rota_plan, "--group", "billing", "--add", "1")
    assert sorted(joined["target_loads"].values()) == [2, 2, 2]
    assert joined["moved"] == 2
    for name in (one, one[:12], "one"):
        left = read_json(rota_plan, "--group", "billing", "--remove", name)
        assert left["loads"] == {other: 6}
        assert left["orphaned"] == 4


def test_a_static_member_goes_by_its_static_id(broker: rota.Broker, rota_plan: PlanCommand) -> None:
    first, _ = add_members(
        broker,
        "billing",
        [
            LiveMember(name="app", gets={"orders": [0, 1, 2]}, group_instance_id="a"),
            LiveMember(name="app", gets={"orders": [3, 4, 5]}, group_instance_id="b"),
        ],
    )
    found = read_json(rota_plan, "--group", "billing", "--remove", "b")
    assert found["loads"] == {first: 6}
    _, out, _ = rota_plan("--group", "billing")
    assert [line.split()[0] for line in out.splitlines()[3:5]] == ["a", "b"]
    code, _, err = rota_plan("--group", "billing", "--remove", "app")
    assert code == 4
    assert "--remove 'app': several members match: a, b" in err
    code, _, err = rota_plan("--group", "billing", "--remove", "c")
    assert code == 4
    assert "no such member; members are a, b" in err


def test_partitions_are_added_and_moves_limited(
    broker: rota.Broker, rota_plan: PlanCommand
) -> None:
    add_unbalanced_group(broker, "sticky")
    found = read_json(rota_plan, "--group", "billing", "--partitions", "orders=8")
    assert sorted(found["loads"].values()) == [4, 4]
    assert found["moved"] == 0
    code, _, err = rota_plan("--group", "billing", "--max-moves", "0")
    assert code == 1
    assert "1 partitions move, more than --max-moves 0" in err


def test_racks_are_read(broker: rota.Broker, rota_plan: PlanCommand) -> None:
    add_members(broker, "billing", [LiveMember(name="a", gets={"orders": [0]}, rack="r1")])
    found = read_json(rota_plan, "--group", "billing", "--strategy", "range")
    assert sum(found["loads"].values()) == 6


def test_strategies_side_by_side(broker: rota.Broker, rota_plan: PlanCommand) -> None:
    add_unbalanced_group(broker, "range")
    code, out, _ = rota_plan("--group", "billing", "--add", "1", "--compare")
    assert code == 0
    plans = read_json(rota_plan, "--group", "billing", "--add", "1", "--compare")["compare"]
    best = min(plans, key=lambda plan: (plan["downtime_ms"], plan["moved"]))
    # with two members that stay, an eager one waits for the other for half a second on average
    assert best["downtime_ms"] == 6 * (500 + 25)
    assert f"best for this group: {best['strategy']}: " in out


def test_where_a_new_member_comes_in_the_order_is_chance(
    broker: rota.Broker, rota_plan: PlanCommand
) -> None:
    add_unbalanced_group(broker, "range")
    (note,) = read_json(rota_plan, "--group", "billing", "--add", "1")["notes"]
    assert note.startswith("range assigns by the order of member ids")
    assert f"note: {note}" in rota_plan("--group", "billing", "--add", "1")[1]
    assert read_json(rota_plan, "--group", "billing")["notes"] == []


def test_a_topic_that_is_gone_is_left_out(broker: rota.Broker, rota_plan: PlanCommand) -> None:
    add_members(
        broker, "billing", [LiveMember(name="a", topics=("orders", "gone"), gets={"orders": [0]})]
    )
    assert read_json(rota_plan, "--group", "billing")["skipped_topics"] == ["gone"]


@pytest.mark.parametrize(
    ("seats", "kind", "strategy", "message"),
    [
        ([LiveMember(name="w")], "connect", "sessioned", "is a group of connect workers"),
        (
            [LiveMember(name="w")],
            "consumer",
            "stream",
            "'stream', which Rota does not know; give another",
        ),
        ([LiveMember(name="w", told=b"\0")], "consumer", "range", "cannot be decoded"),
    ],
)
def test_groups_that_cannot_be_planned(
    broker: rota.Broker,
    rota_plan: PlanCommand,
    seats: list[LiveMember],
    kind: str,
    strategy: str,
    message: str,
) -> None:
    add_members(broker, "odd", seats, protocol_type=kind, strategy=strategy)
    code, out, err = rota_plan("--group", "odd")
    assert (code, out) == (4, "")
    assert message in err


def test_an_empty_group(broker: rota.Broker, rota_plan: PlanCommand) -> None:
    commit_offsets(broker, "idle", {("orders", 0): 0})
    code, out, err = rota_plan("--group", "idle")
    assert (code, out) == (4, "")
    assert err.startswith("rota: nothing to plan: the group has no members; add --add 3: it plans")
    code, out, err = rota_plan("--group", "idle", "--compare")
    assert (code, out) == (4, "")
    assert err.startswith("rota: nothing to plan: the group has no members; add --add 3: it plans")
    code, out, err = rota_plan("--group", "idle", "--max-moves", "0")
    assert (code, out) == (4, "")
    hint = "leave out --max-moves and add --add 3: it plans three members"
    assert err.startswith(f"rota: nothing to check: the group has no members; {hint}")
    code, out, err = rota_plan("--group", "idle", "--add", "3", "--max-moves", "0")
    assert (code, out) == (4, "")
    assert err == (
        "rota: nothing to check: no member owns a partition, so none can move; start the group's "
        "members first, or leave out the limit\n"
    )


def test_members_join_a_group_that_is_empty(broker: rota.Broker, rota_plan: PlanCommand) -> None:
    commit_offsets(broker, "idle", {("orders", 0): 0})
    found = read_json(rota_plan, "--group", "idle", "--add", "3")
    assert (found["strategy"], found["moved"]) == ("range", 0)
    assert found["loads"] == {"new-1": 2, "new-2": 2, "new-3": 2}
    assert found["notes"] == [
        "the group is empty; the plan assumes that new members subscribe to orders, where the "
        "group has committed offsets"
    ]
    found = read_json(rota_plan, "--group", "idle", "--member", "a=orders", "--strategy", "sticky")
    assert found["loads"] == {"a": 6}
    _, out, _ = rota_plan("--group", "idle", "--add", "2", "--compare")
    assert "best for this group" in out
    code, _, err = rota_plan("--group", "idle", "--add", "2", "--remove", "x")
    assert code == 4
    assert "--remove 'x': no such member; the group is empty" in err


def test_an_empty_group_whose_topics_are_gone(broker: rota.Broker, rota_plan: PlanCommand) -> None:
    add_members(broker, "old", [LiveMember(name="a")])
    broker.expire("a")
    code, out, err = rota_plan("--group", "old", "--add", "1")
    assert (code, out) == (4, "")
    assert "is empty, and the topics of its committed offsets do not exist" in err


def test_an_unknown_group(broker: rota.Broker, rota_plan: PlanCommand) -> None:
    add_unbalanced_group(broker, "range")
    code, out, err = rota_plan("--group", "biling")
    assert (code, out) == (4, "")
    assert "there is no group 'biling'; did you mean 'billing'?" in err


def test_a_rebalance_is_waited_for_but_not_for_ever(
    broker: rota.Broker, rota_plan: PlanCommand
) -> None:
    add_members(broker, "billing", [LiveMember(name="a"), LiveMember(name="b")], synced=False)
    code, out, err = rota_plan("--group", "billing", "--timeout", "2.5")
    assert (code, out) == (3, "")
    assert "has been rebalancing for 2.5 s (CompletingRebalance)" in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--group", "g", "case.json"), "--group cannot be combined with a case file"),
        (
            ("--group", "g", "--members", "2"),
            "--group cannot be combined with a case file or --members",
        ),
        (("--group", "g", "--from", "range"), "--from cannot be combined with --group"),
        (("--partitions", "t=1", "--members", "1"), "need --group NAME"),
    ],
)
def test_flags_that_do_not_go_together(
    rota_plan: PlanCommand, flags: tuple[str, ...], message: str
) -> None:
    code, out, err = rota_plan(*flags)
    assert (code, out) == (2, "")
    assert message in err
