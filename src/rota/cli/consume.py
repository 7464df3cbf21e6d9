"""``rota consume``: prints the records of topics as lines, and commits what is printed.

The JSON form of a record is here too, in both directions: ``rota produce --json`` reads the lines
that ``rota consume --json`` writes. Bytes that are UTF-8 are written as text; other bytes are
written as base64 under a name that ends in ``_base64``. Reading a line back gives the same bytes.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import logging
import math
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rota.cli import flags
from rota.cli.flags import (
    CONNECT_TIMEOUT,
    import_from_working_directory,
    notice_when_slow,
    split_topics,
)
from rota.cli.render import count_noun, print_notice
from rota.consumer.records import RebalanceListener
from rota.engine.model.text import suggest_names
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import (
    Code,
    GroupError,
    InputError,
    Interrupted,
    RebalanceInProgress,
    RecordError,
    RotaError,
    UnknownTopic,
    Unreachable,
)

if TYPE_CHECKING:
    from types import FrameType

    from rota.consumer.consumer import Consumer
    from rota.consumer.records import ConsumerRecord, Records

DESCRIPTION = """\
Prints the records of topics, a line each: with a group, going on where it is; without one, from an
offset or a time, leaving nothing behind in the cluster. Ends at Ctrl-C or SIGTERM: then records
that are printed are committed, and the group is left at once.
"""

EXAMPLES = """\
examples:
  rota consume --topic orders --bootstrap-servers kafka:9092
      what comes from now on, of all partitions, without a group
  rota consume --topic orders --from-beginning --to-end --bootstrap-servers kafka:9092 > orders.txt
      all that is there now
  rota consume --topic orders --group billing --max-messages 10 --bootstrap-servers kafka:9092
      ten records for the group, which goes on behind them the next time
  rota consume --topic orders --partition 0,3-5 --offset -2 --to-end --bootstrap-servers kafka:9092
      the last two records of each of these partitions
  rota consume --topic orders --offset @2026-11-15T06:00Z --timeout 5 --bootstrap-servers kafka:9092
      from a time on; ends when no record has come for five seconds
  rota consume --topic orders --group g --strategy cooperative-sticky --print-key --print-place \\
      --command-config client.properties
  rota consume --topic a --from-beginning --to-end --json --command-config client.properties |
      rota produce --topic b --json --command-config client.properties
      a copy, byte by byte

