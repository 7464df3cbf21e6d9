"""The same requests to a live Kafka broker and to Rota's coordinator: the same answers."""

from __future__ import annotations

import pytest

from tests.java.broker import Broker
from tests.kafka.coordinator.difference import RULES
from tests.kafka.coordinator.play import Verdict, judge
from tests.kafka.coordinator.story import STORIES
from tests.kafka.coordinator.table import judge_table


@pytest.fixture(scope="module")
def verdicts(broker: Broker) -> dict[str, Verdict]:
    return judge_table(broker.port) | judge(broker.port, STORIES)


def test_kafka_answers_as_rota_does_but_for_the_listed_differences(
    verdicts: dict[str, Verdict],
) -> None:
    differing = {name: each.difference for name, each in verdicts.items() if each.difference}
    told = "\n\n".join(f"{name}\n{text}" for name, text in list(differing.items())[:10])
    assert not differing, f"{len(differing)} of {len(verdicts)} cases differ:\n{told}"


def test_every_listed_difference_is_met(verdicts: dict[str, Verdict]) -> None:
    met = {rule for each in verdicts.values() for rule in each.rules}
    assert met == set(RULES)
