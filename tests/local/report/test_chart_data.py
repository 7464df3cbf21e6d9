"""The packed data of a group's page: that it is the tables'."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import compute

from rota.engine.history.advice import sum_by_policy
from rota.engine.history.facts import WhatIf
from rota.pipeline.arrow import to_milliseconds
from rota.report import story
from rota.report.lag_intervals import LAG_INTERVALS
from rota.report.page import chart_data
from rota.report.page.chart_data import LAG_BUCKETS, ChartWindow, LagSeries, lag_series
from rota.report.story import GoldTables, Story, read_gold_tables
from tests.support import gold_tables
from tests.support.gold_layout import Run

UNCOUNTED = {"not polled", "shut down"}
BAND = ("topic", "partition", "member_id", "client_id", "client_host", "since", "until")
TIMES = ("at", "started_at", "earliest_start", "latest_start")
Report = tuple[Story, GoldTables, dict[str, dict[str, Any]]]


def pack_groups(report_story: Story, tables: GoldTables) -> dict[str, dict[str, Any]]:
    """Each group's data as the page unpacks it, by the group's name, in the order of the page."""
    packed = map(chart_data.pack_chart, chart_data.build_charts(report_story, tables))
    data = (json.loads(zlib.decompress(base64.b64decode(text))) for text in packed)
    return {one["group"]["name"]: one for one in data}


def read_report(folder: Path) -> Report:
    tables = read_gold_tables(str(folder))
    report_story = story.build_story(tables)
    return report_story, tables, pack_groups(report_story, tables)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return read_report(gold_tables.write_small(tmp_path_factory.mktemp("small"), Run(demo=True)))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return read_report(gold_tables.write_hostile(tmp_path_factory.mktemp("hostile")))


@pytest.fixture(params=["small", "hostile"])
def any_report(request: pytest.FixtureRequest) -> Report:
    found: Report = request.getfixturevalue(request.param)
    return found


def chart_bands(data: dict[str, Any], which: str) -> Iterator[tuple[Any, ...]]:
    times = list(accumulate(data["times"]))
    columns = data[which]
    listed = zip(columns["member"], columns["gap"], columns["length"], strict=True)
    for row, many in zip(rows_of_chart(data), columns["bands"], strict=True):
        end = 0
        for _ in range(many):
            member, gap, length = next(listed)
            begin = end + gap
            end = begin if length < 0 else begin + length
            until = None if length < 0 else times[end]
            yield *row, *data["members"][member], times[begin], until
    assert list(listed) == []


def rows_of_chart(data: dict[str, Any]) -> list[tuple[str, int]]:
    partitions = accumulate(data["row_partitions"])
    topics = [data["topics"][place] for place in data["row_topics"]]
    return list(zip(topics, partitions, strict=True))


def rows_of(table: pa.Table, group: str, *times: str) -> list[dict[str, Any]]:
    """A table's rows of a group, with milliseconds for times."""
    for name in times:
        table = table.set_column(table.column_names.index(name), name, to_milliseconds(table[name]))
    return [row for row in table.to_pylist() if row["group"] == group]


def rebalances_of(tables: GoldTables, group: str) -> list[dict[str, Any]]:
    rows = rows_of(tables.rebalances, group, *TIMES)
    return sorted(rows, key=lambda row: (row["at"], row["incarnation"], row["to_generation"]))


def word_at(data: dict[str, Any], place: int) -> str | None:
    return None if place < 0 else data["words"][place]


def test_the_bands_are_exactly_those_of_the_tables(any_report: Report) -> None:
    report_story, tables, data = any_report
    assert list(data) == [group.name for group in report_story.groups]
    for name, one in data.items():
        owned = rows_of(tables.ownership, name, "since", "until")
        key = (*BAND[:5], "group_instance_id", *BAND[5:])
        assert sorted(chart_bands(one, "ownership"), key=str) == sorted(
            (tuple(row[column] for column in key) for row in owned), key=str
        )


def test_the_replay_is_there_only_if_a_change_is_advised(any_report: Report) -> None:
    report_story, tables, data = any_report
    assert {group.verdict for group in report_story.groups} >= {"change"}
    for group in report_story.groups:
        one = data[group.name]
        if group.verdict != "change":
            assert one["advised_ownership"] is None
            assert one["replayed"] is None
            continue
        advised = rows_of(tables.advised, group.name, "since", "until")
        assert advised
        found = [(*band[:5], *band[6:]) for band in chart_bands(one, "advised_ownership")]
        assert sorted(found, key=str) == sorted(
            (tuple(row[column] for column in BAND) for row in advised), key=str
        )
        happened = [
            row
            for row in rows_of(tables.whatif, group.name, "happens_at")
            if row["policy"] == group.policy and row["happens"]
        ]
        times, replayed = list(accumulate(one["times"])), one["replayed"]
        rebalances = rebalances_of(tables, group.name)
        keys = [(row["incarnation"], row["to_generation"]) for row in rebalances]
        columns = ("of", "moved", "needed", "revoked", "downtime")
        listed = zip(
            (times[place] for place in accumulate(replayed["at"])),
            *(replayed[name] for name in columns),
            strict=True,
        )
        assert sorted(listed) == sorted(
            (
                row["happens_at"],
                keys.index((row["incarnation"], row["to_generation"])),
                *(row[name] for name in ("moved", "moves_needed", "revoked", "downtime_ms")),
            )
            for row in happened
        )


