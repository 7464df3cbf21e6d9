"""The checks are worth something: every way in which the engine is broken here is found."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.play import Failure, play

WITHIN = 50
"""So many seeds are enough."""


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_a_broken_engine_is_found(mutation: Mutation) -> None:
    with ExitStack() as stack:
        mutation.apply(stack)
        for seed in range(WITHIN):
            try:
                play(seed)
            except Failure as failure:
                print(f"{mutation.name}: seed {seed}, rule {failure.rule!r}")
                assert failure.rule in mutation.found_by
                return
    pytest.fail(f"{mutation.name}: not found in {WITHIN} seeds")
