"""Every setting, letter by letter, as each client library takes it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from rota.replay import library
from rota.replay.dialect import CLASSIC, LIBRARIES, UNKNOWN, known, together, told

MINUTES = 60_000


class Written(NamedTuple):
    """What a library is told."""

    one: str
    """To have range alone."""
    two: str
    """Roundrobin, and range behind it."""
    static: str | None
    session: str | None
    """Of 45 seconds."""
    long: str | None
    """Of ten minutes."""


JAVA = Written(
    "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor",
    "partition.assignment.strategy=org.apache.kafka.clients.consumer.RoundRobinAssignor,"
    "org.apache.kafka.clients.consumer.RangeAssignor",
    "group.instance.id=ID (the Java client 2.3 or newer)",
    "session.timeout.ms=45000",
    "session.timeout.ms=600000",
)
REJOINED = (
    "rebalance_timeout_ms=10000 (or what it is now, but below request_timeout_ms, 40000 if not set)"
)
ROTA = JAVA._replace(
    one="partition.assignment.strategy=range",
    two="partition.assignment.strategy=roundrobin,range",
    static="group.instance.id=ID",
)
WRITTEN = {
    UNKNOWN: JAVA,
    library.JAVA: JAVA,
    library.ROTA: ROTA,
    library.LIBRDKAFKA: ROTA._replace(
        static="group.instance.id=ID (librdkafka 1.4 or newer)",
        long="session.timeout.ms=600000 and max.poll.interval.ms=600000 (or more)",
    ),
    library.KAFKA_PYTHON: Written(
        "partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor]",
        "partition_assignment_strategy="
        "[kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor, "
        "kafka.coordinator.assignors.range.RangePartitionAssignor]",
        "group_instance_id=ID (kafka-python 2.3 or newer)",
        "session_timeout_ms=45000",
        "session_timeout_ms=600000 (before kafka-python 3.0 with request_timeout_ms=605000 and "
        "connections_max_idle_ms=610000)",
    ),
    library.AIOKAFKA: Written(
        "partition_assignment_strategy="
        "[aiokafka.coordinator.assignors.range.RangePartitionAssignor]",
        "partition_assignment_strategy="
        "[aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor, "
        "aiokafka.coordinator.assignors.range.RangePartitionAssignor]",
        "group_instance_id=ID (aiokafka 0.10 or newer)",
        f"session_timeout_ms=45000 and {REJOINED}",
        f"session_timeout_ms=600000 and {REJOINED}",
    ),
    library.SARAMA: Written(
        "config.Consumer.Group.Rebalance.GroupStrategies = "
        "[]sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}",
        "config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy"
        "{sarama.NewBalanceStrategyRoundRobin(), sarama.NewBalanceStrategyRange()}",
        "config.Consumer.Group.InstanceId = ID "
        "(it asks for a config.Version of sarama.V2_3_0_0 or newer)",
        "config.Consumer.Group.Session.Timeout = 45 * time.Second",
        "config.Consumer.Group.Session.Timeout = 10 * time.Minute",
    ),
    library.FRANZ_GO: Written(
        "kgo.Balancers(kgo.RangeBalancer())",
        "kgo.Balancers(kgo.RoundRobinBalancer(), kgo.RangeBalancer())",
        "kgo.InstanceID(ID)",
        "kgo.SessionTimeout(45*time.Second)",
        "kgo.SessionTimeout(10*time.Minute)",
    ),
    library.KAFKA_GO: Written(
        "GroupBalancers: []kafka.GroupBalancer{kafka.RangeGroupBalancer{}}",
        "GroupBalancers: []kafka.GroupBalancer"
        "{kafka.RoundRobinGroupBalancer{}, kafka.RangeGroupBalancer{}}",
        None,
        "SessionTimeout: 45 * time.Second",
        "SessionTimeout: 10 * time.Minute",
    ),
}
OF_THEIR_OWN = (library.STREAMS, library.KAFKAJS, library.RUBY_KAFKA, library.BROD)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_set(name: str) -> None:
    one = LIBRARIES[name]
    assert WRITTEN[name] == Written(
        one.listed("range"),
        one.listed("roundrobin", "range"),
        one.static_id(),
        one.session_of(45_000),
        one.session_of(10 * MINUTES),
    )


def test_no_library_is_left_out() -> None:
    assert set(WRITTEN) | set(OF_THEIR_OWN) == set(LIBRARIES)
    for name in OF_THEIR_OWN:
        assert not LIBRARIES[name].strategies


@pytest.mark.parametrize(
    ("name", "sticky", "cooperative"),
    [
        (
            library.JAVA,
            "partition.assignment.strategy=org.apache.kafka.clients.consumer.StickyAssignor",
            "partition.assignment.strategy="
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        ),
        (library.LIBRDKAFKA, None, "partition.assignment.strategy=cooperative-sticky"),
        (
            library.ROTA,
            "partition.assignment.strategy=sticky",
            "partition.assignment.strategy=cooperative-sticky",
        ),
        (
            library.KAFKA_PYTHON,
            "partition_assignment_strategy="
            "[kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor]",
            "partition_assignment_strategy="
            "[kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor]",
        ),
        (
            library.AIOKAFKA,
            "partition_assignment_strategy="
            "[aiokafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor]",
            None,
        ),
        (
            library.SARAMA,
            "config.Consumer.Group.Rebalance.GroupStrategies = "
            "[]sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}",
            None,
        ),
        (
            library.FRANZ_GO,
            "kgo.Balancers(kgo.StickyBalancer())",
            "kgo.Balancers(kgo.CooperativeStickyBalancer())",
        ),
        (library.KAFKA_GO, None, None),
    ],
)
def test_the_sticky_ones(name: str, sticky: str | None, cooperative: str | None) -> None:
    one = LIBRARIES[name]
    for strategy, text in (("sticky", sticky), ("cooperative-sticky", cooperative)):
        assert (strategy in one.strategies) == (text is not None)
        assert text is None or one.listed(strategy) == text


def test_saramas_cooperative_strategy_can_be_left() -> None:
    assert LIBRARIES[library.SARAMA].listed("sticky", "cooperative-sticky") == (
        "config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy"
        "{sarama.NewBalanceStrategySticky(), sarama.NewBalanceStrategyCooperativeSticky()}"
    )


def test_every_strategy_that_may_be_advised_has_a_name() -> None:
    for one in LIBRARIES.values():
        assert one.strategies <= set(one.names) <= CLASSIC


def test_times_of_go_have_a_unit() -> None:
    one = LIBRARIES[library.SARAMA]
    told = [one.session_of(time) for time in (45_500, 60_000, 90_000, 120_000, 1_800_000)]
    assert [str(text).rpartition(" = ")[2] for text in told] == [
        "45500 * time.Millisecond",
        "60 * time.Second",
        "90 * time.Second",
        "2 * time.Minute",
        "30 * time.Minute",
    ]


def test_librdkafkas_polls_may_take_five_minutes() -> None:
    assert LIBRARIES[library.LIBRDKAFKA].session_of(5 * MINUTES) == "session.timeout.ms=300000"


def test_what_a_session_needs_beside_it() -> None:
    python, aiokafka = LIBRARIES[library.KAFKA_PYTHON], LIBRARIES[library.AIOKAFKA]
    told = [python.session_of(time) for time in (304_999, 305_000, 534_999, 535_000)]
    before = "(before kafka-python 3.0 with request_timeout_ms="
    assert told == [
        "session_timeout_ms=304999",
        f"session_timeout_ms=305000 {before}310000)",
        f"session_timeout_ms=534999 {before}539999)",
        f"session_timeout_ms=535000 {before}540000 and connections_max_idle_ms=545000)",
    ]
    assert [aiokafka.session_of(time) for time in (10_000, 10_001)] == [
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
            library.JAVA,
            f"group.protocol=consumer, {WITHOUT}",
            f"group.protocol=consumer and group.remote.assignor=range, {WITHOUT}",
            "group.remote.assignor=range",
            "group.protocol=classic and partition.assignment.strategy="
            "org.apache.kafka.clients.consumer.RangeAssignor, and without group.remote.assignor",
        ),
        (
            library.LIBRDKAFKA,
            f"group.protocol=consumer, {WITHOUT}",
            f"group.protocol=consumer and group.remote.assignor=range, {WITHOUT}",
            "group.remote.assignor=range",
            "group.protocol=classic and partition.assignment.strategy=range, and without "
            "group.remote.assignor",
        ),
        (
            library.FRANZ_GO,
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
    one = LIBRARIES[name]
    assert (one.served("uniform"), one.served("range")) == (uniform, to_range)
    assert (one.served_by("range"), one.unserved("range")) == (other, back)


def test_others_do_not_know_the_brokers_protocol() -> None:
    able = {UNKNOWN, library.JAVA, library.LIBRDKAFKA, library.FRANZ_GO}
    for name, one in LIBRARIES.items():
        knows = one.broker is not None
        assert knows == (name in able)
        assert [bool(one.served("uniform")), bool(one.served_by("range"))] == [knows, knows]
        assert (one.unserved("range") == one.listed("range")) != knows


def test_leaving_the_brokers_protocol_with_a_session() -> None:
    told = {name: one.unserved("range", 45_000) for name, one in LIBRARIES.items()}
    assert told[library.LIBRDKAFKA] == (
        "group.protocol=classic and partition.assignment.strategy=range and "
        "session.timeout.ms=45000, and without group.remote.assignor"
    )
    assert told[library.FRANZ_GO] == (
        "kgo.Balancers(kgo.RangeBalancer()) and kgo.SessionTimeout(45*time.Second), and without "
        "kgo.ServerSideBalancer()"
    )
    assert told[library.ROTA] == (
        "partition.assignment.strategy=range and session.timeout.ms=45000"
    )


@pytest.mark.parametrize(
    ("names", "late"),
    [
        (
            (library.JAVA, library.STREAMS, library.ROTA, UNKNOWN),
            "raise max.poll.interval.ms above the longest time between two polls, or take fewer "
            "records at a time (max.poll.records)",
        ),
        (
            (library.KAFKA_PYTHON, library.AIOKAFKA),
            "raise max_poll_interval_ms above the longest time between two polls, or take fewer "
            "records at a time (max_poll_records)",
        ),
    ],
)
def test_slow_polls(names: tuple[str, ...], late: str) -> None:
    assert {LIBRARIES[name].late for name in names} == {late}


def test_librdkafka_has_no_most_of_records_and_some_are_never_late() -> None:
    assert LIBRARIES[library.LIBRDKAFKA].late == (
        "raise max.poll.interval.ms above the longest time between two polls"
    )
    assert {name for name, one in LIBRARIES.items() if one.late is None} == library.NEVER_LATE


def test_javas_stands_for_what_cannot_be_told() -> None:
    assert [one.name for one in known([])] == ["unknown (as Java)"]
    assert [one.name for one in known([None, "librdkafka", "of-tomorrow", None])] == [
        "librdkafka",
        "unknown (as Java)",
    ]


def test_libraries_that_write_alike_share_a_line() -> None:
    def sentence(*names: str) -> str:
        return told("Set {}.", known(names), lambda one: one.session_of(45_000))

    assert sentence("java", "librdkafka", "unknown") == "Set session.timeout.ms=45000."
    assert sentence("sarama", "librdkafka", "java") == (
        "Set this. Java and librdkafka: session.timeout.ms=45000; "
        "sarama: config.Consumer.Group.Session.Timeout = 45 * time.Second."
    )


def test_a_sentence_is_whole_where_a_library_has_no_such_setting() -> None:
    def sentence(*names: str) -> str:
        return told("Remove {}.", known(names), lambda one: one.static)

    assert sentence("kafkajs", "brod") == "Remove this. brod and kafkajs: no such setting."
    assert sentence("kafkajs", "java") == (
        "Remove this. Java: group.instance.id=ID; kafkajs: no such setting."
    )


def test_names_together() -> None:
    said = [together(names) for names in (["a"], ["a", None, "b"], ["c", "a", "c", "b"])]
    assert said == ["a", "a and b", "c, a and b"]
