"""The overview: headline, key figures, timeline, filters, list, export and state in the URL."""

from __future__ import annotations

import csv
import io
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rota.engine.model.duration import format_rounded_duration
from rota.pipeline.arrow import to_milliseconds
from rota.report import story
from rota.report.page.cluster_data import cluster_window
from rota.report.story import GoldTables, build_story
from tests.support.gold_tables import SCRIPT
from tests.system.browser.conftest import Opener
from tests.system.browser.report_window import PHONE, WIDE, ReportWindow

SEVERITIES = {"OK": 0, "unknown": 0, "falling behind": 1, "stuck": 2, "failing": 3}
UNCOUNTED = {"not polled", "shut down"}


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def ordered_groups(gold: GoldTables) -> list[str]:
    """The groups by health, downtime and number of rebalances, the worst first."""
    groups = build_story(gold).groups

    def key(group: story.GroupStory) -> tuple[Any, ...]:
        return (-SEVERITIES[group.health.health], -(group.downtime_ms or 0), -group.rebalances)

    return [group.name for group in sorted(groups, key=key)]


def rebalances_between(gold: GoldTables, begin: int, end: int) -> list[dict[str, Any]]:
    at = to_milliseconds(gold.rebalances["at"]).to_pylist()
    rows = gold.rebalances.to_pylist()
    return [row for row, time in zip(rows, at, strict=True) if begin <= time <= end]


def figure(window: ReportWindow, name: str) -> str:
    return plain(window.text(f"#figure-{name}"))


def drag(window: ReportWindow, begin: float, end: float, y: float = 60) -> None:
    """Drags over the timeline, from one share of its width to another."""
    window.locate("#timeline").scroll_into_view_if_needed()
    box = window.box("#timeline")
    left, right = box["x"] + 164, box["x"] + box["width"] - 8
    window.page.mouse.move(left + begin * (right - left), box["y"] + y)
    window.page.mouse.down()
    window.page.mouse.move(left + end * (right - left), box["y"] + y, steps=5)
    window.page.mouse.up()
    window.settle()


def selected_times(window: ReportWindow) -> tuple[int, int]:
    """The selected range in milliseconds, as the URL has it."""
    window.wait("location.hash.includes('from=')")
    begin, end = re.findall(r"(?:from|to)=([0-9T:-]+Z)", window.page.url)
    return tuple(window.page.evaluate("(both) => both.map(Date.parse)", [begin, end]))


@pytest.fixture
def gold(read_tables: Callable[[str], GoldTables]) -> GoldTables:
    return read_tables("small")


