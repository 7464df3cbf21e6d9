"""What holds of messages in every API and version, whatever bytes come in."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import FormatError
from rota.protocol.codec import (
    RequestHeader,
    read_request,
    read_request_header,
    read_response,
    write_request,
    write_response,
)
from rota.protocol.frames import FrameReader
from rota.protocol.messages import Api
from tests.support.examples import examples
from tests.support.wire_messages import message_classes, random_message, versions

every_api = pytest.mark.parametrize("api", Api, ids=lambda api: api.name)
#: For each API; an example is tried in all its versions.
few = settings(max_examples=max(5, settings().max_examples // 10))
seeds = st.integers(0, 2**32)
#: Lengths and counts that break careless readers.
EXTREMES = (
    *(value.to_bytes(4, "big", signed=True) for value in (-1, 0, 1, -2, 2**16, 2**31 - 1)),
    *(b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x10", b"\x80\x00\x00\x00"),
    *(b"\xff\xff", b"\x7f\xff", b"\x00", b"\x80"),
)
nasty = st.lists(st.binary(max_size=9) | st.sampled_from(EXTREMES), max_size=20).map(b"".join)
#: Bytes of memory for each byte sent, at most: of arrays of empty structs.
MULTIPLE = 120


def request_frame(api: Api, version: int, rng: random.Random) -> tuple[bytes, Any]:
    message = random_message(message_classes(api)[0], version, rng)
    return bytes(write_request(RequestHeader(api, version, 7, "me", 0), message))[4:], message


def response_frame(api: Api, version: int, rng: random.Random) -> tuple[bytes, Any]:
    message = random_message(message_classes(api)[1], version, rng)
    return bytes(write_response(api, version, 7, message))[4:], message


def decode_frame(frame: bytes) -> Any:
    head = read_request_header(frame)
    return read_request(message_classes(Api(head.api_key))[0], head.api_version, frame, head.size)


def decode_outcome(api: Api, version: int, body: bytes) -> int:
    """As a request and as a response it is a message or it is refused, and nothing else."""
    refused = 0
    try:
        read_request(message_classes(api)[0], version, body, 0)
    except FormatError:
        refused += 1
    try:
        read_response(message_classes(api)[1], version, bytes(5) + body)
    except FormatError:
        refused += 1
    return refused


@examples(quick=4)
@every_api
@few
@given(seeds)
def test_what_is_written_is_read(api: Api, seed: int) -> None:
    rng = random.Random(seed)
    for version in versions(api):
        frame, message = request_frame(api, version, rng)
        assert decode_frame(frame) == message
        frame, message = response_frame(api, version, rng)
        assert read_response(message_classes(api)[1], version, frame) == (7, message)


@every_api
@settings(max_examples=2)
@given(seeds)
def test_what_is_cut_is_refused(api: Api, seed: int) -> None:
    rng = random.Random(seed)
    for version in versions(api):
        frame, _ = request_frame(api, version, rng)
        for end in truncation_lengths(frame, rng):
            with pytest.raises(FormatError):
                decode_frame(frame[:end])
        frame, _ = response_frame(api, version, rng)
        for end in truncation_lengths(frame, rng):
            with pytest.raises(FormatError):
                read_response(message_classes(api)[1], version, frame[:end])


def truncation_lengths(frame: bytes, rng: random.Random) -> Iterable[int]:
    """Every byte of a short frame, some of a long one."""
    return range(len(frame)) if len(frame) < 300 else rng.sample(range(len(frame)), 300)


@examples(quick=4)
@every_api
@few
@given(seeds, st.binary(min_size=1, max_size=8))
def test_what_goes_on_behind_a_message_is_left_alone(api: Api, seed: int, more: bytes) -> None:
    """As in Kafka: librdkafka's Metadata of all topics has three bytes too many."""
    rng = random.Random(seed)
    for version in versions(api):
        frame, _ = request_frame(api, version, rng)
        assert decode_frame(frame + more) == decode_frame(frame)
        answer, _ = response_frame(api, version, rng)
        assert read_response(message_classes(api)[1], version, answer + more) == read_response(
            message_classes(api)[1], version, answer
        )


