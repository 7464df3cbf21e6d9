"""Expected times of a group's protocol, and the heartbeat interval that a history shows."""

from __future__ import annotations

import pytest

from rota.engine.history.downtime import EventTimes
from rota.engine.history.heartbeats import HEARTBEAT_DRIFT, Heartbeats, JoinPhase
from rota.engine.history.policies import PolicyProtocol
from rota.engine.history.restarts import MembershipEvent
from rota.engine.history.timing import (
    CONSUMER_HEARTBEAT_INTERVAL,
    DEFAULT_SYNC_TIME,
    INITIAL_REBALANCE_DELAY,
    RESPONSE_TIME,
    GroupTiming,
)
from tests.support.example_history import generation, make_rebalance, member

EAGER, COOPERATIVE = PolicyProtocol.EAGER, PolicyProtocol.COOPERATIVE
CONSUMER = PolicyProtocol.CONSUMER


def joins_at(interval: int, *since_last: int) -> list[JoinPhase]:
    """The last member joins with the first heartbeat that is due after the call to join."""
    return [JoinPhase(since, -since % interval + 5, 3) for since in since_last]


TIMES = (1_300, 2_450, 4_800, 6_700, 8_150, 10_400, 12_900)
#: A time without a rebalance after which heartbeats are spread over the whole interval.
STABLE = 7_000_003


@pytest.mark.parametrize("interval", [1_000, 2_000, 5_000])
def test_the_heartbeat_interval_is_found_where_join_phases_end_at_its_multiples(
    interval: int,
) -> None:
    found = Heartbeats.from_joins(joins_at(interval, *TIMES), 45_000)
    assert found.is_known
    assert abs(found.interval - interval) <= HEARTBEAT_DRIFT


def test_the_usual_interval_is_preferred_where_it_fits() -> None:
    found = Heartbeats.from_joins(joins_at(3_000, *TIMES), 45_000)
    assert (found.interval, found.is_known) == (3_000, True)


@pytest.mark.parametrize(
    "joins",
    [
        [],
        joins_at(1_000, *TIMES[:2]),
        # no rhythm
        [JoinPhase(*one, 3) for one in ((7_300, 111), (19_100, 2_900), (31_450, 1_234))],
    ],
)
def test_few_or_irregular_joins_leave_the_interval_unknown(joins: list[JoinPhase]) -> None:
    assert Heartbeats.from_joins(joins, 45_000) == Heartbeats(3_000, is_known=False)


def test_heartbeats_that_have_drifted_apart_show_a_short_interval_but_not_when_they_are_due() -> (
    None
):
    joins = [one._replace(since_last=one.since_last + 3_600_000) for one in joins_at(1_000, *TIMES)]
    assert Heartbeats.from_joins(joins, 45_000) == Heartbeats(1_000, is_known=False)


def test_many_members_show_a_short_interval_soon() -> None:
    joins = [JoinPhase(333_990, 1_016, 197), JoinPhase(148_989, 970, 197)]
    assert Heartbeats.from_joins(joins, 45_000) == Heartbeats(1_000, is_known=False)
    assert Heartbeats.from_joins(joins[:1], 45_000) == Heartbeats(3_000, is_known=False)


def test_a_short_session_has_a_short_interval() -> None:
    assert Heartbeats.from_joins([], 6_000).interval == 2_000


def test_join_time_grows_with_the_number_of_members() -> None:
    timing = GroupTiming()
    times = [timing.join_time(members, STABLE) for members in (1, 2, 10, 200)]
    assert times == sorted(times)
    # the mean of n times in 3 s is half of it for one member, and nearly all of it for many
    assert times[0] == pytest.approx(1_500, rel=0.05)
    assert times[1] == pytest.approx(2_000, rel=0.05)
    assert times[3] == pytest.approx(3_000, rel=0.02)


def test_the_first_members_wait_for_the_initial_rebalance_delay() -> None:
    assert GroupTiming().join_time(0) == INITIAL_REBALANCE_DELAY == 3_000


