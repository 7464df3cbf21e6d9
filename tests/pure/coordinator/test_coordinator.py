"""The coordinator: joins, elections, syncs, sessions, leaving, restarts."""

from __future__ import annotations

import pytest

from rota.engine.coordinator.coordinator import journal_partition
from rota.engine.coordinator.events import (
    GroupTimerKind,
    JournalLoaded,
    JournalLoadStarted,
    JournalUnloaded,
)
from rota.engine.coordinator.kafka_log import format_note, format_refusal
from rota.engine.coordinator.notes import (
    AssignmentReceived,
    ProtocolMismatch,
    RebalanceStarted,
    StaticMemberReplaced,
    describe_reason,
)
from rota.engine.coordinator.state import GroupState, select_protocol
from rota.engine.model.config import GroupConfig
from rota.engine.model.journal_entry import (
    GroupMetadataEntry,
    GroupMetadataMember,
    GroupMetadataTombstone,
)
from rota.engine.model.request import (
    DeleteGroups,
    Heartbeat,
    LeavingMember,
    ListGroups,
    OffsetDelete,
)
from rota.engine.model.response import (
    DeleteGroupsResult,
    HeartbeatResult,
    JoinGroupResult,
    ListGroupsResult,
    OffsetCommitResult,
    OffsetDeleteResult,
)
from rota.errors import Code, InputError
from tests.support.coordinator_driver import (
    GROUP,
    CoordinatorDriver,
    commit_request,
    join_request,
    subscription_metadata,
)


@pytest.mark.parametrize(
    ("group", "partition"), [("test", 48), ("my-group", 12), ("polygenelubricants", 0)]
)
def test_a_group_has_its_place_in_the_journal(group: str, partition: int) -> None:
    assert journal_partition(group, 50) == partition


# joining


def test_a_group_begins_with_an_entry_of_its_own() -> None:
    driver = CoordinatorDriver()
    reply = driver.joined(driver.send(join_request()))
    assert (reply.code, reply.member_id) == (Code.MEMBER_ID_REQUIRED, "app-id1")
    entry = GroupMetadataEntry(
        group=GROUP, protocol_type="", generation=0, protocol=None, leader=None, state_timestamp=0
    )
    assert driver.journal == [entry]


def test_the_first_to_join_leads_and_is_told_of_all() -> None:
    driver = CoordinatorDriver()
    first, one = driver.enter()
    second, two = driver.enter()
    driver.wait(6_000)
    leader, follower = driver.joined(one), driver.joined(two)
    assert leader.leader == follower.leader == first
    assert [member.member_id for member in leader.members] == [first, second]
    assert follower.members == ()
    assert leader.generation == follower.generation == 1
    assert driver.state() == "CompletingRebalance"


def test_an_old_client_is_taken_in_without_an_id_of_its_own() -> None:
    driver = CoordinatorDriver()
    token = driver.send(join_request(supports_member_id_required=False))
    driver.wait(3_000)
    assert driver.joined(token).member_id == "app-id1"


def test_the_initial_delay_is_extended_while_members_arrive() -> None:
    driver = CoordinatorDriver()
    tokens = [driver.enter()[1]]
    for _ in range(3):
        driver.wait(2_900)
        tokens.append(driver.enter()[1])
    assert not driver.answers.keys() & tokens
    driver.wait(
        3_300
    )  # the first 3 s had a newcomer, so did the second, the third; the fourth none
    assert {driver.joined(token).generation for token in tokens} == {1}


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    driver = CoordinatorDriver()
    _, first = driver.enter(join_request(rebalance=5_000))
    driver.wait(2_999)
    driver.enter(join_request(rebalance=5_000))
    driver.wait(2_000)
    driver.enter(join_request(rebalance=5_000))
    assert first not in driver.answers
    driver.wait(1)
    assert driver.joined(first).generation == 1


