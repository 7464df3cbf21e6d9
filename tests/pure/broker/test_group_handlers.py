"""Every group API in every version: a valid answer, and what a version has no field for left out.

Answers are read by another library, to the last byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rota.broker.dispatch import AnyRequest, ClientSession, ServerRequest
from rota.broker.events import ConnectionId
from rota.broker.handlers import committed_offsets, consumer_groups
from rota.errors import Code
from rota.protocol.codec import read_request, read_request_header, write_response
from rota.protocol.messages import Api, classes_by_api
from tests.support.node import ClientConnection, InMemoryNode, decode_response, request_frame
from tests.support.requests import (
    GROUP,
    START,
    Member,
    commit_request,
    delete_groups_request,
    delete_offsets_request,
    describe_groups_request,
    error_code,
    find_coordinator_request,
    heartbeat_request,
    join_request,
    leave_request,
    list_groups_request,
    offset_fetch_request,
    sync_request,
)

HANDLERS = {
    each.api: each for module in (consumer_groups, committed_offsets) for each in module.HANDLERS
}
OFFERED = [
    (api, version)
    for api, handler in sorted(HANDLERS.items())
    for version in range(handler.min_version, handler.max_version + 1)
]
REQUESTS: dict[Api, Callable[[], Any]] = {
    Api.FIND_COORDINATOR: lambda: find_coordinator_request(GROUP, "another"),
    Api.JOIN_GROUP: join_request,
    Api.SYNC_GROUP: lambda: sync_request("m", 1, {"m": b"part"}),
    Api.HEARTBEAT: lambda: heartbeat_request("m", 1),
    Api.LEAVE_GROUP: lambda: leave_request("m"),
    Api.OFFSET_COMMIT: lambda: commit_request({("t", 0): 7, ("u", 1): 8}),
    Api.OFFSET_FETCH: lambda: offset_fetch_request({"t": [0, 1]}, GROUP, "another"),
    Api.DESCRIBE_GROUPS: lambda: describe_groups_request(GROUP, "another"),
    Api.LIST_GROUPS: list_groups_request,
    Api.DELETE_GROUPS: lambda: delete_groups_request(GROUP, "another"),
    Api.OFFSET_DELETE: lambda: delete_offsets_request({"t": [0]}),
}


def versions(api: Api) -> pytest.MarkDecorator:
    handler = HANDLERS[api]
    return pytest.mark.parametrize("version", range(handler.min_version, handler.max_version + 1))


@pytest.fixture
def node() -> InMemoryNode:
    made = InMemoryNode()
    made.create_topic(partitions=4)
    return made


@pytest.fixture
def peer(node: InMemoryNode) -> ClientConnection:
    return node.connect()


def error_codes(answer: Any) -> Iterator[int]:
    """Every error code of a response, at every depth that its version has."""
    for name, field in type(answer).fields.items():
        if not field.for_version_q(answer.version):
            continue
        value = getattr(answer, name)
        if name == "error_code":
            yield value
        elif isinstance(value, list):
            for each in value:
                if hasattr(each, "fields"):
                    yield from error_codes(each)


def test_the_offered_versions_are_those_of_the_specification() -> None:
    assert {api.name: (each.min_version, each.max_version) for api, each in HANDLERS.items()} == {
        "FIND_COORDINATOR": (0, 6),
        "JOIN_GROUP": (0, 9),
        "SYNC_GROUP": (0, 5),
        "HEARTBEAT": (0, 4),
        "LEAVE_GROUP": (0, 5),
        "OFFSET_COMMIT": (2, 9),
        "OFFSET_FETCH": (1, 9),
        "OFFSET_DELETE": (0, 0),
        "DESCRIBE_GROUPS": (0, 6),
        "LIST_GROUPS": (0, 5),
        "DELETE_GROUPS": (0, 2),
    }


@pytest.mark.parametrize(("api", "version"), OFFERED)
def test_a_refusal_says_its_code_wherever_there_is_room(
    node: InMemoryNode, api: Api, version: int
) -> None:
    request = REQUESTS[api]()
    data = request_frame(request, version, 5)
    head = read_request_header(data)
    call: AnyRequest = ServerRequest(
        context=node.node.context,
        api=api,
        version=version,
        client=ClientSession(connection=ConnectionId(1), host="127.0.0.1"),
        body=read_request(classes_by_api[api][0], version, data, head.size),
        now=START,
        size=len(data),
        write_response=lambda response: None,
        drop_connection=lambda reason: None,
    )
    response = HANDLERS[api].error_response(call, Code.REBALANCE_IN_PROGRESS)
    assert response is not None
    answer = decode_response(bytes(write_response(api, version, 5, response)), request, version, 5)
    found = list(error_codes(answer))
    assert found
    assert set(found) == {Code.REBALANCE_IN_PROGRESS}


@versions(Api.FIND_COORDINATOR)
def test_the_coordinator_is_here(peer: ClientConnection, version: int) -> None:
    answer = peer.ask(find_coordinator_request("orders", "payments"), version)
    found = answer.coordinators if version >= 4 else [answer]
    assert [(each.error_code, each.node_id, each.host, each.port) for each in found] == [
        (Code.NONE, 1, "127.0.0.1", 9092)
    ] * (2 if version >= 4 else 1)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(1, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), (2, Code.INVALID_REQUEST)],
)
@pytest.mark.parametrize("version", range(1, 7))
def test_other_coordinators_are_refused_in_words(
    peer: ClientConnection, kind: int, expected: Code, version: int
) -> None:
    answer = peer.ask(find_coordinator_request("key", kind=kind), version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert error_code(found) is expected
    assert "this broker has no" in found.error_message
    assert (found.node_id, found.host, found.port) == (-1, "", -1)


@versions(Api.JOIN_GROUP)
def test_a_member_joins(node: InMemoryNode, peer: ClientConnection, version: int) -> None:
    member = Member(peer, version=version)
    member.join()
    answer = member.joined()
    assert answer.generation_id == 1
    assert answer.protocol_name == "range"
    assert answer.leader == answer.member_id == member.id
    assert [bytes(each.metadata) for each in answer.members] == [b"told"]
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    told = [line for line in node.log_lines if "unknown member id" in line]
    assert ("requesting the member to rejoin" in told[0]) is (version >= 4)


@versions(Api.JOIN_GROUP)
def test_a_join_is_refused(peer: ClientConnection, version: int) -> None:
    answer = peer.ask(join_request("stranger"), version)
    assert error_code(answer) is Code.UNKNOWN_MEMBER_ID
    assert answer.protocol_name == (None if version >= 7 else "")
    assert answer.members == []


def test_the_first_version_has_one_timeout_for_both(
    node: InMemoryNode, peer: ClientConnection
) -> None:
    first = Member(peer, version=0)
    first.enter()
    second = Member(node.connect(), version=0)
    second.join()
    node.advance(9_999)
    assert second.connection.waits
    node.advance(1)
    assert second.joined().generation_id == 2


@versions(Api.SYNC_GROUP)
def test_members_get_their_parts(peer: ClientConnection, version: int) -> None:
    member = Member(peer)
    member.join()
    member.joined()
    member.sync(version)
    assert member.synced() == f"part of {member.id}".encode()


def test_a_sync_must_name_the_protocol_from_version_5_on(peer: ClientConnection) -> None:
    member = Member(peer)
    member.join()
    member.joined()
    for request in (
        sync_request(member.id, member.generation, protocol_type=None),
        sync_request(member.id, member.generation, protocol_name=None),
    ):
        assert error_code(peer.ask(request, 5)) is Code.INCONSISTENT_GROUP_PROTOCOL


@versions(Api.HEARTBEAT)
def test_heartbeats(peer: ClientConnection, version: int) -> None:
    member = Member(peer)
    member.enter()
    assert member.beat(version) is Code.NONE
    assert error_code(peer.ask(heartbeat_request("stranger", 1), version)) is Code.UNKNOWN_MEMBER_ID


@versions(Api.LEAVE_GROUP)
def test_members_leave(node: InMemoryNode, peer: ClientConnection, version: int) -> None:
    member = Member(peer)
    member.enter()
    answer = peer.ask(leave_request(member.id), version)
    assert error_code(answer) is Code.NONE
    again = peer.ask(leave_request(member.id), version)
    if version >= 3:
        assert [each.error_code for each in answer.members] == [Code.NONE]
        assert [each.error_code for each in again.members] == [Code.UNKNOWN_MEMBER_ID]
    else:
        assert error_code(again) is Code.UNKNOWN_MEMBER_ID


@versions(Api.DESCRIBE_GROUPS)
def test_groups_are_described(peer: ClientConnection, version: int) -> None:
    member = Member(peer, group_instance_id="static")
    member.enter()
    there, gone = peer.ask(
        describe_groups_request(GROUP, "gone", operations=version >= 3), version
    ).groups
    assert (there.group_state, there.protocol_type, there.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    (told,) = there.members
    assert (told.client_id, told.client_host) == ("tester", "/127.0.0.1")
    assert told.group_instance_id == ("static" if version >= 4 else None)
    assert bytes(told.member_metadata) == b"told"
    assert bytes(told.member_assignment) == f"part of {member.id}".encode()
    assert gone.group_state == "Dead"
    assert error_code(gone) is (Code.GROUP_ID_NOT_FOUND if version >= 6 else Code.NONE)
    if version >= 3:
        assert there.authorized_operations == {3, 6, 8, 10, 11}
    if version >= 6:
        assert "gone" in gone.error_message


def test_operations_are_told_only_when_asked_for(peer: ClientConnection) -> None:
    Member(peer).enter()
    (told,) = peer.ask(describe_groups_request(), 6).groups
    assert told.authorized_operations is None


def test_an_ipv6_client_is_shown_as_java_shows_it(node: InMemoryNode) -> None:
    Member(node.connect("::1")).enter()
    (told,) = node.connect().ask(describe_groups_request(), 5).groups
    assert told.members[0].client_host == "/0:0:0:0:0:0:0:1"


@versions(Api.LIST_GROUPS)
def test_groups_are_listed(node: InMemoryNode, peer: ClientConnection, version: int) -> None:
    assert peer.ask(list_groups_request(), version).groups == []
    for name in ("b", "a", "c"):
        Member(node.connect(), name).enter()
    found = peer.ask(list_groups_request(), version).groups
    assert [(each.group_id, each.protocol_type) for each in found] == [
        (name, "consumer") for name in "abc"
    ]
    if version >= 4:
        assert {each.group_state for each in found} == {"Stable"}
        assert peer.ask(list_groups_request(["Empty"]), version).groups == []
        assert len(peer.ask(list_groups_request([" stable"]), version).groups) == 3
    if version >= 5:
        assert {each.group_type for each in found} == {"classic"}
        assert peer.ask(list_groups_request(types=["consumer"]), version).groups == []
        assert (
            len(peer.ask(list_groups_request(types=["Consumer", "Classic"]), version).groups) == 3
        )


@versions(Api.DELETE_GROUPS)
def test_groups_are_deleted(peer: ClientConnection, version: int) -> None:
    member = Member(peer)
    member.enter()
    peer.ask(commit_request({("t", 0): 1}, group="simple"), 8)
    answer = peer.ask(delete_groups_request(GROUP, "simple", "gone", "simple"), version)
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        (GROUP, Code.NON_EMPTY_GROUP),
        ("simple", Code.NONE),
        ("gone", Code.GROUP_ID_NOT_FOUND),
    ]
    (left,) = peer.ask(list_groups_request(), 4).groups
    assert left.group_id == GROUP


def test_nothing_is_asked_for(peer: ClientConnection) -> None:
    described, deleted, fetched = (
        describe_groups_request(),
        delete_groups_request(),
        offset_fetch_request({}),
    )
    described.groups = deleted.groups_names = fetched.groups = []
    assert peer.ask(described, 6).groups == []
    assert peer.ask(deleted, 2).results == []
    assert peer.ask(fetched, 9).groups == []
