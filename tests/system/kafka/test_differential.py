"""One script of requests, asked of Rota's broker and of a real Kafka 4.3.1; answers compared.

Every API and version that Rota offers, good and bad arguments, and sequences. Every field of every
answer is compared but for what must differ, ids and times; where Rota means to differ is a list.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rota
from rota.broker.startup import all_handlers
from tests.support.differential_side import Side, StepResult
from tests.support.kafka import KafkaBroker
from tests.support.paths import ROOT
from tests.system.kafka.differential import admin, data, group
from tests.system.kafka.differential.difference import DIFFERENCES, find_difference
from tests.system.kafka.differential.mask import differences, mask_answer

SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
SECTIONS = {**admin.SECTIONS, **data.SECTIONS, **group.SECTIONS}
TEXT = ROOT / "docs" / "differences.md"


@pytest.fixture(scope="module")
def kafka_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    broker = KafkaBroker(tmp_path_factory.mktemp("differential"), SETTINGS)
    try:
        yield Side("kafka", broker.port, mask_answer)
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def rota_side() -> Iterator[Side]:
    with rota.Broker(config=SETTINGS) as broker:
        yield Side("rota", int(broker.bootstrap_servers.rpartition(":")[2]), mask_answer)


@pytest.fixture(scope="module")
def seen_differences() -> set[str]:
    """Which expected differences have shown, for the last test."""
    return set()


def run_section(side: Side, section: str) -> list[StepResult]:
    before = len(side.answers)
    with side.section(section):
        SECTIONS[section](side)
    return side.answers[before:]


@pytest.mark.parametrize("section", SECTIONS)
def test_both_answer_alike(
    rota_side: Side, kafka_side: Side, section: str, seen_differences: set[str]
) -> None:
    unexpected: list[str] = []
    mine, theirs = run_section(rota_side, section), run_section(kafka_side, section)
    assert [each.label for each in mine] == [each.label for each in theirs]
    for one, other in zip(mine, theirs, strict=True):
        for path, rota_has, kafka_has in differences(one.outcome, other.outcome):
            name = find_difference(one.label, path, rota_has, kafka_has)
            if name is None:
                where = f"{one.label} :: {path}"
                unexpected.append(f"{where}\n  Rota:  {rota_has}\n  Kafka: {kafka_has}")
            else:
                seen_differences.add(name)
    assert not unexpected, f"{len(unexpected)} differences\n" + "\n".join(unexpected)


def test_every_expected_difference_shows(rota_side: Side, seen_differences: set[str]) -> None:
    if not rota_side.answers:
        pytest.skip("the script was not played")
    assert seen_differences == {each.name for each in DIFFERENCES}


def test_every_expected_difference_is_explained() -> None:
    text = " ".join(TEXT.read_text().split())
    for name in {each.name for each in DIFFERENCES}:
        assert f"**{name}**" in text, name


def test_every_api_in_every_version_is_asked(rota_side: Side) -> None:
    if not rota_side.answers:
        pytest.skip("the script was not played")
    asked = {each.label.split(" | ")[1] for each in rota_side.answers}
    for handler in all_handlers().values():
        name = "".join(word.capitalize() for word in handler.api.name.split("_"))
        for version in range(handler.min_version, handler.max_version + 1):
            assert f"{name} v{version}" in asked