def test_the_headline_counts_the_unhealthy_groups_and_names_the_largest_downtime(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    headline = open_report("sick").text("#headline")
    assert headline.startswith("4 of 5 groups need attention now. ")
    totals = build_story(read_tables("sick")).totals
    reason, length = totals.largest_reasons[0]
    assert headline.endswith(
        f"{length / totals.downtime_ms:.0%} of all downtime.".replace("%", " %")
    )
    assert story.DOWNTIME_SUBJECTS[reason] in headline


def test_the_key_figures_are_sums_of_the_tables(open_report: Opener, gold: GoldTables) -> None:
    window = open_report()
    advice = gold.advice.to_pylist()
    assert window.text("#figure-groups") == str(len(advice))
    assert figure(window, "rebalances") == str(sum(row["rebalances"] for row in advice))
    downtime = sum(row["downtime_ms"] or 0 for row in advice)
    assert figure(window, "downtime") == format_rounded_duration(downtime)
    saving = sum(row["saving_ms"] or 0 for row in advice)
    assert format_rounded_duration(saving) in plain(window.text("#figures"))
    parts = plain(window.text("#downtime-parts"))
    reasons: dict[str, int] = {}
    for row in gold.downtime.to_pylist():
        length = row["until"] - row["since"]
        reasons[row["reason"]] = reasons.get(row["reason"], 0) + length // length.resolution // 1000
    counted = {reason: length for reason, length in reasons.items() if reason not in UNCOUNTED}
    most = max(counted, key=counted.__getitem__)
    assert f"{most} {format_rounded_duration(counted[most])}" in parts


def test_the_list_has_every_group_in_its_order_with_the_numbers_of_the_tables(
    open_report: Opener, gold: GoldTables
) -> None:
    window = open_report()
    assert window.rows() == ordered_groups(gold)
    assert window.text("#found") == "6 groups"
    for row in gold.advice.to_pylist():
        downtime = row["downtime_ms"]
        shown = "unknown" if downtime is None else format_rounded_duration(downtime)
        assert plain(window.cell(row["group"], "downtime")) == shown
        assert window.cell(row["group"], "rebalances") == f"{row['rebalances']:,}"
        assert row["recommendation"] in window.cell(row["group"], "saving")
        assert row["policies_used"][-1] in window.cell(row["group"], "strategy")


def test_unhealthy_groups_come_first_with_the_facts_that_show_it(open_report: Opener) -> None:
    window = open_report("sick")
    assert window.rows()[0] == "gone"
    assert window.rows()[-1] == "well"
    assert window.cell("gone", "health").startswith("Failing")
    assert "has not moved since 07:00 " in window.cell("stuck", "cause")
    colour = window.locate('tr[data-group="stuck"] .cell-cause .bad-text').evaluate(
        "(one) => getComputedStyle(one).color"
    )
    assert tuple(map(int, re.findall(r"\d+", colour))) == window.css_colour("stuck")


def test_a_drag_on_the_timeline_selects_a_range_that_filters_everything(
    open_report: Opener, gold: GoldTables
) -> None:
    window = open_report()
    drag(window, 0.3, 0.6)
    begin, end = selected_times(window)
    rows = rebalances_between(gold, begin, end)
    assert 0 < len(rows) < gold.rebalances.num_rows
    assert figure(window, "rebalances") == str(len(rows))
    assert set(window.rows()) >= {row["group"] for row in rows}
    quiet = set(gold.advice["group"].to_pylist()) - set(window.rows())
    assert "quiet" in quiet
    for group in window.rows():
        own = [row for row in rows if row["group"] == group]
        assert window.cell(group, "rebalances") == str(len(own))
        # absences without a rebalance may add to the downtime of its rebalances
        if all(row["downtime_ms"] is not None for row in own) and group == "billing":
            downtime = sum(row["downtime_ms"] for row in own)
            assert plain(window.cell(group, "downtime")) == format_rounded_duration(downtime)
    assert window.locate("#selected").is_visible()
    window.locate("#selected button").click()
    assert window.locate("#selected").is_hidden()
    assert figure(window, "rebalances") == str(sum(gold.advice["rebalances"].to_pylist()))
    assert len(window.rows()) == 6


def test_the_numbers_follow_while_the_pointer_drags(open_report: Opener, gold: GoldTables) -> None:
    window = open_report()
    box = window.box("#timeline")
    window.page.mouse.move(box["x"] + 300, box["y"] + 60)
    window.page.mouse.down()
    window.page.mouse.move(box["x"] + 320, box["y"] + 60, steps=3)
    window.settle()
    few = int(figure(window, "rebalances"))
    window.page.mouse.move(box["x"] + 1100, box["y"] + 60, steps=3)
    window.settle()
    assert few < int(figure(window, "rebalances")) <= gold.rebalances.num_rows
    window.page.mouse.up()


def test_keys_select_move_and_clear_a_range(open_report: Opener) -> None:
    window = open_report()
    window.locate("#timeline").focus()
    window.page.keyboard.press("ArrowRight")
    window.settle()
    first = selected_times(window)
    window.page.keyboard.press("ArrowRight")
    window.wait(
        "(before) => !location.hash.includes(before)", window.page.url.partition("from=")[2]
    )
    second = selected_times(window)
    assert second[0] == first[1]
    window.page.keyboard.press("Escape")
    window.settle()
    assert window.locate("#selected").is_hidden()


def test_a_click_on_a_mark_opens_its_group_at_that_rebalance(
    open_report: Opener, gold: GoldTables
) -> None:
    window = open_report()
    group = window.rows()[0]
    times = to_milliseconds(gold.rebalances["at"]).to_pylist()
    rows = list(zip(times, gold.rebalances.to_pylist(), strict=True))
    own = sorted(time for time, row in rows if row["group"] == group)
    x = _timeline_x(window, gold, own[-1])
    box = window.box("#timeline")
    window.page.mouse.click(box["x"] + x, box["y"] + 66 + 8)
    window.locate("#group").wait_for(state="visible")
    assert f"g={group}" in window.page.url
    assert f"r={len(own) - 1}" in window.page.url


def _timeline_x(window: ReportWindow, gold: GoldTables, time: int) -> float:
    summary = gold_window(gold)
    box = window.box("#timeline")
    left, right = 164, box["width"] - 8
    return left + (time - summary[0]) / (summary[1] - summary[0]) * (right - left)


def gold_window(gold: GoldTables) -> tuple[int, int]:
    found = cluster_window(build_story(gold), gold)
    return found.begin, found.end


def test_a_hover_on_the_timeline_tells_the_rebalance_and_the_lag(
    open_report: Opener, gold: GoldTables
) -> None:
    window = open_report()
    group = window.rows()[0]
    times = to_milliseconds(gold.rebalances["at"]).to_pylist()
    rows = zip(times, gold.rebalances["group"].to_pylist(), strict=True)
    last = max(time for time, name in rows if name == group)
    tip = window.tip_at("#timeline", (_timeline_x(window, gold, last), 74))
    assert group in tip
    assert "Downtime" in tip
    assert "rebalance" in window.tip_at("#timeline", (_timeline_x(window, gold, last) - 3, 30))
    assert group in window.tip_at("#timeline", (30, 74))


@pytest.mark.parametrize(
    ("query", "column", "wanted"),
    [
        ("orders-*", "group", {"orders-app"}),
        ("invoices", "topic", {"billing"}),
        ("refun?s", "topic", {"orders-app"}),
        ("cooperative-sticky", "strategy", None),
        ("no such thing", "nothing", set()),
    ],
)
def test_a_search_finds_names_globs_topics_and_strategies(
    query: str, column: str, wanted: set[str] | None, open_report: Opener, gold: GoldTables
) -> None:
    window = open_report()
    window.locate("#search").fill(query)
    shown = set(window.rows())
    if wanted is None:
        rows = gold.advice.to_pylist()
        wanted = {
            row["group"]
            for row in rows
            if query in " ".join([*row["policies_used"], row["recommendation"]])
        }
        assert wanted
    assert shown == wanted, column
    assert window.text("#found") == f"{len(wanted)} of 6 groups"


def test_a_search_finds_causes_and_health(open_report: Opener) -> None:
    window = open_report("sick")
    window.locate("#search").fill("falling behind")
    assert window.rows() == ["behind"]
    window.locate("#search").fill("member joined")
    assert len(window.rows()) == 4


def test_chips_filter_by_health_strategy_and_cause(open_report: Opener, gold: GoldTables) -> None:
    window = open_report("sick")
    window.locate("#health-filter button", has_text="Stuck").click()
    assert set(window.rows()) == {"stuck", "commits-only"}
    window.locate("#health-filter button", has_text="Failing").click()
    assert set(window.rows()) == {"stuck", "commits-only", "gone"}
    window = open_report()
    chip = window.locate("#cause-filter button", has_text="Member left")
    chip.click()
    causes = gold.rebalances.to_pylist()
    left = [row for row in causes if row["cause"] == "left"]
    assert set(window.rows()) == {row["group"] for row in left}
    assert figure(window, "rebalances") == str(len(left))
    chip.click()
    window.locate("#strategy-filter button", has_text="cooperative-sticky").click()
    assert window.rows() == ["billing"]


COLUMN_KEYS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda row: row["group"].lower(),
    "rebalances": lambda row: row["rebalances"],
    "downtime": lambda row: row["downtime_ms"],
    "saving": lambda row: row["saving_ms"],
    "strategy": lambda row: row["policies_used"][-1],
}


