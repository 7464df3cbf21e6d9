"""A follower hears of queries in any order, and outlives the main thread."""

from __future__ import annotations

import pytest

from tests.support.process import run_python

pytest.importorskip("pyspark")


PROGRAM = """
import threading, time
from rota.spark.commit import call_at_exit

def query():
    time.sleep(0.3)
    print("the query has ended", flush=True)

call_at_exit(lambda: print("the last is committed", flush=True))
threading.Thread(target=query).start()
"""


def test_the_end_of_a_program_is_that_of_its_last_thread() -> None:
    assert run_python(PROGRAM).checked().lines == ["the query has ended", "the last is committed"]
