"""The page's text: that its data is the tables', and that no name can break out of it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html import escape, unescape
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest

from rota.engine.model.duration import format_rounded_duration
from rota.pipeline.arrow import to_milliseconds
from rota.report import story
from rota.report.lag_intervals import WorstLag
from rota.report.page import document
from rota.report.story import GoldTables, Story, read_gold_tables
from tests.support import gold_tables
from tests.support.gold_layout import Run

MADE_AT = 1_794_800_000_000
UNREAD = (
    ("records of a version that is not known", 3, ("partition 7, offset 12: version 99",)),
    ("lines without a time", 1_234, ()),
)
UNCOUNTED = {"not polled", "shut down"}
HEALTH_BADGE = re.compile(r'<span class="health ([\w-]+)">.*?</svg>([^<]*)<')
NUMBER_CELL = re.compile(r'<td class="cell-\w+ number">(.*?)</td>', re.DOTALL)
ReportPage = tuple[Story, GoldTables, str]


class PageParser(HTMLParser):
    """Collects the tags and scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []
        self.text = ""
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            attributes, before = self.scripts[-1]
            self.scripts[-1] = (attributes, before + data)
        elif self._open == "style":
            self.styles.append(data)
        else:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def make_page(folder: Path) -> ReportPage:
    tables = read_gold_tables(str(folder))
    report_story = story.build_story(tables)
    return report_story, tables, document.render_page(report_story, tables, MADE_AT)


@pytest.fixture(scope="module")
def small_page(tmp_path_factory: pytest.TempPathFactory) -> ReportPage:
    folder = tmp_path_factory.mktemp("small")
    return make_page(gold_tables.write_small(folder, Run(demo=True, unread=UNREAD)))


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> ReportPage:
    return make_page(gold_tables.write_hostile(tmp_path_factory.mktemp("hostile")))


@pytest.fixture(params=["small_page", "hostile_page"])
def any_page(request: pytest.FixtureRequest) -> ReportPage:
    found: ReportPage = request.getfixturevalue(request.param)
    return found


def unpack(blob: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(blob)))
    return found


def read_group_data(text: str) -> dict[str, dict[str, Any]]:
    """Each group's data, by the group's name, in the order of the page."""
    scripts = PageParser(text).scripts
    blobs = [body for one, body in scripts if (one.get("id") or "").startswith("data-")]
    return {one["group"]["name"]: one for one in map(unpack, blobs)}


def read_summary(text: str) -> dict[str, Any]:
    """The data of the overview."""
    (blob,) = [body for one, body in PageParser(text).scripts if one.get("id") == "summary"]
    return unpack(blob)


def row_of(text: str, group: str) -> str:
    """The row of a group in the list."""
    row = re.search(rf'<tr data-group="{re.escape(group)}".*?</tr>', text, re.DOTALL)
    assert row is not None
    return row[0]


def rows_of(table: pa.Table, group: str, *times: str) -> list[dict[str, Any]]:
    """A table's rows of a group, with milliseconds for times."""
    for name in times:
        table = table.set_column(table.column_names.index(name), name, to_milliseconds(table[name]))
    return [row for row in table.to_pylist() if row["group"] == group]


@pytest.fixture(scope="module")
def sick_page(tmp_path_factory: pytest.TempPathFactory) -> ReportPage:
    return make_page(gold_tables.write_sick(tmp_path_factory.mktemp("sick")))


def test_a_group_that_is_stuck_or_failing_shows_it(sick_page: ReportPage) -> None:
    report_story, _, text = sick_page
    shown = {
        group.name: re.findall(
            r'<span class="health ([\w-]+)">.*?</svg>([^<]*)<', row_of(text, group.name)
        )
        for group in report_story.groups
    }
    assert shown == {
        "gone": [("failing", "Failing")],
        "stuck": [("stuck", "Stuck")],
        "commits-only": [("stuck", "Stuck")],
        "behind": [("falling-behind", "Falling behind")],
        "well": [("ok", "OK")],
    }
    assert 'class="cut2 bad-text"' in row_of(text, "stuck")
    assert "bad-text" not in row_of(text, "well")
    data = read_group_data(text)
    assert data["stuck"]["group"]["health"]["partition"] == 1


def test_downtime_has_its_bounds_as_a_tip(small_page: ReportPage) -> None:
    (worst, *_), text = small_page[0].groups, small_page[2]
    bounds = worst.downtime_at_least_ms, worst.downtime_at_most_ms
    assert None not in {worst.downtime_ms, *bounds}
    low, shown, high = (
        format_rounded_duration(one or 0) for one in (bounds[0], worst.downtime_ms, bounds[1])
    )
    assert (
        f'<span data-how="{worst.mark}" data-tip="At least {low}, at most {high}.">{shown}</span>'
        in row_of(text, worst.name)
    )


