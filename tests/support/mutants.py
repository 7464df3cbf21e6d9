"""Faults that an engineer could make in storage and replay, and the tests that must find them.

A mutant replaces one piece of text in one file of a copy of ``src``. Mutants of the coordinator,
the members and the broker are in ``tests/support/simulation/mutations.py`` and
``tests/pure/simulation/test_broker_mutations.py``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FAILURE = "tests/pure/storage/test_log_failure.py"
INDEX = "tests/pure/storage/test_log_index.py"
LOG = "tests/pure/storage/test_log.py"
OPEN = "tests/pure/storage/test_log_open.py"
READ = "tests/pure/storage/test_log_read.py"
RETENTION = "tests/pure/storage/test_log_retention.py"
PRODUCER = "tests/pure/storage/test_producer.py"
COMPACTION = "tests/pure/storage/test_compaction.py"
EPOCHS = "tests/pure/storage/test_leader_epoch_file.py"
FETCH_COMMITTED = "tests/pure/broker/test_fetch_committed.py"

CAUSE = "tests/pure/history/test_cause.py"
CLASSIC = "tests/pure/history/test_classic.py"
COMMIT = "tests/pure/history/test_commit.py"
CONSUMER = "tests/pure/history/test_consumer.py"
COST = "tests/pure/history/test_cost.py"
LAG = "tests/pure/history/test_lag.py"
CLEANED = "tests/pure/history/test_compaction.py"
JOURNAL = "tests/pure/formats/test_journal.py"
JOURNAL_COLUMN = "tests/pure/formats/test_journal_column.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault."""

    name: str
    #: The file below ``src/rota``.
    path: str
    #: Text that is in the file exactly once.
    old: str
    new: str
    #: The test file that must fail under ``make check``.
    test: str
    #: Whether it makes a loop endless, so that the test does not end.
    endless: bool = False

    def apply(self, source: Path) -> None:
        """Changes a copy of ``src``.

        :raises LookupError: the original text is not in the file, or more than once
        """
        file = source / "rota" / self.path
        text = file.read_text()
        if (count := text.count(self.old)) != 1:
            raise LookupError(f"mutant {self.name}: {count} times in {self.path}: {self.old!r}")
        file.write_text(text.replace(self.old, self.new))


#: Seconds after which a run counts as hung. Any named file takes less than a quarter of it.
PATIENCE = 240.0


def copy_source(folder: Path) -> Path:
    """A copy of ``src`` in a folder, with times and compiled files: only a mutant is compiled."""
    return shutil.copytree(ROOT / "src", folder / "src")


class Outcome(Enum):
    """How a run of a test file ended."""

    PASSED = auto()
    FAILED = auto()  # a test did; those behind it were not run
    HUNG = auto()  # no end within PATIENCE: a mutant may make a loop endless
    NOT_RUN = auto()  # pytest could not import or run it


def run_test(source: Path, test: str) -> tuple[Outcome, str]:
    """Runs a test file as ``make check`` does, with the package of another source folder.

    Returns how the run ended, and what pytest wrote. It ends at the first failure.
    """
    options = ("-x", "-q", "--tb=line", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options, "-m", "not nightly", test]
    env = {
        **os.environ,
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_PROFILE": "ci",
    }
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return Outcome.HUNG, (error.stdout or b"").decode(errors="replace")
    text = done.stdout.decode(errors="replace")
    if done.returncode == pytest.ExitCode.OK:
        return Outcome.PASSED, text
    failed = done.returncode == pytest.ExitCode.TESTS_FAILED and "FAILED " in text
    return (Outcome.FAILED if failed else Outcome.NOT_RUN), text


