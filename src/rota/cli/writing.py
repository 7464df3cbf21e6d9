"""The work of ``rota produce``: reads lines, writes records, and waits for the cluster."""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from rota.cli.bootstrap import CONNECT, say, trying
from rota.cli.line import Message, from_json
from rota.cli.producer import configuration
from rota.cli.screen import count
from rota.errors import AuthenticationFailed, Code, InputError, Unreachable
from rota.model.naming import misname

SPACES = {"\\t": "\t"}
AFTER = re.compile(r" \(after \d+ms in state [A-Z_0-9]+.*\)$")
CONNECTION = re.compile(r"^\S+/(bootstrap|\d+): ")
SHOWN = 3
"""How many failures are named."""


def write(args: argparse.Namespace, given: dict[str, object]) -> bool:
    """Writes every line, then waits until all are stored.

    :raises Unreachable: some could not be; names the first of them
    :raises InputError: a line is malformed; those before it are written
    """
    if args.topic is not None and (problem := misname(args.topic)):
        raise InputError(f"--topic: {problem}")
    config, warnings = configuration(given)
    for warning in warnings:
        say(warning)
    writer = Writer(config)
    writer.connect()
    try:
        for place, line in _lines(args.files):
            writer.put(place, _message(args, place, line))
    except BaseException:
        # what was accepted is written out, whatever stopped the reading
        writer.finish()
        if not args.quiet:
            writer.tell()
        raise
    writer.finish()
    if not args.quiet:
        writer.tell()
    writer.check()
    return False


def _lines(files: list[str]) -> Iterator[tuple[Place, bytes]]:
    """Every line with where it is, without its end."""
    for name in files or ["stdin"]:
        with Path(name).open("rb") if files else nullcontext(sys.stdin.buffer) as lines:
            for number, line in enumerate(lines, 1):
                yield Place(name, number), line.removesuffix(b"\n").removesuffix(b"\r")


class Place(NamedTuple):
    """Where a line is."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"


def _message(args: argparse.Namespace, place: Place, line: bytes) -> Message:
    """The record that a line stands for."""
    if args.json:
        try:
            found = from_json(line)
        except InputError as error:
            raise InputError(f"{place}: {error}") from error
    elif args.key_separator is None:
        found = Message(topic=None, value=line)
    else:
        separator = SPACES.get(args.key_separator, args.key_separator)
        key, sign, value = line.partition(separator.encode())
        if not sign:
            raise InputError(f"{place}: has no {separator!r} between key and value")
        found = Message(topic=None, key=key, value=value)
    topic = args.topic or found.topic
    if not topic:
        raise InputError(f"{place}: says no topic: give --topic")
    headers = tuple((name, value.encode()) for name, _, value in _pairs(args.header))
    partition = found.partition if args.keep_partitions else args.partition
    return replace(found, topic=topic, partition=partition, headers=found.headers + headers)


def _pairs(texts: list[str]) -> Iterator[tuple[str, str, str]]:
    return (text.partition("=") for text in texts)


class Writer:
    """librdkafka's producer, and what became of each record."""

    def __init__(self, config: dict[str, object]) -> None:
        self.servers = config["bootstrap.servers"]
        self.written = 0
        self.topics: set[str] = set()
        self.failures: list[str] = []
        self._complaint: KafkaError | None = None
        logger = logging.getLogger("rota.produce")  # librdkafka's own lines would go to stderr
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        try:
            self._producer = Producer({**config, "error_cb": self._note}, logger=logger)
        except (KafkaException, ValueError) as error:
            raise InputError(
                f"librdkafka does not take these settings: {_reason(error)}"
            ) from error

    def connect(self) -> None:
        """Asks for metadata, once: who cannot connect should hear of it soon.

        :raises Unreachable: no answer
        :raises AuthenticationFailed: the credentials are not taken
        """
        try:
            with trying(CONNECT):
                self._producer.list_topics(timeout=CONNECT)
        except KafkaException as error:
            self._producer.poll(0)  # brings what the connections complain of
            reason = _reason(error) if self._complaint is None else _plain(self._complaint)
            code = None if self._complaint is None else self._complaint.code()
            message = f"{self.servers}: {reason}"
            if code == KafkaError._AUTHENTICATION:
                raise AuthenticationFailed(Code.SASL_AUTHENTICATION_FAILED, message) from error
            raise Unreachable(message) from error

    def put(self, place: Place, message: Message) -> None:
        """Hands a record over; waits where too many are under way.

        :raises InputError: it cannot be a record of that topic
        """
        assert message.topic is not None
        if message.topic not in self.topics and (problem := misname(message.topic)):
            raise InputError(f"{place}: {problem}")
        if message.timestamp == 0:
            raise InputError(f"{place}: timestamp: librdkafka takes 0 for now")
        while True:
            try:
                self._producer.produce(
                    message.topic,
                    value=message.value,
                    key=message.key,
                    partition=-1 if message.partition is None else message.partition,
                    timestamp=message.timestamp or 0,
                    headers=list(message.headers),
                    on_delivery=partial(self._delivered, place),
                )
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise InputError(f"{place}: {_refusal(error, message)}") from error
            else:
                self.topics.add(message.topic)
                self._producer.poll(0)
                return

    def finish(self) -> None:
        """Waits until the cluster has all, or ``delivery.timeout.ms`` is over."""
        while self._producer.flush(1.0):
            pass

    def check(self) -> None:
        """Raises Unreachable if records could not be written."""
        if self.failures:
            named = "; ".join(self.failures[:SHOWN])
            more = f"; and {len(self.failures) - SHOWN} more" if self.failures[SHOWN:] else ""
            total = self.written + len(self.failures)
            raise Unreachable(
                f"{len(self.failures)} of {count(total, 'record')} could not be written: "
                f"{named}{more}"
            )

    def tell(self) -> None:
        """How much it was."""
        where = f" to {', '.join(sorted(self.topics))}" if self.topics else ""
        say(f"{count(self.written, 'record')} written{where}")

    def _delivered(self, place: Place, error: KafkaError | None, _message: Delivered) -> None:
        if error is None:
            self.written += 1
        else:
            self.failures.append(f"{place}: {_plain(error)}")

    def _note(self, error: KafkaError) -> None:
        # what all brokers together complain of says less than what one of them does
        if self._complaint is None or self._complaint.code() == KafkaError._ALL_BROKERS_DOWN:
            self._complaint = error


def _reason(error: Exception) -> str:
    first = error.args[0] if error.args else error
    return _plain(first) if isinstance(first, KafkaError) else str(error)


def _refusal(error: KafkaException, message: Message) -> str:
    if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
        return f"topic {message.topic!r} has no partition {message.partition}"
    return _reason(error)


def _plain(error: KafkaError) -> str:
    """Without what librdkafka tells of itself: its name of the connection, and its state."""
    return AFTER.sub("", CONNECTION.sub("", error.str()))
