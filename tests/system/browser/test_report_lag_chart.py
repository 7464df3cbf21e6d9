"""What the charts of moves and of lag show, read from their pixels and from what they write.

A chart's frame is found in its picture; where a time and an amount must be in it is computed here,
from the tables. Nothing is known here of how the page packs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rota.report.story import GoldTables
from tests.support.gold_tables import LAGS
from tests.system.browser.conftest import Opener
from tests.system.browser.report_window import ReportWindow

#: Pixels between the largest amount and the frame.
HEADROOM = 4
#: Pixels: how wide a bar is that has room (or one more, of which two are halves), and how high the
#: tick at the fewest.
WIDE_BAR, TICK = 7, 3
#: Pixels that a place may be off: it is rounded once or twice.
NEAR = 1.6
_SPY = """() => {
  window.written = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    window.written.push([this.canvas.id, text, x, y, this.textAlign]);
    return write.call(this, text, x, y);
  };
}"""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart's picture, and where in it times and amounts are."""

    pixels: NDArray[np.uint8]
    left: int
    right: int
    top: int
    #: The frame's lines.
    bottom: int
    begin: datetime
    end: datetime
    #: The largest amount in sight.
    most: float
    #: What is written, where, and how it is set.
    texts: Sequence[tuple[str, float, float, str]]

    def x(self, at: datetime) -> float:
        share = (at - self.begin) / (self.end - self.begin)
        return self.left + 1 + share * (self.right - self.left - 1)

    def y(self, amount: float) -> float:
        """The upper edge of what is so high."""
        highest = self.top + 1 + HEADROOM
        return self.bottom - amount / self.most * (self.bottom - highest)

    def pixels_of(self, ink: tuple[int, int, int]) -> NDArray[np.bool_]:
        """Where a colour is, for at least half a pixel."""
        found = np.abs(self.pixels[:, :, :3].astype(int) - np.array(ink)).max(axis=2) <= 2
        return np.asarray(found & (self.pixels[:, :, 3] > 120))

    def amounts(self) -> dict[str, float]:
        """What is written at the left, and at which height."""
        return {text: y for text, x, y, how in self.texts if how == "right" and x < self.left}

    def times(self) -> dict[str, float]:
        """What is written below, and how far from the left."""
        return {text: x for text, x, y, how in self.texts if how == "center" and y > self.bottom}


def open_group(report: Opener, group: str) -> ReportWindow:
    """A group's view, of which it is known what its charts write."""
    window = report("course")
    window.page.evaluate(_SPY)
    window.open(group)
    window.wait("window.written.some(([id]) => id === 'lag')")
    return window


def read_chart(window: ReportWindow, canvas: str, most: float) -> Chart:
    """A chart as it is shown now, drawn anew."""
    window.page.evaluate("window.written = []")
    window.page.evaluate("dispatchEvent(new Event('resize'))")
    begin, end = window.shown_times()
    pixels = window.pixels(f"#{canvas}")
    left, right, top, bottom = chart_frame(pixels, window.css_colour("line"))
    written = window.page.evaluate("window.written")
    texts = [(text, x, y, how) for name, text, x, y, how in written if name == canvas]
    return Chart(pixels, left, right, top, bottom, begin, end, most, texts)


def chart_frame(pixels: NDArray[np.uint8], ink: tuple[int, int, int]) -> tuple[int, int, int, int]:
    """The first and the last column, and line, that is of the colour of lines for most of it."""
    lines = (pixels[:, :, :3] == np.array(ink)).all(axis=2) & (pixels[:, :, 3] == 255)
    columns = np.flatnonzero(lines.sum(axis=0) > 0.6 * lines.sum(axis=0).max())
    rows = np.flatnonzero(lines.sum(axis=1) > 0.6 * lines.sum(axis=1).max())
    return int(columns[0]), int(columns[-1]), int(rows[0]), int(rows[-1])


def group_rows(table: Any, group: str) -> list[dict[str, Any]]:
    found = [row for row in table.to_pylist() if row["group"] == group]
    return sorted(found, key=lambda row: row["at"])


