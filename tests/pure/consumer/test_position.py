"""Positions: where reading begins, and what the answers of brokers change about it."""

from __future__ import annotations

import pytest

from rota.client.fetch import FetchedPartition, FetchOutcome, FetchPosition, ResponseEnd
from rota.client.offsets import EARLIEST, LATEST, EpochEndOffset, ListedOffset, OffsetQuery
from rota.consumer.positions import (
    FetchablePartition,
    FetchState,
    LeaderAndEpoch,
    Positions,
    RequestToken,
)
from rota.engine.model.topic import OffsetAndMetadata, TopicPartition
from rota.errors import AuthorizationFailed, Code, NoOffset, RecordError, Refused

NAME = TopicPartition("orders", 3)
LIMIT = 1000
LEADER = LeaderAndEpoch(1, 5)


def new_positions(
    reset: int | None = EARLIEST, *, leader: LeaderAndEpoch | None = LEADER
) -> Positions:
    """One partition, that knows who leads it."""
    made = Positions(
        reset=reset, backoff=lambda failures: failures * 0.1, preferred_replica_expiry=300.0
    )
    made.assign([NAME])
    made.update_leaders(lambda _: leader)
    return made


def positions_at(
    offset: int = 10, *, epoch: int | None = None, reset: int | None = EARLIEST
) -> Positions:
    """One partition, that reads from an offset on."""
    made = new_positions(reset)
    made.seek(NAME, FetchPosition(offset))
    entry = made[NAME]
    entry.consumed_position = entry.fetch_position = FetchPosition(offset, epoch)
    return made


def next_fetch(of: Positions, now: float = 0.0) -> FetchablePartition:
    """The partition's next Fetch."""
    ((found,),) = of.requests_for_fetch(now, (), LIMIT).values()
    return found


def fetched_partition(
    code: int = 0, *, offset: int = 10, records: int = 0, replica: int = -1
) -> FetchedPartition:
    data = memoryview(bytes(records))
    return FetchedPartition(NAME, code, offset, data, 100, 90, 2, preferred_read_replica=replica)


def only_query(
    found: dict[int, dict[RequestToken, OffsetQuery]],
) -> tuple[RequestToken, OffsetQuery]:
    ((pair,),) = [tuple(each.items()) for each in found.values()]
    return pair


# Where reading begins


def test_what_is_committed_is_read_on() -> None:
    found = new_positions()
    (ticket,) = found.requests_for_committed(0.0)
    assert found.handle_committed(ticket, OffsetAndMetadata(7)) is None
    assert next_fetch(found).offset == 7
    assert found.consumed_positions() == {NAME: OffsetAndMetadata(7)}


def test_an_offset_is_asked_for_once_and_again_after_a_pause() -> None:
    found = new_positions()
    (ticket,) = found.requests_for_committed(0.0)
    assert found.requests_for_committed(0.0) == ()
    found.handle_failure([ticket], 0.0)
    assert found.requests_for_committed(0.05) == ()
    assert found.next_retry_at(0.05) == pytest.approx(0.1)
    assert len(found.requests_for_committed(0.11)) == 1


@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
def test_without_a_committed_offset_the_policy_says_where(policy: int) -> None:
    found = new_positions(policy)
    (ticket,) = found.requests_for_committed(0.0)
    assert found.handle_committed(ticket, None) is None
    assert found.consumed_positions() == {}
    ticket, look = only_query(found.requests_for_reset(0.0))
    assert look == OffsetQuery(policy, 5)
    found.handle_listed_offset(ticket, ListedOffset(42), 0.0)
    assert next_fetch(found).offset == 42


def test_without_a_policy_it_is_an_error_until_somebody_seeks() -> None:
    found = new_positions(None)
    (ticket,) = found.requests_for_committed(0.0)
    error = found.handle_committed(ticket, None)
    assert isinstance(error, NoOffset)
    assert "orders-3" in str(error)
    assert found.requests_for_fetch(9.0, (), LIMIT) == {}
    found.seek(NAME, FetchPosition(0))
    assert next_fetch(found).offset == 0


