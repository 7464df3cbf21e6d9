"""Bytes as numbers at any offset: in place where there is room behind them, else of a copy."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from rota.engine.formats.buffer import NUMBER_TYPES, PADDING, ByteBuffer, Bytes, allocate_padded

BODY = bytes(range(1, 101))


def copy_into_buffer(body: bytes, before: int = 0, behind: int = 0) -> memoryview:
    """Bytes in the middle of a frame that is full of others."""
    frame = allocate_padded(before + len(body) + behind)
    whole = frame.obj
    assert isinstance(whole, np.ndarray)
    whole[:] = 0xEE
    frame[before : before + len(body)] = body
    return frame[before : before + len(body)]


def is_in_place(piece: Bytes) -> bool:
    """Does the buffer see what is changed in the piece?"""
    made = ByteBuffer([piece])
    view = memoryview(piece)
    before = view[0]
    view[0] = before ^ 0xFF
    seen = int(made.uint8[0]) != before
    view[0] = before
    return seen


@pytest.mark.parametrize(("before", "behind"), [(0, 0), (1, 0), (7, 3), (500, 500)])
def test_what_has_room_behind_it_is_read_where_it_is(before: int, behind: int) -> None:
    assert is_in_place(copy_into_buffer(BODY, before, behind))


@pytest.mark.parametrize("short", range(1, PADDING + 1))
def test_what_lacks_a_byte_of_room_is_copied(short: int) -> None:
    room = np.full(len(BODY) + PADDING - short, 0xEE, np.uint8)
    room[: len(BODY)] = np.frombuffer(BODY, np.uint8)
    piece = room.data[: len(BODY)]
    assert not is_in_place(piece)
    assert ByteBuffer([piece]).data == BODY + bytes(PADDING)


def test_other_memory_is_copied() -> None:
    assert not is_in_place(bytearray(BODY + bytes(100)))
    assert not is_in_place(memoryview(bytearray(BODY + bytes(100)))[: len(BODY)])
    with (
        Path(__file__).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped,
    ):
        view = memoryview(mapped)
        assert not is_in_place(view[: len(BODY)])
        view.release()


def test_memory_of_other_numbers_or_shapes_is_copied() -> None:
    """There an offset is not that of a byte."""
    wide = np.arange(100, dtype=np.int64)
    table = np.arange(4_000).astype(np.uint8).reshape(40, 100)
    for base in (wide, table):
        view = base.data.cast("B")[9:99]
        assert not is_in_place(view)
        made = ByteBuffer([view])
        assert (made.size, made.data) == (90, base.tobytes()[9:99] + bytes(PADDING))
        assert bytes(made.view) == made.data


def test_several_are_copied_one_behind_the_other() -> None:
    piece = copy_into_buffer(BODY)
    made = ByteBuffer([piece, b"and more"])
    piece[0] = 0
    assert made.data == BODY + b"and more" + bytes(PADDING)
    assert (made.size, bytes(made.view)) == (len(BODY) + 8, made.data)


@pytest.mark.parametrize(
    "pieces", [[], [b""], [copy_into_buffer(b"")], [copy_into_buffer(BODY)[3:3]]]
)
def test_no_bytes_at_all_have_room_too(pieces: list[Bytes]) -> None:
    made = ByteBuffer(pieces)
    assert (made.size, bytes(made.view), made.data) == (0, bytes(PADDING), bytes(PADDING))
    assert made.little[0] == 0


@pytest.mark.parametrize(
    ("piece", "room"),
    [(BODY, b"\0"), (copy_into_buffer(BODY), b"\xee"), (copy_into_buffer(BODY, 5, 9), b"\xee")],
    ids=["copied", "at the end", "in the middle"],
)
def test_all_of_it_are_its_bytes_and_the_room(piece: Bytes, room: bytes) -> None:
    made = ByteBuffer([piece])
    assert made.data == BODY + room * PADDING
    assert made.data is made.data
    assert (made.size, bytes(made.view)) == (len(BODY), made.data)
    for at in range(len(BODY) + PADDING):
        assert made.view[at] == made.uint8[at] == made.data[at]


@pytest.mark.parametrize("kind", NUMBER_TYPES)
@pytest.mark.parametrize(
    "piece",
    [BODY, copy_into_buffer(BODY), copy_into_buffer(BODY, 5, 9), copy_into_buffer(BODY, 1000)],
)
def test_there_is_a_number_at_every_offset(piece: Bytes, kind: str) -> None:
    size = np.dtype(NUMBER_TYPES[kind]).itemsize
    numbers = getattr(ByteBuffer([piece]), kind)
    for at in range(len(BODY) - size + 1):
        (expected,) = np.frombuffer(BODY[at : at + size], NUMBER_TYPES[kind])
        assert numbers[at] == expected
    # behind those, up to the last byte and one further: whatever is there
    assert len(numbers) == len(BODY) + PADDING - size + 1 > len(BODY)
    for at in range(len(BODY) - size + 1, len(BODY)):
        seen = numbers[at : at + 1].tobytes()
        assert seen[: len(BODY) - at] == BODY[at:]


def test_it_keeps_its_memory_alive() -> None:
    made = ByteBuffer([copy_into_buffer(BODY, 3)])
    for _ in range(10):
        copy_into_buffer(bytes(len(BODY)), 3)
    assert made.uint8[: len(BODY)].tobytes() == BODY


def test_there_is_nothing_else() -> None:
    with pytest.raises(AttributeError, match="float64"):
        _ = ByteBuffer([BODY]).float64


def test_room_is_of_the_size_that_is_asked_for() -> None:
    for size in (0, 1, 1 << 20):
        made = allocate_padded(size)
        assert (len(made), made.readonly, made.itemsize) == (size, False, 1)
