"""``rota report``, and what ``rota run`` ends with: the page, and the story in 80 columns."""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import sys
import threading
import webbrowser
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rota.cli import report_summary
from rota.cli.render import TEXT_WIDTH, clip_text, shorten_name, wrap_text
from rota.engine.history.facts import GroupHealth, GroupHealthStatus
from rota.pipeline.tables import ADVICE
from rota.report.page import document
from rota.report.story import (
    EvidenceMark,
    EvidenceSummary,
    GroupStory,
    Story,
    build_story,
    format_time,
    read_gold_tables,
    shorten_times,
)

pytest.importorskip("pyarrow")

from tests.support.command import RotaCommand
from tests.support.gold_tables import (
    HOSTILE,
    MORNING,
    SCRIPT,
    Run,
    write_empty,
    write_hostile,
    write_large,
    write_sick,
    write_small,
    write_strategy_changes,
)

ReportCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rota_report(rota_command: RotaCommand, monkeypatch: pytest.MonkeyPatch) -> ReportCommand:
    """Runs ``rota report``: the exit code, and what it prints, however slow the machine is."""
    monkeypatch.setattr("rota.cli.render.NOTICE_AFTER", 600.0)
    return partial(rota_command, "report")


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


SUMMARY = """\
DEMO: simulated data, not a real cluster
6 groups: 3 unknown, 3 OK
48 rebalances, 8 min 39 s of downtime; recommended changes save 2 min 19 s

1. orders-app: OK, 7 min 19 s downtime
{worst}

2. audit: OK, 1 min 14 s downtime
{second}

3. <script>alert(1)</script>"'&: unknown, 6.5 s downtime
{third}

input: 6 h to 2026-11-15 12:00:20Z; 3 not decoded (records of a version that is
  not known); sampled every 30 s with 1 gap; compaction removed the beginning o…
report: out/report.html
one group: rota why GROUP out; to open the report: rota report out --open
"""
UNREAD = ("records of a version that is not known", 3, ["__consumer_offsets-1 offset 7: version 9"])


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_whole_summary(working_folder: Path, rota_report: ReportCommand) -> None:
    write_small(
        working_folder / "out", Run(demo=True, polled=True, partial=["billing"], unread=[UNREAD])
    )
    code, out, err = rota_report("out")
    assert (code, err) == (0, "")
    told = build_story(read_gold_tables("out"))
    worst, second, third = ("\n".join(story_lines(told, each)) for each in told.groups[:3])
    assert out == SUMMARY.format(worst=worst, second=second, third=third)
    page = (working_folder / "out" / "report.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")


def story_lines(told: Story, group: GroupStory) -> list[str]:
    """What happened and what to do, in two lines each."""
    happened, to_do = (shorten_times(text, told.evidence) for text in (group.happened, group.to_do))
    return [
        *clip_text(happened, "   ", "   ", lines=2),
        *clip_text(to_do, "   To do: ", "   ", lines=2),
    ]


