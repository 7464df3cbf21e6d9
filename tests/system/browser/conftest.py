"""Reports of made-up tables, open in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from playwright.sync_api import Browser

from rota.report.page.document import write_page
from rota.report.story import GoldTables, build_story, read_gold_tables
from tests.support import gold_tables
from tests.support.chromium import find_fetched_chromium, find_or_fetch_chromium
from tests.support.gold_history import HOUR, History
from tests.system.browser.report_window import WIDE, ReportWindow, Scheme, open_window

UNREAD = [
    ("records of an unknown version", 3, ["partition 7, offset 12: version 99"]),
    ("torn records", 1_234, ["partition 1, offset 5"]),
]
#: Names of groups that cannot be seen, and how they are shown.
UNSEEN = {"": "(no name)", "  ": "\\u{20}\\u{20}", "\u200b\u2060": "\\u{200b}\\u{2060}"}


def write_unseen_groups(folder: Path) -> Path:
    histories = [History(group=name, topics={"plain": 4}) for name in UNSEEN]
    for history in histories:
        history.join(["one", "two"], gold_tables.MORNING)
        history.deploy(gold_tables.MORNING + HOUR)
    return gold_tables.build_tables(histories).write(folder, None)


MADE: dict[str, Callable[[Path], Path]] = {
    "small": lambda folder: gold_tables.write_small(
        folder, gold_tables.Run(unread=UNREAD, polled=True, partial=["audit"])
    ),
    "demo": lambda folder: gold_tables.write_small(folder, gold_tables.Run(demo=True)),
    "sick": gold_tables.write_sick,
    "hostile": gold_tables.write_hostile,
    "changing": gold_tables.write_strategy_changes,
    "course": gold_tables.write_spread_rebalances,
    "nothing": gold_tables.write_empty,
    "unseen": write_unseen_groups,
    "large": gold_tables.write_large,
    "crowd": lambda folder: gold_tables.write_large(
        folder, groups=250, partitions=500, rebalances=1_000
    ),
    "many": lambda folder: gold_tables.write_large(
        folder, groups=30, partitions=600, rebalances=3_000
    ),
}


class Opener(Protocol):
    """Opens a report of some tables."""

    def __call__(
        self,
        tables: str = "small",
        *,
        scheme: Scheme = "light",
        size: tuple[int, int] = WIDE,
        javascript: bool = True,
        touch: bool = False,
        timezone: str = "UTC",
    ) -> ReportWindow: ...


@pytest.fixture(scope="package")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    """A Chromium; one for this folder, since playwright keeps a loop that others would meet.

    ``make test`` fetches none: its one page is shown where a Chromium is there already.
    """
    may_fetch = any(item.get_closest_marker("check") for item in request.session.items)
    found = find_or_fetch_chromium() if may_fetch else find_fetched_chromium()
    with found.started() as started:
        yield started


@pytest.fixture(scope="package")
def make_report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of some tables, with their report in it, made once."""
    known: dict[str, Path] = {}

    def find(name: str) -> Path:
        if name not in known:
            folder = MADE[name](tmp_path_factory.mktemp(name))
            read = read_gold_tables(str(folder))
            write_page(build_story(read), read, folder / "report.html")
            known[name] = folder
        return known[name]

    return find


@pytest.fixture
def read_tables(make_report: Callable[[str], Path]) -> Callable[[str], GoldTables]:
    """What is in the tables of a report."""
    return lambda name: read_gold_tables(str(make_report(name)))


@pytest.fixture
def open_report(browser: Browser, make_report: Callable[[str], Path]) -> Iterator[Opener]:
    """Opens reports; they are closed at the test's end, where each must have been quiet."""
    with ExitStack() as stack:

        def find(
            tables: str = "small",
            *,
            scheme: Scheme = "light",
            size: tuple[int, int] = WIDE,
            javascript: bool = True,
            touch: bool = False,
            timezone: str = "UTC",
        ) -> ReportWindow:
            window = contextmanager(open_window)(
                browser,
                make_report(tables) / "report.html",
                scheme=scheme,
                size=size,
                javascript=javascript,
                touch=touch,
                timezone=timezone,
            )
            return stack.enter_context(window)

        yield find
