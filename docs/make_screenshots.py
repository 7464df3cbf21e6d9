"""Makes the pictures of the report and the demo's output in README.md: ``make screenshots``.

``rota run --demo`` runs in a folder of its own; what it prints stands between the marks in the
README, and its report is opened in a Chromium (:mod:`tests.support.chromium`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page
from tests.support.chromium import find_or_fetch_chromium

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
LIST, GROUP = HERE / "report-list.png", HERE / "report-group.png"
OUT = "rota-demo"
WIDTH, HEIGHT = 1440, 900
#: Of the demo: an autoscaler causes the rebalances, and another policy moves fewer partitions.
SHOWN = "search-indexer"
#: Bytes of a picture that a README can carry.
LARGEST = 400_000
BLOCK = re.compile(r"(<!-- demo -->\n).*?(<!-- /demo -->)", re.DOTALL)


def main() -> None:
    """Runs the demo, and writes all three."""
    with tempfile.TemporaryDirectory() as folder:
        printed = demo(Path(folder))
        README.write_text(with_demo(README.read_text("utf-8"), printed), "utf-8")
        with find_or_fetch_chromium().started() as browser:
            pictures(browser, Path(folder) / OUT / "report.html")


def demo(folder: Path) -> str:
    """What ``rota run --demo`` prints into a terminal of 80 columns, run in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "rota", "run", "--demo"],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def with_demo(readme: str, printed: str) -> str:
    """The README with this output between its marks."""
    block = f"\n```text\n{printed.rstrip()}\n```\n\n"
    found, number = BLOCK.subn(lambda marks: f"{marks[1]}{block}{marks[2]}", readme)
    if number != 1:
        raise SystemExit(f"{README.name} has {number} places for the demo, not one: <!-- demo -->")
    return found


def pictures(browser: Browser, report: Path) -> None:
    """The overview, and a group down to the legend of its chart: :data:`SHOWN`, or the worst."""
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    page.goto(report.resolve().as_uri())
    page.locator("#groups").wait_for()
    taken(page, LIST)
    links = page.locator("#groups tbody a")
    chosen = links.filter(has_text=SHOWN)
    (chosen if chosen.count() == 1 else links).first.click()
    page.locator("#group").wait_for(state="visible")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    bottom = page.evaluate(
        "Math.ceil(scrollY + 16 + "
        "document.querySelector('#group .legend').getBoundingClientRect().bottom)"
    )
    page.set_viewport_size({"width": WIDTH, "height": int(bottom)})
    page.evaluate("scrollTo(0, 0)")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    taken(page, GROUP)
    page.close()


def taken(page: Page, path: Path) -> None:
    """A picture of what is in sight."""
    page.screenshot(path=path, scale="css", animations="disabled", caret="hide")
    size = path.stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{path.name} has {size:,} bytes: more than {LARGEST:,}")


if __name__ == "__main__":
    main()
