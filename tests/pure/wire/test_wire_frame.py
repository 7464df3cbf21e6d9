"""Bytes into frames."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from rota.engine.formats.buffer import PADDING, ByteBuffer, Bytes
from rota.errors import FormatError
from rota.protocol.frames import RECEIVE_BUFFER_BYTES, FrameReader

LIMIT = 100 * 1024 * 1024


def encode_frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def take_frames(frames: FrameReader) -> list[bytes]:
    found = []
    while (frame := frames.next_frame()) is not None:
        found.append(bytes(frame))
    return found


def receive_data(frames: FrameReader, data: bytes) -> list[bytes]:
    """Data that arrives as a socket gives it: as much as fits the room."""
    found = []
    left: Bytes = data
    while left:
        room = frames.get_buffer()
        count = min(len(room), len(left))
        assert count > 0
        room[:count] = left[:count]
        frames.buffer_updated(count)
        left = left[count:]
        found += take_frames(frames)
    return found


def test_a_frame_comes_out_without_its_length() -> None:
    frames = FrameReader(LIMIT)
    frames.feed(encode_frame(b"hello"))
    assert frames.next_frame() == b"hello"
    assert frames.next_frame() is None


def test_a_frame_of_no_bytes_is_a_frame() -> None:
    frames = FrameReader(LIMIT)
    frames.feed(encode_frame(b"") + encode_frame(b"x"))
    assert take_frames(frames) == [b"", b"x"]


def test_frames_may_be_cut_anywhere() -> None:
    rng = random.Random(5)
    for most in (1, 2, 5, 64, 4096, 100_000):
        sizes = (0, 1, 3, 4, 5, 100, 50 * most)
        bodies = [rng.randbytes(rng.choice(sizes)) for _ in range(50)]
        data = b"".join(map(encode_frame, bodies))
        fed, wrote = FrameReader(LIMIT), FrameReader(LIMIT, bytearray(3000))
        found_fed, found_wrote = [], []
        position = 0
        while position < len(data):
            piece = data[position : position + rng.randint(1, most)]
            position += len(piece)
            fed.feed(piece)
            if rng.random() < 0.5:  # the shell may look later
                found_fed += take_frames(fed)
            found_wrote += receive_data(wrote, piece)
        assert found_fed + take_frames(fed) == bodies
        assert found_wrote == bodies


def test_bytes_are_copied_out_of_a_shared_room() -> None:
    scratch = bytearray(100)
    one, other = FrameReader(LIMIT, scratch), FrameReader(LIMIT, scratch)
    room = one.get_buffer()
    room[:7] = encode_frame(b"one")
    one.buffer_updated(7)
    room = other.get_buffer()
    room[:9] = encode_frame(b"other")
    other.buffer_updated(9)
    assert take_frames(one) == [b"one"]
    assert take_frames(other) == [b"other"]


def test_a_long_frame_is_written_where_it_stays() -> None:
    frames = FrameReader(LIMIT, bytearray(1000))
    body = bytes(range(256)) * 4096
    assert receive_data(frames, encode_frame(body)) == [body]
    frames.feed(encode_frame(body)[:1000])
    assert len(frames.get_buffer()) > 1000, "the frame's own room, not the shared one"


def test_room_grows_with_what_came_in_not_with_what_was_announced() -> None:
    frames = FrameReader(LIMIT, bytearray(RECEIVE_BUFFER_BYTES))
    tracemalloc.start()
    try:
        frames.feed(LIMIT.to_bytes(4, "big") + bytes(10_000))
        assert frames.next_frame() is None
        frames.get_buffer()
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"),
        (b"\x16\x03\x03\x00\xfa", "TLS"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /topics", "HTTP"),
        (b"PRI * HTTP/2.0", "HTTP"),
        (b"OPTIONS *", "HTTP"),
        (b"SSH-2.0-OpenSSH", "SSH"),
        (b"PROXY TCP4", "PROXY"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (b"\x80\x00\x00\x00", "a frame of -2147483648 bytes"),
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes is announced, the limit is 1000"),
        (b"\x00\x00\x03\xe9", "a frame of 1001 bytes is announced, the limit is 1000"),
    ],
)
def test_what_is_no_frame_is_named(sent: bytes, said: str) -> None:
    for pieces in ([sent], [sent[:2], sent[2:]], [bytes([byte]) for byte in sent]):
        frames = FrameReader(1000)
        for piece in pieces:
            frames.feed(piece)
        with pytest.raises(FormatError, match=said):
            frames.next_frame()
        with pytest.raises(FormatError, match=said):
            frames.next_frame()


@pytest.mark.parametrize("at_once", [0, 500, 1 << 20])
def test_room_may_be_made_as_soon_as_a_frame_is_announced(at_once: int) -> None:
    sent = bytes(range(256)) * 40
    frames = FrameReader(LIMIT, bytearray(100), at_once=at_once)
    data, rooms = encode_frame(sent), []
    while data:
        room = frames.get_buffer()
        rooms.append(len(room))
        count = min(len(room), len(data), 77)
        room[:count] = data[:count]
        frames.buffer_updated(count)
        data = data[count:]
    assert max(rooms[1:]) >= min(at_once, len(sent) - 77 + 4)
    assert frames.next_frame() == sent
    assert frames.next_frame() is None


def test_frames_before_a_bad_one_come_out_first() -> None:
    frames = FrameReader(1000)
    frames.feed(encode_frame(b"good") + b"GET / HTTP/1.1")
    assert frames.next_frame() == b"good"
    with pytest.raises(FormatError, match="HTTP"):
        frames.next_frame()


def test_tls_is_known_even_where_the_limit_would_allow_such_a_frame() -> None:
    frames = FrameReader(2**31 - 1)
    frames.feed(b"\x16\x03\x01\x00")
    with pytest.raises(FormatError, match="TLS"):
        frames.next_frame()


def test_a_frame_just_as_long_as_the_limit_is_taken() -> None:
    frames = FrameReader(1000)
    frames.feed(encode_frame(bytes(1000)))
    assert frames.next_frame() == bytes(1000)


@pytest.mark.parametrize("most", [1, 3, 7, 104, 1000])
def test_what_is_held_is_what_came_in_and_did_not_go_out(most: int) -> None:
    data = (
        encode_frame(bytes(100))
        + encode_frame(b"")
        + encode_frame(b"next")
        + encode_frame(bytes(200))
    )
    frames = FrameReader(LIMIT)
    for start in range(0, len(data), most):  # a shell that does not look
        frames.feed(data[start : start + most])
        assert frames.buffered_bytes == min(start + most, len(data))
    held = len(data)
    while (frame := frames.next_frame()) is not None:
        held -= 4 + len(frame)
        assert frames.buffered_bytes == held
    assert held == 0


def test_a_whole_frame_that_nobody_took_is_held() -> None:
    frames = FrameReader(LIMIT)
    frames.feed(encode_frame(b"asked while the answer before is awaited"))
    assert frames.buffered_bytes == 44


@pytest.mark.parametrize("at_once", [0, 500, 1 << 20])
def test_what_is_missing_is_the_rest_of_a_frame_that_has_begun(at_once: int) -> None:
    body = random.Random(3).randbytes(5_000)
    data = encode_frame(body)
    frames = FrameReader(LIMIT, bytearray(100), at_once=at_once)
    assert frames.missing_bytes == 0
    frames.feed(data[:3])
    assert frames.missing_bytes == 0, "its length is not known yet"
    frames.feed(data[3:50])
    frames.next_frame()  # puts the beginning of the length and the rest of it together
    for at in range(50, len(data), 99):
        assert frames.missing_bytes == len(data) - at
        assert frames.next_frame() is None
        room = frames.get_buffer()
        assert 0 < len(room) <= frames.missing_bytes, (
            "no byte of the next frame is read into this one"
        )
        count = min(99, len(room), frames.missing_bytes)
        room[:count] = data[at : at + count]
        frames.buffer_updated(count)
        frames.feed(data[at + count : at + 99])
    assert frames.missing_bytes == 0
    assert frames.next_frame() == body
    assert frames.missing_bytes == 0


def test_a_frame_that_is_too_long_is_not_begun() -> None:
    frames = FrameReader(1000, at_once=1 << 20)
    frames.feed((1001).to_bytes(4, "big") + b"x")
    assert frames.missing_bytes == 0
    with pytest.raises(FormatError, match="1001"):
        frames.next_frame()
    assert frames.missing_bytes == 0


@pytest.mark.parametrize("first", [1, 3, 4, 5, 90, 99])
def test_a_frame_with_room_made_at_once_is_no_view_of_the_shared_room(first: int) -> None:
    scratch = bytearray(100)
    frames = FrameReader(LIMIT, scratch, at_once=1 << 20)
    body = random.Random(2).randbytes(3_000)
    room = frames.get_buffer()
    room[:first] = encode_frame(body)[:first]
    frames.buffer_updated(first)
    assert frames.next_frame() is None
    scratch[:] = b"\xff" * 100  # another connection's bytes
    assert receive_data(frames, encode_frame(body)[first:]) == [body]


@pytest.mark.parametrize("size", [400, 501, 2_000, 100_000])
def test_a_frame_with_room_made_at_once_is_read_as_numbers_where_it_is(size: int) -> None:
    """Smaller than what is made room for at once, or grown."""
    frames = FrameReader(LIMIT, bytearray(100), at_once=500)
    body = random.Random(1).randbytes(size)
    left = encode_frame(body)
    while left:
        room = frames.get_buffer()
        count = min(len(room), len(left), 333)
        room[:count] = left[:count]
        frames.buffer_updated(count)
        left = left[count:]
    frame = frames.next_frame()
    assert isinstance(frame, memoryview)
    assert frame == body
    buffer = ByteBuffer([frame[7:]])
    assert buffer.view.obj is frame.obj
    assert (buffer.size, buffer.data[:-PADDING]) == (size - 7, body[7:])


def test_frames_with_room_made_at_once_may_be_cut_anywhere() -> None:
    rng = random.Random(6)
    for at_once in (1, 50, 1 << 20):
        bodies = [rng.randbytes(rng.choice((0, 1, 5, 49, 300, 20_000))) for _ in range(60)]
        data = b"".join(map(encode_frame, bodies))
        frames = FrameReader(LIMIT, bytearray(3000), at_once=at_once)
        found = []
        while data:
            count = rng.randint(1, 5_000)
            found += receive_data(frames, data[:count])
            data = data[count:]
        assert found == bodies
