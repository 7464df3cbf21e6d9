"""Runs the group coordinators: appends their entries to the journal, reports the result to them,
then sends their responses.

The journal is the topic ``__consumer_offsets``. Each of its partitions has a coordinator of its
own, a *shard*, for the groups whose names hash to that partition. An append is complete when it
returns. A coordinator's commands are executed in order, so no response leaves before its entries
are in the journal.

:func:`replay_journal` reads the entries of a partition back, when a shard is loaded.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from logging import ERROR, INFO, WARNING
from typing import Protocol, TypeAlias, TypeVar, assert_never

import numpy as np

from rota.broker.storage.log import Log
from rota.broker.timers import Timers
from rota.broker.topics import Topic, Topics
from rota.engine.coordinator import events
from rota.engine.coordinator.coordinator import Coordinator, journal_partition
from rota.engine.coordinator.kafka_log import format_note, format_refusal
from rota.engine.coordinator.notes import GroupFull, GroupNote, ProtocolMismatch
from rota.engine.formats import (
    journal,
    journal_classic,
    record_batch,
    record_batch_columns,
    record_batch_scan,
)
from rota.engine.formats.buffer import BoolArray, Bytes, Int64Array
from rota.engine.formats.journal import encode_entry
from rota.engine.formats.journal_classic import GROUP_TYPE
from rota.engine.model.config import GroupConfig
from rota.engine.model.journal_entry import JournalEntry
from rota.engine.model.request import (
    DeleteGroups,
    DescribeGroups,
    GroupRequest,
    ListGroups,
    OffsetFetch,
)
from rota.engine.model.response import (
    DeleteGroupsResult,
    DescribedGroup,
    DescribeGroupsResult,
    GroupResponse,
    ListGroupsResult,
    OffsetFetchResult,
    make_error_response,
)
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC
from rota.errors import Code, DiskError, FormatError, InputError, Refused

MOVED_TIMEOUT = 10_000  # milliseconds until a moved journal partition is loaded again
OnResponse: TypeAlias = Callable[[GroupResponse], None]
ResultT = TypeVar("ResultT", bound=GroupResponse)


@dataclass(slots=True, eq=False, repr=False)
class CoordinatorShard:
    number: int
    coordinator: Coordinator
    moved: bool = False  # the partition was unloaded; the next FindCoordinator loads it again
    append_error: str = ""


class GroupCoordinatorService:
    def __init__(  # noqa: PLR0913
        self,
        config: GroupConfig,
        topics: Topics,
        timers: Timers,
        new_id: Callable[[], str],
        log: Callable[[int, str], None],
        *,
        node_id: int = 1,
    ) -> None:
        self.config = config
        self._topics = topics
        self._timers = timers
        self._new_id = new_id
        self._log = log
        self._node_id = node_id
        #: Empty before the journal exists.
        self._shards: list[CoordinatorShard] = []
        self._pending_requests: dict[int, OnResponse] = {}
        self._tokens = 0
        self._commands: deque[tuple[CoordinatorShard, events.CoordinatorCommand, int]] = deque()
        self._executing = False
        topics.on_deleted(self._topic_deleted)

    def load(self, now: int) -> None:
        topic = self._topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is not None:
            self._open(topic, now)

    def find_coordinator(self, group: str, now: int) -> Code:
        """Returns an error code; creates the journal, and loads a group that was moved away."""
        try:
            shard = self._shard(group, now)
        except (DiskError, Refused) as error:
            self._log(ERROR, f"{CONSUMER_OFFSETS_TOPIC} cannot be made: {error}")
            return Code.COORDINATOR_NOT_AVAILABLE
        if shard.moved:
            self._load(shard, now)
        return Code.NONE

    def move_coordinator(self, group: str, now: int) -> None:
        shard = self._shard(group, now)
        self._run(shard, events.JournalUnloaded(), now)
        shard.moved = True
        self._timers.start(("moved", shard.number), now + MOVED_TIMEOUT, partial(self._load, shard))

    def _open(self, topic: Topic, now: int) -> None:
        self._shards = [
            CoordinatorShard(number, Coordinator(self.config, self._new_id))
            for number in range(topic.partition_count)
        ]
        for shard in self._shards:
            self._load(shard, now)

    def _shard(self, group: str, now: int) -> CoordinatorShard:
        if not self._shards:
            self._open(self._topics.get_or_create_journal(now), now)
        return self._shards[journal_partition(group, len(self._shards))]

    def _load(self, shard: CoordinatorShard, now: int) -> None:
        """Loads a partition; a damaged one is not served, so that no offset goes back."""
        shard.moved = False
        self._timers.stop(("moved", shard.number))
        self._run(shard, events.JournalLoadStarted(), now)
        log = self._journal_log(shard)
        try:
            log.check_online()
            replayed = replay_journal(log, shard.coordinator.replay)
        except (DiskError, Refused) as error:
            self._write_log(
                shard, ERROR, f"Its groups are not available because it cannot be read: {error}"
            )
            self._run(shard, events.JournalUnloaded(), now)
            return
        if replayed.skipped_types:
            counts = sorted(replayed.skipped_types.items())
            skipped = ", ".join(f"{count} {name}" for name, count in counts)
            text = f"Skipped records of types that Rota does not load: {skipped}."
            self._write_log(shard, WARNING, text)
        if replayed.errors:
            count, first = len(replayed.errors), replayed.errors[0]
            self._write_log(shard, ERROR, f"{count} records cannot be decoded; the first: {first}")
        self._run(shard, events.JournalLoaded(), now)

    def ask(self, request: GroupRequest, on_response: OnResponse, now: int) -> None:
        """Passes a request to its coordinators; ``on_response`` is called once, maybe later."""
        try:
            match request:
                case ListGroups():  # a shard that is not loaded has no groups, as in Kafka
                    coordinators = [shard.coordinator for shard in self._shards]
                    on_response(_list_groups(coordinators, request, now))
                case DescribeGroups():
                    names = dict.fromkeys(request.groups)
                    coordinators = [self._shard(name, now).coordinator for name in names]
                    on_response(_describe_groups(coordinators, request, now))
                case DeleteGroups():
                    self._delete(request, on_response, now)
                case _:
                    self._request(self._shard(request.group, now), request, on_response, now)
        except (DiskError, Refused) as error:
            self._log(ERROR, f"{CONSUMER_OFFSETS_TOPIC} cannot be made: {error}")
            on_response(make_error_response(request, Code.COORDINATOR_NOT_AVAILABLE))

    # For the test control: also of groups that were moved away, without loading them

    def list_groups(self, now: int) -> ListGroupsResult:
        coordinators = [self._coordinator_or_copy(shard, now) for shard in self._shards]
        return _list_groups(coordinators, ListGroups(), now)

    def describe_group(self, group: str, now: int) -> DescribedGroup:
        request = DescribeGroups(groups=(group,))
        return _describe_groups([self._coordinator_of(group, now)], request, now).groups[0]

    def fetch_offsets(self, group: str, now: int) -> OffsetFetchResult:
        coordinator = self._coordinator_of(group, now)
        return _read(coordinator, OffsetFetch(group=group), OffsetFetchResult, now)

    def _coordinator_of(self, group: str, now: int) -> Coordinator:
        if not self._shards:
            return Coordinator(self.config, self._new_id)
        return self._coordinator_or_copy(self._shard(group, now), now)

    def _coordinator_or_copy(self, shard: CoordinatorShard, now: int) -> Coordinator:
        """Returns a shard's coordinator, or the one that another broker has after a move."""
        if not shard.moved:
            return shard.coordinator
        log = self._journal_log(shard)
        copy = Coordinator(self.config, self._new_id)
        copy.handle(events.JournalLoadStarted(), now)
        log.check_online()
        replay_journal(log, copy.replay)
        copy.handle(events.JournalLoaded(), now)
        return copy

    def _journal_log(self, shard: CoordinatorShard) -> Log:
        log = self._topics.get_log(CONSUMER_OFFSETS_TOPIC, shard.number)
        assert log is not None, f"{CONSUMER_OFFSETS_TOPIC} has no partition {shard.number}"
        return log

    def _request(
        self, shard: CoordinatorShard, request: GroupRequest, on_response: OnResponse, now: int
    ) -> None:
        self._tokens += 1
        self._pending_requests[self._tokens] = on_response
        self._run(shard, events.RequestReceived(self._tokens, request), now)

    def _delete(self, request: DeleteGroups, on_response: OnResponse, now: int) -> None:
        shards = {name: self._shard(name, now) for name in request.groups}
        codes: dict[str, Code] = {}

        def add_result(result: GroupResponse) -> None:
            assert isinstance(result, DeleteGroupsResult)
            codes.update(result.codes)
            if len(codes) == len(shards):
                on_response(DeleteGroupsResult(codes={name: codes[name] for name in shards}))

        if not shards:
            on_response(DeleteGroupsResult(codes={}))
        for name, shard in shards.items():
            self._request(shard, DeleteGroups(groups=(name,)), add_result, now)

    def expire_member(self, group: str, member_id: str, now: int) -> None:
        """Ends a member's session now; raises InputError if there is no such member."""
        member_ids = [each.member_id for each in self.describe_group(group, now).members]
        if member_id not in member_ids:
            members = ", ".join(member_ids) or "none"
            raise InputError(f"group {group!r} has no member {member_id!r}; its members: {members}")
        shard = self._shard(group, now)
        if shard.moved:
            self._load(shard, now)
        key = events.GroupTimerKey(events.GroupTimerKind.SESSION, group, member_id)
        self._timers.stop((shard.number, key))
        self._run(shard, events.GroupTimerFired(key), now)

    def _topic_deleted(self, topic: Topic, now: int) -> None:
        if topic.name != CONSUMER_OFFSETS_TOPIC:
            for shard in self._shards:
                self._run(shard, events.TopicsDeleted(((topic.name, topic.id),)), now)
            return
        shards, self._shards = self._shards, []
        for shard in shards:
            self._timers.stop(("moved", shard.number))
            self._run(shard, events.JournalUnloaded(), now)

    def _run(self, shard: CoordinatorShard, event: events.CoordinatorEvent, now: int) -> None:
        """Executes a coordinator's commands, after those of the events before."""
        commands = shard.coordinator.handle(event, now)
        self._commands.extend((shard, command, now) for command in commands)
        if self._executing:
            return
        self._executing = True
        try:
            while self._commands:
                self._execute(*self._commands.popleft())
        finally:
            self._executing = False

    def _execute(
        self, shard: CoordinatorShard, command: events.CoordinatorCommand, now: int
    ) -> None:
        match command:
            case events.SendResponse(token, response):
                self._pending_requests.pop(token)(response)
            case events.StartGroupTimer(key, at):
                fire = partial(self._run, shard, events.GroupTimerFired(key))
                lenient = key.kind is events.GroupTimerKind.RETENTION
                self._timers.start((shard.number, key), at, fire, lenient=lenient)
            case events.StopGroupTimer(key):
                self._timers.stop((shard.number, key))
            case events.AppendEntries(append_id):
                code = self._append(shard, command, now)
                succeeded = events.AppendSucceeded(append_id)
                self._run(shard, events.AppendFailed(append_id, code) if code else succeeded, now)
            case GroupNote():
                self._log_note(shard, command)
            case _:
                assert_never(command)

    def _append(self, shard: CoordinatorShard, append: events.AppendEntries, now: int) -> Code:
        try:
            pairs = list(map(encode_entry, append.entries))
            self._topics.append_records(CONSUMER_OFFSETS_TOPIC, shard.number, pairs, now)
        except FormatError as error:
            text = f"A request is refused because its record cannot be encoded: {error}"
            self._write_log(shard, WARNING, text)
            return Code.UNKNOWN
        except (DiskError, Refused) as error:
            if shard.append_error != str(error):  # each error is logged once, not for each retry
                shard.append_error = str(error)
                name = f"{CONSUMER_OFFSETS_TOPIC}-{shard.number}"
                self._write_log(shard, ERROR, f"{name} cannot be written; members wait: {error}")
            return error.code if isinstance(error, Refused) else Code.KAFKA_STORAGE_ERROR
        if shard.append_error:
            shard.append_error = ""
            name = f"{CONSUMER_OFFSETS_TOPIC}-{shard.number}"
            self._write_log(shard, INFO, f"{name} can be written again.")
        return Code.NONE

    def _log_note(self, shard: CoordinatorShard, note: GroupNote) -> None:
        if isinstance(note.change, GroupFull | ProtocolMismatch):
            why = format_refusal(note.change)
            self._write_log(shard, WARNING, f"A member of group {note.group} is refused: {why}")
        for text in format_note(note):
            self._write_log(shard, INFO, text)

    def _write_log(self, shard: CoordinatorShard, level: int, text: str) -> None:
        """Writes a line in the format of Kafka's broker, so that tools for its log can read it."""
        where = f"id={self._node_id} topic={CONSUMER_OFFSETS_TOPIC} partition={shard.number}"
        self._log(level, f"[GroupCoordinator {where}] {text}")


