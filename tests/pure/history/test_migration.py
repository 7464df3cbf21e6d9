"""The way from one policy to another, by client library."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rota.engine.history import client_settings
from rota.engine.history.actions import (
    is_migration_possible,
    list_migration_costs,
    list_migration_steps,
    migration_size,
)
from rota.engine.history.client_settings import CLIENT_LIBRARIES, find_libraries
from rota.engine.history.facts import ActionStep
from tests.support.policies import policy_of


def migration_steps(used: str, wanted: str, *names: str | None) -> list[str]:
    """Returns the text of each step, and its settings after a colon; with the names of libraries,
    if there are several.
    """
    libraries = find_libraries(names)
    steps = list_migration_steps(policy_of(used), policy_of(wanted), libraries)
    return [shown for step in steps for shown in _show(step, is_alone=len(libraries) == 1)]


def _show(step: ActionStep, *, is_alone: bool) -> Iterator[str]:
    text = step.text if step.setting is None else f"{step.text} {step.setting}"
    if is_alone:
        assert not step.libraries
        yield " ".join((text, *step.settings.values()))
        return
    yield f"{', '.join(step.libraries)}: {text}" if step.libraries else text
    yield from (f"  {name}: {setting}" for name, setting in step.settings.items())


def can_migrate(used: str, wanted: str, *names: str | None) -> bool:
    return is_migration_possible(policy_of(used), policy_of(wanted), find_libraries(names))


CHECK = "Check that every member uses {}."
IDS = (
    "Give every process an ID of its own that stays the same over restarts and deploys: the name "
    "of a StatefulSet's pod or of a host, not that of a Deployment's pod. Two processes with the "
    "same ID fence each other."
)
AT_MOST = "must not be above the broker's group.max.session.timeout.ms, 1800000 if not set."
SESSION = f"Set the session timeout. It {AT_MOST}"
DEPARTED = (
    "When the process of a static member stops, remove the member with the admin client (Java: "
    "removeMembersFromConsumerGroup): otherwise its partitions wait until its session times "
    "out after {}, even if the process comes back without the ID."
)
RESTART = "Restart the members one after the other"
FIRST = (
    f"{RESTART} with both strategies: the group continues with range until all members have them."
)
AGAIN = "Restart them one after the other again with the new strategy alone."
TURNS = AGAIN.replace("alone.", "alone: the group becomes cooperative.")
STOP = (
    "Stop all members: {} cannot have eager and cooperative strategies in one list, so the group "
    "cannot change over while it runs."
)
START = "Start the members with this strategy."
BY_DEFAULT = (
    "Skip the next step if no member sets the list, and every member uses {}: the default list has "
    "both strategies."
)
CLASSES = "org.apache.kafka.clients.consumer"
LIST = "partition.assignment.strategy"
GO = "config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy"
PYTHON = "partition_assignment_strategy"
WITHOUT = (
    f", and without {LIST}, session.timeout.ms and heartbeat.interval.ms, which the "
    "broker then sets"
)
BROKERS = "Check that the brokers run Kafka 4.0 or newer, and that every member uses"
CHANGES = f"{RESTART} with this setting{{}}. The group changes over while it runs."


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            client_settings.JAVA,
            [
                CHECK.format("Java client 2.4 or newer"),
                BY_DEFAULT.format("Java client 3.0 or newer"),
                f"{FIRST} {LIST}={CLASSES}.CooperativeStickyAssignor,{CLASSES}.RangeAssignor",
                f"{TURNS} {LIST}={CLASSES}.CooperativeStickyAssignor",
            ],
        ),
        (
            client_settings.ROTA,
            [
                BY_DEFAULT.format("Rota"),
                f"{FIRST} {LIST}=cooperative-sticky,range",
                f"{TURNS} {LIST}=cooperative-sticky",
            ],
        ),
        (
            client_settings.FRANZ_GO,
            [
                f"{FIRST} kgo.Balancers(kgo.CooperativeStickyBalancer(), kgo.RangeBalancer())",
                f"{TURNS} kgo.Balancers(kgo.CooperativeStickyBalancer())",
            ],
        ),
        (
            client_settings.LIBRDKAFKA,
            [
                CHECK.format("librdkafka 1.6 or newer"),
                STOP.format("librdkafka"),
                f"{START} {LIST}=cooperative-sticky",
            ],
        ),
        (
            client_settings.KAFKA_PYTHON,
            [
                CHECK.format("kafka-python 3.0 or newer"),
                STOP.format("kafka-python"),
                f"{START} {PYTHON}="
                "[kafka.coordinator.assignors.cooperative_sticky.CooperativeStickyAssignor]",
            ],
        ),
    ],
)
def test_to_the_cooperative_strategy(name: str, told: list[str]) -> None:
    assert migration_steps("range", "cooperative-sticky", name) == told


def test_one_that_refuses_stops_them_all() -> None:
    assert migration_steps(
        "range", "cooperative-sticky", client_settings.JAVA, client_settings.LIBRDKAFKA
    ) == [
        f"Java: {CHECK.format('Java client 2.4 or newer')}",
        f"librdkafka: {CHECK.format('librdkafka 1.6 or newer')}",
        STOP.format("librdkafka"),
        START,
        f"  Java: {LIST}={CLASSES}.CooperativeStickyAssignor",
        f"  librdkafka: {LIST}=cooperative-sticky",
    ]


def test_a_library_that_the_group_does_not_use_has_steps_of_its_own() -> None:
    libraries = find_libraries([client_settings.JAVA, client_settings.LIBRDKAFKA])
    for own, running in (
        ([client_settings.JAVA], ("Java",)),
        ([client_settings.LIBRDKAFKA], ("Java",)),
        ([client_settings.JAVA, client_settings.LIBRDKAFKA], None),
    ):
        steps = list_migration_steps(
            policy_of("range"),
            policy_of("cooperative-sticky"),
            libraries,
            own=find_libraries(own),
        )
        restarts = [step.libraries for step in steps if step.text.startswith("Restart")]
        assert restarts == ([] if running is None else [running, running])


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
        f"{FIRST} {both}",
        f"{AGAIN} {alone}",
    ]


@pytest.mark.parametrize(
    ("name", "version", "static", "session"),
    [
        (
            client_settings.JAVA,
            "Java client 2.3 or newer",
            "group.instance.id=ID",
            "session.timeout.ms=120000",
        ),
        (
            client_settings.STREAMS,
            "Kafka Streams 2.3 or newer",
            "group.instance.id=ID",
            "session.timeout.ms=120000",
        ),
        (
            client_settings.LIBRDKAFKA,
            "librdkafka 1.4 or newer",
            "group.instance.id=ID",
            "session.timeout.ms=120000",
        ),
        (client_settings.ROTA, None, "group.instance.id=ID", "session.timeout.ms=120000"),
        (
            client_settings.KAFKA_PYTHON,
            "kafka-python 2.3 or newer",
            "group_instance_id=ID",
            "session_timeout_ms=120000",
        ),
        (
            client_settings.AIOKAFKA,
            "aiokafka 0.10 or newer",
            "group_instance_id=ID",
            "If you have set rebalance_timeout_ms, keep its value; it must be below "
            "request_timeout_ms, 40000 if not set. "
            "session_timeout_ms=120000\nrebalance_timeout_ms=10000",
        ),
        (
            client_settings.SARAMA,
            "config.Version sarama.V2_3_0_0 or newer",
            "config.Consumer.Group.InstanceId = ID",
            "config.Consumer.Group.Session.Timeout = 2 * time.Minute",
        ),
        (
            client_settings.FRANZ_GO,
            None,
            "kgo.InstanceID(ID)",
            "kgo.SessionTimeout(2*time.Minute)",
        ),
    ],
)
def test_static_members_need_ids_that_last_and_a_session(
    name: str, version: str | None, static: str, session: str
) -> None:
    check = [] if version is None else [CHECK.format(version)]
    sessions = [f"{SESSION} {session}", f"{RESTART}."]
    assert migration_steps("range", "range, static 2min", name) == [
        *check,
        f"{IDS} {static}",
        *sessions,
    ]
    assert migration_steps("range, static 12s", "range, static 2min", name) == sessions
    removed = static.replace("(ID)", "").partition("=")[0].strip()
    assert migration_steps("range, static 12s", "range", name) == [
        f"Remove {removed} from the settings of every member.",
        DEPARTED.format("12 s"),
        f"{RESTART}.",
    ]
    _, shorter, departed, _ = list_migration_steps(
        policy_of("range, static 5min"), policy_of("range"), find_libraries([name]), 300_000
    )
    assert departed.text == DEPARTED.format("5 min")
    assert shorter.text.startswith(
        "Set the session timeout at the same time: otherwise the partitions of a member that "
        "crashed wait for 5 min."
    )
    assert list(shorter.settings.values()) == [
        client_settings.CLIENT_LIBRARIES[name].session_setting(45_000)
    ]


@pytest.mark.parametrize(
    ("present", "text"),
    [(12_000, "Keep the session timeout of 12 s."), (45_000, SESSION), (None, SESSION)],
)
def test_a_session_timeout_that_the_members_have_is_kept(present: int | None, text: str) -> None:
    libraries = find_libraries([client_settings.JAVA])
    used, wanted = policy_of("range"), policy_of("range, static 12s")
    *_, session, _ = list_migration_steps(used, wanted, libraries, present)
    assert (session.text, session.settings) == (text, {"Java": "session.timeout.ms=12000"})


def test_the_costs_of_static_members() -> None:
    used, wanted = policy_of("range"), policy_of("range, static 12s")
    waits, scaling = list_migration_costs(used, wanted)
    assert waits.endswith(
        "or for 12 s if it does not come back (rota simulate shows the downtime)."
    )
    assert scaling == "To scale down, remove the member with the admin client instead of waiting."
    assert not list(list_migration_costs(wanted, used))
    assert not list(list_migration_costs(wanted, policy_of("range, static 2min")))


def test_a_group_of_many_libraries_has_a_setting_for_each() -> None:
    names = (
        client_settings.JAVA,
        client_settings.SARAMA,
        client_settings.FRANZ_GO,
        client_settings.KAFKA_PYTHON,
    )
    assert migration_steps("range", "sticky, static 45s", *names) == [
        f"Java: {CHECK.format('Java client 2.3 or newer')}",
        f"kafka-python: {CHECK.format('kafka-python 2.3 or newer')}",
        f"sarama: {CHECK.format('config.Version sarama.V2_3_0_0 or newer')}",
        IDS,
        "  franz-go: kgo.InstanceID(ID)",
        "  Java: group.instance.id=ID",
        "  kafka-python: group_instance_id=ID",
        "  sarama: config.Consumer.Group.InstanceId = ID",
        SESSION,
        "  franz-go: kgo.SessionTimeout(45*time.Second)",
        "  Java: session.timeout.ms=45000",
        "  kafka-python: session_timeout_ms=45000",
        "  sarama: config.Consumer.Group.Session.Timeout = 45 * time.Second",
        FIRST,
        "  franz-go: kgo.Balancers(kgo.StickyBalancer(), kgo.RangeBalancer())",
        f"  Java: {LIST}={CLASSES}.StickyAssignor,{CLASSES}.RangeAssignor",
        f"  kafka-python: {PYTHON}="
        "[kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor, "
        "kafka.coordinator.assignors.range.RangePartitionAssignor]",
        f"  sarama: {GO}{{sarama.NewBalanceStrategySticky(), sarama.NewBalanceStrategyRange()}}",
        AGAIN,
        "  franz-go: kgo.Balancers(kgo.StickyBalancer())",
        f"  Java: {LIST}={CLASSES}.StickyAssignor",
        f"  kafka-python: {PYTHON}="
        "[kafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor]",
        f"  sarama: {GO}{{sarama.NewBalanceStrategySticky()}}",
    ]


@pytest.mark.parametrize(
    ("name", "wanted", "told"),
    [
        (
            client_settings.JAVA,
            "KIP-848 uniform",
            [
                f"{BROKERS} Java client 4.0 or newer.",
                f"{CHANGES.format(WITHOUT)} group.protocol=consumer",
            ],
        ),
        (
            client_settings.LIBRDKAFKA,
            "KIP-848 range",
            [
                f"{BROKERS} librdkafka 2.12 or newer.",
                f"{CHANGES.format(WITHOUT)} group.protocol=consumer\ngroup.remote.assignor=range",
            ],
        ),
        (
            client_settings.FRANZ_GO,
            "KIP-848 uniform",
            [
                f"{BROKERS} franz-go 1.22 or newer (which recommends Kafka 4.3).",
                f"{CHANGES.format('')} "
                "kgo.ServerSideBalancer()\nkgo.Balancers(kgo.StickyBalancer())",
            ],
        ),
    ],
)
def test_the_brokers_protocol_needs_new_brokers_and_clients(
    name: str, wanted: str, told: list[str]
) -> None:
    assert migration_steps("range", wanted, name) == told


def test_its_session_timeout_is_the_brokers() -> None:
    def session(wanted: str, name: str) -> str:
        steps = migration_steps("range", wanted, name)
        (found,) = (step for step in steps if step.startswith("Set the session timeout"))
        return found

    command = (
        "kafka-configs --bootstrap-server HOST:9092 --alter --entity-type groups --entity-name "
        "GROUP --add-config consumer.session.timeout.ms="
    )
    assert session("KIP-848 uniform, static 5min", client_settings.JAVA) == (
        "Set the session timeout of the group, after raising the broker's "
        f"group.consumer.max.session.timeout.ms, 60000 if not set. {command}300000"
    )
    assert session("KIP-848 uniform, static 45s", client_settings.FRANZ_GO) == (
        f"Set the session timeout of the group. {command}45000"
    )


@pytest.mark.parametrize(
    ("name", "other", "back", "refused"),
    [
        (
            client_settings.JAVA,
            "group.remote.assignor=range",
            f"group.protocol=classic\n{LIST}={CLASSES}.CooperativeStickyAssignor",
            "group.remote.assignor",
        ),
        (
            client_settings.LIBRDKAFKA,
            "group.remote.assignor=range",
            f"group.protocol=classic\n{LIST}=cooperative-sticky",
            "group.remote.assignor",
        ),
        (
            client_settings.FRANZ_GO,
            "kgo.Balancers(kgo.RangeBalancer())",
            "kgo.Balancers(kgo.CooperativeStickyBalancer())",
            "kgo.ServerSideBalancer()",
        ),
    ],
)
def test_another_strategy_of_the_brokers_and_back_to_members(
    name: str, other: str, back: str, refused: str
) -> None:
    assert migration_steps("KIP-848 uniform", "KIP-848 range", name) == [
        f"{RESTART} with this assignor. {other}"
    ]
    *_, restart = migration_steps("KIP-848 uniform", "cooperative-sticky", name)
    assert restart == f"{RESTART} with these settings, and without {refused}. {back}"


@pytest.mark.parametrize("used", ["KIP-848 uniform", "KIP-848 range, static 10min"])
def test_a_session_comes_with_the_protocol_that_takes_it(used: str) -> None:
    *before, restart = migration_steps(used, "sticky, static 10min", client_settings.JAVA)
    ids = [CHECK.format("Java client 2.3 or newer"), f"{IDS} group.instance.id=ID"]
    assert before == ([] if "static" in used else ids)
    assert restart == (
        f"{RESTART} with these settings, and without group.remote.assignor. For the session "
        f"timeout: it {AT_MOST} "
        f"group.protocol=classic\n{LIST}={CLASSES}.StickyAssignor\nsession.timeout.ms=600000"
    )


def test_the_brokers_session_is_set_though_the_members_was_as_long() -> None:
    steps = migration_steps(
        "range, static 45s", "KIP-848 uniform, static 45s", client_settings.JAVA
    )
    assert any(step.endswith("consumer.session.timeout.ms=45000") for step in steps)
    assert migration_steps(
        "KIP-848 range, static 45s", "KIP-848 uniform, static 45s", client_settings.JAVA
    ) == [f"{RESTART} with this assignor. group.remote.assignor=uniform"]


def test_libraries_that_have_no_way_have_no_step() -> None:
    """Members of the classic protocol may be in a group of the broker's while it changes over."""
    assert migration_steps(
        "KIP-848 range", "KIP-848 uniform", client_settings.JAVA, client_settings.SARAMA
    ) == [f"Java: {RESTART} with this assignor.", "  Java: group.remote.assignor=uniform"]
    assert migration_steps("KIP-848 range", "KIP-848 uniform", client_settings.SARAMA) == []
    assert migration_steps(
        "KIP-848 uniform", "range", client_settings.JAVA, client_settings.AIOKAFKA
    ) == [
        f"aiokafka: {RESTART} with these settings.",
        f"  aiokafka: {PYTHON}=[aiokafka.coordinator.assignors.range.RangePartitionAssignor]",
        f"Java: {RESTART} with these settings, and without group.remote.assignor.",
        f"  Java: group.protocol=classic\n{LIST}={CLASSES}.RangeAssignor",
    ]


def test_a_migration_that_was_left_half_way_is_finished_in_one_restart() -> None:
    assert migration_steps(
        "cooperative-sticky, eager", "cooperative-sticky", client_settings.JAVA
    ) == [
        f"{RESTART} with this strategy alone: the group becomes cooperative. "
        f"{LIST}={CLASSES}.CooperativeStickyAssignor"
    ]


def test_back_to_an_eager_strategy_nothing_turns_cooperative() -> None:
    assert migration_steps("cooperative-sticky", "sticky", client_settings.SARAMA) == [
        FIRST.replace("range", "cooperative-sticky") + f" {GO}{{sarama.NewBalanceStrategySticky(), "
        "sarama.NewBalanceStrategyCooperativeSticky()}",
        f"{AGAIN} {GO}{{sarama.NewBalanceStrategySticky()}}",
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
