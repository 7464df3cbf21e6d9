"""Settings under Kafka's names, with Kafka's defaults and bounds: one table for each side.

A field's metadata has the ``key`` of the setting in Kafka, and of a number what it is at ``least``
and at ``most``. Kafka gives some times no lower bound, though a negative one has no meaning; here
all have one. ``unit`` is what a one under the key is in the field: 60,000 where Kafka counts
minutes, for times are in milliseconds here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from rota.errors import InputError
from rota.model.text import misfit, shortened

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
INT, LONG = 2**31 - 1, 2**63 - 1
"""The highest numbers of Kafka's types."""


def _number(
    key: str | None, default: int, *, least: int = 0, most: int = INT, unit: int = 1
) -> int:
    value: int = field(
        default=default, metadata={"key": key, "least": least, "most": most * unit, "unit": unit}
    )
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """What a broker's operator sets for groups. Times are in milliseconds."""

    min_session_timeout: int = _number("group.min.session.timeout.ms", 6_000)
    max_session_timeout: int = _number("group.max.session.timeout.ms", 30 * MINUTE)
    initial_rebalance_delay: int = _number("group.initial.rebalance.delay.ms", 3_000)
    max_size: int = _number("group.max.size", INT, least=1)
    offset_metadata_max: int = _number("offset.metadata.max.bytes", 4_096)
    offsets_retention: int = _number("offsets.retention.minutes", 7 * DAY, least=1, unit=MINUTE)
    """In milliseconds too, though Kafka counts minutes."""
    retention_check_interval: int = _number(
        "offsets.retention.check.interval.ms", 10 * MINUTE, least=1, most=LONG
    )
    new_member_timeout: int = _number(None, 5 * MINUTE, least=1)
    """How long a new member may wait for its first join to complete; fixed in Kafka."""

    def __post_init__(self) -> None:
        _check(self)
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
    session_timeout: int = _number("session.timeout.ms", 45_000, least=1)
    heartbeat_interval: int = _number("heartbeat.interval.ms", 3_000, least=1)
    max_poll_interval: int = _number("max.poll.interval.ms", 5 * MINUTE, least=1)
    retry_backoff: int = _number("retry.backoff.ms", 100, most=LONG)
    retry_backoff_max: int = _number("retry.backoff.max.ms", 1_000, most=LONG)
    auto_commit: bool = field(default=True, metadata={"key": "enable.auto.commit"})
    auto_commit_interval: int = _number("auto.commit.interval.ms", 5_000)

    def __post_init__(self) -> None:
        _check(self)
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


def _check(config: GroupConfig | MemberConfig) -> None:
    """Refuses numbers out of bounds, and texts that no request could carry."""
    for each in fields(config):
        value, about = getattr(config, each.name), each.metadata
        name = about["key"] or each.name
        if "least" in about:
            least, most = about["least"], about["most"]
            if type(value) is not int or not least <= value <= most:
                unit = " milliseconds" if about["unit"] > 1 else ""
                raise InputError(
                    f"{name}: {value!r} is not a whole number from {least} to {most}{unit}"
                )
        elif isinstance(value, str) and (problem := misfit(value)):
            raise InputError(f"{name}: {shortened(value)} {problem}")