def test_by_duration_nothing_is_passed_over_that_comes_while_the_end_is_asked_for() -> None:
    found = new_positions()
    found.seek_to(NAME, 1_700_000_000_000)
    looks = []
    for listed in (None, ListedOffset(50), ListedOffset(48)):
        ticket, look = only_query(found.requests_for_reset(0.0))
        looks.append(look.target)
        found.handle_listed_offset(ticket, listed, 0.0)
    assert looks == [1_700_000_000_000, LATEST, 1_700_000_000_000]
    assert next_fetch(found).offset == 48


def test_by_duration_the_end_is_read_from_if_all_is_older() -> None:
    found = new_positions()
    found.seek_to(NAME, 1_700_000_000_000)
    for listed in (None, ListedOffset(50), None):
        ticket, _ = only_query(found.requests_for_reset(0.0))
        found.handle_listed_offset(ticket, listed, 0.0)
    assert next_fetch(found).offset == 50


def test_a_seek_overtakes_what_was_asked_before() -> None:
    found = new_positions()
    (ticket,) = found.requests_for_committed(0.0)
    found.seek(NAME, FetchPosition(3))
    assert found.handle_committed(ticket, OffsetAndMetadata(7)) is None
    assert next_fetch(found).offset == 3


def test_a_partition_that_is_revoked_asks_for_nothing_more() -> None:
    found = new_positions()
    found.mark_pending_revocation([NAME])
    assert found.requests_for_committed(0.0) == ()
    found.assign([NAME])
    assert len(found.requests_for_committed(0.0)) == 1


# Answers to fetches


def test_records_that_wait_are_fetched_behind() -> None:
    found = positions_at()
    verdict, _ = found.handle_fetched(
        next_fetch(found).token,
        fetched_partition(records=400),
        ResponseEnd(FetchPosition(20, 5)),
        0.0,
    )
    assert verdict is FetchOutcome.HAS_RECORDS
    assert next_fetch(found).offset == 20
    assert found.consumed_positions()[NAME].offset == 10


def test_a_full_partition_is_not_fetched_until_it_is_drained() -> None:
    found = positions_at()
    found.handle_fetched(
        next_fetch(found).token,
        fetched_partition(records=1001),
        ResponseEnd(FetchPosition(20, 5)),
        0.0,
    )
    assert found.requests_for_fetch(0.0, (), LIMIT) == {}
    found.remove_buffered(NAME, found[NAME].buffer_version, 1001)
    assert next_fetch(found).offset == 20


def test_who_got_something_is_asked_for_last() -> None:
    names = [TopicPartition("orders", number) for number in range(3)]
    found = new_positions()
    found.assign(names)
    found.update_leaders(lambda _: LEADER)
    for each in names:
        found.seek(each, FetchPosition(0))
    wants = found.requests_for_fetch(0.0, (), LIMIT)[1]
    assert [each.token.partition for each in wants] == names
    for (ticket, _, _), size in zip(wants, (10, 0, 0), strict=True):
        own = fetched_partition(records=size)._replace(partition=ticket.partition)
        found.handle_fetched(ticket, own, ResponseEnd(FetchPosition(5)) if size else None, 0.0)
    assert [each.token.partition for each in found.requests_for_fetch(0.0, (), LIMIT)[1]] == [
        *names[1:],
        names[0],
    ]


def test_an_answer_from_before_a_seek_is_dropped() -> None:
    found = positions_at()
    old = next_fetch(found)
    found.seek(NAME, FetchPosition(77))
    verdict, error = found.handle_fetched(
        old.token, fetched_partition(records=50), ResponseEnd(FetchPosition(20)), 0.0
    )
    assert (verdict, error) == (FetchOutcome.NO_RECORDS, None)
    assert next_fetch(found).offset == 77


