"""Leader epochs are read as they were written, and a list that cannot be is refused."""

from __future__ import annotations

import pytest

from rota.broker.storage.checkpoint import LeaderEpochs, pack_leader_epochs, unpack_leader_epochs
from rota.errors import FormatError


@pytest.mark.parametrize("entries", [[(0, 0)], [(3, 17)], [(0, 0), (1, 5), (4, 5), (9, 2**40)]])
def test_what_is_written_is_read(entries: list[tuple[int, int]]) -> None:
    found = unpack_leader_epochs(pack_leader_epochs(entries))
    assert found is not None
    assert found.entries == entries


def test_none_is_known_before_the_first_record() -> None:
    assert unpack_leader_epochs(pack_leader_epochs([])) is None


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([(1, 0), (0, 5)], "epoch 0 from 5 on, after 1 from 0 on"),
        ([(1, 0), (1, 5)], "epoch 1 from 5 on, after 1 from 0 on"),
        ([(0, 5), (1, 4)], "epoch 1 from 4 on, after 0 from 5 on"),
        ([(0, 0), (1, 5), (2, 3)], "epoch 2 from 3 on, after 1 from 5 on"),
        ([(-1, 0)], "a number below zero"),
        ([(0, -1)], "a number below zero"),
    ],
)
def test_epochs_and_their_offsets_ascend(entries: list[tuple[int, int]], problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        unpack_leader_epochs(pack_leader_epochs(entries))


@pytest.mark.parametrize(
    "data", [b"", b"0\n", b"1\n1\n0 0\n", b"0\n2\n0 0\n", b"0\n1\n0\n", b"\xff"]
)
def test_what_is_no_such_list_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        unpack_leader_epochs(data)


def test_an_epoch_ends_where_the_next_begins() -> None:
    epochs = LeaderEpochs([(1, 10), (3, 20)])
    assert [epochs.end_offset_for(epoch, 30) for epoch in range(5)] == [
        (0, 10),
        (1, 20),
        (1, 20),
        (3, 30),
        None,
    ]
    assert [epochs.epoch_at(offset) for offset in (0, 10, 19, 20)] == [1, 1, 1, 3]
