"""Settings under Kafka's names; addresses; names of APIs, errors and keys."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as their_murmur2

from rota.broker import server
from rota.broker.config import BROKER_KEYS, find_ignored_keys, parse_config
from rota.broker.faults import find_api, find_error_code
from rota.client.config import parse_properties
from rota.engine.formats.hashing import choose_partition, murmur2
from rota.errors import Code, InputError, Unreachable
from rota.protocol.messages import CLIENT_ONLY_APIS, Api

# Settings


def test_each_setting_finds_its_place() -> None:
    found = parse_config(
        {
            "auto.create.topics.enable": False,
            "num.partitions": "4",
            "connections.max.idle.ms": 1_000,
            "group.initial.rebalance.delay.ms": 250,
            "offsets.retention.minutes": "10",
            "log.retention.hours": "2",
            "log.segment.bytes": 2_000_000,
            "message.max.bytes": 500,
            "log.cleanup.policy": "compact",
            "broker.id": 7,
            "offsets.topic.replication.factor": 1,
            "advertised.listeners": "PLAINTEXT://broker.example:9092",
        }
    )
    assert found.broker.auto_create_topics is False
    assert found.broker.default_partitions == 4
    assert found.broker.idle_connection == 1_000
    assert found.broker.node_id == 7
    assert found.group.initial_rebalance_delay == 250
    assert found.group.offsets_retention == 600_000
    assert found.topic.retention == 7_200_000
    assert found.topic.segment_bytes == 2_000_000
    assert found.topic.max_message_bytes == 500
    assert found.topic.is_compacted
    assert found.advertised_listener == "broker.example:9092"


def test_kafkas_defaults_hold_but_that_nobody_waits_for_the_first_member() -> None:
    found = parse_config({})
    assert found.group.initial_rebalance_delay == 0
    assert found.group.max_session_timeout == 1_800_000
    assert found.topic.retention == 7 * 86_400_000
    assert found.broker.max_request_bytes == 104_857_600


def test_of_several_names_for_one_setting_the_finest_holds() -> None:
    given = {"log.retention.hours": 1, "log.retention.ms": 5, "log.retention.minutes": 2}
    assert parse_config(given).topic.retention == 5
    assert parse_config({"log.retention.hours": -1}).topic.retention == -1


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"num.partition": 3}, "'num.partition'.*did you mean num.partitions"),
        ({"num.partitons": 3}, "'num.partitons'.*did you mean num.partitions"),
        ({"retention.ms": 3}, "not a broker setting.*log.retention.ms"),
        ({"entirely.unlike.anything": 3}, "'entirely.unlike.anything' is not a broker setting"),
        ({"num.partitions": "many"}, "num.partitions: 'many' is not a whole number"),
        ({"num.partitions": 0}, "num.partitions: 0 is not a whole number from 1"),
        ({"auto.create.topics.enable": "yes"}, "'yes' is neither true nor false"),
        ({"log.retention.hours": "x"}, "log.retention.hours: 'x'"),
        ({"log.segment.bytes": 1}, "log.segment.bytes: .*1.* is not a whole number"),
        ({"offsets.topic.replication.factor": 3}, "there is one node"),
        ({"num.partitions": [3]}, r"num.partitions: \[3\] is not a whole number"),
        (
            {"group.min.session.timeout.ms": 5, "group.max.session.timeout.ms": 4},
            "group.min.session.timeout.ms: 5 is more than",
        ),
    ],
)
def test_wrong_settings_are_named(given: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse_config(given)


def test_a_kafkas_own_file() -> None:
    text = """
    # The id of the broker
    node.id=1
    process.roles=broker,controller
    listeners = PLAINTEXT://:9092
    num.network.threads=3
    log.dirs=/var/kafka
    log.retention.hours=168
    ! another comment
    super.users=User:a;\\