def test_an_id_that_is_not_used_expires() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request())
    pending = driver.joined(driver.send(join_request(session=8_000))).member_id
    rejoined = driver.send(
        join_request(ids[0])
    )  # the leader asks for a rebalance; the newcomer is awaited
    driver.wait(7_999)
    assert rejoined not in driver.answers
    driver.wait(1)
    assert driver.joined(rejoined).generation == 2
    assert driver.joined(driver.send(join_request(pending))).code == Code.UNKNOWN_MEMBER_ID


def test_a_new_member_does_not_wait_for_ever() -> None:
    driver = CoordinatorDriver()
    driver.stable(join_request(session=1_800_000, rebalance=600_000))
    _, token = driver.enter(join_request(rebalance=600_000))
    driver.wait(299_999)
    assert token not in driver.answers
    driver.wait(1)
    assert driver.joined(token).code == Code.UNKNOWN_MEMBER_ID


def test_a_full_group_refuses() -> None:
    driver = CoordinatorDriver(GroupConfig(max_size=2))
    ids = driver.stable(join_request(), join_request())
    assert driver.joined(driver.send(join_request())).code == Code.GROUP_MAX_SIZE_REACHED
    assert driver.members() == ids


def test_a_group_over_its_size_loses_who_joins_last() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(), join_request(), join_request())
    driver.config = GroupConfig(max_size=2)
    driver.restart()
    assert driver.state() == "PreparingRebalance"
    tokens = [driver.send(join_request(member_id)) for member_id in ids]
    assert driver.joined(tokens[2]).code == Code.GROUP_MAX_SIZE_REACHED
    assert driver.joined(tokens[0]).generation == 2
    assert driver.members() == ids[:2]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (join_request(group=""), Code.INVALID_GROUP_ID),
        (join_request(session=5_999), Code.INVALID_SESSION_TIMEOUT),
        (join_request(session=1_800_001), Code.INVALID_SESSION_TIMEOUT),
        (join_request("nobody"), Code.UNKNOWN_MEMBER_ID),
        (join_request(strategies=()), Code.INCONSISTENT_GROUP_PROTOCOL),
        (join_request(protocol_type=""), Code.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_what_a_group_does_not_begin_with(request_: object, code: Code) -> None:
    assert isinstance(request_, type(join_request()))
    assert CoordinatorDriver().ask(request_) == JoinGroupResult(
        code=code, member_id=request_.member_id
    )


def test_a_join_that_leaves_no_common_strategy_is_refused_and_said() -> None:
    driver = CoordinatorDriver()
    driver.stable(
        join_request(strategies=("range", "sticky")), join_request(strategies=("sticky", "range"))
    )
    refused = driver.joined(driver.send(join_request(strategies=("roundrobin",), client_id="new")))
    assert refused.code == Code.INCONSISTENT_GROUP_PROTOCOL
    (mismatch,) = (one.change for one in driver.notes if isinstance(one.change, ProtocolMismatch))
    assert mismatch == ProtocolMismatch(
        "new", "consumer", ("roundrobin",), "consumer", ("range", "sticky")
    )
    assert format_refusal(mismatch) == (
        "new of type 'consumer' supports roundrobin; the group, of type 'consumer', has in "
        "common: range, sticky"
    )


# electing


@pytest.mark.parametrize(
    ("ballots", "leader", "elected"),
    [
        (
            [["range", "roundrobin"], ["roundrobin", "range"], ["roundrobin", "range"]],
            0,
            "roundrobin",
        ),
        ([["range", "sticky"], ["sticky", "range"]], 0, "range"),
        ([["range", "sticky"], ["sticky", "range"]], 1, "sticky"),
        ([["a", "b", "c"], ["c", "b"], ["b", "c"]], 0, "b"),
        ([["x", "range"], ["range"]], 0, "range"),
    ],
)
def test_most_votes_win_and_the_leader_decides_a_tie(
    ballots: list[list[str]], leader: int, elected: str
) -> None:
    assert select_protocol(ballots, leader) == elected


def test_the_first_of_the_rest_leads_when_the_leader_goes() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(), join_request(), join_request())
    assert driver.leave(LeavingMember(member_id=ids[0])) == [Code.NONE]
    tokens = [driver.send(join_request(member_id)) for member_id in (ids[2], ids[1])]
    assert driver.joined(tokens[0]).leader == ids[1]
    assert len(driver.joined(tokens[1]).members) == 2


