"""``rota.assign``: what a plan says of a rebalance."""

from __future__ import annotations

from tests.support.process import run_python


def test_importing_rota_loads_nothing_heavy() -> None:
    code = (
        "import sys, rota; heavy = {'numpy', 'rich', 'asyncio', 'kafka', 'aiokafka', "
        "'confluent_kafka', 'pyspark'}; print(sorted(heavy & set(sys.modules)))"
    )
    assert run_python(code).checked().out.strip() == "[]"
