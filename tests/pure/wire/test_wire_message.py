"""Requests and responses as bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from rota.errors import FormatError, Unreachable
from rota.protocol import schemas
from rota.protocol.codec import (
    RequestHeader,
    read_request,
    read_request_header,
    read_response,
    write_request,
    write_response,
)
from rota.protocol.messages import (
    ZERO_UUID,
    Api,
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    ProduceRequest,
    classes_by_api,
)
from rota.protocol.schemas import LazyMessageClass

TOPIC_ID = bytes(range(16))


def frame(api: Api, version: int, request: Any, client_id: str | None = "me") -> bytes:
    return bytes(write_request(RequestHeader(api, version, 7, client_id, 0), request))[4:]


def produce_request(records: bytes | None) -> bytes:
    partition = ProduceRequest.PartitionProduceData(index=3, records=records)
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[partition])
    return frame(Api.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]))


def response_with_field(field: str, value: object) -> MetadataResponse:
    """A message with a value that a type checker would refuse."""
    made = MetadataResponse()
    setattr(made, field, value)
    return made


def response_with_topic_field(field: str, value: object) -> MetadataResponse.MetadataResponseTopic:
    made = MetadataResponse.MetadataResponseTopic()
    setattr(made, field, value)
    return made


def refusal_of(api: Api, version: int, body: bytes) -> str:
    with pytest.raises(FormatError) as caught:
        read_request(classes_by_api[api][0], version, body, 0)
    return str(caught.value)


# Headers


@pytest.mark.parametrize("client_id", ["me", "", None, "zoë", "x" * 32767])
@pytest.mark.parametrize("version", [3, 4])
def test_a_header_is_read_up_to_the_body(client_id: str | None, version: int) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=4, member_id="m")
    data = frame(Api.HEARTBEAT, version, request, client_id)
    head = read_request_header(data)
    assert head[:4] == (Api.HEARTBEAT, version, 7, client_id)
    assert read_request(HeartbeatRequest, version, data, head.size) == request


def test_a_header_of_an_unknown_api_or_version_is_read() -> None:
    data = struct.pack(">hhih", 999, 77, 5, 2) + b"me" + b"whatever"
    assert read_request_header(data) == RequestHeader(999, 77, 5, "me", 12)
    data = struct.pack(">hhih", Api.API_VERSIONS, 99, 5, 2) + b"me" + b"\0" + b"whatever"
    assert read_request_header(data) == RequestHeader(Api.API_VERSIONS, 99, 5, "me", 13)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    tags = b"\x02" + b"\x00\x03abc" + b"\xac\x02\x01z"
    data = struct.pack(">hhih", Api.HEARTBEAT, 4, 5, -1) + tags + b"body"
    assert data[read_request_header(data).size :] == b"body"


def test_a_client_id_that_is_no_utf_8_does_not_matter() -> None:
    data = struct.pack(">hhih", Api.HEARTBEAT, 0, 5, 3) + b"a\xffb"
    assert read_request_header(data).client_id == "a\ufffdb"


def test_a_header_cut_anywhere_is_refused() -> None:
    data = struct.pack(">hhih", Api.HEARTBEAT, 4, 5, 2) + b"me" + b"\x01\x05\x02ab"
    assert read_request_header(data).size == len(data)
    for end in range(len(data)):
        with pytest.raises(FormatError, match="header|client id"):
            read_request_header(data[:end])


def test_a_client_id_of_a_negative_length_is_refused() -> None:
    with pytest.raises(FormatError, match="client id .* -2 bytes"):
        read_request_header(struct.pack(">hhih", 12, 0, 5, -2))


def test_many_tags_in_a_header_cost_nothing() -> None:
    data = struct.pack(">hhih", Api.HEARTBEAT, 4, 5, -1) + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(FormatError, match="tagged fields of its header"):
        read_request_header(data)


# Bodies


def test_records_are_a_view_of_the_frame() -> None:
    data = produce_request(b"batch" * 1000)
    request = read_request(ProduceRequest, 9, data, read_request_header(data).size)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is data
    assert records == b"batch" * 1000


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_frames_may_be_any_kind_of_bytes(kind: type) -> None:
    data = kind(produce_request(b"batch"))
    request = read_request(ProduceRequest, 9, data, read_request_header(data).size)
    assert request.topic_data[0].name == "orders"
    assert request.topic_data[0].partition_data[0].records == b"batch"


def test_fields_of_other_versions_have_their_default() -> None:
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[FetchRequest.FetchTopic(topic="orders", topic_id=TOPIC_ID)],
    )
    data = frame(Api.FETCH, 4, request)
    found = read_request(FetchRequest, 4, data, read_request_header(data).size)
    assert found.topics[0].topic == "orders"
    assert found.topics[0].topic_id == ZERO_UUID
    assert (found.session_epoch, found.rack_id, found.forgotten_topics_data) == (-1, "", [])
    data = frame(Api.FETCH, 13, request)
    found = read_request(FetchRequest, 13, data, read_request_header(data).size)
    assert (found.topics[0].topic, found.topics[0].topic_id) == ("", TOPIC_ID)


def test_null_is_kept_where_the_schema_allows_it() -> None:
    data = frame(Api.METADATA, 12, MetadataRequest(topics=None))
    assert read_request(MetadataRequest, 12, data, read_request_header(data).size).topics is None
    data = produce_request(None)
    request = read_request(ProduceRequest, 9, data, read_request_header(data).size)
    assert request.topic_data[0].partition_data[0].records is None


def test_tagged_fields_are_written_where_they_differ() -> None:
    plain = FetchRequest(max_wait_ms=1, min_bytes=1)
    tagged = FetchRequest(max_wait_ms=1, min_bytes=1, cluster_id="here")
    written = frame(Api.FETCH, 12, tagged)
    assert written == frame(Api.FETCH, 12, plain)[:-1] + b"\x01\x00\x05\x05here"
    assert (
        read_request(FetchRequest, 12, written, read_request_header(written).size).cluster_id
        == "here"
    )


def test_text_that_is_no_utf_8_is_read_as_kafka_reads_it() -> None:
    body = b"\x00\x03a\xffb" + struct.pack(">i", 4) + b"\x00\x01m"
    assert read_request(HeartbeatRequest, 0, body, 0).group_id == "a\ufffdb"


@pytest.mark.parametrize(
    ("api", "version", "body", "said"),
    [
        (Api.HEARTBEAT, 0, b"", "HeartbeatRequest v0: group_id is cut"),
        (Api.HEARTBEAT, 0, b"\x00\x05abc", "group_id declares 5 bytes, but 3"),
        (Api.HEARTBEAT, 0, b"\xff\xff", "group_id is null"),
        (Api.HEARTBEAT, 0, b"\xff\xfe", "group_id declares -2 bytes"),
        (Api.HEARTBEAT, 0, b"\x00\x01g\x00", "generation_id to member_id is cut"),
        (Api.HEARTBEAT, 3, b"\0\0\0\0\0\1\0\0\xff\xfe", "group_instance_id declares -2"),
        (Api.HEARTBEAT, 4, b"\x02g\0\0\0\1\x02m\x00", "tagged fields is cut"),
        (Api.HEARTBEAT, 4, b"\xff\xff\xff\xff\xff\x01", "varint of more than five bytes"),
        (Api.HEARTBEAT, 4, b"\x81\x80\x02" + b"x" * 40_000, "declares 32768 bytes"),
        (Api.METADATA, 0, b"\xff\xff\xff\xff", "topics is null"),
        (Api.METADATA, 0, b"\x80\x00\x00\x00", "topics declares -2147483648 elements"),
        (Api.METADATA, 0, b"\x7f\xff\xff\xff" + bytes(99), "declares 2147483647 elements"),
        (Api.METADATA, 9, b"\xff\xff\xff\xff\x0f", "declares 4294967294 elements"),
        (Api.METADATA, 0, b"\x00\x00\x00\x01\x00\x09x", "topics.name declares 9 bytes"),
        (Api.METADATA, 0, b"\x00\x00\x00\x09\x00\x01x", "declares 9 elements, but 3 bytes"),
    ],
)
def test_a_body_against_its_schema_is_refused(
    api: Api, version: int, body: bytes, said: str
) -> None:
    assert said in refusal_of(api, version, body)


def test_a_tagged_field_must_have_the_size_that_it_says() -> None:
    whole = frame(Api.FETCH, 12, FetchRequest(cluster_id="here"))
    assert whole.endswith(b"\x01\x00\x05\x05here")
    start = read_request_header(whole).size
    short = whole[:-8] + b"\x01\x00\x04\x05here"
    assert "cluster_id declares 4 bytes, but 3" in refusal_of(Api.FETCH, 12, short[start:])
    long = whole[:-8] + b"\x01\x00\x06\x05here!"
    assert "cluster_id is followed by 1 bytes too many" in refusal_of(Api.FETCH, 12, long[start:])
    beyond = whole[:-8] + b"\x01\x00\x64\x05here"
    assert "100 bytes in its tag 0, of 5 that are left" in refusal_of(Api.FETCH, 12, beyond[start:])


def test_a_tag_of_another_version_is_refused_as_in_kafka() -> None:
    whole = frame(Api.FETCH, 12, FetchRequest())
    tagged = whole[:-1] + b"\x01\x01\x01x"  # tag 1 is the replica's state, of version 15 on
    assert "tag of another version" in refusal_of(
        Api.FETCH, 12, tagged[read_request_header(tagged).size :]
    )


def test_a_response_may_have_very_many_elements() -> None:
    broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="h", port=1)
    answer = MetadataResponse(brokers=[broker] * 300_000)
    sent = memoryview(write_response(Api.METADATA, 13, 1, answer))[4:]
    assert len(read_response(MetadataResponse, 13, sent)[1].brokers) == 300_000


def test_a_request_of_very_many_elements_is_refused() -> None:
    names = b"\x00\x00" * 300_000  # topics without a name: cheap to send, dear to keep
    body = struct.pack(">i", 300_000) + names
    assert "has 300000 elements: a message may have 250000 in all" in refusal_of(
        Api.METADATA, 0, body
    )
    topic = b"\x00\x01t" + struct.pack(">i", 150_000) + bytes(150_000 * 14)
    head = b"\x00\x01g" + bytes(4) + b"\x00\x00" + bytes(8)
    said = refusal_of(Api.OFFSET_COMMIT, 2, head + struct.pack(">i", 2) + topic + topic)
    assert "topics.partitions has 150000 elements: a message may have 250000" in said


def test_a_version_without_a_schema_is_refused() -> None:
    assert "no ProduceRequest of version 2" in refusal_of(Api.PRODUCE, 2, bytes(100))
    assert "no HeartbeatRequest of version 5" in refusal_of(Api.HEARTBEAT, 5, bytes(100))
    with pytest.raises(TypeError, match="no HeartbeatResponse of version 5"):
        write_response(Api.HEARTBEAT, 5, 1, HeartbeatResponse())


# Responses


def test_a_response_has_its_header_before_it() -> None:
    said = HeartbeatResponse(error_code=27)
    assert write_response(Api.HEARTBEAT, 0, 9, said) == struct.pack(">iih", 6, 9, 27)
    assert write_response(Api.HEARTBEAT, 4, 9, said) == struct.pack(">iibihb", 12, 9, 0, 0, 27, 0)
    assert read_response(HeartbeatResponse, 4, write_response(Api.HEARTBEAT, 4, 9, said)[4:]) == (
        9,
        said,
    )


def test_the_header_of_api_versions_is_one_that_anyone_reads() -> None:
    written = write_response(Api.API_VERSIONS, 3, 9, ApiVersionsResponse(error_code=35))
    assert written == struct.pack(">iih", 12, 9, 35) + b"\x01" + bytes(4) + b"\x00"


def test_error_codes_that_nobody_knows_are_kept() -> None:
    written = write_response(Api.HEARTBEAT, 4, 9, HeartbeatResponse(error_code=12_345))
    assert read_response(HeartbeatResponse, 4, written[4:])[1].error_code == 12_345


def test_a_response_cut_in_its_header_is_refused() -> None:
    for end in range(5):
        with pytest.raises(FormatError, match="header"):
            read_response(HeartbeatResponse, 4, b"\0\0\0\1\0"[:end])


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (response_with_field("topics", None), "MetadataResponse v12: topics: "),
        (response_with_field("cluster_id", 5), "cluster_id: "),
        (response_with_field("controller_id", "x"), "controller_id: "),
        (MetadataResponse(controller_id=2**31), "controller_id: "),
        (MetadataResponse(cluster_id="x" * 32_768), "cluster_id: a text of 32768 bytes"),
        (
            MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(topic_id=b"short")]),
            "topic_id.*: an id of 5 bytes",
        ),
        (
            MetadataResponse(topics=[response_with_topic_field("partitions", [5])]),
            "topics.partitions",
        ),
    ],
)
def test_a_response_against_its_schema_is_our_mistake_and_named(response: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        write_response(Api.METADATA, 12, 1, response)


# Their classes


def test_structs_of_any_depth_are_attributes_of_the_message() -> None:
    transaction = FetchResponse.AbortedTransaction(producer_id=1)
    made = FetchResponse.PartitionData(aborted_transactions=[transaction])
    topic = FetchResponse.FetchableTopicResponse(partitions=[made])
    frame = write_response(Api.FETCH, 12, 1, FetchResponse(responses=[topic]))
    _, found = read_response(FetchResponse, 12, frame[4:])
    assert found.responses[0].partitions[0].aborted_transactions == [transaction]
    assert not hasattr(FetchResponse.FetchableTopicResponse, "PartitionData")


def test_each_message_has_lists_of_its_own() -> None:
    one, other = MetadataResponse(), MetadataResponse()
    one.topics.append(MetadataResponse.MetadataResponseTopic(name="orders"))
    assert other.topics == []


def test_a_field_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="thropple"):
        HeartbeatResponse(thropple=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="thropple"):
        HeartbeatResponse().thropple = 1  # type: ignore[attr-defined]


def test_messages_are_shown_and_compared_by_their_fields() -> None:
    one = OffsetCommitRequest(group_id="g")
    assert one == OffsetCommitRequest(group_id="g")
    assert one != OffsetCommitRequest(group_id="h")
    assert one != HeartbeatRequest(group_id="g")
    assert repr(HeartbeatResponse(error_code=27)) == (
        "HeartbeatResponse(throttle_time_ms=0, error_code=27)"
    )


def test_a_class_is_made_when_it_is_first_used() -> None:
    heartbeat: Any = LazyMessageClass(Api.HEARTBEAT, "HeartbeatRequest")
    assert "message_class" not in vars(heartbeat)
    made = heartbeat(group_id="g")
    assert made.group_id == "g"
    assert isinstance(made, heartbeat)
    assert type(made) is heartbeat.message_class
    fetch: Any = LazyMessageClass(Api.FETCH, "FetchResponse")
    assert fetch.FetchableTopicResponse is fetch.message_class.FetchableTopicResponse
    with pytest.raises(AttributeError, match="NoSuchStruct"):
        fetch.NoSuchStruct  # noqa: B018


def test_a_schema_that_the_library_does_not_have_is_named() -> None:
    with pytest.raises(Unreachable, match="no schema of NoSuchRequest"):
        schemas.require_schemas(["FetchRequest", "NoSuchRequest"])