def test_a_leader_that_does_not_join_in_time_is_succeeded() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(group_instance_id="a"), join_request())
    token = driver.send(join_request(ids[1], topics=("t", "u")))
    for _ in range(12):
        driver.wait(5_000)
        assert driver.beat(ids[0], 1, "a") in (Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION)
    assert driver.joined(token).leader == ids[1]
    assert driver.members() == ids  # the static one keeps its place


# rejoining


def test_a_follower_that_missed_the_answer_is_told_again() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(), join_request())
    again = driver.joined(driver.send(join_request(ids[1])))
    assert (again.code, again.generation, again.members) == (Code.NONE, 1, ())
    assert driver.state() == "Stable"


@pytest.mark.parametrize(
    ("position", "topics"), [(0, ("t",)), (1, ("t", "u"))], ids=["leader", "other topics"]
)
def test_a_leader_or_other_topics_start_a_rebalance(position: int, topics: tuple[str, ...]) -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(), join_request())
    token = driver.send(join_request(ids[position], topics=topics))
    assert driver.state() == "PreparingRebalance"
    assert driver.beat(ids[1 - position], 1) == Code.REBALANCE_IN_PROGRESS
    driver.send(join_request(ids[1 - position]))
    assert driver.joined(token).generation == 2


def test_who_joins_twice_is_answered_once_with_the_new_generation() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(), join_request())
    older, newer = (driver.send(join_request(ids[0])) for _ in range(2))
    assert driver.joined(older).code == Code.REBALANCE_IN_PROGRESS
    driver.send(join_request(ids[1]))
    assert driver.joined(newer).generation == 2


def test_dynamic_members_that_do_not_rejoin_are_dropped() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(session=120_000), join_request())
    token = driver.send(join_request(ids[1], topics=("t", "u")))
    driver.wait(60_000)
    assert driver.joined(token).leader == ids[1]
    assert driver.members() == [ids[1]]


def test_where_nobody_rejoined_static_members_are_waited_for() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request(group_instance_id="a", rebalance=7_000))
    newcomer, _ = driver.enter(join_request(rebalance=7_000))
    assert driver.leave(LeavingMember(member_id=newcomer)) == [Code.NONE]
    for _ in range(4):
        driver.wait(7_000)
        assert driver.state() == "PreparingRebalance"
        assert driver.beat(member, 1, "a") == Code.REBALANCE_IN_PROGRESS
    driver.wait(10_000)
    assert driver.state() == "Empty"


# syncing


def test_everybody_waits_for_the_leader() -> None:
    driver = CoordinatorDriver()
    entered = [driver.enter() for _ in range(2)]
    driver.wait(6_000)
    (leader, _), (follower, _) = entered
    early = driver.sync(follower, 1)
    assert early not in driver.answers
    assert driver.beat(follower, 1) == Code.NONE  # completing: it need not join again
    late = driver.sync(leader, 1, **{leader: b"L", follower: b"F"})
    assert driver.synced(early).assignment == b"F"
    assert driver.synced(late).assignment == b"L"
    saved = driver.journal[-1]
    assert isinstance(saved, GroupMetadataEntry)
    assert [member.assignment for member in saved.members] == [b"L", b"F"]


def test_a_leader_that_forgets_members_or_invents_them() -> None:
    driver = CoordinatorDriver()
    entered = [driver.enter() for _ in range(2)]
    driver.wait(6_000)
    (leader, _), (follower, _) = entered
    driver.sync(leader, 1, nobody=b"?")
    assert driver.synced(driver.sync(follower, 1)).assignment == b""
    assert AssignmentReceived(leader, 2, 0, (leader, follower)) in [n.change for n in driver.notes]