User:b
    """
    given = parse_properties(text)
    idle = find_ignored_keys(given)
    assert idle == [
        "process.roles",
        "listeners",
        "num.network.threads",
        "log.dirs",
        "super.users",
    ]
    assert parse_config(given).ignored_keys == tuple(idle)


def is_unknown_key(key: str) -> bool:
    try:
        parse_config({key: "1"})
    except InputError as error:
        return "is not a broker setting" in str(error)
    return False


def test_every_known_name_is_taken() -> None:
    assert not [key for key in (*BROKER_KEYS, "broker.id") if is_unknown_key(key)]


# Addresses


def test_a_taken_port_is_said() -> None:
    (one,) = server.bind_sockets("127.0.0.1", 0)
    with one, pytest.raises(Unreachable, match=r"127\.0\.0\.1:\d+: another process listens"):
        server.bind_sockets("127.0.0.1", one.getsockname()[1])


def test_all_addresses_of_a_host_have_one_port() -> None:
    sockets = server.bind_sockets("localhost", 0)
    assert len({one.getsockname()[1] for one in sockets}) == 1
    for one in sockets:
        one.close()


@pytest.mark.parametrize(
    ("host", "port", "problem"),
    [
        ("127.0.0.1", 70_000, "port 70000"),
        ("no.such.host.invalid", 0, "host 'no.such.host.invalid'"),
        ("192.0.2.1", 0, "this machine has no such address"),
    ],
)
def test_places_where_nobody_can_listen(host: str, port: int, problem: str) -> None:
    with pytest.raises((InputError, Unreachable), match=problem):
        server.bind_sockets(host, port)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_this_machine_alone_needs_no_login(host: str) -> None:
    server.check_exposure(host, guarded=False, allow_anonymous=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1"])
def test_other_machines_do(host: str) -> None:
    with pytest.raises(InputError, match="can be reached from other machines"):
        server.check_exposure(host, guarded=False, allow_anonymous=False)
    server.check_exposure(host, guarded=True, allow_anonymous=False)
    server.check_exposure(host, guarded=False, allow_anonymous=True)


def test_what_clients_are_told() -> None:
    assert server.advertised_address("127.0.0.1", 9) == ("127.0.0.1", 9)
    assert server.advertised_address("0.0.0.0", 9) == (socket.gethostname(), 9)
    assert server.parse_address("[::1]:92") == ("::1", 92)
    assert server.format_address(*server.parse_address("[::1]:92")) == "[::1]:92"
    for text in ("host", "host:", ":9", "host:x", "host:99999"):
        with pytest.raises(InputError, match="is not HOST:PORT"):
            server.parse_address(text)


# Names


@pytest.mark.parametrize("api", sorted(set(Api) - CLIENT_ONLY_APIS))
def test_apis_by_name_and_key(api: Api) -> None:
    assert find_api(int(api)) is find_api(api.name) is find_api(api.name.replace("_", "")) is api


def test_errors_by_name_and_code() -> None:
    assert (
        find_error_code("NOT_COORDINATOR")
        is find_error_code("NotCoordinator")
        is find_error_code(16)
    )
    assert find_error_code(-1) is Code.UNKNOWN


def test_the_nearest_names_are_told() -> None:
    with pytest.raises(InputError, match="'JoinGruop'.*did you mean JoinGroup"):
        find_api("JoinGruop")
    with pytest.raises(InputError, match="'NOT_CORDINATOR'.*did you mean NOT_COORDINATOR"):
        find_error_code("NOT_CORDINATOR")
    with pytest.raises(InputError, match="API 999.*0 Produce, 1 Fetch"):
        find_api(999)
    with pytest.raises(InputError, match="^API 'TxnOffsetCommit': Rota's broker does not serve it"):
        find_api("TxnOffsetCommit")
    with pytest.raises(InputError, match="^API 'ConsumerGroupDescribe': Rota's broker does not se"):
        find_api("ConsumerGroupDescribe")
    for nothing in (0, "NONE"):
        with pytest.raises(InputError, match="this code means success"):
            find_error_code(nothing)
    with pytest.raises(InputError, match=r"^error 999: .{,60}from -1 to \d+$"):
        find_error_code(999)
    with pytest.raises(InputError, match="name or its number"):
        find_error_code(True)


# Keys


@given(st.binary(max_size=40))
def test_keys_go_where_producers_put_them(key: bytes) -> None:
    assert murmur2(key) == their_murmur2(key) & 0xFFFFFFFF  # type: ignore[no-untyped-call]
    assert 0 <= choose_partition(key, 7) < 7
