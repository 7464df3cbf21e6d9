"""Which client library a member runs, as far as the journal gives it away.

Brokers do not save it. A library's own client id says it plainly, and so do the names of a few
strategies; some libraries write bytes that no other writes. Where nothing of that holds, the answer
is None: what a group should migrate to hangs on it, so no library is guessed at.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rota.errors import FormatError
from rota.formats import userdata
from rota.formats.partitions import read_partitions
from rota.formats.primitive import Reader
from rota.model.entry import SavedMember
from rota.model.membership import Subscription

JAVA = "java"
STREAMS = "kafka-streams"
LIBRDKAFKA = "librdkafka"
"""Confluent's clients for Python, Go, .NET and JavaScript, and Ruby's and PHP's rdkafka."""
KAFKA_PYTHON = "kafka-python"
AIOKAFKA = "aiokafka"
SARAMA = "sarama"
FRANZ_GO = "franz-go"
KAFKA_GO = "kafka-go"
KAFKAJS = "kafkajs"
RUBY_KAFKA = "ruby-kafka"
BROD = "brod"
ROTA = "rota"
NEVER_LATE = frozenset((SARAMA, FRANZ_GO, KAFKA_GO, KAFKAJS, RUBY_KAFKA, BROD))
"""Libraries without a limit on the time between polls: their members do not leave because of it."""

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
"""The client ids that libraries give themselves. Java's names its group: see :func:`_is_javas`."""
_STRATEGIES = {"stream": STREAMS, "RoundRobinAssigner": KAFKAJS, "roundrobin_v2": BROD}
"""Strategies that one library alone has; kafkajs's and brod's are those in use by default."""
BUILT_IN = frozenset({"range", "roundrobin", "cooperative-sticky"})


class Signs(NamedTuple):
    """What the journal shows of a member."""

    group: str
    client_id: str
    static_id: str | None = None
    strategy: str = ""
    version: int | None = None
    """Of its subscription; None: of a consumer group, or not readable."""
    user_data: bytes | None = None

    @classmethod
    def of(cls, group: str, strategy: str, saved: SavedMember, told: Subscription | None) -> Signs:
        """Those of a member of a classic group."""
        return cls(
            group=group,
            client_id=saved.client_id,
            static_id=saved.static_id,
            strategy=strategy,
            version=None if told is None else int.from_bytes(saved.subscription[:2], "big"),
            user_data=None if told is None else told.user_data,
        )


def library(signs: Signs) -> str | None:
    """The client library; None where it cannot be told."""
    for pattern, name in _CLIENT_IDS:
        if pattern.match(signs.client_id):
            return name
    if _is_javas(signs):
        return JAVA
    return _STRATEGIES.get(signs.strategy) or _by_bytes(signs)


def _is_javas(signs: Signs) -> bool:
    """``consumer-<group>-<number>``, or the static id in the number's place."""
    prefix = f"consumer-{signs.group}-"
    rest = signs.client_id.removeprefix(prefix)
    return signs.client_id.startswith(prefix) and (rest.isdecimal() or rest == signs.static_id)


def _by_bytes(signs: Signs) -> str | None:
    """By what is in a subscription's bytes.

    librdkafka writes empty user data where all others that know owned partitions write none, but
    for kafka-python's cooperative strategy, in version 1. Java puts a generation, and nothing else,
    into a cooperative member's; sarama does, too, but in versions up to 2 only. Only kafka-python
    writes a version in front of sticky's.
    """
    version, data = signs.version, signs.user_data
    if version is None or data is None:
        return None
    if signs.strategy == "sticky" and _is_kafka_pythons(data):
        return KAFKA_PYTHON
    cooperative = signs.strategy == "cooperative-sticky"
    if not data and signs.strategy in BUILT_IN:
        return LIBRDKAFKA if version >= 2 or (version == 1 and not cooperative) else None
    return JAVA if cooperative and len(data) == 4 and version >= 3 else None


def _is_kafka_pythons(data: bytes) -> bool:
    """Sticky user data that only makes sense with a version in front."""
    reader = Reader(data, userdata.SUBJECT)
    try:
        read_partitions(reader, "previous assignment")
    except FormatError:
        return userdata.decode_sticky(data).note is None
    return False
