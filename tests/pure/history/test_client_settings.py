"""Every setting, letter by letter, as each client library takes it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from rota.engine.history import client_settings
from rota.engine.history.client_settings import (
    CLASSIC_STRATEGIES,
    CLIENT_LIBRARIES,
    UNKNOWN_LIBRARY,
    find_libraries,
    join_names,
    offer_libraries,
)

MINUTES = 60_000


class MemberSettings(NamedTuple):
    """What a library is told."""

    #: To have range alone.
    one: str
    #: Roundrobin, and range behind it.
    two: str
    static: str | None
    #: Of 45 seconds.
    session: str | None
    #: Of ten minutes.
    long: str | None


JAVA = MemberSettings(
    "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor",
    "partition.assignment.strategy=org.apache.kafka.clients.consumer.RoundRobinAssignor,"
    "org.apache.kafka.clients.consumer.RangeAssignor",
    "group.instance.id=ID",
    "session.timeout.ms=45000",
    "session.timeout.ms=600000",
)
REJOINED = "rebalance_timeout_ms=10000"
ROTA = JAVA._replace(
    one="partition.assignment.strategy=range",
    two="partition.assignment.strategy=roundrobin,range",
    static="group.instance.id=ID",
)
WRITTEN = {
    UNKNOWN_LIBRARY: JAVA,
    client_settings.JAVA: JAVA,
    client_settings.ROTA: ROTA,
    client_settings.LIBRDKAFKA: ROTA._replace(
        static="group.instance.id=ID",
        long="session.timeout.ms=600000\nmax.poll.interval.ms=600000",
    ),
    client_settings.KAFKA_PYTHON: MemberSettings(
        "partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor]",
        "partition_assignment_strategy="
        "[kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor, "
        "kafka.coordinator.assignors.range.RangePartitionAssignor]",
        "group_instance_id=ID",
        "session_timeout_ms=45000",
        "session_timeout_ms=600000",
    ),
    client_settings.AIOKAFKA: MemberSettings(
        "partition_assignment_strategy="
        "[aiokafka.coordinator.assignors.range.RangePartitionAssignor]",
        "partition_assignment_strategy="
        "[aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor, "
        "aiokafka.coordinator.assignors.range.RangePartitionAssignor]",
        "group_instance_id=ID",
        f"session_timeout_ms=45000\n{REJOINED}",
        f"session_timeout_ms=600000\n{REJOINED}",
    ),
    client_settings.SARAMA: MemberSettings(
        "config.Consumer.Group.Rebalance.GroupStrategies = "
        "[]sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}",
        "config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy"
        "{sarama.NewBalanceStrategyRoundRobin(), sarama.NewBalanceStrategyRange()}",
        "config.Consumer.Group.InstanceId = ID",
        "config.Consumer.Group.Session.Timeout = 45 * time.Second",
        "config.Consumer.Group.Session.Timeout = 10 * time.Minute",
    ),
    client_settings.FRANZ_GO: MemberSettings(
        "kgo.Balancers(kgo.RangeBalancer())",
        "kgo.Balancers(kgo.RoundRobinBalancer(), kgo.RangeBalancer())",
        "kgo.InstanceID(ID)",
        "kgo.SessionTimeout(45*time.Second)",
        "kgo.SessionTimeout(10*time.Minute)",
    ),
    client_settings.KAFKA_GO: MemberSettings(
        "GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}}",
        "GroupBalancers: []kafka.GroupBalancer"
        "{kafka.RoundRobinGroupBalancer{}, kafka.RangeGroupBalancer{}}",
        None,
        "SessionTimeout: 45 * time.Second",
        "SessionTimeout: 10 * time.Minute",
    ),
}
OF_THEIR_OWN = (
    client_settings.STREAMS,
    client_settings.KAFKAJS,
    client_settings.RUBY_KAFKA,
    client_settings.BROD,
)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_set(name: str) -> None:
    one = CLIENT_LIBRARIES[name]
    assert WRITTEN[name] == MemberSettings(
        one.strategy_setting("range"),
        one.strategy_setting("roundrobin", "range"),
        one.static_id_setting(),
        one.session_setting(45_000),
        one.session_setting(10 * MINUTES),
    )


def test_no_library_is_left_out() -> None:
    assert set(WRITTEN) | set(OF_THEIR_OWN) == set(CLIENT_LIBRARIES)
    for name in OF_THEIR_OWN:
        assert not CLIENT_LIBRARIES[name].strategies


@pytest.mark.parametrize(
    ("name", "sticky", "cooperative"),
    [
        (
            client_settings.JAVA,
            "partition.assignment.strategy=org.apache.kafka.clients.consumer.StickyAssignor",
            "partition.assignment.strategy="
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        ),
        (client_settings.LIBRDKAFKA, None, "partition.assignment.strategy=cooperative-sticky"),
        (
            client_settings.ROTA,
            "partition.assignment.strategy=sticky",
            "partition.assignment.strategy=cooperative-sticky",
        ),
        (
            client_settings.KAFKA_PYTHON,
            "partition_assignment_strategy="
            "[kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor]",
            "partition_assignment_strategy="
            "[kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor]",
        ),
        (
            client_settings.AIOKAFKA,
            "partition_assignment_strategy="
            "[aiokafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor]",
            None,
        ),
        (
            client_settings.SARAMA,
            "config.Consumer.Group.Rebalance.GroupStrategies = "
            "[]sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}",
            None,
        ),
        (
            client_settings.FRANZ_GO,
            "kgo.Balancers(kgo.StickyBalancer())",
            "kgo.Balancers(kgo.CooperativeStickyBalancer())",
        ),
        (client_settings.KAFKA_GO, None, None),
    ],
)
def test_the_sticky_ones(name: str, sticky: str | None, cooperative: str | None) -> None:
    one = CLIENT_LIBRARIES[name]
    for strategy, text in (("sticky", sticky), ("cooperative-sticky", cooperative)):
        assert (strategy in one.strategies) == (text is not None)
        assert text is None or one.strategy_setting(strategy) == text


def test_saramas_cooperative_strategy_can_be_left() -> None:
    assert CLIENT_LIBRARIES[client_settings.SARAMA].strategy_setting(
        "sticky", "cooperative-sticky"
    ) == (
        "config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy"
        "{sarama.NewBalanceStrategySticky(), sarama.NewBalanceStrategyCooperativeSticky()}"
    )


def test_every_strategy_that_may_be_advised_has_a_name() -> None:
    for one in CLIENT_LIBRARIES.values():
        assert one.strategies <= set(one.names) <= CLASSIC_STRATEGIES


def test_times_of_go_have_a_unit() -> None:
    one = CLIENT_LIBRARIES[client_settings.SARAMA]
    told = [one.session_setting(time) for time in (45_500, 60_000, 90_000, 120_000, 1_800_000)]
    assert [str(text).rpartition(" = ")[2] for text in told] == [
        "45500 * time.Millisecond",
        "60 * time.Second",
        "90 * time.Second",
        "2 * time.Minute",
        "30 * time.Minute",
    ]


def test_librdkafkas_polls_may_take_five_minutes() -> None:
    assert (
        CLIENT_LIBRARIES[client_settings.LIBRDKAFKA].session_setting(5 * MINUTES)
        == "session.timeout.ms=300000"
    )


def test_what_a_session_needs_beside_it() -> None:
    python, aiokafka = (
        CLIENT_LIBRARIES[client_settings.KAFKA_PYTHON],
        CLIENT_LIBRARIES[client_settings.AIOKAFKA],
    )
    notes = [python.session_needs(time).note for time in (304_999, 305_000, 534_999, 535_000)]
    before = "Before kafka-python 3.0, set request_timeout_ms="
    assert notes == [
        "",
        f"{before}310000, too.",
        f"{before}539999, too.",
        f"{before}540000 and connections_max_idle_ms=545000, too.",
    ]
    assert python.session_setting(535_000) == "session_timeout_ms=535000"
    assert [aiokafka.session_setting(time) for time in (10_000, 10_001)] == [
        "session_timeout_ms=10000",
        f"session_timeout_ms=10001\n{REJOINED}",
    ]
    assert not aiokafka.session_needs(10_000).note
    assert "below request_timeout_ms" in aiokafka.session_needs(10_001).note


@pytest.mark.parametrize(
    ("name", "uniform", "to_range", "other", "back"),
    [
        (
            client_settings.JAVA,
            "group.protocol=consumer",
            "group.protocol=consumer\ngroup.remote.assignor=range",
            "group.remote.assignor=range",
            "group.protocol=classic\npartition.assignment.strategy="
            "org.apache.kafka.clients.consumer.RangeAssignor",
        ),
        (
            client_settings.LIBRDKAFKA,
            "group.protocol=consumer",
            "group.protocol=consumer\ngroup.remote.assignor=range",
            "group.remote.assignor=range",
            "group.protocol=classic\npartition.assignment.strategy=range",
        ),
        (
            client_settings.FRANZ_GO,
            "kgo.ServerSideBalancer()\nkgo.Balancers(kgo.StickyBalancer())",
            "kgo.ServerSideBalancer()\nkgo.Balancers(kgo.RangeBalancer())",
            "kgo.Balancers(kgo.RangeBalancer())",
            "kgo.Balancers(kgo.RangeBalancer())",
        ),
    ],
)
def test_the_brokers_protocol(
    name: str, uniform: str, to_range: str, other: str, back: str
) -> None:
    one = CLIENT_LIBRARIES[name]
    assert (one.consumer_protocol_setting("uniform"), one.consumer_protocol_setting("range")) == (
        uniform,
        to_range,
    )
    assert (one.assignor_setting("range"), one.classic_protocol_setting("range")) == (other, back)


def test_others_do_not_know_the_brokers_protocol() -> None:
    able = {
        UNKNOWN_LIBRARY,
        client_settings.JAVA,
        client_settings.LIBRDKAFKA,
        client_settings.FRANZ_GO,
    }
    for name, one in CLIENT_LIBRARIES.items():
        knows = one.consumer_protocol is not None
        assert knows == (name in able)
        assert [
            bool(one.consumer_protocol_setting("uniform")),
            bool(one.assignor_setting("range")),
        ] == [knows, knows]
        leaves = one.consumer_protocol is not None and bool(one.consumer_protocol.to_leave)
        same = one.classic_protocol_setting("range") == one.strategy_setting("range")
        assert same != leaves


def test_leaving_the_brokers_protocol_with_a_session() -> None:
    told = {
        name: one.classic_protocol_setting("range", 45_000)
        for name, one in CLIENT_LIBRARIES.items()
    }
    assert told[client_settings.LIBRDKAFKA] == (
        "group.protocol=classic\npartition.assignment.strategy=range\nsession.timeout.ms=45000"
    )
    assert told[client_settings.FRANZ_GO] == (
        "kgo.Balancers(kgo.RangeBalancer())\nkgo.SessionTimeout(45*time.Second)"
    )
    assert told[client_settings.ROTA] == (
        "partition.assignment.strategy=range\nsession.timeout.ms=45000"
    )


@pytest.mark.parametrize(
    ("names", "records", "interval"),
    [
        (
            (client_settings.JAVA, client_settings.STREAMS, client_settings.ROTA, UNKNOWN_LIBRARY),
            "max.poll.records=100",
            "max.poll.interval.ms=600000",
        ),
        (
            (client_settings.KAFKA_PYTHON, client_settings.AIOKAFKA),
            "max_poll_records=100",
            "max_poll_interval_ms=600000",
        ),
        ((client_settings.LIBRDKAFKA,), None, "max.poll.interval.ms=600000"),
        (tuple(client_settings.NO_POLL_LIMIT_LIBRARIES), None, None),
    ],
)
def test_slow_polls(names: tuple[str, ...], records: str | None, interval: str | None) -> None:
    for name in names:
        one = CLIENT_LIBRARIES[name]
        assert one.poll_records_setting(100) == records
        assert one.poll_interval_setting(10 * MINUTES) == interval


def test_spring_boot_has_javas_settings_in_yaml() -> None:
    one = client_settings.SPRING_BOOT
    assert one.strategy_setting("sticky") == (
        "spring.kafka.consumer.properties:\n"
        "  partition.assignment.strategy: org.apache.kafka.clients.consumer.StickyAssignor"
    )
    assert one.consumer_protocol_setting("range") == (
        "spring.kafka.consumer.properties:\n"
        "  group.protocol: consumer\n"
        "  group.remote.assignor: range"
    )


def test_the_groups_own_libraries_come_first_and_others_are_offered() -> None:
    def names(*own: str, able: bool = True) -> list[str]:
        return [one.name for one in offer_libraries(find_libraries(own), lambda _: able)]

    others = ["Kafka Streams", "librdkafka", "kafka-python", "aiokafka"]
    assert names()[:6] == ["Java", "Spring Boot", *others]
    assert names("librdkafka", "unknown")[:3] == ["librdkafka", "Java", "Spring Boot"]
    assert names("franz-go", "java")[:3] == ["franz-go", "Java", "Spring Boot"]
    assert names("sarama", "java", able=False) == ["Java", "sarama"]
    assert "Rota" not in names()
    assert names("rota")[0] == "Rota"
    for own in ((), ("java",), ("sarama", "unknown")):
        assert len(set(names(*own))) == len(names(*own))


def test_javas_stands_for_what_cannot_be_told() -> None:
    assert [one.name for one in find_libraries([])] == ["unknown (as Java)"]
    assert [one.name for one in find_libraries([None, "librdkafka", "of-tomorrow", None])] == [
        "librdkafka",
        "unknown (as Java)",
    ]


def test_names_together() -> None:
    said = [join_names(names) for names in (["a"], ["a", None, "b"], ["c", "a", "c", "b"])]
    assert said == ["a", "a and b", "c, a and b"]


def test_a_custom_strategy_with_a_builtin_name_is_no_class_of_the_library() -> None:
    kafka_go = CLIENT_LIBRARIES[client_settings.KAFKA_GO]
    assert kafka_go.names.keys() == {"range", "roundrobin"}
    aiokafka = CLIENT_LIBRARIES[client_settings.AIOKAFKA]
    assert aiokafka.names.keys() == {"range", "roundrobin", "sticky"}
