"""The page of a group: chart, steps, policies, rebalances, panel, state in the URL."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from axe_playwright_python.sync_playwright import Axe

from rota.engine.history.advice import sum_by_policy
from rota.engine.history.facts import WhatIf
from rota.engine.model.duration import format_rounded_duration
from rota.pipeline.arrow import to_milliseconds
from rota.report.story import GoldTables
from tests.support.gold_tables import HOSTILE, SCRIPT
from tests.system.browser.conftest import Opener
from tests.system.browser.report_window import PHONE, Point, ReportWindow, Scheme

BUSY = "orders-app"
LEFT, RIGHT = 132, 16
CAUSES = {
    "joined": "Member joined",
    "left": "Member left",
    "silent": "Session timeout",
    "partitions added": "Partitions added",
    "unknown": "Cause unknown",
}
ReadTables = Callable[[str], GoldTables]


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def rows_of(table: pa.Table, group: str, *times: str) -> list[dict[str, Any]]:
    """A table's rows of a group, with milliseconds for times."""
    for name in times:
        table = table.set_column(table.column_names.index(name), name, to_milliseconds(table[name]))
    return [row for row in table.to_pylist() if row["group"] == group]


def rebalances_of(gold: GoldTables, group: str = BUSY) -> list[dict[str, Any]]:
    rows = rows_of(gold.rebalances, group, "at", "started_at")
    return sorted(rows, key=lambda row: (row["at"], row["incarnation"], row["to_generation"]))


def open_group(window: ReportWindow, group: str = BUSY, **state: object) -> None:
    """Opens a group by its name and a state in the URL."""
    window.page.evaluate(
        "([g, state]) => { location.hash = `g=${encodeURIComponent(g)}${state}` }",
        [group, "".join(f"&{name}={value}" for name, value in state.items())],
    )
    window.locate("#rebalances, .missing").first.wait_for(state="attached")
    window.wait("(name) => document.getElementById('group-name').textContent === name", group)
    window.settle()


def tip_lines(window: ReportWindow, point: Point) -> list[str]:
    """The lines of the tooltip at a point of the chart."""
    box = window.box("#chart")
    window.page.mouse.move(box["x"] + point[0], box["y"] + point[1])
    found: list[str] = window.page.evaluate(
        "[...document.querySelectorAll('#tip:not([hidden]) > *')].map((line) => line.textContent)"
    )
    return [plain(line) for line in found]


def show_chart(window: ReportWindow) -> dict[str, float]:
    """Scrolls to the chart; returns where it is."""
    window.page.evaluate(
        "window.scrollBy(0, document.getElementById('chart').getBoundingClientRect().top - 56)"
    )
    return window.box("#chart")


def owners_at(window: ReportWindow, x: float, day: datetime) -> Iterator[tuple[Any, ...]]:
    """Partition, owner, time, point, and whether it is replayed, down a line through the chart."""
    box = show_chart(window)
    last = ""
    for y in range(90, int(box["height"]), 4):
        lines = tip_lines(window, (x, y))
        match = re.match(r"(\d\d):(\d\d):(\d\d) UTC", lines[0]) if lines else None
        if match is None or len(lines) < 3 or "lag" in lines[2]:
            continue
        hour, minute, second = map(int, match.groups())
        time = day + timedelta(hours=hour, minutes=minute, seconds=second)
        owner = lines[2].removesuffix(" (≈ replayed)")
        if lines[1:3] != [last, owner]:
            yield lines[1], owner, time.timestamp() * 1000, (x, y), "replayed" in lines[2]
        last = lines[1]


def day_of(gold: GoldTables) -> datetime:
    first = min(row["at"] for row in rebalances_of(gold))
    return datetime.fromtimestamp(first / 1000, UTC).replace(hour=0, minute=0, second=0)


def owner_by_table(rows: list[dict[str, Any]], partition: str, time: float) -> str | None:
    """The client id of the owner within a second of a time; None: it changes then."""
    found = [
        row["client_id"]
        for row in rows
        if f"{row['topic']}-{row['partition']}" == partition
        and row["since"] <= time - 1_000
        and (row["until"] is None or row["until"] > time + 2_000)
    ]
    return found[0] if len(found) == 1 else None