def test_out_of_range_is_reset_by_the_policy() -> None:
    found = positions_at()
    found.handle_fetched(
        next_fetch(found).token, fetched_partition(Code.OFFSET_OUT_OF_RANGE), None, 0.0
    )
    assert found[NAME].state is FetchState.AWAIT_RESET
    assert found.consumed_positions() == {}


def test_out_of_range_without_a_policy_names_offset_and_partition() -> None:
    found = positions_at(reset=None)
    _, error = found.handle_fetched(
        next_fetch(found).token, fetched_partition(Code.OFFSET_OUT_OF_RANGE), None, 0.0
    )
    assert isinstance(error, NoOffset)
    assert error.code == Code.OFFSET_OUT_OF_RANGE
    assert "offset 10 of orders-3" in str(error)
    assert "began at 2" in str(error)
    assert found.consumed_positions()[NAME].offset == 10


def test_out_of_range_waits_for_the_records_before_it() -> None:
    found = positions_at(reset=None)
    found.handle_fetched(
        next_fetch(found).token,
        fetched_partition(records=400),
        ResponseEnd(FetchPosition(20, 5)),
        0.0,
    )
    refusal = fetched_partition(Code.OFFSET_OUT_OF_RANGE, offset=20)
    assert found.handle_fetched(next_fetch(found).token, refusal, None, 0.0) == (
        FetchOutcome.NO_RECORDS,
        None,
    )
    assert found.requests_for_fetch(0.0, (), LIMIT) == {}
    found.advance_consumed(NAME, found[NAME].buffer_version, FetchPosition(20, 5))
    found.remove_buffered(NAME, found[NAME].buffer_version, 400)
    verdict, error = found.handle_fetched(next_fetch(found).token, refusal, None, 0.0)
    assert verdict is FetchOutcome.OUT_OF_RANGE
    assert isinstance(error, NoOffset)


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 78, 100, 103])
def test_stale_metadata_are_asked_for_anew_and_nothing_spins(code: int) -> None:
    found = positions_at()
    assert found.handle_fetched(next_fetch(found).token, fetched_partition(code), None, 0.0) == (
        FetchOutcome.REFRESH_METADATA,
        None,
    )
    assert found.requests_for_fetch(0.05, (), LIMIT) == {}
    assert next_fetch(found, 0.11).offset == 10


@pytest.mark.parametrize("code", [-1, 75])
def test_what_passes_is_tried_again_after_a_pause(code: int) -> None:
    found = positions_at()
    assert found.handle_fetched(next_fetch(found).token, fetched_partition(code), None, 0.0) == (
        FetchOutcome.RETRY,
        None,
    )
    assert found.requests_for_fetch(0.05, (), LIMIT) == {}


def test_no_permission_names_the_topic() -> None:
    found = positions_at()
    _, error = found.handle_fetched(next_fetch(found).token, fetched_partition(29), None, 0.0)
    assert isinstance(error, AuthorizationFailed)
    assert "'orders'" in str(error)


def test_damage_that_the_broker_finds_names_the_offset() -> None:
    found = positions_at()
    _, error = found.handle_fetched(next_fetch(found).token, fetched_partition(2), None, 0.0)
    assert isinstance(error, RecordError)
    assert (error.partition, error.offset, error.next_offset) == (3, 10, 11)


@pytest.mark.parametrize(("code", "text"), [(76, "76 (UNSUPPORTED_COMPRESSION_TYPE"), (999, "999")])
def test_unknown_errors_are_raised_with_their_number(code: int, text: str) -> None:
    found = positions_at()
    _, error = found.handle_fetched(next_fetch(found).token, fetched_partition(code), None, 0.0)
    assert isinstance(error, Refused)
    assert text in str(error)


def test_a_quota_delays_the_next_fetch_and_is_no_failure() -> None:
    found = positions_at()
    found.postpone([next_fetch(found).token], 2.0)
    assert found.requests_for_fetch(1.9, (), LIMIT) == {}
    assert found.next_retry_at(0.0) == 2.0
    assert found[NAME].source.failures == 0
    assert next_fetch(found, 2.0).offset == 10


