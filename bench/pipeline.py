"""From segments to gold tables on Spark, and the same work by one process without Spark.

    python -m bench.pipeline alone FOLDER
    python -m bench.pipeline growth

The first is the single process, which prints its seconds; the second prints a Markdown table for
docs/benchmarks.md: both for journals of several sizes, which tells from which size on Spark pays.

Seconds are of the clock, not of the CPU: Spark's work is done by many processes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import journal_folder
from bench.limit import LIMITS, format_seconds
from bench.measure import Measurement
from bench.run import Row, Run

RECORDS = 10_000_000
#: Seconds between looks at the workers' memory.
ASK_EVERY = 0.5
MOST_RATIO = 2.1
SIZES = (100_000, 1_000_000, 5_000_000, 10_000_000, 20_000_000)


def measure_spark_run(segments: Path, out: Path) -> tuple[float, int]:
    """Seconds, and the largest memory of a Python worker, in bytes."""
    command = [sys.executable, "-m", "rota", "run", "--segments", str(segments), "--out", str(out)]
    start = time.monotonic()
    # a file, not a pipe: nobody reads while it runs, and a pipe that is full would stop it
    with (
        tempfile.TemporaryFile() as printed,
        subprocess.Popen([*command, "--json"], stdout=printed) as running,
    ):
        peak = 0
        while running.poll() is None:
            peak = max([peak, *_worker_peaks(running.pid)])
            time.sleep(ASK_EVERY)
        seconds = time.monotonic() - start
        printed.seek(0)
        found = json.load(printed)
    assert running.returncode == 0
    assert found["generations"] == journal_folder.GROUPS * journal_folder.GENERATIONS
    return seconds, peak


def _worker_peaks(parent: int) -> Iterator[int]:
    """The most memory that each Python process below this one ever had."""
    for child in _children(parent):
        yield from _worker_peaks(child)
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
            status = Path(f"/proc/{child}/status").read_text(encoding="utf-8")
        except OSError:  # it is gone
            continue
        if b"pyspark.daemon" in command:
            line = next((line for line in status.splitlines() if line.startswith("VmHWM")), "0 0")
            yield int(line.split()[1]) * 1024


def _children(parent: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{parent}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def measure_without_spark(segments: Path) -> float:
    """Seconds of one process that does the same without Spark, and keeps nothing."""
    from bench import journal_alone  # noqa: PLC0415

    start = time.monotonic()
    groups, rebalances = journal_alone.analyze_journal(segments)
    assert groups == journal_folder.GROUPS
    assert rebalances == journal_folder.GROUPS * journal_folder.GENERATIONS
    return time.monotonic() - start


def run(bench: Run) -> Iterator[Row]:
    """Once each: they are long enough to be sure of."""
    took = []
    for records, limit in ((RECORDS // 2, "pipeline-half"), (RECORDS, "pipeline")):
        segments, out = bench.folder / f"journal-{records}", bench.folder / f"tables-{records}"
        bench.print_progress(f"   writing {records:,} records")
        written = journal_folder.write_journal(segments, records)
        bench.print_progress(f"   {written:,} records on Spark")
        seconds, peak = measure_spark_run(segments, out)
        took.append(seconds)
        work = f"segments to gold: {written:,} records, 1,000 groups, 20,000 generations"
        yield Row(
            work=work, ours=Measurement(seconds=seconds, peak=peak), theirs={}, limit=LIMITS[limit]
        )

    ratio = took[1] / took[0]
    bench.notes.append(f"Q: twice the records take {ratio:.2f} times as long (limit {MOST_RATIO})")


def print_growth() -> None:
    """The table of sizes."""
    print("| records | on Spark | a Python worker's peak | one process |\n|---|---|---|---|")
    for records in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            segments = Path(folder, "journal")
            written = journal_folder.write_journal(segments, records)
            seconds, peak = measure_spark_run(segments, Path(folder, "tables"))
            one = subprocess.run(
                [sys.executable, "-m", "bench.pipeline", "alone", str(segments)],
                capture_output=True,
                text=True,
                check=True,
            )
            took = format_seconds(float(one.stdout))
            print(
                f"| {written:,} | {format_seconds(seconds)} | {peak >> 20} MiB | {took} |",
                flush=True,
            )


def main() -> None:
    """See above."""
    match sys.argv[1:]:
        case ["alone", folder]:
            print(measure_without_spark(Path(folder)))
        case ["growth"]:
            print_growth()
        case _:
            sys.exit("python -m bench.pipeline alone FOLDER | growth")


if __name__ == "__main__":
    main()
