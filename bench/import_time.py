"""How long ``import rota`` takes, in a new interpreter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from bench.limit import LIMITS
from bench.measure import Measurement
from bench.run import Row, Run

PROGRAM = """
import time
start = time.process_time()
import rota
print(time.process_time() - start)
"""
ROUNDS = 7


def run(bench: Run) -> Iterator[Row]:
    """The best of several interpreters."""
    bench.print_progress("   import rota")
    printed = [
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        for _ in range(ROUNDS)
    ]
    taken = Measurement(seconds=min(float(done.stdout) for done in printed))
    yield Row(work="import rota", ours=taken, theirs={}, limit=LIMITS["import"])
