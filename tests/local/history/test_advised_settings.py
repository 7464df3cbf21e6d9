"""Clients take the settings that an advice names, as they stand there."""

# mypy: disable-error-code="no-untyped-call"
# (the libraries have no types)
from __future__ import annotations

import asyncio
import inspect
import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

import rota
from rota.engine.history import client_settings
from rota.engine.history.client_settings import (
    AIOKAFKA_SESSION_TIMEOUT,
    CLIENT_LIBRARIES,
    ClientLibrary,
)
from rota.errors import RotaError

pytest.importorskip("confluent_kafka")
pytest.importorskip("kafka")
pytest.importorskip("aiokafka")

#: Longer than a poll may take if nobody says otherwise.
ELEVEN_MINUTES = 660_000
CLASSIC = ("range", "roundrobin", "sticky", "cooperative-sticky")


def parse_settings(*settings: str | None) -> dict[str, str]:
    """Lines ``a=1`` as a client is given them, and ID filled in."""
    lines = [line for text in settings if text for line in text.splitlines()]
    found = dict(line.split("=", 1) for line in lines)
    return {name: value.replace("ID", "pod-0") for name, value in found.items()}


def strategy_classes(setting: str) -> list[Any]:
    """The classes that ``partition_assignment_strategy=[...]`` lists."""
    return [pkgutil.resolve_name(path) for path in setting[:-1].partition("=[")[2].split(", ")]


def member_settings(one: ClientLibrary) -> dict[str, str]:
    return parse_settings(one.static_id_setting(), one.session_setting(ELEVEN_MINUTES))


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with rota.Broker() as broker:
        yield broker.bootstrap_servers


def create_confluent_consumer(settings: dict[str, str]) -> None:
    from confluent_kafka import Consumer

    Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", **settings}).close()


@pytest.mark.parametrize("strategy", CLASSIC)
def test_librdkafka_takes_the_strategies_that_it_has(strategy: str) -> None:
    from confluent_kafka import KafkaException

    one = CLIENT_LIBRARIES[client_settings.LIBRDKAFKA]
    if strategy in one.strategies:
        create_confluent_consumer(parse_settings(one.strategy_setting(strategy)))
    else:
        with pytest.raises(KafkaException, match="Unsupported partition.assignment.strategy"):
            create_confluent_consumer(parse_settings(one.strategy_setting(strategy)))


def test_librdkafka_takes_the_others() -> None:
    from confluent_kafka import KafkaException

    one = CLIENT_LIBRARIES[client_settings.LIBRDKAFKA]
    create_confluent_consumer(parse_settings(one.strategy_setting("roundrobin", "range")))
    create_confluent_consumer(member_settings(one))
    for strategy in ("uniform", "range"):
        setting = one.consumer_protocol_setting(strategy)
        assert setting is not None
        create_confluent_consumer(parse_settings(setting, one.static_id_setting()))
        back = one.classic_protocol_setting(
            strategy.replace("uniform", "roundrobin"), ELEVEN_MINUTES
        )
        create_confluent_consumer(parse_settings(back, one.static_id_setting()))
    assert not one.allows_mixed_list
    with pytest.raises(KafkaException, match="must have the same protocol type"):
        create_confluent_consumer(
            parse_settings(one.strategy_setting("cooperative-sticky", "range"))
        )


@pytest.mark.parametrize("name", [client_settings.KAFKA_PYTHON, client_settings.AIOKAFKA])
def test_classes_of_python_are_where_they_are_said_to_be(name: str) -> None:
    one = CLIENT_LIBRARIES[name]
    for strategy in one.strategies:
        (found,) = strategy_classes(one.strategy_setting(strategy))
        assert found.name == strategy
        assert found.__module__.startswith(name.replace("kafka-python", "kafka") + ".")


def test_kafka_python_takes_them(servers: str) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaConfigurationError
    from kafka.net.compat import KafkaNetClient

    one = CLIENT_LIBRARIES[client_settings.KAFKA_PYTHON]
    given = member_settings(one)
    assert list(given) == ["group_instance_id", "session_timeout_ms"]

    def made(*strategies: str) -> None:
        # A consumer that refuses its settings leaves its client running. That one would look for
        # the broker in later tests, from five minutes on, and each time leave a socket open.
        with ExitStack() as clients:
            KafkaConsumer(
                bootstrap_servers=servers,
                group_id="g",
                group_instance_id=given["group_instance_id"],
                session_timeout_ms=int(given["session_timeout_ms"]),
                partition_assignment_strategy=strategy_classes(one.strategy_setting(*strategies)),
                kafka_client=lambda **settings: clients.enter_context(
                    closing(KafkaNetClient(**settings))
                ),
            ).close()

    made("sticky", "roundrobin", "range")
    made("cooperative-sticky")
    assert not one.allows_mixed_list
    with pytest.raises(KafkaConfigurationError, match="Mixing EAGER and COOPERATIVE"):
        made("cooperative-sticky", "range")


def test_aiokafka_takes_them(servers: str) -> None:
    from aiokafka import AIOKafkaConsumer

    one = CLIENT_LIBRARIES[client_settings.AIOKAFKA]
    given = member_settings(one)
    assert list(given) == ["group_instance_id", "session_timeout_ms", "rebalance_timeout_ms"]

    async def made() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id="of-aiokafka",
            group_instance_id=given["group_instance_id"],
            session_timeout_ms=int(given["session_timeout_ms"]),
            rebalance_timeout_ms=int(given["rebalance_timeout_ms"]),
            partition_assignment_strategy=strategy_classes(
                one.strategy_setting("sticky", "roundrobin", "range")
            ),
        )
        await consumer.start()
        await consumer.stop()

    asyncio.run(made())


def test_aiokafkas_time_to_rejoin_is_its_session_if_nobody_sets_it() -> None:
    from aiokafka import AIOKafkaConsumer

    given = inspect.signature(AIOKafkaConsumer).parameters
    assert given["rebalance_timeout_ms"].default is None
    assert given["session_timeout_ms"].default == AIOKAFKA_SESSION_TIMEOUT
    assert AIOKAFKA_SESSION_TIMEOUT < given["request_timeout_ms"].default == 40_000

    async def rejoined(**settings: int) -> int:
        consumer = AIOKafkaConsumer(group_id="g", **settings)
        await consumer.stop()
        return int(consumer._rebalance_timeout_ms)

    assert asyncio.run(rejoined(session_timeout_ms=ELEVEN_MINUTES)) == ELEVEN_MINUTES


def test_rotas_own_consumer_takes_them(servers: str) -> None:
    one = CLIENT_LIBRARIES[client_settings.ROTA]
    assert one.allows_mixed_list
    assert one.strategies == set(CLASSIC)
    settings = {"bootstrap.servers": servers, "group.id": "of-rota", **member_settings(one)}
    for strategies in (("cooperative-sticky", "range"), ("sticky",), ("roundrobin",)):
        with rota.Consumer(settings | parse_settings(one.strategy_setting(*strategies))):
            pass
    with pytest.raises(RotaError, match="partition.assignment.strategy"):
        rota.Consumer(settings | parse_settings(one.strategy_setting("uniform")))
