"""Groups of a cluster of several brokers: each is asked for its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

import rota
from rota.client.admin import Admin, GroupList
from rota.client.group_description import GroupDescription
from rota.client.offsets import EARLIEST, LATEST
from rota.engine.model.topic import TopicPartition
from rota.errors import AuthorizationFailed, Code, Unreachable
from rota.protocol.codec import read_request_header, write_response
from rota.protocol.messages import Api, ApiVersionsResponse, Message, MetadataResponse
from tests.support.client import client, parse_address, run, server
from tests.support.live_group import WAITING, LiveMember, add_members, commit_offsets
from tests.support.scripted_cluster import scripted_cluster

VERSIONS = {Api.API_VERSIONS: 3, Api.METADATA: 12}


@asynccontextmanager
async def metadata_only_broker(brokers: Sequence[str]) -> AsyncIterator[str]:
    """A broker that has nothing but the addresses of the cluster's others."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            head = read_request_header(await reader.readexactly(size))
            api = Api(head.api_key)
            if api is Api.API_VERSIONS and head.api_version > VERSIONS[api]:
                writer.write(write_response(api, 0, head.correlation_id, api_versions_response(35)))
                continue
            message = (
                api_versions_response() if api is Api.API_VERSIONS else metadata_response(brokers)
            )
            writer.write(write_response(api, head.api_version, head.correlation_id, message))

    async with server(talk) as where:
        yield where


def api_versions_response(code: int = 0) -> Message:
    return ApiVersionsResponse(
        error_code=code,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=api, min_version=0, max_version=most)
            for api, most in VERSIONS.items()
        ],
    )


def metadata_response(brokers: Sequence[str]) -> Message:
    broker = MetadataResponse.MetadataResponseBroker
    listed = [
        broker(node_id=number, host=parse_address(each).host, port=parse_address(each).port)
        for number, each in enumerate(brokers, 1)
    ]
    return MetadataResponse(brokers=listed, cluster_id="c", controller_id=1)


async def list_and_describe_groups(
    brokers: Sequence[str],
) -> tuple[GroupList, list[GroupDescription]]:
    async with metadata_only_broker(brokers) as where, client(where) as made:
        admin = Admin(made, 1.0)
        listing = await admin.list_groups()
        return listing, await admin.describe_groups(listing)


def test_every_broker_has_groups_of_its_own() -> None:
    with rota.Broker(config=WAITING) as first, rota.Broker(config=WAITING) as second:
        second.create_topic("orders", 1)
        commit_offsets(second, "b", {("orders", 0): 0})
        add_members(first, "c", [LiveMember(name="x"), LiveMember(name="y")])
        add_members(second, "a", [LiveMember(name="z")])
        brokers = [first.bootstrap_servers, second.bootstrap_servers]
        listing, groups = run(list_and_describe_groups(brokers))
    assert listing.unanswered == ()
    assert [(each.group, each.state, len(each.members or ())) for each in groups] == [
        ("a", "Stable", 1),
        ("b", "Empty", 0),
        ("c", "Stable", 2),
    ]
    assert [each.coordinator for each in groups] == [
        f"2 ({brokers[1]})",
        f"2 ({brokers[1]})",
        f"1 ({brokers[0]})",
    ]


def test_a_broker_that_does_not_answer_is_named() -> None:
    with rota.Broker(config=WAITING) as first, rota.Broker() as second:
        add_members(first, "c", [LiveMember(name="x")])
        silent = second.bootstrap_servers
        second.stop()
        listing, groups = run(list_and_describe_groups([first.bootstrap_servers, silent]))
    assert [each.group for each in groups] == ["c"]
    (problem,) = listing.unanswered
    assert silent in problem


def test_no_broker_answers() -> None:
    with rota.Broker() as gone:
        silent = gone.bootstrap_servers
    with pytest.raises(Unreachable, match=silent):
        run(list_and_describe_groups([silent]))


def test_the_request_for_ends_is_cancelled_when_that_for_starts_is_refused() -> None:
    async def bounds(servers: str) -> None:
        async with client(servers) as made:
            with pytest.raises(AuthorizationFailed, match="read topic 't'"):
                await Admin(made, 30.0).fetch_bounds([TopicPartition("t", 0)])

    with scripted_cluster(lambda node, request, count: None) as scripted:
        scripted.offset_errors[EARLIEST] = Code.TOPIC_AUTHORIZATION_FAILED
        scripted.unanswered.add(LATEST)
        run(bounds(scripted.servers))
