"""Runs the group coordinators: appends their entries to the journal, tells them, then sends their
replies.

The journal is the topic ``__consumer_offsets``. Each of its partitions has a coordinator of its
own, a *shard*, for the groups whose names hash to that partition. An append is complete when it
returns, so a coordinator is told of it at once. Its commands are carried out in order, so no reply
leaves before its entries are in the journal.

:func:`replay_journal` reads the entries of a partition back, when a shard is loaded.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Protocol, TypeAlias, assert_never

import numpy as np

from rota.broker.timers import Timers
from rota.broker.topics import Topic, Topics
from rota.engine.coordinator.coordinator import Coordinator, journal_partition
from rota.engine.coordinator.events import (
    AppendEntries,
    AppendFailed,
    AppendSucceeded,
    CoordinatorCommand,
    CoordinatorEvent,
    GroupTimerFired,
    GroupTimerKey,
    GroupTimerKind,
    JournalLoaded,
    JournalLoadStarted,
    JournalUnloaded,
    RequestReceived,
    SendResponse,
    StartGroupTimer,
    StopGroupTimer,
    TopicsDeleted,
)
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
    ListedGroup,
    ListGroupsResult,
    make_error_response,
)
from rota.engine.model.text import CONSUMER_OFFSETS_TOPIC
from rota.errors import Code, DiskError, FormatError, InputError, Refused

#: So long, in milliseconds, a journal partition that was moved away stays away if nobody asks.
MOVED_TIMEOUT = 10_000

INFO, WARNING, ERROR = 20, 30, 40

OnReply: TypeAlias = Callable[[GroupResponse], None]


class CoordinatorShard:
    """A journal partition and its coordinator."""

    def __init__(self, number: int, coordinator: Coordinator) -> None:
        self.number = number
        self.coordinator = coordinator
        #: It was unloaded, and is loaded again when somebody looks for it.
        self.moved = False
        #: Why the last append failed.
        self.append_error = ""


class GroupCoordinatorService:
    """All groups of a broker. A request is handled inside the call that brings it, except
    joins and syncs that wait for other members, and timers.
    """

    def __init__(  # noqa: PLR0913 (what groups need)
        self,
        config: GroupConfig,
        topics: Topics,
        alarms: Timers,
        new_id: Callable[[], str],
        log: Callable[[int, str], None],
        *,
        node_id: int = 1,
    ) -> None:
        self.config = config
        self._topics = topics
        self._timers = alarms
        self._new_id = new_id
        self._log = log
        self._node_id = node_id
        #: None before there is a journal.
        self._shards: list[CoordinatorShard] = []
        self._pending_requests: dict[int, tuple[GroupRequest, OnReply]] = {}
        self._tokens = 0
        self._commands: deque[tuple[CoordinatorShard, CoordinatorCommand, int]] = deque()
        self._carrying_out = False
        topics.on_deleted(self._topic_deleted)

    # where groups are

    def load(self, now: int) -> None:
        """Replays the journal, if there is one: at the broker's start."""
        topic = self._topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is not None:
            self._open(topic, now)

    def find_coordinator(self, group: str, now: int) -> Code:
        """Returns the error code for FindCoordinator; creates the journal if needed, and
        loads a group that was moved away.
        """
        try:
            shard = self._shard(group, now)
        except (DiskError, Refused) as error:
            self._log(ERROR, f"{CONSUMER_OFFSETS_TOPIC} cannot be made: {error}")
            return Code.COORDINATOR_NOT_AVAILABLE
        if shard.moved:
            self._load(shard, now)
        return Code.NONE

    def move_coordinator(self, group: str, now: int) -> None:
        """Unloads a group, with all of its journal partition, as if another broker took over.

        Its members are told so, and it is loaded again as soon as somebody looks for it.
        """
        shard = self._shard(group, now)
        self._run(shard, JournalUnloaded(), now)
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
        """Loads a partition of the journal. A damaged one is not served, as in Kafka: offsets
        that silently go back do more harm than a group that waits.
        """
        shard.moved = False
        self._timers.stop(("moved", shard.number))
        self._run(shard, JournalLoadStarted(), now)
        log = self._topics.get_log(CONSUMER_OFFSETS_TOPIC, shard.number)
        assert log is not None, f"{CONSUMER_OFFSETS_TOPIC} has no partition {shard.number}"
        try:
            log.check_online()
            told = replay_journal(log, shard.coordinator.replay)
        except (DiskError, Refused) as error:
            self._write_log(
                shard, ERROR, f"Its groups are not served, for it cannot be read: {error}"
            )
            self._run(shard, JournalUnloaded(), now)
            return
        self._log_replay(shard, told)
        self._run(shard, JournalLoaded(), now)

    def _log_replay(self, shard: CoordinatorShard, told: ReplayResult) -> None:
        if told.skipped_types:
            kinds = ", ".join(
                f"{count} {name}" for name, count in sorted(told.skipped_types.items())
            )
            text = f"Passed over, for only classic groups and offsets are read: {kinds}."
            self._write_log(shard, WARNING, text)
        if told.errors:
            text = f"{len(told.errors)} records cannot be read; the first: {told.errors[0]}"
            self._write_log(shard, ERROR, text)

    # requests

    def ask(self, request: GroupRequest, then: OnReply, now: int) -> None:
        """Puts a request to its coordinator; ``then`` is called once, with the reply."""
        try:
            match request:
                case ListGroups():
                    self._list(request, then, now)
                case DescribeGroups():
                    self._describe(request, then, now)
                case DeleteGroups():
                    self._delete(request, then, now)
                case _:
                    self._request(self._shard(request.group, now), request, then, now)
        except (DiskError, Refused) as error:
            self._log(ERROR, f"{CONSUMER_OFFSETS_TOPIC} cannot be made: {error}")
            then(make_error_response(request, Code.COORDINATOR_NOT_AVAILABLE))

    def ask_read_only(
        self, request: DescribeGroups | OffsetFetch | ListGroups, now: int
    ) -> GroupResponse:
        """Answers a read-only request for the test control: also for groups that were moved
        away, without loading them.
        """
        match request:
            case OffsetFetch():
                return _read_reply(self._coordinator_of(request.group, now), request, now)
            case DescribeGroups():
                described: list[DescribedGroup] = []
                for name in request.groups:
                    reply = _read_reply(
                        self._coordinator_of(name, now), replace(request, groups=(name,)), now
                    )
                    assert isinstance(reply, DescribeGroupsResult)
                    described.extend(reply.groups)
                return DescribeGroupsResult(groups=tuple(described))
            case ListGroups():
                listed: list[ListedGroup] = []
                for shard in self._shards:
                    reply = _read_reply(self._coordinator_or_copy(shard, now), request, now)
                    assert isinstance(reply, ListGroupsResult)
                    listed.extend(reply.groups)
                return ListGroupsResult(groups=tuple(sorted(listed, key=lambda each: each.group)))
            case _:
                assert_never(request)

    def _coordinator_of(self, group: str, now: int) -> Coordinator:
        if not self._shards:
            return Coordinator(self.config, self._new_id)
        return self._coordinator_or_copy(self._shard(group, now), now)

    def _coordinator_or_copy(self, shard: CoordinatorShard, now: int) -> Coordinator:
        """A partition's coordinator; of one that was moved, as another broker would have it."""
        if not shard.moved:
            return shard.coordinator
        log = self._topics.get_log(CONSUMER_OFFSETS_TOPIC, shard.number)
        assert log is not None
        copy = Coordinator(self.config, self._new_id)
        copy.handle(JournalLoadStarted(), now)
        log.check_online()
        replay_journal(log, copy.replay)
        copy.handle(JournalLoaded(), now)
        return copy

    def _request(
        self, shard: CoordinatorShard, request: GroupRequest, then: OnReply, now: int
    ) -> None:
        self._tokens += 1
        self._pending_requests[self._tokens] = request, then
        self._run(shard, RequestReceived(self._tokens, request), now)

    def _list(self, request: ListGroups, then: OnReply, now: int) -> None:
        """Of all coordinators; one that is not here has no groups, as in Kafka."""
        found: list[ListedGroup] = []
        left = len(self._shards)

        def listed(reply: GroupResponse) -> None:
            nonlocal left
            assert isinstance(reply, ListGroupsResult)
            found.extend(reply.groups)
            left -= 1
            if not left:
                groups = tuple(sorted(found, key=lambda each: each.group))
                then(ListGroupsResult(groups=groups))

        if not left:
            then(ListGroupsResult())
        for shard in self._shards:
            self._request(shard, request, listed, now)

    def _describe(self, request: DescribeGroups, then: OnReply, now: int) -> None:
        found: dict[str, DescribedGroup] = {}
        names = dict.fromkeys(request.groups)

        def described(reply: GroupResponse) -> None:
            assert isinstance(reply, DescribeGroupsResult)
            found.update((group.group, group) for group in reply.groups)
            if len(found) == len(names):
                groups = tuple(found[name] for name in request.groups)
                then(DescribeGroupsResult(groups=groups))

        if not names:
            then(DescribeGroupsResult(groups=()))
        for name in names:
            one = DescribeGroups(
                groups=(name,), supports_group_id_not_found=request.supports_group_id_not_found
            )
            self._request(self._shard(name, now), one, described, now)

    def _delete(self, request: DeleteGroups, then: OnReply, now: int) -> None:
        codes: dict[str, Code] = {}
        names = dict.fromkeys(request.groups)

        def deleted(reply: GroupResponse) -> None:
            assert isinstance(reply, DeleteGroupsResult)
            codes.update(reply.codes)
            if len(codes) == len(names):
                then(DeleteGroupsResult(codes={name: codes[name] for name in names}))

        if not names:
            then(DeleteGroupsResult(codes={}))
        for name in names:
            self._request(self._shard(name, now), DeleteGroups(groups=(name,)), deleted, now)

    # what happens by itself

    def expire_member(self, group: str, member_id: str, now: int) -> None:
        """Ends a member's session, as if it had been silent for so long.

        :raises InputError: there is no such member
        """
        reply = self.ask_read_only(DescribeGroups(groups=(group,)), now)
        assert isinstance(reply, DescribeGroupsResult)
        known = [member.member_id for member in reply.groups[0].members]
        if member_id not in known:
            there = ", ".join(known) or "none"
            raise InputError(f"group {group!r} has no member {member_id!r}; its members: {there}")
        shard = self._shard(group, now)
        if shard.moved:
            self._load(shard, now)
        key = GroupTimerKey(GroupTimerKind.SESSION, group, member_id)
        self._timers.stop((shard.number, key))
        self._run(shard, GroupTimerFired(key), now)

    def _fire_timer(self, shard: CoordinatorShard, key: GroupTimerKey, now: int) -> None:
        self._run(shard, GroupTimerFired(key), now)

    def _topic_deleted(self, topic: Topic, now: int) -> None:
        if topic.name != CONSUMER_OFFSETS_TOPIC:
            for shard in self._shards:
                self._run(shard, TopicsDeleted(((topic.name, topic.id),)), now)
            return
        shards, self._shards = self._shards, []
        for shard in shards:
            self._timers.stop(("moved", shard.number))
            self._run(shard, JournalUnloaded(), now)

    # commands

    def _run(self, shard: CoordinatorShard, event: CoordinatorEvent, now: int) -> None:
        """Gives an event to a coordinator, and does what it says.

        Whoever is answered may ask again at once: that waits until what came before is done.
        """
        self._commands.extend((shard, command, now) for command in self._handled(shard, event, now))
        if self._carrying_out:
            return
        self._carrying_out = True
        try:
            while self._commands:
                self._carry_out(*self._commands.popleft())
        finally:
            self._carrying_out = False

    @staticmethod
    def _handled(
        shard: CoordinatorShard, event: CoordinatorEvent, now: int
    ) -> list[CoordinatorCommand]:
        return shard.coordinator.handle(event, now)

    def _carry_out(self, shard: CoordinatorShard, command: CoordinatorCommand, now: int) -> None:
        match command:
            case SendResponse(token, reply):
                _, then = self._pending_requests.pop(token)
                then(reply)
            case StartGroupTimer(key, at):
                ring = partial(self._fire_timer, shard, key)
                patient = key.kind is GroupTimerKind.RETENTION
                self._timers.start((shard.number, key), at, ring, patient=patient)
            case StopGroupTimer(key):
                self._timers.stop((shard.number, key))
            case AppendEntries():
                code = self._append(shard, command, now)
                event: CoordinatorEvent = AppendSucceeded(command.append_id)
                if code:
                    event = AppendFailed(command.append_id, code)
                self._run(shard, event, now)
            case GroupNote():
                self._log_note(shard, command)
            case _:
                assert_never(command)

    def _append(self, shard: CoordinatorShard, append: AppendEntries, now: int) -> Code:
        try:
            pairs = list(map(encode_entry, append.entries))
            self._topics.append_records(CONSUMER_OFFSETS_TOPIC, shard.number, pairs, now)
        except FormatError as error:
            self._write_log(
                shard, WARNING, f"A request is refused, for it has no room here: {error}"
            )
            return Code.UNKNOWN
        except DiskError as error:
            return self._failed(shard, Code.KAFKA_STORAGE_ERROR, error)
        except Refused as error:
            return self._failed(shard, error.code, error)
        if shard.append_error:
            shard.append_error = ""
            self._write_log(shard, INFO, "It can be written again.")
        return Code.NONE

    def _failed(self, shard: CoordinatorShard, code: Code, error: Exception) -> Code:
        if shard.append_error != str(error):  # said once, however often it is tried again
            shard.append_error = str(error)
            self._write_log(
                shard, ERROR, f"It cannot be written, so that members must wait: {error}"
            )
        return code

    # the log

    def _log_note(self, shard: CoordinatorShard, note: GroupNote) -> None:
        if isinstance(note.change, GroupFull | ProtocolMismatch):
            why = format_refusal(note.change)
            self._write_log(shard, WARNING, f"A member of group {note.group} is refused: {why}")
        for text in format_note(note):
            self._write_log(shard, INFO, text)

    def _write_log(self, shard: CoordinatorShard, level: int, text: str) -> None:
        """In the form of Kafka's broker, so that whatever reads its log reads this one too."""
        where = f"id={self._node_id} topic={CONSUMER_OFFSETS_TOPIC} partition={shard.number}"
        self._log(level, f"[GroupCoordinator {where}] {text}")


