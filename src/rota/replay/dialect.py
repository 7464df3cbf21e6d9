"""What each client library can do, and how its settings are written.

Read in the sources of the libraries, and tried with them (late 2026): Java's client 3.9 and 4.3,
librdkafka 2.16, kafka-python 3.0, aiokafka 0.14, sarama 1.61, franz-go 1.22 and kafka-go 0.4.

- Java's consumer takes eager and cooperative strategies in one list and runs eager until the eager
  ones are gone (KIP-429); so do franz-go, sarama and Rota. librdkafka refuses such a list
  (librdkafka#3589, #4368), and so does kafka-python 3.
- librdkafka has no eager ``sticky``; aiokafka has nothing cooperative; kafka-go and kafkajs have
  neither, and no static members. sarama's cooperative strategy came in September 2026: it can be
  left, and is not advised yet.
- A session may be no longer than ``max.poll.interval.ms`` in librdkafka and has to be shorter than
  ``request_timeout_ms`` in kafka-python before 3.0. In aiokafka it is the time to rejoin in as
  well, unless that is set.
- Go's times have a unit: a bare ``45000`` would be 45 microseconds.
- The broker's protocol (KIP-848) is ready for use in Kafka 4.0, Java's client 4.0 and librdkafka
  2.12, which then refuse the settings that have become the broker's; under the classic one Java's
  refuses the broker's strategy. franz-go 1.22 has an option for it, recommends Kafka 4.3, and tells
  the broker its strategy by the first of its balancers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rota.replay import library
from rota.replay.policy import COOPERATIVE_STICKY, SERVER_STRATEGIES
from rota.replay.restart import MINUTE

CLASSIC = frozenset({"range", "roundrobin", "sticky", COOPERATIVE_STICKY})
UNKNOWN = "unknown"
"""Stands for the members whose library cannot be told."""
HOLE = "..."
"""Where the value goes in a setting."""
NO_WAY = "no such setting"
"""What is said of a library that cannot do what the others are told."""
KAFKA = "4.0"
"""The version of the brokers' from which on KIP-848 is ready for use."""
POLL_INTERVAL = 300_000
"""``max.poll.interval.ms`` where nobody sets it."""
PYTHON_REQUEST, PYTHON_IDLE = 305_000, 540_000
"""``request_timeout_ms`` and ``connections_max_idle_ms`` of kafka-python 2, likewise."""
AIOKAFKA_SESSION = 10_000
"""``session_timeout_ms`` of aiokafka, likewise, and so its ``rebalance_timeout_ms``."""

_PLAIN = MappingProxyType({name: name for name in CLASSIC})
_REMOTE = MappingProxyType({name: f"group.remote.assignor={name}" for name in SERVER_STRATEGIES})
_SERVER = "partition.assignment.strategy, session.timeout.ms and heartbeat.interval.ms"
_LATE = "raise {} above the longest time between two polls"


