"""The class that Spark is given: it travels to processes that have not made it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType

from rota.errors import InputError
from rota.spark.source import make_source_class
from tests.support.process import run_python

SCRIPT = """
import pickle, sys
source = pickle.load(open(sys.argv[1], "rb"))
print(source.__module__, source.__name__, source.parallelism, source.name())
"""


def test_the_class_is_sent_with_what_it_knows(tmp_path: Path) -> None:
    sent: bytes = CloudPickleSerializer().dumps(make_source_class(7))  # type: ignore[no-untyped-call]
    assert len(sent) < 1_000
    file = tmp_path / "source"
    file.write_bytes(sent)
    path = ":".join(filter(None, sys.path))
    done = run_python(SCRIPT, file, env={"PYTHONPATH": path})
    assert done.out == "rota.spark Source 7 rota\n", done.err


def test_a_stream_that_cannot_be_says_so_when_it_is_asked() -> None:
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "endingOffsets": "latest"}
    # PySpark covers what streamReader raises with an UnboundLocalError of its own
    reader = make_source_class(2)(given).streamReader(StructType())
    serializer: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    travelled = serializer.loads(serializer.dumps(reader))
    for asked in (reader.initialOffset, reader.getDefaultReadLimit, travelled.initialOffset):
        with pytest.raises(InputError, match=r"^endingOffsets: "):
            asked()
