"""The way from one policy to another, by client library."""

from __future__ import annotations

import pytest

from rota.engine.history import client_settings
from rota.engine.history.advice import is_migration_possible, list_migration_steps, migration_size
from rota.engine.history.client_settings import CLIENT_LIBRARIES, find_libraries
from tests.support.policies import policy_of


def migration_steps(used: str, wanted: str, *names: str | None) -> list[str]:
    return list(list_migration_steps(policy_of(used), policy_of(wanted), find_libraries(names)))


def can_migrate(used: str, wanted: str, *names: str | None) -> bool:
    return is_migration_possible(policy_of(used), policy_of(wanted), find_libraries(names))


IDS = (
    "Give every process {}, with an ID of its own that stays the same over restarts and deploys: "
    "the name of a StatefulSet's pod or of a host, not that of a Deployment's pod. Two processes "
    "with the same ID fence each other."
)
AT_MOST = (
    "The session must not be above the broker's group.max.session.timeout.ms, 1800000 if not set."
)
SESSION = f"Set {{}}. {AT_MOST}"
NOTE = (
    "Note: a static member keeps its partitions while it restarts; nobody reads them until it is "
    "back, or for {} if it does not come back (rota simulate shows the downtime). To scale down, "
    "remove the member with the admin client instead of waiting."
)
DEPARTED = (
    "Note: a static member that stops keeps its partitions until its session ends, for {}, also "
    "if its process comes back without the ID. Remove it with the admin client (Java: "
    "removeMembersFromConsumerGroup) when its process stops."
)
FIRST = (
    "Restart the members one after the other with {}: the group continues with range until all "
    "members have it."
)
AGAIN = "Restart them one after the other again with {}"
TURNS = f"{AGAIN}: the group becomes cooperative."
STOP = (
    "Stop all members: {} cannot have eager and cooperative strategies in one list, so the "
    "group cannot change over while it runs."
)
BY_DEFAULT = (
    "Skip the next step if all members run {} and do not set the list: the default list has both."
)
CLASSES = "org.apache.kafka.clients.consumer"
LIST = "partition.assignment.strategy"
GO = "config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy"
PYTHON = "partition_assignment_strategy"
WITHOUT = (
    f", and without {LIST}, session.timeout.ms and heartbeat.interval.ms, which are then the "
    "broker's"
)
BROKERS = "Check that the brokers run Kafka 4.0 or newer, and every member"
CHANGES = "Restart the members one after the other with {}. The group changes over while it runs."


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            client_settings.JAVA,
            [
                "Check that every member runs Java client 2.4 or newer.",
                BY_DEFAULT.format("Java client 3.0 or newer"),
                FIRST.format(f"{LIST}={CLASSES}.CooperativeStickyAssignor,{CLASSES}.RangeAssignor"),
                TURNS.format(f"{LIST}={CLASSES}.CooperativeStickyAssignor"),
            ],
        ),
        (
            client_settings.ROTA,
            [
                BY_DEFAULT.format("Rota"),
                FIRST.format(f"{LIST}=cooperative-sticky,range"),
                TURNS.format(f"{LIST}=cooperative-sticky"),
            ],
        ),
        (
            client_settings.FRANZ_GO,
            [
                FIRST.format("kgo.Balancers(kgo.CooperativeStickyBalancer(), kgo.RangeBalancer())"),
                TURNS.format("kgo.Balancers(kgo.CooperativeStickyBalancer())"),
            ],
        ),
        (
            client_settings.LIBRDKAFKA,
            [
                "Check that every member runs librdkafka 1.6 or newer.",
                STOP.format("librdkafka"),
                f"Start them with {LIST}=cooperative-sticky.",
            ],
        ),
        (
            client_settings.KAFKA_PYTHON,
            [
                "Check that every member runs kafka-python 3.0 or newer.",
                STOP.format("kafka-python"),
                f"Start them with {PYTHON}="
                "[kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor].",
            ],
        ),
    ],
)
def test_to_the_cooperative_strategy(name: str, told: list[str]) -> None:
    assert migration_steps("range", "cooperative-sticky", name) == told