def test_heartbeats_are_nearly_simultaneous_soon_after_a_rebalance() -> None:
    timing = GroupTiming(Heartbeats(3_000, is_known=True))
    # all are due 3 s after the last rebalance, up to 20 ms later
    assert timing.join_time(10, since_last=1_000) == pytest.approx(2_010, abs=12)
    assert timing.revoked_time(EAGER, 10, 2_010, since_last=1_000) == pytest.approx(
        DEFAULT_SYNC_TIME + RESPONSE_TIME + 10, abs=12
    )
    # and spread over the interval an hour later
    late = timing.revoked_time(EAGER, 10, timing.join_time(10, STABLE), STABLE)
    assert late == pytest.approx(1_230 + DEFAULT_SYNC_TIME + RESPONSE_TIME, rel=0.05)


def test_an_eager_group_waits_for_a_late_member() -> None:
    timing = GroupTiming(Heartbeats(3_000, is_known=True))
    usual = timing.join_time(4)
    at_once = timing.revoked_time(EAGER, 4, usual)
    # a tenth of a second belongs to the usual variation
    assert timing.revoked_time(EAGER, 4, usual + 10_000) == at_once + 10_000 - 100


def test_a_revoked_partition_is_never_down_for_longer_than_the_join_phase() -> None:
    timing = GroupTiming()
    assert timing.revoked_time(EAGER, 50, 40) == 40 + DEFAULT_SYNC_TIME + RESPONSE_TIME
    assert timing.revoked_time(EAGER, 50, 40, sync_time=700) == 40 + 700 + RESPONSE_TIME


def test_a_cooperative_partition_waits_for_the_next_heartbeats() -> None:
    timing = GroupTiming(Heartbeats(1_000, is_known=True), sync_time=50)
    assert timing.second_join_time == 1_020
    for join_time in (0, 30_000):
        assert timing.revoked_time(COOPERATIVE, 5, join_time) == 1_020 + 50 + RESPONSE_TIME


def test_a_partition_that_moves_under_kip_848_waits_for_half_a_heartbeat_interval() -> None:
    timing = GroupTiming(Heartbeats(1_000, is_known=True))
    half = CONSUMER_HEARTBEAT_INTERVAL // 2
    assert timing.revoked_time(CONSUMER, 5, 0) == half == 2_500
    assert timing.orphaned_time(CONSUMER, 9_000) == half


@pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])
def test_an_orphaned_partition_waits_for_the_whole_rebalance(protocol: PolicyProtocol) -> None:
    timing = GroupTiming(sync_time=200)
    assert timing.orphaned_time(protocol, 2_700) == 2_700 + 200 + RESPONSE_TIME


def event(joined: int, assigned: int, *later_joins: int) -> MembershipEvent:
    after = generation(1, [member("a")])
    times = EventTimes(0, joined, assigned, {}, later_joins=later_joins)
    return MembershipEvent(after, make_rebalance(None, after), times)


def test_the_history_shows_the_sync_time() -> None:
    events = [event(1_000, 1_030), event(1_000, 1_300), event(1_000, 1_080)]
    assert GroupTiming.from_history(events, Heartbeats()).sync_time == 80
    returned = events[0]._replace(rebalance=None)
    for unknown in ([], [returned], [events[0]._replace(times=None)]):
        assert GroupTiming.from_history(unknown, Heartbeats()).sync_time == DEFAULT_SYNC_TIME


def test_second_rounds_show_the_heartbeat_interval_if_nothing_else_does() -> None:
    events = [event(0, 20, 2_010), event(0, 20, 2_005, 2_015), event(0, 20, 60_000)]
    found = GroupTiming.from_history(events, Heartbeats())
    assert found.heartbeats == Heartbeats(2_000, is_known=True)
    known = Heartbeats(5_000, is_known=True)
    assert GroupTiming.from_history(events, known).heartbeats == known
    # a third of the session, and a round that waited for a late member
    thirds = Heartbeats(session=11_000)
    found = GroupTiming.from_history([event(0, 20, 3_690)], thirds)
    assert found.heartbeats == Heartbeats(3_666, is_known=True, session=11_000)
    assert GroupTiming.from_history([event(0, 20, 3_790)], thirds).heartbeats == thirds
