"""Pauses before another try: longer each time, and never the same for all."""

from __future__ import annotations

from rota.client.retry import Backoff


def test_pauses_double_up_to_the_longest_with_some_chance() -> None:
    pauses = Backoff.from_milliseconds(100, 1_000)
    for failures, planned in ((1, 0.1), (2, 0.2), (3, 0.4)):
        found = {pauses.pause_after(failures) for _ in range(200)}
        assert len(found) > 100
        assert planned * 0.8 <= min(found) < planned < max(found) <= planned * 1.2
    assert max(pauses.pause_after(20) for _ in range(200)) == 1.0


def test_without_a_failure_there_is_none() -> None:
    assert Backoff.from_milliseconds(100, 1_000).pause_after(0) == 0
