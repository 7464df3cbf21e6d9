"""``python -m bench``: every benchmark beside its peers."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from bench import report
from bench.run import SLOW_PEER, Row, Run

BENCHMARKS: Mapping[str, str] = MappingProxyType(
    {
        "A": "equal",
        "B": "one_differs",
        "C": "leader",
        "D": "newcomer",
        "E": "scattered",
        "F": "one_topic_each",
        "G": "different",
        "H": "dealt",
        "I": "small",
        "J": "kafka_solver",
        "K": "import_time",
        "L": "coordinator",
        "M": "journal",
        "N": "day",
        "O": "decode",
        "P": "whatif",
        "Q": "pipeline",
        "R": "broker_start",
        "S": "broker_data",
        "T": "broker_group",
        "U": "broker_connections",
        "V": "broker_restart",
        "W": "consumer",
        "X": "spark_source",
        "Y": "follow",
        "Z": "page",
    }
)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    listed = "\n".join(f"  {letter}  {name}" for letter, name in BENCHMARKS.items())
    made = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"Strategies beside peers, and the group engine; CPU seconds.\n\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--only", metavar="A,D", help="only these benchmarks")
    made.add_argument(
        "--slow-peers",
        action="store_true",
        help=f"let peers finish that take more than {SLOW_PEER:g} CPU seconds (some take minutes)",
    )
    made.add_argument("--markdown", action="store_true", help="the section of docs/benchmarks.md")
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    return made


def parse_letters(only: str | None) -> list[str]:
    """The letters asked for; all of them unless said."""
    letters = list(BENCHMARKS) if only is None else only.upper().split(",")
    unknown = [letter for letter in letters if letter not in BENCHMARKS]
    if unknown:
        raise SystemExit(f"no benchmark {', '.join(unknown)}: there are {', '.join(BENCHMARKS)}")
    return letters


def run_benchmarks(run: Run, letters: Sequence[str]) -> list[Row]:
    """Runs the benchmarks one after the other."""
    found: list[Row] = []
    for letter in letters:
        start = time.monotonic()
        run.print_progress(f"{letter}  {BENCHMARKS[letter]}")
        try:
            module = importlib.import_module(f"bench.{BENCHMARKS[letter]}")
        except ModuleNotFoundError as error:
            run.notes.append(f"{letter} ({BENCHMARKS[letter]}) did not run: {error}")
            run.print_progress(f"!! {letter} is LEFT OUT: {error}")
            continue
        for row in module.run(run):
            run.print_progress(f"   = {report.row_line(row)}")
            found.append(row)
        run.print_progress(f"   {time.monotonic() - start:.0f} s")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if a limit is not met."""
    asked = build_parser().parse_args(arguments)
    letters = parse_letters(asked.only)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), slow_peers=asked.slow_peers)
        rows = run_benchmarks(run, letters)
    if asked.markdown:
        options = [f"--only {asked.only}"] if asked.only else []
        options += ["--slow-peers"] if asked.slow_peers else []
        print(report.format_markdown(rows, run, " ".join(["python -m bench", *options])))
    else:
        print(report.format_table(rows))
        print(*run.notes, sep="\n")
    if asked.json is not None:
        asked.json.write_text(json.dumps(report.as_json(rows, run), indent=1) + "\n")
    return int(any(row.met is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
