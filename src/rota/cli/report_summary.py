"""Writes the report page of a folder of tables, and prints its story as a summary or as JSON.

``rota report`` does this, and ``rota run`` does it at its end.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from rota.cli import render
from rota.engine.history.actions import POLICY_PATTERNS
from rota.engine.history.advice import CHANGE, FIX_FIRST, KEEP
from rota.engine.model.duration import format_rounded_duration
from rota.engine.model.text import count_noun
from rota.pipeline.tables import ADVICE, HEALTH
from rota.report import evidence_text
from rota.report.lag_intervals import WorstLag
from rota.report.page import document
from rota.report.page.document import DEMO_BANNER_TEXT, NO_REBALANCES
from rota.report.story import (
    EvidenceMark,
    GoldTables,
    GroupStory,
    Story,
    build_story,
    format_seconds,
    read_gold_tables,
)

#: File names of the page with all groups, and of a page with some groups.
PAGE_NAME, SELECTED_PAGE_NAME = "report.html", "report-selected.html"


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


SHOWN_GROUPS = 8
SHOWN_EXAMPLES = 3
#: Longest name of a group in a sentence, in columns.
MAX_NAME_WIDTH = 40
MIN_NAME_WIDTH = 12
COLUMN_GAP = "  "
#: Group and health.
TEXT_COLUMNS = (1, 2)
BOLD = partial(Text, style="bold")

DOWNTIME_LEGEND = (
    "downtime: time in which no member consumed a partition, added up over all partitions, so it "
    "may be longer than the time window; delayed: records that arrived in it"
)

LAG_LEGEND = "lag (sampled): largest age of the first uncommitted record, also between commits"

EVIDENCE_LEGEND = (
    "Downtime is stated by the broker's log, inferred from the journal, or bounded; gold/downtime "
    "says which.",
    "Savings come from a replay of the same history under the other policy.",
)


def print_summary(story: Story, page: Path) -> None:
    """Prints the recommendation, the groups and the input."""
    console = render.make_console()
    for line in _summary_lines(story, page):
        console.print(line, soft_wrap=True)


def _summary_lines(story: Story, page: Path) -> Iterator[Text]:
    if story.evidence.demo:
        yield from map(BOLD, [DEMO_BANNER_TEXT, ""])
    yield from _worst_group_lines(story.groups)
    if story.groups:
        yield from _group_table_lines(story.groups)
        yield from map(Text, _legend_lines(story.groups))
    for line in evidence_text.evidence_lines(story):
        yield from map(Text, render.wrap_text(line, rest="  "))
    yield from map(Text, _unread_lines(story))
    yield Text()
    out = Path(story.out)
    yield render.printable_text(f"tables: {out}/{{bronze,silver,gold}}")
    opens = f" (to open it: rota report {shlex.quote(str(out))} --open)"
    yield render.printable_text(f"report: {page}{opens if page == out / PAGE_NAME else ''}")


def _worst_group_lines(groups: Sequence[GroupStory]) -> Iterator[Text]:
    if not groups:
        yield from map(Text, [NO_REBALANCES, ""])
        return
    worst = groups[0]
    rest = worst.first_line.removeprefix(worst.name)
    name = render.shorten_name(worst.name, MAX_NAME_WIDTH) if rest != worst.first_line else ""
    yield from map(BOLD, render.wrap_text(name + rest))
    steps = [step.text for action in worst.actions for step in action.steps]
    for number, step in enumerate(steps, 1):
        first = f"  {number}. "
        yield from map(Text, render.wrap_text(step, first, " " * len(first), has_settings=True))
    yield Text()


def _format_delayed(group: GroupStory) -> str:
    if group.delayed_records is None:
        return "0" if group.downtime_ms == 0 else "unknown"
    return f"{group.delayed_records:,}"


def _group_table_lines(groups: Sequence[GroupStory]) -> Iterator[Text]:
    shown = groups[:SHOWN_GROUPS]
    titles = ["#", "group", "health", "rebalances", "downtime", "delayed"]
    rows = [
        [
            *(str(rank), group.name, group.health.health, f"{group.rebalances:,}"),
            _format_downtime(group.downtime_ms),
            _format_delayed(group),
        ]
        for rank, group in enumerate(shown, 1)
    ]
    if any(group.lag for group in shown):
        titles.append("lag")
        rows = [[*row, _format_lag(group.lag)] for row, group in zip(rows, shown, strict=True)]
    layout = _ColumnLayout([titles, *rows])
    yield from map(BOLD, [layout.format_row(titles), f"{layout.indent}cause and advice"])
    for row, group in zip(rows, shown, strict=True):
        yield Text(layout.format_row(row))
        for line in filter(None, (group.cause_text, _format_advice(group))):
            yield from map(Text, render.wrap_text(line, layout.indent, f"{layout.indent}  "))
    if len(groups) > len(shown):
        more = count_noun(len(groups) - len(shown), "more group")
        yield Text(f"{more} in the report and in --json")


class _ColumnLayout:
    """Makes columns as wide as their cells, and gives the rest of the line to the names."""

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self._widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        others = sum(self._widths) - self._widths[1] + len(COLUMN_GAP) * (len(self._widths) - 1)
        self._widths[1] = min(self._widths[1], max(render.TEXT_WIDTH - others, MIN_NAME_WIDTH))
        #: Indent of the second line of a group.
        self.indent = " " * self._widths[0] + COLUMN_GAP

    def format_row(self, row: Sequence[str]) -> str:
        cells = [
            render.pad_cell(
                render.shorten_name(cell, width), width, right=column not in TEXT_COLUMNS
            )
            for column, (cell, width) in enumerate(zip(row, self._widths, strict=True))
        ]
        return COLUMN_GAP.join(cells).rstrip()


def _legend_lines(groups: Sequence[GroupStory]) -> Iterator[str]:
    shown = groups[:SHOWN_GROUPS]
    lines = [DOWNTIME_LEGEND]
    if any(group.lag for group in shown):
        lines.append(LAG_LEGEND)
    yield ""
    for line in (*lines, *EVIDENCE_LEGEND):
        yield from render.wrap_text(line, rest="  ")
    yield ""


def _format_downtime(milliseconds: int | None) -> str:
    return "unknown" if milliseconds is None else format_rounded_duration(milliseconds)


def _format_lag(lag: WorstLag | None) -> str:
    if lag is None:
        return "unknown"
    if lag.most_seconds is None:
        return count_noun(lag.most, "record")
    return f"{'>= ' if lag.at_least else ''}{format_seconds(lag.most_seconds)}"


def _format_advice(group: GroupStory) -> str:
    notes = [group.verdict]
    repair = any(one.fix and one.pattern not in POLICY_PATTERNS for one in group.patterns)
    if group.verdict == CHANGE:
        used = group.policies_used[-1]
        change = f"use {group.policy} instead of {used}"
        if used.startswith(f"{group.policy}, "):  # the same strategy without static ids
            session = used.removeprefix(f"{group.policy}, ")
            change = f"keep {group.policy}, with dynamic membership instead of {session}"
        first = "fix the cause first; then " if repair else ""
        notes = [f"{first}{change}{_format_saving(group)}"]
    elif group.verdict == FIX_FIRST:
        if group.rebalances:
            notes = [f"{FIX_FIRST}, then keep {group.policies_used[-1]}"]
    elif group.verdict == KEEP:
        first = "fix the cause; " if repair else ""
        notes = [f"{first}keep {group.policies_used[-1]}"]
    if group.mark is EvidenceMark.SAMPLED:
        notes.append("sampled")
    return "; ".join(notes)


def _format_saving(group: GroupStory) -> str:
    if group.downtime_current_ms is None or group.downtime_after_ms is None:
        return ""
    saved = format_rounded_duration(max(group.downtime_current_ms - group.downtime_after_ms, 0))
    uncertain = format_rounded_duration(group.uncertainty_ms or 0)
    return f": saves {saved} of downtime (uncertain by {uncertain})"


def _unread_lines(story: Story) -> Iterator[str]:
    for kind, number, examples in story.evidence.unread:
        line = f"not read: {number:,} {kind} {evidence_text.format_marks([EvidenceMark.STATED])}"
        yield from render.wrap_text(line, rest="  ")
        for example in examples[:SHOWN_EXAMPLES]:
            yield from render.wrap_text(example, "          ", "            ")


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
        "groups": [_group_json(group) for group in story.groups],
        "causes": _rows_json(("cause", "evidence", "rebalances"), story.causes),
        "complete_from": _rows_json(("group", "at", "whole"), evidence.windows),
        "commits_complete_from": _rows_json(
            ("journal_partition", "offset", "at"), evidence.complete
        ),
        "not_read": _rows_json(("what", "count", "examples"), evidence.unread),
    }


def _group_json(group: GroupStory) -> dict[str, Any]:
    columns = [column.name for column in ADVICE.columns if column.name not in {"group", "patterns"}]
    columns_of_health = [column.name for column in HEALTH.columns if column.name != "group"]
    health = render.select_attributes(group.health, *columns_of_health)
    return {
        "group": group.name,
        "health": {"now": health.pop("health"), **health},
        **render.select_attributes(group, *columns, "first_line", "mark", "marks"),
        "patterns": [asdict(pattern) for pattern in group.patterns],
        "causes": _rows_json(("cause", "evidence", "rebalances"), group.causes),
        "lag": None if group.lag is None else asdict(group.lag),
        "status": group.status,
    }


def _rows_json(keys: Sequence[str], rows: Iterable[Sequence[object]]) -> list[dict[str, object]]:
    return [dict(zip(keys, row, strict=True)) for row in rows]
