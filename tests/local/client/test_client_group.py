"""Groups over the wire: every request and reply, in every version that the broker speaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

from rota import Broker
from rota.client.connection import Connection
from rota.client.group import MOST, from_wire, least, to_wire
from rota.errors import Code
from rota.formats import assignment
from rota.model.membership import Assignment
from rota.model.offset import OffsetAndMetadata
from rota.model.reply import (
    CommitReply,
    DeleteGroupsReply,
    DeleteOffsetsReply,
    DescribeGroupsReply,
    FetchOffsetsReply,
    HeartbeatReply,
    JoinReply,
    LeaveReply,
    ListGroupsReply,
    Reply,
    SyncReply,
)
from rota.model.request import (
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    DescribeGroups,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    ListGroups,
    Request,
    Sync,
)
from rota.model.topic import Partitions, TopicPartition
from rota.wire.api import Api
from tests.support.client import JOIN, TOLD, address, config, run, soon

R = TypeVar("R", bound=Reply)
GIVEN = assignment.encode(Assignment(Partitions.of({"t": (0, 1)})))
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Talk:
    """A connection on which each API is spoken in one version, or the nearest that is served."""

    def __init__(self, connection: Connection, version: int) -> None:
        self.connection = connection
        self.version = version
        self.member_id, self.generation = "", -1

    async def ask(self, request: Request, kind: type[R]) -> R:
        api, message = to_wire(request)
        low = self.connection.versions[api].low
        most = min(max(self.version, low), MOST.get(api, 99))
        answer = await self.connection.send(api, message, deadline=soon(), most=most)
        reply = from_wire(request, answer)
        assert isinstance(reply, kind)
        return reply

    def speaks(self, api: Api) -> int:
        return self.connection.version(api, max(self.version, self.connection.versions[api].low))

    async def join(self, request: Join = JOIN) -> JoinReply:
        reply = await self.ask(request, JoinReply)
        if reply.code is Code.MEMBER_ID_REQUIRED:
            assert self.speaks(Api.JOIN_GROUP) >= 4
            reply = await self.ask(replace(request, member_id=reply.member_id), JoinReply)
        self.member_id, self.generation = reply.member_id, reply.generation
        return reply

    async def sync(self) -> SyncReply:
        request = Sync(
            group="g",
            generation=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol="range",
            assignments=((self.member_id, GIVEN),),
        )
        return await self.ask(request, SyncReply)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config={"group.initial.rebalance.delay.ms": 0}) as running:
        running.create_topic("t", 2)
        yield running


async def talk(broker: Broker, version: int) -> Talk:
    where = broker.bootstrap_servers
    settings = config(where, client_id="tester")
    return Talk(await Connection.open(address(where), settings, soon()), version)


VERSIONS = range(10)
"""From the lowest that is served up to the highest of JoinGroup."""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_members_life(broker: Broker, version: int) -> None:
    async def live() -> None:
        me = await talk(broker, version)
        joined = await me.join()
        assert (joined.code, joined.generation) == (Code.NONE, 1)
        assert (joined.protocol, joined.leader) == ("range", me.member_id)
        assert [(one.member_id, one.metadata) for one in joined.members] == [(me.member_id, TOLD)]
        synced = await me.sync()
        assert (synced.code, synced.assignment) == (Code.NONE, GIVEN)
        beat = Heartbeat(group="g", generation=1, member_id=me.member_id)
        assert await me.ask(beat, HeartbeatReply) == HeartbeatReply()
        late = replace(beat, generation=0)
        assert (await me.ask(late, HeartbeatReply)).code is Code.ILLEGAL_GENERATION
        left = await me.ask(Leave(group="g", members=(Leaver(member_id=me.member_id),)), LeaveReply)
        assert {left.code, *(one.code for one in left.members)} == {Code.NONE}
        await me.connection.abort()

    run(live())
    assert broker.group("g", members=0).state == "Empty"


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets(broker: Broker, version: int) -> None:
    async def live() -> None:
        me = await talk(broker, version)
        epoch = 3 if me.speaks(Api.OFFSET_COMMIT) >= 6 else None
        stored = OffsetAndMetadata(5, "a note", epoch)
        commit = CommitOffsets(group="g", offsets={P0: stored, TopicPartition("odd", 7): stored})
        done = await me.ask(commit, CommitReply)
        assert done.codes == {
            P0: Code.NONE,
            TopicPartition("odd", 7): Code.UNKNOWN_TOPIC_OR_PARTITION,
        }
        told = stored if me.speaks(Api.OFFSET_FETCH) >= 5 else replace(stored, leader_epoch=None)
        asked = FetchOffsets(group="g", partitions=(P0, P1), stable=True)
        some = await me.ask(asked, FetchOffsetsReply)
        assert some == FetchOffsetsReply(offsets={P0: told, P1: None})
        if me.speaks(Api.OFFSET_FETCH) >= least(FetchOffsets(group="g")):
            everything = await me.ask(FetchOffsets(group="g"), FetchOffsetsReply)
            assert everything.offsets == {P0: told}
        gone = await me.ask(DeleteOffsets(group="g", partitions=(P0, P1)), DeleteOffsetsReply)
        assert gone.codes == {P0: Code.NONE, P1: Code.NONE}
        await me.connection.abort()

    run(live())
    assert broker.committed("g") == {}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("code", ["GROUP_AUTHORIZATION_FAILED", "NOT_COORDINATOR"])
def test_offsets_that_are_refused_as_a_whole(broker: Broker, version: int, code: str) -> None:
    broker.fail("OffsetFetch", code)

    async def live() -> None:
        me = await talk(broker, version)
        reply = await me.ask(FetchOffsets(group="g", partitions=(P0, P1)), FetchOffsetsReply)
        assert reply.code is Code[code]
        await me.connection.abort()

    run(live())


@pytest.mark.parametrize("version", VERSIONS)
def test_groups_as_admins_see_them(broker: Broker, version: int) -> None:
    async def live() -> None:
        me = await talk(broker, version)
        await me.join()
        await me.sync()
        reply = await me.ask(DescribeGroups(groups=("g", "none")), DescribeGroupsReply)
        group, missing = reply.groups
        assert (group.state, group.protocol_type, group.protocol) == ("Stable", "consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id) == (me.member_id, "tester")
        assert (member.metadata, member.assignment) == (TOLD, GIVEN)
        assert missing.state == "Dead"
        unknown = me.speaks(Api.DESCRIBE_GROUPS) >= 6
        assert missing.code is (Code.GROUP_ID_NOT_FOUND if unknown else Code.NONE)
        (listed,) = (await me.ask(ListGroups(), ListGroupsReply)).groups
        speaks = me.speaks(Api.LIST_GROUPS)
        assert (listed.group, listed.protocol_type) == ("g", "consumer")
        assert listed.state == ("Stable" if speaks >= 4 else "")
        assert listed.kind == ("classic" if speaks >= 5 else "")
        if speaks >= 4:
            assert not (await me.ask(ListGroups(states=("Empty",)), ListGroupsReply)).groups
        gone = await me.ask(DeleteGroups(groups=("g", "none")), DeleteGroupsReply)
        assert gone.codes == {"g": Code.NON_EMPTY_GROUP, "none": Code.GROUP_ID_NOT_FOUND}
        await me.connection.abort()

    run(live())
