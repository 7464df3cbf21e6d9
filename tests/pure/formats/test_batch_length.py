"""How far it is from record to record: runs of one size at once, others one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rota.engine.formats import record_batch_scan
from rota.engine.formats.buffer import (
    BoolArray,
    ByteBuffer,
    Int64Array,
    allocate_padded,
    decode_leading_varints,
)
from rota.engine.formats.record_batch_scan import (
    MAX_SHORT_RUNS,
    SHORTEST_USEFUL_RUN,
    find_records_in_sequence,
)


def varint(number: int) -> bytes:
    """An unsigned one."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def record(size: int) -> bytes:
    """Of so many bytes behind its length: the first says that it has no attributes."""
    return varint(2 * size) + bytes(1) + b"\x55" * (size - 1)


def encode_records(sizes: list[int]) -> tuple[bytes, list[int]]:
    """Records of these sizes, and where each begins."""
    made = [record(size) for size in sizes]
    begins = np.cumsum([0, *map(len, made)])[:-1].tolist()
    return b"".join(made), begins


def in_frame(data: bytes, before: int = 0, behind: bytes = b"") -> ByteBuffer:
    frame = allocate_padded(before + len(data) + len(behind))
    frame[:] = bytes(before) + data + behind
    return ByteBuffer([frame[before : before + len(data)]])


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where it was gone on one by one."""
    places: list[int] = []
    plain = record_batch_scan._find_one_by_one

    def noted(data: memoryview, at: int, limit: int) -> list[int]:
        places.append(at)
        return plain(data, at, limit)

    monkeypatch.setattr(record_batch_scan, "_find_one_by_one", noted)
    return places


RUN = SHORTEST_USEFUL_RUN + 6


@pytest.mark.parametrize("size", [6, 7, 63, 64, 65, 100, 8190, 8191])
def test_a_run_of_one_size_is_found_at_once(size: int, stepped: list[int]) -> None:
    data, begins = encode_records([size] * RUN)
    for buffer in (ByteBuffer([data]), in_frame(data, 5, record(size))):
        assert find_records_in_sequence(buffer, 0, len(data)).tolist() == begins
    assert stepped == []


def test_runs_follow_each_other(stepped: list[int]) -> None:
    data, begins = encode_records([20] * RUN + [200] * RUN + [20] * RUN + [63] * RUN + [64] * RUN)
    assert find_records_in_sequence(ByteBuffer([data]), 0, len(data)).tolist() == begins
    assert stepped == []


def test_it_may_begin_and_end_anywhere() -> None:
    data, begins = encode_records([20] * RUN + [30] * RUN)
    buffer = in_frame(data, 3)
    for first, behind in ((1, 3), (5, RUN), (RUN, RUN + 1), (RUN - 1, 2 * RUN - 1), (3, 3)):
        found = find_records_in_sequence(buffer, begins[first], begins[behind])
        assert found.tolist() == begins[first:behind]
        assert found.dtype == np.int64


def test_runs_are_looked_for_in_a_time_that_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not each in all that follows: many runs would take the square of their time."""
    looked = 0
    plain = np.flatnonzero

    def counted(some: BoolArray) -> Int64Array:
        nonlocal looked
        looked += len(some)
        return plain(some)

    monkeypatch.setattr(np, "flatnonzero", counted)
    sizes = ([6] * RUN + [7] * RUN) * 100
    data, begins = encode_records(sizes)
    assert find_records_in_sequence(ByteBuffer([data]), 0, len(data)).tolist() == begins
    assert looked < 10 * len(sizes)


def test_after_some_short_runs_the_others_are_found_one_by_one(stepped: list[int]) -> None:
    sizes = [10, 10, 11, 12, 12, 13, 14, 15, 15]
    data, begins = encode_records(sizes)
    assert find_records_in_sequence(ByteBuffer([data]), 0, len(data)).tolist() == begins
    (behind,) = stepped
    assert behind == begins[6]  # 10 twice, 11, 12 twice and 13
    assert MAX_SHORT_RUNS == 4


