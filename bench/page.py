"""The report of a large cluster in a real Chromium: how large its file is, how soon something is
seen, and how long it takes to answer.

An interaction is timed from its event until the frame that shows its result. The page is idle
before: users do not click within the first second. The limit applies to the median of all tries;
the row also shows the slowest try, because another process often delays a frame on two cores.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from playwright.sync_api import Browser, Page
from tests.support.chromium import find_or_fetch_chromium
from tests.support.gold_tables import write_large
from tests.support.missing_tool import Unavailable

from bench.limit import LIMITS, Limit, format_seconds
from bench.measure import Measurement
from bench.run import Row, Run
from rota.report import story
from rota.report.page import document

Interaction: TypeAlias = Callable[[Page], Sequence[float]]

GROUPS, PARTITIONS, REBALANCES = 500, 6_000, 10_000
SIZE = f"{GROUPS:,} groups, {PARTITIONS:,} partitions, {REBALANCES:,} rebalances"
#: A group that rebalances every nine seconds, all day long, and a group with many partitions.
RESTLESS = (100, 10_000)
WIDE = (2_000, 200)
OPENINGS = 5
#: Milliseconds before the first interaction, and after a group is opened.
REST = 1_000
#: Milliseconds from where a pointer is on a link to the press.
PRESS = 200
PAINTED = """() => {
  const entry = performance.getEntriesByName('first-contentful-paint')[0];
  return entry ? entry.startTime : null;
}"""
#: Milliseconds. What is awaited is there, and two frames later it is seen.
ANSWERED = """([selector, kind, value, awaited]) => new Promise((done) => {
  const frames = (left) => (left ? requestAnimationFrame(() => frames(left - 1))
    : done(performance.now() - begun));
  const wait = () => {
    const found = !awaited || document.querySelector(awaited);
    if (found) frames(2); else requestAnimationFrame(wait);
  };
  const target = document.querySelector(selector);
  const begun = performance.now();
  if (kind === 'input') {
    target.value = value;
    target.dispatchEvent(new InputEvent('input', { bubbles: true }));
  } else if (kind === 'key') {
    target.dispatchEvent(new KeyboardEvent('keydown', { key: value, bubbles: true }));
  } else if (kind === 'wheel') {
    const { width, height } = target.getBoundingClientRect();
    const { left, top } = target.getBoundingClientRect();
    target.dispatchEvent(new WheelEvent('wheel', { deltaY: value, ctrlKey: true, bubbles: true,
      cancelable: true, clientX: left + width / 2, clientY: top + height / 2 }));
  } else target.click();
  wait();
})"""
CHART = "#group .chart-box canvas:first-child"
SORTED = ("name", "downtime", "rebalances", "lag", "strategy", "saving")
SEARCHED = ("s", "service-0", "team-07", "no such group", "")
#: What is done on the overview besides sorting and searching.
FILTERED = (
    ("#timeline", "key", "ArrowRight"),
    ("#timeline", "key", "ArrowRight"),
    ("#timeline-all", "click", None),
    ("#timeline", "key", "ArrowRight"),
    ("#timeline", "key", "Escape"),
    ("#cause-filter button", "click", None),
    ("#cause-filter button", "click", None),
    ("#local", "click", None),
    ("#utc", "click", None),
)
ZOOMED = (
    (CHART, "key", "+"),
    (CHART, "wheel", -100),
    (CHART, "key", "ArrowRight"),
    (CHART, "wheel", 100),
    (CHART, "key", "0"),
)
#: The panel of a rebalance: the next one, the one after it, closed.
PANEL = ((CHART, "key", "n"), ("#chart", "key", "n"), ("#chart", "key", "Escape"))


def run(bench: Run) -> Iterator[Row]:
    """Size, paint and answers."""
    try:
        found = find_or_fetch_chromium()
    except Unavailable as error:
        bench.notes.append(f"Z (page) did not run: {error}")
        bench.print_progress(f"!! Z is LEFT OUT: {error}")
        return
    bench.print_progress(f"   tables of {SIZE}")
    folder = bench.folder / "page"
    folder.mkdir()
    write_large(folder, groups=GROUPS, partitions=PARTITIONS, rebalances=REBALANCES)
    written, size = _measure_write(folder)
    single = {}
    for partitions, rebalances in (RESTLESS, WIDE):
        name = f"a group of {partitions:,} partitions, {rebalances:,} rebalances"
        single[name] = bench.folder / f"page-{partitions}"
        single[name].mkdir()
        write_large(single[name], groups=1, partitions=partitions, rebalances=rebalances)
        _measure_write(single[name])
    work = f"report of {SIZE}: written (peak: the file)"
    yield Row(
        work=work,
        ours=Measurement(seconds=written, peak=size),
        theirs={},
        limit=LIMITS["page-file"],
    )
    with found.started() as browser:
        bench.print_progress(f"   Chromium {browser.version}")
        took = _measure_page(browser, folder / "report.html", bench, _INTERACTIONS)
        for name, other in single.items():
            listed = {f"{what} {name}": measure for what, measure in _OF_ONE_GROUP.items()}
            found_there = _measure_page(browser, other / "report.html", bench, listed)
            took |= {what: seconds for what, seconds in found_there.items() if what in listed}
    for what, seconds in took.items():
        middle, worst = statistics.median(seconds), max(seconds)
        bench.notes.append(
            f"Z: {what}: {format_seconds(middle)} in the middle, "
            f"{format_seconds(worst)} at worst, of {len(seconds)}"
        )
        yield Row(
            work=f"report: {what}, in the middle of {len(seconds)}",
            ours=Measurement(seconds=middle),
            theirs={},
            limit=_limit(what),
        )


def _limit(what: str) -> Limit:
    return LIMITS["page-paint" if what == "first paint" else "page-interaction"]


def _measure_write(folder: Path) -> tuple[float, int]:
    """Seconds that it takes to write the page, and its bytes."""
    begun = time.monotonic()
    read = story.read_gold_tables(str(folder))
    document.write_page(story.build_story(read), read, folder / "report.html")
    return time.monotonic() - begun, (folder / "report.html").stat().st_size


def _measure_page(
    browser: Browser, report: Path, bench: Run, interactions: Mapping[str, Interaction]
) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {"first paint": []}
    for _ in range(OPENINGS):
        window = browser.new_page(viewport={"width": 1440, "height": 900})
        window.goto(report.as_uri())
        window.wait_for_function(PAINTED)
        took["first paint"].append(window.evaluate(PAINTED) / 1_000)
        window.wait_for_timeout(REST)
        for what, measure in interactions.items():
            took.setdefault(what, []).extend(measure(window))
        window.close()
    for what, seconds in took.items():
        bench.print_progress(f"   {what}: {', '.join(format_seconds(each) for each in seconds)}")
    return took


def _measure_answer(
    window: Page, selector: str, kind: str, value: object = None, awaited: str | None = None
) -> float:
    """Seconds until an event is answered."""
    milliseconds: float = window.evaluate(ANSWERED, [selector, kind, value, awaited])
    return milliseconds / 1_000


def _sort(window: Page) -> Sequence[float]:
    return [
        _measure_answer(window, f"#groups button[data-sort={each}]", "click") for each in SORTED
    ]


def _search(window: Page) -> Sequence[float]:
    return [_measure_answer(window, "#search", "input", text) for text in SEARCHED]


def _do(*steps: tuple[str, str, object]) -> Interaction:
    return lambda window: [_measure_answer(window, *each) for each in steps]


def _open(window: Page) -> Sequence[float]:
    """The largest group, which has the most downtime too."""
    heading = "#groups th[aria-sort=descending] button[data-sort=downtime]"
    while window.locator(heading).count() == 0:
        _measure_answer(window, "#groups button[data-sort=downtime]", "click")
    link = "#groups tbody tr:first-child a"
    window.hover(link)  # as every pointer does, and then somebody presses
    window.wait_for_timeout(PRESS)
    took = [_measure_answer(window, link, "click", awaited="#group:not([hidden])")]
    window.wait_for_timeout(REST)
    return took


def _back(window: Page) -> Sequence[float]:
    return [_measure_answer(window, "#back", "click", awaited="#overview:not([hidden])")]


_INTERACTIONS: Mapping[str, Interaction] = {
    "sort": _sort,
    "search": _search,
    "filter and select a time range": _do(*FILTERED),
    "open the largest group": _open,
    "zoom and move": _do(*ZOOMED),
    "show rebalances": _do(*PANEL),
    "back to the overview": _back,
}
_OF_ONE_GROUP: Mapping[str, Interaction] = {
    "open": _open,
    "zoom and move in": _do(*ZOOMED),
    "show rebalances of": _do(*PANEL),
}
