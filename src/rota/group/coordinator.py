"""The group coordinator: events in, commands out.

A change that a restart must keep goes through the journal: a handler asks for an append, and what
follows from it, the answer above all, waits until the append has succeeded. :mod:`.lane` says what
else waits meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeAlias, assert_never

from rota.errors import Code, InputError
from rota.formats.javahash import java_hash
from rota.group import admin, join, offset, presence, rebalance, sync
from rota.group.classic import Group
from rota.group.event import (
    Append,
    Appended,
    AppendFailed,
    Command,
    Event,
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
from rota.group.lane import Lane, Run, Work
from rota.group.refusal import refused
from rota.group.state import State
from rota.group.turn import Then, Turn, answerable
from rota.model.config import GroupConfig
from rota.model.entry import (
    ClassicEntry,
    Entry,
    GroupForgotten,
    GroupSaved,
    OffsetCommitted,
    OffsetForgotten,
)
from rota.model.reply import DeleteGroupsReply, DescribeGroupsReply, JoinReply, SyncReply
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

Change: TypeAlias = Join | Sync | Leave | CommitOffsets | DeleteOffsets
"""Requests that may change a group, and so may have to wait."""
_WORK: Mapping[type[Change], Work] = MappingProxyType(
    {
        Join: Work.CHANGE,
        Sync: Work.CHANGE,
        Leave: Work.CHANGE,
        CommitOffsets: Work.COMMIT,
        DeleteOffsets: Work.REMOVAL,
    }
)

JOURNAL_PARTITIONS = 50
"""How many partitions ``__consumer_offsets`` has where nobody says otherwise."""


def journal_partition(group: str, partitions: int = JOURNAL_PARTITIONS) -> int:
    """The partition of ``__consumer_offsets`` whose leader coordinates this group."""
    hashed = java_hash(group)
    return 0 if hashed == -(2**31) else abs(hashed) % partitions


@dataclass(frozen=True, slots=True)
class _InFlight:
    group: str
    entries: tuple[ClassicEntry, ...]
    then: Then


class Coordinator:
    """Coordinates the groups of one journal. Pure: it acts through the commands it returns."""

    def __init__(self, config: GroupConfig, new_id: Callable[[], str]) -> None:
        self._config = config
        self._new_id = new_id
        self._groups: dict[str, Group] = {}
        self._unavailable = Code.NONE
        """What every request is told while this coordinator does not serve its groups."""
        self._lanes: dict[str, Lane] = {}
        """For each group of which something is being appended."""
        self._in_flight: dict[int, _InFlight] = {}
        self._tickets = 0
        self._overdue: set[TimerKey] = set()
        """Timers that have fired and wait in a lane; to start or stop one is to take it out."""
        self._deleted_topics: list[TopicsDeleted] = []
        """Told of while loading."""

    def handle(self, event: Event, now: int) -> list[Command]:
        """What must be done now that this has happened."""
        turn = Turn(self._config, now, self._overdue)
        match event:
            case Requested(token, request):
                self._request(turn, token, request)
            case TimerFired(key):
                self._time_is_up(turn, key)
            case TopicsDeleted():
                self._topics_deleted(turn, event)
            case Appended(ticket):
                self._settle(turn, ticket, Code.NONE)
            case AppendFailed(ticket, code):
                assert code, "an append that fails says why"
                self._settle(turn, ticket, code)
            case LoadStarted():
                self._retire(turn, Code.COORDINATOR_LOAD_IN_PROGRESS)
            case Loaded():
                self._serve(turn)
            case Unloaded():
                self._retire(turn, Code.NOT_COORDINATOR)
            case _:
                raise InputError(f"not an event of a coordinator: {event!r}")
        return turn.commands

    # the journal

    def replay(self, entry: Entry) -> None:
        """Takes in an entry of the journal while loading, oldest first.

        Groups of the KIP-848 protocol are passed over: only their offsets are kept.
        """
        if self._unavailable is not Code.COORDINATOR_LOAD_IN_PROGRESS:
            raise InputError("replay: entries are taken in between LoadStarted and Loaded")
        if isinstance(entry, ClassicEntry):
            self._take_in(entry)

    def _take_in(self, entry: ClassicEntry) -> None:
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
        """Hands out what the work that was just done wants appended."""
        for entries, then in turn.appends:
            group = entries[0].group
            lane = self._lanes.setdefault(group, Lane())
            if isinstance(entries[0], OffsetCommitted):
                lane.commits += 1
            else:
                assert not lane.changing, f"two changes at once for group {group!r}"
                lane.changing = True
            self._tickets += 1
            self._in_flight[self._tickets] = _InFlight(group, entries, then)
            turn.commands.append(Append(self._tickets, entries))
        turn.appends.clear()

    def _settle(self, turn: Turn, ticket: int, code: Code) -> None:
        """An append has succeeded or failed."""
        appended = self._in_flight.pop(ticket, None)
        if appended is None:  # of a time before this coordinator was retired
            return
        lane = self._lanes[appended.group]
        if isinstance(appended.entries[0], OffsetCommitted):
            lane.commits -= 1
        else:
            lane.changing = False
        if not code:
            for entry in appended.entries:
                self._apply(turn, entry)
        appended.then(turn, code)
        self._flush(turn)
        while lane.queue and lane.admits(lane.queue[0][0]):
            self._do(turn, lane.queue.popleft()[1])
        if lane.idle:
            del self._lanes[appended.group]

    def _do(self, turn: Turn, run: Run) -> None:
        run(turn)
        self._flush(turn)

    def _work(self, turn: Turn, group: str, work: Work, run: Run) -> None:
        """Does something to a group, as soon as what is under way allows it."""
        lane = self._lanes.get(group)
        if lane is None or (not lane.queue and lane.admits(work)):
            self._do(turn, run)
        else:
            lane.queue.append((work, run))

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
        self._take_in(entry)

    # events

    def _request(self, turn: Turn, token: int, request: Request) -> None:
        if self._unavailable:
            self._send_away(turn, token, request)
            return
        match request:
            case Join() | Sync() | Heartbeat() | Leave() | DeleteOffsets() if not request.group:
                turn.answer(token, refused(request, Code.INVALID_GROUP_ID))
            case Heartbeat():
                presence.heartbeat(turn, self._groups.get(request.group), token, request)
            case FetchOffsets():
                offset.fetch(turn, self._groups.get(request.group), token, request)
            case DescribeGroups():
                self._describe(turn, token, request)
            case ListGroups():
                turn.answer(token, admin.list_groups(self._groups.values(), request))
            case DeleteGroups():
                self._delete_groups(turn, token, request)
            case Join() | Sync() | Leave() | CommitOffsets() | DeleteOffsets():
                run = partial(self._change, token=token, request=request)
                self._work(turn, request.group, _WORK[type(request)], run)
            case _:
                assert_never(request)

    def _send_away(self, turn: Turn, token: int, request: Request) -> None:
        loading = self._unavailable is Code.COORDINATOR_LOAD_IN_PROGRESS
        # a heartbeat while loading is taken at its word: no session runs yet
        code = Code.NONE if loading and isinstance(request, Heartbeat) else self._unavailable
        turn.answer(token, refused(request, code))

    def _change(self, turn: Turn, token: int, request: Change) -> None:
        if self._unavailable:  # it has waited too long
            self._send_away(turn, token, request)
            return
        group = self._groups.get(request.group)
        match request:
            case Join():
                self._join(turn, token, request)
            case Sync():
                sync.handle(turn, group, token, request)
            case Leave():
                presence.leave(turn, group, token, request)
            case CommitOffsets():
                offset.commit(turn, group, token, request)
            case DeleteOffsets():
                offset.delete(turn, group, token, request)
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

    def _delete_groups(self, turn: Turn, token: int, request: DeleteGroups) -> None:
        """Each group on its own: none waits for another. The answer is given once, for all."""
        codes = dict.fromkeys(request.groups, Code.NONE)
        waiting = set(codes)

        def deleted(later: Turn, code: Code, name: str) -> None:
            codes[name] = code
            waiting.discard(name)
            if not waiting:
                later.answer(token, DeleteGroupsReply(codes=codes))

        def delete(later: Turn, name: str) -> None:
            if self._unavailable:
                deleted(later, self._unavailable, name)
            else:
                admin.delete(later, self._groups.get(name), partial(deleted, name=name))

        if not codes:
            turn.answer(token, DeleteGroupsReply(codes={}))
        for name in codes:
            self._work(turn, name, Work.REMOVAL, partial(delete, name=name))

    def _topics_deleted(self, turn: Turn, event: TopicsDeleted) -> None:
        if self._unavailable:
            self._deleted_topics.append(event)
            return

        def forget(later: Turn, name: str) -> None:
            group = self._groups.get(name)
            if group is not None:
                offset.forget(later, group, offset.of_deleted(group, event.topics))

        # a group may begin with a commit that is under way
        for name in dict.fromkeys((*self._groups, *self._lanes)):
            self._work(turn, name, Work.REMOVAL, partial(forget, name=name))

    def _time_is_up(self, turn: Turn, key: TimerKey) -> None:
        if key.kind is TimerKind.RETENTION:
            self._start_retention(turn)
            for name in list(self._groups):
                self._work(turn, name, Work.REMOVAL, partial(self._expire, name=name))
            return
        # while it waits, what comes before it may start or stop this timer: then it is void
        self._overdue.add(key)
        self._work(turn, key.group, Work.CHANGE, partial(self._act_on_time, key=key))

    def _act_on_time(self, turn: Turn, key: TimerKey) -> None:
        if key not in self._overdue:
            return
        self._overdue.discard(key)
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
            case TimerKind.RETENTION:
                pass
            case _:
                assert_never(key.kind)

    def _expire(self, turn: Turn, name: str) -> None:
        """Forgets offsets whose time is over, and an empty group that has none left."""
        group = self._groups.get(name)
        if group is None:
            return
        over = offset.expired(group, turn.now, turn.config.offsets_retention)
        entries: tuple[ClassicEntry, ...] = offset.tombstones(group, over)
        idle = group.state is State.EMPTY and not group.pending
        if idle and len(over) == len(group.offsets):
            entries = (*entries, GroupForgotten(group=name))
        if entries:
            turn.append(entries)

    def _start_retention(self, turn: Turn) -> None:
        at = turn.now + turn.config.retention_check_interval
        turn.commands.append(StartTimer(TimerKey(TimerKind.RETENTION), at))

    # whose groups they are

    def _serve(self, turn: Turn) -> None:
        """The journal is loaded: sessions begin anew, for members could not be heard meanwhile."""
        self._unavailable = Code.NONE
        for group in self._groups.values():
            for member in group.members.values():
                turn.start_session(group, member)
            if len(group.members) > turn.config.max_size:
                reason = f"loaded with more than {turn.config.max_size} members"
                rebalance.start(turn, group, reason)
        self._start_retention(turn)
        missed, self._deleted_topics = self._deleted_topics, []
        for event in missed:
            self._topics_deleted(turn, event)

    def _retire(self, turn: Turn, code: Code) -> None:
        """Its groups are another's, or are loaded anew: whoever waits is sent away."""
        self._unavailable = code
        in_flight, self._in_flight = self._in_flight, {}
        lanes, self._lanes = self._lanes, {}
        for appended in in_flight.values():
            appended.then(turn, code)
        for group in self._groups.values():
            for member in group.members.values():
                turn.answer_join(group, member, JoinReply(code=code, member_id=member.member_id))
                turn.answer_sync(member, SyncReply(code=code))
            turn.stop_all(group)
            group.move(State.DEAD, turn.now)
        self._groups.clear()
        for lane in lanes.values():
            for _, run in lane.queue:
                run(turn)
        turn.appends.clear()
        self._overdue.clear()
        turn.commands.append(StopTimer(TimerKey(TimerKind.RETENTION)))

    def check_invariants(self) -> None:
        """Raises AssertionError where the state contradicts itself."""
        for name, group in self._groups.items():
            assert group.name == name
            assert group.state is not State.DEAD
            group.check_invariants()
        commits = Counter(
            one.group
            for one in self._in_flight.values()
            if isinstance(one.entries[0], OffsetCommitted)
        )
        changing = {one.group for one in self._in_flight.values()} - commits.keys()
        for name, lane in self._lanes.items():
            assert not lane.idle
            assert lane.commits == commits[name]
            assert lane.changing or name not in changing
            assert not lane.queue or not lane.admits(lane.queue[0][0]), "nothing is waited for"
        assert self._lanes.keys() >= {one.group for one in self._in_flight.values()}
