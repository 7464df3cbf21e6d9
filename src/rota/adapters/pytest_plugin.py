"""The pytest plugin: a broker for each test (``kafka``), or one for all (``kafka_session``)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rota.broker.embedded import Broker

MARKER = "kafka"
CONFIG_INI = "kafka_config"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        CONFIG_INI,
        "settings of the brokers for tests, under Kafka's names: KEY=VALUE in each line",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(config={{...}}, users={{...}}, tls=...): arguments of rota.Broker for the "
        "fixture `kafka`",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuses a marker that would have no effect."""
    names = getattr(item, "fixturenames", ())
    marked = item.get_closest_marker(MARKER) is not None
    if marked and "kafka_session" in names and "kafka" not in names:
        raise pytest.UsageError(
            f"@pytest.mark.{MARKER} is for the fixture kafka: write the settings of kafka_session, "
            f"which all tests share, into the ini file ({CONFIG_INI})"
        )


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An empty Kafka-compatible broker for one test, at ``kafka.bootstrap_servers``."""
    marks = list(request.node.iter_markers(MARKER))
    arguments: dict[str, object] = {}
    config = _read_ini_settings(request.config)
    for mark in reversed(marks):  # the nearest mark wins
        if mark.args:
            raise pytest.UsageError(f"@pytest.mark.{MARKER} takes keywords only: config={{...}}")
        config.update(mark.kwargs.get("config", {}))
        arguments.update({key: value for key, value in mark.kwargs.items() if key != "config"})
    with _make_broker(config, arguments) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A Kafka-compatible broker that all tests share, with the topics and groups they leave."""
    with _make_broker(_read_ini_settings(request.config), {}) as broker:
        yield broker


def _read_ini_settings(config: pytest.Config) -> dict[str, object]:
    settings: dict[str, object] = {}
    for line in config.getini(CONFIG_INI):
        key, sign, value = line.partition("=")
        if not sign:
            raise pytest.UsageError(f"{CONFIG_INI}: {line!r} is not KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings


def _make_broker(config: Mapping[str, object], arguments: Mapping[str, object]) -> Broker:
    from rota.broker import explain_missing_packages  # noqa: PLC0415 (loaded only by tests that use it)

    if (problem := explain_missing_packages()) is not None:
        pytest.fail(problem, pytrace=False)
    from rota import Broker  # noqa: PLC0415

    parameters = inspect.signature(Broker).parameters
    for name in arguments.keys() - parameters.keys():
        raise pytest.UsageError(
            f"@pytest.mark.{MARKER}: rota.Broker has no argument {name}; it has "
            f"{', '.join(parameters)}"
        )
    return Broker(config=config, **arguments)  # type: ignore[arg-type]