def range_in_hash(window: ReportWindow) -> tuple[float, float] | None:
    """The time range in the URL, in milliseconds; None: the range that the page opens with."""
    window.page.wait_for_timeout(200)
    found = re.findall(r"(?:from|to)=([0-9T:-]+Z)", window.page.url)
    if not found:
        return None
    begin, end = (datetime.fromisoformat(text).timestamp() * 1000 for text in found)
    return begin, end


def press(window: ReportWindow, *keys: str) -> None:
    for key in keys:
        window.page.keyboard.press(key)
        window.settle()


@pytest.fixture
def gold(read_tables: ReadTables) -> GoldTables:
    return read_tables("small")


@pytest.fixture
def window(open_report: Opener) -> ReportWindow:
    found = open_report()
    open_group(found)
    return found


def test_the_bands_have_the_owners_and_colours_of_the_tables(
    window: ReportWindow, gold: GoldTables
) -> None:
    press(window, "0")
    owned = rows_of(gold.ownership, BUSY, "since", "until")
    found = 0
    colours: dict[float, dict[str, set[Any]]] = {}
    for x in (200, 310, 377, 450, 560, 640, 701):
        for partition, owner, time, point, _ in owners_at(window, x, day_of(gold)):
            expected = owner_by_table(owned, partition, time)
            if expected is None:
                continue
            assert owner == expected
            (colour,) = window.colours("#chart", [point])
            colours.setdefault(time, {}).setdefault(owner, set()).add(colour)
            found += 1
    assert found > 40
    for by_owner in colours.values():
        shades = [max(shades, key=sum) for shades in by_owner.values()]
        assert len(set(shades)) == len(shades), "owners of one time have different colours"


def test_a_group_that_should_change_shows_both_histories_on_one_axis(
    window: ReportWindow, gold: GoldTables
) -> None:
    press(window, "0")
    window.page.get_by_role("button", name="Both").click()
    window.settle()
    advised = rows_of(gold.advised, BUSY, "since", "until")
    owned = rows_of(gold.ownership, BUSY, "since", "until")
    counts = {True: 0, False: 0}
    for x in (320, 560, 700):
        for partition, owner, time, _, is_replayed in owners_at(window, x, day_of(gold)):
            expected = owner_by_table(advised if is_replayed else owned, partition, time)
            if expected is not None:
                assert owner == expected
                counts[is_replayed] += 1
    assert min(counts.values()) > 12
    window.page.get_by_role("button", name=re.compile("^With ")).click()
    assert "mode=with" in wait_for_hash(window, "mode=with")
    kept = {is_replayed for *_, is_replayed in owners_at(window, 320, day_of(gold))}
    assert kept == {True}


def wait_for_hash(window: ReportWindow, text: str) -> str:
    window.wait("(text) => location.hash.includes(text)", text)
    return window.page.url


def test_a_group_that_keeps_its_policy_has_no_second_history(open_report: Opener) -> None:
    window = open_report()
    open_group(window, "billing")
    assert window.page.get_by_role("button", name="Both").count() == 0


def test_keys_and_buttons_zoom_and_pan(window: ReportWindow) -> None:
    assert range_in_hash(window) is None
    press(window, "0")
    whole = range_in_hash(window)
    begin, end = whole or bounds(window)
    press(window, "+")
    closer = range_in_hash(window)
    assert closer is not None
    assert closer[1] - closer[0] == pytest.approx((end - begin) / 1.8, abs=2_000)
    assert sum(closer) == pytest.approx(begin + end, abs=4_000)
    press(window, "ArrowLeft")
    earlier = range_in_hash(window)
    assert earlier is not None
    width = closer[1] - closer[0]
    assert earlier[0] == pytest.approx(max(closer[0] - 0.2 * width, begin), abs=2_000)
    assert earlier[1] - earlier[0] == pytest.approx(width, abs=2_000)
    press(window, "-", "-")
    assert range_in_hash(window) == whole
    window.page.get_by_role("button", name="Zoom in").click()
    window.page.get_by_role("button", name="Later", exact=True).click()
    assert range_in_hash(window) != closer
    window.page.get_by_role("button", name="Whole time").click()
    assert range_in_hash(window) == whole


def bounds(window: ReportWindow) -> tuple[float, float]:
    raise AssertionError(f"the page opens with the whole time: {window.page.url}")