"""

#: Options that may end it with exit code 1.
LIMITS: tuple[str, ...] = ()


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], *, epilog: str
) -> None:
    """Adds this command to the command line."""
    parser = commands.add_parser(
        "consume",
        help="the records of topics, as lines",
        description=DESCRIPTION,
        epilog=EXAMPLES + epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    flags.add_connection_flags(parser.add_argument_group("the cluster"))
    _add_selection_flags(parser.add_argument_group("what to read"))
    _add_end_flags(parser.add_argument_group("when to end"))
    _add_output_flags(parser.add_argument_group("the output"))
    parser.set_defaults(run=run, error=parser.error)


def _add_selection_flags(choice: argparse._ArgumentGroup) -> None:
    choice.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME,...",
        help="a topic; may be given again",
    )
    choice.add_argument(
        "--pattern", metavar="REGEX", help="in place of --topic: all whose whole name matches"
    )
    choice.add_argument(
        "--group", metavar="NAME", help="read as a member of this group (or group.id in the file)"
    )
    choice.add_argument(
        "--strategy",
        metavar="NAME,...",
        help="with a group: partition.assignment.strategy (default range,cooperative-sticky)",
    )
    choice.add_argument(
        "--partition",
        action="append",
        type=_parse_partitions,
        metavar="N,N-N,...",
        help="without a group: only these partitions of the topic",
    )
    choice.add_argument(
        "--offset",
        type=_parse_start,
        metavar="OFFSET",
        help="without a group, where to start: earliest, latest (default), a number, -N for the "
        "last N of each partition, or @TIME (2026-11-15T06:00Z, or milliseconds since 1970)",
    )
    choice.add_argument(
        "--from-beginning",
        action="store_true",
        help="the same as --offset earliest; with a group, where it has committed nothing yet",
    )


def _add_end_flags(end: argparse._ArgumentGroup) -> None:
    end.add_argument(
        "--max-messages", type=_parse_count, metavar="N", help="end after so many records"
    )
    end.add_argument(
        "--timeout",
        type=_parse_seconds,
        metavar="SECONDS",
        help="end once no record has come for so long",
    )
    end.add_argument(
        "--to-end",
        action="store_true",
        help="without a group: end at what is the end of the partitions when it starts",
    )


def _add_output_flags(output: argparse._ArgumentGroup) -> None:
    output.add_argument(
        "--json",
        action="store_true",
        help="a JSON object a line; bytes that are no UTF-8 as base64 (key_base64, value_base64)",
    )
    output.add_argument("--print-key", action="store_true", help="the key before the value")
    output.add_argument("--print-headers", action="store_true", help="name:value,...")
    output.add_argument(
        "--print-place", action="store_true", help="topic-partition@offset of each record"
    )
    output.add_argument("--print-time", action="store_true", help="CreateTime:milliseconds")
    output.add_argument(
        "--separator",
        default="\\t",
        metavar="TEXT",
        help="between these and the value (default: a tab; \\t and \\n are understood)",
    )
    output.add_argument(
        "--skip-undecodable",
        action="store_true",
        help="go on behind records that cannot be decoded; they are named on stderr",
    )
    output.add_argument(
        "--quiet", action="store_true", help="no word on stderr but errors and warnings"
    )


def run(args: argparse.Namespace) -> bool:
    """Reads and prints until the end."""
    given = flags.read_connection_settings(args)
    if args.group is not None:
        given["group.id"] = args.group
    _check_flags(args, has_group=bool(given.get("group.id")))
    from rota.client import missing  # noqa: PLC0415 (other commands do without it)

    if (problem := missing()) is not None:
        raise Unreachable(problem)

    return read_records(args, given)


def _check_flags(args: argparse.Namespace, *, has_group: bool) -> None:
    """Flags that do not go together."""
    if bool(args.topic) == (args.pattern is not None):
        args.error("--topic is needed, or --pattern, but not both")
    for flag in ("partition", "offset", "to_end"):
        if has_group and getattr(args, flag):
            args.error(f"--{flag.replace('_', '-')} is for reading without a group")
    for flag in ("strategy", "pattern"):
        if not has_group and getattr(args, flag) is not None:
            args.error(f"--{flag} needs a group")
    if args.from_beginning and args.offset is not None:
        args.error("--from-beginning and --offset: give one of them")
    printed = args.print_key or args.print_headers or args.print_place or args.print_time
    if args.json and printed:
        args.error("--json has all of a record: --print-... is for lines of text")


def _parse_partitions(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        bounds = (first, last) if dash else (first, first)
        if not all(each.isascii() and each.isdecimal() and len(each) < 8 for each in bounds):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 0,3-5")
        found.extend(range(int(bounds[0]), int(bounds[1]) + 1))
    return found


def _parse_start(text: str) -> StartPosition:
    try:
        return StartPosition.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _parse_seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found <= 10**9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return found


EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPosition:
    """Where to start reading: earliest or latest, an offset (negative: counted from the end),
    or a time.
    """

    end: str | None = None
    offset: int | None = None
    #: Milliseconds since 1970.
    time: int | None = None

    @classmethod
    def parse(cls, text: str) -> StartPosition:
        """As on the command line; ValueError says what it may be."""
        if text in {EARLIEST, LATEST}:
            return cls(end=text)
        if text.startswith("@"):
            return cls(time=_parse_time(text[1:]))
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and len(digits) < 20:
            return cls(offset=int(text))
        raise ValueError(f"{text!r} is not earliest, latest, a number, or @ and a time")

    def resolve_offsets(
        self, consumer: Consumer, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where to start each partition, and its end as it is now.

        :raises InputError: a partition has no such offset
        """
        wanted = list(partitions)
        first, last = consumer.beginning_offsets(wanted), consumer.end_offsets(wanted)
        if self.time is not None:
            found = consumer.offsets_for_times(dict.fromkeys(wanted, self.time))
            listed = {at: at_time.offset for at, at_time in found.items() if at_time is not None}
            return {at: listed.get(at, last[at]) for at in wanted}, last
        if self.offset is None:
            return dict(first if self.end == EARLIEST else last), last
        if self.offset < 0:
            return {at: max(first[at], last[at] + self.offset) for at in wanted}, last
        for at in wanted:
            if not first[at] <= self.offset <= last[at]:
                raise InputError(
                    f"--offset {self.offset}: {at.topic}-{at.partition} has offsets from "
                    f"{first[at]} up to {last[at]}"
                )
        return dict.fromkeys(wanted, self.offset), last


