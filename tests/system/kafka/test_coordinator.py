"""The same requests to a live Kafka broker and to Rota's coordinator: the same answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from tests.support.coordinator.comparison import CaseResult, compare_cases, format_repeats
from tests.support.coordinator.difference import RULES
from tests.support.coordinator.random_case import random_cases
from tests.support.coordinator.restart import compare_restarts
from tests.support.coordinator.story import STORIES
from tests.support.coordinator.table import compare_table
from tests.support.kafka import KafkaBroker

WALKS = 100
NIGHTLY_WALKS = 2_000


def assert_no_difference(
    verdicts: Mapping[str, CaseResult], record_property: Callable[[str, object], None]
) -> None:
    if repeats := format_repeats(verdicts):
        record_property("repeated", repeats)
    differing = {name: each.difference for name, each in verdicts.items() if each.difference}
    text = "\n\n".join(f"{name}\n{text}" for name, text in list(differing.items())[:10])
    assert not differing, f"{len(differing)} of {len(verdicts)} cases differ:\n{text}"


@pytest.fixture(scope="module")
def verdicts(broker: KafkaBroker) -> dict[str, CaseResult]:
    return compare_table(broker.port) | compare_cases(
        broker.port, {**STORIES, **random_cases(WALKS)}
    )


def test_kafka_answers_and_writes_as_rota_does_but_for_listed_differences(
    verdicts: dict[str, CaseResult], record_property: Callable[[str, object], None]
) -> None:
    assert_no_difference(verdicts, record_property)


def test_every_listed_difference_is_met(verdicts: dict[str, CaseResult]) -> None:
    assert {rule for each in verdicts.values() for rule in each.rules} == set(RULES)


def test_kafka_and_rota_know_the_same_after_a_restart(
    broker: KafkaBroker, record_property: Callable[[str, object], None]
) -> None:
    assert_no_difference(compare_restarts(broker), record_property)


@pytest.mark.nightly
def test_walks_at_length(
    broker: KafkaBroker, record_property: Callable[[str, object], None]
) -> None:
    assert_no_difference(compare_cases(broker.port, random_cases(NIGHTLY_WALKS)), record_property)
