"""Reads the tables of one group, and prints its story as text or as JSON, for ``rota why``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyarrow import compute
from rich.cells import cell_len
from rich.text import Text

from rota.cli import render
from rota.cli.report import PAGE_NAME
from rota.engine.history.client_settings import CLIENT_LIBRARIES
from rota.engine.history.facts import (
    UNCOUNTED_REASONS,
    Action,
    ActionKind,
    ActionStep,
    GroupHealth,
)
from rota.engine.model.duration import format_rounded_duration
from rota.engine.model.text import count_noun
from rota.pipeline.arrow import table_to_rows
from rota.report.evidence_text import DEMO_TEXT
from rota.report.lag_intervals import WorstLag, find_worst_lags
from rota.report.story import (
    EvidenceMark,
    GoldTables,
    GroupStory,
    Story,
    build_story,
    format_time,
    format_worst_lag,
    list_group_names,
    read_gold_tables,
    shorten_times,
)

SHOWN_REBALANCES = 10
#: Columns of gold/rebalances in ``--json``.
JSON_COLUMNS = (
    *("at", "incarnation", "to_generation", "cause", "evidence", "likely", "reason", "strategy"),
    *("members_before", "members_after", "joined", "left", "moved", "moves_needed", "revoked"),
    *("downtime_ms", "downtime_at_least_ms", "downtime_at_most_ms", "delayed_records"),
)
INDENT = "  "


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """What the tables have of a group from a time on."""

    since: int | None  # None: the evidence has no records
    until: int | None
    rebalances: Sequence[Mapping[str, Any]]  # rows of gold/rebalances, the last one last
    downtime_ms: int | None  # partition-milliseconds; None: unknown
    by_reason: Mapping[str, int]
    by_evidence: Mapping[str, int]  # the counted downtime, by how it is known
    delayed_records: int | None
    lag: WorstLag | None


def explain_group(
    name: str, folder: str, bound: tuple[str, int] | None, *, as_json: bool
) -> Sequence[str] | None:
    """Prints the story of a group; if it does not exist, returns the names of all groups.

    :param bound: ``--since``: ``("at", time)``, or ``("back", time before the end)``
    """
    tables = read_gold_tables(folder, name)
    story = build_story(tables)
    if not story.groups:
        return list_group_names(read_gold_tables(folder))
    window, page = _read_window(story, tables, bound), Path(folder, PAGE_NAME)
    if as_json:
        render.print_json(_explanation_json(story, window, page))
    else:
        console = render.make_console()
        for line in _explanation_lines(story, window, page, is_part=bound is not None):
            console.print(line, soft_wrap=True)
    return None


def _read_window(story: Story, tables: GoldTables, bound: tuple[str, int] | None) -> _Window:
    group, evidence = story.groups[0], story.evidence
    since = evidence.first if evidence.since is None else evidence.since
    if bound is not None:
        form, milliseconds = bound
        since = milliseconds if form == "at" else (evidence.last or 0) - milliseconds
    begin = since or 0
    rebalances = sorted(table_to_rows(tables.rebalances), key=itemgetter("at"))
    lag = group.lag
    if bound is not None:
        recent = story.lag.filter(compute.greater_equal(story.lag["until"], begin))
        times = {group.name: [row["at"] for row in rebalances]}
        lag = find_worst_lags(recent, times).get(group.name)
    by_reason, by_evidence, delayed = Counter[str](), Counter[str](), []
    for row in table_to_rows(tables.downtime):
        length = row["until"] - max(row["since"], begin)
        if length <= 0:
            continue
        by_reason[row["reason"]] += length
        if row["reason"] not in UNCOUNTED_REASONS:
            by_evidence[row["evidence"]] += length
            delayed += [row["delayed_records"]] * (row["delayed_records"] is not None)
    return _Window(
        since=since,
        until=evidence.last,
        rebalances=[row for row in rebalances if row["at"] >= begin],
        downtime_ms=None if group.downtime_ms is None else by_evidence.total(),
        by_reason=by_reason,
        by_evidence=by_evidence,
        delayed_records=sum(delayed) if delayed else None,
        lag=lag,
    )


def _explanation_json(story: Story, window: _Window, page: Path) -> dict[str, Any]:
    group, evidence = story.groups[0], story.evidence
    return {
        "out": str(Path(story.out).absolute()),
        "page": _page_link(page.absolute(), group.name),
        "demo": evidence.demo,
        "window": {"first": evidence.first, "last": evidence.last},
        "since": window.since,
        **group.to_json(),
        "rebalances_shown": [
            {name: row[name] for name in JSON_COLUMNS} | {"mark": group.mark}
            for row in window.rebalances
        ],
        "cost_shown": {
            "downtime_ms": window.downtime_ms,
            "by_reason": window.by_reason,
            "by_evidence": window.by_evidence,
            "delayed_records": window.delayed_records,
            "lag": None if window.lag is None else asdict(window.lag),
            "marks": dict.fromkeys(("delayed_records", "lag"), EvidenceMark.SAMPLED),
        },
    }


def _page_link(page: Path, group: str) -> str:
    return f"{page}#g={quote(group, safe='')}"


def _explanation_lines(
    story: Story, window: _Window, page: Path, *, is_part: bool
) -> Iterator[Text]:
    group = story.groups[0]
    bold, wrap = partial(Text, style="bold"), partial(map, Text)
    if story.evidence.demo:
        yield from (bold(DEMO_TEXT), Text())
    yield from map(bold, render.wrap_text(f"{group.name}: {_health_text(group)}"))
    short = partial(shorten_times, evidence=story.evidence)
    for line in _health_facts(group):
        yield from wrap(render.wrap_text(short(line), INDENT, INDENT))
    whole = " (whole evidence)" if is_part else ""
    span = f"from {_time(window.since)} to {_time(window.until)}"
    sections: list[tuple[str, Iterable[str]]] = [
        (f"What happened{whole}", render.wrap_text(short(group.happened), INDENT, INDENT)),
        (f"What it cost {span}", _cost_lines(window)),
        (_rebalance_title(window), _rebalance_lines(window.rebalances)),
        (f"Patterns{whole}", _bullet_lines(short(one.text) for one in group.patterns)),
        (f"What to do{whole}", _action_lines(group, short(group.to_do))),
        ("How the numbers are known", _provenance_lines(group, window)),
    ]
    for title, lines in sections:
        shown = list(lines)
        if shown:
            yield from (Text(), bold(title))
            yield from wrap(shown)
    yield Text()
    link = _page_link(page, group.name) if page.exists() else f"rota report {story.out}"
    yield render.printable_text(f"report: {link}")


def _time(milliseconds: int | None) -> str:
    return "an unknown time" if milliseconds is None else format_time(milliseconds)


def _health_text(group: GroupStory) -> str:
    health = group.health
    since = "" if health.since is None else f" since {format_time(health.since)}"
    return f"{health.health}{since}"


def _health_facts(group: GroupStory) -> Iterator[str]:
    health = group.health
    yield health.reason
    if health.worst not in {health.health, GroupHealth.UNKNOWN}:
        yield f"worst: {health.worst}: {health.worst_reason}"


def _cost_lines(window: _Window) -> Iterator[str]:
    counted = {
        name: time for name, time in window.by_reason.items() if name not in UNCOUNTED_REASONS
    }
    listed = [
        f"{format_rounded_duration(time)} {reason}"
        for reason, time in sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    ]
    downtime = "unknown"
    if window.downtime_ms is not None:
        reasons = f" ({', '.join(listed)})" if listed else ""
        downtime = f"{format_rounded_duration(window.downtime_ms)}{reasons}, over all partitions"
    facts = {"downtime": downtime}
    for reason in sorted(UNCOUNTED_REASONS & window.by_reason.keys()):
        facts[reason] = f"{format_rounded_duration(window.by_reason[reason])}, not counted"
    if window.delayed_records is not None:
        facts["delayed"] = count_noun(window.delayed_records, "record")
    if window.lag is not None:
        facts["max lag"] = format_worst_lag(window.lag)
    width = max(map(len, facts)) + len(INDENT)
    for name, text in facts.items():
        first = f"{INDENT}{name:{width}}"
        yield from render.wrap_text(text, first, " " * len(first))


def _rebalance_title(window: _Window) -> str:
    number = len(window.rebalances)
    last = f", the last {SHOWN_REBALANCES}" if number > SHOWN_REBALANCES else ""
    return f"{count_noun(number, 'rebalance')} since {_time(window.since)}{last}"


def _rebalance_lines(rebalances: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rebalances:
        yield f"{INDENT}none"
        return
    rows: list[Sequence[str]] = [("time", "cause", "members", "moves (necessary)", "downtime")]
    for row in rebalances[-SHOWN_REBALANCES:]:
        moved, downtime = row["moved"], row["downtime_ms"]
        rows.append(
            (
                format_time(row["at"]),
                row["cause"] if row["likely"] is None else f"{row['likely']}?",
                f"{row['members_before']} -> {row['members_after']}",
                "unknown" if moved is None else f"{moved:,} ({row['moves_needed']:,})",
                "unknown" if downtime is None else format_rounded_duration(downtime),
            )
        )
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    widths[1] -= max(0, sum(widths) + len(INDENT) * len(widths) - render.TEXT_WIDTH)
    for cells in rows:
        padded = (
            render.pad_cell(render.shorten_name(cell, width), width, right=place > 1)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        yield f"{INDENT}{INDENT.join(padded)}".rstrip()


def _bullet_lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from render.wrap_text(text, f"{INDENT}- ", f"{INDENT}  ")


def _action_lines(group: GroupStory, to_do: str) -> Iterator[str]:
    """Yields the steps for the group's clients; for the most likely one if they are unknown."""
    yield from render.wrap_text(to_do, INDENT, INDENT)
    names = [CLIENT_LIBRARIES[name].name for name in group.libraries if name in CLIENT_LIBRARIES]
    known = [name for name in names if name in group.setting_libraries]
    clients = known or group.setting_libraries[:1]
    number = 0
    for action in group.actions:
        yield from render.wrap_text(f"{action.title}{_saving_text(action)}", INDENT, INDENT)
        for step in action.steps:
            if step.libraries and not set(step.libraries) & set(clients):
                continue
            number += action.kind is not ActionKind.NOTE
            first = f"{INDENT}  - " if action.kind is ActionKind.NOTE else f"{INDENT}{number:2}. "
            rest = " " * len(first)
            yield from render.wrap_text(step.text, first, rest, has_settings=True)
            for line in _setting_lines(step, clients):
                yield f"{rest}{INDENT}{line}"
    if others := [name for name in group.setting_libraries if name not in clients]:
        text = f"for {', '.join(clients)}; --json and the report have those for {', '.join(others)}"
        yield from render.wrap_text(f"These steps are {text}.", INDENT, INDENT)


