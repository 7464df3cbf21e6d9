"""``rota.Consumer`` in a process that forks, or that ends without closing it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

import rota
from rota.broker.embedded import Broker
from rota.engine.model.topic import TopicPartition
from rota.errors import RotaError
from tests.support.process import run_command, wait_for_child
from tests.support.waiting import wait_until

T0 = TopicPartition("t", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with rota.Broker(config={"group.min.session.timeout.ms": 100}) as one:
        one.create_topic("t", 2)
        yield one


def test_a_fork_leaves_the_consumer_of_its_parent_alone(broker: Broker) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
    with rota.Consumer({**settings, "group.id": "g"}) as consumer:
        consumer.assign([T0])
        consumer.poll(0.1)
        child = os.fork()
        if not child:  # what a child does at its end
            try:
                consumer.poll(0)
            except RotaError:
                consumer.close()
                os._exit(0)
            os._exit(1)
        assert wait_for_child(child) == 0
        broker.produce("t", "still there", partition=0)
        found: list[bytes] = []
        wait_until(
            "a record",
            lambda: bool(found),
            meanwhile=lambda: found.extend(record.value for record in consumer.poll(0.5)),
        )
        assert found == [b"still there"]


FORGETFUL = """
import gc, sys, threading, time
import rota

def forget():
    consumer = rota.Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g"})
    consumer.subscribe("t")
    while not consumer.assignment:
        consumer.poll(0.1)
    print(consumer)

forget()
gc.collect()
end = time.monotonic() + 30
while any(thread.name == "rota-g" for thread in threading.enumerate()):
    assert time.monotonic() < end
    time.sleep(0.02)
"""


def test_a_forgotten_consumer_is_told_of_and_leaves_no_thread(broker: Broker) -> None:
    """In a process of its own, for its sockets are left to the collector, too."""
    command = (sys.executable, "-W", "always", "-c", FORGETFUL, broker.bootstrap_servers)
    done = run_command(*command).checked()
    assert done.out == "<rota.Consumer of group 'g', 2 partitions>\n"
    assert "ResourceWarning: unclosed consumer of group 'g', 2 partitions" in done.err
    assert "of group 'g', 2 partitions was not closed: it commits no more" in done.err
    assert "Traceback" not in done.err
