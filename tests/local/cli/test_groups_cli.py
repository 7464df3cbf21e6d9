"""``rota groups`` as an operator or a CI job runs it, against a broker."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rota
from tests.support.command import RotaCommand
from tests.support.live_group import (
    LiveMember,
    add_members,
    broker_with_topics,
    commit_offsets,
    create_billing_group,
    join_in_background,
)

GroupsCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def broker() -> Iterator[rota.Broker]:
    with broker_with_topics(orders=2, payments=1) as running:
        yield running


@pytest.fixture
def rota_groups(broker: rota.Broker, rota_command: RotaCommand) -> GroupsCommand:
    def run(*arguments: str) -> tuple[int, str, str]:
        servers = ("--bootstrap-servers", broker.bootstrap_servers)
        return rota_command("groups", *arguments, *servers)

    return run


def read_json(run: GroupsCommand, *arguments: str) -> Any:
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


# List


def test_groups_are_listed_with_state_strategy_and_members(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    create_billing_group(broker)
    commit_offsets(broker, "idle", {("payments", 0): 0})
    code, out, err = rota_groups("list")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["group", "state", "type", "strategy", "members"],
        ["billing", "Stable", "classic", "range", "2"],
        ["idle", "Empty", "classic", "-", "0"],
    ]


def test_states_are_chosen(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    create_billing_group(broker)
    commit_offsets(broker, "idle", {("payments", 0): 0})
    assert [each["group"] for each in read_json(rota_groups, "list", "--state", "empty")] == [
        "idle"
    ]
    wanted = read_json(rota_groups, "list", "--state", "Empty,Stable")
    assert [each["group"] for each in wanted] == ["billing", "idle"]
    code, out, err = rota_groups("list", "--state", "Dead")
    assert (code, out) == (0, "no groups\n")
    assert err == "rota: no group is Dead; there are 1 Empty, 1 Stable\n"


def test_a_state_that_no_group_can_be_in(rota_groups: GroupsCommand) -> None:
    code, out, err = rota_groups("list", "--state", "Stable,foo")
    assert (code, out) == (2, "")
    assert "--state 'foo': not a state of a group; states are Stable, Empty, Prep" in err


def test_no_groups(rota_groups: GroupsCommand) -> None:
    assert rota_groups("list") == (0, "no groups\n", "")
    assert rota_groups("describe", "--all") == (0, "no groups\n", "")


# Describe


def test_what_a_client_calls_itself_does_not_colour_the_screen(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    commit_offsets(broker, "late", {("orders", 0): 0})
    add_members(broker, "late", [LiveMember(name="\x1b[31mred", gets={"orders": [0]})])
    for command in (("describe", "late"), ("delete", "late"), ("delete", "late", "--execute")):
        _, out, err = rota_groups(*command)
        assert "\x1b" not in out + err
        assert "\\x1b[31mred" in out + err


def test_a_group_is_described(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    first, second = create_billing_group(broker)
    (group,) = read_json(rota_groups, "describe", "billing")
    assert (group["state"], group["strategy"], group["type"]) == ("Stable", "range", "classic")
    assert broker.bootstrap_servers in group["coordinator"]
    members = {each["id"]: each for each in group["members"]}
    assert members[first] == {
        "id": first,
        "group_instance_id": None,
        "client_id": "app",
        "host": "127.0.0.1",
        "rack": "r1",
        "topics": ["orders"],
        "pattern": None,
        "owned_at_join": {},
        "generation": None,
        "assigned": {"orders": [0]},
        "target": None,
        "problem": None,
    }
    described = members[second]
    assert (
        described["group_instance_id"],
        described["generation"],
        described["owned_at_join"],
    ) == (
        "second",
        3,
        {"orders": [1]},
    )
    assert [
        (each["partition"], each["committed"], each["end"], each["lag"], each["owner"])
        for each in group["partitions"]
    ] == [(0, 4, 10, 6, first), (1, 10, 10, 0, second)]
    assert group["lag"] == 6
    assert (group["leader"], group["generation"]) == (
        None,
        4,
    )  # one above what a member joined with


def test_the_leader_is_read_from_the_journal(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    first, second = create_billing_group(broker)
    known = broker.group("billing")
    assert known.leader in {first, second}
    (group,) = read_json(rota_groups, "describe", "billing", "--leader")
    assert (group["leader"], group["generation"]) == (known.leader, known.generation)
    code, out, _ = rota_groups("describe", "billing", "--leader", "--full")
    assert code == 0
    assert out.splitlines()[1] == f"generation {known.generation}, leader {known.leader}"


def test_the_tables_fit_a_terminal(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    first, _ = create_billing_group(broker)
    code, out, _ = rota_groups("describe", "billing")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    assert first not in out
    assert first[: len("app-") + 8] in out
    assert "second" in out
    assert "subscribed: orders" in out
    assert "total lag 6" in out
    assert first in rota_groups("describe", "billing", "--full")[1]


def test_partitions_that_were_never_committed_are_shown(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    add_members(broker, "billing", [LiveMember(name="app", gets={"orders": [0, 1]})])
    (group,) = read_json(rota_groups, "describe", "billing")
    assert [(each["committed"], each["lag"]) for each in group["partitions"]] == [(None, None)] * 2
    assert "2 partitions without a committed offset" in rota_groups("describe", "billing")[1]


def test_how_far_behind_a_group_is_in_time(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    now = time.time_ns() // 1_000_000
    for minutes in range(60, 0, -1):
        broker.produce("payments", "x", timestamp=now - minutes * 60_000)
    commit_offsets(broker, "late", {("payments", 0): 20})
    (group,) = read_json(rota_groups, "describe", "late")
    (partition,) = group["partitions"]
    assert partition["lag"] == 40
    assert 40 * 60 <= partition["lag_seconds"] <= 41 * 60
    assert "payments          0         20   60   40     40m" in rota_groups("describe", "late")[1]
    (quick,) = read_json(rota_groups, "describe", "late", "--no-time")
    assert quick["partitions"][0]["lag_seconds"] is None


def test_offsets_that_are_out_of_range_are_said(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    broker.produce("payments", "x")
    commit_offsets(broker, "odd", {("payments", 0): 5})
    (group,) = read_json(rota_groups, "describe", "odd")
    assert group["partitions"][0]["lag"] == -4
    (note,) = group["notes"]
    assert note.startswith("payments-0: it is past the log end")


def test_the_lag_of_a_topic_that_is_gone_is_not_known(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    add_members(
        broker, "old", [LiveMember(name="a", topics=("gone",), gets={"gone": [0], "orders": [0]})]
    )
    (group,) = read_json(rota_groups, "describe", "old")
    assert [(each["topic"], each["end"]) for each in group["partitions"]] == [
        ("gone", None),
        ("orders", 0),
    ]
    assert group["notes"] == ["gone-0: the partition does not exist or cannot be asked"]


def test_members_that_subscribe_to_different_topics(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    add_members(
        broker,
        "mixed",
        [
            LiveMember(name="a", topics=("orders",)),
            LiveMember(name="b", topics=("orders", "payments")),
        ],
    )
    code, out, _ = rota_groups("describe", "mixed")
    assert code == 0
    assert "subscribed by a-" in out
    assert ": orders, payments\n" in out


def test_a_group_that_gathers_its_members(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    add_members(broker, "billing", [LiveMember(name="a", gets={"orders": [0, 1]})])
    with join_in_background(broker, "billing", "b"):
        code, out, _ = rota_groups("describe", "billing")
    assert code == 0
    assert out.startswith("billing: PreparingRebalance, 2 members")
    assert "subscribed" not in out
    assert "note: the group is rebalancing: subscriptions and owners are known when" in out


def test_workers_that_are_no_consumers(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    add_members(
        broker, "workers", [LiveMember(name="w")], strategy="sessioned", protocol_type="connect"
    )
    code, out, _ = rota_groups("describe", "workers")
    assert code == 0
    assert "of connect workers" in out
    assert "classic (connect)" in rota_groups("list")[1]


def test_bytes_of_a_member_that_cannot_be_read_are_said(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    (member,) = add_members(
        broker, "odd", [LiveMember(name="w", told=b"\0\1\0\0\0\5")], strategy="mine"
    )
    (group,) = read_json(rota_groups, "describe", "odd")
    assert group["members"][0]["assigned"] == {}
    assert f"member {member} cannot be decoded: subscription" in group["notes"][0]


def test_several_groups_or_all(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    create_billing_group(broker)
    commit_offsets(broker, "idle", {("payments", 0): 0})
    found = read_json(rota_groups, "describe", "idle", "billing", "idle")
    assert [each["group"] for each in found] == ["idle", "billing"]
    assert [each["group"] for each in read_json(rota_groups, "describe", "--all")] == [
        "billing",
        "idle",
    ]
    for flags in ((), ("billing", "--all")):
        code, _, err = rota_groups("describe", *flags)
        assert code == 2
        assert "give the names of groups, or --all" in err


# Lag


def test_groups_by_their_lag(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    first, _ = create_billing_group(broker)
    commit_offsets(broker, "far", {("orders", 0): 0, ("orders", 1): 2})
    rows = read_json(rota_groups, "lag")
    assert [(each["group"], each["lag"], each["lagging"]) for each in rows] == [
        ("far", 18, 2),
        ("billing", 6, 1),
    ]
    assert rows[1]["worst"]["owner"] == first
    _, out, _ = rota_groups("lag", "billing")
    assert "orders-0 (6)" in out
    assert "far" not in out


@pytest.mark.parametrize(
    ("limit", "code", "message"),
    [
        ("17", 1, "group far has a lag of 18, more than --fail-on 17"),
        ("18", 0, ""),
        ("0", 1, "group billing has a lag of 6"),
        ("1h", 0, ""),
        ("1ms", 1, "group billing is more than 1ms behind in orders-0"),
    ],
)
def test_a_limit_for_ci(
    broker: rota.Broker, rota_groups: GroupsCommand, limit: str, code: int, message: str
) -> None:
    create_billing_group(broker)
    commit_offsets(broker, "far", {("orders", 0): 0, ("orders", 1): 2})
    found, _, err = rota_groups("lag", "--fail-on", limit)
    assert found == code
    assert message in err


def test_who_commits_nothing_is_not_at_the_end(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    for partition, records in ((0, 3), (1, 2)):
        broker.produce("orders", *["x"] * records, partition=partition, timestamp=1)
    add_members(broker, "silent", [LiveMember(name="app", gets={"orders": [0, 1]})])
    (row,) = read_json(rota_groups, "lag")
    assert (row["lag"], row["lag_seconds"]) == (None, None)
    assert (row["uncommitted"], row["uncommitted_records"]) == (2, 5)
    _, out, _ = rota_groups("lag")
    _, line, note = out.splitlines()
    assert line.split()[3:5] == ["-", "-"]
    assert note.startswith("note: silent: nothing is committed for orders-0, orders-1: 5 records")
    assert (
        "lag unknown; 2 partitions without a committed offset (5 records)"
        in rota_groups("describe", "silent")[1]
    )
    assert rota_groups("lag", "--fail-on", "5")[0] == 0
    code, _, err = rota_groups("lag", "--fail-on", "4")
    assert code == 1
    assert "has a lag of up to 5, more than --fail-on 4: nothing is committed for orders-0" in err
    code, _, err = rota_groups("lag", "--fail-on", "5m")
    assert code == 1
    assert "group silent is more than 5m behind in orders-0 (nothing is committed), orders" in err


# Reset


def committed_offsets(broker: rota.Broker, group: str) -> dict[tuple[str, int], int]:
    return {(each.topic, each.partition): at for each, at in broker.committed(group).items()}


def create_lagging_group(broker: rota.Broker) -> dict[tuple[str, int], int]:
    """A group without members, in the middle of its records, of which one is made every minute."""
    now = time.time_ns() // 1_000_000
    for number in range(10):
        for partition in (0, 1):
            stamp = now - (10 - number) * 60_000
            broker.produce("orders", "x", partition=partition, timestamp=stamp)
    commit_offsets(broker, "late", {("orders", 0): 4, ("orders", 1): 6})
    return committed_offsets(broker, "late")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--all-topics", "--to-earliest"), {0: 0, 1: 0}),
        (("--all-topics", "--to-latest"), {0: 10, 1: 10}),
        (("--topic", "orders:1", "--to-offset", "3"), {0: 4, 1: 3}),
        (("--topic", "orders", "--to-offset", "99"), {0: 10, 1: 10}),
        (("--all-topics", "--shift-by", "-5"), {0: 0, 1: 1}),
        (("--all-topics", "--shift-by", "5"), {0: 9, 1: 10}),
        (("--all-topics", "--to-current"), {0: 4, 1: 6}),
        (("--topic", "orders:0-1", "--by-duration", "PT3M30S"), {0: 7, 1: 7}),
        (("--topic", "orders", "--by-duration", "30s"), {0: 10, 1: 10}),
        (("--topic", "orders", "--to-datetime", "2001-01-01T00:00:00Z"), {0: 0, 1: 0}),
    ],
)
def test_offsets_are_reset_only_with_execute(
    broker: rota.Broker,
    rota_groups: GroupsCommand,
    flags: tuple[str, ...],
    expected: dict[int, int],
) -> None:
    before = create_lagging_group(broker)
    dry = read_json(rota_groups, "reset", "late", *flags)
    assert not dry["executed"]
    assert committed_offsets(broker, "late") == before
    done = read_json(rota_groups, "reset", "late", *flags, "--execute")
    assert done["executed"]
    assert done["changes"] == dry["changes"]
    assert committed_offsets(broker, "late") == {("orders", p): at for p, at in expected.items()}
    for each in done["changes"]:
        assert each["old"] == before["orders", each["partition"]]
        assert each["new"] == expected[each["partition"]]
        assert each["difference"] == each["new"] - each["old"]


def test_a_dry_run_shows_old_and_new_and_says_so(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    create_lagging_group(broker)
    code, out, err = rota_groups("reset", "late", "--all-topics", "--shift-by", "5")
    assert code == 0
    assert [line.split()[:5] for line in out.splitlines()[:3]] == [
        ["topic", "partition", "old", "new", "difference"],
        ["orders", "0", "4", "9", "+5"],
        ["orders", "1", "6", "10", "+4"],
    ]
    assert "11 is after the end, 10" in out
    assert "dry run: nothing was changed" in err


def test_offsets_go_to_a_file_and_back(
    broker: rota.Broker, rota_groups: GroupsCommand, tmp_path: Path
) -> None:
    before = create_lagging_group(broker)
    code, out, _ = rota_groups(
        "reset", "late", "--all-topics", "--to-current", "--export", "--execute"
    )
    assert (code, out) == (0, "orders,0,4\norders,1,6\n")
    kept = tmp_path / "offsets.csv"
    kept.write_text(out)
    assert rota_groups("reset", "late", "--all-topics", "--to-latest", "--execute")[0] == 0
    assert rota_groups("reset", "late", "--from-file", str(kept), "--execute")[0] == 0
    assert committed_offsets(broker, "late") == before


def test_a_group_with_members_is_not_reset(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    first, _ = create_billing_group(broker)
    before = committed_offsets(broker, "billing")
    code, out, err = rota_groups("reset", "billing", "--all-topics", "--to-earliest", "--execute")
    assert (code, out) == (4, "")
    assert f"'billing' is Stable with members {first[:12]} at 127.0.0.1, second at 127." in err
    assert committed_offsets(broker, "billing") == before
    code, out, err = rota_groups("reset", "billing", "--all-topics", "--to-earliest")
    assert code == 0
    assert "-4" in out
    assert err.startswith("rota: dry run: nothing was changed; --execute would fa")
    assert len(err.splitlines()) == 1


def test_a_group_that_is_new_must_be_meant(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    create_lagging_group(broker)
    code, _, err = rota_groups("reset", "lat", "--topic", "orders", "--to-earliest", "--execute")
    assert code == 4
    assert "there is no group 'lat'; did you mean 'late'? --new commits offsets for a group" in err
    assert "lat" not in broker.groups
    flags = ("--topic", "orders", "--to-latest", "--new", "--execute")
    code, out, _ = rota_groups("reset", "lat", *flags)
    assert code == 0
    assert "group lat: 2 partitions without a committed offset\n" in out
    assert committed_offsets(broker, "lat") == {("orders", 0): 10, ("orders", 1): 10}


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--to-earliest",), 2, "give --topic TOPIC or --all-topics"),
        (("--topic", "orders", "--all-topics", "--to-earliest"), 2, "or --all-topics"),
        (("--topic", "orders"), 2, "one of the arguments --to-earliest"),
        (("--topic", "orders", "--to-earliest", "--to-latest"), 2, "not allowed with"),
        (("--topic", "order", "--to-earliest"), 4, "no topic 'order'; did you mean 'orders'?"),
        (("--topic", "orders:2", "--to-earliest"), 4, "no partition 2; partitions are 0 to 1"),
        (("--topic", "orders:x", "--to-earliest"), 4, "'x' is not a partition"),
        (("--topic", "payments", "--shift-by", "1"), 4, "nothing is committed for payments-0"),
        (("--topic", "orders", "--to-datetime", "soon"), 4, "--to-datetime 'soon'"),
        (("--topic", "orders", "--by-duration", "soon"), 4, "--by-duration 'soon'"),
        (("--topic", "orders", "--to-offset", "-1"), 2, "an offset is 0 or more"),
        (("--from-file", "nowhere.csv"), 3, "nowhere.csv: No such file"),
        (("--from-file", "-", "--topic", "orders"), 2, "cannot be combined with --topic"),
    ],
)
def test_wrong_resets(
    broker: rota.Broker, rota_groups: GroupsCommand, flags: tuple[str, ...], code: int, message: str
) -> None:
    before = create_lagging_group(broker)
    found, out, err = rota_groups("reset", "late", *flags, "--execute")
    assert (found, out) == (code, "")
    assert message in err
    assert committed_offsets(broker, "late") == before


# Delete


def test_groups_are_deleted_only_with_execute(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    create_lagging_group(broker)
    code, out, err = rota_groups("delete", "late")
    assert code == 0
    assert "late   Empty  2" in out
    assert "dry run" in err
    assert "late" in broker.groups
    assert rota_groups("delete", "late", "--execute")[0] == 0
    assert "late" not in broker.groups


def test_a_group_with_members_is_not_deleted(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    create_billing_group(broker)
    create_lagging_group(broker)
    code, _, err = rota_groups("delete", "late", "billing", "--execute")
    assert code == 4
    assert "deletion refused: group 'billing' is Stable with members" in err
    assert {"late", "billing"} <= broker.groups.keys()
    code, _, err = rota_groups("delete", "late", "billing")
    assert code == 0
    assert "--execute would fail: group 'billing'" in err


def test_offsets_are_deleted_only_with_execute(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    before = create_lagging_group(broker)
    flags = ("delete-offsets", "late", "--topic", "orders:1")
    assert read_json(rota_groups, *flags)["offsets"] == [
        {"topic": "orders", "partition": 1, "committed": 6}
    ]
    assert committed_offsets(broker, "late") == before
    assert rota_groups(*flags, "--execute")[0] == 0
    assert committed_offsets(broker, "late") == {("orders", 0): 4}
    code, _, err = rota_groups(*flags, "--execute")
    assert code == 4
    assert "has no committed offsets in these partitions; it has offsets in orders" in err


def test_offsets_of_topics_that_members_read_stay(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    create_billing_group(broker)
    before = committed_offsets(broker, "billing")
    code, _, err = rota_groups("delete-offsets", "billing", "--all-topics")
    assert code == 0
    assert "--execute would fail: members subscribe to orders" in err
    code, _, err = rota_groups("delete-offsets", "billing", "--all-topics", "--execute")
    assert code == 4
    assert "a member subscribes to the topic" in err
    assert committed_offsets(broker, "billing") == before


# What goes wrong


def test_an_unknown_group_names_near_ones(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    create_billing_group(broker)
    for command in ("describe", "lag", "delete"):
        code, out, err = rota_groups(command, "bilings")
        assert (code, out) == (4, "")
        assert err == "rota: there is no group 'bilings'; did you mean 'billing'?\n"


def test_no_permission_names_the_group(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    create_lagging_group(broker)
    for api in ("DescribeGroups", "OffsetFetch", "FindCoordinator"):
        broker.fail(api, "GROUP_AUTHORIZATION_FAILED", times=1)
        code, out, err = rota_groups("describe", "late")
        assert (code, out) == (4, "")
        assert "'late'" in err
        assert "no permission" in err


def test_no_permission_for_a_topic_names_it(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    before = create_lagging_group(broker)
    broker.fail("OffsetCommit", "TOPIC_AUTHORIZATION_FAILED", times=1)
    code, _, err = rota_groups("reset", "late", "--all-topics", "--to-earliest", "--execute")
    assert code == 4
    assert "orders-0, orders-1: no permission (TOPIC_AUTHORIZATION_FAILED)" in err
    assert committed_offsets(broker, "late") == before


def test_a_coordinator_that_moves_is_found_again(
    broker: rota.Broker, rota_groups: GroupsCommand
) -> None:
    create_lagging_group(broker)
    broker.fail("DescribeGroups", "NOT_COORDINATOR", times=2)
    broker.fail("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", times=2)
    (group,) = read_json(rota_groups, "describe", "late")
    assert group["lag"] == 10
    broker.fail("DescribeGroups", "NOT_COORDINATOR", times=1)
    assert [each["group"] for each in read_json(rota_groups, "list")] == ["late"]


def test_nobody_listens(rota_command: RotaCommand) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        servers = ("--bootstrap-servers", where, "--timeout", "0.3")
        code, _, err = rota_command("groups", "list", *servers)
    assert code == 3
    assert where in err


def test_wrong_credentials(rota_command: RotaCommand, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    with rota.Broker(users={"alice": "sesame"}) as broker:
        for password, code in (("sesame", 0), ("wrong", 4)):
            settings.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule "
                f'required username="alice" password="{password}";\n'
                f"bootstrap.servers={broker.bootstrap_servers}\n"
            )
            ran = rota_command("groups", "list", "--command-config", settings)
            assert ran.code == code
    assert "alice" in ran.err


def test_where_to_connect_is_needed(rota_command: RotaCommand) -> None:
    code, _, err = rota_command("groups", "list")
    assert code == 2
    assert "--bootstrap-servers HOST:PORT is needed" in err


def test_two_thousand_partitions(broker: rota.Broker, rota_groups: GroupsCommand) -> None:
    broker.create_topic("wide", 2_000)
    commit_offsets(broker, "wide", {("wide", number): 0 for number in range(2_000)})
    (group,) = read_json(rota_groups, "describe", "wide")
    assert len(group["partitions"]) == 2_000
    assert {each["lag"] for each in group["partitions"]} == {0}
    _, out, _ = rota_groups("describe", "wide")
    assert "\ntopic  partition  committed  end  lag  behind  owner\n" in out
    assert "\nwide        1999          0    0    0      0s  -\n" in out


@pytest.mark.parametrize(
    "command", ["", "list", "describe", "lag", "reset", "delete", "delete-offsets"]
)
def test_help_has_examples(command: str, rota_command: RotaCommand) -> None:
    code, out, _ = rota_command("groups", *filter(None, [command]), "--help")
    assert code == 0
    assert f"rota groups {command}" in out
    assert "examples:\n" in out
    assert "--bootstrap-servers kafka:9092" in out