# Reading from replicas, KIP-392


def test_a_preferred_replica_is_read_from_until_its_lease_ends() -> None:
    found = positions_at()
    found.handle_fetched(next_fetch(found).token, fetched_partition(replica=7), None, 0.0)
    ((node, (again,)),) = found.requests_for_fetch(0.0, (), LIMIT).items()
    assert node == 7
    found.handle_fetched(again.token, fetched_partition(), None, 0.0)
    assert list(found.requests_for_fetch(300.1, (), LIMIT)) == [1]


@pytest.mark.parametrize("failing", ["range", "fatal", "gone", "leader"])
def test_a_replica_that_does_not_help_is_left(failing: str) -> None:
    found = positions_at()
    found.handle_fetched(next_fetch(found).token, fetched_partition(replica=7), None, 0.0)
    again = next_fetch(found)
    if failing == "range":
        found.handle_fetched(again.token, fetched_partition(Code.OFFSET_OUT_OF_RANGE), None, 0.0)
    elif failing == "fatal":
        refused = fetched_partition(Code.TOPIC_AUTHORIZATION_FAILED)
        assert found.handle_fetched(again.token, refused, None, 0.0) == (FetchOutcome.RETRY, None)
    elif failing == "gone":
        found.handle_failure([again.token], 0.0)
    else:
        found.update_leaders(lambda _: LeaderAndEpoch(1, 6))
    assert list(found.requests_for_fetch(1.0, (), LIMIT)) == [1]
    assert found.consumed_positions()[NAME].offset == 10


# Logs that were truncated, KIP-320


def test_a_new_leader_is_asked_whether_its_log_is_the_same() -> None:
    found = positions_at(epoch=5)
    found.update_leaders(lambda _: LeaderAndEpoch(2, 6))
    assert found.requests_for_fetch(0.0, (), LIMIT) == {}
    ticket, look = only_query(found.requests_for_validation(0.0))
    assert look == OffsetQuery(5, 6)
    assert found.handle_epoch_end(ticket, EpochEndOffset(5, 10)) is None
    assert next_fetch(found).leader_epoch == 6


def test_a_position_without_an_epoch_cannot_be_validated() -> None:
    found = positions_at(epoch=None)
    found.update_leaders(lambda _: LeaderAndEpoch(2, 6))
    assert next_fetch(found).leader_epoch == 6


def test_a_truncated_log_is_read_on_where_it_parts() -> None:
    found = positions_at(epoch=5)
    found.update_leaders(lambda _: LeaderAndEpoch(2, 6))
    ticket, _ = only_query(found.requests_for_validation(0.0))
    assert found.handle_epoch_end(ticket, EpochEndOffset(4, 8)) is None
    assert next_fetch(found).offset == 8
    assert found.consumed_positions()[NAME] == OffsetAndMetadata(8, "", 4)


def test_why_records_come_again_or_never_is_told() -> None:
    told: list[str] = []
    found = Positions(
        reset=EARLIEST, backoff=lambda _: 0.1, preferred_replica_expiry=300.0, warn=told.append
    )
    found.assign([NAME])
    found.update_leaders(lambda _: LEADER)
    found.seek(NAME, FetchPosition(200))
    found.handle_fetched(next_fetch(found).token, fetched_partition(), None, 0.0)
    refusal = fetched_partition(Code.OFFSET_OUT_OF_RANGE, offset=200)
    found.handle_fetched(next_fetch(found).token, refusal, None, 0.0)
    found.seek(NAME, FetchPosition(10, 5))
    for node, end in ((1, EpochEndOffset(4, 8)), (2, EpochEndOffset(-1, -1))):
        found.update_leaders(lambda _, node=node: LeaderAndEpoch(node, 5))  # type: ignore[misc]
        ticket, _ = only_query(found.requests_for_validation(0.0))
        found.handle_epoch_end(ticket, end)
    assert told == [
        "offset 200 of orders-3 is out of range (the log began at 2 and ended before "
        "100 when it was last fetched); reading continues where auto.offset.reset says",
        "orders-3 was truncated below offset 10, which was read in epoch 5: its leader's log "
        "diverges at offset 8 of epoch 4; reading continues there",
        "orders-3 was truncated below offset 8, which was read in epoch 4: its leader has no "
        "records of epoch 4; reading continues where auto.offset.reset says",
    ]


