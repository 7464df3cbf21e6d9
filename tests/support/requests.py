"""Requests as clients write them, by kafka-python's schemas, and a group member in any version."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from kafka.protocol.admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import ProduceRequest

from rota.engine.formats.record_batch import BatchRecord, CompressionType, encode_batch
from rota.engine.formats.record_batch_columns import decode_batches
from rota.errors import Code

if TYPE_CHECKING:
    from tests.support.node import ClientConnection

#: The time at which a node starts, and of records that are given no other.
START = 1_750_000_000_000
GROUP = "orders"
SESSION = 10_000
Partition: TypeAlias = tuple[str, int]


# Records


def batch(*values: bytes | None, key: bytes | None = b"k", **fields: Any) -> bytes:
    """Returns a batch as a producer sends it, with offsets from 0 on."""
    timestamp = fields.pop("timestamp", START)
    return encode_batch(
        [BatchRecord(offset, timestamp, key, value) for offset, value in enumerate(values)],
        **fields,
    )


def numbered_batch(
    count: int, *, size: int = 20, codec: CompressionType = CompressionType.NONE
) -> bytes:
    """Returns a batch whose values are 0, 1, 2 and so on, in this many digits."""
    return batch(*(b"%0*d" % (size, each) for each in range(count)), codec=codec)


def read_records(data: bytes) -> list[tuple[int, bytes | None, bytes | None]]:
    """Returns offset, key and value of every record of some batches."""
    columns = decode_batches(data)
    assert not columns.problems, columns.problems
    held = columns.buffer.data

    def cut(start: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(held[start : start + size])

    fields = (columns.key_start, columns.key_size, columns.value_start, columns.value_size)
    return [
        (offset, cut(key, key_size), cut(value, value_size))
        for offset, key, key_size, value, value_size in zip(
            columns.offset.tolist(), *(each.tolist() for each in fields), strict=True
        )
    ]


def error_code(response: Any) -> Code:
    """Returns the error code at the top of a response."""
    return Code(response.error_code)


def produce_request(
    ids: Mapping[str, bytes],
    batches: Mapping[Partition, bytes | None],
    *,
    acks: int = -1,
    transactional_id: str | None = None,
) -> Any:
    """For all versions at once.

    :param ids: the topics' ids, by name; a topic that has none here gets zeros
    """
    kind = ProduceRequest.TopicProduceData
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            kind(
                name=name,
                topic_id=_uuid(ids, name),
                partition_data=[
                    kind.PartitionProduceData(index=partition, records=data)
                    for (_, partition), data in group
                ],
            )
            for name, group in itertools.groupby(batches.items(), key=lambda item: item[0][0])
        ],
    )


def fetch_request(
    ids: Mapping[str, bytes],
    offsets: Mapping[Partition, int],
    *,
    max_wait: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 2**31 - 1,
    partition_max: int = 1 << 20,
    isolation: int = 0,
    session: tuple[int, int] = (0, -1),
    epoch: int = -1,
    last_epoch: int = -1,
) -> Any:
    """For all versions at once; topic ids as in :func:`produce_request`."""
    kind = FetchRequest.FetchTopic
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            kind(
                topic=name,
                topic_id=_uuid(ids, name),
                partitions=[
                    kind.FetchPartition(
                        partition=partition,
                        current_leader_epoch=epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=last_epoch,
                        log_start_offset=-1,
                        partition_max_bytes=partition_max,
                    )
                    for (_, partition), offset in group
                ],
            )
            for name, group in itertools.groupby(offsets.items(), key=lambda item: item[0][0])
        ],
        forgotten_topics_data=[],
        rack_id="",
    )


def _uuid(ids: Mapping[str, bytes], name: str) -> UUID:
    return UUID(bytes=ids.get(name, bytes(16)))


# Groups


def find_coordinator_request(*keys: str, kind: int = 0) -> Any:
    names = keys or (GROUP,)
    return FindCoordinatorRequest(key=names[0], key_type=kind, coordinator_keys=list(names))


def join_request(member_id: str = "", *, group: str = GROUP, **fields: Any) -> Any:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol
    given: dict[str, Any] = {
        "session_timeout_ms": SESSION,
        "rebalance_timeout_ms": SESSION,
        "protocol_type": "consumer",
        "protocols": [protocol(name="range", metadata=b"told")],
        **fields,
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **given)


def sync_request(
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


def heartbeat_request(member_id: str, generation: int, *, group: str = GROUP) -> Any:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)


def leave_request(*member_ids: str, group: str = GROUP) -> Any:
    identity = LeaveGroupRequest.MemberIdentity
    return LeaveGroupRequest(
        group_id=group,
        member_id=member_ids[0],
        members=[identity(member_id=each) for each in member_ids],
    )


def commit_request(
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


def offset_fetch_request(
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


def delete_offsets_request(partitions: Mapping[str, Iterable[int]], *, group: str = GROUP) -> Any:
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


def describe_groups_request(*groups: str, operations: bool = False) -> Any:
    names = list(groups or (GROUP,))
    return DescribeGroupsRequest(groups=names, include_authorized_operations=operations)


def list_groups_request(states: Iterable[str] = (), types: Iterable[str] = ()) -> Any:
    return ListGroupsRequest(states_filter=list(states), types_filter=list(types))


def delete_groups_request(*groups: str) -> Any:
    return DeleteGroupsRequest(groups_names=list(groups or (GROUP,)))


class Member:
    """A member that is alone in its group, or waits for the others."""

    def __init__(
        self, connection: ClientConnection, group: str = GROUP, version: int = 9, **fields: Any
    ) -> None:
        self.connection = connection
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
            answer = self.connection.receive()
            assert answer.error_code == Code.MEMBER_ID_REQUIRED, answer
            self.id = answer.member_id
            self._send_join()

    def _send_join(self) -> None:
        self.connection.send(join_request(self.id, group=self.group, **self.fields), self.version)

    def joined(self) -> Any:
        """Takes the answer to the join."""
        answer = self.connection.receive()
        assert answer.error_code == Code.NONE, answer
        self.id, self.generation = answer.member_id, answer.generation_id
        self.leads = answer.leader == self.id
        self.others = [each.member_id for each in answer.members]
        return answer

    def sync(self, version: int = 5) -> None:
        """Asks for its part; the leader gives everybody theirs."""
        parts = {each: f"part of {each}".encode() for each in self.others} if self.leads else {}
        self.connection.send(
            sync_request(self.id, self.generation, parts, group=self.group), version
        )

    def synced(self) -> bytes:
        answer = self.connection.receive()
        assert answer.error_code == Code.NONE, answer
        return bytes(answer.assignment)

    def enter(self) -> bytes:
        """Joins and syncs, if nobody else is there; gives its part."""
        self.join()
        self.joined()
        self.sync()
        return self.synced()

    def beat(self, version: int = 4) -> Code:
        answer = self.connection.ask(
            heartbeat_request(self.id, self.generation, group=self.group), version
        )
        return Code(answer.error_code)

    def commit(self, offset: int, partition: int = 0, version: int = 8) -> Code:
        request = commit_request(
            {("t", partition): offset}, self.id, self.generation, group=self.group
        )
        answer = self.connection.ask(request, version)
        return Code(answer.topics[0].partitions[0].error_code)
