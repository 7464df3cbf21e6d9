"""Writes the report as one HTML file, which loads nothing and works from a folder.

The list of groups is HTML and can be read without a script. The script makes a group's view from
its packed data (:mod:`rota.report.page.chart_data`). No name becomes markup: names are escaped in
HTML, base64 in the packed data, and the script sets them as text.

The page has one inline script, joined from the files beside this module in the order in which they
use each other, inside one function; so it works from ``file://`` and needs no build step. The
charts are drawn on canvas without a library, because no chart library has a band for each partition
and owner, rebalance lines across two charts, and ten thousand rows merged to the pixel.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import time
import unicodedata
from collections.abc import Iterable, Iterator
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from urllib.parse import quote

from rota.engine.history.advice import CHANGE
from rota.engine.model.duration import format_rounded_duration
from rota.engine.model.text import count_noun
from rota.report import evidence_text
from rota.report.lag_intervals import WorstLag
from rota.report.page.chart_data import build_charts, pack_chart
from rota.report.story import (
    EvidenceMark,
    EvidenceSummary,
    GoldTables,
    GroupStory,
    Story,
    format_seconds,
    format_time,
)

MARK_MEANINGS = {
    EvidenceMark.STATED: "the broker's log or a record of the journal states it",
    EvidenceMark.INFERRED: "computed from the journal",
    EvidenceMark.SAMPLED: "measured at intervals",
    EvidenceMark.REPLAYED: "replayed: the same history under another policy",
}

TITLE = "Rota report"
DEMO_PREFIX = "DEMO:"
#: Banner of every view and every printed page of a demo (page.css).
DEMO_BANNER_TEXT = f"{DEMO_PREFIX} simulated data, not a real cluster"
DEMO_BANNER = f'<aside id="demo" aria-label="Demo">{escape(DEMO_BANNER_TEXT)}</aside>'
NO_REBALANCES = "No group had a rebalance."

LIST_COLUMNS = (
    ("name", "Group"),
    ("health", "Health"),
    ("downtime", "Downtime"),
    ("delayed", "Delayed"),
    ("rebalances", "Rebalances"),
    ("lag", "Most lag"),
    ("cause", "Cause"),
    ("verdict", "Verdict"),
    ("policy", "Best policy"),
)

COUNT_COLUMNS = frozenset({"downtime", "rebalances"})
SAMPLED_COLUMNS = frozenset({"delayed", "lag"})
UNKNOWN = "unknown"
#: Characters besides letters and digits that a link does not escape.
URL_SAFE_CHARACTERS = "-_.!~*'()"
#: Invisible characters.
INVISIBLE_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"
#: Number of groups that are shown before the script shows all.
SHOWN_GROUPS = 50

#: A word that is read from right to left, or that changes the direction of the text after it.
RIGHT_TO_LEFT_WORD = re.compile(
    "(\\S*[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc"
    "\U00010800-\U00010fff\U0001e800-\U0001efff]\\S*)"
)


def render_page(story: Story, gold: GoldTables, made_at: int) -> str:
    """Returns the page as text, with the time in milliseconds at which it was made."""
    code, style = read_script(), read_asset("page.css")
    return Template(read_asset("page.html")).substitute(
        policy=escape(_content_security_policy(code, style)),
        style=style,
        title=f"{DEMO_PREFIX} {TITLE}" if story.evidence.demo else TITLE,
        demo=DEMO_BANNER if story.evidence.demo else "",
        first_line=_worst_group_html(story),
        found=f"{len(story.groups):,} of {count_noun(len(story.groups), 'group')}",
        head="".join(_column_headings(story)),
        rows="\n".join(_group_row(place, group, story) for place, group in enumerate(story.groups)),
        basis=_list_items(map(_sentence_html, evidence_text.evidence_lines(story))),
        unread=_unread_html(story.evidence),
        legend=_list_items(
            f"{_mark_html(mark)} {mark}: {escape(meaning)}"
            for mark, meaning in MARK_MEANINGS.items()
        ),
        made=f"Made {format_time(made_at)} from {_name_html(story.out)}.",
        data="\n".join(
            # its type keeps the element from running
            f'<script type="text/plain" id="data-{place}">{pack_chart(chart)}</script>'
            for place, chart in enumerate(build_charts(story, gold))
        ),
        script=code,
    )


def write_page(story: Story, gold: GoldTables, path: Path) -> None:
    write_text(render_page(story, gold, int(time.time() * 1000)), path)


def _content_security_policy(code: str, style: str) -> str:
    return (
        f"default-src 'none'; script-src {content_hash(code)}; style-src {content_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _worst_group_html(story: Story) -> str:
    if not story.groups:
        return f'<p id="first-line">{escape(NO_REBALANCES)}</p>'
    worst = story.groups[0]
    known_causes = worst.known_causes.items()
    causes = ", ".join(f"{number:,} {_mark_html(how)} {how}" for how, number in known_causes)
    known = f"Counts: {_mark_html(worst.mark)} {worst.mark}. Causes: {causes or UNKNOWN}."
    if worst.verdict == CHANGE:
        known += f" Replay: {_mark_html(EvidenceMark.REPLAYED)} {EvidenceMark.REPLAYED}."
    if worst.lag is not None:
        known += f" Lag: {_mark_html(EvidenceMark.SAMPLED)} {EvidenceMark.SAMPLED}."
    return (
        f'<p id="first-line">{_sentence_html(worst.first_line)}</p>\n'
        f'<p class="known">{known} <a href="{group_link(worst.name)}">Show this group</a></p>'
    )


def _column_headings(story: Story) -> Iterator[str]:
    for key, title in LIST_COLUMNS:
        order = ' aria-sort="descending"' if key == "health" else ""
        number = ' class="number"' if key in COUNT_COLUMNS | SAMPLED_COLUMNS else ""
        marks = {group.mark for group in story.groups} if key in COUNT_COLUMNS else set()
        if key in SAMPLED_COLUMNS:
            marks = {EvidenceMark.SAMPLED}
        mark = f" {_mark_html(marks.pop())}" if len(marks) == 1 else ""
        yield (
            f'<th scope="col" data-column="{key}"{number}{order}>'
            f'<button type="button" data-sort="{key}">{title}</button>{mark}</th>'
        )


def _group_row(place: int, group: GroupStory, story: Story) -> str:
    marks = {group.mark for group in story.groups}
    by_number = f" {_mark_html(group.mark)}" if len(marks) > 1 else ""
    verdict = group.verdict.replace(" ", "-")
    policy = _name_html(group.policy) if group.verdict == CHANGE else ""
    later = ' class="later"' if place >= SHOWN_GROUPS else ""
    return (
        f'<tr data-group="{escape(group.name)}"{later}><th scope="row">'
        f'<a href="{group_link(group.name)}" title="{escape(group.name)}">'
        f"{_name_html(_visible_name(group.name))}</a></th>"
        f"<td>{_health_html(group)}</td>"
        f'<td class="number">{_downtime_html(group)}{by_number}</td>'
        f'<td class="number">{_number_html(group.delayed_records)}</td>'
        f'<td class="number">{_number_html(group.rebalances)}{by_number}</td>'
        f'<td class="number">{lag_cell(group.lag)}</td>'
        f"<td>{_sentence_html(group.cause_text)}</td>"
        f'<td><span class="verdict {escape(verdict)}">{escape(group.verdict)}</span></td>'
        f"<td>{policy}</td></tr>"
    )


def _health_html(group: GroupStory) -> str:
    """Returns the present health, with what shows it and the worst health as a title."""
    health = group.health
    title = health.reason
    if health.worst is not health.health and health.worst_since is not None:
        title += f". Worst: {health.worst} from {format_time(health.worst_since)}"
    name = health.health.replace(" ", "-").lower()
    return (
        f'<data value="{group.severity}"><span class="health {name}" title="{escape(title)}">'
        f"{escape(health.health)}</span></data>"
    )


def _downtime_html(group: GroupStory) -> str:
    if group.downtime_ms is None:
        return _number_html(None)
    return (
        f'<data value="{group.downtime_ms}" title="{escape(_downtime_bounds(group))}">'
        f"{format_rounded_duration(group.downtime_ms)}</data>"
    )


def _downtime_bounds(group: GroupStory) -> str:
    bounds = {"at least": group.downtime_at_least_ms, "at most": group.downtime_at_most_ms}
    known = ((name, value) for name, value in bounds.items() if value is not None)
    return ", ".join(f"{name} {format_rounded_duration(value)}" for name, value in known)


def group_link(name: str) -> str:
    """Returns the link to a group by name, quoted like JavaScript's ``encodeURIComponent``."""
    return f"#g={quote(name, safe=URL_SAFE_CHARACTERS)}"


