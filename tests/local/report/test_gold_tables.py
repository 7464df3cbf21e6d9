"""The made-up gold tables agree with each other, and come out the same every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from rota.report.story import GoldTables, read_gold_tables
from tests.support.gold_tables import (
    HOSTILE,
    Run,
    write_empty,
    write_hostile,
    write_large,
    write_small,
)

MakeTables = Callable[[Path], Path]
UNCOUNTED = {"not polled", "shut down"}
MILLISECOND = timedelta(milliseconds=1)
FEW: MakeTables = partial(write_large, groups=12, partitions=100, rebalances=400)
MADE: dict[str, MakeTables] = {"small": write_small, "hostile": write_hostile, "large": FEW}


def make_gold_tables(make: MakeTables, folder: Path) -> GoldTables:
    folder.mkdir()
    return read_gold_tables(str(make(folder)))


@pytest.fixture(scope="module")
def gold_tables(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GoldTables]:
    """Makes tables by their name, once for all tests."""

    @cache
    def make(name: str) -> GoldTables:
        return make_gold_tables(MADE[name], tmp_path_factory.mktemp(name) / "tables")

    return make


def sum_column(table: Any, group: str, column: str, **wanted: object) -> int:
    rows = table.filter(is_group(table, group)).to_pylist()
    return sum(row[column] for row in rows if wanted.items() <= row.items())


@pytest.mark.parametrize("name", MADE)
def test_advice_counts_what_the_other_tables_have(
    gold_tables: Callable[[str], GoldTables], name: str
) -> None:
    found = gold_tables(name)
    advised = set(found.advised["group"].to_pylist())
    for row in found.advice.to_pylist():
        group = row["group"]
        happened = found.rebalances.filter(is_group(found.rebalances, group))
        assert row["rebalances"] == happened.num_rows
        assert (group in advised) == (row["verdict"] == "change")
        if row["moved"] is None:
            continue
        for column in ("moved", "moves_needed", "revoked", "downtime_ms"):
            assert row[column] == sum_column(found.rebalances, group, column)
            assert row[column] == sum_column(found.whatif, group, column, actual=True)
        reasons = dict(row["downtime_by_reason"])
        counted = {reason: time for reason, time in reasons.items() if reason not in UNCOUNTED}
        assert sum(counted.values()) == row["downtime_ms"]
        lengths: Counter[str] = Counter()
        for piece in found.downtime.filter(is_group(found.downtime, group)).to_pylist():
            lengths[piece["reason"]] += round((piece["until"] - piece["since"]) / MILLISECOND)
        assert {reason: time for reason, time in lengths.items() if time} == reasons
    assert set(found.advice["group"].to_pylist()) == set(found.health["group"].to_pylist())
    (run,) = found.evidence.to_pylist()
    assert run["rebalances"] == found.rebalances.num_rows


@pytest.mark.parametrize("name", MADE)
def test_a_partition_has_one_owner_at_a_time(
    gold_tables: Callable[[str], GoldTables], name: str
) -> None:
    found = gold_tables(name)
    for table in (found.ownership, found.advised):
        ends: dict[tuple[str, str, int], Any] = {}
        rows = sorted(table.to_pylist(), key=lambda row: row["since"])
        for row in rows:
            key = row["group"], row["topic"], row["partition"]
            assert key not in ends or (ends[key] is not None and ends[key] <= row["since"])
            ends[key] = row["until"]
        assert ends
        assert set(ends.values()) == {None}


@pytest.mark.parametrize("name", MADE)
def test_they_are_the_same_every_time(
    gold_tables: Callable[[str], GoldTables], name: str, tmp_path: Path
) -> None:
    first, second = gold_tables(name), make_gold_tables(MADE[name], tmp_path / "again")
    for table in (
        *("rebalances", "downtime", "health", "ownership", "whatif", "advice", "advised"),
        *("lag", "evidence"),
    ):
        assert getattr(first, table).equals(getattr(second, table))


def test_large_ones_have_the_sizes_that_were_asked_for(
    gold_tables: Callable[[str], GoldTables],
) -> None:
    found = gold_tables("large")
    assert found.advice.num_rows == 12
    assert found.rebalances.num_rows == 400
    pairs = zip(found.ownership["topic"], found.ownership["partition"], strict=True)
    assert len({(topic.as_py(), partition.as_py()) for topic, partition in pairs}) == 100


def test_every_hostile_name_is_a_group_a_topic_and_a_client(
    gold_tables: Callable[[str], GoldTables],
) -> None:
    found = gold_tables("hostile")
    for column in ("group", "topic", "client_id"):
        assert set(HOSTILE) <= set(found.ownership[column].to_pylist())


def test_a_run_says_what_it_is_told_to_say(tmp_path: Path) -> None:
    run = Run(demo=True, unread=[("torn", 2, ["one"])], polled=True)
    (row,) = make_gold_tables(
        partial(write_empty, run=run), tmp_path / "tables"
    ).evidence.to_pylist()
    assert row["demo"]
    assert row["unread"] == [{"what": "torn", "count": 2, "examples": ["one"]}]
    assert row["polled"]["rounds"] == 120


def is_group(table: Any, group: str) -> Any:
    return pc.equal(table["group"], group)
