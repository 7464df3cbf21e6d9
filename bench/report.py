"""Results as a table for people, as Markdown, and as JSON."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.missing_tool import Unavailable

from bench.limit import MIB, format_seconds
from bench.measure import Measurement
from bench.peer import PEERS, go_command
from bench.run import Row, Run

HEADS = (
    *("work", "Rota", "peak", "loads, moved"),
    *PEERS,
    *("ratio to the fastest", "must reach", "met"),
)
MET = {True: "yes", False: "NO", None: "?"}


def _time(taken: Measurement | None, like: Measurement | None = None) -> str:
    """Seconds; a peer's loads too, where they are not like ours."""
    if taken is None or taken.seconds is None:
        return "" if taken is None else taken.trouble or ""
    text = ("> " if taken.over else "") + format_seconds(taken.seconds)
    if like is not None and None not in {taken.loads, like.loads} and taken.loads != like.loads:
        text += f" (loads {_span(taken)})"
    return text if taken.trouble is None else f"{text} ({taken.trouble})"


def _span(taken: Measurement) -> str:
    return "" if taken.loads is None else "-".join(map(str, dict.fromkeys(taken.loads)))


def _ratio(row: Row) -> str:
    if row.ours.seconds is None or row.fastest is None:
        return ""
    seconds, bound = row.fastest
    return ("< " if bound else "") + f"{row.ours.seconds / seconds:.2g}"


def row_cells(row: Row) -> tuple[str, ...]:
    """A row as text."""
    peak = "" if row.ours.peak is None else f"{row.ours.peak / MIB:.3g} MiB"
    moved = "" if row.ours.moved is None else f", {row.ours.moved}"
    return (
        *(row.work, _time(row.ours), peak, _span(row.ours) + moved),
        *(_time(row.theirs.get(name), row.ours) for name in PEERS),
        *(_ratio(row), str(row.limit), MET[row.met]),
    )


def row_line(row: Row) -> str:
    """A row in words, for those who wait."""
    peers = "".join(f", {name} {_time(taken, row.ours)}" for name, taken in row.theirs.items())
    return f"{row.work}: Rota {_time(row.ours)}{peers}; met: {MET[row.met]}"


def format_table(rows: Sequence[Row], *, markdown: bool = False) -> str:
    """All rows, their columns aligned; in Markdown, as a table of it."""
    lines = [HEADS, *map(row_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    bar = " | " if markdown else "  "
    padded = [
        bar.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    padded.insert(1, bar.join("-" * width for width in widths))
    return "\n".join(f"| {line} |" if markdown else line.rstrip() for line in padded)


def _command_output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return "not there"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).splitlines()[0]


def _processor() -> str:
    listed = Path("/proc/cpuinfo")
    text = listed.read_text() if listed.exists() else ""
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def versions(run: Run) -> dict[str, str]:
    """What was measured, on what."""
    found = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "processor": f"{_processor()}, {platform.system()}",
        "Rota": importlib.metadata.version("rota"),
        "Python": platform.python_version(),
        "numpy": importlib.metadata.version("numpy"),
        "Java": _command_output("java", "-version"),
    }
    try:
        found["Go"] = _command_output(go_command(), "version")
    except Unavailable as error:
        found["Go"] = str(error)
    for name in PEERS:
        peer = run.peer(name)
        found[f"peer {name}"] = peer.version if peer else f"left out: {run.missing[name]}"
    return found


def format_markdown(rows: Sequence[Row], run: Run, command: str) -> str:
    """The section of docs/benchmarks.md."""
    facts = "\n".join(f"- {name}: {value}" for name, value in versions(run).items())
    notes = "\n".join(f"- {note}" for note in run.notes)
    parts = [f"`{command}`", facts, format_table(rows, markdown=True), notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_json(rows: Sequence[Row], run: Run) -> Mapping[str, object]:
    """Everything that was measured."""
    return {
        "versions": versions(run),
        "notes": run.notes,
        "rows": [dataclasses.asdict(row) | {"met": row.met} for row in rows],
    }
