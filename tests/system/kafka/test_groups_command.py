"""``rota groups`` and ``rota plan --group`` beside Kafka's own tool, on the same groups.

Members are Java consumers. Everything is tried on a real Kafka 4.3 and on Rota's broker.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

import rota
from rota.cli.main import main
from tests.support.clients.case import ClientCase, Drivers, plain_record, unique_name
from tests.support.clients.registry import JAVA_4
from tests.support.cluster import PASSWORD, SETTINGS, USER, Cluster, certificates, security
from tests.support.kafka import KafkaBroker, free_ports
from tests.support.waiting import wait_until
from tests.system.interop.group_case import Group
from tests.system.interop.tool_case import run_tool, server_option

BROKERS = ("kafka", "rota")
#: When the first record was made; one a second in each partition.
START = 1_700_000_000_000


@contextlib.contextmanager
def start_broker(kind: str, folder: Path) -> Iterator[str]:
    """The address of a broker."""
    if kind == "rota":
        with rota.Broker(folder / "data", config=SETTINGS) as broker:
            yield broker.bootstrap_servers
        return
    java = KafkaBroker(folder, SETTINGS)
    try:
        yield f"127.0.0.1:{java.port}"
    finally:
        java.stop()


@pytest.fixture(scope="module", params=BROKERS)
def client_case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientCase]:
    folder = tmp_path_factory.mktemp(request.param)
    with contextlib.ExitStack() as stack:
        servers = stack.enter_context(start_broker(request.param, folder))
        drivers = Drivers(
            Cluster(plain=servers, tls="", sasl="", sasl_tls="", ca=folder, logs=folder)
        )
        stack.callback(drivers.close)
        drivers.driver(JAVA_4)
        yield ClientCase(drivers, JAVA_4)


def rota_groups(client_case: ClientCase, *arguments: str, code: int = 0) -> str:
    """What the command printed; all of it where it is refused."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        found = main([*arguments, "--bootstrap-servers", client_case.stage.cluster.plain])
    assert found == code, out.getvalue() + err.getvalue()
    return out.getvalue() + (err.getvalue() if code else "")


def rota_groups_json(client_case: ClientCase, *arguments: str) -> Any:
    return json.loads(rota_groups(client_case, *arguments, "--json"))


def run_groups_tool(client_case: ClientCase, *arguments: str) -> str:
    return run_tool(client_case, "ConsumerGroupCommand", *server_option(client_case), *arguments)


def table_rows(printed: str, title: str) -> list[dict[str, str]]:
    """The table under a line of titles that begins like this, by title."""
    lines = [line for line in printed.splitlines() if line.strip()]
    start = next(n for n, line in enumerate(lines) if line.startswith(title))
    titles = re.split(r"\s{2,}|(?<=\S) (?=[A-Z#])", lines[start].strip())
    return [
        dict(zip(titles, line.split(), strict=False))
        for line in lines[start + 1 :]
        if len(line.split()) >= len(titles)
    ]


@pytest.fixture
def group(client_case: ClientCase) -> Iterator[Group]:
    """Two Java consumers, one static, that have committed ten records of each partition, and five
    more have come since.
    """
    made = Group(client_case, partitions=4)
    made.join(client_case.own, manual=True)
    made.settle()
    made.join(client_case.own, manual=True, instance="static-one")
    made.settle()
    write(made, 10)
    made.finish()
    made.commit()
    write(made, 5)
    made.finish()
    yield made
    made.end()


def write(group: Group, rounds: int) -> None:
    """Records with times that are known."""
    numbers = range(group.written, group.written + rounds * group.partitions)
    records = [
        {
            **plain_record(number, number % group.partitions),
            "timestamp": START + number // group.partitions * 1_000,
        }
        for number in numbers
    ]
    group.client_case.own.ask("produce", topic=group.topic, records=records)
    group.written = numbers.stop


# What there is


