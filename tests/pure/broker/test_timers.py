"""Alarms: in order, moved and stopped by name, and patient ones that may be late."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.broker.timers import Timers

TIMES = st.integers(0, 20)


@given(
    changes=st.lists(st.tuples(st.integers(0, 5), st.none() | TIMES, st.booleans())),
    now=TIMES,
)
def test_those_that_are_due_ring_once_in_the_order_of_their_times(
    changes: list[tuple[int, int | None, bool]], now: int
) -> None:
    alarms = Timers()
    rung: list[int] = []
    expected: dict[int, int] = {}
    for name, at, patient in changes:
        expected.pop(name, None)
        if at is None:
            alarms.stop(name)
        else:
            alarms.start(name, at, lambda _, name=name: rung.append(name), lenient=patient)  # type: ignore[misc]
            expected[name] = at
    assert alarms.next_due() == min(expected.values(), default=None)
    alarms.fire_due(now)
    due = {name: at for name, at in expected.items() if at <= now}
    assert rung == sorted(due, key=due.__getitem__)
    assert set(alarms.names) == set(expected) - set(due)


def test_only_patient_ones_may_be_late() -> None:
    alarms = Timers()
    alarms.start("look around", 10, lambda _: None, lenient=True)
    assert (alarms.next_due(), alarms.next_due(slack=100)) == (10, 110)
    alarms.start("session", 50, lambda _: None)
    assert (alarms.next_due(), alarms.next_due(slack=100)) == (10, 50)
    alarms.start("look around", 5, lambda _: None)
    assert alarms.next_due(slack=100) == 5


def test_alarms_moved_over_and_over_take_no_memory() -> None:
    alarms = Timers()
    for at in range(10_000):
        alarms.start("poll", at, lambda _: None)
        alarms.start("look around", at, lambda _: None, lenient=True)
    assert len(alarms._exact_heap) + len(alarms._lenient_heap) < 300
    assert alarms.next_due() == 9_999
