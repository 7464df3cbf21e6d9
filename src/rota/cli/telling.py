"""The last thing that a run does, and all of ``rota report``: the page, and the story in short."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from rich.console import Console

from rota.cli import summary
from rota.cli.screen import plain
from rota.report import gold, output, page
from rota.report.gold import Gold
from rota.report.story import Story, tell

PAGE, SELECTED = "report.html", "report-selected.html"
"""The page's name, in the folder of the tables; of some groups only."""


def end(out: str, *, as_json: bool, indent: int | None = 2) -> None:
    """Writes the page of a folder's tables into it, and prints the same story."""
    read = gold.read(out)
    show(tell(read), read, Path(out, PAGE), as_json=as_json, indent=indent)


def show(story: Story, read: Gold, path: Path, *, as_json: bool, indent: int | None = 2) -> None:
    """Writes the page to a file, and prints the same story; to stderr, where the page itself goes
    to stdout.

    :param indent: of the JSON; None: all of it is one line
    """
    with Console(stderr=True).status(plain(f"writing {path} ...")):  # only on a terminal
        page.write(story, read, path)
    with redirect_stdout(sys.stderr) if output.is_stdout(path) else nullcontext():
        if as_json:
            told = json.dumps(summary.as_json(story, path), indent=indent)
            sys.stdout.write(f"{told}\n")
        else:
            summary.print_summary(story, path)
        sys.stdout.flush()