def test_who_does_not_sync_in_time_is_removed() -> None:
    driver = CoordinatorDriver()
    leader, _ = driver.enter(join_request(session=120_000))
    silent, _ = driver.enter(join_request(session=120_000))
    driver.wait(6_000)
    driver.sync(leader, 1, **{leader: b"L"})
    driver.wait(59_999)
    assert driver.members() == [leader, silent]
    driver.wait(1)
    assert driver.members() == [leader]
    assert driver.state() == "PreparingRebalance"


def test_a_leader_that_dies_before_its_sync() -> None:
    driver = CoordinatorDriver()
    leader, _ = driver.enter()
    follower, _ = driver.enter(join_request(session=120_000))
    driver.wait(6_000)
    waits = driver.sync(follower, 1)
    driver.wait(10_000)
    assert driver.synced(waits).code == Code.REBALANCE_IN_PROGRESS
    assert driver.joined(driver.send(join_request(follower))).leader == follower
    assert leader not in driver.members()


def test_codes_of_a_sync() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(group_instance_id="a"), join_request())
    assert driver.synced(driver.sync(ids[1], 0)).code == Code.ILLEGAL_GENERATION
    assert driver.synced(driver.sync(ids[1], 2)).code == Code.ILLEGAL_GENERATION
    assert driver.synced(driver.sync("nobody", 1)).code == Code.UNKNOWN_MEMBER_ID
    driver.send(join_request(ids[0]))
    assert driver.synced(driver.sync(ids[1], 1)).code == Code.REBALANCE_IN_PROGRESS


# presence


def test_silence_past_the_session_removes_a_member() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(), join_request())
    for _ in range(4):
        driver.wait(3_000)
        driver.beat(ids[0], 1)
    assert driver.state() == "PreparingRebalance"
    assert driver.members() == [ids[0]]
    assert driver.beat(ids[1], 1) == Code.UNKNOWN_MEMBER_ID


def test_who_waits_for_the_coordinator_is_not_called_silent() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(), join_request(session=120_000))
    token = driver.send(join_request(ids[0]))
    driver.wait(50_000)
    assert token not in driver.answers
    driver.send(join_request(ids[1]))
    assert driver.joined(token).generation == 2


def test_leaving_alone_empties_the_group_and_is_stored_before_the_answer() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request())
    driver.appends = [None]
    token = driver.send_leave(member)
    assert token not in driver.answers
    driver.store(driver.held.pop())
    assert token in driver.answers
    assert driver.state() == "Empty"
    saved = driver.journal[-1]
    assert isinstance(saved, GroupMetadataEntry)
    assert (saved.generation, saved.members, saved.leader, saved.protocol) == (2, (), None, None)


def test_several_leave_at_once_each_with_its_code() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(
        join_request(group_instance_id="a"),
        join_request(group_instance_id="b"),
        join_request(),
        join_request(),
    )
    pending = driver.joined(driver.send(join_request())).member_id
    assert driver.leave(
        LeavingMember(group_instance_id="a"),
        LeavingMember(group_instance_id="nobody"),
        LeavingMember(member_id="wrong", group_instance_id="b"),
        LeavingMember(member_id=ids[2]),
        LeavingMember(member_id="nobody"),
        LeavingMember(member_id=pending),
        LeavingMember(),
    ) == [
        Code.NONE,
        Code.UNKNOWN_MEMBER_ID,
        Code.FENCED_INSTANCE_ID,
        Code.NONE,
        Code.UNKNOWN_MEMBER_ID,
        Code.NONE,
        Code.UNKNOWN_MEMBER_ID,
    ]
    assert driver.members() == [ids[1], ids[3]]


def test_whoever_waits_when_removed_is_answered() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(), join_request())
    waits = driver.send(join_request(ids[0]))
    driver.leave(LeavingMember(member_id=ids[0]))
    assert driver.joined(waits).code == Code.UNKNOWN_MEMBER_ID