def _classes(package: str, names: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType({name: package + found for name, found in names.items()})


def _go(milliseconds: int) -> str:
    """A ``time.Duration`` as people write it: ``45 * time.Second``."""
    if milliseconds % 1_000:
        return f"{milliseconds} * time.Millisecond"
    if milliseconds % MINUTE or milliseconds < 2 * MINUTE:
        return f"{milliseconds // 1_000} * time.Second"
    return f"{milliseconds // MINUTE} * time.Minute"


def _polled_within(session: int) -> str:
    """A session of librdkafka's may not be longer than ``max.poll.interval.ms``."""
    return f" and max.poll.interval.ms={session} (or more)" if session > POLL_INTERVAL else ""


def _answered_within(session: int) -> str:
    """A session of kafka-python 2's has to be shorter than a request may take, and that shorter
    than a connection may be idle.
    """
    if session < PYTHON_REQUEST:
        return ""
    request = session + 5_000
    idle = f" and connections_max_idle_ms={request + 5_000}" if request >= PYTHON_IDLE else ""
    return f" (before kafka-python 3.0 with request_timeout_ms={request}{idle})"


def _rejoined_as_before(session: int) -> str:
    """A session of aiokafka's is the time to rejoin in as well, if nobody sets that. A join is
    given up after ``request_timeout_ms``: one that waits for longer would begin again for ever.
    """
    if session <= AIOKAFKA_SESSION:
        return ""
    return (
        f" and rebalance_timeout_ms={AIOKAFKA_SESSION} (or what it is now, but below "
        "request_timeout_ms, 40000 if not set)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A library's way to the broker's protocol, KIP-848."""

    client: str
    """The version from which on it has it."""
    joining: str = "group.protocol=consumer"
    leaving: str = "group.protocol=classic and ..., and without group.remote.assignor"
    """With the settings of the members' own in the place of the dots."""
    assignor: Mapping[str, str] = field(default_factory=lambda: _REMOTE)
    """How it asks for a strategy of the broker's."""
    asks_always: bool = False
    """It has to name ``uniform``, too."""
    without: str = f", and without {_SERVER}, which are then the broker's"

    def joined(self, strategy: str) -> str:
        """What a member of such a group sets."""
        asked = f" and {self.assignor[strategy]}"
        return self.joining + (asked if self.asks_always or strategy != "uniform" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """What a client library can do, and how its settings are written."""

    name: str
    strategies: frozenset[str] = frozenset()
    """Those that it may be advised to take; empty: its strategies are its own."""
    names: Mapping[str, str] = field(default_factory=lambda: _PLAIN)
    """How it calls the strategies that its members may have."""
    strategy: str = "partition.assignment.strategy=..."
    separator: str = ","
    """Between the strategies of a list."""
    static: str | None = "group.instance.id=ID"
    """None: it has no static members."""
    static_needs: str = ""
    session: str | None = "session.timeout.ms=..."
    """None: no step of Rota's names it."""
    session_needs: Callable[[int], str] = lambda _: ""
    """What a session of so many milliseconds asks for beside itself."""
    duration: Callable[[int], str] = str
    late: str | None = None
    """What helps against slow polls; None: it does not know them."""
    broker: Served | None = None
    """None: it does not know KIP-848."""
    cooperative: str | None = None
    """The version from which on it has cooperative-sticky; None: from the first that matters."""
    mixes: bool = False
    """It takes eager and cooperative strategies in one list."""
    both: str | None = None
    """The members whose list has range and cooperative-sticky if nobody sets it."""

    def listed(self, *strategies: str) -> str:
        """The setting for these strategies, in this order."""
        names = self.separator.join(self.names.get(name, name) for name in strategies)
        return self.strategy.replace(HOLE, names)

    def static_id(self) -> str | None:
        """The setting of a static member, and what it asks for."""
        return None if self.static is None else self.static + self.static_needs

    def session_of(self, milliseconds: int) -> str | None:
        """The setting for this session timeout."""
        if self.session is None:
            return None
        setting = self.session.replace(HOLE, self.duration(milliseconds))
        return setting + self.session_needs(milliseconds)

    def served(self, strategy: str) -> str | None:
        """What a member sets to be given partitions by the broker."""
        return None if self.broker is None else self.broker.joined(strategy) + self.broker.without

    def unserved(self, strategy: str, session: int | None = None) -> str:
        """What a member sets to share out partitions with the others again, and its session."""
        told = self.listed(strategy)
        if session is not None:
            told = together((told, self.session_of(session)))
        return told if self.broker is None else self.broker.leaving.replace(HOLE, told)

    def served_by(self, strategy: str) -> str | None:
        """What a member of such a group sets for another strategy."""
        return None if self.broker is None else self.broker.assignor[strategy]


_JAVA_LATE = (
    _LATE.format("max.poll.interval.ms") + ", or take fewer records at a time (max.poll.records)"
)
_PYTHON_LATE = (
    _LATE.format("max_poll_interval_ms") + ", or take fewer records at a time (max_poll_records)"
)
_JAVA = Library(
    name="Java",
    strategies=CLASSIC,
    names=_classes(
        "org.apache.kafka.clients.consumer.",
        {
            "range": "RangeAssignor",
            "roundrobin": "RoundRobinAssignor",
            "sticky": "StickyAssignor",
            COOPERATIVE_STICKY: "CooperativeStickyAssignor",
        },
    ),
    static_needs=" (the Java client 2.3 or newer)",
    late=_JAVA_LATE,
    broker=Served(client="the Java client 4.0 or newer"),
    cooperative="the Java client 2.4 or newer",
    mixes=True,
    both="Java's of 3.0 or newer",
)
_PYTHON_CLASSES = MappingProxyType(
    {
        "range": "range.RangePartitionAssignor",
        "roundrobin": "roundrobin.RoundRobinPartitionAssignor",
        "sticky": "sticky.sticky_assignor.StickyPartitionAssignor",
    }
)
_PYTHON = Library(
    name="kafka-python",
    strategies=CLASSIC,
    names=_classes(
        "kafka.coordinator.assignors.",
        {**_PYTHON_CLASSES, COOPERATIVE_STICKY: "cooperative_sticky.CooperativeStickyAssignor"},
    ),
    strategy="partition_assignment_strategy=[...]",
    separator=", ",
    static="group_instance_id=ID",
    static_needs=" (kafka-python 2.3 or newer)",
    session="session_timeout_ms=...",
    session_needs=_answered_within,
    late=_PYTHON_LATE,
    cooperative="kafka-python 3.0 or newer",
)
_SARAMA = Library(
    name="sarama",
    strategies=CLASSIC - {COOPERATIVE_STICKY},
    names=MappingProxyType(
        {
            "range": "sarama.NewBalanceStrategyRange()",
            "roundrobin": "sarama.NewBalanceStrategyRoundRobin()",
            "sticky": "sarama.NewBalanceStrategySticky()",
            COOPERATIVE_STICKY: "sarama.NewBalanceStrategyCooperativeSticky()",
        }
    ),
    strategy="config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{...}",
    separator=", ",
    static="config.Consumer.Group.InstanceId = ID",
    static_needs=" (it asks for a config.Version of sarama.V2_3_0_0 or newer)",
    session="config.Consumer.Group.Session.Timeout = ...",
    duration=_go,
    mixes=True,
)
_FRANZ_GO = Library(
    name="franz-go",
    strategies=CLASSIC,
    names=MappingProxyType(
        {
            "range": "kgo.RangeBalancer()",
            "roundrobin": "kgo.RoundRobinBalancer()",
            "sticky": "kgo.StickyBalancer()",
            COOPERATIVE_STICKY: "kgo.CooperativeStickyBalancer()",
        }
    ),
    strategy="kgo.Balancers(...)",
    separator=", ",
    static="kgo.InstanceID(ID)",
    session="kgo.SessionTimeout(...)",
    duration=lambda milliseconds: _go(milliseconds).replace(" ", ""),
    broker=Served(
        client="franz-go 1.22 or newer (which recommends Kafka 4.3)",
        joining="kgo.ServerSideBalancer()",
        leaving="..., and without kgo.ServerSideBalancer()",
        assignor=MappingProxyType(
            {
                "uniform": "kgo.Balancers(kgo.StickyBalancer())",
                "range": "kgo.Balancers(kgo.RangeBalancer())",
            }
        ),
        asks_always=True,
        without="",
    ),
    mixes=True,
)

LIBRARIES: Mapping[str, Library] = MappingProxyType(
    {
        UNKNOWN: replace(_JAVA, name="unknown (as Java)"),
        library.JAVA: _JAVA,
        library.STREAMS: Library(
            name="Kafka Streams", static_needs=" (Kafka Streams 2.3 or newer)", late=_JAVA_LATE
        ),
        library.LIBRDKAFKA: Library(
            name="librdkafka",
            strategies=CLASSIC - {"sticky"},
            static_needs=" (librdkafka 1.4 or newer)",
            session_needs=_polled_within,
            late=_LATE.format("max.poll.interval.ms"),
            broker=Served(client="librdkafka 2.12 or newer"),
            cooperative="librdkafka 1.6 or newer",
        ),
        library.KAFKA_PYTHON: _PYTHON,
        library.AIOKAFKA: replace(
            _PYTHON,
            name="aiokafka",
            static_needs=" (aiokafka 0.10 or newer)",
            session_needs=_rejoined_as_before,
            strategies=CLASSIC - {COOPERATIVE_STICKY},
            names=_classes("aiokafka.coordinator.assignors.", _PYTHON_CLASSES),
            cooperative=None,
        ),
        library.SARAMA: _SARAMA,
        library.FRANZ_GO: _FRANZ_GO,
        library.KAFKA_GO: Library(
            name="kafka-go",
            strategies=frozenset({"range", "roundrobin"}),
            names=MappingProxyType(
                {
                    "range": "kafka.RangeGroupBalancer{}",
                    "roundrobin": "kafka.RoundRobinGroupBalancer{}",
                }
            ),
            strategy="GroupBalancers: []kafka.GroupBalancer{...}",
            separator=", ",
            static=None,
            session="SessionTimeout: ...",
            duration=_go,
        ),
        library.KAFKAJS: Library(name="kafkajs", static=None, session=None),
        library.RUBY_KAFKA: Library(name="ruby-kafka", static=None, session=None),
        library.BROD: Library(name="brod", static=None, session=None),
        library.ROTA: Library(
            name="Rota", strategies=CLASSIC, late=_JAVA_LATE, mixes=True, both="Rota's"
        ),
    }
)


def known(names: Iterable[str | None]) -> tuple[Library, ...]:
    """The libraries of these names, each once; Java's stands for those that cannot be told."""
    found = {name or UNKNOWN for name in names} or {UNKNOWN}
    return tuple(LIBRARIES[name] for name in sorted(found) if name in LIBRARIES)


def told(
    text: str,
    libraries: Sequence[Library],
    setting: Callable[[Library], str | None],
    several: str = "this",
) -> str:
    """A sentence with what to set in the place of ``{}``.

    Where libraries do not write it alike, or one has no such setting, it says ``several``, and each
    one's line comes behind it.
    """
    lines: dict[str, list[str]] = {}
    for one in libraries:
        lines.setdefault(setting(one) or NO_WAY, []).append(one.name)
    if len(lines) == 1 and NO_WAY not in lines:
        return text.format(*lines)
    each = "; ".join(f"{together(names)}: {said}" for said, names in lines.items())
    return f"{text.format(several)} {each}."


def together(names: Iterable[str | None]) -> str:
    """``a, b and c``: each once, without those that are not there."""
    *most, last = dict.fromkeys(name for name in names if name)
    return f"{', '.join(most)} and {last}" if most else last
