"""The coordinator alone: heartbeats, commits and a large join, as values, without a network.

Appends succeed at once, so what is measured is the engine. No peer runs here: the others'
coordinators are parts of brokers.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator

from bench.limit import LIMITS
from bench.measure import Taken, best
from bench.run import BUDGET, OURS, Row, Run
from rota.assignors.range import Range
from rota.formats import subscription
from rota.group.coordinator import Coordinator
from rota.group.event import (
    Answer,
    Append,
    Appended,
    Command,
    Requested,
    TimerFired,
    TimerKey,
    TimerKind,
)
from rota.member.leader import MemberMetadata, lead
from rota.model.config import GroupConfig
from rota.model.membership import Subscription
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import JoinReply, Reply
from rota.model.request import CommitOffsets, Heartbeat, Join, Protocol, Request, Sync
from rota.model.topic import Cluster, TopicPartition

GROUP = "group"
HEARTBEATS = 20_000
COMMITS = 5_000
MEMBERS = 1_000
PARTITIONS = 4_000


class Node:
    """A coordinator whose journal always takes what it is given."""

    def __init__(self) -> None:
        numbers = itertools.count()
        self.coordinator = Coordinator(GroupConfig(), lambda: f"{next(numbers):08}")
        self.now = 0

    def ask(self, request: Request, token: int = 0) -> list[Reply]:
        """All replies that this request sets free."""
        return self.settle(self.coordinator.handle(Requested(token, request), self.now))

    def wait_for_joins(self) -> list[Reply]:
        """The end of the join phase."""
        key = TimerKey(TimerKind.JOIN, GROUP)
        replies: list[Reply] = []
        while not replies:  # the initial delay is extended while members arrive
            self.now += 3_000
            replies = self.settle(self.coordinator.handle(TimerFired(key), self.now))
        return replies

    def settle(self, commands: list[Command]) -> list[Reply]:
        """Does what is asked for, until nothing more follows."""
        waiting = deque(commands)
        replies = []
        while waiting:
            command = waiting.popleft()
            if isinstance(command, Answer):
                replies.append(command.reply)
            elif isinstance(command, Append):
                waiting += self.coordinator.handle(Appended(command.ticket), self.now)
        return replies


def join_all(members: int) -> tuple[Node, list[str]]:
    """A stable group under range: two joins and a sync of each member, and the leader's duty."""
    node = Node()
    topics = Cluster({"t": PARTITIONS})
    protocols = (Protocol("range", subscription.encode(Subscription(topics=("t",)))),)

    def join(member_id: str) -> Join:
        return Join(
            group=GROUP,
            member_id=member_id,
            protocols=protocols,
            session_timeout=45_000,
            rebalance_timeout=300_000,
            client_id="consumer",
            client_host="/127.0.0.1",
        )

    for _ in range(members):
        (told,) = node.ask(join(""))
        assert isinstance(told, JoinReply)
        node.ask(join(told.member_id))
    replies = [reply for reply in node.wait_for_joins() if isinstance(reply, JoinReply)]
    leader = next(reply for reply in replies if reply.members)
    listed = [MemberMetadata(m.member_id, m.static_id, m.metadata) for m in leader.members]
    parts = tuple(lead(Range(), topics, listed).assignments.items())
    ids = [reply.member_id for reply in replies]
    for member_id in sorted(ids, key=lambda each: each != leader.member_id):
        assignments = parts if member_id == leader.member_id else ()
        sync = Sync(group=GROUP, generation=1, member_id=member_id, assignments=assignments)
        assert len(node.ask(sync)) == 1
    return node, ids


def requests(count: int, make: Callable[[str, int], Request]) -> tuple[Node, list[Request]]:
    """A stable group of a hundred, and so many requests of its members in turn."""
    node, ids = join_all(100)
    return node, [make(ids[number % len(ids)], number) for number in range(count)]


def serve(given: tuple[Node, list[Request]]) -> int:
    """Answers them all."""
    node, asked = given
    return sum(len(node.ask(request)) for request in asked)


def _heartbeat(member_id: str, _: int) -> Request:
    return Heartbeat(group=GROUP, generation=1, member_id=member_id)


def _commit(member_id: str, number: int) -> Request:
    offsets = {TopicPartition("t", number % PARTITIONS): OffsetAndMetadata(number)}
    return CommitOffsets(group=GROUP, generation=1, member_id=member_id, offsets=offsets)


def run(bench: Run) -> Iterator[Row]:
    """One row for each kind of work."""
    for title, key, count, make in (
        ("heartbeats", "heartbeats", HEARTBEATS, _heartbeat),
        ("commits of one offset", "commits", COMMITS, _commit),
    ):
        bench.say(f"   {count:,} {title}")
        prepare = functools.partial(requests, count, make)
        seconds, answered = best(prepare, serve, limit=OURS, budget=BUDGET)
        assert answered == count
        yield Row(
            work=f"coordinator: {count:,} {title}",
            ours=Taken(seconds=seconds),
            theirs={},
            limit=LIMITS[key],
        )
    bench.say(f"   a join of {MEMBERS:,} members")
    seconds, (_, ids) = best(lambda: MEMBERS, join_all, limit=OURS, budget=BUDGET)
    assert len(set(ids)) == MEMBERS
    work = f"coordinator: {MEMBERS:,} members join, range over {PARTITIONS:,} partitions"
    yield Row(work=work, ours=Taken(seconds=seconds), theirs={}, limit=LIMITS["join"])