def test_the_page_opens_at_the_time_of_the_main_pattern(
    window: ReportWindow, gold: GoldTables
) -> None:
    (row,) = (row for row in gold.advice.to_pylist() if row["group"] == BUSY)
    pattern = row["patterns"][0]
    shown = window.text(".range")
    begin, end = (
        day_of(gold) + timedelta(hours=int(hour), minutes=int(minute))
        for hour, minute in re.findall(r"(\d\d):(\d\d)", shown)
    )
    since, until = (pattern[name].astimezone(UTC) for name in ("since", "until"))
    assert begin <= since
    assert end >= until
    assert (until - since) / (end - begin) > 0.5
    assert pattern["text"][1:] in window.text(".rail")


def drag(window: ReportWindow, begin: Point, end: Point, *, key: str | None = None) -> None:
    box = show_chart(window)
    if key:
        window.page.keyboard.down(key)
    window.page.mouse.move(box["x"] + begin[0], box["y"] + begin[1])
    window.page.mouse.down()
    window.page.mouse.move(box["x"] + end[0], box["y"] + end[1], steps=4)
    window.page.mouse.up()
    if key:
        window.page.keyboard.up(key)
    window.settle()


def test_dragging_zooms_and_shift_pans_and_a_double_click_shows_all(window: ReportWindow) -> None:
    press(window, "0")
    whole = range_in_hash(window)
    assert whole is not None
    width = window.box("#chart")["width"] - LEFT - RIGHT
    scale = (whole[1] - whole[0]) / width
    drag(window, (LEFT + 0.25 * width, 200), (LEFT + 0.75 * width, 230))
    half = range_in_hash(window)
    assert half is not None
    assert half[0] == pytest.approx(whole[0] + 0.25 * width * scale, abs=2 * scale)
    assert half[1] == pytest.approx(whole[0] + 0.75 * width * scale, abs=2 * scale)
    drag(window, (LEFT + 300, 200), (LEFT + 200, 200), key="Shift")
    later = range_in_hash(window)
    assert later is not None
    assert later[0] - half[0] == pytest.approx(50 * scale, abs=2 * scale)
    drag(window, (LEFT + 0.55 * width, 20), (LEFT + 0.45 * width, 20))
    moved = range_in_hash(window)
    assert moved is not None
    assert later[0] - moved[0] == pytest.approx(0.1 * width * scale, abs=3 * scale)
    box = show_chart(window)
    window.page.mouse.dblclick(box["x"] + 400, box["y"] + 105)
    assert range_in_hash(window) == whole


def test_the_wheel_zooms_only_with_control(window: ReportWindow) -> None:
    press(window, "0")
    whole = range_in_hash(window)
    box = show_chart(window)
    window.page.mouse.move(box["x"] + 400, box["y"] + 200)
    before = window.page.evaluate("scrollY")
    window.page.mouse.wheel(0, 120)
    window.wait("(before) => scrollY > before", before)
    assert range_in_hash(window) == whole
    window.page.keyboard.down("Control")
    window.page.mouse.wheel(0, -120)
    window.page.keyboard.up("Control")
    closer = range_in_hash(window)
    assert closer is not None
    assert whole is not None
    assert closer[1] - closer[0] < 0.7 * (whole[1] - whole[0])


TOUCH = """([type, points]) => {
  const chart = document.getElementById('chart');
  const box = chart.getBoundingClientRect();
  points.forEach(([x, y], index) => chart.dispatchEvent(new PointerEvent(type, {
    pointerId: 20 + index, pointerType: 'touch', isPrimary: !index, bubbles: true,
    clientX: box.left + x, clientY: box.top + y })));
}"""


def test_two_fingers_zoom_and_pan(window: ReportWindow) -> None:
    press(window, "0")
    whole = range_in_hash(window)
    assert whole is not None
    show_chart(window)
    for kind, points in (
        ("pointerdown", [[300, 200], [400, 200]]),
        ("pointermove", [[250, 200], [450, 200]]),
        ("pointerup", [[250, 200], [450, 200]]),
    ):
        window.page.evaluate(TOUCH, [kind, points])
    window.settle()
    closer = range_in_hash(window)
    assert closer is not None
    width = whole[1] - whole[0]
    assert closer[1] - closer[0] == pytest.approx(width / 2, rel=0.01)
    for kind, points in (
        ("pointerdown", [[300, 200], [400, 200]]),
        ("pointermove", [[200, 200], [300, 200]]),
        ("pointerup", [[200, 200], [300, 200]]),
    ):
        window.page.evaluate(TOUCH, [kind, points])
    window.settle()
    later = range_in_hash(window)
    assert later is not None
    assert later[0] > closer[0]
    assert later[1] - later[0] == pytest.approx(width / 2, rel=0.01)