@pytest.mark.parametrize("column", COLUMN_KEYS)
def test_a_column_is_sorted_both_ways(column: str, open_report: Opener, gold: GoldTables) -> None:
    rows = {row["group"]: row for row in gold.advice.to_pylist()}
    window = open_report(size=(1440, 900))
    button, key = window.locate(f"#groups button[data-sort={column}]"), COLUMN_KEYS[column]
    button.click()
    first = [key(rows[group]) for group in window.rows()]
    button.click()
    second = [key(rows[group]) for group in window.rows()]
    known = sorted(value for value in first if value is not None)
    unknown = [None] * (len(first) - len(known))
    assert sorted([first, second], key=str) == sorted(
        [[*known, *unknown], [*reversed(known), *unknown]], key=str
    ), "unknown numbers are last in both orders"
    heading = window.locate("#groups th[aria-sort]")
    assert heading.count() == 1
    assert heading.locator("button").get_attribute("data-sort") == column


def test_the_url_keeps_what_is_shown(open_report: Opener) -> None:
    window = open_report()
    window.locate("#search").fill("o")
    window.locate("#cause-filter button", has_text="Member joined").click()
    window.locate("#groups button[data-sort=rebalances]").click()
    drag(window, 0.2, 0.9)
    selected_times(window)
    rows, address = window.rows(), window.page.url
    assert rows
    for part in ("q=o", "cause=joined", "sort=-rebalances", "from=", "to="):
        assert part in address
    window.page.goto("about:blank")
    window.requests.clear()
    window.page.goto(address)
    window.locate("#selected").wait_for(state="visible")
    assert window.rows() == rows
    assert window.locate("#search").input_value() == "o"
    assert window.locate("#cause-filter [aria-pressed=true]").inner_text() == "Member joined"


