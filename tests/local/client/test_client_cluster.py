"""The client of a cluster, against Rota's own broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import rota
from rota.broker.embedded import Broker
from rota.engine.model.topic import TopicPartition
from rota.errors import AuthorizationFailed, Code, GroupError, TimedOut, Unreachable
from rota.protocol.messages import (
    Api,
    DescribeGroupsRequest,
    HeartbeatRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tests.support.client import client, new_deadline, run


@pytest.fixture
def broker() -> Iterator[Broker]:
    with rota.Broker() as one:
        one.create_topic("orders", 3)
        yield one


def test_a_topic_is_known_with_its_leaders(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            known = await one.refresh(["orders"], deadline=new_deadline())
            assert known is one.metadata
            assert [each.leader for each in known.topics["orders"].partitions] == [1, 1, 1]
            assert known.brokers[1].address == one.config.bootstrap_servers[0]
            assert known.cluster().partitions == {"orders": 3}
            assert await one.find_leader(TopicPartition("orders", 2), new_deadline()) == 1

    run(main())


def test_a_broker_is_asked_by_its_number_and_anyone_without(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            anyone = await one.send(
                Api.METADATA, MetadataRequest(topics=None), deadline=new_deadline()
            )
            assert [each.name for each in anyone.topics] == ["orders"]
            await one.refresh([], deadline=new_deadline())
            first = await one.send(
                Api.METADATA, MetadataRequest(topics=[]), node=1, deadline=new_deadline()
            )
            assert first.topics == []

    run(main())


def test_a_broker_that_is_not_known_is_named(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            await one.refresh([], deadline=new_deadline())
            with pytest.raises(Unreachable, match="broker 7 is not known: those known are 1 at"):
                await one.send(Api.METADATA, MetadataRequest(), node=7, deadline=new_deadline())

    run(main())


def test_a_groups_coordinator_answers(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            found = await one.find_coordinator("readers", new_deadline())
            assert found.node.id == 1
            heartbeat = HeartbeatRequest(group_id="readers", generation_id=1, member_id="nobody")
            connection = await found.endpoint.connect(new_deadline())
            answer = await one.send_over(connection, Api.HEARTBEAT, heartbeat, new_deadline())
            assert answer.error_code == Code.UNKNOWN_MEMBER_ID
            described = await one.send_to_coordinator(
                "readers",
                Api.DESCRIBE_GROUPS,
                DescribeGroupsRequest(groups=["readers"]),
                new_deadline(),
            )
            assert described.groups[0].group_id == "readers"

    run(main())


def test_a_coordinator_that_moves_is_found_again(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            await one.find_coordinator("readers", new_deadline())
            broker.fail("DescribeGroups", "NOT_COORDINATOR", times=2)
            broker.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE")
            answer = await one.send_to_coordinator(
                "readers",
                Api.DESCRIBE_GROUPS,
                DescribeGroupsRequest(groups=["readers"]),
                new_deadline(),
            )
            assert answer.groups[0].error_code in (Code.NONE, Code.GROUP_ID_NOT_FOUND)
            assert broker.clear_faults() == 0

    run(main())


def test_a_group_that_is_taken_from_its_coordinator(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders")
            topic.partitions = [
                OffsetCommitRequest.OffsetCommitRequestPartition(committed_offset=5)
            ]
            commit = OffsetCommitRequest(group_id="readers", topics=[topic])
            await one.send_to_coordinator(
                "readers", Api.OFFSET_COMMIT, commit, new_deadline(), most=9
            )
            found = await one.find_coordinator("readers", new_deadline())
            broker.move_coordinator("readers")
            heartbeat = HeartbeatRequest(group_id="readers", generation_id=1, member_id="nobody")
            connection = await found.endpoint.connect(new_deadline())
            answer = await one.send_over(connection, Api.HEARTBEAT, heartbeat, new_deadline())
            assert answer.error_code == Code.NOT_COORDINATOR
            answer = await one.send_to_coordinator(
                "readers", Api.HEARTBEAT, heartbeat, new_deadline()
            )
            assert answer.error_code == Code.UNKNOWN_MEMBER_ID

    run(main())


def test_a_coordinator_that_is_not_there_in_time_is_named(broker: Broker) -> None:
    broker.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=None)

    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            message = "the coordinator of group 'readers' is not there .*COORDINATOR_NOT_AVAILABLE"
            with pytest.raises(TimedOut, match=message):
                await one.find_coordinator("readers", new_deadline(0.1))
            broker.clear_faults()
            for error, kind, message in (
                ("GROUP_AUTHORIZATION_FAILED", AuthorizationFailed, "no permission for group"),
                ("INVALID_GROUP_ID", GroupError, "cannot be found: error INVALID_GROUP_ID"),
            ):
                broker.fail("FindCoordinator", error)
                with pytest.raises(kind, match=message):
                    await one.find_coordinator("readers", new_deadline())

    run(main())


def test_a_coordinator_that_loads_is_waited_for(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            broker.fail("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", times=3)
            broker.drop_response("OffsetFetch")
            group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="readers", topics=None)
            request = OffsetFetchRequest(group_id="readers", groups=[group])
            answer = await one.send_to_coordinator(
                "readers", Api.OFFSET_FETCH, request, new_deadline()
            )
            assert answer.groups[0].error_code == Code.NONE
            assert broker.clear_faults() == 0

    run(main())


def test_a_lost_connection_is_opened_again(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            await one.refresh(["orders"], deadline=new_deadline())
            broker.disconnect()
            await one.refresh(["orders"], deadline=new_deadline())
            broker.drop_response("Metadata", times=2)
            await one.refresh(["orders"], deadline=new_deadline())
            broker.restart()
            await one.refresh(["orders"], deadline=new_deadline())

    run(main())


def test_who_gives_up_leaves_the_connection_as_it_is(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers) as one:
            await one.refresh([], deadline=new_deadline())
            connection = await one.connect(1, deadline=new_deadline())
            broker.delay("Metadata", 0.2)
            with pytest.raises(TimedOut, match="no answer to Metadata before the timeout"):
                await one.send(Api.METADATA, MetadataRequest(), node=1, deadline=new_deadline(0.01))
            broker.delay("Metadata", 0.2)
            task = asyncio.ensure_future(
                one.send(
                    Api.METADATA, MetadataRequest(topics=None), node=1, deadline=new_deadline()
                )
            )
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            answer = await one.send(
                Api.METADATA, MetadataRequest(topics=None), node=1, deadline=new_deadline()
            )
            assert [each.name for each in answer.topics] == ["orders"]
            assert await one.connect(1, deadline=new_deadline()) is connection

    run(main())


def test_no_answer_within_the_requests_time_ends_the_connection(broker: Broker) -> None:
    async def main() -> None:
        async with client(broker.bootstrap_servers, request_timeout=50) as one:
            await one.refresh([], deadline=new_deadline())
            connection = await one.connect(1, deadline=new_deadline())
            broker.delay("Metadata", 3600)
            with pytest.raises(TimedOut, match=r"127\.0\.0\.1:.*: no answer to Metadata within"):
                await one.send(Api.METADATA, MetadataRequest(), node=1, deadline=new_deadline())
            await connection.closed
            await one.send(Api.METADATA, MetadataRequest(), node=1, deadline=new_deadline())

    run(main())
