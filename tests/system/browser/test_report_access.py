"""Everyone can use the report: with keys alone, with a screen reader, at night, on a phone."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.system.browser.conftest import Opener
from tests.system.browser.report_window import PHONE, ReportWindow, Scheme, tip_owner

SCHEMES: tuple[Scheme, ...] = ("light", "dark")


def violations(window: ReportWindow) -> list[str]:
    found = Axe().run(window.page).response["violations"]
    return [
        f"{one['id']}: {node['html']} ({node['failureSummary']})"
        for one in found
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("read_tables", ["small", "demo", "hostile", "nothing"])
def test_axe_finds_nothing_in_the_list(
    read_tables: str, scheme: Scheme, open_report: Opener
) -> None:
    assert violations(open_report(read_tables, scheme=scheme)) == []


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("group", ["orders-app", "audit", "billing", "connect-sink"])
def test_axe_finds_nothing_in_a_group(group: str, scheme: Scheme, open_report: Opener) -> None:
    window = open_report(scheme=scheme)
    window.open(group)
    assert violations(window) == []
    details = window.locate("details summary").all()
    for summary in details:
        if summary.is_visible():
            summary.click()
    assert violations(window) == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_on_a_phone(scheme: Scheme, open_report: Opener) -> None:
    window = open_report(scheme=scheme, size=PHONE)
    assert violations(window) == []
    window.open("orders-app")
    assert violations(window) == []


def test_a_group_is_reached_and_left_with_keys_alone(open_report: Opener) -> None:
    window = open_report()
    page = window.page
    window.tab_to(lambda: window.focused() == "audit")
    page.keyboard.press("Enter")
    window.locate("#group").wait_for(state="visible")
    assert window.text("#group h2") == "audit"
    assert window.focused() == "group-name"
    window.tab_to(lambda: window.focused() == "was")
    whole = window.shown_times()
    page.keyboard.press("+")
    assert window.shown_times() != whole
    begin, _ = window.shown_times()
    page.keyboard.press("ArrowLeft")
    assert window.shown_times()[0] < begin
    page.keyboard.press("0")
    assert window.shown_times() == whole
    page.keyboard.press("ArrowDown")
    first = tip_owner(window.text("#tip"))
    assert first is not None
    assert first[:2] == ("audit", 0)
    page.keyboard.press("ArrowDown")
    second = tip_owner(window.text("#tip"))
    assert second is not None
    assert second[:2] == ("audit", 1)
    page.keyboard.press("Shift+ArrowRight")
    assert "moved" in window.text("#tip")
    assert "needed" in window.text("#tip")
    page.keyboard.press("Tab")
    assert window.focused() == "would"
    for _ in range(40):
        if window.focused() == "back":
            break
        page.keyboard.press("Shift+Tab")
    assert window.focused() == "back"
    page.keyboard.press("Enter")
    window.locate("#list").wait_for(state="visible")
    assert window.focused() == "audit"


def test_sorting_and_searching_need_no_mouse(open_report: Opener) -> None:
    window = open_report()
    window.tab_to(lambda: window.focused() == "search")
    window.page.keyboard.type("a")
    assert "quiet" not in window.rows()
    window.page.keyboard.press("Backspace")
    window.tab_to(lambda: window.focused() == "Group")
    window.page.keyboard.press("Enter")
    assert window.rows() == sorted(window.rows(), key=str.lower)
    window.page.keyboard.press("Space")
    assert window.rows() == sorted(window.rows(), key=str.lower, reverse=True)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_has_the_focus_can_be_seen(scheme: Scheme, open_report: Opener) -> None:
    window = open_report(scheme=scheme)
    window.open("audit")
    for name in ("back", "zoom-in", "was", "would"):
        window.tab_to(lambda name=name: window.focused() == name)  # type: ignore[misc]
        outline = window.locate(f"#{name}").evaluate(
            "(one) => [getComputedStyle(one).outlineStyle, getComputedStyle(one).outlineWidth]"
        )
        assert outline[0] != "none"
        assert float(outline[1].removesuffix("px")) >= 2


def test_light_and_dark_differ(open_report: Opener) -> None:
    grounds, images = [], []
    for scheme in SCHEMES:
        window = open_report(scheme=scheme)
        window.open("audit")
        rgb = window.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        if rgb == "rgba(0, 0, 0, 0)":
            rgb = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
        grounds.append(sum(int(part) for part in rgb.removeprefix("rgb(").rstrip(")").split(",")))
        images.append(window.image("#was"))
    assert grounds[0] > 3 * 200
    assert grounds[1] < 3 * 60
    assert images[0] != images[1]


def test_a_change_of_scheme_draws_the_charts_again(open_report: Opener) -> None:
    window = open_report()
    window.open("audit")
    light = window.image("#was")
    window.page.emulate_media(color_scheme="dark")
    dark = window.image("#was")
    assert dark != light
    window.page.emulate_media(color_scheme="light")
    assert window.image("#was") == light


@pytest.mark.parametrize("read_tables", ["small", "hostile", "many", "demo"])
def test_a_phone_never_scrolls_sideways(read_tables: str, open_report: Opener) -> None:
    window = open_report(read_tables, size=PHONE)
    assert page_width(window) == PHONE[0]
    window.open(window.rows()[0])
    assert page_width(window) == PHONE[0]
    was, would = window.box("#was"), window.box("#would")
    assert would["y"] >= was["y"] + was["height"]
    assert was["x"] == would["x"]
    assert was["width"] <= PHONE[0]


@pytest.mark.parametrize("read_tables", ["small", "hostile", "many", "demo", "sick"])
def test_on_a_phone_a_group_is_one_line_without_scrolling(
    read_tables: str, open_report: Opener
) -> None:
    window = open_report(read_tables, size=PHONE)
    region = "#list .wide"
    assert window.locate(region).evaluate("(one) => one.scrollWidth <= one.clientWidth")
    heads = [one for one in window.locate("#groups thead th").all() if one.is_visible()]
    columns = [one.get_attribute("data-column") for one in heads]
    assert columns == ["name", "health", "downtime", "verdict"]
    cells = window.page.evaluate(
        """() => [...document.querySelectorAll('#groups tr')].map((row) =>
          [...row.cells].filter((cell) => cell.offsetParent).map((cell) => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            const box = cell.getBoundingClientRect();
            return [range.getBoundingClientRect().height, box.left, box.right, cell.tagName,
              cell.scrollWidth - cell.clientWidth];
          }))"""
    )
    for row in cells:
        assert len(row) == 4
        for height, left, right, tag, beyond in row:
            assert 10 < height < 30
            assert 0 <= left < right <= PHONE[0]
            assert tag == "TH" or beyond <= 0


def test_what_the_list_of_a_phone_leaves_out_is_in_the_groups_view(open_report: Opener) -> None:
    window = open_report(size=PHONE)
    left_out = {
        column: window.cell("orders-app", column)
        for column in ("downtime", "delayed", "rebalances", "policy")
    }
    window.open("orders-app")
    used, *_ = window.locate("#policies tbody tr").all()
    cells = [" ".join(cell.split()) for cell in used.locator("th, td").all_text_contents()]
    assert cells[0] == "range in use"
    named = zip(("downtime", "delayed", "rebalances"), cells[1:], strict=False)
    assert {name: re.sub(" (in|sa)$", "", cell) for name, cell in named} == {
        name: value for name, value in left_out.items() if name != "policy"
    }
    advised = window.locate("#policies th:has(.tag.advised) bdi")
    assert advised.text_content() == left_out["policy"]


def page_width(window: ReportWindow) -> int:
    found: int = window.page.evaluate("document.documentElement.scrollWidth")
    return found


def test_a_chart_says_in_words_what_it_shows(open_report: Opener) -> None:
    window = open_report()
    window.open("orders-app")
    label = window.locate("#was").get_attribute("aria-label") or ""
    assert "16 partitions" in label
    assert "28 rebalances" in label
    other = window.locate("#would").get_attribute("aria-label") or ""
    assert "cooperative-sticky" in other
    assert "28 rebalances" in other
