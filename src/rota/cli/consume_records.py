"""Reads the records of ``rota consume``, prints them, and commits the printed records.

``rota produce --json`` reads the lines that ``rota consume --json`` writes. UTF-8 is written as
text, other bytes as base64 under a name that ends in ``_base64``.
"""

from __future__ import annotations

import argparse
import base64
import json
import logging
import math
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from rota.cli.consume import StartPosition
from rota.cli.flags import (
    CONNECT_TIMEOUT,
    import_from_working_directory,
    notice_when_slow,
    split_names,
)
from rota.cli.render import format_partitions, print_notice
from rota.consumer.consumer import Consumer
from rota.consumer.records import RebalanceListener
from rota.engine.model.text import count_noun, suggest_names
from rota.engine.model.topic import OffsetAndMetadata, Partitions, TopicPartition
from rota.errors import (
    Code,
    GroupError,
    InputError,
    Interrupted,
    RebalanceInProgress,
    RecordError,
    RotaError,
    UnknownTopic,
)

if TYPE_CHECKING:
    from types import FrameType

    from rota.consumer.records import ConsumerRecord, Records

FIRST_ASSIGNMENT_TIMEOUT = 60.0  # seconds until the first assignment of a group
MAX_POLL_WAIT = 1.0

#: Seconds for the last commit, and then for leaving the group: Ctrl-C should not wait for long.
LAST_COMMIT_TIMEOUT = CLOSE_TIMEOUT = 5.0

#: Milliseconds between commits: the default, and the lower bound of ``auto.commit.interval.ms``.
COMMIT_INTERVAL, MIN_COMMIT_INTERVAL = 5_000, 100

#: Settings that may name a class of the user, as ``package.module:Class``.
CLASS_SETTINGS = (
    *("partition.assignment.strategy", "interceptor.classes"),
    *("key.deserializer", "value.deserializer"),
)

ESCAPES = {"\\t": "\t", "\\n": "\n"}


def read_records(args: argparse.Namespace, settings: dict[str, object]) -> bool:
    """Prints records, and commits after the lines are written: auto commit could be ahead."""
    has_group = bool(settings.get("group.id"))
    commits = has_group and str(settings.get("enable.auto.commit")).strip().lower() != "false"
    settings["enable.auto.commit"] = "false"
    interval = int(str(settings.get("auto.commit.interval.ms", COMMIT_INTERVAL)))
    settings.setdefault("allow.auto.create.topics", "false")
    if args.from_beginning:
        settings["auto.offset.reset"] = "earliest"
    if args.strategy is not None:
        settings["partition.assignment.strategy"] = args.strategy
    import_from_working_directory(str(settings.get(key, "")) for key in CLASS_SETTINGS)
    _log_to_stderr("rota.consumer")
    # until the first response, connection problems are the command's error; later, warnings
    logging.getLogger("rota.client").handlers[:] = [logging.NullHandler()]
    consumer = Consumer(settings)
    signals: list[int] = []
    try:
        with _progress_bar(args) as show:
            every = max(interval, MIN_COMMIT_INTERVAL) / 1_000 if commits else None
            printer = RecordPrinter(args, consumer, show, has_group=has_group, commit_every=every)
            _read_and_commit(printer, signals)
    finally:
        consumer.close(CLOSE_TIMEOUT)
    if not args.quiet:
        skipped = f", {printer.skipped} skipped" if printer.skipped else ""
        print_notice(f"{count_noun(printer.printed, 'record')}{skipped}")
    if signals and signals[0] == signal.SIGINT:
        raise KeyboardInterrupt
    return False


def _read_and_commit(printer: RecordPrinter, signals: list[int]) -> None:
    try:
        printer.subscribe_or_assign()
        with _wakeup_on_signals(printer.consumer, signals):
            printer.read_until_end()
    except Interrupted:
        assert signals, "only a signal wakes the consumer up"
    except KeyboardInterrupt:  # before the reading has begun, or a second Ctrl-C: end at once
        raise
    except BaseException:
        with suppress(RotaError):  # the first error is the one to report
            printer.finish()
        raise
    printer.finish()


def _log_to_stderr(name: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("rota: %(message)s"))
    logger = logging.getLogger(name)
    logger.handlers[:] = [handler]
    logger.propagate = False


