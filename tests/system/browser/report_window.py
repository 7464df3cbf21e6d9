"""A report that is open in a browser, and what happened in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Locator, Page

from tests.support.waiting import wait_until

Scheme = Literal["light", "dark"]
#: Milliseconds that something may take to come.
PATIENCE = 15_000
WIDE = (1280, 900)
PHONE = (390, 844)
_PIXELS = """([canvas, points, reach]) => {
  const ratio = canvas.width / canvas.clientWidth;
  const copy = new OffscreenCanvas(canvas.width, canvas.height);
  const context = copy.getContext('2d', { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const size = Math.round((2 * reach + 1) * ratio);
  return points.map(([x, y]) => {
    const [left, top] = [x - reach, y - reach].map((place) => Math.round(place * ratio));
    return [...context.getImageData(left, top, size, size).data];
  });
}"""
# two frames; then what the page does when there is time, which comes in the order of asking
_DRAWN = """new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(
  () => requestIdleCallback(done, { timeout: 2000 }))))"""
_PLACE = """(selector) => {
  const box = document.querySelector(selector).getBoundingClientRect();
  if (box.top < 0 || box.bottom > innerHeight) {
    document.querySelector(selector).scrollIntoView({ block: 'center' });
  }
  const now = document.querySelector(selector).getBoundingClientRect();
  return [now.left, now.top];
}"""
Colour = tuple[int, int, int]
Point = tuple[float, float]


@dataclass(slots=True)
class ReportWindow:
    """A page, with all that it asked for and complained of."""

    page: Page
    address: str
    requests: list[str] = field(default_factory=list)
    #: Errors and warnings in the console, errors of scripts, dialogs.
    complaints: list[str] = field(default_factory=list)

    def watch(self) -> None:
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on(
            "console",
            lambda message: (
                self.complaints.append(message.text)
                if message.type in {"error", "warning"}
                else None
            ),
        )

        def refuse(dialog: Any) -> None:
            self.complaints.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        self.page.on("dialog", refuse)

    def locate(self, selector: str, *, has_text: str | None = None) -> Locator:
        return self.page.locator(selector, has_text=has_text)

    def text(self, selector: str) -> str:
        """All text below an element, as it stands in the document."""
        return self.locate(selector).text_content() or ""

    def rows(self) -> list[str]:
        """The groups in the list that can be seen, from the top down."""
        found: list[str] = self.page.evaluate(
            "[...document.querySelectorAll('#groups tbody tr')]"
            ".filter((row) => row.offsetParent).map((row) => row.dataset.group)"
        )
        return found

    def cell(self, group: str, column: str) -> str:
        """A cell of the list."""
        found: str = self.page.evaluate(
            """([group, column]) => {
              const row = [...document.querySelectorAll('#groups tbody tr')]
                .find((one) => one.dataset.group === group);
              return row.querySelector(`.cell-${column}`).textContent.trim();
            }""",
            [group, column],
        )
        return found

    def open(self, group: str) -> None:
        """Opens a group by the link in the list."""
        place = self.rows().index(group)
        self.locate("#groups tbody tr").nth(place).locator("a").click()
        self.wait("(name) => document.getElementById('group-name')?.textContent === name", group)
        self.settle()

    def back(self) -> None:
        """Goes back to the list; the browser tells the page of it a moment after the click."""
        self.locate("#back").click()
        self.locate("#overview").wait_for(state="visible")

    def wait(self, expression: str, about: object = None) -> None:
        """Waits until something is true in the page, which forbids the browser's own way to wait:
        that evaluates text.
        """
        wait_until(expression, lambda: self.page.evaluate(expression, about))

    def settle(self) -> None:
        """Waits until what was asked for is drawn."""
        self.page.evaluate(_DRAWN)

    def image(self, canvas: str) -> str:
        """All pixels of a canvas, as one text."""
        self.settle()
        found: str = self.page.evaluate(
            "(selector) => document.querySelector(selector).toDataURL()", canvas
        )
        return found

    def colours(self, canvas: str, points: Sequence[Point]) -> list[Colour]:
        """The colour that prevails around each point: letters and lines are thin."""
        raw = self.page.evaluate(_PIXELS, [self.locate(canvas).element_handle(), list(points), 3])
        return [Counter(zip(*[iter(one)] * 4, strict=True)).most_common(1)[0][0][:3] for one in raw]

    def css_colour(self, name: str) -> Colour:
        """A colour of the page's own."""
        text: str = self.page.evaluate(
            "(name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`)",
            name,
        )
        red, green, blue = bytes.fromhex(text.strip().removeprefix("#"))
        return red, green, blue

    def box(self, selector: str) -> dict[str, float]:
        """Where an element is, in the page's pixels."""
        found = self.locate(selector).bounding_box()
        assert found is not None, f"{selector} is not shown"
        return {
            "x": found["x"],
            "y": found["y"],
            "width": found["width"],
            "height": found["height"],
        }

    def tip_at(self, canvas: str, point: Point) -> str:
        """What the tip says of a point."""
        left, top = self.page.evaluate(_PLACE, canvas)
        self.page.mouse.move(left + point[0], top + point[1])
        found: str = self.page.evaluate("document.getElementById('tip').textContent")
        return found

    def leave_canvas(self) -> None:
        """The pointer goes away."""
        self.page.mouse.move(1, 1)
        self.settle()

    def tab_to(self, reached: Callable[[], bool], most: int = 80) -> int:
        """Presses Tab until something has the focus; how often."""
        for number in range(1, most + 1):
            self.page.keyboard.press("Tab")
            if reached():
                return number
        raise AssertionError(f"not reached by {most} times Tab; at {self.focused()}")

    def focused(self) -> str:
        """The element that has the focus: its id, or its text."""
        found: str = self.page.evaluate(
            "document.activeElement.id || document.activeElement.textContent"
        )
        return found


def open_window(
    browser: Browser,
    report: Path,
    *,
    scheme: Scheme = "light",
    size: tuple[int, int] = WIDE,
    javascript: bool = True,
    touch: bool = False,
    timezone: str = "UTC",
) -> Iterator[ReportWindow]:
    """A report in a window of its own. When it is closed, it has asked for nothing but itself, and
    has complained of nothing.
    """
    context = browser.new_context(
        color_scheme=scheme,
        viewport={"width": size[0], "height": size[1]},
        java_script_enabled=javascript,
        has_touch=touch,
        timezone_id=timezone,
    )
    context.set_default_timeout(PATIENCE)
    try:
        address = report.resolve().as_uri()
        found = ReportWindow(context.new_page(), address)
        found.watch()
        found.page.goto(address)
        yield found
        assert {url.partition("#")[0] for url in found.requests} == {address}
        assert found.complaints == []
    finally:
        context.close()
