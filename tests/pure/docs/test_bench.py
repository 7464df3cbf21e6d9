"""The benchmarks' own arithmetic: what is measured must not depend on trust in the harness."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest
from bench.limit import Limit
from bench.measure import (
    Measurement,
    TimeLimitExceeded,
    best_run,
    may_run_again,
    peak_memory,
    time_limit,
)
from bench.peer import FRANZ_GO, JAVA, parse_output


@pytest.fixture(autouse=True)
def only_new_objects_are_collected() -> Iterator[None]:
    """``best`` collects garbage before each run: not each time that of all tests before this."""
    gc.freeze()
    yield
    gc.unfreeze()


FAST, SLOW = Measurement(seconds=0.1), Measurement(seconds=1.0)


def test_lines_of_a_peer_give_its_best_run() -> None:
    printed = "run fresh 0.3\nrun fresh 0.2\nresult fresh 4 5 0\nover leave 30.1\n"
    assert parse_output(printed) == {
        "fresh": Measurement(seconds=0.2, loads=(4, 5), moved=0),
        "leave": Measurement(seconds=30.1, over=True),
    }


def test_a_ratio_counts_against_the_faster_peer() -> None:
    limit = Limit(ratio=0.5)
    assert limit.met(Measurement(seconds=0.05), {JAVA: SLOW, FRANZ_GO: FAST}) is True
    assert limit.met(Measurement(seconds=0.06), {JAVA: SLOW, FRANZ_GO: FAST}) is False


def test_a_peer_that_is_missing_leaves_the_question_open() -> None:
    assert Limit(ratio=0.5).met(Measurement(seconds=0.01), {JAVA: SLOW}) is None


@pytest.mark.parametrize(
    "ours",
    [
        Measurement(seconds=None, trouble="not there yet"),
        Measurement(seconds=0.01, over=True, peak=0, loads=(10, 10)),
        Measurement(seconds=0.2, peak=0, loads=(10, 10)),
        Measurement(seconds=0.01, peak=2 * 1024 * 1024, loads=(10, 10)),
        Measurement(seconds=0.01, peak=0, loads=(9, 11)),
        Measurement(seconds=0.01, peak=0, loads=(10, 10), trouble="a partition without an owner"),
    ],
)
def test_each_bound_alone_fails_a_row(ours: Measurement) -> None:
    limit = Limit(seconds=0.1, mib=1, loads=(10, 10))
    assert limit.met(Measurement(seconds=0.01, peak=1024 * 1024, loads=(10, 10)), {}) is True
    assert limit.met(ours, {}) is False


def test_long_calls_run_three_times_within_three_budgets() -> None:
    assert may_run_again([2.0, 2.0], budget=3.0)
    assert not may_run_again([2.0, 2.0, 2.0], budget=3.0)
    assert not may_run_again([9.5], budget=3.0)


def test_every_run_gets_an_input_of_its_own() -> None:
    inputs: list[list[int]] = []

    def prepare() -> list[int]:
        inputs.append([])
        return inputs[-1]

    best_run(prepare, lambda made: made.append(1), limit=5, budget=0.001)
    assert len(inputs) >= 1
    assert all(made == [1] for made in inputs)


def test_a_call_that_never_ends_is_stopped() -> None:
    def endless() -> None:
        while True:
            pass

    with pytest.raises(TimeLimitExceeded), time_limit(0.05):
        endless()


def test_short_calls_are_not_lost_between_ticks() -> None:
    def spin(_: None) -> None:
        start = time.thread_time()
        while time.thread_time() - start < 0.001:
            pass

    seconds, _ = best_run(lambda: None, spin, limit=5, budget=0.05)
    assert seconds >= 0.001


def test_peak_memory_leaves_the_input_out() -> None:
    megabyte = 1_000_000
    peak = peak_memory(lambda: bytearray(8 * megabyte), lambda made: bytes(made[:megabyte]))
    assert 1 * megabyte <= peak < 3 * megabyte
