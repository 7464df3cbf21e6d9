"""The group coordinator: :meth:`Coordinator.handle` takes an event and returns commands.

A change that must survive a restart goes through the journal: a handler asks for an append, and
everything that follows from it, above all the response, waits until the append has succeeded.

While an append is in flight, other work on the same group may have to wait (:class:`AppendQueue`).
Work that changes a group waits until the change before it is stored, so that no handler sees a
half-changed group. Commits change only offsets: they do not wait for each other, and only work that
removes offsets waits for them, because it must know them all. Reads and heartbeats never wait. Work
that waits runs in the order in which it came.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, assert_never

from rota.engine.coordinator import classic, events, offsets
from rota.engine.coordinator.events import EventContext, translate_append_error
from rota.engine.coordinator.notes import GroupLoaded, LoadedAboveMaxSize
from rota.engine.coordinator.state import ClassicGroup, GroupState
from rota.engine.formats.hashing import java_string_hash
from rota.engine.model.config import GroupConfig
from rota.engine.model.journal_entry import (
    ClassicEntry,
    GroupMetadataEntry,
    GroupMetadataTombstone,
    JournalEntry,
    OffsetCommitEntry,
    OffsetCommitTombstone,
)
from rota.engine.model.request import (
    NO_MEMBER_ID,
    DeleteGroups,
    DescribeGroups,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
)
from rota.engine.model.response import (
    DeleteGroupsResult,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsResult,
    JoinGroupResult,
    ListedGroup,
    ListGroupsResult,
    SyncGroupResult,
    make_error_response,
)
from rota.engine.model.topic import TopicPartition
from rota.errors import Code, InputError

WorkFunction: TypeAlias = Callable[[EventContext], None]


class WorkKind(enum.Enum):
    """What a piece of work does to its group."""

    COMMIT = "commit"
    CHANGE = "change"
    REMOVAL = "removal"


@dataclass(slots=True)
class AppendQueue:
    commits_in_flight: int = 0  # the number of appends of offsets in flight
    change_in_flight: bool = False  # any other append is in flight
    queue: deque[tuple[WorkKind, WorkFunction]] = field(default_factory=deque)

    @property
    def is_idle(self) -> bool:
        return not (self.commits_in_flight or self.change_in_flight or self.queue)

    def may_run(self, work: WorkKind) -> bool:
        """Whether such work may run now, if none is queued before it."""
        return not (self.change_in_flight or (work is WorkKind.REMOVAL and self.commits_in_flight))


def list_groups(groups: Iterable[ClassicGroup], request: ListGroups) -> ListGroupsResult:
    """Returns all groups, or those in some states. State names are compared without case."""
    wanted = {state.casefold() for state in request.states}
    listed = (
        ListedGroup(group=each.name, protocol_type=each.protocol_type or "", state=each.state.value)
        for each in sorted(groups, key=lambda group: group.name)
        if not wanted or each.state.value.casefold() in wanted
    )
    return ListGroupsResult(groups=tuple(listed))


def describe_group(name: str, group: ClassicGroup | None, *, knows_missing: bool) -> DescribedGroup:
    if group is None:
        code = Code.GROUP_ID_NOT_FOUND if knows_missing else Code.NONE
        return DescribedGroup(group=name, code=code)
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group=name,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if stable else "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata_for(group.protocol) if stable else b"",
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
        generation=group.generation,
        leader=group.leader,
    )


def delete_group(
    context: EventContext, group: ClassicGroup | None, done: Callable[[EventContext, Code], None]
) -> None:
    """Deletes an empty group and its offsets, then calls ``done`` with the code."""
    if group is None:
        done(context, Code.GROUP_ID_NOT_FOUND)
    elif group.state is not GroupState.EMPTY:
        done(context, Code.NON_EMPTY_GROUP)
    else:
        forgotten = offsets.make_tombstones(group, group.offsets)
        entries: tuple[ClassicEntry, ...] = (*forgotten, GroupMetadataTombstone(group=group.name))
        context.append_entries(
            entries, lambda later, code: done(later, translate_append_error(code))
        )


#: Requests that may change a group, and so may have to wait.
GroupChangeRequest: TypeAlias = JoinGroup | SyncGroup | LeaveGroup | OffsetCommit | OffsetDelete

#: All other requests that change a group are a CHANGE.
_WORK_KINDS = {OffsetCommit: WorkKind.COMMIT, OffsetDelete: WorkKind.REMOVAL}

_RETENTION_TIMER = events.GroupTimerKey(events.GroupTimerKind.RETENTION)

DEFAULT_JOURNAL_PARTITIONS = 50  # Kafka's default of ``offsets.topic.num.partitions``


def journal_partition(group: str, partitions: int = DEFAULT_JOURNAL_PARTITIONS) -> int:
    """Returns the partition of ``__consumer_offsets`` whose leader coordinates this group."""
    hashed = java_string_hash(group)
    return 0 if hashed == -(2**31) else abs(hashed) % partitions


@dataclass(frozen=True, slots=True)
class _InFlightAppend:
    group: str
    entries: tuple[ClassicEntry, ...]
    callback: events.AppendCallback


class Coordinator:
    """Coordinates the groups of one journal partition, only through the commands it returns."""

    def __init__(self, config: GroupConfig, new_id: Callable[[], str]) -> None:
        self._config = config
        self._new_id = new_id
        self._groups: dict[str, ClassicGroup] = {}
        #: The code for every request while this coordinator does not serve its groups.
        self._unavailable_code = Code.NONE
        self._append_queues: dict[str, AppendQueue] = {}  # by group, while an append is in flight
        self._in_flight: dict[int, _InFlightAppend] = {}
        self._last_append_id = 0
        #: Timers that have fired and whose work waits in a queue, unless started again or stopped.
        self._expired_timers: set[events.GroupTimerKey] = set()
        #: Topics that were deleted while the journal was loaded.
        self._deleted_topics: list[events.TopicsDeleted] = []

    def handle(self, event: events.CoordinatorEvent, now: int) -> list[events.CoordinatorCommand]:
        context = EventContext(self._config, now, self._expired_timers)
        match event:
            case events.RequestReceived(token, request):
                self._handle_request(context, token, request)
            case events.GroupTimerFired(key):
                self._handle_timer(context, key)
            case events.TopicsDeleted():
                self._handle_topics_deleted(context, event)
            case events.AppendSucceeded(append_id):
                self._complete_append(context, append_id, Code.NONE)
            case events.AppendFailed(append_id, code):
                assert code, "an append that fails says why"
                self._complete_append(context, append_id, code)
            case events.JournalLoadStarted():
                self._stop_serving(context, Code.COORDINATOR_LOAD_IN_PROGRESS)
            case events.JournalLoaded():
                self._start_serving(context)
            case events.JournalUnloaded():
                self._stop_serving(context, Code.NOT_COORDINATOR)
            case _:
                raise InputError(f"not an event of a coordinator: {event!r}")
        return context.commands

    def replay(self, entry: JournalEntry) -> None:
        """Applies a journal entry while loading. Of KIP-848 groups only the offsets are kept."""
        if self._unavailable_code is not Code.COORDINATOR_LOAD_IN_PROGRESS:
            raise InputError("replay: call between the events JournalLoadStarted and JournalLoaded")
        if isinstance(entry, ClassicEntry):
            self._replay_entry(entry)

    def _replay_entry(self, entry: ClassicEntry) -> None:
        match entry:
            case OffsetCommitEntry():
                group = self._groups.get(entry.group)
                if group is None:
                    # a consumer without a group committed offsets
                    group = self._groups[entry.group] = ClassicGroup(entry.group)
                group.offsets[TopicPartition(entry.topic, entry.partition)] = entry
            case OffsetCommitTombstone():
                if group := self._groups.get(entry.group):
                    group.offsets.pop(TopicPartition(entry.topic, entry.partition), None)
            case GroupMetadataEntry():
                known = self._groups.get(entry.group)
                offsets = {} if known is None else known.offsets
                self._groups[entry.group] = ClassicGroup.from_entry(entry, offsets)
            case GroupMetadataTombstone():
                forgotten = self._groups.pop(entry.group, None)
                if forgotten is not None and forgotten.offsets:
                    # only the members are gone: the group now uses the KIP-848 protocol
                    group = self._groups[entry.group] = ClassicGroup(entry.group)
                    group.offsets = forgotten.offsets
            case _:
                assert_never(entry)

    def make_journal_snapshot(self) -> Iterator[ClassicEntry]:
        """Yields the fewest entries that restore this state; none of groups in a rebalance."""
        for name in sorted(self._groups):
            group = self._groups[name]
            if group.state in (GroupState.STABLE, GroupState.EMPTY):
                yield group.to_entry()
            for partition in sorted(group.offsets):
                yield group.offsets[partition]

    def _start_appends(self, context: EventContext) -> None:
        for entries, callback in context.appends:
            group = entries[0].group
            append_queue = self._append_queues.setdefault(group, AppendQueue())
            if isinstance(entries[0], OffsetCommitEntry):
                append_queue.commits_in_flight += 1
            else:
                assert not append_queue.change_in_flight, f"two changes at once for group {group!r}"
                append_queue.change_in_flight = True
            self._last_append_id += 1
            self._in_flight[self._last_append_id] = _InFlightAppend(group, entries, callback)
            context.commands.append(events.AppendEntries(self._last_append_id, entries))
        context.appends.clear()

    def _complete_append(self, context: EventContext, append_id: int, code: Code) -> None:
        """Completes an append, then runs the work that waited for it."""
        appended = self._in_flight.pop(append_id, None)
        if appended is None:  # the journal was unloaded meanwhile
            return
        append_queue = self._append_queues[appended.group]
        if isinstance(appended.entries[0], OffsetCommitEntry):
            append_queue.commits_in_flight -= 1
        else:
            append_queue.change_in_flight = False
        if not code:
            for entry in appended.entries:
                self._apply_appended_entry(context, entry)
        appended.callback(context, code)
        self._start_appends(context)
        while append_queue.queue and append_queue.may_run(append_queue.queue[0][0]):
            append_queue.queue.popleft()[1](context)
            self._start_appends(context)
        if append_queue.is_idle:
            del self._append_queues[appended.group]

    def _run_or_queue_work(
        self, context: EventContext, group: str, work: WorkKind, run: WorkFunction
    ) -> None:
        """Runs work on a group now, or queues it behind the appends in flight."""
        append_queue = self._append_queues.get(group)
        if append_queue is None or (not append_queue.queue and append_queue.may_run(work)):
            run(context)
            self._start_appends(context)
        else:
            append_queue.queue.append((work, run))

    def _apply_appended_entry(self, context: EventContext, entry: ClassicEntry) -> None:
        group = self._groups.get(entry.group)
        if group is not None and isinstance(entry, GroupMetadataEntry):
            return  # the callback of the append changes the group
        if group is not None and isinstance(entry, GroupMetadataTombstone):
            for member_id in group.pending_join_members:
                context.stop_timer(events.GroupTimerKind.SESSION, group, member_id)
            group.transition_to(GroupState.DEAD, context.now)
        self._replay_entry(entry)

    def _handle_request(self, context: EventContext, token: int, request: GroupRequest) -> None:
        if self._unavailable_code:
            self._respond_unavailable(context, token, request)
            return
        match request:
            case JoinGroup() | SyncGroup() | Heartbeat() | LeaveGroup() | OffsetDelete() if (
                not request.group
            ):
                context.respond(token, make_error_response(request, Code.INVALID_GROUP_ID))
            case Heartbeat():
                classic.handle_heartbeat(context, self._groups.get(request.group), token, request)
            case OffsetFetch():
                group = self._groups.get(request.group)
                offsets.handle_offset_fetch(context, group, token, request)
            case DescribeGroups(groups=names, supports_group_id_not_found=known):
                groups = (
                    describe_group(name, self._groups.get(name), knows_missing=known)
                    for name in names
                )
                context.respond(token, DescribeGroupsResult(groups=tuple(groups)))
            case ListGroups():
                context.respond(token, list_groups(self._groups.values(), request))
            case DeleteGroups():
                self._delete_groups(context, token, request)
            case JoinGroup() | SyncGroup() | LeaveGroup() | OffsetCommit() | OffsetDelete():
                run = partial(self._handle_change_request, token=token, request=request)
                work = _WORK_KINDS.get(type(request), WorkKind.CHANGE)
                self._run_or_queue_work(context, request.group, work, run)
            case _:
                assert_never(request)

    def _respond_unavailable(
        self, context: EventContext, token: int, request: GroupRequest
    ) -> None:
        loading = self._unavailable_code is Code.COORDINATOR_LOAD_IN_PROGRESS
        # sessions do not expire while the journal is loaded, so a heartbeat succeeds
        code = Code.NONE if loading and isinstance(request, Heartbeat) else self._unavailable_code
        context.respond(token, make_error_response(request, code))

    def _handle_change_request(
        self, context: EventContext, token: int, request: GroupChangeRequest
    ) -> None:
        if self._unavailable_code:  # since the request was queued
            self._respond_unavailable(context, token, request)
            return
        group = self._groups.get(request.group)
        match request:
            case JoinGroup():
                self._handle_join(context, token, request)
            case SyncGroup():
                classic.handle_sync(context, group, token, request)
            case LeaveGroup():
                classic.handle_leave(context, group, token, request)
            case OffsetCommit():
                offsets.handle_offset_commit(context, group, token, request)
            case OffsetDelete():
                offsets.handle_offset_delete(context, group, token, request)
            case _:
                assert_never(request)

    def _handle_join(self, context: EventContext, token: int, request: JoinGroup) -> None:
        group, config = self._groups.get(request.group), context.config
        if not config.min_session_timeout <= request.session_timeout <= config.max_session_timeout:
            code = Code.INVALID_SESSION_TIMEOUT
            context.respond(token, make_error_response(request, code))
        elif group is None and request.member_id != NO_MEMBER_ID:
            context.respond(token, make_error_response(request, Code.UNKNOWN_MEMBER_ID))
        elif group is not None:
            classic.handle_join(context, group, token, request, self._new_id)
        else:
            self._create_group(context, token, request)

    def _create_group(self, context: EventContext, token: int, request: JoinGroup) -> None:
        """Creates a group: its first entry is appended before its first member gets a response."""

        def create(later: EventContext, code: Code) -> None:
            if code:
                later.respond(token, make_error_response(request, translate_append_error(code)))
            else:
                group = self._groups[request.group]
                classic.handle_join(later, group, token, request, self._new_id)

        context.append_entries((ClassicGroup(request.group, context.now).to_entry(),), create)

    def _delete_groups(self, context: EventContext, token: int, request: DeleteGroups) -> None:
        """Deletes each group on its own, and responds after the last."""
        codes = dict.fromkeys(request.groups, Code.NONE)
        waiting = set(codes)

        def deleted(later: EventContext, code: Code, name: str) -> None:
            codes[name] = code
            waiting.discard(name)
            if not waiting:
                later.respond(token, DeleteGroupsResult(codes=codes))

        def delete(later: EventContext, name: str) -> None:
            if self._unavailable_code:
                deleted(later, self._unavailable_code, name)
            else:
                delete_group(later, self._groups.get(name), partial(deleted, name=name))

        if not codes:
            context.respond(token, DeleteGroupsResult(codes={}))
        for name in codes:
            self._run_or_queue_work(context, name, WorkKind.REMOVAL, partial(delete, name=name))

    def _handle_topics_deleted(self, context: EventContext, event: events.TopicsDeleted) -> None:
        if self._unavailable_code:
            self._deleted_topics.append(event)
            return

        def forget(later: EventContext, name: str) -> None:
            group = self._groups.get(name)
            if group is not None:
                gone = offsets.find_offsets_of_deleted_topics(group, event.topics)
                offsets.append_tombstones(later, group, gone)

        # a commit in flight may create a group
        for name in dict.fromkeys((*self._groups, *self._append_queues)):
            self._run_or_queue_work(context, name, WorkKind.REMOVAL, partial(forget, name=name))

    def _handle_timer(self, context: EventContext, key: events.GroupTimerKey) -> None:
        if key.kind is events.GroupTimerKind.RETENTION:
            self._start_retention_timer(context)
            for name in list(self._groups):
                expire = partial(self._expire_offsets, name=name)
                self._run_or_queue_work(context, name, WorkKind.REMOVAL, expire)
            return
        # earlier work in the queue may start or stop this timer, and so cancel it
        self._expired_timers.add(key)
        run = partial(self._handle_group_timer, key=key)
        self._run_or_queue_work(context, key.group, WorkKind.CHANGE, run)

    def _handle_group_timer(self, context: EventContext, key: events.GroupTimerKey) -> None:
        group = self._groups.get(key.group)
        if key not in self._expired_timers:
            return
        self._expired_timers.discard(key)
        if group is None:
            return
        match key.kind:
            case events.GroupTimerKind.SESSION:
                classic.handle_session_timeout(context, group, key.member_id)
            case events.GroupTimerKind.JOIN:
                classic.handle_join_timeout(context, group)
            case events.GroupTimerKind.SYNC:
                classic.handle_sync_timeout(context, group)
            case events.GroupTimerKind.RETENTION:
                pass  # it belongs to no group
            case _:
                assert_never(key.kind)

    def _expire_offsets(self, context: EventContext, name: str) -> None:
        """Deletes expired offsets, and an empty group that has no offsets left."""
        group = self._groups.get(name)
        if group is None:
            return
        over = offsets.find_expired_offsets(group, context.now, context.config.offsets_retention)
        entries: tuple[ClassicEntry, ...] = offsets.make_tombstones(group, over)
        idle = group.state is GroupState.EMPTY and not group.pending_join_members
        if idle and len(over) == len(group.offsets):
            entries = (*entries, GroupMetadataTombstone(group=name))
        if entries:
            context.append_entries(entries)

    def _start_retention_timer(self, context: EventContext) -> None:
        at = context.now + context.config.retention_check_interval
        context.commands.append(events.StartGroupTimer(_RETENTION_TIMER, at))

    def _start_serving(self, context: EventContext) -> None:
        """All sessions restart: no heartbeat could arrive while the journal was loaded."""
        self._unavailable_code = Code.NONE
        for group in self._groups.values():
            context.add_note(group, GroupLoaded(len(group.members)))
            for member in group.members.values():
                context.restart_session_timer(group, member)
            if len(group.members) > context.config.max_size:
                classic.start_rebalance(context, group, LoadedAboveMaxSize(context.config.max_size))
        self._start_retention_timer(context)
        missed, self._deleted_topics = self._deleted_topics, []
        for event in missed:
            self._handle_topics_deleted(context, event)

    def _stop_serving(self, context: EventContext, code: Code) -> None:
        """All groups end here, and waiting requests get the code."""
        self._unavailable_code = code
        in_flight, self._in_flight = self._in_flight, {}
        append_queues, self._append_queues = self._append_queues, {}
        for appended in in_flight.values():
            appended.callback(context, code)
        for group in self._groups.values():
            for member in group.members.values():
                refused = JoinGroupResult(code=code, member_id=member.member_id)
                context.respond_to_join(group, member, refused)
                context.respond_to_sync(member, SyncGroupResult(code=code))
            for member_id in (*group.members, *group.pending_join_members):
                context.stop_timer(events.GroupTimerKind.SESSION, group, member_id)
            context.stop_timer(events.GroupTimerKind.JOIN, group)
            context.stop_timer(events.GroupTimerKind.SYNC, group)
            group.transition_to(GroupState.DEAD, context.now)
        self._groups.clear()
        for append_queue in append_queues.values():
            for _, run in append_queue.queue:
                run(context)
        context.appends.clear()
        self._expired_timers.clear()
        context.commands.append(events.StopGroupTimer(_RETENTION_TIMER))

    def check_invariants(self) -> None:
        for name, group in self._groups.items():
            assert group.name == name
            assert group.state is not GroupState.DEAD
            group.check_invariants()
        appends = [(each.group, type(each.entries[0])) for each in self._in_flight.values()]
        commits = Counter(group for group, entry in appends if entry is OffsetCommitEntry)
        changing = {group for group, _ in appends} - commits.keys()
        for name, append_queue in self._append_queues.items():
            assert not append_queue.is_idle
            assert append_queue.commits_in_flight == commits[name]
            assert append_queue.change_in_flight or name not in changing
            waiting = append_queue.queue
            assert not waiting or not append_queue.may_run(waiting[0][0]), "queued work could run"
        assert self._append_queues.keys() >= {group for group, _ in appends}
