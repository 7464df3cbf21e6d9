"""Groups over the wire: every request and reply, in every version that the broker speaks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from rota.client.group_requests import (
    MAX_REASON_LENGTH,
    REQUEST_CODECS,
    decode_group_response,
    encode_group_request,
    min_version,
    parse_error_code,
)
from rota.engine.model.request import (
    GroupRequest,
    Heartbeat,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
    SyncGroup,
)
from rota.engine.model.response import JoinGroupResult
from rota.errors import Code
from rota.protocol.messages import JoinGroupResponse, LeaveGroupRequest
from tests.support.client import JOIN

STATIC: list[GroupRequest] = [
    replace(JOIN, group_instance_id="s"),
    SyncGroup(group="g", generation=1, member_id="m", group_instance_id="s"),
    Heartbeat(group="g", generation=1, member_id="m", group_instance_id="s"),
    OffsetCommit(group="g", group_instance_id="s", offsets={}),
    LeaveGroup(group="g", members=(LeavingMember(group_instance_id="s"),)),
]


def test_what_an_old_version_would_lose_is_known() -> None:
    assert list(map(min_version, STATIC)) == [5, 3, 3, 7, 3]
    assert min_version(JOIN) == 0
    assert min_version(LeaveGroup(group="g", members=(LeavingMember(member_id="m"),))) == 0
    assert min_version(OffsetFetch(group="g", partitions=())) == 0


@pytest.mark.parametrize("request_", STATIC, ids=lambda one: type(one).__name__)
def test_a_static_id_is_carried(request_: GroupRequest) -> None:
    message: Any
    _, message = encode_group_request(request_)
    carrier = message.members[0] if isinstance(request_, LeaveGroup) else message
    assert carrier.group_instance_id == "s"


def test_reasons_are_cut_as_kafka_cuts_them() -> None:
    join: Any
    leave: Any
    _, join = encode_group_request(replace(JOIN, reason="x" * 300))
    _, leave = encode_group_request(
        LeaveGroup(group="g", members=(LeavingMember(member_id="m", reason="y" * 300),))
    )
    assert join.reason == "x" * MAX_REASON_LENGTH
    assert leave.members[0].reason == "y" * MAX_REASON_LENGTH


def test_a_code_that_nobody_knows_stays_a_number() -> None:
    reply = decode_group_response(JOIN, JoinGroupResponse(error_code=999))
    assert isinstance(reply, JoinGroupResult)
    assert reply.code == 999
    assert parse_error_code(25) is Code.UNKNOWN_MEMBER_ID


def test_every_request_has_its_kind() -> None:
    assert set(REQUEST_CODECS) == set(get_args(GroupRequest))


def test_an_old_leave_names_its_one_member() -> None:
    _, message = encode_group_request(
        LeaveGroup(group="g", members=(LeavingMember(member_id="m"),))
    )
    assert isinstance(message, LeaveGroupRequest)
    assert message.member_id == "m"