@examples(quick=4)
@every_api
@few
@given(seeds)
def test_what_is_changed_is_a_message_or_refused(api: Api, seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for version in versions(api):
        frame, _ = request_frame(api, version, rng)
        request = frame[read_request_header(frame).size :]
        response = response_frame(api, version, rng)[0][5:]
        for body in (request, response):
            for _ in range(4):
                refused += decode_outcome(api, version, mutate_bytes(body, rng))
    assert refused > 0


def mutate_bytes(body: bytes, rng: random.Random) -> bytes:
    found = bytearray(body)
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randint(0, len(found))
        extreme = rng.choice(EXTREMES)
        found[at : at + rng.choice((0, 1, len(extreme)))] = extreme
    return bytes(found)


@examples(quick=4)
@every_api
@few
@given(nasty)
def test_any_bytes_are_a_message_or_refused(api: Api, data: bytes) -> None:
    for version in versions(api):
        decode_outcome(api, version, data)


@given(nasty)
def test_any_frame_has_a_header_or_is_refused(data: bytes) -> None:
    try:
        head = read_request_header(data)
    except FormatError:
        return
    assert 10 <= head.size <= len(data)


@every_api
def test_memory_is_bounded_by_what_was_sent(api: Api) -> None:
    """Zeros are the cheapest elements to send; here is a count of them at every place."""
    size = 20_000
    lowest, highest = versions(api)[0], versions(api)[-1]
    for version in {lowest, highest}:
        decode_outcome(api, version, bytes(64))  # the decoders are made before it is measured
        tracemalloc.start()
        try:
            for body in (body for at in range(30) for body in zeros(at, size)):
                decode_outcome(api, version, body)
            assert tracemalloc.get_traced_memory()[1] < MULTIPLE * size
        finally:
            tracemalloc.stop()


def zeros(at: int, size: int) -> list[bytes]:
    """Zeros with a count at this place, as four bytes and as a varint."""
    found = []
    for count in ((size - 50) // 2, (size - 50) // 20, 2**31 - 1):
        varint = bytes((count & 0x7F | 0x80, count >> 7 & 0x7F | 0x80, count >> 14 & 0x7F))
        found += [count.to_bytes(4, "big"), varint]
    return [bytes(at) + count + bytes(size - at - len(count)) for count in found]


@examples(quick=4)
@every_api
@few
@given(st.integers(1, 27), st.sampled_from((0, 1, 127, 128, 10_000)))
def test_tagged_fields_of_a_later_kafka_are_skipped(api: Api, many: int, size: int) -> None:
    request = message_classes(api)[0]
    for version in versions(api):
        if version not in request.SCHEMA.flexible:
            continue
        frame = bytes(write_request(RequestHeader(api, version, 7, "me", 0), request()))[4:]
        assert frame.endswith(b"\x00")
        length = bytes((size,)) if size < 128 else bytes((size & 0x7F | 0x80, size >> 7))
        tags = b"".join(bytes((100 + number,)) + length + b"x" * size for number in range(many))
        tagged = frame[:-1] + bytes((many,)) + tags
        assert decode_frame(tagged) == decode_frame(frame)
        with pytest.raises(FormatError):
            decode_frame(tagged[:-1])


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.integers(1, 500),
    st.integers(5, 400),
    seeds,
)
def test_frames_do_not_depend_on_how_bytes_come_in(
    bodies: list[bytes], most: int, scratch: int, seed: int
) -> None:
    rng = random.Random(seed)
    data = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    frames, found, at = FrameReader(1000, bytearray(scratch)), [], 0
    while at < len(data):
        if rng.random() < 0.5:
            piece = data[at : at + rng.randint(1, most)]
            frames.feed(piece)
        else:
            room = frames.get_buffer()
            piece = data[at : at + min(len(room), rng.randint(1, most))]
            room[: len(piece)] = piece
            frames.buffer_updated(len(piece))
        at += len(piece)
        while (frame := frames.next_frame()) is not None:
            found.append(bytes(frame))
    assert found == bodies
