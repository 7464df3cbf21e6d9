"""The story of a folder of tables, on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from rota.cli.paragraph import WIDTH, cut, wrapped
from rota.cli.screen import console, count, plain
from rota.report import basis
from rota.report.moment import span
from rota.report.page import DEMO, NOTHING
from rota.report.story import CHANGE, KEEP, Causes, Group, Lag, Mark, Story
from rota.tables import ADVICE

SHOWN_GROUPS = 8
SHOWN_EXAMPLES = 3
FINE = (None, "OK")
"""Burrow's verdicts that need no word."""
WIDEST_NAME = 40
"""Columns of a group's name in a sentence."""
NARROWEST_NAME = 12
GAP = "  "
LEGEND = (
    "stopped: partitions that a living member had to give up; moved: changed hands though their "
    "owner was still there; needed: the fewest that the best balance had to move"
)
LAG_LEGEND = (
    "lag: how old the oldest record was that was not yet committed as read, at the worst, also "
    "between commits; sampled"
)
STATUS_LEGEND = "WARN and ERR: Burrow's verdict on the lag at the end of the evidence"
MARKS = (
    "counts are inferred from the journal, or sampled where that is said; how causes are known is "
    "counted below; what a change saves is replayed: the same history under the other policy"
)


def print_summary(story: Story, page: Path) -> None:
    """First what to do, then what there is, then what it rests on.

    :param page: where the report is
    """
    screen = console()
    for line in _lines(story, page):
        screen.print(line, soft_wrap=True)


def _lines(story: Story, page: Path) -> Iterator[Text]:
    if story.evidence.demo:
        yield from _styled([DEMO, ""])
    yield from _worst(story.groups)
    if story.groups:
        yield from _table(story.groups)
        yield from map(Text, _legend(story.groups))
    for line in basis.lines(story):
        yield from map(Text, wrapped(line, rest="  "))
    yield from map(Text, _unread(story))
    yield Text()
    yield plain(f"report: {page}")
    yield plain(f"tables: {Path(story.out)}/{{bronze,silver,gold}}")


def _styled(lines: Sequence[str]) -> Iterator[Text]:
    return (Text(line, style="bold") for line in lines)


def _worst(groups: Sequence[Group]) -> Iterator[Text]:
    """What the first group's story is, and what to do about it."""
    if not groups:
        yield from map(Text, [NOTHING, ""])
        return
    worst = groups[0]
    told = worst.first_line.removeprefix(worst.name)
    name = cut(worst.name, WIDEST_NAME) if told != worst.first_line else ""
    yield from _styled(wrapped(name + told))
    for number, step in enumerate(worst.steps, 1):
        first = f"  {number}. "
        yield from map(Text, wrapped(step, first, " " * len(first), has_settings=True))
    yield Text()


def _table(groups: Sequence[Group]) -> Iterator[Text]:
    """Two lines for each group: its numbers, and what to do."""
    shown = groups[:SHOWN_GROUPS]
    titles = ["#", "group", "rebalances", "stopped", "moved", "needed"]
    rows = [
        [str(rank), group.name, f"{group.rebalances:,}"]
        + [_number(value) for value in (group.stopped, group.moved, group.moved_min)]
        for rank, group in enumerate(shown, 1)
    ]
    if any(group.lag for group in shown):
        titles.append("lag")
        rows = [[*row, _lag(group.lag)] for row, group in zip(rows, shown, strict=True)]
    layout = _Layout([titles, *rows])
    yield from _styled([layout.line(titles), f"{layout.margin}verdict"])
    for row, group in zip(rows, shown, strict=True):
        yield Text(layout.line(row))
        yield from map(Text, wrapped(_advice(group), layout.margin, f"{layout.margin}  "))
    if len(groups) > len(shown):
        more = count(len(groups) - len(shown), "more group")
        yield Text(f"{more}: the report has them all, --json too")


