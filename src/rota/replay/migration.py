"""How to get from one policy to another with the client libraries that a group has.

What each library can do was read in its source or said by its maintainers (late 2026):

- Java's consumer takes eager and cooperative strategies in one list and runs eager until the eager
  ones are gone (KIP-429), so two rolling restarts do. librdkafka refuses such a list
  (librdkafka#3589, #4368) and so does kafka-python 3: the whole group must stop once.
- librdkafka has no eager ``sticky``; aiokafka has nothing cooperative; kafka-go and kafkajs have
  neither, and no static members; sarama's cooperative strategy came in September 2026.
- The broker's protocol (KIP-848) is ready for use in Kafka 4.0, Java's consumer 4.0, librdkafka
  2.12 and franz-go 1.22. Its session timeout is the broker's to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rota.replay import library
from rota.replay.policy import COOPERATIVE_STICKY, Membership, Policy, Protocol, shown_time

CLASSIC = frozenset({"range", "roundrobin", "sticky", COOPERATIVE_STICKY})
UNKNOWN = "unknown"
"""Stands for the members whose library cannot be told."""
JAVA_CLASSES = MappingProxyType(
    {
        "range": "RangeAssignor",
        "roundrobin": "RoundRobinAssignor",
        "sticky": "StickyAssignor",
        COOPERATIVE_STICKY: "CooperativeStickyAssignor",
    }
)
LONGEST_OF_BROKER = 60_000
"""``group.consumer.max.session.timeout.ms``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """What a client library can do, and how its settings are called."""

    name: str
    strategies: frozenset[str]
    strategy: str = "partition.assignment.strategy"
    static: str | None = "group.instance.id"
    """None: it has no static members."""
    session: str = "session.timeout.ms"
    broker: str | None = None
    """The version from which on it knows KIP-848, None: it does not."""
    cooperative: str | None = None
    """The version from which on it has cooperative-sticky; None: from the first that matters."""
    mixes: bool = False
    """It takes eager and cooperative strategies in one list."""


_JAVA = Library(
    name="Java",
    strategies=CLASSIC,
    broker="the Java client 4.0 or newer",
    cooperative="the Java client 2.4 or newer",
    mixes=True,
)

LIBRARIES: Mapping[str, Library] = MappingProxyType(
    {
        UNKNOWN: _JAVA,
        library.JAVA: _JAVA,
        library.STREAMS: Library(name="Kafka Streams", strategies=frozenset()),
        library.LIBRDKAFKA: Library(
            name="librdkafka",
            strategies=CLASSIC - {"sticky"},
            broker="librdkafka 2.12 or newer",
            cooperative="librdkafka 1.6 or newer",
        ),
        library.KAFKA_PYTHON: Library(
            name="kafka-python",
            strategies=CLASSIC,
            cooperative="kafka-python 3.0 or newer",
            strategy="partition_assignment_strategy",
            static="group_instance_id",
            session="session_timeout_ms",
        ),
        library.AIOKAFKA: Library(
            name="aiokafka",
            strategies=CLASSIC - {COOPERATIVE_STICKY},
            strategy="partition_assignment_strategy",
            static="group_instance_id",
            session="session_timeout_ms",
        ),
        library.SARAMA: Library(
            name="sarama",
            strategies=CLASSIC - {COOPERATIVE_STICKY},
            strategy="Consumer.Group.Rebalance.GroupStrategies",
            static="Consumer.Group.InstanceId",
            session="Consumer.Group.Session.Timeout",
        ),
        library.FRANZ_GO: Library(
            name="franz-go",
            strategies=CLASSIC,
            strategy="kgo.Balancers",
            static="kgo.InstanceID",
            session="kgo.SessionTimeout",
            broker="franz-go 1.22 or newer, with kgo.ServerSideBalancer",
            mixes=True,
        ),
        library.KAFKA_GO: Library(
            name="kafka-go", strategies=frozenset({"range", "roundrobin"}), static=None
        ),
        library.KAFKAJS: Library(name="kafkajs", strategies=frozenset(), static=None),
        library.RUBY_KAFKA: Library(name="ruby-kafka", strategies=frozenset(), static=None),
        library.BROD: Library(name="brod", strategies=frozenset(), static=None),
        library.ROTA: Library(name="Rota", strategies=CLASSIC, mixes=True),
    }
)


def known(names: Iterable[str | None]) -> tuple[Library, ...]:
    """The libraries of these names, each once; where none is known, Java's stands for them."""
    found = {name or UNKNOWN for name in names} or {UNKNOWN}
    if len(found) > 1:
        found.discard(UNKNOWN)
    return tuple(LIBRARIES[name] for name in sorted(found) if name in LIBRARIES)


def possible(used: Policy, wanted: Policy, libraries: Sequence[Library]) -> bool:
    """Whether every library of the group can do what a policy asks for beyond what is in use."""
    if wanted.membership is not Membership.DYNAMIC and not all(one.static for one in libraries):
        return False
    if (wanted.strategy, wanted.protocol) == (used.strategy, used.protocol):
        return True
    if wanted.protocol is Protocol.CONSUMER:
        return all(one.broker for one in libraries)
    return all(wanted.strategy in one.strategies for one in libraries)


