"""The exact solver and its certificate against judges that share no code with them."""

from __future__ import annotations

from tests.support.process import environment, run_python

DIGEST = """
from rota.engine.assignors.exact import solver
from tests.support.seeded_groups import random_problem
for seed in range(40):
    problem = random_problem(seed, racks=seed % 2 == 1)
    print(problem.notes, solver.solve_exactly(problem, lambda: False).owners.tolist())
"""


def test_the_hash_seed_does_not_matter() -> None:
    def printed(hash_seed: str) -> str:
        return run_python(DIGEST, env=environment(PYTHONHASHSEED=hash_seed)).checked().out

    assert printed("1") == printed("2") != ""
