"""Worlds: what is done to a group has the effect that it has in Kafka, to the millisecond."""

from __future__ import annotations

import pytest

from rota.engine.coordinator.notes import (
    GenerationStarted,
    GroupNotStored,
    MemberLeft,
    RebalanceStarted,
    SessionExpired,
    StaticMemberReplaced,
)
from rota.engine.member.events import ListenerMethod
from rota.engine.model.request import OffsetCommit
from rota.engine.model.response import (
    HeartbeatResult,
    JoinGroupResult,
    OffsetCommitResult,
    SyncGroupResult,
)
from rota.engine.model.topic import TopicPartition
from rota.engine.simulator.broker import CrashPoint
from rota.engine.simulator.network import Delivery, ReliableNetwork
from rota.engine.simulator.seeded_random import SeededRandom
from rota.engine.simulator.trace import TraceEventType
from rota.engine.simulator.world import World
from rota.errors import Code, InputError
from tests.support.examples import first
from tests.support.simulation.settled import (
    PROMPT,
    group_changes,
    journal_generations,
    listener_calls,
    owned_partitions,
    process_config,
    run_checked,
    settled_world,
)
from tests.support.simulation.unreliable_network import FaultRates, FaultyNetwork

SESSION = 45_000
BEAT = 3_000


def test_a_group_comes_together() -> None:
    world = settled_world(2)
    assert owned_partitions(world) == {"p0": (0, 1, 2, 3, 4, 5), "p1": (6, 7, 8, 9, 10, 11)}
    assert [entry.generation for entry in journal_generations(world)] == [0, 1]


def test_the_first_members_are_waited_for() -> None:
    world = World({"t": 12})
    for name in ("p0", "p1", "p2"):
        world.start(process_config(name))
    world.run_until(60_000)
    # three seconds, and three more because others came within them
    assert [at for at, _ in group_changes(world, GenerationStarted)] == [6_006]
    assert world["p0"].machine.generation == 1


def test_a_crash_is_noticed_after_the_session() -> None:
    world = settled_world(2)
    world.schedule(100_000, world["p1"].crash)
    world.run_until(200_000)
    ((noticed, _),) = group_changes(world, SessionExpired)
    ((joined, _),) = group_changes(world, GenerationStarted)[:1]
    first_beat = joined + 1 + BEAT  # heartbeats begin when the join is answered
    last_beat = first_beat + (100_000 - first_beat) // BEAT * BEAT
    assert noticed == last_beat + 1 + SESSION  # it travelled for a millisecond
    (crashed,) = (record for record in world.trace if record.type is TraceEventType.CRASHED)
    assert str(crashed).split() == ["100000", "crashed", "p1"]
    assert owned_partitions(world) == {"p0": tuple(range(12))}


def test_one_who_leaves_is_not_waited_for() -> None:
    world = settled_world(2)
    world.schedule(100_000, world["p1"].leave)
    world.run_until(110_000)
    assert [at for at, _ in group_changes(world, MemberLeft)] == [100_001]
    assert owned_partitions(world) == {"p0": tuple(range(12))}
    assert listener_calls(world, "p1", 100_000) == [("revoked", (6, 7, 8, 9, 10, 11))]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_static_member_that_is_back_in_time_is_not_noticed(strategy: str) -> None:
    world = settled_world(2, strategy, group_instance_id=True)
    before = owned_partitions(world)
    restarted = world["p1"].program
    world.schedule(100_000, world["p1"].leave)
    world.schedule(120_000, lambda: world.start(restarted))
    world.run_until(300_000)
    assert group_changes(world, RebalanceStarted, 60_000) == []
    assert len(group_changes(world, StaticMemberReplaced)) == 1
    assert [entry.generation for entry in journal_generations(world)] == [0, 1, 1]
    assert owned_partitions(world) == before
    assert listener_calls(world, "p0", 60_000) == []


