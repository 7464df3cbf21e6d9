"""The way from one policy to another, by client library."""

from __future__ import annotations

import pytest

from rota.replay import library
from rota.replay.dialect import LIBRARIES, known
from rota.replay.migration import migration, possible, size
from rota.replay.policy import parse


def steps(used: str, wanted: str, *names: str | None) -> str:
    return "\n".join(migration(parse(used), parse(wanted), known(names)))


def can(used: str, wanted: str, *names: str | None) -> bool:
    return possible(parse(used), parse(wanted), known(names))


def test_java_turns_cooperative_in_two_rolling_restarts() -> None:
    told = steps("range", "cooperative-sticky", library.JAVA)
    package = "org.apache.kafka.clients.consumer."
    first = f"={package}CooperativeStickyAssignor,{package}RangeAssignor: the group goes on"
    second = f"again with partition.assignment.strategy={package}CooperativeStickyAssignor: "
    assert told.index(first) < told.index(second)
    assert "Java client 2.4" in told
    assert "Stop all members" not in told
    assert "default list has both" in told


@pytest.mark.parametrize("name", [library.LIBRDKAFKA, library.KAFKA_PYTHON])
def test_others_refuse_both_in_one_list_so_the_group_must_stop(name: str) -> None:
    told = steps("range", "cooperative-sticky", name)
    assert told.index("Stop all members") < told.index("Start them with")
    assert f"{LIBRARIES[name].strategy}=cooperative-sticky" in told
    assert "," not in told.rpartition("Start them with ")[2]


def test_one_that_refuses_stops_them_all() -> None:
    assert "Stop all members: librdkafka cannot" in steps(
        "range", "cooperative-sticky", library.JAVA, library.LIBRDKAFKA
    )


def test_two_eager_strategies_go_side_by_side_everywhere() -> None:
    told = steps("range", "roundrobin", library.LIBRDKAFKA)
    assert "partition.assignment.strategy=roundrobin,range" in told
    assert "Stop" not in told


def test_static_members_need_names_that_last_and_a_longer_session() -> None:
    told = steps("range", "range, static 2min", library.KAFKA_PYTHON)
    assert "group_instance_id" in told
    assert "StatefulSet" in told
    assert "session_timeout_ms=120000" in told
    assert "1800000" in told
    assert "for 2min if it never is" in told


def test_a_longer_session_alone() -> None:
    told = steps("range, static 12s", "range, static 45s", library.JAVA)
    assert "session.timeout.ms=45000" in told
    assert "group.instance.id" not in told


def test_the_brokers_protocol_needs_new_brokers_and_clients() -> None:
    told = steps("range", "KIP-848 uniform", library.LIBRDKAFKA)
    assert "Kafka 4.0 or newer" in told
    assert "librdkafka 2.12" in told
    assert "group.protocol=consumer" in told
    assert "group.remote.assignor" not in told
    assert "group.remote.assignor=range" in steps("range", "KIP-848 range", library.JAVA)


def test_its_session_timeout_is_the_brokers() -> None:
    told = steps("range", "KIP-848 uniform, static 5min", library.JAVA)
    assert "consumer.session.timeout.ms=300000 for the group" in told
    assert "raising the broker's group.consumer.max.session.timeout.ms" in told
    assert "raising" not in steps("range", "KIP-848 uniform, static 45s", library.JAVA)


def test_from_the_broker_back_to_members() -> None:
    told = steps("KIP-848 uniform", "cooperative-sticky", library.JAVA)
    assert "group.protocol=classic" in told


@pytest.mark.parametrize(
    ("name", "able"),
    [
        (None, {"sticky", "cooperative-sticky", "range, static 45s", "KIP-848 uniform"}),
        (library.JAVA, {"sticky", "cooperative-sticky", "range, static 45s", "KIP-848 uniform"}),
        (library.LIBRDKAFKA, {"cooperative-sticky", "range, static 45s", "KIP-848 uniform"}),
        (library.KAFKA_PYTHON, {"sticky", "cooperative-sticky", "range, static 45s"}),
        (library.AIOKAFKA, {"sticky", "range, static 45s"}),
        (library.SARAMA, {"sticky", "range, static 45s"}),
        (library.KAFKAJS, set()),
        (library.STREAMS, {"range, static 45s"}),
    ],
)
def test_what_a_library_can_do(name: str | None, able: set[str]) -> None:
    asked = ("sticky", "cooperative-sticky", "range, static 45s", "KIP-848 uniform")
    assert {wanted for wanted in asked if can("range", wanted, name)} == able


def test_all_libraries_of_a_group_must_be_able() -> None:
    assert not can("range", "cooperative-sticky", library.JAVA, library.AIOKAFKA)
    assert can("range", "sticky", library.JAVA, library.AIOKAFKA, None)


def test_every_library_that_can_be_told_is_known() -> None:
    constants = (value for name, value in vars(library).items() if name.isupper())
    assert {name for name in constants if isinstance(name, str)} <= set(LIBRARIES)


def test_smaller_changes_come_first() -> None:
    wanted = [
        "range",
        "roundrobin",
        "range, static 45s",
        "cooperative-sticky, static 45s",
        "KIP-848 uniform, static 45s",
    ]
    sizes = [size(parse("range"), parse(one)) for one in wanted]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0