def test_the_overview_adds_up_to_the_downtime_of_the_tables(any_page: ReportPage) -> None:
    """The sums of rebalances and of absences without a rebalance are the groups' downtime."""
    report_story, tables, text = any_page
    summary = read_summary(text)
    assert [one["name"] for one in summary["groups"]] == [one.name for one in report_story.groups]
    for group, one in zip(report_story.groups, summary["groups"], strict=True):
        at = [summary["begin"] + passed for passed in accumulate(one["at"])]
        assert at == sorted(row["at"] for row in rows_of(tables.rebalances, group.name, "at"))
        causes = Counter(one["causes"][place] for place in one["cause"])
        assert causes == Counter(row["cause"] for row in rows_of(tables.rebalances, group.name))
        if group.downtime_ms is None:
            continue
        absences = sum(length for _, _, length, _ in one["absences"])
        assert sum(one["downtime"]) + absences == group.downtime_ms
        reasons = Counter({name: sum(lengths) for name, lengths in one["reasons"].items()})
        for _, _, length, reason in one["absences"]:
            reasons[reason] += length
        counted = {
            name: length
            for name, length in group.downtime_by_reason.items()
            if length and name not in UNCOUNTED
        }
        assert reasons == counted


def test_an_age_that_is_at_least_so_much_is_shown_so() -> None:
    lag = WorstLag(
        most=9, most_seconds=90, most_at=0, most_topic="t", most_partition=0, at_least=True
    )
    assert document.format_lag(lag) == "≥ 1 min 30 s"
    assert document.format_lag(replace(lag, most_seconds=None)) == "9 records"


def test_the_list_has_every_group_in_its_order_with_its_numbers(any_page: ReportPage) -> None:
    report_story, _, text = any_page
    reader = PageParser(text)
    rows = [one["data-group"] for one in reader.all("tr") if "data-group" in one]
    assert rows == [group.name for group in report_story.groups]
    links = [one["href"] for one in reader.all("a") if (one["href"] or "").startswith("#g=")]
    names = [unquote((one or "").removeprefix("#g=")) for one in links]
    assert names == rows
    assert all(re.fullmatch(r"#g=[\w.!~*'()%-]*", one or "", re.ASCII) for one in links)
    for group in report_story.groups:
        row = row_of(text, escape(group.name))
        assert f">{group.rebalances:,}</span>" in row
        if group.downtime_ms is not None:
            assert f">{format_rounded_duration(group.downtime_ms)}</span>" in row
        assert escape(group.recommendation) in row


def test_large_numbers_are_written_out(small_page: ReportPage) -> None:
    report_story, tables, _ = small_page
    worst = replace(report_story.groups[0], rebalances=1_234_567)
    text = document.render_page(
        replace(report_story, groups=(worst, *report_story.groups[1:])), tables, MADE_AT
    )
    assert ">1,234,567</span>" in row_of(text, worst.name)


def test_a_group_of_which_little_is_known_says_unknown(small_page: ReportPage) -> None:
    report_story, _, text = small_page
    (group,) = [one for one in report_story.groups if one.verdict == "cannot tell"]
    row = row_of(text, group.name)
    assert row.count(">unknown</span>") == 2, "downtime and lag"
    assert read_group_data(text)[group.name]["group"]["moved"] is None