class _Layout:
    """Columns as wide as what is in them; the second, the names, has what is left."""

    def __init__(self, rows: Sequence[Sequence[str]]) -> None:
        self._widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        others = sum(self._widths) - self._widths[1] + len(GAP) * (len(self._widths) - 1)
        self._widths[1] = min(self._widths[1], max(WIDTH - others, NARROWEST_NAME))
        self.margin = " " * self._widths[0] + GAP
        """In front of a line that belongs to the one above."""

    def line(self, row: Sequence[str]) -> str:
        """Names to the left, numbers to the right."""
        cells = []
        for place, (cell, width) in enumerate(zip(row, self._widths, strict=True)):
            cell = cut(cell, width)  # noqa: PLW2901
            blank = " " * (width - cell_len(cell))
            cells.append(cell + blank if place == 1 else blank + cell)
        return GAP.join(cells).rstrip()


def _legend(groups: Sequence[Group]) -> Iterator[str]:
    shown = groups[:SHOWN_GROUPS]
    told = {
        LEGEND: True,
        LAG_LEGEND: any(group.lag for group in shown),
        STATUS_LEGEND: any(group.status not in FINE for group in shown),
        MARKS: True,
    }
    yield ""
    for line in (line for line, applies in told.items() if applies):
        yield from wrapped(line, rest="  ")
    yield ""


def _number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _lag(lag: Lag | None) -> str:
    if lag is None:
        return "unknown"
    if lag.most_seconds is None:
        return count(lag.most, "record")
    return f"{'>= ' if lag.at_least else ''}{span(lag.most_seconds)}"


def _advice(group: Group) -> str:
    """The verdict, and what goes with it."""
    said = [group.verdict]
    if group.verdict == CHANGE:
        said = [f"change {group.used} to {group.policy}{_saving(group)}"]
    elif group.verdict == KEEP:
        said = [f"keep {group.policies_used[-1]}"]
    if group.mark is Mark.SAMPLED:
        said.append("sampled")
    if group.status not in FINE:
        said.append(f"lag {group.status} at the end")
    return "; ".join(said)


def _saving(group: Group) -> str:
    saved = [
        (group.rebalances - group.rebalances_after, "rebalance"),
        ((group.stopped or 0) - (group.stopped_after or 0), "stop"),
        ((group.moved or 0) - (group.moved_after or 0), "move"),
    ]
    told = ", ".join(count(number, noun) for number, noun in saved if number > 0)
    return f": saves {told}" if told else ""


def _unread(story: Story) -> Iterator[str]:
    for what, number, examples in story.evidence.unread:
        said = f"not read: {number:,} {what} {basis.known([Mark.STATED])}"
        yield from wrapped(said, rest="  ")
        for example in examples[:SHOWN_EXAMPLES]:
            yield from wrapped(example, "          ", "            ")


def as_json(story: Story, page: Path) -> dict[str, Any]:
    """Everything that is printed, and the groups that are not."""
    read = story.evidence
    cluster = None if read.cluster is None else read.cluster | {"lookups": read.lookups}
    return {
        "out": str(Path(story.out).absolute()),
        "page": str(page.absolute()),
        "demo": read.demo,
        "cluster": cluster,
        "window": {"first": read.first, "last": read.last},
        "shown": {"since": read.since, "until": read.until},
        "records": read.records,
        "commits": read.commits,
        "generations": read.generations,
        "rebalances": read.rebalances,
        "lines": read.lines,
        "samples": read.samples,
        "marks": story.marks | {"not_read": (Mark.STATED,)},
        "polled": read.polled,
        "groups": [_group(group) for group in story.groups],
        "causes": _causes(story.causes),
        "complete_from": [
            {"group": group, "at": at, "whole": whole} for group, at, whole in read.windows
        ],
        "commits_complete_from": [
            {"journal_partition": partition, "offset": offset, "at": at}
            for partition, offset, at in read.complete
        ],
        "not_read": [
            {"what": what, "count": number, "examples": list(examples)}
            for what, number, examples in read.unread
        ],
    }


def _group(group: Group) -> dict[str, Any]:
    """The columns of gold/advice, and what the other tables add."""
    advice = {
        column.name: getattr(group, "name" if column.name == "group" else column.name)
        for column in ADVICE.columns
    }
    return advice | {
        "policies_used": group.policies_used,
        "first_line": group.first_line,
        "mark": group.mark,
        "marks": group.marks,
        "causes": _causes(group.causes),
        "lag": None if group.lag is None else asdict(group.lag),
        "status": group.status,
    }


def _causes(causes: Causes) -> list[dict[str, Any]]:
    return [
        {"cause": cause, "evidence": how, "rebalances": number} for cause, how, number in causes
    ]
