"""Random worlds: nothing that was promised is broken, whatever goes wrong.

A failing seed tells itself and the last things that happened. To play one again, as exactly as it
was: ``ROTA_SEED=123 python -m pytest tests/pure/simulation -k seed``.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.pure.simulation.play import fingerprint


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_gives_the_same_world_in_every_process(hash_seed: str) -> None:
    program = "from tests.pure.simulation.play import fingerprint; print(fingerprint(4))"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == fingerprint(4)