def test_one_that_refuses_stops_them_all() -> None:
    assert migration_steps(
        "range", "cooperative-sticky", client_settings.JAVA, client_settings.LIBRDKAFKA, None
    ) == [
        "Check that every member runs Java client 2.4 or newer, or librdkafka 1.6 or newer.",
        STOP.format("librdkafka"),
        f"Start them with this. Java and unknown (as Java): {LIST}="
        f"{CLASSES}.CooperativeStickyAssignor; librdkafka: {LIST}=cooperative-sticky.",
    ]


@pytest.mark.parametrize(
    ("name", "both", "alone"),
    [
        (
            client_settings.JAVA,
            f"{LIST}={CLASSES}.RoundRobinAssignor,{CLASSES}.RangeAssignor",
            f"{LIST}={CLASSES}.RoundRobinAssignor",
        ),
        (client_settings.LIBRDKAFKA, f"{LIST}=roundrobin,range", f"{LIST}=roundrobin"),
        (client_settings.ROTA, f"{LIST}=roundrobin,range", f"{LIST}=roundrobin"),
        (
            client_settings.KAFKA_PYTHON,
            f"{PYTHON}=[kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor, "
            "kafka.coordinator.assignors.range.RangePartitionAssignor]",
            f"{PYTHON}=[kafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor]",
        ),
        (
            client_settings.AIOKAFKA,
            f"{PYTHON}=[aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor, "
            "aiokafka.coordinator.assignors.range.RangePartitionAssignor]",
            f"{PYTHON}=[aiokafka.coordinator.assignors.roundrobin.RoundRobinPartitionAssignor]",
        ),
        (
            client_settings.SARAMA,
            f"{GO}{{sarama.NewBalanceStrategyRoundRobin(), sarama.NewBalanceStrategyRange()}}",
            f"{GO}{{sarama.NewBalanceStrategyRoundRobin()}}",
        ),
        (
            client_settings.FRANZ_GO,
            "kgo.Balancers(kgo.RoundRobinBalancer(), kgo.RangeBalancer())",
            "kgo.Balancers(kgo.RoundRobinBalancer())",
        ),
        (
            client_settings.KAFKA_GO,
            "GroupBalancers: []kafka.GroupBalancer"
            "{kafka.RoundRobinGroupBalancer{}, kafka.RangeGroupBalancer{}}",
            "GroupBalancers: []kafka.GroupBalancer{kafka.RoundRobinGroupBalancer{}}",
        ),
    ],
)
def test_two_eager_strategies_go_side_by_side_everywhere(name: str, both: str, alone: str) -> None:
    assert migration_steps("range", "roundrobin", name) == [
        FIRST.format(both),
        f"{AGAIN.format(alone)}.",
    ]


@pytest.mark.parametrize(
    ("name", "static", "session"),
    [
        (
            client_settings.JAVA,
            "group.instance.id=ID (Java client 2.3 or newer)",
            "session.timeout.ms=120000",
        ),
        (
            client_settings.STREAMS,
            "group.instance.id=ID (Kafka Streams 2.3 or newer)",
            "session.timeout.ms=120000",
        ),
        (
            client_settings.LIBRDKAFKA,
            "group.instance.id=ID (librdkafka 1.4 or newer)",
            "session.timeout.ms=120000",
        ),
        (client_settings.ROTA, "group.instance.id=ID", "session.timeout.ms=120000"),
        (
            client_settings.KAFKA_PYTHON,
            "group_instance_id=ID (kafka-python 2.3 or newer)",
            "session_timeout_ms=120000",
        ),
        (
            client_settings.AIOKAFKA,
            "group_instance_id=ID (aiokafka 0.10 or newer)",
            "session_timeout_ms=120000 and rebalance_timeout_ms=10000 (or your present value, "
            "but below request_timeout_ms, 40000 if not set)",
        ),
        (
            client_settings.SARAMA,
            "config.Consumer.Group.InstanceId = ID "
            "(requires config.Version sarama.V2_3_0_0 or newer)",
            "config.Consumer.Group.Session.Timeout = 2 * time.Minute",
        ),
        (client_settings.FRANZ_GO, "kgo.InstanceID(ID)", "kgo.SessionTimeout(2*time.Minute)"),
    ],
)
def test_static_members_need_ids_that_last_and_a_session(
    name: str, static: str, session: str
) -> None:
    assert migration_steps("range", "range, static 2min", name) == [
        IDS.format(static),
        SESSION.format(session),
        NOTE.format("2min"),
    ]
    assert migration_steps("range, static 12s", "range, static 2min", name) == [
        SESSION.format(session),
        NOTE.format("2min"),
    ]
    removed = static.partition(" (")[0]
    assert migration_steps("range, static 12s", "range", name) == [
        f"Remove {removed} from every member's settings, and restart the members one after the "
        "other.",
        DEPARTED.format("12s"),
    ]
    steps = list_migration_steps(
        policy_of("range, static 5min"), policy_of("range"), find_libraries([name]), 300_000
    )
    assert steps[1] == DEPARTED.format("5min")
    assert "at the same time: otherwise the partitions of a member that crashed" in steps[2]
    assert steps[2].endswith("wait for 5min.")