def expected_bars(shown: Chart, rebalances: Sequence[dict[str, Any]]) -> dict[int, tuple[int, int]]:
    """What must be drawn: by the bar's place, moved and needed; of those that share a place those
    of the rebalance that moved the most.
    """
    found: dict[int, tuple[int, int]] = {}
    for row in rebalances:
        if shown.begin <= row["at"] <= shown.end:
            x = round(shown.x(row["at"]))
            new = row["moved"], row["moves_needed"]
            found[x] = max(found.get(x, (-1, -1)), new, key=lambda one: one[0])
    return found


def most_moves(rebalances: Sequence[dict[str, Any]]) -> int:
    found: int = max(max(row["moved"], row["moves_needed"]) for row in rebalances)
    return found


def assert_bars_drawn(
    window: ReportWindow, shown: Chart, expected: dict[int, tuple[int, int]]
) -> None:
    """Each bar is as high as what moved, with a tick at the fewest; nothing else is drawn."""
    bar, tick = (
        shown.pixels_of(window.css_colour("bar")),
        shown.pixels_of(window.css_colour("need")),
    )
    rest = bar | tick
    for place, (moved, needed) in expected.items():
        half = WIDE_BAR // 2
        middle = min(max(place, shown.left + 1 + half), shown.right - 1 - half)
        columns = slice(max(middle - half - 2, 0), middle + half + 3)
        ticks = np.flatnonzero(tick[:, middle])
        if needed:
            assert len(ticks) in {TICK - 1, TICK}, (place, ticks)
            assert abs(ticks.mean() + 0.5 - shown.y(needed)) <= NEAR, (place, needed, ticks)
        else:  # the frame goes through it
            assert shown.bottom - 1 in ticks, (place, ticks)
            assert np.abs(ticks + 0.5 - shown.bottom).max() <= TICK, (place, ticks)
        filled = np.flatnonzero(bar[:, middle] | tick[:, middle])
        if moved > needed:
            assert abs(filled[0] - shown.y(moved)) <= NEAR, (place, moved, filled)
            height = round(shown.bottom - shown.y(moved))
            assert abs(len(filled) - height) <= 3, (place, moved, filled)
        wide = bar[:, columns].any(axis=0).sum()
        assert wide in ({WIDE_BAR, WIDE_BAR + 1} if moved else {0}), (place, moved, wide)
        rest[:, columns] = False
    assert not rest.any(), np.argwhere(rest)


