"""Heartbeats that cannot change anything are left out, and nothing changes; no run differs from
another of the same seed.
"""

from __future__ import annotations

import hashlib

from rota.engine.simulator.scenario import read_scenario
from rota.engine.simulator.simulation import ScenarioRunner
from rota.engine.simulator.world import World
from tests.support.process import environment, run_python
from tests.support.simulation.random_scenario import random_scenario


def run_scenario(text: str, seed: int, *, skip: bool) -> World:
    world = ScenarioRunner(read_scenario(text), seed=seed, skip=skip).run()
    world.check_invariants()
    return world


def digest(seed: int) -> str:
    trace = run_scenario(random_scenario(seed), seed, skip=True).trace
    return hashlib.sha256("\n".join(map(repr, trace)).encode()).hexdigest()


def test_the_same_seed_gives_the_same_trace_whatever_the_hash_seed() -> None:
    code = (
        "from tests.system.process.test_fast_forward import digest; print(*map(digest, range(4)))"
    )
    printed = {
        run_python(code, env=environment(PYTHONHASHSEED=seed)).checked().out
        for seed in ("0", "1", "31337")
    }
    assert printed == {" ".join(map(digest, range(4))) + "\n"}