@pytest.mark.parametrize(
    ("present", "step"),
    [
        (12_000, "Keep session.timeout.ms=12000."),
        (45_000, SESSION.format("session.timeout.ms=12000")),
        (None, SESSION.format("session.timeout.ms=12000")),
    ],
)
def test_a_session_timeout_that_the_members_have_is_kept(present: int | None, step: str) -> None:
    libraries = find_libraries([client_settings.JAVA])
    used, wanted = policy_of("range"), policy_of("range, static 12s")
    _, session, note = list_migration_steps(used, wanted, libraries, present)
    assert (session, note) == (step, NOTE.format("12s"))


def test_a_group_of_many_libraries_has_a_line_for_each() -> None:
    names = (
        client_settings.JAVA,
        client_settings.SARAMA,
        client_settings.FRANZ_GO,
        client_settings.KAFKA_PYTHON,
        None,
    )
    assert migration_steps("range", "sticky, static 45s", *names) == [
        IDS.format("this") + " franz-go: kgo.InstanceID(ID); Java and unknown (as Java): "
        "group.instance.id=ID (Java client 2.3 or newer); "
        "kafka-python: group_instance_id=ID (kafka-python 2.3 or newer); "
        "sarama: config.Consumer.Group.InstanceId = ID "
        "(requires config.Version sarama.V2_3_0_0 or newer).",
        SESSION.format("this") + " franz-go: kgo.SessionTimeout(45*time.Second); Java and unknown "
        "(as Java): session.timeout.ms=45000; kafka-python: session_timeout_ms=45000; "
        "sarama: config.Consumer.Group.Session.Timeout = 45 * time.Second.",
        NOTE.format("45s"),
        FIRST.format("this") + " franz-go: kgo.Balancers(kgo.StickyBalancer(), "
        f"kgo.RangeBalancer()); Java and unknown (as Java): {LIST}={CLASSES}.StickyAssignor,"
        f"{CLASSES}.RangeAssignor; kafka-python: {PYTHON}="
        "[kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor, "
        "kafka.coordinator.assignors.range.RangePartitionAssignor]; "
        f"sarama: {GO}{{sarama.NewBalanceStrategySticky(), sarama.NewBalanceStrategyRange()}}.",
        AGAIN.format("this") + ". franz-go: kgo.Balancers(kgo.StickyBalancer()); Java and unknown "
        f"(as Java): {LIST}={CLASSES}.StickyAssignor; kafka-python: {PYTHON}="
        "[kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor]; "
        f"sarama: {GO}{{sarama.NewBalanceStrategySticky()}}.",
    ]


@pytest.mark.parametrize(
    ("name", "wanted", "told"),
    [
        (
            client_settings.JAVA,
            "KIP-848 uniform",
            [
                f"{BROKERS} Java client 4.0 or newer.",
                CHANGES.format(f"group.protocol=consumer{WITHOUT}"),
            ],
        ),
        (
            client_settings.LIBRDKAFKA,
            "KIP-848 range",
            [
                f"{BROKERS} librdkafka 2.12 or newer.",
                CHANGES.format(f"group.protocol=consumer and group.remote.assignor=range{WITHOUT}"),
            ],
        ),
        (
            client_settings.FRANZ_GO,
            "KIP-848 uniform",
            [
                f"{BROKERS} franz-go 1.22 or newer (which recommends Kafka 4.3).",
                CHANGES.format("kgo.ServerSideBalancer() and kgo.Balancers(kgo.StickyBalancer())"),
            ],
        ),
    ],
)
def test_the_brokers_protocol_needs_new_brokers_and_clients(
    name: str, wanted: str, told: list[str]
) -> None:
    assert migration_steps("range", wanted, name) == told


