"""The report as one HTML file, which asks nothing of anybody and works from a folder.

The list of groups is written here and can be read without a script; a group's own view is made by
the script out of the group's packed data (:mod:`rota.report.chart`). No name becomes markup: here
they are escaped, in the packed data they are base64, and the script only ever sets text.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterable, Iterator
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from urllib.parse import quote

from rota.replay.advice import CHANGE
from rota.report import basis, chart, output, script
from rota.report.gold import Gold
from rota.report.moment import moment, span
from rota.report.story import Evidence, Group, Lag, Mark, Story

MEANINGS = {
    Mark.STATED: "the broker's log says so, or an entry of the journal itself",
    Mark.INFERRED: "it follows from the journal",
    Mark.SAMPLED: "it was asked for from outside, now and then",
    Mark.REPLAYED: "it did not happen: the same history under another policy",
}
TITLE = "Rota report"
DEMO_SIGN = "DEMO:"
DEMO = f"{DEMO_SIGN} a simulated day, no cluster of anybody's"
"""Stands over every view of a demo, and over every page of it that is printed (page.css)."""
BANNER = f'<aside id="demo" aria-label="Demo">{escape(DEMO)}</aside>'
NOTHING = "No rebalance of any group in this evidence."
COLUMNS = (
    ("name", "Group"),
    ("damage", "Damage"),
    ("rebalances", "Rebalances"),
    ("stopped", "Stopped"),
    ("moved", "Moved"),
    ("needed", "Needed"),
    ("lag", "Most lag"),
    ("verdict", "Verdict"),
    ("policy", "Best policy"),
)
COUNTS = frozenset({"damage", "rebalances", "stopped", "moved", "needed"})
UNKNOWN = "unknown"
UNRESERVED = "-_.!~*'()"
"""Signs that stand for themselves in a link, beside letters and numbers."""
FILLERS = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and patterns that show nothing."""
AT_ONCE = 50
"""Groups that are shown at once where a script can show the others."""
TURNED = re.compile(
    "(\\S*[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc"
    "\U00010800-\U00010fff\U0001e800-\U0001efff]\\S*)"
)
"""A word that is read from right to left, or has signs that turn what comes after it."""


def page(story: Story, gold: Gold, made_at: int) -> str:
    """The whole text.

    :param made_at: when it is made, in milliseconds since 1970
    """
    code, style = script.script(), script.style()
    return Template(_skeleton()).substitute(
        policy=escape(_policy(code, style)),
        style=style,
        title=f"{DEMO_SIGN} {TITLE}" if story.evidence.demo else TITLE,
        demo=BANNER if story.evidence.demo else "",
        first_line=_worst(story),
        found=_found(len(story.groups)),
        head="".join(_headings(story)),
        rows="\n".join(_row(place, group, story) for place, group in enumerate(story.groups)),
        basis="\n".join(f"<li>{_sentence(line)}</li>" for line in basis.lines(story)),
        unread=_unread(story.evidence),
        legend="\n".join(_legend()),
        made=f"Made {moment(made_at)} from {_name(story.out)}.",
        data="\n".join(_data(chart.packed(one) for one in chart.charts(story, gold))),
        script=code,
    )


def write(story: Story, gold: Gold, path: Path) -> None:
    """Writes the page: see :func:`rota.report.output.write`."""
    output.write(page(story, gold, int(time.time() * 1000)), path)


def _skeleton() -> str:
    return resources.files("rota.report").joinpath("page", "page.html").read_text("utf-8")


