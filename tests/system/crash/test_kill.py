"""A real broker process is killed under load, again and again: nothing that was acknowledged is
lost, nothing is there twice, offsets are dense, and what groups committed is there.
"""

from __future__ import annotations

import pytest

from tests.system.crash.crashed_broker import new_seed, start_crashed_broker


def kill_again_and_again(rounds: int) -> None:
    with start_crashed_broker(new_seed(), writers=2, readers=1) as crashed:
        for _ in range(rounds):
            (crashed.pause if crashed.chance.random() < 0.1 else crashed.kill)()


def test_killed_20_times_under_load() -> None:
    kill_again_and_again(20)


@pytest.mark.nightly
def test_killed_1000_times_under_load() -> None:
    kill_again_and_again(1_000)


def test_a_broker_that_forgets_is_found_out() -> None:
    with (
        pytest.raises(AssertionError, match=r"is lost|where .* is now|not delivered"),
        start_crashed_broker(new_seed(), writers=1, readers=1, keep=False) as crashed,
    ):
        crashed.truncate_segment()


def run_faults(rounds: int) -> None:
    with start_crashed_broker(new_seed(), writers=3, readers=2) as crashed:
        for _ in range(rounds):
            crashed.chance.choice((crashed.kill, crashed.pause, crashed.cut))()


def test_five_clients_see_one_history_whatever_happens() -> None:
    run_faults(15)


@pytest.mark.nightly
def test_five_clients_see_one_history_whatever_happens_for_long() -> None:
    run_faults(500)
