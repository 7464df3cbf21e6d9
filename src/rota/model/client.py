"""What an application sets for its connections and for its reading, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rota.errors import InputError
from rota.model.config import INT, LONG, MINUTE, check, choice, number

EARLIEST, LATEST, NONE, BY_DURATION = "earliest", "latest", "none", "by_duration"
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to speak TLS. Certificates and keys are texts in PEM, or the files that have them."""

    authorities: str | None = None
    """Whom to trust (``ssl.truststore.certificates``), in PEM; None: what the machine trusts."""
    authorities_file: str | None = None
    """``ssl.truststore.location``, of type PEM."""
    chain: str | None = None
    """``ssl.keystore.certificate.chain``: who this client is."""
    key: str | None = field(default=None, repr=False)
    """``ssl.keystore.key``."""
    identity_file: str | None = None
    """``ssl.keystore.location``, of type PEM: certificate and key in one file."""
    password: str | None = field(default=None, repr=False)
    """``ssl.key.password``."""
    checks_name: bool = True
    """``ssl.endpoint.identification.algorithm`` is ``https``, not empty."""
    versions: tuple[str, ...] = TLS_VERSIONS
    """``ssl.enabled.protocols``: some of :data:`TLS_VERSIONS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who logs in, and by which mechanism."""

    mechanism: str
    """``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``."""
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What connections need. Times are in milliseconds."""

    bootstrap: tuple[Address, ...] = field(metadata={"key": "bootstrap.servers"})
    client_id: str = field(default="rota", metadata={"key": "client.id"})
    tls: Tls | None = None
    """None: without TLS (``security.protocol``)."""
    login: Login | None = None
    """None: nobody logs in (``security.protocol``, ``sasl.mechanism``, ``sasl.jaas.config``)."""
    request_timeout: int = number("request.timeout.ms", 30_000)
    api_timeout: int = number("default.api.timeout.ms", 60_000)
    retry_backoff: int = number("retry.backoff.ms", 100, most=LONG)
    retry_backoff_max: int = number("retry.backoff.max.ms", 1_000, most=LONG)
    reconnect_backoff: int = number("reconnect.backoff.ms", 50, most=LONG)
    reconnect_backoff_max: int = number("reconnect.backoff.max.ms", 1_000, most=LONG)
    connect_timeout: int = number("socket.connection.setup.timeout.ms", 10_000, most=LONG)
    connect_timeout_max: int = number("socket.connection.setup.timeout.max.ms", 30_000, most=LONG)
    idle_connection: int = number("connections.max.idle.ms", 9 * MINUTE, least=-1, most=LONG)
    metadata_max_age: int = number("metadata.max.age.ms", 5 * MINUTE, most=LONG)
    recovery: str = choice("metadata.recovery.strategy", "rebootstrap", "none")
    """Whether ``bootstrap`` is tried again once no known broker can be reached."""
    recovery_trigger: int = number(
        "metadata.recovery.rebootstrap.trigger.ms", 5 * MINUTE, most=LONG
    )
    """How long no broker gave metadata before ``bootstrap`` is tried again."""
    create_topics: bool = field(default=True, metadata={"key": "allow.auto.create.topics"})
    receive_buffer: int = number("receive.buffer.bytes", -1, least=-1)
    """-1: as the system sees fit, which on Linux grows with need. Kafka has 64 KiB."""
    send_buffer: int = number("send.buffer.bytes", 128 * 1024, least=-1)

    def __post_init__(self) -> None:
        check(self)
        if not self.bootstrap:
            raise InputError("bootstrap.servers: at least one host:port is needed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """How records are fetched and handed out. Times are in milliseconds."""

    rack: str | None = field(default=None, metadata={"key": "client.rack"})
    fetch_min_bytes: int = number("fetch.min.bytes", 1)
    fetch_max_bytes: int = number("fetch.max.bytes", 50 << 20)
    fetch_max_wait: int = number("fetch.max.wait.ms", 500)
    max_partition_bytes: int = number("max.partition.fetch.bytes", 4 << 20)
    max_records: int = number("max.poll.records", 500, least=1, most=INT)
    reset: str = choice("auto.offset.reset", LATEST, EARLIEST, NONE, BY_DURATION)
    reset_duration: int = number(None, 0, most=LONG)
    """How long before now reading starts where ``reset`` is ``by_duration`` (KIP-1106)."""
    isolation: str = choice("isolation.level", "read_uncommitted", "read_committed")
    check_crcs: bool = field(default=True, metadata={"key": "check.crcs"})

    def __post_init__(self) -> None:
        check(self)

    @property
    def committed_only(self) -> bool:
        """Records of transactions count only once these are committed."""
        return self.isolation == "read_committed"