def test_on_a_phone_a_tap_shows_and_a_second_one_opens(
    open_report: Opener, gold: GoldTables
) -> None:
    window = open_report(size=PHONE, touch=True)
    open_group(window)
    press(window, "0")
    box = show_chart(window)
    first = rebalances_of(gold)[0]
    point = box["x"] + 88, box["y"] + mark_row(window)
    window.page.touchscreen.tap(*point)
    window.locate("#tip").wait_for(state="visible")
    assert window.text("#tip").startswith((CAUSES[first["cause"]], "2 rebal"))
    assert window.locate("#panel").is_hidden()
    if "rebalances" in window.text("#tip"):
        pytest.fail("the first rebalance stands alone")
    window.page.touchscreen.tap(*point)
    window.locate("#panel").wait_for(state="visible")
    assert "Rebalance 1 of" in window.text("#panel")
    panel = window.box("#panel")
    assert panel["width"] == pytest.approx(PHONE[0])
    assert panel["y"] > 200


def mark_row(window: ReportWindow) -> float:
    """The height of the row of marks in the chart: below the patterns."""
    patterns = window.page.evaluate(
        "Math.min(document.querySelectorAll('.pattern .pattern-foot button').length, 3)"
    )
    return 6 + 28 + 20 + 2 + 17 * int(patterns) + 2 + 9


def panel_fact(window: ReportWindow, label: str) -> str:
    found: str | None = window.page.evaluate(
        """(label) => [...document.querySelectorAll('#panel dt')]
          .find((each) => each.textContent === label)?.nextSibling.textContent""",
        label,
    )
    return plain(found or "")


def test_the_panel_has_the_numbers_of_the_tables(window: ReportWindow, gold: GoldTables) -> None:
    rows = rebalances_of(gold)
    lines = rows_of(gold.serverlog, BUSY, "at")
    for index in (1, 4, len(rows) - 2, len(rows) - 1):
        row = rows[index]
        open_group(window, r=index)
        text = plain(window.text("#panel"))
        assert f"Rebalance {index + 1} of {len(rows)}" in text
        assert text.startswith(CAUSES[row["cause"]])
        assert f"{row['members_before']} → {row['members_after']} members" in text
        assert panel_fact(window, "Downtime").startswith(
            format_rounded_duration(row["downtime_ms"]) if row["downtime_ms"] else "none"
        )
        if row["started_at"] is not None:
            took = format_rounded_duration(row["at"] - row["started_at"])
            assert panel_fact(window, "Duration").startswith(took)
        if row["delayed_records"] is not None:
            assert panel_fact(window, "Records delayed") == f"{row['delayed_records']:,}"
        assert f"generation {row['from_generation']} → {row['to_generation']}" in text
        kinds = window.locate("#panel .need").all_text_contents()
        assert kinds.count("necessary") == row["moves_needed"]
        assert kinds.count("necessary") + kinds.count("unnecessary") == row["moved"]
        assert kinds.count("owner left") == row["orphaned"]
        for member in (*row["joined"], *row["left"]):
            assert member in text
        begin = rows[index - 1]["at"]
        words = [line["text"] for line in lines if begin < line["at"] <= row["at"]]
        shown = window.locate("#panel pre").all_text_contents()
        assert shown == (words or [row["reason"]])


def test_moves_are_necessary_or_not_as_often_as_the_tables_say(
    window: ReportWindow, gold: GoldTables
) -> None:
    """For all rebalances, as the panel counts them."""
    rows = rebalances_of(gold)
    open_group(window, r=1)
    for index, row in enumerate(rows[1:], 1):
        kinds = window.locate("#panel .need").all_text_contents()
        moved = kinds.count("necessary") + kinds.count("unnecessary")
        assert (moved, kinds.count("owner left")) == (row["moved"], row["orphaned"]), index
        if index < len(rows) - 1:
            press(window, "n")