def test_the_brokers_protocol_for_many_names_each_client() -> None:
    names = (client_settings.JAVA, client_settings.FRANZ_GO, client_settings.LIBRDKAFKA)
    assert migration_steps("range", "KIP-848 range", *names) == [
        f"{BROKERS} franz-go 1.22 or newer (which recommends Kafka 4.3), or Java client 4.0 or "
        "newer, or librdkafka 2.12 or newer.",
        CHANGES.format("this")
        + " franz-go: kgo.ServerSideBalancer() and kgo.Balancers(kgo.RangeBalancer()); "
        "Java and librdkafka: group.protocol=consumer and group.remote.assignor=range"
        f"{WITHOUT}.",
    ]


def test_its_session_timeout_is_the_brokers() -> None:
    *_, session, mind, _, _ = migration_steps(
        "range", "KIP-848 uniform, static 5min", client_settings.JAVA
    )
    assert session == (
        "Set consumer.session.timeout.ms=300000 for the group (kafka-configs --entity-type "
        "groups), after raising the broker's group.consumer.max.session.timeout.ms, 60000 if not "
        "set."
    )
    assert mind == NOTE.format("5min")
    _, session, *_ = migration_steps(
        "range", "KIP-848 uniform, static 45s", client_settings.FRANZ_GO
    )
    assert session == (
        "Set consumer.session.timeout.ms=45000 for the group (kafka-configs --entity-type groups)."
    )


@pytest.mark.parametrize(
    ("name", "other", "back"),
    [
        (
            client_settings.JAVA,
            "group.remote.assignor=range",
            f"group.protocol=classic and {LIST}={CLASSES}.CooperativeStickyAssignor, and without "
            "group.remote.assignor",
        ),
        (
            client_settings.LIBRDKAFKA,
            "group.remote.assignor=range",
            f"group.protocol=classic and {LIST}=cooperative-sticky, and without "
            "group.remote.assignor",
        ),
        (
            client_settings.FRANZ_GO,
            "kgo.Balancers(kgo.RangeBalancer())",
            "kgo.Balancers(kgo.CooperativeStickyBalancer()), and without kgo.ServerSideBalancer()",
        ),
    ],
)
def test_another_strategy_of_the_brokers_and_back_to_members(
    name: str, other: str, back: str
) -> None:
    restart = "Restart the members one after the other with"
    assert migration_steps("KIP-848 uniform", "KIP-848 range", name) == [f"{restart} {other}."]
    assert migration_steps("KIP-848 uniform", "cooperative-sticky", name) == [f"{restart} {back}."]


@pytest.mark.parametrize("used", ["KIP-848 uniform", "KIP-848 range, static 10min"])
def test_a_session_comes_with_the_protocol_that_takes_it(used: str) -> None:
    *ids, mind, restart = migration_steps(used, "sticky, static 10min", client_settings.JAVA)
    given = "group.instance.id=ID (Java client 2.3 or newer)"
    assert ids == ([] if "static" in used else [IDS.format(given)])
    assert mind == NOTE.format("10min")
    assert restart == (
        "Restart the members one after the other with group.protocol=classic and "
        f"{LIST}={CLASSES}.StickyAssignor and session.timeout.ms=600000, and without "
        f"group.remote.assignor. {AT_MOST}"
    )


def test_the_brokers_session_is_set_though_the_members_was_as_long() -> None:
    session, *_ = migration_steps(
        "range, static 45s", "KIP-848 uniform, static 45s", client_settings.JAVA
    )
    assert session.startswith("Set consumer.session.timeout.ms=45000 for the group")
    assert migration_steps(
        "KIP-848 range, static 45s", "KIP-848 uniform, static 45s", client_settings.JAVA
    ) == ["Restart the members one after the other with group.remote.assignor=uniform."]