def _parse_time(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 19:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a time such as 2026-11-15T06:00Z nor milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


#: Seconds for the group's first assignment.
FIRST_ASSIGNMENT_TIMEOUT = 60.0

MAX_POLL_WAIT = 1.0

#: Seconds for the last commit, and for leaving the group behind it: who ends it does not wait for a
#: broker that is gone.
LAST_COMMIT_TIMEOUT = CLOSE_TIMEOUT = 5.0

#: Milliseconds between commits, where ``auto.commit.interval.ms`` is not set; no less.
INTERVAL, SHORTEST = 5_000, 100

#: Settings that may name a class of the user's.
CLASS_SETTINGS = (
    *("partition.assignment.strategy", "interceptor.classes"),
    *("key.deserializer", "value.deserializer"),
)

ESCAPES = {"\\t": "\t", "\\n": "\n"}


def read_records(args: argparse.Namespace, given: dict[str, object]) -> bool:
    """Prints records until the end, then closes the consumer.

    The command commits positions itself, after the lines are written: an automatic commit could be
    ahead of them.
    """
    from rota.consumer.consumer import Consumer  # noqa: PLC0415 (not for --help)

    has_group = bool(given.get("group.id"))
    wanted = str(given.get("enable.auto.commit", "true")).strip().lower() != "false"
    commits = wanted and has_group
    given["enable.auto.commit"] = "false"
    interval = given.get("auto.commit.interval.ms", INTERVAL)
    given.setdefault("allow.auto.create.topics", "false")
    if args.from_beginning:
        given["auto.offset.reset"] = "earliest"
    if args.strategy is not None:
        given["partition.assignment.strategy"] = args.strategy
    import_from_working_directory(str(given.get(key, "")) for key in CLASS_SETTINGS)
    _log_to_stderr("rota.consumer")
    # why no broker can be reached is the command's error, said once; later it is a warning
    logging.getLogger("rota.client").handlers[:] = [logging.NullHandler()]
    consumer = Consumer(given)
    told: list[int] = []
    with _closing_consumer(consumer), _progress_bar(args) as show:
        reader = RecordPrinter(
            args,
            consumer,
            show,
            has_group=has_group,
            commit_every=max(int(str(interval)), SHORTEST) / 1_000 if commits else None,
        )
        try:
            reader.subscribe_or_assign()
            with _wakeup_on_signals(consumer, told):
                reader.read_until_end()
        except Interrupted:
            assert told, "nobody else wakes the consumer up"
        except KeyboardInterrupt:  # before the reading has begun, or again: at once
            raise
        except BaseException:
            with suppress(RotaError):  # the first error is the one to tell
                reader.finish()
            raise
        reader.finish()
    if not args.quiet:
        reader.print_totals()
    if told and told[0] == signal.SIGINT:
        raise KeyboardInterrupt
    return False


@contextmanager
def _closing_consumer(consumer: Consumer) -> Iterator[None]:
    try:
        yield
    finally:
        consumer.close(CLOSE_TIMEOUT)


def _log_to_stderr(name: str) -> None:
    """What is logged, as lines of this command."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("rota: %(message)s"))
    logger = logging.getLogger(name)
    logger.handlers[:] = [handler]
    logger.propagate = False


@contextmanager
def _wakeup_on_signals(consumer: Consumer, told: list[int]) -> Iterator[None]:
    """Ends the reading, not the process, on Ctrl-C and SIGTERM, so that the consumer can
    leave the group. A second Ctrl-C ends the process at once.
    """

    def tell(number: int, _frame: FrameType | None) -> None:
        if told and number == signal.SIGINT:
            raise KeyboardInterrupt
        told.append(number)
        consumer.wakeup()

    before = [(number, signal.signal(number, tell)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def _progress_bar(args: argparse.Namespace) -> Iterator[Callable[[int, int | None], None]]:
    """Where somebody watches, and the lines go elsewhere: how many have been read."""
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
    """Prints records, and commits what is printed."""

    def __init__(
        self,
        args: argparse.Namespace,
        consumer: Consumer,
        show: Callable[[int, int | None], None],
        *,
        has_group: bool,
        commit_every: float | None,
    ) -> None:
        """Nothing is read yet; what is printed is committed every so many seconds, or never."""
        self.args = args
        self.has_group = has_group
        self.consumer = consumer
        self.show_progress = show
        self.printed = 0
        self.skipped = 0
        self.total: int | None = args.max_messages
        #: With ``--to-end``: of the partitions that are not yet there.
        self.remaining_ends: dict[TopicPartition, int] | None = None
        #: When the last record came, or those before it could have; None: not yet of the group.
        self._last_record_at: float | None = None if has_group else time.monotonic()
        #: How far each partition that is read has been printed.
        self._printed_offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        #: Are all lines out of what was read? Then the consumer's positions are what is done.
        self._all_lines_written = True
        self._commit_every = commit_every
        self._commit_at = math.inf
        #: Why the last commit has failed.
        self._last_commit_error: str | None = None
        self._schedule_commit()
        layout = LineFormat(
            key=args.print_key,
            headers=args.print_headers,
            time=args.print_time,
            position=args.print_place,
            separator=ESCAPES.get(args.separator, args.separator),
        )
        self._format_line = record_json_line if args.json else layout.format_record

    # Where to read

    def subscribe_or_assign(self) -> None:
        """Subscribes, or assigns partitions and goes to where they start.

        :raises UnknownTopic: there is none of that name, or no such partition
        """
        args, consumer = self.args, self.consumer
        with notice_when_slow(CONNECT_TIMEOUT):
            known = consumer.topics(timeout=CONNECT_TIMEOUT)
        _log_to_stderr("rota.client")
        names = split_topics(args.topic)
        for name in names:
            if name not in known:
                raise UnknownTopic(
                    Code.UNKNOWN_TOPIC_OR_PARTITION,
                    f"there is no topic {name!r}{suggest_names(name, known)}",
                )
        if self.has_group:
            consumer.subscribe(names, pattern=args.pattern, listener=self)
            return
        partitions = list(_partitions_to_read(args.partition, names, known))
        start = args.offset or StartPosition(end=EARLIEST if args.from_beginning else LATEST)
        at, last = start.resolve_offsets(consumer, partitions)
        if not (args.offset or args.from_beginning or args.to_end or args.quiet):
            print_notice("only what is written from now on is read; --from-beginning reads all")
        consumer.assign(partitions)
        for partition, offset in at.items():
            consumer.seek(partition, offset)
        if args.to_end:
            self.remaining_ends = {each: last[each] for each in partitions if at[each] < last[each]}
            self._pause_partitions(set(partitions) - set(self.remaining_ends))
            left = sum(end - at[each] for each, end in self.remaining_ends.items())
            self.total = left if self.total is None else min(left, self.total)

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """From now on records may come."""
        self._last_record_at = time.monotonic()
        if not self.args.quiet:
            print_notice(f"assigned: {_format_partitions(partitions)}")

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """The last chance to commit."""
        try:
            self.commit()
        except GroupError as error:  # the group goes on all the same
            print_notice(f"not committed: {error}")
        for each in partitions:
            self._printed_offsets.pop(each, None)
        if partitions and not self.args.quiet:
            print_notice(f"revoked: {_format_partitions(partitions)}")

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They are others' now, and what was printed of them will be read again."""
        for each in partitions:
            self._printed_offsets.pop(each, None)
        print_notice(
            f"lost: {_format_partitions(partitions)}: what was read of them last will be read again"
        )

    # Reading

    def read_until_end(self) -> None:
        """Polls and prints until one of the requested ends."""
        begun = time.monotonic()
        while not self.is_done:
            left = self._deadline(begun) - time.monotonic()
            if left <= 0:
                return
            limit = self.args.max_messages
            most = None if limit is None else limit - self.printed
            try:
                records = self.consumer.poll(self._poll_timeout(left), max_records=most)
            except RecordError as error:
                self._skip_record(error)
                continue
            if records:
                self._print(records)
                self._last_record_at = time.monotonic()
            self._drop_finished_partitions(records)
            self._commit_if_due()

    def _poll_timeout(self, left: float) -> float:
        """How long a poll may wait: what is printed is committed also while no record comes."""
        return min(MAX_POLL_WAIT, left, max(self._commit_at - time.monotonic(), 0))

    def _deadline(self, begun: float) -> float:
        """Until when a record is waited for."""
        timeout: float | None = self.args.timeout
        if timeout is None:
            return math.inf
        if self._last_record_at is None:  # a group may take its time for the first rebalance
            return begun + max(timeout, FIRST_ASSIGNMENT_TIMEOUT)
        return self._last_record_at + timeout

    @property
    def is_done(self) -> bool:
        """Is all printed that was asked for?"""
        if self.remaining_ends is not None and not self.remaining_ends:
            return True
        return self.args.max_messages is not None and self.printed >= self.args.max_messages

    def _print(self, records: Records) -> None:
        self._all_lines_written = False
        lines = list(map(self._format_line, self._records_before_ends(records)))
        sys.stdout.buffer.write(b"".join(lines))
        sys.stdout.buffer.flush()
        self.printed += len(lines)
        self.show_progress(self.printed, self.total)
        for partition, some in records.by_partition.items():
            last = some[-1]
            self._printed_offsets[partition] = OffsetAndMetadata(
                last.offset + 1, "", last.leader_epoch
            )
        self._all_lines_written = True

    def _records_before_ends(self, records: Records) -> Iterable[ConsumerRecord]:
        """With ``--to-end``, what was there at the start."""
        if self.remaining_ends is None:
            return records
        ends = self.remaining_ends
        return (
            one
            for partition, some in records.by_partition.items()
            for one in some
            if one.offset < ends.get(partition, 0)
        )

    def _drop_finished_partitions(self, records: Records) -> None:
        """Drops the partitions that have reached their end. It looks at positions, because
        transaction markers and compacted offsets may follow the last record.
        """
        if self.remaining_ends is None:
            return
        looked = [each for each in records.by_partition if each in self.remaining_ends] or list(
            self.remaining_ends
        )
        there = {
            each for each in looked if self.consumer.position(each) >= self.remaining_ends[each]
        }
        self._pause_partitions(there)
        for each in there:
            del self.remaining_ends[each]

    def _pause_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        self.consumer.pause(*partitions)

    def _skip_record(self, error: RecordError) -> None:
        if not self.args.skip_undecodable:
            raise error
        print_notice(f"skipped: {error}")
        self.skipped += 1
        self.consumer.seek((error.topic, error.partition), error.next_offset)

    # Commits

    def _schedule_commit(self) -> None:
        if self._commit_every is not None:
            self._commit_at = time.monotonic() + self._commit_every

    def _commit_if_due(self) -> None:
        if time.monotonic() < self._commit_at:
            return
        self._schedule_commit()
        if self.consumer.assignment:
            self._commit_at = math.inf  # one at a time
            self.consumer.commit_async(callback=self._on_committed)

    def _on_committed(self, _offsets: object, error: Exception | None) -> None:
        self._schedule_commit()
        passing = error is None or isinstance(error, RebalanceInProgress)
        complaint = None if passing else str(error)
        if complaint is not None and complaint != self._last_commit_error:
            print_notice(f"not committed: {complaint}")
        self._last_commit_error = complaint

    def finish(self) -> None:
        """Commits for the last time. If that fails, closing the consumer does not try again."""
        try:
            self.commit(LAST_COMMIT_TIMEOUT)
        finally:
            self._commit_every = None

    def commit(self, timeout: float | None = None) -> None:
        """Commits the offsets of the printed records."""
        offsets = None if self._all_lines_written else self._printed_offsets
        something = self.consumer.assignment if self._all_lines_written else self._printed_offsets
        if self._commit_every is None or not something:
            return
        try:
            self.consumer.commit(offsets, timeout)
        except Interrupted:  # it came when there was nothing left to interrupt
            self.consumer.commit(offsets, timeout)

    # The end

    def print_totals(self) -> None:
        """How much it was."""
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        print_notice(f"{count_noun(self.printed, 'record')}{skipped}")


def _partitions_to_read(
    wanted: list[list[int]] | None, names: Iterable[str], known: dict[str, int]
) -> Iterator[TopicPartition]:
    for name in names:
        numbers = range(known[name])
        for number in numbers if wanted is None else sorted({n for some in wanted for n in some}):
            if number not in numbers:
                raise UnknownTopic(
                    Code.UNKNOWN_TOPIC_OR_PARTITION,
                    f"--partition {number}: {name} has partitions 0 to {len(numbers) - 1}",
                )
            yield TopicPartition(name, number)


def _format_partitions(partitions: Sequence[TopicPartition]) -> str:
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(number))
    return "; ".join(f"{name} {','.join(some)}" for name, some in by_topic.items()) or "nothing"


