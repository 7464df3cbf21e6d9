"""What a coordinator may do: checked on every event it handles.

The checks know nothing of its insides. They see events and commands, ask for the list of groups,
and compare with the journal, replayed a second time by :mod:`tests.support.simulation.stored`.

When a generation may come again: one whose assignment was not stored is unknown to the next
coordinator, which gives its number out once more. Nobody was ever stable in it. Each time a join
phase ends is therefore an *incarnation* of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rota.engine.coordinator.coordinator import Coordinator
from rota.engine.coordinator.events import (
    AppendEntries,
    AppendFailed,
    AppendSucceeded,
    CoordinatorCommand,
    CoordinatorEvent,
    GroupTimerKind,
    JournalLoaded,
    JournalLoadStarted,
    JournalUnloaded,
    RequestReceived,
    SendResponse,
    StartGroupTimer,
)
from rota.engine.coordinator.notes import (
    GenerationStarted,
    GroupEmptied,
    GroupNote,
    GroupStabilized,
    JoinTimedOut,
    MemberLeft,
    RebalanceStarted,
    SessionExpired,
    StaticMemberReplaced,
    SyncTimedOut,
)
from rota.engine.coordinator.state import GroupState
from rota.engine.model.config import GroupConfig
from rota.engine.model.journal_entry import (
    ClassicEntry,
    GroupMetadataEntry,
    GroupMetadataTombstone,
    OffsetCommitEntry,
    OffsetCommitTombstone,
)
from rota.engine.model.request import (
    GroupRequest,
    Heartbeat,
    JoinGroup,
    ListGroups,
    OffsetCommit,
    SyncGroup,
)
from rota.engine.model.response import (
    DeleteGroupsResult,
    GroupResponse,
    HeartbeatResult,
    JoinGroupResult,
    LeaveGroupResult,
    ListGroupsResult,
    OffsetCommitResult,
    OffsetDeleteResult,
    OffsetFetchResult,
    SyncGroupResult,
)
from rota.errors import Code
from tests.support.simulation.response_checker import LiveGroup, ResponseChecker
from tests.support.simulation.rule import RuleViolation, must

#: What is told of something that could not be stored.
LATER = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})
#: What one that was replaced may be told; a join can be refused for other reasons first.
FENCING = LATER | {
    Code.FENCED_INSTANCE_ID,
    Code.GROUP_MAX_SIZE_REACHED,
    Code.INCONSISTENT_GROUP_PROTOCOL,
    Code.GROUP_ID_NOT_FOUND,
}
#: ResponseChecker to a heartbeat that counts.
BEATEN = frozenset({Code.NONE, Code.REBALANCE_IN_PROGRESS})
#: The state that a note says a group has come into.
STATES = {
    RebalanceStarted: GroupState.PREPARING,
    GenerationStarted: GroupState.COMPLETING,
    GroupStabilized: GroupState.STABLE,
    GroupEmptied: GroupState.EMPTY,
}
#: No world has so many generations, unless it rebalances without end.
ENDLESS = 250
#: A token of the checks' own.
PROBE = -1


@dataclass(frozen=True, slots=True)
class InFlight:
    entries: tuple[ClassicEntry, ...]
    #: The token of the commit whose offsets these are.
    commit: int | None
    #: The token of the request whose handling led to it, where that is known.
    cause: int | None
    #: How much was in the journal before.
    after: int

    @property
    def is_commit(self) -> bool:
        return isinstance(self.entries[0], OffsetCommitEntry)


class CoordinatorChecker:
    """Watches the coordinators of one journal, one after another."""

    def __init__(self, tally: Counter[str]) -> None:
        self.journal: Sequence[ClassicEntry] = ()
        self.answers = ResponseChecker()
        self.stored = self.answers.stored
        self.live = self.answers.live
        #: Requests that are not answered yet.
        self.waiting: dict[int, GroupRequest] = {}
        #: When each of them came.
        self.since: dict[int, int] = {}
        self.generations: Counter[str] = Counter()
        #: Groups into whose present generation a static member came back.
        self.returned: set[str] = set()
        self.tally = tally
        self.on_note: Callable[[GroupNote], None] = lambda note: None
        self.on_append: Callable[[tuple[ClassicEntry, ...]], None] = lambda entries: None
        self._loading = False
        self._in_flight: dict[int, InFlight] = {}
        self._settled: InFlight | None = None
        self._cause: int | None = None
        #: The member id that took the place of each one that was replaced.
        self._successor: dict[str, str] = {}
        #: When each member was last given a sign that its heartbeat had been heard.
        self._heard: dict[str, int] = {}
        self._now = 0
        #: Member ids that were thrown out, or left.
        self._gone: set[str] = set()
        self._incarnations = 0
        self._read = 0

    # one event

    def handled(
        self,
        coordinator: CheckedCoordinator,
        event: CoordinatorEvent,
        commands: list[CoordinatorCommand],
        now: int,
    ) -> None:
        self._settled = None
        self._now = now
        self._cause = event.token if isinstance(event, RequestReceived) else None
        self._read_journal()
        self._happened(coordinator, event, commands, now)
        for command in commands:
            self._commanded(command)
        told = [command for command in commands if isinstance(command, GroupNote)]
        for note in told:
            if isinstance(note.change, StaticMemberReplaced):
                self._check_replaced(note, note.change.old_member_id)
        if isinstance(event, JournalUnloaded):
            must(not self.waiting, "everybody is answered", *self.waiting.values())
            self.live.clear()
        elif (told or isinstance(event, AppendSucceeded)) and not self._loading:
            self._compare(coordinator, now)
        coordinator.check_invariants()

    def _happened(
        self,
        coordinator: Coordinator,
        event: CoordinatorEvent,
        commands: list[CoordinatorCommand],
        now: int,
    ) -> None:
        match event:
            case JournalLoadStarted():
                self._begin_anew()
            case JournalLoaded():
                self._loaded(coordinator, commands)
            case RequestReceived(token, request):
                self.waiting[token] = request
                self.since[token] = now
            case AppendSucceeded(ticket):
                self._appended(ticket)
            case AppendFailed(ticket):
                self._settled = self._in_flight.pop(ticket)
                self._refused(self._settled, commands)
            case _:
                pass

    def _commanded(self, command: CoordinatorCommand) -> None:
        match command:
            case SendResponse(token, reply):
                self._answered(token, reply)
            case AppendEntries():
                self._appends(command)
            case GroupNote():
                self._noted(command)
            case _:
                pass

    # loading

    def _begin_anew(self) -> None:
        for append in self._in_flight.values():
            self._check_whole(append)
        self._loading = True
        self.answers.lives += 1
        self.live.clear()
        self.waiting.clear()
        self._in_flight.clear()

    def _check_whole(self, append: InFlight) -> None:
        """What a coordinator was writing when it died is there as a whole, or not at all."""
        others = {
            entry for one in self._in_flight.values() if one is not append for entry in one.entries
        }
        since = self.journal[append.after :]
        there = [entry in since for entry in append.entries if entry not in others]
        must(all(there) or not any(there), "all or nothing is written", *append.entries)

    def _loaded(self, coordinator: Coordinator, commands: list[CoordinatorCommand]) -> None:
        self._loading = False
        found = list(coordinator.make_journal_snapshot())
        big = [name for name, group in self.stored.groups.items() if self._too_big(commands, name)]
        wanted = [
            one
            for one in self.stored.compacted()
            if not (isinstance(one, GroupMetadataEntry) and one.group in big)
        ]
        must(found == wanted, "a restart is a replay", f"\n  is {found}\n  not {wanted}")
        armed = {one.key for one in commands if isinstance(one, StartGroupTimer)}
        sessions = {key.member_id for key in armed if key.kind is GroupTimerKind.SESSION}
        stored = {m.member_id for group in self.stored.groups.values() for m in group.saved.members}
        self._gone.update(set(self._successor.values()) - stored)
        for name, group in self.stored.groups.items():
            saved = group.saved
            members = {member.member_id for member in saved.members}
            must(members <= sessions, "sessions start after a load", name, members - sessions)
            for member_id in members:  # that they were replaced was not stored
                self._successor.pop(member_id, None)
                self._heard[member_id] = self._now
            state = GroupState.STABLE if members else GroupState.EMPTY
            self.live[name] = LiveGroup(state, saved.generation, group.incarnation)

    @staticmethod
    def _too_big(commands: list[CoordinatorCommand], group: str) -> bool:
        notes = [one for one in commands if isinstance(one, GroupNote) and one.group == group]
        return any(isinstance(note.change, RebalanceStarted) for note in notes)

    # the journal

    def _appends(self, append: AppendEntries) -> None:
        self.on_append(append.entries)
        commits = [one for one in append.entries if isinstance(one, OffsetCommitEntry)]
        token = self._accepted(commits) if commits else None
        one = InFlight(append.entries, token, self._cause, len(self.journal))
        group = one.entries[0].group
        busy = [other for other in self._in_flight.values() if other.entries[0].group == group]
        removes = any(isinstance(entry, OffsetCommitTombstone) for entry in one.entries)
        alone = all(other.is_commit for other in busy) and not (removes and busy)
        must(alone, "one change at a time", one, *busy)
        self._in_flight[append.append_id] = one

    def _accepted(self, entries: list[OffsetCommitEntry]) -> int:
        """The request that these offsets come from: it must be of the group's generation."""
        group = entries[0].group
        live = self.live.get(group)
        offered = {(one.topic, one.partition): one.offset for one in entries}
        taken = {one.commit for one in self._in_flight.values()}
        same = {
            token: request
            for token, request in self.waiting.items()
            if isinstance(request, OffsetCommit)
            and request.group == group
            and token not in taken
            and {tuple(tp): given.offset for tp, given in request.offsets.items()} == offered
        }
        for token, request in same.items():
            if _may_commit(live, request) and request.member_id not in self._successor:
                return token
        raise RuleViolation("commits are of the generation", f"group {live}, stored of {same}")

    def _read_journal(self) -> None:
        """Follows what was written, also by a coordinator that died over it."""
        for entry in self.journal[self._read :]:
            live = self.live.get(entry.group)
            self.stored.apply(entry, live.incarnation if live else 0)
            if isinstance(entry, GroupMetadataTombstone):
                self.live.pop(entry.group, None)
            elif live is None:
                self.live[entry.group] = LiveGroup(GroupState.EMPTY, 0, 0)
        self._read = len(self.journal)

    def _appended(self, ticket: int) -> None:
        self._settled = settled = self._in_flight.pop(ticket)
        written = tuple(self.journal[-len(settled.entries) :])
        must(written == settled.entries, "appended means written", settled.entries)

    def _refused(self, failed: InFlight, commands: list[CoordinatorCommand]) -> None:
        """Whoever waited for it is told to try again, here or elsewhere."""
        answers = [one for one in commands if isinstance(one, SendResponse)]
        for token in {failed.commit, failed.cause} & self.waiting.keys():
            told = [code for one in answers if one.token == token for code in _codes(one.response)]
            must(told and LATER.issuperset(told), "failed appends are told", failed, told)

    # notes

    def _noted(self, note: GroupNote) -> None:
        change = note.change
        self.tally[f"note {type(change).__name__}"] += 1
        live = self.live.get(note.group)
        must(live is not None, "notes are of groups", note)
        assert live is not None
        if isinstance(change, GenerationStarted | GroupEmptied):
            following = note.generation == live.generation + 1
            must(following, "generations rise by one", live, note)
            self._incarnations += 1
            live.incarnation = self._incarnations
            live.generation = note.generation
            self.generations[note.group] += 1
            endless = self.generations.total() > ENDLESS
            must(not endless, "generations are bounded by events", self.generations)
            self.returned.discard(note.group)
        elif not isinstance(change, MemberLeft):
            must(note.generation == live.generation, "generations stay", live, note)
        if isinstance(change, StaticMemberReplaced):
            self._successor[change.old_member_id] = change.member_id
            if live.state is GroupState.STABLE:
                self.returned.add(note.group)
        elif isinstance(change, SessionExpired | MemberLeft | JoinTimedOut | SyncTimedOut):
            self._gone.update(new for new in self._successor.values() if new in str(change))
        if isinstance(change, SessionExpired):
            self._check_silence(change)
        live.state = STATES.get(type(change), live.state)
        must(note.state is live.state, "notes tell the states", note, live)
        self.on_note(note)

    def _check_silence(self, expired: SessionExpired) -> None:
        """Nobody is called silent who was heard within its session."""
        silent = self._now - self._heard.get(expired.member_id, 0)
        must(silent >= expired.session_timeout, "who was heard is not silent", expired, silent)

    def _check_replaced(self, note: GroupNote, old: str) -> None:
        """Whatever the one that was replaced waited for has been answered."""
        requests = [one for one in self.waiting.values() if isinstance(one, JoinGroup | SyncGroup)]
        rest = [one for one in requests if one.group == note.group and one.member_id == old]
        busy = any(one.entries[0].group == note.group for one in self._in_flight.values())
        must(busy or not rest, "who is fenced is told", note, *rest)

    def _compare(self, coordinator: CheckedCoordinator, now: int) -> None:
        """What the coordinator shows is what its notes and its journal say."""
        shown = coordinator.list_states(now)
        states = {name: live.state.value for name, live in self.live.items()}
        must(shown == states, "notes tell the states", f"shown {shown}, noted {states}")
        for entry in coordinator.make_journal_snapshot() if not self._in_flight else ():
            if isinstance(entry, GroupMetadataEntry) and entry.members:
                saved = self.stored.groups[entry.group].saved
                same = replace(entry, state_timestamp=saved.state_timestamp) == saved
                must(same, "what is stable is stored", f"\n  is {entry}\n  stored {saved}")

    # answers

    def _answered(self, token: int, reply: GroupResponse) -> None:
        request = self.waiting.pop(token, None)
        must(request is not None, "answered once", token, reply)
        assert request is not None
        codes = _codes(reply)
        for code in codes:
            self.tally[f"{type(request).__name__} {code.name}"] += 1
        if self._loading:
            return
        if isinstance(request, JoinGroup | SyncGroup | Heartbeat | OffsetCommit):
            self._check_fence(request, codes)
        if isinstance(request, Heartbeat) and BEATEN.issuperset(codes):
            self._heard[request.member_id] = self._now
        if Code.NONE not in codes:
            return
        written = self._settled is not None and self._settled.commit == token
        self.answers.check(request, reply, written=written)

    def _check_fence(
        self, request: JoinGroup | SyncGroup | Heartbeat | OffsetCommit, codes: list[Code]
    ) -> None:
        """Who was replaced is never served again; and is told so, while the other is there."""
        newest = self._successor.get(request.member_id)
        if newest is None:
            return
        if isinstance(request, OffsetCommit) and Code.NONE in codes:
            return  # it was taken in before the other came
        must(Code.NONE not in codes, "fenced for good", request)
        while newest in self._successor:
            newest = self._successor[newest]
        if request.group_instance_id is not None and newest not in self._gone:
            must(set(codes) <= FENCING, "who is fenced is told", request, codes)