def _read(
    coordinator: Coordinator, request: GroupRequest, result_class: type[ResultT], now: int
) -> ResultT:
    """Returns the response to a read-only request; the coordinator returns no other command."""
    (command,) = coordinator.handle(events.RequestReceived(0, request), now)
    assert isinstance(command, events.SendResponse)
    assert isinstance(command.response, result_class)
    return command.response


def _describe_groups(
    coordinators: Iterable[Coordinator], request: DescribeGroups, now: int
) -> DescribeGroupsResult:
    """Describes each group once, by its own coordinator, in the order of their first names."""
    names = dict.fromkeys(request.groups)
    described = {
        name: _read(each, replace(request, groups=(name,)), DescribeGroupsResult, now).groups[0]
        for name, each in zip(names, coordinators, strict=True)
    }
    return DescribeGroupsResult(groups=tuple(described[name] for name in request.groups))


def _list_groups(
    coordinators: Iterable[Coordinator], request: ListGroups, now: int
) -> ListGroupsResult:
    results = [_read(each, request, ListGroupsResult, now) for each in coordinators]
    groups = [group for each in results for group in each.groups]
    return ListGroupsResult(groups=tuple(sorted(groups, key=lambda group: group.group)))


REPLAY_CHUNK = 4 << 20
ApplyEntry: TypeAlias = Callable[[JournalEntry], None]