def test_the_rebalances_are_exactly_those_of_the_tables(any_report: Report) -> None:
    _, tables, data = any_report
    for name, one in data.items():
        times, found = list(accumulate(one["times"])), one["rebalances"]
        for place, (at, row) in enumerate(
            zip(accumulate(found["at"]), rebalances_of(tables, name), strict=True)
        ):
            assert times[at] == row["at"]
            for column, start in chart_data.START_COLUMNS:
                length = None if row[start] is None else row["at"] - row[start]
                assert found[column][place] == length
            for column, source in chart_data.COUNT_COLUMNS:
                assert found[column][place] == row[source]
            for column in chart_data.NAME_COLUMNS:
                assert word_at(one, found[column][place]) == row[column]
            for column in ("joined", "left"):
                ids = [one["members"][member][0] for member in found[column][place]]
                assert ids == row[column]


def test_the_reasons_of_downtime_are_those_of_the_tables(any_report: Report) -> None:
    _, tables, data = any_report
    for name, one in data.items():
        keys = [(row["incarnation"], row["to_generation"]) for row in rebalances_of(tables, name)]
        expected: dict[str, list[int]] = {}
        for piece in rows_of(tables.downtime, name, "since", "until"):
            key = piece["incarnation"], piece["to_generation"]
            if key in keys and piece["until"] > piece["since"]:
                times = expected.setdefault(piece["reason"], [0] * len(keys))
                times[keys.index(key)] += piece["until"] - piece["since"]
        assert one["rebalances"]["reasons"] == expected
        for place, total in enumerate(one["rebalances"]["downtime"]):
            counted = [times[place] for name, times in expected.items() if name not in UNCOUNTED]
            assert total is None or total == sum(counted)


