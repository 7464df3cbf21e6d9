"""A group of members without consumers: they join, receive their assignment, and stay members until
their session ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import rota
from rota.client.group_requests import decode_group_response, encode_group_request
from rota.engine.formats import consumer_protocol
from rota.engine.model.member import Assignment, Subscription
from rota.engine.model.request import (
    CONSUMER_PROTOCOL_TYPE,
    GroupRequest,
    JoinGroup,
    JoinGroupProtocol,
    OffsetCommit,
    SyncGroup,
)
from rota.engine.model.response import GroupResponse, JoinGroupResult, SyncGroupResult
from rota.engine.model.topic import NO_PARTITIONS, OffsetAndMetadata, Partitions, TopicPartition
from rota.errors import Code
from rota.protocol.messages import Api
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

VERSIONS = {Api.JOIN_GROUP: 9, Api.SYNC_GROUP: 5, Api.OFFSET_COMMIT: 9}
SESSION = 60_000
#: What the broker must be set to, so that all are of the first generation.
WAITING: dict[str, object] = {"group.initial.rebalance.delay.ms": 3_000}
#: Seconds: longer than a new group waits for more members, and once more after the last.
DELAY = 10


@contextmanager
def broker_with_topics(**partitions: int) -> Iterator[rota.Broker]:
    """A broker with these topics, by their number of partitions; new groups wait for members."""
    with rota.Broker(config=WAITING) as running:
        for topic, count in partitions.items():
            running.create_topic(topic, count)
        yield running


@dataclass(frozen=True, kw_only=True)
class LiveMember:
    """Who sits there, and what it gets."""

    #: Its client id.
    name: str
    topics: tuple[str, ...] = ("orders",)
    gets: dict[str, list[int]] = field(default_factory=dict)
    group_instance_id: str | None = None
    rack: str | None = None
    owned: Partitions = NO_PARTITIONS
    generation: int | None = None
    #: What it tells the leader, if not all this.
    told: bytes | None = None


def send_and_receive(client: RawClient, request: GroupRequest) -> GroupResponse:
    send(client, request)
    return receive(client, request)


def send(client: RawClient, request: GroupRequest) -> None:
    api, message = encode_group_request(request)
    client.send(api, VERSIONS[api], message)


def receive(client: RawClient, request: GroupRequest) -> GroupResponse:
    api, _ = encode_group_request(request)
    return decode_group_response(request, client.receive(api, VERSIONS[api]))


def add_members(
    broker: rota.Broker,
    group: str,
    seats: Sequence[LiveMember],
    *,
    strategy: str = "range",
    protocol_type: str = CONSUMER_PROTOCOL_TYPE,
    synced: bool = True,
) -> list[str]:
    """The ids of the members, in the same order; all of one generation.

    :param synced: else the group waits for its leader to say who gets what
    """
    with ExitStack() as stack:
        clients = [
            stack.enter_context(RawClient(broker.bootstrap_servers, each.name)) for each in seats
        ]
        joins = [_join(group, each, strategy, protocol_type) for each in seats]
        for place, client in enumerate(clients):
            # a dynamic member gets its member id in a first response
            if seats[place].group_instance_id is None:
                reply = send_and_receive(client, joins[place])
                assert isinstance(reply, JoinGroupResult)
                assert reply.code == Code.MEMBER_ID_REQUIRED
                joins[place] = replace(joins[place], member_id=reply.member_id)
        for client, join in zip(clients, joins, strict=True):
            send(client, join)
        wait_until("all have joined", lambda: len(broker.group(group).members) >= len(seats))
        broker.clock.advance(DELAY)
        replies = [receive(*pair) for pair in zip(clients, joins, strict=True)]
        joined = [each for each in replies if isinstance(each, JoinGroupResult)]
        ids = [each.member_id for each in joined]
        assert {(each.code, len(ids)) for each in joined} == {(0, max(map(_size, joined)))}
        if synced:
            _sync(group, clients, joined, seats, strategy, protocol_type)
        return ids


@contextmanager
def join_in_background(broker: rota.Broker, group: str, name: str) -> Iterator[None]:
    """One more joins; those who sit do not hear of it, and so the group waits for them."""
    who = LiveMember(name=name, group_instance_id=name)
    with RawClient(broker.bootstrap_servers, name) as client:
        send(client, _join(group, who, "range", CONSUMER_PROTOCOL_TYPE))
        wait_until("one more joins", lambda: broker.groups[group] == "PreparingRebalance")
        yield


def _size(reply: JoinGroupResult) -> int:
    return len(reply.members)


def _join(group: str, who: LiveMember, strategy: str, protocol_type: str) -> JoinGroup:
    told = who.told
    if told is None:
        meant = Subscription(
            topics=who.topics, owned=who.owned, generation=who.generation, rack=who.rack
        )
        told = consumer_protocol.encode_subscription(meant)
    return JoinGroup(
        group=group,
        group_instance_id=who.group_instance_id,
        protocol_type=protocol_type,
        protocols=(JoinGroupProtocol(strategy, told),),
        session_timeout=SESSION,
        rebalance_timeout=SESSION,
        client_id=who.name,
        client_host="",
    )


def _sync(
    group: str,
    clients: Sequence[RawClient],
    joined: Sequence[JoinGroupResult],
    seats: Sequence[LiveMember],
    strategy: str,
    protocol_type: str,
) -> None:
    given = tuple(
        (reply.member_id, consumer_protocol.encode_assignment(Assignment(Partitions.of(who.gets))))
        for reply, who in zip(joined, seats, strict=True)
    )
    for client, reply in zip(clients, joined, strict=True):
        request = SyncGroup(
            group=group,
            generation=reply.generation,
            member_id=reply.member_id,
            protocol_type=protocol_type,
            protocol=strategy,
            assignments=given if reply.leader == reply.member_id else (),
        )
        send(client, request)
    for client, reply in zip(clients, joined, strict=True):
        answer = receive(client, SyncGroup(group=group, generation=0, member_id=reply.member_id))
        assert isinstance(answer, SyncGroupResult)
        assert answer.code == 0


def commit_offsets(broker: rota.Broker, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Sets offsets of a group without members."""
    given = {TopicPartition(*each): OffsetAndMetadata(offset) for each, offset in offsets.items()}
    with RawClient(broker.bootstrap_servers) as client:
        send_and_receive(client, OffsetCommit(group=group, offsets=given))


def create_billing_group(broker: rota.Broker) -> list[str]:
    """A group of two, one static, that has read a part of its records."""
    for number in range(10):
        broker.produce("orders", f"a{number}", partition=0)
        broker.produce("orders", f"b{number}", partition=1)
    commit_offsets(broker, "billing", {("orders", 0): 4, ("orders", 1): 10})
    return add_members(
        broker,
        "billing",
        [
            LiveMember(name="app", gets={"orders": [0]}, rack="r1"),
            LiveMember(
                name="app",
                gets={"orders": [1]},
                group_instance_id="second",
                owned=Partitions.of({"orders": [1]}),
                generation=3,
            ),
        ],
    )