def test_few_short_runs_between_long_ones_do_no_harm(stepped: list[int]) -> None:
    data, begins = encode_records(
        [20] * RUN + [9] + [20] * RUN + [9] + [20] * RUN + [9] + [30] * RUN
    )
    assert find_records_in_sequence(ByteBuffer([data]), 0, len(data)).tolist() == begins
    assert stepped == []


@pytest.mark.parametrize("size", [8192, 8193, 100_000])
def test_lengths_of_three_bytes_are_read_among_others(size: int) -> None:
    data, begins = encode_records([20] * RUN + [size] * 3 + [20] * RUN + [size] + [63, 64] * 5)
    assert find_records_in_sequence(in_frame(data, 1), 0, len(data)).tolist() == begins


@pytest.mark.parametrize("behind", [b"", b"\0" * 40, record(20) * 3])
@pytest.mark.parametrize("short", [1, 2, 19])
def test_a_run_whose_last_record_goes_beyond_the_limit_ends_with_it(
    short: int, behind: bytes
) -> None:
    data, begins = encode_records([20] * RUN)
    buffer = in_frame(data[:-short], 2, behind)
    assert find_records_in_sequence(buffer, 0, buffer.size).tolist() == begins


def test_a_length_that_no_record_has_ends_it() -> None:
    for bad in (b"\x01", b"\x81\x01", b"\xff" * 5):  # negative, and one without an end
        data, begins = encode_records([20] * RUN)
        found = find_records_in_sequence(ByteBuffer([data + bad + bytes(50)]), 0, len(data) + 40)
        assert found.tolist() == [*begins, len(data)]


def test_records_of_all_kinds_in_any_order() -> None:
    rng = random.Random(4)
    for _ in range(200):
        sizes: list[int] = []
        for _ in range(rng.randint(1, 8)):
            some = rng.choice((6, 20, 62, 63, 64, 65, 8190, 8191, 8192))
            sizes += [some] * rng.choice((1, 2, 63, 64, 65))
        data, begins = encode_records(sizes)
        assert (
            find_records_in_sequence(in_frame(data, rng.randint(0, 9)), 0, len(data)).tolist()
            == begins
        )


# Numbers at the beginning of words


def first_number(data: bytes) -> tuple[int, int]:
    """As the format says: seven bits to the byte, zigzag; and its bytes, one more if none ends."""
    number = 0
    for place, byte in enumerate(data):
        number |= (byte & 127) << 7 * place
        if byte < 128:
            return number >> 1 ^ -(number & 1), place + 1
    return 0, len(data) + 1


def check_first_numbers(words: list[bytes]) -> None:
    number, bits, long = decode_leading_varints(
        np.frombuffer(b"".join(words), "<u8").astype(np.uint64)
    )
    assert (number.dtype.name, bits.dtype.name) == ("int64", "uint8")
    for row, word in enumerate(words):
        expected, size = first_number(word)
        assert long[row] == (size > 4), word
        if size <= 4:
            assert (number[row], bits[row]) == (expected, 8 * size), word
        else:
            assert bits[row] > 32, word


@pytest.mark.parametrize("size", range(1, 9))
def test_numbers_of_every_length_begin_words(size: int) -> None:
    rng = random.Random(size)
    words = []
    for _ in range(500):
        body = [rng.choice((128, 129, 255, rng.randint(128, 255))) for _ in range(size - 1)]
        last = rng.choice((0, 1, 2, 63, 64, 126, 127, rng.randint(0, 127)))
        words.append((bytes([*body, last]) + rng.randbytes(8))[:8])
    check_first_numbers(words)


def test_words_of_all_lengths_are_read_beside_each_other() -> None:
    rng = random.Random(9)
    words = [rng.randbytes(8) for _ in range(3000)] + [b"\xff" * 8, b"\x80" * 8, bytes(8)]
    words += [b"\xff" * each + bytes(8 - each) for each in range(8)]
    rng.shuffle(words)
    check_first_numbers(words)
    check_first_numbers([])


def test_every_number_of_two_bytes_is_known() -> None:
    """They are looked up."""
    for behind in (bytes(6), b"\xff" * 6):
        pairs = [bytes([low, high]) for low in range(0, 256, 3) for high in range(256)]
        check_first_numbers([pair + behind for pair in pairs])
