"""Groups over the wire: every request and reply, in every version that the broker speaks."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from rota.client.group import KINDS, LONGEST_REASON, code_of, from_wire, least, to_wire
from rota.errors import Code
from rota.model.reply import (
    JoinReply,
)
from rota.model.request import (
    CommitOffsets,
    FetchOffsets,
    Heartbeat,
    Leave,
    Leaver,
    Request,
    Sync,
)
from rota.wire.message import JoinGroupResponse, LeaveGroupRequest
from tests.support.client import JOIN

STATIC: list[Request] = [
    replace(JOIN, static_id="s"),
    Sync(group="g", generation=1, member_id="m", static_id="s"),
    Heartbeat(group="g", generation=1, member_id="m", static_id="s"),
    CommitOffsets(group="g", static_id="s", offsets={}),
    Leave(group="g", members=(Leaver(static_id="s"),)),
]


def test_what_an_old_version_would_lose_is_known() -> None:
    assert list(map(least, STATIC)) == [5, 3, 3, 7, 3]
    assert least(JOIN) == 0
    assert least(Leave(group="g", members=(Leaver(member_id="m"),))) == 0
    assert least(FetchOffsets(group="g", partitions=())) == 0


@pytest.mark.parametrize("request_", STATIC, ids=lambda one: type(one).__name__)
def test_a_static_id_is_carried(request_: Request) -> None:
    _, message = to_wire(request_)
    carrier = message.members[0] if isinstance(request_, Leave) else message
    assert carrier.group_instance_id == "s"


def test_reasons_are_cut_as_kafka_cuts_them() -> None:
    _, join = to_wire(replace(JOIN, reason="x" * 300))
    _, leave = to_wire(Leave(group="g", members=(Leaver(member_id="m", reason="y" * 300),)))
    assert join.reason == "x" * LONGEST_REASON
    assert leave.members[0].reason == "y" * LONGEST_REASON


def test_a_code_that_nobody_knows_stays_a_number() -> None:
    reply = from_wire(JOIN, JoinGroupResponse(error_code=999))
    assert isinstance(reply, JoinReply)
    assert reply.code == 999
    assert code_of(25) is Code.UNKNOWN_MEMBER_ID


def test_every_request_has_its_kind() -> None:
    assert set(KINDS) == set(get_args(Request))


def test_an_old_leave_names_its_one_member() -> None:
    _, message = to_wire(Leave(group="g", members=(Leaver(member_id="m"),)))
    assert isinstance(message, LeaveGroupRequest.made)
    assert message.member_id == "m"