def exported(window: ReportWindow, format_name: str) -> str:
    window.locate("#export").click()
    with window.page.expect_download() as waiting:
        window.locate(f"#export-{format_name}").click()
    return Path(waiting.value.path()).read_text()


def test_the_rows_shown_are_exported(open_report: Opener, gold: GoldTables) -> None:
    window = open_report()
    window.locate("#cause-filter button", has_text="Member left").click()
    rows = list(csv.DictReader(io.StringIO(exported(window, "csv"))))
    assert [row["group"].removeprefix("'") for row in rows] == window.rows()
    as_json = json.loads(exported(window, "json"))
    assert [row["group"] for row in as_json] == window.rows()
    advice = {row["group"]: row for row in gold.advice.to_pylist()}
    for row in as_json:
        assert row["what_happened"] == advice[row["group"]]["happened"]
        assert row["what_to_do"] == advice[row["group"]]["to_do"]
        assert row["saving_ms"] == advice[row["group"]]["saving_ms"]
        assert "saving replayed" in row["known"]


def test_a_spreadsheet_runs_no_name_as_a_formula(open_report: Opener) -> None:
    window = open_report("hostile")
    rows = list(csv.reader(io.StringIO(exported(window, "csv"))))
    assert len({len(row) for row in rows}) == 1, "every name is in one cell"
    assert not [cell for row in rows for cell in row if re.match(r"[=+\-@\t\r]\D", cell)]


def test_times_are_utc_or_local(open_report: Opener) -> None:
    window = open_report("sick", timezone="Asia/Kolkata")
    assert window.text("#window").endswith("UTC")
    assert "since 07:00 " in window.cell("stuck", "cause")
    window.locate("#local").click()
    assert window.text("#window").endswith("UTC+05:30")
    assert "since 12:30 " in window.cell("stuck", "cause")
    window.locate("#utc").click()
    assert "since 07:00 " in window.cell("stuck", "cause")


