"""The broker's time never goes back, whatever the machine's clock does."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from rota.broker.timers import DRIFT_CONFIRMATION_MS, Clock, steady_seconds
from tests.support.examples import examples


class Machine:
    """A machine's two clocks, in seconds."""

    def __init__(self) -> None:
        self.wall, self.steady = 1_000_000.0, 50.0

    def pass_by(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.steady)


def test_it_is_the_machines_time_in_milliseconds() -> None:
    machine = Machine()
    clock = machine.clock()
    assert clock.now() == 1_000_000_000
    machine.pass_by(1.5)
    assert clock.now() == 1_000_001_500


def test_a_clock_set_back_stops_no_timer() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall -= 3_600
    machine.pass_by(10)
    assert clock.now() == 1_000_010_000


def test_a_clock_that_stays_ahead_is_followed() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.wall += 7_200  # the steady clock has slept too
    assert clock.now() == 1_000_000_000
    machine.pass_by(DRIFT_CONFIRMATION_MS / 1_000 - 1)
    assert clock.now() == 1_000_004_000
    machine.pass_by(1)
    assert clock.now() == 1_007_205_000
    machine.pass_by(60)
    assert clock.now() == 1_007_265_000


def test_a_clock_that_is_ahead_for_a_look_is_not_followed() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(20):
        machine.wall += 3 * 86_400
        clock.now()
        machine.wall -= 3 * 86_400
        machine.pass_by(1)
        clock.seconds_until(clock.now() + 5)
    assert clock.now() == 1_000_020_000


def test_a_clock_that_is_ahead_by_something_else_each_time_is_not_followed() -> None:
    machine = Machine()
    clock = machine.clock()
    for _ in range(20):
        machine.wall += 3_600
        machine.pass_by(1)
        clock.now()
    assert clock.now() == 1_000_020_000
    machine.pass_by(DRIFT_CONFIRMATION_MS / 1_000)
    assert clock.now() == 1_000_000_000 + 20 * 3_601_000 + DRIFT_CONFIRMATION_MS


def test_a_sleep_counts_at_once_where_the_machine_can_tell() -> None:
    before = steady_seconds()
    assert before <= steady_seconds()
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert before <= time.clock_gettime(time.CLOCK_BOOTTIME) <= steady_seconds()


def test_frozen_it_moves_only_by_hand() -> None:
    machine = Machine()
    clock = machine.clock()
    clock.freeze()
    machine.pass_by(60)
    assert clock.frozen
    assert clock.now() == 1_000_000_000
    assert clock.seconds_until(clock.now() + 1) is None
    clock.move_to(clock.now() + 5_000)
    clock.resume()
    machine.pass_by(1)
    assert clock.now() == 1_000_006_000
    assert clock.seconds_until(clock.now() + 500) == 0.5


@examples(quick=25)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pass"), st.floats(0, 1e5)),
            st.tuples(st.just("set"), st.floats(-1e5, 1e5)),
            st.tuples(st.just("move"), st.floats(-1e6, 1e6)),
            st.tuples(st.sampled_from(["freeze", "resume"]), st.just(0.0)),
        )
    )
)
def test_it_never_goes_back(steps: list[tuple[str, float]]) -> None:
    machine = Machine()
    clock = machine.clock()
    before = clock.now()
    for what, amount in steps:
        match what:
            case "pass":
                machine.pass_by(amount)
            case "set":
                machine.wall += amount
            case "move":
                clock.move_to(clock.now() + int(amount))
            case "freeze":
                clock.freeze()
            case _:
                clock.resume()
        assert clock.now() >= before - 1  # a rounded half millisecond
        before = clock.now()