def test_offsets_lag_and_owners_are_those_of_kafkas_tool(
    client_case: ClientCase, group: Group
) -> None:
    (ours,) = rota_groups_json(client_case, "groups", "describe", group.name)
    theirs = table_rows(run_groups_tool(client_case, "--describe", "--group", group.name), "GROUP")
    hosts = {each["id"]: each for each in ours["members"]}
    assert len(theirs) == group.partitions
    assert [
        (
            each["topic"],
            str(each["partition"]),
            str(each["committed"]),
            str(each["end"]),
            str(each["lag"]),
            each["owner"],
            "/" + hosts[each["owner"]]["host"],
            hosts[each["owner"]]["client_id"],
        )
        for each in ours["partitions"]
    ] == sorted(
        (
            each["TOPIC"],
            each["PARTITION"],
            each["CURRENT-OFFSET"],
            each["LOG-END-OFFSET"],
            each["LAG"],
            each["CONSUMER-ID"],
            each["HOST"],
            each["CLIENT-ID"],
        )
        for each in theirs
    )
    assert ours["lag"] == 5 * group.partitions


def test_state_strategy_and_coordinator_are_those_of_kafkas_tool(
    client_case: ClientCase, group: Group
) -> None:
    (ours,) = rota_groups_json(client_case, "groups", "describe", group.name)
    printed = run_groups_tool(client_case, "--describe", "--state", "--group", group.name)
    line = next(each for each in printed.splitlines() if each.startswith(group.name))
    _, address, number, strategy, state, members = line.split()
    assert ours["coordinator"] == f"{number.strip('()')} ({address})"
    assert (ours["strategy"], ours["state"]) == (strategy, state) == ("range", "Stable")
    assert str(len(ours["members"])) == members == "2"


def test_members_and_their_partitions_are_those_of_kafkas_tool(
    client_case: ClientCase, group: Group
) -> None:
    (ours,) = rota_groups_json(client_case, "groups", "describe", group.name)
    printed = run_groups_tool(
        client_case, "--describe", "--members", "--verbose", "--group", group.name
    )
    theirs = {}
    for line in printed.splitlines():
        if line.startswith(group.name):
            listed = re.search(rf" {group.topic}:([\d,]+)", line)
            assert listed is not None
            partitions = sorted(map(int, listed[1].split(",")))
            theirs[line.split()[1]] = (" static-one " in line, partitions)
    assert theirs == {
        each["id"]: (each["group_instance_id"] == "static-one", each["assigned"][group.topic])
        for each in ours["members"]
    }


def test_the_list_is_that_of_kafkas_tool(client_case: ClientCase, group: Group) -> None:
    ours = {
        each["group"]: each["state"] for each in rota_groups_json(client_case, "groups", "list")
    }
    printed = run_groups_tool(client_case, "--list", "--state")
    theirs = {each["GROUP"]: each["STATE"] for each in table_rows(printed, "GROUP")}
    assert ours == theirs
    assert ours[group.name] == "Stable"


def test_lag_in_time_is_that_of_the_first_unread_record(
    client_case: ClientCase, group: Group
) -> None:
    (ours,) = rota_groups_json(client_case, "groups", "lag", group.name)
    age = time.time() - (START / 1_000 + 10)
    assert ours["lag"] == 20
    assert age - 5 <= ours["lag_seconds"] <= age * 1.02 + 5


# Where to go on


def tool_reset(tool_flags: tuple[str, ...]) -> Callable[[ClientCase, str], dict[int, int]]:
    """What Kafka's tool would set, without setting it."""

    def ask(client_case: ClientCase, name: str) -> dict[int, int]:
        printed = run_groups_tool(
            client_case, "--reset-offsets", "--group", name, *tool_flags, "--dry-run"
        )
        return {
            int(each["PARTITION"]): int(each["NEW-OFFSET"]) for each in table_rows(printed, "GROUP")
        }

    return ask


