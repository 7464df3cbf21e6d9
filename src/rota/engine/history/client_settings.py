"""The client library of a member, and the abilities and settings of each library.

Brokers do not save the library. Client ids, strategy names and bytes in user data may identify it;
otherwise it is None, never a guess, because the advice on how to migrate depends on it.

The table comes from the libraries' sources and from tests with them (late 2026): Java's client 3.9
and 4.3, librdkafka 2.16, kafka-python 3.0, aiokafka 0.14, sarama 1.61, franz-go 1.22 and kafka-go
0.4.

- Java's consumer accepts eager and cooperative strategies in one list and stays eager until the
  eager ones are removed (KIP-429); so do franz-go, sarama and Rota. librdkafka refuses such a list
  (librdkafka#3589, #4368), and so does kafka-python 3.
- librdkafka has no eager ``sticky``; aiokafka has no cooperative strategy; kafka-go and kafkajs
  have neither, and no static members. sarama's cooperative strategy came in September 2026: it is
  not advised yet, but its members can be migrated to other strategies.
- A session timeout must not exceed ``max.poll.interval.ms`` in librdkafka, and must be below
  ``request_timeout_ms`` in kafka-python before 3.0. In aiokafka it is also the default of the
  rebalance timeout.
- Go's durations need a unit: a bare ``45000`` would be 45 microseconds.
- KIP-848 is ready for use in Kafka 4.0, Java's client 4.0 and librdkafka 2.12. These clients then
  refuse the settings that belong to the broker; under the classic protocol Java's client refuses
  ``group.remote.assignor``. franz-go 1.22 has an option for KIP-848, recommends Kafka 4.3, and
  sends the strategy of its first balancer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from rota.engine.formats import consumer_protocol
from rota.engine.formats.consumer_protocol import read_partitions
from rota.engine.formats.primitive import PrimitiveReader
from rota.engine.history.facts import COOPERATIVE_STICKY, MINUTE, SERVER_STRATEGIES
from rota.errors import FormatError

JAVA = "java"
STREAMS = "kafka-streams"
LIBRDKAFKA = "librdkafka"  # Confluent's clients (Python, Go, .NET, JavaScript), rdkafka (Ruby, PHP)
KAFKA_PYTHON = "kafka-python"
AIOKAFKA = "aiokafka"
SARAMA = "sarama"
FRANZ_GO = "franz-go"
KAFKA_GO = "kafka-go"
KAFKAJS = "kafkajs"
RUBY_KAFKA = "ruby-kafka"
BROD = "brod"
ROTA = "rota"
#: Libraries without a limit on the time between polls: a slow poll does not remove their members.
NO_POLL_LIMIT_LIBRARIES = frozenset((SARAMA, FRANZ_GO, KAFKA_GO, KAFKAJS, RUBY_KAFKA, BROD))

#: Default client ids. Java's contains the group: see :func:`_is_java_client_id`.
_CLIENT_IDS = (
    (re.compile(r"rdkafka(?:$|#)"), LIBRDKAFKA),
    (re.compile(r"kafka-python-\d"), KAFKA_PYTHON),
    (re.compile(r"aiokafka-\d"), AIOKAFKA),
    (re.compile(r"sarama$"), SARAMA),
    (re.compile(r"kgo$"), FRANZ_GO),
    (re.compile(r"kafkajs$"), KAFKAJS),
    (re.compile(r"ruby-kafka$"), RUBY_KAFKA),
    (re.compile(r"rota(?:$|-)"), ROTA),
    (re.compile(r".*@.* \(github\.com/segmentio/kafka-go\)$", re.DOTALL), KAFKA_GO),
    (re.compile(r".*-StreamThread-\d+-consumer$", re.DOTALL), STREAMS),
    (re.compile(r"connector-consumer-.*-\d+$", re.DOTALL), JAVA),
)

#: Strategies of only one library; kafkajs and brod use these by default.
_LIBRARY_OF_STRATEGY = {"stream": STREAMS, "RoundRobinAssigner": KAFKAJS, "roundrobin_v2": BROD}
SHARED_STRATEGIES = frozenset({"range", "roundrobin", "cooperative-sticky"})


class LibrarySigns(NamedTuple):
    """Data in the journal that can show a member's client library."""

    group: str
    client_id: str
    group_instance_id: str | None = None
    strategy: str = ""
    version: int | None = None  # of the subscription; None: a consumer group, or not decoded
    user_data: bytes | None = None


