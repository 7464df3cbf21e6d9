"""The client against a real Kafka: all ways in, leaders, coordinators, a broker that is killed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from rota.client.connection import BrokerConnection
from rota.engine.model.config import SaslConfig, TlsConfig
from rota.engine.model.topic import TopicPartition
from rota.errors import AuthenticationFailed, Code, NotKafka, Unreachable, Untrusted
from rota.protocol.codec import supported_versions
from rota.protocol.messages import (
    Api,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    MetadataRequest,
)
from tests.support.client import client, config, new_deadline, parse_address, run
from tests.support.kafka import KafkaBroker, free_ports

LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "CONTROLLER": "PLAINTEXT",
    "LOGIN": "SASL_PLAINTEXT",
    "SHORT": "SASL_PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "BOTH": "SASL_SSL",
}
SECURITY = "org.apache.kafka.common.security"
JAAS = {
    "plain": f'{SECURITY}.plain.PlainLoginModule required user_alice="secret";',
    "scram-sha-256": f"{SECURITY}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{SECURITY}.scram.ScramLoginModule required;",
}
#: Milliseconds after which the listener SHORT wants a new login.
SESSION = 1500
MECHANISMS = pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])


class SecuredKafka:
    """A broker with a listener for each way in."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        self.at = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        listed = [f"{name}://{at}" for name, at in self.at.items()]
        settings = {
            "listeners": ",".join(listed),
            "advertised.listeners": ",".join(each for each in listed if "CONTROLLER" not in each),
            "listener.security.protocol.map": ",".join(map(":".join, LISTENERS.items())),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.voters": f"1@{self.at['CONTROLLER']}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.short.plain.connections.max.reauth.ms": str(SESSION),
            "listener.name.mutual.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": str(folder / "broker.pem"),
            "ssl.truststore.location": str(folder / "trusted.pem"),
            "group.initial.rebalance.delay.ms": "0",
        }
        for listener in ("login", "short", "both"):
            for mechanism, line in JAAS.items():
                settings[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = line
        own = self.authority.issue_cert("127.0.0.1")
        key = serialization.load_pem_private_key(own.private_key_pem.bytes(), None)
        pkcs8 = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        chain = b"".join(each.bytes() for each in own.cert_chain_pems)
        (folder / "broker.pem").write_bytes(pkcs8 + chain)
        self.authority.cert_pem.write_to_path(folder / "trusted.pem")
        self.broker = KafkaBroker(folder, settings)

    @property
    def tls(self) -> TlsConfig:
        return TlsConfig(truststore_certificates=self.authority.cert_pem.bytes().decode())

    def add_user(self, name: str, password: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.at["PLAINTEXT"]})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            kind = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion(name, kind, password.encode(), b"salt" * 5)
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(30)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    running = SecuredKafka(tmp_path_factory.mktemp("secured"))
    try:
        running.add_user("alice", "secret")
        yield running
    finally:
        running.broker.stop()


def sasl_config(mechanism: str, password: str = "secret") -> SaslConfig:
    return SaslConfig(mechanism=mechanism, username="alice", password=password)


async def advertised_address(at: str, **fields: Any) -> str:
    """The address that the broker gives to who came in there."""
    async with client(at, **fields) as one:
        known = await one.refresh([], deadline=new_deadline(30))
        await one.send(Api.METADATA, MetadataRequest(), node=1, deadline=new_deadline(30))
        return str(known.brokers[1].address)


async def connect_error(kind: type[Exception], at: str, seconds: float = 30, **fields: Any) -> str:
    async with client(at, **fields) as one:
        with pytest.raises(kind) as caught:
            await one.refresh([], deadline=new_deadline(seconds))
    assert at in str(caught.value)
    return str(caught.value)


# Ways in


def test_without_anything(kafka: SecuredKafka) -> None:
    assert run(advertised_address(kafka.at["PLAINTEXT"])) == kafka.at["PLAINTEXT"]


