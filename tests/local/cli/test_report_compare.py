"""``rota report --compare``: two runs group by group, what chance explains, and the exit code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rota.cli.render import TEXT_WIDTH
from rota.engine.history.facts import GroupHealth

pytest.importorskip("pyarrow")

from rota.cli.report_compare import BETTER, UNCLEAR, WORSE, Comparison, GroupRun, Measure
from tests.support.command import RotaCommand
from tests.support.gold_history import HOUR, MINUTE, SECOND, History
from tests.support.gold_tables import (
    HOSTILE,
    MORNING,
    build_tables,
    write_empty,
    write_hostile,
    write_large,
    write_sick,
    write_small,
)

CompareCommand = Callable[..., tuple[int, str, str]]


@pytest.fixture
def compare(rota_command: RotaCommand) -> CompareCommand:
    return partial(rota_command, "report", "--compare")


def write_deploys(folder: Path, *, closed: bool = False, hours: int = 12, **deploys: int) -> Path:
    """Groups of four members, with so many rolling deploys, one in each hour.

    :param closed: the broker's log states that members close; otherwise some time passes until
        the group knows
    """
    histories = []
    for name, number in deploys.items():
        history = History(group=name, topics={f"topic-{name}": 12})
        members = [f"{name}-{place}" for place in range(4)]
        history.join(members, MORNING, stated=True)
        for hour in range(number):
            for place, member in enumerate(members):
                at = MORNING + hour * HOUR + (place + 1) * MINUTE
                history.restart(member, at, away=8 * SECOND, stated=closed)
        histories.append(history)
    last = History(group="last", topics={"last": 1})
    last.join(["a"], MORNING)
    last.join(["b"], MORNING + hours * HOUR)
    return build_tables([*histories, last]).write(folder)


def verdicts(compare: CompareCommand, *words: object) -> tuple[int, dict[str, str], dict[str, Any]]:
    code, out, _ = compare(*words, "--json")
    found = json.loads(out)
    return code, {one["group"]: one["verdict"] for one in found["groups"]}, found


def test_a_run_is_no_worse_than_itself(tmp_path: Path, compare: CompareCommand) -> None:
    before, after = write_small(tmp_path / "a"), write_small(tmp_path / "b")
    code, found, _ = verdicts(compare, before, after)
    assert (code, set(found.values())) == (0, {UNCLEAR})
    code, out, err = compare(before, after)
    assert (code, err) == (0, "")
    assert out.endswith("worse: 0 groups\nbetter: 0 groups\nno clear difference: 6 groups\n")


def test_less_downtime_is_better_and_more_is_worse(tmp_path: Path, compare: CompareCommand) -> None:
    slow = write_deploys(tmp_path / "slow", orders=6, quiet=0)
    fast = write_deploys(tmp_path / "fast", closed=True, orders=6, quiet=0)
    code, found, _ = verdicts(compare, slow, fast)
    assert (code, found) == (0, {"orders": BETTER, "quiet": UNCLEAR, "last": UNCLEAR})
    code, found, report = verdicts(compare, fast, slow)
    assert (code, found) == (1, {"orders": WORSE, "quiet": UNCLEAR, "last": UNCLEAR})
    (orders,) = (one for one in report["groups"] if one["group"] == "orders")
    assert orders["changes"]["downtime"] == 1
    assert orders["changes"]["rebalances"] == 0
    old, new = (orders[run]["measures"]["downtime"] for run in ("before", "after"))
    assert new["value"] - old["value"] > new["uncertainty"] + old["uncertainty"]
    assert old["mark"] == new["mark"] == "inferred"
    code, out, _ = compare(fast, slow)
    assert code == 1
    assert "worse: 1 group\n  orders: downtime " in out
    assert " per hour and partition\n" in out


def test_windows_of_different_length_are_compared_by_the_hour(
    tmp_path: Path, compare: CompareCommand
) -> None:
    """Twice as many deploys in twice the time are no difference; in the same time they are."""
    half = write_deploys(tmp_path / "half", hours=12, orders=12)
    whole = write_deploys(tmp_path / "whole", hours=24, orders=24)
    code, found, report = verdicts(compare, half, whole)
    assert (code, found["orders"]) == (0, UNCLEAR)
    (orders,) = (one for one in report["groups"] if one["group"] == "orders")
    assert [round(orders[run]["hours"]) for run in ("before", "after")] == [12, 24]
    rare = write_deploys(tmp_path / "rare", hours=24, orders=6)
    assert verdicts(compare, rare, whole)[:2] == (1, {"orders": WORSE, "last": UNCLEAR})
    assert verdicts(compare, whole, rare)[:2] == (0, {"orders": BETTER, "last": UNCLEAR})


def test_bad_health_is_worse_whatever_else_happened(
    tmp_path: Path, compare: CompareCommand
) -> None:
    sick = write_sick(tmp_path / "sick")
    well = History(group="gone", topics={"topic-gone": 2})
    well.join(["one", "two"], MORNING)
    well.join(["three"], MORNING + HOUR)
    good = build_tables([well], lagging=["gone"]).write(tmp_path / "good")
    code, found, _ = verdicts(compare, good, sick, "--group", "gone")
    assert (code, found) == (1, {"gone": WORSE})
    code, out, _ = compare(good, sick)
    assert "  gone: health OK -> failing" in out
    assert verdicts(compare, sick, good)[:2] == (0, {"gone": BETTER})


def test_groups_of_one_run_are_listed(tmp_path: Path, compare: CompareCommand) -> None:
    before = write_deploys(tmp_path / "a", kept=1, old=1)
    after = write_deploys(tmp_path / "b", kept=1, new=1, other=1)
    code, out, _ = compare(before, after)
    assert code == 0
    assert out.endswith("no clear difference: 2 groups\nonly before: old\nonly after: new, other\n")
    _, _, found = verdicts(compare, before, after)
    assert (found["only_before"], found["only_after"]) == (["old"], ["new", "other"])


def test_many_groups_and_hostile_names_fit_on_a_screen(
    tmp_path: Path, compare: CompareCommand
) -> None:
    large = write_large(tmp_path / "large", groups=40, partitions=400, rebalances=4_000)
    small = write_large(tmp_path / "small", groups=40, partitions=400, rebalances=400)
    hostile = write_hostile(tmp_path / "hostile")
    for before, after in ((small, large), (large, small), (hostile, hostile)):
        code, out, _ = compare(before, after)
        assert code in {0, 1}
        lines = out.splitlines()
        assert len(lines) <= 28
        assert all(sign == "\n" or sign.isprintable() for sign in out)
        assert all(cell_len(line) <= TEXT_WIDTH or "/" in line for line in lines)
    assert len(verdicts(compare, hostile, hostile)[1]) == len(HOSTILE)


def test_nothing_to_compare_is_an_error(tmp_path: Path, compare: CompareCommand) -> None:
    run, empty = write_small(tmp_path / "run"), write_empty(tmp_path / "empty")
    code, out, err = compare(run, empty)
    assert (code, out) == (4, "")
    assert err == f"rota: nothing to compare: no group is in both {run} and {empty}\n"
    assert compare(run, tmp_path / "missing")[0] == 3
    shutil.rmtree(run / ".runs" / "1" / "gold" / "downtime")
    assert compare(run, run)[0] == 4


@pytest.mark.parametrize("words", [["out"], ["--open"], ["--out", "page.html"]])
def test_a_comparison_writes_no_page(
    words: list[str], tmp_path: Path, rota_command: RotaCommand
) -> None:
    run = write_empty(tmp_path / "run")
    found = rota_command("report", *words, "--compare", run, run)
    assert found.code == 2
    assert "--compare writes no page: leave out DIR, --out and --open" in found.err


def test_help_states_the_rule_and_the_exit_code(rota_command: RotaCommand) -> None:
    text = " ".join(rota_command("report", "--help").out.split())
    assert "larger than two standard deviations" in text
    assert "1 a limit is exceeded (--compare: a group got worse)" in text


def group_run(measures: dict[str, Measure]) -> GroupRun:
    return GroupRun(health=GroupHealth.OK, hours=24.0, partitions=12, measures=measures)


def measure(value: float, deviation: float = 0, uncertainty: float = 0) -> Measure:
    return Measure(value=value, deviation=deviation, uncertainty=uncertainty, mark="inferred")


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ({"downtime": measure(10)}, {"downtime": measure(5)}, BETTER),
        ({"downtime": measure(10, 3)}, {"downtime": measure(5, 1)}, UNCLEAR),
        ({"downtime": measure(10, 0, 3)}, {"downtime": measure(5, 0, 2)}, UNCLEAR),
        ({"downtime": measure(10, 0, 3)}, {"downtime": measure(4.9, 0, 2)}, BETTER),
        ({"rebalances": measure(1)}, {"rebalances": measure(9)}, WORSE),
        (
            {"downtime": measure(10), "rebalances": measure(1)},
            {"downtime": measure(5), "rebalances": measure(9)},
            BETTER,
        ),
        (
            {"downtime": measure(10), "lag": measure(1)},
            {"downtime": measure(5), "lag": measure(9)},
            WORSE,
        ),
        ({"lag": measure(1)}, {"downtime": measure(9)}, UNCLEAR),
    ],
)
def test_what_decides(before: dict[str, Measure], after: dict[str, Measure], verdict: str) -> None:
    one = Comparison(group="a", before=group_run(before), after=group_run(after))
    assert one.verdict == verdict


MEASURES = st.dictionaries(
    st.sampled_from(["health", "downtime", "lag", "rebalances"]),
    st.builds(measure, *[st.integers(0, 100)] * 3),
)


@given(MEASURES, MEASURES)
def test_the_other_way_round_it_is_the_opposite(
    before: dict[str, Measure], after: dict[str, Measure]
) -> None:
    there = Comparison(group="a", before=group_run(before), after=group_run(after))
    back = Comparison(group="a", before=group_run(after), after=group_run(before))
    assert there.changes == {name: -change for name, change in back.changes.items()}
    decisive = {change for name, change in there.changes.items() if name != "rebalances"}
    if not {1, -1} <= decisive:
        opposite = {WORSE: BETTER, BETTER: WORSE, UNCLEAR: UNCLEAR}
        assert there.verdict == opposite[back.verdict]
    assert Comparison(group="a", before=there.before, after=there.before).verdict == UNCLEAR
