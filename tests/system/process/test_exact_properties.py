"""The exact solver and its certificate against judges that share no code with them."""

from __future__ import annotations

import os
import subprocess
import sys

DIGEST = """
from rota.assignors import exact
from tests.support.seeded_groups import random_problem
for seed in range(40):
    problem = random_problem(seed, racks=seed % 2 == 1)
    print(problem.notes, exact.solve(problem, lambda: False).owners.tolist())
"""


def test_the_hash_seed_does_not_matter() -> None:
    def printed(hash_seed: str) -> str:
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        run = [sys.executable, "-c", DIGEST]
        return subprocess.run(
            run, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert printed("1") == printed("2") != ""