def detect_library(signs: LibrarySigns) -> str | None:
    """Returns the client library; None if nothing identifies it."""
    for pattern, name in _CLIENT_IDS:
        if pattern.match(signs.client_id):
            return name
    if _is_java_client_id(signs):
        return JAVA
    return _LIBRARY_OF_STRATEGY.get(signs.strategy) or _detect_by_bytes(signs)


def _is_java_client_id(signs: LibrarySigns) -> bool:
    """Java's default is ``consumer-<group>-<number>``, or the static id instead of the number."""
    prefix = f"consumer-{signs.group}-"
    rest = signs.client_id.removeprefix(prefix)
    is_default = rest.isdecimal() or rest == signs.group_instance_id
    return is_default and signs.client_id.startswith(prefix)


def _detect_by_bytes(signs: LibrarySigns) -> str | None:
    """Detects the library by its user data: librdkafka writes empty ones, Java's cooperative
    strategy a generation (so does sarama, up to version 2), kafka-python's cooperative none, in
    version 1. Only kafka-python writes a version in front of the sticky ones.
    """
    version, data = signs.version, signs.user_data
    if version is None or data is None:
        return None
    if signs.strategy == "sticky" and _is_kafka_python_data(data):
        return KAFKA_PYTHON
    cooperative = signs.strategy == "cooperative-sticky"
    if not data and signs.strategy in SHARED_STRATEGIES:
        return LIBRDKAFKA if version >= 2 or (version == 1 and not cooperative) else None
    return JAVA if cooperative and len(data) == 4 and version >= 3 else None


def _is_kafka_python_data(data: bytes) -> bool:
    """Returns whether sticky user data makes sense only with a version in front."""
    reader = PrimitiveReader(data, consumer_protocol.STICKY_USER_DATA)
    try:
        read_partitions(reader, "previous assignment")
    except FormatError:
        return consumer_protocol.decode_sticky_user_data(data).note is None
    return False


CLASSIC_STRATEGIES = frozenset({"range", "roundrobin", "sticky", COOPERATIVE_STICKY})
UNKNOWN_LIBRARY = "unknown"
VALUE_PLACEHOLDER = "..."  # a setting's text contains this where its value belongs
MIN_BROKER_VERSION = "4.0"
DEFAULT_POLL_INTERVAL = 300_000
#: Defaults of ``request_timeout_ms`` and ``connections_max_idle_ms`` in kafka-python 2.
KAFKA_PYTHON_REQUEST_TIMEOUT, KAFKA_PYTHON_MAX_IDLE = 305_000, 540_000
#: Default of ``session_timeout_ms`` in aiokafka, and so of its ``rebalance_timeout_ms``.
AIOKAFKA_SESSION_TIMEOUT = 10_000
_REMOTE_ASSIGNORS = {name: f"group.remote.assignor={name}" for name in SERVER_STRATEGIES}


_CLASS_NAMES = {
    "range": "Range",
    "roundrobin": "RoundRobin",
    "sticky": "Sticky",
    COOPERATIVE_STICKY: "CooperativeSticky",
}
_PYTHON_CLASS_NAMES = {
    "range": "range.RangePartitionAssignor",
    "roundrobin": "roundrobin.RoundRobinPartitionAssignor",
    "sticky": "sticky.sticky_assignor.StickyPartitionAssignor",
    COOPERATIVE_STICKY: "cooperative_sticky.CooperativeStickyAssignor",
}


def _class_names(
    pattern: str, names: Mapping[str, str] = _CLASS_NAMES, *, without: Collection[str] = ()
) -> Mapping[str, str]:
    return {one: pattern.replace("*", name) for one, name in names.items() if one not in without}


def format_duration(milliseconds: int, units: tuple[str, str, str] = ("ms", "s", "min")) -> str:
    """Formats milliseconds as ``500ms``, ``45s`` or ``2min``."""
    if milliseconds % 1_000:
        return f"{milliseconds}{units[0]}"
    if milliseconds % MINUTE or milliseconds < 2 * MINUTE:
        return f"{milliseconds // 1_000}{units[1]}"
    return f"{milliseconds // MINUTE}{units[2]}"


def _go_duration(milliseconds: int) -> str:
    units = (" * time.Millisecond", " * time.Second", " * time.Minute")
    return format_duration(milliseconds, units)