# static members


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(group_instance_id="a"), join_request(group_instance_id="b"))
    back = driver.joined(driver.send(join_request(group_instance_id="b")))
    assert (back.code, back.generation, back.leader) == (Code.NONE, 1, ids[0])
    assert driver.state() == "Stable"
    assert driver.synced(driver.sync(back.member_id, 1)).assignment == ids[1].encode()
    assert driver.beat(ids[1], 1, "b") == Code.FENCED_INSTANCE_ID
    assert driver.members() == [ids[0], back.member_id]
    saved = driver.journal[-1]
    assert isinstance(saved, GroupMetadataEntry)
    assert saved.generation == 1


@pytest.mark.parametrize("supports_skip_assignment", [True, False])
def test_a_static_leader_comes_back(supports_skip_assignment: bool) -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(group_instance_id="a"), join_request())
    back = driver.joined(
        driver.send(
            join_request(group_instance_id="a", supports_skip_assignment=supports_skip_assignment)
        )
    )
    assert back.skip_assignment is supports_skip_assignment
    assert len(back.members) == (2 if supports_skip_assignment else 0)
    assert back.leader == (back.member_id if supports_skip_assignment else ids[0])


def test_a_static_member_with_another_strategy_starts_a_rebalance() -> None:
    driver = CoordinatorDriver()
    both = ("range", "sticky")
    ids = driver.stable(
        join_request(group_instance_id="a", strategies=both), join_request(strategies=both[::-1])
    )
    token = driver.send(
        join_request(group_instance_id="a", strategies=both[::-1], reason="deployed")
    )
    assert driver.state() == "PreparingRebalance"
    replaced = StaticMemberReplaced(
        "a", ids[0], "a-id3", keeps_assignment=False, client_reason="deployed"
    )
    assert driver.notes[-1].change == RebalanceStarted(replaced, GroupState.STABLE)
    assert describe_reason(replaced) == "static member a is back as a-id3: deployed"
    assert format_note(driver.notes[-1]) == (
        "Preparing to rebalance group orders in state PreparingRebalance with old generation 1 "
        "(reason: Group's selectedProtocol will change because static member a-id3 with instance "
        "id a joined with change of protocol; client reason: deployed).",
    )
    driver.send(join_request(ids[1], strategies=both[::-1]))
    assert driver.joined(token).protocol == "sticky"


def test_a_static_member_that_is_back_while_others_wait_for_it() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(group_instance_id="a"), join_request(group_instance_id="b"))
    old = driver.send(join_request(ids[1], group_instance_id="b", topics=("t", "u")))
    new = driver.send(join_request(group_instance_id="b"))
    assert driver.joined(old).code == Code.FENCED_INSTANCE_ID
    driver.send(join_request(ids[0], group_instance_id="a"))
    assert driver.joined(new).generation == 2


def test_a_static_member_that_is_back_before_the_assignment() -> None:
    driver = CoordinatorDriver()
    tokens = [driver.send(join_request(group_instance_id=name)) for name in "ab"]
    driver.wait(6_000)
    leader, follower = (driver.joined(token).member_id for token in tokens)
    waits = driver.send_sync(follower, 1, "b")
    driver.send(join_request(group_instance_id="b", reason="deployed"))
    assert driver.synced(waits).code == Code.FENCED_INSTANCE_ID
    assert driver.state() == "PreparingRebalance"
    (line,) = format_note(driver.notes[-1])
    assert line.endswith(" with instance id b; client reason: deployed).")
    assert driver.synced(driver.sync(leader, 1)).code == Code.REBALANCE_IN_PROGRESS


# the journal


