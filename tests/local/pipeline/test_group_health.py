"""Rows of gold/health from the rows of one group, as the lag stage computes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from rota.engine.history.facts import (
    Generation,
    GenerationChange,
    GenerationMember,
    GroupHealthStatus,
    GroupType,
)
from rota.engine.history.health import compute_health
from rota.engine.history.lag import EndOffsets
from rota.engine.history.verdicts import DELETED_OFFSET
from rota.pipeline import arrow, lag
from rota.pipeline.group_by import TablePart
from rota.pipeline.tables import COMMITS, ENDS, GENERATIONS

START = 1_800_000_000_000
MINUTE = 60_000


def commit_rows(*rows: tuple[int, int, int, int | None]) -> pa.RecordBatch:
    """Rows of silver/commits: journal offset, partition, milliseconds, offset."""
    empty = dict.fromkeys(arrow.arrow_schema(COMMITS).names)
    same = {"journal_partition": 0, "group": "g", "topic": "t"}
    return arrow.rows_to_batch(
        COMMITS,
        [
            {**empty, **same, "journal_offset": place, "partition": partition}
            | {"at": START + at, "offset": offset}
            for place, partition, at, offset in rows
        ],
    )


def sample_rows(*rows: tuple[int, int, int]) -> pa.RecordBatch:
    """Rows of bronze/ends: partition, minute, end."""
    listed = [
        {"topic": "t", "partition": p, "at": START + m * MINUTE, "beginning": 0, "end": end}
        for p, m, end in rows
    ]
    return arrow.rows_to_batch(ENDS, listed)


def members_at(minute: int, *owned: int) -> Generation:
    return Generation(
        group="g",
        kind=GroupType.CLASSIC,
        incarnation=0,
        generation=1,
        change=GenerationChange.REBALANCED,
        at=START + minute * MINUTE,
        offset=0,
        members=(GenerationMember(member_id="m", topics=("t",), assigned={"t": owned}),),
    )


def generation_rows(minute: int, *owned: int) -> pa.RecordBatch:
    return arrow.facts_to_batch(GENERATIONS, [members_at(minute, *owned)])


def compute_health_row(*parts: TablePart, minute: int = 60) -> dict[str, Any]:
    batches = lag.compute_group_lag("g", parts, START + minute * MINUTE)
    rows = [row for batch in batches for row in batch.column("health").to_pylist() if row]
    assert len(rows) == 1, "every group has one row"
    return dict(rows[0])


def test_a_group_without_samples_or_without_commits_has_a_row() -> None:
    members, commits = ("generations", generation_rows(0)), commit_rows((0, 0, 0, 5))
    for parts, reason in (
        ([members], "the group has no committed offset"),
        ([members, ("commits", commits)], "no samples of log ends"),
        ([("commits", commits)], "no samples of log ends"),
        ([("samples", sample_rows((1, 0, 5))), ("commits", commits)], "no samples of log ends"),
    ):
        row = compute_health_row(*parts)
        assert (row["group"], row["health"], row["worst"]) == ("g", "unknown", "unknown")
        assert row["reason"].startswith(reason)
        assert row["since"] is row["lag"] is row["topic"] is None


def test_a_stuck_partition_is_a_row() -> None:
    read = [(m, 0, m * MINUTE, 10 * m) for m in range(30)]
    moving = [(100 + m, 1, m * MINUTE, 10 * m) for m in range(61)]
    samples = sample_rows(*((p, m, 10 * m) for p in (0, 1) for m in range(0, 65, 5)))
    row = compute_health_row(
        ("generations", generation_rows(0)),
        ("samples", samples),
        ("commits", commit_rows(*moving)),
        ("commits", commit_rows(*read)),
    )
    assert (row["health"], row["topic"], row["partition"]) == ("stuck", "t", 0)
    assert (row["lag"], row["worst_topic"], row["worst_partition"]) == (310, "t", 0)
    assert row["since"] == row["worst_since"]


def test_a_partition_that_was_never_committed_is_unknown() -> None:
    rows = commit_rows(*((m, 1, m * MINUTE, 10 * m) for m in range(61)))
    samples = sample_rows(*((p, m, 10 * m) for p in (0, 1) for m in range(0, 65, 5)))
    for owned, health in (((0, 1), "unknown"), ((1,), "OK"), ((1, 7), "OK")):
        row = compute_health_row(
            ("generations", generation_rows(0, *owned)), ("samples", samples), ("commits", rows)
        )
        assert row["health"] == health
        assert row["reason"].startswith("t-0: no offset was ever") is (health == "unknown")


one_commit = st.tuples(
    st.integers(0, 2), st.integers(0, 3_000_000), st.none() | st.integers(0, 100)
)


@given(st.lists(one_commit, max_size=60), st.lists(st.integers(0, 59), max_size=3))
def test_a_thinned_history_does_not_depend_on_the_pieces(
    commits: list[tuple[int, int, int | None]], cuts: list[int]
) -> None:
    rows = [(place, *commit) for place, commit in enumerate(commits)]
    places = [0, *sorted(cuts), len(rows)]
    pieces = [rows[a:b] for a, b in pairwise(places)]
    at_once, in_pieces = lag.CommitHistory(), lag.CommitHistory()
    at_once.add_commits(commit_rows(*rows))
    for piece in reversed(pieces):
        in_pieces.add_commits(commit_rows(*piece))
    expected, found = at_once.sorted_commits(), in_pieces.sorted_commits()
    assert expected[0] == found[0]
    for left, right in zip(expected[1], found[1], strict=True):
        assert left.tolist() == right.tolist()


def test_many_commits_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "MAX_KEPT_COMMITS", 100)
    history = lag.CommitHistory()
    for begin in range(0, 5_000, 50):
        rows = [(n, n % 2, n * 1_000, n) for n in range(begin, begin + 50)]
        history.add_commits(commit_rows(*rows))
    history.add_commits(commit_rows((2_000, 0, 2_000_001, None)))
    pairs, commits = history.sorted_commits()
    assert pairs == [("t", 0), ("t", 1)]
    assert 50 < len(commits.at) <= 101
    for number in (0, 1):
        offsets = commits.offset[commits.partition == number]
        assert offsets[-1] == 4_998 + number, "the last commit of a partition is kept"
    assert DELETED_OFFSET in commits.offset


def compute_thinned_health(
    rows: list[tuple[int, int, int, int | None]],
    ends: EndOffsets,
    generations: Sequence[Generation],
    minute: int,
    pieces: int = 1,
) -> tuple[GroupHealthStatus, int]:
    """Returns the health, and the number of commits that were kept for it; the last piece of the
    rows comes first.
    """
    history = lag.CommitHistory()
    size = max(len(rows) // pieces, 1)
    for first in reversed(range(0, len(rows), size)):
        history.add_commits(commit_rows(*rows[first : first + size]))
    pairs, commits = history.sorted_commits(
        ("t", number) for number in set(ends.partition.tolist())
    )
    until = START + minute * MINUTE
    health = compute_health("g", pairs, commits, ends, generations, until)
    return health, len(commits.at)


def even_ends(partitions: int, minutes: int) -> EndOffsets:
    """A record every six seconds, and a sample every ten minutes."""
    number = np.repeat(np.arange(partitions), minutes // 10 + 1)
    minute = np.tile(np.arange(0, minutes + 1, 10), partitions)
    return EndOffsets.from_samples(number, START + minute * MINUTE, 10 * minute)


@pytest.mark.parametrize("generations", [[], [members_at(0)]], ids=["commits only", "members"])
@pytest.mark.parametrize("pieces", [1, 7])
def test_health_does_not_depend_on_the_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch, generations: list[Generation], pieces: int
) -> None:
    """Every partition moves each minute; 0 is stuck for 15 minutes, later 1 for 25; a commit of the
    same offset is repeated.
    """
    day, ends = 24 * 60, even_ends(3, 24 * 60)
    rows: list[tuple[int, int, int, int | None]] = []
    for m in range(day):
        for p, stuck in ((0, range(301, 316)), (1, range(1001, 1026)), (2, range(0))):
            read = stuck.start - 1 if m in stuck else m
            rows.append((len(rows), p, m * MINUTE + p * 1_000, 10 * read))
    for minute, worst, partition in ((600, "stuck", 0), (1010, "stuck", 0), (1020, "stuck", 1)):
        until_then = [row for row in rows if row[2] <= minute * MINUTE]
        found = []
        for most in (100_000, 50):
            monkeypatch.setattr(lag, "MAX_KEPT_COMMITS", most)
            status, kept = compute_thinned_health(until_then, ends, generations, minute, pieces)
            found.append(status)
        assert kept < len(until_then) / 3
        assert found[0] == found[1]
        assert (found[0].worst, found[0].worst_partition) == (worst, partition)
        assert found[0].health == ("stuck" if minute == 1020 else "OK")


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 600), st.integers(1, 9)), max_size=30),
    st.integers(1, 4),
)
def test_long_intervals_are_the_same_in_a_thinned_history(
    commits: list[tuple[int, int, int]], pieces: int
) -> None:
    """Each commit moves its partition."""
    rows: list[tuple[int, int, int, int | None]] = []
    last = [0, 0]
    for p, m, step in sorted(commits, key=lambda commit: commit[1]):
        last[p] += step
        rows.append((len(rows), p, m * MINUTE, last[p]))
    found = []
    for most in (100_000, 5):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lag, "MAX_KEPT_COMMITS", most)
            history = lag.CommitHistory()
            size = max(len(rows) // pieces, 1)
            for first in reversed(range(0, len(rows), size)):
                history.add_commits(commit_rows(*rows[first : first + size]))
            kept = list(zip(*history.sorted_commits()[1][:4], strict=True))
        moves = [new for old, new in pairwise([(-1, 0, 0, 0), *kept]) if old[::2] != new[::2]]
        found.append(
            [
                (old, new)
                for (number, *old, _), (other, *new, interval) in pairwise(moves)
                if number == other and min(interval, new[0] - old[0]) >= 10 * MINUTE
            ]
        )
    assert found[0] == found[1]


def test_a_thinned_history_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two partitions for a week, with a commit each minute."""
    monkeypatch.setattr(lag, "MAX_KEPT_COMMITS", 100)
    rows: list[tuple[int, int, int, int | None]] = [
        (2 * m + p, p, m * MINUTE, m) for m in range(7 * 24 * 60) for p in (0, 1)
    ]
    _, kept = compute_thinned_health(rows, even_ends(2, 600), [], 7 * 24 * 60)
    hours = 7 * 24
    assert kept <= 2 * (hours + 24) + 2 * 12 * hours