def _policy(code: str, style: str) -> str:
    """Nothing may be loaded, and no other script or style may run."""
    return (
        f"default-src 'none'; script-src {script.source(code)}; style-src {script.source(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _worst(story: Story) -> str:
    """The first line of the worst group, with what it is known by."""
    if not story.groups:
        return f'<p id="first-line">{escape(NOTHING)}</p>'
    worst = story.groups[0]
    known = f"Counts: {_mark(worst.mark)} {worst.mark}. Causes: {_causes(worst)}."
    if worst.verdict == CHANGE:
        known += f" What would have been: {_mark(Mark.REPLAYED)} {Mark.REPLAYED}."
    if worst.lag is not None:
        known += f" Lag: {_mark(Mark.SAMPLED)} {Mark.SAMPLED}."
    return (
        f'<p id="first-line">{_sentence(worst.first_line)}</p>\n'
        f'<p class="known">{known} <a href="{link(worst.name)}">Show this group</a></p>'
    )


def _causes(group: Group) -> str:
    """How the causes of a group's rebalances are known."""
    told = (f"{number:,} {_mark(how)} {how}" for how, number in group.known_causes.items())
    return ", ".join(told) or UNKNOWN


def _headings(story: Story) -> Iterator[str]:
    """Each column's button, with the mark that all of its numbers share."""
    for key, title in COLUMNS:
        order = ' aria-sort="descending"' if key == "damage" else ""
        number = ' class="number"' if key in COUNTS | {"lag"} else ""
        marks = {group.mark for group in story.groups} if key in COUNTS else set()
        if key == "lag":
            marks = {Mark.SAMPLED}
        mark = f" {_mark(marks.pop())}" if len(marks) == 1 else ""
        yield (
            f'<th scope="col" data-column="{key}"{number}{order}>'
            f'<button type="button" data-sort="{key}">{title}</button>{mark}</th>'
        )


def _row(place: int, group: Group, story: Story) -> str:
    by_number = "" if _is_shared(story) else f" {_mark(group.mark)}"
    counts = (group.damage, group.rebalances, group.stopped, group.moved, group.moved_min)
    cells = "".join(f'<td class="number">{_number(value)}{by_number}</td>' for value in counts)
    verdict = group.verdict.replace(" ", "-")
    policy = _name(group.policy) if group.verdict == CHANGE else ""
    later = ' class="later"' if place >= AT_ONCE else ""
    return (
        f'<tr data-group="{escape(group.name)}"{later}><th scope="row">'
        f'<a href="{link(group.name)}" title="{escape(group.name)}">'
        f"{_name(_visible(group.name))}</a></th>"
        f"{cells}"
        f'<td class="number">{lag_cell(group.lag)}</td>'
        f'<td><span class="verdict {escape(verdict)}">{escape(group.verdict)}</span></td>'
        f"<td>{policy}</td></tr>"
    )


def link(name: str) -> str:
    """The address of a group's view, by its name: its place in the list is another tomorrow. As
    ``encodeURIComponent`` writes it: nothing in it needs to be escaped between double quotes.
    """
    return f"#g={quote(name, safe=UNRESERVED)}"


def _is_shared(story: Story) -> bool:
    return len({group.mark for group in story.groups}) == 1


def _number(value: float | None) -> str:
    if value is None:
        return f'<data value="-1">{UNKNOWN}</data>'
    return f'<data value="{value:.15g}">{value:,.0f}</data>'


def lag_cell(lag: Lag | None) -> str:
    """The most seconds that a group was behind; records, where no seconds are known."""
    if lag is None:
        return '<data value="-1">unknown</data>'
    if lag.most_seconds is None:
        # below all that have seconds, and among each other by their number
        return f'<data value="{-1 / (lag.most + 2):.15g}">{lag.most:,} records</data>'
    at_least = "≥ " if lag.at_least else ""
    return f'<data value="{lag.most_seconds:.3f}">{at_least}{span(lag.most_seconds)}</data>'


def _unread(evidence: Evidence) -> str:
    """What could not be read, counted, with examples."""
    if not evidence.unread:
        return '<p id="unread">Everything that was found could be read.</p>'
    total, mark = sum(count for _, count, _ in evidence.unread), _mark(Mark.STATED)
    listed = "\n".join(
        f"<li>{count:,} {mark} {_sentence(what)}{_examples(examples)}</li>"
        for what, count, examples in evidence.unread
    )
    return f'<div id="unread"><p>Not read: {total:,} {mark}</p>\n<ul>{listed}</ul></div>'


def _examples(examples: Iterable[str]) -> str:
    listed = "".join(f"<li><code>{_name(example)}</code></li>" for example in examples)
    return f"<ul>{listed}</ul>" if listed else ""


def _legend() -> Iterator[str]:
    for mark, meaning in MEANINGS.items():
        yield f"<li>{_mark(mark)} {mark}: {escape(meaning)}</li>"


def _data(blobs: Iterable[str]) -> Iterator[str]:
    """A group's packed data each; not a script, so that nothing runs it."""
    for place, blob in enumerate(blobs):
        yield f'<script type="text/plain" id="data-{place}">{blob}</script>'


def _found(number: int) -> str:
    return f"{number:,} of {number:,} group{'' if number == 1 else 's'}"


def _mark(mark: Mark) -> str:
    return f'<abbr class="mark {mark}" title="{mark}: {escape(MEANINGS[mark])}">{mark[:2]}</abbr>'


def _visible(name: str) -> str:
    """A name, or its signs by their numbers where nothing of it can be seen."""
    if not name:
        return "(no name)"
    if not all(_is_unseen(sign) for sign in name):
        return name
    return "".join(f"\\u{{{ord(sign):x}}}" for sign in name)


def _is_unseen(sign: str) -> bool:
    category = unicodedata.category(sign)
    return category[0] in "ZC" or category == "Mn" or sign in FILLERS


def _name(name: str) -> str:
    """A name that cannot change the direction of the text around it."""
    return f"<bdi>{escape(name)}</bdi>"


def _sentence(text: str) -> str:
    """A text with names in it, of which those that run the other way are kept to themselves."""
    return "".join(
        f"<bdi>{escape(part)}</bdi>" if place % 2 else escape(part)
        for place, part in enumerate(TURNED.split(text))
    )
