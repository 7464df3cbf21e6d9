"""The pytest plugin: ``kafka``, a broker for each test, and ``kafka_session``, one for all."""

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
    """Declares the settings of an ini file."""
    parser.addini(
        CONFIG_INI,
        "settings of the brokers that tests get, under Kafka's names: KEY=VALUE in each line",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(config={{...}}, users={{...}}, tls=...): what the broker of the fixture `kafka` "
        "is given, as rota.Broker",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Says so where a marker would have no effect."""
    names = getattr(item, "fixturenames", ())
    marked = item.get_closest_marker(MARKER) is not None
    if marked and "kafka_session" in names and "kafka" not in names:
        raise pytest.UsageError(
            f"@pytest.mark.{MARKER} is for the fixture kafka: the settings of kafka_session, which "
            f"all tests share, are in the ini file ({CONFIG_INI})"
        )


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A Kafka-compatible broker of this test's own, empty; ``kafka.bootstrap_servers``."""
    marks = list(request.node.iter_markers(MARKER))
    given: dict[str, object] = {}
    config = _read_ini_settings(request.config)
    for mark in reversed(marks):  # the nearest says the last word
        if mark.args:
            raise pytest.UsageError(f"@pytest.mark.{MARKER} takes names only: config={{...}}")
        config.update(mark.kwargs.get("config", {}))
        given.update({key: value for key, value in mark.kwargs.items() if key != "config"})
    with _make_broker(config, given) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A Kafka-compatible broker that all tests share; what one leaves in it, others find."""
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


def _make_broker(config: Mapping[str, object], given: Mapping[str, object]) -> Broker:
    from rota.broker import missing  # noqa: PLC0415 (only tests that ask pay for it)

    if (problem := missing()) is not None:
        pytest.fail(problem, pytrace=False)
    from rota import Broker  # noqa: PLC0415

    known = inspect.signature(Broker).parameters
    for name in given.keys() - known.keys():
        raise pytest.UsageError(
            f"@pytest.mark.{MARKER}: {name} is none of rota.Broker's arguments: {', '.join(known)}"
        )
    return Broker(config=config, **given)  # type: ignore[arg-type]