class SessionNeeds(NamedTuple):
    settings: tuple[str, ...] = ()
    note: str = ""


def _librdkafka_session_needs(session: int) -> SessionNeeds:
    """The library refuses a session timeout above ``max.poll.interval.ms``."""
    if session <= DEFAULT_POLL_INTERVAL:
        return SessionNeeds()
    note = "max.poll.interval.ms must not be shorter than the session."
    return SessionNeeds((f"max.poll.interval.ms={session}",), note)


def _kafka_python_session_needs(session: int) -> SessionNeeds:
    """In kafka-python 2: session timeout < request timeout < idle limit of connections."""
    if session < KAFKA_PYTHON_REQUEST_TIMEOUT:
        return SessionNeeds()
    request, idle = session + 5_000, ""
    if request >= KAFKA_PYTHON_MAX_IDLE:
        idle = f" and connections_max_idle_ms={request + 5_000}"
    note = f"Before kafka-python 3.0, set request_timeout_ms={request}{idle}, too."
    return SessionNeeds(note=note)


def _aiokafka_session_needs(session: int) -> SessionNeeds:
    """In aiokafka a join, by default as long as a session, must end in ``request_timeout_ms``."""
    if session <= AIOKAFKA_SESSION_TIMEOUT:
        return SessionNeeds()
    note = (
        "If you have set rebalance_timeout_ms, keep its value; it must be below "
        "request_timeout_ms, 40000 if not set."
    )
    return SessionNeeds((f"rebalance_timeout_ms={AIOKAFKA_SESSION_TIMEOUT}",), note)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerProtocolSettings:
    """The settings with which a library uses the consumer protocol (KIP-848)."""

    minimum_client: str
    to_join: tuple[str, ...] = ("group.protocol=consumer",)
    to_leave: tuple[str, ...] = ("group.protocol=classic",)
    assignor: Mapping[str, str] = field(default_factory=lambda: _REMOTE_ASSIGNORS)
    is_assignor_required: bool = False  # whether even the default, ``uniform``, must be set
    #: Settings of the classic protocol that the library then refuses: they are the broker's.
    refused: str = "partition.assignment.strategy, session.timeout.ms and heartbeat.interval.ms"
    refused_in_classic: str = "group.remote.assignor"

    def settings_for(self, strategy: str) -> tuple[str, ...]:
        needed = self.is_assignor_required or strategy != "uniform"
        return (*self.to_join, self.assignor[strategy]) if needed else self.to_join


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLibrary:
    """A client library's abilities and settings; several settings are lines of one text."""

    name: str
    strategies: frozenset[str] = frozenset()  # those to advise; empty: the library has its own
    names: Mapping[str, str] = field(
        default_factory=lambda: {one: one for one in CLASSIC_STRATEGIES}
    )
    strategy: str = "partition.assignment.strategy=..."
    separator: str = ","
    static_id: str | None = "group.instance.id=ID"  # None: it has no static members
    static_since: str | None = None  # first version with static members; None: all have them
    session_timeout: str | None = "session.timeout.ms=..."  # None: no step mentions it
    session_needs: Callable[[int], SessionNeeds] = lambda _: SessionNeeds()
    duration: Callable[[int], str] = str
    poll_interval: str | None = "max.poll.interval.ms=..."  # None: no limit between polls
    poll_records: str | None = "max.poll.records=..."  # None if a poll has no limit of records
    consumer_protocol: ConsumerProtocolSettings | None = None  # None if it does not support KIP-848
    #: The first version with cooperative-sticky; None if every relevant version has it.
    cooperative_since: str | None = None
    allows_mixed_list: bool = False  # whether one list may contain eager and cooperative strategies
    mixed_default: str | None = None  # versions whose default list is range and cooperative-sticky
    yaml_key: str = ""  # prefix in application.yaml; empty: as in Java

    def _format_lines(self, *settings: str) -> str:
        if not self.yaml_key:
            return "\n".join(settings)
        pairs = (setting.partition("=") for setting in settings)
        lines = (f"  {key}: {value}" for key, _, value in pairs)
        return "\n".join((f"{self.yaml_key}:", *lines))

    def _fill(self, template: str | None, value: str) -> str | None:
        """Returns a template with its value; None if the library has no such setting."""
        return template and self._format_lines(template.replace(VALUE_PLACEHOLDER, value))

    def strategy_setting(self, *strategies: str) -> str:
        return self._format_lines(self._strategy_line(strategies))

    def _strategy_line(self, strategies: Iterable[str]) -> str:
        names = self.separator.join(self.names.get(name, name) for name in strategies)
        return self.strategy.replace(VALUE_PLACEHOLDER, names)

    def static_id_setting(self) -> str | None:
        return self._fill(self.static_id, "")

    def session_setting(self, milliseconds: int) -> str | None:
        lines = self._session_lines(milliseconds)
        return self._format_lines(*lines) if lines else None

    def _session_lines(self, milliseconds: int) -> tuple[str, ...]:
        if self.session_timeout is None:
            return ()
        line = self.session_timeout.replace(VALUE_PLACEHOLDER, self.duration(milliseconds))
        return (line, *self.session_needs(milliseconds).settings)

    def poll_interval_setting(self, milliseconds: int) -> str | None:
        return self._fill(self.poll_interval, self.duration(milliseconds))

    def poll_records_setting(self, records: int) -> str | None:
        return self._fill(self.poll_records, str(records))

    def consumer_protocol_setting(self, strategy: str) -> str | None:
        settings = self.consumer_protocol
        return self._format_lines(*settings.settings_for(strategy)) if settings else None

    def classic_protocol_setting(self, strategy: str, session: int | None = None) -> str:
        settings = self.consumer_protocol
        lines = () if session is None else self._session_lines(session)
        before = () if settings is None else settings.to_leave
        return self._format_lines(*before, self._strategy_line([strategy]), *lines)

    def assignor_setting(self, strategy: str) -> str | None:
        settings = self.consumer_protocol
        return self._format_lines(settings.assignor[strategy]) if settings else None