def _number_html(value: float | None) -> str:
    if value is None:
        return f'<data value="-1">{UNKNOWN}</data>'
    return f'<data value="{value:.15g}">{value:,.0f}</data>'


def lag_cell(lag: WorstLag | None) -> str:
    """Returns the largest lag in seconds, or in records if seconds are unknown."""
    if lag is None:
        return '<data value="-1">unknown</data>'
    if lag.most_seconds is None:
        # sorts below all groups with seconds
        return f'<data value="{-1 / (lag.most + 2):.15g}">{lag.most:,} records</data>'
    text = f"{'≥ ' if lag.at_least else ''}{format_seconds(lag.most_seconds)}"
    return f'<data value="{lag.most_seconds:.3f}">{text}</data>'


def _unread_html(evidence: EvidenceSummary) -> str:
    if not evidence.unread:
        return '<p id="unread">Rota decoded the whole input.</p>'
    total, mark = sum(count for _, count, _ in evidence.unread), _mark_html(EvidenceMark.STATED)
    listed = _list_items(
        f"{count:,} {mark} {_sentence_html(what)}{_examples_html(examples)}"
        for what, count, examples in evidence.unread
    )
    return f'<div id="unread"><p>Not read: {total:,} {mark}</p>\n<ul>{listed}</ul></div>'


