"""A connection to a live broker, and what an admin does over one."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from kafka.protocol.admin.topics import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.offsets import ListOffsetsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.parser import KafkaProtocol
from kafka.record.memory_records import MemoryRecords

from rota.engine.formats import journal
from rota.engine.model.journal_entry import ClassicEntry
from rota.engine.model.request import DescribeGroups
from rota.engine.model.response import DescribeGroupsResult
from rota.errors import Code
from tests.support.coordinator import wire

JOURNAL = "__consumer_offsets"
AGAIN = 0.01
READ = 1 << 16
LATEST = -1
TOPIC_EXISTS = 36
NOT_READY = {
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
}


class Connection:
    """One connection to a broker; the broker takes its requests one at a time."""

    def __init__(self, port: int, client_id: str = "admin") -> None:
        # kafka-python's own classes carry no types
        self._protocol: Any = KafkaProtocol(client_id=client_id)  # type: ignore[no-untyped-call]
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: wire.Message) -> None:
        self._protocol.send_request(message)
        self._socket.sendall(self._protocol.send_bytes())

    def receive(self) -> wire.Message | None:
        """What has come, if it is a whole answer by now."""
        data = self._socket.recv(READ)
        if not data:
            raise ConnectionError("the broker closed the connection")
        for _, answer in self._protocol.receive_bytes(data):
            return answer
        return None

    def ask(self, message: wire.Message) -> wire.Message:
        """Send, and wait for the answer."""
        self.send(message)
        answer = None
        while answer is None:
            answer = self.receive()
        return answer


def create_topics(admin: Connection, topics: Mapping[str, int]) -> None:
    """Topics with these numbers of partitions, where they are not there already."""
    creatable = CreateTopicsRequest.CreatableTopic
    made = [
        creatable(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        for name, count in topics.items()
    ]
    answer = admin.ask(CreateTopicsRequest(version=5, topics=made, timeout_ms=30_000))
    assert all(each.error_code in {Code.NONE, TOPIC_EXISTS} for each in answer.topics), answer


def delete_topic(admin: Connection, topic: str) -> None:
    """The topic is gone."""
    answer = admin.ask(DeleteTopicsRequest(version=5, topic_names=[topic], timeout_ms=30_000))
    assert all(each.error_code == Code.NONE for each in answer.responses), answer


def await_coordinator(admin: Connection) -> None:
    """Until the coordinator has loaded its journal; the first to look for one has it made."""
    admin.ask(FindCoordinatorRequest(version=2, key="any", key_type=0))
    question = DescribeGroups(groups=("any",))
    end = time.monotonic() + 30
    while True:
        reply = wire.decode(question, admin.ask(wire.encode(question)))
        assert isinstance(reply, DescribeGroupsResult)
        if reply.groups[0].code not in NOT_READY:
            return
        assert time.monotonic() < end, reply
        time.sleep(AGAIN)


def journal_end(admin: Connection) -> int:
    """The offset that the journal's next record will have."""
    in_topic = ListOffsetsRequest.ListOffsetsTopic
    partition = in_topic.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    topics = [in_topic(name=JOURNAL, partitions=[partition])]
    answer = admin.ask(
        ListOffsetsRequest(version=2, replica_id=-1, isolation_level=0, topics=topics)
    )
    return int(answer.topics[0].partitions[0].offset)


def read_journal(admin: Connection, start: int, end: int) -> Iterator[tuple[int, ClassicEntry]]:
    """The journal's entries with their offsets; there are only classic groups."""
    at = start
    while at < end:
        in_topic = FetchRequest.FetchTopic
        partition = in_topic.FetchPartition(
            partition=0, fetch_offset=at, log_start_offset=-1, partition_max_bytes=1 << 20
        )
        answer = admin.ask(
            FetchRequest(
                version=11,
                replica_id=-1,
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=1 << 24,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                topics=[in_topic(topic=JOURNAL, partitions=[partition])],
                forgotten_topics_data=[],
                rack_id="",
            )
        )
        (fetched,) = answer.responses[0].partitions
        assert fetched.error_code == Code.NONE, fetched
        records: Any = MemoryRecords(bytes(fetched.records))  # type: ignore[no-untyped-call]
        while (batch := records.next_batch()) is not None:
            for record in batch:
                if at <= record.offset < end:
                    entry = journal.decode_record(record.key, record.value)
                    assert isinstance(entry, ClassicEntry), entry
                    yield record.offset, entry
                    at = record.offset + 1