def test_a_truncated_log_without_a_policy_names_both_offsets() -> None:
    found = positions_at(epoch=5, reset=None)
    found.update_leaders(lambda _: LeaderAndEpoch(2, 6))
    ticket, _ = only_query(found.requests_for_validation(0.0))
    error = found.handle_epoch_end(ticket, EpochEndOffset(4, 8))
    assert isinstance(error, NoOffset)
    assert "below offset 10" in str(error)
    assert "at offset 8 of epoch 4" in str(error)
    assert found[NAME].state is FetchState.FAILED


def test_a_log_that_knows_nothing_of_the_epoch_is_reset() -> None:
    found = positions_at(epoch=5)
    found.update_leaders(lambda _: LeaderAndEpoch(2, 0))
    ticket, _ = only_query(found.requests_for_validation(0.0))
    assert found.handle_epoch_end(ticket, EpochEndOffset(-1, -1)) is None
    assert found[NAME].state is FetchState.AWAIT_RESET


def test_records_that_were_truncated_before_they_were_handed_out_are_dropped() -> None:
    found = positions_at(epoch=5)
    stamp = found[NAME].buffer_version
    found.handle_fetched(
        next_fetch(found).token,
        fetched_partition(records=400),
        ResponseEnd(FetchPosition(20, 6)),
        0.0,
    )
    found.update_leaders(lambda _: LeaderAndEpoch(2, 7))
    ticket, look = only_query(found.requests_for_validation(0.0))
    assert look == OffsetQuery(6, 7)
    assert found.handle_epoch_end(ticket, EpochEndOffset(6, 15)) is None
    assert found[NAME].buffer_version != stamp
    ticket, look = only_query(
        found.requests_for_validation(0.0)
    )  # what was handed out is of an older epoch
    assert look == OffsetQuery(5, 7)
    assert found.handle_epoch_end(ticket, EpochEndOffset(5, 12)) is None
    assert next_fetch(found).offset == 10


def test_a_committed_epoch_is_validated_as_soon_as_there_is_a_leader() -> None:
    found = new_positions(leader=None)
    (ticket,) = found.requests_for_committed(0.0)
    found.handle_committed(ticket, OffsetAndMetadata(7, "", 3))
    assert found.requests_for_fetch(0.0, (), LIMIT) == {}
    found.update_leaders(lambda _: LEADER)
    assert only_query(found.requests_for_validation(0.0))[1] == OffsetQuery(3, 5)


# What rests


def test_what_waits_of_one_that_is_validated_does_not_count_until_it_is_over() -> None:
    found = positions_at(epoch=5)
    found.handle_fetched(
        next_fetch(found).token,
        fetched_partition(records=300),
        ResponseEnd(FetchPosition(20, 5)),
        0.0,
    )
    assert (found.buffered_bytes, found.inactive_bytes) == (300, 0)
    found.update_leaders(lambda _: LeaderAndEpoch(2, 6))
    assert (found.buffered_bytes, found.inactive_bytes) == (300, 300)
    ticket, _ = only_query(found.requests_for_validation(0.0))
    assert found.handle_epoch_end(ticket, EpochEndOffset(5, 20)) is None
    assert (found.buffered_bytes, found.inactive_bytes) == (300, 0)
    found.mark_pending_revocation([NAME])
    assert found.inactive_bytes == 300
    found.assign([NAME])
    assert found.inactive_bytes == 0
    found.mark_bad_record(NAME)
    assert found.inactive_bytes == 300
    found.seek(NAME, FetchPosition(15))
    assert (found.buffered_bytes, found.inactive_bytes, found[NAME].has_bad_record) == (0, 0, False)
