"""Anything at all is asked of a coordinator, in any order, while its journal is slow and fails.

Everybody is answered, once; no timer is left behind and none is missing; nothing escapes.
"""

from __future__ import annotations

import itertools
import random

import pytest

from rota.engine.coordinator.coordinator import Coordinator
from rota.engine.coordinator.events import (
    AppendEntries,
    AppendFailed,
    AppendSucceeded,
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
from rota.engine.model.config import DAY, GroupConfig
from rota.engine.model.journal_entry import ClassicEntry
from rota.engine.model.request import (
    DeleteGroups,
    DescribeGroups,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    JoinGroupProtocol,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
)
from rota.engine.model.response import (
    DescribedGroup,
    DescribeGroupsResult,
    GroupResponse,
    JoinGroupResult,
)
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code
from tests.support.coordinator_driver import subscription_metadata

GROUPS = ("g", "g", "g", "h", "")
T0 = TopicPartition("t", 0)
FAILURES = (
    Code.NOT_COORDINATOR,
    Code.KAFKA_STORAGE_ERROR,
    Code.REQUEST_TIMED_OUT,
    Code.MESSAGE_TOO_LARGE,
    Code.UNKNOWN,
)
LOOK = -1
DOINGS = ("ask", "store", "fire", "topics", "week", "move", "wait")
WEIGHTS = (70, 16, 10, 1, 1, 0.5, 1.5)
STATES = {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}


class Hostile:
    """Asks what no honest client would, knowing just enough to be heard."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        ids = itertools.count()
        config = GroupConfig(max_size=self.random.choice((1, 2, 3, 100)))
        self.coordinator = Coordinator(config, lambda: f"i{next(ids)}")
        self.now = 0
        self.asked = 0
        self.waiting: set[int] = set()
        self.timers: dict[GroupTimerKey, int] = {}
        self.held: list[AppendEntries] = []
        self.journal: list[ClassicEntry] = []
        self.members = ["", "nobody"]
        self.generations = [-1, 0, 1]
        #: Who was told of a generation, the leaders twice.
        self.joined: list[tuple[str, int]] = []
        self.load()

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability

    # the shell

    def handle(self, event: CoordinatorEvent) -> None:
        for command in self.coordinator.handle(event, self.now):
            match command:
                case SendResponse(token, reply):
                    self.answered(token, reply)
                case StartGroupTimer(key, at):
                    self.timers[key] = at
                case StopGroupTimer(key):
                    self.timers.pop(key, None)
                case AppendEntries():
                    self.held.append(command)
        self.coordinator.check_invariants()

    def answered(self, token: int, reply: GroupResponse) -> None:
        assert token in self.waiting, "answered twice"
        self.waiting.remove(token)
        if isinstance(reply, JoinGroupResult):
            self.members.append(reply.member_id)
            self.generations.append(reply.generation)
            if not reply.code:
                self.joined += [(reply.member_id, reply.generation)] * (1 + bool(reply.members))

    def load(self) -> None:
        self.handle(JournalLoadStarted())
        for entry in self.journal:
            self.coordinator.replay(entry)
        self.handle(JournalLoaded())

    def reload(self) -> None:
        """What was under way may still have been stored."""
        self.handle(JournalUnloaded())
        assert not self.waiting, "somebody was not answered"
        assert not self.timers, "timers were left behind"
        for append in self.held:
            if self.happens(0.5):
                self.journal += append.entries
                self.handle(AppendSucceeded(append.append_id))
        self.held.clear()
        self.load()

    # the world

    def step(self) -> None:
        match self.random.choices(DOINGS, WEIGHTS)[0]:
            case "ask":
                self.asked += 1
                self.waiting.add(self.asked)
                self.handle(RequestReceived(self.asked, self.request()))
            case "store" if self.held:
                append = self.held.pop(0)
                if self.happens(0.75):
                    self.journal += append.entries
                    self.handle(AppendSucceeded(append.append_id))
                else:
                    self.handle(AppendFailed(append.append_id, self.random.choice(FAILURES)))
            case "fire" if self.timers:
                key = min(self.timers, key=lambda key: (self.timers[key], str(key)))
                self.now = max(self.now, self.timers.pop(key))
                self.handle(GroupTimerFired(key))
            case "topics":
                self.handle(TopicsDeleted((("t", None), ("t", b"x" * 16))))
            case "week":
                self.now += 7 * DAY
            case "move":
                self.reload()
            case _:
                self.now += self.random.choice((1, 1_000, 5_000))

    def request(self) -> GroupRequest:
        pick, some = self.random.choice, self.random.randrange
        group, member_id = pick(GROUPS), pick(self.members[-8:])
        group_instance_id = pick((None, None, None, "s1", "s2", ""))
        generation = pick(self.generations[-4:])
        if self.joined and self.happens(0.6):
            (member_id, generation), group_instance_id = pick(self.joined[-3:]), None
        offsets = {
            TopicPartition(pick("tu"), some(2)): OffsetAndMetadata(some(9), pick(("", "x" * 5_000)))
            for _ in range(some(3))
        }
        told = (subscription_metadata("t"), subscription_metadata("u"), b"junk", b"")
        choices: tuple[GroupRequest, ...] = (
            *[
                JoinGroup(
                    group=group,
                    member_id=pick((member_id, "")),
                    group_instance_id=group_instance_id,
                    protocol_type=pick(("consumer",) * 5 + ("connect", "")),
                    protocols=tuple(
                        JoinGroupProtocol(pick(("range", "roundrobin", "sticky")), pick(told))
                        for _ in range(some(4))
                    ),
                    session_timeout=pick((6_000, 10_000, 10_000, 1, -1, 1_800_000)),
                    rebalance_timeout=pick((-5, 0, 1_000, 10_000, 2**31 - 1)),
                    client_id=pick(("", "c")),
                    client_host="",
                    supports_member_id_required=self.happens(0.5),
                    supports_skip_assignment=self.happens(0.5),
                )
            ]
            * 4,
            SyncGroup(
                group=group,
                generation=generation,
                member_id=member_id,
                group_instance_id=group_instance_id,
                protocol=pick((None, None, "range", "other")),
                assignments=pick(((), ((member_id, b"a"), ("nobody", b"x"), (member_id, b"b")))),
            ),
            Heartbeat(
                group=group,
                generation=generation,
                member_id=member_id,
                group_instance_id=group_instance_id,
            ),
            LeaveGroup(
                group=group,
                members=tuple(
                    LeavingMember(
                        member_id=pick((member_id, "")),
                        group_instance_id=pick((None, group_instance_id)),
                    )
                    for _ in range(some(3))
                ),
            ),
            OffsetCommit(
                group=group,
                generation=generation,
                member_id=member_id,
                group_instance_id=group_instance_id,
                offsets=offsets,
                retention=pick((None, -1, 5, -(10**9))),
            ),
            OffsetFetch(group=group, partitions=pick((None, (T0, T0)))),
            OffsetDelete(group=group, partitions=(T0, T0)),
            DeleteGroups(groups=pick((("g", "g", "h", ""), ()))),
            pick((DescribeGroups(groups=("g", "g", "h")), ListGroups(states=("stable",)))),
        )
        return pick(choices)

    # what must be true

    def check_timers(self) -> None:
        """Whoever is silent, absent or late is found out by a timer, unless it waits already."""
        groups = self.look()
        for key in self.timers:
            if key.kind is not GroupTimerKind.RETENTION:
                assert key.group in groups, f"{key} of no group"
        if self.held:
            return  # a timer that has fired may wait
        for name, group in groups.items():
            if group.state == "PreparingRebalance":
                assert GroupTimerKey(GroupTimerKind.JOIN, name) in self.timers, (
                    "a join phase without end"
                )
            elif group.state == "Stable":
                for member in group.members:
                    key = GroupTimerKey(GroupTimerKind.SESSION, name, member.member_id)
                    assert key in self.timers, "a member without a session"

    def look(self) -> dict[str, DescribedGroup]:
        (answer,) = self.coordinator.handle(
            RequestReceived(LOOK, DescribeGroups(groups=("g", "h"))), self.now
        )
        assert isinstance(answer, SendResponse)
        assert isinstance(answer.response, DescribeGroupsResult)
        return {group.group: group for group in answer.response.groups if not group.code}


def run_random_steps(seed: int, steps: int = 300) -> set[str]:
    """The states that its groups went through."""
    hostile = Hostile(seed)
    seen = set()
    for _ in range(steps):
        hostile.step()
        hostile.check_timers()
        seen |= {group.state for group in hostile.look().values()}
    hostile.reload()
    return seen


def test_a_coordinator_stands_whatever_is_asked() -> None:
    assert set().union(*map(run_random_steps, range(60))) == STATES


@pytest.mark.nightly
def test_a_coordinator_stands_for_long() -> None:
    assert set().union(*map(run_random_steps, range(60, 3_000))) == STATES
