"""One broker and one Spark for all of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.clients.driver_process import Driver
from tests.support.kafka import KafkaBroker
from tests.system.spark.comparison.environment import start_worker
from tests.system.spark.comparison.source_pair import SourcePair
from tests.system.spark.comparison.topics import SETTINGS, KafkaTopics, create_all_topics


@pytest.fixture(scope="package")
def driver() -> Iterator[Driver]:
    """A process with both sources."""
    started = start_worker()
    yield started
    started.kill()


@pytest.fixture(scope="package")
def kafka_topics(tmp_path_factory: pytest.TempPathFactory, driver: Driver) -> Iterator[KafkaTopics]:
    """A broker with all topics that tests only read; it is filled while Spark starts."""
    folder = tmp_path_factory.mktemp("comparison-broker")
    running = KafkaBroker(folder, SETTINGS)
    opened = KafkaTopics(running, folder)
    create_all_topics(opened)
    yield opened
    running.stop()


@pytest.fixture(scope="package")
def source_pair(
    kafka_topics: KafkaTopics, driver: Driver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SourcePair]:
    """Both sources, which run the same queries."""
    asked = SourcePair(driver, kafka_topics.servers, tmp_path_factory.mktemp("checkpoints"))
    yield asked
    asked.close()


@pytest.fixture(autouse=True)
def format_repeats(request: pytest.FixtureRequest) -> Iterator[None]:
    """Say at the end of the run what a test had to ask again."""
    asked: SourcePair | None = None
    if "source_pair" in request.fixturenames:
        asked = request.getfixturevalue("source_pair")
        asked.repeated.clear()
    yield
    if asked is not None and asked.repeated:
        request.node.user_properties.append(("repeated", "; ".join(asked.repeated)))