def test_a_group_whose_first_entry_fails_does_not_exist() -> None:
    driver = CoordinatorDriver()
    driver.appends = [Code.REQUEST_TIMED_OUT]
    assert driver.joined(driver.send(join_request())).code == Code.COORDINATOR_NOT_AVAILABLE
    assert driver.ask(ListGroups()) == ListGroupsResult()


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (Code.REQUEST_TIMED_OUT, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.KAFKA_STORAGE_ERROR, Code.NOT_COORDINATOR),
    ],
)
def test_an_assignment_that_is_not_stored_starts_the_rebalance_again(
    failure: Code, told: Code
) -> None:
    driver = CoordinatorDriver()
    leader, _ = driver.enter()
    follower, _ = driver.enter()
    driver.wait(6_000)
    waits = driver.sync(follower, 1)
    driver.appends = [failure]
    token = driver.sync(leader, 1, **{leader: b"L"})
    assert driver.synced(token).code == driver.synced(waits).code == told
    assert driver.state() == "PreparingRebalance"
    tokens = [driver.send(join_request(member_id)) for member_id in (leader, follower)]
    assert driver.settle(tokens) == [leader, follower]


def test_a_static_member_that_is_not_stored_changes_nothing() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request(group_instance_id="a"))
    driver.appends = [Code.REQUEST_TIMED_OUT]
    refused = driver.joined(driver.send(join_request(group_instance_id="a")))
    assert refused.code == Code.COORDINATOR_NOT_AVAILABLE
    assert driver.beat(member, 1, "a") == Code.NONE


def test_while_a_change_is_stored_others_wait_but_heartbeats_and_other_groups_do_not() -> None:
    driver = CoordinatorDriver()
    leader, _ = driver.enter()
    driver.wait(6_000)
    driver.appends = [None]
    sync = driver.sync(leader, 1, **{leader: b"L"})
    beat = driver.send(Heartbeat(group=GROUP, generation=1, member_id=leader))
    leave = driver.send_leave(leader)
    other = driver.send(join_request(group="other"))
    assert {sync, leave}.isdisjoint(driver.answers)
    assert driver.answers[beat] == HeartbeatResult()
    assert driver.joined(other).code == Code.MEMBER_ID_REQUIRED
    driver.store(driver.held.pop())
    assert driver.synced(sync).assignment == b"L"
    assert leave in driver.answers
    assert driver.state() == "Empty"


def test_a_restart_is_a_replay() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(group_instance_id="a"), join_request())
    driver.ask(commit_request(7, ids[0], 1, group_instance_id="a"))
    before = list(driver.coordinator.make_journal_snapshot())
    driver.restart()
    assert list(driver.coordinator.make_journal_snapshot()) == [
        entry if not isinstance(entry, GroupMetadataEntry) else _at(entry, driver)
        for entry in before
    ]
    assert {key.kind for key in driver.timers} == {GroupTimerKind.SESSION, GroupTimerKind.RETENTION}
    assert driver.beat(ids[1], 1) == Code.NONE
    assert driver.joined(driver.send(join_request(group_instance_id="a"))).generation == 1


def _at(entry: GroupMetadataEntry, driver: CoordinatorDriver) -> GroupMetadataEntry:
    """A stable group's entry tells of the time before it was stable."""
    stored = [
        e for e in driver.journal if isinstance(e, GroupMetadataEntry) and e.group == entry.group
    ]
    return stored[-1]


def test_a_rebalance_under_way_starts_again_after_a_restart() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(), join_request())
    driver.send(join_request(ids[0]))
    driver.restart()
    assert driver.state() == "Stable"
    assert driver.beat(ids[1], 1) == Code.NONE
    driver.wait(10_000)
    assert driver.state() == "Empty"


def test_requests_while_loading() -> None:
    driver = CoordinatorDriver()
    driver.handle(JournalLoadStarted())
    assert driver.joined(driver.send(join_request())).code == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.beat("anybody", 3) == Code.NONE
    reply = driver.ask(commit_request())
    assert isinstance(reply, OffsetCommitResult)
    assert set(reply.codes.values()) == {Code.COORDINATOR_LOAD_IN_PROGRESS}
    driver.handle(JournalLoaded())
    assert driver.beat("anybody", 3) == Code.UNKNOWN_MEMBER_ID


