"""The answer to each kind of request where nothing but a code can be said."""

from __future__ import annotations

from typing import assert_never

from rota.errors import Code
from rota.model.reply import (
    CommitReply,
    DeleteGroupsReply,
    DeleteOffsetsReply,
    DescribedGroup,
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
    ListGroups,
    Request,
    Sync,
)


def refused(request: Request, code: Code) -> Reply:  # noqa: C901, PLR0911 (one for each request)
    """A reply of the request's kind with this code."""
    match request:
        case Join():
            return JoinReply(code=code, member_id=request.member_id)
        case Sync():
            return SyncReply(code=code)
        case Heartbeat():
            return HeartbeatReply(code=code)
        case Leave():
            return LeaveReply(code=code)
        case CommitOffsets():
            return CommitReply(codes=dict.fromkeys(request.offsets, code))
        case FetchOffsets():
            return FetchOffsetsReply(code=code)
        case DeleteOffsets():
            return DeleteOffsetsReply(code=code)
        case DeleteGroups():
            return DeleteGroupsReply(codes=dict.fromkeys(request.groups, code))
        case DescribeGroups():
            groups = (DescribedGroup(group=name, code=code) for name in request.groups)
            return DescribeGroupsReply(groups=tuple(groups))
        case ListGroups():
            return ListGroupsReply(code=code)
        case _:
            assert_never(request)
