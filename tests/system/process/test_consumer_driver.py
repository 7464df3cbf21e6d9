"""The driver against a broker: its thread, its timers, its connections, and what it survives."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from rota import Broker
from rota.errors import (
    RotaError,
)
from rota.member.event import PollBegan
from rota.model.offset import OffsetAndMetadata
from rota.model.topic import TopicPartition
from tests.support.consumer_driver import Application

QUICK = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}
P0 = TopicPartition("t", 0)
SEVEN, EIGHT = {P0: OffsetAndMetadata(7)}, {P0: OffsetAndMetadata(8)}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=QUICK) as running:
        running.create_topic("t", 4)
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No thread and no socket outlives its driver."""
    before = set(threading.enumerate())
    yield
    left = [one for one in threading.enumerate() if one not in before and "broker" not in one.name]
    assert not left


def application(broker: Broker, **settings: object) -> Application:
    return Application(broker.bootstrap_servers, **settings)  # type: ignore[arg-type]


def test_a_fork_cannot_use_it(broker: Broker) -> None:
    with application(broker) as app:
        app.join()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover, in another process
            try:
                app.driver.tell(PollBegan())
                os.write(writing, b"nothing was raised")
            except RotaError as error:
                os.write(writing, str(error).encode())
            finally:
                app.driver.stop()
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            assert "forked" in pipe.read()
        assert app.commit_and_wait(SEVEN) is None, "the parent goes on"