def test_libraries_that_have_no_way_are_named() -> None:
    """Members of the classic protocol may be in a group of the broker's while it changes over."""
    restart = "Restart the members one after the other with this."
    assert migration_steps(
        "KIP-848 range", "KIP-848 uniform", client_settings.JAVA, client_settings.SARAMA
    ) == [f"{restart} Java: group.remote.assignor=uniform; sarama: no such setting."]
    assert migration_steps("KIP-848 range", "KIP-848 uniform", client_settings.SARAMA) == [
        f"{restart} sarama: no such setting."
    ]
    assert migration_steps("range", "KIP-848 uniform", client_settings.SARAMA) == [
        "Check that the brokers run Kafka 4.0 or newer.",
        f"{restart} The group changes over while it runs. sarama: no such setting.",
    ]
    assert migration_steps(
        "KIP-848 uniform", "range", client_settings.JAVA, client_settings.AIOKAFKA
    ) == [
        f"{restart} aiokafka: {PYTHON}=[aiokafka.coordinator.assignors.range."
        f"RangePartitionAssignor]; Java: group.protocol=classic and {LIST}="
        f"{CLASSES}.RangeAssignor, and without group.remote.assignor."
    ]


def test_a_migration_that_was_left_half_way_is_finished_in_one_restart() -> None:
    assert migration_steps(
        "cooperative-sticky, eager", "cooperative-sticky", client_settings.JAVA
    ) == [
        f"Restart the members one after the other with {LIST}={CLASSES}.CooperativeStickyAssignor: "
        "the group becomes cooperative."
    ]


def test_back_to_an_eager_strategy_nothing_turns_cooperative() -> None:
    assert migration_steps("cooperative-sticky", "sticky", client_settings.SARAMA) == [
        FIRST.replace("range", "cooperative-sticky").format(
            f"{GO}{{sarama.NewBalanceStrategySticky(), "
            "sarama.NewBalanceStrategyCooperativeSticky()}"
        ),
        f"{AGAIN.format(f'{GO}{{sarama.NewBalanceStrategySticky()}}')}.",
    ]


@pytest.mark.parametrize(
    ("name", "able"),
    [
        (None, {"sticky", "cooperative-sticky", "range, static 45s", "KIP-848 uniform"}),
        (
            client_settings.JAVA,
            {"sticky", "cooperative-sticky", "range, static 45s", "KIP-848 uniform"},
        ),
        (
            client_settings.LIBRDKAFKA,
            {"cooperative-sticky", "range, static 45s", "KIP-848 uniform"},
        ),
        (client_settings.KAFKA_PYTHON, {"sticky", "cooperative-sticky", "range, static 45s"}),
        (client_settings.AIOKAFKA, {"sticky", "range, static 45s"}),
        (client_settings.SARAMA, {"sticky", "range, static 45s"}),
        (client_settings.KAFKAJS, set()),
        (client_settings.STREAMS, {"range, static 45s"}),
    ],
)
def test_what_a_library_can_do(name: str | None, able: set[str]) -> None:
    asked = ("sticky", "cooperative-sticky", "range, static 45s", "KIP-848 uniform")
    assert {wanted for wanted in asked if can_migrate("range", wanted, name)} == able


def test_all_libraries_of_a_group_must_be_able() -> None:
    assert not can_migrate(
        "range", "cooperative-sticky", client_settings.JAVA, client_settings.AIOKAFKA
    )
    assert can_migrate("range", "sticky", client_settings.JAVA, client_settings.AIOKAFKA, None)


def test_every_library_that_can_be_told_is_known() -> None:
    names = (
        "JAVA STREAMS LIBRDKAFKA KAFKA_PYTHON AIOKAFKA SARAMA FRANZ_GO KAFKA_GO KAFKAJS RUBY_KAFKA"
    )
    found = {getattr(client_settings, name) for name in (*names.split(), "BROD", "ROTA")}
    assert found <= set(CLIENT_LIBRARIES)


def test_smaller_changes_come_first() -> None:
    wanted = [
        "range",
        "roundrobin",
        "range, static 45s",
        "cooperative-sticky, static 45s",
        "KIP-848 uniform, static 45s",
    ]
    sizes = [migration_size(policy_of("range"), policy_of(one)) for one in wanted]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0
