"""``rota why``: one group's story on a terminal and as JSON, whole or from a time on."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
from rich.cells import cell_len

from rota.cli.render import TEXT_WIDTH

pytest.importorskip("pyarrow")

from rota.report.story import build_story, read_gold_tables
from tests.support.command import RotaCommand
from tests.support.gold_tables import (
    HOSTILE,
    Run,
    write_empty,
    write_hostile,
    write_sick,
    write_small,
)

WhyCommand = Callable[..., tuple[int, str, str]]
HOUR = 3_600_000
#: The last rebalance of orders-app, and the end of the evidence.
END = 1_794_744_020_000
UNCOUNTED = {"not polled", "shut down"}


@pytest.fixture
def rota_why(rota_command: RotaCommand) -> WhyCommand:
    return partial(rota_command, "why")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = Run(demo=True, polled=True, partial=["billing"])
    return write_small(tmp_path_factory.mktemp("why") / "out", run)


def sections(text: str) -> dict[str, list[str]]:
    """The lines of each section by its title; the first two lines are of the health."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line and not line.startswith(" "):
            lines = found.setdefault(line, [])
        elif line:
            lines.append(line)
    return found


def test_a_group_from_its_health_to_its_page(small: Path, rota_why: WhyCommand) -> None:
    code, out, err = rota_why("orders-app", small)
    assert (code, err) == (0, "")
    found = sections(out)
    assert list(found) == [
        "DEMO: simulated data, not a real cluster",
        "orders-app: OK",
        "What happened",
        "What it cost from 2026-11-15 06:00:00Z to 2026-11-15 12:00:20Z",
        "28 rebalances since 2026-11-15 06:00:00Z, the last 10",
        "Patterns",
        "What to do",
        "How the numbers are known",
        f"report: rota report {small}",
    ]
    cost = found["What it cost from 2026-11-15 06:00:00Z to 2026-11-15 12:00:20Z"]
    assert cost[0] == (
        "  downtime  7 min 19 s (4 min 36 s revoked, 1 min 32 s silent, 1 min 11 s left),"
    )
    assert "  delayed   4,666 records" in cost
    assert cost[-1].startswith("  max lag   43 min, orders-0 at 2026-11-15 06:40:35Z, 41 min after")
    rebalances = found["28 rebalances since 2026-11-15 06:00:00Z, the last 10"]
    assert rebalances[0] == (
        "  time                  cause       members  moves (necessary)  downtime"
    )
    assert rebalances[-1] == (
        "  2026-11-15 12:00:20Z  joined       4 -> 5              9 (3)     1.2 s"
    )
    assert len(rebalances) == 11
    assert "  - app-5 joined and left 5 times" in found["Patterns"]
    steps = found["What to do"]
    numbers = [line.split(".")[0].strip() for line in steps if line[2:4].strip().isdecimal()]
    assert numbers == [str(place) for place in range(1, len(numbers) + 1)]
    assert "        max.poll.records=100" in steps
    assert not [line for line in steps if "librdkafka" in line and "setting" in line]
    assert found["How the numbers are known"] == [
        "  - downtime: 7 min 16 s bounded, 2.6 s stated",
        "  - causes of the rebalances: 25 inferred, 3 stated",
        "  - lag and delayed records: sampled",
        "  - savings: replayed from the same history under the other policy",
    ]


def test_it_tells_the_story_of_the_whole_report(small: Path, rota_why: WhyCommand) -> None:
    """The tables of one group give what those of all groups give."""
    for group in build_story(read_gold_tables(str(small))).groups:
        found = json.loads(rota_why(group.name, small, "--json")[1])
        expected = json.loads(json.dumps(group.to_json()))
        assert {name: found[name] for name in expected} == expected
        cost = found["cost_shown"]
        assert cost["downtime_ms"] == group.downtime_ms
        assert cost["by_reason"] == group.downtime_by_reason
        assert cost["lag"] == expected["lag"]
        assert len(found["rebalances_shown"]) == group.rebalances