def test_every_rebalance_has_a_bar_as_high_as_it_moved_and_a_tick_at_the_fewest(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_group(open_report, "aged")
    rebalances = group_rows(read_tables("course").rebalances, "aged")
    shown = read_chart(window, "moves", most_moves(rebalances))
    expected = expected_bars(shown, rebalances)
    assert len(expected) == len(rebalances) - 1 == 7  # two are within seconds
    assert len({moved for moved, _ in expected.values()}) >= 4
    assert any(moved > needed > 0 for moved, needed in expected.values())
    assert_bars_drawn(window, shown, expected)


def test_of_a_stretch_only_its_bars_are_drawn_against_its_own_most(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_group(open_report, "aged")
    rebalances = group_rows(read_tables("course").rebalances, "aged")
    for button, times in (("#zoom-in", 2), ("#earlier", 8)):
        for _ in range(times):
            window.locate(button).click()
    begin, end = window.shown_times()
    inside = [row for row in rebalances if begin <= row["at"] <= end]
    assert 1 < len(inside) < len(rebalances)
    shown = read_chart(window, "moves", max(most_moves(inside), 1))
    assert shown.most < most_moves(rebalances)
    assert_bars_drawn(window, shown, expected_bars(shown, inside))


def test_two_rebalances_within_seconds_are_told_apart_when_they_are_near(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_group(open_report, "aged")
    rebalances = group_rows(read_tables("course").rebalances, "aged")
    first, second = next(
        (one, other)
        for one, other in pairwise(rebalances)
        if other["at"] - one["at"] < timedelta(minutes=1)
    )
    window.locate("#moves").focus()
    for _ in range(rebalances.index(second) + 1):
        window.page.keyboard.press("Shift+ArrowRight")
    for _ in range(5):
        window.page.keyboard.press("+")
    window.page.keyboard.press("Escape")
    begin, end = window.shown_times()
    assert begin < first["at"] < second["at"] < end
    shown = read_chart(window, "moves", max(most_moves([first, second]), 1))
    expected = expected_bars(shown, rebalances)
    assert len(expected) == 2
    assert_bars_drawn(window, shown, expected)


def test_the_scale_of_moves_says_what_is_at_which_height(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_group(open_report, "aged")
    shown = read_chart(
        window, "moves", most_moves(group_rows(read_tables("course").rebalances, "aged"))
    )
    amounts = shown.amounts()
    assert amounts.keys() == {"0", "5"}
    line = shown.pixels_of(window.css_colour("line"))
    for text, height in amounts.items():
        assert abs(height - shown.y(float(text))) <= 1, text
        assert line[round(height - 0.5), shown.left : shown.right].mean() > 0.5, text


@pytest.mark.parametrize("canvas", ["moves", "lag"])
def test_times_stand_where_they_are(
    canvas: str, open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_group(open_report, "aged")
    for _ in range(2):
        shown = read_chart(window, canvas, 1)
        times = shown.times()
        assert len(times) >= 3
        inner = sorted(times.items(), key=lambda one: one[1])[1:-1]
        for text, x in inner:
            hours, minutes = map(int, text.split(":"))
            at = shown.begin.replace(hour=hours, minute=minutes, second=0)
            assert abs(x - shown.x(at)) <= NEAR, text
        window.locate("#zoom-in").click()


LAG = {
    "aged": [(seconds, f"{seconds} s") for seconds, _ in LAGS],
    "ageless": [(records, f"{records:,}") for _, records in LAGS],
}


@pytest.mark.parametrize("group", list(LAG))
def test_lag_is_as_high_as_the_most_of_the_partitions_at_that_time(
    group: str, open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_group(open_report, group)
    most = max(amount for amount, _ in LAG[group])
    shown = read_chart(window, "lag", most)
    lag_rows = group_rows(read_tables("course").lag, group)
    times = sorted({row["at"] for row in lag_rows})
    assert len(times) == len(LAGS)
    accent = shown.pixels_of(window.css_colour("accent"))
    for at, (amount, _) in zip(times, LAG[group], strict=True):
        column = round(shown.x(at) + 0.5)
        filled = np.flatnonzero(accent[:, column - 3 : column + 3].any(axis=1))
        height = shown.bottom - filled[0] if len(filled) else 0
        assert abs(height - (shown.bottom - shown.y(amount))) <= 2, (at, amount, height)
    highest = np.flatnonzero(accent.any(axis=1))[0]
    assert abs(highest - shown.y(most)) <= 2
    worst = times[[amount for amount, _ in LAG[group]].index(most)]
    (columns,) = np.nonzero(accent[round(highest) : round(highest) + 3].any(axis=0))
    assert abs(columns.mean() - shown.x(worst)) <= 4


@pytest.mark.parametrize(
    ("group", "labels"),
    [("aged", {"0 s": 0, "5 min": 300, "10 min": 600}), ("ageless", {"0": 0, "5,000": 5_000})],
)
def test_the_scale_of_lag_says_what_is_at_which_height(
    group: str, labels: dict[str, int], open_report: Opener
) -> None:
    window = open_group(open_report, group)
    shown = read_chart(window, "lag", max(amount for amount, _ in LAG[group]))
    amounts = shown.amounts()
    assert amounts.keys() == labels.keys()
    for text, amount in labels.items():
        assert abs(amounts[text] - shown.y(amount)) <= 1, text


@pytest.mark.parametrize("group", list(LAG))
def test_the_tip_says_the_lag_that_is_drawn(
    group: str, open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_group(open_report, group)
    shown = read_chart(window, "lag", 1)
    times = sorted({row["at"] for row in group_rows(read_tables("course").lag, group)})
    message = {"240 s": "4 min", "300 s": "5 min", "600 s": "10 min"}
    for at, (_, text) in zip(times, LAG[group], strict=True):
        tips = [window.tip_at("#lag", (shown.x(at) + by, 60)) for by in (-0.5, 0, 0.5)]
        assert any(f"Z: up to {message.get(text, text)} (sampled)" in tip for tip in tips), (
            at,
            tips,
        )
