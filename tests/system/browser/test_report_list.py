"""The list of groups: what it says, in which order, and what of it is found."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rota.engine.model.duration import format_rounded_duration
from rota.report import story
from rota.report.story import GoldTables, format_seconds
from tests.support.gold_tables import SCRIPT
from tests.system.browser.conftest import Opener
from tests.system.browser.report_window import PHONE, WIDE, ReportWindow

COLUMNS = (
    *("name", "health", "downtime", "delayed", "rebalances", "lag", "cause", "verdict", "policy"),
)
#: Columns of the list, and of gold/advice.
COUNTS = {"downtime": "downtime_ms", "rebalances": "rebalances", "delayed": "delayed_records"}
SEVERITIES = {"OK": 0, "unknown": 0, "falling behind": 1, "stuck": 2, "failing": 3}


_COLOURS = """(canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


def format_count(column: str, value: int | None) -> str:
    if value is None:
        return "unknown"
    return format_rounded_duration(value) if column == "downtime" else f"{value:,}"


def sorted_advice(gold: GoldTables) -> list[dict[str, Any]]:
    health = dict(
        zip(*(gold.health[name].to_pylist() for name in ("group", "health")), strict=True)
    )

    def worst_first(row: dict[str, Any]) -> tuple[Any, ...]:
        downtime = row["downtime_ms"]
        cost = 1 if downtime is None else -downtime
        return (-SEVERITIES[health[row["group"]]], cost, row["group"])

    return sorted(gold.advice.to_pylist(), key=worst_first)


def test_the_first_line_is_that_of_the_worst_group(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    worst = sorted_advice(read_tables("small"))[0]
    assert worst["group"] == "orders-app"
    line = open_report().text("#first-line")
    assert line.startswith(worst["headline"])
    assert line.endswith("The change works for the members' clients: Java.")


def test_every_group_is_there_with_the_numbers_of_the_tables(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window, expected = open_report(), sorted_advice(read_tables("small"))
    assert window.rows() == [row["group"] for row in expected]
    assert window.text("#found") == "6 of 6 groups"
    for row in expected:
        for column, name in COUNTS.items():
            assert window.cell(row["group"], column) == format_count(column, row[name])
        assert window.cell(row["group"], "verdict") == row["verdict"]
        best = row["policy"] if row["verdict"] == "change" else ""
        assert window.cell(row["group"], "policy") == best


def test_a_group_that_is_stuck_or_failing_is_red_and_the_first(open_report: Opener) -> None:
    window = open_report("sick")
    assert window.rows() == ["gone", "stuck", "commits-only", "behind", "well"]
    red, green = window.css_colour("bad"), window.css_colour("good")
    for group, health, verdict in (
        ("gone", "failing", "fix first"),
        ("stuck", "stuck", "fix first"),
        ("commits-only", "stuck", "fix first"),
    ):
        assert window.cell(group, "health") == health
        assert window.cell(group, "verdict") == verdict
        assert badge_colours(window, group) == [red, red]
    assert green not in badge_colours(window, "behind")[:1]
    assert badge_colours(window, "well") == [green, green]
    assert "has not moved since 07:00:00Z" in window.cell("stuck", "cause")
    window.open("stuck")
    assert window.text("#group-health").startswith("Health: stuck sa since 2026-11-15 07:00:00Z: ")
    assert "The group is stuck: repair that first." in window.text("#no-would")


def badge_colours(window: ReportWindow, group: str) -> list[tuple[int, ...]]:
    """The colours of a group's health and verdict."""
    found = window.locate(f'tr[data-group="{group}"] :is(.health, .verdict)').evaluate_all(
        "(badges) => badges.map((badge) => getComputedStyle(badge).color)"
    )
    return [tuple(map(int, re.findall(r"\d+", colour))) for colour in found]


def test_lag_is_the_most_seconds_from_commit_to_commit(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report()
    assert window.cell("quiet", "lag") == "unknown"
    rows = read_tables("small").lag.to_pylist()
    most = max(row["lag_seconds"] for row in rows if row["group"] == "orders-app")
    assert most == 120, "at a commit"
    assert window.cell("orders-app", "lag") == "43 min"


def test_every_number_has_its_mark(open_report: Opener) -> None:
    window = open_report()
    unmarked = window.page.evaluate(
        """() => {
          const heads = [...document.querySelectorAll('#groups thead th')];
          return [...document.querySelectorAll('#groups tbody td.number')].filter((cell) =>
            !cell.querySelector('abbr.mark') && !heads[cell.cellIndex].querySelector('abbr.mark')
          ).map((cell) => cell.textContent);
        }"""
    )
    assert unmarked == []
    marks = {
        group: window.locate(f'tr[data-group="{group}"] td.number abbr.mark').first.text_content()
        for group in ("orders-app", "audit")
    }
    assert marks == {"orders-app": "in", "audit": "sa"}
    legend = window.locate("#legend li").all_text_contents()
    assert [line[:12] for line in legend] == [
        "st stated: t",
        "in inferred:",
        "sa sampled: ",
        "re replayed:",
    ]


def test_a_demo_says_so_on_every_view(open_report: Opener) -> None:
    text = "DEMO: simulated data, not a real cluster"
    for size in (WIDE, PHONE):
        window = open_report("demo", size=size)
        assert window.page.title() == "DEMO: Rota report"
        assert_always_on_top(window, text)
        window.open("orders-app")
        assert window.page.title() == "DEMO: orders-app - Rota report"
        assert_always_on_top(window, text)
        window.page.emulate_media(media="print")
        assert window.locate("#demo").is_visible()


def assert_always_on_top(window: ReportWindow, text: str) -> None:
    """However far the page is scrolled, the top of what is in sight says this, on one line."""
    for share in (0, 0.5, 1):
        window.page.evaluate("(share) => scrollTo(0, share * document.body.scrollHeight)", share)
        window.settle()
        box = window.box("#demo")
        assert (box["x"], box["y"]) == (0, 0)
        assert box["height"] == 32
        top = window.page.evaluate("document.elementFromPoint(innerWidth / 2, 16).id")
        assert top == "demo"
        assert window.locate("#demo").inner_text() == text


def test_every_page_of_a_demo_that_is_printed_says_so(open_report: Opener) -> None:
    for tables, says in (("demo", True), ("small", False)):
        window = open_report(tables)
        window.open("orders-app")
        printed = printed_letters(window.page.pdf(format="A4"))
        assert len(printed) > 1
        assert (len(set(printed)) == 1) == says


_OBJECT = re.compile(rb"\n(\d+) 0 obj\n(.*?)\nendobj", re.DOTALL)
_STREAM = re.compile(rb"/Length (\d+)\b.*?\bstream\r?\n", re.DOTALL)


def printed_letters(pdf: bytes) -> list[bytes]:
    """The letters of the first text of every page, by their numbers in its font."""
    objects = dict(_OBJECT.findall(pdf))
    pages = [one for one in objects.values() if re.search(rb"/Type\s*/Page\b", one)]
    found = []
    for page in pages:
        (place,) = re.findall(rb"/Contents (\d+) 0 R", page)
        start = _STREAM.search(objects[place])
        assert start is not None
        # by its length: the last of its bytes may be one that ends a line
        body = objects[place][start.end() : start.end() + int(start[1])]
        first = zlib.decompress(body).partition(b"BT")[2].partition(b"ET")[0]
        found.append(b"".join(re.findall(rb"<(\w+)> Tj", first)))
    return found


def test_what_is_no_demo_does_not_say_so(open_report: Opener) -> None:
    window = open_report()
    assert window.locate("#demo").count() == 0
    assert "DEMO" not in window.locate("body").inner_text()


def test_what_could_not_be_read_is_counted_with_examples(open_report: Opener) -> None:
    window = open_report()
    text = window.text("#unread")
    assert "1,237" in text
    assert "3 st records of an unknown version" in text
    assert "partition 7, offset 12: version 99" in text
    window.open("audit")
    assert window.locate("#unread").is_visible()


def test_the_evidence_is_told_on_both_views(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report()
    (run,) = read_tables("small").evidence.to_pylist()
    text = window.text("#evidence")
    assert f"{run['records']:,} records (stated) from 2026-11-15" in text
    assert "every 30 s" in text
    window.open("orders-app")
    assert window.locate("#evidence").is_visible()


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_is_sorted_both_ways(
    column: str, open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report("many")
    orders = []
    for _ in range(2):
        window.locate(f"#groups button[data-sort={column}]").click()
        told = {
            head.get_attribute("aria-sort"): head.locator("button").get_attribute("data-sort")
            for head in window.locate("#groups th[aria-sort]").all()
        }
        (order,) = told
        assert told == {order: column}
        assert column_values(window, column) == expected_values(read_tables("many"), column, order)
        orders.append(order)
    assert sorted(map(str, orders)) == ["ascending", "descending"]


def test_unknown_numbers_come_after_known_ones(open_report: Opener) -> None:
    window = open_report()
    window.locate("#groups button[data-sort=downtime]").click()
    assert window.rows()[-1] == "connect-sink"


def column_values(window: ReportWindow, column: str) -> list[str]:
    return [window.cell(group, column) for group in window.rows()]


def expected_values(gold: GoldTables, column: str, order: str | None) -> list[str]:
    """What the cells of a column must be, from the top down."""
    rows, backwards = sorted_advice(gold), order == "descending"
    if column in COUNTS:
        values = sorted((row[COUNTS[column]] for row in rows), reverse=backwards)
        return [format_count(column, value) for value in values]
    if column in {"health", "cause"}:
        groups = story.build_story(gold).groups
        shown = [one.health.health if column == "health" else one.cause_text for one in groups]
        return sorted(shown, reverse=backwards)
    if column == "lag":
        behind = (group.lag for group in story.build_story(gold).groups if group.lag is not None)
        most = (one.most_seconds for one in behind if one.most_seconds is not None)
        known = sorted(most, reverse=backwards)
        return list(map(format_seconds, known))
    names = {"name": "group"}
    texts = [
        row["policy"] * (row["verdict"] == "change")
        if column == "policy"
        else row[names.get(column, column)]
        for row in rows
    ]
    return sorted(texts, reverse=backwards)


def test_a_search_leaves_the_groups_whose_names_have_the_text(open_report: Opener) -> None:
    window = open_report()
    window.locate("#search").fill("ORDER")
    assert window.rows() == ["orders-app"]
    assert window.text("#found") == "1 of 6 groups"
    window.locate("#search").fill("<script>")
    assert window.rows() == [f"{SCRIPT}\"'&"]
    window.locate("#search").fill("no such group")
    assert window.rows() == []
    assert window.text("#found") == "0 of 6 groups"
    window.locate("#search").fill("")
    assert len(window.rows()) == 6


def test_a_search_outlives_sorting(open_report: Opener) -> None:
    window = open_report("many")
    window.locate("#search").fill("service-001")
    window.locate("#groups button[data-sort=name]").click()
    assert window.rows() == sorted(f"team-{n:02}.service-{n:04}" for n in range(10, 20))
    assert window.text("#found") == "10 of 30 groups"


def test_of_many_groups_the_first_fifty_are_shown_and_more_on_demand(open_report: Opener) -> None:
    window = open_report("crowd")
    assert len(window.rows()) == 50
    assert window.text("#found") == "250 of 250 groups"
    for shown in (100, 150, 200, 250):
        window.locate("#more").click()
        assert len(window.rows()) == shown
    assert not window.locate("#more").is_visible()


def test_what_is_not_shown_is_sorted_and_found_too(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report("crowd")
    least = min(sorted_advice(read_tables("crowd")), key=lambda row: row["downtime_ms"])["group"]
    assert least not in window.rows()
    window.locate("#search").fill(least)
    assert window.rows() == [least]
    window.locate("#search").fill("")
    window.locate("#groups button[data-sort=downtime]").click()
    window.locate("#groups button[data-sort=downtime]").click()
    assert window.locate("#groups th[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert window.rows()[0] == least
    window.open(least)
    assert window.text("#group h2") == least


@pytest.mark.nightly
def test_a_thousand_groups_are_a_small_file_that_opens(
    open_report: Opener,
    make_report: Callable[[str], Path],
    read_tables: Callable[[str], GoldTables],
) -> None:
    assert (make_report("large") / "report.html").stat().st_size <= 20_000_000
    window = open_report("large")
    assert window.text("#found") == "1,000 of 1,000 groups"
    assert len(window.rows()) == 50
    largest = sorted_advice(read_tables("large"))[0]
    assert window.rows()[0] == largest["group"]
    window.open(largest["group"])
    assert window.text("#listed") == f"1 to 50 of {largest['rebalances']} rebalances in"
    for canvas in ("#was", "#would", "#moves", "#lag"):
        assert window.locate(canvas).evaluate(_COLOURS) > 3
    window.locate("#zoom-in").click()
    window.back()
    assert len(window.rows()) == 50


def test_the_list_is_complete_without_scripts(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report(javascript=False)
    assert window.locate("#groups tbody tr").count() == 6
    assert window.locate("#groups tbody tr th").all_inner_texts() == [
        row["group"] for row in sorted_advice(read_tables("small"))
    ]
    assert window.locate("noscript").is_visible()


def test_tables_without_rows_make_a_page_that_says_so(open_report: Opener) -> None:
    window = open_report("nothing")
    assert window.text("#first-line") == "No group had a rebalance."
    assert window.rows() == []
    assert window.text("#found") == "0 of 0 groups"
    window.locate("#search").fill("x")
    assert window.text("#found") == "0 of 0 groups"
    window.page.goto(f"{window.address}#g=orders")
    window.locate("#trouble").wait_for(state="visible")
    assert window.locate("#list").is_visible()
    assert "does not have the group of the link: orders." in window.text("#trouble")
