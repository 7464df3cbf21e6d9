"""The two brokers that every test runs against, as processes of their own."""

from __future__ import annotations

import contextlib
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.cluster import PASSWORD, USER, add_scram, certificates, security
from tests.support.kafka import KafkaBroker, free_ports
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

SETTINGS = {
    "group.min.session.timeout.ms": "500",  # else a member that was killed is missed for long
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "200",
}


@dataclass(slots=True)
class Cluster(ABC):
    """A broker, by three ways: plain, with TLS and SASL, and by a proxy that can be cut."""

    name: str
    plain: str
    secure: str
    ca: Path
    front: Proxy
    #: Where the broker behind the proxy keeps its logs.
    data: Path
    is_up: bool = True

    @property
    def cut_off(self) -> str:
        """The address of the proxy."""
        return f"127.0.0.1:{self.front.port}"

    def kill(self) -> None:
        """End the broker behind the proxy without a word."""
        self._kill()
        self.is_up = False

    def start(self) -> None:
        """Start it again, on the same port and what it has written."""
        self._start()
        self.is_up = True

    def heal(self) -> None:
        """It is well again, whatever was done to it."""
        self.front.mend()
        if self.is_up:
            self.go_on()
        else:
            self.start()
        admin = AdminClient({"bootstrap.servers": self.plain, "log_level": 0})
        # a Kafka that stood still has shut itself out, and is let in again after a while
        wait_until("the broker is let in", lambda: admin.list_topics(timeout=60).brokers)

    @abstractmethod
    def _kill(self) -> None: ...

    @abstractmethod
    def _start(self) -> None: ...

    @abstractmethod
    def pause(self) -> None:
        """It stands still, with all its connections open."""

    @abstractmethod
    def go_on(self) -> None:
        """It goes on as if nothing had happened."""


@dataclass(slots=True)
class RotaCluster(Cluster):
    """Rota's broker has one listener, so there are three of them."""

    victim: BrokerProcess = field(kw_only=True)

    def _kill(self) -> None:
        self.victim.kill()

    def _start(self) -> None:
        self.victim.start()
        self.victim.wait_until_ready()

    def pause(self) -> None:
        self.victim.pause()

    def go_on(self) -> None:
        self.victim.go_on()


@dataclass(slots=True)
class KafkaCluster(Cluster):
    """One Kafka 4.3.1 with three listeners."""

    victim: KafkaBroker = field(kw_only=True)

    def _kill(self) -> None:
        self.victim.kill()

    def _start(self) -> None:
        self.victim.restart()

    def pause(self) -> None:
        os.kill(self.victim.java_pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.victim.java_pid, signal.SIGCONT)


@contextlib.contextmanager
def rota_cluster(folder: Path) -> Iterator[Cluster]:
    """Rota's broker."""
    ca, own = certificates(folder)
    front, back = free_ports(2)
    options = {
        "plain": [],
        "secure": [f"--tls-cert={own}", f"--user={USER}:{PASSWORD}"],
        "victim": [f"--advertise=127.0.0.1:{front}"],
    }
    given = [f"--config={key}={value}" for key, value in SETTINGS.items()]
    brokers = {}
    for name, more in options.items():
        (folder / name).mkdir()
        port = back if name == "victim" else free_port()
        brokers[name] = BrokerProcess(folder / name, port, *given, *more)
    try:
        for broker in brokers.values():
            broker.start()
        for broker in brokers.values():
            broker.wait_until_ready()
        with Proxy(front, back) as proxy:
            yield RotaCluster(
                name="rota",
                plain=f"127.0.0.1:{brokers['plain'].port}",
                secure=f"127.0.0.1:{brokers['secure'].port}",
                ca=ca,
                front=proxy,
                data=folder / "victim" / "data",
                victim=brokers["victim"],
            )
    finally:
        for broker in brokers.values():
            broker.end()


@contextlib.contextmanager
def kafka_cluster(folder: Path) -> Iterator[Cluster]:
    """A Kafka 4.3.1."""
    ca, own = certificates(folder)
    plain, secure, back, controller, front = free_ports(5)
    listening = f"PLAINTEXT://127.0.0.1:{plain},SASL_SSL://127.0.0.1:{secure}"
    protocols = "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,FRONT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    broker = KafkaBroker(
        folder,
        {
            **SETTINGS,
            **security(own),
            "listeners": (
                f"{listening},FRONT://127.0.0.1:{back},CONTROLLER://127.0.0.1:{controller}"
            ),
            "advertised.listeners": f"{listening},FRONT://127.0.0.1:{front}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": protocols,
            # Kafka's default: with less a busy machine shuts the broker out in the middle of a test
            "broker.session.timeout.ms": "9000",
            "log.initial.task.delay.ms": "100",  # else retention waits for half a minute
        },
    )
    try:
        add_scram(f"127.0.0.1:{plain}")
        with Proxy(front, back) as proxy:
            yield KafkaCluster(
                name="kafka",
                plain=f"127.0.0.1:{plain}",
                secure=f"127.0.0.1:{secure}",
                ca=ca,
                front=proxy,
                data=folder / "data",
                victim=broker,
            )
    finally:
        broker.stop()