def size(used: Policy, wanted: Policy) -> int:
    """How much of a change it is, for choosing among equals.

    A longer session timeout is a setting. Another strategy is one or two restarts; a
    ``group.instance.id`` has to be found for every process. Another protocol asks for new brokers
    and clients; and a sticky strategy keeps topics together less well than range.
    """
    total = 0
    if wanted.protocol is not used.protocol:
        total += 4 if Protocol.CONSUMER in {wanted.protocol, used.protocol} else 2
    elif wanted.strategy != used.strategy:
        total += 2
    if wanted.membership is not used.membership:
        total += 2
    if wanted.session_timeout != used.session_timeout:
        total += 1
    return total


def migration(used: Policy, wanted: Policy, libraries: Sequence[Library]) -> tuple[str, ...]:
    """What to do, step by step."""
    steps: list[str] = []
    if wanted.membership is Membership.STATIC:
        steps += _static(used, wanted, libraries)
    elif used.membership is not Membership.DYNAMIC:
        settings = _settings(one.static for one in libraries)
        steps.append(f"Remove {settings} from every member's settings.")
    if wanted.protocol is Protocol.CONSUMER and used.protocol is not Protocol.CONSUMER:
        steps += _to_broker(wanted, libraries)
    elif wanted.protocol is Protocol.CONSUMER:
        if wanted.strategy != used.strategy:
            steps.append(
                f"Set group.remote.assignor={wanted.strategy} on all members, one after the other."
            )
    elif (wanted.strategy, wanted.protocol) != (used.strategy, used.protocol):
        steps += _to_strategy(used, wanted, libraries)
    return tuple(steps)


def _settings(names: Iterable[str | None]) -> str:
    return " / ".join(dict.fromkeys(name for name in names if name))


def _static(used: Policy, wanted: Policy, libraries: Sequence[Library]) -> Iterator[str]:
    session = wanted.session_timeout
    if used.membership is not Membership.STATIC:
        yield (
            f"Give every process a {_settings(one.static for one in libraries)} of its own that "
            "stays the same over restarts and deploys: the name of a StatefulSet's pod or of a "
            "host, not that of a Deployment's pod. Two processes with the same one shut each "
            "other out."
        )
    if session is None or (
        session == used.session_timeout and used.membership is wanted.membership
    ):
        return
    if wanted.protocol is Protocol.CONSUMER:
        limit = ""
        if session > LONGEST_OF_BROKER:
            limit = (
                ", after raising the broker's group.consumer.max.session.timeout.ms, "
                f"{LONGEST_OF_BROKER} if not set"
            )
        yield (
            f"Set consumer.session.timeout.ms={session} for the group (kafka-configs "
            f"--entity-type groups){limit}."
        )
    else:
        yield (
            f"Set {_settings(one.session for one in libraries)}={session} (it must not be above "
            "the broker's group.max.session.timeout.ms, 1800000 if not set)."
        )
    yield (
        "Mind: a static member keeps its partitions while it restarts; nobody reads them until "
        f"it is back, or for {shown_time(session)} if it never is (rota simulate shows how long "
        "partitions stand still). To scale down, remove it with the admin client, do not wait."
    )


def _to_strategy(used: Policy, wanted: Policy, libraries: Sequence[Library]) -> Iterator[str]:
    crosses = wanted.protocol is not used.protocol
    refusing = [one.name for one in libraries if not one.mixes]
    setting = _settings(one.strategy for one in libraries)
    if used.protocol is Protocol.CONSUMER:
        yield (
            f"Restart the members one after the other with group.protocol=classic and "
            f"{setting}={_listed(libraries, wanted.strategy)}."
        )
        return
    if wanted.strategy == COOPERATIVE_STICKY and any(one.cooperative for one in libraries):
        yield f"Make sure of {_settings(one.cooperative for one in libraries)}."
    if crosses and refusing:
        yield (
            f"Stop all members: {' and '.join(refusing)} cannot have eager and cooperative "
            "strategies in one list, so there is no way from one to the other while the group runs."
        )
        yield f"Start them with {setting}={_listed(libraries, wanted.strategy)}."
        return
    if crosses and used.strategy == "range" and _JAVA in libraries:
        yield (
            "Leave out the next step if all members are Java's of 3.0 or newer and never set the "
            "list: their default list has both."
        )
    yield (
        f"Restart the members one after the other with "
        f"{setting}={_listed(libraries, wanted.strategy, used.strategy)}: the group goes on with "
        f"{used.strategy} until all have it."
    )
    yield (
        "Restart them one after the other again with "
        f"{setting}={_listed(libraries, wanted.strategy)}"
        + (": the group turns cooperative." if crosses else ".")
    )


def _listed(libraries: Sequence[Library], *strategies: str) -> str:
    if any(one is _JAVA for one in libraries):
        package = "org.apache.kafka.clients.consumer."
        return ",".join(package + JAVA_CLASSES.get(name, name) for name in strategies)
    return ",".join(strategies)


def _to_broker(wanted: Policy, libraries: Sequence[Library]) -> Iterator[str]:
    versions = _settings(one.broker for one in libraries)
    yield f"Make sure of brokers of Kafka 4.0 or newer, and of {versions}."
    chosen = ""
    if wanted.strategy != "uniform":
        chosen = f" and group.remote.assignor={wanted.strategy}"
    yield (
        f"Restart the members one after the other with group.protocol=consumer{chosen}, and "
        "without partition.assignment.strategy, session.timeout.ms and heartbeat.interval.ms, "
        "which are then the broker's. The group changes over while it runs."
    )