NAMES = st.text(min_size=1, max_size=249) | st.sampled_from(
    [
        "x" * 249,
        "\u6ce8\u6587" * 120,
        "\x1b[31m" * 40,
        "a b " * 60,
        "k=v/" * 60,
        "\u202e\u0301" * 90,
    ]
)
HEALTHS = st.sampled_from(list(GroupHealth))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Stories of up to five groups, with names and texts that are as bad as can be."""
    names = draw(st.lists(NAMES, max_size=5, unique=True))
    groups = tuple(make_group(draw, name) for name in names)
    counts = st.integers(0, 10**12)
    problem = st.tuples(NAMES, counts, st.just(()))
    evidence = EvidenceSummary(
        demo=draw(st.booleans()),
        first=MORNING,
        last=draw(st.integers(MORNING, 1 << 60)),
        since=None,
        until=None,
        records=0,
        commits=0,
        generations=0,
        rebalances=0,
        logs=0,
        lines=0,
        samples=0,
        cluster=None,
        lookups={"skipped_partitions": ["a-0"] * draw(st.integers(0, 3))},
        polled=draw(st.none() | st.just({"every": 2.5, "gaps": [{}, {}]})),
        windows=((draw(NAMES), MORNING, False),),
        complete=((0, draw(st.integers(0, 9)), MORNING),),
        unread=tuple(draw(st.lists(problem, max_size=4))),
    )
    more = draw(st.integers(0, 10**9))
    return Story(
        out="out", groups=groups, total_groups=len(groups) + more, evidence=evidence, causes=()
    )


def make_group(draw: st.DrawFn, name: str) -> GroupStory:
    health, texts = draw(HEALTHS), st.text() | st.lists(NAMES, max_size=40).map(" ".join)
    where = {"topic": None, "partition": None, "since": None}
    worst = {f"worst_{key}": None for key in (*where, "until")}
    return GroupStory(
        group=name,
        verdict="keep",
        policy="range",
        policies_used=("range",),
        rebalances=draw(st.integers(0, 10**12)),
        rebalances_after=0,
        downtime_ms=draw(st.none() | st.integers(0, 1 << 62)),
        saving_ms=draw(st.none() | st.integers(0, 1 << 62)),
        libraries=(),
        happened=draw(texts),
        to_do=draw(texts),
        recommendation="",
        health=GroupHealthStatus(
            group=name,
            health=health,
            lag=None,
            reason="",
            worst=health,
            worst_reason="",
            **where,
            **worst,
        ),
        mark=EvidenceMark.INFERRED,
        causes=(),
        lag=None,
        status=None,
        complete_from=None,
        whole=True,
    )


@given(stories())
def test_a_summary_always_fits_on_a_terminal(story: Story) -> None:
    lines = [line.plain for line in report_summary.summary_lines(story, Path("out/report.html"))]
    assert len(lines) <= 25
    assert "report: out/report.html" in lines
    for line in lines:
        assert cell_len(line) <= TEXT_WIDTH
        assert line.isprintable()
    titles = [line for line in lines if re.match(r"\d\. ", line)]
    assert len(titles) == min(len(story.groups), 3)


@given(st.text(), st.sampled_from(["", "  To do: "]), st.integers(1, 4))
def test_a_clipped_text_has_as_many_lines_as_allowed(text: str, first: str, limit: int) -> None:
    lines = clip_text(text, first, "  ", lines=limit)
    assert 1 <= len(lines) <= limit
    assert all(cell_len(line) <= TEXT_WIDTH for line in lines)
    longer = clip_text(text, first, "  ", lines=10_000)
    assert lines == longer if len(longer) <= limit else lines[-1].endswith("…")


def test_what_is_no_demo_is_not_called_one(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_small(working_folder / "out")
    _, out, _ = rota_report("out")
    assert out.startswith("6 groups: 3 unknown, 3 OK\n")
    assert "DEMO" not in out


def test_a_run_in_which_nothing_happened(working_folder: Path, rota_report: ReportCommand) -> None:
    write_empty(working_folder / "out")
    code, out, _ = rota_report("out")
    assert code == 0
    assert out == (
        "No group had a rebalance.\n\ninput: the journal is empty\nreport: out/report.html\n"
    )


def test_hostile_names_stay_in_their_lines(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_hostile(working_folder / "out")
    code, out, err = rota_report("out")
    assert (code, err) == (0, "")
    assert all(sign == "\n" or sign.isprintable() for sign in out)
    assert all(cell_len(line) <= TEXT_WIDTH for line in out.splitlines())
    names = [line.partition(": OK, ")[0] for line in out.splitlines() if re.match(r"\d\. ", line)]
    assert names == [
        f"1. {SCRIPT}",
        "2. right\\u202eto\\u202dleft \u0627\u0644\u0637\u0644\u0628\u0627\u062a",
        "3. \N{PILE OF POO} \N{FAMILY} e\u0301 \\u200d",
    ]


def test_a_folder_with_a_blank_can_be_copied_from_the_last_line(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_small(working_folder / "last night")
    _, out, _ = rota_report("last night")
    assert last_line(out) == "one group: rota why GROUP 'last night'"


def test_of_many_groups_the_worst_three_are_printed(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_large(working_folder / "out", groups=40, partitions=400, rebalances=800)
    _, out, _ = rota_report("out")
    lines = out.splitlines()
    assert lines[0].startswith("40 groups: ")
    assert len(lines) <= 25
    assert all(cell_len(line) <= TEXT_WIDTH for line in lines)
    assert [line[:3] for line in lines if re.match(r"\d+\. ", line)] == ["1. ", "2. ", "3. "]


def test_the_page_goes_where_it_is_told_to(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_small(working_folder / "out")
    code, out, _ = rota_report("out", "--out", "page.html")
    assert code == 0
    assert out.splitlines()[-2:] == ["report: page.html", "one group: rota why GROUP out"]
    assert (working_folder / "page.html").stat().st_size > 1000
    assert not (working_folder / "out" / "report.html").exists()


def test_a_descriptor_that_is_not_open_is_named(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_small(working_folder / "out")
    assert rota_report("out", "--out", "/dev/fd/987654") == (
        3,
        "",
        "rota: /dev/fd/987654: Bad file descriptor\n",
    )


@pytest.mark.parametrize(
    ("made", "read"),
    [
        (["rota-out"], "rota-out"),
        (["rota-demo"], "rota-demo"),
        (["rota-out", "rota-demo"], "rota-out"),
    ],
)
def test_the_folder_need_not_be_said(
    working_folder: Path, rota_report: ReportCommand, made: list[str], read: str
) -> None:
    for name in made:
        write_empty(working_folder / name)
    code, out, _ = rota_report()
    assert code == 0
    assert last_line(out) == f"report: {read}/report.html"
    assert (working_folder / read / "report.html").exists()


def test_only_groups_that_are_wanted(working_folder: Path, rota_report: ReportCommand) -> None:
    denied = ("groups and topics without permission", 2, ["orders-app: not yours", "secret: no"])
    write_small(working_folder / "out", Run(polled=True, unread=[denied]))
    code, out, _ = rota_report("out", "--group", "bill*", "--out", "page.html")
    assert code == 0
    assert out.startswith("1 of 6 groups: 1 OK\n2 rebalances, ")
    page = (working_folder / "page.html").read_text(encoding="utf-8")
    shown = (out, page, *read_page_data(page), rota_report("out", "--group", "bill*", "--json")[1])
    others = ("orders-app", "audit", "connect-sink", "quiet", "secret")
    assert "billing" in page
    assert "groups and topics without permission" in page
    assert not [name for name in others for text in shown if name in text]
    assert "secret: no" in rota_report("out", "--json")[1]


def read_page_data(page: str) -> list[str]:
    """The data of a page's groups."""
    blobs = re.findall(r'<script type="text/plain" id="data-\d+">(.*?)</script>', page)
    return [zlib.decompress(base64.b64decode(blob)).decode() for blob in blobs]


