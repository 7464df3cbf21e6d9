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
    format_step,
    join_names,
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
    "group.instance.id=ID (Java client 2.3 or newer)",
    "session.timeout.ms=45000",
    "session.timeout.ms=600000",
)
REJOINED = (
    "rebalance_timeout_ms=10000 (or your present value, but below request_timeout_ms, "
    "40000 if not set)"
)
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
        static="group.instance.id=ID (librdkafka 1.4 or newer)",
        long="session.timeout.ms=600000 and max.poll.interval.ms=600000 (or more)",
    ),
    client_settings.KAFKA_PYTHON: MemberSettings(
        "partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor]",
        "partition_assignment_strategy="
        "[kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor, "
        "kafka.coordinator.assignors.range.RangePartitionAssignor]",
        "group_instance_id=ID (kafka-python 2.3 or newer)",
        "session_timeout_ms=45000",
        "session_timeout_ms=600000 (before kafka-python 3.0 with request_timeout_ms=605000 and "
        "connections_max_idle_ms=610000)",
    ),
    client_settings.AIOKAFKA: MemberSettings(
        "partition_assignment_strategy="
        "[aiokafka.coordinator.assignors.range.RangePartitionAssignor]",
        "partition_assignment_strategy="
        "[aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor, "
        "aiokafka.coordinator.assignors.range.RangePartitionAssignor]",
        "group_instance_id=ID (aiokafka 0.10 or newer)",
        f"session_timeout_ms=45000 and {REJOINED}",
        f"session_timeout_ms=600000 and {REJOINED}",
    ),
    client_settings.SARAMA: MemberSettings(
        "config.Consumer.Group.Rebalance.GroupStrategies = "
        "[]sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}",
        "config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy"
        "{sarama.NewBalanceStrategyRoundRobin(), sarama.NewBalanceStrategyRange()}",
        "config.Consumer.Group.InstanceId = ID (requires config.Version sarama.V2_3_0_0 or newer)",
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
        one.group_instance_id(),
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
    told = [python.session_setting(time) for time in (304_999, 305_000, 534_999, 535_000)]
    before = "(before kafka-python 3.0 with request_timeout_ms="
    assert told == [
        "session_timeout_ms=304999",
        f"session_timeout_ms=305000 {before}310000)",
        f"session_timeout_ms=534999 {before}539999)",
        f"session_timeout_ms=535000 {before}540000 and connections_max_idle_ms=545000)",
    ]
    assert [aiokafka.session_setting(time) for time in (10_000, 10_001)] == [
        "session_timeout_ms=10000",
        f"session_timeout_ms=10001 and {REJOINED}",
    ]


WITHOUT = (
    "and without partition.assignment.strategy, session.timeout.ms and heartbeat.interval.ms, "
    "which are then the broker's"
)


@pytest.mark.parametrize(
    ("name", "uniform", "to_range", "other", "back"),
    [
        (
            client_settings.JAVA,
            f"group.protocol=consumer, {WITHOUT}",
            f"group.protocol=consumer and group.remote.assignor=range, {WITHOUT}",
            "group.remote.assignor=range",
            "group.protocol=classic and partition.assignment.strategy="
            "org.apache.kafka.clients.consumer.RangeAssignor, and without group.remote.assignor",
        ),
        (
            client_settings.LIBRDKAFKA,
            f"group.protocol=consumer, {WITHOUT}",
            f"group.protocol=consumer and group.remote.assignor=range, {WITHOUT}",
            "group.remote.assignor=range",
            "group.protocol=classic and partition.assignment.strategy=range, and without "
            "group.remote.assignor",
        ),
        (
            client_settings.FRANZ_GO,
            "kgo.ServerSideBalancer() and kgo.Balancers(kgo.StickyBalancer())",
            "kgo.ServerSideBalancer() and kgo.Balancers(kgo.RangeBalancer())",
            "kgo.Balancers(kgo.RangeBalancer())",
            "kgo.Balancers(kgo.RangeBalancer()), and without kgo.ServerSideBalancer()",
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
        assert (one.classic_protocol_setting("range") == one.strategy_setting("range")) != knows


def test_leaving_the_brokers_protocol_with_a_session() -> None:
    told = {
        name: one.classic_protocol_setting("range", 45_000)
        for name, one in CLIENT_LIBRARIES.items()
    }
    assert told[client_settings.LIBRDKAFKA] == (
        "group.protocol=classic and partition.assignment.strategy=range and "
        "session.timeout.ms=45000, and without group.remote.assignor"
    )
    assert told[client_settings.FRANZ_GO] == (
        "kgo.Balancers(kgo.RangeBalancer()) and kgo.SessionTimeout(45*time.Second), and without "
        "kgo.ServerSideBalancer()"
    )
    assert told[client_settings.ROTA] == (
        "partition.assignment.strategy=range and session.timeout.ms=45000"
    )


@pytest.mark.parametrize(
    ("names", "late"),
    [
        (
            (client_settings.JAVA, client_settings.STREAMS, client_settings.ROTA, UNKNOWN_LIBRARY),
            "raise max.poll.interval.ms above the longest time between two polls, or take fewer "
            "records at a time (max.poll.records)",
        ),
        (
            (client_settings.KAFKA_PYTHON, client_settings.AIOKAFKA),
            "raise max_poll_interval_ms above the longest time between two polls, or take fewer "
            "records at a time (max_poll_records)",
        ),
    ],
)
def test_slow_polls(names: tuple[str, ...], late: str) -> None:
    assert {CLIENT_LIBRARIES[name].slow_poll_hint for name in names} == {late}


def test_librdkafka_has_no_most_of_records_and_some_are_never_late() -> None:
    assert CLIENT_LIBRARIES[client_settings.LIBRDKAFKA].slow_poll_hint == (
        "raise max.poll.interval.ms above the longest time between two polls"
    )
    assert {
        name for name, one in CLIENT_LIBRARIES.items() if one.slow_poll_hint is None
    } == client_settings.NO_POLL_LIMIT_LIBRARIES


def test_javas_stands_for_what_cannot_be_told() -> None:
    assert [one.name for one in find_libraries([])] == ["unknown (as Java)"]
    assert [one.name for one in find_libraries([None, "librdkafka", "of-tomorrow", None])] == [
        "librdkafka",
        "unknown (as Java)",
    ]


def test_libraries_that_write_alike_share_a_line() -> None:
    def sentence(*names: str) -> str:
        return format_step(
            "Set {}.", find_libraries(names), lambda one: one.session_setting(45_000)
        )

    assert sentence("java", "librdkafka", "unknown") == "Set session.timeout.ms=45000."
    assert sentence("sarama", "librdkafka", "java") == (
        "Set this. Java and librdkafka: session.timeout.ms=45000; "
        "sarama: config.Consumer.Group.Session.Timeout = 45 * time.Second."
    )


def test_a_sentence_is_whole_where_a_library_has_no_such_setting() -> None:
    def sentence(*names: str) -> str:
        return format_step("Remove {}.", find_libraries(names), lambda one: one.static_id)

    assert sentence("kafkajs", "brod") == "Remove this. brod and kafkajs: no such setting."
    assert sentence("kafkajs", "java") == (
        "Remove this. Java: group.instance.id=ID; kafkajs: no such setting."
    )


def test_names_together() -> None:
    said = [join_names(names) for names in (["a"], ["a", None, "b"], ["c", "a", "c", "b"])]
    assert said == ["a", "a and b", "c, a and b"]


def test_a_custom_strategy_with_a_builtin_name_is_no_class_of_the_library() -> None:
    kafka_go = CLIENT_LIBRARIES[client_settings.KAFKA_GO]
    assert kafka_go.names.keys() == {"range", "roundrobin"}
    aiokafka = CLIENT_LIBRARIES[client_settings.AIOKAFKA]
    assert aiokafka.names.keys() == {"range", "roundrobin", "sticky"}
