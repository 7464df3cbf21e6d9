"""What the gold tables tell: groups, lag, causes, evidence, and the sentences made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from rota.engine.history.facts import GroupHealth, GroupHealthStatus, Pattern, PatternType
from rota.errors import InputError, Unreachable
from rota.pipeline import arrow
from rota.pipeline.arrow import table_to_rows, to_milliseconds
from rota.pipeline.tables import ADVICE, COMMITS, ENDS, EVIDENCE, STATUS, Table
from rota.report import evidence_text, lag_intervals
from rota.report.lag_intervals import LAG_INTERVALS, WorstLag
from rota.report.story import (
    ROWS_PER_PASS,
    EvidenceMark,
    EvidenceSummary,
    GoldTables,
    GroupStory,
    Story,
    build_story,
    format_seconds,
    format_time,
    last_commits_before_lag,
    read_evidence_summary,
    read_gold_tables,
)
from tests.support.gold_history import History
from tests.support.gold_tables import (
    MORNING,
    Run,
    build_tables,
    write_empty,
    write_sick,
    write_small,
)

pa = pytest.importorskip("pyarrow")


from tests.support.gold_tables import SCRIPT  # noqa: E402

STRANGE = f"{SCRIPT}\"'&"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(
        tmp_path_factory.mktemp("small"), Run(demo=True, polled=True, partial=["billing"])
    )


@pytest.fixture(scope="module")
def gold(folder: Path) -> GoldTables:
    return read_gold_tables(str(folder))


@pytest.fixture(scope="module")
def story(gold: GoldTables) -> Story:
    return build_story(gold)


def make_table(kind: Table, rows: Iterable[Mapping[str, Any]]) -> Any:
    """Rows of a table; what they do not have is null."""
    names = arrow.arrow_schema(kind).names
    whole = [{name: row.get(name) for name in names} for row in rows]
    return pa.Table.from_batches([arrow.rows_to_batch(kind, whole)])


def lag_interval(
    group: str, topic: str, partition: int, until: int, **fields: float | None
) -> dict[str, Any]:
    where = {"group": group, "topic": topic, "partition": partition, "since": 0, "until": until}
    return {**where, "lag_seconds": None, "at_least": False, **fields}


def worst_lags(
    rows: list[dict[str, Any]], rebalances: Mapping[str, list[int]]
) -> dict[str, WorstLag]:
    return lag_intervals.find_worst_lags(pa.Table.from_pylist(rows, LAG_INTERVALS), rebalances)


HEALTHY = GroupHealthStatus(
    group="orders",
    health=GroupHealth.OK,
    since=None,
    topic=None,
    partition=None,
    lag=0,
    reason="no records wait in 3 partitions",
    worst=GroupHealth.OK,
    worst_since=None,
    worst_until=None,
    worst_topic=None,
    worst_partition=None,
    worst_reason="no records wait in 3 partitions",
)


def make_group(**fields: Any) -> GroupStory:
    """A group that should change."""
    plain: dict[str, Any] = {
        "group": "orders",
        "verdict": "change",
        "policy": "range, static 45s",
        "policies_used": ("range",),
        "rebalances": 10,
        "rebalances_after": 1,
        "moved": 5,
        "moved_after": 0,
        "moves_needed": 1,
        "health": HEALTHY,
        "libraries": ("java",),
        "happened": "The group rebalanced 10 times.",
        "to_do": "Switch to static membership to save ≈ 9 min of 10 min downtime.",
        "recommendation": "static membership",
        "mark": EvidenceMark.INFERRED,
        "causes": (),
        "lag": None,
        "status": None,
        "complete_from": None,
        "whole": False,
    }
    return GroupStory(**plain | fields)


def worst_lag(seconds: float | None, records: int = 40) -> WorstLag:
    return WorstLag(
        most=records,
        most_seconds=seconds,
        most_at=MORNING,
        most_topic="orders",
        most_partition=3,
        after_rebalance=90.0,
    )


def test_groups_come_by_downtime_and_those_without_it_last(story: Story) -> None:
    assert [(group.name, group.downtime_ms) for group in story.groups] == [
        ("orders-app", 438_748),
        ("audit", 73_968),
        (STRANGE, 6_480),
        ("billing", 180),
        ("quiet", 0),
        ("connect-sink", None),
    ]


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return build_story(read_gold_tables(str(write_sick(tmp_path_factory.mktemp("sick")))))


def test_bad_health_comes_before_downtime(sick: Story) -> None:
    assert [(group.name, group.health.health, group.verdict) for group in sick.groups] == [
        ("gone", "failing", "fix first"),
        ("stuck", "stuck", "fix first"),
        ("commits-only", "stuck", "fix first"),
        ("behind", "falling behind", "keep"),
        ("well", "OK", "keep"),
    ]
    assert [group.severity for group in sick.groups] == [3, 2, 2, 1, 0]


def test_the_problem_is_what_happened(sick: Story) -> None:
    stuck = sick.groups[1]
    moved = "committed offset 36,000 has not moved since 2026-11-15 07:00Z while 179,400 records"
    assert stuck.cause_lines == (f"topic-stuck-1: {moved} arrived",)
    assert stuck.happened.startswith(f"topic-stuck-1: {moved} arrived; ")
    assert stuck.recommendation == "Inspect topic-stuck-1"
    health = stuck.health
    assert (health.topic, health.partition, health.worst) == ("topic-stuck", 1, "stuck")
    assert health.since == health.worst_since == MORNING + 60 * 60_000 + 100
    (pattern,) = stuck.patterns
    assert pattern.pattern is PatternType.STUCK_PARTITION


def test_a_group_without_rebalances_has_a_health(sick: Story) -> None:
    group = sick.groups[2]
    assert (group.rebalances, group.downtime_ms, group.policies_used) == (0, None, ("none",))
    assert group.happened.startswith("topic-commits-only-1: committed offset 36,000 has not moved")
    assert group.to_do.startswith("Look at the record at the committed offset")


def test_a_group_without_rebalances_has_its_downtime(tmp_path: Path) -> None:
    """It has been empty since two hours before ``--since``."""
    folder = write_sick(tmp_path, since=MORNING + 3 * 60 * 60_000)
    group = build_story(read_gold_tables(str(folder))).groups[0]
    hours = 2 * 3 * 60 * 60_000
    assert (group.name, group.rebalances, group.downtime_ms) == ("gone", 0, hours)
    assert group.downtime_by_reason == {"empty": hours}
    assert (group.verdict, group.policies_used) == ("fix first", ("range",))
    assert group.happened.endswith("6 h of downtime, mostly without members.")


def test_patterns_are_the_cause_and_without_them_the_causes_of_the_rebalances() -> None:
    deploy = Pattern(
        pattern=PatternType.ROLLING_DEPLOY, since=0, until=1, times=1, text="a rolling deploy"
    )
    causes = (("left", EvidenceMark.STATED, 2), ("left", EvidenceMark.INFERRED, 1_500))
    assert make_group(causes=causes).cause_lines == ("member left: 1,502",)
    with_deploy = make_group(causes=causes, patterns=(deploy,))
    assert with_deploy.cause_lines == ("a rolling deploy",)
    failing = replace(HEALTHY, health=GroupHealth.FAILING, reason="no members")
    group = make_group(causes=causes, patterns=(deploy,), health=failing)
    assert group.cause_lines == ("no members", "a rolling deploy")


def test_a_group_is_its_advice_and_what_the_other_tables_add(
    gold: GoldTables, story: Story
) -> None:
    worst = story.groups[0]
    (row,) = (row for row in table_to_rows(gold.advice) if row["group"] == "orders-app")
    for column in ADVICE.columns:
        if column.name in {"policies_used", "libraries", "setting_libraries"}:
            assert getattr(worst, column.name) == tuple(row[column.name])
        elif column.name == "patterns":
            assert [asdict(pattern) for pattern in worst.patterns] == row["patterns"]
            assert len(worst.patterns) == 3
        elif column.name == "actions":
            for action, stored in zip(worst.actions, row["actions"], strict=True):
                steps = [step | {"libraries": tuple(step["libraries"])} for step in stored["steps"]]
                assert asdict(action) == stored | {"steps": tuple(steps)}
        else:
            assert getattr(worst, column.name) == row[column.name]
    assert worst.mark is EvidenceMark.INFERRED
    assert worst.causes == (
        ("joined", EvidenceMark.INFERRED, 13),
        ("unknown", EvidenceMark.INFERRED, 12),
        ("joined", EvidenceMark.STATED, 2),
        ("left", EvidenceMark.STATED, 1),
    )
    assert worst.lag == WorstLag(
        most=25_555,
        most_seconds=2_555.555,
        most_at=MORNING + 2_435_555,
        most_topic="orders",
        most_partition=0,
        after_rebalance=2_435.555,
    ), "two minutes at the first commit, and no other for 40"
    assert worst.status == "WARN"
    assert (worst.complete_from, worst.whole) == (MORNING, True)


def test_a_group_whose_rebalances_were_sampled_is_marked_so(story: Story) -> None:
    assert {group.name: group.mark for group in story.groups} == {
        "orders-app": EvidenceMark.INFERRED,
        "audit": EvidenceMark.SAMPLED,
        STRANGE: EvidenceMark.INFERRED,
        "billing": EvidenceMark.INFERRED,
        "connect-sink": EvidenceMark.INFERRED,
        "quiet": EvidenceMark.INFERRED,
    }


def test_a_group_that_was_polled_and_is_not_in_the_journal_is_marked_sampled(
    gold: GoldTables,
) -> None:
    row = evidence_row() | {
        "polled": polled_row(["quiet", "billing"]),
        "windows": [{"group": "billing", "at": MORNING, "whole": False}],
    }
    report_story = build_story(replace(gold, evidence=make_table(EVIDENCE, [row])))
    marks = {group.name: group.mark for group in report_story.groups}
    assert marks["quiet"] is EvidenceMark.SAMPLED
    assert marks["billing"] is EvidenceMark.INFERRED
    assert [group.whole for group in report_story.groups if group.name == "quiet"] == [False]


def test_a_group_of_which_nothing_is_counted_is_told_of(story: Story) -> None:
    connect = story.groups[-1]
    assert (connect.moved, connect.moves_needed, connect.revoked) == (None, None, None)
    assert connect.lag is None
    assert connect.status is None
    assert connect.happened.startswith("Workers of Kafka Connect: 2 workers run ")
    assert connect.recommendation == "No advice"
    assert connect.first_action is None


def test_the_causes_of_all_groups_are_added_up(story: Story) -> None:
    total: dict[tuple[str, EvidenceMark], int] = {}
    for one in story.groups:
        for cause, how, number in one.causes:
            total[cause, how] = total.get((cause, how), 0) + number
    assert {(cause, how): number for cause, how, number in story.causes} == total
    assert sum(total.values()) == story.evidence.rebalances == 48
    assert [number for _, _, number in story.causes] == sorted(total.values(), reverse=True)


def test_only_groups_that_are_wanted_are_told_of(gold: GoldTables) -> None:
    report_story = build_story(gold, ["orders-*", "?illing"])
    assert [group.name for group in report_story.groups] == ["orders-app", "billing"]
    assert sum(number for _, _, number in report_story.causes) == 28 + 2
    assert [name for name, _, _ in report_story.evidence.windows] == ["billing", "orders-app"]
    assert report_story.evidence.polled is not None
    assert report_story.evidence.polled["groups"] == ["billing"]
    assert build_story(gold, ["Orders-app"]).groups == ()


def test_the_last_verdict_on_the_whole_group_is_its_status(gold: GoldTables) -> None:
    rows = [
        {"group": "quiet", "at": 2000, "verdict": "ERR"},
        {"group": "quiet", "at": 1000, "verdict": "OK"},
        {"group": "quiet", "at": 3000, "verdict": "STOP", "topic": "t", "partition": 0},
    ]
    report_story = build_story(replace(gold, status=make_table(STATUS, rows)), ["quiet"])
    assert [group.status for group in report_story.groups] == ["ERR"]


def test_the_oldest_record_is_the_worst_lag_with_how_many_records_there_were_then() -> None:
    rows = [
        lag_interval("a", "t", 1, 5000, lag=10, lag_seconds=108.5),
        lag_interval("a", "t", 2, 6000, lag=99, lag_seconds=7.0),
        lag_interval("a", "t", 3, 7000, lag=500, lag_seconds=None),
    ]
    assert worst_lags(rows, {}) == {
        "a": WorstLag(most=10, most_seconds=108.5, most_at=5000, most_topic="t", most_partition=1)
    }


def test_how_long_after_a_rebalance_the_worst_lag_was() -> None:
    rows = [lag_interval("a", "t", 1, 5000, lag=10), lag_interval("b", "t", 1, 5000, lag=10)]
    found = worst_lags(rows, {"a": [1000, 3500, 6000], "b": [5001]})
    assert found["a"].after_rebalance == 1.5
    assert found["b"].after_rebalance is None


def test_where_no_age_is_known_the_most_records_are_the_worst_lag() -> None:
    rows = [lag_interval("a", "t", 1, 5000, lag=10), lag_interval("a", "t", 2, 6000, lag=99)]
    assert worst_lags(rows, {}) == {
        "a": WorstLag(most=99, most_seconds=None, most_at=6000, most_topic="t", most_partition=2)
    }


def test_of_equal_lags_the_first_is_told() -> None:
    places = [("u", 1, 5), ("t", 2, 5), ("t", 1, 5), ("t", 1, 5), ("t", 0, 6)]
    rows = [lag_interval("a", topic, number, at, lag=0) for topic, number, at in places]
    assert worst_lags(rows, {}) == {
        "a": WorstLag(most=0, most_seconds=None, most_at=5, most_topic="t", most_partition=1)
    }


def test_an_age_that_is_at_least_so_much_is_said_to_be() -> None:
    rows = [
        lag_interval("a", "t", 1, 5000, lag=10, lag_seconds=3.0),
        lag_interval("a", "t", 1, 9000, lag=10, lag_seconds=4.0) | {"at_least": True},
        lag_interval("b", "t", 1, 9000, lag=10, lag_seconds=4.0) | {"at_least": True},
        lag_interval("b", "t", 1, 9000, lag=10, lag_seconds=4.0),
    ]
    found = worst_lags(rows, {})
    assert (found["a"].most_seconds, found["a"].at_least) == (4.0, True)
    assert not found["b"].at_least, "of equals that which is known"


def test_records_of_unknown_age_come_before_none_at_all() -> None:
    rows = [
        lag_interval("a", "t", 0, 5000, lag=0, lag_seconds=0.0),
        lag_interval("a", "t", 1, 9000, lag=80_000),
    ]
    found = worst_lags(rows, {})["a"]
    assert (found.most, found.most_seconds, found.most_partition) == (80_000, None, 1)


def test_no_commits_no_lag() -> None:
    assert worst_lags([], {}) == {}


few = st.integers(0, 3)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from("tu"), few, few, few, st.none() | few.map(float)
        )
    )
)
def test_the_worst_lag_is_that_which_a_loop_would_find(
    intervals: list[tuple[str, str, int, int, int, float | None]],
) -> None:
    rows = [
        lag_interval(name, topic, number, at, lag=records, lag_seconds=seconds)
        for name, topic, number, at, records, seconds in intervals
    ]
    found = {}
    for name in {row["group"] for row in rows}:
        own = [row for row in rows if row["group"] == name]
        waited = [row for row in own if row["lag_seconds"]]
        ageless = [row for row in own if row["lag_seconds"] is None and row["lag"]]
        still = [row for row in own if row["lag_seconds"] is not None]
        measure = "lag_seconds" if waited or (still and not ageless) else "lag"
        first = min(
            waited or ageless or still or own,
            key=lambda row: (
                *(-row[measure], row["until"], row["topic"], row["partition"], -row["lag"]),
            ),
        )
        found[name] = WorstLag(
            most=first["lag"],
            most_seconds=first["lag_seconds"],
            most_at=first["until"],
            most_topic=first["topic"],
            most_partition=first["partition"],
        )
    assert worst_lags(rows, {}) == found


def test_the_totals_are_sums_over_the_groups(story: Story) -> None:
    totals = story.totals
    assert totals.downtime_ms == sum(group.downtime_ms or 0 for group in story.groups)
    assert totals.rebalances == sum(group.rebalances for group in story.groups)
    assert sum(totals.downtime_by_reason.values()) == totals.downtime_ms
    assert totals.saving_ms == sum(group.saving_ms or 0 for group in story.groups)
    assert totals.changes == sum(group.verdict == "change" for group in story.groups)


@pytest.mark.parametrize(
    ("healths", "start"),
    [
        ((GroupHealth.OK, GroupHealth.OK), "All 2 groups are healthy now."),
        ((GroupHealth.OK, GroupHealth.UNKNOWN), "None of 2 groups is known to be unhealthy now."),
        ((GroupHealth.STUCK, GroupHealth.OK), "1 of 2 groups needs attention now."),
        ((GroupHealth.STUCK, GroupHealth.FAILING), "2 of 2 groups need attention now."),
        ((GroupHealth.FAILING,), "orders is failing now."),
    ],
)
def test_the_headline_says_how_many_groups_are_unhealthy(
    healths: tuple[GroupHealth, ...], start: str, story: Story
) -> None:
    groups = [make_group(health=replace(HEALTHY, health=health)) for health in healths]
    quiet = replace(story, groups=tuple(groups))
    assert quiet.headline == f"{start} No downtime was found."
    cost: dict[str, Any] = {"downtime_ms": 4_000}
    cost |= {"downtime_by_reason": {"silent": 3_000, "revoked": 1_000}}
    costly = replace(story, groups=(replace(groups[0], **cost), *groups[1:]))
    sentence = "Members that stop sending heartbeats cause 75 % of all downtime."
    assert costly.headline == f"{start} {sentence}"


def evidence_row() -> dict[str, Any]:
    """A row of gold/evidence with little in it."""
    counts = ("records", "commits", "generations", "rebalances", "logs", "lines", "samples")
    lists = ("windows", "complete", "unread")
    return {"demo": False} | dict.fromkeys(counts, 0) | {name: [] for name in lists}


def polled_row(groups: list[str]) -> dict[str, Any]:
    return {
        "first": 5000,
        "last": None,
        "every": 2.5,
        "rounds": 3,
        "groups": groups,
        "gaps": [
            {"begin": 1000, "end": None, "why": "no answer"},
            {"begin": 1000, "end": 2000, "why": "no answer"},
        ],
    }


def test_times_in_the_evidence_are_milliseconds_however_deep_they_are() -> None:
    row = evidence_row() | {
        "first": 1000,
        "until": 253_402_300_799_999,
        "polled": polled_row(["b", "a"]),
        "windows": [{"group": "a", "at": 7000, "whole": True}],
        "complete": [{"journal_partition": 3, "offset": 9, "at": 8000}],
        "lookups": {
            "allowed": 9,
            "made": 8,
            "partitions": 7,
            "skipped_partitions": ["t-1"],
            "before_log_start": 2,
            "failed": {"no such topic": ["u"]},
        },
        "unread": [{"what": "records", "count": 2, "examples": ["one"]}],
    }
    found = read_evidence_summary(make_table(EVIDENCE, [row]))
    assert (found.first, found.last, found.until) == (1000, None, 253_402_300_799_999)
    assert found.polled is not None
    assert (found.polled["first"], found.polled["last"]) == (5000, None)
    assert found.polled["gaps"][1] == {"begin": 1000, "end": 2000, "why": "no answer"}
    assert found.windows == (("a", 7000, True),)
    assert found.complete == ((3, 9, 8000),)
    assert found.lookups is not None
    assert found.lookups["failed"] == {"no such topic": ["u"]}
    assert found.unread == (("records", 2, ("one",)),)
    assert found.cluster is None


def test_evidence_is_one_row() -> None:
    with pytest.raises(InputError, match=r"gold/evidence has 2 rows instead of one"):
        read_evidence_summary(make_table(EVIDENCE, [evidence_row()] * 2))


def make_evidence(**fields: Any) -> EvidenceSummary:
    row = evidence_row() | {"first": MORNING, "last": MORNING + 3_600_000, "records": 1} | fields
    return read_evidence_summary(make_table(EVIDENCE, [row]))


def evidence_lines(read: EvidenceSummary, *causes: tuple[str, EvidenceMark, int]) -> list[str]:
    return evidence_text.evidence_lines(
        Story(out="out", groups=(), total_groups=0, evidence=read, causes=causes)
    )


FIRST = (
    "input: 1 record (stated) from 2026-11-15 06:00:00Z to 2026-11-15 07:00:00Z; "
    "0 commits (stated), 0 generations (stated), 0 rebalances (inferred)"
)
NO_CAUSES = "causes: 0 stated by the broker's log, 0 inferred from the journal, 0 unknown"
NO_LAG = (
    "lag: not computed; use --bootstrap-servers to look up log ends, or --ends FILE with samples"
)


def test_the_evidence_is_told_in_lines() -> None:
    assert evidence_lines(make_evidence()) == [FIRST, NO_CAUSES, NO_LAG]


def test_what_is_shown_is_said_where_it_is_not_all() -> None:
    begin, end = "2026-11-15 06:00:00Z", "2026-11-15 06:00:01Z"
    for fields, shown in (
        ({"since": MORNING}, f"shown: events from {begin} to the end"),
        ({"until": MORNING}, f"shown: events from the beginning to {begin}"),
        (
            {"since": MORNING, "until": MORNING + 1000},
            f"shown: events from {begin} to {end}",
        ),
    ):
        assert evidence_lines(make_evidence(**fields))[1] == shown


def test_samples_are_told_of_with_their_gaps() -> None:
    row = polled_row(["a"])
    sampled = ("left", EvidenceMark.SAMPLED, 4)
    assert evidence_lines(make_evidence(records=0, polled=row, samples=5), sampled) == [
        "input: samples from 2026-11-15 06:00:00Z to 2026-11-15 07:00:00Z; "
        "0 commits (sampled), 0 generations (sampled), 0 rebalances (sampled)",
        "sampled: 1 group in 3 rounds, every 2.5 s. Several rebalances between two samples "
        "appear as one, or not at all if the group is the same again",
        "gap: no samples from 1970-01-01 00:00:01Z to the end: no answer",
        "gap: no samples from 1970-01-01 00:00:01Z to 1970-01-01 00:00:02Z: no answer",
        "causes: 0 stated by the broker's log, 0 inferred from the journal, 4 seen in samples, "
        "0 unknown",
        "lag: from 5 samples of log ends (sampled)",
    ]


def test_what_is_of_the_journal_and_of_samples_is_said_to_be_of_both() -> None:
    assert evidence_lines(make_evidence(polled=polled_row(["a"])))[0] == (
        "input: 1 record (stated) from 2026-11-15 06:00:00Z to 2026-11-15 07:00:00Z; "
        "0 commits (stated and sampled), 0 generations (stated and sampled), "
        "0 rebalances (inferred and sampled)"
    )


def test_what_compaction_took_is_said() -> None:
    windows = [{"group": name, "at": 0, "whole": name == "c"} for name in "abc"]
    complete = [
        {"journal_partition": number, "offset": number, "at": MORNING + number}
        for number in (0, 1000, 2000)
    ]
    assert evidence_lines(make_evidence(windows=windows, complete=complete))[1:3] == [
        "the journal is compacted: the beginning of 2 groups is missing (inferred); from their "
        "first record on these groups are complete",
        "commits: complete from 2026-11-15 06:00:02Z on (inferred); compaction removed some "
        "earlier commits, so lag and inferred causes are less certain before",
    ]


CAUSES = (
    ("left", EvidenceMark.STATED, 1_500),
    ("unknown", EvidenceMark.INFERRED, 3),
    ("joined", EvidenceMark.INFERRED, 2),
    ("left", EvidenceMark.INFERRED, 1),
)
COUNTED = "causes: 1,500 stated by the broker's log, 3 inferred from the journal, 3 unknown"


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ({}, "; --server-log FILE would state them"),
        ({"logs": 1}, "; the broker log has no line about these groups"),
        ({"logs": 1, "lines": 9}, ""),
    ],
)
def test_how_causes_are_known(fields: dict[str, int], hint: str) -> None:
    assert evidence_lines(make_evidence(**fields), *CAUSES)[1] == COUNTED + hint


def lookup_row(**fields: Any) -> dict[str, Any]:
    row = {
        "allowed": 9,
        "made": 0,
        "partitions": 0,
        "skipped_partitions": [],
        "before_log_start": 0,
        "failed": {},
    }
    return row | fields


CLUSTER = {
    "bootstrap_servers": "host:9092",
    "topic": "__consumer_offsets",
    "partitions": 50,
    "max_records": 7,
    "bytes": 1,
    "acls": [],
}


def test_what_lag_rests_on() -> None:
    asked = lookup_row(made=1_000, partitions=1, before_log_start=1)
    left_out = lookup_row(skipped_partitions=["t-1", "t-2"])
    assert evidence_lines(make_evidence(cluster=CLUSTER, lookups=asked, samples=9))[2:] == [
        "lag: from 1,000 lookups of log ends in 1 partition (sampled); as exact as the timestamps "
        "of the records",
        "lag: 1 lookup found no record (sampled): retention deleted the records of that time",
    ]
    assert evidence_lines(make_evidence(cluster=CLUSTER, lookups=left_out))[2:] == [
        "lag: not computed; use --lookups N to look up log ends, or --ends FILE with samples",
        "lag: 2 partitions with commits (stated) not looked up; use a larger --lookups N",
    ]


def test_a_cluster_without_a_journal() -> None:
    bare = CLUSTER | {"partitions": 0}
    assert evidence_lines(make_evidence(first=None, last=None, cluster=bare)) == [
        "input: the cluster has no journal (__consumer_offsets) because it never had a group"
    ]
    assert evidence_lines(make_evidence(first=None, last=None, cluster=CLUSTER)) == [
        "input: the journal is empty"
    ]


def test_times_are_written_as_people_read_them() -> None:
    assert format_time(MORNING) == "2026-11-15 06:00:00Z"
    assert format_time(253_402_300_799_999) == "9999-12-31 23:59:59Z"
    assert [
        format_seconds(seconds) for seconds in (0.2, 108.4, 120, 7_199, 7_200, 172_800, 1e9)
    ] == [
        "0 s",
        "108 s",
        "2 min",
        "120 min",
        "2 h",
        "2 d",
        "11,574 d",
    ]


@pytest.mark.parametrize(
    ("fields", "until"),
    [
        ({}, MORNING + 3_600_000),
        ({"until": MORNING + 60_000}, MORNING + 60_000),
        ({"cluster": "live"}, None),
        ({"cluster": "live", "until": MORNING + 60_000}, MORNING + 60_000),
        ({"polled": "so"}, None),
    ],
)
def test_up_to_when_commits_are_known(fields: dict[str, Any], until: int | None) -> None:
    """A live cluster tells ends after commits; copied folders end with their last record."""
    stands = {"live": CLUSTER, "so": polled_row(["a"])}
    assert (
        make_evidence(**{name: stands.get(one, one) for name, one in fields.items()}).commits_until
        == until
    )


def commit_row(order: int, at: int, partition: int, **fields: Any) -> dict[str, Any]:
    row = {"group": "g", "topic": "t", "partition": partition, "at": MORNING + at}
    return row | {"journal_partition": 0, "journal_offset": order, "offset": order} | fields


def test_a_group_is_wanted_by_its_very_name_whatever_is_in_it(tmp_path: Path) -> None:
    histories = [History(group=name, topics={"t": 2}) for name in ("jobs[1]", "jobs2")]
    for history in histories:
        history.join(["one"], MORNING)
    read = read_gold_tables(str(build_tables(histories).write(tmp_path)))
    assert [group.name for group in build_story(read, ["jobs[1]"]).groups] == ["jobs[1]"]


def test_a_run_in_which_nothing_happened(tmp_path: Path) -> None:
    report_story = build_story(read_gold_tables(str(write_empty(tmp_path))))
    assert (report_story.groups, report_story.causes) == ((), ())
    assert evidence_text.evidence_lines(report_story) == ["input: the journal is empty"]


def test_a_folder_without_tables_is_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(Unreachable) as caught:
        read_gold_tables(str(out))
    assert str(caught.value) == f"{out} has no tables; rota run --out {out} writes them"


def test_tables_of_another_version_are_named(tmp_path: Path) -> None:
    out = write_empty(tmp_path)
    file = out / "gold" / "evidence" / "part-0.parquet"
    old = parquet.read_table(file).drop_columns(["demo"])
    parquet.write_table(old, file)
    with pytest.raises(InputError) as caught:
        read_gold_tables(str(out))
    assert str(caught.value) == (
        f"{out}: another version of Rota wrote gold/evidence (it has no column demo); "
        f"rota run --out {out} writes it again"
    )
    file.unlink()
    file.parent.rmdir()
    with pytest.raises(InputError) as caught:
        read_gold_tables(str(out))
    assert str(caught.value) == (
        f"{out}: another version of Rota wrote gold/evidence (it does not exist); "
        f"rota run --out {out} writes it again"
    )


def test_a_table_that_is_damaged_is_named(tmp_path: Path) -> None:
    out = write_empty(tmp_path)
    (out / "gold" / "lag" / "part-0.parquet").write_bytes(b"PAR1 is all there is of it, PAR1")
    with pytest.raises(InputError, match=r"another version of Rota wrote gold/lag"):
        read_gold_tables(str(out))


def test_deletions_of_offsets_are_read_and_commits_are_not(tmp_path: Path) -> None:
    made = build_tables([History(group="g", topics={"t": 1})])
    rows = [
        {"group": "g", "topic": "t", "partition": 0, "at": MORNING, "journal_offset": 7}
        | {"journal_partition": 0, "offset": offset}
        for offset in (5, None)
    ]
    made.add(COMMITS, make_table(COMMITS, rows).to_batches()[0])
    found = read_gold_tables(str(made.write(tmp_path))).deletions
    assert found.num_rows == 1
    assert set(found.column_names) == {"group", "topic", "partition", "at", "journal_offset"}


def earlier_commits(folder: Path, since: int | None) -> list[tuple[str, int, int, int]]:
    """Samples begin at 100 in partition 0 and at 900 in partition 1; 2 is never sampled."""
    rows = [
        commit_row(1, 50, 0),
        commit_row(2, 90, 0),
        commit_row(3, 80, 1),
        commit_row(4, 99, 0, offset=None),
        commit_row(5, 100, 0),
        commit_row(6, 400, 1),
        commit_row(7, 450, 2),
        commit_row(8, 500, 0),
        commit_row(9, 899, 1, group="h"),
        commit_row(10, 950, 1),
        commit_row(11, 10, 0, topic="u"),
    ]
    samples = [
        {"topic": "t", "partition": partition, "at": MORNING + at, "end": 9}
        for partition, at in ((0, 500), (0, 100), (1, 900))
    ]
    folder.mkdir()
    for number, part in enumerate((rows[6:], rows[:6])):
        parquet.write_table(
            make_table(COMMITS, part), folder / f"{number}.parquet", row_group_size=2
        )
    begin = None if since is None else MORNING + since
    found = last_commits_before_lag(folder, make_table(ENDS, samples), begin)
    times = [at - MORNING for at in to_milliseconds(found["at"]).to_pylist()]
    columns = (found[name].to_pylist() for name in ("group", "partition", "offset"))
    groups, partitions, offsets = columns
    return sorted(zip(groups, partitions, times, offsets, strict=True))


@pytest.mark.parametrize("piece", [1, 3, ROWS_PER_PASS])
def test_the_last_commits_before_lag_is_told_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr("rota.report.story.ROWS_PER_PASS", piece)
    first = [("g", 0, 90, 2), ("g", 1, 400, 6), ("h", 1, 899, 9)]
    assert earlier_commits(tmp_path / "all", None) == first
    asked = [("g", 0, 100, 5), ("g", 1, 400, 6), ("h", 1, 899, 9)]
    assert earlier_commits(tmp_path / "some", 200) == asked
    late = [("g", 0, 500, 8), ("g", 1, 950, 10), ("h", 1, 899, 9)]
    assert earlier_commits(tmp_path / "late", 1_000) == late


def test_a_partition_that_stood_still_all_the_time_is_told(tmp_path: Path) -> None:
    """Committed before the first sample and never again: gold/lag has no row."""
    history = History(group="g", topics={"t": 1})
    history.join(["a"], MORNING)
    history.join(["b"], MORNING + 3_600_000)
    made = build_tables([history])
    made.add(COMMITS, make_table(COMMITS, [commit_row(1, 5_000, 0, offset=50)]).to_batches()[0])
    samples = [
        {"topic": "t", "partition": 0, "at": MORNING + at, "end": 100 + at // 1000}
        for at in range(10_000, 3_600_001, 10_000)
    ]
    made.add(ENDS, make_table(ENDS, samples).to_batches()[0])
    (found,) = build_story(read_gold_tables(str(made.write(tmp_path)))).groups
    assert found.lag is not None
    assert (found.lag.most_seconds, found.lag.at_least, found.lag.most) == (3590, True, 3650)