def test_a_page_of_some_groups_does_not_take_the_place_of_that_of_all(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_small(working_folder / "out")
    rota_report("out")
    whole = (working_folder / "out" / "report.html").read_bytes()
    code, out, _ = rota_report("out", "--group", "quiet")
    assert code == 0
    assert "report: out/report-selected.html\n" in out
    assert out.startswith("1 of 6 groups: 1 unknown\n1 rebalance, ")
    assert (working_folder / "out" / "report.html").read_bytes() == whole


def test_a_time_that_no_calendar_has_is_told_as_a_number() -> None:
    assert format_time(0) == "1970-01-01 00:00:00Z"
    assert format_time(-1_000) == "1969-12-31 23:59:59Z"
    assert format_time(1 << 62) == "4611686018427387904 ms after 1970"


def test_names_in_the_lines_of_following_do_not_move_the_cursor() -> None:
    pytest.importorskip("pyspark")
    from rota.cli import run_pipeline
    from rota.pipeline.follow import MicroBatchResult

    happened = (("evil\x1b]0;pwn\x07\u202e", "joined"),)
    line = run_pipeline.format_round(
        MicroBatchResult(seconds=1.0, records=5, groups=1, rebalances=1, happened=happened)
    )
    assert line == (
        "5 records, 1 group changed, 1 new rebalance: evil\\x1b]0;pwn\\x07\\u202e (joined)  (1.0 s)"
    )


GROUP_KEYS = [
    *("group", "health", *(column.name for column in ADVICE.columns[1:])),
    *("mark", "marks", "causes", "lag", "status", "overview"),
]


def test_json_has_what_is_printed_and_more(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_small(
        working_folder / "out", Run(demo=True, polled=True, partial=["billing"], unread=[UNREAD])
    )
    code, out, err = rota_report("out", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert list(found) == [
        *("out", "page", "demo", "cluster", "window", "shown", "records", "commits"),
        *("generations", "rebalances", "lines", "samples", "marks", "polled", "groups"),
        *("causes", "complete_from", "commits_complete_from", "not_read"),
    ]
    assert found["out"] == str(working_folder / "out")
    assert found["page"] == str(working_folder / "out" / "report.html")
    assert found["demo"] is True
    assert found["cluster"] is None
    assert found["window"] == {"first": 1_794_722_400_000, "last": 1_794_744_020_000}
    assert found["shown"] == {"since": None, "until": None}
    assert found["polled"]["groups"] == [f"{SCRIPT}\"'&", "audit", "billing"]
    assert found["not_read"] == [dict(zip(("what", "count", "examples"), UNREAD, strict=True))]
    assert found["complete_from"][2] == {
        "group": "billing",
        "at": 1_794_722_400_000,
        "whole": False,
    }
    assert found["commits_complete_from"] == [
        {"journal_partition": 0, "offset": 0, "at": 1_794_722_400_000}
    ]
    assert {tuple(group) for group in found["groups"]} == {tuple(GROUP_KEYS)}
    worst = found["groups"][0]
    assert (worst["group"], worst["mark"], worst["status"]) == ("orders-app", "inferred", "WARN")
    assert worst["causes"][0] == {"cause": "joined", "evidence": "inferred", "rebalances": 13}
    assert worst["lag"] == {
        "most": 25_555,
        "most_seconds": 2_555.555,
        "most_at": 1_794_724_835_555,
        "most_topic": "orders",
        "most_partition": 0,
        "at_least": False,
        "after_rebalance": 2_435.555,
    }
    assert sum(cause["rebalances"] for cause in found["causes"]) == found["rebalances"] == 48


def test_json_has_the_mark_of_every_number(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_small(working_folder / "out", Run(polled=True, unread=[UNREAD]))
    _, out, _ = rota_report("out", "--json")
    found = json.loads(out)
    groups = {group["group"]: group for group in found["groups"]}
    counts = (
        *("rebalances", "downtime_ms", "downtime_at_least_ms", "downtime_at_most_ms"),
        *("not_polled_ms", "moved", "moves_needed", "revoked"),
    )
    after = (
        *("rebalances_after", "downtime_current_ms", "downtime_after_ms", "uncertainty_ms"),
        "delayed_records_after",
        *("moved_after", "revoked_after"),
    )
    for name, of_counts, of_after in (
        ("orders-app", "inferred", "replayed"),
        ("audit", "sampled", "replayed"),
        ("billing", "inferred", "inferred"),
    ):
        group = groups[name]
        assert group["marks"] == {
            **dict.fromkeys(counts, of_counts),
            **dict.fromkeys(after, of_after),
            "saving_ms": None if of_after == "inferred" else of_after,
            **dict.fromkeys(("delayed_records", "added_lag_ms", "health"), "sampled"),
            "causes": [cause["evidence"] for cause in group["causes"]],
            "patterns": of_counts,
            "actions": [
                of_counts if action["kind"] == "repair" else "replayed"
                for action in group["actions"]
            ],
            "lag": "sampled",
            "status": "sampled",
        }
    assert set(groups["orders-app"]["marks"]["causes"]) == {"stated", "inferred"}
    connect = groups["connect-sink"]
    known = {"rebalances", "rebalances_after", "health", "causes", "patterns", "actions"}
    assert {name for name, mark in connect["marks"].items() if mark is not None} == known
    for group in groups.values():
        numbers = {name for name, value in group.items() if isinstance(value, int | float)}
        assert numbers <= set(group["marks"])
    assert found["marks"] == {
        "records": ["stated"],
        "commits": ["stated", "sampled"],
        "generations": ["stated", "sampled"],
        "rebalances": ["inferred", "sampled"],
        "lines": ["stated"],
        "samples": ["sampled"],
        "not_read": ["stated"],
    }
    numbers = {name for name, value in found.items() if type(value) is int}
    assert numbers <= set(found["marks"])


def test_json_has_health_patterns_and_advice_with_its_uncertainty(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_sick(working_folder / "sick")
    _, out, _ = rota_report("sick", "--json")
    groups = {group["group"]: group for group in json.loads(out)["groups"]}
    stuck = groups["stuck"]["health"]
    moved = "committed offset 36,000 has not moved since 2026-11-15 07:00Z while 179,400"
    same = {"since": 1_794_726_000_100, "topic": "topic-stuck", "partition": 1}
    assert stuck == {
        "now": "stuck",
        **same,
        "offset": 36_000,
        "lag": 179_400,
        "reason": f"topic-stuck-1: {moved} records arrived",
        "worst": "stuck",
        "worst_until": 1_794_744_000_000,
        **{f"worst_{name}": value for name, value in same.items()},
        "worst_reason": stuck["reason"],
    }
    assert groups["gone"]["health"]["now"] == "failing"
    assert groups["well"]["health"]["worst"] == "OK"
    write_small(working_folder / "out")
    worst = json.loads(rota_report("out", "--json")[1])["groups"][0]
    reasons = {"left": 70_980, "revoked": 275_908, "silent": 91_860}
    assert worst["downtime_by_reason"] == reasons
    assert worst["downtime_ms"] == sum(reasons.values())
    assert worst["downtime_at_least_ms"] < worst["downtime_ms"] < worst["downtime_at_most_ms"]
    assert worst["downtime_ms"] - worst["downtime_after_ms"] > worst["uncertainty_ms"] > 0
    assert [pattern["pattern"] for pattern in worst["patterns"]] == [
        *("slow polls", "rejoining member", "rolling deploy")
    ]
    assert worst["patterns"][1]["member"] == "app-5"


def test_bad_health_comes_first_with_its_repair(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_sick(working_folder / "out")
    _, out, _ = rota_report("out")
    assert out.startswith("5 groups: 1 failing, 2 stuck, 1 falling behind, 1 OK\n")
    titles = [line for line in out.splitlines() if re.match(r"\d\. ", line)]
    assert titles == [
        "1. gone: failing, 10 h 1 min downtime",
        "2. stuck: stuck, no downtime",
        "3. commits-only: stuck, unknown downtime",
    ]
    said = " ".join(out.split())
    assert "No members since 07:00 UTC; 360,000 records wait;" in said
    assert "To do: Start the members again, or find out who stopped them;" in said
    assert "committed offset 36,000 has not moved since 07:00" in said


def test_policies_that_followed_each_other_are_in_their_order(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_strategy_changes(working_folder / "out")
    _, out, _ = rota_report("out", "--json")
    used = {group["group"]: group["policies_used"] for group in json.loads(out)["groups"]}
    assert used == {
        "moving": ["range", "sticky"],
        "settled": ["range", "cooperative-sticky, eager"],
    }


def test_hostile_names_are_whole_in_json(working_folder: Path, rota_report: ReportCommand) -> None:
    write_hostile(working_folder / "out")
    _, out, _ = rota_report("out", "--json")
    assert {group["group"] for group in json.loads(out)["groups"]} == set(HOSTILE)


SLOW = (
    "reading the tables of out ...",
    "summarizing the tables ...",
    "writing out/report.html: 6 groups ...",
)


@pytest.mark.parametrize("slow", [0, 1, 2, None])
def test_what_takes_long_is_said_beside_the_output(
    working_folder: Path,
    rota_report: ReportCommand,
    monkeypatch: pytest.MonkeyPatch,
    slow: int | None,
) -> None:
    """From the slow part on; each part is made to wait until it has been told of."""
    from rota.cli import render, report_summary
    from rota.report.page import document

    said = threading.Event()
    say = render.print_notice

    def heard(text: str) -> None:
        say(text)
        said.set()

    def waiting(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            assert said.wait(30)
            return work(*given)

        return run

    monkeypatch.setattr(render, "print_notice", heard)
    monkeypatch.setattr(render, "NOTICE_AFTER", 60.0 if slow is None else 0.2)
    parts = (
        (report_summary, "read_gold_tables"),
        (report_summary, "build_story"),
        (document, "write_page"),
    )
    for module, name in () if slow is None else parts[slow : slow + 1]:
        monkeypatch.setattr(module, name, waiting(getattr(module, name)))
    write_small(working_folder / "out")
    code, out, err = rota_report("out", "--json")
    assert code == 0
    assert len(json.loads(out)["groups"]) == 6
    if slow is None:
        assert err == ""
    else:
        expected = [f"rota: {line}" for line in SLOW[slow:]]
        assert err.splitlines()[-len(expected) :] == expected


def test_the_summary_has_the_downtime_of_a_group_without_rebalances(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_sick(working_folder / "out", since=MORNING + 3 * 60 * 60_000)
    code, out, _ = rota_report("out")
    assert code == 0
    assert "\n1. gone: failing, 6 h downtime\n" in out


def test_a_folder_without_tables(working_folder: Path, rota_report: ReportCommand) -> None:
    code, out, err = rota_report("nowhere")
    assert (code, out) == (3, "")
    assert err == "rota: nowhere has no tables; rota run --out nowhere writes them\n"
    assert rota_report() == (
        3,
        "",
        "rota: rota-out has no tables; rota run --out rota-out writes them\n",
    )


def test_a_file_in_place_of_the_folder(working_folder: Path, rota_report: ReportCommand) -> None:
    (working_folder / "file").touch()
    assert rota_report("file") == (
        4,
        "",
        "rota: file is a file; give the folder that rota run wrote, its --out\n",
    )


def test_tables_of_another_version(working_folder: Path, rota_report: ReportCommand) -> None:
    write_small(working_folder / "out")
    (working_folder / "out" / "gold" / "evidence" / "part-0.parquet").unlink()
    (working_folder / "out" / "gold" / "evidence").rmdir()
    assert rota_report("out") == (
        4,
        "",
        "rota: out: another version of Rota wrote gold/evidence (it does not exist); "
        "rota run --out out writes it again\n",
    )


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (
            ["order-app"],
            "--group order-app: the tables have no such group; did you mean orders-app?",
        ),
        (
            ["x*", "y"],
            "--group x* y: the tables have no such group; known are "
            "<script>alert(1)</script>\"'&, audit, billing and 3 more",
        ),
        (["\x1b[31m"], "--group \\x1b[31m: the tables have no such group; known are"),
    ],
)
def test_a_group_that_is_not_there(
    working_folder: Path, rota_report: ReportCommand, wanted: list[str], problem: str
) -> None:
    write_small(working_folder / "out")
    words = [word for name in wanted for word in ("--group", name)]
    code, out, err = rota_report("out", *words)
    assert (code, out) == (2, "")
    assert last_line(err).startswith(f"rota report: error: {problem}")
    assert not (working_folder / "out" / "report.html").exists()


def test_a_group_of_tables_that_have_none(working_folder: Path, rota_report: ReportCommand) -> None:
    write_empty(working_folder / "out")
    code, _, err = rota_report("out", "--group", "orders")
    assert code == 2
    assert last_line(err) == (
        "rota report: error: --group: the tables have no group with a rebalance"
    )


def test_a_page_for_a_folder_that_is_not_there(
    working_folder: Path, rota_report: ReportCommand
) -> None:
    write_small(working_folder / "out")
    assert rota_report("out", "--out", "missing/page.html") == (
        3,
        "",
        "rota: --out missing/page.html: the folder missing does not exist\n",
    )


def test_what_is_no_file_cannot_be_opened(working_folder: Path, rota_report: ReportCommand) -> None:
    write_small(working_folder / "out")
    assert rota_report("out", "--open", "--out", "/dev/null") == (
        4,
        "",
        "rota: --open: /dev/null is not a regular file, a browser cannot show it\n",
    )


def test_nobody_listens_to_what_is_printed() -> None:
    read, write = os.pipe()
    os.close(read)
    os.close(write)
    assert not document.is_stdout(Path(f"/dev/fd/{write}"))


def test_a_page_in_place_of_a_folder(working_folder: Path, rota_report: ReportCommand) -> None:
    write_small(working_folder / "out")
    assert rota_report("out", "--out", "out") == (
        4,
        "",
        "rota: --out out is a folder; give a file, like out/page.html\n",
    )


def test_the_page_is_opened(
    working_folder: Path, rota_report: ReportCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    write_empty(working_folder / "out")
    code, _, err = rota_report("out", "--open")
    assert (code, err) == (0, "")
    assert opened == [(working_folder / "out" / "report.html").as_uri()]


def test_a_machine_without_a_browser(
    working_folder: Path, rota_report: ReportCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    write_empty(working_folder / "out")
    code, _, err = rota_report("out", "--open")
    assert code == 0
    assert err == "rota: found no browser to open out/report.html\n"


def test_without_arrow_the_extra_is_named(
    working_folder: Path, rota_report: ReportCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert rota_report("out") == (
        3,
        "",
        "rota: rota report needs Arrow: pip install 'rota[report]' ('.[report]' in a clone)\n",
    )


def test_help_has_examples(rota_report: ReportCommand) -> None:
    code, out, _ = rota_report("--help")
    assert code == 0
    assert "rota report rota-demo --open" in out
    assert "exit codes" in out


@pytest.mark.parametrize("as_json", [False, True])
def test_a_run_ends_with_its_report(
    working_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    rota_command: RotaCommand,
    *,
    as_json: bool,
) -> None:
    pytest.importorskip("pyspark")
    from rota.cli import run_pipeline

    monkeypatch.setattr(
        run_pipeline, "run_pipeline", lambda read, out, options, told: write_small(Path(out))
    )
    words = ["run", "--segments", "logs", "--out", "out", *(["--json"] if as_json else [])]
    printed = rota_command(*words).checked().out
    assert rota_command("report", "out", *words[5:]).checked().out == printed
    if as_json:
        assert json.loads(printed)["page"] == str(working_folder / "out" / "report.html")
    else:
        assert printed.startswith("6 groups: 3 unknown, 3 OK\n")


class SilentProgress:
    """A screen that nobody looks at."""

    def began(self, stage: object) -> None: ...

    def ended(self, stage: object, note: str) -> None: ...

    def status(self, text: str) -> None: ...


@pytest.mark.parametrize("rounds", [0, 2])
@pytest.mark.parametrize("as_json", [False, True])
def test_an_interrupt_ends_following_with_the_story(
    working_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rounds: int,
    *,
    as_json: bool,
) -> None:
    pytest.importorskip("pyspark")
    from rota.cli import run_pipeline
    from rota.pipeline.follow import MicroBatchResult
    from rota.pipeline.stages import EvidenceSources, RunOptions

    def interrupted(evidence: object, out: str, options: object, listener: Any) -> None:
        for _ in range(rounds):
            listener.round(MicroBatchResult(seconds=1.0, records=5, groups=1, rebalances=0))
        raise KeyboardInterrupt

    monkeypatch.setattr("rota.pipeline.follow.follow_cluster", interrupted)
    write_small(working_folder / "out")
    args, progress = argparse.Namespace(json=as_json), cast(Any, SilentProgress())
    with pytest.raises(KeyboardInterrupt):
        run_pipeline.follow_and_report(args, EvidenceSources(), "out", RunOptions(), progress)
    printed = capsys.readouterr().out
    page = working_folder / "out" / "report.html"
    assert page.exists() == bool(rounds)
    if not rounds:
        assert printed == ""
    elif as_json:
        lines = [json.loads(line) for line in printed.splitlines()]
        assert [line.get("records") for line in lines[:2]] == [5, 5]
        assert (len(lines), lines[2]["page"]) == (3, str(page))
    else:
        assert printed.splitlines()[2] == "6 groups: 3 unknown, 3 OK"
        assert printed.splitlines()[-2] == "report: out/report.html"


JAVAS = "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


def test_a_setting_is_never_broken() -> None:
    text = f"Restart the members one after the other with {JAVAS}: the group goes on with range."
    assert wrap_text(text, "  1. ", "     ") == [
        "  1. Restart the members one after the other with",
        f"     {JAVAS}:",
        "     the group goes on with range.",
    ]
    assert wrap_text(f"/{'a' * 100}/b c") == [f"/{'a' * 100}/b", "c"]


@pytest.mark.parametrize(
    "setting",
    [
        "config.Consumer.Group.Session.Timeout = 45 * time.Second",
        "config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy"
        "{sarama.NewBalanceStrategyRange()}",
        "aiokafka.coordinator.assignors.sticky.sticky_assignor.StickyPartitionAssignor]",
    ],
)
def test_a_setting_of_another_language_is_not_broken_either(setting: str) -> None:
    text = f"Restart the members one after the other with {setting}: the group goes on."
    assert f"     {setting}:" in "\n".join(wrap_text(text, "  1. ", "     ", has_settings=True))


def test_other_words_that_are_too_wide_are_broken() -> None:
    assert wrap_text(f"is {'x' * 170} behind") == [
        "is",
        "x" * 80,
        "x" * 80,
        "x" * 10 + " behind",
    ]


@pytest.mark.parametrize("name", ["a = b * " * 20, "[" + "x" * 150, "{" + "x" * 150])
def test_a_name_is_no_setting(name: str) -> None:
    assert all(cell_len(line) <= TEXT_WIDTH for line in wrap_text(f"{name}: 3 rebalances"))


@given(st.text(), st.sampled_from(["", "  1. "]), st.booleans())
def test_every_line_fits(text: str, first: str, has_settings: bool) -> None:
    words = wrapped_words(text, has_settings=has_settings)
    whole = {word for word in words if set(word) & set("=/[]{}" if has_settings else "=/")}
    lines = wrap_text(text, first, " " * len(first), has_settings=has_settings)
    for line in lines:
        assert cell_len(line) <= TEXT_WIDTH or line.removeprefix(first).strip() in whole
    shown = "".join(lines).removeprefix(first.rstrip())
    assert "".join(shown.split()) == "".join("".join(words).split())


def wrapped_words(text: str, *, has_settings: bool) -> list[str]:
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return re.findall(r"\S+(?: [=*] \S+)*" if has_settings else r"\S+", shown)


@pytest.mark.parametrize(
    ("name", "width", "shown"),
    [
        ("orders", 6, "orders"),
        ("orders-app", 6, "ord…pp"),
        ("orders-app", 7, "ord…app"),
        ("\u6ce8\u6587\u6ce8\u6587", 8, "\u6ce8\u6587\u6ce8\u6587"),
        ("\u6ce8\u6587\u6ce8\u6587", 6, "\u6ce8…\u6587"),
        ("a\nb", 9, "a\\nb"),
    ],
)
def test_a_wide_name_is_cut_in_its_middle(name: str, width: int, shown: str) -> None:
    assert shorten_name(name, width) == shown


@given(st.text(), st.integers(3, 60))
def test_a_name_that_is_cut_fits(name: str, width: int) -> None:
    assert cell_len(shorten_name(name, width)) <= width