@contextmanager
def _wakeup_on_signals(consumer: Consumer, signals: list[int]) -> Iterator[None]:
    """Ends the reading on a signal, to leave the group first; a second Ctrl-C ends at once."""

    def handle(number: int, _frame: FrameType | None) -> None:
        if signals and number == signal.SIGINT:
            raise KeyboardInterrupt
        signals.append(number)
        consumer.wakeup()

    before = {each: signal.signal(each, handle) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _progress_bar(args: argparse.Namespace) -> Iterator[Callable[[int, int | None], None]]:
    if args.quiet or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn("records"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=args.max_messages)
        yield lambda done, total: progress.update(task, completed=done, total=total)


class RecordPrinter(RebalanceListener):
    def __init__(
        self,
        args: argparse.Namespace,
        consumer: Consumer,
        show_progress: Callable[[int, int | None], None],
        *,
        has_group: bool,
        commit_every: float | None,
    ) -> None:
        """Reads nothing yet. ``commit_every``: seconds between commits; None: no commits."""
        self.args = args
        self.has_group = has_group
        self.consumer = consumer
        self.show_progress = show_progress
        self.printed = 0
        self.skipped = 0
        self.total: int | None = args.max_messages
        #: With ``--to-end``: the end offsets of the partitions that have not reached them.
        self.remaining_ends: dict[TopicPartition, int] | None = None
        #: When the last record came, or could have come; None: the group has no assignment yet.
        self._last_record_at: float | None = None if has_group else time.monotonic()
        #: The next offset after the printed records, by partition.
        self._printed_offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        #: Whether all polled records are printed: then the consumer's positions are committed.
        self._all_lines_written = True
        self._commit_every = commit_every
        self._commit_at = math.inf
        self._last_commit_error: str | None = None
        self._schedule_commit()
        self._format_line = record_json_line if args.json else partial(format_line, args)

    def subscribe_or_assign(self) -> None:
        """Subscribes, or assigns partitions and seeks to their start; raises UnknownTopic."""
        args, consumer = self.args, self.consumer
        with notice_when_slow(CONNECT_TIMEOUT):
            known = consumer.topics(timeout=CONNECT_TIMEOUT)
        _log_to_stderr("rota.client")
        names = list(dict.fromkeys(split_names(args.topic)))
        if "" in names:
            raise InputError("--topic: the name of a topic is empty")
        for name in names:
            if name not in known:
                text = f"there is no topic {name!r}{suggest_names(name, known)}"
                raise UnknownTopic(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
        if self.has_group:
            consumer.subscribe(names, pattern=args.pattern, listener=self)
            return
        partitions = list(_partitions_to_read(args.partition, names, known))
        start = args.offset or StartPosition(from_beginning=args.from_beginning)
        at, last = _resolve_offsets(start, consumer, partitions)
        if not (args.offset or args.from_beginning or args.to_end or args.quiet):
            print_notice("only new records are read; --from-beginning reads all records")
        consumer.assign(partitions)
        for partition, offset in at.items():
            consumer.seek(partition, offset)
        if args.to_end:
            self.remaining_ends = {each: last[each] for each in partitions if at[each] < last[each]}
            consumer.pause(*(set(partitions) - set(self.remaining_ends)))
            left = sum(end - at[each] for each, end in self.remaining_ends.items())
            self.total = left if self.total is None else min(left, self.total)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._last_record_at = time.monotonic()
        if not self.args.quiet:
            print_notice(f"assigned: {format_partitions(Partitions.of(partitions))}")

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        try:
            self.commit()
        except GroupError as error:  # the member stays in the group
            print_notice(f"offsets not committed: {error}")
        for each in partitions:
            self._printed_offsets.pop(each, None)
        if partitions and not self.args.quiet:
            print_notice(f"revoked: {format_partitions(Partitions.of(partitions))}")

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Forgets offsets that other members may commit now."""
        for each in partitions:
            self._printed_offsets.pop(each, None)
        names = format_partitions(Partitions.of(partitions))
        print_notice(f"lost: {names}: records since the last commit will be read again")

    def read_until_end(self) -> None:
        begun = time.monotonic()
        limit: int | None = self.args.max_messages
        while self.remaining_ends != {} and (limit is None or self.printed < limit):
            left = self._deadline(begun) - time.monotonic()
            if left <= 0:
                return
            most = None if limit is None else limit - self.printed
            # wake up in time for the next commit, also while no record comes
            wait = min(MAX_POLL_WAIT, left, max(self._commit_at - time.monotonic(), 0))
            try:
                records = self.consumer.poll(wait, max_records=most)
            except RecordError as error:
                if not self.args.skip_undecodable:
                    raise
                print_notice(f"skipped: {error}")
                self.skipped += 1
                self.consumer.seek((error.topic, error.partition), error.next_offset)
                continue
            if records:
                self._print(records)
                self._last_record_at = time.monotonic()
            self._drop_finished_partitions(records)
            self._commit_if_due()

    def _deadline(self, begun: float) -> float:
        timeout: float | None = self.args.timeout
        if timeout is None:
            return math.inf
        if self._last_record_at is None:  # the first rebalance of a group may take long
            return begun + max(timeout, FIRST_ASSIGNMENT_TIMEOUT)
        return self._last_record_at + timeout

    def _print(self, records: Records) -> None:
        self._all_lines_written = False
        printed: Iterable[ConsumerRecord] = records
        if (ends := self.remaining_ends) is not None:
            batches = records.by_partition.items()
            printed = (
                one for tp, batch in batches for one in batch if one.offset < ends.get(tp, 0)
            )
        lines = list(map(self._format_line, printed))
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()
        self.printed += len(lines)
        self.show_progress(self.printed, self.total)
        for partition, batch in records.by_partition.items():
            offset, epoch = batch[-1].offset + 1, batch[-1].leader_epoch
            self._printed_offsets[partition] = OffsetAndMetadata(offset, "", epoch)
        self._all_lines_written = True

    def _drop_finished_partitions(self, records: Records) -> None:
        """Drops partitions at their end by position: markers may follow the last record."""
        ends = self.remaining_ends
        if ends is None:
            return
        candidates = ends.keys() & records.by_partition.keys() or ends.keys()
        finished = {each for each in candidates if self.consumer.position(each) >= ends[each]}
        self.consumer.pause(*finished)
        for each in finished:
            del ends[each]

    def _schedule_commit(self) -> None:
        if self._commit_every is not None:
            self._commit_at = time.monotonic() + self._commit_every

    def _commit_if_due(self) -> None:
        if time.monotonic() < self._commit_at:
            return
        self._schedule_commit()
        if self.consumer.assignment:
            self._commit_at = math.inf  # one commit at a time
            self.consumer.commit_async(callback=self._on_committed)

    def _on_committed(self, _offsets: object, error: Exception | None) -> None:
        self._schedule_commit()
        problem = None if isinstance(error, RebalanceInProgress | None) else str(error)
        if problem is not None and problem != self._last_commit_error:
            print_notice(f"offsets not committed: {problem}")
        self._last_commit_error = problem

    def finish(self) -> None:
        """Commits for the last time. If that fails, closing the consumer does not try again."""
        try:
            self.commit(LAST_COMMIT_TIMEOUT)
        finally:
            self._commit_every = None

    def commit(self, timeout: float | None = None) -> None:
        offsets = None if self._all_lines_written else self._printed_offsets
        to_commit = self.consumer.assignment if offsets is None else offsets
        if self._commit_every is None or not to_commit:
            return
        try:
            self.consumer.commit(offsets, timeout)
        except Interrupted:  # the wakeup came too late to interrupt a poll
            self.consumer.commit(offsets, timeout)


def _partitions_to_read(
    numbers: list[list[int]] | None, names: Iterable[str], counts: dict[str, int]
) -> Iterator[TopicPartition]:
    for name in names:
        count = counts[name]
        for partition in range(count) if numbers is None else sorted(set(chain(*numbers))):
            if partition >= count:
                text = f"--partition {partition}: {name} has partitions 0 to {count - 1}"
                raise UnknownTopic(Code.UNKNOWN_TOPIC_OR_PARTITION, text)
            yield TopicPartition(name, partition)


def _resolve_offsets(
    start: StartPosition, consumer: Consumer, partitions: list[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Returns start and end offsets; raises InputError if a partition lacks the start offset."""
    first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    if start.time is not None:
        by_time = consumer.offsets_for_times(dict.fromkeys(partitions, start.time))
        return {at: last[at] if each is None else each.offset for at, each in by_time.items()}, last
    if start.offset is None:
        return dict(first if start.from_beginning else last), last
    if start.offset < 0:
        return {at: max(first[at], last[at] + start.offset) for at in partitions}, last
    for at in partitions:
        if not first[at] <= start.offset <= last[at]:
            bounds = f"{at.topic}-{at.partition} has offsets from {first[at]} up to {last[at]}"
            raise InputError(f"--offset {start.offset}: {bounds}")
    return dict.fromkeys(partitions, start.offset), last


BASE64_SUFFIX = "_base64"
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


def format_line(args: argparse.Namespace, record: ConsumerRecord) -> bytes:
    """Returns a line in the order of Kafka's own tool: time, position, headers, key, value."""
    columns = []
    if args.print_time:
        kind = TIMESTAMP_TYPES[record.timestamp_type] if record.timestamp >= 0 else "NoTimestamp"
        columns.append(f"{kind}:{record.timestamp}".encode())
    if args.print_place:
        columns.append(f"{record.topic}-{record.partition}@{record.offset}".encode())
    if args.print_headers:
        named = (name.encode() + b":" + _to_bytes(value) for name, value in record.headers)
        columns.append(b",".join(named) or b"NO_HEADERS")
    if args.print_key:
        columns.append(_to_bytes(record.key))
    columns.append(_to_bytes(record.value))
    separator: str = ESCAPES.get(args.separator, args.separator)
    return separator.encode().join(columns) + b"\n"


def _to_bytes(value: object) -> bytes:
    match value:
        case bytes():
            return value
        case None:
            return b"null"
        case str():
            return value.encode(errors="backslashreplace")
        case _:
            return _compact_json(value).encode()


def record_json_line(record: ConsumerRecord) -> bytes:
    headers = [{"name": name, **_json_field("value", value)} for name, value in record.headers]
    fields: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": TIMESTAMP_TYPES[record.timestamp_type],
        **_json_field("key", record.key),
        **_json_field("value", record.value),
        "headers": headers,
    }
    return _compact_json(fields).encode() + b"\n"


def _compact_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _json_field(name: str, value: object) -> dict[str, object]:
    if isinstance(value, bytes):
        try:
            return {name: value.decode()}
        except UnicodeDecodeError:
            return {name + BASE64_SUFFIX: base64.b64encode(value).decode()}
    return {name: value}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRecord:
    topic: str | None  # None: the command's ``--topic``
    partition: int | None = None
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def parse_json_line(line: bytes) -> ProducerRecord:
    """Parses a line of :func:`record_json_line`, or one with fewer fields; raises InputError."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise InputError(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InputError("not a JSON object")
    known = {"topic", "partition", "offset", "timestamp", "timestamp_type", "headers"}
    for name in fields:
        if name not in known and name.removesuffix(BASE64_SUFFIX) not in {"key", "value"}:
            raise InputError(f"{name!r} is not a field of a record")
    topic = fields.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise InputError(f"topic: {topic!r} is not text")
    timestamp = _read_integer(fields, "timestamp", least=-1)
    return ProducerRecord(
        topic=topic,
        partition=_read_integer(fields, "partition", least=0),
        timestamp=None if timestamp == -1 else timestamp,
        key=_read_bytes(fields, "key"),
        value=_read_bytes(fields, "value"),
        headers=tuple(_read_headers(fields.get("headers"))),
    )


def _read_integer(fields: Mapping[str, object], name: str, *, least: int) -> int | None:
    value = fields.get(name)
    if value is None or (type(value) is int and least <= value < 2**63):
        return value
    raise InputError(f"{name}: {value!r} is not a number of {least} or more")


def _read_bytes(fields: Mapping[str, object], name: str) -> bytes | None:
    encoded = fields.get(name + BASE64_SUFFIX)
    if encoded is None:
        value = fields.get(name)
        if value is None:
            return None
        try:
            return (value if isinstance(value, str) else _compact_json(value)).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{name}: cannot be encoded in UTF-8 ({error.reason})") from error
    if name in fields:
        raise InputError(f"{name} and {name + BASE64_SUFFIX} are both given")
    try:
        return base64.b64decode(str(encoded), validate=True)
    except ValueError as error:
        raise InputError(f"{name + BASE64_SUFFIX}: not base64: {error}") from error


def _read_headers(headers: object) -> Iterable[tuple[str, bytes | None]]:
    if headers is None:
        return
    if not isinstance(headers, list):
        raise InputError("headers: not a list")
    for each in headers:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise InputError('headers: each item must be {"name": ..., "value": ...}')
        yield each["name"], _read_bytes(each, "value")