def test_a_static_member_that_stays_away_is_missed() -> None:
    world = settled_world(2, group_instance_id=True)
    world.schedule(100_000, world["p1"].leave)
    world.run_until(300_000)
    ((noticed, _),) = group_changes(world, SessionExpired)
    assert 100_000 + SESSION - BEAT < noticed <= 100_000 + SESSION
    assert owned_partitions(world) == {"p0": tuple(range(12))}


def test_a_process_under_a_static_id_that_is_taken_fences_the_other() -> None:
    world = settled_world(2, group_instance_id=True)
    world.schedule(100_000, lambda: world.start(process_config("twin", group_instance_id="s1")))
    world.run_until(200_000)
    assert owned_partitions(world) == {"p0": (0, 1, 2, 3, 4, 5), "twin": (6, 7, 8, 9, 10, 11)}
    raised = [record for record in world.trace if record.type is TraceEventType.RAISED]
    assert [(record.subject, str(record.detail).split(":")[0]) for record in raised] == [
        ("p1", "Fenced")
    ]
    assert group_changes(world, RebalanceStarted, 60_000) == []


def test_eager_stops_all_and_cooperative_only_what_moves() -> None:
    for strategy, gave_up in (("sticky", 6), ("cooperative-sticky", 2)):
        world = settled_world(2, strategy)
        world.schedule(100_000, lambda w=world, s=strategy: w.start(process_config("p2", s)))  # type: ignore[misc]
        world.run_until(200_000)
        assert sorted(map(len, owned_partitions(world).values())) == [4, 4, 4]
        for name in ("p0", "p1"):
            revoked = [
                part for call, part in listener_calls(world, name, 60_000) if call == "revoked"
            ]
            assert [len(part) for part in revoked] == [gave_up]


def test_one_who_does_not_poll_leaves_by_itself() -> None:
    world = settled_world(2, processing=500)
    world.schedule(100_000, lambda: world["p1"].stall(400_000))
    world.run_until(390_000)
    assert group_changes(world, RebalanceStarted, 60_000) == []  # heartbeats went on
    world.run_until(600_000)
    ((left, _),) = group_changes(world, MemberLeft)
    last_poll = max(at for at in range(10, 100_000, 500))
    assert left == last_poll + 300_000 + 1
    assert listener_calls(world, "p1", 450_000)[0] == ("lost", (6, 7, 8, 9, 10, 11))
    assert owned_partitions(world) == {"p0": (0, 1, 2, 3, 4, 5), "p1": (6, 7, 8, 9, 10, 11)}


def test_one_who_is_frozen_for_longer_than_its_session_is_replaced() -> None:
    world = settled_world(2)
    world.schedule(100_000, lambda: world["p1"].pause(60_000))
    world.run_until(159_999)
    assert owned_partitions(world)["p0"] == tuple(range(12))
    assert owned_partitions(world)["p1"] == (6, 7, 8, 9, 10, 11)  # it does not know yet
    world.run_until(300_000)
    assert listener_calls(world, "p1", 160_000)[0] == ("lost", (6, 7, 8, 9, 10, 11))
    assert owned_partitions(world) == {"p0": (0, 1, 2, 3, 4, 5), "p1": (6, 7, 8, 9, 10, 11)}


def test_one_who_is_frozen_for_less_is_not_noticed() -> None:
    world = settled_world(2)
    world.schedule(100_000, lambda: world["p1"].pause(40_000))
    world.run_until(300_000)
    assert group_changes(world, RebalanceStarted, 60_000) == []


def test_what_is_asked_of_a_frozen_process_is_done_when_it_goes_on() -> None:
    world = settled_world(2)
    world.schedule(100_000, lambda: world["p1"].pause(20_000))
    world.schedule(105_000, lambda: world["p1"].pause(5_000))  # within the other
    world.schedule(110_000, lambda: world["p1"].stall(7_000))
    world.schedule(115_000, world["p1"].leave)
    world.run_until(119_999)
    assert "p1" in world.processes
    world.run_until(200_000)
    happened = [
        (record.at, record.type)
        for record in world.trace
        if record.subject == "p1"
        and record.type
        in {
            TraceEventType.RESUMED,
            TraceEventType.WOKEN,
            TraceEventType.GONE,
            TraceEventType.STALLED,
        }
    ]
    assert happened == [
        (120_000, TraceEventType.RESUMED),
        (120_000, TraceEventType.STALLED),
        (127_000, TraceEventType.WOKEN),
        (127_002, TraceEventType.GONE),
    ]


