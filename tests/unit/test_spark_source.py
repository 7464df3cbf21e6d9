"""The class that Spark is given: it travels to processes that have not made it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pyspark.serializers import CloudPickleSerializer

from rota.spark.source import sized

SCRIPT = """
import pickle, sys
source = pickle.load(open(sys.argv[1], "rb"))
print(source.__module__, source.__name__, source.parallelism, source.name())
"""


def test_the_class_is_sent_with_what_it_knows(tmp_path: Path) -> None:
    sent: bytes = CloudPickleSerializer().dumps(sized(7))  # type: ignore[no-untyped-call]
    assert len(sent) < 1_000
    file = tmp_path / "source"
    file.write_bytes(sent)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(file)],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "rota.spark Source 7 rota\n", done.stderr