def _may_commit(live: LiveGroup | None, request: OffsetCommit) -> bool:
    if request.generation < 0:
        return live is None or live.state is GroupState.EMPTY
    if live is None or request.generation != live.generation:
        return False
    return live.state in (GroupState.STABLE, GroupState.PREPARING)


def _codes(reply: GroupResponse) -> list[Code]:
    """The codes of a reply; one of success among them makes it one that must be true."""
    match reply:
        case OffsetCommitResult() | DeleteGroupsResult():
            return list(dict.fromkeys(reply.codes.values()))
        case OffsetDeleteResult() if not reply.code:
            return list(dict.fromkeys(reply.codes.values()))
        case LeaveGroupResult() if not reply.code:
            return list(dict.fromkeys(member.code for member in reply.members))
        case (
            JoinGroupResult()
            | SyncGroupResult()
            | HeartbeatResult()
            | OffsetFetchResult()
            | LeaveGroupResult()
        ):
            return [reply.code]
        case OffsetDeleteResult() | ListGroupsResult():
            return [reply.code]
        case _:
            return [group.code for group in reply.groups]


class CheckedCoordinator(Coordinator):
    """A coordinator under the eyes of a :class:`CoordinatorChecker`."""

    def __init__(
        self, driver: CoordinatorChecker, config: GroupConfig, new_id: Callable[[], str]
    ) -> None:
        super().__init__(config, new_id)
        self._desk = driver

    def handle(self, event: CoordinatorEvent, now: int) -> list[CoordinatorCommand]:
        commands = super().handle(event, now)
        self._desk.handled(self, event, commands, now)
        return commands

    def list_states(self, now: int) -> dict[str, str]:
        """The state of every group, as an admin is told."""
        commands = super().handle(RequestReceived(PROBE, ListGroups()), now)
        (answer,) = commands
        assert isinstance(answer, SendResponse)
        assert isinstance(answer.response, ListGroupsResult)
        return {one.group: one.state for one in answer.response.groups}