STORAGE = (
    Mutant(
        "what a recovery finds counts as synced",
        "broker/storage/recovery.py",
        "self.log.recovery_point = end if clean else min(self.log.recovery_point, end)",
        "self.log.recovery_point = end",
        LOG,
    ),
    Mutant(
        "the log's end cannot be read from",
        "broker/storage/log.py",
        "if not self.log_start_offset <= offset <= self.log_end_offset:",
        "if not self.log_start_offset <= offset < self.log_end_offset:",
        READ,
    ),
    Mutant(
        "flush.messages counts one record too many",
        "broker/storage/log.py",
        "next_offset - self.recovery_point >= self.config.flush_messages",
        "next_offset - self.recovery_point > self.config.flush_messages",
        FAILURE,
    ),
    Mutant(
        "a log goes on after an append that could not be taken back",
        "broker/storage/log.py",
        'self.mark_failed(f"a failed append could not be undone: {error}")',
        'self.report(f"a failed append could not be undone: {error}")',
        FAILURE,
    ),
    Mutant(
        "a read goes one batch past its limit",
        "broker/storage/log_segment.py",
        "if header.base_offset >= until or (",
        "if header.base_offset > until or (",
        READ,
    ),
    Mutant(
        "a batch that fits exactly into max_bytes is left out",
        "broker/storage/log_segment.py",
        "at + header.size > max_bytes and",
        "at + header.size >= max_bytes and",
        READ,
    ),
    Mutant(
        "checksums of batches are not compared",
        "broker/storage/file_records.py",
        "        if computed != header.checksum:\n"
        "            raise CorruptBatchError("
        "self.path, origin + at, describe_mismatch(header, computed))\n",
        "",
        READ,
    ),
    Mutant(
        "the checksum of a large batch is that of its last piece",
        "broker/storage/file_records.py",
        "computed = self.crc(piece, computed)",
        "computed = self.crc(piece)",
        OPEN,
    ),
    Mutant(
        "a batch may repeat the last offset of the batch before",
        "broker/storage/file_records.py",
        "if base < min_offset or",
        "if base < min_offset - 1 or",
        READ,
    ),
    Mutant(
        "a leader epoch that is too old is not noticed",
        "broker/storage/file_records.py",
        "            if header.leader_epoch != expected:",
        "            if header.leader_epoch > expected:",
        READ,
    ),
    Mutant(
        "index entries are off by one",
        "broker/storage/index.py",
        "OFFSET_ENTRY.pack(last_offset - self._base, position)",
        "OFFSET_ENTRY.pack(last_offset - self._base + 1, position)",
        INDEX,
    ),
    Mutant(
        "the newest timestamp is attributed to the last batch that has it",
        "broker/storage/index.py",
        "        if timestamp > self.max_timestamp:",
        "        if timestamp >= self.max_timestamp:",
        INDEX,
    ),
    Mutant(
        "a record with exactly the newest timestamp is not found",
        "broker/storage/log_segment.py",
        "if find_max_timestamp(segment)[0] < timestamp:",
        "if find_max_timestamp(segment)[0] <= timestamp:",
        INDEX,
    ),
    Mutant(
        "a look-up by time begins behind the first record of that time",
        "broker/storage/log_segment.py",
        "row = segment.time_index.find_at_or_below(timestamp - 1)",
        "row = segment.time_index.find_at_or_below(timestamp)",
        INDEX,
    ),
    Mutant(
        "an index entry is believed without a look at the log",
        "broker/storage/log_segment.py",
        "if header is None or header.last_offset != segment.base_offset + relative:\n"
        "        return None\n"
        "    return BatchPosition(position, None)",
        "if header is None:\n        return None\n    return BatchPosition(position, None)",
        INDEX,
    ),
    Mutant(
        "the newest of five batches of a producer is forgotten",
        "broker/storage/producer_state.py",
        "del producer.batches[0]",
        "del producer.batches[-1]",
        PRODUCER,
    ),
    Mutant(
        "sequences do not begin again after the highest",
        "broker/storage/producer_state.py",
        "if first != last + 1 and not (first == 0 and last == MAX_INT):",
        "if first != last + 1:",
        PRODUCER,
    ),
    Mutant(
        "the last sequence of a batch does not wrap around",
        "broker/storage/producer_state.py",
        "(first + header.last_offset_delta) & MAX_INT",
        "(first + header.last_offset_delta)",
        PRODUCER,
    ),
    Mutant(
        "a producer expires one millisecond late",
        "broker/storage/producer_state.py",
        "if each.timestamp <= limit]",
        "if each.timestamp < limit]",
        PRODUCER,
    ),
    Mutant(
        "a producer expires in the middle of its transaction",
        "broker/storage/producer_state.py",
        "            if self._entries[key].open_transaction_offset is None:\n"
        "                del self._entries[key]",
        "            del self._entries[key]",
        PRODUCER,
    ),
    Mutant(
        "a fenced producer's last epoch may still write",
        "broker/storage/producer_state.py",
        "elif epoch < producer.epoch:",
        "elif epoch < producer.epoch - 1:",
        PRODUCER,
    ),
    Mutant(
        "a transaction that ended holds the last stable offset back",
        "broker/storage/producer_state.py",
        "        self._open_transactions.pop(first, None)\n",
        "",
        PRODUCER,
    ),
    Mutant(
        "an aborted transaction that ends where a fetch begins is left out",
        "broker/storage/index.py",
        "entry.last_offset >= first and",
        "entry.last_offset > first and",
        FETCH_COMMITTED,
    ),
    Mutant(
        "the recovery point is read but not used",
        "broker/storage/recovery.py",
        "first = log_segment.find_row(self.segments, self.log.recovery_point)",
        "first = len(self.segments) - 1",
        OPEN,
    ),
    Mutant(
        "after a kill all that was found counts as flushed",
        "broker/storage/recovery.py",
        "self.log.recovery_point = end if clean else min(self.log.recovery_point, end)",
        "self.log.recovery_point = end",
        OPEN,
    ),
    Mutant(
        "a segment that was cut keeps its old size",
        "broker/storage/recovery.py",
        "        segment.size = damage.position\n",
        "",
        OPEN,
    ),
    Mutant(
        "a snapshot from behind the log's end is used",
        "broker/storage/producer_state.py",
        "if start < offset <= end:",
        "if start < offset:",
        PRODUCER,
    ),
    Mutant(
        "a snapshot's checksum is not compared",
        "broker/storage/producer_state.py",
        "if computed != stored:",
        "if computed < 0:",
        PRODUCER,
    ),
    Mutant(
        "compaction drops the last record of each key",
        "broker/storage/compaction.py",
        "if offset < last_offset_of(",
        "if offset <= last_offset_of(",
        COMPACTION,
    ),
    Mutant(
        "a tombstone gets no time at which it may go",
        "broker/storage/compaction.py",
        "if header.delete_horizon is None and any(group.value_size[row] < 0 for row in rows):",
        "if header.delete_horizon is not None and any(group.value_size[row] < 0 for row in rows):",
        COMPACTION,
    ),
    Mutant(
        "a tombstone stays one millisecond too long",
        "broker/storage/compaction.py",
        "header.delete_horizon is not None and header.delete_horizon <= self._now",
        "header.delete_horizon is not None and header.delete_horizon < self._now",
        COMPACTION,
    ),
    Mutant(
        "compaction drops the batch that holds the last offset",
        "broker/storage/compaction.py",
        "if header.last_offset + 1 == self._limit or self._is_last_of_producer(header):",
        "if self._is_last_of_producer(header):",
        COMPACTION,
    ),
    Mutant(
        "compaction goes into an open transaction",
        "broker/storage/compaction.py",
        "allowed = min(log.last_stable_offset, segments[-1].base_offset)",
        "allowed = segments[-1].base_offset",
        COMPACTION,
    ),
    Mutant(
        "retention.bytes leaves one segment too many",
        "broker/storage/log.py",
        "excess >= segment.size",
        "excess > segment.size",
        RETENTION,
    ),
    Mutant(
        "retention.ms deletes one millisecond early",
        "broker/storage/log.py",
        "> config.retention\n",
        ">= config.retention\n",
        RETENTION,
    ),
    Mutant(
        "the end of the latest leader epoch is not known",
        "broker/storage/checkpoint.py",
        "if epoch > self.latest:",
        "if epoch >= self.latest:",
        EPOCHS,
    ),
)

