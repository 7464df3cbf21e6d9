"""The health of a group: each rule, the recorded run, and groups of the simulated day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.history.facts import (
    MINUTE,
    Generation,
    GenerationChange,
    GenerationMember,
    GroupHealth,
    GroupHealthStatus,
    GroupType,
    JournalRecord,
)
from rota.engine.history.generations import read_history
from rota.engine.history.health import HealthSettings, compute_health
from rota.engine.history.lag import EndOffsets
from rota.engine.history.verdicts import DELETED_OFFSET, GroupCommits
from rota.engine.model.journal_entry import OffsetCommitEntry
from rota.engine.simulator.day import DAY, GROUP_PLANS, sample_offsets, simulate_day
from tests.support.captured_lag import (
    end_offsets,
    group_commits,
    group_history,
    journal_records,
    partitions,
    time_of_second,
)

OK, BEHIND, STUCK, FAILING, UNKNOWN = (
    GroupHealth.OK,
    GroupHealth.FALLING_BEHIND,
    GroupHealth.STUCK,
    GroupHealth.FAILING,
    GroupHealth.UNKNOWN,
)
SEVERITY = [OK, BEHIND, STUCK, FAILING]
#: The date of all times.
ON = "1970-01-01"
HOUR = 60
TOPICS = [("orders", 0), ("orders", 1), ("payments", 0)]
#: Partition, minute, and offset or end.
Rows = list[tuple[int, int, int]]


def steps(partition: int, first: int, last: int, a_minute: int, start: int = 0) -> Rows:
    """A row every minute, of an offset that moves by ``a_minute``."""
    return [(partition, m, start + a_minute * (m - first)) for m in range(first, last + 1)]


def traffic(*numbers: int, last: int, a_minute: int = 10) -> Rows:
    return [row for number in numbers for row in steps(number, 0, last, a_minute)]


def to_columns(rows: Rows) -> tuple[np.ndarray, ...]:
    partition, minute, value = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return partition, minute * MINUTE, value


def generation(
    minute: float,
    members: int,
    *,
    number: int = 1,
    change: GenerationChange | None = None,
    topics: tuple[str, ...] = ("orders", "payments"),
) -> Generation:
    usual = GenerationChange.REBALANCED if members else GenerationChange.EMPTIED
    return Generation(
        group="g",
        kind=GroupType.CLASSIC,
        incarnation=0,
        generation=number,
        change=change or usual,
        at=int(minute * MINUTE),
        offset=int(minute * MINUTE),
        members=tuple(GenerationMember(member_id=f"m{n}", topics=topics) for n in range(members)),
    )


def health(
    commits: Rows,
    ends: Rows,
    until: int,
    generations: Sequence[Generation] = (),
    settings: HealthSettings | None = None,
) -> GroupHealthStatus:
    return compute_health(
        "g",
        TOPICS,
        GroupCommits(*to_columns(commits)),
        EndOffsets.from_samples(*to_columns(ends)),
        generations,
        until * MINUTE,
        settings,
    )


def found(status: GroupHealthStatus) -> tuple[GroupHealth, str | None, int | None]:
    return status.health, status.topic, status.partition


MEMBERS = [generation(0, 2)]


def test_a_group_that_reads_everything_is_ok() -> None:
    status = health(traffic(0, 1, last=HOUR), traffic(0, 1, last=HOUR), HOUR, MEMBERS)
    assert (status.health, status.worst, status.since, status.lag) == (OK, OK, None, 0)
    assert status.reason == status.worst_reason == "no records wait in 2 partitions"


@pytest.mark.parametrize("repeats", [True, False], ids=["same offset", "no commit"])
@pytest.mark.parametrize("generations", [MEMBERS, []], ids=["members", "commits only"])
def test_a_partition_that_does_not_move_while_others_do_is_stuck(
    repeats: bool, generations: list[Generation]
) -> None:
    still = steps(0, 30, HOUR, 0, start=300) if repeats else []
    commits = [*traffic(0, last=30), *still, *traffic(1, last=HOUR)]
    status = health(commits, traffic(0, 1, last=HOUR), HOUR, generations)
    assert found(status) == (STUCK, "orders", 0)
    assert status.since is not None
    assert 30 * MINUTE <= status.since <= 31 * MINUTE
    assert status.lag == 300
    assert (
        status.reason
        == status.worst_reason
        == (
            f"orders-0: committed offset 300 has not moved since {ON} 00:30Z while 300 "
            "records arrived"
        )
    )


def test_a_partition_is_not_stuck_before_its_limit() -> None:
    commits = [*traffic(0, last=30), *traffic(1, last=HOUR)]
    ends = traffic(0, 1, last=HOUR)
    assert health(commits, ends, 40, MEMBERS).health == OK
    assert health(commits, ends, 41, MEMBERS).health == STUCK


def test_a_partition_without_new_records_is_ok() -> None:
    ends = [*traffic(0, last=30), *steps(0, 31, HOUR, 0, start=300), *traffic(1, last=HOUR)]
    assert health([*traffic(0, last=30), *traffic(1, last=HOUR)], ends, HOUR, MEMBERS).health == OK


def test_transaction_markers_are_not_waiting_records() -> None:
    ends = [(0, 0, 0), (0, 30, 304), (0, HOUR, 304)]
    assert health([(0, 0, 0), (0, 30, 303)], ends, HOUR, MEMBERS).health == OK
    backlog = [(0, 0, 0), (0, 30, 350), (0, HOUR, 350)]
    status = health([(0, 0, 0), (0, 30, 303)], backlog, HOUR, MEMBERS)
    assert status.health == OK, "its usual interval is half an hour"
    status = health(steps(0, 0, 30, 10), backlog, HOUR, MEMBERS)
    assert status.reason == (
        f"orders-0: committed offset 300 has not moved since {ON} 00:30Z while 50 records wait"
    )


def test_deleted_records_do_not_wait() -> None:
    partition, at, end = to_columns([(0, 0, 0), (0, 30, 500), (0, HOUR, 500)])
    for beginning, expected in ((500, OK), (400, STUCK)):
        low = np.array([0, 0, beginning], dtype=np.int64)
        ends = EndOffsets.from_samples(partition, at, end, low)
        commits = GroupCommits(*to_columns(steps(0, 0, 20, 10)))
        status = compute_health("g", TOPICS, commits, ends, MEMBERS, HOUR * MINUTE)
        assert status.health == expected


def test_a_group_that_commits_once_an_hour_may_wait_for_hours() -> None:
    commits = [(0, m, 10 * m) for m in range(0, 6 * HOUR, HOUR)]
    ends = traffic(0, last=9 * HOUR)
    for generations in (MEMBERS, []):
        assert health(commits, ends, 5 * HOUR + 179, generations).health == OK
        assert health(commits, ends, 8 * HOUR + 5, generations).health in {STUCK, FAILING}


def test_a_partition_that_moves_again_was_stuck() -> None:
    commits = [*traffic(0, last=30), *steps(0, 50, HOUR, 10, start=500), *traffic(1, last=HOUR)]
    status = health(commits, traffic(0, 1, last=HOUR), HOUR, MEMBERS)
    assert (status.health, status.since) == (OK, 50 * MINUTE)
    assert (status.worst, status.worst_topic, status.worst_partition) == (STUCK, "orders", 0)
    assert status.worst_until == 50 * MINUTE
    assert f"did not move from {ON} 00:30Z to {ON} 00:50Z while 200 records" in status.worst_reason


def test_topics_without_subscription_and_deleted_offsets_do_not_count() -> None:
    commits = [*traffic(2, last=30), *traffic(0, last=HOUR)]
    ends = traffic(0, 2, last=HOUR)
    assert health(commits, ends, HOUR, MEMBERS).health == STUCK
    fewer = [*MEMBERS, generation(31, 2, number=2, topics=("orders",))]
    assert health(commits, ends, HOUR, fewer).health == OK
    deleted = [*commits, (2, 31, DELETED_OFFSET)]
    assert health(deleted, ends, HOUR, MEMBERS).health == OK


def test_a_topic_that_was_created_again_starts_anew() -> None:
    ends = [*traffic(0, last=29), *steps(0, 30, HOUR, 0, start=5), *traffic(1, last=HOUR)]
    assert health([*traffic(0, last=25), *traffic(1, last=HOUR)], ends, HOUR, MEMBERS).health == OK


def test_a_group_without_members_and_with_new_records_fails() -> None:
    left = [*MEMBERS, generation(30, 0)]
    status = health(traffic(0, 1, last=30), traffic(0, 1, last=HOUR), HOUR, left)
    assert found(status) == (FAILING, None, None)
    assert status.reason == f"no members since {ON} 00:30Z; 600 records wait"
    idle = [row for n in (0, 1) for row in [*steps(n, 0, 30, 10), (n, HOUR, 300)]]
    assert health(traffic(0, 1, last=30), idle, HOUR, left).health == OK
    assert health(traffic(0, 1, last=30), traffic(0, 1, last=HOUR), 39, left).health == OK


def test_a_group_of_commits_only_that_stops_fails() -> None:
    status = health(traffic(0, 1, last=30), traffic(0, 1, last=HOUR), HOUR)
    assert status.health == FAILING
    assert status.reason == f"no commits since {ON} 00:30Z; 600 records wait"


def test_a_group_that_returned_had_failed() -> None:
    away = [*MEMBERS, generation(30, 0), generation(50, 2, number=2)]
    commits = [*traffic(0, last=30), *steps(0, 51, HOUR, 10, start=510)]
    status = health(commits, traffic(0, last=HOUR), HOUR, away)
    assert (status.health, status.since) == (OK, 50 * MINUTE)
    assert (status.worst, status.worst_until) == (FAILING, 50 * MINUTE)
    assert status.worst_reason == f"no members from {ON} 00:30Z to {ON} 00:50Z; 200 records waited"


def test_members_that_come_and_go_without_progress_are_stuck() -> None:
    loop = [generation(m, m % 3 % 2, number=m) for m in range(30, 2 * HOUR) if m % 3 < 2]
    status = health(traffic(0, last=30), traffic(0, last=2 * HOUR), 2 * HOUR, [*MEMBERS, *loop])
    assert found(status) == (STUCK, "orders", 0)


def test_a_short_absence_does_not_end_a_stuck_time() -> None:
    restart = [*MEMBERS, generation(50, 0), generation(51, 1, number=2)]
    status = health(traffic(0, last=30), traffic(0, last=70), 70, restart)
    assert found(status) == (STUCK, "orders", 0)
    assert status.since is not None
    assert status.since <= 31 * MINUTE
    back = [*MEMBERS, generation(31, 0), generation(40, 1, number=2)]
    assert health(traffic(0, last=30), traffic(0, last=70), 42, back).health == OK


def scheduled(runs: Sequence[int], length: int = 5) -> tuple[Rows, list[Generation]]:
    """A job that runs at these minutes and consumes its backlog."""
    commits: Rows = []
    generations = []
    for number, begin in enumerate(runs, 1):
        generations += [generation(begin, 1, number=number), generation(begin + length, 0)]
        commits += steps(0, begin + 1, begin + length, 10, start=10 * (begin + 1))
    return commits, generations


def test_a_scheduled_job_is_ok_while_it_is_away() -> None:
    commits, generations = scheduled([0, HOUR, 2 * HOUR, 3 * HOUR])
    ends = traffic(0, last=8 * HOUR)
    status = health(commits, ends, 3 * HOUR + 58, generations)
    assert (status.health, status.worst) == (OK, OK)
    assert status.reason == (
        f"530 records wait in the group's only partition; no members since {ON} 03:05Z, as "
        "several times before"
    )


def test_a_scheduled_job_that_does_not_come_fails() -> None:
    commits, generations = scheduled([0, HOUR, 2 * HOUR, 3 * HOUR])
    ends = traffic(0, last=20 * HOUR)
    for until, expected in ((4 * HOUR + 27, OK), (4 * HOUR + 28, FAILING), (20 * HOUR, FAILING)):
        assert health(commits, ends, until, generations).health == expected, "1.5 * 55 minutes"


def test_two_outages_are_no_rhythm_however_long_the_second_one_lasts() -> None:
    commits, generations = scheduled([0, HOUR], length=30)
    ends = traffic(0, last=8 * HOUR)
    for until in (101, 110, 120, 150, 8 * HOUR):
        status = health(commits, ends, until, generations)
        assert (status.health, status.worst) == (FAILING, FAILING)
    assert health(commits, ends, 110, generations).worst_reason == (
        f"no members from {ON} 00:30Z to {ON} 01:00Z; 300 records waited"
    )


def test_absences_of_different_length_are_no_rhythm() -> None:
    commits, generations = scheduled([0, HOUR, 180, 200, 300])
    status = health(commits, traffic(0, last=8 * HOUR), 320, generations)
    assert status.health == FAILING


def test_a_missed_and_an_additional_run_do_not_end_the_rhythm() -> None:
    commits, generations = scheduled([0, 60, 120, 180, 200, 240, 300, 360, 480, 540])
    ends = traffic(0, last=10 * HOUR)
    status = health(commits, ends, 580, generations)
    assert (status.health, status.worst) == (OK, FAILING)
    assert (
        status.worst_reason == f"no members from {ON} 06:05Z to {ON} 08:00Z; 1,150 records waited"
    )


def test_the_deletion_of_the_offsets_does_not_hide_the_records_that_waited() -> None:
    left = [*MEMBERS, generation(30, 0)]
    expired = [*traffic(0, last=30), (0, 90, DELETED_OFFSET)]
    status = health(expired, traffic(0, last=100), 100, left)
    assert status.worst_reason == f"no members from {ON} 00:30Z to {ON} 01:30Z; 600 records waited"


def short_runs(
    number: int, *, up: int = 20, away: int = 300, left: int = 200
) -> tuple[GroupCommits, list[Generation], int]:
    """Runs of ``up`` seconds, of a group that leaves records of ten each second.

    :returns: also the time in milliseconds at which the last absence ends
    """
    generations = []
    commits = []
    for place in range(number):
        begin, end = ((up + away) * place + each for each in (0, up))
        generations += [
            generation(begin / 60, 1, number=2 * place),
            generation(end / 60, 0, number=2 * place + 1),
        ]
        commits.append((0, end * 1_000 - 1, max(10 * end - left, 0)))
    columns = np.array(commits, dtype=np.int64).T
    return GroupCommits(*columns), generations, (up + away) * number * 1_000


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ({}, FAILING),
        ({"left": 20}, OK),  # a job that runs every five minutes
        ({"left": 90}, OK),
        ({"left": 110}, FAILING),
        ({"up": 320}, OK),  # away for less than half of the time
        ({"up": 90, "left": 900}, FAILING),
    ],
)
def test_a_group_that_runs_only_for_seconds_again_and_again_fails(
    runs: dict[str, int], expected: GroupHealth
) -> None:
    commits, generations, until = short_runs(12, **runs)
    ends = EndOffsets.from_samples(*to_columns(traffic(0, last=2 * HOUR, a_minute=600)))
    status = compute_health("g", TOPICS, commits, ends, generations, until)
    assert (status.health, status.worst) == (expected, expected)
    if not runs:
        assert status.reason == (
            f"all members left 12 times since {ON} 00:00Z, each time after at most 20 s; 3,200 "
            "records wait"
        )
    for later in range(until, 2 * HOUR * MINUTE, MINUTE):  # it does not come any more
        status = compute_health("g", TOPICS, commits, ends, generations, later)
        assert expected is OK or status.health is FAILING


def test_short_runs_end_with_a_long_one() -> None:
    commits, generations, until = short_runs(12)
    ends = EndOffsets.from_samples(*to_columns(traffic(0, last=2 * HOUR, a_minute=600)))
    stays = [*generations, generation(until / MINUTE, 1, number=99)]
    read = [
        np.append(old, new) for old, new in zip(commits, (0, until + MINUTE, 39_000), strict=True)
    ]
    for minutes, expected in ((5, FAILING), (11, OK)):
        now = until + minutes * MINUTE
        status = compute_health("g", TOPICS, GroupCommits(*read), ends, stays, now)
        assert (status.health, status.worst) == (expected, FAILING)
    assert status.worst_reason == (
        f"all members left 12 times from {ON} 00:00Z to {ON} 01:04Z, each time after at most 20 s; "
        "up to 3,200 records waited"
    )


def test_short_runs_that_do_not_move_a_partition_are_stuck() -> None:
    commits, generations, until = short_runs(12)
    ends = EndOffsets.from_samples(*to_columns(traffic(0, last=2 * HOUR, a_minute=600)))
    first = GroupCommits(*(column[:2] for column in commits))
    status = compute_health("g", TOPICS, first, ends, generations, until)
    assert (status.health, status.worst) == (STUCK, STUCK)


def test_a_job_that_leaves_its_backlog_fails() -> None:
    commits, generations = scheduled([0, HOUR, 2 * HOUR])
    slow = [(number, minute, offset // 2) for number, minute, offset in commits]
    assert health(slow, traffic(0, last=3 * HOUR), 2 * HOUR + 50, generations).health == FAILING


def test_one_absence_or_short_ones_are_no_rhythm() -> None:
    once, generations = scheduled([0])
    assert health(once, traffic(0, last=HOUR), HOUR, generations).health == FAILING
    commits, outages = scheduled([0, 70, 140, 210], length=55)
    status = health(commits, traffic(0, last=5 * HOUR), 280, outages)
    assert (status.health, status.worst) == (FAILING, FAILING), "it runs most of the time"


def test_a_partition_that_no_run_of_a_job_moves_is_stuck() -> None:
    commits, generations = scheduled([0, HOUR, 2 * HOUR, 3 * HOUR])
    commits += [(1, 1, 10), (1, 5, 50)]
    status = health(commits, traffic(0, 1, last=4 * HOUR), 3 * HOUR + 50, generations)
    assert found(status) == (STUCK, "orders", 1)


def test_a_group_that_cannot_stay_stable_fails_without_any_sample() -> None:
    storm = [generation(m / 2, 3, number=m) for m in range(60)]
    status = health([], [], 30, storm)
    assert (status.health, status.since, status.lag) == (FAILING, 0, None)
    assert status.reason == (
        f"59 rebalances since {ON} 00:00Z with at most 3 members: no generation lasted 60 s"
    )
    later = health([], [], HOUR, storm)
    assert (later.health, later.worst, later.worst_until) == (UNKNOWN, FAILING, 29.5 * MINUTE)


def test_a_rolling_deploy_is_no_instability() -> None:
    """Each of 20 members leaves and a new one joins, with two rebalances each."""
    deploy = []
    for number in range(80):
        gone, new = number // 4 + 1, (number + 2) // 4
        ids = [*(f"old{n}" for n in range(gone, 20)), *(f"new{n}" for n in range(new))]
        members = tuple(GenerationMember(member_id=each) for each in ids)
        deploy.append(replace(generation(number / 2, 1, number=number), members=members))
    for until in range(HOUR):
        assert health([], [], until, deploy).worst == UNKNOWN


@pytest.mark.parametrize("members", [20, 50, 100])
@pytest.mark.parametrize("is_new_member", [True, False])
def test_a_large_group_in_which_one_member_comes_and_goes_fails(
    members: int, is_new_member: bool
) -> None:
    flapping = []
    for number in range(118):
        one = generation(number / 2, members - number % 2, number=number)
        last = replace(one.members[-1], member_id=f"last {number}" if is_new_member else "last")
        flapping.append(replace(one, members=(*one.members[:-1], last)))
    status = health([], [], 59, flapping)
    assert (status.health, status.since) == (FAILING, 0)
    assert status.reason == (
        f"117 rebalances since {ON} 00:00Z with at most {members} members: no generation "
        "lasted 60 s"
    )


def test_attempts_that_the_journal_lacks_count() -> None:
    storm = [generation(m, 2, number=4 * m) for m in range(0, 30, 3)]
    assert health([], [], 28, storm).health == FAILING
    calm = [generation(m, 2, number=m // 3) for m in range(0, 30, 3)]
    assert health([], [], 28, calm).health == UNKNOWN


def test_a_group_that_consumes_less_than_arrives_falls_behind() -> None:
    commits = [*steps(0, 0, 2 * HOUR, 8), *traffic(1, last=2 * HOUR)]
    status = health(commits, traffic(0, 1, last=2 * HOUR), 2 * HOUR, MEMBERS)
    assert found(status) == (BEHIND, "orders", 0)
    assert status.lag == 240
    assert "10 records arrived per minute, 8 were consumed" in status.reason


def test_lag_that_grows_for_a_short_time_or_with_the_traffic_is_ok() -> None:
    peak = [*steps(0, 0, 20, 8), *steps(0, 21, HOUR, 10, start=200)]
    assert health(peak, traffic(0, last=HOUR), HOUR, MEMBERS).worst == OK
    ends = [(0, m, m * m) for m in range(2 * HOUR)]
    delayed = [(0, m, (m - 2) ** 2) for m in range(2, 2 * HOUR)]
    status = health(delayed, ends, 2 * HOUR - 1, MEMBERS)
    assert (status.worst, status.lag) == (OK, 472)


def test_a_group_that_catches_up_was_behind() -> None:
    commits = [*steps(0, 0, HOUR, 5), *steps(0, HOUR + 1, 2 * HOUR, 14, start=314)]
    status = health(commits, traffic(0, last=2 * HOUR), 2 * HOUR, MEMBERS)
    assert (status.health, status.worst) == (OK, BEHIND)
    assert status.worst_until is not None
    assert status.since == status.worst_until <= 65 * MINUTE


def test_without_two_samples_or_a_commit_health_is_unknown() -> None:
    commits = traffic(0, last=HOUR)
    assert health(commits, [], HOUR, MEMBERS).reason.startswith("no samples of log ends")
    once = health(commits, [(0, HOUR, 600)], HOUR, MEMBERS)
    assert (once.health, once.lag) == (UNKNOWN, None)
    assert once.reason.startswith("only one sample of log ends")
    other = health(commits, traffic(1, last=HOUR), HOUR, MEMBERS)
    assert (other.health, other.worst) == (UNKNOWN, UNKNOWN)
    assert health([], traffic(0, last=HOUR), HOUR, MEMBERS).reason == (
        "the group has no committed offset"
    )


def owning(minute: int, *numbers: int) -> Generation:
    """A member has these partitions of orders."""
    one = generation(minute, 1, number=minute)
    member = replace(one.members[0], assigned={"orders": numbers})
    return replace(one, members=(member,))


def test_a_partition_without_any_commit_is_unknown_if_it_has_an_owner_and_records() -> None:
    commits, ends = traffic(0, last=200), traffic(0, 1, last=200)
    status = health(commits, ends, 200, [owning(0, 0, 1)])
    assert (status.health, status.worst, status.lag) == (UNKNOWN, UNKNOWN, None)
    assert status.reason == (
        f"orders-1: no offset was ever committed; it has had an owner since {ON} 00:00Z, and "
        "2,000 "
        "records have arrived"
    )
    for owners, until, expected in (
        ([owning(0, 0, 1)], 12, UNKNOWN),
        ([owning(0, 0, 1)], 11, OK),  # 10 records before the limit may be transaction markers
        ([owning(0, 0)], 200, OK),
        ([owning(0, 0, 1), owning(185, 0), owning(190, 0, 1)], 200, OK),
        ([owning(0, 0, 1), owning(185, 1, 0), owning(190, 0, 1)], 200, UNKNOWN),
        ([owning(0, 0, 1), generation(195, 0)], 200, OK),
    ):
        assert health(commits, ends, until, owners).health == expected
    no_records = [*traffic(0, last=200), (1, 0, 500), (1, 200, 505)]
    assert health(commits, no_records, 200, [owning(0, 0, 1)]).health == OK
    still = [*traffic(0, last=30), *steps(0, 31, 200, 0, start=300)]
    assert health(still, ends, 200, [owning(0, 0, 1)]).health == STUCK


def test_commits_after_the_time_do_not_count() -> None:
    commits = [*traffic(0, last=30), (0, HOUR + 1, 610)]
    assert health(commits, traffic(0, last=2 * HOUR), HOUR, MEMBERS).health == STUCK


minutes = st.lists(st.integers(0, 3 * HOUR), max_size=30).map(sorted)


@st.composite
def evidence(draw: st.DrawFn) -> tuple[Rows, Rows, list[Generation]]:
    """Commits up to minute 180, samples and generations, all at random."""
    commits: Rows = []
    ends: Rows = []
    for number in range(draw(st.integers(1, 3))):
        rates = draw(st.lists(st.integers(0, 50), min_size=19, max_size=19))
        levels = np.cumsum([0, *rates]).tolist()
        ends += [(number, 10 * place, level) for place, level in enumerate(levels)]
        for minute in draw(minutes):
            commits.append((number, minute, draw(st.integers(0, levels[minute // 10]))))
    generations = [
        generation(minute, draw(st.integers(0, 3)), number=number)
        for number, minute in enumerate(draw(minutes))
    ]
    return commits, ends, generations


@given(evidence())
def test_the_worst_is_at_least_as_bad_as_now(
    given: tuple[Rows, Rows, list[Generation]],
) -> None:
    commits, ends, generations = given
    status = health(commits, ends, 3 * HOUR, generations)
    if status.health is UNKNOWN or status.worst is UNKNOWN:
        return
    assert SEVERITY.index(status.health) <= SEVERITY.index(status.worst)
    if status.worst is not OK:
        assert status.worst_since is not None
        assert status.worst_until is not None
        assert 0 <= status.worst_since < status.worst_until <= 3 * HOUR * MINUTE


@given(evidence())
def test_a_group_that_reads_all_records_in_the_end_is_not_worse(
    given: tuple[Rows, Rows, list[Generation]],
) -> None:
    commits, ends, generations = given
    before = health(commits, ends, 3 * HOUR, generations)
    numbers = sorted({number for number, _, _ in commits})
    last = {number: end for number, _, end in ends}
    caught_up = [*commits, *((number, 3 * HOUR - 1, last[number]) for number in numbers)]
    after = health(caught_up, ends, 3 * HOUR, generations)
    if before.health is not UNKNOWN:
        assert SEVERITY.index(after.health) <= SEVERITY.index(before.health)
        assert after.lag == 0


#: The recording lasts 266 seconds; members commit every two seconds.
SHORT = HealthSettings(
    minimum_time=20_000, growth_time=30_000, material_time=3_000, stable_time=6_000
)


@cache
def recorded_health(group: str, at: float = 268) -> GroupHealthStatus:
    none = GroupCommits(*(np.zeros(0, dtype=np.int64),) * 3)
    return compute_health(
        group,
        partitions(),
        group_commits().get(group, none),
        end_offsets(),
        group_history(group).generations,
        time_of_second(at),
        SHORT,
    )


@pytest.mark.parametrize(
    ("group", "topic", "partition", "begin", "end"),
    [("a-stall", "orders", 3, 61.8, 172.7), ("a-poison", "payments", 2, 92.0, 201.7)],
)
def test_the_recorded_stuck_partitions(
    group: str, topic: str, partition: int, begin: float, end: float
) -> None:
    """The truth has the times; a commit is at most two seconds away, a record at the limit."""
    for at in (begin + 25, (begin + end) / 2, end - 1):
        status = recorded_health(group, at)
        assert found(status) == (STUCK, topic, partition)
        assert status.since is not None
        assert abs(status.since - time_of_second(begin)) < 2_500
    assert recorded_health(group, begin + 15).health == OK
    status = recorded_health(group)
    assert (status.health, status.worst) == (OK, STUCK)
    assert (status.worst_topic, status.worst_partition) == (topic, partition)
    assert status.worst_until is not None
    assert abs(status.worst_until - time_of_second(end)) < 2_500


def test_the_recorded_groups_that_ended_fail_and_no_other() -> None:
    health_now = {group: recorded_health(group).health for group in journal_records()}
    by_health = {
        each: {group for group, now in health_now.items() if now is each} for each in GroupHealth
    }
    assert by_health[FAILING] == {"a-crash", "a-deloff", "a-early", "a-next-range"}
    assert by_health[UNKNOWN] == {"a-deleted", "a-prime", "a-share"}, "without committed offsets"
    assert not by_health[STUCK] | by_health[BEHIND]
    worst = {group: recorded_health(group).worst for group in by_health[OK]}
    assert {group for group, each in worst.items() if each is not OK} == {"a-stall", "a-poison"}


def test_four_minutes_are_too_short_for_the_defaults() -> None:
    for group, commits in group_commits().items():
        generations = group_history(group).generations
        until = time_of_second(268)
        status = compute_health(group, partitions(), commits, end_offsets(), generations, until)
        assert status.worst in {OK, UNKNOWN}


@cache
def demo_health() -> dict[str, GroupHealthStatus]:
    wanted = {
        *("session-replay", "telemetry-ingest", "catalog-export", "nightly-reconciliation"),
        *("gdpr-erasure", "tax-reports", "support-tickets", "stock-report", "label-printer"),
    }
    samples = list(sample_offsets(seed=0, start=0))
    places = sorted({(each.topic, each.partition) for each in samples})
    number = {place: n for n, place in enumerate(places)}
    rows = [(number[s.topic, s.partition], s.at, s.end, s.beginning) for s in samples]
    ends = EndOffsets.from_samples(*np.array(rows, dtype=np.int64).T)
    statuses = {}
    for day in simulate_day(seed=0, start=0, plans=[p for p in GROUP_PLANS if p.group in wanted]):
        commits: Rows = []
        records = []
        for offset, (at, entry) in enumerate(day.journal):
            if isinstance(entry, OffsetCommitEntry):
                commits.append((number[entry.topic, entry.partition], at, entry.offset))
            else:
                records.append(JournalRecord(offset, at, entry))
        columns = np.array(commits, dtype=np.int64).reshape(-1, 3).T
        generations = read_history(day.group, records, {}).generations
        statuses[day.group] = compute_health(
            day.group, places, GroupCommits(*columns), ends, generations, DAY
        )
    return statuses


def test_demo_groups() -> None:
    told = {group: (each.health, each.worst) for group, each in demo_health().items()}
    assert told == {
        "session-replay": (BEHIND, BEHIND),  # its lag of the peak stays
        "telemetry-ingest": (OK, BEHIND),
        "catalog-export": (FAILING, FAILING),
        "nightly-reconciliation": (OK, FAILING),
        "gdpr-erasure": (OK, OK),
        "tax-reports": (UNKNOWN, UNKNOWN),
        "support-tickets": (STUCK, STUCK),
        "stock-report": (OK, OK),  # a scheduled job
        "label-printer": (OK, FAILING),  # it could not stay stable
    }


def test_a_demo_group_falls_behind_in_the_peak_and_because_of_a_slow_member() -> None:
    """session-replay does not catch up after the peak; telemetry-ingest has a slow member from
    18:00 to 18:30.
    """
    peak, slow = demo_health()["session-replay"], demo_health()["telemetry-ingest"]
    for status, first, last in (
        (peak, 7 * HOUR, DAY // MINUTE),
        (slow, 17 * HOUR + 50, 18 * HOUR + 45),
    ):
        assert status.worst_since is not None
        assert status.worst_until is not None
        assert first * MINUTE <= status.worst_since < status.worst_until <= last * MINUTE


def test_a_demo_job_that_left_a_backlog_fails() -> None:
    """catalog-export leaves at 22:40; nightly-reconciliation is away from 02:30 to 22:00, once."""
    export, nightly = demo_health()["catalog-export"], demo_health()["nightly-reconciliation"]
    assert export.since is not None
    assert export.since // MINUTE == 22 * HOUR + 40
    assert nightly.worst_since is not None
    assert nightly.worst_since // MINUTE == 2 * HOUR + 30
