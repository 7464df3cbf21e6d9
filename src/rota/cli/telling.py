"""The last thing that a run does, and all of ``rota report``: the page, and the story in short."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path

from rota.cli import summary
from rota.cli.progress import Begin, progress
from rota.cli.screen import count
from rota.report import gold, output, page
from rota.report.gold import Gold
from rota.report.story import Story, tell

PAGE, SELECTED = "report.html", "report-selected.html"
"""The page's name, in the folder of the tables; of some groups only."""


def end(out: str, *, as_json: bool, indent: int | None = 2) -> None:
    """Writes the page of a folder's tables into it, and prints the same story."""
    path = Path(out, PAGE)
    with progress() as begin:
        read, story = told(out, (), begin)
        write(story, read, path, begin)
    show(story, path, as_json=as_json, indent=indent)


def told(out: str, wanted: Sequence[str], begin: Begin) -> tuple[Gold, Story]:
    """A folder's tables, and the story that they tell of the groups that are wanted.

    :param begin: is told what begins
    """
    begin(f"reading the tables of {out}")
    read = gold.read(out)
    begin("finding what they tell")
    return read, tell(read, wanted)


def write(story: Story, read: Gold, path: Path, begin: Begin) -> None:
    """Writes the page to a file."""
    begin(f"writing {path}: {count(len(story.groups), 'group')}")
    page.write(story, read, path)


def show(story: Story, path: Path, *, as_json: bool, indent: int | None = 2) -> None:
    """Prints the story of a page that is written; to stderr, where the page itself went to stdout.

    :param indent: of the JSON; None: all of it is one line
    """
    with redirect_stdout(sys.stderr) if output.is_stdout(path) else nullcontext():
        if as_json:
            text = json.dumps(summary.as_json(story, path), indent=indent)
            sys.stdout.write(f"{text}\n")
        else:
            summary.print_summary(story, path)
        sys.stdout.flush()
