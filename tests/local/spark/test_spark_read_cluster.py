"""A task against brokers that do what one alone does not: followers, quotas, answers cut short."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rota.client.metadata import ClusterMetadata
from rota.errors import RecordError, TimedOut
from rota.spark.task import FetchSizes, RangeProgress, build_range_fetch
from tests.support.scripted_cluster import (
    FOLLOWER,
    LEADER,
    Fetched,
    ScriptedCluster,
    fetch_response,
    scripted_cluster,
    throttled_response,
)
from tests.support.spark_topic import (
    T0,
    close_client_pool,
    encode_records,
    read_offsets,
    source_options,
)

WHOLE = [(0, at) for at in range(10)]
LOG = encode_records(0, 10)
RACK: dict[str, object] = {"kafka.client.rack": "here"}
OFTEN: dict[str, object] = {"kafka.retry.backoff.max.ms": 20}
SOON: dict[str, object] = {"kafkaConsumer.pollTimeoutMs": 500}


@pytest.fixture(autouse=True)
def close_kept_readers() -> Iterator[None]:
    yield
    close_client_pool()


def asked_nodes(found: ScriptedCluster) -> list[tuple[int, str]]:
    """Whom, and from which rack."""
    return [(node, request.rack_id) for node, request in found.asked]


def test_a_follower_is_read_from_if_the_leader_says_so() -> None:
    def answer(node: int, request: Any, before: int) -> Fetched:
        return (
            fetch_response(LOG)
            if node == FOLLOWER
            else fetch_response(preferred_read_replica=FOLLOWER)
        )

    with scripted_cluster(answer) as found:
        assert read_offsets(found.servers, (T0, 0, 10), given=RACK) == WHOLE
        assert asked_nodes(found) == [(LEADER, "here"), (FOLLOWER, "here")]


@pytest.mark.parametrize("how", ["behind", "out of range", "no replica", "gone"])
def test_a_follower_that_does_not_do_is_not_asked_again(how: str) -> None:
    """One that is behind has nothing, which is no proof that there is nothing."""

    def answer(node: int, request: Any, before: int) -> Fetched:
        if node == LEADER:
            rack = request.rack_id
            return fetch_response(preferred_read_replica=FOLLOWER) if rack else fetch_response(LOG)
        code = {"out of range": 1, "no replica": 9}.get(how, 0)
        return fetch_response(end=0, error_code=code)

    with scripted_cluster(answer) as found:
        if how == "gone":
            found.close([FOLLOWER])
        assert read_offsets(found.servers, (T0, 0, 10), given=RACK) == WHOLE
        assert asked_nodes(found)[-1] == (LEADER, "")


def test_a_quota_is_waited_for_and_named() -> None:
    def answer(node: int, request: Any, before: int) -> Fetched:
        return throttled_response(30) if before < 3 else fetch_response(LOG, throttled=30)

    with scripted_cluster(answer) as found:
        assert read_offsets(found.servers, (T0, 0, 10)) == WHOLE
        assert len(found.asked) == 4
    with (
        scripted_cluster(lambda *_: throttled_response(200)) as found,
        pytest.raises(TimedOut, match="a quota"),
    ):
        read_offsets(found.servers, (T0, 0, 10), given=SOON)


def test_an_answer_in_the_middle_of_which_the_connection_ends() -> None:
    def answer(node: int, request: Any, before: int) -> Fetched:
        return (b"\0" * 500, None, fetch_response(LOG))[min(before, 2)]

    with scripted_cluster(answer) as found:
        assert read_offsets(found.servers, (T0, 0, 10)) == WHOLE


def test_a_batch_that_is_cut_and_nothing_before_it() -> None:
    with (
        scripted_cluster(lambda *_: fetch_response(LOG[:-5])) as found,
        pytest.raises(RecordError) as caught,
    ):
        read_offsets(found.servers, (T0, 0, 10))
    assert "t-0" in str(caught.value) or "topic 't'" in str(caught.value)
    assert "max.partition.fetch.bytes" in str(caught.value)


def test_a_batch_that_is_cut_behind_a_whole_one_comes_next() -> None:
    def answer(node: int, request: Any, before: int) -> Fetched:
        offset = request.topics[0].partitions[0].fetch_offset
        log = {0: encode_records(0, 4), 4: encode_records(4, 6)}
        return fetch_response(log[offset] + LOG[:30])

    with scripted_cluster(answer) as found:
        assert read_offsets(found.servers, (T0, 0, 10)) == WHOLE


def test_nothing_though_there_should_be_something() -> None:
    """A leader that is behind for a moment, or a broker whose remote storage is slow."""

    def answer(node: int, request: Any, before: int) -> Fetched:
        return fetch_response() if before < 9 else fetch_response(LOG)

    with scripted_cluster(answer, extent=(0, 8, 10)) as found:  # up to 8 in remote storage
        assert read_offsets(found.servers, (T0, 0, 10), given=OFTEN) == WHOLE

    def behind(node: int, request: Any, before: int) -> Fetched:
        return fetch_response(end=0) if before < 9 else fetch_response(LOG)

    with scripted_cluster(behind) as found:
        assert read_offsets(found.servers, (T0, 0, 10), given=OFTEN) == WHOLE


def test_nothing_and_nothing_is_to_be_expected() -> None:
    with scripted_cluster(lambda *_: fetch_response(), extent=(0, 0, 10)) as found:
        assert read_offsets(found.servers, (T0, 0, 10)) == []
        assert len(found.asked) == 3


def test_what_is_in_remote_storage_and_does_not_come() -> None:
    with scripted_cluster(lambda *_: fetch_response(), extent=(0, 8, 10)) as found:
        with pytest.raises(TimedOut) as caught:
            read_offsets(found.servers, (T0, 0, 10), given=SOON)
        assert "no progress from offset 0" in str(caught.value)


def test_a_broker_that_sends_more_than_was_asked_for() -> None:
    with scripted_cluster(
        lambda *_: fetch_response(encode_records(0, 5) + encode_records(5, 10))
    ) as found:
        assert read_offsets(found.servers, (T0, 3, 7)) == [(0, at) for at in range(3, 7)]


def test_batches_larger_than_asked_for_count_as_what_they_are() -> None:
    """So that not too many of them are on their way."""
    sizes = FetchSizes(1_000, {})
    part = RangeProgress(T0, 0, 10)
    config = source_options("localhost:9092").read_config
    assert build_range_fetch([part], ClusterMetadata(), config, sizes)[1] == 1_000
    sizes.record_response(T0, 50_000_000, 2)
    assert build_range_fetch([part], ClusterMetadata(), config, sizes)[1] == 50_000_000
    kept = FetchSizes(1_000, {T0: 7_000_000.0})  # by another task
    assert build_range_fetch([part], ClusterMetadata(), config, kept)[1] == 7_000_000
