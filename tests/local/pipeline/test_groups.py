"""Rebalances, downtime and advice from the rows of one group."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from rota.engine.history.causes import CommitTimes, explain_rebalance
from rota.engine.history.downtime import find_downtime
from rota.engine.history.facts import (
    Downtime,
    Generation,
    GenerationChange,
    GroupHealth,
    GroupHealthStatus,
    GroupType,
    LogLine,
)
from rota.pipeline import arrow, rebalances
from rota.pipeline.group_by import TablePart
from rota.pipeline.rebalances import GroupOptions
from rota.pipeline.tables import (
    DOWNTIME,
    ENDS,
    HEALTH,
)
from tests.support.captured_downtime import group_names
from tests.support.downtime_comparison import GroupEvidence, read_evidence
from tests.support.example_history import START, generation, member
from tests.support.group_rows import Row, commit_rows, compute_rows, list_parts

SUMS = ("downtime_ms", "downtime_at_least_ms", "downtime_at_most_ms", "not_polled_ms")
GROUPS = [name for name in group_names() if name.startswith("a-")]
CONSUMER_GROUPS = [name for name in group_names() if "-next" in name]


def list_group_parts(known: GroupEvidence) -> list[TablePart]:
    history = known.history
    return list_parts(history.generations, known.lines, known.commits, history.ownership)


def compute_group(group: str, *, with_log: bool = True, **options: Any) -> dict[str, list[Row]]:
    known = read_evidence(group, with_log)
    return compute_rows(list_group_parts(known), GroupOptions(until=known.until, **options))


def measure(known: GroupEvidence, commits: CommitTimes | None = None) -> Sequence[Downtime]:
    return find_downtime(
        known.history.generations,
        known.rebalances,
        known.explanations,
        commits=known.commits if commits is None else commits,
        until=known.until,
        lines=known.lines,
        ownership=known.history.ownership,
    ).found


def downtime_rows(found: Sequence[Downtime]) -> list[Row]:
    return arrow.batch_to_rows(arrow.facts_to_batch(DOWNTIME, found))


def sum_rows(rows: Iterable[Row]) -> dict[str, int]:
    """Returns the sums of rows of gold/downtime, as tables.py describes them."""
    found = dict.fromkeys(SUMS, 0)
    for row in rows:
        length = row["until"] - row["since"]
        if row["reason"] == "not polled":
            found["not_polled_ms"] += length
        elif row["reason"] != "shut down":
            found["downtime_ms"] += length
            found["downtime_at_least_ms"] += row["at_least_ms"]
            found["downtime_at_most_ms"] += row["at_most_ms"]
    return found


def sum_by_reason(rows: Iterable[Row]) -> dict[str, int]:
    counted = Counter[str]()
    for row in rows:
        counted[row["reason"]] += row["until"] - row["since"]
    return {reason: time for reason, time in counted.items() if time}


@pytest.mark.parametrize("with_log", [True, False])
@pytest.mark.parametrize("group", GROUPS)
def test_no_time_of_a_partition_counts_twice(group: str, with_log: bool) -> None:
    found = compute_group(group, with_log=with_log)["downtime"]
    ordered = sorted(found, key=lambda row: [row[name] for name in DOWNTIME.key])
    for row, following in itertools.pairwise(ordered):
        if (row["topic"], row["partition"]) == (following["topic"], following["partition"]):
            assert row["until"] <= following["since"]
    assert all(row["since"] <= row["until"] for row in found)
    assert all(row["at_least_ms"] <= row["until"] - row["since"] for row in found)
    assert all(row["until"] - row["since"] <= row["at_most_ms"] for row in found)
    keys = Counter(tuple(row[name] for name in DOWNTIME.key) for row in found)
    assert all(number == 1 for number in keys.values())


@pytest.mark.parametrize("with_log", [True, False])
@pytest.mark.parametrize("group", GROUPS)
def test_the_table_has_all_downtime_of_the_analysis(group: str, with_log: bool) -> None:
    found = compute_group(group, with_log=with_log)["downtime"]
    assert found == downtime_rows(measure(read_evidence(group, with_log)))


@pytest.mark.parametrize("group", GROUPS)
def test_sums_are_those_of_the_downtime(group: str) -> None:
    found = compute_group(group)
    for row in found["rebalances"]:
        key = row["incarnation"], row["to_generation"]
        ended = (r for r in found["downtime"] if (r["incarnation"], r["to_generation"]) == key)
        assert {name: row[name] for name in SUMS} == sum_rows(ended)
    for row in found["advice"]:
        assert {name: row[name] for name in SUMS} == sum_rows(found["downtime"])
        assert row["downtime_by_reason"] == sum_by_reason(found["downtime"])
    measured = sum(row["downtime_ms"] for row in found["whatif"] if row["actual"])
    total = sum_rows(found["downtime"])["downtime_ms"]
    assert measured <= total, "only rebalances and restarts have rows in gold/whatif"


@pytest.mark.parametrize("group", ["a-crash", "a-next", "a-roll-static", "a-slow"])
def test_parts_come_in_any_order(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known, chance = read_evidence(group, with_log=True), random.Random(group)
    options = GroupOptions(until=known.until)
    whole = list_group_parts(known)
    monkeypatch.setattr(rebalances, "MAX_KEPT_COMMITS", 100)
    parts: list[TablePart] = []
    for name, rows in whole:
        shuffled = rows.take(pa.array(chance.sample(range(rows.num_rows), rows.num_rows)))
        pieces = [shuffled.slice(begin, 97) for begin in range(0, rows.num_rows, 97)]
        parts += [(name, piece) for piece in pieces]
    before = [part for part in parts if part[0] != "commits"]
    chance.shuffle(before)
    mixed = [*before, *(part for part in parts if part[0] == "commits")]
    assert compute_rows(mixed, options) == compute_rows(whole, options)


@pytest.mark.parametrize("group", [*CONSUMER_GROUPS, "a-roll-static", "a-crash"])
def test_dropped_commits_change_no_downtime(group: str) -> None:
    """Far more commits than the rows of an analysis keep, before and after each time."""
    known = read_evidence(group, with_log=True)
    generations = known.history.generations
    dense = np.arange(generations[0].at, known.until, 25, dtype=np.int64)
    commits = {
        pair: np.union1d(known.commits.get(pair, dense[:0]), dense + place)
        for place, pair in enumerate(
            sorted({(o.topic, o.partition) for o in known.history.ownership})
        )
    }
    parts = [part for part in list_group_parts(known) if part[0] != "commits"]
    found = compute_rows(
        [*parts, ("commits", commit_rows(group, commits))], GroupOptions(until=known.until)
    )
    explained = [explain_rebalance(one, commits, known.lines) for one in known.rebalances]
    wanted = find_downtime(
        generations,
        known.rebalances,
        explained,
        commits=commits,
        until=known.until,
        lines=known.lines,
        ownership=known.history.ownership,
    )
    assert found["downtime"] == downtime_rows(wanted.found)


def without(rows: Iterable[Row], *columns: str) -> list[Row]:
    return [{name: row[name] for name in row if name not in columns} for row in rows]


@pytest.mark.parametrize("group", ["a-crash", "a-flap", "a-next", "a-static"])
def test_earlier_rebalances_do_not_count(group: str) -> None:
    every = compute_group(group)
    middle = every["rebalances"][len(every["rebalances"]) // 2]["at"]
    # a time at which all partitions had a consumer
    ends = (row["until"] for row in every["downtime"] if row["until"] > middle)
    since = 1 + next(
        end
        for end in sorted(ends)
        if not any(row["since"] <= end < row["until"] for row in every["downtime"])
    )
    found = compute_group(group, since=since)
    assert found["rebalances"]
    assert found["rebalances"] == [row for row in every["rebalances"] if row["at"] >= since]
    assert found["downtime"] == [row for row in every["downtime"] if row["until"] >= since]
    assert found["whatif"] == [row for row in every["whatif"] if row["at"] >= since]
    (advice,) = found["advice"]
    assert advice["rebalances"] == len(found["rebalances"])
    assert advice["downtime_by_reason"] == sum_by_reason(found["downtime"])
    assert all(pattern["until"] >= since for pattern in advice["patterns"])
    later = compute_group(group, since=read_evidence(group, with_log=True).until + 1)
    assert [name for name, rows in later.items() if rows] == ["groups"]


@pytest.mark.parametrize("group", ["a-crash", "a-flap", "a-next", "a-static", "a-sticky"])
def test_downtime_counts_from_the_begin_of_the_window(group: str) -> None:
    every = compute_group(group)
    known = [row for row in every["downtime"] if row["ended"]]
    begun = max(known, key=lambda row: (row["until"] - row["since"], row["since"]))
    since = (begun["since"] + begun["until"]) // 2
    found = compute_group(group, since=since)
    late = [row for row in every["downtime"] if row["until"] > since]
    bounds = ("since", "at_least_ms", "at_most_ms")
    assert without(found["downtime"], *bounds) == without(late, *bounds)
    for row, whole in zip(found["downtime"], late, strict=True):
        assert row["since"] == max(whole["since"], since)
        cut = row["since"] - whole["since"]
        assert row["at_most_ms"] == whole["at_most_ms"] - cut
        assert row["at_least_ms"] == max(whole["at_least_ms"] - cut, 0)
    ended = [row for row in every["rebalances"] if row["at"] >= since]
    assert without(found["rebalances"], *SUMS) == without(ended, *SUMS)
    for row in found["rebalances"]:
        key = row["incarnation"], row["to_generation"]
        pieces = (r for r in found["downtime"] if (r["incarnation"], r["to_generation"]) == key)
        assert {name: row[name] for name in SUMS} == sum_rows(pieces)
    (advice,) = found["advice"]
    assert {name: advice[name] for name in SUMS} == sum_rows(found["downtime"])
    actual = [row for row in found["whatif"] if row["actual"]]
    assert sum(row["downtime_ms"] for row in actual) == advice["downtime_ms"]
    wanted = [row for row in every["whatif"] if row["actual"] and row["at"] >= since]
    assert without(actual, "downtime_ms") == without(wanted, "downtime_ms")


HOUR = 3_600_000
OWNER = member("a", {"t": (0, 1, 2)})
CRASH = LogLine(
    at=START + 200_000, group="g", what="failed", generation=1, member_id="a", text="failed"
)


def owned_until_crash() -> list[Generation]:
    """The only member crashes; its session ends after 200 seconds."""
    return [
        generation(1, [OWNER], at=START, offset=1, state_at=START),
        generation(2, [], at=START + 200_000, offset=2),
    ]


def compute_window(generations: list[Generation], since: int, until: int) -> dict[str, list[Row]]:
    parts = list_parts(generations, [CRASH], {})
    return compute_rows(parts, GroupOptions(since=since, until=until))


def test_a_group_that_was_empty_all_the_time_has_advice() -> None:
    since, until = START + 12 * HOUR, START + 24 * HOUR
    found = compute_window(owned_until_crash(), since, until)
    times = {(row["since"], row["until"], row["at_least_ms"]) for row in found["downtime"]}
    assert times == {(since, until, 12 * HOUR)}
    (advice,) = found["advice"]
    assert (advice["rebalances"], advice["downtime_ms"]) == (0, 36 * HOUR)
    assert advice["downtime_by_reason"] == {"empty": 36 * HOUR}
    assert advice["policies_used"] == ["range"]
    assert advice["happened"] == "No rebalances; 36 h of downtime, mostly without members."


def test_a_static_restart_without_a_rebalance_has_advice() -> None:
    old, new = (member(name, {"t": (0, 1)}) for name in ("s1!a", "s1!b"))
    back = START + 10 * HOUR
    generations = [
        generation(1, [old], at=START, offset=1, state_at=START),
        generation(1, [new], at=back, offset=2, change=GenerationChange.REPLACED),
    ]
    found = compute_window(generations, START + 9 * HOUR, START + 13 * HOUR)
    (advice,) = found["advice"]
    assert {row["reason"] for row in found["downtime"]} == {"restarted"}
    assert (advice["rebalances"], advice["rebalances_after"]) == (0, 0)
    assert advice["downtime_ms"] == sum_rows(found["downtime"])["downtime_ms"] > 0


def test_an_earlier_outage_is_in_no_policy() -> None:
    ended = generation(3, [member("b", {"t": (0, 1, 2)})], at=START + 12 * HOUR + 1000, offset=3)
    generations = [*owned_until_crash(), ended]
    found = compute_window(generations, START + 12 * HOUR, START + 13 * HOUR)
    bounds = {(row["at_least_ms"], row["at_most_ms"]) for row in found["downtime"]}
    assert bounds == {(1000, 1500)}
    (advice,) = found["advice"]
    assert advice["downtime_ms"] == 3000
    assert advice["downtime_current_ms"] < 60_000
    assert len(found["whatif"]) > 1
    assert all(row["downtime_ms"] < 60_000 for row in found["whatif"])


@pytest.mark.parametrize("is_clipped", [False, True])
def test_records_that_arrived_are_counted(is_clipped: bool) -> None:
    known = read_evidence("a-crash", with_log=True)
    longest = max(measure(known), key=lambda piece: piece.milliseconds)
    since = (longest.since + longest.until) // 2 if is_clipped else None
    begin = known.history.generations[0].at
    pairs = {(owned.topic, owned.partition) for owned in known.history.ownership}
    samples = [
        {"topic": topic, "partition": number, "at": at, "beginning": 0, "end": (at - begin) // 100}
        for topic, number in sorted(pairs)
        for at in (begin, known.until)
    ]
    parts = [("samples", arrow.rows_to_batch(ENDS, samples)), *list_group_parts(known)]
    found = compute_rows(parts, GroupOptions(until=known.until, since=since))
    assert any(row["since"] == since for row in found["downtime"]) is is_clipped
    begins = {
        (row["topic"], row["partition"], row["since"]): row["until"] for row in found["downtime"]
    }
    for row in found["downtime"]:
        pair, until = (row["topic"], row["partition"]), row["until"]
        assert row["delayed_records"] == pytest.approx((until - row["since"]) / 100, abs=2)
        while (*pair, until) in begins:  # records wait until the last reason ends
            until = begins[*pair, until]
        assert until - row["since"] - 200 <= row["added_lag_ms"] <= until - row["since"]
    counted = [row for row in found["downtime"] if row["reason"] not in {"not polled", "shut down"}]
    (advice,) = found["advice"]
    assert advice["delayed_records"] == sum(row["delayed_records"] for row in counted)
    assert advice["added_lag_ms"] == max(row["added_lag_ms"] for row in counted)
    without = compute_group("a-crash")
    assert {row["delayed_records"] for row in without["downtime"]} == {None}


def test_health_and_protocol_are_in_the_advice() -> None:
    known = read_evidence("a-coop", with_log=True)
    status = GroupHealthStatus(
        group="a-coop",
        health=GroupHealth.STUCK,
        since=known.until - 60_000,
        topic="orders",
        partition=3,
        lag=120,
        reason="orders-3 has 120 records that nobody reads.",
        worst=GroupHealth.STUCK,
        worst_since=known.until - 60_000,
        worst_until=known.until,
        worst_topic="orders",
        worst_partition=3,
        worst_reason="the same",
    )
    parts = [("health", arrow.facts_to_batch(HEALTH, [status])), *list_group_parts(known)]
    for has_protocol in (False, True):
        options = GroupOptions(until=known.until, has_consumer_protocol=has_protocol)
        (advice,) = compute_rows(parts, options)["advice"]
        # a change of the policy comes after the repair
        assert advice["verdict"] == "change"
        assert advice["happened"].startswith("orders-3 has 120 records")
        kinds = [one["kind"] for one in advice["actions"]]
        assert kinds[0] == "repair"
        assert "repair" not in kinds[kinds.index("policy") :]
        assert advice["recommendation"] == advice["actions"][0]["title"] == "Inspect orders-3"
        assert advice["patterns"][0]["pattern"] == "stuck partition"
        assert (advice["destination"] is not None) <= has_protocol


def test_a_longer_assignment_interval_costs_more_under_the_brokers_protocol() -> None:
    def total(interval: int) -> int:
        rows = compute_group("a-flap", assignment_interval=interval)["whatif"]
        return sum(row["downtime_ms"] for row in rows if row["policy"].startswith("KIP-848"))

    assert total(0) <= total(1_000) < total(60_000)


def test_a_group_without_generations_has_a_row_only_in_gold_groups() -> None:
    only_commits = ("commits", commit_rows("x", {("t", 0): np.array([5])}))
    assert not any(compute_rows([], GroupOptions(until=9)).values())
    (row,) = (found := compute_rows([only_commits], GroupOptions(until=9))).pop("groups")
    assert (row["group"], row["kind"]) == ("x", "commits only")
    assert not any(found.values())


def test_there_are_consumer_groups_in_the_recordings() -> None:
    kinds = {
        generation.kind
        for group in CONSUMER_GROUPS
        for generation in read_evidence(group, with_log=False).history.generations
    }
    assert GroupType.CONSUMER in kinds
