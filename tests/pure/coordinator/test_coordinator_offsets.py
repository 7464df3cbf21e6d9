"""Offsets in the coordinator: who may commit, what is fetched, deleted and expired."""

from __future__ import annotations

import pytest

from rota.engine.coordinator.events import JournalLoaded, JournalLoadStarted, TopicsDeleted
from rota.engine.model.config import DAY
from rota.engine.model.journal_entry import (
    GroupMetadataTombstone,
    OffsetCommitEntry,
    OffsetCommitTombstone,
)
from rota.engine.model.request import LeavingMember, OffsetCommit, OffsetDelete, OffsetFetch
from rota.engine.model.response import OffsetCommitResult, OffsetDeleteResult, OffsetFetchResult
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import Code
from tests.support.coordinator_driver import GROUP, CoordinatorDriver, commit_request, join_request

T0 = TopicPartition("t", 0)
U0 = TopicPartition("u", 0)


def commit_code(driver: CoordinatorDriver, request: OffsetCommit) -> Code:
    reply = driver.ask(request)
    assert isinstance(reply, OffsetCommitResult)
    (found,) = set(reply.codes.values())
    return found


def fetch_offsets(
    driver: CoordinatorDriver, *partitions: TopicPartition, group: str = GROUP
) -> list[int | None]:
    reply = driver.ask(OffsetFetch(group=group, partitions=partitions))
    assert isinstance(reply, OffsetFetchResult)
    return [None if found is None else found.offset for found in reply.offsets.values()]


def test_a_member_commits_and_fetches() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request())
    assert commit_code(driver, commit_request(7, member, 1, text="note")) == Code.NONE
    assert fetch_offsets(driver, T0, U0) == [7, None]
    reply = driver.ask(OffsetFetch(group=GROUP))
    assert reply == OffsetFetchResult(offsets={T0: OffsetAndMetadata(7, "note")})
    assert driver.journal[-1] == OffsetCommitEntry(
        group=GROUP, topic="t", partition=0, offset=7, metadata="note", commit_timestamp=driver.now
    )


def test_an_offset_is_there_only_once_it_is_stored() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request())
    driver.appends = [None]
    token = driver.send(commit_request(7, member, 1))
    assert token not in driver.answers
    driver.store(driver.held.pop())
    assert token in driver.answers
    assert fetch_offsets(driver, T0) == [7]


def test_an_offset_that_is_not_stored_is_not_there() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request())
    driver.appends = [Code.KAFKA_STORAGE_ERROR]
    assert commit_code(driver, commit_request(7, member, 1)) == Code.NOT_COORDINATOR
    assert fetch_offsets(driver, T0) == [None]


def test_codes_of_a_commit() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(join_request(group_instance_id="a"), join_request())
    assert commit_code(driver, commit_request(1, ids[1], 0)) == Code.ILLEGAL_GENERATION
    assert commit_code(driver, commit_request(1, ids[1], 2)) == Code.ILLEGAL_GENERATION
    assert commit_code(driver, commit_request(1, "nobody", 1)) == Code.UNKNOWN_MEMBER_ID
    assert (
        commit_code(driver, commit_request(1, "nobody", 1, group_instance_id="a"))
        == Code.FENCED_INSTANCE_ID
    )
    assert commit_code(driver, commit_request(1)) == Code.UNKNOWN_MEMBER_ID  # members are there
    driver.send(join_request(ids[0], group_instance_id="a"))
    assert (
        commit_code(driver, commit_request(1, ids[1], 1)) == Code.NONE
    )  # preparing: what it read counts still
    token = driver.send(join_request(ids[1]))
    assert commit_code(driver, commit_request(1, ids[1], 1)) == Code.ILLEGAL_GENERATION
    generation = driver.joined(token).generation
    assert commit_code(driver, commit_request(1, ids[1], generation)) == Code.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("knows", "told"), [(True, Code.GROUP_ID_NOT_FOUND), (False, Code.ILLEGAL_GENERATION)]
)
def test_a_member_of_a_group_that_is_gone(knows: bool, told: Code) -> None:
    request = OffsetCommit(
        group=GROUP,
        generation=3,
        member_id="m",
        offsets={T0: OffsetAndMetadata(1)},
        supports_group_id_not_found=knows,
    )
    assert commit_code(CoordinatorDriver(), request) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x" * 4096, Code.NONE),
        ("x" * 4097, Code.OFFSET_METADATA_TOO_LARGE),
        ("\N{GRINNING FACE}" * 2048, Code.NONE),
        ("\N{GRINNING FACE}" * 2049, Code.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_has_a_limit_in_utf16(text: str, told: Code) -> None:
    assert commit_code(CoordinatorDriver(), commit_request(text=text)) == told


def test_a_commit_is_a_sign_of_life() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request())
    for _ in range(5):
        driver.wait(9_000)
        assert commit_code(driver, commit_request(1, member, 1)) == Code.NONE
    assert driver.state() == "Stable"


def test_offsets_of_a_topic_made_anew_are_not_taken_for_the_old_ones() -> None:
    driver = CoordinatorDriver()
    old, new = b"o" * 16, b"n" * 16
    driver.ask(OffsetCommit(group=GROUP, offsets={T0: OffsetAndMetadata(9)}, topic_ids={"t": old}))
    for topic_id, expected in ((old, OffsetAndMetadata(9)), (new, None)):
        reply = driver.ask(OffsetFetch(group=GROUP, partitions=(T0,), topic_ids={"t": topic_id}))
        assert reply == OffsetFetchResult(offsets={T0: expected})
    driver.handle(TopicsDeleted((("t", new),)))
    assert fetch_offsets(driver, T0) == [9]
    driver.handle(TopicsDeleted((("t", old),)))
    assert fetch_offsets(driver, T0) == [None]
    assert driver.journal[-1] == OffsetCommitTombstone(group=GROUP, topic="t", partition=0)