def _read_reply(coordinator: Coordinator, request: GroupRequest, now: int) -> GroupResponse:
    """The answer to a request that only reads: it is given at once, and nothing else follows."""
    (answer,) = coordinator.handle(RequestReceived(0, request), now)
    assert isinstance(answer, SendResponse)
    return answer.response


#: So many bytes of a log are read at once.
REPLAY_CHUNK = 4 << 20

TakeEntry: TypeAlias = Callable[[JournalEntry], None]


class JournalLog(Protocol):
    """A log, as far as its entries are wanted."""

    @property
    def log_start_offset(self) -> int:
        """The first offset."""

    @property
    def log_end_offset(self) -> int:
        """The next offset to be given."""

    def read(self, offset: int, max_bytes: int) -> Bytes:
        """Whole batches from the one that holds an offset, checked."""


@dataclass(slots=True)
class ReplayResult:
    """What was read, beside the entries themselves."""

    records: int = 0
    #: Records of other kinds of groups, by Kafka's name of their type.
    skipped_types: Counter[str] = field(default_factory=Counter)
    #: What could not be read, and where.
    errors: list[str] = field(default_factory=list)


def replay_journal(log: JournalLog, take: TakeEntry) -> ReplayResult:
    """Gives every entry of a journal partition to ``take``, oldest first.

    Two kinds are left out. Commits that are followed by another commit of the same partition change
    nothing. Entries of a transaction that was aborted, or that has no end, do not count: nobody
    will end it.

    :raises Refused: a batch is damaged
    :raises DiskError: the log cannot be read
    """
    reader = _JournalReader(take)
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        data = log.read(offset, REPLAY_CHUNK)
        last = _find_last_offset(data)
        if last is None:
            break
        reader.read(data)
        offset = last + 1
    return reader.result


