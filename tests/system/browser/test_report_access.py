"""Everyone can use the report: with keys alone, with a screen reader, at night, on a phone."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.system.browser.conftest import Opener
from tests.system.browser.report_window import PHONE, ReportWindow, Scheme

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
def test_axe_finds_nothing_on_a_phone(scheme: Scheme, open_report: Opener) -> None:
    window = open_report(scheme=scheme, size=PHONE)
    assert violations(window) == []
    window.open("orders-app")
    window.leave_canvas()
    assert violations(window) == []


def test_a_group_is_reached_and_left_with_keys_alone(open_report: Opener) -> None:
    window = open_report()
    page = window.page
    window.tab_to(lambda: window.focused() == "audit")
    page.keyboard.press("Enter")
    window.wait("document.getElementById('group-name')?.textContent === 'audit'")
    assert window.focused() == "group-name"
    window.tab_to(lambda: window.focused() == "chart")
    opened = window.text(".range")
    page.keyboard.press("+")
    window.settle()
    assert window.text(".range") != opened
    window.tab_to(lambda: window.focused() == "sticky" or page.evaluate(_IS_OPENER))
    page.keyboard.press("Enter")
    window.locate("#panel").wait_for(state="visible")
    page.keyboard.press("Escape")
    assert window.focused() == "chart"
    page.keyboard.press("Escape")
    window.locate("#overview").wait_for(state="visible")
    assert window.focused() == "audit"


_IS_OPENER = "document.activeElement.matches('#rebalances .open')"


def test_sorting_and_searching_need_no_mouse(open_report: Opener) -> None:
    window = open_report()
    window.tab_to(lambda: window.focused() == "search")
    window.page.keyboard.type("audit")
    window.settle()
    assert "quiet" not in window.rows()
    for _ in "audit":
        window.page.keyboard.press("Backspace")
    window.tab_to(lambda: window.focused() == "Group")
    window.page.keyboard.press("Enter")
    window.settle()
    first = window.rows()
    window.page.keyboard.press("Space")
    window.settle()
    assert sorted([first, window.rows()]) == sorted([sorted(first), sorted(first)[::-1]])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_has_the_focus_can_be_seen(scheme: Scheme, open_report: Opener) -> None:
    window = open_report(scheme=scheme)
    window.open("audit")
    for name in ("back", "utc", "theme", "chart"):
        window.page.evaluate("document.activeElement.blur()")
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
        rgb = window.page.evaluate("getComputedStyle(document.body).backgroundColor")
        grounds.append(sum(int(part) for part in rgb.removeprefix("rgb(").rstrip(")").split(",")))
        images.append(window.image("#chart"))
    assert grounds[0] > 3 * 200
    assert grounds[1] < 3 * 60
    assert images[0] != images[1]


def test_a_change_of_scheme_draws_the_charts_again(open_report: Opener) -> None:
    window = open_report()
    window.open("audit")
    light = window.image("#chart")
    window.page.emulate_media(color_scheme="dark")
    dark = window.image("#chart")
    assert dark != light
    window.page.emulate_media(color_scheme="light")
    assert window.image("#chart") == light


@pytest.mark.parametrize("read_tables", ["small", "hostile", "many", "demo", "sick"])
def test_a_phone_never_scrolls_sideways(read_tables: str, open_report: Opener) -> None:
    window = open_report(read_tables, size=PHONE)
    assert page_width(window) == PHONE[0]
    window.open(window.rows()[0])
    assert page_width(window) == PHONE[0]
    assert window.box("#chart")["width"] <= PHONE[0]


def page_width(window: ReportWindow) -> int:
    found: int = window.page.evaluate("document.documentElement.scrollWidth")
    return found


def test_a_chart_says_in_words_what_it_is_and_where_its_data_is(open_report: Opener) -> None:
    window = open_report()
    label = window.locate("#timeline").get_attribute("aria-label") or ""
    assert "The list below has the same groups" in label
    window.open("orders-app")
    label = window.locate("#chart").get_attribute("aria-label") or ""
    for words in ("28 rebalances", "16 partitions", "table of rebalances below"):
        assert words in label


def test_nothing_moves_for_those_who_want_no_motion(open_report: Opener) -> None:
    window = open_report()
    window.page.emulate_media(reduced_motion="reduce")
    window.open("orders-app")
    window.page.keyboard.press("n")
    name = window.locate("#panel").evaluate("(one) => getComputedStyle(one).animationName")
    assert name == "none"
