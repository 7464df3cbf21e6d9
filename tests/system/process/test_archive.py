"""Rota out of an archive: Spark brings packages to other machines so."""

from __future__ import annotations

import shutil
from pathlib import Path

import rota
from tests.support.process import run_python

SCRIPT = """
import rota
from rota.client.cluster import ClusterClient
from rota.protocol import schemas
from rota.spark.task import read_ranges
assert "rota.zip" in rota.__file__, rota.__file__
load = schemas.load_schema
print(load("ConsumerGroupDescribeRequest").api_key, load("FetchRequest").api_key)
"""


def test_what_executors_need_is_found_in_an_archive(tmp_path: Path) -> None:
    here = Path(rota.__file__).parent
    archive = shutil.make_archive(str(tmp_path / "rota"), "zip", here.parent, here.name)
    done = run_python(SCRIPT, env={"PYTHONPATH": archive})
    assert (done.code, done.out) == (0, "69 1\n"), done.err
