"""Reads settings under Kafka's names, and says what becomes of each: see :mod:`rota.client.key`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rota.assignors import registry
from rota.assignors.interface import Assignor
from rota.client import address, alias, duration, properties, security
from rota.client.deserializer import Deserializer, deserializer, loaded
from rota.client.key import Fate
from rota.client.table import KEYS
from rota.errors import InputError, Unreachable
from rota.model.client import (
    BY_DURATION,
    EARLIEST,
    LATEST,
    NONE,
    ClientConfig,
    ReadConfig,
)
from rota.model.config import MemberConfig
from rota.model.naming import misname
from rota.model.text import nearest, shortened
from rota.plan import DEFAULT_BUDGET_MS, Budget

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Config = TypeVar("Config", bound=DataclassInstance)

_numbers = itertools.count(1)
"""For the ids of clients that have none; Kafka counts in each process, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a consumer is to do, checked."""

    client: ClientConfig
    read: ReadConfig
    member: MemberConfig | None
    """None: without a group (``group.id``)."""
    strategies: tuple[Assignor, ...]
    interceptors: tuple[Any, ...]
    """Instances."""
    key_deserializer: Deserializer | None
    """None: bytes as they are."""
    value_deserializer: Deserializer | None
    warnings: tuple[str, ...]
    """What is without effect, or unwise."""


def load_properties(path: str | os.PathLike[str]) -> dict[str, str]:
    """The settings of a ``client.properties``, a file as Kafka's own tools take it.

    ::

        settings = rota.load_properties("client.properties") | {"group.id": "billing"}
        with rota.BlockingConsumer(settings) as consumer:
            ...

    :raises Unreachable: the file cannot be read
    :raises InputError: it is malformed
    """
    try:
        text = Path(path).read_text("latin-1")  # as Java's Properties are by definition
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreachable(f"{os.fspath(path)} cannot be read: {reason}") from error
    return properties.parse(text, os.fspath(path))


def mapping(given: object, keywords: Mapping[str, object]) -> Mapping[str, object]:
    """The settings that a consumer was given.

    :param keywords: what it was given as other clients take settings
    :raises InputError: they are none; the message says how to give them
    """
    if keywords:
        raise InputError(alias.keywords(keywords))
    if not isinstance(given, Mapping):
        raise InputError(
            'settings are a mapping with Kafka\'s names, like {"bootstrap.servers": "host:9092"}, '
            f"not {shortened(repr(given))[1:-1]}; rota.load_properties(path) has those of a file"
        )
    return given


def read(given: Mapping[str, object]) -> Settings:
    """The settings that are meant; None stands for a key that is not there.

    :raises InputError: one is unknown, malformed, refused, or does not fit to the others
    :raises Unreachable: a file that one of them names cannot be read
    """
    values = _parsed(given)
    tls, login, warnings = security.access(values)
    warnings += judged(values)
    _complete(values)
    bootstrap = address.addresses(_list(values, "bootstrap.servers"))
    client = _config(ClientConfig, values, bootstrap=bootstrap, tls=tls, login=login)
    reading = _config(ReadConfig, values, **_reset(values))
    member = _member(values)
    return Settings(
        client=client,
        read=reading,
        member=member,
        strategies=_strategies(values),
        interceptors=tuple(map(_interceptor, _list(values, "interceptor.classes"))),
        key_deserializer=_deserializer("key", values),
        value_deserializer=_deserializer("value", values),
        warnings=(*warnings, *_unwise(values, client, reading, member)),
    )


def _parsed(given: Mapping[str, object]) -> dict[str, object]:
    """Each value as its key's type has it."""
    values = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise InputError(f"{shortened(repr(name))[1:-1]}: the name of a setting is text")
        key = KEYS.get(name)
        if key is None:
            raise InputError(alias.unknown(name))
        if value is not None:
            values[name] = key.parse(os.fspath(value) if isinstance(value, os.PathLike) else value)
    return values


def judged(values: Mapping[str, object]) -> list[str]:
    """Warnings of what is without effect.

    :raises InputError: something is asked for that Rota cannot do
    """
    warnings = []
    for name, value in values.items():
        key = KEYS[name]
        if key.fate is Fate.REFUSED and value not in (key.default, "", ()):
            raise InputError(f"{name}: {key.about}")
        if key.fate is Fate.IDLE and value not in key.asks_nothing:
            warnings.append(f"{name}: without effect: {key.about}")
    return warnings


def _complete(values: dict[str, object]) -> None:
    """What Kafka sets where the application did not, out of other settings."""
    group = values.get("group.id")
    if group == "":
        raise InputError("group.id: may be absent, but not empty")
    if group is None and values.setdefault("enable.auto.commit", False):
        raise InputError("enable.auto.commit: needs group.id: without a group nothing is committed")
    if not values.get("client.id"):
        static = values.get("group.instance.id")
        name = "null" if group is None else group  # as Kafka writes it
        values["client.id"] = f"consumer-{name}-{next(_numbers) if static is None else static}"
    if values.get("client.rack") == "":
        del values["client.rack"]
    if "reconnect.backoff.ms" in values:
        values.setdefault("reconnect.backoff.max.ms", values["reconnect.backoff.ms"])


