"""Writes the report page of a folder of tables, and prints its story as a summary or as JSON.

``rota report`` does this, and ``rota run`` does it at its end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from rota.cli.render import (
    TEXT_WIDTH,
    ProgressCallback,
    make_console,
    pad_cell,
    printable_text,
    report_progress,
    select_attributes,
    shorten_name,
    wrap_text,
)
from rota.engine.history.advice import CHANGE, KEEP
from rota.engine.model.text import count_noun
from rota.pipeline.tables import ADVICE
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
    with report_progress() as show_step:
        tables, story = read_story(out, (), show_step)
        save_page(story, tables, path, show_step)
    print_story(story, path, as_json=as_json, indent=indent)


def read_story(
    out: str, selected: Sequence[str], show_step: ProgressCallback
) -> tuple[GoldTables, Story]:
    """Reads a folder's tables, and builds the story of the wanted groups."""
    show_step(f"reading the tables of {out}")
    tables = read_gold_tables(out)
    show_step("summarizing the tables")
    return tables, build_story(tables, selected)


def save_page(story: Story, tables: GoldTables, path: Path, show_step: ProgressCallback) -> None:
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
#: Burrow's verdicts that the summary does not mention.
UNREMARKABLE_STATUSES = (None, "OK")
#: Longest name of a group in a sentence, in columns.
MAX_NAME_WIDTH = 40
MIN_NAME_WIDTH = 12
COLUMN_GAP = "  "
BOLD = partial(Text, style="bold")

COUNTS_LEGEND = (
    "stopped: partitions revoked from members that stayed in the group; moved: partitions that "
    "changed their owner although it stayed; needed: fewest moves to the best balance"
)

LAG_LEGEND = "lag (sampled): largest age of the first uncommitted record, also between commits"
STATUS_LEGEND = "WARN and ERR: Burrow's verdict on the lag at the end of the evidence"

EVIDENCE_LEGEND = (
    "Counts are inferred from the journal unless marked sampled.",
    "Savings come from a replay of the same history under the other policy.",
)


def print_summary(story: Story, page: Path) -> None:
    """Prints the recommendation, the groups and the input."""
    console = make_console()
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
        yield from map(Text, wrap_text(line, rest="  "))
    yield from map(Text, _unread_lines(story))
    yield Text()
    yield printable_text(f"report: {page}")
    yield printable_text(f"tables: {Path(story.out)}/{{bronze,silver,gold}}")


def _worst_group_lines(groups: Sequence[GroupStory]) -> Iterator[Text]:
    if not groups:
        yield from map(Text, [NO_REBALANCES, ""])
        return
    worst = groups[0]
    rest = worst.first_line.removeprefix(worst.name)
    name = shorten_name(worst.name, MAX_NAME_WIDTH) if rest != worst.first_line else ""
    yield from map(BOLD, wrap_text(name + rest))
    for number, step in enumerate(worst.steps, 1):
        first = f"  {number}. "
        yield from map(Text, wrap_text(step, first, " " * len(first), has_settings=True))
    yield Text()


def _group_table_lines(groups: Sequence[GroupStory]) -> Iterator[Text]:
    """Yields two lines for each group: its numbers and the recommendation."""
    shown = groups[:SHOWN_GROUPS]
    titles = ["#", "group", "rebalances", "stopped", "moved", "needed"]
    rows = [
        [str(rank), group.name, f"{group.rebalances:,}"]
        + [_format_number(value) for value in (group.stopped, group.moved, group.moves_needed)]
        for rank, group in enumerate(shown, 1)
    ]
    if any(group.lag for group in shown):
        titles.append("lag")
        rows = [[*row, _format_lag(group.lag)] for row, group in zip(rows, shown, strict=True)]
    layout = _ColumnLayout([titles, *rows])
    yield from map(BOLD, [layout.format_row(titles), f"{layout.indent}verdict"])
    for row, group in zip(rows, shown, strict=True):
        yield Text(layout.format_row(row))
        yield from map(Text, wrap_text(_format_verdict(group), layout.indent, f"{layout.indent}  "))
    if len(groups) > len(shown):
        more = count_noun(len(groups) - len(shown), "more group")
        yield Text(f"{more} in the report and in --json")


