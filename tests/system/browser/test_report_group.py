"""A group's own view: its words, its charts on one time axis, its tables."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from rota.engine.model.duration import format_rounded_duration
from rota.report.story import GoldTables
from tests.system.browser.conftest import Opener
from tests.system.browser.report_window import Colour, Point, ReportWindow, tip_owner

Rows = list[dict[str, Any]]


def owner_rows(table: Any, group: str) -> Rows:
    return [row for row in table.to_pylist() if row["group"] == group]


def test_a_group_is_told_with_its_advice_in_order(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report()
    (advice,) = owner_rows(read_tables("small").advice, "orders-app")
    window.open("orders-app")
    assert window.text("#group h2") == "orders-app"
    assert window.text("#group-line").startswith(advice["headline"])
    assert window.locate("#steps li").all_text_contents() == advice["steps"]
    assert len(advice["steps"]) > 1
    assert not window.locate("#list").is_visible()
    assert window.page.title().startswith("orders-app")
    window.back()
    assert window.locate("#list").is_visible()
    assert not window.locate("#group").is_visible()


def test_a_group_can_be_linked_to(open_report: Opener) -> None:
    window = open_report()
    window.page.goto(f"{window.address}#g=audit")
    window.locate("#group").wait_for(state="visible")
    assert window.text("#group h2") == "audit"
    window.page.go_back()
    window.locate("#list").wait_for(state="visible")
    window.page.go_forward()
    window.locate("#group").wait_for(state="visible")
    assert window.text("#group h2") == "audit"
    window.page.evaluate("location.hash = '#g=billing'")
    window.wait("document.querySelector('#group h2').textContent === 'billing'")
    window.page.go_back()
    window.wait("document.querySelector('#group h2').textContent === 'audit'")


@pytest.mark.parametrize(
    ("link", "name"), [("0", "0"), ("no%20such", "no such"), ("50%", "50%"), ("", "(no name)")]
)
def test_a_link_to_a_group_that_is_not_there_shows_the_list_and_says_so(
    link: str, name: str, open_report: Opener
) -> None:
    window = open_report()
    window.open("audit")
    window.page.evaluate("(link) => { location.hash = `#g=${link}`; }", link)
    window.locate("#trouble").wait_for(state="visible")
    assert window.text("#trouble") == (
        f"This page does not have the group of the link: {name}. It has these groups."
    )
    assert window.locate("#list").is_visible()
    assert not window.locate("#group").is_visible()
    assert len(window.rows()) == 6
    window.open("audit")
    window.back()
    assert not window.locate("#trouble").is_visible()


def test_both_charts_stand_side_by_side_on_one_axis(open_report: Opener) -> None:
    window = open_report()
    window.open("audit")
    was, would = window.box("#was"), window.box("#would")
    assert was["width"] == would["width"]
    assert was["height"] == would["height"]
    assert abs(was["y"] - would["y"]) < 1
    assert would["x"] >= was["x"] + was["width"]
    for point in window.grid("#was", 4, 9):
        owner = tip_owner(window.tip_at("#was", point))
        assert owner == tip_owner(window.tip_at("#would", point))


def test_bands_have_the_owners_and_the_colours_of_the_tables(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window, gold = open_report(), read_tables("small")
    window.open("audit")
    owned, advised = owner_rows(gold.ownership, "audit"), owner_rows(gold.advised, "audit")
    was = shown_owners(window, "#was", owned)
    would = shown_owners(window, "#would", advised)
    assert {partition for partition, _ in was} == set(range(8))
    assert len({owner for owner, _ in was.values()}) > 4
    assert len({owner for owner, _ in would.values()}) > 4
    # one owner has one colour, and another owner another one, in both charts
    both = {*was.values(), *would.values()}
    assert len(both) == len({owner for owner, _ in both}) == len({colour for _, colour in both})
    shared = was.keys() & would.keys()
    same = {point for point in shared if was[point][0] == would[point][0]}
    assert same
    assert shared - same
    assert all((was[point][1] == would[point][1]) == (point in same) for point in shared)


def shown_owners(
    window: ReportWindow, canvas: str, tenures: Rows
) -> dict[tuple[int, float], tuple[str, Colour]]:
    """Owner by the tables and colour of points of a chart, by partition and place from the left.
    Points close to a rebalance are left out: it is a line through all partitions.
    """
    begin, end = window.shown_times()
    near = (end - begin) / window.box(canvas)["width"] * 6
    changes = {one[edge] for one in tenures for edge in ("since", "until") if one[edge] is not None}
    lines: dict[int, list[float]] = {}
    for point in window.grid(canvas, 1, 60):
        told = tip_owner(window.tip_at(canvas, point))
        if told is not None:
            lines.setdefault(told[1], []).append(point[1])
    middles = {partition: listed[len(listed) // 2] for partition, listed in lines.items()}
    times = []
    for place, _ in filter(partial(is_inside, window), window.grid(canvas, 40, 1)):
        told = tip_owner(window.tip_at(canvas, (place, middles[0])))
        assert told is not None
        times.append((place, told[2]))
    window.leave_canvas()
    keys = [(each, place, at) for each in middles for place, at in times]
    colours = window.colours(canvas, [(place, middles[each]) for each, place, _ in keys])
    found = {}
    for (partition, place, at), colour in zip(keys, colours, strict=True):
        is_near_line = any(abs(at - time) <= near for time in changes)
        owner = None if is_near_line else owner_at(tenures, partition, at)
        if owner is not None:
            found[partition, place] = owner, colour
    return found


def is_inside(window: ReportWindow, point: Point) -> bool:
    """Away from the names on the left and from the end on the right."""
    return 120 < point[0] < window.box("#was")["width"] - 20


def owner_at(tenures: Rows, partition: int, at: datetime) -> str | None:
    for one in tenures:
        ends = one["until"] is not None and one["until"] <= at
        if one["partition"] == partition and one["since"] <= at and not ends:
            return str(one["member_id"])
    return None


def test_the_tip_names_owner_and_times(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report()
    window.open("audit")
    box = window.box("#was")
    message = window.tip_at("#was", (box["width"] * 0.6, box["height"] * 0.4))
    told = tip_owner(message)
    assert told is not None
    _, partition, at = told
    owned = owner_rows(read_tables("small").ownership, "audit")
    member = owner_at(owned, partition, at)
    (tenure,) = (
        one
        for one in owned
        if one["member_id"] == member
        and one["partition"] == partition
        and one["since"] <= at
        and (one["until"] is None or at < one["until"])
    )
    assert f"{tenure['client_id']} at {tenure['client_host']}" in message
    assert f"from {tenure['since']:%Y-%m-%d %H:%M:%S}Z" in message
    assert "(replayed)" in message


_COST = r"downtime [\d.]+ \w+, moved [\d,]+, needed [\d,]+, revoked [\d,]+"
#: What a line of a tip may be: every number has its mark, but for the time that is pointed at.
_LINES = (
    r"[\d,]+ rebalances \((?P<mark>\w+)\), [^()]+ \([\w ,]+\): " + _COST + r" \((?P=mark)\)",
    rf"Rebalance [^()]+ \((stated|inferred|sampled)\): {_COST}; "
    r"members \d+ to \d+ \((inferred|sampled)\)(; took [\d.]+ \w+ \(stated\))?\. .+",
    rf"Rebalance [^()]+ \(replayed\), [^()]+: {_COST} \(replayed\)",
    r"\w+-\d+, \S+ \S+Z: .+ \((inferred|sampled)\)",
    r"under .+: .+ \(replayed\)",
    r"lag, \S+ \S+Z: .+ \(sampled\)",
    r"\S+ \S+Z",
)


@pytest.mark.parametrize(
    ("group", "kinds"), [("orders-app", {0, 1, 3, 4, 5, 6}), ("audit", {1, 2, 3, 4, 5, 6})]
)
def test_every_number_in_a_tip_has_its_mark(
    group: str, kinds: set[int], open_report: Opener
) -> None:
    window = open_report()
    window.open(group)
    seen = set()
    for canvas in ("#was", "#would", "#moves", "#lag"):
        for point in window.grid(canvas, 80, 2):
            for line in window.tip_at(canvas, point).splitlines():
                found = [kind for kind, one in enumerate(_LINES) if re.fullmatch(one, line)]
                assert len(found) == 1, line
                seen.update(found)
    assert seen >= kinds


def test_every_number_in_a_label_of_a_chart_has_its_mark(open_report: Opener) -> None:
    window = open_report()
    window.open("orders-app")
    labels = {
        canvas: window.locate(canvas).get_attribute("aria-label") or ""
        for canvas in ("#was", "#would", "#moves", "#lag")
    }
    assert "left), inferred; causes: 25 inferred, 3 stated. " in labels["#was"]
    assert labels["#would"].endswith("28 rebalances (15 joined, 12 unknown, 1 left), replayed.")
    assert "87 in all, 46 needed, inferred." in labels["#moves"]
    assert labels["#lag"].endswith("43 min, 2026-11-15 06:40:35Z, sampled.")
    assert window.text("#topic option:first-child") == "all 16 partitions (inferred)"
    for listed in ("#listed", "#listed-members"):
        if listed == "#listed-members":
            window.locate("#who summary").click()
            window.locate("#members tbody tr").first.wait_for()
        assert window.locate(f"{listed} abbr.mark").text_content() == "in"


_MARKED = re.compile(r"(?P<many>[\d,]+) rebalances \(\w+\), [^(]*\((?P<marks>[^)]*)\): ")


def rebalance_clusters(window: ReportWindow, canvas: str) -> list[tuple[int, str]]:
    """Of places of a chart with several rebalances each: how many, and what they are known by."""
    tips = (window.tip_at(canvas, point) for point in window.grid(canvas, 160, 1))
    lines = [tip.splitlines()[0] for tip in tips if " rebalances (" in tip.splitlines()[0]]
    found = [_MARKED.match(line) for line in lines]
    assert None not in found, lines
    return [(int(one["many"].replace(",", "")), one["marks"]) for one in found if one is not None]


def test_several_rebalances_under_the_pointer_have_their_marks(open_report: Opener) -> None:
    window = open_report()
    window.open("orders-app")
    heaps = rebalance_clusters(window, "#was")
    assert {marks.partition(" ")[2] for _, marks in heaps} >= {"stated", "inferred"}
    for many, marks in heaps:
        counted = re.fullmatch(r"\d+ (stated|inferred)(, \d+ (stated|inferred))?", marks)
        assert counted is not None
        assert sum(map(int, re.findall(r"\d+", marks))) == many
    other = open_report("many")
    other.open(other.rows()[0])
    replayed = rebalance_clusters(other, "#would")
    assert replayed
    assert {marks for _, marks in replayed} == {"replayed"}


def test_the_rebalance_that_keys_go_to_has_its_mark(open_report: Opener) -> None:
    window = open_report()
    window.open("orders-app")
    for canvas, marks in (("#was", {"stated", "inferred"}), ("#would", {"replayed"})):
        seen = set()
        window.locate(canvas).focus()
        for _ in range(28):
            window.page.keyboard.press("Shift+ArrowRight")
            line = window.text("#tip").splitlines()[0]
            found = re.match(r"Rebalance [^(]*\((stated|inferred|replayed)\)", line)
            assert found is not None, line
            seen.add(found[1])
        assert seen == marks


ZOOMS: Sequence[tuple[str, Callable[[ReportWindow], None], float]] = (
    ("button", lambda window: window.locate("#zoom-in").click(), 0.5),
    ("key", lambda window: window.locate("#was").press("+"), 0.5),
    ("key on the other", lambda window: window.locate("#would").press("+"), 0.5),
    ("Ctrl and wheel", lambda window: scroll_wheel(window, -100, "Control"), 0.8),
    ("Command and wheel", lambda window: scroll_wheel(window, -100, "Meta"), 0.8),
    ("drag", lambda window: _drag(window, 0.4, 0.6), 0.25),
)


@pytest.mark.parametrize(("how", "zoom", "share"), ZOOMS, ids=[how for how, _, _ in ZOOMS])
def test_zooming_changes_the_time_that_is_said_and_both_charts(
    how: str, zoom: Callable[[ReportWindow], None], share: float, open_report: Opener
) -> None:
    window = open_report()
    window.open("audit")
    whole, before = window.shown_times(), chart_images(window)
    zoom(window)
    window.leave_canvas()
    begin, end = window.shown_times()
    assert whole[0] <= begin < end <= whole[1]
    assert abs((end - begin) / (whole[1] - whole[0]) - share) < 0.05
    after = chart_images(window)
    assert all(one != other for one, other in zip(before, after, strict=True))
    window.locate("#zoom-all").click()
    assert window.shown_times() == whole
    window.leave_canvas()
    assert chart_images(window) == before


def chart_images(window: ReportWindow) -> list[str]:
    return [window.image("#was"), window.image("#would")]


def scroll_wheel(window: ReportWindow, by: int, key: str | None = None) -> None:
    box = window.box("#was")
    window.tip_at("#was", (box["width"] / 2, box["height"] / 2))
    if key is not None:
        window.page.keyboard.down(key)
    window.page.mouse.wheel(0, by)
    window.settle()
    if key is not None:
        window.page.keyboard.up(key)


def _drag(window: ReportWindow, begin: float, end: float) -> None:
    window.locate("#was").scroll_into_view_if_needed()
    box = window.box("#was")
    y = box["y"] + box["height"] / 2
    window.page.mouse.move(box["x"] + box["width"] * begin, y)
    window.page.mouse.down()
    window.page.mouse.move(box["x"] + box["width"] * (begin + end) / 2, y)
    window.page.mouse.move(box["x"] + box["width"] * end, y)
    window.page.mouse.up()
    window.settle()


def test_moving_in_time_keeps_the_width(open_report: Opener) -> None:
    window = open_report()
    window.open("orders-app")
    for _ in range(3):
        window.locate("#zoom-in").click()
    begin, end = window.shown_times()
    window.locate("#later").click()
    later = window.shown_times()
    assert later[0] > begin
    assert abs((later[1] - later[0]) - (end - begin)) <= timedelta(seconds=1)
    window.locate("#earlier").click()
    assert window.shown_times() == (begin, end)
    window.locate("#was").press("ArrowRight")
    assert window.shown_times() == later
    window.locate("#was").press("ArrowLeft")
    assert window.shown_times() == (begin, end)
    window.locate("#zoom-out").click()
    wider = window.shown_times()
    assert abs((wider[1] - wider[0]) - 2 * (end - begin)) <= timedelta(seconds=1)
    window.locate("#was").press("-")
    window.locate("#was").press("0")
    assert window.shown_times()[1] - window.shown_times()[0] > 4 * (end - begin)


def test_two_steps_within_one_frame_are_both_told(open_report: Opener) -> None:
    window = open_report()
    window.open("orders-app")
    begin, end = window.shown_times()
    window.page.evaluate(
        "() => { for (let n = 0; n < 2; n++) document.getElementById('zoom-in').click(); }"
    )
    closer = window.shown_times()
    assert abs((closer[1] - closer[0]) - (end - begin) / 4) <= timedelta(seconds=1)


def test_the_wheel_alone_scrolls_the_page(open_report: Opener) -> None:
    window = open_report(size=(1280, 600))
    window.open("orders-app")
    window.locate("#was").scroll_into_view_if_needed()
    window.locate("#zoom-in").click()
    before, zoomed = window.page.evaluate("scrollY"), window.shown_times()
    scroll_wheel(window, 200)
    window.wait("(before) => scrollY > before", before)
    lower = window.page.evaluate("scrollY")
    scroll_wheel(window, -200)
    window.wait("(lower) => scrollY < lower", lower)
    assert window.shown_times() == zoomed


def test_zooming_out_of_the_whole_by_wheel_leaves_the_page_as_it_is(open_report: Opener) -> None:
    window = open_report(size=(1280, 600))
    window.open("orders-app")
    window.locate("#was").scroll_into_view_if_needed()
    before, whole = window.page.evaluate("[scrollY, devicePixelRatio]"), window.shown_times()
    scroll_wheel(window, 200, "Control")
    assert window.shown_times() == whole
    assert window.page.evaluate("[scrollY, devicePixelRatio]") == before


def test_all_policies_are_compared(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report()
    window.open("orders-app")
    whatif = owner_rows(read_tables("small").whatif, "orders-app")
    (advice,) = owner_rows(read_tables("small").advice, "orders-app")
    cells = [
        [" ".join(cell.split()) for cell in row.locator("th, td").all_text_contents()]
        for row in window.locate("#policies tbody tr").all()
    ]
    found = {row[0].removesuffix(" in use").removesuffix(" advised"): row[1:] for row in cells}
    assert found.keys() == {row["policy"] for row in whatif}
    for policy, numbers in found.items():
        rows = [row for row in whatif if row["policy"] == policy]
        happened = [row for row in rows if row["happens"]]
        columns = ("moved", "moves_needed", "revoked", "idle_members", "spread")
        sums = [len(happened), *(sum(row[each] for row in happened) for each in columns)]
        mark = "in" if policy == "range" else "re"
        assert numbers[2:] == [f"{number:,} {mark}" for number in sums]
        downtime = sum(row["downtime_ms"] for row in rows)
        assert numbers[0] == f"{format_rounded_duration(downtime)} {mark}"
        delayed = round(advice["delayed_records"] * downtime / advice["downtime_ms"])
        assert numbers[1] == f"{delayed:,} {'sa' if policy == 'range' else 're'}"
    bounds = window.locate("#policies tr:has(.in-use) td").first.get_attribute("title")
    least, most = (advice[f"downtime_at_{each}_ms"] for each in ("least", "most"))
    assert bounds == (
        f"at least {format_rounded_duration(least)}, at most {format_rounded_duration(most)}"
    )
    assert [row[0] for row in cells if "in use" in row[0]] == ["range in use"]
    assert [row[0] for row in cells if "advised" in row[0]] == ["cooperative-sticky advised"]


def test_policies_that_followed_each_other_are_told_with_arrows(open_report: Opener) -> None:
    window = open_report("changing")
    window.open("moving")
    assert window.text("#was-title").startswith("Actual owners, range → sticky: 25 rebalances")
    used = window.locate("#policies th:has(.tag.in-use) bdi")
    assert used.all_text_contents() == ["range → sticky"]
    window.back()
    window.open("settled")
    assert "Keep cooperative-sticky, eager: " in window.text("#no-would")
    assert window.text("#was-title").startswith(
        "Actual owners, range → cooperative-sticky, eager: "
    )


def test_every_rebalance_is_listed_with_its_cause_and_mark(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report()
    window.open("orders-app")
    listed_rows = sorted(
        owner_rows(read_tables("small").rebalances, "orders-app"), key=lambda row: row["at"]
    )
    reasons: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for piece in owner_rows(read_tables("small").downtime, "orders-app"):
        length = round((piece["until"] - piece["since"]) / timedelta(milliseconds=1))
        reasons[piece["to_generation"]][piece["reason"]] += length
    listed = window.locate("#rebalances tbody tr").all()
    assert len(listed) == len(listed_rows) == 28
    marks = []
    for row, expected in zip(listed, listed_rows, strict=True):
        cells = row.locator("td").all_text_contents()
        assert cells[0] == f"{expected['at']:%Y-%m-%d %H:%M:%S}Z"
        assert cells[1].startswith(expected["cause"])
        assert cells[2] == expected["evidence"][:2]
        assert cells[4] == format_rounded_duration(expected["downtime_ms"])
        assert cells[5] == ", ".join(
            f"{format_rounded_duration(time)} {reason}"
            for reason, time in reasons[expected["to_generation"]].most_common()
            if time
        )
        counts = (expected["delayed_records"], expected["moved"], expected["moves_needed"])
        shown = ["unknown" if count is None else f"{count:,}" for count in counts]
        assert cells[6:10] == [*shown, str(expected["revoked"])]
        assert cells[10] == duration_text(expected)
        assert cells[-1] == expected["reason"]
        marks.append(cells[2])
    assert set(marks) == {"st", "in"}


def duration_text(rebalance: dict[str, Any]) -> str:
    """How long it took, which only the broker's log states."""
    if rebalance["started_at"] is None:
        return "unknown"
    seconds = (rebalance["at"] - rebalance["started_at"]).total_seconds()
    assert seconds < 10
    return f"{round(seconds, 1):g} s st"


