"""``rota.assign``: what a plan says of a rebalance."""

from __future__ import annotations

import subprocess
import sys


def test_importing_rota_loads_nothing_heavy() -> None:
    code = (
        "import sys, rota; heavy = {'numpy', 'rich', 'asyncio', 'kafka', 'aiokafka', "
        "'confluent_kafka', 'pyspark'}; print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
