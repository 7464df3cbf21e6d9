"""A timeline as a picture in plain characters, for any terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise

from rich.text import Text

from rota.sim.duration import clock
from rota.sim.lane import Change, Doing, lanes
from rota.sim.result import Simulation
from rota.sim.standstill import Stop

NARROWEST = 40
LONGEST_NAME = 24
SHOWN_ROWS = 40
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
MARKS = {Doing.IDLE: "-", Doing.JOINING: "~", Doing.ASLEEP: "!", Doing.GONE: "."}
STYLES = {
    Doing.READING: "green",
    Doing.IDLE: "yellow",
    Doing.JOINING: "yellow",
    Doing.ASLEEP: "red",
    Doing.GONE: "red",
}
LEGEND = (
    "a digit: partitions it has (a is 10, b 11, ..., + over 35)   ~ joining   - nothing to do\n"
    ". gone   ! frozen, or stuck outside of poll   | an event, or a rebalance begins\n"
    "a digit above the members: several events or rebalances; partitions that stood still at once"
)
TICK = 10
"""How many columns there are from one time on the axis to the next."""


def picture(simulation: Simulation, width: int, *, everything: bool = False) -> list[Text]:
    """The lines of the picture: one row a process, one column a stretch of time."""
    rows = lanes(simulation.trace)
    shown = list(rows) if everything else list(rows)[:SHOWN_ROWS]
    labels = [_plain(name) for name in shown]
    margin = min(max([len(label) for label in labels] + [len("rebalances")]), LONGEST_NAME) + 2
    columns = max(width, NARROWEST) - margin
    end = simulation.scenario.duration
    edges = [end * column // columns for column in range(columns + 1)]
    lines = [_line("h:mm:ss", margin, _axis(edges))]
    if simulation.scenario.events:
        moments = [event.at for event in simulation.scenario.events]
        lines.append(_line("events", margin, _counts(edges, moments)))
    lines += [
        _line("rebalances", margin, _counts(edges, [r.start for r in simulation.rebalances])),
        _line("stopped", margin, _stopped(edges, simulation.stops), "red"),
    ]
    for name, label in zip(shown, labels, strict=True):
        line = Text(_fitted(label, margin))
        for doing, cells in groupby(_cells(rows[name], edges), key=lambda cell: cell[0]):
            line.append("".join(mark for _, mark in cells), STYLES[doing])
        lines.append(line)
    if len(rows) > len(shown):
        lines.append(Text(f"... {len(rows) - len(shown)} more: --all shows them"))
    return lines


def _line(label: str, margin: int, marks: str, style: str = "") -> Text:
    return Text(_fitted(label, margin)).append(marks.rstrip(), style)


def _fitted(label: str, margin: int) -> str:
    short = label if len(label) <= margin - 2 else label[: margin - 4] + ".."
    return short.ljust(margin)


def _plain(name: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def _axis(edges: Sequence[int]) -> str:
    marks = ""
    for column in range(0, len(edges) - 1, TICK):
        marks = marks.ljust(column) + clock(edges[column] // 1000 * 1000)
    return marks


def _counts(edges: Sequence[int], moments: Sequence[int]) -> str:
    marks = ""
    for since, until in pairwise(edges):
        last = until if until == edges[-1] else until - 1  # the end belongs to the last column
        count = sum(since <= moment <= last for moment in moments)
        marks += " " if not count else "|" if count == 1 else _digit(count)
    return marks


def _stopped(edges: Sequence[int], stops: Sequence[Stop]) -> str:
    """The most partitions that stood still at once within each column."""
    turns: Mapping[int, int] = _turns(stops)
    moments = sorted(turns)
    marks, standing, position = "", 0, 0
    for until in edges[1:]:
        most = standing
        while position < len(moments) and moments[position] < until:
            standing += turns[moments[position]]
            most = max(most, standing)
            position += 1
        marks += _digit(most) if most else " "
    return marks


def _turns(stops: Sequence[Stop]) -> dict[int, int]:
    turns: dict[int, int] = {}
    for stop in stops:
        turns[stop.since] = turns.get(stop.since, 0) + 1
        turns[stop.until] = turns.get(stop.until, 0) - 1
    return turns


def _cells(changes: Sequence[Change], edges: Sequence[int]) -> list[tuple[Doing, str]]:
    """What to show for each column: that it was gone or asleep at any time, else how it ended."""
    cells = []
    position = -1
    for since, until in pairwise(edges):
        seen = [changes[position]] if position >= 0 else []
        while position + 1 < len(changes) and changes[position + 1].at < until:
            position += 1
            if changes[position].at <= since:
                seen.clear()
            seen.append(changes[position])
        cells.append(_cell(seen))
    return cells


def _cell(seen: Sequence[Change]) -> tuple[Doing, str]:
    if not seen:
        return Doing.IDLE, " "
    for doing in (Doing.GONE, Doing.ASLEEP):
        if any(change.doing is doing for change in seen):
            return doing, MARKS[doing]
    last = seen[-1]
    if last.doing is Doing.READING:
        return Doing.READING, _digit(last.load)
    return last.doing, MARKS[last.doing]


def _digit(number: int) -> str:
    return DIGITS[number] if number < len(DIGITS) else "+"