def test_every_version_is_agreed_on(kafka: SecuredKafka) -> None:
    async def main() -> None:
        at = kafka.at["PLAINTEXT"]
        connection = await BrokerConnection.open(parse_address(at), config(at), new_deadline(30))
        for api in Api:
            assert connection.version(api) == min(
                supported_versions(api).high, connection.versions[api].high
            )
        await connection.close_and_wait()

    run(main())


@MECHANISMS
def test_a_user_logs_in(kafka: SecuredKafka, mechanism: str) -> None:
    assert (
        run(advertised_address(kafka.at["LOGIN"], sasl=sasl_config(mechanism))) == kafka.at["LOGIN"]
    )
    both = run(advertised_address(kafka.at["BOTH"], sasl=sasl_config(mechanism), tls=kafka.tls))
    assert both == kafka.at["BOTH"]


@MECHANISMS
def test_a_wrong_password(kafka: SecuredKafka, mechanism: str) -> None:
    wrong = sasl_config(mechanism, "wrong")
    message = run(connect_error(AuthenticationFailed, kafka.at["LOGIN"], sasl=wrong))
    assert f"user 'alice' is refused by {mechanism}: " in message
    assert "Authentication failed" in message


def test_a_mechanism_that_it_has_not(kafka: SecuredKafka) -> None:
    odd = SaslConfig(mechanism="SCRAM-SHA-1", username="alice", password="secret")
    message = run(connect_error(AuthenticationFailed, kafka.at["LOGIN"], sasl=odd))
    assert "SCRAM-SHA-1 is not enabled there; enabled: " in message
    assert "SCRAM-SHA-512" in message


def test_a_login_where_none_is_wanted_and_none_where_one_is(kafka: SecuredKafka) -> None:
    message = run(
        connect_error(AuthenticationFailed, kafka.at["PLAINTEXT"], sasl=sasl_config("PLAIN"))
    )
    assert "the port has no login" in message
    message = run(connect_error(Unreachable, kafka.at["LOGIN"], 1))
    assert "it may require a login" in message


def test_by_tls(kafka: SecuredKafka) -> None:
    assert run(advertised_address(kafka.at["TLS"], tls=kafka.tls)) == kafka.at["TLS"]
    message = run(connect_error(Untrusted, kafka.at["TLS"], tls=TlsConfig()))
    assert "signed by an issuer that is not trusted here" in message


def test_by_a_clients_certificate(kafka: SecuredKafka, tmp_path: Path) -> None:
    at = kafka.at["MUTUAL"]
    own = kafka.authority.issue_cert("client@example.org")
    own.private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    trusted = kafka.tls.truststore_certificates
    known = TlsConfig(truststore_certificates=trusted, keystore_location=str(tmp_path / "own.pem"))
    assert run(advertised_address(at, tls=known)) == at
    message = run(connect_error(Untrusted, at, tls=kafka.tls))
    assert "client's certificate" in message
    stranger = trustme.CA().issue_cert("client@example.org")
    chain = stranger.cert_chain_pems[0].bytes().decode()
    key = stranger.private_key_pem.bytes().decode()
    message = run(
        connect_error(
            Untrusted,
            at,
            tls=TlsConfig(
                truststore_certificates=trusted, keystore_certificate_chain=chain, keystore_key=key
            ),
        )
    )
    assert "certificate" in message


def test_tls_and_plain_mixed_up(kafka: SecuredKafka) -> None:
    assert "TLS" in run(connect_error(NotKafka, kafka.at["TLS"], 1))
    assert "port without TLS" in run(
        connect_error(Unreachable, kafka.at["PLAINTEXT"], 1, tls=kafka.tls)
    )


def test_a_session_that_ends_is_followed_by_a_new_one(kafka: SecuredKafka) -> None:
    async def main() -> None:
        async with client(kafka.at["SHORT"], sasl=sasl_config("PLAIN")) as one:
            await one.refresh([], deadline=new_deadline(30))
            first = await one.connect(1, deadline=new_deadline(30))
            end = new_deadline(2.5 * SESSION / 1000)
            while asyncio.get_running_loop().time() < end:
                await one.send(Api.METADATA, MetadataRequest(), node=1, deadline=new_deadline(30))
                await asyncio.sleep(0.01)
            assert first.closed.done()

    run(main())