@pytest.mark.parametrize("since", ["1h", "2026-11-15T11:00:20Z"])
def test_since_counts_back_from_the_end_of_the_evidence(
    small: Path, rota_why: WhyCommand, since: str
) -> None:
    found = json.loads(rota_why("orders-app", small, "--since", since, "--json")[1])
    begin = END - HOUR
    assert (found["since"], found["window"]["last"]) == (begin, END)
    whole = json.loads(rota_why("orders-app", small, "--json")[1])
    times = [row["at"] for row in whole["rebalances_shown"]]
    shown = [row["at"] for row in found["rebalances_shown"]]
    assert shown == [at for at in times if at >= begin]
    assert 0 < len(shown) < len(times)
    rows = read_gold_tables(str(small), "orders-app").downtime.to_pylist()
    expected = sum(
        max(milliseconds(row["until"]) - max(milliseconds(row["since"]), begin), 0)
        for row in rows
        if row["reason"] not in UNCOUNTED
    )
    cost = found["cost_shown"]
    assert cost["downtime_ms"] == expected == sum(cost["by_evidence"].values())
    assert found["downtime_ms"] == whole["downtime_ms"] > expected > 0
    assert cost["lag"]["most_at"] >= begin > whole["cost_shown"]["lag"]["most_at"]
    _, out, _ = rota_why("orders-app", small, "--since", since)
    assert "What happened (whole evidence)" in out
    assert f"{len(shown)} rebalances since 2026-11-15 11:00:20Z\n" in out


def milliseconds(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def test_an_hour_in_which_nothing_happened(small: Path, rota_why: WhyCommand) -> None:
    _, out, _ = rota_why("billing", small, "--since", "1h")
    found = sections(out)
    assert found["0 rebalances since 2026-11-15 11:00:20Z"] == ["  none"]
    (cost,) = (lines for title, lines in found.items() if title.startswith("What it cost"))
    assert cost[0] == "  downtime  0 s, over all partitions"


def test_every_number_of_json_says_how_it_is_known(small: Path, rota_why: WhyCommand) -> None:
    for name, mark in (("orders-app", "inferred"), ("audit", "sampled")):
        found = json.loads(rota_why(name, small, "--json")[1])
        numbers = {key for key, value in found.items() if isinstance(value, int | float)}
        assert numbers - {"demo", "since"} <= set(found["marks"])
        assert {row["mark"] for row in found["rebalances_shown"]} == {mark}
        assert {row["evidence"] for row in found["rebalances_shown"]} <= {
            *("stated", "inferred", "sampled")
        }
        cost = found["cost_shown"]
        assert sum(cost["by_evidence"].values()) == cost["downtime_ms"]
        assert cost["marks"] == {"delayed_records": "sampled", "lag": "sampled"}


def test_a_sick_group_still_ends_with_zero(tmp_path: Path, rota_why: WhyCommand) -> None:
    write_sick(tmp_path / "out")
    code, out, _ = rota_why("gone", tmp_path / "out")
    assert code == 0
    assert out.startswith("gone: failing since 2026-11-15 07:00:00Z\n  no members since 07:00")
    assert "\n   1. Start the members again, or find out who stopped them.\n" in out
    code, out, _ = rota_why("commits-only", tmp_path / "out")
    assert code == 0
    assert out.startswith("commits-only: stuck since ")


def test_the_page_is_named_with_the_group(tmp_path: Path, rota_why: WhyCommand) -> None:
    folder = write_hostile(tmp_path / "out")
    (folder / "report.html").touch()
    for name in HOSTILE:
        code, out, _ = rota_why(name, folder)
        assert code == 0
        assert out.splitlines()[-1] == f"report: {folder}/report.html#g={quote(name, safe='')}"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_lines(
    name: str, tmp_path: Path, rota_why: WhyCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_hostile(tmp_path / "out")
    code, out, err = rota_why(name, "out")
    assert (code, err) == (0, "")
    assert all(sign == "\n" or sign.isprintable() for sign in out)
    settings = ("partition.assignment.strategy=", "report: ")
    for line in out.splitlines():
        assert cell_len(line) <= TEXT_WIDTH or line.strip().startswith(settings), line


def test_another_name_is_suggested(small: Path, tmp_path: Path, rota_why: WhyCommand) -> None:
    code, out, err = rota_why("order-app", small)
    assert (code, out) == (2, "")
    assert err.endswith(
        "error: GROUP order-app: the tables have no such group; did you mean orders-app?\n"
    )
    code, _, err = rota_why("orders-*", small)
    assert code == 2
    assert "the tables have no such group" in err
    write_empty(tmp_path / "empty")
    code, _, err = rota_why("orders", tmp_path / "empty")
    assert code == 2
    assert err.endswith("error: GROUP: the tables have no group with a rebalance\n")


def test_errors_are_those_of_rota_report(tmp_path: Path, rota_why: WhyCommand) -> None:
    missing = tmp_path / "missing"
    assert rota_why("a", missing) == (
        3,
        "",
        f"rota: {missing} has no tables; rota run --out {missing} writes them\n",
    )
    code, _, err = rota_why("a", missing, "--since", "soon")
    assert code == 2
    assert "'soon' is neither a time like 2026-11-15T06:00Z nor a duration like 6h" in err