def test_keys_step_through_rebalances_and_escape_closes(window: ReportWindow) -> None:
    press(window, "0", "n")
    assert "Rebalance 1 of" in window.text("#panel")
    press(window, "n", "n")
    assert "Rebalance 3 of" in window.text("#panel")
    assert "r=2" in wait_for_hash(window, "r=2")
    press(window, "p")
    assert "Rebalance 2 of" in window.text("#panel")
    window.page.get_by_role("button", name="Next rebalance", exact=True).click()
    assert "Rebalance 3 of" in window.text("#panel")
    press(window, "Escape")
    assert window.locate("#panel").is_hidden()
    window.wait("!location.hash.includes('r=')")
    assert window.focused() == "chart"
    press(window, "Escape")
    window.locate("#overview").wait_for(state="visible")


def test_a_rebalance_leads_to_those_of_its_cause(window: ReportWindow, gold: GoldTables) -> None:
    rows = rebalances_of(gold)
    cause = Counter(row["cause"] for row in rows).most_common(1)[0][0]
    same = [index for index, row in enumerate(rows) if row["cause"] == cause]
    open_group(window, r=same[1])
    window.page.get_by_role("button", name="Next rebalance with this cause").click()
    assert f"Rebalance {same[2] + 1} of" in window.text("#panel")
    window.page.get_by_role("button", name="Show only these").click()
    assert f"only=cause:{cause}" in wait_for_hash(window, "only=")
    assert window.locate("#rebalances").get_attribute("aria-rowcount") == str(len(same) + 1)
    press(window, "n")
    assert f"Rebalance {same[3] + 1} of" in window.text("#panel")
    press(window, "Escape", "Escape")
    assert window.locate("#rebalances").get_attribute("aria-rowcount") == str(len(rows) + 1)
    window.wait("!location.hash.includes('only=')")


def test_a_rebalance_leads_to_its_deploy(window: ReportWindow, gold: GoldTables) -> None:
    rows = rebalances_of(gold)
    place = next(index for index, row in enumerate(rows) if row["rollout"] is not None)
    same = [row for row in rows if row["rollout"] == rows[place]["rollout"]]
    open_group(window, r=place)
    window.page.get_by_role("button", name="Show the deploy").click()
    assert "only=deploy:" in wait_for_hash(window, "only=")
    assert window.locate("#rebalances").get_attribute("aria-rowcount") == str(len(same) + 1)
    shown = range_in_hash(window)
    assert shown is not None
    assert shown[0] <= same[0]["at"]
    assert same[-1]["at"] <= shown[1] <= same[-1]["at"] + 10 * 60_000


def test_a_chip_filters_the_table_and_the_export(
    window: ReportWindow, gold: GoldTables, tmp_path: Path
) -> None:
    rows = [row for row in rebalances_of(gold) if row["cause"] == "joined"]
    window.locate(".block .chip", has_text="Member joined").click()
    window.locate("#export").click()
    with window.page.expect_download() as download:
        window.locate("#export-json").click()
    download.value.save_as(tmp_path / "rows.json")
    listed = json.loads((tmp_path / "rows.json").read_text("utf-8"))
    names = ("cause", "members_before", "members_after", "downtime_ms", "moved", "moves_needed")
    assert [{name: row[name] for name in names} for row in listed] == [
        {name: row[name] for name in names} for row in rows
    ]
    assert [row["joined"] for row in listed] == [" ".join(row["joined"]) for row in rows]


def test_every_rebalance_is_in_the_table(window: ReportWindow, gold: GoldTables) -> None:
    press(window, "0")
    rows = rebalances_of(gold)
    found: dict[int, list[str]] = {}
    for top in range(0, 34 * len(rows), 200):
        window.page.evaluate(
            "(top) => { document.querySelector('.virtual-box').scrollTop = top }", top
        )
        window.settle()
        found |= {
            int(place): [plain(cell) for cell in cells]
            for place, cells in window.page.evaluate(
                """[...document.querySelectorAll('#rebalances tr[data-key]')].map((row) =>
                  [row.dataset.key, [...row.cells].map((cell) => cell.textContent)])"""
            )
        }
    assert sorted(found) == list(range(len(rows)))
    for place, row in enumerate(rows):
        time, cause, members, _took, down, moved, reason = found[place]
        assert time == datetime.fromtimestamp(row["at"] / 1000, UTC).strftime("%H:%M:%S")
        assert cause.startswith("Likely: " if row["likely"] else CAUSES[row["cause"]])
        assert cause.endswith("(deploy)") == (row["rollout"] is not None)
        assert members == f"{row['members_before']} → {row['members_after']}"
        downtime = row["downtime_ms"]
        assert down == (format_rounded_duration(downtime) if downtime else "none")
        assert moved == f"{row['moved']} ({row['moves_needed']} necessary)"
        assert reason == row["reason"]


