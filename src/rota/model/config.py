"""Settings under Kafka's names, with Kafka's defaults and bounds: one table for each side.

A field's metadata has the ``key`` of the setting in Kafka, and of a number what it is at ``least``
and at ``most``. Kafka gives some times no lower bound, though a negative one has no meaning; here
all have one. ``unit`` is what a one under the key is in the field: 60,000 where Kafka counts
minutes, for times are in milliseconds here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from rota.errors import InputError
from rota.model.text import misfit, shortened

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
INT, LONG = 2**31 - 1, 2**63 - 1
"""The highest numbers of Kafka's types."""


def number(key: str | None, default: int, *, least: int = 0, most: int = INT, unit: int = 1) -> int:
    """A setting that is a whole number."""
    value: int = field(
        default=default, metadata={"key": key, "least": least, "most": most * unit, "unit": unit}
    )
    return value


def ratio(key: str, default: float) -> float:
    """A setting from 0 to 1."""
    value: float = field(
        default=default, metadata={"key": key, "least": 0, "most": 1, "ratio": True, "unit": 1}
    )
    return value


def choice(key: str, default: str, *others: str) -> str:
    """A setting that is one of a few words."""
    value: str = field(default=default, metadata={"key": key, "choices": (default, *others)})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What a broker's operator sets for groups. Times are in milliseconds."""

    min_session_timeout: int = number("group.min.session.timeout.ms", 6_000)
    max_session_timeout: int = number("group.max.session.timeout.ms", 30 * MINUTE)
    initial_rebalance_delay: int = number("group.initial.rebalance.delay.ms", 3_000)
    max_size: int = number("group.max.size", INT, least=1)
    offset_metadata_max: int = number("offset.metadata.max.bytes", 4_096)
    offsets_retention: int = number("offsets.retention.minutes", 7 * DAY, least=1, unit=MINUTE)
    """In milliseconds too, though Kafka counts minutes."""
    retention_check_interval: int = number(
        "offsets.retention.check.interval.ms", 10 * MINUTE, least=1, most=LONG
    )
    new_member_timeout: int = number(None, 5 * MINUTE, least=1)
    """How long a new member may wait for its first join to complete; fixed in Kafka."""

    def __post_init__(self) -> None:
        check(self)
        if self.min_session_timeout > self.max_session_timeout:
            raise InputError(
                f"group.min.session.timeout.ms: {self.min_session_timeout} is more than "
                f"group.max.session.timeout.ms, {self.max_session_timeout}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """What an application sets for its consumer's membership. Times are in milliseconds."""

    group: str = field(metadata={"key": "group.id"})
    client_id: str = field(default="rota", metadata={"key": "client.id"})
    static_id: str | None = field(default=None, metadata={"key": "group.instance.id"})
    rack: str | None = field(default=None, metadata={"key": "client.rack"})
    session_timeout: int = number("session.timeout.ms", 45_000, least=1)
    heartbeat_interval: int = number("heartbeat.interval.ms", 3_000, least=1)
    max_poll_interval: int = number("max.poll.interval.ms", 5 * MINUTE, least=1)
    retry_backoff: int = number("retry.backoff.ms", 100, most=LONG)
    retry_backoff_max: int = number("retry.backoff.max.ms", 1_000, most=LONG)
    auto_commit: bool = field(default=True, metadata={"key": "enable.auto.commit"})
    auto_commit_interval: int = number("auto.commit.interval.ms", 5_000)
    exclude_internal: bool = field(default=True, metadata={"key": "exclude.internal.topics"})

    def __post_init__(self) -> None:
        check(self)
        if not self.group:
            raise InputError("group.id: a member needs the name of its group")
        if self.static_id == "":
            raise InputError("group.instance.id: may be absent, but not empty")
        if self.heartbeat_interval >= self.session_timeout:
            raise InputError(
                f"heartbeat.interval.ms: {self.heartbeat_interval} is not less than "
                f"session.timeout.ms, {self.session_timeout}"
            )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed but unwise."""
        if self.heartbeat_interval * 3 > self.session_timeout:
            return (
                f"heartbeat.interval.ms {self.heartbeat_interval} is more than a third of "
                f"session.timeout.ms {self.session_timeout}: two lost heartbeats end the session",
            )
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What is set for a topic. Times are in milliseconds; -1 is no limit where Kafka says so."""

    cleanup_policy: str = choice("cleanup.policy", "delete", "compact", "compact,delete", "")
    delete_retention: int = number("delete.retention.ms", DAY, most=LONG)
    flush_messages: int = number("flush.messages", LONG, least=1, most=LONG)
    flush_interval: int = number("flush.ms", LONG, most=LONG)
    index_interval: int = number("index.interval.bytes", 4_096)
    max_compaction_lag: int = number("max.compaction.lag.ms", LONG, least=1, most=LONG)
    max_message_bytes: int = number("max.message.bytes", 1_048_588)
    timestamps_after: int = number("message.timestamp.after.max.ms", 60 * MINUTE, most=LONG)
    timestamps_before: int = number("message.timestamp.before.max.ms", LONG, most=LONG)
    timestamp_type: str = choice("message.timestamp.type", "CreateTime", "LogAppendTime")
    min_cleanable_ratio: float = ratio("min.cleanable.dirty.ratio", 0.5)
    min_compaction_lag: int = number("min.compaction.lag.ms", 0, most=LONG)
    retention_bytes: int = number("retention.bytes", -1, least=-LONG, most=LONG)
    retention: int = number("retention.ms", 7 * DAY, least=-1, most=LONG)
    segment_bytes: int = number("segment.bytes", 1 << 30, least=1)
    """A topic's own may not be under 1 MiB, but for tests (``internal.segment.bytes``)."""
    segment_index_bytes: int = number("segment.index.bytes", 10 << 20, least=4)
    segment_age: int = number("segment.ms", 7 * DAY, least=1, most=LONG)

    def __post_init__(self) -> None:
        check(self)

    @property
    def compacted(self) -> bool:
        """Old values of a key are removed."""
        return "compact" in self.cleanup_policy

    @property
    def deleted(self) -> bool:
        """Old segments are removed."""
        return "delete" in self.cleanup_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What a broker's operator sets, but for groups and topics. Times are in milliseconds."""

    node_id: int = number("node.id", 1)
    auto_create_topics: bool = field(default=True, metadata={"key": "auto.create.topics.enable"})
    default_partitions: int = number("num.partitions", 1, least=1)
    offsets_partitions: int = number("offsets.topic.num.partitions", 50, least=1)
    offsets_segment_bytes: int = number("offsets.topic.segment.bytes", 100 << 20, least=1)
    max_request_bytes: int = number("socket.request.max.bytes", 100 << 20, least=1)
    max_fetch_bytes: int = number("fetch.max.bytes", 55 << 20, least=1_024)
    max_connections: int = number("max.connections", INT)
    idle_connection: int = number("connections.max.idle.ms", 10 * MINUTE, most=LONG)
    login_pause: int = number("connection.failed.authentication.delay.ms", 100)
    """Who has failed to log in waits so long for the answer: guessing takes its time."""
    retention_check: int = number("log.retention.check.interval.ms", 5 * MINUTE, least=1)
    checkpoint_interval: int = number("log.flush.offset.checkpoint.interval.ms", MINUTE, least=1)
    cleaner_backoff: int = number("log.cleaner.backoff.ms", 15_000, most=LONG)
    producer_expiration: int = number("producer.id.expiration.ms", DAY, least=1)

    def __post_init__(self) -> None:
        check(self)


def check(config: DataclassInstance) -> None:
    """Refuses numbers out of bounds, and texts that no request could carry."""
    for each in fields(config):
        value, about = getattr(config, each.name), each.metadata
        name = about.get("key") or each.name
        if "least" in about:
            least, most = about["least"], about["most"]
            kinds, kind = ((int, float), "a") if "ratio" in about else ((int,), "a whole")
            if type(value) not in kinds or not least <= value <= most:
                unit = " milliseconds" if about["unit"] > 1 else ""
                raise InputError(
                    f"{name}: {value!r} is not {kind} number from {least} to {most}{unit}"
                )
        elif "choices" in about:
            if value not in about["choices"]:
                known = ", ".join(map(repr, about["choices"]))
                raise InputError(f"{name}: {value!r} is none of {known}")
        elif isinstance(value, str) and (problem := misfit(value)):
            raise InputError(f"{name}: {shortened(value)} {problem}")
