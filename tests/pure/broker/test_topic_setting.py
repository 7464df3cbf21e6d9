"""A topic's settings as text, and what a topic may be called."""

from __future__ import annotations

import pytest

from rota.broker.effective import Source, Synonym, of_topic
from rota.errors import InputError
from rota.model.config import TopicConfig
from rota.model.naming import LONGEST, misname, unified
from rota.model.setting import SETTINGS, Kind, topic_config, written

PLAIN = TopicConfig()


def test_every_default_is_a_value_of_its_own_setting() -> None:
    for setting in SETTINGS.values():
        if not setting.hidden:
            assert setting.parse(written(setting.default)) == setting.default
    assert topic_config({}, PLAIN) == PLAIN


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
    assert getattr(topic_config({key: text}, PLAIN), field) == value


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
        topic_config({key: text}, PLAIN)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InputError, match="min.compaction.lag.ms: 10 is more than"):
        topic_config({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, PLAIN)


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
    assert topic_config({key: text}, PLAIN) == PLAIN


def test_a_setting_says_where_it_comes_from() -> None:
    broker = TopicConfig(retention=60_000, max_message_bytes=2_000)
    found = {each.key: each for each in of_topic({"retention.ms": "+5"}, broker)}
    assert found["retention.ms"].value == "5"
    assert found["retention.ms"].source is Source.TOPIC
    assert found["retention.ms"].synonyms == (
        Synonym("retention.ms", "5", Source.TOPIC),
        Synonym("log.retention.ms", "60000", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )
    assert found["max.message.bytes"].source is Source.STATIC_BROKER
    assert found["max.message.bytes"].value == "2000"
    assert found["segment.ms"].source is Source.DEFAULT
    assert found["segment.ms"].synonyms == ()
    assert found["cleanup.policy"].kind is Kind.LIST
    assert found["cleanup.policy"].synonyms == (
        Synonym("log.cleanup.policy", "delete", Source.DEFAULT),
    )
    assert "internal.segment.bytes" not in found


@pytest.mark.parametrize("name", ["a", "a.b_c-D9", "x" * LONGEST, "...", "__consumer_offsets"])
def test_a_topic_may_be_called(name: str) -> None:
    assert misname(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * (LONGEST + 1), "a b", "a/b", "ä", "a\n", "a\0"]
)
def test_a_topic_may_not_be_called(name: str) -> None:
    assert misname(name)


def test_dots_and_underscores_are_the_same_to_metrics() -> None:
    assert unified("a.b_c") == unified("a_b.c") != unified("a-b_c")