def test_a_row_opens_with_the_keyboard(window: ReportWindow) -> None:
    window.locate("#rebalances .open").nth(1).focus()
    window.page.keyboard.press("Enter")
    window.locate("#panel").wait_for(state="visible")
    assert "Rebalance 2 of" in window.text("#panel")
    assert window.focused() == window.text("#panel h2")


def test_chart_and_table_point_at_each_other(window: ReportWindow) -> None:
    press(window, "0")
    show_chart(window)
    tip = tip_lines(window, (LEFT, mark_row(window)))
    assert tip[0].startswith("Member joined")
    assert window.locate("#rebalances tr.marked").get_attribute("data-key") == "0"
    before = window.image(".overlay")
    window.locate("#rebalances tr[data-key]").nth(3).hover()
    assert window.image(".overlay") != before


def test_the_steps_are_those_of_the_advice_for_each_library(
    window: ReportWindow, gold: GoldTables
) -> None:
    (row,) = (row for row in gold.advice.to_pylist() if row["group"] == BUSY)
    assert row["actions"]
    assert (
        plain(window.text(".lead"))
        == f"{row['happened']} {row['to_do']}".strip().replace("  ", " ")
        or "Z" in row["happened"]
    )
    for library in row["setting_libraries"]:
        tab = window.page.get_by_role("tab", name=library, exact=True)
        if tab.count():
            tab.click()
        for action in row["actions"]:
            steps = [
                step
                for step in action["steps"]
                if not step["libraries"] or library in step["libraries"]
            ]
            text = plain(window.text("#to-do"))
            for step in steps:
                assert step["text"] in text
                setting = step["setting"] or dict(step["settings"]).get(library)
                assert setting is None or setting in window.text("#to-do")
            for step in action["steps"]:
                if step not in steps:
                    assert step["text"] not in text


def test_a_step_can_be_checked_and_its_setting_copied(window: ReportWindow) -> None:
    window.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    box = window.locate("#to-do input[type=checkbox]").first
    window.locate("#to-do label").first.click()
    assert box.is_checked()
    if window.page.get_by_role("tab").count() > 1:
        window.page.get_by_role("tab").nth(1).click()
        window.page.get_by_role("tab").nth(0).click()
        assert window.locate("#to-do input[type=checkbox]").first.is_checked()
    button = window.locate("#to-do .copy").first
    button.click()
    window.wait("document.querySelector('#to-do .copy').textContent === 'Copied'")
    copied = window.page.evaluate("navigator.clipboard.readText()")
    assert copied == window.locate("#to-do pre").first.text_content()
    window.wait("document.querySelector('#to-do .copy').textContent === 'Copy'")


def test_all_policies_are_compared(window: ReportWindow, gold: GoldTables) -> None:
    totals = sum_by_policy([WhatIf(**row) for row in rows_of(gold.whatif, BUSY, "at")])
    listed = {
        cells[0]: cells[1:]
        for cells in window.page.evaluate(
            """[...document.querySelectorAll('#policies tbody tr')].map((row) => [
              row.cells[0].firstChild.textContent,
              ...[...row.cells].slice(1).map((cell) => cell.textContent)])"""
        )
    }
    assert len(listed) == len(totals)
    for total in totals.values():
        downtime, moved, revoked, rebalances, idle, spread = map(plain, listed[total.policy])
        sign = "" if total.policy == "range" else "≈ "
        text = format_rounded_duration(total.downtime) if total.downtime else "none"
        assert downtime == sign + text
        assert moved == f"{sign}{total.moved:,}"
        assert revoked == f"{sign}{total.revoked:,}"
        assert rebalances == f"{sign}{total.rebalances:,}"
        assert idle == f"{sign}{total.idle:,}"
        assert spread == f"{sign}{total.spread:,}"
    tags = window.locate("#policies .tag").all_text_contents()
    assert sorted(tags) == ["in use", "recommended"]
    assert window.locate(".policy-plot .dot").count() == len(totals)


