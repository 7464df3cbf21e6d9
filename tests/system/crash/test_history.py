"""The judge of histories finds every broken promise, and none where all were kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.system.crash.history import CommitAttempt, History, OffsetLookup, ReadValue, SentValue

FINAL = {0: [(0, "a0"), (1, "b0"), (2, "a1")], 1: [(0, "a2")]}


def valid_history() -> History:
    return History(
        written=[
            SentValue(0, 0, "a0", 0, began=0, ended=2, offset=0),
            SentValue(1, 0, "b0", 0, began=1, ended=4, offset=1),
            SentValue(0, 1, "a1", 0, began=3),
            SentValue(0, 2, "a2", 1, began=4, ended=5, offset=0),
            SentValue(1, 1, "b1", 1, began=5),
        ],
        read=[
            ReadValue(5, 0, 0, "a0", at=3),
            ReadValue(5, 0, 1, "b0", at=5),
            ReadValue(6, 1, 0, "a2", at=6),
        ],
        committed=[CommitAttempt(5, 0, 1, began=4, ended=5), CommitAttempt(5, 0, 2, began=6)],
        asked=[
            OffsetLookup("end", 0, 2, began=4.5, ended=5),
            OffsetLookup("committed", 0, 1, began=6, ended=7),
            OffsetLookup("committed", 1, -1, began=6, ended=7),
        ],
    )


def test_promises_kept() -> None:
    assert valid_history().problems(FINAL) == []


@pytest.mark.parametrize(
    ("final", "message"),
    [
        ({**FINAL, 1: []}, "a2 was acknowledged at 1@0, and is lost"),
        ({**FINAL, 1: [(0, "b1"), (1, "a2")]}, "a2 was acknowledged at 1@0, and is lost"),
        ({**FINAL, 1: [(0, "a2"), (1, "a2")]}, "a2 is there 2 times"),
        ({**FINAL, 1: [(0, "a2"), (1, "x")]}, "x at 1 was never sent"),
        ({**FINAL, 1: [(0, "a2"), (2, "b1")]}, "offset 2 follows 0"),
        ({**FINAL, 0: [(0, "a1"), (1, "b0"), (2, "a0")]}, "a0 at 2 is behind a later one"),
    ],
)
def test_a_broken_log(final: dict[int, list[tuple[int, str]]], message: str) -> None:
    assert any(message in problem for problem in valid_history().problems(final))


def test_a_write_that_overtakes_an_acknowledged_one() -> None:
    history = valid_history()
    history.written[1] = replace(history.written[1], ended=0.5, began=0.2)
    found = history.problems(FINAL)
    assert found == []
    history.written[0] = replace(history.written[0], began=1)
    assert any("was sent after 1 was acknowledged" in each for each in history.problems(FINAL))


def test_a_read_of_what_is_gone() -> None:
    history = valid_history()
    history.read.append(ReadValue(5, 0, 3, "a9", at=9))
    assert history.problems(FINAL) == ["a9 was read at 0@3, where None is now"]


def test_a_commit_ahead_of_the_reader() -> None:
    history = valid_history()
    history.committed.append(CommitAttempt(5, 0, 3, began=8, ended=9))
    assert history.problems(FINAL) == ["partition 0: 3 was committed before it was read"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (OffsetLookup("end", 0, 1, began=6, ended=7), "its end was 1, not 2"),
        (OffsetLookup("committed", 0, -1, began=6, ended=7), "after 1 had been acknowledged"),
        (OffsetLookup("committed", 0, 9, began=6, ended=7), "9 was never committed"),
    ],
)
def test_a_wrong_answer(asked: OffsetLookup, message: str) -> None:
    history = valid_history()
    history.asked.append(asked)
    (problem,) = history.problems(FINAL)
    assert message in problem


def test_a_commit_without_an_answer_may_come_late() -> None:
    history = valid_history()
    history.committed += [CommitAttempt(5, 1, 1, began=7), CommitAttempt(5, 0, 2, began=7, ended=8)]
    history.asked.append(OffsetLookup("committed", 0, 2, began=9, ended=10))
    assert history.problems(FINAL) == []