REPLAY = (
    Mutant(
        "a member that is gone makes another round of a rebalance",
        "engine/history/rebalances.py",
        " if member_identity(one) in staying",
        "",
        CLASSIC,
    ),
    Mutant(
        "each generation counts as one that was not seen",
        "engine/history/rebalances.py",
        "yield max(generation_distance(one.generation, number) - 1, 0)",
        "yield max(generation_distance(one.generation, number), 0)",
        CLASSIC,
    ),
    Mutant(
        "the first epoch of a Kafka 4.1 is not taken for the first",
        "engine/history/rebalances.py",
        "FIRST_GENERATION if is_classic else FIRST_EPOCH",
        "FIRST_GENERATION if is_classic else FIRST_EPOCH - 1",
        CONSUMER,
    ),
    Mutant(
        "a rebalance begins from an empty generation",
        "engine/history/rebalances.py",
        "self._before = generation if generation.members else None",
        "self._before = generation",
        CLASSIC,
    ),
    Mutant(
        "a topic that a member still has counts as absent",
        "engine/history/rebalances.py",
        "    present |= {topic for member in following.members for topic in member.owned}\n",
        "",
        CLASSIC,
    ),
    Mutant(
        "a static member's return is a rebalance",
        "engine/history/generations.py",
        "if last is not None and last.generation == entry.generation:",
        "if last is not None and last.generation > entry.generation:",
        CLASSIC,
    ),
    Mutant(
        "partitions owned since generation 0 have no generation",
        "engine/history/generations.py",
        "None if owned is None or owned.generation < 0 else",
        "None if owned is None or owned.generation <= 0 else",
        CLASSIC,
    ),
    Mutant(
        "generation numbers do not wrap around",
        "engine/history/generations.py",
        "return distance if distance < _GENERATION_NUMBERS // 2 else",
        "return distance if distance < _GENERATION_NUMBERS else",
        CLASSIC,
    ),
    Mutant(
        "a tombstone does not end a group's incarnation",
        "engine/history/generations.py",
        "self.incarnation += 1",
        "self.incarnation += 0",
        CLASSIC,
    ),
    Mutant(
        "members of a deleted group go on owning partitions",
        "engine/history/generations.py",
        "        self.ownership.keep_only((), at)\n",
        "",
        CLASSIC,
    ),
    Mutant(
        "an ownership ends with the generation in which it began",
        "engine/history/generations.py",
        "        span.to_generation = self._generation[key[2]]\n",
        "",
        CLASSIC,
    ),
    Mutant(
        "an ownership that lasted no time is reported",
        "engine/history/generations.py",
        "self._finished += (one for one in self._ended.values() if one.until != one.since)",
        "self._finished += self._ended.values()",
        CLASSIC,
    ),
    Mutant(
        "the window begins at the last of incomplete records",
        "engine/history/journal_window.py",
        "Window(offset=last.offset + 1, at=last.at, is_whole=False)",
        "Window(offset=last.offset, at=last.at, is_whole=False)",
        CLEANED,
    ),
    Mutant(
        "a consumer group is complete while its target is behind its epoch",
        "engine/history/journal_window.py",
        "if epoch is not None and epoch == target:",
        "if epoch is not None:",
        CLEANED,
    ),
    Mutant(
        "a commit long before it left shows that a member was there",
        "engine/history/causes.py",
        "min(session, poll) * FRESH",
        "max(session, poll) * FRESH",
        CAUSE,
    ),
    Mutant(
        "one member that left explains another that fell silent",
        "engine/history/causes.py",
        "if all(_was_active(case, member) for member in diff.left):",
        "if any(_was_active(case, member) for member in diff.left):",
        CAUSE,
    ),
    Mutant(
        "a generation that was not saved makes no gap",
        "engine/history/causes.py",
        "if generation_distance(self.first.generation, self.before.generation) != 1:",
        "if generation_distance(self.first.generation, self.before.generation) > 2:",
        CAUSE,
    ),
    Mutant(
        "the first call to join of a rebalance is not found",
        "engine/history/causes.py",
        '"preparing", base, end.generation - 1',
        '"preparing", base + 1, end.generation - 1',
        CAUSE,
    ),
    Mutant(
        "a cause is attributed to the member that left first",
        "engine/history/causes.py",
        "client, member_id = leave_lines[0].client_reason, leave_lines[0].member_id",
        "client, member_id = leave_lines[-1].client_reason, leave_lines[-1].member_id",
        CAUSE,
    ),
    Mutant(
        "a member that was closed polled too late",
        "engine/history/causes.py",
        "if _find_last_join(evidence, member.member_id) > at - interval:",
        "if _find_last_join(evidence, member.member_id) > at + interval:",
        CAUSE,
    ),
    Mutant(
        "a commit at the very moment is not seen",
        "engine/history/causes.py",
        'position = int(np.searchsorted(times, until, side="right"))',
        'position = int(np.searchsorted(times, until, side="left"))',
        COMMIT,
    ),
    Mutant(
        "a commit of the generation before counts",
        "engine/history/causes.py",
        "times[position - 1] > newest:",
        "times[position - 1] >= newest:",
        COMMIT,
    ),
    Mutant(
        "a partition has its old owner at the moment of the handover",
        "engine/history/lag.py",
        "(at < self.until[interval])",
        "(at <= self.until[interval])",
        LAG,
    ),
    Mutant(
        "the end passes an offset one record early",
        "engine/history/lag.py",
        "wait = (offset + 1 - self.end[before])",
        "wait = (offset - self.end[before])",
        LAG,
    ),
    Mutant(
        "a sample does not reach to the edge of its reach",
        "engine/history/lag.py",
        "(elapsed <= max_age)",
        "(elapsed < max_age)",
        LAG,
    ),
    Mutant(
        "a consumer at the end waits for a record that is not there",
        "engine/history/lag.py",
        "np.where(upcoming >= end, 0.0, seconds)",
        "np.where(upcoming > end, 0.0, seconds)",
        LAG,
    ),
    Mutant(
        "a static member that is down gave everything up",
        "engine/history/rebalances.py",
        "reported >= before.generation",
        "reported >= before.generation - 1",
        COST,
    ),
    Mutant(
        "what an eager rebalance gives nobody has moved",
        "engine/history/rebalances.py",
        "if not _may_be_cooperative(after):",
        "if after.kind is not GroupType.CLASSIC:",
        COST,
    ),
    Mutant(
        "a static member that is back is another member",
        "engine/history/rebalances.py",
        "new = {member_identity(member): member for member in joined.members}",
        "new = {member.member_id: member for member in joined.members}",
        CAUSE,
    ),
    Mutant(
        "an empty value is a tombstone",
        "engine/formats/journal.py",
        "tombstone = values.size[rows] < 0",
        "tombstone = values.size[rows] <= 0",
        JOURNAL_COLUMN,
    ),
    Mutant(
        "offsets of Kafka before 0.9 are passed over",
        "engine/formats/journal.py",
        "(kind >= LEGACY_OFFSET_TYPE)",
        "(kind > LEGACY_OFFSET_TYPE)",
        JOURNAL_COLUMN,
    ),
    Mutant(
        "bytes behind an offset are passed over",
        "engine/formats/journal.py",
        "good &= after == end",
        "good &= after <= end",
        JOURNAL_COLUMN,
    ),
    Mutant(
        "a static id is read one version too early",
        "engine/formats/journal_classic.py",
        'reader.nullable_string("static id") if version >= 3 else None',
        'reader.nullable_string("static id") if version >= 2 else None',
        JOURNAL,
    ),
)
