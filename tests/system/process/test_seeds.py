"""Random worlds: nothing that was promised is broken, whatever goes wrong.

A failing seed tells itself and the last things that happened. To play one again, as exactly as it
was: ``ROTA_SEED=123 python -m pytest tests/pure/simulation -k seed``.
"""

from __future__ import annotations

import pytest

from tests.support.process import environment, run_python
from tests.support.simulation.run_seed import fingerprint


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_gives_the_same_world_in_every_process(hash_seed: str) -> None:
    program = "from tests.support.simulation.run_seed import fingerprint; print(fingerprint(4))"
    result = run_python(program, env=environment(PYTHONHASHSEED=hash_seed)).checked()
    assert result.out.strip() == fingerprint(4)