def test_every_number_says_on_hover_and_focus_how_it_is_known(open_report: Opener) -> None:
    window = open_report()
    unknown = window.page.evaluate(
        """[...document.querySelectorAll('#groups td.number, #figures .figure')]
          .filter((cell) => /\\d/.test(cell.textContent) && !cell.querySelector('[data-how]')
            && !cell.parentNode.querySelector('[data-how]')).map((cell) => cell.textContent)"""
    )
    assert unknown == []
    window.locate('tr[data-group="orders-app"] .cell-downtime [data-how]').hover()
    tip = window.text("#tip")
    assert "Inferred: computed from consecutive records" in tip
    assert "At least" in tip
    window.leave_canvas()
    assert window.locate("#tip").is_hidden()
    window.locate("#search").focus()
    window.tab_to(lambda: window.page.evaluate("document.activeElement.dataset.sort") == "lag")
    assert "Sampled" in window.text("#tip")
    assert window.locate("abbr.mark").count() == 0


def test_a_tap_says_how_a_number_is_known_and_opens_nothing(open_report: Opener) -> None:
    window = open_report(size=PHONE, touch=True)
    window.locate('tr[data-group="orders-app"] .cell-downtime [data-how]').tap()
    assert "Inferred" in window.text("#tip")
    assert window.locate("#overview").is_visible()
    window.locate('tr[data-group="orders-app"] .cell-cause').tap()
    assert window.locate("#overview").is_visible(), "a tap shows the whole text first"
    window.locate('tr[data-group="orders-app"] a.name').tap()
    window.locate("#group").wait_for(state="visible")


def test_a_tap_on_the_timeline_tells_and_the_second_one_opens(
    open_report: Opener, gold: GoldTables
) -> None:
    window = open_report(touch=True)
    group = window.rows()[0]
    times = to_milliseconds(gold.rebalances["at"]).to_pylist()
    rows = zip(times, gold.rebalances["group"].to_pylist(), strict=True)
    x = _timeline_x(window, gold, max(time for time, name in rows if name == group))
    box = window.box("#timeline")
    window.page.touchscreen.tap(box["x"] + x, box["y"] + 74)
    assert group in window.text("#tip")
    assert window.locate("#overview").is_visible()
    window.page.touchscreen.tap(box["x"] + x, box["y"] + 74)
    window.locate("#group").wait_for(state="visible")


def test_the_evidence_view_underlines_every_number(open_report: Opener) -> None:
    window = open_report()
    number = window.locate('tr[data-group="orders-app"] .cell-rebalances [data-how]')
    style = "(one) => getComputedStyle(one).textDecorationStyle"
    line = "(one) => getComputedStyle(one).textDecorationLine"
    assert number.evaluate(line) == "none"
    window.page.keyboard.press("e")
    assert (number.evaluate(line), number.evaluate(style)) == ("underline", "dotted")
    assert window.locate("#evidence-switch").get_attribute("aria-pressed") == "true"
    window.locate("#evidence-switch").click()
    assert number.evaluate(line) == "none"


def test_the_evidence_is_told_below_both_views(open_report: Opener) -> None:
    window = open_report()
    lines = window.locate("#evidence li").all_text_contents()
    assert any(line.startswith("Input: ") for line in lines)
    window.open("orders-app")
    assert window.locate("#evidence").is_visible()


def test_keys_move_in_the_list_and_open_a_group(open_report: Opener) -> None:
    window = open_report()
    rows = window.rows()
    window.page.keyboard.press("j")
    window.page.keyboard.press("j")
    assert window.page.evaluate("document.activeElement.closest('tr').dataset.group") == rows[1]
    window.page.keyboard.press("k")
    window.page.keyboard.press("Enter")
    window.locate("#group").wait_for(state="visible")
    assert f"#g={rows[0]}" in window.page.url
    window.page.keyboard.press("]")
    window.wait("(name) => location.hash.includes(name)", rows[1])
    window.page.keyboard.press("Escape")
    window.locate("#overview").wait_for(state="visible")
    window.page.keyboard.press("/")
    assert window.focused() == "search"
    window.page.keyboard.press("Escape")
    window.page.keyboard.press("?")
    assert window.locate("#keys").is_visible()
    window.page.keyboard.press("Escape")
    assert window.locate("#keys").is_hidden()


