"""Requests of the group APIs as clients write them, and a member that speaks a chosen version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest

from rota.errors import Code
from tests.support.group_node import Peer

GROUP = "orders"
SESSION = 10_000


def find(*keys: str, kind: int = 0) -> Any:
    names = keys or (GROUP,)
    return FindCoordinatorRequest(key=names[0], key_type=kind, coordinator_keys=list(names))


def join(member_id: str = "", *, group: str = GROUP, **fields: Any) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    given: dict[str, Any] = {
        "session_timeout_ms": SESSION,
        "rebalance_timeout_ms": SESSION,
        "protocol_type": "consumer",
        "protocols": [protocol(name="range", metadata=b"told")],
        **fields,
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **given)


def sync(
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    group: str = GROUP,
    **fields: Any,
) -> Any:
    part = SyncGroupRequest.SyncGroupRequestAssignment
    given = {"protocol_type": "consumer", "protocol_name": "range", **fields}
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        assignments=[
            part(member_id=each, assignment=data) for each, data in (assignments or {}).items()
        ],
        **given,
    )


def heartbeat(member_id: str, generation: int, *, group: str = GROUP) -> Any:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)


def leave(*member_ids: str, group: str = GROUP) -> Any:
    identity = LeaveGroupRequest.MemberIdentity
    return LeaveGroupRequest(
        group_id=group,
        member_id=member_ids[0],
        members=[identity(member_id=each) for each in member_ids],
    )


def commit(
    offsets: Mapping[tuple[str, int], int],
    member_id: str = "",
    generation: int = -1,
    *,
    group: str = GROUP,
    note: str | None = "note",
    retention: int = -1,
) -> Any:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        retention_time_ms=retention,
        topics=[
            kind(
                name=topic,
                partitions=[
                    kind.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=0,
                        committed_metadata=note,
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ],
    )


def fetch(
    partitions: Mapping[str, Iterable[int]] | None, *groups: str, stable: bool = False
) -> Any:
    """For all versions at once: up to 7 the first group counts."""
    kind, one = OffsetFetchRequest, OffsetFetchRequest.OffsetFetchRequestGroup
    names = groups or (GROUP,)

    def topics(make: Any) -> Any:
        if partitions is None:
            return None
        return [make(name=name, partition_indexes=list(p)) for name, p in partitions.items()]

    return kind(
        group_id=names[0],
        topics=topics(kind.OffsetFetchRequestTopic),
        groups=[one(group_id=name, topics=topics(one.OffsetFetchRequestTopics)) for name in names],
        require_stable=stable,
    )


def delete_offsets(partitions: Mapping[str, Iterable[int]], *, group: str = GROUP) -> Any:
    kind = OffsetDeleteRequest.OffsetDeleteRequestTopic
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            kind(
                name=name,
                partitions=[
                    kind.OffsetDeleteRequestPartition(partition_index=each) for each in numbers
                ],
            )
            for name, numbers in partitions.items()
        ],
    )


def describe(*groups: str, operations: bool = False) -> Any:
    names = list(groups or (GROUP,))
    return DescribeGroupsRequest(groups=names, include_authorized_operations=operations)


def list_groups(states: Iterable[str] = (), types: Iterable[str] = ()) -> Any:
    return ListGroupsRequest(states_filter=list(states), types_filter=list(types))


def delete(*groups: str) -> Any:
    return DeleteGroupsRequest(groups_names=list(groups or (GROUP,)))


class Member:
    """A member that is alone in its group, or waits for the others."""

    def __init__(self, peer: Peer, group: str = GROUP, version: int = 9, **fields: Any) -> None:
        self.peer = peer
        self.group = group
        self.version = version
        self.fields = fields
        self.id = ""
        self.generation = -1
        self.leads = False
        self.others: list[str] = []

    def join(self) -> None:
        """Sends a join; where an id comes first, a second one with it."""
        self._send_join()
        if not self.id and self.version >= 4 and "group_instance_id" not in self.fields:
            answer = self.peer.answer()
            assert answer.error_code == Code.MEMBER_ID_REQUIRED, answer
            self.id = answer.member_id
            self._send_join()

    def _send_join(self) -> None:
        self.peer.send(join(self.id, group=self.group, **self.fields), self.version)

    def joined(self) -> Any:
        """Takes the answer to the join."""
        answer = self.peer.answer()
        assert answer.error_code == Code.NONE, answer
        self.id, self.generation = answer.member_id, answer.generation_id
        self.leads = answer.leader == self.id
        self.others = [each.member_id for each in answer.members]
        return answer

    def sync(self, version: int = 5) -> None:
        """Asks for its part; the leader gives everybody theirs."""
        parts = {each: f"part of {each}".encode() for each in self.others} if self.leads else {}
        self.peer.send(sync(self.id, self.generation, parts, group=self.group), version)

    def synced(self) -> bytes:
        answer = self.peer.answer()
        assert answer.error_code == Code.NONE, answer
        return bytes(answer.assignment)

    def enter(self) -> bytes:
        """Joins and syncs, if nobody else is there; gives its part."""
        self.join()
        self.joined()
        self.sync()
        return self.synced()

    def beat(self, version: int = 4) -> Code:
        answer = self.peer.ask(heartbeat(self.id, self.generation, group=self.group), version)
        return Code(answer.error_code)

    def commit(self, offset: int, partition: int = 0, version: int = 8) -> Code:
        request = commit({("t", partition): offset}, self.id, self.generation, group=self.group)
        answer = self.peer.ask(request, version)
        return Code(answer.topics[0].partitions[0].error_code)