def _examples_html(examples: Iterable[str]) -> str:
    listed = _list_items(f"<code>{_name_html(example)}</code>" for example in examples)
    return f"<ul>{listed}</ul>" if listed else ""


def _list_items(lines: Iterable[str]) -> str:
    return "\n".join(f"<li>{line}</li>" for line in lines)


def _mark_html(mark: EvidenceMark) -> str:
    title = f"{mark}: {escape(MARK_MEANINGS[mark])}"
    return f'<abbr class="mark {mark}" title="{title}">{mark[:2]}</abbr>'


def _visible_name(name: str) -> str:
    """Returns a name, or the code points of its characters if none of them is visible."""
    if not name:
        return "(no name)"
    if not all(_is_invisible(sign) for sign in name):
        return name
    return "".join(f"\\u{{{ord(sign):x}}}" for sign in name)


def _is_invisible(sign: str) -> bool:
    category = unicodedata.category(sign)
    return category[0] in "ZC" or category == "Mn" or sign in INVISIBLE_LETTERS


def _name_html(name: str) -> str:
    """Wraps a name so that it cannot change the direction of the text around it."""
    return f"<bdi>{escape(name)}</bdi>"


def _sentence_html(text: str) -> str:
    """Escapes a text, and isolates words in it that run from right to left."""
    return "".join(
        f"<bdi>{escape(part)}</bdi>" if place % 2 else escape(part)
        for place, part in enumerate(RIGHT_TO_LEFT_WORD.split(text))
    )


SCRIPT_FILES = (
    *("format.js", "dom.js", "unpack.js"),
    *("plot.js", "ownership_chart.js", "moves_and_lag_charts.js"),
    *("control.js", "charts.js", "group.js", "main.js"),
)


def read_script() -> str:
    code = "\n".join(map(read_asset, SCRIPT_FILES))
    return f"(function () {{\n'use strict';\n{code}\n}})();\n"


def content_hash(text: str) -> str:
    """Returns the hash of an inline text for a content security policy."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def read_asset(name: str) -> str:
    return resources.files("rota.report").joinpath("page", name).read_text("utf-8")


_DESCRIPTOR = re.compile(r"/dev/(?P<name>stdout|stderr)|/(?:dev|proc/self)/fd/(?P<number>[0-9]+)")
_DESCRIPTOR_NUMBERS = {"stdout": 1, "stderr": 2}


def write_text(text: str, path: Path) -> None:
    """Writes a file whole or not at all, and a pipe or open descriptor directly."""
    try:
        number = file_descriptor(path)
        if number is not None:
            # opening the path again would fail for a pipe, and start at 0 for a file
            _write_to(os.dup(number), text, "w")
            return
        into = path.resolve()  # keep a symbolic link
        if into.exists() and not into.is_file():
            _write_to(into, text, "w")
        else:
            _replace_file(into, text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def file_descriptor(path: Path) -> int | None:
    """Returns the file descriptor that a path names, like 1 for ``/dev/stdout``."""
    match = _DESCRIPTOR.fullmatch(str(path.absolute()))
    if match is None:
        return None
    return int(match["number"]) if match["name"] is None else _DESCRIPTOR_NUMBERS[match["name"]]


def is_stdout(path: Path) -> bool:
    """Returns whether a path such as ``/dev/fd/3`` is the same file as standard output."""
    number = file_descriptor(path)
    try:
        return number is not None and os.path.samestat(os.fstat(number), os.fstat(1))
    except OSError:  # the descriptor is closed
        return False


def _replace_file(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write_to(temporary, text, "x")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write_to(file: Path | int, text: str, mode: str) -> None:
    with open(file, mode, encoding="utf-8", errors="replace", newline="\n") as opened:  # noqa: PTH123
        opened.write(text)
