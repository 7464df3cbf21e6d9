"""A topic's settings as text, and what a topic may be called."""

from __future__ import annotations

import pytest

from rota.broker.config import ConfigSource, ConfigSynonym, topic_config_entries
from rota.engine.model.config import (
    TOPIC_KEYS,
    ConfigType,
    TopicConfig,
    format_config_value,
    parse_topic_config,
)
from rota.engine.model.text import (
    MAX_TOPIC_NAME_LENGTH,
    find_topic_name_problem,
    unify_collision_characters,
)
from rota.errors import InputError

PLAIN = TopicConfig()


def test_every_default_is_a_value_of_its_own_setting() -> None:
    for setting in TOPIC_KEYS.values():
        if not setting.hidden:
            assert setting.parse(format_config_value(setting.default)) == setting.default
    assert parse_topic_config({}, PLAIN) == PLAIN


@pytest.mark.parametrize(
    ("key", "text", "field", "value"),
    [
        ("retention.ms", " -1 ", "retention", -1),
        ("retention.bytes", "1024", "retention_bytes", 1024),
        ("cleanup.policy", "compact", "cleanup_policy", "compact"),
        ("cleanup.policy", "delete,compact", "cleanup_policy", "compact,delete"),
        ("cleanup.policy", "compact, delete", "cleanup_policy", "compact,delete"),
        ("cleanup.policy", "delete,delete", "cleanup_policy", "delete"),
        ("cleanup.policy", "", "cleanup_policy", ""),
        ("min.cleanable.dirty.ratio", "0.01", "min_cleanable_ratio", 0.01),
        ("message.timestamp.type", "LogAppendTime", "timestamp_type", "LogAppendTime"),
        ("segment.bytes", "1048576", "segment_bytes", 1 << 20),
        ("internal.segment.bytes", "100", "segment_bytes", 100),
    ],
)
def test_a_text_becomes_what_holds(key: str, text: str, field: str, value: object) -> None:
    assert getattr(parse_topic_config({key: text}, PLAIN), field) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("retention.ms", "1_000"),
        ("retention.ms", ""),
        ("segment.bytes", "1000"),
        ("segment.bytes", str(1 << 31)),
        ("cleanup.policy", "compact,shrink"),
        ("leader.replication.throttled.replicas", "0:a"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("message.timestamp.type", "createtime"),
        ("min.insync.replicas", "2"),
        ("compression.type", "gzip"),
        ("preallocate", "true"),
        ("preallocate", "perhaps"),
        ("remote.storage.enable", "true"),
        ("segment.jitter.ms", "5"),
        ("retention.weeks", "1"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(key: str, text: str) -> None:
    with pytest.raises(InputError, match=key):
        parse_topic_config({key: text}, PLAIN)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InputError, match="min.compaction.lag.ms: 10 is more than"):
        parse_topic_config({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, PLAIN)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("min.insync.replicas", "1"),
        ("unclean.leader.election.enable", "TRUE"),
        ("compression.type", "producer"),
        ("compression.zstd.level", "-5"),
        ("remote.storage.enable", "false"),
        ("local.retention.ms", "-2"),
        ("leader.replication.throttled.replicas", "0:1,1:1"),
    ],
)
def test_settings_without_work_for_one_node_are_accepted(key: str, text: str) -> None:
    assert parse_topic_config({key: text}, PLAIN) == PLAIN


def test_a_setting_says_where_it_comes_from() -> None:
    broker = TopicConfig(retention=60_000, max_message_bytes=2_000)
    found = {each.name: each for each in topic_config_entries({"retention.ms": "+5"}, broker)}
    assert found["retention.ms"].value == "5"
    assert found["retention.ms"].source is ConfigSource.TOPIC
    assert found["retention.ms"].synonyms == (
        ConfigSynonym("retention.ms", "5", ConfigSource.TOPIC),
        ConfigSynonym("log.retention.ms", "60000", ConfigSource.STATIC_BROKER),
        ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    )
    assert found["max.message.bytes"].source is ConfigSource.STATIC_BROKER
    assert found["max.message.bytes"].value == "2000"
    assert found["segment.ms"].source is ConfigSource.DEFAULT
    assert found["segment.ms"].synonyms == ()
    assert found["cleanup.policy"].key.type is ConfigType.LIST
    assert found["cleanup.policy"].synonyms == (
        ConfigSynonym("log.cleanup.policy", "delete", ConfigSource.DEFAULT),
    )
    assert "internal.segment.bytes" not in found


@pytest.mark.parametrize(
    "name", ["a", "a.b_c-D9", "x" * MAX_TOPIC_NAME_LENGTH, "...", "__consumer_offsets"]
)
def test_a_topic_may_be_called(name: str) -> None:
    assert find_topic_name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * (MAX_TOPIC_NAME_LENGTH + 1), "a b", "a/b", "ä", "a\n", "a\0"]
)
def test_a_topic_may_not_be_called(name: str) -> None:
    assert find_topic_name_problem(name)


def test_dots_and_underscores_are_the_same_to_metrics() -> None:
    assert (
        unify_collision_characters("a.b_c")
        == unify_collision_characters("a_b.c")
        != unify_collision_characters("a-b_c")
    )
