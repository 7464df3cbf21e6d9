"""A real broker for the tests of this folder: started once, ended with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rota.engine.model.config import GroupConfig, field_keys
from tests.support.coordinator.connection import Connection, await_coordinator, create_topics
from tests.support.coordinator.scripted_member import CONFIG, TOPICS
from tests.support.kafka import KafkaBroker

SET = {"min_session_timeout", "max_session_timeout", "initial_rebalance_delay", "max_size"}


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    settings = {
        key.name: str(getattr(CONFIG, key.field))
        for key in field_keys(GroupConfig)
        if key.field is not None and key.field in SET
    }
    running = KafkaBroker(tmp_path_factory.mktemp("kafka"), settings)
    try:
        with Connection(running.port) as admin:
            create_topics(admin, TOPICS)
            await_coordinator(admin)
        yield running
    finally:
        running.stop()
