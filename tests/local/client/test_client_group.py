"""Groups over the wire: every request and reply, in every version that the broker speaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

from rota import Broker
from rota.client.connection import BrokerConnection
from rota.client.group_requests import (
    MAX_VERSIONS,
    decode_group_response,
    encode_group_request,
    min_version,
)
from rota.engine.formats import consumer_protocol
from rota.engine.model.member import Assignment
from rota.engine.model.request import (
    DeleteGroups,
    DescribeGroups,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
)
from rota.engine.model.response import (
    DeleteGroupsResult,
    DescribeGroupsResult,
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
from rota.engine.model.topic import OffsetAndMetadata, Partitions, TopicPartition
from rota.errors import Code
from rota.protocol.messages import Api
from tests.support.client import JOIN, SUBSCRIPTION, config, new_deadline, parse_address, run

R = TypeVar("R", bound=GroupResponse)
GIVEN = consumer_protocol.encode_assignment(Assignment(Partitions.of({"t": (0, 1)})))
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class VersionedConnection:
    """A connection on which each API is spoken in one version, or the nearest that is served."""

    def __init__(self, connection: BrokerConnection, version: int) -> None:
        self.connection = connection
        self.version = version
        self.member_id, self.generation = "", -1

    async def ask(self, request: GroupRequest, kind: type[R]) -> R:
        api, message = encode_group_request(request)
        low = self.connection.versions[api].low
        most = min(max(self.version, low), MAX_VERSIONS.get(api, 99))
        answer = await self.connection.send(api, message, deadline=new_deadline(), most=most)
        reply = decode_group_response(request, answer)
        assert isinstance(reply, kind)
        return reply

    def version_of(self, api: Api) -> int:
        return self.connection.version(api, max(self.version, self.connection.versions[api].low))

    async def join(self, request: JoinGroup = JOIN) -> JoinGroupResult:
        reply = await self.ask(request, JoinGroupResult)
        if reply.code is Code.MEMBER_ID_REQUIRED:
            assert self.version_of(Api.JOIN_GROUP) >= 4
            reply = await self.ask(replace(request, member_id=reply.member_id), JoinGroupResult)
        self.member_id, self.generation = reply.member_id, reply.generation
        return reply

    async def sync(self) -> SyncGroupResult:
        request = SyncGroup(
            group="g",
            generation=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol="range",
            assignments=((self.member_id, GIVEN),),
        )
        return await self.ask(request, SyncGroupResult)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config={"group.initial.rebalance.delay.ms": 0}) as running:
        running.create_topic("t", 2)
        yield running


async def open_versioned(broker: Broker, version: int) -> VersionedConnection:
    where = broker.bootstrap_servers
    settings = config(where, client_id="tester")
    return VersionedConnection(
        await BrokerConnection.open(parse_address(where), settings, new_deadline()), version
    )


#: From the lowest that is served up to the highest of JoinGroup.
VERSIONS = range(10)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_members_life(broker: Broker, version: int) -> None:
    async def live() -> None:
        me = await open_versioned(broker, version)
        joined = await me.join()
        assert (joined.code, joined.generation) == (Code.NONE, 1)
        assert (joined.protocol, joined.leader) == ("range", me.member_id)
        assert [(one.member_id, one.metadata) for one in joined.members] == [
            (me.member_id, SUBSCRIPTION)
        ]
        synced = await me.sync()
        assert (synced.code, synced.assignment) == (Code.NONE, GIVEN)
        beat = Heartbeat(group="g", generation=1, member_id=me.member_id)
        assert await me.ask(beat, HeartbeatResult) == HeartbeatResult()
        late = replace(beat, generation=0)
        assert (await me.ask(late, HeartbeatResult)).code is Code.ILLEGAL_GENERATION
        left = await me.ask(
            LeaveGroup(group="g", members=(LeavingMember(member_id=me.member_id),)),
            LeaveGroupResult,
        )
        assert {left.code, *(one.code for one in left.members)} == {Code.NONE}
        await me.connection.close_and_wait()

    run(live())
    assert broker.wait_for_group("g", members=0).state == "Empty"


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets(broker: Broker, version: int) -> None:
    async def live() -> None:
        me = await open_versioned(broker, version)
        epoch = 3 if me.version_of(Api.OFFSET_COMMIT) >= 6 else None
        stored = OffsetAndMetadata(5, "a note", epoch)
        commit = OffsetCommit(group="g", offsets={P0: stored, TopicPartition("odd", 7): stored})
        done = await me.ask(commit, OffsetCommitResult)
        assert done.codes == {
            P0: Code.NONE,
            TopicPartition("odd", 7): Code.UNKNOWN_TOPIC_OR_PARTITION,
        }
        told = (
            stored if me.version_of(Api.OFFSET_FETCH) >= 5 else replace(stored, leader_epoch=None)
        )
        asked = OffsetFetch(group="g", partitions=(P0, P1), require_stable=True)
        some = await me.ask(asked, OffsetFetchResult)
        assert some == OffsetFetchResult(offsets={P0: told, P1: None})
        if me.version_of(Api.OFFSET_FETCH) >= min_version(OffsetFetch(group="g")):
            everything = await me.ask(OffsetFetch(group="g"), OffsetFetchResult)
            assert everything.offsets == {P0: told}
        gone = await me.ask(OffsetDelete(group="g", partitions=(P0, P1)), OffsetDeleteResult)
        assert gone.codes == {P0: Code.NONE, P1: Code.NONE}
        await me.connection.close_and_wait()

    run(live())
    assert broker.committed("g") == {}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("code", ["GROUP_AUTHORIZATION_FAILED", "NOT_COORDINATOR"])
def test_offsets_that_are_refused_as_a_whole(broker: Broker, version: int, code: str) -> None:
    broker.fail("OffsetFetch", code)

    async def live() -> None:
        me = await open_versioned(broker, version)
        reply = await me.ask(OffsetFetch(group="g", partitions=(P0, P1)), OffsetFetchResult)
        assert reply.code is Code[code]
        await me.connection.close_and_wait()

    run(live())


@pytest.mark.parametrize("version", VERSIONS)
def test_groups_as_admins_see_them(broker: Broker, version: int) -> None:
    async def live() -> None:
        me = await open_versioned(broker, version)
        await me.join()
        await me.sync()
        reply = await me.ask(DescribeGroups(groups=("g", "none")), DescribeGroupsResult)
        group, missing = reply.groups
        assert (group.state, group.protocol_type, group.protocol) == ("Stable", "consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id) == (me.member_id, "tester")
        assert (member.metadata, member.assignment) == (SUBSCRIPTION, GIVEN)
        assert missing.state == "Dead"
        unknown = me.version_of(Api.DESCRIBE_GROUPS) >= 6
        assert missing.code is (Code.GROUP_ID_NOT_FOUND if unknown else Code.NONE)
        (listed,) = (await me.ask(ListGroups(), ListGroupsResult)).groups
        speaks = me.version_of(Api.LIST_GROUPS)
        assert (listed.group, listed.protocol_type) == ("g", "consumer")
        assert listed.state == ("Stable" if speaks >= 4 else "")
        assert listed.group_type == ("classic" if speaks >= 5 else "")
        if speaks >= 4:
            assert not (await me.ask(ListGroups(states=("Empty",)), ListGroupsResult)).groups
        gone = await me.ask(DeleteGroups(groups=("g", "none")), DeleteGroupsResult)
        assert gone.codes == {"g": Code.NON_EMPTY_GROUP, "none": Code.GROUP_ID_NOT_FOUND}
        await me.connection.close_and_wait()

    run(live())