def _find_last_offset(data: Bytes) -> int | None:
    """The last offset of the last batch."""
    found = record_batch_scan.find_batches(data)
    if not len(found):
        return None
    return record_batch.read_batch_header(data, int(found.positions[-1])).last_offset


class _JournalReader:
    """Reads a log piece by piece; transactions may be open from one to the next."""

    def __init__(self, take: TakeEntry) -> None:
        self.result = ReplayResult()
        self._take = take
        #: Entries of transactions without an end so far, by producer id.
        self._open_transactions: dict[int, list[JournalEntry]] = {}

    def read(self, data: Bytes) -> None:
        columns = record_batch_columns.decode_batches(
            data, check=False
        )  # reading the log has checked it
        self.result.errors += [str(problem) for problem in columns.problems]
        self.result.records += len(columns.offset)
        entries = journal.decode_batch_entries(columns)
        kinds, counts = np.unique(entries.type, return_counts=True)
        for kind, count in zip(kinds.tolist(), counts.tolist(), strict=True):
            if not 0 <= kind <= GROUP_TYPE and kind != journal.NO_TYPE:
                self.result.skipped_types[
                    journal_classic.RECORD_NAMES.get(kind, journal.UNKNOWN_RECORD_NAME)
                ] += count
        wanted: BoolArray = (entries.type >= 0) & (entries.type <= GROUP_TYPE)
        wanted[entries.undecoded_rows] = True
        if self._open_transactions or columns.batches.transactional.any():
            self._by_batch(columns, wanted)
        else:
            wanted[_find_superseded_commits(entries)] = False
            self._decode_rows(columns, np.flatnonzero(wanted), None)

    def _by_batch(self, columns: record_batch_columns.RecordColumns, wanted: BoolArray) -> None:
        """Batch after batch, as transactions begin and end."""
        batches = columns.batches
        bounds = np.searchsorted(columns.batch, np.arange(len(batches) + 1))
        for number, (start, end) in enumerate(pairwise(bounds.tolist())):
            producer = int(batches.producer_id[number])
            if batches.control[number]:
                held = self._open_transactions.pop(producer, [])
                if batches.marker[number] == record_batch.ControlRecordType.COMMIT:
                    for entry in held:
                        self._take(entry)
            else:
                owner = producer if batches.transactional[number] else None
                self._decode_rows(columns, start + np.flatnonzero(wanted[start:end]), owner)

    def _decode_rows(
        self, columns: record_batch_columns.RecordColumns, rows: Int64Array, producer: int | None
    ) -> None:
        """Decodes rows, and hands them on, or holds them for their producer's transaction."""
        take = self._take
        if producer is not None and len(rows):
            take = self._open_transactions.setdefault(producer, []).append
        data = columns.buffer.data
        fields = (columns.key_start, columns.key_size, columns.value_start, columns.value_size)
        for row, key_at, key_size, value_at, value_size in zip(
            rows.tolist(), *(each[rows].tolist() for each in fields), strict=True
        ):
            key = data[key_at : key_at + max(key_size, 0)]
            value = None if value_size < 0 else data[value_at : value_at + value_size]
            try:
                take(journal.decode_record(key, value))
            except FormatError as error:
                self.result.errors.append(f"offset {columns.offset[row]}: {error}")


def _find_superseded_commits(entries: journal.EntryColumns) -> Int64Array:
    """Rows of commits after which the next about the same partition is a commit too."""
    commits = entries.commits
    order = np.lexsort((commits.row, commits.partition, commits.topic, commits.group))
    same = np.ones(max(len(order) - 1, 0), dtype=np.bool_)
    for key in (commits.group, commits.topic, commits.partition):
        sorted_key = key[order]
        same &= sorted_key[1:] == sorted_key[:-1]
    is_commit = ~commits.tombstone[order]
    same &= is_commit[1:] & is_commit[:-1]
    return commits.row[order[:-1][same]]