def test_the_security_policy_allows_these_texts_and_nothing_else(any_page: ReportPage) -> None:
    reader = PageParser(any_page[2])
    (policy,) = [
        one["content"]
        for one in reader.all("meta")
        if one.get("http-equiv") == "Content-Security-Policy"
    ]
    theme, code = [body for attributes, body in reader.scripts if not attributes]
    (style,) = reader.styles

    def source(text: str) -> str:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        return f"'sha256-{digest}'"

    assert policy == (
        f"default-src 'none'; script-src {source(code)} {source(theme)}; "
        f"style-src {source(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    packed = [attributes for attributes, _ in reader.scripts[1:-1]]
    ids = ["summary", *(f"data-{place}" for place in range(len(packed) - 1))]
    assert packed == [{"type": "text/plain", "id": one} for one in ids]


def test_every_file_of_the_script_is_enclosed() -> None:
    folder = Path(document.__file__).parent
    assert sorted(document.SCRIPT_FILES) == sorted(file.name for file in folder.glob("*.js"))
    for file in folder.glob("*.js"):
        assert file.read_text("utf-8") in document.read_script()
    assert "</script" not in document.read_script().lower()
    assert "</style" not in document.read_asset("page.css").lower()


def test_the_page_refers_to_nothing_outside(small_page: ReportPage) -> None:
    _, _, text = small_page
    reader = PageParser(text)
    for _, attributes in reader.tags:
        for name in ("src", "href", "action", "data", "srcset", "poster", "formaction"):
            assert (attributes.get(name) or "#").startswith("#")
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
    # the name of the vocabulary of SVG is no address
    code = document.read_script().replace("'http://www.w3.org/2000/svg'", "")
    written = re.sub(r'<script type="text/plain".*?</script>', "", text)
    written = written.replace(document.read_script(), "")
    written = re.sub(r"'sha256-[^']*'", "", written)  # any letters, two slashes among them
    assert not re.search(r"https?:|url\(|@import|//", written)
    assert not re.search(r"https?:|import\(|fetch\(|XMLHttpRequest|innerHTML|eval\(", code)


BREAKERS = (
    "</script><script>alert(1)</script>",
    "--><!-- <b>",
    "\"' onload='x' `",
    "right\u202eto left",
    "line\u2028separator\u2029",
    "</bdi></td></table><h1>",
    "$policy ${script} $$",
    "&lt;b&gt; &amp;amp;",
)


@pytest.mark.parametrize("name", BREAKERS)
def test_a_name_cannot_break_out(name: str, small_page: ReportPage) -> None:
    report_story, tables, harmless = small_page
    evil = replace(
        report_story.groups[0],
        group=name,
        happened=f"{name} rebalanced twice.",
        recommendation=name,
        policy=name,
    )
    evidence = replace(
        report_story.evidence, unread=((name, 3, (name,)), report_story.evidence.unread[1])
    )
    text = document.render_page(
        replace(report_story, out=name, groups=(evil, *report_story.groups[1:]), evidence=evidence),
        tables,
        MADE_AT,
    )
    usual = [tag for tag, _ in PageParser(harmless).tags if tag not in {"bdi", "li", "ul", "code"}]
    tags = [tag for tag, _ in PageParser(text).tags if tag not in {"bdi", "li", "ul", "code"}]
    assert tags == usual
    (row, *_) = [one for one in PageParser(text).all("tr") if "data-group" in one]
    assert row["data-group"] == name
    head = read_group_data(text)[name]["group"]
    assert (head["name"], head["policy"]) == (name, name)
    assert head["happened"] == evil.happened
    assert f"3 {name}" in PageParser(text).text


def test_names_that_run_the_other_way_are_kept_to_themselves(hostile_page: ReportPage) -> None:
    turned = "right\u202eto\u202dleft \u0627\u0644\u0637\u0644\u0628\u0627\u062a"
    for line in re.split(r"<(?:script type|tr data-group)", hostile_page[2])[0].splitlines():
        outside = re.sub(r"<bdi>.*?</bdi>", "", unescape(line))
        assert not set(turned[5:6] + turned[8:9]) & set(outside)


def test_what_could_not_be_read_is_counted(small_page: ReportPage) -> None:
    _, _, text = small_page
    shown = PageParser(text).text
    assert "Not read: 1,237" in shown
    assert "3 records of a version that is not known" in shown
    assert "partition 7, offset 12: version 99" in shown
    assert "1,234 lines without a time" in shown


def test_a_demo_says_so_and_nothing_else_does(
    small_page: ReportPage, hostile_page: ReportPage
) -> None:
    shown = PageParser(small_page[2]).text
    assert shown.count("DEMO: simulated data, not a real cluster") == 1
    assert shown.count("DEMO: Rota: consumer groups") == 1
    assert "DEMO" not in PageParser(hostile_page[2]).text


def test_every_number_of_the_list_says_how_it_is_known(any_page: ReportPage) -> None:
    report_story, _, text = any_page
    for group in report_story.groups:
        cells = re.findall(
            r'<td class="cell-\w+ number">(.*?)</td>', row_of(text, escape(group.name))
        )
        for cell in cells:
            if re.search(r">[^<]*\d", cell):
                assert re.search(r'data-how="(inferred|sampled)"', cell)
    assert "<abbr" not in text


def test_tables_without_rows_make_a_page_that_says_so(tmp_path: Path) -> None:
    report_story, _, text = make_page(gold_tables.write_empty(tmp_path))
    assert report_story.groups == ()
    assert "The input has no consumer group." in PageParser(text).text
    assert read_group_data(text) == {}


def test_a_link_stays_one_and_who_may_read_is_the_users_to_say(
    tmp_path: Path, small_page: ReportPage
) -> None:
    report_story, tables, text = small_page
    target = tmp_path / "elsewhere.html"
    (tmp_path / "report.html").symlink_to(target)
    before = os.umask(0o077)
    try:
        document.write_page(report_story, tables, tmp_path / "report.html")
    finally:
        os.umask(before)
    assert (tmp_path / "report.html").is_symlink()
    assert read_group_data(target.read_text("utf-8")) == read_group_data(text)
    assert target.stat().st_mode & 0o777 == 0o600
    assert len(list(tmp_path.iterdir())) == 2


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path, small_page: ReportPage) -> None:
    report_story, tables, text = small_page
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_text, "utf-8")
        document.write_page(report_story, tables, pipe)
        assert read_group_data(read.result(60)) == read_group_data(text)
    assert pipe.is_fifo()