def _list(values: Mapping[str, object], name: str) -> tuple[object, ...]:
    value = values.get(name, ())
    assert isinstance(value, tuple), "it is parsed"
    return value


def _config(config: type[Config], values: Mapping[str, object], **more: object) -> Config:
    """One of the configurations, each field from its key."""
    found = {
        each.name: values[each.metadata["key"]]
        for each in fields(config)
        if each.metadata.get("key") in values
    }
    return config(**(found | more))


def _member(values: Mapping[str, object]) -> MemberConfig | None:
    if "group.id" not in values:
        return None
    static = values.get("group.instance.id")
    if static is not None and (problem := misname(str(static))):
        raise InputError(f"group.instance.id: follows the rules of topics: {problem}")
    return _config(MemberConfig, values)


def _reset(values: Mapping[str, object]) -> dict[str, object]:
    """``auto.offset.reset``, which may have a duration (KIP-1106)."""
    text = str(values.get("auto.offset.reset", LATEST))
    if text in {EARLIEST, LATEST, NONE}:
        return {"reset": text}
    name, colon, length = text.partition(":")
    if name == BY_DURATION and colon:
        return {"reset": name, "reset_duration": duration.milliseconds(length, "auto.offset.reset")}
    known = (EARLIEST, LATEST, NONE, BY_DURATION)
    meant = alias.RESETS.get(text)
    hint = nearest(text, known) if meant is None else f"; did you mean {meant}?"
    raise InputError(
        f"auto.offset.reset: {shortened(text)} is none of earliest, latest, none and "
        f"by_duration:PnDTnHnMn.nS (by_duration:PT1H is an hour ago){hint}"
    )


def _strategies(values: Mapping[str, object]) -> tuple[Assignor, ...]:
    name = "partition.assignment.strategy"
    try:
        given: Any = list(_list(values, name)) if name in values else registry.DEFAULT_LIST
        budget = Budget(cast("int", values.get("assign.budget.ms", DEFAULT_BUDGET_MS)))
        return registry.resolve_all(given, budget=budget)
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error


def _interceptor(given: object) -> object:
    key = "interceptor.classes"
    if isinstance(given, str):
        if ":" not in given:
            raise InputError(
                f"{key}: {shortened(given)}: name your own as package.module:Class; a class of "
                "Java's cannot be run"
            )
        given = loaded(key, given)
    shown = shortened(repr(given))[1:-1]
    if isinstance(given, type):
        try:
            given = given()
        except Exception as error:
            raise InputError(f"{key}: {shown} cannot be created: {error!r}") from error
    for method in ("on_consume", "on_commit", "close"):
        if not callable(getattr(given, method, None)):
            raise InputError(f"{key}: {shown} has no {method}: see rota.ConsumerInterceptor")
    return given


def _deserializer(side: str, values: Mapping[str, object]) -> Deserializer | None:
    name = f"{side}.deserializer"
    encoding = values.get(f"{name}.encoding") or values.get("deserializer.encoding")
    return deserializer(
        name, values.get(name, "bytes"), None if encoding is None else str(encoding)
    )


def _unwise(
    given: Mapping[str, object],
    client: ClientConfig,
    reading: ReadConfig,
    member: MemberConfig | None,
) -> Iterator[str]:
    """What is allowed, but will not do what was meant."""
    if member is not None:
        yield from member.warnings
    elif "group.instance.id" in given:
        yield "group.instance.id: without effect without group.id"
    if given.get("reconnect.backoff.ms", 0) == given.get("reconnect.backoff.max.ms"):
        yield (
            "reconnect.backoff.ms: the pause does not grow, "
            "as reconnect.backoff.max.ms is not greater"
        )
    for first, least, last, most in (
        (
            "retry.backoff.ms",
            client.retry_backoff,
            "retry.backoff.max.ms",
            client.retry_backoff_max,
        ),
        (
            "socket.connection.setup.timeout.ms",
            client.connect_timeout,
            "socket.connection.setup.timeout.max.ms",
            client.connect_timeout_max,
        ),
    ):
        if least > most:
            yield f"{first} {least} is more than {last} {most}: {most} counts, and does not grow"
    if reading.fetch_max_wait >= client.request_timeout:
        yield (
            f"fetch.max.wait.ms {reading.fetch_max_wait} is not less than request.timeout.ms "
            f"{client.request_timeout}: fetches without new records will time out"
        )
    # fetch.max.bytes may well be less: a broker waits for no more than it may send
    if reading.fetch_min_bytes > reading.max_partition_bytes:
        yield (
            f"fetch.min.bytes {reading.fetch_min_bytes} is more than max.partition.fetch.bytes "
            f"{reading.max_partition_bytes}: a fetch of one partition waits for fetch.max.wait.ms"
        )
    if client.api_timeout < client.request_timeout:
        yield (
            f"default.api.timeout.ms {client.api_timeout} is less than request.timeout.ms "
            f"{client.request_timeout}: a call ends before its first request may"
        )
