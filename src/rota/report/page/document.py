"""Writes the report as one HTML file, which loads nothing and works from a folder.

The overview is HTML and can be read without a script. The script adds its charts, and makes a
group's view from the group's packed data (:mod:`rota.report.page.chart_data`). No name becomes
markup: names are escaped in HTML, base64 in the packed data, and the script sets them as text.

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
from datetime import UTC, datetime, timedelta
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

from rota.engine.history.facts import GroupHealth
from rota.engine.model.duration import format_rounded_duration
from rota.engine.model.text import count_noun
from rota.report import evidence_text
from rota.report.lag_intervals import WorstLag
from rota.report.page.chart_data import build_charts, pack_chart
from rota.report.page.cluster_data import build_summary, cluster_window
from rota.report.story import (
    CONSUMER_KINDS,
    EPOCH,
    EvidenceMark,
    EvidenceSummary,
    GoldTables,
    GroupStory,
    Story,
    format_time,
)

#: The same texts are in base.js.
MARK_MEANINGS = {
    "stated": "Written in the broker's log or in a record of the journal.",
    "inferred": "Computed from consecutive records of the journal.",
    "sampled": "Measured at intervals.",
    "replayed": "Not measured: the same history replayed under another policy. Marked with ≈.",
    "bounded": "Only commits show it; the true value lies between two bounds.",
}

TITLE = "Rota: consumer groups"
DEMO_PREFIX = "DEMO:"
DEMO_BANNER_TEXT = evidence_text.DEMO_TEXT
DEMO_BANNER = (
    '<span class="tag" id="demo">DEMO<span class="wide">: simulated data, not a real cluster'
    "</span></span>"
)

#: Columns of the list: key, title, how most of its numbers are known.
LIST_COLUMNS = (
    ("health", "Health", EvidenceMark.SAMPLED),
    ("name", "Group", None),
    ("lag-chart", "Lag and rebalances", EvidenceMark.SAMPLED),
    ("rebalances", "Rebal.", EvidenceMark.INFERRED),
    ("downtime", "Downtime", EvidenceMark.INFERRED),
    ("cause", "What happened", None),
    ("lag", "Lag now", EvidenceMark.SAMPLED),
    ("strategy", "Strategy", None),
    ("saving", "Recommendation", EvidenceMark.REPLAYED),
)
UNSORTED_COLUMNS = frozenset({"lag-chart", "cause"})
NUMBER_COLUMNS = frozenset({"rebalances", "downtime", "lag"})
#: Icons of health; base.js has the same ones.
HEALTH_PATHS = {
    GroupHealth.OK: "M5.5 2.3a3.2 3.2 0 1 0 .01 0Z",
    GroupHealth.FALLING_BEHIND: "M1.5 9 8.5 2.6M4 2h5v5",
    GroupHealth.STUCK: "M3.3 1.5v8M7.7 1.5v8",
    GroupHealth.FAILING: "M2 2l7 7M9 2 2 9",
    GroupHealth.UNKNOWN: "M2.5 5.5h6",
}
UNKNOWN = "unknown"
URL_SAFE_CHARACTERS = "-_.!~*'()"  # besides letters and digits, not escaped in links
INVISIBLE_LETTERS = "\u115f\u1160\u2800\u3164\uffa0"  # invisible characters
SHOWN_GROUPS = 24  # number of groups that are shown before the script shows all

#: A word that is read from right to left, or that changes the direction of the text after it.
RIGHT_TO_LEFT_WORD = re.compile(
    "(\\S*[\u0590-\u08ff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc"
    "\U00010800-\U00010fff\U0001e800-\U0001efff]\\S*)"
)


#: A time in a sentence of the tables.
TIME_IN_TEXT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}) ([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)Z")


#: A number in a line about the input, and how it is known.
KNOWN_NUMBER = re.compile(r"([0-9][0-9,]* [a-z]+) \((stated|inferred|sampled)(?: and sampled)?\)")


def render_page(story: Story, gold: GoldTables, made_at: int) -> str:
    """Returns the page as text, with the time in milliseconds at which it was made."""
    code, style = read_script(), read_asset("page.css")
    summary = build_summary(story, gold)
    return Template(read_asset("page.html")).substitute(
        policy=escape(_content_security_policy(style, code, THEME_SCRIPT)),
        style=style,
        theme=THEME_SCRIPT,
        title=f"{DEMO_PREFIX} {TITLE}" if story.evidence.demo else TITLE,
        demo=DEMO_BANNER if story.evidence.demo else "",
        headline=_sentence_html(story.headline),
        facts="\n".join(f"<span>{each}</span>" for each in _facts(story, gold, made_at)),
        figures="\n".join(f"<div>{each}</div>" for each in _figures(story)),
        found=count_noun(len(story.groups), "group"),
        head="".join(_column_headings()),
        rows="\n".join(
            _group_row(place, group, data)
            for place, (group, data) in enumerate(zip(story.groups, summary["groups"], strict=True))
        ),
        legend="".join(
            f'<div><dt data-how="{mark}">{mark.capitalize()}</dt><dd>{escape(meaning)}</dd></div>'
            for mark, meaning in MARK_MEANINGS.items()
        ),
        basis=_list_items(map(_evidence_html, evidence_text.evidence_lines(story))),
        unread=_unread_html(story.evidence),
        made=f"Made {format_time(made_at)} from {_name_html(story.out)}.",
        summary=pack_chart(summary),
        data="\n".join(
            # its type keeps the element from running
            f'<script type="text/plain" id="data-{place}">{pack_chart(chart)}</script>'
            for place, chart in enumerate(build_charts(story, gold))
        ),
        script=code,
    )


def write_page(story: Story, gold: GoldTables, path: Path) -> None:
    write_text(render_page(story, gold, int(time.time() * 1000)), path)


def _content_security_policy(style: str, *scripts: str) -> str:
    hashes = " ".join(map(content_hash, scripts))
    return (
        f"default-src 'none'; script-src {hashes}; style-src {content_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _facts(story: Story, gold: GoldTables, made_at: int) -> Iterator[str]:
    """Yields the time of the evidence and how complete it is."""
    evidence = story.evidence
    if evidence.first is None or evidence.last is None:
        yield "The input has no record of a group."
        return
    window = cluster_window(story, gold)
    yield f'<b id="window">{format_window(window.begin, window.end)}</b>'
    whole = sum(group.whole for group in story.groups)
    yield f"History complete for {whole:,} of {count_noun(len(story.groups), 'group')}"
    known = dict.fromkeys(EvidenceMark, 0)
    for _, how, number in story.causes:
        known[how] += number
    listed = [f"{number:,} {how}" for how, number in known.items() if number]
    if listed:
        yield f"Causes: {', '.join(listed)}"
    samples = count_noun(evidence.samples, "sample")
    yield f"Lag from {samples}" if evidence.samples else "Lag unknown: no samples of log ends"
    if evidence.unread:
        yield "Some input was not decoded: see Evidence below"
    yield f"Made {format_time(made_at)}"


def format_window(begin: int, end: int) -> str:
    """Returns a time range like ``Mon, 5 Jan 2026, 00:00 to 23:59 UTC``; so does base.js."""
    try:
        first, last = (EPOCH + timedelta(milliseconds=time) for time in (begin, end))
    except OverflowError:
        return f"{format_time(begin)} to {format_time(end)}"
    day = f"{first:%a}, {first.day} {first:%b %Y}, {first:%H:%M}"
    if first.date() == last.date():
        return f"{day} to {last:%H:%M} UTC"
    if last - timedelta(days=1) == datetime(first.year, first.month, first.day, tzinfo=UTC):
        return f"{day} to 24:00 UTC"
    return f"{day} to {last:%a}, {last.day} {last:%b %Y}, {last:%H:%M} UTC"


def _figures(story: Story) -> Iterator[str]:
    """Yields the key figures; the script writes them anew for a selected time range."""
    totals = story.totals
    partitions = sum(group.overview.get("partitions") or 0 for group in story.groups)
    yield (
        f"{_term_html(EvidenceMark.STATED, 'Groups')}"
        f'<div class="figure" id="figure-groups">{len(story.groups):,}</div>'
        f"<div>{count_noun(partitions, 'partition')}</div>"
    )
    yield (
        f"{_term_html(EvidenceMark.INFERRED, 'Rebalances')}"
        f'<div class="figure" id="figure-rebalances">{totals.rebalances:,}</div>'
        f'<div id="figure-rebalances-note">'
        f"{count_noun(totals.restless_groups, 'group')} with 5 or more</div>"
    )
    downtime = "Time in which no member consumed a partition, added up over all partitions."
    yield (
        f"{_term_html(EvidenceMark.INFERRED, 'Downtime', downtime)}"
        f'<div class="figure"><span id="figure-downtime">{_format_downtime(totals.downtime_ms)}'
        "</span> <small>partition time</small></div>"
        '<div class="stack" id="downtime-bar"></div><div class="parts" id="downtime-parts">'
        + "".join(
            f"<span>{escape(reason)} {format_rounded_duration(length)}</span>"
            for reason, length in totals.largest_reasons
        )
        + "</div>"
    )
    unhealthy = sum(totals.unhealthy.values())
    parts = "".join(
        f"<span><b>{number:,}</b> {escape(health)}</span>"
        for health, number in totals.unhealthy.items()
        if number
    )
    yield (
        f"{_term_html(EvidenceMark.SAMPLED, 'Unhealthy now', 'At the end of the evidence.')}"
        f'<div class="figure{" bad" if unhealthy else ""}">{unhealthy:,} '
        f"<small>of {count_noun(len(story.groups), 'group')}</small></div>"
        f'<div class="parts">{parts}</div>'
    )
    saving = "The recommended policies, replayed over the same history. Repairs are not counted."
    share = totals.saving_share
    part = "" if share is None else f"{share * 100:.0f} % of downtime, "
    yield (
        f"{_term_html(EvidenceMark.REPLAYED, 'Recommended changes save', saving)}"
        f'<div class="figure good">{"≈ " if totals.saving_ms else ""}'
        f"{format_rounded_duration(totals.saving_ms)}</div>"
        '<div class="stack" id="saving-bar"></div>'
        f"<div>{part}{count_noun(totals.changes, 'group')} to change</div>"
    )


def _term_html(how: EvidenceMark, text: str, more: str = "") -> str:
    """The label of a number; it can have the focus, and shows how the number is known."""
    title = f' data-tip="{escape(more)}"' if more else ""
    return f'<button type="button" class="term" data-how="{how}"{title}>{escape(text)}</button>'


def _format_downtime(milliseconds: int | None) -> str:
    return UNKNOWN if milliseconds is None else format_rounded_duration(milliseconds)


def _column_headings() -> Iterator[str]:
    for key, title, how in LIST_COLUMNS:
        order = ' aria-sort="descending"' if key == "health" else ""
        number = " number" if key in NUMBER_COLUMNS else ""
        known = f' data-how="{how}"' if how else ""
        content = f'<button type="button" data-sort="{key}"{known}>{title}</button>'
        if key in UNSORTED_COLUMNS:
            content = f"<span{known}>{title}</span>"
        yield f'<th scope="col" class="column-{key}{number}"{order}>{content}</th>'


def _group_row(place: int, group: GroupStory, data: dict[str, Any]) -> str:
    later = ' class="later"' if place >= SHOWN_GROUPS else ""
    name = _name_html(_visible_name(group.name))
    cells = {
        "health": _health_html(group),
        "lag-chart": "",
        "rebalances": _known_html(group.mark, f"{group.rebalances:,}"),
        "downtime": _known_html(
            group.mark, _format_downtime(group.downtime_ms), _downtime_bounds(group)
        ),
        "cause": _cause_html(group),
        "lag": _lag_html(group, data["lag"]),
        "strategy": _strategy_html(group),
        "saving": _recommendation_html(group),
    }
    columns = []
    for key, _, _ in LIST_COLUMNS:
        if key == "name":
            columns.append(
                f'<th scope="row" class="cell-name"><a class="name cut" href="'
                f'{group_link(group.name)}" title="{escape(group.name)}">{name}</a>'
                f'<span class="minor cut">{_size_html(group)}</span></th>'
            )
            continue
        number = " number" if key in NUMBER_COLUMNS else ""
        columns.append(f'<td class="cell-{key}{number}">{cells[key]}</td>')
    return f'<tr data-group="{escape(group.name)}"{later}>{"".join(columns)}</tr>'


def _size_html(group: GroupStory) -> str:
    members, partitions = (group.overview.get(name) for name in ("members", "partitions"))
    parts = [] if members is None else [count_noun(members, "member")]
    if partitions is not None:
        parts.append(count_noun(partitions, "partition"))
    kind = group.overview.get("kind")
    if kind is not None and kind not in CONSUMER_KINDS:
        parts.append(kind)
    return ", ".join(parts)


def _health_html(group: GroupStory) -> str:
    """The present health; what shows it is a tooltip."""
    health = group.health
    more = f"{health.reason}."
    if health.worst is not health.health and health.worst_since is not None:
        more += f" Worst: {health.worst} from {format_time(health.worst_since)}."
    name = health.health.replace(" ", "-").lower()
    title = health.health[0].upper() + health.health[1:]
    path = f'<path d="{HEALTH_PATHS[health.health]}"/>'
    icon = f'<svg viewBox="0 0 11 11" aria-hidden="true">{path}</svg>'
    badge = f'<span class="health {name}">{icon}{escape(title)}</span>'
    text = _known_html(group.marks["health"], badge, more)
    if group.severity and health.since is not None:
        text += f'<span class="minor" data-since="{health.since}">since '
        text += f"{format_time(health.since)[5:16]}</span>"
    return text


def _cause_html(group: GroupStory) -> str:
    first, *rest = map(_capitalize, group.cause_lines or ("no rebalance",))
    bad = " bad-text" if group.severity else ""
    lines = [f'<span class="cut2{bad}">{_sentence_html(first)}</span>']
    if rest:
        lines = [f'<span class="cut{bad}">{_sentence_html(first)}</span>']
        lines.append(f'<span class="minor cut">{_sentence_html("; ".join(rest))}</span>')
    return f'<span data-tip="{escape("; ".join((first, *rest)))}">{"".join(lines)}</span>'


def _capitalize(text: str) -> str:
    """Begins a sentence with a capital letter, unless it begins with the name of something."""
    return text[:1].upper() + text[1:] if re.match("[a-z]+[ :]", text) else text


def _lag_html(group: GroupStory, series: dict[str, Any] | None) -> str:
    """The lag at the end and the largest one."""
    if group.lag is None:
        return f'<span class="minor">{UNKNOWN}</span>'
    how, most = EvidenceMark.SAMPLED, format_lag(group.lag)
    waiting = group.health.lag
    now = UNKNOWN if waiting is None else count_noun(waiting, "record")
    if series is not None and series["run_ends"][-1] is not None:
        last, in_seconds = series["run_ends"][-1], series["in_seconds"]
        now = format_rounded_duration(round(last * 1000)) if in_seconds else f"{last:,} records"
    where = f"The largest lag was in {group.lag.most_topic}-{group.lag.most_partition}."
    return (
        f"{_known_html(how, escape(now))}"
        f'<span class="minor">max {_known_html(how, escape(most), where)}</span>'
    )


def _strategy_html(group: GroupStory) -> str:
    *before, now = group.policies_used
    earlier = f'<span class="minor cut">before: {_name_html(", ".join(before))}</span>'
    return f'<span class="cut">{_name_html(now)}</span>{earlier if before else ""}'


def _recommendation_html(group: GroupStory) -> str:
    text, action = _name_html(group.recommendation), group.first_action
    if action is None:
        return f'<span class="minor" data-tip="{escape(group.to_do)}">{text}</span>'
    saving = ""
    if action.saving_ms is not None:
        about = "up to" if action.saving_is_bound else "≈"
        saved = f"{about} {format_rounded_duration(action.saving_ms)}"
        uncertain = ""
        if group.uncertainty_ms and not action.saving_is_bound:
            uncertain = f"Uncertain by {format_rounded_duration(group.uncertainty_ms)}."
        number = _known_html(EvidenceMark.REPLAYED, saved, uncertain)
        saving = f'<span class="minor">saves <span class="saving">{number}</span></span>'
    return f'<span class="advised" data-tip="{escape(group.to_do)}">{text}</span>{saving}'


def _downtime_bounds(group: GroupStory) -> str:
    low, high = group.downtime_at_least_ms, group.downtime_at_most_ms
    if low is None or high is None or low == high:
        return ""
    return f"At least {format_rounded_duration(low)}, at most {format_rounded_duration(high)}."


def format_lag(lag: WorstLag) -> str:
    """Returns the largest lag as time, or in records if no age is known."""
    if lag.most_seconds is None:
        return count_noun(lag.most, "record")
    return (
        f"{'≥ ' if lag.at_least else ''}{format_rounded_duration(round(lag.most_seconds * 1000))}"
    )


def group_link(name: str) -> str:
    """Returns the link to a group by name, quoted like JavaScript's ``encodeURIComponent``."""
    return f"#g={quote(name, safe=URL_SAFE_CHARACTERS)}"