_JAVA = ClientLibrary(
    name="Java",
    strategies=CLASSIC_STRATEGIES,
    names=_class_names("org.apache.kafka.clients.consumer.*Assignor"),
    static_since="Java client 2.3 or newer",
    consumer_protocol=ConsumerProtocolSettings(minimum_client="Java client 4.0 or newer"),
    cooperative_since="Java client 2.4 or newer",
    allows_mixed_list=True,
    mixed_default="Java client 3.0 or newer",
)

_KAFKA_PYTHON = ClientLibrary(
    name="kafka-python",
    strategies=CLASSIC_STRATEGIES,
    names=_class_names("kafka.coordinator.assignors.*", _PYTHON_CLASS_NAMES),
    strategy="partition_assignment_strategy=[...]",
    separator=", ",
    static_id="group_instance_id=ID",
    static_since="kafka-python 2.3 or newer",
    session_timeout="session_timeout_ms=...",
    session_needs=_kafka_python_session_needs,
    poll_interval="max_poll_interval_ms=...",
    poll_records="max_poll_records=...",
    cooperative_since="kafka-python 3.0 or newer",
)

#: Spring for Apache Kafka: Java's client, with its settings in application.yaml.
SPRING_BOOT = replace(_JAVA, name="Spring Boot", yaml_key="spring.kafka.consumer.properties")

#: Has neither settings to advise nor static members.
_UNSUPPORTED = ClientLibrary(
    name="", static_id=None, session_timeout=None, poll_interval=None, poll_records=None
)

