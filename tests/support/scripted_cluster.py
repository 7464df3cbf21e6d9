"""Brokers that answer Fetches as a test says: followers, quotas, answers that are cut.

One topic ``t`` of one partition, which broker 1 leads. What a broker of one node does is tried with
one.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rota.errors import Code
from rota.protocol.codec import (
    read_request,
    read_request_header,
    supported_versions,
    write_response,
)
from rota.protocol.messages import (
    Api,
    ApiVersionsResponse,
    FetchResponse,
    ListOffsetsResponse,
    Message,
    MetadataResponse,
    classes_by_api,
)

TOPIC_ID = bytes(15) + b"\1"
LEADER, FOLLOWER = 1, 2
#: An answer, what comes of it before the connection is cut, or no more than that.
Fetched = Message | bytes | None


def fetch_response(
    records: bytes = b"", *, end: int = 10, throttled: int = 0, **fields: Any
) -> Message:
    """An answer with these records of a log that ends there."""
    part = FetchResponse.PartitionData(
        **{
            "partition_index": 0,
            "error_code": 0,
            "high_watermark": end,
            "last_stable_offset": end,
            "log_start_offset": 0,
            "aborted_transactions": [],
            "preferred_read_replica": -1,
            "records": records,
            **fields,
        }
    )
    topic = FetchResponse.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[part])
    return FetchResponse(throttle_time_ms=throttled, error_code=0, session_id=0, responses=[topic])


def throttled_response(throttled: int) -> Message:
    """What a broker over its quota answers."""
    return FetchResponse(throttle_time_ms=throttled, error_code=0, session_id=0, responses=[])


class ScriptedCluster:
    """Two brokers; what they were asked for is kept."""

    def __init__(
        self, answer: Callable[[int, Message, int], Fetched], extent: tuple[int, int, int]
    ) -> None:
        """Listens.

        :param answer: of a broker to a Fetch; how many there were before is the last
        :param extent: where the log begins, begins on the broker's disks, and ends
        """
        self._answer = answer
        self._extent = dict(zip((-2, -4, -1), extent, strict=True))
        self._sockets = {node: socket.create_server(("127.0.0.1", 0)) for node in (1, 2)}
        #: Brokers, and Fetches to them.
        self.asked: list[tuple[int, Any]] = []
        #: The error codes of ListOffsets responses, by the timestamp of the request.
        self.offset_errors: dict[int, Code] = {}
        #: ListOffsets requests with these timestamps are not answered.
        self.unanswered: set[int] = set()
        self._ended = threading.Event()
        self._listeners = {
            node: threading.Thread(target=self._listen, args=(node,)) for node in self._sockets
        }
        self._connections: list[tuple[socket.socket, threading.Thread]] = []
        for each in self._listeners.values():
            each.start()

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self._sockets[LEADER].getsockname()[1]}"

    def close(self, nodes: Sequence[int] = (1, 2)) -> None:
        """Listen no more; connections last."""
        for node in nodes:
            with suppress(OSError):  # else a thread would stay in accept()
                self._sockets[node].shutdown(socket.SHUT_RDWR)
            self._listeners[node].join()
            self._sockets[node].close()

    def end(self) -> None:
        """Close everything, and wait for all threads."""
        self._ended.set()
        self.close()
        for taken, thread in self._connections:
            with suppress(OSError):
                taken.shutdown(socket.SHUT_RDWR)
            thread.join()

    def _listen(self, node: int) -> None:
        with suppress(OSError):
            while True:
                taken, _ = self._sockets[node].accept()
                thread = threading.Thread(target=self._serve, args=(node, taken))
                self._connections.append((taken, thread))
                thread.start()

    def _serve(self, node: int, taken: socket.socket) -> None:
        with taken, suppress(OSError), taken.makefile("rb") as stream:
            while len(size := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", size)[0])
                head = read_request_header(frame)
                api = Api(head.api_key)
                request = read_request(classes_by_api[api][0], head.api_version, frame, head.size)
                response = self._response(node, api, request)
                if isinstance(response, Message):
                    taken.sendall(
                        write_response(api, head.api_version, head.correlation_id, response)
                    )
                    continue
                if response is not None:
                    taken.sendall(struct.pack(">ii", 1_000, head.correlation_id) + response)
                return

    def _response(self, node: int, api: Api, request: Message) -> Fetched:
        match api:
            case Api.API_VERSIONS:
                served = (Api.API_VERSIONS, Api.METADATA, Api.FETCH, Api.LIST_OFFSETS)
                made = ApiVersionsResponse.ApiVersion
                keys = [
                    made(
                        api_key=each,
                        min_version=supported_versions(each).low,
                        max_version=supported_versions(each).high,
                    )
                    for each in served
                ]
                return ApiVersionsResponse(error_code=0, api_keys=keys)
            case Api.METADATA:
                return self._metadata()
            case Api.LIST_OFFSETS:
                return self._offsets(request)
            case _:
                self.asked.append((node, request))
                return self._answer(node, request, len(self.asked) - 1)

    def _metadata(self) -> Message:
        broker = MetadataResponse.MetadataResponseBroker
        topic = MetadataResponse.MetadataResponseTopic
        part = MetadataResponse.MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=LEADER,
            leader_epoch=0,
            replica_nodes=[1, 2],
            isr_nodes=[1, 2],
        )
        return MetadataResponse(
            brokers=[
                broker(node_id=node, host="127.0.0.1", port=each.getsockname()[1])
                for node, each in self._sockets.items()
                if each.fileno() >= 0
            ],
            controller_id=1,
            topics=[topic(error_code=0, name="t", topic_id=TOPIC_ID, partitions=[part])],
        )

    def _offsets(self, request: Any) -> Message | None:
        topic = ListOffsetsResponse.ListOffsetsTopicResponse
        which = request.topics[0].partitions[0].timestamp
        if which in self.unanswered:
            self._ended.wait()
            return None
        code = self.offset_errors.get(which, Code.NONE)
        part = ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=0, error_code=code, offset=self._extent[which], leader_epoch=0
        )
        return ListOffsetsResponse(topics=[topic(name="t", partitions=[part])])


@contextmanager
def scripted_cluster(
    answer: Callable[[int, Message, int], Fetched], extent: tuple[int, int, int] = (0, 0, 10)
) -> Iterator[ScriptedCluster]:
    made = ScriptedCluster(answer, extent)
    try:
        yield made
    finally:
        made.end()
