"""Settings: Kafka's keys, and the bounds that are kept."""

from __future__ import annotations

from typing import Any

import pytest

from rota.engine.model.config import (
    DAY,
    MINUTE,
    ConfigKey,
    ConfigType,
    GroupConfig,
    MemberConfig,
    field_keys,
)
from rota.errors import InputError

NUMBERS = [
    (config, key)
    for config in (GroupConfig, MemberConfig)
    for key in field_keys(config)
    if key.type in {ConfigType.INT, ConfigType.LONG}
]


def build_config(
    config: type[GroupConfig | MemberConfig], **settings: Any
) -> GroupConfig | MemberConfig:
    return GroupConfig(**settings) if config is GroupConfig else member(**settings)


def member(**settings: Any) -> MemberConfig:
    return MemberConfig(**{"group": "g", **settings})


@pytest.mark.parametrize(("config", "key"), NUMBERS, ids=[key.name for _, key in NUMBERS])
def test_a_number_out_of_bounds_is_refused_by_kafkas_key(
    config: type[GroupConfig | MemberConfig], key: ConfigKey
) -> None:
    least, most = key.bounds[0], key.bounds[1] * key.unit
    assert least >= 0
    for wrong in (least - 1, most + 1, 1.5, "1", True, None):
        with pytest.raises(InputError) as refused:
            build_config(config, **{str(key.field): wrong})
        said = f"{key.name}: {wrong!r} is not a whole number from {least} to {most}"
        assert str(refused.value).startswith(said)


BOUNDS = {
    # as Kafka 4.3 has them
    "group.max.size": (1, 2**31 - 1),
    "offsets.retention.check.interval.ms": (1, 2**63 - 1),
    "max.poll.interval.ms": (1, 2**31 - 1),
    "retry.backoff.ms": (0, 2**63 - 1),
    "retry.backoff.max.ms": (0, 2**63 - 1),
    "auto.commit.interval.ms": (0, 2**31 - 1),
    # Kafka gives these no lower bound
    "group.min.session.timeout.ms": (0, 2**31 - 1),
    "group.max.session.timeout.ms": (0, 2**31 - 1),
    "group.initial.rebalance.delay.ms": (0, 2**31 - 1),
    "offset.metadata.max.bytes": (0, 2**31 - 1),
    "session.timeout.ms": (1, 2**31 - 1),
    "heartbeat.interval.ms": (1, 2**31 - 1),
    "offsets.retention.minutes": (1, 2**31 - 1),
}


def test_the_bounds_are_kafkas() -> None:
    assert {key.name: key.bounds for _, key in NUMBERS} == BOUNDS


def test_the_retention_is_in_milliseconds_and_kafkas_in_minutes() -> None:
    units = {key.name: key.unit for _, key in NUMBERS if key.unit != 1}
    assert units == {"offsets.retention.minutes": MINUTE}
    assert GroupConfig().offsets_retention == 7 * DAY == 10_080 * MINUTE
    with pytest.raises(InputError, match=r"^offsets.retention.minutes: 0 .* milliseconds$"):
        GroupConfig(offsets_retention=0)


def test_texts_and_flags_have_kafkas_keys() -> None:
    numbers = {key.name for _, key in NUMBERS}
    assert [key.name for key in field_keys(MemberConfig) if key.name not in numbers] == [
        "group.id",
        "client.id",
        "group.instance.id",
        "client.rack",
        "enable.auto.commit",
        "exclude.internal.topics",
    ]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("group", "group.id"),
        ("client_id", "client.id"),
        ("group_instance_id", "group.instance.id"),
        ("rack", "client.rack"),
    ],
)
@pytest.mark.parametrize("text", ["x" * 2**15, "x\ud800"], ids=["too long", "no UTF-8"])
def test_a_text_that_no_request_can_carry_is_refused(name: str, key: str, text: str) -> None:
    with pytest.raises(InputError, match=f"^{key}: 'x") as refused:
        member(**{name: text})
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"group": ""}, "group.id: a member needs"),
        ({"group_instance_id": ""}, "group.instance.id: may be absent"),
        (
            {"heartbeat_interval": 9, "session_timeout": 9},
            "heartbeat.interval.ms: 9 is not less than session.timeout.ms, 9",
        ),
    ],
    ids=["no group", "empty static id", "slow heart"],
)
def test_a_members_settings_that_do_not_go_together(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        member(**settings)
    assert said in str(refused.value)


def test_sessions_have_a_shortest_and_a_longest() -> None:
    with pytest.raises(InputError, match="group.min.session.timeout.ms: 9 is more than group.max"):
        GroupConfig(min_session_timeout=9, max_session_timeout=8)


def test_few_heartbeats_in_a_session_are_unwise() -> None:
    (warning,) = member(heartbeat_interval=4_000, session_timeout=10_000).warnings
    assert "more than a third" in warning
    assert member().warnings == ()