CLIENT_LIBRARIES: Mapping[str, ClientLibrary] = MappingProxyType(
    {
        UNKNOWN_LIBRARY: replace(_JAVA, name="unknown (as Java)"),
        JAVA: _JAVA,
        STREAMS: ClientLibrary(
            name="Kafka Streams",
            static_since="Kafka Streams 2.3 or newer",
        ),
        LIBRDKAFKA: ClientLibrary(
            name="librdkafka",
            strategies=CLASSIC_STRATEGIES - {"sticky"},
            static_since="librdkafka 1.4 or newer",
            session_needs=_librdkafka_session_needs,
            poll_records=None,
            consumer_protocol=ConsumerProtocolSettings(minimum_client="librdkafka 2.12 or newer"),
            cooperative_since="librdkafka 1.6 or newer",
        ),
        KAFKA_PYTHON: _KAFKA_PYTHON,
        AIOKAFKA: replace(
            _KAFKA_PYTHON,
            name="aiokafka",
            static_since="aiokafka 0.10 or newer",
            session_needs=_aiokafka_session_needs,
            strategies=CLASSIC_STRATEGIES - {COOPERATIVE_STICKY},
            names=_class_names(
                "aiokafka.coordinator.assignors.*",
                _PYTHON_CLASS_NAMES,
                without={COOPERATIVE_STICKY},
            ),
            cooperative_since=None,
        ),
        SARAMA: ClientLibrary(
            name="sarama",
            strategies=CLASSIC_STRATEGIES - {COOPERATIVE_STICKY},
            names=_class_names("sarama.NewBalanceStrategy*()"),
            strategy="config.Consumer.Group.Rebalance.GroupStrategies = "
            "[]sarama.BalanceStrategy{...}",
            separator=", ",
            static_id="config.Consumer.Group.InstanceId = ID",
            static_since="config.Version sarama.V2_3_0_0 or newer",
            session_timeout="config.Consumer.Group.Session.Timeout = ...",
            duration=_go_duration,
            poll_interval=None,
            poll_records=None,
            allows_mixed_list=True,
        ),
        FRANZ_GO: ClientLibrary(
            name="franz-go",
            strategies=CLASSIC_STRATEGIES,
            names=_class_names("kgo.*Balancer()"),
            strategy="kgo.Balancers(...)",
            separator=", ",
            static_id="kgo.InstanceID(ID)",
            session_timeout="kgo.SessionTimeout(...)",
            duration=lambda milliseconds: _go_duration(milliseconds).replace(" ", ""),
            poll_interval=None,
            poll_records=None,
            consumer_protocol=ConsumerProtocolSettings(
                minimum_client="franz-go 1.22 or newer (which recommends Kafka 4.3)",
                to_join=("kgo.ServerSideBalancer()",),
                to_leave=(),
                assignor={
                    "uniform": "kgo.Balancers(kgo.StickyBalancer())",
                    "range": "kgo.Balancers(kgo.RangeBalancer())",
                },
                is_assignor_required=True,
                refused="",
                refused_in_classic="kgo.ServerSideBalancer()",
            ),
            allows_mixed_list=True,
        ),
        KAFKA_GO: ClientLibrary(
            name="kafka-go",
            strategies=frozenset({"range", "roundrobin"}),
            names=_class_names("kafka.*GroupBalancer{}", without={"sticky", COOPERATIVE_STICKY}),
            strategy="GroupBalancers: []kafka.GroupBalancer{...}",
            separator=", ",
            static_id=None,
            session_timeout="SessionTimeout: ...",
            duration=_go_duration,
            poll_interval=None,
            poll_records=None,
        ),
        KAFKAJS: replace(_UNSUPPORTED, name="kafkajs"),
        RUBY_KAFKA: replace(_UNSUPPORTED, name="ruby-kafka"),
        BROD: replace(_UNSUPPORTED, name="brod"),
        ROTA: ClientLibrary(
            name="Rota",
            strategies=CLASSIC_STRATEGIES,
            allows_mixed_list=True,
            mixed_default="Rota",
        ),
    }
)


def find_libraries(names: Iterable[str | None]) -> tuple[ClientLibrary, ...]:
    """Returns the libraries with these names, without duplicates; the unknown one for no names."""
    found = {name or UNKNOWN_LIBRARY for name in names} or {UNKNOWN_LIBRARY}
    return tuple(CLIENT_LIBRARIES[name] for name in sorted(found) if name in CLIENT_LIBRARIES)


def offer_libraries(
    own: Sequence[ClientLibrary], is_able: Callable[[ClientLibrary], bool]
) -> tuple[ClientLibrary, ...]:
    """Returns the libraries to show settings for: the group's known ones first, then all others
    that are able, because the detection may be wrong.
    """
    known = [one for one in own if one is not CLIENT_LIBRARIES[UNKNOWN_LIBRARY]]
    java = [one for one in known if one is _JAVA]
    listed = (
        *known,
        *(SPRING_BOOT for _ in java),
        _JAVA,
        SPRING_BOOT,
        *(one for name, one in CLIENT_LIBRARIES.items() if name not in {UNKNOWN_LIBRARY, ROTA}),
    )
    return tuple(one for one in _without_duplicates(listed) if one in known or is_able(one))


def _without_duplicates(libraries: Iterable[ClientLibrary]) -> Iterable[ClientLibrary]:
    return {one.name: one for one in libraries}.values()


def join_names(names: Iterable[str | None]) -> str:
    """Joins names as ``a, b and c``, each once; skips empty ones."""
    *most, last = dict.fromkeys(name for name in names if name)
    return f"{', '.join(most)} and {last}" if most else last