def test_rebalances_are_paged_by_fifty(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report("many")
    group = window.rows()[0]
    many = len(owner_rows(read_tables("many").rebalances, group))
    assert many > 100
    window.open(group)
    assert window.locate("#rebalances tbody tr").count() == 50
    assert window.text("#listed") == f"1 to 50 of {many:,} rebalances in"
    assert window.locate("#previous").is_disabled()
    window.locate("#next").click()
    assert window.text("#listed") == f"51 to 100 of {many:,} rebalances in"
    window.locate("#previous").click()
    assert window.text("#listed") == f"1 to 50 of {many:,} rebalances in"


def test_lag_is_drawn_in_seconds_or_it_is_said_why_not(open_report: Opener) -> None:
    window = open_report()
    window.open("orders-app")
    assert window.locate("canvas#lag").is_visible()
    assert window.text("#lag-title").startswith("Lag in seconds: age of the oldest")
    label = window.locate("#lag").get_attribute("aria-label") or ""
    assert "Lag over time: the largest was 43 min, 2026-11-15 06:40:35" in label
    box = window.box("#lag")
    assert "(sampled)" in window.tip_at("#lag", (box["width"] / 2, box["height"] / 2))
    window.back()
    window.open("quiet")
    assert not window.locate("canvas#lag").is_visible()
    assert window.locate("#no-lag").inner_text().startswith("The lag of this group is unknown")


def test_lag_rises_while_nothing_is_committed(open_report: Opener) -> None:
    """From 6:00, when the oldest unread record was two minutes old, to 6:40 nothing is."""
    window = open_report()
    window.open("orders-app")
    box = window.box("#lag")
    found = set()
    for part in range(10, 30):
        tip = window.tip_at("#lag", (box["width"] * part / 100, box["height"] / 2))
        match = re.search(r"lag, 2026-11-15 06:(\d\d):\d\d.*: up to (\d+) min", tip)
        if match is not None and int(match[1]) < 40:
            found.add((int(match[1]), int(match[2])))
    assert len(found) > 4
    for minute, lag in found:
        assert minute + 2 <= lag <= minute + 5


def test_moves_are_drawn_against_the_fewest(
    open_report: Opener, read_tables: Callable[[str], GoldTables]
) -> None:
    window = open_report()
    window.open("orders-app")
    assert window.locate("canvas#moves").is_visible()
    points = window.grid("#moves", 60, 20)
    assert len(set(window.colours("#moves", points))) >= 2
    label = window.locate("#moves").get_attribute("aria-label") or ""
    (advice,) = owner_rows(read_tables("small").advice, "orders-app")
    assert f"{advice['moved']} in all, {advice['moves_needed']} needed" in label


def test_a_group_that_keeps_its_policy_has_no_second_chart(open_report: Opener) -> None:
    window = open_report()
    window.open("billing")
    assert not window.locate("canvas#would").is_visible()
    assert "Keep" in window.locate("#no-would").inner_text()
    assert window.locate("canvas#was").is_visible()
    assert window.locate("#steps li").count() == 0


def test_of_a_group_that_cannot_be_told_it_is_said_that_it_cannot(open_report: Opener) -> None:
    window = open_report()
    window.open("connect-sink")
    assert "its members are not consumers (connect)" in window.text("#group-line")
    for canvas in ("#was", "#would", "#moves"):
        assert not window.locate(canvas).is_visible()
    assert "cannot recommend" in window.locate("#no-would").inner_text()
    assert window.locate("#rebalances tbody tr").count() == 3
    cells = window.locate("#rebalances tbody tr").first.locator("td").all_text_contents()
    assert cells[4:10] == ["unknown", "", *["unknown"] * 4]
    window.back()
    window.open("audit")
    assert window.locate("canvas#was").is_visible()
    assert window.locate("canvas#would").is_visible()


def test_what_could_not_be_seen_from_the_beginning_is_said(open_report: Opener) -> None:
    window = open_report()
    window.open("audit")
    assert "sampled" in window.text("#group-known")
    assert "Its first records are missing" in window.text("#group-known")


def test_every_number_of_a_group_has_its_mark(open_report: Opener) -> None:
    window = open_report()
    window.open("orders-app")
    unmarked = window.page.evaluate(
        """() => [...document.querySelectorAll('#group tbody td.number')].filter((cell) => {
          const heads = cell.closest('table').tHead.rows[0].cells;
          return !cell.querySelector('.mark') && !heads[cell.cellIndex].querySelector('.mark');
        }).length"""
    )
    assert unmarked == 0
    for title in ("#was-title", "#would-title", "#moves-title", "#lag-title", "#group-known"):
        assert window.locate(f"{title} abbr.mark").count() >= 1