def test_a_topic_deleted_while_a_commit_or_a_load_is_under_way_is_not_missed() -> None:
    driver = CoordinatorDriver()
    driver.appends = [None]
    driver.send(commit_request(5))
    driver.handle(TopicsDeleted((("t", None),)))
    driver.store(driver.held.pop())
    assert fetch_offsets(driver, T0) == [None]
    driver.ask(commit_request(5))
    driver.handle(JournalLoadStarted())
    driver.handle(TopicsDeleted((("t", b"x" * 16), ("t", None))))
    for entry in driver.journal:
        driver.coordinator.replay(entry)
    driver.handle(JournalLoaded())
    assert fetch_offsets(driver, T0) == [None]


def test_zeros_are_no_topic_id() -> None:
    driver = CoordinatorDriver()
    driver.ask(
        OffsetCommit(group=GROUP, offsets={T0: OffsetAndMetadata(5)}, topic_ids={"t": bytes(16)})
    )
    reply = driver.ask(OffsetFetch(group=GROUP, partitions=(T0,), topic_ids={"t": b"a" * 16}))
    assert reply == OffsetFetchResult(offsets={T0: OffsetAndMetadata(5)})


def test_a_journal_may_say_that_there_is_no_offset() -> None:
    driver = CoordinatorDriver()
    driver.journal = [
        OffsetCommitEntry(group=GROUP, topic="t", partition=0, offset=-1, commit_timestamp=0)
    ]
    driver.restart()
    assert fetch_offsets(driver, T0) == [None]


def test_deleting_offsets() -> None:
    driver = CoordinatorDriver()
    missing = driver.ask(OffsetDelete(group=GROUP, partitions=(T0,)))
    assert missing == OffsetDeleteResult(code=Code.GROUP_ID_NOT_FOUND)
    (member,) = driver.stable(join_request())
    for topic in "tu":
        driver.ask(commit_request(3, member, 1, topic=topic))
    reply = driver.ask(OffsetDelete(group=GROUP, partitions=(T0, U0)))
    assert reply == OffsetDeleteResult(codes={T0: Code.GROUP_SUBSCRIBED_TO_TOPIC, U0: Code.NONE})
    assert fetch_offsets(driver, T0, U0) == [3, None]


def test_offsets_of_members_that_are_no_consumers_stay_while_they_are_there() -> None:
    driver = CoordinatorDriver()
    driver.enter(join_request(protocol_type="connect"))
    reply = driver.ask(OffsetDelete(group=GROUP, partitions=(T0,)))
    assert reply == OffsetDeleteResult(code=Code.NON_EMPTY_GROUP)


# expiry


def test_offsets_expire_a_week_after_the_group_became_empty() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request(session=1_800_000))
    driver.ask(commit_request(3, member, 1))
    driver.wait(1_000_000)
    driver.leave(LeavingMember(member_id=member))
    emptied = driver.now
    driver.wait(7 * DAY - 1)
    assert fetch_offsets(driver, T0) == [3]
    driver.wait(600_000)
    assert fetch_offsets(driver, T0) == [None]
    assert driver.journal[-2:] == [
        OffsetCommitTombstone(group=GROUP, topic="t", partition=0),
        GroupMetadataTombstone(group=GROUP),
    ]
    assert driver.state() == "Dead"
    driver.restart()
    assert driver.state() == "Dead"
    assert driver.now >= emptied + 7 * DAY


def test_offsets_without_members_expire_a_week_after_the_commit() -> None:
    driver = CoordinatorDriver()
    driver.ask(commit_request(3))
    driver.wait(3 * DAY)
    driver.ask(commit_request(4, topic="u"))
    driver.wait(4 * DAY)
    assert fetch_offsets(driver, T0, U0) == [None, 4]
    driver.wait(3 * DAY)
    assert fetch_offsets(driver, T0, U0) == [None, None]


def test_a_topic_that_nobody_reads_any_more_expires_in_a_stable_group() -> None:
    driver = CoordinatorDriver()
    (member,) = driver.stable(join_request(session=1_800_000))
    for topic in "tu":
        driver.ask(commit_request(3, member, 1, topic=topic))
    for _ in range(8 * 50):
        driver.wait(DAY // 50)
        driver.beat(member, 1)
    assert fetch_offsets(driver, T0, U0) == [3, None]


def test_a_client_may_ask_for_a_retention_of_its_own() -> None:
    driver = CoordinatorDriver()
    driver.ask(commit_request(3, retention=DAY))
    driver.wait(DAY)
    assert fetch_offsets(driver, T0) == [None]


def test_nothing_expires_while_rebalancing() -> None:
    driver = CoordinatorDriver()
    ids = driver.stable(
        join_request(rebalance=2**31 - 1), join_request(session=1_800_000, rebalance=2**31 - 1)
    )
    driver.ask(commit_request(3, ids[0], 1, topic="u"))
    driver.send(join_request(ids[0], rebalance=2**31 - 1))
    for _ in range(8 * 50):
        driver.wait(DAY // 50)
        assert driver.beat(ids[1], 1) == Code.REBALANCE_IN_PROGRESS
    assert fetch_offsets(driver, U0) == [3]
