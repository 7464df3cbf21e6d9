"""A real broker for the tests of this folder: started once, ended with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import pytest

from rota.engine.model.config import GroupConfig
from tests.support.coordinator.actor import CONFIG, TOPICS
from tests.support.coordinator.connection import Connection, await_coordinator, create_topics
from tests.support.kafka import KafkaBroker

SET = {"min_session_timeout", "max_session_timeout", "initial_rebalance_delay", "max_size"}


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    keys = {each.metadata["key"]: each.name for each in fields(GroupConfig) if each.name in SET}
    settings = {key: str(getattr(CONFIG, name)) for key, name in keys.items()}
    running = KafkaBroker(tmp_path_factory.mktemp("kafka"), settings)
    try:
        with Connection(running.port) as admin:
            create_topics(admin, TOPICS)
            await_coordinator(admin)
        yield running
    finally:
        running.stop()
