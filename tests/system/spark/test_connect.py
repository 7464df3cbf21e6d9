"""The same run over Spark Connect, in a process of its own: a process has one kind of session."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import rota
from rota.tables import EVIDENCE
from tests.system.spark.played import LOG, Ran, everything, recorded_segments

pytest.importorskip("grpc")
pytest.importorskip("grpc_status")
pytest.importorskip("zstandard")

ANY_PORT = {"SPARK_TESTING": "1"}
"""For a server beside others: pyspark's own way to one that takes a free port."""
# pyspark starts a server on this machine for local[...] where it is asked for Connect
SCRIPT = """
    import os, sys
    from pathlib import Path
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as Connected
    from rota.pipeline import java
    from rota.pipeline.cluster import Cluster
    from rota.pipeline.evidence import Evidence, Options
    from rota.pipeline.run import run
    from rota.pipeline.session import SETTINGS

    segments, servers, log, out, work = sys.argv[1:]
    os.environ["JAVA_HOME"] = str(java.home(Path(work), java.find(), Path(work, "complaints")))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.remote("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    assert isinstance(spark, Connected), type(spark)

    class Quiet:
        def began(self, stage): pass
        def ended(self, stage, note): pass

    cluster = Cluster(settings={"bootstrap.servers": servers})
    evidence = Evidence(segments=(segments,), cluster=cluster, server_logs=(log,))
    run(evidence, out, Options(), Quiet(), spark)
    spark.stop()
"""


def test_a_connected_session_makes_the_same_tables(
    segments: Path, logged: Ran, tmp_path: Path
) -> None:
    """Half of the journal out of folders, and half of it from a broker."""
    out, served = tmp_path / "out", recorded_segments(tmp_path / "served")
    copied = tmp_path / "copied"
    for number, folder in enumerate(sorted(segments.iterdir())):
        if number % 2:
            shutil.copytree(folder, copied / folder.name)
            shutil.rmtree(served / folder.name)
    path = os.pathsep.join(filter(None, sys.path))
    with rota.Broker(served, adopt=True) as broker:
        broker.clock.freeze()
        address = broker.bootstrap_servers
        words = [str(copied), address, str(LOG), str(out), str(tmp_path / "java")]
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SCRIPT), *words],
            env=os.environ | {"PYTHONPATH": path, **ANY_PORT},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    sampled = {"bronze/ends", "gold/lag", "gold/status"}
    ours, theirs = (
        {name: rows for name, rows in everything(each).items() if name not in sampled}
        for each in (out, logged.out)
    )
    for (row,) in (ours[EVIDENCE.name], theirs[EVIDENCE.name]):
        del row["samples"]
    assert ours == theirs