@pytest.fixture(scope="module")
def stopped_group(client_case: ClientCase) -> Group:
    """A group without members, in the middle of its records; of some the first are deleted."""
    made = Group(client_case, partitions=3)
    made.join(client_case.own, manual=True)
    made.settle()
    write(made, 10)
    made.finish()
    made.commit()
    write(made, 10)
    made.finish()
    made.end()
    deletions = [[0, 4]]
    client_case.own.ask("delete_records", topic=made.topic, offsets=deletions)
    wait_until("they are gone", lambda: earliest_offsets(client_case, made)[0] == 4)
    return made


def earliest_offsets(client_case: ClientCase, group: Group) -> dict[int, int]:
    listed = client_case.own.ask(
        "log_offsets", topic=group.topic, partitions=group.partitions, at="earliest"
    )
    return dict(listed)


RESETS = [
    ("--to-earliest",),
    ("--to-latest",),
    ("--to-current",),
    ("--to-offset", "7"),
    ("--to-offset", "1"),
    ("--to-offset", "4000"),
    ("--shift-by", "3"),
    ("--shift-by", "-7"),
    ("--shift-by", "-4000"),
    ("--shift-by", "4000"),
    ("--to-datetime", "2023-11-14T22:13:28.000"),
    ("--to-datetime", "2023-11-14T23:13:28.500+01:00"),
    ("--to-datetime", "2035-01-01T00:00:00.000"),
    ("--by-duration", "PT1H"),
    ("--by-duration", "P4000D"),
]


@pytest.mark.parametrize("flags", RESETS, ids=" ".join)
def test_resets_are_those_of_kafkas_tool(
    client_case: ClientCase, stopped_group: Group, flags: tuple[str, ...]
) -> None:
    theirs = tool_reset(("--topic", stopped_group.topic, *flags))(client_case, stopped_group.name)
    ours = rota_groups_json(
        client_case, "groups", "reset", stopped_group.name, "--topic", stopped_group.topic, *flags
    )
    assert {each["partition"]: each["new"] for each in ours["changes"]} == theirs
    assert len(theirs) == 3
    assert {each["old"] for each in ours["changes"]} == {10}


def test_what_is_set_is_what_kafkas_tool_sees(
    client_case: ClientCase, stopped_group: Group
) -> None:
    before = dict(client_case.own.ask("offsets", group=stopped_group.name))
    flags = ("--topic", f"{stopped_group.topic}:0,2", "--shift-by", "-3")
    rota_groups(client_case, "groups", "reset", stopped_group.name, *flags)
    assert (
        dict(client_case.own.ask("offsets", group=stopped_group.name))
        == before
        == {0: 10, 1: 10, 2: 10}
    )
    rota_groups(client_case, "groups", "reset", stopped_group.name, *flags, "--execute")
    assert dict(client_case.own.ask("offsets", group=stopped_group.name)) == {0: 7, 1: 10, 2: 7}
    back = ("--all-topics", "--to-offset", "10", "--execute")
    rota_groups(client_case, "groups", "reset", stopped_group.name, *back)
    assert dict(client_case.own.ask("offsets", group=stopped_group.name)) == before


def test_what_kafkas_tool_exports_is_taken_and_the_other_way(
    client_case: ClientCase, stopped_group: Group, tmp_path: Path
) -> None:
    exported = run_groups_tool(
        client_case,
        *("--reset-offsets", "--group", stopped_group.name, "--all-topics", "--shift-by", "2"),
        *("--export", "--dry-run"),
    )
    theirs = tmp_path / "theirs.csv"
    theirs.write_text(exported)
    changes = rota_groups_json(
        client_case, "groups", "reset", stopped_group.name, "--from-file", str(theirs)
    )
    assert {each["new"] for each in changes["changes"]} == {12}
    ours = tmp_path / "ours.csv"
    flags = ("--all-topics", "--shift-by", "3", "--export")
    ours.write_text(rota_groups(client_case, "groups", "reset", stopped_group.name, *flags))
    assert tool_reset(("--from-file", str(ours)))(client_case, stopped_group.name) == {
        0: 13,
        1: 13,
        2: 13,
    }


