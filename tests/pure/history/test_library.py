"""Which client library a member runs."""

from __future__ import annotations

import pytest

from rota.engine.formats import consumer_protocol
from rota.engine.history.client_settings import LibrarySigns, detect_library
from rota.engine.model.topic import Partitions

OWNED = consumer_protocol.encode_sticky_user_data(Partitions.of({"t": [0, 1]}), 3)


@pytest.mark.parametrize(
    ("client_id", "found"),
    [
        ("rdkafka", "librdkafka"),
        ("kafka-python-3.0.12", "kafka-python"),
        ("aiokafka-0.14.0", "aiokafka"),
        ("sarama", "sarama"),
        ("kgo", "franz-go"),
        ("kafkajs", "kafkajs"),
        ("ruby-kafka", "ruby-kafka"),
        ("main@host (github.com/segmentio/kafka-go)", "kafka-go"),
        ("app-2f6b-StreamThread-3-consumer", "kafka-streams"),
        ("connector-consumer-sink-0", "java"),
        ("consumer-pay-ments-12", "java"),
        ("consumer-pay-ments-pod-7", "java"),
        ("consumer-other-12", None),
        ("consumer-pay-ments-x", None),
        ("my-rdkafka", None),
        ("orders-service", None),
        ("", None),
    ],
)
def test_libraries_name_themselves(client_id: str, found: str | None) -> None:
    signs = LibrarySigns(group="pay-ments", client_id=client_id, group_instance_id="pod-7")

    assert detect_library(signs) == found


@pytest.mark.parametrize(
    ("strategy", "version", "user_data", "found"),
    [
        ("RoundRobinAssigner", 1, b"", "kafkajs"),
        ("roundrobin_v2", 0, b"", "brod"),
        ("stream", 1, b"\x00", "kafka-streams"),
        ("range", 3, b"", "librdkafka"),
        ("range", 1, b"", "librdkafka"),
        ("cooperative-sticky", 3, b"", "librdkafka"),
        ("cooperative-sticky", 1, b"", None),  # kafka-python's looks the same
        ("cooperative-sticky", 3, b"\x00\x00\x00\x05", "java"),
        ("cooperative-sticky", 2, b"\x00\x00\x00\x05", None),  # sarama's looks the same
        ("range", 0, b"", None),  # both Python libraries', and old ones
        ("range", 3, None, None),  # Java's and franz-go's
        ("sticky", 0, b"\x00\x01" + OWNED, "kafka-python"),
        ("sticky", 3, OWNED, None),
        ("sticky", 3, b"\xff\xff", None),
        ("my-own", 3, b"", None),
    ],
)
def test_bytes_give_libraries_away(
    strategy: str, version: int, user_data: bytes | None, found: str | None
) -> None:
    signs = LibrarySigns(
        group="g", client_id="app", strategy=strategy, version=version, user_data=user_data
    )

    assert detect_library(signs) == found
