"""What a case of the matrix works with: a client, another one, the broker."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.clients.driver_process import Driver, DriverAt
from tests.support.clients.registry import CLIENTS, CONFLUENT, KAFKA_PYTHON, Client
from tests.support.cluster import Cluster
from tests.support.waiting import wait_until

_numbers = itertools.count(1)


@dataclass(slots=True)
class Drivers:
    """The broker and the drivers that were started; one driver for each client."""

    cluster: Cluster
    _drivers: dict[str, Driver] = field(default_factory=dict)
    _locks: dict[str, threading.Lock] = field(
        default_factory=lambda: {client.name: threading.Lock() for client in CLIENTS}
    )

    def driver(self, client: Client) -> Driver:
        """The client's driver, started where it is not there yet."""
        with self._locks[client.name]:
            if client.name not in self._drivers:
                self._drivers[client.name] = client.start()
            return self._drivers[client.name]

    def link(
        self,
        client: Client,
        servers: str | None = None,
        security: Mapping[str, str] | None = None,
    ) -> DriverAt:
        """The client at an address, by default the one without security."""
        return DriverAt(self.driver(client), servers or self.cluster.plain, security)

    def close(self) -> None:
        """End all drivers."""
        for driver in self._drivers.values():
            driver.kill()


@dataclass(frozen=True, slots=True)
class ClientCase:
    """One client's turn."""

    stage: Drivers
    client: Client

    @property
    def own(self) -> DriverAt:
        """The client whose turn it is."""
        return self.stage.link(self.client)

    @property
    def other(self) -> DriverAt:
        """A client of another kind."""
        other = KAFKA_PYTHON if "confluent" in self.client.name else CONFLUENT
        return self.stage.link(other)

    @property
    def steady(self) -> DriverAt:
        """The client that sets things up and looks at them, whoever's turn it is."""
        return self.stage.link(CONFLUENT)

    def secured(self, servers: str, security: Mapping[str, str]) -> DriverAt:
        """The client at an address with security."""
        return self.stage.link(self.client, servers, security)

    def topic(self, partitions: int, **configs: str) -> str:
        """A topic of its own."""
        made = unique_name("t")
        self.steady.ask("create_topic", topic=made, partitions=partitions, configs=configs)
        # a Kafka's broker hears of it a moment later than its controller says yes. The list of all:
        # librdkafka asks a second time for one that it is asked for, which makes it if it is gone
        wait_until("it is known", lambda: made in self.steady.ask("topics"))
        return made


def unique_name(kind: str) -> str:
    """A name that nothing has yet."""
    return f"{kind}-{next(_numbers)}"


def plain_record(number: int, partition: int | None = None) -> dict[str, Any]:
    """A record that tells its number."""
    return {
        "key": None,
        "value": str(number),
        "headers": [],
        "partition": partition,
        "timestamp": None,
    }
