"""Writes the report page of a folder of tables, and prints its story as a summary or as JSON.

``rota report`` does this, and ``rota run`` does it at its end.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from rota.cli import render
from rota.cli.report import PAGE_NAME
from rota.engine.history.facts import GroupHealth
from rota.engine.model.duration import format_rounded_duration
from rota.engine.model.text import count_noun
from rota.report import evidence_text
from rota.report.page import document
from rota.report.story import (
    PROBLEMS,
    EvidenceMark,
    EvidenceSummary,
    GoldTables,
    GroupStory,
    Story,
    build_story,
    read_gold_tables,
    shorten_times,
)


def write_and_print_report(out: str, *, as_json: bool, indent: int | None = 2) -> None:
    path = Path(out, PAGE_NAME)
    with render.report_progress() as show_step:
        tables, story = read_story(out, (), show_step)
        save_page(story, tables, path, show_step)
    print_story(story, path, as_json=as_json, indent=indent)


def read_story(
    out: str, selected: Sequence[str], show_step: render.ProgressCallback
) -> tuple[GoldTables, Story]:
    """Reads a folder's tables, and builds the story of the wanted groups."""
    show_step(f"reading the tables of {out}")
    tables = read_gold_tables(out)
    show_step("summarizing the tables")
    return tables, build_story(tables, selected)


def save_page(
    story: Story, tables: GoldTables, path: Path, show_step: render.ProgressCallback
) -> None:
    show_step(f"writing {path}: {count_noun(len(story.groups), 'group')}")
    document.write_page(story, tables, path)


def print_story(story: Story, path: Path, *, as_json: bool, indent: int | None = 2) -> None:
    """Prints the story; on stderr, if the page itself went to stdout."""
    with redirect_stdout(sys.stderr) if document.is_stdout(path) else nullcontext():
        if as_json:
            print(json.dumps(story_json(story, path), indent=indent))  # noqa: T201
        else:
            print_summary(story, path)
        sys.stdout.flush()


MAX_LINES = 25  # a terminal of 80 columns and 25 lines shows the whole summary
SHOWN_GROUPS = 3
TEXT_LINES = (4, 3, 2)  # longest texts, in lines: of a group if there is room, and always
MAX_NAME_WIDTH = 40  # longest name of a group in its title, in columns
BOLD = partial(Text, style="bold")


def print_summary(story: Story, page: Path) -> None:
    """Prints the health, the worst groups with what to do, and where the page is."""
    console = render.make_console()
    for line in summary_lines(story, page):
        console.print(line, soft_wrap=True)


def summary_lines(story: Story, page: Path) -> list[Text]:
    """Returns at most MAX_LINES lines, with texts as long as they fit."""
    overview = [BOLD(render.clip_text(line, lines=1)[0]) for line in _overview_lines(story)]
    end = list(map(render.printable_text, _end_lines(story, page)))
    lines: list[Text] = []
    for limit in TEXT_LINES:
        lines = list(overview)
        for rank, group in enumerate(story.groups[:SHOWN_GROUPS], 1):
            lines += [Text(), *_group_lines(rank, group, limit, story.evidence)]
        lines += [Text(), *end]
        if len(lines) <= MAX_LINES:
            break
    return lines[:MAX_LINES]


def _overview_lines(story: Story) -> Iterator[str]:
    """Returns at most three lines: the demo, the health of all groups, and their cost."""
    evidence, groups = story.evidence, story.groups
    if evidence.demo:
        yield evidence_text.DEMO_TEXT
    if not groups:
        yield evidence_text.NO_REBALANCES
        return
    totals, counts = story.totals, Counter(group.health.health for group in groups)
    order = (*reversed(PROBLEMS), GroupHealth.UNKNOWN, GroupHealth.OK)
    listed = ", ".join(f"{counts[health]:,} {health}" for health in order if counts[health])
    of = f" of {story.total_groups:,}" if len(groups) < story.total_groups else ""
    yield f"{len(groups):,}{of} group{'' if story.total_groups == 1 else 's'}: {listed}"
    cost = f"{format_rounded_duration(totals.downtime_ms)} of downtime"
    if totals.saving_ms:
        cost += f"; recommended changes save {format_rounded_duration(totals.saving_ms)}"
    yield f"{count_noun(totals.rebalances, 'rebalance')}, {cost}"


def _group_lines(
    rank: int, group: GroupStory, limit: int, evidence: EvidenceSummary
) -> Iterator[Text]:
    """Returns a title, what happened, and what to do."""
    name = render.shorten_name(group.name, MAX_NAME_WIDTH)
    downtime = "unknown"
    if group.downtime_ms is not None:
        downtime = format_rounded_duration(group.downtime_ms) if group.downtime_ms else "no"
    title = f"{rank}. {name}: {group.health.health}, {downtime} downtime"
    yield BOLD(render.clip_text(title, lines=1)[0])
    for first, text in (("   ", group.happened), ("   To do: ", group.to_do)):
        if text:
            short = shorten_times(text, evidence)
            yield from map(Text, render.clip_text(short, first, "   ", lines=limit))


def _end_lines(story: Story, page: Path) -> Iterator[str]:
    """Returns at most four lines: the input, where the page is, and what to type for more."""
    about_input = evidence_text.input_text(story.evidence)
    yield from render.clip_text(about_input, "input: ", "  ", lines=TEXT_LINES[-1])
    yield f"report: {page}"
    if not story.groups:
        return
    folder = shlex.quote(story.out)
    opens = f"; to open the report: rota report {folder} --open"
    hint = f"one group: rota why GROUP {folder}"
    is_default = page == Path(story.out, PAGE_NAME)
    if is_default and cell_len(hint + opens) <= render.TEXT_WIDTH:
        hint += opens
    yield hint


def story_json(story: Story, page: Path) -> dict[str, Any]:
    """Returns the content of the summary for all groups as JSON values."""
    evidence = story.evidence
    cluster = None if evidence.cluster is None else evidence.cluster | {"lookups": evidence.lookups}
    return {
        "out": str(Path(story.out).absolute()),
        "page": str(page.absolute()),
        "demo": evidence.demo,
        "cluster": cluster,
        "window": {"first": evidence.first, "last": evidence.last},
        "shown": {"since": evidence.since, "until": evidence.until},
        **render.select_attributes(evidence, "records", "commits", "generations", "rebalances"),
        **render.select_attributes(evidence, "lines", "samples"),
        "marks": story.marks | {"not_read": (EvidenceMark.STATED,)},
        "polled": evidence.polled,
        "groups": [group.to_json() for group in story.groups],
        "causes": _rows_json(("cause", "evidence", "rebalances"), story.causes),
        "complete_from": _rows_json(("group", "at", "whole"), evidence.windows),
        "commits_complete_from": _rows_json(
            ("journal_partition", "offset", "at"), evidence.complete
        ),
        "not_read": _rows_json(("what", "count", "examples"), evidence.unread),
    }


def _rows_json(keys: Sequence[str], rows: Iterable[Sequence[object]]) -> list[dict[str, object]]:
    return [dict(zip(keys, row, strict=True)) for row in rows]