def test_a_coordinator_that_moves_sends_everybody_away() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(), join_request())
    waits = driver.send(join_request(ids[0]))
    driver.appends = [None]
    storing = driver.send(commit_request(group="other"))
    queued = driver.send(OffsetDelete(group="other", partitions=()))
    driver.handle(JournalUnloaded())
    assert driver.joined(waits).code == Code.NOT_COORDINATOR
    assert driver.answers[queued] == OffsetDeleteResult(code=Code.NOT_COORDINATOR)
    reply = driver.answers[storing]
    assert isinstance(reply, OffsetCommitResult)
    assert set(reply.codes.values()) == {Code.NOT_COORDINATOR}
    assert driver.timers == {}
    assert driver.beat(ids[0], 1) == Code.NOT_COORDINATOR
    driver.store(driver.held.pop())  # too late: nothing happens


# deleting


def test_only_empty_groups_are_deleted() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request())
    driver.ask(commit_request(group="simple"))
    reply = driver.ask(DeleteGroups(groups=(GROUP, "simple", "nobody")))
    assert reply == DeleteGroupsResult(
        codes={
            GROUP: Code.NON_EMPTY_GROUP,
            "simple": Code.NONE,
            "nobody": Code.GROUP_ID_NOT_FOUND,
        }
    )
    assert driver.journal[-1] == GroupMetadataTombstone(group="simple")
    assert driver.state("simple") == "Dead"
    assert driver.beat(ids[0], 1) == Code.NONE


def test_a_join_that_comes_while_its_group_is_deleted_finds_a_new_one() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request())
    driver.leave(LeavingMember(member_id=member))
    driver.appends = [None]
    driver.send(DeleteGroups(groups=(GROUP,)))
    token = driver.send(join_request())
    assert token not in driver.answers
    driver.store(driver.held.pop())
    assert driver.joined(token).code == Code.MEMBER_ID_REQUIRED
    assert driver.state() == "Empty"


# what waits for an append, and what does not


def test_a_timer_that_was_moved_while_it_waited_is_void() -> None:
    driver = CoordinatorDriver()
    _, follower = driver.stable(join_request(group_instance_id="a"), join_request())
    driver.appends = [None]
    driver.send(join_request(group_instance_id="a"))  # being stored: what changes the group waits
    driver.wait(10_000)  # the follower's session ends, and waits
    assert driver.beat(follower, 1) == Code.NONE
    driver.store(driver.held.pop())
    assert follower in driver.members()
    assert driver.state() == "Stable"


def test_a_join_timer_of_the_phase_before_is_void() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(session=200_000), join_request(session=200_000))
    driver.send(join_request(ids[0]))
    driver.appends = [None]
    driver.send(commit_request(1, ids[1], 1))
    driver.send(OffsetDelete(group=GROUP, partitions=()))  # waits for the commit
    driver.wait(60_000)  # the join phase has lasted long enough, which waits too
    driver.send(join_request(ids[1]))
    driver.store(driver.held.pop())
    assert driver.state() == "CompletingRebalance"
    assert driver.members() == [ids[0]]  # the timer was first: it was not moved
    assert driver.joined(driver.send(join_request(ids[1]))).code == Code.UNKNOWN_MEMBER_ID


def test_commits_do_not_wait_for_each_other() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request())
    driver.appends = [None] * 100
    tokens = [driver.send(commit_request(number, member, 1)) for number in range(100)]
    assert driver.beat(member, 1) == Code.NONE
    assert len(driver.held) == 100
    for held in driver.held:
        driver.store(held)
    assert driver.answers.keys() >= set(tokens)
    assert driver.state() == "Stable"


