"""Settings under Kafka's names: a field's metadata says the key it has in Kafka."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.errors import InputError

MINUTE = 60_000
DAY = 24 * 60 * MINUTE


def _key(name: str, default: int) -> int:
    value: int = field(default=default, metadata={"key": name})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What a broker's operator sets for groups. Times are in milliseconds."""

    min_session_timeout: int = _key("group.min.session.timeout.ms", 6_000)
    max_session_timeout: int = _key("group.max.session.timeout.ms", 30 * MINUTE)
    initial_rebalance_delay: int = _key("group.initial.rebalance.delay.ms", 3_000)
    max_size: int = _key("group.max.size", 2**31 - 1)
    offset_metadata_max: int = _key("offset.metadata.max.bytes", 4_096)
    offsets_retention: int = _key("offsets.retention.minutes", 7 * DAY)
    retention_check_interval: int = _key("offsets.retention.check.interval.ms", 10 * MINUTE)
    new_member_timeout: int = 5 * MINUTE
    """How long a new member may wait for its first join to complete; fixed in Kafka."""

    def __post_init__(self) -> None:
        if self.max_size < 1:
            raise InputError(f"group.max.size: {self.max_size} is not at least 1")
        if self.min_session_timeout > self.max_session_timeout:
            raise InputError(
                f"group.min.session.timeout.ms: {self.min_session_timeout} is more than "
                f"group.max.session.timeout.ms, {self.max_session_timeout}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """What an application sets for its consumer's membership. Times are in milliseconds."""

    group: str
    client_id: str = "rota"
    static_id: str | None = None
    rack: str | None = None
    session_timeout: int = _key("session.timeout.ms", 45_000)
    heartbeat_interval: int = _key("heartbeat.interval.ms", 3_000)
    max_poll_interval: int = _key("max.poll.interval.ms", 5 * MINUTE)
    retry_backoff: int = _key("retry.backoff.ms", 100)
    retry_backoff_max: int = _key("retry.backoff.max.ms", 1_000)
    auto_commit: bool = True
    auto_commit_interval: int = _key("auto.commit.interval.ms", 5_000)

    def __post_init__(self) -> None:
        if not self.group:
            raise InputError("group.id: a member needs the name of its group")
        if self.static_id == "":
            raise InputError("group.instance.id: may be absent, but not empty")
        if not 0 < self.heartbeat_interval < self.session_timeout:
            raise InputError(
                f"heartbeat.interval.ms: {self.heartbeat_interval} must be more than 0 and less "
                f"than session.timeout.ms, {self.session_timeout}"
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
