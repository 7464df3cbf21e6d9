"""The checks are worth something: every way in which the engine is broken here is found."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.support.simulation.mutations import MUTATIONS, Mutation
from tests.support.simulation.run_seed import Failure, run_seed

#: So many seeds are enough.
WITHIN = 50


def broken_rule(seed: int) -> str | None:
    try:
        run_seed(seed)
    except Failure as failure:
        return failure.rule
    return None


@pytest.mark.check
@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_a_broken_engine_is_found(mutation: Mutation) -> None:
    with ExitStack() as stack:
        mutation.apply(stack)
        found = ((seed, broken_rule(seed)) for seed in range(WITHIN))
        seed, rule = next((one for one in found if one[1]), (WITHIN, None))
    print(f"{mutation.name}: seed {seed}, rule {rule!r}")
    assert rule in mutation.found_by