def test_the_key_figures_are_those_of_the_tables(window: ReportWindow, gold: GoldTables) -> None:
    (row,) = (row for row in gold.advice.to_pylist() if row["group"] == BUSY)
    figures = plain(window.text(".group-figures"))
    assert f"Rebalances{row['rebalances']}" in figures
    assert f"Downtime{format_rounded_duration(row['downtime_ms'])}" in figures
    assert f"Records delayed{row['delayed_records']:,}" in figures
    assert f"Moves{row['moved']} {row['moves_needed']} necessary" in figures
    window.locate(".group-figures .term", has_text="Downtime").focus()
    window.page.keyboard.press("Tab")
    window.page.keyboard.press("Shift+Tab")
    tip = plain(window.text("#tip"))
    assert f"At least {format_rounded_duration(row['downtime_at_least_ms'])}" in tip
    assert "Inferred:" in tip


def test_every_number_says_how_it_is_known(window: ReportWindow) -> None:
    open_group(window, r=3)
    kinds = set(
        window.page.evaluate(
            """[...document.querySelectorAll('#group [data-how], #panel [data-how]')]
              .map((each) => each.dataset.how)"""
        )
    )
    assert {"stated", "inferred", "sampled", "replayed"} <= kinds
    bare = window.page.evaluate(
        """[...document.querySelectorAll('#rebalances td.number, #policies td.number')]
          .filter((cell) => !cell.matches('.members') && !cell.querySelector('[data-how]'))
          .map((cell) => cell.textContent)"""
    )
    assert bare == []
    replayed = window.page.evaluate(
        """[...document.querySelectorAll('#group [data-how=replayed]:not(.term)')]
          .map((each) => each.textContent)"""
    )
    assert replayed
    assert all("≈" in text for text in replayed)


def test_the_url_keeps_what_is_shown(window: ReportWindow) -> None:
    press(window, "0", "+")
    window.page.get_by_role("button", name="Both").click()
    press(window, "n")
    wait_for_hash(window, "mode=both")
    state = wait_for_hash(window, "r=")
    shown, panel = window.text(".range"), window.text("#panel .panel-head")
    window.page.reload()
    window.locate("#panel").wait_for(state="visible")
    window.settle()
    assert (window.text(".range"), window.text("#panel .panel-head")) == (shown, panel)
    assert window.page.get_by_role("button", name="Both").get_attribute("aria-pressed") == "true"
    assert window.page.url == state


@pytest.mark.parametrize(
    "state", ["from=never&to=2026", "r=99999", "r=-1", "mode=nonsense", "only=cause:", "r=1.5"]
)
def test_nonsense_in_the_url_is_ignored(state: str, open_report: Opener) -> None:
    window = open_report()
    open_group(window, **dict(part.split("=") for part in state.split("&")))
    assert window.locate("#panel").is_hidden()
    assert window.text("#group-name") == BUSY
    assert window.text(".range")


def test_previous_and_next_groups_are_those_of_the_list(open_report: Opener) -> None:
    window = open_report()
    names = window.rows()
    open_group(window, names[1])
    assert window.locate(".group-nav a").count() == 2
    press(window, "]")
    window.wait("(name) => document.getElementById('group-name').textContent === name", names[2])
    window.page.get_by_role("link", name=re.compile("^Previous group")).click()
    window.wait("(name) => document.getElementById('group-name').textContent === name", names[1])


def test_lag_is_that_of_the_tables(window: ReportWindow, gold: GoldTables) -> None:
    press(window, "0")
    box = show_chart(window)
    found = set()
    for x in range(LEFT + 10, int(box["width"]) - RIGHT, 60):
        for y in range(int(box["height"]) - 140, int(box["height"]) - 22, 12):
            lines = tip_lines(window, (x, y))
            if lines and lines[-1].startswith("lag "):
                found.add((lines[-3] if len(lines) > 2 else "", lines[-1]))
    assert len(found) > 5


def test_what_has_no_data_is_left_out_and_said(open_report: Opener) -> None:
    window = open_report()
    open_group(window, "connect-sink")
    said = window.text("#group .group-main")
    assert "Partition owners are not shown" in said
    assert "Downtime is unknown" in said
    assert "Lag is unknown" in said
    assert window.locate("#policies").count() == 0
    open_group(window, "quiet")
    assert "Lag is unknown" in window.text("#group .group-main")
    assert "Partition owners are not shown" not in window.text("#group .group-main")


def test_a_group_with_commits_only_says_what_is_not_known(open_report: Opener) -> None:
    window = open_report("sick")
    open_group(window, "commits-only")
    assert "no members in the evidence" in window.text("#group .group-main")
    assert "The evidence has no rebalance of this group." in window.text("#group")
    assert "Stuck" in window.text(".group-title")
    assert window.locate("#rebalances").is_hidden()
    assert re.search(r"06:\d\d .* 07:\d\d UTC", window.text(".range"))