def test_a_deletion_waits_for_commits_and_commits_after_it_for_the_deletion() -> None:
    driver = CoordinatorDriver()
    driver.appends = [None]
    first = driver.send(commit_request(1))
    deletion = driver.send(DeleteGroups(groups=(GROUP, "other")))
    second = driver.send(commit_request(2))
    assert driver.answers.keys().isdisjoint({first, deletion, second})
    driver.store(driver.held.pop())
    assert driver.answers[deletion] == DeleteGroupsResult(
        codes={GROUP: Code.NONE, "other": Code.GROUP_ID_NOT_FOUND}
    )
    assert [type(entry).__name__ for entry in driver.journal] == [
        "OffsetCommitEntry",
        "OffsetCommitTombstone",
        "GroupMetadataTombstone",
        "OffsetCommitEntry",
    ]


def test_a_load_that_comes_unasked_sends_everybody_away_first() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(), join_request())
    waits = driver.send(join_request(ids[0]))
    driver.handle(JournalLoadStarted())
    assert driver.joined(waits).code == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.timers == {}


def test_entries_that_are_too_large_are_not_to_be_tried_again() -> None:
    driver = CoordinatorDriver()
    leader, _ = driver.enter()
    driver.wait(6_000)
    driver.appends = [Code.MESSAGE_TOO_LARGE]
    assert driver.synced(driver.sync(leader, 1)).code == Code.UNKNOWN


def group_metadata_entry(
    group_instance_ids: tuple[str | None, ...],
    leader: str | None = "m0",
    protocol: str | None = "range",
    rebalance_timeout: int = 60_000,
) -> GroupMetadataEntry:
    """A generation of members m0, m1, ..."""
    members = tuple(
        GroupMetadataMember(
            member_id=f"m{number}",
            group_instance_id=group_instance_id,
            client_id="app",
            client_host="/",
            rebalance_timeout=rebalance_timeout,
            session_timeout=10_000,
            subscription=subscription_metadata("t"),
            assignment=b"",
        )
        for number, group_instance_id in enumerate(group_instance_ids)
    )
    return GroupMetadataEntry(
        group=GROUP,
        protocol_type="consumer",
        generation=3,
        protocol=protocol,
        leader=leader,
        members=members,
    )


def test_a_rebalance_timeout_of_nothing_does_not_spin() -> None:
    driver = CoordinatorDriver()
    driver.journal = [group_metadata_entry(("a", None), rebalance_timeout=0)]
    driver.restart()
    driver.leave(LeavingMember(member_id="m1"))
    driver.wait(9_000)  # without a shortest wait, this would never end
    assert driver.state() == "PreparingRebalance"
    driver.wait(1_000)
    assert driver.state() == "Empty"


def test_strategies_that_nobody_names_any_more_are_forgotten() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request())
    for number in range(20):
        token = driver.send(join_request(member, strategies=("range", f"x{number}")))
        driver.settle([token])  # the books are checked after every event


@pytest.mark.parametrize(
    ("leader", "protocol", "group_instance_ids", "left"),
    [
        (None, "range", (None, None), ["m0", "m1"]),
        ("nobody", "range", (None, None), ["m0", "m1"]),
        ("m0", "range", ("a", "a"), ["m1"]),
        ("m0", None, (None, None), []),
    ],
)
def test_a_journal_that_no_coordinator_wrote_is_made_the_best_of(
    leader: str | None,
    protocol: str | None,
    group_instance_ids: tuple[str | None, ...],
    left: list[str],
) -> None:
    driver = CoordinatorDriver()
    driver.journal = [group_metadata_entry(group_instance_ids, leader, protocol)]
    driver.restart()
    assert driver.members() == left
    driver.send(join_request(group_instance_id="a"))
    driver.wait(20_000)
    assert set(driver.members()) & set(left) == set()


def test_what_is_no_event_is_said_so() -> None:
    driver = CoordinatorDriver()
    with pytest.raises(InputError, match="not an event of a coordinator"):
        driver.handle(join_request())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="between the events JournalLoadStarted and JournalLoaded"):
        driver.coordinator.replay(group_metadata_entry((None,)))
