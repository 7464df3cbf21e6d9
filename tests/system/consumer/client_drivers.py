"""The clients whose members make up a group, and what they tell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.support.clients.driver_process import Driver, News
from tests.support.clients.registry import java_driver, python_driver


@dataclass(frozen=True, slots=True, eq=False)
class ConsumerKind:
    """A client library, and which of its consumers."""

    name: str
    start: Callable[[News], Driver]
    options: dict[str, Any] = field(default_factory=dict)
    #: It hands out what a fetch brought twice now and then, in the middle of its ownership.
    repeats: bool = False

    def __str__(self) -> str:
        return self.name


def _python(module: str, news: News) -> Driver:
    return python_driver(f"tests.system.consumer.driver.{module}", news)


def _rota(news: News) -> Driver:
    return python_driver("tests.system.consumer.driver.rota", news, closes=True)


BLOCKING = ConsumerKind("rota.Consumer", _rota, {"blocking": True})
ASYNC = ConsumerKind("rota.AsyncConsumer", _rota, {"blocking": False})
KAFKA_PYTHON = ConsumerKind("kafka-python", partial(_python, "kafka_python"), repeats=True)
CONFLUENT = ConsumerKind("confluent-kafka", partial(_python, "confluent"))
JAVA = ConsumerKind("Java", partial(java_driver, "4.3"))


class ClientDrivers:
    """The drivers that were started, one for each library but for those of members that are killed,
    and who listens to which member.
    """

    def __init__(self) -> None:
        self._drivers: dict[Callable[[News], Driver], Driver] = {}
        self._lock = threading.Lock()
        self._listeners: dict[str, News] = {}

    def driver(self, kind: ConsumerKind) -> Driver:
        """The library's driver, started where it is not there yet."""
        with self._lock:
            if kind.start not in self._drivers:
                self._drivers[kind.start] = kind.start(self._hear)
            return self._drivers[kind.start]

    def start_one(self, kind: ConsumerKind) -> Driver:
        """A driver for one member; the caller must end it."""
        return kind.start(self._hear)

    def listen(self, member: str, news: News) -> None:
        """Have the news of a member told."""
        self._listeners[member] = news

    def _hear(self, line: dict[str, Any]) -> None:
        self._listeners[line["member"]](line)

    def close(self) -> None:
        """End all drivers."""
        for driver in self._drivers.values():
            driver.kill()
