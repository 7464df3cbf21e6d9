"""Random worlds around a whole broker: members talk to it by frames, it dies and its disk fails.

To run_seed a seed again, as exactly as it was:
``ROTA_SEED=123 python -m pytest tests/pure/simulation -k broker_seed``.
"""

from __future__ import annotations

import os

import pytest

from tests.support.examples import first
from tests.support.simulation import broker
from tests.support.simulation.run_seed import Failure, run_seed

AGAIN = os.environ.get("ROTA_SEED")
SEEDS = range(12) if AGAIN is None else (int(AGAIN),)
BATCH = 50
NIGHTLY = range(50, 2_000, BATCH)


@pytest.mark.parametrize("seed", first(6, SEEDS))
def test_broker_seed(seed: int) -> None:
    run_seed(seed, broker.create_checked_world)


@pytest.mark.nightly
@pytest.mark.parametrize("first", NIGHTLY)
def test_many_broker_seeds(first: int) -> None:
    failures = []
    for seed in range(first, first + BATCH):
        try:
            run_seed(seed, broker.create_checked_world)
        except Failure as failure:
            failures.append(failure)
    assert not failures, "\n\n".join(map(str, failures))