def test_members_keep_a_group_from_being_changed(client_case: ClientCase, group: Group) -> None:
    before = client_case.own.ask("offsets", group=group.name)
    flags = ("--all-topics", "--to-earliest", "--execute")
    printed = rota_groups(client_case, "groups", "reset", group.name, *flags, code=4)
    assert "is Stable with members" in printed
    assert "static-one at 127.0.0.1" in printed
    assert "members" in rota_groups(
        client_case, "groups", "delete", group.name, "--execute", code=4
    )
    flags = ("--topic", group.topic, "--execute")
    printed = rota_groups(client_case, "groups", "delete-offsets", group.name, *flags, code=4)
    assert "a member subscribes to the topic" in printed
    assert client_case.own.ask("offsets", group=group.name) == before


def test_groups_and_offsets_are_deleted(client_case: ClientCase) -> None:
    made = Group(client_case, partitions=2)
    made.join(client_case.own)
    made.settle()
    write(made, 1)
    made.finish()
    made.end()
    place = ("--topic", f"{made.topic}:1")
    rota_groups(client_case, "groups", "delete-offsets", made.name, *place)
    assert len(client_case.own.ask("offsets", group=made.name)) == 2
    rota_groups(client_case, "groups", "delete-offsets", made.name, *place, "--execute")
    assert client_case.own.ask("offsets", group=made.name) == [[0, 1]]
    rota_groups(client_case, "groups", "delete", made.name)
    assert made.name in client_case.own.ask("groups")
    rota_groups(client_case, "groups", "delete", made.name, "--execute")
    assert made.name not in client_case.own.ask("groups")
    printed = rota_groups(client_case, "groups", "describe", made.name, code=4)
    assert f"there is no group '{made.name}'" in printed


# What would be


@pytest.mark.parametrize("strategy", JAVA_4.strategies)
def test_a_plan_of_a_live_group_comes_true(client_case: ClientCase, strategy: str) -> None:
    """Java consumers do what Kafka's solver is planned to do when one more joins. The first are
    static, so that the new one comes behind them in every order.
    """
    made = Group(client_case, partitions=7)
    for name in ("a", "b"):
        made.join(client_case.own, strategy=strategy, instance=name)
        made.settle()
    flags = ("--add", "1", "--solver", "kafka")
    plan = rota_groups_json(client_case, "plan", "--group", made.name, *flags)
    assert plan["strategy"] == strategy
    made.join(client_case.own, strategy=strategy)
    made.settle()

    def assigned() -> dict[str, list[int]]:
        (found,) = rota_groups_json(client_case, "groups", "describe", made.name)
        return {each["id"]: each["assigned"].get(made.topic, []) for each in found["members"]}

    wanted = {who: given[made.topic] for who, given in plan["target_assignment"].items()}
    expected = wanted.pop("new-1")
    wait_until("the group has settled", lambda: len(assigned()) == 3 and all(assigned().values()))
    found = assigned()
    assert {who: found.pop(who) for who in wanted} == wanted
    assert list(found.values()) == [expected]
    made.end()


