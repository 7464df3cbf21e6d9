"""The driver of a consumer in a process that forks."""

from __future__ import annotations

import os

from rota.engine.member.events import PollBegan
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import RotaError
from tests.support.consumer_driver import Application, no_thread_left, quick_broker
from tests.support.process import wait_for_child

SEVEN = {TopicPartition("t", 0): OffsetAndMetadata(7)}


def test_a_fork_cannot_use_it() -> None:
    with no_thread_left(), quick_broker() as broker, Application(broker.bootstrap_servers) as app:
        app.join()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover, in another process
            try:
                app.driver.handle_event(PollBegan())
                os.write(writing, b"nothing was raised")
            except RotaError as error:
                os.write(writing, str(error).encode())
            finally:
                app.driver.stop()
                os._exit(0)
        assert wait_for_child(child) == 0
        os.close(writing)
        with os.fdopen(reading) as pipe:
            assert "forked" in pipe.read()
        assert app.commit_and_wait(SEVEN) is None, "the parent goes on"
