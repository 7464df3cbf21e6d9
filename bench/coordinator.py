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
from bench.measure import Measurement, best_run
from bench.run import BUDGET, OURS, Row, Run
from rota.engine.assignors.range import RangeAssignor
from rota.engine.coordinator.coordinator import Coordinator
from rota.engine.coordinator.events import (
    AppendEntries,
    AppendSucceeded,
    CoordinatorCommand,
    GroupTimerFired,
    GroupTimerKey,
    GroupTimerKind,
    RequestReceived,
    SendResponse,
)
from rota.engine.formats import consumer_protocol
from rota.engine.member.classic import compute_assignment, decode_subscriptions
from rota.engine.member.events import ComputeAssignment
from rota.engine.model.config import GroupConfig
from rota.engine.model.member import Subscription
from rota.engine.model.request import (
    GroupRequest,
    Heartbeat,
    JoinGroup,
    JoinGroupProtocol,
    OffsetCommit,
    SyncGroup,
)
from rota.engine.model.response import GroupResponse, JoinedMember, JoinGroupResult
from rota.engine.model.topic import Cluster, OffsetAndMetadata, TopicPartition

GROUP = "group"
HEARTBEATS = 20_000
COMMITS = 5_000
MEMBERS = 1_000
PARTITIONS = 4_000


class InMemoryCoordinator:
    """A coordinator whose journal always takes what it is given."""

    def __init__(self) -> None:
        numbers = itertools.count()
        self.coordinator = Coordinator(GroupConfig(), lambda: f"{next(numbers):08}")
        self.now = 0

    def ask(self, request: GroupRequest, token: int = 0) -> list[GroupResponse]:
        """All replies that this request sets free."""
        return self.settle(self.coordinator.handle(RequestReceived(token, request), self.now))

    def wait_for_joins(self) -> list[GroupResponse]:
        """The end of the join phase."""
        key = GroupTimerKey(GroupTimerKind.JOIN, GROUP)
        replies: list[GroupResponse] = []
        while not replies:  # the initial delay is extended while members arrive
            self.now += 3_000
            replies = self.settle(self.coordinator.handle(GroupTimerFired(key), self.now))
        return replies

    def settle(self, commands: list[CoordinatorCommand]) -> list[GroupResponse]:
        """Does what is asked for, until nothing more follows."""
        waiting = deque(commands)
        replies = []
        while waiting:
            command = waiting.popleft()
            if isinstance(command, SendResponse):
                replies.append(command.response)
            elif isinstance(command, AppendEntries):
                waiting += self.coordinator.handle(AppendSucceeded(command.append_id), self.now)
        return replies


def join_all(members: int) -> tuple[InMemoryCoordinator, list[str]]:
    """A stable group under range: two joins and a sync of each member, and the leader's duty."""
    node = InMemoryCoordinator()
    topics = Cluster({"t": PARTITIONS})
    protocols = (
        JoinGroupProtocol(
            "range", consumer_protocol.encode_subscription(Subscription(topics=("t",)))
        ),
    )

    def join(member_id: str) -> JoinGroup:
        return JoinGroup(
            group=GROUP,
            member_id=member_id,
            protocols=protocols,
            session_timeout=45_000,
            rebalance_timeout=300_000,
            client_id="consumer",
            client_host="/127.0.0.1",
        )

    for _ in range(members):
        (response,) = node.ask(join(""))
        assert isinstance(response, JoinGroupResult)
        node.ask(join(response.member_id))
    replies = [reply for reply in node.wait_for_joins() if isinstance(reply, JoinGroupResult)]
    leader = next(reply for reply in replies if reply.members)
    listed = [JoinedMember(m.member_id, m.group_instance_id, m.metadata) for m in leader.members]
    group, _ = decode_subscriptions(listed)
    outcome = compute_assignment(ComputeAssignment(1, RangeAssignor(), topics, group))
    parts = tuple(outcome.assignments.items())
    ids = [reply.member_id for reply in replies]
    for member_id in sorted(ids, key=lambda each: each != leader.member_id):
        assignments = parts if member_id == leader.member_id else ()
        sync = SyncGroup(group=GROUP, generation=1, member_id=member_id, assignments=assignments)
        assert len(node.ask(sync)) == 1
    return node, ids


def requests(
    count: int, make: Callable[[str, int], GroupRequest]
) -> tuple[InMemoryCoordinator, list[GroupRequest]]:
    """Returns a node with a stable group of 100 members, and requests of these members in turn."""
    node, ids = join_all(100)
    return node, [make(ids[number % len(ids)], number) for number in range(count)]


def answer_all(given: tuple[InMemoryCoordinator, list[GroupRequest]]) -> int:
    """Answers them all."""
    node, asked = given
    return sum(len(node.ask(request)) for request in asked)


def _heartbeat(member_id: str, _: int) -> GroupRequest:
    return Heartbeat(group=GROUP, generation=1, member_id=member_id)


def _commit(member_id: str, number: int) -> GroupRequest:
    offsets = {TopicPartition("t", number % PARTITIONS): OffsetAndMetadata(number)}
    return OffsetCommit(group=GROUP, generation=1, member_id=member_id, offsets=offsets)


def run(bench: Run) -> Iterator[Row]:
    """One row for each kind of work."""
    for title, key, count, make in (
        ("heartbeats", "heartbeats", HEARTBEATS, _heartbeat),
        ("commits of one offset", "commits", COMMITS, _commit),
    ):
        bench.print_progress(f"   {count:,} {title}")
        prepare = functools.partial(requests, count, make)
        seconds, answered = best_run(prepare, answer_all, limit=OURS, budget=BUDGET)
        assert answered == count
        yield Row(
            work=f"coordinator: {count:,} {title}",
            ours=Measurement(seconds=seconds),
            theirs={},
            limit=LIMITS[key],
        )
    bench.print_progress(f"   a join of {MEMBERS:,} members")
    seconds, (_, ids) = best_run(lambda: MEMBERS, join_all, limit=OURS, budget=BUDGET)
    assert len(set(ids)) == MEMBERS
    work = f"coordinator: {MEMBERS:,} members join, range over {PARTITIONS:,} partitions"
    yield Row(work=work, ours=Measurement(seconds=seconds), theirs={}, limit=LIMITS["join"])
