"""Bytes as numbers at any offset: in place where there is room behind them, else of a copy."""

from __future__ import annotations

import mmap
from pathlib import Path

from rota.formats.buffer import Buffer, Bytes

BODY = bytes(range(1, 101))


def is_in_place(piece: Bytes) -> bool:
    """Does the buffer see what is changed in the piece?"""
    made = Buffer([piece])
    view = memoryview(piece)
    before = view[0]
    view[0] = before ^ 0xFF
    seen = int(made.uint8[0]) != before
    view[0] = before
    return seen


def test_other_memory_is_copied(tmp_path: Path) -> None:
    assert not is_in_place(bytearray(BODY + bytes(100)))
    assert not is_in_place(memoryview(bytearray(BODY + bytes(100)))[: len(BODY)])
    path = tmp_path / "mapped"
    path.write_bytes(BODY + bytes(100))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        view = memoryview(mapped)
        assert not is_in_place(view[: len(BODY)])
        view.release()