def test_a_stall_that_is_shorter_than_the_work_at_hand_changes_nothing() -> None:
    world = settled_world(1, processing=30_000)
    poll = next(at for at in range(100_000) if at > 60_000 and (at - 10) % 30_000 == 0)
    world.schedule(poll + 1_000, lambda: world["p0"].stall(5_000))
    world.run_until(poll + 40_000)
    woken = [record.at for record in world.trace if record.type is TraceEventType.WOKEN]
    assert len(woken) == 1
    assert poll < woken[0] <= poll + 30_000


def test_a_rebalance_waits_for_the_slowest_to_poll() -> None:
    world = settled_world(2)
    world.schedule(100_000, lambda: world["p1"].slow_down(40_000))
    world.schedule(110_000, lambda: world.start(process_config("p2")))
    world.run_until(139_999)
    assert group_changes(world, GenerationStarted, 110_000) == []
    world.run_until(150_000)
    ((joined, _),) = group_changes(world, GenerationStarted, 110_000)
    assert joined == 140_000 + 1  # the poll after forty seconds of work, and the way there
    assert len(owned_partitions(world)["p2"]) == 4


def test_the_leader_sees_new_partitions_at_its_next_look() -> None:
    world = settled_world(2, metadata_age=300_000)
    world.schedule(100_000, lambda: world.set_partitions({"t": 14}))
    world.run_until(299_999)
    assert group_changes(world, RebalanceStarted, 60_000) == []
    world.run_until(310_000)
    assert owned_partitions(world) == {"p0": tuple(range(7)), "p1": tuple(range(7, 14))}


def test_a_pattern_matches_a_new_topic() -> None:
    world = settled_world(2, topics={"t1": 2, "other": 3}, pattern="t.*")
    world.schedule(100_000, lambda: world.set_partitions({"t2": 2}))
    world.run_until(200_000)
    everything = {partition for process in world.processes.values() for partition in process.owned}
    assert everything == {TopicPartition(f"t{n}", p) for n in (1, 2) for p in (0, 1)}


def test_a_topic_is_deleted() -> None:
    world = settled_world(1, topics={"t": 2, "u": 1})
    world.schedule(100_000, lambda: world.delete_topic("t"))
    world.run_until(200_000)
    assert owned_partitions(world) == {"p0": ()}


def test_a_member_subscribes_to_something_else() -> None:
    world = settled_world(2, topics={"t": 4, "u": 2})
    world.schedule(100_000, lambda: world["p1"].subscribe(("u",)))
    world.run_until(200_000)
    assert world["p0"].owned == tuple(TopicPartition("t", n) for n in range(4))
    assert world["p1"].owned == tuple(TopicPartition("u", n) for n in range(2))


def test_a_listener_takes_its_time_and_may_raise() -> None:
    broken = ValueError("by design")

    def raises(call: ListenerMethod, _: tuple[TopicPartition, ...]) -> Exception | None:
        return broken if call is ListenerMethod.REVOKED else None

    world = settled_world(2, listener_time=2_000, listener=raises)
    world.schedule(100_000, lambda: world.start(process_config("p2")))
    world.run_until(200_000)
    raised = [record for record in world.trace if record.type is TraceEventType.RAISED]
    assert {record.subject for record in raised} == {"p0", "p1"}
    assert owned_partitions(world) == {"p2": tuple(range(12))}  # their applications closed over it


