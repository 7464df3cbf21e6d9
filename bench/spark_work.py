"""Runs queries in one Spark session, in turns: for ``bench.spark_source``, in an environment that
has the PySpark for which there is a Kafka source of Spark's own.

Takes a JSON document as its argument, and prints one.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from rota.spark import register

TICK = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Warms every variant up, then lets them take turns."""
    asked = json.loads(sys.argv[1])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in asked["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    run = {"batch": read_batch, "stream": read_stream}[asked["work"]]
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in asked["variants"]}
    for number in range(asked["warm"] + asked["rounds"]):
        for name, variant in asked["variants"].items():
            found = measure_work(partial(run, spark, asked, variant))
            if number >= asked["warm"]:
                taken[name].append(found)
    print(json.dumps({"taken": taken, "peak": peak_worker_memory()}), flush=True)
    os._exit(0)  # Spark takes seconds to stop


def read_batch(spark: SparkSession, asked: Mapping[str, Any], variant: Mapping[str, Any]) -> int:
    """Reads a topic into nothing; how many rows are known is checked apart."""
    load_rows(spark.read, asked, variant).write.format("noop").mode("overwrite").save()
    return int(asked["rows"])


def read_stream(spark: SparkSession, asked: Mapping[str, Any], variant: Mapping[str, Any]) -> int:
    """Reads a topic in triggers until it is at its end."""
    rows = load_rows(spark.readStream, asked, variant)
    folder = tempfile.mkdtemp()
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", folder)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    shutil.rmtree(folder)
    return sum(each["numInputRows"] for each in query.recentProgress)


def load_rows(reader: Any, asked: Mapping[str, Any], variant: Mapping[str, Any]) -> DataFrame:  # noqa: ANN401
    """The rows of a variant."""
    options = {**asked["options"], **variant["options"]}
    frame: DataFrame = reader.format(variant["format"]).options(**options).load()
    return frame


def measure_work(work: Callable[[], int]) -> dict[str, float]:
    """Wall and CPU seconds of this process, Java and Spark's workers."""
    begun, used = time.monotonic(), cpu_seconds()
    rows = work()
    return {"wall": time.monotonic() - begun, "cpu": cpu_seconds() - used, "rows": rows}


def process_tree() -> list[tuple[Path, list[str]]]:
    """This process and all below it, with what the system says of them."""
    parents: dict[int, list[int]] = {}
    stats: dict[int, tuple[Path, list[str]]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it is gone
        stats[int(folder.name)] = folder, fields
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, left = [], [os.getpid()]
    while left:
        each = left.pop()
        found.append(stats[each])
        left += parents.get(each, [])
    return found


def cpu_seconds() -> float:
    """Seconds, with those of processes that have ended."""
    return sum(sum(map(int, fields[11:15])) for _, fields in process_tree()) / TICK


def peak_worker_memory() -> int:
    """The most memory that a Python worker has had, in bytes."""
    found = [0]
    for folder, _ in process_tree():
        try:
            if "pyspark.daemon" in (folder / "cmdline").read_text():
                status = (folder / "status").read_text()
                found.append(int(status.partition("VmHWM:")[2].split()[0]) * 1024)
        except OSError:
            continue  # it is gone
    return max(found)


if __name__ == "__main__":
    main()