class _ColumnLayout:
    """Makes columns as wide as their cells, and gives the rest of the line to the names."""

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self._widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        others = sum(self._widths) - self._widths[1] + len(COLUMN_GAP) * (len(self._widths) - 1)
        self._widths[1] = min(self._widths[1], max(TEXT_WIDTH - others, MIN_NAME_WIDTH))
        #: Indent of the second line of a group.
        self.indent = " " * self._widths[0] + COLUMN_GAP

    def format_row(self, row: Sequence[str]) -> str:
        cells = [
            pad_cell(shorten_name(cell, width), width, right=column != 1)
            for column, (cell, width) in enumerate(zip(row, self._widths, strict=True))
        ]
        return COLUMN_GAP.join(cells).rstrip()


def _legend_lines(groups: Sequence[GroupStory]) -> Iterator[str]:
    shown = groups[:SHOWN_GROUPS]
    lines = [COUNTS_LEGEND]
    if any(group.lag for group in shown):
        lines.append(LAG_LEGEND)
    if any(group.status not in UNREMARKABLE_STATUSES for group in shown):
        lines.append(STATUS_LEGEND)
    yield ""
    for line in (*lines, *EVIDENCE_LEGEND):
        yield from wrap_text(line, rest="  ")
    yield ""


def _format_number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _format_lag(lag: WorstLag | None) -> str:
    if lag is None:
        return "unknown"
    if lag.most_seconds is None:
        return count_noun(lag.most, "record")
    return f"{'>= ' if lag.at_least else ''}{format_seconds(lag.most_seconds)}"


def _format_verdict(group: GroupStory) -> str:
    notes = [group.verdict]
    if group.verdict == CHANGE:
        notes = [f"change {group.policies_text} to {group.policy}{_format_saving(group)}"]
    elif group.verdict == KEEP:
        notes = [f"keep {group.policies_used[-1]}"]
    if group.mark is EvidenceMark.SAMPLED:
        notes.append("sampled")
    if group.status not in UNREMARKABLE_STATUSES:
        notes.append(f"lag {group.status} at the end")
    return "; ".join(notes)


def _format_saving(group: GroupStory) -> str:
    saved = [
        (group.rebalances - group.rebalances_after, "rebalance"),
        ((group.stopped or 0) - (group.stopped_after or 0), "stop"),
        ((group.moved or 0) - (group.moved_after or 0), "move"),
    ]
    text = ", ".join(count_noun(number, noun) for number, noun in saved if number > 0)
    return f": saves {text}" if text else ""


def _unread_lines(story: Story) -> Iterator[str]:
    for kind, number, examples in story.evidence.unread:
        line = f"not read: {number:,} {kind} {evidence_text.format_marks([EvidenceMark.STATED])}"
        yield from wrap_text(line, rest="  ")
        for example in examples[:SHOWN_EXAMPLES]:
            yield from wrap_text(example, "          ", "            ")


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
        **select_attributes(evidence, "records", "commits", "generations", "rebalances"),
        **select_attributes(evidence, "lines", "samples"),
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
    columns = [column.name for column in ADVICE.columns if column.name != "group"]
    return {
        "group": group.name,
        **select_attributes(group, *columns, "first_line", "mark", "marks"),
        "causes": _rows_json(("cause", "evidence", "rebalances"), group.causes),
        "lag": None if group.lag is None else asdict(group.lag),
        "status": group.status,
    }


def _rows_json(keys: Sequence[str], rows: Iterable[Sequence[object]]) -> list[dict[str, object]]:
    return [dict(zip(keys, row, strict=True)) for row in rows]