class JournalLog(Protocol):
    """A :class:`~rota.broker.storage.log.Log`, or a recorded one."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def read(self, offset: int, max_bytes: int) -> Bytes: ...


@dataclass(slots=True)
class ReplayResult:
    records: int = 0
    #: Records of groups that are not classic, by Kafka's name of their type.
    skipped_types: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)


def replay_journal(log: JournalLog, apply_entry: ApplyEntry) -> ReplayResult:
    """Calls ``apply_entry`` with every entry of a journal partition, oldest first. Leaves out
    commits that are followed by another commit of the same partition, and the entries of
    transactions that were aborted or have no end: the broker has no transactions to end them.
    Raises Refused for a damaged batch.
    """
    reader = _JournalReader(apply_entry)
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        data = log.read(offset, REPLAY_CHUNK)
        scan = record_batch_scan.find_batches(data)
        if not len(scan):
            break
        reader.read(data)
        last_batch = record_batch.read_batch_header(data, int(scan.positions[-1]))
        offset = last_batch.last_offset + 1
    return reader.result


class _JournalReader:
    """Reads a log in chunks; a transaction may go on in the next chunk."""

    def __init__(self, apply_entry: ApplyEntry) -> None:
        self.result = ReplayResult()
        self._apply_entry = apply_entry
        self._open_transactions: dict[int, list[JournalEntry]] = {}

    def read(self, data: Bytes) -> None:
        # reading the log has checked the batches
        columns = record_batch_columns.decode_batches(data, check=False)
        self.result.errors += [str(problem) for problem in columns.problems]
        self.result.records += len(columns.offset)
        entries = journal.decode_batch_entries(columns)
        kinds, counts = np.unique(entries.type, return_counts=True)
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
            if not 0 <= kind <= GROUP_TYPE and kind != journal.NO_TYPE:
                name = journal_classic.RECORD_NAMES.get(kind, journal.UNKNOWN_RECORD_NAME)
                self.result.skipped_types[name] += count
        selected: BoolArray = (entries.type >= 0) & (entries.type <= GROUP_TYPE)
        selected[entries.undecoded_rows] = True
        if self._open_transactions or columns.batches.transactional.any():
            self._by_batch(columns, selected)
        else:
            selected[_find_superseded_commits(entries)] = False
            self._decode_rows(columns, np.flatnonzero(selected), None)

    def _by_batch(self, columns: record_batch_columns.RecordColumns, selected: BoolArray) -> None:
        batches = columns.batches
        bounds = np.searchsorted(columns.batch, np.arange(len(batches) + 1))
        for number, (start, end) in enumerate(pairwise(bounds.tolist())):
            producer = int(batches.producer_id[number])
            if batches.control[number]:
                entries_of_transaction = self._open_transactions.pop(producer, [])
                if batches.marker[number] == record_batch.ControlRecordType.COMMIT:
                    for entry in entries_of_transaction:
                        self._apply_entry(entry)
            else:
                owner = producer if batches.transactional[number] else None
                self._decode_rows(columns, start + np.flatnonzero(selected[start:end]), owner)

    def _decode_rows(
        self, columns: record_batch_columns.RecordColumns, rows: Int64Array, producer: int | None
    ) -> None:
        handle_entry = self._apply_entry
        if producer is not None and len(rows):
            handle_entry = self._open_transactions.setdefault(producer, []).append
        data = columns.buffer.data
        fields = (columns.key_start, columns.key_size, columns.value_start, columns.value_size)
        for row, key_at, key_size, value_at, value_size in zip(
            rows.tolist(), *(each[rows].tolist() for each in fields), strict=True
        ):
            key = data[key_at : key_at + max(key_size, 0)]
            value = None if value_size < 0 else data[value_at : value_at + value_size]
            try:
                handle_entry(journal.decode_record(key, value))
            except FormatError as error:
                self.result.errors.append(f"offset {columns.offset[row]}: {error}")


def _find_superseded_commits(entries: journal.EntryColumns) -> Int64Array:
    """Returns the rows of commits whose next entry for the same partition is a commit too."""
    commits = entries.commits
    order = np.lexsort((commits.row, commits.partition, commits.topic, commits.group))
    same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for key in (commits.group, commits.topic, commits.partition):
        sorted_key = key[order]
        same &= sorted_key[1:] == sorted_key[:-1]
    is_commit = ~commits.tombstone[order]
    same &= is_commit[1:] & is_commit[:-1]
    return commits.row[order[:-1][same]]
