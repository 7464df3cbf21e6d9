"""Runs the group coordinators: what they want appended is appended, then they are told, then
their answers leave.

A journal has partitions, and each has a coordinator of its own, a *shard*: it coordinates the
groups whose names fall on its partition. An append is over when it returns, so a coordinator is
told of it at once; and as its commands are carried out in the order they came, no answer leaves
before what it promises is in the journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias, assert_never

from rota.broker import journal
from rota.broker.alarm import Alarms
from rota.broker.topic import Topic
from rota.broker.topics import Topics
from rota.errors import Code, DiskError, FormatError, InputError, Refused
from rota.formats.journal import encode
from rota.group.coordinator import Coordinator, journal_partition
from rota.group.event import (
    Answer,
    Append,
    Appended,
    AppendFailed,
    Command,
    Event,
    Happened,
    Loaded,
    LoadStarted,
    Note,
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
from rota.model.config import GroupConfig
from rota.model.entry import Entry, GroupForgotten, GroupSaved
from rota.model.naming import JOURNAL
from rota.model.reply import (
    DeleteGroupsReply,
    DescribedGroup,
    DescribeGroupsReply,
    JoinReply,
    ListedGroup,
    ListGroupsReply,
    Reply,
)
from rota.model.request import (
    DeleteGroups,
    DescribeGroups,
    FetchOffsets,
    Join,
    ListGroups,
    Request,
)
from rota.sim.brokerlog import GroupLog

MOVING = 10_000
"""So long, in milliseconds, a journal partition that was moved away stays away if nobody asks."""
INFO, WARNING, ERROR = 20, 30, 40

Then: TypeAlias = Callable[[Reply], None]


class Shard:
    """A journal partition and its coordinator."""

    def __init__(self, number: int, coordinator: Coordinator) -> None:
        self.number = number
        self.coordinator = coordinator
        self.logs: dict[str, GroupLog] = {}
        self.moved = False
        """It was unloaded, and is loaded again when somebody looks for it."""
        self.trouble = ""
        """Why the last append failed."""


class Groups:
    """All groups of a broker. Everything happens inside the call that asks for it, but for joins
    and syncs that wait for other members, and what an alarm brings.
    """

    def __init__(  # noqa: PLR0913 (what groups need)
        self,
        config: GroupConfig,
        topics: Topics,
        alarms: Alarms,
        new_id: Callable[[], str],
        log: Callable[[int, str], None],
        *,
        node_id: int = 1,
    ) -> None:
        self.config = config
        self._topics = topics
        self._alarms = alarms
        self._new_id = new_id
        self._log = log
        self._node_id = node_id
        self._shards: list[Shard] = []
        """None before there is a journal."""
        self._waiting: dict[int, tuple[Request, Then]] = {}
        self._tokens = 0
        self._todo: deque[tuple[Shard, Command, int]] = deque()
        self._busy = False
        topics.on_deleted(self._topic_deleted)

    # where groups are

    def load(self, now: int) -> None:
        """Replays the journal, if there is one: at the broker's start."""
        topic = self._topics.get(JOURNAL)
        if topic is not None:
            self._open(topic, now)

    def find(self, group: str, now: int) -> Code:
        """Somebody looks for a group's coordinator: it is here, if the journal can be had."""
        try:
            shard = self._shard(group, now)
        except (DiskError, Refused) as error:
            self._log(ERROR, f"{JOURNAL} cannot be made: {error}")
            return Code.COORDINATOR_NOT_AVAILABLE
        if shard.moved:
            self._load(shard, now)
        return Code.NONE

    def move(self, group: str, now: int) -> None:
        """Unloads a group, with all of its journal partition, as if another broker took over.

        Its members are told so, and it is loaded again as soon as somebody looks for it.
        """
        shard = self._shard(group, now)
        self._run(shard, Unloaded(), now)
        shard.moved = True
        self._alarms.start(("moved", shard.number), now + MOVING, partial(self._load, shard))

    def _open(self, topic: Topic, now: int) -> None:
        self._shards = [
            Shard(number, Coordinator(self.config, self._new_id))
            for number in range(topic.partitions)
        ]
        for shard in self._shards:
            self._load(shard, now)

    def _shard(self, group: str, now: int) -> Shard:
        if not self._shards:
            self._open(self._topics.journal(now), now)
        return self._shards[journal_partition(group, len(self._shards))]

    def _load(self, shard: Shard, now: int) -> None:
        """Takes over a partition of the journal. One that is damaged is not served, as in Kafka:
        offsets that go back unseen do more harm than a group that waits.
        """
        shard.moved = False
        self._alarms.stop(("moved", shard.number))
        self._run(shard, LoadStarted(), now)
        shard.logs.clear()
        log = self._topics.log(JOURNAL, shard.number)
        assert log is not None, f"{JOURNAL} has no partition {shard.number}"
        try:
            log.check_online()
            told = journal.replay(log, partial(_take, shard))
        except (DiskError, Refused) as error:
            self._say(shard, ERROR, f"Its groups are not served, for it cannot be read: {error}")
            self._run(shard, Unloaded(), now)
            return
        self._tell(shard, told)
        for group in shard.logs.values():
            self._say(shard, INFO, group.loaded())
        self._run(shard, Loaded(), now)

    def _tell(self, shard: Shard, told: journal.Replayed) -> None:
        if told.passed:
            kinds = ", ".join(f"{count} {name}" for name, count in sorted(told.passed.items()))
            text = f"Passed over, for only classic groups and offsets are read: {kinds}."
            self._say(shard, WARNING, text)
        if told.unread:
            text = f"{len(told.unread)} records cannot be read; the first: {told.unread[0]}"
            self._say(shard, ERROR, text)

    # requests

    def ask(self, request: Request, then: Then, now: int) -> None:
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
            self._log(ERROR, f"{JOURNAL} cannot be made: {error}")
            then(refused(request, Code.COORDINATOR_NOT_AVAILABLE))

    def look(self, request: DescribeGroups | FetchOffsets | ListGroups, now: int) -> Reply:
        """What is so, for the broker's owner: also of groups that were moved away, and stay so."""
        match request:
            case FetchOffsets():
                return _told(self._here(request.group, now), request, now)
            case DescribeGroups():
                described: list[DescribedGroup] = []
                for name in request.groups:
                    reply = _told(self._here(name, now), replace(request, groups=(name,)), now)
                    assert isinstance(reply, DescribeGroupsReply)
                    described.extend(reply.groups)
                return DescribeGroupsReply(groups=tuple(described))
            case ListGroups():
                listed: list[ListedGroup] = []
                for shard in self._shards:
                    reply = _told(self._present(shard, now), request, now)
                    assert isinstance(reply, ListGroupsReply)
                    listed.extend(reply.groups)
                return ListGroupsReply(groups=tuple(sorted(listed, key=lambda each: each.group)))
            case _:
                assert_never(request)

    def _here(self, group: str, now: int) -> Coordinator:
        if not self._shards:
            return Coordinator(self.config, self._new_id)
        return self._present(self._shard(group, now), now)

    def _present(self, shard: Shard, now: int) -> Coordinator:
        """A partition's coordinator; of one that was moved, as another broker would have it."""
        if not shard.moved:
            return shard.coordinator
        log = self._topics.log(JOURNAL, shard.number)
        assert log is not None
        copy = Coordinator(self.config, self._new_id)
        copy.handle(LoadStarted(), now)
        log.check_online()
        journal.replay(log, copy.replay)
        copy.handle(Loaded(), now)
        return copy

    def _request(self, shard: Shard, request: Request, then: Then, now: int) -> None:
        self._tokens += 1
        self._waiting[self._tokens] = request, then
        self._run(shard, Requested(self._tokens, request), now)

    def _list(self, request: ListGroups, then: Then, now: int) -> None:
        """Of all coordinators; one that is not here has no groups, as in Kafka."""
        found: list[ListedGroup] = []
        left = len(self._shards)

        def listed(reply: Reply) -> None:
            nonlocal left
            assert isinstance(reply, ListGroupsReply)
            found.extend(reply.groups)
            left -= 1
            if not left:
                groups = tuple(sorted(found, key=lambda each: each.group))
                then(ListGroupsReply(groups=groups))

        if not left:
            then(ListGroupsReply())
        for shard in self._shards:
            self._request(shard, request, listed, now)

    def _describe(self, request: DescribeGroups, then: Then, now: int) -> None:
        found: dict[str, DescribedGroup] = {}
        names = dict.fromkeys(request.groups)

        def described(reply: Reply) -> None:
            assert isinstance(reply, DescribeGroupsReply)
            found.update((group.group, group) for group in reply.groups)
            if len(found) == len(names):
                groups = tuple(found[name] for name in request.groups)
                then(DescribeGroupsReply(groups=groups))

        if not names:
            then(DescribeGroupsReply(groups=()))
        for name in names:
            one = DescribeGroups(groups=(name,), knows_missing_group=request.knows_missing_group)
            self._request(self._shard(name, now), one, described, now)

    def _delete(self, request: DeleteGroups, then: Then, now: int) -> None:
        codes: dict[str, Code] = {}
        names = dict.fromkeys(request.groups)

        def deleted(reply: Reply) -> None:
            assert isinstance(reply, DeleteGroupsReply)
            codes.update(reply.codes)
            if len(codes) == len(names):
                then(DeleteGroupsReply(codes={name: codes[name] for name in names}))

        if not names:
            then(DeleteGroupsReply(codes={}))
        for name in names:
            self._request(self._shard(name, now), DeleteGroups(groups=(name,)), deleted, now)

    # what happens by itself

    def expire(self, group: str, member_id: str, now: int) -> None:
        """Ends a member's session, as if it had been silent for so long.

        :raises InputError: there is no such member
        """
        reply = self.look(DescribeGroups(groups=(group,)), now)
        assert isinstance(reply, DescribeGroupsReply)
        known = [member.member_id for member in reply.groups[0].members]
        if member_id not in known:
            there = ", ".join(known) or "none"
            raise InputError(f"group {group!r} has no member {member_id!r}; its members: {there}")
        shard = self._shard(group, now)
        if shard.moved:
            self._load(shard, now)
        key = TimerKey(TimerKind.SESSION, group, member_id)
        self._alarms.stop((shard.number, key))
        self._run(shard, TimerFired(key), now)

    def _ring(self, shard: Shard, key: TimerKey, now: int) -> None:
        self._run(shard, TimerFired(key), now)

    def _topic_deleted(self, topic: Topic, now: int) -> None:
        if topic.name != JOURNAL:
            for shard in self._shards:
                self._run(shard, TopicsDeleted(((topic.name, topic.id),)), now)
            return
        shards, self._shards = self._shards, []
        for shard in shards:
            self._alarms.stop(("moved", shard.number))
            self._run(shard, Unloaded(), now)

    # commands

    def _run(self, shard: Shard, event: Event, now: int) -> None:
        """Gives an event to a coordinator, and does what it says.

        Whoever is answered may ask again at once: that waits until what came before is done.
        """
        self._todo.extend((shard, command, now) for command in self._handled(shard, event, now))
        if self._busy:
            return
        self._busy = True
        try:
            while self._todo:
                self._carry_out(*self._todo.popleft())
        finally:
            self._busy = False

    @staticmethod
    def _handled(shard: Shard, event: Event, now: int) -> list[Command]:
        return shard.coordinator.handle(event, now)

    def _carry_out(self, shard: Shard, command: Command, now: int) -> None:
        match command:
            case Answer(token, reply):
                self._answer(shard, token, reply)
            case StartTimer(key, at):
                ring = partial(self._ring, shard, key)
                patient = key.kind is TimerKind.RETENTION
                self._alarms.start((shard.number, key), at, ring, patient=patient)
            case StopTimer(key):
                self._alarms.stop((shard.number, key))
            case Append():
                code = self._append(shard, command, now)
                event: Event = Appended(command.ticket)
                if code:
                    event = AppendFailed(command.ticket, code)
                self._run(shard, event, now)
            case Note():
                self._note(shard, command)
            case _:
                assert_never(command)

    def _answer(self, shard: Shard, token: int, reply: Reply) -> None:
        request, then = self._waiting.pop(token)
        if isinstance(reply, JoinReply) and reply.code is Code.MEMBER_ID_REQUIRED:
            assert isinstance(request, Join)
            for text in _group_log(shard, request.group).answered(reply):
                self._say(shard, INFO, text)
        then(reply)

    def _append(self, shard: Shard, append: Append, now: int) -> Code:
        try:
            pairs = list(map(encode, append.entries))
            self._topics.append_records(JOURNAL, shard.number, pairs, now)
        except FormatError as error:
            self._say(shard, WARNING, f"A request is refused, for it has no room here: {error}")
            return Code.UNKNOWN
        except DiskError as error:
            return self._failed(shard, Code.KAFKA_STORAGE_ERROR, error)
        except Refused as error:
            return self._failed(shard, error.code, error)
        if shard.trouble:
            shard.trouble = ""
            self._say(shard, INFO, "It can be written again.")
        for entry in append.entries:
            _keep(shard, entry)
        return Code.NONE

    def _failed(self, shard: Shard, code: Code, error: Exception) -> Code:
        if shard.trouble != str(error):  # said once, however often it is tried again
            shard.trouble = str(error)
            self._say(shard, ERROR, f"It cannot be written, so that members must wait: {error}")
        return code

    # the log

    def _note(self, shard: Shard, note: Note) -> None:
        if note.what is Happened.REFUSED:
            self._say(shard, WARNING, f"A member of group {note.group} is refused: {note.text}")
        for text in _group_log(shard, note.group).noted(note.what, note.generation, note.text):
            self._say(shard, INFO, text)

    def _say(self, shard: Shard, level: int, text: str) -> None:
        """In the form of Kafka's broker, so that whatever reads its log reads this one too."""
        where = f"id={self._node_id} topic={JOURNAL} partition={shard.number}"
        self._log(level, f"[GroupCoordinator {where}] {text}")


def _told(coordinator: Coordinator, request: Request, now: int) -> Reply:
    """The answer to a request that only reads: it is given at once, and nothing else follows."""
    (answer,) = coordinator.handle(Requested(0, request), now)
    assert isinstance(answer, Answer)
    return answer.reply


def _group_log(shard: Shard, group: str) -> GroupLog:
    known = shard.logs.get(group)
    if known is None:
        known = shard.logs[group] = GroupLog(group)
    return known


def _keep(shard: Shard, entry: Entry) -> None:
    """What the log's lines must know of the journal."""
    if isinstance(entry, GroupSaved):
        _group_log(shard, entry.group).saved(entry)
    elif isinstance(entry, GroupForgotten):
        shard.logs.pop(entry.group, None)


def _take(shard: Shard, entry: Entry) -> None:
    shard.coordinator.replay(entry)
    _keep(shard, entry)