def test_automatic_commits_reach_the_journal() -> None:
    world = settled_world(2, auto_commit=True)
    commits = [record for record in world.trace if isinstance(record.detail, OffsetCommit)]
    assert {record.subject for record in commits} == {"p0", "p1"}
    # one every five seconds from when they had partitions
    assert len(commits) == 2 * (60_000 // 5_000 - 1)
    answers = [r.detail for r in world.trace if isinstance(r.detail, OffsetCommitResult)]
    assert all(not any(answer.codes.values()) for answer in answers)


def test_a_synchronous_commit_returns() -> None:
    world = settled_world(1)
    world.schedule(100_000, lambda: world["p0"].commit(wait=10_000))
    world.run_until(101_000)
    ended = [record for record in world.trace if record.type is TraceEventType.COMMIT]
    assert [(record.at, record.detail) for record in ended] == [(100_003, None)]


# the coordinator


def test_a_coordinator_that_comes_back_does_not_rebalance() -> None:
    world = settled_world(2)
    before = owned_partitions(world)
    world.schedule(100_000, world.broker.stop)
    world.schedule(110_000, lambda: world.broker.start(load_time=5_000))
    run_checked(world, 300_000)
    assert group_changes(world, RebalanceStarted, 60_000) == []
    assert owned_partitions(world) == before
    assert [process.machine.generation for process in world.processes.values()] == [1, 1]


def test_joins_while_loading_are_told_to_wait() -> None:
    world = settled_world(1)
    world.schedule(100_000, lambda: world.broker.move_coordinator(load_time=5_000))
    world.schedule(101_000, lambda: world.start(process_config("p1")))
    run_checked(world, 200_000)
    codes = {
        reply.code
        for reply in (record.detail for record in world.trace if record.subject == "p1")
        if isinstance(reply, JoinGroupResult)
    }
    assert Code.COORDINATOR_LOAD_IN_PROGRESS in codes
    assert len(owned_partitions(world)["p1"]) == 6


@pytest.mark.parametrize("boundary", CrashPoint)
@pytest.mark.parametrize("nth", range(3))
def test_a_crash_at_any_boundary_is_got_over(boundary: CrashPoint, nth: int) -> None:
    """``nth`` append after a new member has come: the founding entry, the generation, ..."""
    world = World({"t": 12}, config=PROMPT)
    left = nth

    def arm(seen: World) -> None:
        nonlocal left
        if left == len(seen.broker.journal):
            left = -1
            seen.broker.crash_at(boundary, downtime=5_000, load_time=100)

    arm(world)
    world.start(process_config("p0"))
    world.schedule(20_000, lambda: world.start(process_config("p1")))
    run_checked(world, 400_000, arm)
    assert [r.detail for r in world.trace if r.type is TraceEventType.COORDINATOR].count(
        "stopped"
    ) == 1
    assert owned_partitions(world) == {"p0": (0, 1, 2, 3, 4, 5), "p1": (6, 7, 8, 9, 10, 11)}


class _Full(ReliableNetwork):
    """A disk that is full for a while."""

    full = False

    def deliver_append(self, now: int) -> tuple[int, Code]:
        return (1, Code.COORDINATOR_NOT_AVAILABLE) if self.full else super().deliver_append(now)


def test_an_append_that_fails_is_no_success_for_anybody() -> None:
    nature = _Full()
    world = settled_world(2, network=nature)
    nature.full = True
    world.schedule(100_000, lambda: world.start(process_config("p2")))
    world.run_until(130_000)
    granted = [
        reply
        for reply in (record.detail for record in world.trace if record.at > 100_000)
        if isinstance(reply, SyncGroupResult) and not reply.code
    ]
    assert granted == []
    assert len(group_changes(world, GroupNotStored)) > 1
    nature.full = False
    run_checked(world, 400_000)
    assert sorted(map(len, owned_partitions(world).values())) == [4, 4, 4]


# the network


class _Once(ReliableNetwork):
    """One request, the next one of its sender, has a fate of its own."""

    def __init__(self, sender: str, fate: Delivery) -> None:
        super().__init__()
        self.sender = sender
        self.fate = fate
        self.armed = False

    def deliver_request(self, sender: str, request: object, now: int) -> Delivery:
        if self.armed and sender == self.sender and request is not None:
            self.armed = False
            return self.fate
        return super().deliver_request(sender, None, now)


def world_with_nature(nature: _Once) -> World:
    world = settled_world(2, network=nature)
    nature.armed = True
    run_checked(world, 400_000)
    assert not nature.armed
    assert owned_partitions(world) == {"p0": (0, 1, 2, 3, 4, 5), "p1": (6, 7, 8, 9, 10, 11)}
    return world


def test_a_lost_heartbeat_is_given_up_after_the_request_timeout() -> None:
    world = world_with_nature(_Once("p1", Delivery(1, 1, lost=True)))
    failed = [record for record in world.trace if record.type is TraceEventType.FAILED]
    # the heartbeats behind it fail with it: they share the connection
    assert {record.at for record in failed} == {failed[0].at}
    assert failed[0].at > 60_000 + 30_000
    assert group_changes(world, RebalanceStarted, 60_000) == []


def test_a_cut_before_the_reply_is_a_failure_though_the_request_was_heard() -> None:
    world = world_with_nature(_Once("p1", Delivery(5, 5, disconnect_after=7)))
    failed = [record.at for record in world.trace if record.type is TraceEventType.FAILED]
    assert len(failed) == 1
    assert group_changes(world, RebalanceStarted, 60_000) == []


def test_a_repeated_request_changes_nothing_more() -> None:
    world = world_with_nature(_Once("p1", Delivery(1, 1, duplicate_delays=(50, 90))))
    assert group_changes(world, RebalanceStarted, 60_000) == []


def test_what_comes_behind_a_join_is_read_after_its_answer() -> None:
    """As on a real connection: a process that closes while it joins is heard only later."""
    world = settled_world(1, processing=60_000)
    world.schedule(100_000, lambda: world.start(process_config("p1")))
    world.run_until(101_000)
    world["p1"].leave()
    world.run_until(119_000)
    assert group_changes(world, MemberLeft) == []


def test_messages_of_one_connection_stay_in_order() -> None:
    arrived: list[int] = []

    class Backwards(ReliableNetwork):
        delay = 100

        def deliver_request(self, sender: str, request: object, now: int) -> Delivery:
            if sender == "p0" and request is not None and now >= 60_000:
                self.delay = max(self.delay - 10, 1)
                return Delivery(self.delay, self.delay)
            return super().deliver_request(sender, None, now)

    world = settled_world(1, network=Backwards())

    def ask() -> None:
        for _ in range(10):
            world["p0"].commit()

    world.schedule(70_000, ask)
    run_checked(world, 80_000)
    arrived = [record.at for record in world.trace if isinstance(record.detail, OffsetCommit)]
    assert len(arrived) == 10
    assert arrived == sorted(arrived)
    answered = [record.at for record in world.trace if record.type is TraceEventType.COMMIT]
    assert answered == sorted(answered)


@pytest.mark.parametrize("seed", first(3, range(10)))
def test_trouble_passes(seed: int) -> None:
    odds = FaultRates(slow=0.1, lost=0.05, repeated=0.05, cut=0.05, append_failed=0.1)
    nature = FaultyNetwork(odds, SeededRandom(seed), latency=3)
    world = settled_world(4, "cooperative-sticky", network=nature, seed=seed)
    run_checked(world, 300_000)
    nature.rates = FaultRates()
    run_checked(world, 900_000)
    assert sorted(map(len, owned_partitions(world).values())) == [3, 3, 3, 3]
    quiet_since = max(record.at for record in world.trace)
    assert quiet_since < 300_000 + 300_000 + SESSION


# the world itself


def test_a_name_is_one_process_at_a_time() -> None:
    world = settled_world(1)
    with pytest.raises(InputError, match="'p0' runs already"):
        world.start(process_config("p0"))


def test_heartbeats_are_not_in_the_trace() -> None:
    world = settled_world(3)
    assert not [
        record
        for record in world.trace
        if isinstance(record.detail, HeartbeatResult) and not record.detail.code
    ]