# Topics and groups


def test_topics_come_and_go(kafka: SecuredKafka) -> None:
    async def main() -> None:
        async with client(kafka.at["PLAINTEXT"]) as one:
            tp = TopicPartition("client-orders", 2)
            assert (await one.refresh(["client-orders"], deadline=new_deadline(30))).topics[
                "client-orders"
            ].error == Code.UNKNOWN_TOPIC_OR_PARTITION
            topic = CreateTopicsRequest.CreatableTopic(
                name=tp.topic, num_partitions=3, replication_factor=1
            )
            create = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
            await one.send(Api.CREATE_TOPICS, create, deadline=new_deadline(30))
            assert await one.find_leader(tp, new_deadline(30)) == 1
            first = one.metadata.topics[tp.topic]
            name = DeleteTopicsRequest.DeleteTopicState(name=tp.topic)
            delete = DeleteTopicsRequest(topics=[name], topic_names=[tp.topic], timeout_ms=30_000)
            await one.send(Api.DELETE_TOPICS, delete, deadline=new_deadline(30))
            async with asyncio.timeout(30):
                while (
                    not (await one.refresh([tp.topic], deadline=new_deadline(30)))
                    .topics[tp.topic]
                    .error
                ):
                    await asyncio.sleep(0.05)
            await one.send(Api.CREATE_TOPICS, create, deadline=new_deadline(30))
            assert await one.find_leader(tp, new_deadline(30)) == 1
            assert one.metadata.topics[tp.topic].id != first.id
            everything = await one.refresh(None, deadline=new_deadline(30))
            assert tp.topic in everything.cluster().partitions

    run(main())


def test_a_coordinator_is_found_and_asked(kafka: SecuredKafka) -> None:
    async def main() -> None:
        async with client(
            kafka.at["BOTH"], sasl=sasl_config("SCRAM-SHA-512"), tls=kafka.tls
        ) as one:
            described = await one.send_to_coordinator(
                "readers",
                Api.DESCRIBE_GROUPS,
                DescribeGroupsRequest(groups=["readers"]),
                new_deadline(60),
            )
            assert described.groups[0].error_code == Code.GROUP_ID_NOT_FOUND
            coordinator = await one.find_coordinator("readers", new_deadline(30))
            assert str(coordinator.node.address) == kafka.at["BOTH"]
            heartbeat = HeartbeatRequest(group_id="readers", generation_id=1, member_id="nobody")
            connection = await coordinator.endpoint.connect(new_deadline(30))
            answer = await one.send_over(connection, Api.HEARTBEAT, heartbeat, new_deadline(30))
            assert answer.error_code == Code.UNKNOWN_MEMBER_ID

    run(main())


# The last test: the broker is killed in it


def test_a_broker_that_is_killed_and_comes_back(kafka: SecuredKafka) -> None:
    async def main() -> None:
        async with client(kafka.at["PLAINTEXT"], api_timeout=120_000) as one:
            await one.refresh([], deadline=new_deadline(30))
            restart = threading.Thread(target=kafka.broker.restart)
            restart.start()
            try:
                failed: list[str] = []
                while restart.is_alive():
                    try:
                        await one.send(
                            Api.METADATA, MetadataRequest(), node=1, deadline=new_deadline(5)
                        )
                    except Unreachable as error:
                        failed.append(str(error))
                assert failed, "it was not gone at all"
                assert all(kafka.at["PLAINTEXT"] in each for each in failed)
            finally:
                restart.join()
            await one.send(Api.METADATA, MetadataRequest(), node=1, deadline=new_deadline(30))
            described = await one.send_to_coordinator(
                "readers",
                Api.DESCRIBE_GROUPS,
                DescribeGroupsRequest(groups=["readers"]),
                new_deadline(60),
            )
            assert described.groups[0].error_code == Code.GROUP_ID_NOT_FOUND

    run(main())