def _evidence_html(line: str) -> str:
    """A line about the input; how its numbers are known moves from brackets to the tooltip."""
    return KNOWN_NUMBER.sub(r'<span data-how="\2">\1</span>', _capitalize(_sentence_html(line)))


def _unread_html(evidence: EvidenceSummary) -> str:
    if not evidence.unread:
        return '<p id="unread">Rota decoded the whole input.</p>'
    total = _known_html(EvidenceMark.STATED, f"{sum(count for _, count, _ in evidence.unread):,}")
    listed = _list_items(
        f"{_known_html(EvidenceMark.STATED, f'{count:,}')} {_sentence_html(what)}"
        f"{_examples_html(examples)}"
        for what, count, examples in evidence.unread
    )
    return f'<div id="unread"><p>Not read: {total}</p>\n<ul>{listed}</ul></div>'


def _examples_html(examples: Iterable[str]) -> str:
    listed = _list_items(f"<code>{_name_html(example)}</code>" for example in examples)
    return f"<ul>{listed}</ul>" if listed else ""


def _list_items(lines: Iterable[str]) -> str:
    return "\n".join(f"<li>{line}</li>" for line in lines)


def _known_html(how: EvidenceMark, text: str, more: str = "") -> str:
    """A number that says on hover, tap and focus how it is known, after ``more``."""
    title = f' data-tip="{escape(more)}"' if more else ""
    return f'<span data-how="{how}"{title}>{text}</span>'


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
    """Escapes a text, isolates words that run from right to left, and shortens times: the script
    shows them in the reader's time zone.
    """
    escaped = "".join(
        f"<bdi>{escape(part)}</bdi>" if place % 2 else escape(part)
        for place, part in enumerate(RIGHT_TO_LEFT_WORD.split(text))
    )
    return TIME_IN_TEXT.sub(r'<time datetime="\1T\2Z">\1 \2Z</time>', escaped)


SCRIPT_FILES = (
    *("base.js", "unpack.js", "timeline.js", "list.js"),
    *("chart.js", "panel.js", "group.js", "main.js"),
)
#: Sets the colours before the page is painted.
THEME_SCRIPT = (
    "document.documentElement.dataset.theme="
    "matchMedia('(prefers-color-scheme: dark)').matches?'dark':'light'"
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
