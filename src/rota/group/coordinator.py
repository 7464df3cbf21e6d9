"""The group coordinator: events in, commands out.

A change that a restart must keep goes through the journal: a handler asks for an append, and what
follows from it, the answer above all, waits until the append has succeeded. Until then everything
else that concerns the same group waits too, in order, so that no handler ever meets a group in
between. Other groups go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from rota.errors import Code
from rota.formats.javahash import java_hash
from rota.group import admin, join, offset, presence, rebalance, sync
from rota.group.classic import Group
from rota.group.event import (
    Append,
    Appended,
    AppendFailed,
    Command,
    Event,
    Happened,
    Loaded,
    LoadStarted,
    Requested,
    StartTimer,
    StopTimer,
    TimerFired,
    TimerKey,
    TimerKind,
    TopicsDeleted,
    Unloaded,
)
from rota.group.refusal import refused
from rota.group.state import State
from rota.group.turn import Then, Turn, answerable
from rota.model.config import GroupConfig
from rota.model.entry import (
    ClassicEntry,
    GroupForgotten,
    GroupSaved,
    OffsetCommitted,
    OffsetForgotten,
)
from rota.model.reply import DescribeGroupsReply, JoinReply, SyncReply
from rota.model.request import (
    NO_MEMBER,
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    DescribeGroups,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    ListGroups,
    Request,
    Sync,
)
from rota.model.topic import TopicPartition

JOURNAL_PARTITIONS = 50
"""How many partitions ``__consumer_offsets`` has where nobody says otherwise."""


def journal_partition(group: str, partitions: int = JOURNAL_PARTITIONS) -> int:
    """The partition of ``__consumer_offsets`` whose leader coordinates this group."""
    hashed = java_hash(group)
    return 0 if hashed == -(2**31) else abs(hashed) % partitions


@dataclass(frozen=True, slots=True)
class _InFlight:
    entries: tuple[ClassicEntry, ...]
    groups: tuple[str, ...]
    then: Then


def _groups_of(request: Request) -> tuple[str, ...]:
    match request:
        case DeleteGroups() | DescribeGroups():
            return request.groups
        case ListGroups():
            return ()
        case _:
            return (request.group,)


class Coordinator:
    """Coordinates the groups of one journal. Pure: it acts through the commands it returns."""

    def __init__(self, config: GroupConfig, new_id: Callable[[], str]) -> None:
        self._config = config
        self._new_id = new_id
        self._groups: dict[str, Group] = {}
        self._unavailable = Code.NONE
        """What every request is told while this coordinator does not serve its groups."""
        self._in_flight: dict[int, _InFlight] = {}
        self._queues: dict[str, deque[Requested | TimerFired | TopicsDeleted]] = {}
        """For each group whose entries are being appended: what waits for that."""
        self._tickets = 0

    def handle(self, event: Event, now: int) -> list[Command]:
        """What must be done now that this has happened."""
        turn = Turn(self._config, now)
        match event:
            case Requested() | TimerFired() | TopicsDeleted():
                self._take(turn, event)
            case Appended(ticket):
                self._settle(turn, ticket, Code.NONE)
            case AppendFailed(ticket, code):
                self._settle(turn, ticket, code)
            case LoadStarted():
                self._reset(Code.COORDINATOR_LOAD_IN_PROGRESS)
            case Loaded():
                self._serve(turn)
            case Unloaded():
                self._retire(turn)
            case _:
                assert_never(event)
        return turn.commands

    # the journal

    def replay(self, entry: ClassicEntry) -> None:
        """Takes in an entry of the journal while loading, oldest first."""
        match entry:
            case OffsetCommitted():
                group = self._groups.get(entry.group)
                if group is None:
                    # offsets without members: a group of a consumer that only assigns
                    group = self._groups[entry.group] = Group(entry.group)
                group.offsets[TopicPartition(entry.topic, entry.partition)] = entry
            case OffsetForgotten():
                group = self._groups.get(entry.group)
                if group is not None:
                    group.offsets.pop(TopicPartition(entry.topic, entry.partition), None)
            case GroupSaved():
                known = self._groups.get(entry.group)
                offsets = {} if known is None else known.offsets
                self._groups[entry.group] = Group.loaded(entry, offsets)
            case GroupForgotten():
                forgotten = self._groups.pop(entry.group, None)
                if forgotten is not None and forgotten.offsets:
                    # only the members are gone: so a group goes over to the KIP-848 protocol
                    group = self._groups[entry.group] = Group(entry.group)
                    group.offsets = forgotten.offsets
            case _:
                assert_never(entry)

    def compacted(self) -> Iterator[ClassicEntry]:
        """What a journal must hold at least, so that its replay gives this state.

        Groups in a rebalance are left out: the journal knows them as they were before it.
        """
        for name in sorted(self._groups):
            group = self._groups[name]
            if group.state in (State.STABLE, State.EMPTY):
                assigned = {key: member.assignment for key, member in group.members.items()}
                yield group.saved(assigned)
            for partition in sorted(group.offsets):
                yield group.offsets[partition]

    def _flush(self, turn: Turn) -> None:
        """Hands out what the event that was just handled wants appended."""
        for entries, then in turn.appends:
            groups = tuple(dict.fromkeys(entry.group for entry in entries))
            self._tickets += 1
            self._in_flight[self._tickets] = _InFlight(entries, groups, then)
            for group in groups:
                assert group not in self._queues, f"two appends at once for group {group!r}"
                self._queues[group] = deque()
            turn.commands.append(Append(self._tickets, entries))
        turn.appends.clear()

    def _settle(self, turn: Turn, ticket: int, code: Code) -> None:
        """An append has succeeded or failed."""
        appended = self._in_flight.pop(ticket, None)
        if appended is None:  # of a time before this coordinator was retired
            return
        if not code:
            for entry in appended.entries:
                self._apply(turn, entry)
        waiting = [(group, self._queues.pop(group)) for group in appended.groups]
        appended.then(turn, code)
        self._flush(turn)
        for _, queue in waiting:
            for event in queue:
                self._take(turn, event)

    def _apply(self, turn: Turn, entry: ClassicEntry) -> None:
        """Takes in an entry of its own: of a group that runs, more is known than it says."""
        group = self._groups.get(entry.group)
        match entry:
            case GroupSaved() if group is not None:
                return  # what follows from it is in the append's continuation
            case GroupForgotten() if group is not None:
                for member_id in group.pending:
                    turn.stop(TimerKind.SESSION, group, member_id)
                group.move(State.DEAD, turn.now)
            case _:
                pass
        self.replay(entry)

    # events

    def _take(self, turn: Turn, event: Requested | TimerFired | TopicsDeleted) -> None:
        """Handles an event, unless its group waits for an append: then it waits too."""
        if self._queues:
            for name in self._concerned(event):
                if name in self._queues:
                    self._queues[name].append(event)
                    return
        match event:
            case Requested(token, request):
                self._request(turn, token, request)
            case TimerFired(key):
                self._time_is_up(turn, key)
            case TopicsDeleted():
                topics = dict(event.topics)
                for group in self._groups.values():
                    offset.forget(turn, group, offset.of_deleted(group, topics))
            case _:
                assert_never(event)
        self._flush(turn)

    def _concerned(self, event: Requested | TimerFired | TopicsDeleted) -> Iterable[str]:
        match event:
            case Requested():
                return _groups_of(event.request)
            case TimerFired(key):
                return (key.group,)
            case TopicsDeleted():
                return self._groups
            case _:
                assert_never(event)

    def _request(  # noqa: C901, PLR0912 (one case for each request)
        self, turn: Turn, token: int, request: Request
    ) -> None:
        if self._unavailable:
            loading = self._unavailable is Code.COORDINATOR_LOAD_IN_PROGRESS
            # a heartbeat while loading is taken at its word: no session runs yet
            code = Code.NONE if loading and isinstance(request, Heartbeat) else self._unavailable
            turn.answer(token, refused(request, code))
            return
        match request:
            case Join() | Sync() | Heartbeat() | Leave() | DeleteOffsets() if not request.group:
                turn.answer(token, refused(request, Code.INVALID_GROUP_ID))
            case Join():
                self._join(turn, token, request)
            case Sync():
                sync.handle(turn, self._groups.get(request.group), token, request)
            case Heartbeat():
                presence.heartbeat(turn, self._groups.get(request.group), token, request)
            case Leave():
                presence.leave(turn, self._groups.get(request.group), token, request)
            case CommitOffsets():
                offset.commit(turn, self._groups.get(request.group), token, request)
            case FetchOffsets():
                offset.fetch(turn, self._groups.get(request.group), token, request)
            case DeleteOffsets():
                offset.delete(turn, self._groups.get(request.group), token, request)
            case DeleteGroups():
                admin.delete(turn, self._groups, token, request)
            case DescribeGroups():
                self._describe(turn, token, request)
            case ListGroups():
                turn.answer(token, admin.list_groups(self._groups.values(), request))
            case _:
                assert_never(request)

    def _join(self, turn: Turn, token: int, request: Join) -> None:
        group = self._groups.get(request.group)
        code = join.refusal(turn.config, request)
        if not code and group is None and request.member_id != NO_MEMBER:
            code = Code.UNKNOWN_MEMBER_ID
        if code:
            turn.answer(token, refused(request, code))
        elif group is not None:
            join.handle(turn, group, token, request, self._new_id)
        else:
            self._found(turn, token, request)

    def _found(self, turn: Turn, token: int, request: Join) -> None:
        """A group begins with an entry of its own, before its first member is answered."""

        def founded(later: Turn, code: Code) -> None:
            if code:
                later.answer(token, refused(request, answerable(code)))
            else:
                group = self._groups[request.group]
                join.handle(later, group, token, request, self._new_id)

        turn.append((Group(request.group, turn.now).saved({}),), founded)

    def _describe(self, turn: Turn, token: int, request: DescribeGroups) -> None:
        known = request.knows_missing_group
        groups = (
            admin.describe(name, self._groups.get(name), knows_missing=known)
            for name in request.groups
        )
        turn.answer(token, DescribeGroupsReply(groups=tuple(groups)))

    def _time_is_up(self, turn: Turn, key: TimerKey) -> None:
        if key.kind is TimerKind.RETENTION:
            self._expire(turn)
            return
        group = self._groups.get(key.group)
        if group is None:
            return
        match key.kind:
            case TimerKind.SESSION:
                presence.session_ended(turn, group, key.member)
            case TimerKind.JOIN:
                rebalance.join_time_is_up(turn, group)
            case TimerKind.SYNC:
                rebalance.sync_time_is_up(turn, group)
            case _:
                assert_never(key.kind)

    def _expire(self, turn: Turn) -> None:
        """Forgets offsets whose time is over, and empty groups that have none left."""
        for name, group in self._groups.items():
            if name in self._queues:  # something happens to it: it is not idle
                continue
            over = offset.expired(group, turn.now, turn.config.offsets_retention)
            entries: tuple[ClassicEntry, ...] = offset.tombstones(group, over)
            idle = group.state is State.EMPTY and not group.pending
            if idle and len(over) == len(group.offsets):
                entries = (*entries, GroupForgotten(group=name))
            if entries:
                turn.append(entries)
        self._start_retention(turn)

    def _start_retention(self, turn: Turn) -> None:
        at = turn.now + turn.config.retention_check_interval
        turn.commands.append(StartTimer(TimerKey(TimerKind.RETENTION), at))

    # whose groups they are

    def _reset(self, code: Code) -> None:
        self._groups.clear()
        self._in_flight.clear()
        self._queues.clear()
        self._unavailable = code

    def _serve(self, turn: Turn) -> None:
        """The journal is loaded: sessions begin anew, for members could not be heard meanwhile."""
        self._unavailable = Code.NONE
        for group in self._groups.values():
            for member in group.members.values():
                turn.start_session(group, member)
            if len(group.members) > turn.config.max_size:
                rebalance.start(
                    turn, group, f"loaded with more than {turn.config.max_size} members"
                )
        self._start_retention(turn)

    def _retire(self, turn: Turn) -> None:
        """Another coordinator takes over: whoever waits is sent away to look for it."""
        gone = Code.NOT_COORDINATOR
        for appended in list(self._in_flight.values()):
            appended.then(turn, gone)
        waiting = [event for queue in self._queues.values() for event in queue]
        for group in self._groups.values():
            for member in list(group.members.values()):
                turn.answer_join(group, member, JoinReply(code=gone, member_id=member.member_id))
                turn.answer_sync(member, SyncReply(code=gone))
                turn.stop(TimerKind.SESSION, group, member.member_id)
            for member_id in group.pending:
                turn.stop(TimerKind.SESSION, group, member_id)
            turn.stop(TimerKind.JOIN, group)
            turn.stop(TimerKind.SYNC, group)
            group.move(State.DEAD, turn.now)
            turn.note(Happened.LEFT, group, "coordinated elsewhere from now on")
        self._reset(gone)
        for event in waiting:
            self._take(turn, event)
        turn.appends.clear()
        turn.commands.append(StopTimer(TimerKey(TimerKind.RETENTION)))

    def check_invariants(self) -> None:
        """Raises AssertionError where the state contradicts itself."""
        for name, group in self._groups.items():
            assert group.name == name
            assert group.state is not State.DEAD
            group.check_invariants()
        busy = [group for appended in self._in_flight.values() for group in appended.groups]
        assert sorted(busy) == sorted(self._queues)