def chart_stops(data: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Topic, partition, begin, end, reason and number of the rebalance of each stop."""
    rows, columns = rows_of_chart(data), data["stops"]
    names = ("length", "reason", "rebalance", "runs")
    for until, *stop in zip(
        accumulate(columns["until"]), *(columns[name] for name in names), strict=True
    ):
        length, reason, rebalance, runs = stop
        end = 0
        for gap, many in zip(runs[::2], runs[1::2], strict=True):
            begin, end = end + gap, end + gap + many
            for row in rows[begin:end]:
                yield *row, until - length, until, word_at(data, reason), rebalance


def test_the_times_without_a_consumer_are_those_of_the_tables(any_report: Report) -> None:
    _, tables, data = any_report
    for name, one in data.items():
        keys = [(row["incarnation"], row["to_generation"]) for row in rebalances_of(tables, name)]
        expected = []
        for row in rows_of(tables.downtime, name, "since", "until"):
            key = row["incarnation"], row["to_generation"]
            place = keys.index(key) if key in keys else -1
            if row["until"] > row["since"] and (row["topic"], row["partition"]) in rows_of_chart(
                one
            ):
                columns = ("topic", "partition", "since", "until", "reason")
                expected.append((*(row[column] for column in columns), place))
        assert sorted(chart_stops(one)) == sorted(expected)
        assert one["stops"]["left_out"] == 0


def test_rebalances_and_other_stops_add_up_to_the_downtime_of_the_group(small: Report) -> None:
    _, _, data = small
    for one in data.values():
        if one["group"]["downtime_ms"] is None:
            continue
        alone = sum(
            until - since
            for *_, since, until, reason, rebalance in chart_stops(one)
            if rebalance < 0 and reason not in UNCOUNTED
        )
        rebalances = sum(filter(None, one["rebalances"]["downtime"]))
        assert alone + rebalances == one["group"]["downtime_ms"]


def test_only_the_longest_times_without_a_consumer_are_kept(
    small: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_story, tables, data = small
    monkeypatch.setattr(chart_data, "MAX_STOP_RUNS", 10)
    less, whole = pack_groups(report_story, tables)["orders-app"], data["orders-app"]
    kept = {stop[3] - stop[2] for stop in chart_stops(less)}
    rest = set(chart_stops(whole)) - set(chart_stops(less))
    assert len(less["stops"]["reason"]) <= 10
    assert less["stops"]["left_out"] == len(whole["stops"]["reason"]) - len(less["stops"]["reason"])
    assert min(kept) >= max(stop[3] - stop[2] for stop in rest)
    assert less["rebalances"] == whole["rebalances"]


def test_policies_are_summed_as_the_advice_sums_them(small: Report) -> None:
    _, tables, data = small
    for name, one in data.items():
        rows = [WhatIf(**row) for row in rows_of(tables.whatif, name, "at")]
        expected = {
            (
                *(total.policy, total.downtime, total.rebalances, total.moved),
                *(total.moves_needed, total.revoked, total.idle, total.spread),
            )
            for total in sum_by_policy(rows).values()
        }
        assert {(policy, *numbers) for policy, _, *numbers in one["policies"]} == expected
        used = [policy for policy, actual, *_ in one["policies"] if actual]
        assert used == sorted({row.policy for row in rows if row.actual})
        assert [policy for policy, *_ in one["policies"][: len(used)]] == used


def test_the_lines_of_the_log_belong_to_the_rebalance_that_follows(small: Report) -> None:
    _, tables, data = small
    names = ("at", "file", "line", "text")
    lines = rows_of(tables.serverlog, "orders-app", "at")
    assert {line["what"] for line in lines} == {"preparing", "stabilized"}
    one = data["orders-app"]
    ends = [row["at"] for row in rebalances_of(tables, "orders-app")]
    packed = one["lines"]
    found = [
        (ends[place] - before, packed["files"][file], line, text)
        for place, before, file, line, text in zip(
            *(packed[name] for name in ("rebalance", "before", "file", "line", "text")), strict=True
        )
    ]
    assert found == [tuple(line[name] for name in names) for line in lines]
    for place, before in zip(packed["rebalance"], packed["before"], strict=True):
        assert before >= 0
        assert place == 0 or ends[place] - before > ends[place - 1]


def test_a_group_has_at_most_so_many_lines_the_preparing_ones_first(
    small: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_story, tables, data = small
    many = data["orders-app"]["lines"]["text"]
    assert len(many) > 3
    monkeypatch.setattr(chart_data, "LINES_PER_GROUP", 2)
    few = pack_groups(report_story, tables)["orders-app"]["lines"]["text"]
    assert few == [text for text in many if text.startswith("Preparing")][:2]


def lag_amounts(lag: dict[str, Any]) -> list[float | None]:
    """Lag in each bucket, as the page computes it."""
    rise = lag["step"] / 1000 if lag["in_seconds"] else 0
    return [
        None if last is None else max(last - left * rise, 0)
        for length, last in zip(lag["run_lengths"], lag["run_ends"], strict=True)
        for left in reversed(range(length))
    ]


def largest_lags(intervals: list[dict[str, Any]], begin: int, step: int) -> list[float | None]:
    """The largest lag in each bucket, in seconds."""
    most: list[float | None] = [None] * LAG_BUCKETS
    for row in intervals:
        for bucket in range(LAG_BUCKETS):
            first, end = begin + bucket * step, begin + (bucket + 1) * step
            if row["since"] < end and first <= row["until"]:
                left = max(row["until"] - end, 0) / 1000
                most[bucket] = max(most[bucket] or 0, row["lag_seconds"] - left, 0)
    return most


def assert_same_lag(lag: dict[str, Any], expected: list[float | None]) -> None:
    for ours, theirs in zip(lag_amounts(lag), expected, strict=True):
        assert (ours is None) == (theirs is None)
        assert ours is None or theirs == pytest.approx(ours, rel=0.006, abs=0.1)


def test_lag_is_the_largest_of_each_bucket_of_time(small: Report) -> None:
    report_story, _, data = small
    assert data["quiet"]["lag"] is None
    for name in ("orders-app", "audit", "billing"):
        one, lag = data[name], data[name]["lag"]
        most = largest_lags(rows_of(report_story.lag, name), one["begin"], lag["step"])
        assert any(most)
        assert lag["in_seconds"]
        assert_same_lag(lag, most)
        assert (one["end"] - one["begin"]) // lag["step"] < LAG_BUCKETS
        assert len(lag["run_lengths"]) < 60, "a partition that stands still is one run"


def test_the_partitions_with_the_largest_lag_have_their_own(small: Report) -> None:
    report_story, _, data = small
    for name in ("orders-app", "audit", "billing"):
        one = data[name]
        rows = rows_of(report_story.lag, name)
        peaks: dict[tuple[str, int], float] = {}
        for row in rows:
            key = row["topic"], row["partition"]
            peaks[key] = max(peaks.get(key, 0), row["lag_seconds"])
        listed = [(series["topic"], series["partition"]) for series in one["partition_lags"]]
        assert 1 < len(listed) <= chart_data.PARTITIONS_WITH_LAG
        assert min(peaks[key] for key in listed) >= max(
            (peak for key, peak in peaks.items() if key not in listed), default=0
        )
        for series in one["partition_lags"]:
            own = [
                row
                for row in rows
                if (row["topic"], row["partition"]) == (series["topic"], series["partition"])
            ]
            assert_same_lag(series, largest_lags(own, one["begin"], series["step"]))


def test_many_groups_have_the_lag_of_fewer_partitions(
    small: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_story, tables, data = small
    monkeypatch.setattr(chart_data, "SERIES_PER_PAGE", 3 * len(report_story.groups))
    for name, one in pack_groups(report_story, tables).items():
        assert one["partition_lags"] == data[name]["partition_lags"][:3]


def test_the_worst_lag_is_in_the_chart(small: Report) -> None:
    report_story, _, data = small
    for group in report_story.groups:
        lag = data[group.name]["lag"]
        assert (lag is None) == (group.lag is None)
        if group.lag is not None:
            most = max(filter(None, lag_amounts(lag)))
            assert most == pytest.approx(group.lag.most_seconds, rel=0.005)


def test_lag_is_in_records_if_no_ages_are_known(small: Report) -> None:
    """Each partition was committed once, before any sample that would tell how old records are."""
    _, tables, _ = small
    place = tables.lag.column_names.index("lag_seconds")
    ageless = tables.lag.set_column(
        place, tables.lag.schema.field(place), pa.nulls(tables.lag.num_rows, pa.float64())
    )
    first = compute.equal(ageless["at"], compute.min(ageless["at"]))
    bare = replace(tables, lag=ageless.filter(first), ends=tables.ends.slice(0, 0))
    report_story = story.build_story(bare)
    (group,) = (group for group in report_story.groups if group.name == "orders-app")
    assert group.lag is not None
    assert (group.lag.most, group.lag.most_seconds) == (1_200, None)
    one = pack_groups(report_story, bare)["orders-app"]
    assert not one["lag"]["in_seconds"]
    assert lag_amounts(one["lag"])[:2] == [1_200, None]
    assert not any(series["in_seconds"] for series in one["partition_lags"])


def make_lag_series(*rows: tuple[int, int, int, float | None, bool]) -> LagSeries:
    """The lag of one partition: begin and end in seconds, records, age, at least; a bucket is a
    second wide.
    """
    names = ("since", "until", "lag", "lag_seconds", "at_least")
    found = [
        {"group": "g", "topic": "t", "partition": 0}
        | dict(zip(names, (since * 1000, until * 1000, *rest), strict=True))
        for since, until, *rest in rows
    ]
    span = ChartWindow(0, LAG_BUCKETS * 1000 - 1)
    assert span.step == 1000
    return lag_series(pa.Table.from_pylist(found, LAG_INTERVALS), ["g"], [span])[0]


def test_a_lower_bound_of_the_lag_is_marked() -> None:
    """At least up to second 90, and exactly beside it where that is as much or more."""
    series = make_lag_series(
        (10, 90, 5, 80.0, True), (90, 100, 5, 10.0, False), (20, 30, 5, 25.0, False)
    )
    marked = [
        at_least
        for length, at_least in zip(series.run_lengths, series.at_least, strict=True)
        for _ in range(length)
    ]
    assert len(marked) == LAG_BUCKETS
    assert [place for place, one in enumerate(marked) if one] == [*range(10, 20), *range(31, 91)]


def test_records_are_known_only_at_commits() -> None:
    """Between two commits nobody counted them: that is not 0."""
    series = make_lag_series((10, 90, 700, None, False))
    assert not series.in_seconds
    assert (series.run_lengths, series.run_ends) == ([90, 1, LAG_BUCKETS - 91], [None, 700, None])
    assert not any(series.at_least)


def test_the_advice_of_a_group_is_whole(small: Report) -> None:
    report_story, tables, data = small
    advice = {row["group"]: row for row in tables.advice.to_pylist()}
    for group in report_story.groups:
        packed = data[group.name]["group"]
        row = advice[group.name]
        for name in ("to_do", "downtime_ms", "not_polled_ms", "setting_libraries"):
            assert packed[name] == row[name]
        assert packed["happened"] == group.happened
        assert packed["happened"].endswith(row["happened"]), "after what the group is"
        assert [action["title"] for action in packed["actions"]] == [
            action["title"] for action in row["actions"]
        ]
        assert [
            (step["text"], step["setting"], step["settings"])
            for action in packed["actions"]
            for step in action["steps"]
        ] == [
            (step["text"], step["setting"], dict(step["settings"]))
            for action in row["actions"]
            for step in action["steps"]
        ]