def test_a_group_that_the_broker_assigns(client_case: ClientCase) -> None:
    """KIP-848: shown with its members and where they are; planned only under another strategy."""
    if "rota" in client_case.stage.cluster.logs.name:
        pytest.skip("Rota's broker has classic groups only")
    topic = client_case.topic(4)
    name = unique_name("g")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": client_case.stage.cluster.plain,
            "group.id": name,
            "group.protocol": "consumer",
            "client.id": "modern",
        }
    )
    try:
        consumer.subscribe([topic])
        wait_until(
            "it is assigned", lambda: not consumer.poll(0.1) and len(consumer.assignment()) == 4
        )
        listed = {each["group"]: each for each in rota_groups_json(client_case, "groups", "list")}
        assert (listed[name]["type"], len(listed[name]["members"])) == ("consumer", 1)
        (found,) = rota_groups_json(client_case, "groups", "describe", name)
        assert (found["state"], found["strategy"]) == ("Stable", "uniform")
        assert found["type"] == "consumer"
        (member,) = found["members"]
        assert (member["client_id"], member["topics"]) == ("modern", [topic])
        assert member["assigned"] == {topic: [0, 1, 2, 3]}
        assert member["target"] is None
        assert "assigned by the broker (KIP-848)" in rota_groups(
            client_case, "groups", "describe", name
        )
        printed = rota_groups(client_case, "plan", "--group", name, "--add", "1", code=4)
        assert "is assigned by the broker (KIP-848, strategy uniform)" in printed
        plan = rota_groups_json(
            client_case, "plan", "--group", name, "--add", "1", "--strategy", "sticky"
        )
        assert plan["moved"] == 2
    finally:
        consumer.close()
    wait_until(
        "it is empty", lambda: "Empty" in rota_groups(client_case, "groups", "describe", name)
    )
    flags = ("--topic", topic, "--to-latest", "--execute")
    rota_groups(client_case, "groups", "reset", name, *flags)
    assert len(client_case.own.ask("offsets", group=name)) == 4
    rota_groups(client_case, "groups", "delete", name, "--execute")


# Without permission


@pytest.fixture
def kafka_with_acls(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A Kafka with ACLs that give its user nothing: the address for all, and that for the user."""
    open_port, port, controller = free_ports(3)
    shown = f"PLAINTEXT://127.0.0.1:{open_port},SASL_PLAINTEXT://127.0.0.1:{port}"
    _, own = certificates(tmp_path)
    settings = {
        **SETTINGS,
        **security(own),
        "listeners": f"{shown},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": shown,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    java = KafkaBroker(tmp_path, settings)
    try:
        yield f"127.0.0.1:{open_port}", f"127.0.0.1:{port}"
    finally:
        java.stop()


@pytest.mark.nightly
def test_what_is_not_allowed_is_named(
    kafka_with_acls: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers, asked = kafka_with_acls
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
    wait_until("it is known", lambda: "orders" in admin.list_topics(timeout=30).topics)
    offsets = confluent_kafka.ConsumerGroupTopicPartitions(
        "billing", [confluent_kafka.TopicPartition("orders", 0, 0)]
    )
    admin.alter_consumer_group_offsets([offsets])["billing"].result(30)
    login = tmp_path / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{USER}" password="{PASSWORD}";\n'
    )

    def refused(*arguments: str) -> str:
        where = ("--bootstrap-servers", asked, "--command-config", str(login))
        assert main([*arguments, *where]) == 4
        return capsys.readouterr().err

    def allow(kind: ResourceType, name: str, what: AclOperation) -> None:
        binding = AclBinding(
            *(kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", what),
            AclPermissionType.ALLOW,
        )
        admin.create_acls([binding])[binding].result(30)

    reset = ("groups", "reset", "billing", "--topic", "orders", "--to-latest", "--execute")
    for command in (("groups", "describe", "billing"), reset, ("plan", "--group", "billing")):
        assert "no permission for group 'billing'" in refused(*command)
    allow(ResourceType.GROUP, "billing", AclOperation.DESCRIBE)
    wait_until("it is allowed", lambda: "topic 'orders' cannot be looked at" in refused(*reset))
    allow(ResourceType.TOPIC, "orders", AclOperation.DESCRIBE)
    wait_until("it is allowed", lambda: "GROUP_AUTHORIZATION_FAILED" in refused(*reset))
    assert "not deleted: billing: no permission" in refused(
        "groups", "delete", "billing", "--execute"
    )