def test_the_filter_of_partitions_leaves_out_the_others(open_report: Opener) -> None:
    window = open_report("many")
    open_group(window, window.rows()[0])
    assert window.locate(".partition-filter input").count() == 1
    window.locate(".partition-filter input").fill("*-1?")
    window.settle()
    named = {
        lines[1]
        for y in range(90, int(show_chart(window)["height"]) - 160, 6)
        if len(lines := tip_lines(window, (400, y))) > 2
    }
    assert named
    assert {name for name in named if "events" in name} == {
        name for name in named if re.fullmatch(r".*-1\d", name)
    }


def test_dense_rebalances_are_grouped_and_a_click_on_a_group_zooms(open_report: Opener) -> None:
    window = open_report("many")
    open_group(window, window.rows()[0])
    press(window, "0")
    show_chart(window)
    for x in range(LEFT + 20, LEFT + 80, 2):
        tip = tip_lines(window, (x, mark_row(window)))
        if tip and re.match(r"\d+ rebalances", tip[0]):
            break
    match = re.match(r"(\d+) rebalances", tip[0])
    assert match is not None
    box = window.box("#chart")
    window.page.mouse.click(box["x"] + x, box["y"] + mark_row(window))
    window.settle()
    shown = range_in_hash(window)
    assert shown is not None
    in_view = window.page.evaluate(
        """([from, to]) => [...document.querySelectorAll('#rebalances tr[data-key]')]
          .filter((row) => !row.matches('.outside')).length""",
        list(shown),
    )
    assert in_view >= int(match[1])
    assert window.locate("#panel").is_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("group", [BUSY, "audit", "connect-sink", f"{SCRIPT}\"'&"])
def test_axe_finds_nothing(group: str, scheme: Scheme, open_report: Opener) -> None:
    window = open_report(scheme=scheme)
    open_group(window, group)
    window.locate("#group details summary").first.click()
    window.leave_canvas()
    assert violations(window) == []
    press(window, "n")
    assert window.locate("#panel").is_visible()
    assert violations(window) == []


def violations(window: ReportWindow) -> list[str]:
    found = Axe().run(window.page).response["violations"]
    return [f"{one['id']}: {node['html']}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize("tables", ["small", "hostile", "sick"])
def test_a_phone_never_scrolls_sideways(tables: str, open_report: Opener) -> None:
    window = open_report(tables, size=PHONE)
    for group in window.rows():
        open_group(window, group)
        assert window.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
        press(window, "n")
        assert window.page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_group_is_shown_with_its_names(
    name: str, open_report: Opener, read_tables: ReadTables
) -> None:
    window = open_report("hostile")
    open_group(window, name, r=1)
    assert window.text("#group-name") == name
    rows = rebalances_of(read_tables("hostile"), name)
    window.locate("#group details summary").click()
    shown = window.text("#panel")
    for member in (*rows[1]["joined"], *rows[1]["left"]):
        assert member in shown
    assert (
        window.page.evaluate("document.querySelectorAll('#group script, #panel img').length") == 0
    )
    box = show_chart(window)
    for y in range(60, int(box["height"]), 40):
        tip_lines(window, (400, y))


def test_print_has_the_rows_and_no_controls(window: ReportWindow, gold: GoldTables) -> None:
    window.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    window.page.emulate_media(media="print")
    assert window.locate("#rebalances tr[data-key]").count() == len(rebalances_of(gold))
    assert window.locate(".toolbar .choice").first.is_hidden()
    window.page.emulate_media(media="screen")
    window.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert window.locate(".toolbar .choice").first.is_visible()


def test_times_follow_the_time_zone(open_report: Opener, gold: GoldTables) -> None:
    window = open_report(timezone="Asia/Tokyo")
    open_group(window)
    press(window, "0")
    first = window.text("#rebalances .open >> nth=0")
    window.locate("#local").click()
    window.settle()
    moved = datetime.fromtimestamp(rebalances_of(gold)[0]["at"] / 1000, UTC) + timedelta(hours=9)
    assert window.text("#rebalances .open >> nth=0") == moved.strftime("%H:%M:%S") != first
    assert "UTC+09:00" in window.text(".range")
