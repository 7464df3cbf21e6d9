"""The virtual clock, and chance out of a seed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.engine.simulator.scheduler import ScheduledAction, Scheduler
from rota.engine.simulator.seeded_random import (
    GAMMA,
    MASK,
    SeededRandom,
    hash_text,
    make_uuid,
    mix_bits,
    mix_numbers,
)
from tests.support.examples import examples


def test_what_is_due_at_once_comes_in_the_order_it_was_set() -> None:
    agenda, done = Scheduler(), list[str]()
    for name in ("first", "second", "third"):
        agenda.add(10, done.append, name)
    agenda.add(5, done.append, "before")
    while agenda.step():
        pass
    assert done == ["before", "first", "second", "third"]
    assert (agenda.now, agenda.steps) == (10, 4)


def test_a_moved_entry_comes_behind_those_that_were_there() -> None:
    agenda, done = Scheduler(), list[str]()
    moved = agenda.add(5, done.append, "moved")
    agenda.add(10, done.append, "there")
    agenda.reschedule(moved, 10)
    while agenda.step():
        pass
    assert done == ["there", "moved"]


def test_what_is_late_is_done_now() -> None:
    agenda, done = Scheduler(), list[str]()
    agenda.add(10, lambda _: agenda.add(3, done.append, "late"))
    agenda.step()
    agenda.step()
    assert (done, agenda.now) == (["late"], 10)


MOVES = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["move", "cancel", "step"]), st.integers(0, 20)),
    max_size=60,
)


@examples(quick=25)
@given(MOVES)
def test_like_a_list_that_is_sorted_anew_each_time(moves: list[tuple[int, str, int]]) -> None:
    agenda, done = Scheduler(), list[int]()
    entries = [ScheduledAction(done.append, number, None, is_periodic=False) for number in range(5)]
    plan: dict[int, tuple[int, int]] = {}
    expected: list[int] = []
    for turn, (number, what, after) in enumerate(moves):
        if what == "move":
            agenda.reschedule(entries[number], agenda.now + after)
            plan[number] = (agenda.now + after, turn)
        elif what == "cancel":
            agenda.cancel(entries[number])
            plan.pop(number, None)
        elif plan:
            first = min(plan, key=lambda one: plan[one])
            expected.append(first)
            assert agenda.next_at() == plan.pop(first)[0]
            assert agenda.step()
        else:
            assert not agenda.step()
        assert sorted(entry.argument for entry in agenda.pending()) == sorted(plan)  # type: ignore[type-var]
        assert done == expected


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 100), min_size=1), st.integers(1, 50))
def test_shifted_entries_keep_their_distance(times: dict[int, int], by: int) -> None:
    agenda, done = Scheduler(), list[tuple[int, int]]()
    entries = {
        number: agenda.add(at, lambda given: done.append((agenda.now, given)), number)
        for number, at in times.items()
    }
    agenda.shift([(entry, by) for number, entry in entries.items() if number % 2])
    while agenda.step():
        pass
    assert {number: at for at, number in done} == {
        number: at + by * (number % 2) for number, at in times.items()
    }
    assert [at for at, _ in done] == sorted(at for at, _ in done)


def test_the_generator_is_splitmix64() -> None:
    """The outputs for seed 1234567, as published with the algorithm's reference code."""
    state, found = 1234567, []
    for _ in range(5):
        state = (state + GAMMA) & MASK
        found.append(mix_bits(state))
    assert found == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_draws_hang_on_the_seed_alone() -> None:
    one, same, other = SeededRandom(1, 2), SeededRandom(1, 2), SeededRandom(2, 1)
    draws = [one.between(3, 7) for _ in range(200)]
    assert draws == [same.between(3, 7) for _ in range(200)]
    assert draws != [other.between(3, 7) for _ in range(200)]
    assert set(draws) == {3, 4, 5, 6, 7}
    assert mix_numbers(1, 2) != mix_numbers(2, 1)
    assert hash_text("ab") != hash_text("ba")


def test_odds_are_kept() -> None:
    chance = SeededRandom(5)
    assert not any(chance.happens(0) for _ in range(100))
    assert all(chance.happens(1) for _ in range(100))
    assert 200 < sum(chance.happens(0.25) for _ in range(1_000)) < 300
    assert {chance.pick("abc") for _ in range(50)} == set("abc")


def test_member_ids_look_like_kafkas() -> None:
    ids = {make_uuid(0, number) for number in range(1_000)}
    assert len(ids) == 1_000
    for one in ids:
        parts = one.split("-")
        assert [len(part) for part in parts] == [8, 4, 4, 4, 12]
        assert parts[2][0] == "4"
        assert parts[3][0] in "89ab"