def test_the_theme_can_be_switched(open_report: Opener) -> None:
    window = open_report()
    light, image = window.css_colour("ground"), window.image("#timeline")
    window.locate("#theme").click()
    dark = window.css_colour("ground")
    assert sum(dark) < sum(light)
    assert window.image("#timeline") != image
    window.locate("#theme").click()
    assert window.image("#timeline") == image


def test_of_many_groups_the_first_ones_are_shown_and_more_on_demand(open_report: Opener) -> None:
    window = open_report("crowd")
    assert len(window.rows()) == 24
    window.locate("#more").click()
    assert len(window.rows()) == 84
    window.locate("#search").fill("service-0199")
    assert window.rows() == ["team-39.service-0199"]
    assert window.locate("#more").is_hidden()


def test_the_timeline_shows_all_groups_on_demand(open_report: Opener) -> None:
    window = open_report("crowd")
    scroll = "document.getElementById('timeline-box').scrollHeight"
    before = window.page.evaluate(scroll)
    assert window.text("#timeline-all") == "Show all 250 groups"
    window.locate("#timeline-all").click()
    window.settle()
    assert window.page.evaluate(scroll) > 250 * 12 > before
    first = window.tip_at("#timeline", (30, 72))
    window.page.mouse.wheel(0, 600)
    window.wait("document.getElementById('timeline-box').scrollTop >= 600")
    window.settle()
    assert window.tip_at("#timeline", (31, 72)) != first


def test_all_rows_are_printed_in_light_colours(open_report: Opener) -> None:
    window = open_report("crowd", scheme="dark")
    pages = window.page.pdf()
    text = b"".join(
        zlib.decompressobj().decompress(stream)
        for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pages, re.DOTALL)
        if stream[:1] == b"x"
    )
    assert text, "the pages have content"
    assert len(re.findall(rb"/Type /Page\b", pages)) > 5
    window.settle()
    assert window.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_list_is_complete_without_scripts(open_report: Opener, gold: GoldTables) -> None:
    window = open_report(javascript=False)
    assert window.locate("#groups tbody tr").count() == 6
    names = window.locate("#groups tbody tr th a").all_inner_texts()
    assert set(names) == set(gold.advice["group"].to_pylist())
    assert window.locate("noscript").is_visible()


@pytest.mark.parametrize("size", [WIDE, PHONE])
def test_a_demo_says_so(size: tuple[int, int], open_report: Opener) -> None:
    window = open_report("demo", size=size)
    assert window.text("#demo") == "DEMO: simulated data, not a real cluster"
    assert window.page.title().startswith("DEMO: ")
    assert window.locate("#demo").is_visible()
    window.open(window.rows()[0])
    assert window.locate("#demo").is_visible()
    assert window.page.title().startswith("DEMO: ")
    assert open_report().locate("#demo").count() == 0


def test_what_could_not_be_read_is_counted_with_examples(open_report: Opener) -> None:
    window = open_report()
    assert window.text("#unread p") == "Not read: 1,237"
    items = window.locate("#unread > ul > li").all_text_contents()
    assert "1,234 torn records" in items[1]
    assert "partition 1, offset 5" in items[1]
    assert "Some input was not decoded" in window.text(".facts")


def test_names_that_are_markup_stay_names(open_report: Opener) -> None:
    window = open_report()
    name = f"{SCRIPT}\"'&"
    assert name in window.rows()
    window.locate("#search").fill(SCRIPT)
    assert window.rows() == [name]


def test_tables_without_rows_make_a_page_that_says_so(open_report: Opener) -> None:
    window = open_report("nothing")
    assert window.text("#headline") == "The input has no consumer group."
    assert window.rows() == []
    assert window.text("#found") == "0 groups"
    window.locate("#search").fill("x")
    assert window.text("#found") == "0 groups"
    window.page.goto(f"{window.address}#g=orders")
    window.locate("#trouble").wait_for(state="visible")
    assert window.locate("#overview").is_visible()
    assert "does not have the group of the link: orders." in window.text("#trouble")