def _saving_text(action: Action) -> str:
    if not action.saving_ms:
        return ""
    at_most = "at most " if action.saving_is_bound else ""
    return f" (saves {at_most}{format_rounded_duration(action.saving_ms)} of downtime)"


def _setting_lines(step: ActionStep, clients: Sequence[str]) -> Iterator[str]:
    if step.setting is not None:
        yield from step.setting.splitlines()
    for name in filter(step.settings.__contains__, clients):
        if len(clients) > 1:
            yield f"# {name}"
        yield from step.settings[name].splitlines()


def _provenance_lines(group: GroupStory, window: _Window) -> Iterator[str]:
    parts = [
        f"{format_rounded_duration(time)} {how}"
        for how, time in sorted(window.by_evidence.items(), key=lambda item: (-item[1], item[0]))
    ]
    if parts:
        yield from _bullet_lines([f"downtime: {', '.join(parts)}"])
    causes = Counter[str](row["evidence"] for row in window.rebalances)
    if causes:
        listed = ", ".join(f"{number:,} {how}" for how, number in causes.most_common())
        yield from _bullet_lines([f"causes of the rebalances: {listed}"])
    if window.lag is not None:
        yield from _bullet_lines(["lag and delayed records: sampled"])
    if EvidenceMark.REPLAYED in group.marks.values():
        yield from _bullet_lines(["savings: replayed from the same history under the other policy"])
