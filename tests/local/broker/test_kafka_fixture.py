"""The fixtures ``kafka`` and ``kafka_session``, inside and in a suite of a user's own."""

from __future__ import annotations

import pytest

from rota.broker.embedded import Broker
from rota.errors import Refused

pytest_plugins = ["pytester"]


@pytest.mark.parametrize("turn", range(3))
def test_each_test_has_a_broker_of_its_own(kafka: Broker, turn: int) -> None:
    assert kafka.topics == {}
    kafka.produce("t", "x")
    assert len(kafka.read("t")) == 1


@pytest.mark.parametrize("turn", range(3))
def test_the_sessions_broker_is_shared(kafka_session: Broker, turn: int) -> None:
    kafka_session.produce("t", "x")
    assert len(kafka_session.read("t")) == turn + 1


@pytest.mark.kafka(config={"num.partitions": 5})
class TestMarks:
    def test_of_the_class(self, kafka: Broker) -> None:
        kafka.produce("t", "x")
        assert kafka.topics == {"t": 5}

    @pytest.mark.kafka(config={"num.partitions": 2})
    def test_the_nearest_holds(self, kafka: Broker) -> None:
        kafka.produce("t", "x")
        assert kafka.topics == {"t": 2}

    @pytest.mark.kafka(config={"auto.create.topics.enable": False}, users={"ann": "secret"})
    def test_they_add_up(self, kafka: Broker) -> None:
        with pytest.raises(Refused, match="there is no topic"):
            kafka.produce("t", "x")
