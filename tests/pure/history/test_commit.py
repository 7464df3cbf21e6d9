"""The commits that are kept answer as all of them would."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.history.causes import (
    LATEST_TIME,
    MAX_RHYTHM_COMMITS,
    CommitTimes,
    Int64Array,
    PartitionCodes,
    find_last_commit,
    is_last_commit_early,
    select_commits,
)
from tests.support.examples import examples

PARTITIONS = 3
HELD = {"t": tuple(range(PARTITIONS))}


def by_partition(partition: PartitionCodes, at: Int64Array) -> CommitTimes:
    return {("t", number): np.sort(at[partition == number]) for number in range(PARTITIONS)}


def commit_times(gap: int, count: int, begin: int) -> list[int]:
    return [begin + gap * number for number in range(count)]


rhythms = st.builds(
    commit_times, st.sampled_from([3, 50, 1000]), st.integers(0, 150), st.integers(0, 500)
)
commits = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), rhythms | st.lists(st.integers(0, 9_000))),
    max_size=6,
).map(lambda told: [(number, at) for number, times in told for at in times])


@examples(quick=25)
@given(commits, st.lists(st.integers(0, 9_000), max_size=5).map(sorted))
def test_what_is_not_kept_makes_no_difference(
    given_: list[tuple[int, int]], asked: list[int]
) -> None:
    partition = np.array([number for number, _ in given_], dtype=np.int32)
    at = np.array([time for _, time in given_], dtype=np.int64)
    kept = select_commits(partition, at, np.array(asked, dtype=np.int64))
    every, some = by_partition(partition, at), by_partition(partition[kept], at[kept])
    for until in (*asked, LATEST_TIME):
        assert find_last_commit(every, HELD, until) == find_last_commit(some, HELD, until)
        for since in (-1, *asked):
            assert find_last_commit(every, HELD, until, since) == find_last_commit(
                some, HELD, until, since
            )
            expected = is_last_commit_early(every, HELD, until, since)
            assert expected == is_last_commit_early(some, HELD, until, since)


def test_few_of_many_commits_between_two_moments_are_kept() -> None:
    at = np.arange(100_000, dtype=np.int64)
    kept = select_commits(np.zeros(len(at), dtype=np.int32), at, np.array([500, 70_000]))
    assert len(kept) == 3 * MAX_RHYTHM_COMMITS
    assert at[kept].max() == 99_999
    assert {500, 70_000} <= set(at[kept].tolist())


def test_the_last_commit_is_not_after_one_time_and_after_another() -> None:
    commits, held = {("t", 0): np.array([10, 20], dtype=np.int64)}, {"t": (0,)}

    assert [find_last_commit(commits, held, until) for until in (9, 10, 19, 20)] == [
        None,
        10,
        10,
        20,
    ]
    assert [find_last_commit(commits, held, 20, since) for since in (19, 20)] == [20, None]