BASE64_SUFFIX = "_base64"

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

_TAB = "\t"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """What a line shows besides the value."""

    key: bool = False
    headers: bool = False
    time: bool = False
    position: bool = False
    separator: str = _TAB

    def format_record(self, record: ConsumerRecord) -> bytes:
        """In the order of Kafka's own tool: time, place, headers, key, value."""
        parts = []
        if self.time:
            kind = (
                TIMESTAMP_TYPES[record.timestamp_type] if record.timestamp >= 0 else "NoTimestamp"
            )
            parts.append(f"{kind}:{record.timestamp}".encode())
        if self.position:
            parts.append(f"{record.topic}-{record.partition}@{record.offset}".encode())
        if self.headers:
            named = (name.encode() + b":" + _to_bytes(value) for name, value in record.headers)
            parts.append(b",".join(named) or b"NO_HEADERS")
        if self.key:
            parts.append(_to_bytes(record.key))
        parts.append(_to_bytes(record.value))
        return self.separator.encode().join(parts) + b"\n"


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
    """The whole record in one line."""
    found: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": TIMESTAMP_TYPES[record.timestamp_type],
        **_json_field("key", record.key),
        **_json_field("value", record.value),
        "headers": [
            {"name": name, **_json_field("value", value)} for name, value in record.headers
        ],
    }
    return _compact_json(found).encode() + b"\n"


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
    """A record to write."""

    #: None: where the command says.
    topic: str | None
    partition: int | None = None
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def parse_json_line(line: bytes) -> ProducerRecord:
    """Parses a line that :func:`record_json_line` wrote, or one with fewer fields.

    :raises InputError: the line is malformed
    """
    try:
        found = json.loads(line)
    except ValueError as error:
        raise InputError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError("not a JSON object")
    known = {"topic", "partition", "offset", "timestamp", "timestamp_type", "headers"}
    for name in found:
        if name not in known and name.removesuffix(BASE64_SUFFIX) not in {"key", "value"}:
            raise InputError(f"{name!r} is not a name of a record's JSON")
    topic = found.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise InputError(f"topic: {topic!r} is not text")
    timestamp = _read_integer(found, "timestamp", least=-1)
    return ProducerRecord(
        topic=topic,
        partition=_read_integer(found, "partition", least=0),
        timestamp=None if timestamp == -1 else timestamp,
        key=_read_bytes(found, "key"),
        value=_read_bytes(found, "value"),
        headers=tuple(_read_headers(found.get("headers"))),
    )


def _read_integer(found: Mapping[str, object], name: str, *, least: int) -> int | None:
    value = found.get(name)
    if value is None or (type(value) is int and least <= value < 2**63):
        return value
    raise InputError(f"{name}: {value!r} is not a number from {least} on")


def _read_bytes(found: Mapping[str, object], name: str) -> bytes | None:
    """Reads the bytes of field ``name``, or of ``name_base64``."""
    encoded = found.get(name + BASE64_SUFFIX)
    if encoded is None:
        value = found.get(name)
        if value is None:
            return None
        try:
            return (value if isinstance(value, str) else _compact_json(value)).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{name}: has no UTF-8 form ({error.reason})") from error
    if name in found:
        raise InputError(f"{name} and {name + BASE64_SUFFIX} are both given")
    try:
        return base64.b64decode(str(encoded), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{name + BASE64_SUFFIX}: not base64: {error}") from error


def _read_headers(given: object) -> Iterable[tuple[str, bytes | None]]:
    if given is None:
        return
    if not isinstance(given, list):
        raise InputError("headers: not a list")
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise InputError('headers: an item is not {"name": ..., "value": ...}')
        yield each["name"], _read_bytes(each, "value")
